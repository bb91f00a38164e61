"""What the claims on thresholds look at: moves, boundaries, fates and margins of attention maps, and linear attention."""

from dataclasses import dataclass, replace

import numpy as np
import torch

from attnbook.open_questions.attention_maps.courses import MOVING, map_courses
from attnbook.open_questions.attention_maps.fates import (
    MapFates,
    boundary_curve,
    linear_fates,
    logit_moves,
    map_fates,
    thresholds_of_shares,
)
from attnbook.open_questions.attention_maps.margin import SELECTIONS, unnormalised_cost, unnormalised_svm
from attnbook.single_head.long_run import Course, law_at, small_then_long
from attnbook.single_head.margin import tokens_of
from attnlib import checks
from attnlib.single_head.law import Sample, SignalNoiseLaw
from attnlib.single_head.maps import ENTMAX15, LINEAR, LINEARISED, SPARSEMAX, relu, softmax

_COMPARED = (SPARSEMAX, ENTMAX15, softmax(0.5))  # maps whose boundary lies well below softmax's
MARGIN_NORMS = (5.0, 10.0, 16.0, 24.0)


@dataclass(frozen=True)
class ThresholdsStudy:
    """Everything the claims look at. Dictionaries are keyed by the maps' names."""

    step_size: float
    sample: Sample  # of the page's law
    linear: list[Course]  # linear attention from a start of norm 1e-3, weak and strong signal
    relu: list[Course]
    moves: dict[str, tuple[torch.Tensor, torch.Tensor, torch.Tensor]]  # eta = 0, orthogonal noise
    fates_without_noise: dict[str, MapFates]
    fates: dict[str, tuple[MapFates, np.ndarray, np.ndarray]]  # eta = 0.3; x* of the map, x* of softmax
    linear_fates: MapFates  # eta = 0.2
    curves: dict[str, np.ndarray]  # x* at the flip shares SHARES
    svm: torch.Tensor  # (draws, norms, selections), exact |v|^2 at eta = 0.1
    cost: torch.Tensor  # the same, orthogonal limit


def _margins(draws: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Exact SVMs and formulas, (draws, norms, selections), n = 100, d = 20000, eta = 0.1."""
    drawn = SignalNoiseLaw(100, 20_000, 1.0, 0.1).draw(seed, draws)
    tokens = [[tokens_of(drawn, r).with_signal_norm(norm) for norm in MARGIN_NORMS] for r in range(draws)]
    return tuple(
        torch.tensor([[[f(one, kind) for kind in SELECTIONS] for one in row] for row in tokens], dtype=torch.float64)
        for f in (unnormalised_svm, unnormalised_cost)
    )


def thresholds_study(
    law: SignalNoiseLaw, weak_norm: float, step_size: float, *, draws: int = 10, seed: int = 0
) -> ThresholdsStudy:
    """Train and collect. Linear attention is trained at `weak_norm` and at the signal norm of `law`; draws >= 2.

    Raises ValueError for a bad argument before any work.
    """
    checks.positive_number("step_size", step_size)
    checks.positive_number("weak_norm", weak_norm)
    checks.whole_number("draws", draws, at_least=2)
    checks.whole_number("seed", seed, at_least=0)
    n, d, slow = 100, 10**6, small_then_long(100, 10**6)
    quiet = [law_at(x, n, d, 0.0) for x in np.geomspace(0.6, 1.6, 10)]
    loud = [law_at(x, n, d, 0.3) for x in np.geomspace(1.8, 3.2, 10)]
    fates = {m.name: map_fates(loud, m, slow, seed=seed) for m in _COMPARED}
    flipped = next(iter(fates.values())).flipped
    # Sparsemax has a kink where a weight becomes zero, and needs shorter steps.
    curves = {m.name: boundary_curve(m, step=0.04 if m is SPARSEMAX else 0.08) for m in MOVING}
    own = {name: thresholds_of_shares(curve, flipped) for name, curve in curves.items()}
    ends, small = (
        [replace(law, signal_norm=weak_norm), law],
        {"draws": draws, "seed": seed, "record": [20, 200, 1000], "start_size": 1e-3},
    )
    svm, cost = _margins(draws, seed)
    return ThresholdsStudy(
        step_size=step_size, sample=law.draw(seed, draws),
        linear=map_courses(ends, LINEAR, step_size / 10, 1000, **small),
        relu=map_courses(ends, relu(0.0), step_size / 10, 1000, **small),
        moves={
            m.name: logit_moves(m, (0.3, 0.7, 0.9, 1.12, 1.5, 4.0), (0.25, 5.0, 50.0), seed=seed)
            for m in (*_COMPARED, LINEARISED)
        },
        fates_without_noise={m.name: map_fates(quiet, m, slow, seed=seed) for m in _COMPARED},
        curves=curves, fates={name: (found, own[name], own["softmax"]) for name, found in fates.items()},
        linear_fates=linear_fates(
            [law_at(x, n, d, 0.2) for x in np.geomspace(0.7, 2.6, 12)], 1e-8, 0.25 * n / d, 1500, seed=seed
        ),
        svm=svm, cost=cost,
    )  # fmt: skip
