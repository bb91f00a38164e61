"""The figures of `make bench` in the book: drawn from benchmarks/results at every build, never typed in.

    ```{benchmark-roofline} kernels     operations per second against operations per byte, under the machine's roofs
    caption (Markdown)
    ```

    ```{benchmark-table} kernels        every case: rate, ratio to the naive form, limit, share of it
    :kernel: single_head                (optional) of one loop only
    ```

    {benchmark-ratio}`kernels name`     a named ratio; with a Python format: `kernels name | .0f`
    {benchmark-rate}`kernels case`      "629 k run-steps/s"

What nobody has measured yet is no error: the page says so. A file that cannot be read is a Sphinx warning.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective, SphinxRole

from bookkit.sphinx.benchmark_results import KERNELS, NOT_MEASURED, Results, Row, newest, thousands
from bookkit.sphinx.benchmark_roofline import describe, roofline
from bookkit.sphinx.notebook_quotes import kept_image

logger = logging.getLogger(__name__)

COLUMNS = {"Case": 50, "Rate": 12, "× naive": 10, "Limit": 15, "Reached": 13}  # relative widths


def _newest(env: BuildEnvironment, group: str, location: str) -> dict[str, Results]:
    folder = Path(env.srcdir) / "benchmarks" / "results"
    for path in folder.glob(f"{group}-*.json"):
        env.note_dependency(str(path))
    try:
        return newest(folder, group)
    except ValueError as error:
        logger.warning("benchmarks: %s", error, location=location)
        return {}


def _missing(what: str) -> nodes.paragraph:
    text = f"{what}: {NOT_MEASURED}."
    return nodes.paragraph(text, "", nodes.emphasis(text, text), classes=["benchmark-missing"])


class Roofline(SphinxDirective):
    """The picture of one group on the CPU, with its caption."""

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        results = _newest(self.env, self.arguments[0], self.get_location()).get("cpu")
        if results is None or not any(row.kernel for row in results.rows):
            return [_missing("The roofline of the CPU")]
        svg = roofline(results)
        uri = kept_image(self.env, "benchmark_figures", ".svg", svg)
        image = nodes.image(uri=uri, alt=describe(results), width="736px")
        text = " ".join([*self.content, f"Measured on {_where(results)}."])
        return [nodes.figure("", image, nodes.caption(text, "", *self.parse_inline(text)[0]), align="center")]


def _where(results: Results) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in results.versions.items())
    device = f"{results.machine}, CPU" if results.device == "cpu" else results.device
    return f"{results.date}: {device}, {versions}"


class Table(SphinxDirective):
    """Cases of one group, a table for every device that was measured."""

    required_arguments = 1
    option_spec = {"kernel": lambda text: directives.choice(text, tuple(KERNELS))}  # noqa: RUF012 (as docutils reads it)

    def run(self) -> list[nodes.Node]:
        wanted = [self.options["kernel"]] if "kernel" in self.options else list(KERNELS)
        found = _newest(self.env, self.arguments[0], self.get_location())
        made: list[nodes.Node] = [table(results, wanted) for results in found.values()]
        if "cpu" not in found:
            made.append(_missing("On a CPU"))
        if not set(found) - {"cpu"}:
            made.append(_missing("On a GPU"))
        return made


def table(results: Results, wanted: Sequence[str]) -> nodes.table:
    """The cases of these loops, a row each: rate, ratio to the naive form, limit, share of it."""
    group = nodes.tgroup(cols=len(COLUMNS))
    group += [nodes.colspec(colwidth=width) for width in COLUMNS.values()]
    group += nodes.thead("", nodes.row("", *[_entry(name) for name in COLUMNS]))
    body = nodes.tbody()
    for kernel in wanted:
        rows = results.of_kernel(kernel)
        units = " and ".join(dict.fromkeys(f"{row.unit}s" for row in rows))
        title = f"{KERNELS[kernel]}: {f'{units} per second' if rows else NOT_MEASURED}"
        heading = nodes.entry("", nodes.paragraph("", "", nodes.strong(title, title)), morecols=len(COLUMNS) - 1)
        body += nodes.row("", heading)
        body += [nodes.row("", *_cells(results, row)) for row in rows]
    group += body
    caption = f"Measured on {_where(results)}. ± is the interquartile range."
    return nodes.table("", nodes.title(caption, caption), group, classes=["benchmark", "colwidths-given"])


def _cells(results: Results, row: Row) -> list[nodes.entry]:
    baseline, limit = results.baseline(row), results.limit(row)
    size = thousands(row.bytes)
    parts = [row.dtype, f"{row.threads} thread{'s' if row.threads > 1 else ''}"]
    if row.operations:
        crossed = f", {size}{'B' if size[-1].isalpha() else ' B'} from {row.level}" if row.bytes else ""
        parts.append(f"{thousands(row.operations)} operations{crossed}")
    ratio = thousands(row.rate / baseline.rate) if baseline else "–"
    bound = thousands(limit.rate) if limit else NOT_MEASURED if row.operations or row.bytes else "–"
    return [
        _entry(row.what, " · ".join(parts)),
        _entry(thousands(row.rate), f"± {row.spread:.1%}"),
        _entry(ratio),
        _entry(bound, *([limit.by.removeprefix("reads ")] if limit else [])),
        _entry(_share(row.rate / limit.rate) if limit else "–"),
    ]


def _share(share: float) -> str:
    return f"{share:.0%}" if share >= 0.01 else f"{share:.1%}"


def _entry(text: str, *notes: str) -> nodes.entry:
    small = [nodes.paragraph(note, note, classes=["benchmark-note"]) for note in notes]
    return nodes.entry("", nodes.paragraph(text, text), *small)


class _Quoted(SphinxRole):
    """A number of a group on the CPU: the role's text begins with the group's name."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        group, _, rest = self.text.partition(" ")
        name, _, spec = (part.strip() for part in rest.partition("|"))
        results = _newest(self.env, group, self.get_location()).get("cpu")
        try:
            text = NOT_MEASURED if results is None else self.quote(results, name, spec)
        except (ValueError, TypeError) as error:
            logger.warning("benchmark %s: %s", self.text, error, location=self.get_location())
            text = "?"
        missing = ["benchmark-missing"] if text == NOT_MEASURED else []
        return [nodes.inline(text, text, classes=["named-result", *missing])], []

    def quote(self, results: Results, name: str, spec: str) -> str:
        raise NotImplementedError


class Ratio(_Quoted):
    """A ratio by its name."""

    def quote(self, results: Results, name: str, spec: str) -> str:
        return format(results.ratios[name], spec or ".3g") if name in results.ratios else NOT_MEASURED


class Rate(_Quoted):
    """The rate of a case, with its unit."""

    def quote(self, results: Results, name: str, spec: str) -> str:
        row = next((row for row in results.rows if row.case == name), None)
        return f"{thousands(row.rate)} {row.unit}s/s" if row else NOT_MEASURED


def setup(app: Sphinx) -> dict:
    """Register with Sphinx."""
    app.add_directive("benchmark-roofline", Roofline)
    app.add_directive("benchmark-table", Table)
    app.add_role("benchmark-ratio", Ratio())
    app.add_role("benchmark-rate", Rate())
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
