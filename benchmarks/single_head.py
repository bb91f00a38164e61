"""Part I: one draw, many draws, phase diagrams and long runs, against dense vectors in numpy."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping

import numpy as np
import torch

from attnbook.single_head.phase import phase_diagram, phase_plan
from attnlib.single_head.law import Sample, SignalNoiseLaw
from attnlib.single_head.population import log10_clean_error
from attnlib.single_head.summary import summarise
from attnlib.single_head.training import gradient_descent, gram_descent
from benchmarks import dense_single_head as dense
from benchmarks.registry import Case, Part, of_one_unit

__all__ = ["PART"]

Prepared = Callable[[], object]


def _paper_like(d: int) -> tuple[SignalNoiseLaw, float]:
    """n = 200 and n SNR^2 = 4.5, beta d / n = 5, as at the paper's size, for any d."""
    return SignalNoiseLaw(200, d, (4.5 * d / 200) ** 0.5, 0.05), 1000 / d


def _dense_data(d: int) -> tuple:
    law, _ = _paper_like(d)
    return dense.draw(np.random.default_rng(0), law.n, law.d, law.signal_norm, law.label_noise)


@functools.cache
def gate() -> None:
    """Dense reference and package agree on the same data: margins to 1e-10, the exact error to 1e-6. Raises AssertionError."""
    (law, step), data = _paper_like(4000), _dense_data(4000)
    v, p, margins = dense.descend(*data, step, 2)
    signals, noise, classes, labels = data
    tokens, classes = torch.as_tensor(np.stack([signals[classes], noise], axis=1)[None]), torch.as_tensor(classes[None])
    sample = Sample(
        law=law, seed=0, first_run=0, tokens=tokens, signals=torch.as_tensor(signals[None]), signal_class=classes,
        signal_position=torch.zeros_like(classes), true_labels=1.0 - 2.0 * classes, labels=torch.as_tensor(labels[None]),
        start_directions=tokens.new_zeros(1, 0, tokens.shape[-1]),
    )  # fmt: skip
    path = gradient_descent(sample, step, 2, record=[2])
    if not np.allclose(path.margins[-1, 0].numpy(), margins, rtol=1e-10, atol=1e-10):
        raise AssertionError("reference and package train differently: no speed is reported")
    ours = log10_clean_error(path.v[-1], path.p[-1], sample).item()
    if abs(ours - dense.clean_error(v, p, signals)) > 1e-6 * abs(ours):
        raise AssertionError("reference and package disagree on the error: no speed is reported")


def _phase_plan():
    snr, multiple = np.geomspace(0.006, 1.5, 40), np.geomspace(0.1, 60, 40)
    step = (multiple * 200 / 40_000)[:, None]
    return phase_plan(snr, multiple, n=200, d=40_000, signal_norm=200 * snr, label_noise=0.05, step_size=step)


def _draws(d: int, draws: int = 1) -> Prepared:
    (law, step), seed = _paper_like(d), itertools.count()
    return lambda: summarise(law, step, draws=draws, seed=next(seed))


def _long(runs: int, steps: int) -> Prepared:
    law, step = _paper_like(40_000)
    sample = law.draw(0, runs)
    return lambda: gram_descent(sample, step, steps, record=[steps])


def _dense_study(signal_norm: float, step: float) -> float:
    return dense.study(np.random.default_rng(0), 200, 40_000, signal_norm, 0.05, step)


def _dense_draw() -> Prepared:
    law, step = _paper_like(40_000)
    return lambda: _dense_study(law.signal_norm, step)


def _dense_steps() -> Prepared:
    data, (_, step) = _dense_data(40_000), _paper_like(40_000)
    return lambda: dense.descend(*data, step, 10)


def _phase() -> Prepared:
    plan = _phase_plan()
    return lambda: phase_diagram(plan, draws=10)


def _dense_cells() -> Prepared:
    plan = _phase_plan()
    cells = [(float(plan.signal_norm[c]), float(plan.step_size[c])) for c in ((5, 5), (20, 20), (35, 30))]
    return lambda: [_dense_study(*cell) for cell in cells]


def _ratios(median: Mapping[str, float]) -> dict[str, float]:
    pairs = {
        "dense / reduced, one draw at d = 40 000": ("dense-d4e4", "draw-d4e4", 1.0),
        "dense / reduced, per draw in a batch of 1000": ("dense-d4e4", "draws-1000", 1000.0),
        "dense / diagram, per cell and draw (3 cells, extrapolated)": ("phase-dense-3", "phase-40x40x10", 16_000 / 3),
        "dense / Gram space, per step (10 dense steps, extrapolated)": ("dense-steps", "long-64x3000", 64 * 3000 / 10),
        "d = 1e9 / d = 1e3": ("draw-d1e9", "draw-d1e3", 1.0),
    }
    return of_one_unit(median, pairs)


def _case(name: str, what: str, make: Callable[..., Prepared], *sizes: int, limit: float | None = None) -> Case:
    return Case(name, what, functools.partial(make, *sizes), limit, gate=gate)


_CASES = (
    _case("draw-d1e3", "one draw, two steps, exact error; n = 200, d = 1000", _draws, 1000, limit=0.05),
    _case("draw-d4e4", "the same at d = 40 000", _draws, 40_000, limit=0.05),
    _case("draw-d1e9", "the same at d = 1 000 000 000", _draws, 10**9, limit=0.05),
    _case("draws-1000", "1000 draws at d = 40 000 in one call", _draws, 40_000, 1000, limit=10.0),
    _case("phase-40x40x10", "phase diagram: 1600 cells x 10 draws, n = 200, exact error", _phase, limit=60.0),
    _case("phase-dense-3", "reference: 3 cells x 1 draw with dense vectors", _dense_cells),
    _case("long-64x3000", "3000 steps of 64 runs at n = 200", _long, 64, 3000, limit=10.0),
    _case("long-1x1e5", "100 000 steps of one run at n = 200", _long, 1, 100_000, limit=10.0),
    _case("dense-steps", "reference: 10 steps of one run with dense vectors, d = 40 000", _dense_steps),
    _case("dense-d4e4", "reference: one draw with dense vectors in numpy, d = 40 000", _dense_draw),
)

PART = Part("single_head", _CASES, _ratios, warm=lambda: summarise(SignalNoiseLaw(5, 50, 1.0), 0.1, draws=1))
