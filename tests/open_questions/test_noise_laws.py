"""IV.4: counted errors, the rate of the gap, traces and spikes; claims and controls."""

import math
from types import SimpleNamespace as Study

import numpy as np
import pytest
import torch
from scipy import stats

from attnbook.open_questions.noise import (
    AutoRegressive,
    Covariance,
    NoiseLaw,
    Sparse,
    log10_error,
    scores_at_scale_one,
    seen_by_noise,
    strength_to_norm,
    two_level,
)
from attnbook.open_questions.noise_laws import rate as noise_rate
from attnbook.open_questions.noise_laws.claims import CLAIMS, CORRELATED, RADIAL, _with_points
from attnbook.open_questions.noise_laws.rate import universality_gaps
from attnbook.open_questions.noise_laws.study import error_rows, law_named, noise_study, trace_rows
from attnlib.randomness import stream
from attnlib.single_head.closed_form import two_steps
from attnlib.single_head.model import forward
from attnlib.single_head.training import gradient_descent
from bookkit.rules import LEVEL, mean_within
from tests.worlds import worlds


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


def test_rows_of_traces_against_matrices():
    covariances = {"ar": AutoRegressive(0.5), "half": two_level(1000, 0.5, 1.0), "white": Covariance()}
    rows = trace_rows(covariances, 20, 1000, 0.2 * 20 / 1000, 1.0, draws=6)
    for row in rows:
        ratio = row.log10_error / row.predicted
        assert abs(ratio.mean() - 1) < 4 * ratio.std() / math.sqrt(6) + 0.05, row.name
        assert row.pull.mean() == pytest.approx(row.traces[0], abs=0.06)
    assert rows[0].traces[1] == pytest.approx(1 + 2 * sum((1 - k / 1000) * 0.25**k for k in range(1, 60)))
    assert (rows[0].log10_error.mean() - rows[0].swapped.mean()).abs() > 0.4


def test_gaussian_rows_only_fail_the_claims_that_need_other_laws():
    rows = error_rows(60, 1000, 0.1, 0.25, draws=10, points=2000, names=["Gaussian"])
    plain = Study(rows=dict.fromkeys(("Rademacher", "uniform", "radial t3"), rows["Gaussian"]))
    assert not CLAIMS["Q32"].seen(plain).holds
    assert CLAIMS["Q31"].seen(plain).holds


def test_two_errors_are_added_as_welch_does():
    """`_with_points` against scipy's Welch test of two samples with these standard errors."""
    rng = np.random.default_rng(0)
    draws, points = rng.normal(0.0, 1.0, 12), rng.normal(0.0, 3.0, 40)
    error = points.std(ddof=1) / 40**0.5
    found = _with_points(mean_within(torch.from_numpy(draws), low=0.0), 0.3, error, 40, 0.0, 1.0)
    known = stats.ttest_ind(draws, points, equal_var=False)
    whole = abs((draws.mean() - points.mean()) / known.statistic)
    assert found.numbers["standard_error"] == pytest.approx(whole)
    assert float(found.rule.split(" s.e.")[0]) == pytest.approx(-stats.t.ppf(LEVEL / 2, known.df), rel=5e-3)


def test_a_weak_signal_above_the_strong_one_is_refused():
    with pytest.raises(ValueError, match=r"strengths must be two values of n SNR\^2, the smaller first"):
        noise_study(100, 2000, 0.1, 5.0, strengths=(4.5, 0.5))


# --- claims and their controls, each in its own world ----------------------------------------------------------------------

DRAWS = 60


def around(value, spread=1e-3):
    """(DRAWS,): draws whose mean is the value."""
    return value * (1 + spread * torch.linspace(-1, 1, DRAWS, dtype=torch.float64))


def counted(formula, white, names=("a law",)):
    """One row of each law; the two formulas as multiples of the counted error."""
    row = Study(
        formula=around(0.2 * formula), white=around(0.2 * white), sampled=around(0.2), sampled_mean=0.2,
        standard_error=1e-4, points=1000,
    )  # fmt: skip
    return Study(rows={name: [row] for name in names})


def light_and_sparse(*formulas):
    names = ("Rademacher", "uniform", "sparse 1 %")
    return Study(rows={name: counted(f, 1.0).rows["a law"] for name, f in zip(names, formulas, strict=True)})


def gaps(ratio):
    row = Study(
        truth=0.2 - 0.01 * around(ratio), formula=torch.full((DRAWS,), 0.2), expansion=torch.full((DRAWS,), -0.01),
        standard_error=1e-4, points=1000,
    )  # fmt: skip
    return Study(rates={"sparse 10 %": [row] * 3, "sparse 1 %": [row]})


def traced(log10_error, pull):
    row = Study(
        log10_error=around(log10_error), predicted=around(-3.0, 0), swapped=around(-2.0, 0), traces=(1.0, 1.6),
        pull=around(pull), name="AR(1) .5",
    )  # fmt: skip
    return Study(small=[row], large=[row])


def spike(width, power):
    zeta = width * torch.special.ndtri((torch.arange(200, dtype=torch.float64) + 0.5) / 200)
    errors = {1: -3 + zeta.abs(), 2: -2 + zeta.abs()}
    return Study(spike=Study(zeta=zeta, log10_error=errors[power], from_zeta=errors[2], one_power=errors[1]))


KNOWN = (*CORRELATED, "not orthogonal")


@pytest.mark.parametrize(
    ("id", "own", "others"),
    [
        ("Q31", light_and_sparse(1.0, 1.0, 1.3), [light_and_sparse(1.3, 1.0, 1.0), light_and_sparse(1.0, 1.3, 1.0)]),
        ("Q32", counted(1.0, 1.7, ["radial t3"]), [counted(1.7, 1.0, ["radial t3"])]),
        ("Q71", counted(1.0, 1.7, RADIAL), [counted(1.7, 1.0, RADIAL)]),
        ("Q72", counted(1.0, 1.7, KNOWN), [counted(1.7, 1.0, KNOWN), counted(1 / 1.2, 1.7, KNOWN)]),
        ("Q73", gaps(1.0), [gaps(1.3)]),
        ("Q75", traced(-3.0, 1.0), [traced(-2.0, 1.0), traced(-3.0, 1.6), traced(-3.9, 1.3)]),
        ("Q74", spike(1.0, 2), [spike(1.0, 1), spike(2**-0.5, 2)]),
    ],
)  # fmt: skip
def test_claims_and_controls_each_hold_in_their_own_world(id, own, others):
    assert worlds(CLAIMS[id], own, *others) == []
