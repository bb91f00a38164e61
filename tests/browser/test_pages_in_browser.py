"""One page of each kind, looked at by Chromium: on a phone in the dark, and then on a desktop in the light.

All pages as files: test_built_pages; the ledger: test_ledger. All faults of a page are told at once.
"""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser

from tests.browser import looks
from tests.browser.browsing import DESKTOP, PHONE, served, turned, visited

pytestmark = pytest.mark.browser

KINDS = {
    "title page": "book/preface.html",
    "story": "book/story.html",
    "explorer": "book/explorers/long_run.html",
    "notebook": "notebooks/single_head/02_two_steps.html",
    "notebook with wide tables": "notebooks/token_selection/09_a_fair_trial.html",
    "theory": "book/single_head_long_run_theory.html",
    "certified numbers": "notebooks/certified/01_certified.html",
    "notation": "book/notation.html",
    "map": "book/map.html",
    "reference": "book/reference/single_head.html",
    "lecture": "book/teaching.html",
    "bibliography": "book/bibliography.html",
}


@pytest.mark.parametrize("name", KINDS.values(), ids=KINDS)
def test_page(browser: Browser, address: str, name: str) -> None:
    with visited(browser, address, name, PHONE, "dark") as visit:
        phone = looks.loading(visit) + looks.sideways(visit) + looks.readable(visit, "dark")
        turned(visit, DESKTOP, "light")
        desktop = looks.sideways(visit) + looks.readable(visit, "light") + looks.centred(visit)
        desktop += looks.small_code(visit) + looks.uneven(visit)
        # The title page with its menus, which are alike everywhere.
        desktop += looks.accessible(visit, contrast=name == KINDS["title page"])
    assert (phone, desktop) == ([], [])


PAGE = """<!DOCTYPE html><html lang="en" data-theme="light"><head><meta charset="utf-8"><title>T</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">
<body style="background: #fff"><main class="bd-article"><h1>Title</h1><p>Text.</p>{fault}</main></body></html>"""
FAULTS = {
    '<script src="https://example.org/x.js"></script>': "asks another host: https://example.org/x.js",
    "<script>missing()</script>": "console: missing is not defined",
    '<img src="none.png" alt="nothing">': "broken picture",
    '<div style="width: 600px">wide</div>': "scrolls sideways by",
    '<p style="color: #888">pale</p>': "contrast 3.5",
    '<div style="background: #0005"><p style="color: #767676">pale</p></div>': "contrast 1.96",
    '<div class="math" style="display: flex" data-tex="x"><div class="formula"><b>x</b></div></div>': "formula -",
    '<div class="cell"><div class="cell_input"><pre style="font-size: 12px">x</pre></div></div>': "code of 12px",
    '<div class="cell"><div class="cell_input"><pre style="font-size: 14px">x</pre></div></div>': "88 letters do not fit",
    '<p>Text</p><div class="math" style="margin-top: 2em" data-tex="x"><math><mi>x</mi></math></div><p>Text</p>': "uneven room",
    "<script>document.body.style.background = '#222'</script>": "paper is rgb(34, 34, 34) in light mode",
    f'<img src="data:image/gif;base64,{"R0lGODlhAQABAAAAACwAAAAAAQABAAA="}">': "image-alt (critical)",
    '<div><table class="ledger" style="table-layout: fixed; width: 50px"><tr><td>longestword</td></tr></table></div>': "",
    '<div tabindex="0" style="overflow-x: auto"><div style="width: 600px">wide</div></div>': "",
}


def test_a_fault_is_found_and_nothing_else(browser: Browser, tmp_path: Path) -> None:
    with served(tmp_path) as url:
        for fault, expected in FAULTS.items():
            (tmp_path / "page.html").write_text(PAGE.replace("{fault}", fault), encoding="utf-8")
            with visited(browser, url, "page.html", PHONE) as visit:
                cut = looks.ledger_fits(visit)
                found = looks.loading(visit) + looks.sideways(visit) + looks.readable(visit, "light")
                found += looks.centred(visit) + looks.small_code(visit) + looks.uneven(visit) + looks.accessible(visit)
            assert bool(cut) == ("ledger" in fault)
            assert [line.startswith(expected) for line in found][:1] == ([True] if expected else []), (fault, found)


@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_rows_of_the_map_stand_apart_and_a_phone_reads_a_list(browser: Browser, address: str, viewport: dict) -> None:
    with visited(browser, address, "book/map.html", viewport) as visit:
        overlaps = """[...document.querySelectorAll('.book-map > li')].filter(row =>
          [...row.querySelectorAll('.map-claims a')].some(claim =>
            claim.getBoundingClientRect().bottom > row.getBoundingClientRect().bottom + 2)).map(row => row.id)"""
        assert visit.page.evaluate(overlaps) == []
        assert visit.page.locator(".map-arcs").first.is_visible() == (viewport is DESKTOP)
        box = visit.page.locator(".map-uses").first.bounding_box()
        assert box
        assert (box["width"] > 50) == (viewport is PHONE)


@pytest.mark.parametrize(
    ("name", "part", "width"),
    [
        ("book/map.html", ".map-box[data-source=derived] .map-title", 6),  # the filled square
        ("book/explorers/two_steps.html", "input[type=range]", 80),  # the track
    ],
)
def test_what_is_painted_as_a_background_is_seen_in_a_readers_own_colours(
    browser: Browser, address: str, name: str, part: str, width: int
) -> None:
    with visited(browser, address, name, forced_colors="active") as visit:
        visit.page.locator(part).first.scroll_into_view_if_needed()
        box = visit.page.locator(part).first.bounding_box()
        assert box
        middle = {"x": box["x"], "y": box["y"] + box["height"] / 2 - 2, "width": width, "height": 4}
        pixels = np.asarray(Image.open(io.BytesIO(visit.page.screenshot(clip=middle))).convert("L"))  # type: ignore[arg-type]
        assert (pixels.min(0) < 128).mean() > 0.8
