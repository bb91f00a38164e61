r"""A printed number and the ball of the number that it stands for: is it rounded correctly, to its last digit?

rounds_to("C", ball, "128.0")    proved: |C - 128.0| < 0.05; refuted: the same with another last digit
moved("128.0", 1)                "128.1"
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING

from attnbook.certified.certificate import BITS, Certificate, ball, bounds, decided, precision

if TYPE_CHECKING:
    from flint import arb


def moved(printed: str, steps: int) -> str:
    """The same decimal with its last digit moved by `steps`."""
    number = Decimal(printed)
    return str(number + steps * Decimal(1).scaleb(int(number.as_tuple().exponent)))


def every(statement: str, certificates: Sequence[Certificate]) -> Certificate:
    """All of them: refuted if one is, undecided if one is and none is refuted; the enclosure is the hull of theirs, if they have one."""
    answers = [certificate.proved for certificate in certificates]
    proved = False if False in answers else None if None in answers else True
    lows, highs = ([x for c in certificates if (x := end(c))] for end in (lambda c: c.low, lambda c: c.high))
    low, high = (min(lows, key=Decimal), max(highs, key=Decimal)) if lows and highs else ("", "")
    return Certificate(statement, proved, low, high, max(certificate.bits for certificate in certificates), True)


def fraction(number: Fraction) -> arb:
    """A fraction as a ball."""
    return ball(number.numerator) / ball(number.denominator)


def rounds_to(name: str, value: Callable[[], arb], printed: str, way: str = "") -> Certificate:
    """Is |value - printed| less than half a unit of the last printed digit? `value` runs at growing precision.

    way: "down" or "up" if the number is printed as a bound; then the value is not below it, or not above, by less than a unit.
    """
    number = Decimal(printed)
    unit, found = Fraction(10) ** int(number.as_tuple().exponent), {}
    middle = Fraction(number) + {"": 0, "down": unit / 2, "up": -unit / 2}[way]

    def question(bits: int) -> bool | None:
        found["ball"] = value()
        distance = abs(found["ball"] - fraction(middle))
        return True if distance < fraction(unit / 2) else False if distance > fraction(unit / 2) else None

    answer, bits = decided(question)
    digits = len(number.as_tuple().digits) + 5
    return _certificate(f"{name} = {printed}, rounded {way}".strip(), answer, found["ball"], bits, digits)


def holds(
    statement: str, question: Callable[[], bool | None], value: Callable[[], arb], digits: int = 8
) -> Certificate:
    """A statement that balls decide, and the enclosure of the number that it is about."""
    answer, bits = decided(lambda bits: question())
    with precision(bits):
        return _certificate(statement, answer, value(), bits, digits)


def _certificate(statement: str, answer: bool | None, value: arb, bits: int, digits: int) -> Certificate:
    return Certificate(statement, answer, *bounds(value, digits), bits)


def enclosed_root(f: Callable[[arb], arb], slope: Callable[[arb], arb], guess: float) -> arb:
    """The only root of f within 1e-6 of `guess`, by interval Newton steps at the present precision.

    N(X) = m - f(m) / f'(X), m the midpoint of X: if N(X) lies inside X, X holds one root and no more, and it lies in N(X).
    Raises ArithmeticError where the first step proves nothing: a wrong guess, or too few bits.
    """
    from flint import arb

    interval = arb(guess, 1e-6)
    for step in range(2 + max(BITS).bit_length()):
        middle = interval.mid()
        image = middle - f(middle) / slope(interval)
        if step == 0 and not (interval.lower() < image < interval.upper()):
            raise ArithmeticError(f"no root is proved within 1e-6 of {guess:g}")
        if step and not image.rad() < interval.rad():
            break
        interval = image
    return interval
