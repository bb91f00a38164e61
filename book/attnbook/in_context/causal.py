r"""One causal layer over all tokens $(z_1,\dots,z_L,z_q)$: every token looks back, and the query's output is read at the end.

$$ o_t = \sum_h W_O^h W_V^h \sum_{s} z_s\,p^h_{ts}, \qquad p^h_{t\cdot} = \mathrm{softmax}_{s \in A_t}\big(z_s^\top M_h z_t\big) $$

Two masks are in use. `"strict"`, $A_t=\{s<t\}$: a token never looks at itself, as in the authors' notebook; the first token then has nobody
to look at, and its output is zero. `"inclusive"`, $A_t=\{s\le t\}$: as in their newest code, where the query looks at itself too. There is
one softmax, over the allowed tokens only. With the strict mask the last output *is* the query-only model of `model.attend`.

Source: authors' code for the layer and its masks; what it must satisfy is derived in the theory chapter of Part III.
"""

import math
from dataclasses import dataclass
from typing import Protocol

import torch

from attnlib import checks
from attnlib.attention import attention_weights
from attnlib.in_context.model import HeadWeights

MASKS = ("strict", "inclusive")


@dataclass(frozen=True)
class LayerWeights:
    """R runs of H full-width heads that write tokens of any width (n in the middle of a stack). Matrices act from the left."""

    query: torch.Tensor  # (R, H, n, n)
    key: torch.Tensor  # (R, H, n, n)
    value: torch.Tensor  # (R, H, n, n)
    output: torch.Tensor  # (R, H, written, n): head h's part of W_O

    @property
    def key_query(self) -> torch.Tensor:
        """(R, H, n, n): M = W_K^T W_Q / sqrt(n), key index first."""
        return self.key.mT @ self.query / math.sqrt(self.query.shape[-1])

    @property
    def output_value(self) -> torch.Tensor:
        """(R, H, written, n): W_O W_V."""
        return self.output @ self.value

    @property
    def tensors(self) -> tuple[torch.Tensor, ...]:
        """The four tensors, in the order of the fields."""
        return self.query, self.key, self.value, self.output


def layer_of_heads(heads: HeadWeights) -> LayerWeights:
    """The query-only model's weights as a layer that writes one number. No copy."""
    return LayerWeights(heads.query, heads.key, heads.value, heads.output.unsqueeze(-2))


class HasTokens(Protocol):
    """Prompts of which a stack of layers can read: examples with their labels, and the query."""

    @property
    def context(self) -> torch.Tensor:
        """(..., B, L, n)."""

    @property
    def query_token(self) -> torch.Tensor:
        """(..., B, 1, n)."""


def prompt_tokens(prompts: HasTokens) -> torch.Tensor:
    """(..., B, L + 1, n): the examples and then the query token, of any prompts with `context` and `query_token`."""
    return torch.cat([prompts.context, prompts.query_token], dim=-2)


def causal_attention(scores: torch.Tensor) -> torch.Tensor:
    """Weights of scores (..., T, T) with the strict mask, row = the token that looks: softmax over the tokens before it.

    Row 0 is zero: there is nobody to look at, and no weight leaks to the future. Raises ValueError for scores that are not square.
    """
    T = scores.shape[-1]
    if scores.ndim < 2 or scores.shape[-2] != T:
        raise ValueError(f"scores must have shape (..., T, T), row = the token that looks; got {tuple(scores.shape)}")
    # Token t + 1 sees tokens 0 ... t: the same triangle, one row down and one column short.
    seen = scores[..., 1:, :-1]
    return torch.nn.functional.pad(attention_weights(seen + _future(seen)), (0, 1, 1, 0))


@checks.checked
def causal_layer(
    layer: LayerWeights, tokens: torch.Tensor, mask: str = "strict", *, last_only: bool = False
) -> torch.Tensor:
    """Outputs (R, B, T, written) of the layer.

    Args:
        tokens: (B, T, n), shared by all runs, or (R, B, T, n).
        mask: one of `MASKS`.
        last_only: the last token's output alone, (R, B, 1, written): a T-th of the work, the same number.

    Raises ValueError for another mask or tokens of another width.
    """
    checks.one_of("mask", mask, MASKS)
    n = layer.query.shape[-1]
    if tokens.ndim not in (3, 4) or tokens.shape[-1] != n:
        raise ValueError(f"tokens must have shape (B, T, {n}) or (R, B, T, {n}); got {tuple(tokens.shape)}")
    z = tokens if tokens.ndim == 4 else tokens.unsqueeze(0)
    keys = z if mask == "inclusive" else z[..., :-1, :]  # with the strict mask nobody looks at the last token
    if last_only:
        return _look(layer, z[..., -1:, :], keys, masked=False)
    if mask == "inclusive":
        return _look(layer, z, keys, masked=True)
    # Token t + 1 sees tokens 0 ... t; token 0 sees nobody and writes zero.
    return torch.nn.functional.pad(_look(layer, z[..., 1:, :], keys, masked=True), (0, 0, 1, 0))


def _look(layer: LayerWeights, looking: torch.Tensor, keys: torch.Tensor, *, masked: bool) -> torch.Tensor:
    """Outputs (R, B, T, written) of T tokens that look at keys. Heads lie next to tokens in memory, so that nothing is copied."""
    R, H, n, _ = layer.query.shape
    S, B, T = looking.shape[:3]  # S = 1 if the prompts are shared by the R runs, otherwise S = R
    directions = layer.key_query.flatten(1, 2)  # (R, H n, n)
    if S == 1:
        directions = directions.flatten(0, 1).unsqueeze(0)
    groups = R * H // S
    scores = (looking.flatten(1, 2) @ directions.mT).reshape(S, B, T * groups, n) @ keys.mT
    if masked:
        scores = (scores.unflatten(2, (T, groups)) + _future(keys.new_empty(T, T)).unsqueeze(1)).flatten(2, 3)
    mixed = (attention_weights(scores) @ keys).reshape(S, B * T, groups, n)
    if S < R:
        mixed = mixed.reshape(B * T, R, H, n).transpose(0, 1)
    written = mixed.reshape(R, B * T, H * n) @ layer.output_value.transpose(1, 2).flatten(2).mT
    outputs: torch.Tensor = written.unflatten(1, (B, T))
    return outputs


def _future(scores: torch.Tensor) -> torch.Tensor:
    """(T, T) to add to scores: -inf where the key comes after the token that looks."""
    T = scores.shape[-1]
    return torch.full((T, T), -math.inf, dtype=scores.dtype, device=scores.device).triu(1)
