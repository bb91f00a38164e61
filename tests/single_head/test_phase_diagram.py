"""Page I.5: borders of strips, what the judges do with them, and the pictures."""

import dataclasses
import math
from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.figure import Figure

from attnbook.single_head.phase import phase_diagram
from attnbook.single_head.phase_diagram import claims
from attnbook.single_head.phase_diagram.claims import CLAIMS
from attnbook.single_head.phase_diagram.figure import PHASE_COLOURS, draw_phases, phase_legend
from attnbook.single_head.phase_diagram.study import borders, crossing, label_counts, largest_of_normals, phase_study
from attnlib.single_head.law import SignalNoiseLaw
from bookkit.claims import Verdict
from bookkit.rules import NothingToMeasure
from tests.single_head.test_phase import PLANS


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
    for id in ("S7", "S8", "S8b"):
        assert verdicts[id].verdict == Verdict.OUTSIDE
        assert "eta" in verdicts[id].violated
    assert verdicts["S12"].violated.startswith("needs ")
    assert verdicts["S9"].violated == "needs n >= 150 and d >= 100 n; here 40, 4000"


def test_a_border_off_the_strip_is_nothing_to_measure():
    x = np.array([1.0, 2.0, 4.0])
    assert math.isnan(crossing(x, np.array([1.0, 2.0, 3.0])))
    assert crossing(x, np.array([-1.0, 1.0, 3.0])) == pytest.approx(2**0.5)
    assert crossing(x, np.array([3.0, 1.0, -3.0]), last=True) == pytest.approx(2 * 2**0.25)
    one, size = np.ones(40), SimpleNamespace(n=200, d=40_000)
    with pytest.raises(NothingToMeasure, match="lies outside"):
        claims._between(size, [(one, one * math.inf, one * math.inf)], 1.0, "x")
    with pytest.raises(NothingToMeasure, match="lies outside"):
        claims._between(size, [(np.repeat([1.0, math.inf], [19, 21]), one, one)], 1.0, "x")


def test_a_border_two_per_cent_beside_its_prediction_is_refused():
    """2 (n + 1)/d is one per cent here. With two ends, a border between them is accepted."""
    rng, size = np.random.default_rng(4), SimpleNamespace(n=200, d=40_000)
    predicted = np.exp(rng.normal(0, 0.1, 40))
    own = predicted * np.exp(rng.normal(0, 0.004, 40))

    def judge(factor, low=1.0, high=1.0):
        return claims._between(size, [(factor * own, low * predicted, high * predicted)], 1.0, "x").holds

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
    assert claims._unflipped(SimpleNamespace(n=200, label_noise=0.02)).endswith("here 0.268")
    assert claims._unflipped(SimpleNamespace(n=200, label_noise=0.05)) == ""
