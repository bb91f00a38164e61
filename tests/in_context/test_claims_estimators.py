"""Claims I41-I49: silence outside their regimes; where heads come from."""

from types import SimpleNamespace

import pytest
import torch

from attnbook.in_context.what_the_heads_compute import claims as module
from attnbook.in_context.what_the_heads_compute.claims import CLAIMS, estimator_study, published_figures, trained_heads
from attnlib.in_context.circuits import two_number_circuits
from attnlib.in_context.experiment import Experiment


def test_published_figures_by_the_closed_forms() -> None:
    """One step and centred step in the repository's units, by hand: 1 - 2 eta f + ..., plus sigma^2 = 0.1, eta = 0.897, s2 = 0.5."""
    found = published_figures(prompts=500)
    exact = dict(zip(found.names, found.exact, strict=True))
    eta = 0.897
    assert exact["one step, L = 40"] == pytest.approx(0.1 + 1 - 2 * eta + eta**2 * (1 + 6.5 / 40))
    centred = 0.1 + 1 - 2 * eta * 39 / 40 + eta**2 * 39 * 45.5 / 1600
    assert exact["centred step, L = 40"] == pytest.approx(centred)
    assert exact["two heads, L = 40"] == pytest.approx(centred, rel=0.002)
    assert exact["one head, L = 40"] > 1.5 * exact["two heads, L = 40"]
    assert 0.1 < exact["ridge, L = 40"] < 0.12
    assert len(found.printed) == len(found.error) == 8


def test_one_head_short_ladders_and_much_noise_are_outside_the_regime() -> None:
    def violation(id, *, both=4, omega=0.1, lengths=(10, 400), noise=1e-4):
        circuits = two_number_circuits(torch.full((10, 2), omega), torch.ones(10, 2), 5)
        law = SimpleNamespace(d=5, length=40, noise_variance=noise)
        heads = SimpleNamespace(circuits=circuits, law=law, lengths=lengths)
        return CLAIMS[id].violation(
            SimpleNamespace(opposite=torch.arange(10) < both, heads=heads, kept=torch.arange(10))
        )

    for id in ("I41", "I42", "I43", "I44", "I45", "I47", "I48"):
        assert violation(id) == ""
        assert violation(id, both=0) == "needs two runs with heads of both signs; here 0 of 10"
    assert violation("I47", lengths=(40, 400)) == "needs lengths from a quarter to ten times that of training"
    assert violation("I48", noise=0.5) == "needs s2 <= 0.01; here 0.5"
    for id in ("I42", "I44"):
        assert violation(id, omega=0.3).startswith("needs faint heads, |omega| sqrt d <= 0.35; here 0.67")


def test_where_heads_come_from(monkeypatch) -> None:
    """The authors' setting is stored, whatever runs and seed; other settings are trained, by default for fewer steps."""
    asked = []

    def train(experiment):
        asked.append(experiment)
        return SimpleNamespace(final=two_number_circuits(torch.ones(1, 2), torch.ones(1, 2), experiment.d))

    monkeypatch.setattr(module, "train", train)
    circuits, experiment, stored = trained_heads(Experiment(heads=4, runs=3, records=7, seed=101))
    assert stored
    assert experiment.seed == 0
    assert circuits.heads == 4
    assert experiment.steps == 500_001
    assert not asked
    for change, steps in (({"heads": 3}, 20_000), ({"steps": 700}, 700), ({"optimiser": "SGD"}, 20_000)):
        _, experiment, stored = trained_heads(Experiment(**change))
        assert not stored
        assert experiment == asked[-1]
        assert (experiment.steps, experiment.runs) == (steps, 6)


def test_a_study_refuses_before_any_work(monkeypatch) -> None:
    monkeypatch.setattr(module, "trained_heads", lambda experiment: pytest.fail("work was done"))
    with pytest.raises(ValueError, match="prompts must be a whole number >= 100; got 10"):
        estimator_study(Experiment(), prompts=10)
