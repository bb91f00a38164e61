"""How far pictures lie apart: letters may be drawn otherwise, what is shown may not."""

import base64
import io
from collections.abc import Callable
from functools import cache

import matplotlib.pyplot as plt
import numpy as np
import pytest
from PIL import Image

from bookkit.figures import COLOURS, png, use_style
from bookkit.pages import pictures
from bookkit.pages.pictures import ALLOWED, distance, picture_difference

X = np.geomspace(1, 100, 60)


def curves(axes, up: float = 0.0, colours: tuple[str, str] = ("clean", "noisy"), width: float = 1.8) -> None:
    for number, name in enumerate(colours):
        y = 1 / (1 + np.exp(2 + number - np.log(X))) + up * (number == 0)
        axes[0].plot(X, y, color=COLOURS[name], linewidth=width, label=("clean", "flipped")[number])
    axes[0].set(xscale="log", xlabel=r"signal norm $\rho$", ylabel="attention", ylim=(0, 1.2))
    axes[0].legend()


def histogram(axes, bins: int = 20) -> None:
    axes[1].hist(np.sort(np.sin(np.arange(500.0))) + 40, bins, density=True, color=COLOURS["noise"], alpha=0.7)
    axes[1].set(xlabel=r"norm of a noise token $|\xi|$", ylabel="density")


def cells(axes, hole: bool = False) -> None:
    values = np.add.outer(np.arange(39.0), np.arange(39.0))
    values[18:22, 18:22] *= not hole
    axes[0].imshow(values)


def points(axes, up: float = 0.0) -> None:
    axes[1].plot(X[::5], 0.3 + 0.2 * np.sin(X[::5]) + up, "o", color=COLOURS["theory"])
    axes[1].set(ylim=(0, 1), xlabel="$d$")


SHOWN: dict[str, Callable] = {
    "curves": curves,
    "curves, one higher": lambda axes: curves(axes, up=0.12),  # a tenth of the axis
    "curves, exchanged": lambda axes: curves(axes, colours=("noisy", "clean")),
    "thin": lambda axes: curves(axes, colours=("clean", "signal"), width=1.0),
    "thin, exchanged": lambda axes: curves(axes, colours=("signal", "clean"), width=1.0),
    "bins": histogram,
    "5 bins for 20": lambda axes: histogram(axes, 5),
    "cells": cells,
    "cells, 16 of 1521 others": lambda axes: cells(axes, hole=True),
    "points": points,
    "points, higher": lambda axes: points(axes, up=0.1),
}


@cache
def drawn(*names: str, **style: object) -> str:
    """A figure of two panels as a notebook stores it."""
    with plt.rc_context():
        use_style()
        plt.rcParams.update(style)
        figure, axes = plt.subplots(1, 2)
        for name in names:
            SHOWN[name](axes)
        data, _ = png(figure)
        plt.close(figure)
    return base64.b64encode(data).decode()


def opened(text: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(text)))


def apart(one: str, other: str) -> float:
    return distance(opened(one), opened(other))


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        (("curves", "bins"), ("curves, one higher", "bins")),
        (("curves", "bins"), ("curves, exchanged", "bins")),
        (("thin",), ("thin, exchanged",)),
        (("curves", "bins"), ("curves", "5 bins for 20")),
        (("cells", "points"), ("cells, 16 of 1521 others", "points")),
        (("cells", "points"), ("cells", "points, higher")),
        (("curves", "bins"), ("curves",)),
        (("curves", "bins"), ("cells", "points")),
    ],
)
def test_a_wrong_picture_is_refused(right: tuple[str, ...], wrong: tuple[str, ...]) -> None:
    stored, other = drawn(*right), drawn(*wrong)
    assert apart(stored, other) > 1.1 * ALLOWED
    assert (
        picture_difference(stored, other)
        == f"another picture: {apart(stored, other):.2f} from the stored one, 0.1 are allowed"
    )


@pytest.mark.parametrize("names", [("curves", "bins"), ("cells", "points")])
def test_letters_may_be_drawn_otherwise(names: tuple[str, ...]) -> None:
    for style in ({"text.hinting": "none"}, {"text.hinting": "force_autohint"}, {"font.size": 9.6}):
        other = drawn(*names, **style)
        assert drawn(*names) != other
        assert picture_difference(drawn(*names), other) == ""
        assert apart(drawn(*names), other) < ALLOWED / 2


def test_what_is_no_picture_empty_or_of_another_size_is_refused() -> None:
    stored = drawn("curves", "bins")
    size = opened(stored).size
    assert picture_difference(stored, "AAAA") == "the new one is no picture"
    assert picture_difference("AAAA", stored) == "the stored one is no picture"
    assert picture_difference(stored, stored[: len(stored) // 8 * 4]) == "the new one is no picture"  # cut short

    def of_size(width: float, height: float) -> str:
        file = io.BytesIO()
        Image.new("RGB", (round(width * size[0]), round(height * size[1])), "white").save(file, "png")
        return base64.b64encode(file.getvalue()).decode()

    assert picture_difference(stored, of_size(1, 1)).startswith("another picture")
    assert picture_difference(of_size(1, 1), of_size(1.015, 0.985)) == ""
    said = f"stored {size[0]} x {size[1]} pixels, now {round(1.03 * size[0])} x {size[1]}"
    assert picture_difference(stored, of_size(1.03, 1)) == said
    assert "pixels, now" in picture_difference(stored, of_size(1, 0.97))


def test_the_distance_is_that_of_its_definition(monkeypatch: pytest.MonkeyPatch) -> None:
    """By loops, on pictures whose points are their pixels."""
    monkeypatch.setattr(pictures, "POINTS", 64)
    rng = np.random.default_rng(3)
    one, other = (rng.integers(0, 256, (64, 64, 3), dtype=np.uint8) for _ in range(2))

    def means(picture: np.ndarray) -> np.ndarray:
        red, green, blue = np.moveaxis(picture / 255, -1, 0)
        points = np.stack([(red + green + blue) / 3, 2 * (red - green), 2 * (green - blue), 2 * (blue - red)], -1)
        return np.array([[points[i : i + 4, j : j + 4].mean((0, 1)) for j in range(61)] for i in range(61)])

    a, b = means(one), means(other)
    outside = np.zeros((53, 53))
    for i in range(53):
        for j in range(53):
            for x, y in ((a, b), (b, a)):
                near = y[i : i + 9, j : j + 9].reshape(81, 4)
                outside[i, j] = max(outside[i, j], *(x[i + 4, j + 4] - near.max(0)), *(near.min(0) - x[i + 4, j + 4]))
    expected = np.sort(outside.ravel())[-int(0.003 * outside.size) :].mean()
    assert distance(Image.fromarray(one), Image.fromarray(other)) == pytest.approx(expected, rel=1e-5)
