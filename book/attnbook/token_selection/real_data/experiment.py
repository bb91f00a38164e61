"""The fine-tuning experiment under label noise: one cache, all noise levels at once, every baseline, every statistic."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from attnbook.token_selection.real_data.frozen import FrozenLastLayer, QueryKey
from attnbook.token_selection.real_data.reach import reachable, wrong_labels
from attnbook.token_selection.real_data.selection import check_noise_levels, nested_flips, train_selection
from attnbook.token_selection.real_data.vit import check_labels
from attnlib import checks
from attnlib.randomness import stream

FITTED_FROM = 0.5  # fraction of flipped labels reproduced from which noise counts as memorised
BENIGN_BELOW = 0.25  # accuracy lost, as a fraction of copying, below which it counts as unharmed


@dataclass(frozen=True)
class NoiseStudy:
    """What one seed gave: E noise levels, the first the clean-label baseline (eta = 0), S recorded steps.

    Fractions lie in [0, 1]; nan where there is nothing to average (flipped samples of the baseline). Third axis "noisy, clean, test":
    training samples with a flipped label, the other training samples, test samples.
    """

    n: int
    seed: int
    classes: int
    noise_levels: tuple[float, ...]
    step_size: float
    steps: int  # horizon: optimiser steps
    batch: int | None  # None: full batch
    recorded: torch.Tensor  # (S,) steps at which the path was recorded, 0 and `steps` among them
    samples: torch.Tensor  # (n,) indices into the training cache
    labels: torch.Tensor  # (E, n) labels trained on
    noisy: torch.Tensor  # (E, n) bool, True where the label was flipped; nested in E
    test_accuracy: torch.Tensor  # (E, S) on true test labels
    hits: torch.Tensor  # (E, M) bool, at the end: True where a test sample is given its true label
    fit_noisy: torch.Tensor  # (E, S) fraction of flipped training labels reproduced
    fit_clean: torch.Tensor  # (E, S) fraction of the other training labels reproduced
    train_loss: torch.Tensor  # (E, S) mean cross-entropy on the labels trained on
    max_attention: torch.Tensor  # (E, 3) largest attention weight, mean over samples and heads: noisy, clean, test
    twin_distance: torch.Tensor  # (E, 3) total variation from the baseline's attention, the same mean
    head_only: float  # test accuracy with the backbone's own query and key; nan when not given
    reset: float  # test accuracy with fresh query and key, before training
    linear_head: torch.Tensor  # (E,) test accuracy of a new linear head on frozen features; nan without features
    linear_head_fit: torch.Tensor  # (E,) fraction of its training labels, flipped ones included, that it reproduces
    reach: float  # fraction of test samples that free attention can give a random other label; nan when not asked for

    @property
    def lost_fraction(self) -> torch.Tensor:
        """(E,) accuracy lost against the baseline, as a fraction of copying: (acc_0 - acc_eta) / (eta acc_0); nan at eta = 0.

        A learner that reproduces the noise on fresh data (right with probability (1 - eta) acc_0) has fraction 1.
        """
        eta = torch.tensor(self.noise_levels, dtype=torch.float64)
        accuracy = self.test_accuracy[:, -1]
        fraction = (accuracy[0] - accuracy) / (eta * accuracy[0])
        return fraction.where(eta > 0, torch.nan)

    @property
    def peak(self) -> torch.Tensor:
        """(E,) index into `recorded` of the best test accuracy (the first, when it is reached twice)."""
        return self.test_accuracy.argmax(1)

    @property
    def memorised_at(self) -> torch.Tensor:
        """(E,) index of the first recorded step with at least half of the final fraction of flipped labels reproduced.

        For the baseline, and where nothing is memorised at the end, S (after the last step).
        """
        S = len(self.recorded)
        final = self.fit_noisy[:, -1:]
        there = (self.fit_noisy >= final / 2) & (final > 0)
        return torch.where(there, torch.arange(S), S).amin(1)


def verdict(fit: float, lost_fraction: float) -> str:
    """The word for a trained network, from two numbers.

    fit: fraction of flipped training labels reproduced; lost_fraction: see `NoiseStudy.lost_fraction`.

    fit >= 1/2 (memorised):     "benign" below 1/4 of copying, "tempered" up to copying, "harmful" from there.
    fit < 1/2 (not memorised):  "not overfitting" below 1/4 of copying, else "harm without memorising".
    nan in either argument gives "no noise".
    """
    if fit != fit or lost_fraction != lost_fraction:
        return "no noise"
    if fit < FITTED_FROM:
        return "not overfitting" if lost_fraction < BENIGN_BELOW else "harm without memorising"
    if lost_fraction < BENIGN_BELOW:
        return "benign"
    return "tempered" if lost_fraction < 1 else "harmful"


def new_linear_head(
    train: torch.Tensor, labels: torch.Tensor, test: torch.Tensor, classes: int, *, steps: int = 2000
) -> tuple[torch.Tensor, torch.Tensor]:
    """Predictions of a new linear head, trained from zero by Adam until every run reproduces its labels, or for `steps`.

    train: (N, F) features; labels: (E, N) int64; test: (M, F). Features are standardised by the training set's mean and
    standard deviation. Returns (train predictions (E, N), test predictions (E, M)).
    """
    mean, spread = train.mean(0), train.std(0).clamp_min(1e-6)
    train, test = (train - mean) / spread, (test - mean) / spread
    E, N = labels.shape
    weight = train.new_zeros(E, train.shape[1], classes, requires_grad=True)
    bias = train.new_zeros(E, 1, classes, requires_grad=True)
    optimiser = torch.optim.Adam([weight, bias], lr=0.05, fused=True)
    for _ in range(steps):
        logits = train @ weight + bias
        if bool((logits.argmax(-1) == labels).all()):
            break
        optimiser.zero_grad()
        (functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum") / N).backward()
        optimiser.step()
    with torch.no_grad():
        return (train @ weight + bias).argmax(-1), (test @ weight + bias).argmax(-1)


def _share(hits: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Mean of hits (E, n) where the mask (E, n) is True; nan where it never is."""
    return (hits & mask).sum(1).double() / mask.sum(1)


def _by_kind(values: torch.Tensor, test_values: torch.Tensor, noisy: torch.Tensor) -> torch.Tensor:
    """(E, n) and (E, M) per-sample values to (E, 3): means over noisy, clean and test samples."""
    kinds = [torch.where(mask, values, 0.0).sum(1) / mask.sum(1) for mask in (noisy, ~noisy)]
    return torch.stack([*kinds, test_values.mean(1)], 1).double().cpu()


def _default_records(steps: int) -> list[int]:
    marks = [0, 5, 10, 15, 20, 30, 40, 50, 70, 100, 150, 200, 300, 400, 500, 600, 800]
    marks += list(range(1000, steps, 500))
    return [mark for mark in marks if mark < steps] + [steps]


def noise_study(
    train: FrozenLastLayer,
    train_labels: torch.Tensor,
    test: FrozenLastLayer,
    test_labels: torch.Tensor,
    *,
    n: int,
    classes: int,
    noise_levels: Sequence[float] = (0.0, 0.1, 0.2, 0.4),
    seed: int = 0,
    step_size: float = 5e-3,
    steps: int = 600,
    batch: int | None = None,
    start_scale: float = 0.02,
    recorded: Sequence[int] | None = None,
    head_only: float = float("nan"),
    features: tuple[torch.Tensor, torch.Tensor] | None = None,
    reach_samples: int = 300,
    **schedule: Any,
) -> NoiseStudy:
    """Train query and key of the last layer on n noisy-label samples, every noise level from the same start, where the caches are.

    Args:
        train, train_labels: cache and true labels (N,), int64, of the pool from which n samples are drawn without replacement.
        test, test_labels: cache and true labels (M,) of the held-out samples, of the same network.
        n: training samples, at most N; the samples of a smaller n are among those of a larger one.
        classes: number of classes; a flipped label is another class, uniformly.
        noise_levels: eta, rising from 0 (the baseline). Exactly round(eta n) labels are flipped, nested in eta.
        seed: samples ("resampling", run 1), flips ("flips", run 1 and, for reach, 2), start ("start", run 1) and minibatch
            order ("batches", run 1) are drawn from its streams.
        step_size: largest Adam step size; its schedule is that of `train_selection`.
        steps: horizon. batch: minibatch size (the same order at every noise level), None for full batch.
        start_scale: standard deviation of the fresh query and key weights; biases start at zero.
        recorded: steps to record besides 0 and the last; None takes about fifteen, closer together early on.
        head_only: test accuracy of the untouched backbone, kept in the result.
        features: (train (N, F), test (M, F)) inputs of the frozen linear head, for the baseline "new linear head".
        reach_samples: test samples on which reach is measured; 0 skips it.
        schedule: warmup, final_fraction and drop_last of `train_selection`.

    Raises ValueError before any work: labels outside 0..classes-1, n above N, noise levels that do not rise from 0 or flip no
    label, caches of different sizes.
    """
    checks.whole_number("n", n, at_least=1)
    checks.whole_number("classes", classes, at_least=2)
    checks.whole_number("reach_samples", reach_samples, at_least=0)
    if n > len(train):
        raise ValueError(f"n must be at most the {len(train)} samples of the training cache; got {n}")
    check_labels("train_labels", train_labels, len(train), classes)
    check_labels("test_labels", test_labels, len(test), classes)
    sizes = [(part.tokens.shape[2], part.values.shape[2], part.heads) for part in (train, test)]
    if sizes[0] != sizes[1]:
        raise ValueError(
            f"train and test must be caches of one network; got (width, values, heads) {sizes[0]} and {sizes[1]}"
        )
    levels = check_noise_levels(noise_levels, n)
    marks = sorted({0, steps, *(_default_records(steps) if recorded is None else recorded)})

    samples = torch.from_numpy(stream(seed, "resampling", 1).permutation(len(train)))[:n]
    layer, true = train.subset(samples), train_labels[samples]
    labels, noisy = nested_flips(true, classes, levels, seed=seed, run=1)
    start = layer.start(scale=start_scale, runs=len(levels), seed=seed, run=1)

    def observe(weights: QueryKey) -> tuple[torch.Tensor, ...]:
        logits = layer.logits(weights)
        hits = logits.argmax(-1) == labels
        loss = functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none").view(labels.shape)
        right = test.logits(weights).argmax(-1) == test_labels
        return right.double().mean(1), _share(hits, noisy), _share(hits, ~noisy), loss.double().mean(1)

    trained, path = train_selection(
        layer,
        labels,
        start,
        steps=steps,
        step_size=step_size,
        batch=batch,
        seed=seed,
        recorded=marks,
        observe=observe,
        **schedule,
    )
    accuracy, fit_noisy, fit_clean, loss = (torch.stack(column, 1).cpu() for column in zip(*path, strict=True))

    with torch.no_grad():
        attention = layer.attention(trained), test.attention(trained)
        hits = test.logits_of(attention[1]).argmax(-1) == test_labels
        largest = [a.amax(-1).mean(-1) for a in attention]
        distance = [0.5 * (a - a[:1]).abs().sum(-1).mean(-1) for a in attention]

    linear = torch.full((2, len(levels)), torch.nan, dtype=torch.float64)
    if features is not None:
        fitted, predicted = new_linear_head(features[0][samples], labels, features[1], classes)
        linear = torch.stack([(predicted == test_labels).double().mean(1), (fitted == labels).double().mean(1)]).cpu()

    reach = float("nan")
    if reach_samples:
        part = slice(0, reach_samples)
        targets = wrong_labels(test_labels[part], classes, seed=seed, run=2)
        reach = reachable(test.subset(part), targets).double().mean().item()
    return NoiseStudy(
        n=n,
        seed=seed,
        classes=classes,
        noise_levels=levels,
        step_size=step_size,
        steps=steps,
        batch=batch,
        recorded=torch.tensor(marks),
        samples=samples,
        labels=labels.cpu(),
        noisy=noisy.cpu(),
        test_accuracy=accuracy,
        hits=hits.cpu(),
        fit_noisy=fit_noisy,
        fit_clean=fit_clean,
        train_loss=loss,
        max_attention=_by_kind(*largest, noisy),
        twin_distance=_by_kind(*distance, noisy),
        head_only=head_only,
        reset=accuracy[0, 0].item(),
        linear_head=linear[0],
        linear_head_fit=linear[1],
        reach=reach,
    )
