"""Training of the query-only model: one function, `train`, for all implementations.

Each step draws a fresh batch of prompts and takes one step on the four matrices of every head. Gradients go through the merged
circuits (`circuits`), which is exact; the moments of Adam belong to the four matrices, so the path is that of the model as written.

All are forms of `attnlib.kernels.in_context.advance`, and see the same prompts: any prompt of any step is known by its number
(`attnlib.kernels.prompt_stream`), so a training can be cut anywhere and goes on bit for bit (`attnbook.in_context.resumable`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from attnlib import checks, divergence
from attnlib.arrays import Arrays, Floats, Ints
from attnlib.device import one_thread, resolve
from attnlib.extras import progress_bar
from attnlib.in_context.circuits import Circuits, circuits_of
from attnlib.in_context.experiment import Experiment
from attnlib.in_context.model import HeadWeights, draw_weights
from attnlib.kernels import in_context as kernels

MOMENTS = ("weights", "first_moment", "second_moment")
_RECORDS = ("key_query", "output_value", "loss", "loss_se")


class TrainingDiverged(divergence.TrainingDiverged):
    """A loss is no longer a finite number. `step` is the step, `last_good` the step of the last whole state."""

    def __init__(self, step: int, run: int, last_good: int, experiment: Experiment) -> None:
        super().__init__(
            step,
            run,
            f"the loss of run {run} at step {step} is not a finite number; the state after {last_good} "
            f"steps is the last good one: take a smaller learning_rate than {experiment.learning_rate}",
        )
        self.args, self.last_good = (step, run, last_good, experiment), last_good


@dataclass(frozen=True)
class History:
    """The result of a training: records of R runs at K steps, and the final state.

    Source:
        this book; made by `train`.

    Example:
        >>> history = train(Experiment(heads=2, d=3, steps=20, records=4, runs=2))
        >>> history.omega.shape, history.loss.shape
        (torch.Size([2, 4, 2]), torch.Size([2, 4]))
    """

    experiment: Experiment  # what was trained
    implementation: str  # what did the arithmetic
    steps: Ints  # (K,): recorded steps; step s is the state after s updates
    circuits: Circuits  # leading axes (R, K), float64
    loss: torch.Tensor  # (R, K): mean training loss over the steps since the previous record; nan at the first
    loss_se: torch.Tensor  # (R, K): its standard error; nan where there is one step only
    state: Arrays  # weights, first_moment, second_moment (R, H, 3 n^2 + n)

    @property
    def omega(self) -> torch.Tensor:
        """(R, K, H): the mean diagonal of every head's key-query circuit."""
        return self.circuits.omega

    @property
    def mu(self) -> torch.Tensor:
        """(R, K, H): what every head writes of the labels."""
        return self.circuits.mu

    @property
    def effective_step(self) -> torch.Tensor:
        """(R, K): eta = sum over heads of omega mu."""
        return self.circuits.effective_step

    @property
    def final(self) -> Circuits:
        """Circuits (R, H, ...) at the last record."""
        return self.circuits[:, -1]

    @property
    def weights(self) -> HeadWeights:
        """The weights at the end, in the training's dtype."""
        return HeadWeights.from_flat(torch.from_numpy(self.state["weights"]))

    def at(self, step: int) -> int:
        """Index of the last record at or before `step`. Raises ValueError unless `step` is a whole number >= 0."""
        step = checks.whole_number("step", step, at_least=0)
        return int(np.searchsorted(self.steps, step, side="right")) - 1


@checks.checked
@one_thread
def train(
    experiment: Experiment,
    *,
    dtype: str = "float32",
    implementation: str = "auto",
    device: str = "cpu",
    progress: bool = False,
    threads: int | None = None,
    watch: Callable[[int], None] | None = None,
) -> History:
    r"""Train the query-only model on fresh prompts, by SGD, Adam or AdamW on the four matrices of every head.

    $$ L = \frac1B\sum_b(\hat y_b-y_b)^2 $$

    Circuits and losses are recorded at `experiment.recorded_steps`.

    | implementation | dtype | what it is |
    |---|---|---|
    | `compiled` | float32 | one loop for data, gradient and update on the CPU (needs numba) |
    | `triton` | float32 | the same as one GPU program for each run (needs a CUDA device and Triton) |
    | `reference` | float64, float32 | the same steps, readable, on any device |

    Args:
        experiment: what to train; one layer, one output.
        dtype: of weights and moments, "float32" or "float64" (the reference).
        implementation: "auto" (the fastest that can do it), or one of the table above.
        device: "cpu", "cuda", "cuda:N" or "auto" (a GPU when there is one). States and records come back to the CPU.
        progress: show a progress bar.
        threads: threads over runs (compiled only), None: as many as torch uses; the result does not depend on it.
        watch: called with the number of finished steps before every piece of work (a piece ends at a record or after 10 000
            steps); what it raises interrupts the training.

    Returns:
        a `History`.

    Raises:
        ValueError: a bad argument, before any work.
        TrainingDiverged: a loss is not finite.

    Source:
        the authors' notebook for arXiv 2503.12734.

    Example:
        >>> history = train(Experiment(heads=2, d=3, steps=50, records=4, runs=2), implementation="reference")
        >>> history.final.mu.shape
        torch.Size([2, 2])
    """
    training = Training(experiment, dtype=dtype, implementation=implementation, device=device, threads=threads)
    with progress_bar(progress, experiment.steps, f"{experiment.heads} heads", unit="step") as bar:
        while training.step < experiment.steps:
            if watch is not None:
                watch(training.step)
            bar.update(training.advance())
    return training.history()


class Training:
    """A training between two steps: its settings are checked when it is made, `advance` takes it to the next record."""

    grid = (
        10_000  # steps between two possible ends of a piece of work; fixed, so that sums do not depend on interruptions
    )

    def __init__(
        self,
        experiment: Experiment,
        *,
        dtype: str = "float32",
        implementation: str = "auto",
        device: str = "cpu",
        threads: int | None = None,
    ) -> None:
        if experiment.layers > 1 or experiment.outputs > 1:
            raise ValueError(
                f"train needs one layer and one output; got layers={experiment.layers}, outputs={experiment.outputs}: "
                "use attnbook.in_context.deeper_and_wider.training"
            )
        checks.one_of("dtype", dtype, ("float32", "float64"))
        where = resolve(device)
        experiment.require_room()
        implementation = kernels.implementation_for(
            experiment.d, experiment.heads, where, getattr(torch, dtype), implementation=implementation
        )
        if threads is not None:
            checks.whole_number("threads", threads, at_least=1)
        e = experiment
        self.experiment, self.implementation, self.device, self.threads = e, implementation, where, threads
        rates = np.array(np.broadcast_to(e.learning_rate, e.runs), dtype=np.float64)
        self.call = kernels.Call(
            d=e.d, heads=e.heads, length=e.law.length, batch=e.batch, seed=e.seed, streams=e.streams, first_step=0,
            steps=e.steps, beta_std=e.law.beta_std, noise_std=float(e.law.label_noise_std),
            target_noise_std=float(e.law.target_noise_std), optimiser=e.optimiser, learning_rate=rates, betas=e.betas,
            eps=float(e.eps), weight_decay=float(e.weight_decay or 0.0),
        )  # fmt: skip
        # The state of every head, the records so far, and the sums of the losses since the last record.
        start = draw_weights(e.d, e.heads, e.start, e.seed, e.runs, e.first_run).flat()
        weights = np.ascontiguousarray(start.numpy().astype(dtype))
        lead, n = (e.runs, len(e.recorded_steps)), e.width
        self.step = 0
        self.tensors: Arrays = {
            "weights": weights,
            "first_moment": np.zeros_like(weights),
            "second_moment": np.zeros_like(weights),
            "key_query": np.full((*lead, e.heads, n, n), np.nan, dtype=dtype),
            "output_value": np.full((*lead, e.heads, n), np.nan, dtype=dtype),
            "loss": np.full(lead, np.nan),
            "loss_se": np.full(lead, np.nan),
            "window": np.zeros((e.runs, 3)),  # steps, sum and sum of squares
        }
        self.tensors = self._recorded(0, self.tensors)

    def advance(self) -> int:
        """Steps until the next record or the next multiple of 10 000; returns how many."""
        begun, end = self.step, self.next_end
        moments = {name: self.tensors[name].copy() for name in MOMENTS}
        losses = self.make_steps(moments, end - begun)
        self.require_finite(losses, begun)
        self.step, self.tensors = end, self.closed(end, self.tensors | moments, losses)
        return end - begun

    @property
    def next_end(self) -> int:
        """Where the present piece of work ends."""
        record = next(step for step in self.experiment.recorded_steps if step > self.step)
        return min(record, (self.step // self.grid + 1) * self.grid)

    def make_steps(self, moments: Arrays, steps: int) -> Floats:
        """Change the arrays of `moments` in place by so many steps; returns the losses (R, steps)."""
        state = [torch.from_numpy(array).to(self.device) for array in moments.values()]
        piece = self.call.piece(self.step, steps)
        seen = kernels.advance(piece, *state, threads=self.threads, implementation=self.implementation)
        for array, tensor in zip(moments.values(), state, strict=True):
            array[...] = tensor.cpu().numpy()  # the same memory on the CPU
        losses: Floats = seen.cpu().numpy()
        return losses

    def require_finite(self, losses: Floats, last_good: int) -> None:
        """Raises TrainingDiverged unless the losses (R, some) of the next steps are finite."""
        if not (fine := np.isfinite(losses)).all():
            at = int((~fine).any(0).argmax())
            run = self.experiment.first_run + int((~fine)[:, at].argmax())
            raise TrainingDiverged(self.step + at, run, last_good, self.experiment)

    def closed(self, step: int, tensors: Arrays, losses: Floats) -> Arrays:
        """The tensors at the end of a piece of work, with its losses in the sums, and a record where this step has one."""
        # Steps, sum and sum of squares of the losses: their mean until the next record, and its standard error.
        seen = losses.astype(np.float64)
        window = np.stack([np.full(len(seen), seen.shape[1]), seen.sum(1), np.square(seen).sum(1)], axis=1)
        tensors = tensors | {"window": tensors["window"] + window}
        return self._recorded(step, tensors) if step in self.experiment.recorded_steps else tensors

    def _recorded(self, step: int, tensors: Arrays) -> Arrays:
        """The tensors with a record of this step, and an empty window."""
        index = self.experiment.recorded_steps.index(step)
        # Circuits of the weights at this step, and the mean loss since the last record.
        now = circuits_of(HeadWeights.from_flat(torch.from_numpy(tensors["weights"])))
        new = {name: tensors[name].copy() for name in _RECORDS}
        new["key_query"][:, index], new["output_value"][:, index] = now.key_query.numpy(), now.output_value.numpy()
        count, total, squares = tensors["window"].T
        if index > 0:
            mean = total / count
            new["loss"][:, index] = mean
            if count[0] > 1:
                variance = np.maximum(squares / count - mean**2, 0) / (count - 1)
                new["loss_se"][:, index] = np.sqrt(variance)
        return tensors | new | {"window": np.zeros_like(tensors["window"])}

    def history(self) -> History:
        t = self.tensors
        recorded = Circuits(*(torch.from_numpy(t[name]).double() for name in ("key_query", "output_value")))
        loss, loss_se = (torch.from_numpy(t[name]) for name in ("loss", "loss_se"))
        steps = np.array(self.experiment.recorded_steps)
        return History(
            self.experiment, self.implementation, steps, recorded, loss, loss_se, {name: t[name] for name in MOMENTS}
        )
