"""The reference: every public name has an entry that says everything, its example runs, and its counted lines are right."""

import ast
import doctest
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sphinx.pycode import ModuleAnalyzer

from bookkit import book
from bookkit.reference.entries import Entry, anchor, exported
from bookkit.reference.page import Faces
from bookkit.reference.reach import Reach, core
from bookkit.settings import settings
from tests.test_notebook_quotes import notebook
from tests.tiny_book import as_renewed, make_book, page_text, write

ROOT = Path(__file__).parents[1]
FACES = settings(ROOT).faces
ENTRIES = [entry for face in FACES for entry in exported(face)]
TASKS = (ROOT / "book" / "reference" / "tasks.md").read_text(encoding="utf-8")


SECTIONS = ("Args", "Returns", "Raises", "Source", "Example")


def name_of(entry: Entry) -> str:
    return f"{entry.face}.{entry.name}"


def problems(entries: Sequence[Entry]) -> list[str]:
    """What entries lack, a sentence each: sections, parameters, comments of fields, docstrings of methods."""
    return [f"{name_of(entry)}: {lack}" for entry in entries for lack in lacks(entry)]


def lacks(entry: Entry) -> Iterator[str]:
    if not entry.docstring:
        yield f"needs a docstring {'below its assignment' if entry.kind == 'data' else 'that says what it is'}"
        return
    body = "\n".join(entry.body)
    sections = re.findall(rf"^({'|'.join(SECTIONS)}):$", entry.docstring, flags=re.M)
    needed = {"Source", "Example"}
    if entry.kind == "function":
        names = list(inspect.signature(entry.thing).parameters)
        needed |= {"Returns"} | ({"Args", "Raises"} if names else set())
        told = re.findall(r"^:param \\?\**([\w]+):", body, flags=re.M)
        if "Args" in sections and told != names:
            yield f"Args must describe {', '.join(names)}, in this order; got {', '.join(told) or 'none'}"
    # napoleon takes what stands before a colon for a type.
    for name, text in re.findall(r"^:(returns|Source): (\*.*)$", body, re.M):
        yield f"{name} must hold no colon; got {text}"
    yield from (f"field {field.name} needs a comment behind it" for field in entry.fields if not field.comment)
    yield from (f"{method.kind} {method.name} needs a docstring" for method in entry.methods if not method.docstring)
    if missing := [f"{name}:" for name in SECTIONS if name in needed - set(sections)]:
        yield f"needs the section {', '.join(missing)}"


# --- entries --------------------------------------------------------------------------------------------------------


def test_every_public_name_has_an_entry_on_a_page_and_says_everything() -> None:
    contents = (ROOT / "_toc.yml").read_text(encoding="utf-8")
    for face in FACES:
        page = f"book/reference/{face.rpartition('.')[2]}"
        assert f"- file: {page}\n" in contents
        assert f"```{{reference}} {face}\n" in (ROOT / f"{page}.md").read_text(encoding="utf-8")
    public = [f"{face}.{name}" for face in FACES for name in importlib.import_module(face).__all__]
    assert [name_of(entry) for entry in ENTRIES] == public
    assert len(public) > 40
    assert problems(ENTRIES) == []


@pytest.mark.parametrize("entry", ENTRIES, ids=name_of)
def test_examples_print_what_they_say(entry: Entry) -> None:
    part = (
        f"attnlib.{entry.face.rpartition('.')[2]}"  # what the book derives of a part of attnlib starts from its names
    )
    faces = [importlib.import_module(name) for name in dict.fromkeys([part, entry.face]) if name in FACES]
    names = {"np": np, "torch": torch} | {name: getattr(face, name) for face in faces for name in face.__all__}
    example = doctest.DocTestParser().get_doctest(entry.example, names, name_of(entry), None, 0)
    assert 1 <= len(example.examples) <= 3, "an example is two lines, or nearly"
    told: list[str] = []
    assert doctest.DocTestRunner().run(example, out=told.append).failed == 0, "".join(told)


# --- what an entry can lack -----------------------------------------------------------------------------------------

GOOD = '''
"""Dice."""
from dataclasses import dataclass

__all__ = ["FACES", "Die", "throw"]

FACES = 6
"""Faces of a die.

Source:
    tradition.

Example:
    >>> FACES
    6
"""

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
    ('"""Throw it.\n', '"""\n', "dice.throw: needs a docstring that says what it is"),
    ("        times: >= 1.\n", "", "Args must describe die, times, in this order; got die"),
    ("times: >= 1.", "count: >= 1.", "in this order; got die, count"),
    ("$k$ numbers.", "numbers: k of them", "dice.throw: returns must hold no colon; got *numbers* -- k of them"),
    ("    Raises:\n        ValueError: times < 1.\n\n", "", "dice.throw: needs the section Raises:"),
    ("    A die.\n\n    Source:\n        tradition.\n", "    A die.\n", "dice.Die: needs the section Source:"),
    ("Example:\n    >>> FACES\n    6\n", "", "dice.FACES: needs the section Example:"),
    ("  # how many", "", "dice.Die: field faces needs a comment behind it"),
    ('"""The mean of its faces."""', "", "dice.Die: property mean needs a docstring"),
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


def test_an_entry_that_says_everything_lacks_nothing(made: Callable) -> None:
    made(dice=GOOD)
    entries = exported("dice")
    assert problems(entries) == []
    assert [(e.name, e.kind) for e in entries] == [
        ("FACES", "data"), ("Die", "class"), ("throw", "function"),
    ]  # fmt: skip
    assert [e.signature for e in entries] == [
        "FACES = 6",
        "Die(faces=FACES)",
        "throw(die: Die, *, times: int=1) -> list[int]",
    ]
    assert [(m.name, m.kind, m.signature) for m in entries[1].methods] == [("mean", "property", "() -> float")]


@pytest.mark.parametrize(("old", "new", "told"), FAULTS, ids=range(len(FAULTS)))
def test_what_an_entry_lacks_is_told(made: Callable, old: str, new: str, told: str) -> None:
    assert GOOD.count(old) == 1
    text = GOOD.replace(old, new)
    if "docstring that" in told:
        text = GOOD.partition('    """Throw it.')[0] + "    return []\n"
    made(dice=text)
    (found,) = problems(exported("dice"))
    assert told in found


def test_a_name_that_is_defined_nowhere_is_refused(made: Callable) -> None:
    made(dice='__all__ = ["lost"]\n', plain="")
    with pytest.raises(LookupError, match="dice exports lost, which is defined nowhere in it"):
        exported("dice")
    with pytest.raises(LookupError, match=r"a face must be a module with an __all__; got plain"):
        exported("plain")


# --- who uses a name, and what checks it ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def known() -> Faces:
    return Faces(ROOT, ROOT)


def test_who_uses_a_name_by_a_second_count(known: Faces) -> None:
    """By the words of the pages and of the modules that they import: coarser, and equal where a name stands in few files."""

    def with_modules(text: str, seen: set[str]) -> Iterator[str]:
        yield text
        for name in re.findall(r"^\s*from (attnbook[\w.]+) import", text, flags=re.M):
            path = ROOT / "book" / f"{name.replace('.', '/')}.py"
            if name not in seen and path.is_file():
                seen.add(name)
                yield from with_modules(path.read_text(encoding="utf-8"), seen)

    def counted(name: str) -> set[str]:
        pages = set()
        for path in (ROOT / "notebooks").glob("*/*.md"):
            cells = re.findall(r"```\{code-cell\}.*?```", path.read_text(encoding="utf-8"), flags=re.S)
            texts = with_modules("".join(cells), set())
            if any(re.search(rf"\b{name}\(", part) and f"def {name}(" not in part for part in texts):
                pages.add(path.relative_to(ROOT).with_suffix("").as_posix())
        return pages

    entries = {entry.name: entry for entry in ENTRIES}
    for name in ("flow_path", "existence_window", "risk_of"):
        assert set(known.using(entries[name])) == counted(name) != set(), name


LIBRARY = """
def open_door(data, size):
    if size < 1:
        raise ValueError
    return _work(data, size)

def _work(data, size):
    return other(size)

def other(size):
    return size

def unused():
    return 0
"""
STUDY = """
import lib
from dataclasses import dataclass
from lib import _work as work, other

@dataclass
class Study:
    value: int

def make() -> Study:
    return Study(work(1, 2))

def shadowed(unused):
    other: lib.unused = 1
    return unused

def by_module():
    return lib.open_door(1, 2)
"""
CLAIMS = """
from study import Study, by_module
from bookkit.claims import ClaimSet

CLAIMS = ClaimSet("x")

@CLAIMS.claim("A", "t\\ns\\nwrong: w", wrong=2.0)
def given(study: Study, constant):
    return study.value

@CLAIMS.claim("B", "t\\ns\\nwrong: w", wrong=2.0)
def calls(study: int, constant):
    return by_module()

@CLAIMS.claim("C", "t\\ns\\nwrong: w", wrong=2.0)
def neither(study: int, constant):
    return study
"""


@pytest.fixture
def toy(made: Callable) -> tuple:
    """The three packages, and the names of what their reach finds in the library."""
    modules = made(lib=LIBRARY, study=STUDY, claims=CLAIMS)
    names = {id(each): name for name, each in vars(modules[0]).items() if callable(each)}
    reach = Reach(["lib", "study", "claims"], lambda module: module == "lib")
    return *modules, reach, lambda found: {names[each] for each in found if each in names}


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["from study import make", "make()"], {"_work"}),
        (["%matplotlib inline\nimport study as s", "if True:\n    !ls\ns.by_module()"], {"open_door"}),
        (["from study import shadowed\nshadowed(1)"], set()),  # its argument and its variable hide the library's names
        (["from lib import other as mine\ndef own():\n    return mine(1)", "own()"], {"other"}),
        (["from claims import CLAIMS\nCLAIMS.check(1)"], {"open_door"}),  # the judges are registered with it
        (["make = 1\nprint(make)"], set()),
    ],
)
def test_what_a_page_uses(toy: tuple, cells: list[str], expected: set[str]) -> None:
    *_, reach, named = toy
    assert named(reach.used(cells)) == expected


def test_what_a_claim_checks(toy: tuple) -> None:
    lib, _, claims, reach, named = toy
    found = {name: named(reach.checked(getattr(claims, name))) for name in ("given", "calls", "neither")}
    assert found == {"given": {"_work"}, "calls": {"open_door"}, "neither": set()}
    assert core(lib.open_door) is lib._work
    assert core(lib._work) is None  # hands on another argument


# --- the table of tasks ---------------------------------------------------------------------------------------------


def rows() -> list[tuple[str, str]]:
    """Module whose names a row's lines use, and the row."""
    found, modules = [], ""
    for line in TASKS.splitlines():
        modules = " ".join(re.findall(r"`from ([\w.]+) import \*`", line)) or modules
        if line.startswith("| ") and not line.startswith("| To |"):
            found.append((modules, line))
    return found


def test_every_task_names_what_is_public_and_leads_to_pages_that_exist(known: Faces) -> None:
    linked = re.findall(r"\{api\}`([^`]+)`", TASKS)
    assert len(linked) > 30
    assert [name for name in linked if known.address(name) != name] == []
    shown = re.findall(r"\{doc\}`([^`]+)`", TASKS)
    folder = ROOT / "book" / "reference"
    assert [page for page in shown if not any((folder / f"{page}{end}").is_file() for end in (".md", ".ipynb"))] == []
    for _, row in rows():
        for name, page in zip(
            re.findall(r"\{api\}`([^`]+)`", row), re.findall(r"notebooks/([^`]+)`", row), strict=False
        ):
            face, word = name.removesuffix(".draw").rpartition(".")[::2]
            entry = next(e for e in ENTRIES if (e.face, e.name) == (face, word))
            used = known.using(entry)
            assert f"notebooks/{page}" in used or not used, f"{name} is not used by {page}"


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
    prose = {"preface": f"# Preface\n\n{preface}\n", "dice": "# Dice\n\n```{reference} dice\n```\n"}
    make_book(root, {"01_a": page_text("draw()")}, prose)
    write(root / "notebooks" / "01_a.ipynb", as_renewed(notebook()))
    write(root / "pyproject.toml", '[tool.bookkit]\npackages = ["dice"]\nfaces = ["dice"]\n')
    write(root / "dice" / "__init__.py", GOOD)
    return root


def test_a_book_shows_its_entries_and_what_it_quotes(tmp_path: Path) -> None:
    figure = "```{notebook-figure} notebooks/01_a fig-dots\n```"
    small = figure.replace("dots", "dots\n:small:")
    error = "{named-result}`notebooks/01_a error .1f interval`"
    text = f"{{api}}`dice.throw`, {{api}}`dice.Die.mean`. Error {error}.\n\n{figure}\n\n{small}"
    assert book.main(["--stored", "--root", str(small_book(tmp_path, text))]) == 0
    html = tmp_path / "_build" / "html" / "book"
    page, preface = ((html / f"{name}.html").read_text(encoding="utf-8") for name in ("dice", "preface"))
    for name in ("faces", "die", "die-mean", "throw"):
        assert page.count(f'id="{name}"') == 1
    assert anchor("NoiseLaw", "draw_many") == "noiselaw-draw-many"
    assert 'href="dice.html#throw"' in preface
    assert 'href="dice.html#die-mean"' in preface
    throw = page[page.index('id="throw"') :]
    assert 'href="#die"' in throw.partition("</dt>")[0]  # the type of its argument
    words = " ".join(re.sub(r"<[^>]+>", " ", throw).split())
    for part in (
        "Parameters",
        "Returns",
        "Raises",
        "ValueError",
        "Source",
        "throw ( Die ( 1 ))",
        "Used by: no page directly",
    ):
        assert part in words, part
    assert preface.count('class="small-picture"') == 1
    link = '<a class="reference internal" href="../notebooks/01_a.html#fig-dots"><span class="doc">Title</span></a>'
    assert preface.count(f"Code cell 1 of {link}. To run the page again") == 2
    assert '<span class="named-result">−80.3 [−91.5, −72.0]</span>' in preface
    assert 'alt="What fig-dots shows"' in preface
    assert "Dots <em>everywhere</em>" in preface
    pictures = (tmp_path / "_build" / "html" / "_images").iterdir()
    assert {Image.open(path).convert("RGB").getpixel((0, 0)) for path in pictures} == {(255, 255, 255)}


def test_a_link_to_what_is_not_public_stops_the_build(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    root = small_book(tmp_path, "{api}`dice.hidden`\n\n```{reference} knots\n```")
    assert book.main(["--stored", "--root", str(root)]) == 1
    told = capfd.readouterr().err
    assert "'dice.hidden' is no public name" in told
    assert "reference: faces of [tool.bookkit] are dice; got knots" in told
    assert not (root / "_build" / "html").exists()
