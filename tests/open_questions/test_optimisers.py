"""IV.2 and IV.8: rules of matched length, signs in two steps and along training, and out of the trap."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import norm
from torch.nn.functional import softplus

from attnbook.open_questions.judging import one_way
from attnbook.open_questions.margin_and_descent.study import schedule_fates
from attnbook.open_questions.optimisers.arcsine import arcsine_kernel, predicted_sign_descent
from attnbook.open_questions.optimisers.compared import LINE_UP, Entry, compare_rules, milestones
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
from attnbook.open_questions.optimisers.study import optimiser_study, sign_steps, sign_track
from attnbook.open_questions.out_of_the_trap.trap_boundaries import (
    block_rates,
    block_threshold,
    first_pass,
    own_block_thresholds,
    pass_then_descent,
)
from attnbook.open_questions.out_of_the_trap.trap_escape import after_first_pass, batch_sweep, escape_map
from attnbook.open_questions.outcomes import matched_step, rule_fates
from attnbook.single_head.flow import flow_rates, signal_threshold
from attnbook.single_head.long_run import collected_moves, law_at, train, without_flips
from attnlib.single_head.law import SignalNoiseLaw
from attnlib.single_head.population import log10_clean_error
from attnlib.single_head.rules import (
    BLOCK_NORMALISED,
    GRADIENT_DESCENT,
    NORMALISED,
    SIGN_DESCENT,
    adam,
    heavy_ball,
    nesterov,
    stochastic,
)
from attnlib.single_head.training import train_heads
from tests.bad_input import refusing

LAW = SignalNoiseLaw(12, 90, 7.0, 0.1)


def test_milestones_are_the_first_rows_that_qualify():
    sample = LAW.draw(6, 4)
    entry = Entry("test", GRADIENT_DESCENT, 1, 60)
    path = train_heads(sample, matched_step(sample, GRADIENT_DESCENT, 8.0), 60).single()
    found = milestones(path, sample, entry)
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
    slow = milestones(train_heads(sample, 1e-6, 3).single(), sample, entry)
    assert slow.at_loss.isnan().all()
    assert slow.loss_step.isnan().all()


def test_dense_entries_are_trained_run_by_run_on_copies():
    sample = LAW.draw(1, 2)
    entry = Entry("sign", SIGN_DESCENT, 0.2, 15, "flat")
    found = compare_rules(sample, [entry])["sign"]
    copy = dense_copy(sample, "flat")
    path = train_heads(copy, 0.2 * matched_step(sample, SIGN_DESCENT), 15, rule=SIGN_DESCENT, record=[]).single()
    torch.testing.assert_close(found.end, log10_clean_error(path.v[-1], path.p[-1], copy), rtol=1e-10, atol=1e-12)
    assert {entry.basis for entry in LINE_UP} == {"", "axis", "random"}


def test_schedules_are_factors_on_the_step_size():
    n, d = 20, 4000
    found = schedule_fates(2.0, n, d, 0.1, steps=520, draws=2, seed=3)
    sample, unit = law_at(2.0, n, d, 0.1).draw(3, 2), 5 * n / d
    for name, parts in (
        ("constant", [(unit, 520)]),
        ("n/5d for 500 steps, then full", [(0.04 * unit, 500), (unit, 20)]),
        ("full for 5 steps, then n/5d", [(unit, 5), (0.04 * unit, 515)]),
    ):
        path = train(sample, parts)
        error = log10_clean_error(path.v[-1], path.p[-1], sample)
        torch.testing.assert_close(found[name][1], error, rtol=1e-7, atol=1e-9)
    gaps = [(found["constant"][1] - found[name][1]).abs().max() for name in found if name != "constant"]
    assert min(gaps) > 1e-3


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


test_bad_input = refusing(
    (lambda: compare_rules(LAW.draw(0), [LINE_UP[0], LINE_UP[0]]), "entries must have different names"),
    (lambda: matched_step(LAW.draw(0), GRADIENT_DESCENT, 0.0), "unit must be"),
    (lambda: schedule_fates(1.0, 10, 100, 0.1, draws=0), "draws must be"),
    (lambda: rule_fates([LAW], GRADIENT_DESCENT, -1.0, 3), "size must be"),
    (lambda: rule_fates([LAW], stochastic(5), 1.0, 3), "must divide the number of samples"),
    (lambda: escape_map((1.0,), (0.0,), 0.1, n=10, d=100), "thetas must be"),
    (lambda: after_first_pass(LAW, 0, 1.0), "batch must be"),
    (lambda: batch_sweep(LAW, (1.0,), (5,)), "must divide the number of samples"),
    (lambda: sign_steps(LAW, draws=1), "draws must be"),
    (lambda: sign_track(LAW.draw(0), 0.0), "size must be"),
    (lambda: optimiser_study(50, 5000, 0.1, 0.45, 2.0, draws=1), "draws must be"),
    (lambda: optimiser_study(50, 5000, 0.1, -1.0, 2.0), "x must be"),
    (lambda: dense_copy(SIGNS_LAW.draw(0), "diagonal"), "signals must be one of 'axis', 'flat', 'random'"),
    (lambda: dense_copy(dense_copy(SIGNS_LAW.draw(0))), "sample must be in reduced coordinates"),
    (lambda: dense_copy(SIGNS_LAW.draw(0, start_vectors=2)), "without start vectors"),
    (
        lambda: dense_copy(SignalNoiseLaw(4, 31, 2.0).draw(0), "flat"),
        "d must be even for two orthogonal flat signals; got 31",
    ),
    (lambda: train_heads(SIGNS_LAW.draw(0), 0.1, 1, rule=SIGN_DESCENT), "does not commute with rotations"),
    (lambda: train_heads(SIGNS_LAW.draw(0), 0.1, 1, rule=adam()), "does not commute with rotations"),
    (axis_error, (1.0, 10), {"signal_norm": -1.0, "d": 2}),
    (lambda: axis_memory_ratio(1.0, 0, 10), "n must be"),
    (lambda: mean_one_norm(0), "d must be"),
    (lambda: adam_second_step((0.9, 1.5)), "betas must be"),
    (predicted_sign_descent, lambda: (SIGNS_LAW.draw(0), 0.1, 3), {"step_size": 0.0, "steps": 0}),
    (first_pass, (1.0, 0.1, 1.0, 2), {"x": 0.0, "theta": math.inf, "label_noise": 0.7, "batches": 0}),
    (lambda: pass_then_descent(1.0, 0.1, 1.0, 2, schedule=((0.0, 1),)), "schedule must be"),
    (block_threshold, (0.1,), {"label_noise": 0.6}),
)
