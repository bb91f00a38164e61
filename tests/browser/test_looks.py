"""The checks themselves: each finds its fault on a page made to have it, and none on the page without."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.browser import looks
from tests.browser.browsing import PHONE, served, visited

pytestmark = pytest.mark.browser

PAGE = """<!DOCTYPE html><html lang="en" data-theme="light"><head><meta charset="utf-8"><title>T</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,"></head>
<body style="background: #fff"><main class="bd-article"><h1>Title</h1><p>Text.</p>{fault}</main></body></html>"""

FAULTS = {
    "none": ("", ""),
    "outside": ('<script src="https://example.org/x.js"></script>', "asks another host: https://example.org/x.js"),
    "exception": ("<script>missing()</script>", "console: missing is not defined"),
    "console": ("<script>console.error('oh')</script>", "console: oh"),
    "picture": ('<img src="none.png" alt="nothing">', "broken picture"),
    "wide": ('<div style="width: 600px">wide</div>', "scrolls sideways by"),
    "wide in a box": ('<div tabindex="0" style="overflow-x: auto"><div style="width: 600px">wide</div></div>', ""),
    "ledger cut": (
        '<div tabindex="0" style="overflow: auto"><table class="ledger" style="width: 600px"><tr><td>x</td></tr></table></div>',
        "600 px in 374 px",
    ),
    "ledger cell cut": (
        '<div><table class="ledger" style="table-layout: fixed; width: 80px"><tr><td>longestwordofall</td></tr></table></div>',
        "1",
    ),
    "ledger whole": ('<div><table class="ledger"><tr><td>x</td></tr></table></div>', ""),
    "pale": ('<p style="color: #888">pale</p>', "contrast 3.5"),
    "pale on half a tint": (
        '<div style="background: #0005"><p style="color: #767676">pale</p></div>',
        "contrast 1.96 of",
    ),
    "dark paper": (
        "<script>document.body.style.background = '#222'</script>",
        "paper is rgb(34, 34, 34) in light mode",
    ),
    "theme": (
        "<script>document.documentElement.dataset.theme = 'dark'</script>",
        "theme is 'dark', the reader's is 'light'",
    ),
    "no alternative": (
        f'<img src="data:image/gif;base64,{"R0lGODlhAQABAAAAACwAAAAAAQABAAA="}">',
        "image-alt (critical)",
    ),
}


@pytest.fixture(scope="module")
def fault_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("faults")
    for name, (fault, _) in FAULTS.items():
        (folder / f"{name}.html").write_text(PAGE.replace("{fault}", fault), encoding="utf-8")
    with served(folder) as url:
        yield url


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_and_nothing_else(browser: Browser, fault_address: str, name: str) -> None:
    _, expected = FAULTS[name]
    with visited(browser, fault_address, f"{name}.html", PHONE) as visit:
        found = looks.loading(visit) + looks.sideways(visit)
        found += looks.ledger_fits(visit)
        found += looks.readable(visit, "light") + looks.accessible(visit)
    if expected:
        assert any(line.startswith(expected) for line in found), found
    else:
        assert found == []
