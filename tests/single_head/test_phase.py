"""Phase diagrams: every cell has the numbers of summarise; theory lines by hand."""

import dataclasses
import math

import numpy as np
import pytest
import torch

from attnbook.single_head import phase as module
from attnbook.single_head.phase import phase_diagram, phase_plan, write_grid
from attnbook.single_head.phase_cells import two_step_cells
from attnbook.single_head.phase_theory import (
    lower_snr_limit,
    mean_field_readings,
    preference_spread,
    preference_threshold,
)
from attnlib.single_head.closed_form import two_steps
from attnlib.single_head.errors import log10_error_of_scores
from attnlib.single_head.law import SignalNoiseLaw
from attnlib.single_head.summary import summarise
from attnlib.single_head.training import gradient_descent


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


def test_chunks_change_no_number(monkeypatch):
    whole = phase_diagram(PLANS["snr-n"], draws=3)
    monkeypatch.setattr(module, "_CHUNK_CELLS", 8)
    assert len(list(module._chunks(PLANS["snr-n"], 3))) > 4
    parts = phase_diagram(PLANS["snr-n"], draws=3)
    for name in module._OUTCOMES:
        np.testing.assert_array_equal(getattr(parts, name), getattr(whole, name))


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
