"""Linear attention: the loop, the step it is, what training finds, and what becomes of it at other lengths."""

import math

import numpy as np
import pytest
import torch

from attnbook.in_context import closed_form
from attnbook.in_context.what_the_heads_compute.linear_attention import (
    as_raw,
    linear_risks,
    preconditioner_of,
    predict_linear,
    train_linear_attention,
)
from attnlib.in_context.circuits import Circuits
from attnlib.in_context.estimators import preconditioned_step
from attnlib.in_context.law import RegressionLaw, toeplitz_covariance
from tests.bad_input import refusing

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
    raw = as_raw(one, 12)
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
    readings = (as_raw(circuits, 12), False), (circuits, True)
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


test_refuses = refusing(
    (train_linear_attention, (RegressionLaw(2, 5),), {"steps": 0, "batch": 0, "runs": -1}),
    (lambda: as_raw(some_circuits(3, 1), 0), "length must be a whole number >= 1; got 0"),
)  # fmt: skip
