"""A printed number against its ball: rounding, other last digits, ties, roots."""

from fractions import Fraction

import pytest

pytest.importorskip("flint")

from attnbook.certified.certificate import Certificate, ball, precision
from attnbook.certified.printed import enclosed_root, every, fraction, holds, moved, rounds_to


@pytest.mark.parametrize(
    ("printed", "steps", "said"),
    [("128.03", 1, "128.04"), ("-0.067", 1, "-0.066"), ("1.99", 1, "2.00"), ("9601", -2, "9599")],
)
def test_the_last_digit_moves(printed: str, steps: int, said: str) -> None:
    assert moved(printed, steps) == said


@pytest.mark.parametrize(
    ("printed", "proved"), [("0.333", True), ("0.334", False), ("0.332", False), ("0.33", True), ("0.3", True)]
)
def test_a_third(printed: str, proved: bool) -> None:
    found = rounds_to("a third", lambda: fraction(Fraction(1, 3)), printed)
    assert found.proved is proved
    assert Fraction(found.low) < Fraction(1, 3) < Fraction(found.high)
    assert Fraction(found.high) - Fraction(found.low) < Fraction(1, 10**5)


@pytest.mark.parametrize(
    ("number", "way", "proved"),
    [
        ("6.94", "down", True),
        ("6.95", "down", False),
        ("6.95", "up", True),
        ("6.94", "up", False),
        ("6.93", "down", False),
    ],
)
def test_a_bound_is_rounded_to_its_own_side(number: str, way: str, proved: bool) -> None:
    assert rounds_to("x", lambda: ball("6.944"), number, way).proved is proved


def test_a_tie_is_undecided_and_precision_is_raised_near_one() -> None:
    """0.5 + 10^-40 from a difference: with 64 bits the ball holds the tie, with 256 it does not."""
    tie = rounds_to("a tie", lambda: ball("0.125"), "0.12")
    hard = rounds_to("near a tie", lambda: (1 + ball("1e-40")) / 2, "1")
    assert (tie.proved, tie.bits, hard.proved) == (None, 512, True)
    assert hard.bits > 128


def test_all_of_several() -> None:
    yes, no, open_ = (
        Certificate("x", answer, low, high)
        for answer, low, high in ((True, "1", "2"), (False, "10", "11"), (None, "", ""))
    )
    assert every("both", [yes, yes]).proved is True
    assert every("both", [yes, open_]).proved is None
    found = every("all", [yes, open_, no])
    assert found.proved is False
    assert (found.low, found.high) == ("1", "11")


def test_a_statement_and_the_enclosure_of_its_number() -> None:
    found = holds("sqrt 2 is below 1.5", lambda: ball(2).sqrt() < 1.5 or None, lambda: ball(2).sqrt(), digits=5)
    assert found.proved is True
    assert (found.low, found.high) == ("1.4142", "1.4143")


def test_a_root_is_enclosed_and_a_wrong_guess_proves_nothing() -> None:
    def f(x):
        return x**2 - 2

    with precision(128):
        root = enclosed_root(f, lambda x: 2 * x, 1.41421356)
        assert root.overlaps(ball(2).sqrt())
        assert root.rad() < ball("1e-30")
        with pytest.raises(ArithmeticError, match=r"no root is proved within 1e-6 of 1\.5"):
            enclosed_root(f, lambda x: 2 * x, 1.5)
        with pytest.raises(ArithmeticError, match="no root is proved"):  # a double root: the slope's ball holds zero
            enclosed_root(lambda x: x**2, lambda x: 2 * x, 0.0)
