"""Two steps in the browser: mean field, exact errors, the diagram, real training sets and the words, against attnlib."""

import json
import math
import re

import numpy as np
import pytest
import torch

from attnbook.explorers import two_steps
from attnbook.explorers.__main__ import FOLDER, script
from attnbook.single_head.mean_field import mean_field, mean_field_log10_error
from attnbook.single_head.phase import phase_plan
from attnbook.single_head.phase_cells import two_step_cells
from attnbook.single_head.phase_theory import lower_snr_limit, mean_field_readings, preference_threshold
from attnbook.single_head.typical_error import benign_share
from attnlib.kernels import gaussian_tail
from attnlib.single_head.errors import FreshScores, log10_error_of_scores
from attnlib.single_head.law import SignalNoiseLaw
from attnlib.single_head.summary import summarise
from tests.explorers.node import ROOT, evaluate

ENDS = {  # of the sliders, as book/scripts/two_steps/settings.js has them
    "n": (10, 2000),
    "d": (100, 1e8),
    "signal_norm": (0.05, 20_000),
    "label_noise": (0, 0.45),
    "step": (0.1, 60),
    "first_class_share": (0, 1),
}
FIELDS = [
    *("a b margin1_clean margin1_noisy slope_clean slope_noisy preference_clean preference_noisy p_signal".split()),
    *("p_noise_clean p_noise_noisy attention_clean attention_noisy v_signal v_noise_clean v_noise_noisy".split()),
    *("margin2_clean margin2_noisy".split()),
]


def _settings() -> list[dict]:
    """The page's point, both ends of every slider around it, and eighty random points."""
    page = {"n": 200, "d": 40_000, "signal_norm": 30.0, "label_noise": 0.05, "step": 5.0, "first_class_share": 0.5}
    found = [page, *(page | {key: end} for key, ends in ENDS.items() for end in ends)]
    rng = np.random.default_rng(4)
    for number in range(80):
        n, d = (round(math.exp(rng.uniform(*np.log(ENDS[k])))) for k in ("n", "d"))
        n_snr2, step = (math.exp(rng.uniform(*np.log(ends))) for ends in ((0.0072, 450.0), ENDS["step"]))
        eta, share = rng.uniform(0, 0.45), rng.uniform(0, 1) if number % 2 else 0.5
        found.append(
            {
                "n": n,
                "d": d,
                "signal_norm": math.sqrt(n_snr2 * d / n),
                "label_noise": eta if number % 5 else 0.0,
                "step": step,
                "first_class_share": share,
            }
        )
    return found


def _counts(s: dict) -> tuple[torch.Tensor, torch.Tensor]:
    flips = [
        s["first_class_share"] * s["label_noise"] * s["n"],
        (1 - s["first_class_share"]) * s["label_noise"] * s["n"],
    ]
    noisy = torch.tensor([flips], dtype=torch.float64)
    return s["n"] / 2 - noisy, noisy


def _arguments(s: dict) -> tuple:
    return SignalNoiseLaw(int(s["n"]), int(s["d"]), float(s["signal_norm"])), s["step"] * s["n"] / s["d"], *_counts(s)


def _error_of(logit, value, omega, along, tau) -> float:
    """log10 of the mean error of both classes."""
    parts = (torch.tensor([one], dtype=torch.float64) for one in (logit, value, omega, along, tau))
    return log10_error_of_scores(FreshScores(*parts)).item()


@pytest.fixture(scope="module")
def points() -> list[tuple[dict, dict]]:
    settings = _settings()
    return list(zip(settings, evaluate("two_steps", [("point", s) for s in settings]), strict=True))


def test_mean_field_of_every_setting(points):
    for s, found in points:
        field = mean_field(*_arguments(s))
        for name in FIELDS:
            expected = getattr(field, name)
            expected = expected if name == "a" else expected[0].tolist()
            assert found["field"][name] == pytest.approx(expected, rel=1e-9, abs=1e-300), (name, s)


def test_exact_error_of_every_setting_however_small(points):
    depths = []
    for s, found in points:
        expected = mean_field_log10_error(*_arguments(s)).item()
        depths.append(expected)
        assert found["error2"]["total"] == pytest.approx(expected, rel=1e-8), s
        # After one step there is no attention: Phi(-b_k / |Pi v_1|).
        unit = _arguments(s)[1] / (4 * s["n"])
        zero, width = [0.0, 0.0], unit * math.sqrt(s["n"] * s["d"])
        first = _error_of(zero, found["field"]["b"], zero, zero, [width, width])
        assert found["error1"]["total"] == pytest.approx(first, rel=1e-8), s
    assert min(depths) < -16_000
    assert max(depths) > -0.302
    classes = [(s["first_class_share"] == 0.5, found["error2"]["classes"]) for s, found in points]
    for shared, (one, other) in classes:
        assert not shared or one == pytest.approx(other, rel=0, abs=1e-9)
    assert (
        max(abs(one - other) for shared, (one, other) in classes if not shared) > 0.1
    )  # they differ when their flips do


def test_the_integral_alone_at_every_depth_and_on_both_sides():
    rng = np.random.default_rng(7)
    logit, value = rng.uniform(-6, 6, 200), rng.choice([-1, 1], 200) * np.exp(rng.uniform(-8, 4, 200))
    omega, tau = np.exp(rng.uniform(-8, 2.5, 200)), np.exp(rng.uniform(-9, 2, 200))
    along = rng.normal(size=200) * tau * 3
    names = ("logit", "value", "omega", "along", "tau")
    columns = (logit, value, omega, along, tau)
    special = [
        (0, 0, 0, 0, 0),
        (0, 1, 1, 0, 0),
        (0, -1, 1, 0, 0),
        (2, 1, 0.5, 0.3, 0),
        (1, 0, 0, 1, 1),
        (0, 3, 0, 0, 1),
    ]
    rows = [*zip(*columns, strict=True), *special]
    found = evaluate("two_steps", [("logError", dict(zip(names, row, strict=True))) for row in rows])
    exact = gaussian_tail.log_error(
        *torch.tensor(np.array(rows, dtype=float)).T.contiguous(), implementation="reference"
    ).tolist()
    assert min(one for one in exact if math.isfinite(one)) < -1e4
    for row, one, expected in zip(rows, found, exact, strict=True):
        assert one == pytest.approx(expected, rel=1e-8, abs=1e-12), row


def test_coefficients_are_those_of_the_closed_forms(points):
    """v_2 and p_2 rebuilt from the coefficients give back the scores of mean field."""
    for s, found in points:
        law, beta, clean, noisy = _arguments(s)
        d, rho = law.d, law.signal_norm
        unit, own, field = beta / (4 * s["n"]), found["coefficients"], found["field"]
        for k, sign in enumerate((1, -1)):
            assert sign * own["lambda1"][k] * unit * rho**2 == pytest.approx(field["b"][k], rel=1e-9, abs=1e-300)
            assert sign * own["lambda2"][k] * unit * rho**2 == pytest.approx(field["v_signal"][k], rel=1e-9, abs=1e-12)
            assert own["p_signal"][k] * unit * rho**2 == pytest.approx(field["p_signal"][k], rel=1e-9, abs=1e-300)
            for kind in ("clean", "noisy"):
                assert own[f"theta2_{kind}"][k] * unit * d == pytest.approx(field[f"v_noise_{kind}"][k], rel=1e-9)
                assert own[f"p_noise_{kind}"][k] * unit * d == pytest.approx(
                    field[f"p_noise_{kind}"][k], rel=1e-9, abs=1e-300
                )
        assert found["kappa"] == pytest.approx((field["b"][0] + field["b"][1]) / 2 / field["a"], rel=1e-9, abs=1e-9)
        assert clean.sum() + noisy.sum() == pytest.approx(s["n"])


def test_diagram_and_its_borders():
    """Rows of another size than columns; the same cells from attnlib, and the borders as formulas."""
    snr, steps, eta = np.geomspace(0.01, 1, 7), np.geomspace(0.2, 30, 5), 0.1
    n, d = 60, 9_000
    plan = phase_plan(
        snr, steps, n=n, d=d, signal_norm=snr * math.sqrt(d), label_noise=eta, step_size=steps[:, None] * n / d
    )
    margin, strength = mean_field_readings(plan)
    law = {"n": n, "d": d, "label_noise": eta}
    whole, part, low, kappa, need = evaluate(
        "two_steps",
        [
            ("diagramRows", {**law, "snr": snr, "steps": steps}),
            ("diagramRows", {**law, "snr": snr, "steps": steps, "rows": [2, 4]}),
            ("lowerSnrLimit", law),
            ("preferenceThreshold", law),
            ("theoremDimension", law),
        ],
    )
    np.testing.assert_allclose(whole["margin"], margin, rtol=1e-9)
    np.testing.assert_allclose(whole["strength"], strength, rtol=1e-9)
    assert part["margin"] == whole["margin"][2:4]
    half = torch.full((1, 2), n / 2, dtype=torch.float64)
    for j, step in enumerate(steps):
        for i, ratio in enumerate(snr):
            error = mean_field_log10_error(
                SignalNoiseLaw(n, d, ratio * math.sqrt(d)), step * n / d, (1 - eta) * half, eta * half
            ).item()
            if margin[j, i] > 0:
                assert whole["error"][j][i] == pytest.approx(error, rel=1e-4, abs=1e-4)
            else:
                assert math.isnan(whole["error"][j][i])
    assert np.isnan(whole["error"]).any()
    assert low == pytest.approx(lower_snr_limit(n, d, eta), rel=1e-12)
    assert kappa == pytest.approx(preference_threshold(n, eta), rel=1e-12)
    assert need == pytest.approx(n**2 * math.log(n / 0.01), rel=1e-12)


def test_step_from_which_flipped_labels_are_fitted():
    setting = {"n": 200, "d": 40_000, "signal_norm": 30.0, "label_noise": 0.05, "step": 0.5}
    (enough,) = evaluate("two_steps", [("fittingStep", setting)])
    counts = _counts(setting | {"first_class_share": 0.5})
    below, above = (
        mean_field(SignalNoiseLaw(200, 40_000, 30.0), enough * factor * 200 / 40_000, *counts).margin2_noisy[0, 0]
        for factor in (0.999, 1.001)
    )
    assert below < 0 < above
    assert enough > setting["step"]


def test_training_in_the_browser_is_training():
    """The same noise, classes and flips: margins and the exact error of two_step_cells, n unlike m."""
    rng = np.random.default_rng(0)
    noise, classes, uniforms = 4 * rng.normal(size=(30, 21)), rng.integers(0, 2, 30), rng.random(30)
    settings = [(8.0, 0.2, 0.7), (3.0, 0.0, 0.1), (20.0, 0.3, 3.0)]
    columns = (torch.tensor(column, dtype=torch.float64) for column in zip(*settings, strict=True))
    cells = two_step_cells(*(torch.as_tensor(x) for x in (noise, classes, uniforms)), *columns)
    errors = log10_error_of_scores(cells.fresh)
    calls = [
        {
            "noise": noise,
            "classes": classes,
            "flipped": (uniforms < eta).tolist(),
            "signal_norm": rho,
            "step_size": beta,
        }
        for rho, eta, beta in settings
    ]
    for i, found in enumerate(evaluate("two_steps", [("trainOn", call) for call in calls])):
        assert found["log10_error"] == pytest.approx(errors[i].item(), rel=1e-9)
        assert min(found["margins2"]) == pytest.approx(cells.smallest_margin[i].item(), rel=1e-9)
        assert np.mean(np.array(found["margins1"]) > 0) == cells.train_accuracy_step1[i]
        flipped = np.array(calls[i]["flipped"])
        assert np.array(found["attention"])[~flipped].mean() == pytest.approx(cells.attention_clean[i].item(), rel=1e-9)


def test_random_sets_of_the_browser_follow_the_law():
    """Bartlett's rows have the law's lengths and angles; errors agree with attnlib's draws within their standard errors."""
    n, d = 40, 900
    draws = evaluate(
        "two_steps", [("drawSet", {"n": n, "d": d, "label_noise": 0.2, "seed": seed}) for seed in range(30)]
    )
    noise = np.array([one["noise"] for one in draws])
    gram = noise @ noise.transpose(0, 2, 1)
    lengths = np.einsum("rii->ri", gram)
    assert lengths.mean() == pytest.approx(d - 2, abs=4 * math.sqrt(2 * d / lengths.size))
    assert lengths.var() == pytest.approx(2 * (d - 2), rel=0.2)
    angles = gram[:, *np.triu_indices(n, 1)]
    assert abs(angles.mean()) < 4 * math.sqrt(d / angles.size)
    assert angles.var() == pytest.approx(d - 2, rel=0.05)
    assert np.mean([one["flipped"] for one in draws]) == pytest.approx(0.2, abs=4 * math.sqrt(0.16 / 1200))
    assert np.mean([one["classes"] for one in draws]) == pytest.approx(0.5, abs=4 * math.sqrt(0.25 / 1200))

    law = {"n": 60, "d": 3_000, "signal_norm": 15.0, "label_noise": 0.1, "step": 4.0}
    (sets,) = evaluate("two_steps", [("trainSets", law | {"count": 60})])
    ours = np.log([-one["log10_error"] for one in sets])  # label counts spread the exponent; its logarithm is tame
    theirs = np.log(
        -summarise(SignalNoiseLaw(60, 3_000, 15.0, 0.1), 4.0 * 60 / 3_000, draws=60, seed=1).log10_clean_error.numpy()
    )
    spread = math.hypot(ours.std(ddof=1), theirs.std(ddof=1)) / math.sqrt(60)
    assert abs(ours.mean() - theirs.mean()) < 3.5 * spread < math.log(2)  # half the exponent would fail


@pytest.mark.parametrize("freedom", [1, 2, 5, 998])
def test_chi_variables(freedom):
    (values,) = evaluate("two_steps", [("chis", {"freedom": freedom, "count": 4000, "seed": 3})])
    squares = np.square(values)
    assert squares.mean() == pytest.approx(freedom, abs=4 * math.sqrt(2 * freedom / 4000))
    assert squares.var() == pytest.approx(2 * freedom, rel=0.25)


CASES = [
    ({}, "benign", "Attention does it"),
    ({"signal_norm": 10.0}, "benign", "One step is enough"),
    ({"label_noise": 0.0}, "benign", "no flipped labels"),
    ({"step": 2.0}, "not fitted", "takes <i>βd/n</i> ≥ 2.2"),
    ({"step": 30.0}, "harmful", "step is too large"),
    ({"signal_norm": 2.0}, "harmful", "signal is too weak"),
    ({"signal_norm": 7.0}, "benign", "of fresh points are wrong"),  # between a hundredth and a tenth
]


@pytest.mark.parametrize(("changes", "word", "reason"), CASES)
def test_verdict_in_words(changes, word, reason):
    state = {
        "n": 200,
        "d": 40_000,
        "signal_norm": 30.0,
        "label_noise": 0.05,
        "step": 5.0,
        "first_class_share": 0.5,
    } | changes
    found, point = evaluate("two_steps", [("verdict", {"state": state}), ("point", state)])
    assert found["word"] == word
    assert reason in found["sentence"]
    assert "theorem is silent" in found["sentence"]  # d = 40 000 < n^2 log(n / 0.01)
    expected = {"benign": 2, "harmful": 1, "not fitted": 0}[word]
    assert point["phase"] == expected == (0 if point["smallest"] <= 0 else 2 if point["error2"]["total"] < -1 else 1)


def test_words_for_errors_and_warnings():
    large = {"n": 30, "d": 1_000_000, "signal_norm": 300.0, "label_noise": 0.1, "step": 4.0, "first_class_share": 0.5}
    rough = large | {"d": 300, "signal_norm": 5.0}
    calls = [("verdict", {"state": large}), ("verdict", {"state": rough})]
    calls += [("errorInWords", {"log10_error": one}) for one in (-16.3, -0.301, -1.5, -378.63)]
    fine, coarse, tiny, half, few, least = evaluate("two_steps", calls)
    assert "theorem" not in fine["sentence"]
    assert "is rough" not in fine["sentence"]
    assert "The prediction for orthogonal noise is rough here" in coarse["sentence"]
    assert tiny == "1 in 2×10¹⁶ fresh points is wrong"
    assert least == "1 in 4.3×10³⁷⁸ fresh points is wrong"  # more than a floating-point number can hold
    assert half == "50 % of fresh points are wrong"
    assert few == "3.2 % of fresh points are wrong"


def test_random_sets_are_told_by_their_median_and_the_share_of_benign_ones():
    """Three rare sets of ten: the mean of their logarithms is -1500, and says nothing about any of them."""
    errors = [-5000.0, -0.6, -0.3, -0.6, -0.6, -0.3, -5000.0, -0.6, -0.6, -5000.0]
    sets = [{"fits": True, "log10_error": error} for error in errors]
    asked = {"sets": sets, "refusal": "", "label_noise": 0.05}
    calls = [("benignOf", asked), ("trainedInWords", asked), ("trainedInWords", asked | {"label_noise": 0})]
    count, told, plain = evaluate("two_steps", calls)
    assert count / 10 == benign_share(errors, 0.05).value == 0.3
    assert "10 fit every label, 3 err less often than their labels, median error 0.25." in told  # 10^-0.6
    assert "less often" not in plain
    on_the_edge = [{"fits": True, "log10_error": one} for one in (math.log10(0.2) - 1e-9, math.log10(0.2) + 1e-9)]
    assert evaluate("two_steps", [("benignOf", {"sets": on_the_edge, "label_noise": 0.2})]) == [1]


def stored_diagrams() -> dict:
    text = (FOLDER / "two_steps.js").read_text(encoding="utf-8")
    return json.loads(re.sub(r"^.*?\] = |;\n$", "", text))


def test_the_file_is_what_the_program_writes():
    stored = stored_diagrams()
    assert (FOLDER / "two_steps.js").read_text(encoding="utf-8") == script("two_steps", stored)
    assert stored["proved"] == two_steps.proved_cells()
    first = stored["maps"][0]
    assert (first["n"], first["d"], first["label_noise"]) == (200, 40_000, 0.05)
    assert [first["snr"][0], first["snr"][-1]] == [0.006, 1.5]
    assert len(stored["maps"]) == len(two_steps.SETTINGS)


@pytest.mark.parametrize("number", range(len(two_steps.SETTINGS)))
def test_measured_cells_are_those_of_the_page(number):
    """Each stored diagram again, at cells of two rows and three neighbouring columns where the error changes most."""
    stored = stored_diagrams()
    small = stored["maps"][number]
    rows = np.array([3, 20])
    falls = np.abs(np.diff(np.array(small["log10_error"], dtype=float)[rows], axis=1)).sum(0)
    columns = int(falls[:-1].argmax()) + np.arange(3)
    n, d, eta = small["n"], small["d"], small["label_noise"]
    snr, steps = two_steps.snr_axis(n)[columns], two_steps.STEPS[rows]
    plan = phase_plan(
        snr, steps, n=n, d=d, signal_norm=snr * math.sqrt(d), label_noise=eta, step_size=steps[:, None] * n / d
    )
    again = two_steps.phase_diagram(plan, draws=two_steps.DRAWS, seed=stored["seed"])
    for j, row in enumerate(rows):
        for i, column in enumerate(columns):
            assert small["fitted"][row][column] == again.interpolates[j, i].sum()
            assert small["phase"][row][column] == str(again.phase()[0][j, i])
            assert small["log10_error"][row][column] == pytest.approx(np.median(again.log10_error[j, i]), rel=6e-3)


def test_slider_ends_are_the_tested_ones():
    text = (ROOT / "book" / "scripts" / "two_steps" / "settings.js").read_text(encoding="utf-8")
    for key, (low, high) in ENDS.items():
        low_text, high_text = re.search(rf'key: "{key}",.*?\bmin: ([\d.e]+),\s+max: ([\d.e]+)', text, re.S).groups()
        assert (float(low_text), float(high_text)) == (low, high), key
