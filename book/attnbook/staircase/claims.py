"""Claims P1 and so on: a staircase of plateaus.

Each judge takes a `Study` and a constant (1 is the claim, `wrong` its negative control).
"""

from __future__ import annotations

from attnbook.staircase.study import Study
from attnlib.staircase import mean_attention
from bookkit.claims import ClaimSet
from bookkit.rules import Evidence, agrees

__all__ = ["CLAIMS"]

CLAIMS = ClaimSet("staircase")


@CLAIMS.claim(
    "P1",
    "the mean attention of a uniform gap",
    r"if the score gap of two tokens is uniform on $[0,a]$, the mean attention on the first is $\frac1a\log\frac{1+e^a}2$",
    wrong=1.05,
    wrong_text="a mean that is five per cent larger",
    box=("prop-staircase-mean",),
)
def mean_of_a_uniform_gap(study: Study, constant: float) -> Evidence:
    return agrees(study.attention, constant * mean_attention(study.law))
