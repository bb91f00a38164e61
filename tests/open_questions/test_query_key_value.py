"""Heads made of products of matrices: against autograd through the full matrices, the vector trainers, and what is conserved."""

import dataclasses

import pytest
import torch

from attnbook.open_questions.random_starts.factors import factor_study
from attnbook.open_questions.random_starts.query_key_value import (
    Factors,
    fixed_query_and_output,
    gaussian_factors,
    train_factors,
)
from attnlib.single_head.law import SignalNoiseLaw
from attnlib.single_head.model import loss
from attnlib.single_head.training import gram_descent
from tests.bad_input import refusing

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
test_bad_arguments = refusing(
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
