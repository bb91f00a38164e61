"""The claims of II.9: invented studies break one claim each, and in a control's own world the control holds."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from attnbook import draws
from attnbook.draws import Estimate
from attnbook.token_selection.real_data.claims import CLAIMS
from attnbook.token_selection.real_data.digits import digits_study
from attnbook.token_selection.real_data.study import (
    FEWER,
    MIXED,
    OURS,
    WHOLE,
    Causes,
    causes,
    published_fraction,
    sets_study,
    strong,
    trial_study,
)
from attnbook.token_selection.real_data.trial import two_way
from bookkit.claims import Verdict


def changed(study, **fields):
    """The namespace of a study with some fields replaced."""
    return type(study)(**vars(study) | fields)


# --- Digits ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def digits():
    return digits_study(live=0)  # the stored runs of the page


def test_no_evidence_prints_a_number_that_another_processor_would_change(digits):
    # The measured column holds words only; the rule and the prediction hold the bounds.
    for result in CLAIMS.check(digits, "TS61 TS62 TS64 TS66 TS68 TS69"):
        assert not any(sign.isdigit() for sign in result.evidence.measured), result.claim.id
        assert result.evidence.numbers == {}


def with_runs(study, **change):
    """The study with fields of every full run replaced by what `change[name](run)` gives."""
    runs = {
        n: [changed(run, **{name: make(run) for name, make in change.items()}) for run in some]
        for n, some in study.runs.items()
    }
    return changed(study, runs=runs)


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
    return changed(study, held={k: [changed(run, **change) for run in runs] for k, runs in study.held.items()})


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
def test_where_the_control_is_true_it_holds_and_the_claim_fails(digits, id):
    check = CLAIMS[id].check(CONTROLS[id](digits))
    assert (check.evidence.holds, check.control.holds) == (False, True)


def test_a_seed_out_of_reach_is_silent_and_a_fit_that_is_no_number_refuses(digits):
    few = changed(digits, runs={n: [changed(runs[0], reach=0.5), *runs[1:]] for n, runs in digits.runs.items()})
    assert (CLAIMS["TS61"].seen(few).draws, CLAIMS["TS61"].seen(few).holds) == (4, True)
    lost = with_runs(digits, fit_noisy=lambda run: run.fit_noisy.where(torch.tensor(run.seed != 2), torch.nan))
    assert not CLAIMS["TS61"].seen(lost).holds
    out = with_runs(lost, reach=lambda run: 0.5 if run.seed == 2 else run.reach)
    assert CLAIMS["TS61"].seen(out).holds


def test_small_reach_fails_when_two_heads_memorise_or_harm(digits):
    def held(**change):
        return CLAIMS["TS68"].seen(with_held(digits, **change))

    assert held().holds
    run = digits.held[2][0]
    assert not held(fit_noisy=torch.full_like(run.fit_noisy, 0.6)).holds
    accuracy = run.test_accuracy.clone()
    accuracy[0], accuracy[1] = 0.9, 0.8
    assert not held(test_accuracy=accuracy).holds


def test_outside_the_regime_is_said_in_words(digits):
    low = with_runs(digits, reach=lambda run: 0.5)
    assert CLAIMS["TS62"].check(low).verdict == Verdict.OUTSIDE
    assert CLAIMS["TS62"].check(low).violated == "needs reach >= 0.9 in 4 seeds or more; here fewer have it"
    few = changed(
        digits,
        seeds=digits.seeds[:2],
        runs={n: runs[:2] for n, runs in digits.runs.items()},
        held={k: runs[:2] for k, runs in digits.held.items()},
    )
    assert CLAIMS["TS64"].check(few).violated == "needs 4 seeds or more; here 2"
    unheld = changed(digits, free=(16,))
    assert CLAIMS["TS68"].check(unheld).verdict == Verdict.OUTSIDE
    short = changed(digits, steps=90)
    assert CLAIMS["TS64"].check(short).violated == "needs steps x step size >= 0.5; here 0.45"
    small = changed(digits, sizes=(20,))
    assert "needs an n >= 100; here (20,)" in CLAIMS["TS61"].check(small).violated


# --- Small networks -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sets():
    return sets_study()


def with_accuracy(study, key, final):
    """The study with the last accuracies of one network replaced by `final`, by noise level; seeds differ by 0.001."""
    network = study.networks[key]
    cells = []
    for cell in network.table.cells:
        accuracy = np.repeat(np.array(final)[:, None], len(cell.recorded), 1) + 0.001 * cell.seed
        cells.append(replace(cell, values={**cell.values, "test_accuracy": accuracy}))
    made = replace(network, table=replace(network.table, cells=tuple(cells)))
    return replace(study, networks={**study.networks, key: made})


def test_one_benign_backbone_of_one_of_the_six_sets_is_enough_and_an_undecided_one_is_not_judged(sets):
    benign = 0.85, 0.85, 0.85, 0.84
    for data, backbone, verdict in (
        ("ag_news", "MiniLM", Verdict.HOLDS),
        ("pneumonia_mnist", "small ViT", Verdict.HOLDS),
        ("digits", "small ViT", Verdict.FAILS),  # none of the six
    ):
        assert CLAIMS["TS71"].check(with_accuracy(sets, (data, backbone), benign)).verdict == verdict
    undecided = with_accuracy(sets, ("ag_news", "MiniLM"), benign)
    for cell in undecided.networks["ag_news", "MiniLM"].table.cells:
        cell.values["test_accuracy"][3] -= 0.4 * (cell.seed % 2)
    assert CLAIMS["TS71"].check(undecided).verdict == Verdict.OUTSIDE


def test_the_other_claims_fall_with_their_numbers(sets):
    cheap = with_accuracy(sets, ("digits", "small ViT"), (0.95, 0.94, 0.94, 0.93))
    assert not CLAIMS["TS77"].seen(cheap).holds
    flat = sets
    for data in sets.pictures:
        flat = with_accuracy(flat, (data, "random features"), (0.9, 0.9, 0.9, 0.9))
    assert not CLAIMS["TS78"].seen(flat).holds


@pytest.mark.parametrize(
    ("factor", "holds"), [(1.0, [True, False, False]), (2.0, [False, True, False]), (0.5, [False, False, True])]
)
def test_published_losses_are_told_from_half_and_from_twice_as_much(sets, monkeypatch, factor, holds):
    def published(data, n):
        one = published_fraction(data, n)
        return one and Estimate(*(factor * number for number in (one.value, one.low, one.high)))

    monkeypatch.setattr("attnbook.token_selection.real_data.claims.published_fraction", published)
    check = CLAIMS["TS82"].check(sets)
    assert [check.evidence.holds, *(control.holds for control in check.controls)] == holds


# --- One network, varied --------------------------------------------------------------------------------------------------


ETAS = np.array([0.0, 0.1, 0.2, 0.4])


def network(hits, tested=None):
    """What `causes` finds: a network of one set, by its hits (R, 4, M) and the numbers of its test pictures (R, M)."""
    tested = np.tile(np.arange(hits.shape[2]), (len(hits), 1)) if tested is None else tested
    cells = [SimpleNamespace(n=200, hits=own, tested=rows) for own, rows in zip(hits, tested, strict=True)]
    table = {"name": "mnist_lite0_confidence_1", "cells": cells, "noise_levels": tuple(ETAS)}
    return SimpleNamespace(table=SimpleNamespace(**table, values=lambda what, n: np.ones((len(hits), 4, 1))))


def world(**lost):
    """A study whose F by seed is `lost` of "set__tokens__confidence": nobody errs without noise, the first pictures are lost with it."""
    found = {}
    for name, values in lost.items():
        data, tokens, confidence = name.split("__")
        wrong = np.array(values)[:, None, None] * ETAS[:, None] * 1000
        key = data, {"whole": WHOLE, "mixed": MIXED, "fewer": FEWER}[tokens], float(confidence)
        found[key] = network(np.arange(1000) >= wrong.round())
    return Causes(found)


def test_a_change_is_that_of_the_sets_that_have_both_but_for_the_one_on_which_it_was_found():
    base, more, other = [0.1, 0.2, 0.9, 0.3, 0.0], [0.4, 0.6, 0.9, 0.3, 0.5], [0.2, 0.0, 0.9, 0.3, 0.1]
    study = world(
        mnist__whole__1=base, mnist__whole__10=more, trec__whole__1=other, trec__whole__10=base,
        cifar10__whole__1=[0.0] * 5, cifar10__whole__10=[0.9] * 5, digits__whole__1=base,
    )  # fmt: skip
    means = np.mean(more) - np.mean(base), np.mean(base) - np.mean(other)
    assert study.change((WHOLE, 1.0), (WHOLE, 10.0)).value == pytest.approx(np.mean(means))
    assert study.change((WHOLE, 1.0), (WHOLE, 10.0), ("trec",)).value == pytest.approx(means[1])
    with pytest.raises(KeyError):
        study.change((WHOLE, 1.0), (FEWER, 1.0), ("mnist",))


def test_the_interval_of_a_change_counts_the_pictures_of_each_set():
    """Each picture of each set is left out by hand."""
    rng, sizes = np.random.default_rng(3), {"mnist": 31, "trec": 47}
    hits = {
        (data, c): rng.random((5, 4, M)) < 0.9 - 0.1 * c * ETAS[:, None] for data, M in sizes.items() for c in (1, 10)
    }
    rows = {data: np.stack([rng.permutation(60)[:M] for _ in range(5)]) for data, M in sizes.items()}
    study = Causes({(data, WHOLE, float(c)): network(h, rows[data]) for (data, c), h in hits.items()})

    def by_seed(left_out=("", -1)):
        changes = []
        for data in sizes:
            for r in range(5):
                keep = rows[data][r] != left_out[1] if data == left_out[0] else np.full(sizes[data], True)
                a = {c: hits[data, c][r][:, keep].mean(1) for c in (1, 10)}
                F = {c: (3 * a[c][0] - a[c][1:].sum()) / (0.7 * (10 * a[c][0] - 1) / 9) for c in a}
                changes.append(F[10] - F[1])
        return np.reshape(changes, (2, 5)).mean(0)

    without = np.stack([by_seed((data, k)) for data in sizes for k in range(60)], 1)
    expected, found = two_way(by_seed(), without), study.change((WHOLE, 1.0), (WHOLE, 10.0))
    assert (found.value, found.low, found.high) == pytest.approx((expected.value, expected.low, expected.high))
    assert found.high - found.value > 1.02 * draws.mean(by_seed()).high - 1.02 * found.value


def test_noise_is_told_from_its_control_and_from_no_change():
    def judged(change):
        spread, names = np.linspace(-0.05, 0.05, 5), ("mnist", "pneumonia_mnist", "breast_mnist")
        raised = {f"{data}__mixed__1": 0.5 + change + spread for data in names}
        own = {f"{data}__whole__1": np.full(5, 0.5) for data in (*names, "cifar10")}
        return CLAIMS["TS84"].check(world(**own, **raised, cifar10__mixed__1=0.5 - change + spread))

    assert judged(0.3).evidence.holds
    assert judged(0.3).has_power
    assert not judged(0.12).evidence.holds  # the interval begins below 0.1
    assert not judged(-0.3).evidence.holds


@pytest.mark.parametrize("id", ["TS83", "TS85"])
@pytest.mark.parametrize("end", ["value", "low", "high"])
def test_a_number_that_is_said_may_not_move(id, end, monkeypatch):
    change = Causes.change

    def moved(*given):
        found = change(*given)
        return replace(found, **{end: getattr(found, end) + 0.002})

    monkeypatch.setattr(Causes, "change", moved)
    assert CLAIMS[id].check(causes()).verdict == Verdict.FAILS


# --- The trial ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trial():
    return trial_study()


def with_fraction(row, value, half, fit=1.0):
    found = Estimate(value, value - half, value + half)
    return replace(row, judged=replace(row.judged, fraction=found, fit=Estimate(fit, fit, fit)))


@pytest.mark.parametrize(
    ("rows", "verdict"),
    [
        ([(0.15, 0.05)], Verdict.HOLDS),
        ([(0.10, 0.20), (0.15, 0.05)], Verdict.HOLDS),  # the second is benign, although the first is less
        ([(0.35, 0.05), (0.9, 0.05)], Verdict.FAILS),
        ([(0.30, 0.02), (0.40, 0.20)], Verdict.OUTSIDE),  # the second lies on both sides of a quarter
        ([(0.15, 0.05, 0.8)], Verdict.OUTSIDE),  # harmless, and nothing memorised
        ([(0.15, 0.05, 0.8), (0.35, 0.05)], Verdict.FAILS),
    ],
)
def test_a_claim_holds_in_one_benign_row_and_fails_if_all_lie_above(trial, rows, verdict):
    row, small = (
        next(one for one in trial if one.data == "cifar10" and one.way == OURS),
        next(one for one in trial if one.backbone == "small ViT"),
    )
    world = [with_fraction(row, *each) for each in rows] + [with_fraction(replace(small, data="cifar10"), 0.1, 0.01)]
    assert strong(world) == tuple(one for one in world[:-1] if one.judged.fit.low > 0.9)
    assert CLAIMS["TS91"].check(world).verdict == verdict
