"""Phase diagrams: every cell has the numbers of summarise, borders lie where calculation by hand puts them; judges of strips."""

import dataclasses
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from attnbook.single_head import phase as module
from attnbook.single_head.phase import phase_diagram, phase_plan, write_grid
from attnbook.single_head.phase_cells import two_step_cells
from attnbook.single_head.phase_diagram import claims as claims_phase
from attnbook.single_head.phase_diagram.claims import CLAIMS
from attnbook.single_head.phase_diagram.figure import PHASE_COLOURS, draw_phases, phase_legend
from attnbook.single_head.phase_diagram.strips import borders, crossing, label_counts, largest_of_normals, phase_study
from attnbook.single_head.phase_theory import (
    fit_threshold,
    lower_snr_limit,
    mean_field_readings,
    preference_spread,
    preference_threshold,
)
from attnlib.single_head.closed_form import two_steps
from attnlib.single_head.law import SignalNoiseLaw
from attnlib.single_head.population import log10_error_of_scores
from attnlib.single_head.summary import summarise
from bookkit.claims import Verdict
from bookkit.rules import NothingToMeasure
from tests.bad_input import refusing


def _plans():
    snr = np.geomspace(0.05, 0.9, 5)
    sizes = np.array([7, 13, 29])[:, None]
    steps, eta = np.array([0.3, 2.0, 9.0])[:, None], np.array([0.0, 0.07, 0.3])[:, None]
    ratio = np.array([0.03, 0.5, 1.0, 7.0])
    dims = np.maximum(np.rint(ratio * sizes**2), 3)
    return {
        "snr-n": phase_plan(snr, sizes[:, 0], n=sizes, d=501, signal_norm=snr * 501**0.5, label_noise=0.1, step_size=5 * sizes / 501),
        "snr-step": phase_plan(snr, steps[:, 0], n=23, d=301, signal_norm=snr * 301**0.5, label_noise=0.2, step_size=steps * 23 / 301),
        "noise-snr": phase_plan(snr, eta[:, 0], n=17, d=211, signal_norm=snr * 211**0.5, label_noise=eta, step_size=0.3),
        "d-n": phase_plan(ratio, sizes[:, 0], n=sizes, d=dims, label_noise=0.1, step_size=5 * sizes / dims,
                          signal_norm=(4.5 * dims / sizes) ** 0.5),
    }  # fmt: skip


PLANS = _plans()


@pytest.mark.parametrize("name", PLANS)
def test_every_cell_equals_summarise(name):
    plan = PLANS[name]
    diagram = phase_diagram(plan, draws=3, seed=4)
    for cell in np.ndindex(*plan.shape):
        law = SignalNoiseLaw(
            int(plan.n[cell]), int(plan.d[cell]), float(plan.signal_norm[cell]), float(plan.label_noise[cell])
        )
        one = summarise(law, float(plan.step_size[cell]), draws=3, seed=4)
        for field in (
            "train_accuracy_step1",
            "train_accuracy",
            "attention_clean",
            "attention_noisy",
            "log10_clean_error",
        ):
            ours = getattr(diagram, field.replace("clean_error", "error"))[cell]
            np.testing.assert_allclose(
                ours, getattr(one, field).numpy(), rtol=1e-10, atol=1e-10, err_msg=f"{cell} {field}"
            )
        np.testing.assert_array_equal(diagram.interpolates[cell], one.interpolates.numpy())


def test_preference_and_signal_score_of_p_from_the_dense_vectors():
    """gamma_i and p_2 . mu_k by gradient descent on one draw with d-vectors; the batched cells from the same vectors."""
    from attnlib.single_head.training import gradient_descent

    law = SignalNoiseLaw(31, 400, 9.0, 0.2)
    sample = law.draw(1, 1, coordinates="dense")
    path = gradient_descent(sample, 0.4, 2)
    noise, v1, p2 = sample.noise_tokens()[0, :, 0], path.v[1, 0], path.p[2, 0]
    gamma = sample.labels[0] * ((sample.signals[0][sample.signal_class[0]] - noise) @ v1)
    clean, classes = ~sample.noisy[0], sample.signal_class[0]
    shares = [(gamma[clean & (classes == k)] > 0).double().mean() for k in (0, 1)]
    uniforms = torch.where(clean, 0.9, 0.0).double()
    cells = two_step_cells(
        noise, classes, uniforms, *(torch.tensor([x, x], dtype=torch.float64) for x in (9.0, 0.2, 0.4))
    )
    assert cells.preference[1] == pytest.approx((sum(shares) / 2).item(), abs=1e-12)
    assert cells.p_signal[0] == pytest.approx((sample.signals[0] @ p2).mean().item(), rel=1e-10)
    assert cells.smallest_margin[0] == pytest.approx(path.margins[2].min().item(), rel=1e-10)


def test_vanishing_attention_is_not_taken_for_harm():
    """eta = 0 and a huge step: p_2 is too small to be squared, so the error is the linear head's, Phi(-V_k / |Pi v_2|)."""
    law = SignalNoiseLaw(50, 4000, 0.9 * 4000**0.5, 0.0)
    step = 150 * 50 / 4000
    sample = law.draw(0, 1)
    ours = two_step_cells(
        sample.tokens[0, :, 1],
        sample.signal_class[0],
        torch.ones(50, dtype=torch.float64),
        *(torch.tensor([x], dtype=torch.float64) for x in (law.signal_norm, 0.0, step)),
    )
    assert 0 < ours.p_signal.item() < 1e-155  # its square is zero in float64
    v2 = two_steps(sample, step).v2[0]
    value = torch.tensor([1.0, -1.0], dtype=torch.float64) * (sample.signals[0] @ v2)
    linear = torch.special.log_ndtr(-value / v2[2:].norm())
    expected = (torch.logsumexp(linear, 0) - math.log(2)) / math.log(10)
    assert log10_error_of_scores(ours.fresh).item() == pytest.approx(expected.item(), rel=1e-9)
    for smaller in (1e-180, 1e-200, 1e-300):  # however small, the same error
        weak = dataclasses.replace(ours.fresh, omega=ours.fresh.omega * 0 + smaller)
        assert log10_error_of_scores(weak).item() == pytest.approx(expected.item(), rel=1e-9)


def test_phases_and_uncertain_cells_by_hand():
    diagram = phase_diagram(PLANS["noise-snr"], draws=10, errors=False)
    margin = np.full((3, 5, 10), 1.0)
    error = np.full((3, 5, 10), -5.0)
    margin[0, 0, :], margin[0, 1, :2] = -1.0, 0.0  # nobody fits; two of ten do not
    error[1, 0, :], error[1, 1, 0] = -0.301, -0.301
    made = dataclasses.replace(diagram, smallest_margin=margin, log10_error=error)
    phase, uncertain = made.phase()
    assert [phase[0, 0], phase[0, 1], phase[1, 0], phase[1, 1], phase[2, 2]] == [0, 2, 1, 2, 2]
    assert uncertain.sum() == 1
    assert uncertain[0, 1]


# --- the file


def same(a, b):
    for name in module._OUTCOMES:
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))


def test_chunks_change_no_number(monkeypatch):
    whole = phase_diagram(PLANS["snr-n"], draws=3)
    monkeypatch.setattr(module, "_CHUNK_CELLS", 8)
    assert len(list(module._chunks(PLANS["snr-n"], 3))) > 4
    same(phase_diagram(PLANS["snr-n"], draws=3), whole)


def test_grid_for_other_programs(tmp_path):
    plan = PLANS["noise-snr"]
    diagram = phase_diagram(plan, draws=3)
    write_grid(diagram, tmp_path / "grid.npz")
    with np.load(tmp_path / "grid.npz") as file:
        np.testing.assert_array_equal(file["x"], plan.x)
        np.testing.assert_array_equal(file["label_noise"], plan.label_noise)
        np.testing.assert_allclose(file["log10_error_mean"], diagram.log10_error.mean(-1))
        assert (file["log10_error_min"] <= file["log10_error_max"]).all()
        np.testing.assert_array_equal(file["interpolating_fraction"] == 1, diagram.interpolates.all(-1))
    assert [p.name for p in tmp_path.iterdir()] == ["grid.npz"]


# --- bad input


# --- theory and fits


def test_formulas_by_hand():
    assert preference_threshold(200, 0.05) == pytest.approx((2 / 0.9 / 200) ** 0.5)
    assert lower_snr_limit(10, 1000, 0.0) == pytest.approx(math.sqrt(2) * 10_000**-0.25)
    counts = np.random.default_rng(0)
    n, eta = 400, 0.1
    y = np.where(counts.random((20_000, n)) < eta, -1, 1)
    b = np.where(counts.random((20_000, n)) < 0.5, y, 0).sum(1)
    sampled = np.log(b).std() / 2
    assert preference_spread(n, 10**12, eta) == pytest.approx(sampled, rel=0.03)


def test_mean_field_readings_at_the_paper_size_and_at_the_lower_limit():
    snr = np.array([lower_snr_limit(200, 10**9, 0.05), 0.15])
    plan = phase_plan(snr, [2.0, 5.0], n=200, d=10**9, signal_norm=snr * 1e9**0.5, label_noise=0.05,
                      step_size=np.array([2.0, 5.0])[:, None] * 200 / 1e9)  # fmt: skip
    margin, strength = mean_field_readings(plan)
    np.testing.assert_allclose(strength[:, 0], 0.0, atol=0.01)
    assert margin[0, 1] < 0 < margin[1, 1]


def test_fit_finds_a_known_curve_rising_and_falling():
    from scipy.special import ndtr

    x, rng = np.geomspace(0.1, 10, 30), np.random.default_rng(0)
    offsets = 0.1 * rng.standard_normal(60)
    shares = ndtr((np.log(x)[:, None] - math.log(1.7) - offsets) / 0.3)
    for values in (shares, 1 - shares):
        fit = fit_threshold(x, values)
        assert fit.verdict == "inside"
        assert fit.location == pytest.approx(1.7 * math.exp(offsets.mean()), rel=0.01)
        assert fit.low < fit.location < fit.high
        assert fit.width == pytest.approx(math.hypot(0.3, 0.1), rel=0.05)
        assert fit.log_error == pytest.approx(0.1 / 60**0.5, rel=0.3)
        assert fit.log_error > 0.005


def test_threshold_off_the_grid_is_a_verdict_not_a_number():
    x = np.geomspace(1, 2, 5)
    fit = fit_threshold(x, np.full((5, 3), 0.1) + np.linspace(0, 0.2, 5)[:, None])
    assert fit.verdict == "outside"
    assert math.isnan(fit.location)
    assert "no crossing of 1/2 between 1 and 2" in fit.reason


# --- refusals

ONE, CLASSES = torch.ones(2, dtype=torch.float64), torch.tensor([0, 1, 1])
GOOD = {"x": [1.0, 2.0], "y": [1.0, 2.0], "n": 5, "d": 30, "signal_norm": 2.0, "label_noise": 0.1, "step_size": 0.1}


def cells(classes=CLASSES, steps=ONE):
    return two_step_cells(torch.ones(3, 2, dtype=torch.float64), classes, torch.zeros(3).double(), ONE, ONE, steps)


def test_drawing_shows_three_phases_and_the_uncertain_cells():
    diagram = phase_diagram(PLANS["snr-step"], draws=4)
    figure = Figure()
    axes = figure.subplots()
    draw_phases(axes, diagram)
    phase, uncertain = diagram.phase()
    np.testing.assert_array_equal(axes.collections[0].get_array().reshape(diagram.plan.shape), phase)
    # Harmful and benign cells, and no others, are graded by their median error.
    error = np.median(diagram.log10_error, axis=-1)
    for code, sign in ((1, 1), (2, -1)):
        graded = axes.collections[code].get_array().reshape(diagram.plan.shape)
        np.testing.assert_array_equal(graded.mask, phase != code)
        np.testing.assert_array_equal(graded.compressed(), sign * error[phase == code])
    dots = next(c for c in axes.collections if c.get_label() == "draws disagree")
    assert len(dots.get_offsets()) == uncertain.sum()
    phase_legend(figure, axes)
    assert [text.get_text() for text in figure.legends[0].get_texts()][:3] == list(PHASE_COLOURS)


@pytest.fixture(scope="module")
def study():
    return phase_study(200, 40_000, 30.0, 0.05, 0.025, draws=30, seed=3)


def test_without_label_noise_the_claims_about_flips_are_outside_their_regime():
    silent = phase_study(40, 4000, 20.0, 0.0, 0.05, draws=4)
    verdicts = {check.claim.id: check for check in CLAIMS.check(silent)}
    for id in ("S3", "S7", "S8", "S8b"):
        assert verdicts[id].verdict == Verdict.OUTSIDE
        assert "eta" in verdicts[id].violated
    assert verdicts["S12"].violated.startswith("needs ")
    assert verdicts["S9"].violated == "needs n >= 150 and d >= 100 n; here 40, 4000"
    assert verdicts["S1"].violated == "needs 30 draws or more for a standard error of the fit; here 4"


def test_a_border_off_the_strip_is_nothing_to_measure():
    x = np.array([1.0, 2.0, 4.0])
    assert math.isnan(crossing(x, np.array([1.0, 2.0, 3.0])))
    assert crossing(x, np.array([-1.0, 1.0, 3.0])) == pytest.approx(2**0.5)
    assert crossing(x, np.array([3.0, 1.0, -3.0]), last=True) == pytest.approx(2 * 2**0.25)
    one, size = np.ones(40), SimpleNamespace(n=200, d=40_000)
    with pytest.raises(NothingToMeasure, match="lies outside"):
        claims_phase._between(size, [(one, one * math.inf, one * math.inf)], 1.0, "x")
    with pytest.raises(NothingToMeasure, match="lies outside"):
        claims_phase._between(size, [(np.repeat([1.0, math.inf], [19, 21]), one, one)], 1.0, "x")


def test_a_border_two_per_cent_beside_its_prediction_is_refused():
    """2 (n + 1)/d is one per cent here. With two ends, a border between them is accepted."""
    rng, size = np.random.default_rng(4), SimpleNamespace(n=200, d=40_000)
    predicted = np.exp(rng.normal(0, 0.1, 40))
    own = predicted * np.exp(rng.normal(0, 0.004, 40))

    def judge(factor, low=1.0, high=1.0):
        return claims_phase._between(size, [(factor * own, low * predicted, high * predicted)], 1.0, "x").holds

    assert judge(1.0)
    assert not judge(1.02)
    assert not judge(0.98)
    assert judge(1.1, 1.0, 1.2)
    assert not judge(1.25, 1.0, 1.2)
    own[:10] = predicted[:10] = np.inf  # a draw without a border agrees with every prediction, and counts for none
    assert judge(1.0)
    assert not judge(1.1)


@pytest.mark.weekly
def test_counts_of_a_row_are_those_of_the_drawn_samples(study):
    clean, noisy = label_counts(study.high, 4)
    law = SignalNoiseLaw(200, 40_000, 30.0, 0.2)
    wanted = law.draw(3, 5).counts()
    np.testing.assert_array_equal(clean[:5], wanted[0])
    np.testing.assert_array_equal(noisy[:5], wanted[1])


def test_expected_largest_of_normals():
    """Two: 1 / sqrt(pi), three: 3 / (2 sqrt(pi)), exactly."""
    assert largest_of_normals(1) == pytest.approx(0, abs=1e-9)
    assert largest_of_normals(2) == pytest.approx(math.pi**-0.5, rel=1e-9)
    assert largest_of_normals(3) == pytest.approx(1.5 * math.pi**-0.5, rel=1e-9)


@pytest.mark.weekly
def test_borders_of_draws_off_the_strip_keep_their_rank(study):
    """Of 30 own borders the median is the border at which half of the draws are fitted, to one grid step."""
    own, *predicted = borders(study.steps, 1, "fitted")
    share = study.steps.interpolates[1].mean(-1)
    first = int(np.flatnonzero(share > 0.5)[0])
    assert study.steps.plan.x[first - 1] <= np.median(own) <= study.steps.plan.x[first]
    never = dataclasses.replace(study.steps, smallest_margin=-np.ones_like(study.steps.smallest_margin))
    always = dataclasses.replace(study.steps, smallest_margin=np.ones_like(study.steps.smallest_margin))
    assert (borders(never, 1, "fitted")[0] == math.inf).all()
    assert (borders(always, 1, "fitted")[0] == 0).all()
    np.testing.assert_array_equal(borders(always, 1, "fitted")[1:], predicted)


def test_few_flips_leave_a_class_without_one():
    """S8b speaks of draws with flips in both classes; at eta = 0.02 and n = 200 a quarter of the draws has none in one class."""
    assert claims_phase._unflipped(SimpleNamespace(n=200, label_noise=0.02)).endswith("here 0.268")
    assert claims_phase._unflipped(SimpleNamespace(n=200, label_noise=0.05)) == ""


@pytest.mark.parametrize(
    ("name", "value"), [("n", 10), ("label_noise", 0.5), ("draws", 1), ("step_size", 0.0), ("d", 2)]
)
def test_refusals(name, value):
    good = {"n": 40, "d": 4000, "signal_norm": 20.0, "label_noise": 0.05, "step_size": 0.05, "draws": 4}
    with pytest.raises(ValueError, match=f"{name} must be"):
        phase_study(**(good | {name: value}))


test_bad_input = refusing(
    (lambda: phase_plan(**GOOD | {"x": [1.0]}), "x must be a list of 2 numbers or more"),
    (lambda: phase_plan(**GOOD | {"y": 3.0}), "y must be a list of 2 numbers or more"),
    (lambda: phase_plan(**GOOD | {"x": [2.0, 1.0]}), "x must be finite and strictly rising"),
    (lambda: phase_plan(**GOOD | {"x": [1.0, 1.0]}), "strictly rising"),
    (lambda: phase_plan(**GOOD | {"y": [1.0, math.nan]}), "y must be finite"),
    (lambda: phase_plan(**GOOD | {"x": ["a", "b"]}), "x must be a list of numbers"),
    (lambda: phase_plan(**GOOD | {"n": [3, 4, 5]}), r"n must be a number or numbers that broadcast to \(2, 2\)"),
    (lambda: phase_plan(**GOOD | {"n": 20.5}), "n must hold whole numbers"),
    (lambda: phase_plan(**GOOD | {"d": 2}), "d must be a whole number >= 3"),
    (lambda: phase_plan(**GOOD | {"label_noise": 0.6}), "label_noise must be"),
    (lambda: phase_plan(**GOOD | {"step_size": [[0.1], [-0.1]]}), "step_size must be a finite number > 0"),
    (lambda: phase_plan(**GOOD | {"signal_norm": "loud"}), "signal_norm must be a number"),
    (lambda: phase_diagram({"x": 1}), "plan must be a PhasePlan"),
    (lambda: phase_diagram(PLANS["snr-n"], draws=0), "draws must be"),
    (lambda: cells(CLASSES.double()), "classes must be whole numbers"),
    (lambda: cells(steps=ONE[:1]), "step_size must have shape"),
    (lambda: fit_threshold([1.0, 2.0], np.zeros((2, 3))), "x must be three points"),
    (lambda: fit_threshold([3.0, 2.0, 1.0], np.zeros((3, 3))), "positive and rising"),
    (lambda: fit_threshold([1.0, 2.0, 3.0], np.zeros((3, 1))), "shares must be"),
    (lambda: fit_threshold([1.0, 2.0, 3.0], np.full((3, 2), math.nan)), r"shares must lie in \[0, 1\]"),
)
