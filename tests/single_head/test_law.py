"""The data law: what the paper's setting says, in dense and in reduced coordinates."""

import numpy as np
import pytest
import torch

from attnlib.single_head.law import SignalNoiseLaw

LAW = SignalNoiseLaw(n=7, d=23, signal_norm=3.0, label_noise=0.3, tokens=4)


@pytest.mark.parametrize("coordinates", ["dense", "reduced"])
def test_shapes_and_exact_geometry(coordinates):
    sample = LAW.draw(seed=1, runs=3, coordinates=coordinates, start_vectors=2)
    m = 23 if coordinates == "dense" else 2 + min(7 * 3 + 2, 21)
    assert sample.tokens.shape == (3, 7, 4, m)
    assert sample.start_directions.shape == (3, 2, m)
    gram = sample.signals @ sample.signals.mT
    torch.testing.assert_close(gram, 9.0 * torch.eye(2, dtype=torch.float64).expand(3, 2, 2), rtol=0, atol=1e-12)
    noise = sample.noise_tokens()
    assert noise.shape == (3, 7, 3, m)
    np.testing.assert_allclose(torch.einsum("rntm,rkm->rntk", noise, sample.signals), 0, atol=1e-12)
    held = torch.take_along_dim(sample.signals, sample.signal_class.unsqueeze(-1), dim=1)
    at_position = torch.stack([sample.tokens[r, range(7), sample.signal_position[r]] for r in range(3)])
    torch.testing.assert_close(at_position, held, rtol=0, atol=0)
    assert torch.equal(sample.true_labels, 1.0 - 2.0 * sample.signal_class)


def test_signal_position_is_random_in_the_dense_law_and_directions_too():
    sample = SignalNoiseLaw(200, 12, 1.0, tokens=4).draw(0, runs=2, coordinates="dense")
    counts = torch.stack([(sample.signal_position == t).sum() for t in range(4)])
    assert (counts - 100).abs().max() < 4.5 * np.sqrt(400 * 0.25 * 0.75)
    assert not torch.allclose(sample.signals[0], sample.signals[1])


@pytest.mark.parametrize("coordinates", ["dense", "reduced"])
def test_labels_are_balanced_and_flipped_at_rate_eta(coordinates):
    sample = SignalNoiseLaw(5000, 5, 1.0, label_noise=0.2).draw(3, coordinates=coordinates)
    n = 5000
    assert abs(sample.true_labels.sum()) < 4.5 * np.sqrt(n)
    assert abs(sample.noisy.double().mean() - 0.2) < 4.5 * np.sqrt(0.2 * 0.8 / n)
    assert abs(sample.noisy.double().mean() - 0.25) > 4.5 * np.sqrt(0.2 * 0.8 / n)  # power: eta = 0.25 would be seen
    clean, noisy = sample.counts()
    by_hand = [
        [int(((sample.signal_class[0] == k) & (sample.noisy[0] == f)).sum()) for k in (0, 1)] for f in (False, True)
    ]
    assert [clean[0].tolist(), noisy[0].tolist()] == by_hand


def test_batch_equals_one_by_one_and_chunks():
    whole = LAW.draw(2, runs=5)
    for first in range(5):
        one = LAW.draw(2, runs=1, first_run=first)
        assert torch.equal(one.tokens[0], whole.tokens[first])
        assert torch.equal(one.labels, whole.run(first).labels)
        assert whole.run(first).first_run == first


def test_noise_norm_is_that_of_d_minus_2_dimensions():
    d = 40
    for coordinates in ("dense", "reduced"):
        noise = SignalNoiseLaw(30, d, 2.0).draw(5, runs=100, coordinates=coordinates).noise_tokens()
        square = (noise**2).sum(-1).mean((1, 2))
        z = lambda expected, s=square: abs(s.mean() - expected) / (s.std() / 10)  # noqa: E731
        assert z(d - 2) < 4.5 < z(d)


def test_train_and_test_share_no_draw():
    """The first coordinates of fresh noise never repeat a training number, whatever the run."""
    sample = SignalNoiseLaw(20, 50, 1.0).draw(0, runs=3)
    train = set(sample.tokens[sample.tokens != 0].tolist())
    fresh, _ = sample.law.draw_fresh(sample, 40)
    assert not train & set(fresh[..., 1, 2:].flatten().tolist())


def test_fresh_points_follow_the_law_in_both_coordinates():
    for coordinates in ("dense", "reduced"):
        law = SignalNoiseLaw(6, 30, 2.0, tokens=3)
        sample = law.draw(1, runs=2, coordinates=coordinates)
        tokens, labels = law.draw_fresh(sample, 3000)
        assert tokens.shape == (2, 3000, 3, sample.tokens.shape[-1])
        np.testing.assert_allclose(torch.einsum("rntm,rkm->rntk", tokens[:, :, 1:], sample.signals), 0, atol=1e-12)
        signal = torch.where(labels[0, :, None] > 0, sample.signals[0, 0], sample.signals[0, 1])
        torch.testing.assert_close(tokens[0, :, 0], signal, rtol=0, atol=0)
        # Any unit direction off the signals sees variance 1.
        direction = sample.noise_tokens()[0, 0, 0]
        scores = tokens[0, :, 1:].flatten(0, 1) @ (direction / direction.norm())
        assert abs((scores**2).mean() - 1) < 4.5 * np.sqrt(2 / 6000)


def test_normalised_noise_divides_the_covariance_by_d():
    plain = SignalNoiseLaw(4, 50, 3.0).draw(0)
    scaled = SignalNoiseLaw(4, 50, 3.0, normalised_noise=True).draw(0)
    torch.testing.assert_close(scaled.noise_tokens(), plain.noise_tokens() / np.sqrt(50), rtol=1e-14, atol=0)
    assert torch.equal(scaled.signals, plain.signals)
    assert scaled.law.snr == pytest.approx(3.0)
    assert plain.law.snr == pytest.approx(3 / np.sqrt(50))
