"""Least risk over the scale of a pair and of one head on two examples, with the proved minima."""

from typing import Any

import numpy as np

from attnbook.certified.claims_risk import RiskStudy
from attnbook.certified.risk import debiased_risk
from bookkit.figures import COLOURS, theory

_MINIMA = (("pair", "0.559", "0.560", "clean"), ("head", "3.527", "3.528", "noisy"))


def draw_least_risks(axes: Any, study: RiskStudy) -> None:
    """Risk at the best output over |omega|, both curves as midpoints of balls narrower than a line; markers at the proved minima."""
    scales = np.geomspace(0.05, 20, 80)
    for name, low, high, colour in _MINIMA:
        found = getattr(study, name)
        label = "a pair" if name == "pair" else "one head"
        theory(axes, scales, [float(found.risk(repr(float(w))).mid()) for w in scales], colour=colour, label=label)
        middle = (float(low) + float(high)) / 2
        axes.plot(middle, float(found.least_risk(low, high).mid()), "D", color=COLOURS[colour], zorder=3)
        axes.annotate(rf"$|\omega|\in[{low},{high}]$", (middle, float(found.least_risk(low, high).mid())), xytext=(0, -14), ha="center",
                      textcoords="offset points", fontsize=9)  # fmt: skip
    step = float(debiased_risk(study.pair.law))
    axes.axhline(step, color=COLOURS["bound"], linestyle="--", label="best debiased step")
    axes.set(xscale="log", xlabel=r"scale of the head $|\omega|$", ylabel="least exact risk", ylim=(3.15, 4.05))
    axes.legend(loc="upper right")
