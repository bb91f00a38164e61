"""Claims on attention maps have their verdicts and power, and the studies behind them are what they say."""

import dataclasses
import math

import numpy as np
import pytest
import torch

from attnbook.open_questions.attention_maps.claims import CLAIMS
from attnbook.open_questions.attention_maps.courses import (
    MAPS,
    NORMALISED,
    UNNORMALISED,
    local_attention,
    map_courses,
    step_windows,
    two_steps,
    unnormalised_p2,
)
from attnbook.open_questions.attention_maps.error import log10_map_error
from attnbook.open_questions.attention_maps.study import maps_study
from attnlib.single_head.law import SignalNoiseLaw
from attnlib.single_head.maps import HALF_PLUS, LINEAR, SIGMOID, SOFTMAX, SPARSEMAX, relu, softmax, windows
from attnlib.single_head.training import train_heads
from bookkit.claims import Verdict

LAW = SignalNoiseLaw(100, 20_000, 30.0, 0.05)
PAPER_SIZE = SignalNoiseLaw(200, 40_000, 30.0, 0.05)


@pytest.fixture(scope="module")
def study():
    return maps_study(LAW, (10.0, 30.0), 0.025, steps=2000, draws=10, seed=1)


def head(attention_map, tokens, v, p):
    """The model written down token by token."""
    return sum(attention_map.weights(tokens @ p)[..., t] * (tokens[..., t, :] @ v) for t in range(tokens.shape[-2]))


def autograd_steps(sample, attention_map, step_size, steps):
    """(v, p) after some steps of gradient descent by autograd on the model above, one run."""
    tokens, labels = sample.tokens[0], sample.labels[0]
    v, p = (torch.zeros(tokens.shape[-1], dtype=torch.float64, requires_grad=True) for _ in range(2))
    for _ in range(steps):
        loss = torch.nn.functional.softplus(-labels * head(attention_map, tokens, v, p)).mean()
        grad = torch.autograd.grad(loss, (v, p))
        v, p = ((x - step_size * g).detach().requires_grad_() for x, g in zip((v, p), grad, strict=True))
    return v.detach(), p.detach()


@pytest.mark.parametrize("attention_map", [*MAPS[:3], MAPS[4], *UNNORMALISED], ids=str)
def test_two_steps_and_closed_forms_against_autograd(attention_map):
    sample = SignalNoiseLaw(15, 300, 6.0, 0.2).draw(1)
    expected = autograd_steps(sample, attention_map, 0.3, 2)
    _, v2, p2 = two_steps(sample, 0.3, attention_map)
    torch.testing.assert_close(v2[0], expected[0], rtol=1e-10, atol=1e-13)
    torch.testing.assert_close(p2[0], expected[1], rtol=1e-10, atol=1e-13)
    _, _, soft = two_steps(sample, 0.3, SOFTMAX)
    if attention_map.normalised:
        torch.testing.assert_close(p2, attention_map.slope(2) / 0.5 * soft, rtol=1e-12, atol=1e-15)
    else:
        closed = unnormalised_p2(sample, 0.3, attention_map.slope(2))
        torch.testing.assert_close(p2, closed, rtol=1e-12, atol=1e-15)


def test_sign_of_the_signals_coefficient():
    """Below kappa = 1 softmax's p_2 points away from the signal, the sigmoid's towards it."""
    sample = SignalNoiseLaw(100, 20_000, 8.0, 0.05).draw(0, 5)
    along = {
        m.name: torch.einsum("rkm,rm->rk", sample.signals, two_steps(sample, 0.025, m)[2])
        for m in (SOFTMAX, SPARSEMAX, SIGMOID, HALF_PLUS)
    }
    assert (along["softmax"] < 0).all()
    assert (along["sparsemax"] < 0).all()
    assert (along["sigmoid"] > 0).all()
    assert (along["half plus"] > 0).all()


def test_saddle_of_linear_attention_and_its_refusal_in_relu():
    sample = SignalNoiseLaw(10, 200, 5.0, 0.2).draw(0)
    with pytest.raises(ValueError, match="no derivative at 0"):
        two_steps(sample, 0.1, relu())
    for attention_map in (LINEAR, relu(1.0)):
        assert all((part == 0).all() for part in two_steps(sample, 0.1, attention_map))


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


def test_windows_at_the_paper_size():
    """beta d / n = 1 ... 20, n = 200, d = 40000, rho = 30: larger slopes start earlier and end earlier."""
    units = (1.5, 2, 3, 5, 8, 10, 16, 20)
    found = step_windows(PAPER_SIZE, units, (softmax(0.5), SOFTMAX, softmax(2.0), MAPS[6], SIGMOID), draws=10)
    benign = {name: window.units[window.benign] for name, window in found.items()}
    assert benign["softmax at temperature 0.5"][0] == 2
    assert benign["softmax"][0] == 3
    assert 4 < benign["softmax at temperature 2"][0] <= 5
    assert benign["hardmax"].tolist() == [8, 10, 16, 20]
    assert benign["sigmoid"][0] == 8
    ends = [benign[name][-1] for name in ("softmax at temperature 0.5", "softmax", "softmax at temperature 2")]
    assert ends == sorted(ends)
    assert ends[0] < ends[1] < ends[2]
    assert str(found["hardmax"]) == "8 - 20"


def test_late_errors_at_the_paper_size():
    """n = 200, d = 40000, rho = 10, ten draws: steps 2, 100, 2000."""
    law = SignalNoiseLaw(200, 40_000, 10.0, 0.05)
    known = {
        "softmax": (SOFTMAX, -2.7, -0.70, -0.52),
        "sigmoid": (SIGMOID, -3.2, -2.4, -2.4),
        "sparsemax": (SPARSEMAX, -1.8, -0.57, -0.47),
    }
    for name, (attention_map, *rows) in known.items():
        (course,) = map_courses([law], attention_map, 0.025, 2000, record=[2, 100], draws=10)
        mean = course.log10_error.mean(1)
        spread = course.log10_error.std(1, ddof=1) / math.sqrt(10)
        assert (np.abs(mean - rows) < 3 * spread + 0.06).all(), (name, mean)
        assert (course.train_accuracy == 1).all()


def test_courses_are_single_trainings_and_know_the_signal():
    laws = [SignalNoiseLaw(20, 2000, norm, 0.1) for norm in (8.0, 20.0)]
    courses = map_courses(laws, SPARSEMAX, 0.05, 30, record=[2, 30], draws=3, seed=5)
    for law, course in zip(laws, courses, strict=True):
        sample = law.draw(5, 1, first_run=2)
        path = train_heads(sample, 0.05, 30, attention_map=SPARSEMAX, record=[2]).single()
        expected = log10_map_error(path.v[-1], path.p[-1], sample, SPARSEMAX).item()
        assert course.log10_error[-1, 2] == pytest.approx(expected, rel=1e-9)
        assert course.attention_clean[0, 2] == pytest.approx(path.attention_clean[0, 0].item())
        value = (sample.signals[0] @ path.v[-1, 0]).numpy() * [1, -1]
        np.testing.assert_allclose(course.signal_value[-1, 2], value, rtol=1e-10)


def test_random_starts_have_the_size_asked_for():
    law = SignalNoiseLaw(30, 3000, 20.0, 0.1)
    (tiny,) = map_courses([law], SOFTMAX, 0.05, 20, record=[2], draws=2, start_size=1e-7)
    (zero,) = map_courses([law], SOFTMAX, 0.05, 20, record=[2], draws=2, start_size=1e-5)
    (large,) = map_courses([law], SOFTMAX, 0.05, 20, record=[2], draws=2, start_size=1.0)
    np.testing.assert_allclose(tiny.log10_error, zero.log10_error, rtol=1e-4)
    assert (large.log10_error[0] > 0.8 * zero.log10_error[0]).all()


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


def test_window_one_is_the_linear_model_and_window_all_is_softmax():
    sample = SignalNoiseLaw(12, 800, 9.0, 0.1, tokens=4).draw(0, 2)
    one = train_heads(sample, 0.2, 9, attention_map=windows(SOFTMAX, 1), record=[])
    frozen = train_heads(sample, 0.2, 9, attention_step_size=0.0, record=[])
    torch.testing.assert_close(one.v, frozen.v, rtol=1e-12, atol=1e-15)
    assert (one.p == 0).all()
    whole, soft = (train_heads(sample, 0.2, 9, attention_map=m, record=[]) for m in (windows(SOFTMAX, 4), SOFTMAX))
    torch.testing.assert_close(whole.p, soft.p, rtol=1e-12, atol=1e-15)


@pytest.mark.weekly
def test_relu_leaves_samples_behind(study):
    for course in study.relu:
        assert course.train_accuracy[-1].mean() < 0.9
    low, high = study.linear
    assert (low.train_accuracy[-1] == 1).all()
    assert (low.log10_error[-1] > -1).all()
    assert (high.log10_error[-1] < -10).all()


def test_slopes_order_the_maps():
    slopes = [m.slope(2) for m in NORMALISED]
    assert slopes == sorted(slopes, reverse=True)
    assert len({m.name for m in MAPS}) == len(MAPS) == 9


@pytest.mark.weekly
def test_outside_the_regime(study):
    strong = dataclasses.replace(study, norms=(25.0, 30.0))
    assert CLAIMS["Q22"].check(strong).verdict is Verdict.OUTSIDE
    assert CLAIMS["Q22"].check(strong).violated.startswith("needs a signal norm with x < 0.3")
    between = dataclasses.replace(study, norms=(20.0, 23.0))
    assert CLAIMS["Q69"].check(between).verdict is Verdict.OUTSIDE


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: maps_study(LAW, (10.0, 30.0), 0.025, steps=10), "steps must be a whole number >= 1000"),
        (lambda: maps_study(LAW, (10.0, 30.0), 0.0), "step_size must be"),
        (lambda: maps_study(LAW, (10.0, 30.0), 0.1, draws=1), "draws must be"),
        (lambda: maps_study(LAW, (30.0, 10.0), 0.1), "norms must be two or more increasing"),
        (lambda: maps_study(LAW, (30.0,), 0.1), "norms must be two or more increasing"),
        (lambda: maps_study(LAW, (-1.0, 30.0), 0.1), "norms must be a finite number > 0"),
        (lambda: step_windows(LAW, ()), "units must be one or more numbers > 0"),
        (lambda: step_windows(LAW, (0.0,)), "units must be one or more numbers > 0"),
        (lambda: map_courses([LAW, PAPER_SIZE], SOFTMAX, 0.1, 1, record=[1]), "laws must be"),
        (lambda: map_courses([LAW], SOFTMAX, 0.1, 1, record=[1], start_size=-1.0), "start_size must be"),
        (lambda: map_courses([LAW], relu(), 0.1, 1, record=[1], draws=1), "no derivative at 0"),
        (
            lambda: unnormalised_p2(SignalNoiseLaw(5, 50, 1.0, tokens=3).draw(0), 0.1, 1.0),
            "sample must have two tokens",
        ),
        (lambda: local_attention((3,)), "windows of width 3 must divide"),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()
