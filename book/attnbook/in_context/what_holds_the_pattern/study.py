r"""III.8, beside the pattern $M_h=\omega_hI$, $V_h=\mu_he_{d+1}$: it is invariant, small starts find it, three matrices say if it is
stable.

Isotropic prompts with other axes are as likely as before, and so are prompts with all labels of the other sign. So the risk does not
change under

$$ M\mapsto\tilde U^\top M\tilde U,\quad V\mapsto V\tilde U,\qquad\tilde U=\mathrm{diag}(U,1),\ U\in O(d), $$

nor under $\mathrm{diag}(I,-1)$ in the place of $\tilde U$ with the sign of $V$ changed, and its gradient at the pattern lies in the pattern
(`orbit`, `descend`). At right angles to it the second derivative has three kinds of directions (`off_pattern_hessian`). A run of two heads
is *trapped* (`Circuits.trapped`) if both speak with one sign. Source: derived in the theory chapter of Part III.
"""

import dataclasses
import itertools
import math
from types import SimpleNamespace

import torch

from attnbook.in_context import full_runs
from attnbook.in_context.closed_form import debiased_gd_optimal_step
from attnbook.in_context.optimum import one_head_optimum
from attnbook.in_context.reduced import batch_means
from attnlib.in_context.circuits import Circuits, predict, two_number_circuits
from attnlib.in_context.errors import risk_per_prompt
from attnlib.in_context.law import Prompts, RegressionLaw

KINDS = ("symmetric", "antisymmetric", "label row and output")
_LONGEST = 1000  # steps of descent from a small start; prompts that teach nothing do not leave it
_PIECE = 500  # prompts at a time: what keeps a page's memory small


# --- second order at the pattern ---------------------------------------------------------------------------------------------


def off_pattern_hessian(
    law: RegressionLaw, omega, mu, *, prompts=20_000, batches=20, seed=0
) -> dict[str, torch.Tensor]:
    """Quadratic forms K of the risk outside the pattern, risk + sum_jk x_j K_jk x_k, by kind, once per batch of prompts.

    "symmetric", (batches, H, H): x_h in front of a traceless symmetric E with |E| = 1 in the covariate block of head h; "antisymmetric",
    (batches, H, H): the same with an antisymmetric E; "label row and output", (batches, 2H, 2H): x = (v_1 ... v_H, m_1 ... m_H) along one
    axis of covariates. Kinds and axes do not mix.

    Exact but for the mean over (r, g), as in `reduced`: task vector, noise and what is orthogonal to the query are integrated by hand.
    omega, mu: (H,). Isotropic laws, d >= 2.
    """
    w, m = (torch.as_tensor(part, dtype=torch.float64) for part in (omega, mu))
    H = len(w)

    def integrand(radius, scores):
        forms = 0.0
        for g in (scores, -scores):
            forms = forms + torch.cat([part.flatten(1) for part in _forms(law, w, m, radius, g)], 1)
        return forms / 2

    columns = 2 * H * H + (2 * H) ** 2
    means = batch_means(
        integrand, law, prompts=prompts, batches=batches, seed=seed, columns=columns, width=40 * H * law.length
    )
    parts = means.split([H * H, H * H, 4 * H * H], 1)
    return {kind: part.unflatten(1, (n, n)) for kind, part, n in zip(KINDS, parts, (H, H, 2 * H), strict=True)}


def least(batches: torch.Tensor) -> float:
    """Least eigenvalue of the mean of a form over some of the batches."""
    return float(torch.linalg.eigvalsh(batches.mean(0))[0])


def _forms(law, omega, mu, r, g):
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


# --- symmetry, and descent that keeps it -----------------------------------------------------------------------------------


def orbit(prompts: Prompts, *, flips=True) -> Prompts:
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


def descend(circuits: Circuits, prompts: Prompts, *, steps, rate, until=math.inf) -> tuple[Circuits, int]:
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


def small_starts(law: RegressionLaw, sizes=(1e-4, 1e-7, 1e-10), *, draws=6, prompts=12, seed=0) -> SimpleNamespace:
    """Gradient descent of circuits on an `orbit`, from starts of several sizes, until the effective step is 0.3. All (draws,).

    Starts: two opposite heads with independent normal entries, times the size. Opposite heads stay opposite, and their modes are the
    ones with zero sum, whose rates are known. `slope`: log of the off-pattern entries at the end over log of the start's size, between
    the two smallest starts; `exponent`: predicted, 1 - `growth`, growth = log(1 + rate l_2) / log(1 + rate l_1), l from these prompts;
    `reached`: whether the effective step came to the mark from every size before patience ended.
    """
    rows = []
    for draw in range(draws):
        there = orbit(law.draw(prompts, seed, run=draw))
        generator = torch.Generator().manual_seed(10_000 * seed + draw)
        n = law.d + 1
        half = (torch.randn(1, *shape, generator=generator, dtype=torch.float64) for shape in ((n, n), (n,)))
        M, V = (torch.cat([part, -part]) for part in half)
        ends = [descend(Circuits(size * M, size * V), there, steps=_LONGEST, rate=0.3, until=0.3) for size in sizes]
        off = [off_pattern_size(end) for end, _ in ends]
        fast, slow = _empirical_rates(there)
        slope = math.log(off[-1] / off[-2]) / math.log(sizes[-1] / sizes[-2])
        exponent = 1 - math.log1p(0.3 * slow) / math.log1p(0.3 * fast)
        rows.append((slope, exponent, all(taken < _LONGEST for _, taken in ends)))
    slope, exponent, reached = torch.tensor(rows, dtype=torch.float64).T
    return SimpleNamespace(slope=slope, exponent=exponent, growth=1 - exponent, reached=reached.bool())


def _empirical_rates(prompts):
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


# --- turning blocks --------------------------------------------------------------------------------------------------------


def antisymmetric_share(circuits: Circuits) -> torch.Tensor:
    r"""(..., H): of the squared norm of the block without its mean diagonal, $B-\omega I$, the part in $\frac12(B-B^\top)$: a rotation.

    0 for a symmetric block, 1/2 on average for independent entries, 1 for an antisymmetric rest; nan if there is no rest.
    """
    block = circuits.covariate_block
    rest = block - circuits.omega[..., None, None] * torch.eye(circuits.d, dtype=block.dtype, device=block.device)
    return ((block - block.mT) / 2).square().sum((-2, -1)) / rest.square().sum((-2, -1))


def without_turning(circuits: Circuits) -> Circuits:
    """The same circuits with the covariate blocks replaced by their symmetric parts."""
    key_query = circuits.key_query.clone()
    d = circuits.d
    key_query[..., :d, :d] = (circuits.covariate_block + circuits.covariate_block.mT) / 2
    return Circuits(key_query, circuits.output_value)


def gain_of_turning(circuits: Circuits, law: RegressionLaw, *, prompts=8000, seed=0):
    """Risk of `without_turning(circuits)` minus that of the circuits (...), on the same fresh prompts, and its standard error.

    `prompts` >= 2, rounded up to a multiple of 500 if larger.
    """
    piece = min(prompts, _PIECE)
    straight, found = without_turning(circuits), []
    for run in range(-(-prompts // piece)):
        fresh = law.draw(piece, seed, run=run)
        found.append(risk_per_prompt(straight, law, fresh) - risk_per_prompt(circuits, law, fresh))
    change = torch.cat(found, -1)
    return change.mean(-1), change.std(-1) / math.sqrt(change.shape[-1])


# --- everything ------------------------------------------------------------------------------------------------------------


def _kept(law, seed, draws=40):
    """Norm of the gradient's entries outside the pattern over that of those inside, at random two-number heads.

    One gradient at each: along steps of descent that diverges, rounding outside the pattern would grow as well.
    """
    found = {"symmetric prompts": [], "permuted prompts": []}
    for draw in range(draws):
        generator = torch.Generator().manual_seed(1000 * seed + draw)
        omega, mu = 0.5 * torch.randn(2, 2, generator=generator, dtype=torch.float64)
        here, drawn = two_number_circuits(omega, mu, law.d), law.draw(2, seed, run=draw)
        for name, flips in (("symmetric prompts", True), ("permuted prompts", False)):
            slope = risk_gradient(here, orbit(drawn, flips=flips))
            found[name].append(off_pattern_size(slope) / pattern_size(slope))
    return {name: torch.tensor(rows, dtype=torch.float64) for name, rows in found.items()}


def _added(law, omega, mu, form, seed):
    """Full model on prompts with labels: the second difference of its risk in a random direction over its quadratic form, (12,)."""
    d, signs = law.d, torch.tensor([1.0, -1.0], dtype=torch.float64)
    still = two_number_circuits(omega * signs, mu * signs, d)
    symmetric, antisymmetric, vectors = (form[kind].mean(0) for kind in KINDS)
    ratios = []
    for draw in range(12):
        generator = torch.Generator().manual_seed(1000 * seed + 500 + draw)
        E, m, v = (torch.randn(2, *shape, generator=generator, dtype=torch.float64) for shape in ((d, d), (d,), (d,)))
        size = 0.02 * omega
        E = size * (E - E.diagonal(dim1=1, dim2=2).mean(-1)[:, None, None] * torch.eye(d, dtype=torch.float64))
        m, v = size * m / math.sqrt(d), size * v * mu / omega
        parts = ((E + E.mT) / 2, (E - E.mT) / 2)
        predicted = sum(
            (K * torch.einsum("hij,kij->hk", part, part)).sum()
            for K, part in zip((symmetric, antisymmetric), parts, strict=True)
        )
        both = torch.cat([v, m])
        predicted = predicted + (vectors * (both @ both.mT)).sum()
        moved_M, moved_V = torch.zeros_like(still.key_query), torch.zeros_like(still.output_value)
        moved_M[:, :d, :d], moved_M[:, d, :d], moved_V[:, :d] = E, m, v
        models = [Circuits(still.key_query + t * moved_M, still.output_value + t * moved_V) for t in (1, -1, 0)]
        drawn = law.draw(3000, seed, run=7000 + draw)
        up, down, middle = (risk_per_prompt(model, law, drawn).mean() for model in models)
        ratios.append(((up + down) / 2 - middle) / predicted)
    return torch.stack(ratios)


def pattern_study(law: RegressionLaw, *, seed=0) -> SimpleNamespace:
    """The law's risk outside the pattern, beside the stored trainings of one and two heads.

    Invariance and small starts at d = 3, L = 12; second derivatives at the law's own size, d >= 2.
    """
    omega = 0.14 * math.sqrt(5 / law.d)  # where Adam at the authors' rate stops
    mu = float(debiased_gd_optimal_step(law)) / (2 * omega)
    one = one_head_optimum(law, prompts=4000, seed=seed)
    s, small = SimpleNamespace(law=law), RegressionLaw(3, 12, 0.1)
    s.stored = {heads: full_runs.load(heads) for heads in (1, 2)}
    s.trapped = s.stored[2].final.trapped  # (R,) bool: of the stored runs of two heads at their end
    s.pair = off_pattern_hessian(law, [omega, -omega], [mu, -mu], seed=seed)  # opposite heads, where training ends
    s.equal = off_pattern_hessian(
        law, [one.omega] * 2, [one.mu / 2] * 2, seed=seed
    )  # at the best single head's numbers
    s.kept = _kept(small, seed)
    s.small = small_starts(small, prompts=8, seed=seed)
    s.added = _added(law, omega, mu, s.pair, seed)
    return s
