"""The reference: every public name has an entry that says everything, its example runs, and its counted lines are right."""

import ast
import doctest
import importlib
import inspect
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from bookkit import book
from bookkit.code import code_of
from bookkit.reference.entries import Entry, exported, problems
from bookkit.reference.page import Faces
from bookkit.reference.reach import Reach, core, page_module
from bookkit.reference.sources import Sources
from bookkit.settings import settings
from tests.tiny_book import make_book, write

ROOT = Path(__file__).parents[1]
SOURCES = Sources.of(code_of(ROOT))
FACES = settings(ROOT).faces
ENTRIES = [entry for face in FACES for entry in exported(SOURCES, face)]
TASKS = (ROOT / "book" / "reference" / "tasks.md").read_text(encoding="utf-8")


def name_of(entry: Entry) -> str:
    return f"{entry.face}.{entry.name}"


# --- entries --------------------------------------------------------------------------------------------------------


def test_every_public_name_has_an_entry_and_says_everything() -> None:
    public = [f"{face}.{name}" for face in FACES for name in importlib.import_module(face).__all__]
    assert [name_of(entry) for entry in ENTRIES] == public
    assert len(public) > 40
    assert problems(ENTRIES) == []


@pytest.mark.parametrize("entry", ENTRIES, ids=name_of)
def test_the_text_is_read_as_python_reads_it(entry: Entry) -> None:
    thing = getattr(importlib.import_module(entry.face), entry.name)
    if entry.kind == "data":
        assert repr(thing) == repr(eval(entry.signature.partition(" = ")[2], vars(importlib.import_module(entry.face))))
        return
    assert inspect.getdoc(thing) == entry.docstring
    parameters = list(inspect.signature(thing).parameters.values())
    if entry.kind == "class":
        assert [field.name for field in entry.fields] == [parameter.name for parameter in parameters]
        plain = {name: part for name, part in vars(thing).items() if not name.startswith("_")}
        kinds = (property, classmethod, staticmethod)
        found = {
            n
            for n, part in plain.items()
            if inspect.isfunction(part) or isinstance(part, kinds) or hasattr(part, "attrname")
        }
        assert {method.name for method in entry.methods} == found
    else:
        assert [argument.arg for argument in entry.made.parameters] == [parameter.name for parameter in parameters]


@pytest.mark.parametrize("entry", ENTRIES, ids=name_of)
def test_examples_print_what_they_say(entry: Entry) -> None:
    face = importlib.import_module(entry.face)
    names = {"np": np, "torch": torch} | {name: getattr(face, name) for name in face.__all__}
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
    """A die.

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
FAULTS = {
    "no docstring": ('"""Throw it.\n', 'r"""', "dice.throw: needs a docstring that says what it is"),
    "a parameter is missing": ("        times: >= 1.\n", "", "Args must describe die, times, in this order; got die"),
    "a parameter has another name": ("times: >= 1.", "count: >= 1.", "in this order; got die, count"),
    "a colon": ("$k$ numbers.", "numbers: k of them", "dice.throw: returns must hold no colon; got *numbers* -- k of them"),
    "no errors": ("    Raises:\n        ValueError: times < 1.\n\n", "", "dice.throw: needs the section Raises:"),
    "no source": ("    Source:\n        tradition.\n\n    Example:\n        >>> Die", "    Example:\n        >>> Die",
                  "dice.Die: needs the section Source:"),
    "no example": ("Example:\n    >>> FACES\n    6\n", "", "dice.FACES: needs the section Example:"),
    "a field without a comment": ("  # how many", "", "dice.Die: field faces needs a comment behind it"),
    "a method without a docstring": ('"""The mean of its faces."""', "", "dice.Die: property mean needs a docstring"),
}  # fmt: skip


def dice(folder: Path, text: str = GOOD) -> Sources:
    write(folder / "dice" / "__init__.py", text)
    return Sources({"dice": folder / "dice"})


def test_an_entry_that_says_everything_lacks_nothing(tmp_path: Path) -> None:
    entries = exported(dice(tmp_path), "dice")
    assert problems(entries) == []
    assert [(e.name, e.kind, e.anchor) for e in entries] == [
        ("FACES", "data", "faces"), ("Die", "class", "die"), ("throw", "function", "throw"),
    ]  # fmt: skip
    assert [e.signature for e in entries] == [
        "FACES = 6",
        "Die(faces=FACES)",
        "throw(die: Die, *, times: int=1) -> list[int]",
    ]


@pytest.mark.parametrize("fault", FAULTS)
def test_what_an_entry_lacks_is_told(tmp_path: Path, fault: str) -> None:
    old, new, expected = FAULTS[fault]
    assert old in GOOD
    text = GOOD.replace(old, new, 1)
    if fault == "no docstring":
        head, _, rest = GOOD.partition('    """Throw it.')
        text = head + "    return []\n" + rest.rpartition('"""')[2]
    found = problems(exported(dice(tmp_path, text), "dice"))
    assert len(found) == 1
    assert expected in found[0]


def test_a_name_that_is_defined_nowhere_is_refused(tmp_path: Path) -> None:
    sources = dice(tmp_path, '__all__ = ["lost"]\n')
    with pytest.raises(LookupError, match="dice exports lost, which is defined nowhere in it"):
        exported(sources, "dice")
    with pytest.raises(LookupError, match=r"with an __all__; got dice\.none"):
        exported(sources, "dice.none")


# --- who uses a name, and what checks it ----------------------------------------------------------------------------


def test_who_uses_a_name_by_a_second_count() -> None:
    """By the words of whole files instead of definitions: coarser, and equal where a name stands in few files."""

    def modules_from(text: str) -> set[str]:
        found: set[str] = set()
        waiting = re.findall(r"^\s*from (attnbook[\w.]+) import", text, flags=re.M)
        while waiting:
            name = waiting.pop()
            path = ROOT / "book" / f"{name.replace('.', '/')}.py"
            if name not in found and path.is_file():
                found.add(name)
                waiting += re.findall(r"^\s*from (attnbook[\w.]+) import", path.read_text(encoding="utf-8"), flags=re.M)
        return found

    def counted(name: str) -> set[str]:
        pages = set()
        for path in (ROOT / "notebooks").glob("*/*.md"):
            text = "".join(re.findall(r"```\{code-cell\}.*?```", path.read_text(encoding="utf-8"), flags=re.S))
            texts = [
                text,
                *(
                    (ROOT / "book" / f"{m.replace('.', '/')}.py").read_text(encoding="utf-8")
                    for m in modules_from(text)
                ),
            ]
            if any(re.search(rf"\b{name}\(", part) for part in texts):
                pages.add(path.relative_to(ROOT).with_suffix("").as_posix())
        return pages

    known = Faces(ROOT, ROOT)
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
from kit import ClaimSet

CLAIMS = ClaimSet("x")

@CLAIMS.claim("A")
def given(study: Study, constant):
    return study.value

@CLAIMS.claim("B")
def calls(study: int, constant):
    return by_module()

@CLAIMS.claim("C")
def neither(study: int, constant):
    return study
"""


@pytest.fixture
def toy(tmp_path: Path) -> tuple[Sources, Reach]:
    for name, text in {"lib": LIBRARY, "study": STUDY, "claims": CLAIMS}.items():
        write(tmp_path / name / "__init__.py", text)
    sources = Sources({name: tmp_path / name for name in ("lib", "study", "claims")})
    return sources, Reach(sources, ["lib"], ["lib", "study", "claims"])


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
def test_what_a_page_uses(toy: tuple[Sources, Reach], cells: list[str], expected: set[str]) -> None:
    assert {found.name for found in toy[1].used(page_module("notebooks/a", cells))} == expected


def test_what_a_claim_checks(toy: tuple[Sources, Reach]) -> None:
    sources, reach = toy
    found = {
        name: {made.name for made in reach.checked(sources.find(f"claims.{name}"))}
        for name in ("given", "calls", "neither")
    }
    assert found == {"given": {"_work"}, "calls": {"open_door"}, "neither": set()}
    assert core(sources, sources.find("lib.open_door")) == sources.find("lib._work")
    assert core(sources, sources.find("lib._work")) is None  # hands on another argument


# --- the table of tasks ---------------------------------------------------------------------------------------------


def rows() -> list[tuple[str, str]]:
    """Module whose names a row's lines use, and the row."""
    found, modules = [], ""
    for line in TASKS.splitlines():
        modules = " ".join(re.findall(r"`from ([\w.]+) import \*`", line)) or modules
        if line.startswith("| ") and not line.startswith("| To |"):
            found.append((modules, line))
    return found


def test_every_task_names_what_is_public_and_leads_to_pages_that_exist() -> None:
    known = Faces(ROOT, ROOT)
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


def test_every_face_has_a_page_in_the_contents() -> None:
    contents = (ROOT / "_toc.yml").read_text(encoding="utf-8")
    for face in FACES:
        page = f"book/reference/{face.rpartition('.')[2]}"
        assert f"- file: {page}\n" in contents
        assert f"```{{reference}} {face}\n" in (ROOT / f"{page}.md").read_text(encoding="utf-8")


# --- in a built book ------------------------------------------------------------------------------------------------


def small_book(root: Path, text: str) -> Path:
    prose = {
        "preface": "# Preface\n\n{api}`dice.throw`, {api}`dice.Die.mean`\n",
        "dice": "# Dice\n\n```{reference} dice\n```\n",
    }
    make_book(root, {}, prose)
    (root / "notebooks").mkdir()
    write(root / "pyproject.toml", '[tool.bookkit]\npackages = ["dice"]\nfaces = ["dice"]\n')
    dice(root, text)
    return root


def test_a_book_shows_its_entries(tmp_path: Path) -> None:
    assert book.main(["--stored", "--root", str(small_book(tmp_path, GOOD))]) == 0
    html = tmp_path / "_build" / "html" / "book"
    page, preface = ((html / f"{name}.html").read_text(encoding="utf-8") for name in ("dice", "preface"))
    for anchor in ("faces", "die", "die-mean", "throw"):
        assert page.count(f'id="{anchor}"') == 1
    assert 'href="dice.html#throw"' in preface
    assert 'href="dice.html#die-mean"' in preface
    throw = page[page.index('id="throw"') :]
    assert 'href="#die"' in throw  # the type of its argument
    words = " ".join(re.sub(r"<[^>]+>", " ", throw).split())
    for part in (
        "Parameters",
        "Returns",
        "Raises",
        "ValueError",
        "Source",
        "tradition",
        "throw ( Die ( 1 ))",
        "Used by: no page directly",
    ):
        assert part in words, part


def test_an_export_without_words_stops_the_build(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    bare = GOOD.replace('__all__ = ["FACES", ', '__all__ = ["FACES", "bare", ') + "\ndef bare(size):\n    return size\n"
    root = small_book(tmp_path, bare)
    write(root / "book" / "preface.md", "# Preface\n\n{api}`dice.hidden`\n")
    assert book.main(["--stored", "--root", str(root)]) == 1
    told = capfd.readouterr().err
    assert "dice.bare: needs a docstring that says what it is" in told
    assert "'dice.hidden' is no public name" in told
    assert not (root / "_build" / "html").exists()
