"""Figures: one meaning per colour, bars that are what they say; and panels, one below the other, with the same pixels.

Beside each panel stand the numbers of an axis that it shares.
"""

import base64
import json
import re
from io import BytesIO

import matplotlib as mpl
import nbformat
import numpy as np
import pytest
from nbclient import NotebookClient
from PIL import Image
from PIL.PngImagePlugin import PngInfo

mpl.use("Agg")
import matplotlib.pyplot as plt

from bookkit.figures import COLOURS, measured, theory
from bookkit.light.pictures import Picture, lightened, place_pictures
from bookkit.panels import GAP, KEY, png, stacked

PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")


def drawn(rows: int, columns: int, **shared: bool) -> tuple[Image.Image, dict]:
    """Panels with a thick line of a colour of its own in each."""
    figure, axes = plt.subplots(rows, columns, figsize=(6, 3), dpi=100, layout="constrained", squeeze=False, **shared)
    for one, colour in zip(axes.flat, PALETTE, strict=False):
        one.plot([0, 1], [0, 1], color=colour, linewidth=6)
        one.set(title=colour[1:3], xlabel="step", ylabel="loss")
        one.label_outer()
    data, sides = png(figure)
    plt.close(figure)
    return Image.open(BytesIO(data)), sides


def present(image: Image.Image) -> set[str]:
    pixels = {f"#{r:02x}{g:02x}{b:02x}" for _, (r, g, b) in image.convert("RGB").getcolors(1 << 20)}
    return pixels & set(PALETTE)


def test_two_panels_with_one_axis_for_both() -> None:
    image, sides = drawn(1, 2, sharey=True)
    assert image.size == pytest.approx((2 * sides["width"], 2 * sides["height"]), abs=2)
    (one, other), down = zip(*json.loads(image.text[KEY]), strict=True)
    assert [len(one), len(other)] == [1, 2]
    (top, under), (_, bottom) = down[1]
    assert down[0] == [[top, bottom]]
    whole = stacked(image)
    assert whole is not None
    height = (whole.height - GAP) // 2
    upper, lower = whole.crop((0, 0, whole.width, height)), whole.crop((0, height + GAP, whole.width, whole.height))
    assert [present(upper), present(lower)] == [{PALETTE[0]}, {PALETTE[1]}]
    labels = other[0][1] - other[0][0]
    strips = [np.asarray(part.convert("L"))[:, :labels] for part in (upper, lower)]
    np.testing.assert_array_equal(*(strip[: under - top] for strip in strips))
    assert (strips[0] < 128).any()  # numbers and the label
    assert (strips[1][under - top :] == 255).all()  # not half a number of the other panel's x axis
    # Behind the strip the frame comes at once: the two were one line of pixels.
    dark = (np.asarray(lower.convert("L"))[:, labels : labels + 24] < 100).mean(0)
    assert dark.max() > 0.5


def test_four_panels_have_numbers_on_both_sides() -> None:
    image, _ = drawn(2, 2, sharex=True, sharey=True)
    places = json.loads(image.text[KEY])
    assert [(len(across), len(down)) for across, down in places] == [(1, 2), (2, 2), (1, 1), (2, 2)]
    whole = stacked(image)
    assert whole is not None
    assert present(whole) == set(PALETTE)
    assert max(whole.size) > max(image.size)


def test_a_panel_has_the_title_of_its_column_and_the_whole_of_each_number() -> None:
    figure, axes = plt.subplots(2, 2, figsize=(6, 3), dpi=100, layout="constrained", sharex=True, sharey=True)
    axes[0, 0].set(xlim=(0, 1000), xticks=[0, 1000], ylim=(0, 1), ylabel="loss")
    axes[1, 1].set(ylabel="risk")
    for title, each in zip(("one", "other"), axes[0], strict=True):
        each.set_title(title)
    image = Image.open(BytesIO(png(figure)[0]))
    plt.close(figure)
    places, pixels = json.loads(image.text[KEY]), np.asarray(image.convert("L"))
    for (upper, _), (lower, down) in zip(places[:2], places[2:], strict=True):
        (left, right), (top, bottom) = lower[-1], down[0]
        assert upper[-1][1] == right  # as wide as the numbers below, of which the last stands out
        assert (pixels[top:bottom, left:right] < 128).any()  # the title
        assert (pixels[top, left:right] == 255).all()  # whole
    borrowed = places[3][0][0]
    assert borrowed[0] > places[1][0][0][0]  # numbers without the label "loss": this panel has one of its own


def test_what_stands_alone_is_not_cut() -> None:
    for rows, columns in ((1, 1), (3, 1)):
        image, _ = drawn(rows, columns)
        assert KEY not in image.text
        assert stacked(image) is None
    figure, axes = plt.subplots(1, 2, layout="constrained")
    figure.colorbar(axes[0].imshow([[0, 1]]), ax=axes)
    assert stacked(Image.open(BytesIO(png(figure)[0]))) is None
    plt.close(figure)


def test_a_page_offers_the_panels_to_a_narrow_screen(tmp_path) -> None:
    image, _ = drawn(1, 2)
    info = PngInfo()
    info.add_text(KEY, image.text[KEY])
    image.save(tmp_path / "a.png", pnginfo=info)
    pictures = lightened(tmp_path)
    panels = pictures["a.png"].panels
    assert panels is not None
    with Image.open(tmp_path / panels.name) as kept:
        assert np.array_equal(np.asarray(kept.convert("RGB")), np.asarray(stacked(image)))
    page = place_pictures(f'<img src="../_images/a.png" style="width: {image.width // 2}px;">', pictures)
    source = re.match(
        r'<picture><source media="\(max-width: 600px\)" width="(\d+)" height="(\d+)" srcset="([^"]*)"', page
    )
    assert source is not None
    assert [2 * int(source[1]), 2 * int(source[2])] == pytest.approx([panels.width, panels.height], abs=2)
    assert source[3] == f"../_images/{panels.name}"
    assert page.endswith("></picture>")
    assert place_pictures(page, lightened(tmp_path)) == page
    assert place_pictures(
        '<img src="_images/b.png" width="7" height="3">', {"b.png": Picture("b.webp", 7, 3)}
    ).startswith("<img")


def test_a_notebook_stores_the_places() -> None:
    code = "from bookkit.figures import use_style\nuse_style()\nimport matplotlib.pyplot as plt\nplt.subplots(1, 2); plt.show()"
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    NotebookClient(notebook, kernel_name="python3").execute()
    (output,) = notebook.cells[0].outputs
    image = Image.open(BytesIO(base64.b64decode(output.data["image/png"])))
    assert len(json.loads(image.text[KEY])) == 2
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


def test_bad_input():
    _, axes = plt.subplots()
    with pytest.raises(ValueError, match="colour must be one of clean"):
        theory(axes, [0], [0], colour="red")
    with pytest.raises(ValueError, match=r"values must be \(draws, points\)"):
        measured(axes, [0], [1.0])
    plt.close()
