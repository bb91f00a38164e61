"""What is shown of a page elsewhere, on hover cards, by search and by search engines: read off small pages as Sphinx writes them."""

import pytest
from docutils.core import publish_doctree

from bookkit.formulas.drawing import mathml
from bookkit.sphinx import hover_cards, search
from bookkit.sphinx.descriptions import LONGEST, described

BOX = r"""<div class="proof theorem admonition" id="thm-trap">
<p class="admonition-title"><span class="caption-number">Theorem 3 </span> (The trap · derived)</p>
<p class="box-claims">Checked by <a href="ledger.html#claim-c8">C8</a></p><section class="theorem-content" id="proof-content">
<p>If <span class="math notranslate nohighlight" data-tex="a&lt;b"><math><mi>a</mi></math></span>, then,
by <a class="reference" href="#x"><span class="std">(4)</span></a>,</p>
<div class="math notranslate nohighlight" id="equation-eq-x">
<span class="eqno">(4)<a class="headerlink" href="#equation-eq-x">#</a></span><span class="formula"><math><mi>x</mi></math></span></div>
<p>Nothing else.</p>
</section></div>"""
NOTATION = r"""<section id="a"><h2>A single head<a class="headerlink" href="#a">#</a></h2>
<table><thead><tr><th>symbol</th><th>meaning</th></tr></thead>
<tr><td><p><span class="math x" data-tex="\mu_1,\mu_2"><math></math></span></p></td><td><p>the two signals</p></td></tr>
<tr><td><p><span class="math x" data-tex="\kappa=n\,\mathrm{SNR}^2"><math></math></span></p></td><td><p>a ratio</p></td></tr>
<tr><td><p><span class="math x" data-tex="\tau"><math></math></span></p></td><td><p>one thing</p></td></tr>
<tr><td><p><span class="math x" data-tex="\tau"><math></math></span></p></td><td><p>and another</p></td></tr></table></section>
<section id="b"><span id="c"></span><h2>Token selection<a class="headerlink" href="#b">#</a></h2>
<table><thead><tr><th>symbol</th><th>meaning</th></tr></thead>
<tr><td><p><span class="math x" data-tex="\kappa"><math></math></span></p></td><td><p>a slope</p></td></tr></table></section>
<section id="d"><h2>The same letter, different meaning<a class="headerlink" href="#d">#</a></h2>
<table><thead><tr><th>letter</th><th>meaning</th></tr></thead>
<tr><td><p><span class="math x" data-tex="g"><math></math></span></p></td><td><p>many</p></td></tr></table></section>"""
RECORD = {
    "id": "C8", "title": "margins after $t$ steps", "verdict": "fails", "expected": "fails", "violated": "",
    "part": "single_head",
    "statement": "the *mean* is $a_{n}<b$ {cite:t}`it`", "measured": "1 " * 200, "permalink": "book/ledger.html#claim-c8",
}  # fmt: skip


def test_a_box_is_its_title_and_its_first_paragraph_with_the_formula() -> None:
    ((label, card),) = hover_cards.boxes(BOX)
    assert label == "thm-trap"
    assert card == (
        '<p class="card-title">Theorem 3 (The trap · derived)</p>'
        '<p>If <span class="math"><math><mi>a</mi></math></span>, then, by (4),</p> <div class="math"> <math><mi>x</mi></math></div>'
    )


def test_a_claim_is_title_verdict_statement_and_one_line_of_what_was_measured() -> None:
    card = hover_cards.claim_card(RECORD)
    assert (
        f'C8: margins after <span class="math">{mathml("t")}</span> steps <span class="verdict verdict-fails">' in card
    )
    assert f'<p>the mean is <span class="math">{mathml("a_{n}<b")}</span> it</p>' in card
    assert card.endswith("...</p>")
    assert len(card) < 800
    assert "data-tex" not in card


def test_a_symbol_has_a_card_where_its_part_gives_it_one_meaning() -> None:
    found = hover_cards.symbols(NOTATION)
    assert set(found["single_head"]) == {r"\mu_1", r"\mu_2", r"\kappa"}  # \tau has two meanings
    assert found["single_head"][r"\kappa"].endswith(": a ratio</p>")
    assert found["token_selection"][r"\kappa"].endswith(": a slope</p>")
    assert not any("g" in table for table in found.values())


def test_a_page_is_about_what_it_says_often_and_others_seldom() -> None:
    texts = {
        "one": "sign gradient and sign gradient of the head",
        "two": "the gradient of the head and the head",
        "three": "the head",
    }
    found = search.subjects(texts, {}, {})
    assert found["one"]["sign gradient"] == search.STRONGEST
    assert "sign gradient" not in found["two"]
    assert "head" not in found["two"]  # every page has it
    summary = search.described('<meta content="A sign &amp; its head" name="description" />')
    names = {"two": search.named('<meta content="Sign-gradient, run" name="keywords" />')}
    again = search.subjects(texts, {"three": summary, "one": {"sign gradient"}}, names)
    assert again["three"]["head"] == search.DESCRIBED
    assert again["one"]["sign gradient"] == search.STRONGEST + search.DESCRIBED
    assert [again["two"][name] for name in ("sign gradient", "run")] == [search.NAMED] * 2
    assert search.Words({}).split("see 2410.07746, 10.5 and 2024") == [
        "see",
        "arxiv2410x07746",
        "10",
        "5",
        "and",
        "2024",
    ]


def test_excerpts_are_the_article_without_scripts_and_marks() -> None:
    heading = '<h1>A &amp; B<a class="headerlink" href="#a">#</a></h1>'
    badges = '<details class="page-claims"><summary>2 claims</summary><ul><li><a href="#c">C1</a></li></ul></details>'
    page = f'<nav>menu</nav><article class="bd-article">{heading}{badges}<script>no</script><ul><li>text</li></ul></article>'
    assert search.text_of(page) == "A & B text"
    formula = "<math><msup><mi>x</mi><mn>2</mn></msup></math>"
    assert search.text_of(f'<article class="bd-article"><p>so {formula} is</p></article>') == "so x2 is"


@pytest.mark.parametrize(
    ("paragraph", "wanted"),
    [
        ("Short *and* done.", "Short and done."),
        ("One sentence. " + "word " * 60, "One sentence."),
        ("word " * 60, "word " * 39 + "word …"),
    ],
)
def test_a_description_is_the_first_paragraph_cut_behind_a_sentence_or_a_word(paragraph: str, wanted: str) -> None:
    found = described(publish_doctree(f"Title\n=====\n\n.. note:: not this\n\n{paragraph}\n\nNor this.\n"))
    assert found == wanted
    assert len(found) <= LONGEST + 2
