"""Grids of a sweep: what they hold, derived a second way; and those that are refused, in one line, before anything starts."""

import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from bookkit.pages.catalogue import Page, resolve_page
from bookkit.pages.parameters import check_parameters, page_parameters
from bookkit.sweeps import grid as grid_module
from bookkit.sweeps.grid import Axis, Grid, make_grid, read_grid
from tests.refusals import refused_call
from tests.tiny_page import PAGE, make_book

MORE = """heads: int = 2  # attention heads [1 | 2 | 4 | 8]
seed: int = 0  # seed of all random streams [>= 0]
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Page:
    """The tiny page with two more parameters: n, label_noise, step_size, mode, heads, seed, verbose."""
    text = PAGE.replace("verbose: bool", f"{MORE}verbose: bool")
    return resolve_page("tiny", make_book(tmp_path_factory.mktemp("book"), text=text))


@pytest.fixture
def file(tmp_path, monkeypatch) -> Path:
    """grid.yml in the folder in which we stand; not there yet."""
    monkeypatch.chdir(tmp_path)
    return Path("grid.yml")


# --- what a grid holds


def test_every_section_is_read_and_the_last_axis_is_the_fastest(file, page) -> None:
    file.write_text("""
    seeds: 2
    zip:
      n: [50, 100]
      step_size: [1, 1e-1]
    product:
      label_noise: {linear: [0, 0.3], count: 3}
    fixed: {verbose: true, mode: reduced}
    """)
    grid = read_grid(file, page, {"mode": "dense"})  # the command line overrides the file's fixed
    assert grid.axes == (
        Axis("label_noise", ("label_noise",), ((0.0,), (0.15,), (0.3,))),
        Axis("n+step_size", ("n", "step_size"), ((50, 1.0), (100, 0.1))),
        Axis("seed", ("seed",), ((0,), (1,))),
    )
    assert (grid.shape, grid.varying) == ((3, 2, 2), ("label_noise", "n", "step_size", "seed"))
    rest = {"mode": "dense", "heads": 2, "verbose": True}
    assert list(grid.parameters) == [
        {"n": n, "label_noise": noise, "step_size": step, "seed": seed, **rest}
        for noise in (0.0, 0.15, 0.3)
        for n, step in ((50, 1.0), (100, 0.1))
        for seed in (0, 1)
    ]
    # Every point has all parameters, in the order of the page, each of its declared type.
    declared = [(p.name, p.type) for p in page_parameters(page)]
    assert all([(k, type(v)) for k, v in point.items()] == declared for point in grid.parameters)
    assert Grid.from_json(json.loads(json.dumps(grid.as_json()))) == grid
    # The checks of single values let through what the checks of whole pages would.
    assert check_parameters(page, grid.parameters[-1]) == grid.parameters[-1]


@pytest.mark.parametrize(
    ("kind", "low", "high", "count"),
    [("log", 3, 300, 20), ("log", 1000.0, 0.02, 7), ("log", 1e-300, 1e300, 13), ("linear", 5, 0.1, 8)],
)
def test_a_range_is_that_of_numpy(page, kind, low, high, count) -> None:
    grid = make_grid({"product": {"step_size": {kind: [low, high], "count": count}}}, page)
    found = [point["step_size"] for point in grid.parameters]
    second = np.geomspace if kind == "log" else np.linspace
    np.testing.assert_allclose(found, second(low, high, count), rtol=1e-12)
    assert (found[0], found[-1], len(found)) == (low, high, count)  # the ends to the last bit


def test_range_values_are_those_that_people_write(page) -> None:
    """A value has one identity, typed or from a range, so a point that is done is found again."""
    ranges = {"label_noise": {"linear": [0, 0.3], "count": 7}, "step_size": {"log": [1e-5, 10], "count": 7}}
    grid = make_grid({"product": ranges}, page)
    assert [v for (v,) in grid.axes[0].values] == [0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3]
    assert [v for (v,) in grid.axes[1].values] == [1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0]
    # Of -0.0 and 0.0 too, whose JSON texts differ.
    assert json.dumps(make_grid({"product": {"label_noise": [-0.0]}}, page).axes[0].values) == "[[0.0]]"


def test_integers_of_a_range_are_rounded_to_the_nearest(page) -> None:
    grid = make_grid({"product": {"n": {"log": [1, 1000], "count": 8}}}, page)
    assert [point["n"] for point in grid.parameters] == [round(1000 ** (i / 7)) for i in range(8)]
    big = make_grid({"product": {"n": {"linear": [1, 10**18 + 1], "count": 3}}}, page)
    assert [point["n"] for point in big.parameters] == [1, 5 * 10**17 + 1, 10**18 + 1]  # beyond the reach of floats


@pytest.mark.parametrize(
    ("given", "seeds"),
    [(3, [0, 1, 2]), ({"count": 2}, [0, 1]), ({"first": 10, "count": 3}, [10, 11, 12]), ([7, 3], [7, 3])],
)
def test_seeds(page, given, seeds: list[int]) -> None:
    grid = make_grid({"seeds": given}, page)
    assert [point["seed"] for point in grid.parameters] == seeds


def test_what_python_gives_is_taken_too(page) -> None:
    content = {"product": {"n": range(1, 4), "step_size": np.array([0.5, 1.0])}, "seeds": np.arange(2)}
    grid = make_grid(content, page, {"label_noise": np.float64(0.25), "heads": np.int64(8)})
    assert json.loads(json.dumps(grid.parameters)) == list(grid.parameters)
    assert [*grid.parameters[-1].values()] == [3, 0.25, 1.0, "reduced", 8, 1, False]


# --- what is refused


REFUSED = [
    ("", "grid file grid.yml must hold a mapping, lines like `product: {n: [50, 100]}`; it holds nothing"),
    ("product:\n  n: [1]\n  n: [2]\n", "gives 'n' twice, again in line 3: keep one"),
    ("fixed: {n: 3}", "an empty grid: give at least one of product, zip and seeds"),
    ("prodct: {n: [1]}", "unknown section 'prodct'; did you mean 'product'? a grid takes: product, zip, seeds, fixed"),
    ("n: 200", "parameter n stands outside a section: indent it under product, zip or fixed"),
    ("product:", "section product is empty: fill it or leave it out"),
    ("product: [n, 3]", "product: must be lines such as `n: [50, 100]`; got ['n', 3]"),
    ("seeds: 2\nfixed: 3", "fixed: must be lines such as `n: 200`; got 3"),
    ("product: {step_sise: [1]}", "product: unknown parameter 'step_sise'; did you mean 'step_size'?"),
    ("product: {3: [1]}", "unknown parameter 3; page part/01_tiny takes: n, label_noise"),
    ("zip: {n: [1], m: [2]}", "zip: unknown parameter 'm'"),
    ("seeds: 2\nfixed: {m: 2}", "fixed: unknown parameter 'm'"),
    ("product: {m: {log: [1, 2], count: 2}}", "unknown parameter 'm'"),
    ("product: {n: 200}", "n needs a list or a range; got 200: a single value goes under fixed"),
    ("product: {n: []}", "n has an empty list: give it values or leave it out"),
    ("product: {n: [1, [2, 3]]}", "parameter n takes one value here; got [2, 3]: a list or range goes under product"),
    ("product: {label_noise: [0.1, 0.7]}", "product: parameter label_noise must be a number in [0, 0.5]; got 0.7"),
    ("zip: {n: [1, 0], heads: [1, 2]}", "zip: parameter n must be an integer >= 1; got 0"),
    ("product: {n: [50, 100, 50]}", "product: n = 50 comes twice: keep one"),
    ("zip: {n: [5, 6, 5], heads: [1, 1, 1]}", "zip: n = 5, heads = 1 comes twice: keep one"),
    ("product: {n: {log: [1, 10], count: 20}}", "n = 1 comes twice: take a smaller count"),
    ("seeds: [1, 2, 1]", "seeds: seed = 1 comes twice: keep one"),
    ("product: {n: [1]}\nzip: {n: [1], heads: [1]}", "parameter n is varied by product and by zip: keep one"),
    ("product: {n: [1]}\nfixed: {n: 3}", "parameter n is under fixed, and varied by product: leave one out"),
    ("zip: {n: [1, 2], heads: [1, 2, 4]}", "zip: lists must have one length; n has 2, heads has 3 values"),
    ("zip: {n: [1, 2]}", "zip: moves several parameters together; got only n: put it under product"),
    ("product: {n: {log: [1, 2], linear: [1, 2], count: 2}}", "product: n: a range is {log: [1, 100], count: 5} or"),
    ("product: {n: {count: 2}}", "n: a range is {log: [1, 100], count: 5} or {linear"),
    ("product: {n: {log: [1, 9]}}", "or {linear: [0, 1], count: 5}; got {'log': [1, 9]}"),
    ("product: {n: {lgo: [1, 9], count: 2}}", "n: unknown key 'lgo'; did you mean 'log'? a range takes: linear"),
    ("product: {label_noise: {log: [0, 0.5], count: 3}}", "both ends of a log range must be above 0; got [0, 0.5]"),
    ("product: {n: {log: [9], count: 3}}", "n: log needs two ends, as in {log: [1, 100]"),
    ("product: {heads: {linear: [1, 8], count: 8}}", "heads must be one of 1 | 2 | 4 | 8; got 3"),
    ("product: {mode: {linear: [1, 2], count: 2}}", "mode: takes no range, being one of reduced | dense: list its"),
    ("product: {n: {log: [1, 9], count: 1}}", "count must be an integer from 2 to 100000; got 1"),
    ("seeds: 0", "seeds: the count must be an integer from 1 to 100000; got 0"),
    ("seeds: 1e9", "the count must be an integer from 1 to 100000; got 1000000000"),
    ("seeds: {first: 3}", "seeds: need a count, as in {first: 10, count: 5}; got {'first': 3}"),
    ("seeds: {frist: 3, count: 2}", "seeds: unknown key 'frist'; did you mean 'first'? seeds take: first, count"),
    ("seeds: {first: -1, count: 2}", "parameter seed must be an integer >= 0; got -1"),
]
MAPPINGS = [
    ([1, 2], {}, "grid: must be a mapping with some of product, zip, seeds, fixed; got [1, 2]"),
    ({"seeds": 10**5000}, {}, "seeds: the count must be an integer from 1 to 100000; got a int too long to show"),
    ({"product": {"n": [10**5000]}}, {}, "too long to show, which is too large"),
    ({"product": {"n": range(1, 1000000000)}}, {}, "a list of 999999999 values, more than 100000"),
    ({"product": {"mode": ["a\nb"]}}, {}, "must be one of reduced | dense"),
    (
        {"seeds": 2},
        {"seed": 3},
        "grid: parameter seed is fixed on the command line or in the call, and varied by seeds",
    ),
    ({"seeds": 2}, {"n": 0}, "fixed on the command line or in the call: parameter n must be an integer >= 1; got 0"),
    ({"seeds": 2}, {"m": 0}, "fixed on the command line or in the call: unknown parameter 'm'"),
    ({"seeds": 2, "fixed": {"n": 0}}, {"n": 3}, "grid: fixed: parameter n must be"),
]


@pytest.mark.parametrize(("content", "told"), REFUSED, ids=range(len(REFUSED)))
def test_a_malformed_grid_is_one_line(file, page, content, told: str) -> None:
    file.write_text(content)
    refused_call(lambda: read_grid(file, page), told)


@pytest.mark.parametrize(("content", "fixed", "told"), MAPPINGS, ids=range(len(MAPPINGS)))
def test_a_malformed_mapping_is_one_line(page, content, fixed, told: str) -> None:
    refused_call(lambda: make_grid(content, page, fixed), told)


def test_a_grid_that_cannot_be_read_and_seeds_of_a_page_without_them(file, page) -> None:
    refused_call(lambda: read_grid(file, page), "grid file grid.yml cannot be read: No such file or directory")
    seedless = resolve_page("tiny", make_book(Path.cwd()))
    refused_call(
        lambda: make_grid({"seeds": 3}, seedless), "page part/01_tiny has no parameter 'seed'; it takes: n, label"
    )


def test_a_size_is_refused_before_it_is_built(page, monkeypatch) -> None:
    content = {"product": {"n": range(1, 1001), "step_size": {"log": [1, 9], "count": 1000}}, "seeds": 1000}
    tracemalloc.start()
    try:
        refused_call(
            lambda: make_grid(content, page), "1000 x 1000 x 1000 = 1000000000 points, more than 100000: make it"
        )
        assert tracemalloc.get_traced_memory()[1] < 10 * 2**20  # the axes; a billion points are some hundred GiB
    finally:
        tracemalloc.stop()
    monkeypatch.setattr(grid_module, "LARGEST", 12)
    assert len(make_grid({"product": {"n": [1, 2, 3]}, "seeds": 4}, page).parameters) == 12
    refused_call(lambda: make_grid({"product": {"n": [1, 2, 3]}, "seeds": 5}, page), "3 x 5 = 15 points, more than 12")
