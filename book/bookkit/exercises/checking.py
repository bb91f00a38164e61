"""`check`: one sentence about an answer. It never contains a number that the student has not given."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from numbers import Complex, Integral, Real

from bookkit.exercises.table import Entry, digest, neighbours, rounded

DIGITS = ("a whole number", "one digit", "two digits", "three digits", "four digits", "five digits")
NEAR = 5  # units in the last digit that count as close, for answers of three digits or more


@dataclass(frozen=True)
class Reply:
    """What `check` says. A notebook shows the sentence; `if check(...)` and `assert check(...)` ask whether it is right."""

    right: bool
    sentence: str

    def __repr__(self) -> str:
        return self.sentence

    __str__ = __repr__

    def __bool__(self) -> bool:
        return self.right


def check(exercise: str, answer: object, entries: Mapping[str, Entry], cost: int) -> Reply:
    """Whether `answer` is the number that `exercise` asks for, to the digits asked for, in one sentence.

    `exercise`: such as ``02-two-steps/2``, the page and the number of the exercise. `answer`: a number; anything else
    gets a sentence that says what was expected. `entries`, `cost`: the book's table, as `table.read` gives it.

    Raises `ValueError` for an exercise that is not in the table.
    """
    known = _find(exercise, entries)
    number = _number(answer)
    if isinstance(number, str):
        return Reply(False, number)
    digits = known["digits"]
    if digits is None and number != number.to_integral_value():
        return Reply(False, f"Not yet: a whole number is asked for; got {answer}.")

    def accepted(value: Decimal) -> bool:
        return digest(exercise, rounded(value, digits), cost) in known["accepted"]

    if accepted(number):
        return Reply(True, "Right." if digits is None else f"Right, up to rounding at {precision(digits)}.")
    # A hint says of an answer that is all but right where it is not; there is nothing in it for who only guesses.
    if number and accepted(-number):
        return Reply(False, "Not yet: the size is right, the sign is not.")
    if digits is not None and digits >= 2:
        if any(accepted(number.scaleb(power)) for power in (-3, -2, -1, 1, 2, 3)):
            return Reply(False, "Not yet: the digits are right, the power of ten is not. Look at the units.")
        if digits >= 3 and any(accepted(Decimal(text)) for text in neighbours(number, digits, NEAR)):
            return Reply(False, "Not yet, but close: only the last digits are off. Keep more of them on the way.")
    wanted = precision(digits) if digits is None else f"a number of {precision(digits)}"
    return Reply(False, f"Not yet: this is not the number that is asked for above ({wanted}).")


def precision(digits: int | None) -> str:
    """``three digits``; ``a whole number`` for None."""
    return DIGITS[digits or 0]


def _find(exercise: str, entries: Mapping[str, Entry]) -> Entry:
    """The entry of `exercise`. Raises `ValueError` in one sentence, with the nearest name, where there is none."""
    if isinstance(exercise, str) and exercise in entries:
        return entries[exercise]
    expected = "exercise must be the name of a page and a number, such as '02-two-steps/2'"
    if not isinstance(exercise, str):
        raise ValueError(f"{expected}; got {exercise!r}")
    page, _, _ = exercise.partition("/")
    if same := [name for name in entries if name.startswith(f"{page}/")]:
        raise ValueError(f"{expected}; got {exercise!r}, and on that page only {', '.join(same)} can be checked")
    wanted = exercise.replace("_", "-").rpartition("/")
    close = difflib.get_close_matches(exercise.replace("_", "-"), entries, n=1, cutoff=0.5)
    close += [name for name in entries if f"/{name}".endswith(f"/{wanted[0].rpartition('/')[2]}/{wanted[2]}")]
    hint = f": did you mean {close[-1]!r}?" if close else ": the student notebooks hold the names of all exercises"
    raise ValueError(f"{expected}; got {exercise!r}{hint}")


def _number(answer: object) -> Decimal | str:
    """`answer` as an exact decimal, or the sentence that says why it is none."""
    if answer is None:
        return "Not answered yet: put your number in place of None, run its cell, then this one."
    if isinstance(answer, str):
        return f"answer must be a number, without quotes; got the text {answer!r}."
    shape = getattr(answer, "shape", None)
    if isinstance(shape, tuple) and hasattr(answer, "item"):
        if len(shape) > 0:
            return f"answer must be one number; got an array of shape {tuple(shape)}: pick the entry that is asked for."
        return _number(answer.item())
    if isinstance(answer, bool):
        return f"answer must be a number; got {answer}."
    if isinstance(answer, list | tuple | set | frozenset | dict):
        return f"answer must be one number; got a {type(answer).__name__} of {len(answer)}: pick the entry that is asked for."
    if isinstance(answer, Integral):
        return Decimal(int(answer))
    if isinstance(answer, Decimal | Real):
        value = answer if isinstance(answer, Decimal) else Decimal(float(answer))
        if value.is_finite():
            return value
        return f"answer must be a finite number; got {answer}: look for a division by zero or an overflow on the way."
    if isinstance(answer, Complex):
        return f"answer must be a real number; got the complex number {complex(answer)}."
    return f"answer must be a number; got an object of type {type(answer).__name__}."
