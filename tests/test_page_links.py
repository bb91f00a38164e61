"""Where the pages lead: links that work in the book, on GitHub and in Colab, a way on from each page, and no address but ours."""

import re
import subprocess
from pathlib import Path, PurePosixPath
from posixpath import normpath

import pytest

from bookkit.pages.catalogue import Page, find_pages
from bookkit.settings import settings
from bookkit.sphinx.public_links import inside
from bookkit.toc import groups
from tests.house import REPOSITORY, ROOT
from tests.page_checks import toc_files
from tests.tiny_book import rendered, write

PAGES = find_pages(ROOT)
ADDRESS = settings(ROOT).address
ORDER = toc_files(ROOT / "_toc.yml")
GROUPS = dict(groups(ROOT))
PATH = GROUPS[settings(ROOT).path]

LINK = re.compile(r"\[(?P<text>(?:[^\[\]]|\[[^\]]*\])+)\]\((?P<target>[^)\s]+)\)")
SECTION = "\n## Where to go from here\n\n"
ITEMS = ["Proofs", "To try", "Claims", "Next", "Also"]


def prose(page: Page) -> str:
    return re.sub(r"^```.*?^```$", "", page.source.read_text(encoding="utf-8"), flags=re.M | re.S)


def title(document: str) -> str:
    return re.search(r"^# (.*)$", (ROOT / f"{document}.md").read_text(encoding="utf-8"), re.M)[1]


def document(page: Page, target: str) -> str | None:
    """What a link of a page names, as `_toc.yml` names it; None for another host or a place on the page itself."""
    if found := inside(target, ADDRESS):
        return found[0]
    if re.match(r"[a-z]+:|#", target):
        return None
    path = normpath(f"notebooks/{PurePosixPath(page.name).parent}/{target.partition('#')[0]}")
    return re.sub(r"\.(ipynb|md)$", "", path)


def links(page: Page, text: str) -> list[tuple[str, str]]:
    """Text and document of the links that stay in the book."""
    return [(m["text"], name) for m in LINK.finditer(text) if (name := document(page, m["target"])) is not None]


def astray(page: Page) -> list[str]:
    """Another page is a file beside it; what is no notebook has the public address: in Colab it is not a neighbour.

    That a link leads somewhere at all, and to a place that is there, is looked up in the built book (browser/test_built_pages).
    """
    faults = []
    for match in LINK.finditer(prose(page)):
        target, name = match["target"].partition("#")[0], document(page, match["target"])
        beside = target.endswith(".ipynb") and (page.source.parent / target).is_file()
        sound = target.endswith(".html") if inside(target, ADDRESS) else beside
        if name is not None and not (sound and name in ORDER):
            faults.append(f"{match['target']}: write the .ipynb of another page, or {ADDRESS}/book/....html")
    return faults


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_says_what_to_read_before_and_ends_with_where_to_go(page: Page) -> None:
    text = prose(page)
    assert astray(page) == []
    rows = re.findall(r"^\| before you read .*\n\|[-|]+\n((?:\|.*\n)+)", text, re.M)
    assert len(rows) == 1
    cells = [row.split("|")[1] for row in rows[0].splitlines()]
    assert any(links(page, cell) for cell in cells)
    assert [cell for cell in cells if re.search(r"\b(pages?|chapter|notation)\b", cell) and not links(page, cell)] == []

    closing = text.partition(SECTION)[2].partition("\n\n")[0]
    items = closing.splitlines()
    assert [each for item in items for each in re.findall(r"^- \*\*([\w ]+)\*\*: ", item)] == ITEMS
    found = {name: links(page, item) for name, item in zip(ITEMS, items, strict=True)}
    assert all(found.values()), found
    assert all("theory" in name or "versions" in name for _, name in found["Proofs"])
    assert [name.rpartition("/")[0] for _, name in found["To try"]] == ["book/explorers"]
    assert [name for _, name in found["Claims"]] == ["book/ledger"]
    # The next page is the next one of the short book; of the others, the next notebook of the part. The last one leads to the first
    # page of a later part, or to a chapter: which of them is the author's choice, so that a new part changes no page of another one.
    name = f"notebooks/{page.name}"
    onward = found["Next"][0][1]
    if name in PATH:
        assert onward == PATH[PATH.index(name) + 1]
    else:
        later = [other for other in ORDER[ORDER.index(name) + 1 :] if other.startswith("notebooks/")]
        after = {o.rpartition("/")[0]: o for o in reversed(later)}
        own_part = f"notebooks/{page.source.parent.name}"
        assert (
            onward == after[own_part] if own_part in after else onward in after.values() or onward.startswith("book/")
        )

    # Where pages are named one after the other, in the table and in the last section, by their titles.
    table = "\n".join(line for line in text.splitlines() if line.startswith("| "))
    for said, name in links(page, table) + links(page, closing):
        if name.startswith(("notebooks/", "book/explorers/")):
            assert said == title(name)


def test_pages_are_numbered_as_they_follow_each_other() -> None:
    for folder, part in settings(ROOT).parts.items():
        pages = [name for name in ORDER if name.startswith(f"notebooks/{folder}/")]
        further = [name for name in pages if name not in PATH]
        assert further == sorted(further)
        # A page that joined another one leaves a gap: numbers of the others stand in what people wrote down.
        assert [title(name).split()[0] for name in pages] == [
            f"{part.number}.{int(name.split('/')[2][:2])}" for name in pages
        ]
        # Proofs are where one goes from a page, so they stand behind.
        proofs = [name for name in ORDER if re.match(rf"Proofs for Part {part.number}(:|$)", title(name))]
        assert ORDER.index(pages[-1]) < ORDER.index(proofs[0])
    assert ORDER[:2] == ["book/preface", "book/story"]
    assert next(iter(GROUPS)) == settings(ROOT).path
    assert len(GROUPS) <= 7
    of_parts = [name for name in ORDER if name.split("/")[1] in settings(ROOT).parts]
    assert ORDER.index("book/notation") > ORDER.index(of_parts[-1])


# --- the public address -----------------------------------------------------------------------------------------------


def test_a_link_to_the_published_book_is_known() -> None:
    for link, found in {
        "https://a.github.io/b/book/one.html#box": ("book/one", "#box"),
        "https://a.github.io/b": ("index", ""),
        "https://a.github.io/b/notebooks/w/01_p.html": ("notebooks/w/01_p", ""),
        "https://a.github.io/b/": ("index", ""),
        "https://a.github.io/bb/book/one.html": None,
        "https://a.github.io/": None,
        "https://github.com/a/b": None,
        "book/one.html": None,
    }.items():
        assert inside(link, "https://a.github.io/b") == found
        assert inside(link, "") is None


def test_the_built_book_takes_public_links_for_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "pyproject.toml", '[tool.bookkit]\naddress = "https://a.github.io/b"\n')
    write(tmp_path / "_toc.yml", "")
    to = "https://a.github.io/b"
    links = f"[box]({to}/book/one.html#box), [all]({to}/), [no]({to}/book/two.html), [else]({to}c)"
    first = "# First\n\n```{toctree}\none\n../notebooks/w/page\n```\n"
    pages = {"book/first": first, "book/one": "# One\n\n(box)=\n## Box\n", "notebooks/w/page": f"# P\n\n{links}\n"}
    monkeypatch.chdir(tmp_path)
    html, told = rendered(tmp_path, pages, "bookkit.sphinx.public_links")
    page = (html / "notebooks" / "w" / "page.html").read_text(encoding="utf-8")
    assert '<a class="reference internal" href="../../book/one.html#box">box</a>' in page
    assert '<a class="reference internal" href="../../book/first.html">all</a>' in page
    assert '<a class="reference external" href="https://a.github.io/bc">else</a>' in page
    assert "the book has no book/two.html; got https://a.github.io/b/book/two.html" in told
    assert told.count("WARNING") == 1


# --- documents of the repository, which GitHub shows --------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", [ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda p: p.name
)
def test_a_document_is_plain_markdown_and_leads_to_what_is_there(path: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)
    told = re.sub(r"`[^`]*`", "", text)
    assert re.findall(r"\{[\w:-]+\}`|^:::|^```\{", re.sub(r"(?<!\})`[^`]*`", "", text), re.M) == []
    for match in LINK.finditer(told):
        target, _, mark = match["target"].partition("#")
        if found := inside(match["target"], ADDRESS):
            assert found[0] in ORDER, match["target"]
        elif not re.match("https?:", target):
            other = (path.parent / target) if target else path
            assert other.is_file(), match["target"]
            heads = re.findall(r"^#+ (.*)$", other.read_text(encoding="utf-8"), re.M)
            assert not mark or mark in [re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads]


# --- old addresses ----------------------------------------------------------------------------------------------------


def test_a_page_that_moved_leads_on_and_a_row_that_cannot_be_right_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = {
        "notebooks/w/02_old": "notebooks/w/03_new#box",
        "gone/old": "notebooks/w/03_new",
        "book/lost": "book/nowhere",
        "book/house": "docs/house.md",
        "book/first": "notebooks/w/03_new",
        "book/vague": "notebooks/w/03_new#nothing",
    }
    table = "\n".join(f'"{old}" = "{new}"' for old, new in rows.items())
    address = "https://a.github.io/b"
    write(tmp_path / "pyproject.toml", f'[tool.bookkit]\naddress = "{address}"\n[tool.bookkit.redirects]\n{table}\n')
    write(tmp_path / "_toc.yml", "")
    pages = {
        "book/first": "# First\n\n```{toctree}\n../notebooks/w/03_new\n```\n",
        "notebooks/w/03_new": "# New\n\n(box)=\n## A box\n",
    }
    write(tmp_path / "docs" / "house.md", "# House\n")
    (tmp_path / "notebooks").mkdir()
    monkeypatch.chdir(tmp_path)
    theme = {"html_theme": "sphinx_book_theme", "html_theme_options": {"repository_url": "https://github.com/a/b"}}
    html, told = rendered(tmp_path, pages, "bookkit.sphinx.redirects", **theme)
    assert re.findall(r"redirects: (\S+) (.*)", told) == [
        ("book/lost", "leads to book/nowhere, which is neither a page nor a file of the book"),
        ("book/first", "is a page of the book; take its row out"),
        ("book/vague", "leads to notebooks/w/03_new#nothing, which is no place on that page"),
    ]
    assert "<h1>First" in (html / "book" / "first.html").read_text(encoding="utf-8")
    assert [(html / f"{name}.html").exists() for name in ("book/lost", "book/vague")] == [False, False]
    for old, link in (("notebooks/w/02_old", "03_new.html#box"), ("gone/old", "../notebooks/w/03_new.html")):
        stub = (html / f"{old}.html").read_text(encoding="utf-8")
        assert f'<meta http-equiv="Refresh" content="0; url={link}">' in stub
        assert f'<a href="{link}">' in stub
        assert f'<link rel="canonical" href="{address}/notebooks/w/03_new.html">' in stub
    house = (html / "book" / "house.html").read_text(encoding="utf-8")
    assert house.count("https://github.com/a/b/blob/main/docs/house.md") == 4
    assert "location.hash || '#box'" in (html / "notebooks/w/02_old.html").read_text(encoding="utf-8")


# --- the repository's: it stands in pyproject.toml; "Under another address" in book/running.md ------------------------

# What stands before owner/name: a page, a clone over ssh, Colab, raw files.
GITHUB = re.compile(r"(?:github\.com[/:]|/github/|raw\.githubusercontent\.com/)([\w-]+/[\w.-]*[\w-])", re.ASCII)
# Files that speak for this repository: every GitHub address in them must be ours, apart from those of instructions.
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
OURS = REPOSITORY.removeprefix("https://github.com/")


def foreign(file: str, text: str, ours: str) -> list[str]:
    """Addresses that pass for ours: any other one in the files that speak for us, half of ours anywhere."""
    found = {name.removesuffix(".git") for name in GITHUB.findall(text)} - {ours, "owner/name", "you/your-fork"}
    halves = set(ours.split("/"))
    return [f"{file}: {name}" for name in sorted(found) if file.startswith(SPEAKING) or halves & set(name.split("/"))]


def test_no_other_address_passes_for_ours() -> None:
    search = ["git", "grep", "-zlI", "github", "--", ".", ":!tests"]
    names = subprocess.run(search, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    texts = {name: (ROOT / name).read_text(encoding="utf-8") for name in names if name}
    assert [fault for name, text in texts.items() for fault in foreign(name, text, OURS)] == []
    # What must name us does: otherwise the line above would also hold in an empty repository.
    assert {"pyproject.toml", "_config.yml", "CITATION.cff"} <= {name for name, text in texts.items() if OURS in text}
    for file, text, found in (
        ("README.md", "see https://github.com/other/thing", ["README.md: other/thing"]),
        ("notebooks/a.ipynb", "git+https://github.com/me/book.git", []),
        ("attnlib/a.py", "https://github.com/other/book, github.com/third/party", ["attnlib/a.py: other/book"]),
        ("_config.yml", "https://colab.research.google.com/github/me/fork/blob/main", ["_config.yml: me/fork"]),
    ):
        assert foreign(file, text, "me/book") == found
