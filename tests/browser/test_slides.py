"""Slides and handout printed from the built lecture: one sheet each, titles on them, the speaker's words not."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from bs4 import BeautifulSoup
from pypdf import PdfReader

from bookkit.pdf import slides
from bookkit.pdf.printing import PdfError
from tests.browser.browsing import HTML
from tests.browser.test_print import ROOT, letters

pytestmark = pytest.mark.browser

LECTURE = HTML / "book" / "teaching.html"


def made(folder: Path, html: Path) -> int:
    """Print in a thread of its own: the browser of the other tests runs in this one, and Playwright allows one in each."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(slides.make, ROOT, slides.PAGE, folder, html).result()


def test_one_sheet_for_each_slide_and_one_for_the_handout(tmp_path: Path) -> None:
    count = made(tmp_path, HTML)
    page = BeautifulSoup(LECTURE.read_text(encoding="utf-8"), "html.parser").select(".slide")
    shown, handout = (PdfReader(tmp_path / name).pages for name in (slides.SLIDES, slides.HANDOUT))
    assert (len(shown), len(handout)) == (count, 1) == (len(page), 1)
    for sheet, slide in zip(shown, page, strict=True):
        assert float(sheet.mediabox.width) / float(sheet.mediabox.height) == pytest.approx(16 / 9, rel=0.01)
        text = letters(sheet.extract_text())
        # Paper has other signs for the letters of a formula: the words before the first one are compared.
        words = slide.select_one(".slide-title").decode_contents().partition("<span")[0]
        assert letters(BeautifulSoup(words, "html.parser").get_text()) in text
        assert letters(slide.select_one(".slide-spoken p:nth-of-type(2)").get_text())[:40] not in text
        assert "\\(" not in text


def test_a_slide_that_does_not_fit_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    whole = LECTURE.read_text(encoding="utf-8")
    line = BeautifulSoup(whole, "html.parser").select_one(".slide-line").get_text()
    html = tmp_path / "html"
    (html / "book").mkdir(parents=True)
    (html / "_static").symlink_to(HTML / "_static")
    (html / "book" / "teaching.html").write_text(whole.replace(line, " ".join([line] * 40), 1), encoding="utf-8")
    with pytest.raises(PdfError, match=r"1 slides hold more than fits, the first is 'Some of the labels"):
        made(tmp_path / "out", html)
    assert list((tmp_path / "out").iterdir()) == []
