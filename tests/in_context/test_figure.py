"""Pictures of circuits: what is drawn is M itself."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

from attnbook.in_context.figure import draw_evolution, draw_heads, draw_key_query, records_near
from attnlib.in_context.circuits import Circuits, circuits_of
from attnlib.in_context.model import initial_weights


@pytest.fixture
def figure():
    figure = plt.figure()
    yield figure
    plt.close(figure)


def title(axes) -> str:
    return axes.get_title() or axes.get_title(loc="left")  # where it stands is a matter of style


def images(axes) -> np.ndarray:
    (image,) = axes.get_images()
    return np.asarray(image.get_array())


@pytest.mark.parametrize("d", [1, 3, 7])
def test_the_map_is_the_matrix_and_the_lines_are_behind_the_last_covariate(figure, d):
    matrix = torch.arange((d + 1) ** 2, dtype=torch.float64).reshape(d + 1, d + 1) - 5
    axes = figure.subplots()
    image = draw_key_query(axes, matrix, 30.0)
    np.testing.assert_array_equal(images(axes), matrix)  # row = key: no transposition
    assert image.get_extent()[3] < image.get_extent()[2]  # the first key on top
    across, down = axes.lines
    assert list(across.get_ydata()) == [d - 0.5, d - 0.5]
    assert list(down.get_xdata()) == [d - 0.5, d - 0.5]
    assert image.get_clim() == (-30.0, 30.0)
    assert axes.get_xticklabels()[-1].get_text() == "$y$"
    assert axes.get_xticklabels()[0].get_text() == "1"


@pytest.mark.parametrize(("heads", "columns"), [(1, 2), (3, 2), (8, 4)])
def test_all_heads_on_one_scale(figure, heads, columns):
    circuits = circuits_of(initial_weights(4, heads, seed=2))[0]
    maps = draw_heads(figure, circuits, columns=columns)
    assert len(maps) == heads
    assert len(figure.axes) == 2 * heads + 2  # maps, columns, two colour bars
    largest = circuits.key_query.abs().max().item()
    for head, axes in enumerate(maps):
        np.testing.assert_array_equal(images(axes), circuits.key_query[head])
        assert axes.get_images()[0].get_clim() == (-largest, largest)
        assert f"{circuits.omega[head]:.2f}" in title(axes)
    columns_drawn = [images(axes)[:, 0] for axes in figure.axes if axes.get_images() and images(axes).shape[1] == 1]
    np.testing.assert_array_equal(np.stack(columns_drawn), circuits.output_value)
    figure.canvas.draw()


def test_steps_are_recorded_steps(figure):
    steps = [0, 1, 9, 110, 1000]
    assert records_near(steps, [0, 1, 10, 100, 100]) == [0, 1, 2, 3]
    assert records_near(steps, [10**9]) == [4]
    circuits = Circuits(torch.randn(3, 2, 4, 4), torch.randn(3, 2, 4))
    grid = draw_evolution(figure, circuits, [0, 9, 110])
    assert [title(axes) for axes in grid[0]] == ["start", "9", "110"]
    for head in range(2):
        for column in range(3):
            image = grid[head][column].get_images()[0]
            np.testing.assert_array_equal(np.asarray(image.get_array()), circuits.key_query[column, head])
            assert image.get_clim()[1] == pytest.approx(circuits.key_query.abs().max().item())
    assert len(figure.axes) == 7  # six maps and one shared colour bar
    figure.canvas.draw()
