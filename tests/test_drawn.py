"""What a figure says that was drawn: a fault too small for a picture is seen, a last digit is not."""

import base64
import io
from collections.abc import Callable

import matplotlib.pyplot as plt
import numpy as np
import pytest
from PIL import Image

from bookkit import drawn
from bookkit.figures import measured, png, theory, use_style
from bookkit.pages.pictures import drawn_differences, picture_difference
from bookkit.pages.stored_outputs import compare_outputs

X = np.geomspace(1, 100, 40)


def figure(
    point: float = 1.0,
    labels: tuple[str, str] = ("theory", "measured"),
    bar: float = 0.1,
    height: float = 2.0,
    cell: float = 0.0,
    band: float = 0.1,
    mark: float = 0.0,
    title: str = "two steps, n = 200",
    note: str = "slope 0.49",
    scale: str = "log",
    colour: str = "measured",
    shift: float = 0.0,
    level: float = 14.0,
):
    made, axes = plt.subplots(1, 3, dpi=60)
    theory(axes[0], X, 1 / X + shift, label=labels[0])
    shown = 1 / X[::4]
    shown[3] *= point
    measured(axes[0], X[::4], shown, error=bar * shown, colour=colour, label=labels[1])
    axes[0].fill_between(X, (1 - band) / X, (1 + band) / X, color="#dddddd")
    axes[0].set(xscale="log", yscale=scale, title=title, ylim=(0.005, 2))
    axes[0].text(10, 0.5, note)
    axes[0].legend(loc="upper right")
    axes[1].bar(["a", "b"], [1.0, height])
    axes[1].scatter([0, 1], [0.5, 0.6 + mark], c=[0.1, 0.9])
    axes[1].set_xticks([0, 1], ["first", "second"])
    values = np.add.outer(np.arange(16.0), np.arange(16.0))
    values[3, 5] += cell
    axes[2].pcolormesh(values, vmin=0, vmax=30)
    axes[2].imshow(values[:4], extent=(0, 4, 0, 4))
    axes[2].contour(values, levels=[9, level])
    made.text(0.1, 0.9, "around")
    return made


def stored(**change) -> str:
    made = figure(**change)
    data, _ = png(made)
    plt.close(made)
    return base64.b64encode(data).decode()


@pytest.fixture(scope="module")
def right() -> str:
    with plt.rc_context():
        use_style()
        return stored()


FAULTS = {
    "point": ({"point": 0.8}, "panel 1, line 2, points 4 2: stored 0.6"),
    "labels": ({"labels": ("measured", "theory")}, "panel 1, legend 1 1: stored 'theory', now 'measured'"),
    "bar": ({"bar": 0.05}, "panel 1, bars between line 3 and line 4, 1: stored 0.03"),
    "height": ({"height": 1.9}, "panel 2, y, ends 2: stored 2.1, now 1.995"),
    "cell": ({"cell": 4.0}, "panel 3, collection 1, values 11: stored "),
    "band": ({"band": 0.3}, "panel 1, collection 2, points 1 2: stored "),
    "mark": ({"mark": 0.06}, "panel 2, collection 1, points 2 2: stored 0.2857, now 0.3143"),
    "title": (
        {"title": "two steps, n = 300"},
        "panel 1, titles 1: stored 'two steps, n = 200', now 'two steps, n = 300'",
    ),
    "note": ({"note": "slope 0.52"}, "panel 1, text 4, says: stored 'slope 0.49', now 'slope 0.52'"),
    "colour": ({"colour": "signal"}, "panel 1, legend 2 2 1: stored '#56b4e9ff', now '#009e73ff'"),
    "level": ({"level": 15.0}, "panel 3, collection 2, around 2 "),
    "scale": ({"scale": "linear"}, "panel 1, y, scale: stored 'log', now 'linear'"),
}
UNSEEN = {"bar", "point", "cell", "band", "labels", "note", "title", "level"}  # by the picture alone


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.usefixtures("house_style")
def test_a_fault_in_what_is_drawn_is_told_with_its_place(right: str, name: str) -> None:
    change, told = FAULTS[name]
    wrong = stored(**change)
    assert bool(picture_difference(right, wrong)) == (name not in UNSEEN)
    assert any(told in line for line in drawn_differences(right, wrong, str.__eq__))


@pytest.fixture
def house_style():
    with plt.rc_context():
        use_style()
        yield


@pytest.mark.usefixtures("house_style")
def test_a_last_digit_is_no_difference_neither_of_a_place_nor_of_a_note(right: str) -> None:
    near = stored(point=1.001, shift=1e-6, note="slope 0.50")
    assert near != right
    outputs = [[{"output_type": "display_data", "data": {"image/png": data}}] for data in (right, near)]
    assert compare_outputs(*outputs) == []
    outputs[1][0]["data"]["image/png"] = stored(note="slope 0.51")
    assert compare_outputs(*outputs) == [
        "output 1, image/png: panel 1, text 4, says: stored 'slope 0.49', now 'slope 0.51'"
    ]


def test_a_picture_that_does_not_say_what_was_drawn_is_told(right: str) -> None:
    silent = io.BytesIO()
    Image.open(io.BytesIO(base64.b64decode(right))).save(silent, "png")
    bare = base64.b64encode(silent.getvalue()).decode()
    assert picture_difference(bare, right) == ""
    assert drawn_differences(bare, right, str.__eq__) == ["the stored one does not say what was drawn"]
    assert drawn_differences(right, bare, str.__eq__) == ["the new one does not say what was drawn"]
    assert drawn_differences(bare, bare, str.__eq__) == []


def test_nan_is_no_place() -> None:
    same: Callable[[str, str], bool] = str.__eq__
    assert list(drawn.differences({"points": [0.5]}, {"points": [float("nan")]}, same)) == [
        "points 1: stored 0.5, now nan"
    ]


def test_limits_are_compared_by_their_span() -> None:
    same: Callable[[str, str], bool] = str.__eq__
    small, moved = {"ends": [1e-6, 3e-6]}, {"ends": [1e-6, 3.05e-6]}
    assert list(drawn.differences(small, moved, same)) == ["ends 2: stored 3e-06, now 3.05e-06"]
    assert list(drawn.differences(small, {"ends": [1e-6, 3.03e-6]}, same)) == []
