"""A table of bad calls becomes a test: each raises one sentence that names the argument."""

import inspect
from collections.abc import Callable, Iterator
from functools import partial

import pytest


def _cases(rows: tuple) -> Iterator:
    for first, *rest in rows:
        if len(rest) == 1:
            yield pytest.param(first, rest[0], id=rest[0])
            continue
        good, bad = rest
        for name, values in bad.items():
            for value in values if isinstance(values, list) else [values]:
                yield pytest.param(
                    partial(_with, first, good, name, value),
                    rf"\b{name} must",
                    id=f"{first.__qualname__}-{name}-{' '.join(repr(value).split())[:20]}",
                )


def _with(function: Callable, good: tuple | dict | Callable, name: str, value: object) -> None:
    made = good() if callable(good) else good
    signature = inspect.signature(function)
    if name not in signature.parameters:  # one of **options
        function(*made, **{name: value})
        return
    arguments = made if isinstance(made, dict) else signature.bind_partial(*made).arguments
    function(**arguments | {name: value})


def refusing(*rows: tuple, error: type[Exception] = ValueError) -> Callable:
    """A test of rows of two kinds: a call and words of its refusal; or a function, good arguments, and bad ones by name.

    Good arguments are a tuple, a dictionary, or a function that makes one of them when the test runs. Several bad values of
    one argument are a list; the sentence has to say `NAME must ...`.
    """

    @pytest.mark.parametrize(("call", "words"), list(_cases(rows)))
    def refuses(call: Callable, words: str) -> None:
        with pytest.raises(error, match=words):
            call()

    return refuses


def refusing_changes(function: Callable, good: dict, *rows: tuple[dict, str]) -> Callable:
    """A test of rows of changes of the `good` arguments and words of the refusal that they meet together."""
    return refusing(*((partial(function, **good | change), words) for change, words in rows))
