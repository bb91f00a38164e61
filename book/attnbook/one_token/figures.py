"""Figures of the page of one token matters."""

import math

import numpy as np
import torch

from attnbook.one_token import OneTokenLaw, bayes_risk, erf_risk, linear_risk, own_score_risk
from attnbook.one_token.descent import KINDS
from attnbook.one_token.study import SIZES, STRENGTHS, TRAINED_STRENGTHS, best_erf_scale, strength_ratio
from bookkit.figures import COLOURS, PHASES, SHADES, measured, theory
from bookkit.rules import student

HUES = {"erf": "noise", "linear": "noisy", "sigmoid": "signal", "softmax": "clean"}
FORMULAS = {
    "erf": lambda law: erf_risk(law, best_erf_scale(law)),
    "linear": linear_risk,
    "sigmoid": own_score_risk,
    "softmax": bayes_risk,
}
SIGNIFICANCE = 0.01  # level of the paired test in the phase diagram


def draw_risks(axes, study):
    """Exact risks of four heads against the strength, at the page's number of tokens, and the measured ones."""
    grid = np.linspace(0.3, 26, 60)
    for name, hue in HUES.items():
        line = [FORMULAS[name](OneTokenLaw(study.law.tokens, nu)) for nu in grid]
        theory(axes, grid, line, colour=hue, label="softmax = Bayes" if name == "softmax" else name)
        measured(axes, STRENGTHS, torch.stack([row[name] for row in study.ladder.values()], 1), colour=hue)
    axes.axvline(2 * math.log(study.law.tokens), color=COLOURS["bound"], linestyle=":", label=r"$2\log L$")
    axes.set(xlabel=r"strength $\nu$", ylabel="risk", yscale="log", ylim=(2e-3, 1.3))
    axes.legend(loc="lower left", bbox_to_anchor=(0.2, 0))


def draw_threshold(axes):
    """Left: the risks against the strength in units of 2 log L. Right: what competition is worth."""
    left, right = axes
    for tokens, style in ((10**2, ":"), (10**8, "--"), (10**64, "-")):
        grid = np.linspace(0.02, 2, 60)
        laws = [OneTokenLaw(tokens, 2 * x * math.log(tokens)) for x in grid]
        power = round(math.log10(tokens))
        for name in ("softmax", "sigmoid"):
            line = [FORMULAS[name](law) for law in laws]
            label = rf"$L=10^{{{power}}}$, {name}"
            theory(left, grid, line, colour=HUES[name], linestyle=style, label=label)
    left.axvline(1.0, color=COLOURS["bound"], linewidth=0.8)
    left.set(xlabel=r"$\nu\,/\,2\log L$", ylabel="risk")
    left.legend(loc="lower left", fontsize=8.5)
    powers = np.log10([2, 3, 4, 6, 10, 20, 50, 100, 300, 1e3, 1e4, 1e6, 1e8, 1e12, 1e16])
    ratios = [strength_ratio(round(10**power)) for power in powers]
    theory(right, powers, ratios)
    for level, style in ((1.0, "--"), (2.0, "--")):
        right.axhline(level, color=COLOURS["bound"], linestyle=style, linewidth=0.8)
    right.set(xlabel=r"$\log_{10}$ of the number of tokens $L$", ylabel="ratio of strengths", ylim=(0.9, 2.1))


def draw_training(axes, study):
    """Best-stopped clean risk of trained heads against the number of training samples."""
    for ax, index in zip(axes, (0, len(TRAINED_STRENGTHS) - 1), strict=True):
        best = [study.trained[size].best()[:, 0, :, index] for size in SIZES]
        mean = torch.stack([found.mean(0) for found in best])
        error = torch.stack([2 * found.std(0) / len(found) ** 0.5 for found in best])
        for place, kind in enumerate(KINDS):
            moved = np.array(SIZES) * 1.03 ** (place - 1)
            measured(ax, moved, mean[:, place], error=error[:, place], colour=HUES[kind], label=kind)
        ax.set(
            xlabel="training samples $n$", xscale="log", ylim=(0.3, 1.02), title=rf"$\nu={TRAINED_STRENGTHS[index]:g}$"
        )
        ax.set_xticks(SIZES, labels=[str(size) for size in SIZES])
        ax.minorticks_off()
    axes[0].set_ylabel("clean risk, best stopping")
    axes[0].legend(loc="lower left")


def lead(study, size, index):
    """Kind with the smallest mean best-stopped risk, or "none", and t of its paired difference from the runner-up."""
    best = study.trained[size].best()[:, 0, :, index]
    first, second = best.mean(0).argsort()[:2].tolist()
    gap = best[:, second] - best[:, first]
    ratio = float(gap.mean() / gap.std() * math.sqrt(len(gap)))
    return (KINDS[first] if ratio > student(len(gap), SIGNIFICANCE) else "none"), ratio


def draw_phases(axes, study):
    """Which head is ahead, by strength and number of training samples; each cell shows its paired t."""
    from matplotlib.patches import Rectangle  # figures are an extra

    colours = {
        "none": PHASES["nothing"],
        "softmax": PHASES["benign"],
        "sigmoid": PHASES["memory"],
        "linear": PHASES["harmful"],
    }
    for row in range(len(TRAINED_STRENGTHS)):
        for column, size in enumerate(SIZES):
            kind, ratio = lead(study, size, row)
            corner = (column - 0.5, row - 0.5)
            axes.add_patch(Rectangle(corner, 1, 1, facecolor=colours[kind], edgecolor=SHADES["paper"], linewidth=1.5))
            axes.text(column, row, f"{kind}\n$t={ratio:.2f}$", ha="center", va="center", fontsize=9)
    axes.set(xlim=(-0.5, len(SIZES) - 0.5), ylim=(-0.5, len(TRAINED_STRENGTHS) - 0.5))
    axes.set_xticks(range(len(SIZES)), labels=[str(size) for size in SIZES])
    axes.set_yticks(range(len(TRAINED_STRENGTHS)), labels=[f"{nu:g}" for nu in TRAINED_STRENGTHS])
    axes.set(xlabel="training samples $n$", ylabel=r"strength $\nu$")
    axes.grid(visible=False)
