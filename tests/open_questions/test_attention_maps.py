"""IV.3: two steps, windows of step sizes and local attention are what they say; claims and controls."""

from types import SimpleNamespace as Study

import numpy as np
import pytest
import torch

from attnbook.open_questions.attention_maps.claims import CLAIMS
from attnbook.open_questions.attention_maps.study import local_attention, step_windows, two_steps, unnormalised_p2
from attnbook.open_questions.maps import MAPS, MOVING, UNNORMALISED, log10_map_error
from attnbook.single_head.long_run import Course
from attnlib.single_head.law import SignalNoiseLaw
from attnlib.single_head.maps import (
    HALF_PLUS,
    HARDMAX,
    LINEAR,
    SIGMOID,
    SOFTMAX,
    SPARSEMAX,
    relu,
)
from attnlib.single_head.training import train_heads
from bookkit.rules import NothingToMeasure
from tests.worlds import worlds


@pytest.mark.parametrize("attention_map", [*MAPS[:3], MAPS[4], *UNNORMALISED], ids=str)
def test_two_steps_and_closed_forms_are_those_of_training(attention_map):
    sample = SignalNoiseLaw(15, 300, 6.0, 0.2).draw(1)
    path = train_heads(sample, 0.3, 2, attention_map=attention_map, record=[], method="vectors").single()
    v1, v2, p2 = two_steps(sample, 0.3, attention_map)
    torch.testing.assert_close(v2, path.v[-1], rtol=1e-10, atol=1e-13)
    torch.testing.assert_close(p2, path.p[-1], rtol=1e-10, atol=1e-13)
    first, second, soft = two_steps(sample, 0.3, SOFTMAX)
    torch.testing.assert_close(v1, first, rtol=1e-12, atol=1e-15)  # v does not depend on the map
    torch.testing.assert_close(v2, second, rtol=1e-12, atol=1e-15)
    if attention_map.normalised:
        torch.testing.assert_close(p2, attention_map.slope(2) / 0.5 * soft, rtol=1e-12, atol=1e-15)
    else:
        closed = unnormalised_p2(sample, 0.3, attention_map.slope(2))
        torch.testing.assert_close(p2, closed, rtol=1e-12, atol=1e-15)


def test_hardmax_is_logistic_regression_on_token_means():
    sample = SignalNoiseLaw(15, 300, 6.0, 0.2).draw(1)
    path = train_heads(sample, 0.3, 20, attention_map=HARDMAX, record=[])
    frozen = train_heads(sample, 0.3, 20, attention_step_size=0.0, record=[])
    assert not path.p.any()
    torch.testing.assert_close(path.v, frozen.v, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("attention_map", [LINEAR, relu(0.0), relu(1.0), HALF_PLUS], ids=str)
def test_zero_is_a_saddle_where_the_weight_is_zero_there(attention_map):
    path = train_heads(SignalNoiseLaw(15, 300, 6.0, 0.2).draw(1), 0.3, 20, attention_map=attention_map, record=[])
    assert bool(path.v.any() or path.p.any()) == (attention_map is HALF_PLUS)


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


def outside(*norms):
    law = SignalNoiseLaw(100, 20_000, norms[-1], 0.05)
    return Study(law=law, norms=norms, x={norm: norm**2 * 100 * 0.95 / 2 / 20_000 for norm in norms}, low=min(norms))


def test_outside_the_regime():
    assert CLAIMS["Q22"].violation(outside(25.0, 30.0)).startswith("needs a signal norm with x < 0.3")
    with pytest.raises(NothingToMeasure, match="all are in between"):
        CLAIMS["Q69"].seen(outside(20.0, 23.0))


# --- claims and their controls, each in its own world ----------------------------------------------------------------------

DRAWS = 60


def around(*values):
    """(values, DRAWS): rows whose means are the values."""
    return np.outer(values, 1 + 1e-3 * np.linspace(-1, 1, DRAWS))


def course(*errors):
    """log10 errors after steps 1, 2, 1000 and at the end."""
    steps = np.array([1, 2, 1000, 2000])
    return Course(steps, around(*errors), np.ones((4, DRAWS)), attention_clean=None, attention_noisy=None, flipped=None)


def low_snr(end, early):
    """Errors of sigmoid, softmax and the other competing maps at the end, and after two steps."""
    named = {m.name: (early[2], end[2]) for m in MOVING} | {
        "sigmoid": (early[0], end[0]),
        "softmax": (early[1], end[1]),
    }
    return Study(low=1.0, courses={name: {1.0: course(0, two, two, last)} for name, (two, last) in named.items()})


def recovery(sigmoid, half_plus):
    """Exponents at the end over those at step 1000."""
    named = {"sigmoid": sigmoid, "half plus": half_plus}
    return Study(low=1.0, courses={name: {1.0: course(0, 0, -2, -2 * ratio)} for name, ratio in named.items()})


def predicted(measured):
    """Errors of every map but softmax, for which -1 is predicted; -2 for softmax."""
    courses = {m.name: {1.0: course(*[-2 if m.name == "softmax" else measured] * 4)} for m in MAPS}
    said = {m.name: np.full((4, 1, DRAWS), -2.0 if m.name == "softmax" else -1.0) for m in MAPS}
    return Study(norms=(1.0,), x={1.0: 0.2}, courses=courses, predicted=said)


def local(*ratios):
    widths = (1, 2, 4, 8)
    return Study(local=Study(widths=widths, predicted=1 - 1 / np.array(widths), signal_in_p2=around(*ratios)))


@pytest.mark.parametrize(
    ("id", "own", "others"),
    [
        ("Q22", low_snr((-2.24, -0.48, -0.71), (-3, -3, -3)),
         [None, None, low_snr((-2.24, -3, -3), (-3, -0.48, -0.71))]),
        ("Q22b", recovery(1.1, 0.9), []),
        ("Q69", predicted(-1.0), [predicted(-2.0)]),
        ("Q24", local(0, 4 / 7, 6 / 7, 1), [local(0, 1, 1, 1), local(1, 6 / 7, 4 / 7, 1)]),
    ],
)  # fmt: skip
def test_claims_and_controls_each_hold_in_their_own_world(id, own, others):
    assert worlds(CLAIMS[id], own, *others) == []
