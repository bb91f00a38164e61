"""Sweeps: one page at many parameters, on this machine or a cluster; nothing lost, one table at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bookkit.sweeps.folder import open_sweep
    from bookkit.sweeps.run import plan, sweep

__all__ = ["open_sweep", "plan", "sweep"]


def __getattr__(name: str) -> Any:
    """The functions, imported when they are first asked for: pages import neighbours of theirs where no joblib is."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from bookkit.sweeps import folder, run

    return getattr(folder if name == "open_sweep" else run, name)
