r"""What page I.14 trains and collects for its claims: outcomes of classes, trajectories of the full and of the frozen head, margins."""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch

from attnbook.single_head.long_run import (
    Course,
    Fates,
    class_fates,
    course_of_training,
    law_at,
    log_steps,
    margin_course,
    small_then_long,
    started_at_random,
)
from attnlib import checks
from attnlib.single_head.law import SignalNoiseLaw

FATE_WINDOW = tuple(np.geomspace(0.85, 2.3, 12).tolist())  # x of the fate studies at eta = 0.2; x*(0.2) = 1.62
_N = 100  # samples of the studies that do not depend on the page's law


@dataclass(frozen=True)
class LongStudy:
    """Everything the claims look at. Each part is computed when it is first asked for."""

    law: SignalNoiseLaw  # above the threshold
    low_law: SignalNoiseLaw  # below
    step_size: float
    steps: int
    draws: int
    seed: int

    def _courses(self, shrink: float = 1, steps: int | None = None, **how: object) -> list[Course]:
        """Above and below the threshold, the same draws, trained as one batch."""
        laws, common = (self.law, self.low_law), {"draws": self.draws, "seed": self.seed}
        return course_of_training(laws, self.step_size / shrink, steps or self.steps, **common, **how)

    @cached_property
    def _record(self) -> list[int]:
        return sorted({1, 2, 3, 10, 100, 1000, *log_steps(self.steps)})

    @cached_property
    def _full(self) -> list[Course]:
        return self._courses(record=self._record)

    @cached_property
    def _frozen(self) -> list[Course]:
        return self._courses(record=self._record, attention_step_size=0.0)

    @cached_property
    def _small(self) -> list[Course]:
        return self._courses(50, 3000, record=[1, 20, 50, 3000])

    high = property(lambda self: self._full[0])
    low = property(lambda self: self._full[1])
    frozen_high = property(lambda self: self._frozen[0])
    frozen_low = property(lambda self: self._frozen[1])
    small_high = property(lambda self: self._small[0])  # step size / 50
    small_low = property(lambda self: self._small[1])

    @cached_property
    def averaging_low(self) -> np.ndarray:
        """(draws,), log10 clean error after one step below the threshold, from the label counts of the draw, for orthogonal noise."""
        law = self.low_law
        clean, noisy = law.draw(self.seed, self.draws).counts()
        ratio = law.signal_norm**2 / math.sqrt(law.n * law.d) * (clean - noisy)
        return torch.special.ndtr(-ratio).mean(1).log10().numpy()

    @cached_property
    def starts(self) -> dict[float, Course]:
        """Norm of the Gaussian start -> course."""
        sizes, common = (0.0, 0.01, 0.1, 0.3, 1.0), {"draws": self.draws, "seed": self.seed}
        courses = started_at_random(self.law, sizes, self.step_size, 300, record=[2, 300], **common)
        return dict(zip(sizes, courses, strict=True))

    @cached_property
    def fates(self) -> dict[int, Fates]:
        """d -> outcomes at eta = 0.2, x in FATE_WINDOW."""
        return {d: self._fates([(x, 0.2) for x in FATE_WINDOW], d) for d in (40_000, 10**6)}

    @cached_property
    def no_noise(self) -> Fates:
        return self._fates([(x, 0.0) for x in np.geomspace(0.6, 1.6, 10)], 10**6)

    @cached_property
    def same_draws(self) -> Fates:
        """eta = 0.2, x = 1.3, with the exact SVM."""
        return self._fates([(1.3, 0.2)], 200_000, draws=10, svm=True)

    def _fates(self, settings: list[tuple[float, float]], d: int, draws: int = 5, svm: bool = False) -> Fates:
        laws = [law_at(x, _N, d, eta) for x, eta in settings]
        return class_fates(laws, small_then_long(_N, d), draws=draws, seed=self.seed, svm=svm)

    @cached_property
    def ratios(self) -> tuple[np.ndarray, ...]:
        """Normalised margin (S, draws) where SS and where XX is best."""
        laws = [SignalNoiseLaw(40, 8000, norm, 0.1) for norm in (40.0, 12.0)]
        return tuple(margin_course(law, 0.02, 10_000, draws=self.draws, seed=self.seed)[1] for law in laws)


def long_study(
    law: SignalNoiseLaw, low_norm: float, step_size: float, *, steps: int = 3000, draws: int = 5, seed: int = 0
) -> LongStudy:
    """What the claims look at. `law` above the threshold, `low_norm` the signal norm of the law below it; steps >= 1000, draws >= 2.

    Raises ValueError for a bad argument before any work.
    """
    checks.positive_number("step_size", step_size)
    checks.whole_number("steps", steps, at_least=1000, hint="the claims look at step 1000")
    checks.whole_number("draws", draws, at_least=2)
    checks.whole_number("seed", seed, at_least=0)
    low = replace(law, signal_norm=checks.positive_number("low_signal_norm", low_norm))
    return LongStudy(law, low, step_size, steps, draws, seed)
