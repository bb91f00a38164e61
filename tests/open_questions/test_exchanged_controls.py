"""Controls that exchange two groups: with the two groups' data exchanged the claim fails and its control holds."""

from collections.abc import Callable
from types import SimpleNamespace as Study

import numpy as np
import pytest
import torch

from attnbook.open_questions.attention_maps.claims import CLAIMS as MAPS
from attnbook.open_questions.many_heads.claims import CLAIMS as HEADS
from attnbook.open_questions.more_classes.claims import CLAIMS as CLASSES
from attnbook.open_questions.noise_laws.claims_long import CLAIMS as NOISE
from attnbook.open_questions.optimisers.claims import CLAIMS as OPTIMISERS
from attnbook.open_questions.out_of_the_trap.claims import CLAIMS as TRAP
from tests.worlds import worlds

DRAWS = 80
YES, NO = np.ones((DRAWS, 2)), np.zeros((DRAWS, 2))


def _noisy(value: float) -> np.ndarray:
    return value * (1 + 1e-3 * np.random.default_rng(8).standard_normal(DRAWS))


def two_steps_fit(fast: float, slow: float) -> Study:
    return Study(frozen=Study(interpolates=np.array([[np.full(DRAWS, slow), np.full(DRAWS, fast)]]) > 0.5))


def long_training(sigmoid: float, softmax: float) -> Study:
    """log10 error at the end; every label is fitted if softmax ends with the larger one."""
    ends = {"sigmoid": _noisy(sigmoid), "softmax": _noisy(softmax)}
    fit = np.full(DRAWS, 1.0 if softmax > sigmoid else 0.99)
    return Study(low=1.0, at_norm=lambda name, _: Study(log10_error=[ends[name]], train_accuracy=[fit]))


def windows(one: float, more: float) -> Study:
    """Fraction of the exponent that is kept."""
    late = np.array([one, more, more + 0.01, more - 0.01])[:, None] * np.ones(DRAWS)
    return Study(local=Study(early_error=np.ones((4, DRAWS)), late_error=late))


def bases(axis: float, random: float) -> Study:
    return Study(sign_ends={"axis": torch.full((3, DRAWS, 2), axis), "random": torch.full((3, DRAWS, 2), random)})


def batches(small: float, full: float) -> Study:
    ends = {"batches of 10": small, "gradient descent": full}
    return Study(many={name: Study(end=torch.as_tensor(_noisy(value))) for name, value in ends.items()})


def heavy_tails(svm: np.ndarray, descent: np.ndarray) -> Study:
    return Study(radial={3.0: Study(harmonic=np.full((DRAWS, 2), 1.2), svm=svm > 0.5, on_signal=descent > 0.5)})


def in_the_trap(svm: np.ndarray, descent: np.ndarray) -> Study:
    return Study(same_draws=Study(svm=svm > 0.5, on_signal=descent > 0.5))


def first_pass(kept: float, reset: float) -> Study:
    found = {}
    for then in ("batches on", "then gradient descent"):
        found |= {then: kept, f"p set to 0, {then}": reset}
    return Study(passes={name: Study(log10_error=np.full(DRAWS, value)) for name, value in found.items()})


def starts(plain: np.ndarray, warm: np.ndarray) -> Study:
    return Study(step_trap={K: (Study(on_signal=plain > 0.5), Study(on_signal=warm > 0.5)) for K in (3, 5)})


@pytest.mark.parametrize(
    ("claim", "study", "one", "other"),
    [
        (HEADS["Q5"], two_steps_fit, 1.0, 0.0),
        (MAPS["Q22"], long_training, -3.0, -0.4),
        (MAPS["Q24b"], windows, 0.95, 0.4),
        (OPTIMISERS["Q27b"], bases, 1e-5, 1 - 1e-5),
        (OPTIMISERS["Q29"], batches, -3.5, -0.45),
        (NOISE["Q34b"], heavy_tails, YES, NO),
        (TRAP["Q40"], in_the_trap, YES, NO),
        (TRAP["Q56"], first_pass, -4.0, -1.0),
        (CLASSES["Q86b"], starts, NO, YES),
    ],
    ids=lambda each: getattr(each, "id", None),
)
def test_the_two_groups_exchanged(claim, study: Callable[..., Study], one: object, other: object) -> None:
    assert worlds(claim, study(one, other), study(other, one)) == []
    # One group alone cannot make the claim hold: both halves are needed.
    assert not claim.judge(study(one, one), 1.0).holds
    assert not claim.judge(study(other, other), 1.0).holds
