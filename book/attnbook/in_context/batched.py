"""Named results of this part's pages for many parameter sets at once: what `attnlib sweep --batched` calls.

The numbers are the page's: the same starts, the same prompts, the same loop. Only what the page records is computed.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from attnlib.in_context.circuits import Circuits, circuits_of
from attnlib.in_context.experiment import Experiment
from attnlib.in_context.model import HeadWeights, initial_weights
from attnlib.in_context.training import GRID, TrainingDiverged
from attnlib.kernels import in_context as kernels

RECORDS = 50  # of the page's live training: the last window of losses begins at the last record but one


def training(points: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What page `in_context/02_training` records, for each of `points` (its complete parameter sets), in order.

    The page records its live training alone: neither the other optimisers nor the held-out risks are computed, so a page that
    fails because another optimiser diverges at this learning rate has results here. Points that differ in `learning_rate` and
    `runs` only are one training, in which run r of each point shares its prompts with run r of the others: most of the cost of a step.

    Raises ValueError for what `Experiment` refuses, TrainingDiverged when a loss is not finite, KeyError for a missing
    parameter.
    """
    experiments = [Experiment(**p, records=RECORDS) for p in points]
    together: dict[Experiment, list[int]] = {}
    for place, e in enumerate(experiments):
        together.setdefault(e.replace(learning_rate=1.0, runs=1), []).append(place)
    results: list[dict[str, Any]] = [{} for _ in points]
    for places in together.values():
        ends = _train_together([experiments[place] for place in places])
        for place, end in zip(places, ends, strict=True):
            results[place] = _named(*end)
    return results


def _train_together(experiments: Sequence[Experiment]) -> list[tuple[Circuits, torch.Tensor]]:
    """Final circuits (R, ...) and mean loss (R,) since the last record but one, of experiments of equal data and steps."""
    e = experiments[0]
    most = max(each.runs for each in experiments)
    start = initial_weights(e.d, e.heads, e.start, seed=e.seed, runs=most).flat().to(torch.float32)
    state = [torch.cat([start[: each.runs] for each in experiments])]
    state += [torch.zeros_like(state[0]) for _ in range(2)]
    rates = np.concatenate([np.full(each.runs, each.learning_rate) for each in experiments])
    owner = np.concatenate([np.full(each.runs, place) for place, each in enumerate(experiments)])
    before, total = e.recorded_steps[-2], np.zeros(len(rates))
    call = kernels.Call(
        d=e.d, heads=e.heads, length=e.length, batch=e.batch, seed=e.seed,
        streams=np.concatenate([each.streams for each in experiments]), first_step=0, steps=e.steps,
        beta_std=e.law.beta_std, noise_std=e.law.label_noise_std, target_noise_std=e.law.target_noise_std,
        optimiser=e.optimiser, learning_rate=rates, betas=e.betas, eps=e.eps, weight_decay=e.weight_decay,
    )  # fmt: skip
    # Sums of losses end where those of `train` do, so that they are added in the same order.
    for first, last in pairwise(sorted({*range(0, e.steps, GRID), before, e.steps})):
        losses = kernels.advance(call.piece(first, last - first), *state).numpy()
        if not np.isfinite(losses).all():
            bad = ~np.isfinite(losses)
            step, place = int(bad.any(0).argmax()), int(bad.any(1).argmax())
            own = np.flatnonzero(owner == owner[place])
            raise TrainingDiverged(first + step, place - int(own[0]), first, experiments[owner[place]])
        if first >= before:
            total += losses.astype(np.float64).sum(1)
    loss = torch.from_numpy(total / (e.steps - before))
    sizes = [each.runs for each in experiments]
    return [(_final(own), mean) for own, mean in zip(state[0].split(sizes), loss.split(sizes), strict=True)]


def _final(weights: torch.Tensor) -> Circuits:
    """As a `History` keeps them: merged in the training's float32, then float64."""
    now = circuits_of(HeadWeights.from_flat(weights.clone()))
    return Circuits(now.key_query.double(), now.output_value.double())


def _named(final: Circuits, loss: torch.Tensor) -> dict[str, Any]:
    """The page's `record(...)`."""
    fine = ~final.trapped
    loss_final = loss[fine if fine.any() else ~fine].mean()
    return {
        "omega": [[round(x, 2) for x in row] for row in final.omega.tolist()],
        "mu": [[round(x, 2) for x in row] for row in final.mu.tolist()],
        "loss_final": round(float(loss_final), 3),
    }
