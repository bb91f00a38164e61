"""How many heads: risks in two parts, heads put together, what the stored ends are, free heads."""

import numpy as np
import pytest
import torch

from attnbook.in_context import full_runs
from attnbook.in_context.closed_form import debiased_gd_optimal_risk
from attnbook.in_context.heads_study import (
    Ends,
    FreeHeads,
    average_circuits,
    compare_free_heads,
    ends_of,
    heads_study,
    merged_pair,
    sharp_risk,
    untrapped,
)
from attnbook.in_context.reduced import reduced_risk
from attnlib.in_context.circuits import Circuits, circuits_of, predict, two_number_circuits
from attnlib.in_context.experiment import Experiment
from attnlib.in_context.law import RegressionLaw
from attnlib.in_context.model import initial_weights
from attnlib.in_context.training import train

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


def test_merging_heads_of_one_omega_changes_no_prediction() -> None:
    omega, mu = torch.tensor([0.3, -0.2, 0.3, -0.2]).double(), torch.tensor([0.5, -1.0, 0.7, -0.1]).double()
    prompts = LAW.draw(13, 0)
    one, two = (predict(two_number_circuits(*numbers, 3), prompts) for numbers in ((omega, mu), merged_pair(omega, mu)))
    torch.testing.assert_close(one, two)
    assert one.abs().max() > 0.1


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


def test_two_number_heads_leave_nothing_for_the_second_part() -> None:
    omega, mu = torch.tensor([[0.3, -0.4]]).double(), torch.tensor([[1.0, -0.8]]).double()
    risk, error = sharp_risk(two_number_circuits(omega, mu, 3), LAW, prompts=100, reduced_prompts=4000, seed=5)
    expected, expected_error = reduced_risk(omega, mu, LAW, prompts=4000, seed=5)
    torch.testing.assert_close(risk, expected)
    torch.testing.assert_close(error, expected_error)


def test_average_is_of_the_last_records() -> None:
    history = train(
        Experiment(heads=2, d=3, length=7, batch=8, steps=30, records=9, runs=2), implementation="reference"
    )
    average = average_circuits(history, 3)
    torch.testing.assert_close(average.mu, history.mu[:, -3:].mean(1))
    torch.testing.assert_close(average.key_query[1], history.circuits.key_query[1, -3:].mean(0))


def ends(mu: list, omega: list) -> Ends:
    mu, omega = torch.tensor(mu).double(), torch.tensor(omega).double()
    risk = torch.linspace(1, 2, len(mu), dtype=torch.float64)
    return Ends(2, omega, mu, risk, torch.full_like(risk, 0.1), risk, risk, risk, torch.tensor([True, True, False]))


def test_reading_of_ends() -> None:
    found = ends([[1.0, -1.0], [0.04, -2.0], [1.0, 1.0]], [[0.1, -0.1], [1.5, -0.1], [0.6, 0.1]])
    assert found.active.tolist() == [2, 1, 2]
    assert found.sharp.tolist() == [False, True, True]
    mean, error = found.mean_risk
    assert mean == pytest.approx(1.25)
    assert error == pytest.approx((0.125 / 2 + 0.01) ** 0.5)


def test_stored_ends_have_the_published_size() -> None:
    """The authors' two-head end within the spread of ours, by another route than the claims: medians over runs."""
    history = full_runs.load(2)
    kept = untrapped(history)
    assert 5 <= int(kept.sum()) < len(kept)
    average = average_circuits(history)[kept]
    assert average.omega.abs().median() == pytest.approx(0.140, abs=0.003)
    assert average.mu.abs().median() == pytest.approx(3.18, abs=0.06)
    assert untrapped(full_runs.load(1)).all()
    found = ends_of(history, prompts=300, reduced_prompts=2000)
    floor = float(debiased_gd_optimal_risk(history.experiment.law))
    assert (found.risk[kept] < 1.02 * floor).all()
    assert (found.risk[~kept] > 2 * floor).all()
    torch.testing.assert_close(found.merged_risk, found.plain_risk, rtol=1e-3, atol=0)
    assert ((found.merged_off / found.plain_risk - 1)[kept] > 0.02).all()


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


def test_bad_calls() -> None:
    with pytest.raises(ValueError, match="heads must be 2 or more; got 1"):
        heads_study(Experiment(heads=1, steps=5))
    with pytest.raises(ValueError, match="experiment must be an Experiment; got int"):
        heads_study(3)
    with pytest.raises(ValueError, match="prompts must be a whole number >= 50"):
        heads_study(Experiment(steps=5), prompts=3)
    with pytest.raises(ValueError, match=r"circuits must be for d = 3|d = 5"):
        sharp_risk(two_number_circuits(torch.zeros(1).double(), torch.zeros(1).double(), 5), LAW)
    np.testing.assert_equal(len(random_circuits().omega), 2)
