"""Light pages: what Sphinx and the theme write, mended after the pages are written. What is read on them does not change.

* pictures: the same pixels as lossless WebP, their place kept free, fetched when they come near (`bookkit.light.pictures`);
* scripts: none waits on the way to the text, those that nothing uses are left out: the theme's icons (1.5 MB) are masks in icons.css;
* figures: what is wide scrolls in itself on a phone.

Works on the built files, whoever wrote them, and a second time on pages that are light already.
"""

import re
import threading
from pathlib import Path, PurePosixPath

from sphinx.application import Sphinx
from sphinx.util import logging

from bookkit.light.pictures import lightened, place_pictures, remember

logger = logging.getLogger(__name__)

TAG = re.compile(r"[ \t]*<script\b([^>]*)>(.*?)</script>\n?", re.DOTALL)
MENU = re.compile(r'<ul class="list-caption">.*?</nav>', re.DOTALL)
# Scripts of the theme and of extensions that no page uses; sphinx_highlight.js marks the words of the last search on whatever page
# comes next, and forgets where the reader was on this one: it serves the search page alone.
UNUSED = ("fontawesome.js", "sphinx-thebe.js", "sphinx_highlight.js")
THEBE = re.compile(r"^\s*(const thebe|var thebe|kernelName = )", re.IGNORECASE)  # what only sets it up


def lighten(html: Path, cache: Path | None = None) -> None:
    """Rewrite all pages of the built book in the folder `html`. Raises ValueError in words for what is no picture.

    `cache`: a folder that keeps pictures as WebP by the hash of their PNG.
    """
    pictures = lightened(html / "_images", cache) if (html / "_images").is_dir() else {}
    options = html / "_static" / "documentation_options.js"
    settings = re.sub(r"\s+", " ", options.read_text(encoding="utf-8")).strip() if options.is_file() else ""
    for path in sorted(html.rglob("*.html")):
        if path.relative_to(html).parts[0] == "_static":
            continue
        page = path.read_text(encoding="utf-8")
        light = _mended(_framed(scripts(place_pictures(page, pictures), settings)))
        if light != page:
            path.write_text(light, encoding="utf-8", newline="\n")


def scripts(page: str, settings: str = "") -> str:
    """The page without scripts that nothing uses; files wait for the text, what is written in the page itself runs at once.

    `settings`: documentation_options.js on one line, into which inline scripts write.
    """
    page = re.sub(r'[ \t]*<link\b[^>]*(?:rel="preload" as="(?:script|font)"|/sphinx-thebe\.css)[^>]*>\n?', "", page)

    def kept(match: re.Match) -> str:
        attributes, body = match[1], match[2]
        source = re.search(r'\bsrc="([^"?]+)([^"]*)"', attributes)
        if source is None:
            return "" if THEBE.search(body) or "x-thebe" in attributes else match[0]
        if re.match(r"(?:[a-z][a-z+.-]*:|//)", source[1], re.IGNORECASE):
            return match[0]
        name = PurePosixPath(source[1]).name
        if name in UNUSED and not (name == "sphinx_highlight.js" and "searchtools.js" in page):
            return ""
        if name == "documentation_options.js" and settings:
            return f"    <script>{settings}</script>\n"
        if re.search(r"\b(defer|async|type=\"module\")", attributes):
            return match[0]
        return match[0].replace("<script", "<script defer", 1)

    return TAG.sub(kept, page)


# What has a <source> before it is shown panel by panel on a narrow screen; what is small fits.
WIDE = re.compile(
    r'(?<!class="wide-picture">)(?<!"stacked">)<img\b(?=[^>]*_images/)(?![^>]*small-picture)[^>]*\bwidth="(\d+)" height="(\d+)"[^>]*>'
)


def _framed(page: str) -> str:
    """What is wide scrolls on a phone."""

    def framed(match: re.Match) -> str:
        width, height = int(match[1]), int(match[2])
        wide = width >= 840 or (width >= 640 and width >= 2 * height)  # several panels: 6 px letters otherwise
        return f'<span class="wide-picture">{match[0]}</span>' if wide else match[0]

    return WIDE.sub(framed, page)


def _mended(page: str) -> str:
    """Faults of the theme."""
    # "Search Ctrl+K", "Show code cell source": who speaks to the computer says what is on the screen, and that is the name.
    page = re.sub(r'(<button class="btn search-button-field[^>]*?) title="Search" aria-label="Search"', r"\1", page)
    page = page.replace('<summary aria-label="Toggle hidden content">', "<summary>")
    # On a page that stands in no part, such as the first, all parts of the menu would be folded.
    if (menu := MENU.search(page)) and "<details open" not in menu[0]:
        page = page[: menu.start()] + menu[0].replace("<details>", '<details open="open">', 1) + page[menu.end() :]
    # What follows the reader's scrolling looks for contents that this theme does not have.
    return page.replace('data-bs-spy="scroll" data-bs-target=".bd-toc-nav" ', "")


def _cache(app: Sphinx) -> Path | None:
    """Where the book is built from a staged copy, the folder beside it lasts longer than one build."""
    source = Path(app.srcdir)
    return source.parent / "cache" / "pictures" if source.parent.name == "_build" else None


def _begin(app: Sphinx, *_: object) -> None:
    """Sphinx writes on one processor: another compresses the pictures of the pages meanwhile."""
    if (cache := _cache(app)) and app.builder.name == "html":
        pictures = Path(app.outdir).parent / "jupyter_execute"  # where myst-nb puts them
        app.compressing = threading.Thread(target=remember, args=(pictures, cache))
        app.compressing.start()


def _lighten(app: Sphinx, exception: Exception | None) -> None:
    if hasattr(app, "compressing"):
        app.compressing.join()
    if exception is not None or app.builder.name != "html":
        return
    try:
        lighten(Path(app.outdir), _cache(app))
    except ValueError as error:
        logger.warning("light pages: %s", error, type="attnlib", subtype="light")


def setup(app: Sphinx) -> dict:
    """Register with Sphinx."""
    app.add_js_file("light.js", loading_method="defer")
    app.connect("env-updated", _begin)
    app.connect("build-finished", _lighten, priority=900)  # when everybody has written
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
