"""Grids: at which settings of a page a sweep runs it, read from YAML (or a mapping) and checked before anything starts.

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

import itertools
import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bookkit.pages.catalogue import Page, UserError
from bookkit.pages.parameters import Parameter, check_parameters, check_value, page_parameters, shown
from bookkit.pages.rerun import read_parameter_file

SECTIONS = ("product", "zip", "seeds", "fixed")
LARGEST = 100_000  # points: at a second each they take a day; beyond, a typing error is likelier than a wish
RANGE = "{log: [1, 100], count: 5} or {linear: [0, 1], count: 5}"


def read_grid(given: Path | str | Mapping[str, Any], page: Page) -> list[dict[str, Any]]:
    """The points of a grid, a file or the mapping that it would hold: all parameters of `page` at each, the last axis fastest.

    Raises `UserError` for a file that cannot be read and for whatever is wrong in it; no two points are equal.
    """
    content, what = given, "grid"
    if not isinstance(given, Mapping):
        content, what = read_parameter_file(Path(given), "grid file", "product: {n: [50, 100]}"), f"grid file {given}"
    try:
        return _points(content, page)
    except UserError as error:
        raise UserError(f"{what}: {error}") from None


def _points(content: Mapping[str, Any], page: Page) -> list[dict[str, Any]]:
    known = {parameter.name: parameter for parameter in page_parameters(page)}
    for section, held in content.items():
        if section not in SECTIONS:
            raise UserError(f"unknown section {shown(section)}: parameters stand under {', '.join(SECTIONS)}")
        if section != "seeds" and not (isinstance(held, Mapping) and held):
            raise UserError(f"{section} must hold lines such as `n: [50, 100]`, under fixed `n: 50`; got {shown(held)}")
    product, zipped, fixed = (content.get(section, {}) for section in ("product", "zip", "fixed"))
    names = [*product, *zipped, *(["seed"] if "seeds" in content else []), *fixed]
    check_parameters(page, {name: known[name].default if name in known else None for name in names})
    if twice := [name for name in names if names.count(name) > 1]:
        raise UserError(f"parameter {twice[0]} stands in two sections: keep one")
    seeds = {"seed": _seeds(known["seed"], content["seeds"])} if "seeds" in content else {}
    axes = [axis for axis in (*({name: values} for name, values in product.items()), zipped, seeds) if axis]
    settings = [_settings({name: _values(known[name], values) for name, values in axis.items()}) for axis in axes]
    if (count := math.prod(map(len, settings))) > LARGEST:
        raise UserError(f"{count} points, more than {LARGEST}: make it smaller, or several grids")
    base = {each.name: each.default for each in known.values()}
    base |= {name: check_value(known[name], value) for name, value in fixed.items()}
    points = (itertools.chain.from_iterable(values) for values in itertools.product(*settings))
    return [base | dict(zip(names, values, strict=False)) for values in points]  # the names of `fixed` come last


def _settings(columns: Mapping[str, list[Any]]) -> list[tuple[Any, ...]]:
    """What an axis holds: values of its parameters, moved together, no two settings equal."""
    if len({len(column) for column in columns.values()}) > 1:
        raise UserError(f"lists under zip must have one length; got {[len(column) for column in columns.values()]}")
    found = list(zip(*columns.values(), strict=True))
    setting, times = Counter(found).most_common(1)[0]
    if times > 1:
        said = ", ".join(f"{name} = {shown(value)}" for name, value in zip(columns, setting, strict=True))
        raise UserError(f"{said} comes twice: keep one (a range of a whole number is rounded: take a smaller count)")
    return found


def _seeds(parameter: Parameter, given: Any) -> Any:
    if isinstance(given, Mapping) and "count" in given and given.keys() <= {"first", "count"}:
        first = check_value(parameter, given.get("first", 0))
        return range(first, first + _count(given["count"], 1))
    return range(_count(given, 1)) if isinstance(given, int) else given


def _values(parameter: Parameter, given: Any) -> list[Any]:
    """All values of a list or a range, each of the parameter's type."""
    if isinstance(given, Mapping):
        return _range(parameter, given)
    given = given.tolist() if hasattr(given, "tolist") else given
    if not isinstance(given, list | tuple | range) or not 0 < len(given) <= LARGEST:
        raise UserError(f"{parameter.name} needs a list of 1 to {LARGEST} values or {RANGE}; got {shown(given)}")
    return [check_value(parameter, value) for value in given]


def _range(parameter: Parameter, given: Mapping[str, Any]) -> list[Any]:
    """Values from one end to the other, to twelve digits: 0.15 and not 0.15000000000000002, on every machine."""
    kind = "log" if "log" in given else "linear"
    ends = given.get(kind)
    if given.keys() != {kind, "count"} or not isinstance(ends, list | tuple) or len(ends) != 2:
        raise UserError(f"{parameter.name}: a range is {RANGE}; got {shown(dict(given))}")
    if parameter.type not in (int, float):
        raise UserError(f"{parameter.name} takes no range, being {parameter.expectation}: list its values")
    (low, high), count = (check_value(parameter, end) for end in ends), _count(given["count"], 2)
    if kind == "log" and min(low, high) <= 0:
        raise UserError(f"{parameter.name}: both ends of a log range must be above 0; got {shown(ends)}: use linear")
    shares = [number / (count - 1) for number in range(1, count - 1)]
    inner = [low * (high / low) ** t if kind == "log" else low + (high - low) * t for t in shares]
    numbers = [round(number) if parameter.type is int else float(f"{number:.12g}") for number in inner]
    return [low, *(check_value(parameter, number) for number in numbers), high]


def _count(given: Any, least: int) -> int:
    if type(given) is not int or not least <= given <= LARGEST:
        raise UserError(f"a count must be a whole number from {least} to {LARGEST}; got {shown(given)}")
    return given
