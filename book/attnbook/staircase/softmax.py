"""Training of rank-one softmax heads on a fixed set of prompts, averaged exactly over the regression vectors."""

from __future__ import annotations

import numpy as np
import torch

from attnbook.staircase.flow import Path
from attnbook.staircase.law import Heads, SpectrumLaw
from attnlib import checks
from attnlib.arrays import Floats
from attnlib.randomness import stream

_AT_ONCE = 6  # runs


def _contexts(law: SpectrumLaw, seed: int, runs: int, prompts: int) -> tuple[Floats, Floats]:
    r"""Examples (R, N, D, P) and queries (R, D, P); the queries of a run have second moments $\Lambda$ exactly. The prompts are last."""
    spread, drawn = np.sqrt(law.eigenvalues()), []
    for run in range(runs):
        rng = stream(seed, "batches", run)
        examples = rng.standard_normal((law.length, law.dimension, prompts)) * spread[:, None]
        raw = rng.standard_normal((law.dimension, prompts))
        white = np.linalg.solve(np.linalg.cholesky(raw @ raw.T / prompts), raw)
        drawn.append((examples, white * spread[:, None]))
    examples, queries = zip(*drawn, strict=True)
    return np.stack(examples), np.stack(queries)


def _gradient(*arrays: Floats) -> tuple[Floats, ...]:
    """`_gradient_of` x, x_q, v, k, q, a few runs at a time: their weights stay in the cache of a core."""
    blocks = [slice(first, first + _AT_ONCE) for first in range(0, len(arrays[0]), _AT_ONCE)]
    parts = [_gradient_of(*(array[block] for array in arrays)) for block in blocks]
    return tuple(map(np.concatenate, zip(*parts, strict=True)))


def _gradient_of(x: Floats, x_q: Floats, v: Floats, k: Floats, q: Floats) -> tuple[Floats, ...]:
    """Loss (R,) over the prompts and their mirrored queries, and half of its gradients with respect to v, k and q."""
    along = np.einsum("rhd,rndp->rhnp", k, x)
    z = np.matmul(q, x_q)  # (R, H, P)
    grown = np.exp(along * z[:, :, None])
    loss = np.zeros(len(v))
    slopes = [np.zeros_like(v), np.zeros_like(k), np.zeros_like(q)]
    for weights, side in ((grown, 1.0), (1 / grown, -1.0)):
        total = weights.sum(2)[:, :, None]  # of the softmax; dividing means by it spares dividing every weight
        means = np.einsum("rhnp,rndp->rhdp", weights, x) / total
        error = side * x_q - np.einsum("rh,rhdp->rdp", v, means)
        loss += (error**2).sum(1).mean(-1)
        inner = np.einsum("rhdp,rdp->rhp", means, error)
        slopes[0] += inner.mean(-1)
        # The covariance of x and x . error under the weights of a head.
        seen = x * np.einsum("rndp,rdp->rnp", x, error)[:, :, None]
        pulled = np.einsum("rhnp,rndp->rhdp", weights, seen) / total - inner[:, :, None] * means
        slopes[1] += side * v[..., None] * np.einsum("rhp,rhdp->rhd", z, pulled) / x.shape[-1]
        slopes[2] += side * v[..., None] * np.matmul((k[..., None] * pulled).sum(2), x_q.swapaxes(1, 2)) / x.shape[-1]
    return (loss / 2, *(slope / 2 for slope in slopes))


@checks.checked
def train_softmax(
    law: SpectrumLaw, start: Heads, seed: int, time: float, *, prompts: int, every: int = 1, step: float = 1.0
) -> tuple[Path, torch.Tensor]:
    r"""Gradient descent of softmax heads, $\theta\leftarrow\theta-\tfrac\eta2\,\partial L/\partial\theta$, on P contexts for each run.

    The contexts and queries of a run stay the same; the average over $w$ is exact. Queries come with both signs, and their second
    moments are those of the law, so that the loss of a model that predicts 0 is the trace of the spectrum.

    Args:
        law: of the prompts, in D dimensions, without label noise.
        start: R runs of H heads in D dimensions.
        seed: of the contexts.
        time: where to stop; the number of steps is time / step.
        prompts: P >= D.
        every: number of steps between two records.
        step: eta > 0.

    Returns:
        a `Path` whose `matrix` is $A=\sum_hv_hk_hq_h^\top$, with the heads at its end, and the values v at the records, (R, S, H).

    Raises:
        ValueError: an argument out of its range.

    Source:
        the model is the authors' code's with the option `--softmax`; the training is ours.

    Example:
        >>> law = SpectrumLaw((0.5, 0.3), length=6)
        >>> path, values = train_softmax(law, small_heads(0, heads=3, dimension=2, size=0.1, runs=2), 0, 10.0, prompts=20)
        >>> path.loss.shape, values.shape
        (torch.Size([2, 11]), torch.Size([2, 11, 3]))
    """
    if law.noise:
        raise ValueError(f"law must have noise 0: labels are averaged exactly without it; got {law.noise!r}")
    checks.origin(seed)
    checks.whole_number("prompts", prompts, at_least=law.dimension)
    checks.whole_number("every", every, at_least=1)
    checks.tensor("start.key", start.key, ("R", "H", law.dimension))
    records = max(1, round(checks.positive_number("time", time) / checks.positive_number("step", step) / every))
    x, x_q = _contexts(law, seed, len(start.value), prompts)
    v, k, q = start.arrays()
    kept: list[tuple[Floats, ...]] = []
    for number in range(records * every + 1):
        loss, dv, dk, dq = _gradient(x, x_q, v, k, q)
        if number % every == 0:
            kept.append((loss, np.einsum("rh,rhi,rhj->rij", v, k, q), v))
        v, k, q = v + step * dv, k + step * dk, q + step * dq
    if not np.isfinite(kept[-1][0]).all():
        raise ValueError(f"step must be smaller: the loss is no longer finite with {step!r}")
    losses, matrices, values = (torch.as_tensor(np.stack(column, 1)) for column in zip(*kept, strict=True))
    times = step * every * torch.arange(records + 1, dtype=torch.float64)
    return Path(times, losses, matrices, Heads.of(v, k, q)), values
