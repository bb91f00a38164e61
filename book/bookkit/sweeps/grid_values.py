"""Values of a grid's parameters: single ones, lists and ranges, checked against what the page declares.

Everything wrong is a `UserError` of one line: what was expected, what came, what to do.
"""

from __future__ import annotations

import decimal
import difflib
import reprlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from bookkit.pages.catalogue import UserError
from bookkit.pages.parameters import Parameter, check_value

__all__ = ["LARGEST", "Values", "as_list", "check_count", "check_mapping", "check_name", "listing", "said_of", "shown"]

RANGES = ("linear", "log")
LARGEST = 1_000_000  # points of a grid, values of an axis; beyond, a typing error is more likely than a wish


@dataclass(frozen=True)
class Values:
    """Reads values for one page, whose parameters are `known`. All methods raise `UserError`."""

    page: str
    known: Mapping[str, Parameter]

    def value(self, name: Any, value: Any) -> Any:
        """One value of the parameter `name`, of the type that the page declares."""
        if not (isinstance(name, str) and name in self.known):
            check_name(name, self.known, "parameter", f"page {self.page} takes")
        if isinstance(value, Mapping) or as_list(value) is not None:
            raise UserError(
                f"parameter {name} takes one value here; got {shown(value)}: a list or range stands by itself under product or zip"
            )
        value = check_value(self.known[name], value.item() if hasattr(value, "item") else value)
        return value + 0.0 if isinstance(value, float) else value  # -0.0 and 0.0 are one setting, and one identity

    def setting(self, section: Any) -> dict[str, Any]:
        """A mapping of parameters to one value each."""
        return {name: self.value(name, value) for name, value in check_mapping(section, "n: 200").items()}

    def values(self, name: Any, given: Any) -> list[Any]:
        """All values of a list or a range."""
        if isinstance(given, Mapping):
            check_name(name, self.known, "parameter", f"page {self.page} takes")
            with said_of(name):
                return self._range(self.known[name], given)
        listed = as_list(given)
        if listed is None:
            self.value(name, given)  # a wrong name or type is the better thing to say
            raise UserError(f"{name} needs a list or a range; got {shown(given)}: a single value goes under fixed")
        if not listed:
            raise UserError(f"{name} has an empty list: give it values or leave it out")
        return [self.value(name, value) for value in listed]

    def _range(self, parameter: Parameter, given: Mapping[str, Any]) -> list[Any]:
        """Values from one end to the other, in decimal arithmetic: 0.15 and not 0.15000000000000002, on every machine."""
        form = "{log: [1, 100], count: 5} or {linear: [0, 1], count: 5}"
        for key in given:
            check_name(key, (*RANGES, "count"), "key", "a range takes")
        if parameter.type not in (int, float):
            raise UserError(f"takes no range, being {parameter.expectation}: list its values")
        kinds = [kind for kind in RANGES if kind in given]
        if len(kinds) != 1 or "count" not in given:
            raise UserError(f"a range is {form}; got {shown(dict(given))}")
        ends = as_list(given[kinds[0]])
        if ends is None or len(ends) != 2:
            raise UserError(f"{kinds[0]} needs two ends, as in {form}; got {shown(given[kinds[0]])}")
        low, high = (self.value(parameter.name, end) for end in ends)
        count = check_count(given["count"], 2)
        if kinds[0] == "log" and min(low, high) <= 0:
            raise UserError(f"both ends of a log range must be above 0; got {shown(ends)}: use linear")
        with decimal.localcontext(prec=40):
            first, last = decimal.Decimal(str(low)), decimal.Decimal(str(high))
            if kinds[0] == "log":
                inner = (first * (last / first) ** (decimal.Decimal(i) / (count - 1)) for i in range(1, count - 1))
            else:
                inner = (first + (last - first) * i / (count - 1) for i in range(1, count - 1))
            numbers = [round(number) if parameter.type is int else float(number) for number in inner]
        return [self.value(parameter.name, number) for number in (low, *numbers, high)]


@contextmanager
def said_of(what: str) -> Iterator[None]:
    """Put `what` before the message of a `UserError` raised inside."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{what}: {error}") from None


def check_name(name: Any, known: Iterable[str], what: str, takes: str) -> None:
    """Refuse a `name` that is not `known`, with the nearest one and all."""
    known = list(known)
    if name not in known:
        close = difflib.get_close_matches(str(name), known, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise UserError(f"unknown {what} {shown(name)}; {hint}{takes}: {', '.join(known) or 'none'}")


def check_mapping(section: Any, example: str) -> Mapping[str, Any]:
    """`section`, refused when it is not a mapping."""
    if not isinstance(section, Mapping):
        raise UserError(f"must be lines such as `{example}`; got {shown(section)}")
    return section


def as_list(given: Any) -> list[Any] | None:
    """A list, tuple, range or array as a list; None for anything else."""
    if hasattr(given, "tolist"):
        given = given.tolist()
    if not isinstance(given, list | tuple | range):
        return None
    if len(given) > LARGEST:
        raise UserError(f"a list of {len(given)} values, more than {LARGEST}")
    return list(given)


def check_count(given: Any, least: int) -> int:
    """`given`, refused when it is not an integer from `least` to `LARGEST`."""
    if isinstance(given, bool) or not isinstance(given, int) or not least <= given <= LARGEST:
        raise UserError(f"the count must be an integer from {least} to {LARGEST}; got {shown(given)}")
    return given


def listing(names: Iterable[Any]) -> str:
    """Names as they stand in a message."""
    return ", ".join(str(name) for name in names)


def shown(value: Any) -> str:
    """A value as it stands in a message: short, on one line."""
    try:
        return " ".join(reprlib.repr(value).split())
    except ValueError:  # Python refuses to write out integers of more than some thousand digits
        return f"a {type(value).__name__} too long to show"
