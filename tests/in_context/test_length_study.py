"""Error against length: against plain squared errors, exact cases, standard errors, streams; the size of the off-pattern entries."""

import math

import numpy as np
import pytest
import torch

from attnbook.in_context import closed_form
from attnbook.in_context.what_the_heads_compute.study import crossing, length_study, off_pattern_parts
from attnlib.in_context.circuits import Circuits, predict, two_number_circuits
from attnlib.in_context.law import RegressionLaw, toeplitz_covariance
from tests.bad_input import refusing

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
        assert curve.risk.abs().max() < 1e-12
    assert off_pattern_parts(circuits, LAW).abs().max() < 1e-20


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
    assert study.crossings()[0] == pytest.approx(wanted, rel=0.01)
    assert study.floor[0] == pytest.approx(3 * 0.1**2)


SKEWED = RegressionLaw(3, 12, covariance=toeplitz_covariance(3, 0.5))
GOOD = {"law": LAW, "circuits": two_number_circuits(OMEGA, MU, 3), "lengths": (12,), "prompts": 100}
test_refuses = refusing(
    (length_study, GOOD, {"prompts": 99, "lengths": [(4, 0), ()], "seed": -1, "law": SKEWED}),
    (length_study, GOOD, {"circuits": [two_number_circuits(OMEGA, MU, 4), two_number_circuits(OMEGA[0], MU[0], 3)]}),
)


def test_index_of_a_length() -> None:
    study = length_study(LAW, two_number_circuits(OMEGA, MU, 3), (5, 12), prompts=100)
    assert study.index(12) == 1
    with pytest.raises(ValueError, match="length must be one of 5, 12; got 13"):
        study.index(13)
