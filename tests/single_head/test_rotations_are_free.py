"""I.3: sign descent by hand on one sample, and a study whose two ways agree where they must and differ where they may."""

import pytest
import torch

from attnbook.single_head.rotations_are_free.study import coordinate_study, sign_descent_margins
from attnlib.single_head.law import SignalNoiseLaw


def test_sign_descent_moves_each_coordinate_by_the_step():
    sample = SignalNoiseLaw(3, 12, 4.0, 0.3).draw(1, 2, coordinates="dense")
    labels = sample.labels.unsqueeze(-1)
    pull = -(labels * sample.tokens.mean(2)).sum(1)  # at zero: attention is one half, and p has no gradient
    v = -0.01 * torch.sign(pull)
    expected = labels.squeeze(-1) * torch.einsum("rntm,rm->rnt", sample.tokens, v).mean(-1)
    torch.testing.assert_close(sign_descent_margins(sample, 0.01, 1), expected, rtol=1e-12, atol=1e-14)


def test_descent_does_not_see_a_basis_and_sign_descent_does():
    study = coordinate_study(SignalNoiseLaw(8, 60, 5.0, 0.2), 0.2, draws=6, test_points=500, dimensions=(120,), seed=2)
    torch.testing.assert_close(*study.descent, rtol=1e-9, atol=1e-11)
    assert (study.sign_descent[0] - study.sign_descent[1]).abs().max() > 1e-3
    assert study.dense_outcomes.shape == study.reduced_outcomes.shape == (6, 4)
    assert set(study.errors_by_dimension) == {120}
    assert study.sampled_error.mean().item() == pytest.approx(study.exact_error.mean().item(), abs=0.05)
