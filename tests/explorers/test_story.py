"""The story in pictures: its numbers are those of a run made now, found a second way, and drawn where they say."""

import json
import math
import re
from dataclasses import replace
from typing import Any

import nbformat
import numpy as np
import pytest
import torch

from attnbook.in_context.estimators import kernel_weights
from attnbook.single_head.flow import flow_path
from attnbook.single_head.mean_field import mean_field_log10_error
from attnbook.story import run
from attnlib.single_head import gradient_descent, two_steps
from bookkit.results import read_results
from tests.explorers.node import ROOT, evaluate
from tests.rounding import of_digits

FOLDER = ROOT / "book" / "assets" / "story"
STORED = json.loads((FOLDER / "run.json").read_text(encoding="utf-8"))
HEAD, LONG, CLOCK, PROMPT = (STORED[name] for name in ("head", "long", "clock", "prompt"))
PANELS = ["sample", "head", "pulls", "sides", "fresh", "race", "clock", "pair", "shelves"]
SHARES = [eta for eta, _ in STORED["thresholds"]]
# The ends of every slider.
STATES: dict[str, list[dict[str, Any]]] = {
    "sample": [{"look": 0}, {"look": 199}],
    "head": [{"signal": 4, "noise": -4}, {"signal": -4, "noise": 4}],
    "pulls": [{"length": 10}, {"length": 36}],
    "sides": [{"step": 0}, {"step": 6}],
    "fresh": [{"signal": 4, "step": 0.2, "flips": 0}, {"signal": 200, "step": 40, "flips": 0.3}],
    "race": [{"x": 0.5, "flips": SHARES[0]}, {"x": 5, "flips": SHARES[-1]}],
    "clock": [{"face": 0}, {"face": 7}],
    "pair": [{"omega": 0.01}, {"omega": 3}],
    "shelves": [{}],
}


def differences(stored: Any, made: Any, at: str = "") -> list[str]:
    """Where two structures differ: numbers by more than one part in ten thousand."""
    if isinstance(stored, dict):
        if stored.keys() != made.keys():
            return [f"{at}: {sorted(stored.keys() ^ made.keys())}"]
        return [one for key in stored for one in differences(stored[key], made[key], f"{at}.{key}")]
    if isinstance(stored, list):
        if len(stored) != len(made):
            return [f"{at}: {len(stored)} and {len(made)}"]
        return [one for i, pair in enumerate(zip(stored, made, strict=True)) for one in differences(*pair, f"{at}.{i}")]
    same = stored == made if isinstance(stored, str) else stored == pytest.approx(made, rel=1e-4, abs=1e-9)
    return [] if same else [f"{at}: {stored} and {made}"]


@pytest.fixture(scope="module")
def sample() -> Any:
    return run.LAW.draw(seed=0)


def test_the_stored_numbers_are_those_of_a_run_made_now() -> None:
    assert differences(STORED, json.loads(json.dumps(run.data()))) == []


def test_margins_after_one_step_by_counting(sample: Any) -> None:
    """The signal's part is an exact count of pulls, and noise counts its own square and what is left of all others."""
    clean, noisy = HEAD["clean_counts"][0], HEAD["flipped_counts"][0]
    pull = 0.025 * 30**2 / (8 * 200)
    assert HEAD["by_signal"][1] == pytest.approx([pull * (clean - noisy), -pull * (clean - noisy)], rel=1e-5)
    noise, y = sample.noise_tokens()[0, :, 0], sample.labels[0]
    for kind, i in enumerate(HEAD["followed"]):
        assert HEAD["own_pull"][kind] == pytest.approx(0.025 * HEAD["lengths"][i] ** 2 / (8 * 200), rel=2e-3)
        others = [j for j in range(200) if j != i]
        rest = 0.025 / (8 * 200) * float((y[others] * (noise[others] @ noise[i])).sum() * y[i])
        assert HEAD["by_noise"][1][kind] == pytest.approx(HEAD["own_pull"][kind] + rest, rel=1e-4)
    assert sum(margin > 0 for margin in HEAD["margins"][1]) == 1


def test_the_second_step_by_its_closed_form(sample: Any) -> None:
    found, both = two_steps(sample, 0.025), HEAD["followed"]
    tokens = sample.tokens[0, both]
    logits = tokens @ found.p2[0]
    weights = torch.softmax(logits, -1)
    assert HEAD["attention"][2] == pytest.approx(weights[:, 0].tolist(), rel=1e-5)
    margins = sample.labels[0, both] * (weights * (tokens @ found.v2[0])).sum(-1)
    assert HEAD["margins"][2] == pytest.approx(margins.tolist(), rel=1e-5)
    for parts in zip(HEAD["by_signal"], HEAD["by_noise"], HEAD["margins"], strict=True):
        room = 3 * of_digits(6) * np.abs(parts).max()  # each of the three was rounded
        assert np.sum(parts[:2], axis=0) == pytest.approx(parts[2], rel=0, abs=room)


def test_errors_are_gaussian_tails() -> None:
    """After one step the error of the class is exactly the tail of a Gaussian; after two, `distance` is defined by it."""
    first, second = STORED["fresh"]
    assert first["distance"] == pytest.approx(first["signal"] / first["noise"], rel=3 * of_digits(6))
    for one in (first, second):
        z = one["distance"]
        tail = -(z**2) / 2 - math.log(z * math.sqrt(2 * math.pi)) + math.log1p(-1 / z**2 + 3 / z**4)
        by_digits = of_digits(6) * (z**2 / math.log(10) + abs(one["log10_error"]))  # those of z and of the error
        assert one["log10_error"] == pytest.approx(tail / math.log(10), rel=0, abs=by_digits + 15 / z**6)
    # The whole error is the mean over two classes, of which ours errs far more often.
    for step, one in ((1, first), (2, second)):
        assert HEAD["log10_error"][step] == pytest.approx(one["log10_error"] - math.log10(2), abs=1e-2)
    assert HEAD["price"] == pytest.approx(HEAD["log10_error"][2] - HEAD["log10_error"][1], abs=0.1)


# --- what the page computes while the reader moves a slider -------------------------------------------------------------


def test_another_signal_length_is_the_same_draw_with_another_signal() -> None:
    lengths = [12.0, 20.0, 36.0]
    *found, border = evaluate(
        "story",
        [*(("afterOneStep", {"head": HEAD, "length": one}) for one in lengths), ("outvotedFrom", {"head": HEAD})],
    )

    def margins(length: float) -> list[float]:
        other = replace(run.LAW, signal_norm=length).draw(seed=0)
        return gradient_descent(other, 0.025, 1).margins[-1, 0, HEAD["followed"]].tolist()

    for length, parts in zip(lengths, found, strict=True):
        assert np.add(parts["signal"], parts["noise"]) == pytest.approx(margins(length), rel=1e-4)
    assert margins(border)[1] == pytest.approx(0, abs=1e-4)


def test_the_heads_are_as_sharp_as_trained_ones() -> None:
    page = nbformat.read(ROOT / "notebooks" / "in_context" / "05_two_numbers_per_head.ipynb", as_version=4)
    assert read_results(page)["omega_end"][-1] == pytest.approx(PROMPT["omega"], abs=0.005)


def test_weights_and_race_and_outcome_are_those_of_attnlib() -> None:
    omegas = [0.01, 0.146, 3.0]
    setting = {"signal": 20.0, "step": 4.0, "flips": 0.1}
    *pairs, raced, outcome = evaluate(
        "story",
        [
            *(("pairOf", {"prompt": PROMPT, "omega": omega}) for omega in omegas),
            ("raced", {"x": 1.3, "flips": 0.2}),
            ("outcome", {"head": HEAD, **setting}),
        ],
    )
    prompts = run.RegressionLaw(d=5, length=40).draw(1, seed=0)
    order = torch.einsum("ld,d->l", prompts.x[0], prompts.query[0]).argsort()
    for omega, found in zip(omegas, pairs, strict=True):
        for name, sign in (("plus", 1), ("minus", -1)):
            expected = kernel_weights(prompts, [sign * omega], [1.0]).reshape(-1)[order]
            assert found[name] == pytest.approx(expected.tolist(), rel=1e-3)
    assert [found["straight"] > 0.99 for found in pairs] == [True, True, False]
    path = flow_path(1.3, 0.2, [1.0, 10.0, 100.0, 1e3, 1e4, 1e5])
    assert raced["signal"] == pytest.approx(path.states[:, 0].tolist(), rel=1e-5)
    assert raced["noise"] == pytest.approx(path.states[:, 1].tolist(), rel=1e-5)
    assert raced["attention"] < 0.02 < 0.9 < LONG["attention"][-1]
    law = replace(run.LAW, signal_norm=20.0, label_noise=0.1)
    clean, noisy = torch.tensor([[90.0, 90.0]]), torch.tensor([[10.0, 10.0]])
    expected = float(mean_field_log10_error(law, 4.0 * 200 / 40_000, clean, noisy))
    assert outcome["log10_error"] == pytest.approx(expected, rel=1e-6)


# --- drawings -------------------------------------------------------------------------------------------------------------


def test_drawings_are_whole_at_the_ends_of_every_slider() -> None:
    asked = [(panel, state) for panel in PANELS for state in [None, *STATES[panel]]]
    calls = [("draw", {"panel": panel, "data": STORED} | ({"state": state} if state else {})) for panel, state in asked]
    for (panel, state), drawn in zip(asked, evaluate("story", calls), strict=True):
        where = f"{panel} {state}"
        keys = [mark["key"] for mark in drawn["marks"]]
        assert len(keys) == len(set(keys)), where
        assert len(drawn["says"]) > 40, where
        text = json.dumps(drawn)
        assert not re.search(r"\b(nan|inf|undefined|null)\b", text, re.IGNORECASE), where
        for mark in drawn["marks"]:
            at = mark["at"]
            if mark["tag"] == "text":
                assert at["font-size"] >= 15, where
                assert 0 < at["x"] < 480 or "transform" in at, where
                assert 12 < at["y"] <= 356 or "transform" in at, where
            if mark["tag"] == "circle":
                assert -8 <= at["cx"] <= 488, (where, mark)
                assert 0 <= at["cy"] <= 360, (where, mark)


def test_the_drawn_lengths_are_the_numbers() -> None:
    drawn = dict(
        zip(PANELS, evaluate("story", [("draw", {"panel": panel, "data": STORED}) for panel in PANELS]), strict=True)
    )
    marks = {panel: {mark["key"]: mark["at"] for mark in found["marks"]} for panel, found in drawn.items()}

    def length(at: dict[str, Any]) -> float:
        """From the start of an arrow to its tip."""
        values = [float(one) for one in re.findall(r"-?[\d.]+", at["d"])]
        return math.dist(values[:2], values[4:6])

    sample, sides, head = marks["sample"], marks["sides"], marks["head"]
    assert length(sample["noiseA"]) / length(sample["signalA"]) == pytest.approx(HEAD["lengths"][5] / 30, rel=1e-3)
    assert length(head["noiseA"]) / length(head["signalA"]) == pytest.approx(HEAD["lengths"][5] / 30, rel=2e-2)
    assert length(sides["byNoiseB"]) / length(sides["bySignalA"]) == pytest.approx(
        HEAD["by_noise"][2][1] / HEAD["by_signal"][2][0], rel=1e-2
    )
    bar = sides["barSA"]["width"] / (sides["barSA"]["width"] + sides["barNA"]["width"])
    assert bar == pytest.approx(HEAD["attention"][2][0], abs=1e-3)
    first, second = (marks["sides"][f"sum{kind}"]["cx"] - 256 for kind in "AB")
    assert first / second == pytest.approx(HEAD["margins"][2][0] / HEAD["margins"][2][1], rel=1e-2)


def test_still_pictures_and_signs_lie_there() -> None:
    there = sorted(path.name for path in FOLDER.glob("*.svg"))
    signs = ["head", "pair", "pull", "race", "sample"]
    stills = [*PANELS, "before", "step-1", "step-2", "models"]  # on the front page, and in "One picture of six models"
    assert there == sorted([*(f"panel-{name}.svg" for name in stills), *(f"glyph-{name}.svg" for name in signs)])
    for name in there:
        text = (FOLDER / name).read_text(encoding="utf-8")
        assert 'role="img" aria-label="' in text
        assert "NaN" not in text
        assert len(text) < 20_000


def test_a_motion_starts_at_the_old_place_and_ends_at_the_new() -> None:
    ends = {"from": "M0 10L4 -2", "to": "M10 0L4 2"}
    start, middle, end, other, words = evaluate(
        "story",
        [
            *(("between", ends | {"at": at}) for at in (0, 0.5, 1)),
            ("between", {"from": "M0 0", "to": "M0 0L1 1", "at": 0.5}),
            ("between", {"from": "none", "to": "none", "at": 0.5}),
        ],
    )
    assert (start, middle, end) == ("M0 10L4 -2", "M5 5L4 0", "M10 0L4 2")
    assert other is None
    assert words is None
