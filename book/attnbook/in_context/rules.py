"""Rules of this wing for what `bookkit.rules` has no draws for: stored trainings, one published run, a mean known by its error alone."""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from bookkit.rules import LEVEL, Evidence, NothingToMeasure, agrees, student, within

__all__ = ["estimate_within", "one_more_run", "stored_within"]


def stored_within(
    values: torch.Tensor,
    low: torch.Tensor | float | None = None,
    high: torch.Tensor | float | None = None,
    *,
    quantity: str = "",
    what: str = "stored run",
) -> Evidence:
    """Bounds on numbers of a stored table, (rows, ...), nan where there is nothing to say: one row outside rejects.

    The rows were drawn once and are the same at every seed, and the claim speaks of them: no chance. Where held-out prompts of the
    page's seed enter, their error must be many times smaller than the room that the bounds leave.
    """
    found = within(values, low, high, quantity=quantity, share=1)
    return replace(found, rule=f"bound, every {what}; the table is fixed, no chance")


def one_more_run(
    measured: torch.Tensor, published: float, *, half_digit: float, quantity: str, level: float = LEVEL
) -> Evidence:
    r"""A published run is one more draw of the law of our runs (R,): its distance from their mean, by Student's t.

    For Gaussian runs $(x-\bar m)/(s\sqrt{1+1/R})$ has Student's law with R - 1 degrees of freedom. That is the rule of a mean over
    runs whose deviations are $\sqrt{R+1}$ times as large. `half_digit`: rounding of the printed number. Raises NothingToMeasure with
    fewer than two runs.
    """
    runs = len(measured)
    if runs < 2:
        raise NothingToMeasure(f"needs two runs or more to know their spread; here {runs}")
    mean, spread = measured.mean(), measured.std()
    widened = mean + (measured - mean) * math.sqrt(runs + 1)
    found = agrees(widened, published, allowance=half_digit, level=level)
    return replace(
        found,
        predicted=f"{quantity} {published:.4g}",
        measured=f"{mean:.4g}, standard deviation of a run {spread:.2g}",
        rule=f"|published - mean| <= {student(runs, level):.3g} s.d. of a run x sqrt(1 + 1/runs) (Student's t) + half a digit",
        numbers={"published": published, "mean": mean.item(), "standard_deviation": spread.item()},
    )


def estimate_within(
    value: torch.Tensor,
    error: torch.Tensor,
    draws: int,
    low: float | None = None,
    high: float | None = None,
    *,
    quantity: str,
    what: str = "mean over prompts",
    level: float = LEVEL,
) -> Evidence:
    """Bounds on expectations (C,) of which the means over `draws` draws and their standard errors (C,) are known, the draws not.

    Rejects when one mean is further outside than Student's t standard errors; t is that of `level` over C. One-sided bounds are
    judged with the t of two sides.
    """
    multiple = student(draws, level / len(value))
    slack = multiple * error
    found = within(
        value[None],
        None if low is None else low - slack[None],
        None if high is None else high + slack[None],
        share=1,
    )
    ends = {name: end for name, end in (("low", low), ("high", high)) if end is not None}
    bounds = " and ".join(f"{'>=' if name == 'low' else '<='} {end:.4g}" for name, end in ends.items())
    shown = ", ".join(f"{v:.4g} +- {e:.1g}" for v, e in zip(value.tolist(), error.tolist(), strict=True))
    return replace(
        found,
        predicted=f"{quantity} {bounds}",
        measured=shown,
        rule=f"{what}, {multiple:.3g} s.e. (Student's t)",
        draws=draws,
        numbers=found.numbers | ends,
        false_alarm=level,
    )
