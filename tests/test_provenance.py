"""What the folded line under a figure tells: the right cell, the page's own parameters, chance, and a time that was measured."""

import json
import re
import shlex
from importlib.util import find_spec
from pathlib import Path

import nbformat
import pytest
from docutils import nodes

from bookkit.cli import commands
from bookkit.pages import execution, times
from bookkit.pages.catalogue import find_pages
from bookkit.pages.times import PageTime, in_words, page_times
from bookkit.settings import settings
from bookkit.sphinx.provenance import DRAWS, SEEDS, chance, notebook_nodes, provenance
from tests.house import ROOT
from tests.page_checks import figure_names
from tests.tiny_page import make_book

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


def test_the_line_says_cell_parameters_chance_time_and_a_command_that_the_command_line_takes(source: Path) -> None:
    measured_file(source, "2026-02-01", **{"01_page": 12.4})
    made = provenance(source, "part/01_page", "fig-line")
    figure = nodes.figure("", nodes.caption("", "A line, then more. And so on."))
    told = notebook_nodes(made, figure).astext()
    random = "Random: draws = 3 (training sets); seed = 5 (of all streams)."
    for part in ("Code cell 3 of this page", "n = 7", "samples", random, made.command):
        assert part in told
    assert "12 s on one core (A machine, 2026-02-01)" in told
    assert ": A line" in told  # whose line it is, for those who hear it
    words = shlex.split(made.command)
    given = commands.commands["rerun"].make_context("rerun", words[4:]).params
    assert (*words[:4], given["page"]) == (".venv/bin/python", "-m", "attnlib", "rerun", "part/01_page")
    with pytest.raises(LookupError, match="no figure called 'fig-none' in page part/01_page; there are fig-line"):
        provenance(source, "part/01_page", "fig-none")


@pytest.mark.parametrize(
    ("seconds", "words"), [(9.94, "9.9 s"), (9.96, "10 s"), (99.4, "99 s"), (99.6, "1 min 40 s"), (125, "2 min 5 s")]
)
def test_times_in_words(seconds: float, words: str) -> None:
    assert in_words(seconds) == words


def test_the_newest_file_wins_over_older_ones(source: Path) -> None:
    measured_file(source, "2026-02-01", a=1, b=2, c=3)
    measured_file(source, "2026-01-31", a=10, b=20, d=40)
    found = page_times(source)
    assert found["part/a"] == PageTime(1.0, "A machine", "2026-02-01")
    assert found["part/d"].date == "2026-01-31"
    assert found["part/c"].sentence == "3.0 s on one core (A machine, 2026-02-01)"
    (source / "benchmarks" / "results" / "pages-cpu-2026-02-02.json").write_text('{"pages": {"part/a": 1}}')
    with pytest.raises(ValueError, match=r"pages-cpu-2026-02-02\.json must hold .* by python -m bookkit\.pages\.times"):
        page_times(source)


def test_measuring_keeps_the_newest_file_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_book(tmp_path)
    measured_file(root, "2020-01-01", old=1)
    asked = {}

    def run(pages, **options):
        asked.update(options)
        return {path: execution.PageResult("{}", 3.456, cached=False) for path in pages}

    monkeypatch.setattr(execution, "execute_pages", run)
    path = times.measure(root)
    assert (asked["jobs"], asked["cache_dir"]) == (1, None)  # alone, and really run
    assert list((root / "benchmarks" / "results").iterdir()) == [path]
    assert page_times(root)["part/01_tiny"].seconds == 3.5


def test_every_figure_of_the_book_has_a_line_and_every_page_says_what_is_random() -> None:
    for page in find_pages(ROOT):
        notebook = nbformat.read(page.stored, as_version=4)
        for name in figure_names(notebook):
            made = provenance(ROOT, page.name, name)
            # Found a second way: the cell's own count, as it was run.
            (own,) = [c for c in notebook.cells if c.metadata.get("mystnb", {}).get("figure", {}).get("name") == name]
            assert made.cell == own.execution_count, (page.name, name)
            names = {p.name for p in made.parameters}
            assert bool(chance(made.parameters)) == bool(names & (SEEDS | DRAWS)), page.name
            assert {p for p in names if "seed" in p or "draw" in p} <= SEEDS | DRAWS, page.name


def test_commands_of_stored_results_exist() -> None:
    kept = settings(ROOT).kept
    assert set(kept) <= {page.name for page in find_pages(ROOT)}
    for command in {command for each in kept.values() for command in each}:
        module, *words = command.split()
        if words:
            assert (module, words[0] in commands.list_commands(None)) == ("attnlib", True)
        else:
            assert find_spec(module) is not None, module


WORDS = {
    "five": 5,
    "ten": 10,
    "fifteen": 15,
    "twenty": 20,
    "twenty-five": 25,
    "thirty": 30,
    "half a": 30,
    "forty": 40,
    "a": 60,
}


def test_pages_keep_their_promised_time_at_a_first_run() -> None:
    """The newest measurement compiles each loop anew; a page promises at least what it took, with a tenth for a busy machine."""
    measured = json.loads(max((ROOT / "benchmarks" / "results").glob("pages-cpu-*.json")).read_text(encoding="utf-8"))
    assert measured["pages"].keys() == {page.name for page in find_pages(ROOT)}
    short = {}
    for name, seconds in measured["pages"].items():
        text = (ROOT / "notebooks" / f"{name}.md").read_text(encoding="utf-8")
        promise = re.search(r"^Run time: about ([a-z -]+?) (?:seconds?|minute) on ", text, flags=re.M)
        if promise is None or seconds > 1.1 * WORDS[promise[1]]:
            short[name] = seconds
    assert short == {}
