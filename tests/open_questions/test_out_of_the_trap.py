"""IV.8: the flows of the rules, the first pass of mini-batches, and real draws against trainings one by one."""

import math
from types import SimpleNamespace as Study

import numpy as np
import pytest
import torch
from torch.nn.functional import softplus

from attnbook.open_questions.out_of_the_trap.claims import CLAIMS
from attnbook.open_questions.out_of_the_trap.study import (
    MAP_THETAS,
    MAP_XS,
    after_first_pass,
    block_rates,
    block_threshold,
    escape_map,
    first_pass,
    own_block_thresholds,
    pass_then_descent,
)
from attnbook.open_questions.second_solver import WEIGHTS, flow_speed
from attnbook.single_head.flow import flow_rates, signal_threshold
from attnbook.single_head.long_run import law_at
from attnlib.single_head.errors import log10_clean_error
from attnlib.single_head.rules import stochastic
from attnlib.single_head.training import train_heads
from tests.worlds import worlds

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


@pytest.mark.parametrize(("eta", "value"), [(0.05, 1.081), (0.2, 1.539), (0.3, 2.408)])
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


def test_every_cell_of_the_map_is_a_training_of_its_own():
    xs, thetas = (0.3, 1.5), (1.0, 8.0, 40.0)
    shares = escape_map(xs, thetas, 0.1, n=20, d=5000, batch=4, epochs=6, draws=2, seed=7)
    assert shares.shape == (2, 3)
    for i, j in ((0, 2), (1, 0)):
        sample = law_at(xs[i], 20, 5000, 0.1).draw(7, 2, first_run=(i * 3 + j) * 2)
        # Batches are drawn by the number of the run, which in the map counts from the first cell on.
        path = train_heads(sample, thetas[j] * 4 / 5000, 30, rule=stochastic(4), record=[]).single()
        held = torch.stack([sample.signal_class == k for k in (0, 1)], 1) & ~sample.noisy.unsqueeze(1)
        weight = (path.attention_on_signal[-1].unsqueeze(1) * held).sum(-1) / held.sum(-1)
        assert shares[i, j] == pytest.approx((weight > 0.5).double().mean().item())


def test_ways_on_from_the_first_pass():
    law = law_at(0.3, 20, 3000, 0.1)
    found = after_first_pass(law, 5, 8.0, size_after=3.0, epochs=9, descent_steps=25, draws=2, seed=4)
    sample = law.draw(4, 2)
    first = train_heads(sample, 8.0 * 20 / 3000, 4, rule=stochastic(5), record=[])
    lost = (first.v[-1], torch.zeros_like(first.p[-1]))
    for name, start in (
        ("then gradient descent", (first.v[-1], first.p[-1])),
        ("p set to 0, then gradient descent", lost),
    ):
        path = train_heads(sample, 3.0 * 20 / 3000, 25, start=start, record=[]).single()
        error = log10_clean_error(path.v[-1], path.p[-1], sample)
        np.testing.assert_allclose(found[name].log10_error, error.numpy(), rtol=1e-8)
    assert (found["one full step"].p_signal == 0).all()
    assert (found["first pass"].p_signal > 0).all()
    p = torch.einsum("rkm,rm->rk", sample.signals, first.p[-1, :, 0])
    np.testing.assert_allclose(found["first pass"].p_signal, p.numpy(), rtol=1e-10)
    same = train_heads(sample, 8.0 * 4 * 20 / 3000, 9, record=[]).single()
    error = log10_clean_error(same.v[-1], same.p[-1], sample)
    np.testing.assert_allclose(found["full batch, the same epoch"].log10_error, error.numpy(), rtol=1e-8)


def test_block_normalised_right_hand_side_is_that_of_the_second_solver():
    state = [0.4, -0.2, 0.3, 0.1, -0.5, 0.2]
    found = flow_speed(
        np.array(state)[:, None], np.array([1.7]), np.array([0.3]), np.array([1.0]), WEIGHTS["softmax"], blocks=True
    )
    np.testing.assert_allclose(found[:, 0], block_rates(state, 1.7, 0.3), rtol=1e-12)


# --- claims and their controls, each in its own world ----------------------------------------------------------------------

DRAWS = 60
FEW, MANY = (np.random.default_rng(0).permuted(np.arange(2 * DRAWS) < count).reshape(DRAWS, 2) for count in (26, 110))
ALL, NONE = np.ones((DRAWS, 2), bool), np.zeros((DRAWS, 2), bool)


def exchanged(svm, descent):
    return Study(svm=svm, descent=descent)


def block(followed):
    x = np.tile(np.geomspace(1.3, 3.6, 12), (DRAWS, 1))
    boundaries = {"own": np.full_like(x, 2.4), "flow": np.full_like(x, 2.8), "one": np.ones_like(x)}
    return Study(
        block=Study(
            x=x, on_signal=x > boundaries[followed], boundary=boundaries["own"], gradient_flow=boundaries["flow"],
            between=(x > 2.4) & (x < 2.8),
        )
    )  # fmt: skip


def steps_of_batches(large, small):
    pairs = zip(("batches of 20, 5 n/d", "batches of 20, n/4d"), (large, small), strict=True)
    return Study(
        batches={name: Study(on_signal=on, train_accuracy=np.full(DRAWS, fitted)) for name, (on, fitted) in pairs}
    )


def passes(**p):
    named = zip(("first pass", "full batch, the same epoch", "one full step"), p.values(), strict=True)
    return Study(passes={name: Study(p_signal=np.full((DRAWS, 2), value)) for name, value in named})


def first_passes(kept, batches, descent):
    spread = 1 + 1e-3 * np.linspace(-1, 1, DRAWS)
    after = {"batches on": -4.6, "then gradient descent": kept}
    after |= {"p set to 0, batches on": batches, "p set to 0, then gradient descent": descent}
    return Study(passes={name: Study(log10_error=error * spread) for name, error in after.items()})


def wide(factor):
    predicted = np.linspace(1.0, 2.0, 2 * DRAWS).reshape(DRAWS, 2)
    return Study(wide_pass=Study(predicted=predicted, p_signal=factor * predicted))


def cells(boundary):
    shares = (np.array(MAP_XS)[:, None] > np.full(len(MAP_THETAS), boundary)).astype(float)
    return Study(maps={0.0: shares, 0.2: shares}, boundaries=dict.fromkeys((0.0, 0.2), np.full(len(MAP_THETAS), 0.4)))


@pytest.mark.parametrize(
    ("id", "own", "others"),
    [
        ("Q40", exchanged(ALL, FEW), []),
        ("Q53b", block("own"), [block("flow"), block("one")]),
        ("Q55", steps_of_batches((MANY, 1.0), (NONE, 1.0)), [steps_of_batches((NONE, 1.0), (MANY, 1.0)), None]),
        ("Q30", passes(first=0.785, full=-0.3, one=0.0), [passes(first=-0.3, full=0.785, one=0.0), None]),
        ("Q56", first_passes(-5.8, -1.38, -1.36), []),
        ("Q57", wide(1.0), [wide(1.2)]),
        ("Q58", cells(0.4), [cells(1.0)]),
    ],
)  # fmt: skip
def test_claims_and_controls_each_hold_in_their_own_world(id, own, others):
    assert worlds(CLAIMS[id], own, *others) == []


def test_one_group_alone_does_not_make_the_claim_on_the_svm_hold():
    assert not CLAIMS["Q40"].seen(exchanged(ALL, ALL)).holds
    assert not CLAIMS["Q40"].seen(exchanged(FEW, FEW)).holds
