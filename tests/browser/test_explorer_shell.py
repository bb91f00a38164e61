"""What all explorers share, driven in Chromium on a sample that has one of everything: `tests/explorers/sample_view.js`."""

import math
import shutil
import subprocess
from base64 import b64decode
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from attnbook.explorers.__main__ import script
from bookkit.sphinx.explorer_pages import COMING, NEAR
from tests.browser import looks
from tests.browser.browsing import PHONE, served, visited
from tests.browser.exploring import Explorer, explored
from tests.explorers.node import ROOT, need_node
from tests.test_sphinx_extension import PIXEL

pytestmark = pytest.mark.browser

NAME = "book/explorers/sample.html"
PAGE = """<!DOCTYPE html><html lang="en" data-theme="light"><head><meta charset="utf-8"><title>Sample</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">
<link rel="stylesheet" href="../../book.css"><link rel="stylesheet" href="../../explorers.css">
<style>* {{ box-sizing: border-box }} body {{ background: var(--book-paper); color: var(--book-ink); margin: 1rem }}</style>
<script>if (matchMedia("(prefers-color-scheme: dark)").matches) document.documentElement.dataset.theme = "dark"</script>
<script defer src="../../sample_data.js"></script><script defer src="../../sample.js"></script></head>
<body class="bd-main"><div class="bd-content"><div class="bd-article-container"><main class="bd-article"><h1>Sample</h1>
<div class="explorer" data-explorer="sample">{coming}<div class="explorer-still"><img src="still.png" alt="a still picture"
 width="200" height="100" loading="lazy"><p class="explorer-still-note">Where scripts run, this picture moves.</p></div></div>
</main></div></div></body></html>"""

# The same within a page of text, five screens down, as `explorer_pages` writes it.
WITHIN = "notebooks/part/page.html"
PLACE = """<p style="height: 500vh">text</p><div class="explorer" data-explorer="sample" data-page="../../book/explorers/sample.html"
 data-scripts="../../sample_data.js ../../sample.js">{near}<div class="explorer-still">
<img src="../../book/explorers/still.png" alt="a still picture" width="200" height="100" loading="lazy"></div>
<p class="explorer-more"></p></div></main></div></div></body></html>"""

# Where a path's points lie in data, on linear axes.
POINTS = """(path, [low, high, bottom, top]) => {
  const rect = path.ownerSVGElement.querySelector("clipPath rect"), size = name => rect[name].baseVal.value - 2;
  return path.getAttribute("d").match(/-?[\\d.]+,-?[\\d.]+/g).map(pair => pair.split(",").map(Number))
    .map(([x, y]) => [low + (high - low) * x / size("width"), top + (bottom - top) * y / size("height")]);
}"""

# The colour at shares of a plot's width and height.
COLOUR = """(canvas, [across, down]) => {
  const rect = canvas.parentNode.querySelector("clipPath rect"), ratio = canvas.width / canvas.clientWidth;
  const at = canvas.parentNode.querySelector("svg > g").transform.baseVal.getItem(0).matrix;
  const x = at.e + (rect.width.baseVal.value - 2) * across, y = at.f + (rect.height.baseVal.value - 2) * down;
  return [...canvas.getContext("2d").getImageData(x * ratio, y * ratio, 1, 1).data];
}"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    node, made = need_node(), tmp_path_factory.mktemp("shell")
    view = "tests/explorers/sample_view.js"
    build = [node, "book/scripts/build.mjs", "--from", view, "--to", str(made / "sample.js")]
    subprocess.run(build, cwd=ROOT, check=True)
    (made / "sample_data.js").write_text(script("sample", {"offset": 7.25}), encoding="utf-8")
    for name in ("book.css", "explorers.css"):
        shutil.copy(ROOT / "book" / "assets" / name, made / name)
    shutil.copytree(ROOT / "book" / "assets" / "fonts", made / "fonts")
    (made / NAME).parent.mkdir(parents=True)
    (made / NAME).write_text(PAGE.format(coming=COMING), encoding="utf-8")
    (made / NAME).with_name("still.png").write_bytes(b64decode(PIXEL))
    head, end = PAGE[: PAGE.index("<script defer")], PAGE[PAGE.index("</head>") : PAGE.index('<div class="explorer"')]
    (made / WITHIN).parent.mkdir(parents=True)
    (made / WITHIN).write_text(f"{head}{end}".format() + PLACE.format(near=NEAR), encoding="utf-8")
    return made


@pytest.fixture(scope="module")
def site(folder: Path) -> Iterator[str]:
    with served(folder) as url:
        yield url


def test_what_is_set_is_shown_and_kept_in_the_address(browser: Browser, site: str) -> None:
    with explored(browser, site, "sample") as explorer:
        assert explorer.values() == pytest.approx({"product": 0.4, "offset": 7.25, "small": 2e-7}, rel=1e-12)
        assert explorer.root.locator('output[data-key="small"]').inner_text() == "2×10⁻⁷"
        assert explorer.sentence().split() == ["harmful", "The", "noise", "wins."]
        explorer.press_slider("noise", "ArrowLeft", 3)
        assert explorer.values()["product"] == pytest.approx(4 * 0.07, rel=1e-12)
        explorer.press_slider("noise", "End")
        explorer.press_slider("strength", "End")
        assert (explorer.setting("noise"), explorer.setting("strength")) == (0.45, 100)
        assert explorer.sentence().split()[0] == "benign"
        explorer.choose("rule", "2")
        assert explorer.values()["offset"] == pytest.approx(107.25)
        explorer.control("shown").locator("input").press(" ")
        explorer.page.wait_for_function("location.hash.includes('shown=0')")
        assert explorer.plot("curve").locator('path[data-key="two"]').count() == 0
        asked = explorer.page.evaluate("location.hash.slice(1).split('&').sort()")
        assert asked == ["noise=0.45", "rule=2", "shown=0", "strength=100"]
        command = explorer.root.locator(".explorer-command code").inner_text()
        assert command == "python -m attnlib rerun sample n=200 noise=0.45"
        explorer.press("Reset")
        assert explorer.values()["product"] == pytest.approx(0.4, rel=1e-12)
        explorer.page.wait_for_function("location.hash === ''")
        assert explorer.visit.errors == explorer.visit.outside == []


NONSENSE = [
    ("strength", "abc", "strength ρ: expected a number from 0.1 to 100; got “abc”. 4 stays in force."),
    ("strength", "", "strength ρ: expected a number from 0.1 to 100; got nothing. 4 stays in force."),
    ("strength", "0.0999", "strength ρ: expected a number from 0.1 to 100; got “0.0999”. 4 stays in force."),
    ("noise", "Infinity", "noise η: expected a number from 0 to 0.45; got “Infinity”. 0.1 stays in force."),
    ("n", "20.5", "samples n: expected a whole number from 10 to 100,000; got “20.5”. 200 stays in force."),
]


def test_nonsense_is_answered_and_the_last_good_value_stays(browser: Browser, site: str) -> None:
    with explored(browser, site, "sample") as explorer:
        before = explorer.values()
        for key, text, sentence in NONSENSE:
            explorer.type(key, text)
            assert explorer.control(key).get_by_role("alert").inner_text() == sentence
            assert explorer.control(key).locator("input[type=text]").get_attribute("aria-invalid") == "true"
            assert explorer.values() == before
        explorer.type("strength", " 2.5e1 ")
        assert (explorer.complaint("strength"), explorer.values()["product"]) == ("", 2.5)
        explorer.control("noise").locator("input[type=text]").press("Escape")
        assert (explorer.setting("noise"), explorer.complaint("noise")) == (0.1, "")
        explorer.type("n", "11")
        reason = "There is no picture for these settings: eleven samples are too few. Change a setting or press Reset."
        assert (explorer.trouble(), explorer.plot("map").is_visible()) == (reason, False)
        explorer.type("n", "12")
        assert (explorer.trouble(), explorer.plot("map").is_visible()) == ("", True)


def test_a_link_shows_the_same_picture_and_a_wrong_link_is_answered(browser: Browser, site: str) -> None:
    wrong = {"strength": 12.5, "noise": "much", "n": 9, "rule": "third", "shown": 0}
    with explored(browser, site, "sample", **wrong) as explorer:
        assert explorer.values()["product"] == pytest.approx(1.25)
        assert [explorer.setting(key) for key in ("noise", "n", "rule", "shown")] == [0.1, 200, "1", False]
        assert "In the address: noise η: expected a number from 0 to 0.45; got “much”" in explorer.complaint("noise")
        assert "whole number from 10 to 100,000; got “9”" in explorer.complaint("n")
        assert explorer.complaint("rule") == "In the address: rule: expected one of 1, 2; got “third”."
        explorer.page.evaluate("location.hash = '#strength=2&noise=0.2'")
        explorer.page.wait_for_function("document.querySelector('[data-key=product]').dataset.number === '0.4'")
        explorer.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        explorer.press("Copy link")
        explorer.page.wait_for_function("document.querySelector('.explorer-note').textContent.startsWith('Copied')")
        copied = explorer.page.evaluate("navigator.clipboard.readText()")
        assert copied == f"{site}/{NAME}#strength=2&noise=0.2&shown=0"


@pytest.mark.parametrize(
    ("file", "body", "state"),
    [
        ("sample_data.js", "this is no script", "no-data"),
        ("sample_data.js", "window.attentionCheckedData = {};", "no-data"),
        ("sample.js", "what an old browser ~~> cannot read", None),
        ("", "", None),  # no scripts at all
    ],
)
def test_where_it_cannot_live_the_still_picture_stays(
    browser: Browser, site: str, file: str, body: str, state: str | None
) -> None:
    with visited(browser, site, NAME, PHONE, java_script_enabled=bool(file)) as visit:
        if file:
            visit.page.route(f"**/{file}", lambda route: route.fulfill(body=body))
            visit.page.reload(wait_until="load")
        explorer = Explorer(visit, "sample")
        for part in ("img", ".explorer-still-note"):
            assert explorer.root.locator(f".explorer-still {part}").is_visible()
        assert explorer.root.locator(".explorer-live").count() == 0
        assert explorer.root.get_attribute("data-state") == state
        told = "The data of this explorer did not arrive (the file sample.js" if state else ""
        assert explorer.trouble().startswith(told)


@pytest.mark.parametrize("on_disk", [False, True])
def test_within_a_page_it_lives_when_it_comes_near(browser: Browser, site: str, folder: Path, on_disk: bool) -> None:
    address = f"file://{folder}" if on_disk else site
    with visited(browser, address, f"{WITHIN}#strength=2") as visit:
        explorer = Explorer(visit, "sample")
        assert explorer.page.locator("script[src]").count() == 0
        assert explorer.root.get_attribute("data-state") is None
        explorer.page.evaluate("scrollTo(0, 4.5 * innerHeight)")  # half a screen above it
        explorer.page.wait_for_selector("[data-state=live][data-drawn]", state="attached")
        assert "is-coming" not in explorer.root.get_attribute("class").split()
        assert explorer.values()["product"] == pytest.approx(0.4, rel=1e-12)  # the page's address is its own
        explorer.press_slider("strength", "End")
        explorer.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        explorer.press("Copy link")
        said = explorer.root.locator(".explorer-note")
        explorer.page.wait_for_function("document.querySelector('.explorer-note').textContent")
        link = f"{address}/{NAME}#strength=100"
        assert link in said.inner_text() or explorer.page.evaluate("navigator.clipboard.readText()") == link
        assert explorer.page.url == f"{address}/{WITHIN}#strength=2"
        assert not explorer.root.locator(".explorer-still").is_visible()
        order = explorer.root.evaluate("root => [...root.children].map(node => node.className).slice(-2)")
        assert order == ["explorer-live", "explorer-more"]
        explorer.page.emulate_media(media="print")
        assert explorer.root.locator(".explorer-still img").is_visible()
        assert visit.errors == []


def test_within_a_page_the_still_picture_stays_without_scripts(browser: Browser, site: str) -> None:
    with visited(browser, site, WITHIN, PHONE, java_script_enabled=False) as visit:
        picture = Explorer(visit, "sample").root.locator(".explorer-still img")
        picture.scroll_into_view_if_needed()
        assert picture.is_visible()
    with visited(browser, site, WITHIN) as visit:
        visit.page.route("**/sample.js", lambda route: route.abort())
        visit.page.evaluate("scrollTo(0, 5 * innerHeight)")
        visit.page.wait_for_function(
            "!document.querySelector('.is-coming') && document.head.querySelector('script[src$=\"/sample.js\"]')"
        )
        assert Explorer(visit, "sample").root.locator(".explorer-still img").is_visible()


def test_a_marker_moves_by_keys_mouse_and_finger(browser: Browser, site: str) -> None:
    with explored(browser, site, "sample") as explorer:
        marker = explorer.marker("map", "here")
        said = [marker.get_attribute(name) for name in ("role", "aria-label", "aria-valuetext")]
        assert said == ["slider", "the point", "strength ρ 4, noise η 0.1"]
        explorer.press_marker("map", "here", "ArrowRight", 2)
        explorer.press_marker("map", "here", "ArrowUp")
        assert explorer.setting("noise") == pytest.approx(0.1045, abs=1e-9)
        explorer.press_marker("map", "here", "Shift+ArrowDown")
        assert explorer.setting("strength") == pytest.approx(4 * 10 ** (3 * 0.02), rel=0.01)
        assert explorer.setting("noise") == pytest.approx(0.0595, abs=1e-9)
        explorer.press_marker("curve", "rate", "ArrowUp", 2)  # along one axis, by its own step
        assert explorer.setting("noise") == pytest.approx(0.0995, abs=1e-9)
        assert explorer.setting("rule") == "2"  # the marker chooses an option, too
        rect = explorer.plot("map").locator("clipPath rect").first
        width, height = rect.evaluate("rect => [rect.width.baseVal.value - 2, rect.height.baseVal.value - 2]")
        before = explorer.setting("strength"), explorer.setting("noise")
        explorer.drag_marker("map", "here", width / 10, -height / 5)
        assert explorer.setting("strength") == pytest.approx(before[0] * 10**0.3, rel=0.02)
        assert explorer.setting("noise") == pytest.approx(before[1] + 0.09, abs=0.002)
        explorer.drag_marker("map", "here", 3000, 3000)  # far outside: held at the corner
        assert (explorer.setting("strength"), explorer.setting("noise")) == (100, 0)
        x, y = explorer.middle(marker)
        explorer.page.mouse.click(x - width / 3, y - height / 2)  # a click brings it there
        explorer.settle()
        assert explorer.setting("strength") == pytest.approx(10, rel=0.03)
        assert explorer.setting("noise") == pytest.approx(0.225, abs=0.002)
        x, y = explorer.middle(marker)
        finger = explorer.page.context.new_cdp_session(explorer.page)
        # Upwards first: the page must not scroll instead.
        for kind, at in (
            ("touchStart", [(x, y)]),
            ("touchMove", [(x, y - height / 6)]),
            ("touchMove", [(x - width / 3, y - height / 3)]),
            ("touchEnd", []),
        ):
            points = [{"x": x, "y": y} for x, y in at]
            finger.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
        explorer.settle()
        assert explorer.setting("strength") == pytest.approx(1, rel=0.03)
        assert explorer.setting("noise") == pytest.approx(0.375, abs=0.003)


def test_lines_and_levels_lie_where_the_formulas_say(browser: Browser, site: str) -> None:
    with explored(browser, site, "sample") as explorer:
        curve = explorer.plot("curve").locator('path[data-key="one"]').evaluate(POINTS, [0, 10, 0, 1])
        assert len(curve) == 51
        assert max(abs(s - (1 - math.exp(-0.3 * t))) for t, s in curve) < 0.001
        level = explorer.plot("map").locator('path[data-key="level"]').evaluate(POINTS, [-1, 2, 0, 0.45])
        inside = [(10**power, b) for power, b in level if 0.05 < b < 0.4]
        assert len(inside) > 5
        assert max(abs(1 / (1 + a) + b - 0.5) for a, b in inside) < 0.02
        # The cell around strength 1.15, noise 0.225 has risk 0.69: the pale middle of the colours, #f7f5f2.
        canvas = explorer.plot("map").locator("canvas")
        assert canvas.evaluate(COLOUR, [1.0625 / 3, 0.5]) == pytest.approx([0xF7, 0xF5, 0xF2, 255], abs=6)
        legend = explorer.plot("curve").locator(".explorer-legend li").all_inner_texts()
        assert legend == ["nine of ten", "clean", "noisy"]


def test_play_moves_by_itself_when_asked(browser: Browser, site: str) -> None:
    """The page's clock is ours: time passes where it is said."""
    with explored(browser, site, "sample") as explorer:
        clock, play = explorer.page.clock, explorer.root.get_by_role("button", name="Play: move noise")
        clock.install(time=datetime(2026, 1, 1))
        clock.pause_at(datetime(2026, 1, 2))
        play.click()
        clock.run_for(1100)
        assert explorer.setting("noise") == 0.45
        explorer.page.emulate_media(reduced_motion="reduce")  # still pictures, nearly a second each
        play.click()
        for milliseconds, noise in ((850, 0), (100, 0.05)):
            clock.run_for(milliseconds)
            assert explorer.setting("noise") == noise
        explorer.root.get_by_role("button", name="Pause: noise").click()
        clock.run_for(5000)
        assert explorer.setting("noise") == 0.05


def test_from_a_disk_it_lives_and_paper_gets_the_still_picture(browser: Browser, folder: Path) -> None:
    with explored(browser, f"file://{folder}", "sample", strength=8) as explorer:
        assert explorer.values()["product"] == pytest.approx(0.8)
        still = explorer.root.locator(".explorer-still img")
        assert not still.is_visible()
        explorer.page.wait_for_function("document.querySelector('.explorer-still img').complete")
        explorer.page.emulate_media(media="print")
        assert still.is_visible()
        assert still.evaluate("image => image.naturalWidth") > 0
        assert not explorer.root.locator(".explorer-live").is_visible()
        assert explorer.visit.errors == []


# What the keyboard stands on, and whether that can be seen.
FOCUS = """() => {
  const node = document.activeElement, style = getComputedStyle(node.querySelector(".ring") ?? node);
  return [node.dataset.key ?? node.closest("[data-control]")?.dataset.control ?? node.textContent,
          parseFloat(style.strokeWidth) >= 3 || (style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2)];
}"""


def test_everybody_can_use_it(browser: Browser, site: str) -> None:
    with explored(browser, site, "sample", PHONE, "dark") as explorer:
        order = "here strength strength noise noise noise n n rule shown rate".split()
        order += ["Reset", "Copy link", "Full screen", "Copy command"]
        explorer.page.evaluate("() => { const top = document.querySelector('h1'); top.tabIndex = -1; top.focus() }")
        for name in order:
            explorer.page.keyboard.press("Tab")
            assert explorer.page.evaluate(FOCUS) == [name, True]
        explorer.type("n", "1")  # with a complaint to be read, too
        assert looks.readable(explorer.visit, "dark") + looks.sideways(explorer.visit) == []
        assert looks.accessible(explorer.visit, contrast=True) == []
