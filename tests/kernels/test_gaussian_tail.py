"""The population error's three forms: against 30-digit quadrature, against each other over many decades, and where formulas end."""

import math

import numpy as np
import pytest
import torch

from attnlib.kernels import dispatch
from attnlib.kernels.gaussian_tail import log_error
from attnlib.quadrature import lobatto, log_integral
from tests.kernels.gaussian_tail_cases import EXACT, HEADS, MEETING_WALLS, SPECIAL, by_mpmath, sweep, tensors

FORMS = [
    "reference",
    pytest.param("compiled", marks=pytest.mark.skipif(not dispatch.has_numba(), reason="numba is not installed")),
]


@pytest.fixture(scope="module")
def exact():
    """log err of `HEADS` with 30 digits, which are those that other tests take from the list."""
    made = [by_mpmath(*head) for head in HEADS]
    assert made == pytest.approx(EXACT, rel=1e-14)
    return torch.tensor(made, dtype=torch.float64)


def _off(found, expected):
    """Difference in log err where that is small, else relative to it: the relative error of err, or that of its logarithm."""
    return (found - expected).abs() / expected.abs().clamp_min(1.0)


@pytest.mark.parametrize("form", FORMS)
def test_thirty_digits(form, exact):
    found = log_error(*tensors(HEADS), implementation=form)
    torch.testing.assert_close(found, exact, rtol=3e-12, atol=3e-12)
    assert exact.max() > -0.7
    assert exact.min() < -20_000
    logit, value, omega, along, tau = tensors(HEADS)
    assert _off(log_error(logit, value, omega, along, tau * 1.001, implementation=form), exact).max() > 1e-5


@pytest.mark.parametrize("form", FORMS)
def test_the_mirrored_head_is_wrong_where_this_one_is_right(form):
    """err(V, c) + err(-V, -c) = 1, by the symmetry of the output; c keeps its sign only by mistake."""
    logit, value, omega, along, tau = sweep(200, seed=6)
    err, mirrored = (
        log_error(logit, sign * value, omega, sign * along, tau, implementation=form).exp() for sign in (1, -1)
    )
    torch.testing.assert_close(err + mirrored, torch.ones_like(err), rtol=0, atol=1e-11)
    against = log_error(logit, -value, omega, along, tau, implementation=form).exp()
    assert (err + against - 1).abs().max() > 0.1
    # and one of them from the formula, by the trapezoidal rule
    head = tensors([(2.0, -1.0, 1.0, 0.5, 1.0)])
    t = torch.linspace(-12, 12, 200_001, dtype=torch.float64)
    weight = torch.exp(-t * t / 2) / math.sqrt(2 * math.pi)
    by_hand = torch.trapezoid(weight * torch.special.ndtr(torch.exp(2.0 - t) - 0.5 * t), t)
    assert log_error(*head, implementation=form).exp().item() == pytest.approx(by_hand.item(), rel=1e-10)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("head", "expected", "why"), SPECIAL, ids=[why for _, _, why in SPECIAL])
def test_special_cases(form, head, expected, why):
    found = log_error(*tensors([head]), implementation=form)[0].item()
    if not math.isfinite(expected):
        assert found == expected or (math.isnan(found) and math.isnan(expected))
    else:
        assert found == pytest.approx(expected, rel=1e-11, abs=0)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("head", "exact"), MEETING_WALLS)
def test_panels_end_although_rounding_is_louder_at_a_wall_than_at_the_mode(form, head, exact):
    """The compiled form once halved its panels down to rounding, and ended before the wall: 3 % of the error was missing."""
    assert log_error(*tensors([head]), implementation=form).item() == pytest.approx(exact, rel=1e-7)


@pytest.mark.parametrize("form", FORMS)
def test_a_useless_entry_spoils_no_other(form):
    good = tensors(HEADS[:3])
    mixed = tensors([HEADS[0], *(head for head, _, _ in SPECIAL), HEADS[1], HEADS[2]])
    found = log_error(*mixed, implementation=form)
    assert torch.equal(found[[0, -2, -1]], log_error(*good, implementation=form))


@pytest.mark.parametrize("form", FORMS)
def test_far_below_every_number(form):
    """V = 1, c = 0: the least of (e^(a - omega t)/tau)^2/2 + t^2/2 is -log err to first order, also at 10^(-10^90)."""
    logit = torch.tensor([1e3, 1e10, 1e45, 3.3e90], dtype=torch.float64)
    one, none = torch.ones_like(logit), torch.zeros_like(logit)
    found = log_error(logit, one, one, none, one, implementation=form)
    distance = logit - torch.log(logit) / 2  # where e^(a - t) = t^(1/2), to first order
    torch.testing.assert_close(found / (-(distance**2) / 2), one, rtol=2e-2, atol=0)
    torch.testing.assert_close(found[1:], -(logit[1:] ** 2) / 2, rtol=1e-8, atol=0)


@pytest.mark.skipif(not dispatch.has_numba(), reason="numba is not installed")
def test_compiled_equals_reference_over_many_decades():
    heads = sweep(2000)
    reference, compiled = (log_error(*heads, implementation=form) for form in ("reference", "compiled"))
    assert reference.min() < -1e10
    assert reference.max() > -1e-4
    torch.testing.assert_close(compiled, reference, rtol=1e-11, atol=1e-11)
    assert _off(compiled, reference).quantile(0.99) < 1e-13
    # and with little noise besides that along p: walls that stand close, errors of every size
    logit, value, omega, along, tau = sweep(500, seed=1)
    heads = (logit / 10, value, omega, along, tau * 1e-5)
    reference, compiled = (log_error(*heads, implementation=form) for form in ("reference", "compiled"))
    assert not compiled.isnan().any()
    impossible = reference.isneginf()
    assert torch.equal(impossible, compiled.isneginf())
    torch.testing.assert_close(compiled, reference, rtol=1e-9, atol=1e-9)


def test_scaled_tail_series():
    pytest.importorskip("numba", reason="numba is not installed")
    from attnlib.kernels.gaussian_tail import _loops

    z = torch.cat([torch.linspace(0, 30, 3001, dtype=torch.float64), torch.logspace(1.5, 90, 500, dtype=torch.float64)])
    y = (z - _loops.CENTRE) / (z + _loops.CENTRE)
    found = torch.from_numpy(np.polynomial.polynomial.polyval(y.numpy(), _loops.ERFCX))
    torch.testing.assert_close(found / (1 + 2 * z), torch.special.erfcx(z), rtol=1e-14, atol=0)


def test_lobatto_rule():
    nodes, weights, rows = lobatto(16)
    assert nodes[0] == -1
    assert nodes[-1] == 1
    for degree in range(30):
        assert weights @ nodes**degree == pytest.approx(0 if degree % 2 else 2 / (degree + 1), abs=1e-14)
    assert abs(weights @ nodes**30 - 2 / 31) > 1e-10
    coefficients = np.random.default_rng(0).normal(size=16)
    assert rows @ np.polynomial.legendre.legval(nodes, coefficients) == pytest.approx(coefficients[-2:], abs=1e-12)


def test_a_wall_at_the_end_of_a_panel_is_seen():
    """e^h = e^(-t^2/2) Phi(-k (t - b)) has the integral sqrt(2 pi) Phi(k b/sqrt(1 + k^2)): whatever k, wherever b."""
    wall = torch.tensor([1e2, 1e3, 1e5, 1e7], dtype=torch.float64).repeat_interleave(60)
    place = torch.linspace(-3, 4, 60, dtype=torch.float64).repeat(4)

    def log_density(t, k, b):
        return torch.special.log_ndtr(-k * (t - b)) - t * t / 2

    def slope(t, k, b):
        return -t - k * math.sqrt(2 / math.pi) / torch.special.erfcx(k * (t - b) / math.sqrt(2))

    def rounding(t, k, b):
        return 1 + k * (t.abs() + b.abs()) / (1 + (k * (t - b)).abs())

    found = log_integral(log_density, slope, (wall, place), rounding)
    expected = torch.special.log_ndtr(place / torch.sqrt(1 + wall**-2)) + math.log(2 * math.pi) / 2
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-11)


@pytest.mark.skipif(not dispatch.has_numba(), reason="numba is not installed")
def test_threads_and_neighbours_change_no_bit():
    heads = sweep(700, seed=2)
    one = log_error(*heads, threads=1, implementation="compiled")
    for threads in (2, 3, None):
        assert torch.equal(log_error(*heads, threads=threads, implementation="compiled"), one)
    alone = torch.cat([log_error(*(x[i : i + 1] for x in heads), implementation="compiled") for i in range(0, 700, 37)])
    assert torch.equal(alone, one[::37])


@pytest.mark.parametrize("form", FORMS)
def test_any_shape_and_layout(form):
    heads = sweep(24, seed=3)
    flat = log_error(*heads, implementation=form)
    cube = [x.view(2, 3, 4) for x in heads]
    assert torch.equal(log_error(*cube, implementation=form), flat.view(2, 3, 4))
    turned = [x.transpose(0, 2) for x in cube]
    assert torch.equal(log_error(*turned, implementation=form), flat.view(2, 3, 4).transpose(0, 2))
    scattered = [torch.stack([x, -x], 1)[:, 0] for x in heads]
    assert torch.equal(log_error(*scattered, implementation=form), flat)
    assert log_error(*(x[0] for x in heads), implementation=form).shape == ()
    for shape in ((0,), (0, 2), (3, 0)):
        assert log_error(*(x.new_zeros(shape) for x in heads), implementation=form).shape == shape
    kept = [x.clone() for x in heads]
    log_error(*(x.requires_grad_() for x in heads), implementation=form)
    assert all(torch.equal(a, b) for a, b in zip(heads, kept, strict=True))


@pytest.mark.parametrize("form", FORMS)
def test_other_precisions_are_computed_in_float64(form):
    heads = [x.float() for x in sweep(50, seed=4)]
    found = log_error(*heads, implementation=form)
    assert found.dtype == torch.float32
    assert torch.equal(found, log_error(*(x.double() for x in heads), implementation=form).float())


@pytest.mark.skipif(not dispatch.has_numba(), reason="numba is not installed")
def test_the_dispatch(monkeypatch):
    monkeypatch.delenv(dispatch.VARIABLE, raising=False)
    heads = sweep(40, seed=5)
    compiled, reference = (log_error(*heads, implementation=form) for form in ("compiled", "reference"))
    assert not torch.equal(compiled, reference)
    assert torch.equal(log_error(*heads), compiled)
    monkeypatch.setenv(dispatch.VARIABLE, "reference")
    assert torch.equal(log_error(*heads), reference)
    assert any("population error: compiled, float64 on cpu" in line for line in dispatch.ran())
