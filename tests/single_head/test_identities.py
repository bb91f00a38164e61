"""Equations of Part I's theory that hold in every draw: each on data of its own, and refused where it is not one."""

from dataclasses import replace

import pytest
import torch

from attnbook.single_head.public_script.study import script_study
from attnlib.single_head.law import SignalNoiseLaw
from attnlib.single_head.model import forward
from attnlib.single_head.population import log10_clean_error
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
