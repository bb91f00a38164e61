"""The reduction of the risk: against dense prompts with labels, against closed forms, and against wrong constants."""

import math

import numpy as np
import pytest
import torch

from attnbook.in_context.reduced import reduced_moments, reduced_risk, reduced_risk_per_batch
from attnlib.in_context.law import RegressionLaw, toeplitz_covariance
from tests.bad_input import refusing


def brute_force(omega, mu, d, length, s2, prompts, seed):
    """Squared error of the model on prompts with task vectors and noisy labels; numpy only, nothing of the package."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((prompts, length, d))
    query, beta = rng.standard_normal((2, prompts, d))
    y = np.einsum("pld,pd->pl", x, beta) + math.sqrt(s2) * rng.standard_normal((prompts, length))
    score = np.einsum("pld,pd->pl", x, query)
    prediction = np.zeros(prompts)
    for w, m in zip(omega, mu, strict=True):
        weight = np.exp(w * score - (w * score).max(1, keepdims=True))
        prediction += m * (weight * y).sum(1) / weight.sum(1)
    error = (prediction - (query * beta).sum(1)) ** 2
    return error.mean(), error.std() / math.sqrt(prompts)


SETTINGS = [  # d, length, noise_std, omega, mu
    (3, 7, 0.5, [0.4, -0.2, 1.1], [1.0, -1.5, 0.3]),
    (5, 40, 0.4, [-0.14, 0.14], [-3.0, 3.1]),
    (2, 1, 0.7, [0.6], [0.8]),
    (4, 13, 0.3, [3.0], [0.7]),
    (1, 5, 1.0, [0.5, -0.4], [0.9, -0.6]),
]


@pytest.mark.parametrize(("d", "length", "noise_std", "omega", "mu"), SETTINGS)
def test_risk_is_that_of_dense_prompts_and_a_wrong_constant_is_seen(d, length, noise_std, omega, mu):
    law = RegressionLaw(d, length, noise_std)
    prompts = 250_000 if length < 20 else 80_000
    dense, dense_error = brute_force(omega, mu, d, length, law.noise_variance, prompts, seed=7)
    value, error = reduced_risk(omega, mu, law, seed=1)
    both = math.hypot(dense_error, error.item())
    assert abs(value.item() - dense) < 4 * both
    # d in the place of d - 1 is the law with s2 + 1; without the noise, s2 = 0.
    for wrong_variance in (law.noise_variance + 1, 0.0):
        wrong = RegressionLaw(d, length, math.sqrt(wrong_variance / d))
        assert abs(reduced_risk(omega, mu, wrong, seed=1)[0].item() - dense) > 6 * both


def test_moments_and_direct_risk_are_two_ways_to_one_number():
    law = RegressionLaw(3, 11, 0.4)
    omega, mu = [0.3, -0.7, 0.3, 1.2], [1.1, -0.4, 0.5, 0.2]
    kwargs = {"prompts": 4000, "batches": 8, "seed": 5}
    moments = reduced_moments(omega, law, **kwargs)
    direct = reduced_risk_per_batch(omega, mu, law, **kwargs)
    torch.testing.assert_close(moments.risk_per_batch(mu), direct, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(
        moments.at([2, 1]).risk_per_batch([0.5, -0.4]),
        reduced_risk_per_batch([0.3, -0.7], [0.5, -0.4], law, **kwargs),
        rtol=1e-9,
        atol=1e-9,
    )
    value, error = moments.risk(torch.tensor([mu, [0.0, 0.0, 0.0, 0.0]]))
    torch.testing.assert_close(value[1].item(), 3.0)
    assert error[1] == 0
    assert error[0] == pytest.approx(direct.std().item() / math.sqrt(8), rel=1e-6)


def test_a_very_sharp_head_copies_the_label_of_the_nearest_example():
    d, length = 3, 9
    law = RegressionLaw(d, length, 0.2)
    rng = np.random.default_rng(3)
    best, r2 = rng.standard_normal((400_000, length)).max(1), rng.chisquare(d, 400_000)
    sampled = (np.sqrt(r2) - 0.5 * best) ** 2 + (d - 1 + law.noise_variance) * 0.25
    value, error = reduced_risk([1e6], [0.5], law)
    assert abs(value.item() - sampled.mean()) < 4 * math.hypot(error.item(), sampled.std() / 400_000**0.5) + 1e-4
    assert torch.isfinite(reduced_moments([700.0, -1e5], law, prompts=200).overlap).all()


def test_standard_errors_are_honest():
    law = RegressionLaw(3, 8, 0.3)
    answers = [reduced_risk([0.5, -0.3], [1.0, -1.0], law, prompts=4000, seed=s) for s in range(80)]
    values, errors = (torch.stack(part) for part in zip(*answers, strict=True))
    truth, last = reduced_risk([0.5, -0.3], [1.0, -1.0], law, prompts=400_000, seed=99)
    assert 0.75 < ((values - truth) / errors).std() < 1.5
    assert (values.mean() - truth).abs() < 4 * math.hypot(values.std().item() / math.sqrt(80), last.item())


def test_repository_units_are_notebook_units_over_d():
    kwargs = {"prompts": 2000, "batches": 4}
    first, second = (
        reduced_moments([0.4, -0.1], RegressionLaw(6, 9, 0.3, name), **kwargs) for name in ("notebook", "repository")
    )
    torch.testing.assert_close(first.overlap, 6 * second.overlap)
    torch.testing.assert_close(first.gain, 6 * second.gain)
    assert (first.zero_risk, second.zero_risk) == (6, pytest.approx(1))


def test_draws_are_shared_between_settings_and_differ_between_seeds_and_roles():
    law = RegressionLaw(4, 12, 0.2)
    alone = reduced_risk_per_batch([0.2], [1.0], law, prompts=800, batches=4)
    together = reduced_risk_per_batch([[0.7], [0.2]], [[0.5], [1.0]], law, prompts=800, batches=4)
    torch.testing.assert_close(alone, together[:, 1], rtol=1e-9, atol=1e-9)
    others = [
        reduced_risk_per_batch([0.2], [1.0], law, prompts=800, batches=4, **change)
        for change in ({"seed": 1}, {"role": "search"})
    ]
    assert all((alone - other).abs().min() > 1e-4 for other in others)


def test_chunks_do_not_change_the_numbers(monkeypatch):
    law = RegressionLaw(3, 7, 0.2)
    whole = reduced_moments([0.3, -0.9], law, prompts=900, batches=3)
    direct = reduced_risk([[0.3, 1.0]] * 5, [[1.0, 2.0]] * 5, law, prompts=900, batches=3)[0]
    monkeypatch.setattr("attnbook.in_context.reduced._CHUNK_NUMBERS", 700)
    torch.testing.assert_close(reduced_moments([0.3, -0.9], law, prompts=900, batches=3).overlap, whole.overlap)
    torch.testing.assert_close(reduced_risk([[0.3, 1.0]] * 5, [[1.0, 2.0]] * 5, law, prompts=900, batches=3)[0], direct)


LAW = RegressionLaw(3, 7)
test_bad_arguments_are_named = refusing(
    (reduced_risk, ([0.1], [1.0], LAW), {"batches": 1, "prompts": 39, "role": "noise"}),
    (lambda: reduced_risk([1.0, 2.0], [1.0, 2.0, 3.0], LAW), r"one shape \(\.\.\., heads\); got \(2,\) and \(3,\)"),
    (lambda: reduced_moments([0.1, math.nan], LAW), "omega must be one finite number or more"),
    (lambda: reduced_moments([[0.1]], LAW), "omega must have 1 axis"),
    (
        reduced_moments,
        ([0.1], LAW),
        {
            "law": [
                RegressionLaw(3, 7, covariance=toeplitz_covariance(3, 0.5)),
                RegressionLaw(3, 7, mean=(1.0, 0.0, 0.0)),
            ]
        },
    ),
)
