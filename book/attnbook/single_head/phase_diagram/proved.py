"""Which cells of a phase diagram are theorems: the proved outcome of each cell, and draws that had another outcome.

`python -m attnbook.single_head.phase_diagram.proved` makes the stored table, in some minutes on one core: three planes through the page's
setting, at three numbers of samples and three dimensions, and one plane at several failure probabilities for the explorer.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import torch

from attnbook.files import require_writable, write_arrays
from attnbook.single_head.phase import PhaseDiagram, PhasePlan, phase_diagram, phase_plan
from attnbook.single_head.phase_theory import mean_field_readings
from attnbook.single_head.proved import OUTCOMES, UNDECIDED, proved_outcome
from attnbook.stored import seal, sealed
from attnlib.single_head.errors import log10_error_of_scores, scores_of_fresh_data
from attnlib.single_head.law import SignalNoiseLaw
from attnlib.single_head.training import gradient_descent
from bookkit.parser import answered

TABLE = Path(__file__).parent / "tables" / "proved.npz"
BENIGN, HARMFUL, FLIPPED, CLEAN = range(4)  # codes of OUTCOMES; -1: not decided
DELTA, ERROR = 0.01, 0.1
NOISE, MULTIPLE = 0.05, 5.0  # eta and beta d / n of the stored planes, where they are fixed
PAGE, SIZES, DIMENSIONS = (200, 40_000), (50, 200, 1000), (40_000, 10**6, 10**9)
DELTAS = (0.5, 0.1, 0.01, 0.001)  # of the explorer's plane
# cells along an axis: the page's setting, other stored ones, what is computed while one waits
_FINE, _COARSE, _FEW = 16, 12, 6
_BOXES = 2000  # of label counts in a cell
_DRAWS = 60  # training sets that tell in which cells all draws agree


def planes(n: int, d: int, label_noise: float, multiple: float, cells: int) -> dict[str, PhasePlan]:
    """SNR against the number of samples, the step size beta d/n and the label noise, each through one setting."""
    snr, levels = np.geomspace(0.006, 1.5, cells), np.linspace(0, 0.45, cells)
    sizes = np.unique(np.rint(np.geomspace(n / 10, n, cells)))
    steps, norm = np.geomspace(0.1, 60, cells), snr * np.sqrt(d)
    own = {"n": n, "d": d, "signal_norm": norm, "label_noise": label_noise, "step_size": multiple * n / d}
    column = {
        "n": (sizes, {"n": sizes[:, None], "step_size": multiple * sizes[:, None] / d}),
        "step": (steps, {"step_size": steps[:, None] * n / d}),
        "noise": (levels, {"label_noise": levels[:, None]}),
    }
    return {name: phase_plan(snr, y, **(own | settings)) for name, (y, settings) in column.items()}


def proved_phases(plan: PhasePlan, delta: float = DELTA) -> np.ndarray:
    """Index into `OUTCOMES` of what is proved with probability 1 - delta in each cell, (rows, columns); -1 where nothing is."""
    codes = {name: k for k, name in enumerate(OUTCOMES)} | {UNDECIDED: -1}
    settings = np.broadcast_arrays(plan.n, plan.d, plan.signal_norm, plan.label_noise, plan.step_size)
    found = [
        codes[proved_outcome(SignalNoiseLaw(int(n), int(d), rho, eta), beta, delta, error=ERROR, boxes=_BOXES).outcome]
        for n, d, rho, eta, beta in zip(*(each.ravel().tolist() for each in settings), strict=True)
    ]
    return np.array(found).reshape(plan.shape)


def predicted_phases(plan: PhasePlan) -> np.ndarray:
    """What orthogonal noise with expected label counts lets one expect in each cell, with the same codes; nothing is proved."""
    margin, strength = mean_field_readings(plan)
    return np.where(margin <= 0, FLIPPED, np.where(strength > 0, BENIGN, HARMFUL))


def disagreements(codes: np.ndarray, diagram: PhaseDiagram) -> np.ndarray:
    """(rows, columns, draws): the draw has another outcome than the one in `codes`; nowhere where that is -1.

    A diagram does not say of which kind an unfitted label is: a draw that leaves one unfitted agrees with both codes for that. An
    error that is no number agrees with no outcome that speaks of the error.
    """
    fits, limit, code = diagram.interpolates, np.log10(ERROR), codes[..., None]
    less, more = fits & (diagram.log10_error < limit), fits & (diagram.log10_error >= limit)
    right: np.ndarray = np.select([code == BENIGN, code == HARMFUL, code >= FLIPPED], [less, more, ~fits], True)
    return ~right


def all_agree(diagram: PhaseDiagram) -> np.ndarray:
    """(rows, columns): every draw of the cell has the same outcome."""
    each = diagram.phases()
    result: np.ndarray = (each == each[..., :1]).all(-1)
    return result


def error_intervals(law: SignalNoiseLaw, step_size: float, draws: int, seed: int) -> np.ndarray:
    """(draws, 4): log10 clean error of drawn training sets after two steps, and what is proved of it from the labels of the set alone.

    The exact error; the lower and the upper end; the exact error of a head whose projection of v on p has the other sign.
    """
    sample = law.draw(seed, draws)
    path, counts = gradient_descent(sample, step_size, 2), torch.stack(sample.counts(), -1).flatten(1)
    scores = scores_of_fresh_data(path.v[2], path.p[2], sample)
    ends = [proved_outcome(law, step_size, DELTA, counts=own).log10_error for own in counts.tolist()]
    exact, turned = (log10_error_of_scores(own) for own in (scores, replace(scores, along=-scores.along)))
    return np.column_stack([exact, ends, turned])


# --- the stored table ------------------------------------------------------------------------------------------------------


def _name(*parts: object) -> str:
    return "_".join(map(str, parts))


@cache
def table() -> dict[str, np.ndarray]:
    """The stored arrays: codes of PLANE_N_D, of step_N_D_DELTA, and agree_PLANE_N_D."""
    with np.load(sealed(TABLE)) as file:
        return dict(file)


def is_stored(n: int, d: int, label_noise: float, multiple: float) -> bool:
    """Whether the table has the planes through this setting."""
    return n in SIZES and d in DIMENSIONS and np.allclose((label_noise, multiple), (NOISE, MULTIPLE), rtol=1e-9)


def proved_planes(n: int, d: int, label_noise: float, multiple: float) -> dict[str, tuple[PhasePlan, np.ndarray]]:
    """The three planes through a setting with their proved cells: stored ones, or few cells, computed now."""
    if is_stored(n, d, label_noise, multiple):
        plans = planes(n, d, NOISE, MULTIPLE, _FINE if (n, d) == PAGE else _COARSE)
        return {name: (plan, table()[_name(name, n, d)]) for name, plan in plans.items()}
    return {name: (plan, proved_phases(plan)) for name, plan in planes(n, d, label_noise, multiple, _FEW).items()}


def shares(n: int, d: int) -> tuple[float, float, float]:
    """Of the stored cells of a size: the fraction that is proved, in which all draws agree, and of these the fraction that is proved."""
    pairs = [(table()[_name(name, n, d)] >= 0, table()[_name("agree", name, n, d)]) for name in ("n", "step", "noise")]
    proved, agree = (np.concatenate([pair[k].ravel() for pair in pairs]) for k in (0, 1))
    return proved.mean(), agree.mean(), proved[agree].mean()


def _made() -> Iterator[tuple[str, np.ndarray]]:
    for n in SIZES:
        for d in DIMENSIONS:
            for name, plan in planes(n, d, NOISE, MULTIPLE, _FINE if (n, d) == PAGE else _COARSE).items():
                yield _name(name, n, d), proved_phases(plan).astype(np.int8)
                yield _name("agree", name, n, d), all_agree(phase_diagram(plan, draws=_DRAWS, seed=0))
    plan = planes(*PAGE, NOISE, MULTIPLE, _FINE)["step"]
    for delta in DELTAS:
        yield _name("step", *PAGE, delta), proved_phases(plan, delta).astype(np.int8)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command: prove all cells of the table, and store it whole."""
    parser = argparse.ArgumentParser(
        prog="python -m attnbook.single_head.phase_diagram.proved", description="Prove the cells of page I.5."
    )
    parser.add_argument("-o", "--output", type=Path, default=TABLE, metavar="FILE", help="the table (an .npz file)")
    options = parser.parse_args(arguments)
    try:
        require_writable(options.output)
    except ValueError as error:
        parser.error(str(error))
    found = {}
    for name, values in _made():
        found[name] = values
        print(f"{name}: {np.mean(values >= 0 if values.dtype == np.int8 else values):.3f}", flush=True)
    write_arrays(options.output, compressed=True, **found)
    seal(options.output)
    return 0


if __name__ == "__main__":
    raise SystemExit(answered("proved", main))
