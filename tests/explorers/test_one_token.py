"""The explorer "one_token": its formulas against attnlib, at the ends of every slider and between."""

import itertools

import numpy as np
import pytest
import torch

from attnbook.one_token import (
    OneTokenLaw,
    bayes_risk,
    linear_risk,
    linear_weights,
    own_score_risk,
    sigmoid_weights,
    softmax_weights,
)
from tests.explorers.node import evaluate

POINTS = list(itertools.product((2, 3, 17, 200), (0.5, 1.3, 8.0, 40.0)))


def test_the_risks_are_attnlibs() -> None:
    names = {"bayes_risk": bayes_risk, "own_score_risk": own_score_risk}
    calls = [(name, {"tokens": tokens, "strength": nu}) for name in names for tokens, nu in POINTS]
    wanted = [formula(OneTokenLaw(tokens, nu)) for formula in names.values() for tokens, nu in POINTS]
    assert evaluate("one_token", calls) == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize("centred", [True, False])
def test_linear_risks_are_attnlibs(centred: bool) -> None:
    calls = [("linear_risk", {"tokens": tokens, "strength": nu, "centred": centred}) for tokens, nu in POINTS]
    wanted = [linear_risk(OneTokenLaw(tokens, nu), centred=centred) for tokens, nu in POINTS]
    assert evaluate("one_token", calls) == pytest.approx(wanted, rel=1e-13)


def test_the_weights_are_attnlibs() -> None:
    scores, law = [2.5, -0.3, 0.7, 1.1, -2.0], OneTokenLaw(5, 6.5)
    kinds = {"softmax": softmax_weights, "sigmoid": sigmoid_weights, "linear": linear_weights}
    found = evaluate("one_token", [("weights", {"kind": kind, "scores": scores, "strength": 6.5}) for kind in kinds])
    given = torch.tensor(scores, dtype=torch.float64)
    for weights, formula in zip(found, kinds.values(), strict=True):
        assert weights == pytest.approx(formula(given, law).tolist(), rel=1e-12)


def test_the_draws_of_the_picture_are_normal_and_differ() -> None:
    first, second = evaluate("one_token", [("normals", {"count": 4000, "draw": draw}) for draw in (1, 2)])
    assert abs(np.mean(first)) < 4 / 4000**0.5
    assert abs(np.var(first) - 1) < 4 * (2 / 4000) ** 0.5
    assert abs(np.corrcoef(first, second)[0, 1]) < 4 / 4000**0.5
