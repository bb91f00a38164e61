"""What the chapter tells a reader to type: grids that the page takes, options and functions that there are."""

import ast
import re
import shlex
from pathlib import Path

import pytest
import yaml

from bookkit import figures, sweeps
from bookkit.pages.catalogue import find_pages, find_root, resolve_page
from bookkit.sweeps.command import parser
from bookkit.sweeps.grid import make_grid
from bookkit.sweeps.points import batched_function

ROOT = find_root(Path(__file__).parent)
CHAPTER = (ROOT / "docs" / "sweeps.md").read_text(encoding="utf-8")
RUNNING = (ROOT / "book" / "running.md").read_text(encoding="utf-8")
PAGE = resolve_page("two_steps", ROOT)


def grids() -> dict[str, dict]:
    """The same grid, as the chapter shows it and as its Python spells it."""
    (shown,) = re.findall(r"```yaml\n# signal\.yml\n(.*?)```", CHAPTER, re.DOTALL)
    (spelt,) = re.findall(r"^grid = (\{.*?^\})", CHAPTER, re.DOTALL | re.MULTILINE)
    (short,) = re.findall(r"```yaml\n# signal\.yml\n(.*?)```", RUNNING, re.DOTALL)
    return {"chapter": yaml.safe_load(shown), "running": yaml.safe_load(short), "Python": ast.literal_eval(spelt)}


@pytest.mark.parametrize("where", ["chapter", "running", "Python"])
def test_the_grid_is_one_that_the_page_takes(where) -> None:
    grid = make_grid(grids()[where], PAGE)
    assert [(axis.name, len(axis)) for axis in grid.axes] == [("signal_norm", 8), ("seed", 5)]
    assert grid.parameters[7].items() >= {"n": 100, "d": 20_000, "draws": 10}.items()
    assert grid.parameters[0]["signal_norm"] == 5
    assert grid.parameters[-1]["signal_norm"] == 30


def commands() -> list[str]:
    text = f"{CHAPTER}\n{RUNNING}".replace("\\\n", " ")
    return re.findall(r"^ *\.venv/bin/python -m attnlib sweep (.*)$", text, re.MULTILINE)


@pytest.mark.parametrize("command", commands())
def test_a_command_has_options_that_there_are_and_a_page(command) -> None:
    given = parser().parse_intermixed_args(shlex.split(command))
    if given.status is None:
        page = resolve_page(given.page, ROOT)
        assert given.output is not None
        assert given.grid.name == "signal.yml" or given.grid.name.startswith(Path(page.name).name)
        assert given.grid.name == "signal.yml" or (ROOT / given.grid).is_file()


def test_there_are_commands() -> None:
    assert len(commands()) >= 4


def test_functions_that_are_imported_exist() -> None:
    for module, name in re.findall(r"from (bookkit\.(?:sweeps|figures)) import (\w+)", CHAPTER):
        assert callable(getattr({"bookkit.sweeps": sweeps, "bookkit.figures": figures}[module], name))


def test_the_pages_that_are_named_declare_a_batched_function_and_no_others() -> None:
    (sentence,) = re.findall(r"^Three pages declare one: (.*?)\. Kept", CHAPTER, re.DOTALL | re.MULTILINE)
    named = re.findall(r"notebooks/(\w+/\w+)\.html", sentence)
    declaring = [
        page.name
        for page in find_pages(ROOT)
        if batched_function(page.source.read_text(encoding="utf-8"), ("attnbook",))
    ]
    assert sorted(named) == sorted(declaring)
    assert len(named) == 3
