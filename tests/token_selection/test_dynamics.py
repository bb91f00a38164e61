"""II.2: the growth function, situations and the sheet's numbers, the authors' leaked test, claims."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.special import expit

from attnbook.token_selection.dynamics.claims import CLAIMS
from attnbook.token_selection.dynamics.study import (
    GrowthLines,
    dynamics_study,
    growth,
    growth_lines,
    integrated,
    inverse_growth,
    leaked_sample,
    leaked_test,
    r_squared,
    situation,
)
from attnbook.token_selection.setting.study import gradient_descent
from attnlib.token_selection.gram import draw_gram
from attnlib.token_selection.law import CODE_START, TokenLaw
from attnlib.token_selection.training import train
from bookkit.claims import Verdict
from bookkit.sharpness import NoNumber


@pytest.mark.parametrize("tokens", [2, 3, 8, 101])
def test_derivative_is_one_over_s_times_one_minus_s(tokens):
    x = np.linspace(-6, 9, 31)
    s = expit(x - np.log(tokens - 1))
    slope = (growth(x + 1e-5, tokens) - growth(x - 1e-5, tokens)) / 2e-5
    np.testing.assert_allclose(slope, 1 / (s * (1 - s)), rtol=1e-7)


def _runge_kutta(x, rate, time, steps):
    for _ in range(steps):
        h = time / steps
        a = rate(x)
        b = rate(x + h / 2 * a)
        c = rate(x + h / 2 * b)
        d = rate(x + h * c)
        x = x + h / 6 * (a + 2 * b + 2 * c + d)
    return x


@pytest.mark.parametrize(("tokens", "start"), [(5, 0.0), (8, -0.7), (2, 1.3)])
def test_first_integral_of_a_saturating_weight(tokens, start):
    """x' = lambda s(1-s) by Runge-Kutta equals g^-1(g(x0) + lambda t); with log T for log(T-1) it would not."""
    speed, time = 0.37, 60.0
    shift = np.log(tokens - 1)
    end = _runge_kutta(start, lambda x: speed * expit(x - shift) * expit(shift - x), time, 4000)
    assert inverse_growth(growth(start, tokens) + speed * time, tokens) == pytest.approx(end, abs=1e-9)
    assert abs(inverse_growth(growth(start, tokens + 1) + speed * time, tokens + 1) - end) > 0.01  # the wrong constant


def test_inverse_over_the_whole_range():
    x = np.concatenate([np.linspace(-700, 700, 1401), [-1e-9, 0.0, 1e-9, 1e-3]])
    np.testing.assert_allclose(inverse_growth(growth(x, 7), 7), x, rtol=1e-12, atol=1e-12)
    y = np.array([-1e300, -3.0, 0.0, 1e-12, 5.0, 1e8, 1e300])
    np.testing.assert_allclose(growth(inverse_growth(y, 7), 7), y, rtol=1e-11, atol=1e-11)


LAW = TokenLaw(6, 300, 5, 9.0, label_noise=1 / 3)


@pytest.fixture(scope="module")
def path():
    return train(draw_gram(LAW, 0, 2), 0.02, 120, record=range(0, 121, 3))


def test_the_gap_is_the_one_that_gives_the_attention(path):
    lines = growth_lines(path, 1 / 3)
    s = path.attention[..., 0]
    torch.testing.assert_close(lines.gap, torch.log(4 * s / (1 - s)), rtol=1e-9, atol=1e-12)
    growth = 2 * lines.gap + 2 * torch.sinh(lines.gap - math.log(4))
    torch.testing.assert_close(lines.growth, growth, rtol=1e-12, atol=1e-12)
    with_log_tokens = 2 * lines.gap + 2 * torch.sinh(lines.gap - math.log(5))
    torch.testing.assert_close(lines.growth_log_tokens, with_log_tokens, rtol=1e-12, atol=1e-12)


def test_the_clock_is_the_integral_of_the_prompt(path):
    lines = growth_lines(path, 1 / 3)
    speed = 1 / 3 + path.prompt_norm_squared[:, 1].numpy()
    expected = np.trapezoid(speed, path.time[:, 1].numpy())
    assert lines.clock[-1, 1, 3].item() == pytest.approx(expected, rel=1e-12)
    assert lines.steps[-1, 0, 0].item() == pytest.approx(120 * 0.02)
    assert (lines.clean == ~path.labels.noisy).all()


def test_r_squared_is_the_squared_correlation():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, 17, 3))
    expected = [np.corrcoef(x[:, k], y[:, k])[0, 1] ** 2 for k in range(3)]
    np.testing.assert_allclose(r_squared(torch.as_tensor(x), torch.as_tensor(y)).numpy(), expected, rtol=1e-12)


def test_a_gap_that_obeys_the_law_is_a_straight_line_and_predicts_its_end(path):
    """Scores made by hand from dx = 0.7 s (1 - s) dt: R^2 is 1 and the first quarter gives the end."""
    x, gaps, h = 0.0, [0.0], 0.01
    for step in range(8000):
        middle = x + h / 2 * 0.7 * _force(x)
        x += h * 0.7 * _force(middle)
        if step % 200 == 199:
            gaps.append(x)
    scores = torch.zeros(len(gaps), 2, 6, 5, dtype=torch.float64)
    scores[..., 0] = torch.tensor(gaps, dtype=torch.float64)[:, None, None]
    time = torch.linspace(0, 80, len(gaps), dtype=torch.float64)[:, None].expand(-1, 2)
    still = replace(path, scores=scores, time=time, prompt_norm_squared=torch.full_like(time, 0.5))
    lines = growth_lines(still, 1.0)
    fit = lines.straightness(lines.growth, lines.steps)
    assert (fit[lines.clean] > 1 - 1e-8).all()
    assert fit[~lines.clean].isnan().all()
    assert lines.clock[-1, 0, 0].item() == pytest.approx(120.0)
    predicted = lines.predicted_end(lines.clock)
    np.testing.assert_allclose(predicted[lines.clean], gaps[-1], rtol=0, atol=1e-4)
    assert lines.straightness(lines.gap, lines.steps)[lines.clean].max() < 0.95


@pytest.mark.parametrize("id", ["TS25", "TS26", "TS28"])
def test_a_clean_gap_that_is_no_number_refuses_and_a_flipped_one_is_silent(id):
    lines = growth_lines(train(draw_gram(LAW, 0, 4), 0.02, 60, record=range(0, 61, 3)), 1 / 3)

    def judged(sample):
        gap, growth = lines.gap.clone(), lines.growth.clone()
        gap[5:, 1, sample] = growth[5:, 1, sample] = math.nan
        changed = GrowthLines(**vars(lines) | {"gap": gap, "growth": growth})
        study = SimpleNamespace(lines=changed, predicted_gap=changed.predicted_end(changed.clock))
        return CLAIMS[id].seen(study).parts

    clean, flipped = (int(torch.nonzero(mask)[0]) for mask in (lines.clean[1], ~lines.clean[1]))
    assert any(isinstance(part, NoNumber) for part in judged(clean))
    assert not any(isinstance(part, NoNumber) for part in judged(flipped))


def _force(x: float) -> float:
    s = 1 / (1 + 4 * math.exp(-x))
    return s * (1 - s)


def test_a_situation_holds_fresh_data_of_its_rows():
    result = situation(LAW, 0.02, 60, 3, 1, count=400)
    assert result.along.accuracy.shape == (len(result.rows), 3)
    assert result.end.attention.shape == (3, 5)
    assert result.rows[0] == 0
    assert result.trajectory.steps[result.rows[-1]] == 60
    np.testing.assert_allclose(result.along.attention[0], 0.2, rtol=1e-12)  # uniform at the start


LEAK_LAW = TokenLaw(6, 40, 5, 4.0, weak_signal=0.3, noise_std=1.5, label_noise=1 / 3)


def test_training_set_is_the_generators_first_block_with_two_tokens_exchanged():
    tokens = leaked_sample(LEAK_LAW, 9).tokens[0]
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
    result = leaked_test(LEAK_LAW, 4, 0.3, 50, test_size=124)
    sample = leaked_sample(LEAK_LAW, 4)
    path = gradient_descent(sample, CODE_START, 0.3, 50)
    torch.testing.assert_close(result.trajectory.scores[-1], path.scores[-1], rtol=0, atol=1e-10)
    W, p = CODE_START.draw(40, 4)
    for step in range(50):
        c = _forces(path.scores[step, 0], sample)
        G = torch.einsum("nt,ntd->d", c, sample.tokens[0])
        W, p = W + 0.3 * torch.outer(p, G), p + 0.3 * (W @ G)
    noise = torch.as_tensor(1.5 * np.random.default_rng(4).standard_normal((124, 5, 40)))[:, [0, 2, 1, 3, 4]]
    true = torch.cat([torch.ones(62), -torch.ones(62)]).double()
    noise[..., :2] += LEAK_LAW.means(true)
    f = (torch.softmax(noise @ (W.T @ p), -1) * (noise @ sample.head)).sum(-1)
    torch.testing.assert_close(result.margins, true * f, rtol=0, atol=1e-10)
    assert result.wrong == tuple(torch.nonzero(true * f <= 0).flatten().tolist())
    assert result.reported_accuracy == pytest.approx((true * f > 0).double().mean().item())


def _forces(z: torch.Tensor, sample) -> torch.Tensor:
    z = z.clone().requires_grad_()
    f = (torch.softmax(z, -1) * (sample.tokens[0] @ sample.head)).sum(-1)
    loss = torch.log(1 + torch.exp(-sample.labels.observed[0] * f)).mean()
    return -torch.autograd.grad(loss, z)[0]


def test_an_odd_number_of_samples_is_refused():
    with pytest.raises(ValueError, match="n must be even"):
        leaked_sample(TokenLaw(5, 20, 4, 3.0, label_noise=0.5), 0)


def test_other_parameters_are_outside_the_regime_of_what_is_published():
    small = dynamics_study(TokenLaw(4, 50, 5, 2.0, label_noise=0.5), 0.05, 16, runs=2, leak_seeds=(1, 2))
    verdicts = {result.claim.id: result for result in CLAIMS.check(small)}
    for id in ("TS21", "TS22", "TS23", "TS25", "TS26", "TS28", "TS30"):
        assert verdicts[id].verdict == Verdict.OUTSIDE, id
    assert verdicts["TS29"].violated.startswith("needs fresh error < 1e-4; here ")
    assert verdicts["TS27"].verdict == Verdict.HOLDS


def test_the_integration_behind_ts27_reaches_one_half_at_the_exact_time():
    times, gaps = integrated(8)
    expected = 2 * torch.log(torch.tensor(7.0)).item() + 7 - 1 / 7  # g(log 7) - g(0)
    at = torch.searchsorted(gaps.contiguous(), torch.tensor(1.9459101090932196, dtype=torch.float64))
    assert times[at - 1] < expected < times[at]
