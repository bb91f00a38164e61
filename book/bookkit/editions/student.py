"""The two editions of the book: the teacher's is the sources as they are, the student's is made from them by one rule.

The rule: a folded block ``<details>`` whose ``<summary>`` begins with a word of `TEACHERS_WORDS` is for the teacher. It is
taken out of the prose and of the text cells of notebooks before Sphinx reads them, so nothing that Sphinx derives from
them (pages, search index, page sources) can hold it. Other folded blocks stay. Where solutions were, the notebook gets a
cell for the answer and a cell that checks it, for every exercise in the table of `bookkit.exercises`.
"""

import copy
import html
import importlib.metadata
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import nbformat
import yaml
from nbformat import NotebookNode

from bookkit import DISTRIBUTION
from bookkit.editions.leaks import Removed
from bookkit.exercises.checking import precision
from bookkit.exercises.table import Entry, of_page, read
from bookkit.pages.catalogue import UserError, find_root
from bookkit.settings import settings

EDITIONS = ("teacher", "student")
BRANCH = "student"  # that Colab opens student notebooks from
PINNED = "colab"  # and those of a release
WHEELS = "notebooks/wheel"  # on that branch: below it, for each pin, the package as `make book PIN=...` built it
TEACHERS_WORDS = ("solution", "marking hint", "for the teacher")

_FENCE = re.compile(r"\s{0,3}(`{3,}|~{3,})")
_OPENS, _CLOSES = re.compile(r"<details\b", re.I), re.compile(r"</details\s*>", re.I)
_SUMMARY = re.compile(r"<summary\b[^>]*>(.*?)</summary\s*>", re.I | re.S)
_WORDS = "|".join(TEACHERS_WORDS)
_OTHERWISE = re.compile(rf"\s*(?:[`:]{{3,}}\{{[\w:-]+\}}|#+|\*\*|__)\s*(?:{_WORDS})", re.I)
_DIRECTIVE = re.compile(r"\s*[`~]+\{(?!code|literalinclude|math|mermaid)")
_CHECK_YOUR_ANSWERS = (
    "**Check your answers.** In Colab (in the HTML: *Run in Colab* at the top of the page) run the first cell of this page, "
    "which installs what it needs. Then put your number in place of `None`, and run that cell and the one below it. The check "
    "says *right* or *not yet*; it holds no answer, only hashes of answers."
)

_PINNED_CELL = r"""for package in (
    "{first}",
    "{second}",
):
    \1
        \2 {{package}}
        \3
\1
    raise ImportError("The package of this page could not be installed: see the message of pip above. Run this cell again later.")"""


class EditionError(UserError):
    """A source cannot be split into editions. The message is one sentence that names the file and what to change."""


# --- the rule -------------------------------------------------------------------------------------------------------


def split(text: str, where: str) -> list[tuple[bool, str]]:
    """Markdown in pieces (is it the teacher's, text), in order; code is looked at by nobody.

    Raises `EditionError`, naming `where`, for a block that is not closed or does not begin its line, and for solutions in
    another form than ``<details>``.
    """
    lines = text.splitlines(keepends=True)
    code = _code_lines(lines)
    pieces: list[tuple[bool, list[str]]] = [(False, [])]
    at = 0
    while at < len(lines):
        if not code[at] and _OPENS.search(_bare(lines[at])):
            end = _end_of_block(lines, code, at, where)
            if _is_teachers("".join(lines[at:end])):
                pieces += [(True, lines[at:end]), (False, [])]
                at = end
                continue
        if not code[at] and _OTHERWISE.match(lines[at]):
            raise EditionError(
                f"{where}: what is for the teacher must be <details><summary>Solutions</summary> ... </details>; got "
                f"{lines[at].strip()!r}: write it so, or with other words if students may read it"
            )
        pieces[-1][1].append(lines[at])
        at += 1
    return [(teachers, "".join(part)) for teachers, part in pieces]


def without_solutions(text: str, where: str) -> tuple[str, list[str]]:
    """`text` as students read it, and the blocks left out. Raises `EditionError` as `split` does."""
    pieces = split(text, where)
    kept = [part for teachers, part in pieces if not teachers]
    end = "\n" if text.endswith("\n") else ""
    return (_joined(kept) + end if len(kept) > 1 else text), [part for teachers, part in pieces if teachers]


def _code_lines(lines: list[str]) -> list[bool]:
    """Which lines are code. The body of a directive, as in ```{note}, is prose unless the directive shows code."""
    found, fences = [], []  # of (fence, is it code), the innermost last
    for line in lines:
        fence = _FENCE.match(line)
        inside = bool(fences) and fences[-1][1]
        closes = fence and fences and fence[1].startswith(fences[-1][0]) and not line.strip().strip(fence[1][0])
        if closes:
            fences.pop()
        elif fence and not inside:
            fences.append((fence[1], not _DIRECTIVE.match(line)))
        found.append(inside or bool(fences and fences[-1][1]))
    return found


def _end_of_block(lines: list[str], code: list[bool], start: int, where: str) -> int:
    """Index behind the line that closes the ``<details>`` opened in line `start`. Raises `EditionError` where none does."""
    first = lines[start].strip()
    if not first.lower().startswith("<details"):
        raise EditionError(f"{where}: <details> must begin its line; got {first!r}: put it on a line of its own")
    depth = 0
    for at in range(start, len(lines)):
        if not code[at]:
            line = _bare(lines[at])
            depth += len(_OPENS.findall(line)) - len(_CLOSES.findall(line))
            if depth <= 0:
                if rest := _CLOSES.split(line)[-1].strip():
                    told = f"</details> must end its line; got {rest!r} behind it: begin a new line there"
                    raise EditionError(f"{where}: {told}")
                return at + 1
    raise EditionError(f"{where}: every <details> needs its </details>; the one at {first!r} has none: add it")


def _bare(line: str) -> str:
    """The line without what it only quotes, as in `<details>`."""
    return re.sub(r"`[^`]*`", "", line)


def _is_teachers(block: str) -> bool:
    summary = _SUMMARY.search(block)
    title = re.sub(r"<[^>]+>|[*_`]", "", html.unescape(summary[1])).strip().lower() if summary else ""
    return title.startswith(TEACHERS_WORDS)


def _joined(parts: list[str]) -> str:
    """The parts with one blank line between them where a block was, and none around."""
    return "\n\n".join(part.strip("\n") for part in parts if part.strip())


# --- notebooks ------------------------------------------------------------------------------------------------------


def student_notebook(notebook: NotebookNode, page: str, entries: Mapping[str, Entry]) -> tuple[NotebookNode, list[str]]:
    """The notebook of `page` (such as ``single_head/02_two_steps``) as students get it, and the blocks left out.

    Check cells stand where the first block of solutions was. Outputs are kept: see `write_notebooks`.
    """
    wanted, changed = of_page(entries, page), copy.deepcopy(notebook)
    cells, removed = [], []
    for cell in changed.cells:
        pieces = split(cell.source, f"notebooks/{page}") if cell.cell_type == "markdown" else []
        if not any(teachers for teachers, _ in pieces):
            cells.append(cell)
            continue
        before, *behind = [part.strip("\n") for teachers, part in pieces if not teachers]
        parts = [(before, cell.id), *((part, f"{cell.id}-{k}") for k, part in enumerate(behind, 1))]
        written = [nbformat.v4.new_markdown_cell(part, id=name[:64]) for part, name in parts if part]
        if written:  # a cell may hold nothing but what is removed
            written[0].metadata = cell.metadata
        if wanted and not removed:
            written[1:1] = check_cells(wanted, entries)
        cells += written
        removed += [part for teachers, part in pieces if teachers]
    if wanted and not removed:
        told = f"{wanted[0]} can be checked, but the page has no folded solutions: add them"
        raise EditionError(f"notebooks/{page}: {told}")
    changed.cells = cells
    return changed, removed


def check_cells(names: list[str], entries: Mapping[str, Entry]) -> list[NotebookNode]:
    """For each exercise a sentence that says which number is asked for, a cell for it, and a cell that checks it."""
    cells = [nbformat.v4.new_markdown_cell(_CHECK_YOUR_ANSWERS, id="check-your-answers")]
    for name in names:
        page, _, number = name.rpartition("/")
        asks, digits = entries[name]["asks"].removesuffix("."), precision(entries[name]["digits"])
        asked = f"**Exercise {number}.** {asks} ({digits})."
        cells.append(nbformat.v4.new_markdown_cell(asked, id=f"ask-{page}-{number}"[:64]))
        check = f'from {settings().check} import check\n\ncheck("{name}", answer)'
        for tag, source in (("answer", "answer = None  # your number"), ("check", check)):
            made = nbformat.v4.new_code_cell(source, id=f"{tag}-{page}-{number}"[:64], metadata={"tags": [tag]})
            cells.append(made)
    return cells


# --- staging --------------------------------------------------------------------------------------------------------


def make_student(source: Path, branch: str = BRANCH) -> Removed:
    """Turn the staged sources of the book in `source` into the student edition's; returns what was left out.

    Colab links of the edition lead to `branch`. Raises `EditionError` for a source that cannot be split, a branch that
    git would refuse, and an exercise in the table whose page does not exist.
    """
    _check_name("branch", branch, BRANCH)
    entries = _entries(find_root(source.parent))
    removed = Removed()
    for path in sorted((source / "book").rglob("*.md")):
        name = path.relative_to(source).as_posix()
        text, blocks = without_solutions(path.read_text(encoding="utf-8"), name)
        path.write_text(text, encoding="utf-8", newline="\n")
        removed.blocks |= {name: blocks} if blocks else {}
    for path in sorted((source / "notebooks").rglob("*.ipynb")):
        page = path.relative_to(source / "notebooks").with_suffix("").as_posix()
        notebook, blocks = student_notebook(nbformat.read(path, as_version=4), page, entries)
        path.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8", newline="\n")
        removed.blocks |= {f"notebooks/{page}.ipynb": blocks} if blocks else {}
    _configure(source, branch, ", student edition")
    return removed


def pin(source: Path, version: str, branch: str) -> None:
    """Let the first cell of every staged page install the package at `version`, a tag or a commit; Colab's links lead to `branch`.

    The wheel that lies on the branch is tried first, then the repository, which takes a minute; where both fail the cell says so and
    stops. A page opened from there, or kept in somebody's Drive, never meets a newer package. Raises `EditionError` for names that
    git would refuse, and for a page that installs nothing from the repository.
    """
    _check_name("pin", version, "v0.2.0")
    _check_name("branch", branch, PINNED)
    repository = _configure(source, branch, code=version)
    wheel = f"{DISTRIBUTION}-{importlib.metadata.version(DISTRIBUTION)}-py3-none-any.whl"
    first = f"{repository}/raw/{branch}/{WHEELS}/{version}/{wheel}"
    address = f"git+{repository}"
    asks = re.compile(rf"^(if .*:)\n    (%pip install .*) {re.escape(address)}\n    (.*)$", re.M)
    for path in sorted((source / "notebooks").rglob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        found = 0
        for cell in notebook.cells:
            if cell.cell_type == "code":
                cell.source, more = asks.subn(
                    _PINNED_CELL.format(first=first, second=f"{address}@{version}"), cell.source
                )
                found += more
        if not found:
            raise EditionError(
                f"{path.relative_to(source)}: no line ends in {address}, the package that is to be pinned"
            )
        path.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8", newline="\n")


def _check_name(what: str, given: str, example: str) -> None:
    if not re.fullmatch(r"(?!.*(?:\.\.|//|\.lock$))[A-Za-z0-9][A-Za-z0-9._/-]*(?<![./])", given):
        kind = "branch" if what == "branch" else "tag or a commit"
        raise EditionError(f"{what} must be a name of a git {kind}, such as {example!r}; got {given!r}")


def _configure(source: Path, branch: str, title: str = "", code: str = "main") -> str:
    """Let Colab's links lead to `branch`, those to code to `code`, and the title end in `title`; the address of the repository."""
    path = source / "_config.yml"
    config = yaml.safe_load(path.read_text(encoding="utf-8"))
    config["title"] += title
    config["repository"]["branch"] = branch
    config["sphinx"]["config"].setdefault("html_context", {})["code_version"] = (
        code  # the branch holds notebooks and no code
    )
    address = re.compile(r"(https://colab\.research\.google\.com/github/[^/]+/[^/]+/blob/)[^/]+(?=/)")
    for page in sorted((source / "book").rglob("*.md")):
        page.write_text(
            address.sub(rf"\g<1>{branch}", page.read_text(encoding="utf-8")), encoding="utf-8", newline="\n"
        )
    path.write_text(yaml.safe_dump(config, sort_keys=False, allow_unicode=True), encoding="utf-8", newline="\n")
    return config["repository"]["url"]


def _entries(root: Path) -> Mapping[str, Entry]:
    """The exercises of the book in `root`; none where it names no table. Raises `EditionError` for a table that is not there."""
    if not settings(root).exercises:
        return {}
    path = root / settings(root).exercises
    if not path.is_file():
        raise EditionError(f"exercises of [tool.bookkit] must be a file of the book; got {settings(root).exercises}")
    return read(path)[0]


def write_notebooks(source: Path, folder: Path, outputs: bool = False) -> int:
    """Put the staged notebooks, with no cell run unless `outputs`, into `folder`, which holds nothing else afterwards; their number.

    What student notebooks should show stands in the HTML, with every figure; a notebook full of outputs looks as if it had been run, and
    the cells that follow then fail for a name that is missing. And a page asks for a prediction before its picture is seen.
    """
    fresh = folder.with_name(f"{folder.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    paths = sorted((source / "notebooks").rglob("*.ipynb"))
    for path in paths:
        target = fresh / path.relative_to(source / "notebooks")
        target.parent.mkdir(parents=True, exist_ok=True)
        notebook = nbformat.read(path, as_version=4)
        for cell in (cell for cell in notebook.cells if cell.cell_type == "code" and not outputs):
            cell.outputs, cell.execution_count = [], None
        nbformat.validate(notebook)
        target.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8", newline="\n")
    shutil.rmtree(folder, ignore_errors=True)
    os.replace(fresh, folder)
    return len(paths)
