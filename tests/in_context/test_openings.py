"""A page of Part III opens with its question and the answer, defines its model before it uses it, and sets its captions' formulas."""

import re

import jupytext
import pytest

from tests.house import ROOT

PAGES = sorted((ROOT / "notebooks" / "in_context").glob("*.md"))
RAW = re.compile(r"[α-ωΑ-Ω√²₀-₉½−]|\^|_h\b")  # what a caption outside of $...$ would show as typed


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_question_answer_and_claim_come_first_and_in_this_order(page):
    first = jupytext.read(page).cells[0].source
    blocks = first.split("\n\n")
    assert "?" in blocks[1], f"no question after the title: {blocks[1][:60]}"
    assert blocks[2].startswith("**Answer.**")
    assert blocks[3].startswith("> **Claim**")
    assert "> **Regime.**" in blocks[3]


@pytest.mark.parametrize(
    "page", PAGES[1:], ids=[page.stem for page in PAGES[1:]]
)  # the first builds the model up, section by section
def test_the_model_is_written_down_before_the_first_figure(page):
    before = []
    for cell in jupytext.read(page).cells:
        if cell.metadata.get("mystnb", {}).get("figure", {}).get("name"):
            break
        before.append(cell.source)
    text = "\n".join(before)
    for formula in (
        r"\beta\sim N(0,I_d)",
        r"y_i=\langle x_i,\beta\rangle",
        r"\hat y=\sum_{h=1}^HV_h",
        "*risk*",
        "*loss*",
    ):
        assert formula in text, formula


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_captions_set_their_formulas(page):
    for cell in jupytext.read(page).cells:
        caption = cell.metadata.get("mystnb", {}).get("figure", {}).get("caption", "")
        words = re.sub(r"\$[^$]+\$", "", caption)
        assert "$" not in words, caption
        assert not RAW.search(words), caption
