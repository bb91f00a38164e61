"""III.5: the reduction of the risk, its optima, and the studies and judges of two numbers per head, each a second way."""

import math

import numpy as np
import pytest
import torch

from attnbook.in_context.closed_form import opposite_pair_curvature
from attnbook.in_context.optimum import (
    _one_of_two_images,
    best_mu,
    free_optimum,
    one_head_optimum,
    pair_optimum,
    pair_valley,
    risk_landscape,
)
from attnbook.in_context.reduced import line_moments, reduced_moments, reduced_risk, reduced_risk_per_batch
from attnbook.in_context.two_numbers_per_head.claims import CLAIMS
from attnbook.in_context.two_numbers_per_head.study import (
    dense_risk_per_batch,
    jitter_cost,
    jitter_price,
    optimum_scan,
    reduction_check,
    stored_runs,
    stored_sizes,
    two_numbers_study,
)
from attnlib.in_context.circuits import Circuits, predict, two_number_circuits
from attnlib.in_context.law import RegressionLaw
from bookkit.claims import Verdict


def brute_force(omega, mu, d, length, s2, prompts, seed):
    """Squared error of the model on prompts with task vectors and noisy labels; numpy only, nothing of the package."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((prompts, length, d))
    query, beta = rng.standard_normal((2, prompts, d))
    y = np.einsum("pld,pd->pl", x, beta) + math.sqrt(s2) * rng.standard_normal((prompts, length))
    score = np.einsum("pld,pd->pl", x, query)
    prediction = np.zeros(prompts)
    for w, m in zip(omega, mu, strict=True):
        weight = np.exp(w * score - (w * score).max(1, keepdims=True))
        prediction += m * (weight * y).sum(1) / weight.sum(1)
    error = (prediction - (query * beta).sum(1)) ** 2
    return error.mean(), error.std() / math.sqrt(prompts)


SETTINGS = [  # d, length, noise_std, omega, mu
    (3, 7, 0.5, [0.4, -0.2, 1.1], [1.0, -1.5, 0.3]),
    (5, 40, 0.4, [-0.14, 0.14], [-3.0, 3.1]),
    (2, 1, 0.7, [0.6], [0.8]),
    (4, 13, 0.3, [3.0], [0.7]),
    (1, 5, 1.0, [0.5, -0.4], [0.9, -0.6]),
]


@pytest.mark.parametrize(("d", "length", "noise_std", "omega", "mu"), SETTINGS)
def test_risk_is_that_of_dense_prompts_and_a_wrong_constant_is_seen(d, length, noise_std, omega, mu):
    law = RegressionLaw(d, length, noise_std)
    prompts = 250_000 if length < 20 else 80_000
    dense, dense_error = brute_force(omega, mu, d, length, law.noise_variance, prompts, seed=7)
    value, error = reduced_risk(omega, mu, law, seed=1)
    both = math.hypot(dense_error, error.item())
    assert abs(value.item() - dense) < 4 * both
    # d in the place of d - 1 is the law with s2 + 1; without the noise, s2 = 0.
    for wrong_variance in (law.noise_variance + 1, 0.0):
        wrong = RegressionLaw(d, length, math.sqrt(wrong_variance / d))
        assert abs(reduced_risk(omega, mu, wrong, seed=1)[0].item() - dense) > 6 * both


def test_moments_and_direct_risk_are_two_ways_to_one_number():
    law = RegressionLaw(3, 11, 0.4)
    omega, mu = [0.3, -0.7, 0.3, 1.2], [1.1, -0.4, 0.5, 0.2]
    kwargs = {"prompts": 4000, "batches": 8, "seed": 5}
    moments = reduced_moments(omega, law, **kwargs)
    direct = reduced_risk_per_batch(omega, mu, law, **kwargs)
    torch.testing.assert_close(moments.risk_per_batch(mu), direct, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(
        moments.at([2, 1]).risk_per_batch([0.5, -0.4]),
        reduced_risk_per_batch([0.3, -0.7], [0.5, -0.4], law, **kwargs),
        rtol=1e-9,
        atol=1e-9,
    )
    value, error = moments.risk(torch.tensor([mu, [0.0, 0.0, 0.0, 0.0]]))
    torch.testing.assert_close(value[1].item(), 3.0)
    assert error[1] == 0
    assert error[0] == pytest.approx(direct.std().item() / math.sqrt(8), rel=1e-6)


@pytest.mark.parametrize("signs", [(1.0,), (1.0, -1.0)])
def test_models_apart_have_the_risks_of_models_together(signs):
    law, omega, mu = RegressionLaw(3, 11, 0.4), torch.tensor([0.3, 0.05, 9.0]).double(), 0.7
    draws = {"prompts": 2000, "seed": 5, "role": "search"}
    gain, overlap = line_moments(omega, law, pair=len(signs) == 2, **draws)
    signs = torch.tensor(signs, dtype=torch.float64)
    direct = reduced_risk_per_batch(omega[:, None] * signs, mu * signs.expand(3, -1), law, **draws)
    torch.testing.assert_close(law.d - 2 * mu * gain + mu**2 * overlap, direct, rtol=1e-9, atol=1e-9)


def test_a_very_sharp_head_copies_the_label_of_the_nearest_example():
    d, length = 3, 9
    law = RegressionLaw(d, length, 0.2)
    rng = np.random.default_rng(3)
    best, r2 = rng.standard_normal((400_000, length)).max(1), rng.chisquare(d, 400_000)
    sampled = (np.sqrt(r2) - 0.5 * best) ** 2 + (d - 1 + law.noise_variance) * 0.25
    value, error = reduced_risk([1e6], [0.5], law)
    assert abs(value.item() - sampled.mean()) < 4 * math.hypot(error.item(), sampled.std() / 400_000**0.5) + 1e-4
    assert torch.isfinite(reduced_moments([700.0, -1e5], law, prompts=200).overlap).all()


def test_standard_errors_are_honest():
    law = RegressionLaw(3, 8, 0.3)
    answers = [reduced_risk([0.5, -0.3], [1.0, -1.0], law, prompts=4000, seed=s) for s in range(80)]
    values, errors = (torch.stack(part) for part in zip(*answers, strict=True))
    truth, last = reduced_risk([0.5, -0.3], [1.0, -1.0], law, prompts=400_000, seed=99)
    assert 0.75 < ((values - truth) / errors).std() < 1.5
    assert (values.mean() - truth).abs() < 4 * math.hypot(values.std().item() / math.sqrt(80), last.item())


def test_repository_units_are_notebook_units_over_d():
    kwargs = {"prompts": 2000, "batches": 4}
    first, second = (
        reduced_moments([0.4, -0.1], RegressionLaw(6, 9, 0.3, name), **kwargs) for name in ("notebook", "repository")
    )
    torch.testing.assert_close(first.overlap, 6 * second.overlap)
    torch.testing.assert_close(first.gain, 6 * second.gain)
    assert (first.zero_risk, second.zero_risk) == (6, pytest.approx(1))


def test_draws_are_shared_between_settings_and_differ_between_seeds_and_roles():
    law = RegressionLaw(4, 12, 0.2)
    alone = reduced_risk_per_batch([0.2], [1.0], law, prompts=800, batches=4)
    together = reduced_risk_per_batch([[0.7], [0.2]], [[0.5], [1.0]], law, prompts=800, batches=4)
    torch.testing.assert_close(alone, together[:, 1], rtol=1e-9, atol=1e-9)
    others = [
        reduced_risk_per_batch([0.2], [1.0], law, prompts=800, batches=4, **change)
        for change in ({"seed": 1}, {"role": "search"})
    ]
    assert all((alone - other).abs().min() > 1e-4 for other in others)


def test_chunks_do_not_change_the_numbers(monkeypatch):
    law = RegressionLaw(3, 7, 0.2)
    whole = reduced_moments([0.3, -0.9], law, prompts=900, batches=3)
    direct = reduced_risk([[0.3, 1.0]] * 5, [[1.0, 2.0]] * 5, law, prompts=900, batches=3)[0]
    monkeypatch.setattr("attnbook.in_context.reduced._CHUNK_NUMBERS", 700)
    torch.testing.assert_close(reduced_moments([0.3, -0.9], law, prompts=900, batches=3).overlap, whole.overlap)
    torch.testing.assert_close(reduced_risk([[0.3, 1.0]] * 5, [[1.0, 2.0]] * 5, law, prompts=900, batches=3)[0], direct)


def test_best_mu_is_least_squares_on_dense_prompts():
    d, length, prompts, omega = 3, 9, 200_000, np.array([0.5, -0.3, 1.5])
    rng = np.random.default_rng(5)
    x = rng.standard_normal((prompts, length, d))
    query, beta = rng.standard_normal((2, prompts, d))
    y = np.einsum("pld,pd->pl", x, beta) + 1.2 * rng.standard_normal((prompts, length))
    weight = np.exp(omega[:, None, None] * np.einsum("pld,pd->pl", x, query))
    outputs = ((weight * y).sum(2) / weight.sum(2)).T
    target = (query * beta).sum(1)
    fitted = np.linalg.lstsq(outputs, target)[0]
    residual = ((target - outputs @ fitted) ** 2).mean()
    errors = np.sqrt(residual * np.diag(np.linalg.inv(outputs.T @ outputs)))
    found = best_mu(reduced_moments(omega, RegressionLaw(d, length, 1.2 / math.sqrt(3)))).numpy()
    assert (abs(found - fitted) < 5 * errors).all()
    # without the noise (or with another) mu is another
    silent = best_mu(reduced_moments(omega, RegressionLaw(d, length, 0.0))).numpy()
    assert (abs(silent - fitted) > 8 * errors).any()


def test_one_head_is_not_one_over_root_d():
    best = one_head_optimum(RegressionLaw(5, 40), prompts=20_000, seed=2)
    assert best.omega == pytest.approx(0.518, abs=0.006)
    assert best.mu == pytest.approx(1.534, abs=0.012)
    assert abs(best.omega - 5**-0.5) > 20 * best.omega_error


def test_pair_is_a_little_better_than_debiased_gradient_descent():
    law = RegressionLaw(5, 40)
    best = pair_optimum(law, prompts=20_000, seed=2)
    limit = 5 * 6.0005 / 45.0005
    assert best.omega == pytest.approx(0.0735, abs=0.006)
    assert best.risk - limit == pytest.approx(-1.8e-4, abs=3e-5)
    assert limit - best.risk > 10 * best.risk_error
    assert best.effective_step == pytest.approx(2 * best.omega * best.mu)
    assert best.effective_step == pytest.approx(40 / 45.0005, abs=2e-3)


def test_valley_is_flat_where_trained_pairs_sit():
    law = RegressionLaw(5, 40)
    valley = pair_valley(law, [0.03, 0.075, 0.14, 0.4], prompts=20_000)
    assert valley.lowest[1] == 0
    assert (valley.lowest >= 0).all()
    assert 5e-4 < valley.lowest[2] < 1.5e-3
    assert valley.lowest[2] > 5 * valley.lowest_error[2]
    assert valley.lowest[3] > 0.05
    assert valley.excess[0].item() == pytest.approx(
        0.03**2 * float(opposite_pair_curvature(law, 40 / 45.0005)), rel=0.1
    )
    torch.testing.assert_close(
        valley.effective_step[:3], torch.full((3,), 40 / 45.0005, dtype=torch.float64), atol=5e-3, rtol=0
    )


@pytest.mark.parametrize("pair", [False, True])
def test_landscape_is_the_risk_at_each_point(pair):
    law = RegressionLaw(3, 7, 0.4, "repository")
    omega, mu = np.linspace(-1, 1, 18), [0.3, 1.0, 2.0]
    value, error = risk_landscape(law, omega, mu, pair=pair, prompts=800)
    signs = np.array([1.0, -1.0] if pair else [1.0])
    grid = np.meshgrid(omega, mu, indexing="ij")
    direct = reduced_risk(grid[0][..., None] * signs, grid[1][..., None] * signs, law, prompts=800)
    torch.testing.assert_close((value, error), direct, rtol=1e-8, atol=1e-10)


def test_free_search_with_one_and_two_heads_finds_the_known_optima():
    law = RegressionLaw(5, 40)
    one = free_optimum(law, 1, prompts=4000, evaluations=25)
    assert one.omega[0] == pytest.approx(0.518, abs=0.02)
    two = free_optimum(law, 2, prompts=4000, evaluations=40)
    assert two.omega[0] * two.omega[1] < 0
    assert abs(two.mu[0] + two.mu[1]) < 0.02 * abs(two.mu[0])
    assert two.risk == pytest.approx(0.66653, abs=4e-5)


@pytest.mark.parametrize(
    "omega", [(-0.07, 0.09, -1.95), (1.95, -0.09, 0.07), (0.07, -0.07), (-0.3, -0.07, 0.07), (-0.5,)]
)
def test_of_two_mirror_images_one_is_shown(omega):
    found = _one_of_two_images(np.array(omega))
    assert found.tolist() == _one_of_two_images(-np.array(omega)).tolist()
    assert found[0] > 0
    assert sorted(found.tolist()) in (sorted(omega), sorted(-w for w in omega))
    assert (np.diff(abs(found)) >= 0).all()


def test_another_law_is_outside_the_regimes():
    small = two_numbers_study(
        RegressionLaw(5, 6, 0.2), prompts=2000, steps=200, runs=2, learning_rates=(0.004, 0.002), seed=1
    )
    found = {result.claim.id: result for result in CLAIMS.check(small)}
    assert {id for id, result in found.items() if result.verdict == Verdict.OUTSIDE} == {"I52", "I53", "I56", "I57"}
    assert found["I53"].violated == "needs d = 5, L = 40 and sigma = 0.01; here d = 5, L = 6 and sigma = 0.2"
    assert found["I56"].violated == "needs L = 40; here 6"


def test_noise_of_one_size_costs_what_the_formula_says():
    """At scores of nearly zero the added risk is quadratic in the noise: only the prompts' chance is left."""
    law = RegressionLaw(3, 17, 0.5)
    costs = [jitter_cost(law, 1e-3, 2.0, size=size, seed=2) for size in (1e-4, 1e-3)]
    torch.testing.assert_close(costs[0], costs[1], rtol=1e-3, atol=0)
    ratio = costs[0] / jitter_price(law)
    assert abs(ratio.mean() - 1) < 4 * ratio.std() / math.sqrt(len(ratio))
    assert ratio.std() < 0.15  # independent noise alone has sqrt(2 / 9) = 0.47


def test_dense_check_uses_the_model_and_the_label_noise():
    law = RegressionLaw(3, 5, 0.6)
    omega, mu = torch.tensor([[0.4, -0.2]], dtype=torch.float64), torch.tensor([[0.8, -0.5]], dtype=torch.float64)
    found = dense_risk_per_batch(omega, mu, law, prompts=300, batches=2, seed=9)
    prompts = law.draw(300, 9, run=1001)
    error = (predict(two_number_circuits(omega[0], mu[0], 3), prompts) - prompts.clean_target) ** 2
    assert found.shape == (2, 1)
    assert found[1, 0].item() == pytest.approx(error.mean().item())


def test_wrong_reduction_is_the_orthogonal_part_twice():
    law = RegressionLaw(4, 9, 0.3, "repository")
    check = reduction_check(law, prompts=20, seed=2)
    # risk = a + (d - 1 + s2) b; the share's part is found from a law with no noise
    silent = reduction_check(RegressionLaw(4, 9, 0.0, "repository"), prompts=20, seed=2)
    share = (check.reduced - silent.reduced) / law.noise_variance
    torch.testing.assert_close(check.wrong - check.reduced, (3 + law.noise_variance) * share, rtol=1e-6, atol=1e-9)


def test_price_of_jitter_is_the_second_moment_of_the_gradient():
    d, length, omega, mu = 3, 17, 1e-3, 2.0
    law = RegressionLaw(d, length, 0.5)
    prompts = law.draw(40_000, 3)
    shape = torch.zeros(2, d + 1, d + 1, dtype=torch.float64)
    still = two_number_circuits(torch.tensor([omega, -omega]).double(), torch.tensor([mu, -mu]).double(), d)
    total, step = torch.zeros(40_000, dtype=torch.float64), 1e-5
    for j in range(d):
        for k in range(d):
            moved = shape.clone()
            moved[0, j, k] = step
            change = predict(Circuits(still.key_query + moved, still.output_value), prompts) - predict(still, prompts)
            total += (change / step) ** 2
    measured = 2 * total / mu**2  # two heads
    error = measured.std().item() / math.sqrt(len(measured))
    assert abs(measured.mean().item() - jitter_price(law)) < 4 * error
    assert error < 0.05 * jitter_price(law)
    assert jitter_price(law) == pytest.approx(2 * 9 * 16 * (17 + 3 + 0.75) / 289)


def test_scan_and_stored_runs():
    scan = optimum_scan([2, 3], [4, 8], noise_std=0.1, prompts=800, seed=1)
    sizes = np.array([[one.omega for one in scan[d]] for d in (2, 3)])
    assert (sizes[:, 1] < sizes[:, 0]).all()
    assert stored_runs(RegressionLaw(5, 41)) == {}
    assert stored_sizes(RegressionLaw(5, 41)) == {}
    ends = {rate: sizes[:, -1] for rate, (_, sizes) in stored_sizes(RegressionLaw()).items()}
    assert list(ends) == [0.01, 0.003, 0.001, 0.0003, 0.0001]
    for rate, size in ((0.01, 0.233), (0.003, 0.178), (0.001, 0.140)):
        assert len(ends[rate]) >= 3
        assert (ends[rate] - size).abs().max() < 0.01
    assert ends[0.0003].max() < ends[0.001].min()
