"""TS61 to TS69: invented studies break one claim each."""

from dataclasses import replace

import pytest
import torch

from attnbook.token_selection.real_data.claims import CLAIMS
from attnbook.token_selection.real_data.digits import digits_study
from bookkit.claims import Verdict


@pytest.fixture(scope="module")
def study():
    return digits_study(live=0)  # the stored runs of the page


def test_ids_are_those_of_page_six():
    assert list(CLAIMS) == [f"TS{number}" for number in (61, 62, 64, 66, 68, 69)]
    assert CLAIMS.part == "token_selection"


def test_no_evidence_prints_a_number_that_another_processor_would_change(study):
    # The measured column holds words only; the rule and the prediction hold the bounds.
    for result in CLAIMS.check(study):
        assert not any(sign.isdigit() for sign in result.evidence.measured), result.claim.id
        assert result.evidence.numbers == {}


def with_runs(study, **change):
    """The study with fields of every full run replaced by what `change[name](run)` gives."""
    runs = {
        n: [replace(run, **{name: make(run) for name, make in change.items()}) for run in some]
        for n, some in study.runs.items()
    }
    return replace(study, runs=runs)


def flat(value):
    return lambda run: torch.full_like(run.test_accuracy, value)


def path(*last):
    """Every row of the path equal: a line from 0.9 to the value of its noise level."""

    def make(run):
        steps = torch.linspace(0, 1, run.test_accuracy.shape[1], dtype=torch.float64)
        return torch.stack([0.9 + (end - 0.9) * steps for end in last])

    return make


def with_held(study, **change):
    """The study with fields of every run of few heads replaced."""
    return replace(study, held={k: [replace(run, **change) for run in runs] for k, runs in study.held.items()})


MEMORISED = {"fit_noisy": torch.ones(2, 1)}
CONTROLS = {
    "TS61": lambda study: with_held(with_runs(study, fit_noisy=flat(0.7)), **MEMORISED),
    "TS62": lambda study: with_runs(study, test_accuracy=path(0.9, 0.882, 0.864, 0.828)),
    "TS64": lambda study: with_runs(study, test_accuracy=path(0.95, 0.96, 0.96, 0.96), fit_noisy=flat(1.0)),
    "TS68": lambda study: with_held(
        with_runs(study, fit_noisy=flat(0.1), test_accuracy=path(0.9, 0.9, 0.89, 0.88)), **MEMORISED
    ),
    "TS69": lambda study: with_runs(study, linear_head=lambda run: run.linear_head[:1].expand(4)),
}  # fmt: skip


@pytest.mark.parametrize("id", CONTROLS)
def test_where_the_control_is_true_it_holds_and_the_claim_fails(study, id):
    check = CLAIMS[id].check(CONTROLS[id](study))
    assert (check.evidence.holds, check.control.holds) == (False, True)


def test_a_seed_out_of_reach_is_silent_and_a_fit_that_is_no_number_refuses(study):
    few = replace(study, runs={n: [replace(runs[0], reach=0.5), *runs[1:]] for n, runs in study.runs.items()})
    assert (CLAIMS["TS61"].seen(few).draws, CLAIMS["TS61"].seen(few).holds) == (4, True)
    lost = with_runs(study, fit_noisy=lambda run: run.fit_noisy.where(torch.tensor(run.seed != 2), torch.nan))
    assert not CLAIMS["TS61"].seen(lost).holds
    out = with_runs(lost, reach=lambda run: 0.5 if run.seed == 2 else run.reach)
    assert CLAIMS["TS61"].seen(out).holds


def test_small_reach_fails_when_two_heads_memorise_or_harm(study):
    def held(**change):
        return CLAIMS["TS68"].seen(with_held(study, **change))

    assert held().holds
    run = study.held[2][0]
    assert not held(fit_noisy=torch.full_like(run.fit_noisy, 0.6)).holds
    accuracy = run.test_accuracy.clone()
    accuracy[0], accuracy[1] = 0.9, 0.8
    assert not held(test_accuracy=accuracy).holds


def test_outside_the_regime_is_said_in_words(study):
    low = with_runs(study, reach=lambda run: 0.5)
    assert CLAIMS["TS62"].check(low).verdict == Verdict.OUTSIDE
    assert CLAIMS["TS62"].check(low).violated == "needs reach >= 0.9 in 4 seeds or more; here fewer have it"
    few = replace(
        study,
        seeds=study.seeds[:2],
        runs={n: runs[:2] for n, runs in study.runs.items()},
        held={k: runs[:2] for k, runs in study.held.items()},
    )
    assert CLAIMS["TS64"].check(few).violated == "needs 4 seeds or more; here 2"
    unheld = replace(study, held={})
    assert CLAIMS["TS68"].check(unheld).verdict == Verdict.OUTSIDE
    short = replace(study, steps=90)
    assert CLAIMS["TS64"].check(short).violated == "needs steps x step size >= 0.5; here 0.45"
    small = replace(study, sizes=(20,))
    assert "needs an n >= 100; here (20,)" in CLAIMS["TS61"].check(small).violated
