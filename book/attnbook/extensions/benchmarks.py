"""The chapter on fast loops shows what `make bench` measured: read from benchmarks/results at every build, never typed in.

    ```{benchmark-figure} kernels       operations per second against operations per byte, under the machine's roofs
    caption (Markdown)
    ```

    ```{benchmark-table} kernels        every case: rate, ratio to the naive form, limit, share of it
    ```

    {benchmark-ratio}`kernels name`     a named ratio; with a Python format: `kernels name | .0f`

What nobody has measured yet is no error: the page says so. A file that cannot be read is a Sphinx warning.

The limit of a case is the lowest of what it cannot pass: the peak of multiply-adds over the operations of one unit, and the
bandwidth of the memory that its bytes cross over the bytes of one unit, both measured in the same run with as many threads (cases
without a loop, benchmarks/machine.py).
"""

import io
import json
import math
import re
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective, SphinxRole

from bookkit.sphinx.notebook_quotes import kept_image
from bookkit.sphinx.provenance import command, folded, sentence

KERNELS = {
    "single_head": ("Single head", "clean"), "token_selection": ("Token selection", "signal"),
    "in_context": ("In-context training", "noisy"), "gaussian_tail": ("Population error", "noise"),
    "attention_heads": ("Attention heads", "measured"),
}  # fmt: skip
NOT_MEASURED = "not measured yet"
NAIVE = {"naive", "torch", "numpy"}  # words in the names of tensor code that others are measured against
logger = logging.getLogger(__name__)


# --- reading ----------------------------------------------------------------------------------------------------------


def newest(folder: Path, group: str) -> dict[str, dict]:
    """The newest file of `group` for each device ("cpu", "nvidia-h200", ...), by the date in its name.

    Raises ValueError that names the file, if one is not what `make bench` writes.
    """
    last = {}
    for path in sorted(folder.glob(f"{group}-*.json")):  # in the order of their dates
        if match := re.fullmatch(rf"{group}-([a-z0-9-]+)-\d{{4}}-\d{{2}}-\d{{2}}\.json", path.name):
            last[match[1]] = path
    return {device: _read(path) for device, path in sorted(last.items())}


def _read(path: Path) -> dict:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        found["cases"] = [_flat(case) for case in found["cases"] if case.get("work")]
        dict(found["ratios"]), dict(found["versions"]), str(found["machine"] + found["device"] + found["date"])
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{path.name}: not a result of `make bench`: {type(error).__name__} {error}") from error
    return found


def _flat(case: dict) -> dict:
    """A case and its work in one dict, with `threads` and `kernel` as a key of `KERNELS`, or "" for a probe of the machine."""
    made = {"threads": 1} | case | case["work"]
    made["kernel"] = re.sub(r"[ -]", "_", made["kernel"])
    if made["kernel"] not in ("", *KERNELS):
        raise ValueError(f"{case['case']}: kernel must be one of {', '.join(KERNELS)}; got {made['kernel']!r}")
    if not float(made["median_s"]) > 0:
        raise ValueError(f"{case['case']}: median_s must be > 0; got {made['median_s']}")
    float(made["iqr_s"]), float(made["units"]), made["what"], made["unit"], made["dtype"], made["level"]
    float(made["operations"]), float(made["bytes"])
    return made


# --- arithmetic -------------------------------------------------------------------------------------------------------


def rate(case: dict) -> float:
    """Units per second, from the median."""
    return case["units"] / case["median_s"]


def roof(found: dict, of: str, threads: int = 1) -> float | None:
    """Operations per second in the dtype `of`, or bytes per second from the memory `of`; None if not measured."""
    for case in found["cases"]:
        named = {"operation": case["dtype"], "byte": case["level"]}.get(case["unit"])
        if named == of and case["threads"] == threads:
            return rate(case)
    return None


def limit(found: dict, case: dict) -> tuple[float, str] | None:
    """The lowest rate that this case cannot pass, and what sets it; None where that was not measured."""
    peak, bandwidth = (roof(found, case[of], case["threads"]) for of in ("dtype", "level"))
    limits = [(peak / case["operations"], "multiply-adds")] if case["operations"] and peak else []
    if case["bytes"]:
        if not bandwidth:  # the roof that may be the lower one is not known
            return None
        limits.append((bandwidth / case["bytes"], case["level"]))
    return min(limits, default=None)


def _words(case: dict) -> set[str]:
    return set(re.split(r"[-_ ]", case["case"]))


def baseline(found: dict, case: dict) -> dict | None:
    """The naive form of the same work: same loop and unit; of several, by dtype, torch before numpy, nearest name."""
    same = [each for each in found["cases"] if (each["kernel"], each["unit"]) == (case["kernel"], case["unit"])]

    def nearness(other: dict) -> tuple:
        return other["dtype"] == case["dtype"], "numpy" not in _words(other), -len(_words(other) ^ _words(case))

    return max((each for each in same if _words(each) & NAIVE), key=nearness, default=None)


def thousands(value: float) -> str:
    """Three digits and a letter: 628 900 -> "629 k", 1.21e6 -> "1.21 M"; below a thousand as it is."""
    for power, letter in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= 0.9995 * power:
            return f"{float(f'{value / power:.3g}'):g}{letter}"
    return f"{value:.3g}"


# --- what is shown ----------------------------------------------------------------------------------------------------


def where(found: dict) -> str:
    """Date, machine and versions, in words."""
    device = f"{found['machine']}, CPU" if found["device"] == "cpu" else found["device"]
    return f"{found['date']}: {device}, {', '.join(f'{name} {number}' for name, number in found['versions'].items())}"


def table(found: dict) -> str:
    """Markdown: a table for each loop, a row for each of its cases."""
    lines = [f"Measured on {where(found)}. ± is the interquartile range."]
    for kernel, (title, _) in KERNELS.items():
        cases = [case for case in found["cases"] if case["kernel"] == kernel]
        units = " and ".join(dict.fromkeys(f"{case['unit']}s" for case in cases))
        lines += ["", f"**{title}:** {f'{units} per second' if cases else NOT_MEASURED}", ""]
        lines += ["| case | rate | × naive | limit | reached |", "|---|--:|--:|--:|--:|"] if cases else []
        for case in cases:
            naive, most, threads = baseline(found, case), limit(found, case), case["threads"]
            share = rate(case) / most[0] if most else math.nan
            cells = [
                f"{case['what']} ({case['dtype']}, {threads} thread{'s' if threads > 1 else ''})",
                f"{thousands(rate(case))} ± {case['iqr_s'] / case['median_s']:.1%}",
                thousands(rate(case) / rate(naive)) if naive else "–",
                f"{thousands(most[0])}, {most[1]}" if most else NOT_MEASURED,
                (f"{share:.0%}" if share >= 0.01 else f"{share:.1%}") if most else "–",
            ]
            lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    return "\n".join(lines) + "\n"


def figure(found: dict) -> bytes:
    """SVG: the cases of one thread under the roofs of one core; the same bytes for the same results.

    Cases whose numbers stay in registers and the first cache cross no border: they stand at the right edge.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    from bookkit import figures

    cases = [case for case in found["cases"] if case["kernel"] and case["threads"] == 1 and case["operations"]]
    peaks = {name: value for name in ("float32", "float64") if (value := roof(found, name))}
    memories = {name: value for name in ("L2", "L3", "memory") if (value := roof(found, name))}
    with rc_context({**figures._STYLE, "svg.hashsalt": "benchmark"}):
        made = Figure(figsize=(7.2, 4.5))
        axes = made.subplots()
        axes.set(xscale="log", yscale="log", xlabel="operations per byte", ylabel="operations per second")
        crossing = [case["operations"] / case["bytes"] for case in cases if case["bytes"]]
        low, edge = min(crossing, default=1.0) / 3, 30 * max(crossing, default=1.0)
        for dtype, peak in peaks.items():
            axes.axhline(peak, color=figures.COLOURS["theory"], linestyle="-" if dtype == "float32" else "--")
            axes.annotate(f"{dtype} peak", (low, peak), (2, 2), textcoords="offset points", fontsize=9)
        for memory, bandwidth in memories.items():
            end = min(edge, max(peaks.values(), default=math.inf) / bandwidth)
            axes.plot([low, end], [low * bandwidth, end * bandwidth], color=figures.COLOURS["bound"])
            axes.annotate(
                f"{memory}, {bandwidth / 1e9:.0f} GB/s", (low, low * bandwidth), (4, -3), textcoords="offset points",
                fontsize=9, va="top", bbox={"facecolor": figures.SHADES["paper"], "linewidth": 0, "pad": 0.5},
            )  # fmt: skip
        for case in cases:
            readable = _words(case) & {*NAIVE, "reference"}
            axes.plot(
                case["operations"] / case["bytes"] if case["bytes"] else edge, rate(case) * case["operations"], ls="",
                marker="o" if case["dtype"] == "float32" else "s", color=figures.COLOURS[KERNELS[case["kernel"]][1]],
                markerfacecolor=figures.SHADES["paper"] if readable else None, markersize=7, markeredgewidth=1.5, zorder=4,
            )  # fmt: skip
        axes.set_xlim(low, edge * 2)
        looks = [
            (title, figures.COLOURS[colour], "o")
            for name, (title, colour) in KERNELS.items()
            if any(case["kernel"] == name for case in cases)
        ]
        looks += [("float32", figures.SHADES["text"], "o"), ("float64", figures.SHADES["text"], "s")]
        shown = [Line2D([], [], ls="", label=label, color=colour, marker=marker) for label, colour, marker in looks]
        made.legend(handles=shown, loc="outside upper left", ncols=4, columnspacing=1.4, handletextpad=0.2)
        kept = io.BytesIO()
        made.savefig(kept, format="svg", metadata={"Date": None})
    return kept.getvalue()


def describe(found: dict) -> str:
    """The picture in words: the roofs of one core, and for each loop and precision the best share of its limit."""
    roofs = [
        f"{of} {thousands(value)}" for of in ("L2", "L3", "memory", "float32", "float64") if (value := roof(found, of))
    ]
    best: dict[str, float] = {}
    for case in found["cases"]:
        if case["kernel"] and case["threads"] == 1 and not _words(case) & {*NAIVE, "reference"}:
            name = f"{KERNELS[case['kernel']][0]}, {case['dtype']}"
            most = limit(found, case)
            best[name] = max(best.get(name, 0.0), rate(case) / most[0] if most else 0.0)
    told = [f"{name}: {share:.0%} of the limit" for name, share in best.items() if share]
    start = "Operations per second against operations per byte, both logarithmic. Bytes or operations per second of one core: "
    return f"{start}{', '.join(roofs) or NOT_MEASURED}. {'. '.join(told)}."


def quoted(found: dict | None, text: str) -> str:
    """The ratio that `text` names, with the format behind a bar. Raises ValueError for a format that is none."""
    name, _, spec = (part.strip() for part in text.partition("|"))
    return format(found["ratios"][name], spec or ".3g") if found and name in found["ratios"] else NOT_MEASURED


# --- Sphinx -----------------------------------------------------------------------------------------------------------


def _results(of: SphinxDirective | SphinxRole, group: str) -> dict[str, dict]:
    folder = Path(of.env.srcdir) / "benchmarks" / "results"
    for path in folder.glob(f"{group}-*.json"):
        of.env.note_dependency(str(path))
    try:
        return newest(folder, group)
    except ValueError as error:
        logger.warning("benchmarks: %s", error, location=of.get_location())
        return {}


class BenchmarkFigure(SphinxDirective):
    """The picture of one group on the CPU, with its caption and the command that measures again."""

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        found = _results(self, self.arguments[0]).get("cpu")
        if found is None:
            return self.parse_text_to_nodes(f"*The figure of the CPU: {NOT_MEASURED}.*")
        image = nodes.image(uri=kept_image(self.env, "benchmark_figures", ".svg", figure(found)), alt=describe(found))
        text = " ".join([*self.content, f"Measured on {where(found)}."])
        caption = nodes.caption(text, "", *self.parse_inline(text)[0])
        made = sentence(
            "Drawn at every build from the newest file: the median of repeated runs of each case. To measure again:"
        )
        again = command(f".venv/bin/python -m benchmarks --part {self.arguments[0]}")
        return [
            nodes.figure("", image, caption, align="center"),
            folded(self.content[0].partition(".")[0], made, again),
        ]


class BenchmarkTable(SphinxDirective):
    """Cases of one group, a table for every device that was measured."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        found = _results(self, self.arguments[0])
        texts = [table(each) for each in found.values()]
        texts += [f"*On a CPU: {NOT_MEASURED}.*"] if "cpu" not in found else []
        texts += [f"*On a GPU: {NOT_MEASURED}.*"] if not set(found) - {"cpu"} else []
        return self.parse_text_to_nodes("\n\n".join(texts))


class BenchmarkRatio(SphinxRole):
    """A ratio of a group on the CPU: the role's text begins with the group's name."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        group, _, rest = self.text.partition(" ")
        try:
            text = quoted(_results(self, group).get("cpu"), rest)
        except (ValueError, TypeError) as error:
            logger.warning("benchmark %s: %s", self.text, error, location=self.get_location())
            text = "?"
        return [nodes.inline(text, text, classes=["named-result"])], []


def setup(app: Sphinx) -> dict:
    """Register with Sphinx."""
    app.setup_extension("bookkit.sphinx.provenance")
    app.add_directive("benchmark-figure", BenchmarkFigure)
    app.add_directive("benchmark-table", BenchmarkTable)
    app.add_role("benchmark-ratio", BenchmarkRatio())
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
