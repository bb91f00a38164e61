"""Prose quotes a page's figures and numbers; a quotation of what does not exist stops the build."""

import base64
from pathlib import Path

import nbformat
import pytest
from PIL import Image

from bookkit import book
from bookkit.results import RESULTS_TYPE
from bookkit.sphinx.notebook_quotes import find_figure, format_result
from tests.test_sphinx_extension import METADATA, PIXEL, drawn
from tests.tiny_book import make_book, page_text, write

RESULTS = {"error": -80.324, "error_low": -91.5, "error_high": -72.04, "fits": "all"}


def notebook() -> nbformat.NotebookNode:
    picture = drawn("fig-dots", "Dots *everywhere*")
    picture.outputs[0].metadata = {"image/png": {"width": 321, "height": 123}}
    numbers = nbformat.v4.new_output("display_data", {RESULTS_TYPE: RESULTS, "text/plain": "error"})
    cells = [
        nbformat.v4.new_markdown_cell("# Title"),
        picture,
        nbformat.v4.new_code_cell("record()", outputs=[numbers]),
    ]
    return nbformat.v4.new_notebook(cells=cells, metadata=METADATA)


def test_figures_are_found_by_name() -> None:
    found = find_figure(notebook(), "fig-dots")
    assert found == (base64.b64decode(PIXEL), "Dots *everywhere*", "What fig-dots shows", 321)
    with pytest.raises(LookupError, match="no figure called 'fig-lines'"):
        find_figure(notebook(), "fig-lines")


def test_results_are_formatted() -> None:
    assert format_result(notebook(), "error", ".1f") == "-80.3"
    assert format_result(notebook(), "fits", "") == "all"
    assert format_result(notebook(), "error", ".1f", interval=True) == "-80.3 [-91.5, -72.0]"
    with pytest.raises(LookupError, match="no result called 'fits_low'; there are error"):
        format_result(notebook(), "fits", "", interval=True)
    with pytest.raises(LookupError, match="no result called 'loss'; there are error, error_low, error_high, fits"):
        format_result(notebook(), "loss", "")
    with pytest.raises(ValueError, match="format"):
        format_result(notebook(), "fits", ".1f")


def built(root: Path, quotation: str) -> int:
    make_book(root, {"01_a": page_text("draw()")}, {"preface": f"# Preface\n\n{quotation}\n"})
    write(root / "notebooks" / "01_a.ipynb", nbformat.writes(notebook()))
    return book.main(["--stored", "--root", str(root)])


def test_quotations_appear_in_the_html(tmp_path: Path) -> None:
    figure = "```{notebook-figure} notebooks/01_a fig-dots\n```"
    small = figure.replace("dots", "dots\n:small:")
    assert built(tmp_path, f"Error {{named-result}}`notebooks/01_a error .1f interval`.\n\n{figure}\n\n{small}") == 0
    html = (tmp_path / "_build" / "html" / "book" / "preface.html").read_text()
    assert html.count('class="small-picture"') == 1
    assert '<span class="named-result">−80.3 [−91.5, −72.0]</span>' in html
    assert 'alt="What fig-dots shows"' in html
    assert "Dots <em>everywhere</em>" in html
    pictures = (tmp_path / "_build" / "html" / "_images").iterdir()
    assert {Image.open(path).convert("RGB").getpixel((0, 0)) for path in pictures} == {(255, 255, 255)}


def test_wrong_quotations_stop_the_build(tmp_path: Path) -> None:
    results = "{named-result}`notebooks/01_a loss`, {named-result}`notebooks/01_a error .1f range`"
    assert built(tmp_path, f"{results}\n\n```{{notebook-figure}} notebooks/01_a fig-lines\n```") != 0
    log = (tmp_path / "_build" / "render.log").read_text()
    for told in ("no result called 'loss'", "only the word interval may follow", "no figure called 'fig-lines'"):
        assert told in log
