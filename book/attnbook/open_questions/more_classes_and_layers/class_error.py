r"""Clean error of a K-class head on fresh data: exact between two bounds, sampled inside them.

A fresh point of class k is misread as class c iff $e^{p\cdot\mu_k - p\cdot\xi}\,w\cdot\mu_k + w\cdot\xi < 0$ with $w = v_k - v_c$: the
two-class event, whose probability $e_{kc}$ is an exact one-dimensional integral (`attnlib.single_head.errors`). Hence

$$ \max_c e_{kc} \;\le\; \mathrm{err}_k = P\big(\textstyle\bigcup_c F_{kc}\big) \;\le\; \sum_c e_{kc} , $$

at most a factor K - 1 apart, down to $10^{-300}$ and below. Inside: $\mathrm{err}_k = \left(\sum_c e_{kc}\right) E[1/S]$, where a
class c is drawn with probability proportional to $e_{kc}$, then a point from the law given $F_{kc}$, and S is the number of classes
it is misread as. The average of 1/S lies in [1/(K-1), 1], so few points give a small *relative* error however rare the event is
(the method of Owen, Maximov and Chertkov, arXiv 1710.06965, for unions of half-spaces; here the half-spaces turn with $p\cdot\xi$).
"""

import math
from types import SimpleNamespace

import torch

from attnlib.randomness import stream
from attnlib.single_head.errors import FreshScores, log10_error_of_scores

_GRID = 1001  # points at which the law of p . xi given an error is tabulated


def _fresh_scores(v, p, sample):
    """Laws of all ordered pairs (k, c), c != k, in one row of R K (K-1) entries; noise parts of v (R, K, m) and of p (R, m)."""
    K = sample.law.classes
    units = sample.signals / sample.signals.norm(dim=-1, keepdim=True)
    v_noise = v - (v @ units.mT) @ units
    p_noise = p - torch.einsum("rk,rkm->rm", torch.einsum("rkm,rm->rk", units, p), units)
    omega = p_noise.norm(dim=-1)
    direction = p_noise / omega.clamp_min(1e-300).unsqueeze(-1)
    on_signal = sample.signals @ v.mT  # (R, k, c): v_c . mu_k
    value = on_signal.diagonal(dim1=1, dim2=2).unsqueeze(-1) - on_signal
    along_v = torch.einsum("rcm,rm->rc", v_noise, direction)
    rest = v_noise - along_v.unsqueeze(-1) * direction.unsqueeze(1)
    along = along_v.unsqueeze(-1) - along_v.unsqueeze(1)
    tau = (rest.unsqueeze(2) - rest.unsqueeze(1)).norm(dim=-1)
    logit = torch.einsum("rkm,rm->rk", sample.signals, p).unsqueeze(-1).expand_as(value)
    pairs = ~torch.eye(K, dtype=torch.bool).expand_as(value)
    parts = (logit, value, omega[:, None, None].expand_as(value), along, tau)
    return FreshScores(*(part[pairs] for part in parts)), rest, direction


def class_error_bounds(v, p, sample):
    """log10 of the exact pair errors e_kc (R, K, K) (-inf on the diagonal), and the bounds max_c and sum_c (R, K).

    v: (R, K, m), p: (R, m), trained on `sample`.
    """
    scores, _, _ = _fresh_scores(v, p, sample)
    two = FreshScores(*(part.unsqueeze(-1).expand(-1, 2).contiguous() for part in vars(scores).values()))
    exact = log10_error_of_scores(two)  # both "classes" of the pair are the same one
    K = sample.law.classes
    pairs = v.new_full((sample.runs, K, K), -torch.inf)
    pairs[~torch.eye(K, dtype=torch.bool).expand_as(pairs)] = exact
    total = torch.logsumexp(pairs * math.log(10), -1) / math.log(10)
    return pairs, pairs.amax(-1), total


def class_error(v, p, sample, count=400):
    """Clean error over all classes of R runs, by `count` points of every class inside the exact bounds; with K = 2 these coincide.

    All (R,): the error and its bounds in log10, and the standard error over the error itself.
    """
    K, runs = sample.law.classes, sample.runs
    pairs, low, high = class_error_bounds(v, p, sample)
    mean_low, mean_high = (torch.logsumexp(x * math.log(10), -1) / math.log(10) - math.log10(K) for x in (low, high))
    if K == 2:
        return SimpleNamespace(
            log10_error=mean_high, relative_error=torch.zeros_like(mean_high), log10_low=mean_low, log10_high=mean_high
        )
    scores, rest, _ = _fresh_scores(v, p, sample)
    full = [_square(part, runs, K) for part in vars(scores).values()]
    ratio, spread = v.new_zeros(runs, K), v.new_zeros(runs, K)
    for r in range(runs):
        rng = stream(sample.seed, "resampling", sample.first_run + r)
        for k in range(K):
            own = [part[r, k] for part in full]
            inverse = 1 / _violated(k, pairs[r, k], own, rest[r], count, rng)
            ratio[r, k], spread[r, k] = inverse.mean(), inverse.std() / math.sqrt(count)
    weight = torch.exp((high - high.amax(-1, keepdim=True)) * math.log(10))
    share = (weight * ratio).sum(-1)
    error = torch.sqrt((weight * spread).square().sum(-1)) / share
    top = high.amax(-1) - math.log10(K)
    return SimpleNamespace(
        log10_error=top + share.log10(), relative_error=error, log10_low=mean_low, log10_high=mean_high
    )


def _square(part, runs, K):
    full = part.new_zeros(runs, K, K)
    full[~torch.eye(K, dtype=torch.bool).expand_as(full)] = part
    return full


def _violated(k, log10_pairs, scores, rest, count, rng):
    """S for `count` points drawn from the law given that one class, drawn in proportion to its e_kc, beats class k."""
    logit, value, omega, along, tau = scores  # each (K,), entry k unused
    weight = torch.exp((log10_pairs - log10_pairs.amax()) * math.log(10))
    uniforms = torch.as_tensor(rng.random((3, count)), dtype=rest.dtype)
    picked = torch.searchsorted(weight.cumsum(0) / weight.sum(), uniforms[0]).clamp_max(len(weight) - 1)
    # t = p . xi / omega given the event: density proportional to phi(t) Phi(-h_c(t)), tabulated and inverted.
    reach = 12 + math.sqrt(2 * math.log(10) * max(0.0, -log10_pairs.amax().item()))
    grid = torch.linspace(-reach, reach, _GRID, dtype=rest.dtype)
    others = torch.arange(len(weight)) != k
    height = (torch.exp(logit[:, None] - omega[:, None] * grid) * value[:, None] + along[:, None] * grid) / tau[
        :, None
    ].clamp_min(1e-300)
    log_density = -0.5 * grid**2 + torch.special.log_ndtr(-height)
    density = torch.exp(log_density - log_density.amax(-1, keepdim=True))
    cumulative = torch.cat([density.new_zeros(len(weight), 1), (density[:, 1:] + density[:, :-1]).cumsum(-1)], -1)
    cumulative = cumulative / cumulative[:, -1:]
    level = uniforms[1].unsqueeze(-1)
    rows = cumulative[picked]
    right = torch.searchsorted(rows, level).clamp(1, _GRID - 1)
    at_right, at_left = rows.gather(1, right), rows.gather(1, right - 1)
    part = ((level - at_left) / (at_right - at_left).clamp_min(1e-300)).clamp(0, 1)
    t = (grid[right - 1] + part * (grid[1] - grid[0])).squeeze(-1)
    # Given t, w_c . xi / tau is a standard normal below -h: invert its tail, keep the rest of xi as it is.
    h = (torch.exp(logit[picked] - omega[picked] * t) * value[picked] + along[picked] * t) / tau[picked]
    z = _normal_below(-h, uniforms[2])
    differences = rest[k] - rest  # (K, m): w_c off the direction of p
    normals = torch.as_tensor(rng.standard_normal((count, len(weight))), dtype=rest.dtype)
    # Only w_c . xi matters: a Gaussian vector with covariance differences @ differences.T, moved along the picked one.
    covariance = differences @ differences.mT
    values, vectors = torch.linalg.eigh(covariance)
    # The symmetric root: eigenvectors alone have a sign that each processor's library chooses, and would draw other points.
    root = (vectors * values.clamp_min(0).sqrt()) @ vectors.mT
    noise = normals @ root  # (count, K)
    own = noise.gather(1, picked.unsqueeze(-1)).squeeze(-1)
    noise = noise + covariance[picked] * ((z * tau[picked] - own) / tau[picked] ** 2).unsqueeze(-1)
    margin = torch.exp(logit - omega * t[:, None]) * value + along * t[:, None] + noise
    beaten = (margin < 0) & others
    beaten[torch.arange(count), picked] = True  # by construction; rounding must not undo it
    return beaten.sum(-1).to(rest.dtype)


def _normal_below(top, uniform):
    """A standard normal given that it lies below `top`: solves log Phi(z) = log Phi(top) + log u by Newton steps (concave)."""
    target = torch.special.log_ndtr(top) + uniform.clamp_min(1e-300).log()
    z = torch.where(target < -5, -torch.sqrt(-2 * target), torch.minimum(top, torch.zeros_like(top)))
    for _ in range(30):
        log_cdf = torch.special.log_ndtr(z)
        slope = torch.exp(-0.5 * z**2 - 0.5 * math.log(2 * math.pi) - log_cdf)
        z = z - (log_cdf - target) / slope.clamp_min(1e-12)
        z = torch.minimum(z, top)
    return z
