"""Beside the pattern: symmetries prompt by prompt, the Hessian by automatic differentiation, rates at zero, descent on orbits."""

import math

import pytest
import torch

from attnbook.in_context.off_pattern import (
    KINDS,
    descend,
    off_pattern_hessian,
    off_pattern_size,
    orbit,
    pattern_size,
    rates_at_zero,
    risk_gradient,
    small_starts,
)
from attnlib.in_context.circuits import Circuits, predict, two_number_circuits
from attnlib.in_context.law import Prompts, RegressionLaw, toeplitz_covariance

LAW = RegressionLaw(3, 6, 0.4)


def circuits(seed, heads=2, d=3, size=0.5):
    generator = torch.Generator().manual_seed(seed)
    M, V = (
        size * torch.randn(heads, *shape, generator=generator, dtype=torch.float64)
        for shape in ((d + 1, d + 1), (d + 1,))
    )
    return Circuits(M, V)


def loss(model, prompts):
    return (predict(model, prompts) - prompts.clean_target).square()


def test_three_symmetries_prompt_by_prompt():
    """The maps of the proof, with a rotation that is no permutation: the same squared errors, prompt by prompt."""
    prompts, model = LAW.draw(50, 1), circuits(2)
    U = torch.linalg.qr(torch.randn(3, 3, generator=torch.Generator().manual_seed(3), dtype=torch.float64)).Q
    big = torch.block_diag(U, torch.ones(1, 1, dtype=torch.float64))
    turned = Prompts(prompts.x @ U.T, prompts.y, prompts.query @ U.T, prompts.target, prompts.beta @ U.T)
    other = Circuits(big.T @ model.key_query @ big, model.output_value @ big)
    assert torch.allclose(loss(model, turned), loss(other, prompts), rtol=1e-12)
    T = torch.diag(torch.tensor([1.0, 1, 1, -1], dtype=torch.float64))
    labels = Prompts(prompts.x, -prompts.y, prompts.query, -prompts.target, -prompts.beta)
    other = Circuits(T @ model.key_query @ T, -model.output_value @ T)
    assert torch.allclose(loss(model, labels), loss(other, prompts), rtol=1e-12)
    query = Prompts(prompts.x, prompts.y, -prompts.query, -prompts.target, prompts.beta)
    other = Circuits(-model.key_query, -model.output_value)
    assert torch.allclose(loss(model, query), loss(other, prompts), rtol=1e-12)


def test_an_orbit_is_left_as_it_is():
    few = LAW.draw(2, 4)
    many = orbit(few)
    assert many.y.shape == (2 * 6 * 2**5, 6)
    assert torch.allclose(many.clean_target.abs().sum(), few.clean_target.abs().sum() * 6 * 2**5)
    model = two_number_circuits(torch.tensor([0.4, -0.1]).double(), torch.tensor([0.7, 0.3]).double(), 3)
    slope = risk_gradient(model, many)
    assert off_pattern_size(slope) < 1e-14 < 1e-3 < pattern_size(slope)
    # Without the signs of the query the mean label meets the target by chance: still on the pattern, but not the same.
    assert off_pattern_size(risk_gradient(model, few)) > 1e-3


@pytest.mark.parametrize("kind", ["covariance", "mean"])
def test_other_laws_have_their_own_invariant_sets(kind):
    """Sets 1 and 3 or 4 of the theorem: the gradient of many prompts has no part beside them, within its chance."""
    if kind == "covariance":
        law = RegressionLaw(3, 6, 0.4, covariance=toeplitz_covariance(3, 0.6))
        sigma = law.covariance_matrix
        inside = [torch.eye(3, dtype=torch.float64), sigma, sigma @ sigma]
    else:
        law = RegressionLaw(3, 6, 0.4, mean=(0.9, -0.5, 0.2))
        inside = [torch.eye(3, dtype=torch.float64), torch.outer(law.mean_vector, law.mean_vector)]
    M, V = torch.zeros(2, 4, 4, dtype=torch.float64), torch.zeros(2, 4, dtype=torch.float64)
    M[0, :3, :3] = 0.3 * inside[0] + 0.1 * inside[1]
    M[1, :3, :3] = -0.2 * inside[0] + 0.05 * inside[-1]
    V[:, 3] = torch.tensor([0.8, -0.5])
    basis = torch.linalg.qr(torch.stack([part.flatten() for part in inside], 1)).Q
    rows = []
    for run in range(60):
        slope = risk_gradient(Circuits(M, V), law.draw(2000, 5, run=run))
        block = slope.covariate_block.flatten(1)
        beside = block - block @ basis @ basis.T
        rows.append(
            torch.cat([beside.flatten(), slope.label_row.flatten(), slope.output_rest.flatten(), block.flatten()])
        )
    rows = torch.stack(rows)
    z = rows.mean(0) / (rows.std(0) / math.sqrt(60) + 1e-12)
    assert z[:30].abs().max() < 4.5
    assert z[30:].abs().max() > 20


def test_opposite_heads_stay_opposite():
    half = circuits(6, heads=1)
    start = Circuits(torch.cat([half.key_query, -half.key_query]), torch.cat([half.output_value, -half.output_value]))
    end, _ = descend(start, orbit(LAW.draw(3, 2)), steps=30, rate=0.1)
    assert (end.key_query[0, :, :3] + end.key_query[1, :, :3]).abs().max() < 1e-12
    assert end.output_value.sum(0).abs().max() < 1e-12
    assert (end.output_value - start.output_value).abs().max() > 0.1


def test_factors_keep_the_pattern_if_their_gram_matrices_do():
    """Four factors, each times its own orthogonal matrix: 20 steps on an orbit leave M and V on the pattern; another start does not."""
    there, n = orbit(LAW.draw(2, 9)), 4

    def orthogonal(seed):
        return torch.linalg.qr(torch.randn(n, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)).Q

    def train(parts):
        for _ in range(20):
            parts = [part.detach().requires_grad_() for part in parts]
            query, key, value, output = parts
            model = Circuits((key.T @ query)[None], (output @ value)[None])
            slopes = torch.autograd.grad(loss(model, there).mean(), parts)
            parts = [part - 0.02 * slope for part, slope in zip(parts, slopes, strict=True)]
        return off_pattern_size(Circuits((parts[1].T @ parts[0])[None].detach(), (parts[3] @ parts[2])[None].detach()))

    def diagonal(a, b):
        return torch.diag(torch.tensor([a, a, a, b], dtype=torch.float64))

    last = torch.tensor([[0.0, 0, 0, 0.9]], dtype=torch.float64)
    A, B = orthogonal(1), orthogonal(2)
    good = [A @ diagonal(0.7, 0.2), A @ diagonal(0.5, 0.4), B @ diagonal(0.6, 0.8), last @ B.T]
    assert train(good) < 1e-13
    bad = [
        A @ diagonal(0.7, 0.2) @ torch.diag(torch.tensor([2.0, 1, 1, 1]).double()),
        A @ diagonal(0.5, 0.4),
        *good[2:],
    ]
    bad[1] = (
        A @ diagonal(0.5, 0.4) @ torch.diag(torch.tensor([0.5, 1, 1, 1]).double())
    )  # the same M, other Gram matrices
    assert train(bad) > 1e-4


@pytest.mark.parametrize(("convention", "noise"), [("notebook", 0.5), ("repository", 3.0)])
def test_hessian_is_that_of_the_risk_on_prompts(convention, noise):
    """Second derivatives of the squared error on many prompts, by torch, in one direction of each kind for each pair of copies."""
    law = RegressionLaw(3, 5, noise, convention)
    omega, mu = torch.tensor([0.5, -0.3]).double(), torch.tensor([0.8, -1.1]).double()
    still = two_number_circuits(omega, mu, 3)
    E = torch.zeros(2, 3, 3, dtype=torch.float64)
    E[0, 0, 1] = E[0, 1, 0] = E[1, 0, 1] = math.sqrt(0.5)
    E[1, 1, 0] = -math.sqrt(0.5)

    def risk(x, prompts):
        """x (8,): head 1 and 2 of the symmetric, of the antisymmetric matrix, outputs, label rows (first axis)."""
        M, V = still.key_query.clone(), still.output_value.clone()
        blocks = x[0:2, None, None] * E[0] + x[2:4, None, None] * E[1]
        M = M + torch.nn.functional.pad(blocks, (0, 1, 0, 1))
        row = torch.zeros_like(M)
        row[:, 3, 0] = 1.0
        column = torch.zeros_like(V)
        column[:, 0] = 1.0
        return loss(Circuits(M + x[6:8, None, None] * row, V + x[4:6, None] * column), prompts).mean()

    found = []
    for run in range(40):
        prompts = law.draw(3000, 8, run=run)
        found.append(
            torch.autograd.functional.hessian(lambda x, p=prompts: risk(x, p), torch.zeros(8, dtype=torch.float64)) / 2
        )
    found = torch.stack(found)
    form = off_pattern_hessian(law, omega, mu, prompts=20_000, batches=20, seed=1)
    predicted = torch.block_diag(*(form.per_batch[kind].mean(0) for kind in KINDS))
    chance = torch.block_diag(*(form.per_batch[kind].var(0) / 20 for kind in KINDS)) + found.var(0) / 40
    z = (found.mean(0) - predicted) / chance.sqrt()
    assert z.abs().max() < 4.5
    # Has power: each form five per cent larger is refuted.
    assert ((found.mean(0) - 1.05 * predicted) / chance.sqrt()).abs().max() > 6


def test_hessian_of_small_heads_is_the_price_of_noise():
    """K of a difference of two blocks: 2 mu^2 f (1 + (d + s2) / L), exactly in the limit."""
    law = RegressionLaw(4, 12, 0.3)
    omega = 0.01
    mu = 12 / (12 + 4 + law.noise_variance) / (2 * omega)
    form = off_pattern_hessian(law, [omega, -omega], [mu, -mu], prompts=4000, batches=10)
    expected = 2 * mu**2 * (11 / 12) * (1 + (4 + law.noise_variance) / 12)
    for kind in KINDS[:2]:
        assert form.eigenvalues(kind)[-1].item() == pytest.approx(expected, rel=0.01)
        assert form.direction(kind) == pytest.approx(torch.full((2,), math.sqrt(0.5), dtype=torch.float64), abs=1e-3)


def test_rates_at_zero_are_those_of_the_linearised_flow():
    law = RegressionLaw(4, 9, 0.2)
    fast, slow, rest = rates_at_zero(law)
    assert (fast, slow, rest) == pytest.approx((2 * 8 / 9, 8 / 9, 0))
    form = off_pattern_hessian(law, [1e-6, -1e-6], [1e-6, -1e-6], prompts=4000, batches=10)
    assert -form.eigenvalues(KINDS[2])[0].item() == pytest.approx(slow, rel=0.02)
    assert form.eigenvalues(KINDS[0]).abs().max() < 1e-9


def test_small_starts_have_the_exponent_of_their_rates():
    for start in small_starts(RegressionLaw(2, 8, 0.1), (1e-7, 1e-10), draws=2, prompts=12, seed=3):
        assert start.slope == pytest.approx(start.exponent, abs=0.02)
        assert 0.1 < start.exponent < 0.5


def test_bad_input():
    with pytest.raises(ValueError, match=r"\(heads,\) both"):
        off_pattern_hessian(LAW, [0.1, 0.2], [1.0])
    with pytest.raises(ValueError, match="d must be a whole number"):
        off_pattern_hessian(RegressionLaw(1, 4), [0.1], [1.0])
    with pytest.raises(ValueError, match="isotropic"):
        off_pattern_hessian(RegressionLaw(2, 4, mean=(1.0, 0.0)), [0.1], [1.0])
