"""Grids of a sweep: what they hold, derived a second way."""

import json
from pathlib import Path

import numpy as np
import pytest

from bookkit.pages.catalogue import Page, resolve_page
from bookkit.pages.parameters import check_parameters, page_parameters
from bookkit.sweeps.grid import Axis, Grid, make_grid, read_grid
from tests.tiny_page import PAGE, make_book

SEED = "seed: int = 0  # seed of all random streams [>= 0]\n"
HEADS = "heads: int = 2  # attention heads [1 | 2 | 4 | 8]\n"


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Page:
    """The tiny page with two more parameters: n, label_noise, step_size, mode, heads, seed, verbose."""
    text = PAGE.replace("verbose: bool", HEADS + SEED + "verbose: bool")
    return resolve_page("tiny", make_book(tmp_path_factory.mktemp("book"), text=text))


def read(tmp_path: Path, page: Page, text: str, **fixed) -> Grid:
    path = tmp_path / "grid.yml"
    path.write_text(text, encoding="utf-8")
    return read_grid(path, page, fixed)


# --- what a grid holds


def test_every_section_is_read_and_the_last_axis_is_the_fastest(tmp_path, page) -> None:
    text = """
    seeds: 2
    zip:
      n: [50, 100]
      step_size: [1, 1e-1]
    product:
      label_noise: {linear: [0, 0.3], count: 3}
    fixed: {verbose: true}
    """
    grid = read(tmp_path, page, text)
    assert grid.axes == (
        Axis("label_noise", ("label_noise",), ((0.0,), (0.15,), (0.3,))),
        Axis("n+step_size", ("n", "step_size"), ((50, 1.0), (100, 0.1))),
        Axis("seed", ("seed",), ((0,), (1,))),
    )
    assert (grid.shape, grid.varying) == ((3, 2, 2), ("label_noise", "n", "step_size", "seed"))
    rest = {"mode": "reduced", "heads": 2, "verbose": True}
    expected = [
        {"n": n, "label_noise": noise, "step_size": step, "seed": seed, **rest}
        for noise in (0.0, 0.15, 0.3)
        for n, step in ((50, 1.0), (100, 0.1))
        for seed in (0, 1)
    ]
    assert list(grid.parameters) == expected
    # Every point has all parameters, in the order of the page, each of its declared type.
    declared = {p.name: p.type for p in page_parameters(page)}
    assert all([(k, type(v)) for k, v in point.items()] == list(declared.items()) for point in grid.parameters)


@pytest.mark.parametrize(
    ("low", "high", "count"), [(3, 300, 20), (1e-3, 1, 4), (1000.0, 0.02, 7), (1e-300, 1e300, 13), (2, 3, 2)]
)
def test_a_log_range_is_numpy_geomspace(page, low, high, count) -> None:
    grid = make_grid({"product": {"step_size": {"log": [low, high], "count": count}}}, page)
    found = [point["step_size"] for point in grid.parameters]
    np.testing.assert_allclose(found, np.geomspace(low, high, count), rtol=1e-12)
    assert (found[0], found[-1], len(found)) == (low, high, count)  # the ends to the last bit


@pytest.mark.parametrize(("low", "high", "count"), [(0, 0.5, 8), (0.5, 0.1, 5), (0, 0.3, 7), (0.1, 0.2, 2)])
def test_a_linear_range_is_numpy_linspace(page, low, high, count) -> None:
    grid = make_grid({"product": {"label_noise": {"linear": [low, high], "count": count}}}, page)
    found = [point["label_noise"] for point in grid.parameters]
    np.testing.assert_allclose(found, np.linspace(low, high, count), atol=1e-15)
    assert (found[0], found[-1], len(found)) == (low, high, count)


def test_range_values_are_those_that_people_write(page) -> None:
    """A value has one identity, typed or from a range, so a point that is done is found again."""
    grid = make_grid(
        {
            "product": {
                "label_noise": {"linear": [0, 0.3], "count": 7},
                "step_size": {"log": [1e-5, 10], "count": 7},
            }
        },
        page,
    )
    assert [v for (v,) in grid.axes[0].values] == [0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3]
    assert [v for (v,) in grid.axes[1].values] == [1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0]
    # What plain floating point gives instead:
    assert list(np.linspace(0, 0.3, 7)) != [0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3]


def test_integers_of_a_range_are_rounded_to_the_nearest(page) -> None:
    grid = make_grid({"product": {"n": {"log": [1, 1000], "count": 8}}}, page)
    found = [point["n"] for point in grid.parameters]
    assert found == [round(1000 ** (i / 7)) for i in range(8)] == [1, 3, 7, 19, 52, 139, 373, 1000]
    big = make_grid({"product": {"n": {"linear": [0 + 1, 10**18 + 1], "count": 3}}}, page)
    assert [point["n"] for point in big.parameters] == [1, 5 * 10**17 + 1, 10**18 + 1]  # beyond the reach of floats


def test_a_zip_may_hold_ranges_that_keep_a_ratio(page) -> None:
    content = {"zip": {"n": {"log": [10, 1000], "count": 3}, "step_size": {"log": [1, 0.01], "count": 3}}}
    assert [point["n"] * point["step_size"] for point in make_grid(content, page).parameters] == [10.0, 10.0, 10.0]


@pytest.mark.parametrize(
    ("given", "seeds"),
    [(3, [0, 1, 2]), ({"count": 2}, [0, 1]), ({"first": 10, "count": 3}, [10, 11, 12]), ([7, 3], [7, 3])],
)
def test_seeds(page, given, seeds: list[int]) -> None:
    grid = make_grid({"seeds": given}, page)
    assert [point["seed"] for point in grid.parameters] == seeds
    assert grid.axes[0].name == "seed"


def test_a_value_on_the_command_line_overrides_the_files_fixed(tmp_path, page) -> None:
    grid = read(tmp_path, page, "seeds: 2\nfixed: {n: 10, mode: dense}", n=20)
    assert [(point["n"], point["mode"], point["label_noise"]) for point in grid.parameters] == [(20, "dense", 0.05)] * 2


def test_what_python_gives_is_taken_too(page) -> None:
    content = {"product": {"n": range(1, 4), "step_size": np.array([0.5, 1.0])}, "seeds": np.arange(2)}
    grid = make_grid(content, page, {"label_noise": np.float64(0.25), "heads": np.int64(8)})
    assert grid.shape == (3, 2, 2)
    assert grid.parameters[0] == {
        "n": 1, "label_noise": 0.25, "step_size": 0.5, "mode": "reduced", "heads": 8, "seed": 0, "verbose": False,
    }  # fmt: skip
    assert json.loads(json.dumps(grid.parameters)) == list(grid.parameters)


def test_minus_zero_is_zero(page) -> None:
    """The identity of a point is taken of its JSON text, where -0.0 and 0.0 differ."""
    assert json.dumps(make_grid({"product": {"label_noise": [-0.0]}}, page).axes[0].values) == "[[0.0]]"


def random_content(random: np.random.Generator) -> tuple[dict, int]:
    """A random grid of this page, and how many points it has: counted here as it is made."""
    free = list(random.permutation(["n", "label_noise", "step_size", "mode", "heads", "verbose"]))
    lists = {
        "n": lambda k: [int(n) for n in random.choice(1000, k, replace=False) + 1],
        "label_noise": lambda k: [float(x) for x in random.choice(500, k, replace=False) / 1000],
        "step_size": lambda k: {"log": [float(random.uniform(1e-6, 1)), float(random.uniform(2, 1e6))], "count": k},
        "mode": lambda k: ["dense", "reduced"][:k],
        "heads": lambda k: [8, 1, 2, 4][:k],
        "verbose": lambda k: [True, False][:k],
    }
    longest = {"mode": 2, "verbose": 2, "heads": 4}
    content: dict = {}
    total = 1
    for name in free[: random.integers(0, 3)]:
        length = int(random.integers(2, longest.get(name, 5) + 1))
        content.setdefault("product", {})[name] = lists[name](length)
        total *= length
    rest = free[len(content.get("product", {})) :]
    if random.random() < 0.5:
        length = int(random.integers(2, min(longest.get(name, 5) for name in rest[:2]) + 1))
        content["zip"] = {name: lists[name](length) for name in rest[:2]}
        total *= length
    if random.random() < 0.5 or not content:
        content["seeds"] = int(random.integers(1, 5))
        total *= content["seeds"]
    return content, total


def test_any_grid_is_the_product_of_its_axes_in_order_without_repeats_and_survives_json(page) -> None:
    random = np.random.default_rng(0)
    shapes = set()
    for _ in range(60):
        content, total = random_content(random)
        grid = make_grid(content, page, {"seed": 5} if "seeds" not in content else {})
        assert len(grid.parameters) == total == np.prod(grid.shape)
        for flat, point in enumerate(grid.parameters):
            moved = {}
            for axis, i in zip(grid.axes, np.unravel_index(flat, grid.shape), strict=True):
                moved |= dict(zip(axis.parameters, axis.values[i], strict=True))
            assert {name: point[name] for name in grid.varying} == moved
        texts = [json.dumps(point) for point in grid.parameters]
        assert len(set(texts)) == total
        again = Grid.from_json(json.loads(json.dumps(grid.as_json())))
        assert again == grid
        assert [json.dumps(point) for point in again.parameters] == texts  # types and order of names too
        # The checks of single values let through exactly what the checks of whole pages would.
        assert check_parameters(page, grid.parameters[-1]) == grid.parameters[-1]
        shapes.add(grid.shape)
    assert len(shapes) > 20
