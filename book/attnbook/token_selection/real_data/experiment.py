"""The fine-tuning experiment under label noise: nested flips, Adam on query and key for all runs at once, every baseline and statistic."""

import itertools
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from attnbook.token_selection.real_data.frozen import FrozenLastLayer, QueryKey, reachable, wrong_labels
from attnlib import checks
from attnlib.randomness import stream

FITTED_FROM = 0.5  # fraction of flipped labels reproduced from which noise counts as memorised
BENIGN_BELOW = 0.25  # accuracy lost, as a fraction of copying, below which it counts as unharmed


# --- Flips and training ---------------------------------------------------------------------------------------------------


def check_noise_levels(noise_levels: Sequence[float], n: int) -> tuple[float, ...]:
    """The levels as floats. Raises ValueError unless they rise from 0 (the baseline), stay at most 1, and each flips a label."""
    levels = tuple(checks.probability("noise_levels", level) for level in noise_levels)
    if not levels or levels[0] != 0 or any(a >= b for a, b in itertools.pairwise(levels)):
        raise ValueError(f"noise_levels must rise from 0, the clean-label baseline; got {levels}")
    flips = [round(level * n) for level in levels]
    if any(a == b for a, b in itertools.pairwise(flips)):
        raise ValueError(
            f"noise_levels must each flip more of the n = {n} labels than the one before; got {levels}, which flip {flips}: "
            "raise n or spread the levels"
        )
    return levels


def nested_flips(
    labels: torch.Tensor, classes: int, noise_levels: Sequence[float], *, seed: int = 0, run: int = 1
) -> tuple[torch.Tensor, torch.Tensor]:
    """Labels with exactly round(eta n) of them changed to another class, uniformly; a smaller eta flips a subset.

    labels: (n,) int64. Returns (labels (E, n), flipped (E, n) bool), one row per level. Randomness: stream(seed, "flips", run).
    """
    n = len(labels)
    draws = stream(seed, "flips", run)
    order = torch.from_numpy(draws.permutation(n))
    other = (labels + torch.from_numpy(draws.integers(1, classes, n)).to(labels.device)) % classes
    rank = torch.empty_like(order)
    rank[order] = torch.arange(n)
    flipped = torch.stack([rank < round(level * n) for level in noise_levels]).to(labels.device)
    return torch.where(flipped, other, labels), flipped


def step_sizes(steps: int, step_size: float, warmup: int, final_fraction: float) -> list[float]:
    """Step sizes 1..steps: linear from step_size / warmup to `step_size`, then linear to `final_fraction` of it at the end."""
    rise = [step_size * (i + 1) / warmup for i in range(min(warmup, steps))]
    left = steps - len(rise)
    fall = np.linspace(1.0, final_fraction, left + 1)[1:] * step_size
    return rise + fall.tolist()


def train_selection(
    layer: FrozenLastLayer,
    labels: torch.Tensor,
    start: QueryKey,
    *,
    steps: int = 600,
    step_size: float = 5e-3,
    batch: int | None = None,
    warmup: int = 20,
    final_fraction: float = 0.1,
    drop_last: bool = True,
    seed: int = 0,
    run: int = 1,
    recorded: Sequence[int] = (),
    observe: Callable[[QueryKey], Any] | None = None,
) -> tuple[QueryKey, list]:
    """Adam (no weight decay) on query weight, query bias and key weight; every run has its own labels, loss and state.

    layer: n training samples. labels: (R, n) int64. start: (R, ...) weights, left untouched. batch: minibatch size, drawn in
    epochs in the order of stream(seed, "batches", run), the same for every run; None is full batch. drop_last: an epoch leaves out
    the samples that fill no batch; False makes a smaller one of them. `observe(weights)` is
    called without gradients after the steps named in `recorded` (0 is the start); its answers come back in order.

    Returns (trained weights (R, ...), observations).
    """
    n = len(layer)
    weights = QueryKey(*(tensor.detach().clone().requires_grad_() for tensor in start.tensors()))
    optimiser = torch.optim.Adam(weights.tensors(), lr=step_size, fused=True)
    watched, seen = set(recorded), []

    def watch(step: int) -> None:
        if observe is not None and step in watched:
            with torch.no_grad():
                seen.append(observe(weights))

    orders = stream(seed, "batches", run)
    queue: list[torch.Tensor] = []
    watch(0)
    for step, size in enumerate(step_sizes(steps, step_size, warmup, final_fraction), start=1):
        part, wanted = layer, labels
        if batch is not None and batch < n:
            if not queue:
                queue = list(torch.from_numpy(orders.permutation(n))[: n - n % batch if drop_last else n].split(batch))
            chosen = queue.pop(0)
            part, wanted = layer.subset(chosen), labels[:, chosen]
        logits = part.logits(weights)
        # The sum over runs of each run's mean: no run feels another.
        loss = functional.cross_entropy(logits.flatten(0, 1), wanted.flatten(), reduction="sum") / wanted.shape[1]
        for group in optimiser.param_groups:
            group["lr"] = size
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        watch(step)
    return QueryKey(*(tensor.detach() for tensor in weights.tensors())), seen


# --- One seed at all noise levels -----------------------------------------------------------------------------------------


class NoiseStudy(SimpleNamespace):
    """What one seed gave: E noise levels, the first the clean-label baseline (eta = 0), S recorded steps.

    n, seed, noise_levels (E).
    samples: (n,) indices into the training cache. labels: (E, n) trained on. noisy: (E, n) bool, True where flipped; nested in E.
    recorded: (S,) steps at which the path was recorded, 0 and the last among them. Of the path, each (E, S): test_accuracy, on true test
    labels; fit_noisy and fit_clean, fractions of flipped and of the other training labels reproduced; train_loss, mean cross-entropy on
    the labels trained on.
    hits: (E, M) bool, at the end: True where a test sample is given its true label.
    max_attention: (E, 3) largest attention weight, mean over samples and heads. twin_distance: (E, 3) total variation from the baseline's
    attention, the same mean. Second axis: training samples with a flipped label, the other training samples, test samples.
    head_only: test accuracy with the backbone's own query and key; nan when not given. reset: with fresh ones, before training.
    linear_head: (E,) test accuracy of a new linear head on frozen features; linear_head_fit: (E,) fraction of its training labels, flipped
    ones included, that it reproduces; nan without features.
    reach: fraction of test samples that free attention can give a random other label; nan when not asked for.

    Fractions lie in [0, 1]; nan where there is nothing to average (flipped samples of the baseline).
    """

    @property
    def lost_fraction(self) -> torch.Tensor:
        """(E,) accuracy lost against the baseline, as a fraction of copying: (acc_0 - acc_eta) / (eta acc_0); nan at eta = 0.

        A learner that reproduces the noise on fresh data (right with probability (1 - eta) acc_0) has fraction 1.
        """
        eta = torch.as_tensor(self.noise_levels, dtype=torch.float64)
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
    steps: int = 600,
    start_scale: float = 0.02,
    recorded: Sequence[int] | None = None,
    head_only: float = float("nan"),
    features: tuple[torch.Tensor, torch.Tensor] | None = None,
    reach_samples: int = 300,
    **training: Any,
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
        steps: horizon.
        start_scale: standard deviation of the fresh query and key weights; biases start at zero.
        recorded: steps to record besides 0 and the last; None takes about fifteen, closer together early on.
        head_only: test accuracy of the untouched backbone, kept in the result.
        features: (train (N, F), test (M, F)) inputs of the frozen linear head, for the baseline "new linear head".
        reach_samples: test samples on which reach is measured; 0 skips it.
        training: step_size, batch (the same order at every noise level), warmup, final_fraction and drop_last of `train_selection`.
    """
    levels = tuple(noise_levels)
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

    training |= {"steps": steps, "seed": seed, "recorded": marks, "observe": observe}
    trained, path = train_selection(layer, labels, start, **training)
    names = "test_accuracy", "fit_noisy", "fit_clean", "train_loss"
    found = dict(zip(names, (torch.stack(column, 1).cpu() for column in zip(*path, strict=True)), strict=True))

    with torch.no_grad():
        attention = layer.attention(trained), test.attention(trained)
        hits = test.logits_of(attention[1]).argmax(-1) == test_labels
        found["max_attention"] = _by_kind(*(a.amax(-1).mean(-1) for a in attention), noisy)
        found["twin_distance"] = _by_kind(*(0.5 * (a - a[:1]).abs().sum(-1).mean(-1) for a in attention), noisy)

    linear = torch.full((2, len(levels)), torch.nan, dtype=torch.float64)
    if features is not None:
        fitted, predicted = new_linear_head(features[0][samples], labels, features[1], classes)
        linear = torch.stack([(predicted == test_labels).double().mean(1), (fitted == labels).double().mean(1)]).cpu()

    reach = float("nan")
    if reach_samples:
        part = slice(0, reach_samples)
        targets = wrong_labels(test_labels[part], classes, seed=seed, run=2)
        reach = reachable(test.subset(part), targets).double().mean().item()
    found |= {"recorded": torch.tensor(marks), "samples": samples, "labels": labels.cpu(), "noisy": noisy.cpu()}
    found |= {"hits": hits.cpu(), "head_only": head_only, "reset": found["test_accuracy"][0, 0].item(), "reach": reach}
    found |= {"linear_head": linear[0], "linear_head_fit": linear[1]}
    return NoiseStudy(n=n, seed=seed, noise_levels=levels, **found)
