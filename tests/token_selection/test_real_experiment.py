"""The noise study and the digits study: every statistic a second way, verdict words by their rule, errors before work."""

import math
from dataclasses import replace

import pytest
import torch

from attnbook.token_selection.real_data import digits
from attnbook.token_selection.real_data.digits import digits_study, hold_heads
from attnbook.token_selection.real_data.experiment import (
    nested_flips,
    new_linear_head,
    noise_study,
    train_selection,
    verdict,
)
from attnbook.token_selection.real_data.plans import PLANS
from attnbook.token_selection.real_data.setups import prepare
from attnbook.token_selection.real_data.vit import ViTShape
from tests.token_selection.test_real_claims import changed
from tests.token_selection.test_real_frozen import random_layer

LEVELS = (0.0, 0.2, 0.6)
SETTINGS = {
    "n": 10,
    "classes": 4,
    "noise_levels": LEVELS,
    "seed": 5,
    "steps": 60,
    "step_size": 0.05,
    "start_scale": 0.4,
}


@pytest.fixture(scope="module")
def caches():
    layer = random_layer(N=70, L=5, D=6, heads=2, masked=False, seed=1)
    truth = layer.logits(layer.start(scale=2.0, seed=9))[0].argmax(-1)
    train, test = slice(0, 30), slice(30, 70)
    return layer.subset(train), truth[train], layer.subset(test), truth[test]


@pytest.fixture(scope="module")
def study(caches):
    train, _, test, _ = caches
    return noise_study(*caches, **SETTINGS, features=(train.residual, test.residual), head_only=0.9, recorded=[20])


def test_statistics_a_second_way(caches, study):
    train, true, test, test_true = caches
    assert len(set(study.samples.tolist())) == 10
    layer = train.subset(study.samples)
    labels, noisy = nested_flips(true[study.samples], 4, LEVELS, seed=5, run=1)
    assert torch.equal(study.labels, labels)
    assert torch.equal(study.noisy, noisy)
    for e in range(3):
        for position, steps in ((0, 0), (2, 60)):
            weights = layer.start(scale=0.4, seed=5, run=1)
            if steps:
                weights, _ = train_selection(layer, labels[e : e + 1], weights, steps=60, step_size=0.05, seed=5)
            logits = layer.logits(weights)[0]
            hits = [int(logits[i].argmax()) == int(labels[e, i]) for i in range(10)]
            flipped = [hit for hit, bad in zip(hits, noisy[e], strict=True) if bad]
            clean = [hit for hit, bad in zip(hits, noisy[e], strict=True) if not bad]
            assert study.fit_clean[e, position].item() == pytest.approx(sum(clean) / len(clean))
            if flipped:
                assert study.fit_noisy[e, position].item() == pytest.approx(sum(flipped) / len(flipped))
            loss = -torch.log_softmax(logits, -1)[torch.arange(10), labels[e]].mean().item()
            assert study.train_loss[e, position].item() == pytest.approx(loss, rel=1e-3, abs=1e-4)
            right = (test.logits(weights)[0].argmax(-1) == test_true).double().mean().item()
            assert study.test_accuracy[e, position].item() == pytest.approx(right)
    assert study.fit_noisy[0].isnan().all()
    assert study.recorded.tolist() == [0, 20, 60]
    assert study.reset == study.test_accuracy[2, 0]
    assert study.head_only == 0.9


def test_attention_statistics_a_second_way(caches, study):
    train, _, test, _ = caches
    layer = train.subset(study.samples)
    trained = []
    for e in range(3):
        start = layer.start(scale=0.4, seed=5, run=1)
        trained.append(train_selection(layer, study.labels[e : e + 1], start, steps=60, step_size=0.05, seed=5)[0])
    for e in range(3):
        groups = {0: (layer, study.noisy[e]), 1: (layer, ~study.noisy[e]), 2: (test, torch.ones(40, dtype=torch.bool))}
        for kind, (part, mask) in groups.items():
            if not mask.any():
                assert study.twin_distance[e, kind].isnan()
                continue
            mine, twin = part.attention(trained[e])[0], part.attention(trained[0])[0]
            distances, largest = [], []
            for i in torch.where(mask)[0]:
                for head in range(2):
                    # Total variation is the mass that has to be moved.
                    distances.append((mine[i, head] - twin[i, head]).clamp_min(0).sum().item())
                    largest.append(mine[i, head].max().item())
            assert study.twin_distance[e, kind].item() == pytest.approx(sum(distances) / len(distances), abs=2e-3)
            assert study.max_attention[e, kind].item() == pytest.approx(sum(largest) / len(largest), abs=2e-3)


def test_samples_of_a_smaller_n_are_among_those_of_a_larger(caches):
    small, large = (noise_study(*caches, **(SETTINGS | {"n": n, "steps": 1}), reach_samples=0) for n in (5, 20))
    assert torch.equal(small.samples, large.samples[:5])
    assert small.reach != small.reach  # not asked for


def test_lost_fraction_by_hand(study):
    fixed = changed(study, test_accuracy=torch.tensor([[0.3, 0.8], [0.9, 0.72], [0.5, 0.32]], dtype=torch.float64))
    assert fixed.lost_fraction[0].isnan()
    # 0.08 / (0.2 0.8) and 0.48 / (0.6 0.8): the last copies the noise exactly, 0.4 times 0.8.
    assert fixed.lost_fraction[1:].tolist() == pytest.approx([0.5, 1.0])


def test_peak_and_memorisation_by_hand(study):
    made = changed(
        study,
        recorded=torch.tensor([0, 10, 20, 30]),
        test_accuracy=torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.5, 0.9, 0.9, 0.7], [0.6, 0.5, 0.4, 0.3]]),
        fit_noisy=torch.tensor([[torch.nan] * 4, [0.1, 0.2, 0.4, 0.8], [0.2, 0.1, 0.0, 0.0]]),
    )
    assert made.peak.tolist() == [3, 1, 0]
    assert made.memorised_at.tolist() == [4, 2, 4]  # 4: never


@pytest.mark.parametrize(
    ("fit", "lost", "word"),
    [
        (0.5, 0.24, "benign"),
        (1.0, -0.1, "benign"),
        (0.9, 0.25, "tempered"),
        (0.9, 0.99, "tempered"),
        (0.9, 1.0, "harmful"),
        (0.49, 0.24, "not overfitting"),
        (0.49, 0.25, "harm without memorising"),
        (float("nan"), 0.5, "no noise"),
        (1.0, float("nan"), "no noise"),
    ],
)
def test_verdict_words(fit, lost, word):
    assert verdict(fit, lost) == word


def test_a_new_linear_head_interpolates_what_can_be_separated_and_then_stops():
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(140, 4, generator=generator) * torch.logspace(-3, 3, 4) + 5
    true = (features[:, 0] > 5).long().expand(2, -1).clone()
    true[1] = 2 * (features[:, 3] > 5).long()  # features of very different size count alike
    fitted, predicted = new_linear_head(features[:100], true[:, :100], features[100:], 3)
    assert torch.equal(fitted, true[:, :100])
    assert ((predicted == true[:, 100:]).double().mean(1) > 0.9).all()
    # Random labels of 25 points in 30 dimensions are always separable; a single step is not enough.
    features, labels = torch.randn(25, 30, generator=generator), torch.randint(0, 3, (1, 25), generator=generator)
    assert torch.equal(new_linear_head(features, labels, features, 3)[0], labels)
    assert not torch.equal(new_linear_head(features, labels, features, 3, steps=1)[0], labels)


# --- digits

TINY = {
    "seeds": 2, "sizes": (10, 20), "noise_levels": (0.0, 0.2), "steps": 12, "epochs": 2, "held_size": 20, "free": (1, 2, 8),
    "parts": (200, 40, 60),
}  # fmt: skip
SHAPE = ViTShape(width=16, heads=4, hidden=24)


@pytest.fixture(scope="module")
def tiny():
    threads = torch.get_num_threads()
    result = digits_study(SHAPE, **TINY)
    assert torch.get_num_threads() == threads
    return result


def test_digits_study_has_every_run(tiny):
    assert tiny.seeds == (0, 1)
    assert tiny.free == (1, 2, 4)  # eight heads are not among four
    assert sorted(tiny.runs) == [10, 20]
    assert [run.seed for run in tiny.runs[10]] == [0, 1]
    assert tiny.values("test_accuracy", 10).shape == (2, 2, len(tiny.runs[10][0].recorded))
    assert tiny.held_values("twin_distance", 1).shape == (2, 2, 3)
    assert torch.equal(tiny.held_values("fit_noisy", 4)[:, 1], tiny.values("fit_noisy", 20)[:, 1])
    assert torch.equal(tiny.held_values("reach", 4), tiny.values("reach", 20))
    assert (tiny.one_token <= tiny.held_values("reach", 4) + 0.05).all()


def test_stored_runs_stand_for_the_trained_ones_at_the_same_settings_only(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(digits, "STORED", tmp_path / "kept.npz")
    runs = {n: [changed(r, reset=0.25) for r in tiny.runs[n]] for n in tiny.sizes}
    digits.store(changed(tiny, runs=runs), digits.STORED)
    read = digits_study(SHAPE, **TINY)
    assert read.trained == 1
    assert [run.reset for run in read.runs[20]] == [tiny.runs[20][0].reset, 0.25]
    assert read.drift == 0
    for name in ("train_loss", "twin_distance", "fit_noisy"):
        torch.testing.assert_close(read.values(name, 10), tiny.values(name, 10), rtol=0, atol=0, equal_nan=True)
    assert digits_study(SHAPE, **TINY, read=False).trained == 2
    other = digits_study(SHAPE, **(TINY | {"steps": 13}))
    assert other.trained == 2
    assert math.isnan(other.drift)


def test_a_run_that_left_its_stored_row_is_seen(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(digits, "STORED", tmp_path / "kept.npz")
    moved = changed(tiny.runs[10][0], test_accuracy=tiny.runs[10][0].test_accuracy + 0.125)
    digits.store(changed(tiny, runs=tiny.runs | {10: [moved, tiny.runs[10][1]]}), digits.STORED)
    assert digits_study(SHAPE, **TINY).drift == pytest.approx(0.125)


@pytest.mark.usefixtures("one_thread")
def test_held_heads_start_from_the_backbone_itself():
    plan = replace(PLANS["digits"], phase1=200, pool=40, test=60, epochs=2, shape=digits._plan_shape(SHAPE))
    setup = prepare("digits", 3, plan=plan)
    own = setup.own
    held = hold_heads(setup, 2)
    attention = setup.test.attention(own)[0]
    own_logits = setup.test.logits(own)[0]
    torch.testing.assert_close(held.test.logits_of(attention[:, :2]), own_logits, rtol=1e-4, atol=1e-5)
    accuracy = (own_logits.argmax(-1) == setup.test_labels).double().mean().item()
    assert accuracy == pytest.approx(setup.head_only)


def test_a_scaled_head_changes_the_loss_and_no_prediction(tiny):
    doubled = digits_study(SHAPE, **(TINY | {"seeds": 1}), head_scale=2.0)
    assert doubled.runs[10][0].reset == tiny.runs[10][0].reset
    assert doubled.runs[10][0].train_loss[0, 0] != tiny.runs[10][0].train_loss[0, 0]
    assert doubled.held[1][0].train_loss[0, 0] != tiny.held[1][0].train_loss[0, 0]
    assert torch.equal(doubled.one_token, tiny.one_token[:1])
