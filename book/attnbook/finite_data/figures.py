"""The figures of the page of finite data in context. Lines are formulas, points are measurements."""

from __future__ import annotations

import math
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch

from attnbook import draws as estimate
from attnbook.finite_data.study import CURVE, LARGE, TASK_SHARES, Ladder, Study
from attnlib.finite_data import limit_error, many_prompts_error, pattern_error, ridge_error
from bookkit.figures import COLOURS, measured, theory

__all__ = ["draw_descent", "draw_ladders", "draw_softmax", "draw_transition"]

_TASKS = {"fresh": "noisy", "seen": "clean"}  # colours


def draw_descent(study: Study) -> None:
    """Error against tau: limits, medians at one d, extrapolations, and ridge fits."""
    law, kappa = study.law, study.law.kappa
    _, ax = plt.subplots()
    for tasks, values in (("fresh", study.curve.plain), ("seen", study.curve.seen)):
        colour = _TASKS[tasks]
        for side in (np.linspace(0.1, 0.985, 120), np.linspace(1.015, 4, 160)):
            limits = [limit_error(tau, law.alpha, kappa, law.noise, tasks) for tau in side]
            label = f"limit, {tasks} tasks" if side[0] < 1 else None
            theory(ax, side, limits, colour=colour, label=label)
        _medians(ax, values, colour, label=f"$d={law.d}$, {tasks} tasks")
        for ladder in study.ladders:
            found = ladder.limit(tasks)
            style = {"markersize": 7, "markeredgecolor": COLOURS["theory"]}
            _at(ax, ladder.tau, found, colour, fmt="s", zorder=5, **style)
    _medians(ax, study.curve.ridge, "noisy", label="with a penalty", mfc="none")
    theory(ax, [0.1, 4], [law.label_variance] * 2, ls=":", label="predicting zero")
    ax.set(yscale="log", ylim=(0.4, 30), xlim=(0, 4.05), xlabel=r"prompts, $\tau=n/d^2$", ylabel="error")
    ax.set_yticks([0.5, 1, 2, 5, 10, 20], ["0.5", "1", "2", "5", "10", "20"])
    ax.minorticks_off()
    ax.legend(ncols=2, loc="upper right")


def draw_ladders(study: Study) -> None:
    """Errors against 1/d with their extrapolation."""
    _, axes = plt.subplots(1, 2, figsize=(7.6, 3.6))
    for ax, ladder in zip(axes, study.ladders, strict=True):
        _draw_ladder(ax, ladder, study)
    axes[0].set_ylabel("error")
    axes[0].legend(loc="lower right")


def _draw_ladder(ax: Any, ladder: Ladder, study: Study) -> None:
    at, law = 1 / np.array(ladder.sizes), study.law
    for tasks, colour in _TASKS.items():
        measured(ax, at, getattr(ladder, tasks), colour=colour, label=f"measured, {tasks} tasks")
        limit = limit_error(ladder.tau, law.alpha, ladder.kappa, law.noise, tasks)
        theory(ax, [0, at.max()], [limit, limit], colour=colour, ls="--", label=f"limit, {tasks} tasks")
        _at(ax, 0, ladder.limit(tasks), colour, fmt="s", markersize=7, markeredgecolor=COLOURS["theory"], zorder=5)
    ax.set(xlabel="$1/d$", title=rf"$\tau={ladder.tau:g}$", xlim=(-0.004, at.max() * 1.06), ylim=(0, None))


def draw_transition(study: Study) -> None:
    """Error against kappa with unlimited prompts, and the predictors beside it."""
    law = study.law
    grid = np.geomspace(TASK_SHARES[0], TASK_SHARES[-1], 120)
    _, ax = plt.subplots(figsize=(7.4, 4.1))
    for place, (tasks, colour) in enumerate(_TASKS.items()):
        limits = [many_prompts_error(law.alpha, kappa, law.noise, tasks) for kappa in grid]
        theory(ax, grid, limits, colour=colour, label=f"linear attention, limit, {tasks} tasks")
        values = (study.unlimited.fresh, study.unlimited.seen)[place]
        measured(ax, TASK_SHARES, values, colour=colour, label=f"measured at $d={LARGE}$, {tasks} tasks")
        label = "posterior mean over the $k$ tasks" if tasks == "fresh" else None
        measured(ax, TASK_SHARES, study.predictors[:, place], colour=colour, fmt="D", mfc="none", label=label)
    ends = [grid[0], grid[-1]]
    for level, style, label in (
        (law.label_variance, ":", "predicting zero"),
        (pattern_error(law.alpha, law.noise), "--", "the best step"),
        (ridge_error(law.alpha, law.noise), "-.", "ridge regression"),
    ):
        theory(ax, ends, [level, level], ls=style, lw=1.3, label=label)
    ax.axvline(1, color=COLOURS["bound"], lw=0.8)
    ax.set(xscale="log", xlabel=r"tasks, $\kappa=k/d$", ylabel="error", ylim=(0, 2.2))
    ax.set_xticks([0.125, 0.25, 0.5, 1, 2, 4], ["1/8", "1/4", "1/2", "1", "2", "4"])
    ax.minorticks_off()
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))


def draw_softmax(study: Study) -> None:
    """Errors, and what becomes of the pattern, against the number of tasks."""
    counts = [row.tasks for row in study.softmax]
    _, axes = plt.subplots(1, 2, figsize=(7.6, 3.7))
    left, right = axes
    for name, label in (("fresh", "fresh tasks"), ("seen", "seen tasks")):
        for values, colour, model in (
            ([getattr(row, name) for row in study.softmax], "clean", "softmax"),
            ([getattr(row, f"linear_{name}") for row in study.softmax], "theory", "linear"),
        ):
            logs = torch.stack(values, dim=1).log()
            centre, error = logs.mean(0).exp(), logs.std(0) / math.sqrt(len(logs))
            bars = np.stack([centre * (1 - torch.exp(-2 * error)), centre * (torch.exp(2 * error) - 1)])
            style = {} if name == "fresh" else {"mfc": "none"}
            measured(
                left, counts, centre, error=bars, colour=colour, fmt="o-", lw=0.8, label=f"{model}, {label}", **style
            )
    left.set(xscale="log", yscale="log", xlabel="tasks $k$", ylabel="error")
    left.set_yticks([0.2, 0.5, 1, 2, 5], ["0.2", "0.5", "1", "2", "5"])
    pattern = torch.stack([row.pattern for row in study.softmax], dim=1)
    imbalance = torch.stack([row.imbalance for row in study.softmax], dim=1)
    measured(right, counts, pattern, colour="signal", fmt="o-", lw=0.8, label="fraction in the pattern")
    measured(right, counts, imbalance, colour="noise", fmt="o-", lw=0.8, label="imbalance of the pair")
    right.set(xscale="log", xlabel="tasks $k$", ylabel="fraction", ylim=(-0.03, 1.05))
    for ax in axes:
        ax.set_xticks(counts, [str(k) for k in counts])
        ax.minorticks_off()
        ax.axvline(5, color=COLOURS["bound"], lw=0.8)
    left.legend(loc="upper right", fontsize=8.5)
    right.legend(loc="upper left")


def _medians(ax: Any, values: torch.Tensor, colour: str, **style: Any) -> None:
    """Medians of the columns of values (R, CURVE) with bars of 95 %; those outside of the frame are left out."""
    found = [estimate.median(column) for column in values.T]
    middle = np.array([one.value for one in found])
    bars = np.array([[one.value - one.low, one.high - one.value] for one in found]).T
    kept = middle < 30
    measured(ax, np.array(CURVE)[kept], middle[kept], error=bars[:, kept], colour=colour, **style)


def _at(ax: Any, x: float, values: torch.Tensor, colour: str, **style: Any) -> None:
    """One point: mean and two standard errors of values (R,)."""
    measured(ax, [x], [values.mean()], error=[2 * values.std() / math.sqrt(len(values))], colour=colour, **style)
