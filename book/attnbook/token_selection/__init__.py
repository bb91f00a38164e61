"""Part II: token selection. Here: what two pages or more derive of it, times and windows among it."""

from attnbook.token_selection.fresh_selection import selection_accuracy
from attnbook.token_selection.theory import existence_window, selection_time

__all__ = ["existence_window", "selection_accuracy", "selection_time"]
