"""Strips through the phase diagrams around one setting, with more draws than the pictures: what the claims S1-S13 look at."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from attnbook.single_head.phase import PhaseDiagram, PhasePlan, phase_diagram, phase_plan
from attnbook.single_head.phase_theory import ThresholdFit, fit_threshold, mean_field_readings, threshold_pseudo_values
from attnlib import checks

__all__ = ["HIGH_SNR", "PhaseStudy", "borders", "crossing", "phase_study"]

_SMALL_ERROR = math.log10(0.5 * math.erfc(math.sqrt(0.5)))  # log10 Phi(-1): what S = 1 gives at typical attention
HIGH_SNR = (2.12, 5.0, 7.0, 14.0)  # SNR sqrt(n); at n = 200, d = 40000 about rho = 30, 70, 100, 200
_NOISE_LEVELS = (0.0, 0.01, 0.02, 0.05, 0.2)


@dataclass(frozen=True)
class PhaseStudy:
    """Strips through the phase diagram. n, d, signal_norm, label_noise, step_size: the page's own setting."""

    n: int
    d: int
    signal_norm: float
    label_noise: float
    step_size: float
    threshold: PhaseDiagram  # x: n SNR^2, y: n with d ~ n^2; no errors
    fits: tuple[ThresholdFit, ...]  # of the preference, one per row of `threshold`, on the axis n SNR^2
    pseudo_values: np.ndarray  # (rows, draws, 2), of log location and log width of the fits
    steps: PhaseDiagram  # x: beta d / n, y: label noise 0 and the page's, at the page's SNR
    low: PhaseDiagram  # x: SNR (nd)^(1/4), y: d and 25 d
    high: PhaseDiagram  # x: SNR sqrt(n), y: label noise; at the page's step size
    windows: PhaseDiagram  # x: beta d / n, y: SNR sqrt(n)
    dimensions: PhaseDiagram  # x: d / n^2, y: n; n SNR^2 and beta d / n as on the page

    @property
    def draws(self) -> int:
        return self.steps.draws

    @property
    def kappa(self) -> float:
        return self.n * self.signal_norm**2 / self.d * (1 - 2 * self.label_noise) / 2


def phase_study(
    n: int, d: int, signal_norm: float, label_noise: float, step_size: float, *, draws: int = 40, seed: int = 0
) -> PhaseStudy:
    """Compute the strips around one setting. Raises ValueError for a bad argument before any work."""
    checks.whole_number("n", n, at_least=20, hint="thresholds of smaller sets are lost in their fluctuations")
    checks.whole_number("draws", draws, at_least=4)
    checks.probability("label_noise", label_noise, high=0.45)
    eta = label_noise or 0.05  # strips that need flipped labels
    a4 = step_size * d / n  # beta d / n of the page
    x = np.geomspace(0.4, 12, 33)
    sizes = np.array([n // 4, n // 2, n, 2 * n])[:, None]
    dims = np.maximum(np.rint(d * (sizes / n) ** 2), 3)
    plans = {
        "threshold": phase_plan(
            x, sizes[:, 0], n=sizes, d=dims, signal_norm=np.sqrt(x * dims / sizes), label_noise=label_noise,
            step_size=a4 * sizes / dims,
        ),
    }  # fmt: skip
    x = np.array([0.1, 0.5, 1, 1.5, 2, 2.25, 2.5, 2.75, 3, 4, 5, 6.5, 8, 10, 12, 16, 20, 30, 50])
    levels = np.array([0.0, eta])[:, None]
    plans["steps"] = phase_plan(
        x, levels[:, 0], n=n, d=d, signal_norm=signal_norm, label_noise=levels, step_size=x * n / d
    )
    x = np.array([0.1, 0.5, 1.0, 1.5, 2.0, 2.5])
    dims = np.array([d, 25 * d])[:, None]
    plans["low"] = phase_plan(
        x, dims[:, 0], n=n, d=dims, signal_norm=x * (n * dims) ** -0.25 * np.sqrt(dims), label_noise=label_noise,
        step_size=a4 * n / dims,
    )  # fmt: skip
    x, levels = np.geomspace(2, 20, 21), np.array(_NOISE_LEVELS)[:, None]
    plans["high"] = phase_plan(
        x, levels[:, 0], n=n, d=d, signal_norm=x * math.sqrt(d / n), label_noise=levels, step_size=step_size
    )
    x, rows = np.geomspace(0.15, 15, 31), np.array(HIGH_SNR)[:, None]
    plans["windows"] = phase_plan(
        x, rows[:, 0], n=n, d=d, signal_norm=rows * math.sqrt(d / n), label_noise=eta, step_size=x * n / d
    )
    x, sizes = 2.0 ** np.array([-6, -4, -3, -2, -1, 0, 2, 4]), np.array([n // 2, n, 2 * n])[:, None]
    dims = np.maximum(np.rint(x * sizes**2), 3)
    plans["dimensions"] = phase_plan(
        x, sizes[:, 0], n=sizes, d=dims, signal_norm=np.sqrt(n * signal_norm**2 / d * dims / sizes),
        label_noise=label_noise, step_size=a4 * sizes / dims,
    )  # fmt: skip
    strips = {
        name: phase_diagram(plan, draws=draws, seed=seed, errors=name != "threshold") for name, plan in plans.items()
    }
    x, preference = plans["threshold"].x, strips["threshold"].preference
    fits = tuple(fit_threshold(x, shares, seed=seed) for shares in preference)
    pseudo = np.array([threshold_pseudo_values(x, shares, fit) for shares, fit in zip(preference, fits, strict=True)])
    return PhaseStudy(n, d, signal_norm, label_noise, step_size, fits=fits, pseudo_values=pseudo, **strips)


def crossing(x: np.ndarray, values: np.ndarray, *, last: bool = False) -> float:
    """First (or last) x at which values change sign, log-linear between grid points; nan if they do not."""
    at = np.flatnonzero((values[:-1] > 0) != (values[1:] > 0))
    if len(at) == 0:
        return math.nan
    i = at[-1 if last else 0]
    left, right = np.clip(values[i : i + 2], -1e6, 1e6)
    return float(np.exp(np.interp(0.0, *zip(*sorted([(left, np.log(x[i])), (right, np.log(x[i + 1]))]), strict=True))))


def _fine(plan: PhasePlan, row: int, points: int = 160) -> PhasePlan:
    """One row of a plan on a finer x axis, in a plan of two equal rows."""
    x = np.geomspace(plan.x[0], plan.x[-1], points)
    spread = {
        k: np.exp(np.interp(np.log(x), np.log(plan.x), np.log(getattr(plan, k)[row])))
        for k in ("signal_norm", "step_size")
    }
    return phase_plan(
        x, [0.0, 1.0], n=plan.n[row, 0], d=plan.d[row, 0], label_noise=plan.label_noise[row, 0],
        **{k: v[None, :] for k, v in spread.items()},
    )  # fmt: skip


def borders(diagram: PhaseDiagram, row: int, which: str) -> tuple[np.ndarray, float]:
    """Each draw's own border in a row, (draws,), and the mean-field one. All cells of a draw share its noise, classes and flips.

    "fitted": the first x at which the draw interpolates; "strong": the last at which its error is small. 0 or infinite for a draw whose
    border lies below or above the strip: its rank is known, its value is not. The mean-field border is nan outside the strip.
    """
    x, plan = diagram.plan.x, _fine(diagram.plan, row)
    margin, strength = (reading[0] for reading in mean_field_readings(plan))
    if which == "fitted":
        values, last, predicted = diagram.smallest_margin[row], False, crossing(plan.x, margin)
        outside = {True: 0.0, False: math.inf}  # fitted everywhere: its border lies below
    else:
        # The logarithm of the exponent: errors of a strip span hundreds of decades, and a border is sought between grid points.
        values = np.log(np.maximum(diagram.log10_error[row] / _SMALL_ERROR, 1e-12))
        last, predicted = True, crossing(plan.x, strength, last=True)
        outside = {True: math.inf, False: 0.0}
    own = [crossing(x, column, last=last) for column in values.T]
    return np.array(
        [outside[bool(c[0] > 0)] if math.isnan(b) else b for b, c in zip(own, values.T, strict=True)]
    ), predicted
