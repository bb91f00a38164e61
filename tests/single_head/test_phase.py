"""Phase diagrams: every cell has the numbers of `summarise`; borders lie where calculation by hand puts them."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from attnbook.single_head import phase as module
from attnbook.single_head.phase import phase_diagram, phase_plan, write_grid
from attnbook.single_head.phase_cells import two_step_cells
from attnbook.single_head.phase_diagram.figure import PHASE_COLOURS, draw_phases, phase_legend
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


test_refusals = refusing(
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


def test_drawing_shows_three_phases_and_the_uncertain_cells():
    diagram = phase_diagram(PLANS["snr-step"], draws=4)
    figure = Figure()
    axes = figure.subplots()
    draw_phases(axes, diagram)
    phase, uncertain = diagram.phase()
    np.testing.assert_array_equal(axes.collections[0].get_array().reshape(diagram.plan.shape), phase)
    dots = next(c for c in axes.collections if c.get_label() == "draws disagree")
    assert len(dots.get_offsets()) == uncertain.sum()
    phase_legend(figure, axes)
    assert [text.get_text() for text in figure.legends[0].get_texts()][:3] == list(PHASE_COLOURS)
