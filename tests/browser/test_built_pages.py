"""Every page of the built book, read as a file: links, formulas, pictures, icons, what it asks for. Drives no browser."""

import re
from functools import cache
from html import unescape
from html.parser import HTMLParser
from posixpath import dirname, normpath
from urllib.parse import unquote

import pytest

from bookkit.formulas.drawing import element
from tests.browser.browsing import HTML, page_names

pytestmark = pytest.mark.browser

PAGES = page_names()
ASIDE = ["search.html", "genindex.html"]
VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
# An explorer keeps its settings behind the mark: `#x=1.5&eta=0.2` is no place on the page.
SETTINGS = re.compile(r"[\w-]+=")
ELSEWHERE = re.compile(r"[a-z][a-z+.-]*:|//", re.IGNORECASE)
RAW_TEX = re.compile(r"\\\(|\\\[|\$\$|\\(frac|mu|rho|eta|beta|mathbb|begin)\b")
HEAVIEST = 600_000  # bytes of a page as text
FONT = HTML / "_static" / "formulas" / "BookMath.woff2"


class Reader(HTMLParser):
    """What a page holds: ids, links (of the page, of its article), what it asks for, and the text outside code and formulas."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.article: list[str] = []
        self.asked: list[str] = []
        self.text: list[str] = []
        self._depth = self._aside = 0  # of elements open within the article; within code or a formula
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if "id" in found or (tag == "a" and "name" in found):
            self.ids.append(found.get("id") or found.get("name") or "")
        if tag == "a" and (href := found.get("href")):
            self.links.append(href)
            if self._depth:
                self.article.append(href)
        if tag in ("script", "img", "iframe") and found.get("src"):
            self.asked.append(found["src"] or "")
        if tag == "link" and {"stylesheet", "icon"} & set((found.get("rel") or "").split()):
            self.asked.append(found.get("href") or "")
        if tag in ("pre", "code", "script", "style", "math"):
            self._aside += 1
        if tag not in VOID and (self._depth or (tag == "article" and "bd-article" in (found.get("class") or ""))):
            self._depth += 1

    def handle_endtag(self, tag: str) -> None:
        if tag in ("pre", "code", "script", "style", "math"):
            self._aside -= 1
        if self._depth and tag not in VOID:
            self._depth -= 1

    def handle_data(self, data: str) -> None:
        if self._depth and not self._aside:
            self.text.append(data)


@cache
def source(name: str) -> str:
    return (HTML / name).read_text(encoding="utf-8")


@cache
def read(name: str) -> Reader:
    return Reader(source(name))


def place(name: str, href: str) -> tuple[str, str] | None:
    """File and fragment that a link on page `name` leads to; None for another host."""
    if ELSEWHERE.match(href):
        return None
    path, _, fragment = href.partition("#")
    path = path.partition("?")[0]
    return (normpath(f"{dirname(name)}/{unquote(path)}").lstrip("/") if path else name), unquote(fragment)


def broken(name: str) -> list[str]:
    """Links of a page that lead to no file, or to no place in it; files it asks for that are not there, or on another host."""
    faults = []
    for href in dict.fromkeys(read(name).links):
        if (found := place(name, href)) is None:
            continue
        file, fragment = found
        if not (HTML / file).is_file():
            faults.append(f"{href}: no file {file}")
        elif fragment and file.endswith(".html") and not SETTINGS.match(fragment) and fragment not in read(file).ids:
            faults.append(f"{href}: {file} has no {fragment}")
    for address in dict.fromkeys(read(name).asked):
        found = place(name, address)
        if found is None:
            faults += [] if address.startswith("data:") else [f"asks another host: {address}"]
        elif not (HTML / found[0]).is_file():
            faults.append(f"asks for {found[0]}, which is not there")
    return faults


def tex_as_text(page: Reader) -> list[str]:
    return [text.strip()[:80] for text in page.text if RAW_TEX.search(text)]


def test_a_book_was_built() -> None:
    assert len(PAGES) > 60, f"no pages in {HTML}: run `make html` first"


def test_every_link_leads_somewhere_and_nothing_is_asked_of_another_host() -> None:
    assert {name: faults for name in [*PAGES, *ASIDE] if (faults := broken(name))} == {}


def test_what_style_sheets_name_is_there() -> None:
    for path in sorted((HTML / "_static").rglob("*.css")):
        if path.name in ("fontawesome.css", "all.min.css"):  # loaded by no page
            continue
        for address in re.findall(r"url\([\"']?([^\"')]+)", path.read_text(encoding="utf-8")):
            if not ELSEWHERE.match(address) and not address.startswith("#"):
                assert (path.parent / re.split("[?#]", address)[0]).is_file(), f"{path.name}: {address}"


def test_every_formula_is_drawn_and_no_tex_is_left() -> None:
    drawn = 0
    for name in PAGES:
        page = source(name)
        written = len(re.findall(r'class="(?:[^"]* )?math(?: [^"]*)?"[^>]* data-tex="', page))
        assert written == page.count("<math"), name
        assert page.count("<merror") == 0, name
        assert tex_as_text(read(name)) == [], name
        drawn += written
    assert drawn > 10_000
    cards = (HTML / "_static" / "cards_data.js").read_text(encoding="utf-8")
    assert cards.count("<math") > 1000
    assert not re.search(r"\\\\\(|\\\\\[", cards)


def test_numbered_equations_keep_number_and_link() -> None:
    page = source("book/single_head_theory.html")
    link = r'<a class="headerlink" href="#\1"[^>]*>#</a></span><span class="formula">'
    number = r'id="(equation-[\w-]+)">\s*<span class="eqno">\((\d+)\)' + link
    numbers = [int(found) for _, found in re.findall(number, page)]
    assert len(numbers) > 20
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def test_every_sign_of_a_formula_is_in_the_font_that_the_book_brings() -> None:
    made = (HTML / "_static" / "formulas" / "LICENSE").read_text(encoding="utf-8")
    ranges = re.search(r"--unicodes=(\S+)", made)
    assert ranges
    known = set(map(ord, "\u2009\u00a0\u2003\u2002\n"))  # spaces
    for part in ranges[1].split(","):
        first, _, last = part.removeprefix("U+").partition("-")
        known |= set(range(int(first, 16), int(last or first, 16) + 1))
    signs = {sign for name in PAGES for math in re.findall(r"<math.*?</math>", source(name), re.S)
             for sign in unescape(re.sub(r"<[^>]*>", "", math))}  # fmt: skip
    assert sorted(sign for sign in signs if ord(sign) not in known) == []
    assert 50_000 < FONT.stat().st_size < 200_000


def test_every_icon_has_its_picture() -> None:
    rules = (HTML / "_static" / "icons.css").read_text(encoding="utf-8")
    sizes = {"fa-lg", "fa-fw", "fa-sm", "fa-xl"}
    for name in [*PAGES, *ASIDE]:
        for classes in re.findall(r'<(?:i|span) class="([^"]*\bfa-[^"]*)"', source(name)):
            named = set(classes.split()) - sizes
            kinds = named & {"fa-solid", "fas", "fa-regular", "far", "fa-brands", "fab"}
            for icon in {word for word in named if word.startswith("fa-")} - kinds:
                assert any(f".{kind}.{icon}" in rules for kind in kinds), f"{name}: {classes}"


def test_pages_are_light_and_no_script_holds_them_up() -> None:
    for name in [*PAGES, *ASIDE]:
        page = source(name)
        if name != "book/ledger.html":  # all claims of the book, each with its facts
            assert len(page.encode()) < HEAVIEST, name
        assert [
            tag for tag in re.findall(r"<script[^>]*\bsrc=[^>]*>", page) if not re.search(r"\b(defer|async)\b", tag)
        ] == []
        assert "fontawesome" not in page, name


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
    # The first picture is one of the page's own, near the top: no code stands above it.
    above, _, below = source(name).partition('<figure class="')[0].rpartition("<article")
    assert above
    assert "cell_input" not in re.sub(r'<div class="cell[^"]*tag_(?:hide|remove)[^"]*".*', "", below, flags=re.S), name


def test_the_menu_is_folded_but_for_the_part_that_is_read() -> None:
    for name in PAGES:
        menu = re.search(r'<ul class="list-caption">.*?</nav>', source(name), re.S)
        assert menu, name
        assert len(re.findall(r"<details\b", menu[0])) >= 8, name
        opened = re.findall(r"<details open[^>]*>(.*?)</details>", menu[0], re.S)
        assert len(opened) == 1, name
        assert 'href="#"' in opened[0] or name in ("index.html", "book/preface.html"), name


def test_every_figure_is_described_and_says_how_it_was_made() -> None:
    """A caption, an alternative text that is not the caption, and the folded line, in every page."""
    figures = 0
    for name in PAGES:
        for match in re.finditer(r"<figure\b.*?</figure>\s*(<details class=\"provenance)?", source(name), flags=re.S):
            figure, line = match[0], match[1]
            if "lead-figure" in figure.split(">", 1)[0]:  # one of the others, shown once more on the first screen
                assert "Where it is computed." in figure, name
                continue
            caption = re.search(r"<figcaption>(.*?)</figcaption>", figure, flags=re.S)
            alt = re.search(r'<img[^>]*\balt="([^"]*)"', figure)
            assert caption, f"{name}: a figure without caption"
            assert alt, f"{name}: a figure without alternative text"
            assert len(alt[1]) >= 40, f"{name}: {alt[1]!r} says too little"
            assert alt[1] not in re.sub(r"<[^>]+>", "", caption[1]), f"{name}: the text is the caption: {alt[1]!r}"
            assert line, f"{name}: a figure does not say how it was made: {alt[1]!r}"
            figures += 1
    assert figures > 100


def test_a_wrong_link_and_tex_left_over_are_found(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b.html").write_text('<p id="there"></p>', encoding="utf-8")
    links = ["../b.html", "../b.html#there", "../b.html#gone", "c.html", "#own", "#x=1&y=2", "https://a.org/c.html"]
    text = "<article class='bd-article' id='own'><br>" + "".join(f"<a href='{href}'>x</a>" for href in links[:2])
    text += f"<p>where \\rho is {element('x')} <code>\\rho</code></p></article>"
    text += (
        "".join(f"<a href='{href}'>x</a>" for href in links[2:]) + "<img src='https://a.org/x.png'><img src='y.png'>"
    )
    (tmp_path / "a" / "one.html").write_text(text, encoding="utf-8")
    monkeypatch.setattr("tests.browser.test_built_pages.HTML", tmp_path)
    assert broken("a/one.html") == [
        "../b.html#gone: b.html has no gone",
        "c.html: no file a/c.html",
        "asks another host: https://a.org/x.png",
        "asks for a/y.png, which is not there",
    ]
    assert read("a/one.html").article == links[:2]
    assert tex_as_text(read("a/one.html")) == ["where \\rho is"]
