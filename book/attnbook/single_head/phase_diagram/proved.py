"""Which cells of a phase diagram are theorems: the proved outcome of each cell, and cells that were measured otherwise."""

import numpy as np

from attnbook.single_head.phase import PhaseDiagram, PhasePlan
from attnlib.single_head.law import SignalNoiseLaw
from attnlib.single_head.proved import OUTCOMES, UNDECIDED, proved_outcomes

BENIGN, HARMFUL, FLIPPED, CLEAN = range(4)  # codes of OUTCOMES; -1: not decided


def proved_phases(plan: PhasePlan, delta: float = 0.01, *, error: float = 0.1) -> np.ndarray:
    """Index into `OUTCOMES` of what is proved with probability 1 - delta in each cell, (rows, columns); -1 where nothing is."""
    settings = zip(
        *(x.ravel() for x in (plan.n, plan.d, plan.signal_norm, plan.label_noise, plan.step_size)), strict=True
    )
    laws, steps = [], []
    for n, d, rho, eta, beta in settings:
        laws.append(SignalNoiseLaw(int(n), int(d), float(rho), float(eta)))
        steps.append(float(beta))
    codes = {name: k for k, name in enumerate(OUTCOMES)} | {UNDECIDED: -1}
    found = []
    for first in range(0, len(laws), 40):  # memory of one batch: some hundred megabytes at most
        batch = slice(first, first + 40)
        found += [codes[x.outcome] for x in proved_outcomes(laws[batch], steps[batch], delta, error=error)]
    return np.array(found).reshape(plan.shape)


def disagreements(proved: np.ndarray, diagram: PhaseDiagram, *, error: float = 0.1) -> np.ndarray:
    """(rows, columns): share of a cell's draws with another outcome than the proved one; 0 where nothing is proved."""
    fits, harmful = diagram.interpolates, diagram.log10_error >= np.log10(error)
    code = proved[..., None]
    right = np.select(
        [code == BENIGN, code == HARMFUL, code >= FLIPPED], [fits & ~harmful, fits & harmful, ~fits], True
    )
    result: np.ndarray = 1 - right.mean(-1)
    return result
