r"""One head with any attention map: its exact error on fresh clean data, down to $10^{-300}$ and far below, and its training.

A fresh point of class k has the logits $P = p\cdot\mu_k$ and $\omega t$, $t \sim N(0,1)$. Given t the weights
$(w_u, w_\xi)(P, \omega t)$ are numbers and the output is Gaussian:

$$ \mathrm{err}_k = E_t\,\Phi\!\left(-\frac{w_uV_k + w_\xi c_kt}{|w_\xi|\,\tau_k}\right), $$

with $V_k, c_k, \tau_k, \omega$ as in `attnlib.single_head.errors`. Where $w_\xi = 0$ the point is right, wrong or undecided (half an error)
by the sign of $w_uV_k$. Maps with exact zeros make the integrand kinked, maps that are not monotone give it several peaks; so nothing is
assumed of it: its highest points are searched on a grid of t, of the logit and of the difference of the logits, and panels are
halved until a polynomial follows each. Source: derived.
"""

import math

import numpy as np
import torch

from attnbook.single_head.long_run import Course, blocks, side_by_side
from attnlib.quadrature import lobatto
from attnlib.randomness import stream
from attnlib.single_head.errors import Estimate, FreshScores, scores_of_fresh_data
from attnlib.single_head.maps import ENTMAX15, HALF_PLUS, HARDMAX, LINEARISED, SIGMOID, SOFTMAX, SPARSEMAX, softmax
from attnlib.single_head.training import train_heads

NORMALISED = (softmax(0.5), SPARSEMAX, ENTMAX15, SOFTMAX, LINEARISED, softmax(2.0), HARDMAX)  # by slope at zero
UNNORMALISED = (SIGMOID, HALF_PLUS)
MAPS = (*NORMALISED, *UNNORMALISED)
MOVING = tuple(m for m in NORMALISED if m.slope(2) > 0)

_PEAKS = 3  # highest local maxima of the coarse search that are followed
_ZOOMS = 11  # each narrows a peak's bracket eightfold
_NODES = 16
_HALVINGS = 45
_DROP = 45.0  # e^-45 is below the rounding of the peak: nothing beyond is integrated
_TOLERANCE = 1e-11
_ROUNDINGS = 16
_BLOCK = 64  # pairs of run and class at once


# --- training --------------------------------------------------------------------------------------------------------------


def one_head_start(sample, size):
    """v_0, p_0 (R, 1, m) of expected norm `size`, from a sample drawn with two start vectors."""
    scale = size / sample.law.d**0.5
    return scale * sample.start_directions[:, :1], scale * sample.start_directions[:, 1:]


def map_courses(laws, attention_map, step_size, steps, *, record, draws=10, seed=0, start_size=0.0):
    """Gradient descent on several laws of one n and d, the same draws of labels and noise for each, as one batch: a `Course` of each.

    Of a course, `attention_clean` and `attention_noisy` are mean weights of the signal token.
    start_size: norm of Gaussian v_0 and p_0 (zero: from zero).
    """
    samples, batch = side_by_side(laws, draws, seed, same=True, start_vectors=2 if start_size else 0)
    start = one_head_start(batch, start_size) if start_size else None
    heads = train_heads(batch, step_size, steps, attention_map=attention_map, record=record, start=start)
    path, courses = heads.single(), []
    for sample, block in zip(samples, blocks(samples), strict=True):
        errors = log10_map_errors(path.v[:, block], path.p[:, block], sample, attention_map)
        kept = (path.train_accuracy, path.attention_clean, path.attention_noisy)
        kept = (part[:, block].numpy() for part in kept)
        courses.append(Course(np.array(path.steps), errors.numpy(), *kept, sample.noisy.sum(1).numpy()))
    return courses


# --- exact error -----------------------------------------------------------------------------------------------------------


def log10_map_error(v, p, sample, attention_map):
    """log10 of the clean error of one head with `attention_map`, T = 2: (R,); -inf where it is 0.

    v, p: (R, m) in the coordinates of `sample`, the training set they come from. Relative error of the error itself about 1e-10.
    """
    return log10_map_errors(v[None], p[None], sample, attention_map)[0]


def log10_map_errors(v, p, sample, attention_map):
    """The same at S moments of a training at once, which is faster: v, p (S, R, m), the result (S, R)."""
    each = [scores_of_fresh_data(*head, sample) for head in zip(v, p, strict=True)]
    scores = FreshScores(*(torch.stack(parts) for parts in zip(*(vars(one).values() for one in each), strict=True)))
    return log10_map_error_of_scores(scores, attention_map, class_probability=sample.law.class_probability)


def log10_map_error_of_scores(scores, attention_map, *, per_class=False, class_probability=0.5):
    """The integral itself, for given laws of the fresh scores: log10 of the clean error (R,), or (R, 2) with `per_class`."""
    parts = (scores.logit, scores.value, scores.omega, scores.along, scores.tau)
    rows = [part.reshape(-1).to(torch.float64).split(_BLOCK) for part in parts]
    log_error = torch.cat([_log_errors(list(block), attention_map) for block in zip(*rows, strict=True)])
    log_error = log_error.view(scores.value.shape)
    if not per_class:
        shares = log_error.new_tensor([class_probability, 1 - class_probability])
        log_error = torch.logsumexp(log_error + shares.log(), -1)
    return log_error / math.log(10)


def map_error_conditioned(v, p, sample, attention_map, count):
    r"""Monte Carlo over the fresh logits only, any T and any map: given them f is Gaussian and the error a tail.

    The map must treat tokens alike, or windows alike (all maps of `single_head.maps` do): the signal is put first. With standard
    normals $t_\tau$ the margin is $w_uV + c\sum_\tau w_\tau t_\tau$ and its deviation $\tau|w_\xi|$. Far tails (below about
    1e-6 with some thousand draws) are underestimated by any such average.
    """
    s = scores_of_fresh_data(v, p, sample)
    noise_tokens, estimates = sample.law.tokens - 1, []
    for r in range(sample.runs):
        rng = stream(sample.seed, "test", sample.first_run + r)
        fresh = torch.as_tensor(rng.standard_normal((count, 1, noise_tokens))).to(v).expand(-1, 2, -1)  # both classes
        logits = torch.cat([s.logit[r].expand(count, 2).unsqueeze(-1), s.omega[r].unsqueeze(-1) * fresh], -1)
        weights = attention_map.weights(logits)
        margin = weights[..., 0] * s.value[r] + s.along[r] * (weights[..., 1:] * fresh).sum(-1)
        spread = s.tau[r] * weights[..., 1:].norm(dim=-1)
        ratio = torch.where(spread > 0, margin / spread, margin.sign() * torch.inf)
        tail = torch.special.ndtr(-torch.where((spread > 0) | (margin != 0), ratio, 0.0))
        estimates.append(tail @ tail.new_tensor([sample.law.class_probability, 1 - sample.law.class_probability]))
    tails = torch.stack(estimates)
    return Estimate(tails.mean(-1), tails.std(-1) / math.sqrt(count))


# --- the integral ----------------------------------------------------------------------------------------------------------


def _log_density(t, parameters, attention_map):
    """h(t) = log Phi(-margin / spread) - t^2 / 2, the log of the integrand without the Gaussian's constant. t: (K, ...)."""
    logit, value, omega, along, tau = (part.view(-1, *[1] * (t.ndim - 1)) for part in parameters)
    weights = attention_map.weights(torch.stack([logit.expand_as(t), omega * t], -1))
    signal, noise = weights.unbind(-1)
    margin, spread = signal * value + noise * along * t, noise.abs() * tau
    ratio = torch.where(spread > 0, margin / spread, margin.sign() * torch.inf)
    ratio = torch.where((spread > 0) | (margin != 0), ratio, 0.0)  # an output of exactly zero is half an error
    return torch.special.log_ndtr(-ratio) - t.square() / 2


def _search_points(parameters):
    """(K, points), sorted: where the integrand may peak, on the scales of t, of the noise logit and of the difference of logits."""
    logit, _, omega, _, _ = (part[:, None] for part in parameters)
    fine, coarse = torch.arange(0.25, 8.1, 0.25), torch.logspace(0.95, 7, 90)
    side = torch.cat([fine, coarse]).to(omega)
    own = torch.cat([-side, side.new_zeros(1), side]).expand(len(omega), -1)
    side = torch.cat([torch.arange(0.25, 6.1, 0.25), torch.logspace(0.8, 4, 24)]).to(omega)
    step = torch.cat([-side, side.new_zeros(1), side])
    length = torch.where(omega > 1e-150, omega, torch.inf)
    points = torch.cat([own, step / length, (logit - step) / length], 1)
    return points.clamp(-1e150, 1e150).sort(1).values


def _peaks(points, parameters, attention_map):
    """Places and heights (K, _PEAKS) of the highest local maxima."""
    height = _log_density(points, parameters, attention_map)
    floor = height.new_full((len(height), 1), -torch.inf)
    around = torch.cat([floor, height, floor], 1)
    local = (height >= around[:, :-2]) & (height >= around[:, 2:])
    best = torch.where(local, height, -torch.inf).topk(_PEAKS, 1).indices
    low = points.gather(1, (best - 1).clamp_min(0))
    high = points.gather(1, (best + 1).clamp_max(points.shape[1] - 1))
    share = torch.linspace(0, 1, 17).to(points)
    place, top = points.gather(1, best), height.gather(1, best)
    for _ in range(_ZOOMS):
        grid = low.unsqueeze(-1) + (high - low).unsqueeze(-1) * share
        values = _log_density(grid, parameters, attention_map)
        found, at = values.max(-1)
        better = found > top
        place = torch.where(better, grid.gather(-1, at.unsqueeze(-1)).squeeze(-1), place)
        top = torch.maximum(top, found)
        step = (high - low) / 8
        low, high = torch.maximum(low, place - step), torch.minimum(high, place + step)
    return place, top


def _log_errors(parameters, attention_map):
    """log err of every pair of run and class, (K,)."""
    places, tops = _peaks(_search_points(parameters), parameters, attention_map)
    peak, first = tops.max(1)
    possible = torch.isfinite(peak)
    if not possible.all():  # no fresh point can be misclassified, or only where the Gaussian underflows as well
        result = torch.full_like(peak, -torch.inf)
        if possible.any():
            result[possible] = _log_errors([part[possible] for part in parameters], attention_map)
        return result
    best = places.gather(1, first.unsqueeze(1))
    places = torch.where(tops > peak.unsqueeze(1) - _DROP, places, best)  # lower peaks carry nothing
    reach = torch.sqrt(2 * (_DROP - peak)).unsqueeze(1)
    logit, omega = parameters[0], parameters[2]
    ladder = 8 * 4.0 ** -torch.arange(13).to(peak)
    ladder = torch.cat([-ladder, ladder.new_zeros(1), ladder])
    even = reach * torch.linspace(-1, 1, 33).to(peak)
    edges = torch.cat([even, (places.unsqueeze(-1) + ladder).flatten(1)], 1)
    edges = torch.maximum(torch.minimum(edges, reach), -reach).sort(1).values
    # A flat list of panels: whose, from where, how long.
    rows = torch.arange(len(peak), device=peak.device).unsqueeze(1).expand_as(edges[:, 1:])
    start, length = edges[:, :-1], edges.diff(dim=1)
    kept = length > 0
    whose, start, length = rows[kept], start[kept], length[kept]
    nodes, weights, last = (torch.as_tensor(part).to(peak) for part in lobatto(_NODES))
    rounding = (
        _ROUNDINGS * torch.finfo(peak.dtype).eps * (1 + peak.abs()) * (1 + logit.abs() + omega * best.squeeze(1).abs())
    )
    tolerance, total, size = rounding.clamp_min(_TOLERANCE), torch.zeros_like(peak), None
    for round_ in range(_HALVINGS + 1):
        t = start.unsqueeze(1) + length.unsqueeze(1) * (1 + nodes) / 2
        height = _log_density(t, [part[whose] for part in parameters], attention_map)
        values = (height - peak[whose].unsqueeze(1)).clamp_max(1.0).exp()
        mass = length / 2 * (values @ weights)
        size = torch.zeros_like(peak).index_add(0, whose, mass) if size is None else size
        rough = length * (values @ last.mT).abs().sum(1)
        split = (rough > tolerance[whose] * size[whose]) & (round_ < _HALVINGS)
        total.index_add_(0, whose[~split], mass[~split])
        if not split.any():
            break
        whose, start, length = whose[split].repeat(2), start[split], length[split] / 2
        start, length = torch.cat([start, start + length]), length.repeat(2)
    return peak + total.log() - math.log(2 * math.pi) / 2
