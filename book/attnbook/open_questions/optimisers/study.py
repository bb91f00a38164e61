"""Everything the page on optimisers and its claims look at, measured once."""

import math
from dataclasses import dataclass, replace

import torch

from attnbook.open_questions.optimisers.arcsine import SignCourse, off_the_signals, predicted_sign_descent
from attnbook.open_questions.optimisers.compared import LINE_UP, Milestones, compare_rules
from attnbook.open_questions.optimisers.signs import dense_copy, exponent
from attnbook.open_questions.outcomes import matched_step
from attnbook.single_head.long_run import class_attention, law_at
from attnlib import checks
from attnlib.single_head.law import Sample, SignalNoiseLaw
from attnlib.single_head.population import log10_clean_error
from attnlib.single_head.rules import SIGN_DESCENT
from attnlib.single_head.training import train_heads

SIGN_STEPS = (1, 2, 3, 5, 10, 20, 30, 50, 70, 100, 150)
STRENGTHS = (0.25, 1.0, 4.5)  # n SNR^2 of the first-step studies


@dataclass(frozen=True)
class SignSteps:
    """One step of sign descent at one n SNR^2. Tensors (R,) unless noted."""

    law: SignalNoiseLaw
    differences: torch.Tensor  # (R, 2), |C_k| - |N_k|
    gd_exponent: torch.Tensor
    exponents: dict[str, torch.Tensor]  # by basis
    memory_ratio: dict[str, torch.Tensor]  # mean V_k over mean y_i v.xi_i, by basis
    axis_error: torch.Tensor  # log10 clean error after one step with axis signals


def sign_steps(law: SignalNoiseLaw, *, draws: int = 10, seed: int = 0) -> SignSteps:
    """Measure one step from zero in the three bases. Raises ValueError for a bad argument."""
    sample = law.draw(seed, checks.whole_number("draws", draws, at_least=2))
    clean, noisy = sample.counts()
    gd = train_heads(sample, 1.0, 1, record=[]).single()
    exponents, ratios = {}, {}
    sign = torch.tensor([1.0, -1.0], dtype=torch.float64)
    for basis in ("axis", "flat", "random"):
        copy = dense_copy(sample, basis)
        path = train_heads(copy, 0.01, 1, rule=SIGN_DESCENT, record=[]).single()
        v = path.v[-1]
        exponents[basis] = exponent(v, copy)
        memory = copy.labels * torch.einsum("rnm,rm->rn", copy.noise_tokens()[:, :, 0], v)
        ratios[basis] = (sign * torch.einsum("rkm,rm->rk", copy.signals, v)).mean(1) / memory.mean(1)
        if basis == "axis":
            error = log10_clean_error(v, path.p[-1], copy)
    return SignSteps(law, clean - noisy, exponent(gd.v[-1], sample), exponents, ratios, error)


@dataclass(frozen=True)
class SignTrack:
    """Sign descent along training: in R^d, and predicted from reduced coordinates for the same training sets."""

    steps: tuple[int, ...]
    log10_error: torch.Tensor  # (S, R), in R^d
    noise_products: torch.Tensor  # (S, R, 2, 2), inner products of Pi v and Pi p, in R^d
    predicted: SignCourse
    block_error: torch.Tensor  # (S, R), of the block-normalised trajectory itself


def sign_track(sample: Sample, size: float = 0.1) -> SignTrack:
    """Signals in random directions; steps of `size` of the matched one. Raises ValueError for a bad argument."""
    copy, steps = dense_copy(sample), SIGN_STEPS
    step = checks.positive_number("size", size) * matched_step(sample, SIGN_DESCENT)
    paths = [
        train_heads(copy.run(r), step, max(steps), rule=SIGN_DESCENT, record=steps).single() for r in range(copy.runs)
    ]
    v, p = (torch.cat([getattr(q, name) for q in paths], 1) for name in ("v", "p"))
    predicted = predicted_sign_descent(sample, step, max(steps), record=steps)
    block = predicted.path
    return SignTrack(
        steps=steps,
        log10_error=torch.stack([log10_clean_error(v[i], p[i], copy) for i in range(len(steps))]),
        noise_products=torch.stack(
            [off_the_signals(copy, v[i], p[i], _products(v[i], p[i])) for i in range(len(steps))]
        ),
        predicted=predicted,
        block_error=torch.stack([log10_clean_error(block.v[t], block.p[t], sample) for t in steps]),
    )


def _products(v: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
    """Inner products of v and p (R, m), (R, 2, 2)."""
    pair = torch.stack([v, p], dim=1)
    return pair @ pair.mT


AXIS_XS = (2.0, 5.0, 20.0)


def sign_fates(basis: str, *, draws: int = 10, seed: int = 0) -> torch.Tensor:
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


@dataclass(frozen=True)
class OptimiserStudy:
    """Everything the claims look at."""

    low_law: SignalNoiseLaw
    high_law: SignalNoiseLaw
    low: dict[str, Milestones]  # rules below the threshold
    high: dict[str, Milestones]  # above
    many: dict[str, Milestones]  # gradient descent and batches of 10 below the threshold, 40 draws
    tracks: dict[str, SignTrack]  # "low", "high"
    signs: dict[float, SignSteps]  # by n SNR^2
    sizes: dict[int, SignSteps]  # by n, the same signal norm and d
    sign_ends: dict[str, torch.Tensor]  # `sign_fates` by basis, the same draws


def optimiser_study(
    n: int, d: int, label_noise: float, x_low: float, x_high: float, *, draws: int = 10, seed: int = 0
) -> OptimiserStudy:
    """Train and collect: rules at (n, d, eta, x_low, x_high), the other parts at sizes of their own.

    Raises ValueError for a bad argument before any work.
    """
    checks.whole_number("draws", draws, at_least=2)
    checks.whole_number("seed", seed, at_least=0)
    low_law, high_law = law_at(x_low, n, d, label_noise), law_at(x_high, n, d, label_noise)
    low, high = low_law.draw(seed, draws), high_law.draw(seed, draws)
    few = {"draws": 10, "seed": seed}
    by_name = {entry.name: entry for entry in LINE_UP}
    fixed = law_at(0.45, 50, 5000, 0.1)
    signs = {
        strength: sign_steps(SignalNoiseLaw(50, 5000, math.sqrt(strength * 100), 0.1), **few) for strength in STRENGTHS
    }
    return OptimiserStudy(
        low_law=low_law, high_law=high_law, low=compare_rules(low), high=compare_rules(high),
        many=compare_rules(fixed.draw(seed, 40), [by_name["gradient descent"], by_name["batches of 10"]]),
        tracks={"low": sign_track(low), "high": sign_track(high)},
        signs=signs, sizes={size: sign_steps(replace(signs[4.5].law, n=size), **few) for size in (20, 100)} | {50: signs[4.5]},
        sign_ends={basis: sign_fates(basis, **few) for basis in ("axis", "random")},
    )  # fmt: skip
