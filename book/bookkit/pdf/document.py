"""The whole book as one HTML document, made for paper from the pages of the built book.

Each page gives its article: without controls and scripts, with folded parts opened, names made unique (`c07-exercises`),
links between pages turned into links within the document. The ledger becomes a compact table. How the document is
printed: `pdf`.
"""

import html
import json
import re
from collections.abc import Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

import matplotlib as mpl
import yaml
from bs4 import BeautifulSoup, Tag
from pygments.formatters import HtmlFormatter

from bookkit.formulas import drawing
from bookkit.toc import groups

STYLE = Path(__file__).with_name("pdf.css")
SUBTITLE = "The theory of softmax attention, formula beside measurement"
COLUMNS = ("Claim", "Statement", "Predicted; measured", "Verdict")
# Arcs of the map are as long as its list on a screen; on paper they would fill pages of their own.
NOT_ON_PAPER = (
    "script, style, link, noscript, button, source, a.headerlink, .screen-only, .sd-d-none, input, select, .map-arcs"
)
CODE_STYLE = "a11y-high-contrast-light"  # of the theme: contrast 7 and more on white
COLAB = "importlib.util.find_spec"  # of the cell that installs the package in Colab: nothing to do on paper


@dataclass(frozen=True)
class Chapter:
    """A page of the book: `key` names it in the document, `name` is its path below the HTML, without suffix."""

    key: str
    name: str
    part: str  # caption of the part that it opens; empty inside a part


def chapters(root: Path) -> list[Chapter]:
    """Chapters of the book in `root`, in the order of its `_toc.yml`."""
    first = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))["root"]
    named = [("", first)]
    for caption, files in groups(root):
        named += [(caption if position == 0 else "", name) for position, name in enumerate(files)]
    return [Chapter(f"c{number:02d}", name, part) for number, (part, name) in enumerate(named)]


def merged(built: Path, root: Path) -> str:
    """The book. `built`: folder of the HTML; `root`: of the book, for _toc.yml and _config.yml.

    Raises FileNotFoundError for a missing page, ValueError for one without an article.
    """
    listed = chapters(root)
    config = yaml.safe_load((root / "_config.yml").read_text(encoding="utf-8"))
    paths = {c: (built / f"{c.name}.html").resolve() for c in listed}
    if missing := [c.name for c, path in paths.items() if not path.is_file()]:
        raise FileNotFoundError(f"the built book lacks {', '.join(missing)}: build it again with `make html`")
    articles = {c.key: _article(path, c) for c, path in paths.items()}
    keys = {path: c.key for c, path in paths.items()}
    names = {element["id"] for article in articles.values() for element in article.find_all(id=True)}
    for path, key in keys.items():
        _links(articles[key], path, keys, names)
    titles = {key: _title(article) for key, article in articles.items()}
    body = [_cover(config, articles[listed[0].key]), _contents(listed, titles)]
    for chapter in listed:
        part = f'<h1 class="part">{html.escape(chapter.part)}</h1>' if chapter.part else ""
        content = articles[chapter.key].decode_contents()
        body.append(f'<section class="chapter" id="{chapter.key}">{part}{content}</section>')
    code = HtmlFormatter(style=CODE_STYLE).get_style_defs(".highlight")
    style = "\n".join([code, STYLE.read_text(encoding="utf-8"), _running_headers(config["title"], titles)])
    return document(built, html.escape(config["title"]), style, "\n".join(body), author=html.escape(config["author"]))


def document(built: Path, title: str, style: str, body: str, author: str = "") -> str:
    """A document that stands alone. Its text fonts are those that matplotlib brings along: it looks the same on every machine."""
    fonts = (Path(mpl.get_data_path()) / "fonts" / "ttf").as_uri()
    formulas = drawing.style(built / "_static" / "formulas")
    return DOCUMENT.format(title=title, author=author, fonts=fonts, formulas=formulas, style=style, body=body)


# --- a page -----------------------------------------------------------------------------------------------------------


def _article(path: Path, chapter: Chapter) -> Tag:
    soup = BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")
    article = soup.select_one("article.bd-article")
    if article is None:
        raise ValueError(f"{chapter.name}.html has no article: build the book again with `make html`")
    _compact_ledger(article)
    for cell in article.select("div.cell"):
        if COLAB in cell.get_text():
            cell.decompose()
            break
    for element in article.select(NOT_ON_PAPER):
        element.decompose()
    _open_folded(article)
    for heading in article.find_all(re.compile(r"^h[1-5]$")):
        heading.name = f"h{int(heading.name[1]) + 1}"  # parts are above chapters
    for element in article.find_all(id=True):
        element["id"] = f"{chapter.key}-{element['id']}"
    for element in article.find_all(lambda tag: tag.has_attr("tabindex") or tag.has_attr("aria-labelledby")):
        del element["tabindex"], element["aria-labelledby"]
    _pictures(article, path)
    return article


def _open_folded(article: Tag) -> None:
    """Folded parts lie open; where the fold only hid the code of a cell its title goes, elsewhere it stays as a title."""
    for folded in article.find_all("details"):
        title = folded.find("summary", recursive=False)
        if title is not None and "hide" in folded.get("class", []):
            title.decompose()
        elif title is not None:
            title.name = "p"
            title["class"] = ["folded-title"]
            for hidden in title.select(".provenance-of"):
                hidden.decompose()
        folded.name = "div"
        folded["class"] = [*folded.get("class", []), "folded"]
        folded.attrs.pop("open", None)


def _pictures(article: Tag, path: Path) -> None:
    for image in article.find_all("img"):
        for attribute in ("srcset", "sizes", "loading", "decoding", "fetchpriority"):
            image.attrs.pop(attribute, None)
        if not urlsplit(image.get("src", "")).scheme:
            image["src"] = (path.parent / unquote(urlsplit(image["src"]).path)).resolve().as_uri()
        if image.parent.name == "a":
            image.parent.unwrap()


def _links(article: Tag, path: Path, keys: Mapping[Path, str], names: Set[str]) -> None:
    """Links to pages of the document stay inside it, others to the built book become plain text.

    Where a link has nothing among the `names` to jump to, such as a place that only scripts make, the chapter will do.
    """
    for link in article.find_all("a", href=True):
        parts = urlsplit(link["href"])
        if parts.scheme:
            continue
        target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
        if (key := keys.get(target)) is not None:
            name = f"{key}-{parts.fragment}"
            link["href"] = f"#{name if name in names else key}"
        else:
            link.unwrap()


def _title(article: Tag) -> str:
    heading = article.find("h2")
    return " ".join(heading.get_text().split()) if heading else "Untitled"


# --- the ledger -------------------------------------------------------------------------------------------------------


def _compact_ledger(article: Tag) -> None:
    """Put a table of its claims in the place of each group of the ledger; the overview repeats them and goes."""
    for group in article.select(".ledger-group"):
        head = "".join(f'<th scope="col">{name}</th>' for name in COLUMNS)
        caption = html.escape(" ".join(group.select_one(".ledger-head").get_text(" ").split()))
        rows = "".join(_ledger_row(claim, group["data-source"]) for claim in group.select("details.claim"))
        table = f"<caption>{caption}</caption><thead><tr>{head}</tr></thead><tbody>{rows}</tbody>"
        group.replace_with(BeautifulSoup(f'<table class="compact-ledger">{table}</table>', "html.parser"))
    for element in article.select(".ledger-overview, .ledger-filter, .ledger-count"):
        element.decompose()


def _ledger_row(claim: Tag, source: str) -> str:
    """What the ledger says of a claim, in four cells; its id is a link to its page."""
    said = " ".join(paragraph.decode_contents() for paragraph in claim.select(".claim-body > p"))
    facts = {name.get_text(): name.find_next_sibling("dd").decode_contents() for name in claim.select("dt")}
    page = claim.find_parent(class_="ledger-page").select_one(".ledger-from a")["href"]
    cells = (
        f"{said} <span class='quiet'>{html.escape(source)}</span>",
        f"{facts['Predicted']}; {facts['Measured']}",
        str(claim.select_one("summary .verdict")),
    )
    link = f"<th scope='row'><a href='{page}'>{claim.select_one('summary b').get_text()}</a></th>"
    return f"<tr id='{claim['id']}'>{link}{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


# --- around the pages -------------------------------------------------------------------------------------------------


def _cover(config: Mapping, first: Tag) -> str:
    image = first.select_one("figure img")
    picture = f'<img src="{html.escape(image["src"])}" alt="{html.escape(image.get("alt", ""))}">' if image else ""
    address = html.escape(config.get("repository", {}).get("url", ""))
    return (
        f'<section class="cover"><p class="title">{html.escape(config["title"])}</p><p class="subtitle">{SUBTITLE}</p>'
        f'<div class="picture">{picture}</div><p class="author">{html.escape(config["author"])}</p>'
        f'<p class="address"><a href="{address}">{address.removeprefix("https://")}</a></p></section>'
    )


def _contents(listed: list[Chapter], titles: Mapping[str, str]) -> str:
    lines = []
    for chapter in listed:
        if chapter.part:
            lines.append(f'<p class="contents-part">{html.escape(chapter.part)}</p>')
        lines.append(f'<p class="contents-line"><a href="#{chapter.key}">{html.escape(titles[chapter.key])}</a></p>')
    return f'<nav class="contents" id="contents"><p class="contents-title">Contents</p>{"".join(lines)}</nav>'


def _running_headers(book: str, titles: Mapping[str, str]) -> str:
    """A kind of page for every chapter, with the book's and the chapter's title on top."""

    def quoted(text: str) -> str:
        return json.dumps(text, ensure_ascii=False).replace("<", "\\3c ")

    return "\n".join(
        f"#{key} {{ page: {key} }} @page {key} {{ @top-left {{ content: {quoted(book)} }} @top-right {{ content: {quoted(title)} }} }}"
        for key, title in titles.items()
    )


DOCUMENT = """<!DOCTYPE html>
<html lang="en" data-theme="light">
<head>
<meta charset="utf-8">
<title>{title}</title>
<meta name="author" content="{author}">
<style>
@font-face {{ font-family: Book; src: url("{fonts}/STIXGeneral.ttf"); }}
@font-face {{ font-family: Book; font-style: italic; src: url("{fonts}/STIXGeneralItalic.ttf"); }}
@font-face {{ font-family: Book; font-weight: bold; src: url("{fonts}/STIXGeneralBol.ttf"); }}
@font-face {{ font-family: Book; font-weight: bold; font-style: italic; src: url("{fonts}/STIXGeneralBolIta.ttf"); }}
@font-face {{ font-family: BookCode; src: url("{fonts}/DejaVuSansMono.ttf"); }}
@font-face {{ font-family: BookCode; font-weight: bold; src: url("{fonts}/DejaVuSansMono-Bold.ttf"); }}
{formulas}
{style}
</style>
</head>
<body>
{body}
</body>
</html>
"""
