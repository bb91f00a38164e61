"""Pictures of a sweep show the means, errors, cells and gaps that are in the array; what cannot be drawn is refused in one line."""

import math
import re
import statistics

import matplotlib as mpl
import numpy as np
import pytest

mpl.use("Agg")
import matplotlib.pyplot as plt
import xarray
from matplotlib.collections import PolyCollection, QuadMesh

from bookkit.figures import COLOURS
from bookkit.sweeps.figures import beside, heat_map, lines

NORMS, STEPS, SEEDS = (3.0, 30.0, 300.0, 3000.0), (0.1, 0.2, 0.3), 5


@pytest.fixture
def axes():
    figure, ax = plt.subplots()
    yield ax
    plt.close(figure)


@pytest.fixture
def array() -> xarray.Dataset:
    shape = len(NORMS), len(STEPS), SEEDS
    error = np.random.default_rng(0).standard_normal(shape) + 10 * np.arange(len(NORMS))[:, None, None]
    return xarray.Dataset(
        {
            "error": (("signal_norm", "step_size", "seed"), error),
            "fits": (("signal_norm", "step_size", "seed"), error > 10),
            "run_status": (("signal_norm", "step_size", "seed"), np.full(shape, "done")),
        },
        {"signal_norm": list(NORMS), "step_size": list(STEPS), "seed": range(SEEDS)},
    )


def drawn_lines(ax) -> list[dict[float, tuple[float, float]]]:
    """Of each line its points: position -> (height, half length of the bar)."""
    found = []
    for container in ax.containers:
        points, _, (bars,) = container.lines
        ends = [segment[:, 1] if len(segment) else (math.nan, math.nan) for segment in bars.get_segments()]
        halves = [(high - low) / 2 for low, high in ends]
        found.append({x: (y, half) for x, y, half in zip(*points.get_data(), halves, strict=True)})
    return found


def mesh(ax) -> QuadMesh:
    (found,) = (drawn for drawn in ax.collections if isinstance(drawn, QuadMesh))
    return found


def hatched(ax) -> list[tuple[float, float, float, float]]:
    """Cells drawn as missing: left, right, low, high."""
    patches = [drawn for drawn in ax.collections if isinstance(drawn, PolyCollection) and drawn.get_hatch()]
    corners = [path.vertices for patch in patches for path in patch.get_paths()]
    return [(*(f(c[:, 0]) for f in (min, max)), *(f(c[:, 1]) for f in (min, max))) for c in corners]


# --- lines


def test_points_are_means_over_seeds_and_bars_two_standard_errors(array, axes) -> None:
    assert lines(array.isel(step_size=1), "error", "signal_norm", ax=axes) is axes
    (line,) = drawn_lines(axes)
    assert list(line) == list(NORMS)
    for norm, (height, half) in line.items():
        values = array["error"].sel(signal_norm=norm, step_size=0.2).values.tolist()
        assert height == pytest.approx(statistics.fmean(values), rel=1e-12)
        assert half == pytest.approx(2 * statistics.stdev(values) / math.sqrt(SEEDS), rel=1e-12)
    assert (axes.get_xlabel(), axes.get_ylabel(), axes.get_xscale()) == ("signal_norm", "error", "log")
    assert axes.get_legend() is None


def test_one_line_per_value_of_by_in_rising_order_each_with_its_colour(array, axes) -> None:
    lines(array.isel(signal_norm=[2, 0]), "error", "step_size", by="signal_norm", ax=axes)
    first, second = drawn_lines(axes)
    for line, norm in ((first, 3.0), (second, 300.0)):
        means = [array["error"].sel(signal_norm=norm, step_size=step).mean().item() for step in STEPS]
        assert [height for height, _ in line.values()] == pytest.approx(means, rel=1e-12)
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["signal_norm = 3", "signal_norm = 300"]
    assert len({container.lines[0].get_color() for container in axes.containers}) == 2
    assert axes.get_xscale() == "linear"


def test_missing_points_count_neither_in_the_mean_nor_in_the_error(array, axes) -> None:
    cut = array.isel(step_size=0).drop_vars("step_size")
    cut["error"].values[0, [0, 3]] = np.nan  # three seeds left
    cut["error"].values[1, 1:] = np.nan  # one: a mean without a bar
    cut["error"].values[2] = np.nan  # none: no point
    lines(cut, "error", "signal_norm", ax=axes)
    (line,) = drawn_lines(axes)
    assert list(line) == [3.0, 30.0, 3000.0]
    left = cut["error"].values[0, [1, 2, 4]]
    assert line[3.0] == pytest.approx((left.mean(), 2 * left.std(ddof=1) / 3**0.5), rel=1e-12)
    assert line[30.0][0] == cut["error"].values[1, 0]
    assert math.isnan(line[30.0][1])


def test_without_seeds_there_are_no_bars_and_another_axis_can_be_averaged(array, axes) -> None:
    lines(array.isel(seed=2, step_size=0), "error", "signal_norm", ax=axes)
    lines(array.isel(seed=2), "error", "signal_norm", repeat="step_size", ax=axes)
    alone, averaged = drawn_lines(axes)
    assert [height for height, _ in alone.values()] == array["error"].values[:, 0, 2].tolist()
    assert all(math.isnan(half) for _, half in alone.values())
    assert averaged[30.0][1] == pytest.approx(2 * array["error"].values[1, :, 2].std(ddof=1) / 3**0.5)


def test_coordinates_that_move_together_lie_on_one_axis(axes) -> None:
    both = xarray.Dataset(
        {"error": ("d+step_size", [1.0, 2.0, 3.0])},
        {"d": ("d+step_size", [100, 10, 1000]), "step_size": ("d+step_size", [0.1, 1.0, 0.01])},
    )
    lines(both, "error", "d", ax=axes)
    assert {x: y for x, (y, _) in drawn_lines(axes)[0].items()} == {10: 2, 100: 1, 1000: 3}
    named = xarray.Dataset(
        {"error": (("optimiser", "fast"), [[1.0, 2.0], [3.0, 4.0]])},
        {"optimiser": ["SGD", "Adam"], "fast": [False, True]},  # texts and truth values are names
    )
    lines(named, "error", "optimiser", by="fast", ax=axes)
    assert [[y for y, _ in line.values()] for line in drawn_lines(axes)[1:]] == [[1, 3], [2, 4]]


def test_long_names_are_shown_and_the_current_axes_taken(array, axes) -> None:
    array["error"].attrs["long_name"] = "log10 clean error"
    array["signal_norm"].attrs["long_name"] = "norm of both signals"
    assert lines(array.isel(step_size=0), "error", "signal_norm", colour="clean", label="by kernels") is axes
    (container,) = axes.containers
    assert (container.get_label(), container.lines[0].get_color()) == ("by kernels", COLOURS["clean"])
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("norm of both signals", "log10 clean error")


# --- heat maps


def test_cells_hold_means_and_end_halfway(array, axes) -> None:
    assert heat_map(array.isel(signal_norm=[1, 0, 3, 2]), "error", "signal_norm", "step_size", ax=axes) is axes
    drawn = mesh(axes)
    corners = drawn.get_coordinates()
    half = 10**0.5  # half a step of a factor ten
    assert corners[0, :, 0].tolist() == pytest.approx(
        [3 / half, 3 * half, 30 * half, 300 * half, 3000 * half], rel=1e-12
    )
    assert corners[:, 0, 1].tolist() == pytest.approx([0.05, 0.15, 0.25, 0.35], rel=1e-12)
    np.testing.assert_allclose(drawn.get_array(), array["error"].values.mean(2).T, rtol=1e-12)
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "linear")
    assert axes.get_xlim() == pytest.approx((3 / half, 3000 * half))
    assert axes.get_ylim() == pytest.approx((0.05, 0.35))
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("signal_norm", "step_size")
    assert [bar.get_ylabel() for bar in axes.figure.axes if bar is not axes] == ["error"]
    assert hatched(axes) == []


def test_edges_follow_uneven_steps_and_a_single_row(axes) -> None:
    uneven = xarray.Dataset({"error": (("n", "d"), [[1.0, 2.0, 4.0]])}, {"n": [7], "d": [1.0, 2.0, 2.5]})
    heat_map(uneven, "error", "d", "n", ax=axes)
    corners = mesh(axes).get_coordinates()
    assert corners[0, :, 0].tolist() == pytest.approx([0.5, 1.5, 2.25, 2.75])
    assert corners[:, 0, 1].tolist() == [6.5, 7.5]


def test_a_cell_without_any_value_is_hatched_and_one_with_some_is_not(array, axes) -> None:
    array["error"].values[1, 2] = np.nan
    array["error"].values[2, 0, 1:] = np.nan
    heat_map(array, "error", "signal_norm", "step_size", ax=axes)
    ((left, right, low, high),) = hatched(axes)
    assert (left, right) == pytest.approx((30 / 10**0.5, 30 * 10**0.5))
    assert (low, high) == pytest.approx((0.25, 0.35))
    shown = mesh(axes).get_array()
    assert np.argwhere(np.ma.getmaskarray(shown)).tolist() == [[2, 1]]
    assert shown[0, 2] == array["error"].values[2, 0, 0]


# --- the single run


def test_the_single_run_stands_where_it_is_said_to(array, axes) -> None:
    lines(array.isel(step_size=0), "error", "signal_norm", ax=axes)
    beside(axes, -7.5, 30.0, error=0.25)
    beside(axes, -6.5, 300.0, colour="clean", label="another")
    run, other = drawn_lines(axes)[1:]
    assert run == {30.0: (-7.5, pytest.approx(0.5))}
    assert list(other) == [300.0]
    assert math.isnan(other[300.0][1])
    assert axes.containers[-1].lines[0].get_color() == COLOURS["clean"]
    assert [container.get_label() for container in axes.containers[1:]] == ["single run", "another"]


def test_on_a_map_the_star_is_filled_with_the_colour_of_its_value(array, axes) -> None:
    heat_map(array, "error", "signal_norm", "step_size", ax=axes)
    value = array["error"].sel(signal_norm=300, step_size=0.2).mean().item()
    star = beside(axes, value, (300, 0.2))
    assert (star.get_xdata().tolist(), star.get_ydata().tolist()) == ([300], [0.2])
    own = mesh(axes).to_rgba(mesh(axes).get_array())[1, 2]
    assert star.get_markerfacecolor() == pytest.approx(tuple(own))
    assert beside(axes, value - 20, (300, 0.2)).get_markerfacecolor() != pytest.approx(tuple(own))
    assert star.get_markeredgecolor() == COLOURS["noisy"]


# --- what cannot be drawn

WHERE = {"x": "signal_norm", "y": "step_size"}
FIRST = {"step_size": 0}
REFUSED = [
    (lines, {}, {"result": "eror"}, "result must be one that the array has; got 'eror': nearest are error"),
    (lines, {}, {"over": "signal"}, "coordinate must be one that the array has; got 'signal': nearest are signal_norm"),
    (lines, FIRST, {"result": "run_status"}, "result run_status must be numbers to be drawn; it holds <U4"),
    (lines, {}, {}, "left over: step_size: select one value, as in array.sel(step_size=...)"),
    (lines, {"signal_norm": 0}, {}, "coordinate signal_norm must run along an axis of error of its own; the axes are"),
    (lines, FIRST, {"over": "seed"}, "repeat must be an axis that is not drawn; got 'seed'"),
    (lines, {"step_size": 0, "signal_norm": [0, 1, 1]}, {}, "signal_norm must have a value of its own at each place"),
    (lines, {"seed": [0] * 7}, {"by": "seed", "repeat": None}, "coordinate seed must have a value of its own"),
    (heat_map, {}, {**WHERE, "repeat": None}, "left over: seed: select one value"),
    (heat_map, {}, {**WHERE, "repeat": "draw"}, "repeat must be one that the array has; got 'draw'"),
    (heat_map, {}, {"x": "step_size", "y": "step_size"}, "step_size and step_size must be on two axes of the sweep"),
    (heat_map, {}, {**WHERE, "result": "nothing"}, "result nothing must have a value at some point of the sweep"),
    (heat_map, {}, {"x": "word", "y": "step_size"}, "coordinates of a heat map must be numbers; got <U1"),
]


@pytest.mark.parametrize(("draw", "part", "changes", "told"), REFUSED, ids=range(len(REFUSED)))
def test_what_cannot_be_drawn_is_refused_with_the_reason(array, axes, draw, part, changes, told) -> None:
    array = array.assign(nothing=array["error"] * np.nan).assign_coords(word=("signal_norm", list("abcd"))).isel(part)
    given = {"result": "error"} | ({"over": "signal_norm"} if draw is lines else {})
    with pytest.raises(ValueError, match=re.escape(told)) as error:
        draw(array, **given | changes, ax=axes)
    assert "\n" not in str(error.value)
    assert [*axes.collections, *axes.containers, *axes.lines] == []


def test_more_lines_than_colours_and_a_place_of_the_wrong_kind_are_refused(array, axes) -> None:
    many = xarray.Dataset({"error": (("n", "d"), np.ones((7, 2)))}, {"n": range(7), "d": [1, 2]})
    with pytest.raises(ValueError, match=r"by must have at most 6 values, .* n has 7"):
        lines(many, "error", "d", by="n", ax=axes)
    with pytest.raises(ValueError, match=r"at must be one number on axes of lines; got \(30, 0.2\)"):
        beside(axes, 1.0, (30, 0.2))
    heat_map(array, "error", "signal_norm", "step_size", ax=axes)
    with pytest.raises(ValueError, match=r"at must be a pair \(x, y\) on axes of a heat map; got 30"):
        beside(axes, 1.0, 30)
