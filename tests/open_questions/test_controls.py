"""Negative controls could have held: each judge, given data of its control's world, refutes the claim and accepts the control."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from attnbook.open_questions.attention_maps import claims_thresholds as maps
from attnbook.open_questions.judging import one_way
from attnbook.open_questions.many_heads import claims as heads
from attnbook.open_questions.margin_and_descent import claims as margin
from attnbook.open_questions.more_classes import claims as classes
from attnbook.open_questions.more_classes.claims import CLAIMS as CLASSES
from attnbook.open_questions.optimisers.claims import CLAIMS as OPTIMISERS
from attnbook.open_questions.out_of_the_trap import claims as trap
from attnbook.open_questions.second_layer.claims import CLAIMS as LAYERS
from attnbook.open_questions.second_solver import WEIGHTS, on_both_sides
from tests.worlds import worlds


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

    assert worlds(CLASSES["Q35"], study(1e-15, 0.2), study(0.2, 1e-15)) == []


def test_two_classes_with_equal_steps():
    same, apart = torch.full((4,), 1e-14), torch.full((4,), 0.3)
    assert (
        worlds(
            CLASSES["Q81"],
            *(SimpleNamespace(same_as_two_classes={2.0: a, 1.0: b}) for a, b in ((same, apart), (apart, same))),
        )
        == []
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

    assert worlds(OPTIMISERS["Q51b"], study(base), study(base + plane), study(2 * base)) == []


def test_runs_that_leave_the_set_with_and_without_momentum():
    """Every second run has momentum: of the 800 that enter, 40 leave again."""
    x, steps = np.full(1600, 1.0), 3
    attention, lead = np.full((1600, steps), 0.8), np.tile([-1.0, 1.0, 1.0], (1600, 1))

    def study(offset):
        left = lead.copy()
        left[offset::40, 2] = -1.0
        return SimpleNamespace(from_outside=(x, attention, left))

    assert worlds(trap.CLAIMS["Q59c"], study(1), study(0)) == []


@pytest.mark.parametrize(
    ("module", "id", "solver"),
    [
        (margin, "Q12", "ends_on_signal"),
        (margin, "Q14", "ends_on_signal"),
        (heads, "Q43", "ends_on_signal"),
        (trap, "Q53", "ends_on_signal"),
        (maps, "Q64", "ends_on_signal"),
        (classes, "Q84", "class_ends_on_signal"),
    ],
)
def test_boundaries_that_a_solver_finds_elsewhere(monkeypatch, module, id, solver):
    """The solver of the control's world puts each boundary where the control says."""
    claim = module.CLAIMS[id]
    asked = []
    monkeypatch.setattr(
        module, solver, lambda x, *rest, **options: asked.append(np.array(x)) or np.zeros(x.shape, bool)
    )
    claim.judge(None, 1.0)
    middle = np.concatenate(
        [x.mean(0).ravel() for x in asked]
    )  # the claimed values, in the order in which they are asked for

    def found(factor):
        left = list(middle) * 2

        def ends(x, *rest, **options):
            own = np.array([left.pop(0) for _ in range(x[0].size)]).reshape(x[0].shape)
            return x > factor * own

        return ends

    other = 1 / claim.wrong if id == "Q14" else claim.wrong  # Q14 divides x_1 by its ratio
    for factor, holds in ((1.0, True), (other, False)):
        monkeypatch.setattr(module, solver, found(factor))
        assert claim.judge(None, 1.0).holds is holds
        monkeypatch.setattr(module, solver, found(factor))
        assert claim.judge(None, claim.wrong).holds is not holds


@pytest.mark.parametrize(
    ("claim", "name"), [(OPTIMISERS["Q59b"], "zero_moves"), (CLASSES["Q82"], "one_way"), (LAYERS["Q89"], "one_way")]
)
def test_the_other_boundary_without_label_noise(claim, name):
    x = np.repeat([0.5, 0.9, 1.1, 1.15, 1.5, 1.8], 5)

    def study(boundary):
        moves = np.outer(np.sign(x - boundary), [0.0, 0.01, 0.02])
        values = (x, moves) if name == "zero_moves" else (x, moves, np.ones_like(x))
        return SimpleNamespace(**{name: values})

    assert worlds(claim, study(1.0), study(claim.wrong)) == []


def test_maps_with_the_other_boundary_and_a_trap_that_leaks(monkeypatch):
    x = torch.as_tensor(np.repeat([0.5, 0.9, 1.1, 1.15, 1.5], 5))

    def moves(boundary):
        per_map = (
            x,
            torch.outer(torch.sign(x - boundary), torch.tensor([0.0, 0.01, 0.02]).double()),
            torch.ones_like(x),
        )
        return SimpleNamespace(moves={"softmax": per_map, "sparsemax": per_map})

    assert worlds(maps.CLAIMS["Q61"], moves(1.0), moves(1.2)) == []
    claim, study = maps.CLAIMS["Q64b"], SimpleNamespace(sample=SimpleNamespace(seed=0))
    assert "linearised softmax" in WEIGHTS

    def leaks(names, rise):
        return lambda name, seed: (np.full(50, float(name in names)), np.full(50, rise))

    others = [name for name in WEIGHTS if name != "linearised softmax"]
    for names, rise, holds in ((["linearised softmax"], -0.1, 1.0), (others, -0.1, 0.0), ([], 0.1, -1.0)):
        monkeypatch.setattr(maps, "trap_exits", leaks(names, rise))
        for constant in (1.0, *claim.wrong):
            assert claim.judge(study, constant).holds is (constant == holds)


def test_a_layer_that_is_trained_with_the_other_step():
    def study(fast, slow):
        steps, draws = [0, 300], 40

        def run(error, looks):
            rises = np.linspace(0.9, 1.1, draws) * error
            return SimpleNamespace(
                steps=steps, noise_to_signal=np.full((2, draws), looks), error=np.stack([rises, rises])
            )

        frozen = SimpleNamespace(log10_error=np.full((2, draws), -2.0), at=steps.index)
        trained = {("residual", 1e-3, 1.0): run(*fast), ("residual", 1e-4, 1.0): run(*slow)}
        return SimpleNamespace(trained=trained, frozen={("residual", 1.0): frozen})

    undone, kept = (0.08, 0.05), (0.01, 0.5)
    assert worlds(LAYERS["Q39b"], study(undone, kept), study(kept, undone)) == []
