r"""Layers on layers: a causal stack without residual stream, normalisation or MLP, read by a final linear map at the query.

$$ Z^{(0)} = (z_1, \dots, z_L, z_q), \qquad Z^{(k)} = \mathrm{layer}_k\big(Z^{(k-1)}\big), \qquad \hat y = W_{\text{final}}\, z_q^{(K)} $$

Every layer but a single one writes full-width tokens ($W_O^h$ is n x n). With *weight tying* one layer's weights serve all K layers. One
layer alone writes the answer itself, its final map is the identity, and it is exactly the query-only model. Source: authors' code
(whose own stack of several layers does not run).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from attnbook.in_context.causal import MASKS, LayerWeights, causal_layer, prompt_tokens
from attnlib import checks
from attnlib.in_context.circuits import Circuits
from attnlib.in_context.model import STARTS, require_even_heads
from attnlib.randomness import stream

_SMALL = {"small_id": 1e-6, "small_id_qk": 1e-4, "oppo_small_id": 1e-6}


@dataclass(frozen=True)
class StackWeights:
    """R runs of a stack. `layers` holds one entry per layer, or a single one if the weights are tied."""

    layers: tuple[LayerWeights, ...]
    final: torch.Tensor  # (R, outputs, written): W_final; the identity for one layer
    depth: int
    mask: str = "strict"

    @property
    def tied(self) -> bool:
        return self.depth > len(self.layers)

    @property
    def runs(self) -> int:
        return self.final.shape[0]

    @property
    def heads(self) -> int:
        return self.layers[0].query.shape[1]

    @property
    def width(self) -> int:
        """n, the width of a token."""
        return self.layers[0].query.shape[-1]

    @property
    def outputs(self) -> int:
        return self.final.shape[1]

    def layer(self, number: int) -> LayerWeights:
        """The weights of layer 0 ... depth - 1."""
        if not 0 <= number < self.depth:
            raise ValueError(f"number must be in 0 ... {self.depth - 1}; got {number}: layers are counted from 0")
        return self.layers[0 if self.tied else number]

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


@checks.checked
def initial_stack(
    d: int, heads: int, layers: int = 1, start: str = "random", *, outputs: int = 1, weight_tying: bool = False,
    mask: str = "strict", seed: int = 0, runs: int = 1, first_run: int = 0,
) -> StackWeights:  # fmt: skip
    r"""Weights of a stack before training, float64; tokens have the width n = d + `outputs`.

    Run r draws from the stream (seed, "start", r), layer after layer, each W_Q, W_K, W_V (uniform on ±1/sqrt(n)) and W_O
    (±1/sqrt(nH)) head by head, then W_final (±1/sqrt(n)). A single layer with one output has the numbers of `model.initial_weights`.
    The small starts replace matrices in every layer as there; where W_O writes a token, `small_id` makes it 10^-6 I too.

    Raises ValueError for an unknown start or mask, sizes below 1, odd heads with opposite starts, tying of a single layer.
    """
    for name, value in (("d", d), ("heads", heads), ("layers", layers), ("outputs", outputs), ("runs", runs)):
        checks.whole_number(name, value, at_least=1)
    checks.whole_number("first_run", first_run, at_least=0)
    checks.one_of("start", start, STARTS)
    checks.one_of("mask", mask, MASKS)
    if start == "oppo_small_id":
        require_even_heads(heads)
    if weight_tying and layers == 1:
        raise ValueError("layers must be >= 2 with weight_tying=True; got 1: a single layer has nothing to share with")
    n, own = d + outputs, 1 if weight_tying else layers
    written = outputs if layers == 1 else n
    count = own * heads * (3 * n * n + written * n) + (0 if layers == 1 else outputs * n)
    each = [stream(seed, "start", run).uniform(-1, 1, count) for run in range(first_run, first_run + runs)]
    free = torch.stack([torch.as_tensor(values) for values in each]) / math.sqrt(n)
    per_layer = heads * (3 * n * n + written * n)
    built = tuple(
        _layer(free[:, k * per_layer : (k + 1) * per_layer], heads, n, written, start, into_token=layers > 1)
        for k in range(own)
    )
    if layers == 1:
        final = torch.eye(outputs, dtype=torch.float64).expand(runs, outputs, outputs).contiguous()
    else:
        final = free[:, own * per_layer :].reshape(runs, outputs, n).contiguous()
    return StackWeights(built, final, layers, mask)


def _layer(free: torch.Tensor, heads: int, n: int, written: int, start: str, *, into_token: bool) -> LayerWeights:
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


def predict_stack(stack: StackWeights, prompts: object) -> torch.Tensor:
    """Predictions (R, B, outputs). Prompts are shared by all runs (B, ...) or one set a run (R, B, ...)."""
    return run_stack(stack, prompt_tokens(prompts).to(stack.final))


def run_stack(stack: StackWeights, tokens: torch.Tensor) -> torch.Tensor:
    """Predictions (R, B, outputs) of the tokens of `causal.prompt_tokens`, (B, T, n) or (R, B, T, n), in the stack's dtype."""
    for number in range(stack.depth):
        tokens = causal_layer(stack.layer(number), tokens, stack.mask, last_only=number == stack.depth - 1)
    return torch.einsum("row,rbtw->rbo", stack.final, tokens)


@dataclass(frozen=True)
class LayerCircuits:
    """Circuits of the H heads of one layer, and what the final map reads of them."""

    key_query: torch.Tensor  # (R, H, n, n): M, key index first
    output_value: torch.Tensor  # (R, H, written, n): W_O W_V
    read_out: torch.Tensor  # (R, H, outputs, n): W_final W_O W_V, the same as output_value for one layer

    def circuits(self, output: int = 0) -> Circuits:
        """The pair (M, V) with V the row of one output: omega and mu are the authors' dynamics of a layer."""
        return Circuits(self.key_query, self.read_out[..., output, :])


def stack_circuits(stack: StackWeights) -> tuple[LayerCircuits, ...]:
    """One entry per layer, each with its heads: `stack_circuits(s)[layer].key_query[run, head]`. Tied layers are listed each time."""
    found = []
    for number in range(stack.depth):
        layer = stack.layer(number)
        written = layer.output_value
        found.append(LayerCircuits(layer.key_query, written, torch.einsum("row,rhwn->rhon", stack.final, written)))
    return tuple(found)


def stack_of_circuits(key_query: torch.Tensor, output_value: torch.Tensor) -> StackWeights:
    """One layer with given circuits: M (R, H, n, n) and V (R, H, outputs, n). Its factors are not unique: W_K = W_V = I."""
    M = checks.tensor("key_query", key_query, ("R", "H", "n", "n"))
    R, H, n, _ = M.shape
    V = checks.tensor("output_value", output_value, (R, H, "outputs", n), like=M)
    eye = torch.eye(n, dtype=M.dtype).expand(R, H, n, n)
    final = torch.eye(V.shape[2], dtype=M.dtype).expand(R, -1, -1)
    return StackWeights((LayerWeights(M * math.sqrt(n), eye, eye, V),), final, 1)
