"""The GPU programs of in-context training against the readable loop in float64: compiled on a GPU, else interpreted.

Uninitialised memory is filled with NaN throughout, so that nothing can rest on what a scratch held before.
"""

import dataclasses
import functools
import importlib
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch

from attnlib.in_context.model import STARTS, initial_weights
from attnlib.kernels import in_context
from attnlib.kernels.in_context import factors, merge, reference
from tests.kernels.starts import advance, call_of, setting, start

pytest.importorskip("triton", reason="Triton is not installed: see attnlib.extras")

from attnlib.kernels.in_context import gpu


@pytest.fixture(autouse=True)
def _nan_in_new_memory() -> Iterator[None]:
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    assert torch.empty(3).isnan().all()
    yield
    torch.use_deterministic_algorithms(before)


def train(chosen: dict, device: torch.device, weights: torch.Tensor | None = None):
    """(state, losses) after the GPU programs' training from `weights`, or from the start of these sizes."""
    state = start(len(chosen["streams"]), chosen["heads"], chosen["d"], dtype=torch.float32)
    if weights is not None:
        state[0] = weights.float()
    state = [part.to(device) for part in state]
    with np.errstate(all="ignore"):  # the interpreter warns where a GPU goes on with inf
        seen = advance(*state, **chosen, implementation="triton")
    return [part.cpu() for part in state], seen.cpu()


def exact(chosen: dict, weights: torch.Tensor | None = None):
    """The same of the readable loop in float64."""
    state = start(len(chosen["streams"]), chosen["heads"], chosen["d"])
    if weights is not None:
        state[0] = weights.float().double()
    return state, advance(*state, **chosen, implementation="reference")


def assert_close(found, expected, *, weights: float = 1e-6, moments: float = 5e-6) -> None:
    """Weights within `weights`, moments within `moments` of their largest entry, losses within 5e-6."""
    (state, seen), (exact_state, wanted) = found, expected
    np.testing.assert_allclose(state[0], exact_state[0], rtol=0, atol=weights)
    for one, other in zip(state[1:], exact_state[1:], strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=moments * float(abs(other).max()))
    np.testing.assert_allclose(seen, wanted, rtol=5e-6)


@pytest.mark.parametrize(
    ("optimiser", "size"),
    [
        ("SGD", {"heads": 1, "d": 4, "length": 7, "batch": 5, "streams": [4, 9]}),
        ("Adam", {"heads": 2, "d": 5, "length": 6, "batch": 37, "streams": [8, 8]}),
        ("AdamW", {"heads": 3, "d": 2, "length": 3, "batch": 128, "streams": [1]}),
        ("Adam", {"heads": 8, "d": 5, "length": 3, "batch": 16, "streams": [2**32 - 1]}),
        ("AdamW", {"heads": 2, "d": 1, "length": 2, "batch": 3, "streams": [0]}),
    ],
)
def test_steps_are_those_of_the_reference(optimiser: str, size: dict, triton_device: torch.device) -> None:
    chosen = setting(**size, optimiser=optimiser, weight_decay=0.1, first_step=3, steps=3)
    chosen["learning_rate"] = [2e-3 / (1 + run) for run in range(len(size["streams"]))]
    expected = exact(chosen)
    assert_close(train(chosen, triton_device), expected)
    begin = start(len(size["streams"]), size["heads"], size["d"])[0]
    assert abs(expected[0][0] - begin).max() > 1e-3  # far more than what the comparison forgives


@pytest.mark.parametrize("kind", STARTS)
def test_every_start_of_the_authors(kind: str, triton_device: torch.device) -> None:
    weights = initial_weights(4, 2, kind, runs=2).flat()
    chosen = setting(d=4, heads=2, length=6, batch=33, steps=2)
    assert_close(train(chosen, triton_device, weights), exact(chosen, weights))


@pytest.mark.parametrize("scale", [2.0, 16.0])
def test_large_scores_neither_overflow_nor_lose_the_softmax(scale: float, triton_device: torch.device) -> None:
    """2^score leaves float32 beyond 128; from 80 on a block is done again, relative to its largest score.

    Adam's first step has the size of the learning rate whatever the gradient, so its moments are compared: after one step
    they are shares of the gradient and of its square.
    """
    chosen = setting(d=3, heads=2, length=9, batch=131, streams=[4], steps=1)
    weights = start(1, 2, 3)[0]
    weights[..., :32] *= scale
    expected = exact(chosen, weights)
    (_, *moments), seen = train(chosen, triton_device, weights)
    np.testing.assert_allclose(seen, expected[1], rtol=5e-6)
    for one, other in zip(moments, expected[0][1:], strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-5 * float(abs(other).max()))
    call = call_of(**chosen)
    context, query, _ = reference.prompts(call, 0, 1, call.streams)
    scores = torch.einsum(
        "blk,hkj,bj->hbl", context[0, 0], merge(*factors(weights.float().double(), 4))[0][0][..., :3], query[0, 0]
    )
    assert (abs(scores).max() > 56) == (scale > 4), "some of the scales must be beyond 2^80"


def room_for_one(empty: Callable[..., torch.Tensor], size: int, *shape: object, **chosen: object) -> torch.Tensor:
    """torch.empty on a device without room for the scratch of two runs."""
    if shape == (2 * size,):
        raise torch.OutOfMemoryError("no room")
    return empty(*shape, **chosen)


def test_two_calls_pieces_and_batches_change_nothing(
    triton_device: torch.device, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    base = setting(d=2, length=2, batch=9, streams=[6, 7], weight_decay=0.01, learning_rate=[1e-2, 2e-2], steps=3)
    state, whole = train(base, triton_device)
    assert whole.isfinite().all()

    first, seen = train(base | {"steps": 1}, triton_device)
    first = [part.to(triton_device) for part in first]
    rest = advance(*first, **(base | {"first_step": 1, "steps": 2}), implementation="triton")
    assert all(torch.equal(one.cpu(), other) for one, other in zip(first, state, strict=True))
    assert torch.equal(torch.cat((seen, rest.cpu()), dim=1), whole)

    monkeypatch.setattr(gpu, "_MOST_OF_ONE", 5)  # two steps of two tokens in a launch
    monkeypatch.setattr(torch, "empty", functools.partial(room_for_one, torch.empty, gpu.sizes(2, 2)["SCRATCH"]))
    with caplog.at_level("WARNING", logger="attnlib.kernels"):
        cut, pieces = train(base, triton_device)
    assert "going on with batches of 1" in caplog.text
    assert all(map(torch.equal, cut, state))
    assert torch.equal(pieces, whole)


def test_equal_streams_are_equal_prompts(triton_device: torch.device) -> None:
    weights = start(1, 1, 2)[0].repeat(3, 1, 1)
    chosen = setting(d=2, heads=1, length=3, batch=4, streams=[5, 5, 6], steps=1)
    state, seen = train(chosen, triton_device, weights)
    assert torch.equal(seen[0], seen[1])
    assert torch.equal(state[0][0], state[0][1])
    assert not torch.equal(seen[0], seen[2])


def test_other_betas_eps_and_a_late_step(triton_device: torch.device) -> None:
    chosen = setting(
        d=2, heads=1, length=3, batch=4, streams=[5], steps=2, first_step=2**31 - 2, betas=(0.7, 0.95), eps=1e-2,
        learning_rate=1e-2,
    )  # fmt: skip
    assert_close(train(chosen, triton_device), exact(chosen))
    early = chosen | {"first_step": 0}
    assert_close(train(early, triton_device), exact(early))


def test_a_run_that_diverges_has_losses_that_are_not_finite_and_no_influence(triton_device: torch.device) -> None:
    chosen = setting(d=2, heads=1, length=3, batch=4, streams=[5, 6], steps=5, optimiser="SGD")
    chosen["learning_rate"] = [1e30, 1e-3]
    (weights, *_), seen = train(chosen, triton_device)
    finite = seen.isfinite()
    assert finite[0].tolist() == sorted(finite[0].tolist(), reverse=True)
    assert finite[0, 0]
    assert not finite[0, -1]
    assert not weights[0].isfinite().all()
    assert finite[1].all()
    np.testing.assert_allclose(weights[1], exact(chosen | {"learning_rate": 1e-3})[0][0][1], atol=1e-6)


def test_what_a_program_cannot_hold_is_refused_or_left_to_others(triton_device: torch.device) -> None:
    where = (triton_device, torch.float32)
    assert in_context.implementation_for(7, 8, *where, implementation="triton") == "triton"
    for d, heads in ((8, 1), (1, 9)):
        assert in_context.implementation_for(d, heads, *where) != "triton"
        with pytest.raises(ValueError, match="'triton' cannot be used"):
            in_context.implementation_for(d, heads, *where, implementation="triton")


@pytest.mark.parametrize(
    ("hip", "backend"), [(None, "nvidia.compiler.CUDAOptions"), ("6.4", "amd.compiler.HIPOptions")]
)
def test_a_backend_is_asked_for_what_it_knows(hip, backend, monkeypatch) -> None:
    """Triton refuses an option that its backend does not know, with a KeyError."""
    asked: dict[str, object] = {}
    program = type("Program", (), {"__getitem__": lambda self, grid: lambda *state, **options: asked.update(options)})()
    monkeypatch.setattr(torch.version, "hip", hip)
    parameters = gpu._gpu_programs.train.arg_names
    monkeypatch.setattr(gpu._gpu_programs, "train", program)
    gpu.advance(call_of(**setting(steps=1)), *start(2, 2, 5, dtype=torch.float32))
    module, _, name = f"triton.backends.{backend}".rpartition(".")
    known = {field.name for field in dataclasses.fields(getattr(importlib.import_module(module), name))}
    assert asked.keys() - {*parameters} <= known
    assert ("maxnreg" in asked) == (hip is None)
