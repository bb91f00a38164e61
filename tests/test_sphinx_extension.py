"""The ledger: every claim with its verdict, in the book and as JSON; surprises stop the build."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import nbformat
import pytest

from attnlib import claims
from attnlib.publishing import book
from attnlib.publishing.execution import KERNELSPEC, LANGUAGE_INFO
from attnlib.publishing.sphinx_extension import CLAIMS_TYPE, SOURCES, anchor, counts_sentence, problems
from tests.tiny_book import make_book, page_text, write

METADATA = {"kernelspec": KERNELSPEC, "language_info": LANGUAGE_INFO}


def record(claim_id: str = "C1", **changes: object) -> dict:
    return {
        "id": claim_id,
        "title": "Two steps suffice",
        "statement": "After *two* steps $y_i f_i > 0$ for all $i$",
        "source": "paper",
        "wing": "single_head",
        "regime": "d >= 100",
        "predicted": "1",
        "measured": "0.99 +- 0.02",
        "rule": "statistics: 4 s.e.",
        "draws": 16,
        "verdict": "holds",
        "expected": "holds",
        "violated": "",
        "power_twin": {"wrong": "one step", "verdict": "fails"},
        "function": "attnlib.single_head.claims.interpolates",
        "numbers": {"accuracy": 0.99},
        **changes,
    }


def store(root: Path, page: str, records: list[dict]) -> None:
    """A stored notebook with the given checks."""
    output = nbformat.v4.new_output("display_data", {CLAIMS_TYPE: records, "text/plain": "table"})
    cells = [nbformat.v4.new_markdown_cell(f"# Title of {page}"), nbformat.v4.new_code_cell("show()", outputs=[output])]
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    write(
        root / "notebooks" / f"{page}.ipynb", nbformat.writes(nbformat.v4.new_notebook(cells=cells, metadata=METADATA))
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    prose = {
        "preface": "# Preface\n\nWe check {ledger-counts}`all`; {ledger-counts}`in_context`. See {ref}`claim-c2`.\n",
        "ledger": "# Ledger\n\n```{ledger}\n```\n",
        "one_wing": "# One wing\n\n```{ledger}\n:wing: in_context\n```\n",
    }
    pages = {"single_head/01_a": page_text("show()"), "in_context/01_b": page_text("show()")}
    return make_book(tmp_path, pages, prose)


class Text(HTMLParser):
    """The words of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.feed(html)

    def handle_data(self, data: str) -> None:
        self.words += data.split()

    def __str__(self) -> str:
        return " ".join(self.words)


def rows_of(html: str) -> dict[str, str]:
    """Anchor -> HTML of the row."""
    return dict(re.findall(r'<tr class="[^"]*" id="(claim-[^"]*)">(.*?)</tr>', html, flags=re.DOTALL))


def test_the_ledger_page_shows_every_claim(root: Path) -> None:
    fails = record("C2", verdict="fails", expected="fails", statement="It is *never* so", title="Known to be false")
    outside = record(
        "B1", verdict="outside its regime", expected="outside its regime", violated="d = 3 < 100", wing="in_context"
    )
    store(root, "single_head/01_a", [record(), fails])
    store(root, "in_context/01_b", [outside])
    assert book.main(["--stored", "--root", str(root)]) == 0

    html = root / "_build" / "html"
    ledger = (html / "book" / "ledger.html").read_text()
    rows = rows_of(ledger)
    assert list(rows) == ["claim-b1", "claim-c1", "claim-c2"]
    words = {name: str(Text(row)) for name, row in rows.items()}
    assert words["claim-c1"].startswith("C1 Two steps suffice Title of single_head/01_a After two steps")
    for part in (
        "Regime: d ≥ 100",
        "Source: paper",
        "0.99 ± 0.02",
        "Rule: statistics: 4 s.e. (16 draws)",
        "one step: fails",
    ):
        assert part in words["claim-c1"]
    assert '<span class="verdict verdict-holds">holds</span>' in rows["claim-c1"]
    assert '<span class="verdict verdict-fails">fails</span>' in rows["claim-c2"]
    assert '<span class="verdict verdict-outside">outside its regime</span>' in rows["claim-b1"]
    assert "as expected" in words["claim-c2"]
    assert "as expected" not in words["claim-c1"]
    assert "d = 3 < 100" in words["claim-b1"]
    assert r'<span class="math notranslate nohighlight">\(y_i f_i > 0\)</span>' in rows["claim-c1"].replace("&gt;", ">")
    assert "<em>never</em>" in rows["claim-c2"]
    assert 'href="../notebooks/single_head/01_a.html"' in rows["claim-c1"]
    assert 'href="#claim-c1"' in rows["claim-c1"]
    assert re.findall(r'class="ledger-wing rubric"[^>]*>([^<]*)<', ledger) == ["In context", "Single head"]

    assert list(rows_of((html / "book" / "one_wing.html").read_text())) == ["claim-b1"]
    preface = (html / "book" / "preface.html").read_text()
    assert "3 claims: 1 holds, 1 fails as expected, 1 is outside its regime" in str(Text(preface))
    assert "1 claim: 1 is outside its regime." in str(Text(preface)).replace(" .", ".")
    assert 'href="ledger.html#claim-c2"' in preface

    published = json.loads((html / "ledger.json").read_text())
    assert [(r["id"], r["page"]) for r in published] == [
        ("B1", "notebooks/in_context/01_b.html"),
        ("C1", "notebooks/single_head/01_a.html"),
        ("C2", "notebooks/single_head/01_a.html"),
    ]
    assert published[1] == {**record(), "page": "notebooks/single_head/01_a.html"}


def test_a_surprise_stops_the_build(root: Path, capfd: pytest.CaptureFixture) -> None:
    store(root, "single_head/01_a", [record(), record("C2", verdict="fails", measured="0.4 +- 0.1")])
    store(root, "in_context/01_b", [record("B1", wing="in_context")])
    for _ in range(2):
        assert book.main(["--stored", "--root", str(root)]) == 1
        told = capfd.readouterr().err
        assert "claim C2 (notebooks/single_head/01_a): verdict is 'fails', expected 'holds'" in told
        assert "measured 0.4 +- 0.1" in told
    assert not (root / "_build" / "html").exists()


def test_a_wing_without_checks_stops_the_build(root: Path, capfd: pytest.CaptureFixture) -> None:
    store(root, "single_head/01_a", [record(), record("C2")])
    store(root, "in_context/01_b", [])
    assert book.main(["--stored", "--root", str(root)]) == 1
    assert "no check of wing 'in_context'; wings: single_head" in capfd.readouterr().err


# Without Sphinx: the rules, one by one.


def on_page(*records: dict) -> list[dict]:
    return [{**one, "page": "notebooks/p"} for one in records]


def test_expected_verdicts_are_no_problem() -> None:
    twin_holds = {"wrong": "w", "verdict": "holds"}  # where the claim itself is known to fail, its twin may hold
    assert problems(on_page(record(), record("C2", verdict="fails", expected="fails", power_twin=twin_holds))) == []


@pytest.mark.parametrize("verdict", ["holds", "fails", "outside its regime"])
def test_any_other_verdict_is_a_problem(verdict: str) -> None:
    expected = "fails" if verdict == "holds" else "holds"
    [found] = problems(on_page(record(verdict=verdict, expected=expected, violated="d = 3 < 9")))
    assert f"verdict is {verdict!r}, expected {expected!r}" in found
    assert "d = 3 < 9" in found


def test_a_check_that_cannot_fail_is_a_problem() -> None:
    [found] = problems(on_page(record(power_twin={"wrong": "one step", "verdict": "holds"})))
    assert "power twin (one step) holds too" in found


def test_an_id_used_twice_is_a_problem() -> None:
    [found] = problems(on_page(record("C1"), record("c1")))
    assert "claim-c1 is recorded 2 times" in found


def test_anchors_are_the_promised_ones() -> None:
    assert [anchor(name) for name in ("C8", "C12b", "B 3.1")] == ["claim-c8", "claim-c12b", "claim-b-3-1"]


def test_the_sentence_counts_every_claim_once() -> None:
    many = [record() for _ in range(14)]
    many += [record(verdict="fails", expected="fails") for _ in range(2)]
    many += [record(verdict="outside its regime", expected="outside its regime") for _ in range(2)]
    assert counts_sentence(many) == "18 claims: 14 hold, 2 fail as expected, 2 are outside their regime"
    assert counts_sentence([*many, record(verdict="fails")]).endswith("regime, 1 against expectation")
    assert counts_sentence([record()]) == "1 claim: 1 holds"
    assert counts_sentence([]) == "0 claims"


def test_the_type_of_checks_is_that_of_the_pages() -> None:
    assert CLAIMS_TYPE == claims.CLAIMS_TYPE
    assert set(SOURCES) == {str(source) for source in claims.Source}


def test_sources_are_shown_apart(tmp_path: Path) -> None:
    prose = {
        "preface": "# Preface\n\n{ledger-counts}`in_context derived`; {ledger-counts}`all conjecture`.\n",
        "ledger": "# Ledger\n\n```{ledger}\n:wing: in_context\n:apart:\n```\n",
    }
    root = make_book(tmp_path, {"in_context/01_b": page_text("show()")}, prose)
    sources = {"B1": "measured", "B2": "conjecture", "B3": "derived", "B4": "measured"}
    store(root, "in_context/01_b", [record(k, source=v, wing="in_context") for k, v in sources.items()])
    assert book.main(["--stored", "--root", str(root)]) == 0
    ledger = (root / "_build" / "html" / "book" / "ledger.html").read_text()
    titles = re.findall(r'class="ledger-wing rubric"[^>]*>([^<]*)<', ledger)
    assert titles == ["In context: derived", "In context: measured", "In context: conjectures"]
    assert list(rows_of(ledger)) == ["claim-b3", "claim-b1", "claim-b4", "claim-b2"]
    assert '<span class="source source-conjecture">conjecture</span>' in rows_of(ledger)["claim-b2"]
    preface = str(Text((root / "_build" / "html" / "book" / "preface.html").read_text()))
    assert preface.count("1 claim: 1 holds") == 2
