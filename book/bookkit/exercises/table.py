"""The table of accepted answers: hashes only, made by the book from its answers, read by `check`.

An answer x to d digits is its decimal rounding r(x); accepted are r(x) and the next roundings to d digits above and below
it, as many as the exercise's tolerance. Of each, the table holds scrypt(r, salt = name of the exercise):
RFC 7914, about 50 ms and 16 MB a guess. That keeps an answer from being read, by eye or by a search in the package. A
short number cannot be hidden from a program that tries all of them, and nothing here claims to do so.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import TypedDict

COST = 2**14  # scrypt's N: memory is 128 * 8 * N bytes


class Entry(TypedDict):
    """One exercise: `asks` says which number, `digits` how precisely (None: a whole number), `accepted` the hashes."""

    asks: str
    digits: int | None
    accepted: list[str]


def rounded(value: Decimal, digits: int | None) -> str:
    """`value` to `digits` significant digits, as in ``2.11e+1``; a whole number (`digits` None) in full."""
    if digits is None:
        return str(int(value))
    # Adding zero takes the sign off a zero that was rounded to.
    return f"{value + 0:.{digits - 1}e}"


def unit(value: Decimal, digits: int | None) -> Decimal:
    """One unit in the last digit of `value` rounded to `digits`."""
    return Decimal(1) if digits is None else Decimal(10) ** (Decimal(rounded(value, digits)).adjusted() - digits + 1)


def neighbours(value: Decimal, digits: int | None, reach: int) -> list[str]:
    """The rounding of `value` and those that follow it, `reach` on either side; below a power of ten they lie closer."""
    if digits is None:
        return [str(int(value) + k) for k in range(-reach, reach + 1)]
    centre = Decimal(rounded(value, digits))
    sign, up, down = (1 if centre >= 0 else -1), [abs(centre)], [abs(centre)]
    for _ in range(reach):
        up.append(up[-1] + unit(up[-1], digits))
        at_power = down[-1] == Decimal(10) ** down[-1].adjusted()
        down.append(down[-1] - unit(down[-1], digits) / (10 if at_power else 1))
    return [rounded(sign * size, digits) for size in (*down[:0:-1], *up)]


def digest(exercise: str, text: str, cost: int = COST) -> str:
    """scrypt of a rounded answer, salted with the exercise's name: equal answers of two exercises look different."""
    salt = f"attention-checked exercise {exercise}".encode()
    return hashlib.scrypt(text.encode(), salt=salt, n=cost, r=8, p=1, maxmem=2**27, dklen=16).hex()


def entry(exercise: str, asks: str, value: float | int, digits: int | None, tolerance: int, cost: int = COST) -> Entry:
    """The table's entry of an exercise whose answer is `value`. Hashes are sorted: their order tells nothing."""
    accepted = neighbours(Decimal(value), digits, tolerance)
    return {"asks": asks, "digits": digits, "accepted": sorted(digest(exercise, text, cost) for text in accepted)}


def as_text(entries: Mapping[str, Entry], cost: int = COST) -> str:
    """The table as JSON text: the same bytes for the same entries."""
    return (
        json.dumps({"scrypt_n": cost, "exercises": dict(sorted(entries.items()))}, indent=1, ensure_ascii=False) + "\n"
    )


@cache
def read(path: Path) -> tuple[dict[str, Entry], int]:
    """The entries of a book's table by exercise, and the cost of their hashes."""
    table = json.loads(path.read_text(encoding="utf-8"))
    return table["exercises"], table["scrypt_n"]


def of_page(entries: Iterable[str], page: str) -> list[str]:
    """The exercises of a page such as ``single_head/02_two_steps`` among `entries`, in their order on the page."""
    prefix = page_prefix(page)
    return sorted(
        (name for name in entries if name.startswith(prefix)), key=lambda name: int(name.removeprefix(prefix))
    )


def page_prefix(page: str) -> str:
    """``single_head/02_two_steps`` -> ``02-two-steps/``: what the names of its exercises begin with."""
    return page.rpartition("/")[2].replace("_", "-") + "/"
