"""Training of rank-one softmax heads on a fixed set of prompts, averaged exactly over the regression vectors."""

from __future__ import annotations

import math

import numpy as np
import torch

from attnlib import checks
from attnlib.arrays import Floats
from attnlib.randomness import stream
from attnlib.staircase.flow import Path
from attnlib.staircase.law import Heads, SpectrumLaw

__all__ = ["softmax_loss", "train_softmax"]


def _contexts(law: SpectrumLaw, seed: int, role: str, runs: int, prompts: int) -> tuple[Floats, Floats]:
    r"""Examples (R, N, D, P) and queries (R, D, P); the queries of a run have second moments $\Lambda$ exactly. The prompts are last."""
    spread, drawn = np.sqrt(law.eigenvalues()), []
    for run in range(runs):
        rng = stream(seed, role, run)
        examples = rng.standard_normal((law.length, law.dimension, prompts)) * spread[:, None]
        raw = rng.standard_normal((law.dimension, prompts))
        white = np.linalg.solve(np.linalg.cholesky(raw @ raw.T / prompts), raw)
        drawn.append((examples, white * spread[:, None]))
    examples, queries = zip(*drawn, strict=True)
    return np.stack(examples), np.stack(queries)


def _gradient(law: SpectrumLaw, x: Floats, x_q: Floats, v: Floats, k: Floats, q: Floats) -> tuple[Floats, ...]:
    """Loss (R,) over the prompts and their mirrored queries, and half of its gradients with respect to v, k and q."""
    P, N = x.shape[-1], x.shape[1]
    rate = law.noise
    along = np.einsum("rhd,rndp->rhnp", k, x)
    z = np.matmul(q, x_q)  # (R, H, P)
    grown = np.exp(along * z[:, :, None])
    loss = np.zeros(len(v))
    slopes = [np.zeros_like(v), np.zeros_like(k), np.zeros_like(q)]
    for weights, side in ((grown, 1.0), (1 / grown, -1.0)):
        p = weights / weights.sum(2, keepdims=True)
        means = np.einsum("rhnp,rndp->rhdp", p, x)
        error = side * x_q - np.einsum("rh,rhdp->rdp", v, means)
        loss += (error**2).sum(1).mean(-1)
        inner = np.einsum("rhdp,rdp->rhp", means, error)
        seen = np.einsum("rndp,rdp->rnp", x, error)[:, None] - inner[:, :, None]
        slopes[0] += inner.mean(-1)
        if rate:  # labels' noise adds sigma^2 sum_i a_i^2, with the coefficient a_i = sum_h v_h p_hi of the label y_i
            a = np.einsum("rh,rhnp->rnp", v, p)
            loss += rate * (a**2).sum(1).mean(-1)
            own = np.einsum("rhnp,rnp->rhp", p, a)
            slopes[0] -= rate * own.mean(-1)
            seen = seen - rate * (a[:, None] - own[:, :, None])
        pulled = np.einsum("rhnp,rndp->rhdp", p * seen, x)
        slopes[1] += side * v[..., None] * np.einsum("rhp,rhdp->rhd", z, pulled) / P
        slopes[2] += side * v[..., None] * np.matmul((k[..., None] * pulled).sum(2), x_q.swapaxes(1, 2)) / P
    assert N == law.length
    return (loss / 2, *(slope / 2 for slope in slopes))


def softmax_loss(law: SpectrumLaw, heads: Heads, seed: int, *, prompts: int) -> torch.Tensor:
    r"""Expected squared error of softmax heads over fresh contexts and queries, averaged exactly over $w$ and the labels' noise.

    $$ \hat y=\sum_hv_h\sum_iy_i\,p^h_i,\qquad p^h=\mathrm{softmax}_i\bigl((k_h\cdot x_i)(q_h\cdot x_q)\bigr). $$

    Args:
        law: of the prompts, in D dimensions.
        heads: R runs of H heads in D dimensions.
        seed: of the contexts.
        prompts: P >= D contexts for each run; each query is used with both signs.

    Returns:
        one mean for each run, shape (R,).

    Raises:
        ValueError: an argument out of its range.

    Source:
        the model is the authors' code's with the option `--softmax`; the averages are ours.

    Example:
        >>> law = SpectrumLaw((0.5, 0.3), length=6)
        >>> softmax_loss(law, small_heads(0, heads=3, dimension=2, size=0.1, runs=2), 0, prompts=10).shape
        torch.Size([2])
    """
    checks.whole_number("prompts", prompts, at_least=law.dimension)
    checks.tensor("heads.key", heads.key, ("R", "H", law.dimension))
    x, x_q = _contexts(law, seed, "test", len(heads.value), prompts)
    return torch.as_tensor(_gradient(law, x, x_q, *heads.arrays())[0])


def train_softmax(law: SpectrumLaw, start: Heads, seed: int, time: float, *, prompts: int, every: int = 1, step: float = 1.0,
                  tied: bool = False) -> tuple[Path, torch.Tensor]:  # fmt: skip
    r"""Gradient descent of softmax heads, $\theta\leftarrow\theta-\tfrac\eta2\,\partial L/\partial\theta$, on P contexts for each run.

    The contexts and queries of a run stay the same; the average over $w$ is exact. Queries come with both signs, and their second
    moments are those of the law, so that the loss of a model that predicts 0 is the trace of the spectrum.

    Args:
        law: of the prompts, in D dimensions.
        start: R runs of H heads in D dimensions.
        seed: of the contexts.
        time: where to stop; the number of steps is time / step.
        prompts: P >= D.
        every: number of steps between two records.
        step: eta > 0.
        tied: keep the sum of the values at zero, by subtracting the mean of their gradients (and of their start).

    Returns:
        a `Path` whose `matrix` is $A=\sum_hv_hk_hq_h^\top$, with the heads at its end, and the values v at the records, (R, S, H).

    Raises:
        ValueError: an argument out of its range.

    Source:
        the model is the authors' code's with the option `--softmax`; the training is ours.

    Example:
        >>> law = SpectrumLaw((0.5, 0.3), length=6)
        >>> start = small_heads(0, heads=3, dimension=2, size=0.1, runs=2)
        >>> path, values = train_softmax(law, start, 0, 10.0, prompts=20)
        >>> path.loss.shape, values.shape
        (torch.Size([2, 11]), torch.Size([2, 11, 3]))
    """
    checks.whole_number("prompts", prompts, at_least=law.dimension)
    checks.whole_number("every", every, at_least=1)
    checks.tensor("start.key", start.key, ("R", "H", law.dimension))
    records = max(1, round(checks.positive_number("time", time) / checks.positive_number("step", step) / every))
    x, x_q = _contexts(law, seed, "batches", len(start.value), prompts)
    v, k, q = start.arrays()
    if tied:
        v -= v.mean(1, keepdims=True)
    losses, matrices, values = [], [], []
    for number in range(records * every + 1):
        loss, dv, dk, dq = _gradient(law, x, x_q, v, k, q)
        if number % every == 0:
            losses.append(loss)
            matrices.append(np.einsum("rh,rhi,rhj->rij", v, k, q))
            values.append(v)
        if tied:
            dv = dv - dv.mean(1, keepdims=True)
        v, k, q = v + step * dv, k + step * dk, q + step * dq
    if not all(map(math.isfinite, losses[-1])):
        raise ValueError(f"step must be smaller: the loss is no longer finite with {step!r}")
    times = step * every * torch.arange(records + 1, dtype=torch.float64)
    loss, matrix, value = (torch.as_tensor(np.stack(kept, 1)) for kept in (losses, matrices, values))
    return Path(times, loss, matrix, Heads.of(v, k, q)), value
