"""Prose quotes a page's figures and numbers. In a built book: test_reference; what does not exist stops it: test_book_build."""

import base64

import nbformat
import pytest

from bookkit.results import RESULTS_TYPE
from bookkit.sphinx.notebook_quotes import find_figure, format_result
from tests.test_sphinx_extension import METADATA, PIXEL, drawn

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
