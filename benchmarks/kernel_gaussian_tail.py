"""Kernel (d): exact population errors, heads over many decades, against the same integrals by batched torch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import numpy as np
import torch

from attnlib.kernels.dispatch import has_numba
from attnlib.kernels.gaussian_tail import log_error
from benchmarks.registry import Case, Work, of_one_unit

__all__ = ["cases", "ratios"]

_ERRORS = 20_000
_FEW = 2000  # for the reference
_TOLERANCE = 1e-11  # of err, or of log err where that is large
# Floating-point operations of the compiled form, a fused multiply-add as two, comparisons and clamps not counted: an exponential
# (reduction 7, polynomial of degree 13 in 28); Phi by its series (44), a division and what goes with both (17).
_EXPONENTIAL, _SERIES = 35, 61
# Of one node: t, the argument x, Phi with the exponential beside it, the last exponential, three weighted sums.
_NODE = 5 + (_EXPONENTIAL + 4) + (_SERIES + _EXPONENTIAL) + (_EXPONENTIAL + 5) + 6


def _heads(count: int) -> list[torch.Tensor]:
    """logit, V, omega, c, tau of `count` heads: errors from a few tenths to 10^-10000 and far below, a tenth on the wrong side."""
    draw = np.random.default_rng(0)
    heads = (
        draw.normal(size=count) * 10 ** draw.uniform(-1, 1, count),
        10 ** draw.uniform(-2, 2, count) * np.where(draw.random(count) < 0.1, -1, 1),
        10 ** draw.uniform(-2, 1, count),
        10 ** draw.uniform(-2, 1, count) * draw.choice([-1, 1], count),
        10 ** draw.uniform(-2, 1, count),
    )
    return [torch.as_tensor(x) for x in heads]


@functools.cache
def gate() -> None:
    """The form timed here gives the reference's errors. Raises AssertionError."""
    heads = _heads(200)
    want, found = log_error(*heads, implementation="reference"), log_error(*heads)
    if not ((found - want).abs() <= _TOLERANCE * want.abs().clamp_min(1)).all():
        raise AssertionError("population errors are not those of the reference: no speed is reported")


@functools.cache
def operations() -> float:
    """Of one error, on average: the nodes of the panels that the compiled form takes for these heads, without its mode search.

    Without numba nothing is counted.
    """
    if not has_numba():
        return 0.0
    from attnlib.kernels import _build, gaussian_tail

    logit, value, omega, along, tau = _heads(_FEW)
    level = (value.abs().log() + logit - tau.log()).numpy()
    slope = (value.sign() * along / tau).numpy()
    loops = _build.loops(gaussian_tail.__file__, "_loops.py")
    panels = loops.log_masses(level, omega.numpy(), slope, np.empty_like(level), 0, len(level))
    return float(panels.sum()) / len(level) * loops.PANEL * _NODE


def _timed(count: int, implementation: str, threads: int) -> Callable[[], object]:
    heads = _heads(count)
    return lambda: log_error(*heads, implementation=implementation, threads=threads)


def cases(device: str) -> tuple[Case, ...]:
    """Both forms on the CPU. There is no GPU program."""
    found = []
    for name, form, count, threads in (
        ("d-compiled-1", "compiled", _ERRORS, 1), ("d-compiled-2", "compiled", _ERRORS, 2), ("d-torch", "reference", _FEW, 1),
    ):  # fmt: skip
        work = Work(count, "error", operations(), dtype="float64", kernel="gaussian_tail")
        what = f"{form}, {threads} thread{'s' * (threads > 1)}: {count} errors, float64"
        make = functools.partial(_timed, count, form, threads)
        found.append(Case(name, what, make, work=work, threads=threads, gate=gate))
    return tuple(found) if device == "cpu" else ()


def ratios(median: Mapping[str, float]) -> dict[str, float]:
    """Times of one error, against batched torch."""
    pairs = {
        "(d) batched torch / compiled, one error": ("d-torch", "d-compiled-1", _ERRORS / _FEW),
        "(d) one thread / two threads": ("d-compiled-1", "d-compiled-2", 1.0),
    }
    return of_one_unit(median, pairs)
