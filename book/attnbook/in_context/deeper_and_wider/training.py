r"""Trainings beyond the authors' main setting: by automatic differentiation, stored, and the command that makes them again.

    python -m attnbook.in_context.deeper_and_wider.training [NAME ...] [-o FILE]

| name | what is trained |
|---|---|
| `one layer`, `two layers`, `two tied layers`, `two layers, inclusive mask` | stacks with two heads a layer, on a small problem |
| `anisotropic` | four heads, covariates with covariance rho^abs(i-j) |
| `mean` | four heads, covariates with a mean |
| `2 heads, two tasks`, `3 heads, two tasks`, `4 heads, two tasks` | the authors' two overlapping tasks |

A stored training is used if every one of its settings is what is asked for, otherwise it is trained anew. The file is written whole
after every training; what is in it already is not trained again.

`train_deep` trains everything that the fast trainer does not know: stacks, several tasks, any covariates. R runs go side by side on a
leading axis: the loss is the sum over runs of each run's own batch mean, so a run's gradient is what it would be alone, and the
optimisers, which act entry by entry, keep the runs apart. Prompts come from the counter-based training stream
(`attnlib.kernels.prompt_stream`), many steps at once, through the law's `from_normals`; updates are torch.optim's. Any law will do that
has `from_normals`, `stream_size` or (d, length), and prompts with `context`, `query_token` and `targets`. Source: authors' code for loss
and optimisers; the batching is this book's.
"""

import argparse
import itertools
import json
import math
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch

from attnbook.files import read_arrays, require_writable, write_arrays
from attnbook.in_context.deeper_and_wider.multi_task import MultiTaskLaw
from attnbook.in_context.deeper_and_wider.stack import (
    StackWeights,
    initial_stack,
    prompt_tokens,
    run_stack,
    stack_of_circuits,
)
from attnbook.in_context.resumable import made_with
from attnbook.stored import seal, sealed
from attnlib.extras import progress_bar
from attnlib.in_context.circuits import Circuits
from attnlib.in_context.experiment import Experiment
from attnlib.in_context.law import RegressionLaw, toeplitz_covariance
from attnlib.in_context.training import TrainingDiverged
from attnlib.kernels import prompt_stream
from attnlib.kernels.dispatch import has_numba
from bookkit.parser import answered

TABLE = Path(__file__).parent / "tables" / "wider.npz"
TRAINING_SEED = 0  # of every training: the page's own seed is that of held-out prompts and of untrained starts
DEPTH_NAMES = ("one layer", "two layers", "two tied layers", "two layers, inclusive mask")
TASK_NAMES = ("2 heads, two tasks", "3 heads, two tasks", "4 heads, two tasks")
_NORMALS_AT_ONCE = 400_000  # 3 MB; prompts, tokens and casts take several times as much
_DTYPES = {"float32": torch.float32, "float64": torch.float64}


# --- the trainer -----------------------------------------------------------------------------------------------------------


def starting_stack(e: Experiment, mask="strict") -> StackWeights:
    """The weights at step 0, float64."""
    return initial_stack(
        e.d, e.heads, e.layers, e.start, outputs=e.outputs, weight_tying=e.weight_tying and e.layers > 1, mask=mask,
        seed=e.seed, runs=e.runs, first_run=e.first_run,
    )  # fmt: skip


def _normals_of(law):
    """(d, L): sizes of the single-task prompt whose normals a law uses."""
    return getattr(law, "stream_size", None) or (law.d, law.length)


def training_prompts(experiment: Experiment, law, first_step, steps, dtype="float32", *, compiled=True):
    """The prompts of some steps of a training, leading axes (steps, R), or (steps, 1) with shared data.

    float32 normals come from the compiled generator if that is wanted and can be; both agree within float32 rounding.
    """
    streams = experiment.streams[:1] if experiment.shared_data else experiment.streams
    d, length = _normals_of(law)
    origin = experiment.seed, streams, first_step, steps, experiment.batch
    if compiled and dtype == "float32" and has_numba():
        from attnlib.kernels.in_context.compiled import normals

        drawn = normals(*origin, d=d, length=length)
    else:
        drawn = prompt_stream.normals(*origin, prompt_stream.normals_per_prompt(d, length))
    return law.from_normals(np.moveaxis(drawn, 0, 1))


def train_deep(
    e: Experiment, law=None, *, mask="strict", dtype="float32", cooldown=0.0, compiled=True, progress=False
) -> SimpleNamespace:
    """Train R runs of a stack, recording circuits and losses at `e.recorded_steps`: K of them.

    Args:
        e: sizes, start, optimiser and steps. One learning rate for all runs.
        law: where prompts come from, of the experiment's d and number of outputs; None: the experiment's own law.
        mask: of the causal layers, "strict" or "inclusive".
        dtype: of weights and gradients, "float32" or "float64". Prompts and records are float64.
        cooldown: fraction of the steps, at the end, over which the learning rate falls linearly to 0; 0 is a constant rate.
        compiled: take float32 prompts from the compiled generator where numba is installed: faster, and 130 MB more memory.

    Returns the arrays of `Trained` by their names, and `stack`, the weights at the end, float64. Raises TrainingDiverged (which names
    step and run) when a loss is not finite, ValueError for an experiment that needs more memory or time than there is.
    """
    e.require_room()
    law = e.law if law is None else law
    stack = starting_stack(e, mask).to(_DTYPES[dtype])
    weights = tuple(tensor.clone().requires_grad_() for tensor in stack.trained)
    stack = stack.rebuilt(weights)
    optimiser = _optimiser(e, weights)

    def record():
        with torch.no_grad():
            return stack.to(torch.float64).circuits

    nothing = torch.full((e.runs,), math.nan, dtype=torch.float64)
    records, loss, loss_se = [record()], [nothing], [nothing]
    with progress_bar(progress, e.steps, "training", unit="step") as bar:
        for first, last in itertools.pairwise(e.recorded_steps):
            part = _steps(e, law, stack, weights, optimiser, first, last, dtype, cooldown, compiled)
            loss.append(part.mean(1))
            loss_se.append(part.std(1) / math.sqrt(part.shape[1]) if part.shape[1] > 1 else nothing)
            records.append(record())
            bar.update(last - first)
    key_query, output_value = (torch.stack(parts, 1) for parts in zip(*records, strict=True))
    end = stack.rebuilt(tuple(tensor.detach().clone() for tensor in weights)).to(torch.float64)
    return SimpleNamespace(
        steps=np.array(e.recorded_steps), loss=torch.stack(loss, 1), loss_se=torch.stack(loss_se, 1),
        key_query=key_query, output_value=output_value, final=end.final, stack=end,
    )  # fmt: skip


def _steps(e, law, stack, weights, optimiser, first, last, dtype, cooldown, compiled):
    """Updates first ... last - 1, in place. Returns losses (R, steps), float64."""
    per_step = (1 if e.shared_data else e.runs) * e.batch * prompt_stream.normals_per_prompt(*_normals_of(law))
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


def _optimiser(e, weights):
    """torch's own, one entry-wise update for all runs."""
    if e.optimiser == "SGD":
        return torch.optim.SGD(weights, lr=e.learning_rate, weight_decay=e.weight_decay)
    kind = {"Adam": torch.optim.Adam, "AdamW": torch.optim.AdamW}[e.optimiser]
    return kind(weights, lr=e.learning_rate, betas=e.betas, eps=e.eps, weight_decay=e.weight_decay)


# --- what is trained -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WiderSetting:
    """The parameters of the page."""

    d: int = 5
    length: int = 40
    noise_std: float = 0.01
    heads: int = 4  # of the models on other covariates; two heads are often trapped there
    batch: int = 128
    learning_rate: float = 1e-3
    optimiser: str = "Adam"
    steps: int = 12_000
    seed: int = 0  # of held-out prompts and untrained starts; trainings have `TRAINING_SEED`
    runs: int = 5
    rho: float = 0.5
    mean: float = 0.6  # every entry of m
    depth_d: int = 3
    depth_length: int = 24
    depth_heads: int = 2


@dataclass(frozen=True)
class Spec:
    """One training: everything that decides its numbers."""

    name: str
    experiment: Experiment
    law: RegressionLaw | MultiTaskLaw
    mask: str = "strict"
    cooldown: float = 0.0

    @property
    def key(self) -> str:
        """All settings as JSON: a stored training is the wanted one if and only if the keys are equal."""
        settings = {"experiment": self.experiment.as_record(), "law": asdict(self.law)}
        return json.dumps(settings | {"mask": self.mask, "cooldown": self.cooldown}, sort_keys=True)


def specs(s: WiderSetting = WiderSetting()) -> dict[str, Spec]:
    """Every training of the study by name."""
    common = {
        "noise_std": s.noise_std, "learning_rate": s.learning_rate, "optimiser": s.optimiser, "steps": s.steps,
        "seed": TRAINING_SEED, "runs": s.runs, "records": 28,
    }  # fmt: skip
    small = Experiment(d=s.depth_d, length=s.depth_length, heads=s.depth_heads, batch=max(1, s.batch // 2), **common)
    stacks = (
        (small, "strict"),
        (small.replace(layers=2), "strict"),
        (small.replace(layers=2, weight_tying=True), "strict"),
        (small.replace(layers=2), "inclusive"),
    )
    found = [Spec(name, e, small.law, mask, 0.25) for name, (e, mask) in zip(DEPTH_NAMES, stacks, strict=True)]
    full = Experiment(d=s.d, length=s.length, heads=s.heads, batch=s.batch, **common)
    laws = {
        "anisotropic": RegressionLaw(s.d, s.length, s.noise_std, covariance=toeplitz_covariance(s.d, s.rho)),
        "mean": RegressionLaw(s.d, s.length, s.noise_std, mean=(s.mean,) * s.d),
    }
    found += [Spec(name, full, law, cooldown=0.25) for name, law in laws.items()]
    tasks = MultiTaskLaw(noise_std=s.noise_std)
    for name in TASK_NAMES:
        wide = Experiment(d=tasks.d, length=tasks.length, outputs=2, heads=int(name[0]), batch=s.batch, **common)
        found.append(Spec(name, wide, tasks, cooldown=0.25))
    return {spec.name: spec for spec in found}


# --- stored trainings ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trained:
    """A training of R runs, from the file or fresh: K records of every layer's circuits and of the loss. Tensors are float64."""

    spec: Spec
    stored: bool
    steps: np.ndarray  # (K,): step s is the state after s updates
    loss: torch.Tensor  # (R, K): mean training loss over the steps since the previous record; nan at the first
    loss_se: torch.Tensor  # (R, K): its standard error
    key_query: torch.Tensor  # (R, K, layers, H, n, n)
    output_value: torch.Tensor  # (R, K, layers, H, written, n)
    final: torch.Tensor  # (R, outputs, written)

    def stack(self) -> StackWeights:
        """A stack with the circuits of the last record; tied layers are written out."""
        return stack_of_circuits(self.key_query[:, -1], self.output_value[:, -1], self.final, self.spec.mask)

    def circuits(self) -> Circuits:
        """(R, K, H, ...) of the first layer of a model with one output: V is what the last map reads of it."""
        return Circuits(self.key_query[:, :, 0], (self.final[:, None, None] @ self.output_value[:, :, 0])[..., 0, :])

    def maps(self) -> torch.Tensor:
        """(R, K, N, d, d): G_k = sum over heads of V_hk M_h^T on the covariates, what heads of small scale compute for task k."""
        d = self.spec.law.d
        labels = self.output_value[:, :, 0, :, :, d:].diagonal(dim1=-2, dim2=-1)  # V_hk: label k into answer k
        return torch.einsum("rchk,rchij->rckji", labels, self.key_query[:, :, 0, :, :d, :d])


_FIELDS = ("steps", "loss", "loss_se", "key_query", "output_value", "final")


def obtain(spec: Spec, *, progress=False, table: Path = TABLE) -> Trained:
    """The training of a spec, from the table if it is there, otherwise now: float32, minutes at full size, announced on stderr."""
    arrays = _read(table).get(spec.name)
    stored = arrays is not None and arrays["key"] == spec.key
    if not stored:
        lacks = "of these settings" if table.exists() else "at all, as the file is missing"
        print(
            f"{table.name} holds no training {spec.name!r} {lacks}: it is trained now, {spec.experiment.steps} steps, minutes at full "
            f"size. `python -m attnbook.in_context.deeper_and_wider.training {spec.name}` stores that of the page's settings",
            file=sys.stderr,
        )
        arrays = _made(spec, progress)
    steps, *tensors = (arrays[name] for name in _FIELDS)
    return Trained(spec, stored, steps, *(torch.as_tensor(array).double() for array in tensors))


def replay(trained: Trained, steps: int) -> tuple[float, int]:
    """Train the first recorded steps up to `steps` again: largest difference of any circuit entry, and the step compared.

    Rounding in float32 is amplified by training, so the agreement is close and not exact.
    """
    spec = trained.spec
    count = int((trained.steps <= steps).sum()) - 1
    last = int(trained.steps[count])
    if last == 0:
        return 0.0, 0
    short = spec.experiment.replace(steps=last, records=2)
    cooldown = spec.cooldown if last == spec.experiment.steps else 0.0  # it ends with the whole training
    again = train_deep(short, spec.law, mask=spec.mask, cooldown=cooldown, compiled=False)
    names = ("key_query", "output_value")
    gaps = [(getattr(again, name)[:, -1] - getattr(trained, name)[:, count]).abs().max().item() for name in names]
    return max(gaps), last


def _made(spec, progress):
    """The arrays of a training as the table holds them."""
    made = train_deep(spec.experiment, spec.law, mask=spec.mask, cooldown=spec.cooldown, progress=progress)
    arrays = {name: np.asarray(getattr(made, name)) for name in _FIELDS}
    return arrays | {name: arrays[name].astype(np.float32) for name in ("key_query", "output_value")}


def _read(path):
    """Every stored training by name; empty without a file. Raises ValueError for a file that is damaged or something else."""
    if not path.exists():
        return {}
    arrays = read_arrays(sealed(path), "table of trainings", "trainings")
    return {
        name: {field: arrays[f"{name}/{field}"] for field in (*_FIELDS, "key")}
        for name in json.loads(str(arrays["trainings"]))
    }


def _write(path, trainings):
    arrays = {f"{name}/{field}": np.asarray(value) for name, one in trainings.items() for field, value in one.items()}
    arrays |= {"trainings": np.array(json.dumps(list(trainings))), "made_with": np.array(json.dumps(made_with()))}
    write_arrays(path, compressed=True, **arrays)
    seal(path)


def main(arguments=None) -> int:
    """The command: train what the file lacks, in the page's setting."""
    known = specs()
    parser = argparse.ArgumentParser(
        prog="python -m attnbook.in_context.deeper_and_wider.training", description="Train and store."
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="trainings: " + ", ".join(known) + " (default: all)")
    parser.add_argument("-o", "--output", type=Path, default=TABLE, metavar="FILE", help="the table (an .npz file)")
    options = parser.parse_args(arguments)
    for name in options.names:
        if name not in known:
            parser.error(f"NAME must be one of {', '.join(known)}; got {name!r}")
    try:
        require_writable(options.output)
        trainings = _read(options.output)
    except ValueError as error:
        parser.error(str(error))
    torch.set_num_threads(1)  # two threads are slower than one on matrices of this size
    for name in options.names or known:
        spec = known[name]
        if name in trainings and trainings[name]["key"] == spec.key:
            print(f"{name}: stored already")
            continue
        print(f"{name}: {spec.experiment.steps} steps")
        trainings[name] = _made(spec, True) | {"key": spec.key}
        _write(options.output, {known_name: trainings[known_name] for known_name in known if known_name in trainings})
    return 0


if __name__ == "__main__":
    raise SystemExit(answered("training", main))
