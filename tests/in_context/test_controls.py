"""Negative controls of Part III could have held: each judge, given data of its control's world, accepts the control."""

from types import SimpleNamespace as Study

import numpy as np
import pytest
import torch

from attnbook.in_context.circuits import claims as circuits
from attnbook.in_context.deeper_and_wider.claims import CLAIMS as WIDER
from attnbook.in_context.off_pattern import KINDS, OffPatternHessian
from attnbook.in_context.two_numbers_per_head import claims as two_numbers
from attnlib.in_context.law import RegressionLaw
from tests.worlds import worlds

CIRCUITS = circuits.CLAIMS


def beside(**found):
    return Study(beside=Study(**found))


def test_prompts_that_keep_the_pattern_and_that_do_not():
    kept, left = torch.full((4, 9), 1e-13, dtype=torch.float64), torch.full((4, 9), 0.02, dtype=torch.float64)
    names = ("symmetric prompts", "permuted prompts")
    assert (
        worlds(
            CIRCUITS["I91"], *(beside(kept=dict(zip(names, two, strict=True))) for two in ((kept, left), (left, kept)))
        )
        == []
    )


def test_growth_from_small_starts_in_another_ratio():
    rng = np.random.default_rng(5)

    def study(power):
        exponents = rng.uniform(0.2, 0.5, 30)
        slopes = 1 - (1 - exponents) ** power + 1e-3 * rng.standard_normal(30)
        return beside(small=[Study(slope=s, exponent=e) for s, e in zip(slopes, exponents, strict=True)])

    assert worlds(CIRCUITS["I92"], study(1.0), study(2.0)) == []


def test_a_larger_second_derivative():
    noise = 0.01 * torch.as_tensor(np.random.default_rng(6).standard_normal(30))
    assert worlds(CIRCUITS["I93"], beside(added=1 + noise), beside(added=1.15 + noise)) == []


def hessian(least):
    """Forms of two heads whose least eigenvalue is near `least`, over 30 batches."""
    rng = np.random.default_rng(7)
    forms = {}
    for kind in KINDS:
        size = 4 if kind == KINDS[2] else 2
        noise = 0.01 * rng.standard_normal((30, size, size))
        forms[kind] = torch.as_tensor(np.diag([least, *[1.0] * (size - 1)]) + (noise + noise.swapaxes(1, 2)) / 2)
    return OffPatternHessian(forms)


def test_forms_that_push_back_and_that_do_not():
    assert (
        worlds(
            CIRCUITS["I94"],
            *(
                beside(pair=pair, equal=equal)
                for pair, equal in ((hessian(0.4), hessian(-0.4)), (hessian(-0.4), hessian(0.4)))
            ),
        )
        == []
    )


def test_a_saddle_at_the_other_place():
    def ends(antisymmetric, opposite):
        turn = torch.tensor([[0.0, 1.0], [-1.0, 0.0]])
        rest = turn if antisymmetric else turn.abs()
        block = torch.stack([rest, -rest if opposite else rest]) + 0.01 * turn
        return block.double()

    class Ends:
        """As the stored circuits: block (runs, heads, d, d), omega (runs, heads)."""

        d = 2

        def __init__(self, blocks):
            self.covariate_block = blocks
            self.omega = torch.zeros(blocks.shape[:2], dtype=blocks.dtype)

        def __getitem__(self, chosen):
            return Ends(self.covariate_block[chosen])

    trapped = torch.tensor([True] * 3 + [False] * 5)

    def study(turned, pair, equal):
        blocks = torch.stack([ends(own, opposite=own) for own in (trapped if turned else ~trapped).tolist()])
        return Study(
            beside=Study(pair=pair, equal=equal), stored={2: Study(final=Ends(blocks))}, trapped=lambda heads: trapped
        )

    down, up = hessian(-0.4), hessian(0.4)
    assert worlds(CIRCUITS["I95"], study(True, up, down), study(False, down, up)) == []


def test_flatness_of_one_softmax_and_of_two():
    length = 40
    bound = 2 * (np.e - 1) / (length + np.e - 1)
    small, large = torch.full((20,), 0.5 * bound), torch.full((20,), 3 * bound)

    def study(twice, once):
        return Study(causal=Study(unevenness={"twice": twice, "once": once}), setting=Study(length=length))

    assert worlds(WIDER["I98"], study(small, large), study(large, small)) == []


@pytest.mark.parametrize("seed", [0, 1])
def test_a_higher_price_of_jitter(seed):
    law, rng = RegressionLaw(5, 40), np.random.default_rng(seed)
    price = two_numbers.jitter_price(law)

    def study(factor):
        jitter = torch.as_tensor(price * factor * (1 + 0.01 * rng.standard_normal(30)))
        opposite = torch.ones(60, dtype=torch.bool)
        ends = [
            Study(opposite=opposite, floor=torch.full((60,), floor, dtype=torch.float64))
            for floor in (3e-3, 2e-3, 1e-3)
        ]
        return Study(law=law, jitter=jitter, ends=ends)

    assert worlds(two_numbers.CLAIMS["I58"], study(1.0), study(1.5)) == []
