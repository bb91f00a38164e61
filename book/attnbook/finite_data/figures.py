"""The figures of the page of finite data in context. Lines are formulas, points are measurements."""

import math

import numpy as np

from attnbook import draws as estimate
from attnbook.finite_data.limits import limit_error, pattern_error, ridge_error
from attnbook.finite_data.study import CURVE, LARGE, TASK_SHARES
from bookkit.figures import COLOURS, measured, theory

TASKS = {"fresh": "noisy", "seen": "clean"}  # colours


def draw_descent(study):
    """Error against tau: limits, medians at one d, extrapolations, and ridge fits."""
    import matplotlib.pyplot as plt  # as below: whoever imports this module need not draw

    law, kappa = study.law, study.law.kappa
    _, ax = plt.subplots()
    for tasks, colour in TASKS.items():
        for side in (np.linspace(0.1, 0.985, 120), np.linspace(1.015, 4, 160)):
            limits = [limit_error(tau, law.alpha, kappa, law.noise, tasks) for tau in side]
            label = f"limit, {tasks} tasks" if side[0] < 1 else None
            theory(ax, side, limits, colour=colour, label=label)
        _medians(ax, study.curve[tasks], colour, label=f"$d={law.d}$, {tasks} tasks")
        for ladder in study.ladders:
            draw_limit(ax, ladder.tau, ladder.limit[tasks], colour)
    _medians(ax, study.curve["penalty"], "noisy", label="with a penalty", mfc="none")
    theory(ax, [0.1, 4], [law.label_variance] * 2, ls=":", label="predicting zero")
    ax.set(yscale="log", ylim=(0.4, 30), xlim=(0, 4.05), xlabel=r"prompts, $\tau=n/d^2$", ylabel="error")
    ax.set_yticks([0.5, 1, 2, 5, 10, 20], ["0.5", "1", "2", "5", "10", "20"])
    ax.minorticks_off()
    ax.legend(ncols=2, loc="upper right")


def draw_transition(study):
    """Error against kappa with unlimited prompts, and the predictors beside it."""
    import matplotlib.pyplot as plt

    law = study.law
    grid = np.geomspace(TASK_SHARES[0], TASK_SHARES[-1], 120)
    _, ax = plt.subplots(figsize=(7.2, 4.1))
    for place, (tasks, colour) in enumerate(TASKS.items()):
        limits = [limit_error(math.inf, law.alpha, kappa, law.noise, tasks) for kappa in grid]
        theory(ax, grid, limits, colour=colour, label=f"linear attention, limit, {tasks} tasks")
        measured(ax, TASK_SHARES, study.shares[place], colour=colour, label=f"measured at $d={LARGE}$, {tasks} tasks")
        label = "posterior mean over the $k$ tasks" if tasks == "fresh" else None
        measured(ax, TASK_SHARES, study.predictors[place], colour=colour, fmt="D", mfc="none", label=label)
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


def _medians(ax, values, colour, **style):
    """Medians of the columns of values (R, CURVE) with bars of 95 %; those outside of the frame are left out."""
    found = [estimate.median(column) for column in values.T]
    middle = np.array([one.value for one in found])
    bars = np.array([[one.value - one.low, one.high - one.value] for one in found]).T
    kept = middle < 30
    measured(ax, np.array(CURVE)[kept], middle[kept], error=bars[:, kept], colour=colour, **style)


def draw_limit(ax, x, values, colour):
    """A square: mean and two standard errors of values (R,)."""
    style = {"fmt": "s", "markersize": 7, "markeredgecolor": COLOURS["theory"], "zorder": 5}
    measured(ax, [x], [values.mean()], error=[2 * values.std() / math.sqrt(len(values))], colour=colour, **style)
