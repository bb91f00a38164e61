"""IV.10: radial noise, norms alone, correlated noise; claims and controls."""

import math
from types import SimpleNamespace as Study

import numpy as np
import pytest
import torch

from attnbook.open_questions.noise import AutoRegressive, Covariance, Diagonal, NoiseLaw, RadialT, Spiked
from attnbook.open_questions.noise_in_the_long_run.claims import CLAIMS
from attnbook.open_questions.noise_in_the_long_run.study import (
    RadialFates,
    correlated_fates,
    effective_trace,
    noise_costs,
    norms_only,
    radial_fates,
)
from attnbook.single_head.coordinates import reduce
from attnbook.single_head.long_run import law_at, small_then_long, train
from attnbook.single_head.margin import pattern_costs, tokens_of
from tests.worlds import worlds


def test_effective_trace():
    assert effective_trace(Covariance(), 500, 60) == pytest.approx(440, rel=1e-12)
    for covariance in (AutoRegressive(0.9), Spiked(300.0), Diagonal(np.linspace(0.1, 4, 500))):
        D = effective_trace(covariance, 500, 60)
        values = covariance.eigenvalues(500)
        assert (values / (1 + 60 * values / D)).sum() == pytest.approx(D, rel=1e-10)
        assert D < covariance.traces(500)[0]
    n = 60
    limit = 499 * n / (n - 1) - n
    assert effective_trace(Spiked(1e12), 500, n) == pytest.approx(limit, rel=1e-6)
    assert effective_trace(Diagonal(np.full(500, 7.0)), 500, n) == pytest.approx(7 * 440, rel=1e-10)


def test_fates_of_radial_noise_by_hand():
    fates = radial_fates(10.0, (0.6, 1.15, 1.6), n=100, d=20_000, draws=4)
    scale = RadialT(10.0)
    law = NoiseLaw(100, 20_000, law_at(1.6 / scale.harmonic, 100, 20_000, 0.0).signal_norm, 0.0, scale=scale)
    sample = law.draw(0, 4, first_run=8)
    path = train(sample, small_then_long(100, 20_000))
    at = np.flatnonzero(fates.at(1.6))
    for i, r in enumerate(at):
        for k in (0, 1):
            held = sample.signal_class[i] == k
            lengths = (sample.noise_tokens()[i, held, 0] ** 2).sum(-1)
            assert fates.harmonic[r, k] == pytest.approx(law.signal_norm**2 * (1 / lengths).sum().item())
            assert fates.arithmetic[r, k] == pytest.approx(law.signal_norm**2 * held.sum().item() / 20_000)
            expected = (lengths / (law.signal_norm**2 * held.sum())).numpy()
            np.testing.assert_allclose(fates.relative_length[r][held.numpy()], expected)
            mean = path.attention_on_signal[-1, i, held].mean().item()
            assert fates.attention[r, k] == pytest.approx(mean, abs=1e-9)
    measured, copy = fates.share(1.6)
    assert measured == pytest.approx((path.attention_on_signal[-1] > 0.5).double().mean().item())
    assert abs(copy - measured) < 0.03
    assert (fates.train_accuracy == 1).all()
    assert fates.svm is None


def test_costs_of_orthogonal_noise_are_sums_of_inverse_squares():
    sample = norms_only(NoiseLaw(14, 200, 3.0, scale=RadialT(3.0)).draw(1, 1))
    inverse = 1 / (sample.noise_tokens()[0, :, 0] ** 2).sum(-1)
    first = sample.signal_class[0] == 0
    expected = [inverse.sum(), inverse[first].sum(), inverse[~first].sum()]
    np.testing.assert_allclose(noise_costs(sample), torch.stack(expected).numpy(), rtol=1e-6)


def test_correlated_fates_against_the_exact_svm_and_draws_at_that_norm():
    n, d, x, covariance = 50, 10_000, 0.9, AutoRegressive(0.9)
    fates = correlated_fates(covariance, (0.35, 0.45, 0.6, 0.75, 0.9, 1.1, 1.4, 1.8, 2.4), n=n, d=d, draws=4)
    norm = math.sqrt(x * 2 * d / n)
    law = NoiseLaw(n, d, norm, 0.0, covariance=covariance)
    for r in range(2):
        row = 4 * 4 + r  # fifth norm, draw r
        one = reduce(law.draw(0, 1, first_run=r, coordinates="dense"))
        costs = pattern_costs(tokens_of(one), ("XX", "XS", "SX", "SS"))
        best = min(costs, key=costs.get)
        assert [letter == "S" for letter in best] == fates.svm[row].tolist()
        assert fates.cost[r] * n / d == pytest.approx(costs["XX"], rel=1e-6)
        count = (one.signal_class[0] == 0).sum().item()
        assert fates.x[row, 0] == pytest.approx(norm**2 * count / d)
        path = train(one, small_then_long(n, d))
        for k in (0, 1):
            mean = path.attention_on_signal[-1, 0, one.signal_class[0] == k].mean()
            assert bool(mean > 0.5) == fates.on_signal[row, k]


# --- claims and their controls, each in its own world ----------------------------------------------------------------------

DRAWS = 60


def around(value):
    """(DRAWS,): draws whose mean is the value."""
    return value * (1 + 1e-3 * np.linspace(-1, 1, DRAWS))


def radial(low, high, x=(0.8, 1.6)):
    """Whether the classes at the lower and at the higher x_h end on their signal; the arithmetic rule names noise at both."""
    target = np.repeat([0.8, 1.6], DRAWS)
    harmonic = np.stack([np.repeat(x, DRAWS)] * 2, 1)
    ends = np.where(np.stack([target] * 2, 1) > 1, high, low)
    at = lambda t: target == t  # noqa: E731
    return Study(radial={3: Study(harmonic=harmonic, arithmetic=harmonic / 4, on_signal=ends, at=at)})


def lengths(kind):
    target, n = np.repeat([0.6, 2.0], DRAWS), 10
    harmonic = np.stack([target] * 2, 1)
    predicted = np.random.default_rng(0).random((len(target), n)) < 0.5
    majority = np.repeat((harmonic > 1).mean(1, keepdims=True) > 0.5, n, 1)
    samples = {"lengths": predicted, "class": majority, "other": ~predicted}[kind]
    named = {"harmonic": harmonic, "predicted": predicted, "samples": samples}
    return Study(
        radial={
            3: RadialFates(
                target, attention=None, arithmetic=None, relative_length=None, train_accuracy=None, svm=None, **named
            )
        }
    )


def traced(D):
    fates = Study(effective=1.0, trace=1.5, cost=1 / around(D))
    return Study(correlated={"white": fates, "spike d": fates})


def decided(D):
    """Classes end on their signal above D, in units of the effective trace."""
    x = np.repeat(np.linspace(0.6, 2.6, 12), DRAWS)[:, None] * np.ones(2)
    found = Study(x=x, effective=1.0, cost=np.ones(DRAWS), svm=x > D, on_signal=x > D)
    return Study(correlated={"white": found, "spike d": found})


def meeting(first, low):
    """log10 error with projected noise and without: after one step and at the end."""
    avoids, meets = ([Study(log10_error=np.stack([around(first[i]), around(low[i])]))] for i in (0, 1))
    return Study(avoiding=avoids, meeting=meets)


@pytest.mark.parametrize(
    ("id", "own", "others"),
    [
        ("Q34", radial(low=False, high=True),
         [radial(low=False, high=False), radial(low=False, high=True, x=(0.4, 0.8))]),
        ("Q76", lengths("lengths"), [lengths("class"), lengths("other")]),
        ("Q77", traced(1.0), [traced(1.5), traced(2.0)]),
        ("Q77b", decided(1.0), [decided(2.0)]),
        ("Q78", meeting((-3, -1), (-0.5, -0.5)), [meeting((-3, -3), (-0.5, -1))]),
    ],
)  # fmt: skip
def test_claims_and_controls_each_hold_in_their_own_world(id, own, others):
    assert worlds(CLAIMS[id], own, *others) == []
