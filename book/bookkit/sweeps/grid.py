"""Grids: which settings of a page a sweep runs, read from YAML (or a mapping) and checked before anything starts.

::

    product:                      # every entry is an axis of its own
      signal_norm: {log: [3, 300], count: 20}      # ends included
      label_noise: {linear: [0, 0.3], count: 7}
      n: [50, 100, 200]
    zip:                          # lists or ranges of one length, moved together: one axis
      d: [1000, 10000]
      step_size: [1.0, 0.1]
    points:                       # a list of settings: one axis
      - {optimiser: SGD, learning_rate: 0.01}
      - {optimiser: Adam, learning_rate: 0.001}
    seeds: 5                      # 0 to 4; or {first: 10, count: 5}; or a list. One axis, the fastest
    fixed: {draws: 10}

Values are checked where they stand, once each, so a large grid costs no more than its points.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bookkit.pages.catalogue import Page, UserError
from bookkit.pages.parameters import page_parameters
from bookkit.pages.rerun import read_parameter_file
from bookkit.sweeps.grid_values import (
    LARGEST,
    Values,
    as_list,
    check_count,
    check_mapping,
    check_name,
    listing,
    said_of,
    shown,
)

__all__ = ["Axis", "Grid", "make_grid", "read_grid"]

SECTIONS = ("product", "zip", "points", "seeds", "fixed")


@dataclass(frozen=True)
class Axis:
    """One direction of a grid. `values[i]` holds a value for each of `parameters`: several where they move together."""

    name: str  # of the parameters, joined by "+"; "point" for a list of settings
    parameters: tuple[str, ...]
    values: tuple[tuple[Any, ...], ...]

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True)
class Grid:
    """A checked grid. `parameters` has every point, all parameters of the page each, the last axis fastest; no two are equal."""

    axes: tuple[Axis, ...]
    fixed: dict[str, Any]
    parameters: tuple[dict[str, Any], ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Length of every axis."""
        return tuple(len(axis) for axis in self.axes)

    @property
    def varying(self) -> tuple[str, ...]:
        """Names of the parameters that are not the same at all points, axis by axis."""
        return tuple(name for axis in self.axes for name in axis.parameters)

    def as_json(self) -> dict[str, Any]:
        """What `from_json` makes the grid from again: axes and the first point, not every point."""
        axes = [
            {"name": axis.name, "parameters": list(axis.parameters), "values": [list(v) for v in axis.values]}
            for axis in self.axes
        ]
        return {"axes": axes, "fixed": dict(self.fixed), "first": dict(self.parameters[0])}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Grid:
        """The grid that `as_json` was taken of. Raises `ValueError` for anything else."""
        try:
            axes = tuple(
                Axis(axis["name"], tuple(axis["parameters"]), tuple(tuple(v) for v in axis["values"]))
                for axis in stored["axes"]
            )
            return cls(axes, dict(stored["fixed"]), _points(axes, stored["first"]))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a grid as `Grid.as_json` writes it: {type(error).__name__}: {error}") from error


def read_grid(path: Path, page: Page, fixed: Mapping[str, Any] | None = None) -> Grid:
    """The grid in a YAML file; see `make_grid`. Raises `UserError`, also for a file that cannot be read or is not YAML."""
    content = read_parameter_file(Path(path), "grid file", "product: {n: [50, 100]}")
    return _make_grid(content, page, fixed, f"grid file {path}")


def make_grid(content: Mapping[str, Any], page: Page, fixed: Mapping[str, Any] | None = None) -> Grid:
    """The grid that a mapping in the form above describes, checked against the parameters that `page` declares.

    `fixed` are values given beside it (on the command line, say); they override the grid's own `fixed`.

    Raises `UserError`, one line: where, what was expected, what came, what to do.
    """
    return _make_grid(content, page, fixed, "grid")


def _make_grid(content: Any, page: Page, fixed: Mapping[str, Any] | None, what: str) -> Grid:
    reader = _Sections(page.name, {parameter.name: parameter for parameter in page_parameters(page)})
    with said_of("fixed on the command line or in the call"):
        beside = reader.setting(fixed or {})
    with said_of(what):
        sections = reader.sections(content)
        axes: list[Axis] = []
        owners: dict[str, str] = {}
        for section in SECTIONS[:-1]:
            with said_of(section):
                found = list(getattr(reader, section)(sections[section])) if section in sections else []
            for name in (name for axis in found for name in axis.parameters):
                if name in owners:
                    raise UserError(f"parameter {name} is varied by {owners[name]} and by {section}: keep one")
                owners[name] = section
            axes += found
        with said_of("fixed"):
            held = reader.setting(sections.get("fixed", {}))
        for given, where in ((held, "under fixed"), (beside, "fixed on the command line or in the call")):
            if taken := [name for name in given if name in owners]:
                raise UserError(f"parameter {taken[0]} is {where}, and varied by {owners[taken[0]]}: leave one out")
        if not axes:
            raise UserError("an empty grid: give at least one of product, zip, points and seeds")
        lengths = [len(axis) for axis in axes]
        if math.prod(lengths) > LARGEST:
            shape = " x ".join(str(length) for length in lengths)
            raise UserError(
                f"{shape} = {math.prod(lengths)} points, more than {LARGEST}: make it smaller or several grids"
            )
    held |= beside
    defaults = {name: parameter.default for name, parameter in reader.known.items()}
    return Grid(tuple(axes), held, _points(axes, defaults | held))


def _points(axes: Iterable[Axis], base: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
    """Every combination of the axes' values put into `base`, whose order of names is kept."""
    names = [name for axis in axes for name in axis.parameters]
    return tuple(
        {**base, **dict(zip(names, itertools.chain.from_iterable(values), strict=True))}
        for values in itertools.product(*(axis.values for axis in axes))
    )


class _Sections(Values):
    """Reads the sections of a grid for one page: a method each, all raise `UserError`."""

    def sections(self, content: Any) -> Mapping[str, Any]:
        if not isinstance(content, Mapping):
            raise UserError(f"must be a mapping with some of {', '.join(SECTIONS)}; got {shown(content)}")
        for name, section in content.items():
            if name in self.known and name not in SECTIONS:
                raise UserError(f"parameter {name} stands outside a section: indent it under product, zip or fixed")
            check_name(name, SECTIONS, "section", "a grid takes")
            if section is None or (hasattr(section, "__len__") and not len(section)):
                raise UserError(f"section {name} is empty: fill it or leave it out")
        return content

    def product(self, section: Any) -> Iterator[Axis]:
        for name, given in check_mapping(section, "n: [50, 100]").items():
            values = self.values(name, given)
            yield _axis(name, (name,), [(value,) for value in values], ranged=isinstance(given, Mapping))

    def zip(self, section: Any) -> Iterator[Axis]:
        columns = {n: self.values(n, given) for n, given in check_mapping(section, "d: [1000, 2000]").items()}
        if len(columns) < 2:
            raise UserError(f"moves several parameters together; got only {next(iter(columns))}: put it under product")
        if len({len(column) for column in columns.values()}) > 1:
            lengths = ", ".join(f"{name} has {len(column)}" for name, column in columns.items())
            raise UserError(f"lists must have one length; {lengths} values")
        ranged = any(isinstance(given, Mapping) for given in section.values())
        yield _axis("+".join(columns), tuple(columns), list(zip(*columns.values(), strict=True)), ranged=ranged)

    def points(self, section: Any) -> Iterator[Axis]:
        settings = as_list(section)
        if settings is None:
            raise UserError(f"must be a list of settings, as in `- {{n: 50, d: 1000}}`; got {shown(section)}")
        values = []
        for number, setting in enumerate(settings, start=1):
            with said_of(f"entry {number}"):
                if not (isinstance(setting, Mapping) and setting):
                    raise UserError(f"must be a setting such as {{n: 50, d: 1000}}; got {shown(setting)}")
                checked = self.setting(setting)
                if set(setting) != set(settings[0]):
                    raise UserError(f"must set what entry 1 sets, {listing(settings[0])}; it sets {listing(setting)}")
                values.append(tuple(checked[name] for name in settings[0]))
        names = tuple(settings[0])
        yield _axis("+".join(names) if "point" in self.known else "point", names, values)

    def seeds(self, section: Any) -> Iterator[Axis]:
        if "seed" not in self.known:
            raise UserError(f"page {self.page} has no parameter 'seed'; it takes: {listing(self.known)}")
        if isinstance(section, Mapping):
            for name in section:
                check_name(name, ("first", "count"), "key", "seeds take")
            if "count" not in section:
                raise UserError(f"need a count, as in {{first: 10, count: 5}}; got {shown(section)}")
            first = self.value("seed", section.get("first", 0))
            seeds = range(first, first + check_count(section["count"], 1))
        elif (listed := as_list(section)) is not None:
            seeds = listed
        else:
            seeds = range(check_count(section, 1))
        yield _axis("seed", ("seed",), [(self.value("seed", seed),) for seed in seeds])


def _axis(name: str, parameters: tuple[str, ...], values: list[tuple[Any, ...]], *, ranged: bool = False) -> Axis:
    """An axis on which no setting comes twice."""
    seen: set[tuple[Any, ...]] = set()
    for setting in values:
        if setting in seen:
            twice = ", ".join(f"{name} = {shown(value)}" for name, value in zip(parameters, setting, strict=True))
            advice = "take a smaller count, or list the values (integers are rounded)" if ranged else "keep one"
            raise UserError(f"{twice} comes twice: {advice}")
        seen.add(setting)
    return Axis(name, parameters, tuple(values))
