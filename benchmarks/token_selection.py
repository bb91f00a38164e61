"""Part II: steps of the recursion in any dimension, and heat maps, against dense matrices in numpy."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import numpy as np

from attnbook.token_selection.heat_map.study import heat_map, heat_plan
from attnlib.token_selection.gram import draw_gram, gram_of
from attnlib.token_selection.law import CODE_START, TokenLaw
from attnlib.token_selection.population import population_along
from attnlib.token_selection.training import train
from benchmarks import dense_token_selection
from benchmarks.registry import Case, Part, of_one_unit

__all__ = ["PART"]

_STEP = 5e-3
Prepared = Callable[[], object]


def _law(d: int) -> TokenLaw:
    """The authors' default sizes, n T = 160, at the SNR of d = 2000 and |mu| = 20."""
    return TokenLaw(n=20, d=d, tokens=8, signal_norm=20.0 * (d / 2000) ** 0.5)


def _dense_problem(d: int):
    sample = _law(d).draw(0)
    weight, prompt = (x.numpy().copy() for x in CODE_START.draw(d, 0))
    return sample, (sample.tokens[0].numpy(), sample.labels.observed[0].numpy(), sample.head.numpy(), weight, prompt)


@functools.cache
def gate() -> None:
    """Dense numpy and recursion agree on the same data after 50 steps to 1e-10. Raises AssertionError."""
    sample, problem = _dense_problem(400)
    scores = dense_token_selection.descend(*problem, _STEP, 50)
    ours = train(gram_of(sample, CODE_START), _STEP, 50, record=[]).scores[-1, 0].numpy()
    if not np.allclose(ours, scores, rtol=1e-10, atol=1e-10):
        raise AssertionError("dense training and recursion differ: no speed is reported")


def _recursion(d: int, runs: int, steps: int) -> Prepared:
    gram = draw_gram(_law(d), 0, runs)
    return lambda: train(gram, _STEP, steps, record=[])


def _dense_steps() -> Prepared:
    _, problem = _dense_problem(2000)
    return lambda: dense_token_selection.descend(*problem, _STEP, 20)


def _draws(d: int) -> Prepared:
    return lambda: draw_gram(_law(d), 0, 10)


def _fresh() -> Prepared:
    path = train(draw_gram(_law(2000), 0, 10), _STEP, 200, record=[])
    return lambda: population_along(path, count=20_000)


def _map(size: int) -> Prepared:
    norms, dimensions = np.linspace(5, 100, size), np.linspace(250, 5000, size).round().astype(int)
    law = TokenLaw(n=20, d=3, tokens=8, signal_norm=1.0)
    plan = heat_plan(norms, dimensions, law=law, step_size=_STEP, steps=1000, runs=1, count=20_000)
    return lambda: heat_map(plan)


def _ratios(median: Mapping[str, float]) -> dict[str, float]:
    pairs = {
        "dense / recursion, one step of one run at d = 2000": ("dense-20", "step-d2e3", 1000 / 20),
        "dense / recursion, per run and step in a batch of 16": ("dense-20", "steps-16", 16 * 500 / 20),
        "dense steps / map, 20 x 20 cells at d = 2000 (training only, extrapolated)":
            ("dense-20", "map-20x20", 400_000 / 20),
        "d = 1e6 / d = 2000, one step": ("step-d1e6", "step-d2e3", 1.0),
    }  # fmt: skip
    return of_one_unit(median, pairs)


def _case(name: str, what: str, make: Callable[..., Prepared], *sizes: int, limit: float | None = None) -> Case:
    return Case(name, what, functools.partial(make, *sizes), limit, gate=gate)


_CASES = (
    _case("step-d2e3", "1000 steps of one run, n T = 160, d = 2000", _recursion, 2000, 1, 1000, limit=0.3),
    _case("step-d1e6", "the same at d = 1 000 000", _recursion, 10**6, 1, 1000, limit=0.3),
    _case("steps-16", "500 steps of 16 runs at once, d = 2000", _recursion, 2000, 16, 500),
    _case("draw-d2e3", "Gram quantities of 10 runs, d = 2000", _draws, 2000),
    _case("draw-d1e6", "the same at d = 1 000 000", _draws, 10**6),
    _case("fresh-20k", "error, loss and attention on 20 000 fresh points, 10 models", _fresh),
    _case("map-20x20", "heat map: 400 cells x 1000 steps, 20 000 fresh points each", _map, 20, limit=90.0),
    _case("map-39x39", "the paper's grid: 1521 cells", _map, 39, limit=360.0),
    _case("dense-20", "reference: 20 steps of one run with dense matrices, d = 2000", _dense_steps),
)
_TINY = TokenLaw(4, 30, 4, 3.0, label_noise=0.5)
PART = Part("token_selection", _CASES, _ratios, warm=lambda: train(draw_gram(_TINY, 0), _STEP, 2))
