"""Old addresses lead to the new ones: a page for each row of the table `redirects` in `[tool.bookkit]`.

A page that joined another one keeps its place in bookmarks and papers. At its address stands a page that leads on: a link to read,
a refresh for the browser, the canonical address for search engines. A script keeps the mark behind `#`, for what moved as it was.
"""

import html
import posixpath
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.util import logging

from bookkit.pages.catalogue import write_atomically
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


def page(old: str, new: str, address: str = "") -> str:
    """What stands at `old` (a document's name) and leads to `new`, which may end in `#mark`; `address` is the published book's."""
    target, sign, mark = new.partition("#")
    path = f"{posixpath.relpath(target, posixpath.dirname(old) or '.')}.html"
    canonical = f"{address}/{target}.html" if address else path
    return PAGE.format(
        link=html.escape(path + sign + mark), canonical=html.escape(canonical), path=path, mark=sign + mark
    )


def _write(app: Sphinx, exception: Exception | None) -> None:
    """Write the pages. A warning, and no page, where a row leads nowhere or its page is still in the book."""
    if exception is not None or app.builder.name != "html":
        return
    told, built = settings(), Path(app.outdir)
    for old, new in told.redirects.items():
        target, _, mark = new.partition("#")
        if old in app.env.found_docs:
            logger.warning("redirects: %s is a page of the book; take its row out", old)
        elif target not in app.env.found_docs:
            logger.warning("redirects: %s leads to %s, which is no page of the book", old, target)
        elif mark and f' id="{mark}"' not in (built / f"{target}.html").read_text(encoding="utf-8"):
            logger.warning("redirects: %s leads to %s, which is no place on that page", old, new)
        else:
            path = built / f"{old}.html"
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, page(old, new, told.address))


def setup(app: Sphinx) -> dict:
    """Register with Sphinx."""
    app.connect(
        "build-finished", _write, priority=950
    )  # neither searched nor mended: behind everybody who reads built pages
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
