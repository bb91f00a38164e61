"""What the folded line under a figure tells: the right cell, the page's own parameters, chance, and a time that was measured."""

import json
import shlex
from importlib.util import find_spec
from pathlib import Path

import nbformat
import pytest
from docutils import nodes

from bookkit.cli import commands
from bookkit.pages import times
from bookkit.pages.catalogue import find_pages
from bookkit.pages.times import PageTime, in_words, page_times, write_build_times
from bookkit.settings import settings
from bookkit.sphinx.provenance import DRAWS, SEEDS, chance, notebook_nodes, provenance
from tests.page_checks import figure_names

ROOT = Path(__file__).parents[1]
KEPT = settings(ROOT).kept
PARAMETERS = (
    "n: int = 7  # samples [>= 1]\ndraws: int = 3  # training sets [>= 2]\nseed: int = 5  # of all streams [>= 0]"
)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A folder as Sphinx reads it, with one page: its figure is drawn by the third code cell."""
    page = nbformat.v4.new_notebook()
    figure = {"mystnb": {"figure": {"name": "fig-line", "caption": "A line, then more. And so on."}}}
    page.cells = [
        nbformat.v4.new_code_cell("import importlib"),
        nbformat.v4.new_markdown_cell("# Title"),
        nbformat.v4.new_code_cell(PARAMETERS, metadata={"tags": ["parameters"]}),
        nbformat.v4.new_code_cell("plot()", metadata=figure),
    ]
    path = tmp_path / "notebooks" / "part" / "01_page.ipynb"
    path.parent.mkdir(parents=True)
    nbformat.write(page, path)
    return tmp_path


def measured_file(source: Path, date: str, **pages: float) -> None:
    folder = source / "benchmarks" / "results"
    folder.mkdir(parents=True, exist_ok=True)
    record = {"date": date, "machine": "A machine", "pages": {f"part/{name}": s for name, s in pages.items()}}
    (folder / f"pages-cpu-{date}.json").write_text(json.dumps(record))


def test_cell_parameters_and_command(source: Path) -> None:
    made = provenance(source, "part/01_page", "fig-line")
    assert made.cell == 3
    assert [(p.name, p.default) for p in made.parameters] == [("n", 7), ("draws", 3), ("seed", 5)]
    assert chance(made.parameters) == ["draws = 3 (training sets)", "seed = 5 (of all streams)"]
    assert made.time is None
    # The command is one that the command line takes.
    words = shlex.split(made.command)
    assert words[:3] == [".venv/bin/python", "-m", "attnlib"]
    given = commands.commands["rerun"].make_context("rerun", words[4:]).params
    assert (words[3], given["page"], str(given["output"])) == ("rerun", "part/01_page", "out.ipynb")


def test_the_line_in_words(source: Path) -> None:
    measured_file(source, "2026-02-01", **{"01_page": 12.4})
    made = provenance(source, "part/01_page", "fig-line")
    figure = nodes.figure("", nodes.caption("", "A line, then more. And so on."))
    told = notebook_nodes(made, figure, "fig-line", "notebooks/part/01_page").astext()
    for part in ("Code cell 3 of this page", "n = 7", "samples", "Random: draws = 3 (training sets)", made.command):
        assert part in told
    assert "12 s on one core (A machine, 2026-02-01)" in told
    assert ": A line" in told  # whose line it is, for those who hear it
    elsewhere = notebook_nodes(made, figure, "fig-line", "book/preface")
    (link,) = [node for node in elsewhere.findall() if node.tagname == "pending_xref"]
    assert (link["reftarget"], elsewhere["figure"]) == ("/notebooks/part/01_page", "fig-line")


def test_a_wrong_name_lists_the_right_ones(source: Path) -> None:
    with pytest.raises(LookupError, match="no figure called 'fig-none' in page part/01_page; there are fig-line"):
        provenance(source, "part/01_page", "fig-none")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.44, "0.4 s"), (9.94, "9.9 s"), (9.96, "10 s"), (61.2, "61 s"), (99.6, "1 min 40 s"), (125, "2 min 5 s")],
)
def test_times_in_words(seconds: float, words: str) -> None:
    assert in_words(seconds) == words


def test_this_build_wins_over_the_newest_file_and_that_over_older_ones(source: Path) -> None:
    measured_file(source, "2026-02-01", a=1, b=2, c=3)
    measured_file(source, "2026-01-31", a=10, b=20, d=40)
    record = {
        "notebooks/part/c.ipynb": {"seconds": 0.5, "cached": False},
        "notebooks/part/a.ipynb": {"seconds": None, "cached": None},  # stored: not run by this build
    }
    write_build_times(source, record)
    found = page_times(source)
    assert found["part/a"] == PageTime(1.0, "A machine", "2026-02-01")
    assert found["part/d"].date == "2026-01-31"
    assert found["part/c"].sentence == "0.5 s when this book was built"
    assert sorted(found) == ["part/a", "part/b", "part/c", "part/d"]


def test_a_file_that_cannot_be_read_is_named(source: Path) -> None:
    measured_file(source, "2026-02-01", a=1)
    (source / "benchmarks" / "results" / "pages-cpu-2026-02-02.json").write_text('{"pages": {"part/a": 1}}')
    with pytest.raises(
        ValueError, match=r"pages-cpu-2026-02-02\.json must hold the seconds of pages.*bookkit\.pages\.times"
    ):
        page_times(source)


def test_measuring_keeps_the_newest_file_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import bookkit.pages.execution as execution
    from tests.tiny_page import make_book

    root = make_book(tmp_path)
    measured_file(root, "2020-01-01", old=1)
    asked = {}

    def run(pages, parameters, **options):
        asked.update(options)
        return {path: execution.PageResult("{}", 3.456, cached=False) for path in pages}

    monkeypatch.setattr(execution, "execute_pages", run)
    path = times.measure(root)
    assert (asked["jobs"], asked["cache_dir"]) == (1, None)  # alone, and really run
    assert list((root / "benchmarks" / "results").iterdir()) == [path]
    record = json.loads(path.read_text())
    assert record["pages"] == {"part/01_tiny": 3.5}
    assert page_times(root)["part/01_tiny"].machine == record["machine"]


def test_every_figure_of_the_book_has_a_line_and_every_page_says_what_is_random() -> None:
    pages = find_pages(ROOT)
    for page in pages:
        notebook = nbformat.read(page.stored, as_version=4)
        code = [cell for cell in notebook.cells if cell.cell_type == "code"]
        for name in figure_names(notebook):
            made = provenance(ROOT, page.name, name)
            # Found a second way: the cell's own count, as it was run.
            (own,) = [c for c in code if c.metadata.get("mystnb", {}).get("figure", {}).get("name") == name]
            assert made.cell == own.execution_count, (page.name, name)
            names = {p.name for p in made.parameters}
            assert bool(chance(made.parameters)) == bool(names & (SEEDS | DRAWS)), page.name
            assert {p for p in names if "seed" in p or "draw" in p} <= SEEDS | DRAWS, page.name
    assert set(KEPT) <= {page.name for page in pages}


def test_commands_of_stored_results_exist() -> None:
    for command in {command for kept in KEPT.values() for command in kept}:
        module, *words = command.split()
        if words:
            assert module == "attnlib"
            assert words[0] in commands.list_commands(None)
        else:
            assert find_spec(module) is not None, module
