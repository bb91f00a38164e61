"""The bar of a running sweep."""

from __future__ import annotations

import sys
from typing import Any

from bookkit.sweeps.dispatch import Progress

__all__ = ["Bar"]


class Bar:
    """A bar on stderr, fed with `Progress`: done of all, failures, what runs, rate and time left; messages above it."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._last: Progress | None = None

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def __call__(self, progress: Progress) -> None:
        """Show the state after a change."""
        from tqdm import tqdm

        if self._bar is None:
            # What was there before is not counted as fast work of this call.
            self._bar = tqdm(total=progress.total, initial=progress.skipped, unit="point", file=sys.stderr)
        self._last = progress
        if progress.message:
            self._bar.write(progress.message, file=sys.stderr)
        self._bar.update(progress.skipped + progress.done + progress.failed - self._bar.n)
        told = {"failed": progress.failed, "again": progress.retrying, "running": progress.running}
        self._bar.set_postfix({name: count for name, count in told.items() if count or name == "failed"}, refresh=False)

    @property
    def left(self) -> str:
        """How far it came, for the line that ends an interrupted sweep."""
        if self._last is None:
            return "nothing was run"
        there = self._last.total - self._last.left
        return f"{there} of {self._last.total} points are safe; the same command runs the others"
