"""`gram_descent` on the kernels: every implementation and dtype, in batches, with a start."""

import pytest
import torch

from attnlib.kernels import batches, dispatch
from attnlib.single_head.law import SignalNoiseLaw
from attnlib.single_head.training import gaussian_start, gradient_descent, gram_descent

FIELDS = ("v", "p", "loss", "margins", "attention_on_signal")


def sample(runs=3):
    return SignalNoiseLaw(11, 90, 4.0, 0.3).draw(2, runs=runs, start_vectors=2)


@pytest.mark.parametrize("implementation", ["reference", "compiled", "triton"])
@pytest.mark.parametrize("std", [None, 0.3])
def test_every_implementation_follows_the_readable_trainer(implementation, std, monkeypatch):
    data = sample(2)
    chosen = {"start": gaussian_start(data, std) if std else None, "record": [0, 1, 7, 8], "attention_step_size": 0.2}
    slow = gradient_descent(data, 0.4, 8, **chosen)
    monkeypatch.setenv(dispatch.VARIABLE, implementation)
    fast = gram_descent(data, 0.4, 8, **chosen)
    assert fast.steps == slow.steps
    for name in FIELDS:
        torch.testing.assert_close(
            getattr(fast, name), getattr(slow, name), rtol=1e-11, atol=1e-12, msg=f"{name} differs"
        )
    assert any(line.startswith("training of attention heads") for line in dispatch.ran())


def test_float32_is_near_and_says_so():
    data = sample()
    slow, fast = (
        gradient_descent(data, 0.4, 100, record=[100]),
        gram_descent(data, 0.4, 100, record=[100], dtype=torch.float32),
    )
    for name in FIELDS:
        value = getattr(fast, name)
        assert value.dtype == torch.float32
        torch.testing.assert_close(value.double(), getattr(slow, name), rtol=1e-4, atol=2e-5, msg=f"{name} differs")
    with pytest.raises(ValueError, match=r"dtype must be torch\.float32 or torch\.float64; got torch\.float16"):
        gram_descent(data, 0.4, 1, dtype=torch.float16)


def test_batches_of_runs_change_nothing(monkeypatch):
    data = sample(5)
    whole = gram_descent(data, 0.4, 30, start=gaussian_start(data, 0.3))
    monkeypatch.setattr(batches, "free_bytes", lambda device: 2 * 24 * 15 * 15)
    parts = gram_descent(data, 0.4, 30, start=gaussian_start(data, 0.3))
    for name in FIELDS:
        torch.testing.assert_close(getattr(parts, name), getattr(whole, name), rtol=1e-13, atol=1e-15)
