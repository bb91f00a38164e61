r"""The model as written: H full-width heads of four matrices each. The query attends to the examples and not to itself.

$$ \hat y = \sum_{h=1}^H W_O^h W_V^h Z\,\mathrm{softmax}\!\Big(\frac{(W_K^h Z)^\top W_Q^h z_q}{\sqrt n}\Big), \qquad n = d + 1, \quad
   Z = (z_1, \dots, z_L) \in \mathbb R^{n\times L} $$

Each head has the full width n (not n/H), so there are H (3 n^2 + n) parameters; no biases. Source: authors' code. This module is the
readable reference; training merges the four matrices into two circuits (`circuits`), which changes no prediction.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from attnlib import checks, limits
from attnlib.attention import attention_logits, attention_output, attention_weights
from attnlib.in_context.law import Prompts
from attnlib.randomness import stream

STARTS = ("random", "small_id", "small_id_qk", "oppo_small_id")
_SMALL = {"small_id": 1e-6, "small_id_qk": 1e-4, "oppo_small_id": 1e-6}


@dataclass(frozen=True)
class HeadWeights:
    """The four matrices of H heads in R runs. They act on tokens from the left: the key of z is $W_K z$.

    Source:
        the authors' code for arXiv 2503.12734, where every head has the full width n = d + 1 and no biases.

    Example:
        >>> heads = initial_weights(d=5, heads=2, seed=0, runs=3)
        >>> heads.query.shape, heads.output.shape
        (torch.Size([3, 2, 6, 6]), torch.Size([3, 2, 6]))
    """

    query: torch.Tensor  # (R, H, n, n)
    key: torch.Tensor  # (R, H, n, n)
    value: torch.Tensor  # (R, H, n, n)
    output: torch.Tensor  # (R, H, n)

    def __post_init__(self) -> None:
        checks.fitting(vars(self), query="R H n n", key="R H n n", value="R H n n", output="R H n")

    @property
    def runs(self) -> int:
        """R, the number of runs."""
        return self.output.shape[0]

    @property
    def heads(self) -> int:
        """H, the number of heads."""
        return self.output.shape[1]

    @property
    def d(self) -> int:
        """Number of covariates."""
        return self.output.shape[2] - 1

    def flat(self) -> torch.Tensor:
        """(R, H, 3 n^2 + n): per head W_Q, W_K, W_V row by row, then W_O. A copy; the layout of the kernels."""
        return torch.cat([*(w.flatten(2) for w in (self.query, self.key, self.value)), self.output], dim=2)

    @staticmethod
    @checks.checked
    def from_flat(values: torch.Tensor) -> HeadWeights:
        """The inverse of `flat`: views into (R, H, 3 n^2 + n). Raises ValueError for another last axis."""
        size = values.shape[-1]
        n = round((math.sqrt(1 + 12 * size) - 1) / 6)
        if values.ndim != 3 or n < 2 or 3 * n * n + n != size:
            raise ValueError(f"flat weights must have shape (R, H, 3 n^2 + n) with n >= 2; got {tuple(values.shape)}")
        square = values[..., : 3 * n * n].unflatten(-1, (3, n, n))
        return HeadWeights(square[..., 0, :, :], square[..., 1, :, :], square[..., 2, :, :], values[..., 3 * n * n :])


def require_even_heads(heads: int) -> None:
    """Opposite starts come in pairs. Raises ValueError otherwise."""
    if heads % 2:
        raise ValueError(f"heads must be even for start='oppo_small_id'; got {heads}: every head needs an opposite one")


def initial_weights(
    d: int, heads: int, start: str = "random", *, seed: int = 0, runs: int = 1, first_run: int = 0
) -> HeadWeights:
    """Weights before training. Run r draws from the stream (seed, "start", r), whatever the start keeps of it.

    | start | W_Q | W_K | W_V, W_O |
    |---|---|---|---|
    | `random` | uniform on ±1/sqrt(n) | the same | uniform on ±1/sqrt(n), ±1/sqrt(nH) |
    | `small_id` | 10^-6 I | 10^-6 I | 10^-6 I, uniform |
    | `small_id_qk` | 10^-4 I | 10^-4 I | uniform |
    | `oppo_small_id` | ±10^-6 I: + in the first half of the heads, - in the second | 10^-6 I | uniform |

    Args:
        d: covariates, >= 1.
        heads: H >= 1; even for opposite starts.
        start: a row of the table.
        seed: of the streams.
        runs: R >= 1.
        first_run: number of the first run, >= 0.

    Returns:
        weights of R runs, float64.

    Raises:
        ValueError: an unknown start, a number outside its range, or an odd number of heads with opposite starts.

    Source:
        the authors' code for arXiv 2503.12734 (their causal layer flips the sign of W_K too, so that its heads are not opposite; that is
        not repeated here).

    Example:
        >>> heads = initial_weights(d=5, heads=2, start="oppo_small_id", seed=0)
        >>> bool((heads.query[:, 0] == -heads.query[:, 1]).all())
        True
    """
    checks.whole_number("d", d, at_least=1)
    checks.whole_number("heads", heads, at_least=1)
    checks.one_of("start", start, STARTS)
    checks.origin(seed, runs, first_run)
    if start == "oppo_small_id":
        require_even_heads(heads)
    limits.require_memory(lambda d, heads, runs: 48 * runs * heads * (d + 1) ** 2, d=d, heads=heads, runs=runs)
    return draw_weights(d, heads, start, seed, runs, first_run)


def draw_weights(d: int, heads: int, start: str, seed: int, runs: int, first_run: int) -> HeadWeights:
    """`initial_weights` for arguments that have been checked, as those of an `Experiment` are."""
    n = d + 1
    each = [
        stream(seed, "start", run).uniform(-1, 1, heads * (3 * n * n + n)) for run in range(first_run, first_run + runs)
    ]
    # All four matrices from one stream per run, in [-1/sqrt(n), 1/sqrt(n)]; W_O is divided by sqrt(H) too.
    free = torch.from_numpy(np.stack(each)).reshape(runs, heads, -1) / math.sqrt(n)
    query, key, value = free[..., : 3 * n * n].unflatten(-1, (3, n, n)).unbind(2)
    out = free[..., 3 * n * n :] / math.sqrt(heads)
    # Small starts put multiples of the identity in place of W_Q and W_K (and W_V), with opposite signs where asked.
    if start != "random":
        small = _SMALL[start] * torch.eye(n, dtype=torch.float64, device="cpu").expand(runs, heads, n, n)
        sign = torch.ones(heads, dtype=torch.float64, device="cpu")
        if start == "oppo_small_id":
            sign[heads // 2 :] = -1
        query, key = sign[:, None, None] * small, small.clone()
        if start == "small_id":
            value = small.clone()
    return HeadWeights(query.contiguous(), key.contiguous(), value.contiguous(), out.contiguous())


@checks.checked
def attend(heads: HeadWeights, prompts: Prompts) -> torch.Tensor:
    """Predictions (R, B), with all four projections of every token. Prompts are shared (B, ...) or one set a run (R, B, ...)."""
    z, z_q = (tokens.to(heads.output) for tokens in (prompts.context, prompts.query_token))
    if z.ndim == 3:
        z, z_q = z.unsqueeze(0), z_q.unsqueeze(0)

    def project(matrix: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        return torch.einsum("rhij,rbtj->rhbti", matrix, tokens.expand(heads.runs, *tokens.shape[1:]))

    # Tokens z = (x, y); the query token has y = 0.
    keys, values, queries = project(heads.key, z), project(heads.value, z), project(heads.query, z_q)
    # softmax(<query, key> / sqrt(n)), the mixture of values, and the output matrix, summed over heads.
    scores = attention_logits(keys.unsqueeze(-3), queries.squeeze(-2)).squeeze(-2)
    mixed = attention_output(attention_weights(scores / math.sqrt(heads.d + 1)), values)
    return torch.einsum("rhi,rhbi->rb", heads.output, mixed)
