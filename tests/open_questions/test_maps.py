"""One head with any map: its exact error against the softmax integral, Gauss's rule and fresh points; its courses."""

import math

import numpy as np
import pytest
import torch
from scipy.special import log_ndtr, logsumexp

from attnbook.open_questions.maps import (
    log10_map_error,
    log10_map_error_of_scores,
    map_courses,
    map_error_conditioned,
)
from attnlib.randomness import stream
from attnlib.single_head.errors import FreshScores, clean_error_conditioned, log10_error_of_scores
from attnlib.single_head.law import SignalNoiseLaw
from attnlib.single_head.maps import (
    ENTMAX15,
    HALF_PLUS,
    HARDMAX,
    LINEAR,
    LINEARISED,
    SIGMOID,
    SOFTMAX,
    SPARSEMAX,
    relu,
    softmax,
    windows,
)
from attnlib.single_head.model import forward
from attnlib.single_head.training import train_heads

F64 = torch.float64
ALL = (SOFTMAX, softmax(0.5), SPARSEMAX, ENTMAX15, LINEARISED, HARDMAX, SIGMOID, HALF_PLUS, LINEAR, relu(0.0))


def scores(*numbers):
    """One run whose two classes are alike: logit, value, omega, along, tau."""
    return FreshScores(*(torch.full((1, 2), x, dtype=F64) for x in numbers))


def random_scores(runs=150, seed=0):
    generator = torch.Generator().manual_seed(seed)

    def uniform(low, high):
        return low + (high - low) * torch.rand(runs, 2, generator=generator, dtype=F64)

    sign = torch.where(uniform(0, 1) < 0.15, -1.0, 1.0)
    return FreshScores(
        uniform(-3, 6), sign * 10 ** uniform(-2, 2.5), 10 ** uniform(-2.5, 1), uniform(-2, 2), 10 ** uniform(-1.5, 0.5)
    )


def test_softmax_is_the_known_integral_from_one_half_to_ten_to_the_minus_millions():
    given = random_scores()
    expected = log10_error_of_scores(given, per_class=True)
    found = log10_map_error_of_scores(given, SOFTMAX, per_class=True)
    assert expected.min() < -10_000
    assert expected.max() > -0.301
    moderate = expected > -3000
    torch.testing.assert_close(found[moderate], expected[moderate], rtol=0, atol=1e-8 / math.log(10))
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-11)
    both = log10_map_error_of_scores(given, SOFTMAX)
    torch.testing.assert_close(both, log10_error_of_scores(given), rtol=1e-10, atol=1e-12)


def by_gauss(attention_map, logit, value, omega, along, tau):
    """log10 of the integral by Gauss's rule of 20 points on panels that end at the kinks and zeros of the map."""
    kinks = {"sparsemax": (1, -1), "entmax-1.5": (2, -2), "linearised softmax": (2,), "hardmax": (0,)}
    zeros = {"half plus": (-0.5,), "linear": (0,), "ReLU": (0,)}
    name = attention_map.name
    special = [(logit - x) / omega for x in kinks.get(name, ())] + [x / omega for x in zeros.get(name, ())]
    close = [at + side * 10.0**-k for at in special for k in range(12) for side in (-1, 0, 1)]
    ends = np.unique([*np.linspace(-26, 26, 1041), *(at for at in close if abs(at) < 26)])
    nodes, weights = np.polynomial.legendre.leggauss(20)
    t = (ends[:-1, None] + np.diff(ends)[:, None] * (nodes + 1) / 2).ravel()
    signal, noise = attention_map.weights(torch.as_tensor(np.stack([np.full_like(t, logit), omega * t], -1))).numpy().T
    with np.errstate(divide="ignore", invalid="ignore"):
        tail = log_ndtr(-(signal * value + noise * along * t) / (np.abs(noise) * tau))
    tail[np.isnan(tail)] = -math.log(2)  # no weight on either token
    log = tail - t**2 / 2 + np.log((np.diff(ends)[:, None] * weights / 2).ravel() / math.sqrt(2 * math.pi))
    return logsumexp(log) / math.log(10)


CASES = [(0.3, 2.0, 0.5, 0.3, 0.8), (-1.2, -3.0, 1.5, 0.4, 0.6), (1.5, 6.0, 0.7, -0.5, 0.7)]


@pytest.mark.parametrize("attention_map", ALL[2:], ids=str)
@pytest.mark.parametrize("case", CASES, ids=["plain", "wrong signal", "small"])
def test_every_map_against_gauss(attention_map, case):
    found = log10_map_error_of_scores(scores(*case), attention_map).item()
    assert found == pytest.approx(by_gauss(attention_map, *case), rel=1e-9, abs=1e-9)


def test_a_kinked_map_far_down_against_gauss():
    """Sparsemax at 10^-95: the whole mass sits behind the kink, 10 to 25 standard deviations out."""
    case = (3.0, 40.0, 0.2, 0.1, 0.4)
    found = log10_map_error_of_scores(scores(*case), SPARSEMAX).item()
    assert found < -90
    assert found == pytest.approx(by_gauss(SPARSEMAX, *case), rel=1e-8)


def test_errors_that_are_exactly_zero_one_and_a_half():
    """Sparsemax with a logit difference of 5 and no spread takes the signal alone."""
    assert log10_map_error_of_scores(scores(5.0, 1.0, 0.0, 0.0, 1.0), SPARSEMAX).item() == -math.inf
    assert log10_map_error_of_scores(scores(5.0, -1.0, 0.0, 0.0, 1.0), SPARSEMAX).item() == pytest.approx(0, abs=1e-12)
    assert log10_map_error_of_scores(scores(5.0, 0.0, 0.0, 0.0, 1.0), SPARSEMAX).item() == pytest.approx(
        math.log10(0.5)
    )
    mixed = FreshScores(*(torch.tensor([[a, b]], dtype=F64) for a, b in ((5, 0), (1, 1), (0, 0), (0, 0), (1, 1))))
    one = log10_map_error_of_scores(scores(0.0, 1.0, 0.0, 0.0, 1.0), SPARSEMAX).item()
    assert log10_map_error_of_scores(mixed, SPARSEMAX).item() == pytest.approx(one - math.log10(2))


def sampled_error(v, p, sample, attention_map, count):
    """The share of `count` fresh points that the model itself misclassifies, and its standard error."""
    shares = []
    for r in range(sample.runs):
        tokens, labels = sample.law.fresh_block(sample.run(r), count, stream(sample.seed, "test", r))
        output = labels * forward(tokens, v[r : r + 1], p[r : r + 1], attention_map=attention_map).output
        shares.append(((output < 0).double() + 0.5 * (output == 0)).mean())
    value = torch.stack(shares)
    return value, torch.sqrt(value * (1 - value) / count)


@pytest.mark.parametrize("attention_map", [SPARSEMAX, ENTMAX15, LINEARISED, SIGMOID, HALF_PLUS], ids=str)
def test_every_map_against_the_model_on_fresh_points(attention_map):
    law = SignalNoiseLaw(20, 600, 4.0, 0.1)
    sample = law.draw(3, 2)
    path = train_heads(sample, 0.1, 6, attention_map=attention_map, record=[]).single()
    exact = 10 ** log10_map_error(path.v[-1], path.p[-1], sample, attention_map)
    sampled, chance = sampled_error(path.v[-1], path.p[-1], sample, attention_map, 40_000)
    smooth = map_error_conditioned(path.v[-1], path.p[-1], sample, attention_map, 40_000)
    assert exact.min() > 0.005
    assert ((sampled - exact).abs() < 4 * chance).all()
    assert ((smooth.value - exact).abs() < 4 * smooth.standard_error).all()
    other = 10 ** log10_map_error(path.v[-1], path.p[-1], sample, HARDMAX)
    assert ((sampled - other).abs() > 4 * chance).all()


def test_many_tokens_softmax_and_windows():
    """Eight tokens: the conditioned average is the known one for softmax; windows agree with the model run on fresh points."""
    sample = SignalNoiseLaw(12, 900, 9.0, 0.1, tokens=8).draw(5, 2)
    for attention_map in (SOFTMAX, windows(SOFTMAX, 4), windows(SPARSEMAX, 2)):
        path = train_heads(sample, 0.3, 4, attention_map=attention_map, record=[]).single()
        smooth = map_error_conditioned(path.v[-1], path.p[-1], sample, attention_map, 8000)
        sampled, chance = sampled_error(path.v[-1], path.p[-1], sample, attention_map, 10_000)
        spread = (smooth.standard_error**2 + chance**2).sqrt()
        assert ((smooth.value - sampled).abs() < 4 * spread).all()
        if attention_map is SOFTMAX:
            known = clean_error_conditioned(path.v[-1], path.p[-1], sample, 8000)
            torch.testing.assert_close(smooth.value, known.value, rtol=1e-10, atol=0)


def test_courses_are_single_trainings():
    laws = [SignalNoiseLaw(20, 2000, norm, 0.1) for norm in (8.0, 20.0)]
    courses = map_courses(laws, SPARSEMAX, 0.05, 30, record=[2, 30], draws=3, seed=5)
    for law, course in zip(laws, courses, strict=True):
        sample = law.draw(5, 1, first_run=2)
        path = train_heads(sample, 0.05, 30, attention_map=SPARSEMAX, record=[2]).single()
        expected = log10_map_error(path.v[-1], path.p[-1], sample, SPARSEMAX).item()
        assert course.log10_error[-1, 2] == pytest.approx(expected, rel=1e-9)
        assert course.attention_clean[0, 2] == pytest.approx(path.attention_clean[0, 0].item())
