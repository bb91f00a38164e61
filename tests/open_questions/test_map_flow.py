"""The mean-field flow of any map: against softmax's, training on orthogonal noise, and known thresholds."""

import math

import pytest
import torch

from attnbook.open_questions.map_flow import map_descent, map_flow, map_rates, map_threshold, mean_field_error
from attnbook.open_questions.maps import log10_map_error
from attnbook.single_head.flow import flow_path, flow_rates, signal_threshold
from attnbook.single_head.long_run import orthogonal_sample
from attnlib.single_head.law import SignalNoiseLaw
from attnlib.single_head.maps import (
    ENTMAX15,
    HALF_PLUS,
    LINEARISED,
    SIGMOID,
    SOFTMAX,
    SPARSEMAX,
    softmax,
)
from attnlib.single_head.training import train_heads

F64 = torch.float64
FLOWING = (softmax(0.5), SPARSEMAX, ENTMAX15, LINEARISED, SIGMOID, HALF_PLUS)


def test_rates_of_softmax_are_the_six_known_equations():
    generator = torch.Generator().manual_seed(0)
    states = 3 * torch.randn(7, 6, generator=generator, dtype=F64)
    x, nu, rate = (torch.rand(7, generator=generator, dtype=F64) + 0.1 for _ in range(3))
    found = map_rates(states, x, nu, SOFTMAX, rate)
    for k in range(7):
        expected = flow_rates(states[k].tolist(), x[k].item(), nu[k].item(), rate[k].item())
        assert found[k].tolist() == pytest.approx(expected, rel=1e-12, abs=1e-14)


@pytest.mark.parametrize("attention_map", FLOWING, ids=str)
def test_one_step_is_gradient_descent_on_orthogonal_noise(attention_map):
    """Seven steps of the six variables against the general trainer: every score of every sample."""
    law = SignalNoiseLaw(14, 700, 9.0, 0.3)
    sample = orthogonal_sample(law, 3)
    clean, noisy = (part[0] for part in sample.counts())
    assert (noisy > 0).all()
    unit, steps = 1.7, 7
    path = train_heads(sample, unit * law.n / law.d, steps, attention_map=attention_map).single()
    x, nu = law.signal_norm**2 * clean / law.d, noisy / clean
    states = torch.zeros(2, 6, dtype=F64)
    for _ in range(steps):
        states = states + unit * map_rates(states, x, nu, attention_map, torch.ones(2, dtype=F64))
    v, p = path.v[-1, 0], path.p[-1, 0]
    noise = sample.noise_tokens()[0, :, 0]
    for k in range(2):
        V, t_c, t_n, P, q_c, q_n = states[k]
        of_class = sample.signal_class[0] == k
        for mask, t, q in ((of_class & ~sample.noisy[0], t_c, q_c), (of_class & sample.noisy[0], t_n, q_n)):
            values = sample.labels[0, mask] * (noise[mask] @ v)
            torch.testing.assert_close(values, t.expand_as(values), rtol=1e-10, atol=1e-12)
            torch.testing.assert_close(noise[mask] @ p, q.expand_as(values), rtol=1e-10, atol=1e-12)
        torch.testing.assert_close((1 - 2 * k) * sample.signals[0, k] @ v, V, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(sample.signals[0, k] @ p, P, rtol=1e-10, atol=1e-12)


def test_flow_of_softmax_is_the_one_solved_by_scipy():
    times = [0.5, 30.0, 1e4]
    for x, eta, rate in ((0.6, 0.1, 1.0), (1.8, 0.2, 0.25), (3.0, 0.3, 4.0)):
        expected = torch.as_tensor(flow_path(x, eta, times, attention_rate=rate).states)
        found = map_flow(x, eta, SOFTMAX, times=torch.tensor(times, dtype=F64), attention_rate=rate)[:, 0]
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("attention_map", [SOFTMAX, SPARSEMAX, SIGMOID, HALF_PLUS], ids=str)
def test_errors_of_the_mean_field_are_those_of_training_on_orthogonal_noise(attention_map):
    """Two runs with their own counts, both classes unlike: the exact error of the trained vectors, step by step."""
    law = SignalNoiseLaw(24, 4000, 11.0, 0.25)
    sample = orthogonal_sample(law, 3, 2)
    clean, noisy = sample.counts()
    assert clean.min() > 0
    assert noisy.min() > 0
    path = train_heads(sample, 2.0 * 24 / 4000, 9, attention_map=attention_map, record=[1, 9]).single()
    x, share = law.signal_norm**2 * clean / law.d, noisy / (clean + noisy)
    states = map_descent(x.flatten(), share.flatten(), attention_map, 2.0, record=[1, 9])
    found = mean_field_error(states, attention_map, clean, noisy, law.d)
    exact = torch.stack([log10_map_error(v, p, sample, attention_map) for v, p in zip(path.v, path.p, strict=True)])
    torch.testing.assert_close(found, exact, rtol=1e-8, atol=1e-10)


def test_thresholds_of_softmax_and_temperature_are_the_known_ones():
    for attention_map, rate, shares in ((SOFTMAX, 1.0, [0.0, 0.3]), (softmax(0.5), 4.0, [0.1])):
        eta = torch.tensor(shares, dtype=F64)
        expected = [signal_threshold(e, attention_rate=rate) for e in eta.tolist()]
        assert map_threshold(attention_map, eta, step=0.06).tolist() == pytest.approx(expected, rel=2e-3)
    slow = map_threshold(SOFTMAX, 0.2, attention_rate=0.25, step=0.1).item()
    assert slow == pytest.approx(map_threshold(softmax(2.0), 0.2, step=0.1).item(), rel=1e-6)
    assert map_threshold(SOFTMAX, 0.45, step=0.05).item() == math.inf
