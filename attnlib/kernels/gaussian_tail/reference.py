"""The readable form of the integral: torch, on any device, in any floating dtype."""

from __future__ import annotations

import math

import torch

from attnlib.quadrature import log_integral

Tensor = torch.Tensor
_CHUNK = 256  # integrals at once: what they need stays in the caches
_LOG_NORMALISER = 0.5 * math.log(2 * math.pi)


def _argument(t: Tensor, level: Tensor, omega: Tensor, slope: Tensor) -> Tensor:
    return torch.exp(level - omega * t) + slope * t


def _log_density(t: Tensor, level: Tensor, omega: Tensor, slope: Tensor) -> Tensor:
    log_tail: Tensor = torch.special.log_ndtr(-_argument(t, level, omega, slope))
    return log_tail - t * t / 2 - _LOG_NORMALISER


def _hazard(x: Tensor) -> Tensor:
    """phi(x)/Phi(-x)."""
    scaled_tail: Tensor = torch.special.erfcx(x / math.sqrt(2))
    return math.sqrt(2 / math.pi) / scaled_tail


def _log_density_slope(t: Tensor, level: Tensor, omega: Tensor, slope: Tensor) -> Tensor:
    rate = slope - omega * torch.exp(level - omega * t)
    return -t - rate * _hazard(_argument(t, level, omega, slope))


def _rounding(t: Tensor, level: Tensor, omega: Tensor, slope: Tensor) -> Tensor:
    grown = torch.exp(level - omega * t)
    of_x = grown * (1 + level.abs() + (omega * t).abs()) + (slope * t).abs()
    return 1 - _log_density(t, level, omega, slope) + _hazard(_argument(t, level, omega, slope)) * of_x


def advance(level: torch.Tensor, omega: torch.Tensor, slope: torch.Tensor) -> torch.Tensor:
    r"""$\log E_{t \sim N(0, 1)} \Phi(-(e^{\mathrm{level} - \omega t} + \mathrm{slope}\, t))$ of vectors (R,)."""
    out = torch.empty_like(level)
    for first in range(0, len(level), _CHUNK):
        part = slice(first, first + _CHUNK)
        out[part] = log_integral(_log_density, _log_density_slope, (level[part], omega[part], slope[part]), _rounding)
    return out
