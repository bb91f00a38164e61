r"""Heads whose query-key and value-output parts are products of matrices, trained by gradient descent.

The single head has two vectors. With matrices and a fixed query token q, head h of width k reads

$$ p_h = W_K^{(h)} W_Q^{(h)\top} q = K_h^\top a_h, \qquad v_h = W_V^{(h)\top} w_h = V_h^\top w_h, \qquad
   f = \sum_h \sum_t \mathrm{softmax}(X p_h)_t\, v_h\cdot x_t, $$

$K_h, V_h$ of shape (k, m), $a_h = W_Q^\top q$ and $w_h$ of shape (k). Gradients by the chain rule: $\nabla_{K} = a\,(\nabla_p L)^\top$,
$\nabla_a = K \nabla_p L$, and the same for $V$, $w$. A fixed a (or w) is a plain linear map; with k = 1, a = w = 1 the head is the
single head itself. Everything commutes with rotations of the tokens. Source: derived; proofs in the theory chapter of Part IV.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from attnlib import checks
from attnlib.randomness import stream
from attnlib.single_head.law import Sample
from attnlib.single_head.model import evaluate, gradients_at, loss
from attnlib.single_head.training import Trajectory


@dataclass(frozen=True)
class Factors:
    """The trained matrices of H heads of width k in R runs."""

    keys: torch.Tensor  # K, (R, H, k, m)
    query: torch.Tensor  # a = W_Q'q, (R, H, k)
    values: torch.Tensor  # V, (R, H, k, m)
    output: torch.Tensor  # w, (R, H, k)

    @property
    def p(self) -> torch.Tensor:
        """(R, H, m): what multiplies the tokens in the logits."""
        return torch.einsum("rhk,rhkm->rhm", self.query, self.keys)

    @property
    def v(self) -> torch.Tensor:
        """(R, H, m): what multiplies the selected token."""
        return torch.einsum("rhk,rhkm->rhm", self.output, self.values)

    @property
    def attention_size(self) -> torch.Tensor:
        """E = |K|^2 + |a|^2, (R, H); |p| <= E/2."""
        return self.keys.square().sum((-1, -2)) + self.query.square().sum(-1)

    @property
    def second_bound(self) -> torch.Tensor:
        """|K K' - a a'|^(1/2) in the spectral norm, (R, H): gradient flow conserves it, and sigma_2(K) never exceeds it."""
        balance = self.keys @ self.keys.mT - self.query.unsqueeze(-1) * self.query.unsqueeze(-2)
        return torch.linalg.matrix_norm(balance, ord=2).sqrt()


def gaussian_factors(sample: Sample, heads: int, width: int, size: float) -> Factors:
    """Independent Gaussian factors, each of root mean square norm `size`.

    Needs a sample drawn with `start_vectors >= 2 * heads * width`. Raises ValueError otherwise.
    """
    checks.whole_number("heads", heads, at_least=1)
    checks.whole_number("width", width, at_least=1)
    size = checks.positive_number("size", size)
    need = 2 * heads * width
    if sample.start_directions.shape[1] < need:
        raise ValueError(
            f"sample must hold 2 x heads x width = {need} start directions; got {sample.start_directions.shape[1]}: "
            f"draw it with start_vectors={need}"
        )
    shape = (sample.runs, 2, heads, width, sample.tokens.shape[-1])
    matrices = sample.start_directions[:, :need].reshape(shape) / math.sqrt(sample.law.d * width)
    # The role "search" keeps the small vectors apart from the start directions, which use "start".
    runs = range(sample.first_run, sample.first_run + sample.runs)
    drawn = torch.stack(
        [torch.as_tensor(stream(sample.seed, "search", run).standard_normal((2, heads, width))) for run in runs]
    )
    vectors = drawn.to(sample.tokens) / math.sqrt(width)
    return Factors(size * matrices[:, 0], size * vectors[:, 0], size * matrices[:, 1], size * vectors[:, 1])


def fixed_query_and_output(sample: Sample, query: torch.Tensor, output: torch.Tensor) -> Factors:
    """K = V = 0 and given vectors a, w (H, k), the same in every run: for `train_factors(..., train_query=False, train_output=False)`."""
    checks.tensor("query", query, ("H", "k"), like=sample.tokens)
    checks.tensor("output", output, tuple(query.shape), like=sample.tokens)
    shape = (sample.runs, *query.shape)
    zero = sample.tokens.new_zeros((*shape, sample.tokens.shape[-1]))
    return Factors(zero, query.expand(shape), zero, output.expand(shape))


def direct_heads(p: torch.Tensor, v: torch.Tensor) -> Factors:
    """Heads with plain vectors p_h, v_h (R, H, m): width one, a = w = 1, to be kept fixed."""
    one = p.new_ones((*p.shape[:2], 1))
    return Factors(p.unsqueeze(2), one, v.unsqueeze(2), one)


def _chain(at: Factors, grad_p: torch.Tensor, grad_v: torch.Tensor) -> Factors:
    return Factors(
        at.query.unsqueeze(-1) * grad_p.unsqueeze(2),
        torch.einsum("rhkm,rhm->rhk", at.keys, grad_p),
        at.output.unsqueeze(-1) * grad_v.unsqueeze(2),
        torch.einsum("rhkm,rhm->rhk", at.values, grad_v),
    )


@dataclass(frozen=True)
class FactorTrajectory(Trajectory):
    """Heads, and what their factors did. `drive` is the sum of log(1 + beta |grad_p L|) over the steps before."""

    drive: torch.Tensor  # (S, R, H)
    attention_size: torch.Tensor  # E, (S, R, H)
    singular_values: torch.Tensor  # of K, descending, (S, R, H, min(k, m))
    second_bound: torch.Tensor  # |K K' - a a'|^(1/2) at the start, (R, H)
    end: Factors


@checks.checked
def train_factors(
    sample: Sample,
    start: Factors,
    step_size: float,
    steps: int,
    *,
    attention_step_size: float | None = None,
    train_query: bool = True,
    train_output: bool = True,
    record: Iterable[int] | None = None,
) -> FactorTrajectory:
    """Gradient descent on all factors (or on K and V alone), R runs at once, any number of tokens.

    step_size: beta of V and w; attention_step_size: of K and a, the same when left out, 0 freezes them. `train_query=False` keeps a,
    `train_output=False` keeps w. record: steps to keep, all when left out; the last one always. Raises ValueError for a bad argument.
    """
    checks.positive_number("step_size", step_size)
    own = step_size if attention_step_size is None else attention_step_size
    if own != 0:
        checks.positive_number("attention_step_size", own, hint="or 0 to freeze attention")
    checks.whole_number("steps", steps, at_least=0)
    kept = checks.recorded_steps(record, steps)
    tokens, labels, runs = sample.tokens, sample.labels, sample.runs
    checks.tensor("start.keys", start.keys, (runs, "H", "k", tokens.shape[-1]), like=tokens)
    checks.tensor("start.query", start.query, tuple(start.keys.shape[:3]), like=tokens)
    checks.tensor("start.values", start.values, (runs, start.keys.shape[1], "k", tokens.shape[-1]), like=tokens)
    checks.tensor("start.output", start.output, tuple(start.values.shape[:3]), like=tokens)
    now, rows, recorded = start, [], set(kept)
    drive = tokens.new_zeros(runs, start.keys.shape[1])
    for step in range(steps + 1):
        p, v = now.p, now.v
        out = evaluate(tokens, v, p)
        grad_v, grad_p = gradients_at(out, tokens, labels, v, p)
        if step in recorded:
            weight = sample.at_signal(out.attention.movedim(1, 0)).movedim(0, 1)
            spectrum = torch.linalg.svdvals(now.keys)
            measured = loss(out.output, labels), labels * out.output, weight, drive, now.attention_size, spectrum
            rows.append((v, p, *measured))
        if step < steps:
            slope = _chain(now, grad_p, grad_v)
            drive = drive + torch.log1p(own * grad_p.norm(dim=-1))
            now = Factors(
                now.keys - own * slope.keys,
                now.query - own * slope.query if train_query else now.query,
                now.values - step_size * slope.values,
                now.output - step_size * slope.output if train_output else now.output,
            )
    stacked = [torch.stack(part) for part in zip(*rows, strict=True)]
    return FactorTrajectory(kept, *stacked[:5], sample.noisy, *stacked[5:], start.second_bound, now)
