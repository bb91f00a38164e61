"""Light pages: pictures as lossless WebP that are fetched when they come near, and no script that no page uses.

A page says how large its pictures are, so it keeps their places free. A figure of several panels, or one that is twice as wide
as high, scrolls in itself on a phone. The theme's icons (1.5 MB of script) are masks in icons.css: `book/templates` leaves them out.
"""

import hashlib
import os
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from docutils import nodes
from PIL import Image
from sphinx.application import Sphinx

from bookkit import drawn

# sphinx_highlight.js marks the words of the last search on whatever page comes next, and forgets where the reader was on this one.
UNUSED = ("thebe", "sphinx_highlight.js")
MENU = re.compile(r'<ul class="list-caption">.*?</nav>', re.DOTALL)
# Before the theme's first script. A browser that lets no page keep anything, and a page in another's frame, raise an error wherever
# the theme asks what is kept: its menus, its search and its light would be dead. What is kept is then forgotten with the page.
STORAGE = """<script>
    for (const name of ["localStorage", "sessionStorage"]) {
      try { window[name].length } catch {
        const kept = new Map();
        Object.defineProperty(window, name, { value: {
          getItem: (key) => kept.get(key) ?? null, setItem: (key, value) => kept.set(key, value), removeItem: (key) => kept.delete(key),
        } });
      }
    }
  </script>
  """
NEAR_THE_TOP = 4000  # characters of HTML into the article: what is seen first


@dataclass(frozen=True)
class Picture:
    """A picture of the built book: file name, both sides in pixels, and whether it has panels beside each other."""

    name: str
    width: int
    height: int
    panels: bool = False


def as_webp(cache: Path, path: Path) -> Picture:
    """Write a PNG as lossless WebP beside it and remove the PNG. `cache` keeps the WebP files by the hash of their PNG."""
    kept = cache / f"{hashlib.sha256(path.read_bytes()).hexdigest()}.webp"
    with Image.open(path) as image:
        found = drawn.read(image) or {}
        made = Picture(f"{path.stem}.webp", *image.size, sum(name.startswith("panel ") for name in found) > 1)
        if not kept.is_file():
            # Two pictures of a book may be one, and two builds may meet here: each writes a file of its own.
            half = kept.with_name(f"{kept.stem}-{os.getpid()}-{path.stem}.half")
            opaque = image.mode == "RGBA" and image.getextrema()[3] == (255, 255)
            pixels = image.convert("RGB") if opaque else image
            pixels.save(half, "WEBP", lossless=True, exact=True, quality=75, method=1)
            half.replace(kept)
    shutil.copyfile(kept, path.with_suffix(".webp"))
    path.unlink()
    return made


def place_pictures(page: str, pictures: dict[str, Picture]) -> str:
    """The page's HTML with the new names and the sides of its pictures. The first picture of a page is not put off."""
    seen = 0

    def placed(match: re.Match) -> str:
        nonlocal seen
        tag, source = match[0], re.search(r'src="[^"]*?_images/([^"/?]+)', match[0])
        if source is None or source[1] not in pictures:
            return _with(tag, ' loading="lazy"')
        picture, seen = pictures[source[1]], seen + 1
        stated = re.search(r'\bwidth(?:="|:\s*)([\d.]+)', tag)
        width = round(float(stated[1])) if stated else picture.width
        height = round(width * picture.height / picture.width)
        added = f' width="{width}" height="{height}"'
        near = seen == 1 and match.start() - page.find("<article") < NEAR_THE_TOP
        tag = _with(tag, added + (' fetchpriority="high"' if near else ' loading="lazy"'))
        wide = width >= 640 and (picture.panels or width >= 2 * height) and "small-picture" not in tag
        return f'<span class="wide-picture">{tag}</span>' if wide else tag

    page = re.sub(r"<img\b[^>]*>", placed, page)
    return re.sub(
        r'(_images/)([^"/?]+\.png)', lambda m: m[1] + (pictures[m[2]].name if m[2] in pictures else m[2]), page
    )


def _with(tag: str, attributes: str) -> str:
    """The tag with the attributes that it does not have yet."""
    known = set(re.findall(r"\s([\w-]+)=", tag))
    new = [each for each in attributes.split() if each.partition("=")[0] not in known]
    return f"{tag.rstrip('/> ')} {' '.join(new)}>"


def mended(page: str) -> str:
    """Faults of the theme."""
    # "Search Ctrl+K", "Show code cell source": who speaks to the computer says what is on the screen, and that is the name.
    page = re.sub(r'(<button class="btn search-button-field[^>]*?) title="Search" aria-label="Search"', r"\1", page)
    page = page.replace('<summary aria-label="Toggle hidden content">', "<summary>")
    page = page.replace('<script data-cfasync="false">', f'{STORAGE}<script data-cfasync="false">', 1)
    # On a page that stands in no part, such as the first, all parts of the menu would be folded.
    if (menu := MENU.search(page)) and "<details open" not in menu[0]:
        page = page[: menu.start()] + menu[0].replace("<details>", '<details open="open">', 1) + page[menu.end() :]
    # What follows the reader's scrolling looks for contents that this theme does not have.
    return page.replace('data-bs-spy="scroll" data-bs-target=".bd-toc-nav" ', "")


def leave_out(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None) -> None:
    """Scripts of extensions that this page does not use."""
    unused = UNUSED[:1] if page == "search" else UNUSED
    scripts = {
        file: f"{file.filename} {file.attributes.get('body')}".lower() for file in context.get("script_files", ())
    }
    context["script_files"] = [file for file, text in scripts.items() if not any(name in text for name in unused)]


def lighten(app: Sphinx, exception: Exception | None) -> None:
    """Rewrite what Sphinx has written. The folder beside a staged copy of the sources lasts longer than one build."""
    if exception is not None or app.builder.name != "html":
        return
    html, work = Path(app.outdir), Path(app.srcdir).parent
    cache = (work if work.name == "_build" else Path(app.doctreedir)) / "cache" / "pictures"
    cache.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(2) as pool:  # Pillow lets go of the interpreter while it compresses
        paths = sorted((html / "_images").glob("*.png"))
        pictures = {path.name: made for path, made in zip(paths, pool.map(partial(as_webp, cache), paths), strict=True)}
    for path in html.rglob("*.html"):
        if path.relative_to(html).parts[0] != "_static":
            page = path.read_text(encoding="utf-8")
            path.write_text(mended(place_pictures(page, pictures)), encoding="utf-8", newline="\n")


def setup(app: Sphinx) -> dict:
    """Register with Sphinx."""
    app.add_js_file("light.js", loading_method="defer")
    app.connect("html-page-context", leave_out, priority=900)  # when extensions have added theirs
    app.connect("build-finished", lighten, priority=900)  # when everybody has written
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
