r"""What the page on the setting measures: the recursion beside dense training, drawn inner products beside measured ones, and
the head that classifies before anything is learned.

Source: derived in the theory chapter of Part II.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from attnbook.token_selection.setting.descent import gradient_descent
from attnbook.token_selection.setting.three_lines import (
    LongRun,
    force_at_gap,
    long_run,
    naive_forces,
    three_lines,
)
from attnlib import checks
from attnlib.token_selection.gram import Gram, draw_gram, gram_of
from attnlib.token_selection.law import Start, TokenLaw
from attnlib.token_selection.model import forces
from attnlib.token_selection.training import Trajectory, train

LONG_D = 64_000  # dimension of the runs over many decades of time
WRONG = 1.1  # factor on the dimension of the negative control
_POINTS = 20_000  # fresh points of a run
_DRAWS_APART = 1_000_000  # run numbers of the drawn Grams start here: other streams than those of the dense draws


@dataclass(frozen=True)
class Comparison:
    """The same training sets and starts, trained as vectors and without them. Every step is recorded."""

    name: str
    dense: Trajectory
    reduced: Trajectory
    three_lines: torch.Tensor  # (S, R, n, T)
    without_second_order: torch.Tensor  # (S, R, n, T)


def compare_recursion(
    law: TokenLaw, start: Start, step_size: float, steps: int, runs: int, seed: int, *, name: str = ""
) -> Comparison:
    """Train `runs` dense training sets as vectors, by `recursion` and by `three_lines`."""
    sample = law.draw(seed, runs)
    gram = gram_of(sample, start)
    return Comparison(
        name,
        gradient_descent(sample, start, step_size, steps),
        train(gram, step_size, steps),
        three_lines(gram, step_size, steps),
        three_lines(gram, step_size, steps, second_order=0.0),
    )


def gram_statistics(gram: Gram, step_size: float, steps: int) -> dict[str, torch.Tensor]:
    """Named statistics of every run, (R,) each: entries and products of the inner products, and where a training ends."""
    N, T = gram.kernel.shape[2], gram.law.tokens
    last = train(gram, step_size, steps, record=[steps])
    K, H, J, z = gram.kernel, gram.weighted, gram.weighted_twice, gram.scores
    return {
        "mean |x|^2": K[:, :N].diagonal(dim1=1, dim2=2).mean(1),
        "|x_1|^2": K[:, 0, 0],
        "(x_1.x_2)^2": K[:, 0, 1] ** 2,
        "x_1 of two samples": K[:, 0, T],
        "(noise.noise)^2": K[:, T - 1, N - 1] ** 2,
        "x_1.mu/|mu|": K[:, N, 0],
        "mean |Wx|^2": H[:, :N].diagonal(dim1=1, dim2=2).mean(1),
        "|W x_1|^2": H[:, 0, 0],
        "(W x.W x')^2": H[:, T - 1, N - 1] ** 2,
        "(W mu.W x)^2": H[:, N, N - 1] ** 2,
        "|W'W x_1|^2": J[:, 0, 0],
        "|W'W x_T|^2": J[:, T - 1, T - 1],
        "score^2": z[:, 0] ** 2,
        "score.score'": z[:, 0] * z[:, 1],
        "|p|^2": gram.prompt_norm_squared,
        "|v|^2": gram.direction_norm_squared,
        "(x.W'W v)^2": gram.scores_weighted[:, 0] ** 2,
        "loss at the end": last.loss[-1],
        "clean s_1 at the end": last.attention_of("clean")[-1, :, 0],
        "|v|^2 at the end": last.direction_norm_squared[-1],
        "v.mu at the end": last.direction_on_signals[-1, :, 0],
    }


@dataclass(frozen=True)
class LawComparison:
    """Statistics of dense draws and of drawn inner products: name -> (draws,)."""

    law: TokenLaw
    dense: dict[str, torch.Tensor]
    drawn: dict[str, torch.Tensor]
    drawn_wrong: dict[str, torch.Tensor]  # in a dimension `WRONG` times as large: the negative control

    @property
    def draws(self) -> int:
        return next(iter(self.dense.values())).shape[0]

    def moments(self, *, wrong: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
        """(draws, 2 S + 2) of dense and of drawn values: S statistics in units of the dense draws, the squares of their deviations from
        their own mean, and those of the sum and of the alternating sum of all."""
        other = self.drawn_wrong if wrong else self.drawn
        units = {name: values.std() for name, values in self.dense.items()}
        signs = torch.ones(len(units), 2, dtype=torch.float64)
        signs[1::2, 1] = -1
        found = []
        for draws in (self.dense, other):
            values = torch.stack([draws[name] / unit for name, unit in units.items()], 1)
            away = values - values.mean(0)
            found.append(torch.cat([values, away**2, (away @ signs) ** 2], 1))
        return found[0], found[1]

    def z_scores(self, *, wrong: bool = False) -> dict[str, float]:
        """Difference of the two means over its standard error, by statistic."""
        other = self.drawn_wrong if wrong else self.drawn
        return {name: _welch(self.dense[name], other[name]) for name in self.dense}


def _welch(a: torch.Tensor, b: torch.Tensor) -> float:
    return ((a.mean() - b.mean()) / (a.var() / a.shape[0] + b.var() / b.shape[0]).sqrt()).item()


def compare_sampling(law: TokenLaw, start: Start, step_size: float, steps: int, draws: int, seed: int) -> LawComparison:
    """`draws` dense training sets against as many drawn Grams, and against Grams of dimension `WRONG` d."""
    checks.whole_number("draws", draws, at_least=2)
    bigger = replace(law, d=round(WRONG * law.d))
    grams = (
        gram_of(law.draw(seed, draws), start),
        draw_gram(law, seed, draws, start=start, first_run=_DRAWS_APART),
        draw_gram(bigger, seed, draws, start=start, first_run=2 * _DRAWS_APART),
    )
    return LawComparison(law, *(gram_statistics(gram, step_size, steps) for gram in grams))


def uniform_accuracy_measured(
    law: TokenLaw, signal_norms: Sequence[float], count: int, runs: int, seed: int
) -> torch.Tensor:
    """Accuracy of the head under uniform attention on dense fresh points, for every signal norm: (runs, len(signal_norms)).

    Only two coordinates of a token reach the head, so the points are drawn in d = 3. `count` points per run, the same noise for
    every norm.
    """
    checks.whole_number("runs", runs, at_least=2)
    rows = []
    for run in range(runs):
        row = []
        for norm in signal_norms:
            flat = replace(law, d=3, signal_norm=norm)
            points, labels = flat.draw_fresh(count, seed, run=run)
            row.append(((points @ flat.head()).mean(1) * labels > 0).double().mean())
        rows.append(torch.stack(row))
    return torch.stack(rows)


@dataclass(frozen=True)
class SettingStudy:
    """Everything page 01 judges."""

    law: TokenLaw
    zero_prompt: Comparison
    gaussian_prompt: Comparison
    sampling: LawComparison
    signal_norms: torch.Tensor  # (norms,)
    uniform_accuracy: torch.Tensor  # (runs, norms), each of `uniform_count` points
    uniform_count: int
    selected_loss: torch.Tensor  # (runs,): loss of fresh points when all attention is on the relevant token
    gaps: torch.Tensor  # (points,)
    force: dict[str, tuple[torch.Tensor, torch.Tensor]]  # "stable", "naive" -> computed and exact force, (points,) each
    long_runs: dict[str, LongRun]  # "stable", "naive"


def setting_study(
    law: TokenLaw,
    step_size: float,
    *,
    dense_d: int = 200,
    steps: int = 500,
    runs: int = 3,
    draws: int = 300,
    seed: int = 0,
) -> SettingStudy:
    """Measure all of the page.

    Args:
        law: the page's law; comparisons with dense training use the same law in dimension `dense_d`.
        step_size: alpha at law.d; the dense comparison multiplies it by law.d / dense_d, so that scores move as far.
        dense_d: dimension of the dense comparison.
        steps: of the dense comparison, >= 1.
        runs: of the dense comparison, >= 1.
        draws: of the comparison in distribution, >= 200.
        seed: of all streams.

    Raises ValueError for a bad argument before any work.
    """
    checks.whole_number("steps", steps, at_least=1)
    checks.whole_number("runs", runs, at_least=1)
    checks.whole_number("draws", draws, at_least=200, hint="fewer draws cannot tell a wrong dimension apart")
    alpha = checks.positive_number("step_size", step_size) * law.d / dense_d
    dense_law = replace(law, d=checks.whole_number("dense_d", dense_d, at_least=3))
    zero, gaussian = Start(), Start(prompt_scale=1.0)
    small = TokenLaw(4, 60, 5, 6.0, law.weak_signal, law.noise_std, 0.5)
    both = {"stable": forces, "naive": naive_forces}
    gaps = torch.linspace(0, 600, 1201, dtype=torch.float64)
    far = draw_gram(replace(law, d=LONG_D), seed, 5)
    norms = torch.tensor([1.0, 2, 4, 6, 8, 12, 20], dtype=torch.float64)
    selected = []
    for run in range(5):
        points, labels = replace(law, d=3).draw_fresh(_POINTS, seed, run=run)
        selected.append(torch.nn.functional.softplus(-labels * (points[:, 0] @ replace(law, d=3).head())).mean())
    return SettingStudy(
        law,
        compare_recursion(dense_law, zero, alpha, steps, runs, seed, name="prompt zero"),
        compare_recursion(dense_law, gaussian, alpha, steps, runs, seed, name="prompt Gaussian"),
        compare_sampling(small, gaussian, 0.2, 60, draws, seed),
        norms,
        uniform_accuracy_measured(law, norms.tolist(), _POINTS, 5, seed),
        _POINTS,
        torch.stack(selected),
        gaps,
        {name: force_at_gap(gaps, law.tokens, force) for name, force in both.items()},
        {name: long_run(far, force, steps=700) for name, force in both.items()},
    )
