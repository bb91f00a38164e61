"""Negative controls could have held: each judge, given data of its control's world, refutes the claim and accepts the control."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from attnbook.open_questions.judging import one_way
from attnbook.open_questions.more_classes_and_layers.claims import CLAIMS as CLASSES
from attnbook.open_questions.optimisers.claims import CLAIMS as OPTIMISERS
from attnbook.open_questions.optimisers.claims_trap import TRAP_CLAIMS
from attnbook.open_questions.second_solver import on_both_sides


def worlds(claim, own, other):
    """In its own world the claim holds and its control fails; in the control's world the other way round."""
    assert claim.judge(own, 1.0).holds
    assert not claim.judge(own, claim.wrong).holds
    assert not claim.judge(other, 1.0).holds
    assert claim.judge(other, claim.wrong).holds


def test_a_boundary_elsewhere():
    x = np.repeat([0.5, 0.9, 1.1, 1.5], 5)
    moves = np.outer(np.sign(x - 1.2), [0.0, 0.01, 0.02])
    assert not one_way(x, moves, 1.0).holds
    assert one_way(x, moves, 1.2).holds
    assert not one_way(x, np.zeros_like(moves), 1.0).holds  # weights that never move follow no boundary
    values = np.array([1.2, 3.0])
    assert not on_both_sides(values, 1.0, lambda x: x > 1.02 * values).holds
    assert on_both_sides(values, 1.02, lambda x: x > 1.02 * values).holds


def test_two_steps_of_k_classes_without_slopes():
    def study(right, without):
        row = SimpleNamespace(deviation=right, without_slopes=without)
        return SimpleNamespace(two_steps={K: row for K in (2, 3, 5, 10)}, draws=4)

    worlds(CLASSES["Q35"], study(1e-15, 0.2), study(0.2, 1e-15))


def test_two_classes_with_equal_steps():
    same, apart = torch.full((4,), 1e-14), torch.full((4,), 0.3)
    worlds(
        CLASSES["Q81"],
        *(SimpleNamespace(same_as_two_classes={2.0: a, 1.0: b}) for a, b in ((same, apart), (apart, same))),
    )


@pytest.mark.parametrize("seed", [0, 1])
def test_inner_products_with_and_without_the_plane(seed):
    rng = np.random.default_rng(seed)
    base = torch.as_tensor(rng.uniform(0.9, 1.1, (3, 10, 1, 1))) * torch.tensor(
        [[1.0, 0.1], [0.1, 1.0]], dtype=torch.float64
    )
    plane = torch.tensor([[0.5, -0.3], [-0.3, 0.5]], dtype=torch.float64)

    def study(found):
        predicted = SimpleNamespace(noise_products=base, products=base + plane)
        track = SimpleNamespace(
            steps=(2, 5, 9), noise_products=found * (1 + 1e-3 * rng.standard_normal()), predicted=predicted
        )
        return SimpleNamespace(tracks={"low": track, "high": track}, low_law=SimpleNamespace(n=50, d=5000))

    worlds(OPTIMISERS["Q51b"], study(base), study(base + plane))


def test_runs_that_leave_the_set_with_and_without_momentum():
    """Every second run has momentum: of the 800 that enter, 40 leave again."""
    x, steps = np.full(1600, 1.0), 3
    attention, lead = np.full((1600, steps), 0.8), np.tile([-1.0, 1.0, 1.0], (1600, 1))

    def study(offset):
        left = lead.copy()
        left[offset::40, 2] = -1.0
        return SimpleNamespace(from_outside=(x, attention, left))

    worlds(TRAP_CLAIMS["Q59c"], study(1), study(0))


def test_sign_descent_on_axes_and_in_random_directions():
    low, high = torch.full((3, 10, 2), 1e-5), torch.full((3, 10, 2), 1 - 1e-5)
    claim = OPTIMISERS["Q27b"]
    axes = SimpleNamespace(sign_ends={"axis": low, "random": high})
    assert claim.judge(axes, 1.0).holds
    assert not claim.judge(axes, claim.wrong).holds
    assert not claim.judge(SimpleNamespace(sign_ends={"axis": high, "random": high}), 1.0).holds
    # Random directions that lose the signal at x = 2 only leave the control half true: both parts are needed.
    assert not claim.judge(SimpleNamespace(sign_ends={"axis": low, "random": low}), 1.0).holds
