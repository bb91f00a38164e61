"""III.3: statistics of heads by hand, trapped runs, a changed circuit that is noticed."""

import math
from dataclasses import replace

import pytest
import torch

from attnbook.in_context.circuits.claims import CLAIMS
from attnbook.in_context.circuits.study import circuit_study, head_statistics, moved_columns, off_diagonal_memory
from attnlib.in_context.circuits import Circuits, two_number_circuits
from attnlib.in_context.experiment import Experiment
from attnlib.in_context.training import train
from bookkit.claims import Verdict
from bookkit.worlds import changed, together


def pairs(omega, mu) -> Circuits:
    return two_number_circuits(torch.tensor(omega).double(), torch.tensor(mu).double(), 3)


def test_statistics_by_hand():
    M = torch.zeros(2, 3, 3, dtype=torch.float64)
    M[0] = torch.tensor([[2.0, 0.3, 9.0], [-0.4, 1.0, -8.0], [0.05, -0.06, 7.0]], dtype=torch.float64)
    V = torch.tensor([[0.1, -0.2, -4.0], [0.3, 0.0, 0.0]], dtype=torch.float64)
    found = head_statistics(Circuits(M, V))
    assert found.omega.tolist() == [1.5, 0.0]
    assert found.diagonal_std.tolist() == [0.5, 0.0]
    assert found.off_diagonal.tolist() == [0.4, 0.0]
    assert found.label_row.tolist() == [0.06, 0.0]
    assert found.query_column.tolist() == [9.0, 0.0]
    assert found.mu.tolist() == [-4.0, 0.0]
    assert found.output_rest.tolist() == [0.2, 0.3]
    assert found.diagonal_share[0].item() == pytest.approx(5 / (5 + 0.09 + 0.16))
    assert found.last_share[0].item() == pytest.approx(16 / 16.05)
    assert found.active.tolist() == [True, False]
    assert found.largest("output_rest", found.strong).item() == 0.2
    assert found.mean_over("mu", torch.tensor([True, True])).item() == 2.0
    nobody = torch.tensor([False, False])
    assert math.isnan(found.largest("omega", nobody))
    assert math.isnan(found.mean_over("omega", nobody))


def test_trapped_is_about_heads_that_carry_weight():
    assert pairs([0.5, 0.6], [1.0, 0.5]).trapped.item()
    assert pairs([-0.5, -0.6], [-1.0, -0.5]).trapped.item()
    assert not pairs([0.14, -0.14], [3.0, -3.0]).trapped.item()
    assert pairs([0.5, 0.6, -0.3], [1.0, 0.5, -0.49]).trapped.item()  # imbalance 1.01 / 1.99
    assert not pairs([0.5, 0.6, -0.3], [1.0, 0.5, -0.51]).trapped.item()  # 0.99 / 2.01
    assert pairs([0.5, 0.6, -0.3], [1.0, 0.5, -0.51]).cancels.item()
    one = pairs([0.5], [1.5])
    assert not one.trapped.item()
    assert not one.cancels.item()
    both = pairs([[0.5, 0.6], [0.1, -0.1]], [[1.0, 0.5], [3.0, -3.0]])
    assert both.trapped.tolist() == [True, False]


def test_memory_of_the_entries_off_the_diagonal():
    history = train(SHORT)
    key_query, output_value = history.circuits.key_query.clone(), history.circuits.output_value.clone()
    output_value[:, -1, :, -1] = torch.tensor([3.0, -3.0], dtype=torch.float64)
    key_query[:, -1] = pairs([0.2, -0.2], [1.0, 1.0]).key_query
    noise = torch.randn(3, 2, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    noise = noise * (1 - torch.eye(4, dtype=torch.float64))  # omega keeps its sign
    for sign in (1, -1):
        key_query[:, -2] = key_query[:, -1] + sign * noise
        both = key_query.clone()
        both[:, -1] += noise
        other = replace(history, circuits=Circuits(both, output_value))
        assert off_diagonal_memory(other) == pytest.approx(sign, abs=1e-12)
    silent = replace(history, circuits=Circuits(key_query, 0 * output_value))
    assert math.isnan(off_diagonal_memory(silent))


SHORT = Experiment(heads=2, d=3, length=9, batch=16, learning_rate=0.01, steps=60, records=8, runs=3, seed=5)


def test_the_study_on_small_trainings():
    stored = {heads: train(SHORT.replace(heads=heads, seed=0)) for heads in (1, 2)}
    study = circuit_study(SHORT, stored=stored)
    assert study.heads == (1, 2)
    assert study.ends[2].omega.shape == (3, 2)
    torch.testing.assert_close(study.starts[2].omega, stored[2].omega[:, 0])
    assert study.starts[2].strong.all()
    again = train(SHORT)
    torch.testing.assert_close(study.live.final.mu, again.final.mu, rtol=0, atol=0)
    torch.testing.assert_close(study.stored_near_live.mu, stored[2].final.mu, rtol=0, atol=0)
    index = 4
    short = circuit_study(SHORT.replace(steps=int(stored[2].steps[index])), stored=stored)
    torch.testing.assert_close(short.stored_near_live.mu, stored[2].mu[:, index], rtol=0, atol=0)
    assert study.free[1].all()
    if study.free[2].any():
        assert study.free[2][study.pair]


def test_the_column_without_effect_alone_is_not_moved():
    history = train(SHORT)
    assert moved_columns(history).tolist() == [[True, True, True, False]] * 3


AUTHORS = Experiment(steps=16_792, records=10, runs=8, seed=6)  # the end is a recorded step of the stored trainings


@pytest.fixture(scope="module")
def study():
    return circuit_study(AUTHORS.replace(steps=5, runs=2))  # the live training is another test's


def with_another_end(study, heads, change):
    """The study with other circuits in the last record of one stored training."""
    history = study.stored[heads]
    key_query, output_value = history.circuits.key_query.clone(), history.circuits.output_value.clone()
    change(key_query[:, -1], output_value[:, -1])
    ends = head_statistics(Circuits(key_query, output_value)[:, -1])
    free = ~Circuits(key_query, output_value)[:, -1].trapped
    return together(changed(lambda _: ends, f"ends.{heads}"), changed(lambda _: free, f"free.{heads}"))(study)


@pytest.mark.parametrize(
    ("id", "change"),
    [
        ("I31", lambda M, V: M[0, :, 0, 1].add_(0.03)),  # one entry off the diagonal of one run
        ("I31", lambda M, V: M[0, 0, 2, 2].sub_(0.06)),  # one entry of the diagonal
        ("I31", lambda M, V: V[0, :, 2].add_(0.2)),
        ("I31", lambda M, V: V[0, :, -1].add_(0.5)),
        ("I31", lambda M, V: M[0, :, 5, 0].add_(0.05)),  # the label row
        ("I34", lambda M, V: V[0].neg_()),
        ("I35", lambda M, V: M[:, 0].mul_(1.5)),  # one head of every run sharper
        ("I37", lambda M, V: M[..., 5].zero_()),
        ("I22", lambda M, V: M.mul_(1.1)),
    ],
)
def test_a_changed_circuit_is_noticed(study, id, change):
    result = CLAIMS[id].check(with_another_end(study, 2, change))
    assert result.verdict == Verdict.FAILS
