"""Everything the page on the trap and its claims look at, measured once."""

from dataclasses import dataclass, replace

import numpy as np

from attnbook.open_questions.out_of_the_trap.trap_boundaries import pass_threshold, runs_from_anywhere
from attnbook.open_questions.out_of_the_trap.trap_escape import (
    CANDIDATES,
    after_first_pass,
    batch_sweep,
    candidate_fates,
    escape_map,
)
from attnbook.open_questions.outcomes import Outcome, rule_fates
from attnbook.single_head.long_run import Fates, class_fates, law_at
from attnlib import checks
from attnlib.single_head.rules import BLOCK_NORMALISED, GRADIENT_DESCENT, stochastic

MAP_XS = tuple(np.geomspace(0.1, 2.0, 14).tolist())
MAP_THETAS = tuple(np.geomspace(1.25, 80.0, 13).tolist())
SWEEP_THETAS = (5.0, 25.0, 50.0, 100.0)
SWEEP_BATCHES = (100, 50, 20, 5, 1)


@dataclass(frozen=True)
class TrapStudy:
    """Everything the claims look at."""

    ends: tuple[np.ndarray, np.ndarray, np.ndarray]  # `runs_from_anywhere`
    candidates: dict[str, Outcome]  # eta = 0.2, x = 1.3
    batches: dict[str, Outcome]  # the two of them with mini-batches, 40 draws
    same_draws: Fates  # eta = 0.2, x = 1.3, gradient descent for long and the exact SVM; eight times the draws
    flow_fates: Outcome  # gradient descent, eta = 0.3, x in [1.3, 3.6]
    block_fates: Outcome  # block-normalised, the same draws
    passes: dict[str, Outcome]  # first pass in batches of 20, eta = 0.1, x = 0.27; four times the draws
    wide_pass: tuple[Outcome, float, int]  # the first pass at d = 10^9, theta, number of batches
    sweep: dict[int, list[Outcome]]  # by batch size, for SWEEP_THETAS
    boundaries: dict[float, np.ndarray]  # by eta: x of the mean-field pass, for every theta of the maps
    maps: dict[float, np.ndarray]  # by eta: share of classes on the signal (x, theta)


def trap_study(*, draws: int = 10, seed: int = 0) -> TrapStudy:
    """Train and collect, `draws` training sets where no other number is named. Raises ValueError for a bad argument before any work."""
    checks.whole_number("draws", draws, at_least=2)
    checks.whole_number("seed", seed, at_least=0)
    few = {"draws": draws, "seed": seed}
    weak = law_at(0.27, 100, 20_000, 0.1)
    wide = replace(weak, n=200, d=10**9, signal_norm=law_at(0.27, 200, 10**9, 0.1).signal_norm)
    window = [law_at(x, 200, 10**6, 0.3) for x in np.geomspace(1.3, 3.6, 12)]
    start = ((0.25 * 100 / 200_000, 400), (4 * 100 / 200_000, 20_000))
    return TrapStudy(
        ends=runs_from_anywhere(seed),
        candidates=candidate_fates(**few),
        batches={
            name: rule_fates([law_at(1.3, 100, 200_000, 0.2)], *CANDIDATES[name], draws=40, seed=seed)
            for name in ("batches of 20, n/4d", "batches of 20, 5 n/d")
        },
        same_draws=class_fates([law_at(1.3, 100, 200_000, 0.2)], start, svm=True, draws=8 * draws, seed=seed),
        flow_fates=rule_fates(window, GRADIENT_DESCENT, 0.25, 1600, draws=5, seed=seed),
        block_fates=rule_fates(window, BLOCK_NORMALISED, 0.25, 800, draws=5, seed=seed),
        passes=after_first_pass(weak, 20, 10.0, draws=4 * draws, seed=seed),
        wide_pass=(rule_fates([wide], stochastic(20), 50.0 * 20 / 200, 10, **few), 50.0, 10),
        sweep=batch_sweep(weak, SWEEP_THETAS, SWEEP_BATCHES, **few),
        boundaries={eta: pass_threshold(eta, MAP_THETAS, 20) for eta in (0.0, 0.2)},
        maps={eta: escape_map(MAP_XS, MAP_THETAS, eta, draws=5, seed=seed) for eta in (0.0, 0.2)},
    )  # fmt: skip
