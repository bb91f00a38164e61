"""Packages that not everybody has: an error that names the extra to install."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

__all__ = ["extra"]


@contextlib.contextmanager
def extra(name: str) -> Iterator[None]:
    """Imports inside belong to the extra `name` of the distribution. Raises ModuleNotFoundError that says how to install it."""
    try:
        yield
    except ModuleNotFoundError as error:
        says = f"{error.name} is not installed: pip install 'attnlib[{name}]'"
        raise ModuleNotFoundError(says, name=error.name) from None
