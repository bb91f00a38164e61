r"""Data of the explorer of two steps: exact phase diagrams over SNR and step size at some settings.

The explorer computes mean field by itself. What it cannot compute at once is here: real training sets, trained for two steps, with the
exact clean error of every one, as on the page *The phase diagram of two steps* (the first diagram is that page's).
"""

import numpy as np

from attnbook.single_head.phase import PhaseDiagram, phase_diagram, phase_plan
from attnbook.single_head.phase_diagram import proved

# n, d, eta
SETTINGS = ((200, 40_000, 0.05), (200, 40_000, 0.0), (200, 40_000, 0.2), (200, 2_000, 0.05), (50, 2_500, 0.1))
DRAWS, _SEED, _CELLS = 10, 0, 40
STEPS = np.geomspace(0.1, 60, _CELLS)  # beta d / n


def snr_axis(n: int) -> np.ndarray:
    """The page's axis at n = 200; elsewhere the same values of n SNR^2."""
    return np.geomspace(0.006, 1.5, _CELLS) * np.sqrt(200 / n)


def measured(n: int, d: int, label_noise: float) -> PhaseDiagram:
    """The diagram of one setting, `DRAWS` training sets per cell."""
    snr = snr_axis(n)
    plan = phase_plan(
        snr, STEPS, n=n, d=d, signal_norm=snr * np.sqrt(d), label_noise=label_noise, step_size=STEPS[:, None] * n / d
    )
    return phase_diagram(plan, draws=DRAWS, seed=_SEED)


def data() -> dict:
    """All diagrams, about a second each: phase and whether draws disagree (a digit per cell), draws that fit every label, and the
    median log10 clean error."""
    maps = []
    for n, d, eta in SETTINGS:
        diagram = measured(n, d, eta)
        phase, uncertain = diagram.phase()
        error = np.median(diagram.log10_error, axis=-1)
        maps.append(
            {
                "n": n,
                "d": d,
                "label_noise": eta,
                "snr": _digits(diagram.plan.x, 6),
                "phase": ["".join(map(str, row)) for row in phase.tolist()],
                "uncertain": ["".join(str(int(one)) for one in row) for row in uncertain],
                "fitted": diagram.interpolates.sum(-1).tolist(),
                "log10_error": [_digits(row, 3) for row in error],
            }
        )
    return {"draws": DRAWS, "seed": _SEED, "steps": _digits(STEPS, 6), "maps": maps, "proved": proved_cells()}


def proved_cells() -> dict:
    """The stored proved cells of the first setting, by delta: a digit per cell, the phase of `maps`, or a dot where nothing is proved."""
    n, d, eta = SETTINGS[0]
    plan, _ = proved.proved_planes(n, d, eta, proved.MULTIPLE)["step"]
    signs = np.array([*"2100."])  # by code of the outcome, the last one for -1
    cells = {delta: signs[proved.table()[f"step_{n}_{d}_{delta}"]] for delta in proved.DELTAS}
    return {
        "n": n,
        "d": d,
        "label_noise": eta,
        "snr": _digits(plan.x, 6),
        "steps": _digits(plan.y, 6),
        "cells": {f"{delta:g}": ["".join(row) for row in rows] for delta, rows in cells.items()},
    }


def _digits(values: np.ndarray, count: int) -> list[float]:
    """To so many significant digits."""
    return [float(f"{value:.{count}g}") for value in values]
