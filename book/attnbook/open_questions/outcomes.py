r"""Steps of matched length for every update rule, and where training by a rule ends: each class on its signal or on noise.

Every rule starts from zero, where the first step of v has the direction of $S = \sum_i y_i\sum_t x_{it}$ (or of its signs); step sizes
are matched there.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch

from attnbook.single_head.long_run import blocks, class_attention, stacked
from attnlib.single_head.errors import log10_clean_error
from attnlib.single_head.training import train_heads

UNIT = 5.0  # beta d / n of gradient descent


def matched_step(sample, rule, unit=UNIT):
    """Step size with which the rule's first step of v is as long as gradient descent's with beta = unit n/d, in the mean over runs.

    Mini-batches keep gradient descent's own beta.
    """
    n, d = sample.law.n, sample.law.d
    beta = unit * n / d
    if not rule.prepare and rule.moments is None:
        return beta
    sums = torch.einsum("rn,rntm->rm", sample.labels, sample.tokens)
    length = beta / (2 * n * sample.law.tokens) * sums.norm(dim=-1).mean().item()
    return length if rule.prepare in ("joint", "blocks") else length / math.sqrt(d)


@dataclass(frozen=True)
class Outcome:
    """Where R runs ended: arrays (R, 2) per class, (R,) per run."""

    x: np.ndarray  # rho^2 |C_k| / d with the class's own count
    flipped: np.ndarray  # its own share of flips
    attention: np.ndarray  # mean attention of its clean samples on the signal
    log10_error: np.ndarray  # (R,)
    train_accuracy: np.ndarray  # (R,)
    p_signal: np.ndarray  # p . mu_k

    @property
    def on_signal(self):
        return self.attention > 0.5


def outcome_of(samples, v, p, margins, weights):
    """Of the last step of one head: v, p (R, m), margins and weights (R, n), R over all samples in turn."""
    whole, errors, x = stacked(samples), [], []
    for sample, block in zip(samples, blocks(samples), strict=True):
        errors.append(log10_clean_error(v[block], p[block], sample))
        x.append(sample.law.signal_norm**2 * sample.counts()[0] / sample.law.d)
    clean, noisy = whole.counts()
    return Outcome(
        x=torch.cat(x).numpy(),
        flipped=(noisy / (clean + noisy)).numpy(),
        attention=class_attention(whole, weights).numpy(),
        log10_error=torch.cat(errors).numpy(),
        train_accuracy=(margins > 0).double().mean(-1).numpy(),
        p_signal=torch.einsum("rkm,rm->rk", whole.signals, p).numpy(),
    )


def finished(samples, path):
    return outcome_of(samples, path.v[-1, :, 0], path.p[-1, :, 0], path.margins[-1], path.attention_on_signal[-1, :, 0])


def rule_fates(laws, rule, size, steps, *, draws=10, seed=0, first_run=0):
    """Train `draws` training sets of every law by a rule; law i takes the runs first_run + i*draws, ... of the seed.

    size: beta d / n for rules that are linear in the gradient; for normalised ones the length of a step over the length of gradient
    descent's first step with beta = n/d.
    """
    samples = [law.draw(seed, draws, first_run=first_run + i * draws) for i, law in enumerate(laws)]
    step = size * matched_step(samples[0], rule, 1.0)
    return finished(samples, train_heads(stacked(samples), step, steps, rule=rule, record=[]))
