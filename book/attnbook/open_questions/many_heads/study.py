r"""Several heads that start from zero: one head with rescaled steps, its two-step window, and its long run.

With $f = c\sum_h \sum_t w_t(Xp_h)\,v_h\cdot x_t$ and $v_h = p_h = 0$ all heads get the same gradient and stay equal. The sum is then one
head with effective values $V = cHv$, whose gradients are $G_v, G_p$ in V and p:

$$ \partial_{v_h} L = c\,G_v, \quad \partial_{p_h} L = \tfrac1H G_p
   \;\Rightarrow\; V \leftarrow V - c^2H\beta\,G_v, \quad p \leftarrow p - \tfrac{\beta}{H}\,G_p, $$

and $\partial_v L = cH\,G_v$, hence $c^2H^2\beta$, where the heads share one v. So many heads are one head with slower attention, of ratio
$r = \beta_p/\beta_v = 1/H^2$ for the sum. Source: derived here.
"""

import math
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np

from attnbook.open_questions.equal_heads import LONG_CLOCK, heads_fates
from attnbook.single_head.long_run import course_of_training, law_at
from attnlib.single_head.closed_form import two_steps
from attnlib.single_head.errors import log10_clean_error
from attnlib.single_head.law import SignalNoiseLaw
from attnlib.single_head.model import forward
from attnlib.single_head.training import Trajectory, train_heads

PAPER_SIZE = SignalNoiseLaw(200, 40_000, 30.0, 0.05)
WINDOW_ROWS = {1: (1.0, 1.0), 2: (2.0, 1 / 2), 4: (4.0, 1 / 4), 8: (8.0, 1 / 8), "frozen": (1.0, 0.0)}
WINDOW_STEPS = (1.0, 1.5, 2.0, 2.5, 3.0, 5.0, 8.0, 12.0)


@dataclass(frozen=True)
class Variant:
    """How the outputs of H heads are put together: c = H^power, one v for all heads or one each."""

    name: str
    power: float
    shared_values: bool = False

    def output_scale(self, heads):
        """c."""
        return float(heads) ** self.power

    def one_head_steps(self, step_size, heads):
        """(beta_v, beta_p) of the one head that H heads with step size beta are."""
        scale = self.output_scale(heads)
        return scale**2 * heads ** (2 if self.shared_values else 1) * step_size, step_size / heads

    def train(self, sample, step_size, steps, heads, **options):
        """H heads from zero, by the general trainer."""
        return train_heads(
            sample, step_size, steps, heads=heads, shared_values=self.shared_values,
            output_scale=self.output_scale(heads), **options,
        )  # fmt: skip

    def as_one_head(self, path):
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


def equal_heads(path):
    """Largest difference between two heads' parameters over the largest parameter: 0 to rounding from zero."""
    parts = [(x - x[:, :, :1]).abs().max() / x.abs().max() for x in (path.v, path.p)]
    return max(part.item() for part in parts)


# --- two steps -------------------------------------------------------------------------------------------------------------


def two_steps_apart(sample, step_size, attention_step_size):
    r"""Two steps from zero with $\beta_v \ne \beta_p$: v_1, v_2 and the slopes see $\beta_v$ alone, $p_2$ is linear in $\beta_p$.

    $v_2 = \frac{\beta_v}{4n}\sum y(1+2g)(u+\xi)$ and $p_2 = \frac{\beta_p}{4n}\sum g\gamma\,(u-\xi)$ with g and gamma from $v_1$. Zero
    freezes attention.
    """
    found = two_steps(sample, step_size)
    ratio = attention_step_size / step_size
    return replace(found, p2=ratio * found.p2, p2_tokens=ratio * found.p2_tokens)


def two_step_window(law, rows, multiples, *, draws=10, seed=0):
    """Two steps with (beta_v, beta_p) = row x beta, beta d / n in `multiples`: who interpolates, and the exact clean error.

    Arrays (rows, step sizes, draws). H heads are the row (H, 1/H), frozen attention (1, 0). The draws are the same in every cell.
    """
    sample, fits, errors = law.draw(seed, draws), [], []
    for value, attention in rows:
        for multiple in multiples:
            beta = multiple * law.n / law.d
            found = two_steps_apart(sample, value * beta, attention * beta)
            margins = sample.labels * forward(sample.tokens, found.v2, found.p2).output
            fits.append((margins > 0).all(-1).numpy())
            errors.append(log10_clean_error(found.v2, found.p2, sample).numpy())
    fits, errors = (np.reshape(part, (len(rows), len(multiples), draws)) for part in (fits, errors))
    return SimpleNamespace(rows=tuple(rows), multiples=tuple(multiples), interpolates=fits, log10_error=errors)


def window_edge(law, row):
    r"""The beta d / n from which on two steps fit the flipped samples too, in the limit of orthogonal noise and expected counts.

    With $a = \beta_v d/4n$, $b = \beta_v\rho^2(|C|-|N|)/4n$, $g_c = \sigma(-\frac{a+b}2)$, $g_n = \sigma(\frac{b-a}2)$ a flipped sample's
    margin after two steps is $(1-s)\,t - s V$, $t = a(1+2g_n)$, $V = \frac{\beta_v\rho^2}{4n}(|C|(1+2g_c) - |N|(1+2g_n))$,
    $s = \sigma(P - q)$, $P = \frac{\beta_p\rho^2}{4n}(|C|g_c(b-a) - |N|g_n(a+b))$, $q = \frac{\beta_pd}{4n}g_n(a+b)$. The sign changes once
    below 40, found by bisection; inf if it stays negative, 0 if it is positive throughout. `row` is (beta_v, beta_p) over beta.
    """
    clean, noisy = law.n * (1 - law.label_noise) / 2, law.n * law.label_noise / 2
    x = law.signal_norm**2 / law.d

    def margin(multiple):
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


def heads_courses(laws, heads, step_size, steps, **options):
    """For each H: trajectories of the sum of H heads from zero at every law, as the one head they are. Options of `course_of_training`."""
    one_head = {H: VARIANTS["sum"].one_head_steps(step_size, H) for H in heads}
    return {
        H: course_of_training(laws, value, steps, attention_step_size=attention, **options)
        for H, (value, attention) in one_head.items()
    }


def many_heads_study(*, draws=10, seed=1):
    """Train and collect; `draws` of the window and of the long runs."""
    few, slower = {"draws": draws, "seed": seed}, [replace(PAPER_SIZE, signal_norm=norm) for norm in (16.0, 24.0)]
    quiet = [law_at(x, 100, 10**6, 0.0) for x in np.geomspace(0.6, 1.6, 7)]
    loud = [law_at(x, 100, 10**6, 0.2) for x in np.geomspace(0.9, 2.5, 9)]
    record = [1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000, 2000]
    return SimpleNamespace(
        small=SignalNoiseLaw(12, 400, 8.0, 0.1).draw(seed, 3),  # for checks of algebra
        window=two_step_window(PAPER_SIZE, list(WINDOW_ROWS.values()), WINDOW_STEPS, **few),
        # Frozen attention at 5 and 8 n/d, four times the draws.
        frozen=two_step_window(PAPER_SIZE, [WINDOW_ROWS["frozen"]], (5.0, 8.0), draws=4 * draws, seed=seed),
        slow=heads_courses(slower, (1, 2, 4, 8), 0.025, 2000, record=record, **few),
        no_noise=heads_fates(quiet, (1, 2, 4), LONG_CLOCK, seed=seed),  # eta = 0
        flips=heads_fates(loud, (2, 4), LONG_CLOCK, seed=seed),  # eta = 0.2
    )
