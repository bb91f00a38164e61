"""Negative controls of Part III could have held: each judge, given data of its control's world, accepts the control."""

from types import SimpleNamespace as Study

import numpy as np
import pytest
import torch

from attnbook.in_context.circuits.claims_pattern import CLAIMS as PATTERN
from attnbook.in_context.deeper_and_wider.claims import CLAIMS as WIDER
from attnbook.in_context.off_pattern import KINDS, OffPatternHessian
from attnbook.in_context.two_numbers_per_head import claims as two_numbers
from attnlib.in_context.law import RegressionLaw
from tests.worlds import worlds


def normals(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(30)


def beside(**found):
    return Study(beside=Study(**found))


def kept_pattern(own: bool):
    names = ("symmetric prompts", "permuted prompts")
    return beside(kept={name: torch.full((4, 9), 1e-13 if (name == names[0]) == own else 0.02) for name in names})


def small_starts(own: bool):
    exponents = np.random.default_rng(5).uniform(0.2, 0.5, 30)
    slopes = 1 - (1 - exponents) ** (1 if own else 2) + 1e-3 * normals(6)
    return beside(small=[Study(slope=s, exponent=e) for s, e in zip(slopes, exponents, strict=True)])


def second_derivative(own: bool):
    return beside(added=(1.0 if own else 1.15) + 0.01 * torch.as_tensor(normals(6)))


def hessian(least: float) -> OffPatternHessian:
    """Forms of two heads whose least eigenvalue is near `least`, over 30 batches."""
    rng, forms = np.random.default_rng(7), {}
    for kind in KINDS:
        size = 4 if kind == KINDS[2] else 2
        noise = 0.01 * rng.standard_normal((30, size, size))
        forms[kind] = torch.as_tensor(np.diag([least, *[1.0] * (size - 1)]) + (noise + noise.swapaxes(1, 2)) / 2)
    return OffPatternHessian(forms)


def forms(own: bool):
    sign = 1 if own else -1
    return beside(pair=hessian(0.4 * sign), equal=hessian(-0.4 * sign))


class Ends:
    """As the stored circuits: block (runs, heads, d, d), omega (runs, heads)."""

    d = 2

    def __init__(self, blocks):
        self.covariate_block, self.omega = blocks, torch.zeros(blocks.shape[:2], dtype=blocks.dtype)

    def __getitem__(self, chosen):
        return Ends(self.covariate_block[chosen])


def saddle(own: bool):
    """Trapped runs end beside the pattern with opposite turns of both heads; in the control's world the others do."""
    trapped, turn = torch.tensor([True] * 3 + [False] * 5), torch.tensor([[0.0, 1.0], [-1.0, 0.0]])
    parts = {True: torch.stack([turn, -turn]), False: torch.stack([turn.abs()] * 2)}
    blocks = torch.stack([parts[turned] + 0.01 * turn for turned in (trapped == own).tolist()]).double()
    study = forms(own)
    study.stored, study.trapped = {2: Study(final=Ends(blocks))}, lambda heads: trapped
    return study


def flatness(own: bool):
    bound = 2 * (np.e - 1) / (40 + np.e - 1)
    twice, once = (torch.full((20,), factor * bound) for factor in ((0.5, 3) if own else (3, 0.5)))
    return Study(causal=Study(unevenness={"twice": twice, "once": once}), setting=Study(length=40))


def price_of_jitter(own: bool):
    law = RegressionLaw(5, 40)
    price = two_numbers.jitter_price(law) * (1.0 if own else 1.5)
    floors = (torch.full((60,), floor, dtype=torch.float64) for floor in (3e-3, 2e-3, 1e-3))
    ends = [Study(opposite=torch.ones(60, dtype=torch.bool), floor=floor) for floor in floors]
    return Study(law=law, jitter=torch.as_tensor(price * (1 + 0.01 * normals(1))), ends=ends)


@pytest.mark.parametrize(
    ("claim", "study"),
    [
        (PATTERN["I91"], kept_pattern),
        (PATTERN["I92"], small_starts),
        (PATTERN["I93"], second_derivative),
        (PATTERN["I94"], forms),
        (PATTERN["I95"], saddle),
        (WIDER["I98"], flatness),
        (two_numbers.CLAIMS["I58"], price_of_jitter),
    ],
    ids=lambda each: getattr(each, "id", None),
)
def test_claim_and_control_each_hold_in_their_own_world(claim, study):
    assert worlds(claim, study(True), study(False)) == []
