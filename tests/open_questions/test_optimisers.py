"""IV.2: rules of matched length, signs in two steps and along training."""

import math
from types import SimpleNamespace as Study

import numpy as np
import pytest
import torch
from scipy.stats import norm

from attnbook.open_questions.judging import one_way
from attnbook.open_questions.optimisers.claims import CLAIMS
from attnbook.open_questions.optimisers.signs import (
    adam_second_step,
    arcsine_kernel,
    axis_error,
    axis_memory_ratio,
    dense_copy,
    exponent,
    exponent_ratio_flat,
    exponent_ratio_random,
)
from attnbook.open_questions.optimisers.study import compare_rules, milestones
from attnbook.open_questions.outcomes import matched_step
from attnbook.single_head.long_run import collected_moves, without_flips
from attnlib.single_head.errors import log10_clean_error
from attnlib.single_head.law import SignalNoiseLaw
from attnlib.single_head.rules import (
    BLOCK_NORMALISED,
    GRADIENT_DESCENT,
    NORMALISED,
    SIGN_DESCENT,
    adam,
    heavy_ball,
    nesterov,
)
from attnlib.single_head.training import train_heads
from tests.worlds import worlds

LAW = SignalNoiseLaw(12, 90, 7.0, 0.1)


def test_milestones_are_the_first_rows_that_qualify():
    sample = LAW.draw(6, 4)
    path = train_heads(sample, matched_step(sample, GRADIENT_DESCENT, 8.0), 60).single()
    found = milestones(path, sample)
    for r in range(4):
        one = sample.run(r)
        for moment, step, reached in (
            (found.fitted, found.fitted_step, path.interpolates[:, r]),
            (found.at_loss, found.loss_step, path.loss[:, r] <= 0.01),
        ):
            row = next((t for t in range(61) if reached[t]), None)
            if row is None:
                assert math.isnan(step[r])
                assert math.isnan(moment[r])
                continue
            assert step[r].item() == row
            error = log10_clean_error(path.v[row, r : r + 1], path.p[row, r : r + 1], one)
            assert moment[r].item() == pytest.approx(error.item(), rel=1e-10)
        clean = (one.signal_class[0] == 1) & ~one.noisy[0]
        assert found.attention[r, 1].item() == pytest.approx(path.attention_on_signal[-1, r, clean].mean().item())
    assert found.fitted_step.isfinite().any()
    assert (found.course_error[-1] == found.end).all()
    slow = milestones(train_heads(sample, 1e-6, 3).single(), sample)
    assert slow.at_loss.isnan().all()
    assert slow.loss_step.isnan().all()


def test_dense_entries_are_trained_run_by_run_on_copies():
    sample = LAW.draw(1, 2)
    found = compare_rules(sample, {"sign": (SIGN_DESCENT, 0.2, 15, "flat")})["sign"]
    copy = dense_copy(sample, "flat")
    path = train_heads(copy, 0.2 * matched_step(sample, SIGN_DESCENT), 15, rule=SIGN_DESCENT, record=[]).single()
    torch.testing.assert_close(found.end, log10_clean_error(path.v[-1], path.p[-1], copy), rtol=1e-10, atol=1e-12)


SIGNS_LAW = SignalNoiseLaw(7, 60, 4.0, 0.2)


def one_sign_step(sample, size=0.3):
    return train_heads(sample, size, 1, rule=SIGN_DESCENT, record=[]).single()


@pytest.mark.parametrize("signals", ["axis", "flat", "random"])
def test_a_dense_copy_is_the_same_data_in_other_directions(signals):
    sample = SIGNS_LAW.draw(3, 2)
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
            np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)


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


@pytest.mark.parametrize(
    "rule", [heavy_ball(0.9), nesterov(0.9), NORMALISED, BLOCK_NORMALISED], ids=lambda rule: rule.name
)
@pytest.mark.parametrize("size", [0.25, 5.0])
def test_momentum_and_normalised_steps_keep_the_threshold(rule, size):
    """Without flips, orthogonal noise: each weight moves to the side of its own x."""
    x, moves, _ = collected_moves(
        (
            own,
            size,
            train_heads(sample, size * matched_step(sample, rule, 1.0), 30, rule=rule).single().attention_on_signal,
        )
        for sample, own in without_flips((0.3, 0.9, 1.12, 1.5), 0)
    )
    assert one_way(x, moves, 1.0).holds
    assert not one_way(x, moves, 1.2).holds


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


# --- claims and their controls, each in its own world ----------------------------------------------------------------------

DRAWS = 60


def around(value, spread=1e-3):
    """(DRAWS,): draws whose mean is the value."""
    return value * (1 + spread * torch.linspace(-1, 1, DRAWS, dtype=torch.float64))


def exponents(factor):
    """One step at one strength: the exponents of sign descent are so many times the predicted ones."""
    law, gd = SignalNoiseLaw(50, 5000, 10.0, 0.1), around(2.0)
    differences = around(20.0).unsqueeze(1).expand(-1, 2)
    ratios = {
        "random": exponent_ratio_random(gd, 10.0, 5000),
        "flat": exponent_ratio_flat(differences, 10.0, 50, 5000),
    }
    found = {basis: factor * ratio * gd for basis, ratio in ratios.items()}
    return Study(signs={1.0: Study(law=law, gd_exponent=gd, exponents=found, differences=differences)})


def memory(factor):
    law = SignalNoiseLaw(50, 5000, 10.0, 0.1)
    return Study(signs={1.0: Study(law=law, memory_ratio=around(factor * axis_memory_ratio(10.0, 50, 5000)))})


def bases(axis, random):
    return Study(sign_ends={"axis": torch.full((3, DRAWS, 2), axis), "random": torch.full((3, DRAWS, 2), random)})


def batches(full, small):
    return Study(many={"gradient descent": Study(end=around(full)), "batches of 10": Study(end=around(small))})


def track(prediction, rival):
    """Prediction and block-normalised descent as multiples of what is measured."""
    errors = torch.stack([around(-2.0), around(-3.0)])
    found = Study(log10_error=errors, block_error=rival * errors, predicted=Study(log10_error=prediction * errors))
    return Study(tracks={"low": found})


def noise_products(base, plane, seed):
    """Inner products at three records of ten runs: so many times the prediction without the plane of the signals, and with it."""
    rng = np.random.default_rng(seed)
    shape = torch.tensor([[1.0, 0.1], [0.1, 1.0]], dtype=torch.float64)
    without = torch.as_tensor(rng.uniform(0.9, 1.1, (3, 10, 1, 1))) * shape
    in_plane = torch.tensor([[0.5, -0.3], [-0.3, 0.5]], dtype=torch.float64)
    found = (base * without + plane * in_plane) * (1 + 1e-3 * rng.standard_normal())
    predicted = Study(noise_products=without, products=without + in_plane)
    course = Study(steps=(2, 5, 9), noise_products=found, predicted=predicted)
    return Study(tracks={"low": course, "high": course}, low_law=Study(n=50, d=5000))


@pytest.mark.parametrize(
    ("id", "own", "others"),
    [
        ("Q25", memory(1.0), [memory(1.1)]),
        ("Q26", exponents(1.0), [exponents(1.5)]),
        ("Q27b", bases(1e-5, 1 - 1e-5), []),
        ("Q29", batches(-0.45, -3.5), []),
        ("Q51", track(1.0, 1.4), [track(1.4, 1.0)]),
        *(("Q51b", noise_products(1, 0, seed), [noise_products(1, 1, seed), noise_products(2, 0, seed)])
          for seed in (0, 1)),
    ],
)  # fmt: skip
def test_claims_and_controls_each_hold_in_their_own_world(id, own, others):
    assert worlds(CLAIMS[id], own, *others) == []


def test_one_group_alone_does_not_make_a_claim_hold():
    for id, made, one, other in (("Q27b", bases, 1e-5, 1 - 1e-5), ("Q29", batches, -0.45, -3.5)):
        assert [CLAIMS[id].seen(made(each, each)).holds for each in (one, other)] == [False, False]
