"""Compiled training loops and their readable references; numba is asked for only when a compiled loop is used."""

from __future__ import annotations

import importlib.util

__all__ = ["is_available"]


def is_available() -> bool:
    """Whether the compiled loops can be used here: numba is installed (extra `kernels`)."""
    return importlib.util.find_spec("numba") is not None and importlib.util.find_spec("llvmlite") is not None
