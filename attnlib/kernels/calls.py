"""What every kernel's `Call` is: a frozen set of arguments that its constructor checks, the only place where they are checked.

A call says all that a loop needs. Pieces of one training (other steps, some of the runs) are copies of a call: what they take
over has been seen, and is not looked at again.
"""

from __future__ import annotations

import copy
from typing import TypeVar

__all__ = ["changed", "settle"]

T = TypeVar("T")


def settle(call: object, **values: object) -> None:
    """Put checked values in the place of given ones, in a constructor of a frozen dataclass."""
    for name, value in values.items():
        object.__setattr__(call, name, value)


def changed(call: T, **values: object) -> T:
    """A copy with other values, which the caller answers for: unlike `dataclasses.replace` it checks nothing."""
    made = copy.copy(call)
    settle(made, **values)
    return made
