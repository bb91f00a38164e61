"""What the claims on long training under other noise laws look at."""

from dataclasses import dataclass

from attnbook.open_questions.noise_laws.covariance import AutoRegressive, Covariance, Spiked
from attnbook.open_questions.noise_laws.laws import NoiseLaw
from attnbook.open_questions.noise_laws.long_runs import CorrelatedFates, RadialFates, correlated_fates, radial_fates
from attnbook.open_questions.noise_laws.traces import two_level
from attnbook.single_head.long_run import Course, course_of_training
from attnlib import checks

TARGETS = (0.6, 0.8, 0.9, 1.0, 1.1, 1.25, 1.6, 2.0)  # expected x_h of the runs with heavy radial tails
_XS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.15, 1.3, 1.6, 2.2)  # rho^2 n / 2d of the runs with correlated noise
_WIDE = 20_000


@dataclass(frozen=True)
class LongNoiseStudy:
    """Everything the claims look at."""

    radial: dict[float, RadialFates]  # freedom -> n = 200, d = 40000, eta = 0
    correlated: dict[str, CorrelatedFates]  # n = 100, d = 20000, eta = 0
    avoiding: list[Course]  # n = 100, d = 20000, eta = 0.05, rho = 10 and 30
    meeting: list[Course]  # the same draws, noise not projected off the signals


def long_noise_study(*, draws: int = 10, seed: int = 0) -> LongNoiseStudy:
    """Train and collect; half as many draws of correlated noise. Raises ValueError for a bad argument before any work."""
    checks.whole_number("draws", draws, at_least=4)
    checks.whole_number("seed", seed, at_least=0)
    covariances = {
        "white": Covariance(),
        "AR(1) .9": AutoRegressive(0.9),
        "spike d": Spiked(float(_WIDE)),
        "half tr Σ": two_level(_WIDE, 0.5, 1.0),
    }
    avoiding, meeting = (
        course_of_training(
            [NoiseLaw(100, _WIDE, norm, 0.05, noise_avoids_signals=avoids) for norm in (10.0, 30.0)], 0.025, 3000,
            draws=draws, seed=seed,
        )
        for avoids in (True, False)
    )  # fmt: skip
    return LongNoiseStudy(
        radial={
            freedom: radial_fates(freedom, TARGETS, draws=draws, seed=seed, svm=freedom == 3)
            for freedom in (3.0, 5.0, 10.0)
        },
        correlated={
            name: correlated_fates(covariance, _XS, d=_WIDE, draws=draws // 2, seed=seed)
            for name, covariance in covariances.items()
        },
        avoiding=avoiding,
        meeting=meeting,
    )
