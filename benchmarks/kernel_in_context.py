"""In-context training: steps of one layer with 1, 2, 4 and 8 heads at the authors' sizes, against eager torch.

On the CPU the compiled loop, alone, on two threads, and with 64 replicas that share prompts; on a GPU one program a replica, at the
numbers of replicas that fill a large one, and at fewer.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import numpy as np
import torch

from attnlib.kernels import in_context
from attnlib.kernels.in_context import factors, reference
from benchmarks import naive_in_context
from benchmarks.registry import Case, Work, of_one_unit

__all__ = ["cases", "gate", "ratios"]

_SIZE = {"d": 5, "length": 40, "batch": 128}
_NOISE, _RATE, _SHARING = 0.01, 1e-3, 64
_HEADS = (1, 2, 4, 8)
_STEPS = {"compiled": 10_000, "shared": 200, "naive": 200, "reference": 100, "triton": 20_000}
_FILLING = {1: 528, 2: 528, 4: 396, 8: 264}  # programs at once on 132 processors: four, four, three, two on each
_REPLICAS = {heads: (full, 132, 1) for heads, full in _FILLING.items()}


def _start(heads: int, replicas: int, device: str = "cpu", dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """Weights and moments; torch's default ranges."""
    n = _SIZE["d"] + 1
    weights = np.random.default_rng(0).uniform(-1, 1, (replicas, heads, 3 * n * n + n)) / n**0.5
    weights[..., 3 * n * n :] /= heads**0.5
    first = torch.from_numpy(weights.astype(np.float32)).to(device, dtype)
    return [first, torch.zeros_like(first), torch.zeros_like(first)]


def _call(heads: int, steps: int, streams: range | list[int]) -> in_context.Call:
    return in_context.Call(
        **_SIZE, heads=heads, seed=7, streams=np.array(streams, dtype=np.uint32), first_step=0, steps=steps, beta_std=1.0,
        noise_std=_SIZE["d"] ** 0.5 * _NOISE, target_noise_std=0.0, optimiser="Adam",
        learning_rate=np.full(len(streams), _RATE),
    )  # fmt: skip


def _naive_model(weights: torch.Tensor) -> naive_in_context.MultiHead:
    """The eager model at weights (H, 3 n^2 + n)."""
    heads, n = len(weights), _SIZE["d"] + 1
    model = naive_in_context.MultiHead(heads, n)
    for layer, part in zip((model.query, model.key, model.value, model.output), factors(weights, n), strict=True):
        layer.weight.data = part.reshape(layer.weight.shape).clone()
    return model


@functools.cache
def gate(device: str = "cpu") -> None:
    """Eager torch and the fast loop end where the readable loop in float64 ends after 20 steps. Raises AssertionError."""
    for heads in _HEADS:
        state, exact = _start(heads, 1, device), _start(heads, 1, dtype=torch.float64)
        model, call = _naive_model(exact[0][0].float()), _call(heads, 20, [0])
        context, query, target = (part[0].float() for part in reference.prompts(call, 0, 20, call.streams))
        query = torch.nn.functional.pad(query, (0, 1))[:, :, None]
        losses = naive_in_context.train(model, zip(context, query, target, strict=True), _RATE)
        ours, theirs = in_context.advance(call, *state), in_context.advance(call, *exact, implementation="reference")
        layers = (model.query, model.key, model.value, model.output)
        pairs = [(state[0].cpu(), exact[0]), *zip([x.weight for x in layers], factors(exact[0][0], 6), strict=True)]
        apart = max((one.double().ravel() - two.ravel()).abs().max().item() for one, two in pairs)
        close = [np.allclose(x, theirs[0], rtol=1e-4) for x in (ours[0].cpu(), losses)]
        if apart > 2e-5 or not all(close):
            raise AssertionError(f"the loops differ at {heads} heads: no speed is reported")


def _loop(kind: str, heads: int, streams: range | list[int], threads: int = 1) -> Callable[[], object]:
    implementation = "compiled" if kind == "shared" else kind
    dtype, device = torch.float64 if kind == "reference" else torch.float32, "cuda" if kind == "triton" else "cpu"
    state, call = _start(heads, len(streams), device, dtype), _call(heads, _STEPS[kind], streams)

    def run() -> None:
        in_context.advance(call, *state, threads=threads, implementation=implementation)
        if device == "cuda":
            torch.cuda.synchronize()

    return run


def _naive(heads: int, device: str) -> Callable[[], object]:
    """Its losses are read off at every step, so it ends when its work has ended."""
    model = _naive_model(_start(heads, 1, device)[0][0])

    def run() -> None:
        with torch.device(device):
            data = naive_in_context.batches(_STEPS["naive"], **_SIZE, noise_std=_NOISE)
            naive_in_context.train(model, data, _RATE)

    return run


def _operations(heads: int, sharing: int = 1, *, gpu: bool = False) -> float:
    """Floating-point operations of one step of one of `sharing` replicas, a fused multiply-add counted as two; no integer work.

    A normal takes 17: half a pair with a logarithm of degree 6, a square root, a sine and a cosine; 20 on a GPU. A token takes 2 n
    for its score, 14 for the power of two and the total, 2 n for A, 2 n + 2 for its centred value, 2 n for C, for every head; on a
    GPU, whose powers are an instruction, 2 n - 1 each for its score and its value, 3 for the power, 2 n each for A and C.
    """
    d, length, batch = _SIZE["d"], _SIZE["length"], _SIZE["batch"]
    n = d + 1
    draw = (20 if gpu else 17) * (2 * d + 2 + length * (n + n % 2)) + 2 * n * (length + 1)
    attend = length * (8 * n + (1 if gpu else 16)) + 2 * n * d + (6 * n + 2 if gpu else 4 * n + 4)
    collect = 2 * n * n + (0 if gpu else n)
    return batch * (draw / sharing + heads * (attend + collect)) + heads * 10 * n**3


def _case(
    name: str, what: str, kind: str, heads: int, streams: range | list[int] = range(1), threads: int = 1, device: str = "cpu"
) -> Case:  # fmt: skip
    """Own prompts stay in L1 or registers, a block of 16 at a time; shared ones are read from L2 by every replica."""
    shared = kind == "shared"
    held = 4 * _SIZE["batch"] * (_SIZE["length"] + 1) * (_SIZE["d"] + 1) if shared else 0
    work = Work(
        _STEPS[kind] * len(streams), "model-step", _operations(heads, len(streams) if shared else 1, gpu=device == "cuda"),
        held, "L2" if shared else "", "float64" if kind == "reference" else "float32", "in_context",
    )  # fmt: skip
    naive = functools.partial(_naive, heads, device)
    make = naive if kind == "naive" else functools.partial(_loop, kind, heads, streams, threads)
    what = f"{_STEPS[kind]} steps {what}, H = {heads}, d = 5, L = 40, B = 128, Adam"
    return Case(name, what, make, work=work, threads=threads, gate=functools.partial(gate, device))


def cases(device: str) -> tuple[Case, ...]:
    """The cases of this loop on "cpu" or "cuda"."""
    found = []
    for h in _HEADS:
        if device == "cuda":
            found += [
                _case(f"gpu-h{h}-r{r}", f"of {r} GPU programs, own prompts", "triton", h, range(r), device=device)
                for r in _REPLICAS[h]
            ]
            found.append(_case(f"gpu-naive-h{h}", "reference: in eager torch on the GPU", "naive", h, device=device))
        else:
            found += [
                _case(f"compiled-h{h}", "compiled", "compiled", h),
                _case(f"two-threads-h{h}", "of two replicas on two threads", "compiled", h, range(2), 2),
                _case(f"naive-h{h}", "reference: in eager torch", "naive", h),
            ]
    if device == "cpu":
        for threads, name in ((1, "shared-64-h2"), (2, "shared-64-two-threads-h2")):
            words = f"of {_SHARING} replicas that share their prompts, {threads} thread{'s' * (threads > 1)}"
            found.append(_case(name, words, "shared", 2, [0] * _SHARING, threads))
        found.append(_case("reference-h2", "of the readable loop in float64", "reference", 2))
    return tuple(found)


def ratios(median: Mapping[str, float]) -> dict[str, float]:
    """What is read off the medians; a case that was not run leaves its ratios out."""
    pairs: dict[str, tuple[str, str, float]] = {}
    fast, slow = _STEPS["compiled"], _STEPS["naive"]
    for h in _HEADS:
        words, ours = f"in context, H = {h}", f"compiled-h{h}"
        pairs[f"{words}: eager torch / compiled, one step"] = (f"naive-h{h}", ours, fast / slow)
        pairs[f"{words}: two threads / one, steps per second"] = (ours, f"two-threads-h{h}", 2.0)
        for r in _REPLICAS[h]:
            key = f"{words}, {r} replicas: eager torch on the GPU / programs, one step"
            pairs[key] = (f"gpu-naive-h{h}", f"gpu-h{h}-r{r}", r * _STEPS["triton"] / slow)
    share = _SHARING * _STEPS["shared"]
    key = "in context, H = 2: eager torch / compiled, 64 replicas that share prompts"
    pairs[key] = ("naive-h2", "shared-64-h2", share / slow)
    key = "in context, H = 2: own prompts / shared prompts, one step of one replica"
    pairs[key] = ("compiled-h2", "shared-64-h2", share / fast)
    found = of_one_unit(median, pairs)
    if all(f"compiled-h{h}" in median for h in _HEADS):
        seconds = sum(median[f"compiled-h{h}"] for h in _HEADS) / fast * 500_001
        found["in context: seconds for H = 1, 2, 4, 8 at 500 001 steps on one core (extrapolated)"] = seconds
    return found
