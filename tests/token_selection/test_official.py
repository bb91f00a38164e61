"""The leak: the shared draws are there, and nowhere else; the reported digit is 1 - 4/1000."""

import numpy as np
import pytest
import torch

from attnbook.token_selection.dynamics.official import leaked_sample, leaked_test
from attnbook.token_selection.setting.descent import gradient_descent
from attnlib.token_selection.law import CODE_START, TokenLaw
from tests.bad_input import refusing

LAW = TokenLaw(6, 40, 5, 4.0, weak_signal=0.3, noise_std=1.5, label_noise=1 / 3)


def test_training_set_is_the_generators_first_block_with_two_tokens_exchanged():
    tokens = leaked_sample(LAW, 9).tokens[0]
    noise = 1.5 * np.random.default_rng(9).standard_normal((6, 5, 40))
    expected = noise[:, [0, 2, 1, 3, 4]]
    expected[:3, 0, 0] += 4.0
    expected[3:, 0, 1] += 4.0
    expected[:3, 1, 1] += 1.2
    expected[3:, 1, 0] += 1.2
    expected[:3, 2, 0] += 1.2
    expected[3:, 2, 1] += 1.2
    np.testing.assert_allclose(tokens.numpy(), expected, rtol=0, atol=1e-14)


def test_the_leaked_test_by_dense_descent_and_one_block_of_noise():
    """Everything again from vectors: train densely, draw the test set in one go, count."""
    result = leaked_test(LAW, 4, 0.3, 50, test_size=124)
    sample = leaked_sample(LAW, 4)
    path = gradient_descent(sample, CODE_START, 0.3, 50)
    torch.testing.assert_close(result.trajectory.scores[-1], path.scores[-1], rtol=0, atol=1e-10)
    W, p = CODE_START.draw(40, 4)
    for step in range(50):
        c = _forces(path.scores[step, 0], sample)
        G = torch.einsum("nt,ntd->d", c, sample.tokens[0])
        W, p = W + 0.3 * torch.outer(p, G), p + 0.3 * (W @ G)
    noise = torch.as_tensor(1.5 * np.random.default_rng(4).standard_normal((124, 5, 40)))[:, [0, 2, 1, 3, 4]]
    true = torch.cat([torch.ones(62), -torch.ones(62)]).double()
    noise[..., :2] += LAW.means(true)
    f = (torch.softmax(noise @ (W.T @ p), -1) * (noise @ sample.head)).sum(-1)
    torch.testing.assert_close(result.margins, true * f, rtol=0, atol=1e-10)
    assert result.wrong == tuple(torch.nonzero(true * f <= 0).flatten().tolist())
    assert result.reported_accuracy == pytest.approx((true * f > 0).double().mean().item())


def _forces(z: torch.Tensor, sample) -> torch.Tensor:
    z = z.clone().requires_grad_()
    f = (torch.softmax(z, -1) * (sample.tokens[0] @ sample.head)).sum(-1)
    loss = torch.log(1 + torch.exp(-sample.labels.observed[0] * f)).mean()
    return -torch.autograd.grad(loss, z)[0]


def leak(law=LAW, **changes):
    return leaked_test(law, **({"seed": 0, "step_size": 0.1, "steps": 1, "test_size": 8} | changes))


test_refusals = refusing(
    (lambda: leaked_sample(TokenLaw(5, 20, 4, 3.0, label_noise=0.5), 0), "even n"),
    (lambda: leaked_sample(TokenLaw(6, 20, 4, 3.0, balanced=False), 0), "balanced"),
    (
        lambda: leak(TokenLaw(6, 12_001, 5, 4.0, label_noise=1 / 3)),
        "d must be <= 12000, W_0 is held whole here; got 12001",
    ),
    (leak, (), {"test_size": [5, 7], "steps": -1, "step_size": 0.0, "seed": -1}),
)
