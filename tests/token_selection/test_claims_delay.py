"""The claims about time: each judge refuses one world in which its claim is wrong."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from attnbook.token_selection.theory import (
    benign_clock,
    n_d_snr_fourth,
    selection_time,
    uniform_attention_accuracy,
)
from attnbook.token_selection.time_laws.claims import CLAIMS
from attnbook.token_selection.time_laws.clock import Setting
from attnbook.token_selection.time_laws.limits import SHARP, gap_differences
from attnbook.token_selection.time_laws.study import STRENGTHS, Axis, TimeStudy, clock_study, delay_study
from attnlib.token_selection.law import Start, TokenLaw
from bookkit.claims import Verdict
from tests.bad_input import refusing


@pytest.fixture(scope="module")
def study():
    law = TokenLaw(10, 1000, 5, 100.0)
    clock = clock_study(Setting(law, Start(), 3e-4), 20.0, runs=5, seed=0)
    return TimeStudy(**vars(clock), **vars(delay_study(replace(law, signal_norm=20.0), runs=5, seed=0)))


@pytest.mark.weekly
def test_the_study_is_what_it_says(study):
    np.testing.assert_allclose(study.delays.strength, STRENGTHS, rtol=1e-3)
    for one, q in (*((sharp, 160.0**2) for sharp in study.sharp), (study.blurred, 100.0)):
        np.testing.assert_allclose(one.strength, SHARP, rtol=1e-3)
        np.testing.assert_allclose([n_d_snr_fourth(law) for law in one.laws], q, rtol=1e-3)
    assert {(d.laws[0].tokens, d.laws[0].label_noise) for d in study.sharp} == {(5, 0.0), (5, 0.2), (5, 0.3), (4, 0.2)}
    fixed = study.clock["d at fixed variance"].found.settings
    assert len({s.start.weight_scale / s.law.d for s in fixed}) == 1
    assert len({s.start.weight_scale for s in study.clock["d"].found.settings}) == 1


NOISE = np.exp(0.02 * np.array([0.0, 1.0, -1.0, 0.5, -0.5]))


def misfit(study, name, value):
    """The study with one column of the sweep of d wrong at its second value."""
    axis = study.clock["d"]
    values = getattr(axis.found, name).copy()
    values[1] = value
    return replace(study, clock=study.clock | {"d": Axis(axis.values, replace(axis.found, **{name: values}))})


def sharp_with(study, log_time):
    """The study with the log times at fixed n d SNR^4 replaced: log_time(a law) -> number."""
    times = (np.exp([log_time(law) for law in one.laws])[:, None] * NOISE for one in study.sharp)
    return replace(study, sharp=tuple(replace(one, select=t) for one, t in zip(study.sharp, times, strict=True)))


def closed(law):
    return selection_time(law, 1.0)[0]


def apart(study, power):
    d = np.array([law.d for law in study.apart_laws])
    return replace(study, apart=torch.as_tensor(0.05 * (d / d[0]) ** power * NOISE[:, None]))


def flat_gaps(study):
    gaps = study.late.gaps
    return replace(study, late=replace(study.late, gaps=gaps.mean(1, keepdim=True).expand_as(gaps)))


def growing(study, error=1e-5, attention=0.2):
    seen = study.growing
    columns = {"error": np.full_like(seen.error, error), "attention": np.full_like(seen.attention, attention)}
    return replace(study, growing=replace(seen, **columns))


def in_time(study, before=0.5, after=0.001):
    """Labels fitted from a hundred benign clocks on, and an error that falls then."""
    seen = study.growing
    late = (seen.times >= 100 * benign_clock(seen.law, 1.0)) * np.ones_like(seen.error)
    error = before + (after - before) * late
    return replace(study, growing=replace(seen, noisy_fitted=late, clean_fitted=late, error=error))


def unharmed(study):
    error = np.full_like(study.harmed.error, 1 - uniform_attention_accuracy(study.harmed.law))
    return replace(study, harmed=replace(study.harmed, error=error))


WORLDS = [
    ("TS31", lambda study: replace(study, centre=replace(study.centre, law=replace(study.centre.law, signal_norm=10.0))), Verdict.OUTSIDE),
    *(("TS36", lambda study, wrong=wrong: misfit(study, *wrong), Verdict.FAILS) for wrong in (
        ("noisy_fitted", 1.0), ("clean_fitted", 0.9), ("error", 0.02), ("fresh_attention", 0.3))),
    ("TS38c", lambda study: sharp_with(study, lambda law: closed(law) + 0.4), Verdict.HOLDS),
    ("TS38c", lambda study: sharp_with(study, lambda law: 1.04 * closed(law)), Verdict.FAILS),
    ("TS38d", lambda study: sharp_with(study, closed), Verdict.HOLDS),
    ("TS38d", lambda study: sharp_with(study, lambda law: closed(law) + 0.4), Verdict.FAILS),
    ("TS38g", lambda study: replace(study, late=replace(study.late, weights=-study.late.weights)), Verdict.OUTSIDE),
    ("TS38h", lambda study: replace(study, never=replace(study.never, attention=study.never.attention + 0.3)), Verdict.FAILS),
    ("TS38i", lambda study: apart(study, -0.5), Verdict.HOLDS),
    ("TS38i", lambda study: apart(study, -0.75), Verdict.FAILS),
    ("TS38e", lambda study: replace(study, descent=1.06 * study.flow), Verdict.FAILS),
    ("TS39", growing, Verdict.HOLDS),
    ("TS39", lambda study: growing(study, error=0.01), Verdict.FAILS),
    ("TS39", lambda study: growing(study, attention=0.4), Verdict.FAILS),
    ("TS39b", unharmed, Verdict.FAILS),
    ("TS38j", in_time, Verdict.HOLDS),
    ("TS38j", lambda study: in_time(study, 0.02, 0.02), Verdict.FAILS),
]  # fmt: skip


@pytest.mark.weekly
@pytest.mark.parametrize(("id", "world", "verdict"), WORLDS)
def test_a_judge_tells_its_worlds_apart(study, id, world, verdict):
    assert CLAIMS[id].check(world(study)).verdict is verdict


@pytest.mark.weekly
@pytest.mark.parametrize(
    ("id", "world"),
    [
        ("TS38d", lambda study: sharp_with(study, lambda law: closed(law) - gap_differences(law))),
        ("TS38f", lambda study: replace(study, blurred=replace(study.blurred, select=study.sharp[0].select))),
        ("TS38g", flat_gaps),
        ("TS38i", lambda study: apart(study, -0.25)),
    ],
)
def test_a_control_holds_in_its_own_world_and_its_claim_does_not(study, id, world):
    check = CLAIMS[id].check(world(study))
    assert (check.evidence.holds, check.control.holds) == (False, True)


CENTRE = Setting(TokenLaw(10, 100, 5, 50.0), Start(), 1e-3)
test_bad_arguments = refusing(
    (clock_study, (CENTRE, 20.0), {"runs": 1}), (lambda: clock_study(CENTRE, -1.0), "fit_norm must be")
)
