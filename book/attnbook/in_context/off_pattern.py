r"""Beside the pattern $M_h=\omega_hI$, $V_h=\mu_he_{d+1}$: it is invariant, small starts find it, three small matrices say if it is stable.

Isotropic prompts with other axes are as likely as before, and so are prompts with all labels of the other sign. So the risk does not
change under

$$ M\mapsto\tilde U^\top M\tilde U,\quad V\mapsto V\tilde U,\qquad\tilde U=\mathrm{diag}(U,1),\ U\in O(d), $$

nor under $\mathrm{diag}(I,-1)$ in the place of $\tilde U$ with the sign of $V$ changed, and its gradient at the pattern lies in the pattern
(`orbit`, `descend`). At right angles to it the second derivative has three kinds of directions (`off_pattern_hessian`). Source: derived in
the theory chapter of Part III.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from attnbook.in_context.reduced import batch_means
from attnlib import checks
from attnlib.in_context.circuits import Circuits, predict
from attnlib.in_context.law import Prompts, RegressionLaw

_LONGEST = 1000  # steps of descent from a small start; prompts that teach nothing do not leave it
KINDS = ("symmetric", "antisymmetric", "label row and output")


# Second order at the pattern


@dataclass(frozen=True)
class OffPatternHessian:
    """Quadratic forms K of the risk outside the pattern, risk + sum_jk x_j K_jk x_k, once per batch of prompts.

    "symmetric": x_h in front of a traceless symmetric E with |E| = 1 in the covariate block of head h; "antisymmetric" likewise;
    "label row and output": x = (v_1 ... v_H, m_1 ... m_H) along one axis of covariates. Kinds and axes do not mix.
    """

    per_batch: dict[str, torch.Tensor]  # kind -> (batches, H, H), (batches, H, H), (batches, 2H, 2H)

    def least(self, kind: str) -> Callable[[torch.Tensor], float]:
        """Least eigenvalue of the mean of some of the batches: a statistic for `bookkit.rules.statistic_within`."""
        checks.one_of("kind", kind, KINDS)
        return lambda batches: float(torch.linalg.eigvalsh(batches.mean(0))[0])

    def eigenvalues(self, kind: str) -> torch.Tensor:
        """Of the mean over batches, ascending."""
        return torch.linalg.eigvalsh(self.per_batch[kind].mean(0))


def off_pattern_hessian(
    law: RegressionLaw, omega: object, mu: object, *, prompts: int = 20_000, batches: int = 20, seed: int = 0
) -> OffPatternHessian:
    """Exact but for the mean over (r, g), as in `reduced`: task vector, noise and what is orthogonal to the query are integrated by hand.

    omega, mu: (H,). Isotropic laws, d >= 2. Raises ValueError otherwise.
    """
    w, m = (torch.as_tensor(part, dtype=torch.float64) for part in (omega, mu))
    if w.ndim != 1 or w.shape != m.shape or not (w.isfinite() & m.isfinite()).all():
        raise ValueError(
            f"omega and mu must be finite and (heads,) both; got shapes {tuple(w.shape)} and {tuple(m.shape)}"
        )
    checks.whole_number("d", law.d, at_least=2, hint="one covariate has no directions outside the pattern")
    H = len(w)

    def integrand(radius: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        forms = 0.0
        for g in (scores, -scores):
            forms = forms + torch.cat([part.flatten(1) for part in _forms(law, w, m, radius, g)], 1)
        return forms / 2

    columns = 2 * H * H + (2 * H) ** 2
    means = batch_means(
        integrand, law, prompts=prompts, batches=batches, seed=seed, columns=columns, width=40 * H * law.length
    )
    first, second, third = means.split([H * H, H * H, 4 * H * H], 1)
    shapes = (first.unflatten(1, (H, H)), second.unflatten(1, (H, H)), third.unflatten(1, (2 * H, 2 * H)))
    return OffPatternHessian(dict(zip(KINDS, shapes, strict=True)))


def _forms(
    law: RegressionLaw, omega: torch.Tensor, mu: torch.Tensor, r: torch.Tensor, g: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The three forms given (r, g): (B, H, H), (B, H, H), (B, 2H, 2H), in the law's units. The formulas of the theory's box."""
    d, s2, n = law.d, law.noise_variance, law.d - 1
    p = torch.softmax(omega[:, None] * (r[:, None] * g)[:, None, :], -1)  # (B, H, L)
    c = torch.einsum("h,bhl->bl", mu, p)
    seen = torch.einsum("bhl,bl->bh", p, g)
    gap = g[:, None] - seen[..., None]  # g_i - mean of g under p
    pp = p @ p.mT
    square = pp.diagonal(dim1=1, dim2=2)
    eye = torch.eye(len(omega), dtype=torch.float64)
    # Q_h = diag(p) - p p' and J_h = mu_h Q_h
    traces = 1 - square
    quadratic = p * p
    mixed = quadratic @ p.mT  # sum_i p_h^2 p_k
    QQ = pp - mixed - mixed.mT + pp**2
    Qg = p * gap
    QgQg = Qg @ Qg.mT
    gQg = (Qg * g[:, None]).sum(-1)
    weight = mu[:, None] * mu[None, :]
    cg = (c * g).sum(-1)
    e2 = 1 - 2 * p + square[..., None]  # |e_i - p|^2
    c_gap = c[:, None] - torch.einsum("bhl,bl->bh", p, c)[..., None]
    along = gap * (cg - r)[:, None, None]  # part of the residual's weights along g
    found = []
    for k, size in ((2 - 2 / d, (d - 1) * (d + 2) / 2), (0.0, d * (d - 1) / 2)):
        gauss = (n * n + n + s2 * n) * QQ + n * traces[:, :, None] * traces[:, None, :]
        gauss = gauss + ((k + 1) * n + s2 * k) * QgQg + k * gQg[:, :, None] * gQg[:, None, :]
        rest = c_gap * ((n * n + 2 * n) * e2 + n * k * gap**2) + (along + s2 * c_gap) * (n * e2 + k * gap**2)
        residual = mu * (p * rest).sum(-1)
        total = weight * gauss + eye * residual[:, :, None]
        found.append((r**2 / 2)[:, None, None] * total * law.beta_std**2 / size)
    # labels: y = b g + tau z with b ~ N(0, 1), tau^2 = chi^2_(d-1) + s2; moments of tau^2
    t1, t2 = n + s2, n * (n + 2) + 2 * n * s2 + s2**2
    vv = seen[:, :, None] * seen[:, None, :] + n * pp
    spread = gQg + t1 * traces  # mean of Var_p(y)
    vm = (r[:, None] * seen)[:, :, None] * (mu * spread)[:, None, :]
    pull = (cg - r)[:, None] * gQg + t1 * (c[:, None] * Qg).sum(-1)
    vm = vm + eye * (r[:, None] * pull)[:, :, None]
    mm = 3 * gQg[:, :, None] * gQg[:, None, :] + 2 * t2 * QQ + t2 * traces[:, :, None] * traces[:, None, :]
    mm = mm + t1 * (gQg[:, :, None] * traces[:, None, :] + traces[:, :, None] * gQg[:, None, :] + 4 * QgQg)
    third = along * gap**2 + t1 * (along * e2 + c_gap * gap**2) + t2 * c_gap * e2
    mm = (weight * mm + eye * (3 * mu * (p * third).sum(-1))[:, :, None]) * (r**2)[:, None, None]
    s = law.beta_std
    top = torch.cat([vv, s**2 * vm], 2)
    bottom = torch.cat([s**2 * vm.mT, s**4 * mm], 2)
    return found[0], found[1], torch.cat([top, bottom], 1) / d


def rates_at_zero(law: RegressionLaw) -> tuple[float, float, float]:
    r"""Growth rates of the gradient flow of half the risk at $M_h=0$, $V_h=0$, in the modes with $\sum_hV_h=0$.

    Pattern: $f\sqrt d\,s_\beta^2$; label row with output entries: $f\,s_\beta^2$; rest of the block: 0; with $f=(L-1)/L$.
    """
    f = (law.length - 1) / law.length * law.beta_std**2
    return f * math.sqrt(law.d), f, 0.0


# Symmetry, and descent that keeps it


@checks.checked
def orbit(prompts: Prompts, *, flips: bool = True) -> Prompts:
    """All images of the prompts under permutations of the covariates' axes and, with `flips`, under changes of sign.

    Signs: of each axis, of all labels and the target, of the query and the target. B prompts become B d! 2^(d+2), or B d!: a set that
    the symmetries leave as it is, so that means over it have them exactly.
    """
    d = prompts.query.shape[-1]
    images = []
    for order in itertools.permutations(range(d)):
        for signs in itertools.product((1.0, -1.0), repeat=d) if flips else [(1.0,) * d]:
            U = torch.diag(torch.tensor(signs, dtype=torch.float64))[list(order)]
            turned = Prompts(prompts.x @ U, prompts.y, prompts.query @ U, prompts.target, prompts.beta @ U)
            for label, query in itertools.product((1, -1), repeat=2) if flips else [(1, 1)]:
                target, beta = label * query * turned.target, label * turned.beta
                images.append(Prompts(turned.x, label * turned.y, query * turned.query, target, beta))
    names = [field.name for field in dataclasses.fields(Prompts)]
    return Prompts(*(torch.cat([getattr(image, name) for image in images]) for name in names))


def risk_gradient(circuits: Circuits, prompts: Prompts) -> Circuits:
    """Half the gradient of the mean squared error on the prompts, (..., H, n, n) and (..., H, n); one model."""
    M, V = (part.detach().clone().requires_grad_() for part in (circuits.key_query, circuits.output_value))
    loss = (predict(Circuits(M, V), prompts) - prompts.clean_target).square().mean() / 2
    return Circuits(*torch.autograd.grad(loss, (M, V)))


def descend(
    circuits: Circuits, prompts: Prompts, *, steps: int, rate: float, until: float = math.inf
) -> tuple[Circuits, int]:
    """Gradient descent on half the mean squared error of the circuits themselves.

    Ends after `steps`, or as soon as the effective step reaches `until`. Returns circuits and the number of steps taken.
    """
    now = circuits
    for step in range(steps):
        if abs(float(now.effective_step)) >= until:
            return now, step
        slope = risk_gradient(now, prompts)
        now = Circuits(now.key_query - rate * slope.key_query, now.output_value - rate * slope.output_value)
    return now, steps


def off_pattern_size(circuits: Circuits) -> float:
    """Norm of all entries outside the pattern that have an effect: the last column of M has none."""
    block = circuits.covariate_block - circuits.omega[..., None, None] * torch.eye(circuits.d, dtype=torch.float64)
    parts = (block, circuits.label_row, circuits.output_rest)
    return math.sqrt(sum(float(part.square().sum()) for part in parts))


def pattern_size(circuits: Circuits) -> float:
    """Norm of the pattern's entries: sum over heads of d omega^2 + mu^2, and its root."""
    return math.sqrt(float((circuits.d * circuits.omega.square() + circuits.mu.square()).sum()))


@dataclass(frozen=True)
class SmallStart:
    """One set of prompts, one random direction, several sizes of the start."""

    sizes: tuple[float, ...]
    off: tuple[float, ...]  # off_pattern_size when the effective step reaches the mark, or when patience ends
    reached: bool  # the mark, from every size
    exponent: float  # predicted: 1 - log(1 + rate l_2) / log(1 + rate l_1), l from these prompts

    @property
    def slope(self) -> float:
        """log of the off-pattern entries over log of the start's size, between the two smallest starts."""
        return math.log(self.off[-1] / self.off[-2]) / math.log(self.sizes[-1] / self.sizes[-2])


def small_starts(
    law: RegressionLaw,
    sizes: tuple[float, ...] = (1e-4, 1e-7, 1e-10),
    *,
    draws: int = 6,
    prompts: int = 12,
    seed: int = 0,
) -> list[SmallStart]:
    """Gradient descent of circuits on an `orbit`, from starts of several sizes, until the effective step is 0.3.

    Starts: two opposite heads with independent normal entries, times the size. Opposite heads stay opposite, and their modes are the
    ones with zero sum, whose rates are known.
    """
    found = []
    for draw in range(draws):
        there = orbit(law.draw(prompts, seed, run=draw))
        generator = torch.Generator().manual_seed(10_000 * seed + draw)
        n = law.d + 1
        half = (torch.randn(1, *shape, generator=generator, dtype=torch.float64) for shape in ((n, n), (n,)))
        M, V = (torch.cat([part, -part]) for part in half)
        ends = [descend(Circuits(size * M, size * V), there, steps=_LONGEST, rate=0.3, until=0.3) for size in sizes]
        off, reached = tuple(off_pattern_size(end) for end, _ in ends), all(taken < _LONGEST for _, taken in ends)
        fast, slow = _empirical_rates(there)
        found.append(SmallStart(tuple(sizes), off, reached, 1 - math.log1p(0.3 * slow) / math.log1p(0.3 * fast)))
    return found


def _empirical_rates(prompts: Prompts) -> tuple[float, float]:
    """Rates of `rates_at_zero` for the mean over an orbit: the singular values of the bilinear form -gradient at zero.

    For small circuits with sum_h V_h = 0 half the risk is a constant minus E[t sum_h V_h C M_h z_q], t the target and C the covariance of
    the prompt's tokens; by symmetry only mu_h tr M_h and <v_h, m_h> are left.
    """
    z = prompts.context
    centred = z - z.mean(1, keepdim=True)
    C = torch.einsum("bli,blj->bij", centred, centred) / prompts.length
    d, t = prompts.query.shape[-1], prompts.clean_target
    # -gradient of half the risk in V is sum_j F_ikj M_kj, F = E[t C_ik x_qj]
    F = torch.einsum("b,bik,bj->ikj", t, C, prompts.query) / len(t)
    fast = float(F[d, :d, :].diagonal().sum()) / math.sqrt(d)  # mu with omega I, |I| = sqrt(d)
    slow = float(F[:d, d, :].diagonal().sum()) / d  # v with m, axis by axis
    return fast, slow
