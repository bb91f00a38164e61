"""Random settings: the drawn outcomes are those of the definitions, and the stored table contradicts no proof."""

import math

import numpy as np
import pytest
from scipy import stats

from attnbook.single_head.phase_diagram import random_settings
from attnlib.single_head.law import SignalNoiseLaw
from attnlib.single_head.proved import OUTCOMES, proved_outcome
from tests.single_head.test_proved import SETTINGS, drawn


def test_draws_of_random_settings_are_those_of_the_definitions():
    """The same training sets as `drawn`: the same outcomes; all four kinds occur."""
    seen = np.zeros(4, bool)
    for n, d, snr, eta, multiple in (*SETTINGS[:9], (6, 10**5, 3.0, 0.5, 90.0)):
        law, step = SignalNoiseLaw(n, d, snr * math.sqrt(d), eta), multiple * n / d
        found = random_settings.drawn_outcomes(law, step, 3, np.random.default_rng(6))
        rng = np.random.default_rng(6)
        for row in found:
            x = drawn(n, d, snr, eta, multiple, rng)
            fits, error = x.room.min() > 0, x.error
            missed = [(x.room[kind] < 0).any() for kind in (x.flipped, ~x.flipped)]
            assert row.tolist() == [fits and error <= 0.1, fits and error >= 0.1, *missed]
            seen |= row
    assert seen[:3].all()


def first_rows(decided: int):
    """The first rows of the table, made again until so many settings are decided; each of these has 200 training sets."""
    rng, found = np.random.default_rng(0), 0
    for place, x in enumerate([random_settings.random_setting(rng) for _ in range(250)]):
        if found == decided:
            return
        law = SignalNoiseLaw(x["n"], x["d"], x["snr"] * math.sqrt(x["d"]), float(x["eta"]))
        step = x["multiple"] * law.n / law.d
        proof = proved_outcome(law, step, float(x["delta"]), error=0.1)
        code, others = (OUTCOMES.index(proof.outcome), 0) if proof.outcome in OUTCOMES else (-1, 0)
        if code >= 0:
            others, found = int((~random_settings.drawn_outcomes(law, step, 200, rng)[:, code]).sum()), found + 1
        yield {"place": place, "code": code, "others": others, "probability": proof.probability}


@pytest.mark.weekly
def test_rows_of_random_settings_are_made_again():
    x, rows = random_settings.stored(), list(first_rows(40))
    assert x["others"][55] > 0
    assert len(rows) > 55
    assert [row["others"] for row in rows] == x["others"][: len(rows)].tolist()
    assert [row["code"] for row in rows] == x["code"][: len(rows)].tolist()


def test_random_settings_agree_with_their_proofs():
    """The stored table: no setting has more other outcomes than its probability allows, alone or all together; most kinds occur."""
    x = random_settings.stored()
    decided = x["code"] >= 0
    others, draws, allowed = x["others"][decided], x["draws"][decided], 1 - x["probability"][decided]
    assert (allowed <= x["delta"][decided]).all()
    assert stats.binom.sf(others - 1, draws, allowed).min() > 1e-3 / len(others)
    assert others.sum() <= (draws * allowed).sum()
    assert set(x["code"].tolist()) >= {-1, 0, 1, 2}
    for row in first_rows(1):
        assert [x[name][row["place"]] for name in ("code", "others")] == [row["code"], row["others"]]
        assert x["probability"][row["place"]] == pytest.approx(row["probability"], rel=1e-9)
    again = random_settings.judged_settings(12, 5, seed=0)
    assert (again["code"] == x["code"][:12]).all()
    for name in ("n", "d", "snr", "eta", "multiple", "delta"):  # powers of ten: another library has other last digits
        np.testing.assert_allclose(again[name], x[name][:12], rtol=1e-9)
