"""Lighthouse over the kinds of page: accessible, without faults of craft, and nothing jumps. No clock is read here.

How fast the pages are is measured by `make bench`: it depends on the machine.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.browsing import HTML, served
from tests.browser.lighthouse import MISSING, PAGES, machine_can, measured

pytestmark = pytest.mark.browser

LEAST = {"accessibility": 95, "best-practices": 95}
SHIFT = 0.1  # largest layout shift of the first view that web.dev calls good

PAGE = """<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>T</title><link rel="icon" href="data:,">
<meta name="description" content="A page"><meta name="viewport" content="width=device-width, initial-scale=1"></head>
<body><main><h1>Title</h1>{fault}
<p style="font-size: 4rem">Text that stands below, and is large enough to be seen when it moves.</p></main></body></html>"""
FAULTS = {
    "none": "",
    "no alternative": f'<img src="data:image/gif;base64,{"R0lGODlhAQABAAAAACwAAAAAAQABAAA="}" width="9" height="9">',
    "a jump": """<div id="late"></div><script>
      addEventListener("load", () => requestAnimationFrame(() => requestAnimationFrame(() => { late.style.height = "400px" })))
    </script>""",
    "an error": "<script>missing()</script>",
}


def faults(run: dict) -> list[str]:
    """What a page falls short of, in words."""
    found = [f"{kind} {run['scores'][kind]} < {least}" for kind, least in LEAST.items() if run["scores"][kind] < least]
    shift = run["metrics"]["cumulative-layout-shift"]
    return found + ([f"layout shift {shift:.3f} > {SHIFT}"] if shift > SHIFT else [])


@pytest.fixture(scope="module")
def fault_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("lighthouse")
    for name, fault in FAULTS.items():
        (folder / f"{name.replace(' ', '-')}.html").write_text(PAGE.replace("{fault}", fault), encoding="utf-8")
    with served(folder) as url:
        yield url


# One test, one Chromium: the pages of the book, and pages made to have a fault each.
def test_lighthouse(browser: object, address: str, fault_address: str) -> None:
    if not machine_can():
        if os.environ.get("CI"):
            pytest.fail(MISSING)
        pytest.skip(MISSING)
    missing = [name for name in PAGES.values() if not (HTML / name).is_file()]
    assert missing == [], "not in the built book"
    made = {name: f"{fault_address}/{name.replace(' ', '-')}.html" for name in FAULTS}
    runs = measured([*(f"{address}/{name}" for name in PAGES.values()), *made.values()], "craft")
    book, planted = runs[: len(PAGES)], dict(zip(FAULTS, runs[len(PAGES) :], strict=True))
    told = {name: faults(run) for name, run in planted.items()}
    assert told["none"] == []
    assert [line.split()[0] for line in told["no alternative"]] == ["accessibility"]
    assert [line.split()[0] for line in told["a jump"]] == ["layout"]
    assert "errors-in-console" in str(planted["an error"]["failed"])
    assert [f"{run['url']}: {found} {run['failed']}" for run in book if (found := faults(run))] == []
    assert [run["url"] for run in book if "errors-in-console" in str(run["failed"])] == []
