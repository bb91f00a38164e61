"""The second clock: exact fresh attention against dense fresh data, crossings, the flow against plain descent, fits."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from attnbook.token_selection.setting.descent import gradient_descent
from attnbook.token_selection.time_laws.delay import (
    along_time,
    attention_on_relevant,
    course,
    delay_strength,
    delay_times,
    fit_times,
    laws_of_strength,
    selection_times,
)
from attnlib.token_selection.gram import draw_gram
from attnlib.token_selection.law import Start, TokenLaw
from attnlib.token_selection.population import population_along
from attnlib.token_selection.training import train
from tests.bad_input import refusing

LAW = TokenLaw(n=10, d=4000, tokens=5, signal_norm=20.0)


def test_strength_and_its_laws():
    assert delay_strength(LAW) == pytest.approx(4000 / (10 * 400))
    laws = laws_of_strength(LAW, [0.5, 3])
    assert [law.d for law in laws] == [2000, 12000]
    assert [delay_strength(law) for law in laws] == pytest.approx([0.5, 3])
    noisy = laws_of_strength(TokenLaw(10, 50, 5, 20.0, noise_std=2.0), [2.0])[0]
    assert noisy.d == 2000
    assert delay_strength(noisy) == pytest.approx(2.0)


def test_attention_on_relevant_is_that_of_dense_fresh_data():
    law = TokenLaw(n=10, d=60, tokens=4, signal_norm=6.0, weak_signal=0.3, noise_std=0.8)
    sample = law.draw(3)
    path = gradient_descent(sample, Start(), 0.05, 60, record=[60])
    weight, prompt = Start().draw(law.d, 3)
    # v is not kept by a Trajectory; a model with the same three numbers serves as well
    v = torch.zeros(law.d, dtype=torch.float64)
    v[:2] = path.direction_on_signals[-1, 0]
    v[2] = (path.direction_norm_squared[-1, 0] - v[:2].square().sum()).sqrt()
    assert v[:2].abs().max() > 0.05
    # no coordinate beyond the third meets v: the points are drawn without them
    tokens, _ = replace(law, d=3).draw_fresh(200_000, 9)
    on_first = torch.softmax(tokens @ v[:3], -1)[:, 0]
    error = on_first.std().item() / math.sqrt(len(on_first))
    exact = attention_on_relevant(law, path.direction_on_signals[-1, 0], path.direction_norm_squared[-1, 0])
    assert abs(on_first.mean().item() - exact) < 4 * error
    assert error < 1e-3
    assert weight.shape == (60, 60)
    assert prompt.abs().max() == 0


def test_selection_time_of_the_flow_is_that_of_plain_descent():
    law = laws_of_strength(LAW, [0.5])[0]
    flow = delay_times([law], runs=2, seed=2).select[0]
    step = flow.max() / 900
    path = train(draw_gram(law, 2, 2), step, 1200, record=range(0, 1200, 3))
    np.testing.assert_allclose(selection_times(path), flow, rtol=0.05)
    # found on the path: the fresh attention is 1/2 there
    for run in range(2):
        after = int(np.searchsorted(path.time[:, run].numpy(), flow[run]))
        rows = [0, after - 1, after]
        fresh = population_along(path, count=2000, rows=rows)
        there = along_time(path.time[rows, run : run + 1], fresh.attention[:, run : run + 1, 0], flow[run : run + 1])
        assert there[0, 0] == pytest.approx(0.5, abs=0.04)


def test_fit_times_are_when_the_last_label_is_fitted():
    laws = laws_of_strength(LAW, [2.0])
    times = fit_times(laws, runs=3, seed=4)
    np.testing.assert_array_equal(times, delay_times(laws, runs=3, seed=4).fit)
    for run in range(3):
        gram = draw_gram(laws[0], 4, first_run=run)
        steps = 400
        path = train(gram, float(times[0, run]) * 1.5 / steps, steps)
        first = path.time[int((path.train_accuracy()[:, 0] >= 1).double().argmax()), 0].item()
        assert first == pytest.approx(times[0, run], rel=0.06)
    assert np.isnan(fit_times(laws, runs=1, seed=4, steps=2)).all()


def test_nobody_waits_for_a_label_that_no_attention_fits():
    # Three tokens: in some training sets all values of a flipped sample have the sign of its true label.
    law = laws_of_strength(replace(LAW, tokens=3, signal_norm=12.0), [1.0])[0]
    gram = draw_gram(law, 0, 8)
    # All attention on one token, each in turn: f is then its value, and every f is a mixture of these.
    each = torch.stack([gram.head_scores[..., token] * gram.labels.observed > 0 for token in range(law.tokens)])
    hopeless = (~each.any(0)).any(1).numpy()
    assert 0 < hopeless.sum() < 8
    times = fit_times([law], runs=8, seed=0, steps=5000)[0]
    np.testing.assert_array_equal(np.isnan(times), hopeless)
    found = delay_times([law], runs=8, seed=0, steps=3000)
    np.testing.assert_array_equal(found.fit[0], times)
    assert np.isfinite(found.select).all()
    assert found.steps[0] < 300  # not 3000: training does not go on for the labels that stay


def test_course_reads_off_the_flow():
    times = np.geomspace(0.02, 50.0, 9)
    seen = course(LAW, times, runs=2, seed=1, count=2000)
    assert seen.attention.shape == (2, 9)
    assert np.isfinite(seen.loss).all()
    step = 0.01
    path = train(draw_gram(LAW, 1, 2), step, 300, record=range(0, 301, 2))
    fresh = population_along(path, count=2000)
    read = along_time(path.time, fresh.loss, times[times < 3])
    np.testing.assert_allclose(seen.loss[:, times < 3], read, atol=2e-3)
    assert seen.loss[0, 0] - seen.loss[0, -1] > 0.02


def test_along_time_is_linear_in_log_time():
    time = torch.tensor([0.0, 1.0, 100.0], dtype=torch.float64).unsqueeze(1)
    values = torch.tensor([7.0, 2.0, 4.0], dtype=torch.float64).unsqueeze(1)
    np.testing.assert_allclose(along_time(time, values, np.array([0.5, 1.0, 10.0, 100.0]))[0], [4.5, 2, 3, 4])
    assert np.isnan(along_time(time, values, np.array([101.0]))).all()


test_bad_arguments = refusing(
    (lambda: laws_of_strength(LAW, [0.0]), "strengths must be a finite number > 0"),
    (lambda: delay_times([], runs=1, seed=0), "laws must hold one TokenLaw"),
    (delay_times, {"laws": [LAW], "seed": 0, "runs": 1}, {"runs": 0, "steps": 0}),
    (lambda: course(LAW, [1.0, 0.5], runs=1, seed=0), "times must be positive and rising"),
    (lambda: course(LAW, [], runs=1, seed=0), "times must be"),
)
