"""What the page on finite dimension measures: one `Drawn` per setting, the theorem's bounds beside the trained heads."""

import math
from dataclasses import dataclass, replace
from functools import cached_property

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
from attnbook.single_head.mean_field import mean_field_log10_error
from attnlib import checks
from attnlib.single_head.law import Sample, SignalNoiseLaw
from attnlib.single_head.population import FreshScores, log10_error_of_scores, scores_of_fresh_data
from attnlib.single_head.summary import summarise
from attnlib.single_head.training import gradient_descent

INSIDE = (1, 10)  # C of the published condition d >= C n^2 log(n/delta), at which the theorem is judged
SHORTER = (10, 100)  # how many times fewer dimensions than the bounds certify
SMALL_STEP = 0.4  # factor of the step size in the negative control of T1b
WEAK, LARGE = 0.1, 10.0  # SNR in units of (nd)^(-1/4); step size in units of the page's
BOTH_SIDES = (0.5, 1.0, 2.0)  # SNR in the same units
BELOW_ONE = (0.3, 0.6, 0.9)  # largest kappa_k of the draws


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


@dataclass(frozen=True)
class FiniteStudy:
    """All that the claims look at. Each part is computed when it is first asked for: a page computes what it shows."""

    law: SignalNoiseLaw
    step_size: float
    draws: int
    seed: int
    delta: float

    def _drawn(self, law: SignalNoiseLaw, step_size: float, draws: int | None = None) -> Drawn:
        return drawn(law, step_size, self.draws if draws is None else draws, self.seed, self.delta)

    def _outcome(self, d: float, factor: float = 1.0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Fits, log10 error and that of C17 from the label counts at the whole step size, (R,) each."""
        own, beta = at_dimension(self.law, self.step_size, d)
        result = summarise(own, factor * beta, draws=self.draws, seed=self.seed)
        predicted = mean_field_log10_error(own, beta, *own.draw(self.seed, self.draws).counts())
        return result.interpolates, result.log10_clean_error, predicted

    @cached_property
    def page(self) -> Drawn:
        return self._drawn(self.law, self.step_size)

    @cached_property
    def possible(self) -> dict[bool, Bounds]:
        """For every label count within C4 at delta/2; key True: sums bounded by the triangle inequality."""
        counts = possible_counts(self.law, self.delta / 2)
        return {
            t: deviation_bounds(self.law, self.step_size, *counts, delta=self.delta, triangle=t) for t in (False, True)
        }

    @cached_property
    def sizes(self) -> list[int]:
        return [max(5, self.law.n // 2) * 2**k for k in range(7)]

    @cached_property
    def certified(self) -> dict[bool, list[float]]:
        """Least d that the bounds certify at expected label counts for each of `sizes`; keys as in `possible`."""
        return {t: self._least(triangle=t) for t in (False, True)}

    @cached_property
    def cauchy_schwarz(self) -> list[float]:
        """The same with the cross terms bounded by Cauchy and Schwarz and the mean square of the scores."""
        return self._least(cauchy_schwarz=True)

    def _least(self, **how: bool) -> list[float]:
        settings = [at_dimension(self.law, self.step_size, self.law.d, n=n) for n in self.sizes]
        return [smallest_certified_dimension(own, beta, delta=self.delta, **how) for own, beta in settings]

    @cached_property
    def shorter(self) -> dict[int, torch.Tensor]:
        """(R,), do two steps fit in so many times fewer dimensions than are certified?"""
        here = smallest_certified_dimension(*at_dimension(self.law, self.step_size, self.law.d), delta=self.delta)
        return {times: self._outcome(here / times)[0] for times in SHORTER}

    @cached_property
    def inside(self) -> dict[float, list[tuple[torch.Tensor, ...]]]:
        """Factor of the step size -> `_outcome` per C of INSIDE."""
        published = self.law.n**2 * math.log(self.law.n / self.delta)
        return {factor: [self._outcome(c * published, factor) for c in INSIDE] for factor in (1.0, SMALL_STEP)}

    def weak_setting(self, strength: float) -> tuple[SignalNoiseLaw, float]:
        """Law and step size at SNR = strength (nd)^(-1/4) in 100 times the dimensions."""
        law, step = at_dimension(self.law, self.step_size, 100 * self.law.d)
        norm = strength * (law.n * law.d) ** -0.25 * math.sqrt(law.d)
        return SignalNoiseLaw(law.n, law.d, norm, law.label_noise), step

    @cached_property
    def weak(self) -> Drawn:
        return self._drawn(*self.weak_setting(WEAK))

    @cached_property
    def both_sides(self) -> list[Drawn]:
        """One per strength of BOTH_SIDES, with half as many draws more."""
        return [self._drawn(*self.weak_setting(strength), 3 * self.draws // 2) for strength in BOTH_SIDES]

    @cached_property
    def below_one(self) -> list[tuple[float, Drawn]]:
        """Per kappa of BELOW_ONE the theorem's rho and as many draws, SNR by their largest |C_k| - |N_k|, in its least dimension."""
        draws, found = 3 * self.draws // 2, []
        clean, noisy = self.law.draw(self.seed, draws).counts()
        most, a = (clean - noisy).max().item(), self.step_size * self.law.d / (4 * self.law.n)
        for kappa in BELOW_ONE:
            size = (1 - kappa) / 16 / max(1, a**2)
            d = 2 * self.law.n * math.log(10 * self.law.n / self.delta) / size**2
            law, step = at_dimension(self.law, self.step_size, d)
            law = replace(law, signal_norm=math.sqrt(kappa / most * law.d))
            found.append((size, self._drawn(law, step, draws)))
        return found

    @cached_property
    def large(self) -> Drawn:
        return self._drawn(self.law, LARGE * self.step_size)


def finite_study(
    law: SignalNoiseLaw, step_size: float, *, draws: int = 40, seed: int = 0, delta: float = 0.01
) -> FiniteStudy:
    """What the claims F1-F17 and T1b look at, at one law and step size. Raises ValueError for a bad delta."""
    return FiniteStudy(law, step_size, draws, seed, checks.probability("delta", delta, open_ends=True))
