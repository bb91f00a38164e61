r"""Attention heads with one output and the logistic loss, with exact gradients: one softmax head, or H heads with any map.

$$ f(X) = \kappa \sum_{h=1}^H \sum_t w_t(Xp_h)\, v_h\cdot x_t, \qquad
   L = \frac1n \sum_i \log\!\left(1 + e^{-y_i f_i}\right). $$

With $H = 1$, $\kappa = 1$ and $w = \mathrm{softmax}$ this is the model of arXiv 2410.07746 (the mean over n is its public code's
convention); heads, maps and the output scale $\kappa$ are this book's. Gradients: derived in the theory chapters.
Shapes: tokens (R, n, T, m), labels (R, n); one head: v and p (R, m); H heads: p (R, H, m) and v (R, H, m), or (R, 1, m) when the
heads share it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn.functional import softplus

from attnlib import checks
from attnlib.attention import AttentionMap
from attnlib.single_head.maps import SOFTMAX


@dataclass(frozen=True)
class Forward:
    """What the heads compute: logits, weights and token values v . x_t (R, n, T), or (R, H, n, T); output f (R, n).

    Values of a shared v are (R, 1, n, T).
    """

    logits: torch.Tensor
    attention: torch.Tensor
    values: torch.Tensor
    output: torch.Tensor


@checks.checked
def forward(
    tokens: torch.Tensor, v: torch.Tensor, p: torch.Tensor, *, attention_map: AttentionMap = SOFTMAX, output_scale: float = 1.0
) -> Forward:  # fmt: skip
    r"""Logits, attention, values and output of one head, or of H heads with one output.

    $$ f(X) = \kappa \sum_{h=1}^H \sum_t w_t(Xp_h)\, v_h\cdot x_t $$

    Args:
        tokens: (R, n, T, m), float.
        v: values (R, m); of H heads (R, H, m), or (R, 1, m) when they share it. Dtype and device as the tokens'.
        p: queries (R, m), or (R, H, m).
        attention_map: w, one of `attnlib.single_head.maps`.
        output_scale: $\kappa$.

    Returns:
        the output f (R, n) with all that leads to it.

    Raises:
        ValueError: shapes, dtypes or devices do not fit each other, or the map cannot take T tokens.

    Source:
        the model of arXiv 2410.07746 for $H = 1$, $\kappa = 1$ and softmax; heads, maps and $\kappa$ are this book's.

    Example:
        >>> one = forward(torch.randn(2, 5, 3, 7), torch.randn(2, 7), torch.zeros(2, 7))
        >>> one.output.shape, one.attention[0, 0]
        (torch.Size([2, 5]), tensor([0.3333, 0.3333, 0.3333]))
    """
    _check(tokens, v, p, attention_map)
    scale = checks.finite_number("output_scale", output_scale)
    return evaluate(tokens, v, p, attention_map=attention_map, output_scale=scale)


def _check(tokens: torch.Tensor, v: torch.Tensor, p: torch.Tensor, attention_map: AttentionMap) -> None:
    several = isinstance(p, torch.Tensor) and p.ndim == 3
    shared = several and isinstance(v, torch.Tensor) and v.shape[1:-1] == (1,)
    axes = ("R H m", "R S m" if shared else "R H m") if several else ("R m", "R m")
    checks.fitting({"tokens": tokens, "v": v, "p": p}, tokens, tokens="R n T m", p=axes[0], v=axes[1])
    attention_map.check_tokens(tokens.shape[2])


def evaluate(
    tokens: torch.Tensor, v: torch.Tensor, p: torch.Tensor, attention_map: AttentionMap = SOFTMAX, output_scale: float = 1.0
) -> Forward:  # fmt: skip
    """`forward` without its checks, for the many steps of a training whose arguments have been checked."""
    runs, n, T, m = tokens.shape
    heads = p.shape[1:-1]
    # All scores in one pass over the tokens: reading them from memory is what takes the time.
    columns = torch.cat([p.view(runs, -1, m), v.view(runs, -1, m)], dim=1).mT.contiguous()
    scores = torch.matmul(tokens.flatten(1, 2), columns).unflatten(1, (n, T)).movedim(-1, 1)  # (R, H + Hv, n, T)
    # Logits x_t . p_h, then token values v_h . x_t.
    count = heads[0] if heads else 1
    logits, values = scores[:, :count], scores[:, count:]
    if not heads:
        logits, values = logits[:, 0], values[:, 0]
    # Weights over the tokens of a sample; the output is the weighted mean of the values, summed over heads.
    attention = attention_map.weights(logits)
    output = (attention * values).sum(-1)
    if heads:
        output = output.sum(1)
    return Forward(logits, attention, values, output if output_scale == 1 else output_scale * output)


def loss(output: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Mean logistic loss (R,) of outputs (R, n): softplus(-y f), which does not overflow."""
    return softplus(-labels * output).mean(-1)


def pulls(output: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    r"""Derivative of the mean loss by the outputs, $-\frac1n y_i\,\sigma(-y_if_i)$: (R, n)."""
    return -labels * torch.sigmoid(-labels * output) / labels.shape[-1]


def output_gradients(
    pull: torch.Tensor, out: Forward, attention_map: AttentionMap = SOFTMAX, output_scale: float = 1.0
) -> tuple[torch.Tensor, torch.Tensor]:
    r"""Weights of the tokens in both gradients, with the shapes of `out.values` and `out.attention`.

    $\partial L/\partial v_h = \sum_{i,t} a_{iht} x_{it}$ with $a = \kappa\,\ell'_i\, w$, and $\partial L/\partial p_h = \sum_{i,t}
    b_{iht} x_{it}$ with $b = \kappa\,\ell'_i\, J^\top (v\cdot x)$; `pull` is $\ell'$ (R, n).
    """
    # kappa l'_i, one number per sample, for every head and token.
    if output_scale != 1:
        pull = output_scale * pull
    pull = (pull if out.attention.ndim == 3 else pull.unsqueeze(1)).unsqueeze(-1)
    # For v: the weights themselves, summed over the heads if they share v.
    for_v = pull * out.attention
    if for_v.ndim == 4 and out.values.shape[1] != for_v.shape[1]:
        for_v = for_v.sum(1, keepdim=True)
    # For p: back through the map, J' (v . x); for softmax this is s_t (v . x_t - f).
    values = out.values.expand_as(out.attention)
    return for_v, pull * attention_map.pullback(out.logits, out.attention, values)


@checks.checked
def gradients(
    tokens: torch.Tensor, labels: torch.Tensor, v: torch.Tensor, p: torch.Tensor, *, attention_map: AttentionMap = SOFTMAX,
    output_scale: float = 1.0, weights: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, Forward]:  # fmt: skip
    r"""Exact gradients of the mean logistic loss $L = \frac1n \sum_i \log(1 + e^{-y_i f_i})$.

    For one softmax head, with $g_i = 1/(1+e^{y_i f_i})$:

    $$ \nabla_v L = -\frac1n \sum_i g_i y_i \sum_t s_{it} x_{it}, \qquad
       \nabla_p L = -\frac1n \sum_i g_i y_i \sum_t s_{it} (v\cdot x_{it} - f_i)\, x_{it} . $$

    Args:
        tokens: (R, n, T, m), float.
        labels: (R, n), +1 or -1 in the tokens' dtype.
        v: values, shapes as in `forward`.
        p: queries, shapes as in `forward`.
        attention_map: one of `attnlib.single_head.maps`.
        output_scale: $\kappa$ of `forward`.
        weights: (R, n), how much each sample counts in the mean (n/B in a mini-batch of B, 0 outside); all 1 when left out.

    Returns:
        the gradient in v and the gradient in p, with the shapes of v and p, and what `forward` returned.

    Raises:
        ValueError: shapes, dtypes or devices do not fit each other, or labels are not +1 or -1.

    Source:
        derived in `book/single_head_theory`; the mean over n is the convention of the public code of arXiv 2410.07746.

    Example:
        >>> sample = SignalNoiseLaw(n=20, d=400, signal_norm=10.0).draw(seed=0, runs=3)
        >>> for_v, for_p, _ = gradients(sample.tokens, sample.labels, torch.zeros(3, 22).double(), torch.zeros(3, 22).double())
        >>> for_v.shape, float(for_p.abs().max())  # p does not move while v is zero
        (torch.Size([3, 22]), 0.0)
    """
    _check(tokens, v, p, attention_map)
    scale = checks.finite_number("output_scale", output_scale)
    checks.signs("labels", labels, tuple(tokens.shape[:2]), like=tokens)
    if weights is not None:
        checks.tensor("weights", weights, tuple(tokens.shape[:2]), like=tokens)
    out = evaluate(tokens, v, p, attention_map=attention_map, output_scale=scale)
    in_v, in_p = gradients_at(
        out, tokens, labels, v, p, attention_map=attention_map, output_scale=scale, weights=weights
    )
    return in_v, in_p, out


def gradients_at(
    out: Forward, tokens: torch.Tensor, labels: torch.Tensor, v: torch.Tensor, p: torch.Tensor,
    attention_map: AttentionMap = SOFTMAX, output_scale: float = 1.0, weights: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """The gradients in v and p of `gradients`, from what the heads compute there: `out`, as `evaluate` gives it. No checks."""
    # Derivative of the loss by each output; samples of a mini-batch count more, all others nothing.
    pull = pulls(out.output, labels)
    if weights is not None:
        pull = weights * pull
    # The weight of each token in both gradients, (R, H, n T), and one product with all tokens.
    parts = [
        part.flatten(2) if p.ndim == 3 else part.flatten(1).unsqueeze(1)
        for part in output_gradients(pull, out, attention_map, output_scale)
    ]
    grad = torch.matmul(torch.cat(parts, dim=1), tokens.flatten(1, 2))
    count = parts[0].shape[1]
    return grad[:, :count].view_as(v), grad[:, count:].view_as(p)
