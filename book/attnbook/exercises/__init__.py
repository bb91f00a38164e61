"""The exercises of this book: `check("02-two-steps/2", answer)` says right or not yet, and does not know the answer.

The table of hashes is made by `python -m attnbook.answers`, which is part of the repository and not of the installed package.
Student notebooks hold `from attnbook.exercises import check`.
"""

from pathlib import Path

from bookkit.exercises import checking
from bookkit.exercises.checking import Reply
from bookkit.exercises.table import read

__all__ = ["TABLE", "Reply", "check"]

TABLE = Path(__file__).with_name("table.json")


def check(exercise: str, answer: object) -> Reply:
    """Whether `answer` is the number that `exercise` of this book asks for: `bookkit.exercises.checking.check`.

    Raises ValueError for an exercise that is not in the table.
    """
    return checking.check(exercise, answer, *read(TABLE))
