"""What every page must satisfy, as functions from a notebook to the list of its faults. An empty list is a good page."""

import ast
import re
from collections import Counter
from itertools import zip_longest
from pathlib import Path

from nbformat import NotebookNode

from bookkit.editions.leaks import strings
from bookkit.pages.one_page import code_cells
from bookkit.pages.parameters import parse_parameters
from bookkit.results import CLAIMS_TYPE, RESULTS_TYPE, shown
from bookkit.toc import visible_words
from bookkit.verdicts import html_table, text_table

COLAB_CELL = """import importlib.util

if importlib.util.find_spec("attnlib") is None:
    %pip install -q --no-deps git+{url}
    importlib.invalidate_caches()"""

# Kept by one side of the pair only: who ran the cell, and empty lists.
NOT_PAIRED = {"papermill", "execution"}

# Still pictures of the explorers; in their place the book shows the explorers themselves, see `bookkit.sphinx.explorer_pages`.
STILLS = "https://attention-checked.github.io/attention-checked/_static/explorers/"

# MyST that Colab shows as plain text, by what is wrong with it. Code, and then mathematics, are taken out before.
MYST = {
    "a directive": r"^\s*(?:`{3,}|~{3,})\s*\{",
    "a colon fence": r"^\s*:::",
    "a role": r"\{[\w:.+-]+\}`",
    "a MyST comment": r"^\s*%",
    "a label": r"^\s*\([^)\s]+\)=\s*$",
    "a cell break": r"^\+\+\+",
    "a labelled equation": r"\$\$[ \t]*\([\w:.-]+\)",
    "a footnote": r"\[\^[^\]]+\]",
    "a substitution": r"\{\{",
    "attributes": r"[\])]\{[^}`]*\}",
}
HTML_DRAWN = {"details", "summary", "br", "sub", "sup"}
MACHINE = re.compile(r"/(?:home|root|tmp|Users|opt|var)/\S+|[A-Z]:\\\w+|ipykernel_\d+|site-packages| at 0x[0-9a-f]{6,}")


def pair(source: NotebookNode, stored: NotebookNode) -> list[str]:
    """Cells of the .md and of the .ipynb are the same: kinds, sources, tags and all other metadata."""
    if len(source.cells) != len(stored.cells):
        return [f"the .md has {len(source.cells)} cells, the .ipynb {len(stored.cells)}"]
    faults = []
    for number, (left, right) in enumerate(zip(source.cells, stored.cells, strict=True)):
        for what in ("cell_type", "source"):
            if left[what] != right[what]:
                # The first line that differs: a whole cell would be cut before it.
                lines = zip_longest(left[what].splitlines(), right[what].splitlines(), fillvalue="")
                line, first, second = next((k, a, b) for k, (a, b) in enumerate(lines, 1) if a != b)
                faults.append(
                    f"cell {number}: {what} differs, line {line}: {first[:100]!r} in the .md, {second[:100]!r} in the .ipynb: "
                    "`attnlib notebooks PAGE` takes the .md, `jupytext --sync` the newer file"
                )
        kept = [{k: v for k, v in c.metadata.items() if k not in NOT_PAIRED and v != []} for c in (left, right)]
        if kept[0] != kept[1]:
            faults.append(f"cell {number}: metadata differ: {kept[0]} in the .md, {kept[1]} in the .ipynb")
    return faults


def executed(notebook: NotebookNode) -> list[str]:
    """Every code cell was run, once, from top to bottom."""
    counts = [cell.execution_count for cell in code_cells(notebook)]
    return [] if counts == list(range(1, len(counts) + 1)) else [f"execution counts must be 1, 2, 3, ...; got {counts}"]


def parameters(notebook: NotebookNode) -> list[str]:
    """Exactly one cell is tagged `parameters`; it is the second code cell and well formed."""
    cells = code_cells(notebook)
    tagged = [number for number, cell in enumerate(cells, start=1) if "parameters" in cell.metadata.get("tags", [])]
    if tagged != [2]:
        return [f"the second code cell, and only it, must be tagged parameters; tagged: {tagged}"]
    try:
        return [] if parse_parameters(cells[1].source) else ["the parameters cell is empty"]
    except ValueError as error:
        return [str(error)]


def colab_cell(notebook: NotebookNode, url: str) -> list[str]:
    """The first code cell is the Colab cell, to the letter, with the repository's address."""
    cells = code_cells(notebook)
    wanted = COLAB_CELL.format(url=url)
    return [] if cells and cells[0].source == wanted else [f"the first code cell must be exactly:\n{wanted}"]


def figures(notebook: NotebookNode) -> list[str]:
    """Every cell that draws has one picture, with caption, name (fig-...) and an alt text that describes it."""
    faults = []
    for number, cell in enumerate(code_cells(notebook), start=1):
        drawn = sum(kind.startswith("image/") for output in cell.outputs for kind in output.get("data", {}))
        shown = {"figure": {}, "image": {}} | cell.metadata.get("mystnb", {})
        caption, name = (str(shown["figure"].get(key) or "").strip() for key in ("caption", "name"))
        alt = str(shown["image"].get("alt") or "").strip()
        told = {
            f"{drawn} pictures under one caption: one figure per cell": drawn > 1,
            "the figure has no caption (mystnb: figure: caption)": not caption,
            f"the figure's name must begin with fig-; got {name!r}": not name.startswith("fig-"),
            f"alt text must describe the picture, 40 characters or more; got {alt!r}": len(alt) < 40 or alt == caption,
        }
        faults += [f"code cell {number}: {fault}" for fault, there in told.items() if drawn and there]
    return faults


def figure_names(notebook: NotebookNode) -> list[str]:
    found = (cell.metadata.get("mystnb", {}).get("figure", {}).get("name") for cell in code_cells(notebook))
    return [name for name in found if name]


def markdown(notebook: NotebookNode) -> list[str]:
    """Markdown cells hold only what Colab draws."""
    faults = []
    for number, cell in enumerate(notebook.cells):
        if cell.cell_type != "markdown":
            continue
        # Directives are fences, so they are looked for before fences are taken out.
        fault_texts = {"a directive": cell.source}
        # A role is braces before a code span: keep the backticks, drop what is between them.
        plain = re.sub(r"^(\s*)(`{3,}|~{3,})[^`{]*\n.*?^\s*\2\s*$", "", cell.source, flags=re.M | re.S)
        plain = re.sub(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", "``", plain, flags=re.S)
        fault_texts["a labelled equation"] = plain
        plain = re.sub(r"\$\$.*?\$\$|(?<![\\$])\$[^$\n]+(?:\n[^$\n]+)*\$", "", plain, flags=re.S)
        for what, pattern in MYST.items():
            if match := re.search(pattern, fault_texts.get(what, plain), flags=re.M):
                faults.append(f"cell {number}: {what}, which Colab does not draw: {match.group().strip()!r}")
        if "\\begin{" in plain:
            faults.append(f"cell {number}: a LaTeX environment outside $$...$$")
        for tag in sorted(set(re.findall(r"</?([A-Za-z][\w-]*)[^<>]*>", plain)) - HTML_DRAWN):
            if tag not in ("http", "https"):
                faults.append(f"cell {number}: <{tag}>, where only {', '.join(sorted(HTML_DRAWN))} are allowed")
        for target in re.findall(r"!\[[^\]]*\]\(([^)]*)\)", plain):
            if not target.startswith(("data:", "attachment:", STILLS)):
                # Colab opens the page alone, and the book must not fetch from elsewhere; there it shows the explorer itself.
                faults.append(f"cell {number}: picture {target!r} is neither in the page nor drawn by it")
    return faults


def quiet(notebook: NotebookNode) -> list[str]:
    """No errors, nothing on stderr, no path or address of the machine that ran the page."""
    faults = []
    for number, cell in enumerate(code_cells(notebook), start=1):
        for output in cell.outputs:
            if output.output_type == "error":
                faults.append(f"code cell {number}: stored error {output.ename}: {output.evalue}")
            if output.get("name") == "stderr":
                faults.append(f"code cell {number}: prints to stderr: {output.text[:80]!r}")
            shown = {kind: data for kind, data in output.get("data", {}).items() if not kind.startswith("image/")}
            if match := MACHINE.search("\n".join(strings([output.get("text", ""), shown]))):
                faults.append(f"code cell {number}: shows a path of a machine: {match.group()!r}")
    return faults


def tables(notebook: NotebookNode) -> list[str]:
    """What a table says is what its data say: running the page again compares the data alone."""
    faults = []
    for data in (output.get("data", {}) for cell in code_cells(notebook) for output in cell.outputs):
        said = [data.get("text/plain", ""), data.get("text/html", "")]
        if RESULTS_TYPE in data:
            # A notebook keeps its data in the order of the names.
            lines = [sorted(re.split(r"\n|<tr>|</tbody>", text)) for text in (*said, *shown(data[RESULTS_TYPE]))]
            if lines[:2] != lines[2:]:
                faults.append("the named-results of the page are not those of its data")
        if CLAIMS_TYPE in data and said[1]:
            records, opened = data[CLAIMS_TYPE], said[1].partition("class='verdict-further'")[0]
            parts = [[r for r in records if (f"<b>{r['id']}</b>" in opened) == kind] for kind in (True, False)]
            if said != [text_table(records), html_table(*parts)]:
                faults.append("the verdicts of the page are not those of its data")
    return faults


def compared(notebook: NotebookNode) -> list[str]:
    """nbval compares every cell but the last one, which tells versions."""
    cells = code_cells(notebook)
    faults = []
    for number, cell in enumerate(cells, start=1):
        tags = cell.metadata.get("tags", [])
        excused = [tag for tag in tags if tag.startswith("nbval-") or tag in ("raises-exception", "skip-execution")]
        excused += re.findall(r"^\s*#\s*((?:NBVAL|PYTEST_VALIDATE)_\w+)", cell.source, flags=re.M)
        wanted = ["nbval-ignore-output"] if number == len(cells) else []
        if excused != wanted:
            faults.append(f"code cell {number} of {len(cells)} must carry {wanted or 'no such tag'}; got {excused}")
    return faults


def open_cell(notebook: NotebookNode) -> list[str]:
    """The first code that a reader sees is the page's subject, in 40 lines of 88 letters and without our packages.

    It has one statement a line, and the next cell compares it with attnlib or attnbook.
    """
    cells = code_cells(notebook)[2:]  # behind the Colab cell and the parameters
    first = next((n for n, cell in enumerate(cells) if not folded(cell)), None)
    if first is None or first + 1 == len(cells):
        return ["no open cell with another one behind it"]
    source, after = cells[first].source, cells[first + 1]
    ours = r"^\s*(?:from|import) (?:attnlib|attnbook|bookkit)\b"
    shown = [cell.source for cell in cells if not folded(cell)]
    long = max(len(line) for each in shown for line in each.splitlines())
    crowded = [line for each in shown for line in crowded_lines(each)]
    told = {
        f"the open cell has {len(source.splitlines())} lines, 40 are allowed": len(source.splitlines()) > 40,
        f"a line that is not folded has {long} characters, 88 are allowed": long > 88,
        f"more than one statement on a line: {crowded}": crowded,
        "the open cell imports our packages": re.search(ours, source, re.M),
        "the cell behind the open one is folded": folded(after),
        "the cell behind the open one does not compare with attnlib or attnbook": not re.search(
            ours, after.source, re.M
        ),
    }
    return [fault for fault, there in told.items() if there]


def crowded_lines(source: str) -> list[str]:
    """Lines with two statements, and those like a, b, c = d, e, f, which is three in one."""
    statements = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.stmt)]
    found = {line for line, number in Counter(each.lineno for each in statements).items() if number > 1}
    for each in statements:
        if isinstance(each, ast.Assign) and isinstance(each.value, ast.Tuple) and len(each.value.elts) > 2:
            found |= {each.lineno for target in each.targets if isinstance(target, ast.Tuple)}
    return [source.splitlines()[line - 1].strip() for line in sorted(found)]


def folded(cell: NotebookNode) -> bool:
    return bool({"hide-input", "hide-cell"} & set(cell.metadata.get("tags", [])))


def one_thing(notebook: NotebookNode, words: int = 2150, claims: int = 12) -> list[str]:
    """So many visible words and claims at most. A formula is one word; code, and what is folded, does not count."""
    found = {"visible words": (visible_words(notebook), words), "claims": (open_claims(notebook), claims)}
    return [f"{number} {what}, {limit} are allowed" for what, (number, limit) in found.items() if number > limit]


def open_claims(notebook: NotebookNode) -> int:
    """Claims in the closing table that do not stand in its folded list."""
    shown = [output.get("data", {}).get("text/html", "") for cell in code_cells(notebook) for output in cell.outputs]
    return sum(text.partition("verdict-further")[0].count("class='verdict-row'") for text in shown)


def toc_files(toc: Path) -> list[str]:
    """Every file that _toc.yml names, without extension, in order."""

    named = re.findall(r"^[\s-]*(?:root|file): *(\S+)$", toc.read_text(encoding="utf-8"), flags=re.M)
    return [re.sub(r"\.(md|ipynb)$", "", name) for name in named]
