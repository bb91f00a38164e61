"""The general trainer on its kernels: every implementation makes the steps of the readable method, in batches of runs too."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from attnlib.kernels import batches, dispatch
from attnlib.single_head import maps, rules
from attnlib.single_head.law import Sample, SignalNoiseLaw
from attnlib.single_head.training import gaussian_start, gradient_descent, gram_descent, train_heads

FIELDS = ("v", "p", "loss", "margins", "attention_on_signal")
MAPS = (
    maps.SOFTMAX, maps.softmax(2.0), maps.SPARSEMAX, maps.ENTMAX15, maps.HARDMAX, maps.LINEARISED, maps.SIGMOID,
    maps.HALF_PLUS, maps.LINEAR, maps.relu(0.3),
)  # fmt: skip
RULES = (
    rules.GRADIENT_DESCENT, rules.heavy_ball(0.8), rules.nesterov(), rules.NORMALISED, rules.BLOCK_NORMALISED,
    rules.stochastic(3), rules.stochastic(12),
)  # fmt: skip


def sample(runs: int = 3, starts: int = 6) -> Sample:
    return SignalNoiseLaw(12, 90, 4.0, 0.3).draw(2, runs=runs, start_vectors=starts)


def starting(data: Sample, heads: int, shared: bool = False) -> dict:
    x = 0.3 * data.start_directions
    return {"heads": heads, "shared_values": shared, "start": (x[:, : 1 if shared else heads], x[:, -heads:])}


def assert_same_path(one, other, size: float) -> None:
    assert one.steps == other.steps
    for name in FIELDS:
        a, b = getattr(one, name), getattr(other, name)
        assert a.shape == b.shape
        assert (a - b).abs().max() <= size * max(1.0, b.abs().max()), name


@pytest.mark.parametrize(("chosen", "rule"), [(each, RULES[i % len(RULES)]) for i, each in enumerate(MAPS)], ids=str)
def test_every_implementation_follows_the_readable_method(chosen, rule, monkeypatch):
    data = sample(2)
    for shared in (False, True):
        run = {
            "attention_map": chosen, "rule": rule, "record": [0, 1, 7, 8], "attention_step_size": 0.05, "output_scale": 0.6,
            "schedule": lambda step: 1 / (1 + step), **starting(data, 3, shared),
        }  # fmt: skip
        slow = train_heads(data, 0.1, 8, method="vectors", **run)
        for implementation in ("reference", "compiled"):
            monkeypatch.setenv(dispatch.VARIABLE, implementation)
            assert_same_path(train_heads(data, 0.1, 8, **run), slow, 1e-12)
    assert {f"training of attention heads: {name}, float64 on cpu" for name in ("reference", "compiled")} <= set(
        dispatch.ran()
    )


def test_more_signals_than_two():
    data = sample(2)
    third = torch.as_tensor(np.random.default_rng(3).standard_normal((2, 2, data.tokens.shape[-1])))
    signals, classes = torch.cat([data.signals, third], 1), torch.arange(12).expand(2, 12) % 4
    tokens = data.tokens.scatter(
        2,
        data.signal_position[:, :, None, None].expand(-1, -1, 1, data.tokens.shape[-1]),
        signals.gather(1, classes.unsqueeze(-1).expand(-1, -1, signals.shape[-1])).unsqueeze(2),
    )
    more = replace(data, signals=signals, signal_class=classes, tokens=tokens)
    fast, slow = (train_heads(more, 0.05, 20, method=method, **starting(more, 2)) for method in ("gram", "vectors"))
    assert_same_path(fast, slow, 1e-12)


@pytest.mark.parametrize("rule", [rules.heavy_ball(), rules.stochastic(4)], ids=str)
def test_batches_of_runs_change_nothing(rule, monkeypatch):
    data = sample(5)
    sizes = torch.linspace(0.05, 0.1, 5, dtype=torch.float64)
    run = {"rule": rule, "attention_step_size": sizes / 2, **starting(data, 2)}
    whole = train_heads(data, sizes, 30, **run)
    monkeypatch.setattr(batches, "free_bytes", lambda device: 2 * 24 * 18 * 18)
    assert_same_path(train_heads(data, sizes, 30, **run), whole, 1e-13)


def test_attention_of_clean_samples_is_a_mean_head_by_head():
    data = sample(2)
    path = train_heads(data, 0.1, 5, **starting(data, 3))
    assert path.attention_clean.shape == (6, 2, 3)
    found = path.attention_on_signal[5, 1, 2, ~data.noisy[1]]
    assert path.attention_clean[5, 1, 2].item() == pytest.approx(found.mean().item(), rel=1e-12)


# --- one softmax head ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("coordinates", ["reduced", "dense"])
@pytest.mark.parametrize("std", [None, 0.3])
@pytest.mark.parametrize("attention_step_size", [None, 0.0, 0.05])
def test_same_path_as_the_readable_trainer(coordinates, std, attention_step_size):
    sample = SignalNoiseLaw(11, 90, 4.0, 0.3).draw(2, runs=3, coordinates=coordinates, start_vectors=2)
    start = gaussian_start(sample, std) if std else None
    arguments = {"attention_step_size": attention_step_size, "start": start, "record": [0, 1, 2, 50, 300]}
    slow, fast = (train(sample, 0.4, 300, **arguments) for train in (gradient_descent, gram_descent))
    assert fast.steps == (0, 1, 2, 50, 300)
    assert_same_path(fast, slow, 1e-9)
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
