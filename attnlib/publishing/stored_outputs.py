"""Compare the outputs stored in a page with those of running it again: numbers within a tolerance, the rest exactly.

Why a tolerance: another processor adds in another order, and the last digits move. Why so small a one: a wrong constant
must not slip through. It holds for numbers written with a decimal point or an exponent; integers are counts, and exact.

- Text (stdout, stderr, ``text/*``, strings inside JSON): relative 1e-3, because what is printed is rounded already.
- JSON data (``application/*json``): floats relative 1e-6, because they are stored in full.
- Both: two numbers below 1e-12 in size are equal, whatever their sign: they are rounding noise around zero.
- Pictures: only that there is one. Their pixels depend on fonts and versions; the numbers they show are stored as data.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

TEXT_RELATIVE = 1e-3
JSON_RELATIVE = 1e-6
FLOOR = 1e-12

# A number that stands for itself: not inside a word (C8, float64), a version (2.13.0), a colour (#1e3a5f), an address.
# The minus may be the typographic one. A plus, and a full stop without a digit after it, belong to the text around.
NUMBER = re.compile(r"(?<![\w.#])([-−]?(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?)(?![\w.]*\.\d)(?!\d)")
PICTURES = ("image/png", "image/jpeg", "image/svg+xml", "application/pdf")
# Widget ids are random; the state they belong to is not part of a page.
IGNORED = ("application/vnd.jupyter.widget-view+json",)


def compare_outputs(stored: Sequence[Mapping[str, Any]], fresh: Sequence[Mapping[str, Any]]) -> list[str]:
    """Differences between two lists of notebook outputs, in words; empty when they agree.

    Streams are joined first: how a kernel cuts its text into messages is a matter of timing.
    """
    differences = []
    for stream in ("stdout", "stderr"):
        old, new = (_stream(outputs, stream) for outputs in (stored, fresh))
        differences += [f"{stream}: {difference}" for difference in text_differences(old, new)]
    old_shown, new_shown = ([o for o in outputs if o["output_type"] != "stream"] for outputs in (stored, fresh))
    for number, (old, new) in enumerate(zip_longest(old_shown, new_shown), start=1):
        if old is None or new is None:
            differences.append(f"output {number} is {'new' if old is None else 'missing'}: {_brief(old or new)}")
        else:
            differences += [f"output {number}, {difference}" for difference in _compare_output(old, new)]
    return differences


def text_differences(stored: str, fresh: str) -> list[str]:
    """Differences between two texts: at most one, the first, quoted with its line. Empty when they agree."""
    if stored == fresh:
        return []
    old_lines, new_lines = stored.splitlines(), fresh.splitlines()
    for number, (old, new) in enumerate(zip_longest(old_lines, new_lines), start=1):
        if old is None or new is None:
            return [f"line {number} is {'new' if old is None else 'missing'}: {_brief(new if old is None else old)}"]
        if not same_text(old, new):
            # A table is one long line: quote it from shortly before the place where it changes.
            start = max(0, _agreement(old, new) - 40) if max(len(old), len(new)) > 120 else 0
            return [f"line {number}: stored {_brief(old[start:])}, now {_brief(new[start:])}"]
    # The lines agree, so the texts differ at most by numbers within the tolerance, or by line ends.
    return [] if same_text(stored, fresh) else ["the line ends differ"]


def same_text(stored: str, fresh: str) -> bool:
    """Whether two texts agree: same words, and numbers equal within `TEXT_RELATIVE`."""
    # `re.split` with one group gives text, number, text, ..., number, text.
    old, new = NUMBER.split(stored), NUMBER.split(fresh)
    return (
        len(old) == len(new)
        and old[::2] == new[::2]
        and all(_same_number_text(a, b) for a, b in zip(old[1::2], new[1::2], strict=True))
    )


def _agreement(stored: str, fresh: str) -> int:
    """How many characters pass before two texts cease to agree (numbers within the tolerance do not count)."""
    length = 0
    for index, (old, new) in enumerate(zip(NUMBER.split(stored), NUMBER.split(fresh), strict=False)):
        if old != new and not (index % 2 and _same_number_text(old, new)):
            return length + next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), 0)
        length += len(old)
    return length


def _same_number_text(stored: str, fresh: str) -> bool:
    if stored == fresh:
        return True
    if not all(re.search(r"[.eE]", text) for text in (stored, fresh)):
        return False
    return same_number(*(float(text.replace("−", "-")) for text in (stored, fresh)), TEXT_RELATIVE)


def same_number(stored: float, fresh: float, relative: float) -> bool:
    """Whether two floats agree within `relative`, or are both below the floor; nan agrees with nan, inf with inf."""
    if math.isnan(stored) or math.isnan(fresh):
        return math.isnan(stored) and math.isnan(fresh)
    if abs(stored) < FLOOR and abs(fresh) < FLOOR:
        return True
    return math.isclose(stored, fresh, rel_tol=relative)


def json_differences(stored: Any, fresh: Any, path: str = "$") -> list[str]:
    """Differences between two JSON values, each with its path (``$[3].numbers.slope``). Empty when they agree."""
    if isinstance(stored, Mapping) and isinstance(fresh, Mapping):
        changed = [f"{path}.{key} is missing" for key in stored if key not in fresh]
        changed += [f"{path}.{key} is new" for key in fresh if key not in stored]
        for key in stored:
            if key in fresh:
                changed += json_differences(stored[key], fresh[key], f"{path}.{key}")
        return changed
    if _is_list(stored) and _is_list(fresh):
        if len(stored) != len(fresh):
            return [f"{path} had {len(stored)} entries, now {len(fresh)}"]
        return [
            difference
            for index, (old, new) in enumerate(zip(stored, fresh, strict=True))
            for difference in json_differences(old, new, f"{path}[{index}]")
        ]
    if isinstance(stored, str) and isinstance(fresh, str):
        same = same_text(stored, fresh)
    elif _is_number(stored) and _is_number(fresh) and (isinstance(stored, float) or isinstance(fresh, float)):
        same = same_number(stored, fresh, JSON_RELATIVE)
    else:
        same = type(stored) is type(fresh) and stored == fresh
    return [] if same else [f"{path}: stored {_brief(stored)}, now {_brief(fresh)}"]


def _compare_output(stored: Mapping[str, Any], fresh: Mapping[str, Any]) -> list[str]:
    if stored["output_type"] != fresh["output_type"]:
        return [f"kind: stored {stored['output_type']}, now {fresh['output_type']}"]
    if stored["output_type"] == "error":  # the traceback holds paths and is not compared
        old, new = (f"{output['ename']}: {output['evalue']}" for output in (stored, fresh))
        return [f"error: {difference}" for difference in text_differences(old, new)]
    old_data, new_data = ({k: v for k, v in o["data"].items() if k not in IGNORED} for o in (stored, fresh))
    differences = [f"{kind}: missing" for kind in old_data if kind not in new_data]
    differences += [f"{kind}: new" for kind in new_data if kind not in old_data]
    for kind in old_data:
        if kind in new_data and kind not in PICTURES:
            old, new = old_data[kind], new_data[kind]
            if kind.startswith("text/"):
                old, new = _joined(old), _joined(new)
            compare = text_differences if isinstance(old, str) and isinstance(new, str) else json_differences
            differences += [f"{kind}: {difference}" for difference in compare(old, new)]
    return differences


def _stream(outputs: Sequence[Mapping[str, Any]], name: str) -> str:
    return "".join(_joined(o["text"]) for o in outputs if o["output_type"] == "stream" and o["name"] == name)


def _joined(text: str | list[str]) -> str:
    return text if isinstance(text, str) else "".join(text)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _brief(value: Any, width: int = 160) -> str:
    text = repr(value)
    return text if len(text) <= width else text[: width - 3] + "..."
