"""The ledger of the built book asked questions in Chromium; every expected number is counted in ledger.json."""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, Page

from bookkit.ledger.records import anchor, counts_sentence
from bookkit.ledger.sizes import size_of
from tests.browser import looks
from tests.browser.browsing import DESKTOP, HTML, PHONE, turned, visited

pytestmark = pytest.mark.browser

LEDGER = "book/ledger.html"
SHOWN = "[...document.querySelectorAll('details.claim')].filter(c => c.checkVisibility()).map(c => c.id)"


@pytest.fixture(scope="module")
def records() -> list[dict]:
    return json.loads((HTML / "ledger.json").read_text(encoding="utf-8"))  # made by `make html`


def anchors(records: list[dict], **wanted: object) -> set[str]:
    """Ends of the permalinks of the records with these values."""
    chosen = [r for r in records if all(r[key] == value for key, value in wanted.items())]
    return {record["permalink"].partition("#")[2] for record in chosen}


@contextmanager
def ledger(browser: Browser, address: str, rest: str = "") -> Iterator[Page]:
    with visited(browser, address, LEDGER + rest) as visit:
        yield visit.page
        assert visit.errors == visit.outside == []


def shown(page: Page) -> set[str]:
    return set(page.evaluate(SHOWN))


def test_every_facet_filters_counts_and_is_kept_in_the_address(browser: Browser, address: str, records: list) -> None:
    short = {"outside its regime": "outside", None: "none"}
    counts = {kind: Counter(short.get(r[kind], r[kind]) for r in records) for kind in ("paper", "source", "verdict")}
    small = "boxes => boxes.map(b => [b.value, Number(b.parentElement.querySelector('small').textContent)])"
    with ledger(browser, address) as page:
        said = page.locator(".ledger-count")
        assert said.inner_text().startswith(f"All {len(records)} claims: {counts['verdict']['holds']} hold, ")
        for kind, wanted in counts.items():
            assert dict(page.locator(f"[name={kind}]").evaluate_all(small)) == wanted
        page.locator("[name=paper][value=none]").check()
        assert shown(page) == anchors(records, paper=None)
        page.locator("[name=paper][value=none]").uncheck()
        # Two kinds: and. Two choices of a kind: or. Both are in the address, and a copy of it shows the same.
        page.locator("[name=verdict][value=fails]").check()
        for source in ("measured", "derived"):
            page.locator(f"[name=source][value={source}]").check()
        fails, holds = (
            anchors(records, verdict=verdict, source="measured") | anchors(records, verdict=verdict, source="derived")
            for verdict in ("fails", "holds")
        )
        assert shown(page) == fails
        assert said.inner_text().startswith(f"{len(fails)} of {len(records)} claims: ")
        assert page.locator(".ledger-squares a:not(.dim)").count() == len(fails) < counts["verdict"]["fails"]
        # A count says what its chip would give: other choices of its own kind do not narrow it.
        assert page.locator("[name=verdict][value=holds] + span small").inner_text() == str(len(holds))
        kept = page.evaluate("location.search")
        page.locator(".ledger-filter [type=reset]").click()
        page.wait_for_function("location.search === ''")
        assert shown(page) == anchors(records)
    with ledger(browser, address, kept) as page:
        assert shown(page) == fails
        assert page.locator("[name=source]:checked").count() == 2


def test_pages_parts_and_words(browser: Browser, address: str, records: list) -> None:
    with ledger(browser, address) as page:
        asked = page.locator(".ledger-filter [name=q]")
        for name in ("III-I17", "I17"):  # as shown, as registered
            asked.fill(name)
            assert "claim-i17" in shown(page)
        asked.fill("")
        page.locator("[name=page]").select_option("in_context/02_training")
        assert shown(page) == anchors(records, page="notebooks/in_context/02_training.html")
        page.locator("[name=page]").select_option("token_selection")
        assert shown(page) == anchors(records, part="token_selection")
        assert page.locator("section#part-i-a-single-head").is_hidden()
        page.locator("[name=page]").select_option("")
        claim = next(record for record in records if record["id"] == "C8")
        asked.fill(f"{claim['title'].upper()} {claim['function'].rpartition('.')[2]}")
        assert shown(page) == {"claim-c8"}
        asked.fill("\\tfrac12(a + b_k)")  # formulas are found by their source
        assert "claim-c8" in shown(page)
        asked.fill("no such words <b>")
        assert shown(page) == set()
        assert page.locator(".ledger-count").inner_text().startswith("Nothing matches.")
        assert page.locator("[name=verdict][value=holds] + span small").inner_text() == "0"


def test_the_least_sharp_claims_can_stand_first(browser: Browser, address: str, records: list) -> None:
    ids = {record["permalink"].partition("#")[2]: record for record in records}
    with ledger(browser, address, "?order=weakest&verdict=holds") as page:
        listed = [ids[name] for name in page.evaluate(SHOWN)]
        assert len(listed) == sum(record["verdict"] == "holds" for record in records)
        sizes = [-1 if (size := size_of(record)) is None else float(f"{size:.2g}") for record in listed]
        assert sizes == sorted(sizes, reverse=True)
        assert sizes[0] > 0.1
        assert sizes[-1] == -1
        page.locator("#claim-c8 > summary").click()  # away from its page, a claim says from where it is
        assert "single_head/02_two_steps" in page.locator("#claim-c8 pre").inner_text()
        page.locator(".ledger-filter [type=reset]").click()
        page.wait_for_function("location.search === ''")
        back = page.evaluate(SHOWN)
    with ledger(browser, address) as page:
        assert back == page.evaluate(SHOWN)
        assert len(back) == len(records)


def test_a_permalink_opens_its_claim(browser: Browser, address: str, records: list) -> None:
    for start, wanted in ((address, "claim-q31"), (address, "claim-i17"), (f"file://{HTML}", "claim-c8")):
        record = next(r for r in records if r["permalink"].endswith(f"#{wanted}"))
        with ledger(browser, start, f"#{wanted}") as page:
            claim = page.locator(f"#{wanted}")
            assert page.evaluate("[...document.querySelectorAll('details.claim[open]')].map(c => c.id)") == [wanted]
            top = f"document.getElementById('{wanted}').getBoundingClientRect().top"
            page.wait_for_function(f"{top} > 0 && {top} < 160")
            page.keyboard.press("Tab")  # who reads by keyboard is there, too
            assert page.evaluate("document.activeElement.closest('details')?.id") == wanted
            said = {
                term: " ".join(claim.locator(f"dt:text-is('{term}') + dd").inner_text().split())
                for term in ("Function", "Page", "Rule", "Registered")
            }
            chance = f"rejects a true claim with probability at most {record['false_alarm']:.1g}"
            assert said["Rule"].endswith(f"over {record['draws']} draws; {chance}")
            assert (said["Page"], said["Function"]) == (record["page_title"], record["function"])
            assert said["Registered"].startswith(("20", "again on 20"))
            assert claim.locator("pre").inner_text().split("\n") == record["command"].split(" && ")
            assert claim.locator("a:has(code)").get_attribute("href").startswith("https://github.com/")
            page.evaluate("navigator.clipboard.writeText = text => { window.copied = text; return Promise.resolve() }")
            claim.locator("button:text('Copy link')").click()
            assert page.evaluate("window.copied") == f"{start}/{LEDGER}#{wanted}"
            claim.locator("[role=status]:text-is('Copied.')").wait_for()


def test_a_permalink_wins_over_a_filter_that_hides_it(browser: Browser, address: str, records: list) -> None:
    asked = "?verdict=fails&source=nonsense&page=nowhere"
    with ledger(browser, address, f"{asked}#claim-c8") as page:
        assert page.locator("#claim-c8[open]").is_visible()
        assert shown(page) == anchors(records)
        page.goto(f"{address}/{LEDGER}{asked}")
        assert shown(page) == anchors(records, verdict="fails")  # names that are not known are passed over
        page.evaluate("location.hash = '#claim-t1'")
        page.locator("#claim-t1[open]").wait_for()
        assert page.evaluate("location.search") == ""
        page.evaluate("location.hash = '#%'")  # names nothing, and is no fault of the page's scripts
        page.locator("#claim-t1[open]").wait_for()
        page.goto(f"{address}/{LEDGER}{asked}")
        page.emulate_media(media="print")  # on paper every claim is open
        assert page.locator("details.claim dl:visible").count() == len(anchors(records, verdict="fails"))
        assert page.locator(".ledger-filter").is_hidden()


def test_all_of_it_by_keyboard(browser: Browser, address: str, records: list) -> None:
    with ledger(browser, address) as page:
        page.locator(".ledger-filter input").first.focus()
        for _ in range(page.locator(".ledger-filter input[name=paper]").count() + 1):
            page.keyboard.press("Tab")
        page.keyboard.press("Space")
        assert shown(page) == anchors(records, verdict="fails")
        outline = "getComputedStyle(document.activeElement.nextElementSibling).outlineStyle"
        assert page.evaluate(outline) == "solid"  # one sees where one is
        page.locator(".ledger-squares a.fails").first.focus()
        named = page.evaluate("document.activeElement.title")  # as in "R6: what it says (fails as expected)"
        assert named in {f"{r['id']}: {r['title']} (fails as expected)" for r in records if r["verdict"] == "fails"}
        opened = page.locator(page.evaluate("document.activeElement.hash") + "[open]")
        page.keyboard.press("Enter")
        opened.wait_for()
        assert page.evaluate("document.activeElement.matches('summary')")
        page.keyboard.press("Enter")
        assert opened.count() == 0
        page.locator(".ledger-filter [name=q]").press_sequentially("zzz")
        page.keyboard.press("Tab")  # the order
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")  # Reset
        page.wait_for_function(f"{SHOWN}.length === {len(records)}")


def test_an_open_claim_in_the_dark_can_be_read_by_all(browser: Browser, address: str) -> None:
    with visited(browser, address, f"{LEDGER}?verdict=fails#claim-r6", PHONE, "dark") as visit:
        visit.page.locator("#claim-r6[open] pre").wait_for()
        assert looks.loading(visit) + looks.sideways(visit) + looks.readable(visit, "dark") == []
        turned(visit, DESKTOP, "light")
        assert looks.ledger_fits(visit) + looks.sideways(visit) + looks.readable(visit, "light") == []
        # Groups are made alike, and axe takes a minute for all of them.
        others = "document.querySelectorAll('.ledger-page:not(:has(#claim-r6))').forEach(page => page.remove())"
        visit.page.evaluate(others)
        assert looks.accessible(visit) == []


def test_without_scripts_all_is_listed_and_links_open(browser: Browser, records: list) -> None:
    with visited(browser, HTML.as_uri(), f"{LEDGER}#claim-c8", java_script_enabled=False) as visit:
        page = visit.page
        assert page.locator(".ledger-filter").is_hidden()
        assert page.locator("details.claim > summary:visible").count() == len(records)
        assert page.locator("#claim-c8 dl").is_visible()  # opened by its link alone
        assert not page.locator("#claim-c8b dl").is_visible()
        heads = {(record["part"], record["source"]) for record in records}
        assert page.locator(".ledger-head:visible").count() == len(heads)
        command = "rerun single_head/02_two_steps -o out.ipynb --force"
        assert command in page.locator(".ledger-page:has(#claim-c8)").inner_text()


def test_a_page_says_how_its_own_claims_stand(browser: Browser, address: str, records: list) -> None:
    name = "notebooks/single_head/02_two_steps.html"
    own = [record for record in records if record["page"] == name]
    with visited(browser, address, name, PHONE) as visit:
        strip = visit.page.locator("h1 ~ .page-claims")
        assert strip.locator("summary").inner_text() == counts_sentence(own, "claim checked here")
        strip.locator("summary").click()
        badges = strip.locator("a").evaluate_all("links => links.map(a => [a.textContent.split(' ')[0], a.className])")
        signs = {"holds": "verdict-holds", "fails": "verdict-fails", "outside its regime": "verdict-outside"}
        assert badges == [[record["id"], signs[record["verdict"]]] for record in own]
        visit.page.locator("details.verdicts > summary").click()
        row = visit.page.locator(f".verdict-row:has(> b > a:text-is('{own[-1]['id']}'))")
        row.locator("summary > span").first.click()  # the line opens, its id leads to the ledger
        assert row.locator("dt", has_text="Negative control").is_visible()
        assert looks.sideways(visit) == []
        row.locator("> b a").click()
        visit.page.locator(f"#{anchor(own[-1]['id'])}[open]").wait_for()
