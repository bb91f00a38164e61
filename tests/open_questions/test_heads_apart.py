"""Heads that start apart: random starts, differences between heads, several directions."""

import dataclasses
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from attnbook.open_questions.random_starts.claims import CLAIMS
from attnbook.open_questions.random_starts.courses import (
    across_directions,
    difference_growth,
    random_heads,
    random_start,
)
from attnbook.open_questions.random_starts.law import ManyDirectionsLaw
from attnbook.open_questions.random_starts.study import random_starts_study
from attnbook.single_head.long_run import orthogonal_sample
from attnlib.single_head.law import SignalNoiseLaw
from attnlib.single_head.population import log10_clean_error
from attnlib.single_head.training import gradient_descent, train_heads
from tests.bad_input import refusing

FAR = SignalNoiseLaw(80, 16_000, 32.0, 0.05)


def test_near_the_threshold_a_claim_is_outside_its_regime():
    near = SimpleNamespace(law=dataclasses.replace(FAR, signal_norm=21.0))
    assert CLAIMS["Q10"].violation(near).startswith("needs x > 1.5 x* = 1.63; here 1.05")


# --- random starts ----------------------------------------------------------------------------------------------------------


def test_random_starts_have_their_norms_and_tiny_ones_are_one_head():
    law = SignalNoiseLaw(30, 4000, 20.0, 0.1)
    sample = law.draw(3, 6, start_vectors=8)
    v, p = random_start(sample, 4, 0.5)
    assert p.norm(dim=-1).mean().item() == pytest.approx(0.5, rel=0.02)
    assert v.norm(dim=-1).mean().item() == pytest.approx(0.125, rel=0.02)
    tiny = random_heads([law], 4, 1e-7, 2.0, 30, draws=3, seed=3, record=[2], error_steps=[30])
    sample = law.draw(3, 3, start_vectors=8)  # the same draws: start vectors come with columns of their own
    one = gradient_descent(sample, 2.0 * 30 / 4000, 30)
    np.testing.assert_allclose(tiny.attention_clean[-1, :, 2], one.attention_clean[-1], rtol=1e-5)
    exact = log10_clean_error(one.v[-1], one.p[-1], sample)
    assert (np.abs(tiny.log10_error[0] - exact.numpy()) < 5 * tiny.error_of_error[0] + 1e-4).all()
    assert tiny.at(2) == 1
    with pytest.raises(ValueError, match="step must be a recorded one"):
        tiny.at(3)


def test_what_the_training_tokens_do_not_span_stays():
    sample = SignalNoiseLaw(12, 400, 8.0, 0.1).draw(1, 3, start_vectors=6)
    start = random_start(sample, 3, 1.0)
    path = train_heads(sample, 0.3, 50, heads=3, start=start, record=[], method="vectors")
    seen = 2 + sample.law.n  # the coordinates of signals and noise tokens; the start vectors have the others
    for end, begin in zip((path.v[-1], path.p[-1]), start, strict=True):
        torch.testing.assert_close(end[..., seen:], begin[..., seen:], rtol=1e-12, atol=1e-15)
        assert not torch.equal(end[..., :seen], begin[..., :seen])


def test_numbers_of_a_course_are_those_of_its_runs():
    laws = [SignalNoiseLaw(24, 3000, rho, 0.2) for rho in (10.0, 15.0)]
    course = random_heads(laws, 3, 0.6, 1.5, 20, draws=2, seed=4)
    sample = laws[1].draw(4, 1, first_run=3, start_vectors=6)
    beta = 1.5 * 24 / 3000
    start = random_start(sample, 3, 0.6)
    path = train_heads(
        sample, beta / 3, 20, heads=3, attention_step_size=3 * beta, start=start, method="vectors", record=[0]
    )
    held = [(sample.signal_class[0] == k) & ~sample.noisy[0] for k in (0, 1)]
    logit = torch.logit(path.attention_on_signal[:, 0])  # (S, H, n)
    clean = ~sample.noisy[0]
    apart = (logit - logit.mean(1, keepdim=True))[:, :, clean].square().mean((1, 2)).sqrt()
    np.testing.assert_allclose(course.difference[:, 3], apart, rtol=1e-7)
    np.testing.assert_allclose(course.growth[-1, 3], (apart[-1] / apart[0]).item(), rtol=1e-7)
    for k in (0, 1):
        np.testing.assert_allclose(course.logit[:, 3, k], logit[:, :, held[k]].mean(-1), rtol=1e-7, atol=1e-10)
        np.testing.assert_allclose(
            course.attention[:, 3, k], path.attention_on_signal[:, 0, :, held[k]].mean(-1), rtol=1e-7
        )
        assert course.clean[3, k] == held[k].sum()
        assert course.x[3, k] == pytest.approx(225 * held[k].sum().item() / 3000)
        assert course.flipped[3, k] == pytest.approx(
            1 - held[k].sum().item() / (sample.signal_class[0] == k).sum().item()
        )
    seen = path.attention_on_signal[:, 0, :, clean]
    np.testing.assert_allclose(course.spread_clean[:, 3], np.ptp(seen.mean(-1).numpy(), axis=1), rtol=1e-7)
    assert course.train_accuracy[-1, 3] == path.train_accuracy[-1, 0]


def test_growth_of_differences_is_the_derivative_of_two_heads_on_orthogonal_data():
    """Six small differences, one per mode, trained as two heads on exactly orthogonal noise: rms as the formula weighs them."""
    law = SignalNoiseLaw(24, 3000, 15.0, 0.3)
    sample = orthogonal_sample(law, 3, 1)
    member = (sample.signal_class[0] == 1) & sample.noisy[0]
    clean = (sample.signal_class[0] == 1) & ~sample.noisy[0]
    assert member.sum() > 0
    noise, mu, y = sample.tokens[0, :, 1], sample.signals[0, 1], sample.labels[0]
    H, eps, d, count, flips = 2, 1e-6, law.d, clean.sum().item(), member.sum().item()
    in_p = [mu / law.signal_norm**2, noise[clean].sum(0) / d, noise[member].sum(0) / d]
    in_v = [
        -mu / law.signal_norm**2,
        (y[clean, None] * noise[clean]).sum(0) / d,
        (y[member, None] * noise[member]).sum(0) / d,
    ]
    variance = np.array([law.signal_norm**2 / d, 1 / count, 1 / flips])
    multiple, steps = 2.0, 15
    beta, total = multiple * law.n / d, 0.0
    for mode in range(6):
        v, p = torch.zeros(2, 1, H, sample.tokens.shape[-1], dtype=torch.float64)
        target, direction = (p, in_p[mode]) if mode < 3 else (v, in_v[mode - 3] / H)
        target[0, 0], target[0, 1] = eps * direction, -eps * direction
        path = train_heads(
            sample, beta / H, steps, heads=H, attention_step_size=H * beta, start=(v, p), method="vectors"
        )
        logit = torch.logit(path.attention_on_signal[-1, 0][:, clean]).mean(-1)
        slope = (logit[0] - logit[1]).item() / (2 * eps)
        total += (variance[mode] if mode < 3 else H**2 / 16 * variance[mode - 3]) * slope**2
    x, share = law.signal_norm**2 * count / d, flips / (count + flips)
    found = difference_growth([x], [share], [count], H, multiple, steps, [0, steps])
    assert found[0, 0] == 1
    assert found[1, 0] == pytest.approx(math.sqrt(total / (variance[0] + variance[1])), rel=1e-5)


# --- the law with several directions ------------------------------------------------------------------------------------------


def test_samples_with_several_directions():
    law = ManyDirectionsLaw(400, 5000, 6.0, 0.1, shares=(0.5, 0.3, 0.2))
    sample = law.draw(1, 2)
    assert sample.signals.shape == (2, 6, 406)
    torch.testing.assert_close(sample.signals @ sample.signals.mT, 36 * torch.eye(6).double().expand(2, 6, 6))
    torch.testing.assert_close(
        sample.tokens[:, :, 0], torch.stack([s[c] for s, c in zip(sample.signals, sample.signal_class, strict=True)])
    )
    assert (sample.tokens[:, :, 1, :6] == 0).all()
    assert ((sample.signal_class < 3) == (sample.true_labels > 0)).all()
    counts = torch.bincount(sample.signal_class.flatten(), minlength=6) / 800
    np.testing.assert_allclose(counts, law.direction_probabilities, atol=4 * math.sqrt(0.25 / 800))
    assert sample.noisy.double().mean().item() == pytest.approx(0.1, abs=0.045)
    assert sample.tokens[:, :, 1].square().sum(-1).mean().item() == pytest.approx(4994, rel=0.01)
    assert torch.equal(law.draw(1, 1, first_run=1).tokens[0], sample.tokens[1])


test_bad_arguments = refusing(
    (random_starts_study, (FAR,), {"heads": 1, "steps": 10, "draws": 1, "seed": -1}),
    (lambda: random_start(FAR.draw(0, start_vectors=3), 2, 0.1), "sample must hold 4 start vectors; got 3"),
    (lambda: random_start(FAR.draw(0, start_vectors=4), 2, 0.0), "size must be"),
    (
        random_heads,
        {"laws": [FAR], "size": 0.1, "multiple": 1.0, "steps": 3, "draws": 2, "heads": 2},
        {"heads": 0, "laws": [[FAR, SignalNoiseLaw(10, 50, 1.0)]], "multiple": 0.0},
    ),
    (lambda: across_directions(random_heads([FAR], 2, 0.1, 1.0, 1, draws=2), 1), "two directions per class"),
    (lambda: ManyDirectionsLaw(10, 50, 1.0, shares=(0.5, 0.6)), "shares must sum to 1"),
    (lambda: ManyDirectionsLaw(10, 50, 1.0, shares=(1.0, 0.0)), "shares must be"),
    (lambda: ManyDirectionsLaw(10, 50, 1.0, tokens=3), "tokens must be 2"),
    (lambda: ManyDirectionsLaw(10, 4, 1.0), "d must be at least 5"),
    (lambda: ManyDirectionsLaw(10, 50, 1.0).draw(0, coordinates="dense"), "coordinates must be 'reduced'"),
)
