"""The general trainer: gradients by autograd and finite differences, dense against reduced coordinates, bad input.

And on its kernels: every implementation makes the steps of the readable method, in batches of runs too.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from attnbook.single_head.coordinates import reduce
from attnlib.kernels import batches, dispatch
from attnlib.single_head import maps, rules
from attnlib.single_head.law import Sample, SignalNoiseLaw
from attnlib.single_head.maps import AttentionMap
from attnlib.single_head.model import gradients, loss
from attnlib.single_head.rules import Rule
from attnlib.single_head.training import gaussian_start, gradient_descent, gram_descent, train_heads
from tests.bad_input import refusing_changes
from tests.kernels.heads_cases import MAPS

LAW = SignalNoiseLaw(n=7, d=40, signal_norm=3.0, label_noise=0.3)
RULES = [
    rules.GRADIENT_DESCENT, rules.heavy_ball(), rules.nesterov(0.5), rules.NORMALISED, rules.BLOCK_NORMALISED,
    rules.stochastic(3),
]  # fmt: skip
FIELDS = ("v", "p", "loss", "margins", "attention_on_signal")


def normal(*shape: int, seed: int = 0, size: float = 0.3) -> torch.Tensor:
    return size * torch.as_tensor(np.random.default_rng(seed).standard_normal(shape))


def start_for(sample: Sample, heads: int, shared: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    m = sample.tokens.shape[-1]
    return normal(sample.runs, 1 if shared else heads, m, seed=1), normal(sample.runs, heads, m, seed=2)


@pytest.mark.parametrize("chosen", [*MAPS, maps.windows(maps.SOFTMAX, 2), maps.windows(maps.SIGMOID, 1)], ids=str)
@pytest.mark.parametrize("shared", [False, True])
def test_gradients_equal_autograd_and_finite_differences(chosen: AttentionMap, shared: bool) -> None:
    law = SignalNoiseLaw(n=5, d=9, signal_norm=2.0, label_noise=0.3, tokens=4)
    sample, scale = law.draw(3, 2), 0.7
    v, p = start_for(sample, 3, shared)

    def total(v: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
        """The loss written out head by head, summed over runs."""
        output = 0
        for h in range(3):
            scores = torch.einsum("rntm,rm->rnt", sample.tokens, p[:, h])
            values = torch.einsum("rntm,rm->rnt", sample.tokens, v[:, 0 if shared else h])
            output = output + scale * (chosen.weights(scores) * values).sum(-1)
        return torch.log1p(torch.exp(-sample.labels * output)).mean(-1).sum()

    *found, out = gradients(sample.tokens, sample.labels, v, p, attention_map=chosen, output_scale=scale)
    assert [g.shape for g in found] == [v.shape, p.shape]
    assert loss(out.output, sample.labels).sum().item() == pytest.approx(total(v, p).item(), rel=1e-13)
    if (
        chosen is not maps.HARDMAX
    ):  # whose weights autograd cannot follow; its derivative is 0, and so are the differences
        a, b = v.clone().requires_grad_(), p.clone().requires_grad_()
        total(a, b).backward()
        torch.testing.assert_close(found[0], a.grad, rtol=0, atol=1e-10)
        torch.testing.assert_close(found[1], b.grad, rtol=0, atol=1e-10)
    for which, gradient in enumerate(found):
        direction, step = normal(*gradient.shape, seed=5, size=1.0), 1e-6
        ends = [[v, p], [v, p]]
        for sign, end in zip((1, -1), ends, strict=True):
            end[which] = end[which] + sign * step * direction
        slope = (total(*ends[0]) - total(*ends[1])) / (2 * step)
        assert slope.item() == pytest.approx((gradient * direction).sum().item(), abs=1e-8)


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("shared", [False, True])
def test_dense_training_equals_reduced_training(rule: Rule, shared: bool) -> None:
    """The same draw in R^d and in the span of its own vectors: every invariant rule makes the same margins."""
    law = SignalNoiseLaw(n=6, d=40, signal_norm=3.0, label_noise=0.3)
    dense = law.draw(4, coordinates="dense", start_vectors=4)
    small = reduce(dense)
    assert small.tokens.shape[-1] == 2 + 6 + 4
    assert (dense.coordinates, small.coordinates) == ("dense", "reduced")
    paths = []
    for sample in (dense, small):
        x = 0.1 * sample.start_directions
        start = x[:, :1] if shared else x[:, :2], x[:, 2:]
        paths.append(train_heads(
            sample, 0.4, 15, heads=2, attention_step_size=0.3, attention_map=maps.softmax(0.8), rule=rule, start=start,
            shared_values=shared, output_scale=0.6, method="vectors" if sample is dense else "gram",
        ))  # fmt: skip
    for name in ("margins", "attention_on_signal", "loss"):
        torch.testing.assert_close(getattr(paths[0], name), getattr(paths[1], name), rtol=0, atol=1e-10)
    torch.testing.assert_close(paths[0].v.norm(dim=-1), paths[1].v.norm(dim=-1), rtol=0, atol=1e-10)
    assert (paths[0].margins[-1] - paths[0].margins[0]).abs().max() > 0.3


def test_step_sizes_by_run_schedule_freezing_and_record() -> None:
    sample = LAW.draw(2, 3)
    sizes = torch.tensor([0.1, 0.3, 0.5], dtype=torch.float64)
    for method in ("gram", "vectors"):
        together = train_heads(sample, sizes, 6, attention_step_size=2 * sizes, record=[2], method=method)
        assert together.steps == (2, 6)
        for run, size in enumerate(sizes.tolist()):
            alone = train_heads(sample.run(run), size, 6, attention_step_size=2 * size, method=method)
            torch.testing.assert_close(together.v[:, run], alone.v[[2, 6], 0], rtol=0, atol=1e-13)
        frozen = train_heads(sample, 0.3, 4, attention_step_size=0, method=method)
        assert (frozen.p == 0).all()
        assert frozen.v[-1].norm() > 0.1
        stopped = train_heads(sample, 0.3, 4, schedule=lambda step: float(step < 2), method=method)
        assert torch.equal(stopped.v[2], stopped.v[4])
        shorter = train_heads(sample, 0.3, 2, method=method).v[-1]
        torch.testing.assert_close(stopped.v[2], shorter, rtol=0, atol=1e-14)


def test_relu_trains_where_its_derivative_exists_or_is_not_needed() -> None:
    sample = LAW.draw(0, 2)
    assert train_heads(sample, 0.1, 2, attention_map=maps.relu(), start=start_for(sample, 1)).steps == (0, 1, 2)
    assert (train_heads(sample, 0.1, 2, attention_map=maps.relu(), attention_step_size=0).v == 0).all()


START = (torch.zeros(2, 2, 9, dtype=torch.float64),) * 2, (torch.zeros(2, 1, 9, dtype=torch.float64),) * 2


def trained(step_size=0.1, steps=3, **arguments):
    return train_heads(LAW.draw(0, 2), step_size, steps, **arguments).single()


test_refusals = refusing_changes(
    trained,
    {},
    ({"step_size": torch.tensor([0.1, -0.1]).double()}, "step_size must be finite and > 0 in every run"),
    ({"step_size": torch.tensor([0.1]).double()}, "step_size"),
    ({"record": [4]}, r"record must hold steps in 0 \.\.\. 3; got 4"),
    ({"attention_map": maps.relu()}, "no derivative at 0, where training starts"),
    ({"attention_map": maps.windows(maps.SOFTMAX, 3)}, "width 3 must divide .* T = 2"),
    ({"attention_map": maps.windows(maps.SOFTMAX, 2), "method": "gram"}, 'method must be "vectors"'),
    ({"schedule": lambda step: -1.0}, "schedule must return factors >= 0; got -1.0 at step 0"),
    ({"schedule": lambda step: math.nan}, "schedule must be"),
    ({"start": START[0], "heads": 2, "shared_values": True}, r"start\[0\]"),
    ({"start": START[1], "heads": 2, "shared_values": True}, r"start\[1\]"),
    ({"heads": 2}, r"heads must be 1 .* got 2"),  # asked of the path by single()
)


# --- methods and implementations ------------------------------------------------------------------------------------------


def sample(runs: int = 2) -> Sample:
    return SignalNoiseLaw(12, 90, 4.0, 0.3).draw(2, runs=runs)


def starting(data: Sample, heads: int, shared: bool = False) -> dict:
    return {"heads": heads, "shared_values": shared, "start": start_for(data, heads, shared)}


def assert_same_path(one, other, size: float) -> None:
    assert one.steps == other.steps
    for name in FIELDS:
        a, b = getattr(one, name), getattr(other, name)
        torch.testing.assert_close(a, b, rtol=0, atol=size * max(1.0, b.abs().max().item()), msg=name)


@pytest.mark.parametrize(("chosen", "rule"), [(each, RULES[i % len(RULES)]) for i, each in enumerate(MAPS)], ids=str)
def test_every_implementation_follows_the_readable_method(chosen, rule, monkeypatch):
    data = sample()
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
    data = sample()
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
    data = sample()
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
