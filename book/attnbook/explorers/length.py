r"""Data of the explorer "length": what has no closed form. The Bayes risk at every d and noise, and trained heads at other lengths.

Trained heads are the stored full-size trainings of the authors' setting (d = 5, L = 40, sigma = 0.01): one head, pairs whose heads
cancel, pairs caught with one sign. Their risk is `in_context.length_study`'s: the exact reduction of their two numbers per head plus what
the rest of their circuits adds, each with its standard error. Means are over runs; the error holds runs and prompts.
"""

import numpy as np

from attnbook.explorers.bayes_table import BAYES_NODES, DRAWS, NOISE_RANGE, bayes_table
from attnbook.in_context import full_runs
from attnbook.in_context.what_the_heads_compute.study import Curve, length_study
from attnlib.in_context.circuits import Circuits

DIMENSIONS = tuple(range(1, 21))
LENGTHS = (1, 2, 3, 5, 7, 10, 14, 20, 28, 40, 57, 80, 113, 160, 226, 320, 500, 1000)
PROMPTS = 4000  # of trained heads, for each length


def data() -> dict:
    """All that the page needs beside closed forms."""
    setting = full_runs.experiment(2)
    return {
        "lengths": list(LENGTHS),
        "noise": list(NOISE_RANGE),
        "draws": DRAWS,
        "bayes": [[bayes_table(d, length, nodes=BAYES_NODES) for length in LENGTHS] for d in DIMENSIONS],
        "trained": {
            "d": setting.d,
            "length": setting.length,
            "sigma": setting.noise_std,
            "prompts": PROMPTS,
            "groups": trained_heads(),
        },
    }


def groups() -> dict[str, Circuits]:
    """The stored heads by what they became: circuits (runs, heads, ...)."""
    one, two = full_runs.load(1).final, full_runs.load(2).final
    return {"one": one, "pair": two[two.cancels], "trapped": two[~two.cancels]}


def trained_heads(lengths: tuple[int, ...] = LENGTHS, *, prompts: int = PROMPTS) -> dict[str, dict]:
    """Per group: mean risk over runs, its standard error, lowest and highest run at every length, the floor (mean over runs), runs."""
    law, found = full_runs.experiment(2).law, {}
    for name, circuits in groups().items():
        study = length_study(law, circuits, lengths, prompts=prompts)
        model: Curve = study.model
        found[name] = {
            "runs": len(circuits.omega),
            "risk": _digits(model.mean),
            "error": _digits(model.standard_error, 2),
            "low": _digits(model.risk.amin(1).numpy()),
            "high": _digits(model.risk.amax(1).numpy()),
            "floor": _digits(study.floor.mean()),
            "floors": _digits(np.sort(study.floor)),
            "steps": _digits(circuits.effective_step.numpy()),
        }
    return found


def _digits(values: np.ndarray | float, count: int = 6) -> list[float] | float:
    array = np.asarray(values, dtype=np.float64)
    rounded = [float(f"{x:.{count}g}") for x in array.ravel()]
    return rounded if array.ndim else rounded[0]
