r"""Two steps under other noise laws: the exact error formula against fresh vectors, and the claims C1-C16.

**Fresh points.** A fresh vector acts through $v\cdot\xi = R\,(A^\top\Pi v)\cdot z$ and $p\cdot\xi$. So one set of vectors z
serves every draw and every law with the same entries, and each point is counted under both classes. Given the training sets, the
points are independent: the standard error of a mean over points and draws is that of the points' own means over draws.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from attnbook.open_questions.noise_laws.covariance import AutoRegressive, Spiked
from attnbook.open_questions.noise_laws.laws import NoiseLaw, log10_error, scores_at_scale_one, seen_by_noise
from attnbook.open_questions.noise_laws.parts import Entries, Rademacher, RadialT, Sparse, StudentT, Uniform
from attnbook.single_head.bound_by_bound.claims import CLAIMS as BOUNDS
from attnbook.single_head.study import TwoStepStudy, measure_two_steps
from attnbook.single_head.two_steps.claims import CLAIMS as TWO_STEPS
from attnlib import checks
from attnlib.randomness import stream
from attnlib.single_head.closed_form import two_steps
from attnlib.single_head.law import Sample
from attnlib.single_head.population import log10_clean_error, noisy_error
from bookkit.claims import Check, Verdict

LAWS: dict[str, dict] = {
    "Gaussian": {},
    "Rademacher": {"entries": Rademacher()},
    "uniform": {"entries": Uniform()},
    "t10 entries": {"entries": StudentT(10.0)},
    "t5 entries": {"entries": StudentT(5.0)},
    "t3 entries": {"entries": StudentT(3.0)},
    "sparse 10 %": {"entries": Sparse(0.1)},
    "sparse 1 %": {"entries": Sparse(0.01)},
    "radial t10": {"scale": RadialT(10.0)},
    "radial t5": {"scale": RadialT(5.0)},
    "radial t3": {"scale": RadialT(3.0)},
    "AR(1) .5": {"covariance": AutoRegressive(0.5)},
    "AR(1) .9": {"covariance": AutoRegressive(0.9)},
    "spike 50": {"covariance": Spiked(50.0)},
    "spike 500": {"covariance": Spiked(500.0)},
    "not orthogonal": {"noise_avoids_signals": False},
}
_BLOCK = 2000  # fresh vectors held at once


def strength_to_norm(strength: float, n: int, d: int) -> float:
    """The signal norm at which n SNR^2 has the given value."""
    return math.sqrt(checks.positive_number("strength", strength) * d / n)


def law_named(name: str, n: int, d: int, strength: float, label_noise: float) -> NoiseLaw:
    """A row of `LAWS` at n SNR^2 = strength. Raises ValueError for an unknown name."""
    checks.one_of("name", name, tuple(LAWS))
    return NoiseLaw(n, d, strength_to_norm(strength, n, d), label_noise, **LAWS[name])


# --- formula against fresh vectors -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ErrorRow:
    """One law at one signal strength after two steps. Per draw (R,) unless noted."""

    law: NoiseLaw
    strength: float  # n SNR^2
    white: torch.Tensor  # the formula for white Gaussian noise
    formula: torch.Tensor  # with the law's own covariance, averaged over its scale
    sampled: torch.Tensor  # share of fresh points misclassified
    sampled_mean: float
    standard_error: float  # of sampled_mean, given the training sets
    train_accuracy: torch.Tensor
    points: int  # fresh points behind sampled_mean

    @property
    def gap(self) -> float:
        """Mean formula minus mean sampled error."""
        return self.formula.mean().item() - self.sampled_mean

    @property
    def white_gap(self) -> float:
        return self.white.mean().item() - self.sampled_mean


@dataclass(frozen=True)
class _Trained:
    """Two steps of one law at one strength, ready to meet fresh vectors."""

    name: str
    strength: float
    law: NoiseLaw
    logit: torch.Tensor  # (R, 2)
    value: torch.Tensor
    v_seen: torch.Tensor  # (R, d)
    p_seen: torch.Tensor
    white: torch.Tensor
    formula: torch.Tensor
    train_accuracy: torch.Tensor


def _with_law(sample: Sample, law: NoiseLaw) -> Sample:
    """The same draws under a law that differs in the signal norm only."""
    ratio = law.signal_norm / sample.law.signal_norm
    tokens, runs = sample.tokens.clone(), torch.arange(sample.runs).unsqueeze(1)
    tokens[runs, torch.arange(law.n), sample.signal_position] *= ratio
    return replace(sample, law=law, tokens=tokens, signals=ratio * sample.signals)


def _train(name: str, strength: float, sample: Sample, step_size: float) -> _Trained:
    steps = two_steps(sample, step_size)
    v, p = steps.v2, steps.p2
    scores = scores_at_scale_one(v, p, sample)
    scored = torch.einsum("rntm,rcm->rntc", sample.tokens, torch.stack([v, p], 1))
    weight = torch.softmax(scored[..., 1], -1)
    fitted = sample.labels * (weight * scored[..., 0]).sum(-1) > 0
    return _Trained(
        name, strength, sample.law, scores.logit, scores.value, seen_by_noise(v, sample), seen_by_noise(p, sample),
        white=10 ** log10_clean_error(v, p, sample), formula=10 ** log10_error(v, p, sample),
        train_accuracy=fitted.double().mean(-1),
    )  # fmt: skip


def _count_errors(group: Sequence[_Trained], entries: Entries, points: int, seed: int) -> list[ErrorRow]:
    """Every member sees the same fresh entries z; scales have their own stream."""
    rng, scale_rng = stream(seed, "test"), np.random.Generator(stream(seed, "test").bit_generator.jumped())
    directions = torch.cat([torch.cat([t.v_seen, t.p_seen]) for t in group]).T.contiguous()  # (d, columns)
    d = directions.shape[0]
    ends = np.cumsum([2 * len(t.v_seen) for t in group])
    per_point = [[] for _ in group]
    per_draw = [torch.zeros(len(t.v_seen), dtype=torch.float64) for t in group]
    sign = torch.tensor([1.0, -1.0], dtype=torch.float64)
    for first in range(0, points, _BLOCK):
        size = min(_BLOCK, points - first)
        seen = torch.as_tensor(entries.draw(rng, (size, d))) @ directions
        for i, (trained, end) in enumerate(zip(group, ends, strict=True)):
            runs = len(trained.v_seen)
            scores = seen[:, end - 2 * runs : end]
            if trained.law.scale is not None:
                scores = scores * torch.as_tensor(trained.law.scale.draw(scale_rng, (size, 1)))
            v_noise, p_noise = scores[:, :runs, None], scores[:, runs:, None]
            # s_k f / (1 - weight): its sign decides; one half for a tie.
            output = torch.exp(trained.logit - p_noise) * trained.value + sign * v_noise
            wrong = ((output < 0).double() + 0.5 * (output == 0).double()).mean(-1)  # (size, R), over both classes
            per_point[i].append(wrong.mean(1))
            per_draw[i] += wrong.sum(0)
    rows = []
    for trained, means, sums in zip(group, per_point, per_draw, strict=True):
        means = torch.cat(means)
        rows.append(
            ErrorRow(
                trained.law, trained.strength, trained.white, trained.formula, sums / points, means.mean().item(),
                means.std().item() / math.sqrt(points), trained.train_accuracy, points,
            )
        )  # fmt: skip
    return rows


def error_rows(
    n: int, d: int, label_noise: float, step_size: float, *, strengths: Sequence[float] = (0.5, 4.5), draws: int = 10,
    points: int = 16_000, seed: int = 0, names: Sequence[str] = tuple(LAWS),
) -> dict[str, list[ErrorRow]]:  # fmt: skip
    """Two steps and fresh points for every law named (all of `LAWS`), one row per n SNR^2 in `strengths`.

    Raises ValueError for a bad argument before any work.
    """
    checks.whole_number("draws", draws, at_least=2)
    checks.whole_number("points", points, at_least=2)
    checks.positive_number("step_size", step_size)
    laws = {(name, s): law_named(name, n, d, s, label_noise) for name in names for s in strengths}
    groups: dict[str, list[_Trained]] = {}
    for (name, strength), law in laws.items():
        if strength == strengths[0]:
            drawn = law.draw(seed, draws, coordinates="dense")  # once for every strength: noise costs the most
        trained = _train(name, strength, _with_law(drawn, law), step_size)
        groups.setdefault(repr(law.entries) if not law.entries.gaussian else "normal", []).append(trained)
    found: dict[str, list[ErrorRow]] = {name: [] for name in names}
    for group in groups.values():
        for trained, row in zip(group, _count_errors(group, group[0].law.entries, points, seed), strict=True):
            found[trained.name].append(row)
    return found


# --- claims C1-C16 ---------------------------------------------------------------------------------------------------------


def study_of(row: ErrorRow, step_size: float, seed: int) -> TwoStepStudy:
    """What the judges of C1-C16 look at, from the draws of `row`; their error formula is the one for white Gaussian noise.

    The error with label noise is the row's share of misclassified fresh points, its labels flipped with probability eta.
    """
    draws, law = len(row.sampled), row.law
    found = measure_two_steps(law.draw(seed, draws, coordinates="dense"), step_size, 1)
    found["sampled_noisy_error2"] = noisy_error(row.sampled, law.label_noise)
    return TwoStepStudy(law=law, step_size=step_size, delta=0.01, **found)


def claim_matrix(rows: dict[str, list[ErrorRow]], step_size: float, *, seed: int = 0):
    """law -> claim -> `Check` by the judges of pages I.2 and I.10, on the draws of `error_rows` at its last strength."""
    studies = {name: study_of(row[-1], step_size, seed) for name, row in rows.items()}
    return {
        name: {check.claim.id: check for check in [*BOUNDS.check(study), *TWO_STEPS.check(study)]}
        for name, study in studies.items()
    }


def broken(matrix: dict[str, dict[str, Check]], name: str) -> set[str]:
    """Claims that fail under the law and hold for Gaussian noise of the same size."""
    return {
        id
        for id, check in matrix[name].items()
        if check.verdict is Verdict.FAILS and matrix["Gaussian"][id].verdict is Verdict.HOLDS
    }
