"""The ledger of the built book asked questions in Chromium; every expected number is counted in ledger.json."""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, Page

from tests.browser import looks
from tests.browser.browsing import DESKTOP, HTML, PHONE, turned, visited

pytestmark = pytest.mark.browser

LEDGER = "book/ledger.html"
SHOWN = "[...document.querySelectorAll('details.claim')].filter(c => c.checkVisibility()).map(c => c.id)"


@pytest.fixture(scope="module")
def records() -> list[dict]:
    path = HTML / "ledger.json"
    assert path.is_file(), f"no {path}: run `make html` first"
    return json.loads(path.read_text(encoding="utf-8"))


def anchors(records: list[dict], **wanted: object) -> set[str]:
    """Ends of the permalinks of the records with these values."""
    chosen = [r for r in records if all(r[key] == value for key, value in wanted.items())]
    return {record["permalink"].partition("#")[2] for record in chosen}


@contextmanager
def ledger(browser: Browser, address: str, rest: str = "", **options: object) -> Iterator[Page]:
    with visited(browser, address, LEDGER + rest, **options) as visit:
        yield visit.page
        assert visit.outside == []
        assert visit.errors == []


def shown(page: Page) -> set[str]:
    return set(page.evaluate(SHOWN))


def said(page: Page) -> str:
    return page.locator(".ledger-count").inner_text()


def test_every_facet_filters_counts_and_is_kept_in_the_address(browser: Browser, address: str, records: list) -> None:
    short = {"outside its regime": "outside", None: "none"}
    counts = {kind: Counter(short.get(r[kind], r[kind]) for r in records) for kind in ("paper", "source", "verdict")}
    with ledger(browser, address) as page:
        before = said(page)
        assert before.startswith(f"All {len(records)} claims: {counts['verdict']['holds']} hold, ")
        for kind, wanted in counts.items():
            told = page.locator(f"[name={kind}]").evaluate_all(
                "boxes => boxes.map(box => [box.value, Number(box.parentElement.querySelector('small').textContent)])"
            )
            assert dict(told) == wanted
        page.locator("[name=paper][value=none]").check()
        assert shown(page) == anchors(records, paper=None)
        page.locator("[name=paper][value=none]").uncheck()
        # Two kinds: and. Two choices of a kind: or. Both are in the address, and a copy of it shows the same.
        page.locator("[name=verdict][value=fails]").check()
        page.locator("[name=source][value=measured]").check()
        page.locator("[name=source][value=derived]").check()
        wanted, other = (
            anchors(records, verdict=verdict, source="measured") | anchors(records, verdict=verdict, source="derived")
            for verdict in ("fails", "holds")
        )
        assert shown(page) == wanted
        assert said(page).startswith(f"{len(wanted)} of {len(records)} claims: ")
        assert page.locator(".ledger-squares a:not(.dim)").count() == len(wanted) < counts["verdict"]["fails"]
        # A count says what its chip would give: other choices of its own kind do not narrow it.
        assert page.locator("[name=verdict][value=holds] + span small").inner_text() == str(len(other))
        kept = page.evaluate("location.search")
        page.locator(".ledger-filter [type=reset]").click()
        page.wait_for_function("location.search === ''")
        assert (shown(page), said(page)) == (anchors(records), before)
    with ledger(browser, address, kept) as page:
        assert shown(page) == wanted
        assert page.locator("[name=source]:checked").count() == 2


def test_pages_parts_and_words(browser: Browser, address: str, records: list) -> None:
    with ledger(browser, address) as page:
        for name in ("single_head/05_phase_diagram", "in_context/02_training"):
            page.locator("[name=page]").select_option(name)
            assert shown(page) == anchors(records, page=f"notebooks/{name}.html")
        page.locator("[name=page]").select_option("token_selection")
        assert shown(page) == anchors(records, part="token_selection")
        assert page.locator("section#part-i-a-single-head").is_hidden()
        page.locator("[name=page]").select_option("")
        claim = next(record for record in records if record["id"] == "C8")
        page.locator(".ledger-filter [name=q]").fill(f"{claim['title'].upper()} {claim['function'].rpartition('.')[2]}")
        assert shown(page) == {"claim-c8"}
        page.locator(".ledger-filter [name=q]").fill("\\tfrac12(a + b_k)")  # formulas are found by their source
        assert "claim-c8" in shown(page)
        page.locator(".ledger-filter [name=q]").fill("no such words <b>")
        assert shown(page) == set()
        assert said(page).startswith("Nothing matches.")
        assert page.locator("[name=verdict][value=holds] + span small").inner_text() == "0"


def test_a_permalink_opens_its_claim(browser: Browser, address: str, records: list) -> None:
    for start, wanted in ((address, "claim-q31"), (f"file://{HTML}", "claim-c8")):
        record = next(r for r in records if r["permalink"].endswith(f"#{wanted}"))
        with ledger(browser, start, f"#{wanted}") as page:
            claim = page.locator(f"#{wanted}")
            assert page.evaluate("[...document.querySelectorAll('details.claim[open]')].map(c => c.id)") == [wanted]
            page.wait_for_function(
                f"Math.abs(document.getElementById('{wanted}').getBoundingClientRect().top - 80) < 80"
            )
            page.keyboard.press("Tab")  # who reads by keyboard is there, too
            assert page.evaluate("document.activeElement.closest('details')?.id") == wanted
            claim.locator("math").first.wait_for()
            said_here = {
                term: " ".join(claim.locator(f"dt:text-is('{term}') + dd").inner_text().split())
                for term in ("Function", "Page", "Link", "Rule", "Registered")
            }
            assert said_here["Page"] == record["page_title"]
            chance = f"rejects a true claim with probability at most {record['false_alarm']:.1g}"
            assert said_here["Rule"].endswith(f"over {record['draws']} draws; {chance}")
            assert said_here["Registered"].startswith(("20", "again on 20"))
            assert said_here["Function"] == record["function"]
            assert claim.locator("pre").inner_text().split("\n") == record["command"].split(" && ")
            assert claim.locator("a:has(code)").get_attribute("href").startswith("https://github.com/")
            page.evaluate("navigator.clipboard.writeText = text => { window.copied = text; return Promise.resolve() }")
            claim.locator("button:text('Copy link')").click()
            assert page.evaluate("window.copied") == f"{start}/{LEDGER}#{wanted}"
            assert claim.locator("dd:has(button:text('Copy link')) [role=status]").inner_text() == "Copied."


def test_a_permalink_wins_over_a_filter_that_hides_it(browser: Browser, address: str, records: list) -> None:
    with ledger(browser, address, "?verdict=fails&source=nonsense&page=nowhere#claim-c8") as page:
        assert page.locator("#claim-c8[open]").is_visible()
        assert shown(page) == anchors(records)
        page.goto(f"{address}/{LEDGER}?verdict=fails&source=nonsense&page=nowhere")
        assert shown(page) == anchors(records, verdict="fails")  # names that are not known are passed over
        page.evaluate("location.hash = '#claim-t1'")
        page.locator("#claim-t1[open]").wait_for()
        assert page.evaluate("location.search") == ""


def test_all_of_it_by_keyboard(browser: Browser, address: str, records: list) -> None:
    with ledger(browser, address) as page:
        page.locator(".ledger-filter input").first.focus()
        for _ in range(page.locator(".ledger-filter input[name=paper]").count()):
            page.keyboard.press("Tab")
        page.keyboard.press("Tab")
        page.keyboard.press("Space")
        assert shown(page) == anchors(records, verdict="fails")
        outline = "getComputedStyle(document.activeElement.nextElementSibling).outlineStyle"
        assert page.evaluate(outline) == "solid"  # one sees where one is
        page.locator(".ledger-squares a.fails").first.focus()
        named = page.evaluate("document.activeElement.title")  # as in "C3b: what it says (fails as expected)"
        assert named in {f"{r['id']}: {r['title']} (fails as expected)" for r in records if r["verdict"] == "fails"}
        target = page.evaluate("document.activeElement.hash").removeprefix("#")
        page.keyboard.press("Enter")
        page.locator(f"#{target}[open]").wait_for()
        assert page.evaluate("document.activeElement.matches('summary')")
        page.keyboard.press("Enter")
        assert page.locator(f"#{target}[open]").count() == 0
        page.locator(".ledger-filter [name=q]").focus()
        page.keyboard.type("zzz")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")  # Reset
        page.wait_for_function(f"{SHOWN}.length === {len(records)}")


def test_an_open_claim_in_the_dark_can_be_read_by_all(browser: Browser, address: str) -> None:
    with visited(browser, address, f"{LEDGER}?verdict=fails#claim-c3b", PHONE, "dark") as visit:
        visit.page.locator("#claim-c3b[open] pre").wait_for()
        assert looks.loading(visit) + looks.sideways(visit) + looks.readable(visit, "dark") == []
        turned(visit, DESKTOP, "light")
        assert looks.ledger_fits(visit) + looks.sideways(visit) + looks.readable(visit, "light") == []
        # Groups are made alike, and axe takes a minute for all of them.
        visit.page.evaluate(
            "document.querySelectorAll('.ledger-page:not(:has(#claim-c3b))').forEach(page => page.remove())"
        )
        assert looks.accessible(visit) == []


def test_without_scripts_all_is_listed_and_links_open(browser: Browser, address: str, records: list) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"file://{HTML}/{LEDGER}#claim-c8")
    assert page.locator(".ledger-filter").is_hidden()
    assert page.locator("details.claim > summary:visible").count() == len(records)
    assert page.locator("#claim-c8 dl").is_visible()  # opened by its link alone
    assert not page.locator("#claim-c9 dl").is_visible()
    heads = page.locator(".ledger-head:visible").all_inner_texts()
    assert len(heads) == len({(record["part"], record["source"]) for record in records})
    assert "rerun single_head/02_two_steps -o out.ipynb" in page.locator(".ledger-page:has(#claim-c8)").inner_text()
    context.close()


def test_on_paper_every_claim_is_open(browser: Browser, address: str, records: list) -> None:
    with ledger(browser, address, "?verdict=fails") as page:
        page.emulate_media(media="print")
        assert page.locator("details.claim dl:visible").count() == len(anchors(records, verdict="fails"))
        assert page.locator(".ledger-filter").is_hidden()


def test_a_page_says_how_its_own_claims_stand(browser: Browser, address: str, records: list) -> None:
    name = "notebooks/single_head/02_two_steps.html"
    own = [record for record in records if record["page"] == name]
    with visited(browser, address, name, PHONE) as visit:
        strip = visit.page.locator("h1 + .page-claims")
        counts = Counter(record["verdict"] for record in own)
        assert (
            strip.locator(".page-claims-words")
            .inner_text()
            .startswith(f"{len(own)} claims checked here: {counts['holds']} hold, {counts['fails']} fail as expected")
        )
        badges = strip.locator("a").evaluate_all("links => links.map(a => [a.textContent.split(' ')[0], a.className])")
        signs = {"holds": "verdict-holds", "fails": "verdict-fails", "outside its regime": "verdict-outside"}
        assert badges == [[record["id"], signs[record["verdict"]]] for record in own]
        assert looks.sideways(visit) == []
        row = visit.page.locator(".verdict-row:has(> b > a:text-is('C8b'))")
        row.locator("summary > span").first.click()  # the line opens, its id leads to the ledger
        assert row.locator("dt", has_text="Negative control").is_visible()
        assert looks.sideways(visit) == []
        row.locator("> b a").click()
        visit.page.locator("#claim-c8b[open]").wait_for()
