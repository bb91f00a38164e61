"""III.8: symmetries prompt by prompt, the Hessian by automatic differentiation, rates at zero, descent on orbits."""

import math

import pytest
import torch

from attnbook.in_context.what_holds_the_pattern.study import (
    KINDS,
    antisymmetric_share,
    gain_of_turning,
    least,
    off_pattern_hessian,
    off_pattern_size,
    orbit,
    pattern_size,
    rates_at_zero,
    risk_gradient,
    small_starts,
    without_turning,
)
from attnlib.in_context.circuits import Circuits, predict, two_number_circuits
from attnlib.in_context.law import RegressionLaw

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


def test_an_orbit_is_left_as_it_is():
    few = LAW.draw(2, 4)
    many = orbit(few)
    assert many.y.shape == (2 * 6 * 2**5, 6)
    torch.testing.assert_close(many.clean_target.abs().sum(), few.clean_target.abs().sum() * 6 * 2**5)
    model = two_number_circuits(torch.tensor([0.4, -0.1]).double(), torch.tensor([0.7, 0.3]).double(), 3)
    slope = risk_gradient(model, many)
    assert off_pattern_size(slope) == pytest.approx(0, abs=1e-14)
    assert pattern_size(slope) > 1e-3
    # Without the signs of the query the mean label meets the target by chance: still on the pattern, but not the same.
    assert off_pattern_size(risk_gradient(model, few)) > 1e-3


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
    predicted = torch.block_diag(*(form[kind].mean(0) for kind in KINDS))
    chance = torch.block_diag(*(form[kind].var(0) / 20 for kind in KINDS)) + found.var(0) / 40
    z = (found.mean(0) - predicted) / chance.sqrt()
    assert z.abs().max() < 4.5
    # Has power: each form five per cent larger is refuted.
    assert ((found.mean(0) - 1.05 * predicted) / chance.sqrt()).abs().max() > 6


def test_rates_at_zero_are_those_of_the_linearised_flow():
    law = RegressionLaw(4, 9, 0.2)
    fast, slow, rest = rates_at_zero(law)
    assert (fast, slow, rest) == pytest.approx((2 * 8 / 9, 8 / 9, 0))
    form = off_pattern_hessian(law, [1e-6, -1e-6], [1e-6, -1e-6], prompts=4000, batches=10)
    assert -least(form[KINDS[2]]) == pytest.approx(slow, rel=0.02)
    still = torch.linalg.eigvalsh(form[KINDS[0]].mean(0))
    torch.testing.assert_close(still, torch.zeros_like(still), rtol=0, atol=1e-9)


def test_small_starts_have_the_exponent_of_their_rates():
    found = small_starts(RegressionLaw(2, 8, 0.1), (1e-7, 1e-10), draws=2, prompts=12, seed=3)
    assert found.reached.all()
    torch.testing.assert_close(found.slope, found.exponent, rtol=0, atol=0.02)
    torch.testing.assert_close(found.exponent, 1 - found.growth)
    assert ((0.1 < found.exponent) & (found.exponent < 0.5)).all()


def test_rotations_and_stretches():
    """B = omega I + symmetric + antisymmetric part: squared norms 2 (0.3^2) and 2 (0.4^2)."""
    M = torch.zeros(3, 4, 4, dtype=torch.float64)
    M[:, :3, :3] = 0.7 * torch.eye(3, dtype=torch.float64)
    M[0, 0, 1], M[0, 1, 0] = 0.3 + 0.4, 0.3 - 0.4
    M[1, 0, 2], M[1, 2, 0] = 0.4, -0.4
    M[2, 1, 2], M[2, 2, 1] = 0.3, 0.3
    M[..., 3] = 5.0  # the untrained column has no say
    share = antisymmetric_share(Circuits(M, torch.zeros(3, 4)))
    torch.testing.assert_close(share, torch.tensor([0.16 / 0.25, 1.0, 0.0], dtype=torch.float64))
    straight = without_turning(Circuits(M, torch.zeros(3, 4))).key_query
    assert straight[0, 0, 1] == straight[0, 1, 0] == pytest.approx(0.3)
    assert straight[1, 0, 2] == straight[1, 2, 0] == 0
    torch.testing.assert_close(straight[..., 3], M[..., 3], rtol=0, atol=0)
    torch.testing.assert_close(straight.diagonal(dim1=1, dim2=2), M.diagonal(dim1=1, dim2=2), rtol=0, atol=1e-15)


def test_the_gain_of_turning_is_a_difference_of_risks():
    """Against plain Monte Carlo of both models on many prompts."""
    law = RegressionLaw(3, 8, 0.2)
    key_query = two_number_circuits(torch.tensor([0.5, 0.5]).double(), torch.tensor([1.0, 0.5]).double(), 3).key_query
    key_query[:, 0, 1] += torch.tensor([0.4, -0.8])
    key_query[:, 1, 0] -= torch.tensor([0.4, -0.8])
    values = torch.zeros(2, 4, dtype=torch.float64)
    values[:, 3] = torch.tensor([1.0, 0.5])
    turned = Circuits(key_query, values)
    mean, error = gain_of_turning(turned, law, prompts=3000, seed=1)
    prompts = law.draw(200_000, 7)
    errors = [
        (predict(circuits, prompts) - prompts.clean_target).square() for circuits in (without_turning(turned), turned)
    ]
    plain = errors[0] - errors[1]
    width = math.hypot(plain.std().item() / math.sqrt(200_000), error.item())
    assert abs(mean.item() - plain.mean().item()) < 4 * width
    assert mean.item() < -4 * error.item()  # too much turning for so few examples
    few, _ = gain_of_turning(turned, law, prompts=2, seed=1)
    assert few.isfinite()
