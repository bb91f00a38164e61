"""Every link of the built book leads to a file and a place in it, and every notebook page leads on. Reads the files; drives no browser."""

import re
from functools import cache
from html.parser import HTMLParser
from posixpath import dirname, normpath
from urllib.parse import unquote

import pytest

from tests.browser.browsing import HTML, page_names

pytestmark = pytest.mark.browser

PAGES = page_names()
ASIDE = ["search.html", "genindex.html"]
VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
# An explorer keeps its settings behind the mark: `#x=1.5&eta=0.2` is no place on the page.
SETTINGS = re.compile(r"[\w-]+=")


class Reader(HTMLParser):
    """Ids of a page, links of the whole page, and links of its article."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.article: list[str] = []
        self._depth = 0  # of elements open within the article
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if "id" in found or (tag == "a" and "name" in found):
            self.ids.append(found.get("id") or found.get("name") or "")
        if tag == "a" and (href := found.get("href")):
            self.links.append(href)
            if self._depth:
                self.article.append(href)
        if tag not in VOID and (
            self._depth or (tag == "article" and "bd-article" in (found.get("class") or "").split())
        ):
            self._depth += 1

    def handle_endtag(self, tag: str) -> None:
        if self._depth and tag not in VOID:
            self._depth -= 1


@cache
def read(name: str) -> Reader:
    return Reader((HTML / name).read_text(encoding="utf-8"))


def place(name: str, href: str) -> tuple[str, str] | None:
    """File and fragment that a link on page `name` leads to; None for another host."""
    if re.match(r"[a-z][a-z+.-]*:|//", href, re.IGNORECASE):
        return None
    path, _, fragment = href.partition("#")
    path = path.partition("?")[0]
    return (normpath(f"{dirname(name)}/{unquote(path)}").lstrip("/") if path else name), unquote(fragment)


def broken(name: str) -> list[str]:
    """Links of a page that lead to no file, or to no place in it."""
    faults = []
    for href in dict.fromkeys(read(name).links):
        if (found := place(name, href)) is None:
            continue
        file, fragment = found
        if not (HTML / file).is_file():
            faults.append(f"{href}: no file {file}")
        elif fragment and file.endswith(".html") and not SETTINGS.match(fragment) and fragment not in read(file).ids:
            faults.append(f"{href}: {file} has no {fragment}")
    return faults


@pytest.mark.parametrize("name", [*PAGES, *ASIDE])
def test_every_link_leads_somewhere(name: str) -> None:
    assert broken(name) == []


@pytest.mark.parametrize("name", [name for name in PAGES if name.startswith("notebooks/")])
def test_every_notebook_page_leads_on(name: str) -> None:
    """At least four pages, chapters or explorers beside the ledger, linked in the article and not in the menus."""
    files = {found[0] for href in read(name).article if (found := place(name, href))}
    onward = {file for file in files if re.match(r"(book|notebooks)/.*\.html$", file)} - {name, "book/ledger.html"}
    assert len(onward) >= 4, sorted(onward)
    assert any(file.startswith("book/explorers/") for file in onward)
    assert any(file.endswith(("_theory.html", "_versions.html")) for file in onward)
    assert "book/ledger.html" in files
    # Nothing asks the network for what the book itself has.
    assert not [href for href in read(name).links if re.match(r"https://[\w-]+\.github\.io/", href)]


def test_the_menu_is_folded_but_for_the_part_that_is_read() -> None:
    for name in PAGES:
        menu = re.search(r'<ul class="list-caption">.*?</nav>', (HTML / name).read_text(encoding="utf-8"), re.S)
        assert menu, name
        assert len(re.findall(r"<details\b", menu[0])) >= 8, name
        opened = re.findall(r"<details open[^>]*>(.*?)</details>", menu[0], re.S)
        assert len(opened) == 1, name
        assert 'href="#"' in opened[0] or name in ("index.html", "book/preface.html"), name


def test_a_wrong_link_is_found(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b.html").write_text('<p id="there"></p>', encoding="utf-8")
    links = ["../b.html", "../b.html#there", "../b.html#gone", "c.html", "#own", "#x=1&y=2", "https://a.org/c.html"]
    text = "<article class='bd-article' id='own'><br>" + "".join(f"<a href='{href}'>x</a>" for href in links[:2])
    text += "</article>" + "".join(f"<a href='{href}'>x</a>" for href in links[2:])
    (tmp_path / "a" / "one.html").write_text(text, encoding="utf-8")
    monkeypatch.setattr("tests.browser.test_internal_links.HTML", tmp_path)
    assert broken("a/one.html") == ["../b.html#gone: b.html has no gone", "c.html: no file a/c.html"]
    assert read("a/one.html").article == links[:2]
