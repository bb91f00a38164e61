"""Pictures of the seven data sets: what noise costs by size, where the frozen networks lie, what a scaled head changes."""

from __future__ import annotations

from typing import Any

from attnbook.draws import Estimate, mean
from attnbook.token_selection.real_data.experiment import BENIGN_BELOW, FITTED_FROM
from attnbook.token_selection.real_data.sets_study import SETS, SetsStudy, published_fraction
from bookkit.figures import COLOURS, measured

__all__ = ["BACKBONE_COLOURS", "draw_costs", "draw_places", "draw_reasons", "draw_scaled_heads"]

BACKBONE_COLOURS = {"small ViT": "clean", "random features": "noise", "MiniLM": "signal"}
_SHIFT = {"small ViT": 0.14, "random features": -0.14, "MiniLM": 0.14}
_MARKS = dict(zip(SETS, "osD^vP*", strict=True))


def _across(axes: Any, found: Estimate, y: float, colour: str, **style: Any) -> None:
    ends = [[found.value - found.low], [found.high - found.value]]
    axes.errorbar(found.value, y, xerr=ends, color=COLOURS[colour], capsize=2.5, elinewidth=1.2, **style)


def draw_costs(axes: Any, study: SetsStudy, n: int) -> None:
    """F of every network at one size, with 95 % intervals; hollow where fewer than half of the wrong labels are memorised.

    Squares: the authors' runs at eta = 0.2, see `published_fraction`.
    """
    names = list(SETS)
    for (data, backbone), network in study.networks.items():
        if n not in network.table.sizes:
            continue
        y = len(names) - 1 - names.index(data) + _SHIFT[backbone]
        memorised = network.fit(n).mean() >= FITTED_FROM
        style = {"fmt": "o", "markerfacecolor": None if memorised else "white"}
        _across(axes, mean(network.lost(n)), y, BACKBONE_COLOURS[backbone], **style)
    for data in names:
        if found := published_fraction(data, n):
            y = len(names) - 1 - names.index(data)
            _across(axes, found, y, "bound", fmt="s", markersize=4, markerfacecolor="white")
    for border in (BENIGN_BELOW, 1):
        axes.axvline(border, color=COLOURS["theory"], linestyle=":", linewidth=1)
    axes.set_yticks(range(len(names)), [SETS[name] for name in reversed(names)])
    axes.set(title=f"$n = {n}$", xlabel="fraction of copying", ylim=(-0.6, len(names) - 0.4))
    axes.grid(False, axis="y")


def draw_places(axes: Any, study: SetsStudy) -> None:
    """Each frozen network at (|mu| / sigma, d) of its relevant tokens, with 95 % intervals over seeds. Axes are the caller's."""
    for (data, backbone), network in study.networks.items():
        norm = network.statistic("snr") * network.statistic("dimension") ** 0.5
        x, y = mean(norm), mean(network.statistic("dimension"))
        axes.errorbar(
            x.value,
            y.value,
            xerr=[[x.value - x.low], [x.high - x.value]],
            yerr=[[y.value - y.low], [y.high - y.value]],
            color=COLOURS[BACKBONE_COLOURS[backbone]],
            fmt=_MARKS[data],
            markersize=7,
            elinewidth=1.2,
            zorder=4,
            label=network.label,
        )


def draw_scaled_heads(axes: Any, study: SetsStudy) -> None:
    """F against the confidence of the frozen head: as trained, and with the head scaled to confidence 1 (joined by a line)."""
    for key, network in study.networks.items():
        if key not in study.equal:
            continue
        colour, mark = BACKBONE_COLOURS[network.backbone], _MARKS[network.data]
        before, after = mean(network.lost(study.n)), mean(study.lost_at_equal_confidence(key))
        confidence = network.statistic("confidence").mean()
        axes.plot([confidence, 1], [before.value, after.value], color=COLOURS[colour], linewidth=0.8, alpha=0.6)
        _point(axes, confidence, before, colour, fmt=mark, label=network.label)
        _point(axes, 1.0, after, colour, fmt=mark, markerfacecolor="white")
    for border in (BENIGN_BELOW, 1):
        axes.axhline(border, color=COLOURS["theory"], linestyle=":", linewidth=1)
    axes.set(xscale="log", xlabel="confidence of the frozen head", ylabel="fraction of copying")


def draw_reasons(axes: Any, study: SetsStudy, what: str) -> None:
    """F with the head scaled to confidence 1 against a statistic of the frozen network, with 95 % intervals over seeds."""
    for key, network in study.networks.items():
        if key not in study.equal:
            continue
        x, y = mean(network.statistic(what)), mean(study.lost_at_equal_confidence(key))
        axes.errorbar(
            x.value,
            y.value,
            xerr=[[x.value - x.low], [x.high - x.value]],
            yerr=[[y.value - y.low], [y.high - y.value]],
            color=COLOURS[BACKBONE_COLOURS[network.backbone]],
            fmt=_MARKS[network.data],
            markerfacecolor="white",
            markersize=6,
            elinewidth=1.2,
            label=network.label,
        )
    for border in (BENIGN_BELOW, 1):
        axes.axhline(border, color=COLOURS["theory"], linestyle=":", linewidth=1)


def _point(axes: Any, x: float, found: Estimate, colour: str, **style: Any) -> None:
    ends = [[found.value - found.low], [found.high - found.value]]
    measured(axes, [x], [found.value], error=ends, colour=colour, markersize=6, **style)
