"""The exact error of trained heads: its scores, counting, and where formulas end (tau = 0, T > 2). Its integral: tests/kernels."""

import math

import mpmath
import numpy as np
import pytest
import torch

from attnbook.single_head.error_bound import log10_error_bound
from attnlib.divergence import TrainingDiverged
from attnlib.single_head.errors import (
    clean_error_conditioned,
    clean_error_sampled,
    log10_clean_error,
    noisy_error,
    scores_of_fresh_data,
)
from attnlib.single_head.law import SignalNoiseLaw
from attnlib.single_head.training import gradient_descent, gram_descent
from tests.bad_input import refusing


def _trained(n, d, rho, eta, step_size, seed=0, runs=1, steps=2, **kwargs):
    sample = SignalNoiseLaw(n, d, rho, eta, **kwargs).draw(seed, runs)
    path = gradient_descent(sample, step_size, steps, record=[steps])
    return sample, path.v[-1], path.p[-1]


def test_exact_error_equals_counting_and_a_wrong_one_does_not():
    sample, v, p = _trained(40, 2000, 6.0, 0.1, 0.1, runs=8)
    exact = 10 ** log10_clean_error(v, p, sample)
    for twin in (clean_error_sampled(v, p, sample, 20_000), clean_error_conditioned(v, p, sample, 20_000)):
        z = (twin.value - exact) / twin.standard_error
        assert z.abs().max() < 4.5
        assert abs(z.sum() / math.sqrt(8)) < 4.5
        wrong = (twin.value - 1.2 * exact) / twin.standard_error
        assert abs(wrong.sum() / math.sqrt(8)) > 4.5


def test_scores_by_hand():
    sample, v, p = _trained(10, 60, 3.0, 0.2, 0.5, runs=2)
    s = scores_of_fresh_data(v, p, sample)
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((200_000, v.shape[-1]))
    noise[:, :2] = 0  # reduced coordinates hold the signals in the first two
    a, b = noise @ p[1].numpy(), noise @ v[1].numpy()
    assert s.omega[1, 0] == pytest.approx(a.std(), rel=0.01)
    assert s.along[1, 0] * s.omega[1, 0] == pytest.approx((a * b).mean(), rel=0.03)
    assert torch.hypot(s.along, s.tau)[1, 0] == pytest.approx(b.std(), rel=0.01)
    assert s.value[1, 1] == pytest.approx(-float(v[1, 1] * 3.0))


def test_after_one_step_the_error_is_a_gaussian_tail():
    sample, v, p = _trained(50, 400, 4.0, 0.1, 0.3, runs=3, steps=1)
    units = sample.signals / 4.0
    noise = v - torch.einsum("rk,rkm->rm", torch.einsum("rkm,rm->rk", units, v), units)
    score = torch.einsum("rkm,rm->rk", sample.signals, v) * torch.tensor([1.0, -1.0])
    tail = torch.special.log_ndtr(-score / noise.norm(dim=-1, keepdim=True)) / math.log(10)
    torch.testing.assert_close(log10_clean_error(v, p, sample, per_class=True), tail, rtol=1e-11, atol=1e-12)


def test_one_training_sample_makes_a_step_integrand():
    """n = 1: v and p noise parts are parallel, tau = 0. err = P(e^{p.mu - omega t} V + c t < 0), a root to find."""
    sample, v, p = _trained(1, 50, 6.0, 0.0, 3.0, seed=1, steps=3)
    s = scores_of_fresh_data(v, p, sample)
    k = int(sample.signal_class[0, 0])
    a, V, omega, c = (float(x[0, k]) for x in (s.logit, s.value, s.omega, s.along))
    assert float(s.tau[0, k]) == pytest.approx(0, abs=1e-12)

    def score(t):
        return math.exp(a - omega * t) * V + c * t

    t = np.linspace(-12, 12, 2_000_001)
    sign = np.exp(a - omega * t) * V + c * t < 0
    assert sign.any()
    edges = t[np.nonzero(np.diff(sign))[0]]
    by_hand = sum(
        mpmath.ncdf(hi) - mpmath.ncdf(lo)
        for lo, hi in zip([-math.inf, *edges], [*edges, math.inf], strict=True)
        if score((max(lo, -12) + min(hi, 12)) / 2) < 0
    )
    assert 10 ** log10_clean_error(v, p, sample, per_class=True)[0, k].item() == pytest.approx(float(by_hand), rel=1e-3)


def test_more_tokens_are_sampled_two_ways_that_agree():
    sample, v, p = _trained(40, 2000, 7.0, 0.1, 0.2, runs=6, tokens=5)
    counted, conditioned = clean_error_sampled(v, p, sample, 10_000), clean_error_conditioned(v, p, sample, 10_000)
    z = (counted.value - conditioned.value) / torch.hypot(counted.standard_error, conditioned.standard_error)
    assert z.abs().max() < 4.5
    assert (conditioned.standard_error < counted.standard_error).all()
    with pytest.raises(ValueError, match="tokens must be 2"):
        log10_clean_error(v, p, sample)


@pytest.mark.parametrize("score", [0.0, 740.0, 1e4, -1e4])
def test_a_class_is_not_lost_beside_a_high_score_of_the_other(score):
    sample = SignalNoiseLaw(20, 400, 10.0).draw(seed=0, runs=8)
    first, second = sample.signals.unbind(1)
    p = score * first / 100 + sample.tokens[:, 0, 1] / 400  # the score of mu_1 is `score`, that of mu_2 is 0
    v = first - second + 4 * sample.tokens[:, 1, 1]
    conditioned = clean_error_conditioned(v, p, sample, 20_000)
    z = (conditioned.value - 10 ** log10_clean_error(v, p, sample)) / conditioned.standard_error
    assert z.abs().max() < 4.5


def test_error_on_flipped_labels():
    sample, v, p = _trained(40, 2000, 6.0, 0.2, 0.1, runs=6)
    clean = 10 ** log10_clean_error(v, p, sample)
    predicted = noisy_error(clean, 0.2)
    counted = clean_error_sampled(v, p, sample, 20_000, label_noise=0.2)
    assert ((counted.value - predicted) / counted.standard_error).abs().max() < 4.5
    assert ((counted.value - noisy_error(clean, 0.22)) / counted.standard_error).mean() < -4.5
    assert noisy_error(0.0, 0.2) == 0.2
    assert noisy_error(1.0, 0.2) == pytest.approx(0.8)


def test_bound_is_above_the_error_and_minimal_over_equal_cuts():
    sample, v, p = _trained(100, 20_000, 25.0, 0.05, 0.02, runs=4)
    bound, exact = (
        log10_error_bound(scores_of_fresh_data(v, p, sample)),
        log10_clean_error(v, p, sample, per_class=True),
    )
    assert (bound >= exact).all()
    s = scores_of_fresh_data(v, p, sample)
    ratio = torch.exp(s.logit) * s.value / torch.hypot(s.along, s.tau)
    cuts = torch.linspace(1e-3, 30, 200_001, dtype=torch.float64)
    for r, k in ((0, 0), (3, 1)):
        exponents = torch.minimum((cuts / s.omega[r, k]) ** 2, (ratio[r, k] * torch.exp(-cuts)) ** 2) / 2
        assert bound[r, k].item() == pytest.approx(-exponents.max().item() / math.log(10), rel=1e-3)
    assert log10_error_bound(scores_of_fresh_data(-v, p, sample)).isnan().all()


def test_sampling_in_blocks_covers_every_point(monkeypatch):
    from attnlib.single_head import errors

    sample, v, p = _trained(20, 200, 3.0, 0.1, 0.2)
    monkeypatch.setattr(errors, "_BLOCK_BYTES", 8 * 2 * v.shape[-1] * 64)
    counted = clean_error_sampled(v, p, sample, 1000)
    exact = 10 ** log10_clean_error(v, p, sample)
    assert (counted.value * 1000).item() == pytest.approx(round((counted.value * 1000).item()))
    assert abs(counted.value - exact) < 4.5 * counted.standard_error


def test_steps_that_are_never_reached_have_no_error_and_nothing_is_nan():
    """d = 3 leaves one direction of noise: v and p are parallel off the signals, and some classes cannot be misclassified."""
    sample, v, p = _trained(2, 3, 30.0, 0.05, 0.025, runs=40)
    error = log10_clean_error(v, p, sample, per_class=True)
    assert not error.isnan().any()
    s = scores_of_fresh_data(v, p, sample)
    t = torch.linspace(-20_000, 20_000, 400_001, dtype=torch.float64)
    for r, k in np.argwhere(np.isneginf(error.numpy()))[:5]:
        score = torch.exp(s.logit[r, k] - s.omega[r, k] * t) * s.value[r, k] + s.along[r, k] * t
        assert score.min() > 0
    assert error.isneginf().any()


@pytest.mark.parametrize("factor", [5e-324, 1e-310, 1e-300, 1e-160, 1e-20, 3.0, 1e20, 1e160, 1e300])
def test_the_unit_of_v_changes_no_error(factor):
    """sign f is the same for v and c v; and where a number of v is no longer there (5e-324), no error is invented."""
    sample, v, p = _trained(200, 40_000, 30.0, 0.05, 0.025, seed=3, runs=3)
    exact, small = log10_clean_error(v, p, sample, per_class=True), v.abs().max() * factor < 1e-300
    scaled = log10_clean_error(v * factor, p, sample, per_class=True)
    assert scaled.isfinite().all()
    if factor > 5e-324:  # digits that a subnormal number has not are lost, and no others
        torch.testing.assert_close(scaled, exact, rtol=1e-6 if small else 1e-12, atol=0)
    weak = 0.02 * p  # attention near one half: errors that can be counted
    counted = [clean_error_sampled(x, weak, sample, 2000).value for x in (v, v * factor)]
    assert small or torch.equal(*counted)


def test_what_is_no_number_has_no_error():
    sample, v, p = _trained(20, 400, 5.0, 0.1, 0.1, runs=3)
    v[1, 0] = torch.nan
    counted, exact = clean_error_sampled(v, p, sample, 50), log10_clean_error(v, p, sample)
    for found in (counted.value, counted.standard_error, exact):
        assert found.isnan().tolist() == [False, True, False]


@pytest.mark.parametrize("train", [gradient_descent, gram_descent])
def test_a_training_that_diverges_says_so(train):
    sample = SignalNoiseLaw(20, 400, 30.0, 0.3).draw(0, 3, first_run=7)
    with pytest.raises(TrainingDiverged, match=r"run 7 is not finite at step 2, .*: take a smaller step_size") as told:
        train(sample, 1e300, 6, record=[0, 1, 2, 4])
    assert (told.value.step, told.value.run) == (2, 7)


SAMPLE, V, P = _trained(5, 20, 2.0, 0.0, 0.1, runs=2)


test_refusals = refusing(
    (lambda: log10_clean_error(V[:1], P[:1], SAMPLE), "v must have shape"),
    (lambda: noisy_error(0.1, 0.7), "label_noise must be"),
)
