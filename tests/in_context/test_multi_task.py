"""Several tasks: the law entry by entry, exact risks against sampling, and N + 1 heads for N tasks."""

import numpy as np
import pytest
import torch

from attnbook.in_context.closed_form import debiased_gd_optimal_risk
from attnbook.in_context.deeper_and_wider.multi_task import (
    MultiTaskLaw,
    best_linear_maps,
    centred_linear_answers,
    linear_risks,
    paired_heads,
    separate_maps,
    superposed_heads,
)
from attnbook.in_context.deeper_and_wider.stack import predict_stack, stack_of_circuits
from attnlib.in_context.law import RegressionLaw
from tests.bad_input import refusing

SMALL = MultiTaskLaw(5, ((0, 1, 3), (3, 4), (1,)), length=11, noise_std=0.5)


def test_every_number_of_a_prompt_is_its_own_standard_normal():
    """Feed unit vectors: each normal moves one entry, and no two entries share one."""
    noiseless = MultiTaskLaw(5, ((0, 1, 3), (3, 4), (1,)), length=2, noise_std=0.0)
    count = noiseless.normals_per_prompt
    prompts = noiseless.from_normals(torch.eye(count, dtype=torch.float64).unsqueeze(-2))
    moved = torch.cat([prompts.x.flatten(1), prompts.query.flatten(1), prompts.beta.flatten(1)], 1)
    assert moved.sum() == moved.count_nonzero() == 2 * 5 + 5 + 6
    assert moved.sum(0).max() == moved.sum(1).max() == 1


def test_moments_of_the_law():
    prompts = SMALL.draw(15_000, 1)
    noise = prompts.y - prompts.x @ prompts.beta.mT
    for k, variance in enumerate((0.75, 0.5, 0.25)):  # d_k sigma^2
        assert abs(noise[..., k].var() / variance - 1) < 0.03
    np.testing.assert_allclose(prompts.beta.square().mean(0), SMALL.projections, atol=0.08)
    assert abs(torch.corrcoef(noise.flatten(0, 1).T) - torch.eye(3)).max() < 0.03
    assert not torch.equal(SMALL.draw(3, 1).x, SMALL.draw(3, 2).x)


def test_linear_risks_against_sampling():
    """Maps that are neither diagonal nor symmetric; one in a hundred at four standard errors."""
    maps = 0.5 * np.random.default_rng(0).standard_normal((3, 5, 5)) + 0.5 * separate_maps(SMALL)
    prompts = SMALL.draw(20_000, 2)
    errors = (centred_linear_answers(maps, prompts) - prompts.target).square()
    exact = linear_risks(SMALL, maps)
    gap = (errors.mean(0).numpy() - exact) / (errors.std(0).numpy() / 20_000**0.5)
    assert np.abs(gap).max() < 4
    assert (errors.std(0).numpy() / 20_000**0.5 < 0.04 * exact).all()


@pytest.mark.parametrize("law", [SMALL, MultiTaskLaw()])
def test_a_task_alone_is_the_single_task_problem(law):
    """d_k (d_k + 1 + s_k) / (L + d_k + s_k), by the single-task closed form and by moving away from the optimum."""
    best = linear_risks(law, separate_maps(law))
    for k, size in enumerate(law.sizes):
        single = RegressionLaw(int(size), law.length, law.noise_std)
        assert best[k] == pytest.approx(float(debiased_gd_optimal_risk(single)), rel=1e-12)
    for factor in (0.98, 1.02):
        assert (linear_risks(law, factor * separate_maps(law)) > best).all()


def test_authors_sizes_by_hand():
    law = MultiTaskLaw()
    assert linear_risks(law, separate_maps(law)) == pytest.approx([4 * 5.0004 / 52.0004] * 2, rel=1e-12)
    # Two heads: one matrix for both tasks, entry g on the covariates of one task and h on those of both.
    a, b = 47 * 48 / 48**2, 47 / 48**2 * 2 * 4.0004
    g, h = (47 / 48) / (a + b), 2 * (47 / 48) / (2 * a + b)
    mean = (8 - (47 / 48) * (4 * g + 2 * 2 * h)) / 2
    assert best_linear_maps(law, 2)[1] == pytest.approx([mean, mean], rel=1e-9)
    assert mean == pytest.approx(0.51377, abs=1e-5)


def test_more_heads_never_hurt_and_n_plus_one_are_enough():
    sums = [best_linear_maps(SMALL, heads)[1].sum() for heads in (1, 2, 3, 4, 6)]
    assert sums[0] == SMALL.sizes.sum()
    assert sums[3] == sums[4] == linear_risks(SMALL, separate_maps(SMALL)).sum()
    assert sums[0] > sums[1] + 0.1
    assert sums[1] > sums[2] + 0.1
    assert sums[2] > sums[3] + 0.01


@pytest.mark.parametrize("heads", [paired_heads, superposed_heads])
def test_heads_of_small_scale_are_the_linear_maps(heads):
    prompts = SMALL.draw(50, 5)
    wanted = centred_linear_answers(separate_maps(SMALL), prompts)
    gaps = []
    for scale in (1e-3, 1e-4):
        M, V = heads(SMALL, scale)
        assert V[..., 5:].sum(1).abs().max() < 1e-9 / scale
        gaps.append((predict_stack(stack_of_circuits(M, V), prompts)[0] - wanted).abs().max().item())
    # Opposite heads cancel the second order: an error of scale^2 instead of scale.
    order = np.log10(gaps[0] / gaps[1])
    assert order == pytest.approx(2 if heads is paired_heads else 1, abs=0.1)
    assert M.shape[1] == (6 if heads is paired_heads else 4)


test_bad_laws = refusing(
    (MultiTaskLaw, (), {"supports": [((0, 6),), (), ((1, 1),)], "length": 0, "noise_std": -1.0, "d": 0}),
    (lambda: MultiTaskLaw(supports=((0, 6),)), r"supports must be one tuple of different numbers in 0 \.\.\. 5"),
)


test_bad_arguments = refusing(
    (lambda: linear_risks(SMALL, np.zeros((2, 5, 5))), r"maps must have shape \(..., 3, 5, 5\); got \(2, 5, 5\)"),
    (lambda: SMALL.from_normals(torch.zeros(4, 5)), "normals must have shape"),
    (lambda: paired_heads(SMALL, 0.0), "scale must be a finite number > 0"),
    (lambda: best_linear_maps(SMALL, 0), "heads must be a whole number >= 1"),
)
