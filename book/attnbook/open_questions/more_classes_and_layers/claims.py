r"""Claims Q35-Q39 and Q81-Q89: more classes, more label noise, unequal classes, a second layer. Derivations on page 05."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch

from attnbook.open_questions.more_classes_and_layers.class_flow import class_thresholds, first_order_class_threshold
from attnbook.open_questions.more_classes_and_layers.layer_error import noise_phase_error
from attnbook.open_questions.more_classes_and_layers.layers import ARCHITECTURES
from attnbook.open_questions.more_classes_and_layers.layers_study import NSNR2, layers_law
from attnbook.open_questions.more_classes_and_layers.study import (
    CLASSES,
    ClassesLayersStudy,
    trap_exits,
)
from bookkit.claims import ClaimSet, Source
from bookkit.rules import Evidence, both, exactly, within

__all__ = ["CLAIMS"]

CLAIMS = ClaimSet("open_questions")


def _t(values: object) -> torch.Tensor:
    return torch.as_tensor(np.asarray(values, dtype=float))


def _share(right: np.ndarray, low: float, what: str, draws: int) -> Evidence:
    hits, total = int(right.sum()), right.size
    error = math.sqrt(hits * (total - hits) / total**3)
    shown = f"{hits} of {total} {what}" + (f" ({hits / total:.3f} +- {error:.1g} s.e.)" if 0 < hits < total else "")
    numbers = {"share": hits / total, "classes": total}
    return Evidence(hits >= low * total, f">= {low:.2g} {what}", shown, "share of classes", draws, numbers)


# --- K classes -------------------------------------------------------------------------------------------------------------


@CLAIMS.claim(
    "Q35",
    "K classes: two steps in closed form",
    r"$v_c^2$ and $p_2$ of the closed form are those of the trainer, $K = 2, 3, 5, 10$",
    wrong=1 + 1e-9,
    wrong_text="off by 10⁻⁹",
)
def closed_form(study: ClassesLayersStudy, constant: float) -> Evidence:
    worst = _t([study.two_steps[K].deviation for K in CLASSES]) + (constant - 1)
    evidence = within(worst, high=1e-12, quantity="relative deviation")
    shown = "below 1e-12" if evidence.holds else f"{worst.max().item():.2g}"
    return replace(evidence, measured=shown, rule="algebra: four K, three x, every draw", draws=study.draws, numbers={})


@CLAIMS.claim(
    "Q36",
    "K = 5: which samples prefer their signal",
    r"$K = 5$, $n = 200$, $d = 40000$, $\eta = 0.05$: the share of clean samples with $\gamma > 0$ is below .2 at $x = 0.8$, above .9 at "
    r"$1.25$, 1 at $2$ (means over draws)",
    source=Source.MEASURED,
    wrong=1.1,
    wrong_text=".99 at x = 1.25",
)
def preference(study: ClassesLayersStudy, constant: float) -> Evidence:
    values = _t(study.two_steps[5].preference)
    mean, error = values.mean(1), values.std(1) / math.sqrt(study.draws)
    holds = bool(mean[0] < 0.2 and mean[1] > 0.9 * constant and mean[2] > 0.995)
    shown = ", ".join(f"{m:.3f} +- {e:.1g}" for m, e in zip(mean.tolist(), error.tolist(), strict=True))
    numbers = dict(zip(("x08", "x125", "x2"), mean.tolist(), strict=True))
    return Evidence(holds, f"< .2, > {0.9 * constant:.3g}, > .995", shown, "means over draws", study.draws, numbers)


@CLAIMS.claim(
    "Q81",
    "K = 2 is the two-class head",
    r"$v_1 - v_2$ and $p$ with step $\beta$ are $v$ and $p$ of the two-class head with $(\beta_v, \beta_p) = (2\beta, \beta)$, 60 steps",
    wrong=1 + 1e-8,
    wrong_text="off by 10⁻⁸",
)
def two_classes(study: ClassesLayersStudy, constant: float) -> Evidence:
    evidence = within(study.same_as_two_classes + (constant - 1), high=1e-10, quantity="relative deviation")
    shown = "below 1e-10 in every draw" if evidence.holds else "above 1e-10"
    return replace(evidence, measured=shown, rule="algebra, every draw", numbers={})


@CLAIMS.claim(
    "Q82",
    "no label noise: one way for every K",
    r"$\eta = 0$, orthogonal noise, $K = 4$: every step, of any size, raises the weight on the signal of every sample of a class if "
    r"$x > 1$ and lowers it if $x < 1$",
    wrong=1.3,
    wrong_text="the boundary at x = 1.3",
)
def one_way(study: ClassesLayersStudy, constant: float) -> Evidence:
    x, moves = study.one_way
    clear = np.abs(x - 1) > 1e-9
    towards = (np.sign(x - constant)[:, None] * moves)[clear]
    against = int((towards < -1e-12).sum())
    shown = f"{against} of {towards.size} moves against it"
    return Evidence(against == 0, "none against it", shown, "every step of every sample", len(towards), {})


@CLAIMS.claim(
    "Q83",
    "the trap exists for every K",
    r"$\{V \le t,\ s_c \le \frac1{1+x},\ s_n \le \frac1{1+c\nu x},\ V+T_y-T_k \ge 0,\ T_y \ge T_o\}$, $c = \frac K{2K-2}$, is never "
    r"left, whatever the step sizes (mean field)",
    wrong=1.9,
    wrong_text="a set 1.9 times wider in s_c",
)
def trap(study: ClassesLayersStudy, constant: float) -> Evidence:
    exits, ends = trap_exits(study.trap, constant)
    runs = study.trap[1].shape[1]
    shown = f"{exits} exits in {runs} runs; {ends} with x > 1 end inside"
    return Evidence(exits == 0, "no exits", shown, "every step of every run", runs, {"exits": exits, "inside": ends})


_TABLE = {
    (2, 0.2): 1.657,
    (3, 0.2): 1.360,
    (5, 0.2): 1.233,
    (10, 0.2): 1.164,
    (3, 0.4): 2.932,
    (5, 0.4): 1.881,
    (10, 0.4): 1.530,
}


@CLAIMS.claim(
    "Q84",
    "more classes, a smaller trap",
    r"equal step sizes: $x^*_K(0.2) = 1.657, 1.360, 1.233, 1.164$ for $K = 2, 3, 5, 10$; $x^*_K(0.4) = 2.932, 1.881, 1.530$ for "
    r"$K = 3, 5, 10$; all below the root $x_1$ of $(1-\mu)^2x^2 - K\mu x - 1$, $\mu = \frac{\eta}{(1-\eta)(K-1)}$",
    wrong=1.02,
    wrong_text="values 2 % larger",
)
def boundary_values(study: ClassesLayersStudy, constant: float) -> Evidence:
    classes, etas = (np.array(part) for part in zip(*_TABLE, strict=True))
    found = class_thresholds(etas, classes)
    first = [first_order_class_threshold(eta, int(K)) for K, eta in _TABLE]
    evidence = exactly(_t(found / np.array(list(_TABLE.values()))), constant, tolerance=5e-3, draws=1)
    shown = ", ".join(f"{value:.4g}" for value in found)
    wanted = ", ".join(f"{value * constant:.4g}" for value in _TABLE.values())
    below = bool((found < np.array(first)).all())
    return replace(
        evidence, holds=evidence.holds and below, predicted=wanted, measured=shown, rule="relative deviation <= 0.5 %"
    )


@CLAIMS.claim(
    "Q85",
    "the K-class flow predicts the fates of gradient descent",
    r"$\eta = 0.2$ and $0.4$, $K = 3, 5, 10$, $d = 10^6$, $x/x^*_K$ from 0.75 to 1.4: each class ends on its signal iff $x > x^*_K$ of its "
    r"own share of flips",
    source=Source.MEASURED,
    wrong=0.0,
    wrong_text="the maximum-margin rule x > 1",
)
def fates(study: ClassesLayersStudy, constant: float) -> Evidence:
    right = np.concatenate([fate.right(constant) for fate in study.fates.values()])
    return _share(right, 0.95, "classes", max(2, study.draws // 2))


@CLAIMS.claim(
    "Q86",
    "little label noise: the maximum-margin rule nearly suffices",
    r"$\eta = 0.05$, $x = 0.5 \dots 3$, $K = 2, 3, 5, 10$, a thousand steps of $5n/d$: at least 95 % of the classes end on the signal "
    r"iff $x > 1$",
    source=Source.MEASURED,
    wrong=2.0,
    wrong_text="the boundary at x = 2",
)
def late_fates(study: ClassesLayersStudy, constant: float) -> Evidence:
    right = [((late.fates.x > constant) == late.fates.on_signal)[late.fates.x > 0] for late in study.late.values()]
    return _share(np.concatenate(right), 0.95, "classes", study.draws)


@CLAIMS.claim(
    "Q86b",
    "K classes: large first steps trap as well",
    r"$\eta = 0.2$, $x = 4$, $n = 100$, $d = 20000$, $K = 3, 5$: with steps of $5n/d$ from zero fewer than half of the classes end on the "
    r"signal; the same draws after 300 steps of $n/4d$: all",
    source=Source.MEASURED,
    wrong=0.0,
    wrong_text="the plain runs replaced by the warm ones",
)
def step_trap(study: ClassesLayersStudy, constant: float) -> Evidence:
    plain, warm = (np.concatenate([pair[i].on_signal.ravel() for pair in study.step_trap.values()]) for i in (0, 1))
    plain = plain if constant else warm
    shown = f"{plain.sum()} and {warm.sum()} of {warm.size}"
    holds = bool(plain.mean() < 0.5 and warm.mean() > 0.98)
    numbers = {"plain": plain.mean(), "warm": warm.mean()}
    return Evidence(holds, "< half; > .98", shown, "share of classes", study.draws, numbers)


# --- two steps: label noise and unequal classes -------------------------------------------------------------------------------


@CLAIMS.claim(
    "Q37",
    "two steps: where label noise ends the benign cells",
    r"$n = 200$, $d = 40000$, 90 cells ($n\,\mathrm{SNR}^2$ 2..100, $\beta d/n$ 0.5..10): some cell is benign in every draw at "
    r"$\eta = 0.35$, none at $0.4$",
    source=Source.MEASURED,
    wrong=0.0,
    wrong_text="cells counted at eta = 0.45",
)
def benign_cells(study: ClassesLayersStudy, constant: float) -> Evidence:
    first, last = ((study.cells[200, eta] == 1).sum() for eta in ((0.35, 0.4) if constant else (0.45, 0.4)))
    numbers = {f"eta_{eta:g}": int((cells == 1).sum()) for (n, eta), cells in study.cells.items() if n == 200}
    shown = f"{first} and {last} of 90 cells"
    return Evidence(bool(first > 0 and last == 0), "> 0 and 0", shown, "benign in every draw", study.draws, numbers)


@CLAIMS.claim(
    "Q88",
    "and that this is the number of samples, not the noise",
    r"$n = 800$, $d = n^2$: at $\eta = 0.4$ a fifth of the 90 cells or more are benign in every draw",
    source=Source.MEASURED,
    wrong=0.0,
    wrong_text="the same at n = 200, d = 40000",
)
def cells_return(study: ClassesLayersStudy, constant: float) -> Evidence:
    cells = study.cells[800 if constant else 200, 0.4]
    count = int((cells == 1).sum())
    return Evidence(count >= 18, ">= 18", f"{count} of 90 cells", "benign in every draw", study.draws, {"cells": count})


@CLAIMS.claim(
    "Q38",
    "unequal classes: the minority is given up",
    r"80/20, $\rho = 24$ ($x = 2.2$ and $0.55$), $n = 200$, $d = 40000$: after 1000 steps $\log_{10}$ err is below $-60$ for "
    r"the majority and above $-2.2$ for the minority",
    source=Source.MEASURED,
    wrong=0.0,
    wrong_text="the errors after two steps",
)
def minority(study: ClassesLayersStudy, constant: float) -> Evidence:
    errors = _t(study.imbalance[1000 if constant else 2])
    return both(
        within(errors[:, 0], high=-60.0, quantity="majority"), within(errors[:, 1], low=-2.2, quantity="minority")
    )


# --- two layers --------------------------------------------------------------------------------------------------------------


def _frozen_error(study: ClassesLayersStudy, name: str, nsnr2: float, step: int) -> torch.Tensor:
    run = study.layers.frozen[name, nsnr2]
    return _t(10.0 ** run.log10_error[run.at(step)])


@CLAIMS.claim(
    "Q39",
    "a residual mixing layer, step 300",
    r"$n\,\mathrm{SNR}^2 = 1$, step 300: mean clean error below .01 with the layer (W frozen, or trained with $10^{-4}\beta$, "
    r"$10^{-3}\beta$), above .15 without",
    source=Source.MEASURED,
    wrong=0.0,
    wrong_text="the residual taken away from the noise token",
)
def two_layers(study: ClassesLayersStudy, constant: float) -> Evidence:
    name = "residual" if constant else "signal sees noise"
    values = {"frozen": _frozen_error(study, name, 1.0, 300), "one layer": _frozen_error(study, "one layer", 1.0, 300)}
    for ratio in (1e-4, 1e-3):
        run = study.layers.trained["residual", ratio, 1.0]
        values[f"W {ratio:g}"] = _t(run.error[run.steps.index(300)])
    mean = {key: value.mean().item() for key, value in values.items()}
    bars = {key: value.std().item() / math.sqrt(len(value)) for key, value in values.items()}
    holds = mean["one layer"] > 0.15 and all(mean[key] < 0.01 for key in mean if key != "one layer")
    shown = ", ".join(f"{key} {mean[key]:.2g} +- {bars[key]:.1g}" for key in mean)
    return Evidence(holds, "< .01 with, > .15 without", shown, "means over draws", study.draws, mean)


@CLAIMS.claim(
    "Q39b",
    "training the first layer undoes part of it",
    r"$n\,\mathrm{SNR}^2 = 1$, step 300: with W trained ($10^{-3}\beta$) the noise token looks at itself, $A_{\xi u} < 0.1$ instead of "
    r"$0.5$, and the mean error exceeds that of frozen W",
    source=Source.MEASURED,
    wrong=0.0,
    wrong_text="W trained with no step at all",
)
def trained_layer(study: ClassesLayersStudy, constant: float) -> Evidence:
    run = study.layers.trained["residual", 1e-3, 1.0]
    row = run.steps.index(300)
    looks = _t(run.noise_to_signal[row]) if constant else torch.full((study.draws,), 0.5, dtype=torch.float64)
    frozen = _frozen_error(study, "residual", 1.0, 300)
    more = _t(run.error[row]) - frozen
    mean, bar = more.mean().item(), more.std().item() / math.sqrt(len(more))
    rises = Evidence(
        mean > 3 * bar, "error rises", f"by {mean:.2g} +- {bar:.1g}", "3 s.e. over draws", study.draws, {"rise": mean}
    )
    return both(within(looks, high=0.1, quantity="A"), rises)


@CLAIMS.claim(
    "Q87",
    "without the residual p is frozen exactly as long as W is",
    r"$Y = AX$ at $W = 0$: both tokens are the mean, so p stays where it starts (from zero and at random), exactly; with W trained "
    r"p moves",
    wrong=0.0,
    wrong_text="the run with W trained",
)
def no_residual(study: ClassesLayersStudy, constant: float) -> Evidence:
    zero, random, trained = study.layers.still
    kept = torch.maximum(zero, random) if constant else trained
    still = within(kept, high=1e-15, quantity="move of p, W frozen")
    return both(still, within(trained, low=1e-4, quantity="W trained"))


@CLAIMS.claim(
    "Q89",
    "two layers: the threshold of mixed tokens",
    r"$Y_u = au + b\xi$, $Y_\xi = cu + e\xi$, $a > c$, $e > b$, $\eta = 0$, orthogonal noise: every step raises the weight on $Y_u$ iff "
    r"$x > x_\mathrm{mix} = \frac{e^2-b^2}{a^2-c^2}$ (four architectures: 1, 1, 3/5, 5/3)",
    wrong=1.3,
    wrong_text="a threshold 1.3 times as large",
)
def mixed_threshold(study: ClassesLayersStudy, constant: float) -> Evidence:
    ratio, moves = study.layers.one_way
    clear = np.abs(ratio - 1) > 1e-9
    towards = (np.sign(ratio - constant)[:, None] * moves)[clear]
    against = int((towards < -1e-12).sum())
    shown = f"{against} of {towards.size} moves against it"
    return Evidence(against == 0, "none against it", shown, "every step of every sample", len(towards), {})


@CLAIMS.claim(
    "Q89b",
    "late harm comes from a noise token without signal",
    r"$n\,\mathrm{SNR}^2 = 1$, last step, W frozen: mean error below .05 where $Y_\xi$ carries the signal ($c \ge e/3$), above .25 where "
    r"it does not ($c = 0$)",
    source=Source.MEASURED,
    wrong=0.0,
    wrong_text="the two one-way masks exchanged",
)
def carrier(study: ClassesLayersStudy, constant: float) -> Evidence:
    keep, lose = ["residual", "strong mix", "noise sees signal"], ["one layer", "signal sees noise"]
    if not constant:
        keep[-1], lose[-1] = lose[-1], keep[-1]
    last = study.layers.frozen["one layer", 1.0].steps[-1]
    kept, lost = (torch.stack([_frozen_error(study, k, 1.0, last).mean() for k in names]) for names in (keep, lose))
    shown = "; ".join(", ".join(f"{value:.2g}" for value in part.tolist()) for part in (kept, lost))
    return Evidence(
        bool(kept.max() < 0.05 and lost.min() > 0.25), "< .05; > .25", shown, "means over draws", study.draws,
        {"kept_max": kept.max().item(), "lost_min": lost.min().item()},
    )  # fmt: skip


@CLAIMS.claim(
    "Q89c",
    "the rescue is not for ever",
    r"$x < 1$, residual layer, W frozen: the exact SVM on the tokens $Y_\xi$, the noise phase of maximum margin, has clean error "
    r"$\Phi(-z\sqrt{d/n}/\sqrt{(1-\eta)(1-z)^2+\eta(1+z)^2})$, $z = \frac{c^2x'(1-2\eta)}{e^2+c^2x'}$, $x' = \rho^2n/2d$",
    wrong=0.0,
    wrong_text="1/2, the value of one layer",
)
def limits(study: ClassesLayersStudy, constant: float) -> Evidence:
    parts = []
    for nsnr2 in NSNR2[:2]:
        values = _t(study.layers.limits["residual", nsnr2])
        law = layers_law(nsnr2)
        found = noise_phase_error(ARCHITECTURES["residual"], law.n, law.d, law.signal_norm, law.label_noise)
        predicted = found if constant else 0.5
        mean, bar = values.mean().item(), values.std().item() / math.sqrt(len(values))
        allowance = 0.1 * predicted  # finite d/n: leading order in n/d
        parts.append(Evidence(
            abs(mean - predicted) <= 3 * bar + allowance, f"{predicted:.3f}", f"{mean:.3f} +- {bar:.1g}",
            "3 s.e. + 10 % (noise not orthogonal)", len(values), {"predicted": predicted, "measured": mean},
        ))  # fmt: skip
    return both(*parts)
