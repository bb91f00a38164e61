"""A frozen network in Part II's terms: each estimate against loops, against known Gaussian laws, and on layers with a known answer."""

import dataclasses
import math

import numpy as np
import pytest
import torch

from attnbook.token_selection.real_data import effective
from attnbook.token_selection.real_data.effective import (
    Effective,
    describe,
    main,
    read_effective,
    relevant_tokens,
    signal_and_noise,
)
from attnbook.token_selection.real_data.plans import PLANS
from attnbook.token_selection.real_data.setups import head_confidence, prepare, scale_head
from attnbook.token_selection.real_data.tables import read_table, stored_tables
from tests.token_selection.test_real_frozen import random_layer, some_weights

pytestmark = pytest.mark.usefixtures("one_thread")


# --- Signal, noise and dimension ------------------------------------------------------------------------------------------


def draws(generator, sizes, means, deviations):
    """Gaussian tokens with independent coordinates of the given standard deviations, class by class, shuffled."""
    labels = np.repeat(np.arange(len(sizes)), sizes)
    x = np.array(means)[labels] + generator.standard_normal((len(labels), len(deviations))) * deviations
    order = generator.permutation(len(labels))
    return torch.from_numpy(x[order]), torch.from_numpy(labels[order])


LAWS = {
    "two": ((4, 9), [[0.6, 0, 0, 0, 0], [0, 0.9, 0, 0, 0]], np.array([1.5, 1.0, 0.7, 0.5, 0.2])),
    "three": ((3, 5, 8), [[1.0, 0, 0, 0], [0, 0.5, 0, 0], [0, 0, 0, 0.8]], np.array([0.4, 1.0, 1.3, 0.9])),
}


@pytest.mark.parametrize("law", LAWS)
def test_without_bias_for_gaussian_noise(law):
    sizes, means, deviations = LAWS[law]
    rows, variances = np.array(means), deviations**2
    pairs = [(j, k) for j in range(len(rows)) for k in range(j)]
    signal = np.mean([((rows[j] - rows[k]) ** 2).sum() / 2 for j, k in pairs])
    generator, repeats = np.random.default_rng(1), 4000
    found, naive = [], []
    for _ in range(repeats):
        x, labels = draws(generator, sizes, means, deviations)
        one = signal_and_noise(x, labels)
        # (tr S^2 and (tr S)^2 have no bias; their quotient d has one of higher order, so the two are taken apart below.)
        found.append(one[:2])
        own = [x[labels == k].mean(0) for k in range(len(rows))]
        naive.append(np.mean([float((own[j] - own[k]).square().sum()) / 2 for j, k in pairs]))
    found = np.array(found)
    error = found.std(0) / repeats**0.5
    assert np.abs(found.mean(0) - [signal, variances.sum()])[0] < 4 * error[0]
    assert np.abs(found.mean(0) - [signal, variances.sum()])[1] < 4 * error[1]
    assert (np.mean(naive) - signal) / (np.std(naive) / repeats**0.5) > 20  # this test would refute the plain one


def parts_of_dimension(x, labels):
    """(tr S)^2 and tr S^2 as the quotient d is made of them, from the moments of a Wishart matrix, by numpy."""
    x, labels = x.numpy(), labels.numpy()
    residual = np.concatenate([x[labels == k] - x[labels == k].mean(0) for k in np.unique(labels)])
    f = len(x) - len(np.unique(labels))
    covariance = residual.T @ residual / f
    trace, frobenius = np.trace(covariance), np.trace(covariance @ covariance)
    # E frobenius = (1 + 1/f) A + B / f and E trace^2 = 2 A / f + B, with A = tr Sigma^2 and B = (tr Sigma)^2: solved for A, B.
    square, whole = np.linalg.solve([[1 + 1 / f, 1 / f], [2 / f, 1]], [frobenius, trace**2])
    return whole, square, trace**2 / frobenius


def test_a_small_case_by_loops():
    generator = np.random.default_rng(3)
    x, labels = generator.normal(size=(9, 4)) * [1, 2, 3, 0.5], np.array([2, 0, 0, 5, 2, 5, 0, 0, 2])
    groups = {k: [x[i] for i in range(9) if labels[i] == k] for k in (0, 2, 5)}
    means = {k: sum(group) / len(group) for k, group in groups.items()}
    covariance = np.zeros((4, 4))
    for i in range(9):
        difference = x[i] - means[labels[i]]
        for a in range(4):
            for b in range(4):
                covariance[a, b] += difference[a] * difference[b] / 6
    trace = sum(covariance[a, a] for a in range(4))
    signal = 0.0
    for j, k in ((0, 2), (0, 5), (2, 5)):
        distance = sum((means[j][a] - means[k][a]) ** 2 for a in range(4))
        signal += (distance - trace / len(groups[j]) - trace / len(groups[k])) / 3 / 2
    found = signal_and_noise(torch.from_numpy(x), torch.from_numpy(labels))  # numbers of classes may have gaps
    whole, square, _ = parts_of_dimension(torch.from_numpy(x), torch.from_numpy(labels))
    np.testing.assert_allclose(found, [signal, trace, whole / square], rtol=1e-12)
    single = signal_and_noise(torch.from_numpy(x).float(), torch.from_numpy(labels))
    np.testing.assert_allclose(single, found, rtol=1e-5)
    moved = signal_and_noise(torch.from_numpy(3 * x + 7), torch.from_numpy(labels))
    np.testing.assert_allclose(moved, [9 * signal, 9 * trace, whole / square], rtol=1e-10)


def test_a_signal_below_zero_counts_as_none():
    assert Effective(-0.3, 2.0, 5.0, 1.0, 0.0, 1.0).snr == 0
    assert Effective(2.0, 8.0, 5.0, 1.0, 0.0, 1.0).snr == 0.5


# --- Relevant tokens and the head -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("masked", [False, True])
def test_the_relevant_token_is_found_by_one_hot_attention(masked):
    layer = random_layer(N=4, L=6, masked=masked, seed=8)
    labels = torch.tensor([3, 0, 2, 1])
    expected = []
    for i in range(4):
        margins = {}
        for position in range(6):
            if layer.mask is None or layer.mask[i, position]:
                attention = torch.zeros(4, 2, 6)
                attention[:, :, position] = 1
                logits = layer.logits_of(attention)[i].tolist()
                margins[position] = logits[labels[i]] - max(v for k, v in enumerate(logits) if k != labels[i])
        expected.append(max(margins, key=margins.get))
    found = relevant_tokens(layer, labels)
    assert found.tolist() == expected
    assert found.dtype == torch.int64
    if masked:  # sample 2 has one position left, sample 1 four
        assert found[2] == 0
        assert found[1] < 4
        assert relevant_tokens(random_layer(N=4, L=6, seed=8), labels)[2] != 0


@pytest.fixture(scope="module")
def setup():
    plan = dataclasses.replace(PLANS["digits"], phase1=200, pool=61, test=47, epochs=3)
    return prepare("digits", 2, plan=plan)


def test_the_heads_confidence_by_hand_and_under_a_factor(setup):
    logits = np.sort(setup.pool.logits(setup.own)[0].detach().numpy(), axis=1)
    gaps = sorted(float(a - b) for a, b in zip(logits[:, -1], logits[:, -2], strict=True))
    assert head_confidence(setup) == pytest.approx(gaps[30], rel=1e-6)  # 61 samples: the 31st
    assert head_confidence(setup) > 0
    for factor in (0.25, 3.0):
        scaled = scale_head(setup, factor)
        assert head_confidence(scaled) == pytest.approx(factor * head_confidence(setup), rel=1e-5)
        assert torch.equal(scaled.test.logits(setup.own).argmax(-1), setup.test.logits(setup.own).argmax(-1))
    other = dataclasses.replace(setup, pool_labels=(setup.pool_labels + 1) % 10)
    assert head_confidence(other) == head_confidence(setup)  # no label enters
    other = dataclasses.replace(setup, own=some_weights(setup.pool, runs=1))
    assert abs(head_confidence(other) / head_confidence(setup) - 1) > 1e-3


def test_a_description_by_hand(setup):
    found = describe(setup)
    chosen, labels = [], []
    for layer, own in ((setup.pool, setup.pool_labels), (setup.test, setup.test_labels)):
        for i, position in enumerate(relevant_tokens(layer, own).tolist()):
            chosen.append(layer.tokens[i, position])
            labels.append(own[i])
    assert len(chosen) == 61 + 47
    expected = signal_and_noise(torch.stack(chosen), torch.stack(labels))
    np.testing.assert_allclose((found.signal, found.noise, found.dimension), expected, rtol=1e-6)
    assert found.overlap == pytest.approx(wrong_votes(setup, 5) / 47, abs=1e-12)
    assert found.head_only == setup.head_only
    assert found.confidence == head_confidence(setup)


def wrong_votes(setup, neighbours):
    known, asked = (part.double().numpy() for part in setup.features)
    wrong = 0
    for row, label in zip(asked, setup.test_labels.tolist(), strict=True):
        nearest = np.argsort(((known - row) ** 2).sum(1))[:neighbours]
        wrong += np.bincount(setup.pool_labels.numpy()[nearest]).argmax() != label
    return int(wrong)


def test_the_overlap_is_the_vote_of_five(setup):
    # Features of two dimensions whose classes overlap, so that another number of neighbours is another number of errors.
    generator = torch.Generator().manual_seed(0)
    parts = tuple(
        torch.stack([labels % 4, labels // 4], 1) + 0.35 * torch.randn(len(labels), 2, generator=generator)
        for labels in (setup.pool_labels, setup.test_labels)
    )
    other = dataclasses.replace(setup, features=parts)
    votes = [wrong_votes(other, k) for k in (3, 4, 5, 6, 7)]
    assert votes[2] not in votes[:2] + votes[3:]
    assert describe(other).overlap == pytest.approx(votes[2] / 47, abs=1e-12)


# --- Storing --------------------------------------------------------------------------------------------------------------

ONE = Effective(1.23456789, 2345678.9, 9.0, 0.000123456, 0.25, 0.9666666)


def test_what_is_stored_is_rounded_ordered_and_kept(tmp_path):
    path = tmp_path / "effective.json"
    for name, seed in (("mnist", 10), ("mnist", 2), ("digits", 1), ("mnist", 0)):
        effective._store(name, seed, dataclasses.replace(ONE, dimension=float(seed)), path)
    found = read_effective(path)
    assert list(found) == ["digits", "mnist"]
    assert list(found["mnist"]) == [0, 2, 10]  # by number, not by text
    assert [one.dimension for one in found["mnist"].values()] == [0, 2, 10]
    one = found["digits"][1]
    assert (one.signal, one.noise, one.confidence, one.overlap) == (1.2346, 2345700.0, 0.00012346, 0.25)
    assert one.head_only == 0.96667
    assert (
        len([line for line in path.read_text().splitlines() if '"signal"' in line]) == 4
    )  # a record is a line of a diff
    effective._store("mnist", 2, ONE, path)
    assert read_effective(path)["mnist"][2].dimension == 9
    assert {name: len(seeds) for name, seeds in read_effective(path).items()} == {"digits": 1, "mnist": 3}


def test_the_command_line(tmp_path, monkeypatch, capsys):
    plan = dataclasses.replace(PLANS["digits"], phase1=128, pool=40, test=50, epochs=1, seeds=2)
    monkeypatch.setitem(PLANS, "digits", plan)
    path = tmp_path / "effective.json"
    effective._store("digits", 1, ONE, path)
    main(["digits", "--out", str(path)])  # the plan's own two seeds, one of which is there
    printed = capsys.readouterr().out
    stored = read_effective(path)["digits"]
    assert list(stored) == [0, 1]
    assert stored[1].noise == 2345700.0
    assert printed == f"digits, seed 0: SNR {stored[0].snr:.3g}, d {stored[0].dimension:.3g}\n"
    expected = describe(prepare("digits", 0))
    for field in dataclasses.fields(Effective):
        assert getattr(stored[0], field.name) == pytest.approx(getattr(expected, field.name), rel=6e-5), field.name
    monkeypatch.setattr(effective, "prepare", lambda *a, **k: pytest.fail("was done again"))
    main(["digits", "--seeds", "0", "1", "--out", str(path)])


# --- What comes with the package ------------------------------------------------------------------------------------------


def test_the_stored_networks_are_those_of_the_plans_and_tables():
    """Tables train phase 1 anew: the accuracy under phase 1's attention must come out alike, seed by seed."""
    for name, seeds in read_effective().items():
        assert set(seeds) <= set(range(PLANS[name].seeds)), name
        for one in seeds.values():
            assert all(math.isfinite(value) for value in dataclasses.astuple(one))
            assert (one.noise > 0, one.confidence > 0, one.dimension > 1) == (True, True, True)
            assert 0 <= one.overlap <= 1
        if name in stored_tables():
            cells = [cell for cell in read_table(name).cells if cell.seed in seeds]
            assert cells
            for cell in cells:
                assert seeds[cell.seed].head_only == pytest.approx(float(cell.values["head_only"]), abs=1.1e-5)
