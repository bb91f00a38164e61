r"""Update rules side by side, and sign descent in three bases, measured once.

**Steps of matched length.** Every rule starts from zero, where the first step of v has the direction of $S = \sum_i y_i\sum_t x_{it}$ (or
of its signs). Step sizes are matched there: a rule of *unit step* moves v by the length that gradient descent with $\beta = 5n/d$ does, one
of *step/10* by a tenth of it. Errors are compared at three moments: the first step at which every label is fitted, the first at which the
train loss is at most 0.01, and the last one. Rules that commute with rotations train in reduced coordinates, sign descent and Adam on
`signs.dense_copy` of the same samples.
"""

import math
from dataclasses import replace
from types import SimpleNamespace

import torch

from attnbook.open_questions.optimisers.signs import dense_copy, exponent, off_the_signals, predicted_sign_descent
from attnbook.open_questions.outcomes import matched_step
from attnbook.single_head.long_run import class_attention, law_at, log_steps
from attnlib.single_head.errors import log10_clean_error
from attnlib.single_head.law import SignalNoiseLaw
from attnlib.single_head.rules import (
    BLOCK_NORMALISED,
    GRADIENT_DESCENT,
    NORMALISED,
    SIGN_DESCENT,
    adam,
    heavy_ball,
    nesterov,
    stochastic,
)
from attnlib.single_head.training import Trajectory, train_heads

LOSS = 0.01  # the second moment of comparison
SIGN_STEPS = (1, 2, 3, 5, 10, 20, 30, 50, 70, 100, 150)
STRENGTHS = (0.25, 1.0, 4.5)  # n SNR^2 of the first-step studies
AXIS_XS = (2.0, 5.0, 20.0)

# Rule, step in units of gradient descent's first step, number of steps, and the basis of the signals for rules that need dense vectors.
LINE_UP = {
    "gradient descent": (GRADIENT_DESCENT, 1, 2000, ""),
    "heavy ball, step/10": (heavy_ball(0.9), 0.1, 2000, ""),
    "Nesterov, step/10": (nesterov(0.9), 0.1, 2000, ""),
    "normalised, step/10": (NORMALISED, 0.1, 2000, ""),
    "normalised": (NORMALISED, 1, 300, ""),
    "block-normalised, step/10": (BLOCK_NORMALISED, 0.1, 300, ""),
    "batches of 10": (stochastic(10), 1, 2000, ""),
    "batches of 1, step/10": (stochastic(1), 0.1, 5000, ""),
    "sign, random, step/10": (SIGN_DESCENT, 0.1, 100, "random"),
    "Adam, random, step/10": (adam(), 0.1, 120, "random"),
    "sign, axis, step/10": (SIGN_DESCENT, 0.1, 60, "axis"),
    "Adam, axis, step/10": (adam(), 0.1, 100, "axis"),
}


# --- rules of matched length -----------------------------------------------------------------------------------------------


def milestones(path, sample):
    """log10 clean errors (R,) of one head at the three moments among the recorded steps, and along the course.

    The steps (R,) of the first two moments, nan where a moment did not come; attention (R, 2) of the clean samples of each class on the
    signal at the end; train loss and error (S, R) on a logarithmic clock.
    """
    steps, runs = torch.tensor(path.steps, dtype=torch.float64), torch.arange(sample.runs)

    def first(reached):
        came, row = reached.any(0), reached.int().argmax(0)
        error = log10_clean_error(path.v[row, runs], path.p[row, runs], sample)
        return torch.where(came, error, torch.nan), torch.where(came, steps[row], torch.nan)

    clock = [path.at(step) for step in log_steps(path.steps[-1], 5) if step in path.steps]
    found = SimpleNamespace(course_loss=path.loss[clock])
    found.course_error = torch.stack([log10_clean_error(path.v[row], path.p[row], sample) for row in clock])
    found.end, found.attention = found.course_error[-1], class_attention(sample, path.attention_on_signal[-1])
    found.fitted, found.fitted_step = first(path.interpolates)
    found.at_loss, found.loss_step = first(path.loss <= LOSS)
    return found


def _train_one_by_one(sample, size, steps, **options):
    """Dense samples run by run: the tokens of one fit into the cache."""
    paths = [train_heads(sample.run(r), size, steps, **options).single() for r in range(sample.runs)]
    parts = ("v", "p", "loss", "margins", "attention_on_signal")
    joined = (torch.cat([getattr(path, part) for path in paths], dim=1) for part in parts)
    return Trajectory(paths[0].steps, *joined, sample.noisy)


def compare_rules(sample, entries=LINE_UP):
    """Train every entry on the same training sets, given in reduced coordinates; `milestones` by name."""
    found, copies = {}, {basis: dense_copy(sample, basis) for *_, basis in entries.values() if basis}
    for name, (rule, unit, steps, basis) in entries.items():
        size, dense = unit * matched_step(sample, rule), range(11) if basis else range(min(steps, 200) + 1)
        record = sorted({*dense, *log_steps(steps, 5), *log_steps(steps, 40)})
        options = {"rule": rule, "record": record, "diverged": "keep"}
        if basis:
            found[name] = milestones(_train_one_by_one(copies[basis], size, steps, **options), copies[basis])
        else:
            found[name] = milestones(train_heads(sample, size, steps, **options).single(), sample)
    return found


# --- sign descent ----------------------------------------------------------------------------------------------------------


def sign_steps(law, *, draws=10, seed=0):
    """One step of sign descent from zero at one n SNR^2, in three bases. Tensors (R,), but differences |C_k| - |N_k|, (R, 2).

    Exponents by basis; with axis signals mean V_k over mean y_i v . xi_i, and the log10 clean error.
    """
    sample = law.draw(seed, draws)
    clean, noisy = sample.counts()
    gd = train_heads(sample, 1.0, 1, record=[]).single()
    paths, copies = {}, {basis: dense_copy(sample, basis) for basis in ("axis", "flat", "random")}
    for basis, copy in copies.items():
        paths[basis] = train_heads(copy, 0.01, 1, rule=SIGN_DESCENT, record=[]).single()
    v, axis = paths["axis"].v[-1], copies["axis"]
    signal = torch.tensor([1.0, -1.0], dtype=torch.float64) * torch.einsum("rkm,rm->rk", axis.signals, v)
    memory = axis.labels * torch.einsum("rnm,rm->rn", axis.noise_tokens()[:, :, 0], v)
    return SimpleNamespace(
        law=law,
        differences=clean - noisy,
        gd_exponent=exponent(gd.v[-1], sample),
        exponents={basis: exponent(path.v[-1], copies[basis]) for basis, path in paths.items()},
        memory_ratio=signal.mean(1) / memory.mean(1),
        axis_error=log10_clean_error(v, paths["axis"].p[-1], axis),
    )


def sign_track(sample, size=0.1):
    """Sign descent along training, signals in random directions, steps of `size` of the matched one, at `SIGN_STEPS` S.

    In R^d: the error (S, R) and inner products (S, R, 2, 2) of Pi v and Pi p. `predicted`: from reduced coordinates for the same training
    sets. `block_error` (S, R): of the block-normalised trajectory itself.
    """
    copy, steps = dense_copy(sample), SIGN_STEPS
    step = size * matched_step(sample, SIGN_DESCENT)
    path = _train_one_by_one(copy, step, max(steps), rule=SIGN_DESCENT, record=steps)
    heads = list(zip(path.v, path.p, strict=True))
    predicted = predicted_sign_descent(sample, step, steps)
    block = predicted.path
    return SimpleNamespace(
        steps=steps,
        log10_error=torch.stack([log10_clean_error(v, p, copy) for v, p in heads]),
        noise_products=torch.stack([off_the_signals(copy, v, p, _products(v, p)) for v, p in heads]),
        predicted=predicted,
        block_error=torch.stack([log10_clean_error(block.v[t], block.p[t], sample) for t in steps]),
    )


def _products(v, p):
    """Inner products of v and p (R, m), (R, 2, 2)."""
    pair = torch.stack([v, p], dim=1)
    return pair @ pair.mT


def sign_fates(basis, *, draws=10, seed=0):
    """Attention (x, R, 2) of both classes on the signal after 60 steps of sign descent without flips, n = 20, d = 2000, x in `AXIS_XS`.

    Steps of a tenth of the matched one; basis: of the signals. Every x has the same noise.
    """
    found = []
    for x in AXIS_XS:
        sample = law_at(x, 20, 2000, 0.0).draw(seed, draws)
        step = 0.1 * matched_step(sample, SIGN_DESCENT)
        path = train_heads(dense_copy(sample, basis), step, 60, rule=SIGN_DESCENT, record=[]).single()
        found.append(class_attention(sample, path.attention_on_signal[-1]))
    return torch.stack(found)


def optimiser_study(n, d, label_noise, x_low, x_high, *, draws=10, seed=0):
    """Train and collect: rules at (n, d, eta, x_low, x_high), the other parts at sizes of their own."""
    low_law, high_law = law_at(x_low, n, d, label_noise), law_at(x_high, n, d, label_noise)
    low, high = low_law.draw(seed, draws), high_law.draw(seed, draws)
    few, many = {"draws": 10, "seed": seed}, law_at(0.45, 50, 5000, 0.1).draw(seed, 40)
    signs = {q: sign_steps(SignalNoiseLaw(50, 5000, math.sqrt(q * 100), 0.1), **few) for q in STRENGTHS}
    return SimpleNamespace(
        low_law=low_law,
        high_law=high_law,
        low=compare_rules(low),
        high=compare_rules(high),
        many=compare_rules(many, {name: LINE_UP[name] for name in ("gradient descent", "batches of 10")}),
        tracks={"low": sign_track(low), "high": sign_track(high)},
        signs=signs,  # by n SNR^2
        # By n, the same signal norm and d.
        sizes={size: sign_steps(replace(signs[4.5].law, n=size), **few) for size in (20, 100)} | {50: signs[4.5]},
        sign_ends={basis: sign_fates(basis, **few) for basis in ("axis", "random")},
    )
