"""Grids that are refused: one line each, before anything starts."""

import tracemalloc
from pathlib import Path

import pytest

from bookkit.pages.catalogue import UserError, resolve_page
from bookkit.pages.rerun import read_parameter_file
from bookkit.sweeps import grid as grid_module
from bookkit.sweeps.grid import make_grid, read_grid
from tests.sweeps.test_grid import page  # noqa: F401 -- a fixture
from tests.tiny_page import make_book

REFUSED = {
    "nothing in it": ("", ["must hold a mapping", "product: {n: [50, 100]}", "it holds nothing"]),
    "a list": ("- n\n- 3\n", ["must hold a mapping", "it holds a list"]),
    "not YAML": ("product: {n: [1, 2", ["is not YAML", "while parsing"]),
    "not text": (b"\xff\xfe\x00n", ["is not UTF-8 text"]),
    "too deep": (
        "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
        ["is not YAML", "recursion"],
    ),
    "impossible date": ("seeds: 2026-99-99", ["is not YAML", "month must be in 1..12"]),
    "key twice": ("product:\n  n: [1]\n  n: [2]\n", ["gives 'n' twice, again in line 3: keep one"]),
    "section twice": ("seeds: 2\nseeds: 3\n", ["gives 'seeds' twice, again in line 2"]),
    "no axis": ("fixed: {n: 3}", ["an empty grid: give at least one of product, zip and seeds"]),
    "empty mapping": ("{}", ["an empty grid"]),
    "unknown section": ("prodct: {n: [1]}", ["unknown section 'prodct'; did you mean 'product'?", "zip, seeds"]),
    "parameter file": ("n: 200", ["parameter n stands outside a section: indent it under product, zip or fixed"]),
    "null product": ("product:", ["section product is empty: fill it or leave it out"]),
    "null zip": ("zip:\nseeds: 2", ["section zip is empty"]),
    "null seeds": ("seeds:", ["section seeds is empty"]),
    "null fixed": ("seeds: 2\nfixed:", ["section fixed is empty"]),
    "empty product": ("product: {}", ["section product is empty"]),
    "list as product": ("product: [n, 3]", ["product: must be lines such as `n: [50, 100]`; got ['n', 3]"]),
    "unknown parameter": ("product: {step_sise: [1]}", ["product: unknown parameter 'step_sise'", "mean 'step_size'?"]),
    "number as a name": ("product: {3: [1]}", ["unknown parameter 3;", "page part/01_tiny takes: n, label_noise"]),
    "unknown in zip": ("zip: {n: [1], m: [2]}", ["zip: unknown parameter 'm'"]),
    "unknown in fixed": ("seeds: 2\nfixed: {m: 2}", ["fixed: unknown parameter 'm'"]),
    "unknown with a range": ("product: {m: {log: [1, 2], count: 2}}", ["unknown parameter 'm'"]),
    "scalar in product": ("product: {n: 200}", ["n needs a list or a range; got 200: a single value goes under fixed"]),
    "bad scalar": ("product: {n: ten}", ["parameter n must be an integer >= 1; got 'ten'"]),
    "null values": ("product: {n: }", ["parameter n must be an integer >= 1; got None"]),
    "empty list": ("product: {n: []}", ["n has an empty list: give it values or leave it out"]),
    "nested list": ("product: {n: [1, [2, 3]]}", ["parameter n takes one value here; got [2, 3]"]),
    "list in fixed": (
        "seeds: 2\nfixed: {n: [1, 2]}",
        ["fixed: parameter n takes one value here", "under product or zip"],
    ),
    "wrong type": ("product: {n: [1, '2']}", ["product: parameter n must be an integer >= 1; got '2'"]),
    "float for integer": ("product: {n: [1, 2.0]}", ["parameter n must be an integer >= 1; got 2.0: write 2"]),
    "bool for number": ("product: {n: [1, yes]}", ["parameter n must be an integer >= 1; got True"]),
    "number for bool": ("product: {verbose: [0, 1]}", ["parameter verbose must be true or false; got 0"]),
    "no such choice": ("product: {mode: [dense, sparse]}", ["must be one of reduced | dense; got 'sparse'"]),
    "out of range": ("product: {label_noise: [0.1, 0.7]}", ["label_noise must be a number in [0, 0.5]; got 0.7"]),
    "out of range in zip": ("zip: {n: [1, 0], heads: [1, 2]}", ["zip: parameter n must be an integer >= 1; got 0"]),
    "out of range in fixed": ("seeds: 2\nfixed: {n: 0}", ["fixed: parameter n must be an integer >= 1; got 0"]),
    "not a number": ("product: {step_size: [.nan]}", ["must be a number > 0; got nan, which is not finite"]),
    "infinite": ("product: {step_size: [1e999]}", ["must be a number > 0; got inf, which is not finite"]),
    "infinite end": ("product: {step_size: {log: [1, .inf], count: 3}}", ["step_size: parameter", "is not finite"]),
    "repeated": ("product: {n: [50, 100, 50]}", ["product: n = 50 comes twice: keep one"]),
    "repeated, otherwise written": ("product: {step_size: [1, 1e0, 2]}", ["step_size = 1.0 comes twice"]),
    "repeated in zip": ("zip: {n: [5, 6, 5], heads: [1, 1, 1]}", ["zip: n = 5, heads = 1 comes twice: keep one"]),
    "repeated by rounding": ("product: {n: {log: [1, 10], count: 20}}", ["n = 1 comes twice: take a smaller count"]),
    "equal ends": ("product: {n: {linear: [3, 3], count: 2}}", ["n = 3 comes twice"]),
    "repeated seed": ("seeds: [1, 2, 1]", ["seeds: seed = 1 comes twice: keep one"]),
    "two sections": ("product: {n: [1]}\nzip: {n: [1], heads: [1]}", ["parameter n is varied by product and by zip"]),
    "seeds twice": ("product: {seed: [1, 2]}\nseeds: 3", ["parameter seed is varied by product and by seeds"]),
    "fixed and varied": (
        "product: {n: [1]}\nfixed: {n: 3}",
        ["n is under fixed, and varied by product: leave one out"],
    ),
    "seed fixed and varied": ("seeds: 3\nfixed: {seed: 1}", ["seed is under fixed, and varied by seeds"]),
    "lengths differ": ("zip: {n: [1, 2], heads: [1, 2, 4]}", ["zip: lists must have one length; n has 2, heads has 3"]),
    "zip of one": ("zip: {n: [1, 2]}", ["zip: moves several parameters together; got only n: put it under product"]),
    "scalar in zip": ("zip: {n: 3, heads: [1]}", ["zip: n needs a list or a range; got 3"]),
    "log and linear": ("product: {n: {log: [1, 2], linear: [1, 2], count: 2}}", ["n: a range is {log", "got {"]),
    "neither": ("product: {n: {count: 2}}", ["n: a range is {log: [1, 100], count: 5} or {linear"]),
    "no count": ("product: {n: {log: [1, 9]}}", ["n: a range is", "got {'log': [1, 9]}"]),
    "unknown key": ("product: {n: {lgo: [1, 9], count: 2}}", ["n: unknown key 'lgo'; did you mean 'log'?", "count"]),
    "empty range": ("product: {n: {}}", ["n: a range is", "got {}"]),
    "log from zero": (
        "product: {label_noise: {log: [0, 0.5], count: 3}}",
        ["ends of a log range must be above 0", "[0"],
    ),
    "log from below": ("product: {step_size: {log: [-1, 1], count: 3}}", ["step_size must be a number > 0; got -1"]),
    "one end": ("product: {n: {log: [9], count: 3}}", ["n: log needs two ends, as in {log: [1, 100]", "got [9]"]),
    "three ends": ("product: {n: {linear: [1, 5, 9], count: 3}}", ["n: linear needs two ends"]),
    "end is text": ("product: {n: {linear: [1, nine], count: 3}}", ["parameter n must be an integer >= 1; got 'nine'"]),
    "end is a fraction": ("product: {n: {linear: [1, 9.5], count: 3}}", ["must be an integer >= 1; got 9.5"]),
    "end out of range": ("product: {label_noise: {linear: [0, 1], count: 3}}", ["in [0, 0.5]; got 1"]),
    "between choices": ("product: {heads: {linear: [1, 8], count: 8}}", ["heads must be one of 1 | 2 | 4 | 8; got 3"]),
    "range of words": ("product: {mode: {linear: [1, 2], count: 2}}", ["mode: takes no range, being one of reduced"]),
    "range of truths": ("product: {verbose: {log: [1, 2], count: 2}}", ["verbose: takes no range", "list its values"]),
    "count of one": ("product: {n: {log: [1, 9], count: 1}}", ["count must be an integer from 2 to 1000000; got 1"]),
    "negative count": ("product: {n: {log: [1, 9], count: -3}}", ["count must be an integer from 2", "got -3"]),
    "fraction count": ("product: {n: {log: [1, 9], count: 2.5}}", ["count must be an integer from 2", "got 2.5"]),
    "true count": ("product: {n: {log: [1, 9], count: true}}", ["count must be an integer from 2", "got True"]),
    "absurd count": ("product: {step_size: {log: [1, 9], count: 1e12}}", ["from 2 to 1000000; got 1000000000000"]),
    "no seeds": ("seeds: 0", ["seeds: the count must be an integer from 1 to 1000000; got 0"]),
    "negative seeds": ("seeds: -2", ["the count must be an integer from 1", "got -2"]),
    "true seeds": ("seeds: true", ["the count must be an integer from 1", "got True"]),
    "fraction of seeds": ("seeds: 2.5", ["the count must be an integer from 1", "got 2.5"]),
    "seeds in words": ("seeds: five", ["the count must be an integer from 1", "got 'five'"]),
    "absurd seeds": ("seeds: 1e9", ["the count must be an integer from 1 to 1000000; got 1000000000"]),
    "seeds without count": (
        "seeds: {first: 3}",
        ["seeds: need a count, as in {first: 10, count: 5}; got {'first': 3}"],
    ),
    "seeds with a step": ("seeds: {frist: 3, count: 2}", ["seeds: unknown key 'frist'; did you mean 'first'?"]),
    "negative first": ("seeds: {first: -1, count: 2}", ["parameter seed must be an integer >= 0; got -1"]),
    "bad seed": ("seeds: [1, -2]", ["parameter seed must be an integer >= 0; got -2"]),
    "absurd product": (
        "product:\n  n: {linear: [1, 100000], count: 100000}\n  step_size: {log: [1, 2], count: 10}\nseeds: 1000",
        ["100000 x 10 x 1000 = 1000000000 points, more than 1000000: make it smaller or several grids"],
    ),
}


def refused(call, parts: list[str]) -> None:
    """`call` raises a `UserError` of one line that has all `parts`."""
    with pytest.raises(UserError) as error:
        call()
    message = str(error.value)
    assert "\n" not in message
    assert len(message) < 400
    for part in parts:
        assert part in message


@pytest.mark.parametrize("what", REFUSED)
def test_a_malformed_grid_is_one_line(tmp_path, page, monkeypatch, what) -> None:  # noqa: F811
    content, parts = REFUSED[what]
    monkeypatch.chdir(tmp_path)
    Path("grid.yml").write_bytes(content if isinstance(content, bytes) else content.encode())
    refused(lambda: read_grid(Path("grid.yml"), page), ["grid file grid.yml", *parts])
    assert [path.name for path in tmp_path.iterdir()] == ["grid.yml"]


@pytest.mark.parametrize(("name", "what"), [("away.yml", "No such file or directory"), (".", "Is a directory")])
def test_a_grid_that_cannot_be_read_is_one_line(page, tmp_path, monkeypatch, name: str, what: str) -> None:  # noqa: F811
    monkeypatch.chdir(tmp_path)
    refused(lambda: read_grid(Path(name), page), [f"grid file {name} cannot be read: {what}"])


MAPPINGS = {
    "no mapping": ([1, 2], {}, ["grid: must be a mapping with some of product, zip, seeds, fixed; got [1, 2]"]),
    "text": ("seeds: 2", {}, ["grid: must be a mapping", "got 'seeds: 2'"]),
    "endless integer": ({"seeds": 10**5000}, {}, ["seeds: the count must be an integer", "too long to show"]),
    "endless value": ({"product": {"n": [10**5000]}}, {}, ["too long to show, which is too large"]),
    "endless list": ({"product": {"n": range(1, 1000000000)}}, {}, ["a list of 999999999 values, more than 1000000"]),
    "line breaks": ({"product": {"mode": ["a\nb"]}}, {}, ["must be one of reduced | dense"]),
    "fixed on the command line and varied": (
        {"product": {"n": [1, 2]}},
        {"n": 3},
        ["parameter n is fixed on the command line or in the call, and varied by product: leave one out"],
    ),
    "seed on the command line": (
        {"seeds": 2},
        {"seed": 3},
        ["parameter seed is fixed on the command line", "by seeds"],
    ),
    "bad fixed": ({"seeds": 2}, {"n": 0}, ["fixed on the command line or in the call: parameter n must be", "got 0"]),
    "unknown fixed": ({"seeds": 2}, {"m": 0}, ["fixed on the command line or in the call: unknown parameter 'm'"]),
    "bad, though overridden": ({"seeds": 2, "fixed": {"n": 0}}, {"n": 3}, ["grid: fixed: parameter n must be"]),
}


@pytest.mark.parametrize("what", MAPPINGS)
def test_a_malformed_mapping_is_one_line(page, what) -> None:  # noqa: F811
    content, fixed, parts = MAPPINGS[what]
    refused(lambda: make_grid(content, page, fixed), parts)


@pytest.mark.parametrize("given", [3, [1, 2], {"count": 2}])
def test_seeds_need_a_parameter_seed(tmp_path, given) -> None:
    seedless = resolve_page("tiny", make_book(tmp_path))
    refused(lambda: make_grid({"seeds": given}, seedless), ["page part/01_tiny has no parameter 'seed'"])


def test_a_size_is_refused_before_it_is_built(page) -> None:  # noqa: F811
    content = {"product": {"n": range(1, 1001), "step_size": {"log": [1, 9], "count": 1000}}, "seeds": 1000}
    tracemalloc.start()
    try:
        refused(lambda: make_grid(content, page), ["1000 x 1000 x 1000 = 1000000000 points"])
        assert tracemalloc.get_traced_memory()[1] < 10 * 2**20  # the axes; a billion points are some hundred GiB
    finally:
        tracemalloc.stop()


def test_the_last_size_that_is_allowed(page, monkeypatch) -> None:  # noqa: F811
    monkeypatch.setattr(grid_module, "LARGEST", 12)
    assert len(make_grid({"product": {"n": [1, 2, 3]}, "seeds": 4}, page).parameters) == 12
    refused(lambda: make_grid({"product": {"n": [1, 2, 3]}, "seeds": 5}, page), ["3 x 5 = 15 points, more than 12"])


# --- parameter files share the reader


def test_a_key_given_twice_is_refused_in_parameter_files_too(tmp_path) -> None:
    path = tmp_path / "params.yml"
    for text, says in (("n: 1\nm: 3\nn: 2\n", "'n' twice, again in line 3: keep one"), ("'n': 1\nn: 2\n", "in line 2")):
        path.write_text(text)
        refused(lambda: read_parameter_file(path), [says])


def test_mappings_may_still_share_and_override(tmp_path) -> None:
    """A key taken over from another mapping (YAML's `<<`) is no key given twice."""
    path = tmp_path / "params.yml"
    path.write_text("a: &a {n: 1e3, m: 2}\nb: {<<: *a, n: 1e-3}\n")
    assert read_parameter_file(path) == {"a": {"n": 1000, "m": 2}, "b": {"n": 0.001, "m": 2}}
