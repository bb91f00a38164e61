"""The trap at finite d: the theorem's own map, its constants, and the head's boundaries on orthogonal noise."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from attnbook.single_head.beyond_two_steps.boundaries import balanced_sample, first_move
from attnbook.single_head.beyond_two_steps.finite_trap import class_scores, largest_share, trap_record
from attnbook.single_head.flow import flow_step
from attnbook.single_head.long_run import law_at, orthogonal_sample
from attnlib.single_head.law import SignalNoiseLaw
from attnlib.single_head.training import gradient_descent


def test_largest_share_solves_its_equation_and_is_the_mean_fields_without_noise():
    for pull in (0.3, 1.0, 4.0):
        assert largest_share(pull, 0.0, 0.0, 0.0) == pytest.approx(1 / (1 + pull), rel=1e-12)
        share = largest_share(pull, 0.5, 0.1, 0.05)
        assert pull * share * math.exp(0.5 * pull * share + 0.2) == pytest.approx((1 - share) * 0.95, rel=1e-9)
        assert share < 1 / (1 + pull)
    assert largest_share(0.0, 0.5, 0.1, 0.05) == 1
    assert largest_share(1.0, 0.5, 0.1, 1.0) == 0


def test_cross_terms_are_what_the_other_samples_add():
    """One step from zero, from the data alone: t_i = h/4 sum_j y_i y_j xi_i.xi_j / d, of which j = i is the own part."""
    law = SignalNoiseLaw(10, 300, 12.0, 0.3)
    sample = law.draw(2, 1)
    noise, y = sample.noise_tokens()[0, :, 0].numpy(), sample.labels[0].numpy()
    signed = (y[:, None] * noise) @ (y[:, None] * noise).T / law.d
    for scores, k in zip(class_scores(sample, 0.5, 1), (0, 1), strict=True):
        own = sample.signal_class[0].numpy() == k
        np.testing.assert_allclose(scores.own[1], 0.125 * signed.sum(1)[own], rtol=1e-10)
        np.testing.assert_allclose(
            scores.cross[1], 0.125 * (signed.sum(1) - np.diag(signed))[own], rtol=1e-9, atol=1e-12
        )
        assert scores.spread == pytest.approx(np.abs(np.diag(signed)[own] - 1).max())
        assert (scores.logits[1] == 0).all()


def test_scores_are_those_of_the_readable_trainer():
    law = law_at(1.3, 16, 2000, 0.25)
    sample = law.draw(4, 2)
    path = gradient_descent(sample, 0.25 * law.n / law.d, 30)
    found = class_scores(sample, 0.25, 30)
    weights = path.attention_on_signal[:, 1, sample.signal_class[1] == 1].numpy()
    np.testing.assert_allclose(1 / (1 + np.exp(-found[-1].logits)), weights, rtol=1e-8)
    clean = (~sample.noisy[1] & (sample.signal_class[1] == 1)).sum().item()
    assert found[-1].x == pytest.approx(law.signal_norm**2 * clean / law.d)


def test_on_orthogonal_noise_the_smaller_trap_is_that_of_the_mean_field():
    """No cross terms; the samples of a class are equal, and x < 1 is inside after the first step with a small h."""
    sample = orthogonal_sample(law_at(0.6, 20, 1000, 0.2), seed=1)
    for scores in class_scores(sample, 0.05, 200):
        assert np.abs(scores.cross).max() < 1e-10
        record = trap_record(scores, [1])
        if scores.x < 0.8:
            assert record.entry == 1
            assert record.worst <= 1e-12
            assert not record.on_signal


def test_balanced_samples_follow_the_six_variables():
    """Two steps of the head itself against the map."""
    sample = balanced_sample(1.7, 0.2)
    assert sample.counts()[0].tolist() == [[16, 16]]
    assert sample.law.signal_norm**2 * 16 / sample.law.d == pytest.approx(1.7)
    state = [0.0] * 6
    for _ in range(2):
        state = flow_step(state, 1e-3, 1.7, 0.25)
    assert first_move([1.7], [0.2])[0] == pytest.approx((state[3] - state[4]) / 4, rel=1e-6)
    with pytest.raises(ValueError, match="multiple of 1/20"):
        balanced_sample(1.7, 0.22)


def test_a_class_without_clean_samples_is_left_out():
    sample = orthogonal_sample(law_at(0.6, 6, 100, 0.2), seed=1)
    zeros = torch.zeros_like(sample.signal_class)
    whole = replace(
        sample, signal_class=zeros, true_labels=torch.ones_like(sample.labels), labels=torch.ones_like(sample.labels)
    )
    assert len(class_scores(whole, 0.1, 2)) == 1
