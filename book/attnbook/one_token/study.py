"""What the page of one token matters draws and measures, and exact numbers that it alone needs."""

import math
from types import SimpleNamespace

import torch

from attnbook.halving import halved
from attnbook.one_token import (
    OneTokenLaw,
    bayes_risk,
    erf_risk,
    erf_weights,
    linear_weights,
    own_score_risk,
    risk_sampled,
    sigmoid_weights,
    softmax_weights,
)
from attnbook.one_token.descent import train

LADDER = (2, 8, 64)  # numbers of tokens
STRENGTHS = (1.0, 4.0, 8.0, 12.0, 18.0)  # of the first figure
SIZES = (40, 160, 640)  # training samples
TRAINED_STRENGTHS = (4.0, 16.0, 64.0)
RECORD = (10, 20, 40, 80, 160, 320, 640)  # steps at which a trained head is tested
_GOLDEN = (math.sqrt(5) - 1) / 2

# --- exact numbers: the best erf head, the strength that a risk asks for, the profile of the threshold ------------------------


def best_erf_scale(law):
    """The scale at which the erf head has its smallest risk, by golden section on log scales between 0.003 and 3."""
    low, high = math.log(0.003), math.log(3.0)
    for _ in range(40):
        first, second = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        if erf_risk(law, math.exp(first)) < erf_risk(law, math.exp(second)):
            high = second
        else:
            low = first
    return math.exp((low + high) / 2)


def strength_for(risk, tokens, formula):
    """The strength at which a falling formula has this risk, by bisection; at most 1000."""
    return sum(halved(lambda strength: formula(OneTokenLaw(tokens, strength)) > risk, 1e-3, 1000.0, 44)) / 2


def strength_ratio(tokens, risk=0.1):
    """How many times the strength own-score weights need for the risk that softmax has."""
    return strength_for(risk, tokens, own_score_risk) / strength_for(risk, tokens, bayes_risk)


def window_law(tokens, offset, multiple=1.0):
    r"""The law at $\nu = 2\,c\log L + 2x\sqrt{2\log L}$; $c$ = `multiple` is 1 at the threshold, and $x$ = `offset`."""
    logarithm = math.log(tokens)
    return OneTokenLaw(tokens, 2 * multiple * logarithm + 2 * offset * math.sqrt(2 * logarithm))


def profile(offsets):
    r"""The limit of both risks in the window of the threshold, $\Phi(-x)$."""
    return torch.special.ndtr(-offsets)


# --- measurements --------------------------------------------------------------------------------------------------------------


def sampled(law, seed, *, runs, samples):
    """Mean squared error of the five heads on R sets, and of softmax at half its slope and the sigmoid at half its bias."""
    scale, sample = best_erf_scale(law), law.draw(seed, runs=runs, samples=samples)
    return {
        "softmax": risk_sampled(lambda scores: softmax_weights(scores, law), sample),
        "sigmoid": risk_sampled(lambda scores: sigmoid_weights(scores, law), sample),
        "linear": risk_sampled(lambda scores: linear_weights(scores, law), sample),
        "centred linear": risk_sampled(lambda scores: linear_weights(scores, law, centred=True), sample),
        "erf": risk_sampled(lambda scores: erf_weights(scores, law, scale=scale), sample),
        "softmax at half the slope": risk_sampled(lambda scores: softmax_weights(scores, law, slope=0.5), sample),
        "sigmoid at half the bias": risk_sampled(lambda scores: sigmoid_weights(scores, law, bias=0.5), sample),
    }


def make_study(tokens, strength, *, label_noise, samples, draws, coordinates, seed, sizes=SIZES):
    """R independent sets of samples for heads that know the directions, and R training sets for heads that learn them.

    heads, by number of tokens and kind: mean squared error of each set, (R,); ladder: the same by strength, at the page's number of tokens.
    trained, by number n of training samples, with flipped labels, 12 R sets if n < 100; clean: without, at 160 samples. few, without_flips
    (R, kinds): risks with best stopping at the largest strength, of the fewest samples and of `clean`.
    """
    s, size = SimpleNamespace(law=OneTokenLaw(tokens, strength, label_noise)), {"runs": draws, "samples": samples}
    s.heads = {number: sampled(OneTokenLaw(number, strength), seed, **size) for number in LADDER}
    s.ladder = {value: sampled(OneTokenLaw(tokens, value), seed, **size) for value in STRENGTHS}
    train_all = {"coordinates": coordinates, "tokens": 4, "strengths": TRAINED_STRENGTHS, "record": RECORD}
    s.trained = {
        number: train(
            seed, samples=number, noise=(label_noise,), draws=draws * (12 if number < 100 else 1), **train_all
        )
        for number in sizes
    }
    s.clean = train(seed, samples=160, noise=(0.0,), draws=draws, rate=0.1, **train_all)
    s.few, s.without_flips = (one.best()[:, 0, :, -1] for one in (s.trained[min(sizes)], s.clean))
    return s
