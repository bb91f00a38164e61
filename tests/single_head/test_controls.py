"""Negative controls of Part I could have held: each judge, given data of its control's world, accepts the control."""

import math
from types import SimpleNamespace as Study

import numpy as np
import pytest
import torch

from attnbook.single_head.assumptions_under_stress.claims import CLAIMS as STRESS
from attnbook.single_head.beyond_two_steps.claims_trap import DIMENSIONS, TRAP_CLAIMS
from attnbook.single_head.finite_dimension import claims as finite
from attnbook.single_head.finite_dimension.near_half import log10_floor_of_exponent
from attnbook.single_head.finite_dimension.study import INSIDE, SHORTER, SMALL_STEP
from attnbook.single_head.label_counts import count_widths
from attnbook.single_head.max_margin.claims import CLAIMS as MARGIN
from attnbook.single_head.phase_diagram import claims as phase
from attnbook.single_head.two_steps.claims import CLAIMS as TWO_STEPS
from attnbook.single_head.two_steps.claims import noise_tolerance
from attnlib.single_head.law import SignalNoiseLaw
from attnlib.single_head.population import FreshScores
from tests.worlds import tighter, worlds

LAW = SignalNoiseLaw(60, 9000, 30.0, 0.1)
DRAWS = 80
FINITE, PHASE = finite.CLAIMS, phase.CLAIMS


def spread(rng, middle, width=0.02, shape=(DRAWS,)):
    """Numbers near `middle`, relative spread `width`."""
    return torch.as_tensor(middle * (1 + width * rng.standard_normal(shape)))


@pytest.fixture
def rng():
    return np.random.default_rng(11)


# --- two steps ----------------------------------------------------------------------------------------------------------------


def two_steps(**found):
    """A study of LAW that has no more than what one judge reads."""
    geometry = {
        k: found.pop(k) for k in ("norms_squared", "largest_overlap", "cross_terms", "eigenvalues") if k in found
    }
    return Study(law=LAW, delta=0.05, step_size=0.03, geometry=Study(**geometry), **found)


def test_bounds_on_the_noise(rng):
    study = two_steps()
    ratio = math.log(2 * LAW.n / study.delta) / LAW.d
    bound = 2 * math.sqrt(ratio) + 2 * ratio + 2 / LAW.d
    norms = [two_steps(norms_squared=LAW.d * (1 + use * bound * torch.ones(DRAWS, LAW.n))) for use in (0.7, 0.3)]
    assert tighter(TWO_STEPS["C1"], *norms) == []
    overlap = 1.1 * math.sqrt(2 * LAW.d * math.log(LAW.n**2 / study.delta)) / math.sqrt(LAW.d)
    largest = [two_steps(largest_overlap=torch.full((DRAWS,), use * overlap * math.sqrt(LAW.d))) for use in (0.8, 0.4)]
    assert tighter(TWO_STEPS["C2"], *largest) == []
    scale = study.step_size * LAW.d / (4 * LAW.n)
    scores = [
        two_steps(noise_score1=scale * (1 + use * noise_tolerance(study) * torch.ones(DRAWS, LAW.n)))
        for use in (0.8, 0.4)
    ]
    assert tighter(TWO_STEPS["C7"], *scores) == []


def test_cross_terms_of_another_variance(rng):
    def study(variance):
        noise = torch.as_tensor(rng.standard_normal((DRAWS, LAW.n)))
        return two_steps(
            cross_terms=noise * math.sqrt(variance * (LAW.n - 1) * LAW.d),
            norms_squared=torch.full((DRAWS, LAW.n), float(LAW.d)),
        )

    assert worlds(TWO_STEPS["C3a"], study(1.0), study(1.2)) == []


def test_the_crude_bound_fails_and_twenty_times_it_holds():
    claim = TWO_STEPS["C3b"]
    seen, less = (two_steps(largest_overlap=torch.full((DRAWS,), use * LAW.d)) for use in (5.0 / LAW.n, 0.5 / LAW.n))
    assert not claim.judge(seen, 1.0).holds
    assert claim.judge(seen, claim.wrong).holds
    assert claim.judge(less, 1.0).holds  # where d is as large as that bound asks for


def test_label_counts_nearer_to_their_means():
    n, eta = LAW.n, LAW.label_noise
    clean, noisy = count_widths(n, eta, 0.05)

    def study(use):
        one = torch.ones(DRAWS, 2)
        return two_steps(
            clean_counts=n * (1 - eta) / 2 + use * clean * one, noisy_counts=n * eta / 2 - use * noisy * one
        )

    assert tighter(TWO_STEPS["C4"], study(0.6), study(0.1)) == []


def test_coefficients_below_a_smaller_constant():
    unit = 0.03 / (4 * LAW.n)
    clean, noisy = torch.full((DRAWS, 2), 27.0), torch.full((DRAWS, 2), 3.0)

    def study(use):
        return two_steps(
            theta2=unit * 3 * use * torch.ones(DRAWS, LAW.n), v2_signal=LAW.signal_norm**2 * unit * use * (3 * clean - noisy),
            clean_counts=clean, noisy_counts=noisy,
        )  # fmt: skip

    assert tighter(TWO_STEPS["C11"], study(0.9), study(0.5)) == []


def test_a_smaller_norm_of_the_weights():
    unit = (0.03 / (4 * LAW.n)) ** 2 * LAW.n
    eigenvalues = torch.tensor([[0.8, 10.0]]).expand(DRAWS, 2) * LAW.d

    def study(value):  # |Pi v|^2 in units of the smallest allowed one times 1/0.8
        return two_steps(v2_noise_norm=torch.full((DRAWS,), math.sqrt(value * unit * LAW.d)), eigenvalues=eigenvalues)

    assert tighter(TWO_STEPS["C15b"], study(60.0), study(5.0)) == []


# --- assumptions under stress -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("id", ["A6", "A7", "A8"])
def test_a_stronger_signal_pull(id, rng):
    pull = torch.as_tensor(3 + 0.2 * rng.standard_normal((DRAWS, 2)))

    def study(strength):
        preference = strength * pull - 1 + torch.as_tensor(0.05 * rng.standard_normal((DRAWS, 2)))
        row = Study(law=Study(d=LAW.d, noise_avoids_signals=False), preference=preference, signal_pull=pull)
        return Study(stress=Study(row=lambda name, value: row))

    assert worlds(STRESS[id], study(1.0), study(1.1)) == []


# --- beyond two steps ---------------------------------------------------------------------------------------------------------


def test_boundaries_at_the_other_place():
    sides, neither = np.array([[False] * 4, [True] * 4]), np.array([[True] * 4, [True] * 4])
    assert (
        worlds(
            TRAP_CLAIMS["L3"],
            *(Study(fates=dict(zip(("x*", "x1"), two, strict=True))) for two in ((sides, neither), (neither, sides))),
        )
        == []
    )
    up, all_up = np.where(sides, 1e-3, -1e-3), np.full((2, 4), 1e-3)
    assert (
        worlds(
            TRAP_CLAIMS["L5"],
            *(Study(moves=dict(zip(("x1", "x*"), two, strict=True))) for two in ((up, all_up), (all_up, up))),
        )
        == []
    )
    against, along = (np.array([1e-3] * 3), np.array([False] * 3)), (np.array([1e-3] * 3), np.array([True] * 3))
    assert (
        worlds(
            TRAP_CLAIMS["L18"],
            *(
                Study(between=dict(zip(("between", "mirrored"), two, strict=True)))
                for two in ((against, along), (along, against))
            ),
        )
        == []
    )


def test_classes_that_leave_the_trap_and_that_stay():
    def record(worst, entry=5, on_signal=False):
        return Study(worst=worst, entry=entry, on_signal=on_signal)

    kept, left = [[record(0.0)] * 3] * 20, [[record(0.4)] * 3] * 20

    def study(trapped, free):
        return Study(trapped=dict.fromkeys(DIMENSIONS, trapped), free=free)

    assert worlds(TRAP_CLAIMS["L19"], study(kept, left), study(left, kept)) == []


def test_the_reach_of_the_theorem_at_other_dimensions():
    reached, missed = ([[Study(entry=entry, on_signal=False)] * 2] * 60 for entry in (7, 0))
    large, small = DIMENSIONS[-1], DIMENSIONS[0]
    assert (
        worlds(
            TRAP_CLAIMS["L20"],
            Study(trapped={large: reached, small: missed}),
            Study(trapped={large: missed, small: reached}),
        )
        == []
    )


# --- phase diagram ------------------------------------------------------------------------------------------------------------


def test_windows_at_other_steps_and_another_power(monkeypatch, rng):
    scale = np.exp(0.05 * rng.standard_normal(40))

    def at(factor):
        def borders(windows, row, which):
            own = (8.0 if which == "strong" else 2.0) / (1 + row) * scale
            return factor * own, own, own

        return borders

    claim, study = PHASE["S10"], Study(n=200, d=40_000, windows=None)
    for factor, holds in ((1.0, True), (0.8, False)):
        monkeypatch.setattr(phase, "borders", at(factor))
        assert claim.judge(study, 1.0).holds is holds
        assert claim.judge(study, claim.wrong).holds is not holds
    sizes = np.array([100.0, 200.0, 400.0])
    monkeypatch.setattr(phase, "field_log10_error", lambda dimensions, row: np.array([-sizes[row] * np.ones(DRAWS)]))

    def along(power):
        noise = np.exp(1e-3 * rng.standard_normal((3, 1, DRAWS)))
        errors = -(sizes[:, None, None] ** power) * noise
        return Study(n=200, dimensions=Study(plan=Study(x=np.array([1.0]), y=sizes), log10_error=errors))

    assert worlds(PHASE["S13"], along(1.0), along(0.0)) == []


# --- maximum margin -----------------------------------------------------------------------------------------------------------


def test_turns_value_and_threshold_of_the_optimum(rng):
    def turn(ratio):
        bound, found = torch.full((DRAWS, 3), 0.3), torch.full((DRAWS, 3), 0.3 / ratio)
        return {
            f"{x}_{key}": value for x in ("above", "low") for key, value in (("query_bound", bound), ("query", found))
        }

    assert tighter(MARGIN["M25"], turn(80.0), turn(4000.0)) == []
    levels = torch.full((DRAWS, 3), -1.7)

    def second(value):
        return {
            f"{x}_{key}": v
            for x in ("above", "low")
            for key, v in (("value", value * torch.ones(DRAWS, 3)), ("level", levels))
        }

    assert worlds(MARGIN["M29"], second(1.7), second(math.log(2))) == []
    mean = torch.full((DRAWS, 4), 1.15)

    def gain(middle):
        found = spread(rng, middle, 0.02, (DRAWS, 4))
        return {
            "gain": found,
            "gain_mean": mean,
            "gain_low": 0.7 * torch.ones(DRAWS, 4),
            "gain_high": 1.6 * torch.ones(DRAWS, 4),
        }

    assert worlds(MARGIN["M27"], gain(1.15), gain(1.0)) == []
    bounds = {
        "above_error_bound": torch.full((DRAWS,), -20.0),
        "low_error_bound": torch.full((DRAWS,), 0.4, dtype=torch.float64),
    }

    def error(above, low):
        return bounds | {
            "above_error": torch.full((DRAWS,), above),
            "low_error": torch.full((DRAWS,), low).double().log10(),
        }

    assert tighter(MARGIN["M28"], error(-30.0, 0.42), error(-90.0, 0.49)) == []
    # A draw in which another selection is best has no bound, and an error near one quarter says nothing against it.
    found = error(-30.0, 0.42)
    found["above_error"][0], found["above_error_bound"] = math.log10(0.25), found["above_error_bound"].clone()
    assert not MARGIN["M28"].judge(found, 1.0).holds
    found["above_error_bound"][0] = math.nan
    assert MARGIN["M28"].judge(found, 1.0).holds


# --- finite dimension ---------------------------------------------------------------------------------------------------------


def test_deviations_within_half_their_bounds(monkeypatch):
    def study(use):
        return Study(page=Study(delta=0.05, use=torch.full((DRAWS,), use)))

    monkeypatch.setattr(finite, "use_of_bounds", lambda own: {"norms": 0.5 * own.use, "logits": own.use})
    assert tighter(FINITE["F1"], study(0.8), study(0.4)) == []


def test_the_older_bound_on_cross_terms(monkeypatch):
    ones = torch.ones(DRAWS)
    own = Study(
        bounds=Study(cross_v=2.5 * ones, cross_p=3.0 * ones), found=Study(cross_v=torch.ones(DRAWS, 5), cross_p=torch.ones(DRAWS, 5)),
        sample=Study(law=LAW),
    )  # fmt: skip
    study, claim = Study(page=own, wide=own), FINITE["F2"]
    monkeypatch.setattr(finite, "weighted_cross_bound", lambda own: (9.0 * ones, 9.0 * ones))
    assert claim.judge(study, 1.0).holds
    assert not claim.judge(study, claim.wrong).holds
    monkeypatch.setattr(finite, "weighted_cross_bound", lambda own: (3.0 * ones, 3.0 * ones))
    assert claim.judge(study, claim.wrong).holds


def test_noise_scores_of_another_size_and_weights_of_another_effect(rng):
    scale = 2 / LAW.d + (LAW.d - 2) * (LAW.n - 1) / LAW.d**2

    def study(factor):
        score = math.sqrt(factor * scale) * torch.as_tensor(rng.standard_normal((DRAWS, LAW.n)))
        return Study(page=Study(sample=Study(law=LAW), found=Study(score=score)))

    assert worlds(FINITE["F3"], study(1.0), study(1.5)) == []
    slopes = torch.full((DRAWS, LAW.n), 0.3)

    def effect(power):
        mean = -2.0 * 0.21 * ((LAW.n - 1) / LAW.d) ** power
        cross = mean * (1 + 0.02 * torch.as_tensor(rng.standard_normal((DRAWS, LAW.n))))
        found = Study(slopes=slopes, cross_v=cross, frozen_v=torch.zeros(DRAWS, LAW.n))
        return Study(page=Study(sample=Study(law=LAW), found=found, bounds=Study(field=Study(a=2.0))))

    assert worlds(FINITE["F4"], effect(1.0), effect(0.5)) == []


def test_certificates_and_the_dimensions_they_ask_for():
    sure = Study(certified=torch.tensor([True, True]), flipped_room=torch.tensor([[0.2, 0.3], [0.1, 0.4]]))
    unsure = Study(certified=torch.tensor([True, False]), flipped_room=torch.tensor([[0.2, 0.3], [0.1, 0.4]]))
    assert worlds(FINITE["F5"], Study(possible=(sure, unsure)), Study(possible=(unsure, sure))) == []
    sizes = (50, 200, 800)
    linear = [5.5 * n * math.log(14 * n / 0.05) for n in sizes]
    square = [0.1 * n * n for n in sizes]
    assert (
        worlds(
            FINITE["F6"],
            *(
                Study(sizes=sizes, page=Study(delta=0.05), certified=two)
                for two in ((linear, square), (square, linear))
            ),
        )
        == []
    )
    fits, misses = torch.ones(DRAWS, dtype=torch.bool), torch.arange(DRAWS) % 2 == 0
    assert (
        worlds(
            FINITE["F7"],
            *(Study(shorter=dict(zip(SHORTER, two, strict=True))) for two in ((fits, misses), (misses, fits))),
        )
        == []
    )


def test_exponents_of_the_error(rng, monkeypatch):
    def study(proved):
        found = torch.stack([spread(rng, -300.0)] * 2, 1)
        return Study(page=Study(log10_error=found, bounds=Study(log10_error=found * proved)))

    assert worlds(FINITE["F8"], study(0.25), study(0.05)) == []
    scores = Study(value=torch.ones(DRAWS, 2))

    def floor(ratio):
        monkeypatch.setattr(finite, "log10_error_floor", lambda scores: ratio * torch.full((DRAWS, 2), -300.0))
        return Study(page=Study(scores=scores, log10_error=torch.full((DRAWS, 2), -300.0)))

    claim = FINITE["F10"]
    assert claim.judge(floor(1.1), 1.0).holds
    assert not claim.judge(floor(1.1), claim.wrong).holds
    assert claim.judge(floor(0.9), claim.wrong).holds
    assert not claim.judge(floor(0.9), 1.0).holds


def test_a_floor_without_the_correlation_holds_for_independent_scores():
    """Where the correlation is zero, leaving it out changes nothing; elsewhere an error between the two floors tells them apart."""
    claim = FINITE["F9"]

    def study(along, error):
        one = torch.ones(20, 2, dtype=torch.float64)
        scores = FreshScores(6 * one, one, 2 * one, along * one, 0.2 * one)
        return Study(page=Study(scores=scores, log10_error=error * one))

    low, high = (finite._floor(study(0.3, 0.0).page.scores, kind).max().item() for kind in (True, False))
    assert low < high
    between = study(0.3, (low + high) / 2)
    assert claim.judge(between, 1.0).holds
    assert not claim.judge(between, claim.wrong).holds
    floor = finite._floor(study(0.0, 0.0).page.scores, False).max().item()
    assert claim.judge(study(0.0, floor + 1), claim.wrong).holds


def test_both_sides_of_the_error_before_the_noise():
    def study(exponent, slack):
        low = torch.full((DRAWS, 2), -exponent / math.log(10.0), dtype=torch.float64)
        noise = 1e-3 * torch.arange(DRAWS).double().reshape(-1, 1)
        error = log10_floor_of_exponent(torch.tensor(exponent), 0.0).double() / slack + noise * torch.ones(DRAWS, 2)
        return Study(page=Study(bounds=Study(log10_bound_low=low), log10_error=error, delta=0.05))

    assert worlds(FINITE["F11"], study(900.0, 3.0), study(900.0, 20.0)) == []


def test_distances_from_one_half(monkeypatch):
    monkeypatch.setattr(finite, "furthest_from_half", lambda scores: 0.01 * torch.ones(DRAWS, 2))
    assert (
        tighter(
            FINITE["F12"],
            *(Study(weak=Study(scores=None, distance=use * torch.full((DRAWS, 2), 0.01))) for use in (0.95, 0.5)),
        )
        == []
    )
    spread_out = (1 + 0.01 * torch.arange(DRAWS).double().reshape(-1, 1) / DRAWS) * torch.ones(DRAWS, 2)
    monkeypatch.setattr(finite, "weak_signal_distance", lambda law, bounds, log_term: 0.01 * spread_out)

    def weak(ratio):
        own = Study(
            sample=Study(law=LAW), bounds=None, log_term=1.0, delta=0.05, distance=torch.full((DRAWS, 2), 0.01 / ratio)
        )
        return Study(weak=own)

    assert worlds(FINITE["F13"], weak(2.0), weak(20.0)) == []
    monkeypatch.setattr(finite, "large_step_distance", lambda law, bounds, log_term: 1e-3 * spread_out)

    def large(power):
        own = Study(
            sample=Study(law=LAW),
            bounds=None,
            log_term=1.0,
            delta=0.05,
            distance=1e-3 ** torch.full((DRAWS, 2), power).double(),
        )
        return Study(large=own)

    assert worlds(FINITE["F14"], large(3.0), large(9.0)) == []


def test_constants_of_the_closed_form_and_margins(monkeypatch, rng):
    monkeypatch.setattr(finite, "closed_form_constant", lambda a, kappa: 1.0)
    log_term = 10.0
    bound = math.sqrt(LAW.n * log_term / LAW.d)

    def far(ratio):
        margins = (bound / ratio) * (1 + 0.01 * torch.as_tensor(rng.standard_normal((DRAWS, LAW.n))))
        field = Study(a=1.0, margin2_clean=torch.zeros(DRAWS, 2), margin2_noisy=torch.zeros(DRAWS, 2))
        own = Study(
            sample=Study(law=LAW), bounds=Study(field=field), log_term=log_term, delta=0.05, found=Study(margins=margins),
            per_sample=lambda values: torch.zeros(DRAWS, LAW.n),
        )  # fmt: skip
        return Study(far=own)

    assert worlds(FINITE["F15"], far(300.0), far(30_000.0)) == []
    monkeypatch.setattr(finite, "_margins_from_below", lambda study: (torch.tensor([study.ratio, 9.0]), None))
    assert worlds(FINITE["F16"], Study(ratio=1.4), Study(ratio=6.0)) == []


def test_the_published_theorem_at_the_smaller_step():
    fine = [(torch.ones(DRAWS, dtype=torch.bool), torch.full((DRAWS,), -4.0))] * len(INSIDE)
    poor = [(torch.zeros(DRAWS, dtype=torch.bool), torch.full((DRAWS,), -4.0))] * len(INSIDE)
    assert (
        worlds(FINITE["T1b"], Study(inside={1.0: fine, SMALL_STEP: poor}), Study(inside={1.0: poor, SMALL_STEP: fine}))
        == []
    )
