"""The built book in Chromium: serve it on this machine only, open its pages."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from playwright.sync_api import Browser, Page, Request

# Another folder can be looked at: BOOK_HTML=path/to/html pytest tests/browser
HTML = Path(os.environ.get("BOOK_HTML", Path(__file__).parents[2] / "_build" / "html")).resolve()
PHONE, DESKTOP = {"width": 390, "height": 844}, {"width": 1360, "height": 900}
PATIENCE = 120_000  # ms. A guard against what never comes, on a machine however busy; no test measures speed by it.


@contextmanager
def served(html: Path = HTML) -> Iterator[str]:
    """Serve `html` on a free port of 127.0.0.1; gives the address."""

    class Quiet(SimpleHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(html))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@dataclass(frozen=True)
class Visit:
    """An open page, with what went wrong on the way: requests to other hosts, which the browser never finds, and errors."""

    page: Page
    outside: list[str]
    errors: list[str]


@contextmanager
def visited(
    browser: Browser, address: str, name: str, viewport: dict = DESKTOP, scheme: str = "light", **options: bool
) -> Iterator[Visit]:
    """Open page `name` in a fresh context with these `options`. `address` may be `file://` and a folder."""
    context = browser.new_context(viewport=viewport, color_scheme=scheme, **options)
    context.set_default_timeout(PATIENCE)
    visit = Visit(context.new_page(), [], [])

    def watch(request: Request) -> None:
        if not request.url.startswith((f"{address}/", "data:", "blob:")):
            visit.outside.append(request.url)

    context.on("request", watch)  # to hold each request and let it go costs a tenth of the stage
    visit.page.on("console", lambda message: visit.errors.append(message.text) if message.type == "error" else None)
    visit.page.on("pageerror", lambda error: visit.errors.append(str(error)))
    try:
        visit.page.goto(f"{address}/{name}", wait_until="load")
        if options.get("java_script_enabled", True):
            visit.page.evaluate("document.fonts.ready.then(() => true)")
        yield visit
    finally:
        context.close()


def turned(visit: Visit, viewport: dict, scheme: str) -> None:
    """Look at an open page in another window and another colour scheme; waits until it has followed."""
    visit.page.set_viewport_size(viewport)
    visit.page.emulate_media(color_scheme=scheme)
    visit.page.wait_for_function("scheme => document.documentElement.dataset.theme === scheme", arg=scheme)
