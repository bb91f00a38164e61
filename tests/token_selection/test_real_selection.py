"""Flips are exact and nested; the step size follows its schedule; runs on one axis do not feel each other."""

import pytest
import torch

from attnbook.token_selection.real_data.frozen import QueryKey
from attnbook.token_selection.real_data.selection import check_noise_levels, nested_flips, step_sizes, train_selection
from tests.bad_input import refusing
from tests.token_selection.test_real_frozen import random_layer

LEVELS = (0.0, 0.1, 0.25, 0.6)


def test_flips_are_exact_nested_and_to_another_class():
    true = torch.arange(41) % 7
    labels, flipped = nested_flips(true, 7, LEVELS, seed=3)
    assert labels.shape == flipped.shape == (4, 41)
    assert flipped.sum(1).tolist() == [round(level * 41) for level in LEVELS] == [0, 4, 10, 25]
    assert torch.equal(labels != true, flipped)
    for fewer, more in zip(range(3), range(1, 4), strict=True):
        assert not (flipped[fewer] & ~flipped[more]).any()
        assert torch.equal(labels[more][flipped[fewer]], labels[fewer][flipped[fewer]])
    assert int(labels.min()) >= 0
    assert int(labels.max()) <= 6


def test_a_flipped_label_is_uniform_over_the_other_classes_and_flips_are_over_samples():
    true = torch.full((60,), 2)
    counts, places = torch.zeros(5), torch.zeros(60)
    for seed in range(400):
        labels, flipped = nested_flips(true, 5, (0.0, 0.5), seed=seed)
        counts += torch.bincount(labels[1][flipped[1]], minlength=5)
        places += flipped[1]
    assert counts[2] == 0
    expected = 400 * 30 / 4
    assert ((counts[[0, 1, 3, 4]] - expected) ** 2 / expected).sum() < 16.3  # chi-squared, 3 degrees, 1/1000
    assert ((places - 200) / 10).abs().max() < 4.5  # binomial(400, 1/2), sixty looks


def test_flips_are_set_by_seed_and_run():
    true = torch.arange(30) % 3
    first = nested_flips(true, 3, LEVELS, seed=1)[0]
    assert torch.equal(first, nested_flips(true, 3, LEVELS, seed=1)[0])
    assert not torch.equal(first, nested_flips(true, 3, LEVELS, seed=2)[0])
    assert not torch.equal(first, nested_flips(true, 3, LEVELS, seed=1, run=5)[0])


test_bad_noise_levels = refusing(
    (lambda: check_noise_levels((0.1, 0.2), 20), "must rise from 0, the clean-label baseline"),
    (check_noise_levels, {"n": 20}, {"noise_levels": [(), (0.0, 0.2, 0.1), (0.0, float("nan"))]}),
    (lambda: check_noise_levels((0.0, 0.01), 20), r"more of the n = 20 labels .* which flip \[0, 0\]: raise n"),
    (lambda: check_noise_levels((0.0, 1.2), 20), r"noise_levels must be in \[0, 1\]; got 1.2"),
)


def test_step_sizes_by_hand():
    assert step_sizes(6, 0.4, 2, 0.1) == pytest.approx([0.2, 0.4, 0.31, 0.22, 0.13, 0.04])
    assert step_sizes(3, 1.0, 0, 1.0) == [1.0, 1.0, 1.0]
    assert step_sizes(2, 1.0, 4, 0.1) == [0.25, 0.5]


def test_a_smaller_last_batch_is_left_out_or_kept():
    layer, sizes = random_layer(N=10), []
    start = layer.start(scale=0.5, seed=1)
    kept = layer.subset
    for drop_last, expected in ((True, [4, 4] * 2), (False, [4, 4, 2] * 2)):
        sizes.clear()
        object.__setattr__(layer, "subset", lambda rows: sizes.append(rows.tolist()) or kept(rows))
        train_selection(layer, labels_of(1, 10), start, steps=len(expected), batch=4, drop_last=drop_last)
        assert [len(rows) for rows in sizes] == expected
        for epoch in (sizes[: len(expected) // 2], sizes[len(expected) // 2 :]):  # without repetition
            assert len({row for rows in epoch for row in rows}) == sum(expected) // 2
        assert sizes[: len(expected) // 2] != sizes[len(expected) // 2 :]


@pytest.mark.parametrize(("steps", "warmup", "largest"), [(1, 4, 0.1), (1, 1, 0.4), (1, 0, 0.04)])
def test_training_takes_the_step_sizes_of_the_schedule(steps, warmup, largest):
    # Adam's first step moves every coordinate by the step size, whatever the gradient.
    layer = random_layer(N=8)
    start = layer.start(scale=0.5, seed=1)
    kept = [tensor.clone() for tensor in start.tensors()]
    trained, _ = train_selection(layer, labels_of(1, 8), start, steps=steps, step_size=0.4, warmup=warmup)
    assert all(torch.equal(a, b) for a, b in zip(kept, start.tensors(), strict=True))
    assert (trained.key - start.key).abs().max().item() == pytest.approx(largest, rel=1e-3)


def labels_of(runs, n=4):
    return torch.randint(0, 4, (runs, n), generator=torch.Generator().manual_seed(runs))


@pytest.mark.parametrize("batch", [None, 3])
def test_a_batch_of_runs_equals_the_runs_alone(batch):
    layer = random_layer(N=8, masked=True)
    labels = labels_of(3, 8)
    start = layer.start(scale=0.5, runs=3, seed=1)
    settings = {"steps": 12, "step_size": 0.05, "batch": batch, "seed": 6}
    together, _ = train_selection(layer, labels, start, **settings)
    for r in range(3):
        alone, _ = train_selection(layer, labels[r : r + 1], layer.start(scale=0.5, seed=1), **settings)
        for a, b in zip(alone.tensors(), together.tensors(), strict=True):
            torch.testing.assert_close(a[0], b[r], rtol=1e-3, atol=1e-4)
    assert not torch.allclose(together.key[0], together.key[1], atol=1e-2)


def test_observations_come_at_the_recorded_steps_without_gradients():
    layer = random_layer(N=8)
    start = layer.start(scale=0.5, seed=1)
    noted = []

    def observe(weights: QueryKey):
        noted.append(torch.is_grad_enabled())
        return weights.key.detach().clone()

    trained, path = train_selection(
        layer, labels_of(1, 8), start, steps=5, step_size=0.1, recorded=[5, 0, 2], observe=observe
    )
    assert noted == [False, False, False]
    assert torch.equal(path[0], start.key)
    assert torch.equal(path[2], trained.key)
    assert not torch.equal(path[1], path[2])


test_bad_training_arguments = refusing(
    (
        train_selection,
        {"layer": random_layer(N=8), "labels": labels_of(1, 8), "start": random_layer(N=8).start()},
        {"labels": labels_of(2, 8), "steps": 0, "step_size": -1.0, "batch": 0, "warmup": -1, "final_fraction": 2.0},
    )
)
