"""What stands beside the pages for those who come from elsewhere, below the public address of the book.

* `index.html`: leads to the first page, and says of itself what that page says to a search engine or in a message;
* `404.html`: what GitHub Pages shows at an address that does not exist, at whatever depth;
* `sitemap.xml`: the addresses of all pages.
"""

import html
import re
from pathlib import Path

from sphinx.application import Sphinx

from bookkit.pages.catalogue import write_atomically
from bookkit.settings import settings

SAID = re.compile(
    r'<title>.*?</title>|<meta (?:name="(?:description|twitter:\w+)"|property="og:\w+")[^>]*>|<link rel="canonical"[^>]*>',
    re.DOTALL,
)
INDEX = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta http-equiv="Refresh" content="0; url={first}">
{said}
</head><body><p><a href="{first}">{title}</a></p></body></html>
"""
MISSING = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex"><meta name="color-scheme" content="light dark"><title>No such page: {title}</title>
</head><body style="max-width: 36rem; margin: 4rem auto; padding: 0 1rem; font: 1.1rem/1.6 system-ui, sans-serif">
<h1>No such page</h1>
<p>{title} has no page at this address. Begin at the <a href="{address}/">front page</a>, or search:</p>
<form action="{address}/search.html"><input type="search" name="q" aria-label="Search"> <button>Search</button></form>
</body></html>
"""


def sitemap(address: str, pages: list[str]) -> str:
    """The addresses of `pages`, names without `.html`, in their order."""
    rows = "".join(f"<url><loc>{html.escape(f'{address}/{page}.html')}</loc></url>\n" for page in pages)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n{rows}</urlset>\n'


def _write(app: Sphinx, exception: Exception | None) -> None:
    if exception is not None or app.builder.name != "html":
        return
    built, address, title = Path(app.outdir), settings().address, html.escape(app.config.html_title)
    first = f"{app.config.root_doc}.html"
    said = "\n".join(SAID.findall((built / first).read_text(encoding="utf-8")))
    write_atomically(built / "index.html", INDEX.format(said=said, first=first, title=title))
    write_atomically(built / "404.html", MISSING.format(address=address, title=title))
    write_atomically(built / "sitemap.xml", sitemap(address, sorted(app.env.found_docs)))


def setup(app: Sphinx) -> dict:
    """Register with Sphinx."""
    app.connect("build-finished", _write, priority=400)  # sphinx-external-toc writes an index.html where there is none
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
