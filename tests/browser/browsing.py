"""The built book in the machine's own Chromium: find it, serve the book on this machine only, open pages."""

import gzip
import io
import os
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import BinaryIO

from playwright.sync_api import Browser, Page, Route, sync_playwright

# Another folder can be looked at: BOOK_HTML=path/to/html pytest tests/browser
HTML = Path(os.environ.get("BOOK_HTML", Path(__file__).parents[2] / "_build" / "html")).resolve()
PHONE, DESKTOP = {"width": 390, "height": 844}, {"width": 1360, "height": 900}
TEXTS = {".html", ".css", ".js", ".json", ".svg"}  # what is sent compressed
MISSING = (
    "no Chromium on this machine: `sudo apt-get install chromium` (or chromium-browser, google-chrome), then again"
)
ARGUMENTS = [
    "--no-sandbox",  # tests run as root in containers
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


def chromium() -> str | None:
    """Path of the system's Chromium, or None."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def page_names(html: Path = HTML) -> list[str]:
    """All pages of the built book, as paths below `html`; without redirects, indices and the theme's own files."""
    found = [path.relative_to(html) for path in sorted(html.rglob("*.html"))]
    # A redirect has no content; the indices hold nothing but links made by Sphinx.
    aside = {"genindex.html", "search.html", "prf-prf.html"}
    return [
        name.as_posix()
        for name in found
        if not name.parts[0].startswith("_")
        and name.as_posix() not in aside
        and 'http-equiv="Refresh"' not in (html / name).read_text(encoding="utf-8")[:500]
    ]


@contextmanager
def served(html: Path = HTML) -> Iterator[str]:
    """Serve `html` on a free port of 127.0.0.1, texts compressed as static hosts send them; gives the address."""

    class Quiet(SimpleHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *arguments: object) -> None:
            pass

        def send_head(self) -> io.BytesIO | BinaryIO | None:
            path = Path(self.translate_path(self.path))
            if path.suffix not in TEXTS or not path.is_file() or "gzip" not in self.headers.get("Accept-Encoding", ""):
                return super().send_head()
            data = gzip.compress(path.read_bytes(), 6, mtime=0)
            self.send_response(200)
            self.send_header("Content-Type", self.guess_type(str(path)))
            self.send_header("Content-Encoding", "gzip")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            return io.BytesIO(data)

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            # A page that is closed while a picture is still loading hangs up; anything else is worth a traceback.
            if not isinstance(sys.exception(), ConnectionError):
                super().handle_error(request, client_address)

    with Server(("127.0.0.1", 0), partial(Quiet, directory=str(html))) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@contextmanager
def launched() -> Iterator[Browser]:
    """A headless Chromium. Raises FileNotFoundError where there is none."""
    path = chromium()
    if path is None:
        raise FileNotFoundError(MISSING)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield browser
        browser.close()


PATIENCE = 120_000  # ms. A guard against what never comes, on a machine however busy; no test measures speed by it.


class Visit:
    """One page opened in a fresh context, with what went wrong on the way: `outside` requests and `errors`."""

    def __init__(self, page: Page, outside: list[str], errors: list[str]) -> None:
        self.page, self.outside, self.errors = page, outside, errors


@contextmanager
def visited(
    browser: Browser, address: str, name: str, viewport: dict = DESKTOP, scheme: str = "light"
) -> Iterator[Visit]:
    """Open page `name`. Requests to other hosts are recorded and cut. `address` may be `file://` and a folder."""
    context = browser.new_context(viewport=viewport, color_scheme=scheme)
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    outside: list[str] = []
    errors: list[str] = []

    def watch(route: Route) -> None:
        url = route.request.url
        if url.startswith((f"{address}/", "data:", "blob:")):
            route.continue_()
        else:
            outside.append(url)
            route.abort()

    context.route("**/*", watch)
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    try:
        page.goto(f"{address}/{name}", wait_until="load")
        page.evaluate("document.fonts.ready.then(() => true)")
        yield Visit(page, outside, errors)
    finally:
        context.close()


def turned(visit: Visit, viewport: dict, scheme: str) -> None:
    """Look at an open page in another window and another colour scheme; waits until it has followed."""
    visit.page.set_viewport_size(viewport)
    visit.page.emulate_media(color_scheme=scheme)
    visit.page.wait_for_function("scheme => document.documentElement.dataset.theme === scheme", arg=scheme)
