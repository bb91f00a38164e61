"""Training of attention heads in Gram coordinates, for the CPU: a run's steps are made while its matrix is near.

Loaded by `compiled` through `_build`, which keeps the machine code between processes. One source for float32 and float64.

Every table is one-dimensional, row after row, rows of `width` numbers: whole vectors. A row holds one number for each vector
of the basis, the n noise tokens first, so that a vector of the processor holds samples, then the K signals, then zeros; start
vectors only add a constant to the scores. The rows of a state are the v_h and then the p_h. Loops over samples run on to
the end of a vector, over the places of the signals: labels are zero there, and so is what is added.
"""

from __future__ import annotations

from numba import njit

from attnlib.kernels._simd import fma, sqrt
from attnlib.kernels._simd import load_ieee as load
from attnlib.kernels._simd import store_any as store
from attnlib.kernels._simd_tuples import (
    choose,
    decay,
    everywhere,
    fma_each,
    lane_sums,
    load_as_many,
    spread,
    store_each,
    zero,
)  # fmt: skip

SOFTMAX, SPARSEMAX, ENTMAX15, HARDMAX, LINEARISED, SIGMOID, HALF_PLUS, LINEAR, RELU = range(9)
BLOCKS = 2  # 0: nothing is done to the gradient, 1: joint

_jit = njit(nogil=True, error_model="numpy")
_inline = njit(nogil=True, error_model="numpy", forceinline=True)  # constants among the arguments shape the code
_elementwise = njit(fastmath={"contract", "nsz"}, nogil=True, error_model="numpy")  # no `nnan`: NaNs stay NaNs


@_jit
def _multiply_tile(matrix, at, rows, width, x, one, two, sums, more):
    """sums + sum_j x[one + j] (row j of the tile), and the same for x[two + j]: the tile is read once for both columns, and
    all sums stay in registers. A tile is as many vectors of every row as `sums` has, from `at` on."""
    # One row of G, two coefficients: 2 x `size` multiply-adds for `size` loads. The sums never leave their registers.
    for j in range(rows):
        row = load_as_many(sums, matrix, at)
        sums = fma_each(row, spread(x, one + j), sums)
        more = fma_each(row, spread(x, two + j), more)
        at += width
    return sums, more


@_jit
def _tile(matrix, at, rows, width, x, start, out, one, two, like):
    """Columns `at` ... of two rows of out = start + x G."""
    sums, more = _multiply_tile(
        matrix, at, rows, width, x, one, two, load_as_many(like, start, one + at), load_as_many(like, start, two + at)
    )
    store_each(out, one + at, sums)
    store_each(out, two + at, more)


@_jit
def product(matrix, rows, width, widest, x, start, out, first, last):
    """out = start + x G for rows first ... last - 1 of a state, two at a time.

    The columns of G are cut into as few tiles as can be of at most `widest` vectors, as even as can be.
    """
    lanes, o = 64 // x.itemsize, zero(x)
    vectors = width // lanes
    tiles = (vectors + widest - 1) // widest
    for c in range(first, last, 2):
        one, two = c * width, min(c + 1, last - 1) * width  # the last of an odd number makes a pair with itself
        done = 0
        for i in range(tiles):
            size = vectors // tiles + (1 if i < vectors % tiles else 0)
            at = done * lanes
            if size == 8:
                _tile(matrix, at, rows, width, x, start, out, one, two, (o, o, o, o, o, o, o, o))
            elif size == 7:
                _tile(matrix, at, rows, width, x, start, out, one, two, (o, o, o, o, o, o, o))
            elif size == 6:
                _tile(matrix, at, rows, width, x, start, out, one, two, (o, o, o, o, o, o))
            elif size == 5:
                _tile(matrix, at, rows, width, x, start, out, one, two, (o, o, o, o, o))
            elif size == 4:
                _tile(matrix, at, rows, width, x, start, out, one, two, (o, o, o, o))
            elif size == 3:
                _tile(matrix, at, rows, width, x, start, out, one, two, (o, o, o))
            elif size == 2:
                _tile(matrix, at, rows, width, x, start, out, one, two, (o, o))
            else:
                _tile(matrix, at, rows, width, x, start, out, one, two, (o,))
            done += size


@_jit
def product_at(matrix, places, width, x, start, out, columns):
    """The scores x G of a few vectors of the basis, given by their places, side by side in the rows of `out`.

    G is symmetric, so that they are products with rows of it, four rows and two columns at a time.
    """
    lanes, o, count = 64 // x.itemsize, zero(x), places.shape[0]
    # Eight sums in flight hide the time of a multiply-add; the last four places may be one and the same.
    for t in range(0, count, 4):
        i, j, k, m = (
            places[t] * width, places[min(t + 1, count - 1)] * width, places[min(t + 2, count - 1)] * width,
            places[min(t + 3, count - 1)] * width,
        )  # fmt: skip
        for c in range(0, columns, 2):
            one, two = c * width, min(c + 1, columns - 1) * width
            sums = more = (o, o, o, o)
            for p in range(0, width, lanes):
                rows = (load(matrix, i + p), load(matrix, j + p), load(matrix, k + p), load(matrix, m + p))
                sums, more = fma_each(rows, load(x, one + p), sums), fma_each(rows, load(x, two + p), more)
            lane_sums(out, one + t, sums)
            lane_sums(out, two + t, more)
    # What the start vectors contribute.
    for c in range(columns):
        for t in range(count):
            out[c * width + t] += start[c * width + places[t]]


@_inline
def _logistic(z, one):
    """sigma(z) and 1 - sigma(z), both with all their digits: from e^-|z|."""
    o = z - z
    tail = decay(choose(z, o, o - z, z))
    # e^-|z| never overflows, and one of the two shares is it times the other: no 1 - sigma, which would lose the small one.
    large = one / (one + tail)
    small = tail * large
    return choose(o, z, small, large), choose(o, z, large, small)


@_inline
def _single(kind, setting, z, one):
    """(w(z), w'(z)) of a map in which a token's weight depends on its own logit only."""
    o = z - z
    if kind == SIGMOID:
        weight, rest = _logistic(z, one)
        return weight, weight * rest
    if kind == RELU:
        return choose(o, z, o, z), choose(z, o, one, choose(o, z, o, setting))
    if kind == HALF_PLUS:
        return z + everywhere(z, 0.5), one
    return z, one


@_inline
def _weigh(kind, setting, value, value_noise, score, score_noise):
    """(w_s, w_xi, J'(values)_s, J'(values)_xi): the weights of a sample's two tokens, and what a unit of pull turns their logits by.

    Maps whose weights sum to one see the gap z_s - z_xi only, and with w_s = w(gap) the last two are +-w'(gap) (value_s - value_xi).
    """
    one, half, o = everywhere(value, 1.0), everywhere(value, 0.5), zero_like(value)
    if kind >= SIGMOID:
        weight, slope = _single(kind, setting, score, one)
        weight_noise, slope_noise = _single(kind, setting, score_noise, one)
        return weight, weight_noise, slope * value, slope_noise * value_noise
    gap = score - score_noise
    if kind == SOFTMAX:  # `setting` is the temperature
        cold = one / setting
        weight, weight_noise = _logistic(cold * gap, one)
        slope = cold * weight * weight_noise
    elif kind == SPARSEMAX:  # 1/2 + gap/2, between 0 and 1
        weight, weight_noise = fma(half, gap, half), half - half * gap
        inside = choose(weight, o, choose(weight_noise, o, one, o), o)
        weight = choose(weight, one, one, choose(o, weight, o, weight))
        weight_noise = choose(weight_noise, one, one, choose(o, weight_noise, o, weight_noise))
        slope = half * inside
    elif kind == ENTMAX15:  # sqrt(w) = m +- gap/4 with m^2 = 1/2 - gap^2/16, while both are positive: |gap| < 2
        quarter, two = everywhere(value, 0.25), everywhere(value, 2.0)
        step = quarter * gap
        square = half - step * step
        middle = sqrt(choose(quarter, square, quarter, square))
        root, root_noise = middle + step, middle - step
        inside = choose(two, gap, choose(gap, o - two, one, o), o)
        weight = choose(inside, o, root * root, choose(gap, o, one, choose(o, gap, o, gap)))
        weight_noise = choose(inside, o, root_noise * root_noise, choose(gap, o, o, choose(o, gap, one, gap)))
        slope = inside * (quarter - step * step) / middle
    elif kind == HARDMAX:  # all on the larger logit, shared at a tie; flat
        weight = choose(gap, o, one, choose(o, gap, o, half))
        weight_noise, slope = one - weight, o
    else:  # LINEARISED: 1/2 +- gap/4
        slope = everywhere(value, 0.25)
        weight, weight_noise = fma(slope, gap, half), half - slope * gap
    turn = slope * (value - value_noise)
    return weight, weight_noise, turn, o - turn


@_inline
def zero_like(vector):
    return everywhere(vector, 0.0)


@_inline
def _forward(kind, setting, scale, heads, values, signals, scores, count, width, held, seen):
    lanes, o = 64 // scores.itemsize, zero(scores)
    number, kappa = everywhere(o, setting), everywhere(o, scale)
    for b in range(0, count, lanes):
        output = o
        for h in range(heads):
            v_at, p_at, own_at = min(h, values - 1) * width, (values + h) * width, (1 + 4 * h) * width + b
            value = score = o
            for k in range(signals):  # of the sample's own signal: the others count zero times
                own = load(held, k * width + b)
                value = fma(own, spread(scores, v_at + count + k), value)
                score = fma(own, spread(scores, p_at + count + k), score)
            # The noise tokens' scores stand in the samples' order: no gathering.
            value_noise = load(scores, v_at + b)
            weight, weight_noise, turn, turn_noise = _weigh(
                kind, number, value, value_noise, score, load(scores, p_at + b)
            )
            # f_i += kappa (w_s value_s + w_xi value_xi)
            output = fma(kappa, fma(weight, value, weight_noise * value_noise), output)
            store(seen, own_at, weight)
            store(seen, own_at + width, weight_noise)
            store(seen, own_at + 2 * width, turn)
            store(seen, own_at + 3 * width, turn_noise)
        store(seen, b, output)


@_jit
def forward(kind, setting, scale, heads, values, signals, scores, count, width, held, seen):
    """Outputs of `count` samples in row 0 of `seen`; from row 1 + 4 h on what `_weigh` finds for head h.

    The commonest training, one softmax head and two signals, is compiled on its own: a third of a small step's time.
    """
    if kind == SOFTMAX and heads == 1 and signals == 2:
        _forward(SOFTMAX, setting, scale, 1, 1, 2, scores, count, width, held, seen)
    else:
        _forward(kind, setting, scale, heads, values, signals, scores, count, width, held, seen)


@_inline
def _backward(heads, values, signals, factor, count, width, labels, held, seen, gradient, sums):
    lanes, o = 64 // seen.itemsize, zero(seen)
    one, size = everywhere(o, 1.0), everywhere(o, factor)
    for h in range(heads):
        v_at, p_at, own_at = min(h, values - 1) * width, (values + h) * width, (1 + 4 * h) * width
        more = h >= values  # a shared v gathers the gradients of all heads
        for k in range(0, signals, 2):  # two signals at a time; the last of an odd number twice
            other = min(k + 1, signals - 1)
            for_v = for_p = other_v = other_p = o
            for b in range(0, count, lanes):
                if h == 0 and k == 0:
                    # kappa dL/df_i = -(kappa/n) y_i sigma(-y_i f_i)
                    label = load(labels, b)
                    _, against = _logistic(label * load(seen, b), one)
                    pull = o - size * label * against
                    store(seen, b, pull)  # in the place of the output
                else:
                    pull = load(seen, b)
                if k == 0:
                    # At the noise token, a sample's own: one store. dL/dv: pull w_xi; dL/dp: pull (J' values)_xi.
                    on_noise = pull * load(seen, own_at + width + b)
                    store(gradient, v_at + b, load(gradient, v_at + b) + on_noise if more else on_noise)
                    store(gradient, p_at + b, pull * load(seen, own_at + 3 * width + b))
                # At the signals, many samples': sums over the vector's lanes, added up after the loop.
                to_v, to_p = pull * load(seen, own_at + b), pull * load(seen, own_at + 2 * width + b)
                mine, others = load(held, k * width + b), load(held, other * width + b)
                for_v, for_p = fma(mine, to_v, for_v), fma(mine, to_p, for_p)
                other_v, other_p = fma(others, to_v, other_v), fma(others, to_p, other_p)
            # Four sums over lanes at once: halving four vectors together costs little more than halving one.
            lane_sums(sums, 0, (for_v, for_p, other_v, other_p))
            at = v_at + count
            if more:
                sums[0] += gradient[at + k]
                sums[2] += gradient[at + other]
            gradient[at + k], gradient[at + other] = sums[0], sums[2]
            gradient[p_at + count + k], gradient[p_at + count + other] = sums[1], sums[3]


@_jit
def backward(heads, values, signals, factor, count, width, labels, held, seen, gradient, sums):
    """Coefficients of the gradient, from what `forward` left in `seen`: with pull_i = -factor y_i sigma(-y_i f_i), f_i the output,

    pull_i w_hi for v_h and pull_i J_hi'(values) for p_h, at the sample's noise token, and summed over its samples at every signal.
    """
    if heads == 1 and signals == 2:
        _backward(1, 1, 2, factor, count, width, labels, held, seen, gradient, sums)
    else:
        _backward(heads, values, signals, factor, count, width, labels, held, seen, gradient, sums)


@_elementwise
def normalise(x, first, last, matrix, rows, width, widest, nothing, other):
    """Rows of a gradient divided by their common length, the root of sum_c x_c' G x_c; a length of zero stays zero.

    They are divided by their largest number first: squares of small numbers would vanish.
    """
    largest = x.dtype.type(0)
    for k in range(first * width, last * width):
        largest = max(largest, abs(x[k]))
    if largest > 0:
        for k in range(first * width, last * width):
            x[k] /= largest
    # |sum_a x_a b_a|^2 = x' G x
    product(matrix, rows, width, widest, x, nothing, other, first, last)
    square = x.dtype.type(0)
    for k in range(first * width, last * width):
        square += x[k] * other[k]
    size = x.dtype.type(0.0 if square <= 0 else 1.0 / square**0.5)
    for k in range(first * width, last * width):
        x[k] *= size


@_jit
def move(x, velocity, gradient, first, last, rate, momentum, look_ahead):
    """One step of torch.optim.SGD of the numbers first ... last - 1."""
    lanes = 64 // x.itemsize
    size, share = everywhere(zero(x), rate), everywhere(zero(x), momentum)
    for k in range(first, last, lanes):
        slope = load(gradient, k)
        if momentum != 0:
            gathered = fma(share, load(velocity, k), slope)
            store(velocity, k, gathered)
            slope = fma(share, gathered, slope) if look_ahead else gathered
        store(x, k, load(x, k) - size * slope)


@_elementwise
def source(j, n, signals):
    """The caller's place of the vector that stands at place j here: signals first there, noise tokens first here."""
    return j + signals if j < n else j - n


@_elementwise
def pack(gram, coefficients, velocity, labels, classes, signals, width, matrix, x, start, scores, buffer, signs, held):
    """A run's numbers into the working memory; what start vectors add to the scores never changes."""
    columns, q = coefficients.shape
    n = labels.shape[0]
    size = n + signals
    for j in range(size):
        row = gram[source(j, n, signals)]
        for k in range(n):
            matrix[j * width + k] = row[signals + k]
        for k in range(n, size):
            matrix[j * width + k] = row[k - n]
    for c in range(columns):
        for j in range(width):
            at, i = c * width + j, source(j, n, signals)
            x[at] = coefficients[c, i] if j < size else 0.0
            buffer[at] = velocity[c, i] if j < size else 0.0
            start[at] = scores[at] = (
                0.0  # the scores of a batch leave places as they find them: not as another run left them
            )
            if j < size:
                for k in range(size, q):
                    start[at] += coefficients[c, k] * gram[k, i]
    for j in range(n):
        signs[j] = labels[j]
        for k in range(signals):
            held[k * width + j] = 1.0 if classes[j] == k else 0.0


@_elementwise
def unpack(x, n, signals, width, coefficients):
    """The inverse for the numbers that change."""
    for c in range(coefficients.shape[0]):
        for j in range(n + signals):
            coefficients[c, source(j, n, signals)] = x[c * width + j]


@_elementwise
def keep(x, n, signals, width, coefficients, seen, heads, kept, output, attention):
    """The state of a recorded step, and what was seen there."""
    columns, q = coefficients.shape
    unpack(x, n, signals, width, kept)
    for c in range(columns):
        for k in range(n + signals, q):
            kept[c, k] = coefficients[c, k]
    for j in range(n):
        output[j] = seen[j]
        for h in range(heads):
            attention[h, j] = seen[(1 + 4 * h) * width + j]


@_elementwise
def choose_samples(chosen, n, signals, width, signs, held, places, some_signs, some_held):
    """Places, labels and classes of the samples of a batch, side by side, as `forward` and `backward` read them."""
    count = chosen.shape[0]
    for t in range(count):
        places[t] = chosen[t]
        some_signs[t] = signs[chosen[t]]
        for k in range(signals):
            some_held[k * width + t] = held[k * width + chosen[t]]
    for k in range(signals):
        places[count + k] = n + k


@_elementwise
def scatter(some, places, columns, width, gradient):
    """The gradient of a batch, at the places of its samples and of the signals; elsewhere it is zero."""
    for k in range(columns * width):
        gradient[k] = 0.0
    for c in range(columns):
        for t in range(places.shape[0]):
            gradient[c * width + places[t]] = some[c * width + t]


@njit(nogil=True, error_model="numpy", cache=True)
def descend(
    gram, coefficients, velocity, labels, classes, rates, factors, batches, kind, setting, scale, heads, signals,
    prepare, momentum, look_ahead, widest, width, matrix, states, tables, places, first_run, last_run, first, last,
    closing, marks, kept, outputs, attentions,
):  # fmt: skip
    """Steps first ... last - 1 of some runs; with `closing` the state after them is among the recorded ones."""
    n, columns = labels.shape[1], coefficients.shape[1]
    size, values = signals + n, columns - heads
    number = matrix.dtype.type
    batch = batches.shape[2]
    if batch == 0:
        batch = n
    x, start, scores, buffer, gradient, other, nothing = (
        states[0], states[1], states[2], states[3], states[4], states[5], states[6]
    )  # fmt: skip
    signs, held, some_signs, some_held, seen, sums = (
        tables[0], tables[1], tables[2], tables[3], tables[4], tables[5]
    )  # fmt: skip
    some = places[: batch + signals]
    for r in range(first_run, last_run):
        pack(
            gram[r], coefficients[r], velocity[r], labels[r], classes[r], signals, width, matrix, x, start, scores, buffer,
            signs, held,
        )  # fmt: skip
        place = 0
        while place < marks.shape[0] and marks[place] < first:
            place += 1
        # Recorded steps need the scores of all samples, whatever the batch.
        for step in range(first, last + closing):
            recorded = place < marks.shape[0] and marks[place] == step
            if recorded or batch == n:
                product(matrix, size, width, widest, x, start, scores, 0, columns)
                forward(kind, setting, scale, heads, values, signals, scores, n, width, held, seen)
            if recorded:
                keep(
                    x,
                    n,
                    signals,
                    width,
                    coefficients[r],
                    seen,
                    heads,
                    kept[place, r],
                    outputs[place, r],
                    attentions[place, r],
                )
                place += 1
            if step == last:
                break
            if batch == n:
                backward(heads, values, signals, number(scale / n), n, width, signs, held, seen, gradient, sums)
            else:
                choose_samples(batches[r, step], n, signals, width, signs, held, some, some_signs, some_held)
                product_at(matrix, some, width, x, start, scores, columns)
                forward(kind, setting, scale, heads, values, signals, scores, batch, width, some_held, seen)
                backward(
                    heads,
                    values,
                    signals,
                    number(scale / batch),
                    batch,
                    width,
                    some_signs,
                    some_held,
                    seen,
                    other,
                    sums,
                )
                scatter(other, some, columns, width, gradient)
            for block in range(prepare):  # none, all vectors together, or the v_h and the p_h
                from_, to = block * values, values if prepare == BLOCKS and block == 0 else columns
                normalise(gradient, from_, to, matrix, size, width, widest, nothing, other)
            value_rate, attention_rate = number(factors[step] * rates[r, 0]), number(factors[step] * rates[r, 1])
            move(x, buffer, gradient, 0, values * width, value_rate, momentum, look_ahead)
            move(x, buffer, gradient, values * width, columns * width, attention_rate, momentum, look_ahead)
        unpack(x, n, signals, width, coefficients[r])
        unpack(buffer, n, signals, width, velocity[r])
