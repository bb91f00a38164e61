"""The examples in docstrings run, and say what they print."""

import doctest
import importlib

import pytest

MODULES = [
    "attnlib.attention",
    "attnlib.gaussian",
    "attnlib.single_head.closed_form",
    "attnlib.single_head.descent",
    "attnlib.single_head.phase",
    "attnlib.single_head.study",
    "attnlib.single_head.svm",
]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0
