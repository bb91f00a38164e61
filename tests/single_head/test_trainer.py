"""The general trainer: gradients by autograd and finite differences, dense against reduced coordinates, bad input."""

import math

import numpy as np
import pytest
import torch

from attnbook.single_head.coordinates import reduce
from attnlib.single_head import maps, rules
from attnlib.single_head.law import Sample, SignalNoiseLaw
from attnlib.single_head.maps import AttentionMap
from attnlib.single_head.model import gradients, loss
from attnlib.single_head.rules import Rule
from attnlib.single_head.training import train_heads
from tests.bad_input import refusing_changes

LAW = SignalNoiseLaw(n=7, d=40, signal_norm=3.0, label_noise=0.3)
MAPS = [
    maps.SOFTMAX, maps.softmax(0.5), maps.SPARSEMAX, maps.ENTMAX15, maps.HARDMAX, maps.LINEARISED, maps.SIGMOID,
    maps.HALF_PLUS, maps.LINEAR, maps.relu(0.5),
]  # fmt: skip
RULES = [
    rules.GRADIENT_DESCENT, rules.heavy_ball(), rules.nesterov(0.5), rules.NORMALISED, rules.BLOCK_NORMALISED,
    rules.stochastic(3),
]  # fmt: skip


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
        assert (found[0] - a.grad).abs().max() < 1e-10
        assert (found[1] - b.grad).abs().max() < 1e-10
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
        assert (getattr(paths[0], name) - getattr(paths[1], name)).abs().max() < 1e-10
    assert (paths[0].v.norm(dim=-1) - paths[1].v.norm(dim=-1)).abs().max() < 1e-10
    assert (paths[0].margins[-1] - paths[0].margins[0]).abs().max() > 0.3


def test_step_sizes_by_run_schedule_freezing_and_record() -> None:
    sample = LAW.draw(2, 3)
    sizes = torch.tensor([0.1, 0.3, 0.5], dtype=torch.float64)
    for method in ("gram", "vectors"):
        together = train_heads(sample, sizes, 6, attention_step_size=2 * sizes, record=[2], method=method)
        assert together.steps == (2, 6)
        for run, size in enumerate(sizes.tolist()):
            alone = train_heads(sample.run(run), size, 6, attention_step_size=2 * size, method=method)
            assert torch.allclose(together.v[:, run], alone.v[[2, 6], 0], atol=1e-13)
        frozen = train_heads(sample, 0.3, 4, attention_step_size=0, method=method)
        assert (frozen.p == 0).all()
        assert frozen.v[-1].norm() > 0.1
        stopped = train_heads(sample, 0.3, 4, schedule=lambda step: float(step < 2), method=method)
        assert torch.equal(stopped.v[2], stopped.v[4])
        assert torch.allclose(stopped.v[2], train_heads(sample, 0.3, 2, method=method).v[-1], atol=1e-15)


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
