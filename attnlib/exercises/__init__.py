"""Exercises that answer back: `check("02-two-steps/2", answer)` says right or not yet, and does not know the answer.

What is stored of an answer is a slow hash of its rounded value (`table`); the functions that compute the answers are in
`attnlib.answers`, which is part of the repository and not of the installed package.
"""

from attnlib.exercises.checking import Reply, check

__all__ = ["Reply", "check"]
