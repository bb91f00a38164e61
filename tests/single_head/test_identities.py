"""Equations of Part I's theory that hold in every draw: each on data of its own, and refused where it is not one."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from attnbook.single_head.a_public_script.study import script_study
from attnlib.single_head.errors import log10_clean_error
from attnlib.single_head.law import SignalNoiseLaw
from attnlib.single_head.model import forward
from attnlib.single_head.training import gradient_descent

LAW = SignalNoiseLaw(12, 60, 4.0, 0.3)
STEP = 0.5
SAMPLE = LAW.draw(3, 4, coordinates="dense")
PATH = gradient_descent(SAMPLE, STEP, 3)


def test_the_order_of_the_tokens_does_not_matter():
    outputs = [forward(x, PATH.v[3], PATH.p[3]).output for x in (SAMPLE.tokens, SAMPLE.tokens.flip(2))]
    torch.testing.assert_close(outputs[1], outputs[0], rtol=1e-12, atol=1e-14)
    moved = forward(SAMPLE.tokens.flip(1), PATH.v[3], PATH.p[3]).output  # the samples in another order
    assert not torch.allclose(moved, outputs[0])


def test_attention_is_uniform_after_one_step_and_not_after_two():
    assert torch.count_nonzero(PATH.p[1]) == 0
    assert torch.equal(PATH.attention_on_signal[1], torch.full_like(SAMPLE.labels, 0.5))
    assert (PATH.attention_on_signal[2] - 0.5).abs().min() > 1e-4


def test_the_signal_score_after_one_step_counts_the_labels_of_the_class():
    clean, noisy = SAMPLE.counts()
    b = STEP * LAW.signal_norm**2 * (clean - noisy) / (4 * LAW.n)
    expected = torch.where(SAMPLE.noisy, -1, 1) * b.gather(1, SAMPLE.signal_class)
    signal = torch.take_along_dim(SAMPLE.signals, SAMPLE.signal_class.unsqueeze(-1), dim=1)
    score = SAMPLE.labels * torch.einsum("rnm,rm->rn", signal, PATH.v[1])
    torch.testing.assert_close(score, expected, rtol=1e-11, atol=1e-13)


def test_one_step_has_the_error_and_the_fit_of_its_proposition():
    """prop-one-step: parts 1 and 2 on trained heads, from the noise alone; part 3 by its own frequency, near its border."""
    own = SAMPLE.noise_tokens()[:, :, 0]
    noise = (SAMPLE.labels.unsqueeze(-1) * own).sum(1)
    r = noise.norm(dim=-1) / (LAW.n * LAW.d) ** 0.5
    clean, noisy = SAMPLE.counts()
    kappa = LAW.signal_norm**2 / LAW.d * (clean - noisy)
    error = torch.special.log_ndtr(-kappa / r.unsqueeze(1) * (LAW.d / LAW.n) ** 0.5) / math.log(10)
    found = log10_clean_error(PATH.v[1], PATH.p[1], SAMPLE, per_class=True)
    torch.testing.assert_close(found, error, rtol=1e-11, atol=1e-12)

    overlap = SAMPLE.labels * torch.einsum("rnm,rm->rn", own, noise) / LAW.d  # 1 + eps
    fitted = torch.where(SAMPLE.noisy, -1, 1) * kappa.gather(1, SAMPLE.signal_class) + overlap > 0
    margins = SAMPLE.labels * forward(SAMPLE.tokens, PATH.v[1], PATH.p[1]).output
    assert torch.equal(fitted, margins > 0)
    assert not fitted.all()

    rng, n, d, kappa, u = np.random.default_rng(4), 20, 2_500, 0.5, 8.0
    b = 2 * math.sqrt(u / d) + 2 * (u + 1) / d
    assert b + math.sqrt((1 + b) * 2 * n * u / d) < 1 - kappa
    eta = rng.standard_normal((100, n, d))
    eps = np.einsum("rid,rd->ri", eta, eta.sum(1)) / d - 1
    assert (
        eps - kappa > -1
    ).all()  # a flipped sample of a class with kappa; fails with probability 42 exp(-8) a draw at most
    assert (eps - 1 > -1).mean() < 0.9  # at kappa = 1 many are missed


def test_labels_that_all_change_sign_turn_the_clean_error_round():
    turned = replace(SAMPLE, labels=-SAMPLE.labels, true_labels=SAMPLE.true_labels)
    other = gradient_descent(turned, STEP, 3)
    torch.testing.assert_close(other.v[3], -PATH.v[3], rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(other.p[3], PATH.p[3], rtol=1e-12, atol=1e-14)
    # The errors of few samples in few dimensions are not so near 0 and 1 that a sum would hide one of them.
    errors = [10 ** log10_clean_error(path.v[3], path.p[3], SAMPLE) for path in (PATH, other)]
    assert 1e-6 < errors[0].min()
    assert errors[0].max() < 0.99
    torch.testing.assert_close(errors[0] + errors[1], torch.ones(4, dtype=torch.float64), rtol=0, atol=1e-11)


def test_a_gradient_of_the_wrong_sign_exchanges_the_two_tokens():
    attention = script_study(LAW, STEP, draws=5, seed=2).attention
    torch.testing.assert_close(attention["sign"], 1 - attention["right"], rtol=1e-12, atol=1e-14)
    assert attention["right"].max() > 0.55 > 0.45 > attention["diagonal"].min()
    with pytest.raises(AssertionError):
        torch.testing.assert_close(attention["diagonal"], 1 - attention["right"], rtol=1e-2, atol=1e-2)
