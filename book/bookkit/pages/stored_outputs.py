"""Compare the outputs stored in a page with those of running it again: numbers within a tolerance, the rest exactly.

Why a tolerance: another processor adds in another order, and the last digits move. Why no larger than it must be: a wrong
constant must not slip through. Integers are counts, and exact; tolerances are for numbers with a decimal point or an exponent.

- JSON data (``application/*json``): each float has its own tolerance, measured and kept beside the page (`tolerances`).
- Text (stdout, stderr, ``text/*``, strings inside JSON): relative 1e-3, because what is printed is rounded already. A
  printed number that was seen to move (`tolerances`) may differ by one unit of its last digit.
- Both: two numbers below 1e-12 in size are equal, whatever their sign: they are rounding noise around zero.
- What each rule judged (``parts`` of a claim): a number that is one of the evidence's has its tolerance; any other follows from these,
  so its relative tolerance is ten times that of the loosest of them, and 1e-4 at least.
- Text that repeats the JSON of its own output (the tables of results and claims): its words. The numbers are those of the JSON.
- Pictures: coarsely (`pictures`), for how letters are drawn depends on versions; and what their code says that it drew (`drawn`).
"""

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from bookkit.pages.pictures import KINDS, drawn_differences, picture_difference
from bookkit.pages.tolerances import FLOOR, NONE, Tolerance, Tolerances, address
from bookkit.results import CLAIMS_TYPE, RESULTS_TYPE

TEXT_RELATIVE = 1e-3
DATA = (RESULTS_TYPE, CLAIMS_TYPE)  # outputs whose text forms repeat their JSON

PART = re.compile(r"\.parts\[\d+\]\.\w+$")  # of a claim: made of the draws of its numbers, not measured beside them
# Of a number in a part that is none of the evidence's. On other processors and shaken inputs, 111 numbers that repeat one moved, all
# within its tolerance; of 90 others none used more than a sixth of what it is allowed here (M13: 1.5e-7; T2: 8e-4 of 2e-2). The largest
# of a claim whose numbers are tight was 5.4e-6: the room of E5's first part, a factor of 2.5 million to a deviation near rounding.
LOOSER, LEAST_OF_PART = 10, 1e-4

# A number that stands for itself: not inside a word (C8, float64), a version (2.13.0), a colour (#1e3a5f), an address.
# The minus may be the typographic one. A plus, and a full stop without a digit after it, belong to the text around.
NUMBER = re.compile(r"(?<![\w.#])([-−]?(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?)(?![\w.]*\.\d)(?!\d)")
# Widget ids are random; the state they belong to is not part of a page.
IGNORED = ("application/vnd.jupyter.widget-view+json",)


def compare_outputs(
    stored: Sequence[Mapping[str, Any]],
    fresh: Sequence[Mapping[str, Any]],
    tolerances: Tolerances = NONE,
    cell: int = 0,
) -> list[str]:
    """Differences between two lists of notebook outputs, in words; empty when they agree.

    Streams are joined first: how a kernel cuts its text into messages is a matter of timing. `tolerances`: of the page;
    `cell`: which code cell of it, counted from 1.
    """
    differences = []
    for stream in ("stdout", "stderr"):
        old, new = (_stream(outputs, stream) for outputs in (stored, fresh))
        differences += [f"{stream}: {d}" for d in text_differences(old, new, tolerances, f"cell {cell} {stream}")]
    old_shown, new_shown = ([o for o in outputs if o["output_type"] != "stream"] for outputs in (stored, fresh))
    for number, (old, new) in enumerate(zip_longest(old_shown, new_shown), start=1):
        if old is None or new is None:
            differences.append(f"output {number} is {'new' if old is None else 'missing'}: {_brief(old or new)}")
        else:
            where = f"cell {cell} output {number}"
            differences += [f"output {number}, {d}" for d in _compare_output(old, new, tolerances, where)]
    return differences


def text_differences(stored: str, fresh: str, tolerances: Tolerances = NONE, where: str = "") -> list[str]:
    """Differences between two texts: at most one, the first, quoted with its line. Empty when they agree."""
    if stored == fresh:
        return []
    old_lines, new_lines = stored.splitlines(), fresh.splitlines()
    for number, (old, new) in enumerate(zip_longest(old_lines, new_lines)):
        if old is None or new is None:
            return [
                f"line {number + 1} is {'new' if old is None else 'missing'}: {_brief(new if old is None else old)}"
            ]
        if not same_text(old, new, moving_in(tolerances, where, number)):
            # A table is one long line: quote it from shortly before the place where it changes.
            start = max(0, _agreement(old, new) - 40) if max(len(old), len(new)) > 120 else 0
            return [f"line {number + 1}: stored {_brief(old[start:])}, now {_brief(new[start:])}"]
    # The lines agree, so the texts differ at most by numbers within the tolerance, or by line ends.
    ends = (re.findall(r"\r\n|\r|\n", text) for text in (stored, fresh))
    return [] if next(ends) == next(ends) else ["the line ends differ"]


def moving_in(tolerances: Tolerances, where: str, line: int) -> Collection[int]:
    """Which numbers of a line may have another last digit, counted from 0."""
    start = f"{where} {line}#"
    return {int(name.removeprefix(start)) for name in tolerances.moving if name.startswith(start)}


def same_text(stored: str, fresh: str, moving: Collection[int] = ()) -> bool:
    """Whether two texts agree: same words, and numbers equal within `TEXT_RELATIVE`, or those `moving` in their last digit."""
    # `re.split` with one group gives text, number, text, ..., number, text.
    old, new = NUMBER.split(stored), NUMBER.split(fresh)
    return (
        len(old) == len(new)
        and old[::2] == new[::2]
        and all(
            _same_number_text(a, b) or (place in moving and units_apart(a, b) <= 1)
            for place, (a, b) in enumerate(zip(old[1::2], new[1::2], strict=True))
        )
    )


def units_apart(stored: str, fresh: str) -> float:
    """How many units of the last printed digit lie between two numbers as printed; infinite between whole numbers."""
    if not (is_decimal(stored) and is_decimal(fresh)):
        return 0.0 if stored == fresh else math.inf
    return round(abs(as_number(stored) - as_number(fresh)) / max(map(unit, (stored, fresh))), 3)


def is_decimal(text: str) -> bool:
    """Whether a number as printed has a decimal point or an exponent: it is no count."""
    return bool(set(text) & set(".eE"))


def as_number(text: str) -> float:
    """A number as printed, whose minus may be the typographic one."""
    return float(text.replace("−", "-"))


def unit(text: str) -> float:
    """One unit of the last digit of a number as printed: 0.01 for 1.25, 1e-7 for 1.5e-6."""
    digits, _, exponent = text.lower().replace("−", "-").partition("e")
    return 10.0 ** (int(exponent or 0) - len(digits.partition(".")[2]))


def _same_label(stored: str, fresh: str) -> bool:
    """Whether two texts in a figure agree: same words, and numbers but for one unit of their last digit."""
    pairs = zip(NUMBER.split(stored)[1::2], NUMBER.split(fresh)[1::2], strict=False)
    return same_words(stored, fresh) and all(units_apart(*pair) <= 1 for pair in pairs)


def same_words(stored: str, fresh: str) -> bool:
    """Whether two texts agree but for the numbers in them."""
    return NUMBER.split(stored)[::2] == NUMBER.split(fresh)[::2]


def _agreement(stored: str, fresh: str) -> int:
    """How many characters pass before two texts cease to agree (numbers within the tolerance do not count)."""
    length = 0
    for index, (old, new) in enumerate(zip(NUMBER.split(stored), NUMBER.split(fresh), strict=False)):
        if old != new and not (index % 2 and _same_number_text(old, new)):
            return length + next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), 0)
        length += len(old)
    return length


def _same_number_text(stored: str, fresh: str) -> bool:
    if stored == fresh or not (is_decimal(stored) and is_decimal(fresh)):
        return stored == fresh
    old, new = as_number(stored), as_number(fresh)
    return (abs(old) < FLOOR and abs(new) < FLOOR) or math.isclose(old, new, rel_tol=TEXT_RELATIVE)


def json_differences(stored: Any, fresh: Any, tolerances: Tolerances = NONE, kind: str = "") -> list[str]:
    """Differences between two JSON values, each with its path (``$[3].numbers.slope``). Empty when they agree."""
    old, new = (dict(_leaves(value)) for value in (stored, fresh))
    if kind == CLAIMS_TYPE:
        tolerances = _with_parts(stored, tolerances)
    differences = []
    for path in {**old, **new}:
        shown = "$" + "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)
        if path not in old or path not in new:
            differences.append(f"{shown} is {'new' if path not in old else 'missing'}")
        elif not _same_leaf(old[path], new[path], tolerances, where := address(kind, stored, path)):
            known = tolerances.numbers.get(where)
            allowed = f" (tolerance {known.allowed:.1g})" if known and isinstance(old[path], float) else ""
            differences.append(f"{shown}: stored {_brief(old[path])}, now {_brief(new[path])}{allowed}")
    return differences


def _same_leaf(stored: Any, fresh: Any, tolerances: Tolerances, where: str) -> bool:
    if isinstance(stored, str) and isinstance(fresh, str):
        return same_text(stored, fresh, moving_in(tolerances, where, 0))
    if is_number(stored) and is_number(fresh) and (isinstance(stored, float) or isinstance(fresh, float)):
        return tolerances.same(where, stored, fresh)
    return type(stored) is type(fresh) and stored == fresh


def _with_parts(records: Sequence[Mapping[str, Any]], tolerances: Tolerances) -> Tolerances:
    """`tolerances`, and those of the numbers in the parts of claims; see the module."""
    numbers = dict(tolerances.numbers)
    for place, record in enumerate(records):
        known = [
            (value, numbers[name])
            for path, value in _leaves(record.get("numbers", {}))
            if isinstance(value, float)
            and (name := address(CLAIMS_TYPE, records, (place, "numbers", *path))) in numbers
        ]
        loosest = max(
            [LEAST_OF_PART, *(LOOSER * each.allowed / abs(value) for value, each in known if abs(value) > FLOOR)]
        )
        for path, value in _leaves(record.get("parts", [])):
            if isinstance(value, float):
                repeated = [each for other, each in known if other == value]
                name = address(CLAIMS_TYPE, records, (place, "parts", *path))
                numbers[name] = repeated[0] if repeated else Tolerance(loosest * abs(value), "rounding")
    return replace(tolerances, numbers=numbers)


def _compare_output(
    stored: Mapping[str, Any], fresh: Mapping[str, Any], tolerances: Tolerances, where: str
) -> list[str]:
    if stored["output_type"] != fresh["output_type"]:
        return [f"kind: stored {stored['output_type']}, now {fresh['output_type']}"]
    if stored["output_type"] == "error":  # the traceback holds paths and is not compared
        old, new = (f"{output['ename']}: {output['evalue']}" for output in (stored, fresh))
        return [f"error: {difference}" for difference in text_differences(old, new)]
    old_data, new_data = (shown_data(output) for output in (stored, fresh))
    repeats = any(kind in old_data for kind in DATA)
    differences = [f"{kind}: missing" for kind in old_data if kind not in new_data]
    differences += [f"{kind}: new" for kind in new_data if kind not in old_data]
    for kind, old in old_data.items():
        if (new := new_data.get(kind)) is None:
            continue
        if kind in KINDS:
            found = list(filter(None, [picture_difference(old, new)])) or drawn_differences(old, new, _same_label)
        elif not (isinstance(old, str) and isinstance(new, str)):
            found = json_differences(old, new, tolerances, kind)
        elif repeats:
            found = [] if same_words(old, new) else text_differences(old, new) or ["the words differ"]
        else:
            found = text_differences(old, new, tolerances, f"{where} {kind}")
        differences += [f"{kind}: {difference}" for difference in found]
    return differences


def shown_data(output: Mapping[str, Any]) -> dict[str, Any]:
    """What an output shows, by type: texts whole, without what is not part of a page."""
    return {
        kind: _joined(data) if kind.startswith("text/") else data
        for kind, data in output.get("data", {}).items()
        if kind not in IGNORED
    }


def texts_of(outputs: Sequence[Mapping[str, Any]], cell: int) -> Iterator[tuple[str, str]]:
    """Every text of a cell's outputs whose numbers are compared, with its address; those inside JSON are left to `json_leaves`."""
    for stream in ("stdout", "stderr"):
        yield f"cell {cell} {stream}", _stream(outputs, stream)
    for number, output in enumerate((o for o in outputs if o["output_type"] != "stream"), start=1):
        data = shown_data(output)
        if not any(kind in data for kind in DATA):
            yield from (
                (f"cell {cell} output {number} {k}", d)
                for k, d in data.items()
                if isinstance(d, str) and k not in KINDS
            )


def json_leaves(outputs: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Every number, text or truth value inside the JSON of a cell's outputs, with its address."""
    for output in outputs:
        for kind, payload in output.get("data", {}).items():
            if kind.endswith("json") and kind not in IGNORED:
                found = ((address(kind, payload, path), value) for path, value in _leaves(payload))
                yield from ((where, value) for where, value in found if not (PART.search(where) and is_number(value)))


def _leaves(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """What is neither a table nor a list, with its path; an empty one stands for itself."""
    if value and isinstance(value, Mapping | list):
        for key, inner in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from _leaves(inner, (*path, key))
    else:
        yield path, value


def _stream(outputs: Sequence[Mapping[str, Any]], name: str) -> str:
    return "".join(_joined(o["text"]) for o in outputs if o["output_type"] == "stream" and o["name"] == name)


def _joined(text: str | list[str]) -> str:
    return text if isinstance(text, str) else "".join(text)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _brief(value: Any, width: int = 160) -> str:
    text = repr(value)
    return text if len(text) <= width else text[: width - 3] + "..."
