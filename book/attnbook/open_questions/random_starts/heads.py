r"""Heads that start apart: the law with several signal directions, random starts, and heads that are products of matrices.

**The law.** Class +1 owns the orthogonal directions $\mu_1, \dots, \mu_D$ of length $\rho$, class -1 the next D. A sample of either class
holds direction j of its class with probability `shares[j]`; noise avoids all 2D directions, labels are flipped as before:

$$ \tilde y = \pm 1, \quad j \sim \text{shares}, \quad u = \mu_{\tilde y, j}, \quad
   \xi \sim N\Big(0,\; I_d - \tfrac1{\rho^2}\sum_k \mu_k\mu_k^\top\Big), \quad y = -\tilde y \text{ with probability } \eta. $$

Reduced coordinates m = 2D + n + start vectors: exact in law for every training rule that commutes with rotations (the argument
of `coordinates`, which does not count signals). Source: own extension of the setting of arXiv 2410.07746, which has D = 1.

**Random starts.**
Starts: $p_h^0$ Gaussian of expected norm $\omega$, $v_h^0$ of norm $\omega/4$, independent. Steps *matched*: $\beta/H$ for the v_h and
$H\beta$ for the p_h, so that from zero the sum of heads is one head with step $\beta$. With $\hat V_h = H\,s_k v_h\cdot\mu_k$ and the
likes, the mean field of a class is, per head, the single head's map with slopes g of the *mean* margin over heads. Differences between
heads then obey, to first order, the map linearised along the common path with g held fixed (`difference_growth`): with
$\delta s = s(1-s)(\delta P - \delta q)$,

$$ \delta V' = x(g_c\delta s_c - \nu g_n\delta s_n),\quad \delta t_c' = -g_c\delta s_c,\quad \delta t_n' = -g_n\delta s_n,\quad
   \delta P' = rx(\delta A_c - \nu\,\delta A_n),\quad \delta q_c' = -r\,\delta A_c,\quad \delta q_n' = r\,\delta A_n, $$

$\delta A_c = g_cs_c(1-s_c)\,[\delta V - \delta t_c + (1-2s_c)(V-t_c)(\delta P-\delta q_c)]$ and $\delta A_n$ alike with $V + t_n$. Source:
derived. Only a class's own numbers enter: directions, like classes, never see each other's heads.

**Products of matrices.** The single head has two vectors. With matrices and a fixed query token q, head h of width k reads

$$ p_h = W_K^{(h)} W_Q^{(h)\top} q = K_h^\top a_h, \qquad v_h = W_V^{(h)\top} w_h = V_h^\top w_h, \qquad
   f = \sum_h \sum_t \mathrm{softmax}(X p_h)_t\, v_h\cdot x_t, $$

$K_h, V_h$ of shape (k, m), $a_h = W_Q^\top q$ and $w_h$ of shape (k). Gradients by the chain rule: $\nabla_{K} = a\,(\nabla_p L)^\top$,
$\nabla_a = K \nabla_p L$, and the same for $V$, $w$. A fixed a (or w) is a plain linear map; with k = 1, a = w = 1 the head is the
single head itself. Everything commutes with rotations of the tokens. Source: derived; proofs in the theory chapter of Part IV.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch

from attnbook.open_questions.random_starts.error import log10_head_error
from attnbook.single_head.flow import sigmoids as sigma
from attnbook.single_head.long_run import blocks, side_by_side
from attnlib.gaussian import bartlett_rows
from attnlib.randomness import stream
from attnlib.single_head.law import Sample, SignalNoiseLaw
from attnlib.single_head.model import evaluate, gradients_at, loss
from attnlib.single_head.training import Trajectory, train_heads

# --- several directions ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ManyDirectionsLaw(SignalNoiseLaw):
    """D directions per class, drawn with probabilities `shares`. Two tokens."""

    shares: tuple[float, ...] = (0.5, 0.5)

    @property
    def directions(self):
        """D, signal directions per class."""
        return len(self.shares)

    @property
    def direction_labels(self):
        """True label of each of the 2D directions."""
        return (1.0,) * self.directions + (-1.0,) * self.directions

    @property
    def direction_probabilities(self):
        """How often a fresh sample holds each of the 2D directions."""
        return tuple(0.5 * share for share in self.shares * 2)

    def draw(self, seed, runs=1, *, first_run=0, start_vectors=0):
        """As `SignalNoiseLaw.draw`: `signals` is (R, 2D, m) and `signal_class` runs over 0 ... 2D - 1. Reduced coordinates only."""
        drawn = [self._one(seed, run, start_vectors) for run in range(first_run, first_run + runs)]
        tokens, signals, held, flips, start = (torch.as_tensor(np.stack(part)) for part in zip(*drawn, strict=True))
        labels = torch.tensor(self.direction_labels, dtype=tokens.dtype)[held]
        return Sample(
            law=self, seed=seed, first_run=first_run, tokens=tokens, signals=signals, signal_class=held,
            signal_position=torch.zeros_like(held), true_labels=labels, labels=torch.where(flips, -labels, labels),
            start_directions=start, coordinates="reduced",
        )  # fmt: skip

    def _one(self, seed, run, start_vectors):
        count, n = 2 * self.directions, self.n
        classes, flips = self._labels(seed, run)
        which = stream(seed, "signals", run).choice(self.directions, n, p=self.shares)
        held = classes * self.directions + which
        dimension = self.d - count
        columns = min(n + start_vectors, dimension)
        signals = self.signal_norm * np.eye(count, count + columns)
        tokens = np.zeros((n, 2, count + columns))
        tokens[:, 0] = signals[held]
        tokens[:, 1, count:] = self.noise_std * bartlett_rows(stream(seed, "noise", run), n, dimension, columns=columns)
        start = np.zeros((start_vectors, count + columns))
        if start_vectors:
            rng = stream(seed, "start", run)
            start[:, :count] = rng.standard_normal((start_vectors, count))
            start[:, count:] = bartlett_rows(rng, start_vectors, dimension, first=n, columns=columns)
        return tokens, signals, held, flips, start


# --- random starts ---------------------------------------------------------------------------------------------------------


def random_start(sample, heads, size):
    """(v_0, p_0), both (R, H, m): independent Gaussian vectors of R^d with expected norms size / 4 and size.

    Needs a sample drawn with `start_vectors=2 * heads`.
    """
    scale = size / math.sqrt(sample.law.d)
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

    def at(self, step):
        """Row of a recorded step."""
        return self.steps.index(step)

    @property
    def spread_clean(self):
        """(S, R): largest minus smallest attention of a head, each averaged over clean samples."""
        return np.ptp(self.attention_clean, axis=-1)

    @property
    def class_difference(self):
        """(S, R, K): rms over heads of the class-mean logit's distance from its mean over heads."""
        return self.logit.std(-1)

    @property
    def growth(self):
        """(S, R): `difference` over its value at step 0."""
        return self.difference / self.difference[0]


def random_heads(laws, heads, size, multiple, steps, *, draws, seed=0, record=(), error_steps=()):
    """Train the sum of `heads` randomly started heads, `draws` runs of every law (one n and d) as one batch; law i takes runs i*draws, ...

    multiple: beta d / n; the steps are beta/H for v and H beta for p. record: steps kept beside 0 and the last.
    error_steps: recorded steps at which the fresh clean error is estimated.
    """
    samples, one = side_by_side(laws, draws, seed, start_vectors=2 * heads)
    beta = multiple * laws[0].n / laws[0].d
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


def _logits(sample, p):
    """(S, R, H, n): p_h . (u_i - xi_i), from the vectors: weights near 0 or 1 have lost it."""
    signal = torch.einsum("rkm,srhm->srhk", sample.signals, p)
    held = sample.signal_class[None, :, None].expand(*signal.shape[:3], -1)
    return signal.gather(3, held) - torch.einsum("rnm,srhm->srhn", sample.noise_tokens()[:, :, 0], p)


# --- who takes what --------------------------------------------------------------------------------------------------------


def across_directions(course, step):
    r"""(R,): do heads that lead in one direction trail in another? Mean cosine over pairs of directions of the same class.

    With $D_{hk}$ the class-mean logit of head h on direction k minus its mean over heads, the cosine of $D_{\cdot k}$ and
    $D_{\cdot k'}$. -1: heads divide the directions (two heads, two directions); +1: one head leads everywhere; 0 on average when
    directions are independent, whatever happens inside each: the null model, exact at the start.
    """
    logit = course.logit[course.at(step)]  # (R, K, H)
    apart = logit - logit.mean(-1, keepdims=True)
    apart = apart / np.linalg.norm(apart, axis=-1, keepdims=True)
    half = apart.shape[1] // 2
    pairs = [(j + c, k + c) for c in (0, half) for k in range(half) for j in range(k)]
    return np.nanmean([(apart[:, j] * apart[:, k]).sum(-1) for j, k in pairs], axis=0)


# --- differences between heads, to first order ------------------------------------------------------------------------------


def difference_growth(x, flipped, clean, heads, multiple, steps, record):
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
        s_c, s_n = sigma(P - q_c), sigma(P - q_n)
        g_c, g_n = sigma(-(s_c * V + (1 - s_c) * t_c)), sigma(s_n * V - (1 - s_n) * t_n)
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


# --- products of matrices --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Factors:
    """The trained matrices of H heads of width k in R runs."""

    keys: torch.Tensor  # K, (R, H, k, m)
    query: torch.Tensor  # a = W_Q'q, (R, H, k)
    values: torch.Tensor  # V, (R, H, k, m)
    output: torch.Tensor  # w, (R, H, k)

    @property
    def p(self):
        """(R, H, m): what multiplies the tokens in the logits."""
        return torch.einsum("rhk,rhkm->rhm", self.query, self.keys)

    @property
    def v(self):
        """(R, H, m): what multiplies the selected token."""
        return torch.einsum("rhk,rhkm->rhm", self.output, self.values)

    @property
    def attention_size(self):
        """E = |K|^2 + |a|^2, (R, H); |p| <= E/2."""
        return self.keys.square().sum((-1, -2)) + self.query.square().sum(-1)

    @property
    def second_bound(self):
        """|K K' - a a'|^(1/2) in the spectral norm, (R, H): gradient flow conserves it, and sigma_2(K) never exceeds it."""
        balance = self.keys @ self.keys.mT - self.query.unsqueeze(-1) * self.query.unsqueeze(-2)
        return torch.linalg.matrix_norm(balance, ord=2).sqrt()


def gaussian_factors(sample, heads, width, size):
    """Independent Gaussian factors, each of root mean square norm `size`, of a sample drawn with `start_vectors >= 2 * heads * width`."""
    need = 2 * heads * width
    shape = (sample.runs, 2, heads, width, sample.tokens.shape[-1])
    matrices = sample.start_directions[:, :need].reshape(shape) / math.sqrt(sample.law.d * width)
    # The role "search" keeps the small vectors apart from the start directions, which use "start".
    runs = range(sample.first_run, sample.first_run + sample.runs)
    drawn = torch.stack(
        [torch.as_tensor(stream(sample.seed, "search", run).standard_normal((2, heads, width))) for run in runs]
    )
    vectors = drawn.to(sample.tokens) / math.sqrt(width)
    return Factors(size * matrices[:, 0], size * vectors[:, 0], size * matrices[:, 1], size * vectors[:, 1])


def direct_heads(p, v):
    """Heads with plain vectors p_h, v_h (R, H, m): width one, a = w = 1, to be kept fixed."""
    one = p.new_ones((*p.shape[:2], 1))
    return Factors(p.unsqueeze(2), one, v.unsqueeze(2), one)


def _chain(at, grad_p, grad_v):
    return Factors(
        at.query.unsqueeze(-1) * grad_p.unsqueeze(2),
        torch.einsum("rhkm,rhm->rhk", at.keys, grad_p),
        at.output.unsqueeze(-1) * grad_v.unsqueeze(2),
        torch.einsum("rhkm,rhm->rhk", at.values, grad_v),
    )


@dataclass(frozen=True)
class FactorTrajectory(Trajectory):
    """Heads, and what their factors did. `drive` is the sum of log(1 + beta |grad_p L|) over the steps before."""

    drive: torch.Tensor  # (S, R, H)
    attention_size: torch.Tensor  # E, (S, R, H)
    singular_values: torch.Tensor  # of K, descending, (S, R, H, min(k, m))
    second_bound: torch.Tensor  # |K K' - a a'|^(1/2) at the start, (R, H)
    end: Factors


def train_factors(
    sample, start, step_size, steps, *, attention_step_size=None, train_query=True, train_output=True, record=None
):
    """Gradient descent on all factors (or on K and V alone), R runs at once, any number of tokens.

    step_size: beta of V and w; attention_step_size: of K and a, the same when left out, 0 freezes them. `train_query=False` keeps a,
    `train_output=False` keeps w. record: steps to keep, all when left out; the last one always.
    """
    own = step_size if attention_step_size is None else attention_step_size
    kept = tuple(range(steps + 1)) if record is None else tuple(sorted({*record, steps}))
    tokens, labels, runs = sample.tokens, sample.labels, sample.runs
    now, rows = start, []
    drive = tokens.new_zeros(runs, start.keys.shape[1])
    for step in range(steps + 1):
        p, v = now.p, now.v
        out = evaluate(tokens, v, p)
        grad_v, grad_p = gradients_at(out, tokens, labels, v, p)
        if step in kept:
            weight = sample.at_signal(out.attention.movedim(1, 0)).movedim(0, 1)
            spectrum = torch.linalg.svdvals(now.keys)
            measured = loss(out.output, labels), labels * out.output, weight, drive, now.attention_size, spectrum
            rows.append((v, p, *measured))
        if step < steps:
            slope = _chain(now, grad_p, grad_v)
            drive = drive + torch.log1p(own * grad_p.norm(dim=-1))
            now = Factors(
                now.keys - own * slope.keys,
                now.query - own * slope.query if train_query else now.query,
                now.values - step_size * slope.values,
                now.output - step_size * slope.output if train_output else now.output,
            )
    stacked = [torch.stack(part) for part in zip(*rows, strict=True)]
    return FactorTrajectory(kept, *stacked[:5], sample.noisy, *stacked[5:], start.second_bound, now)
