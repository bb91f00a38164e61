"""The ledger in a built book: every claim with its verdict, in pages and as JSON; surprises stop the build."""

import json
import re
from html import unescape
from pathlib import Path

import nbformat
import pytest
import torch
from docutils import nodes
from docutils.utils import new_document

from bookkit import book, rules
from bookkit.formulas.drawing import element, mathml
from bookkit.pages.one_page import KERNELSPEC, LANGUAGE_INFO
from bookkit.results import CLAIMS_TYPE
from bookkit.sphinx import lead_figure
from tests.tiny_book import as_renewed, make_book, page_text, write

# One white pixel.
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGP4DwABAQEAsTj2FAAAAABJRU5ErkJggg=="
METADATA = {"kernelspec": KERNELSPEC, "language_info": LANGUAGE_INFO}


# A mean of 16 draws, claimed to be 1.
NEAR = rules.agrees(torch.linspace(0.97, 1.01, 16), 1.0).parts[0].as_record()


def record(claim_id: str = "C1", **changes: object) -> dict:
    return {
        "id": claim_id,
        "title": "Two steps suffice",
        "statement": "After *two* steps $y_i f_i > 0$ for all $i$",
        "source": "paper",
        "part": "single_head",
        "regime": "d >= 100",
        "predicted": "1",
        "measured": "0.99 +- 0.02",
        "rule": "statistics: 4 s.e.",
        "draws": 16,
        "verdict": "holds",
        "expected": "holds",
        "violated": "",
        "negative_control": {"wrong": "one step", "verdict": "fails", "told": [True]},
        "parts": [NEAR],
        "function": "attnbook.single_head.two_steps.claims.interpolates",
        "numbers": {"accuracy": 0.99},
        **changes,
    }


def drawn(name: str, caption: str, *tags: str) -> nbformat.NotebookNode:
    """A cell that drew a picture."""
    figure = {"figure": {"name": name, "caption": caption}, "image": {"alt": f"What {name} shows"}}
    output = nbformat.v4.new_output("display_data", {"image/png": PIXEL, "text/plain": "figure"})
    return nbformat.v4.new_code_cell("plot()", outputs=[output], metadata={"mystnb": figure, "tags": list(tags)})


def hidden(source: str, *tags: str, **more: list) -> nbformat.NotebookNode:
    return nbformat.v4.new_code_cell(source, metadata={"tags": list(tags)}, **more)


def store(root: Path, page: str, records: list[dict], table: str = "", *more: nbformat.NotebookNode) -> None:
    """A stored notebook with the given checks, the HTML table shown with them, and more cells before these."""
    shown = {"text/html": table} if table else {}
    output = nbformat.v4.new_output("display_data", {CLAIMS_TYPE: records, "text/plain": "table", **shown})
    title = nbformat.v4.new_markdown_cell(f"# Title of {page}\n\nThe question.\n\n> **Claim.** Something.")
    cells = [title, *more, hidden("show()", "hide-cell", outputs=[output])]
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    write(root / "notebooks" / f"{page}.ipynb", as_renewed(nbformat.v4.new_notebook(cells=cells, metadata=METADATA)))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    prose = {
        "preface": "# Preface\n\nWe check {ledger-counts}`all`; {ledger-counts}`in_context`; of these {ledger-counts}`in_context derived`. "
        "Alone: {ledger-counts}`all claims`/{ledger-counts}`all holds`. See {ref}`claim-c2`.\n",
        "ledger": "# Ledger\n\n```{ledger-filter}\n```\n\n```{ledger-overview}\n```\n\n```{ledger}\n```\n",
        "one_part": "# One part\n\n```{ledger}\n:part: in_context\n```\n",
    }
    pages = {"single_head/01_a": page_text("show()"), "in_context/01_b": page_text("show()")}
    return make_book(tmp_path, pages, prose)


def words_of(html: str) -> str:
    """The words of a page or of a part of it."""
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", html)).split())


def claims_of(html: str) -> dict[str, str]:
    """Anchor -> HTML of the claim."""
    return dict(re.findall(r'<details class="claim" id="(claim-[^"]*)"[^>]*>(.*?)</details>', html, flags=re.DOTALL))


def facts_of(claim: str) -> dict[str, str]:
    """Name -> words of the facts of a claim."""
    found = re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", claim, flags=re.DOTALL)
    return {name: words_of(said) for name, said in found}


def test_the_book_shows_every_claim_and_says_where_each_page_stands(root: Path) -> None:
    fails = record(
        "C2",
        verdict="fails",
        expected="fails",
        statement="It is *never* <img src=x> so\n\n<script>0</script>",
        title="Known to be <false>",
        negative_control={"wrong": "the bound $10^{-6}$, which does hold", "verdict": "holds"},
        source="authors' code",
    )
    outside = record(
        "B1", verdict="outside its regime", expected="outside its regime", violated="d = 3 < 100", part="in_context"
    )
    others = [record(k, source=v, part="in_context") for k, v in {"B2": "conjecture", "B3": "derived"}.items()]
    table = (
        "<div class='verdict-table'><b>C2</b><details><summary><span>below $10^{-600}$ &amp; C2</span></summary><dl></dl></details>"
        "<b>C9</b><details><summary><span>5 $ or 6 $</span></summary><dl></dl></details></div>"
    )
    cells = (
        hidden("import this", "hide-input"), hidden("n: int = 2  # samples [1, 9]", "hide-input", "parameters"),
        nbformat.v4.new_markdown_cell("Some words. " * 220),
        drawn("fig-one", "A first line."), drawn("fig-two", "Of order $(nd)^{-1/4}$. More.", "lead"),
    )  # fmt: skip
    store(root, "single_head/01_a", [record(), fails], table, *cells)
    store(root, "in_context/01_b", [outside, *others])
    assert book.main(["--stored", "--root", str(root)]) == 0

    html = root / "_build" / "html"
    ledger = (html / "book" / "ledger.html").read_text()
    shown = claims_of(ledger)
    # The parts in reading order, in each the sources as they are shown apart.
    assert list(shown) == ["claim-c1", "claim-c2", "claim-b1", "claim-b3", "claim-b2"]
    heads = [words_of(head) for head in re.findall(r'<h3 class="ledger-head">(.*?)</h3>', ledger)]
    assert heads[1:3] == [
        "A single head: read off the authors\u2019 code 1",
        "In-context regression: said by a paper 1",
    ]
    assert words_of(shown["claim-c1"]).startswith("C1 Two steps suffice holds After two steps")
    assert facts_of(shown["claim-c1"]) == {
        "Regime": "d ≥ 100",
        "Sharpness": "to 2.2 %",
        "Predicted": "1",
        "Measured": "0.99 ± 0.02",
        "Rule": "statistics: 4 s.e., over 16 draws",
        "Negative control": "one step: fails, told apart",
        "Numbers": "accuracy 0.99",
        "Function": "attnbook.single_head.two_steps.claims.interpolates",
    }
    assert f">{mathml('y_i f_i > 0')}</span>" in shown["claim-c1"]
    for claim, badge in {"c1": "holds", "c2": "fails as expected", "b1": "outside its regime"}.items():
        assert f'<span class="verdict verdict-{badge.split()[0]}">{badge}</span>' in shown[f"claim-{claim}"]
    assert re.search(r"<em>never</em> &lt;img src=x&gt; so</p>\s*<p>&lt;script&gt;0&lt;/script&gt;", shown["claim-c2"])
    assert "<span>Known to be &lt;false&gt;</span>" in shown["claim-c2"]
    assert facts_of(shown["claim-c2"])["Negative control"].endswith("which does hold: holds, told apart")
    assert facts_of(shown["claim-b1"])["Regime"] == "d ≥ 100. Broken here: d = 3 < 100"
    assert "--source: &#x27;authors\\&#x27; code&#x27;; --part: &#x27;Part I&#x27;" in ledger
    pages = re.findall(r'<div class="ledger-page" data-page="([^"]*)"><p[^>]*><a href="([^"]*)">([^<]*)<', ledger)
    assert pages[0] == ("single_head/01_a", "../notebooks/single_head/01_a.html", "Title of single_head/01_a")
    assert "<code>.venv/bin/python -m attnlib rerun in_context/01_b -o out.ipynb --force</code>" in ledger
    squares = re.findall(r'<a href="#claim-([^"]*)"(?: class="(\w+)")?>', ledger)
    assert squares == [("c1", ""), ("c2", "fails"), ("b1", "outside"), ("b2", ""), ("b3", "")]
    papers = re.findall(r'name="paper" value="([^"]*)"><span>([^<]*) <small>(\d+)', ledger)
    assert papers == [("2410.07746", "I · 2410.07746", "2"), ("2503.12734", "III · 2503.12734", "3")]
    assert "All 5 claims: 3 hold, 1 fails as expected, 1 is outside its regime." in ledger

    assert list(claims_of((html / "book" / "one_part.html").read_text())) == ["claim-b1", "claim-b3", "claim-b2"]
    preface = (html / "book" / "preface.html").read_text()
    words = words_of(preface).replace(" .", ".").replace(" ;", ";")
    assert "We check 5 claims: 3 hold, 1 fails as expected, 1 is outside its regime; 3 claims: 2 hold, " in words
    assert "of these 1 claim: 1 holds. Alone: 5 / 3. See C2" in words
    assert 'href="ledger.html#claim-c2"' in preface
    assert [("ledger.js" in text) for text in (ledger, preface)] == [True, False]

    own = (html / "notebooks" / "single_head" / "01_a.html").read_text()
    strip = own[own.index('<details class="page-claims"') :]
    assert own.index("</h1>") < own.index('<details class="page-claims"') < own.index("verdict-table")
    assert "2 claims checked here: 1 holds, 1 fails as expected" in strip
    # The ledger that registered the claims first is the one linked.
    assert re.search(r'<a class="verdict-fails" title="[^"]*" href="../../book/ledger.html#claim-c2">C2<span', strip)
    assert "<b><a href='../../book/ledger.html#claim-c2'>C2</a></b><details>" in own
    assert "<b>C9</b><details><summary><span>5 $ or 6 $</span>" in own
    assert """<div class="output text_html"><div class='verdict-table'>""" in own  # the links leave what is around them
    assert f"below {element('10^{-600}')} &amp; C2</span>" in own

    # A formula in a caption is typeset. The one of the cell tagged lead is far, so it stands on the first screen, too.
    formula = element("(nd)^{-1/4}")
    figures = re.findall(r"<figure.*?</figure>", own, flags=re.DOTALL)
    seen = ["".join(w[0] for w in ("lead-figure", 'id="fig-two"', formula) if w in figure) for figure in figures]
    assert seen == ["l<", "", "i<"]
    assert re.search(r'<figure class="lead-figure screen-only"><img [^>]*alt="What fig-two shows"', figures[0])
    assert re.search(
        r'<figcaption>Of order .*</math></span>\.</span> <a href="#fig-two">The figure in its place</a>', figures[0]
    )
    assert own.index("The question.") < own.index("lead-figure") < own.index("Something.")
    assert re.findall(r"Fig\. \d+", own) == ["Fig. 1", "Fig. 2"]

    # Neighbours of which nothing is seen are one block.
    folds = re.findall(r'<details class="(hide[^"]*)"><summary>(.*?)</summary>(.*?)</details>', own, re.S)
    assert [(name, words) for name, words, _ in folds] == [
        ("hide", "Imports and parameters"),
        ("hide verdicts", "Verdicts, claim by claim: 1 holds, 1 fails as expected"),
    ]
    assert folds[0][2].count('<div class="cell tag_') == 2
    assert own.index("Something.") < own.index("Imports and parameters") < own.index("Some words.")
    assert "C2</a></b>" in folds[1][2]

    without = (html / "notebooks" / "in_context" / "01_b.html").read_text()
    assert "lead-figure" not in without  # a page without a picture

    published = json.loads((html / "ledger.json").read_text())
    assert [each["id"] for each in published] == ["B1", "B2", "B3", "C1", "C2"]
    # Of one record all is said in test_ledger_records; no claim of this book is registered.
    assert published[3].items() >= (record() | {"page": "notebooks/single_head/01_a.html", "registered": None}).items()


def test_what_a_ledger_or_a_map_must_not_hold_stops_the_build(root: Path, capfd: pytest.CaptureFixture) -> None:
    store(root, "single_head/01_a", [record(), record("C2", verdict="fails", measured="0.4 +- 0.1")])
    store(root, "in_context/01_b", [])
    box = ":::{prf:theorem} T · paper\n:label: thm-few\n\nIt is so.\n:::\n"
    roles = "{ledger-counts}`all blue`; {ledger-counts}`in_context holds`"
    write(root / "book" / "preface.md", f"# Preface\n\n{roles}.\n\n{box}")
    assert book.main(["--stored", "--root", str(root)]) == 1
    told = capfd.readouterr().err
    assert "claim C2 (notebooks/single_head/01_a): verdict is 'fails', expected 'holds'" in told
    assert "measured 0.4 +- 0.1" in told
    assert "ledger: no check of part 'in_context'; parts: single_head" in told
    assert "ledger-counts 'in_context holds': no check of part 'in_context'; parts: single_head" in told
    assert (
        "ledger-counts 'all blue': unknown word 'blue'; there are all, single_head, 2410.07746, single_head/01_a"
        in told
    )
    assert "no claim checks the box thm-few (book/preface)" in told  # of the map, see test_map
    assert not (root / "_build" / "html").exists()


def test_the_picture_that_leads_a_page_is_the_tagged_one_or_on_the_path_the_first() -> None:
    def figure(name: str, *classes: str) -> nodes.container:
        return nodes.container("", nodes.figure(ids=[f"fig-{name}"]), classes=list(classes))

    far, late = nodes.paragraph(text="Words. " * 500), figure("late", lead_figure.TAG)
    page = new_document("page")
    page += [figure("early"), far, figure("first"), late]
    for tagged, untagged, wanted in (
        (True, False, "late"),
        (True, True, "late"),
        (False, False, ""),
        (False, True, ""),
    ):
        late["classes"] = [lead_figure.TAG] if tagged else []
        led = lead_figure.lead(page, untagged)
        assert (led["ids"] if led else []) == (
            [f"fig-{wanted}"] if wanted else []
        )  # the first stands on the first screen
    page.remove(page[0])
    assert lead_figure.lead(page, untagged=True)["ids"] == ["fig-first"]
