r"""Two steps in one box of label counts, bounded in interval arithmetic, and the search for boxes that prove one outcome.

Letters and lemmas as in `book/single_head_proved_theory`. An interval is a pair (low, high) of floats. Loaded by `proved`, which keeps
the machine code; without numba the same runs in plain Python, some hundred times slower.

Rounding: sums, products, quotients and roots of doubles are off by at most 2^-53 of the result or 2^-1075, and a step outwards of twice
that size makes them bounds. exp may be off by a few units in the last place (eight are taken), log and erfc by 10^-12.
What is not a number becomes the whole line, so that it proves nothing.
"""

from __future__ import annotations

import math
from collections import namedtuple

import numpy as np

try:
    from numba import njit
except ModuleNotFoundError:

    def njit(**_options):
        return lambda function: function


ULP, TINY, INF = 2.0**-52, 5e-324, math.inf
EXP, SLACK = 8 * ULP, 1 + 1e-12
# Not Python's numbers, which numba takes for literals: each has its own compilation of what it is an argument of.
FITS_AND_ERRS_LESS, FITS_AND_ERRS_MORE, MISSES_FLIPPED, MISSES_CLEAN, NOTHING = np.arange(5)
TAILS = 35  # one-sided events that all samples share
# Shares of the failure probability: of those events, of the range of z, of the flipped samples, of the clean ones.
SHARED, WIDE, FLIPPED, CLEAN = 0.25, 0.05, 0.3, 0.4
# Of what one sample has, for a clean and for a flipped one: N and N' in pieces, range of z, z and N together.
PARTS = (0.2, 0.2, 0.6), (0.6, 0.2, 0.2)
PIECES = 8  # of the range of one sample's z; an even number
CUTS = tuple([0.4 * 1.1**k for k in range(30)])  # T of the error's first lower bound, over |Pi p|
BEYOND = tuple([0.5 * math.erfc(x / math.sqrt(2)) * SLACK for x in CUTS])  # Pr(N > T)
SIDES = (0.5, 1.0, 1.6, 2.5)  # x of the second one
HALF = math.log(0.5)

# Of all label counts. Intervals (n is a number): a, h, d; r^2 - 1, r, r sqrt(n/d), both chi-squares over d, r/sqrt(nd), root of q/d.
# Then numbers: |z_i| at most, sqrt(2u) and the quantile of one tail, |z|^2 at most, the failure probability, and the log of
# the error that separates the outcomes.
Setting = namedtuple("Setting", "n a h d middle r scale q offset drift wide gauss normal chi failure error")
# Label counts of one class; diff: clean less flipped.
Class = namedtuple("Class", "size diff clean flipped")
# 1 + 2g and g gamma, and their first and second derivatives in epsilon.
Weights = namedtuple("Weights", "phi psi slope_phi slope_psi bend_phi bend_psi")
# The samples of one kind in one class: weights at z = 0, their means, what these have more, Lipschitz constants, bounds of z and N.
Group = namedtuple("Group", "count at_phi at_psi phi psi shift_phi shift_psi lip_phi lip_psi reach both")
# What all samples have in common; query: P_k, value: V_k; overlap: about minus y_k times the product of Pi v and Pi p, class by class.
Shared = namedtuple("Shared", "mean_phi along_phi norm_phi tilt along_psi norm_psi length omega query value")

_jit = njit(nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)
_entry = njit(nogil=True, error_model="numpy", cache=True)


# --- intervals ---------------------------------------------------------------------------------------------------------------


@_jit
def outward(low, high):
    low, high = low - (abs(low) * ULP + TINY), high + (abs(high) * ULP + TINY)
    return low if low == low else -INF, high if high == high else INF


@_jit
def add(x, y):
    return outward(x[0] + y[0], x[1] + y[1])


@_jit
def sub(x, y):
    return outward(x[0] - y[1], x[1] - y[0])


@_jit
def mul(x, y):
    if x[0] >= 0:
        a, d = (x[0] if y[0] >= 0 else x[1]) * y[0], (x[1] if y[1] >= 0 else x[0]) * y[1]
        return (-INF, INF) if a != a or d != d else outward(a, d)
    a, b, c, d = x[0] * y[0], x[0] * y[1], x[1] * y[0], x[1] * y[1]
    if a != a or b != b or c != c or d != d:
        return -INF, INF
    return outward(min(min(a, b), min(c, d)), max(max(a, b), max(c, d)))


@_jit
def div(x, y):
    """x / y; the whole line unless y >= 0."""
    if not (y[0] >= 0 and y[1] > 0):
        return -INF, INF
    low, high = outward(1 / y[1], 1 / y[0] if y[0] > 0 else INF)
    return mul(x, (max(low, 0.0), high))


@_jit
def inverse(x):
    """1/x for x > 0."""
    low, high = outward(1 / x[1], 1 / x[0] if x[0] > 0 else INF)
    return max(low, 0.0), high


@_jit
def neg(x):
    return -x[1], -x[0]


@_jit
def times(c, x):
    return mul((c, c), x)


@_jit
def plus(c, x):
    return outward(x[0] + c, x[1] + c)


@_jit
def square(x):
    a, b = abs(x[0]), abs(x[1])
    least = 0.0 if x[0] <= 0 <= x[1] else min(a, b)
    low, high = outward(least * least, max(a, b) * max(a, b))
    return max(low, 0.0), high


@_jit
def root(x):
    """Of what is at least 0; what lies below is cut off."""
    low, high = outward(math.sqrt(max(x[0], 0.0)), math.sqrt(max(x[1], 0.0)))
    return max(low, 0.0), high


@_jit
def exp(x):
    low = 0.0 if x[0] < -700 else math.exp(min(x[0], 700.0)) * (1 - EXP)
    high = INF if x[1] > 700 else math.exp(max(x[1], -700.0)) * (1 + EXP)
    low, high = outward(low, high)
    return max(low, 0.0), high


@_jit
def log(x):
    """Of what is at least 0."""
    low, high = (math.log(x[0]) if x[0] > 0 else -INF), (math.log(x[1]) if x[1] > 0 else -INF)
    return low - abs(low) * 1e-12 if low > -INF else low, high + abs(high) * 1e-12 if high > -INF else high


@_jit
def spread(x):
    m = max(abs(x[0]), abs(x[1]))
    return -m, m


@_jit
def hull(x, y):
    return min(x[0], y[0]), max(x[1], y[1])


@_jit
def meet(x, y):
    """What lies in both, for two intervals that hold the same number."""
    return max(x[0], y[0]), min(x[1], y[1])


@_jit
def middle_of(x):
    return 0.5 * x[0] + 0.5 * x[1]


@_jit
def tail_at_most(y):
    """Pr(N > y), from above."""
    return 0.5 * math.erfc(min(y, 12.0) / math.sqrt(2.0)) * SLACK


@_jit
def tail_at_least(y):
    """Pr(N > y), from below."""
    return 0.0 if y > 12 else 0.5 * math.erfc(y / math.sqrt(2.0)) / SLACK


@_jit
def quantile(tail):
    """x with Pr(N > x) <= tail: Newton's method for the logarithm, then steps upwards until erfc says so."""
    if tail >= 1:
        return -INF
    tail = max(tail, 1e-300)
    small, step = min(tail, 1 - tail), 1e-12
    x = math.sqrt(-2 * math.log(small))
    for _ in range(6):  # from above: the logarithm is concave
        above = 0.5 * math.erfc(x / math.sqrt(2.0))
        x += math.log(above / small) * above * math.sqrt(2 * math.pi) * math.exp(x * x / 2)
    if tail > 0.5:
        x = -x
    while 0.5 * math.erfc(x / math.sqrt(2.0)) * SLACK > tail:
        x, step = x + step, 2 * step
    return x


@_jit
def chi_square(k, tail):
    """Bounds that a chi-square of k degrees leaves with probability at most `tail` on each side, by Chernoff: t - 1 - log t = 2u/k."""
    need, ends = -2 * math.log(tail) / k, (math.exp(2 * math.log(tail) / k - 1), 2 * -2 * math.log(tail) / k + 4)
    slack = 1e-12 + 1e-13 * math.sqrt(k)  # relative to the width, which is of order k^-1/2
    low, high = ends[0], ends[1]
    for side in range(2):
        inside, outside = 1.0, ends[side]
        for _ in range(80):
            middle = (inside + outside) / 2
            log = math.log1p(middle - 1) if middle > 0.5 else math.log(middle)
            if middle - 1 - log < need:
                inside = middle
            else:
                outside = middle
        if side == 0:
            low = max(0.0, k * (outside - slack))
        else:
            high = k * (outside + slack)
    return low, high


# --- weights, and sums over samples --------------------------------------------------------------------------------------------


@_jit
def steepness(a, pull, eps):
    """g, 1 - g and gamma for the signal's pull zeta b."""
    score = mul(a, plus(1.0, eps))
    grown = exp(times(0.5, add(pull, score)))
    g, rest = inverse(plus(1.0, grown)), inverse(plus(1.0, inverse(grown)))
    return (g[0], min(g[1], 1.0)), (rest[0], min(rest[1], 1.0)), sub(pull, score)


@_jit
def weights(a, pull, eps):
    """For all deviations in `eps`: values and derivatives, eq-proved-derivatives."""
    g, rest, gamma = steepness(a, pull, eps)
    steep, lean = mul(g, rest), sub(rest, g)  # lean: 1 - 2g
    slope_psi = neg(mul(mul(a, g), plus(1.0, times(0.5, mul(rest, gamma)))))
    centre = (middle_of(eps), middle_of(eps))
    g0, _, gamma0 = steepness(a, pull, centre)
    psi = meet(mul(g, gamma), add(mul(g0, gamma0), mul(slope_psi, sub(eps, centre))))
    curve = mul(square(a), steep)
    bend_psi = mul(curve, plus(1.0, times(0.25, mul(gamma, lean))))
    return Weights(plus(1.0, times(2.0, g)), psi, neg(mul(a, steep)), slope_psi, times(0.5, mul(curve, lean)), bend_psi)


@_jit
def shift(bend, scale):
    """What the mean of f(z) has more than f(0), for a second derivative in `bend` on the range and 0 beyond it."""
    return times(0.5, mul(square(scale), hull(bend, (0.0, 0.0))))


@_jit
def budgets(c, kind, count, known):
    """Range of z, of z and N together, and bounds of N, N' in the first half of the pieces, for one of `count` samples of a kind and class.

    Thm-proved-bounds: z outside its range, or in a piece and N or N' beyond the bound there, or z and N together. N, N' are independent
    of z. The sum of these probabilities over the samples of a class is half the share of the kind. `known` keeps what was computed.
    """
    row = known[kind, int(count)]
    if row[0] == 0:
        budget, parts = (CLEAN, FLIPPED)[kind] * c.failure / 2 / max(count, 1.0), PARTS[kind]
        row[0], row[1] = quantile(budget * parts[1] / 2), quantile(budget * parts[2] / 2)
        for k in range(PIECES // 2):
            nearest = row[0] * (PIECES - 2 * k - 2) / PIECES
            row[2 + k] = max(quantile(budget * parts[0] / (4 * PIECES) / tail_at_most(nearest)), 0.0)
    return row


@_jit
def group(c, pull, count, row, table):
    """Weights of the samples of one kind and class; `table` gets z, phi, psi and the bound of N, N' in each piece of the range of z."""
    reach, wide = row[0], max(c.wide, row[0])
    first = weights(c.a, pull, add(c.middle, mul(c.scale, (-wide, -reach))))
    slope_phi, slope_psi, bend_phi, bend_psi = first.slope_phi, first.slope_psi, first.bend_phi, first.bend_psi
    for k in range(PIECES + 1):
        low = reach * (2 * k - PIECES) / PIECES
        high = reach * (2 * k + 2 - PIECES) / PIECES if k < PIECES else wide
        w = weights(c.a, pull, add(c.middle, mul(c.scale, (low, high))))
        slope_phi, slope_psi = hull(slope_phi, w.slope_phi), hull(slope_psi, w.slope_psi)
        bend_phi, bend_psi = hull(bend_phi, w.bend_phi), hull(bend_psi, w.bend_psi)
        if k < PIECES:
            here = table[k]
            here[0], here[1], here[2], here[3], here[4], here[5] = low, high, w.phi[0], w.phi[1], w.psi[0], w.psi[1]
            here[6] = row[2 + min(k, PIECES - 1 - k)]
    at = weights(c.a, pull, c.middle)
    shift_phi, shift_psi = shift(bend_phi, c.scale), shift(bend_psi, c.scale)
    steep_phi, steep_psi = (spread(slope_phi)[1], spread(slope_psi)[1]) if count[1] > 0 else (0.0, 0.0)
    return Group(
        count, at.phi, at.psi, add(at.phi, shift_phi), add(at.psi, shift_psi), shift_phi, shift_psi,
        (steep_phi, steep_phi), (steep_psi, steep_psi), reach, row[1],
    )  # fmt: skip


@_jit
def of_class(k, clean, flipped):
    """Clean and flipped samples weighted, C u + N v, in two ways: u = clean, v = flipped."""
    direct = add(mul(k.clean, clean), mul(k.flipped, flipped))
    turned = times(0.5, add(mul(k.size, add(clean, flipped)), mul(k.diff, sub(clean, flipped))))
    return meet(direct, turned)


@_jit
def of_both(n, one, two, u, v, other_u, other_v):
    """C_1 u + N_1 v + C_2 u' + N_2 v', where the sizes have the sum n."""
    direct = add(of_class(one, u, v), of_class(two, other_u, other_v))
    first, second, half = add(u, v), add(other_u, other_v), 0.5 * n
    turned = add(times(half, add(first, second)), mul(plus(-half, one.size), sub(first, second)))
    turned = add(turned, add(mul(one.diff, sub(u, v)), mul(two.diff, sub(other_u, other_v))))
    return meet(direct, times(0.5, turned))


@_jit
def squares(groups, numbers, centre):
    """Sum over all samples of the square of the number of their group less `centre`."""
    total = (0.0, 0.0)
    for k in range(len(groups)):
        total = add(total, mul(groups[k].count, square(plus(-centre, numbers[k]))))
    return total


@_jit
def norm(c, groups, means, lips, centre):
    """|w - mean| at least and at most, eq-proved-norm."""
    swing, apart = times(c.gauss, mul(c.scale, (max(lips)[1], max(lips)[1]))), (0.0, 0.0)
    energy = add(squares(groups, means, centre), mul(square(c.scale), squares(groups, lips, 0.0)))
    for j in range(len(groups)):
        for k in range(j):
            pairs = mul(groups[j].count, groups[k].count)
            apart = add(apart, mul(pairs, square(sub(means[j], means[k]))))
    return max(sub(root(div(apart, (c.n, c.n))), swing)[0], 0.0), add(root(energy), swing)[1]


@_jit
def along(c, start, lips):
    """sum w_j z_j by lem-proved-sums; start: a sum of squares."""
    return spread(add(times(c.normal, root(start)), times(c.chi, mul(c.scale, (max(lips)[1], max(lips)[1])))))


@_jit
def length(c, mean, tilt, size):
    """|sum w_j y_j xi_j| a/d: along the one direction, and across it."""
    main = add(mul(mul(root((c.n, c.n)), c.r), mean), div(tilt, root(c.d)))
    return div(mul(c.a, root(add(square(main), mul(c.q, square(size))))), root(c.d))


@_jit
def noise(c, energy):
    return spread(times(c.gauss, mul(c.scale, root(energy))))


@_jit
def ends(c, k, clean, flipped):
    """P_k and V_k."""
    pair = (clean, flipped)
    noise_phi = noise(c, squares(pair, (clean.lip_phi, flipped.lip_phi), 0.0))
    noise_psi = noise(c, squares(pair, (clean.lip_psi, flipped.lip_psi), 0.0))
    query = add(of_class(k, clean.psi, flipped.psi), noise_psi)
    value = add(of_class(k, clean.phi, neg(flipped.phi)), noise_phi)
    return mul(c.h, query), mul(c.h, value)


@_jit
def shared(c, classes, groups):
    """What all samples have in common; groups: clean and flipped of class 1, then of class 2."""
    one, two = classes
    g0, g1, g2, g3 = groups
    lip_phi, lip_psi = (
        (g0.lip_phi, g1.lip_phi, g2.lip_phi, g3.lip_phi),
        (g0.lip_psi, g1.lip_psi, g2.lip_psi, g3.lip_psi),
    )
    # Mean weights of y_j xi_j, with what chance adds.
    total = of_both(c.n, one, two, g0.phi, g1.phi, g2.phi, g3.phi)
    tilted = of_both(c.n, one, two, g0.psi, neg(g1.psi), neg(g2.psi), g3.psi)
    mean_phi = div(add(total, noise(c, squares(groups, lip_phi, 0.0))), (c.n, c.n))
    tilt = div(add(tilted, noise(c, squares(groups, lip_psi, 0.0))), (c.n, c.n))  # times the label of class 1
    # How far the weights are from their mean, |w - mean|, and sum w_j z_j (lem-proved-sums).
    centre = 0.5 * (middle_of(g0.at_phi) + middle_of(g2.at_phi))
    norm_phi = norm(c, groups, (g0.phi, g1.phi, g2.phi, g3.phi), lip_phi, centre)
    norm_psi = norm(c, groups, (g0.psi, neg(g1.psi), neg(g2.psi), g3.psi), lip_psi, 0.0)
    along_phi = along(c, squares(groups, (g0.at_phi, g1.at_phi, g2.at_phi, g3.at_phi), centre), lip_phi)
    along_psi = along(c, squares(groups, (g0.at_psi, g1.at_psi, g2.at_psi, g3.at_psi), 0.0), lip_psi)
    size, omega = length(c, mean_phi, along_phi, norm_phi), length(c, tilt, along_psi, norm_psi)
    # What both classes see of their signal: P_k and V_k.
    query_1, value_1 = ends(c, one, g0, g1)
    query_2, value_2 = ends(c, two, g2, g3)
    return Shared(
        mean_phi, along_phi, norm_phi, (tilt, neg(tilt)), along_psi, norm_psi, size, omega, (query_1, query_2), (value_1, value_2)
    )  # fmt: skip


# --- scores and errors ---------------------------------------------------------------------------------------------------------


@_jit
def scores(c, x, k, zeta, phi, psi, z, normal, other):
    """t and zeta V e^q, eq-decoupled, of a sample of class k at z, N, N' as said: the sign of their sum is that of the margin."""
    # 1 + eps_i, the same less Q/d, and alpha_i/d.
    one = add(plus(1.0, c.middle), mul(c.scale, z))
    own = sub(one, c.q)
    alpha = add(c.offset, div(z, c.d))
    # t/a = w_i Q/d + mean (1 + eps_i - Q/d) + alpha_i sum w_j z_j/d + a Gaussian: in two ways, and what lies in both.
    t = meet(add(mul(phi, c.q), mul(x.mean_phi, own)), add(mul(sub(phi, x.mean_phi), c.q), mul(x.mean_phi, one)))
    t = add(t, add(mul(alpha, x.along_phi), mul(mul(normal, c.drift), x.norm_phi)))
    # q/a likewise, with the weights of p; then zeta V e^q.
    rest = times(zeta, add(mul(x.tilt[k], own), mul(alpha, x.along_psi)))
    q = add(mul(psi, c.q), add(rest, mul(mul(other, c.drift), x.norm_psi)))
    grown = exp(add(x.query[k], mul(c.a, q)))
    return mul(c.a, t), times(zeta, mul(x.value[k], grown))


@_jit
def room_of_group(c, x, k, zeta, own, table):
    """Least t + zeta V e^q of the samples of a group: piece by piece, or with z and N together (lem-proved-together)."""
    # Piece by piece of the range of z.
    room, phi, other = INF, (INF, -INF), (INF, -INF)
    for row in table:
        here, sides = (row[2], row[3]), (-row[6], row[6])
        t, rest = scores(c, x, k, zeta, here, (row[4], row[5]), (row[0], row[1]), sides, sides)
        room, phi, other = min(room, t[0] + rest[0]), hull(phi, here), hull(other, rest)
    # Together: t at z = N = 0, then one Gaussian that has both.
    one, z = plus(1.0, c.middle), (-own.reach, own.reach)
    still = meet(
        add(mul(phi, c.q), mul(x.mean_phi, sub(one, c.q))), add(mul(sub(phi, x.mean_phi), c.q), mul(x.mean_phi, one))
    )
    fixed = middle_of(x.mean_phi)
    size = root(add(square(times(fixed, c.scale)), div(mul(square(x.norm_phi), c.q), c.d)))
    swing = add(times(own.both, size), mul(mul(c.scale, spread(plus(-fixed, x.mean_phi))), z))[1]
    t = mul(c.a, add(plus(-swing, still), mul(add(c.offset, div(z, c.d)), x.along_phi)))
    return max(room, t[0] + other[0])  # rounding leaves the sign of a sum as it is


@_jit
def room_of_least(c, x, k, pull, zeta, top):
    """Largest t + zeta V e^q of a sample of class k with -Z <= z_i <= top and N, N' as eq-proved-least says."""
    beyond, room = quantile((1 - SHARED - WIDE) * c.failure / 6), -INF
    top = add((top, top), div((beyond, beyond), root((c.n, c.n))))[1]
    low, sides = -c.wide, (-beyond, beyond)
    for j in range(PIECES):
        high = top if j == PIECES - 1 else -c.wide + (top + c.wide) * (j + 1) / PIECES
        w = weights(c.a, pull, add(c.middle, mul(c.scale, (low, high))))
        t, rest = scores(c, x, k, zeta, w.phi, w.psi, (low, high), sides, sides)
        room, low = max(room, t[1] + rest[1]), high
    return room


@_jit
def room_of_missed(c, x, classes, flipped):
    """Upper bound of t + zeta V e^q for one flipped (or clean) sample: the one with the least z in a class, or in both."""
    tail, few, alone, both = (1 - SHARED - WIDE) * c.failure / 6, 0.0, INF, -INF
    for k in range(2):
        few += classes[k].flipped[0] if flipped else classes[k].clean[0]
    for k in range(2):
        b = mul(c.h, classes[k].diff)
        pull, zeta, count = (neg(b), -1.0, classes[k].flipped) if flipped else (b, 1.0, classes[k].clean)
        if count[0] > 0:
            alone = min(alone, room_of_least(c, x, k, pull, zeta, quantile(tail ** (1 / count[0]))))
        if few > 0 and count[1] > 0:
            both = max(both, room_of_least(c, x, k, pull, zeta, quantile(tail ** (1 / few))))
    return min(alone, both) if few > 0 else INF


@_jit
def slope(logit, size, omega, overlap):
    """b where (1 + log(b W))/|Pi(b y v - p)| is about largest, W = e^logit: the quotient rises, then falls. Any b gives true bounds."""
    low, high = -1.0, max(1.5, logit + math.log(4 * omega / size))
    for _ in range(50):
        t = (low + high) / 2
        v = size * math.exp(min(t - logit, 700.0))
        mixed = overlap / size * v
        if v * v + 2 * mixed + omega * omega > (1 + t) * (v * v + mixed):
            low = t
        else:
            high = t
    return math.exp(min(low - logit, 700.0))


@_jit
def tail_of(t, size):
    """log Pr(size N > t) at most; 0 unless t > 0."""
    y = div((t, t), (size, size))[0] if t > 0 and size < INF else 0.0
    if y < 12:
        return math.log(tail_at_most(y)) * (1 - 1e-12) + 1e-12 if y > 0 else 0.0
    return -y * y / 2 * (1 - 1e-12) - math.log(2.506628 * y) + 1e-12


@_jit
def slab(low, high, beyond):
    """log of Pr(low < N < high) Pr(|N| <= x), at least, where Pr(N > x) = beyond; from the density at `low`, which falls."""
    wide = high - low
    if not (low > 0 and wide > 0):
        return -INF
    value = math.log(-math.expm1(-low * wide) / low) + math.log1p(-2 * beyond)
    return -(low * low + wide * wide) / 2 * (1 + 1e-12) - 0.918938534 + value - 1e-12 * (1 + abs(value))


@_jit
def mixed(b, sign, phi, psi):
    return add(times(b, phi), times(sign, psi))


@_jit
def error_ends(c, x, k, groups):
    """log err_k at least and at most, eq-proved-errors and eq-interval."""
    query, value, size, omega = x.query[k], x.value[k], x.length, x.omega
    if not value[1] > 0:
        return HALF - 1e-12, 0.0
    logit = add(query, log(value))
    # First lower bound: p xi below a cut, v xi beyond what is then needed. It is for errors that are not small.
    signal, least = div(mul(exp(query), value), size)[1], 0.0
    for j in range(len(CUTS)):
        drop = CUTS[j] * omega[1] * SLACK
        if drop < 700:
            least = max(least, tail_at_least(signal * math.exp(drop) * SLACK) - BEYOND[j])
    low, high = math.log(least) - 1e-12 if least > 0 else -INF, 0.0
    # A half-plane that holds all errors, with |Pi(b y v - p)| <= b |Pi v| + |Pi p|.
    if value[0] > 0:
        b = slope(logit[0], size[1], omega[1], size[1] * omega[1])
        high = tail_of(plus(1.0, add(log((b, b)), logit))[0], add(times(b, size), omega)[1])
    # Pi(b y v - p), whose weights are b phi + y omega, is bounded as Pi v and Pi p are.
    sign, overlap = 1.0 - 2.0 * k, 0.0
    for j in range(4):
        side = sign if j in (0, 3) else -sign
        overlap += middle_of(groups[j].count) * side * middle_of(groups[j].at_phi) * middle_of(groups[j].at_psi)
    unit = middle_of(c.a) * middle_of(c.a) / c.d[0]
    b = slope(logit[0] if value[0] > 0 else logit[1], size[1], omega[1], unit * overlap)
    g0, g1, g2, g3 = groups
    means = (
        mixed(b, sign, g0.phi, g0.psi), mixed(b, -sign, g1.phi, g1.psi), mixed(b, -sign, g2.phi, g2.psi), mixed(b, sign, g3.phi, g3.psi),
    )  # fmt: skip
    lips = (
        mixed(b, 1.0, g0.lip_phi, g0.lip_psi), mixed(b, 1.0, g1.lip_phi, g1.lip_psi),
        mixed(b, 1.0, g2.lip_phi, g2.lip_psi), mixed(b, 1.0, g3.lip_phi, g3.lip_psi),
    )  # fmt: skip
    mean, scaled = mixed(b, 1.0, x.mean_phi, x.tilt[k]), times(b, size)
    whole = length(c, mean, mixed(b, 1.0, x.along_phi, x.along_psi), norm(c, groups, means, lips, middle_of(mean)))
    whole, t = meet(whole, (0.0, add(scaled, omega)[1])), plus(1.0, add(log((b, b)), logit))
    if value[0] > 0:
        high = min(high, tail_of(t[0], whole[1]))
    # Second lower bound: a slab beyond the half-plane, in which p xi is near where the two touch.
    lean = times(0.5, plus(1.0, div(sub(square(omega), square(scaled)), square(whole))))
    for j in range(len(SIDES)):
        start, end, far = t[1], t[1], 0.0
        for _ in range(3):
            if start > 0 and far < 50:
                end = start + 2 * whole[1] * whole[1] / start
                far = spread(sub(mul(lean, (t[1], end)), plus(-1.0, (t[1], t[1]))))[1] + SIDES[j] * min(
                    omega[1], scaled[1]
                )
                start = (t[1] + (math.expm1(min(far, 50.0)) - far)) * SLACK
        if start >= whole[1] and far < 50 and whole[0] > 0:
            low = max(low, slab(start / whole[0] * SLACK, end / whole[0] / SLACK, tail_at_most(SIDES[j])))
    return low, high


@_jit
def mean_of(first, second):
    """log of the mean of e^first and e^second."""
    most = max(first, second)
    return most + HALF + math.log1p(math.exp(min(first, second) - most)) if most > -INF else -INF


# --- one box of label counts -----------------------------------------------------------------------------------------------------


@_jit
def setting(n, d, signal_norm, step_size, failure, error):
    tail = SHARED * failure / TAILS
    d_i, unit = (d, d), div((step_size, step_size), times(4.0, (n, n)))
    square_r, q = div(chi_square(d - 2, tail), d_i), div(chi_square(d - 3, tail), d_i)
    r, a, h = root(square_r), mul(unit, d_i), mul(unit, square((signal_norm, signal_norm)))
    return Setting(
        n, a, h, d_i, plus(-1.0, square_r), r, mul(r, root(div((n, n), d_i))), q, div(r, root(times(n, d_i))), root(div(q, d_i)),
        quantile(WIDE * failure / (2 * n)), math.sqrt(-2 * math.log(tail)) * SLACK, quantile(tail), chi_square(n - 1, tail)[1],
        failure, error,
    )  # fmt: skip


@_jit
def label_class(low, high, least, most, fewest, flipped):
    """Counts of a class with low to high samples, clean less flipped ones from least to most, and fewest to so many flipped."""
    f0, f1 = max(fewest, (low - most + 1) // 2), min(flipped, (high - least) // 2)
    low, high = max(low, least + 2 * f0), min(high, most + 2 * f1)
    least, most = max(least, low - 2 * f1), min(most, high - 2 * f0)
    c0, c1 = max((low + least + 1) // 2, 0), (high + most) // 2
    return Class((float(low), float(high)), (float(least), float(most)), (float(c0), float(c1)), (float(f0), float(f1)))


@_jit
def classes_of(n, box, support):
    """The two classes of a box: sizes of the first, and clean less flipped samples of both, each from ... to."""
    return (
        label_class(box[0], box[1], box[2], box[3], support[0], support[1]),
        label_class(n - box[1], n - box[0], box[4], box[5], support[2], support[3]),
    )


@_jit
def both_kinds(c, k, known, tables):
    b = mul(c.h, k.diff)
    clean = group(c, b, k.clean, budgets(c, 0, k.clean[1], known), tables[0])
    return clean, group(c, neg(b), k.flipped, budgets(c, 1, k.flipped[1], known), tables[1])


@_jit
def bounds(c, classes, known, tables):
    g0, g1 = both_kinds(c, classes[0], known, tables[0])
    g2, g3 = both_kinds(c, classes[1], known, tables[1])
    groups = (g0, g1, g2, g3)
    return groups, shared(c, classes, groups)


@_jit
def judge(c, classes, aim, known, tables):
    """The outcome that is proved (only `aim` is tried, unless it is NOTHING), and the numbers behind it.

    Returns outcome, room of all samples, of one flipped, of one clean sample, log of the mean error at least, at most.
    """
    groups, x = bounds(c, classes, known, tables)
    # All labels are fitted: room of every sample, then the error.
    fit, least, most = -INF, -INF, 0.0
    if aim in (FITS_AND_ERRS_LESS, FITS_AND_ERRS_MORE, NOTHING):
        fit = INF
        for j in range(4):
            if groups[j].count[1] > 0:
                fit = min(fit, room_of_group(c, x, j // 2, 1.0 - 2.0 * (j % 2), groups[j], tables[j // 2, j % 2]))
    if fit > 0 or aim == NOTHING:
        one, two = error_ends(c, x, 0, groups), error_ends(c, x, 1, groups)
        least, most = mean_of(one[0], two[0]) - 1e-12, min(mean_of(one[1], two[1]) + 1e-12, 0.0)
        if fit > 0 and most <= c.error:
            return FITS_AND_ERRS_LESS, fit, INF, INF, least, most
        if fit > 0 and least >= c.error:
            return FITS_AND_ERRS_MORE, fit, INF, INF, least, most
    # One is not: of the flipped samples, or of the clean ones.
    flipped = clean = INF
    if aim == MISSES_FLIPPED or (aim == NOTHING and not fit > 0):
        flipped = room_of_missed(c, x, classes, True)
    if aim == MISSES_CLEAN or (aim == NOTHING and not fit > 0 and not flipped < 0):
        clean = room_of_missed(c, x, classes, False)
    outcome = MISSES_FLIPPED if flipped < 0 else MISSES_CLEAN if clean < 0 else NOTHING
    return outcome, fit, flipped, clean, least, most


# --- probabilities of label counts, and the search ---------------------------------------------------------------------------------


@_jit
def binomial(log_factorial, n, k, p):
    if k < 0 or k > n or (p == 0 and k > 0):
        return 0.0
    up = k * math.log(p) if k > 0 else 0.0
    return math.exp(log_factorial[n] - log_factorial[k] - log_factorial[n - k] + up + (n - k) * math.log1p(-p))


@_entry
def count_law(n, eta, missing, log_factorial):
    """Sizes of the larger class from n/2 up with their probability, and sums of Pr(Bin(m, eta) = f) over f < start[m] + column.

    Also the numbers of flipped samples in the larger and in the other class from ... to, outside of which little is missing.
    """
    # Sizes of the larger class, up to where little is missing.
    exact = 1 - 3 * n * ULP * log_factorial[n] - 1e-12  # what rounding of sums of n logarithms may add is taken off
    half, top, beyond = (n + 1) // 2, n, 0.0
    while top > half and beyond + 2 * binomial(log_factorial, n, top, 0.5) <= missing:
        beyond += 2 * binomial(log_factorial, n, top, 0.5)
        top -= 1
    own = np.array(
        [binomial(log_factorial, n, m, 0.5) * exact * (1.0 if 2 * m == n else 2.0) for m in range(half, top + 1)]
    )
    # Flipped samples in a class of each size: sums of probabilities, and from ... to.
    width = int(18 * math.sqrt(top * eta * (1 - eta)) + 40)
    sums, start = np.zeros((2 * top - n + 1, width + 1)), np.zeros(top + 1, np.int64)  # the last row is that of `top`
    support = np.array([n, 0, n, 0])
    for m in range(n - top, top + 1):
        start[m], row = max(0, int(m * eta - width / 2)), sums[m - top - 1]
        for j in range(width):
            row[j + 1] = row[j] + binomial(log_factorial, m, start[m] + j, eta) * exact
        side, low, high = 0 if m >= half else 2, 0, width - 1
        while row[low + 1] <= missing:
            low += 1
        while high > low and row[width] - row[high] <= missing:
            high -= 1
        for j in (0, 2):
            if j == side or 2 * m == n:
                support[j], support[j + 1] = min(support[j], start[m] + low), max(support[j + 1], start[m] + high)
    return own, sums, start, support


@_jit
def below(sums, start, m, f):
    """Probability of fewer than f flipped samples among m."""
    return sums[m - len(start), min(max(f - start[m], 0), sums.shape[1] - 1)]


@_jit
def mass(n, box, own, sums, start, support):
    """Probability of a box, with that of the box of exchanged classes."""
    total, half = 0.0, (n + 1) // 2
    for m in range(max(box[0], half), min(box[1], half + len(own) - 1) + 1):
        low, high = max(support[0], (m - box[3] + 1) // 2), min(support[1], (m - box[2]) // 2)
        other, last = max(support[2], (n - m - box[5] + 1) // 2), min(support[3], (n - m - box[4]) // 2)
        if low <= high and other <= last:
            one = below(sums, start, m, high + 1) - below(sums, start, m, low)
            total += own[m - half] * one * (below(sums, start, n - m, last + 1) - below(sums, start, n - m, other))
    return total


@_jit
def put(row, values):
    """row[:] = values, without numba's message on shapes, which takes seconds to compile."""
    for k in range(len(row)):
        row[k] = values[k]


@_jit
def sampled(c, points, law, known, tables):
    """What would be proved at points spread over the likely counts: the outcome of most, how many have each, the first with each."""
    own, sums, start, support = law
    n, half, found, first = int(c.n), (int(c.n) + 1) // 2, np.zeros(5, np.int64), np.zeros((5, 6), np.int64)
    for j in range(points):  # three irrational steps fill the cube evenly
        m, u = half, (0.5 + j * 0.8191725134) % 1.0 * own.sum()
        while m - half < len(own) - 1 and u > own[m - half]:
            u -= own[m - half]
            m += 1
        one, two = support[0], support[2]
        while one < support[1] and below(sums, start, m, one + 1) < (0.5 + j * 0.6710436067) % 1.0:
            one += 1
        while two < support[3] and below(sums, start, n - m, two + 1) < (0.5 + j * 0.5497004779) % 1.0:
            two += 1
        box = np.array([m, m, m - 2 * one, m - 2 * one, n - m - 2 * two, n - m - 2 * two])
        outcome = judge(c, classes_of(n, box, support), NOTHING, known, tables)[0]
        if found[outcome] == 0:
            put(first[outcome], box)
        found[outcome] += 1
    return found[:NOTHING].argmax(), found, first


@_entry
def decide(numbers, eta, own, sums, start, support, points, needed, limit):
    """Cuts the likeliest box that proves nothing, until those that prove one outcome have the probability `needed`, or it is hopeless.

    Args:
        numbers: the arguments of `setting`.
        own, sums, start, support: from `count_law`.
        points: label counts tried first; where fewer than four in five of those needed have the same outcome, there is no search.
        limit: boxes looked at, at most.

    Returns:
        the outcome tried; the probability that is proved; of the boxes that prove it: log error at least and at most, and probability;
        outcomes of the points; the likeliest box that does not prove it; its `judge`.
    """
    # Points first: which outcome to aim at, and whether there is hope.
    c, n, law = setting(*numbers), int(numbers[0]), (own, sums, start, support)
    known, tables = np.zeros((2, n + 1, 2 + PIECES // 2)), np.empty((2, 2, PIECES, 7))
    aim, found, first = sampled(c, points, law, known, tables)
    boxes, chance, kept = np.empty((8 * limit + 8, 6), np.int64), np.zeros(8 * limit + 8), np.empty((limit, 3))
    live, proved, good, used, heaviest = 0, 0.0, 0, 0, 0.0
    others = found.copy()
    others[aim] = 0
    worst = first[NOTHING if found[NOTHING] or found[aim] == points else others.argmax()].copy()
    weight = min(0.35 * (0.5 / max(eta, 1e-9) - 1), 1.2)  # of the size of a class: many flips know little of it
    half, top, reachable = (n + 1) // 2, (n + 1) // 2 + len(own) - 1, 0.0
    if found[aim] >= 0.8 * needed * points:
        # One box of all likely counts: size of the larger class, clean less flipped samples of it and of the other.
        low, high = half - 2 * support[1], top - 2 * support[0]
        put(boxes[0], np.array([half, top, low, high, n - top - 2 * support[3], n - half - 2 * support[2]]))
        live, chance[0] = 1, mass(n, boxes[0], own, sums, start, support)
        reachable = chance[0]
    while live and used < limit and proved < needed <= reachable:
        # The likeliest box that is left: proved, or cut.
        j, used = chance[:live].argmax(), used + 1
        box, likely = boxes[j].copy(), chance[j]
        live -= 1
        put(boxes[j], boxes[live])
        chance[j] = chance[live]
        outcome, _, _, _, least, most = judge(c, classes_of(n, box, support), aim, known, tables)
        if outcome == aim:
            proved += likely
            kept[good, 0], kept[good, 1], kept[good, 2] = least, most, likely
            good += 1
            continue
        sides = (weight * (box[1] - box[0]), float(box[3] - box[2]), float(box[5] - box[4]))
        longest = max(sides[0], sides[1], sides[2])
        if longest == 0:
            reachable -= likely
            if likely > heaviest:
                heaviest = likely
                put(worst, box)
            continue
        first_part = live
        put(boxes[live], box)
        live += 1
        for side in range(3):  # in two along each side that is not much shorter than the longest
            if sides[side] >= longest / 2:
                for k in range(first_part, live):
                    middle = (boxes[k, 2 * side] + boxes[k, 2 * side + 1]) // 2
                    put(boxes[live], boxes[k])
                    boxes[k, 2 * side + 1], boxes[live, 2 * side] = middle, middle + 1
                    live += 1
        # Parts that are possible stay.
        last, live = live, first_part
        for k in range(first_part, last):
            likely = mass(n, boxes[k], own, sums, start, support)
            if likely > 0:
                put(boxes[live], boxes[k])
                chance[live] = likely
                live += 1
    if heaviest == 0 and live:
        put(worst, boxes[chance[:live].argmax()])
    return aim, proved, kept[:good], found, worst, judge(c, classes_of(n, worst, support), NOTHING, known, tables)


@_entry
def given(numbers, counts):
    """`judge` of one set of label counts: clean and flipped samples of class 1, then of class 2."""
    c, n = setting(*numbers), int(numbers[0])
    known, tables = np.zeros((2, n + 1, 2 + PIECES // 2)), np.empty((2, 2, PIECES, 7))
    m, one, two = counts[0] + counts[1], counts[0] - counts[1], counts[2] - counts[3]
    return judge(c, classes_of(n, (m, m, one, one, two, two), (0, n, 0, n)), NOTHING, known, tables)
