"""Random settings: the drawn outcomes are those of the definitions, and contradict no proof."""

import math

import numpy as np
import pytest
from scipy import stats

from attnbook.single_head.proved import OUTCOMES
from attnlib.single_head.law import SignalNoiseLaw
from tests.single_head import random_settings
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


def judged(settings: int, draws: int, seed: int) -> set[int]:
    """No setting has more other outcomes than its probability allows, alone or all together. Returns the outcomes that were proved."""
    x = random_settings.judged_settings(settings, draws, seed)
    decided = x["code"] >= 0
    others, allowed = x["others"][decided], 1 - x["probability"][decided]
    assert (allowed <= x["delta"][decided]).all()
    assert stats.binom.sf(others - 1, draws, allowed).min() > 1e-3 / len(others)
    assert others.sum() <= (draws * allowed).sum()
    return set(x["code"].tolist())


def test_random_settings_agree_with_their_proofs():
    assert judged(40, 60, seed=0) >= {-1, 0, 1}


@pytest.mark.weekly
@pytest.mark.parametrize("part", range(8))
def test_two_thousand_random_settings_agree_with_their_proofs(part: int):
    assert judged(250, 200, seed=part) >= {-1, 0, 1, 2}


def test_a_proof_that_says_too_much_is_found(monkeypatch: pytest.MonkeyPatch):
    """Planted: the outcome of another region, and a probability that no bound gives."""
    kept = random_settings.proved_outcome

    def wrong(law, step, delta, error):
        proof = kept(law, step, delta, error=error)
        names = {OUTCOMES[0]: OUTCOMES[1], OUTCOMES[1]: OUTCOMES[0]}
        return proof._replace(outcome=names.get(proof.outcome, proof.outcome))

    monkeypatch.setattr(random_settings, "proved_outcome", wrong)
    with pytest.raises(AssertionError):
        judged(60, 20, seed=0)
