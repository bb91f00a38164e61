"""Negative controls of Part IV could have held: each in a world of its own, where the claim fails."""

from types import SimpleNamespace as Study

import numpy as np
import pytest
import torch

from attnbook.open_questions.random_starts import claims as starts
from tests.worlds import worlds

DRAWS = 60
YES, NO = np.ones((DRAWS, 2), bool), np.zeros((DRAWS, 2), bool)
FEW, SOME, MOST = (
    np.random.default_rng(0).permuted(np.arange(2 * DRAWS) < count).reshape(DRAWS, 2) for count in (14, 26, 110)
)


def _around(value: float, spread: float = 1e-3) -> torch.Tensor:
    """(DRAWS,): draws whose mean is the value."""
    return value * (1 + spread * torch.linspace(-1, 1, DRAWS, dtype=torch.float64))


# --- IV.6 ------------------------------------------------------------------------------------------------------------------


def alike(small: tuple[float, float], large: tuple[float, float]) -> Study:
    pairs = zip((0.1, 1.0), (small, large), strict=True)
    return Study(
        starts={
            size: Study(spread_clean=np.array([_around(v).numpy() for v in pair]), at=lambda _: 0, steps=(1000, 5000))
            for size, pair in pairs
        }
    )


def growth(grown: tuple[float, float, float], seed: int = 3) -> Study:
    """Classes below, at and above their boundary (1 without flips), for which 2, 50 and 2 is predicted."""
    random = np.exp(0.2 * np.random.default_rng(seed).standard_normal((DRAWS, 3)))
    course = Study(
        x=np.tile([0.5, 1.0, 2.0], (DRAWS, 1)), class_difference=np.stack([np.ones((DRAWS, 3)), random * grown]),
        clean=np.full((DRAWS, 3), 40.0), flipped=np.zeros((DRAWS, 3)),
    )  # fmt: skip
    return Study(growth=course, predicted_growth=np.tile([2.0, 50.0, 2.0], (DRAWS, 1)))


def products(rate: float) -> Study:
    """log |p| = rate x the sum of gradient norms - 1."""
    drive = torch.tensor([0.0, 2.0, 4.0], dtype=torch.float64).view(3, 1, 1).expand(3, DRAWS, 1)
    path = Study(attention_size=torch.full_like(drive, 2.0), drive=drive, p=(rate * drive - 1).exp().unsqueeze(-1))
    return Study(factors=Study(runs={0: path}))


def factors(small: tuple, large: tuple, plain: float) -> Study:
    """For factors of norm 0.01 and 0.3: accuracy at step 1 and at the end, attention, exponent over the linear model's; and of plain."""
    runs, errors = {}, {}
    for size, (first, last, clean, kept) in ((0.01, small), (0.3, large)):
        accuracy = torch.tensor([[first], [last]]).expand(2, DRAWS)
        run = Study(steps=(1, 500), train_accuracy=accuracy, attention_clean=torch.full((2, DRAWS, 1), clean))
        runs |= {(norm, size): run for norm in (30.0, 7.0)}
        errors[7.0, size] = np.full(DRAWS, -10 * kept)
    found = Study(
        runs=runs, norms=(30.0, 7.0), log10_error=errors, frozen={7.0: -10.0}, one_head={7.0: [np.full(DRAWS, -10 * plain)]}
    )  # fmt: skip
    return Study(factors=found)


half, whole = (0.0, 1.0, 0.5, 0.97), (0.0, 1.0, 0.9, 0.3)  # of `factors`


@pytest.mark.parametrize(
    ("claim", "own", "others"),
    [
        (starts.CLAIMS["Q10"], alike((0.01, 0.002), (0.1, 0.05)),
         [alike((0.1, 0.05), (0.01, 0.002)), alike((0.002, 0.01), (0.1, 0.05))]),
        (starts.CLAIMS["Q45"], growth((2, 50, 2)), [growth((1, 1, 1))]),
        (starts.CLAIMS["Q93"], products(2.0), [products(1.0), products(4.0)]),
        (starts.CLAIMS["Q94"], factors(half, whole, 0.2),
         [factors(whole, half, 0.2), factors((1.0, 0.0, 0.5, 0.2), whole, 0.97)]),
    ],
    ids=lambda each: getattr(each, "id", None),
)  # fmt: skip
def test_each_control_in_its_own_world(claim, own, others):
    assert worlds(claim, own, *others) == []


def test_heads_that_lead_in_both_directions(monkeypatch):
    monkeypatch.setattr(starts, "across_directions", lambda course, _: course.cosine)

    def study(cosine: float, grown: float) -> Study:
        spread = np.random.default_rng(1).standard_normal(DRAWS) * 0.1
        ends = np.sqrt([np.ones((DRAWS, 1)), grown**2 * (1 + spread[:, None])])
        return Study(directions=Study(steps=(0, 1000), cosine=cosine + spread - spread.mean(), class_difference=ends))

    assert worlds(starts.CLAIMS["Q47"], study(0.0, 20.9), study(-0.5, 20.9), study(0.0, 83.6)) == []
