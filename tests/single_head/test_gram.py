"""The fast trainer is the readable one, step by step."""

import pytest
import torch

from attnlib.single_head.law import SignalNoiseLaw
from attnlib.single_head.training import gaussian_start, gradient_descent, gram_descent
from tests.bad_input import refusing

FIELDS, SINGLE = ("v", "p", "loss", "margins", "attention_on_signal"), {"dtype": torch.float32}


@pytest.mark.parametrize("coordinates", ["reduced", "dense"])
@pytest.mark.parametrize("std", [None, 0.3])
@pytest.mark.parametrize("attention_step_size", [None, 0.0, 0.05])
def test_same_path_as_the_readable_trainer(coordinates, std, attention_step_size):
    sample = SignalNoiseLaw(11, 90, 4.0, 0.3).draw(2, runs=3, coordinates=coordinates, start_vectors=2)
    start = gaussian_start(sample, std) if std else None
    arguments = {"attention_step_size": attention_step_size, "start": start, "record": [0, 1, 2, 50, 300]}
    slow, fast = (train(sample, 0.4, 300, **arguments) for train in (gradient_descent, gram_descent))
    assert fast.steps == slow.steps == (0, 1, 2, 50, 300)
    for name in FIELDS:
        torch.testing.assert_close(
            getattr(fast, name), getattr(slow, name), rtol=1e-9, atol=1e-10, msg=lambda m, k=name: f"{k}: {m}"
        )
    if attention_step_size == 0.0 and std is None:
        assert (fast.attention_on_signal == 0.5).all()


def test_more_tokens_fall_back_to_the_readable_trainer():
    sample = SignalNoiseLaw(7, 50, 3.0, 0.2, tokens=3).draw(0)
    torch.testing.assert_close(gram_descent(sample, 0.3, 9).margins, gradient_descent(sample, 0.3, 9).margins)


def test_no_overflow_at_huge_scores():
    """A step size a thousand times too large drives scores beyond exp's range; warnings are errors here."""
    sample = SignalNoiseLaw(20, 1000, 30.0, 0.2).draw(0)
    path = gram_descent(sample, 1e3, 5)
    assert path.margins.isfinite().all()


def test_float32_is_near_and_says_so():
    data = SignalNoiseLaw(11, 90, 4.0, 0.3).draw(2, runs=3)
    slow, fast = (
        train(data, 0.4, 100, record=[100], **kind) for train, kind in ((gradient_descent, {}), (gram_descent, SINGLE))
    )
    for name in FIELDS:
        value = getattr(fast, name)
        assert value.dtype == torch.float32
        torch.testing.assert_close(value.double(), getattr(slow, name), rtol=1e-4, atol=2e-5, msg=f"{name} differs")


test_other_precisions_are_refused = refusing(
    (gram_descent, lambda: (SignalNoiseLaw(11, 90, 4.0).draw(2), 0.4, 1), {"dtype": torch.float16})
)
