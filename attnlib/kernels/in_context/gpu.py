"""Training of in-context regression on a GPU: `reference.advance` in float32, one program a run, all steps inside.

The data are made inside from the counters of `prompt_stream`, so nothing but the weights, their moments and the losses
lies in the device's memory. Programs are launched for a bounded number of steps at a time and waited for, so that a long
training can be interrupted.

Needs Triton (extra `gpu`), whose mode, compiled or interpreted, is fixed when it is imported: nothing imports this module
before it is used.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import triton

from attnlib.kernels.batches import in_batches
from attnlib.kernels.in_context import Call, _gpu_programs

# Of one launch, in blocks of 128 tokens: of each program, and of all; meant to take about a second.
_MOST_OF_ONE, _MOST_OF_ALL = 2_000_000, 1_000_000_000
_LANES = _gpu_programs.LANES.value


def sizes(d: int, heads: int) -> dict[str, int]:
    """What a program is compiled for; SCRATCH is the number of floats of a run's scratch (see `_gpu_programs`)."""
    n = d + 1
    floats = (2 * heads * n + d + 2) * _LANES + heads * n * (5 * n + 2)
    return {
        "D": d,
        "H": heads,
        "ROWS": triton.next_power_of_2(heads * n),
        "ENTRIES": triton.next_power_of_2(heads * n * n),
        "PARAMETERS": triton.next_power_of_2(heads * n * (3 * n + 1)),
        "SCRATCH": -(-floats // _LANES) * _LANES,
    }


def registers(d: int, heads: int) -> int:
    """Registers that a thread may take: room for four, three or two programs on a processor, by what the token loop holds."""
    held = heads * (4 * (d + 1) + 1)
    return 128 if held <= 80 else 168 if held <= 120 else 255


def _words(values: Sequence[int] | np.ndarray, device: torch.device) -> torch.Tensor:
    """Numbers below 2^32 as the int32 with the same bits."""
    return torch.from_numpy(np.array(values, dtype=np.uint32).view(np.int32)).to(device)


def _corrections(call: Call) -> tuple[np.ndarray, np.ndarray]:
    """1/(1 - b1^t) and 1/sqrt(1 - b2^t) of every step of the call: in double, for 1 - 0.999^t has no digits to spare."""
    updates = np.arange(call.first_step + 1, call.first_step + call.steps + 1, dtype=np.float64)
    b1, b2 = call.betas
    return 1 / (1 - b1**updates), 1 / np.sqrt(1 - b2**updates)


def advance(call: Call, weights: torch.Tensor, first_moment: torch.Tensor, second_moment: torch.Tensor) -> torch.Tensor:
    """Train all runs of `call` for its steps, in place.

    Args:
        call: checked arguments; up to 8 heads and d = 7 a program's sums find room in registers.
        weights, first_moment, second_moment: float32 (R, H, 3 n^2 + n), contiguous, on one device.
    """
    device, heads = weights.device, call.heads
    decoupled = call.optimiser == "AdamW"
    runs = len(call.streams)
    losses = weights.new_empty(runs, call.steps)

    def single(values: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32)).to(device)

    keys, streams = _words([call.seed & 0xFFFFFFFF, call.seed >> 32], device), _words(call.streams, device)
    rates, scales = single(call.learning_rate), [single(values) for values in _corrections(call)]
    keeps = single(1.0 - call.learning_rate * call.weight_decay if decoupled else np.ones(runs))
    b1, b2 = call.betas
    floats = {
        "beta_std": call.beta_std, "noise_std": call.noise_std, "target_noise_std": call.target_noise_std,
        "decay": 0.0 if decoupled else call.weight_decay, "less1": 1.0 - b1, "b2": b2, "less2": 1.0 - b2, "eps": call.eps,
    }  # fmt: skip
    shape = sizes(call.d, heads)
    if torch.version.hip is None:  # AMD's backend knows no such option
        shape["maxnreg"] = registers(call.d, heads)
    size, blocks = shape["SCRATCH"], call.length * triton.cdiv(call.batch, _LANES)

    def work(part: slice) -> None:
        programs = part.stop - part.start
        scratch = torch.empty(programs * size, dtype=torch.float32, device=device)
        most = max(1, min(_MOST_OF_ONE, _MOST_OF_ALL // programs) // blocks)
        for start in range(0, max(1, call.steps), most):
            _gpu_programs.train[(programs,)](
                weights, first_moment, second_moment, scratch, keys, streams, rates, keeps, *scales, losses,
                first_run=part.start, first_step=call.first_step, start=start, steps=min(most, call.steps - start), row=call.steps,
                batch=call.batch, length=call.length, adaptive=int(call.optimiser != "SGD"), **floats, **shape,
                num_warps=4, enable_fp_fusion=True,
            )  # fmt: skip
            if device.type == "cuda":
                torch.cuda.current_stream(device).synchronize()

    in_batches(work, runs, bytes_per_run=4 * size, device=device)
    return losses
