"""Sign descent and Adam from zero: three bases, closed forms of the first step, the arcsine law."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import norm

from attnbook.open_questions.optimisers.arcsine import arcsine_kernel, predicted_sign_descent
from attnbook.open_questions.optimisers.signs import (
    adam_second_step,
    axis_error,
    axis_memory_ratio,
    dense_copy,
    exponent,
    exponent_ratio_flat,
    exponent_ratio_random,
    mean_one_norm,
)
from attnlib.single_head.law import SignalNoiseLaw
from attnlib.single_head.population import log10_clean_error
from attnlib.single_head.rules import SIGN_DESCENT, adam
from attnlib.single_head.training import train_heads
from tests.bad_input import refusing

LAW = SignalNoiseLaw(7, 60, 4.0, 0.2)


def one_sign_step(sample, size=0.3):
    return train_heads(sample, size, 1, rule=SIGN_DESCENT, record=[]).single()


@pytest.mark.parametrize("signals", ["axis", "flat", "random"])
def test_a_dense_copy_is_the_same_data_in_other_directions(signals):
    sample = LAW.draw(3, 2)
    copy = dense_copy(sample, signals)
    assert copy.coordinates == "dense"
    assert copy.tokens.shape == (2, 7, 2, 60)
    flat, own = copy.tokens.flatten(1, 2), sample.tokens.flatten(1, 2)
    torch.testing.assert_close(flat @ flat.mT, own @ own.mT, rtol=1e-12, atol=1e-10)
    torch.testing.assert_close(copy.signals @ flat.mT, sample.signals @ own.mT, rtol=1e-12, atol=1e-10)
    # Orthogonal noise directions: all of them carry noise, two runs have frames of their own.
    assert (copy.noise_tokens()[0, 0, 0, 2:] != 0).all()
    assert not torch.allclose(copy.noise_tokens()[0, 0, 0] / 1, copy.noise_tokens()[1, 0, 0])
    sizes = copy.signals.abs()
    if signals == "axis":
        expected = torch.zeros(2, 60, dtype=torch.float64)
        expected[0, 0] = expected[1, 1] = 4.0
        torch.testing.assert_close(copy.signals[1], expected)
    elif signals == "flat":
        torch.testing.assert_close(sizes, torch.full_like(sizes, 4.0 / math.sqrt(60)))
        assert (copy.signals[0, 0] > 0).all()
        assert (copy.signals[0, 1] > 0).sum() == 30
    else:
        assert 0 < sizes.min() < 0.2 * sizes.max()


def test_axis_signals_error_is_exact_for_sign_descent_and_adam():
    for n, d, norm_ in ((7, 60, 4.0), (21, 300, 9.0)):
        law = SignalNoiseLaw(n, d, norm_, 0.1)
        copy = dense_copy(law.draw(5, 6), "axis")
        clean, noisy = copy.counts()
        usable = (clean > noisy).all(1)
        assert usable.sum() >= 2
        for rule, tolerance in ((SIGN_DESCENT, 1e-12), (adam(), 1e-5)):
            path = train_heads(copy, 0.02, 1, rule=rule, record=[]).single()
            found = log10_clean_error(path.v[-1], path.p[-1], copy)[usable]
            assert not path.p[-1].any()
            expected = math.log10(norm.cdf(-norm_ / math.sqrt(d - 2)))
            assert axis_error(norm_, d) == pytest.approx(expected, rel=1e-12)
            assert (found - expected).abs().max() < tolerance


def test_plane_component_of_a_sign_step_is_exact_in_the_mean_over_frames():
    """The same training set in 3000 random frames, small d: E of the squared component of sign(S) in the signals' plane."""
    d, draws = 12, 3000
    sample = SignalNoiseLaw(5, d, 2.0, 0.2).draw(8, 1)
    own = {
        name: getattr(sample, name).expand(draws, *getattr(sample, name).shape[1:])
        for name in vars(sample)
        if isinstance(getattr(sample, name), torch.Tensor)
    }
    many = type(sample)(law=sample.law, seed=8, first_run=0, **own)
    v = one_sign_step(dense_copy(many), 1.0).v[-1]
    gd = exponent(train_heads(sample, 1.0, 1, record=[]).single().v[-1], sample)
    copies = exponent(v, dense_copy(many))
    plane = d * copies / (4.0 + copies)  # exponent / rho^2 = plane / (d - plane)
    ratio = exponent_ratio_random(gd, 2.0, d).item() * gd.item() / 4.0
    expected = d * ratio / (1 + ratio)
    assert plane.mean().item() == pytest.approx(expected, abs=4 * plane.std().item() / math.sqrt(draws))
    limit = (2 / math.pi) * d * (gd.item() / 4) / (1 + gd.item() / 4)  # without the finite-d terms
    assert abs(plane.mean().item() - limit) > 6 * plane.std().item() / math.sqrt(draws)


@pytest.mark.parametrize(("strength", "flat"), [(0.5, 0.63), (4.0, 0.53)])
def test_exponents_over_those_of_gradient_descent(strength, flat):
    n, d = 30, 6000
    law = SignalNoiseLaw(n, d, math.sqrt(strength * d / n), 0.1)
    sample = law.draw(1, 12)
    clean, noisy = sample.counts()
    gd = exponent(train_heads(sample, 1.0, 1, record=[]).single().v[-1], sample)
    for basis, predicted in (
        ("random", exponent_ratio_random(gd, law.signal_norm, d)),
        ("flat", exponent_ratio_flat(clean - noisy, law.signal_norm, n, d)),
    ):
        ratio = exponent(one_sign_step(dense_copy(sample, basis)).v[-1], sample=dense_copy(sample, basis)) / gd
        gap = ratio - predicted
        assert gap.mean().abs() < 4 * gap.std() / math.sqrt(12) + 0.02
        assert (ratio - 1.1 * predicted).mean().abs() > 2 * gap.std() / math.sqrt(12)
    assert exponent_ratio_flat(clean - noisy, law.signal_norm, n, d).mean().item() == pytest.approx(flat, abs=0.04)


def test_adams_second_step_in_p():
    copy = dense_copy(SignalNoiseLaw(6, 50, 5.0, 0.2).draw(4, 2))
    for betas in ((0.9, 0.999), (0.5, 0.7)):
        path = train_heads(copy, 0.03, 2, rule=adam(betas)).single()
        assert not path.p[1].any()
        sizes = path.p[2].abs() / 0.03
        assert sizes.median().item() == pytest.approx(adam_second_step(betas), rel=1e-4)
    assert adam_second_step() == pytest.approx(0.7441, abs=1e-4)


# --- the arcsine law -------------------------------------------------------------------------------------------------------


def test_arcsine_kernel_is_the_mean_product_of_signs():
    rng = np.random.default_rng(2)
    directions = torch.as_tensor(rng.standard_normal((1, 3, 4)))
    directions[0, 2] = 0
    z = torch.as_tensor(rng.standard_normal((400_000, 4)))
    signs = (z @ directions[0].mT).sign()
    kernel = arcsine_kernel(directions)[0]
    torch.testing.assert_close(signs.mT @ signs / 400_000, kernel, atol=4 / math.sqrt(400_000), rtol=0)
    assert kernel[2].abs().max() == 0
    assert kernel[0, 0].item() == pytest.approx(1.0)


test_bad_arguments = refusing(
    (lambda: dense_copy(LAW.draw(0), "diagonal"), "signals must be one of 'axis', 'flat', 'random'"),
    (lambda: dense_copy(dense_copy(LAW.draw(0))), "sample must be in reduced coordinates"),
    (lambda: dense_copy(LAW.draw(0, start_vectors=2)), "without start vectors"),
    (
        lambda: dense_copy(SignalNoiseLaw(4, 31, 2.0).draw(0), "flat"),
        "d must be even for two orthogonal flat signals; got 31",
    ),
    (lambda: train_heads(LAW.draw(0), 0.1, 1, rule=SIGN_DESCENT), "does not commute with rotations"),
    (lambda: train_heads(LAW.draw(0), 0.1, 1, rule=adam()), "does not commute with rotations"),
    (axis_error, (1.0, 10), {"signal_norm": -1.0, "d": 2}),
    (lambda: axis_memory_ratio(1.0, 0, 10), "n must be"),
    (lambda: mean_one_norm(0), "d must be"),
    (lambda: adam_second_step((0.9, 1.5)), "betas must be"),
    (predicted_sign_descent, lambda: (LAW.draw(0), 0.1, 3), {"step_size": 0.0, "steps": 0}),
)
