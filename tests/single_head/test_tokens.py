"""Two steps with T tokens and the error in the trap: the formulas of the chapter against plain numpy, sampling and training."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from scipy import stats

from attnbook.single_head.flow import flow_path
from attnbook.single_head.long_run import law_at
from attnbook.single_head.the_trap import finite_trap
from attnlib.single_head.closed_form import two_steps
from attnlib.single_head.errors import clean_error_conditioned, log10_error_of_scores, scores_of_fresh_data
from attnlib.single_head.law import SignalNoiseLaw
from attnlib.single_head.training import gram_descent
from tests.single_head import tokens


@pytest.mark.parametrize("m", [1, 2, 4, 8])
@pytest.mark.parametrize(
    ("S", "omega", "angle"), [(1.5, 0.05, -0.7), (4.0, 0.4, 0.7), (2.5, 0.0, 0.0), (1.0, 0.01, 0.9)]
)
def test_the_error_is_between_its_bounds(m, S, omega, angle):
    """Fresh scores sampled from their definition: S = e^P V with P = 0, |Pi v| = 1."""
    rng = np.random.default_rng(m)
    A, own = rng.standard_normal((2, 40_000, m))
    B = angle * A + math.sqrt(1 - angle**2) * own
    error = (S + (np.exp(omega * A) * B).sum(1) <= 0).mean()
    slack = 4 * math.sqrt(max(error, 1e-4) / 40_000)
    low, high = tokens.error_between(S, omega or 1e-12, m)
    assert low - slack <= error <= min(high, tokens.error_above(S, omega or 1e-12, m)) + slack
    assert below(S, omega or 1e-12, m) <= error + slack
    assert (below(S, omega or 1e-12, m) > 0) == (math.e * omega * S < m)
    if omega < 0.02:  # and they close on it
        assert high - low < 0.13
    if m == 1:
        assert tokens.negative_part(S, 1) == pytest.approx(stats.norm.sf(S), rel=1e-12)


def tail(x):
    return math.erfc(x / math.sqrt(2)) / 2


def above(S, omega, m):
    """lem-tokens-error, part 1: the tails of chi squared by steps of two degrees of freedom."""

    def square_tail(x, j):
        if j < 3:
            return 2 * tail(math.sqrt(x)) if j == 1 else math.exp(-x / 2)
        return square_tail(x, j - 2) + math.exp((j / 2 - 1) * math.log(x / 2) - x / 2 - math.lgamma(j / 2))

    def bound(cut):
        s = S * math.exp(-cut * omega)
        return m * tail(cut) + sum(math.comb(m, j) * square_tail(s**2 / j, j) for j in range(1, m + 1)) / 2**m

    return min(map(bound, np.geomspace(0.1, 40, 100).tolist()))


def below(S, omega, m):
    """lem-tokens-error, part 3."""
    return max(0.0, *(tail(math.exp(x) * S / m) - tail(x / omega) for x in np.geomspace(1e-3, 8, 200).tolist())) ** m


def between(S, omega, m):
    """lem-tokens-error, part 2."""
    low, high = -math.inf, math.inf
    for xi in np.linspace(0.5, 12, 80).tolist():
        reach = math.sqrt(m) + xi
        shift, rest = omega * reach**2 * math.exp(omega * reach), 2 * math.exp(-(xi**2) / 2)
        low = max(low, tail((S + shift) / math.sqrt(m)) - rest)
        high = min(high, tail((S - shift) / math.sqrt(m)) + rest)
    return low, high


@pytest.mark.parametrize(("T", "multiple"), [(2, 1), (5, 3)])
def test_the_bounds_are_those_of_the_theorems(T, multiple):
    """The formulas of thm-tokens-weak, thm-tokens-strong and lem-tokens-error once more, in the standard library's numbers."""
    counts, a, m, delta = [[11, 4], [12, 3]], 0.9, T - 1, 0.1
    N, exact = 30 * m, {"rel": 1e-9, "abs": 0}
    d = multiple * smallest_d(30, T, delta, 1 / 16)
    rho, snr2, scale = math.sqrt(2 * N * math.log(10 * N / delta) / d), 0.3 * math.sqrt(m / d), math.sqrt(d / N)
    omega = 1.11 * a**2 / T * (1.3 + 4.2 * (T - 2) * rho) / scale
    for (clean, flipped), found in zip(counts, tokens.weak(np.array(counts), snr2, a, T, d, delta), strict=True):
        less = 0.75 * math.exp(-1.3 * m / T * a**2 * 15 * snr2) * snr2 * scale * (clean - 1.23 * flipped)
        assert found[0] == pytest.approx(between(1.33 * snr2 * scale * clean, omega, m)[0], **exact)
        assert found[1] == pytest.approx(between(less, omega, m)[1], **exact)
        assert 0 < found[0] < found[1] < 1
    for S, width in ((3.0, 0.4), (6.0, 0.05)):
        assert tokens.error_above(S, width, m) == pytest.approx(above(S, width, m), **exact)
        assert tokens.error_between(S, width, m) == pytest.approx(between(S, width, m), **exact)
    d, c, s, snr2 = 4 * multiple * smallest_d(30, T, delta, 1 / 32), m / T, 0.05, 0.05 / 15
    rho, scale = math.sqrt(2 * N * math.log(10 * N / delta) / d), math.sqrt(d / N)
    width = 2 * ((1 + s) / T + 4.2 * c * rho)
    for (clean, flipped), found in zip(counts, tokens.strong(np.array(counts), snr2, a, T, d, delta), strict=True):
        bars = tokens.limit(clean, flipped, snr2, a, T)
        less = (bars.V - rho * 1.05 * c * a**2 * s) * math.exp(
            bars.P - rho * c * a**2 * s * (4.2 + 1.05 * c * a * (1 + s))
        )
        assert found.error == pytest.approx(above(less * scale / (3.2 * a), 1.07 * a**2 * width / scale, m), **exact)
        assert 0 < found.error < 1


def trained(law, a, runs, seed):
    """Two steps on drawn sets: the sample, margins (R, n) and the clean error with its standard error."""
    sample = law.draw(seed, runs)
    steps = two_steps(sample, 2 * law.n * law.tokens * a / law.d)
    values, logits = (torch.einsum("rntm,rm->rnt", sample.tokens, x) for x in (steps.v2, steps.p2))
    margins = sample.labels * (logits.softmax(-1) * values).sum(-1)
    return sample, margins, clean_error_conditioned(steps.v2, steps.p2, sample, 2000)


def smallest_d(n, T, delta, rho):
    return math.ceil(2 * n * (T - 1) * math.log(10 * n * (T - 1) / delta) / rho**2)


@pytest.mark.parametrize("T", [2, 3, 5, 9])
@pytest.mark.parametrize("c", [0.5, 1.5])
def test_weak_signals_are_fitted_and_err_as_proved(T, c):
    n, a = 30, 0.9
    d = 4 * smallest_d(n, T, 0.1, 1 / 16)
    law = SignalNoiseLaw(n, d, c * math.sqrt(T - 1) * (n * d) ** -0.25 * math.sqrt(d), 0.1, tokens=T)
    sample, margins, error = trained(law, a, 5, T)
    assert (margins > 0).all()
    counts = torch.stack(sample.counts(), -1).int().numpy()
    for run in range(5):
        low, high = np.mean(tokens.weak(counts[run], law.snr**2, a, T, d, 0.1), 0)
        assert low - 0.01 < error.value[run] < high + 0.01
        assert low > (0.2 if c < 1 else 0)
    assert not tokens.weak(counts[0], law.snr**2, a, T, d / 5, 0.1)  # 1/16 is exceeded


def ends_above(clean, flipped, snr2, a, T, d, delta):
    """Upper ends of V, P and |Pi p| in part 4 of thm-tokens-strong, n = 24."""
    m, N, s = T - 1, (T - 1) * 24, 24 * snr2  # s: at least its largest n_k
    rho, c = math.sqrt(2 * N * math.log(10 * N / delta) / d), m / T
    bars, width = tokens.limit(clean, flipped, snr2, a, T), 2 * ((1 + s) / T + 4.2 * c * rho)
    V, P = bars.V + rho * 1.05 * c * a**2 * s, bars.P + rho * c * a**2 * s * (4.2 + 1.05 * c * a * (1 + s))
    return V, P, 1.07 * a**2 * width * math.sqrt(N / d)


def strong_below(clean, flipped, snr2, a, T, d, delta):
    """thm-tokens-strong, part 4."""
    (V, P, reach), m = ends_above(clean, flipped, snr2, a, T, d, delta), T - 1
    return below(math.exp(P) * max(V, 0) / (0.93 * a) * math.sqrt(d / (24 * m)), reach, m)


@pytest.mark.parametrize("T", [2, 3, 5])
@pytest.mark.parametrize("strength", [0.02, 2.0, 20.0])
def test_values_and_norms_of_drawn_sets_stay_below_the_ends_of_part_4(T, strength):
    """Each end by itself: in the bound of the error the slack of one would hide a mistake in another."""
    n, a, d = 24, 0.25, smallest_d(24, T, 0.01, 1 / 32)
    law = SignalNoiseLaw(n, d, math.sqrt(strength / n * d), 0.1, tokens=T)
    sample = law.draw(3, 5)
    steps = two_steps(sample, 2 * n * T * a / d)
    V, P = (torch.einsum("rkm,rm->rk", sample.signals, x) for x in (steps.v2, steps.p2))
    value, score = (
        (x.square().sum(-1) - on.square().sum(-1) / law.signal_norm**2).sqrt()
        for x, on in ((steps.v2, V), (steps.p2, P))
    )
    over, counts = [], torch.stack(sample.counts(), -1).int().numpy()
    for run in range(5):
        for k in (0, 1):
            bars = tokens.limit(*counts[run, k], law.snr**2, a, T)
            V_end, P_end, reach = ends_above(*counts[run, k], law.snr**2, a, T, d, 0.01)
            found = (1 - 2 * k) * V[run, k].item(), P[run, k].item()
            assert found[0] < V_end
            assert found[1] < P_end
            over.append((found[0] > bars.V, found[1] > bars.P))
            assert 0.005 * reach < score[run].item() < reach
    assert np.any(over, axis=0).all()  # so the ends are above the limit, not below it
    assert (value > 0.93 * a * math.sqrt(n * (T - 1) / d)).all()


@pytest.mark.parametrize(("T", "snr2"), [(2, 0.002), (3, 0.004), (5, 0.008)])
@pytest.mark.parametrize("a", [0.01, 0.3])
def test_the_exponents_of_both_sides_have_the_order_of_d_over_n(T, snr2, a):
    """Their quotient is near (3.2/0.93)^2 = 11.8, the bounds of |Pi v_2|, at each d; so no power of d is lost."""
    for d in (4 * 10**6, 5 * 10**6):
        high = math.log(tokens.strong(np.array([[12, 0], [12, 0]]), snr2, a, T, d, 0.01)[0].error)
        low = math.log(strong_below(12, 0, snr2, a, T, d, 0.01))
        assert 9 < low / high < 14
        assert -28 < high < -15


@pytest.mark.parametrize("T", [2, 3, 5])
@pytest.mark.parametrize(("strength", "fitted"), [(0.02, True), (2.0, True), (20.0, False)])
@pytest.mark.parametrize("more", [1, 10])
def test_strong_signals_do_what_is_proved_of_them(T, strength, fitted, more):
    """At the least d of the theorem and at ten times that."""
    n, a, said = 24, 0.25, []
    d = more * smallest_d(n, T, 0.01, 1 / 32)
    law = SignalNoiseLaw(n, d, math.sqrt(strength / n * d), 0.1, tokens=T)
    sample, margins, error = trained(law, a, 5, 3)
    counts = torch.stack(sample.counts(), -1).int().numpy()
    for run in range(5):
        found = tokens.strong(counts[run], law.snr**2, a, T, d, 0.01)
        for k, one in enumerate(found):
            own = sample.signal_class[run] == k
            flips, kept = (margins[run][own & kind] > 0 for kind in (sample.noisy[run], ~sample.noisy[run]))
            if one.flipped_fitted is not None and len(flips):
                said.append(one.flipped_fitted)
                assert (flips == one.flipped_fitted).all()
                assert one.flipped_fitted == (tokens.limit(*counts[run, k], law.snr**2, a, T).room(T) > 0)
            assert one.clean_fitted is None or kept.all()
        lower = sum(strong_below(*counts[run, k], strength / n, a, T, d, 0.01) for k in (0, 1)) / 2
        assert error.value[run] >= lower - 5 * error.standard_error[run]
        bound = (found[0].error + found[1].error) / 2
        assert error.value[run] <= bound + 5 * error.standard_error[run] + 1e-12
    assert said.count(fitted) >= 4
    assert (bound < 1e-20) == (strength > 1)
    assert tokens.strong(counts[0], law.snr**2, a, T, d / 20, 0.01)[0].flipped_fitted is None


def test_the_numbers_of_the_chapter():
    counts = np.array([[18, 2], [18, 2]])

    def proved(strength, T, multiple):
        d = math.ceil(multiple * 40 * (T - 1) * math.log(10 * 40 * (T - 1) / 0.01))
        return tokens.strong(counts, strength / 40, 0.5, T, d, 0.01)[0].flipped_fitted

    assert all(proved(2, T, 2048) for T in (2, 3, 5, 9))
    assert [proved(12, T, multiple) for T, multiple in ((2, 2.9e4), (3, 2048), (5, 2048), (9, 2048))] == [False] * 4
    assert proved(12, 2, 2.8e4) is None
    for a, T, *borders in (
        (0.5, 2, 4.6, 14.0), (0.5, 3, 6.6, 23.8), (0.5, 5, 7.7, 43), (0.5, 9, 8.6, 81), (1, 5, 8.9, 13.3), (1, 9, 7.1, 32), (1, 2), (1, 3),
    ):  # fmt: skip
        strengths = np.geomspace(0.5, 400, 800)
        room = np.array([tokens.limit(45, 5, x / 100, a, T).room(T) for x in strengths])
        assert strengths[1:][np.diff(np.sign(room)) != 0] == pytest.approx(borders, rel=0.02)
        assert (room[0] > 0) & (room[-1] > 0)
    for tau, S in (
        (1e8, 8.4),
        (1e16, 2.6),
    ):  # the least S of thm-trap-flow at x = 0.7, r = 1, d/n = 2.5e6: it falls with t
        t, k2 = math.log1p(tau) + 1 / math.sqrt(0.51), math.sqrt(0.85)
        least = math.sqrt(2.5e6) * (1 + (k2 * t) ** 2) ** (-0.7 / 1.7) * 0.7 / k2 * math.atan(k2 * t) / t
        assert round(least, 1) == S


def test_the_measured_errors_of_the_chapter():
    for T, low, high in ((2, 0.131, 0.135), (5, 0.134, 0.138)):
        d = 10**6
        law = SignalNoiseLaw(50, d, 1.5 * math.sqrt(T - 1) * (50 * d) ** -0.25 * math.sqrt(d), tokens=T)
        _, margins, error = trained(law, 1.0, 6, 5)
        assert (margins > 0).all()
        assert low - 0.003 < error.value.min() < error.value.max() < high + 0.003


# --- in the trap -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("d", "small"), [(1000, False), (10**8, True)])
def test_lost_classes_err_between_the_bounds_and_in_high_dimension_hardly_ever(d, small):
    sample = law_at(1.25, 40, d, 0.2).draw(0, 4)
    path = gram_descent(sample, 40 / d / 4, 1000, record=[])
    v, p = path.v[-1], path.p[-1]
    fresh = scores_of_fresh_data(v, p, sample)
    error = 10 ** log10_error_of_scores(fresh, per_class=True)
    signed = sample.labels.unsqueeze(-1) * sample.noise_tokens()[:, :, 0]
    scores = torch.einsum("rnm,rm->rn", signed, v)
    found = []
    for run in range(4):
        for k in (0, 1):
            clean, flipped = ((sample.signal_class[run] == k) & (sample.noisy[run] == kind) for kind in (False, True))
            V, P, omega = (x[run, k].item() for x in (fresh.value, fresh.logit, fresh.omega))
            if path.attention_on_signal[-1][run][clean].mean() > 0.5:
                continue
            assert (scores[run][clean] >= V).all()
            assert (V + scores[run][flipped] >= 0).all()
            chi, count = signed[run][clean].sum(0).norm().item() / math.sqrt(clean.sum()), clean.sum().item()
            assert chi <= math.sqrt(d) + math.sqrt(2 * math.log(2 / 0.001))
            length = math.hypot(fresh.along[run, k], fresh.tau[run, k])
            assert 0 < V / length <= chi / math.sqrt(count)
            cut = np.geomspace(0.1, 40, 200) * omega
            tail, grown = stats.norm.sf(cut / omega), np.exp(P + cut)
            assert (stats.norm.sf(grown * chi / math.sqrt(count)) - tail).max() <= error[run, k] <= 0.5
            assert error[run, k] <= (stats.norm.sf(np.exp(P - cut) * V / length) + tail).min()
            found.append(error[run, k].item())
    assert len(found) >= 4
    assert max(found) < 1e-30 if small else np.median(found) > 0.25


def test_after_one_step_a_class_with_x_below_one_is_in_the_trap_with_a_small_error():
    """V <= t_i, V + t_j >= 0 and p = 0, and an error of Phi(-x(1 - nu) sqrt(d/n))."""
    sample = law_at(0.7, 40, 10**8, 0.2).draw(0, 1)
    path = gram_descent(sample, 40 / 10**8 / 4, 1, record=[])
    error = log10_error_of_scores(scores_of_fresh_data(path.v[-1], path.p[-1], sample), per_class=True)
    for k, scores in enumerate(finite_trap.class_scores(sample, 0.25, 1)):
        assert scores.room()[1] > 0
        expected = stats.norm.logsf(scores.x * (1 - scores.nu) * math.sqrt(10**8 / 40)) / math.log(10)
        assert error[0, k] == pytest.approx(expected, rel=0.01)
        assert expected < -10_000


@pytest.mark.parametrize(
    ("x", "label_noise", "r"), [(0.7, 0.0, 1.0), (1.25, 0.2, 1.0), (0.7, 0.0, 10.0), (1.25, 0.2, 30.0)]
)
def test_attention_in_the_trap_falls_as_slowly_as_proved(monkeypatch, x, label_noise, r):
    """On Gaussian noise, from the first of three steps at which the theorem on the trap applies."""
    checked, sample = 0, law_at(x, 40, 10**8, label_noise).draw(1, 1)
    descent = partial(gram_descent, attention_step_size=r * 0.25 * 40 / 10**8)
    monkeypatch.setattr(finite_trap, "gram_descent", descent)  # class_scores trains both vectors with one step size
    p = descent(sample, 0.25 * 40 / 10**8, 400).p[:, 0]
    for scores, signal in zip(finite_trap.class_scores(sample, 0.25, 400), sample.signals[0], strict=True):
        first = next((t for t in (1, 20, 60) if scores.enters(t)), None)
        if first is None:
            continue
        P, (_, z, z_logit) = (p @ signal).numpy()[first:], scores.shares(first)
        T = (scores.own - scores.cross + scores.cross[first])[first:]
        kinds = [
            (T[:, kind], np.exp(scores.logits[first, kind] - P[0]))
            for kind in (scores.clean, ~scores.clean)
            if kind.any()
        ]
        means = [part.mean(1) for part, _ in kinds]
        G = sum((part**2).mean(1) / 2 + 2 * z * part.mean(1) for part, _ in kinds) + (
            math.prod(means) if len(means) == 2 else 0
        )
        K = math.exp(z_logit) * max(
            share * weight.max() for share, (_, weight) in zip((1, scores.nu), kinds, strict=False)
        )
        fall = math.exp(-np.diff(P).min())
        bound = np.exp(-P[0]) + r * scores.x * K * fall / (1 - scores.spread) * (G - G[0])
        assert (np.diff(P) <= 1e-12).all()
        assert (np.exp(-P) <= bound * (1 + 1e-9)).all()
        assert bound[-1] < 20 * np.exp(-P[-1])  # and is not idle
        checked += 1
    assert checked == 2


@pytest.mark.parametrize(("x", "r"), [(0.3, 1.0), (0.7, 1.0), (0.9, 1.0), (0.7, 4.0)])
def test_the_clock_of_the_error(x, r):
    times = np.array([0.5, 10, 250, 1e4, 1e6])
    path = flow_path(x, 0.0, times, attention_rate=r)
    V, t, _, P = path.states.T[:4]
    k1, k2, power = math.sqrt(r * (1 - x**2)) / 2, math.sqrt(r * (1 + x) / 2), -x / (1 + x)
    assert (np.log1p(times / 4) <= t).all()
    assert (t <= np.log1p(times) + 1 / (2 * k1)).all()
    assert ((1 + (k2 * t) ** 2) ** power <= np.exp(P)).all()
    assert (np.exp(P) <= (1 + (k1 * t) ** 2) ** power).all()
    assert (x / k2 * np.arctan(k2 * t) <= V).all()
    assert (V <= x / k1 * np.arctan(k1 * t)).all()
