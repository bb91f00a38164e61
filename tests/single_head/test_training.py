"""Gradients, descent and closed forms, each against a second way to the number."""

import numpy as np
import pytest
import torch

from attnlib.single_head.closed_form import two_steps
from attnlib.single_head.law import SignalNoiseLaw
from attnlib.single_head.model import forward, gradients, loss
from attnlib.single_head.training import gaussian_start, gradient_descent, gram_descent
from tests.bad_input import refusing

LAW = SignalNoiseLaw(n=11, d=60, signal_norm=4.0, label_noise=0.3, tokens=3)


def _parameters(sample, seed=0):
    rng = np.random.default_rng(seed)
    shape = (sample.runs, sample.tokens.shape[-1])
    return tuple(torch.as_tensor(rng.standard_normal(shape) / 5) for _ in range(2))


def test_loss_does_not_overflow():
    output, labels = torch.tensor([[-1e4, 1e4, 0.0]], dtype=torch.float64), torch.ones(1, 3, dtype=torch.float64)
    assert loss(output, labels).item() == pytest.approx((1e4 + 0 + np.log(2)) / 3, rel=1e-14)


def test_gaussian_start_has_the_dense_law():
    """|v_0|^2 / std^2 has mean d and v_0 . xi has variance |xi|^2 in both coordinate systems."""
    law, draws = SignalNoiseLaw(4, 30, 2.0), 400
    for coordinates in ("reduced", "dense"):
        sample = law.draw(0, runs=draws, coordinates=coordinates, start_vectors=2)
        v0, p0 = gaussian_start(sample, 0.5)
        for vector in (v0, p0):
            square = (vector**2).sum(1) / 0.25
            assert abs(square.mean() - 30) < 4.5 * square.std() / np.sqrt(draws)
        overlap = (v0 * p0).sum(1) / 0.25
        assert abs((overlap**2).mean() - 30) < 4.5 * (overlap**2).std() / np.sqrt(draws)


def test_trajectory_statistics_by_hand():
    sample = SignalNoiseLaw(30, 200, 8.0, 0.2, tokens=3).draw(7, runs=2, coordinates="dense")
    path = gradient_descent(sample, 0.2, 4, record=[2])
    assert path.steps == (2, 4)
    out = forward(sample.tokens, path.v[path.at(2)], path.p[path.at(2)])
    for r in range(2):
        margins = [float(sample.labels[r, i] * out.output[r, i]) for i in range(30)]
        attention = [float(out.attention[r, i, sample.signal_position[r, i]]) for i in range(30)]
        noisy = [bool(sample.noisy[r, i]) for i in range(30)]
        assert path.train_accuracy[0, r] == pytest.approx(np.mean([m > 0 for m in margins]))
        assert path.attention_noisy[0, r] == pytest.approx(
            np.mean([a for a, f in zip(attention, noisy, strict=True) if f])
        )
        assert path.attention_clean[0, r] == pytest.approx(
            np.mean([a for a, f in zip(attention, noisy, strict=True) if not f])
        )
        assert path.loss[0, r] == pytest.approx(np.mean(np.logaddexp(0, -np.array(margins))))


def test_closed_forms_equal_two_steps_of_the_trainer():
    for T in (2, 3, 5):
        sample = SignalNoiseLaw(13, 70, 5.0, 0.3, tokens=T).draw(2, runs=3, coordinates="dense")
        path, closed = gradient_descent(sample, 0.7, 2), two_steps(sample, 0.7)
        assert torch.count_nonzero(path.p[1]) == 0
        for trained, formula in ((path.v[1], closed.v1), (path.v[2], closed.v2), (path.p[2], closed.p2)):
            torch.testing.assert_close(trained, formula, rtol=0, atol=1e-12 * formula.abs().max().item())
        torch.testing.assert_close(path.margins[1], closed.margins1, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("descend", [gradient_descent, gram_descent])
def test_training_begins_at_its_start(descend):
    sample = SignalNoiseLaw(n=6, d=50, signal_norm=3.0).draw(seed=0, runs=2, start_vectors=2)
    v, p = gaussian_start(sample, std=0.3)
    path = descend(sample, 0.1, 1, start=(v, p))
    torch.testing.assert_close(path.v[0], v)
    torch.testing.assert_close(path.p[0], p)


def test_coefficients_rebuild_the_vectors():
    sample = SignalNoiseLaw(10, 50, 4.0, 0.2).draw(5, runs=2, coordinates="dense")
    c = two_steps(sample, 0.3)
    noise = sample.noise_tokens()[:, :, 0]
    v2 = torch.einsum("rk,rkm->rm", c.lambda2, sample.signals) + torch.einsum(
        "rn,rnm->rm", c.theta2 * sample.labels, noise
    )
    v1 = torch.einsum("rk,rkm->rm", c.lambda1, sample.signals) + c.theta1 * torch.einsum(
        "rn,rnm->rm", sample.labels, noise
    )
    torch.testing.assert_close(v2, c.v2, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(v1, c.v1, rtol=1e-12, atol=1e-14)
    # p_2 = beta/4n sum g gamma (u - xi), with the token preference gamma of the text
    signal = torch.take_along_dim(sample.signals, sample.signal_class.unsqueeze(-1), dim=1)
    p2 = 0.3 / 40 * torch.einsum("rn,rnm->rm", c.slopes * c.preference, signal - noise)
    torch.testing.assert_close(p2, c.p2, rtol=1e-12, atol=1e-15)
    assert c.theta1 == pytest.approx(0.3 / 40)


SAMPLE = LAW.draw(0)
V, P = _parameters(SAMPLE)


def descend(step_size=0.1, steps=3, **arguments):
    return gradient_descent(SAMPLE, step_size, steps, **arguments)


test_refusals = refusing(
    (lambda: descend(record=[7]), "record must hold steps"),
    (lambda: descend(start=(torch.zeros(1, 3, dtype=torch.float64),) * 2), r"start\[0\] must have shape"),
    (lambda: descend(record=[1]).at(2), "recorded steps"),
    (lambda: forward(SAMPLE.tokens, V.float(), P), "v must have dtype"),
    (lambda: forward(SAMPLE.tokens, V.T, P), "swap the axes"),
    (lambda: forward(SAMPLE.tokens.long(), V, P), "floating-point"),
    (lambda: forward(SAMPLE.tokens.numpy(), V, P), "must be a torch tensor"),
    (lambda: gradients(SAMPLE.tokens, SAMPLE.labels[:, :3], V, P), "labels must have shape"),
    (lambda: gaussian_start(SAMPLE, 0.1), "start_vectors=2"),
)
