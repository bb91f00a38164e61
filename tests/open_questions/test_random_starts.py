"""Several heads from random starts: their fresh error against integrals, sampling and autograd; query, key and value as factors."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from torch.autograd.functional import hessian, jacobian

from attnbook.open_questions.random_starts.courses import random_start
from attnbook.open_questions.random_starts.error import _Problem, head_scores, log10_head_error
from attnbook.open_questions.random_starts.factors import factor_study
from attnbook.open_questions.random_starts.query_key_value import (
    Factors,
    fixed_query_and_output,
    gaussian_factors,
    train_factors,
)
from attnlib.single_head.law import SignalNoiseLaw
from attnlib.single_head.model import loss
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


def test_three_tokens_are_refused_by_the_integral():
    sample = SignalNoiseLaw(6, 50, 3.0, tokens=3).draw(0, 1)
    v = torch.zeros(1, 2, sample.tokens.shape[-1], dtype=torch.float64)
    with pytest.raises(ValueError, match="tokens must be 2"):
        head_scores(v, v, sample)


R, N, T, D, H, K = 2, 9, 3, 31, 4, 5


@pytest.fixture(scope="module")
def sample():
    return SignalNoiseLaw(N, D, 4.0, 0.2, tokens=T).draw(5, R, coordinates="dense", start_vectors=2 * H * K)


def full_model(sample, matrices, query):
    """f = sum_h w_h' W_V' X' softmax(X W_K W_Q' q), with every matrix explicit: W_K, W_Q, W_V (R, H, d, k), w (R, H, k)."""
    w_key, w_query, w_value, output = matrices
    p = torch.einsum("rhdk,rhek,e->rhd", w_key, w_query, query)
    v = torch.einsum("rhdk,rhk->rhd", w_value, output)
    logits = torch.einsum("rntd,rhd->rhnt", sample.tokens, p)
    values = torch.einsum("rntd,rhd->rhnt", sample.tokens, v)
    return (logits.softmax(-1) * values).sum((1, 3))


def matrices_of(seed=0, scale=0.2):
    generator = torch.Generator().manual_seed(seed)
    shapes = [(R, H, D, K)] * 3 + [(R, H, K)]
    return [scale * torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]


def factors_of(matrices, query):
    w_key, w_query, w_value, output = matrices
    return Factors(w_key.mT, torch.einsum("rhdk,d->rhk", w_query, query), w_value.mT, output)


def unit_query():
    query = torch.zeros(D, dtype=torch.float64)
    query[3], query[7] = 0.6, -0.8
    return query


@pytest.mark.parametrize(("train_query", "train_output"), [(True, True), (True, False), (False, True), (False, False)])
def test_training_is_sgd_on_the_full_matrices(sample, train_query, train_output):
    query, matrices = unit_query(), [m.requires_grad_() for m in matrices_of(2)]
    start = factors_of([m.detach().clone() for m in matrices], query)
    trained = [matrices[0], matrices[2]] + [matrices[1]] * train_query + [matrices[3]] * train_output
    path = train_factors(sample, start, 0.3, 5, train_query=train_query, train_output=train_output)
    optimiser = torch.optim.SGD(trained, lr=0.3)
    for _ in range(5):
        optimiser.zero_grad()
        loss(full_model(sample, matrices, query), sample.labels).sum().backward()
        optimiser.step()
    end = factors_of([m.detach() for m in matrices], query)
    for field in dataclasses.fields(Factors):
        torch.testing.assert_close(getattr(path.end, field.name), getattr(end, field.name), rtol=1e-9, atol=1e-12)
    with torch.no_grad():
        output = full_model(sample, matrices, query)
    torch.testing.assert_close(path.margins[-1], sample.labels * output, rtol=1e-9, atol=1e-12)


def test_fixed_query_and_output_are_one_head_with_rescaled_steps():
    """|q|^2 = 5 and |w|^2 = 2.5 by autograd through full matrices from zero, and the package's trainer of one head."""
    law = SignalNoiseLaw(20, 3000, 12.0, 0.1)
    sample = law.draw(1, 3)
    query, output = (torch.tensor([[a, b]], dtype=torch.float64) for a, b in ((1.0, 2.0), (0.5, -1.5)))
    path = train_factors(
        sample, fixed_query_and_output(sample, query, output), 0.02, 6, train_query=False, train_output=False
    )
    one = gram_descent(sample, 0.02 * 2.5, 6, attention_step_size=0.02 * 5.0)
    torch.testing.assert_close(path.p[:, :, 0], one.p, rtol=1e-10, atol=1e-13)
    torch.testing.assert_close(path.v[:, :, 0], one.v, rtol=1e-10, atol=1e-13)
    torch.testing.assert_close(path.attention_on_signal[:, :, 0], one.attention_on_signal, rtol=1e-10, atol=1e-13)
    wrong = gram_descent(sample, 0.02 * 5.0, 6, attention_step_size=0.02 * 2.5)
    assert (path.p[-1, :, 0] - wrong.p[-1]).norm() > 0.1 * wrong.p[-1].norm()
    # W_K itself: p q'/|q|^2, of rank one.
    keys = path.end.keys[:, 0]
    torch.testing.assert_close(keys, torch.einsum("rm,k->rkm", one.p[-1], query[0]) / 5, rtol=1e-9, atol=1e-13)


def test_gaussian_factors_have_the_size_asked_for_and_own_streams():
    law = SignalNoiseLaw(10, 400, 4.0)
    sample = law.draw(2, 60, coordinates="dense", start_vectors=2 * 3 * 4)
    made = gaussian_factors(sample, 3, 4, 0.5)
    for part, size in ((made.keys, 0.5), (made.values, 0.5)):
        assert part.square().sum((-1, -2)).mean().sqrt() == pytest.approx(size, rel=0.01)
    for part, size in ((made.query, 0.5), (made.output, 0.5)):
        assert part.square().sum(-1).mean().sqrt() == pytest.approx(size, rel=0.12)
    later = gaussian_factors(law.draw(2, 3, first_run=7, coordinates="dense", start_vectors=24), 3, 4, 0.5)
    for field in dataclasses.fields(Factors):
        torch.testing.assert_close(getattr(later, field.name), getattr(made, field.name)[7:10])


def test_attention_means_are_over_clean_and_flipped_samples(sample):
    path = train_factors(sample, gaussian_factors(sample, H, K, 1.0), 0.3, 3, record=[1])
    assert path.steps == (1, 3)
    weight, noisy = path.attention_on_signal[path.at(3)], sample.noisy
    for r in range(R):
        torch.testing.assert_close(path.attention_clean[1, r], weight[r][:, ~noisy[r]].mean(-1))
        torch.testing.assert_close(path.attention_noisy[1, r], weight[r][:, noisy[r]].mean(-1), equal_nan=True)


def good(runs=2, **change):
    sample = SignalNoiseLaw(6, 30, 3.0).draw(0, runs, start_vectors=4)
    start = gaussian_factors(sample, 1, 2, 0.1)
    return sample, dataclasses.replace(start, **change)


SAMPLE, START = good()


test_bad_input = refusing(
    (log10_head_error, (V, V, SMALL), {"p": V[..., :-1], "count": 1}),
    (lambda: log10_head_error(V[:, :0], V[:, :0], SMALL), "p must hold one head or more"),
    (lambda: log10_head_error(V[:, :2], V, SMALL), "v must hold 1 value vector or one per head"),
    (gaussian_factors, (SAMPLE, 1, 1, 0.1), {"heads": 0, "width": 0, "size": 0.0}),
    (
        train_factors,
        (SAMPLE, START, 0.1, 3),
        {"step_size": 0.0, "steps": -1, "attention_step_size": -1, "record": [[4]]},
    ),
    (factor_study, (), {"draws": 1}),
    (lambda: gaussian_factors(SAMPLE, 2, 2, 0.1), "start_vectors=8"),
    (lambda: train_factors(*good(keys=START.keys[:1]), 0.1, 3), "start.keys must have shape"),
    (lambda: train_factors(*good(query=START.query[..., :1]), 0.1, 3), "start.query must have shape"),
    (lambda: train_factors(*good(values=START.values.float()), 0.1, 3), "start.values must have dtype"),
    (lambda: train_factors(*good(output=START.output[0]), 0.1, 3), "start.output must have shape"),
    (lambda: fixed_query_and_output(SAMPLE, START.query[0, 0], START.output[0]), "query must have shape"),
    (lambda: fixed_query_and_output(SAMPLE, START.query[0], START.output[0, :, :1]), "output must have shape"),
    (lambda: train_factors(SAMPLE, START, 0.1, 3, record=[1]).at(2), "step must be one of"),
)
