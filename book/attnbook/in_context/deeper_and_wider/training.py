r"""Training by automatic differentiation, for everything the fast trainer does not know: stacks, several tasks, any covariates.

R runs go side by side on a leading axis: the loss is the sum over runs of each run's own batch mean, so a run's gradient is what it would
be alone, and the optimisers, which act entry by entry, keep the runs apart. Prompts come from the counter-based training stream
(`attnlib.kernels.prompt_stream`), many steps at once, through the law's `from_normals`; updates are torch.optim's.

Any law will do that has `from_normals`, `stream_size` or (d, length), and prompts with `context`, `query_token` and `targets`.
Source: authors' code for loss and optimisers; the batching is this book's.
"""

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from attnbook.in_context.causal import prompt_tokens
from attnbook.in_context.deeper_and_wider.stack import (
    LayerCircuits,
    StackWeights,
    initial_stack,
    run_stack,
    stack_circuits,
)
from attnlib import checks
from attnlib.extras import progress_bar
from attnlib.in_context.experiment import Experiment
from attnlib.in_context.training import TrainingDiverged
from attnlib.kernels import prompt_stream
from attnlib.kernels.dispatch import has_numba

_NORMALS_AT_ONCE = 400_000  # 3 MB; prompts, tokens and casts take several times as much
_DTYPES = {"float32": torch.float32, "float64": torch.float64}


@dataclass(frozen=True)
class DeepHistory:
    """Records of R runs at K steps, and the stack at the end."""

    experiment: Experiment
    law: Any
    steps: np.ndarray  # (K,): step s is the state after s updates
    layers: tuple[LayerCircuits, ...]  # one entry per layer; leading axes (R, K), float64
    loss: torch.Tensor  # (R, K): mean training loss over the steps since the previous record; nan at the first
    loss_se: torch.Tensor  # (R, K): its standard error
    stack: StackWeights  # at the end, float64


def starting_stack(experiment: Experiment, mask: str = "strict") -> StackWeights:
    """The weights at step 0, float64."""
    e = experiment
    return initial_stack(
        e.d, e.heads, e.layers, e.start, outputs=e.outputs, weight_tying=e.weight_tying and e.layers > 1, mask=mask,
        seed=e.seed, runs=e.runs, first_run=e.first_run,
    )  # fmt: skip


def training_prompts(
    experiment: Experiment, law: Any, first_step: int, steps: int, dtype: str = "float32", *, compiled: bool = True
) -> Any:
    """The prompts of some steps of a training, leading axes (steps, R), or (steps, 1) with shared data.

    float32 normals come from the compiled generator if that is wanted and can be; both agree within float32 rounding.
    """
    streams = experiment.streams[:1] if experiment.shared_data else experiment.streams
    d, length = getattr(law, "stream_size", None) or (law.d, law.length)
    origin = experiment.seed, streams, first_step, steps, experiment.batch
    if compiled and dtype == "float32" and has_numba():
        from attnlib.kernels.in_context.compiled import normals

        drawn = normals(*origin, d=d, length=length)
    else:
        drawn = prompt_stream.normals(*origin, prompt_stream.normals_per_prompt(d, length))
    return law.from_normals(np.moveaxis(drawn, 0, 1))


@checks.checked
def train_deep(
    experiment: Experiment,
    law: Any = None,
    *,
    mask: str = "strict",
    dtype: str = "float32",
    cooldown: float = 0.0,
    compiled: bool = True,
    progress: bool = False,
) -> DeepHistory:
    """Train R runs of a stack, recording circuits and losses at `experiment.recorded_steps`.

    Args:
        experiment: sizes, start, optimiser and steps. One learning rate for all runs.
        law: where prompts come from, of the experiment's d and number of outputs; None: the experiment's own law.
        mask: of the causal layers, "strict" or "inclusive".
        dtype: of weights and gradients, "float32" or "float64". Prompts and records are float64.
        cooldown: fraction of the steps, at the end, over which the learning rate falls linearly to 0; 0 is a constant rate.
        compiled: take float32 prompts from the compiled generator where numba is installed: faster, and 130 MB more memory.
        progress: show a progress bar.

    Raises ValueError for bad arguments before any work, TrainingDiverged (which names step and run) when a loss is not finite.
    """
    e = experiment
    e.require_room(torch.device("cpu"))
    law = e.law if law is None else law
    checks.one_of("dtype", dtype, tuple(_DTYPES))
    checks.probability("cooldown", cooldown)
    if isinstance(e.learning_rate, tuple):
        raise ValueError("learning_rate must be one number for all runs here; got one for each run: train them apart")
    outputs = getattr(law, "tasks", 1)
    if (law.d, outputs) != (e.d, e.outputs):
        raise ValueError(
            f"law must have the experiment's d = {e.d} and outputs = {e.outputs}; got d = {law.d} and {outputs}"
        )
    stack = starting_stack(e, mask).to(_DTYPES[dtype])
    weights = tuple(tensor.clone().requires_grad_() for tensor in stack.trained)
    stack = stack.rebuilt(weights)
    optimiser = _optimiser(e, weights)
    records, losses = [stack_circuits(stack.to(torch.float64))], []
    edges = e.recorded_steps
    with progress_bar(progress, e.steps, "training", unit="step") as bar:
        for first, last in itertools.pairwise(edges):
            losses.append(_steps(e, law, stack, weights, optimiser, first, last, dtype, cooldown, compiled))
            records.append(stack_circuits(stack.to(torch.float64)))
            bar.update(last - first)
    return DeepHistory(
        e, law, np.array(edges), _stacked(records), *_summaries(losses, e.runs), _detached(stack).to(torch.float64)
    )


def _steps(
    e: Experiment, law: Any, stack: StackWeights, weights: tuple[torch.Tensor, ...], optimiser: torch.optim.Optimizer,
    first: int, last: int, dtype: str, cooldown: float, compiled: bool,
) -> torch.Tensor:  # fmt: skip
    """Updates first ... last - 1, in place. Returns losses (R, steps), float64."""
    streams = 1 if e.shared_data else e.runs
    d, length = getattr(law, "stream_size", None) or (law.d, law.length)
    per_step = streams * e.batch * prompt_stream.normals_per_prompt(d, length)
    chunk = max(1, _NORMALS_AT_ONCE // per_step)
    done = []
    for start in range(first, last, chunk):
        count = min(chunk, last - start)
        prompts = training_prompts(e, law, start, count, dtype, compiled=compiled)
        tokens, targets = (x.to(_DTYPES[dtype]) for x in (prompt_tokens(prompts), prompts.targets.squeeze(-2)))
        found = torch.empty(count, e.runs, dtype=_DTYPES[dtype])
        for i in range(count):
            if cooldown:
                left = (e.steps - (start + i)) / (cooldown * e.steps)
                optimiser.param_groups[0]["lr"] = e.learning_rate * min(1.0, left)
            optimiser.zero_grad(set_to_none=True)
            loss = (run_stack(stack, tokens[i]) - targets[i]).square().mean((1, 2))
            loss.sum().backward()
            optimiser.step()
            found[i] = loss.detach()
        if not found.isfinite().all():
            bad = ~found.isfinite()
            step = int(bad.any(1).int().argmax())
            raise TrainingDiverged(start + step, e.first_run + int(bad[step].int().argmax()), first, e)
        done.append(found.T.double())
    return torch.cat(done, 1)


def _optimiser(e: Experiment, weights: tuple[torch.Tensor, ...]) -> torch.optim.Optimizer:
    """torch's own, one entry-wise update for all runs."""
    if e.optimiser == "SGD":
        return torch.optim.SGD(weights, lr=e.learning_rate, weight_decay=e.weight_decay)
    kind = {"Adam": torch.optim.Adam, "AdamW": torch.optim.AdamW}[e.optimiser]
    return kind(weights, lr=e.learning_rate, betas=e.betas, eps=e.eps, weight_decay=e.weight_decay)


def _detached(stack: StackWeights) -> StackWeights:
    return stack.rebuilt(tuple(tensor.detach().clone() for tensor in stack.trained))


def _stacked(records: list[tuple[LayerCircuits, ...]]) -> tuple[LayerCircuits, ...]:
    """Records (K of them) to one entry per layer with axes (R, K, ...)."""
    names = ("key_query", "output_value", "read_out")
    return tuple(
        LayerCircuits(*(torch.stack([getattr(one, name).detach() for one in layer], 1) for name in names))
        for layer in zip(*records, strict=True)
    )


def _summaries(losses: list[torch.Tensor], runs: int) -> tuple[torch.Tensor, torch.Tensor]:
    nothing = torch.full((runs,), math.nan, dtype=torch.float64)
    mean = [nothing] + [part.mean(1) for part in losses]
    error = [nothing] + [part.std(1) / math.sqrt(part.shape[1]) if part.shape[1] > 1 else nothing for part in losses]
    return torch.stack(mean, 1), torch.stack(error, 1)
