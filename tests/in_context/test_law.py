"""The data law: shapes, moments in both conventions, covariance and mean, and what it refuses."""

import math

import numpy as np
import pytest
import torch

from attnlib import checks
from attnlib.in_context.circuits import predict, two_number_circuits
from attnlib.in_context.law import RegressionLaw, toeplitz_covariance
from tests.bad_input import refusing, refusing_changes


def test_shapes_are_those_of_the_tokens() -> None:
    prompts = RegressionLaw(5, 40).draw(128, 0)
    assert prompts.context.shape == (128, 40, 6)
    assert prompts.query_token.shape == (128, 1, 6)
    assert prompts.targets.shape == (128, 1, 1)
    assert prompts.query_token[..., -1].abs().max() == 0
    torch.testing.assert_close(prompts.context[..., -1], prompts.y)
    assert prompts.part(100, 200).y.shape == (28, 40)


def test_the_normals_are_used_in_the_order_of_the_stream() -> None:
    """Even and odd d: tokens are padded to an even number of normals, and no normal is used twice."""
    for d, length in ((2, 3), (3, 4)):
        law = RegressionLaw(d, length, 0.5, "repository")
        per_token = 2 * math.ceil((d + 1) / 2)
        assert law.normals_per_prompt == 2 * d + 2 + length * per_token
        g = np.arange(1.0, law.normals_per_prompt + 1)[None]
        prompts = law.from_normals(g)
        beta = g[0, :d] / math.sqrt(d)
        np.testing.assert_allclose(prompts.beta[0], beta)
        np.testing.assert_allclose(prompts.query[0], g[0, d : 2 * d])
        np.testing.assert_allclose(prompts.target[0], g[0, d : 2 * d] @ beta + 0.5 * g[0, 2 * d])
        for i in range(length):
            token = g[0, 2 * d + 2 + i * per_token :][: d + 1]
            np.testing.assert_allclose(prompts.x[0, i], token[:d])
            np.testing.assert_allclose(prompts.y[0, i], token[:d] @ beta + 0.5 * token[d])


@pytest.mark.parametrize("convention", ["notebook", "repository"])
def test_moments(convention: str) -> None:
    """E y^2 = s_beta^2 d + noise^2, residual variances by themselves, within 5 s.e. of 40 000 prompts."""
    d, length, noise = 3, 4, 0.4
    law = RegressionLaw(d, length, noise, convention)
    prompts = law.draw(40_000, 1)
    beta_variance, label_variance, target_variance = (
        (1.0, d * noise**2, 0.0) if convention == "notebook" else (1 / d, noise**2, noise**2)
    )

    def check(values: torch.Tensor, expected: float) -> None:
        flat = values.flatten()
        assert abs(flat.mean() - expected) < 5 * flat.std() / math.sqrt(len(flat)) + 1e-12

    check(prompts.beta.square(), beta_variance)
    residual = prompts.y - torch.einsum("bld,bd->bl", prompts.x, prompts.beta)
    check(residual.square(), label_variance)
    check((prompts.target - prompts.clean_target).square(), target_variance)
    check(prompts.clean_target.square(), d * beta_variance)
    check(residual[:, 0] * residual[:, 1], 0.0)
    assert law.noise_variance == pytest.approx(label_variance / beta_variance)


def test_the_dictionary_between_the_conventions() -> None:
    """From the same normal numbers: labels and predictions sqrt(d) times, risks d times as large; the loss is the risk only in one."""
    d, noise = 5, 0.7
    normals = np.random.default_rng(0).standard_normal((3000, RegressionLaw(d, 6).normals_per_prompt))
    ours, theirs = (RegressionLaw(d, 6, noise, name).from_normals(normals) for name in ("notebook", "repository"))
    torch.testing.assert_close(ours.x, theirs.x, rtol=0, atol=0)
    torch.testing.assert_close(ours.y, math.sqrt(d) * theirs.y)
    heads = two_number_circuits(torch.tensor([0.3, -0.2]).double(), torch.tensor([1.5, -2.0]).double(), d)
    guesses = predict(heads, ours), predict(heads, theirs)
    torch.testing.assert_close(guesses[0], math.sqrt(d) * guesses[1])
    risks = [(guess - each.clean_target).square() for guess, each in zip(guesses, (ours, theirs), strict=True)]
    torch.testing.assert_close(risks[0], d * risks[1])
    torch.testing.assert_close(ours.target, ours.clean_target, rtol=0, atol=0)
    added = (guesses[1] - theirs.target).square() - risks[1]
    assert abs(added.mean() - noise**2) < 5 * added.std() / math.sqrt(len(added))
    assert added.mean() > 10 * added.std() / math.sqrt(len(added))


def test_covariance_and_mean() -> None:
    d, count = 3, 60_000
    mean = (1.0, -2.0, 0.5)
    law = RegressionLaw(d, 2, covariance=toeplitz_covariance(d, 0.6), mean=mean)
    prompts = law.draw(count, 3)
    for values in (prompts.query, prompts.x[:, 1]):
        centred = values - torch.tensor(mean, dtype=torch.float64)
        assert (centred.mean(0).abs() < 5 / math.sqrt(count)).all()
        products = centred[:, :, None] * centred[:, None, :]
        error = (products.mean(0) - law.covariance_matrix).abs() / (products.std(0) / math.sqrt(count))
        assert error.max() < 5
    assert law.covariance_matrix[0, 2] == pytest.approx(0.36)
    assert not law.isotropic
    assert RegressionLaw(d, 2).isotropic


def test_held_out_prompts_differ_from_run_to_run_and_role_to_role() -> None:
    law = RegressionLaw(2, 3)
    first, again, other = law.draw(4, 0), law.draw(4, 0), law.draw(4, 0, run=1)
    torch.testing.assert_close(first.x, again.x, rtol=0, atol=0)
    assert (first.x - other.x).abs().min() > 0
    assert (first.x - law.draw(4, 0, role="search").x).abs().min() > 0


@pytest.mark.parametrize("unit", [1e-160, 1.0, 1e12])
def test_a_covariance_has_any_unit(unit) -> None:
    covariance = (
        np.linalg.inv(np.linalg.inv(np.array(toeplitz_covariance(5, 0.9)))) * unit
    )  # symmetric but for rounding
    assert not (covariance == covariance.T).all()
    law = RegressionLaw(5, 3, covariance=covariance)
    torch.testing.assert_close(
        law.draw(4, 0).x,
        math.sqrt(unit) * RegressionLaw(5, 3, covariance=covariance / unit).draw(4, 0).x,
        rtol=1e-10,
        atol=0,
    )


@pytest.mark.parametrize(
    "seen", [lambda x: x[::-1], lambda x: x.astype(">f8")[::-1], lambda x: np.broadcast_to(x[-1], x.shape)]
)
def test_arrays_that_torch_does_not_take(seen) -> None:
    law, normals = RegressionLaw(2, 3), np.random.default_rng(0).standard_normal((4, 18))
    torch.testing.assert_close(law.from_normals(seen(normals)).y[0], law.from_normals(normals).y[-1], rtol=0, atol=0)
    assert checks.numbers("row", seen(normals))[0].tolist() == normals[-1].tolist()


SLOPE = np.array([0.3, 0.7])

test_bad_laws = refusing_changes(
    RegressionLaw,
    {"d": 2, "length": 3},
    (
        {"covariance": ((1.0, 2.0), (2.0, 1.0))},
        "symmetric and positive definite; got one that is 0 off .* least eigenvalue -1",
    ),
    ({"covariance": 1e-13 * np.array([[1.0, 0.9], [-0.9, 1.0]])}, "got one that is 1.8e-13 off its transpose"),
    (
        {"covariance": np.outer(SLOPE, SLOPE)},
        "positive definite",
    ),  # of rank one: its eigenvalues are 0 but for rounding
    ({"covariance": ((1.0,),)}, r"covariance must be finite numbers of shape \(2, 2\)"),
    ({"mean": [0.0] * 5000}, r"mean must be finite numbers of shape \(2,\); got .{1,60}\n"),
    ({"mean": (1.0, 2.0, 3.0)}, r"mean must be finite numbers of shape \(2,\)"),
)

test_bad_arguments = refusing(
    (lambda: RegressionLaw(2, 3).from_normals(np.zeros((4, 17))), r"normals must have shape \(..., B, 18\)"),
    (lambda: checks.numbers("offset", [math.nan] * 5000), r"offset must be finite numbers; got .{1,50}$"),
    (lambda: toeplitz_covariance(3, 1.0), r"rho must be in \(-1, 1\)"),
)
