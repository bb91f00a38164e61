r"""Log-space quadrature of a log-concave integrand, correct at $10^{-16000}$ as at $10^{-1}$.

$I = \int e^{h(t)} dt$ with $h$ concave and $h'' \le -1$ (a standard normal density times a log-concave factor). Concavity gives
everything: one mode, found by bisection on $h'$; on either side the point where $h$ has fallen by $\ell$ lies within
$\sqrt{2\ell}$, found by bisection on $h$. Gauss-Lobatto panels between such level points follow the integrand however narrow or
lopsided it is; a panel that a polynomial does not follow, because a wall stands at its end, is halved until it does. Nothing is
cut at a fixed distance: mass that sits 200 standard deviations away is found where it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from attnlib.arrays import Floats

# Panels end where h has dropped by these amounts (in nats). The first ones resolve a kink next to the mode; e^-42 is below rounding.
_DROPS = (1e-6, 1e-4, 1e-2, 0.1, 0.5, 1.5, 4.0, 8.0, 14.0, 22.0, 32.0, 42.0)
_NODES = 16
_BISECTIONS = 60
_DOUBLINGS = 1100
_HALVINGS = 40
# A panel is halved while its last two Legendre coefficients exceed this share of the integral, or of its rounding.
_TOLERANCE = 1e-12
_ROUNDINGS = 16


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
    return sign * far  # where rounding makes the slope a step, it is the finite side of the density


def _level_points(
    log_density: Callable[[torch.Tensor], torch.Tensor], mode: torch.Tensor, peak: torch.Tensor
) -> torch.Tensor:
    """(len(_DROPS) + 1, 2, R): distances from the mode, left and right, where h has fallen by 0 and by each of `_DROPS`."""
    drops = torch.tensor(_DROPS, dtype=mode.dtype, device=mode.device)[:, None, None]
    sides = torch.tensor([-1.0, 1.0], dtype=mode.dtype, device=mode.device)[:, None]
    near = mode.new_zeros((len(_DROPS), 2, len(mode)))
    far = torch.sqrt(2 * drops).expand_as(near).clone()
    for _ in range(_BISECTIONS):
        middle = (near + far) / 2
        inside = log_density(mode + sides * middle) > peak - drops
        near, far = torch.where(inside, middle, near), torch.where(inside, far, middle)
    return torch.cat([torch.zeros_like(near[:1]), (near + far) / 2])


def lobatto(count: int) -> tuple[Floats, Floats, Floats]:
    """Gauss-Lobatto rule on [-1, 1]: nodes (count,), both ends among them, weights (count,), and rows (2, count) that make the last
    two Legendre coefficients out of values at the nodes. Exact for polynomials of degree 2 count - 3."""
    legendre = np.polynomial.legendre.Legendre.basis(count - 1)
    inner = np.sort(legendre.deriv().roots().real)
    nodes = np.concatenate([[-1.0], (inner - inner[::-1]) / 2, [1.0]])
    weights = 2 / (count * (count - 1) * legendre(nodes) ** 2)
    last = np.polynomial.legendre.legvander(nodes, count - 1)[:, -2:]
    rows = last * weights[:, None]
    return nodes, weights, (rows / (last * rows).sum(0)).T.copy()


def log_integral(
    log_density: Callable[..., torch.Tensor],
    slope: Callable[..., torch.Tensor],
    parameters: Sequence[torch.Tensor],
    rounding: Callable[..., torch.Tensor],
) -> torch.Tensor:
    """log of the integral of exp(log_density) over the real line, one per entry of the parameters.

    Args:
        log_density: h(t, *parameters), concave with h'' <= -1. It is called with the parameters, or with some of their entries,
            and any t that broadcasts against them.
        slope: h', or any decreasing function with the same sign, of the same arguments.
        parameters: vectors (R,) of one dtype and device, which the result has.
        rounding: of the same arguments, how many units of rounding h is off by; halving stops there.

    Relative error about 1e-12 of the integral, or the rounding of h (compared with 30-digit mpmath in the tests).
    """
    mode = _mode(lambda t: slope(t, *parameters), parameters[0])
    peak = log_density(mode, *parameters)
    epsilon = torch.finfo(mode.dtype).eps
    tolerance = (_ROUNDINGS * epsilon * rounding(mode, *parameters)).clamp_min(max(_TOLERANCE, _ROUNDINGS * epsilon))
    edges = _level_points(lambda t: log_density(t, *parameters), mode, peak)
    # Both ends of a panel are nodes, so a steep wall just inside an end is not missed.
    nodes, weights, rows = (torch.from_numpy(a).to(mode) for a in lobatto(_NODES))
    # A flat list of panels: the integral it belongs to, its start, and half its length (negative on the left).
    whose = torch.arange(len(mode), device=mode.device).expand_as(edges[1:]).flatten()
    side = torch.tensor([-1.0, 1.0], dtype=mode.dtype, device=mode.device)[:, None]
    start, half = (side * edges[:-1]).flatten(), (side * (edges[1:] - edges[:-1]) / 2).flatten()
    total, size = torch.zeros_like(mode), None
    for round_ in range(_HALVINGS + 1):
        offset = start + half * (1 + nodes[:, None])
        drop = log_density(mode[whose] + offset, *(p[whose] for p in parameters)) - peak[whose]
        values = drop.clamp_max(0.0).exp()
        mass = half.abs() * (weights @ values)
        size = torch.zeros_like(mode).index_add(0, whose, mass) if size is None else size
        rough = 2 * half.abs() * (rows @ values).abs().sum(0)
        split = (rough > tolerance[whose] * size[whose]) & (round_ < _HALVINGS)
        total.index_add_(0, whose[~split], mass[~split])
        if not split.any():
            break
        whose, start, half = whose[split], start[split], half[split] / 2
        whose, start, half = whose.repeat(2), torch.cat([start, start + 2 * half]), half.repeat(2)
    # If h is so large that its rounding exceeds the drops, the panels are empty. Then the peak alone is correct to rounding.
    whole = peak + torch.where(total > 0, total, 1.0).log()
    return torch.where(peak == -torch.inf, peak, whole)  # an integrand that underflows everywhere
