"""A point is its page, its package and its parameters: each of the three changes its name, nothing else does."""

import hashlib
import os

from bookkit.code import Code
from bookkit.sweeps.identity import page_hash, point_id, versions
from tests.tiny_book import make_package


def test_the_name_of_a_point_is_a_hash_of_all_three() -> None:
    text = '["p", "q", {"a": 1, "b": 0.5, "c": "µ"}]'  # sorted, as written
    assert point_id("p", "q", {"c": "µ", "b": 0.5, "a": 1}) == hashlib.sha256(text.encode()).hexdigest()[:16]


def test_each_of_the_three_changes_the_name_and_order_does_not() -> None:
    names = {
        point_id("p", "q", {"n": 1, "x": 2.0}),
        point_id("P", "q", {"n": 1, "x": 2.0}),
        point_id("p", "Q", {"n": 1, "x": 2.0}),
        point_id("p", "q", {"n": 2, "x": 2.0}),
        point_id("p", "q", {"n": 1}),
        point_id("p", "q", {"n": 1, "x": 2.0, "flag": False}),
    }
    assert len(names) == 6
    assert point_id("p", "q", {"x": 2.0, "n": 1}) in names


def test_a_page_is_the_bytes_of_its_source() -> None:
    assert page_hash("µ") == hashlib.sha256(b"\xc2\xb5").hexdigest()
    assert page_hash("a") != page_hash("a ")


def test_an_edit_of_the_package_is_seen_at_once(tmp_path) -> None:
    package = make_package(tmp_path, 1)
    first = Code((package,)).hash()
    make_package(tmp_path, 2)  # of the same length
    os.utime(package / "__init__.py", ns=(1, 1))  # and whatever the clock says
    second = Code((package,)).hash()
    assert second != first
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "x.pyc").write_bytes(b"1")
    assert Code((package,)).hash() == second


def test_versions_are_those_that_are_installed() -> None:
    import numpy
    import torch

    found = versions(("torch", "numpy", "no-such-distribution"))
    assert list(found) == ["python", "torch", "numpy", "no-such-distribution"]
    assert found["numpy"] == numpy.__version__
    assert found["torch"].split("+")[0] == torch.__version__.split("+")[0]
    assert found["no-such-distribution"] == "not installed"
