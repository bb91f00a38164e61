"""Exact numbers that only the page needs: the best erf head, the strength that a risk asks for, and the profile of the threshold."""

import math
from collections.abc import Callable

import torch

from attnbook.halving import halved
from attnbook.one_token import OneTokenLaw, bayes_risk, erf_risk, own_score_risk

_GOLDEN = (math.sqrt(5) - 1) / 2


def best_erf_scale(law: OneTokenLaw) -> float:
    """The scale at which the erf head has its smallest risk, by golden section on log scales between 0.003 and 3."""
    low, high = math.log(0.003), math.log(3.0)
    for _ in range(40):
        first, second = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        if erf_risk(law, math.exp(first)) < erf_risk(law, math.exp(second)):
            high = second
        else:
            low = first
    return math.exp((low + high) / 2)


def strength_for(risk: float, tokens: int, formula: Callable[[OneTokenLaw], float]) -> float:
    """The strength at which a falling formula has this risk, by bisection; at most 1000."""
    return sum(halved(lambda strength: formula(OneTokenLaw(tokens, strength)) > risk, 1e-3, 1000.0, 44)) / 2


def strength_ratio(tokens: int, risk: float = 0.1) -> float:
    """How many times the strength own-score weights need for the risk that softmax has."""
    return strength_for(risk, tokens, own_score_risk) / strength_for(risk, tokens, bayes_risk)


def window_law(tokens: int, offset: float, multiple: float = 1.0) -> OneTokenLaw:
    r"""The law at $\nu = 2\,c\log L + 2x\sqrt{2\log L}$; $c$ = `multiple` is 1 at the threshold, and $x$ = `offset`."""
    logarithm = math.log(tokens)
    return OneTokenLaw(tokens, 2 * multiple * logarithm + 2 * offset * math.sqrt(2 * logarithm))


def profile(offsets: torch.Tensor) -> torch.Tensor:
    r"""The limit of both risks in the window of the threshold, $\Phi(-x)$."""
    return torch.special.ndtr(-offsets)
