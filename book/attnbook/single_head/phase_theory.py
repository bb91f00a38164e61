r"""Theory lines of the phase diagrams, and where a measured threshold lies.

With expected label counts the mean-field state tells, for every setting: whether flipped labels are fitted after two steps (their
margin), and
how strong the signal is for a fresh point at typical attention, $S = e^{p_2\cdot\mu} V / |\Pi v_2|$; $S = 1$ separates a small error
from one near 1/2. For $\kappa \to 0$, $S = \tfrac12(1-2\eta)\,\mathrm{SNR}^2\sqrt{nd}$: the lower limit is of order
$(nd)^{-1/4}$. For large SNR or step size $p_2\cdot\mu < 0$ and $S$ falls again: the upper limit. Source: derived.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch

from attnbook.single_head.mean_field import mean_field
from attnbook.single_head.phase import PhasePlan
from attnlib.randomness import stream
from attnlib.single_head.law import SignalNoiseLaw


def preference_threshold(n: float, label_noise: float) -> float:
    r"""SNR at which clean samples begin to prefer their signal, $\kappa = 1$: $n\,\mathrm{SNR}^2 = 2/(1-2\eta)$."""
    return math.sqrt(2 / (n * (1 - 2 * label_noise)))


def lower_snr_limit(n: float, d: float, label_noise: float) -> float:
    r"""SNR below which two steps learn nothing useful: $\mathrm{SNR}^2\sqrt{nd}\,(1-2\eta)/2 = 1$, the order $(nd)^{-1/4}$."""
    return math.sqrt(2 / ((1 - 2 * label_noise) * math.sqrt(n * d)))


def preference_spread(n: float, d: float, label_noise: float) -> float:
    r"""Standard deviation of the log SNR at which one clean sample changes its preference, to leading order in n.

    $$ \tfrac12\sqrt{\frac{2 - (1-2\eta)^2}{n(1-2\eta)^2} + \frac{n+1}{d}}: $$

    the first term is the spread of $|C_k| - |N_k|$ (its variance is $\tfrac n2 - \tfrac n4(1-2\eta)^2$), the second that of the noise score
    $y_i v_1\cdot\xi_i/a$.
    """
    signal = (1 - 2 * label_noise) ** 2
    return 0.5 * math.sqrt((2 - signal) / (n * signal) + (n + 1) / d)


def mean_field_readings(plan: PhasePlan) -> tuple[np.ndarray, np.ndarray]:
    """Mean field with expected label counts in every cell: margin of flipped samples after two steps, and log S. Both (rows, columns).

    Where there is no label noise the margin is that of the clean samples.
    """
    margin, strength = np.empty(plan.shape), np.empty(plan.shape)
    half = torch.full((1, 2), 0.5, dtype=torch.float64)
    for cell in np.ndindex(*plan.shape):
        n, d, eta = int(plan.n[cell]), int(plan.d[cell]), float(plan.label_noise[cell])
        rho, beta = float(plan.signal_norm[cell]), float(plan.step_size[cell])
        f = mean_field(SignalNoiseLaw(n, d, rho), beta, (1 - eta) * n * half, eta * n * half)
        boost = (1 - eta) * (1 + 2 * f.slope_clean) ** 2 + eta * (1 + 2 * f.slope_noisy) ** 2
        v_noise = beta / (4 * n) * math.sqrt(n * d) * boost[0, 0].sqrt().item()  # |Pi v_2|
        margin[cell] = (f.margin2_noisy if eta else f.margin2_clean)[0, 0].item()
        value = f.v_signal[0, 0].item()
        strength[cell] = f.p_signal[0, 0].item() + math.log(value / v_noise) if value > 0 else -math.inf
    return margin, strength


@dataclass(frozen=True)
class ThresholdFit:
    """A location on the x axis with a 95 % interval, and a width in log x. All nan with verdict "outside"."""

    location: float
    low: float
    high: float
    width: float
    width_error: float  # standard error
    log_error: float  # standard error of log location
    verdict: str  # "inside" or "outside"
    reason: str  # why it is outside


def _outside(reason: str) -> ThresholdFit:
    return ThresholdFit(*[math.nan] * 6, "outside", reason)


def fit_threshold(x, shares, *, seed: int = 0) -> ThresholdFit:
    r"""Fit $\Phi((\log x - \log x_*)/w)$ to shares that go from 0 to 1 (or 1 to 0) along x, by maximum likelihood.

    Args:
        x: (points,) > 0, rising.
        shares: (points, draws) in [0, 1], one column per draw.
        seed: of 200 bootstrap samples; *draws* are resampled, because all points of a draw share its random numbers.

    Returns "outside", never a number, when the mean share does not cross 1/2 on the grid or the fit leaves it. Raises ValueError for
    bad input.
    """
    x, shares = np.asarray(x, dtype=np.float64), np.asarray(shares, dtype=np.float64)
    if x.ndim != 1 or len(x) < 3 or (x <= 0).any() or (np.diff(x) <= 0).any():
        raise ValueError(f"x must be three points or more, positive and rising; got {x.tolist()}")
    if shares.ndim != 2 or len(shares) != len(x) or shares.shape[1] < 2:
        raise ValueError(f"shares must be (points, draws) = ({len(x)}, 2 or more); got {shares.shape}")
    if not ((shares >= 0) & (shares <= 1)).all():
        raise ValueError("shares must lie in [0, 1]; got others or nan: leave out points without a fraction")
    mean = shares.mean(1)
    if (mean[0] - 0.5) * (mean[-1] - 0.5) >= 0:
        return _outside(
            f"the fraction goes from {mean[0]:.3g} to {mean[-1]:.3g}: no crossing of 1/2 between {x[0]:.3g} and {x[-1]:.3g}"
        )
    falling = mean[-1] < mean[0]
    log_x = np.log(x)
    rising = 1 - shares if falling else shares
    centre, width = _probit(log_x, rising.mean(1))
    if not log_x[0] <= centre <= log_x[-1]:
        return _outside(f"the fit lies at {math.exp(min(centre, 700)):.3g}, off the grid {x[0]:.3g} to {x[-1]:.3g}")
    rng = stream(seed, "resampling")
    picks = rng.integers(0, shares.shape[1], (200, shares.shape[1]))
    again = np.array([_probit(log_x, rising[:, pick].mean(1), (centre, width)) for pick in picks])
    low, high = np.quantile(again[:, 0], [0.025, 0.975])
    error, width_error = again.std(0, ddof=1)
    return ThresholdFit(math.exp(centre), math.exp(low), math.exp(high), width, width_error, error, "inside", "")


def threshold_pseudo_values(x, shares, fit: ThresholdFit) -> np.ndarray:
    """Jackknife pseudo-values of log location and log width of a fit, (draws, 2): n s - (n - 1) s_without_i for draw i of n.

    Their mean estimates the law's two numbers, and their spread over draws is the standard error of that mean. x, shares: as given to
    `fit_threshold`, which returned `fit`. All nan for a fit that is outside.
    """
    log_x, shares = np.log(np.asarray(x, dtype=np.float64)), np.asarray(shares, dtype=np.float64)
    draws = shares.shape[1]
    if fit.verdict == "outside":
        return np.full((draws, 2), math.nan)
    if shares[-1].mean() < shares[0].mean():
        shares = 1 - shares
    start = math.log(fit.location), fit.width
    without = [_probit(log_x, np.delete(shares, i, axis=1).mean(1), start) for i in range(draws)]
    whole = np.array([math.log(fit.location), math.log(fit.width)])
    return draws * whole - (draws - 1) * np.array([(centre, math.log(width)) for centre, width in without])


def _probit(log_x: np.ndarray, mean: np.ndarray, start: tuple[float, float] | None = None) -> tuple[float, float]:
    """Centre and width of the cumulative normal curve of largest likelihood for mean shares."""
    from scipy.optimize import minimize
    from scipy.special import log_ndtr

    if start is None:
        crossing = np.flatnonzero(np.diff(np.sign(mean - 0.5)))[0]
        start = log_x[crossing : crossing + 2].mean(), (log_x[-1] - log_x[0]) / 10
    narrowest = np.diff(log_x).min() / 20  # steps sharper than the grid have no width that data could tell

    def loss(parameters):
        z = (log_x - parameters[0]) / (math.exp(parameters[1]) + narrowest)
        return -(mean * log_ndtr(z) + (1 - mean) * log_ndtr(-z)).sum()

    first = np.array([start[0], math.log(max(start[1] - narrowest, narrowest))])
    best = minimize(loss, first, method="Nelder-Mead", options={"xatol": 1e-5, "fatol": 1e-9, "maxiter": 400})
    return float(best.x[0]), math.exp(best.x[1]) + narrowest
