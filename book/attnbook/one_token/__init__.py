"""Part VII, one token matters: single-location regression, its exact risks for five kinds of weights, and the sampled model beside them."""

from attnbook.one_token.law import OneTokenLaw, Sample
from attnbook.one_token.risks import bayes_risk, concave_floor, erf_risk, linear_risk, own_score_risk, risk_bounds
from attnbook.one_token.weights import erf_weights, linear_weights, risk_sampled, sigmoid_weights, softmax_weights

__all__ = [
    "OneTokenLaw",
    "Sample",
    "bayes_risk",
    "concave_floor",
    "erf_risk",
    "erf_weights",
    "linear_risk",
    "linear_weights",
    "own_score_risk",
    "risk_bounds",
    "risk_sampled",
    "sigmoid_weights",
    "softmax_weights",
]
