"""Many draws of one law after two steps: what the claims C1-C17 look at, and the words in which several of them are judged."""

import math
from types import SimpleNamespace

import torch

from attnbook.single_head.error_bound import log10_error_bound
from attnbook.single_head.mean_field import mean_field
from attnlib.single_head.closed_form import evaluate_two_steps
from attnlib.single_head.errors import clean_error_sampled, log10_error_of_scores, scores_of_fresh_data
from attnlib.single_head.summary import draws_in_chunks, join
from attnlib.single_head.training import gradient_descent
from bookkit.rules import NothingToMeasure, agrees, both


class TwoStepStudy(SimpleNamespace):
    """What was measured. R = draws; last axis 2 is the class, n the sample; `noisy` and `signal_class` (R, n) say which samples are."""

    @property
    def mean_field(self):
        """The mean-field state with each draw's own label counts."""
        return mean_field(self.law, self.step_size, self.clean_counts, self.noisy_counts)

    def per_sample(self, clean, noisy):
        """Spread per-class values (R, 2) over samples (R, n) by class and by kind of label."""
        return torch.where(self.noisy, noisy.gather(1, self.signal_class), clean.gather(1, self.signal_class))

    def mean_over(self, kind, values):
        """Mean of (R, n) over the "clean" or "noisy" samples of each draw: (R,), nan where there are none."""
        mask = self._mask(kind)
        return (values * mask).sum(1) / mask.sum(1)

    def without(self, kind):
        """(R,), the draws in which no sample is "clean", or "noisy"."""
        return ~self._mask(kind).any(1)

    def _mask(self, kind):
        return self.noisy if kind == "noisy" else ~self.noisy


def _coefficients(sample, noise, v):
    """theta (R, n) of v = sum_k lambda_k mu_k + sum_i theta_i y_i xi_i: noise avoids the signals, so G theta y = (xi_i . v)."""
    if sample.law.n > sample.law.d - 2:
        return torch.full_like(sample.labels, torch.nan)
    return sample.labels * torch.linalg.solve(noise @ noise.mT, torch.einsum("rnm,rm->rn", noise, v))


def measure_two_steps(sample, step_size, test_points):
    """What a `TwoStepStudy` holds (but law, step size and delta) of the runs of one sample; `join` puts parts together."""
    path = gradient_descent(sample, step_size, 2)
    (_, v1, v2), p2 = path.v, path.p[2]
    clean_counts, noisy_counts = sample.counts()  # (R, 2)
    sign = torch.tensor([1.0, -1.0], dtype=v2.dtype, device=v2.device)
    v2_on_signals = torch.einsum("rkm,rm->rk", sample.signals, v2)
    v2_noise = v2 - torch.einsum("rk,rkm->rm", v2_on_signals, sample.signals) / sample.law.signal_norm**2
    scores = scores_of_fresh_data(v2, p2, sample)
    noise = sample.noise_tokens()[:, :, 0]
    gram = noise @ noise.mT
    norms = torch.diagonal(gram, dim1=1, dim2=2)
    apart = gram - torch.diag_embed(norms)
    return {
        "clean_counts": clean_counts, "noisy_counts": noisy_counts,
        "signal_class": sample.signal_class, "noisy": sample.noisy,  # (R, n)
        # The noise: (R, n), |xi_i|^2; (R,), max |xi_i . xi_j| over i < j; (R, n), sum over j != i of y_i y_j xi_j . xi_i; and
        # (R, 2), the smallest and the largest eigenvalue of its Gram matrix.
        "norms_squared": norms.clone(),
        "largest_overlap": apart.abs().amax((1, 2)),
        "cross_terms": sample.labels * torch.einsum("rij,rj->ri", apart, sample.labels),
        "eigenvalues": torch.linalg.eigvalsh(gram)[:, [0, -1]],
        # One step, (R, n): gamma of the closed form, y_i v_1 . xi_i, and the margins.
        "preference": evaluate_two_steps(sample, step_size).preference,
        "noise_score1": sample.labels * torch.einsum("rnm,rm->rn", noise, v1),
        "margins1": path.margins[1],
        # Two steps, (R, n), and (R, 2) on the signals: s_k v_2 . mu_k, p_2 . mu_k.
        "margins2": path.margins[2], "attention2": path.attention_on_signal[2],
        "p2_signal": torch.einsum("rkm,rm->rk", sample.signals, p2),
        "p2_noise": torch.einsum("rnm,rm->rn", noise, p2),
        "v2_signal": sign * v2_on_signals,
        "v2_noise_norm": v2_noise.norm(dim=-1),  # (R,), |Pi v_2|
        # (R, n), of the trained v_2 on y_i xi_i; nan where n > d - 2, which leaves them open
        "theta2": _coefficients(sample, noise, v2),
        "log10_error2": log10_error_of_scores(scores, per_class=True),  # (R, 2), exact
        "log10_bound2": log10_error_bound(scores),
        # (R,), fraction of fresh points, label noise included, that are misclassified
        "sampled_noisy_error2": clean_error_sampled(v2, p2, sample, test_points, label_noise=sample.law.label_noise).value,
    }  # fmt: skip


def two_step_study(law, step_size, *, draws=40, seed=0, delta=0.01, test_points=1000):
    """Draw, take two steps, and keep every number the claims look at.

    Args:
        law: the paper's, two tokens.
        step_size: beta.
        draws: R independent training sets, the same as `summarise` draws.
        delta: the probability in the concentration bounds, in (0, 1).
        test_points: fresh points per draw for the sampled error.
    """
    joined = join([measure_two_steps(sample, step_size, test_points) for sample in draws_in_chunks(law, seed, draws)])
    return TwoStepStudy(law=law, step_size=step_size, delta=delta, **joined)


# --- bounds and judges that pages I.2 and I.10 share -----------------------------------------------------------------------


def log_term(study):
    """L = log(2 n / delta)."""
    return math.log(2 * study.law.n / study.delta)


def norm_tolerance(study):
    """C1: 2 sqrt(L/d) + 2 L/d, plus 2/d because the noise lives in d - 2 dimensions."""
    ratio = log_term(study) / study.law.d
    return 2 * math.sqrt(ratio) + 2 * ratio + 2 / study.law.d


def noise_tolerance(study):
    r"""$\varepsilon$ of C7: norms (C1) and cross terms (C3a) together; fails with probability at most 2 delta per draw."""
    law, norm = study.law, norm_tolerance(study)
    return norm + math.sqrt(2 * law.n * (1 + norm) * log_term(study) / law.d)


def noise_square(study):
    """E|xi|^2: d, or 1 for normalised noise."""
    return study.law.d * study.law.noise_std**2


def scale_a(study):
    return study.step_size * noise_square(study) / (4 * study.law.n)


def finite_d(study):
    """What mean field leaves out: terms of second order in the noise value's fluctuation, variance (n + 1)/d."""
    return {"allowance": (study.law.n + 1) / study.law.d, "allowance_text": "finite d: (n + 1)/d"}


def both_kinds(study, measured, predicted):
    """Draw means over clean and over flipped samples, each against its prediction; a kind that fewer than two draws have is left out."""
    silent = {kind: study.without(kind) for kind in ("clean", "noisy")}
    kinds = [kind for kind, mask in silent.items() if (~mask).sum() >= 2]
    if not kinds:
        raise NothingToMeasure("needs clean or flipped samples in 2 draws")
    means = {kind: (study.mean_over(kind, measured), study.mean_over(kind, predicted)) for kind in kinds}
    return both(*(agrees(*means[kind], silent=silent[kind], **finite_d(study)) for kind in kinds))
