"""Optional packages: an error that names the extra to install, and a progress bar."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

# The package is on no index. Installing it by name alone would run code of anyone who registers that name.
REPOSITORY = "https://github.com/attention-checked/attention-checked"


def how_to_install(name: str) -> str:
    """The command that brings the extra `name`."""
    return f"pip install 'attnlib[{name}] @ git+{REPOSITORY}'"


@contextlib.contextmanager
def extra(name: str) -> Iterator[None]:
    """Imports inside belong to the extra `name` of the distribution. Raises ModuleNotFoundError that says how to install it."""
    try:
        yield
    except ModuleNotFoundError as error:
        says = f"{error.name} is not installed: {how_to_install(name)}"
        raise ModuleNotFoundError(says, name=error.name) from None


def progress_bar(wanted: bool, total: int, what: str, *, unit: str = "cell") -> contextlib.AbstractContextManager[Any]:
    """A tqdm bar over `total` cells (or another `unit`) when one is wanted; otherwise a silent stand-in, and nothing is imported."""
    if wanted:
        with extra("training"):
            from tqdm import tqdm

        bar: contextlib.AbstractContextManager[Any] = tqdm(total=total, unit=unit, desc=what)
        return bar
    return contextlib.nullcontext(SimpleNamespace(update=lambda count=1: None))
