"""Sweeps: one page at many parameters, on this machine or a cluster; nothing lost, one table at the end."""

from bookkit.sweeps.folder import open_sweep
from bookkit.sweeps.run import plan, sweep

__all__ = ["open_sweep", "plan", "sweep"]
