"""What `docs/kernels.md` shows of `make bench`: a table for each device, from the newest files in benchmarks/results.

    python -m benchmarks.report        write the tables between the marks in docs/kernels.md

The limit of a case is the lowest of what it cannot pass: the peak of multiply-adds over the operations of one unit, and the
bandwidth of the memory that its bytes cross over the bytes of one unit, both measured in the same run with as many threads (cases
without a loop, benchmarks/machine.py).
"""

import json
import math
import re
from pathlib import Path

from bookkit.parser import answered

RESULTS = Path(__file__).parent / "results"
CHAPTER = Path(__file__).parents[1] / "docs" / "kernels.md"
MARKS = "<!-- measured: python -m benchmarks.report -->", "<!-- end of what was measured -->"
KERNELS = {
    "single_head": "Single head",
    "token_selection": "Token selection",
    "in_context": "In-context training",
    "gaussian_tail": "Population error",
    "attention_heads": "Attention heads",
}
NOT_MEASURED = "not measured yet"
NAIVE = {"naive", "torch", "numpy"}  # words in the names of tensor code that others are measured against


# --- reading ----------------------------------------------------------------------------------------------------------


def newest(folder: Path) -> dict[str, dict]:
    """The newest result for each device ("cpu", "nvidia-h200", ...), by the date in its name."""
    last = {}
    for path in sorted(folder.glob("kernels-*.json")):  # in the order of their dates
        if match := re.fullmatch(r"kernels-([a-z0-9-]+)-\d{4}-\d{2}-\d{2}\.json", path.name):
            last[match[1]] = json.loads(path.read_text(encoding="utf-8"))
    for found in last.values():  # a case and its work in one dict; a probe of the machine is of no kernel
        found["cases"] = [case | case["work"] for case in found["cases"]]
        for case in found["cases"]:
            case["kernel"] = re.sub(r"[ -]", "_", case["kernel"])
    return dict(sorted(last.items()))


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
    for kernel, title in KERNELS.items():
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


def written(text: str, found: dict[str, dict]) -> str:
    """The chapter with the tables of all devices between its marks."""
    before, first, rest = text.partition(MARKS[0])
    after = rest.partition(MARKS[1])[2]
    tables = "\n".join(table(each) for each in found.values())
    return f"{before}{first}\n\n{tables}\n{MARKS[1]}{after}"


def main() -> None:
    """Write the tables into the chapter."""
    text = written(CHAPTER.read_text(encoding="utf-8"), newest(RESULTS))
    CHAPTER.write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    raise SystemExit(answered("benchmarks.report", main))
