"""Certified claims: what it takes to prove each of them again, with its negative control. One core; a minute at most.

The cases run in the order of the ledger in one process, and what one of them has enclosed is kept: V57 uses paths of V50.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from attnbook.certified.certify import certified, prove
from benchmarks.registry import Case, Part
from bookkit.claims import Verdict

__all__ = ["PART"]

LIMIT = 60.0  # seconds for a certificate


def _proof(id: str) -> Callable[[], object]:
    def call() -> None:
        check, _ = prove(id)
        if check.verdict is not Verdict.HOLDS or not check.has_power:
            raise AssertionError(f"{id} is not proved, or its negative control is not refuted")

    return call


CASES = tuple(
    Case(id, claim.title, partial(_proof, id), limit=LIMIT, repeats=1) for id, (claim, _) in certified().items()
)
PART = Part("certificates", CASES, lambda medians: {})
