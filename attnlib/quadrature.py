r"""Log-space quadrature of a log-concave integrand, correct at $10^{-16000}$ as at $10^{-1}$.

$I = \int e^{h(t)} dt$ with $h$ concave and $h'' \le -1$ (a standard normal density times a log-concave factor). Concavity gives
everything: one mode, found by bisection on $h'$; on either side the point where $h$ has fallen by $\ell$ lies within
$\sqrt{2\ell}$, found by bisection on $h$. Gauss-Legendre panels between such level points follow the integrand however narrow or
lopsided it is. Nothing is cut at a fixed distance: mass that sits 200 standard deviations away is found where it is.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

__all__ = ["log_integral"]

# Drops of h (in nats) that bound the panels. The first ones resolve a kink next to the mode; e^-42 is below float64's rounding.
_DROPS = (1e-6, 1e-4, 1e-2, 0.1, 0.5, 1.5, 4.0, 8.0, 14.0, 22.0, 32.0, 42.0)
_NODES = 16
_BISECTIONS = 60
_DOUBLINGS = 1100


def _mode(slope: Callable[[torch.Tensor], torch.Tensor], like: torch.Tensor) -> torch.Tensor:
    """Root of a decreasing function by doubling a bracket on the side where the root lies, then bisecting."""
    sign = torch.where(slope(torch.zeros_like(like)) > 0, 1.0, -1.0)
    near, far = torch.zeros_like(like), torch.ones_like(like)
    for _ in range(_DOUBLINGS):
        beyond = sign * slope(sign * far) > 0
        if not beyond.any():
            break
        near, far = torch.where(beyond, far, near), torch.where(beyond, 2 * far, far)
    for _ in range(_BISECTIONS):
        middle = (near + far) / 2
        beyond = sign * slope(sign * middle) > 0
        near, far = torch.where(beyond, middle, near), torch.where(beyond, far, middle)
    return sign * (near + far) / 2


def log_integral(
    log_density: Callable[[torch.Tensor], torch.Tensor],
    slope: Callable[[torch.Tensor], torch.Tensor],
    like: torch.Tensor,
) -> torch.Tensor:
    """log of the integral of exp(log_density) over the real line, one per element of `like`.

    Args:
        log_density: h, concave with h'' <= -1; maps a tensor (K, *like.shape) to the same shape.
        slope: h', or any decreasing function with the same sign; maps like.shape to like.shape.
        like: tensor whose shape, dtype and device the result has.

    Relative error about 1e-12 of the integral (compared with 30-digit mpmath in the tests).
    """
    mode = _mode(slope, like)
    peak = log_density(mode.unsqueeze(0)).squeeze(0)
    shape = (-1,) + (1,) * (like.ndim + 1)
    drops = torch.tensor(_DROPS, dtype=like.dtype, device=like.device).view(shape)
    sides = torch.tensor([-1.0, 1.0], dtype=like.dtype, device=like.device).view((1, 2) + (1,) * like.ndim)
    near = torch.zeros((len(_DROPS), 2, *like.shape), dtype=like.dtype, device=like.device)
    far = torch.sqrt(2 * drops).expand_as(near).clone()
    for _ in range(_BISECTIONS):
        middle = (near + far) / 2
        inside = log_density((mode + sides * middle).flatten(0, 1)).view_as(near) > peak - drops
        near, far = torch.where(inside, middle, near), torch.where(inside, far, middle)
    edges = torch.cat([torch.zeros_like(near[:1]), (near + far) / 2])
    nodes, weights = (
        torch.as_tensor(a, dtype=like.dtype, device=like.device) for a in np.polynomial.legendre.leggauss(_NODES)
    )
    node_shape = (1, _NODES) + (1,) * (like.ndim + 1)
    half = (edges[1:] - edges[:-1]).unsqueeze(1) / 2
    offset = edges[:-1].unsqueeze(1) + half * (1 + nodes.view(node_shape))  # (panels, nodes, side, ...)
    drop = (log_density((mode + sides * offset).flatten(0, 2)).view_as(offset) - peak).clamp_max(0.0)
    mass = (drop.exp() * half * weights.view(node_shape)).sum((0, 1, 2))
    # Where h is so large that its rounding exceeds the drops the panels are empty, and the peak alone is the answer to rounding.
    total = peak + torch.where(mass > 0, mass, 1.0).log()
    return torch.where(peak == -torch.inf, peak, total)  # an integrand that underflows everywhere
