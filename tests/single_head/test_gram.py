"""The fast trainer is the readable one, step by step."""

import pytest
import torch

from attnlib.single_head.law import SignalNoiseLaw
from attnlib.single_head.training import gaussian_start, gradient_descent, gram_descent

FIELDS = ("v", "p", "loss", "margins", "attention_on_signal")


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
