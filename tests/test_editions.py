"""Two editions from one source: what is the teacher's is in no student artefact, and all else is."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from unittest.mock import Mock

import nbformat
import pytest
import yaml
from IPython.core.inputtransformer2 import TransformerManager

import attnlib
from attnbook.exercises import TABLE, check
from bookkit import book
from bookkit.editions import leaks as edition_leaks
from bookkit.editions import student as editions
from bookkit.editions.leaks import Removed, find_leaks, words
from bookkit.editions.student import EditionError, split, student_notebook, without_solutions
from bookkit.exercises import table
from bookkit.pages.catalogue import find_pages
from bookkit.pages.one_page import run_source
from tests.house import REPOSITORY
from tests.page_checks import COLAB_CELL
from tests.tiny_book import HEADER, as_renewed, make_book, write

ROOT = Path(__file__).resolve().parents[1]
SECRET = "The platypus swims because the quagga never learned how to whistle, and $x = 3$."
FOLDED = f"<details>\n<summary>Solutions</summary>\n\n1. {SECRET}\n2. Another point.\n\n</details>\n"
REMAINS = "The axes are drawn in ink, and this remains."
HARMLESS = f"<details>\n<summary>More on the axes</summary>\n\n{REMAINS}\n\n</details>\n"
ENTRIES = {
    f"01-page/{number}": table.entry(f"01-page/{number}", f"The number {name}.", value, digits, 1, 2)
    for number, name, value, digits in ((2, "of hares", 42.0, 3), (10, "of snares", -7, None))
}
PAGE = f"""{HEADER}# First page

```{{code-cell}} ipython3
{COLAB_CELL.format(url=REPOSITORY)}
print("number", 41 + 1)
```

## Exercises

1. Why?
2. How many?

{FOLDED}
**What next.** The end.
"""


# --- the rule -------------------------------------------------------------------------------------------------------


def test_solutions_go_and_other_folds_stay() -> None:
    text = f"# A\n\nBefore.\n\n{FOLDED}\nBetween.\n\n{HARMLESS}\nAfter.\n"
    kept, removed = without_solutions(text, "a.md")
    assert kept == f"# A\n\nBefore.\n\nBetween.\n\n{HARMLESS}\nAfter.\n"
    assert removed == [FOLDED]


@pytest.mark.parametrize(
    "opening",
    [
        "<details>\n<summary>Solution</summary>",
        "<details><summary>Solutions to 1 and 2</summary>",
        '<details class="a" open>\n<summary style="x"> <b>SOLUTIONS</b> </summary>',
        "<DETAILS>\n\n<SUMMARY>For the teacher: hints</SUMMARY>",
        "  <details>\n  <summary>*Marking hints*</summary>",
        "<details>\n<summary>\nSolutions\n</summary>",
    ],
)
def test_ways_to_write_a_summary(opening: str) -> None:
    kept, removed = without_solutions(f"One.\n\n{opening}\n\n{SECRET}\n\n</details>\n\nTwo.\n", "a.md")
    assert (kept, len(removed)) == ("One.\n\nTwo.\n", 1)


@pytest.mark.parametrize(
    "text",
    [
        HARMLESS,
        "A `<details>` begins a fold, and `<summary>Solutions</summary>` names it.\n",
        f"```html\n{FOLDED}```\n",
        f"~~~~\n```\n{FOLDED}~~~~\n",
        f"````\n```\n{FOLDED}````\n",
        f"```{{code-block}} html\n{FOLDED}```\n",
        "The solution is stable.\n\n# Solving it\n",
    ],
)
def test_what_is_left_alone(text: str) -> None:
    assert without_solutions(text, "a.md") == (text, [])


def test_folds_in_and_behind_directives_and_in_folds() -> None:
    # The fence that closes a directive opens no block of code.
    text = f"```{{note}}\nA note.\n```\n\n{FOLDED}\n````{{admonition}} B\n```{{tip}}\n{FOLDED}```\n````\n{FOLDED}"
    kept, removed = without_solutions(text, "a.md")
    assert "platypus" not in kept
    assert removed == [FOLDED] * 3
    assert kept.count("```") == 6
    outer = f"<details>\n<summary>More</summary>\n\nKept.\n\n{FOLDED}\nKept too.\n\n</details>\n"
    kept, removed = without_solutions(outer, "a.md")
    assert removed == [FOLDED]
    assert kept.count("Kept") == 2
    assert kept.count("details>") == 2
    inner = f"<details>\n<summary>Solutions</summary>\n\n{HARMLESS}\n{SECRET}\n\n</details>\n"
    assert without_solutions(f"A.\n\n{inner}", "a.md") == ("A.\n", [inner])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("<details>\n<summary>Solutions</summary>\n\nText.\n", "every <details> needs its </details>"),
        ("Look: <details>\n<summary>Solutions</summary>\n</details>\n", "<details> must begin its line"),
        ("<details>\n<summary>Solutions</summary>\n</details> and on\n", "</details> must end its line; got 'and on'"),
        ("## Solutions\n\nText.\n", "must be <details><summary>Solutions</summary>"),
        ("```{dropdown} Solution\nText.\n```\n", "got '```{dropdown} Solution'"),
        (":::{toggle} Marking hints\nText.\n:::\n", "write it so, or with other words"),
        ("**Solutions.** Text.\n", "got '**Solutions.** Text.'"),
    ],
)
def test_what_cannot_be_split_is_refused_in_one_sentence(text: str, told: str) -> None:
    with pytest.raises(EditionError) as error:
        split(text, "book/a.md")
    assert re.fullmatch(rf"book/a\.md: [^\n]*{re.escape(told)}[^\n]*", str(error.value))


# --- notebooks ------------------------------------------------------------------------------------------------------


def notebook(*sources: str) -> nbformat.NotebookNode:
    cells = [nbformat.v4.new_markdown_cell(source, id=f"text-{k}") for k, source in enumerate(sources)]
    code = nbformat.v4.new_code_cell("1 + 1", id="code", execution_count=3)
    code.outputs = [nbformat.v4.new_output("execute_result", data={"text/plain": "2"}, execution_count=3)]
    return nbformat.v4.new_notebook(cells=[code, *cells])


def test_check_cells_stand_where_the_solutions_were() -> None:
    given = notebook("# Page", f"## Exercises\n\n1. Why?\n\n{FOLDED}\n**What next.** On.", FOLDED)
    before = nbformat.writes(given)
    made, removed = student_notebook(given, "part/01_page", ENTRIES)
    assert nbformat.writes(given) == before
    assert removed == [FOLDED] * 2  # and check cells stand once
    nbformat.validate(made)
    assert [cell.id for cell in made.cells] == [
        "code", "text-0", "text-1", "check-your-answers", "ask-01-page-2", "answer-01-page-2", "check-01-page-2",
        "ask-01-page-10", "answer-01-page-10", "check-01-page-10", "text-1-1",
    ]  # fmt: skip
    assert made.cells[2].source == "## Exercises\n\n1. Why?"
    assert made.cells[4].source == "**Exercise 2.** The number of hares (three digits)."
    assert made.cells[7].source == "**Exercise 10.** The number of snares (a whole number)."
    assert made.cells[-1].source == "**What next.** On."
    assert made.cells[0].outputs == given.cells[0].outputs


def test_check_cells_run_alone_and_tell_right_from_wrong() -> None:
    name = "02-two-steps/2"
    _, _, answer_cell, check_cell = editions.check_cells([name], table.read(TABLE)[0])
    for given, right in (("None", False), ("21.1", True), ("31.6", False)):
        space: dict = {}
        exec(answer_cell.source.replace("None", given), space)
        lines = check_cell.source.splitlines()
        exec("\n".join(lines[:-1]), space)
        assert bool(eval(lines[-1], space)) is right


def test_a_page_whose_exercise_can_be_checked_needs_folded_solutions() -> None:
    with pytest.raises(EditionError, match="01-page/2 can be checked, but the page has no folded solutions"):
        student_notebook(notebook("# Page", "## Exercises\n\n1. Why?"), "part/01_page", ENTRIES)
    made, removed = student_notebook(notebook("# Page", HARMLESS), "part/02_other", ENTRIES)
    assert (len(made.cells), removed) == (3, [])


# --- the proof ------------------------------------------------------------------------------------------------------


def test_leaks_are_found_in_every_kind_of_file(tmp_path: Path) -> None:
    removed = Removed({"notebooks/a.ipynb": [FOLDED]})
    sources, built = tmp_path / "source", tmp_path / "built"
    write(sources / "book" / "a.md", "Nothing.\n")
    write(built / "clean.html", "<p>The platypus swims, and the quagga whistles.</p>")
    assert find_leaks(built, removed, sources) == []
    sentence = "The platypus <em>swims</em> because\nthe quagga never learned how to whistle, and \\(x = 3\\)."
    write(built / "a.html", f"<p>{sentence}</p>")
    write(built / "b.js", f"if (1 < 2) index = {json.dumps('...' + re.sub('<[^>]*>', '', sentence))};")
    cells = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(FOLDED, id="a")])
    write(built / "deep" / "c.ipynb", nbformat.writes(cells))
    lines = ["the platypus swims because the quagga never ", "learned how to whistle and"]
    write(built / "d.json", json.dumps({"text": lines}))
    write(built / "e.png", sentence)  # not text
    run = "the platypus swims because the quagga never learned how to whistle and"
    leaking = ("a.html", "b.js", "d.json", "deep/c.ipynb")
    assert find_leaks(built, removed, sources) == [f"{name}: {run}" for name in leaking]
    # A theory chapter may say the same; the page itself may not.
    write(sources / "notebooks" / "a.ipynb", nbformat.writes(cells))
    assert len(find_leaks(built, removed, sources)) == 4
    write(sources / "book" / "theory.md", SECRET)
    assert find_leaks(built, removed, sources) == []


def test_an_edition_with_a_leak_is_not_published(tmp_path: Path) -> None:
    write(tmp_path / "built" / "a.html", SECRET)
    with pytest.raises(book.BuildError, match=r"1 sentences of solutions are in it:\na\.html: the platypus"):
        book._refuse_leaks(tmp_path / "built", Removed({"notebooks/a.ipynb": [FOLDED]}), tmp_path / "source")
    plain = "<details>\n<summary>Solutions</summary>\nOne.\n</details>"
    assert Removed({"a": [FOLDED, FOLDED], "b": [plain]}).count == 5  # solutions are counted point by point


# --- the real book --------------------------------------------------------------------------------------------------


def test_the_sources_of_the_student_edition_hold_no_solution(tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(ROOT / "book", source / "book")
    shutil.copy(ROOT / "_config.yml", source)
    pages = find_pages(ROOT)
    for page in pages:
        write(source / "notebooks" / f"{page.name}.ipynb", page.stored.read_text(encoding="utf-8"))
    removed = editions.make_student(source)

    # What a solution is, found in another way: between the two tags, in the source that people edit.
    sentences = {}
    for path in [*(page.source for page in pages), *(ROOT / "book").rglob("*.md")]:
        text = path.read_text(encoding="utf-8")
        rule = r"^<summary>(?:Solutions|For the teacher).*?</summary>\n(.*?)^</details>"
        blocks = re.findall(rule, text, re.M | re.S)
        parts = [part for block in blocks for part in re.split(r"\$.*?\$|[`*()\[\]]|\d+\. ", block, flags=re.S)]
        sentences[path] = {run for part in parts if len((run := words(part)).split()) >= 6}
    for path, runs in sentences.items():
        made = source / path.relative_to(ROOT)
        mine = edition_leaks.readable(made if made.is_file() else made.with_suffix(".ipynb"))
        assert [run for run in runs if run in mine] == [], path
    assert sum(map(len, sentences.values())) > 150
    assert len(removed.blocks) == len(pages) + 1  # each page's, and the teacher's parts of the page on teaching
    assert removed.count > 100
    # The proofs stay: prose is untouched but for the page on teaching.
    prose = (ROOT / "book").rglob("*.md")
    made = {p: (source / p.relative_to(ROOT)).read_text().replace("/blob/student/", "/blob/main/") for p in prose}
    changed = [p.name for p, text in made.items() if p.read_text() != text]
    assert changed == ["teaching.md"]
    assert "branch: student" in (source / "_config.yml").read_text()

    count = editions.write_notebooks(source, tmp_path / "notebooks")
    assert count == len(pages) > 20
    for page in pages:
        made = nbformat.read(tmp_path / "notebooks" / f"{page.name}.ipynb", as_version=4)
        first, *others = (cell for cell in made.cells if cell.cell_type == "code")
        assert "%pip install" in first.source  # Colab installs attnlib before anything else
        assert [cell.outputs for cell in (first, *others) if cell.outputs] == []
        asked = [cell.source for cell in others if cell.source.startswith("answer = None")]
        checks = [cell for cell in others if "check(" in cell.source and "check" in cell.metadata.get("tags", [])]
        assert len(asked) == len(checks) == len(table.of_page(table.read(TABLE)[0], page.name)) > 0


def test_the_pinned_cell_takes_the_wheel_then_the_repository_and_else_stops_with_one_sentence(tmp_path: Path) -> None:
    shutil.copy(ROOT / "_config.yml", tmp_path)
    cell = COLAB_CELL.format(url=REPOSITORY).replace("attnlib", "not_there")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell)])
    write(tmp_path / "notebooks" / "a.ipynb", nbformat.writes(notebook))
    editions.pin(tmp_path, "v0.2.0", "colab")
    (pinned,) = nbformat.read(tmp_path / "notebooks" / "a.ipynb", as_version=4).cells
    asked: list[str] = []

    def run(code: str) -> None:
        places = {"get_ipython": lambda: Mock(run_line_magic=lambda name, line: asked.append(f"{name} {line}"))}
        exec(TransformerManager().transform_cell(code), places)

    with pytest.raises(ImportError, match=r"^The package of this page could not be installed: .* later\.$"):
        run(pinned.source)
    wheel = f"{REPOSITORY}/raw/colab/notebooks/wheel/v0.2.0/attnlib-{attnlib.__version__}-py3-none-any.whl"
    names = [line.split()[-1] for line in asked]
    assert names == ["{package}"] * 2  # IPython puts the value there
    assert re.findall(r'^    "(.*)",$', pinned.source, re.M) == [wheel, f"git+{REPOSITORY}@v0.2.0"]
    assert f"/{editions.WHEELS.split('/')[-1]}/$(PIN)" in (ROOT / "Makefile").read_text(encoding="utf-8")
    asked.clear()
    run(pinned.source.replace("not_there", "json"))
    assert asked == []  # where the package is, nothing is installed and nothing said


def test_a_pinned_page_installs_one_version_and_nothing_else_changes(tmp_path: Path) -> None:
    shutil.copy(ROOT / "_config.yml", tmp_path)
    write(tmp_path / "book" / "paper.md", "https://colab.research.google.com/github/a/b/blob/main/notebooks/a.ipynb\n")
    pages = {page: nbformat.read(page.stored, as_version=4) for page in find_pages(ROOT)[::9]}
    for page, stored in pages.items():
        write(tmp_path / "notebooks" / f"{page.name}.ipynb", nbformat.writes(stored))
    editions.pin(tmp_path, "v0.2.0", "colab")
    config = yaml.safe_load((tmp_path / "_config.yml").read_text())
    assert config["repository"]["branch"] == "colab"
    assert config["sphinx"]["config"]["html_context"]["code_version"] == "v0.2.0"
    assert "/blob/colab/notebooks/a.ipynb" in (tmp_path / "book" / "paper.md").read_text()
    assert editions.write_notebooks(tmp_path, tmp_path / "made", outputs=True) == len(pages)
    for page, stored in pages.items():
        made = nbformat.read(tmp_path / "made" / f"{page.name}.ipynb", as_version=4)
        changed = [(new, old) for new, old in zip(made.cells, stored.cells, strict=True) if new != old]
        ((new, old),) = changed  # outputs stay
        assert new.source.count(f"git+{REPOSITORY}@v0.2.0") == old.source.count(f"git+{REPOSITORY}") == 1
    for name in ("two words", "-x"):
        with pytest.raises(EditionError, match=r"pin must be a name of a git tag or a commit, such as 'v0\.2\.0'"):
            editions.pin(tmp_path, name, "colab")
    with pytest.raises(
        EditionError, match=r"01_.*\.ipynb: no line ends in git\+http.*, the package that is to be pinned"
    ):
        editions.pin(tmp_path, "v0.3.0", "colab")  # pinned already


# --- the build ------------------------------------------------------------------------------------------------------

PROSE = {
    "preface": "# Preface\n\nSee {doc}`../notebooks/part/01_page` and {cite:t}`one`.\n",
    "theory": f"# Theory\n\n```{{prf:proof}}\nThe proof of everything stays.\n```\n\n{FOLDED}\n{HARMLESS}",
    "sources": "# S\n\n```{bibliography}\n```\n",
}


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """A small book whose student edition is built, for the branch `autumn`."""
    root = make_book(tmp_path_factory.mktemp("a book"), {"part/01_page": PAGE}, PROSE)
    write(root / "notebooks" / "part" / "01_page.ipynb", as_renewed(run_source(PAGE)))
    for path in (ROOT / "book" / "assets").glob("*.*"):  # what the extensions in _config.yml ask for
        shutil.copy(path, root / "book" / "assets")
    write(root / "table.json", table.as_text(ENTRIES, 2))
    settings = (root / "pyproject.toml").read_text(encoding="utf-8")
    write(root / "pyproject.toml", settings.replace("[tool.bookkit]\n", '[tool.bookkit]\nexercises = "table.json"\n'))
    assert (
        book.main(["--root", str(root), "--stored", "--edition", "student", "--branch", "autumn", "--pin", "v0.2.0"])
        == 0
    )
    return root


def test_the_student_build_holds_all_but_the_solutions(built: Path) -> None:
    work = built / "_build" / "student"
    assert not (built / "_build" / "html").exists()  # the teacher's book is another folder
    page = (work / "html" / "notebooks" / "part" / "01_page.html").read_text(encoding="utf-8")
    theory = (work / "html" / "book" / "theory.html").read_text(encoding="utf-8")
    shown = (
        "number 42",
        "The number of hares",
        "What next.",
        "student edition",
        "/blob/autumn/notebooks/part/01_page.ipynb",
    )
    assert [text for text in shown if text not in page] == []  # outputs are shown in the HTML
    assert "/blob/main/" not in page
    assert "The proof of everything stays." in theory
    assert "The axes are drawn in ink" in theory
    # Nothing derived from the sources holds a word that only solutions have: pages, page sources, search index, notebooks.
    for path in work.rglob("*"):
        if path.is_file():
            assert not re.search(b"platypus|quagga", path.read_bytes().lower()), path
    searched = (work / "html" / "searchindex.js").read_text(encoding="utf-8")
    assert "snare" in searched  # the index holds what the page holds
    (path,) = (work / "notebooks").rglob("*.*")
    assert path.relative_to(work).as_posix() == "notebooks/part/01_page.ipynb"
    made = nbformat.read(path, as_version=4)
    nbformat.validate(made)
    assert f"git+{REPOSITORY}@v0.2.0" in made.cells[1].source
    assert all(not cell.outputs and cell.execution_count is None for cell in made.cells if cell.cell_type == "code")
    checks = [cell.id for cell in made.cells if cell.id.startswith("check-")]
    assert checks == ["check-your-answers", "check-01-page-2", "check-01-page-10"]


def test_what_cannot_be_built_is_said_before_anything_is_rendered(tmp_path: Path, capsys) -> None:
    root = make_book(tmp_path, {"part/01_page": PAGE}, {"preface": "# A\n\n<details>\n<summary>Solutions</summary>\n"})
    write(root / "notebooks" / "part" / "01_page.ipynb", as_renewed(notebook("# Page")))
    options = ["--root", str(root), "--stored", "--edition", "student"]
    assert book.main(options) == 1
    assert "the student edition was not built: book/preface.md: every <details> needs" in capsys.readouterr().err
    for branch in ("two words", "a..b", "/a", "a.lock", "-x"):
        assert book.main([*options, f"--branch={branch}"]) == 1
        assert f"branch must be a name of a git branch, such as 'student'; got {branch!r}" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        book.main([*options[:-1], "pupil"])
    assert "invalid choice: 'pupil'" in capsys.readouterr().err
    assert not (tmp_path / "_build" / "student" / "html").exists()


def test_the_documented_commands_publish_the_branch(built: Path, tmp_path: Path) -> None:
    text = (ROOT / "docs" / "student_notebooks.md").read_text(encoding="utf-8")
    (commands,) = [block for block in re.findall(r"```bash\n(.*?)```", text, re.S) if "git push" in block]
    first, *others = commands.strip().splitlines()
    assert first == "make student"
    url = others[-1].split()[-2]
    bare = tmp_path / "bare.git"
    subprocess.run(["git", "init", "--quiet", "--bare", str(bare)], check=True)
    author = {f"GIT_{who}_{what}": "a@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    instead = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": f"url.{bare.as_uri()}.insteadOf", "GIT_CONFIG_VALUE_0": url}
    environment = {**os.environ, **author, **instead, "GIT_TERMINAL_PROMPT": "0"}
    for _ in range(2):  # they may be repeated
        subprocess.run(["bash", "-euc", "\n".join(others)], cwd=built, env=environment, check=True, capture_output=True)

    def git(*words: str) -> str:
        return subprocess.check_output(["git", "--git-dir", str(bare), *words], text=True)

    listed = git("ls-tree", "-r", "--name-only", "student").split()
    assert listed == ["notebooks/part/01_page.ipynb"]  # where Run in Colab of the student HTML leads
    history = git("log", "--all", "-p")
    assert "hares" in history
    assert "platypus" not in history


def test_the_page_on_teaching_names_what_there_is() -> None:
    text = (ROOT / "book" / "teaching.md").read_text(encoding="utf-8")
    names = set(re.findall(r'check\("([^"]+)"', text))
    assert names
    for name in names:
        assert not check(name, None)
    for name in re.findall(r"attnlib rerun (\S+) -p (\w+)", text):
        page = ROOT / "notebooks" / f"{name[0]}.md"
        assert re.search(rf"^{name[1]}: ", page.read_text(encoding="utf-8"), re.M)
    # Experiments that are to be shown are on the explorers' pages.
    shown = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "book" / "explorers").glob("*.md"))
    lines = "\n".join(line for line in text.splitlines() if "experiment" in line)
    experiments = set(re.findall(r"(?<!\*)\*([A-Z][^*\n]+)\*(?!\*)", lines))
    assert len(experiments) == 7
    assert [title for title in experiments if f"**{title}" not in shown] == []
    # Homework that is said to be checked is.
    pages = {page.name: page.source.read_text(encoding="utf-8").partition("---\n\n")[2] for page in find_pages(ROOT)}
    titles = {re.search(r"^# (.+)$", text, re.M)[1]: name for name, text in pages.items()}
    stored = table.read(TABLE)[0]
    rows = re.findall(r"^\| \[(.+?)\]\(\S+\) ([\d, ]+?)(?:, for .*?)? \| \d+ \| (.+?) \|$", text, re.M)
    assert len(rows) == 15
    for title, numbers, checked in rows:
        page = titles[title]
        given = [f"{table.page_prefix(page)}{number.strip()}" for number in numbers.split(",")]
        told = checked if checked[0].isdigit() else numbers  # "all"
        assert ", ".join(name.rpartition("/")[2] for name in given if name in stored) == told, title
