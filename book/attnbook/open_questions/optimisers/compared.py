r"""Update rules side by side: the same training sets, steps of matched length, errors at matched moments.

Every rule starts from zero, where the first step of v has the direction of $S = \sum_i y_i\sum_t x_{it}$ (or of its signs). Step sizes
are matched there: a rule of *unit step* moves v by the length that gradient descent with $\beta = 5n/d$ does, one of *step/10* by a tenth
of it. Errors are compared at three moments: the first step at which every label is fitted, the first at which the train loss is
at most 0.01, and the last one. Rules that commute with rotations train in reduced coordinates, sign descent and Adam on
`signs.dense_copy` of the same samples.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from attnbook.open_questions.optimisers.signs import dense_copy
from attnbook.open_questions.outcomes import matched_step
from attnbook.single_head.long_run import class_attention, log_steps
from attnlib.single_head.law import Sample
from attnlib.single_head.population import log10_clean_error
from attnlib.single_head.rules import (
    BLOCK_NORMALISED,
    GRADIENT_DESCENT,
    NORMALISED,
    SIGN_DESCENT,
    Rule,
    adam,
    heavy_ball,
    nesterov,
    stochastic,
)
from attnlib.single_head.training import Trajectory, train_heads

LOSS = 0.01  # the second moment of comparison


@dataclass(frozen=True)
class Entry:
    """A rule with its step, in units of gradient descent's first step, and its number of steps."""

    name: str
    rule: Rule
    step: float
    steps: int
    basis: str = ""  # of the signals, for rules that need dense vectors


LINE_UP = (
    Entry("gradient descent", GRADIENT_DESCENT, 1, 2000),
    Entry("heavy ball, step/10", heavy_ball(0.9), 0.1, 2000),
    Entry("Nesterov, step/10", nesterov(0.9), 0.1, 2000),
    Entry("normalised, step/10", NORMALISED, 0.1, 2000),
    Entry("normalised", NORMALISED, 1, 300),
    Entry("block-normalised, step/10", BLOCK_NORMALISED, 0.1, 300),
    Entry("batches of 10", stochastic(10), 1, 2000),
    Entry("batches of 1, step/10", stochastic(1), 0.1, 5000),
    Entry("sign, random, step/10", SIGN_DESCENT, 0.1, 100, "random"),
    Entry("Adam, random, step/10", adam(), 0.1, 120, "random"),
    Entry("sign, axis, step/10", SIGN_DESCENT, 0.1, 60, "axis"),
    Entry("Adam, axis, step/10", adam(), 0.1, 100, "axis"),
)


@dataclass(frozen=True)
class Milestones:
    """log10 clean errors (R,) at the three moments and the steps (R,) of the first two; nan where a moment did not come."""

    entry: Entry
    fitted: torch.Tensor
    fitted_step: torch.Tensor
    at_loss: torch.Tensor
    loss_step: torch.Tensor
    end: torch.Tensor
    attention: torch.Tensor  # (R, 2), of the clean samples of each class on the signal, at the end
    course_loss: torch.Tensor  # (S, R), train loss on a logarithmic clock
    course_error: torch.Tensor  # (S, R), log10 clean error at the same steps


def milestones(path: Trajectory, sample: Sample, entry: Entry) -> Milestones:
    """Errors of one head at the three moments, among the recorded steps, and along the course."""
    steps, runs = torch.tensor(path.steps, dtype=torch.float64), torch.arange(sample.runs)

    def first(reached: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        came, row = reached.any(0), reached.int().argmax(0)
        error = log10_clean_error(path.v[row, runs], path.p[row, runs], sample)
        return torch.where(came, error, torch.nan), torch.where(came, steps[row], torch.nan)

    clock = [path.at(step) for step in log_steps(path.steps[-1], 5) if step in path.steps]
    errors = torch.stack([log10_clean_error(path.v[row], path.p[row], sample) for row in clock])
    fitted, loss = first(path.interpolates), first(path.loss <= LOSS)
    return Milestones(
        entry, *fitted, *loss, end=errors[-1],
        attention=class_attention(sample, path.attention_on_signal[-1]),
        course_loss=path.loss[clock], course_error=errors,
    )  # fmt: skip


def _train_one_by_one(sample: Sample, size: float, entry: Entry, record: Sequence[int]) -> Trajectory:
    """Dense samples run by run: the tokens of one fit into the cache."""
    paths = [
        train_heads(sample.run(r), size, entry.steps, rule=entry.rule, record=record, diverged="keep").single()
        for r in range(sample.runs)
    ]
    parts = ("v", "p", "loss", "margins", "attention_on_signal")
    return Trajectory(
        paths[0].steps, *(torch.cat([getattr(q, part) for q in paths], dim=1) for part in parts), sample.noisy
    )


def compare_rules(sample: Sample, entries: Sequence[Entry] = LINE_UP) -> dict[str, Milestones]:
    """Train every entry on the same training sets, given in reduced coordinates; by name. Raises ValueError for a bad argument."""
    if len({entry.name for entry in entries}) != len(entries):
        raise ValueError("entries must have different names; got some twice: results are kept by name")
    found, copies = {}, {}
    for entry in entries:
        size = entry.step * matched_step(sample, entry.rule)
        clock = {*log_steps(entry.steps, 5), *log_steps(entry.steps, 40)}
        if entry.basis:
            if entry.basis not in copies:
                copies[entry.basis] = dense_copy(sample, entry.basis)
            own = copies[entry.basis]
            path = _train_one_by_one(own, size, entry, sorted({*range(11), *clock}))
        else:
            own = sample
            record = sorted({*range(min(entry.steps, 200) + 1), *clock})
            path = train_heads(sample, size, entry.steps, rule=entry.rule, record=record, diverged="keep").single()
        found[entry.name] = milestones(path, own, entry)
    return found
