"""Grids: which settings of a page a sweep runs, read from YAML (or a mapping) and checked before anything starts.

::

    product:                      # every entry is an axis of its own
      signal_norm: {log: [3, 300], count: 20}      # ends included
      label_noise: {linear: [0, 0.3], count: 7}
      n: [50, 100, 200]
    zip:                          # lists or ranges of one length, moved together: one axis
      d: [1000, 10000]
      step_size: [1.0, 0.1]
    seeds: 5                      # 0 to 4; or {first: 10, count: 5}; or a list. One axis, the fastest
    fixed: {draws: 10}

Everything wrong is a `UserError` of one line: where, what was expected, what came, what to do.
"""

from __future__ import annotations

import decimal
import difflib
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from bookkit.pages.catalogue import Page, UserError
from bookkit.pages.parameters import Parameter, check_value, page_parameters, shown
from bookkit.pages.rerun import read_parameter_file

SECTIONS = ("product", "zip", "seeds", "fixed")
LARGEST = 100_000  # points of a grid, values of an axis: at a second each they take a day; beyond, a typing error is likelier than a wish
RANGE = "{log: [1, 100], count: 5} or {linear: [0, 1], count: 5}"


@dataclass(frozen=True)
class Axis:
    """One direction of a grid. `values[i]` holds a value for each of `parameters`: several where they move together."""

    name: str  # of the parameters, joined by "+"
    parameters: tuple[str, ...]
    values: tuple[tuple[Any, ...], ...]

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True)
class Grid:
    """A checked grid: its axes, and one value of every parameter of the page, which the axes override."""

    axes: tuple[Axis, ...]
    base: dict[str, Any]

    @property
    def shape(self) -> tuple[int, ...]:
        """Length of every axis."""
        return tuple(len(axis) for axis in self.axes)

    @property
    def varying(self) -> tuple[str, ...]:
        """Names of the parameters that are not the same at all points, axis by axis."""
        return tuple(name for axis in self.axes for name in axis.parameters)

    @cached_property
    def parameters(self) -> tuple[dict[str, Any], ...]:
        """Every point, all parameters of the page each, in the page's order, the last axis fastest; no two are equal."""
        return tuple(
            {**self.base, **dict(zip(self.varying, itertools.chain.from_iterable(values), strict=True))}
            for values in itertools.product(*(axis.values for axis in self.axes))
        )

    def as_json(self) -> dict[str, Any]:
        """What `from_json` makes the grid from again."""
        return {"axes": [[axis.name, axis.parameters, axis.values] for axis in self.axes], "base": self.base}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Grid:
        """The grid that `as_json` was taken of."""
        axes = (Axis(name, tuple(names), tuple(map(tuple, values))) for name, names, values in stored["axes"])
        return cls(tuple(axes), dict(stored["base"]))


def read_grid(path: Path, page: Page, fixed: Mapping[str, Any] | None = None) -> Grid:
    """The grid in a YAML file; see `make_grid`. Raises `UserError`, also for a file that cannot be read or is not YAML."""
    content = read_parameter_file(Path(path), "grid file", "product: {n: [50, 100]}")
    return make_grid(content, page, fixed, what=f"grid file {path}")


def make_grid(
    content: Mapping[str, Any], page: Page, fixed: Mapping[str, Any] | None = None, *, what: str = "grid"
) -> Grid:
    """The grid that a mapping in the form above describes, checked against the parameters that `page` declares.

    `fixed` are values given beside it (on the command line, say); they override the grid's own `fixed`.

    Raises `UserError`.
    """
    reader = _Reader(page)
    with _said_of("fixed on the command line or in the call"):
        beside = reader.setting(fixed or {})
    axes: list[Axis] = []
    owners: dict[str, str] = {}  # parameter -> the section that varies it
    with _said_of(what):
        reader.check_sections(content)
        for section in [name for name in SECTIONS[:-1] if name in content]:
            with _said_of(section):
                axes += (found := reader.axes(section, content[section]))
            for name in (name for axis in found for name in axis.parameters):
                if name in owners:
                    raise UserError(f"parameter {name} is varied by {owners[name]} and by {section}: keep one")
                owners[name] = section
        with _said_of("fixed"):
            held = reader.setting(content.get("fixed", {}))
        for given, where in ((held, "under fixed"), (beside, "fixed on the command line or in the call")):
            if taken := [name for name in given if name in owners]:
                raise UserError(f"parameter {taken[0]} is {where}, and varied by {owners[taken[0]]}: leave one out")
        if not axes:
            raise UserError("an empty grid: give at least one of product, zip and seeds")
        if (points := math.prod(map(len, axes))) > LARGEST:
            shape = " x ".join(str(len(axis)) for axis in axes)
            raise UserError(f"{shape} = {points} points, more than {LARGEST}: make it smaller or several grids")
    defaults = {name: parameter.default for name, parameter in reader.known.items()}
    return Grid(tuple(axes), defaults | held | beside)


class _Reader:
    """Reads the sections of a grid for one page; everything raises `UserError`."""

    def __init__(self, page: Page) -> None:
        self.page, self.known = page.name, {parameter.name: parameter for parameter in page_parameters(page)}

    def check_sections(self, content: Any) -> None:
        if not isinstance(content, Mapping):
            raise UserError(f"must be a mapping with some of {', '.join(SECTIONS)}; got {shown(content)}")
        for name, section in content.items():
            if name in self.known and name not in SECTIONS:
                raise UserError(f"parameter {name} stands outside a section: indent it under product, zip or fixed")
            _check_name(name, SECTIONS, "section", "a grid takes")
            if section is None or (hasattr(section, "__len__") and not len(section)):
                raise UserError(f"section {name} is empty: fill it or leave it out")

    def axes(self, section: str, given: Any) -> list[Axis]:
        """The axes that a section makes."""
        if section == "seeds":
            return [self.axis({"seed": self.seeds(given)}, {})]
        given = _check_mapping(given, "n: [50, 100]")
        columns = {name: self.values(name, values) for name, values in given.items()}
        if section == "product":
            return [self.axis({name: values}, {name: given[name]}) for name, values in columns.items()]
        if len(columns) < 2:
            raise UserError(f"moves several parameters together; got only {next(iter(columns))}: put it under product")
        if len({len(column) for column in columns.values()}) > 1:
            lengths = ", ".join(f"{name} has {len(column)}" for name, column in columns.items())
            raise UserError(f"lists must have one length; {lengths} values")
        return [self.axis(columns, given)]

    def axis(self, columns: Mapping[str, Sequence[Any]], given: Mapping[str, Any]) -> Axis:
        """An axis on which no setting comes twice."""
        found = Axis("+".join(columns), tuple(columns), tuple(zip(*columns.values(), strict=True)))
        if len(set(found.values)) < len(found):
            setting = next(each for number, each in enumerate(found.values) if each in found.values[:number])
            twice = ", ".join(f"{name} = {shown(value)}" for name, value in zip(columns, setting, strict=True))
            ranged = any(isinstance(each, Mapping) for each in given.values())
            advice = "take a smaller count, or list the values (integers are rounded)" if ranged else "keep one"
            raise UserError(f"{twice} comes twice: {advice}")
        return found

    def seeds(self, given: Any) -> list[Any]:
        if "seed" not in self.known:
            raise UserError(f"page {self.page} has no parameter 'seed'; it takes: {', '.join(self.known) or 'nothing'}")
        seeds: Iterable[Any] | None = _as_list(given)
        if isinstance(given, Mapping):
            for name in given:
                _check_name(name, ("first", "count"), "key", "seeds take")
            if "count" not in given:
                raise UserError(f"need a count, as in {{first: 10, count: 5}}; got {shown(given)}")
            first = self.value("seed", given.get("first", 0))
            seeds = range(first, first + _check_count(given["count"], 1))
        elif seeds is None:
            seeds = range(_check_count(given, 1))
        return [self.value("seed", seed) for seed in seeds]

    def setting(self, section: Any) -> dict[str, Any]:
        """A mapping of parameters to one value each."""
        return {name: self.value(name, value) for name, value in _check_mapping(section, "n: 200").items()}

    def value(self, name: Any, value: Any) -> Any:
        """One value of the parameter `name`, of the type that the page declares."""
        _check_name(name, self.known, "parameter", f"page {self.page} takes")
        if isinstance(value, Mapping) or _as_list(value) is not None:
            raise UserError(
                f"parameter {name} takes one value here; got {shown(value)}: a list or range goes under product or zip"
            )
        value = check_value(self.known[name], value.item() if hasattr(value, "item") else value)
        return value + 0.0 if isinstance(value, float) else value  # -0.0 and 0.0 are one setting, and one identity

    def values(self, name: Any, given: Any) -> list[Any]:
        """All values of a list or a range."""
        if isinstance(given, Mapping):
            _check_name(name, self.known, "parameter", f"page {self.page} takes")
            with _said_of(name):
                return self.range(self.known[name], given)
        if (listed := _as_list(given)) is None:
            self.value(name, given)  # a wrong name or type is the better thing to say
            raise UserError(f"{name} needs a list or a range; got {shown(given)}: a single value goes under fixed")
        if not listed:
            raise UserError(f"{name} has an empty list: give it values or leave it out")
        return [self.value(name, value) for value in listed]

    def range(self, parameter: Parameter, given: Mapping[str, Any]) -> list[Any]:
        """Values from one end to the other, in decimal arithmetic: 0.15 and not 0.15000000000000002, on every machine."""
        for key in given:
            _check_name(key, ("linear", "log", "count"), "key", "a range takes")
        if parameter.type not in (int, float):
            raise UserError(f"takes no range, being {parameter.expectation}: list its values")
        kinds = [kind for kind in ("linear", "log") if kind in given]
        if len(kinds) != 1 or "count" not in given:
            raise UserError(f"a range is {RANGE}; got {shown(dict(given))}")
        ends = _as_list(given[kinds[0]])
        if ends is None or len(ends) != 2:
            raise UserError(f"{kinds[0]} needs two ends, as in {RANGE}; got {shown(given[kinds[0]])}")
        low, high = (self.value(parameter.name, end) for end in ends)
        count = _check_count(given["count"], 2)
        if kinds == ["log"] and min(low, high) <= 0:
            raise UserError(f"both ends of a log range must be above 0; got {shown(ends)}: use linear")
        with decimal.localcontext(prec=40):
            first, last = decimal.Decimal(str(low)), decimal.Decimal(str(high))
            shares = [decimal.Decimal(i) / (count - 1) for i in range(1, count - 1)]
            inner = [first * (last / first) ** t if kinds == ["log"] else first + (last - first) * t for t in shares]
            numbers = [round(number) if parameter.type is int else float(number) for number in inner]
        return [self.value(parameter.name, number) for number in (low, *numbers, high)]


@contextmanager
def _said_of(what: str) -> Iterator[None]:
    """Put `what` before the message of a `UserError` raised inside."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{what}: {error}") from None


def _check_name(name: Any, known: Iterable[str], what: str, takes: str) -> None:
    if name not in (known := list(known)):
        close = difflib.get_close_matches(str(name), known, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise UserError(f"unknown {what} {shown(name)}; {hint}{takes}: {', '.join(known) or 'none'}")


def _check_mapping(section: Any, example: str) -> Mapping[str, Any]:
    if not isinstance(section, Mapping):
        raise UserError(f"must be lines such as `{example}`; got {shown(section)}")
    return section


def _as_list(given: Any) -> list[Any] | None:
    """A list, tuple, range or array as a list; None for anything else."""
    if hasattr(given, "tolist"):
        given = given.tolist()
    if not isinstance(given, list | tuple | range):
        return None
    if len(given) > LARGEST:
        raise UserError(f"a list of {len(given)} values, more than {LARGEST}")
    return list(given)


def _check_count(given: Any, least: int) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or not least <= given <= LARGEST:
        raise UserError(f"the count must be an integer from {least} to {LARGEST}; got {shown(given)}")
    return given
