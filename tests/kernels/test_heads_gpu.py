"""The GPU program of the heads' training loop, interpreted on the CPU: step by step against the reference."""

import numpy as np
import pytest
import torch

from attnlib.kernels import batches
from attnlib.single_head import maps
from tests.kernels.heads_cases import MAPS, RULES, assert_follows, assert_same_bits, training

SHAPES = [(1, False, 2, 5), (2, True, 3, 9), (3, False, 1, 14)]  # heads, shared, signals, n


pytestmark = pytest.mark.usefixtures("unwritten_memory")


@pytest.mark.parametrize(("chosen", "shape"), [(chosen, SHAPES[i % 3]) for i, chosen in enumerate(MAPS)], ids=str)
def test_every_map(chosen, shape, triton_device):
    heads, shared, signals, n = shape
    case = training(n, heads, shared=shared, signals=signals, seed=n)
    run = {
        "steps": 4, "attention_map": chosen, "value_step": [0.3, 0.2], "attention_step": torch.tensor([0.15, 0.0]),
        "batch": 3 if shared else None,
    }  # fmt: skip
    got, want = case.run("triton", device=triton_device, **run), case.run("reference", **run)
    assert_follows(got, want)
    assert not torch.equal(want[2].output[4], want[2].output[0])


@pytest.mark.parametrize(
    ("rule", "batch", "shared"), [(rule, (None, 4)[i % 2], i % 4 > 1) for i, rule in enumerate(RULES)]
)
def test_every_rule(rule, batch, shared, triton_device):
    case = training(11, 2, shared=shared, signals=3)
    run = {"steps": 5, "batch": batch, **RULES[rule]}
    assert_follows(case.run("triton", device=triton_device, **run), case.run("reference", **run))


@pytest.mark.parametrize(("n", "signals", "start_vectors"), [(1, 2, 3), (37, 2, 2)])
def test_sizes(n, signals, start_vectors, triton_device):
    """Less than a block of rows, and more than one."""
    case = training(n, 1, signals=signals, start_vectors=start_vectors, runs=1)
    run = {"steps": 2, "prepare": "joint"}
    assert_follows(case.run("triton", device=triton_device, **run), case.run("reference", **run))


def test_float32(triton_device):
    case = training(23, 2)
    got = case.run("triton", device=triton_device, dtype=torch.float32, momentum=0.6)
    assert got[2].output.dtype == torch.float32
    assert_follows(got, case.run("reference", momentum=0.6), 1e-5)


@pytest.mark.parametrize("chosen", [maps.relu(0.5), maps.HARDMAX], ids=str)
def test_maps_at_a_kink(chosen, triton_device):
    case = training(6, 2)
    start = case.start.clone()
    start[:, 2:] = 0
    run = {"steps": 1, "start": start, "attention_map": chosen}
    assert_follows(case.run("triton", device=triton_device, **run), case.run("reference", **run))


@pytest.mark.parametrize("batch", [None, 3])
def test_half_way_and_on_is_the_whole_way(batch, triton_device, monkeypatch):
    """Stopped at any step; launches cut short and batches of runs change nothing."""
    from attnlib.kernels.heads import gpu

    case, factors = training(6, 2, runs=2), torch.linspace(1.0, 0.3, 4)
    order = None if batch is None else case.batches(4, batch)
    run = {"momentum": 0.5, "device": triton_device}
    whole = case.run("triton", 4, factors=factors, batches=order, **run)
    for stop in (3,) if batch is None else (0,):
        parts = (None, None) if order is None else (order[:, :stop].contiguous(), order[:, stop:].contiguous())
        state, velocity, _ = case.run("triton", stop, factors=factors[:stop], batches=parts[0], record=[], **run)
        end = case.run(
            "triton", 4 - stop, factors=factors[stop:], batches=parts[1], start=state, velocity=velocity, record=[], **run
        )  # fmt: skip
        assert torch.equal(end[0], whole[0])
        assert torch.equal(end[1], whole[1])
    monkeypatch.setattr(gpu, "_SECONDS", 0.0)
    assert_same_bits(case.run("triton", 4, factors=factors, batches=order, **run), whole)
    monkeypatch.setattr(batches, "free_bytes", lambda device: 1)
    assert_same_bits(case.run("triton", 4, factors=factors, batches=order, **run), whole)


def test_a_run_that_diverges_leaves_the_others_alone(triton_device):
    case = training(7, 2, runs=5)
    calm = case.run("triton", 3, device=triton_device)
    start = case.start.clone()
    start[1] = 1.7e308
    with np.errstate(all="ignore"):
        wild = case.run("triton", 3, start=start, device=triton_device)
    assert not wild[2].output[:, 1].isfinite().any()
    for r in (0, 2, 3, 4):
        assert torch.equal(wild[2].output[:, r], calm[2].output[:, r])
