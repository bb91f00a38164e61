"""III.4: error against length a second way, off-pattern entries, linear attention, published figures, silence outside regimes."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from attnbook.in_context import closed_form
from attnbook.in_context.estimators import preconditioned_step
from attnbook.in_context.what_the_heads_compute import study as module
from attnbook.in_context.what_the_heads_compute.claims import CLAIMS
from attnbook.in_context.what_the_heads_compute.linear_attention import (
    linear_risks,
    preconditioner_of,
    predict_linear,
    train_linear_attention,
)
from attnbook.in_context.what_the_heads_compute.study import (
    crossing,
    length_study,
    off_pattern_parts,
    published_figures,
    trained_heads,
)
from attnlib.in_context.circuits import Circuits, predict, two_number_circuits
from attnlib.in_context.experiment import Experiment
from attnlib.in_context.law import RegressionLaw, toeplitz_covariance

LAW = RegressionLaw(3, 12, 0.3)
OMEGA = torch.tensor([[0.2, -0.25], [0.5, 0.4]], dtype=torch.float64)
MU = torch.tensor([[2.0, -1.8], [0.9, 0.6]], dtype=torch.float64)


def noisy_circuits(scale: float, seed: int = 0, d: int = 3) -> Circuits:
    """The two models above with every entry of both circuits moved; the query column, which has no effect, moved a lot.

    What is written of covariates is along the label rows, so that the two do not happen to be uncorrelated.
    """
    rng = np.random.default_rng(seed)
    exact = two_number_circuits(OMEGA, MU, d)
    M = exact.key_query + scale * torch.as_tensor(rng.standard_normal(exact.key_query.shape))
    M[..., d] += 3.0
    V = exact.output_value + 0.3 * scale * torch.as_tensor(rng.standard_normal(exact.output_value.shape))
    V[..., :d] += (MU * OMEGA.sign())[..., None] * M[..., d, :d]
    return Circuits(M, V)


@pytest.mark.parametrize("convention", ["notebook", "repository"])
def test_model_is_its_mean_squared_error(convention: str) -> None:
    """Far from the pattern, both conventions: 60 000 other prompts, the merged model as it is, clean targets."""
    law = RegressionLaw(3, 12, 0.3, convention)
    circuits = noisy_circuits(0.15)
    study = length_study(law, circuits, (4, 12), prompts=6000)
    for k, length in enumerate((4, 12)):
        prompts = law.with_length(length).draw(60_000, 11)
        errors = (predict(circuits, prompts) - prompts.clean_target).square()
        gap = (study.model.risk[k] - errors.mean(-1)).abs()
        assert (gap < 5 * torch.hypot(errors.std(-1) / math.sqrt(60_000), study.model.error[k])).all()
        assert (errors.std(-1) / math.sqrt(60_000) < 0.02 * errors.mean(-1)).all()


def test_nothing_is_off_pattern_in_two_numbers() -> None:
    """Also when the column without effect is large."""
    circuits = two_number_circuits(OMEGA, MU, 3)
    circuits.key_query[..., 3] = 5.0
    study = length_study(LAW, circuits, (5, 12), prompts=100)
    for curve in (study.off_pattern, study.shift):
        np.testing.assert_allclose(curve.risk, 0, atol=1e-12)
    np.testing.assert_allclose(off_pattern_parts(circuits, LAW), 0, atol=1e-20)


def test_references_are_sampled_closed_forms() -> None:
    for law in (LAW, RegressionLaw(3, 12, 0.6, "repository")):
        study = length_study(law, two_number_circuits(OMEGA, MU, 3), (2, 12, 30), prompts=6000, seed=1)
        for k, length in enumerate((2, 12, 30)):
            here = law.with_length(length)
            exact = {
                "gd1": closed_form.gd_risk(here, 1.0),
                "gd_optimal": closed_form.gd_optimal_risk(here),
                "debiased": closed_form.debiased_gd_optimal_risk(here),
            }
            for name, value in exact.items():
                curve = getattr(study, name)
                assert abs(curve.risk[k, 0] - value) < 5 * curve.error[k, 0]
                assert curve.error[k, 0] < 0.04 * value
            ceiling = closed_form.bayes_risk_leading_order(here)
            assert closed_form.bayes_risk_lower_bound(here) < study.bayes.risk[k, 0] < ceiling


@pytest.mark.parametrize("convention", ["notebook", "repository"])
def test_parts_are_mean_squares_of_the_leading_order(convention: str) -> None:
    """Without attention: centred sums of 100 000 prompts of four examples, much noise, entries of all kinds, within 5 standard errors."""
    law, circuits = RegressionLaw(3, 4, 0.8, convention), noisy_circuits(0.2)[:1]
    prompts = law.draw(100_000, 4)
    (M,), (mu,), (v,) = circuits.covariate_block, circuits.mu, circuits.output_rest
    rows, eta = circuits.label_row[0], circuits.effective_step[0]
    x, y, q = (values.numpy() for values in (prompts.x, prompts.y, prompts.query))
    centred, labels = x - x.mean(1, keepdims=True), y - y.mean(1, keepdims=True)
    block, label, output = (np.zeros(len(y)) for _ in range(3))
    for h in range(2):
        moved = mu[h].item() * M[h].numpy().T + np.outer(rows[h], v[h])
        block += np.einsum("bi,ij,blj,bl->b", q, moved, centred, labels) / 4
        label += mu[h].item() * (q @ rows[h].numpy()) * np.mean(labels**2, 1)
        output += x.mean(1) @ v[h].numpy()
        output += np.einsum("i,bli,blj,jk,bk->b", v[h], centred, centred, M[h], q) / 4
    block -= eta.item() * np.einsum("bi,bli,bl->b", q, centred, labels) / 4
    found = off_pattern_parts(circuits, law)[0].numpy()
    for values, wanted in ((block**2, found[0]), ((label + output) ** 2, found[1] + found[2])):
        assert abs(values.mean() - wanted) < 5 * values.std() / math.sqrt(len(y))
        assert values.std() / math.sqrt(len(y)) < 0.02 * wanted
    gap = (label**2 - output**2).mean() - (found[1] - found[2])
    assert abs(gap) < 5 * (label**2 - output**2).std() / math.sqrt(len(y))


def test_crossing() -> None:
    lengths = np.array([10, 20, 40, 80])
    assert crossing(lengths, np.array([0.5, 0.8, 1.2, 2.0])) == pytest.approx(math.sqrt(20 * 40))
    assert crossing(lengths, np.array([0.5, 0.9, 1.3, 0.5])) == pytest.approx(20 * 2**0.25)
    assert math.isnan(crossing(lengths, np.array([0.5, 0.6, 0.7, 0.8])))
    assert math.isnan(crossing(lengths, np.array([1.5, 1.6, 1.7, 1.8])))


def test_crossings_and_floor_of_a_faint_pair() -> None:
    """omega = +-0.01, eta = 0.9: the centred step itself. d = 3 noiseless: 3 (1 - 1.8 f + 0.81 f (L + 3) / L) = 12 / L, floor 0.03."""
    omega = torch.tensor([[0.01, -0.01]], dtype=torch.float64)
    circuits = two_number_circuits(omega, 45.0 * omega.sign(), 3)
    study = length_study(RegressionLaw(3, 12, 0.0), circuits, (40, 60, 80, 100, 130), prompts=400)
    grid = np.arange(40, 130, 0.01)
    f = (grid - 1) / grid
    risk = 3 * (1 - 1.8 * f + 0.81 * f * (grid + 3) / grid)
    wanted = grid[np.argmax(risk > 12 / grid)]
    assert study.crossings[0] == pytest.approx(wanted, rel=0.01)
    assert study.floor[0] == pytest.approx(3 * 0.1**2)


SKEW = RegressionLaw(3, 12, 0.3, covariance=toeplitz_covariance(3, 0.6))


def some_circuits(d: int, heads: int) -> Circuits:
    rng = np.random.default_rng(d + heads)
    shapes = (2, heads, d + 1, d + 1), (2, heads, d + 1)
    return Circuits(*(torch.as_tensor(rng.standard_normal(shape)) for shape in shapes))


def optimal_circuits(law: RegressionLaw) -> Circuits:
    """One head that is the best preconditioned step at the law's length, for the 1/L form."""
    key_query, output_value = torch.zeros(1, law.d + 1, law.d + 1, dtype=torch.float64), torch.eye(law.d + 1)[-1:]
    key_query[0, : law.d, : law.d] = torch.as_tensor(closed_form.best_preconditioner(law)).mT
    return Circuits(key_query, output_value.double())


def test_prediction_is_the_loop() -> None:
    """Two models with leading axis, four heads, five prompts of seven examples: every token, its score times what it writes."""
    prompts, circuits = RegressionLaw(3, 7, 0.2).draw(5, 0), some_circuits(3, 4)
    wanted = np.zeros((2, 5))
    for r in range(2):
        for b in range(5):
            query = np.append(prompts.query[b].numpy(), 0.0)
            for h in range(4):
                M, V = circuits.key_query[r, h].numpy(), circuits.output_value[r, h].numpy()
                for i in range(7):
                    z = np.append(prompts.x[b, i].numpy(), prompts.y[b, i].item())
                    wanted[r, b] += (V @ z) * (z @ M @ query)
    np.testing.assert_allclose(predict_linear(circuits, prompts, normalised=False), wanted, rtol=1e-12)
    np.testing.assert_allclose(predict_linear(circuits, prompts, normalised=True), wanted / 7, rtol=1e-12)


def test_what_is_odd_in_the_labels_is_the_step() -> None:
    """Half the difference between a prompt and the same prompt with all labels negated, for arbitrary circuits, both ways to X'y."""
    prompts, circuits = SKEW.draw(6, 1), some_circuits(3, 2)
    flipped = type(prompts)(prompts.x, -prompts.y, prompts.query, prompts.target, prompts.beta)
    odd = (predict_linear(circuits, prompts, normalised=True) - predict_linear(circuits, flipped, normalised=True)) / 2
    torch.testing.assert_close(odd, preconditioned_step(prompts, preconditioner_of(circuits)))


@pytest.mark.parametrize("law", [RegressionLaw(2, 6, 0.4, "repository"), SKEW])
def test_optimal_circuits_have_the_least_risk(law: RegressionLaw) -> None:
    best = optimal_circuits(law)
    gamma = preconditioner_of(best).numpy()
    least = closed_form.preconditioned_gd_risk(law, gamma)
    rng = np.random.default_rng(0)
    for _ in range(20):
        assert closed_form.preconditioned_gd_risk(law, gamma + 0.05 * rng.standard_normal(gamma.shape)) > least
    prompts = law.draw(60_000, 0)
    errors = (predict_linear(best, prompts, normalised=True) - prompts.clean_target).square()
    assert abs(errors.mean().item() - least) < 5 * errors.std().item() / math.sqrt(60_000)


def test_raw_and_normalised_agree_where_they_were_trained_and_part_elsewhere() -> None:
    """At three times the length the raw step is three times as large: the risk of the closed form, by sampling."""
    law = RegressionLaw(3, 12, 0.3)
    one = optimal_circuits(law)
    raw = Circuits(one.key_query, one.output_value / 12)
    prompts, longer = law.draw(4, 2), law.with_length(36).draw(40_000, 3)
    torch.testing.assert_close(
        predict_linear(raw, prompts, normalised=False), predict_linear(one, prompts, normalised=True)
    )
    for circuits, normalised in ((raw, False), (one, True)):
        errors = (predict_linear(circuits, longer, normalised=normalised) - longer.clean_target).square()
        exact = closed_form.linear_attention_risk(law, 12, normalised=normalised, length=36)
        assert abs(errors.mean().item() - exact) < 5 * errors.std().item() / math.sqrt(40_000)
    eta = closed_form.gd_optimal_step(law)
    assert closed_form.linear_attention_risk(law, 12, normalised=False, length=36) == pytest.approx(
        float(closed_form.gd_risk(law, 3 * eta, length=36))
    )


def test_linear_risks_of_arbitrary_circuits_are_mean_squared_errors() -> None:
    """Trained at 12 (by assumption), used at 30: 40 000 other prompts, plain squared errors, both readings, two models at once."""
    law, faint = RegressionLaw(3, 12, 0.3), some_circuits(3, 2)
    circuits = Circuits(0.3 * faint.key_query, 0.3 * faint.output_value)
    found = linear_risks(circuits, law, 30, prompts=20_000)
    fresh = law.with_length(30).draw(40_000, 9)
    readings = (Circuits(circuits.key_query, circuits.output_value / 12), False), (circuits, True)
    for row, (heads, normalised) in enumerate(readings):
        errors = (predict_linear(heads, fresh, normalised=normalised) - fresh.clean_target).square()
        gap = (found[row] - errors.mean(-1)).abs() / (errors.std(-1) * math.sqrt(1 / 40_000 + 1 / 20_000))
        assert (gap < 5).all()
        assert (errors.std(-1) / math.sqrt(40_000) < 0.1 * errors.mean(-1)).all()


def test_training_finds_the_preconditioner() -> None:
    found = preconditioner_of(train_linear_attention(SKEW, steps=900, batch=128, runs=3, seed=0)).mean(0)
    wanted = torch.as_tensor(closed_form.best_preconditioner(SKEW))
    assert (found - wanted).abs().max() < 0.15
    assert (wanted - wanted.diagonal().mean() * torch.eye(3)).abs().max() > 0.4  # no multiple of the identity would do


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

    for id in ("I42", "I43", "I44", "I45", "I47", "I48"):
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
