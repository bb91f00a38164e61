"""How many heads: risks in two parts, heads put together, what the stored ends are, free heads."""

import pytest
import torch

from attnbook.in_context.heads_study import Ends, FreeHeads, compare_free_heads, heads_study, merged_pair, sharp_risk
from attnbook.in_context.reduced import reduced_risk
from attnlib.in_context.circuits import Circuits, circuits_of, predict, two_number_circuits
from attnlib.in_context.experiment import Experiment
from attnlib.in_context.law import RegressionLaw
from attnlib.in_context.model import initial_weights
from tests.bad_input import refusing

LAW = RegressionLaw(d=3, length=11, noise_std=0.4)


def random_circuits(runs: int = 2, heads: int = 3) -> Circuits:
    return circuits_of(initial_weights(3, heads, seed=8, runs=runs))


def test_merging_by_hand() -> None:
    omega, mu = merged_pair(torch.tensor([0.2, 0.4, -0.3]), torch.tensor([1.0, 3.0, -2.0]))
    torch.testing.assert_close(omega, torch.tensor([0.35, -0.3]))
    torch.testing.assert_close(mu, torch.tensor([4.0, -2.0]))
    omega, mu = merged_pair(torch.tensor([[0.2, 0.4]]), torch.tensor([[1.0, 3.0]]))
    torch.testing.assert_close(omega, torch.tensor([[0.35, 0.0]]))
    torch.testing.assert_close(mu, torch.tensor([[4.0, 0.0]]))


def test_the_risk_in_two_parts_is_the_risk() -> None:
    """Against plain squared errors on other prompts, for circuits that look at labels and write covariates."""
    circuits = random_circuits()
    circuits = Circuits(2 * circuits.key_query, 3 * circuits.output_value)
    risk, error = sharp_risk(circuits, LAW, prompts=20_000, seed=1)
    prompts = LAW.draw(40_000, 2)
    squares = (predict(circuits, prompts) - prompts.clean_target).square()
    spread = (squares.var(-1) / 40_000 + error.square()).sqrt()
    assert ((risk - squares.mean(-1)).abs() < 4 * spread).all()
    # a wrong formula would show: the two-number part alone is another number
    plain, _ = reduced_risk(circuits.omega, circuits.mu, LAW)
    assert ((plain - squares.mean(-1)).abs() > 8 * spread).any()


def ends(mu: list, omega: list) -> Ends:
    mu, omega = torch.tensor(mu).double(), torch.tensor(omega).double()
    risk = torch.linspace(1, 2, len(mu), dtype=torch.float64)
    return Ends(2, omega, mu, risk, torch.full_like(risk, 0.1), risk, risk, risk, torch.tensor([True, True, False]))


def test_reading_of_ends() -> None:
    found = ends([[1.0, -1.0], [0.04, -2.0], [1.0, 1.0]], [[0.1, -0.1], [1.5, -0.1], [0.6, 0.1]])
    assert found.active.tolist() == [2, 1, 2]
    assert found.sharp.tolist() == [False, True, True]
    faint = ends([[1.0, 0.03], [1.0, 0.015], [0.01, 1.0]], [[0.1, 1.3], [0.1, 1.3], [9.0, 0.25]])
    assert faint.sharper_than(0.25).tolist() == [True, False, False]
    mean, error = found.mean_risk
    assert mean == pytest.approx(1.25)
    assert error == pytest.approx((0.125 / 2 + 0.01) ** 0.5)


def test_free_heads_are_ordered_and_the_third_is_judged_on_other_draws() -> None:
    law = RegressionLaw(d=2, length=9)
    found = compare_free_heads(law, prompts=1200, seed=1)
    assert isinstance(found, FreeHeads)
    assert [len(part[0]) for part in (found.one, found.pair, found.three)] == [1, 2, 3]
    assert found.pair[0][0] == -found.pair[0][1]
    assert all(w == round(w, 2) for w in found.three[0])
    assert found.risk_one.mean() > found.risk_pair.mean() > found.risk_three.mean() > 0
    risk, _ = reduced_risk(torch.tensor(found.three[0]).double(), torch.tensor(found.three[1]).double(), law, seed=7)
    assert found.risk_three.mean().item() == pytest.approx(risk.item(), rel=0.02)
    gain = (found.risk_pair.mean() - found.risk_three.mean()) / found.risk_pair.mean()
    torch.testing.assert_close(found.gain_of_third.mean(), gain)


test_bad_calls = refusing(
    (lambda: heads_study(Experiment(heads=1, steps=5)), "heads must be 2 or more; got 1"),
    (heads_study, (Experiment(steps=5),), {"experiment": 3}),
    (
        lambda: sharp_risk(two_number_circuits(*[torch.zeros(1).double()] * 2, 5), LAW),
        r"circuits must be for d = 3|d = 5",
    ),
)
