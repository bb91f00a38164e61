"""Light pages: what a reader downloads, made small after Sphinx has written the pages. Nothing on them changes.

* styles: one sheet, without the rules that can apply nowhere (`light_styles`); icons as masks in it, so that the theme's
  icon script (1.5 MB) goes;
* pictures: the same pixels as lossless WebP, their place kept free, fetched when they come near (`light_pictures`);
* scripts: none waits on the way to the text, and each page has those it uses;
* formulas: MathJax is started by `book/assets/light.js` when the first one comes near, and only where there are any;
* files of the theme that no page refers to any more are removed.

Works on the built files, whoever wrote them, and a second time on pages that are light already.
"""

import re
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath

from sphinx.application import Sphinx
from sphinx.util import logging

from bookkit.light.pictures import lightened, place_pictures
from bookkit.light.styles import MENDED, icon_styles, merged, stamped, words_of

logger = logging.getLogger(__name__)

OWN_SCRIPT = "_static/light.js"
MATHJAX = "_static/mathjax/"
ICON_SCRIPT = "_static/scripts/fontawesome.js"
STYLES = PurePosixPath("_static/styles")
TAG = re.compile(r"[ \t]*<script\b([^>]*)>(.*?)</script>\n?", re.DOTALL)
SHEET = re.compile(r'[ \t]*<link\b(?=[^>]*\brel="stylesheet")[^>]*\bhref="([^":?]+)(?:\?[^"]*)?"[^>]*>\n?')

MENU = re.compile(r'<ul class="list-caption">.*?</nav>', re.DOTALL)
FORMULA = re.compile(r'\bclass="(?:[^"]* )?math(?: [^"]*)?"')
SOURCE_MAP = re.compile(r"^(?://# sourceMappingURL=.*|/\*# sourceMappingURL=.*\*/)$\n?", re.MULTILINE)


def _has_class(*names: str) -> Callable[[str], bool]:
    """Whether an element of a page has all these classes."""
    wanted = set(names)
    return lambda page: any(wanted <= set(found.split()) for found in re.findall(r'\bclass="([^"]*)"', page))


def _toggles(page: str) -> bool:
    return _has_class("toggle")(page) or _has_class("admonition", "dropdown")(page)


# Scripts of extensions, by file name, and what a page that uses them has. All others stay on every page.
USED_BY: dict[str, Callable[[str], bool]] = {
    "clipboard.min.js": lambda page: "<pre" in page,
    "copybutton.js": lambda page: "<pre" in page,
    "togglebutton.js": _toggles,
    "design-tabs.js": _has_class("sd-tab-set"),
    "fontawesome.js": lambda page: False,
    # It marks the words of the last search on whatever page comes next, and forgets where the reader was on this one.
    "sphinx_highlight.js": lambda page: "searchtools.js" in page,
    "sphinx-thebe.js": lambda page: False,
}
# Inline scripts that only set up one of these.
SETTINGS = {
    "togglebutton.js": re.compile(r"^\s*(let toggle(HintShow|HintHide|OpenOnPrint)|var togglebuttonSelector)\b"),
    "sphinx-thebe.js": re.compile(r"^\s*(const thebe|var thebe|kernelName = )", re.IGNORECASE),
}


class Book:
    """The built book in the folder `html`, and what its pages share."""

    def __init__(self, html: Path, cache: Path | None = None) -> None:
        self.html, self.cache = html.resolve(), cache
        found = sorted(path for path in html.rglob("*.html") if path.relative_to(html).parts[0] != "_static")
        self.pages = {path.relative_to(html).as_posix(): path.read_text(encoding="utf-8") for path in found}

    def lighten(self) -> None:
        """Rewrite all pages and remove what none of them needs any more. Raises ValueError in words."""
        pictures = lightened(self.html / "_images", self.cache) if (self.html / "_images").is_dir() else {}
        options = self.html / "_static" / "documentation_options.js"
        settings = _settings(options.read_text(encoding="utf-8")) if options.is_file() else ""
        light = {}
        for name, page in self.pages.items():
            light[name] = _mended(_framed(self._scripts(name, place_pictures(page, pictures), settings)))
        words = self._words(light)
        for name, page in light.items():
            page = self._styles(name, page, words)
            if page != self.pages[name]:
                (self.html / name).write_text(page, encoding="utf-8")
            self.pages[name] = page

    # --- scripts ----------------------------------------------------------------------------------------------------

    def _scripts(self, name: str, page: str, settings: str) -> str:
        """The page with the scripts it uses; files wait for the text, what is written in the page itself runs at once."""
        page = re.sub(r'[ \t]*<link rel="preload" as="script"[^>]*>\n?', "", page)
        unused = {file for file, used in USED_BY.items() if not used(page)}

        def kept(match: re.Match) -> str:
            attributes, body = match[1], match[2]
            source = re.search(r'\bsrc="([^"?]+)([^"]*)"', attributes)
            if source is None:
                gone = any(file in unused and setting.search(body) for file, setting in SETTINGS.items())
                return "" if gone or "x-thebe" in attributes else match[0]
            path = self._path(name, source[1])
            if path is None:
                return match[0]
            if PurePosixPath(path).name in unused:
                return ""
            if path == "_static/documentation_options.js" and settings:
                return f"    <script>{settings}</script>\n"  # later inline scripts write into it
            if path.startswith(MATHJAX):
                if not FORMULA.search(page):
                    return ""
                own = relpath(OWN_SCRIPT, PurePosixPath(name).parent)
                return f'    <script defer src="{own}" data-mathjax="{source[1]}"></script>\n'
            if re.search(r"\b(defer|async|type=\"module\")", attributes):
                return match[0]
            return match[0].replace("<script", "<script defer", 1)

        page = TAG.sub(kept, page)
        if OWN_SCRIPT not in page and "<head>" in page:
            if not (self.html / OWN_SCRIPT).is_file():
                raise ValueError(f"{OWN_SCRIPT} is missing: it is book/assets/light.js of the book")
            own = relpath(OWN_SCRIPT, PurePosixPath(name).parent)
            page = page.replace("</head>", f'    <script defer src="{own}"></script>\n  </head>', 1)
        return page

    def _path(self, name: str, address: str) -> str | None:
        """Where a relative address on page `name` leads, below the book's folder; None for another host."""
        if re.match(r"(?:[a-z][a-z+.-]*:|//)", address, re.IGNORECASE):
            return None
        return normpath(f"{PurePosixPath(name).parent}/{address}")

    # --- styles -----------------------------------------------------------------------------------------------------

    def _words(self, pages: dict[str, str]) -> frozenset[str]:
        """Names that a rule may be about: classes and ids of the pages, and every word of a script they load."""
        texts, scripts = [], set()
        for name, page in pages.items():
            texts += [
                found for pair in re.findall(r'\b(?:class|id)=(?:"([^"]*)"|\'([^\']*)\')', page) for found in pair
            ]
            texts += re.findall(r"--[\w-]+", page)  # properties read by a style attribute
            for attributes, body in TAG.findall(page):
                source = re.search(r'\bsrc="([^"?]+)', attributes)
                texts.append(body)
                if source and (path := self._path(name, source[1])):
                    scripts.add(self.html / path)
        return words_of([*texts, *(path.read_text(encoding="utf-8") for path in sorted(scripts) if path.is_file())])

    def _styles(self, name: str, page: str, words: frozenset[str]) -> str:
        """The page with one style sheet for all it had; pages with the same list share it."""
        found = [(match, self._path(name, match[1])) for match in SHEET.finditer(page)]
        sheets = [path for match, path in found if path and (self.html / path).is_file() and "media=" not in match[0]]
        if len(sheets) < 2:
            return page
        target = self._merged(tuple(sheets), words)
        link = f'    <link rel="stylesheet" href="{relpath(target, PurePosixPath(name).parent)}" />\n'

        def replaced(match: re.Match) -> str:
            nonlocal link
            if self._path(name, match[1]) not in sheets:
                return match[0]
            text, link = link, ""
            return text

        return SHEET.sub(replaced, page)

    def _merged(self, sheets: tuple[str, ...], words: frozenset[str]) -> str:
        made = self.__dict__.setdefault("_made", {})
        if sheets not in made:
            css = merged([self.html / sheet for sheet in sheets], STYLES / "book.css", self.html, words)
            icons = self.html / ICON_SCRIPT
            if icons.is_file():
                css += icon_styles(icons.read_text(encoding="utf-8"), words)
            css += MENDED
            path = STYLES / stamped(css)
            (self.html / path).write_text(css, encoding="utf-8")
            made[sheets] = path.as_posix()
        return made[sheets]


def _settings(script: str) -> str:
    """documentation_options.js on one line."""
    return re.sub(r"\s+", " ", script).strip()


WIDE = re.compile(r'(?<!class="wide-picture">)<img\b(?=[^>]*_images/)[^>]*\bwidth="(\d+)" height="(\d+)"[^>]*>')
FIGURE = re.compile(r"<figure\b([^>]*)>(?=((?:(?!</figure>).)*))", re.DOTALL)
SHADE = re.compile(r"\b(black|white|pale|paler|dark|darker|light|lighter)\b", re.IGNORECASE)


def _framed(page: str) -> str:
    """Figures as style sheets need them: what is wide scrolls on a phone; whose caption names a shade keeps it in the dark."""

    def framed(match: re.Match) -> str:
        width, height = int(match[1]), int(match[2])
        wide = width >= 840 or (width >= 640 and width >= 2 * height)  # several panels: 6 px letters otherwise
        return f'<span class="wide-picture">{match[0]}</span>' if wide else match[0]

    def marked(match: re.Match) -> str:
        caption = re.sub(r"<[^>]*>", " ", match[2].partition("<figcaption")[2])
        if not SHADE.search(caption) or "as-printed" in match[1]:
            return match[0]
        classes = re.sub(r'class="', 'class="as-printed ', match[1], count=1)
        return f"<figure{classes}>" if classes != match[1] else f'<figure class="as-printed"{match[1]}>'

    return FIGURE.sub(marked, WIDE.sub(framed, page))


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


def remove_unused(html: Path, pages: dict[str, str], own: set[str]) -> list[str]:
    """Remove theme files that neither a page nor what it loads names; return their paths. `own`: the book's, which stay."""
    static = html / "_static"
    files = {path.relative_to(static).as_posix(): path for path in static.rglob("*") if path.is_file()}
    theirs = {name: path for name, path in files.items() if name not in own}
    texts = {name: path.read_text("utf-8") for name, path in theirs.items() if path.suffix in (".css", ".js")}
    for name, text in texts.items():  # source maps go: the last line must not ask for them
        texts[name] = SOURCE_MAP.sub("", text)
        if texts[name] != text:
            theirs[name].write_text(texts[name], encoding="utf-8")
    # What pages name, what that names, and so on.
    used: set[str] = set()
    addresses = [found for page in pages.values() for found in re.findall(r'\b(?:src|href|data-\w+)="([^"]+)"', page)]
    naming = "\n".join([*set(addresses), *(files[name].read_text("utf-8") for name in own if name.endswith(".js"))])
    while True:
        named = set(re.findall(r"[\w.-]*\w", naming))
        new = {name for name in theirs.keys() - used if Path(name).name in named}
        if not new:
            break
        used |= new
        naming = "\n".join(texts.get(name, "") for name in new)
    for name in theirs.keys() - used:
        theirs[name].unlink()
    for folder in sorted(static.rglob("*"), reverse=True):
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
    return sorted(theirs.keys() - used)


def _lighten(app: Sphinx, exception: Exception | None) -> None:
    if exception is not None or app.builder.name != "html":
        return
    source, html = Path(app.srcdir), Path(app.outdir)
    # Where the book is built from a staged copy, the folder beside it lasts longer than one build.
    cache = source.parent / "cache" / "pictures" if source.parent.name == "_build" else None
    book = Book(html, cache)
    try:
        book.lighten()
    except ValueError as error:
        logger.warning("light pages: %s", error, type="attnlib", subtype="light")
        return
    assets = source / "book" / "assets"
    own = {path.relative_to(assets).as_posix() for path in assets.rglob("*") if path.is_file()}
    # Own style sheets are in the merged one.
    own = {name for name in own if not name.endswith(".css") and (html / "_static" / name).is_file()}
    remove_unused(html, book.pages, own)


def setup(app: Sphinx) -> dict:
    """Register with Sphinx."""
    app.connect("build-finished", _lighten, priority=900)  # when everybody has written
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
