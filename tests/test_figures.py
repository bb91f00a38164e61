"""Figures: one meaning per colour, and bars that are what they say."""

import base64
from io import BytesIO

import matplotlib as mpl
import nbformat
import numpy as np
import pytest
from nbclient import NotebookClient
from PIL import Image

mpl.use("Agg")
import matplotlib.pyplot as plt

from bookkit.drawn import read
from bookkit.figures import COLOURS, measured, theory


def test_a_notebook_stores_a_sharp_picture_that_says_what_was_drawn() -> None:
    code = "from bookkit.figures import use_style\nuse_style()\nimport matplotlib.pyplot as plt\nplt.subplots(1, 2); plt.show()"
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    NotebookClient(notebook, kernel_name="python3").execute()
    (output,) = notebook.cells[0].outputs
    image = Image.open(BytesIO(base64.b64decode(output.data["image/png"])))
    assert {"panel 1", "panel 2"} < set(read(image))
    assert output.metadata["image/png"]["width"] == pytest.approx(image.width / 2, abs=1)


# --- one style -----------------------------------------------------------------------------------------------------------


def test_bars_are_two_standard_errors():
    draws = np.random.default_rng(0).standard_normal((50, 3))
    _, axes = plt.subplots()
    container = measured(axes, [1, 2, 3], draws, colour="clean")
    y = container.lines[0].get_ydata()
    segments = np.array([s[:, 1] for s in container.lines[2][0].get_segments()])
    np.testing.assert_allclose(y, draws.mean(0))
    np.testing.assert_allclose((segments[:, 1] - segments[:, 0]) / 2, 2 * draws.std(0, ddof=1) / np.sqrt(50))
    plt.close()


def test_theory_is_a_line_without_markers():
    _, axes = plt.subplots()
    line = theory(axes, [0, 1], [0, 1], colour="noisy")
    assert (line.get_marker(), line.get_color()) == ("None", COLOURS["noisy"])
    plt.close()
