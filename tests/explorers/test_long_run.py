"""The long run in the browser: the flow, its boundary, the trap and the words, against attnlib."""

import json
import math
import re

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from attnbook.explorers import long_run
from attnbook.explorers.__main__ import FOLDER, script
from attnbook.single_head.flow import (
    first_order_threshold,
    flow_path,
    flow_rates,
    in_trap,
    selects_signal,
    signal_threshold,
)
from tests.explorers.node import ROOT, evaluate

ENDS = {"x": (0.5, 40), "label_noise": (0, 0.45)}  # of the sliders, as book/scripts/long_run/settings.js has them
TIMES = np.geomspace(0.01, 1e5, 15)
RATES = (0.25, 1.0, 4.0)


def _settings() -> list[dict]:
    """All corners of the sliders for every rate, and random points."""
    rng = np.random.default_rng(3)
    corners = [(x, eta, r) for x in ENDS["x"] for eta in ENDS["label_noise"] for r in RATES]
    inner = [(math.exp(rng.uniform(*np.log(ENDS["x"]))), rng.uniform(0, 0.45), RATES[i % 3]) for i in range(24)]
    return [{"x": x, "label_noise": eta, "attention_rate": r} for x, eta, r in (*corners, *inner)]


def _margin_of_flipped(states: np.ndarray) -> np.ndarray:
    V, _, t_n, P, _, q_n = states.T
    attention = 1 / (1 + np.exp(q_n - P))
    return -attention * V + (1 - attention) * t_n


def _tight(s: dict, times: np.ndarray = TIMES) -> np.ndarray:
    """States at `times` by another solver with tolerances near rounding, from attnlib's right-hand side."""
    nu = s["label_noise"] / (1 - s["label_noise"])

    def slope(z, state):
        return math.exp(z) * np.array(flow_rates(state.tolist(), s["x"], nu, s["attention_rate"]))

    at = np.log1p(times)
    return solve_ivp(slope, (0, at[-1]), np.zeros(6), method="DOP853", t_eval=at, rtol=1e-10, atol=1e-13).y.T


@pytest.fixture(scope="module")
def paths() -> list[tuple[dict, dict]]:
    settings = _settings()
    found = evaluate("long_run", [("flowPath", s | {"times": TIMES}) for s in settings])
    return list(zip(settings, found, strict=True))


def test_states_of_the_flow(paths):
    """Against attnlib to the accuracy of its own solver, against a tighter one to a millionth."""
    for s, found in paths:
        states = np.array(found["states"])
        path = flow_path(s["x"], s["label_noise"], TIMES, attention_rate=s["attention_rate"])
        np.testing.assert_allclose(states, path.states, rtol=1e-6, atol=2e-7, err_msg=str(s))
        np.testing.assert_allclose(states[::7], _tight(s)[::7], rtol=1e-6, atol=1e-9, err_msg=str(s))
        # Flipped samples are fitted from the time at which their margin, in the tighter solution, passes zero.
        fitted = found["interpolation_time"]
        assert all(_margin_of_flipped(path.states[TIMES > fitted]) > 0)
        assert fitted > 0 or all(_margin_of_flipped(path.states) > 0)
        assert fitted < math.inf or _margin_of_flipped(path.states)[-1] <= 0
        if 0 < fitted < math.inf:
            around = _tight(s, fitted * np.array([1 - 1e-5, 1 + 1e-5]))
            assert np.prod(_margin_of_flipped(around)) < 0, s


def test_trap_closes_where_attnlib_says(paths):
    closed = 0
    for s, found in paths:
        inside = [in_trap(state, s["x"], s["label_noise"]) for state in found["states"]]
        after = TIMES > found["trap_time"] * (1 + 1e-6)
        before = TIMES < found["trap_time"] * (1 - 1e-6)
        if s["label_noise"] > 0 or s["x"] != 1:
            assert all(np.array(inside)[after])
            assert not any(np.array(inside)[before])
        closed += 0 < found["trap_time"] < math.inf
        assert (found["trap_time"] < math.inf) == (
            not selects_signal(s["x"], s["label_noise"], attention_rate=s["attention_rate"])
        )
    assert closed >= 3


def test_rates_and_readings():
    rng = np.random.default_rng(5)
    states = rng.normal(size=(20, 6)) * 3
    calls = [("flowRates", {"state": state, "x": 2.5, "nu": 0.3, "rate": 1.7}) for state in states]
    for state, found in zip(states, evaluate("long_run", calls), strict=True):
        np.testing.assert_allclose(found, flow_rates(state.tolist(), 2.5, 0.3, 1.7), rtol=1e-12)
    for state, found in zip(
        states, evaluate("long_run", [("reading", {"state": state}) for state in states]), strict=True
    ):
        V, t_c, t_n, P, q_c, q_n = state
        s_c, s_n = 1 / (1 + math.exp(q_c - P)), 1 / (1 + math.exp(q_n - P))
        expected = {
            "attention_clean": s_c, "attention_noisy": s_n, "lead": V - t_c, "logit": P - q_c,
            "margin_clean": s_c * V + (1 - s_c) * t_c, "margin_noisy": -s_n * V + (1 - s_n) * t_n,
        }  # fmt: skip
        assert found == pytest.approx(expected, rel=1e-10)


def test_room_in_the_trap():
    """Which of the four inequalities is the tightest does not matter: states around all of them."""
    rng = np.random.default_rng(6)
    x, eta = 2.5, 0.3
    states = rng.normal(size=(400, 6)) * [2, 2, 2, 1, 1, 1] + [-1, 1, 2, -1, 0.5, -0.5]
    rooms = evaluate("long_run", [("trapRoom", {"state": state, "x": x, "nu": eta / (1 - eta)}) for state in states])
    inside = [in_trap(state, x, eta) for state in states]
    assert [room <= 0 for room in rooms] == inside
    assert 40 < sum(inside) < 360


def test_boundary_to_a_millionth():
    """Both bisections end within their tolerance of the same x*; the grid of label noises holds both ends."""
    settings = [(0.0, 1.0), (0.01, 0.25), (0.07, 4.0), (0.2, 1.0), (0.31, 4.0), (0.33, 1.0), (0.45, 1.0)]
    calls = [("signalThreshold", {"label_noise": eta, "attention_rate": r, "tolerance": 1e-7}) for eta, r in settings]
    for (eta, r), found in zip(settings, evaluate("long_run", calls), strict=True):
        assert found == pytest.approx(signal_threshold(eta, attention_rate=r, tolerance=1e-7), rel=1e-6), (eta, r)


def test_first_order_line():
    noises = [0.0, 0.1, 0.37, 0.45, 0.5]
    found = evaluate("long_run", [("firstOrderThreshold", {"label_noise": eta}) for eta in noises])
    assert found == pytest.approx([first_order_threshold(eta) for eta in noises], rel=1e-12)


CASES = [  # x, eta, rate, word, part of the reason
    (0.9, 0.2, 1, "both choose noise", "in the trap from the start"),
    (1.0, 0.0, 1, "a tie", "one half for ever"),
    (1.0, 0.1, 1, "both choose noise", "not above 1"),
    (1.3, 0.2, 1, "trapped", "The trap closes at"),
    (1.7, 0.2, 1, "both choose the signal", "starts the wrong way"),
    (1.65, 0.2, 0.25, "trapped", "not for want of time"),
    (2.5, 0.2, 1, "both choose the signal", "<i>x</i>* = 1.62"),
    (14.0, 0.4, 1, "trapped", "starts towards the signal"),
    (35.0, 0.45, 1, "trapped", "lies above 40"),
]


@pytest.mark.parametrize(("x", "eta", "rate", "word", "reason"), CASES)
def test_verdict_in_words(x, eta, rate, word, reason):
    (found,) = evaluate("long_run", [("verdict", {"x": x, "label_noise": eta, "attention_rate": rate})])
    assert found["word"] == word
    assert reason in found["sentence"]
    flow_wins = selects_signal(x, eta, attention_rate=rate)
    assert (word == "both choose the signal") == flow_wins
    assert (word == "trapped") == (x > 1 and not flow_wins)  # maximum margin wants the signal above 1


def test_stored_boundary_and_fates():
    text = (FOLDER / "long_run.js").read_text(encoding="utf-8")
    stored = json.loads(re.sub(r"^.*?\] = |;\n$", "", text))
    assert text == script("long_run", stored)
    assert stored["label_noises"][0] == 0
    assert stored["label_noises"][-1] == ENDS["label_noise"][1]
    assert [one["attention_rate"] for one in stored["boundaries"]] == list(RATES) == list(long_run.RATES)
    for rate, number in ((0.25, 10), (1.0, 20), (4.0, 33)):
        x = next(one["x"] for one in stored["boundaries"] if one["attention_rate"] == rate)
        eta = stored["label_noises"][number]
        assert x[number] == pytest.approx(signal_threshold(eta, attention_rate=rate), rel=2e-4)
        assert x[0] == 1
        known = [one for one in x if one is not None]
        assert known == sorted(known)  # rises with the label noise
    fates = long_run.trained(0.3)
    trained = stored["trained"]
    count = fates.x.size
    assert trained["on_signal"][-count:] == "".join(str(int(one)) for one in fates.on_signal.ravel())
    assert trained["x"][-count:] == pytest.approx(fates.x.ravel().tolist(), rel=1e-3)
    assert trained["flipped"][-count:] == pytest.approx(fates.flipped.ravel().tolist(), abs=1e-4)


def test_slider_ends_are_the_tested_ones():
    text = (ROOT / "book" / "scripts" / "long_run" / "settings.js").read_text(encoding="utf-8")
    assert re.search(r"const X = \[([\d., ]+)\]", text)[1] == "0.5, 40"
    assert re.search(r"const NOISES = \[([\d., ]+)\]", text)[1] == "0, 0.45"
    assert re.findall(r'value: "([\d.]+)", label: "[1/4]+"', text) == ["0.25", "1", "4"]
