"""Picture of the trial: the fraction of copying of each row with its interval, and the authors' own numbers."""

from collections.abc import Sequence
from typing import Any

from attnbook.token_selection.real_data.sets_study import SETS, published_fraction
from attnbook.token_selection.real_data.trial import COPIED, FITTED, UNHARMED
from attnbook.token_selection.real_data.trial_study import OURS, Tried
from bookkit.figures import COLOURS

_COLOURS = {"small ViT": "clean", "EfficientNet-Lite0": "noise", "MPNet": "signal"}


def draw_trial(axes: Any, study: Sequence[Tried], *, limits: tuple[float, float] = (-0.3, 1.6)) -> None:
    """One line a row, set by set: circle, our way of training; diamond, the authors'; hollow, flipped labels not fitted (fit below 0.9).

    Squares: the authors' own runs at eta = 0.2 (`published_fraction`). Intervals are cut at `limits`.
    """
    y, names, places = 0.0, [], []

    def line(label: str, low: float, value: float, high: float, **style: Any) -> None:
        nonlocal y
        names.append(label)
        places.append(y)
        axes.plot([max(low, limits[0]), min(high, limits[1])], [y, y], color=style["color"], linewidth=1.2)
        axes.plot(value, y, markersize=6, **style)
        y -= 1

    for data in SETS:
        rows = [one for one in study if one.data == data]
        if not rows:
            continue
        axes.text(limits[0], y, f" {SETS[data]}", va="center", weight="bold")
        y -= 1
        for one in rows:
            found, colour = one.judged.fraction, COLOURS[_COLOURS.get(one.backbone, "noisy")]
            hollow = "white" if one.judged.fit.low < FITTED else colour
            style = {"color": colour, "marker": "o" if one.way == OURS else "D", "markerfacecolor": hollow}
            if found.low > -float("inf"):
                line(f"{one.backbone}, {one.way}, {one.n}", found.low, found.value, found.high, **style)
        for n in sorted({one.n for one in rows}):
            if published := published_fraction(data, n):
                style = {"color": COLOURS["bound"], "marker": "s", "markerfacecolor": "white"}
                line(f"published, {n}", published.low, published.value, published.high, **style)
        y -= 0.5
    axes.axvspan(limits[0], UNHARMED, color=COLOURS["clean"], alpha=0.07, linewidth=0)
    for border in (UNHARMED, COPIED):
        axes.axvline(border, color=COLOURS["theory"], linestyle=":", linewidth=1)
    axes.set_yticks(places, names, fontsize=8.5)
    axes.set(xlim=limits, ylim=(y + 0.5, 1), xlabel="fraction of copying")
    axes.grid(False, axis="y")
