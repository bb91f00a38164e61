"""What the page on finite dimension measures: one `Drawn` per setting, the theorem's bounds beside the trained heads."""

import math
from dataclasses import dataclass

import torch

from attnbook.single_head.finite_dimension.bounds import (
    Bounds,
    deviation_bounds,
    log_term,
    smallest_certified_dimension,
)
from attnbook.single_head.finite_dimension.deviations import Deviations, two_step_deviations
from attnbook.single_head.finite_dimension.near_half import distance_from_half
from attnbook.single_head.label_counts import possible_counts
from attnlib import checks
from attnlib.single_head.law import Sample, SignalNoiseLaw
from attnlib.single_head.population import FreshScores, log10_error_of_scores, scores_of_fresh_data
from attnlib.single_head.summary import summarise
from attnlib.single_head.training import gradient_descent

INSIDE = (1, 10)  # C of the published condition d >= C n^2 log(n/delta), at which the theorem is judged
SHORTER = (10, 100)  # how many times fewer dimensions than the bounds certify
SMALL_STEP = 0.4  # factor of the step size in the negative control of T1b
WEAK, LARGE = 0.1, 10.0  # SNR in units of (nd)^(-1/4); step size in units of the page's


@dataclass(frozen=True)
class Drawn:
    """R training sets of one law after two steps, with the bounds for their label counts."""

    sample: Sample
    step_size: float
    delta: float
    bounds: Bounds
    found: Deviations
    scores: FreshScores
    log10_error: torch.Tensor  # (R, 2), exact

    @property
    def log_term(self) -> float:
        return log_term(self.sample.law.n, self.delta)

    @property
    def distance(self) -> torch.Tensor:
        """|err_k - 1/2|, (R, 2), exact where it is tiny."""
        return distance_from_half(self.scores)

    def per_sample(self, values: torch.Tensor) -> torch.Tensor:
        """(R, class, kind) spread over the samples: (R, n)."""
        sample = self.sample
        clean, noisy = (values[..., kind].gather(1, sample.signal_class) for kind in (0, 1))
        return torch.where(sample.noisy, noisy, clean)


def at_dimension(
    law: SignalNoiseLaw, step_size: float, d: float, *, n: int | None = None
) -> tuple[SignalNoiseLaw, float]:
    """The same n SNR^2, beta d/n and label noise in d dimensions (rounded up), with n samples: law and step size."""
    whole, size = math.ceil(d), law.n if n is None else n
    norm = law.snr * math.sqrt(law.n / size) * math.sqrt(whole)
    return SignalNoiseLaw(size, whole, norm, law.label_noise), step_size * law.d / law.n * size / whole


def drawn(law: SignalNoiseLaw, step_size: float, draws: int, seed: int, delta: float) -> Drawn:
    """Draw, take two steps by training, and put the bounds beside."""
    sample = law.draw(seed, draws)
    path = gradient_descent(sample, step_size, 2, record=[2])
    scores = scores_of_fresh_data(path.v[-1], path.p[-1], sample)
    bounds = deviation_bounds(law, step_size, *sample.counts(), delta=delta)
    error = log10_error_of_scores(scores, per_class=True)
    return Drawn(sample, step_size, delta, bounds, two_step_deviations(sample, step_size), scores, error)


def certified_dimensions(
    law: SignalNoiseLaw, step_size: float, sizes: list[int], delta: float
) -> dict[bool, list[float]]:
    """Least d that the bounds certify at expected label counts for each n; key True: cross terms bounded by the triangle inequality."""
    settings = [at_dimension(law, step_size, law.d, n=n) for n in sizes]
    return {
        triangle: [smallest_certified_dimension(own, beta, delta=delta, triangle=triangle) for own, beta in settings]
        for triangle in (False, True)
    }


@dataclass(frozen=True)
class FiniteStudy:
    """All that the claims look at."""

    page: Drawn
    wide: Drawn  # four times the samples, d = 20 n u
    possible: dict[bool, Bounds]  # every label count within C4 at delta/2; key True: triangle inequality
    sizes: list[int]
    certified: dict[bool, list[float]]
    shorter: dict[int, torch.Tensor]  # (R,), do two steps fit in so many times fewer dimensions?
    inside: dict[
        float, list[tuple[torch.Tensor, torch.Tensor]]
    ]  # factor of the step -> fits and log10 error per C of INSIDE
    weak: Drawn
    large: Drawn
    far: Drawn  # d = 64 n u


def finite_study(
    law: SignalNoiseLaw, step_size: float, *, draws: int = 40, seed: int = 0, delta: float = 0.01
) -> FiniteStudy:
    """Everything behind the claims F1-F16 and T1b, at one law and step size."""
    checks.probability("delta", delta, open_ends=True)
    n, u = law.n, log_term(law.n, delta)
    counts = possible_counts(law, delta / 2)
    sizes = [max(5, n // 2) * 2**k for k in range(7)]
    certified = certified_dimensions(law, step_size, sizes, delta)
    here = certified_dimensions(law, step_size, [n], delta)[False][0]

    def outcome(d: float, factor: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
        own, beta = at_dimension(law, step_size, d)
        result = summarise(own, factor * beta, draws=draws, seed=seed)
        return result.interpolates, result.log10_clean_error

    published = n**2 * math.log(n / delta)
    wide = at_dimension(law, step_size, 20 * 4 * n * log_term(4 * n, delta), n=4 * n)
    weak_law, weak_step = at_dimension(law, step_size, 100 * law.d)
    snr = WEAK * (n * weak_law.d) ** -0.25
    weak_law = SignalNoiseLaw(n, weak_law.d, snr * math.sqrt(weak_law.d), law.label_noise)
    return FiniteStudy(
        page=drawn(law, step_size, draws, seed, delta),
        wide=drawn(*wide, max(2, draws // 4), seed, delta),
        possible={t: deviation_bounds(law, step_size, *counts, delta=delta, triangle=t) for t in (False, True)},
        sizes=sizes,
        certified=certified,
        shorter={times: outcome(here / times)[0] for times in SHORTER},
        inside={factor: [outcome(c * published, factor) for c in INSIDE] for factor in (1.0, SMALL_STEP)},
        weak=drawn(weak_law, weak_step, draws, seed, delta),
        large=drawn(law, LARGE * step_size, draws, seed, delta),
        far=drawn(*at_dimension(law, step_size, 64 * n * u), draws, seed, delta),
    )
