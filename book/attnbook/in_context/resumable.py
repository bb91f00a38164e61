"""Trainings that can be interrupted: the state goes to a file (`checkpoints`). A training that finds one goes on from it, bit for bit."""

import datetime
import importlib.metadata
import importlib.util
import platform
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from attnbook.in_context.checkpoints import CheckpointError, read_checkpoint, write_checkpoint
from attnlib import checks
from attnlib.arrays import Arrays
from attnlib.device import one_thread
from attnlib.extras import progress_bar
from attnlib.in_context.experiment import Experiment
from attnlib.in_context.training import MOMENTS, History, Training
from attnlib.kernels.batches import in_calls

_STEPS, _SECONDS = 100, 1.0  # until the first whole state, and between two later ones
_LOSSES = "losses"


@checks.checked
@one_thread
def train_resumable(
    experiment: Experiment,
    checkpoint: Path,
    *,
    progress: bool = False,
    watch: Callable[[int], None] | None = None,
    about: Mapping[str, str] | None = None,
    **options: Any,
) -> History:
    """Train as `attnlib.in_context.train` does, with the state in a file: interrupted anywhere, the training goes on bit for bit.

    The file is written every 10 000 steps and at the end, also when the training is interrupted or diverges. Ctrl-C is heard within
    about a second (a step of one run is the least piece), and the file then holds all but the last second's steps. Python ends at once on
    SIGTERM, and the file is that of the last 10 000 steps, unless the program says
    `signal.signal(signal.SIGTERM, signal.default_int_handler)`, as the command `attnlib train` does.

    Args:
        experiment: what to train; one layer, one output.
        checkpoint: a .safetensors file; if it exists, the training goes on from it and ends as if it had never stopped.
        progress: show a progress bar.
        watch: called with the number of finished steps before every piece of work; what it raises interrupts the training.
        about: words that are kept in the file beside the settings, such as the command that makes it.
        options: `dtype`, `implementation`, `device` and `threads` of `attnlib.in_context.train`.

    Returns:
        a `History`.

    Raises:
        ValueError: a bad argument, or a checkpoint of another experiment, before any work.
        CheckpointError: a checkpoint that cannot be read or written.
        TrainingDiverged: a loss is not finite.

    Source:
        this book.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     history = train_resumable(Experiment(d=3, steps=20, records=4, runs=2), folder + "/run.safetensors")
    """
    file = Path(checkpoint)
    training = Resumable(experiment, **options)
    training.about = dict(about or {})
    # A new training, or the one that the file holds.
    if file.exists():
        training.resume(file)
    else:
        training.write(file)  # a file that cannot be written is found now
    with progress_bar(progress, experiment.steps, f"{experiment.heads} heads", unit="step") as bar:
        bar.update(training.step)
        try:
            # Pieces of work; every 10 000 steps, at the end, and whatever happens, the state goes to the file.
            while training.step < experiment.steps:
                if watch is not None:
                    watch(training.step)
                bar.update(training.advance())
                if training.step % training.grid == 0 or training.step == experiment.steps:
                    training.write(file)
        except BaseException:
            training.write(file)
            raise
    return training.history()


@checks.checked
def load_history(path: Path) -> History:
    """A finished training from its file.

    Args:
        path: a file of `train_resumable`.

    Returns:
        a `History`.

    Raises:
        CheckpointError: the file is damaged, foreign or unfinished.

    Source:
        this book.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = train_resumable(Experiment(d=3, steps=20, records=4, runs=2), folder + "/run.safetensors")
        ...     history = load_history(folder + "/run.safetensors")
    """
    tensors, settings = read_checkpoint(Path(path))
    experiment = _experiment_of(settings, Path(path))
    training = Resumable.__new__(
        Resumable
    )  # the file's own state: nothing is drawn, and nobody asks who could go on with it
    training.experiment, training.tensors = experiment, tensors
    training.implementation, training.step = _progress_of(settings, experiment, Path(path))
    if training.step < experiment.steps:
        raise CheckpointError(
            f"checkpoint {Path(path).name!r} holds {training.step} of {experiment.steps} steps: train it to its end first"
        )
    return training.history()


class Resumable(Training):
    """A training that is whole at least once a second: an interruption leaves the state after so many steps."""

    def __init__(self, experiment: Experiment, **options: Any) -> None:
        super().__init__(experiment, **options)
        self.losses: list[np.ndarray] = []  # (R, some) of a piece of work whose end adds them to the sums
        self.pace = _STEPS  # steps in so many seconds, as last seen
        self.about: dict[str, str] = {}

    def resume(self, path: Path) -> None:
        """Go on with the training that the file holds. Raises CheckpointError where that is another one."""
        e = self.experiment
        tensors, settings = read_checkpoint(path)
        found = _experiment_of(settings, path)
        if found != e:
            mine, theirs = e.as_record(), found.as_record()
            differing = "; ".join(f"{k}: {theirs[k]!r} there, {mine[k]!r} here" for k in mine if mine[k] != theirs[k])
            raise CheckpointError(
                f"checkpoint {path.name!r} belongs to another experiment ({differing}): choose another file"
            )
        engine, step = _progress_of(settings, e, path)
        fresh = dict(self.tensors)
        if begun := step - max(step // self.grid * self.grid, *(s for s in e.recorded_steps if s <= step)):
            fresh[_LOSSES] = np.empty((e.runs, begun), dtype=fresh["weights"].dtype)
        for name, value in fresh.items():
            have = tensors.get(name)
            if have is None or have.shape != value.shape or have.dtype != value.dtype:
                got = "nothing" if have is None else f"{have.dtype} {have.shape}"
                raise CheckpointError(
                    f"checkpoint {path.name!r}: {name} must be {value.dtype} {value.shape}; got {got}: was it trained in another dtype?"
                )
        if engine != self.implementation:
            raise CheckpointError(
                f"checkpoint {path.name!r} was trained by the {engine} implementation, "
                f"this is {self.implementation}: the end would not be identical"
            )
        self.step, self.tensors = step, {name: tensors[name].copy() for name in fresh}
        self.losses = [self.tensors.pop(_LOSSES)] if begun else []

    def advance(self) -> int:
        """Steps until the next record or the next multiple of 10 000; returns how many. An interruption leaves a whole state.

        A divergence leaves the state as it was.
        """
        begun, end, before = self.step, self.next_end, dict(self.__dict__)
        for first, last in in_calls(end - begun, self.pace, _SECONDS):
            start = time.perf_counter()
            # Weights and the optimiser's moments are stepped in copies.
            moments = {name: self.tensors[name].copy() for name in MOMENTS}
            losses = self.make_steps(moments, last - first)
            try:
                self.require_finite(losses, begun)
            except BaseException:
                self.__dict__.update(before)
                raise
            now: dict[str, Any] = {
                "step": begun + last,
                "tensors": self.tensors | moments,
                "losses": [*self.losses, losses],
            }
            if now["step"] == end:
                now |= {"tensors": self.closed(end, now["tensors"], np.concatenate(now["losses"], 1)), "losses": []}
            self.__dict__.update(now)  # all at once
            self.pace = int((last - first) * _SECONDS / max(time.perf_counter() - start, 1e-9))
        return end - begun

    def write(self, path: Path) -> None:
        """The state to a file."""
        settings = {"experiment": self.experiment.as_record(), "engine": self.implementation, "step": self.step}
        open_piece: Arrays = {_LOSSES: np.concatenate(self.losses, axis=1)} if self.losses else {}
        write_checkpoint(path, self.tensors | open_piece, settings | made_with() | {"about": self.about})


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
