"""Training of the query-only model: one function, `train`, for all implementations.

Each step draws a fresh batch of prompts and takes one step on the four matrices of every head. Gradients go through the merged
circuits (`circuits`), which is exact; the moments of Adam belong to the four matrices, so the path is that of the model as written.

All are forms of `attnlib.kernels.in_context.advance`, and see the same prompts: any prompt of any step is known by its number
(`attnlib.kernels.prompt_stream`), so a training can be interrupted anywhere and goes on bit for bit.
"""

from __future__ import annotations

import datetime
import functools
import importlib.metadata
import importlib.util
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from reprlib import repr as shortened
from typing import Any

import numpy as np
import torch

from attnlib import checks, divergence
from attnlib.arrays import Arrays, Floats, Ints
from attnlib.device import one_thread, resolve
from attnlib.extras import progress_bar
from attnlib.in_context.checkpoints import CheckpointError, read_checkpoint, write_checkpoint
from attnlib.in_context.circuits import Circuits, circuits_of
from attnlib.in_context.experiment import Experiment
from attnlib.in_context.model import HeadWeights, draw_weights
from attnlib.kernels import in_context as kernels
from attnlib.kernels.batches import in_calls, on_threads

GRID = 10_000  # steps between two possible ends of a piece of work; fixed, so that sums do not depend on interruptions
_STEPS, _SECONDS = 100, 1.0  # until the first whole state, and between two later ones


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


@checks.checked
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
        """Index of the last record at or before `step`."""
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
    checkpoint: Path | None = None,
    threads: int | None = None,
    watch: Callable[[int], None] | None = None,
    about: Mapping[str, str] | None = None,
) -> History:
    r"""Train the query-only model on fresh prompts, by SGD, Adam or AdamW on the four matrices of every head.

    $$ L = \frac1B\sum_b(\hat y_b-y_b)^2 $$

    Circuits and losses are recorded at `experiment.recorded_steps`. A training can be interrupted anywhere and goes on bit for bit.

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
        checkpoint: a .safetensors file. It is written every 10 000 steps and at the end, also when the training is
            interrupted or diverges; if it exists, the training goes on from it and ends as if it had never stopped. Ctrl-C is heard
            within about a second (a step of one run is the least piece), and the file then holds all but the last second's steps.
            Python ends at once on SIGTERM, and the file is that of the last 10 000 steps, unless the program says
            `signal.signal(signal.SIGTERM, signal.default_int_handler)`, as the command `attnlib train` does.
        threads: threads over runs (compiled only), None: as many as torch uses; the result does not depend on it.
        watch: called with the number of finished steps before every piece of work (a piece ends at a record or after 10 000
            steps); what it raises interrupts the training.
        about: words that are kept in the checkpoint beside the settings, such as the command that makes it.

    Returns:
        a `History`.

    Raises:
        ValueError: a bad argument, or a checkpoint of another experiment, before any work.
        CheckpointError: a checkpoint that cannot be read or written.
        TrainingDiverged: a loss is not finite.

    Source:
        the authors' notebook for arXiv 2503.12734.

    Example:
        >>> history = train(Experiment(heads=2, d=3, steps=50, records=4, runs=2), implementation="reference")
        >>> history.final.mu.shape
        torch.Size([2, 2])
    """
    if experiment.layers > 1 or experiment.outputs > 1:
        raise ValueError(
            f"train needs one layer and one output; got layers={experiment.layers}, outputs={experiment.outputs}: "
            "use attnbook.in_context.deeper_and_wider.training"
        )
    checks.one_of("dtype", dtype, ("float32", "float64"))
    # Who computes, and where; all checks are done before any work.
    where = resolve(device)
    experiment.require_room(where)
    implementation = kernels.implementation_for(
        experiment.d, experiment.heads, where, getattr(torch, dtype), implementation=implementation
    )
    if threads is not None:
        checks.whole_number("threads", threads, at_least=1)
    # A new training, or the one that the file holds.
    file = None if checkpoint is None else Path(checkpoint)
    if file is None or not file.exists():
        state = _State.start(experiment, dtype, implementation)
    else:
        state = _State.resume(experiment, dtype, implementation, file)
    state.about = dict(about or {})
    if file is not None and not file.exists():
        write_checkpoint(file, *state.as_checkpoint())  # a file that cannot be written is found now
    with progress_bar(progress, experiment.steps, f"{experiment.heads} heads", unit="step") as bar:
        bar.update(state.step)
        try:
            # Pieces of work; every 10 000 steps, at the end, and whatever happens, the state goes to the file.
            while state.step < experiment.steps:
                if watch is not None:
                    watch(state.step)
                saved = state.step // GRID
                bar.update(state.advance(where, threads))
                if file is not None and (state.step // GRID > saved or state.step == experiment.steps):
                    write_checkpoint(file, *state.as_checkpoint())
        except BaseException:
            if file is not None:
                write_checkpoint(file, *state.as_checkpoint())
            raise
    return state.history()


@checks.checked
@one_thread
def train_many(
    experiments: Sequence[Experiment], *, threads: int = 1, progress: bool = False, **options: Any
) -> list[History]:
    """Train several experiments at once, with different heads, rates, starts, or parts of the runs axis.

    Experiments of one seed see the same prompts, so that differences between them are paired.

    Args:
        experiments: what to train.
        threads: how many at a time, >= 1.
        progress: show a progress bar.
        options: of `train`, except `checkpoint`.

    Returns:
        a `History` for each, in the same order.

    Raises:
        ValueError: a bad argument.
        TrainingDiverged: a loss is not finite.

    Source:
        this book.

    Example:
        >>> one, two = train_many([Experiment(heads=h, d=3, steps=20, records=4, runs=2) for h in (1, 2)])
        >>> one.mu.shape, two.mu.shape
        (torch.Size([2, 4, 1]), torch.Size([2, 4, 2]))
    """
    if not isinstance(experiments, Sequence) or not all(isinstance(one, Experiment) for one in experiments):
        raise ValueError(f"experiments must be a list of Experiment; got {shortened(experiments)}")
    checks.whole_number("threads", threads, at_least=1)
    options = {"threads": 1} | options
    found: dict[int, History] = {}
    with progress_bar(progress, len(experiments), "trainings", unit="training") as bar:

        def one(i: int) -> None:
            found[i] = train(experiments[i], **options)
            bar.update(1)

        on_threads(one, range(len(experiments)), threads)
    return [found[i] for i in range(len(experiments))]


@checks.checked
def load_history(path: Path) -> History:
    """Load a finished training from a checkpoint. Raises CheckpointError for a damaged, foreign or unfinished one."""
    tensors, settings = read_checkpoint(Path(path))
    experiment = _experiment_of(settings, Path(path))
    state = _State(experiment, *_progress_of(settings, experiment, Path(path)), tensors)
    if state.step < experiment.steps:
        raise CheckpointError(
            f"checkpoint {Path(path).name!r} holds {state.step} of {experiment.steps} steps: train it to its end first"
        )
    return state.history()


def _experiment_of(settings: dict[str, Any], path: Path) -> Experiment:
    try:
        return Experiment.from_record(settings["experiment"])
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"checkpoint {path.name!r} describes no experiment of this version ({error})") from None


def _progress_of(settings: dict[str, Any], experiment: Experiment, path: Path) -> tuple[str, int]:
    """Implementation and step. A file of somebody else's making may be sealed and say anything."""
    engine, step = settings.get("engine"), settings.get("step")
    if not isinstance(engine, str) or type(step) is not int or not 0 <= step <= experiment.steps:
        told = f"engine {engine!r} and step {step!r}"
        raise CheckpointError(
            f"checkpoint {path.name!r} must say who trained it, and a step of 0 ... {experiment.steps}; got {told}"
        )
    return engine, step


def made_with() -> dict[str, Any]:
    """Date and versions, for the files of a training."""
    names = ("attnlib", "numpy", "torch", "numba")
    found = {name: importlib.metadata.version(name) for name in names if importlib.util.find_spec(name) is not None}
    return {"date": datetime.date.today().isoformat(), "versions": {"python": platform.python_version(), **found}}


_MOMENTS = ("weights", "first_moment", "second_moment")
_LOSSES = "losses"
_RECORDS = ("key_query", "output_value", "loss", "loss_se")


@dataclass
class _State:
    """A training between two steps."""

    experiment: Experiment
    implementation: str
    step: int
    tensors: Arrays  # the flat state, the records so far, and the sums of the open window
    losses: list[Floats] = field(default_factory=list)  # (R, some) of a piece of work whose end adds them to the sums
    pace: int = _STEPS  # steps in so many seconds, as last seen
    about: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def start(experiment: Experiment, dtype: str, implementation: str) -> _State:
        e = experiment
        start = draw_weights(e.d, e.heads, e.start, e.seed, e.runs, e.first_run).flat()
        weights = np.ascontiguousarray(start.numpy().astype(dtype))
        lead, n = (e.runs, len(e.recorded_steps)), e.width
        tensors: Arrays = {
            "weights": weights,
            "first_moment": np.zeros_like(weights),
            "second_moment": np.zeros_like(weights),
        }
        tensors["key_query"] = np.full((*lead, e.heads, n, n), np.nan, dtype=dtype)
        tensors["output_value"] = np.full((*lead, e.heads, n), np.nan, dtype=dtype)
        tensors["loss"], tensors["loss_se"] = np.full(lead, np.nan), np.full(lead, np.nan)
        tensors["window"] = np.zeros((e.runs, 3))  # steps, sum and sum of squares of the losses since the last record
        state = _State(e, implementation, 0, tensors)
        state.tensors = state._recorded(0, tensors)
        return state

    @staticmethod
    def resume(experiment: Experiment, dtype: str, implementation: str, path: Path) -> _State:
        tensors, settings = read_checkpoint(path)
        found = _experiment_of(settings, path)
        if found != experiment:
            mine, theirs = experiment.as_record(), found.as_record()
            differing = "; ".join(f"{k}: {theirs[k]!r} there, {mine[k]!r} here" for k in mine if mine[k] != theirs[k])
            raise CheckpointError(
                f"checkpoint {path.name!r} belongs to another experiment ({differing}): choose another file"
            )
        engine, step = _progress_of(settings, experiment, path)
        fresh = _State.start(experiment, dtype, implementation).tensors
        if begun := step - max(step // GRID * GRID, *(s for s in experiment.recorded_steps if s <= step)):
            fresh[_LOSSES] = np.empty((experiment.runs, begun), dtype=dtype)
        for name, value in fresh.items():
            have = tensors.get(name)
            if have is None or have.shape != value.shape or have.dtype != value.dtype:
                got = "nothing" if have is None else f"{have.dtype} {have.shape}"
                raise CheckpointError(
                    f"checkpoint {path.name!r}: {name} must be {value.dtype} {value.shape}; got {got}: was it trained in another dtype?"
                )
        if engine != implementation:
            raise CheckpointError(
                f"checkpoint {path.name!r} was trained by the {engine} implementation, "
                f"this is {implementation}: the end would not be identical"
            )
        found_here = {name: tensors[name].copy() for name in fresh}
        losses = [found_here.pop(_LOSSES)] if begun else []
        return _State(experiment, implementation, step, found_here, losses)

    def advance(self, device: torch.device, threads: int | None) -> int:
        """Steps until the next record or the next multiple of 10 000; returns how many. An interruption leaves a whole state.

        A divergence leaves the state as it was.
        """
        e, begun, before = self.experiment, self.step, dict(self.__dict__)
        target = min(next(s for s in e.recorded_steps if s > begun), (begun // GRID + 1) * GRID)
        for first, last in in_calls(target - begun, self.pace, _SECONDS):
            start = time.perf_counter()
            # Weights and the optimiser's moments are stepped in copies.
            moments = {name: self.tensors[name].copy() for name in _MOMENTS}
            losses = self._steps(moments, last - first, device, threads)
            if not np.isfinite(losses).all():
                bad = ~np.isfinite(losses)
                at = int(bad.any(0).argmax())
                diverged = self.step + at, e.first_run + int(bad[:, at].argmax()), begun, e
                self.__dict__.update(before)
                raise TrainingDiverged(*diverged)
            now: dict[str, Any] = {
                "step": begun + last,
                "tensors": self.tensors | moments,
                "losses": [*self.losses, losses],
            }
            if now["step"] == target:
                now |= {"tensors": self._closed(**now), "losses": []}
            self.__dict__.update(now)  # all at once
            self.pace = int((last - first) * _SECONDS / max(time.perf_counter() - start, 1e-9))
        return target - begun

    def _closed(self, step: int, tensors: Arrays, losses: Sequence[Floats]) -> Arrays:
        """The tensors at the end of a piece of work, with its losses in the sums, and a record where this step has one."""
        # Steps, sum and sum of squares of the losses: their mean until the next record, and its standard error.
        seen = np.concatenate(losses, axis=1).astype(np.float64)
        window = np.stack([np.full(len(seen), seen.shape[1]), seen.sum(1), np.square(seen).sum(1)], axis=1)
        tensors = tensors | {"window": tensors["window"] + window}
        return self._recorded(step, tensors) if step in self.experiment.recorded_steps else tensors

    @functools.cached_property
    def _call(self) -> kernels.Call:
        """The whole training, which the kernel checks once."""
        e = self.experiment
        rates = np.broadcast_to(np.array(e.learning_rate), (e.runs,))
        return kernels.Call(
            d=e.d, heads=e.heads, length=e.law.length, batch=e.batch, seed=e.seed, streams=e.streams, first_step=0,
            steps=e.steps, beta_std=e.law.beta_std, noise_std=e.law.label_noise_std, target_noise_std=e.law.target_noise_std,
            optimiser=e.optimiser, learning_rate=rates, betas=e.betas, eps=e.eps, weight_decay=e.weight_decay or 0.0,
        )  # fmt: skip

    def _steps(self, moments: Arrays, steps: int, device: torch.device, threads: int | None) -> Floats:
        """Change the arrays of `moments` in place by so many steps; returns the losses (R, steps)."""
        state = [torch.from_numpy(array).to(device) for array in moments.values()]
        piece = self._call.piece(self.step, steps)
        seen = kernels.advance(piece, *state, threads=threads, implementation=self.implementation)
        for array, tensor in zip(moments.values(), state, strict=True):
            array[...] = tensor.cpu().numpy()  # the same memory on the CPU
        losses: Floats = seen.cpu().numpy()
        return losses

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

    def as_checkpoint(self) -> tuple[Arrays, dict[str, Any]]:
        settings = {"experiment": self.experiment.as_record(), "engine": self.implementation, "step": self.step}
        open_piece = {_LOSSES: np.concatenate(self.losses, axis=1)} if self.losses else {}
        return self.tensors | open_piece, settings | made_with() | {"about": self.about}

    def history(self) -> History:
        t = self.tensors
        recorded = Circuits(*(torch.from_numpy(t[name]).double() for name in ("key_query", "output_value")))
        loss, loss_se = (torch.from_numpy(t[name]) for name in ("loss", "loss_se"))
        steps = np.array(self.experiment.recorded_steps)
        return History(
            self.experiment, self.implementation, steps, recorded, loss, loss_se, {name: t[name] for name in _MOMENTS}
        )
