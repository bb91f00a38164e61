"""IV.1: heads from zero, their window, their courses and a long clock; claims and controls."""

from types import SimpleNamespace as Study

import numpy as np
import pytest
import torch

from attnbook.open_questions.equal_heads import heads_fates
from attnbook.open_questions.many_heads.claims import CLAIMS
from attnbook.open_questions.many_heads.study import (
    VARIANTS,
    WINDOW_ROWS,
    equal_heads,
    heads_courses,
    two_step_window,
    two_steps_apart,
)
from attnbook.single_head.flow import selects_signal
from attnbook.single_head.long_run import law_at
from attnlib.single_head.errors import log10_clean_error
from attnlib.single_head.law import SignalNoiseLaw
from attnlib.single_head.training import gradient_descent, train_heads
from tests.worlds import worlds

# --- from zero --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "value", "attention"), [
    ("sum", 3, 1 / 3), ("mean", 1 / 3, 1 / 3), ("root sum", 1, 1 / 3), ("shared sum", 9, 1 / 3), ("shared mean", 1, 1 / 3),
])  # fmt: skip
def test_heads_from_zero_are_one_head(name, value, attention):
    sample = SignalNoiseLaw(9, 300, 7.0, 0.1).draw(2, 2)
    assert VARIANTS[name].one_head_steps(0.4, 3) == pytest.approx((0.4 * value, 0.4 * attention))
    one = gradient_descent(sample, 0.4 * value, 4, attention_step_size=0.4 * attention)
    path = VARIANTS[name].train(sample, 0.4, 4, 3)
    many = VARIANTS[name].as_one_head(path)
    torch.testing.assert_close(many.v[-1], one.v[-1], rtol=1e-10, atol=1e-13)
    for h in range(3):
        torch.testing.assert_close(path.p[-1, :, h], one.p[-1], rtol=1e-10, atol=1e-13)
    torch.testing.assert_close(many.attention_on_signal, one.attention_on_signal, rtol=1e-10, atol=1e-13)
    assert equal_heads(path) == pytest.approx(0, abs=1e-14)


@pytest.mark.parametrize("attention", [0.0, 0.003, 0.7])
def test_two_steps_with_two_step_sizes(attention):
    sample = SignalNoiseLaw(14, 500, 6.0, 0.2).draw(1, 3)
    found = two_steps_apart(sample, 0.3, attention)
    path = gradient_descent(sample, 0.3, 2, attention_step_size=attention)
    for have, want in ((found.v1, path.v[1]), (found.v2, path.v[2]), (found.p2, path.p[2])):
        torch.testing.assert_close(have, want, rtol=1e-12, atol=1e-15)
    torch.testing.assert_close(torch.einsum("rnt,rntm->rm", found.p2_tokens, sample.tokens), found.p2)


def test_window_cells_are_trainings():
    law = SignalNoiseLaw(40, 6000, 20.0, 0.1)
    window = two_step_window(law, [(1.0, 1.0), (3.0, 1 / 3)], (0.8, 3.0), draws=4, seed=2)
    sample = law.draw(2, 4)
    for j, multiple in enumerate((0.8, 3.0)):
        beta = multiple * 40 / 6000
        path = train_heads(sample, beta, 2, heads=3)
        one = VARIANTS["sum"].as_one_head(path)
        error = log10_clean_error(one.v[-1], one.p[-1], sample).numpy()
        np.testing.assert_allclose(window.log10_error[1, j], error, rtol=1e-9)
        assert (window.interpolates[1, j] == path.interpolates[-1].numpy()).all()
    assert window.interpolates.shape == (2, 2, 4)


def test_courses_are_those_of_trained_heads():
    law = SignalNoiseLaw(30, 4000, 14.0, 0.1)
    found = heads_courses([law], (1, 3), 0.02, 25, draws=2, record=[2, 25])
    sample = law.draw(0, 2)
    one = VARIANTS["sum"].as_one_head(train_heads(sample, 0.02, 25, heads=3, record=[2, 25]))
    for row in (0, 1):
        error = log10_clean_error(one.v[row], one.p[row], sample).numpy()
        np.testing.assert_allclose(found[3][0].log10_error[row], error, rtol=1e-8)
    assert not np.allclose(found[1][0].log10_error, found[3][0].log10_error, rtol=1e-3)


# --- the long clock ---------------------------------------------------------------------------------------------------------


def test_clock_and_fates():
    clock = [(0.5, 20), (2.0, 5), (4.0, 5), (8.0, 5)]
    laws = [law_at(x, 30, 50_000, 0.2) for x in (0.5, 3.0)]
    fates = heads_fates(laws, (1, 3), clock, draws=2, seed=5)
    sample = laws[1].draw(5, 1, first_run=3)
    start, unit = None, 30 / 50_000
    for step, steps in clock:  # three heads by the general trainer, not by the one head they are
        path = train_heads(
            sample, step * unit / 3, steps, heads=3, attention_step_size=step * unit / 3, start=start, record=[]
        )
        start = path.v[-1], path.p[-1]
    held = (sample.signal_class[0] == 1) & ~sample.noisy[0]
    assert fates[3].attention[3, 1] == pytest.approx(path.attention_on_signal[-1, 0, 0, held].mean().item(), rel=1e-6)
    for H in (1, 3):
        own = fates[H]
        for x, share, side in zip(own.x.flat, own.flipped.flat, own.threshold.flat, strict=True):
            assert (side == 0) == selects_signal(x, share, attention_rate=1 / H**2, time=80.0)
    assert fates[1].log10_error[0] != fates[3].log10_error[0]


# --- claims and their controls, each in its own world ----------------------------------------------------------------------

DRAWS = 60


def window(*fits):
    """Which numbers of heads fit every label at beta = n/d."""
    rows = np.array([[np.full(DRAWS, row in fits)] for row in WINDOW_ROWS])
    return Study(window=Study(interpolates=rows, multiples=(1.0,)))


def frozen(fast, slow):
    return Study(frozen=Study(interpolates=np.array([[np.full(DRAWS, slow), np.full(DRAWS, fast)]])))


def courses(one, four):
    spread = 1 + 1e-3 * np.linspace(-1, 1, DRAWS)
    ends = {1: one, 4: four}
    return Study(slow={H: [Study(log10_error=[end * spread], at=lambda step: 0)] for H, end in ends.items()})


def fates(boundary):
    x = np.tile(np.geomspace(0.9, 2.5, 12), (DRAWS, 1))
    found = Study(x=x, threshold=np.full_like(x, 1.7), on_signal=x > boundary)
    return Study(flips={2: found, 4: found}, no_noise={1: found})


@pytest.mark.parametrize(
    ("id", "own", "others"),
    [
        ("Q4", window(8), [window(2), None]),
        ("Q5", frozen(1.0, 0.0), []),
        ("Q9", courses(-0.58, -4.37), []),
        ("Q11", fates(1.0), [fates(1.5)]),
        ("Q42", fates(1.7), [fates(1.0)]),
    ],
)
def test_claims_and_controls_each_hold_in_their_own_world(id, own, others):
    assert worlds(CLAIMS[id], own, *others) == []


def test_one_group_alone_does_not_make_the_claim_on_frozen_attention_hold():
    assert [CLAIMS["Q5"].seen(frozen(each, each)).holds for each in (1.0, 0.0)] == [False, False]
