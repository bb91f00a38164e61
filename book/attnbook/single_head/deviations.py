r"""How far two steps at finite d can be from mean field: the theorem's bounds, with every constant.

Letters as in the theory chapter "Two steps in finite dimension". Given the labels, with $u = \log(14n/\delta)$, all bounds hold
together with probability at least $1 - \delta/2$. Last axes: the class k, then the kind of sample (clean, flipped).
"""

import math
from dataclasses import dataclass
from types import SimpleNamespace

import torch

from attnbook.single_head.error_bound import log10_error_bound
from attnbook.single_head.mean_field import MeanField, mean_field
from attnlib.single_head.errors import FreshScores, log10_error_of_scores, scores_of_fresh_data
from attnlib.single_head.law import SignalNoiseLaw
from attnlib.single_head.training import gradient_descent

_KIND = torch.tensor([1.0, -1.0], dtype=torch.float64)  # zeta of clean and of flipped samples


@dataclass(frozen=True)
class Bounds:
    """R sets of label counts. Middles are mean field; `_room` is how far the trained quantity may be from it."""

    field: MeanField
    clean: torch.Tensor  # (R, 2), the label counts that it was made for
    noisy: torch.Tensor  # (R, 2)
    norm: float  # nu: | |xi_i|^2/d - 1 |
    score: float  # epsilon: |epsilon_i| of C7
    rms: float  # epsilon_2: root mean square of all epsilon_i
    cross_v: torch.Tensor  # (R,), chi of the weights 1 + 2 g: |sum of j != i| / d
    cross_p: torch.Tensor  # (R,), chi of the weights g gamma
    value: torch.Tensor  # (R, 2), V_k
    value_room: torch.Tensor
    query: torch.Tensor  # (R, 2), P_k
    query_room: torch.Tensor
    noise_low: torch.Tensor  # (R, 2, 2), t_i
    noise_high: torch.Tensor
    logit: torch.Tensor  # (R, 2, 2), p_2 . (u_i - xi_i)
    logit_room: torch.Tensor
    v_norm: torch.Tensor  # (R, 2), |Pi v_2|: at least, at most
    p_norm: torch.Tensor  # (R, 2), |Pi p_2|: at least, at most

    @property
    def flipped_room(self):
        """By how much the worst flipped sample's logit stays below log(t/V): (R, 2), inf where a class has none."""
        highest = (self.logit + self.logit_room)[..., 1]
        lowest = torch.log(self.noise_low[..., 1].clamp_min(1e-300) / (self.value + self.value_room).clamp_min(1e-300))
        return torch.where(self.noisy > 0, lowest - highest, torch.inf)

    @property
    def certified(self):
        """(R,): do the bounds alone say that every training label is fitted?"""
        present = torch.stack([self.clean, self.noisy], -1) > 0
        scores = (self.noise_low > 0) | ~present
        signal = self.value > self.value_room
        return scores.all(2).all(1) & signal.all(1) & (self.flipped_room > 0).all(1)

    @property
    def log10_error(self):
        """C15 at the worst values: log10 of what the clean error is at most, (R, 2); nan where V_k may be negative."""
        return self._bound_at(-1, 1)

    @property
    def log10_bound_low(self):
        """C15 at the best values, (R, 2): log10 of the least that the bound of C15 itself can be."""
        return self._bound_at(1, 0)

    def _bound_at(self, side, norm):
        value = self.value + side * self.value_room
        omega, tau = (x[:, norm, None].expand_as(value) for x in (self.p_norm, self.v_norm))
        scores = FreshScores(self.query + side * self.query_room, value, omega, torch.zeros_like(value), tau)
        return log10_error_bound(scores)


def log_term(n, delta):
    """u = log(14 n / delta): 6n + 5 <= 7n events of probability e^-u (n >= 5) cost delta/2."""
    return math.log(14 * n / delta)


def deviation_bounds(law, step_size, clean, noisy, *, delta=0.01, triangle=False, cauchy_schwarz=False):
    """Bounds on two steps from zero, given the label counts.

    Args:
        law: the paper's, two tokens, noise of variance 1.
        step_size: beta > 0.
        clean, noisy: |C_k| and |N_k|, float64 (R, 2).
        delta: twice the probability with which they may fail, given the labels.
        triangle: for comparison, bound every sum over other samples by the sum of its absolute values, with the factor 1.1 of C2:
            the cross terms, the scores, and their mean square.
        cauchy_schwarz: for comparison, bound the cross terms alone by Cauchy and Schwarz with the mean square of the scores.
    """
    field = mean_field(law, step_size, clean, noisy)
    n, d, u, a = law.n, law.d, log_term(law.n, delta), field.a
    unit = a * law.snr**2  # h: what one sample gives to its class's signal
    counts = torch.stack([clean, noisy], -1)
    norm = 2 * math.sqrt(u / d) + 2 * u / d + 2 / d
    row = math.sqrt(n) + math.sqrt(2 * u)
    spectral = math.sqrt(d) + row
    narrow = max(math.sqrt(d - 2) - row, 0.0)  # least and largest singular value of the noise
    overlap = 1.1 * math.sqrt(2 * d * math.log(n**2 / delta)) / d
    score = norm + ((n - 1) * overlap if triangle else math.sqrt(2 * (n - 1) * (1 + norm) * u / d))
    rms = score if triangle else math.sqrt(norm**2 + (1 + norm) * row**2 / d)

    pull = field.b.unsqueeze(-1) * _KIND  # zeta b, (R, 2, 2)
    high, low = (torch.sigmoid(-(pull + a * (1 + x)) / 2) for x in (-score, score))  # of the slopes g
    preferences = [pull - a * (1 + x) for x in (-score, score)]
    slope = torch.stack([field.slope_clean, field.slope_noisy], -1)
    phi, psi = 1 + 2 * slope, slope * torch.stack([field.preference_clean, field.preference_noisy], -1)
    turn = torch.stack([(1 + (1 - g) * x / 2).abs() for g in (high, low) for x in preferences]).amax(0)
    steep_phi, steep_psi = a * (high * (1 - low)).clamp_max(0.25), a * high * turn
    top_phi = phi + steep_phi * score
    top_psi = high * torch.maximum(*(x.abs() for x in preferences))

    def size(weights):
        return (counts * weights**2).sum((1, 2)).sqrt()

    def cross(middle, top, steep):
        if triangle:
            return (counts * top).sum((1, 2)) * overlap
        steepest = torch.where(counts > 0, steep, 0).amax((1, 2))
        if cauchy_schwarz:
            return math.sqrt((1 + norm) / d) * (size(middle) * math.sqrt(2 * u) + steepest * math.sqrt(n) * rms * row)
        return size(top) * spectral * math.sqrt(2 * u) / d + steepest * (1 + norm) * row**2 / d

    def spread(steep):  # of a sum over one class, by Cauchy and Schwarz
        return unit * rms * math.sqrt(n) * (counts * steep**2).sum(2).sqrt()

    cross_v, cross_p = cross(phi, top_phi, steep_phi), cross(psi, top_psi, steep_psi)
    apart_v, apart_p = cross_v.reshape(-1, 1, 1), cross_p.reshape(-1, 1, 1)
    query_room = spread(steep_psi)
    return Bounds(
        field=field, clean=clean, noisy=noisy, norm=norm, score=score, rms=rms, cross_v=cross_v, cross_p=cross_p,
        value=field.v_signal, value_room=spread(steep_phi), query=field.p_signal, query_room=query_room,
        noise_low=a * ((phi - steep_phi * score) * (1 - norm) - apart_v),
        noise_high=a * ((phi + steep_phi * score) * (1 + norm) + apart_v),
        logit=field.p_signal.unsqueeze(-1) + a * psi,
        logit_room=query_room.unsqueeze(-1) + a * (steep_psi * score + top_psi * norm + apart_p),
        v_norm=a / d * torch.stack([narrow * size((phi - steep_phi * score).clamp_min(1)), spectral * size(top_phi)], 1),
        p_norm=a / d * torch.stack([narrow * size((psi.abs() - steep_psi * score).clamp_min(0)), spectral * size(top_psi)], 1),
    )  # fmt: skip


def smallest_certified_dimension(law, step_size, *, delta=0.01, **how):
    """The least d at which the bounds certify two steps at expected label counts; n SNR^2 and beta d/n are those of `law`.

    how: `triangle` or `cauchy_schwarz` of `deviation_bounds`.

    By bisection in log d, to a relative 10^-3. Raises ValueError where 10^13 dimensions are not enough.
    """
    half = torch.full((1, 2), law.n / 2, dtype=torch.float64)
    clean, noisy = (1 - law.label_noise) * half, law.label_noise * half
    level, multiple = law.snr, step_size * law.d

    def enough(d):
        own = SignalNoiseLaw(law.n, d, level * math.sqrt(d), law.label_noise)
        bounds = deviation_bounds(own, multiple / d, clean, noisy, delta=delta, **how)
        return bool(bounds.certified.item())

    low, high = math.log(law.n), math.log(1e13)
    if not enough(round(math.exp(high))):
        raise ValueError(
            f"law must be one that some d certifies; got {law!r}: a margin predicted for orthogonal noise is not positive"
        )
    while high - low > 1e-3:
        middle = (low + high) / 2
        low, high = (low, middle) if enough(round(math.exp(middle))) else (middle, high)
    return math.exp(high)


# --- trained heads beside the bounds -------------------------------------------------------------------------------------------


def two_step_deviations(sample, step_size):
    r"""What two steps from zero make of each draw, from the Gram matrix of the noise: no vectors, no training loop.

    Letters of the theory chapter, (R, n) but for value and query, (R, 2), and the two norms, (R,). Cross terms leave out j = i and are
    divided by d: `cross_v` is $y_i\sum_j(1+2g_j)y_j\,\xi_j\cdot\xi_i$, `cross_p` $\sum_jg_j\gamma_j\,\xi_j\cdot\xi_i$; in `frozen_v` every
    weight has its mean-field value.
    """
    law, labels, classes = sample.law, sample.labels, sample.signal_class
    noise = sample.noise_tokens()[:, :, 0]
    gram = noise @ noise.mT / law.d
    own = torch.diagonal(gram, dim1=1, dim2=2)
    apart = gram - torch.diag_embed(own)
    clean, noisy = sample.counts()
    a = step_size * law.d / (4 * law.n)
    unit = a * law.snr**2
    kind = labels * sample.true_labels
    pull = kind * unit * (clean - noisy).gather(1, classes)

    def across(weights):
        return torch.einsum("rij,rj->ri", apart, weights)

    score = own - 1 + labels * across(labels)
    slopes = torch.sigmoid(-(pull + a * (1 + score)) / 2)
    phi, psi = 1 + 2 * slopes, slopes * (pull - a * (1 + score))
    frozen = 1 + 2 * torch.sigmoid(-(pull + a) / 2)
    cross_v, cross_p = labels * across(labels * phi), across(psi)
    member = torch.stack([classes == 0, classes == 1], 1).to(gram.dtype)
    value, query = (unit * torch.einsum("rki,ri->rk", member, x) for x in (kind * phi, psi))
    t, logit = a * (phi * own + cross_v), query.gather(1, classes) + a * (psi * own + cross_p)
    weight = torch.sigmoid(logit)

    def length(weights):
        return a / law.d**0.5 * torch.einsum("ri,rij,rj->r", weights, gram, weights).sqrt()

    return SimpleNamespace(
        norm=own - 1, score=score, cross_v=cross_v, cross_p=cross_p, frozen_v=labels * across(labels * frozen), slopes=slopes,
        value=value, query=query, noise=t, logit=logit, margins=kind * weight * value.gather(1, classes) + (1 - weight) * t,
        v_norm=length(labels * phi), p_norm=length(psi),
    )  # fmt: skip


def at_dimension(law, step_size, d, *, n=None):
    """The same n SNR^2, beta d/n and label noise in d dimensions (rounded up), with n samples: law and step size."""
    whole, size = math.ceil(d), law.n if n is None else n
    norm = law.snr * math.sqrt(law.n / size) * math.sqrt(whole)
    return SignalNoiseLaw(size, whole, norm, law.label_noise), step_size * law.d / law.n * size / whole


def drawn(law, step_size, draws, seed, delta):
    """R training sets after two steps of training: `found`, the scores of fresh data and the exact `log10_error` (R, 2); beside them the
    bounds for their label counts."""
    sample = law.draw(seed, draws)
    path = gradient_descent(sample, step_size, 2, record=[2])
    scores = scores_of_fresh_data(path.v[-1], path.p[-1], sample)
    return SimpleNamespace(
        sample=sample, step_size=step_size, delta=delta, log_term=log_term(law.n, delta), scores=scores,
        bounds=deviation_bounds(law, step_size, *sample.counts(), delta=delta),
        found=two_step_deviations(sample, step_size),
        log10_error=log10_error_of_scores(scores, per_class=True),
    )  # fmt: skip
