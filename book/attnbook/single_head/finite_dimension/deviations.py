"""The trained quantities that the theorem bounds, computed from the Gram matrix of the noise: no vectors, no training loop."""

from dataclasses import dataclass

import torch

from attnlib.single_head.law import Sample


@dataclass(frozen=True)
class Deviations:
    """R draws. Letters of the theory chapter; cross terms are divided by d."""

    norm: torch.Tensor  # (R, n), |xi_i|^2/d - 1
    score: torch.Tensor  # (R, n), epsilon_i
    cross_v: torch.Tensor  # (R, n), y_i sum_j (1 + 2 g_j) y_j xi_j . xi_i / d over j != i
    cross_p: torch.Tensor  # (R, n), sum_j g_j gamma_j xi_j . xi_i / d over j != i
    frozen_v: torch.Tensor  # (R, n), cross_v with every weight at its mean-field value
    slopes: torch.Tensor  # (R, n), g_i
    value: torch.Tensor  # (R, 2), V_k
    query: torch.Tensor  # (R, 2), P_k
    noise: torch.Tensor  # (R, n), t_i
    logit: torch.Tensor  # (R, n)
    margins: torch.Tensor  # (R, n)
    v_norm: torch.Tensor  # (R,)
    p_norm: torch.Tensor  # (R,)


def two_step_deviations(sample: Sample, step_size: float) -> Deviations:
    """What two steps from zero make of each draw, by the closed forms. sample: two tokens, noise of variance 1."""
    law, labels, classes = sample.law, sample.labels, sample.signal_class
    noise = sample.noise_tokens()[:, :, 0]
    gram = noise @ noise.mT / law.d
    own = torch.diagonal(gram, dim1=1, dim2=2)
    apart = gram - torch.diag_embed(own)
    clean, noisy = sample.counts()
    a = step_size * law.d / (4 * law.n)
    unit = a * law.snr**2
    kind = labels * sample.true_labels
    pull = kind * unit * (clean - noisy).gather(1, classes)

    def across(weights: torch.Tensor) -> torch.Tensor:
        return torch.einsum("rij,rj->ri", apart, weights)

    score = own - 1 + labels * across(labels)
    slopes = torch.sigmoid(-(pull + a * (1 + score)) / 2)
    phi, psi = 1 + 2 * slopes, slopes * (pull - a * (1 + score))
    frozen = 1 + 2 * torch.sigmoid(-(pull + a) / 2)
    cross_v, cross_p = labels * across(labels * phi), across(psi)
    member = torch.stack([classes == 0, classes == 1], 1).to(gram.dtype)
    value, query = (unit * torch.einsum("rki,ri->rk", member, x) for x in (kind * phi, psi))
    t, logit = a * (phi * own + cross_v), query.gather(1, classes) + a * (psi * own + cross_p)
    weight = torch.sigmoid(logit)

    def length(weights: torch.Tensor) -> torch.Tensor:
        return a / law.d**0.5 * torch.einsum("ri,rij,rj->r", weights, gram, weights).sqrt()

    return Deviations(
        norm=own - 1, score=score, cross_v=cross_v, cross_p=cross_p, frozen_v=labels * across(labels * frozen), slopes=slopes,
        value=value, query=query, noise=t, logit=logit, margins=kind * weight * value.gather(1, classes) + (1 - weight) * t,
        v_norm=length(labels * phi), p_norm=length(psi),
    )  # fmt: skip
