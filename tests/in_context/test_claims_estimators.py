"""Claims I41-I49: silence outside their regimes; where heads come from."""

from functools import partial
from types import SimpleNamespace

import pytest
import torch

from attnbook.in_context import closed_form
from attnbook.in_context.what_the_heads_compute import claims as module
from attnbook.in_context.what_the_heads_compute.claims import CLAIMS, estimator_study, published_figures, trained_heads
from attnbook.in_context.what_the_heads_compute.linear_attention import train_linear_attention
from attnlib.in_context.circuits import two_number_circuits
from attnlib.in_context.experiment import Experiment
from attnlib.in_context.law import RegressionLaw
from bookkit.claims import Verdict

LENGTHS = (5, 10, 60, 80, 100, 320, 500)


@pytest.fixture(scope="module")
def study():
    """The stored heads, other prompts than the page's."""
    return estimator_study(Experiment(), LENGTHS, prompts=1500, seed=3)


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


@pytest.fixture
def quick(monkeypatch, study) -> None:
    """Studies whose linear attention is hardly trained and whose published figures are known already."""
    monkeypatch.setattr(module, "train_linear_attention", partial(train_linear_attention, steps=2))
    monkeypatch.setattr(module, "published_figures", lambda **_: study.published)


@pytest.mark.weekly
@pytest.mark.usefixtures("quick")
def test_one_head_and_short_ladders_are_outside_the_regime() -> None:
    one = estimator_study(Experiment(heads=1), (10,), prompts=100)
    verdicts = {result.claim.id: result for result in CLAIMS.check(one)}
    for id in ("I41", "I42", "I43", "I44", "I45", "I47", "I48"):
        assert verdicts[id].verdict == Verdict.OUTSIDE
        assert verdicts[id].violated == "needs two runs with heads of both signs; here 0 of 10"
    assert len(one.kept) == 10
    pair = estimator_study(Experiment(noise_std=0.5, d=2, length=8, steps=1500), (4,), prompts=100)
    verdicts = {result.claim.id: result for result in CLAIMS.check(pair)}
    assert not pair.stored
    assert pair.opposite.sum() > 1
    assert verdicts["I47"].violated == "needs lengths from a quarter to ten times that of training"
    assert verdicts["I48"].violated == "needs s2 <= 0.01; here 0.5"
    for id in ("I42", "I44"):
        assert verdicts[id].violated.startswith("needs faint heads, |omega| sqrt d <= 0.35; here ")


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


@pytest.mark.weekly
@pytest.mark.usefixtures("quick")
def test_a_law_without_noise_has_no_ratio_to_bayes() -> None:
    law = RegressionLaw(2, 8, 0.0)
    assert closed_form.bayes_risk_leading_order(law) == 0
    pair = estimator_study(Experiment(noise_std=0.0, d=2, length=8, steps=1500), (4,), prompts=100)
    result = CLAIMS["I48"].check(pair)
    assert result.verdict == Verdict.OUTSIDE
