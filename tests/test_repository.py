"""The repository's address stands in one place that counts; one command changes all copies, and no other is about."""

import shutil
import subprocess
from pathlib import Path

import nbformat
import pytest

from bookkit.cli import main
from bookkit.pages.catalogue import UserError, find_pages
from bookkit.pages.execution import read_source
from bookkit.pages.notebooks import renew
from bookkit.repository import addresses, change, check_url, current_url, replace_address, text_files
from bookkit.settings import settings
from tests.tiny_page import ADDRESS, make_book

ROOT = Path(__file__).resolve().parents[1]
NEW = "https://github.com/somebody-else/a.book"
PYPROJECT = f'[project]\nname = "attnlib"\n[project.urls]\nRepository = "{ADDRESS}"\n'

# Files that speak for this repository: every GitHub address in them must be ours, apart from these.
SPEAKING = (
    "README.md",
    "CITATION.cff",
    "_config.yml",
    "Makefile",
    "pyproject.toml",
    ".github/",
    ".ci/",
    "notebooks/",
    "book/",
)
OTHERS = {
    ("owner", "name"): "stands for an address in instructions",
    ("you", "your-fork"): "stands for an address in instructions",
}


def our_texts() -> dict[str, str]:
    """Text files of this repository, without the library that is shipped with the book and the tests' own examples."""
    texts = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in text_files(ROOT)}
    return {name: text for name, text in texts.items() if not name.startswith(("book/assets/mathjax/", "tests/"))}


def owner_and_name(url: str) -> tuple[str, str]:
    owner, name = url.removeprefix("https://github.com/").split("/")
    return owner, name


def foreign(texts: dict[str, str], ours: tuple[str, str]) -> list[str]:
    """Addresses that pass for ours: any other one in the files that speak for us, half of ours anywhere."""
    return [
        f"{file}: {owner}/{name}"
        for file, text in texts.items()
        for owner, name in sorted(addresses(text) - {ours} - set(OTHERS))
        if file.startswith(SPEAKING) or owner == ours[0] or name == ours[1]
    ]


def test_no_other_address_passes_for_ours() -> None:
    texts = our_texts()
    ours = owner_and_name(current_url(ROOT))
    assert foreign(texts, ours) == []
    # What must name us does: otherwise the line above would also hold in an empty repository.
    assert {"pyproject.toml", "_config.yml", "CITATION.cff"} <= {
        file for file, text in texts.items() if ours in addresses(text)
    }


def test_an_address_that_passes_for_ours_is_found() -> None:
    ours = ("attention-checked", "attention-checked")
    texts = {
        "README.md": "see https://github.com/other/thing",
        "notebooks/a.ipynb": "git+https://github.com/attention-checked/attention-checked.git",
        "attnlib/a.py": "https://github.com/other/attention-checked and github.com/third/party",
        "_config.yml": "https://colab.research.google.com/github/attention-checked/book/blob/main",
    }
    assert foreign(texts, ours) == [
        "README.md: other/thing",
        "attnlib/a.py: other/attention-checked",
        "_config.yml: attention-checked/book",
    ]


def test_one_command_changes_every_copy_in_this_repository(tmp_path: Path) -> None:
    for path in text_files(ROOT):
        name = path.relative_to(ROOT)
        if not name.as_posix().startswith(("book/assets/", "tests/")):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, tmp_path / name)
    old = owner_and_name(current_url(ROOT))
    changed = change(tmp_path, NEW)
    assert current_url(tmp_path) == NEW
    assert Path("_config.yml") in changed
    assert changed[-1] == Path("pyproject.toml")
    left = [str(path) for path in text_files(tmp_path) if old in addresses(path.read_text(encoding="utf-8"))]
    assert left == []
    assert not any("/".join(old) in path.read_text(encoding="utf-8") for path in text_files(tmp_path))
    assert change(tmp_path, NEW) == []
    # And back again: nothing but the address was touched.
    change(tmp_path, current_url(ROOT))
    for path in text_files(tmp_path):
        assert path.read_text(encoding="utf-8") == (ROOT / path.relative_to(tmp_path)).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("text", "moved"),
    [
        ("https://github.com/a/b", "https://github.com/x/y"),
        ("git+https://github.com/a/b.git@main", "git+https://github.com/x/y.git@main"),
        ("git@github.com:a/b.git", "git@github.com:x/y.git"),
        (
            "https://colab.research.google.com/github/a/b/blob/main/n.ipynb",
            "https://colab.research.google.com/github/x/y/blob/main/n.ipynb",
        ),
        ("https://raw.githubusercontent.com/a/b/main/p.png", "https://raw.githubusercontent.com/x/y/main/p.png"),
        ("https://a.github.io/b/index.html", "https://x.github.io/y/index.html"),
        ("Clone https://github.com/a/b.", "Clone https://github.com/x/y."),
        ("https://github.com/a/bc", None),
        ("https://github.com/a/b-2", None),
        ("https://github.com/a/b.js", None),
        ("https://github.com/aa/b", None),
        ("https://aa.github.io/b", None),
        ("the fraction a/b", None),
    ],
)
def test_an_address_is_changed_in_all_its_forms_and_nothing_else_is(text: str, moved: str | None) -> None:
    assert replace_address(text, ("a", "b"), ("x", "y")) == (text if moved is None else moved)


def test_stored_pages_stay_what_make_notebooks_would_write(tmp_path: Path) -> None:
    """Cell ids are hashes of the cells, so a new address in the first cell needs a new id."""
    root = make_book(tmp_path)
    (root / "pyproject.toml").write_text(PYPROJECT)
    renew(root)
    (page,) = find_pages(root)
    change(root, NEW)
    ids = [cell["id"] for cell in nbformat.read(page.stored, as_version=4).cells]
    assert ids == [cell["id"] for cell in read_source(page.source.read_text()).cells]
    assert NEW in page.stored.read_text()
    assert renew(root, check=True) == []


def test_a_book_published_elsewhere_is_moved_by_the_same_command(tmp_path: Path, monkeypatch, capsys) -> None:
    root = make_book(tmp_path)
    was = "https://attention-checked.github.io/attention-checked"
    (root / "pyproject.toml").write_text(f'{PYPROJECT}[tool.bookkit]\naddress = "{was}"\n')
    (page,) = find_pages(root)
    page.source.write_text(f"{page.source.read_text()}\nSee [this]({was}/book/x.html#y), {was}-2 and {was}.\n")
    renew(root)
    monkeypatch.chdir(root)
    assert main(["repository", NEW]) == 0  # the address goes with the repository
    assert settings(root).address == "https://somebody-else.github.io/a.book"
    assert main(["repository", NEW, "--book", "https://book.example.org/"]) == 0
    assert settings(root).address == "https://book.example.org"
    told = f"See [this](https://book.example.org/book/x.html#y), {was}-2 and https://book.example.org.\n"
    assert page.source.read_text().endswith(told)
    assert renew(root, check=True) == []  # stored pages have it too, and the ids that go with it
    assert capsys.readouterr().out.split().count("pyproject.toml") == 2
    assert main(["repository", NEW, "--book", "book.example.org"]) == 2
    assert (
        "the address of the published book must be https://host/path; got 'book.example.org'" in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    "url",
    ["", "github.com/a/b", "http://github.com/a/b", "https://gitlab.com/a/b", "https://github.com/a", "https://github.com/a/b/c",
     "https://github.com/-a/b", "https://github.com/a/..", "https://github.com/a/b?x=1", "https://github.com/a b/c"],
)  # fmt: skip
def test_what_is_no_address_is_refused_and_nothing_is_touched(tmp_path: Path, url: str, monkeypatch, capsys) -> None:
    root = make_book(tmp_path)
    (root / "pyproject.toml").write_text(PYPROJECT)
    monkeypatch.chdir(root)
    assert main(["repository", url]) == 2
    assert capsys.readouterr().err == f"bookkit: error: URL must be https://github.com/owner/name; got {url!r}\n"
    assert current_url(root) == ADDRESS


@pytest.mark.parametrize("url", ["https://github.com/a/b/", "https://github.com/a/b.git", " https://github.com/a/b\n"])
def test_small_slips_in_an_address_are_forgiven(url: str) -> None:
    assert check_url(url) == "https://github.com/a/b"


def test_a_project_without_an_address_is_told(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    with pytest.raises(UserError, match=r"must hold \[project.urls\] Repository"):
        current_url(tmp_path)


def test_git_decides_which_files_belong_to_the_repository(tmp_path: Path) -> None:
    subprocess.run(["git", "-C", str(tmp_path), "init", "--quiet"], check=True)
    (tmp_path / ".gitignore").write_text("ignored/\n")
    (tmp_path / "ignored").mkdir()
    for name in ("ignored/a.txt", "new.txt", "Grün.txt"):
        (tmp_path / name).write_text("text")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\xff")
    (tmp_path / "link").symlink_to("new.txt")
    assert sorted(path.name for path in text_files(tmp_path)) == [".gitignore", "Grün.txt", "new.txt"]
