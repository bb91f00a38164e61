r"""Two softmax heads trained on prompts of k tasks, and the best linear attention for the same tasks.

The heads are those of Part III with their matrices merged: $M_h$ is $(d+1)\times d$ (a last column meets a zero), $V_h$ has $d+1$ entries,

$$ \hat y=\sum_hV_h\cdot\sum_iz_i\,\mathrm{softmax}_i(z_i^\top M_hx_q),\qquad z_i=(\sqrt d\,x_i,y_i). $$

Training is Adam on a new batch of prompts in each step, all runs in one tensor program; so the number of prompts is not limited, and only
the number of tasks is. It starts from a small opposite pair. Source: the heads are those of arXiv 2503.12734; tasks and training are ours.
"""

import math
from types import SimpleNamespace

import numpy as np
import torch

from attnbook.finite_data import TaskLaw, best_attention, exact_error
from attnlib.in_context import Circuits, Prompts, predict
from attnlib.randomness import stream

HEADS = 2
RATE = 0.03  # of Adam at the start; it falls to zero along a cosine
BATCH = 64  # prompts of a step
START = 0.02  # standard deviation of the start's entries
AHEAD = 50  # steps whose prompts are drawn at once


def imbalance_of(circuits):
    """(R,): |mu_1 + mu_2| / (|mu_1| + |mu_2|): 0 for an opposite pair, 1 for two heads of one sign."""
    return circuits.mu.sum(-1).abs() / circuits.mu.abs().sum(-1)


def pattern_of(circuits):
    """(R,): fraction of the squared norm of M_h, without the column that has no effect, that is in omega I; mean over heads."""
    used = circuits.key_query[..., : circuits.d]
    return (circuits.d * circuits.omega.square() / used.square().sum((-1, -2))).mean(-1)


def softmax_rows(counts, *, d, length, noise, draws, steps, prompts, seed):
    """Train R runs at each number of tasks, all together, and measure them on `prompts` prompts each.

    By number of tasks: errors of the trained heads on seen and on fresh tasks, and (exact) of the best linear attention for the same tasks,
    linear_seen and linear_fresh; imbalance and pattern of the heads; log_ratio, of the error on fresh tasks over that of linear attention:
    all (R,).
    """
    laws = [TaskLaw(d, length, k, noise) for k in counts]
    known = [law.draw_tasks(seed, runs=draws, first_run=place * draws) for place, law in enumerate(laws)]
    padded = torch.cat([torch.nn.functional.pad(tasks, (0, 0, 0, max(counts) - tasks.shape[1])) for tasks in known])
    circuits = train_heads(padded, [k for k in counts for _ in range(draws)], laws[0], steps=steps, seed=seed)
    rows, unit = {}, math.sqrt(d)
    for place, (law, tasks) in enumerate(zip(laws, known, strict=True)):
        mine = circuits[place * draws : (place + 1) * draws]
        same, errors = {"runs": draws, "first_run": place * draws}, []
        for chosen in (tasks, None):
            drawn = law.draw_prompts(prompts, seed, **same, task_vectors=chosen)
            given = Prompts(unit * drawn.x, drawn.y, unit * drawn.query, drawn.target, drawn.task / unit)
            errors.append((predict(mine, given) - drawn.target).square().mean(-1))
        best = best_attention(law, tasks)
        rows[law.tasks] = row = SimpleNamespace(tasks=law.tasks, imbalance=imbalance_of(mine), pattern=pattern_of(mine))
        row.seen, row.fresh = errors
        row.linear_seen, row.linear_fresh = exact_error(best, law, tasks), exact_error(best, law)
        row.log_ratio = (row.fresh / row.linear_fresh).log()
    return rows


def train_heads(known, counts, law, *, steps, seed) -> Circuits:
    """Circuits of R pairs after training; run r picks among the first counts[r] of its tasks known[r], (R, at least counts[r], d)."""
    runs, _, d = known.shape
    starts = np.stack([stream(seed, "start", run).standard_normal((HEADS, d + 1, d + 1)) for run in range(runs)])
    start = START * torch.as_tensor(starts)
    sign = torch.tensor([1.0, -1.0], dtype=torch.float64)[:, None, None]
    key = start[..., :d].clone()
    key[..., :d, :] += 0.1 * sign * torch.eye(d, dtype=torch.float64)
    value = start[..., d].clone()
    value[..., d] += 0.5 * sign[:, 0, 0]
    key.requires_grad_()
    value.requires_grad_()
    optimiser = torch.optim.Adam([key, value], lr=RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    randoms = [stream(seed, "batches", run) for run in range(runs)]
    for first in range(0, steps, AHEAD):
        for context, query, target in _batches(known, counts, law, randoms, min(AHEAD, steps - first)):
            scores = torch.einsum("rhij,rbj->rbhi", key, query) @ context.mT
            written = (context @ value.mT[:, None]).mT
            predicted = (torch.softmax(scores, dim=-1) * written).sum((-1, -2))
            optimiser.zero_grad()
            (predicted - target).square().mean(-1).sum().backward()
            optimiser.step()
            schedule.step()
    padded = torch.nn.functional.pad(key.detach(), (0, 1))  # the column that meets the zero of the query token
    return Circuits(padded, value.detach())


def _batches(known, counts, law, randoms, steps):
    """Tokens (R, B, l, d+1), queries (R, B, d) and targets (R, B) of the next steps."""
    d, length = law.d, law.length
    shape = (steps, BATCH)
    picks = np.stack([random.integers(0, k, shape) for random, k in zip(randoms, counts, strict=True)])
    normal = np.stack([random.standard_normal((*shape, length + 1, d + 1)) for random in randoms])
    task = known.numpy()[np.arange(len(counts))[:, None, None], picks] / math.sqrt(d)
    x = normal[..., :d]
    normal[..., d] = np.einsum("rsbld,rsbd->rsbl", x, task) + math.sqrt(law.noise) * normal[..., d]
    tokens = torch.as_tensor(normal)
    return [(tokens[:, s, :, :length], tokens[:, s, :, length, :d], tokens[:, s, :, length, d]) for s in range(steps)]
