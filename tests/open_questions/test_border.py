"""The border at 20 per cent of flipped labels: boxes and cells against gradient descent with vectors and a flow of its own."""

from dataclasses import replace

import numpy as np
import pytest

from attnbook.certified.boundary_range import _advanced
from attnbook.certified.certificate import precision
from attnbook.open_questions import finite_border, kept_side
from attnbook.open_questions.finite_border import KEPT, LOST, STEP, WEIGHTS, cell, follow

pytest.importorskip("flint")
H = float(STEP)


def descent(x, off, steps, seed=0):
    """Plain gradient descent on v and p with token vectors; two classes of 8 clean and 2 flipped samples, row sums of |E| at most `off`.

    Yields V, t, P - q of the first class: its clean samples, then its flipped ones.
    """
    n, d = 20, 100.0
    noise = np.random.default_rng(seed).uniform(-1, 1, (n, n))
    noise = noise + noise.T
    noise *= off / abs(noise).sum(1).max()
    xi = np.hstack([np.zeros((n, 2)), np.sqrt(d) * np.linalg.cholesky(np.eye(n) + noise)])
    truth = np.repeat([1.0, -1.0], 10)
    y = truth * np.tile(np.repeat([1.0, -1.0], [8, 2]), 2)
    u = np.zeros_like(xi)
    u[np.arange(n), np.repeat([0, 1], 10)] = np.sqrt(x * d / 8)
    v, p = np.zeros(n + 2), np.zeros(n + 2)
    for _ in range(steps + 1):
        yield v @ u[0], (y * (xi @ v))[:10], ((u - xi) @ p)[:10]
        s = 1 / (1 + np.exp(-(u - xi) @ p))
        pull = H * n / d / n * y / (1 + np.exp(y * (s * (u @ v) + (1 - s) * (xi @ v))))
        turn = pull * s * (1 - s) * ((u - xi) @ v)
        v, p = v + (pull * s) @ u + (pull * (1 - s)) @ xi, p + turn @ (u - xi)


def outside(x, off, error, steps, seed=0, ends=None):
    """How far samples are outside the boxes at most, over all steps, in units of the variable's weight; < 0: all inside."""
    worst = -np.inf
    with precision(64):
        boxes = follow(cell(*(ends or (round(1e5 * x) - 1, round(1e5 * x) + 1))), error, steps)
        for (V, t, logit), box in zip(descent(x, off, steps, seed), boxes, strict=True):
            low, high = ([float(end(b)) for b in box] for end in (lambda b: b.lower(), lambda b: b.upper()))
            for k, values in enumerate(([V], t[:8], t[8:], logit[:8], logit[8:])):
                worst = max(worst, *((max(z - high[k], low[k] - z) - 1e-12) / WEIGHTS[k] for z in values))
    return worst


@pytest.mark.parametrize(
    ("x", "error", "steps", "seed"), [(1.2, "1e-4", 120, 0), (1.5, "1e-5", 160, 1), (1.8, "1e-4", 120, 2)]
)
def test_boxes_hold_all_samples_of_gradient_descent(x, error, steps, seed, monkeypatch):
    assert outside(x, float(error), error, steps, seed) <= 0
    assert outside(x, 3e-2, error, steps, seed) > 0  # a Gram matrix farther from the identity than the box allows
    rates = finite_border.map_rates
    monkeypatch.setattr(finite_border, "map_rates", lambda *at: [1.01 * rate for rate in rates(*at)])
    assert outside(x, float(error), error, steps, seed) > 0


@pytest.mark.parametrize(("x", "inside"), [(1.19, False), (1.2, True), (1.202, True), (1.204, True), (1.214, False)])
def test_boxes_of_a_cell_hold_the_samples_at_both_of_its_ends(x, inside):
    assert bool(outside(x, 1e-9, "1e-8", 40, ends=(120_000, 120_400)) <= 0) is inside


@pytest.mark.parametrize("stretched", [1.0, 1.25])
def test_cross_terms_widen_the_boxes_as_in_the_lemma(stretched, monkeypatch):
    """Without movement the radius grows by h eps c: c = 1 up to h t = 2, then half of h t."""
    monkeypatch.setattr(finite_border, "map_rates", lambda *_: [finite_border.ball(0)] * 5)
    monkeypatch.setattr(finite_border, "stretch", lambda *_: stretched)
    with precision(64):
        *_, box = follow(cell(120_000, 120_001), "1e-6", 41)
        radii = [float(b.rad()) / w for b, w in zip(box, WEIGHTS, strict=True)]
    radius = 0.0
    for t in range(41):
        radius = radius * stretched + 0.25e-6 * max(1, t / 8)
    np.testing.assert_allclose(radii, radius, rtol=1e-5)


def test_slopes_are_difference_quotients():
    rng = np.random.default_rng(3)
    for _ in range(20):
        V, t_c, t_n, a, b = rng.uniform(-2, 2, 5)
        sides = []
        for t, logit, sign in ((t_c, a, 1), (t_n, b, -1)):

            def three(V, t, logit, sign=sign):
                s = 1 / (1 + np.exp(-logit))
                g = 1 / (1 + np.exp(sign * s * V + (1 - s) * t))
                return np.array([g * s, g * (1 - s), g * s * (1 - s) * (V - sign * t)])

            at, eye = np.array([V, t, logit]), 1e-5 * np.eye(3)
            sides.append(np.array([(three(*(at + e)) - three(*(at - e))) / 2e-5 for e in eye]).T)
        with precision(64):
            y = [finite_border.ball(float(z)) for z in (V, t_c, t_n, a, b)]
            found = finite_border.slopes(y)
            np.testing.assert_allclose(np.array([[[float(z) for z in r] for r in f] for f in found]), sides, atol=1e-8)


def one_step(x, V, t, logit, clean=800):
    """V, values and logits after a step on orthogonal noise, `clean` clean and a quarter as many flipped samples, each with its own."""
    zeta = np.where(np.arange(len(t)) < clean, 1.0, -1.0)
    s = 1 / (1 + np.exp(-logit))
    g = 1 / (1 + np.exp(zeta * s * V + (1 - s) * t))
    A = g * s * (1 - s) * (V - zeta * t)  # flipped: V + t
    share = zeta / clean
    return V + H * x * (share @ (g * s)), t + H * g * (1 - s), logit + H * (x * (share @ A) + zeta * A)


@pytest.mark.parametrize(
    "y",
    [(0.4, 0.5, 0.6, -0.1, -0.4), (1.0, 1.2, 1.9, -0.6, -2.0), (2.6, 0.4, 1.1, 1.5, -1.0), (0.1, 2.0, 0.3, 0.9, 1.4)],
)
def test_the_stretch_is_attained_and_not_passed(y):
    """Samples at the corners of a small box: the worst corners, one sample against all others, reach the bound to 2 %."""
    x, R, reached = 1.4, 1e-6, 0.0
    weights, where = R * np.array(WEIGHTS), np.repeat([0, 1], [800, 200])
    t, logit = np.array(y)[1:3][where], np.array(y)[3:][where]
    at = one_step(x, y[0], t, logit)
    for signs in np.ndindex(*[2] * 7):
        V, t_c, t_n, a, b, own_t, own = 2.0 * np.array(signs) - 1
        for i in (0, 999):
            off_t, off = np.array([t_c, t_n])[where], np.array([a, b])[where]
            off_t[i], off[i] = own_t, own
            new = one_step(x, y[0] + weights[0] * V, t + weights[1:3][where] * off_t, logit + weights[3:][where] * off)
            moved = [
                abs(z - z0) / w
                for z, z0, w in zip(new, at, (weights[0], weights[1:3][where], weights[3:][where]), strict=True)
            ]
            reached = max(reached, *(np.max(m) for m in moved))
    with precision(64):
        ball = finite_border.ball
        bound = finite_border.stretch([ball(z) for z in y], ball("1.4"), ball("0.25"), ball(STEP))
    assert 0.98 * (bound - 1) < reached - 1 < bound - 1 + 1e-4


@pytest.mark.parametrize("part", [*LOST, *KEPT], ids=str)
def test_first_and_last_cell_of_each_part(part):
    first, last, width, error, steps = part
    proves, wrong = (finite_border.lost, finite_border.kept)[:: 1 if part in LOST else -1]
    assert (last - first) % width == 0
    for low in (first, last - width):
        assert proves(low, low + width, error, steps)
    assert not wrong(first, first + width, error, steps)


@pytest.mark.parametrize("x", [1.05, 1.2, 1.45])
def test_entry_into_the_smaller_trap_is_that_of_the_chapter(x):
    """The first step that is proved is not before the conditions (eq-long-smaller), (eq-long-entry) hold with z = z' = 0.01, nor late."""
    z, logits = finite_border.Z, []
    for strength in (x, x / 4):
        inside = np.linspace(1e-4, 1, 200_000, endpoint=False)
        sigma = inside[strength * inside * np.exp(H * strength * inside + 2 * z) <= 1 - inside].max()
        logits.append(np.log(sigma / (1 - sigma)) - z)
    holds = [
        (t[:8] - V).min() >= z and (V + t[8:]).min() >= z and a[:8].max() <= logits[0] and a[8:].max() <= logits[1]
        for V, t, a in descent(x, 1e-9, 160)
    ]
    first, low = holds.index(True), round(1e5 * x)
    proved = [finite_border.lost(low - 1, low + 1, "1e-9", steps) for steps in range(first - 3, first + 6)]
    assert not any(proved[:3])
    assert proved[-1]


def test_each_of_the_four_entry_conditions_counts(monkeypatch):
    """At x = 1.2 and eps = 1/2: rooms of 0.011 prove, 0.009 in one of them does not."""
    loss = 0.25 * 1.2 / 2.2 + np.log(2)
    for short in (None, 0, 1, 2, 3):
        room = np.full(4, 0.011)
        if short is not None:
            room[short] = 0.009
        state = (
            0.5,
            0.5 + room[0],
            room[1] - 0.5,
            -np.log(1.2) - loss - 3 * room[2],
            -np.log(0.3) - loss - 3 * room[3],
        )
        monkeypatch.setattr(
            finite_border, "follow", lambda *_, state=state: [[finite_border.ball(float(z)) for z in state]]
        )
        assert finite_border.lost(119_999, 120_001, "0.5", 1) is (short is None)


@pytest.mark.parametrize(("attention", "turned"), [(0.5999, False), (0.6001, True)])
def test_a_kept_cell_has_more_attention_than_the_theorem_says(attention, turned, monkeypatch):
    state = [finite_border.ball(float(z)) for z in (0, 0, 0, np.log(attention / (1 - attention)), 0)]
    monkeypatch.setattr(finite_border, "follow", lambda *_: [state])
    assert finite_border.kept(180_000, 180_010, "1e-6", 1) is turned


def test_parts_leave_no_gap_and_the_border_is_not_crossed(monkeypatch):
    asked = {"lost": [], "kept": []}
    with monkeypatch.context() as patched:
        for name, cells in asked.items():
            patched.setattr(finite_border, name, lambda low, high, *_, cells=cells: cells.append((low, high)) is None)
        assert finite_border.main() == 0
    for name, ends in (("lost", (100_000, 161_000)), ("kept", (165_000, 200_000))):
        lows, highs = zip(*asked[name], strict=True)
        assert (lows[0], highs[-1]) == ends
        assert lows[1:] == highs[:-1]
    assert not finite_border.lost(162_999, 163_001, "1e-8", 1000)
    assert not finite_border.kept(160_999, 161_001, "1e-8", 1000)


@pytest.mark.parametrize(("x", "off", "steps"), [(1.1, 1e-5, 200), (1.45, 1e-6, 600)])
def test_lost_classes_stay_lost_until_the_time_of_the_theorem(x, off, steps):
    assert steps * H < 0.16 / np.sqrt(off)
    entered = next(part[-1] for part in LOST if part[0] <= 1e5 * x <= part[1])
    for t, (V, values, logit) in enumerate(descent(x, off, steps)):
        if t >= entered:
            assert (values[:8] >= V).all()
            assert (logit[:8] < -np.log(x)).all()
            assert (logit[8:] < -np.log(x / 4)).all()
            assert (values[8:] >= -V).all()


def own_flow(x, length, steps, off=1.0):
    """The five-variable flow in the clock T, classical Runge-Kutta; off: a factor of the right side."""

    def rates(y):
        V, t_c, t_n, a, b = y
        s, z = 1 / (1 + np.exp(-a)), 1 / (1 + np.exp(-b))
        ratio = (1 + np.exp(s * V + (1 - s) * t_c)) / (1 + np.exp((1 - z) * t_n - z * V))
        w, f = s * (1 - s) * (V - t_c), ratio * z * (1 - z) * (V + t_n)
        P = x * (w - f / 4)
        return off * np.array([x * (s - ratio * z / 4), 1 - s, ratio * (1 - z), P + w, P - f])

    y = np.zeros(5)
    for _ in range(steps):
        k = rates(y)
        m = rates(y + length / 2 * k)
        o = rates(y + length / 2 * m)
        y = y + length / 6 * (k + 2 * m + 2 * o + rates(y + length * o))
    return y


@pytest.mark.parametrize("off", [1.0, 1.01])
def test_a_cell_holds_the_flows_of_its_x_and_refuses_a_right_side_that_is_off(off):
    with precision(96):
        family = kept_side.start("2.399", "2.401")
        for _ in range(32):
            family, _ = _advanced(family, kept_side.ball("0.25"), kept_side.STEP)
        box = [(float(z.lower()), float(z.upper())) for z in family.state()]
    for x in (2.399, 2.4, 2.401):
        inside = [
            low - 1e-9 <= z <= high + 1e-9 for z, (low, high) in zip(own_flow(x, 1e-3, 1000, off), box, strict=True)
        ]
        assert all(inside) is (off == 1.0)


def test_cells_of_the_kept_side(monkeypatch):
    """A narrow one is proved again; one below the border is not; at the ends of all, a flow of its own ends on the signal."""
    assert kept_side.kept("2.5", "2.5001")
    monkeypatch.setattr(kept_side, "LONGEST", 2.0)
    monkeypatch.setattr(kept_side, "FIRST", -9.0)
    assert not kept_side.kept("1.6", "1.6001")
    assert list(kept_side.CELLS) == sorted(kept_side.CELLS)
    assert (kept_side.CELLS[0], kept_side.CELLS[-1]) == ("1.96", "2.87")
    for x in (float(end) for end in kept_side.CELLS[:: len(kept_side.CELLS) - 1]):
        assert own_flow(x, 1e-2, 2000)[3] > 4


def test_all_parts_of_a_cell_are_caught(monkeypatch):
    seen, caught_from = [], 2

    def caught(family, nu):
        assert float(nu) == pytest.approx(1 / 4)  # 20 per cent of flips
        found = family.time >= caught_from
        seen.extend([(float(family.x0 - family.delta), float(family.x0 + family.delta))] if found else [])
        return found

    def advanced(family, nu, length):
        return replace(family, time=family.time + 1), 0.0 if family.time < 1 or family.delta < 0.02 else 1.0

    monkeypatch.setattr(kept_side, "caught", caught)
    monkeypatch.setattr(kept_side, "_advanced", advanced)
    assert kept_side.kept("2.0", "2.1")
    np.testing.assert_allclose(sorted(seen), [(2 + k / 40, 2 + (k + 1) / 40) for k in range(4)], rtol=1e-12)
    caught_from = 99  # what no set holds at the longest time is not kept
    assert not kept_side.kept("2.0", "2.1")
