"""What page `13_where_attention_begins` measures: the share of clean samples that prefer their signal, and where it crosses one half."""

import math
from types import SimpleNamespace

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_ndtr

from attnbook.single_head.phase import phase_diagram, phase_plan
from attnlib.randomness import stream


def fit_threshold(x, shares, *, seed=0):
    r"""Fit $\Phi((\log x - \log x_*)/w)$ to shares that go from 0 to 1 (or 1 to 0) along x, by maximum likelihood.

    Args:
        x: (points,) > 0, rising.
        shares: (points, draws) in [0, 1], one column per draw.
        seed: of 200 bootstrap samples; *draws* are resampled, because all points of a draw share its random numbers.

    Returns a namespace: location with its interval of 95 %, low and high, width in log x and its standard error, and the verdict "inside".
    The verdict is "outside", with the reason and no number, when the mean share does not cross 1/2 on the grid or the fit leaves it.
    """
    mean = shares.mean(1)
    if (mean[0] - 0.5) * (mean[-1] - 0.5) >= 0:
        return _outside(
            f"the fraction goes from {mean[0]:.3g} to {mean[-1]:.3g}: no crossing of 1/2 between {x[0]:.3g} and {x[-1]:.3g}"
        )
    log_x, rising = np.log(x), _rising(shares)
    centre, width = _probit(log_x, rising.mean(1))
    if not log_x[0] <= centre <= log_x[-1]:
        return _outside(f"the fit lies at {math.exp(min(centre, 700)):.3g}, off the grid {x[0]:.3g} to {x[-1]:.3g}")
    picks = stream(seed, "resampling").integers(0, shares.shape[1], (200, shares.shape[1]))
    again = np.array([_probit(log_x, rising[:, pick].mean(1), (centre, width)) for pick in picks])
    low, high = map(math.exp, np.quantile(again[:, 0], [0.025, 0.975]))
    _, width_error = again.std(0, ddof=1)
    location = math.exp(centre)
    return SimpleNamespace(
        verdict="inside", location=location, low=low, high=high, width=width, width_error=width_error
    )


def _outside(reason):
    nothing = dict.fromkeys(("location", "low", "high", "width", "width_error"), math.nan)
    return SimpleNamespace(verdict="outside", reason=reason, **nothing)


def _rising(shares):
    return 1 - shares if shares[-1].mean() < shares[0].mean() else shares


def threshold_pseudo_values(x, shares, fit):
    """Jackknife pseudo-values of log location and log width of a fit, (draws, 2): n s - (n - 1) s_without_i for draw i of n.

    Their mean estimates the law's two numbers, and their spread over draws is the standard error of that mean. x, shares: as given to
    `fit_threshold`, which returned `fit`. All nan for a fit that is outside.
    """
    draws = shares.shape[1]
    if fit.verdict == "outside":
        return np.full((draws, 2), math.nan)
    log_x, shares = np.log(x), _rising(shares)
    start = math.log(fit.location), fit.width
    without = [_probit(log_x, np.delete(shares, i, axis=1).mean(1), start) for i in range(draws)]
    whole = np.array([math.log(fit.location), math.log(fit.width)])
    return draws * whole - (draws - 1) * np.array([(centre, math.log(width)) for centre, width in without])


def _probit(log_x, mean, start=None):
    """Centre and width of the cumulative normal curve of largest likelihood for mean shares."""
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


def preference_study(n, d, label_noise, step_size, *, draws=40, seed=0):
    """Diagrams of draws along n SNR^2 at n/4, n/2, n and 2n samples, d in proportion to n^2; the fits of the share of clean samples that
    prefer their signal, one a row, and their pseudo-values (rows, draws, 2) of log location and log width."""
    x, sizes = np.geomspace(0.4, 12, 33), np.array([n // 4, n // 2, n, 2 * n])[:, None]
    dims = np.maximum(np.rint(d * (sizes / n) ** 2), 3)
    plan = phase_plan(
        x, sizes[:, 0], n=sizes, d=dims, signal_norm=np.sqrt(x * dims / sizes), label_noise=label_noise,
        step_size=step_size * d / n * sizes / dims,
    )  # fmt: skip
    s = SimpleNamespace(n=n, d=d, label_noise=label_noise, draws=draws)
    s.threshold = phase_diagram(plan, draws=draws, seed=seed, errors=False)
    s.fits = [fit_threshold(x, shares, seed=seed) for shares in s.threshold.preference]
    rows = zip(s.threshold.preference, s.fits, strict=True)
    s.pseudo_values = np.array([threshold_pseudo_values(x, shares, fit) for shares, fit in rows])
    return s
