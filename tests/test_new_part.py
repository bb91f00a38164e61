"""`new-part`: the furniture of a part is a true and tiny part; what cannot be done is refused before anything is written."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bookkit.pages.catalogue import UserError
from bookkit.parts import rooms, writing
from bookkit.parts.command import LONGEST, main, roman, words_of
from bookkit.parts.words import filled, of_part
from bookkit.settings import Part, settings
from bookkit.sphinx.each_part import written_out
from tests.house import ROOT
from tests.refusals import refused
from tests.tiny_book import write

NAME = "spare_room"
NODE = shutil.which("node") is not None and (ROOT / "node_modules" / "esbuild").is_dir()


def repository(folder: Path) -> Path:
    """The files of this repository, those of the next commit too."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip("no git here: what belongs to the repository is not known")
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


def lists(folder: Path) -> Path:
    """Just the files that the tool reads or changes, and the first page of each part."""
    names = {*rooms.LISTS, *rooms.EXPLORER_LISTS, "book/explorers/two_steps.md"}
    names |= {path.relative_to(ROOT).as_posix() for path in (ROOT / "notebooks").glob("*/01_*.*")}
    for name in names:
        write(folder / name, (ROOT / name).read_text(encoding="utf-8"))
    return folder


# --- the whole: a part from an empty name -----------------------------------------------------------------------------


def run(folder: Path, *command: str) -> str:
    """What a command says in the copy of the repository, whose own packages it imports. It must succeed."""
    environment = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{folder / 'book'}", "PYTHONDONTWRITEBYTECODE": "1"}
    environment |= dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-6000:]}\n{done.stderr[-6000:]}"
    return done.stdout


# Tests of the whole book that know its parts, beside those whose parameters name the new one.
OF_THE_BOOK = [
    "test_faces.py",
    "test_house.py::test_the_rules_of_import_know_every_part_and_every_folder_of_a_page",
    "test_ledger_records.py::test_names_are_those_of_the_claims_and_of_the_bibliography",
    "test_map.py::test_the_map_of_this_book_has_no_fault",
    "test_packaging.py::test_every_folder_of_the_packages_is_installed",
    "test_packaging.py::test_each_part_imports_only_what_its_extra_asks_for",
    "test_page_links.py::test_pages_are_numbered_as_they_follow_each_other",
    "test_page_links.py::test_titles_cannot_be_mixed_up",
    "test_pages.py::test_every_page_and_every_prose_file_is_in_the_table_of_contents_once_and_nothing_else",
    "test_pages.py::test_figure_names_are_unique_in_the_book",
    "test_papers_chapter.py::test_every_claim_of_the_papers_stands_in_the_table_of_its_part",
    "test_parameter_files.py",
    "test_provenance.py::test_every_figure_of_the_book_has_a_line_and_every_page_says_what_is_random",
    "test_reference.py::test_every_public_name_has_an_entry_and_says_everything",
    "test_reference.py::test_every_face_has_a_page_in_the_contents",
    "test_replication.py::test_every_claim_is_registered_as_it_stands",
    "test_replication.py::test_the_rules_of_all_claims_together_keep_the_level",
    "test_rules_in_the_ledger.py",
    "test_settings.py::test_this_book",
    "test_wings.py::test_ids_are_unique_and_sources_are_tags",
    "test_words.py::test_no_old_word_is_left",
]
OF_EXPLORERS = [
    "explorers/test_bundles.py::test_every_explorer_has_its_bundle_its_page_and_its_row_in_the_list",
    "explorers/test_bundles.py::test_building_again_gives_the_same_bytes",
]


@pytest.mark.timeout(7200)  # two minutes, on a machine however busy
def test_a_part_from_an_empty_name_passes_the_checks_and_is_built_into_the_book(tmp_path: Path) -> None:
    book = repository(tmp_path / "book")
    python, page = sys.executable, f"{NAME}/01_{NAME}"
    tool = Path(sys.executable).parent
    said = run(book, python, "-m", "attnlib", "new-part", NAME, *([] if NODE else ["--no-explorer"]))
    assert "changed: pyproject.toml" in said
    if NODE:
        (book / "node_modules").symlink_to(ROOT / "node_modules")
        run(book, "node", "book/scripts/build.mjs", NAME)
    run(book, python, "-m", "attnbook.answers")
    run(book, python, "-m", "attnlib", "notebooks", page)
    run(book, python, "-m", "attnlib", "stability", page, "--write")
    run(book, python, "-m", "attnlib", "register", "--because", "a part from an empty name")
    # `make lint`, without the types of what did not change.
    run(book, python, "-m", "ruff", "check", ".")
    run(book, python, "-m", "ruff", "format", "--check", ".")
    run(book, python, "-m", "mypy", "--cache-dir", os.devnull, "-p", f"attnlib.{NAME}")
    run(book, str(tool / "lint-imports"), "--no-cache")
    # Its own tests, those of every page, chapter and name that are now its too, and those of lists of parts.
    pytest_ = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not browser"]
    light = [path.relative_to(book).as_posix() for path in sorted((book / "tests").glob("test_*.py"))]
    light = [path for path in light if path not in ("tests/test_colab.py", "tests/test_new_part.py")]
    own = run(book, *pytest_, *light, f"tests/{NAME}", "tests/explorers", "-k", NAME)
    assert int(re.search(r"(\d+) passed", own)[1]) > 45
    run(book, *pytest_, *(f"tests/{name}" for name in [*OF_THE_BOOK, *(OF_EXPLORERS if NODE else [])]))
    # The whole book, warnings as errors.
    run(book, python, "-m", "bookkit.book", "--stored")
    html = book / "_build" / "html"
    for name in (f"notebooks/{page}", f"book/{NAME}_theory", f"book/reference/{NAME}"):
        assert (html / f"{name}.html").is_file()
    ledger = (html / "book" / "ledger.html").read_text(encoding="utf-8")
    words = words_of(ROOT, NAME, None, None)
    assert f"Part {words['number']}: spare room" in ledger
    assert f'id="claim-{words["letter_low"]}1"' in ledger
    assert f'href="{NAME}_theory.html#prop-spare-room-mean"' in (html / "book" / "map.html").read_text(encoding="utf-8")


# --- what is refused --------------------------------------------------------------------------------------------------

REFUSED = {
    "": "NAME must be small letters, digits and single _, at most 24, and no word of Python, as in one_token; got ''",
    "Spare": "NAME must be small letters",
    "spare-room": "NAME must be small letters",
    "1room": "NAME must be small letters",
    "../room": "NAME must be small letters",
    "lambda": "NAME must be small letters",
    "a_room_with_a_very_long_name": "NAME must be small letters",
    "single_head": "NAME must be new; attnlib has 'single_head' already",
    "params": "NAME must be new; notebooks has 'params' already",
    "room --title room": "--title must begin with a capital and hold letters, digits, spaces, commas; got 'room'",
    'room --title A"': "--title must begin with a capital",
    "room --letter v": "--letter must be a capital that no claim has",
    "room --letter D": "--letter must be a capital that no claim has, so none of A, D,",
    "room --letter TS": "--letter must be a capital that no claim has",
}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lists(tmp_path_factory.mktemp("lists"))


@pytest.mark.parametrize("given", REFUSED)
def test_what_cannot_be_a_part_is_one_line(given: str, small: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(small)
    name, *rest = given.split(" ", 2)
    refused(["new-part", name, *rest], [REFUSED[given]], small, [], capsys)


def test_a_title_may_not_be_used_twice(small: Path) -> None:
    with pytest.raises(UserError, match="--title must be new; got 'Token selection' again"):
        words_of(small, "room", "Token selection", None)


def test_outside_a_book_nothing_is_written(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    refused(
        ["new-part", "room"], ["no book (_toc.yml and notebooks/) at or above", "inside a clone"], tmp_path, [], capsys
    )
    assert not (ROOT / "attnlib" / "room").exists()


DAMAGE = {
    "pyproject.toml": ("faces = [", "faces_of = [", "pyproject.toml is not as expected, the list faces was not found"),
    "_toc.yml": (
        "book/reference/tasks",
        "book/reference/task",
        "_toc.yml is not as expected, the part with book/reference",
    ),
    "book/notation.md": ("## The same letter", "## A letter", "book/notation.md is not as expected, the last table"),
    "book/explorers/index.md": (
        "| explorer |",
        "| an explorer |",
        "book/explorers/index.md is not as expected, the table",
    ),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_list_that_is_not_as_expected_is_named_and_nothing_is_written(
    name: str, tmp_path: Path, monkeypatch, capsys
) -> None:
    book = lists(tmp_path)
    old, new, told = DAMAGE[name]
    text = (book / name).read_text(encoding="utf-8")
    assert old in text
    (book / name).write_text(text.replace(old, new), encoding="utf-8")
    monkeypatch.chdir(book)
    with pytest.raises(UserError, match=re.escape(told) if name != "pyproject.toml" else "knows|is not as expected"):
        main(["room"])
    assert not (book / "attnlib").exists()
    (book / name).unlink()
    monkeypatch.chdir(tmp_path.parent if name == "_toc.yml" else book)
    if name not in ("_toc.yml", "pyproject.toml"):
        refused(["new-part", "room"], [f"{name} is missing: run this in a whole clone"], book, [], capsys)


def test_a_file_that_is_there_is_not_written_over(tmp_path: Path, monkeypatch, capsys) -> None:
    book = lists(tmp_path)
    write(book / "book" / "room_theory.md", "# Mine\n")
    monkeypatch.chdir(book)
    refused(["new-part", "room"], ["book/room_theory.md is there already"], book, [], capsys)


# --- all files or none ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("failing", range(1, 5))
def test_what_fails_half_way_leaves_nothing(failing: int, tmp_path: Path, monkeypatch) -> None:
    """The disk is full at the first, second, ... file that is put in place."""
    write(tmp_path / "there.txt", "before")
    texts = {tmp_path / "a" / "b" / "one.txt": "1", tmp_path / "there.txt": "after", tmp_path / "a" / "two.txt": "2"}
    texts[tmp_path / "c.txt"] = "3"
    real, calls = os.replace, []

    def full(source: Path, target: Path) -> None:
        calls.append(target)
        if len(calls) == failing:
            raise OSError("no space left")
        real(source, target)

    monkeypatch.setattr(writing.os, "replace", full)
    with pytest.raises(OSError, match="no space left"):
        writing.write_all(texts)
    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")] == ["there.txt"]
    assert (tmp_path / "there.txt").read_text() == "before"
    monkeypatch.setattr(writing.os, "replace", real)
    writing.write_all(texts)
    assert {path: path.read_text() for path in texts} == texts
    assert not list(tmp_path.rglob("*.part"))


# --- words ------------------------------------------------------------------------------------------------------------


def test_words_are_put_in_and_unknown_ones_are_told() -> None:
    assert filled("<<a>> $<<b>>$ << c", {"a": "1", "b": "2"}) == "1 $2$ << c"
    with pytest.raises(LookupError, match="no word <<c>>; there are a, b"):
        filled("<<c>>", {"a": "1", "b": "2"})


def test_every_template_is_used_and_its_words_are_known(small: Path) -> None:
    there = {path.stem for path in rooms.TEMPLATES.iterdir()}
    assert there == {name for name in (rooms.FILES | rooms.EXPLORER).values() if name} | {"notation"}
    for explorer in (True, False):
        words = words_of(small, NAME, None, None, explorer=explorer)
        texts = rooms.texts_of(small, words, explorer=explorer)
        assert not any("<<" in text for path, text in texts.items() if not path.exists())
        assert len(texts) == len(rooms.FILES) + len(rooms.LISTS) + explorer * (len(rooms.EXPLORER) + 1)
        number = roman(len(settings(ROOT).parts) + 1)
        assert (words["number"], words["title"], words["label"]) == (number, "Spare room", "spare-room")


def test_lines_of_code_stay_within_the_width_whatever_the_name(small: Path) -> None:
    title = ("A long title of a part " * 3)[: 2 * LONGEST].strip()
    texts = rooms.texts_of(small, words_of(small, "n" * LONGEST, title, None), explorer=True)
    code = {path: text for path, text in texts.items() if path.suffix == ".py"}
    assert len(code) > 8
    assert max(len(line) for text in code.values() for line in text.splitlines()) <= 140


def test_letters_of_claims_do_not_meet(small: Path) -> None:
    assert words_of(small, NAME, None, None)["letter"] == "S"  # that letter is free on the first pages
    assert words_of(small, "idle", None, None)["letter"] == "L"  # I and D have claims there
    assert words_of(small, "id", None, None)["letter"] == "U"
    assert words_of(small, NAME, None, "Z")["letter"] == "Z"


def test_a_claim_whose_page_was_not_run_yet_has_its_letter(tmp_path: Path) -> None:
    book = lists(tmp_path)
    write(
        book / "book" / "attnbook" / "tool" / "claims_more.py", '@CLAIMS.claim(\n    "L7",\n    "an idle claim",\n)\n'
    )
    assert words_of(book, "idle", None, None)["letter"] == "U"  # and L no longer
    with pytest.raises(UserError, match=r"--letter must be a capital that no claim has, so none of .*L"):
        words_of(book, NAME, None, "L")


def test_numbers_of_parts_are_roman() -> None:
    by_hand = "I II III IV V VI VII VIII IX X XI XII XIII XIV XV XVI XVII XVIII XIX XX".split()
    assert [roman(number) for number in range(1, 21)] == by_hand
    for number in (0, 40):
        with pytest.raises(ValueError, match="must lie in 1"):
            roman(number)


def test_a_passage_is_written_once_for_each_part(tmp_path: Path) -> None:
    write(tmp_path / "pyproject.toml", "[tool.bookkit.parts]\n" + "\n".join(
        f'{name} = {{ number = "{number}", title = "{title}"{paper} }}'
        for name, number, title, paper in (("one", "I", "One thing", ', paper = "2001.00001"'), ("two", "II", "Another", ""))
    ))  # fmt: skip
    write(
        tmp_path / "book" / "references.bib",
        "@a{wrong, url={x}}\n@b{right,\n url = {https://arxiv.org/abs/2001.00001}}\n",
    )
    text = "# A\n\n::::{each-part}\n## Part <<number>>: <<title>>\n\n```{x} <<folder>>\n```\n<<paper>>\n::::\n\nEnd.\n"
    expected = "# A\n\n"
    expected += "## Part I: one thing\n\n```{x} one\n```\nThe paper is {cite:t}`right`, [arXiv 2001.00001](https://arxiv.org/abs/2001.00001).\n\n"
    expected += "## Part II: another\n\n```{x} two\n```\nThis part checks no paper.\n\nEnd.\n"
    assert written_out(text, tmp_path, tmp_path) == expected
    with pytest.raises(LookupError, match="no word <<name>>"):
        written_out(text.replace("folder", "name"), tmp_path, tmp_path)
    lonely = Part("I", "One", "2001.00002")
    alone = "The paper is [arXiv 2001.00002](https://arxiv.org/abs/2001.00002)."
    assert of_part("one", lonely, tmp_path / "none.bib")["paper"] == alone
    two = Part("I", "One", "2001.00002", ("2001.00001",))
    second = (
        "Statements of {cite:t}`right`, [arXiv 2001.00001](https://arxiv.org/abs/2001.00001) are checked beside it."
    )
    assert of_part("one", two, tmp_path / "book" / "references.bib")["paper"] == f"{alone} {second}"
