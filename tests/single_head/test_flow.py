"""The six-variable flow: against the trainer on orthogonal data, against its own map, and against proofs."""

import math

import numpy as np
import pytest
import torch

from attnbook.single_head.flow import (
    first_order_threshold,
    flow_path,
    flow_rates,
    flow_step,
    in_trap,
    own_thresholds,
    selects_signal,
    signal_threshold,
)
from attnbook.single_head.long_run import orthogonal_sample
from attnlib.single_head.law import SignalNoiseLaw
from attnlib.single_head.training import gram_descent
from tests.bad_input import refusing


@pytest.mark.parametrize(("rho", "step", "rate"), [(20.0, 0.3, 1.0), (35.0, 5.0, 1.0), (12.0, 2.0, 0.25)])
def test_the_map_is_gradient_descent_on_orthogonal_noise(rho, step, rate):
    """Both classes of one training set, every sample, 25 steps: scores of the six variables, to rounding."""
    law = SignalNoiseLaw(24, 3000, rho, 0.25)
    sample = orthogonal_sample(law, seed=5)
    beta = step * law.n / law.d
    path = gram_descent(sample, beta, 25, attention_step_size=rate * beta)
    clean, noisy = (count[0] for count in sample.counts())
    for k, sign in ((0, 1.0), (1, -1.0)):
        assert noisy[k] > 0
        x, nu = rho**2 * clean[k].item() / law.d, (noisy[k] / clean[k]).item()
        state = [0.0] * 6
        member = sample.signal_class[0] == k
        for t in range(26):
            v, p = path.v[t, 0], path.p[t, 0]
            assert sign * v @ sample.signals[0, k] == pytest.approx(state[0], rel=1e-9, abs=1e-12)
            assert p @ sample.signals[0, k] == pytest.approx(state[3], rel=1e-9, abs=1e-12)
            for mask, t_index, q_index in ((~sample.noisy[0], 1, 4), (sample.noisy[0], 2, 5)):
                noise = sample.tokens[0, mask & member, 1]
                own = sample.labels[0, mask & member] * (noise @ v)
                torch.testing.assert_close(own, torch.full_like(own, state[t_index]), rtol=1e-9, atol=1e-12)
                query = noise @ p
                torch.testing.assert_close(query, torch.full_like(query, state[q_index]), rtol=1e-9, atol=1e-12)
            state = flow_step(state, step, x, nu, rate)


def _final_state_of_the_map(x: float, eta: float) -> list[float]:
    """Explicit Euler with growing steps: a second integrator, nothing shared with SciPy's."""
    state, tau = [0.0] * 6, 0.0
    while tau < 1e3:
        step = 0.02 * (1 + tau) / 2
        state = flow_step(state, step, x, eta / (1 - eta))
        tau += step
    return state


@pytest.mark.parametrize(("eta", "value"), [(0.05, 1.089), (0.1, 1.208), (0.2, 1.621), (0.3, 2.799)])
def test_boundary_of_the_flow_to_half_a_percent_and_by_a_second_integrator(eta, value):
    assert signal_threshold(eta) == pytest.approx(value, rel=5e-3)
    for factor, signal in ((0.98, False), (1.02, True)):
        P, q_c = (_final_state_of_the_map(factor * value, eta)[i] for i in (3, 4))
        assert (P > q_c) == signal
        assert selects_signal(factor * value, eta) == signal


def test_boundary_is_one_without_flips_and_larger_with_any():
    assert signal_threshold(0.0) == 1.0
    assert not selects_signal(0.999, 0.0)
    assert selects_signal(1.001, 0.0)
    values = [signal_threshold(eta) for eta in (0.005, 0.02, 0.1, 0.25, 0.4)]
    assert values[0] > 1.002
    assert values == sorted(values)
    assert signal_threshold(0.45) == math.inf
    assert signal_threshold(0.5) == math.inf
    assert not selects_signal(1.0, 0.01)


@pytest.mark.parametrize("eta", [0.05, 0.2, 0.35])
def test_first_order_threshold_is_where_the_first_move_changes_sign(eta):
    """Second-order expansion at zero against the flow itself at a tiny time."""
    for factor, sign in ((0.99, -1), (1.01, 1)):
        x = factor * first_order_threshold(eta)
        state = flow_path(x, eta, [1e-3, 2e-3]).states[-1]
        rates = flow_rates(state, x, eta / (1 - eta))
        assert math.copysign(1, rates[3] - rates[4]) == sign
    assert first_order_threshold(0.5) == math.inf


def test_the_flow_keeps_its_conserved_quantity():
    """P + x (q_c + nu q_n) = 0 for r = 1: the solver does not know it."""
    x, eta = 1.9, 0.15
    path = flow_path(x, eta, np.geomspace(0.01, 1e4, 30))
    total = path.states[:, 3] + x * (path.states[:, 4] + eta / (1 - eta) * path.states[:, 5])
    np.testing.assert_allclose(total, 0, atol=1e-5)


def test_a_trapped_state_stays_trapped_whatever_the_step():
    rng = np.random.default_rng(3)
    seen = 0
    for _ in range(300):
        x, eta = math.exp(rng.uniform(-1, 1.5)), rng.uniform(0, 0.5)
        V, t_n = rng.normal(0, 3, 2)
        state = [V, V + rng.exponential(2), t_n, 0.0, rng.exponential(2), rng.exponential(2)]
        if not in_trap(state, x, eta):
            continue
        seen += 1
        for _ in range(20):
            after = flow_step(state, math.exp(rng.uniform(-3, 4)), x, eta / (1 - eta), math.exp(rng.uniform(-2, 2)))
            assert in_trap(after, x, eta)
            assert after[3] - after[4] <= state[3] - state[4]
            state = after
    assert seen > 40


def test_own_thresholds_interpolate_the_boundary():
    noisy = np.array([[0, 7], [13, 33]])
    own = own_thresholds(100 - noisy, noisy)
    exact = [1.0, *(signal_threshold(eta) for eta in (0.07, 0.13, 0.33))]
    np.testing.assert_allclose(own.flatten(), exact, rtol=3e-3)
    assert own_thresholds(np.array([10]), np.array([30]))[0] == math.inf


test_bad_arguments = refusing(
    (selects_signal, (2.0, 0.1), {"x": -1.0, "label_noise": 0.6}),
    (lambda: selects_signal(2.0, 0.1, attention_rate=0), "attention_rate must be .* frozen head"),
    (signal_threshold, (0.1,), {"tolerance": 0, "time": -1}),
    (lambda: flow_path(2.0, 0.1, [1.0]), "times must be two or more"),
    (lambda: flow_path(2.0, 0.1, [2.0, 1.0]), "times must be two or more"),
    (lambda: own_thresholds(np.array([0]), np.array([3])), "clean and noisy must be counts"),
)
