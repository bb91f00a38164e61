"""Two steps under other noise laws: counted errors, verdicts, the rate of universality, traces and spikes, each a second way."""

import math

import numpy as np
import pytest
import torch

from attnbook.open_questions.noise_laws import rate as noise_rate
from attnbook.open_questions.noise_laws.covariance import AutoRegressive, Covariance, Diagonal
from attnbook.open_questions.noise_laws.laws import NoiseLaw, log10_error, scores_at_scale_one, seen_by_noise
from attnbook.open_questions.noise_laws.parts import Entries, Sparse
from attnbook.open_questions.noise_laws.rate import RateRow, gap_slope, universality_gaps
from attnbook.open_questions.noise_laws.study import error_rows, law_named, strength_to_norm
from attnbook.open_questions.noise_laws.traces import spike_draws, trace_rows, two_level, two_trace_log10_error
from attnlib.randomness import stream
from attnlib.single_head.closed_form import two_steps
from attnlib.single_head.model import forward
from attnlib.single_head.training import gradient_descent
from tests.bad_input import refusing

SMALL = (30, 240, 0.1, 5 * 30 / 240)


# --- counting --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["t5 entries", "radial t3", "AR(1) .9", "not orthogonal"])
def test_counted_errors_are_those_of_whole_vectors(name):
    n, d, eta, beta = 10, 40, 0.1, 1.0
    row = error_rows(n, d, eta, beta, strengths=(2.0,), draws=3, points=300, seed=4, names=[name])[name][0]
    law = law_named(name, n, d, 2.0, eta)
    sample = law.draw(4, 3, coordinates="dense")
    path = gradient_descent(sample, beta, 2)
    z = law.entries.draw(stream(4, "test"), (300, d))
    scale = np.ones((300, 1))
    if law.scale is not None:
        scale = law.scale.draw(np.random.Generator(stream(4, "test").bit_generator.jumped()), (300, 1))
    wrong = torch.zeros(3, 300, 2)
    for r in range(3):
        noise = torch.as_tensor(scale * law.covariance.times(z))
        units = sample.avoided[r]
        noise = noise - (noise @ units.mT) @ units
        for k, sign in ((0, 1.0), (1, -1.0)):
            tokens = torch.stack([sample.signals[r, k].expand_as(noise), noise], 1).unsqueeze(0)
            output = forward(tokens, path.v[-1, r : r + 1], path.p[-1, r : r + 1]).output[0]
            wrong[r, :, k] = (sign * output < 0).float()
    torch.testing.assert_close(row.sampled, wrong.mean((1, 2)).double())
    means = wrong.mean((0, 2)).double()
    assert row.sampled_mean == pytest.approx(means.mean().item())
    assert row.standard_error == pytest.approx(means.std().item() / math.sqrt(300))
    torch.testing.assert_close(row.train_accuracy, path.train_accuracy[-1])
    torch.testing.assert_close(row.formula, 10 ** log10_error(path.v[-1], path.p[-1], sample), rtol=1e-9, atol=0)


# --- rate ------------------------------------------------------------------------------------------------------------------


def test_gaps_are_those_of_vectors_and_follow_the_expansion():
    row = universality_gaps(Sparse(0.1), (600,), draws=4, points=4000)[0]
    assert row.n == 30
    law = NoiseLaw(30, 600, strength_to_norm(0.5, 30, 600), 0.1, entries=Sparse(0.1))
    sample = law.draw(0, 4, coordinates="dense")
    steps = two_steps(sample, 0.25)
    torch.testing.assert_close(row.formula, 10 ** log10_error(steps.v2, steps.p2, sample), rtol=1e-9, atol=0)
    # Whole vectors, counted: the truth lies where the gap says, and the formula does not.
    z = torch.as_tensor(Sparse(0.1).draw(np.random.default_rng(0), (40_000, 600)))
    scores = scores_at_scale_one(steps.v2, steps.p2, sample)
    v, p = (z @ seen_by_noise(x, sample).mT for x in (steps.v2, steps.p2))
    sign = torch.tensor([1.0, -1.0], dtype=torch.float64)
    output = torch.exp(scores.logit - p.unsqueeze(-1)) * scores.value + sign * v.unsqueeze(-1)
    points = (output < 0).double().mean((1, 2))
    counted, error = points.mean().item(), points.std().item() / 200
    assert abs(row.truth.mean().item() - counted) < 4 * error + 4 * row.standard_error
    assert row.gap == pytest.approx(row.expansion.mean().item(), abs=4 * row.standard_error + 0.15 * abs(row.gap))
    assert abs(row.gap) > 20 * row.standard_error


def test_slopes_and_curvatures_of_the_error():
    row = [torch.tensor([[2.0, -0.7, 0.9]]), torch.tensor([[0.3, -0.2]]), torch.tensor([[1.1, 0.8]])]
    S, logit, value = (x.double() for x in row)
    slopes = noise_rate._slopes(S, logit, value)
    for a in range(3):
        shift = torch.zeros_like(S)
        shift[0, a] = 1e-3
        four = [noise_rate._error_of(S + k * shift, logit, value).item() for k in (-2, -1, 1, 2)]
        exact = (four[0] - 8 * four[1] + 8 * four[2] - four[3]) / 12e-3
        assert slopes[0, a].item() == pytest.approx(exact, rel=1e-6)
    # One entry with squares q carries the whole variance: the expansion is half q' H q.
    q = torch.tensor([0.5, 0.2, 0.3], dtype=torch.float64)
    found = noise_rate._second_order(S, logit, value, q.view(1, 1, 3), 1.0).item()
    three = [noise_rate._error_of(S + k * 1e-3 * q, logit, value).item() for k in (-1, 0, 1)]
    assert found == pytest.approx((three[0] - 2 * three[1] + three[2]) / 2e-6, rel=1e-3)


def test_slope_of_known_gaps():
    one = torch.ones(1, dtype=torch.float64)
    rows = [RateRow(d, d // 20, 0 * one, -3 * d**-0.7 * one, 0.01 * d**-0.7, one, 2000) for d in (100, 300, 1000)]
    slope, error = gap_slope(rows)
    assert slope == pytest.approx(-0.7)
    assert 0 < error < 0.01


# --- traces and spikes -----------------------------------------------------------------------------------------------------


def test_rows_of_traces_against_matrices():
    covariances = {"ar": AutoRegressive(0.5), "half": two_level(1000, 0.5, 1.0), "white": Covariance()}
    rows = trace_rows(covariances, 20, 1000, 0.2 * 20 / 1000, 1.0, draws=6)
    for row in rows:
        ratio = row.log10_error / row.predicted
        assert abs(ratio.mean() - 1) < 4 * ratio.std() / math.sqrt(6) + 0.05, row.name
        assert row.pull.mean() == pytest.approx(row.traces[0], abs=0.06)
    assert rows[0].traces[1] == pytest.approx(1 + 2 * sum((1 - k / 1000) * 0.25**k for k in range(1, 60)))
    assert (rows[0].log10_error.mean() - rows[0].swapped.mean()).abs() > 0.4


test_bad_arguments = refusing(
    (lambda: error_rows(*SMALL, draws=1), "draws must be"),
    (lambda: error_rows(*SMALL, points=1), "points must be"),
    (lambda: error_rows(30, 240, 0.1, -1.0), "step_size must be"),
    (lambda: error_rows(*SMALL, names=["Cauchy"]), "name must be one of 'Gaussian'"),
    (lambda: strength_to_norm(0.0, 10, 100), "strength must be"),
    (lambda: universality_gaps(Entries(), (200,), points=1), "points must be"),
    (lambda: two_level(100, 1.0, 0.5), "trace_square must be"),
    (lambda: two_level(100, 0.005, 0.5), "trace must exceed"),
    (lambda: trace_rows({"w": Covariance()}, 10, 100, 0.1, 1.0, draws=1), "draws must be"),
    (lambda: trace_rows({"w": Diagonal(np.ones(7))}, 10, 100, 0.1, 1.0), "variances must hold d = 100"),
    (spike_draws, (1.0, 10, 100, 0.1, 1.0), {"draws": 1, "strength": -2.0}),
    (
        lambda: two_trace_log10_error(NoiseLaw(10, 100, 3.0), 0.1, *2 * [torch.ones(1, 2).double()], (0.0, 1.0)),
        "traces",
    ),
)
