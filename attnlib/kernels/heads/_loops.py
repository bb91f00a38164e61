"""Training of attention heads in Gram coordinates, for the CPU: a run's steps are made while its matrix is near. float64.

Loaded by `compiled` through `_build`, which keeps the machine code between processes. Rows of the working memory are padded with
zeros to whole vectors; their order of vectors of the basis is the caller's: signals, noise tokens, start vectors.
"""

from __future__ import annotations

import math

from numba import njit

from attnlib.kernels._exponential import exponential

# Sums along a row may be reordered, products and sums fused; nothing else, so that NaNs stay NaNs.
_elementwise = njit(fastmath={"contract", "nsz"}, nogil=True, error_model="numpy")
_reduced = njit(fastmath={"contract", "nsz", "reassoc"}, nogil=True, error_model="numpy")

ROWS = 4  # of the matrix that one pass over a pair of columns takes
SOFTMAX, SPARSEMAX, ENTMAX15, HARDMAX, LINEARISED, SIGMOID, HALF_PLUS, LINEAR, RELU = range(9)
BLOCKS = 2  # 0: nothing is done to the gradient, 1: joint
UNDERFLOW = 708.0  # beyond this margin a sample pulls no more


@_reduced
def product(matrix, x, base, out, rows, first, last):
    """out = base + x matrix at some places, given by a multiple of ROWS rows of the symmetric matrix; columns first ... last - 1."""
    for j in range(0, rows.shape[0], ROWS):
        i0, i1, i2, i3 = rows[j], rows[j + 1], rows[j + 2], rows[j + 3]
        r0, r1, r2, r3 = matrix[i0], matrix[i1], matrix[i2], matrix[i3]
        for c in range(first, last, 2):
            d = min(c + 1, last - 1)  # the last of an odd number makes a pair with itself
            one, two = x[c], x[d]
            s0 = s1 = s2 = s3 = t0 = t1 = t2 = t3 = 0.0
            for k in range(x.shape[1]):
                y, z = one[k], two[k]
                s0 += r0[k] * y
                t0 += r0[k] * z
                s1 += r1[k] * y
                t1 += r1[k] * z
                s2 += r2[k] * y
                t2 += r2[k] * z
                s3 += r3[k] * y
                t3 += r3[k] * z
            out[c, i0], out[c, i1], out[c, i2], out[c, i3] = (
                base[c, i0] + s0,
                base[c, i1] + s1,
                base[c, i2] + s2,
                base[c, i3] + s3,
            )
            out[d, i0], out[d, i1], out[d, i2], out[d, i3] = (
                base[d, i0] + t0,
                base[d, i1] + t1,
                base[d, i2] + t2,
                base[d, i3] + t3,
            )


@_elementwise
def rows_of(chosen, signals, rows):
    """Rows of the signals and of the chosen samples' noise tokens, to a multiple of ROWS."""
    count = signals + chosen.shape[0]
    end = (count + ROWS - 1) // ROWS * ROWS
    for k in range(signals):
        rows[k] = k
    for j in range(chosen.shape[0]):
        rows[signals + j] = signals + chosen[j]
    for j in range(count, end):
        rows[j] = 0
    return rows[:end]


@_elementwise
def forward(kind, setting, scale, heads, signals, scores, classes, chosen, tokens, seen):
    """Outputs of the chosen samples in seen[0]; from seen[1 + 4 h] on for head h the weight of the signal token, that of the noise
    token, and for both J'(their values): what a unit of pull turns the logits by."""
    values = scores.shape[0] - heads
    count = chosen.shape[0]
    value, value_noise, score, score_noise = tokens[0], tokens[1], tokens[2], tokens[3]
    output = seen[0]
    for j in range(count):
        output[j] = 0.0
    for h in range(heads):
        if h < values:
            row = scores[h]
            for j in range(count):
                value[j], value_noise[j] = row[classes[chosen[j]]], row[signals + chosen[j]]
        row = scores[values + h]
        for j in range(count):
            score[j], score_noise[j] = row[classes[chosen[j]]], row[signals + chosen[j]]
        weight, weight_noise, turn, turn_noise = seen[1 + 4 * h], seen[2 + 4 * h], seen[3 + 4 * h], seen[4 + 4 * h]
        if kind == SOFTMAX:
            cold = 1.0 / setting
            for j in range(count):
                gap = cold * (score[j] - score_noise[j])
                tail = exponential(-abs(gap))
                large = 1.0 / (1.0 + tail)
                small = tail * large
                weight[j] = large if gap >= 0 else small
                weight_noise[j] = small if gap >= 0 else large
                turn[j] = cold * large * small
        elif kind == SPARSEMAX:
            for j in range(count):
                gap = score[j] - score_noise[j]
                weight[j] = min(max(0.5 + 0.5 * gap, 0.0), 1.0)
                weight_noise[j] = min(max(0.5 - 0.5 * gap, 0.0), 1.0)
                turn[j] = 0.5 if abs(gap) < 1.0 else 0.0
        elif kind == ENTMAX15:
            for j in range(count):
                gap = score[j] - score_noise[j]
                inside = abs(gap) < 2.0
                middle = math.sqrt(max(0.5 - 0.0625 * gap * gap, 0.25))  # of the roots of both weights
                root, root_noise = middle + 0.25 * gap, middle - 0.25 * gap
                weight[j] = root * root if inside else (1.0 if gap > 0 else 0.0)
                weight_noise[j] = root_noise * root_noise if inside else (0.0 if gap > 0 else 1.0)
                turn[j] = (0.25 - 0.0625 * gap * gap) / middle if inside else 0.0
        elif kind == HARDMAX:
            for j in range(count):
                gap = score[j] - score_noise[j]
                weight[j] = 1.0 if gap > 0 else (0.5 if gap == 0 else 0.0)
                weight_noise[j] = 1.0 - weight[j]
                turn[j] = 0.0
        elif kind == LINEARISED:
            for j in range(count):
                gap = score[j] - score_noise[j]
                weight[j], weight_noise[j], turn[j] = 0.5 + 0.25 * gap, 0.5 - 0.25 * gap, 0.25
        else:  # a token's weight depends on its own logit only
            for both in range(2):
                logit, own, slope = (score_noise, weight_noise, turn_noise) if both else (score, weight, turn)
                for j in range(count):
                    z = logit[j]
                    if kind == SIGMOID:
                        tail = exponential(-abs(z))
                        large = 1.0 / (1.0 + tail)
                        own[j] = large if z >= 0 else tail * large
                        slope[j] = large * (tail * large)
                    elif kind == RELU:
                        own[j] = 0.0 if z <= 0 else z
                        slope[j] = 1.0 if z > 0 else (setting if z == 0 else 0.0)
                    else:
                        own[j], slope[j] = z + (0.5 if kind == HALF_PLUS else 0.0), 1.0
        for j in range(count):
            output[j] += scale * (weight[j] * value[j] + weight_noise[j] * value_noise[j])
            if kind < SIGMOID:  # the weights' sum is one
                turn[j] *= value[j] - value_noise[j]
                turn_noise[j] = -turn[j]
            else:
                turn[j] *= value[j]
                turn_noise[j] *= value_noise[j]


@_elementwise
def pulls(output, labels, chosen, factor, pull):
    """The loss's derivative by each output, times `factor`."""
    for j in range(chosen.shape[0]):
        margin = labels[chosen[j]] * output[j]
        tail = exponential(-abs(margin))
        share = 1.0 / (1.0 + tail)
        slope = share * tail if margin >= 0 else share
        pull[j] = -factor * labels[chosen[j]] * (0.0 if margin > UNDERFLOW else slope)


@_elementwise
def collect(heads, signals, classes, chosen, pull, seen, gradient):
    """Coefficients of the gradient, all columns."""
    for c in range(gradient.shape[0]):
        for k in range(gradient.shape[1]):
            gradient[c, k] = 0.0
    values = gradient.shape[0] - heads
    for h in range(heads):
        weight, weight_noise, turn, turn_noise = seen[1 + 4 * h], seen[2 + 4 * h], seen[3 + 4 * h], seen[4 + 4 * h]
        for_v, for_p = gradient[min(h, values - 1)], gradient[values + h]
        for j in range(chosen.shape[0]):
            k, i = classes[chosen[j]], signals + chosen[j]
            for_v[k] += pull[j] * weight[j]
            for_v[i] += pull[j] * weight_noise[j]
            for_p[k] += pull[j] * turn[j]
            for_p[i] += pull[j] * turn_noise[j]


@_elementwise
def shrink(x, first, last):
    """Rows divided by their largest number: squares of small numbers would vanish."""
    largest = 0.0
    for c in range(first, last):
        for k in range(x.shape[1]):
            largest = max(largest, abs(x[c, k]))
    if largest > 0:
        for c in range(first, last):
            for k in range(x.shape[1]):
                x[c, k] /= largest


@_elementwise
def normalise(x, other, first, last):
    """Rows of x divided by the root of the sum of x_c' other_c; a length of zero stays zero."""
    square = 0.0
    for c in range(first, last):
        for k in range(x.shape[1]):
            square += x[c, k] * other[c, k]
    size = 0.0 if square <= 0 else 1.0 / math.sqrt(square)
    for c in range(first, last):
        for k in range(x.shape[1]):
            x[c, k] *= size


@_elementwise
def move(x, velocity, gradient, value_rate, attention_rate, values, momentum, look_ahead):
    """One step of torch.optim.SGD."""
    for c in range(x.shape[0]):
        rate = value_rate if c < values else attention_rate
        at, buffer, slope = x[c], velocity[c], gradient[c]
        if momentum == 0:
            for k in range(at.shape[0]):
                at[k] -= rate * slope[k]
        elif look_ahead:
            for k in range(at.shape[0]):
                buffer[k] = momentum * buffer[k] + slope[k]
                at[k] -= rate * (slope[k] + momentum * buffer[k])
        else:
            for k in range(at.shape[0]):
                buffer[k] = momentum * buffer[k] + slope[k]
                at[k] -= rate * buffer[k]


@_elementwise
def pack(gram, coefficients, velocity, matrix, x, start, buffer, size):
    """A run's numbers into the working memory; what start vectors add to the scores never changes."""
    columns, q = coefficients.shape
    for j in range(size):
        for k in range(size):
            matrix[j, k] = gram[j, k]
    for c in range(columns):
        for k in range(size):
            x[c, k], buffer[c, k], start[c, k] = coefficients[c, k], velocity[c, k], 0.0
        for j in range(size, q):
            for k in range(size):
                start[c, k] += coefficients[c, j] * gram[j, k]


@_elementwise
def keep(x, size, coefficients, seen, heads, kept, output, attention):
    """The state of a recorded step, and what was seen there."""
    columns, q = coefficients.shape
    for c in range(columns):
        for k in range(q):
            kept[c, k] = x[c, k] if k < size else coefficients[c, k]
    for j in range(output.shape[0]):
        output[j] = seen[0, j]
        for h in range(heads):
            attention[h, j] = seen[1 + 4 * h, j]


@njit(nogil=True, error_model="numpy", cache=True)
def descend(
    gram, coefficients, velocity, labels, classes, rates, factors, batches, everyone, kind, setting, scale, heads, signals,
    prepare, momentum, look_ahead, matrix, states, tokens, seen, rows, first_run, last_run, first, last, closing, marks,
    kept, outputs, attentions,
):  # fmt: skip
    """Steps first ... last - 1 of some runs; with `closing` the state after them is among the recorded ones."""
    n, columns = labels.shape[1], coefficients.shape[1]
    size, values = signals + n, columns - heads
    x, start, scores, buffer, gradient, other, nothing = (
        states[0], states[1], states[2], states[3], states[4], states[5], states[6]
    )  # fmt: skip
    all_rows = rows_of(everyone, signals, rows[0])
    for r in range(first_run, last_run):
        pack(gram[r], coefficients[r], velocity[r], matrix, x, start, buffer, size)
        place = 0
        while place < marks.shape[0] and marks[place] < first:
            place += 1
        for step in range(first, last + closing):
            recorded = place < marks.shape[0] and marks[place] == step
            whole = batches.shape[2] in (0, n) or step == last
            chosen = everyone if whole else batches[r, step]
            if recorded:
                product(matrix, x, start, scores, all_rows, 0, columns)
                forward(kind, setting, scale, heads, signals, scores, classes[r], everyone, tokens, seen)
                keep(x, size, coefficients[r], seen, heads, kept[place, r], outputs[place, r], attentions[place, r])
                place += 1
            if step == last:
                break
            if not (whole and recorded):
                product(matrix, x, start, scores, all_rows if whole else rows_of(chosen, signals, rows[1]), 0, columns)
                forward(kind, setting, scale, heads, signals, scores, classes[r], chosen, tokens, seen)
            pulls(seen[0], labels[r], chosen, scale / chosen.shape[0], tokens[4])
            collect(heads, signals, classes[r], chosen, tokens[4], seen, gradient)
            for block in range(prepare):  # none, all vectors together, or the v_h and the p_h
                from_, to = block * values, values if prepare == BLOCKS and block == 0 else columns
                shrink(gradient, from_, to)
                product(matrix, gradient, nothing, other, all_rows, from_, to)
                normalise(gradient, other, from_, to)
            move(
                x,
                buffer,
                gradient,
                factors[step] * rates[r, 0],
                factors[step] * rates[r, 1],
                values,
                momentum,
                look_ahead,
            )
        for c in range(columns):
            for k in range(size):
                coefficients[r, c, k], velocity[r, c, k] = x[c, k], buffer[c, k]
