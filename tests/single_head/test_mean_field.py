"""Mean field: exact where the noise is exactly orthogonal, and the limit of large d where it is not."""

import numpy as np
import pytest
import torch

from attnbook.single_head.long_run import orthogonal_sample
from attnbook.single_head.mean_field import mean_field, mean_field_log10_error
from attnlib.single_head.closed_form import two_steps
from attnlib.single_head.errors import log10_clean_error
from attnlib.single_head.law import SignalNoiseLaw
from attnlib.single_head.training import gradient_descent


def _spread(sample, clean, noisy):
    """Sample by sample, from numbers of clean and flipped samples by class."""
    return torch.where(sample.noisy, noisy.gather(1, sample.signal_class), clean.gather(1, sample.signal_class))


def test_mean_field_is_exact_for_orthogonal_noise():
    n, d, rho, step = 17, 90, 5.0, 1.3
    sample = orthogonal_sample(SignalNoiseLaw(n, d, rho, 0.3), seed=2)
    clean, noisy = sample.counts()
    field = mean_field(sample.law, step, clean, noisy)
    path, closed = gradient_descent(sample, step, 2), two_steps(sample, step)

    def spread(clean, noisy):
        return _spread(sample, clean, noisy)

    noise = sample.noise_tokens()[:, :, 0]
    checks = {
        "margin1": (path.margins[1], spread(field.margin1_clean, field.margin1_noisy)),
        "slopes": (closed.slopes, spread(field.slope_clean, field.slope_noisy)),
        "preference": (closed.preference, spread(field.preference_clean, field.preference_noisy)),
        "p noise": (torch.einsum("rnm,rm->rn", noise, path.p[2]), spread(field.p_noise_clean, field.p_noise_noisy)),
        "attention": (path.attention_on_signal[2], spread(field.attention_clean, field.attention_noisy)),
        "v noise": (
            sample.labels * torch.einsum("rnm,rm->rn", noise, path.v[2]),
            spread(field.v_noise_clean, field.v_noise_noisy),
        ),
        "margin2": (path.margins[2], spread(field.margin2_clean, field.margin2_noisy)),
        "p signal": (torch.einsum("rkm,rm->rk", sample.signals, path.p[2]), field.p_signal),
        "v signal": (torch.einsum("rkm,rm->rk", sample.signals, path.v[2]) * torch.tensor([1.0, -1.0]), field.v_signal),
    }
    assert sample.noisy.any()
    for name, (trained, formula) in checks.items():
        torch.testing.assert_close(trained, formula, rtol=1e-10, atol=1e-12, msg=lambda m, name=name: f"{name}: {m}")


def test_finite_d_deviations_shrink_like_one_over_sqrt_d():
    gaps = []
    for d in (10**4, 10**6, 10**8):
        rho, step = np.sqrt(4.5 * d / 100), 5 * 100 / d
        sample = SignalNoiseLaw(100, d, rho, 0.1).draw(0)
        field = mean_field(sample.law, step, *sample.counts())
        predicted = _spread(sample, field.attention_clean, field.attention_noisy)
        found = gradient_descent(sample, step, 2).attention_on_signal[-1]
        gaps.append((found - predicted).square().mean().sqrt().item())
    assert gaps[0] / gaps[1] == pytest.approx(10, rel=0.25)
    assert gaps[1] / gaps[2] == pytest.approx(10, rel=0.25)


def test_normalised_noise_is_the_same_problem_in_other_units():
    """Noise of norm 1 and signals shorter by sqrt(d), steps longer by d: the same scores, margins and errors."""
    n, d, rho, step = 100, 10_000, 21.0, 0.05
    plain, normal = SignalNoiseLaw(n, d, rho), SignalNoiseLaw(n, d, rho / np.sqrt(d), normalised_noise=True)
    counts = torch.tensor([[46.0, 43.0]]).double(), torch.tensor([[4.0, 7.0]]).double()
    one, other = mean_field(plain, step, *counts), mean_field(normal, step * d, *counts)
    assert one.a == pytest.approx(other.a, rel=1e-12)
    for name in ("b", "margin1_clean", "attention_noisy", "margin2_clean", "margin2_noisy"):
        torch.testing.assert_close(getattr(one, name), getattr(other, name), rtol=1e-12, atol=0)
    errors = [mean_field_log10_error(law, beta, *counts) for law, beta in ((plain, step), (normal, step * d))]
    torch.testing.assert_close(*errors, rtol=1e-10, atol=0)


def test_mean_field_error_is_exact_for_orthogonal_noise_and_close_at_finite_d():
    n, d, rho, step = 40, 400, 9.0, 0.4
    sample = orthogonal_sample(SignalNoiseLaw(n, d, rho, 0.1), seed=3)
    path = gradient_descent(sample, step, 2)
    exact = log10_clean_error(path.v[2], path.p[2], sample)
    torch.testing.assert_close(mean_field_log10_error(sample.law, step, *sample.counts()), exact, rtol=1e-9, atol=1e-10)

    law = SignalNoiseLaw(100, 10**6, np.sqrt(4.5e4), 0.05)
    sample = law.draw(0, 20)
    path = gradient_descent(sample, 5e-4, 2, record=[2])
    exact = log10_clean_error(path.v[-1], path.p[-1], sample)
    predicted = mean_field_log10_error(law, 5e-4, *sample.counts())
    assert ((exact - predicted) / predicted).abs().max() < 0.02
