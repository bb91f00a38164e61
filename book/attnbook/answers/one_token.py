"""Answers of Part VII."""

from attnbook.answers import crossing, exercise
from attnbook.one_token import OneTokenLaw, bayes_risk, own_score_risk


@exercise("01-one-token/1", "This strength for 1000 tokens.", 3)
def strength_for_one_half() -> float:
    return crossing(lambda nu: own_score_risk(OneTokenLaw(1000, nu)) - 0.5, 1.0, 100.0)


@exercise("01-one-token/2", "This strength for two tokens.", 3)
def strength_for_one_tenth() -> float:
    return crossing(lambda nu: bayes_risk(OneTokenLaw(2, nu)) - 0.1, 1.0, 100.0)
