r"""Error of several trained softmax heads on fresh clean data: two tokens, any number of heads and of signal directions.

On a fresh point of direction k (label $s_k$), with $z_h = p_h\cdot\xi$ and $w_h = \sigma(p_h\cdot\mu_k - z_h)$,

$$ s_k f \propto \sum_h w_h\, s_k v_h\cdot\mu_k + \sum_h (1 - w_h)\, s_k v_h\cdot\xi $$

(a positive output scale changes no sign).

Write the noise parts of the $p_h$ in an orthonormal basis of their span, $z = A t$ with $t \sim N(0, I_q)$, $q \le H$. Given $t$ all
weights are numbers and $f$ is Gaussian: $s_k v_h\cdot\xi = B_h\cdot t + R_h\cdot\zeta$ with an independent normal $\zeta$, so

$$ \mathrm{err}_k = E_{t\sim N(0, I_q)}\, \Phi\!\left(-\frac{\sum_h w_h V_{kh} + (1-w_h) B_h\cdot t}{|\sum_h (1-w_h) R_h|}\right). $$

Source: derived; one head is the integral of `population`, which is exact. For several heads the integral is taken by importance
sampling: the largest points of the integrand are found by a damped Newton ascent from many starts, and samples are drawn from
Student densities around all of them. The estimate is unbiased whatever the density; its standard error is returned.
"""

import math
from dataclasses import dataclass, fields

import numpy as np
import torch

from attnlib.randomness import stream
from attnlib.single_head.errors import Estimate

_LOG10 = math.log(10.0)
_FREEDOM = 5.0  # of the Student densities: tails heavier than the integrand's
_ENTRIES = 1 << 22  # numbers of the largest array that sampling holds at once
_WIDTHS = (1.0, 2.5)  # half of the samples come from densities this many times wider than the curvature says


@dataclass(frozen=True)
class HeadScores:
    """The law of the fresh scores of H heads, R runs, K directions, q = min(H, m): noise scale included."""

    logit: torch.Tensor  # (R, K, H), p_h . mu_k
    value: torch.Tensor  # (R, K, H), s_k v_h . mu_k
    loading: torch.Tensor  # (R, H, q), rows A_h: p_h . xi = A_h . t
    drift: torch.Tensor  # (R, H, q), rows B_h of v_h
    residual: torch.Tensor  # (R, H, H or fewer), rows R_h of v_h
    labels: torch.Tensor  # (K,), s_k
    probability: torch.Tensor  # (K,), how often a direction occurs


def _directions(sample):
    """Labels and probabilities of the sample's signal directions, both (K,)."""
    law, like = sample.law, sample.tokens
    if hasattr(law, "direction_labels"):
        return like.new_tensor(law.direction_labels), like.new_tensor(law.direction_probabilities)
    share = law.class_probability
    return like.new_tensor([1.0, -1.0]), like.new_tensor([share, 1 - share])


def head_scores(v, p, sample):
    """The numbers above for v (R, H, m), or (R, 1, m) when heads share their values, and p (R, H, m)."""
    v = v.expand_as(p)
    labels, probability = _directions(sample)
    logit, value = (torch.einsum("rkm,rhm->rkh", sample.signals, x) for x in (p, v))
    units, std = sample.avoided, sample.law.noise_std
    p_noise, v_noise = (std * (x - torch.einsum("rhk,rkm->rhm", x @ units.mT, units)) for x in (p, v))
    basis, triangle = torch.linalg.qr(p_noise.mT)  # (R, m, q), (R, q, H)
    sign = torch.where(torch.diagonal(triangle, dim1=1, dim2=2)[..., : basis.shape[-1]] < 0, -1.0, 1.0)
    basis, triangle = basis * sign.unsqueeze(1), triangle * sign.unsqueeze(2)
    drift = v_noise @ basis
    residual = torch.linalg.qr((v_noise - drift @ basis.mT).mT)[1]
    return HeadScores(logit, labels[:, None] * value, triangle.mT, drift, residual.mT, labels, probability)


# --- the integrand ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Problem:
    """One integral per entry of the flat batch B = R K: the arguments of `margin`, all with the leading axis B."""

    logit: torch.Tensor  # (B, H)
    value: torch.Tensor  # (B, H)
    loading: torch.Tensor  # (B, H, q)
    drift: torch.Tensor  # (B, H, q), label included
    residual: torch.Tensor  # (B, H, q')

    def margin(self, t):
        r"""The normalised margin a(t) (B, N), its gradient (B, N, q) and its second derivatives (B, N, q, q), t (B, N, q).

        $a = f/\rho$ with $f = \sum_h w_hV_h + (1-w_h)B_h\cdot t$, $\rho = |r|$ and $r = \sum_h(1-w_h)R_h$. Every derivative is
        one with respect to t; in the names below `_i` is one by $t_i$, `_ij` one by $t_i$ and $t_j$.
        """
        A, B, R = self.loading.unsqueeze(1), self.drift.unsqueeze(1), self.residual.unsqueeze(1)
        # A weight sees t through z_h = A_h . t alone: dw/dz = -w (1 - w) and d2w/dz2 = w (1 - w) (1 - 2 w).
        w = torch.sigmoid(self.logit.unsqueeze(1) - t @ self.loading.mT)  # (B, N, H)
        slope = w * (1 - w)  # -dw/dz
        bend = slope * (1 - 2 * w)  # d2w/dz2
        noise = t @ self.drift.mT  # B_h . t, (B, N, H)
        gap = self.value.unsqueeze(1) - noise  # V_h - B_h . t
        # The numerator f = sum_h B_h . t + w_h gap_h, differentiated with respect to t:
        #   df/dt_i       = sum_h (1 - w_h) B_hi - slope_h gap_h A_hi
        #   d2f/dt_i dt_j = sum_h bend_h gap_h A_hi A_hj + slope_h (A_hi B_hj + B_hi A_hj)
        f = (noise + w * gap).sum(-1)
        f_i = ((1 - w).unsqueeze(-1) * B - (slope * gap).unsqueeze(-1) * A).sum(-2)
        mixed = torch.einsum("bnh,bnhi,bnhj->bnij", slope, A.expand_as(A), B)
        f_ij = torch.einsum("bnh,bnhi,bnhj->bnij", bend * gap, A, A) + mixed + mixed.mT
        # The vector r = sum_h (1 - w_h) R_h (q' entries, index k), differentiated with respect to t:
        #   dr/dt_i = sum_h slope_h A_hi R_h,   d2r/dt_i dt_j = -sum_h bend_h A_hi A_hj R_h
        r = ((1 - w).unsqueeze(-1) * R).sum(-2)  # (B, N, q')
        r_i = torch.einsum("bnh,bnhi,bnhk->bnik", slope, A, R)
        r_ij = -torch.einsum("bnh,bnhi,bnhj,bnhk->bnijk", bend, A, A, R)
        # The denominator rho = |r| with the unit vector u = r / rho, differentiated with respect to t:
        #   drho/dt_i = r_i . u,   d2rho/dt_i dt_j = r_ij . u + (r_i . r_j - rho_i rho_j) / rho
        rho = r.norm(dim=-1).clamp_min(torch.finfo(t.dtype).tiny)
        u = r / rho.unsqueeze(-1)
        rho_i = torch.einsum("bnik,bnk->bni", r_i, u)
        rho_ij = (
            torch.einsum("bnijk,bnk->bnij", r_ij, u) + torch.einsum("bnik,bnjk->bnij", r_i, r_i) / rho[..., None, None]
        )
        rho_ij = rho_ij - rho_i.unsqueeze(-1) * rho_i.unsqueeze(-2) / rho[..., None, None]
        # The quotient: f = a rho, differentiated once and twice with respect to t and solved for the derivatives of a:
        #   a_i = (f_i - a rho_i) / rho,   a_ij = (f_ij - a rho_ij - a_i rho_j - rho_i a_j) / rho
        a, scale = f / rho, rho.unsqueeze(-1)
        a_i = (f_i - a.unsqueeze(-1) * rho_i) / scale
        a_ij = (
            f_ij
            - a[..., None, None] * rho_ij
            - a_i.unsqueeze(-1) * rho_i.unsqueeze(-2)
            - rho_i.unsqueeze(-1) * a_i.unsqueeze(-2)
        ) / scale.unsqueeze(-1)
        return a, a_i, a_ij

    def log_integrand(self, t):
        """log of Phi(-a(t)) exp(-|t|^2/2), (B, N), without the normal density's constant."""
        w = torch.sigmoid(self.logit.unsqueeze(1) - t @ self.loading.mT)
        noise = t @ self.drift.mT
        f = (noise + w * (self.value.unsqueeze(1) - noise)).sum(-1)
        rho = ((1 - w) @ self.residual).norm(dim=-1).clamp_min(torch.finfo(t.dtype).tiny)
        return torch.special.log_ndtr(-f / rho) - (t * t).sum(-1) / 2

    def take(self, some):
        """Some of the integrals."""
        return _Problem(*(getattr(self, field.name)[some] for field in fields(self)))

    def starts(self):
        """(B, J, q): the best point of each of a fan of rays (single heads, all heads, their noise outputs, both signs)."""
        rays = torch.cat([self.loading, self.loading.sum(1, keepdim=True), self.drift.sum(1, keepdim=True)], 1)
        rays = torch.cat([rays, rays[:, -2:-1] + rays[:, :-2], -self.loading.sum(1, keepdim=True)], 1)
        rays = torch.cat([rays, -self.drift.sum(1, keepdim=True)], 1)
        rays = rays / rays.norm(dim=-1, keepdim=True).clamp_min(torch.finfo(rays.dtype).tiny)
        radii = torch.as_tensor(np.geomspace(0.02, 600.0, 160), dtype=rays.dtype, device=rays.device)
        radii = torch.cat([radii.new_zeros(1), radii])
        points = rays.unsqueeze(2) * radii[:, None]  # (B, J, S, q)
        best = self.log_integrand(points.flatten(1, 2)).unflatten(1, points.shape[1:3]).argmax(-1)
        return points.gather(2, best[..., None, None].expand(-1, -1, 1, points.shape[-1])).squeeze(2)

    def curvature(self, t):
        r"""Gradient (B, N, q) and minus the second derivatives (B, N, q, q) of the log integrand, with respect to t.

        With the hazard $h(a) = \varphi(a)/\Phi(-a)$, whose derivative by a is $h' = h(h-a) \in (0, 1)$, and
        $\ell = \log\Phi(-a(t)) - |t|^2/2$:
        $\partial_i\ell = -h\,a_i - t_i$ and $-\partial_i\partial_j\ell = \delta_{ij} + h'\,a_ia_j + h\,a_{ij}$.
        """
        a, a_i, a_ij = self.margin(t)
        hazard = math.sqrt(2 / math.pi) / torch.special.erfcx(a / math.sqrt(2))  # phi(a) / Phi(-a)
        # Where erfcx overflows, Phi(-a) is 1 and the hazard is the density itself.
        hazard = torch.where(a < -30, torch.exp(-a * a / 2) / math.sqrt(2 * math.pi), hazard)
        grow = (hazard * (hazard - a)).clamp(0.0, 1.0)[..., None, None]
        eye = torch.eye(t.shape[-1], dtype=t.dtype, device=t.device)
        second = eye + grow * a_i.unsqueeze(-1) * a_i.unsqueeze(-2) + hazard[..., None, None] * a_ij
        return -t - hazard.unsqueeze(-1) * a_i, second

    def ascend(self, t):
        """Damped Newton ascent of every start to a local maximum of the log integrand."""
        height, damping = self.log_integrand(t), torch.ones_like(t[..., 0])
        for _ in range(80):
            # Newton's step S^-1 g for gradient g and S = minus the second derivatives, both with respect to t. In the eigenvectors
            # of S a negative curvature is turned round (its absolute value is used) and the damping shortens the step.
            gradient, second = self.curvature(t)
            values, vectors = torch.linalg.eigh(second)
            values = values.abs().clamp_min(1e-3) + damping.unsqueeze(-1)
            step = torch.einsum("bnij,bnj,bnkj,bnk->bni", vectors, 1 / values, vectors, gradient)
            trial = t + step
            risen = self.log_integrand(trial)
            better = risen > height
            t, height = torch.where(better.unsqueeze(-1), trial, t), torch.where(better, risen, height)
            damping = torch.where(better, damping / 5, damping * 6).clamp(1e-12, 1e12)
            if (step.abs().amax() < 1e-10) or not (better | (damping < 1e8)).any():
                break
        return t


def _log_integral(problem, modes, normals, chi, uniform):
    """log of E Phi(-a(t)) and the standard error of that log, (B,), sampling around `modes` (B, J, q).

    normals (B, N, q), chi-squares and uniforms (B, N) are what is random.
    """
    q = modes.shape[-1]
    # Around a mode the integrand is a Gaussian whose precision is minus the second derivatives of its log by t (Laplace): its mass
    # is the height over the root of the determinant.
    values, vectors = torch.linalg.eigh(problem.curvature(modes)[1])
    values = values.clamp_min(0.2)
    mass = problem.log_integrand(modes) - values.log().sum(-1) / 2
    weight = torch.softmax(mass, -1) + 1e-3
    weight = (weight / weight.sum(-1, keepdim=True)).repeat(1, len(_WIDTHS)) / len(_WIDTHS)  # (B, C)
    # Cholesky factors, not eigenvectors: their signs are a matter of the machine, and with them every sample.
    root = torch.linalg.cholesky((vectors / values.unsqueeze(-2)) @ vectors.mT)
    precision = (vectors * values.unsqueeze(-2)) @ vectors.mT
    width = torch.tensor(_WIDTHS, dtype=modes.dtype, device=modes.device).repeat_interleave(modes.shape[1])  # (C,)
    modes, values, root, precision = (
        x.repeat(1, len(_WIDTHS), *[1] * (x.ndim - 2)) for x in (modes, values, root, precision)
    )
    which = torch.searchsorted(weight.cumsum(-1).contiguous(), uniform.contiguous()).clamp_max(weight.shape[1] - 1)
    own = which.unsqueeze(-1).expand(-1, -1, q)
    shift = normals * ((_FREEDOM / chi).sqrt() * width[which]).unsqueeze(-1)
    frame = root.gather(1, own.unsqueeze(-1).expand(-1, -1, -1, q))
    t = modes.gather(1, own) + (frame @ shift.unsqueeze(-1)).squeeze(-1)
    # The density of the whole mixture at each sample: of a multivariate Student density with centre m, precision S and width b,
    # log Gamma((nu + q)/2) - log Gamma(nu/2) - (q/2) log(nu pi) + log|S|/2 - q log b - ((nu + q)/2) log(1 + (t-m)'S(t-m) / (nu b^2)).
    seen = t.unsqueeze(2) - modes.unsqueeze(1)  # (B, N, C, q)
    square = torch.einsum("bnci,bcij,bncj->bnc", seen, precision, seen) / width**2
    constant = math.lgamma((_FREEDOM + q) / 2) - math.lgamma(_FREEDOM / 2) - q / 2 * math.log(_FREEDOM * math.pi)
    size = (values.log().sum(-1) / 2 - q * width.log()).unsqueeze(1)
    log_student = constant - (_FREEDOM + q) / 2 * torch.log1p(square / _FREEDOM) + size
    log_density = torch.logsumexp(log_student + weight.log().unsqueeze(1), -1)
    ratio = problem.log_integrand(t) - q / 2 * math.log(2 * math.pi) - log_density
    top = ratio.amax(-1, keepdim=True)
    relative = (ratio - top).exp()
    mean = relative.mean(-1)
    return top.squeeze(-1) + mean.log(), relative.std(-1) / mean / math.sqrt(ratio.shape[-1])


# --- errors ----------------------------------------------------------------------------------------------------------------


def log10_head_error(v, p, sample, *, count=2000):
    """log10 of the clean error of H unequal heads and its standard error: (R,).

    v: (R, H, m), or (R, 1, m) for shared values; p: (R, H, m); both in the sample's coordinates. `count` samples per run and
    direction. For heads that are equal `population.log10_clean_error` of (sum of the v_h, p) is exact.
    """
    scores = head_scores(v, p, sample)
    runs, K, q = sample.runs, scores.logit.shape[1], scores.loading.shape[-1]
    drawn = [
        (rng.standard_normal((count, q)), rng.chisquare(_FREEDOM, count), rng.random(count))
        for rng in (stream(sample.seed, "test", sample.first_run + r) for r in range(runs))
    ]
    drawn = [torch.as_tensor(np.stack(part), dtype=p.dtype, device=p.device) for part in zip(*drawn, strict=True)]
    each = torch.arange(runs * K, device=p.device)
    run, direction = each // K, each % K
    problem = _Problem(
        scores.logit.flatten(0, 1),
        scores.value.flatten(0, 1),
        scores.loading[run],
        scores.labels[direction, None, None] * scores.drift[run],
        scores.residual[run],
    )
    modes = problem.ascend(problem.starts())
    parts = [
        _log_integral(problem.take(some), modes[some], *(x[run[some]] for x in drawn))
        for some in each.split(max(1, _ENTRIES // (count * modes.shape[1] * q)))
    ]
    log, error = (torch.cat(part).unflatten(0, (runs, K)) for part in zip(*parts, strict=True))
    part = log + scores.probability.log()
    total = torch.logsumexp(part, -1)
    # The same samples serve every direction, so their errors are added, not squared and added.
    error = ((part - total.unsqueeze(-1)).exp() * error).sum(-1)
    return Estimate(total / _LOG10, error / _LOG10)
