"""Attention maps: studies are what they say, where classes end, the mean-field flow of any map, unnormalised maximum margins."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from attnbook.open_questions.attention_maps.claims import CLAIMS
from attnbook.open_questions.attention_maps.courses import (
    MAPS,
    UNNORMALISED,
    local_attention,
    map_courses,
    step_windows,
    two_steps,
    unnormalised_p2,
)
from attnbook.open_questions.attention_maps.error import log10_map_error
from attnbook.open_questions.attention_maps.fates import (
    SHARES,
    boundary_curve,
    equal_to_slower_attention,
    linear_fates,
    logit_moves,
    map_fates,
    thresholds_of_shares,
)
from attnbook.open_questions.attention_maps.flow import map_descent, map_flow, map_rates, map_threshold
from attnbook.open_questions.attention_maps.margin import (
    SELECTIONS,
    best_of_all,
    product_costs,
    selected,
    unnormalised_cost,
    unnormalised_svm,
)
from attnbook.open_questions.attention_maps.study import MapsStudy, maps_study
from attnbook.single_head.flow import flow_path, flow_rates, own_thresholds, signal_threshold
from attnbook.single_head.long_run import class_fates, law_at, orthogonal_sample, small_then_long
from attnbook.single_head.margin import tokens_of
from attnbook.single_head.svm import NotSeparable
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
)
from attnlib.single_head.training import train_heads
from bookkit.rules import NothingToMeasure
from tests.bad_input import refusing

LAW = SignalNoiseLaw(100, 20_000, 30.0, 0.05)
PAPER_SIZE = SignalNoiseLaw(200, 40_000, 30.0, 0.05)


@pytest.mark.parametrize("attention_map", [*MAPS[:3], MAPS[4], *UNNORMALISED], ids=str)
def test_two_steps_and_closed_forms_are_those_of_training(attention_map):
    sample = SignalNoiseLaw(15, 300, 6.0, 0.2).draw(1)
    path = train_heads(sample, 0.3, 2, attention_map=attention_map, record=[], method="vectors").single()
    v1, v2, p2 = two_steps(sample, 0.3, attention_map)
    torch.testing.assert_close(v2, path.v[-1], rtol=1e-10, atol=1e-13)
    torch.testing.assert_close(p2, path.p[-1], rtol=1e-10, atol=1e-13)
    first, second, soft = two_steps(sample, 0.3, SOFTMAX)
    torch.testing.assert_close(v1, first, rtol=1e-12, atol=1e-15)  # v does not depend on the map
    torch.testing.assert_close(v2, second, rtol=1e-12, atol=1e-15)
    if attention_map.normalised:
        torch.testing.assert_close(p2, attention_map.slope(2) / 0.5 * soft, rtol=1e-12, atol=1e-15)
    else:
        closed = unnormalised_p2(sample, 0.3, attention_map.slope(2))
        torch.testing.assert_close(p2, closed, rtol=1e-12, atol=1e-15)


def test_hardmax_is_logistic_regression_on_token_means():
    sample = SignalNoiseLaw(15, 300, 6.0, 0.2).draw(1)
    path = train_heads(sample, 0.3, 20, attention_map=HARDMAX, record=[])
    frozen = train_heads(sample, 0.3, 20, attention_step_size=0.0, record=[])
    assert not path.p.any()
    torch.testing.assert_close(path.v, frozen.v, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("attention_map", [LINEAR, relu(0.0), relu(1.0), HALF_PLUS], ids=str)
def test_zero_is_a_saddle_where_the_weight_is_zero_there(attention_map):
    path = train_heads(SignalNoiseLaw(15, 300, 6.0, 0.2).draw(1), 0.3, 20, attention_map=attention_map, record=[])
    assert bool(path.v.any() or path.p.any()) == (attention_map is HALF_PLUS)


def test_step_windows_are_single_trainings():
    law = SignalNoiseLaw(20, 2000, 18.0, 0.1)
    found = step_windows(law, (1.5, 4.0, 9.0), (SPARSEMAX, SIGMOID), draws=3, seed=2)
    sample = law.draw(2, 3)
    for attention_map in (SPARSEMAX, SIGMOID):
        path = train_heads(sample, 4.0 * 20 / 2000, 2, attention_map=attention_map, record=[]).single()
        window = found[attention_map.name]
        assert window.interpolates[1].tolist() == path.interpolates[-1].tolist()
        expected = log10_map_error(path.v[-1], path.p[-1], sample, attention_map).numpy()
        np.testing.assert_allclose(window.log10_error[1], expected, rtol=1e-9)


def test_courses_are_single_trainings():
    laws = [SignalNoiseLaw(20, 2000, norm, 0.1) for norm in (8.0, 20.0)]
    courses = map_courses(laws, SPARSEMAX, 0.05, 30, record=[2, 30], draws=3, seed=5)
    for law, course in zip(laws, courses, strict=True):
        sample = law.draw(5, 1, first_run=2)
        path = train_heads(sample, 0.05, 30, attention_map=SPARSEMAX, record=[2]).single()
        expected = log10_map_error(path.v[-1], path.p[-1], sample, SPARSEMAX).item()
        assert course.log10_error[-1, 2] == pytest.approx(expected, rel=1e-9)
        assert course.attention_clean[0, 2] == pytest.approx(path.attention_clean[0, 0].item())


def test_local_attention_against_its_closed_form():
    """p_2 . mu_k from the exact formula: (beta / nT) sum over the class of g y (v_1.u - mean of v_1.x over the window)."""
    local = local_attention((1, 2, 8), n=20, d=2000, high=15.0, low=8.0, steps=3, draws=2, seed=3, count=200)
    sample = SignalNoiseLaw(20, 2000, 15.0, 0.05, tokens=8).draw(3, 2)
    beta, n, T = 5 * 20 / 2000, 20, 8
    v1 = beta / (2 * n * T) * (sample.labels[..., None, None] * sample.tokens).sum((1, 2))
    scores = (sample.tokens @ v1[:, None, :, None]).squeeze(-1)  # the signal is token 0 in reduced coordinates
    slopes = torch.sigmoid(-sample.labels * scores.mean(-1))
    for i, width in enumerate((1, 2, 8)):
        preference = scores[..., 0] - scores[..., :width].mean(-1)
        pulls = beta / (n * T) * slopes * sample.labels * preference
        per_class = torch.stack([(pulls * (sample.signal_class == k)).sum(1) for k in (0, 1)], 1)
        np.testing.assert_allclose(local.signal_in_p2[i], per_class.mean(1).numpy(), rtol=1e-9, atol=1e-18)


def test_outside_the_regime():
    strong, between = (MapsStudy(LAW, norms, *6 * [None]) for norms in ((25.0, 30.0), (20.0, 23.0)))
    assert CLAIMS["Q22"].violation(strong).startswith("needs a signal norm with x < 0.3")
    with pytest.raises(NothingToMeasure, match="all are in between"):
        CLAIMS["Q69"].seen(between)


def test_softmax_fates_are_the_known_study_run_by_run():
    laws = [law_at(x, 40, 10**5, 0.2) for x in (0.8, 1.5, 2.5)]
    schedule = small_then_long(40, 10**5)
    known = class_fates(laws, schedule, draws=1, seed=4)
    found = map_fates(laws, SOFTMAX, schedule, draws=1, seed=4)
    np.testing.assert_allclose(found.x, known.x)
    np.testing.assert_allclose(found.flipped, known.flipped)
    np.testing.assert_array_equal(found.on_signal, known.on_signal)
    np.testing.assert_allclose(found.net, found.x * (1 - 2 * found.flipped) / (1 - found.flipped))
    assert found.on_signal.any()
    assert not found.on_signal.all()
    assert (found.train_accuracy == 1).all()


def test_thresholds_of_softmax_are_the_known_ones():
    clean, noisy = np.array([[40, 45], [30, 36]]), np.array([[4, 5], [10, 9]])
    curve = boundary_curve(SOFTMAX)
    found = thresholds_of_shares(curve, noisy / (clean + noisy))
    np.testing.assert_allclose(found, own_thresholds(clean, noisy), rtol=0.01)
    assert curve[0] == 1
    assert np.isinf(thresholds_of_shares(curve, np.array([0.48])))
    assert len(curve) == len(SHARES) == 10


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
        found = map_flow(x, eta, SOFTMAX, times=torch.tensor(times, dtype=F64), attention_rate=rate).states[:, 0]
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
    flow = map_descent(x.flatten(), share.flatten(), attention_map, 2.0, record=[1, 9])
    found = flow.log10_error(clean, noisy, law.d)
    exact = torch.stack([log10_map_error(v, p, sample, attention_map) for v, p in zip(path.v, path.p, strict=True)])
    torch.testing.assert_close(found, exact, rtol=1e-8, atol=1e-10)
    with pytest.raises(ValueError, match="clean must have shape"):
        flow.log10_error(clean[:1], noisy[:1], law.d)


def test_thresholds_of_softmax_and_temperature_are_the_known_ones():
    for attention_map, rate, shares in ((SOFTMAX, 1.0, [0.0, 0.3]), (softmax(0.5), 4.0, [0.1])):
        eta = torch.tensor(shares, dtype=F64)
        expected = [signal_threshold(e, attention_rate=rate) for e in eta.tolist()]
        assert map_threshold(attention_map, eta, step=0.06).tolist() == pytest.approx(expected, rel=2e-3)
    slow = map_threshold(SOFTMAX, 0.2, attention_rate=0.25, step=0.1).item()
    assert slow == pytest.approx(map_threshold(softmax(2.0), 0.2, step=0.1).item(), rel=1e-6)
    assert map_threshold(SOFTMAX, 0.45, step=0.05).item() == math.inf


def orthogonal(n=16, d=600, norm=9.0, eta=0.2, seed=3):
    return tokens_of(orthogonal_sample(SignalNoiseLaw(n, d, norm, eta), seed), 0)


@pytest.mark.parametrize("norm", [1.5, 7.0, 40.0])
@pytest.mark.parametrize("kind", SELECTIONS)
def test_costs_are_exact_for_orthogonal_noise(kind, norm):
    tokens = orthogonal(norm=norm)
    clean, flipped = tokens.counts()
    assert (flipped > 0).all()
    assert (clean > flipped).all()
    assert unnormalised_svm(tokens, kind) == pytest.approx(unnormalised_cost(tokens, kind), rel=1e-9)


def test_free_weights_are_the_best_of_all_selections():
    """3^6 exact SVMs on real noise, far below and above the normalised threshold: clean samples take both, flipped their noise."""
    drawn = SignalNoiseLaw(6, 1200, 1.0, 0.2).draw(2, 1)
    tokens = tokens_of(drawn, 0)
    assert 0 < (~tokens.clean).sum() < 3
    for norm in (4.0, 40.0):
        at = tokens.with_signal_norm(norm)
        cost, weights = best_of_all(at)
        assert (weights == np.stack([tokens.clean, np.ones(6)], 1)).all()
        assert cost == pytest.approx(unnormalised_svm(at, "free"), rel=1e-9)
        assert cost < unnormalised_svm(at, "shared") < unnormalised_svm(at, "noise")


def test_selected_vectors():
    tokens = orthogonal()
    both = selected(tokens, "shared")
    np.testing.assert_allclose(both, tokens.signal + tokens.noise)
    np.testing.assert_allclose(selected(tokens, "free")[tokens.clean], both[tokens.clean])
    np.testing.assert_allclose(selected(tokens, "free")[~tokens.clean], tokens.noise[~tokens.clean])
    np.testing.assert_allclose(selected(tokens, "noise"), tokens.noise)


@pytest.mark.parametrize("norm", [4.0, 8.0, 10.5, 13.0, 30.0])
def test_unbounded_weights_are_a_linear_programme(norm):
    """min sum |m| / |x|^2 subject to margins >= 1, one class at a time: the signal is used iff rho^2 (|C| - |N|) > d."""
    tokens = orthogonal(norm=norm)
    for k, (with_signal, without) in enumerate(product_costs(tokens)):
        clean, flipped = (int(part[k]) for part in tokens.counts())
        count = clean + flipped
        price = np.concatenate([[1 / norm**2], np.full(count, 1 / 600)])
        sign = np.concatenate([np.ones(clean), -np.ones(flipped)])
        margins = np.column_stack([sign, np.eye(count)])
        # Variables: positive and negative parts of the signal's and of every noise token's product.
        found = linprog(np.concatenate([price, price]), A_ub=-np.hstack([margins, -margins]), b_ub=-np.ones(count))
        uses_signal = found.x[0] - found.x[1 + count] > 1e-9
        assert found.fun == pytest.approx(min(with_signal, without), rel=1e-7)
        assert uses_signal == (norm**2 * (clean - flipped) > 600)


def test_bad_arguments():
    tokens = orthogonal()
    for call in (selected, unnormalised_cost, unnormalised_svm):
        with pytest.raises(ValueError, match="selection must be one of free, shared, noise; got 'both'"):
            call(tokens, "both")
    with pytest.raises(ValueError, match="tokens must hold at most 8 samples; got 16"):
        best_of_all(tokens)


def test_contradictions_are_not_separable():
    tokens = orthogonal(n=4, d=100, seed=0)
    twisted = type(tokens)(**{**vars(tokens), "noise": np.zeros_like(tokens.noise), "signal": 0 * tokens.signal})
    with pytest.raises(NotSeparable):
        best_of_all(twisted)


test_bad_input = refusing(
    (maps_study, (LAW, (10.0, 30.0), 0.025), {"steps": 10, "step_size": 0.0, "draws": 1, "norms": (-1.0, 30.0)}),
    (lambda: maps_study(LAW, (30.0, 10.0), 0.1), "norms must be two or more increasing"),
    (lambda: maps_study(LAW, (30.0,), 0.1), "norms must be two or more increasing"),
    (lambda: step_windows(LAW, ()), "units must be one or more numbers > 0"),
    (lambda: step_windows(LAW, (0.0,)), "units must be one or more numbers > 0"),
    (
        map_courses,
        {"attention_map": SOFTMAX, "step_size": 0.1, "steps": 1, "record": [1], "laws": [LAW]},
        {"laws": [[LAW, PAPER_SIZE]], "start_size": -1.0},
    ),
    (lambda: map_courses([LAW], relu(), 0.1, 1, record=[1], draws=1), "no derivative at 0"),
    (lambda: two_steps(LAW.draw(0), 0.1, relu()), "no derivative at 0"),
    (lambda: unnormalised_p2(SignalNoiseLaw(5, 50, 1.0, tokens=3).draw(0), 0.1, 1.0), "sample must have two tokens"),
    (lambda: local_attention((3,)), "windows of width 3 must divide"),
    (lambda: map_fates([law_at(1.0, 10, 500, 0.1)], SIGMOID, [(0.1, 2)]), "attention_map must be normalised"),
    (map_fates, lambda: ([law_at(1.0, 10, 500, 0.1)], SOFTMAX, [(0.1, 2)]), {"laws": [[]], "draws": 0}),
    (lambda: map_fates([law_at(1.0, 10, 500, 0.1)], SOFTMAX, []), "schedule must hold"),
    (
        linear_fates,
        lambda: ([law_at(1.0, 10, 500, 0.1)], 0.1, 0.1, 2),
        {"start_size": 0.0, "laws": [[SignalNoiseLaw(5, 50, 1.0, tokens=3)]]},
    ),
    (lambda: logit_moves(SOFTMAX, (-1.0,), (0.1,)), "x must be"),
    (equal_to_slower_attention, lambda: (SignalNoiseLaw(5, 50, 1.0).draw(0), 0.1, 2), {"temperature": 0.0}),
    (map_flow, (1.0, 0.1), {"x": -1.0, "step": 0.0}),
    (lambda: map_flow(1.0, 1.0), "label_noise in"),
    (lambda: map_flow(1.0, 0.1, times=torch.tensor([2.0, 1.0])), "times must be a vector of increasing"),
    (
        map_descent,
        {"x": 1.0, "label_noise": 0.1, "attention_map": SOFTMAX, "record": [1], "unit": 1.0},
        {"unit": 0.0, "record": [[-1]]},
    ),
    (lambda: map_descent(1.0, 0.1, SOFTMAX, 1.0, record=[]), "record must hold"),
    (lambda: map_threshold(SIGMOID, 0.1), "attention_map must be normalised and move at 0; got 'sigmoid'"),
    (lambda: map_threshold(HARDMAX, 0.1), "attention_map must be normalised and move at 0; got 'hardmax'"),
    (lambda: map_threshold(SOFTMAX, 0.1, highest=0.0), "highest must be"),
)
