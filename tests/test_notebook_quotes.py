"""Prose quotes a page's figures and numbers; a quotation of what does not exist stops the build."""

import base64
import io
from pathlib import Path

import nbformat
import pytest
from PIL import Image

from bookkit import book
from bookkit.pages.one_page import KERNELSPEC, LANGUAGE_INFO
from bookkit.results import RESULTS_TYPE
from bookkit.sphinx.notebook_quotes import find_figure, format_result
from tests.tiny_book import make_book, page_text, write

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def notebook() -> nbformat.NotebookNode:
    picture = nbformat.v4.new_output(
        "display_data",
        {"image/png": base64.b64encode(PIXEL).decode(), "text/plain": "figure"},
        metadata={"image/png": {"width": 321, "height": 123}},
    )
    results = {"error": -80.324, "error_low": -91.5, "error_high": -72.04, "fits": "all"}
    numbers = nbformat.v4.new_output("display_data", {RESULTS_TYPE: results, "text/plain": "error"})
    meta = {"mystnb": {"figure": {"name": "fig-dots", "caption": "Dots *everywhere*"}, "image": {"alt": "Blue dots"}}}
    cells = [
        nbformat.v4.new_markdown_cell("# Title"),
        nbformat.v4.new_code_cell("draw()", outputs=[picture], metadata=meta),
        nbformat.v4.new_code_cell("record()", outputs=[numbers]),
    ]
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    return nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": KERNELSPEC, "language_info": LANGUAGE_INFO})


def test_figures_are_found_by_name():
    assert find_figure(notebook(), "fig-dots") == (PIXEL, "Dots *everywhere*", "Blue dots", 321)
    with pytest.raises(LookupError, match="no figure called 'fig-lines'"):
        find_figure(notebook(), "fig-lines")


def test_results_are_formatted():
    assert format_result(notebook(), "error", ".1f") == "-80.3"
    assert format_result(notebook(), "fits", "") == "all"
    assert format_result(notebook(), "error", ".1f", interval=True) == "-80.3 [-91.5, -72.0]"
    with pytest.raises(LookupError, match="no result called 'fits_low'; there are error"):
        format_result(notebook(), "fits", "", interval=True)
    with pytest.raises(LookupError, match="no result called 'loss'; there are error, error_low, error_high, fits"):
        format_result(notebook(), "loss", "")
    with pytest.raises(ValueError, match="format"):
        format_result(notebook(), "fits", ".1f")


def _book(root: Path, quotation: str) -> Path:
    make_book(root, {"01_a": page_text("draw()")}, {"preface": f"# Preface\n\n{quotation}\n"})
    write(root / "notebooks" / "01_a.ipynb", nbformat.writes(notebook()))
    return root


def test_quotations_appear_in_the_html(tmp_path: Path):
    quotation = (
        "Error {named-result}`notebooks/01_a error .1f interval`.\n\n```{notebook-figure} notebooks/01_a fig-dots\n```"
    )
    assert book.main(["--stored", "--root", str(_book(tmp_path, quotation))]) == 0
    html = (tmp_path / "_build" / "html" / "book" / "preface.html").read_text()
    assert '<span class="named-result">−80.3 [−91.5, −72.0]</span>' in html
    assert 'alt="Blue dots"' in html
    assert "Dots <em>everywhere</em>" in html
    pictures = [Image.open(path).convert("RGBA") for path in (tmp_path / "_build" / "html" / "_images").iterdir()]
    assert {image.tobytes() for image in pictures} == {Image.open(io.BytesIO(PIXEL)).convert("RGBA").tobytes()}


def test_wrong_quotations_stop_the_build(tmp_path: Path, capsys: pytest.CaptureFixture):
    results = "{named-result}`notebooks/01_a loss`, {named-result}`notebooks/01_a error .1f range`"
    quotation = f"{results}\n\n```{{notebook-figure}} notebooks/01_a fig-lines\n```"
    assert book.main(["--stored", "--root", str(_book(tmp_path, quotation))]) != 0
    log = (tmp_path / "_build" / "render.log").read_text()
    assert "no result called 'loss'" in log
    assert "only the word interval may follow" in log
    assert "no figure called 'fig-lines'" in log
