"""Part II: steps of the recursion in any dimension, and heat maps, against dense matrices in numpy."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from attnbook.token_selection.heat_map.study import heat_map, heat_plan
from attnlib.token_selection.gram import draw_gram, gram_of
from attnlib.token_selection.law import CODE_START, TokenLaw
from attnlib.token_selection.population import population_along
from attnlib.token_selection.training import train
from benchmarks import dense_token_selection
from benchmarks.registry import Case, Part

__all__ = ["PART"]

_STEP = 5e-3


def _law(d: int) -> TokenLaw:
    """The authors' default sizes, n T = 160, at the SNR of d = 2000 and |mu| = 20."""
    return TokenLaw(n=20, d=d, tokens=8, signal_norm=20.0 * (d / 2000) ** 0.5)


def _dense_problem(d: int):
    sample = _law(d).draw(0)
    weight, prompt = (x.numpy().copy() for x in CODE_START.draw(d, 0))
    return sample, (sample.tokens[0].numpy(), sample.labels.observed[0].numpy(), sample.head.numpy(), weight, prompt)


def gate() -> None:
    """Dense numpy and recursion agree on the same data after 50 steps to 1e-10. Raises AssertionError."""
    sample, problem = _dense_problem(400)
    scores = dense_token_selection.descend(*problem, _STEP, 50)
    ours = train(gram_of(sample, CODE_START), _STEP, 50, record=[]).scores[-1, 0].numpy()
    if not np.allclose(ours, scores, rtol=1e-10, atol=1e-10):
        raise AssertionError("dense training and recursion differ: no speed is reported")


def _recursion(d: int, runs: int, steps: int) -> Callable[[], Callable[[], object]]:
    def prepare():
        gate()
        gram = draw_gram(_law(d), 0, runs)
        return lambda: train(gram, _STEP, steps, record=[])

    return prepare


def _dense_steps(d: int, steps: int) -> Callable[[], Callable[[], object]]:
    def prepare():
        gate()
        _, problem = _dense_problem(d)
        return lambda: dense_token_selection.descend(*problem, _STEP, steps)

    return prepare


def _draws(d: int, runs: int):
    def prepare():
        gate()
        return lambda: draw_gram(_law(d), 0, runs)

    return prepare


def _fresh():
    gate()
    path = train(draw_gram(_law(2000), 0, 10), _STEP, 200, record=[])
    return lambda: population_along(path, count=20_000)


def _map_plan(size: int):
    norms, dimensions = np.linspace(5, 100, size), np.linspace(250, 5000, size).round().astype(int)
    law = TokenLaw(n=20, d=3, tokens=8, signal_norm=1.0)
    return heat_plan(norms, dimensions, law=law, step_size=_STEP, steps=1000, runs=1, count=20_000)


def _heat_map(size: int) -> Callable[[], Callable[[], object]]:
    def prepare():
        gate()
        plan = _map_plan(size)
        return lambda: heat_map(plan)

    return prepare


def _ratios(median: Mapping[str, float]) -> dict[str, float]:
    dense, one = median["dense-20"] / 20, median["step-d2e3"] / 1000
    return {
        "dense / recursion, one step of one run at d = 2000": dense / one,
        "dense / recursion, per run and step in a batch of 16": dense / (median["steps-16"] / 16 / 500),
        "dense steps / map, 20 x 20 cells at d = 2000 (training only, extrapolated)": dense
        * 400_000
        / median["map-20x20"],
        "d = 1e6 / d = 2000, one step": median["step-d1e6"] / median["step-d2e3"],
    }


_CASES = (
    Case("step-d2e3", "1000 steps of one run, n T = 160, d = 2000", _recursion(2000, 1, 1000), 0.3),
    Case("step-d1e6", "the same at d = 1 000 000", _recursion(10**6, 1, 1000), 0.3),
    Case("steps-16", "500 steps of 16 runs at once, d = 2000", _recursion(2000, 16, 500)),
    Case("draw-d2e3", "Gram quantities of 10 runs, d = 2000", _draws(2000, 10)),
    Case("draw-d1e6", "the same at d = 1 000 000", _draws(10**6, 10)),
    Case("fresh-20k", "error, loss and attention on 20 000 fresh points, 10 models", _fresh),
    Case("map-20x20", "heat map: 400 cells x 1000 steps, 20 000 fresh points each", _heat_map(20), 90.0),
    Case("map-39x39", "the paper's grid: 1521 cells", _heat_map(39), 360.0),
    Case("dense-20", "reference: 20 steps of one run with dense matrices, d = 2000", _dense_steps(2000, 20)),
)

PART = Part(
    "token_selection",
    _CASES,
    _ratios,
    warm=lambda: train(draw_gram(TokenLaw(4, 30, 4, 3.0, label_noise=0.5), 0), _STEP, 2),
)
