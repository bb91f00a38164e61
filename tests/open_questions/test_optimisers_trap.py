"""Which end a class is driven to: mean-field systems against vectors and automatic differentiation."""

import math

import numpy as np
import pytest
import torch
from torch.nn.functional import softplus

from attnbook.open_questions.out_of_the_trap.trap_boundaries import (
    block_rates,
    block_threshold,
    first_pass,
    own_block_thresholds,
    pass_then_descent,
)
from attnbook.single_head.flow import flow_rates, signal_threshold
from tests.bad_input import refusing

X, ETA, BATCHES = 0.7, 0.25, 3  # per batch and class: three clean samples, one flipped
PER = 4


def orthogonal_data():
    """Tokens (N, 2, N + 2), labels and classes: BATCHES batches of PER samples of each class, d = 100, exact mean field."""
    d, total = 100.0, 2 * PER * BATCHES
    rho = math.sqrt(X * d / (3 * BATCHES))
    tokens = torch.zeros(total, 2, total + 2, dtype=torch.float64)
    classes, labels = [], []
    for i in range(total):
        k = (i // PER) % 2
        tokens[i, 0, k], tokens[i, 1, 2 + i] = rho, math.sqrt(d)
        classes.append(k)
        labels.append((1.0 if k == 0 else -1.0) * (-1.0 if i % PER == PER - 1 else 1.0))
    return tokens, torch.tensor(labels, dtype=torch.float64), torch.tensor(classes), d


def descend(tokens, labels, batches, size, start=None):
    """Plain gradient descent with autograd, one batch after the other; v and p after the last."""
    v, p = start or torch.zeros(2, tokens.shape[-1], dtype=torch.float64)
    for batch in batches:
        v.requires_grad_(), p.requires_grad_()
        weights = torch.softmax(tokens[batch] @ p, -1)
        output = (weights * (tokens[batch] @ v)).sum(-1)
        softplus(-labels[batch] * output).mean().backward()
        v, p = (v - size * v.grad).detach(), (p - size * p.grad).detach()
    return v, p


def test_first_pass_is_gradient_descent_on_batches():
    tokens, labels, _, d = orthogonal_data()
    count = 2 * PER
    theta = 6.0
    batches = [torch.arange(b * count, (b + 1) * count) for b in range(BATCHES)]
    v, p = descend(tokens, labels, batches, theta * count / d)
    state = first_pass(X, ETA, theta, BATCHES)
    assert state.V[0] == pytest.approx((tokens[0, 0] @ v).item(), rel=1e-10)
    assert state.P[0] == pytest.approx((tokens[0, 0] @ p).item(), rel=1e-10)
    assert state.V[0] == pytest.approx(-(tokens[PER, 0] @ v).item(), rel=1e-10)
    for b in range(BATCHES):
        clean, noisy = b * count, b * count + PER - 1
        assert state.t_clean[0, b] == pytest.approx((tokens[clean, 1] @ v).item(), rel=1e-10)
        assert state.t_noisy[0, b] == pytest.approx(-(tokens[noisy, 1] @ v).item(), rel=1e-10)
        assert state.q_clean[0, b] == pytest.approx((tokens[clean, 1] @ p).item(), rel=1e-10, abs=1e-14)
        assert state.q_noisy[0, b] == pytest.approx((tokens[noisy, 1] @ p).item(), rel=1e-10, abs=1e-14)


def test_descent_after_the_pass_is_gradient_descent_on_all():
    tokens, labels, _, d = orthogonal_data()
    count, theta, size = 2 * PER, 6.0, 0.8
    batches = [torch.arange(b * count, (b + 1) * count) for b in range(BATCHES)]
    # A full-batch step has its own step size: two calls, the second from where the first one ended.
    v, p = descend(tokens, labels, batches, theta * count / d)
    v, p = descend(tokens, labels, 4 * [torch.arange(len(labels))], size * len(labels) / d, (v, p))
    clean = torch.tensor([i for i in range(len(labels)) if i % PER < PER - 1])
    expected = torch.softmax(tokens[clean] @ p, -1)[:, 0].mean().item()
    found = pass_then_descent(X, ETA, theta, BATCHES, schedule=((size, 4),))
    assert found[0] == pytest.approx(expected, rel=1e-10)
    assert found[0] != pytest.approx(pass_then_descent(X, ETA, theta, BATCHES, schedule=((size, 3),))[0], rel=1e-4)


def test_block_rates_have_gradients_of_v_and_p_of_one_length():
    """The ratio of speeds against lengths of gradients of real vectors, in a state of the mean field."""
    tokens, labels, classes, d = orthogonal_data()
    state = [0.9, 0.4, 0.7, 0.3, -0.2, 0.5]  # V, t_c, t_n, P, q_c, q_n
    total, rho = len(labels), tokens[0, 0, 0].item()
    v, p = torch.zeros(total + 2, dtype=torch.float64), torch.zeros(total + 2, dtype=torch.float64)
    v[0], v[1] = state[0] / rho, -state[0] / rho
    p[0] = p[1] = state[3] / rho
    for i in range(total):
        noisy = i % PER == PER - 1
        v[2 + i] = labels[i] * state[2 if noisy else 1] / math.sqrt(d)
        p[2 + i] = state[5 if noisy else 4] / math.sqrt(d)
    v.requires_grad_(), p.requires_grad_()
    softplus(-labels * (torch.softmax(tokens @ p, -1) * (tokens @ v)).sum(-1)).mean().backward()
    ratio = (v.grad.norm() / p.grad.norm()).item()
    plain, block = (f(state, X, ETA / (1 - ETA)) for f in (flow_rates, block_rates))
    np.testing.assert_allclose(block[:3], plain[:3])
    np.testing.assert_allclose(np.array(block[3:]) / plain[3:], ratio, rtol=1e-12)
    assert classes.sum() == total / 2


@pytest.mark.parametrize(("eta", "value"), [(0.05, 1.081), (0.2, 1.539)])
def test_boundary_of_block_normalised_flow(eta, value):
    found = block_threshold(eta)
    assert found == pytest.approx(value, rel=2e-3)
    assert found < 0.995 * signal_threshold(eta)


@pytest.mark.weekly
def test_own_boundaries_interpolate_that_of_a_share():
    found = own_block_thresholds(np.array([[0.0, 0.13], [0.22, 0.49]]))
    assert found[0, 0] == pytest.approx(1.0)
    assert found[0, 1] == pytest.approx(block_threshold(0.13), rel=2e-3)
    assert found[1, 0] == pytest.approx(block_threshold(0.22), rel=2e-3)
    assert found[1, 1] == math.inf


test_bad_arguments = refusing(
    (first_pass, (1.0, 0.1, 1.0, 2), {"x": 0.0, "theta": math.inf, "label_noise": 0.7, "batches": 0}),
    (lambda: pass_then_descent(1.0, 0.1, 1.0, 2, schedule=((0.0, 1),)), "schedule must be"),
    (block_threshold, (0.1,), {"label_noise": 0.6}),
)
