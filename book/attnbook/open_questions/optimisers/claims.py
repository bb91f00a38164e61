r"""Claims of the page on optimisers: Q15, Q16, Q25-Q30, Q51 and Q52; those of the trap are in `claims_optimiser_trap`."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch

from attnbook.open_questions.optimisers.signs import (
    adam_second_step,
    axis_error,
    axis_memory_ratio,
    exponent_ratio_flat,
    exponent_ratio_random,
)
from attnbook.open_questions.optimisers.study import OptimiserStudy, SignSteps
from bookkit.claims import ClaimSet, Source
from bookkit.rules import Evidence, NothingToMeasure, agrees, both, exactly, within

__all__ = ["CLAIMS", "count_of", "tensor"]

CLAIMS = ClaimSet("open_questions")


def tensor(values: object) -> torch.Tensor:
    return torch.as_tensor(np.asarray(values), dtype=torch.float64)


def count_of(values: object, *, low: int = 0, high: int | None = None, what: str) -> Evidence:
    """A number of classes, both of every draw, within bounds."""
    flags = np.asarray(values, dtype=bool)
    hits, total = int(flags.sum()), flags.size
    high = total if high is None else high
    bounds = f">= {low}" if high == total else f"<= {high}" if low == 0 else f"{low} ... {high}"
    rule = "number of classes, both of every draw; no allowance"
    return Evidence(
        low <= hits <= high, f"{bounds} of {total} {what}", f"{hits} of {total}", rule, total // 2, {what: hits}
    )


def _mean_in_band(row: torch.Tensor, low: float, high: float) -> Evidence:
    """The mean over draws lies in a band; its standard error and the range of the draws are shown."""
    mean, error = row.mean().item(), row.std().item() / math.sqrt(len(row))
    shown = f"{mean:.3g} +- {error:.1g} s.e., draws [{row.min():.3g}, {row.max():.3g}]"
    numbers = {"mean": mean, "standard_error": error}
    return Evidence(
        low <= mean <= high, f"mean in [{low:g}, {high:g}]", shown, "mean over draws in a band", len(row), numbers
    )


# --- step sizes ------------------------------------------------------------------------------------------------------------


@CLAIMS.claim(
    "Q15",
    "a large first step traps at high SNR",
    r"$\eta = 0.2$, $x = 4$, $n = 200$, $d = 40000$: $\beta = 5n/d$ from zero leaves at most 5 of 20 classes on "
    r"the signal, 500 steps of "
    r"$n/5d$ first leave all 20 there",
    source=Source.MEASURED,
    wrong=0.0,
    wrong_text="five full steps first, n/5d afterwards: small steps come too late",
)
def step_size_trap(study: OptimiserStudy, constant: float) -> Evidence:
    on_signal = {name: attention > 0.5 for name, (attention, _) in study.schedules.items()}
    small = "n/5d for 500 steps, then full" if constant else "full for 5 steps, then n/5d"
    plain = count_of(on_signal["constant"], high=5, what="classes on the signal, constant step")
    return both(plain, count_of(on_signal[small], low=20, what="classes on the signal, small steps first"))


@CLAIMS.claim(
    "Q16",
    "small steps stay benign at x = 400",
    r"$\eta = 0.05$, $x = 400$, $n = 200$, $d = 40000$, $\beta = n/20d$: every label is fitted, the clean error is"
    r" below "
    r"$10^{-250}$ in the median over 30 draws and below $10^{-100}$ in each",
    source=Source.MEASURED,
    wrong=4.0,
    wrong_text="steps four times as large, n/5d",
)
def small_steps(study: OptimiserStudy, constant: float) -> Evidence:
    outcome = study.strong[round(0.05 * constant, 3)]
    fitted = tensor(np.where(outcome.train_accuracy == 1, outcome.log10_error, 0.0))
    middle = within(fitted.median().view(1), high=-250.0, quantity="median log₁₀ err")
    middle = replace(middle, measured=f"median {fitted.median():.4g}", draws=len(fitted))
    return both(middle, within(fitted, high=-100.0, quantity="log₁₀ err (0 if not interpolating)"))


# --- one step of sign descent ----------------------------------------------------------------------------------------------


@CLAIMS.claim(
    "Q25",
    "axis signals: memorisation wins",
    r"after one step of sign descent $V_k / E\,y_iv_1\cdot\xi_i = \rho\sqrt{\pi n/2}/(d-2)$, at $n\,\mathrm{SNR}^2"
    r" = 0.25, 1, 4.5$",
    wrong=1.1,
    wrong_text="10 % more",
)
def axis_ratio(study: OptimiserStudy, constant: float) -> Evidence:
    steps = study.signs.values()
    predicted = tensor([axis_memory_ratio(s.law.signal_norm, s.law.n, s.law.d) for s in steps])
    found = torch.stack([s.memory_ratio["axis"] for s in steps], dim=1) / (constant * predicted)
    return agrees(found.mean(1), 1.0, allowance=0.01, allowance_text="a mean of ratios, O(1/nd)")


def _exponents(s: SignSteps, basis: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Measured and predicted exponent of sign descent over gradient descent's, per draw."""
    law = s.law
    if basis == "random":
        return s.exponents[basis] / s.gd_exponent, exponent_ratio_random(s.gd_exponent, law.signal_norm, law.d)
    return s.exponents[basis] / s.gd_exponent, exponent_ratio_flat(s.differences, law.signal_norm, law.n, law.d)


@CLAIMS.claim(
    "Q26",
    "spread signals: the exponent is 2/π of gradient descent's",
    r"after one step the exponent of the clean error over gradient descent's is $\frac{2/\pi}{1+(1-2/\pi)q}$, "
    r"$q = \rho^2(c_1^2+c_2^2)/|\sum_iy_i\xi_i|^2 \approx \tfrac12 n\,\mathrm{SNR}^2(1-2\eta)^2$, for signals in "
    r"random directions: "
    r"$2/\pi$ at low SNR",
    wrong=1.1,
    wrong_text="0.70 in place of 2/π",
)
def two_over_pi(study: OptimiserStudy, constant: float) -> Evidence:
    parts = []
    for s in study.signs.values():
        found, predicted = _exponents(s, "random")
        parts.append(agrees(found, constant * predicted, allowance=0.01, allowance_text="fluctuation of V_k, O(1/d)"))
    return both(*parts)


@CLAIMS.claim(
    "Q26b",
    "flat signals saturate",
    r"the same for signals with entries $\pm\rho/\sqrt d$: $\frac{e^2/(1-e^2)}{q}$ with $2e^2 = e_+^2 + e_-^2$, "
    r"$e_\pm = \mathrm{erf}\,\frac{\rho(c_1\pm c_2)}{\sqrt{2nd}}$; above the value for random directions",
    wrong=1.1,
    wrong_text="10 % more",
)
def two_over_pi_flat(study: OptimiserStudy, constant: float) -> Evidence:
    parts = []
    for s in study.signs.values():
        found, predicted = _exponents(s, "flat")
        parts.append(agrees(found, constant * predicted, allowance=0.02, allowance_text="leading order in n/d"))
    return both(*parts)


@CLAIMS.claim(
    "Q27",
    "axis signals: the error does not see n",
    r"after one step of sign descent or Adam the clean error is $\Phi(-\rho/\sqrt{d-2})$, for $n = 20, 50, 100$ "
    r"alike, if both "
    r"classes have more clean than flipped samples (Adam: up to its $\epsilon$, $10^{-5}$)",
    wrong=1.01,
    wrong_text="a signal 1 % longer",
)
def axis_law(study: OptimiserStudy, constant: float) -> Evidence:
    parts = []
    for name, tolerance in (("sign descent", 1e-9), ("Adam", 1e-5)):
        gaps = []
        for s in study.sizes.values():
            usable = (s.differences > 0).all(1)
            gaps.append((s.axis_errors[name][usable] - axis_error(constant * s.law.signal_norm, s.law.d)).abs())
        gaps = torch.cat(gaps)
        if not len(gaps):
            raise NothingToMeasure("needs a draw in which both classes have more clean than flipped samples")
        shown = f"{name} log₁₀ err {axis_error(study.signs[4.5].law.signal_norm, 5000):.5f}"
        parts.append(replace(exactly(gaps, 0.0, tolerance=tolerance), predicted=shown))
    return both(*parts)


@CLAIMS.claim(
    "Q28",
    "Adam with spread signals is benign above the threshold",
    r"$n\,\mathrm{SNR}^2 \approx 4.5$, signals in random directions, step/10, 120 steps: mean $\log_{10}$ clean "
    r"error in $[-52, -13]$",
    source=Source.MEASURED,
    wrong=0.0,
    wrong_text="Adam with signals on two axes",
    regime="$x$ within 5 % of 2 at $n = 50$, $d = 5000$, $\\eta = 0.1$",
    violation=lambda study: _other_law(study.high_law, 2.0),
)
def adam_spread(study: OptimiserStudy, constant: float) -> Evidence:
    row = study.high["Adam, random, step/10" if constant else "Adam, axis, step/10"]
    return _mean_in_band(row.end, -52.0, -13.0)


def _other_law(law, x: float) -> str:
    here = law.signal_norm**2 * law.n * (1 - law.label_noise) / 2 / law.d
    fits = (law.n, law.d, law.label_noise) == (50, 5000, 0.1) and abs(here / x - 1) <= 0.05
    return (
        ""
        if fits
        else f"needs x = {x:g} at (n, d, eta) = (50, 5000, 0.1); here {here:.3g} at ({law.n}, {law.d}, {law.label_noise:g})"
    )


# --- mini-batches ----------------------------------------------------------------------------------------------------------


@CLAIMS.claim(
    "Q29",
    "mini-batches undo most of the low-SNR harm",
    r"$x = 0.45$, $n = 50$, $d = 5000$, $\eta = 0.1$, batches of 10, $\beta = 5n/d$, 2000 steps: mean $\log_{10}$ "
    r"clean error in "
    r"$[-4.9, -2.5]$, gradient descent's in $[-0.5, -0.4]$, and the lower one in every draw",
    source=Source.MEASURED,
    wrong=0.0,
    wrong_text="full batches",
)
def batches_at_low_snr(study: OptimiserStudy, constant: float) -> Evidence:
    gd, sgd = study.many["gradient descent"].end, study.many["batches of 10"].end
    parts = [_mean_in_band(sgd if constant else gd, -4.9, -2.5), _mean_in_band(gd, -0.5, -0.4)]
    return both(*parts, within(sgd - gd, high=0.0, quantity="batches minus full batch"))


@CLAIMS.claim(
    "Q30",
    "after one epoch attention leans to the signal",
    r"$x = 0.27$, $n = 100$, $d = 20000$, $\eta = 0.1$: mean $p\cdot\mu_k$ after one epoch in batches of 20 with "
    r"$\beta = 10n/d$ is "
    r"$0.8 \pm 0.2$, and positive for every class; after the one step of a full batch it is 0 exactly",
    source=Source.MEASURED,
    wrong=0.0,
    wrong_text="full batches, epochs of the same length",
)
def leaning(study: OptimiserStudy, constant: float) -> Evidence:
    p = tensor(study.passes["first pass" if constant else "full batch, the same epoch"].p_signal)
    full = exactly(tensor(study.passes["one full step"].p_signal), 0.0, tolerance=1e-300)
    mean = agrees(p.mean(1), 0.8, allowance=0.2, allowance_text="stated width")
    return both(mean, within(p, low=0.0, quantity="p.mu_k", strict=True), full)


# --- sign descent along training -------------------------------------------------------------------------------------------


@CLAIMS.claim(
    "Q51",
    "the arcsine law of sign descent",
    r"signals in random directions: the clean error along training is that of block-normalised descent with "
    r"$|v|^2$, $|p|^2$, $v\cdot p$ "
    r"replaced by sums of $\frac2\pi\arcsin\cos\angle(G_s, G_t)$ over past gradients; mean ratio of the "
    r"$\log_{10}$ errors 1",
    wrong=0.0,
    wrong_text="the block-normalised errors themselves",
)
def arcsine(study: OptimiserStudy, constant: float) -> Evidence:
    parts = []
    for track in study.tracks.values():
        predicted = track.predicted.log10_error if constant else track.block_error
        ratio = (track.log10_error / predicted).mean(0)
        parts.append(agrees(ratio, 1.0, allowance=0.05, allowance_text="order sqrt(n/d)"))
    return both(*parts)


@CLAIMS.claim(
    "Q52",
    "sign descent trains like block-normalised descent",
    r"signals in random directions, steps of length $\beta E|w|_1$ for $\beta$ per entry: the attention of the "
    r"same samples at the same steps "
    r"differs by less than 0.03 in the mean over samples, above and below the threshold",
    wrong=0.0,
    wrong_text="attention held at one half",
)
def trains_alike(study: OptimiserStudy, constant: float) -> Evidence:
    gaps = []
    for track in study.tracks.values():
        rows = [track.predicted.path.at(step) for step in track.steps]
        other = track.predicted.path.attention_on_signal[rows] if constant else torch.full_like(track.attention, 0.5)
        gaps.append((track.attention - other).abs().mean((0, 2)))
    return within(torch.cat(gaps), high=0.03, quantity="mean difference of attention")


@CLAIMS.claim(
    "Q52b",
    "Adam's second step in p has one size",
    r"every entry of $p_2$ under Adam is $\pm\beta\sqrt{1+\beta_2}/(1+\beta_1) = \pm0.744\,\beta$, whatever the "
    r"gradient",
    wrong=1.01,
    wrong_text="1 % more",
)
def adam_size(study: OptimiserStudy, constant: float) -> Evidence:
    sizes = study.adam_sizes
    return exactly(sizes, constant * adam_second_step(), tolerance=1e-3)
