"""The GPU form: every lane integrates one error, from the mode outwards on both sides, panel after panel.

A lane finds its own mode and chooses its own panels; lanes exchange nothing, so there are no sums across lanes, no barriers and
no scratch. The 32 lanes of a program go on until the last of them is done.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import torch
import triton
import triton.language as tl

from attnlib.kernels import batches
from attnlib.kernels.gaussian_tail import series

__all__ = ["log_mass"]

_LANES = 32  # one warp: a program waits for its slowest lane only
_LARGEST = 1 << 20  # errors of one launch: less than a second
_CPU_LANES = 1024  # the interpreter takes as long for a wide program as for a narrow one

_SERIES = tl.constexpr(tuple(series.ERFCX[::-1]))
_TERMS = tl.constexpr(len(series.ERFCX))
_CENTRE = tl.constexpr(series.CENTRE)
_PANEL = tl.constexpr(series.PANEL)
_PANELS = tl.constexpr(series.PANELS)
_ORDER = tl.constexpr(series.PANEL - 2.0)
_TOLERANCE = tl.constexpr(series.TOLERANCE)
_FIRST_LENGTH = tl.constexpr(series.FIRST_LENGTH)
_LONGEST = tl.constexpr(series.LONGEST)
_OUT_OF_SIGHT = tl.constexpr(series.OUT_OF_SIGHT)
_SHORTEST_STEP, _SHORTER_STEP = (tl.constexpr(f) for f in series.SHORTER)
_LONGER_STEP, _LONGEST_STEP = (tl.constexpr(f) for f in series.LONGER)
_ROUNDING = tl.constexpr(16 * float(np.finfo(np.float64).eps))
_ROOT_HALF = tl.constexpr(math.sqrt(0.5))
_DENSITY = tl.constexpr(1 / math.sqrt(2 * math.pi))
_LOG_NORMALISER = 0.5 * math.log(2 * math.pi)
_FURTHEST = tl.constexpr(1e100)
_UNDERFLOW = tl.constexpr(-37.0)
_SMALLEST, _GREATEST = tl.constexpr(-708.0), tl.constexpr(709.0)
_INFINITE = tl.constexpr(math.inf)
_FAR = tl.constexpr(1e307)
_UNSEEN = tl.constexpr(-100.0)  # e^-100 of the peak: rounding there does not count


@triton.jit
def _exponential(x):
    return tl.exp(tl.minimum(tl.maximum(x, _SMALLEST), _GREATEST))


@triton.jit
def _tail_parts(x):
    """(w, e, g) with Phi(-x) = w exp(-e), e = max(x, 0)^2/2, and phi(x) = g exp(-e)/sqrt(2 pi)."""
    square = 0.5 * x * x
    z = tl.minimum(tl.abs(x) * _ROOT_HALF, _FURTHEST)
    shifted = z + _CENTRE
    doubled = 1 + 2 * z
    both = 1 / (shifted * doubled)
    y = 1 - 2 * _CENTRE * doubled * both
    total = y * 0.0
    for j in tl.static_range(_TERMS):
        total = total * y + _SERIES[j]
    half = 0.5 * total * shifted * both
    falling = _exponential(-square)
    return (
        tl.where(x > 0, half, 1 - falling * half),
        tl.where(x > 0, square, 0.0),
        tl.where(x > 0, 1.0, falling),
    )


@triton.jit
def _force(t, level, omega, slope):
    """The slope of log Phi(-x(t)) in t, and minus its second derivative, for x(t) = exp(level - omega t) + slope t."""
    grown = _exponential(level - omega * t)
    x = grown + slope * t
    w, _, g = _tail_parts(x)
    hazard = tl.where(x > _UNDERFLOW, _DENSITY * g / w, 0.0)
    # x'(t); d/dt log Phi(-x) = -x' h(x) with the hazard h = phi/Phi(-x), and h' = h (h - x).
    rate = slope - omega * grown
    bend = tl.minimum(tl.maximum(hazard * (hazard - x), 0.0), 1.0)
    return -rate * hazard, omega * omega * grown * hazard + rate * rate * bend


@triton.jit
def _mode(level, omega, slope):
    """Where the integrand is largest, and minus the second derivative of its logarithm there (see the compiled form)."""
    force, bend = _force(level * 0.0, level, omega, slope)
    curvature = 1 + bend
    sign = tl.where(force > 0, level * 0.0 + 1, level * 0.0 - 1)
    still = force == 0
    near = level * 0.0
    far = near + 1
    y = tl.minimum(sign * force, 0.5)
    searching = tl.where(still, 0, 1)
    growth = 2.0
    while tl.max(searching, 0) > 0:
        force, bend = _force(sign * far, level, omega, slope)
        # The bracket grows by 2, 4, 8, ...: the mode is where sign * force, which falls, meets y.
        beyond = (sign * force > far) & (searching > 0) & (far < _FAR)
        near = tl.where(beyond, far, near)
        y = tl.where(beyond, far, y)
        far = tl.where(beyond, tl.minimum(growth * far, _FAR), far)
        growth *= 2
        searching = tl.where(beyond, 1, 0)
    before = far - near
    last = before
    searching = tl.where(still, 0, 1)
    turns = 0
    while (tl.max(searching, 0) > 0) & (turns < 200):
        force, bend = _force(sign * y, level, omega, slope)
        force = sign * force
        low = force > y
        near = tl.where(low, y, near)
        far = tl.where(low, far, y)
        smooth = (force > 0) & (force < _INFINITE) & (bend < _INFINITE)
        held = tl.where(smooth, force, y)
        # Newton's step for log(force/y) = 0; halves where it leaves the bracket or does not hurry.
        step = tl.log(held / y) / (tl.where(smooth, bend, 0.0) / held + 1 / y)
        good = smooth & (near <= y + step) & (y + step <= far) & (tl.abs(step) <= 0.5 * before)
        step = tl.where(good, step, 0.5 * (near + far) - y)
        running = searching > 0
        curvature = tl.where(running, 1 + bend, curvature)
        before = last
        last = tl.abs(step)
        stuck = (good == 0) & (last <= 3e-16 * y)  # rounding makes the force a step: take the density's finite side
        y = tl.where(running, tl.where(stuck, far, y + step), y)
        searching = tl.where(running & (stuck == 0) & ((good == 0) | (last > 1e-12 * y)), 1, 0)
        turns += 1
    return tl.where(still, level * 0.0, sign * y), curvature


@triton.jit
def _integrand(t, level, omega, slope, peak):
    """Phi(-x(t)) exp(-t^2/2 - peak)."""
    w, e, _ = _tail_parts(_exponential(level - omega * t) + slope * t)
    return w * _exponential(-e - 0.5 * t * t - peak)


@triton.jit
def _rounding_at(t, level, omega, slope, peak):
    """What rounding makes of the integrand there, over its peak: near a wall it is much more than at the mode."""
    grown = _exponential(level - omega * t)
    x = grown + slope * t
    share = -0.5 * x * x - 0.5 * t * t - peak
    of_x = grown * (1 + tl.abs(level) + tl.abs(omega * t)) + tl.abs(slope * t)
    return tl.where(share > _UNSEEN, _ROUNDING * _DENSITY * _exponential(share) * of_x, 0.0)


@triton.jit
def _judge(here, before, last, value, mass, start, length, tolerance, noise, panel):
    """What a panel adds to the mass, where its side goes on, and how long the next panel is: 0 where the side ends."""
    running = length > 0
    here = 0.5 * length * here
    allowed = tolerance * (mass + here) + length * noise
    some = here > 0
    ratio = tl.where(some, length * (tl.abs(last) + tl.abs(before)) / tl.where(some, allowed, 1.0), 0.0)
    # The error of a panel falls like length^order: the next length aims just below what is allowed.
    factor = 0.9 * tl.exp(-tl.log(tl.maximum(ratio, 1e-30)) / _ORDER)
    refused = (ratio > 1) & (panel < _PANELS // 2)
    start = tl.where(refused, start, start + length)
    mass = tl.where(running & (refused == 0), mass + here, mass)
    shorter = tl.minimum(tl.maximum(factor, _SHORTEST_STEP), _SHORTER_STEP)
    longer = tl.minimum(tl.maximum(factor, _LONGER_STEP), _LONGEST_STEP)
    ended = (refused == 0) & ((value < _OUT_OF_SIGHT) | (start > _LONGEST))
    return mass, start, tl.where(ended, 0.0, length * tl.where(refused, shorter, longer))


@triton.jit
def _errors(level_at, omega_at, slope_at, table_at, peak_at, mass_at, count, LANES: tl.constexpr):
    """Peak of the log integrand, and the integral over exp(peak), of one error a lane.

    table: (4, PANEL) float64: nodes, weights, rows of the last two Legendre coefficients.
    """
    lane = tl.program_id(0).to(tl.int64) * LANES + tl.arange(0, LANES)
    inside = lane < count
    whose = tl.where(inside, lane, 0)
    level = tl.load(level_at + whose)
    omega = tl.load(omega_at + whose)
    slope = tl.load(slope_at + whose)
    centre, curvature = _mode(level, omega, slope)
    grown = _exponential(level - omega * centre)
    x = grown + slope * centre
    w, e, g = _tail_parts(x)
    peak = tl.log(w) - e - 0.5 * centre * centre
    size = grown * (1 + tl.abs(level) + tl.abs(omega * centre)) + tl.abs(slope * centre)
    rounding = _ROUNDING * (1 - peak + _DENSITY * g / w * size)
    tolerance = tl.maximum(rounding, _TOLERANCE)
    zero = level * 0.0
    mass = zero
    left_start = zero
    right_start = zero
    left_noise = rounding
    right_noise = rounding
    left = tl.where(inside & (peak > -_INFINITE), _FIRST_LENGTH / tl.sqrt(curvature), zero)
    right = left
    panel = 0
    while (tl.max(tl.where((left > 0) | (right > 0), 1, 0), 0) > 0) & (panel < _PANELS):
        left_here = zero
        left_before = zero
        left_last = zero
        left_value = zero
        right_here = zero
        right_before = zero
        right_last = zero
        right_value = zero
        for j in range(_PANEL):
            share = 0.5 + 0.5 * tl.load(table_at + j)
            weight = tl.load(table_at + _PANEL + j)
            row_before = tl.load(table_at + 2 * _PANEL + j)
            row_last = tl.load(table_at + 3 * _PANEL + j)
            left_value = _integrand(centre - (left_start + left * share), level, omega, slope, peak)
            right_value = _integrand(centre + (right_start + right * share), level, omega, slope, peak)
            left_here += weight * left_value
            right_here += weight * right_value
            left_before += row_before * left_value
            right_before += row_before * right_value
            left_last += row_last * left_value
            right_last += row_last * right_value
        started = left_start
        noise = _rounding_at(centre - (left_start + left), level, omega, slope, peak)
        worse = tl.maximum(left_noise, noise)
        mass, left_start, left = _judge(
            left_here, left_before, left_last, left_value, mass, left_start, left, tolerance, worse, panel
        )
        left_noise = tl.where(left_start > started, noise, left_noise)
        started = right_start
        noise = _rounding_at(centre + (right_start + right), level, omega, slope, peak)
        worse = tl.maximum(right_noise, noise)
        mass, right_start, right = _judge(
            right_here, right_before, right_last, right_value, mass, right_start, right, tolerance, worse, panel
        )
        right_noise = tl.where(right_start > started, noise, right_noise)
        panel += 1
    tl.store(mass_at + lane, mass, mask=inside)
    tl.store(peak_at + lane, peak, mask=inside)


@functools.cache
def _table(device: torch.device) -> torch.Tensor:
    return torch.as_tensor(np.stack([series.NODES, series.WEIGHTS, *series.TAILS])).to(device)


def log_mass(level: torch.Tensor, omega: torch.Tensor, slope: torch.Tensor) -> torch.Tensor:
    """`reference.log_mass` of finite float64 vectors (R,) on a CUDA device (or on the CPU in Triton's interpreter)."""
    out = torch.empty_like(level)
    lanes = _LANES if level.is_cuda else _CPU_LANES

    def work(part: slice) -> None:
        runs = part.stop - part.start
        peak, mass = (torch.empty(runs, dtype=level.dtype, device=level.device) for _ in range(2))
        inputs = (x[part].contiguous() for x in (level, omega, slope))
        # Infinities are meant; only the interpreter, which computes with numpy, would warn of them.
        with np.errstate(all="ignore"):
            _errors[(triton.cdiv(runs, lanes),)](
                *inputs, _table(level.device), peak, mass, runs, LANES=lanes, num_warps=1, enable_fp_fusion=True
            )
        # As in the reference: an integrand that underflows everywhere, and one whose panels are empty by rounding.
        total = peak - _LOG_NORMALISER + torch.where(mass > 0, mass, 1.0).log()
        out[part] = torch.where(peak == -torch.inf, peak, total)

    if len(level):
        size = 6 * level.element_size()
        batches.in_batches(work, len(level), bytes_per_run=size, device=level.device, largest=_LARGEST)
    return out
