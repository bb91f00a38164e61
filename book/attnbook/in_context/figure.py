r"""Pictures of circuits: the key-query map and the output-value column of every head, now and over training. Needs matplotlib.

Everything drawn is $M_h=W_K^{h\top}W_Q^h/\sqrt n$ itself: scaled, rows are keys, columns are queries, never transposed. Zero is white:
the colours run from minus to plus the largest absolute value that is shown. Guide lines separate the $d$ covariates from the label.
Functions draw and return; nothing is shown or saved here.
"""

import math

import numpy as np

from attnlib.in_context.circuits import Circuits
from bookkit.figures import COLOURS, SHADES

_COLOURS = (  # negative, zero, positive
    SHADES["deep negative"], COLOURS["clean"], SHADES["paper"], COLOURS["noisy"], SHADES["deep positive"],
)  # fmt: skip
_GUIDE = {"color": COLOURS["theory"], "linewidth": 0.9}
_BAR = {"shrink": 0.85, "aspect": 16, "pad": 0.02}


def colour_map():
    """The book's blue below zero, white at zero, the book's orange above: all three can be told apart by colour-blind readers."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("circuits", _COLOURS)


def symmetric_limit(values) -> float:
    """Largest absolute value of an array, 1 if all are zero: colours run from minus to plus this number."""
    return float(np.abs(np.asarray(values, dtype=float)).max()) or 1.0


def draw_key_query(axes, key_query, limit):
    """Heat map of one M (n, n): row = key, column = query. Lines behind the last covariate. Returns the image."""
    matrix = np.asarray(key_query, dtype=float)
    image = axes.imshow(matrix, cmap=colour_map(), vmin=-limit, vmax=limit, interpolation="nearest")
    border = matrix.shape[0] - 1.5  # pixel j is drawn from j - 1/2 to j + 1/2; the label is pixel d = n - 1
    axes.axhline(border, **_GUIDE)
    axes.axvline(border, **_GUIDE)
    names = _names(matrix.shape[0])
    _frame(axes, xticks=names, yticks=names)
    return image


def draw_output_value(axes, output_value, limit):
    """One V (n,) as a column, line above the label. Returns the image."""
    column = np.asarray(output_value, dtype=float)[:, None]
    image = axes.imshow(column, cmap=colour_map(), vmin=-limit, vmax=limit, interpolation="nearest")
    axes.axhline(len(column) - 1.5, **_GUIDE)
    _frame(axes, xticks=[], yticks=[])
    return image


def draw_heads(figure, circuits: Circuits, *, columns=2) -> list:
    """Key-query map and output-value column of every head of circuits (H, n, n), side by side, with two shared colour bars.

    Their titles are number, omega and mu. Returns the axes of the maps.
    """
    M, V = circuits.key_query, circuits.output_value
    heads = len(M)
    numbers = zip(circuits.omega.tolist(), circuits.mu.tolist(), strict=True)
    titles = [f"head {h}\n$\\omega={w:.2f}$\n$\\mu={m:.2f}$" for h, (w, m) in enumerate(numbers, 1)]
    n, rows, columns = M.shape[-1], -(-heads // columns), min(columns, heads)
    grid = figure.subplots(rows, 2 * columns, squeeze=False, gridspec_kw={"width_ratios": [n, 1] * columns})
    limits = symmetric_limit(M), symmetric_limit(V)
    maps, values = [], []
    for head in range(rows * columns):
        row, place = divmod(head, columns)
        left, right = grid[row, 2 * place], grid[row, 2 * place + 1]
        if head >= heads:
            left.remove()
            right.remove()
            continue
        maps.append(draw_key_query(left, M[head], limits[0]))
        values.append(draw_output_value(right, V[head], limits[1]))
        left.set_title(titles[head], fontsize=8.5)
        if place == 0:
            left.set_ylabel("key")
        if head + columns >= heads:
            left.set_xlabel("query")
    used = [a for a in grid.ravel() if a.figure is not None]
    figure.colorbar(values[0], ax=used, label="$V$", **_BAR)
    figure.colorbar(maps[0], ax=used, label="$M$", **_BAR)
    return [image.axes for image in maps]


def records_near(steps, wanted) -> list[int]:
    """Positions of the records nearest in log(1 + step) to the wanted steps, each once, in order."""
    known = np.log1p(np.asarray(steps, dtype=float))
    return sorted({int(np.abs(known - math.log1p(step)).argmin()) for step in wanted})


def draw_evolution(figure, circuits: Circuits, steps) -> list[list]:
    """Key-query maps of every head (rows) at several steps (columns), circuits (K, H, n, n), one shared colour bar.

    steps: the K recorded steps themselves, which are written above the columns: nothing is interpolated. Returns the axes, head by head.
    """
    M = circuits.key_query
    limit = symmetric_limit(M)
    grid = figure.subplots(M.shape[1], len(steps), squeeze=False)
    for column, step in enumerate(steps):
        for head in range(M.shape[1]):
            axes = grid[head, column]
            image = draw_key_query(axes, M[column, head], limit)
            axes.set(xticks=[], yticks=[])
        grid[0, column].set_title("start" if step == 0 else f"{step}", fontsize=9)
    for head in range(M.shape[1]):
        grid[head, 0].set_ylabel(f"head {head + 1}")
    figure.colorbar(image, ax=grid.ravel().tolist(), label="$M$", **_BAR)
    return [list(row) for row in grid]


def _names(n):
    """Labels of the pixels: covariates by number, then y; at most about ten."""
    every = -(-(n - 1) // 9)
    return [str(j + 1) if j % every == 0 else "" for j in range(n - 1)] + ["$y$"]


def _frame(axes, *, xticks, yticks):
    axes.set_xticks(range(len(xticks)), xticks, fontsize=8.5)
    axes.set_yticks(range(len(yticks)), yticks, fontsize=8.5)
    axes.tick_params(length=0)
    axes.grid(False)
    axes.spines[:].set_visible(True)
    axes.spines[:].set_linewidth(0.6)
