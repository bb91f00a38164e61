"""Grids: the points that they make, counted out by hand, and one sentence for each that is wrong, before any work."""

import ast
import math
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import yaml

from bookkit.pages.catalogue import UserError, find_root, resolve_page
from bookkit.sweeps import sweep
from bookkit.sweeps.grid import read_grid
from bookkit.sweeps.run import parser
from tests.refusals import refused

ROOT = find_root(Path(__file__).parent)


def test_the_points_of_a_grid_in_order(book) -> None:
    page = resolve_page("counting", book.root)
    content = {"seeds": {"first": 3, "count": 2}, "zip": {"share": [0, 1.0], "broken": [7, 8]}}
    points = read_grid(content | {"product": {"n": np.array([5, 6])}}, page)
    several = ((n, *pair, seed) for n in (5, 6) for pair in ((7, 0.0), (8, 1.0)) for seed in (3, 4))
    assert points == [dict(zip(("n", "broken", "share", "seed"), each, strict=True)) for each in several]
    assert read_grid({"fixed": {"share": 1}}, page) == [{"n": 0, "broken": -1, "share": 1.0, "seed": 0}]
    assert [point["seed"] for point in read_grid({"seeds": 3, "fixed": {"n": 2}}, page)] == [0, 1, 2]


def test_a_range_has_the_values_that_a_person_would_write(book) -> None:
    def values(name: str, **given) -> list:
        return [each[name] for each in read_grid({"product": {name: given}}, resolve_page("counting", book.root))]

    assert values("share", linear=[0, 0.3], count=7) == [0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3]
    assert values("n", log=[1, 1000], count=4) == [1, 10, 100, 1000]
    found = values("share", log=[0.001, 1 / 3], count=5)
    assert found[-1] == 1 / 3  # an end is what was given
    assert np.log(found) == pytest.approx(np.linspace(math.log(0.001), -math.log(3), 5), abs=1e-11)


BAD = {
    "product: {m: [1]}": "page part/01_counting has no parameter 'm'; it takes: n, broken, share, seed",
    "product: {n: [1, two]}": "parameter n must be an integer >= 0; got 'two'",
    "product: {share: [0.5, 2]}": "parameter share must be a number in [0, 1]; got 2",
    "product: {n: 5}": "n needs a list of 1 to 100000 values or {log: [1, 100], count: 5}",
    "product:": "product must hold lines such as `n: [50, 100]`, under fixed `n: 50`; got None",
    "n: [1, 2]": "unknown section 'n': parameters stand under product, zip, seeds, fixed",
    "seeds: 2\nfixed: {seed: 1}": "parameter seed stands in two sections: keep one",
    "zip: {n: [1, 2], seed: [1]}": "lists under zip must have one length; got [2, 1]",
    "product: {n: {linear: [1, 3], count: 9}}": "n = 2 comes twice: keep one (a range of a whole number is rounded",
    "product: {n: {log: [0, 9], count: 3}}": "n: both ends of a log range must be above 0",
    "product: {n: {linear: [1, 9], count: 200000}}": "a count must be a whole number from 2 to 100000; got 200000",
    "seeds: {first: x, count: 2}": "parameter seed must be an integer >= 0; got 'x'",
    "product: {n: {linear: [0, 999], count: 1000}}\nseeds: 101": "101000 points, more than 100000: make it smaller",
    "product: &a {n: [1, 2]}\nfixed: *a": "line 2: write out what *a stands for",
}


@pytest.mark.parametrize("text", BAD)
def test_a_wrong_grid_is_one_sentence_and_nothing_is_made(book, capsys, text: str) -> None:
    Path("grid.yml").write_text(text)
    refused(["sweep", "counting", "grid.yml", "-o", "out"], [BAD[text], "grid file grid.yml"], book.root, [], capsys)


def test_a_grid_too_large_for_this_machine_is_refused(book) -> None:
    Path("pyproject.toml").write_text('[tool.bookkit]\nroom = "attnbook.room:require_room"')
    with pytest.raises(UserError, match="01_counting: n = 1000000000000000 needs"):
        sweep("counting", {"product": {"n": [1, 10**15]}}, "out")


def test_what_the_chapters_tell_to_type_is_right() -> None:
    """The grid in both texts and in the call is the same for the page; commands have options that there are."""
    texts = [(ROOT / name).read_text("utf-8").replace("\\\n", "") for name in ("docs/sweeps.md", "book/running.md")]
    page = resolve_page("two_steps", ROOT)
    points = read_grid(ast.literal_eval(re.search(r"^grid = (\{.*?^\})", texts[0], re.S | re.M)[1]), page)
    for text in texts:
        assert read_grid(yaml.safe_load(re.search(r"```yaml\n# signal\.yml\n(.*?)```", text, re.S)[1]), page) == points
    commands = re.findall(r"^\.venv/bin/python -m attnlib sweep (.*)$", "\n".join(texts), re.M)
    assert len(commands) >= 4
    for given in (parser().parse_intermixed_args(shlex.split(command)) for command in commands):
        assert resolve_page(given.page, ROOT)
        assert given.grid == Path("signal.yml") or (ROOT / given.grid).is_file()
