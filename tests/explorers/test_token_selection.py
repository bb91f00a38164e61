"""The token selection player: formulas in Node, packed curves and stored stories, against `attnlib`."""

import json
import math
import re
from dataclasses import asdict
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from attnbook.explorers import packing
from attnbook.explorers import token_selection as player
from attnbook.token_selection import theory
from attnbook.token_selection.fresh_selection import fresh_attention, fresh_threshold
from attnbook.token_selection.heat_map.figure import PHASE_COLOURS
from attnbook.token_selection.heat_map.study import PHASES
from attnbook.token_selection.mean_field import FLIPPED, flipped_share, mean_field
from attnbook.token_selection.the_delay.study import course
from attnlib.token_selection.law import TokenLaw
from tests.explorers.node import ROOT, evaluate

DATA = Path(ROOT, "book/assets/explorers/data/token_selection.js")
CLOSE = {"rel": 1e-9, "abs": 1e-300}
STORED = 2 * packing.RESOLUTION  # room for a packed value: half a step is lost, a quarter of this


@cache
def stored() -> dict:
    """What the page reads."""
    text = DATA.read_text(encoding="utf-8")
    return json.loads(text[text.index("{", text.index("] = ")) : text.rindex("}") + 1])


def laws(count: int = 30) -> list[TokenLaw]:
    """Random laws, and the pairs of the page."""
    rng = np.random.default_rng(9)
    found = [player.law_of(norm, d, eta) for norm, d in player.SIZES for eta in player.LABEL_NOISES]
    for _ in range(count):
        tokens = int(rng.integers(4, 20))
        found.append(
            TokenLaw(
                int(rng.integers(10, 200)), int(10 ** rng.uniform(2, 5.5)), tokens, 10 ** rng.uniform(0.5, 2.3),
                rng.uniform(0, 0.4), 10 ** rng.uniform(-0.3, 0.3), rng.uniform(0.2, 0.4),
                same_class_tokens=int(rng.integers(0, min(4, tokens - 2))), head_scale=rng.uniform(0.5, 2),
            )
        )  # fmt: skip
    return found


def test_closed_forms_are_attnlibs():
    """Regime numbers, clocks, floors and constants, at every pair of the page and thirty random laws and step sizes."""
    steps = 10 ** np.random.default_rng(1).uniform(-5, 0, 200)
    expected = {
        "snr": lambda law, _: law.snr,
        "n_snr_squared": lambda law, _: theory.n_snr_squared(law),
        "n_d_snr_fourth": lambda law, _: theory.n_d_snr_fourth(law),
        "loss_floor": lambda law, _: theory.loss_floor(law),
        "uniform_attention_accuracy": lambda law, _: theory.uniform_attention_accuracy(law),
        "not_overfitting_clock": theory.not_overfitting_clock,
        "overfitting_clock": theory.overfitting_clock,
        "fresh_threshold": lambda law, _: fresh_threshold(law),
        "delay_exponent": lambda law, _: theory.delay_exponent(law),
        "late_discrimination": lambda law, _: theory.late_discrimination(law),
        "flipped_share": lambda law, _: flipped_share(law),
    }
    tried = laws()
    asked = [(name, {"law": asdict(law), "step_size": a}) for name in expected for law, a in zip(tried, steps)]  # noqa: B905
    found = iter(evaluate("token_selection", [*asked, *(("log_benign_clock", one) for _, one in asked[: len(tried)])]))
    for name, function in expected.items():
        for law, alpha in zip(tried, steps):  # noqa: B905 (more step sizes than laws)
            assert next(found) == pytest.approx(function(law, alpha), **CLOSE), (name, law)
    for law, alpha in zip(tried, steps):  # noqa: B905
        expected_log = 1 / theory.n_snr_squared(law) + math.log(theory.overfitting_clock(law, alpha))
        assert next(found) == pytest.approx(expected_log, rel=1e-9)
    assert theory.benign_clock(tried[3], 0.1) == pytest.approx(
        math.exp(1 / theory.n_snr_squared(tried[3])) * theory.overfitting_clock(tried[3], 0.1)
    )


def test_the_normal_distribution_reaches_into_its_tails():
    x = np.concatenate([np.linspace(-12, 12, 49), [5.999999, 6.000001, -5.999999, -6.000001, 0.0]])
    found = evaluate("token_selection", [("normal_cdf", {"x": one}) for one in x])
    # below zero relative, above zero of what is missing to one
    assert found == pytest.approx([0.5 * math.erfc(-one / math.sqrt(2)) for one in x], rel=1e-9, abs=1e-300)


def test_fresh_attention_and_the_delay_are_attnlibs():
    """The integral for any pair of scores, and the closed form of the delay; both classes' scores may differ."""
    rng = np.random.default_rng(2)
    tried = laws(8)[-12:]
    scores = [(rng.uniform(-1, 9), rng.uniform(-1, 9), rng.uniform(0, 4) ** 2) for _ in tried]
    calls = [
        ("fresh_attention", {"law": asdict(law), "own_score": a, "other_score": b, "score_variance": s})
        for law, (a, b, s) in zip(tried, scores, strict=True)
    ]
    pairs = [player.law_of(norm, d, eta) for norm, d in player.SIZES for eta in (0.2, 0.4)]
    calls += [("selection_time", {"law": asdict(law), "step_size": 0.01, "weight_scale": 0.5}) for law in pairs]
    found = evaluate("token_selection", calls)
    for law, (own, other, variance), seen in zip(tried, scores, found, strict=False):
        np.testing.assert_allclose(seen, fresh_attention(law, own, other, variance), atol=1e-8)
        assert sum(seen) == pytest.approx(1, abs=1e-7)
    for law, seen in zip(pairs, found[len(tried) :], strict=True):
        assert seen == pytest.approx(theory.selection_time(law, 0.01, weight_scale=0.5), rel=1e-6), law
    never = [seen[0] == math.inf for seen in found[len(tried) :]]
    assert any(never)
    assert not all(never)


def test_the_mean_field_is_attnlibs():
    """End of a path, time of the first half and of fitted wrong labels, at sizes that differ in everything."""
    tried = [
        player.law_of(5.0, 4500, 0.2),
        player.law_of(20.0, 2000, 0.4),
        player.law_of(100.0, 1000, 0.1),
        laws(3)[-1],
    ]
    horizons = [1e5, 30.0, 0.3, 2.0]
    calls = [("mean_field", {"law": asdict(law), "horizon": at}) for law, at in zip(tried, horizons, strict=True)]
    for law, horizon, seen in zip(tried, horizons, evaluate("token_selection", calls), strict=True):
        path = mean_field(law, 1.0, horizon=horizon)
        assert seen["moments"] == len(path.time)
        np.testing.assert_allclose(seen["attention"], path.attention[-1].ravel(), rtol=1e-7, atol=1e-12)
        np.testing.assert_allclose(seen["margins"], path.margins[-1], rtol=1e-7, atol=1e-12)
        assert seen["score"] == pytest.approx(path.signal_score[-1], rel=1e-7)
        assert seen["variance"] == pytest.approx(path.score_variance[-1], rel=1e-7)
        half, fitted = path.crossing(path.attention[:, 0, 0], 0.5), path.crossing(path.margins[:, FLIPPED], 0.0)
        np.testing.assert_allclose([seen["half"], seen["fitted"]], [half, fitted], rtol=1e-7)
        if law is tried[1]:
            assert seen["half"] == pytest.approx(theory.first_half_time(law, 1.0), rel=1e-7)


def test_the_mean_field_selects_when_attnlib_says():
    """First moment at which a fresh sample gives half of its attention, early and after many decades, and never."""
    tried = [player.law_of(20.0, 2000, 0.2), player.law_of(20.0, 16000, 0.2), player.law_of(5.0, 4500, 0.2)]
    calls = [("field_selects", {"law": asdict(law), "horizon": 1e9, "from": -3, "to": 9}) for law in tried]
    early, late, never = evaluate("token_selection", calls)
    assert early == pytest.approx(math.log10(theory.selection_path(tried[0], 1.0).time[-1]), abs=1e-7)
    assert late == pytest.approx(math.log10(theory.selection_path(tried[1], 1.0).time[-1]), abs=1e-7)
    assert late > early + 2
    # the line of the page: log time, attention, at moments of the path
    (line,) = evaluate(
        "token_selection", [("fresh_path", {"law": asdict(tried[1]), "horizon": 1e5, "from": -3, "to": 5})]
    )
    path = mean_field(tried[1], 1.0, horizon=1e5)
    for at, attention in line[::5]:
        k = int(np.abs(path.time - 10**at).argmin())
        assert path.time[k] == pytest.approx(10**at, rel=1e-7)
        score = path.signal_score[k]
        assert attention == pytest.approx(fresh_attention(tried[1], score, score, path.score_variance[k])[0], abs=1e-8)
    assert never == math.inf


def test_choices_of_the_page_are_the_pairs_of_the_data():
    """Every ratio and label noise that can be chosen is in the file, in its order; labels are the ratios."""
    (found,) = evaluate("token_selection", [("choices", {"data": stored()})])
    assert np.ravel(found).tolist() == list(range(len(player.SIZES) * len(player.LABEL_NOISES)))


def test_the_command_names_parameters_of_its_pages():
    """Both pages of the command take its parameters, within their limits."""
    view = Path(ROOT, "book/scripts/token_selection/view.js").read_text(encoding="utf-8")
    commands = re.findall(r"`(token_selection/0\d_\w+) ([^`]*)`", view)
    assert [page for page, _ in commands] == ["token_selection/02_dynamics", "token_selection/08_the_delay"]
    for page, rest in commands:
        cells = json.loads(Path(ROOT, f"notebooks/{page}.ipynb").read_text(encoding="utf-8"))["cells"]
        (cell,) = [c for c in cells if "parameters" in c["metadata"].get("tags", [])]
        known = re.findall(r"^(\w+):", "".join(cell["source"]), re.MULTILINE)
        names = re.findall(r"-p (\w+) ", rest)
        assert len(names) >= 3
        assert set(names) <= set(known), page
    assert all(
        d <= 12000 for norm, d in player.SIZES if norm != 20.0
    )  # page 08 takes one signal norm and its own dimensions


def test_phases_have_the_colours_of_the_heat_map():
    picture = Path(ROOT, "book/scripts/token_selection/picture.js").read_text(encoding="utf-8")
    (line,) = [one for one in picture.splitlines() if "PHASE_COLOURS =" in one]
    assert re.findall(r"#\w{6}", line) == [PHASE_COLOURS[name] for name in PHASES]


def test_packing_is_read_back_in_node():
    """Smooth, rough, constant and jumping curves, of the largest size allowed too; every value to a millionth."""
    rng, x = np.random.default_rng(3), np.linspace(0, 1, 37)
    rough = rng.uniform(-8, 8, 37)
    curves = np.stack([np.sin(3 * x), np.zeros(37), (x > 0.4) * 1.0, rough, 8 * np.sign(rough), x**7 / 1e5, 1 - x])
    text = packing.pack(curves)
    (found,) = evaluate(
        "token_selection",
        [("unpack", {"text": text, "count": len(curves), "length": 37, "resolution": packing.RESOLUTION})],
    )
    np.testing.assert_allclose(found, np.rint(curves / packing.RESOLUTION) * packing.RESOLUTION, rtol=0, atol=1e-12)
    assert len(packing.pack(curves[[0, 1, 2, 5, 6]])) < 5 * 37 * 2  # two characters a value, short as these are


def test_stored_data_are_what_attnlib_computes():
    """One pair anew over its first five decades: means, errors, samples, phases."""
    data, at = stored(), player.times()
    np.testing.assert_allclose(data["times"], np.log10(at), atol=1e-9)
    assert list(player.CURVES) == data["curves"]
    index = 4 * len(player.LABEL_NOISES) + 1
    law = player.law_of(*player.SIZES[4], player.LABEL_NOISES[1])
    entry = data["pairs"][index]
    assert {name: entry[name] for name in ("n", "d", "tokens", "signal_norm", "label_noise")} == {
        "n": law.n, "d": law.d, "tokens": law.tokens, "signal_norm": law.signal_norm, "label_noise": law.label_noise,
    }  # fmt: skip
    early = at[:44]
    again = player.story(law, early)
    kept = slice(0, 43)  # the last time lies on the last record of this shorter run
    asked = {"data": data, "index": index}
    seen, mean = evaluate("token_selection", [("course", asked), ("means", asked)])
    assert mean == seen["mean"]
    for k, name in enumerate(player.CURVES):
        values = again.curves[:, k]
        np.testing.assert_allclose(seen["mean"][name][kept], values.mean(0)[kept], rtol=0, atol=STORED, err_msg=name)
        error = values.std(0, ddof=1) / math.sqrt(len(values))
        np.testing.assert_allclose(seen["error"][name][kept], error[kept], rtol=0, atol=STORED, err_msg=name)
    samples = np.array(seen["samples"])[..., kept]
    np.testing.assert_allclose(samples, again.samples[..., kept], rtol=0, atol=STORED)
    np.testing.assert_array_equal([run[kept] for run in seen["phases"]], again.phases[:, kept])
    # a second way: the course of the page on the time laws, which keeps fewer things
    some = slice(2, 43, 8)
    along = course(law, early[some], runs=5, seed=0)
    for name, values in (
        ("fresh relevant", along.attention),
        ("fresh loss", along.loss),
        ("fresh accuracy", 1 - along.error),
        ("clean fitted", along.clean_fitted),
        ("noisy fitted", along.noisy_fitted),
    ):
        np.testing.assert_allclose(
            seen["mean"][name][some][:-1], values.mean(0)[:-1], rtol=0, atol=STORED, err_msg=name
        )


def test_every_stored_pair_makes_sense():
    """Attention adds up to one, single samples too; phases are named; early on all is uniform and the head's own accuracy."""
    data = stored()
    assert data["phases"] == list(PHASES)
    calls = [("course", {"data": data, "index": i}) for i in range(len(data["pairs"]))]
    assert len(calls) == len(player.SIZES) * len(player.LABEL_NOISES)
    for seen in evaluate("token_selection", calls):
        pair, mean = seen["pair"], seen["mean"]
        for kind in player.KINDS:
            total = sum(np.array(mean[f"{kind} {role}"]) for role in player.ROLES)
            np.testing.assert_allclose(total, 1, rtol=0, atol=len(player.ROLES) * STORED)
        samples = np.array(seen["samples"])
        np.testing.assert_allclose(samples.sum(1), 1, rtol=0, atol=samples.shape[1] * STORED)
        law = player.law_of(pair["signal_norm"], pair["d"], pair["label_noise"])
        assert mean["fresh accuracy"][0] == pytest.approx(theory.uniform_attention_accuracy(law), abs=0.01)
        assert mean["fresh relevant"][0] == pytest.approx(1 / 8, abs=0.01)
        noisy = law.draw_labels(0).noisy[0]
        flags = [bool(noisy[i]) for i in pair["samples"]]
        assert flags == sorted(flags)
        assert sum(not flag for flag in flags) == pair["clean_shown"]
        assert sum(flags) == min(4, int(noisy.sum()))


def test_words_and_stretches():
    phases = [[0, 0, 2, 2, 3], [0, 2, 2, 3, 3], [0, 0, 2, 3, 3]]
    times = [0.0, 1.0, 2.0, 3.0, 4.0]
    seen = {
        "clean": 0.99,
        "noisyFitted": 1,
        "cleanFitted": 1,
        "fresh": 0.13,
        "accuracy": 0.7,
        "uniform": 0.9,
        "tokens": 8,
    }
    calls = [
        ("stretches", {"log_times": times, "phases": phases, "kinds": 4}),
        ("reaches", {"log_times": times, "values": [0, 0.1, 0.4, 0.6, 0.2], "level": 0.5}),
        ("reaches", {"log_times": times, "values": [0] * 5, "level": 0.5}),
        ("mean_time", {"logs": [1.0, None, 2.0, 4.0]}),
        ("whole_run", {"found": [[0, -3, 0], [2, 0, 5], [3, 5, 9]], "names": PHASES}),
        ("whole_run", {"found": [[0, -3, 9]], "names": PHASES}),
        *(("verdict", seen | {"phase": phase}) for phase in PHASES),
        ("verdict", seen | {"phase": PHASES[0], "noisyFitted": 0, "fresh": 0.9}),
        ("verdict", seen | {"phase": "benign", "fresh": 0.6}),
    ]
    stretches, at, never, mean, run, nothing, none, harmful, waiting, benign, right, chosen = evaluate(
        "token_selection", calls
    )
    assert run == "Whole run: memorised from time 1, benign from 100,000."
    assert nothing == "Whole run: not overfitting to the end."
    assert stretches == [[0, 0.0, 1.5], [2, 1.5, 2.5], [3, 2.5, 4.0]]
    assert at == pytest.approx(2.5)
    assert math.isnan(never)
    assert mean["mean"] == pytest.approx(7 / 3)
    assert mean["error"] == pytest.approx(np.std([1, 2, 4], ddof=1) / math.sqrt(3))
    assert mean["count"] == 3
    assert [one["word"] for one in (none, harmful, waiting, benign)] == [
        "not overfitting",
        "harmful",
        "selection still to come",
        "benign",
    ]
    assert harmful["sentence"].startswith(
        "Memorised, flipped labels included; accuracy on fresh data has fallen to 70\u00a0%, from 90\u00a0%"
    )
    assert "still spreads its attention almost evenly" in waiting["sentence"]
    assert "no flipped label is memorised" in right["sentence"]
    assert "60\u00a0% of its attention" in chosen["sentence"]
