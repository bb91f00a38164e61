"""Wrong worlds: what a negative control changes in a study, before the same judge looks at it.

    @CLAIMS.claim("Q40", wrong=exchange("same_draws.svm", "same_draws.on_signal"))
    def svm_against_descent(study): ...

So a control tests the whole judge, its reading of the measurement included, and not only its last comparison. A name is a path of
attributes, keys and numbers, with dots between them: "passes.first pass.p_signal", "moves.0". The study itself is never touched: each
object along the path is copied. What the study has already computed under other names stays as it is.
"""

import copy
import functools
from collections.abc import Callable, Mapping
from typing import Any

Change = Callable[[Any], Any]


def exchange(one: str, other: str) -> Change:
    """Each of two measurements stands under the other's name."""
    return lambda study: _put(_put(study, one, _get(study, other)), other, _get(study, one))


def instead(name: str, other: str) -> Change:
    """The measurement `other` stands under both names."""
    return lambda study: _put(study, name, _get(study, other))


def times(factor: float, *names: str) -> Change:
    """What stands under each of the names is multiplied by the factor."""
    return changed(lambda value: factor * value, *names)


def changed(change: Callable[[Any], Any], *names: str) -> Change:
    """What stands under each of the names is put through a function."""

    def world(study: Any) -> Any:
        for name in names:
            study = _put(study, name, change(_get(study, name)))
        return study

    return world


def together(*changes: Change) -> Change:
    """One change after the other, in one world."""
    return lambda study: functools.reduce(lambda seen, change: change(seen), changes, study)


def _step(thing: Any, key: str) -> Any:
    """The key as the thing knows it: "1000" may be the integer 1000."""
    keys = thing if isinstance(thing, Mapping) else range(len(thing))
    return next(known for known in keys if str(known) == key)


def _get(thing: Any, path: str) -> Any:
    for key in path.split("."):
        thing = thing[_step(thing, key)] if isinstance(thing, Mapping | list | tuple) else getattr(thing, key)
    return thing


def _put(thing: Any, path: str, value: Any) -> Any:
    """A copy of the thing in which the path leads to the value. Raises AttributeError or StopIteration for a path that leads nowhere."""
    key, _, rest = path.partition(".")
    if rest or not isinstance(thing, Mapping | list | tuple):
        inner = _get(thing, key)  # a misspelled name is an error, never a new field
        value = _put(inner, rest, value) if rest else value
    if isinstance(thing, tuple) and not hasattr(thing, key):
        place = _step(thing, key)
        return (*thing[:place], value, *thing[place + 1 :])
    other = copy.copy(thing)
    if isinstance(thing, Mapping | list):
        other[_step(thing, key)] = value  # type: ignore[index]
    else:
        object.__setattr__(other, key, value)
    return other
