r"""Softmax and alternatives to it: functions that turn logits $z \in R^T$ into weights $w \in R^T$, and the transpose of its derivative.

| map | $w_t$ | Jacobian |
|---|---|---|
| softmax at temperature $\tau$ | $\propto e^{z_t/\tau}$ | $(\mathrm{diag}(w) - ww^\top)/\tau$ |
| sparsemax ($\alpha = 2$) | $[z_t - \theta]_+$ | $\mathrm{diag}(s) - ss^\top/\sum s$, $s = w^{2-\alpha}$ where $w > 0$ |
| entmax-1.5 ($\alpha = 1.5$) | $[z_t/2 - \theta]_+^2$ | the same |
| hardmax | all on the largest, shared at a tie | 0 |
| linearised softmax | $\frac1T(1 + z_t - \bar z)$ | $\frac1T(I - \frac1T 11^\top)$ |
| sigmoid, half plus, linear, ReLU | $\sigma(z_t)$, $\frac12 + z_t$, $z_t$, $[z_t]_+$ | diagonal |
| windows of width $W$ | the map inside each of the $T/W$ windows, over $T/W$ | block diagonal |

*Normalised* maps have weights that sum to one and ignore a shift of the logits; at $z = 0$ their Jacobian is
$c\,(I - \frac1T 11^\top)$, that of the others $c\,I$: `slope` returns $c$. Source of the Jacobians: standard (alpha-entmax maximises
$w\cdot z$ plus Tsallis entropy); checked by finite differences.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from attnlib import checks
from attnlib.attention import AttentionMap, attention_weights

Tensor = torch.Tensor


def softmax(temperature: float = 1.0) -> AttentionMap:
    """Softmax of z / temperature. Raises ValueError unless temperature >= 1e-308: below, its inverse is infinite."""
    if checks.positive_number("temperature", temperature) < 1e-308:
        raise ValueError(f"temperature must be at least 1e-308; got {temperature}: its limit is HARDMAX")
    scale = 1 / temperature

    def pullback(logits: Tensor, weights: Tensor, upstream: Tensor) -> Tensor:
        return scale * weights * (upstream - (weights * upstream).sum(-1, keepdim=True))

    def cooled(logits: Tensor) -> Tensor:  # the largest is taken off first: its product with the scale may be infinite
        return attention_weights((logits - logits.amax(-1, keepdim=True)) * scale)

    weights = attention_weights if scale == 1 else cooled
    return AttentionMap("softmax", weights, pullback, lambda T: scale / T, setting=temperature)


def _entmax_pullback(power: float) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """J = diag(s) - s s' / sum s with s = w^power on the support; symmetric."""

    def pullback(logits: Tensor, weights: Tensor, upstream: Tensor) -> Tensor:
        s = torch.where(weights > 0, weights**power, torch.zeros_like(weights))
        return s * (upstream - (s * upstream).sum(-1, keepdim=True) / s.sum(-1, keepdim=True))

    return pullback


def _sparsemax_weights(logits: Tensor) -> Tensor:
    """The Euclidean projection on the simplex: sort, find the largest support whose threshold its members exceed."""
    shifted = (logits - logits.amax(-1, keepdim=True)).clamp_min(
        -1
    )  # further below no token has a weight, and sums would overflow
    ordered, _ = torch.sort(shifted, dim=-1, descending=True)
    count = torch.arange(1, logits.shape[-1] + 1, dtype=logits.dtype, device=logits.device)
    threshold = (ordered.cumsum(-1) - 1) / count
    support = (ordered > threshold).sum(-1, keepdim=True)
    return (shifted - threshold.gather(-1, support - 1)).clamp_min(0)


def _entmax15_weights(logits: Tensor) -> Tensor:
    """w = [z/2 - theta]_+^2 with theta from the quadratic equation of the right support size."""
    half = (logits - logits.amax(-1, keepdim=True)) / 2
    ordered, _ = torch.sort(half, dim=-1, descending=True)
    count = torch.arange(1, logits.shape[-1] + 1, dtype=logits.dtype, device=logits.device)
    mean = ordered.cumsum(-1) / count
    variance = (ordered.square().cumsum(-1) / count - mean.square()).clamp_min(0)
    threshold = mean - ((1 / count) - variance).clamp_min(0).sqrt()
    support = (ordered > threshold).sum(-1, keepdim=True)
    return (half - threshold.gather(-1, support - 1)).clamp_min(0).square()


def _hardmax_weights(logits: Tensor) -> Tensor:
    largest = (logits == logits.amax(-1, keepdim=True)).to(logits.dtype)
    return largest / largest.sum(-1, keepdim=True)


def _linearised_weights(logits: Tensor) -> Tensor:
    return (1 + logits - logits.mean(-1, keepdim=True)) / logits.shape[-1]


def _linearised_pullback(logits: Tensor, weights: Tensor, upstream: Tensor) -> Tensor:
    return (upstream - upstream.mean(-1, keepdim=True)) / logits.shape[-1]


SOFTMAX = softmax()
SPARSEMAX = AttentionMap("sparsemax", _sparsemax_weights, _entmax_pullback(0.0), lambda T: 1.0)
ENTMAX15 = AttentionMap("entmax-1.5", _entmax15_weights, _entmax_pullback(0.5), lambda T: T**-0.5)
HARDMAX = AttentionMap("hardmax", _hardmax_weights, lambda z, w, up: torch.zeros_like(up), lambda T: 0.0)
LINEARISED = AttentionMap("linearised softmax", _linearised_weights, _linearised_pullback, lambda T: 1 / T)
SIGMOID = AttentionMap("sigmoid", torch.sigmoid, lambda z, w, up: w * (1 - w) * up, lambda T: 0.25, normalised=False)
HALF_PLUS = AttentionMap("half plus", lambda z: 0.5 + z, lambda z, w, up: up, lambda T: 1.0, normalised=False)
LINEAR = AttentionMap("linear", lambda z: z, lambda z, w, up: up, lambda T: 1.0, normalised=False)


def relu(derivative_at_zero: float | None = None) -> AttentionMap:
    """ReLU weights. At 0 there is no derivative: training that starts there is refused unless one is chosen, in [0, 1].

    Raises ValueError for a derivative outside [0, 1].
    """
    at_zero = 0.0 if derivative_at_zero is None else checks.probability("derivative_at_zero", derivative_at_zero)

    def pullback(logits: Tensor, weights: Tensor, upstream: Tensor) -> Tensor:
        return torch.heaviside(logits, logits.new_tensor(at_zero)) * upstream

    return AttentionMap(
        "ReLU", lambda z: z.clamp_min(0), pullback, lambda T: at_zero, normalised=False,
        differentiable_at_zero=derivative_at_zero is not None, setting=at_zero,
    )  # fmt: skip


@checks.checked
def windows(inner: AttentionMap, width: int) -> AttentionMap:
    """Local attention: `inner` inside consecutive windows of `width` tokens, averaged over the T / width windows.

    Width 1 is the mean of the tokens (no attention), width T is `inner`. Raises ValueError for a width below 1 or a map that has
    windows already; a width that does not divide T is refused when the map is used.
    """
    width = checks.whole_number("width", width, at_least=1)
    if inner.window is not None:
        raise ValueError(f"inner must be a map without windows; got {inner.name!r}")

    def share(tokens: int) -> float:
        chosen.check_tokens(tokens)
        return width / tokens

    def weights(logits: Tensor) -> Tensor:
        part = share(logits.shape[-1])
        return (part * inner.weights(logits.unflatten(-1, (-1, width)))).flatten(-2)

    def pullback(logits: Tensor, weights: Tensor, upstream: Tensor) -> Tensor:
        part = share(logits.shape[-1])
        blocks = (x.unflatten(-1, (-1, width)) for x in (logits, weights / part, upstream))
        return part * inner.pullback(*blocks).flatten(-2)

    chosen = AttentionMap(
        inner.kind, weights, pullback, lambda T: share(T) * inner.slope(width),
        normalised=inner.normalised, differentiable_at_zero=inner.differentiable_at_zero, setting=inner.setting,
        window=width,
    )  # fmt: skip
    return chosen
