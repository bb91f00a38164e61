"""Two steps at finite d: every constant of the theorems a second way, and the claims that measure how loose they are."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy import stats

from attnbook.single_head.deviations import (
    at_dimension,
    deviation_bounds,
    drawn,
    log_term,
    smallest_certified_dimension,
    two_step_deviations,
)
from attnbook.single_head.finite_dimension.study import use_of_bounds
from attnbook.single_head.label_counts import count_widths, possible_counts
from attnbook.single_head.mean_field import mean_field
from attnlib.single_head.law import SignalNoiseLaw
from attnlib.single_head.training import gradient_descent

PAPER_SIZE = SignalNoiseLaw(200, 40_000, 30.0, 0.05)


def sigma(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def counts(*values: float) -> torch.Tensor:
    return torch.tensor([values], dtype=torch.float64)


# --- claims ----------------------------------------------------------------------------------------------------------------


def test_the_numbers_that_the_chapter_states():
    """12 360 sets of counts, an error of at most 10^-3.3; least d for all of them and at expected counts; 0.2 n/d."""
    found = drawn(PAPER_SIZE, 0.025, 10, 21, 0.01).found
    effect = found.cross_v - found.frozen_v
    assert (effect**2).mean(1).sqrt().mean() * 40_000 / 200 == pytest.approx(0.2, abs=0.03)
    possible = deviation_bounds(PAPER_SIZE, 0.025, *possible_counts(PAPER_SIZE, 0.005))
    assert len(possible.clean) == 12360
    assert possible.certified.all()
    assert -3.5 < possible.log10_error.max() < -3.3
    d = {t: smallest_certified_dimension(PAPER_SIZE, 0.025, triangle=t) for t in (False, True)}
    assert d[True] / (200**2 * math.log(200 / 0.01)) == pytest.approx(9, abs=0.5)
    assert d[False] / (200 * log_term(200, 0.01)) == pytest.approx(5.5, abs=0.05)
    for multiple, unit, triangle in (
        (8.57, 200 * log_term(200, 0.01), False),
        (13.6, 200**2 * math.log(200 / 0.01), True),
    ):
        for factor, certified in ((0.98, False), (1.02, True)):
            law, step = at_dimension(PAPER_SIZE, 0.025, factor * multiple * unit)
            counts = possible_counts(law, 0.005)
            assert deviation_bounds(law, step, *counts, triangle=triangle).certified.all().item() is certified
    margin = 1.25 * torch.minimum(torch.tensor(2 / 3), _margin_factor(possible.clean, possible.noisy, 0.0225)).min()
    assert 4 * closed_form_constant(1.25, 4.5) ** 2 / margin**2 == pytest.approx(1.4e6, rel=0.03)


# --- what is measured ------------------------------------------------------------------------------------------------------


def test_deviations_are_what_training_gives():
    law = SignalNoiseLaw(12, 300, 6.0, 0.25)
    sample = law.draw(3, 4, coordinates="dense")
    found = two_step_deviations(sample, 0.2)
    path = gradient_descent(sample, 0.2, 2)
    v, p = path.v[-1], path.p[-1]
    noise, y = sample.noise_tokens()[:, :, 0], sample.labels
    close = {"rtol": 1e-9, "atol": 1e-10}
    torch.testing.assert_close(found.margins, path.margins[-1], **close)
    torch.testing.assert_close(found.noise, y * torch.einsum("rnm,rm->rn", noise, v), **close)
    own = torch.einsum("rkm,rm->rk", sample.signals, p)
    torch.testing.assert_close(found.query, own, **close)
    logit = own.gather(1, sample.signal_class) - torch.einsum("rnm,rm->rn", noise, p)
    torch.testing.assert_close(found.logit, logit, **close)
    sign = torch.tensor([1.0, -1.0], dtype=torch.float64)
    torch.testing.assert_close(found.value, sign * torch.einsum("rkm,rm->rk", sample.signals, v), **close)
    a = 0.2 * 300 / 48
    score = y * torch.einsum("rnm,rm->rn", noise, path.v[1]) / a - 1
    torch.testing.assert_close(found.score, score, **close)
    for number, (vector, norm) in {"v": (v, found.v_norm), "p": (p, found.p_norm)}.items():
        flat = (
            vector - torch.einsum("rk,rkm->rm", torch.einsum("rkm,rm->rk", sample.signals, vector), sample.signals) / 36
        )
        torch.testing.assert_close(norm, flat.norm(dim=1), **close), number


# --- the bounds, written out again -----------------------------------------------------------------------------------------


def written_out(n, d, rho, beta, clean, noisy, delta):
    """The theorem's bounds for one set of counts in plain numbers, from the display formulas; Lipschitz constants from corners."""
    a, h, u = beta * d / (4 * n), beta * rho**2 / (4 * n), math.log(14 * n / delta)
    nu = 2 * math.sqrt(u / d) + 2 * u / d + 2 / d
    eps = nu + math.sqrt(2 * (n - 1) * (1 + nu) * u / d)
    tail = math.sqrt(n) + math.sqrt(2 * u)
    rms = math.sqrt(nu**2 + (1 + nu) * tail**2 / d)
    most, least = math.sqrt(d) + tail, math.sqrt(d - 2) - tail
    kinds = {}
    for k, zeta in itertools.product((0, 1), (1, -1)):
        b = h * (clean[k] - noisy[k])

        def g(x, b=b, zeta=zeta):
            return sigma(-(zeta * b + a * (1 + x)) / 2)

        def gamma(x, b=b, zeta=zeta):
            return zeta * b - a * (1 + x)

        corners = [abs(1 + (1 - g(x)) * gamma(z) / 2) for x in (eps, -eps) for z in (eps, -eps)]
        steep = a * min(0.25, g(-eps) * (1 - g(eps))), a * g(-eps) * max(corners)
        top = 1 + 2 * g(0) + steep[0] * eps, g(-eps) * max(abs(gamma(eps)), abs(gamma(-eps)))
        size = clean[k] if zeta > 0 else noisy[k]
        kinds[k, zeta] = {
            "phi": 1 + 2 * g(0),
            "psi": g(0) * gamma(0),
            "steep": steep,
            "top": top,
            "size": size,
            "g": g,
            "gamma": gamma,
        }
    chi = [
        math.sqrt(sum(x["size"] * x["top"][m] ** 2 for x in kinds.values())) * most * math.sqrt(2 * u) / d
        + max(x["steep"][m] for x in kinds.values() if x["size"]) * (1 + nu) * tail**2 / d
        for m in (0, 1)
    ]
    room = [
        [
            h * math.sqrt(n) * rms * math.sqrt(sum(kinds[k, z]["size"] * kinds[k, z]["steep"][m] ** 2 for z in (1, -1)))
            for k in (0, 1)
        ]
        for m in (0, 1)
    ]
    return {
        "a": a,
        "h": h,
        "nu": nu,
        "eps": eps,
        "rms": rms,
        "most": most,
        "least": least,
        "kinds": kinds,
        "chi": chi,
        "room": room,
    }


def test_the_bounds_are_the_theorems_formulas():
    clean, noisy = (97, 93), (4, 6)
    b = deviation_bounds(PAPER_SIZE, 0.025, counts(*clean), counts(*noisy))
    w = written_out(200, 40_000, 30.0, 0.025, clean, noisy, 0.01)
    a, eps, nu = w["a"], w["eps"], w["nu"]
    assert (b.norm, b.score, b.rms) == pytest.approx((nu, eps, w["rms"]), rel=1e-12)
    assert [b.cross_v.item(), b.cross_p.item()] == pytest.approx(w["chi"], rel=1e-12)
    assert b.value_room[0].tolist() == pytest.approx(w["room"][0], rel=1e-12)
    assert b.query_room[0].tolist() == pytest.approx(w["room"][1], rel=1e-12)
    squares = np.zeros((2, 2))
    for (k, zeta), kind in w["kinds"].items():
        j = 0 if zeta > 0 else 1
        (steep_phi, steep_psi), (_, top_psi) = kind["steep"], kind["top"]
        low = a * ((kind["phi"] - steep_phi * eps) * (1 - nu) - w["chi"][0])
        high = a * ((kind["phi"] + steep_phi * eps) * (1 + nu) + w["chi"][0])
        logit = w["room"][1][k] + a * (steep_psi * eps + top_psi * nu + w["chi"][1])
        found = b.noise_low[0, k, j].item(), b.noise_high[0, k, j].item(), b.logit_room[0, k, j].item()
        assert found == pytest.approx((low, high, logit), rel=1e-12)
        squares += kind["size"] * np.array([[max(1, kind["phi"] - steep_phi * eps) ** 2, kind["top"][0] ** 2],
                                            [max(0, abs(kind["psi"]) - steep_psi * eps) ** 2, top_psi**2]])  # fmt: skip
    norms = a / 40_000 * np.array([w["least"], w["most"]]) * np.sqrt(squares)
    np.testing.assert_allclose(torch.cat([b.v_norm, b.p_norm]).numpy(), norms, rtol=1e-12)


def test_cauchy_schwarz_with_the_mean_square():
    """The lemma's formula from the numbers written out above; cross terms of draws lie below it."""
    clean, noisy, n, d = (97, 93), (4, 6), 200, 40_000
    b = deviation_bounds(PAPER_SIZE, 0.025, counts(*clean), counts(*noisy), cauchy_schwarz=True)
    w, u = written_out(n, d, 30.0, 0.025, clean, noisy, 0.01), log_term(n, 0.01)
    for m, (name, found) in enumerate((("phi", b.cross_v), ("psi", b.cross_p))):
        length = math.sqrt(sum(x["size"] * x[name] ** 2 for x in w["kinds"].values()))
        steep = max(x["steep"][m] for x in w["kinds"].values())
        rest = steep * math.sqrt(n) * w["rms"] * (math.sqrt(n) + math.sqrt(2 * u))
        bound = math.sqrt((1 + w["nu"]) / d) * (length * math.sqrt(2 * u) + rest)
        assert found.item() == pytest.approx(bound, rel=1e-12)
    for law, beta in ((PAPER_SIZE, 0.025), (SignalNoiseLaw(40, 4000, 12.0, 0.3), 0.04)):
        own = drawn(law, beta, 20, 8, 0.01)
        b = deviation_bounds(law, beta, own.bounds.clean, own.bounds.noisy, cauchy_schwarz=True)
        assert (own.found.cross_v.abs().amax(1) < b.cross_v).all()
        assert (own.found.cross_p.abs().amax(1) < b.cross_p).all()


def test_which_bound_on_the_cross_terms_asks_for_less():
    """The chapter's numbers: 5.5 and 5.1 at n = 200, 4.6 and 5.6 at n = 6400, equal near n = 1300; 5 n^2 log for the cross terms alone."""
    ratio = {}
    for n, expected in ((200, (5.5, 5.1)), (6400, (4.6, 5.6)), (1200, None), (1400, None)):
        law, step = at_dimension(PAPER_SIZE, 0.025, 40_000, n=n)
        least = [smallest_certified_dimension(law, step, cauchy_schwarz=c) for c in (False, True)]
        ratio[n] = least[1] / least[0]
        if expected:
            assert [d / (n * log_term(n, 0.01)) for d in least] == pytest.approx(expected, abs=0.06)
    assert ratio[1200] < 1 < ratio[1400]
    possible = possible_counts(PAPER_SIZE, 0.005)
    for factor, certified in ((0.98, False), (1.02, True)):
        law, step = at_dimension(PAPER_SIZE, 0.025, factor * 8.06 * 200 * log_term(200, 0.01))
        assert deviation_bounds(law, step, *possible, cauchy_schwarz=True).certified.all().item() is certified
    pairs = {tuple(sorted(zip(c, f, strict=True))) for c, f in zip(*(x.tolist() for x in possible), strict=True)}
    for multiple, certified in ((4.7, False), (5.4, True)):
        law, step = at_dimension(PAPER_SIZE, 0.025, multiple * 200**2 * math.log(200 / 0.01))
        rooms = (_room_with_crude_cross_terms(law, step, *zip(*pair, strict=True)) for pair in pairs)
        assert all(room > 0 for room in rooms) is certified


def _room_with_crude_cross_terms(law, step, clean, noisy):
    """Of the worst flipped sample, as the certificate has it, but each cross term at most 1.1 sqrt(2 d log(n^2/delta)); by hand."""
    n, d = law.n, law.d
    w = written_out(n, d, law.signal_norm, step, clean, noisy, 0.01)
    pair = 1.1 * math.sqrt(2 * math.log(n**2 / 0.01) / d)
    cross = [pair * sum(x["size"] * x["top"][m] for x in w["kinds"].values()) for m in (0, 1)]
    rooms = []
    for k in (0, 1):
        value, query = (
            w["h"] * sum(sign * w["kinds"][k, z]["size"] * w["kinds"][k, z][name] for z, sign in ((1, 1), (-1, minus)))
            for name, minus in (("phi", -1), ("psi", 1))
        )
        for z in (1, -1):
            kind = w["kinds"][k, z]
            (steep_phi, steep_psi), (_, top_psi) = kind["steep"], kind["top"]
            noise = w["a"] * ((kind["phi"] - steep_phi * w["eps"]) * (1 - w["nu"]) - cross[0])
            if kind["size"] and (noise <= 0 or value <= w["room"][0][k]):
                return -math.inf
            if kind["size"] and z < 0:
                logit = query + w["room"][1][k]
                logit += w["a"] * (kind["psi"] + steep_psi * w["eps"] + top_psi * w["nu"] + cross[1])
                rooms.append(math.log(noise / (value + w["room"][0][k])) - logit)
    return min(rooms, default=math.inf)


def test_bounds_hold_where_they_are_meant_to_hold():
    """Other sizes than the page's, a weak and a strong signal, much label noise: 60 draws each, none may leave its bounds."""
    for n, d, rho, eta, beta in ((40, 4000, 12.0, 0.3, 0.04), (60, 3000, 3.0, 0.1, 0.1), (30, 900, 20.0, 0.1, 0.2)):
        used = use_of_bounds(drawn(SignalNoiseLaw(n, d, rho, eta), beta, 60, 8, 0.01))
        assert max(x.max().item() for x in used.values()) <= 1


def test_a_step_that_no_dimension_certifies_is_refused():
    with pytest.raises(ValueError, match="some d certifies"):
        smallest_certified_dimension(PAPER_SIZE, 0.005)


# --- the closed form -------------------------------------------------------------------------------------------------------


def closed_form_constant(a, level):
    r"""K of the theorem: all margins are within $K\sqrt{nu/d}$ of mean field, for n >= 16 and d >= 16 n u.

    a: beta d/4n; level: s = n SNR^2. A polynomial:
    $K = a\max(as/4,\, 6.8 + 0.6a) + \tfrac34 a^2(1+s)[(s+2.3)\Lambda + 2.3\Gamma]$, $\Gamma = a(s+1.6)$, $\Lambda = a(1+\Gamma/2)$.
    """
    gamma = a * (level + 1.6)
    steep = a * (1 + gamma / 2)
    moved = (level + 2.3) * steep + 2.3 * gamma
    return a * max(a * level / 4, 6.8 + 0.6 * a) + 0.75 * a**2 * (1 + level) * moved


@pytest.mark.parametrize("n", [16, 40, 1000, 10**6])
@pytest.mark.parametrize("stretch", [1, 7, 10**4])
@pytest.mark.parametrize("delta", [0.999, 1e-2, 1e-9])
def test_the_numbers_in_the_proof_of_the_closed_form(n, stretch, delta):
    u = math.log(14 * n / delta)
    d = math.ceil(16 * n * u * stretch)
    r = math.sqrt(n * u / d)
    nu = 2 * math.sqrt(u / d) + 2 * u / d + 2 / d
    tail = (math.sqrt(n) + math.sqrt(2 * u)) / math.sqrt(d)
    assert nu <= 0.54 * r
    assert nu + math.sqrt(2 * (n - 1) * (1 + nu) * u / d) <= 2.05 * r
    assert tail <= 0.784 * r
    assert math.sqrt(nu**2 + (1 + nu) * tail**2) <= r
    assert math.sqrt(n) * (1 + tail) * math.sqrt(2 * u / d) <= 1.7 * r  # per unit of W
    assert (1 + nu) * tail**2 <= 0.18 * r  # per unit of Lambda
    assert 2 * (1 + tail) ** 2 < 2.9
    assert 18 * (1 + tail) ** 2 < 26


@pytest.mark.parametrize(("a", "s"), [(1.25, 4.5), (0.5, 3.0), (3.0, 10.0)])
def test_closed_form_constant_adds_up(a, s):
    gamma = a * (s + 1.6)
    steep = a * (1 + gamma / 2)
    value, noise = a**2 * s / 4, a * (6.8 + 0.6 * a)
    logit = a * ((s + 2.3) * steep + 2.3 * gamma)
    assert closed_form_constant(a, s) == pytest.approx(max(value, noise) + (3 * a * s + 3 * a) / 4 * logit, rel=1e-12)


def test_closed_form_is_above_the_bounds():
    """K r is at least what the separate bounds allow for any margin, at d = 16 n u and far beyond."""
    for factor in (16, 300):
        d = math.ceil(factor * 200 * log_term(200, 0.01))
        law, beta = SignalNoiseLaw(200, d, math.sqrt(4.5 * d / 200), 0.05), 1000 / d
        b = deviation_bounds(law, beta, counts(97, 93), counts(4, 6))
        r = math.sqrt(200 * log_term(200, 0.01) / d)
        spread = torch.maximum((b.noise_high - b.noise_low).amax() / 2, b.value_room.max())
        steepest = (b.value.max() + b.field.v_noise_noisy.max()) / 4
        assert spread + steepest * b.logit_room.max() <= closed_form_constant(1.25, 4.5) * r


def _margin_factor(clean, noisy, snr2):
    kappa, eta = snr2 * (clean - noisy), noisy / (clean + noisy)
    return kappa * (1 - 4 * eta) / (1 - 2 * eta)


def test_mean_field_margins_from_below():
    """A grid of counts, signals and steps: wherever the step condition holds, so does the bound; and not far beyond it."""
    clean = torch.arange(55.0, 125.0, 5, dtype=torch.float64)
    noisy = torch.arange(1.0, 24.0, 2, dtype=torch.float64)
    c, m = (x.flatten() for x in torch.meshgrid(clean, noisy, indexing="ij"))
    met = missed = 0
    for rho, multiple in itertools.product((22.0, 26.0, 30.0, 40.0, 60.0), (1.0, 2.0, 3.0, 4.0, 5.0, 7.0)):
        law, beta = SignalNoiseLaw(200, 40_000, rho, 0.1), multiple / 200
        a, kappa, eta = multiple / 4, law.snr**2 * (c - m), m / (c + m)
        need = torch.log(2 * kappa) + 2.17 * kappa * (kappa - 1) / (kappa + 1) ** 2 * (1 - eta) / (1 - 2 * eta)
        good = (kappa >= 1) & (eta < 0.25) & (a**2 * (1 + kappa) / 2 >= need)
        field = mean_field(law, beta, torch.stack([c, c], 1), torch.stack([m, m], 1))
        least = torch.minimum(field.margin2_clean, field.margin2_noisy)[:, 0]
        bound = a * _margin_factor(c, m, law.snr**2).clamp_max(2 / 3)
        assert (least >= bound)[good].all()
        met += int(good.sum())
        missed += int(((least <= 0) & (kappa >= 1) & (eta < 0.25)).sum())
    assert met > 100
    assert missed > 100  # the condition is needed: without it margins can be negative


# --- label counts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "eta"), [(200, 0.05), (50, 0.3), (1000, 0.01), (20, 0.0)])
@pytest.mark.parametrize("failure", [0.1, 0.01, 1e-4])
def test_label_counts_stay_within_c4(n, eta, failure):
    """Exact binomial tails: each of the eight is at most failure/8, and half the widths would not do for the clean counts."""
    clean, noisy = count_widths(n, eta, failure)
    for p, width in (((1 - eta) / 2, clean), (eta / 2, noisy)):
        law = stats.binom(n, p)
        assert law.sf(math.floor(n * p + width)) <= failure / 8
        assert law.cdf(math.ceil(n * p - width) - 1) <= failure / 8
    law = stats.binom(n, (1 - eta) / 2)
    assert law.sf(math.floor(n * (1 - eta) / 2 + clean / 2)) > failure / 8
    assert noisy == pytest.approx(
        math.sqrt(2 * n * (eta / 2) * (1 - eta / 2) * math.log(8 / failure)) + math.log(8 / failure) / 3
    )


def test_possible_counts_are_all_of_them():
    law = SignalNoiseLaw(20, 100, 3.0, 0.1)
    clean, noisy = possible_counts(law, 0.2)
    c, m = count_widths(20, 0.1, 0.2)
    expected = {
        (c1, 20 - c1 - n1 - n2, n1, n2)
        for c1, n1, n2 in itertools.product(range(21), repeat=3)
        if abs(c1 - 9) <= c
        and abs(20 - c1 - n1 - n2 - 9) <= c
        and abs(n1 - 1) <= m
        and abs(n2 - 1) <= m
        and c1 + n1 + n2 <= 20
    }
    found = [tuple(int(x) for x in row) for row in torch.cat([clean, noisy], 1)]
    assert len(found) == len(set(found))
    assert set(found) == expected
