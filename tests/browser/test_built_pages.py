"""Every page of the built book, read as a file: links, formulas, pictures, icons, what it asks for. Drives no browser."""

import re
from collections import Counter
from functools import cache
from html import unescape
from pathlib import Path
from posixpath import dirname, normpath
from urllib.parse import unquote

import pytest

from bookkit.settings import settings
from bookkit.toc import way
from tests.browser.browsing import HTML
from tests.house import ROOT

pytestmark = pytest.mark.browser

# An explorer keeps its settings behind the mark: `#x=1.5&eta=0.2` is no place on the page.
SETTINGS = re.compile(r"[\w-]+=")
ELSEWHERE = re.compile(r"[a-z][a-z+.-]*:|//", re.IGNORECASE)
RAW_TEX = re.compile(r"\\\(|\\\[|\$\$|\\(frac|mu|rho|eta|beta|mathbb|begin)\b")
ASIDE = ("search.html", "genindex.html", "404.html")


@cache
def source(name: str) -> str:
    return (HTML / name).read_text(encoding="utf-8")


@cache
def article(name: str) -> str:
    return source(name).partition("<article")[2].rpartition("</article>")[0]


@cache
def ids(name: str) -> set[str]:
    return set(re.findall(r'<[^>]*\s(?:id|name)="([^"]*)"', source(name)))


def pages() -> list[str]:
    """All pages of the built book; without redirects, indices and the theme's own files."""
    found = sorted(path.relative_to(HTML).as_posix() for path in HTML.rglob("*.html"))
    own = [name for name in found if name[0] != "_" and name not in (*ASIDE, "prf-prf.html")]
    return [name for name in own if 'http-equiv="Refresh"' not in source(name)[:500]]


PAGES = pages()


def hrefs(text: str) -> list[str]:
    return [unescape(one) for one in dict.fromkeys(re.findall(r'<a\b[^>]*\shref="([^"]+)"', text))]


def place(name: str, href: str) -> tuple[str, str] | None:
    """File and fragment that a link on page `name` leads to; None for another host."""
    if ELSEWHERE.match(href):
        return None
    path, _, fragment = href.partition("#")
    path = path.partition("?")[0]
    return (normpath(f"{dirname(name)}/{unquote(path)}").lstrip("/") if path else name), unquote(fragment)


def broken(name: str) -> list[str]:
    """Links of a page that lead to no file, or to no place in it; files it asks for that are not there, or elsewhere."""
    faults = []
    for href in hrefs(source(name)):
        if (found := place(name, href)) is None:
            continue
        file, fragment = found
        if not (HTML / file).is_file():
            faults.append(f"{href}: no file {file}")
        elif fragment and file.endswith(".html") and not SETTINGS.match(fragment) and fragment not in ids(file):
            faults.append(f"{href}: {file} has no {fragment}")
    asked = re.findall(r'<(?:script|img|iframe)\b[^>]*\ssrc="([^"]+)"', source(name))
    sheets = [
        tag for tag in re.findall(r"<link\b[^>]*>", source(name)) if re.search(r'rel="[^"]*(stylesheet|icon)', tag)
    ]
    for address in dict.fromkeys(asked + re.findall(r'href="([^"]+)"', "".join(sheets))):
        if (found := place(name, address)) is None:
            faults += [] if address.startswith("data:") else [f"asks another host: {address}"]
        elif not (HTML / found[0]).is_file():
            faults.append(f"asks for {found[0]}, which is not there")
    return faults


def tex_as_text(name: str) -> list[str]:
    """Texts of the article, outside of code and formulas, with a command of TeX in them."""
    kept = re.sub(r"<(pre|code|script|style|math)\b.*?</\1>", "", article(name), flags=re.S)
    return [text.strip() for text in re.split(r"<[^>]*>", kept) if RAW_TEX.search(text)]


def test_every_link_leads_somewhere_and_nothing_is_asked_of_another_host() -> None:
    assert len(PAGES) > 60, f"no pages in {HTML}: run `make html` first"
    assert {name: faults for name in [*PAGES, *ASIDE] if (faults := broken(name))} == {}
    for path in sorted((HTML / "_static").rglob("*.css")):
        if path.name in ("fontawesome.css", "all.min.css"):  # loaded by no page
            continue
        for address in re.findall(r"url\([\"']?([^\"')]+)", path.read_text(encoding="utf-8")):
            if not ELSEWHERE.match(address) and not address.startswith("#"):
                assert (path.parent / re.split("[?#]", address)[0]).is_file(), f"{path.name}: {address}"


def test_no_id_is_given_twice_on_a_page() -> None:
    given = {name: Counter(re.findall(r'<[a-zA-Z][^<>]*?\sid="([^"]+)"', source(name))) for name in PAGES}
    assert sum(map(len, given.values())) > 10 * len(PAGES)
    assert [(name, one) for name, found in given.items() for one, times in found.items() if times > 1] == []


def test_every_formula_is_drawn_in_the_books_own_font_and_no_tex_is_left() -> None:
    made = (HTML / "_static" / "formulas" / "LICENSE").read_text(encoding="utf-8")
    ranges = re.search(r"--unicodes=(\S+)", made)
    assert ranges
    known, drawn, signs = set(map(ord, "\u2009\u00a0\u2003\u2002\n")), 0, set()  # spaces
    for part in ranges[1].split(","):
        first, _, last = part.removeprefix("U+").partition("-")
        known |= set(range(int(first, 16), int(last or first, 16) + 1))
    for name in PAGES:
        page = source(name)
        written = len(re.findall(r'class="(?:[^"]* )?math(?: [^"]*)?"[^>]* data-tex="', page))
        assert (written, page.count("<merror"), tex_as_text(name)) == (
            len(re.findall("(?<!</math>)<math", page)),
            0,
            [],
        ), name
        for math in re.findall(r"<math.*?</math>", page, re.S):
            signs |= set(unescape(re.sub(r"<[^>]*>", "", math)))
        drawn += written
    assert drawn > 10_000
    assert sorted(sign for sign in signs if ord(sign) not in known) == []
    cards = (HTML / "_static" / "cards_data.js").read_text(encoding="utf-8")
    assert cards.count("<math") > 1000
    assert not re.search(r"\\\\\(|\\\\\[", cards)


def test_numbered_equations_keep_number_and_link() -> None:
    link = r'<a class="headerlink" href="#\1"[^>]*>#</a></span><span class="formula">'
    number = r'id="(equation-[\w-]+)">\s*<span class="eqno">\((\d+)\)' + link
    numbers = [int(found) for _, found in re.findall(number, source("book/single_head_theory.html"))]
    assert len(numbers) > 20
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def test_pages_are_light_and_have_their_icons() -> None:
    rules = (HTML / "_static" / "icons.css").read_text(encoding="utf-8")
    sizes, faces = {"fa-lg", "fa-fw", "fa-sm", "fa-xl"}, {"fa-solid", "fas", "fa-regular", "far", "fa-brands", "fab"}
    for name in [*PAGES, *ASIDE]:
        page = source(name)
        if name != "book/ledger.html":  # all claims of the book, each with its facts
            assert len(page.encode()) < 600_000, name
        assert "fontawesome" not in page, name
        for classes in re.findall(r'<(?:i|span) class="([^"]*\bfa-[^"]*)"', page):
            named = set(classes.split()) - sizes
            for icon in {word for word in named - faces if word.startswith("fa-")}:
                assert any(f".{face}.{icon}" in rules for face in named & faces), f"{name}: {classes}"


@pytest.mark.parametrize("name", [name for name in PAGES if name.startswith("notebooks/")])
def test_every_notebook_page_leads_on(name: str) -> None:
    """At least four pages, chapters or explorers beside the ledger, linked in the article and not in the menus."""
    files = {found[0] for href in hrefs(article(name)) if (found := place(name, href))}
    onward = {file for file in files if re.match(r"(book|notebooks)/.*\.html$", file)} - {name, "book/ledger.html"}
    assert len(onward) >= 4, sorted(onward)
    assert any(file.startswith("book/explorers/") for file in onward)
    assert any(file.endswith(("_theory.html", "_versions.html")) for file in onward)
    assert "book/ledger.html" in files
    # Nothing asks the network for what the book itself has.
    assert not [href for href in hrefs(source(name)) if re.match(r"https://[\w-]+\.github\.io/", href)]


def test_next_leads_through_the_short_book_and_no_further() -> None:
    path = way(ROOT, settings(ROOT).path).pages
    walked, name = [], "book/preface.html"
    while found := re.search(r'<a class="right-next"\s+href="([^"]+)"', source(name)):
        name = place(name, found[1])[0]  # type: ignore[index]
        walked.append(name.removesuffix(".html"))
        assert len(walked) <= len(path), f"the last page leads on to {name}"
        line = re.search(r'<p class="path-line.*?</p>', source(name))
        assert line, name
        assert f"· {len(walked)} of {len(path)} · about " in line[0]
    assert walked == path
    assert sum('class="path-line' in source(each) for each in PAGES) == len(path)


def test_every_figure_is_described_and_says_how_it_was_made() -> None:
    """A caption, an alternative text that is not the caption, and the folded line, in every page."""
    figures = 0
    for name in PAGES:
        for figure, line in re.findall(r"(<figure\b.*?</figure>)\s*(<details class=\"provenance)?", source(name), re.S):
            if re.match(r'<figure class="(lead-figure|still)', figure):  # one of the others, once more; an explorer's
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


def test_a_wrong_link_and_tex_left_over_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "b.html").write_text('<p id="there"></p>', encoding="utf-8")
    links = ["b.html", "b.html#there", "b.html#gone", "c.html", "#own", "#x=1&amp;y=2", "https://a.org/c.html"]
    text = "".join(f'<a class="x" href="{href}">x</a>' for href in links) + '<img src="https://a.org/x.png">'
    text += '<article id="own"><p>where \\rho is <math>\\rho</math> <code>\\rho</code></p></article><img src="y.png">'
    (tmp_path / "one.html").write_text(text, encoding="utf-8")
    monkeypatch.setattr("tests.browser.test_built_pages.HTML", tmp_path)
    faults = ["b.html#gone: b.html has no gone", "c.html: no file c.html", "asks another host: https://a.org/x.png"]
    assert broken("one.html") == [*faults, "asks for y.png, which is not there"]
    assert tex_as_text("one.html") == ["where \\rho is"]
