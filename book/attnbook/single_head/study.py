"""Many draws of one law after two steps: all that the claims C1-C17 need."""

import math
from dataclasses import dataclass

import torch

from attnbook.single_head.error_bound import log10_error_bound
from attnbook.single_head.mean_field import mean_field
from attnlib import checks
from attnlib.single_head.closed_form import evaluate_two_steps
from attnlib.single_head.law import Sample, SignalNoiseLaw
from attnlib.single_head.population import clean_error_sampled, log10_error_of_scores, scores_of_fresh_data
from attnlib.single_head.summary import draws_in_chunks, join, require_two_tokens
from attnlib.single_head.training import gradient_descent


@dataclass(frozen=True)
class Geometry:
    """Norms and inner products of the training noise, (R, n) or (R,). G is the Gram matrix of the n noise tokens."""

    norms_squared: torch.Tensor  # (R, n), |xi_i|^2
    largest_overlap: torch.Tensor  # (R,), max |xi_i . xi_j| over i < j
    cross_terms: torch.Tensor  # (R, n), sum over j != i of y_i y_j xi_j . xi_i
    eigenvalues: torch.Tensor  # (R, 2), smallest and largest of G


@dataclass(frozen=True)
class TwoStepStudy:
    """What `two_step_study` measured. R = draws; last axis 2 is the class; n the sample."""

    law: SignalNoiseLaw
    step_size: float
    delta: float
    seed: int
    geometry: Geometry
    clean_counts: torch.Tensor  # (R, 2)
    noisy_counts: torch.Tensor  # (R, 2)
    signal_class: torch.Tensor  # (R, n)
    noisy: torch.Tensor  # (R, n)
    labels: torch.Tensor  # (R, n)
    closed: dict[str, torch.Tensor]  # preference and theta2 of TwoSteps
    noise_score1: torch.Tensor  # (R, n), y_i v_1 . xi_i
    margins1: torch.Tensor  # (R, n)
    margins2: torch.Tensor  # (R, n)
    attention2: torch.Tensor  # (R, n)
    p2_signal: torch.Tensor  # (R, 2), p_2 . mu_k
    p2_noise: torch.Tensor  # (R, n), p_2 . xi_i
    v2_signal: torch.Tensor  # (R, 2), s_k v_2 . mu_k
    v2_noise_norm: torch.Tensor  # (R,), |Pi v_2|
    # (R, n), coefficients of the trained v_2 on y_i xi_i; nan where n > d - 2, which leaves them open
    theta2: torch.Tensor
    log10_error2: torch.Tensor  # (R, 2), exact, per class, after two steps
    log10_bound2: torch.Tensor  # (R, 2)
    sampled_noisy_error2: torch.Tensor  # (R,), fraction of fresh points, label noise included, that are misclassified

    @property
    def draws(self) -> int:
        return self.margins1.shape[0]

    @property
    def mean_field(self):
        """The mean-field state with each draw's own label counts."""
        return mean_field(self.law, self.step_size, self.clean_counts, self.noisy_counts)

    def per_sample(self, clean: torch.Tensor, noisy: torch.Tensor) -> torch.Tensor:
        """Spread per-class values (R, 2) over samples (R, n) by class and by kind of label."""
        return torch.where(self.noisy, noisy.gather(1, self.signal_class), clean.gather(1, self.signal_class))

    def mean_over(self, kind: str, values: torch.Tensor) -> torch.Tensor:
        """Mean of (R, n) over the "clean" or "noisy" samples of each draw: (R,), nan where there are none."""
        mask = self._mask(kind)
        return (values * mask).sum(1) / mask.sum(1)

    def without(self, kind: str) -> torch.Tensor:
        """(R,), the draws in which no sample is "clean", or "noisy"."""
        return ~self._mask(kind).any(1)

    def _mask(self, kind: str) -> torch.Tensor:
        return self.noisy if checks.one_of("kind", kind, ("clean", "noisy")) == "noisy" else ~self.noisy


def _geometry(sample: Sample) -> Geometry:
    noise = sample.noise_tokens()[:, :, 0]
    gram = noise @ noise.mT
    norms = torch.diagonal(gram, dim1=1, dim2=2)
    apart = gram - torch.diag_embed(norms)
    spectrum = torch.linalg.eigvalsh(gram)
    return Geometry(
        norms_squared=norms.clone(),
        largest_overlap=apart.abs().amax((1, 2)),
        cross_terms=sample.labels * torch.einsum("rij,rj->ri", apart, sample.labels),
        eigenvalues=spectrum[:, [0, -1]],
    )


def _coefficients(sample: Sample, noise: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """theta (R, n) of v = sum_k lambda_k mu_k + sum_i theta_i y_i xi_i: noise avoids the signals, so G theta y = (xi_i . v)."""
    if sample.law.n > sample.law.d - 2:
        return torch.full_like(sample.labels, torch.nan)
    return sample.labels * torch.linalg.solve(noise @ noise.mT, torch.einsum("rnm,rm->rn", noise, v))


def measure_two_steps(sample: Sample, step_size: float, test_points: int) -> dict:
    """The fields of a `TwoStepStudy` (but law, step size, delta and seed) for the runs of one sample; `join` puts parts together."""
    path = gradient_descent(sample, step_size, 2)
    (_, v1, v2), p2 = path.v, path.p[2]
    closed = evaluate_two_steps(sample, step_size)
    noise = sample.noise_tokens()[:, :, 0]
    clean_counts, noisy_counts = sample.counts()
    sign = torch.tensor([1.0, -1.0], dtype=v2.dtype, device=v2.device)
    v2_on_signals = torch.einsum("rkm,rm->rk", sample.signals, v2)
    v2_noise = v2 - torch.einsum("rk,rkm->rm", v2_on_signals, sample.signals) / sample.law.signal_norm**2
    scores = scores_of_fresh_data(v2, p2, sample)
    sampled = clean_error_sampled(v2, p2, sample, test_points, label_noise=sample.law.label_noise)
    return {
        "geometry": _geometry(sample),
        "clean_counts": clean_counts, "noisy_counts": noisy_counts, "signal_class": sample.signal_class,
        "noisy": sample.noisy, "labels": sample.labels,
        "closed": {"preference": closed.preference, "theta2": closed.theta2},
        "noise_score1": sample.labels * torch.einsum("rnm,rm->rn", noise, v1),
        "margins1": path.margins[1], "margins2": path.margins[2], "attention2": path.attention_on_signal[2],
        "p2_signal": torch.einsum("rkm,rm->rk", sample.signals, p2),
        "p2_noise": torch.einsum("rnm,rm->rn", noise, p2),
        "v2_signal": sign * v2_on_signals,
        "v2_noise_norm": v2_noise.norm(dim=-1),
        "theta2": _coefficients(sample, noise, v2),
        "log10_error2": log10_error_of_scores(scores, per_class=True),
        "log10_bound2": log10_error_bound(scores),
        "sampled_noisy_error2": sampled.value,
    }  # fmt: skip


def two_step_study(
    law: SignalNoiseLaw, step_size: float, *, draws: int = 40, seed: int = 0, delta: float = 0.01,
    test_points: int = 1000,
) -> TwoStepStudy:  # fmt: skip
    """Draw, take two steps, and keep every number the claims look at.

    Args:
        law: two tokens.
        step_size: beta > 0.
        draws: R >= 1 independent training sets, the same as `summarise` draws.
        delta: the probability in the concentration bounds, in (0, 1).
        test_points: fresh points per draw for the sampled error.

    Raises ValueError for a bad argument before any work.
    """
    require_two_tokens(law, draws)
    step_size = checks.positive_number("step_size", step_size)
    if (
        law.signal_norms[0] != law.signal_norms[1]
        or law.cosine
        or law.class_probability != 0.5
        or not law.noise_avoids_signals
    ):
        raise ValueError(
            f"law must be the paper's, whose claims are judged here; got {law!r}: use summarise, or the stress module"
        )
    checks.probability("delta", delta, open_ends=True)
    checks.whole_number("test_points", test_points, at_least=1)
    joined = join([measure_two_steps(sample, step_size, test_points) for sample in draws_in_chunks(law, seed, draws)])
    return TwoStepStudy(law=law, step_size=step_size, delta=delta, seed=seed, **joined)


def log_term(study: TwoStepStudy) -> float:
    """L = log(2 n / delta)."""
    return math.log(2 * study.law.n / study.delta)
