r"""From the parameters of a trained head to the ball of its clean error: the five numbers of each class, without a rounding on the way.

The parameters v, p and the signals are floats, which stand for themselves. In reduced coordinates the noise avoids the first two of
them, and with the other coordinates $v', p'$ and the noise's standard deviation $\sigma$

$$ a_k = p\cdot\mu_k, \quad V_k = s_k\, v\cdot\mu_k, \quad \omega = \sigma|p'|, \quad c_k = s_k\sigma\frac{v'\cdot p'}{|p'|}, \quad
   \tau = \sigma\sqrt{|v'|^2-\frac{(v'\cdot p')^2}{|p'|^2}} . $$
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from attnbook.certified.certificate import ball, precision
from attnbook.certified.clean_error import BITS, enclose, log10_of_classes
from attnlib.single_head.law import Sample

if TYPE_CHECKING:
    from flint import arb


@dataclass(frozen=True)
class ClassOfHead:
    """v, p and the signal of one class, entry by entry, and which coordinates the noise avoids."""

    v: tuple[float, ...]
    p: tuple[float, ...]
    signal: tuple[float, ...]
    label: int  # s_k
    avoided: int  # so many coordinates come first
    noise_std: float

    def balls(self) -> tuple[arb, ...]:
        """logit, V, omega, c, tau."""
        sigma, label = ball(self.noise_std), ball(self.label)
        v, p = self.v[self.avoided :], self.p[self.avoided :]
        along, square_p, square_v = _dot(v, p), _dot(p, p), _dot(v, v)
        length = square_p.sqrt()
        rest = (square_v - along * along / square_p).sqrt()
        return (
            _dot(self.p, self.signal), label * _dot(self.v, self.signal), sigma * length, label * sigma * along / length, sigma * rest,
        )  # fmt: skip


def classes_of(v: torch.Tensor, p: torch.Tensor, sample: Sample, run: int) -> tuple[ClassOfHead, ClassOfHead]:
    """The two classes of run `run`. Raises ValueError where the noise avoids no coordinates, or p has none left: then omega is 0."""
    units = sample.avoided[run]
    count = units.shape[0]
    if not torch.equal(units, torch.eye(count, units.shape[1], dtype=units.dtype)):
        raise ValueError(
            "noise must avoid the first coordinates: take a sample in reduced coordinates, of orthogonal signals"
        )
    if not p[run, count:].any():
        raise ValueError(f"p must have a part in the noise's coordinates; run {run} has none")

    def of(k: int) -> ClassOfHead:
        parts = (tuple(map(float, x)) for x in (v[run], p[run], sample.signals[run, k]))
        return ClassOfHead(*parts, 1 - 2 * k, count, sample.law.noise_std)

    return of(0), of(1)


def log10_clean_error_ball(v: torch.Tensor, p: torch.Tensor, sample: Sample, run: int) -> arb:
    """log10 of the clean error of one run, as a ball, for classes of probability one half."""
    if sample.law.class_probability != 0.5:
        raise ValueError(f"class_probability must be 0.5 here; got {sample.law.class_probability}")
    first, second = (enclose(head).log_error for head in classes_of(v, p, sample, run))
    with precision(BITS[0]):
        return log10_of_classes(first, second)


def _dot(x: Sequence[float], y: Sequence[float]) -> Any:
    return sum((ball(a) * ball(b) for a, b in zip(x, y, strict=True)), ball(0))
