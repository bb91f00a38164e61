"""The value of the signal never falls: lemma, theorem and corollary along flows, and the proof's derivative and its cases at random states.

Nothing here calls the package but for `flow_path`; the margins, bounds and derivatives are written out anew.
"""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit

from attnbook.single_head.flow import flow_path

M0 = 1.2784645427610738  # m sigma(m) = 1


def margins(states, x):
    V, t_c, t_n, P, q_c, q_n = states
    s_c, s_n = expit(P - q_c), expit(P - q_n)
    m_c, m_n = s_c * V + (1 - s_c) * t_c, (1 - s_n) * t_n - s_n * V
    return s_c, s_n, m_c, m_n, expit(-m_c), expit(-m_n)


def bound(t, x, nu, r):
    J = quad(lambda z: np.exp(-r / 4 * (x + (1 + x * nu) * (1 + x)) * z**2), 0, t)[0]
    return np.log((1 + x * J) / (1 + nu * x * J))


@pytest.mark.parametrize("seed", range(6))
def test_along_flows_the_value_rises_and_the_bounds_hold(seed):
    rng = np.random.default_rng(seed)
    excursions = 0
    for _ in range(5):
        x, nu, r = rng.uniform(0.05, 1), rng.uniform(0.02, 2 / 3), 10 ** rng.uniform(-1, 1.5)
        tau = np.geomspace(1e-2, 10 ** rng.uniform(2, 8), 400)
        states = flow_path(x, nu / (1 + nu), tau, attention_rate=r).states.T
        V, t_c, t_n, P, q_c, q_n = states
        s_c, s_n, _, m_n, g_c, g_n = margins(states, x)
        assert (nu * g_n * s_n < g_c * s_c).all()
        assert (np.diff(V) > 0).all()
        assert (s_n <= s_c * (1 + 1e-9)).all()
        out = t_n < t_c - 1e-6
        excursions += out.any()
        assert (m_n[out] > M0).all()
        Y = np.exp(q_c - P)
        assert (Y - 1 + np.log(Y) >= r / 2 * (1 + x) * (t_c - V) ** 2 * (1 - 1e-6)).all()
        first = np.cumsum(t_n < t_c) == 0  # before the first excursion: the exponent in J
        assert (q_n - P <= r / 4 * (x + (1 + x * nu) * (1 + x)) * t_n**2)[first].all()
        low = [bound(min(M0, np.log1p(time / 4)), x, nu, r) for time in tau]
        assert (V >= np.array(low) * (1 - 1e-6)).all()
        assert not (V >= 1.02 * np.array(low)).all()  # at the start the bound is sharp
        M = 4 * np.log1p(tau / 2)
        assert (np.maximum(t_c, t_n) < M).all()
        assert (np.exp(-P) <= 1 + r * x * (0.5 + nu * (0.5 + x)) * M**2).all()
        assert (np.maximum(q_c, q_n) <= np.log1p(r * (0.5 + x) * M**2)).all()
    assert excursions or seed


@pytest.mark.parametrize("seed", range(3))
def test_two_classes_err_as_little_as_the_corollary_says(seed):
    """S and omega of two flows with one r, for d = n: their weights are the fractions of the four kinds of samples."""
    rng = np.random.default_rng(seed)
    for _ in range(3):
        r, tau = 10 ** rng.uniform(-1, 1.5), np.geomspace(0.1, 1e6, 60)
        x, nu = rng.uniform(0.1, 1, 2), rng.uniform(0, 2 / 3, 2)
        flows = [flow_path(x[k], nu[k] / (1 + nu[k]), tau, attention_rate=r).states.T for k in (0, 1)]
        weights = np.array([x, nu * x]) / (x * (1 + nu)).sum()  # clean, flipped; by class
        v, p = (
            sum(w * flow[row + i] ** 2 for w_k, flow in zip(weights.T, flows, strict=True) for i, w in enumerate(w_k))
            ** 0.5
            for row in (1, 4)
        )
        M = 4 * np.log1p(tau / 2)
        assert (p <= np.log1p(r * (0.5 + max(x)) * M**2)).all()
        assert (p > np.log1p(r * (0.5 + max(x)) * M**2) / 100).any()
        for k, flow in enumerate(flows):
            low = flow[0] / (M * (1 + r * x[k] * (0.5 + nu[k] * (0.5 + x[k])) * M**2))
            assert (np.exp(flow[3]) * flow[0] / v >= low).all()


def states_without_slope(rng, size):
    """Random states with V' = 0, which fixes nu: the letters of the proof, by name."""
    x, V, W = rng.uniform(0, 1, size), np.exp(rng.uniform(-7, 3, size)), np.exp(rng.uniform(-3, 3, size))
    Y = 1 + np.exp(rng.uniform(-6, 6, size))
    t_c = V + W
    t_n = t_c * np.exp(rng.normal(0, 0.5, size))
    q_c = rng.exponential(1, size)
    P = q_c - np.log(Y)
    q_n = q_c + np.exp(rng.uniform(-7, 2, size))
    states = np.array([V, t_c, t_n, P, q_c, q_n])
    s_c, s_n, _, _, g_c, g_n = margins(states, x)
    room = 2 * (Y - 1 + np.log(Y)) / ((1 + x) * W**2)  # the largest r that part 3 of the lemma allows
    return states, x, g_c * s_c / (g_n * s_n), room * np.where(rng.random(size) < 0.5, 1, rng.random(size))


def derivative(states, x, nu, r):
    """L of the proof, and the size of its first term."""
    V = states[0]
    s_c, s_n, m_c, m_n, g_c, g_n = margins(states, x)
    o_c, o_n, T, T_n = 1 - s_c, 1 - s_n, m_c - V, m_n + V
    w_c, w_n = (1 - g_c) * T, (1 - g_n) * T_n
    b, N = 1 + s_n * (w_n - 1), s_c * (w_c - 1) - s_n * (w_n - 1)
    first = (g_n - g_c) * (1 - g_n - g_c) * o_n**2
    rest = r * g_c * s_c * ((T_n / nu - T) * b - ((1 + x) * T + x * T_n) * N)
    return first + g_c * (1 - g_c) * (s_c - s_n) * (o_c + o_n) + rest, abs(first)


def test_the_derivative_of_the_proof_is_that_along_the_flow():
    states, x, nu, r = states_without_slope(np.random.default_rng(1), 4000)
    keep = (nu < 1) & (states[1:3].max(0) < 8) & (r < 100)
    states, x, nu, r = states[:, keep], x[keep], nu[keep], r[keep]
    V, t_c, t_n = states[:3]
    s_c, s_n, _, _, g_c, g_n = margins(states, x)
    A_c, A_n = g_c * s_c * (1 - s_c) * (V - t_c), g_n * s_n * (1 - s_n) * (V + t_n)
    slope = np.array([0 * V, g_c * (1 - s_c), g_n * (1 - s_n), r * x * (A_c - nu * A_n), -r * A_c, r * A_n])

    def log_ratio(states):
        s_c, s_n, _, _, g_c, g_n = margins(states, x)
        return np.log(g_c * s_c) - np.log(g_n * s_n)

    h = 1e-4 / (1 + abs(slope).max(0))
    numeric = (log_ratio(states + h * slope) - log_ratio(states - h * slope)) / (2 * h)
    found, _ = derivative(states, x, nu, r)
    assert keep.sum() > 300
    size = abs(numeric) + abs(slope).max(0)
    np.testing.assert_allclose(found / size, numeric / size, rtol=0, atol=1e-5)


def test_where_the_slope_vanishes_the_derivative_is_positive():
    """All three cases of the proof are met; beyond its bound of nu there are states with L < 0, so this could fail."""
    rng = np.random.default_rng(2)
    least, beyond, met = np.full(3, np.inf), np.inf, np.zeros(3, dtype=int)
    for _ in range(4):
        states, x, nu, r = states_without_slope(rng, 200_000)
        L, first = derivative(states, x, nu, r)
        _, _, m_c, m_n, g_c, _ = margins(states, x)
        excursion = states[2] < states[1]
        allowed = (nu < 1) & (m_c < 30) & (m_n > np.where(excursion, M0, 0))
        e, w_c = 2 * states[0] - (m_c - m_n), (1 - g_c) * (m_c - states[0])
        ratio = L / first
        for case, where in enumerate(((e >= 0) & (w_c <= 1), (e >= 0) & (w_c > 1), e < 0)):
            where = where & allowed & ((nu <= 2 / 3) | ~excursion)
            met[case] += where.sum()
            least[case] = min(least[case], ratio[where].min())
        beyond = min(beyond, ratio[allowed & excursion & (nu > 0.95)].min())
    assert (met > 5_000).all()
    assert (least > 0.4).all()
    assert beyond < 0


def test_the_numbers_of_the_proof():
    Y = np.exp(np.linspace(0, 20, 400_001))
    room = Y - 1 + np.log(Y)
    phi = (room / (1 + Y) ** 2).max()
    assert 0.1972 < phi < 0.1973
    assert 1.047 < (room / (1 + Y)).max() < 1.048
    assert M0 * expit(M0) == pytest.approx(1, abs=1e-12)
    T = np.linspace(M0, 60, 200_001)
    for u, least in ((0.5, 0.346), (1.0, 0.42)):
        K = 0.782 - np.minimum(0.157, expit(-T)) - 2 * 0.1973 * (2 - u) * (0.72 - 0.66 / T)
        assert K.min() > least
        share = np.linspace(1e-3, 0.98, 100_001)
        rate = np.maximum(0.5, np.expm1(share / (1 - share)))
        over = np.maximum(1.5 * share - 0.5, 0) * (1 - share)
        assert (least * rate > 2 * 0.1973 * (2 - u) * share + 2.04 * u * over).all()
    b = np.linspace(1e-6, 0.5, 100_001)
    assert (np.diff(2 * np.log(1 - b) + np.log(2) - np.log(b) - M0 * (0.5 - b) / (1 - b)) < 0).all()
