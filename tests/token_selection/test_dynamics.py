"""Situations, growth lines and the sheet's numbers of page 02."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from attnbook.token_selection.dynamics.study import growth_lines, r_squared, situation
from attnlib.token_selection.gram import draw_gram
from attnlib.token_selection.law import TokenLaw
from attnlib.token_selection.training import train
from tests.bad_input import refusing

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
    assert (predicted[lines.clean] - gaps[-1]).abs().max() < 1e-4
    assert lines.straightness(lines.gap, lines.steps)[lines.clean].max() < 0.95


def _force(x: float) -> float:
    s = 1 / (1 + 4 * math.exp(-x))
    return s * (1 - s)


def test_a_situation_holds_fresh_data_of_its_rows():
    result = situation(LAW, 0.02, 60, 3, 1, count=400, name="small")
    assert result.along.accuracy.shape == (len(result.rows), 3)
    assert result.end.attention.shape == (3, 5)
    assert result.rows[0] == 0
    assert result.trajectory.steps[result.rows[-1]] == 60
    assert (result.along.attention[0] - 0.2).abs().max() < 1e-12  # uniform at the start


GOOD = {"law": LAW, "step_size": 0.1, "steps": 8, "runs": 2, "seed": 0}
test_bad_situations = refusing((situation, GOOD, {"runs": 1, "steps": 7, "step_size": 0.0}))
