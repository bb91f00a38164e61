r"""What III.2 measures: held-out risks along a training, the start, the pace, optimisers, resuming, published prints.

*Held out* means: the recorded circuits, judged on prompts of a stream that no training uses, with everything integrated by hand that
can be (`risk`). No number here is the loss of a single batch, except where the noise of a single batch is the subject.
"""

import math
import tempfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch

from attnbook.in_context import full_runs
from attnbook.in_context.checkpoints import read_checkpoint, write_checkpoint
from attnbook.in_context.ends import ACTIVE, LATE, average_circuits, sharp_risk, untrapped
from attnbook.in_context.published import PUBLISHED_STEPS
from attnbook.in_context.resumable import train_resumable
from attnbook.in_context.trap_study import stored_table
from attnlib.in_context.circuits import Circuits, circuits_of, predict
from attnlib.in_context.errors import risk_of
from attnlib.in_context.experiment import OPTIMISERS, Experiment
from attnlib.in_context.law import RegressionLaw
from attnlib.in_context.model import initial_weights
from attnlib.in_context.training import History, train

MATCHED = 150  # step at which signs are compared


# --- reading a history -------------------------------------------------------------------------------------------------------


def thinned(history: History, every) -> tuple[np.ndarray, Circuits]:
    """Every `every`-th record and the last: steps (K',) and circuits (R, K', ...)."""
    kept = sorted({*range(0, len(history.steps), every), len(history.steps) - 1})
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


def mean_late_loss(history: History, records=LATE) -> torch.Tensor:
    """Mean training loss (R,) over the steps of the last windows."""
    counts = torch.from_numpy(np.diff(history.steps)[-records:].astype(float))
    return (history.loss[:, -records:] * (counts / counts.sum())).sum(-1)


def batch_losses(circuits: Circuits, law: RegressionLaw, batch, count, *, seed=0, run=0) -> torch.Tensor:
    """(..., count): what `count` validations on one batch each say of the same circuits. Batch k is stream (seed, "test", run + k)."""
    losses = []
    for number in range(run, run + count):
        prompts = law.draw(batch, seed, run=number)
        losses.append((predict(circuits, prompts) - prompts.target).square().mean(-1))
    return torch.stack(losses, -1)


# --- the start -------------------------------------------------------------------------------------------------------------


def linear_start(e: Experiment, steps: np.ndarray) -> SimpleNamespace:
    r"""SGD near a start: the two numbers of every head, to first order. No fitted number.

    A step on $W_Q$, $W_K$ moves $\omega_h$ by $a_h\,\mu_h$, one on $W_V$, $W_O$ moves $\mu_h$ by $b_h(d\,\omega_h-\sum_k\kappa_{hk}\mu_k)$,

    $$ a_h = 2\gamma f\,\frac{\overline{(W_K^\top W_K+W_Q^\top W_Q)_{ii}}}{n}, \qquad
       b_h = 2\gamma f\,\big[(W_V^\top W_V)_{nn}+|W_O|^2\big], \qquad f=s_\beta^2\frac{L-1}L, $$
    $$ \kappa_{hk} = \frac{d+s_2}{L-1}+s_\beta^2\,d(d+2)\,r_h\cdot r_k, $$

    $\gamma$ the learning rate, the bar a mean over the first d entries, $r_h$ the label row of $M_h$: a score that looks at labels makes
    them write their own square, $|\beta|^2\,r_h\cdot x_q$ per unit of $\mu_h$, which costs. Alone and without $\kappa$ a head grows like
    $e^{\sqrt{d\,a_hb_h}\,t}$, along the direction in which $\omega_h$ and $\mu_h$ have one sign. All other entries stay as they are drawn;
    what couples them to these, off-diagonal entries of $W^\top W$, has mean zero over starts and is left out. Source: derived here.

    Returns `omega` and `mu` (R, K, H) at the steps.
    """
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
    omega, mu = path[..., : e.heads], path[..., e.heads :]
    return SimpleNamespace(steps=steps, omega=omega, mu=mu)


# --- interrupting and going on -----------------------------------------------------------------------------------------------


def interrupt_after(pieces):
    """For `train_resumable(..., watch=)`: interrupts as the keyboard does, before piece of work number `pieces` + 1."""
    left = iter(range(pieces))

    def watch(done):
        if next(left, None) is None:
            raise KeyboardInterrupt

    return watch


def everything(history: History) -> torch.Tensor:
    """What a training leaves behind as one vector, float64: final state, records, losses."""
    circuits = history.circuits
    parts = [*history.state.values(), circuits.key_query, circuits.output_value, history.loss[:, 1:]]
    return torch.cat([torch.as_tensor(part).double().flatten() for part in parts])


def resume_study(experiment: Experiment, pieces) -> SimpleNamespace:
    """The same training at one go, and interrupted after some pieces of work and taken up again. Needs safetensors.

    `resumed` goes on from the checkpoint that the interruption left, `forgetful` from one with Adam's averages set to zero, as a file of
    the weights alone would have; `differing`: how many of the numbers that they leave behind (`everything`) differ from those of the
    training at one go, by name. 0: no bit differs.
    """
    s = SimpleNamespace(whole=train(experiment))
    with tempfile.TemporaryDirectory() as folder:
        paths = {name: Path(folder) / f"{name}.safetensors" for name in ("resumed", "forgetful")}
        try:
            train_resumable(experiment, paths["resumed"], watch=interrupt_after(pieces))
        except KeyboardInterrupt:
            pass
        tensors, settings = read_checkpoint(paths["resumed"])
        forgotten = {name: np.zeros_like(value) for name, value in tensors.items() if name.endswith("_moment")}
        write_checkpoint(paths["forgetful"], tensors | forgotten, settings)
        ends = {name: train_resumable(experiment, path) for name, path in paths.items()}
    s.interrupted_at = settings["step"]
    s.differing = {name: int((everything(s.whole) != everything(end)).sum()) for name, end in ends.items()}
    return s


# --- everything the page and its claims look at --------------------------------------------------------------------------------


def watch(history: History, *, every=1, prompts=1000, seed=0) -> SimpleNamespace:
    """Held-out risk (R, K') of every `every`-th record, on `prompts` prompts that all records and runs share."""
    steps, circuits = thinned(history, every)
    parts = []  # a few models at a time: little memory
    for first in range(0, history.experiment.runs, 4):
        some = circuits[first : first + 4, : len(steps)]
        parts.append(risk_of(some, history.experiment.law, prompts=prompts, seed=seed)[0])
    return SimpleNamespace(history=history, steps=steps, risk=torch.cat(parts))


def cost_of_jitter(risk, average_risk, records):
    """What the jitter of K records costs, K/(K-1) (risk - average_risk): an average of K circuits still carries 1/K of it."""
    return records / (records - 1) * (risk - average_risk)


def late(history: History, *, prompts=2000, seed=0, records=LATE) -> SimpleNamespace:
    """The last records of the U runs that are not trapped, (U,) each; risks of all on the same draws.

    loss: mean training loss over the last windows; jitter: what the circuits' jitter costs; floor: the mean risk without it.
    """
    kept = untrapped(history)
    circuits, average = history.circuits[kept, -records:], average_circuits(history, records)[kept]
    joined = Circuits(
        torch.cat([circuits.key_query, average.key_query[:, None]], 1),
        torch.cat([circuits.output_value, average.output_value[:, None]], 1),
    )
    risk, _ = sharp_risk(joined, history.experiment.law, prompts=prompts, seed=seed)
    mean, loss = risk[:, :-1].mean(1), mean_late_loss(history, records)[kept]
    jitter = cost_of_jitter(mean, risk[:, -1], records)
    return SimpleNamespace(loss=loss, jitter=jitter, floor=mean - jitter)


def _signs(starts, histories):
    """Share of heads of each run whose two numbers have one sign: of hundreds of starts, and at the end of the stored trainings."""
    matched = torch.from_numpy(starts.omega * starts.mu > 0).double()  # (R, K, H)
    ends = [history.final for history in histories]
    faint = [((end.omega * end.mu > 0) | (end.mu.abs() < ACTIVE)).double().mean(-1) for end in ends]
    start, early = (matched[:, starts.at(step)].mean(-1) for step in (0, MATCHED))
    return SimpleNamespace(start=start, early=early, end=torch.cat(faint))


def _pace(seen):
    """Of runs whose heads cancel: the step at which the risk reaches 0.69 (U,), and mean |omega| (U, K) at the recorded steps (K,)."""
    history, kept = seen.history, untrapped(seen.history)
    reached = first_below(seen.steps, seen.risk[kept], 0.69)
    return SimpleNamespace(reached=reached, steps=history.steps, size=history.omega.abs().mean(-1)[kept])


def _losses(history):
    """Runs whose heads cancel: their mean loss at the published steps after the start (10,), and the noise of one batch's loss.

    The latter is a standard deviation at the end, from the last window of every run.
    """
    kept, count = untrapped(history), history.steps[-1] - history.steps[-2]
    at = [history.at(int(step)) for step in PUBLISHED_STEPS[1:]]
    return history.loss[kept].mean(0)[at], (history.loss_se[kept, -1] * math.sqrt(count)).mean()


def training_study(experiment: Experiment) -> SimpleNamespace:
    """Train and collect; the other optimisers repeat the experiment, from the same starts on the same data."""
    seed, e = experiment.seed, experiment.replace(weight_decay=None)  # each optimiser's own default
    full = {heads: full_runs.load(heads) for heads in (1, 2)}
    trained = {name: train(e.replace(optimiser=name)) for name in dict.fromkeys((e.optimiser, *OPTIMISERS))}
    watched = {name: watch(history, seed=seed) for name, history in trained.items()}
    s = SimpleNamespace(law=e.law, live=watched[e.optimiser], optimisers={name: watched[name] for name in OPTIMISERS})
    steps = s.live.history.steps
    s.sgd_start = linear_start(e.replace(optimiser="SGD"), steps[steps <= max(1, e.steps // 12)])
    # The stored trainings of one and of two heads, on prompts that are the same at every seed.
    s.full = {heads: watch(history, every=2) for heads, history in full.items()}
    two = full[2]
    first = average_circuits(two)[int(untrapped(two).int().argmax())]
    s.validations = batch_losses(first, two.experiment.law, two.experiment.batch, 400, seed=seed, run=1)
    s.resumed = resume_study(e.replace(runs=1, steps=min(e.steps, 3000), records=20), 11)
    s.starts = stored_table().by_heads[2]  # hundreds of starts, each with its own data
    s.late = late(two, seed=seed)
    s.signs, s.pace = _signs(s.starts, full.values()), _pace(s.full[2])
    s.losses, s.noise = zip(*map(_losses, full.values()), strict=True)  # of one head and of two
    return s
