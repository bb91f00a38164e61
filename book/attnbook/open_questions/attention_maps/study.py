"""What the claims on attention maps look at: two steps, courses, fates, boundaries, margins and windows of every map."""

from dataclasses import dataclass, replace

import numpy as np
import torch

from attnbook.open_questions.attention_maps.courses import (
    MAPS,
    NORMALISED,
    LocalAttention,
    MapCourse,
    local_attention,
    map_courses,
    two_steps,
)
from attnbook.open_questions.attention_maps.fates import (
    MapFates,
    boundary_curve,
    linear_fates,
    logit_moves,
    map_fates,
    thresholds_of_shares,
)
from attnbook.open_questions.attention_maps.flow import map_descent
from attnbook.open_questions.attention_maps.margin import SELECTIONS, unnormalised_cost, unnormalised_svm
from attnbook.single_head.long_run import law_at, log_steps, small_then_long
from attnbook.single_head.margin import tokens_of
from attnlib import checks
from attnlib.single_head.law import Sample, SignalNoiseLaw
from attnlib.single_head.maps import ENTMAX15, LINEAR, LINEARISED, SPARSEMAX, AttentionMap, relu, softmax

MOVING = tuple(m for m in NORMALISED if m.slope(2) > 0)
_COMPARED = (SPARSEMAX, ENTMAX15, softmax(0.5))  # maps whose boundary lies well below softmax's
MARGIN_NORMS = (5.0, 10.0, 16.0, 24.0)


@dataclass(frozen=True)
class MapsStudy:
    """Everything the claims look at. Dictionaries are keyed by the maps' names."""

    law: SignalNoiseLaw  # at the largest signal norm
    norms: tuple[float, ...]
    step_size: float
    sample: Sample  # of `law`
    two: dict[str, tuple[torch.Tensor, ...]]  # v_1, v_2, p_2
    courses: dict[str, list[MapCourse]]  # one per norm
    predicted: dict[str, np.ndarray]  # mean-field log10 error, (recorded steps, norms, draws)
    linear: list[MapCourse]  # linear attention from a start of norm 1e-3, lowest and highest norm
    relu: list[MapCourse]
    moves: dict[str, tuple[torch.Tensor, torch.Tensor, torch.Tensor]]  # eta = 0, orthogonal noise
    fates_without_noise: dict[str, MapFates]
    fates: dict[str, tuple[MapFates, np.ndarray, np.ndarray]]  # eta = 0.3; x* of the map, x* of softmax
    linear_fates: MapFates  # eta = 0.2
    curves: dict[str, np.ndarray]  # x* at the flip shares SHARES
    svm: torch.Tensor  # (draws, norms, selections), exact |v|^2 at eta = 0.1
    cost: torch.Tensor  # the same, orthogonal limit
    local: LocalAttention

    def at_norm(self, name: str, norm: float) -> MapCourse:
        """The course of a map at one of the norms."""
        return self.courses[name][self.norms.index(norm)]

    @property
    def low(self) -> float:
        """The norm the low-SNR claims look at: the largest with x < 0.3, or the smallest of all."""
        return max((norm for norm in self.norms if self.x(norm) < 0.3), default=min(self.norms))

    def x(self, norm: float) -> float:
        """Expected x = rho^2 |C_k| / d."""
        return norm**2 * self.law.n * (1 - self.law.label_noise) / 2 / self.law.d


def _margins(draws: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Exact SVMs and formulas, (draws, norms, selections), n = 100, d = 20000, eta = 0.1."""
    drawn = SignalNoiseLaw(100, 20_000, 1.0, 0.1).draw(seed, draws)
    tokens = [[tokens_of(drawn, r).with_signal_norm(norm) for norm in MARGIN_NORMS] for r in range(draws)]
    return tuple(
        torch.tensor([[[f(one, kind) for kind in SELECTIONS] for one in row] for row in tokens], dtype=torch.float64)
        for f in (unnormalised_svm, unnormalised_cost)
    )


def _mean_field(
    laws: list[SignalNoiseLaw], attention_map: AttentionMap, step_size: float, record: list[int], sample: Sample
) -> np.ndarray:
    """(S, norms, draws): log10 error of the mean-field head with each draw's own counts."""
    clean, noisy = (
        part.clamp_min(1e-9).repeat(len(laws), 1) for part in sample.counts()
    )  # an empty class is a faint one
    norms = torch.tensor([law.signal_norm for law in laws], dtype=torch.float64).repeat_interleave(sample.runs)
    n, d = sample.law.n, sample.law.d
    x, share = norms.unsqueeze(1) ** 2 * clean / d, noisy / (clean + noisy)
    path = map_descent(x.flatten(), share.flatten(), attention_map, step_size * d / n, record=record)
    return path.log10_error(clean, noisy, d).view(-1, len(laws), sample.runs).numpy()


def maps_study(
    law: SignalNoiseLaw,
    norms: tuple[float, ...],
    step_size: float,
    *,
    steps: int = 2000,
    draws: int = 10,
    seed: int = 0,
) -> MapsStudy:
    """Train and collect. Courses at every signal norm; the last norm is that of `law`; steps >= 1000, draws >= 2.

    Raises ValueError for a bad argument before any work.
    """
    checks.positive_number("step_size", step_size)
    checks.whole_number("steps", steps, at_least=1000, hint="the claims look at step 1000")
    checks.whole_number("draws", draws, at_least=2)
    checks.whole_number("seed", seed, at_least=0)
    norms = tuple(checks.positive_number("norms", norm) for norm in norms)
    if len(norms) < 2 or list(norms) != sorted(set(norms)):
        raise ValueError(f"norms must be two or more increasing signal norms; got {norms}")
    laws = [replace(law, signal_norm=norm) for norm in norms]
    record = sorted({1, 2, 10, 100, 1000, *log_steps(steps, 2)})
    common = {"draws": draws, "seed": seed}
    sample = laws[-1].draw(seed, draws)
    n, d, slow = 100, 10**6, small_then_long(100, 10**6)
    quiet = [law_at(x, n, d, 0.0) for x in np.geomspace(0.6, 1.6, 10)]
    loud = [law_at(x, n, d, 0.3) for x in np.geomspace(1.8, 3.2, 10)]
    fates = {m.name: map_fates(loud, m, slow, seed=seed) for m in _COMPARED}
    flipped = next(iter(fates.values())).flipped
    # Sparsemax has a kink where a weight becomes zero, and needs shorter steps.
    curves = {m.name: boundary_curve(m, step=0.04 if m is SPARSEMAX else 0.08) for m in MOVING}
    own = {name: thresholds_of_shares(curve, flipped) for name, curve in curves.items()}
    ends, small = [laws[0], laws[-1]], {"draws": draws, "seed": seed, "record": [20, 200, 1000], "start_size": 1e-3}
    svm, cost = _margins(draws, seed)
    return MapsStudy(
        law=laws[-1], norms=norms, step_size=step_size, sample=sample,
        two={m.name: two_steps(sample, step_size, m) for m in MAPS},
        courses={m.name: map_courses(laws, m, step_size, steps, record=record, **common) for m in MAPS},
        predicted={m.name: _mean_field(laws, m, step_size, record, sample) for m in MAPS},
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
        svm=svm, cost=cost, local=local_attention(seed=seed),
    )  # fmt: skip
