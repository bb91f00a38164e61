"""Long training: the studies behind the claims are what they say; silence outside the regime."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from attnbook.single_head.beyond_two_steps.claims import CLAIMS
from attnbook.single_head.beyond_two_steps.study import long_study
from attnbook.single_head.flow import signal_threshold
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
from attnlib.single_head.law import SignalNoiseLaw
from attnlib.single_head.population import log10_clean_error
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


test_bad_arguments = refusing(
    (long_study, (LAW, 10.0, 0.025), {"steps": 10, "step_size": 0.0, "draws": 1}),
    (lambda: long_study(LAW, -1.0, 0.025), "low_signal_norm must be"),
    (lambda: class_fates([LAW, PAPER_SIZE], [(0.1, 1)]), "laws must be"),
    (lambda: class_fates([LAW], []), "schedule must hold"),
    (lambda: course_of_training([], 0.1, 3), "laws must be"),
    (lambda: law_at(0.0, 10, 100, 0.1), "x must be"),
    (lambda: orthogonal_sample(SignalNoiseLaw(10, 11, 1.0)), "law must have two tokens and d >= n"),
    (lambda: log_steps(0), "steps must be"),
)
