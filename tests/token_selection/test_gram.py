"""Gram quantities drawn without vectors have the law of those measured on vectors."""

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch

from attnlib.token_selection.gram import draw_gram, gram_of
from attnlib.token_selection.law import CODE_START, Start, TokenLaw
from attnlib.token_selection.training import train

START = Start(0.6, 1.1)
RUNS = 1500


def statistics(gram) -> dict[str, np.ndarray]:
    """Entries and products that see every branch of the draw: first and second moments, mixed terms, norms."""
    K, H, J = gram.kernel, gram.weighted, gram.weighted_twice
    z, y, N = gram.scores, gram.scores_weighted, gram.kernel.shape[2]
    rows = {
        "K diagonal": K[:, 1, 1], "K same mean": K[:, 0, 4], "K signal row": K[:, N, 2], "K cross": K[:, 1, 6] ** 2,
        "H diagonal": H[:, 2, 2], "H off": H[:, 0, 5] ** 2, "H signal row": H[:, N + 1, 3] ** 2, "H signal": H[:, N, 0],
        "J diagonal": J[:, 3, 3], "J off": J[:, 2, 7] ** 2, "z": z[:, 1] ** 2, "z signal": z[:, N] ** 2, "zz": z[:, 0] * z[:, 4],
        "pi": gram.prompt_norm_squared, "v": gram.direction_norm_squared, "y": y[:, 2] ** 2, "zy": z[:, 2] * y[:, 2],
        "H J": H[:, 1, 1] * J[:, 1, 1], "pi v": gram.prompt_norm_squared * gram.direction_norm_squared,
        "gamma": gram.head_scores[:, 0, 1] ** 2, "gamma K": gram.head_scores[:, 2, 0] * K[:, N, 8],
    }  # fmt: skip
    return {name: value.numpy() for name, value in rows.items()}


@cache
def dense(law: TokenLaw) -> dict[str, np.ndarray]:
    """Of `RUNS` training sets and starts held as vectors: the one side of all comparisons of a law."""
    return statistics(gram_of(law.draw(0, RUNS), START))


def largest_z(one: dict, other: dict) -> float:
    """Largest |difference of means| in standard errors, over the statistics."""
    return max(
        abs(a.mean() - b.mean()) / math.sqrt(a.var() / len(a) + b.var() / len(b))
        for a, b in ((one[name], other[name]) for name in one)
    )


@pytest.mark.parametrize("d", [4, 13, 17, 60])
def test_same_law_in_any_dimension(d):
    """N = 12 tokens: d - 2 below, just below, just above and far above N. 21 statistics, five standard errors."""
    law = TokenLaw(3, d, 4, 2.0, weak_signal=0.4, noise_std=0.7, label_noise=0.4, balanced=False)
    # The labels of a run are the same for both, as are the streams' names; the draws themselves are not.
    drawn = statistics(draw_gram(law, 1, RUNS, start=START))
    assert largest_z(dense(law), drawn) < 5


@pytest.mark.parametrize("change", [{"noise_std": 0.75}, {"d": 66}, {"weak_signal": 0.5}])
def test_another_law_is_told_apart(change):
    """Negative control: seven percent more noise, ten percent more dimensions, a stronger weak token."""
    law = TokenLaw(3, 60, 4, 2.0, weak_signal=0.4, noise_std=0.7, label_noise=0.4, balanced=False)
    wrong = statistics(draw_gram(replace(law, **change), 1, RUNS, start=START))
    assert largest_z(dense(law), wrong) > 5


def test_measured_quantities_are_what_they_say():
    law = TokenLaw(4, 30, 5, 3.0, label_noise=0.5)
    sample = law.draw(6, 2)
    gram = gram_of(sample, START)
    weight, prompt = START.draw(30, 6, 1)
    X = sample.tokens[1].reshape(20, 30)
    M, v = weight.T @ weight, weight.T @ prompt
    torch.testing.assert_close(gram.kernel[1, :20], X @ X.T)
    torch.testing.assert_close(gram.kernel[1, 20:], X[:, :2].T)
    torch.testing.assert_close(gram.weighted[1, :20], X @ M @ X.T)
    torch.testing.assert_close(gram.weighted[1, 20:], M[:2] @ X.T)
    torch.testing.assert_close(gram.scores[1], torch.cat([X @ v, v[:2]]))
    torch.testing.assert_close(gram.weighted_twice[1], X @ M @ M @ X.T)
    torch.testing.assert_close(gram.scores_weighted[1], X @ M @ v)
    torch.testing.assert_close(gram.direction_norm_squared[1], v @ v)
    torch.testing.assert_close(gram.prompt_norm_squared[1], prompt @ prompt)
    torch.testing.assert_close(gram.head_scores[1].flatten(), X @ law.head())


def test_training_has_the_same_law():
    """What counts in the end: attention after 40 steps, dense vectors against direct draws, 60 runs each, four standard errors."""
    law = TokenLaw(8, 300, 5, 8.0, label_noise=0.25)
    dense = train(gram_of(law.draw(0, 60), Start()), 0.05, 40, record=[])
    drawn = train(draw_gram(law, 1, 60), 0.05, 40, record=[])
    for kind in ("clean", "noisy"):
        a, b = (path.attention_of(kind)[-1, :, 0].numpy() for path in (dense, drawn))
        assert abs(a.mean() - b.mean()) < 4 * math.sqrt((a.var() + b.var()) / 60)
    a, b = (path.direction_norm_squared[-1].numpy() for path in (dense, drawn))
    assert abs(a.mean() - b.mean()) < 4 * math.sqrt((a.var() + b.var()) / 60)


def test_runs_and_parts():
    law = TokenLaw(4, 1000, 5, 3.0, label_noise=0.5)
    together, alone = draw_gram(law, 3, 4), draw_gram(law, 3, 2, first_run=2)
    for name in ("kernel", "weighted", "weighted_twice", "head_scores"):
        assert torch.equal(getattr(together.part(2, 4), name), getattr(alone, name))
    assert together.part(2, 4).first_run == 2
    assert together.part(2, 4).labels.true.shape == (2, 4)


def test_bad_arguments():
    law = TokenLaw(4, 30, 5, 3.0, label_noise=0.5)
    with pytest.raises(ValueError, match=r"got 'uniform': use gram_of"):
        draw_gram(law, 0, start=CODE_START)
