"""Training of attention heads in Gram coordinates, for the CPU: a run's steps are made while its matrix is near.

Loaded by `compiled` through `_build`, which keeps the machine code between processes. One source for float32 and float64.

Tables have rows of `width` numbers: one for each of the n noise tokens, one for each of the K signals, then zeros to the end of a
vector. The rows of a state are the v_h and then the p_h. Start vectors only add a constant to the scores. Loops over samples are
plain and short, so that the compiler makes vectors of them: it checks that tables do not overlap, and gives up where there are many.
"""

from __future__ import annotations

import math

from numba import njit

from attnlib.kernels._exponential import decay
from attnlib.kernels._simd import fma, lane_sum, spread
from attnlib.kernels._simd import load_ieee as load
from attnlib.kernels._simd import store_any as store

SOFTMAX, SPARSEMAX, ENTMAX15, HARDMAX, LINEARISED, SIGMOID, HALF_PLUS, LINEAR, RELU = range(9)
BLOCKS = 2  # 0: nothing is done to the gradient, 1: joint
TILE = 3  # vectors of a product that stay in registers, for each of two rows of a state

_FLAGS = {"contract", "nsz", "reassoc", "arcp"}  # no `nnan`: NaNs stay NaNs
# No run-time of numba (`_nrt`): nothing is allocated here, and counting the users of arrays costs more than a small loop.
_jit = njit(fastmath=_FLAGS, nogil=True, error_model="numpy", _nrt=False)
_inline = njit(fastmath=_FLAGS, nogil=True, error_model="numpy", _nrt=False, forceinline=True)


@_jit
def product(matrix, rows, width, x, start, out, first, last):
    """out = start + x G for rows first ... last - 1 of a state, two at a time, for which the matrix is read once.

    Three vectors of columns at a time: their sums stay in registers. The last tile begins where it still finds three.
    """
    lanes = 64 // x.itemsize
    for c in range(first, last, 2):
        one, two = c * width, min(c + 1, last - 1) * width  # the last of an odd number makes a pair with itself
        for left in range(0, width, TILE * lanes):
            k = min(left, width - TILE * lanes)
            a0, a1, a2 = load(start, one + k), load(start, one + k + lanes), load(start, one + k + 2 * lanes)
            b0, b1, b2 = load(start, two + k), load(start, two + k + lanes), load(start, two + k + 2 * lanes)
            at = k
            for j in range(rows):
                # One row of G, two coefficients: six multiply-adds for three loads.
                x0, x1 = spread(x, one + j), spread(x, two + j)
                g0, g1, g2 = load(matrix, at), load(matrix, at + lanes), load(matrix, at + 2 * lanes)
                a0, a1, a2 = fma(x0, g0, a0), fma(x0, g1, a1), fma(x0, g2, a2)
                b0, b1, b2 = fma(x1, g0, b0), fma(x1, g1, b1), fma(x1, g2, b2)
                at += width
            store(out, one + k, a0)
            store(out, one + k + lanes, a1)
            store(out, one + k + 2 * lanes, a2)
            store(out, two + k, b0)
            store(out, two + k + lanes, b1)
            store(out, two + k + 2 * lanes, b2)


@_jit
def symmetric_product(matrix, rows, width, x, start, out, first, last):
    """The same for a matrix that comes from memory: of the symmetric G only the half from the diagonal on is read, row by row.

    G_ij adds x_j G_ij to out_i, in a sum that stays in a register, and x_i G_ij to out_j. The vector that holds the diagonal is read
    in each of its rows, and adds to out_i only. Two rows of a state at a time: the last of an odd number takes the next one along,
    which is not used.
    """
    lanes = 64 // x.itemsize
    for c in range(first, last):
        for k in range(width):
            out[c, k] = start[c, k]
    for i in range(0, rows, 2):
        left, j = i - i % lanes, min(i + 1, rows - 1)
        above, below = i * width, j * width
        for c in range(first, last, 2):
            one, two = c * width, c * width + width
            x0, x1, y0, y1 = spread(x, one + i), spread(x, one + j), spread(x, two + i), spread(x, two + j)
            g0, g1, u, v = (
                load(matrix, above + left),
                load(matrix, below + left),
                load(x, one + left),
                load(x, two + left),
            )
            a0, a1, b0, b1 = g0 * u, g1 * u, g0 * v, g1 * v
            for k in range(left + lanes, width, lanes):
                # A vector from each of two rows of G: eight multiply-adds.
                g0, g1, u, v = load(matrix, above + k), load(matrix, below + k), load(x, one + k), load(x, two + k)
                a0, a1, b0, b1 = fma(u, g0, a0), fma(u, g1, a1), fma(v, g0, b0), fma(v, g1, b1)
                store(out, one + k, fma(x1, g1, fma(x0, g0, load(out, one + k))))
                store(out, two + k, fma(y1, g1, fma(y0, g0, load(out, two + k))))
            out[c, i] += lane_sum(a0)
            out[c + 1, i] += lane_sum(b0)
            if j > i:
                out[c, j] += lane_sum(a1)
                out[c + 1, j] += lane_sum(b1)


@_jit
def product_at(matrix, places, count, size, x, start, columns, out):
    """The scores start + x G of a few tokens, given by their places, side by side in the rows of `out`.

    G is symmetric, so that they are products with rows of it.
    """
    for t in range(count):
        for c in range(columns):
            total = 0.0
            for j in range(size):
                total += matrix[places[t], j] * x[c, j]
            out[c, t] = total + start[c, places[t]]


@_inline
def logistic(z):
    """sigma(z) and 1 - sigma(z), both with all their digits: from e^-|z|."""
    tail = decay(-abs(z))
    large = 1.0 / (1.0 + tail)
    return (large, tail * large) if z >= 0 else (tail * large, large)


@_inline
def weigh(kind, setting, h, n, w, wn, slope, slope_noise):
    """In the place of the logits z_s, z_xi of n samples their weights w_s, w_xi; and the derivatives.

    Maps whose weights sum to one see the gap z_s - z_xi only, and have one derivative, in it.
    """
    if kind == SOFTMAX:  # `setting` is the temperature
        for i in range(n):
            w[h, i], wn[h, i] = logistic((w[h, i] - wn[h, i]) / setting)
            slope[h, i] = w[h, i] * wn[h, i] / setting
    elif kind == SPARSEMAX:  # 1/2 + gap/2, between 0 and 1
        for i in range(n):
            gap = w[h, i] - wn[h, i]
            w[h, i], wn[h, i] = min(max(0.5 + 0.5 * gap, 0.0), 1.0), min(max(0.5 - 0.5 * gap, 0.0), 1.0)
            slope[h, i] = 0.5 if abs(gap) < 1 else 0.0 * gap
    elif kind == ENTMAX15:  # sqrt(w) = m +- gap/4 with m^2 = 1/2 - gap^2/16, while both are positive: |gap| < 2
        for i in range(n):
            gap = w[h, i] - wn[h, i]
            inside, full = abs(gap) < 2, 1.0 if gap > 0 else 0.0 * gap
            middle = math.sqrt(max(0.5 - 0.0625 * gap * gap, 0.25))
            w[h, i] = (middle + 0.25 * gap) ** 2 if inside else full
            wn[h, i] = (middle - 0.25 * gap) ** 2 if inside else 1.0 - full
            slope[h, i] = (0.25 - 0.0625 * gap * gap) / middle if inside else 0.0 * gap
    elif kind == HARDMAX:  # all on the larger logit, shared at a tie; flat
        for i in range(n):
            gap = w[h, i] - wn[h, i]
            w[h, i] = 1.0 if gap > 0 else 0.5 if gap == 0 else 0.0 * gap
            wn[h, i], slope[h, i] = 1.0 - w[h, i], 0.0 * gap
    elif kind == LINEARISED:  # 1/2 +- gap/4
        for i in range(n):
            gap = w[h, i] - wn[h, i]
            w[h, i], wn[h, i], slope[h, i] = 0.5 + 0.25 * gap, 0.5 - 0.25 * gap, 0.25
    else:
        weigh_alone(kind, setting, h, n, w, slope)
        weigh_alone(kind, setting, h, n, wn, slope_noise)


@_inline
def weigh_alone(kind, setting, h, n, w, slope):
    """In the place of logits z their weights w(z), and w'(z), of a map in which a token's weight depends on its own logit only."""
    for i in range(n):
        z = w[h, i]
        if kind == SIGMOID:
            w[h, i], rest = logistic(z)
            slope[h, i] = w[h, i] * rest
        elif kind == RELU:  # `setting` is the derivative at zero
            w[h, i] = 0.0 if z <= 0 else z
            slope[h, i] = 1.0 if z > 0 else setting if z == 0 else 0.0
        else:
            w[h, i], slope[h, i] = z + 0.5 if kind == HALF_PLUS else z, 1.0


@_inline
def look(kind, setting, scale, heads, values, signals, n, scores, own, output, value, w, wn, turn, turn_noise):
    """See `forward`, which gives the commonest kind as a constant."""
    for i in range(n):
        output[i] = 0.0
    for h in range(heads):
        v, p = min(h, values - 1), values + h
        # The value and the logit of a sample's signal, and the logit of its noise token; its value is read where it stands.
        for i in range(n):
            value[h, i] = scores[v, own[i]]
            w[h, i] = scores[p, own[i]]
            wn[h, i] = scores[p, i]
        # w = map(logits), f_i += kappa (w_s value_s + w_xi value_xi).
        weigh(kind, setting, h, n, w, wn, turn, turn_noise)
        for i in range(n):
            output[i] += scale * (w[h, i] * value[h, i] + wn[h, i] * scores[v, i])
        # J'(values): of one derivative, in the gap, or of one for each token.
        if kind < SIGMOID:
            for i in range(n):
                turn[h, i] *= value[h, i] - scores[v, i]
                turn_noise[h, i] = -turn[h, i]
        else:
            for i in range(n):
                turn[h, i] *= value[h, i]
                turn_noise[h, i] *= scores[v, i]


@_jit
def forward(kind, setting, scale, heads, values, signals, n, scores, own, output, value, w, wn, turn, turn_noise):
    """Outputs of n samples; for every head the weights of both tokens, and J'(values), what a unit of pull turns their logits by.

    `own`: the place of each sample's signal. Softmax is compiled on its own: half of a small step's time.
    """
    if kind == SOFTMAX:
        look(SOFTMAX, setting, scale, heads, values, signals, n, scores, own, output, value, w, wn, turn, turn_noise)
    else:
        look(kind, setting, scale, heads, values, signals, n, scores, own, output, value, w, wn, turn, turn_noise)


@_jit
def backward(heads, values, signals, n, factor, labels, own, output, w, wn, turn, turn_noise, gradient):
    """Coefficients of the gradient: pull_i w_hi for v_h and pull_i J_hi'(values) for p_h, at the noise token of a sample, and
    summed over its samples at every signal. `output` becomes pull_i = -factor y_i sigma(-y_i f_i)."""
    pull = output
    for i in range(n):
        _, against = logistic(labels[i] * output[i])
        pull[i] = -factor * labels[i] * against
    for c in range(values + heads):
        for i in range(n + signals):
            gradient[c, i] = 0.0
    for h in range(heads):
        v, p = min(h, values - 1), values + h  # a shared v gathers the gradients of all heads
        for i in range(n):
            gradient[p, i] = pull[i] * turn_noise[h, i]
        for i in range(n):
            gradient[v, i] += pull[i] * wn[h, i]
        for i in range(n):
            gradient[p, own[i]] += pull[i] * turn[h, i]
            gradient[v, own[i]] += pull[i] * w[h, i]


@_jit
def normalise(x, first, last, matrix, half, size, width, nothing, other):
    """Rows of a gradient divided by their common length, the root of sum_c x_c' G x_c; a length of zero stays zero.

    They are divided by their largest number first: squares of small numbers would vanish.
    """
    largest, square = 0.0, 0.0
    for c in range(first, last):
        for k in range(size):
            largest = max(largest, abs(x[c, k]))
    if largest > 0:
        for c in range(first, last):
            for k in range(size):
                x[c, k] /= largest
    # |sum_a x_a b_a|^2 = x' G x
    if half:
        symmetric_product(matrix, size, width, x, nothing, other, first, last)
    else:
        product(matrix, size, width, x, nothing, other, first, last)
    for c in range(first, last):
        for k in range(size):
            square += x[c, k] * other[c, k]
    length = 0.0 if square <= 0 else 1.0 / math.sqrt(square)
    for c in range(first, last):
        for k in range(size):
            x[c, k] *= length


@_jit
def move(x, velocity, gradient, first, last, size, rate, momentum, look_ahead):
    """One step of torch.optim.SGD: b <- mu b + g, x <- x - rate (b, or with look-ahead g + mu b)."""
    for c in range(first, last):
        if momentum == 0:
            for k in range(size):
                x[c, k] -= rate * gradient[c, k]
        else:
            for k in range(size):
                velocity[c, k] = momentum * velocity[c, k] + gradient[c, k]
                x[c, k] -= rate * (gradient[c, k] + momentum * velocity[c, k] if look_ahead else velocity[c, k])


@_jit
def pack(gram, coefficients, velocity, labels, classes, order, matrix, x, buffer, start, signs, own):
    """A run's numbers into the working memory, and what start vectors add to the scores, which never changes."""
    columns, q = coefficients.shape
    size, n = len(order), len(labels)
    for j in range(size):
        for k in range(size):
            matrix[j, k] = gram[order[j], order[k]]
    for c in range(columns):
        for j in range(size):
            x[c, j], buffer[c, j], start[c, j] = coefficients[c, order[j]], velocity[c, order[j]], 0.0
            for k in range(size, q):
                start[c, j] += coefficients[c, k] * gram[k, order[j]]
    for i in range(n):
        signs[i], own[i] = labels[i], n + classes[i]


@_jit
def unpack(x, order, coefficients):
    """The inverse for the numbers that change."""
    for c in range(coefficients.shape[0]):
        for j in range(len(order)):
            coefficients[c, order[j]] = x[c, j]


@_jit
def keep(x, order, coefficients, output, w, kept, outputs, attentions):
    """The state of a recorded step, start vectors included, and what was seen there."""
    for c in range(len(kept)):
        for k in range(len(order), kept.shape[1]):
            kept[c, k] = coefficients[c, k]
    unpack(x, order, kept)
    for i in range(len(outputs)):
        outputs[i] = output[i]
        for h in range(len(attentions)):
            attentions[h, i] = w[h, i]


@_jit
def choose(chosen, n, signals, signs, own, places, some_signs, some_own):
    """Places, labels and signals of the samples of a batch, side by side, as `forward` and `backward` read them."""
    batch = len(chosen)
    for t in range(batch):
        i = chosen[t]
        places[t], some_signs[t], some_own[t] = i, signs[i], own[i] - n + batch
    for k in range(signals):
        places[batch + k] = n + k


@_jit
def scatter(some, places, count, columns, gradient):
    """The gradient of a batch, at the places of its samples and of the signals; elsewhere it is zero."""
    for c in range(columns):
        for k in range(gradient.shape[1]):
            gradient[c, k] = 0.0
        for t in range(count):
            gradient[c, places[t]] = some[c, t]


@njit(nogil=True, error_model="numpy", _nrt=False, cache=True)
def descend(
    gram, coefficients, velocity, labels, classes, rates, factors, batches, kind, setting, scale, heads, signals,
    prepare, momentum, look_ahead, half, order, matrix, states, samples, owns, seen, first_run, last_run, first, last,
    closing, marks, kept, outputs, attentions,
):  # fmt: skip
    """Steps first ... last - 1 of some runs; with `closing` the state after them is among the recorded ones.

    A call that does not begin with step 0 goes on with the run of the call before, whose numbers stand in the working memory.
    """
    n, columns, batch = labels.shape[1], coefficients.shape[1], batches.shape[2]
    size, values, width, whole = signals + n, columns - heads, matrix.shape[1], batch == 0 or batch == n
    x, buffer, start, scores, gradient, some, nothing = states
    signs, some_signs, output = samples
    own, some_own, places = owns
    value, w, wn, turn, turn_noise = seen
    for r in range(first_run, last_run):
        if first == 0:
            pack(
                gram[r], coefficients[r], velocity[r], labels[r], classes[r], order, matrix, x, buffer, start, signs, own
            )  # fmt: skip
        place = 0
        while place < len(marks) and marks[place] < first:
            place += 1
        for step in range(first, last + closing):
            recorded = place < len(marks) and marks[place] == step
            # Scores X G of every token, and the forward pass. Recorded steps need those of all samples, whatever the batch.
            if recorded or whole:
                if half:
                    symmetric_product(matrix, size, width, x, start, scores, 0, columns)
                else:
                    product(matrix, size, width, x, start, scores, 0, columns)
                forward(
                    kind, setting, scale, heads, values, signals, n, scores, own, output, value, w, wn, turn, turn_noise
                )  # fmt: skip
            if recorded:
                keep(x, order, coefficients[r], output, w, kept[place, r], outputs[place, r], attentions[place, r])
                place += 1
            if step == last:
                break
            # Backward: the gradient's coefficients, of all samples or of a batch, whose numbers stand side by side.
            if whole:
                backward(
                    heads, values, signals, n, scale / n, signs, own, output, w, wn, turn, turn_noise, gradient
                )  # fmt: skip
            else:
                choose(batches[r, step], n, signals, signs, own, places, some_signs, some_own)
                product_at(matrix, places, batch + signals, size, x, start, columns, scores)
                forward(
                    kind, setting, scale, heads, values, signals, batch, scores, some_own, output, value, w, wn, turn,
                    turn_noise,
                )  # fmt: skip
                backward(
                    heads, values, signals, batch, scale / batch, some_signs, some_own, output, w, wn, turn, turn_noise, some
                )  # fmt: skip
                scatter(some, places, batch + signals, columns, gradient)
            # The gradient's length: as it is, one of all vectors together, or of the v_h and of the p_h.
            for block in range(prepare):
                from_, to = block * values, values if prepare == BLOCKS and block == 0 else columns
                normalise(gradient, from_, to, matrix, half, size, width, nothing, some)
            # The step, with a rate for the v_h and one for the p_h.
            rate_v, rate_p = factors[step] * rates[r, 0], factors[step] * rates[r, 1]
            move(x, buffer, gradient, 0, values, size, rate_v, momentum, look_ahead)
            move(x, buffer, gradient, values, columns, size, rate_p, momentum, look_ahead)
        unpack(x, order, coefficients[r])
        unpack(buffer, order, velocity[r])
