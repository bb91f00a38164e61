"""III.1: prompts by number, hidden labels, conditional means, conventions and limits, each computed a second way."""

import dataclasses
import math

import pytest
import torch

from attnbook.in_context.data_and_model.claims import CLAIMS
from attnbook.in_context.data_and_model.study import (
    ask_about,
    data_study,
    gain_of_halving,
    redraw_labels,
    small_omega,
    training_batch,
    training_prompt,
)
from attnlib.in_context.errors import conditional_risk
from attnlib.in_context.experiment import Experiment
from attnlib.in_context.law import RegressionLaw
from bookkit.claims import Verdict

SMALL = Experiment(
    heads=2, d=3, length=7, noise_std=0.3, batch=11, steps=4, records=2, runs=2, seed=2**40 + 5, first_run=3
)
LAW = SMALL.law


def test_a_prompt_made_alone_is_the_one_in_its_batch():
    for step, number, run in ((0, 0, 0), (5, 10, 1), (500_000, 3, 0)):
        batch = training_batch(SMALL, step, run)
        alone = training_prompt(SMALL, step, number, run)
        assert batch.context.shape == (11, 7, 4)
        for field in dataclasses.fields(batch):
            mine, theirs = getattr(alone, field.name), getattr(batch, field.name)[number : number + 1]
            torch.testing.assert_close(mine, theirs, rtol=0, atol=0)
    assert not torch.equal(training_batch(SMALL, 0, 0).x, training_batch(SMALL, 0, 1).x)


def test_an_example_becomes_the_question():
    prompts = LAW.draw(5, 0)
    hidden = ask_about(prompts, 2)
    assert hidden.x.shape == (5, 6, 3)
    torch.testing.assert_close(hidden.query, prompts.x[:, 2], rtol=0, atol=0)
    torch.testing.assert_close(hidden.target, prompts.y[:, 2], rtol=0, atol=0)
    torch.testing.assert_close(hidden.y[:, 2], prompts.y[:, 3], rtol=0, atol=0)
    assert hidden.query_token[..., -1].abs().max() == 0


@pytest.mark.parametrize("convention", ["notebook", "repository"])
def test_the_conditional_mean_by_hand_and_by_sampling(convention):
    """The error is linear in beta and noise: its mean square is the sum of squared coefficients times variances."""
    law = RegressionLaw(3, 4, 0.7, convention)
    prompts = law.draw(6, 1)
    weights = torch.linspace(-1, 1.5, 24, dtype=torch.float64).reshape(6, 4)
    formula = conditional_risk(weights, prompts, law)
    beta_variance, noise_variance = (1.0, 3 * 0.49) if convention == "notebook" else (1 / 3, 0.49)
    for b in range(6):
        by_beta = sum(
            (sum(weights[b, i] * prompts.x[b, i, k] for i in range(4)) - prompts.query[b, k]) ** 2 for k in range(3)
        )
        expected = beta_variance * by_beta + noise_variance * (weights[b] ** 2).sum()
        assert formula[b].item() == pytest.approx(expected.item(), rel=1e-12)
    sampled = redraw_labels(weights, prompts, law, 40_000, 0)
    # A square of a normal number has relative variance 2.
    assert ((sampled / formula - 1).abs() < 5 * math.sqrt(2 / 40_000)).all()


def test_faint_heads_by_hand():
    """One prompt: the pair's prediction minus the centred step, over omega^2, is the third-order term."""
    law = RegressionLaw(3, 7, 0.2)
    limit = small_omega(law, 50, 3, (0.02, 0.01))
    assert limit.pair_to_centred.shape == (10, 2)
    torch.testing.assert_close(
        gain_of_halving(limit.pair_to_centred), torch.full((10,), 4.0, dtype=torch.float64), rtol=5e-3, atol=0
    )
    torch.testing.assert_close(limit.pair_to_centred[:, 1], 0.01**2 * limit.third_order, rtol=5e-3, atol=0)
    torch.testing.assert_close(limit.one_to_centred[:, 1], limit.mean_label / 0.01, rtol=0.05, atol=0)
    prompts = law.draw(50, 3)  # run 0: the first batch
    total, size = 0.0, 0.0
    for b in range(50):
        s = prompts.x[b] @ prompts.query[b]
        up, down = (torch.softmax(sign * 0.01 * s, 0) for sign in (1, -1))
        step = (prompts.y[b] * (s - s.mean())).mean()
        total += (50 * ((up - down) * prompts.y[b]).sum() - step).item() ** 2
        size += step.item() ** 2
    assert limit.pair_to_centred[0, 1].item() == pytest.approx(math.sqrt(total / size), rel=1e-9)
    assert (gain_of_halving(limit.pair_to_plain) - 1).abs().max() < 0.05


def test_one_example_has_no_centred_step() -> None:
    experiment = Experiment(steps=5, records=2, runs=2, shared_data=True, seed=4, length=1)
    result = CLAIMS["I17"].check(data_study(experiment, count=10, redraws=10))
    assert result.verdict == Verdict.OUTSIDE
    assert "needs length > 1" in result.violated
