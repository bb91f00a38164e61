r"""Claims Q39, Q39b and Q89-Q89c: a second layer."""

from dataclasses import replace

import numpy as np
import torch

from attnbook.open_questions.judging import one_way, tensor
from bookkit.claims import ClaimSet, Source
from bookkit.rules import LEVEL, agrees, both, mean_within, within
from bookkit.worlds import changed, exchange, instead

CLAIMS = ClaimSet("open_questions")


WITH_THE_LAYER = {"residual": "frozen", "slow W": "W 0.0001", "fast W": "W 0.001"}


def _layers_exchanged(ends):
    return ends | dict.fromkeys(WITH_THE_LAYER, ends["one layer"]) | {"one layer": ends["residual"]}


PURE_NOISE = instead("at_300.residual", "at_300.signal sees noise")


@CLAIMS.claim("Q39", wrong=(PURE_NOISE, changed(_layers_exchanged, "at_300")), source=Source.MEASURED)
def two_layers(study):
    r"""a residual mixing layer has a smaller error at step 300
    $n\,\mathrm{SNR}^2 = 1$, step 300: the mean accuracy on fresh samples with unflipped labels is at least $0.97$ with the layer (W
    frozen, or trained with $10^{-4}\beta$, $10^{-3}\beta$), and the mean clean error without it is $0.222 \pm 0.008$
    wrong: the residual taken away from the noise token; one layer and two exchanged
    coarse 4: the spread over twenty seeds; to see half as much would take eighty"""
    errors, level = {name: tensor(end.error) for name, end in study.at_300.items()}, LEVEL / 4
    parts = [
        mean_within(1 - errors[name], low=0.97, quantity=f"mean accuracy, {words}", level=level)
        for name, words in WITH_THE_LAYER.items()
    ]
    alone = mean_within(errors["one layer"], 0.214, 0.230, quantity="mean error, one layer", level=level)
    return replace(both(*parts, alone), numbers={})


SLOWER = instead("at_300.fast W", "at_300.slow W")
ERRORS = exchange("at_300.fast W.error", "at_300.residual.error")


@CLAIMS.claim("Q39b", wrong=(SLOWER, ERRORS), source=Source.MEASURED, uses="Q39")
def trained_layer(study):
    r"""training the first layer undoes part of the gain
    $n\,\mathrm{SNR}^2 = 1$, step 300: with W trained ($10^{-3}\beta$) the noise token attends to itself, $A_{\xi\xi} \ge 0.95$ instead of
    $0.5$ and a larger error than with frozen W, each in at least 95 % of draws
    wrong: W trained with 10⁻⁴β; the errors of trained and of frozen W exchanged"""
    run, level = study.at_300["fast W"], LEVEL / 2
    more = tensor(run.error) - tensor(study.at_300["residual"].error)
    whole = both(
        within(1 - tensor(run.noise_to_signal), low=0.95, quantity="A, noise to itself", level=level),
        within(more, low=0.0, strict=True, quantity="more error", level=level),
    )
    return replace(whole, numbers={})


@CLAIMS.claim("Q89", wrong=1.3, box="thm-open-mixed")
def mixed_threshold(study, constant):
    r"""two layers: the threshold of mixed tokens
    $Y_u = au + b\xi$, $Y_\xi = cu + e\xi$, $a > c$, $e > b$, $\eta = 0$, orthogonal noise, gradient descent from zero: no step lowers the
    weight on $Y_u$ if $x > x_\mathrm{mix} = \frac{e^2-b^2}{a^2-c^2}$ or raises it if $x < x_\mathrm{mix}$, and the second step moves it to
    the side named (four architectures: 1, 1, 3/5, 5/3; the nearest $x$ judged bracket the threshold to 1 %)
    wrong: a threshold 1.3 times as large"""
    ratio, moves, units = study.one_way
    return one_way(ratio, moves, constant, units)


KEPT, LOST = ("residual", "strong mix", "noise sees signal"), ("one layer", "signal sees noise")


def _masks_exchanged(frozen):
    one, other = (KEPT[-1], 1.0), (LOST[-1], 1.0)
    return frozen | {one: frozen[other], other: frozen[one]}


@CLAIMS.claim(
    "Q89b", wrong=changed(_masks_exchanged, "frozen"), source=Source.MEASURED, box="thm-open-mixed", uses="Q89"
)
def carrier(study):
    r"""the late error is large where the noise token carries no signal
    $n\,\mathrm{SNR}^2 = 1$, last step, W frozen: the least mean accuracy where $Y_\xi$ carries the signal ($c \ge e/3$) is at least $0.97$,
    and the least mean clean error where it does not ($c = 0$) is $0.315 \pm 0.015$
    wrong: the two one-way masks exchanged"""
    ends = {name: tensor(10.0 ** study.frozen[name, 1.0].log10_error[-1]) for name in KEPT + LOST}
    kept, lost = (torch.stack([ends[name] for name in names]) for names in (KEPT, LOST))
    parts = (
        mean_within(1 - kept.amax(0), low=0.97, quantity="mean of the least accuracy where kept", level=LEVEL / 2),
        mean_within(lost.amin(0), 0.300, 0.330, quantity="mean of the least error where lost", level=LEVEL / 2),
    )
    return replace(both(*parts), numbers={})


HALF = changed(lambda said: {q: np.full_like(error, 0.5) for q, error in said.items()}, "noise_phase")


@CLAIMS.claim("Q89c", wrong=HALF, box="thm-open-mixed")
def limits(study):
    r"""the error of the noise phase with a residual layer
    $x < 1$, residual layer, W frozen: the exact SVM on the tokens $Y_\xi$, the noise phase of maximum margin, has clean error
    $\Phi(-z\sqrt{d/n}/\sqrt{(1-\eta)(1-z)^2+\eta(1+z)^2})$, $z = \frac{c^2x'(1-2\eta)}{e^2+c^2x'}$, $x' = \rho^2n/2d$, $\eta$ the
    fraction of flips in the draw
    wrong: 1/2, the value of one layer"""
    parts = []
    for nsnr2, said in study.noise_phase.items():
        values, predicted = tensor(study.limits["residual", nsnr2]), tensor(said)
        room = {
            "allowance": 0.03 * predicted.mean().item(),
            "allowance_text": "3 %, noise not orthogonal: leading order in n/d",
        }
        part = agrees(values, predicted, **room, level=LEVEL / 2)
        parts.append(replace(part, numbers={name: part.numbers[name] for name in ("predicted", "measured")}))
    return both(*parts)
