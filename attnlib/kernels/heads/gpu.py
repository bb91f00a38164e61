"""The heads' training loop on a GPU: one program makes all steps of a run, then those of its next run.

One program per multiprocessor, so that its run's matrix can stay in that processor's first cache from step to step. Nothing
else stays on the chip between steps: coefficients are in global memory, so that a launch can end after any step.
What one thread writes and another reads is parted by a barrier.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from attnlib.kernels.batches import in_batches
from attnlib.kernels.heads import KINDS, PREPARATIONS, Call, Recorded

ROWS, COLUMNS, WARPS = 16, 256, 8
_SECONDS = 1.0  # of a launch, about
_BYTES_PER_SECOND = 4e10  # that one program reads of its matrix if it comes from the second cache; only cuts launches
_UNDERFLOW = tl.constexpr(708.0)  # beyond this margin a sample pulls no more

# Attention maps by their number in `arguments.KINDS`.
_SOFTMAX, _SPARSEMAX, _ENTMAX15, _HARDMAX, _LINEARISED, _SIGMOID, _HALF_PLUS, _LINEAR, _RELU = (
    tl.constexpr(k) for k in range(len(KINDS))
)


@triton.jit
def _logistic(z):
    """sigma(z) and 1 - sigma(z), both with all their digits: from e^-|z|."""
    tail = tl.exp(-tl.abs(z))
    large = 1.0 / (1.0 + tail)
    small = tail * large
    return tl.where(z >= 0, large, small), tl.where(z >= 0, small, large)


@triton.jit
def _single(KIND: tl.constexpr, setting, z):
    """(w(z), w'(z)) of a map in which a token's weight depends on its own logit only."""
    one = z * 0.0 + 1.0
    if KIND == _SIGMOID:
        weight, rest = _logistic(z)
        slope = weight * rest
    elif KIND == _RELU:  # `setting` is the derivative at zero
        weight = tl.where(z <= 0, z * 0.0, z)
        slope = tl.where(z > 0, one, tl.where(z == 0, setting * one, z * 0.0))
    elif KIND == _HALF_PLUS:
        weight, slope = z + 0.5, one
    else:
        weight, slope = z, one
    return weight, slope


@triton.jit
def _weigh(KIND: tl.constexpr, setting, value, value_noise, score, score_noise):
    """(w_s, w_xi, J'(values)_s, J'(values)_xi): the weights of a sample's two tokens, and what a unit of pull turns their logits by.

    Maps whose weights sum to one see the gap z_s - z_xi only, and with w_s = w(gap) the last two are +-w'(gap) (value_s - value_xi).
    """
    if KIND >= _SIGMOID:
        weight, slope = _single(KIND, setting, score)
        weight_noise, slope_noise = _single(KIND, setting, score_noise)
        turn, turn_noise = slope * value, slope_noise * value_noise
    else:
        gap = score - score_noise
        if KIND == _SOFTMAX:  # `setting` is the temperature
            weight, weight_noise = _logistic(gap / setting)
            slope = weight * weight_noise / setting
        elif KIND == _SPARSEMAX:  # 1/2 + gap/2, between 0 and 1
            weight = tl.minimum(tl.maximum(0.5 + 0.5 * gap, 0.0), 1.0)
            weight_noise = tl.minimum(tl.maximum(0.5 - 0.5 * gap, 0.0), 1.0)
            slope = tl.where(tl.abs(gap) < 1.0, 0.5, 0.0 * gap)
        elif KIND == _ENTMAX15:  # sqrt(w) = m +- gap/4 with m^2 = 1/2 - gap^2/16, while both are positive: |gap| < 2
            inside = tl.abs(gap) < 2.0
            middle = tl.sqrt(tl.maximum(0.5 - 0.0625 * gap * gap, 0.25))
            root, root_noise = middle + 0.25 * gap, middle - 0.25 * gap
            full = tl.where(gap > 0, 0.0 * gap + 1.0, 0.0 * gap)
            weight = tl.where(inside, root * root, full)
            weight_noise = tl.where(inside, root_noise * root_noise, 1.0 - full)
            slope = tl.where(inside, (0.25 - 0.0625 * gap * gap) / middle, 0.0 * gap)
        elif KIND == _HARDMAX:  # all on the larger logit, shared at a tie; flat
            weight = tl.where(gap > 0, 0.0 * gap + 1.0, tl.where(gap == 0, 0.0 * gap + 0.5, 0.0 * gap))
            weight_noise = 1.0 - weight
            slope = 0.0 * gap
        else:  # 1/2 +- gap/4
            weight, weight_noise, slope = 0.5 + 0.25 * gap, 0.5 - 0.25 * gap, 0.0 * gap + 0.25
        turn = slope * (value - value_noise)
        turn_noise = -turn
    return weight, weight_noise, turn, turn_noise


@triton.jit
def _seen(scores, h, values, size, signals, i, inside, own, KIND: tl.constexpr, setting):
    """What head h sees of samples i, and what its map makes of it: values of both tokens, and the four of `_weigh`."""
    v_row = scores + tl.minimum(h, values - 1) * size
    p_row = scores + (values + h) * size
    value = tl.load(v_row + own, mask=inside, other=0.0)
    value_noise = tl.load(v_row + signals + i, mask=inside, other=0.0)
    score = tl.load(p_row + own, mask=inside, other=0.0)
    score_noise = tl.load(p_row + signals + i, mask=inside, other=0.0)
    weight, weight_noise, turn, turn_noise = _weigh(KIND, setting, value, value_noise, score, score_noise)
    return value, value_noise, weight, weight_noise, turn, turn_noise


@triton.jit
def _product(
    matrix, stride, x, x_stride, rows, from_, to, out, size, row, column, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    """out = x G for rows from_ ... to - 1 of a state, at the first `size` places: two rows at a time, for which every number
    of the matrix is read once. The last of an odd number makes a pair with itself."""
    for c in range(from_, to, 2):
        d = tl.minimum(c + 1, to - 1)
        for left in range(0, size, COLUMNS):
            one_sum = tl.zeros((ROWS, COLUMNS), dtype=matrix.dtype.element_ty)
            two_sum = tl.zeros((ROWS, COLUMNS), dtype=matrix.dtype.element_ty)
            across = left + column
            # A block of 16 x 256 numbers of G, 16 coefficients of each row of x; 32 multiply-adds a thread between its loads.
            for top in range(0, rows, ROWS):
                down = top + row
                here = down < rows
                inside = here[:, None] & (across < stride)[None, :]
                block = tl.load(matrix + down[:, None] * stride + across[None, :], mask=inside, other=0.0)
                one_sum += block * tl.load(x + c * x_stride + down, mask=here, other=0.0)[:, None]
                two_sum += block * tl.load(x + d * x_stride + down, mask=here, other=0.0)[:, None]
            tl.store(out + c * size + across, tl.sum(one_sum, 0), mask=across < size)
            tl.store(out + d * size + across, tl.sum(two_sum, 0), mask=across < size)


@triton.jit
def _normalise(
    matrix, stride, x, from_, to, other, size, row, column, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    """Rows of a gradient divided by their common length, the root of sum_c x_c' G x_c; a length of zero stays zero.

    They are divided by their largest number first: squares of small numbers would vanish.
    """
    zero = tl.zeros((COLUMNS,), dtype=matrix.dtype.element_ty)
    # Largest number of all rows, then all rows divided by it.
    most, square = zero, zero
    for at in range(from_ * size, to * size, COLUMNS):
        inside = at + column < to * size
        most = tl.maximum(most, tl.abs(tl.load(x + at + column, mask=inside, other=0.0)))
    largest = tl.max(most, 0)
    largest = tl.where(largest > 0, largest, 1.0)
    tl.debug_barrier()
    for at in range(from_ * size, to * size, COLUMNS):
        inside = at + column < to * size
        tl.store(x + at + column, tl.load(x + at + column, mask=inside, other=0.0) / largest, mask=inside)
    tl.debug_barrier()
    _product(matrix, stride, x, size, size, from_, to, other, size, row, column, ROWS, COLUMNS)
    tl.debug_barrier()
    for at in range(from_ * size, to * size, COLUMNS):
        inside = at + column < to * size
        mine = tl.load(x + at + column, mask=inside, other=0.0)
        square += mine * tl.load(other + at + column, mask=inside, other=0.0)
    # |sum_a x_a b_a|^2 = x' G x; a rounding below zero counts as zero.
    total = tl.sum(square, 0)
    length = tl.where(total > 0, 1.0 / tl.sqrt(tl.where(total > 0, total, 1.0)), 0.0)
    for at in range(from_ * size, to * size, COLUMNS):
        inside = at + column < to * size
        tl.store(x + at + column, tl.load(x + at + column, mask=inside, other=0.0) * length, mask=inside)
    tl.debug_barrier()


@triton.jit(do_not_specialize=["runs", "first", "last", "closing", "place_at_first", "steps"])
def descend(
    gram, coefficients, velocity, labels, classes, rates, factors, batches, numbers, scratch, marks, kept, outputs,
    attentions, runs, n, q, sixteens, heads, values, signals, batch, count, steps, first, last, closing, place_at_first,
    KIND: tl.constexpr, PREPARE: tl.constexpr, MOMENTUM: tl.constexpr, SIGNALS: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):  # fmt: skip
    """Steps first ... last - 1 of all runs; with `closing` = 1 the state after them is among the recorded ones.

    `gram` has rows of 16 `sixteens` numbers: q of the matrix, then finite ones. `numbers`: the map's setting, kappa, momentum.
    `batch` samples a step from `batches`, or 0: all of them. `marks` holds the `count` recorded steps and one more number that is no
    step. MOMENTUM: 0 none, 1 heavy ball, 2 Nesterov. SIGNALS: `signals`, rounded up to a power of two.
    `scratch` of a program, with size = signals + n: scores, gradient and another state (values + heads rows each), pulls, shares.
    """
    stride = 16 * sixteens  # of the matrix's rows; written so that the compiler lets a thread read neighbours at once
    size, columns = signals + n, values + heads
    column = tl.arange(0, COLUMNS)
    row = tl.arange(0, ROWS)
    signal = tl.arange(0, SIGNALS)
    setting, kappa, momentum = tl.load(numbers), tl.load(numbers + 1), tl.load(numbers + 2)
    scores = scratch + tl.program_id(0).to(tl.int64) * (3 * columns * size + 2 * n)
    gradient = scores + columns * size
    other = gradient + columns * size
    pulls = other + columns * size
    shares = pulls + n
    for run in range(tl.program_id(0), runs, tl.num_programs(0)):
        wide = tl.cast(run, tl.int64)
        matrix = gram + wide * q * stride
        state, speed = coefficients + wide * columns * q, velocity + wide * columns * q
        sample = wide * n
        place = place_at_first
        for step in range(first, last + closing):
            recorded = tl.load(marks + place) == step
            slot = tl.cast(place, tl.int64) * runs + run
            if recorded:
                for at in range(0, columns * q, COLUMNS):
                    inside = at + column < columns * q
                    now = tl.load(state + at + column, mask=inside)
                    tl.store(kept + slot * columns * q + at + column, now, mask=inside)
            # Scores X G of signals and noise tokens, start vectors included in X.
            _product(matrix, stride, state, q, q, 0, columns, scores, size, row, column, ROWS, COLUMNS)
            # Of a batch only the chosen samples pull: kappa/B each, the others 0.
            if batch > 0:
                for left in range(0, n, COLUMNS):
                    tl.store(shares + left + column, kappa * tl.zeros((COLUMNS,), kappa.dtype), mask=left + column < n)
                tl.debug_barrier()
                for left in range(0, batch, COLUMNS):
                    inside = left + column < batch * tl.minimum(last - step, 1)  # after the last step none
                    at = (wide * steps + step) * batch + left + column
                    chosen = tl.load(batches + at, mask=inside, other=0)
                    tl.store(shares + chosen, kappa / batch + tl.zeros((COLUMNS,), kappa.dtype), mask=inside)
            tl.debug_barrier()
            # Forward: f_i = kappa sum_h w_hi . values_hi, and pull_i = -share_i y_i sigma(-y_i f_i).
            for left in range(0, n, COLUMNS):
                i = left + column
                inside = i < n
                label = tl.load(labels + sample + i, mask=inside, other=0.0)
                own = tl.load(classes + sample + i, mask=inside, other=0)
                output = tl.zeros((COLUMNS,), dtype=gram.dtype.element_ty)
                for h in range(heads):
                    value, value_noise, weight, weight_noise, _, _ = _seen(
                        scores, h, values, size, signals, i, inside, own, KIND, setting
                    )
                    output += kappa * (weight * value + weight_noise * value_noise)
                    if recorded:
                        tl.store(attentions + (slot * heads + h) * n + i, weight, mask=inside)
                if recorded:
                    tl.store(outputs + slot * n + i, output, mask=inside)
                margin = label * output
                _, against = _logistic(margin)
                against = tl.where(margin > _UNDERFLOW, 0.0, against)
                if batch > 0:
                    share = tl.load(shares + i, mask=inside, other=0.0)
                else:
                    share = kappa / n + tl.zeros((COLUMNS,), kappa.dtype)
                tl.store(pulls + i, -share * label * against, mask=inside)
            tl.debug_barrier()
            if step < last:
                # Backward: pull_i w_hi for v_h and pull_i J_hi'(values) for p_h, at the noise token and summed at every signal.
                for h in range(heads):
                    v_row = gradient + tl.minimum(h, values - 1) * size
                    p_row = gradient + (values + h) * size
                    again = tl.minimum(h // values, 1)  # 1: a shared v, which has the gradients of the heads before
                    for_v = tl.zeros((SIGNALS,), dtype=gram.dtype.element_ty)
                    for_p = tl.zeros((SIGNALS,), dtype=gram.dtype.element_ty)
                    for left in range(0, n, COLUMNS):
                        i = left + column
                        inside = i < n
                        own = tl.load(classes + sample + i, mask=inside, other=0)
                        pull = tl.load(pulls + i, mask=inside, other=0.0)
                        _, _, weight, weight_noise, turn, turn_noise = _seen(
                            scores, h, values, size, signals, i, inside, own, KIND, setting
                        )
                        # (SIGNALS, COLUMNS): which samples have which signal. Rows are summed, in a fixed order.
                        held = (own[None, :] == signal[:, None]) & inside[None, :]
                        for_v += tl.sum(tl.where(held, (pull * weight)[None, :], 0.0), 1)
                        for_p += tl.sum(tl.where(held, (pull * turn)[None, :], 0.0), 1)
                        before = tl.load(v_row + signals + i, mask=i < again * n, other=0.0)
                        tl.store(v_row + signals + i, before + pull * weight_noise, mask=inside)
                        tl.store(p_row + signals + i, pull * turn_noise, mask=inside)
                    before = tl.load(v_row + signal, mask=signal < again * signals, other=0.0)
                    tl.store(v_row + signal, before + for_v, mask=signal < signals)
                    tl.store(p_row + signal, for_p, mask=signal < signals)
                    tl.debug_barrier()
                for block in tl.static_range(PREPARE):  # none, all vectors together, or the v_h and the p_h
                    from_, to = block * values, columns
                    if PREPARE == 2 and block == 0:
                        to = values
                    _normalise(matrix, stride, gradient, from_, to, other, size, row, column, ROWS, COLUMNS)
                # torch.optim.SGD: b <- mu b + g, x <- x - rate (b, or g + mu b).
                factor = tl.load(factors + step)
                for c in range(columns):
                    rate = factor * tl.load(rates + 2 * run + tl.minimum(c // values, 1))
                    for left in range(0, size, COLUMNS):
                        at = left + column
                        inside = at < size
                        slope = tl.load(gradient + c * size + at, mask=inside, other=0.0)
                        if MOMENTUM > 0:
                            gathered = momentum * tl.load(speed + c * q + at, mask=inside, other=0.0) + slope
                            tl.store(speed + c * q + at, gathered, mask=inside)
                            slope = slope + momentum * gathered if MOMENTUM == 2 else gathered
                        x = tl.load(state + c * q + at, mask=inside, other=0.0)
                        tl.store(state + c * q + at, x - rate * slope, mask=inside)
            place += recorded.to(tl.int32)
            tl.debug_barrier()


def _programs(device: torch.device) -> int:
    """One for every multiprocessor; two in the interpreter."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 2


def advance(call: Call) -> Recorded:
    """See `attnlib.kernels.heads.advance`. Unless q is a multiple of 16, the matrices are copied into wider rows."""
    runs, q = call.gram.shape[:2]
    device, itemsize, like = call.gram.device, call.gram.element_size(), call.gram
    columns, size = call.coefficients.shape[1], call.signals + call.n
    seen = call.blank()
    marks = torch.tensor([*call.record, -1], dtype=torch.int64, device=device)
    numbers = like.new_tensor([call.attention_map.setting, call.output_scale, call.momentum])
    factors = call.factors.to(like)
    sixteens = -(-q // 16)
    most, each = _programs(device), 3 * columns * size + 2 * call.n
    whole = call.batches is None
    shape = {
        "KIND": KINDS.index(call.attention_map.kind), "PREPARE": PREPARATIONS.index(call.prepare),
        "MOMENTUM": 0 if call.momentum == 0 else 2 if call.look_ahead else 1,
        "SIGNALS": triton.next_power_of_2(call.signals), "ROWS": ROWS, "COLUMNS": COLUMNS,
    }  # fmt: skip

    def work(part: slice) -> None:
        held = part.stop - part.start
        programs = min(held, most)
        scratch = like.new_empty(programs * each)
        matrices = torch.nn.functional.pad(call.gram[part], (0, 16 * sixteens - q)).contiguous()
        mine = [x[part] for x in (call.coefficients, call.buffers, call.labels, call.classes, call.rates)]
        batches = marks if whole else call.batches[part]
        kept = [x.new_empty(x.shape[0], held, *x.shape[2:]) for x in (seen.coefficients, seen.output, seen.attention)]
        waves = -(-held // programs)
        at_once = max(1, int(_SECONDS * _BYTES_PER_SECOND / (waves * q * q * columns / 2 * itemsize)))
        for first in range(0, max(1, call.steps), at_once):
            last = min(first + at_once, call.steps)
            closing = last == call.steps and call.steps in call.record
            place = sum(step < first for step in call.record)
            descend[(programs,)](
                matrices, *mine, factors, batches, numbers, scratch, marks, *kept, held, call.n, q, sixteens, call.heads,
                call.values, call.signals, 0 if whole else batches.shape[2], len(call.record), call.steps, first, last,
                int(closing), place, **shape, num_warps=WARPS, enable_fp_fusion=True,
            )  # fmt: skip
            if device.type == "cuda":  # so that Ctrl-C is heard between two launches
                torch.cuda.current_stream(device).synchronize()
        for found, new in zip((seen.coefficients, seen.output, seen.attention), kept, strict=True):
            found[:, part] = new

    bytes_per_run = (16 * sixteens * q + each + len(call.record) * (columns * q + call.n * (1 + call.heads))) * itemsize
    in_batches(work, runs, bytes_per_run=bytes_per_run, device=device)
    return seen
