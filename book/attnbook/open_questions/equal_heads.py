r"""Several heads that start from zero: one head with rescaled steps, its two-step window, and its long run.

With $f = c\sum_h \sum_t w_t(Xp_h)\,v_h\cdot x_t$ and $v_h = p_h = 0$ all heads get the same gradient and stay equal. The sum is then one
head with effective values $V = cHv$, whose gradients are $G_v, G_p$ in V and p:

$$ \partial_{v_h} L = c\,G_v, \quad \partial_{p_h} L = \tfrac1H G_p
   \;\Rightarrow\; V \leftarrow V - c^2H\beta\,G_v, \quad p \leftarrow p - \tfrac{\beta}{H}\,G_p, $$

and $\partial_v L = cH\,G_v$, hence $c^2H^2\beta$, where the heads share one v. So many heads are one head with slower attention, of ratio
$r = \beta_p/\beta_v = 1/H^2$ for the sum. Source: derived here. The boundary of gradient flow at ratio r is that of `flow`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from attnbook.single_head.flow import selects_signal
from attnbook.single_head.long_run import Course, Fates, course_of_training, fates_of, side_by_side, stacked, strengths
from attnlib import checks
from attnlib.kernels.heads import Call, advance
from attnlib.single_head.closed_form import TwoSteps, two_steps
from attnlib.single_head.law import Sample, SignalNoiseLaw
from attnlib.single_head.maps import SOFTMAX
from attnlib.single_head.model import forward
from attnlib.single_head.population import log10_clean_error
from attnlib.single_head.training import Trajectory, train_heads


@dataclass(frozen=True)
class Variant:
    """How the outputs of H heads are put together: c = H^power, one v for all heads or one each."""

    name: str
    power: float
    shared_values: bool = False

    def output_scale(self, heads: int) -> float:
        """c."""
        return float(checks.whole_number("heads", heads, at_least=1)) ** self.power

    def one_head_steps(self, step_size: float, heads: int) -> tuple[float, float]:
        """(beta_v, beta_p) of the one head that H heads with step size beta are."""
        scale = self.output_scale(heads)
        return scale**2 * heads ** (2 if self.shared_values else 1) * step_size, step_size / heads

    def train(self, sample: Sample, step_size: float, steps: int, heads: int, **options) -> Trajectory:
        """H heads from zero, by the general trainer."""
        return train_heads(
            sample, step_size, steps, heads=heads, shared_values=self.shared_values,
            output_scale=self.output_scale(heads), **options,
        )  # fmt: skip

    def as_one_head(self, path: Trajectory) -> Trajectory:
        """The one head of equal heads: effective values V = c sum_h v_h (the shared v counts H times), p and attention of head 1."""
        heads = path.p.shape[2]
        values = self.output_scale(heads) * path.v.expand_as(path.p).sum(2)
        return Trajectory(
            path.steps, values, path.p[:, :, 0], path.loss, path.margins, path.attention_on_signal[:, :, 0], path.noisy
        )


VARIANTS: dict[str, Variant] = {
    v.name: v
    for v in (
        Variant("sum", 0.0),
        Variant("mean", -1.0),
        Variant("root sum", -0.5),
        Variant("shared sum", 0.0, shared_values=True),
        Variant("shared mean", -1.0, shared_values=True),
    )
}


def equal_heads(path: Trajectory) -> float:
    """Largest difference between two heads' parameters over the largest parameter: 0 to rounding from zero."""
    parts = [(x - x[:, :, :1]).abs().max() / x.abs().max() for x in (path.v, path.p)]
    return max(part.item() for part in parts)


# --- two steps -------------------------------------------------------------------------------------------------------------


def two_steps_apart(sample: Sample, step_size: float, attention_step_size: float) -> TwoSteps:
    r"""Two steps from zero with $\beta_v \ne \beta_p$: v_1, v_2 and the slopes see $\beta_v$ alone, $p_2$ is linear in $\beta_p$.

    $v_2 = \frac{\beta_v}{4n}\sum y(1+2g)(u+\xi)$ and $p_2 = \frac{\beta_p}{4n}\sum g\gamma\,(u-\xi)$ with g and gamma from $v_1$. Zero
    freezes attention. Raises ValueError for a bad step size.
    """
    found = two_steps(sample, step_size)
    if attention_step_size != 0:
        checks.positive_number("attention_step_size", attention_step_size, hint="or 0 to freeze it")
    ratio = attention_step_size / step_size
    return replace(found, p2=ratio * found.p2, p2_tokens=ratio * found.p2_tokens)


@dataclass(frozen=True)
class Window:
    """Two steps of H heads over step sizes: arrays (rows, step sizes, draws), or (rows,)."""

    rows: tuple[tuple[float, float], ...]  # (beta_v, beta_p) over beta
    multiples: tuple[float, ...]  # beta d / n
    interpolates: np.ndarray
    log10_error: np.ndarray

    @property
    def share(self) -> np.ndarray:
        """(rows, step sizes): share of the draws that fit every label."""
        return self.interpolates.mean(-1)


def two_step_window(
    law: SignalNoiseLaw, rows: Sequence[tuple[float, float]], multiples: Sequence[float], *, draws: int = 10, seed: int = 0
) -> Window:  # fmt: skip
    """Two steps with (beta_v, beta_p) = row x beta, beta d / n in `multiples`: who interpolates, and the exact clean error.

    H heads are the row (H, 1/H), frozen attention (1, 0). The draws are the same in every cell. Raises ValueError for a bad argument.
    """
    sample = law.draw(seed, checks.whole_number("draws", draws, at_least=1))
    fits, errors = [], []
    for value, attention in rows:
        for multiple in multiples:
            beta = checks.positive_number("multiples", multiple) * law.n / law.d
            found = two_steps_apart(sample, value * beta, attention * beta)
            margins = sample.labels * forward(sample.tokens, found.v2, found.p2).output
            fits.append((margins > 0).all(-1).numpy())
            errors.append(log10_clean_error(found.v2, found.p2, sample).numpy())
    shape = (len(rows), len(multiples), draws)
    return Window(tuple(rows), tuple(multiples), np.reshape(fits, shape), np.reshape(errors, shape))


def window_edge(law: SignalNoiseLaw, row: tuple[float, float]) -> float:
    r"""The beta d / n from which on two steps fit the flipped samples too, in the limit of orthogonal noise and expected counts.

    With $a = \beta_v d/4n$, $b = \beta_v\rho^2(|C|-|N|)/4n$, $g_c = \sigma(-\frac{a+b}2)$, $g_n = \sigma(\frac{b-a}2)$ a flipped sample's
    margin after two steps is $(1-s)\,t - s V$, $t = a(1+2g_n)$, $V = \frac{\beta_v\rho^2}{4n}(|C|(1+2g_c) - |N|(1+2g_n))$,
    $s = \sigma(P - q)$, $P = \frac{\beta_p\rho^2}{4n}(|C|g_c(b-a) - |N|g_n(a+b))$, $q = \frac{\beta_pd}{4n}g_n(a+b)$. The sign changes once
    below 40, found by bisection; inf if it stays negative, 0 if it is positive throughout. `row` is (beta_v, beta_p) over beta.
    """
    clean, noisy = law.n * (1 - law.label_noise) / 2, law.n * law.label_noise / 2
    x = law.signal_norm**2 / law.d

    def margin(multiple: float) -> float:
        value, attention = (rate * multiple / 4 for rate in row)  # beta_v d / 4n and beta_p d / 4n
        a, b = value, value * x * (clean - noisy)
        g_c, g_n = (0.5 * (1 - math.tanh(pull / 4)) for pull in (a + b, a - b))
        t, V = a * (1 + 2 * g_n), value * x * (clean * (1 + 2 * g_c) - noisy * (1 + 2 * g_n))
        logit = attention * (x * (clean * g_c * (b - a) - noisy * g_n * (a + b)) - g_n * (a + b))
        weight = 0.5 * (1 + math.tanh(logit / 2))
        return (1 - weight) * t - weight * V

    low, high = 1e-6, 40.0
    if margin(high) <= 0:
        return math.inf
    if margin(low) > 0:
        return 0.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if margin(middle) <= 0 else (low, middle)
    return high


# --- long runs -------------------------------------------------------------------------------------------------------------


def heads_courses(
    laws: Sequence[SignalNoiseLaw], heads: Sequence[int], step_size: float, steps: int, **options
) -> dict[int, list[Course]]:
    """For each H: trajectories of the sum of H heads from zero at every law, as the one head they are. Options of `course_of_training`."""
    one_head = {H: VARIANTS["sum"].one_head_steps(step_size, H) for H in heads}
    return {
        H: course_of_training(laws, value, steps, attention_step_size=attention, **options)
        for H, (value, attention) in one_head.items()
    }


# A clock for very long runs: (beta_v d/n, steps) pairs, in units of tau = beta_v t d/n. Small steps, close to gradient flow, then steps
# that double with the time itself, to tau = 100 x 2^26: slopes fall like 1/tau, so the moves per step stay small.
LONG_CLOCK = ((0.25, 400), *((2.0**k, 100) for k in range(26)))


def heads_fates(
    laws: Sequence[SignalNoiseLaw], heads: Sequence[int], clock: Sequence[tuple[float, int]], *, draws: int = 5, seed: int = 0
) -> dict[int, Fates]:  # fmt: skip
    """Fates of both classes of every draw, for each number of heads from zero, on one clock of V (so attention is H^2 slower).

    All laws have one n and d, and all numbers of heads see the same draws and train as one batch. `Fates.threshold` is the x* of the
    class's own share of flips at ratio 1/H^2 and at the end of the clock, known only to the side on which the class lies: 0 when
    the flow ends on the signal, inf otherwise. Raises ValueError for a bad argument or a class without clean samples.
    """
    if not clock:
        raise ValueError("clock must hold at least one (step, steps) pair; got none: LONG_CLOCK")
    samples, one = side_by_side(laws, draws, seed)
    rate = torch.tensor([1 / checks.whole_number("heads", H, at_least=1) ** 2 for H in heads], dtype=torch.float64)
    path = _run_on_clock(stacked([one] * len(heads)), clock, rate.repeat_interleave(one.runs), laws[0])
    if not (one.counts()[0] > 0).all():
        raise ValueError("every class must have a clean sample; got one without: take more samples")
    x, share = strengths(samples, one)
    time = sum(step * steps for step, steps in clock)
    found = {}
    for H, own_rate, block in zip(
        heads, rate.tolist(), torch.arange(len(rate) * one.runs).split(one.runs), strict=True
    ):
        sides = [
            a > 1
            if b == 0
            else selects_signal(a, b, attention_rate=own_rate, time=time)  # without flips x* = 1, proved
            for a, b in zip(x.flat, share.flat, strict=True)
        ]
        own = replace(
            path, **{name: part[:, block] for name, part in vars(path).items() if name not in ("steps", "noisy")}
        )
        found[H] = fates_of(samples, one, own, np.where(np.reshape(sides, x.shape), 0.0, math.inf))
    return found


def _run_on_clock(sample: Sample, clock, rate: torch.Tensor, law: SignalNoiseLaw) -> Trajectory:
    """One head per run from zero, steps of the clock for v and `rate` (R,) times as large for p. The end only."""
    basis = torch.cat([sample.signals, sample.noise_tokens()[:, :, 0]], 1)
    coefficients = basis.new_zeros(basis.shape[0], 2, basis.shape[1])  # v, p
    gram, labels, classes = basis @ basis.mT, sample.labels.contiguous(), sample.signal_class.contiguous()
    for step, steps in clock:
        size = step * law.n / law.d
        call = Call(
            gram, coefficients, labels, classes, heads=1, signals=2, attention_map=SOFTMAX, value_step=size,
            attention_step=size * rate, factors=torch.ones(steps), record=[steps],
        )  # fmt: skip
        seen = advance(call)
    v, p = (coefficients @ basis).unbind(1)
    margins = labels * seen.output
    return Trajectory(
        (sum(steps for _, steps in clock),), v[None], p[None], torch.nn.functional.softplus(-margins).mean(-1), margins,
        seen.attention[:, :, 0], sample.noisy,
    )  # fmt: skip
