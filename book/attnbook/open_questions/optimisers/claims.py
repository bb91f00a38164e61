r"""Claims of the page on optimisers: Q25-Q29, Q51, Q52 and Q59b."""

from dataclasses import replace

import torch

from attnbook.open_questions.judging import one_way, tensor
from attnbook.open_questions.optimisers.signs import (
    adam_second_step,
    axis_error,
    axis_memory_ratio,
    exponent_ratio_flat,
    exponent_ratio_random,
)
from attnbook.open_questions.optimisers.study import OptimiserStudy, SignSteps
from bookkit.claims import ClaimSet, Source
from bookkit.rules import (
    LEVEL,
    Evidence,
    NothingToMeasure,
    agrees,
    both,
    exactly,
    mean_within,
    statistic_within,
    within,
)

CLAIMS = ClaimSet("open_questions")


def _mean_in_band(row: torch.Tensor, low: float | None, high: float | None, level: float = LEVEL) -> Evidence:
    """The mean over draws lies in [low, high]; the range of the draws is shown."""
    evidence = mean_within(row, low, high, level=level)
    shown = f"{evidence.measured}, draws [{row.min():.3g}, {row.max():.3g}]"
    numbers = {"mean": evidence.numbers["measured"], "standard_error": evidence.numbers["standard_error"]}
    return replace(evidence, measured=shown, numbers=numbers)


# --- one step of sign descent ----------------------------------------------------------------------------------------------


@CLAIMS.claim("Q25", wrong=1.1, box="prop-open-sign")
def axis_ratio(study: OptimiserStudy, constant: float) -> Evidence:
    r"""signals on axes: after one step of sign descent noise has the larger score
    after one step of sign descent $V_k / E\,y_iv_1\cdot\xi_i = \rho\sqrt{\pi n/2}/(d-2)$, at $n\,\mathrm{SNR}^2 = 0.25, 1, 4.5$
    wrong: a ratio 10 % larger"""
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


@CLAIMS.claim("Q26", wrong=1.5, box="prop-open-sign")
def two_over_pi(study: OptimiserStudy, constant: float) -> Evidence:
    r"""signals in random directions: a fraction of gradient descent's exponent, 2/π at low SNR
    after one step the exponent of the clean error over gradient descent's is $\frac{2/\pi}{1+(1-2/\pi)q}$, $q =
    \rho^2(c_1^2+c_2^2)/|\sum_iy_i\xi_i|^2 \approx \tfrac12 n\,\mathrm{SNR}^2(1-2\eta)^2$, for signals in random directions: below $2/\pi$,
    and near it at low SNR
    wrong: a fraction half as large again"""
    parts, room = [], {"allowance": 0.01, "allowance_text": "fluctuation of V_k, O(1/d)"}
    for s in study.signs.values():
        found, predicted = _exponents(s, "random")
        parts.append(agrees(found, constant * predicted, **room, level=LEVEL / len(study.signs)))
    return both(*parts)


@CLAIMS.claim("Q26b", wrong=1.5, box="prop-open-sign", uses="Q26")
def two_over_pi_flat(study: OptimiserStudy, constant: float) -> Evidence:
    r"""flat signals: the exponent after one step of sign descent
    after one step of sign descent, the exponent of the clean error over gradient descent's is, for signals with entries $\pm\rho/\sqrt d$,
    $\frac{e^2/(1-e^2)}{q}$ with $2e^2 = e_+^2 + e_-^2$, $e_\pm = \mathrm{erf}\,\frac{\rho(c_1\pm c_2)}{\sqrt{2nd}}$; above the value for
    random directions
    wrong: a ratio half as large again"""
    parts, room = [], {"allowance": 0.02, "allowance_text": "leading order in n/d"}
    for s in study.signs.values():
        found, predicted = _exponents(s, "flat")
        parts.append(agrees(found, constant * predicted, **room, level=LEVEL / len(study.signs)))
    return both(*parts)


@CLAIMS.claim("Q27", wrong=1.01, box="prop-open-sign", uses="D4 R6")
def axis_law(study: OptimiserStudy, constant: float) -> Evidence:
    r"""signals on axes: the error does not depend on n
    after one step of sign descent or Adam the clean error is $\Phi(-\rho/\sqrt{d-2})$, for $n = 20, 50, 100$ alike, if both classes have
    more clean than flipped samples (Adam: to $10^{-4}$, since a coordinate with a gradient as small as its $\epsilon$ takes less than a
    whole step and changes the logarithm by about $1/2d$)
    wrong: a signal norm 1 % larger"""
    parts = []
    for name, tolerance in (("sign descent", 1e-9), ("Adam", 1e-4)):
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
    "Q28", wrong=0.0, source=Source.MEASURED, uses="R3 R6", violation=lambda study: _other_law(study.high_law, 2.0)
)
def adam_spread(study: OptimiserStudy, constant: float) -> Evidence:
    r"""Adam with signals in random directions has a small error above the threshold
    $n\,\mathrm{SNR}^2 \approx 4.5$, signals in random directions, step/10, 120 steps: mean $\log_{10}$ clean error at most $-15$
    regime: $x$ within 5 % of 2 at $n = 50$, $d = 5000$, $\eta = 0.1$
    wrong: Adam with signals on two axes"""
    row = study.high["Adam, random, step/10" if constant else "Adam, axis, step/10"]
    return _mean_in_band(row.end, None, -15.0)


def _other_law(law, x: float) -> str:
    here = law.signal_norm**2 * law.n * (1 - law.label_noise) / 2 / law.d
    fits = (law.n, law.d, law.label_noise) == (50, 5000, 0.1) and abs(here / x - 1) <= 0.05
    return (
        ""
        if fits
        else f"needs x = {x:g} at (n, d, eta) = (50, 5000, 0.1); here {here:.3g} at ({law.n}, {law.d}, {law.label_noise:g})"
    )


@CLAIMS.claim("Q27b", wrong=0.0, source=Source.MEASURED, uses="Q27")
def axis_ends_on_noise(study: OptimiserStudy, constant: float) -> Evidence:
    """signals on axes: sign descent on full batches ends on the noise far above x = 1
    sign descent without flips, $n = 20$, $d = 2000$, $x = 2, 5, 20$: with signals on two axes all classes of at least 95 % of draws end
    with attention below 0.01 on the signal; with signals in random directions, $x = 5, 20$, the same draws above 0.99
    wrong: the two bases exchanged"""
    # (draws, x and class)
    axis, random = (study.sign_ends[basis].movedim(1, 0).flatten(1) for basis in ("axis", "random"))
    if not constant:
        axis, random = random, axis
    return both(
        within(axis, high=0.01, quantity="attention, axes", level=LEVEL / 2),
        within(random[:, 2:], low=0.99, quantity="attention, random directions", level=LEVEL / 2),
    )


# --- full batches and mini-batches ------------------------------------------------------------------------------------------


@CLAIMS.claim("Q29", wrong=0.0, source=Source.MEASURED, uses="R3")
def batches_at_low_snr(study: OptimiserStudy, constant: float) -> Evidence:
    r"""mini-batches have a much smaller error at low SNR
    $x = 0.45$, $n = 50$, $d = 5000$, $\eta = 0.1$, batches of 10, $\beta = 5n/d$, 2000 steps: mean $\log_{10}$ clean error at most
    $-2.5$, gradient descent's at least $-0.5$, and mini-batches have the lower one in at least 95 % of draws
    wrong: mini-batches and full batches exchanged"""
    gd, sgd = study.many["gradient descent"].end, study.many["batches of 10"].end
    if not constant:
        gd, sgd = sgd, gd
    level = LEVEL / 3
    parts = [_mean_in_band(sgd, None, -2.5, level), _mean_in_band(gd, -0.5, None, level)]
    return both(*parts, within(sgd - gd, high=0.0, quantity="batches minus full batch", level=level))


@CLAIMS.claim("Q59b", wrong=1.2, box="thm-open-one-threshold")
def momentum_one_way(study: OptimiserStudy, constant: float) -> Evidence:
    r"""no label noise: momentum and normalised steps keep x = 1
    $\eta = 0$, orthogonal noise, from zero: under heavy ball, Nesterov, normalised and block-normalised descent, small steps or large, no
    step moves attention away from the signal if $x > 1$ or towards it if $x < 1$, and the second step moves it to the side named
    wrong: the boundary at x = 1.2"""
    return one_way(*study.zero_moves, constant)


# --- sign descent along training -------------------------------------------------------------------------------------------


@CLAIMS.claim("Q51", wrong=0.0, source=Source.MEASURED, box="thm-open-arcsine", uses="Q51b Q52")
def arcsine(study: OptimiserStudy, constant: float) -> Evidence:
    r"""the arcsine law of sign descent
    signals in random directions: the clean error along training is that of block-normalised descent with $\Pi v\cdot\Pi v$, $\Pi v\cdot\Pi
    p$, $\Pi p\cdot\Pi p$ replaced by sums of $\frac2\pi\arcsin\cos\angle(G_s, G_t)$ over past gradients, less the part in the signals'
    plane; the mean ratio of the $\log_{10}$ errors over the steps is within 0.1 of 1, below and above the threshold, in at least 80 % of
    draws (in the others a class next to its own boundary tips to its other side)
    wrong: the block-normalised errors themselves"""
    ratios = []
    for track in study.tracks.values():  # the same draws below the threshold and above it
        predicted = track.predicted.log10_error if constant else track.block_error
        ratios.append((track.log10_error / predicted).mean(0))
    return within(torch.stack(ratios, 1), low=0.9, high=1.1, quantity="mean ratio", share=0.8)


@CLAIMS.claim("Q51b", wrong=(0.0, 2.0), box="thm-open-arcsine")
def arcsine_products(study: OptimiserStudy, constant: float) -> Evidence:
    r"""what fresh noise sees of sign descent
    signals in random directions, below and above the threshold, averaged over the steps from the second on: $\Pi v\cdot\Pi v$ and $\Pi
    p\cdot\Pi p$ over $d\beta^2\sum_{s,t}\frac2\pi\arcsin\cos\angle(G_s, G_t) - \sum_k(\cdot)(\cdot)/\rho^2$ are 1 up to $2n/d$, and
    $\Pi v\cdot\Pi p/|\Pi v||\Pi p|$ is its prediction: the slope of one on the other, over draws, steps and signal norms, is 1 up to 0.05
    wrong: the signals' plane is not taken off: the sum of arcsines alone; inner products twice as large"""
    parts, cosines, factor, level = [], [], constant or 1.0, LEVEL / (2 * len(study.tracks) + 1)
    for track in study.tracks.values():
        allowance = 2 * study.low_law.n / study.low_law.d
        room = {"allowance": allowance, "allowance_text": "leading order: 2n/d", "level": level}
        late = [i for i, step in enumerate(track.steps) if step > 1]  # p is zero after the first step
        found = track.noise_products[late]  # (S, R, 2, 2)
        said = (track.predicted.noise_products if constant else track.predicted.products)[late]
        length = found[..., 0, 0] * found[..., 1, 1]
        for i in (0, 1):
            ratio = (found[..., i, i] / said[..., i, i]).mean(0)
            parts.append(agrees(ratio, factor, **room))
        cosines.append([(products[..., 0, 1] / length.sqrt()).mT for products in (found, said)])
    cosine, predicted = (torch.cat(side, 1) for side in zip(*cosines, strict=True))  # the same draws in every track
    bounds = {"low": factor - 0.05, "high": factor + 0.05, "quantity": "slope of cosines", "level": level}
    return both(*parts, statistic_within(_slope, cosine, predicted, **bounds))


def _slope(found: torch.Tensor, said: torch.Tensor) -> float:
    return ((found * said).sum() / said.square().sum()).item()


@CLAIMS.claim("Q52", wrong=0.0, source=Source.MEASURED, box="thm-open-arcsine")
def trains_alike(study: OptimiserStudy, constant: float) -> Evidence:
    r"""sign descent trains like block-normalised descent
    signals in random directions, steps of length $\beta E|w|_1$ for $\beta$ per entry: the attention of the same samples at the same steps
    differs by less than 0.01 in the mean over samples and steps, above and below the threshold, in at least 80 % of draws (in the others a
    class next to its own boundary tips to its other side)
    wrong: attention held at one half"""
    gaps = []
    for track in study.tracks.values():
        rows = [track.predicted.path.at(step) for step in track.steps]
        other = track.predicted.path.attention_on_signal[rows] if constant else torch.full_like(track.attention, 0.5)
        gaps.append((track.attention - other).abs().mean((0, 2)))
    # The same draws below the threshold and above it.
    return within(torch.stack(gaps, 1), high=0.01, quantity="mean difference of attention", share=0.8)


@CLAIMS.claim("Q52b", wrong=1.01, box="prop-open-sign")
def adam_size(study: OptimiserStudy, constant: float) -> Evidence:
    r"""Adam's second step in p has one size
    every entry of $p_2$ under Adam is $\pm\beta\sqrt{1+\beta_2}/(1+\beta_1) = \pm0.744\,\beta$, whatever the gradient
    wrong: a size 1 % larger"""
    sizes = study.adam_sizes
    return exactly(sizes, constant * adam_second_step(), tolerance=1e-3)
