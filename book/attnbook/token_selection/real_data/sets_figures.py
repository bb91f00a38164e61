"""The picture of what decides the cost of flipped labels, on seven data sets."""

from typing import Any

from attnbook.draws import Estimate, mean
from attnbook.token_selection.real_data.causes import MIXED, WHOLE, Causes
from attnbook.token_selection.real_data.experiment import BENIGN_BELOW
from attnbook.token_selection.real_data.sets_study import SETS, SetsStudy
from bookkit.figures import COLOURS

_MARKS = dict(zip(SETS, "osD^vP*", strict=True))
_BORDERS = {"color": COLOURS["theory"], "linestyle": ":", "linewidth": 1}


def _point(axes: Any, x: Estimate | float, y: Estimate | float, colour: str, **style: Any) -> None:
    """A point with the interval of each coordinate that has one."""
    values, bars = [], {}
    for name, one in (("xerr", x), ("yerr", y)):
        values.append(one.value if isinstance(one, Estimate) else one)
        if isinstance(one, Estimate):
            bars[name] = [[one.value - one.low], [one.high - one.value]]
    caps = 2.5 if len(bars) == 1 else 0
    axes.errorbar(*values, **bars, color=COLOURS[colour], capsize=caps, elinewidth=1.2, **style)


_TOKENS = {WHOLE: "clean", MIXED: "noisy"}  # colours; all numbers of channels have one


def draw_causes(left: Any, right: Any, study: SetsStudy, varied: Causes) -> None:
    """F against accuracy above chance of the frozen network (left, at confidence 1) and against the head's confidence (right).

    Grey: the small backbones of `study`, hollow at confidence 1. Colours: EfficientNet-Lite0 with its tokens varied; on the left a line
    joins all and fewer channels of a data set, on the right one network at several confidences. Marks are those of the data sets; 95 %
    intervals over seeds, cut at -0.1 and 2.
    """
    for network in study.networks.values():
        style = {"fmt": _MARKS[network.data], "markersize": 5, "alpha": 0.6}
        _point(
            left, network.above_chance(), mean(network.lost_when_scaled()), "bound", markerfacecolor="white", **style
        )
        _point(right, 1.0, mean(network.lost_when_scaled()), "bound", markerfacecolor="white", **style)
        _point(right, network.statistic("confidence").mean(), mean(network.lost()), "bound", **style)
    named = set()
    for (data, tokens, confidence), one in varied.networks.items():
        style = {"fmt": _MARKS[data], "markersize": 7, "zorder": 4}
        colour = _TOKENS.get(tokens, "signal")
        if confidence == 1:
            label = f"{SETS[data]}, {tokens if tokens in _TOKENS else 'fewer channels'}"
            shown = {"label": label} if label not in named else {}
            named.add(label)
            _point(left, one.above_chance(), mean(one.lost()), colour, **shown, **style)
        _point(right, confidence, mean(one.lost()), colour, **style)
    for data in dict.fromkeys(key[0] for key in varied.networks):
        pruned = [
            (one.above_chance().value, one.lost().mean())
            for (name, tokens, confidence), one in varied.networks.items()
            if name == data and tokens != MIXED and confidence == 1
        ]
        left.plot(*zip(*sorted(pruned), strict=True), color=COLOURS["signal"], linewidth=0.9)
    for data, tokens in dict.fromkeys(key[:2] for key in varied.networks):
        own = sorted(key for key in varied.networks if key[:2] == (data, tokens))
        line = {"color": COLOURS[_TOKENS.get(tokens, "signal")], "linewidth": 0.9}
        right.plot([key[2] for key in own], [varied.networks[key].lost().mean() for key in own], **line)
    for axes in (left, right):
        for border in (BENIGN_BELOW, 1):
            axes.axhline(border, **_BORDERS)
        axes.set_ylim(-0.1, 2)
    left.set(xlabel="accuracy above chance of the frozen network", ylabel="fraction of copying, confidence 1")
    right.set(xscale="log", xlabel="confidence of the frozen head", ylabel="fraction of copying")
