r"""Several heads from small random starts: do they stay together, take different tokens, take different directions?

Starts: $p_h^0$ Gaussian of expected norm $\omega$, $v_h^0$ of norm $\omega/4$, independent. Steps *matched*: $\beta/H$ for the v_h and
$H\beta$ for the p_h, so that from zero the sum of heads is one head with step $\beta$. With $\hat V_h = H\,s_k v_h\cdot\mu_k$ and the
likes, the mean field of a class is, per head, the single head's map with slopes g of the *mean* margin over heads. Differences between
heads then obey, to first order, the map linearised along the common path with g held fixed (`difference_growth`): with
$\delta s = s(1-s)(\delta P - \delta q)$,

$$ \delta V' = x(g_c\delta s_c - \nu g_n\delta s_n),\quad \delta t_c' = -g_c\delta s_c,\quad \delta t_n' = -g_n\delta s_n,\quad
   \delta P' = rx(\delta A_c - \nu\,\delta A_n),\quad \delta q_c' = -r\,\delta A_c,\quad \delta q_n' = r\,\delta A_n, $$

$\delta A_c = g_cs_c(1-s_c)\,[\delta V - \delta t_c + (1-2s_c)(V-t_c)(\delta P-\delta q_c)]$ and $\delta A_n$ alike with $V + t_n$. Source:
derived. Only a class's own numbers enter: directions, like classes, never see each other's heads.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from attnbook.open_questions.random_starts.error import log10_head_error
from attnbook.single_head.flow import sigmoids as _sigmoid
from attnbook.single_head.long_run import blocks, side_by_side
from attnlib import checks
from attnlib.single_head.law import Sample, SignalNoiseLaw
from attnlib.single_head.training import train_heads


def random_start(sample: Sample, heads: int, size: float) -> tuple[torch.Tensor, torch.Tensor]:
    """(v_0, p_0), both (R, H, m): independent Gaussian vectors of R^d with expected norms size / 4 and size.

    Needs a sample drawn with `start_vectors=2 * heads`. Raises ValueError otherwise.
    """
    checks.whole_number("heads", heads, at_least=1)
    scale = checks.positive_number("size", size) / math.sqrt(sample.law.d)
    have = sample.start_directions.shape[1]
    if have < 2 * heads:
        raise ValueError(
            f"sample must hold {2 * heads} start vectors; got {have}: draw it with start_vectors=2 * heads"
        )
    return scale / 4 * sample.start_directions[:, :heads], scale * sample.start_directions[:, heads : 2 * heads]


@dataclass(frozen=True)
class HeadsCourse:
    """H heads along training; K classes are signal directions. Arrays over recorded steps S, runs R, heads H; nan for empty classes."""

    steps: tuple[int, ...]
    x: np.ndarray  # (R, K), rho^2 |C_k| / d
    flipped: np.ndarray  # (R, K), |N_k| / (|C_k| + |N_k|)
    clean: np.ndarray  # (R, K), |C_k|
    attention: np.ndarray  # (S, R, K, H), mean over the clean samples of direction k
    logit: np.ndarray  # (S, R, K, H), the same mean of the attention logit
    difference: np.ndarray  # (S, R), rms over heads and clean samples of the logit's distance from the mean over heads
    attention_clean: np.ndarray  # (S, R, H)
    attention_noisy: np.ndarray  # (S, R, H)
    train_accuracy: np.ndarray  # (S, R)
    log10_error: np.ndarray  # (E, R)
    error_of_error: np.ndarray  # (E, R), standard error of log10_error

    def at(self, step: int) -> int:
        """Row of a recorded step. Raises ValueError when it was not recorded."""
        if step not in self.steps:
            raise ValueError(f"step must be a recorded one; got {step!r}: pass it in record")
        return self.steps.index(step)

    @property
    def spread_clean(self) -> np.ndarray:
        """(S, R): largest minus smallest attention of a head, each averaged over clean samples."""
        return np.ptp(self.attention_clean, axis=-1)

    @property
    def class_difference(self) -> np.ndarray:
        """(S, R, K): rms over heads of the class-mean logit's distance from its mean over heads."""
        return self.logit.std(-1)

    @property
    def growth(self) -> np.ndarray:
        """(S, R): `difference` over its value at step 0."""
        return self.difference / self.difference[0]


@checks.checked
def random_heads(
    laws: Sequence[SignalNoiseLaw], heads: int, size: float, multiple: float, steps: int, *, draws: int, seed: int = 0,
    record: Sequence[int] = (), error_steps: Sequence[int] = (),
) -> HeadsCourse:  # fmt: skip
    """Train the sum of `heads` randomly started heads, `draws` runs of every law (one n and d) as one batch; law i takes runs i*draws, ...

    multiple: beta d / n; the steps are beta/H for v and H beta for p. record: steps kept beside 0 and the last.
    error_steps: recorded steps at which the fresh clean error is estimated. Raises ValueError for a bad argument.
    """
    checks.whole_number("heads", heads, at_least=1)
    samples, one = side_by_side(laws, draws, seed, start_vectors=2 * heads)
    beta = checks.positive_number("multiple", multiple) * laws[0].n / laws[0].d
    record = sorted({0, *record, *error_steps, steps})
    path = train_heads(
        one, beta / heads, steps, heads=heads, attention_step_size=beta * heads, start=random_start(one, heads, size), record=record
    )  # fmt: skip
    weight, noisy = path.attention_on_signal, one.noisy  # (S, R, H, n)
    directions = one.signals.shape[1]
    of = torch.stack([one.signal_class == k for k in range(directions)], 1)
    held, flipped = of & ~noisy.unsqueeze(1), (of & noisy.unsqueeze(1)).sum(-1).numpy()
    count = held.sum(-1)
    share = held.double() / count.unsqueeze(-1)  # nan rows for empty classes
    logit = _logits(one, path.p)
    apart = (logit - logit.mean(2, keepdim=True)).square().mean(2)  # (S, R, n)
    clean = (~noisy).double() / (~noisy).sum(-1, keepdim=True)
    errors = [
        [
            log10_head_error(path.v[path.at(step), part], path.p[path.at(step), part], sample, count=1000)
            for sample, part in zip(samples, blocks(samples), strict=True)
        ]
        for step in error_steps
    ]
    norms = np.repeat([law.signal_norm for law in laws], draws)[:, None]
    return HeadsCourse(
        steps=path.steps,
        x=norms**2 * count.numpy() / laws[0].d,
        flipped=flipped / (count.numpy() + flipped),
        clean=count.numpy(),
        attention=torch.einsum("srhn,rkn->srkh", weight, share).numpy(),
        logit=torch.einsum("srhn,rkn->srkh", logit, share).numpy(),
        difference=torch.einsum("srn,rn->sr", apart, clean).sqrt().numpy(),
        attention_clean=path.attention_clean.numpy(),
        attention_noisy=path.attention_noisy.numpy(),
        train_accuracy=path.train_accuracy.numpy(),
        log10_error=np.array([np.concatenate([e.value for e in row]) for row in errors]),
        error_of_error=np.array([np.concatenate([e.standard_error for e in row]) for row in errors]),
    )


def _logits(sample: Sample, p: torch.Tensor) -> torch.Tensor:
    """(S, R, H, n): p_h . (u_i - xi_i), from the vectors: weights near 0 or 1 have lost it."""
    signal = torch.einsum("rkm,srhm->srhk", sample.signals, p)
    held = sample.signal_class[None, :, None].expand(*signal.shape[:3], -1)
    return signal.gather(3, held) - torch.einsum("rnm,srhm->srhn", sample.noise_tokens()[:, :, 0], p)


# --- who takes what --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Divided:
    """Classes in which some head attends to the signal above 0.8 and another below 0.2, at a step."""

    near: np.ndarray  # bool, of the classes near the threshold
    far: np.ndarray  # bool, of the others


def divided_classes(course: HeadsCourse, thresholds: np.ndarray, step: int) -> Divided:
    """Which classes are divided, near the threshold (x / x* within a factor 1.15) and far from it (beyond 1.3)."""
    weight = course.attention[course.at(step)]
    divided = (weight.max(-1) > 0.8) & (weight.min(-1) < 0.2)
    distance = np.abs(np.log(course.x / thresholds))
    return Divided(divided[distance < math.log1p(0.15)], divided[distance > math.log1p(0.3)])


def across_directions(course: HeadsCourse, step: int) -> np.ndarray:
    r"""(R,): do heads that lead in one direction trail in another? Mean cosine over pairs of directions of the same class.

    With $D_{hk}$ the class-mean logit of head h on direction k minus its mean over heads, the cosine of $D_{\cdot k}$ and
    $D_{\cdot k'}$. -1: heads divide the directions (two heads, two directions); +1: one head leads everywhere; 0 on average when
    directions are independent, whatever happens inside each: the null model, exact at the start.
    """
    logit = course.logit[course.at(step)]  # (R, K, H)
    apart = logit - logit.mean(-1, keepdims=True)
    apart = apart / np.linalg.norm(apart, axis=-1, keepdims=True)
    half = apart.shape[1] // 2
    if half < 2:
        raise ValueError("course must have two directions per class or more; got one: use ManyDirectionsLaw")
    pairs = [(j + c, k + c) for c in (0, half) for k in range(half) for j in range(k)]
    return np.nanmean([(apart[:, j] * apart[:, k]).sum(-1) for j, k in pairs], axis=0)


# --- differences between heads, to first order ------------------------------------------------------------------------------


def difference_growth(
    x: np.ndarray, flipped: np.ndarray, clean: np.ndarray, heads: int, multiple: float, steps: int,
    record: Sequence[int],
) -> np.ndarray:  # fmt: skip
    r"""Predicted growth of the differences between heads' class-mean logits, rms over starts: (len(record), classes), no fitted number.

    x, flipped, clean: of the classes, (classes,). The mean-field map with matched steps beta d/n = `multiple` and its linearisation, from
    starts whose differences have variances (in units of $\omega^2$, up to a common factor) $\rho^2/d$ for P, $1/|C|$ for the mean
    $q_c$, $1/|N|$ for $q_n$, and $H^2/16$ of these for $\hat V$, $\hat t_c$, $\hat t_n$.
    """
    x, nu, clean = np.asarray(x, float), np.asarray(flipped) / (1 - np.asarray(flipped)), np.asarray(clean, float)
    noisy = np.divide(1.0, nu * clean, out=np.zeros_like(x), where=nu > 0)
    variance = np.stack([x / clean, 1 / clean, noisy])  # of P (rho^2 / d = x / |C|), q_c, q_n
    variance = np.concatenate([heads**2 / 16 * variance, variance])  # V, t_c, t_n, P, q_c, q_n
    state = np.zeros((6, len(x)))
    tangent = np.sqrt(variance)[:, None] * np.eye(6)[:, :, None]  # columns: one per independent start
    found, first = [], None
    for step in range(steps + 1):
        logit = ((tangent[3] - tangent[4]) ** 2).sum(0)
        first = logit if first is None else first
        if step in set(record):
            found.append(np.sqrt(logit / first))
        V, t_c, t_n, P, q_c, q_n = state
        dV, dt_c, dt_n, dP, dq_c, dq_n = tangent
        s_c, s_n = _sigmoid(P - q_c), _sigmoid(P - q_n)
        g_c, g_n = _sigmoid(-(s_c * V + (1 - s_c) * t_c)), _sigmoid(s_n * V - (1 - s_n) * t_n)
        k_c, k_n = s_c * (1 - s_c), s_n * (1 - s_n)
        ds_c, ds_n = k_c * (dP - dq_c), k_n * (dP - dq_n)
        A_c, A_n = g_c * k_c * (V - t_c), g_n * k_n * (V + t_n)
        dA_c = g_c * (k_c * (dV - dt_c) + (1 - 2 * s_c) * (V - t_c) * ds_c)
        dA_n = g_n * (k_n * (dV + dt_n) + (1 - 2 * s_n) * (V + t_n) * ds_n)
        rates = np.stack(
            [x * (g_c * s_c - nu * g_n * s_n), g_c * (1 - s_c), g_n * (1 - s_n), x * (A_c - nu * A_n), -A_c, A_n]
        )
        moves = np.stack(
            [x * (g_c * ds_c - nu * g_n * ds_n), -g_c * ds_c, -g_n * ds_n, x * (dA_c - nu * dA_n), -dA_c, dA_n]
        )
        state, tangent = state + multiple * rates, tangent + multiple * moves
    return np.array(found)
