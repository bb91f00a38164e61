r"""How fast the Gaussian error formula becomes exact for other entries: a gap of order 1/d with its constant, or slower.

Along $n = d/20$ at fixed $n\,\mathrm{SNR}^2$ the error itself stays where it is. Source of the expansion: derived. With Student t
entries of $\nu < 4$ degrees of freedom the fourth moment is infinite: one entry alone reaches a share of the whole variance with
probability of order $d\cdot d^{-\nu/2}$, so the gap falls only like $d^{1-\nu/2}$.
"""

import math
from types import SimpleNamespace

import torch

from attnbook.open_questions.noise import NoiseLaw, scores_at_scale_one, scores_from, seen_by_noise, strength_to_norm
from attnlib.randomness import stream
from attnlib.single_head.closed_form import two_steps
from attnlib.single_head.errors import log10_error_of_scores


def universality_gaps(entries, dimensions, *, draws=10, points=2000, seed=0):
    r"""Gap between the Gaussian formula and the truth along n = d/20 at n SNR^2 = 1/2 and eta = 0.1, two steps of 5n/d.

    For scale mixtures $z_j = \sqrt{w_j} g_j$ the error is $E_w[\mathrm{err}(S_w)]$ with
    $S_w = \sum_j w_j (\tilde v_j^2, \tilde v_j\tilde p_j, \tilde p_j^2)$, and the formula is $\mathrm{err}(E S_w)$. To second order the
    gap is $\tfrac12 \mathrm{tr}(H\,\mathrm{Cov} S_w)$, $H$ the Hessian of err in S and
    $\mathrm{Cov} S_w = \mathrm{Var}(w)\sum_j(\dots)(\dots)^\top$, $\mathrm{Var}(w) = (E z^4 - 3)/3$: of order 1/d.

    One row for each dimension: per draw (R,) the formula, the truth (averaged over `points` draws of w; Gaussian given them) and the
    `expansion` of truth - formula (nan for infinite fourth moments); the mean `gap` truth - formula and its standard error.
    """
    rows = []
    for d in dimensions:
        n = round(d / 20)
        law = NoiseLaw(n, d, strength_to_norm(0.5, n, d), 0.1, entries=entries)
        rng, parts = stream(seed, "test", d), []
        for r in range(draws):
            sample = law.draw(seed, 1, first_run=r, coordinates="dense")
            steps = two_steps(sample, 5 * n / d)
            scores = scores_at_scale_one(steps.v2, steps.p2, sample)
            v, p = seen_by_noise(steps.v2, sample)[0], seen_by_noise(steps.p2, sample)[0]
            parts.append((scores.logit[0], scores.value[0], torch.stack([v * v, v * p, p * p], 1)))
        logit, value = (torch.stack([part[i] for part in parts]) for i in (0, 1))  # (R, 2)
        squares = torch.cat([part[2] for part in parts], 1)  # (d, 3R)
        whole = squares.sum(0).view(draws, 3)
        formula = _error_of(whole, logit, value)
        totals, block = [], max(1, 4_000_000 // d)
        for first in range(0, points, block):
            size = min(block, points - first)
            totals.append(torch.as_tensor(entries.mixing(rng, (size, d))) @ squares)
        S = torch.cat(totals).view(points, draws, 3)
        truth = _error_of(S.reshape(-1, 3), logit.repeat(points, 1), value.repeat(points, 1)).view(points, draws)
        difference = truth - formula
        expansion = torch.full_like(formula, math.nan)
        if math.isfinite(entries.excess_kurtosis):
            # E S_w is known, so the first-order part of the difference is taken out: a control variate, of finite variance here.
            difference = difference - ((S - whole) * _slopes(whole, logit, value)).sum(-1)
            expansion = _second_order(whole, logit, value, squares.view(d, draws, 3), entries.excess_kurtosis / 3)
        truth = formula + difference.mean(0)
        row = SimpleNamespace(d=d, n=n, points=points, formula=formula, truth=truth, expansion=expansion)
        row.gap, row.standard_error = (
            (truth - formula).mean().item(),
            difference.mean(1).std().item() / math.sqrt(points),
        )
        rows.append(row)
    return rows


def _error_of(S, logit, value):
    """Error for covariances S = (vv, vp, pp), (R, 3), mean over classes: (R,)."""
    vv, vp, pp = S.unbind(-1)
    pp = pp.clamp_min(1e-300)  # all entries of p drawn as zero: sparse noise in few dimensions
    omega = pp.sqrt()
    plane = torch.zeros(*S.shape[:-1], 2, dtype=S.dtype)
    v_noise, p_noise = plane.clone(), plane
    p_noise[..., 0] = omega
    v_noise[..., 0] = vp / omega
    v_noise[..., 1] = (vv - vp**2 / pp).clamp_min(0).sqrt()
    return 10 ** log10_error_of_scores(scores_from(logit, value, v_noise, p_noise))


def _scale_of(S):
    """Natural size of each entry of S, (R, 3)."""
    return torch.stack([S[:, 0], (S[:, 0] * S[:, 2]).sqrt(), S[:, 2]], 1)


def _slopes(whole, logit, value):
    """(R, 3): derivatives of the error in S, central differences in relative steps of 1e-4."""
    steps, found = 1e-4 * _scale_of(whole), []
    for a in range(3):
        shift = torch.zeros_like(whole)
        shift[:, a] = steps[:, a]
        rise = _error_of(whole + shift, logit, value) - _error_of(whole - shift, logit, value)
        found.append(rise / (2 * steps[:, a]))
    return torch.stack(found, 1)


def _second_order(whole, logit, value, squares, variance):
    """(R,): half the trace of Hessian times covariance of S, by central differences of the exact integral in relative steps."""
    covariance = variance * torch.einsum("dra,drb->rab", squares, squares)
    scale = _scale_of(whole)
    step, total = 1e-3, 0.0
    unit = torch.eye(3, dtype=torch.float64)
    for a in range(3):
        for b in range(3):
            corners = sum(
                s * t * _error_of(whole + step * scale * (s * unit[a] + t * unit[b]), logit, value)
                for s in (1, -1)
                for t in (1, -1)
            )
            hessian = corners / (4 * step**2 * scale[:, a] * scale[:, b])
            total = total + 0.5 * hessian * covariance[:, a, b]
    return total
