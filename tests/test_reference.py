"""The reference: every public name is on a page, its docstring says everything, and its example runs."""

import ast
import doctest
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from sphinx.ext.napoleon import Config, GoogleDocstring
from sphinx.pycode import ModuleAnalyzer

from bookkit import book
from bookkit.settings import settings
from bookkit.sphinx.docstrings import fields_of
from tests.test_notebook_quotes import notebook
from tests.tiny_book import as_renewed, make_book, page_text, write

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "book" / "reference"
TASKS = (REFERENCE / "tasks.md").read_text(encoding="utf-8")
FACES = settings(ROOT).faces
ENTRIES = {
    f"{face}.{name}": vars(importlib.import_module(face))[name]
    for face in FACES
    for name in importlib.import_module(face).__all__
}
SECTIONS = ("Args", "Returns", "Raises", "Source", "Example")
PAGES = {f"book/reference/{path.stem}": path.read_text(encoding="utf-8") for path in REFERENCE.glob("*.md")}
DATA = dict(re.findall(r"autodata:: ([\w.]+)\.(\w+)\n", "".join(PAGES.values())))  # module -> name


def told(thing: Any) -> str:
    """Its docstring; of data, the text below the assignment in the module that the page names."""
    if inspect.isclass(thing) or callable(thing):
        return (
            inspect.cleandoc(vars(thing).get("__doc__") or "")
            if inspect.isclass(thing)
            else inspect.getdoc(thing) or ""
        )
    module, name = next((m, n) for m, n in DATA.items() if vars(importlib.import_module(m))[n] is thing)
    return "\n".join(ModuleAnalyzer.for_module(module).find_attr_docs()["", name])


def lacks(thing: Any) -> Iterator[str]:
    """What a docstring lacks: sections, parameters, comments of fields, docstrings of methods."""
    text = told(thing)
    sections = re.findall(rf"^({'|'.join(SECTIONS)}):$", text, flags=re.M)
    needed = {"Source", "Example"}
    if inspect.isfunction(thing):
        names = list(inspect.signature(thing).parameters)
        needed |= {"Returns"} | ({"Args", "Raises"} if names else set())
        lines = "\n".join(GoogleDocstring(text, Config(napoleon_use_rtype=False)).lines())
        given = re.findall(r"^:param \\?\**([\w]+):", lines, flags=re.M)
        if given != names:
            yield f"Args must describe {', '.join(names)}, in this order; got {', '.join(given) or 'none'}"
        if re.search(r"^:returns: \*", lines, re.M):  # napoleon takes what stands before a colon for a type
            yield "Returns must hold no colon"
    yield from (f"field {name} needs a comment behind it" for name, comment in fields_of(thing).items() if not comment)
    for name, part in vars(thing).items() if inspect.isclass(thing) else ():
        part = getattr(part, "fget", None) or getattr(part, "func", None) or getattr(part, "__func__", None) or part
        if inspect.isfunction(part) and not name.startswith("_") and not part.__doc__:
            yield f"{name} needs a docstring"
    if missing := [f"{name}:" for name in SECTIONS if name in needed - set(sections)]:
        yield f"needs the section {', '.join(missing)}"


# --- docstrings -----------------------------------------------------------------------------------------------------


def test_every_face_is_on_a_page_and_every_public_name_says_everything() -> None:
    contents = (ROOT / "_toc.yml").read_text(encoding="utf-8")
    for face in FACES:
        page = f"book/reference/{face.rpartition('.')[2]}"
        assert f"- file: {page}\n" in contents
        assert f".. automodule:: {face}\n" in PAGES[page]
    assert len(ENTRIES) > 40
    assert [f"{name}: {lack}" for name, thing in ENTRIES.items() for lack in lacks(thing)] == []


@pytest.mark.parametrize("name", ENTRIES)
def test_examples_print_what_they_say(name: str) -> None:
    face = name.rpartition(".")[0]
    part = f"attnlib.{face.rpartition('.')[2]}"  # what the book derives of a part of attnlib starts from its names
    faces = [importlib.import_module(each) for each in dict.fromkeys([part, face]) if each in FACES]
    names = {"np": np, "torch": torch} | {word: getattr(each, word) for each in faces for word in each.__all__}
    example = doctest.DocTestParser().get_doctest(told(ENTRIES[name]), names, name, None, 0)
    assert 1 <= len(example.examples) <= 3, "an example is two lines, or nearly"
    printed: list[str] = []
    assert doctest.DocTestRunner().run(example, out=printed.append).failed == 0, "".join(printed)


# --- what a docstring can lack ---------------------------------------------------------------------------------------

GOOD = '''
"""Dice."""
from dataclasses import dataclass

__all__ = ["Die", "throw"]

FACES = 6

@dataclass(frozen=True)
class Die:
    """
    A die.

    Source:
        tradition.

    Example:
        >>> Die(8).mean
        4.5
    """

    faces: int = FACES  # how many

    @property
    def mean(self) -> float:
        """The mean of its faces."""
        return (self.faces + 1) / 2

def throw(die: Die, *, times: int = 1) -> list[int]:
    """Throw it.

    Args:
        die: to be thrown.
        times: >= 1.

    Returns:
        $k$ numbers.

    Raises:
        ValueError: times < 1.

    Source:
        tradition.

    Example:
        >>> throw(Die(1))
        [1]
    """
'''
FAULTS = [
    ("        times: >= 1.\n", "", "Args must describe die, times, in this order; got die"),
    ("times: >= 1.", "count: >= 1.", "in this order; got die, count"),
    ("$k$ numbers.", "numbers: k of them", "Returns must hold no colon"),
    ("    Raises:\n        ValueError: times < 1.\n\n", "", "needs the section Raises:"),
    ("    A die.\n\n    Source:\n        tradition.\n", "    A die.\n", "needs the section Source:"),
    ("    Example:\n        >>> throw(Die(1))\n        [1]\n", "", "needs the section Example:"),
    ("  # how many", "", "field faces needs a comment behind it"),
    ('"""The mean of its faces."""', "", "mean needs a docstring"),
]


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable]:
    """Writes packages and imports them; afterwards they are forgotten."""
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)

    def make(**texts: str) -> list:
        for name, text in texts.items():
            write(tmp_path / name / "__init__.py", text)
        importlib.invalidate_caches()
        return [importlib.import_module(name) for name in texts]

    yield make
    ModuleAnalyzer.cache.clear()
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.parametrize(("old", "new", "lack"), [("", "", ""), *FAULTS], ids=range(len(FAULTS) + 1))
def test_what_a_docstring_lacks_is_told(made: Callable, old: str, new: str, lack: str) -> None:
    assert not old or GOOD.count(old) == 1
    (dice,) = made(dice=GOOD.replace(old, new))
    found = [*lacks(dice.Die), *lacks(dice.throw)]
    assert (found == []) if not lack else (len(found) == 1 and lack in found[0])


# --- the table of tasks ---------------------------------------------------------------------------------------------


def rows() -> list[tuple[str, str]]:
    """Module whose names a row's lines use, and the row."""
    found, modules = [], ""
    for line in TASKS.splitlines():
        modules = " ".join(re.findall(r"`from ([\w.]+) import \*`", line)) or modules
        if line.startswith("| ") and not line.startswith("| To |"):
            found.append((modules, line))
    return found


def test_every_task_names_what_is_public() -> None:
    linked = re.findall(r"\{py:obj\}`(?:[^`<]*<|~)?([^`>]+)>?`", TASKS)
    assert len(linked) > 30
    public = {*ENTRIES, *(f"{name}.draw" for name in ENTRIES), *(f"{module}.{name}" for module, name in DATA.items())}
    assert [name for name in linked if name not in public] == []


def test_the_lines_of_the_tasks_fit_the_signatures() -> None:
    called = 0
    for modules, row in rows():
        names = {
            n: getattr(importlib.import_module(m), n)
            for m in modules.split()
            for n in importlib.import_module(m).__all__
        }
        for line in re.findall(r"(?<!\})`(\w[\w, ]* = [^`]+|found\.[^`]+)`", row):
            for call in ast.walk(ast.parse(line)):
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id != "range":
                    given = {word.arg: None for word in call.keywords}
                    inspect.signature(names[call.func.id]).bind(*call.args, **given)
                    called += 1
    assert called > 35


# --- in a built book ------------------------------------------------------------------------------------------------


def small_book(root: Path, preface: str) -> Path:
    prose = {"preface": f"# Preface\n\n{preface}\n", "dice": "# Dice\n\n```{eval-rst}\n.. automodule:: dice\n```\n"}
    make_book(root, {"01_a": page_text("draw()")}, prose)
    write(root / "notebooks" / "01_a.ipynb", as_renewed(notebook()))
    write(root / "pyproject.toml", '[tool.bookkit]\npackages = ["dice"]\nfaces = ["dice"]\n')
    write(root / "dice" / "__init__.py", GOOD)
    return root


def test_a_book_shows_its_entries_and_what_it_quotes(tmp_path: Path) -> None:
    figure = "```{notebook-figure} notebooks/01_a fig-dots\n```"
    small = figure.replace("dots", "dots\n:small:")
    error = "{named-result}`notebooks/01_a error .1f interval`"
    text = f"{{py:obj}}`dice.throw`, {{py:obj}}`dice.Die.mean`. Error {error}.\n\n{figure}\n\n{small}"
    assert book.main(["--stored", "--root", str(small_book(tmp_path, text))]) == 0
    html = tmp_path / "_build" / "html" / "book"
    page, preface = ((html / f"{name}.html").read_text(encoding="utf-8") for name in ("dice", "preface"))
    for name in ("dice.Die", "dice.Die.mean", "dice.throw"):
        assert page.count(f'id="{name}"') == 1
        assert name == "dice.Die" or f'href="dice.html#{name}"' in preface
    throw = page[page.index('id="dice.throw"') :]
    assert 'href="#dice.Die"' in throw.partition("</dt>")[0]  # the type of its argument
    assert 'data-tex="k"' in throw
    words = " ".join(re.sub(r"<[^>]+>", " ", page).split())
    for part in (
        "faces : how many",
        "Parameters",
        ">= 1.",
        "Returns",
        "Raises",
        "ValueError",
        "Source",
        "throw ( Die ( 1 ))",
    ):
        assert part.replace(">", "&gt;") in words, part
    assert preface.count('class="small-picture"') == 1
    link = '<a class="reference internal" href="../notebooks/01_a.html#fig-dots"><span class="doc">Title</span></a>'
    assert preface.count(f"Code cell 1 of {link}. To run the page again") == 2
    assert '<span class="named-result">−80.3 [−91.5, −72.0]</span>' in preface
    assert 'alt="What fig-dots shows"' in preface
    assert "Dots <em>everywhere</em>" in preface
    pictures = (tmp_path / "_build" / "html" / "_images").iterdir()
    assert {Image.open(path).convert("RGB").getpixel((0, 0)) for path in pictures} == {(255, 255, 255)}


def test_a_link_to_what_has_no_entry_stops_the_build(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    root = small_book(tmp_path, "{py:obj}`dice.hidden`")
    assert book.main(["--stored", "--root", str(root)]) == 1
    assert "py:obj reference target not found: dice.hidden" in capfd.readouterr().err
    assert not (root / "_build" / "html").exists()
