r"""Claims Q39, Q39b and Q89-Q89c: a second layer."""

from dataclasses import replace

import torch

from attnbook.open_questions.judging import one_way, tensor
from attnbook.open_questions.second_layer.layer_error import noise_phase_error
from attnbook.open_questions.second_layer.layers import ARCHITECTURES
from attnbook.open_questions.second_layer.study import NSNR2, LayersStudy, layers_law
from bookkit.claims import ClaimSet, Source
from bookkit.rules import LEVEL, Evidence, agrees, both, mean_within, within

CLAIMS = ClaimSet("open_questions")


def _frozen_error(study: LayersStudy, name: str, nsnr2: float, step: int) -> torch.Tensor:
    run = study.frozen[name, nsnr2]
    return tensor(10.0 ** run.log10_error[run.at(step)])


@CLAIMS.claim("Q39", wrong=(0.0, -1.0), source=Source.MEASURED)
def two_layers(study: LayersStudy, constant: float) -> Evidence:
    r"""a residual mixing layer has a smaller error at step 300
    $n\,\mathrm{SNR}^2 = 1$, step 300: the mean accuracy on fresh samples with unflipped labels is at least $0.97$ with the layer (W
    frozen, or trained with $10^{-4}\beta$, $10^{-3}\beta$), and the mean clean error without it is $0.222 \pm 0.008$
    wrong: the residual taken away from the noise token; one layer and two exchanged
    coarse 4: the spread over twenty seeds; to see half as much would take eighty"""
    errors = {"frozen": _frozen_error(study, "residual" if constant else "signal sees noise", 1.0, 300)}
    for ratio in (1e-4, 1e-3):
        run = study.trained["residual", ratio, 1.0]
        errors[f"W {ratio:g}"] = tensor(run.error[run.steps.index(300)])
    alone = _frozen_error(study, "one layer", 1.0, 300)
    if constant < 0:
        errors, alone = dict.fromkeys(errors, alone), errors["frozen"]
    parts = {
        name: mean_within(1 - values, low=0.97, quantity=f"mean accuracy, {name}", level=LEVEL / 4)
        for name, values in errors.items()
    }
    parts["one layer"] = mean_within(alone, 0.214, 0.230, quantity="mean error, one layer", level=LEVEL / 4)
    return replace(both(*parts.values()), numbers={})


@CLAIMS.claim("Q39b", wrong=(0.1, -1.0), source=Source.MEASURED, uses="Q39")
def trained_layer(study: LayersStudy, constant: float) -> Evidence:
    r"""training the first layer undoes part of the gain
    $n\,\mathrm{SNR}^2 = 1$, step 300: with W trained ($10^{-3}\beta$) the noise token attends to itself, $A_{\xi\xi} \ge 0.95$ instead of
    $0.5$ and a larger error than with frozen W, each in at least 95 % of draws
    wrong: W trained with 10⁻⁴β; the errors of trained and of frozen W exchanged"""
    run = study.trained["residual", 1e-4 if constant == 0.1 else 1e-3, 1.0]
    row = run.steps.index(300)
    more = tensor(run.error[row]) - _frozen_error(study, "residual", 1.0, 300)
    whole = both(
        within(1 - tensor(run.noise_to_signal[row]), low=0.95, quantity="A, noise to itself", level=LEVEL / 2),
        within(more if constant > 0 else -more, low=0.0, strict=True, quantity="more error", level=LEVEL / 2),
    )
    return replace(whole, numbers={})


@CLAIMS.claim("Q89", wrong=1.3, box="thm-open-mixed")
def mixed_threshold(study: LayersStudy, constant: float) -> Evidence:
    r"""two layers: the threshold of mixed tokens
    $Y_u = au + b\xi$, $Y_\xi = cu + e\xi$, $a > c$, $e > b$, $\eta = 0$, orthogonal noise, gradient descent from zero: no step lowers the
    weight on $Y_u$ if $x > x_\mathrm{mix} = \frac{e^2-b^2}{a^2-c^2}$ or raises it if $x < x_\mathrm{mix}$, and the second step moves it to
    the side named (four architectures: 1, 1, 3/5, 5/3; the nearest $x$ judged bracket the threshold to 1 %)
    wrong: a threshold 1.3 times as large"""
    ratio, moves, units = study.one_way
    return one_way(ratio, moves, constant, units)


@CLAIMS.claim("Q89b", wrong=0.0, source=Source.MEASURED, box="thm-open-mixed", uses="Q89")
def carrier(study: LayersStudy, constant: float) -> Evidence:
    r"""the late error is large where the noise token carries no signal
    $n\,\mathrm{SNR}^2 = 1$, last step, W frozen: the least mean accuracy where $Y_\xi$ carries the signal ($c \ge e/3$) is at least $0.97$,
    and the least mean clean error where it does not ($c = 0$) is $0.315 \pm 0.015$
    wrong: the two one-way masks exchanged"""
    keep, lose = ["residual", "strong mix", "noise sees signal"], ["one layer", "signal sees noise"]
    if not constant:
        keep[-1], lose[-1] = lose[-1], keep[-1]
    last = study.frozen["one layer", 1.0].steps[-1]
    kept, lost = (torch.stack([_frozen_error(study, name, 1.0, last) for name in names]) for names in (keep, lose))
    parts = (
        mean_within(1 - kept.amax(0), low=0.97, quantity="mean of the least accuracy where kept", level=LEVEL / 2),
        mean_within(lost.amin(0), 0.300, 0.330, quantity="mean of the least error where lost", level=LEVEL / 2),
    )
    return replace(both(*parts), numbers={})


@CLAIMS.claim("Q89c", wrong=0.0, box="thm-open-mixed")
def limits(study: LayersStudy, constant: float) -> Evidence:
    r"""the error of the noise phase with a residual layer
    $x < 1$, residual layer, W frozen: the exact SVM on the tokens $Y_\xi$, the noise phase of maximum margin, has clean error
    $\Phi(-z\sqrt{d/n}/\sqrt{(1-\eta)(1-z)^2+\eta(1+z)^2})$, $z = \frac{c^2x'(1-2\eta)}{e^2+c^2x'}$, $x' = \rho^2n/2d$, $\eta$ the
    fraction of flips in the draw
    wrong: 1/2, the value of one layer"""
    parts = []
    for nsnr2 in NSNR2[:2]:
        values = tensor(study.limits["residual", nsnr2])
        law = layers_law(nsnr2)
        found = [
            noise_phase_error(ARCHITECTURES["residual"], law.n, law.d, law.signal_norm, eta)
            for eta in study.flips.tolist()
        ]
        predicted = tensor(found) if constant else torch.full_like(values, 0.5)
        room = {
            "allowance": 0.03 * predicted.mean().item(),
            "allowance_text": "3 %, noise not orthogonal: leading order in n/d",
        }
        part = agrees(values, predicted, **room, level=LEVEL / 2)
        parts.append(replace(part, numbers={name: part.numbers[name] for name in ("predicted", "measured")}))
    return both(*parts)
