"""The compiled form's source: one integral after the other, the nodes of two panels side by side in vector registers.

Loaded by `compiled` through `_build`.
Functions that round on purpose must not reassociate sums: `contract` lets a product and a sum become one instruction, no more.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from attnlib.kernels._exponential import bits_of, exponential
from attnlib.quadrature import lobatto

# erfcx(z) = e^(z^2) erfc(z) = sum_j a_j y^j / (1 + 2z), y = (z - b)/(z + b), z >= 0: the form of Shepherd and Laframboise (Math. Comp.
# 36, 1981) with their b = 15/4. The a_j are the projection on Chebyshev polynomials over 400 nodes. Relative error 2e-15.
CENTRE = 3.75
ERFCX = (
    1.2375126308378277, -0.1402405985855371, 0.003585415485410151, 0.08227673848944524, -0.10880393013965624,
    0.09230432117480607, -0.058693398615128484, 0.02836227728080204, -0.009746579421647073, 0.0017556266087691563,
    0.00029371335270066135, -0.0002901566835507019, 5.164903218024541e-05, 2.239013726601513e-05, -1.1441985048987746e-05,
    -9.82472158739256e-07, 1.745986846657388e-06, -4.834359401684196e-08, -2.5112183621445183e-07, 1.7685010789136868e-08,
    3.2906427804846317e-08, -1.7435013432987034e-09, -2.7703208616003394e-09,
)  # fmt: skip
PANEL = 16  # Gauss-Lobatto nodes of a panel: both ends are among them, so that a wall just inside an end is seen
NODES, WEIGHTS, TAILS = lobatto(PANEL)
# A panel is fine when the integrand's last two Legendre coefficients there, times its length, are below this share of the integral:
# what a polynomial of degree 15 misses, while the rule is exact to degree 29.
TOLERANCE = 1e-11
# A smooth function's last coefficients change as the panel's length to the power 14 or more; the next length aims at the tolerance.
SHORTER, LONGER = (0.1, 0.7), (0.7, 4.0)  # factors for a panel that is refused, and after one that is fine
FIRST_LENGTH = 1.0  # of the first panel, in units of 1/sqrt(-h'') at the mode
OUT_OF_SIGHT = 1e-16  # where a log-concave integrand has fallen to this share of its peak, less than that remains
LONGEST = 9.0  # exp(-9^2/2) < 1e-16: at this distance from the mode the normal density alone has fallen by so much
PANELS = 1000  # then all is taken as it is: a bound on the work, never reached by numbers that are resolved

_FLAGS = {"contract", "nsz", "arcp"}
_called = njit(fastmath=_FLAGS, nogil=True, error_model="numpy")
_inlined = njit(fastmath=_FLAGS, nogil=True, error_model="numpy", forceinline=True)

_ROOT_HALF = math.sqrt(0.5)
_DENSITY = 1 / math.sqrt(2 * math.pi)
_LOG_NORMALISER = 0.5 * math.log(2 * math.pi)
_FURTHEST = 1e100  # where erfcx is evaluated at most; beyond, its logarithm does not count beside z^2
_UNDERFLOW = -37.0  # below it phi(x) is taken as 0
_FAR = 1e307  # no mode is sought beyond
_UNSEEN = -100.0  # e^-100 of the peak: rounding there does not count
_LAST, _LAST_BUT_ONE = TAILS[1].copy(), TAILS[0].copy()
_ORDER = PANEL - 2
# The factor for the length by the binary exponent of (rough / allowed), from _LOWEST on; a margin of a tenth.
_LOWEST = -2 * _ORDER - 4
_FACTORS = 0.9 * 2.0 ** (-(np.arange(_LOWEST, 4 * _ORDER) + 1) / _ORDER)
_EPSILON = float(np.finfo(np.float64).eps)


@_inlined
def scaled_tail(z):
    """exp(z^2) erfc(z) for z >= 0."""
    z = _FURTHEST if z > _FURTHEST else z
    shifted, doubled = z + CENTRE, 1 + 2 * z
    both = 1 / (shifted * doubled)
    y = 1 - 2 * CENTRE * doubled * both
    (a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, a18, a19, a20, a21, a22) = ERFCX
    y2 = y * y
    even = ((((a22 * y2 + a20) * y2 + a18) * y2 + a16) * y2 + a14) * y2 + a12
    even = (((((even * y2 + a10) * y2 + a8) * y2 + a6) * y2 + a4) * y2 + a2) * y2 + a0
    odd = ((((a21 * y2 + a19) * y2 + a17) * y2 + a15) * y2 + a13) * y2 + a11
    odd = ((((odd * y2 + a9) * y2 + a7) * y2 + a5) * y2 + a3) * y2 + a1
    return (even + odd * y) * shifted * both


@_inlined
def tail_parts(x):
    """(w, e, g) with Phi(-x) = w exp(-e), e = max(x, 0)^2/2, and phi(x) = g exp(-e)/sqrt(2 pi)."""
    # Phi(-x) = erfc(x/sqrt 2)/2 = erfcx(x/sqrt 2) e^(-x^2/2)/2; on the left 1 - Phi(x).
    square = 0.5 * x * x
    half = 0.5 * scaled_tail(abs(x) * _ROOT_HALF)
    falling = exponential(-square)
    right = x > 0
    return (half if right else 1 - falling * half), (square if right else 0.0), (1.0 if right else falling)


@njit(fastmath=True, nogil=True, forceinline=True)
def _weighted(weights, values, first):
    total = 0.0
    for i in range(PANEL):
        total += weights[i] * values[first + i]
    return total


@_called
def _force(t, level, omega, slope):
    """The slope of log Phi(-x(t)) in t, and minus its second derivative, for x(t) = exp(level - omega t) + slope t."""
    grown = exponential(level - omega * t)
    x = grown + slope * t
    w, _, g = tail_parts(x)
    hazard = _DENSITY * g / w if x > _UNDERFLOW else 0.0  # phi(x)/Phi(-x)
    # x'(t); d/dt log Phi(-x) = -x' h(x) with the hazard h = phi/Phi(-x), and h' = h (h - x).
    rate = slope - omega * grown
    # 0 < hazard (hazard - x) < 1 in exact arithmetic; for large x the difference loses all digits.
    bend = min(max(hazard * (hazard - x), 0.0), 1.0)
    return -rate * hazard, omega * omega * grown * hazard + rate * rate * bend


@_called
def mode(level, omega, slope):
    """Where the integrand is largest, and minus the second derivative of its logarithm there."""
    force, bend = _force(0.0, level, omega, slope)
    if force == 0:
        return 0.0, 1 + bend
    sign = 1.0 if force > 0 else -1.0
    # sign * force falls with y = sign * t, and the mode is where it equals y. The bracket grows by 2, 4, 8, ...
    near, far, growth = 0.0, 1.0, 2.0
    y = min(sign * force, 0.5)
    while far < _FAR:
        force, bend = _force(sign * far, level, omega, slope)
        if not sign * force > far:
            break
        near = y = far
        far = min(growth * far, _FAR)
        growth *= 2
    last = before = far - near
    for _ in range(200):
        force, bend = _force(sign * y, level, omega, slope)
        force *= sign
        if force > y:
            near = y
        else:
            far = y
        # Newton's step for log(force/y) = 0, exact for powers; halves where it leaves the bracket or does not hurry.
        step = math.inf
        if 0 < force < math.inf and bend < math.inf:
            step = math.log(force / y) / (bend / force + 1 / y)
        newton = near <= y + step <= far and abs(step) <= 0.5 * before
        if not newton:
            step = 0.5 * (near + far) - y
        before, last = last, abs(step)
        y += step
        if newton and last <= 1e-12 * y:
            break
        if not newton and last <= 3e-16 * y:
            y = far  # where rounding makes the force a step, it is the density's finite side
            break
    return sign * y, 1 + bend


@_called
def _peak(t, level, omega, slope):
    """log Phi(-x(t)) - t^2/2 at the mode, and how many units of rounding it is off by: less cannot be asked of a panel."""
    grown = exponential(level - omega * t)
    x = grown + slope * t
    w, e, g = tail_parts(x)
    peak = math.log(w) - e - 0.5 * t * t
    of_x = grown * (1 + abs(level) + abs(omega * t)) + abs(slope * t)
    return peak, 1 - peak + _DENSITY * g / w * of_x


@_called
def _rounding_at(t, level, omega, slope, peak):
    """What rounding makes of the integrand there, over its peak: near a wall it is much more than at the mode."""
    grown = exponential(level - omega * t)
    x = grown + slope * t
    share = -0.5 * x * x - 0.5 * t * t - peak
    of_x = grown * (1 + abs(level) + abs(omega * t)) + abs(slope * t)
    return 16 * _EPSILON * _DENSITY * exponential(share) * of_x if share > _UNSEEN else 0.0


@_called
def log_mass(level, omega, slope, t, values, count):
    """log E Phi(-(exp(level - omega t) + slope t)) and the panels of each side added to `count` (2,).

    t, values: 2 PANEL numbers of scratch. From the mode outwards, on both sides at once, panel after panel.
    """
    if not (level - level == 0 and omega - omega == 0 and slope - slope == 0):
        return math.nan
    # The mode, and the integrand there: everything below is relative to it.
    centre, curvature = mode(level, omega, slope)
    peak, rounding = _peak(centre, level, omega, slope)
    if not peak > -math.inf:
        return -math.inf
    tolerance = max(TOLERANCE, 16 * _EPSILON * rounding)
    mass = 0.0
    left_start = right_start = 0.0
    left_noise = right_noise = 16 * _EPSILON * rounding
    left = right = FIRST_LENGTH / math.sqrt(curvature)
    for panel in range(PANELS):
        # The nodes of the next panel on the left and of the one on the right, and the integrand at all of them.
        for i in range(PANEL):
            share = 0.5 + 0.5 * NODES[i]
            t[i] = centre - (left_start + left * share)
            t[PANEL + i] = centre + (right_start + right * share)
        for i in range(2 * PANEL):
            x = exponential(level - omega * t[i]) + slope * t[i]
            w, e, _ = tail_parts(x)
            values[i] = w * exponential(-e - 0.5 * t[i] * t[i] - peak)
        # A side takes its panel and goes on, or tries a shorter one; it ends where nothing is left to see.
        if left > 0:
            count[0] += 1
            noise = _rounding_at(t[PANEL - 1], level, omega, slope, peak)
            here, fine, factor = _judge(values, 0, left, mass, tolerance, max(left_noise, noise), panel)
            if fine:
                left_noise = noise
                mass += here
                left_start += left
                if values[PANEL - 1] < OUT_OF_SIGHT or left_start > LONGEST:
                    left = 0.0
            left *= factor
        if right > 0:
            count[1] += 1
            noise = _rounding_at(t[2 * PANEL - 1], level, omega, slope, peak)
            here, fine, factor = _judge(values, PANEL, right, mass, tolerance, max(right_noise, noise), panel)
            if fine:
                right_noise = noise
                mass += here
                right_start += right
                if values[2 * PANEL - 1] < OUT_OF_SIGHT or right_start > LONGEST:
                    right = 0.0
            right *= factor
        if left == 0 and right == 0:
            break
    return peak - _LOG_NORMALISER + (math.log(mass) if mass > 0 else 0.0)


@_inlined
def _judge(values, first, length, mass, tolerance, noise, panel):
    """Integral over a panel, whether it may be added, and the factor for the length of the next."""
    here = 0.5 * length * _weighted(WEIGHTS, values, first)
    rough = length * (abs(_weighted(_LAST, values, first)) + abs(_weighted(_LAST_BUT_ONE, values, first)))
    ratio = rough / (tolerance * (mass + here) + length * noise) if here > 0 else 0.0
    exponent = (bits_of(ratio) >> 52) - 1023
    factor = _FACTORS[min(max(exponent - _LOWEST, 0), _FACTORS.size - 1)]
    if ratio > 1 and panel < PANELS // 2:
        return 0.0, False, min(max(factor, SHORTER[0]), SHORTER[1])
    return here, True, min(max(factor, LONGER[0]), LONGER[1])


@njit(nogil=True, cache=True)
def log_masses(level, omega, slope, out, first, last):
    """`log_mass` of the entries first, ..., last - 1 of three float64 vectors; returns panels of each side."""
    t, values = np.empty(2 * PANEL), np.empty(2 * PANEL)
    count = np.zeros(2, dtype=np.int64)
    for i in range(first, last):
        out[i] = log_mass(level[i], omega[i], slope[i], t, values, count)
    return count
