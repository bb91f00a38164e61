"""Heads for the tests of the population error: log err by 30-digit quadrature, and parameter sets over many decades."""

import math

import mpmath
import numpy as np
import torch

FIELDS = ("logit", "value", "omega", "along", "tau")


def by_mpmath(logit: float, value: float, omega: float, along: float, tau: float) -> float:
    """log err with 30 digits, from the formula as it stands, for V, omega, tau > 0.

    Break points where the argument of Phi passes small numbers, found by bisection on both sides of its least value, and a grid
    around the largest integrand.
    """
    with mpmath.workdps(30):
        a, V, w, c, s = (mpmath.mpf(float(x)) for x in (logit, value, omega, along, tau))

        def argument(t):
            return (mpmath.exp(a - w * t) * V + c * t) / s

        def log_density(t):
            x = argument(t)
            tail = mpmath.log(mpmath.erfc(x / mpmath.sqrt(2)) / 2) if x < 1e6 else -x * x / 2 - mpmath.log(x)
            return tail - t * t / 2

        # The integrand is log-concave: ternary search for its mode, then bisection for where it has fallen by 80.
        low, high = mpmath.mpf(-400), mpmath.mpf(400)
        for _ in range(400):
            one, two = low + (high - low) / 3, high - (high - low) / 3
            low, high = (one, high) if log_density(one) < log_density(two) else (low, two)
        mode = (low + high) / 2
        ends = []
        for side in (-1, 1):
            near, far = mpmath.mpf(0), mpmath.mpf(13)
            for _ in range(100):
                middle = (near + far) / 2
                inside = log_density(mode + side * middle) > log_density(mode) - 80
                near, far = (middle, far) if inside else (near, middle)
            ends.append(mode + side * far)
        points = {*ends, mode, *(ends[0] + (ends[1] - ends[0]) * mpmath.mpf(i) / 24 for i in range(25))}
        least = (a + mpmath.log(w * V / c)) / w if c > 0 else None
        sides = [ends] if least is None or not ends[0] < least < ends[1] else [[ends[0], least], [least, ends[1]]]
        for target in (-12, -8, -5, -3, -1, 0, 1, 3, 5, 8, 12):
            for left, right in sides:
                if (argument(left) > target) != (argument(right) > target):
                    for _ in range(120):
                        middle = (left + right) / 2
                        same = (argument(middle) > target) == (argument(left) > target)
                        left, right = (middle, right) if same else (left, middle)
                    points.add(left)
        peak = log_density(mode)
        mass = mpmath.quad(lambda t: mpmath.exp(log_density(t) - peak), sorted(points), maxdegree=6)
        return float(peak + mpmath.log(mass / mpmath.sqrt(2 * mpmath.pi)))


# log err from -0.7 to -1e7; a wall on one side, on both (an interval of errors), on none; attention from almost none to a switch.
HEADS = (
    (0.5, 1.0, 1.0, 0.5, 1.0),
    (-1.0, 0.3, 0.01, -2.0, 1.0),
    (2.0, 1.0, 0.5, -1.0, 0.3),
    (3.0, 2.0, 3.0, 1.0, 0.5),
    (5.0, 3.0, 1.0, 0.2, 0.1),
    (8.0, 3.0, 0.7, 1.0, 0.1),
    (6.552036334687186, 1.0, 1.9161346857359423, -24.71057164264443, 1.0),
    (4.517696602500804, 1.0, 0.39089406072100696, 200.06408863148513, 1.0),
    (0.2192082, 0.00171124, 13.113356, 34.1178106, 0.0401132),
    (-18.765441, 998.85335, 10.30965, 0.494145, 0.00134191),
    (14.114099373131822, 1.0, 0.007823444537029304, 197463.4187772006, 1.0),
    (-50.64150692, 0.0132071221, 0.2073657892, -5.370927652, 0.000802055662),
    (12.0, 1.0, 0.05, 0.5, 1.0),
)
# `by_mpmath` of each: seconds of work. test_gaussian_tail makes them again.
EXACT = (
    -2.841661446429991,
    -0.7332898346752937,
    -4.532572547312114,
    -12.710152118670557,
    -186.26141056638662,
    -9771.420539545423,
    -2.7552047018615244,
    -1.2610798115182458,
    -1.3399127516936071,
    -1.015564865962548,
    -29.002038540647582,
    -0.6931471805599453,
    -21388.939780561745,
)


def tensors(heads) -> list[torch.Tensor]:
    """The five arguments, float64 (len(heads),)."""
    return list(torch.tensor(heads, dtype=torch.float64).T)


def sweep(count: int, seed: int = 0) -> list[torch.Tensor]:
    """Arguments over many decades, a fifth of them with V < 0: log err from -1e-6 to -1e16, along/tau up to 1e6."""
    g = np.random.default_rng(seed)
    sign = g.choice([-1, 1], count)
    drawn = (
        g.normal(size=count) * 10 ** g.uniform(-1, 2, count),
        10 ** g.uniform(-3, 3, count) * np.where(g.random(count) < 0.2, -1, 1),
        10 ** g.uniform(-3, 2.5, count),
        10 ** g.uniform(-3, 2, count) * sign,
        10 ** g.uniform(-4, 2, count),
    )
    return [torch.as_tensor(x) for x in drawn]


# Two walls that nearly meet, where rounding is loud at the walls and not at the mode; log err by ball arithmetic (page VIII.1).
MEETING_WALLS = (
    ((-3.7041934346001133, 0.13596493449358646, 8.302318361909489, 0.07554575490413849, 1.8045163904437623e-10), -9.982421808252071),
    ((-6.026908583239407, 4.898637635941917, 5.202481648759262, 0.16715804303396958, 2.608360263432951e-10), -9.404317929071158),
)  # fmt: skip

_HALF, _NONE, _NAN = math.log(0.5), -math.inf, math.nan
_INF = math.inf
# (head, log err, why)
SPECIAL = (
    ((0.3, 0.0, 0.0, 0.0, 0.0), _HALF, "says nothing"),
    ((0.3, 0.0, 2.0, 0.0, 0.0), _HALF, "says nothing, attends"),
    ((0.3, 0.0, 2.0, 1.0, 1.0), _HALF, "no signal: a coin"),
    ((0.3, 0.0, 2.0, -1e-200, 1e-200), _HALF, "no signal, numbers whose squares vanish"),
    ((0.0, 1.0, 0.0, 0.0, 1.0), math.log(0.15865525393145707), "p = 0: Phi(-1)"),
    ((0.0, 1.0, 0.0, 3.0, 4.0), math.log(0.42074029056089696), "p = 0: Phi(-1/5)"),
    ((0.0, -1.0, 0.0, 0.0, 1.0), math.log(0.8413447460685429), "wrong side: Phi(1)"),
    ((0.0, 1e-300, 0.0, 0.0, 1e-300), math.log(0.15865525393145707), "tiny numbers, p = 0"),
    ((0.0, 1e300, 0.0, 0.0, 1e300), math.log(0.15865525393145707), "huge numbers, p = 0"),
    ((-600.0, 1e260, 0.0, 0.0, 1.0), -0.92763115038881, "Phi(-e^-600 10^260)"),
    ((2.0, 3.0, 1.0, 0.0, 0.0), _NONE, "tau = c = 0, V > 0: never wrong"),
    ((2.0, -3.0, 1.0, 0.0, 0.0), 0.0, "tau = c = 0, V < 0: always wrong"),
    ((0.0, 1e-300, 0.0, 0.0, 0.0), _NONE, "never wrong, however small"),
    ((0.0, 1.0, 0.0, 1.0, 0.0), math.log(0.15865525393145707), "tau = 0, p = 0: P(t < -1)"),
    ((1e5, 1.0, 0.0, 0.0, 1.0), _NONE, "log err = -e^(2e5)/2, which is no number"),
    ((_INF, 1.0, 1.0, 0.5, 1.0), _NONE, "infinite logit"),
    ((-_INF, 1.0, 1.0, 0.5, 1.0), _HALF, "no signal through attention"),
    ((0.0, _INF, 1.0, 0.5, 1.0), _NONE, "infinite V"),
    ((0.0, -_INF, 1.0, 0.5, 1.0), 0.0, "infinite V on the wrong side"),
    ((_NAN, 1.0, 1.0, 0.5, 1.0), _NAN, "NaN"),
    ((0.0, 1.0, 1.0, 0.5, _NAN), _NAN, "NaN"),
    ((0.0, 1.0, 1.0, _NAN, 1.0), _NAN, "NaN"),
    ((0.0, 1.0, _INF, 0.5, 1.0), _NAN, "infinite omega"),
    ((0.0, 1.0, 1.0, 0.5, _INF), _NAN, "infinite tau"),
    ((0.0, 1.0, 1.0, _INF, 1.0), _NAN, "infinite c"),
    ((_INF, 0.0, 1.0, 0.5, 1.0), _NAN, "zero times infinity"),
)
