"""Fresh error of several heads: against the exact integral, plain Monte Carlo and autograd."""

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


@pytest.mark.parametrize(("size", "step"), [(0.3, 2), (1.0, 6)])
def test_two_unequal_heads_against_plain_sampling(size, step):
    law, count = SignalNoiseLaw(20, 600, 4.0, 0.1), 100_000
    sample = law.draw(5, 2, start_vectors=4)
    start = random_start(sample, 2, size)
    path = train_heads(sample, 0.1, step, heads=2, attention_step_size=0.2, start=start, record=[])
    v, p = path.v[-1], path.p[-1]
    found = log10_head_error(v, p, sample, count=6000)
    tokens, labels = law.draw_fresh(sample, count)
    scores, values = (torch.einsum("rntm,rhm->rhnt", tokens, x) for x in (p, v))
    wrong = (labels * (scores.softmax(-1) * values).sum((1, 3)) < 0).double().mean(-1)
    chance = (wrong * (1 - wrong) / count).sqrt() / wrong / math.log(10)
    assert (wrong > 0.01).all()
    assert ((found.value - wrong.log10()).abs() < 4.5 * torch.hypot(chance, found.standard_error)).all()
    assert (found.standard_error < 0.01).all()


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
