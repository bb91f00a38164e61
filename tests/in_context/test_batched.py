"""The batched training page gives what the page's own cells give, number by number, whatever the company."""

from types import SimpleNamespace

import pytest
import torch

from attnbook.in_context import batched as module
from attnbook.in_context.batched import training
from attnbook.in_context.heads_study import untrapped
from attnbook.in_context.training import study as training_study
from attnlib.in_context.experiment import Experiment
from attnlib.in_context.training import TrainingDiverged, train
from attnlib.kernels.dispatch import has_numba
from tests.sweeps.page_cells import as_stored, complete, recorded_by_page

PAGE = "in_context/02_training"
SMALL = {"d": 2, "length": 8, "batch": 16, "steps": 130, "runs": 2, "learning_rate": 0.01}
# The first three are one training of seven runs; of the others each has something of its own.
POINTS = [
    complete(PAGE, **SMALL | changes)
    for changes in (
        {},
        {"learning_rate": 0.03, "runs": 3},
        {"learning_rate": 0.001},
        {"seed": 5},
        {"optimiser": "SGD", "learning_rate": 0.05},
        {"heads": 1, "optimiser": "AdamW", "noise_std": 0.5},
    )
]
compiled_only = pytest.mark.skipif(
    not has_numba(), reason="without numba the page's loop is torch, thousands of steps slow"
)


@pytest.fixture(scope="module")
def batched() -> list[dict]:
    return as_stored(training(POINTS))


@pytest.mark.parametrize("place", [0, 1, 4, 5])
def test_numbers_are_those_of_the_pages_own_cells(batched, place, monkeypatch) -> None:
    # Of the study the page records the live training alone; the rest takes ten seconds.
    def only_live(experiment: Experiment) -> SimpleNamespace:
        return SimpleNamespace(live=SimpleNamespace(history=train(experiment)))

    def watch(names: dict) -> None:
        names["history"] = names["study"].live.history
        names["cancel"] = untrapped(names["history"]).tolist()

    monkeypatch.setattr(training_study, "training_study", only_live)
    assert batched[place] == recorded_by_page(PAGE, POINTS[place], between=watch)


def test_neither_order_nor_company_changes_a_number(batched) -> None:
    assert as_stored(training(POINTS[::-1])) == batched[::-1]
    assert as_stored([training([point])[0] for point in POINTS]) == batched
    assert training([]) == []


@compiled_only
def test_the_joint_training_ends_bit_for_bit_where_each_alone_ends() -> None:
    # The page rounds; here nothing is rounded. 10 300 steps: the last window holds an end of a piece of work.
    base = Experiment(d=2, heads=2, length=8, batch=4, steps=10_300, records=module.RECORDS)
    assert base.recorded_steps[-2] < 10_000
    experiments = [base.replace(learning_rate=rate, runs=runs) for rate, runs in ((0.001, 2), (0.01, 3), (0.003, 1))]
    for each, (final, loss) in zip(experiments, module._train_together(experiments), strict=True):
        alone = train(each)
        assert torch.equal(final.key_query, alone.final.key_query)
        assert torch.equal(final.output_value, alone.final.output_value)
        assert torch.equal(loss, alone.loss[:, -1])


def test_a_divergent_learning_rate_is_named() -> None:
    wild = POINTS[4] | {"learning_rate": 1e6}
    with pytest.raises(
        TrainingDiverged, match=r"the loss of run [01] at step \d+ .* smaller learning_rate than 1000000\.0"
    ):
        training([POINTS[4], wild])
