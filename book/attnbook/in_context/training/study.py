r"""What the page on training measures: held-out risks along a training, the start, the pace, optimisers, resuming, published prints.

*Held out* means: the recorded circuits, judged on prompts of a stream that no training uses, with everything integrated by hand that
can be (`risk`). No number here is the loss of a single batch, except where the noise of a single batch is the subject.
"""

import math
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from attnbook.in_context import full_runs
from attnbook.in_context.checkpoints import read_checkpoint, write_checkpoint
from attnbook.in_context.heads_study import average_circuits, sharp_risk, untrapped
from attnbook.in_context.resumable import train_resumable
from attnbook.in_context.trap_study import TrapRuns, stored_table
from attnlib import checks
from attnlib.in_context.circuits import Circuits, circuits_of, predict
from attnlib.in_context.experiment import OPTIMISERS, Experiment
from attnlib.in_context.law import RegressionLaw
from attnlib.in_context.model import initial_weights
from attnlib.in_context.risk import risk_of
from attnlib.in_context.training import History, train

_LATE = 5  # records over which the end is averaged


# --- reading a history -------------------------------------------------------------------------------------------------------


def thinned(history: History, every: int) -> tuple[np.ndarray, Circuits]:
    """Every `every`-th record and the last: steps (K',) and circuits (R, K', ...)."""
    kept = sorted(
        {*range(0, len(history.steps), checks.whole_number("every", every, at_least=1)), len(history.steps) - 1}
    )
    return history.steps[kept], history.circuits[:, kept]


def sign_agreement(history: History) -> torch.Tensor:
    r"""(R, K): fraction of heads with $\mathrm{sign}\,\omega_h=\mathrm{sign}\,\mu_h$."""
    return (history.omega * history.mu > 0).double().mean(-1)


def first_below(steps: np.ndarray, values: torch.Tensor, level: float) -> torch.Tensor:
    """(R,): step at which values (R, K) first reach `level`, interpolated in log(step) between two records; nan if never."""
    found = torch.full((len(values),), math.nan, dtype=torch.float64)
    for run, row in enumerate(values.tolist()):
        below = [k for k, value in enumerate(row) if value <= level]
        if below and below[0] > 1:
            k = below[0]
            part = (row[k - 1] - level) / (row[k - 1] - row[k])
            found[run] = math.exp(math.log(steps[k - 1]) + part * math.log(steps[k] / steps[k - 1]))
        elif below:
            found[run] = float(steps[below[0]])
    return found


def mean_late_loss(history: History, records: int = _LATE) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean training loss (R,) over the steps of the last windows, and its standard error (R,)."""
    counts = torch.from_numpy(np.diff(history.steps)[-records:].astype(float))
    share = counts / counts.sum()
    mean = (history.loss[:, -records:] * share).sum(-1)
    return mean, ((history.loss_se[:, -records:] * share).square().sum(-1)).sqrt()


def batch_losses(
    circuits: Circuits, law: RegressionLaw, batch: int, count: int, *, seed: int = 0, run: int = 0
) -> torch.Tensor:
    """(..., count): what `count` validations on one batch each say of the same circuits. Batch k is stream (seed, "test", run + k)."""
    losses = []
    for number in range(run, run + checks.whole_number("count", count, at_least=1)):
        prompts = law.draw(batch, seed, run=number)
        losses.append((predict(circuits, prompts) - prompts.target).square().mean(-1))
    return torch.stack(losses, -1)


# --- the start -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LinearStart:
    """Two numbers per head under the linearised equations of a start, by runs (R, K, H), and each head's own growth rate (R, H)."""

    steps: np.ndarray
    omega: torch.Tensor
    mu: torch.Tensor
    rate: torch.Tensor  # per step


def linear_start(experiment: Experiment, steps: np.ndarray) -> LinearStart:
    r"""SGD near a start: the two numbers of every head, to first order. No fitted number.

    A step on $W_Q$, $W_K$ moves $\omega_h$ by $a_h\,\mu_h$, one on $W_V$, $W_O$ moves $\mu_h$ by $b_h(d\,\omega_h-\sum_k\kappa_{hk}\mu_k)$,

    $$ a_h = 2\gamma f\,\frac{\overline{(W_K^\top W_K+W_Q^\top W_Q)_{ii}}}{n}, \qquad
       b_h = 2\gamma f\,\big[(W_V^\top W_V)_{nn}+|W_O|^2\big], \qquad f=s_\beta^2\frac{L-1}L, $$
    $$ \kappa_{hk} = \frac{d+s_2}{L-1}+s_\beta^2\,d(d+2)\,r_h\cdot r_k, $$

    $\gamma$ the learning rate, the bar a mean over the first d entries, $r_h$ the label row of $M_h$: a score that looks at labels makes
    them write their own square, $|\beta|^2\,r_h\cdot x_q$ per unit of $\mu_h$, which costs. Alone and without $\kappa$ a head grows like
    $e^{\sqrt{d\,a_hb_h}\,t}$, along the direction in which $\omega_h$ and $\mu_h$ have one sign. All other entries stay as they are drawn;
    what couples them to these, off-diagonal entries of $W^\top W$, has mean zero over starts and is left out. Source: derived here.
    Raises ValueError for another optimiser than SGD.
    """
    e = experiment
    if e.optimiser != "SGD":
        raise ValueError(
            f"optimiser must be 'SGD'; got {e.optimiser!r}: the steps of the others are not linear in the gradient"
        )
    weights = initial_weights(e.d, e.heads, e.start, seed=e.seed, runs=e.runs, first_run=e.first_run)
    rates = np.broadcast_to(np.asarray(e.learning_rate, dtype=float), (e.runs,))
    pace = 2 * torch.tensor(rates.copy())[:, None] * e.law.beta_std**2 * (e.length - 1) / e.length
    key_query = sum(w.square().sum(-2)[..., : e.d].mean(-1) for w in (weights.key, weights.query)) / e.width
    a = pace * key_query
    b = pace * (weights.value[..., -1].square().sum(-1) + weights.output.square().sum(-1))
    now = circuits_of(weights)
    start = torch.cat([now.omega, now.mu], -1)  # (R, 2H)
    eye = torch.eye(e.heads, dtype=torch.float64)
    label = e.law.beta_std**2 * e.d * (e.d + 2) * now.label_row @ now.label_row.mT  # (R, H, H)
    coupling = e.d * eye, label + (e.d + e.law.noise_variance) / max(e.length - 1, 1)
    zero = torch.zeros(e.runs, e.heads, e.heads, dtype=torch.float64)
    upper = torch.cat([zero, torch.diag_embed(a)], -1)
    lower = torch.cat([b[..., None] * coupling[0], -b[..., None] * coupling[1]], -1)
    matrix = torch.cat([upper, lower], -2)  # d/dt (omega, mu) = matrix (omega, mu)
    path = torch.stack([(torch.matrix_exp(matrix * float(t)) @ start[..., None])[..., 0] for t in steps], 1)
    return LinearStart(np.asarray(steps), path[..., : e.heads], path[..., e.heads :], (e.d * a * b).sqrt())


# --- interrupting and going on -----------------------------------------------------------------------------------------------


def interrupt_after(pieces: int) -> Callable[[int], None]:
    """For `train(..., watch=)`: interrupts as the keyboard does, before piece of work number `pieces` + 1."""
    left = iter(range(checks.whole_number("pieces", pieces, at_least=0)))

    def watch(done: int) -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt

    return watch


@dataclass(frozen=True)
class Resumed:
    """The same training twice: at one go, and interrupted after some records and taken up again."""

    whole: History
    resumed: History
    forgetful: History  # resumed with Adam's averages set to zero, as from a file of the weights alone
    interrupted_at: int  # step

    def numbers(self, history: History) -> torch.Tensor:
        """Everything a training leaves behind as one vector, float64: final state, records, losses."""
        parts = [
            *history.state.values(),
            history.circuits.key_query,
            history.circuits.output_value,
            history.loss[:, 1:],
        ]
        return torch.cat([torch.as_tensor(part).double().flatten() for part in parts])

    def differing(self, history: History | None = None) -> int:
        """How many of these numbers differ from those of the training at one go. 0: no bit differs."""
        return int((self.numbers(self.whole) != self.numbers(history or self.resumed)).sum())


def resume_study(experiment: Experiment, pieces: int) -> Resumed:
    """Train at one go; train with an interruption and resume from the checkpoint that it left. Needs safetensors."""
    whole = train(experiment)
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{name}.safetensors" for name in ("run", "forgetful")]
        try:
            train_resumable(experiment, paths[0], watch=interrupt_after(pieces))
        except KeyboardInterrupt:
            pass
        tensors, settings = read_checkpoint(paths[0])
        forgotten = {name: np.zeros_like(value) for name, value in tensors.items() if name.endswith("_moment")}
        write_checkpoint(paths[1], tensors | forgotten, settings)
        resumed, forgetful = (train_resumable(experiment, path) for path in paths)
    return Resumed(whole, resumed, forgetful, settings["step"])


# --- everything the page and its claims look at --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Watched:
    """A training with the held-out risk of some of its records."""

    history: History
    steps: np.ndarray  # (K',)
    risk: torch.Tensor  # (R, K')
    risk_se: torch.Tensor  # (R, K'), of the prompts, which all records share

    @property
    def final_risk(self) -> torch.Tensor:
        return self.risk[:, -1]


def watch(history: History, *, every: int = 1, prompts: int = 1000, seed: int = 0) -> Watched:
    """Held-out risk of every `every`-th record, on `prompts` prompts that all records and runs share."""
    steps, circuits = thinned(history, every)
    parts = []  # a few models at a time: little memory
    for first in range(0, history.experiment.runs, 4):
        some = circuits[first : first + 4, : len(steps)]
        parts.append(risk_of(some, history.experiment.law, prompts=prompts, seed=seed))
    return Watched(history, steps, *(torch.cat(values) for values in zip(*parts, strict=True)))


@dataclass(frozen=True)
class Late:
    """The end of long trainings over K records: U runs whose heads cancel. Risks of all on the same draws."""

    loss: torch.Tensor  # (U,): mean training loss over the last windows
    loss_se: torch.Tensor
    risk: torch.Tensor  # (U,): mean risk of the last records
    average_risk: torch.Tensor  # (U,): risk of their average circuits
    draws_se: torch.Tensor  # (U,): standard error of the latter; the draws are shared by all runs
    records: int  # K

    @property
    def jitter(self) -> torch.Tensor:
        """(U,): what the circuits' jitter costs, K/(K-1) (risk - average_risk): an average of K still carries 1/K of it."""
        return self.records / (self.records - 1) * (self.risk - self.average_risk)

    @property
    def floor(self) -> torch.Tensor:
        """(U,): risk without jitter."""
        return self.risk - self.jitter


def late(history: History, *, prompts: int = 2000, seed: int = 0, records: int = _LATE) -> Late:
    """The last `records` records of the runs that are not trapped."""
    kept = untrapped(history)
    circuits, average = history.circuits[kept, -records:], average_circuits(history, records)[kept]
    joined = Circuits(
        torch.cat([circuits.key_query, average.key_query[:, None]], 1),
        torch.cat([circuits.output_value, average.output_value[:, None]], 1),
    )
    risk, error = sharp_risk(joined, history.experiment.law, prompts=prompts, seed=seed)
    loss, loss_se = mean_late_loss(history, records)
    return Late(loss[kept], loss_se[kept], risk[:, :-1].mean(1), risk[:, -1], error[:, -1], records)


@dataclass(frozen=True)
class TrainingStudy:
    """Everything the page on training and its claims look at."""

    live: Watched
    optimisers: dict[str, Watched]  # by name, from the same starts on the same data
    sgd_start: LinearStart  # of the SGD training
    full: dict[int, Watched]  # the stored trainings of one and of two heads, on prompts that are the same at every seed
    # (count,): one-batch validations of the first untrapped end of the stored two-head trainings
    validations: torch.Tensor
    resumed: Resumed
    starts: TrapRuns  # two heads, hundreds of starts, each with its own data
    late: Late  # the stored two-head trainings at their end

    @property
    def law(self) -> RegressionLaw:
        return self.live.history.experiment.law


def training_study(experiment: Experiment) -> TrainingStudy:
    """Train and collect; the other optimisers repeat the experiment. Raises ValueError for anything but an `Experiment`."""
    if not isinstance(experiment, Experiment):
        raise ValueError(f"experiment must be an Experiment; got {type(experiment).__name__}")
    seed, e = experiment.seed, experiment.replace(weight_decay=None)  # each optimiser's own default
    full = {heads: full_runs.load(heads) for heads in (1, 2)}
    trained = {name: train(e.replace(optimiser=name)) for name in dict.fromkeys((e.optimiser, *OPTIMISERS))}
    watched = {name: watch(history, seed=seed) for name, history in trained.items()}
    live, two = watched[e.optimiser], full[2]
    first = live.history.steps[live.history.steps <= max(1, e.steps // 12)]
    return TrainingStudy(
        live, {name: watched[name] for name in OPTIMISERS}, linear_start(e.replace(optimiser="SGD"), first),
        {heads: watch(history, every=2) for heads, history in full.items()},
        batch_losses(average_circuits(two)[int(untrapped(two).int().argmax())], two.experiment.law, two.experiment.batch,
                     400, seed=seed, run=1),
        resume_study(e.replace(runs=1, steps=min(e.steps, 3000), records=20), 11),
        stored_table().by_heads[2], late(two, seed=seed),
    )  # fmt: skip
