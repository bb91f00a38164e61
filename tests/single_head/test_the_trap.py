"""Long training: the studies are what they say, silence outside the regime; the trap at finite d against its own map."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from attnbook.single_head.flow import flow_step, signal_threshold
from attnbook.single_head.long_run import (
    class_fates,
    collected_moves,
    course_of_training,
    law_at,
    log_steps,
    margin_course,
    orthogonal_sample,
    started_at_random,
    train,
    without_flips,
)
from attnbook.single_head.the_trap.claims import CLAIMS
from attnbook.single_head.the_trap.finite_trap import class_scores, largest_share, trap_record
from attnbook.single_head.the_trap.study import balanced_sample, first_move
from attnlib.single_head.errors import log10_clean_error
from attnlib.single_head.law import SignalNoiseLaw
from attnlib.single_head.training import gradient_descent
from tests.bad_input import refusing

LAW = SignalNoiseLaw(100, 20_000, 30.0, 0.05)
PAPER_SIZE = SignalNoiseLaw(200, 40_000, 30.0, 0.05)


def test_courses_are_single_runs_of_the_readable_trainer():
    law = SignalNoiseLaw(20, 2000, 15.0, 0.1)
    low = SignalNoiseLaw(20, 2000, 6.0, 0.1)
    both = course_of_training((law, low), 0.05, 30, draws=3, record=[2, 30])
    for course, own in zip(both, (law, low), strict=True):
        sample = own.draw(0, 1, first_run=2)
        path = gradient_descent(sample, 0.05, 30, record=[2])
        assert course.log10_error[-1, 2] == pytest.approx(
            log10_clean_error(path.v[-1], path.p[-1], sample).item(), rel=1e-9
        )
        assert course.train_accuracy[0, 2] == pytest.approx(path.train_accuracy[0].item())


def test_schedules_chain_and_fates_are_of_single_classes():
    law = law_at(2.0, 20, 5000, 0.1)
    sample = law.draw(4, 2)
    once = train(sample, [(0.02, 30)])
    torch.testing.assert_close(train(sample, [(0.02, 10), (0.02, 20)]).v, once.v, rtol=1e-9, atol=1e-12)
    fates = class_fates([law], [(0.02, 30)], draws=2, seed=4)
    member = (sample.signal_class[1] == 1) & ~sample.noisy[1]
    assert fates.attention[1, 1] == pytest.approx(once.attention_on_signal[-1, 1, member].mean().item())
    assert fates.x[1, 1] == pytest.approx(law.signal_norm**2 * member.sum().item() / 5000)
    assert fates.flipped[1, 1] == pytest.approx(1 - member.sum().item() / (sample.signal_class[1] == 1).sum().item())
    assert fates.threshold[1, 1] == pytest.approx(signal_threshold(fates.flipped[1, 1]), rel=5e-3)


def test_orthogonal_sample_has_the_gram_matrix_of_the_mean_field():
    law = SignalNoiseLaw(6, 50, 3.0)
    noise = orthogonal_sample(law).noise_tokens()[0, :, 0]
    torch.testing.assert_close(noise @ noise.mT, 50 * torch.eye(6, dtype=torch.float64))
    assert (noise[:, :2] == 0).all()


def test_moves_stand_beside_the_class_of_their_own_sample():
    trainings = [
        (own, 2.0, gradient_descent(sample, 0.02, 3).attention_on_signal)
        for sample, own in without_flips((0.5, 3.0), 2)
    ]
    x, moves, sizes = collected_moves(trainings)
    own, _, weights = trainings[1]
    torch.testing.assert_close(moves[40 + 20 + 7], weights[:, 1, 7].diff())
    assert x[40 + 20 + 7] == own[1, 7]
    assert own[1].min() < 3.0 < own[1].max()
    assert (sizes == 2.0).all()


def test_normalised_margins_never_exceed_one_and_zero_starts_are_zero_starts():
    law = SignalNoiseLaw(20, 3000, 30.0, 0.1)
    steps, ratio, best = margin_course(law, 0.03, 200, draws=2)
    assert (ratio <= 1 + 1e-9).all()
    assert ratio[-1].min() > ratio[0].max()
    assert len(best) == 2
    assert steps[-1] == 200
    zero, tiny = started_at_random(law, (0.0, 1e-6), 0.03, 20, draws=2)
    np.testing.assert_allclose(tiny.log10_error[-1], zero.log10_error[-1], rtol=1e-4)


@pytest.mark.parametrize(("id", "start"), [("L12", "needs x > 1.5 x* = 1.63; here 1.05"), ("L11", "needs x < 0.5")])
def test_below_the_threshold_claims_of_high_snr_are_outside_their_regime(id, start):
    study = SimpleNamespace(law=SignalNoiseLaw(100, 20_000, 21.0, 0.05), low_law=LAW)
    assert CLAIMS[id].violation(study).startswith(start)


def test_log_steps():
    assert log_steps(1) == [1]
    assert log_steps(100, 1) == [1, 2, 3, 10, 100]
    assert log_steps(10**5)[-1] == 10**5


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
        np.testing.assert_allclose(scores.cross, 0, atol=1e-10)
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


def test_a_class_without_clean_samples_is_left_out():
    sample = orthogonal_sample(law_at(0.6, 6, 100, 0.2), seed=1)
    zeros = torch.zeros_like(sample.signal_class)
    whole = replace(
        sample, signal_class=zeros, true_labels=torch.ones_like(sample.labels), labels=torch.ones_like(sample.labels)
    )
    assert len(class_scores(whole, 0.1, 2)) == 1


test_bad_input = refusing(
    (lambda: class_fates([LAW, PAPER_SIZE], [(0.1, 1)]), "laws must be"),
    (lambda: class_fates([LAW], []), "schedule must hold"),
    (lambda: course_of_training([], 0.1, 3), "laws must be"),
    (lambda: law_at(0.0, 10, 100, 0.1), "x must be"),
    (lambda: orthogonal_sample(SignalNoiseLaw(10, 11, 1.0)), "law must have two tokens and d >= n"),
    (lambda: log_steps(0), "steps must be"),
)
