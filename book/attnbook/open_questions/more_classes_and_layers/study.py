"""What the claims on classes look at: K classes, and label noise and unequal classes in two steps.

Sizes that a page may change are arguments; the rest is written here, the same whatever the page's parameters.
"""

import math
from types import SimpleNamespace

import numpy as np
import torch

from attnbook.open_questions.more_classes_and_layers.class_error import class_error
from attnbook.open_questions.more_classes_and_layers.class_flow import class_flow_rates, class_threshold, in_class_trap
from attnbook.open_questions.more_classes_and_layers.classes import (
    ClassesLaw,
    class_descent,
    class_fates,
    class_two_steps,
)
from attnbook.single_head.phase import phase_diagram, phase_plan
from attnbook.single_head.variants import StressedLaw
from attnlib.randomness import stream
from attnlib.single_head.errors import log10_clean_error
from attnlib.single_head.training import gram_descent

CLASSES = (2, 3, 5, 10)
TWO_STEP_X = (0.8, 1.25, 2.0)
LATE_X = (0.5, 0.8, 1.25, 2.0, 3.0)
ERROR_X = (0.8, 1.25, 2.0)  # of them, where the clean error is wanted
FATE_CASES = ((3, 0.2), (5, 0.2), (10, 0.2), (3, 0.4), (5, 0.4))  # (K, eta)
FATE_FACTORS = (0.75, 0.85, 0.95, 1.05, 1.2, 1.4)  # x / x*_K(eta)
CELL_NSNR2 = (2.0, 3.0, 5.0, 7.0, 10.0, 15.0, 25.0, 50.0, 100.0)
CELL_STEPS = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 7.0, 10.0)  # beta d / n
CELL_ETAS = (0.05, 0.1, 0.2, 0.3, 0.35, 0.4, 0.45)


def _relative(a, b):
    return float((a - b).abs().max() / b.abs().max())


def _two_step_row(n, d, eta, classes, draws, seed):
    """Two steps at one K. For each x of `TWO_STEP_X` (draws,): share of clean samples with gamma > 0, train accuracy.

    `deviation`: closed form against the trainer, relative, over all draws; `without_slopes`: least of the same, over x, for v_2 with all
    probabilities 1/K at the second step: twice v_1.
    """
    step, row = 5 * n / d, SimpleNamespace(preference=[], train_accuracy=[], deviation=0.0, without_slopes=math.inf)
    for x in TWO_STEP_X:
        sample = ClassesLaw.at(x, n, d, eta, classes).draw(seed, draws)
        closed, path = class_two_steps(sample, step), class_descent(sample, step, 2, record=[1])
        pairs = ((closed.v1, path.v[0]), (closed.v2, path.v[1]), (closed.p2, path.p[1]))
        row.deviation = max(row.deviation, *(_relative(a, b) for a, b in pairs))
        row.without_slopes = min(row.without_slopes, _relative(2 * closed.v1, path.v[1]))
        clean = ~sample.noisy
        row.preference.append((((closed.preference > 0) & clean).sum(-1) / clean.sum(-1)).numpy())
        row.train_accuracy.append(path.train_accuracy[-1].numpy())
    row.train_accuracy = np.stack(row.train_accuracy)
    return row


def _late_row(n, d, eta, classes, steps, draws, seed):
    """Long runs at one K: fates of all classes, x in `LATE_X`; clean errors and their relative errors, (x, draws), x in `ERROR_X`."""
    laws = [ClassesLaw.at(x, n, d, eta, classes) for x in LATE_X]
    fates, path, sample = class_fates(laws, 5 * n / d, steps, draws=draws, seed=seed)
    found = []
    for x in ERROR_X:
        first = LATE_X.index(x) * draws
        block = slice(first, first + draws)
        found.append(class_error(path.v[-1, block], path.p[-1, block], sample.block(block), 200))
    errors, relative = (torch.stack([getattr(e, k) for e in found]) for k in ("log10_error", "relative_error"))
    return SimpleNamespace(fates=fates, log10_error=errors.numpy(), relative_error=relative.numpy())


def _fates(classes, eta, seed, draws):
    """Small steps until the fate is decided, then steps sixteen times as long; d = 10^6."""
    n, d, boundary = (200 if classes > 5 else 100), 10**6, class_threshold(eta, classes)
    laws = [ClassesLaw.at(factor * boundary, n, d, eta, classes) for factor in FATE_FACTORS]
    options = {"draws": draws, "seed": seed, "schedule": lambda step: 1.0 if step < 400 else 16.0}
    return class_fates(laws, 0.25 * n / d, 800, **options)[0]


def _step_trap(classes, seed, draws):
    """The same draws, eta = 0.2, x = 4: large steps, small steps first."""
    n, d, few = 100, 20_000, {"draws": draws, "seed": seed}
    law = [ClassesLaw.at(4.0, n, d, 0.2, classes)]
    plain, _, _ = class_fates(law, 5 * n / d, 300, **few)
    warm, _, _ = class_fates(law, 0.25 * n / d, 500, schedule=lambda step: 1.0 if step < 300 else 20.0, **few)
    return plain, warm


def _trap_runs(seed):
    """The flow as a map from zero, with step sizes, ratios of step sizes, x, eta and K drawn at random.

    States (8, runs, steps + 1), and x, nu, K (3, runs).
    """
    rng, count, steps = stream(seed, "start"), 400, 300
    classes = rng.choice([2, 3, 5, 10, 30], count).astype(float)
    eta = rng.uniform(0, 0.9, count) * (1 - 1 / classes)
    x, nu = np.exp(rng.uniform(-1.5, 1.5, count)), eta / (1 - eta)
    step, rate = np.exp(rng.uniform(-2, 2.5, count)), np.exp(rng.uniform(-1.4, 1.4, count))
    states = np.zeros((8, count, steps + 1))
    for t in range(steps):
        states[..., t + 1] = states[..., t] + step * class_flow_rates(states[..., t], x, nu, classes, rate)
    return states, np.stack([x, nu, classes])


def trap_exits(trap, widening=1.0):
    """How often a run leaves the trap, and how many runs with x > 1 end in it. widening: of the bound on the clean weight."""
    states, (x, nu, classes) = trap
    wide = np.moveaxis(states, -1, 1)  # (8, steps + 1, runs)
    inside = in_class_trap(wide, x, nu, classes, widening)
    return int((inside[:-1] & ~inside[1:]).sum()), int((inside[-1] & (x > 1)).sum())


def benign_cells(n, d, label_noise, *, draws=10, seed=0):
    """Every label fitted and clean error below 1 % after two steps: flags (nSNR^2, beta d / n, draws), 9 x 10 cells."""
    q, b = np.array(CELL_NSNR2), np.array(CELL_STEPS)
    norm = np.sqrt(q * d / n)[:, None]
    plan = phase_plan(b, q, n=n, d=d, signal_norm=norm, label_noise=label_noise, step_size=b[None, :] * n / d)
    diagram = phase_diagram(plan, draws=draws, seed=seed)
    return diagram.interpolates & (diagram.log10_error < -2)


def _imbalance(seed, draws):
    """80/20 classes, rho = 24, n = 200, d = 40000, eta = 0.05: log10 error of (majority, minority), (draws, 2), by step."""
    sample = StressedLaw(200, 40_000, 24.0, 0.05, class_probability=0.8).draw(seed, draws)
    path = gram_descent(sample, 0.025, 1000, record=[2])
    return {
        step: log10_clean_error(path.v[row], path.p[row], sample, per_class=True).numpy()
        for row, step in enumerate(path.steps)
    }


def classes_study(n, d, label_noise, *, steps=1000, draws=10, seed=0):
    """Train and collect. n, d, label_noise, steps: the long runs with K classes."""
    cells = {
        (size, eta): benign_cells(size, width, eta, draws=draws, seed=seed)
        for size, width, etas in ((200, 40_000, CELL_ETAS), (800, 640_000, (0.3, 0.35, 0.4, 0.45)))
        for eta in etas
    }
    many = benign_cells(200, 40_000, 0.4, draws=4 * draws, seed=seed)  # the share differs much between draws there
    return SimpleNamespace(
        draws=draws,
        two_steps={K: _two_step_row(200, 40_000, 0.05, K, draws, seed) for K in CLASSES},
        late={K: _late_row(n, d, label_noise, K, steps, draws, seed) for K in CLASSES},
        fates={case: _fates(*case, seed, max(2, draws // 2)) for case in FATE_CASES},
        step_trap={K: _step_trap(K, seed, draws) for K in (3, 5)},
        trap=_trap_runs(seed),
        cells={
            case: benign.mean(-1) for case, benign in cells.items()
        },  # (n, eta) -> share of benign draws in every cell
        benign={
            size: found.mean((0, 1)) for size, found in ((200, many), (800, cells[800, 0.4]))
        },  # of cells in every draw
        imbalance=_imbalance(seed, 4 * draws),
    )
