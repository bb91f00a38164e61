r"""What the claims about time look at: one function that trains and collects."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from attnbook.token_selection.time_laws.clock import HalfTimes, Setting, clock_unit, exponents, half_times, star
from attnbook.token_selection.time_laws.delay import (
    Course,
    DelayFit,
    Delays,
    course,
    delay_fit,
    delay_times,
    fit_times,
    laws_of_strength,
    selection_times,
)
from attnlib import checks
from attnlib.token_selection.gram import draw_gram
from attnlib.token_selection.law import TokenLaw
from attnlib.token_selection.recursion import train
from attnlib.token_selection.start import Start

__all__ = ["STRENGTHS", "Axis", "TimeStudy", "time_study"]

STRENGTHS = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)  # 1 / (n SNR^2) of the delay
_SHARP = (2.0, 4.0, 8.0)  # the same for the slopes compared with their constant
_FACTORS = (0.5, 1.0, 2.0, 4.0)
_FIT_RUNS = 12  # training sets behind the time to fit every label: it hangs on the last label, and varies


@dataclass(frozen=True)
class Axis:
    """Half times along one axis of settings, everything else fixed."""

    values: np.ndarray  # (K,)
    found: HalfTimes

    @property
    def exponents(self) -> torch.Tensor:
        """(R,): slope of log tau on log value."""
        return torch.as_tensor(exponents(self.values, self.found.tau))


@dataclass(frozen=True)
class TimeStudy:
    """Everything the claims look at."""

    centre: Setting  # of the first clock
    clock: dict[str, Axis]  # by name; "prompt_scale" starts at p_0 != 0, the others at p_0 = 0
    delay_law: TokenLaw  # at STRENGTHS[0]
    delays: Delays
    fit: DelayFit
    finer: Delays  # strengths 1 and 2 with half the largest move
    descent: np.ndarray  # (R,) selection time at strength 1/2 by gradient descent with a constant step
    flow: np.ndarray  # (R,) the same by the flow
    slopes: tuple[tuple[TokenLaw, Delays, DelayFit], ...]  # a stronger signal, other T and label noise
    fit_dimensions: np.ndarray  # (K,) d
    fit_times: np.ndarray  # (K, 12 or more), labels fitted; nan where a label cannot be
    growing: Course  # the benign side at strength 2
    harmed: Course  # a weak signal


def time_study(
    centre: Setting,
    delay_norm: float,
    *,
    runs: int = 5,
    seed: int = 0,
    harmful_norm: float = 4.0,
    harmful_d: int = 2000,
) -> TimeStudy:
    """Train and collect.

    Args:
        centre: of the first clock, with a strong signal.
        delay_norm: signal norm of the delay's laws; their d follows from STRENGTHS. Everything else is the centre's.
        runs: training sets per law, >= 2.

    Raises ValueError for a bad argument before any work.
    """
    checks.whole_number("runs", runs, at_least=2)
    checks.positive_number("delay_norm", delay_norm)
    common = {"runs": runs, "seed": seed}
    weak = replace(centre.law, signal_norm=delay_norm)
    laws = laws_of_strength(weak, STRENGTHS)
    close = laws_of_strength(weak, [0.5])
    harmful = replace(centre.law, signal_norm=harmful_norm, d=harmful_d)
    strong = [replace(weak, signal_norm=4 * delay_norm, label_noise=eta) for eta in (0.0, 0.2, 0.3)]
    strong.append(replace(weak, signal_norm=4 * delay_norm, tokens=max(4, weak.same_class_tokens + 2)))
    delays, flow = delay_times(laws, **common), delay_times(close, **common).select[0]
    step = 0.002 * float(np.median(flow))  # some 500 steps to the slowest run
    gram = draw_gram(close[0], seed, runs)
    last = math.ceil(1.3 * flow.max() / step)
    dims = np.array([laws[0].d * k for k in (1, 4, 16)])
    slopes = []
    for law in strong:
        found = delay_times(laws_of_strength(law, _SHARP), **common)
        slopes.append((law, found, delay_fit(found.strength, found.select)))
    return TimeStudy(
        centre, _clock(centre, runs, seed), laws[0], delays, delay_fit(delays.strength, delays.select),
        delay_times(laws_of_strength(weak, [1.0, 2.0]), largest_move=0.025, **common),
        selection_times(train(gram, step, last, record=range(0, last, 4))), flow, tuple(slopes),
        dims, fit_times([replace(weak, d=int(d)) for d in dims], runs=max(runs, _FIT_RUNS), seed=seed),
        course(laws[STRENGTHS.index(2.0)], np.geomspace(0.01, 1e9, 34), **common),
        course(harmful, np.geomspace(0.01, 1e6, 25), count=8000, **common),
    )  # fmt: skip


def _clock(centre: Setting, runs: int, seed: int) -> dict[str, Axis]:
    """Each axis of the first clock; limits are ten times what the centre needs, scaled along with the theorem's unit."""
    around = np.array(_FACTORS)
    axes = star(
        centre,
        step_size=list(centre.step_size * around),
        signal_norm=list(centre.law.signal_norm * around),
        weight_scale=list(centre.start.weight_scale * around),
        d=[int(centre.law.d * f) for f in (0.5, 1, 2, 4, 8)],
    )
    scales = centre.start.weight_scale * around
    fixed = [
        replace(s, start=replace(s.start, weight_scale=float(scale)))
        for s, scale in zip(axes["d"], scales, strict=False)
    ]
    # A Gaussian p_0 starts scores of size SNR sqrt(sigma_w^2 d sigma_p^2 d) sqrt(d): small scales keep them small.
    strong = replace(centre.law, d=4 * centre.law.d, signal_norm=2 * centre.law.signal_norm)
    small = Setting(strong, Start(weight_scale=0.02), centre.step_size * 6)
    values = {
        "step_size": [s.step_size for s in axes["step_size"]],
        "signal_norm": [s.law.signal_norm for s in axes["signal_norm"]],
        "weight_scale": [s.start.weight_scale for s in axes["weight_scale"]],
        "d": [s.law.d for s in axes["d"]],
        "d at fixed variance": [s.law.d for s in fixed],
        "prompt_scale": [0.02 * f for f in (0.25, 1.0, 4.0, 16.0)],
    }
    axes["d at fixed variance"] = fixed
    axes["prompt_scale"] = star(small, prompt_scale=values["prompt_scale"])["prompt_scale"]
    return {
        name: Axis(np.array(points), half_times(axes[name], runs=runs, seed=seed, limit=_limit(axes[name])))
        for name, points in values.items()
    }


def _limit(settings: Sequence[Setting]) -> int:
    return math.ceil(1500 * max(clock_unit(s) for s in settings))
