"""Rules side by side: matched steps, milestones, schedules, fates."""

import math

import numpy as np
import pytest
import torch

from attnbook.open_questions.margin_and_descent.study import schedule_fates
from attnbook.open_questions.optimisers.compared import LINE_UP, Entry, compare_rules, milestones
from attnbook.open_questions.optimisers.signs import dense_copy
from attnbook.open_questions.optimisers.study import optimiser_study, sign_steps, sign_track
from attnbook.open_questions.out_of_the_trap.trap_escape import after_first_pass, batch_sweep, escape_map
from attnbook.open_questions.outcomes import matched_step, rule_fates
from attnbook.single_head.long_run import law_at, train
from attnlib.single_head.law import SignalNoiseLaw
from attnlib.single_head.population import log10_clean_error
from attnlib.single_head.rules import GRADIENT_DESCENT, SIGN_DESCENT, stochastic
from attnlib.single_head.training import train_heads
from tests.bad_input import refusing

LAW = SignalNoiseLaw(12, 90, 7.0, 0.1)


def test_milestones_are_the_first_rows_that_qualify():
    sample = LAW.draw(6, 4)
    entry = Entry("test", GRADIENT_DESCENT, 1, 60)
    path = train_heads(sample, matched_step(sample, GRADIENT_DESCENT, 8.0), 60).single()
    found = milestones(path, sample, entry)
    for r in range(4):
        one = sample.run(r)
        for moment, step, reached in (
            (found.fitted, found.fitted_step, path.interpolates[:, r]),
            (found.at_loss, found.loss_step, path.loss[:, r] <= 0.01),
        ):
            row = next((t for t in range(61) if reached[t]), None)
            if row is None:
                assert math.isnan(step[r])
                assert math.isnan(moment[r])
                continue
            assert step[r].item() == row
            error = log10_clean_error(path.v[row, r : r + 1], path.p[row, r : r + 1], one)
            assert moment[r].item() == pytest.approx(error.item(), rel=1e-10)
        clean = (one.signal_class[0] == 1) & ~one.noisy[0]
        assert found.attention[r, 1].item() == pytest.approx(path.attention_on_signal[-1, r, clean].mean().item())
    assert found.fitted_step.isfinite().any()
    assert (found.course_error[-1] == found.end).all()
    slow = milestones(train_heads(sample, 1e-6, 3).single(), sample, entry)
    assert slow.at_loss.isnan().all()
    assert slow.loss_step.isnan().all()


def test_dense_entries_are_trained_run_by_run_on_copies():
    sample = LAW.draw(1, 2)
    entry = Entry("sign", SIGN_DESCENT, 0.2, 15, "flat")
    found = compare_rules(sample, [entry])["sign"]
    copy = dense_copy(sample, "flat")
    path = train_heads(copy, 0.2 * matched_step(sample, SIGN_DESCENT), 15, rule=SIGN_DESCENT, record=[]).single()
    torch.testing.assert_close(found.end, log10_clean_error(path.v[-1], path.p[-1], copy), rtol=1e-10, atol=1e-12)
    assert {entry.basis for entry in LINE_UP} == {"", "axis", "random"}


def test_schedules_are_factors_on_the_step_size():
    n, d = 20, 4000
    found = schedule_fates(2.0, n, d, 0.1, steps=520, draws=2, seed=3)
    sample, unit = law_at(2.0, n, d, 0.1).draw(3, 2), 5 * n / d
    for name, parts in (
        ("constant", [(unit, 520)]),
        ("n/5d for 500 steps, then full", [(0.04 * unit, 500), (unit, 20)]),
        ("full for 5 steps, then n/5d", [(unit, 5), (0.04 * unit, 515)]),
    ):
        path = train(sample, parts)
        error = log10_clean_error(path.v[-1], path.p[-1], sample)
        torch.testing.assert_close(found[name][1], error, rtol=1e-7, atol=1e-9)
    gaps = [(found["constant"][1] - found[name][1]).abs().max() for name in found if name != "constant"]
    assert min(gaps) > 1e-3


def test_every_cell_of_the_map_is_a_training_of_its_own():
    xs, thetas = (0.3, 1.5), (1.0, 8.0, 40.0)
    shares = escape_map(xs, thetas, 0.1, n=20, d=5000, batch=4, epochs=6, draws=2, seed=7)
    assert shares.shape == (2, 3)
    for i, j in ((0, 2), (1, 0)):
        sample = law_at(xs[i], 20, 5000, 0.1).draw(7, 2, first_run=(i * 3 + j) * 2)
        # Batches are drawn by the number of the run, which in the map counts from the first cell on.
        path = train_heads(sample, thetas[j] * 4 / 5000, 30, rule=stochastic(4), record=[]).single()
        held = torch.stack([sample.signal_class == k for k in (0, 1)], 1) & ~sample.noisy.unsqueeze(1)
        weight = (path.attention_on_signal[-1].unsqueeze(1) * held).sum(-1) / held.sum(-1)
        assert shares[i, j] == pytest.approx((weight > 0.5).double().mean().item())


def test_ways_on_from_the_first_pass():
    law = law_at(0.3, 20, 3000, 0.1)
    found = after_first_pass(law, 5, 8.0, size_after=3.0, epochs=9, descent_steps=25, draws=2, seed=4)
    sample = law.draw(4, 2)
    first = train_heads(sample, 8.0 * 20 / 3000, 4, rule=stochastic(5), record=[])
    lost = (first.v[-1], torch.zeros_like(first.p[-1]))
    for name, start in (
        ("then gradient descent", (first.v[-1], first.p[-1])),
        ("p set to 0, then gradient descent", lost),
    ):
        path = train_heads(sample, 3.0 * 20 / 3000, 25, start=start, record=[]).single()
        error = log10_clean_error(path.v[-1], path.p[-1], sample)
        np.testing.assert_allclose(found[name].log10_error, error.numpy(), rtol=1e-8)
    assert (found["one full step"].p_signal == 0).all()
    assert (found["first pass"].p_signal > 0).all()
    p = torch.einsum("rkm,rm->rk", sample.signals, first.p[-1, :, 0])
    np.testing.assert_allclose(found["first pass"].p_signal, p.numpy(), rtol=1e-10)
    same = train_heads(sample, 8.0 * 4 * 20 / 3000, 9, record=[]).single()
    error = log10_clean_error(same.v[-1], same.p[-1], sample)
    np.testing.assert_allclose(found["full batch, the same epoch"].log10_error, error.numpy(), rtol=1e-8)


test_bad_arguments = refusing(
    (lambda: compare_rules(LAW.draw(0), [LINE_UP[0], LINE_UP[0]]), "entries must have different names"),
    (lambda: matched_step(LAW.draw(0), GRADIENT_DESCENT, 0.0), "unit must be"),
    (lambda: schedule_fates(1.0, 10, 100, 0.1, draws=0), "draws must be"),
    (lambda: rule_fates([LAW], GRADIENT_DESCENT, -1.0, 3), "size must be"),
    (lambda: rule_fates([LAW], stochastic(5), 1.0, 3), "must divide the number of samples"),
    (lambda: escape_map((1.0,), (0.0,), 0.1, n=10, d=100), "thetas must be"),
    (lambda: after_first_pass(LAW, 0, 1.0), "batch must be"),
    (lambda: batch_sweep(LAW, (1.0,), (5,)), "must divide the number of samples"),
    (lambda: sign_steps(LAW, draws=1), "draws must be"),
    (lambda: sign_track(LAW.draw(0), 0.0), "size must be"),
    (lambda: optimiser_study(50, 5000, 0.1, 0.45, 2.0, draws=1), "draws must be"),
    (lambda: optimiser_study(50, 5000, 0.1, -1.0, 2.0), "x must be"),
)
