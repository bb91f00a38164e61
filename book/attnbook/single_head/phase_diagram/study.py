"""What page `05_phase_diagram` measures: strips through the phase diagrams around one setting, with more draws than the pictures."""

import math
from types import SimpleNamespace

import numpy as np
import torch
from scipy.special import ndtr

from attnbook.single_head.mean_field import mean_field, mean_field_log10_error
from attnbook.single_head.phase import phase_diagram, phase_plan
from attnbook.single_head.phase_diagram.proved import error_intervals, predicted_phases, proved_planes
from attnlib.randomness import stream
from attnlib.single_head.law import SignalNoiseLaw

_SMALL_ERROR = math.log10(0.5 * math.erfc(math.sqrt(0.5)))  # log10 Phi(-1): what S = 1 gives at typical attention
HIGH_SNR = (2.12, 5.0, 7.0, 14.0)  # SNR sqrt(n); at n = 200, d = 40000 about rho = 30, 70, 100, 200
_NOISE_LEVELS = (0.0, 0.01, 0.02, 0.05, 0.2)
_STEPS = (0.1, 0.5, 1, 1.5, 2, 2.25, 2.5, 2.75, 3, 4, 5, 6.5, 8, 10, 12, 16, 20, 30, 50)  # beta d / n


def phase_study(n, d, signal_norm, label_noise, step_size, *, draws=40, seed=0):
    """The strips around one setting, a diagram each, and what mean field with the label counts of each draw says of them."""
    multiple, some_noise = step_size * d / n, label_noise or 0.05  # beta d / n; of strips that need flipped labels
    s = SimpleNamespace(n=n, d=d, label_noise=label_noise, draws=draws, multiple=multiple)
    s.kappa = n * signal_norm**2 / d * (1 - 2 * label_noise) / 2
    own = {"n": n, "d": d, "label_noise": label_noise, "step_size": step_size}

    def strip(x, y, **settings):
        return phase_diagram(phase_plan(x, y, **(own | settings)), draws=draws, seed=seed)

    # x: beta d / n, y: label noise 0 and the page's, at the page's SNR
    x, levels = np.array(_STEPS), np.array([0.0, some_noise])[:, None]
    s.steps = strip(x, levels[:, 0], signal_norm=signal_norm, label_noise=levels, step_size=x * n / d)
    s.smallest_step, s.largest_step = ([borders(s.steps, 1, which)] for which in ("fitted", "strong"))
    field = field_log10_error(s.steps, 0)
    s.at_step = {}
    for step in (16, 50):
        without, flipped = (
            (s.steps.interpolates[row, i], s.steps.log10_error[row, i]) for i in [_STEPS.index(step)] for row in (0, 1)
        )
        s.at_step[step] = SimpleNamespace(without=without, flipped=flipped, predicted=field[_STEPS.index(step)])

    # x: SNR (nd)^(1/4), y: d and 25 d
    x, dims = np.array([0.1, 0.5, 1.0, 1.5, 2.0, 2.5]), np.array([d, 25 * d])[:, None]
    norm = x * (n * dims) ** -0.25 * np.sqrt(dims)
    s.low = strip(x, dims[:, 0], d=dims, signal_norm=norm, step_size=multiple * n / dims)
    s.low_predicted = field_log10_error(s.low, 1)

    # x: SNR sqrt(n), y: label noise; at the page's step size
    x, levels = np.geomspace(2, 20, 21), np.array(_NOISE_LEVELS)[:, None]
    s.high = strip(x, levels[:, 0], signal_norm=x * math.sqrt(d / n), label_noise=levels)
    s.upper_limits = [borders(s.high, row, "strong") for row in (2, 3, 4)]

    # x: beta d / n, y: SNR sqrt(n); the lower end of the window at the least SNR, the upper one, and so on
    x, rows = np.geomspace(0.15, 15, 31), np.array(HIGH_SNR)[:, None]
    norm = rows * math.sqrt(d / n)
    windows = strip(x, rows[:, 0], signal_norm=norm, label_noise=some_noise, step_size=x * n / d)
    s.window_ends = [borders(windows, row, which) for row in range(len(HIGH_SNR)) for which in ("fitted", "strong")]

    # x: d / n^2, y: n; n SNR^2 and beta d / n as on the page
    x, sizes = 2.0 ** np.array([-6, -4, -3, -2, -1, 0, 2, 4]), np.array([n // 2, n, 2 * n])[:, None]
    dims = np.maximum(np.rint(x * sizes**2), 3)
    norm = np.sqrt(n * signal_norm**2 / d * dims / sizes)
    s.dimensions = strip(x, sizes[:, 0], n=sizes, d=dims, signal_norm=norm, step_size=multiple * sizes / dims)
    s.dimensions_predicted = field_log10_error(s.dimensions, 1)

    # codes of the proved cells in three planes, of what orthogonal noise predicts, and those cells with 2.5 times the draws of the strips
    s.proved, s.predicted_cells = {}, {}
    for name, (plan, codes) in proved_planes(n, d, label_noise, multiple).items():
        diagram = phase_diagram(plan, draws=5 * draws // 2, seed=seed)
        s.proved[name], s.predicted_cells[name] = (codes, diagram), (predicted_phases(plan), diagram)
    # the exact errors of drawn sets and their proved ends: at the page's SNR, and along SNRs, in d and in 25 d dimensions
    x = np.geomspace(0.01, 1.0, 25)

    def intervals(dim, snr, draws):
        return error_intervals(SignalNoiseLaw(n, dim, snr * dim**0.5, label_noise), multiple * n / dim, draws, seed)

    s.intervals = np.stack(
        [intervals(dim, signal_norm / d**0.5, draws) for dim in (d, 25 * d)], 1
    )  # (draws, dimension, 4)
    s.along_snr = {dim: (x, np.stack([intervals(dim, snr, 2) for snr in x.tolist()])) for dim in (d, 25 * d)}
    return s


# --- borders ---------------------------------------------------------------------------------------------------------------


def crossing(x, values, *, last=False):
    """First (or last) x at which values change sign, log-linear between grid points; nan if they do not."""
    at = np.flatnonzero((values[:-1] > 0) != (values[1:] > 0))
    if len(at) == 0:
        return math.nan
    i = at[-1 if last else 0]
    left, right = np.clip(values[i : i + 2], -1e6, 1e6)
    return float(np.exp(np.interp(0.0, *zip(*sorted([(left, np.log(x[i])), (right, np.log(x[i + 1]))]), strict=True))))


def label_counts(diagram, row):
    """|C_k| and |N_k| of every draw in the cells of a row with one n and one label noise, both (draws, 2): those of `phase_diagram`."""
    n, eta = int(diagram.plan.n[row, 0]), float(diagram.plan.label_noise[row, 0])
    clean, noisy = torch.zeros(2, diagram.draws, 2, dtype=torch.float64)
    for draw in range(diagram.draws):
        classes = stream(diagram.seed, "labels", draw).integers(0, 2, n)
        flipped = stream(diagram.seed, "flips", draw).random(n) < eta
        for k in (0, 1):
            clean[draw, k] = float(((classes == k) & ~flipped).sum())
            noisy[draw, k] = float(((classes == k) & flipped).sum())
    return clean, noisy


def largest_of_normals(count):
    """The expected largest of `count` independent standard normal numbers; 0 for one of them."""
    z = np.linspace(-12, 12, 24_001)
    return float(np.trapezoid(z * count * ndtr(z) ** (count - 1) * np.exp(-(z**2) / 2), z) / math.sqrt(2 * math.pi))


def field_log10_error(diagram, row):
    """log10 clean error (columns, draws) of the mean field with each draw's own label counts (C17), in the cells of a row."""
    counts, plan, rows = label_counts(diagram, row), diagram.plan, []
    for column in range(len(plan.x)):
        law = SignalNoiseLaw(int(plan.n[row, column]), int(plan.d[row, column]), float(plan.signal_norm[row, column]))
        rows.append(mean_field_log10_error(law, float(plan.step_size[row, column]), *counts).numpy())
    return np.array(rows)


def _field_margin(diagram, row, shortfall):
    """Least mean-field margin (columns, draws) after two steps, own label counts, noise values smaller by the share `shortfall`."""
    (clean, noisy), plan, rows = label_counts(diagram, row), diagram.plan, []
    for column in range(len(plan.x)):
        d = max(3, round(plan.d[row, column] * (1 - shortfall)))
        law = SignalNoiseLaw(int(plan.n[row, column]), d, float(plan.signal_norm[row, column]))
        field = mean_field(law, float(plan.step_size[row, column]), clean, noisy)
        flipped = torch.where(noisy > 0, field.margin2_noisy, torch.inf)
        rows.append(torch.minimum(field.margin2_clean, flipped).amin(1).numpy())
    return np.array(rows)


def borders(diagram, row, which):
    r"""Each draw's own border in a row, and the two ends between which mean field with its own label counts puts it: (draws,) each.

    "strong": the last x at which the clean error is below $\Phi(-1)$; both ends are that of the mean-field error (C17). "fitted": the
    first x at which the draw interpolates. A sample's noise score is $a(1+\varepsilon_i)$, $\varepsilon_i$ of standard deviation
    $\sqrt{(n+1)/d}$, and the last sample to be fitted is one with a small score: the lower end is the border at $\varepsilon_i = 0$, the
    upper one that at minus the expected largest of $\eta n$ such numbers. All are found on the strip's own grid, in the same way.
    0 or infinite for a border below or above the strip: its rank is known, its value is not.
    """
    x, plan = diagram.plan.x, diagram.plan
    if which == "fitted":
        n, d = int(plan.n[row, 0]), int(plan.d[row, 0])
        flips = max(1, round(n * float(plan.label_noise[row, 0])))
        shortfall = largest_of_normals(flips) * math.sqrt((n + 1) / d)
        readings = [diagram.smallest_margin[row], *(_field_margin(diagram, row, share) for share in (0.0, shortfall))]
        outside = {True: 0.0, False: math.inf}  # fitted everywhere: its border lies below
    else:
        # The logarithm of the exponent: errors of a strip span hundreds of decades, and a border is sought between grid points.
        field = field_log10_error(diagram, row)
        readings = [
            np.log(np.maximum(error / _SMALL_ERROR, 1e-12)) for error in (diagram.log10_error[row], field, field)
        ]
        outside = {True: math.inf, False: 0.0}

    def found(columns):
        own = [crossing(x, column, last=which != "fitted") for column in columns.T]
        return np.array([outside[bool(c[0] > 0)] if math.isnan(b) else b for b, c in zip(own, columns.T, strict=True)])

    own, low, high = (found(reading) for reading in readings)
    return own, low, high
