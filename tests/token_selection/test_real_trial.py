"""The rule of the trial: the unit of harm a second way, known worlds get their word, and the interval covers."""

import re

import numpy as np
import pytest

from attnbook.draws import mean
from attnbook.token_selection.real_data import trial
from attnbook.token_selection.real_data.trial import Trial, copying_loss, judge, two_way

LEVELS = (0.0, 0.1, 0.2, 0.4)


@pytest.mark.parametrize(("classes", "accuracy"), [(2, 0.8), (4, 0.85), (10, 0.3)])
def test_a_network_that_copies_the_noise_loses_the_unit(classes, accuracy):
    eta, rng = 0.3, np.random.default_rng(0)
    truth = rng.integers(classes, size=400_000)
    wrong = (truth + rng.integers(1, classes, truth.size)) % classes
    answer = np.where(rng.random(truth.size) < accuracy, truth, wrong)
    copied = np.where(rng.random(truth.size) < eta, (answer + rng.integers(1, classes, truth.size)) % classes, answer)
    lost = (answer == truth).mean() - (copied == truth).mean()
    assert lost == pytest.approx(eta * copying_loss(accuracy, classes), abs=4 * (0.5 / truth.size) ** 0.5)
    assert copying_loss(1 / classes, classes) == pytest.approx(0)


def world(copied, *, seed=0, seeds=5, pictures=600, classes=10, right=0.9, fit=0.97, shared=True, hard=0.0):
    """A network that replaces its answer, with probability eta `copied`, by another class: its fraction of copying is `copied`.

    hard: how far copying belongs to some pictures in every seed (0: to none; 1: to one half of them alone).
    """
    rng = np.random.default_rng(seed)
    rows = np.stack([rng.permutation(pictures if shared else 4 * pictures)[:pictures] for _ in range(seeds)])
    easy, soft = rng.beta(9, 1, 4 * pictures) * right / 0.9, 1 + hard * rng.choice([-1, 1], 4 * pictures)
    hits = np.empty((seeds, len(LEVELS), pictures), dtype=bool)
    for r, own in enumerate(rows):
        for e, eta in enumerate(LEVELS):
            answer = rng.random(pictures) < easy[own]
            replaced = rng.random(pictures) < eta * copied * soft[own]
            hits[r, e] = np.where(replaced, ~answer & (rng.random(pictures) < 1 / (classes - 1)), answer)
    fitted = np.clip(rng.normal(fit, 0.01, (seeds, len(LEVELS) - 1)), 0, 1)
    return Trial(hits, rows, fitted, LEVELS, classes)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize(
    ("copied", "outcome"), [(0.0, "benign"), (0.5, "tempered"), (1.0, "harmful"), (0.25, "not decided")]
)
def test_known_worlds_get_their_word(copied, outcome, shared):
    for seed in range(5):
        found = judge(world(copied, seed=seed, pictures=1500, shared=shared))
        assert found.outcome == outcome
        assert bool(found.because) == (outcome == "not decided")
        assert abs(found.fraction.value - copied) < 0.1


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"fit": 0.8}, "0.9 of the wrong labels must be memorised; 0.80 "),
        ({"right": 0.5}, "the network is right on 0.4. of the test pictures"),
        ({"right": 0.02}, "the network is right on 0.0. of the test pictures"),
        ({"pictures": 40}, "on both sides of a border"),
    ],
)
def test_a_harmless_network_is_not_called_benign_where_the_trial_was_not_fair(settings, reason):
    found = judge(world(0.0, **settings))
    assert found.outcome == "not decided"
    assert re.search(reason, found.because)


def test_the_interval_covers_where_that_over_seeds_does_not():
    found, over_seeds = np.zeros(400, dtype=bool), np.zeros(400, dtype=bool)
    for seed in range(len(found)):
        one = world(0.6, seed=seed, pictures=100, classes=3, hard=1.0)
        by_seed = trial.fraction_of_copying(one.accuracy, LEVELS, 3)
        for covered, interval in ((found, judge(one).fraction), (over_seeds, mean(by_seed))):
            covered[seed] = interval.low < 0.6 < interval.high
    assert 0.92 < found.mean() < 0.995  # 0.95 with a standard deviation of 0.011
    assert over_seeds.mean() < found.mean() - 0.02


def test_leaving_out_by_hand():
    one = world(0.5, seeds=5, pictures=12, shared=False, right=0.95)
    pictures = np.unique(one.rows)

    def by_seed(left=None):
        found = []
        for hits, rows in zip(one.hits, one.rows, strict=True):
            a = [row[rows != left].mean() for row in hits]
            u = a[0] - (1 - a[0]) / 9
            found.append(sum(a[0] - b for b in a[1:]) / (0.7 * u))
        return np.array(found)

    whole, without = by_seed(), np.stack([by_seed(left) for left in pictures], 1)
    np.testing.assert_allclose(trial.fraction_of_copying(one.accuracy, LEVELS, 10), whole, rtol=0, atol=1e-12)
    got = trial.fraction_of_copying(trial.without_each_picture(one), LEVELS, 10)
    np.testing.assert_allclose(got, without, rtol=0, atol=1e-12)
    seeds = 4 / 5 * sum((np.delete(whole, r).mean() - whole.mean()) ** 2 for r in range(5))
    pictures_ = sum((w.mean() - whole.mean()) ** 2 for w in without.T)
    both = sum(((w - f) / 5) ** 2 for row, f in zip(without, whole, strict=True) for w in row)
    variance = max(seeds + pictures_ - both, seeds, pictures_)
    interval = two_way(whole, without)
    assert interval.value == pytest.approx(whole.mean())
    assert interval.high - interval.value >= 1.95 * variance**0.5
    assert interval.high - interval.value <= 2.7765 * variance**0.5  # Student's for 4 degrees, the fewest


def test_pictures_that_no_two_seeds_share_leave_the_interval_over_seeds():
    by_seed = np.array([0.1, 0.3, 0.4, 0.6, 0.9])
    moved = np.zeros((5, 50))
    for r in range(5):
        moved[r, 10 * r : 10 * r + 10] = np.linspace(-0.05, 0.05, 10)
    got, want = two_way(by_seed, by_seed[:, None] + moved), mean(by_seed)
    assert (got.value, got.low, got.high) == pytest.approx((want.value, want.low, want.high), abs=1e-9)
