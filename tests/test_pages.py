"""Every page of this book is as a page must be; and each check of that fails on a page that is not."""

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import jupytext
import nbformat
import pytest
from nbformat.v4 import new_output

from bookkit.pages import notebooks
from bookkit.pages.catalogue import Page, UserError, find_pages
from bookkit.pages.execution import PagesFailed
from bookkit.pages.notebooks import renew, stale
from bookkit.results import CLAIMS_TYPE, RESULTS_TYPE
from bookkit.toc import visible_words
from bookkit.verdicts import ROW
from tests import page_checks
from tests.house import REPOSITORY, ROOT
from tests.tiny_book import write
from tests.tiny_page import PAGE, make_book

PAGES = find_pages(ROOT)
every_page = pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])

CHECKS: dict[str, Callable] = {
    "executed": page_checks.executed,
    "parameters": page_checks.parameters,
    "colab_cell": lambda notebook: page_checks.colab_cell(notebook, REPOSITORY),
    "figures": page_checks.figures,
    "markdown": page_checks.markdown,
    "quiet": page_checks.quiet,
    "tables": page_checks.tables,
    "compared": page_checks.compared,
}


def stored(page: Page):
    assert page.stored.is_file(), f"{page.stored.name} is missing: run `make notebooks`"
    return nbformat.read(page.stored, as_version=4)


# --- the pages of this book


@every_page
def test_a_page_is_as_a_page_must_be(page: Page) -> None:
    notebook = stored(page)
    nbformat.validate(notebook)
    assert notebook.metadata.jupytext.formats == "ipynb,md:myst"
    faults = {name: check(notebook) for name, check in CHECKS.items()}
    faults |= {"pair": page_checks.pair(jupytext.read(page.source), notebook), "stale": stale(notebook, page.name)}
    told = [
        f"{name}: {line}"
        for name, found in faults.items()
        for line in ([found] if isinstance(found, str) else found)
        if line
    ]
    assert not told, "\n".join(told)


# Parts whose subject a reader can see in 40 lines; IV compares variants of these, VIII proves numbers.
IN_THE_OPEN = ("single_head/", "token_selection/", "in_context/", "finite_data/", "staircase/", "one_token/")
LONGER = {  # two pages in one
    "in_context/07_deeper_and_wider": {"words": 2500},
    "single_head/04_max_margin": {"words": 2500},
    "single_head/14_the_trap": {"words": 2500},
    "token_selection/09_a_fair_trial": {"words": 2500},
}


@every_page
def test_a_page_says_one_thing_and_shows_its_subject(page: Page) -> None:
    notebook = stored(page)
    assert page_checks.one_thing(notebook, **LONGER.get(page.name, {})) == []
    if page.name.startswith(IN_THE_OPEN):
        assert page_checks.open_cell(notebook) == []


@pytest.mark.parametrize("form", ["text/html", "text/plain"])
def test_a_number_edited_in_the_verdicts_alone_is_found(form: str) -> None:
    notebook = stored(next(page for page in PAGES if page.name == "single_head/02_two_steps"))
    assert page_checks.tables(notebook) == []
    reworded(CLAIMS_TYPE, form, "holds", "fails")(notebook)
    assert page_checks.tables(notebook) == ["the verdicts of the page are not those of its data"]


def test_figure_names_are_unique_in_the_book() -> None:
    names = [name for page in PAGES for name in page_checks.figure_names(stored(page))]
    assert sorted(set(names)) == sorted(names)


def test_every_page_and_every_prose_file_is_in_the_table_of_contents_once_and_nothing_else() -> None:
    files = [path for folder in ("book", "notebooks") for path in (ROOT / folder).rglob("*.md")]
    files += [path for path in (ROOT / "notebooks").rglob("*.ipynb")]
    pages = [{path.with_suffix("") for path in (ROOT / "notebooks").rglob(f"[!.]*{end}")} for end in (".md", ".ipynb")]
    assert pages[0] == pages[1]  # a page is a pair of files
    shown = [path.relative_to(ROOT) for path in files]
    there = {path.with_suffix("").as_posix() for path in shown if not any(part.startswith(".") for part in path.parts)}
    assert sorted(page_checks.toc_files(ROOT / "_toc.yml")) == sorted(there)


# --- the checks themselves


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> Path:
    root = make_book(tmp_path_factory.mktemp("book"))
    renew(root)
    return root


def test_the_tiny_page_passes_every_check(tiny: Path) -> None:
    (page,) = find_pages(tiny)
    assert page_checks.pair(jupytext.read(page.source), stored(page)) == []
    assert {name: check(stored(page)) for name, check in CHECKS.items()} == {name: [] for name in CHECKS}
    assert page_checks.figure_names(stored(page)) == ["fig-line"]


EDITS = {  # of a page in other programs: what becomes of the .md and of the .ipynb; whether a renewal would lose something
    "none": (str, str, False),
    "the .md": (lambda text: text.replace("A sum", "The sum"), str, False),
    "an output": (str, lambda text: text.replace("200 samples", "2 samples"), False),
    "merge": (str, "<<<<<<< HEAD\n{}".format, False),
    "no notebook": (str, lambda text: "[]", False),
    "the .ipynb": (str, lambda text: text.replace("A sum", "My sum"), True),
    "both": (lambda text: text.replace("A sum", "The sum"), lambda text: text.replace("A sum", "My sum"), True),
    "a cell less": (str, lambda text: json.dumps({**json.loads(text), "cells": json.loads(text)["cells"][:-1]}), True),
}


@pytest.mark.parametrize(("markdown", "notebook", "lost"), EDITS.values(), ids=EDITS)
def test_cells_edited_in_the_ipynb_alone_are_not_overwritten(
    tiny: Path, tmp_path: Path, monkeypatch, markdown, notebook, lost: bool
) -> None:
    shutil.copytree(tiny, tmp_path, dirs_exist_ok=True)
    (page,) = find_pages(tmp_path)
    assert page.source.stat().st_mtime_ns == page.stored.stat().st_mtime_ns  # to Jupyter, too, neither is out of date
    for path, edit in ((page.stored, notebook), (page.source, markdown)):
        if (text := edit(before := path.read_text())) != before:
            path.write_text(text)

    def execute_pages(*_, **__):
        raise PagesFailed("it runs")

    monkeypatch.setattr(notebooks, "execute_pages", execute_pages)
    keep = "edited, .*: notebooks/part/01_tiny.ipynb; keep .* jupytext --to md:myst notebooks/part/01_tiny.ipynb`.* --force"
    with pytest.raises(UserError if lost else PagesFailed, match=keep if lost else "it runs"):
        notebooks.renew(tmp_path)
    with pytest.raises(PagesFailed, match="it runs"):
        notebooks.renew(tmp_path, force=True)


def cells(notebook) -> list:
    return page_checks.code_cells(notebook)


def replace_source(number: int, old: str, new: str) -> Callable:
    def edit(notebook) -> None:
        cell = cells(notebook)[number - 1]
        assert old in cell.source
        cell.source = cell.source.replace(old, new)

    return edit


def set_metadata(number: int, **metadata) -> Callable:
    return lambda notebook: cells(notebook)[number - 1].metadata.update(metadata)


def add_output(number: int, output) -> Callable:
    return lambda notebook: cells(notebook)[number - 1].outputs.append(output)


def reworded(kind: str, form: str, old: str, new: str) -> Callable:
    """An edit of what is shown beside data: one number of the table."""

    def edit(notebook) -> None:
        (data,) = (
            o.data for cell in page_checks.code_cells(notebook) for o in cell.outputs if kind in o.get("data", {})
        )
        assert old in data[form]
        data[form] = data[form].replace(old, new, 1)

    return edit


def add_markdown(text: str) -> Callable:
    return lambda notebook: notebook.cells.append(nbformat.v4.new_markdown_cell(text))


def figure(
    caption: str = "A line.", name: str = "fig-line", alt: str = "A straight line that rises from left to right."
) -> dict:
    return {"figure": {"caption": caption, "name": name}, "image": {"alt": alt}}


BAD = [
    ("executed", lambda nb: cells(nb)[2].update(execution_count=None), "got [1, 2, None, 4, 5, 6]"),
    ("parameters", set_metadata(2, tags=[]), "tagged: []"),
    ("parameters", set_metadata(3, tags=["parameters"]), "tagged: [2, 3]"),
    ("parameters", replace_source(2, "n: int = 200", "n = 200"), "line 'n = 200"),
    ("colab_cell", replace_source(1, REPOSITORY, "https://github.com/someone/else"), "must be exactly"),
    ("figures", set_metadata(4, mystnb={}), "no caption"),
    ("figures", set_metadata(4, mystnb=figure(name="line")), "name must begin with fig-"),
    ("figures", set_metadata(4, mystnb=figure(alt="A line.")), "alt text must describe"),
    ("figures", set_metadata(4, mystnb=figure(alt="x" * 50, caption="x" * 50)), "alt text must describe"),
    ("figures", add_output(4, new_output("display_data", data={"image/png": "AAAA"})), "2 pictures"),
    ("figures", add_output(3, new_output("display_data", data={"image/png": "AAAA"})), "code cell 3"),
    ("markdown", add_markdown("```{note}\nText\n```"), "a directive"),
    ("markdown", add_markdown(":::{note}\nText\n:::"), "a colon fence"),
    ("markdown", add_markdown("See {eq}`main`."), "a role"),
    ("markdown", add_markdown("Text\n\n% hidden\n"), "a MyST comment"),
    ("markdown", add_markdown("(label)=\n# Title"), "a label"),
    ("markdown", add_markdown("$$ x = 1 $$ (eq-one)"), "a labelled equation"),
    ("markdown", add_markdown("\\begin{align}\nx &= 1\n\\end{align}"), "a LaTeX environment"),
    ("markdown", add_markdown("A note[^1]."), "a footnote"),
    ("markdown", add_markdown("Version {{ version }}"), "a substitution"),
    ("markdown", add_markdown("[text](target){.red}"), "attributes"),
    ("markdown", add_markdown("<div>box</div>"), "<div>"),
    ("markdown", add_markdown("![a picture](picture.png)"), "picture 'picture.png'"),
    ("quiet", add_output(3, new_output("stream", name="stderr", text="careful")), "prints to stderr: 'careful'"),
    ("quiet", add_output(3, new_output("error", ename="E", evalue="no", traceback=[])), "stored error E: no"),
    ("quiet", add_output(3, new_output("stream", name="stdout", text="in /home/me/book")), "'/home/me/book'"),
    ("quiet", add_output(3, new_output("display_data", data={"application/json": {"at": ["/tmp/x"]}})), "'/tmp/x"),
    (
        "quiet",
        add_output(3, new_output("display_data", data={"text/plain": "<f at 0x7f0012345678>"})),
        "0x7f0012345678",
    ),
    (
        "tables",
        reworded(RESULTS_TYPE, "text/html", "200", "201"),
        "named-results of the page are not those of its data",
    ),
    (
        "tables",
        reworded(RESULTS_TYPE, "text/plain", "200", "201"),
        "named-results of the page are not those of its data",
    ),
    ("compared", set_metadata(6, tags=[]), "code cell 6 of 6"),
    ("compared", set_metadata(3, tags=["nbval-ignore-output"]), "code cell 3 of 6"),
    ("compared", set_metadata(3, tags=["raises-exception"]), "code cell 3 of 6"),
    ("compared", replace_source(3, "print(", "# NBVAL_IGNORE_OUTPUT\nprint("), "code cell 3 of 6"),
]


def test_a_check_fails_on_a_bad_page(tiny: Path) -> None:
    for name, edit, fault in BAD:
        notebook = stored(find_pages(tiny)[0])
        edit(notebook)
        faults = CHECKS[name](notebook)
        assert any(fault in found for found in faults), faults


def made(*sources: str, tags: tuple[str, ...] = ()):
    """A page whose third code cell carries `tags`; before it stand two cells that are not looked at."""
    cells = [nbformat.v4.new_code_cell(source) for source in ("colab", "parameters", *sources)]
    cells[2].metadata["tags"] = list(tags)
    return nbformat.v4.new_notebook(cells=cells)


@pytest.mark.parametrize(
    ("notebook", "faults"),
    [
        (made("import numpy", "from attnlib import x"), 0),
        (made("import attnlib", "import numpy", "from attnbook import x", tags=("hide-input",)), 0),
        (made("import attnlib", tags=("hide-input",)), 1),
        (made("\n".join(["x = 1"] * 40), "import attnlib"), 0),
        (made("\n".join(["x = 1"] * 41), "import attnlib"), 1),
        (made("x = " + "1" * 84, "import attnlib"), 0),
        (made("x = " + "1" * 85, "import attnlib"), 1),
        (made("a, b = 1, 2\nx = 1, 2, 3\na, b, c = x", "import attnlib"), 0),
        (made("x = 1; y = 2", "import attnlib"), 1),
        (made("if 1: x = 2", "import attnlib"), 1),
        (made("a, b, c = 1, 2, 3", "import attnlib"), 1),
        (made("from attnlib import x", "import attnlib"), 1),
        (made("x = 1", "y = 1"), 1),
    ],
)
def test_an_open_cell_is_short_plain_and_compared(notebook, faults: int) -> None:
    assert len(page_checks.open_cell(notebook)) == faults


def test_visible_words_are_those_that_no_fold_hides() -> None:
    text = "Two [words](https://a.b/c) and $x + y$.\n\n<details><summary>no</summary>\nno\n</details>\n\n```\nno\n```"
    page = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_markdown_cell(text), *made("no", "no", tags=("hide-cell",)).cells]
    )
    page.cells[3].outputs = [new_output("stream", name="stdout", text="not seen")]
    page.cells[4].outputs = [
        new_output("stream", name="stdout", text="seen: 1"),
        new_output("display_data", data={"text/html": "<b>a table</b>"}),
    ]
    page.cells[4].metadata["mystnb"] = {"figure": {"caption": "A caption."}}
    assert visible_words(page) == 4 + 2 + 2 + 2
    assert page_checks.one_thing(page, words=10) == []
    assert page_checks.one_thing(page, words=9) == ["10 visible words, 9 are allowed"]


def test_claims_in_the_folded_list_do_not_count() -> None:
    page = made("1")
    table = f"{ROW * 5}<details class='verdict-further'>{ROW * 4}</details>"
    page.cells[2].outputs = [new_output("display_data", data={"text/html": table})]
    assert page_checks.one_thing(page, claims=5) == []
    assert page_checks.one_thing(page, claims=4) == ["5 claims, 4 are allowed"]


def test_code_that_was_carried_over_and_not_run_is_found(tiny: Path, tmp_path: Path) -> None:
    """The figure's code is changed in both files, as `jupytext --sync` does it: the picture stays that of the old code."""
    shutil.copytree(tiny, tmp_path, dirs_exist_ok=True)
    (page,) = find_pages(tmp_path)
    assert stale(stored(page), "part/01_tiny") == ""
    page.source.write_text(page.source.read_text().replace("[0, step_size]", "[0, 5]"))
    sync = ["jupytext", "--sync", str(page.source)]
    subprocess.run([sys.executable, "-m", *sync], check=True, capture_output=True)
    notebook = stored(page)
    assert page_checks.pair(jupytext.read(page.source), notebook) == []
    assert stale(notebook, "part/01_tiny").startswith("the code of part/01_tiny changed after it was run: `")
    assert stale(notebook, "part/01_tiny").endswith(" notebooks part/01_tiny`")


def test_a_table_that_changed_after_a_page_read_it_is_found(tiny: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny, tmp_path, dirs_exist_ok=True)
    table = write(tmp_path / "code/dice/tables/throws.json", "[1, 6]")
    write(tmp_path / "pyproject.toml", '[tool.bookkit]\npackages = ["code/dice"]\n')
    notebook = stored(find_pages(tmp_path)[0])
    notebook.metadata["tables"] = {"tables/throws.json": hashlib.sha256(b"[1, 6]").hexdigest()}
    assert stale(notebook, "part/01_tiny", tmp_path) == ""
    said = "part/01_tiny read the table tables/throws.json, which changed since: `"
    table.write_text("[1, 5]")
    assert stale(notebook, "part/01_tiny", tmp_path).startswith(said)
    table.unlink()
    assert stale(notebook, "part/01_tiny", tmp_path).startswith(said)


OUTPUTS = {
    "a measured number": lambda nb: cells(nb)[4].outputs[1].data[CLAIMS_TYPE][0]["numbers"].update(slope=1.0),
    "a verdict": lambda nb: cells(nb)[4].outputs[1].data[CLAIMS_TYPE][0].update(verdict="fails"),
    "an output gone": lambda nb: cells(nb)[4].outputs.pop(),
    "another picture": lambda nb: cells(nb)[3].outputs[0].data.update({"image/png": "AAAA"}),
    "a printed word": lambda nb: cells(nb)[2].outputs[0].update(text="201 samples"),
}


@pytest.mark.parametrize("edit", OUTPUTS.values(), ids=OUTPUTS)
def test_an_output_edited_by_hand_is_found(tiny: Path, edit: Callable) -> None:
    notebook = stored(find_pages(tiny)[0])
    edit(notebook)
    assert stale(notebook, "part/01_tiny").startswith("outputs of part/01_tiny were edited after it was run: `")


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("A sum is", "The sum is", "source differs"),
        ("caption: A line.", "caption: Another line.", "metadata differ"),
        ("# A tiny page\n", "# A tiny page\n\n```{code-cell} ipython3\n1\n```\n\nText\n", "cells"),
    ],
)
def test_an_edit_of_one_file_of_the_pair_is_found(tiny: Path, tmp_path: Path, old: str, new: str, fault: str) -> None:
    assert old in PAGE
    (page,) = find_pages(make_book(tmp_path, text=PAGE.replace(old, new)))
    faults = page_checks.pair(jupytext.read(page.source), stored(find_pages(tiny)[0]))
    assert any(fault in found for found in faults), faults
