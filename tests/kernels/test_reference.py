"""The readable training loop against torch: autograd on the model as written, and torch's own optimisers."""

import math

import numpy as np
import pytest
import torch

from attnlib.kernels import prompt_stream
from tests.kernels.starts import advance, setting, start

OPTIMISERS = {"SGD": torch.optim.SGD, "Adam": torch.optim.Adam, "AdamW": torch.optim.AdamW}


def batch(chosen: dict, stream: int, step: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Context, query tokens and targets of one step, number by number from the stream's order."""
    d, length = chosen["d"], chosen["length"]
    per_token = d + 1 + (d + 1) % 2
    raw = prompt_stream.normals(chosen["seed"], [stream], step, 1, chosen["batch"], 2 * d + 2 + length * per_token)[
        0, 0
    ]
    context, query, target = [], [], []
    for row in raw:
        beta = chosen["beta_std"] * row[:d]
        tokens = row[2 * d + 2 :].reshape(length, per_token)
        labels = tokens[:, :d] @ beta + chosen["noise_std"] * tokens[:, d]
        context.append(np.column_stack((tokens[:, :d], labels)))
        query.append([*row[d : 2 * d], 0.0])
        target.append(row[d : 2 * d] @ beta + chosen["target_noise_std"] * row[2 * d])
    return tuple(torch.tensor(np.array(part)) for part in (context, query, target))


def trained_by_torch(weights: torch.Tensor, stream: int, chosen: dict) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights (H, 3 n^2 + n) after the steps, and the losses: four projections, softmax, autograd, torch.optim."""
    n, heads = chosen["d"] + 1, chosen["heads"]
    parts = [weights[:, i * n * n : (i + 1) * n * n].reshape(heads, n, n) for i in range(3)]
    parts.append(weights[:, 3 * n * n :])
    parts = [part.clone().requires_grad_() for part in parts]
    query_map, key_map, value_map, output = parts
    extra = {} if chosen["optimiser"] == "SGD" else {"betas": chosen["betas"], "eps": chosen["eps"]}
    optimiser = OPTIMISERS[chosen["optimiser"]](
        parts, lr=chosen["learning_rate"], weight_decay=chosen["weight_decay"], **extra
    )
    losses = []
    for step in range(chosen["steps"]):
        context, query, target = batch(chosen, stream, step)
        keys = torch.einsum("hij,blj->bhli", key_map, context)
        values = torch.einsum("hij,blj->bhli", value_map, context)
        queries = torch.einsum("hij,bj->bhi", query_map, query)
        attention = torch.softmax(torch.einsum("bhli,bhi->bhl", keys, queries) / math.sqrt(n), dim=-1)
        prediction = torch.einsum("bhl,bhli,hi->b", attention, values, output)
        loss = ((prediction - target) ** 2).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return torch.cat([part.detach().reshape(heads, -1) for part in parts], dim=1), torch.tensor(
        losses, dtype=torch.float64
    )


@pytest.mark.parametrize("optimiser", OPTIMISERS)
@pytest.mark.parametrize(
    "size", [{"d": 5, "heads": 2, "length": 7, "batch": 16}, {"d": 2, "heads": 3, "length": 4, "batch": 5}]
)
def test_fifty_steps_are_those_of_autograd(optimiser: str, size: dict) -> None:
    chosen = setting(
        **size, optimiser=optimiser, learning_rate=2e-2, weight_decay=0.1, betas=(0.85, 0.99), eps=1e-6, streams=[9, 4]
    )
    state = start(2, size["heads"], size["d"])
    begin = state[0].clone()
    seen = advance(*state, **chosen, implementation="reference")
    for run, stream in enumerate(chosen["streams"]):
        weights, losses = trained_by_torch(begin[run], stream, chosen)
        assert abs(state[0][run] - weights).max() < 1e-10
        assert abs(seen.losses[run] - losses).max() < 1e-10
    assert abs(state[0] - begin).max() > 0.1


def test_each_run_has_its_own_learning_rate() -> None:
    together = start(2, 1, 2)
    advance(
        *together,
        **setting(d=2, heads=1, streams=[6, 6], learning_rate=[1e-2, 3e-2], steps=5),
        implementation="reference",
    )
    for run, rate in enumerate((1e-2, 3e-2)):
        alone = [array[run : run + 1].clone() for array in start(2, 1, 2)]
        advance(*alone, **setting(d=2, heads=1, streams=[6], learning_rate=rate, steps=5), implementation="reference")
        assert abs(alone[0][0] - together[0][run]).max() < 1e-14


def test_two_calls_end_where_one_does() -> None:
    once, twice = start(2, 2, 5), start(2, 2, 5)
    whole = advance(*once, **setting(steps=9, record=[0, 4, 9]), implementation="reference")
    first = advance(*twice, **setting(steps=4, record=[0]), implementation="reference")
    second = advance(*twice, **setting(first_step=4, steps=5, record=[4, 9]), implementation="reference")
    for one, other in zip(once, twice, strict=True):
        assert torch.equal(one, other)
    assert torch.equal(whole.losses, torch.cat((first.losses, second.losses), dim=1))
    assert torch.equal(whole.key_query, torch.cat((first.key_query, second.key_query), dim=1))
    assert torch.equal(whole.output_value, torch.cat((first.output_value, second.output_value), dim=1))


def test_recorded_circuits_are_those_of_the_weights() -> None:
    state = start(2, 3, 2)
    before = state[0].clone()
    seen = advance(*state, **setting(d=2, heads=3, steps=3, record=[3, 0, 3]), implementation="reference")
    assert seen.steps.tolist() == [0, 3]
    assert seen.key_query.shape == (2, 2, 3, 3, 3)
    for place, weights in enumerate((before, state[0])):
        for run in range(2):
            for head in range(3):
                query, key, value = weights[run, head, :27].reshape(3, 3, 3)
                output = weights[run, head, 27:]
                expected = torch.tensor([[key[:, i] @ query[:, j] / math.sqrt(3) for j in range(3)] for i in range(3)])
                assert abs(seen.key_query[run, place, head] - expected).max() < 1e-15
                assert abs(seen.output_value[run, place, head] - output @ value).max() < 1e-15


def test_float32_weights_are_trained_in_float32() -> None:
    double, single = start(2, 2, 5), start(2, 2, 5, dtype=torch.float32)
    exact = advance(*double, **setting(steps=20), implementation="reference")
    rounded = advance(*single, **setting(steps=20), implementation="reference")
    assert rounded.losses.dtype == torch.float32
    assert 0 < abs(single[0] - double[0]).max() < 1e-5
    assert abs(rounded.losses - exact.losses).max() < 1e-4
