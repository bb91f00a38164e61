"""Old addresses lead to the new ones: a page for each row of the table `redirects` in `[tool.bookkit]`.

A page that joined another one keeps its place in bookmarks and papers. At its address stands a page that leads on: a link to read,
a refresh for the browser, the canonical address for search engines. A script keeps the mark behind `#`, for what moved as it was.

What left the book for the repository has the name of a file in the place of a document's.
"""

import html
import posixpath
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.util import logging

from bookkit.pages.catalogue import find_root, write_atomically
from bookkit.settings import settings

logger = logging.getLogger(__name__)

PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Refresh" content="0; url={link}">
<link rel="canonical" href="{canonical}">
<meta name="robots" content="noindex">
<title>Moved</title>
<script>location.replace({path!r} + (location.hash || {mark!r}))</script>
</head><body><p>This page moved: <a href="{link}">read it there</a>.</p></body></html>
"""


def page(path: str, mark: str, canonical: str) -> str:
    """A page that leads to `path`, and there to the `mark`, such as ``#box`` or nothing; `canonical` is the path's published address."""
    link = html.escape(path + mark)
    return PAGE.format(link=link, canonical=html.escape(canonical), path=path, mark=mark)


def _write(app: Sphinx, exception: Exception | None) -> None:
    """Write the pages. A warning, and no page, where a row leads nowhere or its page is still in the book."""
    if exception is not None or app.builder.name != "html":
        return
    told, built, root = settings(), Path(app.outdir), find_root()
    repository = app.config.html_theme_options.get("repository_url", "")
    for old, new in told.redirects.items():
        target, sign, mark = new.partition("#")
        if old in app.env.found_docs:
            logger.warning("redirects: %s is a page of the book; take its row out", old)
            continue
        if target in app.env.found_docs:
            if mark and f' id="{mark}"' not in (built / f"{target}.html").read_text(encoding="utf-8"):
                logger.warning("redirects: %s leads to %s, which is no place on that page", old, new)
                continue
            path = f"{posixpath.relpath(target, posixpath.dirname(old) or '.')}.html"
            text = page(path, sign + mark, f"{told.address}/{target}.html")
        elif (root / target).is_file():  # it left the book for the repository
            address = f"{repository}/blob/main/{target}"
            text = page(address, sign + mark, address)
        else:
            logger.warning("redirects: %s leads to %s, which is neither a page nor a file of the book", old, target)
            continue
        place = built / f"{old}.html"
        place.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(place, text)


def setup(app: Sphinx) -> dict:
    """Register with Sphinx."""
    app.connect(
        "build-finished", _write, priority=950
    )  # neither searched nor mended: behind everybody who reads built pages
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
