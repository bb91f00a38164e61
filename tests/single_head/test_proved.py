"""Proved outcomes of two steps: the decoupling checked on drawn noise, every bound against simulated training sets, and no false proof."""

import math

import mpmath
import numpy as np
import pytest
import torch
from scipy import stats

from attnbook.single_head.phase_cells import two_step_cells
from attnlib.gaussian import bartlett_rows
from attnlib.intervals import Interval
from attnlib.single_head import proved
from attnlib.single_head.law import SignalNoiseLaw
from attnlib.single_head.population import log10_error_of_scores
from attnlib.single_head.proved import OUTCOMES, UNDECIDED, proved_outcome, proved_outcomes

# n, d, SNR, eta, beta d/n: all outcomes, kappa on both sides of 1, few and many dimensions, small and large steps.
SETTINGS = [
    (200, 40_000, 0.15, 0.05, 5.0), (200, 40_000, 0.015, 0.05, 5.0), (200, 40_000, 0.15, 0.05, 0.5), (100, 2_000, 0.3, 0.1, 8.0),
    (60, 10**6, 0.4, 0.3, 20.0), (40, 300, 0.2, 0.2, 2.0), (12, 5_000, 1.0, 0.4, 3.0), (150, 10**5, 0.6, 0.45, 40.0),
    (30, 10**7, 0.02, 0.0, 60.0), (2, 1_000, 0.5, 0.5, 1.0),
]  # fmt: skip


def drawn(n, d, snr, eta, multiple, rng):
    """One training set after two steps, from the definitions: label counts, t + zeta V e^q, z, e^P V/|Pi v|, |Pi p|, errors."""
    noise, rho2, unit = bartlett_rows(rng, n, d - 2), snr**2 * d, multiple / (4 * d)
    classes, uniforms = rng.integers(0, 2, n), rng.random(n)
    truth, flipped = 1.0 - 2 * classes, uniforms < eta
    y = np.where(flipped, -truth, truth)
    gram, same = noise @ noise.T, rho2 * (classes[:, None] == classes)
    signal, own = unit * same @ y, unit * gram @ y
    g = 1 / (1 + np.exp(np.clip(y * (signal + own) / 2, -700, 700)))
    of_v, of_p = unit * (1 + 2 * g) * y, unit * g * y * (signal - own)
    q, t, value = same @ of_p + gram @ of_p, y * (gram @ of_v), truth * (same @ of_v)
    room = t + np.where(flipped, -1, 1) * value * np.exp(np.minimum(q, 700))
    first = noise.T @ y
    z = y * (noise @ first) / np.linalg.norm(first) - np.linalg.norm(first) / n
    length, omega = np.linalg.norm(noise.T @ of_v), np.linalg.norm(noise.T @ of_p)
    one = (torch.tensor([x], dtype=torch.float64) for x in (math.sqrt(rho2), eta, 4 * n * unit))
    cell = two_step_cells(torch.as_tensor(noise), torch.as_tensor(classes), torch.as_tensor(uniforms), *one)
    assert (cell.smallest_margin.item() > 0) == (room.min() > 0)
    strength = {k: math.exp((same @ of_p)[classes == k][0]) * value[classes == k][0] / length for k in set(classes.tolist())}
    return classes, flipped, room, z, strength, omega, 10 ** log10_error_of_scores(cell.fresh).item()


def box(n, d, snr, eta, multiple, classes, flipped, failure):
    """The bounds for one set of label counts."""
    size = int((classes == 0).sum())
    counts = np.array([[size], [flipped[classes == 0].sum()], [flipped[classes == 1].sum()]], dtype=float)
    common = proved._common([SignalNoiseLaw(n, d, snr * math.sqrt(d), eta)], [multiple * n / d], failure).at(np.array([0]))
    with np.errstate(all="ignore"):
        return proved._boxes_found(common, np.array([float(n)]), counts, counts, failure, 0.1, 8)


@pytest.mark.parametrize("setting", SETTINGS)
def test_every_bound_holds_for_drawn_training_sets(setting):
    """At a failure probability of 0.3 for all events together, 12 draws: at most 9 outside (chance below 1e-3); none is seen."""
    rng, outside = np.random.default_rng(5), 0
    for _ in range(12):
        classes, flipped, room, z, strength, omega, error = drawn(*setting, rng)
        found = box(*setting, classes, flipped, 0.3)
        assert (found.signal.low <= found.signal.high).all() or np.isnan(found.signal.high).any()
        good = omega <= found.omega[0] and room.min() >= found.room_fit[0]
        good &= all(found.signal.low[k, 0] <= s <= found.signal.high[k, 0] for k, s in strength.items())
        good &= found.error[0, 0] - 1e-9 <= error <= found.error[1, 0] + 1e-9
        for kind, members in enumerate((flipped, ~flipped)):
            groups = [members & (classes == k) for k in (0, 1)]
            least = [room[group][z[group].argmin()] for group in groups if group.any()]
            good &= not least or min(least) <= found.room_miss[kind, 0]
        outside += not good
    assert outside == 0


def test_one_direction_decides_the_weights_and_the_rest_is_independent():
    """lem-one-direction and lem-weighted-exact on drawn noise: equalities to rounding, and N_i standard normal, uncorrelated with z_i."""
    n, d, a = 12, 60, 1.7
    rng, normals, ones = np.random.default_rng(3), [], []
    for _ in range(400):
        eta = rng.standard_normal((n, d - 2))  # y_i xi_i
        main = eta.sum(0) / math.sqrt(n)
        size = np.linalg.norm(main)
        alpha = eta @ main / size
        z, eps = alpha - size / math.sqrt(n), eta @ eta.sum(0) / d - 1
        r = size / math.sqrt(d)
        np.testing.assert_allclose(eps, r**2 - 1 + r * math.sqrt(n / d) * z, atol=1e-12)
        w = 1 + 2 / (1 + np.exp(a * (1 + eps) / 2))
        rest = eta - np.outer(alpha, main / size)
        spread = w - w.mean()
        s = spread @ rest
        big, tail = s @ s / (spread @ spread), (1 - 1 / n) * (spread @ spread) - spread**2
        score = eta @ (w @ eta) / d
        known = w * big / d + w.mean() * (1 + eps - big / d) + alpha * (w @ z) / d
        normal = (score - known) * d / np.sqrt(big * tail)
        square = d * (math.sqrt(n) * r * w.mean() + w @ z / math.sqrt(d)) ** 2 + spread @ spread * big
        assert square == pytest.approx(((w @ eta) ** 2).sum())
        normals.append(normal[0])
        ones.append(z[0])
    assert stats.kstest(normals, "norm").pvalue > 1e-4
    assert abs(np.corrcoef(normals, ones)[0, 1]) < 4 / 20
    assert np.var(ones) == pytest.approx(1 - 1 / n, abs=0.3)


@pytest.mark.parametrize(
    ("setting", "outcome"), list(zip(SETTINGS[:3], OUTCOMES[:3], strict=True))
)
def test_outcomes_that_are_proved(setting, outcome):
    n, d, snr, eta, multiple = setting
    answer = proved_outcome(SignalNoiseLaw(n, d, snr * math.sqrt(d), eta), multiple * n / d)
    assert answer.outcome == outcome
    assert 0.99 <= answer.probability <= 0.995 and answer.failed == ""


def test_proved_outcomes_occur():
    """Random settings of the box, proved at delta 0.2: in 8 draws each, as many contradictions as one draw in five allows, or fewer."""
    rng, wrong, draws = np.random.default_rng(11), 0, 0
    settings = []
    for _ in range(24):
        n, d = int(rng.integers(2, 40)), int(np.exp(rng.uniform(4, 14)))
        settings.append((n, d, np.exp(rng.uniform(-3.5, 1)) / n**0.5, rng.choice([0, 0.05, 0.3, 0.5]), np.exp(rng.uniform(-2, 4))))
    laws = [SignalNoiseLaw(n, d, snr * math.sqrt(d), eta) for n, d, snr, eta, _ in settings]
    answers = proved_outcomes(laws, [m * n / d for n, d, _, _, m in settings], 0.2)
    for setting, answer in zip(settings, answers, strict=True):
        if answer.outcome == UNDECIDED:
            assert answer.failed
            continue
        for _ in range(8):
            _, flipped, room, *_, error = drawn(*setting, rng)
            fits = room.min() > 0
            holds = (fits and error <= 0.1, fits and error >= 0.1, (room[flipped] < 0).any(), (room[~flipped] < 0).any())
            wrong += not holds[OUTCOMES.index(answer.outcome)]
            draws += 1
    assert draws >= 60
    assert stats.binom.sf(wrong - 1, draws, 0.2) > 1e-4


@pytest.mark.parametrize(("n", "d"), [(1, 100), (2, 3), (2, 4)])
def test_outside_the_hypotheses_nothing_is_decided(n, d):
    answer = proved_outcome(SignalNoiseLaw(n, d, 1.0), 0.1)
    assert answer.outcome == UNDECIDED and f"got {n} and {d}" in answer.failed


@pytest.mark.parametrize("step_size", [1e-300, 1e-9, 1e9, 1e300])
@pytest.mark.parametrize("eta", [0.0, 0.5])
def test_tiny_and_huge_steps_give_no_crash(step_size, eta):
    for n, d, rho in ((2, 5, 1e-3), (50, 10**9, 1e5)):
        assert proved_outcome(SignalNoiseLaw(n, d, rho, eta), step_size).outcome in (*OUTCOMES, UNDECIDED)


@pytest.mark.parametrize(
    "arguments", [{"delta": 0.0}, {"delta": 1.0}, {"error": 0.5}, {"step_size": 0.0}, {"law": SignalNoiseLaw(4, 9, 1.0, tokens=3)}]
)
def test_bad_arguments_are_refused(arguments):
    with pytest.raises(ValueError, match=next(iter(arguments))):
        proved_outcome(**{"law": SignalNoiseLaw(4, 9, 1.0), "step_size": 1.0} | arguments)


def test_intervals_hold_the_exact_values():
    """Against 60 digits, at random numbers of all sizes; and sums of 1e16 and 1 are not rounded away."""
    rng = np.random.default_rng(0)
    x, y = (rng.choice([-1, 1], 300) * np.exp(rng.uniform(-30, 30, 300)) for _ in range(2))
    with mpmath.workdps(60):
        for operation in (lambda a, b: a + b, lambda a, b: a - b, lambda a, b: a * b, lambda a, b: a / b):
            result = operation(Interval.of(x), Interval.of(y))
            exact = [operation(mpmath.mpf(a), mpmath.mpf(b)) for a, b in zip(x, y, strict=True)]
            assert all(lo < e < hi for lo, e, hi in zip(result.low, exact, result.high, strict=True))
        for name, function in (("exp", mpmath.exp), ("sigmoid", lambda v: 1 / (1 + mpmath.exp(-v)))):
            inputs = np.clip(x, -800, 600)
            result = getattr(Interval.of(inputs), name)()
            values = [function(mpmath.mpf(v)) for v in inputs]
            assert all(lo <= e <= hi for lo, e, hi in zip(result.low, values, result.high, strict=True))
    pair = Interval.of(np.array([-2.0]), np.array([3.0]))
    assert pair.square().low == 0 and 9 <= pair.square().high[0] < 9.01
    assert (pair * pair).low[0] <= -6 and pair.sqrt().low == 0


@pytest.mark.parametrize(("k", "tail"), [(1, 1e-3), (38, 1e-5), (39_998, 1e-6), (10**9, 1e-6)])
def test_chi_square_bounds_are_outside_the_quantiles_and_near(k, tail):
    low, high = proved._chi_square(k, tail)
    assert low <= stats.chi2.ppf(tail, k) and stats.chi2.isf(tail, k) <= high
    assert high - low < 1.4 * (stats.chi2.isf(tail, k) - stats.chi2.ppf(tail, k)) or k == 1


def test_boxes_cover_the_likely_counts_once():
    """All boxes together, and after each cut, hold all but 2e-4 of the probability, no count twice."""
    n, eta, missing = 37, 0.2, 1e-5
    boxes = proved._first_boxes(0, n, eta, missing)
    for _ in range(3):
        assert 1 - 2e-4 < proved._box_mass(boxes, n, eta, missing).sum() <= 1
        boxes = boxes.cut()
    sizes, own, sums = proved._count_law(n, eta, missing)
    assert own[0] == pytest.approx(2 * stats.binom.pmf(sizes[0], n, 0.5))
    assert sums[sizes[0], 4] == pytest.approx(stats.binom.cdf(3, sizes[0], eta))
