"""Part I: one draw, many draws, phase diagrams and long runs, against dense vectors in numpy."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch

from attnbook.single_head.phase import phase_diagram, phase_plan
from attnlib.single_head.law import Sample, SignalNoiseLaw
from attnlib.single_head.population import log10_clean_error
from attnlib.single_head.summary import summarise
from attnlib.single_head.training import gradient_descent, gram_descent
from benchmarks import dense_single_head as dense_reference
from benchmarks.registry import Case, Part

__all__ = ["PART"]


def _paper_like(d: int) -> tuple[SignalNoiseLaw, float]:
    """n = 200 and n SNR^2 = 4.5, beta d / n = 5, as at the paper's size, for any d."""
    return SignalNoiseLaw(200, d, (4.5 * d / 200) ** 0.5, 0.05), 1000 / d


def _dense_sample(law: SignalNoiseLaw, signals, noise, classes, labels) -> Sample:
    tokens = torch.as_tensor(np.stack([signals[classes], noise], axis=1)[None])
    classes = torch.as_tensor(classes[None])
    return Sample(
        law=law, seed=0, first_run=0, tokens=tokens, signals=torch.as_tensor(signals[None]), signal_class=classes,
        signal_position=torch.zeros_like(classes), true_labels=1.0 - 2.0 * classes, labels=torch.as_tensor(labels[None]),
        start_directions=tokens.new_zeros(1, 0, tokens.shape[-1]),
    )  # fmt: skip


def gate() -> None:
    """Dense reference and package agree on the same data: margins to 1e-10, the exact error to 1e-6. Raises AssertionError."""
    law, step = _paper_like(4000)
    data = dense_reference.draw(np.random.default_rng(0), law.n, law.d, law.signal_norm, law.label_noise)
    v, p, margins = dense_reference.descend(*data, step, 2)
    sample = _dense_sample(law, *data)
    path = gradient_descent(sample, step, 2, record=[2])
    if not np.allclose(path.margins[-1, 0].numpy(), margins, rtol=1e-10, atol=1e-10):
        raise AssertionError("reference and package train differently: no speed is reported")
    ours = log10_clean_error(path.v[-1], path.p[-1], sample).item()
    if abs(ours - dense_reference.clean_error(v, p, data[0])) > 1e-6 * abs(ours):
        raise AssertionError("reference and package disagree on the error: no speed is reported")


def _one_draw(d: int) -> Callable[[], Callable[[], object]]:
    def prepare():
        gate()
        law, step = _paper_like(d)
        counter = iter(range(10**9))
        return lambda: summarise(law, step, draws=1, seed=next(counter))

    return prepare


def _one_draw_alone(d: int) -> Callable[[], object]:
    law, step = _paper_like(d)
    return lambda: summarise(law, step, draws=1)


def _dense_alone():
    law, _ = _paper_like(40_000)
    dense_reference.study(np.random.default_rng(0), law.n, law.d, law.signal_norm, law.label_noise, 0.025)


def _many_draws():
    gate()
    law, step = _paper_like(40_000)
    return lambda: summarise(law, step, draws=1000)


def _dense(d: int) -> Callable[[], Callable[[], object]]:
    def prepare():
        gate()
        law, step = _paper_like(d)
        rng = np.random.default_rng(0)
        return lambda: dense_reference.study(rng, law.n, law.d, law.signal_norm, law.label_noise, step)

    return prepare


def _long(runs: int, steps: int) -> Callable[[], Callable[[], object]]:
    def prepare():
        gate()
        law, step = _paper_like(40_000)
        few = law.draw(1, 2)
        pair = [train(few, step, 50, record=[50]).margins for train in (gradient_descent, gram_descent)]
        if not torch.allclose(*pair, rtol=1e-10, atol=1e-10):
            raise AssertionError("the fast trainer leaves the readable one: no speed is reported")
        sample = law.draw(0, runs)
        return lambda: gram_descent(sample, step, steps, record=[steps])

    return prepare


def _dense_steps(steps: int) -> Callable[[], Callable[[], object]]:
    def prepare():
        gate()
        law, step = _paper_like(40_000)
        data = dense_reference.draw(np.random.default_rng(0), law.n, law.d, law.signal_norm, law.label_noise)
        return lambda: dense_reference.descend(*data, step, steps)

    return prepare


def _phase_plan():
    snr, multiple = np.geomspace(0.006, 1.5, 40), np.geomspace(0.1, 60, 40)
    step = (multiple * 200 / 40_000)[:, None]
    return phase_plan(snr, multiple, n=200, d=40_000, signal_norm=200 * snr, label_noise=0.05, step_size=step)


def _phase():
    gate()
    plan = _phase_plan()
    few = phase_plan(
        plan.x[10:20:5], plan.y[10:20:5], n=200, d=40_000, signal_norm=plan.signal_norm[10:20:5, 10:20:5],
        label_noise=0.05, step_size=plan.step_size[10:20:5, 10:20:5],
    )  # fmt: skip
    errors = phase_diagram(few, draws=2).log10_error
    for i, j in np.ndindex(few.shape):
        law = SignalNoiseLaw(200, 40_000, float(few.signal_norm[i, j]), 0.05)
        one = summarise(law, float(few.step_size[i, j]), draws=2).log10_clean_error.numpy()
        if not np.allclose(errors[i, j], one, rtol=1e-8):
            raise AssertionError("the diagram leaves the study cell by cell: no speed is reported")
    return lambda: phase_diagram(plan, draws=10)


def _phase_naive():
    gate()
    plan = _phase_plan()

    def few_cells():
        for i, j in ((5, 5), (20, 20), (35, 30)):
            law = SignalNoiseLaw(200, 40_000, float(plan.signal_norm[i, j]), 0.05)
            rng = np.random.default_rng(0)
            dense_reference.study(rng, law.n, law.d, law.signal_norm, 0.05, float(plan.step_size[i, j]))

    return few_cells


def _ratios(median: Mapping[str, float]) -> dict[str, float]:
    return {
        "dense / reduced, one draw at d = 40 000": median["dense-d4e4"] / median["draw-d4e4"],
        "dense / reduced, per draw in a batch of 1000": median["dense-d4e4"] / (median["draws-1000"] / 1000),
        "dense / diagram, per cell and draw (3 cells, extrapolated)": (median["phase-dense-3"] / 3)
        / (median["phase-40x40x10"] / 16_000),
        "dense / Gram space, per step (10 dense steps, extrapolated)": (median["dense-steps"] / 10)
        / (median["long-64x3000"] / 64 / 3000),
        "d = 1e9 / d = 1e3": median["draw-d1e9"] / median["draw-d1e3"],
    }


_CASES = (
    Case(
        "draw-d1e3", "one draw, two steps, exact error; n = 200, d = 1000", _one_draw(1000), 0.05, _one_draw_alone(1000)
    ),
    Case("draw-d4e4", "the same at d = 40 000", _one_draw(40_000), 0.05, _one_draw_alone(40_000)),
    Case("draw-d1e9", "the same at d = 1 000 000 000", _one_draw(10**9), 0.05, _one_draw_alone(10**9)),
    Case("draws-1000", "1000 draws at d = 40 000 in one call", _many_draws, 10.0),
    Case("phase-40x40x10", "phase diagram: 1600 cells x 10 draws, n = 200, exact error", _phase, 60.0),
    Case("phase-dense-3", "reference: 3 cells x 1 draw with dense vectors", _phase_naive),
    Case("long-64x3000", "3000 steps of 64 runs at n = 200", _long(64, 3000), 10.0),
    Case("long-1x1e5", "100 000 steps of one run at n = 200", _long(1, 100_000), 10.0),
    Case("dense-steps", "reference: 10 steps of one run with dense vectors, d = 40 000", _dense_steps(10)),
    Case(
        "dense-d4e4", "reference: one draw with dense vectors in numpy, d = 40 000", _dense(40_000), memory=_dense_alone
    ),
)

PART = Part("single_head", _CASES, _ratios, warm=lambda: summarise(SignalNoiseLaw(5, 50, 1.0), 0.1, draws=1))
