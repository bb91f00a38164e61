"""For student notebooks, which hold `from attnlib.exercises import check`: it lies in `attnbook.exercises`."""

from attnbook.exercises import Reply, check

__all__ = ["Reply", "check"]
