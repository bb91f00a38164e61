"""Exact risk on two examples and the approximate loss a second way: plain quadrature of the reduced form, autograd, eigenvalues."""

import math

import numpy as np
import pytest

pytest.importorskip("flint")


from matplotlib.figure import Figure
from scipy.optimize import minimize_scalar

from attnbook.certified.certificate import ball, precision
from attnbook.certified.claims_risk import RiskStudy
from attnbook.certified.risk import Regression, TwoExamples, debiased_risk, kappa
from attnbook.certified.risk_approximate import Approximate, krawczyk, positive_definite
from attnbook.certified.risk_figure import draw_least_risks
from attnbook.in_context.approximate import approximate_loss, same_sign_eigenvalues
from attnbook.in_context.closed_form import (
    bayes_risk_bounds,
    debiased_gd_optimal_risk,
    debiased_gd_optimal_step,
    opposite_pair_curvature,
)
from attnlib.in_context.law import RegressionLaw


def quadrature(omega: float, heads: int, noise: float) -> float:
    """Least risk at one scale: the mean over (r, g_1, g_2) of the reduced form, with the weights of a softmax over two examples."""
    r, wr = np.polynomial.legendre.leggauss(60)
    r, wr = 4.5 * (1 + r), 4.5 * wr
    wr = wr * r**3 * np.exp(-(r**2) / 2) / 2  # chi with four degrees of freedom
    g, wg = np.polynomial.hermite_e.hermegauss(90)
    wg = wg / wg.sum()
    R, G, H = np.meshgrid(r, g, g, indexing="ij")
    W = wr[:, None, None] * wg[:, None] * wg
    up = 1 / (1 + np.exp(-omega * R * (G - H)))
    c = np.stack([up, 1 - up]) - (np.stack([1 - up, up]) if heads == 2 else 0)
    along, square = c[0] * G + c[1] * H, (c**2).sum(0)
    pull, cost = (W * R * along).sum(), (W * (along**2 + (3 + 4 * noise**2) * square)).sum()
    return 4 - pull**2 / cost


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("omega", ["0.3", "0.56", "1.1"])
def test_the_integrals_are_the_reduced_form(heads: int, omega: str) -> None:
    found = TwoExamples("0.3", heads).risk(omega)
    assert float(found) == pytest.approx(quadrature(float(omega), heads, 0.3), abs=2e-6)
    assert float(found.rad()) < 1e-10


def test_small_pairs_are_the_debiased_step_and_the_curvature_follows() -> None:
    found, law = TwoExamples("0.3"), Regression(4, 2, "0.3")
    limit = float(debiased_risk(law))
    assert (float(found.risk("0.02")) - limit) / 0.02**2 == pytest.approx(float(kappa(law)), rel=0.01)


@pytest.mark.parametrize(("d", "length", "noise"), [(4, 2, 0.3), (5, 40, 0.01), (7, 13, 0.5)])
def test_closed_forms(d: int, length: int, noise: float) -> None:
    law, ours = RegressionLaw(d, length, noise), Regression(d, length, str(noise))
    assert float(debiased_risk(ours)) == pytest.approx(float(debiased_gd_optimal_risk(law)), rel=1e-13)
    step = debiased_gd_optimal_step(law)
    # At a fixed step the pair has 2 omega m = step: the same curve as the best output to this order.
    assert float(kappa(ours)) == pytest.approx(float(opposite_pair_curvature(law, step)), rel=1e-12)
    with precision(64):
        bounds = float(ours.bayes(length + 1)), float(ours.bayes(length - 1))
    assert bounds == pytest.approx(tuple(float(x) for x in bayes_risk_bounds(law)), rel=1e-7)


@pytest.mark.parametrize("heads", [1, 2])
def test_the_best_scale(heads: int) -> None:
    found = TwoExamples("0.3", heads)
    best = minimize_scalar(
        lambda w: float(found.risk(repr(float(w)))), bounds=(0.2, 6), method="bounded", options={"xatol": 1e-6}
    ).x
    assert found.best_between(f"{best - 0.01:.3f}", f"{best + 0.01:.3f}") is True
    assert found.best_between(f"{best + 0.01:.3f}", f"{best + 0.03:.3f}") is False
    assert found.best_between(f"{best - 0.03:.3f}", f"{best - 0.01:.3f}") is False
    low, high = f"{best - 0.001:.3f}", f"{best + 0.001:.3f}"
    least = found.least_risk(low, high)
    assert least.contains(found.risk(f"{best:.6f}").mid())
    assert least.rad() < 1e-4


def test_derivatives_of_the_approximate_loss() -> None:
    """Against central differences with 300 bits, with three heads and numbers of their own; the loss against the float one."""
    omega, mu = [0.3, -0.5, 0.2], [0.7, -1.1, 0.4]
    loss, step = Approximate(3, 11, "0.4"), ball(2) ** -60
    assert float(loss.loss([ball(w) for w in omega], [ball(m) for m in mu])) == pytest.approx(
        approximate_loss(RegressionLaw(3, 11, 0.4), omega, mu).item(), rel=1e-13
    )
    with precision(300):
        point = [ball(x) for x in omega + mu]
        gradient, hessian = loss.derivatives(point[:3], point[3:])
        for i in range(6):
            ahead, back = ([x + side * step * (j == i) for j, x in enumerate(point)] for side in (1, -1))
            slope = (loss.loss(ahead[:3], ahead[3:]) - loss.loss(back[:3], back[3:])) / (2 * step)
            assert float(abs(slope / 2 - gradient[i])) < 1e-25
            ends = (loss.derivatives(x[:3], x[3:])[0] for x in (ahead, back))
            for j, (high, low) in enumerate(zip(*ends, strict=True)):
                assert float(abs((high - low) / (2 * step) - hessian[i][j])) < 1e-25


def test_eigenvalues_of_the_trap() -> None:
    law = RegressionLaw(4, 25, 0.3)
    with precision(64):
        found = [float(x) for x in Approximate(4, 25, "0.3").eigenvalues()]
    assert found == pytest.approx(same_sign_eigenvalues(law)[1:].tolist(), rel=1e-10)


def test_positive_definite_by_pivots() -> None:
    rng = np.random.default_rng(1)
    for _ in range(20):
        root = rng.standard_normal((4, 4))
        matrix = root + root.T + rng.uniform(0, 6) * np.eye(4)
        with precision(64):
            assert positive_definite([[ball(x) for x in row] for row in matrix.tolist()]) in (
                np.linalg.eigvalsh(matrix).min() > 0,
                None,
            )
    with precision(64):
        assert positive_definite([[ball(1), ball(2)], [ball(2), ball(4)]]) is None  # singular


def test_krawczyk_finds_a_zero_and_does_not_invent_one() -> None:
    """Gradient of (x^2 - 2)^2 / 4 + (y - x)^2 / 2: zero at x = y = sqrt 2."""

    def derivatives(point):
        x, y = point
        return [x**3 - 2 * x - (y - x), y - x], [[3 * x**2 - 1, ball(-1)], [ball(-1), ball(1)]]

    with precision(64):
        box = krawczyk(derivatives, [1.41, 1.42], 0.05)
        assert box is not None
        assert all(abs(float(x) - math.sqrt(2)) < 0.02 for x in box)
        assert krawczyk(derivatives, [1.2, 1.2], 0.05) is None


def test_a_number_of_heads_is_one_or_two() -> None:
    with pytest.raises(ValueError, match="heads must be 1 or 2; got 3"):
        TwoExamples(heads=3)


def test_the_figure_has_its_minima_where_they_are_proved() -> None:
    axes = Figure().subplots()
    draw_least_risks(axes, RiskStudy())
    curves = {line.get_label(): np.asarray(line.get_data()) for line in axes.lines}
    for label, place in (("a pair", 0.56), ("one head", 3.53)):
        x, y = curves[label]
        assert abs(math.log(x[y.argmin()] / place)) < 0.08
