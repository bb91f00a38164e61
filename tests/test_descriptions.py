"""What a search engine shows of a page, and the picture that stands for the book."""

import base64
import json
from pathlib import Path

import pytest
from docutils.core import publish_doctree

from bookkit.sphinx.descriptions import LONGEST, described

ROOT = Path(__file__).parents[1]


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


def test_the_picture_of_the_book_is_the_one_that_its_page_computes() -> None:
    notebook = json.loads((ROOT / "notebooks/single_head/02_two_steps.ipynb").read_text(encoding="utf-8"))
    (cell,) = [c for c in notebook["cells"] if "fig-two-steps-margins" in json.dumps(c["metadata"])]
    (drawn,) = [output["data"]["image/png"] for output in cell["outputs"] if "image/png" in output.get("data", {})]
    assert base64.b64decode(drawn) == (ROOT / "book/assets/preview.png").read_bytes()
