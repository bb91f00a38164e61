"""Predictions of the theory chapter against the mean field, sampling, and arithmetic done a second time by hand."""

import math

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp
from scipy.special import expit, softmax

from attnbook.token_selection import theory
from attnbook.token_selection.dynamics.study import growth
from attnbook.token_selection.fresh_selection import (
    fresh_attention,
    fresh_threshold,
    hard_selection,
    selection_accuracy,
)
from attnbook.token_selection.mean_field import CLEAN, FLIPPED, mean_field
from attnlib.token_selection.law import TokenLaw
from tests.bad_input import refusing


def law(**changes) -> TokenLaw:
    return TokenLaw(
        **{"n": 20, "d": 2000, "tokens": 8, "signal_norm": 20.0, "weak_signal": 0.1, "label_noise": 0.2} | changes
    )


ODD = law(n=30, d=700, tokens=5, signal_norm=6.0, noise_std=1.5, head_scale=0.8, label_noise=0.1)


# Numbers by hand


def test_two_numbers_and_three_clocks_by_hand():
    assert theory.n_snr_squared(ODD) == pytest.approx(30 * 36 / (2.25 * 700))
    assert theory.n_d_snr_fourth(ODD) == pytest.approx(30 * 700 * (36 / (2.25 * 700)) ** 2)
    nu, alpha, variance = 0.8 / 6, 1e-3, 0.5 / 700
    not_over = 1 / (alpha * nu * 6**3 * 700 * variance)
    over = 1 / (alpha / 30 * 2.25 * nu * 6 * 700**2 * variance)
    assert theory.not_overfitting_clock(ODD, alpha, weight_scale=0.2, prompt_scale=0.5) == pytest.approx(not_over)
    assert theory.overfitting_clock(ODD, alpha, weight_scale=0.5) == pytest.approx(over)
    assert theory.benign_clock(ODD, alpha, weight_scale=0.5) == pytest.approx(over * math.exp(2.25 * 700 / (30 * 36)))
    assert theory.benign_clock(law(d=10**9, signal_norm=1.0), 1.0) == math.inf


def test_loss_floor_by_hand():
    assert theory.loss_floor(law()) == pytest.approx(0.4008, abs=5e-5)
    assert theory.loss_floor(ODD) == pytest.approx(-math.log(1 / (1 + math.exp(-0.8 * math.sqrt(0.5)))))


@pytest.mark.parametrize("same_class", [1, 3])
def test_uniform_attention_accuracy_against_fresh_vectors(same_class):
    one = law(d=37, tokens=9, signal_norm=3.0, weak_signal=0.4, noise_std=1.3, same_class_tokens=same_class)
    tokens, true = one.draw_fresh(20_000, seed=3)
    right = (true * (tokens @ one.head()).mean(1) > 0).double().mean().item()
    predicted = theory.uniform_attention_accuracy(one)
    error = math.sqrt(predicted * (1 - predicted) / 20_000)
    assert abs(right - predicted) < 4 * error
    without = theory.uniform_attention_accuracy(law(d=37, tokens=9, signal_norm=3.3, noise_std=1.3))
    assert abs(right - without) > 4 * error  # another signal norm, or weak tokens ignored


# Clean samples


def test_first_half_constant_in_its_closed_limit_and_as_limit_of_the_mean_field():
    faint = law(weak_signal=0.0, head_scale=1e-4, label_noise=0.1, tokens=6)
    closed = 4 * math.sqrt(2) / 0.8 * (growth(math.log(5.0), 6) - growth(0.0, 6))
    assert theory.first_half_constant(faint) == pytest.approx(closed, rel=1e-4)
    for one in (law(signal_norm=4000.0), law(signal_norm=4000.0, tokens=5, head_scale=0.7, same_class_tokens=2)):
        units = theory.first_half_time(one, 1e-6) / theory.not_overfitting_clock(one, 1e-6)
        assert theory.first_half_constant(one) == pytest.approx(units, rel=2e-3)
    assert theory.first_half_constant(law()) == pytest.approx(128.03, abs=0.01)
    assert theory.first_half_constant(law(label_noise=0.5)) == math.inf


def test_mean_field_signal_score_is_the_fixed_function_of_own_noise():
    one = law(weak_signal=0.3, label_noise=0.1)
    path = mean_field(one, 1e-2, horizon=400.0, finite_size=False)
    share = one.signal_share().sum(-1).numpy()
    own = path.scores - path.signal_score[:, None, None] * share
    kinds = np.array([0.9, 0.1])
    expected = theory.n_snr_squared(one) / 2 * np.einsum("k,skt,t->s", kinds, own, share)
    np.testing.assert_allclose(path.signal_score, expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(own.sum(-1), 0, atol=1e-10)
    assert path.prompt_norm_squared[0] == 0 < path.prompt_norm_squared[-1]


# Flipped samples


@pytest.mark.parametrize(("tokens", "weak"), [(8, 0.1), (5, 0.0), (12, 0.3)])
def test_drag_threshold_is_where_the_first_move_turns(tokens, weak):
    threshold = theory.noisy_drag_threshold(law(tokens=tokens, weak_signal=weak))
    if weak == 0:
        faint = law(tokens=tokens, weak_signal=0.0, head_scale=1e-6)
        assert theory.noisy_drag_threshold(faint) == pytest.approx(2 * tokens / (0.6 * (tokens - 1)), rel=1e-5)
    for factor, sign in ((0.97, -1), (1.03, 1)):
        one = law(tokens=tokens, weak_signal=weak, signal_norm=math.sqrt(factor * threshold * 100))  # n / d = 1 / 100
        path = mean_field(one, 1e-4, horizon=1e-3, finite_size=False)
        assert sign * (path.attention[-1, FLIPPED, 0] - 1 / tokens) > 0
    assert theory.noisy_drag_threshold(law(label_noise=0.5)) == math.inf


def test_memorisation_exponent_is_the_relative_entropy_and_the_slope_of_the_peak():
    one = law(weak_signal=0.0, label_noise=0.1)
    sigma = 1 / (1 + math.exp(-math.sqrt(0.5)))
    entropy = 0.9 * math.log(0.9 / sigma) + 0.1 * math.log(0.1 / (1 - sigma))
    kappa = theory.memorisation_exponent(one)
    assert kappa == pytest.approx(7 / 16 * entropy)
    assert theory.memorisation_exponent(law(label_noise=0.4)) == 0
    peaks = []
    for r in (150, 300):
        strong = law(weak_signal=0.0, label_noise=0.1, signal_norm=math.sqrt(100.0 * r))
        path = mean_field(
            strong,
            1.0,
            finite_size=False,
            largest_move=0.1,
            until=lambda now: now.attention[CLEAN, 0] > 0.9 and now.attention[FLIPPED, 0] < 0.5,
        )
        peaks.append((path.scores[:, FLIPPED, 0] - path.scores[:, FLIPPED, -1]).max())
    assert (peaks[1] - peaks[0]) / 150 == pytest.approx(kappa, rel=0.03)


# Fresh samples


@pytest.mark.parametrize(("own", "other", "variance"), [(2.0, 1.0, 0.5), (1.0, -1.0, 0.01), (5.0, 3.0, 9.0)])
def test_mean_fresh_attention_against_sampling(own, other, variance):
    one = law(tokens=7, weak_signal=0.3, same_class_tokens=2)
    exact = fresh_attention(one, own, other, variance)
    assert exact.sum() == pytest.approx(1, abs=1e-8)
    scores = one.signal_share().numpy() @ [own, other] + math.sqrt(variance) * np.random.default_rng(5).standard_normal(
        (100_000, 7)
    )
    weights = torch.softmax(torch.as_tensor(scores), -1).numpy()
    error = weights.std(0) / math.sqrt(100_000)
    assert np.all(np.abs(weights.mean(0) - exact) < 4.5 * error)
    assert np.any(np.abs(weights.mean(0) - fresh_attention(one, own + 0.1, other, variance)) > 4.5 * error)


def test_fresh_attention_without_noise_is_a_softmax_and_the_threshold_gives_one_half():
    one = law(tokens=6, weak_signal=0.2)
    softmax = torch.softmax(one.signal_share() @ torch.tensor([1.7, 0.4], dtype=torch.float64), -1)
    np.testing.assert_allclose(fresh_attention(one, 1.7, 0.4, 0.0), softmax.numpy(), atol=1e-9)
    score = fresh_threshold(one)
    assert fresh_attention(one, score, score, 0.0)[0] == pytest.approx(0.5, abs=1e-8)
    assert fresh_threshold(law(weak_signal=0.0)) == pytest.approx(math.log(7))


def test_hard_selection_and_its_accuracy_against_sampling():
    one = law(tokens=6, weak_signal=0.25, signal_norm=4.0)
    np.testing.assert_allclose(hard_selection(0.0, one), 1 / 6, rtol=1e-10)
    rng, draws = np.random.default_rng(8), 200_000
    share = one.signal_share().numpy()
    chosen = (1.4 * share.sum(-1) + rng.standard_normal((draws, 6))).argmax(-1)
    seen = np.bincount(chosen, minlength=6) / draws
    assert np.all(np.abs(seen - hard_selection(1.4, one)) < 4.5 * np.sqrt(seen * (1 - seen) / draws))
    values = (4.0 * (share[:, 0] - share[:, 1]) / math.sqrt(2))[chosen] + rng.standard_normal(draws)
    assert (values > 0).mean() == pytest.approx(selection_accuracy(1.4, one), abs=4.5 * 0.5 / math.sqrt(draws))


@pytest.mark.parametrize("signal_norm", [20.0, 200.0])
def test_closed_delay_is_that_of_the_mean_field_in_nats(signal_norm):
    """With all late gaps equal, or without the growth of p, it is off by 0.4 to 1.2 nats of 40 to 56."""
    one = law(signal_norm=signal_norm, d=int(160 * signal_norm**2))
    path = math.log(theory.selection_path(one, 1.0).time[-1])
    assert theory.selection_time(one, 1.0)[0] == pytest.approx(path, abs=0.25 if signal_norm == 20 else 0.06)


def test_leads_and_scores_solve_the_hard_margin_problem():
    """Gap by gap: B of the mean field's differences, beta = B^{-1} 1, leads log(f / beta); S and |p|^2 from v = B^{-1} X."""
    one = law(weak_signal=0.3, label_noise=0.3, tokens=6, signal_norm=30.0, d=9000)
    share = one.signal_share().numpy()
    a, value, w = share.sum(-1), (share[:, 0] - share[:, 1]) / math.sqrt(2), (0.7, 0.3)
    gaps = [(k, t) for k in (0, 1) for t in range(6) if t != k]
    B, f, b = np.zeros((10, 10)), np.zeros(10), np.array([a[k] - a[t] for k, t in gaps])
    for i, (k, t) in enumerate(gaps):
        y = value if k == 0 else -value
        f[i] = w[k] * (y[k] - y[t]) / (1 + math.exp(y[k]))
        for j, (other, u) in enumerate(gaps):
            B[i, j] = (k == other) * (1 + (t == u)) / w[k] + theory.n_snr_squared(one) / 2 * b[i] * b[j]
    beta = np.linalg.solve(B, np.ones(10))
    assert (beta > 0).all()
    leads = theory._late_leads(one)
    np.testing.assert_allclose([leads[k, t] for k, t in gaps], np.log(f / beta) - np.log(f / beta)[4], atol=1e-12)
    X = 7.0 + np.log(f / beta) - np.log(f / beta)[4]
    weights = np.linalg.solve(B, X)
    score, in_span = theory._late_scores(one, 7.0, leads)
    assert score == pytest.approx(theory.n_snr_squared(one) / 2 * weights @ b, rel=1e-10)
    # v = sum of n times the weights times differences: |v|^2 sigma^2 d = n X'B^{-1}X
    assert in_span == pytest.approx(one.n * X @ weights / (one.noise_std**2 * one.d), rel=1e-10)


def test_discrimination_in_its_limit():
    faint = law(signal_norm=1e4, d=10**12)
    n_d = theory.n_d_snr_fourth(faint)
    limit = 0.5 * (0.82 - 1.2 / 8) * math.sqrt(8 / 7 * n_d)
    assert theory.late_discrimination(faint) == pytest.approx(limit, rel=2e-3)


# The first version of the paper


def test_window_of_the_constructed_direction_by_hand():
    one = law(n=100, d=10_000, weak_signal=0.2)
    lower, upper = theory.existence_window(one)
    assert lower == pytest.approx(0.8 * 400 / 10_000)
    assert upper == pytest.approx(400 / (1000 * math.sqrt(2 * math.log(8))))


@pytest.mark.parametrize("strength", [0.45, 0.9])
def test_accuracy_of_the_constructed_direction_on_vectors(strength):
    one = law(n=40, d=1500, tokens=5, weak_signal=0.2, signal_norm=20.0)
    accuracies = []
    for run in range(6):
        sample = one.draw(4, 1, first_run=run)
        noise = sample.tokens[0].clone()
        noise[..., :2] -= one.means(sample.labels.true)[0]
        flipped = sample.labels.noisy[0]
        p = strength * torch.where(flipped[:, None], noise[:, 1], noise[:, 0]).sum(0)
        p[:2] += 20.0
        tokens, true = one.draw_fresh(1000, seed=4, run=run)
        chosen = (tokens @ p).argmax(-1)
        values = (tokens @ one.head()).gather(1, chosen[:, None])[:, 0]
        accuracies.append((true * values > 0).double().mean().item())
    predicted = theory.constructed_direction_accuracy(one, strength)
    assert np.mean(accuracies) == pytest.approx(predicted, abs=0.025)
    assert abs(np.mean(accuracies) - theory.constructed_direction_accuracy(one, 2 * strength)) > 0.05


# Bad input


test_refusals = refusing(
    (lambda: fresh_threshold(law(weak_signal=1.0)), "weak_signal"),
    (lambda: theory.selection_time(law(weak_signal=0.0), 0.1), "flipped samples have no best token"),
    (lambda: theory.selection_time(law(label_noise=0.0, signal_norm=60.0), 0.1), "A_1 S / X < 1"),
)
test_a_flow_may_take_too_many_steps = refusing(
    (lambda: mean_field(law(), 0.1, horizon=1e6, at_most=5), "at_most = 5"), error=RuntimeError
)


@pytest.mark.parametrize(("r", "limit", "prediction"), [(10, 1041, 971), (200, 23834, 16262)])
def test_the_limit_and_the_prediction_are_two_things_and_the_chapter_has_both(r, limit, prediction):
    """When half of the flipped samples are fitted, in the theorem's unit: by this test's own equations, and by `mean_field`."""
    n, T, rho, eta, mu, m = 20, 8, 0.1, 0.2, 100.0, 1 / 3
    d = n * mu**2 / r
    share, value = np.zeros(T), np.zeros(T)
    share[:3], value[:3] = (1, rho, rho), np.array([1, -rho, rho]) / math.sqrt(2)
    values, weight = np.stack([value, -value]), np.array([1 - eta, eta])

    def scores(own, grows):  # without sqrt(lambda), then lambda
        own = own.reshape(2, T)
        signal = r / 2 * (weight @ (own @ share))
        norm = n / d * (weight @ (own**2).sum(1)) + 2 * (signal / mu) ** 2
        factor = math.sqrt(m + norm if grows else m)
        s = softmax(factor * (own + signal * share), axis=1)
        mean = (s * values).sum(1, keepdims=True)
        return factor, s * (values - mean) * expit(-mean), mean[1, 0]

    for grows, expected in ((False, limit), (True, prediction)):

        def rate(log_time, own, grows=grows):
            factor, force, _ = scores(own, grows)
            return math.exp(log_time) * factor * force.ravel()

        def fitted(_, own, grows=grows):
            return scores(own, grows)[2]

        fitted.terminal = True
        path = solve_ivp(rate, (-12, 12), np.zeros(2 * T), events=fitted, method="LSODA", rtol=1e-8, atol=1e-10)
        assert n / d * mu**2 * m * math.exp(path.t_events[0][0]) == pytest.approx(expected, rel=1e-3)
        one = TokenLaw(n, round(d), T, mu, rho, label_noise=eta)
        unit = 1 / (mu**2 * m)  # steps of size 1 in one unit of the theorem
        book = mean_field(one, 1.0, finite_size=grows, until=lambda now: now.margins[1] > 0, largest_move=0.02)
        assert book.crossing(book.margins[:, 1], 0.0) / unit == pytest.approx(expected, rel=1e-3)
