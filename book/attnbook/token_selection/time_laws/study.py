r"""What the claims about time look at: one function that trains and collects."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from attnbook.token_selection.time_laws.clock import HalfTimes, Setting, clock_unit, exponents, half_times, star
from attnbook.token_selection.time_laws.delay import (
    Course,
    Delays,
    course,
    delay_times,
    fit_times,
    laws_of_strength,
)
from attnbook.token_selection.time_laws.late import LateGaps, late_gaps
from attnbook.token_selection.time_laws.limits import SHARP, critical_discrimination, discrimination_at, laws_at
from attnbook.token_selection.time_laws.rate import mean_field_distance
from attnlib import checks
from attnlib.token_selection.law import Start, TokenLaw

STRENGTHS = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)  # 1 / (n SNR^2) of the delay
THETA = 4.0  # time at which training p alone is compared with the orthogonal-noise prediction
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
class ClockStudy:
    """What the claims about the first time scale look at."""

    centre: Setting  # of the first time scale
    clock: dict[str, Axis]  # by name; "prompt_scale" starts at p_0 != 0, the others at p_0 = 0
    fit_dimensions: np.ndarray  # (K,) d
    fit_times: np.ndarray  # (K, 12 or more), labels fitted; inf where a label cannot be


@dataclass(frozen=True)
class DelayStudy:
    """What the claims about the delay look at."""

    delays: Delays
    sharp: tuple[Delays, ...]  # at SHARP and one large n d SNR^4: the page's law first, then other label noise and T
    blurred: Delays  # at SHARP and a small n d SNR^4
    late: LateGaps  # training p alone, far beyond memorisation
    apart: torch.Tensor  # (R, laws): largest distance of a score of training p alone from the orthogonal-noise prediction, at theta = THETA
    apart_laws: tuple[TokenLaw, ...]  # n SNR^2 = 1/2, d a factor 4 apart
    never: Course  # strength 8, discrimination 0.6 of the critical one
    growing: Course  # the benign side at strength 2
    harmed: Course  # a weak signal


@dataclass(frozen=True)
class TimeStudy(DelayStudy, ClockStudy):
    """Both."""


def clock_study(centre: Setting, fit_norm: float, *, runs: int = 5, seed: int = 0) -> ClockStudy:
    """Train and collect.

    Args:
        centre: of the first time scale, with a strong signal.
        fit_norm: signal norm of the laws whose labels are all fitted early; 1 / (n SNR^2) is 1, 4 and 16 there.
        runs: training sets per law, >= 2.

    Raises ValueError for a bad argument before any work.
    """
    checks.whole_number("runs", runs, at_least=2)
    weak = replace(centre.law, signal_norm=checks.positive_number("fit_norm", fit_norm))
    dims = np.array([laws_of_strength(weak, [1.0])[0].d * k for k in (1, 4, 16)])
    times = fit_times([replace(weak, d=int(d)) for d in dims], runs=max(runs, _FIT_RUNS), seed=seed)
    return ClockStudy(centre, _clock(centre, runs, seed), dims, times)


def delay_study(weak: TokenLaw, *, runs: int = 5, seed: int = 0) -> DelayStudy:
    """Train and collect.

    Args:
        weak: law of the delay; its d is replaced by those that follow from STRENGTHS. Where n d SNR^4 is held, it is
            (8 |mu| / sigma)^2, and (|mu| / 2 sigma)^2.
        runs: training sets per law, >= 2.

    Raises ValueError for a bad argument before any work.
    """
    checks.whole_number("runs", runs, at_least=2)
    common = {"runs": runs, "seed": seed}
    laws = laws_of_strength(weak, STRENGTHS)
    harmful = replace(weak, signal_norm=4.0, d=2000)
    others = [weak, *(replace(weak, label_noise=eta) for eta in (0.0, 0.3))]
    others.append(replace(weak, tokens=max(4, weak.same_class_tokens + 2)))
    strength = (weak.signal_norm / weak.noise_std) ** 2
    critical = strength * (0.6 * critical_discrimination(weak) / discrimination_at(weak, strength)) ** 2
    apart = laws_of_strength(weak, [2.0])[0]
    apart_laws = tuple(replace(apart, d=4**k * apart.d, signal_norm=2**k * weak.signal_norm) for k in range(4))
    return DelayStudy(
        delay_times(laws, **common),
        tuple(delay_times(laws_at(law, SHARP, 64 * strength), **common) for law in others),
        delay_times(laws_at(weak, SHARP, strength / 4), **common),
        late_gaps(laws_at(weak, (2.0,), 64 * strength)[0], 20.0, **common),
        torch.stack([mean_field_distance(law, THETA, **common) for law in apart_laws], 1), apart_laws,
        course(laws_at(weak, (8.0,), critical)[0], np.geomspace(0.01, 1e40, 22), **common),
        course(laws[STRENGTHS.index(2.0)], np.geomspace(0.01, 1e9, 34), **common),
        course(harmful, np.geomspace(0.01, 1e6, 25), count=8000, **common),
    )  # fmt: skip


def _clock(centre: Setting, runs: int, seed: int) -> dict[str, Axis]:
    """Each axis of the first time scale; limits are ten times what the centre needs, scaled along with the theorem's unit."""
    around = np.array(_FACTORS)
    axes = star(
        centre,
        step_size=list(centre.step_size * around),
        signal_norm=list(centre.law.signal_norm * around),
        weight_scale=list(centre.start.weight_scale * around),
        d=[int(centre.law.d * f) for f in (0.5, 1, 2, 4, 8)],
        head_scale=[centre.law.head_scale * f for f in (0.25, 0.5, 1, 2)],
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
        "head_scale": [s.law.head_scale for s in axes["head_scale"]],
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
