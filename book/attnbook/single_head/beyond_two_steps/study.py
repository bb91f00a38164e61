r"""What page I.6 trains and collects for its claims L1-L17.

Fixed-size parts (the same whatever the page's parameters): outcomes of classes, traps, normalised margins. At the page's own law:
trajectories of the full and of the frozen head above and below the threshold.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch

from attnbook.single_head.flow import flow_step
from attnbook.single_head.long_run import (
    Course,
    Fates,
    class_fates,
    course_of_training,
    law_at,
    log_steps,
    margin_course,
    orthogonal_sample,
    small_then_long,
    started_at_random,
)
from attnlib import checks
from attnlib.randomness import stream
from attnlib.single_head.law import SignalNoiseLaw
from attnlib.single_head.training import gram_descent

FATE_WINDOW = tuple(np.geomspace(0.85, 2.3, 12).tolist())  # x of the fate studies at eta = 0.2; x*(0.2) = 1.62


@dataclass(frozen=True)
class LongStudy:
    """Everything the claims look at."""

    law: SignalNoiseLaw  # above the threshold
    low_law: SignalNoiseLaw  # below
    high: Course
    low: Course
    frozen_high: Course
    frozen_low: Course
    small_high: Course  # step size / 50
    small_low: Course
    starts: dict[float, Course]  # size of the Gaussian start -> course
    fates: dict[int, Fates]  # d -> fates at eta = 0.2, x in FATE_WINDOW, n = 100
    no_noise: Fates  # eta = 0
    same_draws: Fates  # eta = 0.2, x = 1.3, with the exact SVM
    plain: Fates  # eta = 0.2, x = 4, 5n/d from the start
    warm: Fates  # the same draws, 500 steps of n/5d first
    strong_small: Fates  # eta = 0.05, x = 400, steps of 2n/(x d)
    strong_large: Fates  # the same draws, steps of n/5d
    ratios: tuple[np.ndarray, np.ndarray]  # normalised margin (S, draws) where SS and where XX is best
    zero_moves: tuple[
        torch.Tensor, torch.Tensor
    ]  # x (K,) and moves of the clean logit (K, steps), orthogonal noise, eta = 0
    flow_runs: tuple[torch.Tensor, ...]  # x (K,), nu (K,), states (K, steps + 1, 6) of the flow as a map


def _zero_moves(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    xs, moves = [], []
    for i, x in enumerate((0.3, 0.7, 0.9, 1.12, 1.5, 4.0)):
        law = law_at(x, 20, 4000, 0.0)
        sample = orthogonal_sample(law, seed + i, 2)
        own = law.signal_norm**2 * sample.counts()[0] / law.d
        for step in (0.25, 5.0, 50.0):
            weight = gram_descent(sample, step * law.n / law.d, 40).attention_on_signal
            rise = weight.diff(dim=0).permute(1, 2, 0)  # (R, n, steps)
            xs.append(own.gather(1, sample.signal_class).flatten())
            moves.append(rise.flatten(0, 1))
    return torch.cat(xs), torch.cat(moves)


def _flow_runs(seed: int, count: int = 60, steps: int = 300) -> tuple[torch.Tensor, ...]:
    rng = stream(seed, "start")
    x, eta = np.exp(rng.uniform(-1.5, 1.5, count)), rng.uniform(0, 0.45, count)
    step, rate = np.exp(rng.uniform(-2, 2.5, count)), np.exp(rng.uniform(-1.4, 1.4, count))
    nu, states = eta / (1 - eta), np.zeros((count, steps + 1, 6))
    for k in range(count):
        for t in range(steps):
            states[k, t + 1] = flow_step(states[k, t].tolist(), step[k], x[k], nu[k], rate[k])
    return torch.as_tensor(x), torch.as_tensor(nu), torch.as_tensor(states)


def long_study(
    law: SignalNoiseLaw, low_norm: float, step_size: float, *, steps: int = 3000, draws: int = 5, seed: int = 0
) -> LongStudy:
    """Train and collect. `law` above the threshold, `low_norm` the signal norm of the law below it; steps >= 1000, draws >= 2.

    Raises ValueError for a bad argument before any work.
    """
    checks.positive_number("step_size", step_size)
    checks.whole_number("steps", steps, at_least=1000, hint="the claims look at step 1000")
    checks.whole_number("draws", draws, at_least=2)
    checks.whole_number("seed", seed, at_least=0)
    low = replace(law, signal_norm=checks.positive_number("low_signal_norm", low_norm))
    record = sorted({1, 2, 3, 10, 100, 1000, *log_steps(steps)})
    common = {"draws": draws, "seed": seed}
    full = course_of_training((law, low), step_size, steps, record=record, **common)
    frozen = course_of_training((law, low), step_size, steps, record=record, attention_step_size=0.0, **common)
    small = course_of_training((law, low), step_size / 50, 3000, record=[1, 20, 50, 3000], **common)
    sizes = (0.0, 0.01, 0.1, 0.3, 1.0)
    starts = started_at_random(law, sizes, step_size, 300, record=[2, 300], **common)
    n, d, runs = 100, 40_000, {"draws": 10, "seed": seed}
    strong = law_at(4.0, 200, d, 0.2)
    upper = law_at(400.0, n, d, 0.05)
    warm_up = (0.2 * 200 / d, 500)
    return LongStudy(
        law=law, low_law=low, high=full[0], low=full[1], frozen_high=frozen[0], frozen_low=frozen[1],
        small_high=small[0], small_low=small[1], starts=dict(zip(sizes, starts, strict=True)),
        fates={
            size: class_fates([law_at(x, n, size, 0.2) for x in FATE_WINDOW], small_then_long(n, size), draws=5, seed=seed)
            for size in (40_000, 10**6)
        },
        no_noise=class_fates(
            [law_at(x, n, 10**6, 0.0) for x in np.geomspace(0.6, 1.6, 10)], small_then_long(n, 10**6), draws=5, seed=seed
        ),
        same_draws=class_fates([law_at(1.3, n, 200_000, 0.2)], small_then_long(n, 200_000), svm=True, **runs),
        plain=class_fates([strong], [(5 * 200 / d, 500)], **runs),
        warm=class_fates([strong], [warm_up, (5 * 200 / d, 300)], **runs),
        strong_small=class_fates([upper], [(2 * n / (400 * d), 1500)], **runs),
        strong_large=class_fates([upper], [(0.2 * n / d, 500)], **runs),
        ratios=tuple(
            margin_course(SignalNoiseLaw(40, 8000, norm, 0.1), 0.02, 10_000, **common)[1] for norm in (40.0, 12.0)
        ),
        zero_moves=_zero_moves(seed), flow_runs=_flow_runs(seed),
    )  # fmt: skip
