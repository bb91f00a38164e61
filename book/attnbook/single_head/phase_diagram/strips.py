"""Strips through the phase diagrams around one setting, with more draws than the pictures: what the claims S1-S14 look at."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from attnbook.single_head.mean_field import mean_field, mean_field_log10_error
from attnbook.single_head.phase import PhaseDiagram, phase_diagram, phase_plan
from attnbook.single_head.phase_diagram.proved import proved_planes
from attnbook.single_head.phase_theory import ThresholdFit, fit_threshold, threshold_pseudo_values
from attnlib import checks
from attnlib.randomness import stream
from attnlib.single_head.law import SignalNoiseLaw

_SMALL_ERROR = math.log10(0.5 * math.erfc(math.sqrt(0.5)))  # log10 Phi(-1): what S = 1 gives at typical attention
HIGH_SNR = (2.12, 5.0, 7.0, 14.0)  # SNR sqrt(n); at n = 200, d = 40000 about rho = 30, 70, 100, 200
_NOISE_LEVELS = (0.0, 0.01, 0.02, 0.05, 0.2)


@dataclass(frozen=True)
class PhaseStudy:
    """Strips through the phase diagram around a page's setting. Each is computed when it is first asked for."""

    n: int
    d: int
    signal_norm: float
    label_noise: float
    step_size: float
    draws: int
    seed: int

    @property
    def kappa(self) -> float:
        return self.n * self.signal_norm**2 / self.d * (1 - 2 * self.label_noise) / 2

    @property
    def _multiple(self) -> float:
        """beta d / n."""
        return self.step_size * self.d / self.n

    def _strip(self, x: np.ndarray, y: np.ndarray, errors: bool = True, **settings: object) -> PhaseDiagram:
        own = {"n": self.n, "d": self.d, "label_noise": self.label_noise, "step_size": self.step_size}
        return phase_diagram(phase_plan(x, y, **(own | settings)), draws=self.draws, seed=self.seed, errors=errors)

    @cached_property
    def threshold(self) -> PhaseDiagram:
        """x: n SNR^2, y: n with d ~ n^2; no errors."""
        n, x = self.n, np.geomspace(0.4, 12, 33)
        sizes = np.array([n // 4, n // 2, n, 2 * n])[:, None]
        dims = np.maximum(np.rint(self.d * (sizes / n) ** 2), 3)
        return self._strip(
            x, sizes[:, 0], errors=False, n=sizes, d=dims, signal_norm=np.sqrt(x * dims / sizes),
            step_size=self._multiple * sizes / dims,
        )  # fmt: skip

    @cached_property
    def fits(self) -> tuple[ThresholdFit, ...]:
        """Of the preference, one per row of `threshold`, on the axis n SNR^2."""
        strip = self.threshold
        return tuple(fit_threshold(strip.plan.x, shares, seed=self.seed) for shares in strip.preference)

    @cached_property
    def pseudo_values(self) -> np.ndarray:
        """(rows, draws, 2), of log location and log width of the fits."""
        x, rows = self.threshold.plan.x, zip(self.threshold.preference, self.fits, strict=True)
        return np.array([threshold_pseudo_values(x, shares, fit) for shares, fit in rows])

    @cached_property
    def steps(self) -> PhaseDiagram:
        """x: beta d / n, y: label noise 0 and the page's, at the page's SNR."""
        x = np.array([0.1, 0.5, 1, 1.5, 2, 2.25, 2.5, 2.75, 3, 4, 5, 6.5, 8, 10, 12, 16, 20, 30, 50])
        levels = np.array([0.0, self._some_noise])[:, None]
        return self._strip(
            x, levels[:, 0], signal_norm=self.signal_norm, label_noise=levels, step_size=x * self.n / self.d
        )

    @property
    def _some_noise(self) -> float:
        """Of strips that need flipped labels."""
        return self.label_noise or 0.05

    @cached_property
    def low(self) -> PhaseDiagram:
        """x: SNR (nd)^(1/4), y: d and 25 d."""
        x, dims = np.array([0.1, 0.5, 1.0, 1.5, 2.0, 2.5]), np.array([self.d, 25 * self.d])[:, None]
        norm = x * (self.n * dims) ** -0.25 * np.sqrt(dims)
        return self._strip(x, dims[:, 0], d=dims, signal_norm=norm, step_size=self._multiple * self.n / dims)

    @cached_property
    def high(self) -> PhaseDiagram:
        """x: SNR sqrt(n), y: label noise; at the page's step size."""
        x, levels = np.geomspace(2, 20, 21), np.array(_NOISE_LEVELS)[:, None]
        return self._strip(x, levels[:, 0], signal_norm=x * math.sqrt(self.d / self.n), label_noise=levels)

    @cached_property
    def windows(self) -> PhaseDiagram:
        """x: beta d / n, y: SNR sqrt(n)."""
        x, rows = np.geomspace(0.15, 15, 31), np.array(HIGH_SNR)[:, None]
        norm = rows * math.sqrt(self.d / self.n)
        return self._strip(x, rows[:, 0], signal_norm=norm, label_noise=self._some_noise, step_size=x * self.n / self.d)

    @cached_property
    def dimensions(self) -> PhaseDiagram:
        """x: d / n^2, y: n; n SNR^2 and beta d / n as on the page."""
        n, x = self.n, 2.0 ** np.array([-6, -4, -3, -2, -1, 0, 2, 4])
        sizes = np.array([n // 2, n, 2 * n])[:, None]
        dims = np.maximum(np.rint(x * sizes**2), 3)
        norm = np.sqrt(n * self.signal_norm**2 / self.d * dims / sizes)
        return self._strip(x, sizes[:, 0], n=sizes, d=dims, signal_norm=norm, step_size=self._multiple * sizes / dims)

    @cached_property
    def proved(self) -> dict[str, tuple[np.ndarray, PhaseDiagram]]:
        """Codes of the proved cells in three planes, and those cells with 2.5 times the draws of the strips."""
        draws, found = 5 * self.draws // 2, proved_planes(self.n, self.d, self.label_noise, self._multiple)
        return {
            name: (codes, phase_diagram(plan, draws=draws, seed=self.seed)) for name, (plan, codes) in found.items()
        }


def phase_study(
    n: int, d: int, signal_norm: float, label_noise: float, step_size: float, *, draws: int = 40, seed: int = 0
) -> PhaseStudy:
    """The strips around one setting. Raises ValueError for a bad argument before any work."""
    checks.whole_number("n", n, at_least=20, hint="thresholds of smaller sets are lost in their fluctuations")
    checks.whole_number("draws", draws, at_least=4)
    checks.probability("label_noise", label_noise, high=0.45)
    SignalNoiseLaw(n, d, signal_norm, label_noise)
    return PhaseStudy(n, d, signal_norm, label_noise, checks.positive_number("step_size", step_size), draws, seed)


def crossing(x: np.ndarray, values: np.ndarray, *, last: bool = False) -> float:
    """First (or last) x at which values change sign, log-linear between grid points; nan if they do not."""
    at = np.flatnonzero((values[:-1] > 0) != (values[1:] > 0))
    if len(at) == 0:
        return math.nan
    i = at[-1 if last else 0]
    left, right = np.clip(values[i : i + 2], -1e6, 1e6)
    return float(np.exp(np.interp(0.0, *zip(*sorted([(left, np.log(x[i])), (right, np.log(x[i + 1]))]), strict=True))))


def label_counts(diagram: PhaseDiagram, row: int) -> tuple[torch.Tensor, torch.Tensor]:
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


def largest_of_normals(count: int) -> float:
    """The expected largest of `count` independent standard normal numbers; 0 for one of them."""
    from scipy.special import ndtr

    z = np.linspace(-12, 12, 24_001)
    return float(np.trapezoid(z * count * ndtr(z) ** (count - 1) * np.exp(-(z**2) / 2), z) / math.sqrt(2 * math.pi))


def field_log10_error(diagram: PhaseDiagram, row: int) -> np.ndarray:
    """log10 clean error (columns, draws) of the mean field with each draw's own label counts (C17), in the cells of a row."""
    counts, plan, rows = label_counts(diagram, row), diagram.plan, []
    for column in range(len(plan.x)):
        law = SignalNoiseLaw(int(plan.n[row, column]), int(plan.d[row, column]), float(plan.signal_norm[row, column]))
        rows.append(mean_field_log10_error(law, float(plan.step_size[row, column]), *counts).numpy())
    return np.array(rows)


def _field_margin(diagram: PhaseDiagram, row: int, shortfall: float) -> np.ndarray:
    """Least mean-field margin (columns, draws) after two steps, own label counts, noise values smaller by the share `shortfall`."""
    (clean, noisy), plan, rows = label_counts(diagram, row), diagram.plan, []
    for column in range(len(plan.x)):
        d = max(3, round(plan.d[row, column] * (1 - shortfall)))
        law = SignalNoiseLaw(int(plan.n[row, column]), d, float(plan.signal_norm[row, column]))
        field = mean_field(law, float(plan.step_size[row, column]), clean, noisy)
        flipped = torch.where(noisy > 0, field.margin2_noisy, torch.inf)
        rows.append(torch.minimum(field.margin2_clean, flipped).amin(1).numpy())
    return np.array(rows)


def borders(diagram: PhaseDiagram, row: int, which: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
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

    def found(columns: np.ndarray) -> np.ndarray:
        own = [crossing(x, column, last=which != "fitted") for column in columns.T]
        return np.array([outside[bool(c[0] > 0)] if math.isnan(b) else b for b, c in zip(own, columns.T, strict=True)])

    own, low, high = (found(reading) for reading in readings)
    return own, low, high
