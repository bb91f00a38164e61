"""What the page of one token matters draws and measures."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from attnbook.one_token import OneTokenLaw, erf_weights, linear_weights, risk_sampled, sigmoid_weights, softmax_weights
from attnbook.one_token.descent import Trained, train
from attnbook.one_token.exact import best_erf_scale
from attnlib import checks

LADDER = (2, 8, 64)  # numbers of tokens
STRENGTHS = (1.0, 4.0, 8.0, 12.0, 18.0)  # of the first figure
SIZES = (40, 160, 640)  # training samples
TRAINED_STRENGTHS = (4.0, 16.0, 64.0)
RECORD = (10, 20, 40, 80, 160, 320, 640)  # steps at which a trained head is tested


@dataclass(frozen=True)
class Study:
    """R independent sets of samples for heads that know the directions, and R training sets for heads that learn them."""

    law: OneTokenLaw
    heads: dict[int, dict[str, torch.Tensor]]  # by number of tokens and kind: mean squared error of each set, (R,)
    ladder: dict[float, dict[str, torch.Tensor]]  # the same by strength, at the page's number of tokens
    trained: dict[int, Trained]  # by number n of training samples, with flipped labels; 12 R sets if n < 100
    clean: Trained  # without flipped labels, at 160 samples


def sampled(law: OneTokenLaw, seed: int, *, runs: int, samples: int) -> dict[str, torch.Tensor]:
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


def make_study(
    tokens: int,
    strength: float,
    *,
    label_noise: float,
    samples: int,
    draws: int,
    coordinates: int,
    seed: int,
    sizes: Sequence[int] = SIZES,
) -> Study:
    """Draw, run and train. ValueError for an argument out of its range."""
    law = OneTokenLaw(tokens, strength, label_noise)
    checks.whole_number("draws", draws, at_least=2)
    size = {"runs": draws, "samples": samples}
    train_all = {"coordinates": coordinates, "tokens": 4, "strengths": TRAINED_STRENGTHS, "record": RECORD}
    return Study(
        law,
        heads={number: sampled(OneTokenLaw(number, strength), seed, **size) for number in LADDER},
        ladder={value: sampled(OneTokenLaw(tokens, value), seed, **size) for value in STRENGTHS},
        trained={
            number: train(
                seed, samples=number, noise=(label_noise,), draws=draws * (12 if number < 100 else 1), **train_all
            )
            for number in sizes
        },
        clean=train(seed, samples=160, noise=(0.0,), draws=draws, rate=0.1, **train_all),
    )
