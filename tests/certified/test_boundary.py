"""The certified boundary of the mean-field flow: each ingredient a second way, wrong constants, wrong digits, refused input."""

import itertools
import math

import numpy as np
import pytest

from attnbook.certified import boundary, boundary_flow, boundary_range
from attnbook.certified.boundary import BRACKETS, KEPT, bracket, end_of_flow, ends, returns
from attnbook.certified.boundary_flow import (
    WEIGHTS,
    Model,
    NoStep,
    at,
    flow_tube,
    jacobian,
    logarithmic_norm,
    parts,
    rates,
    step,
    taylor,
)
from attnbook.certified.boundary_range import covered, stored
from attnbook.certified.boundary_sets import SignalSet, in_signal_set, in_trap, signal_room
from attnbook.certified.certificate import precision
from attnbook.single_head import flow
from tests.bad_input import refusing

flint = pytest.importorskip("flint")
arb = flint.arb
STATE = (3.0, 2.5, 3.7, -0.4, -2.6)


def _model(x: str = "1.7", nu: str = "0.25", rate: str = "1.5") -> Model:
    return Model(arb(x), arb(nu), arb(rate))


def _balls(state: tuple[float, ...], width: float = 0.0) -> list:
    return [arb(value, width) for value in state]


def _six(state: tuple[float, ...], x: float, nu: float) -> list[float]:
    """A state of the six variables of Part I with the same logits and P + x (q_c + nu q_n) = 0."""
    V, t_c, t_n, a, b = state
    P = x * (a + nu * b) / (1 + x + nu * x)
    return [V, t_c, t_n, P, P - a, P - b]


def test_the_rates_are_those_of_part_one_in_another_clock() -> None:
    x, nu, rate = 1.7, 0.25, 1.5
    six = flow.flow_rates(_six(STATE, x, nu), x, nu, rate)
    s_c = 1 / (1 + math.exp(-STATE[3]))
    g_c = 1 / (1 + math.exp(s_c * STATE[0] + (1 - s_c) * STATE[1]))
    expected = np.array([six[0], six[1], six[2], six[3] - six[4], six[3] - six[5]]) / g_c
    with precision(80):
        found = [float(value) for value in rates(_balls(STATE), _model())]
    np.testing.assert_allclose(found, expected, rtol=1e-13)


def test_the_coefficients_are_those_of_picards_iteration() -> None:
    """A second way: y = y0 + integral of the rates, in power series of the library, one more coefficient in each pass."""
    order, before = 9, flint.ctx.cap
    flint.ctx.cap = order + 1
    try:
        with precision(128):
            model, start = _model(), [flint.arb_series([arb(value)]) for value in STATE]
            path = [flint.arb_series([arb(value)], 1) for value in STATE]
            for _ in range(order):
                path = [first + rate.integral() for first, rate in zip(start, rates(path, model), strict=True)]
            for series, row in zip(path, taylor(_balls(STATE), model, order), strict=True):
                assert all(abs(series[k] - row[k]) < 1e-30 for k in range(order + 1))
    finally:
        flint.ctx.cap = before


def test_the_jacobian_is_the_derivative_of_the_rates() -> None:
    with precision(160):
        model, h = _model(), arb(2) ** -50
        matrix = jacobian(_balls(STATE), model)
        for j in range(5):
            up, down = ([value + sign * h * (i == j) for i, value in enumerate(_balls(STATE))] for sign in (1, -1))
            for i, (above, below) in enumerate(zip(rates(up, model), rates(down, model), strict=True)):
                assert abs((above - below) / (2 * h) - matrix[i][j]) < 1e-25


def test_the_logarithmic_norm_is_that_of_the_definition() -> None:
    matrix = np.random.default_rng(5).normal(size=(5, 5))
    scale = np.array(boundary_flow.WEIGHTS)
    h = 1e-7
    size = np.abs((np.eye(5) + h * matrix) * scale / scale[:, None]).sum(1).max()
    assert logarithmic_norm([[arb(value) for value in row] for row in matrix]) == pytest.approx(
        (size - 1) / h, rel=1e-5
    )


def test_a_step_holds_the_flow_of_scipy_from_the_corners_of_its_radius() -> None:
    from scipy.integrate import solve_ivp

    with precision(128):
        model, radius, length = _model(), 1e-3, 2.0**-5
        centre, end, _ = step(_balls(STATE), radius, model, length)
        middle = np.array([float(value) for value in centre])

    def right(_: float, state: np.ndarray) -> list[float]:
        with precision(53):
            return [float(value.mid()) for value in rates([arb(float(value)) for value in state], model)]

    weights, far = np.array(boundary_flow.WEIGHTS), 0.0
    for signs in itertools.product((-1, 1), repeat=5):
        start = np.array(STATE) + radius * weights * signs
        last = solve_ivp(right, (0, length), start, rtol=1e-9, atol=1e-11).y[:, -1]
        far = max(far, (np.abs(last - middle) / weights).max())
    assert 0.9 * radius < far <= end
    assert end < 1.1 * radius
    with precision(128), pytest.raises(NoStep, match="no box"):
        step(_balls(STATE), 0.0, _model(), 4.0)


def test_a_step_from_a_point_holds_its_end_and_says_how_far_it_may_be() -> None:
    """60 coefficients in place of 20 say where the path ends: not at the new centre, and within the new radius."""
    with precision(256):
        model, length = _model(), 2.0**-3
        centre, radius, _ = step(_balls(STATE), 0.0, model, length)
        exact = [boundary_flow.at(row, arb(length)) for row in taylor(_balls(STATE), model, 60)]
        weights = boundary_flow.WEIGHTS
        off = max(float(abs(e - c)) / w for e, c, w in zip(exact, centre, weights, strict=True))
    assert 1e-33 < off < radius < 1e-13


def test_the_tube_holds_the_path_of_part_one() -> None:
    """Against the solver of Part I at a certain clean-token score, which grows along the path and so serves as a clock of both."""
    x, eta = 1.5, 0.2
    tube, answer = flow_tube(Model(arb("1.5"), arb("0.25"), arb(1)), lambda state: "there" if state[0] > 2 else None)
    assert answer == "there"
    path = flow.flow_path(x, eta, list(np.geomspace(0.5, 60, 4000)))
    at = [np.interp(float(tube.state[0]), path.states[:, 0], column) for column in path.states.T]
    found = [at[1], at[2], at[3] - at[4], at[3] - at[5]]
    np.testing.assert_allclose([float(value) for value in tube.state[1:]], found, atol=2e-5)
    assert max(float(value.rad()) for value in tube.state) < 1e-12


def test_the_trap_is_that_of_part_one() -> None:
    model = _model()
    for V, a in ((1.0, -1.0), (1.0, -0.5), (3.0, -1.0), (-2.0, -1.0)):
        state = (V, 2.0, 1.0, a, 0.5)
        assert in_trap(tuple(_balls(state)), model) is flow.in_trap(_six(state, 1.7, 0.25), 1.7, 0.2)
    assert in_trap(tuple(_balls((1.0, 2.0, 1.0, -0.53, 0.5), 0.1)), model) is None


def _smaller_root(weight: float, gap: float) -> float:
    """The smaller u with u (1 - u) gap = weight."""
    return (1 - math.sqrt(1 - 4 * weight / gap)) / 2


def _on_face(face: str, numbers: SignalSet, x: float, draw: np.random.Generator) -> list[float]:
    """A state of the signal set with V >= 20, V - t_c >= 9 that lies on one face and is drawn within the others."""
    w_c, w_n = draw.uniform(0, float(numbers.omega_c)), draw.uniform(0, float(numbers.omega_n))
    ratio = draw.uniform(float(numbers.gamma_low), float(numbers.gamma_high))
    w_c = float(numbers.omega_c) if face == "w_c" else w_c
    w_n = float(numbers.omega_n) if face == "w_n" else w_n
    ratio = x * {"low": float(numbers.gamma_low), "high": float(numbers.gamma_high)}.get(face, ratio)
    V, gap = 20 + draw.exponential(5), 9 + draw.exponential(3)
    u = _smaller_root(w_c, gap)
    margin = V - u * gap - math.log(ratio)  # of flipped samples
    s = 0.0
    for _ in range(60):
        t_n = margin + w_n / (1 - s)
        s = _smaller_root(w_n, V + t_n)
    return [V, V - gap, t_n, math.log((1 - u) / u), math.log(s / (1 - s))]


@pytest.mark.parametrize("face", ["w_c", "w_n", "high", "low"])
@pytest.mark.parametrize(
    ("x", "nu", "numbers"), [("1.6212", "0.25", boundary.SETS[1]), ("1.0891", "0.0526", boundary.SETS[0])]
)
def test_the_signal_set_is_not_left(x: str, nu: str, numbers: SignalSet, face: str) -> None:
    """On each face the flow points inwards, and what should grow grows: rates by finite differences of the defining functions."""
    place, sign = {"w_c": (0, -1), "w_n": (1, -1), "high": (2, -1), "low": (2, 1)}[face]
    draw, h = np.random.default_rng(3), arb(1e-7)
    with precision(120):
        model = Model(arb(x), arb(nu), arb(1))
        assert all(side > 0 for side in signal_room(numbers, model, arb(9), arb(38), arb(20), arb(18)))

        def defining(state: list) -> list:
            _, _, w_c, w_n, clean, noisy = parts(state, model)
            return [w_c, w_n, (1 + clean) / (1 + noisy), state[0] - state[1], state[0] + state[2], state[0], state[2]]

        for _ in range(60):
            here = _balls(tuple(_on_face(face, numbers, float(x), draw)))
            ahead = [value + h * speed for value, speed in zip(here, rates(here, model), strict=True)]
            now, then = defining(here), defining(ahead)
            edge = (
                numbers.omega_c,
                numbers.omega_n,
                float(x) * float(numbers.gamma_low if face == "low" else numbers.gamma_high),
            )
            assert float(now[place]) == pytest.approx(float(edge[place]), rel=1e-6)
            slopes = [float(b - a) for a, b in zip(now, then, strict=True)]
            assert sign * slopes[place] > 0
            assert min(slopes[3:]) > 0


def test_the_inequalities_of_the_signal_set_in_floats() -> None:
    """Once more from the theorem's text, with other numbers on each place and r = 0.6."""
    x, nu, r, oc, on, low, high = 1.7, 0.3, 0.6, 0.4, 0.5, 0.8 * 1.7, 1.4 * 1.7
    gap_c, gap_n, V, t_n = 7.0, 31.0, 6.0, 4.0
    u, s = _smaller_root(oc, gap_c), _smaller_root(on, gap_n)
    assert u * (1 - u) * gap_c == pytest.approx(oc)
    e_c, e_n = 1 / (1 + math.exp(V - oc / (1 - u))), 1 / (1 + math.exp(t_n - on / (1 - s)))
    k = s + r * oc * on
    up_c = r * ((1 + x) * oc - x * nu * high * on)
    up_n = r * ((1 + x * nu) * low * on - x * oc)
    expected = [
        (1 - 2 * u) * up_c - x / gap_c,
        (1 - 2 * s) * up_n - (x + high) / gap_n,
        (1 - e_n) * (high * (1 - s) ** 2 - x * k) - (x + r * (1 + x) * oc**2),
        (1 - e_c) * (x * (1 - u) ** 2 - x * nu * low * k) - low * (1 + r * (1 + x * nu) * on**2),
        x * (1 - u) - u - x * nu * high * s,
        x - 1,
    ]
    with precision(80):
        model = Model(arb("1.7"), arb("0.3"), arb("0.6"))
        found = signal_room(SignalSet("0.4", "0.5", "0.8", "1.4"), model, arb(7), arb(31), arb(6), arb(4))
        np.testing.assert_allclose([float(value) for value in found], expected, rtol=1e-9)


@pytest.mark.parametrize(
    "wrong",
    [("0.9", "0.37", "0.7", "1.3"), ("0.24", "2", "0.7", "1.3"), ("0.24", "0.37", "0.99", "1.3"), ("0.24", "0.37", "0.7", "1.01")],
)  # fmt: skip
def test_a_signal_set_with_a_wrong_number_is_not_proved(wrong: tuple[str, ...]) -> None:
    with precision(80):
        model = Model(arb("1.6212"), arb("0.25"), arb(1))
        room = [arb(9), arb(40), arb(20), arb(19)]
        assert all(side > 0 for side in signal_room(boundary.SETS[1], model, *room))
        assert not all(side > 0 for side in signal_room(SignalSet(*wrong), model, *room))
        state = tuple(_balls((20.0, 11.0, 19.5, 3.9, -5.1)))
        assert in_signal_set(state, model, SignalSet(*wrong)) is None


def test_where_the_flow_is_caught_is_where_the_solver_of_part_one_ends() -> None:
    for x in ("1.4", "1.9"):
        end = end_of_flow("0.2", x)
        assert (end.where == "signal") is flow.selects_signal(float(x), 0.2)
    assert end_of_flow("0.2", "1.4").tube.time < 15  # type: ignore[union-attr]


def test_a_path_that_is_not_caught_is_undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    end_of_flow.cache_clear()
    monkeypatch.setattr(boundary, "SETS", ())
    monkeypatch.setattr(boundary, "TRIES", ((64, 2.0**-4),))
    given = boundary_flow.flow_tube.__kwdefaults__
    monkeypatch.setattr(boundary_flow.flow_tube, "__kwdefaults__", {**given, "longest": 3.0})
    found = ends("0.1", "1.5", "signal")
    assert (found.proved, found.verdict, found.low) == (None, "undecided", "")
    assert bracket("0.1", "1.1", "1.5").proved is None
    end_of_flow.cache_clear()


@pytest.mark.parametrize(("delta", "steps", "length"), [("0.2", 8, 2.0**-5), ("0.000001", 6, 2.0**-3)])
def test_the_polynomials_hold_the_path_of_each_x(delta: str, steps: int, length: float) -> None:
    """The family, its halves and single paths agree to within their radii; what is cut off in x, or in time, is seen at the ends."""
    with precision(96):
        start = [[arb(0)] * (boundary_range.DEGREE + 1) for _ in range(5)]
        family = boundary_range.Family(arb("1.5"), arb(delta), start)
        for _ in range(steps):
            family, error = boundary_range._advanced(family, arb("0.25"), length)
        assert error < family.radius < 1e-10
        left, right = family.halves()
        farthest = 0.0
        for place, half, shift in (("-1", left, arb(-1)), ("-0.35", left, arb("0.3")), ("1", right, arb(1))):
            xi = arb(place)
            x = arb("1.5") + arb(delta) * xi
            tube, _ = flow_tube(Model(x, arb("0.25"), arb(1)), lambda _: None, bits=96, longest=steps * length)
            for found, at_place in ((family, xi), (half, shift)):
                for row, value, weight in zip(found.coefficients, tube.state, WEIGHTS, strict=True):
                    off = abs(at(row, at_place) - value)
                    assert off < found.radius * weight
                    farthest = max(farthest, float(off))
        assert farthest > 1e-20


def test_cells_that_do_not_reach_an_end_cover_nothing() -> None:
    assert covered(["1.63", "1.64", "1.96"], "1.63", "1.96")
    assert not covered(["1.63", "1.96"], "1.62", "1.9")
    assert not covered([], "1", "2")


def test_the_table_covers_what_the_claims_say() -> None:
    table = stored()
    for label_noise, (low, _) in BRACKETS.items():
        assert covered(table[f"{label_noise} noise"], "1", low)
    for label_noise, (low, high) in KEPT.items():
        assert covered(table[f"{label_noise} signal"], low, high)


def test_a_range_that_is_not_proved_ends_after_so_many_halvings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boundary_range, "HALVED", 2)
    assert boundary_range.range_ends("0.2", "1.6212", "40", "signal").verdict == "undecided"


test_bad_input = refusing(
    (lambda: ends("0.5", "1.6", "noise"), "a decimal as a text, above 0 and below 0.5; got '0.5'"),
    (ends, ("0.2", "1.6", "noise"), {"label_noise": "a fifth", "x": ["-1", 1.6], "rate": "0"}),
    (lambda: ends("0.2", "1.6", "both"), "on must be 'noise' or 'signal'; got 'both'"),
    (lambda: bracket("0.2", "1.7", "1.6"), "high must be a decimal as a text, above 1.7"),
    (lambda: returns("0.2", "nan"), "x must be a decimal"),
)
