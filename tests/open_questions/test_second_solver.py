"""The second solver of the boundaries, and the boundaries of the first solvers against the values that the claims quote."""

import numpy as np
import pytest
import torch

from attnbook.open_questions.many_heads import claims as heads
from attnbook.open_questions.map_flow import map_rates, map_threshold
from attnbook.open_questions.margin_and_descent import claims as margin
from attnbook.open_questions.more_classes_and_layers import claims as classes
from attnbook.open_questions.out_of_the_trap import claims as trap
from attnbook.open_questions.second_solver import WEIGHTS, ends_on_signal, flow_speed, on_both_sides
from attnbook.open_questions.thresholds import claims as thresholds
from attnbook.single_head.flow import first_order_threshold, signal_threshold
from attnlib.single_head.maps import ENTMAX15, LINEARISED, SOFTMAX, SPARSEMAX, softmax

MAPS = {
    "softmax": SOFTMAX, "softmax at temperature 0.5": softmax(0.5), "softmax at temperature 2": softmax(2.0),
    "linearised softmax": LINEARISED, "sparsemax": SPARSEMAX, "entmax-1.5": ENTMAX15,
}  # fmt: skip


@pytest.mark.parametrize("name", WEIGHTS)
def test_right_hand_side_is_that_of_the_first_solver(name):
    rng = np.random.default_rng(0)
    states, x, nu, rate = (
        rng.normal(0, 0.7, (6, 50)),
        rng.uniform(0.3, 3, 50),
        rng.uniform(0, 1, 50),
        rng.uniform(0.2, 2, 50),
    )
    wanted = map_rates(
        torch.as_tensor(states.T), *(torch.as_tensor(part) for part in (x, nu)), MAPS[name], torch.as_tensor(rate)
    )
    np.testing.assert_allclose(flow_speed(states, x, nu, rate, WEIGHTS[name]), wanted.numpy().T, rtol=1e-10, atol=1e-12)


def test_a_value_one_per_cent_off_is_refused_on_its_own_side():
    def at(factor):
        return on_both_sides(np.array([1.6212]), factor, lambda x: ends_on_signal(x, np.array([0.2])))

    assert at(1.0).holds
    high, low = at(1.01), at(0.99)
    assert not high.holds
    assert high.measured == "noise just below 0 of 1, signal just above 1"
    assert not low.holds
    assert low.measured == "noise just below 1 of 1, signal just above 0"


@pytest.mark.parametrize(
    ("module", "id", "solver"),
    [
        (margin, "Q12", "ends_on_signal"),
        (margin, "Q14", "ends_on_signal"),
        (heads, "Q43", "ends_on_signal"),
        (trap, "Q53", "ends_on_signal"),
        (thresholds, "Q64", "ends_on_signal"),
        (classes, "Q84", "class_ends_on_signal"),
    ],
)
def test_boundaries_that_a_solver_finds_elsewhere(monkeypatch, module, id, solver):
    """The solver of the control's world puts each boundary where the control says."""
    claim = module.CLAIMS[id]
    asked = []

    def unknown(x, *rest, **options):
        asked.append(np.array(x))
        return np.zeros(x.shape, bool)

    monkeypatch.setattr(module, solver, unknown)
    claim.seen(None)
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
        assert claim.seen(None).holds is holds
        monkeypatch.setattr(module, solver, found(factor))
        assert claim.seen(None, claim.wrong).holds is not holds


# --- the first solvers, regression ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rate", "time", "eta", "value"),
    [(1.0, 1e7, 0.1, 1.208), (1.0, 1e7, 0.3, 2.80), (0.25, 1e7, 0.2, 1.698), (4.0, 1e7, 0.2, 1.571), (4.0, 1e7, 0.3, 2.533),
     (1 / 4, 1e30, 0.2, 1.696), (1 / 16, 1e30, 0.2, 1.781), (1 / 64, 1e30, 0.2, 1.852), (1 / 64, 1e30, 0.1, 1.254)],
)  # fmt: skip
def test_boundaries_of_gradient_flow(rate, time, eta, value):
    assert signal_threshold(eta, attention_rate=rate, time=time) == pytest.approx(value, rel=2e-3)


def test_first_order_boundary_over_that_of_the_flow():
    for eta, ratio in ((0.05, 1.025), (0.3, 1.25)):
        assert first_order_threshold(eta) / signal_threshold(eta) == pytest.approx(ratio, rel=5e-3)


@pytest.mark.parametrize(
    ("name", "value"), [("sparsemax", 1.504), ("entmax-1.5", 1.573), ("linearised softmax", 1.625)]
)
def test_boundaries_of_the_maps(name, value):
    assert map_threshold(MAPS[name], torch.tensor([0.2]), highest=16.0, step=0.04).item() == pytest.approx(
        value, rel=4e-3
    )
