"""The four figures of the page of the staircase."""

import numpy as np

from bookkit.figures import COLOURS, theory

_SHOWN = 6  # starts
_MARKS = ("o", "s", "^", "D", "v", "P")
_HUES = ("clean", "noisy", "signal", "noise", "measured", "bound")


def _levels(axes, levels, label):
    for m, level in enumerate(levels.tolist()):
        axes.axhline(level, color=COLOURS["theory"], linewidth=1, zorder=1, label=label if m == 0 else None)


def draw_losses(figure, study):
    """Losses of some starts over the logarithm of time, separate (left) and merged (right), with the levels as lines."""
    left, right = figure.subplots(1, 2, sharey=True)
    panels = ((left, study.main.path, "separate key and query"), (right, study.merged_path, "merged key and query"))
    for axes, path, title in panels:
        _levels(axes, study.main.levels, "levels $L_m$, formula")
        for run in range(min(_SHOWN, len(path.loss))):
            label = "loss, one start each" if run == 0 else None
            axes.plot(
                path.times[1:], path.loss[run, 1:], color=COLOURS["measured"], linewidth=1.4, zorder=2, label=label
            )
        axes.set(xscale="log", xlabel="time $t$", title=title)
    left.set(ylabel="loss", ylim=(0, 1.08))
    left.set_xlim(left=20)
    right.legend(loc=(0.02, 0.39))


def draw_times(axes, found):
    """Times at which steps are half done: measured against predicted, one marker for each step."""
    ends = np.array([found.predicted.min() * 0.8, found.predicted.max() * 1.25])
    theory(axes, ends, ends, label="equal")
    for m, (x, y) in enumerate(zip(found.predicted.T, found.crossings.T, strict=True)):
        axes.plot(x, y, _MARKS[m % 6], color=COLOURS[_HUES[m % 6]], markersize=5, alpha=0.8, label=f"drop {m + 1}")
    axes.set(xscale="log", yscale="log", xlabel="time of the drop, predicted from the start", ylabel="measured time")
    axes.legend(loc="upper left")


def draw_directions(axes, found):
    """Diagonal entries of A over time, in units of their final values, and the predicted times, for the start of median error."""
    error = (found.crossings / found.predicted).nan_to_num(2.0).log().abs().max(1).values
    run = int(error.argsort()[len(error) // 2])
    last = np.array(found.law.eigenvalues() / found.law.second_moment())
    for i, (scale, at) in enumerate(zip(last, found.predicted[run].tolist(), strict=True)):
        hue = COLOURS[_HUES[i % 6]]
        axes.plot(found.path.times[1:], found.path.matrix[run, 1:, i, i] / scale, color=hue, label=f"$i={i + 1}$")
        axes.axvline(at, color=hue, linestyle=":", linewidth=1.2)
    axes.set(xscale="log", xlabel="time $t$", ylabel="$A_{ii}$ in units of $a_i$", xlim=(20, None))
    axes.legend(loc="upper left")


def draw_softmax(figure, pair):
    """Losses of softmax heads over time with the levels of linear attention, for distinct (left) and equal eigenvalues (right)."""
    panels = figure.subplots(1, 2, sharey=True)
    for axes, found, title in zip(panels, pair, ("distinct eigenvalues", "equal eigenvalues"), strict=True):
        _levels(axes, found.levels, "levels $L_m$ for $N-1$ examples")
        for run in range(min(_SHOWN, len(found.path.loss))):
            label = "loss, one start each" if run == 0 else None
            axes.plot(found.path.times, found.path.loss[run], color=COLOURS["measured"], linewidth=1.4, label=label)
        axes.set(xlabel="time $t$", title=title)
    panels[0].set(ylabel="loss", ylim=(0, 1.08))
    panels[1].legend(loc="lower left")
