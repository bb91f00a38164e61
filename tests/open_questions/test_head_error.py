"""Fresh error of several heads: against the exact integral, a quadrature in two dimensions, plain Monte Carlo and autograd."""

import math

import numpy as np
import pytest
import torch
from torch.autograd.functional import hessian, jacobian

from attnbook.open_questions.random_starts.courses import random_start
from attnbook.open_questions.random_starts.error import _Problem, head_scores, log10_head_error
from attnlib.single_head.law import SignalNoiseLaw
from attnlib.single_head.population import log10_clean_error
from attnlib.single_head.training import gram_descent, train_heads
from tests.bad_input import refusing


@pytest.fixture(scope="module")
def trained():
    """One head at the paper's size, two steps and a hundred: errors from 1e-60 to 1e-160, and a weak one."""
    sample = SignalNoiseLaw(200, 40_000, 30.0, 0.05).draw(0, 3)
    return sample, gram_descent(sample, 0.025, 100, record=[1, 2])


@pytest.mark.parametrize("row", [0, 1, 2])
def test_one_head_is_the_exact_integral(trained, row):
    sample, path = trained
    exact = log10_clean_error(path.v[row], path.p[row], sample)
    assert exact.max() < -60
    found = log10_head_error(path.v[row, :, None], path.p[row, :, None], sample, count=4000)
    assert (found.standard_error < 0.005).all()
    assert ((found.value - exact).abs() < 4.5 * found.standard_error).all()


@pytest.mark.parametrize("heads", [2, 5])
def test_equal_heads_are_one_head(trained, heads):
    sample, path = trained
    exact = log10_clean_error(path.v[1], path.p[1], sample)
    p = path.p[1][:, None].expand(-1, heads, -1)
    own = log10_head_error(path.v[1][:, None].expand_as(p) / heads, p, sample, count=2000)
    shared = log10_head_error(path.v[1][:, None], p, sample, count=2000)
    for found in (own, shared):
        assert ((found.value - exact).abs() < 4.5 * found.standard_error).all()
    wrong = log10_head_error(path.v[1][:, None].expand_as(p), 1.02 * p, sample, count=2000)
    assert ((wrong.value - exact).abs() > 10 * wrong.standard_error).all()


def _quadrature(v, p, sample, run, half=9.0, points=1201):
    """Two heads, brute force: log of the mean over classes of E Phi(-m/s) on a grid around the largest point of the integrand.

    Written from the definition, with z = (p_1 . xi, p_2 . xi) itself as the variable and its 2 x 2 covariance.
    """
    units = sample.signals[run] / sample.law.signal_norm
    v, p = v[run], p[run]
    pn, vn = (x - (x @ units.mT) @ units for x in (p, v))
    covariance = (pn @ pn.mT).numpy()
    slope = (vn @ pn.mT).numpy() @ np.linalg.inv(covariance)  # E[v.xi | z] = slope z
    rest = (vn @ vn.mT).numpy() - slope @ covariance @ slope.T
    root = np.linalg.cholesky(covariance)
    logs = []
    for k, label in enumerate((1.0, -1.0)):
        logit, value = (x @ sample.signals[run, k] for x in (p, v))

        def h(a, b, logit=logit, value=value, label=label):
            z = root @ np.stack([a.ravel(), b.ravel()])
            w = 1 / (1 + np.exp(z - logit.numpy()[:, None]))
            mean = label * ((w * value.numpy()[:, None]).sum(0) + ((1 - w) * (slope @ z)).sum(0))
            std = np.sqrt(np.einsum("hn,hk,kn->n", 1 - w, rest, 1 - w))
            tail = torch.special.log_ndtr(torch.as_tensor(-mean / np.maximum(std, 1e-300))).numpy()
            return (tail - (a.ravel() ** 2 + b.ravel() ** 2) / 2).reshape(a.shape)

        middle, width = np.zeros(2), 60.0
        for _ in range(40):  # zoom in on the largest point
            axis = np.linspace(-width, width, 41)
            values = h(*np.meshgrid(middle[0] + axis, middle[1] + axis, indexing="ij"))
            i, j = np.unravel_index(values.argmax(), values.shape)
            middle, width = middle + np.array([axis[i], axis[j]]), max(width / 1.5, half)
        axis = np.linspace(-half, half, points)
        values = h(*np.meshgrid(middle[0] + axis, middle[1] + axis, indexing="ij"))
        top = values.max()
        logs.append(top + np.log(np.exp(values - top).sum()) + 2 * np.log(axis[1] - axis[0]) - np.log(2 * np.pi))
    return (np.logaddexp(*logs) - math.log(2)) / math.log(10)


@pytest.mark.parametrize(("rho", "size", "step"), [(30.0, 0.3, 2), (30.0, 1.0, 60), (12.0, 0.3, 60)])
def test_two_unequal_heads_against_a_quadrature(rho, size, step):
    law = SignalNoiseLaw(60, 12_000, rho, 0.05)
    sample = law.draw(5, 2, start_vectors=4)
    path = train_heads(
        sample, 0.0125, step, heads=2, attention_step_size=0.05, start=random_start(sample, 2, size), record=[]
    )
    found = log10_head_error(path.v[-1], path.p[-1], sample, count=6000)
    for run in range(2):
        exact = _quadrature(path.v[-1], path.p[-1], sample, run)
        assert abs(found.value[run] - exact) < 4.5 * found.standard_error[run]
        assert found.standard_error[run] < 0.01


def _problem(heads=3, q=3, batch=4, seed=0):
    rng = np.random.default_rng(seed)
    draw = lambda *shape: torch.as_tensor(rng.standard_normal((batch, *shape)))  # noqa: E731
    return _Problem(draw(heads), draw(heads).abs(), draw(heads, q), draw(heads, q), draw(heads, heads))


def test_derivatives_of_the_integrand_against_autograd():
    problem = _problem()
    t = torch.as_tensor(np.random.default_rng(1).standard_normal((4, 2, 3)))
    a, first, second = problem.margin(t)
    gradient, curvature = problem.curvature(t)
    for b in range(4):
        one = problem.take(torch.tensor([b]))
        for i in range(2):
            margin = lambda s, one=one: one.margin(s[None, None])[0].squeeze()  # noqa: E731
            height = lambda s, one=one: one.log_integrand(s[None, None]).squeeze()  # noqa: E731
            at = t[b, i]
            torch.testing.assert_close(jacobian(margin, at), first[b, i], rtol=1e-8, atol=1e-9)
            torch.testing.assert_close(hessian(margin, at), second[b, i], rtol=1e-8, atol=1e-8)
            torch.testing.assert_close(jacobian(height, at), gradient[b, i], rtol=1e-8, atol=1e-9)
            torch.testing.assert_close(-hessian(height, at), curvature[b, i], rtol=1e-6, atol=1e-7)
            direct = torch.special.log_ndtr(-a[b, i]) - at.square().sum() / 2
            torch.testing.assert_close(height(at), direct)


SMALL = SignalNoiseLaw(6, 50, 3.0).draw(0, 2)
V = torch.zeros(2, 3, SMALL.tokens.shape[-1], dtype=torch.float64)
test_bad_arguments = refusing(
    (log10_head_error, (V, V, SMALL), {"p": V[..., :-1], "count": 1}),
    (lambda: log10_head_error(V[:, :0], V[:, :0], SMALL), "p must hold one head or more"),
    (lambda: log10_head_error(V[:, :2], V, SMALL), "v must hold 1 value vector or one per head"),
)


def test_three_tokens_are_refused_by_the_integral():
    sample = SignalNoiseLaw(6, 50, 3.0, tokens=3).draw(0, 1)
    v = torch.zeros(1, 2, sample.tokens.shape[-1], dtype=torch.float64)
    with pytest.raises(ValueError, match="tokens must be 2"):
        head_scores(v, v, sample)
