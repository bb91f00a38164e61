"""What all explorers share, driven in Chromium on a sample that has one of everything: `tests/explorers/sample_view.js`."""

import math
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from attnbook.explorers.__main__ import script
from bookkit.sphinx.explorer_pages import COMING
from tests.browser import looks
from tests.browser.browsing import PHONE, served
from tests.browser.exploring import Explorer, explored
from tests.explorers.node import ROOT, need_node
from tests.test_notebook_quotes import PIXEL

pytestmark = pytest.mark.browser

PAGE = """<!DOCTYPE html><html lang="en" data-theme="light"><head><meta charset="utf-8"><title>Sample</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">
<link rel="stylesheet" href="../../book.css"><link rel="stylesheet" href="../../explorers.css">
<style>* {{ box-sizing: border-box }} body {{ background: var(--book-paper); color: var(--book-ink); margin: 1rem }}</style>
<script>if (matchMedia("(prefers-color-scheme: dark)").matches) document.documentElement.dataset.theme = "dark"</script>
<script defer src="../../sample_data.js"></script><script defer src="../../sample.js"></script></head>
<body class="bd-main"><div class="bd-content"><div class="bd-article-container"><main class="bd-article"><h1>Sample</h1>
<div class="explorer" data-explorer="sample">{coming}<div class="explorer-still"><img src="still.png" alt="a still picture" width="200"
 height="100" loading="lazy"><p class="explorer-still-note">Where scripts run, this picture moves.</p></div></div>
<h2 id="below">Below</h2></main></div></div></body></html>"""

# Where a path's points lie in data, on an axis that is log10 across and linear upwards.
POINTS = """(path, [low, high, bottom, top]) => {
  const rect = path.ownerSVGElement.querySelector("clipPath rect"), size = name => rect[name].baseVal.value - 2;
  return path.getAttribute("d").match(/-?[\\d.]+,-?[\\d.]+/g).map(pair => pair.split(",").map(Number))
    .map(([x, y]) => [low + (high - low) * x / size("width"), top + (bottom - top) * y / size("height")]);
}"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    node, made = need_node(), tmp_path_factory.mktemp("shell")
    view = ROOT / "tests" / "explorers" / "sample_view.js"
    build = [node, "book/scripts/build.mjs", "--from", str(view), "--to", str(made / "sample.js")]
    subprocess.run(build, cwd=ROOT, check=True)
    (made / "sample_data.js").write_text(script("sample", {"offset": 7.25}), encoding="utf-8")
    for name in ("book.css", "explorers.css"):
        shutil.copy(ROOT / "book" / "assets" / name, made / name)
    pages = made / "book" / "explorers"
    pages.mkdir(parents=True)
    (pages / "sample.html").write_text(PAGE.format(coming=COMING), encoding="utf-8")
    (pages / "still.png").write_bytes(PIXEL)
    return made


@pytest.fixture(scope="module")
def site(folder: Path) -> Iterator[str]:
    with served(folder) as url:
        yield url


def log_positions(low: float, high: float, count: int, position: int) -> float:
    """What a log slider gives: three significant digits."""
    return float(f"{low * (high / low) ** (position / count):.3g}")


def test_sliders_by_keyboard_and_mouse_move_values_fields_lines_and_address(browser: Browser, site: str) -> None:
    with explored(browser, site, "sample") as explorer:
        assert explorer.state == "live"
        assert explorer.values() == pytest.approx({"product": 0.4, "offset": 7.25, "small": 2e-7}, rel=1e-12)
        assert (explorer.text("offset"), explorer.text("small")) == ("7.25", "2×10⁻⁷")
        assert explorer.sentence().split() == ["harmful", "The", "noise", "wins."]
        line = explorer.line("curve", "two")
        start = round(math.log(4 / 0.1) / math.log(1000) * 120)
        explorer.press_slider("strength", "ArrowRight", 5)
        strength = log_positions(0.1, 100, 120, start + 5)
        assert explorer.setting("strength") == strength
        explorer.press_slider("noise", "ArrowLeft", 3)
        assert explorer.value("product") == pytest.approx(strength * 0.07, rel=1e-12)
        assert explorer.line("curve", "two") != line
        explorer.press_slider("noise", "End")
        assert explorer.setting("noise") == 0.45
        explorer.drag_slider("strength", 1.0)
        assert explorer.setting("strength") == 100
        assert explorer.sentence().split()[0] == "benign"
        explorer.drag_slider("n", 0.25)
        assert explorer.setting("n") == pytest.approx(100, rel=0.15)
        assert explorer.setting("n") == int(explorer.setting("n"))
        explorer.choose("rule", "2")
        assert explorer.value("offset") == pytest.approx(107.25)
        explorer.toggle("shown")
        assert explorer.plot("curve").locator('path[data-key="two"]').count() == 0
        explorer.page.wait_for_function("location.hash.includes('shown=0')")
        asked = dict(pair.split("=") for pair in explorer.page.evaluate("location.hash.slice(1)").split("&"))
        n = int(explorer.setting("n"))
        assert asked == {"strength": "100", "noise": "0.45", "n": str(n), "rule": "2", "shown": "0"}
        assert explorer.root.locator(".explorer-command code").inner_text() == (
            f"python -m attnlib rerun sample n={n} noise=0.45"
        )
        explorer.reset()
        assert explorer.value("product") == pytest.approx(0.4, rel=1e-12)
        explorer.page.wait_for_function("location.hash === ''")
        assert explorer.visit.errors == explorer.visit.outside == []


def test_nonsense_in_a_field_is_answered_and_the_last_good_value_stays(browser: Browser, site: str) -> None:
    faults = [
        ("strength", "abc", "strength ρ: expected a number from 0.1 to 100; got “abc”. 4 stays in force."),
        ("strength", "", "strength ρ: expected a number from 0.1 to 100; got nothing. 4 stays in force."),
        ("strength", "0.0999", "strength ρ: expected a number from 0.1 to 100; got “0.0999”. 4 stays in force."),
        ("noise", "Infinity", "noise η: expected a number from 0 to 0.45; got “Infinity”. 0.1 stays in force."),
        ("n", "20.5", "samples n: expected a whole number from 10 to 100,000; got “20.5”. 200 stays in force."),
    ]
    with explored(browser, site, "sample") as explorer:
        before = explorer.values()
        for key, text, sentence in faults:
            explorer.type(key, text)
            assert explorer.complaint(key) == sentence
            field = explorer.control(key).locator("input[type=text]")
            assert (field.get_attribute("aria-invalid"), explorer.values()) == ("true", before)
            assert explorer.control(key).get_by_role("alert").inner_text() == sentence
        explorer.type("strength", " 2.5e1 ")
        assert explorer.complaint("strength") == ""
        assert explorer.value("product") == pytest.approx(2.5)
        explorer.type("n", "10^3")
        assert explorer.value("small") == pytest.approx(1e-6, rel=1e-12)
        explorer.control("noise").locator("input[type=text]").press("Escape")
        assert (explorer.setting("noise"), explorer.complaint("noise")) == (0.1, "")


def test_a_link_shows_the_same_picture_and_a_wrong_link_is_answered(browser: Browser, site: str) -> None:
    wrong = {"strength": 12.5, "noise": "much", "n": 9, "rule": "third", "shown": 0}
    with explored(browser, site, "sample", settings=wrong) as explorer:
        assert explorer.value("product") == pytest.approx(1.25)
        assert [explorer.setting(key) for key in ("noise", "n", "rule", "shown")] == [0.1, 200, "1", False]
        assert explorer.complaint("noise").startswith(
            "In the address: noise η: expected a number from 0 to 0.45; got “much”"
        )
        assert "whole number from 10 to 100,000; got “9”" in explorer.complaint("n")
        assert explorer.complaint("rule") == "In the address: rule: expected one of 1, 2; got “third”."
        explorer.page.evaluate("location.hash = '#strength=2&noise=0.2'")
        explorer.page.wait_for_function("document.querySelector('[data-key=product]').dataset.number === '0.4'")
        explorer.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        explorer.root.get_by_role("button", name="Copy link").click()
        explorer.page.wait_for_function("document.querySelector('.explorer-note').textContent.startsWith('Copied')")
        copied = explorer.page.evaluate("navigator.clipboard.readText()")
        assert copied == f"{site}/book/explorers/sample.html#strength=2&noise=0.2&shown=0"


def still_only(explorer: Explorer) -> None:
    """The still picture and its sentence are seen, nothing of the live part, and no empty room is kept."""
    assert explorer.root.locator(".explorer-still img").is_visible()
    assert explorer.root.locator(".explorer-live").count() == 0
    assert explorer.root.bounding_box()["height"] < 400


@pytest.mark.parametrize("answer", ["", "this is no script", "window.attentionCheckedData = {};"])
def test_without_data_there_is_a_sentence(browser: Browser, site: str, answer: str) -> None:
    with explored(browser, site, "sample") as explorer:
        explorer.page.route("**/sample_data.js", lambda route: route.fulfill(body=answer) if answer else route.abort())
        explorer.page.reload(wait_until="load")
        still_only(explorer)
        assert explorer.state == "no-data"
        assert explorer.trouble().startswith("The data of this explorer did not arrive (the file sample.js")
        assert explorer.root.locator(".explorer-still-note").is_visible()


def test_without_scripts_and_on_an_old_browser_the_still_picture_stays(browser: Browser, site: str) -> None:
    with explored(browser, site, "sample") as explorer:
        # What a browser does that cannot read the bundle: nothing of it runs.
        explorer.page.route("**/sample.js", lambda route: route.fulfill(body="let old = browser ~~> stumbles;"))
        explorer.page.reload(wait_until="load")
        still_only(explorer)
        assert explorer.state is None
        assert explorer.root.locator(".explorer-still-note").is_visible()
    context = browser.new_context(java_script_enabled=False, viewport=PHONE)
    try:
        page = context.new_page()
        page.goto(f"{site}/book/explorers/sample.html")
        assert page.locator(".explorer-still img").is_visible()
        assert page.locator(".explorer-still-note").is_visible()
        assert page.locator(".explorer-live").count() == 0
    finally:
        context.close()


def test_a_setting_without_a_picture_is_answered_and_the_next_one_draws_again(browser: Browser, site: str) -> None:
    with explored(browser, site, "sample") as explorer:
        explorer.type("n", "11")
        assert explorer.trouble() == (
            "There is no picture for these settings: eleven samples are too few. Change a setting or press Reset."
        )
        assert not explorer.plot("map").is_visible()
        assert explorer.control("n").is_visible()
        explorer.type("n", "12")
        assert explorer.trouble() == ""
        assert explorer.plot("map").is_visible()


def test_a_marker_moves_by_keys_mouse_and_finger(browser: Browser, site: str) -> None:
    with explored(browser, site, "sample") as explorer:
        marker = explorer.marker("map", "here")
        assert marker.get_attribute("role") == "slider"
        assert marker.get_attribute("aria-label") == "the point"
        assert marker.get_attribute("aria-valuetext") == "strength ρ 4, noise η 0.1"
        explorer.press_marker("map", "here", "ArrowRight", 2)
        explorer.press_marker("map", "here", "ArrowUp")
        assert explorer.setting("strength") == pytest.approx(4 * 10 ** (3 * 0.02), rel=0.01)
        assert explorer.setting("noise") == pytest.approx(0.1 + 0.0045, abs=1e-9)
        explorer.press_marker("map", "here", "Shift+ArrowDown")
        assert explorer.setting("noise") == pytest.approx(0.0595, abs=1e-9)
        explorer.press_marker("curve", "rate", "ArrowUp", 2)  # along one axis, by its own step
        assert explorer.setting("noise") == pytest.approx(0.0595 + 0.04, abs=1e-9)
        assert (explorer.setting("rule"), explorer.value("offset")) == (
            "2",
            107.25,
        )  # the marker chooses an option, too
        explorer.press_marker("curve", "rate", "Shift+ArrowDown")
        assert explorer.setting("noise") == 0
        explorer.type("noise", "0.0595")
        width, height = (
            explorer.plot("map")
            .locator("clipPath rect")
            .first.evaluate("rect => [rect.width.baseVal.value - 2, rect.height.baseVal.value - 2]")
        )
        before = explorer.setting("strength"), explorer.setting("noise")
        explorer.drag_marker("map", "here", width / 10, -height / 5)
        assert explorer.setting("strength") == pytest.approx(before[0] * 10**0.3, rel=0.02)
        assert explorer.setting("noise") == pytest.approx(before[1] + 0.09, abs=0.002)
        explorer.drag_marker("map", "here", 3000, 3000)  # far outside: held at the corner
        assert (explorer.setting("strength"), explorer.setting("noise")) == (100, 0)
        explorer.click_plot("map", 1 / 3, 0.5)
        assert explorer.setting("strength") == pytest.approx(1, rel=0.03)
        assert explorer.setting("noise") == pytest.approx(0.225, abs=0.002)
        x, y = explorer._middle(marker)
        finger = explorer.page.context.new_cdp_session(explorer.page)
        for kind, points in (
            ("touchStart", [{"x": x, "y": y}]),
            ("touchMove", [{"x": x, "y": y - height / 6}]),  # upwards first: the page must not scroll instead
            ("touchMove", [{"x": x + width / 6, "y": y - height / 3}]),
            ("touchMove", [{"x": x + width / 3, "y": y - height / 3}]),
            ("touchEnd", []),
        ):
            finger.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
        explorer.settle()
        assert explorer.setting("strength") == pytest.approx(10, rel=0.03)
        assert explorer.setting("noise") == pytest.approx(0.375, abs=0.003)


def test_lines_levels_and_colours_lie_where_the_formulas_say(browser: Browser, site: str) -> None:
    with explored(browser, site, "sample") as explorer:
        curve = explorer.plot("curve").locator('path[data-key="one"]').evaluate(POINTS, [0, 10, 0, 1])
        assert len(curve) == 51
        assert max(abs(s - (1 - math.exp(-0.3 * t))) for t, s in curve) < 0.001
        level = explorer.plot("map").locator('path[data-key="level"]').evaluate(POINTS, [-1, 2, 0, 0.45])
        inside = [(10**power, b) for power, b in level if 0.05 < b < 0.4]
        assert len(inside) > 5
        assert max(abs(1 / (1 + a) + b - 0.5) for a, b in inside) < 0.02
        # The cell around strength 1.15, noise 0.225 has risk 0.69: the pale middle of the colours, #f7f5f2.
        colour = (
            explorer.plot("map")
            .locator("canvas")
            .evaluate("""canvas => {
          const rect = canvas.parentNode.querySelector("clipPath rect"), ratio = canvas.width / canvas.clientWidth;
          const at = canvas.parentNode.querySelector("svg > g").transform.baseVal.getItem(0).matrix;
          const x = at.e + (rect.width.baseVal.value - 2) * (1 + 1.5 / 24) / 3, y = at.f + (rect.height.baseVal.value - 2) / 2;
          return [...canvas.getContext("2d").getImageData(x * ratio, y * ratio, 1, 1).data];
        }""")
        )
        assert colour == pytest.approx([0xF7, 0xF5, 0xF2, 255], abs=6)
        legend = explorer.plot("curve").locator(".explorer-legend li").all_inner_texts()
        assert legend == ["nine of ten", "clean", "noisy"]


def test_play_moves_by_itself_and_asks_before(browser: Browser, site: str) -> None:
    with explored(browser, site, "sample") as explorer:
        assert explorer.setting("noise") == 0.1  # nothing moves unasked
        explorer.root.get_by_role("button", name="Play: move noise").click()
        explorer.page.wait_for_function(
            "document.querySelector('[data-control=noise] input[type=text]').value === '0.45'"
        )
        explorer.root.get_by_role("button", name="Play: move noise").wait_for()
        explorer.page.emulate_media(reduced_motion="reduce")
        explorer.stop_the_clock()
        explorer.root.get_by_role("button", name="Play: move noise").click()
        explorer.pass_time(850)
        assert explorer.setting("noise") == 0
        explorer.pass_time(100)
        assert explorer.setting("noise") == 0.05
        explorer.root.get_by_role("button", name="Pause: noise").click()  # still pictures, a second each
        explorer.pass_time(5000)
        assert explorer.setting("noise") == 0.05


def test_a_page_opened_from_disk_lives_and_paper_gets_the_still_picture(browser: Browser, folder: Path) -> None:
    with explored(browser, f"file://{folder}", "sample", settings={"strength": 8}) as explorer:
        assert explorer.state == "live"
        assert explorer.value("product") == pytest.approx(0.8)
        assert not explorer.root.locator(".explorer-still").is_visible()
        explorer.page.wait_for_function("document.querySelector('.explorer-still img').complete")
        explorer.page.emulate_media(media="print")
        assert explorer.root.locator(".explorer-still img").is_visible()
        assert explorer.root.locator(".explorer-still img").evaluate("image => image.naturalWidth") > 0
        assert not explorer.root.locator(".explorer-live").is_visible()
        assert explorer.visit.errors == []


def test_everybody_can_use_it(browser: Browser, site: str) -> None:
    with explored(browser, site, "sample", PHONE, "dark") as explorer:
        explorer.type("n", "1")  # with a complaint to be read, too
        assert looks.readable(explorer.visit, "dark") + looks.sideways(explorer.visit) == []
        assert looks.accessible(explorer.visit, contrast=True) == []
        # Everything is reached by Tab, in the order seen, and shows where the focus is.
        order = "here strength strength noise noise noise n n rule shown rate".split()
        order += ["Reset", "Copy link", "Full screen", "Copy command"]
        explorer.page.evaluate("() => { const top = document.querySelector('h1'); top.tabIndex = -1; top.focus() }")
        seen = []
        for _ in order:
            explorer.page.keyboard.press("Tab")
            name, ring = explorer.page.evaluate("""() => {
              const node = document.activeElement, style = getComputedStyle(node.querySelector(".ring") ?? node);
              return [node.dataset.key ?? node.closest("[data-control]")?.dataset.control ?? node.textContent,
                      parseFloat(style.strokeWidth) >= 3 || (style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2)];
            }""")
            assert ring, f"no ring around {name}"
            seen.append(name)
        assert seen == order
