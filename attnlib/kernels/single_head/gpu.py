"""The single head's training loop on a GPU: one program makes all steps of a run, then those of its next run.

One program per multiprocessor, so that its run's matrix can stay in that processor's first cache from step to step. Nothing
else stays on the chip between steps: coefficients are in global memory, so that a launch can end after any step.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from attnlib.kernels.batches import in_batches
from attnlib.kernels.single_head.arguments import Call, Recorded

__all__ = ["COLUMNS", "ROWS", "WARPS", "advance", "descend"]

ROWS, COLUMNS, WARPS = 16, 256, 8
_SECONDS = 1.0  # of a launch, about
_BYTES_PER_SECOND = 4e10  # that one program reads of its matrix if it comes from the second cache; only cuts launches


@triton.jit(do_not_specialize=["runs", "first", "last", "closing", "place_at_first"])
def descend(
    gram,
    coefficients,
    labels,
    classes,
    rates,
    scores,
    marks,
    kept,
    outputs,
    attentions,
    runs,
    n,
    m,
    sixteens,
    count,
    first,
    last,
    closing,
    place_at_first,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Steps first ... last - 1 of all runs; with `closing` = 1 the state after them is among the recorded ones.

    `gram` has rows of 16 `sixteens` numbers: m of the matrix, then finite ones. `marks` holds the `count` recorded steps and
    one more number that is no step. `scores` has room for 2 (n + 2) numbers a program. Between a write and another thread's
    read there is always a barrier.
    """
    stride = 16 * sixteens  # of the matrix's rows; written so that the compiler lets a thread read neighbours at once
    column = tl.arange(0, COLUMNS)
    row = tl.arange(0, ROWS)
    scores += tl.program_id(0).to(tl.int64) * 2 * (n + 2)
    for run in range(tl.program_id(0), runs, tl.num_programs(0)):
        matrix = gram + tl.cast(run, tl.int64) * m * stride
        state = coefficients + tl.cast(run, tl.int64) * 2 * m
        sample = tl.cast(run, tl.int64) * n
        value_rate = tl.load(rates + 2 * run)
        attention_rate = tl.load(rates + 2 * run + 1)
        place = place_at_first
        for step in range(first, last + closing):
            seen = tl.load(marks + place) == step
            slot = tl.cast(run, tl.int64) * count + place
            if seen:
                for at in range(0, 2 * m, COLUMNS):
                    inside = at + column < 2 * m
                    tl.store(kept + slot * 2 * m + at + column, tl.load(state + at + column, mask=inside), mask=inside)
            for left in range(0, n + 2, COLUMNS):
                value_sum = tl.zeros((ROWS, COLUMNS), dtype=gram.dtype.element_ty)
                score_sum = tl.zeros((ROWS, COLUMNS), dtype=gram.dtype.element_ty)
                across = left + column
                for top in range(0, m, ROWS):
                    down = top + row
                    here = down < m
                    inside = here[:, None] & (across < stride)[None, :]
                    block = tl.load(matrix + down[:, None] * stride + across[None, :], mask=inside, other=0.0)
                    value_sum += block * tl.load(state + 2 * down, mask=here, other=0.0)[:, None]
                    score_sum += block * tl.load(state + 2 * down + 1, mask=here, other=0.0)[:, None]
                tl.store(scores + 2 * across, tl.sum(value_sum, 0), mask=across < n + 2)
                tl.store(scores + 2 * across + 1, tl.sum(score_sum, 0), mask=across < n + 2)
            tl.debug_barrier()
            moved = tl.minimum(last - step, 1) * n  # after the last step none of the n samples
            first_value, first_score = tl.load(scores), tl.load(scores + 1)
            second_value, second_score = tl.load(scores + 2), tl.load(scores + 3)
            first_total = tl.zeros((COLUMNS,), dtype=gram.dtype.element_ty)
            first_turn = tl.zeros((COLUMNS,), dtype=gram.dtype.element_ty)
            second_total = tl.zeros((COLUMNS,), dtype=gram.dtype.element_ty)
            second_turn = tl.zeros((COLUMNS,), dtype=gram.dtype.element_ty)
            for left in range(0, n, COLUMNS):
                i = left + column
                inside = i < n
                value = tl.load(scores + 2 * (i + 2), mask=inside, other=0.0)
                score = tl.load(scores + 2 * (i + 2) + 1, mask=inside, other=0.0)
                label = tl.load(labels + sample + i, mask=inside, other=0.0)
                is_second = tl.load(classes + sample + i, mask=inside, other=0) == 1
                value_gap = tl.where(is_second, second_value, first_value) - value
                score_gap = tl.where(is_second, second_score, first_score) - score
                tail = tl.exp(-tl.abs(score_gap))
                on_signal = tl.where(score_gap >= 0, 1.0, tail) / (1.0 + tail)
                on_noise = tl.where(score_gap >= 0, tail, 1.0) / (1.0 + tail)
                output = value + on_signal * value_gap
                margin = label * output
                tail = tl.exp(-tl.abs(margin))
                pull = label * tl.where(margin >= 0, tail, 1.0) / (1.0 + tail)
                toward = value_rate * pull * on_signal
                turn = attention_rate * pull * on_signal * on_noise * value_gap
                mine = state + 2 * (i + 2)
                changed = i < moved
                tl.store(mine, tl.load(mine, mask=inside) + value_rate * pull * on_noise, mask=changed)
                tl.store(mine + 1, tl.load(mine + 1, mask=inside) - turn, mask=changed)
                first_total += tl.where(is_second, 0.0, toward)
                first_turn += tl.where(is_second, 0.0, turn)
                second_total += tl.where(is_second, toward, 0.0)
                second_turn += tl.where(is_second, turn, 0.0)
                if seen:
                    tl.store(outputs + slot * n + i, output, mask=inside)
                    tl.store(attentions + slot * n + i, on_signal, mask=inside)
            if step < last:
                tl.store(state, tl.load(state) + tl.sum(first_total, 0))
                tl.store(state + 1, tl.load(state + 1) + tl.sum(first_turn, 0))
                tl.store(state + 2, tl.load(state + 2) + tl.sum(second_total, 0))
                tl.store(state + 3, tl.load(state + 3) + tl.sum(second_turn, 0))
            place += seen.to(tl.int32)
            tl.debug_barrier()


def _programs(device: torch.device) -> int:
    """One for every multiprocessor; two in the interpreter."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 2


def advance(
    call: Call, gram: torch.Tensor, coefficients: torch.Tensor, labels: torch.Tensor, classes: torch.Tensor
) -> Recorded:
    """See `attnlib.kernels.single_head.advance`. Unless m is a multiple of 16, the matrices are copied into wider rows."""
    runs, m = gram.shape[:2]
    device, size = gram.device, gram.element_size()
    seen = Recorded.blank(call, coefficients)
    marks = torch.tensor([*call.record, -1], dtype=torch.int64, device=device)
    sixteens = -(-m // 16)
    most = _programs(device)

    def work(part: slice) -> None:
        programs = min(part.stop - part.start, most)
        scores = gram.new_empty(programs, 2 * (call.n + 2))
        matrices = torch.nn.functional.pad(gram[part], (0, 16 * sixteens - m)).contiguous()
        state = [tensor[part] for tensor in (coefficients, labels, classes, call.rates)]
        kept = [tensor[part] for tensor in (seen.coefficients, seen.output, seen.attention)]
        waves = -(-(part.stop - part.start) // programs)
        at_once = max(1, int(_SECONDS * _BYTES_PER_SECOND / (waves * m * m * size)))
        for first in range(0, max(1, call.steps), at_once):
            last = min(first + at_once, call.steps)
            closing = last == call.steps and call.steps in call.record
            place = sum(step < first for step in call.record)
            descend[(programs,)](
                matrices, *state, scores, marks, *kept, part.stop - part.start, call.n, m, sixteens, len(call.record),
                first, last, int(closing), place, ROWS=ROWS, COLUMNS=COLUMNS, num_warps=WARPS, enable_fp_fusion=True,
            )  # fmt: skip

    in_batches(work, runs, bytes_per_run=(16 * sixteens * m + 2 * call.n + 4) * size, device=device)
    return seen
