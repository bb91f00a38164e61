r"""What is proved with rounding controlled: a certificate, its enclosure, and the precision at which it was decided.

A *ball* [m +/- r] is a number of python-flint (the library Arb) that stands for all real numbers in [m - r, m + r]. An operation on balls
returns a ball that holds the result for all of them, rounding included. So a program in balls is a proof: if the ball of a - b lies
above zero, then a > b. A ball that holds zero decides nothing, and the computation is done again with more bits.

    decided(question, bits=(64, 128, 256))    raise the precision until the question has an answer
    Certificate                               the statement, its verdict, its enclosure
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from typing import TYPE_CHECKING

from attnlib.extras import how_to_install

if TYPE_CHECKING:
    from flint import arb

BITS = (64, 128, 256, 512)


class NeedsFlint(ImportError):
    """python-flint is missing. Float results do not need it."""


@dataclass(frozen=True)
class Certificate:
    """What one certificate found.

    proved: True: the statement is proved; False: its contrary is proved; None: undecided at the highest precision that was tried.
    low, high: decimal numbers, rounded outwards, that enclose the quantity; empty where the statement has none.
    box: they are instead the ends of a range, of all numbers that the statement is about.
    """

    statement: str
    proved: bool | None
    low: str = ""
    high: str = ""
    bits: int = 0
    box: bool = False

    @property
    def verdict(self) -> str:
        """The answer in one word."""
        return {True: "proved", False: "refuted", None: "undecided"}[self.proved]


@contextmanager
def precision(bits: int) -> Iterator[None]:
    """Balls are computed with this many bits inside; afterwards as before. Raises ValueError below 2 and `NeedsFlint`."""
    if isinstance(bits, bool) or not isinstance(bits, int) or bits < 2:
        raise ValueError(f"bits must be a whole number >= 2; got {bits!r}")
    flint = _flint()
    before = flint.ctx.prec
    flint.ctx.prec = bits
    try:
        yield
    finally:
        flint.ctx.prec = before


@contextmanager
def series_terms(count: int) -> Iterator[None]:
    """Power series keep this many terms inside; afterwards as before."""
    flint = _flint()
    before, flint.ctx.cap = flint.ctx.cap, count
    try:
        yield
    finally:
        flint.ctx.cap = before


def ball(number: float | int | str) -> arb:
    """The number as a ball: a float or an int exactly, a text such as "0.2" as the decimal that it says."""
    return _flint().arb(number)


def sign(value: arb) -> int | None:
    """1 or -1 where all numbers of the ball have that sign, 0 where it is exactly zero, None where it cannot be told."""
    if value > 0:
        return 1
    if value < 0:
        return -1
    return 0 if value.is_zero() else None


def decided(question: Callable[[int], bool | None], bits: Sequence[int] = BITS) -> tuple[bool | None, int]:
    """The first answer that is not None, with growing precision, and the bits at which it came; (None, last bits) if there is none.

    question(bits) runs inside `precision(bits)`.
    """
    for number in bits:
        with precision(number):
            answer = question(number)
        if answer is not None:
            return answer, number
    return None, bits[-1]


def bounds(value: arb, digits: int = 6) -> tuple[str, str]:
    """Two decimals of `digits` significant digits, rounded outwards, between which the whole ball lies.

    Raises ValueError for a ball that is not finite.
    """
    if not value.is_finite():
        raise ValueError(f"value must be a finite ball; got {value}")
    with precision(64 + 4 * digits):
        low, high = _exact(value.lower()), _exact(value.upper())
    return _rounded(low, digits, up=False), _rounded(high, digits, up=True)


def _exact(end: arb) -> Fraction:
    """An end of a ball, which is a ball of radius zero, as a fraction."""
    mantissa, exponent = end.man_exp()
    return Fraction(int(mantissa)) * Fraction(2) ** int(exponent)


def _rounded(number: Fraction, digits: int, *, up: bool) -> str:
    context = Context(prec=digits, rounding=ROUND_CEILING if up else ROUND_FLOOR, Emax=10**9, Emin=-(10**9))
    return str(context.divide(Decimal(number.numerator), Decimal(number.denominator)))


def _flint():  # type: ignore[no-untyped-def]
    try:
        import flint
    except ImportError:
        raise NeedsFlint(
            f"certificates need python-flint: {how_to_install('certified')}; all other numbers are computed without it"
        ) from None
    return flint
