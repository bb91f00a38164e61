"""Claims on attention maps have their verdicts and power, and the studies behind them are what they say."""

import numpy as np
import pytest
import torch

from attnbook.open_questions.attention_maps.claims import CLAIMS
from attnbook.open_questions.attention_maps.courses import (
    MAPS,
    UNNORMALISED,
    local_attention,
    map_courses,
    step_windows,
    two_steps,
    unnormalised_p2,
)
from attnbook.open_questions.attention_maps.error import log10_map_error
from attnbook.open_questions.attention_maps.study import MapsStudy, maps_study
from attnlib.single_head.law import SignalNoiseLaw
from attnlib.single_head.maps import SIGMOID, SOFTMAX, SPARSEMAX, relu
from attnlib.single_head.training import train_heads
from bookkit.rules import NothingToMeasure
from tests.bad_input import refusing

LAW = SignalNoiseLaw(100, 20_000, 30.0, 0.05)
PAPER_SIZE = SignalNoiseLaw(200, 40_000, 30.0, 0.05)


@pytest.mark.parametrize("attention_map", [*MAPS[:3], MAPS[4], *UNNORMALISED], ids=str)
def test_two_steps_and_closed_forms_are_those_of_training(attention_map):
    sample = SignalNoiseLaw(15, 300, 6.0, 0.2).draw(1)
    path = train_heads(sample, 0.3, 2, attention_map=attention_map, record=[], method="vectors").single()
    _, v2, p2 = two_steps(sample, 0.3, attention_map)
    torch.testing.assert_close(v2, path.v[-1], rtol=1e-10, atol=1e-13)
    torch.testing.assert_close(p2, path.p[-1], rtol=1e-10, atol=1e-13)
    _, _, soft = two_steps(sample, 0.3, SOFTMAX)
    if attention_map.normalised:
        torch.testing.assert_close(p2, attention_map.slope(2) / 0.5 * soft, rtol=1e-12, atol=1e-15)
    else:
        closed = unnormalised_p2(sample, 0.3, attention_map.slope(2))
        torch.testing.assert_close(p2, closed, rtol=1e-12, atol=1e-15)


def test_step_windows_are_single_trainings():
    law = SignalNoiseLaw(20, 2000, 18.0, 0.1)
    found = step_windows(law, (1.5, 4.0, 9.0), (SPARSEMAX, SIGMOID), draws=3, seed=2)
    sample = law.draw(2, 3)
    for attention_map in (SPARSEMAX, SIGMOID):
        path = train_heads(sample, 4.0 * 20 / 2000, 2, attention_map=attention_map, record=[]).single()
        window = found[attention_map.name]
        assert window.interpolates[1].tolist() == path.interpolates[-1].tolist()
        expected = log10_map_error(path.v[-1], path.p[-1], sample, attention_map).numpy()
        np.testing.assert_allclose(window.log10_error[1], expected, rtol=1e-9)


def test_courses_are_single_trainings():
    laws = [SignalNoiseLaw(20, 2000, norm, 0.1) for norm in (8.0, 20.0)]
    courses = map_courses(laws, SPARSEMAX, 0.05, 30, record=[2, 30], draws=3, seed=5)
    for law, course in zip(laws, courses, strict=True):
        sample = law.draw(5, 1, first_run=2)
        path = train_heads(sample, 0.05, 30, attention_map=SPARSEMAX, record=[2]).single()
        expected = log10_map_error(path.v[-1], path.p[-1], sample, SPARSEMAX).item()
        assert course.log10_error[-1, 2] == pytest.approx(expected, rel=1e-9)
        assert course.attention_clean[0, 2] == pytest.approx(path.attention_clean[0, 0].item())


def test_local_attention_against_its_closed_form():
    """p_2 . mu_k from the exact formula: (beta / nT) sum over the class of g y (v_1.u - mean of v_1.x over the window)."""
    local = local_attention((1, 2, 8), n=20, d=2000, high=15.0, low=8.0, steps=3, draws=2, seed=3, count=200)
    sample = SignalNoiseLaw(20, 2000, 15.0, 0.05, tokens=8).draw(3, 2)
    beta, n, T = 5 * 20 / 2000, 20, 8
    v1 = beta / (2 * n * T) * (sample.labels[..., None, None] * sample.tokens).sum((1, 2))
    scores = (sample.tokens @ v1[:, None, :, None]).squeeze(-1)  # the signal is token 0 in reduced coordinates
    slopes = torch.sigmoid(-sample.labels * scores.mean(-1))
    for i, width in enumerate((1, 2, 8)):
        preference = scores[..., 0] - scores[..., :width].mean(-1)
        pulls = beta / (n * T) * slopes * sample.labels * preference
        per_class = torch.stack([(pulls * (sample.signal_class == k)).sum(1) for k in (0, 1)], 1)
        np.testing.assert_allclose(local.signal_in_p2[i], per_class.mean(1).numpy(), rtol=1e-9, atol=1e-18)


def test_outside_the_regime():
    strong, between = (MapsStudy(LAW, norms, *6 * [None]) for norms in ((25.0, 30.0), (20.0, 23.0)))
    assert CLAIMS["Q22"].violation(strong).startswith("needs a signal norm with x < 0.3")
    with pytest.raises(NothingToMeasure, match="all are in between"):
        CLAIMS["Q69"].judge(between, 1.0)


test_bad_arguments = refusing(
    (maps_study, (LAW, (10.0, 30.0), 0.025), {"steps": 10, "step_size": 0.0, "draws": 1, "norms": (-1.0, 30.0)}),
    (lambda: maps_study(LAW, (30.0, 10.0), 0.1), "norms must be two or more increasing"),
    (lambda: maps_study(LAW, (30.0,), 0.1), "norms must be two or more increasing"),
    (lambda: step_windows(LAW, ()), "units must be one or more numbers > 0"),
    (lambda: step_windows(LAW, (0.0,)), "units must be one or more numbers > 0"),
    (
        map_courses,
        {"attention_map": SOFTMAX, "step_size": 0.1, "steps": 1, "record": [1], "laws": [LAW]},
        {"laws": [[LAW, PAPER_SIZE]], "start_size": -1.0},
    ),
    (lambda: map_courses([LAW], relu(), 0.1, 1, record=[1], draws=1), "no derivative at 0"),
    (lambda: two_steps(LAW.draw(0), 0.1, relu()), "no derivative at 0"),
    (lambda: unnormalised_p2(SignalNoiseLaw(5, 50, 1.0, tokens=3).draw(0), 0.1, 1.0), "sample must have two tokens"),
    (lambda: local_attention((3,)), "windows of width 3 must divide"),
)
