"""Negative controls of Part I could have held: each judge, given data of its control's world, accepts the control."""

import math
from types import SimpleNamespace as Study

import numpy as np
import pytest
import torch

from attnbook.single_head.a_public_script.claims import SMALLER_STEP
from attnbook.single_head.assumptions_under_stress.claims import CLAIMS as STRESS
from attnbook.single_head.bound_by_bound.claims import CLAIMS as BOUNDS
from attnbook.single_head.error_from_both_sides import claims as below
from attnbook.single_head.error_from_both_sides.study import log10_floor_of_exponent
from attnbook.single_head.finite_dimension.claims import CLAIMS as FINITE
from attnbook.single_head.finite_dimension.study import INSIDE
from attnbook.single_head.hard_attention.claims import CLAIMS as HARD
from attnbook.single_head.label_counts import count_widths
from attnbook.single_head.max_margin.claims import CLAIMS as MARGIN
from attnbook.single_head.phase_diagram.claims import CLAIMS as PHASE
from attnbook.single_head.phase_diagram.proved import BENIGN, HARMFUL
from attnbook.single_head.study import noise_tolerance
from attnbook.single_head.the_trap.claims import CLAIMS as TRAP
from attnbook.single_head.two_steps.claims import CLAIMS as TWO
from attnlib.single_head.law import SignalNoiseLaw
from tests.worlds import tighter, worlds

LAW = SignalNoiseLaw(60, 9000, 30.0, 0.1)
DRAWS = 80
BELOW = below.CLAIMS
CASES = []


def case(made):
    """`made(rng, patch)` yields (rule, claim, own world, world of each control); `patch` replaces what a judge calls."""
    CASES.append(made)
    return made


def failing(claim, seen, other):
    """For a claim that is expected to fail: it does in the world that is seen, where its control holds, and holds in another."""
    found = (claim.seen(seen).holds, claim.seen(seen, claim.wrong).holds, claim.seen(other).holds)
    return [] if found == (False, True, True) else [found]


@pytest.mark.parametrize("made", CASES, ids=lambda made: made.__name__)
def test_a_control_holds_in_its_own_world(made, monkeypatch):
    for rule, claim, own, *others in made(np.random.default_rng(11), monkeypatch.setattr):
        assert rule(claim, own, *others) == []


def full(value, *shape):
    return torch.full((DRAWS, *shape), value, dtype=torch.float64)


def near(rng, middle, width=0.02, shape=(DRAWS,)):
    """Numbers near `middle`, relative spread `width`."""
    return torch.as_tensor(middle * (1 + width * rng.standard_normal(shape)))


# --- two steps ----------------------------------------------------------------------------------------------------------------


def two_steps(**found):
    """A study of LAW that has no more than what one judge reads."""
    return Study(law=LAW, delta=0.05, step_size=0.03, **found)


@case
def bounds_on_the_noise(rng, patch):
    study = two_steps()
    ratio = math.log(2 * LAW.n / study.delta) / LAW.d
    bound = 2 * math.sqrt(ratio) + 2 * ratio + 2 / LAW.d
    yield (
        tighter,
        BOUNDS["C1"],
        *(two_steps(norms_squared=full(LAW.d * (1 + use * bound), LAW.n)) for use in (0.7, 0.3)),
    )
    overlap = 1.1 * math.sqrt(2 * LAW.d * math.log(LAW.n**2 / study.delta))
    yield tighter, BOUNDS["C2"], *(two_steps(largest_overlap=full(use * overlap)) for use in (0.8, 0.4))
    scale, tolerance = study.step_size * LAW.d / (4 * LAW.n), noise_tolerance(study)
    scores = (full(scale * (1 + use * tolerance), LAW.n) for use in (0.8, 0.4))
    yield tighter, BOUNDS["C7"], *(two_steps(noise_score1=each) for each in scores)


@case
def cross_terms_of_another_variance(rng, patch):
    terms = (math.sqrt(v * (LAW.n - 1) * LAW.d) * rng.standard_normal((DRAWS, LAW.n)) for v in (1.0, 1.2))
    norms = full(LAW.d, LAW.n)
    yield worlds, BOUNDS["C3a"], *(two_steps(cross_terms=torch.as_tensor(x), norms_squared=norms) for x in terms)


@case
def counts_coefficients_and_a_smaller_norm(rng, patch):
    n, eta, unit = LAW.n, LAW.label_noise, 0.03 / (4 * LAW.n)
    clean, noisy = count_widths(n, eta, 0.05)

    def counts(use):
        return two_steps(
            clean_counts=full(n * (1 - eta) / 2 + use * clean, 2), noisy_counts=full(n * eta / 2 - use * noisy, 2)
        )

    yield tighter, BOUNDS["C4"], counts(0.6), counts(0.1)

    def coefficients(slope):
        given, factor = {"clean_counts": full(27.0, 2), "noisy_counts": full(3.0, 2)}, unit * (1 + 2 * slope)
        return two_steps(theta2=full(factor, n), v2_signal=full(LAW.signal_norm**2 * factor * (27.0 - 3.0), 2), **given)

    yield tighter, BOUNDS["C11"], coefficients(0.3), coefficients(0.05)
    eigenvalues = torch.tensor([[0.8, 10.0]]).expand(DRAWS, 2) * LAW.d
    # |Pi v|^2 in units of the smallest allowed one times 1/0.8
    norms = (full(math.sqrt(value * unit**2 * n * LAW.d)) for value in (60.0, 5.0))
    yield tighter, BOUNDS["C15b"], *(two_steps(v2_noise_norm=norm, eigenvalues=eigenvalues) for norm in norms)


@case
def one_step_that_fits_in_place_of_two(rng, patch):
    fits, misses, error = full(1.0, 5), full(-1.0, 5), full(-50.0, 2)
    yield worlds, TWO["T1"], Study(margins1=misses, margins2=fits, log10_error2=error)
    field, predicted = Study(margin2_clean=full(2.0, 2), margin2_noisy=full(2.0, 2)), full(2.0, 5)
    margins = (full(margin, 5) for margin in (1.7, 2.3))
    yield tighter, TWO["C16"], *(Study(mean_field=field, margins2=m, per_sample=lambda *_: predicted) for m in margins)
    place = torch.arange(20).expand(DRAWS, 20)
    fitted = (torch.where(place < missed, -1.0, 1.0) for missed in (1, 0))
    yield failing, SMALLER_STEP, *(Study(margins2=each) for each in fitted)


# --- assumptions under stress, beyond two steps ---------------------------------------------------------------------------------


@case
def a_stronger_signal_pull(rng, patch):
    pull = torch.as_tensor(3 + 0.2 * rng.standard_normal((DRAWS, 2)))

    def study(strength):
        preference = strength * pull - 1 + torch.as_tensor(0.05 * rng.standard_normal((DRAWS, 2)))
        law = Study(d=LAW.d, noise_avoids_signals=False)
        rows = [Study(value=value, law=law, preference=preference, signal_pull=pull) for value in (0.9, 0.5, 2.0, -0.5)]
        return Study(stress=Study(rows=dict.fromkeys(("class_probability", "norm_ratio", "cosine"), rows)))

    yield worlds, STRESS["A8"], study(1.0), study(1.1)


@case
def boundaries_at_the_other_place(rng, patch):
    sides, neither = np.array([[False] * 4, [True] * 4]), np.full((2, 4), True)
    yield worlds, TRAP["L3"], Study(fates={"x*": sides, "x1": neither})
    yield worlds, TRAP["L5"], Study(moves={"x1": np.where(sides, 1e-3, -1e-3), "x*": np.full((2, 4), 1e-3)})
    against, along = ((np.full(3, 1e-3), np.full(3, turned)) for turned in (False, True))
    yield worlds, TRAP["L18"], Study(between={"between": against, "mirrored": along})


@case
def classes_that_leave_the_trap(rng, patch):
    kept, left = ([Study(worst=worst)] * 60 for worst in (0.0, 0.4))
    yield worlds, TRAP["L19"], Study(in_trap=kept, free=left)
    bound = np.tile(np.linspace(0.1, 0.5, 9), (40, 1))
    rises = 1.002 * bound
    yield worlds, TRAP["L22"], *(Study(values=Study(found=f * rises, bound=bound)) for f in (1, -1, 1.05))
    for place in (4, 8):  # one flow of forty, one step: V is above its bound there
        late = rises.copy()
        late[3, place] = late[3, place - 1] = 1.3 * late[3, place]
        assert not TRAP["L22"].seen(Study(values=Study(found=late, bound=bound))).holds
    noise, signal = (Study(on_signal=np.full((10, 2), side)) for side in (False, True))
    yield worlds, TRAP["L9"], Study(plain=noise, warm=signal)
    small, large = (Study(train_accuracy=np.ones(5), log10_error=np.full(5, error)) for error in (-200.0, -1.0))
    yield worlds, TRAP["L10"], Study(strong_small=small, strong_large=large)


@case
def courses_the_other_way_round(rng, patch):
    fits, fails = np.ones(5), np.full(5, 0.9)

    def course(first, last, accuracy=fits, clean=0.99, flipped=0.009):
        errors = np.stack([np.full(5, first), np.full(5, last)]) * (1 + 1e-6 * np.arange(5))
        attention = {"attention_clean": np.full((1, 5), clean), "attention_noisy": np.full((1, 5), flipped)}
        attention["attention_noisy"] = attention["attention_noisy"] * (1 + 1e-6 * np.arange(5))
        rows = {"log10_error": errors, "train_accuracy": np.stack([fails, accuracy])}
        return Study(flipped=np.ones(5), at=lambda step: 0, **rows, **attention)

    harmful, benign, other = course(-3, -0.4), course(-3, -3), course(-1, -0.4, fits / 0.9)
    worse, formula = Study(low=other, frozen_low=benign, averaging_low=np.full(5, -3.0)), np.full(5, -3.0)
    exchanged = Study(low=benign, frozen_low=harmful, averaging_low=formula)
    yield worlds, TRAP["L11"], Study(low=harmful, frozen_low=benign, averaging_low=formula), exchanged, worse
    good, bad = course(-50, -50), course(-50, -1, fits, 0.5, 0.5)
    turned = Study(high=course(-50, -50, fits / 0.9, 0.009, 0.99), low=bad)
    yield worlds, TRAP["L12"], Study(high=good, low=bad), Study(high=bad, low=good), turned
    yield worlds, TRAP["L13"], Study(frozen_low=benign, low=harmful)
    yield worlds, TRAP["L14"], Study(attention_pays={1000: 2 + 1e-3 * np.arange(5), 2: 1 + 1e-3 * np.arange(5)})
    above, below = course(-1, -50), course(-1, math.log10(0.24))
    yield worlds, TRAP["L15"], Study(small_high=above, small_low=below, small_accuracy={20: fails, 50: fits})
    ratios = [np.linspace(0.1, end, 4)[:, None] + 1e-4 * np.arange(5) for end in (0.87, 0.96)]
    yield worlds, TRAP["L16"], Study(ratios=ratios)
    x, threshold = np.array([[0.9, 1.3], [1.2, 2.0]] * 5), np.full((10, 2), 1.5)
    same = Study(x=x, threshold=threshold, svm=x > 1, on_signal=x > threshold)
    yield worlds, TRAP["L8"], Study(same_draws=same)
    fates = {d: Study(x=x, threshold=threshold, on_signal=x > threshold) for d in (10**6, 40_000)}
    margin = {d: Study(x=x, threshold=threshold, on_signal=x > 1) for d in (10**6, 40_000)}
    yield worlds, TRAP["L6"], Study(fates=fates), Study(fates=margin)


# --- phase diagram ------------------------------------------------------------------------------------------------------------


@case
def borders_elsewhere(rng, patch):
    scale = np.exp(0.05 * rng.standard_normal(40))
    for id, name in (("S7", "smallest_step"), ("S8", "largest_step"), ("S9", "upper_limits")):
        places = [(factor * scale, scale, scale) for factor in (1.0, *PHASE[id].wrong)]
        yield worlds, PHASE[id], *(Study(n=200, d=40_000, **{name: [place]}) for place in places)

    def windows(factor):
        falls = [width / (1 + row) * scale for row in range(4) for width in (2.0, 8.0)]
        return Study(n=200, d=40_000, window_ends=[(factor * own, own, own) for own in falls])

    yield worlds, PHASE["S10"], *map(windows, (1.0, 0.8, 1.25))

    def steps(*cells):
        """At the large step and at a smaller one, without flips and with them: b(enign) or h(armful)."""
        fits, error = (
            np.ones(DRAWS, bool),
            {cell: np.full(DRAWS, value) for cell, value in (("h", -0.31), ("b", -200.0))},
        )
        found = (Study(without=(fits, error[a]), flipped=(fits, error[b]), predicted=error["b"]) for a, b in cells)
        return Study(at_step=dict(zip((50, 16), found, strict=True)))

    yield worlds, PHASE["S8b"], steps("bh", "bb")


@case
def cells_proved_and_predicted(rng, patch):
    def cells(decided, log10_error):
        codes = np.where(np.arange(100) < decided, BENIGN, -1).reshape(10, 10)
        shape = 10, 10, DRAWS
        drawn = Study(draws=DRAWS, interpolates=np.ones(shape, bool), log10_error=np.full(shape, log10_error))
        return Study(proved={"step": (codes, drawn)}, predicted_cells={"step": (np.full((10, 10), HARMFUL), drawn)})

    yield tighter, PHASE["S14"], cells(80, -5.0), cells(95, -5.0), cells(80, -0.5)
    one = cells(80, -5.0)
    one.proved["step"][1].log10_error[0, 0, :20] = -0.5  # a quarter of the draws of one cell
    assert not PHASE["S14"].seen(one).holds
    # One draw in twenty, another one in each cell: no cell alone refutes it, all together do. And a nan is another outcome.
    for other in (-0.5, np.nan):
        spread = cells(80, -5.0)
        error = spread.proved["step"][1].log10_error
        for place in range(100):
            error[place // 10, place % 10, (place + np.arange(DRAWS // 20) * 20) % DRAWS] = other
        assert not PHASE["S14"].seen(spread).holds


@case
def errors_between_their_ends(rng, patch):
    def intervals(exact, turned=-150.0):
        return Study(intervals=np.tile([exact, -103.0, -97.0, turned], (DRAWS, 2, 1)))

    yield worlds, PHASE["S15"], *map(intervals, (-100.0, -100 / 1.1, -100 / 0.9)), intervals(-150.0, -100.0)
    assert not PHASE["S15"].seen(Study(intervals=intervals(-100.0).intervals * [1, 1.1, 1, 1])).holds  # too wide


@case
def another_power_of_the_dimension(rng, patch):
    x = 2.0 ** np.array([-6, -4, -3, -2, -1, 0, 2, 4])
    field = np.repeat(-100 * x[:, None] ** 0.98, DRAWS, axis=1)
    d = np.tile(np.rint(x * 200**2), (3, 1))

    def dimension(power):
        own = -100 * x[:, None] ** power * np.exp(1e-3 * rng.standard_normal((8, DRAWS)))
        strip = Study(plan=Study(x=x, d=d), log10_error=np.stack([own] * 3))
        return Study(n=200, dimensions=strip, dimensions_predicted=field)

    yield worlds, PHASE["S12"], dimension(0.98), dimension(0.98 * 0.9)


# --- maximum margin -----------------------------------------------------------------------------------------------------------


@case
def costs_averages_and_margins(rng, patch):
    def costs(factor):
        bounds = torch.stack([full(0.97, 9), full(1.03, 9)], -1)
        return Study(costs=near(rng, factor, 0.005, (DRAWS, 9)), cost_formula=full(1.0, 9), cost_bounds=bounds)

    yield worlds, MARGIN["M3"], costs(1.0), costs(1.1)

    def mixed(factor):
        both = {f"mixing_{kind}": near(rng, factor, 0.02, (DRAWS, 7)) for kind in ("clean", "noisy")}
        return Study(law=LAW, flipped=full(3.0), **both, **{f"{name}_formula": full(1.0, 7) for name in both})

    yield worlds, MARGIN["M8"], mixed(1.0), mixed(1.15)

    def noise(pull, value, best):
        return Study(signal=near(rng, pull, 1e-3), signal_formula=full(1.0), value=full(value), xx_best=full(best))

    lost, won = noise(1.0, 0.0, 1.0), noise(1.0, 1.0, 0.0)
    more = Study(law=LAW, below=noise(1.1, 0.0, 1.0), above=won)
    yield worlds, HARD["M19"], Study(law=LAW, below=lost, above=won), more, Study(law=LAW, below=won, above=lost)
    heads = (Study(equal=full(0.5 * x, 4), split=full(y)) for x, y in ((1, 1.1), (1.01, 1.2), (1.5, 1.7)))
    yield worlds, HARD["M23"], *(Study(heads=each) for each in heads)
    bounds, m = torch.tensor([[0.96, 1.04]]).expand(DRAWS, 2), torch.arange(1, 4, dtype=torch.float64)
    averages = (factor * m.expand(DRAWS, 3) for factor in (1.0, 1.4))
    found = (Study(averaged=each, averaged_bounds=bounds, flipped=full(3.0)) for each in averages)
    yield worlds, HARD["M21"], *(Study(many=each) for each in found)
    size = torch.tensor([3.0, 5.0, 8.0], dtype=torch.float64)
    ratios = (torch.tanh(size / 2).expand(DRAWS, 3) + 1e-9, torch.tanh(size).expand(DRAWS, 3))
    yield tighter, MARGIN["M13"], *(Study(above=Study(ratio=ratio), sizes=size.tolist()) for ratio in ratios)


def both(**columns):
    """An optimum above the threshold and one below it, equal."""
    return Study(above=Study(**columns), low=Study(**columns))


@case
def turns_and_value_of_the_optimum(rng, patch):
    values = (both(value=full(x, 3), level=full(-1.7, 3), active=full(1.0, 3)) for x in (1.7, math.log(2)))
    yield worlds, MARGIN["M29"], *values
    around = {"gain_mean": full(1.15, 4), "gain_low": full(0.7, 4), "gain_high": full(1.6, 4)}
    yield worlds, MARGIN["M27"], *(Study(gain=near(rng, x, 0.02, (DRAWS, 4)), **around) for x in (1.15, 1.0, 2.3))

    def slack(use, turn):
        room = {"query_bound": full(0.3, 3), "query_room": full(0.3 * (1 - turn), 3)}
        return both(slack=full(use, 3), speaks=full(1.0, 3), **room)

    yield tighter, MARGIN["M24"], slack(0.9, 0.1), slack(0.5, 0.1), slack(1e-4, 1e-4)


@case
def labels_that_are_not_fitted_and_the_other_side_of_the_threshold(rng, patch):
    def optimum(error, at_most):
        found = {"margin": 5.0, "error": error, "log10_at_most": at_most, "best": 1.0}
        return Study(**{name: full(value, 3) for name, value in found.items()})

    for id in ("T2", "T4"):
        yield worlds, MARGIN[id], Study(above=optimum(-50.0, -45.0), low=optimum(math.log10(0.495), 0.0))


def errors(above, low):
    bounds = {"best": full(1.0), "log10_at_most": full(-20.0), "at_least": full(0.4)}
    return Study(above=Study(error=full(above), **bounds), low=Study(error=full(low).log10(), **bounds))


@case
def errors_of_the_optimum(rng, patch):
    yield tighter, MARGIN["M28"], errors(-30.0, 0.42), errors(-90.0, 0.49), errors(-20_000.0, 0.49999)


def test_a_draw_in_which_another_selection_is_best_has_no_bound():
    found = errors(-30.0, 0.42)
    found.above.error[0] = math.log10(0.25)
    assert not MARGIN["M28"].seen(found).holds
    found.above.log10_at_most[0] = math.nan
    assert not MARGIN["M28"].seen(found).holds  # a bound that is no number refuses
    found.above.best = found.above.best.clone()
    found.above.best[0] = 0
    assert MARGIN["M28"].seen(found).holds


# --- finite dimension ---------------------------------------------------------------------------------------------------------


@case
def deviations_within_their_bounds(rng, patch):
    uses = (Study(page=Study(delta=0.05), use={"norms": full(0.5 * use), "logits": full(use)}) for use in (0.8, 0.4))
    yield tighter, FINITE["F1"], *uses


@case
def noise_scores_of_another_size_and_weights_of_another_effect(rng, patch):
    scale, sample = 2 / LAW.d + (LAW.d - 2) * (LAW.n - 1) / LAW.d**2, Study(law=LAW)
    scores = (math.sqrt(f * scale) * torch.as_tensor(rng.standard_normal((DRAWS, LAW.n))) for f in (1.0, 1.2))
    yield worlds, FINITE["F3"], *(Study(page=Study(sample=sample, found=Study(score=score))) for score in scores)

    def effect(power):
        cross = near(rng, -2.0 * 0.21 * ((LAW.n - 1) / LAW.d) ** power, 0.02, (DRAWS, LAW.n))
        found = Study(slopes=full(0.3, LAW.n), cross_v=cross, frozen_v=full(0.0, LAW.n))
        return Study(page=Study(sample=sample, found=found, bounds=Study(field=Study(a=2.0))))

    yield worlds, FINITE["F4"], effect(1.0), effect(0.5)


@case
def certificates_and_the_published_theorem_at_the_smaller_step(rng, patch):
    room = torch.tensor([[0.2, 0.3], [0.1, 0.4]])
    sure, unsure = (Study(certified=torch.tensor([True, second]), flipped_room=room) for second in (True, False))
    yield worlds, FINITE["F5"], Study(possible=sure, possible_by_triangle=unsure)
    fine, poor = ([(torch.full((DRAWS,), fits), full(-4.0), full(-4.0))] * len(INSIDE) for fits in (True, False))
    yield worlds, FINITE["T1b"], Study(inside=fine, inside_at_small_step=poor)


@case
def exponents_of_the_error(rng, patch):
    def sides(slack):
        low, noise = full(-900.0 / math.log(10.0), 2), 1e-3 * torch.arange(DRAWS).double()[:, None]
        error = log10_floor_of_exponent(torch.tensor(900.0), 0.0).double() / slack + noise.expand(DRAWS, 2)
        bounds = Study(log10_bound_low=low, value=full(1.0, 2), value_room=full(0.1, 2))
        return Study(page=Study(bounds=bounds, log10_error=error, delta=0.05))

    yield tighter, BELOW["F11"], sides(2.5), sides(12.0), sides(0.9)
    page = Study(log10_error=full(-9.5, 2), scores=Study(value=full(1.0, 2)))
    yield worlds, BELOW["F9"], Study(page=page, floor=full(-10.0, 2), floor_without_correlation=full(-9.0, 2))


@case
def distances_from_one_half(rng, patch):
    near_bound = (Study(distance=full(0.01 * x, 2), furthest=full(0.01, 2)) for x in (0.95, 0.5))
    yield tighter, BELOW["F12"], *(Study(weak=weak) for weak in near_bound)
    spread_out = (1 + 0.01 * torch.arange(DRAWS).double()[:, None] / DRAWS).expand(DRAWS, 2)
    weak = (Study(proved=0.01 * spread_out, distance=full(0.01 / x, 2)) for x in (2.34, 7.8, 1.8))
    yield tighter, BELOW["F13"], *(Study(delta=0.05, weak=each) for each in weak)
    large = (Study(proved=1e-3 * spread_out, distance=full(1e-3**x, 2)) for x in (3.0, 9.0, 2.0))
    yield tighter, BELOW["F14"], *(Study(delta=0.05, large=each) for each in large)


@case
def weak_signals_from_both_sides(rng, patch):
    patch(below, "weak_signal_ends", lambda *_, strength: (full(-1.2 * strength, 2), full(-0.8 * strength, 2)))
    patch(below, "weak_signal_most", lambda *_, size, strength: full(-0.8 * strength, 2))

    def errors(strength):
        sample = Study(law=LAW, counts=lambda: (None, None))
        own = Study(sample=sample, step_size=0.1, found=Study(margins=full(1.0, 5)), log10_error=full(-strength, 2))
        return Study(both_sides=[own, own], below_one=[(0.01, own)], delta=0.05)

    yield worlds, BELOW["F17"], *(errors(strength) for strength in (1.0, 0.5, 2.0))
