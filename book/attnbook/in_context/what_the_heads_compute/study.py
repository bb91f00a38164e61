r"""Error against the length of the prompt: heads, the kernel estimator of their two numbers, one step of gradient descent, Bayes.

Three devices keep chance small. The kernel estimator's risk comes from the exact reduction (`reduced`). What the other entries of the
trained circuits add to it is measured prompt by prompt on the same prompts, where $\beta$ and the label noise are integrated by hand and
every prompt is used with both signs of its labels, which cancels the first order of what the heads take from labels. The references are
linear in the labels and in the query, so only the examples' covariates are sampled. Prompts are drawn and used in pieces, so that
memory grows with neither their number nor their length. Source: derived in the theory chapter of Part III.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from attnbook.in_context import closed_form
from attnbook.in_context.estimators import bayes_risk, kernel_weights
from attnbook.in_context.reduced import reduced_risk
from attnbook.in_context.what_the_heads_compute.linear_attention import preconditioner_of
from attnlib import checks
from attnlib.attention import attention_weights
from attnlib.in_context.circuits import Circuits
from attnlib.in_context.law import Prompts, RegressionLaw
from attnlib.in_context.risk import conditional_risk
from attnlib.randomness import stream

LENGTHS = (5, 10, 20, 40, 60, 80, 100, 120, 160, 240, 320, 500)
_PIECE = 200_000  # numbers in the largest array of a piece: 1.6 MB, which caches hold
_REFERENCES = ("gd1", "gd_optimal", "debiased", "bayes")


@dataclass(frozen=True)
class Curve:
    """A risk at K lengths of R models; a predictor that was not trained has R = 1."""

    risk: torch.Tensor  # (K, R)
    error: torch.Tensor  # (K, R): standard errors, prompts alone

    @property
    def mean(self) -> np.ndarray:
        """(K,): means over models."""
        return self.risk.mean(1).numpy()

    @property
    def standard_error(self) -> np.ndarray:
        """(K,): of `mean`, prompts and models together (models share their prompts, so those errors do not average out)."""
        runs = self.risk.shape[1]
        spread = self.risk.std(1) / math.sqrt(runs) if runs > 1 else torch.zeros(len(self.risk), dtype=torch.float64)
        return torch.hypot(spread, self.error.amax(1)).numpy()


@dataclass(frozen=True)
class LengthStudy:
    """Risks at K lengths, on the same prompts."""

    law: RegressionLaw  # at the length of training
    lengths: np.ndarray  # (K,)
    circuits: Circuits  # (R, H, ...)
    kernel: Curve  # their two numbers each, exact reduction
    off_pattern: Curve  # risk of the heads as they are minus that of their two numbers, paired
    shift: Curve  # mean square of the difference of the two predictions
    bayes: Curve
    gd1: Curve  # one step, eta = 1; sampled on the same prompts, as are the next two
    gd_optimal: Curve  # one step, best eta for each length
    debiased: Curve  # one centred step, best eta for each length

    @property
    def model(self) -> Curve:
        """Risk of the heads as they are: kernel plus off_pattern."""
        parts = self.kernel, self.off_pattern
        return Curve(sum(part.risk for part in parts), torch.hypot(*(part.error for part in parts)))

    def index(self, length: int) -> int:
        """Where `length` is among the lengths. Raises ValueError if it is not."""
        found = np.flatnonzero(self.lengths == length)
        if not len(found):
            raise ValueError(f"length must be one of {', '.join(map(str, self.lengths))}; got {length!r}")
        return int(found[0])

    @property
    def floor(self) -> np.ndarray:
        """(R,): risk of each model's two numbers in the limit of long prompts."""
        step, offset = self.circuits.effective_step, self.circuits.mu.sum(-1)
        return closed_form.softmax_floor(self.law, step.numpy(), offset=offset.numpy())

    def crossings(self) -> np.ndarray:
        """(R,): length beyond which one step with eta = 1 has less risk than the model; nan where it never has."""
        exact = closed_form.gd_risk(self.law, 1.0, length=self.lengths)
        return np.array([crossing(self.lengths, self.model.risk[:, r].numpy() / exact) for r in range(len(self.floor))])


def length_study(
    law: RegressionLaw, circuits: Circuits, lengths: Sequence[int] = LENGTHS, *, prompts: int = 4000, seed: int = 0
) -> LengthStudy:
    """Measure trained circuits (R, H, ...) and what they are compared with at each length.

    Args:
        law: at the length of training; isotropic.
        lengths: whole numbers >= 1.
        prompts: held-out prompts for each length, >= 100; stream (seed, "test", length).

    Raises ValueError for a bad argument before any work.
    """
    checks.whole_number("prompts", prompts, at_least=100, hint="standard errors are estimated from them")
    checks.whole_number("seed", seed, at_least=0)
    _check(circuits, law)
    lengths = [checks.whole_number("lengths", length, at_least=1) for length in lengths]
    if not lengths:
        raise ValueError("lengths must hold at least one length; got none")
    kernel, off, shift, references = [], [], [], []
    for here in map(law.with_length, lengths):
        kernel.append(
            torch.stack(reduced_risk(circuits.omega, circuits.mu, here, prompts=prompts, batches=100, seed=seed))
        )
        parts = [
            (off_pattern(circuits, part, here), _references(part, here))
            for part in _pieces(here, prompts, seed, circuits.omega.numel())
        ]
        off.append(_mean(torch.cat([one.risk for one, _ in parts], -1)))
        shift.append(_mean(torch.cat([one.shift for one, _ in parts], -1).square()))
        references.append(_mean(torch.cat([other for _, other in parts], -1)))
    curves = [Curve(*torch.stack(found).unbind(1)) for found in (kernel, off, shift)]
    plain = torch.stack(references)  # (K, 2, 4)
    others = {name: Curve(plain[:, 0, [k]], plain[:, 1, [k]]) for k, name in enumerate(_REFERENCES)}
    return LengthStudy(law, np.array(lengths), circuits, *curves, **others)


@dataclass(frozen=True)
class OffPattern:
    """What the entries of trained circuits outside their two numbers do to B prompts, (R, B) each."""

    risk: torch.Tensor  # risk of the heads minus risk of their two numbers, given the prompt
    shift: torch.Tensor  # difference of the two predictions


def off_pattern(circuits: Circuits, prompts: Prompts, law: RegressionLaw) -> OffPattern:
    r"""Compare circuits (R, H, ...) with the kernel estimator of their $(\omega_h,\mu_h)$ on the same prompts (B).

    With $p^h$ the attention when the label row of $M_h$ is taken as zero, $c=\sum_h\mu_hp^h$ and $u=\sum_hV_{h,1..d}\cdot\sum_ip_i^hx_i$,
    the risk of $c\cdot y+u$ given the covariates is exact; the squared error of the whole model minus that of $c\cdot y+u$ is added,
    averaged over the prompt and the prompt with all labels negated (the law does not tell them apart).
    """
    _check(circuits, law)
    V, d = circuits.output_value, circuits.d
    shape = circuits.omega.shape  # (R, H)
    x, y, target = prompts.x, prompts.y, prompts.clean_target
    direction = torch.einsum("rhij,bj->brhi", circuits.key_query[..., :d], prompts.query).flatten(1, 2)
    from_x, from_label = direction[..., :d] @ x.mT, direction[..., d:] * y[:, None, :]  # (B, R H, L)

    def combine(scores: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """c (B, R, L) and u (B, R) of these scores."""
        p = attention_weights(scores)
        written = torch.einsum("rhi,brhi->br", V[..., :d], (p @ x).unflatten(1, shape))
        return torch.einsum("rh,brhl->brl", V[..., d], p.unflatten(1, shape)), written

    weights, written = combine(from_x)
    blind = (weights @ y[..., None]).squeeze(-1)
    risk = conditional_risk(weights.transpose(0, 1), prompts, law, offset=written.T)
    for sign in (1, -1):
        own, offset = combine(from_x + sign * from_label)
        predicted = sign * (own @ y[..., None]).squeeze(-1) + offset
        goal = sign * target[:, None]
        change = (predicted - goal).square() - (sign * blind + written - goal).square()
        risk = risk + change.T / 2
        if sign == 1:
            model = predicted.T
    c = kernel_weights(prompts, circuits.omega, circuits.mu)
    kernel = (c * y).sum(-1)
    return OffPattern(risk - conditional_risk(c, prompts, law), model - kernel)


def off_pattern_parts(circuits: Circuits, law: RegressionLaw) -> torch.Tensor:
    r"""Mean square that each kind of entry outside the two numbers adds to the predictions, to leading order in the scores: (R, 3).

    | kind | entries | mean square |
    |---|---|---|
    | block | $\Delta=\sum_h(\mu_hM_h^\top+m_hv_h^\top)-\eta I$ | $s_\beta^2f\,(1+\tfrac{d+s_2}L)\lVert\Delta\rVert^2$ |
    | label row | $w=\sum_h\mu_hm_h$ | $\tfrac{L^2-1}{L^2}\,\mathbb E[\sigma_y^4]\,\lvert w\rvert^2+K$ |
    | output | $v=\sum_hv_h$, $t=\sum_hM_h^\top v_h$ | $\lvert v\rvert^2/L+f(1+\tfrac dL)\lvert t\rvert^2+K$ |

    with $f=(L-1)/L$, $M_h$ the covariate block, $m_h$ the label row, $v_h$ the first d entries of $V_h$, $\sigma_y^2$ the variance of a
    label given $\beta$, and $K=s_\beta^2f\,(fd+fs_2+\tfrac2L)\,w\cdot t$ half of what the last two have in common. The last two
    are even in the labels, and the law has no direction: so these parts add to the *risk* what they add to the predictions, but for
    $-2s_\beta^2f(1-\eta/\eta^*)\operatorname{tr}\Delta$, which is zero at the best step. Isotropic laws. Source: derived in the theory
    chapter of Part III.
    """
    _check(circuits, law)
    if not law.isotropic:
        raise ValueError(f"law must be isotropic with zero mean; got {law!r}")
    d, L, s2, v = law.d, law.length, law.noise_variance, circuits.output_rest
    spread, f = law.beta_std**2, (L - 1) / L
    delta = preconditioner_of(circuits) - circuits.effective_step[..., None, None] * torch.eye(d, dtype=torch.float64)
    block = spread * f * (1 + (d + s2) / L) * delta.square().sum((-2, -1))
    w = torch.einsum("rh,rhi->ri", circuits.mu, circuits.label_row)
    t = torch.einsum("rhij,rhi->rj", circuits.covariate_block, v)
    common = spread * f * (f * d + f * s2 + 2 / L) * (w * t).sum(-1)
    fourth = spread**2 * (d * (d + 2) + 2 * d * s2 + s2**2)
    label = (1 - 1 / L**2) * fourth * w.square().sum(-1) + common
    output = v.sum(1).square().sum(-1) / L + f * (1 + d / L) * t.square().sum(-1) + common
    return torch.stack([block, label, output], -1)


def crossing(lengths: np.ndarray, ratio: np.ndarray) -> float:
    """The length where a ratio of two risks passes 1 from below for the first time, linear in log length; nan if it never does."""
    lengths, ratio = np.asarray(lengths, dtype=np.float64), np.asarray(ratio, dtype=np.float64)
    up = np.flatnonzero((ratio[:-1] < 1) & (ratio[1:] >= 1))
    if not len(up):
        return math.nan
    k = up[0]
    share = (1 - ratio[k]) / (ratio[k + 1] - ratio[k])
    return float(np.exp((1 - share) * np.log(lengths[k]) + share * np.log(lengths[k + 1])))


def _check(circuits: Circuits, law: RegressionLaw) -> None:
    if circuits.output_value.ndim != 3 or circuits.d != law.d:
        shape, got = f"(runs, heads, {law.d + 1})", tuple(circuits.output_value.shape)
        raise ValueError(f"circuits must have an output_value of shape {shape}; got {got}")


def _pieces(law: RegressionLaw, prompts: int, seed: int, heads: int) -> Iterator[Prompts]:
    """Held-out prompts of the stream (seed, "test", length), a piece at a time; the size of the pieces changes no number."""
    generator = stream(seed, "test", law.length)
    size = max(1, _PIECE // (law.length * max(heads, law.d + 1)))
    for first in range(0, prompts, size):
        rows = min(size, prompts - first)
        yield law.from_normals(generator.standard_normal((rows, law.normals_per_prompt)))


def _references(prompts: Prompts, law: RegressionLaw) -> torch.Tensor:
    """(4, B): risks given the examples' covariates, averaged over the query too, in the order of `_REFERENCES`.

    With S = X'X / L (of the centred X where the step is), a step of size eta has |I - eta S|^2 + s2 eta^2 tr S / L in units of s_beta^2.
    """
    x, eye = prompts.x, torch.eye(law.d, dtype=torch.float64)
    centred = x - x.mean(-2, keepdim=True)
    best, best_centred = float(closed_form.gd_optimal_step(law)), float(closed_form.debiased_gd_optimal_step(law))
    risks = []
    for data, step in ((x, 1.0), (x, best), (centred, best_centred)):
        S = data.mT @ data / law.length
        trace = S.diagonal(dim1=-2, dim2=-1).sum(-1)
        miss = (eye - step * S).square().sum((-2, -1))
        risks.append(law.beta_std**2 * (miss + law.noise_variance * step**2 * trace / law.length))
    return torch.stack([*risks, bayes_risk(x, law)])


def _mean(values: torch.Tensor) -> torch.Tensor:
    """(2, C): mean over prompts and its standard error, of values (C, B)."""
    return torch.stack([values.mean(-1), values.std(-1) / math.sqrt(values.shape[-1])])
