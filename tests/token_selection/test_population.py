"""Fresh data in score space: error, loss and attention against fresh d-vectors, quadrature, and each other."""

import math

import pytest
import torch

from attnlib.randomness import stream
from attnlib.token_selection.errors import population, population_along
from attnlib.token_selection.gram import draw_gram
from attnlib.token_selection.law import TokenLaw
from attnlib.token_selection.model import outputs
from attnlib.token_selection.training import train

LAW = TokenLaw(n=20, d=100, tokens=6, signal_norm=3.0, weak_signal=0.3, noise_std=1.3, label_noise=0.2)


@pytest.mark.parametrize("second", [0.3, -0.8])
def test_against_fresh_vectors(second):
    """A dense v across the head's direction or along it: 40 000 fresh points of 100 dimensions, four standard errors."""
    rng = stream(0, "search")
    v = torch.as_tensor(0.08 * rng.standard_normal(100))
    v[0] += 0.9
    v[1] += second
    ours = population(LAW, v[:2], v @ v, count=40_000, rng=stream(1, "test"))
    tokens, true = LAW.draw_fresh(40_000, 2)
    f = outputs(tokens @ v, tokens @ LAW.head())
    attention = torch.softmax(tokens @ v, -1)
    wrong, losses = (f * true <= 0).double(), torch.log1p(torch.exp(-true * f))
    assert 0.02 < wrong.mean() < 0.45
    for mine, se, theirs in (
        (ours.error, ours.error_se, wrong),
        (ours.loss, ours.loss_se, losses),
        *zip(ours.attention, ours.attention_se, attention.T, strict=True),
    ):
        scale = math.hypot(se.item(), theirs.std().item() / 200)
        assert abs(mine - theirs.mean()) < 4 * scale
    assert ours.accuracy == 1 - ours.error
    # negative control: with v a fifth longer the same comparison fails
    longer = population(LAW, 1.2 * v[:2], 1.2**2 * (v @ v), count=40_000, rng=stream(1, "test"))
    assert abs(longer.attention[0] - attention[:, 0].mean()) > 4 * math.hypot(
        longer.attention_se[0], attention[:, 0].std() / 200
    )


def test_two_tokens_against_quadrature():
    """T = 2, v along the head's plane only: the error is a one-dimensional integral over the difference of the two scores."""
    from scipy.integrate import quad
    from scipy.stats import norm

    law = TokenLaw(4, 50, 2, 2.0, weak_signal=0.5, same_class_tokens=0, noise_std=0.8, label_noise=0.5)
    # v . nu = 0: given the scores, gamma is independent of them
    v, extra = torch.tensor([0.7, 0.7], dtype=torch.float64), 0.6
    ours = population(law, v, v @ v + extra, count=400_000, rng=stream(0, "test"))
    nu = law.head_norm
    gap_mean, gap_std = 0.7 * 2.0 * (1 - 0.5), 0.8 * math.sqrt(2 * (0.98 + extra))

    def at(gap):
        s = 1 / (1 + math.exp(-gap))
        mean = 2.0 * nu / math.sqrt(2) * (s - 0.5 * (1 - s))
        return norm.cdf(-mean / (0.8 * nu * math.hypot(s, 1 - s))) * norm.pdf(gap, gap_mean, gap_std)

    exact = quad(at, gap_mean - 10 * gap_std, gap_mean + 10 * gap_std, epsabs=1e-12)[0]
    assert abs(ours.error.item() - exact) < 4 * ours.error_se.item()
    assert ours.error_se.item() < 0.005 * exact


def test_along_a_trajectory():
    """Every run sees its own fresh points, all moments of a run the same, whatever the batch."""
    gram = draw_gram(TokenLaw(8, 400, 5, 6.0, label_noise=0.25), 3, 3)
    path = train(gram, 0.02, 40, record=[0, 20])
    all_rows = population_along(path, count=400)
    assert all_rows.error.shape == (3, 3)
    assert all_rows.attention.shape == (3, 3, 5)
    alone = population_along(train(gram.part(2, 3), 0.02, 40, record=[0, 20]), count=400, rows=[1, 2])
    torch.testing.assert_close(alone.loss, all_rows.loss[1:, 2:], rtol=1e-12, atol=0)
    torch.testing.assert_close(alone.attention, all_rows.attention[1:, 2:], rtol=1e-12, atol=0)
    by_hand = population(
        path.law,
        path.direction_on_signals[1, 2],
        path.direction_norm_squared[1, 2],
        count=400,
        rng=stream(3, "test", 2),
    )
    torch.testing.assert_close(by_hand.loss, all_rows.loss[1, 2], rtol=1e-12, atol=0)


def test_bad_arguments():
    v, norm = torch.zeros(2, dtype=torch.float64), torch.tensor(1.0).double()
    with pytest.raises(ValueError, match="count must be even"):
        population(LAW, v, norm, count=5, rng=stream(0, "test"))
    with pytest.raises(ValueError, match=r"\|v\|\^2 of the same models, >= 2"):
        population(LAW, v + 1, norm, count=8, rng=stream(0, "test"))
