"""Sweeps: one page at every point of a grid, on this machine or a Dask cluster; one table at the end."""

from bookkit.sweeps.run import sweep

__all__ = ["sweep"]
