r"""Attention over time: three situations of the paper, and the straight line hidden in every saturating curve.

The *gap* of a clean sample is $x = z_1 - \log\frac{1}{T-1}\sum_{t>1}e^{z_t}$, so that $s_1 = e^x/(e^x+T-1)$. If a force $\lambda s(1-s)$
drives it, the growth function of `growth` rises by $\lambda$ per unit of time. The force carries the factor
$W^\top W\approx\sigma_w^2d+|p|^2$, which grows as $p$ does; the *clock* $\int(\sigma_w^2d+|p|^2)\,d\tau$ takes that out.
Source: situations from arXiv 2409.17625 (poster) and its code; the rest derived in the theory chapter of Part II.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from attnbook.draws import mean
from attnbook.token_selection.dynamics.growth import growth, inverse_growth
from attnbook.token_selection.dynamics.official import LeakedTest, leaked_test
from attnlib import checks
from attnlib.token_selection.gram import draw_gram
from attnlib.token_selection.law import Start, TokenLaw
from attnlib.token_selection.population import Population, population_along
from attnlib.token_selection.training import Trajectory, train

SITUATIONS = {"large noise": (4500, 5.0), "large signal": (1000, 100.0)}  # d, |mu|; the balanced one is the page's own
LOGGED = (50, 99, 199, 499, 999)  # steps at which the authors' run is quoted
# Their default run at these steps: attention of clean samples on token 0, of flipped ones on tokens 0 and 1.
PUBLISHED_ATTENTION = (
    (0.269, 0.633, 0.921, 0.984, 0.995),
    (0.130, 0.158, 0.104, 0.021, 0.005),
    (0.137, 0.153, 0.221, 0.534, 0.844),
)
DEFAULTS = TokenLaw(20, 2000, 8, 20.0), 5e-3, 1000  # the authors' configuration
END_COUNT = 20_000  # fresh points at the end
_ROWS = 26  # moments at which fresh data are drawn


@dataclass(frozen=True)
class Situation:
    """R trainings of one law, and what fresh data see of them."""

    name: str
    start: Start
    trajectory: Trajectory
    rows: tuple[int, ...]  # rows of the trajectory at which fresh data were drawn
    along: Population  # (rows, R)
    end: Population  # (R,), more draws

    @property
    def law(self) -> TokenLaw:
        return self.trajectory.law


def recorded_steps(steps: int) -> list[int]:
    """Steps at which a situation is recorded: some 125 evenly spaced ones, and those at which the authors' run is quoted."""
    return sorted({*range(0, steps + 1, max(1, steps // 125)), *(step for step in LOGGED if step <= steps)})


def situation(
    law: TokenLaw, step_size: float, steps: int, runs: int, seed: int, *, name: str = "", count: int = 2000
) -> Situation:
    """Train `runs` training sets; fresh data at some moments (`count` points) and at the end (`END_COUNT`).

    Raises ValueError for a bad argument before any work.
    """
    checks.whole_number("runs", runs, at_least=2, hint="a spread needs two runs")
    checks.whole_number("steps", steps, at_least=8)
    checks.positive_number("step_size", step_size)
    start = Start()
    trajectory = train(draw_gram(law, seed, runs, start=start), step_size, steps, record=recorded_steps(steps))
    last = len(trajectory.steps) - 1
    rows = tuple(sorted({round(last * (j / (_ROWS - 1)) ** 1.5) for j in range(_ROWS)}))
    along = population_along(trajectory, count=count, rows=list(rows))
    end = population_along(trajectory, count=END_COUNT, rows=[last])
    return Situation(name, start, trajectory, rows, along, Population(*(value[0] for value in vars(end).values())))


@dataclass(frozen=True)
class GrowthLines:
    """Gap and growth function of every sample, and clocks; all (S, R, n). `clean` (R, n) says where they mean something."""

    clean: torch.Tensor
    gap: torch.Tensor
    growth: torch.Tensor
    growth_log_tokens: torch.Tensor  # with log T in place of log(T - 1)
    steps: torch.Tensor  # time, sum of step sizes
    clock: torch.Tensor  # integral of weight_scale + |p|^2
    tokens: int

    def over_clean(self, values: torch.Tensor, statistic: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        """(R,): `statistic` of the values (R, n) of the clean samples of each training set."""
        return torch.stack([statistic(row[own]) for row, own in zip(values, self.clean, strict=True)])

    def straightness(self, values: torch.Tensor, against: torch.Tensor) -> torch.Tensor:
        """R^2 of values against time, sample by sample: (R, n), nan for flipped samples."""
        return torch.where(self.clean, r_squared(against, values), torch.nan)

    def predicted_end(self, against: torch.Tensor) -> torch.Tensor:
        """Gap at the end, if the growth function went on as in the first quarter of the recorded moments: (R, n)."""
        quarter = len(self.gap) // 4
        ratio = against[-1] / against[quarter]
        target = self.growth[0] + ratio * (self.growth[quarter] - self.growth[0])
        return torch.where(self.clean, torch.as_tensor(inverse_growth(target, self.tokens)), torch.nan)


def growth_lines(trajectory: Trajectory, weight_scale: float) -> GrowthLines:
    """Measure them on a trajectory that started with p_0 = 0 and this `weight_scale`."""
    T = checks.whole_number("tokens", trajectory.law.tokens, at_least=2)
    scores = trajectory.scores
    gap = scores[..., 0] - torch.logsumexp(scores[..., 1:], -1) + math.log(T - 1)
    speed = checks.positive_number("weight_scale", weight_scale) + trajectory.prompt_norm_squared
    rise = (speed[1:] + speed[:-1]) / 2 * trajectory.time.diff(dim=0)
    clock = torch.cat([torch.zeros_like(rise[:1]), rise.cumsum(0)])
    return GrowthLines(
        ~trajectory.labels.noisy,
        gap,
        torch.as_tensor(growth(gap, T)),
        torch.as_tensor(growth(gap, T + 1)),
        trajectory.time.unsqueeze(-1).expand_as(gap),
        clock.unsqueeze(-1).expand_as(gap),
        T,
    )


def r_squared(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Squared correlation along the first axis: fraction of the variance of y that a straight line in x explains."""
    x, y = x - x.mean(0), y - y.mean(0)
    return (x * y).sum(0) ** 2 / ((x * x).sum(0) * (y * y).sum(0))


@dataclass(frozen=True)
class DynamicsStudy:
    """Everything page 02 judges."""

    law: TokenLaw
    step_size: float
    steps: int
    situations: dict[str, Situation]  # "balanced" and SITUATIONS
    lines: GrowthLines  # of the balanced situation
    leaks: tuple[LeakedTest, ...]

    @property
    def balanced(self) -> Situation:
        return self.situations["balanced"]


def is_authors_default(study: DynamicsStudy) -> bool:
    """Whether the page runs the authors' configuration, of which numbers are published."""
    return (study.law, study.step_size, study.steps) == DEFAULTS


def dynamics_study(
    law: TokenLaw,
    step_size: float,
    steps: int,
    *,
    runs: int = 8,
    seed: int = 0,
    leak_seeds: Sequence[int] = (42, 0, 1, 2, 3),
) -> DynamicsStudy:
    """Run the three situations and the leaked evaluation.

    Args:
        law: the balanced situation; the others differ in d and |mu|.
        step_size, steps: of gradient descent, everywhere.
        runs: training sets per situation, >= 2.
        seed: of all streams but those of the leak.
        leak_seeds: seeds of the leaked runs (42 is the authors').

    Raises ValueError for a bad argument before any work.
    """
    laws = {"balanced": law} | {name: replace(law, d=d, signal_norm=norm) for name, (d, norm) in SITUATIONS.items()}
    situations = {name: situation(each, step_size, steps, runs, seed, name=name) for name, each in laws.items()}
    lines = growth_lines(situations["balanced"].trajectory, situations["balanced"].start.weight_scale)
    leaks = tuple(leaked_test(law, each, step_size, steps, record=LOGGED) for each in leak_seeds)
    return DynamicsStudy(law, step_size, steps, situations, lines, leaks)


def dynamics_results(path: Trajectory, end: Population) -> dict[str, float]:
    """What the page records: the last record of a course, and what it does on fresh data then."""
    clean, noisy = (path.attention_of(kind)[-1] for kind in ("clean", "noisy"))
    return {
        **mean(path.train_accuracy()[-1]).named("train_accuracy"),
        **mean(path.train_accuracy("clean")[-1]).named("train_accuracy_clean"),
        **mean(path.train_accuracy("noisy")[-1]).named("train_accuracy_noisy"),
        **mean(end.accuracy).named("test_accuracy"),
        **mean(end.loss).named("test_loss"),
        **mean(clean[:, 0]).named("attention_clean"),
        **mean(noisy[:, 0]).named("attention_noisy"),
        **mean(noisy[:, 1]).named("attention_noisy_confusing"),
    }
