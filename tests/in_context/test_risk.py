"""Risk of any circuits: the conditional formula against brute force, its controls against their means, closed forms, bad input."""

import math

import pytest
import torch

from attnlib.in_context.circuits import Circuits, circuits_of, predict, two_number_circuits
from attnlib.in_context.errors import _controls, risk_of, risk_per_prompt
from attnlib.in_context.law import RegressionLaw, toeplitz_covariance
from attnlib.in_context.model import initial_weights


def sampled(circuits: Circuits, law: RegressionLaw, count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    prompts = law.draw(count, seed)
    error = (predict(circuits, prompts) - prompts.clean_target).square()
    return error.mean(-1), error.std(-1) / math.sqrt(count)


@pytest.mark.parametrize(
    "law",
    [
        RegressionLaw(2, 5, 0.4),
        RegressionLaw(4, 9, 0.7, "repository"),
        RegressionLaw(3, 6, 0.5, covariance=toeplitz_covariance(3, 0.7), mean=(0.5, 0.0, -1.0)),
    ],
    ids=lambda law: f"{law.d}-{law.length}-{law.convention}",
)
def test_any_circuits_against_brute_force(law: RegressionLaw) -> None:
    """Random weights look at labels and write covariates: all terms count. Five standard errors, and they are small."""
    circuits = circuits_of(initial_weights(law.d, 3, seed=1, runs=4))
    circuits = Circuits(3 * circuits.key_query, 3 * circuits.output_value)
    value, error = risk_of(circuits, law, prompts=20_000, seed=0)
    brute, brute_error = sampled(circuits, law, 100_000, 7)
    z = (value - brute) / torch.hypot(error, brute_error)
    assert z.abs().max() < 5
    assert (error / value).max() < 0.05
    no_labels = Circuits(circuits.key_query.clone(), circuits.output_value)
    no_labels.key_query[..., law.d, :] = 0
    assert ((risk_of(no_labels, law, prompts=20_000)[0] - brute) / brute_error).abs().max() > 5, (
        "the label row must matter"
    )


def test_what_labels_add_is_the_mean_over_both_signs_of_all_labels() -> None:
    """Prompt by prompt, with squared errors of the model itself: no digit is left to chance."""
    law = RegressionLaw(3, 6, 0.5, covariance=toeplitz_covariance(3, 0.7))
    circuits = circuits_of(initial_weights(law.d, 2, seed=3))
    blind = Circuits(circuits.key_query.clone(), circuits.output_value)
    blind.key_query[..., law.d, :] = 0
    one = law.draw(40, 2)
    both = torch.zeros(40, dtype=torch.float64)
    for sign in (1, -1):
        mirrored = type(one)(one.x, sign * one.y, one.query, sign * one.target, sign * one.beta)
        errors = [(predict(c, mirrored) - mirrored.clean_target).square() for c in (circuits, blind)]
        both += (errors[0] - errors[1]).reshape(40) / 2
    added = risk_per_prompt(circuits, law, one) - risk_per_prompt(blind, law, one)
    torch.testing.assert_close(added.reshape(40), both, rtol=1e-10, atol=1e-12)
    assert both.abs().max() > 1e-3


def test_controls_have_mean_zero() -> None:
    for d, length in ((2, 3), (5, 8), (3, 1)):
        law = RegressionLaw(d, length)
        controls = _controls(law, law.draw(60_000, 5))
        spread = controls.std(0).clamp(min=1e-12)
        assert (controls.mean(0).abs() / spread * math.sqrt(60_000)).max() < 5


def test_zero_circuits_and_units() -> None:
    zero = two_number_circuits(torch.zeros(2).double(), torch.zeros(2).double(), 3)
    for convention, expected in (("notebook", 3.0), ("repository", 1.0)):
        value, error = risk_of(zero, RegressionLaw(3, 4, 0.2, convention), prompts=500)
        assert value.item() == pytest.approx(expected, abs=1e-9)
        assert error.item() == pytest.approx(0, abs=1e-9)


def test_chunks_change_nothing(monkeypatch) -> None:
    law = RegressionLaw(2, 5, 0.3)
    circuits = circuits_of(initial_weights(2, 2, runs=3))
    whole = risk_of(circuits, law, prompts=100)[0]
    monkeypatch.setattr("attnlib.in_context.errors._CHUNK_NUMBERS", 7 * 5 * 6)
    torch.testing.assert_close(risk_of(circuits, law, prompts=100)[0], whole)


def test_bad_arguments() -> None:
    circuits = circuits_of(initial_weights(2, 2))
    with pytest.raises(ValueError, match="circuits must be for d = 3, the law's; got circuits for d = 2"):
        risk_of(circuits, RegressionLaw(3, 5))
    with pytest.raises(ValueError, match="prompts must be a whole number >= 50"):
        risk_of(circuits, RegressionLaw(2, 5), prompts=10)
    circuits.key_query[0, 0, 0, 0] = math.nan
    with pytest.raises(ValueError, match="circuits must be finite numbers"):
        risk_of(circuits, RegressionLaw(2, 5))
