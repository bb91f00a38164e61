"""The explorer "two numbers per head": exact and approximate landscapes, their flow and minima, against attnlib."""

import functools
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.autograd.functional import hessian as hessian_of

from attnbook.explorers import two_numbers as source
from attnbook.explorers.bayes_table import sampled_bayes_risk, sampled_spectrum
from attnbook.in_context import approximate, closed_form, full_runs
from attnbook.in_context.optimum import one_head_optimum, pair_optimum
from attnbook.in_context.reduced import reduced_moments, reduced_risk
from attnlib.in_context.law import RegressionLaw
from tests.explorers.node import ROOT, evaluate
from tests.rounding import of_digits

INTERPOLATED = 1e-6  # relative, between the tables and attnlib at any heads
EXACT = 1e-9


@functools.cache
def tables() -> dict:
    text = Path(ROOT, "book", "assets", "explorers", "data", "two_numbers.js").read_text(encoding="utf-8")
    return json.loads(text[text.index("] = ") + 4 : text.rindex(";")])


def table_of(d: int, length: int) -> dict:
    return next(one for one in tables()["laws"] if (one["d"], one["length"]) == (d, length))


def heads_for(d: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """omega (12,) for one call of moments, mu (40, 12): single heads, opposite pairs into the valley, free pairs, ends of the table."""
    reach, unit = source.half_width(d), math.sqrt(5 / d)
    a = unit * np.array([rng.uniform(0.01, 0.05), rng.uniform(0.05, 0.2), rng.uniform(0.2, 1)])
    free = rng.uniform(-reach, reach, 4)
    omega = np.concatenate([a, -a, free, [reach, -reach]])
    mu = np.zeros((40, 12))
    for row in range(40):
        kind = row % 4
        if kind == 0:
            mu[row, rng.integers(12)] = rng.uniform(-3, 3) / unit
        elif kind == 1:
            k = row // 4 % 3
            mu[row, k] = rng.uniform(0.3, 1.5) / (2 * a[k])
            mu[row, k + 3] = -mu[row, k]
        elif kind == 2:
            mu[row, rng.choice(12, 2, replace=False)] = rng.uniform(-4, 4, 2) / unit
        else:
            k = row // 4 % 3
            mu[row, k], mu[row, k + 3] = (rng.uniform(0.5, 1) * 0.88 / a[k] * s for s in (0.9, -0.8))
    return omega, mu


@pytest.mark.parametrize(("d", "length", "sigma"), [(5, 40, 0.01), (5, 10, 3.0), (20, 40, 0.4)])
def test_interpolated_risk_is_attnlibs_at_any_heads(d: int, length: int, sigma: float):
    omega, mu = heads_for(d, np.random.default_rng(d + length))
    moments = reduced_moments(omega, RegressionLaw(d, length, sigma))
    risk, error = (part.numpy() for part in moments.risk(mu))
    asked = {"table": table_of(d, length), "sigma": sigma}
    heads = {"omega": [omega.tolist()] * len(mu), "mu": mu}
    found, found_error = evaluate("two_numbers", [("risk", asked | heads), ("error", asked | heads)])
    assert found == pytest.approx(risk, rel=INTERPOLATED)
    # Six components of the batches' deviations hold most of the variance; below 1e-5 of the risk rounding shows.
    ratio = np.array(found_error) / error
    tiny = np.maximum(error, found_error) < 1e-5 * risk
    assert (tiny | ((ratio > 0.6) & (ratio < 1.4))).all()
    assert (~tiny).sum() >= 20
    assert np.median(ratio[~tiny]) == pytest.approx(1, abs=0.1)
    wrong = evaluate("two_numbers", [("risk", asked | {"sigma": sigma + 0.05} | heads)])[0]
    assert np.median(np.abs(np.array(wrong) / risk - 1)) > 100 * INTERPOLATED


def test_the_long_prompts_table():
    """d = 5, L = 160: few heads, because attnlib's own prompts are long."""
    omega = np.array([0.04, -0.04, 0.9])
    mu = np.array([[10, -10, 0], [0, 0, 1.2], [1, -2, -0.5]])
    law = RegressionLaw(5, 160, 0.01)
    risk = reduced_moments(omega, law).risk(mu)[0].numpy()
    asked = {"table": table_of(5, 160), "sigma": 0.01, "omega": [omega.tolist()] * 3, "mu": mu}
    assert evaluate("two_numbers", [("risk", asked)])[0] == pytest.approx(risk, rel=INTERPOLATED)


def random_states(rng: np.random.Generator, d: int, count: int) -> tuple[list, list]:
    unit = math.sqrt(5 / d)
    heads = [1 + k % 2 for k in range(count)]
    return [(rng.uniform(-1, 1, h) * unit).tolist() for h in heads], [
        (rng.uniform(-3, 3, h) / unit).tolist() for h in heads
    ]


@pytest.mark.parametrize("exact", [True, False])
def test_gradient_and_hessian_are_those_of_the_risk(exact: bool):
    """Differences of fourth order, of the risk for the gradient and of the gradient for the Hessian."""
    setting = {"table": table_of(5, 40), "sigma": 0.3} if exact else {"d": 7, "length": 23, "sigma": 0.3}
    omega, mu = random_states(np.random.default_rng(4), 5, 12)
    step, weights = 1e-4, np.array([1, -8, 8, -1]) / 12e-4
    moved = [
        (np.array([*w, *m]) + side * step * unit, len(w))
        for w, m in zip(omega, mu, strict=True)
        for unit in np.eye(2 * len(w))
        for side in (-2, -1, 1, 2)
    ]
    split = {"omega": [y[:h].tolist() for y, h in moved], "mu": [y[h:].tolist() for y, h in moved]}
    found, risks, there = evaluate(
        "two_numbers",
        [
            ("derivatives", setting | {"omega": omega, "mu": mu}),
            ("risk", setting | split),
            ("derivatives", setting | split),
        ],
    )
    first = 0
    for w, slopes in zip(omega, found, strict=True):
        size = 2 * len(w)
        part = slice(first, first + 4 * size)
        first += 4 * size
        slope = np.array([*slopes["omega"], *slopes["mu"]])
        assert slope == pytest.approx(np.array(risks[part]).reshape(size, 4) @ weights, rel=1e-6, abs=1e-7)
        grads = np.array([[*one["omega"], *one["mu"]] for one in there[part]]).reshape(size, 4, size)
        hessian = np.einsum("ijk,j->ik", grads, weights)
        assert np.array(slopes["hessian"]) == pytest.approx(hessian, rel=1e-6, abs=1e-6)


def test_approximate_landscape_is_attnlibs():
    rng = np.random.default_rng(5)
    for d, length, sigma in ((1, 2, 0.001), (5, 40, 0.01), (40, 1000, 3.0), (12, 7, 0.5)):
        law = RegressionLaw(d, length, sigma)
        omega, mu = random_states(rng, d, 10)
        asked = {"d": d, "length": length, "sigma": sigma, "omega": omega, "mu": mu}
        risks, slopes = evaluate("two_numbers", [("risk", asked), ("derivatives", asked)])
        for w, m, risk, slope in zip(omega, mu, risks, slopes, strict=True):
            assert risk == pytest.approx(float(approximate.approximate_risk(law, w, m)), rel=EXACT)
            in_omega, in_mu = (d * part.numpy() for part in approximate.approximate_gradient(law, w, m))
            assert slope["omega"] == pytest.approx(in_omega, rel=EXACT, abs=EXACT)
            assert slope["mu"] == pytest.approx(in_mu, rel=EXACT, abs=EXACT)
            point = torch.tensor([*w, *m], dtype=torch.float64)
            hessian = hessian_of(lambda both, law=law: approximate.approximate_risk(law, *both.chunk(2)), point).numpy()
            assert np.array(slope["hessian"]) == pytest.approx(hessian, rel=EXACT, abs=EXACT * np.abs(hessian).max())


def test_approximate_flow_is_attnlibs():
    times = np.geomspace(0.01, 1e6, 17)
    for d, length, sigma, omega, mu in (
        (5, 40, 0.01, [0.02, -0.02], [0.02, -0.02]),
        (5, 40, 0.01, [0.3, 0.1], [0.2, 0.6]),
        (2, 9, 0.1, [-0.9, 0.2], [1.5, 0.3]),
    ):
        flow = approximate.gradient_flow(RegressionLaw(d, length, sigma), [omega], [mu], times, tolerance=1e-9)
        asked = {"d": d, "length": length, "sigma": sigma, "omega": omega, "mu": mu, "times": times}
        found = evaluate("two_numbers", [("flow", asked)])[0]
        assert found["times"] == times.tolist()
        assert np.array(found["omega"]) == pytest.approx(flow.omega[:, 0].numpy(), rel=1e-6, abs=1e-8)
        assert np.array(found["mu"]) == pytest.approx(flow.mu[:, 0].numpy(), rel=1e-6, abs=1e-8)


def read_by_numpy(table: dict, sigma: float):
    """Velocity (t, y) of the flow, y = (omega, mu), from the table alone, with numpy's Chebyshev polynomials."""
    n, unit = table["nodes"], table["unit"]
    gain, matrices = np.zeros(n), []
    gain[1::2] = table["gain"]
    for rows in (table["along"], table["across"]):
        lower = np.zeros((n, n))
        for j, row in enumerate(rows):
            lower[j, j % 2 : j % 2 + 2 * len(row) : 2] = row
        matrices.append(unit * (lower + lower.T - np.diag(lower.diagonal())))
    form = matrices[0] + (table["d"] - 1 + table["d"] * sigma**2) * matrices[1]
    derivative = np.polynomial.chebyshev.chebder(np.eye(n)) / table["reach"]

    def velocity(_: float, y: np.ndarray) -> np.ndarray:
        omega, mu = np.split(y, 2)
        x = omega / table["reach"]
        basis = np.polynomial.chebyshev.chebvander(x, n - 1)
        pull = form @ (basis.T @ mu) - unit * gain
        slope = np.polynomial.chebyshev.chebvander(x, n - 2) @ derivative
        return -np.concatenate([mu * (slope @ pull), basis @ pull]) / table["d"]

    return velocity


def test_exact_flow_is_that_of_the_table():
    """scipy's LSODA with numpy's polynomials; another clock or a lost factor mu would be seen at once."""
    from scipy.integrate import solve_ivp

    times = [0.1, 1.0, 10.0, 1000.0]
    for table, sigma, start in (
        (table_of(5, 10), 0.01, [0.3, -0.1, 0.4, -0.9]),
        (table_of(20, 40), 0.7, [0.2, 0.1, 0.5, 0.6]),
        (table_of(5, 40), 0.1, [0.2, -0.4]),
    ):
        heads = len(start) // 2
        asked = {"table": table, "sigma": sigma, "omega": start[:heads], "mu": start[heads:], "times": times}
        found = evaluate("two_numbers", [("flow", asked)])[0]
        velocity = read_by_numpy(table, sigma)
        path = solve_ivp(velocity, (0, 1000), start, method="LSODA", t_eval=times, rtol=1e-9, atol=1e-11)
        assert np.hstack([found["omega"], found["mu"]]) == pytest.approx(path.y.T, rel=1e-6, abs=1e-7)


def test_minima_are_those_of_attnlibs_searches():
    for d, length in ((5, 40), (20, 40)):
        law = RegressionLaw(d, length, 0.01)
        setting = {"table": table_of(d, length), "sigma": 0.01}
        one, pair = evaluate("two_numbers", [("optimum", setting | {"pattern": p}) for p in ([1], [1, -1])])
        for found, best in ((one, one_head_optimum(law, prompts=2000)), (pair, pair_optimum(law, prompts=2000))):
            assert found["omega"] == pytest.approx(best.omega, abs=5 * best.omega_error)
            assert found["mu"] == pytest.approx(best.mu, abs=5 * best.mu_error)
            assert abs(found["risk"] - best.risk) < 6 * best.risk_error
        states = {"omega": [0.4 * math.sqrt(5 / d)], "mu": [0.8], "times": [1.0, 1e4]}
        end = evaluate("two_numbers", [("flow", setting | states)])[0]
        assert [end["omega"][1][0], end["mu"][1][0]] == pytest.approx([one["omega"], one["mu"]], rel=1e-5)
    alone = evaluate("two_numbers", [("optimum", {"d": 11, "length": 30, "sigma": 0.2, "pattern": [1]})])[0]
    best = approximate.one_head_optimum(RegressionLaw(11, 30, 0.2))
    assert [alone["omega"], alone["mu"]] == pytest.approx([best.omega, best.mu], rel=1e-6)


def test_slices_are_the_risk_at_every_cell():
    setting = {"table": table_of(5, 40), "sigma": 0.2}
    omegas, mus = [-0.7, -0.1, 0.2, 0.9, 1.5], [-2.0, 0.1, 3.0]
    for pattern, others in (
        ([1], {"omega": [], "mu": []}),
        ([1, -1], {"omega": [], "mu": []}),
        ([1], {"omega": [-0.4], "mu": [-1.1]}),
    ):
        for kind in (setting, {"d": 6, "length": 31, "sigma": 0.2}):
            asked = {"omegas": omegas, "mus": mus, "pattern": pattern, "others": others}
            cells = [(w, m) for m in mus for w in omegas]
            heads = {
                "omega": [[p * w for p in pattern] + others["omega"] for w, _ in cells],
                "mu": [[p * m for p in pattern] + others["mu"] for _, m in cells],
            }
            found, expected = evaluate("two_numbers", [("grid", kind | asked), ("risk", kind | heads)])
            assert np.array(found).ravel() == pytest.approx(np.array(expected), rel=1e-9)


def test_references_are_closed_forms():
    rng = np.random.default_rng(6)
    for d, length, sigma in ((1, 2, 0.001), (40, 1000, 3.0), (5, 40, 0.01), (9, 5, float(rng.uniform(0.1, 1)))):
        law = RegressionLaw(d, length, sigma)
        setting = {"d": d, "length": length, "sigma": sigma}
        found, step = evaluate(
            "two_numbers", [("references", setting), ("centredStep", setting | {"eta": 0.7, "offset": -0.4})]
        )
        expected = {
            "zero": closed_form.zero_risk(law),
            "step1": closed_form.gd_risk(law, 1.0),
            "stepBest": closed_form.gd_optimal_risk(law),
            "stepBestSize": closed_form.gd_optimal_step(law),
            "centredBest": closed_form.debiased_gd_optimal_risk(law),
            "centredBestSize": closed_form.debiased_gd_optimal_step(law),
            "bayesLower": closed_form.bayes_risk_lower_bound(law),
            "leastSquares": closed_form.bayes_risk_leading_order(law),
            "oneHeadApproximate": approximate.one_head_optimum(law).omega,
        }
        assert found == {name: pytest.approx(float(value), rel=EXACT) for name, value in expected.items()}
        assert step == pytest.approx(float(closed_form.debiased_gd_risk(law, 0.7, offset=-0.4)), rel=EXACT)


def test_bayes_and_summary():
    for table in tables()["laws"]:
        asked = {"table": table, "sigma": 0.37, "noise": tables()["noise"]}
        mean, error = sampled_bayes_risk(sampled_spectrum(table["d"], table["length"]), table["d"] * 0.37**2)
        found = evaluate("two_numbers", [("bayes", asked)])[0]
        assert found["risk"] == pytest.approx(float(mean), rel=1e-6)
        assert found["error"] == pytest.approx(float(error), rel=0.3)
    found = evaluate("two_numbers", [("summary", {"omega": [0.5, -0.2], "mu": [2.0, -3.0]})])[0]
    assert found == {"step": pytest.approx(1.6), "offset": pytest.approx(-1.0), "imbalance": pytest.approx(0.2)}


def test_ends_are_the_stored_trainings():
    for heads in (1, 2):
        final = full_runs.load(heads).final
        ends = tables()["ends"][str(heads)]
        assert np.array(ends["omega"]) == pytest.approx(final.omega.numpy(), rel=of_digits(6), abs=0)
        assert np.array(ends["mu"]) == pytest.approx(final.mu.numpy(), rel=of_digits(6), abs=0)


def test_a_table_is_remade_in_small():
    """Few prompts and nodes: the function that made the tables, read by the page's code, is attnlib's risk."""
    table = source.moment_table(4, 6, prompts=400, nodes=64)
    omega, mu = [0.3, -0.5, 1.1], [1.4, -0.6, 0.2]
    law = RegressionLaw(4, 6, 0.4)
    asked = {"table": table, "sigma": 0.4, "omega": [omega], "mu": [mu]}
    risk, error = evaluate("two_numbers", [("risk", asked), ("error", asked)])
    expected = reduced_risk(omega, mu, law, prompts=400)
    assert risk[0] == pytest.approx(float(expected[0]), rel=1e-5)
    assert error[0] == pytest.approx(float(expected[1]), rel=0.5)
