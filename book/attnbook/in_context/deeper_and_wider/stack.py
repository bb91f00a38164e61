r"""Causal layers, and stacks of them without residual stream, normalisation or MLP, read by a final linear map at the query.

One layer over all tokens $(z_1,\dots,z_L,z_q)$: every token looks back, and the query's output is read at the end.

$$ o_t = \sum_h W_O^h W_V^h \sum_{s} z_s\,p^h_{ts}, \qquad p^h_{t\cdot} = \mathrm{softmax}_{s \in A_t}\big(z_s^\top M_h z_t\big) $$

Two masks are in use. `"strict"`, $A_t=\{s<t\}$: a token never looks at itself, as in the authors' notebook; the first token then has nobody
to look at, and its output is zero. `"inclusive"`, $A_t=\{s\le t\}$: as in their newest code, where the query looks at itself too. There is
one softmax, over the allowed tokens only. With the strict mask the last output *is* the query-only model of `model.attend`.

$$ Z^{(0)} = (z_1, \dots, z_L, z_q), \qquad Z^{(k)} = \mathrm{layer}_k\big(Z^{(k-1)}\big), \qquad \hat y = W_{\text{final}}\, z_q^{(K)} $$

Every layer but a single one writes full-width tokens ($W_O^h$ is n x n). With *weight tying* one layer's weights serve all K layers. One
layer alone writes the answer itself, its final map is the identity, and it is exactly the query-only model. Source: authors' code for the
layer, its masks and the stack (their own stack of several layers does not run); what a layer must satisfy is derived in the theory chapter
of Part III.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from attnlib.attention import attention_weights
from attnlib.randomness import stream

_SMALL = {"small_id": 1e-6, "small_id_qk": 1e-4, "oppo_small_id": 1e-6}


# --- one layer -------------------------------------------------------------------------------------------------------------


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


def prompt_tokens(prompts) -> torch.Tensor:
    """(..., B, L + 1, n): the examples and then the query token, of any prompts with `context` and `query_token`."""
    return torch.cat([prompts.context, prompts.query_token], dim=-2)


def causal_attention(scores: torch.Tensor) -> torch.Tensor:
    """Weights of scores (..., T, T) with the strict mask, row = the token that looks: softmax over the tokens before it.

    Row 0 is zero: there is nobody to look at, and no weight leaks to the future.
    """
    # Token t + 1 sees tokens 0 ... t: the same triangle, one row down and one column short.
    seen = scores[..., 1:, :-1]
    return torch.nn.functional.pad(attention_weights(seen + _future(seen)), (0, 1, 1, 0))


def causal_layer(layer: LayerWeights, tokens: torch.Tensor, mask: str = "strict", *, last_only=False) -> torch.Tensor:
    """Outputs (R, B, T, written) of the layer.

    Args:
        tokens: (B, T, n), shared by all runs, or (R, B, T, n).
        mask: "strict" or "inclusive".
        last_only: the last token's output alone, (R, B, 1, written): a T-th of the work, the same number.
    """
    z = tokens if tokens.ndim == 4 else tokens.unsqueeze(0)
    keys = z if mask == "inclusive" else z[..., :-1, :]  # with the strict mask nobody looks at the last token
    if last_only:
        return _look(layer, z[..., -1:, :], keys, masked=False)
    if mask == "inclusive":
        return _look(layer, z, keys, masked=True)
    # Token t + 1 sees tokens 0 ... t; token 0 sees nobody and writes zero.
    return torch.nn.functional.pad(_look(layer, z[..., 1:, :], keys, masked=True), (0, 0, 1, 0))


def _look(layer, looking, keys, *, masked):
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
    return written.unflatten(1, (B, T))


def _future(scores):
    """(T, T) to add to scores: -inf where the key comes after the token that looks."""
    T = scores.shape[-1]
    return torch.full((T, T), -math.inf, dtype=scores.dtype, device=scores.device).triu(1)


# --- a stack ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StackWeights:
    """R runs of a stack. `layers` holds one entry per layer, or a single one if the weights are tied."""

    layers: tuple[LayerWeights, ...]
    final: torch.Tensor  # (R, outputs, written): W_final; the identity for one layer
    depth: int
    mask: str = "strict"

    def layer(self, number: int) -> LayerWeights:
        """The weights of layer 0 ... depth - 1."""
        return self.layers[number % len(self.layers)]

    @property
    def trained(self) -> tuple[torch.Tensor, ...]:
        """The tensors that training changes: tied weights once, the final map only if there is more than one layer."""
        own = tuple(tensor for layer in self.layers for tensor in layer.tensors)
        return own if self.depth == 1 else (*own, self.final)

    def rebuilt(self, tensors: tuple[torch.Tensor, ...]) -> StackWeights:
        """The same stack with other `trained` tensors."""
        layers = tuple(LayerWeights(*tensors[4 * k : 4 * k + 4]) for k in range(len(self.layers)))
        final = self.final.to(tensors[0]) if self.depth == 1 else tensors[-1]
        return StackWeights(layers, final, self.depth, self.mask)

    def to(self, dtype: torch.dtype) -> StackWeights:
        return self.rebuilt(tuple(tensor.to(dtype) for tensor in self.trained))

    @property
    def circuits(self) -> tuple[torch.Tensor, torch.Tensor]:
        """M (R, layers, H, n, n), key index first, and W_O W_V (R, layers, H, written, n). Tied layers are listed each time."""
        layers = [self.layer(number) for number in range(self.depth)]
        return tuple(torch.stack([getattr(one, name) for one in layers], 1) for name in ("key_query", "output_value"))


def initial_stack(
    d, heads, layers=1, start="random", *, outputs=1, weight_tying=False, mask="strict", seed=0, runs=1, first_run=0
) -> StackWeights:
    r"""Weights of a stack before training, float64; tokens have the width n = d + `outputs`.

    Run r draws from the stream (seed, "start", r), layer after layer, each W_Q, W_K, W_V (uniform on ±1/sqrt(n)) and W_O
    (±1/sqrt(nH)) head by head, then W_final (±1/sqrt(n)). A single layer with one output has the numbers of `model.initial_weights`.
    The small starts replace matrices in every layer as there; where W_O writes a token, `small_id` makes it 10^-6 I too.
    """
    n, own = d + outputs, 1 if weight_tying else layers
    written = outputs if layers == 1 else n
    per_layer = heads * (3 * n * n + written * n)
    count = own * per_layer + (0 if layers == 1 else outputs * n)
    each = [stream(seed, "start", run).uniform(-1, 1, count) for run in range(first_run, first_run + runs)]
    free = torch.stack([torch.as_tensor(values) for values in each]) / math.sqrt(n)
    built = tuple(
        _layer(free[:, k * per_layer : (k + 1) * per_layer], heads, n, written, start, into_token=layers > 1)
        for k in range(own)
    )
    if layers == 1:
        final = torch.eye(outputs, dtype=torch.float64).expand(runs, outputs, outputs).contiguous()
    else:
        final = free[:, own * per_layer :].reshape(runs, outputs, n).contiguous()
    return StackWeights(built, final, layers, mask)


def _layer(free, heads, n, written, start, *, into_token):
    free = free.reshape(len(free), heads, -1)
    query, key, value = free[..., : 3 * n * n].unflatten(-1, (3, n, n)).unbind(2)
    output = free[..., 3 * n * n :].unflatten(-1, (written, n)) / math.sqrt(heads)
    if start != "random":
        small = _SMALL[start] * torch.eye(n, dtype=torch.float64).expand(len(free), heads, n, n)
        sign = torch.ones(heads, dtype=torch.float64)
        if start == "oppo_small_id":
            sign[heads // 2 :] = -1  # of W_Q alone: if W_K changed sign too, the heads would not be opposite
        query, key = sign[:, None, None] * small, small
        if start == "small_id":
            value = small
            output = small if into_token else output
    return LayerWeights(*(tensor.clone().contiguous() for tensor in (query, key, value, output)))


def predict_stack(stack: StackWeights, prompts) -> torch.Tensor:
    """Predictions (R, B, outputs). Prompts are shared by all runs (B, ...) or one set a run (R, B, ...)."""
    return run_stack(stack, prompt_tokens(prompts).to(stack.final))


def run_stack(stack: StackWeights, tokens: torch.Tensor) -> torch.Tensor:
    """Predictions (R, B, outputs) of the tokens of `prompt_tokens`, (B, T, n) or (R, B, T, n), in the stack's dtype."""
    for number in range(stack.depth):
        tokens = causal_layer(stack.layer(number), tokens, stack.mask, last_only=number == stack.depth - 1)
    return torch.einsum("row,rbtw->rbo", stack.final, tokens)


def stack_of_circuits(M: torch.Tensor, V: torch.Tensor, final=None, mask="strict") -> StackWeights:
    """Layers with given circuits: M (R, H, n, n) and V (R, H, written, n) of one layer, or with an axis of layers after R.

    Their factors are not unique: W_K = W_V = I. `final` (R, outputs, written); None: the identity.
    """
    if M.ndim == 4:
        M, V = M[:, None], V[:, None]
    R, depth, H, n, _ = M.shape
    eye = torch.eye(n, dtype=M.dtype).expand(R, H, n, n)
    layers = tuple(LayerWeights(M[:, k] * n**0.5, eye, eye, V[:, k]) for k in range(depth))
    final = torch.eye(V.shape[3], dtype=M.dtype).expand(R, -1, -1) if final is None else final
    return StackWeights(layers, final, depth, mask)
