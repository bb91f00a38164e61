"""Every link into a page ends at what it names, on a desktop and on a phone, when formulas and scripts have done their work."""

import re
from collections.abc import Iterator
from posixpath import dirname, normpath
from urllib.parse import unquote

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.browsing import DESKTOP, HTML, PATIENCE, PHONE, page_names

pytestmark = pytest.mark.browser

THEORY = "book/in_context_theory.html"
TRAP = f"{THEORY}#ic-trap"
LONG = "book/single_head_theory.html"
ONE_IN = 10  # rows of the ledger that are gone to; that each exists is seen by the test of internal links


def targets() -> dict[str, list[str]]:
    """Page -> the fragments that links of the book name on it, last one first: what stands above is then not drawn yet."""
    named: dict[str, set[str]] = {}
    for name in page_names():
        for link in re.findall(r'<a\b[^>]*\bhref="([^"]*#[^"]+)"', (HTML / name).read_text(encoding="utf-8")):
            if not re.match(r"[a-z]+:", link) and not link.endswith("#main-content"):  # past the menus: the whole page
                path, _, fragment = link.partition("#")
                page = normpath(f"{dirname(name)}/{path.split('?')[0]}").lstrip("/") if path else name
                named.setdefault(page, set()).add(unquote(fragment))
    found = {}
    for page, fragments in named.items():
        text = (HTML / page).read_text(encoding="utf-8")
        places = {match[1]: match.start() for match in re.finditer(r'\bid="([^"]+)"', text)}
        names = sorted(fragments, key=lambda fragment: -places.get(fragment, -1))
        rows = [name for name in names if name.startswith("claim-")]  # some 400, made by one template
        left_out = set(rows) - set(rows[::ONE_IN]) - {name for name in rows if name not in places}
        found[page] = [name for name in names if name not in left_out]
    return found


LINKS = targets()
# Drawing every formula of the book would take an hour: these boxes come as late and are as high, one in seven very high.
STAND_IN = """(() => {
  const said = window.MathJax;
  window.MathJax = {startup: {promise: Promise.resolve()}, typesetPromise: async (formulas) => {
    for (const formula of formulas) {
      const box = document.createElement("mjx-container"), inline = formula.matches("span");
      box.style.cssText = `display:inline-block;width:3em;height:${inline ? 15 : formula.textContent.length % 7 ? 40 : 170}px`;
      formula.replaceChildren(box);
    }
  }};
  said.onstart();
})()"""
# Some browsers keep what is read in its place by themselves; the book does not count on it.
PLAIN = """addEventListener("DOMContentLoaded", () => {
  const style = document.createElement("style");
  style.textContent = "html { overflow-anchor: none !important }";
  document.head.append(style);
})"""

# Waits until all formulas around the view are drawn and what the address names stands still; says where it stands.
SETTLED = """async (name) => {
  const frame = () => new Promise(requestAnimationFrame);
  const near = (node) => { const b = node.getBoundingClientRect(); return b.bottom > -699 && b.top < innerHeight + 699 && b.height > 0; };
  const left = () => [...document.querySelectorAll("article .math:not(:has(mjx-container))")];
  const node = document.getElementById(name ?? decodeURIComponent(location.hash.slice(1)));
  if (!node) return {fault: "nothing has this name"};
  for (let still = 0, top = null, frames = 0; still < 3; ) {
    if (++frames > 6000) return {fault: "no rest"};
    await frame();
    const now = node.getBoundingClientRect().top;
    still = now === top ? still + 1 : 0;
    top = now;
    if (still === 3 && left().some(formula => near(formula) && formula.checkVisibility())) still = 0;
  }
  const bar = Math.max(0, ...[...document.querySelectorAll(".bd-header, .bd-header-article")].map(b => b.getBoundingClientRect())
    .filter(b => b.top <= 0).map(b => b.bottom));
  const box = node.getBoundingClientRect(), end = scrollY + innerHeight > document.documentElement.scrollHeight - 3;
  // A still picture that a drawing replaces is hidden together with the link to itself.
  if (!node.checkVisibility()) return {fault: node.matches("figure:has(.headerlink)") ? "" : "not shown"};
  if (box.top < bar - 1) return {fault: `${Math.round(bar - box.top)} px above the view`};
  const room = parseFloat(getComputedStyle(node).scrollMarginTop); // of a page whose drawing stays in view
  if (box.top > (end ? innerHeight - 20 : bar + 60 + room)) return {fault: `${Math.round(box.top - bar)} px below the top`};
  return {fault: ""};
}"""
FOLLOWED = f"""async fragments => {{
  const settled = {SETTLED}, faults = {{}};
  for (const fragment of fragments) {{
    // Scripts are told the address, and light.js answers a moment later: its answer was asked for before this one.
    const told = new Promise(done => addEventListener("popstate", () => setTimeout(done), {{once: true}}));
    location.hash = fragment;
    await told;
    const found = await settled(fragment); // explorers put their own state into the address
    if (found.fault) faults[fragment] = found.fault;
  }}
  return faults;
}}"""


def test_links_were_found() -> None:
    assert len(LINKS) > 40
    assert sum(map(len, LINKS.values())) > 1000
    assert "ic-trap" in LINKS[THEORY]


@pytest.fixture(scope="module", params=[DESKTOP, PHONE], ids=["desktop", "phone"])
def plain(request: pytest.FixtureRequest, browser: Browser) -> Iterator[Page]:
    """A page in a window in which formulas are boxes, and in which no place is kept but by the book."""
    context = browser.new_context(viewport=request.param)
    context.set_default_timeout(PATIENCE)
    context.add_init_script(PLAIN)
    context.route("**/tex-chtml.js", lambda route: route.fulfill(body=STAND_IN, content_type="text/javascript"))
    yield context.new_page()
    context.close()


@pytest.mark.parametrize("name", sorted(LINKS))
def test_every_link_ends_at_what_it_names(plain: Page, address: str, name: str) -> None:
    plain.goto(f"{address}/{name}", wait_until="load")
    assert plain.evaluate(FOLLOWED, LINKS[name]) == {}


# On a busy machine what a script asks for "in a moment" comes some frames later: the browser is on its own way by then.
BUSY = "late => { const later = setTimeout; window.setTimeout = (task, wait = 0) => later(task, wait + late); }"


@pytest.mark.parametrize("late", [50, 100, 200])
def test_links_end_at_what_they_name_on_a_busy_machine(plain: Page, address: str, late: int) -> None:
    plain.goto(f"{address}/{LONG}", wait_until="load")
    plain.evaluate(BUSY, late)
    ends = LINKS[LONG][0], LINKS[LONG][-1]  # far from each other
    assert plain.evaluate(FOLLOWED, [*ends, LINKS[LONG][10]]) == {}


@pytest.mark.parametrize("link", [TRAP, "book/token_selection_theory.html#ts-delay", "book/ledger.html#claim-c8"])
def test_a_page_that_is_opened_at_a_box_stays_there(plain: Page, address: str, link: str) -> None:
    plain.goto("about:blank")
    plain.goto(f"{address}/{link}", wait_until="load")
    assert plain.evaluate(SETTLED) == {"fault": ""}
    if "theory" in link:
        assert plain.locator("article mjx-container").count() > 3, (
            "no formula was drawn: nothing could have moved the box"
        )


# How far below the top of the view the place stands that the address names.
PLACE = "() => document.getElementById(location.hash.slice(1)).getBoundingClientRect().top"


def turned(page: Page, by: int) -> None:
    """Turn the wheel once, over the text: on a desktop the left of the window is the menu, which scrolls alone.

    The place that was gone to must leave upwards. How far the page is scrolled says less: formulas above may still be drawn,
    and until the wheel turns the book moves the page with them.
    """
    size = page.viewport_size
    assert size is not None
    page.mouse.move(0.6 * size["width"], 0.5 * size["height"])
    before = page.evaluate(PLACE)
    page.mouse.wheel(0, by)
    page.wait_for_function(f"most => ({PLACE})() < most", arg=before - by + 50)


# The first block in view, as light.js writes it down; nothing while the page is not at rest.
WRITTEN = """() => {
  const [number, top] = history.state?.place ?? [];
  const block = document.querySelectorAll("article :is(h1, h2, h3, p, li, dt, pre, tr, figcaption, summary)")[number];
  const now = block?.getBoundingClientRect();
  return block && Math.abs(now.top - top) < 2 && now.bottom > 64 ? [block.textContent.slice(0, 30), now.top] : null;
}"""


def test_the_way_back_ends_where_the_reader_was(plain: Page, address: str) -> None:
    plain.goto("about:blank")
    plain.goto(f"{address}/{TRAP}", wait_until="load")
    plain.evaluate(SETTLED)
    turned(plain, by=650)
    plain.evaluate(SETTLED)
    plain.evaluate("scrollBy(0, 1)")
    there = plain.wait_for_function(WRITTEN).json_value()
    for leave in (f"{address}/book/bibliography.html", f"{address}/{THEORY}#the-setting"):
        plain.goto(leave, wait_until="load")
        plain.wait_for_function("history.state?.place || scrollY === 0")
        plain.go_back(wait_until="load")
        plain.evaluate(SETTLED)
        text, top = plain.wait_for_function(WRITTEN).json_value()
        assert text == there[0]
        assert top == pytest.approx(there[1], abs=3)


def test_the_reader_who_scrolls_is_free(plain: Page, address: str) -> None:
    plain.goto("about:blank")
    plain.goto(f"{address}/{TRAP}", wait_until="load")
    plain.evaluate(SETTLED)
    before = plain.evaluate(PLACE)
    turned(plain, by=400)
    plain.evaluate("document.querySelector('article').style.paddingTop = '7px'")  # the page changes its height
    plain.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert plain.evaluate(PLACE) < before - 300
