"""The figure style: one meaning per colour, error bars that are what they say."""

import matplotlib as mpl
import numpy as np
import pytest

mpl.use("Agg")
import matplotlib.pyplot as plt

from bookkit.figures import COLOURS, measured, theory


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
