"""Stressed laws: what is drawn, that both ways to draw it agree, and that the generalised error is the error."""

import math
from dataclasses import replace

import pytest
import torch

from attnbook.single_head.coordinates import reduce
from attnbook.single_head.mean_field import mean_field, mean_field_log10_error
from attnbook.single_head.variants import StressedLaw, mean_field_step, same_noise_pull, stretched
from attnlib.single_head.errors import (
    clean_error_conditioned,
    clean_error_sampled,
    log10_clean_error,
    scores_of_fresh_data,
)
from attnlib.single_head.law import SignalNoiseLaw
from attnlib.single_head.training import gradient_descent
from tests.bad_input import refusing

BASE = StressedLaw(25, 300, 4.0, 0.1)
VARIANTS = {
    "classes": {"class_probability": 0.8},
    "norms": {"norm_ratio": 1.7},
    "acute": {"cosine": 0.6},
    "obtuse": {"cosine": -0.6, "norm_ratio": 0.7},
    "isotropic": {"noise_avoids_signals": False},
    "normalised": {"signal_norm": 4 / math.sqrt(300), "normalised_noise": True, "noise_avoids_signals": False},
    "all": {"class_probability": 0.7, "norm_ratio": 1.3, "cosine": 0.4, "noise_avoids_signals": False},
}


def _step(law):
    return 0.3 / law.noise_std**2


def _two_steps(law, *, runs=4, seed=0, coordinates="dense"):
    sample = law.draw(seed, runs, coordinates=coordinates)
    path = gradient_descent(sample, _step(law), 2, record=[2])
    return sample, path.v[-1], path.p[-1]


@pytest.mark.parametrize("coordinates", ["dense", "reduced"])
@pytest.mark.parametrize("tokens", [2, 3])
def test_default_knobs_draw_the_same_numbers(coordinates, tokens):
    plain = SignalNoiseLaw(9, 40, 3.0, 0.2, tokens=tokens)
    stressed = StressedLaw(9, 40, 3.0, 0.2, tokens=tokens)
    one, other = (law.draw(4, 3, coordinates=coordinates, start_vectors=2) for law in (plain, stressed))
    for name in ("tokens", "signals", "labels", "signal_class", "start_directions"):
        assert torch.equal(getattr(one, name), getattr(other, name))
    for a, b in zip(plain.draw_fresh(one, 20), stressed.draw_fresh(other, 20), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("coordinates", ["dense", "reduced"])
@pytest.mark.parametrize("name", VARIANTS)
def test_signals_have_their_norms_and_angle_and_noise_avoids_them_or_not(name, coordinates):
    law = replace(BASE, **VARIANTS[name])
    sample = law.draw(1, 3, coordinates=coordinates, start_vectors=1)
    rho, second = law.signal_norm, law.signal_norm * law.norm_ratio
    across = law.cosine * rho * second
    expected = torch.tensor([[rho**2, across], [across, second**2]], dtype=torch.float64)
    gram = sample.signals @ sample.signals.mT
    torch.testing.assert_close(gram, expected.expand(3, 2, 2), rtol=1e-10, atol=1e-10)
    assert sample.avoided.shape[1] == (2 if law.noise_avoids_signals else 0)
    overlaps = torch.einsum("rntm,rkm->rntk", sample.noise_tokens(), sample.signals)
    if law.noise_avoids_signals:
        torch.testing.assert_close(overlaps, torch.zeros_like(overlaps), rtol=0, atol=1e-10)
        identity = torch.eye(2, dtype=torch.float64).expand(3, 2, 2)
        torch.testing.assert_close(sample.avoided @ sample.avoided.mT, identity, rtol=0, atol=1e-12)
        torch.testing.assert_close(sample.signals @ sample.avoided.mT @ sample.avoided, sample.signals)
    else:  # covariance of (xi . mu_1, xi . mu_2) is the signals' Gram matrix
        many = law.draw(2, 60, coordinates=coordinates)
        pairs = torch.einsum("rntm,rkm->rntk", many.noise_tokens(), many.signals).reshape(-1, 2)
        measured = pairs.mT @ pairs / len(pairs) / law.noise_std**2
        spread = expected.diagonal().max() * math.sqrt(2 / len(pairs))
        assert (measured - expected).abs().max() < 5 * spread
        assert (measured - 1.3 * expected).abs().max() > 5 * spread  # a wrong scale is seen


@pytest.mark.parametrize("name", VARIANTS)
def test_dense_data_in_its_own_span_trains_to_the_same_numbers(name):
    law = replace(BASE, **VARIANTS[name])
    dense = law.draw(5, coordinates="dense")
    small = reduce(dense)
    one, other = (gradient_descent(sample, _step(law), 3) for sample in (dense, small))
    torch.testing.assert_close(other.margins, one.margins, rtol=1e-10, atol=1e-12)
    errors = [
        log10_clean_error(path.v[-1], path.p[-1], sample, per_class=True)
        for path, sample in ((one, dense), (other, small))
    ]
    torch.testing.assert_close(errors[1], errors[0], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", VARIANTS)
def test_exact_error_is_the_share_of_wrong_fresh_dense_points(name):
    law = replace(BASE, **VARIANTS[name])
    sample, v, p = _two_steps(law, runs=8)
    exact = 10 ** log10_clean_error(v, p, sample)
    for twin in (clean_error_sampled(v, p, sample, 10_000), clean_error_conditioned(v, p, sample, 10_000)):
        z = (twin.value - exact) / twin.standard_error
        assert z.abs().max() < 4.5
        assert abs(z.sum()) / math.sqrt(8) < 4.5
        wrong = (twin.value - 1.15 * exact) / twin.standard_error
        assert abs(wrong.sum()) / math.sqrt(8) > 4.5


def test_scores_of_unprojected_noise_have_the_covariance_of_the_whole_vectors():
    sample, v, p = _two_steps(replace(BASE, **VARIANTS["all"]))
    s = scores_of_fresh_data(v, p, sample)
    torch.testing.assert_close(s.omega[:, 0], p.norm(dim=1))
    torch.testing.assert_close(s.along[:, 0] * s.omega[:, 0], (v * p).sum(1))
    torch.testing.assert_close(s.along[:, 0] ** 2 + s.tau[:, 0] ** 2, (v * v).sum(1))


def test_normalised_noise_is_the_same_run():
    plain = SignalNoiseLaw(20, 500, 6.0, 0.1)
    normal = SignalNoiseLaw(20, 500, 6.0 / math.sqrt(500), 0.1, normalised_noise=True)
    (a, va, pa), (b, vb, pb) = (_two_steps(law, coordinates="reduced") for law in (plain, normal))
    torch.testing.assert_close(vb / math.sqrt(500), va, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(log10_clean_error(vb, pb, b), log10_clean_error(va, pa, a), rtol=1e-10, atol=1e-12)


PAPER = SignalNoiseLaw(200, 40_000, 30.0, 0.05)


def test_mean_field_step_is_the_mean_field_of_the_paper_law():
    law = StressedLaw(200, 40_000, 30.0, 0.05)
    clean, noisy = law.draw(0, 5).counts()
    mine, theirs = mean_field_step(law, 0.025, clean, noisy), mean_field(PAPER, 0.025, clean, noisy)
    assert mine.a == pytest.approx(theirs.a)
    for name in ("b", "margin1_clean", "margin1_noisy", "attention_clean", "attention_noisy", "margin2_clean"):
        torch.testing.assert_close(getattr(mine, name), getattr(theirs, name))
    torch.testing.assert_close(mine.scores.logit, theirs.p_signal)
    expected = mean_field_log10_error(PAPER, 0.025, clean, noisy)
    torch.testing.assert_close(mine.log10_error(), expected)


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("tokens", [2, 5])
def test_training_tends_to_the_mean_field_step_as_d_grows(name, tokens):
    """Second derivation: actual training at d = 10^9, where mean field is exact to 1e-3."""
    base = replace(BASE, **VARIANTS[name], tokens=tokens)
    law, step_size = stretched(base, 10**9, 0.15 * tokens / base.noise_std**2)
    sample = law.draw(0, 3)
    path = gradient_descent(sample, step_size, 2)
    field = mean_field_step(law, step_size, *sample.counts())

    def spread(clean, noisy):
        return torch.where(sample.noisy, noisy.gather(1, sample.signal_class), clean.gather(1, sample.signal_class))

    close = {"rtol": 3e-3, "atol": 3e-3}
    torch.testing.assert_close(path.margins[1], spread(field.margin1_clean, field.margin1_noisy), **close)
    torch.testing.assert_close(
        path.attention_on_signal[2], spread(field.attention_clean, field.attention_noisy), **close
    )
    torch.testing.assert_close(path.margins[2], spread(field.margin2_clean, field.margin2_noisy), **close)
    scores = scores_of_fresh_data(path.v[-1], path.p[-1], sample)
    torch.testing.assert_close(scores.logit, field.scores.logit, **close)
    torch.testing.assert_close(scores.value, field.scores.value, **close)
    spread_of_v = torch.hypot(scores.along, scores.tau)
    for name in ("omega", "tau"):
        torch.testing.assert_close(getattr(scores, name), getattr(field.scores, name), rtol=5e-3, atol=1e-9)
    assert ((scores.along - field.scores.along).abs() < 5e-3 * spread_of_v).all()


def test_stretching_keeps_the_scales_and_tokens_keep_the_pull():
    law, step_size = stretched(BASE, 4800, 0.3)
    assert law.n * law.snr**2 == pytest.approx(BASE.n * BASE.snr**2)
    assert step_size * law.d / law.n == pytest.approx(0.3 * 300 / 25)
    counts = BASE.draw(0, 2).counts()
    two, eight = (mean_field_step(replace(BASE, tokens=T), same_noise_pull(0.3, T), *counts) for T in (2, 8))
    assert two.a == pytest.approx(eight.a)
    torch.testing.assert_close(two.b, eight.b)


test_refusals = refusing(
    (lambda: replace(BASE, class_probability=0.0), r"in \(0, 1\); got 0.0: both classes must occur"),
    (
        replace,
        (BASE,),
        {"class_probability": [1.0, math.nan], "norm_ratio": [0.0, -1.0], "cosine": [1.0, -1.5, math.nan], "n": 0},
    ),
    (lambda: replace(BASE, noise_avoids_signals=1), "noise_avoids_signals must be True or False; got 1"),
)
