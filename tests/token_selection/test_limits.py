"""When the delay is finite and what its exponent is, against sampling and against the closed form on its way to the limit."""

import math
from dataclasses import replace

import numpy as np
import pytest

from attnbook.token_selection import theory
from attnbook.token_selection.time_laws.limits import (
    critical_discrimination,
    discrimination_at,
    exponent_at,
    gap_differences,
    last_strength,
    laws_at,
)
from attnlib.token_selection.law import TokenLaw

LAW = TokenLaw(n=20, d=2000, tokens=8, signal_norm=20.0)


def test_laws_at_hold_both_numbers():
    for law, strength in zip(laws_at(replace(LAW, noise_std=2.0), (0.5, 3.0), 100.0), (0.5, 3.0), strict=True):
        assert 1 / theory.n_snr_squared(law) == pytest.approx(strength, rel=1e-3)
        assert theory.n_d_snr_fourth(law) == pytest.approx(100.0, rel=1e-3)


def test_at_the_critical_discrimination_half_of_sampled_choices_are_right():
    D, share = critical_discrimination(LAW), LAW.signal_share().sum(-1).numpy()
    chosen = (D * share + np.random.default_rng(3).standard_normal((200_000, 8))).argmax(-1)
    assert (chosen == 0).mean() == pytest.approx(0.5, abs=4.5 * 0.5 / math.sqrt(200_000))


def test_discrimination_is_the_limit_of_the_late_one():
    law = laws_at(LAW, (2000.0,), 300.0)[0]
    assert discrimination_at(law, 300.0) == pytest.approx(theory.late_discrimination(law), rel=2e-3)


@pytest.mark.parametrize("q", [60.0, 1000.0])
def test_exponent_is_the_slope_of_the_closed_form_far_out(q):
    first, last = (theory.selection_time(law, 1.0)[0] for law in laws_at(LAW, (60.0, 90.0), q))
    assert exponent_at(LAW, q) == pytest.approx((last - first) / 30, rel=1e-2)
    assert exponent_at(LAW, 1e9) == pytest.approx(theory.delay_exponent(LAW), rel=1e-4)


def test_no_exponent_below_the_critical_strength():
    q = (critical_discrimination(LAW) / discrimination_at(LAW, 1.0)) ** 2
    assert exponent_at(LAW, 0.95 * q) == math.inf
    assert q == pytest.approx(14.94, abs=0.01)


def test_the_last_strength_is_where_the_closed_form_loses_its_solution():
    last = last_strength(replace(LAW, signal_norm=10.0))
    d = [round(20 * 100 * last * factor) for factor in (0.5, 1.02)]
    finite, never = (theory.selection_time(replace(LAW, signal_norm=10.0, d=one), 1.0)[0] for one in d)
    assert finite < math.inf == never
    assert math.isnan(last_strength(replace(LAW, signal_norm=2.0)))


@pytest.mark.parametrize(
    "changes", [{}, {"label_noise": 0.0}, {"tokens": 5, "same_class_tokens": 2, "weak_signal": 0.3}]
)
def test_gap_differences_are_what_unequal_gaps_add(changes):
    law = replace(LAW, d=16_000, **changes)
    first, per_gap, _ = theory._late_shares(law)
    assert gap_differences(law) == pytest.approx(
        -theory._late_scores(law, 0.0, theory._late_leads(law))[0] / per_gap, rel=1e-9
    )
    assert first > 1
