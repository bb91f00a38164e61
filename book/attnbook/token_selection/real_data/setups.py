"""From a data set to the two caches of the noise study: who is used for what, which backbone, how its head is trained.

Every seed draws its own disjoint parts: phase 1 (clean labels), the pool from which phase 2 takes its n samples, and the test
set. MNIST and AG-news are split from one official file, whatever is there; TREC keeps its official test set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from attnbook.token_selection.real_data.experiment import NoiseStudy, noise_study
from attnbook.token_selection.real_data.frozen import FrozenLastLayer
from attnbook.token_selection.real_data.loaders import RealData, load
from attnbook.token_selection.real_data.vit import ViTShape, train_vit
from attnlib import checks
from attnlib.randomness import stream

__all__ = ["PLANS", "Plan", "Setup", "accuracy", "parts_of", "prepare", "split_indices", "train_head"]


@dataclass(frozen=True)
class Plan:
    """Sizes and settings of one data set's experiment. A stored table holds them, so they are plain values.

    phase1, pool, test: number of samples of each part, all of the split `official` unless `test_split` names another for the
    test set (test None: all of that one). steps: horizon by n; batch: minibatch by n (None full). `shape` of the small ViT
    (empty: a pretrained one is needed); epochs and step size of phase 1. For texts: the number of positions `max_length`,
    whether [CLS] is position 0, and whether the head has BERT's pooler (a dense tanh layer, trained with it).
    data: name of the data set where the plan has a name of its own.
    """

    kind: str
    official: str
    phase1: int
    pool: int
    test: int | None
    sizes: tuple[int, ...]
    step_size: float
    steps: Mapping[int, int]
    batch: Mapping[int, int | None]
    recorded: tuple[int, ...] = (0, 5, 10, 20, 30, 50, 100, 200, 400)
    shape: Mapping[str, int] = field(default_factory=dict)
    max_length: int = 0
    special_tokens: bool = True
    epochs: int = 30
    head_step_size: float = 2e-3
    pooler: bool = True
    test_split: str = ""
    data: str = ""


_DIGITS_SHAPE = {"image": 8, "patch": 2, "width": 64, "heads": 16, "layers": 2, "hidden": 128}
_MNIST_SHAPE = {"image": 28, "patch": 7, "width": 64, "heads": 8, "layers": 2, "hidden": 128}

_TEXT_STEPS, _TEXT_BATCH = {20: 600, 200: 600, 1000: 700}, {20: None, 200: 32, 1000: 32}
_SMALL_STEP = (0, 10, 20, 50, 100, 200, 400, 800, 1500)

PLANS = {
    "digits": Plan(
        kind="image",
        official="all",
        phase1=1000,
        pool=297,
        test=500,
        sizes=(20, 100, 200),
        step_size=5e-3,
        steps={20: 600, 100: 600, 200: 600},
        batch={20: None, 100: None, 200: None},
        shape=_DIGITS_SHAPE,
    ),
    "mnist": Plan(
        kind="image",
        official="test",
        phase1=6000,
        pool=1500,
        test=2500,
        sizes=(20, 200, 1000),
        step_size=5e-3,
        steps={20: 600, 200: 600, 1000: 600},
        batch={20: None, 200: None, 1000: 128},
        shape=_MNIST_SHAPE,
        epochs=12,
    ),
    "ag_news": Plan(
        kind="text",
        official="test",
        phase1=3000,
        pool=1500,
        test=2000,
        sizes=(20, 200, 1000),
        step_size=1e-3,
        steps=_TEXT_STEPS,
        batch=_TEXT_BATCH,
        max_length=48,
        head_step_size=1e-3,
    ),
    "trec": Plan(
        kind="text",
        official="train",
        phase1=3000,
        pool=1500,
        test=None,
        test_split="test",
        sizes=(20, 200, 1000),
        step_size=1e-3,
        steps=_TEXT_STEPS,
        batch=_TEXT_BATCH,
        max_length=32,
        head_step_size=1e-3,
    ),
}
# Phase 1 as large as the authors'; test sets cut to what fits in memory (a ViT-B image is 0.6 MB at the last layer, twice).
_VIT = Plan(
    kind="image",
    official="train",
    phase1=10_000,
    pool=1000,
    test=1000,
    test_split="test",
    sizes=(20, 200, 1000),
    step_size=1e-3,
    steps=_TEXT_STEPS,
    batch=_TEXT_BATCH,
    head_step_size=1e-3,
)
PLANS["cifar10"] = _VIT
PLANS["pneumonia_mnist"] = replace(_VIT, phase1=3000, test=None)
PLANS["breast_mnist"] = replace(_VIT, phase1=200, pool=300, test=None, sizes=(20, 200))
# The same samples with a tenth of the step, and with a linear head: how much of the harm is the optimiser's or the head's.
for _name in ("ag_news", "trec"):
    PLANS[f"{_name}_linear_head"] = replace(PLANS[_name], data=_name, pooler=False)
    PLANS[f"{_name}_gentle_head"] = replace(PLANS[_name], data=_name, epochs=15, head_step_size=1e-4)
    PLANS[f"{_name}_small_step"] = replace(
        PLANS[_name],
        data=_name,
        sizes=(20, 200),
        step_size=1e-4,
        steps={20: 1500, 200: 2000},
        batch={20: None, 200: 32},
        recorded=_SMALL_STEP,
    )


@dataclass(frozen=True)
class Setup:
    """What the noise study needs for one seed: caches, true labels, and the accuracy of the untouched backbone."""

    pool: FrozenLastLayer
    pool_labels: torch.Tensor
    test: FrozenLastLayer
    test_labels: torch.Tensor
    classes: int
    head_only: float
    features: tuple[torch.Tensor, torch.Tensor]  # input of the head (ViT) or of the pooler (BERT): pool, test
    backbone: dict[str, Any]  # what a stored table says of it

    def study(self, n: int, noise_levels: Sequence[float], **settings: Any) -> NoiseStudy:
        """`noise_study` of n samples of the pool; `settings` are its keyword arguments."""
        return noise_study(
            self.pool, self.pool_labels, self.test, self.test_labels, n=n, classes=self.classes, noise_levels=noise_levels,
            head_only=self.head_only, features=self.features, **settings,
        )  # fmt: skip


def split_indices(count: int, parts: tuple[int, ...], *, seed: int) -> tuple[np.ndarray, ...]:
    """Disjoint random parts of 0..count-1, sorted, drawn from stream(seed, "resampling", 0). Raises ValueError when too many."""
    if sum(parts) > count:
        raise ValueError(f"parts must add up to at most {count}; got {parts}: the official file holds no more")
    order = stream(seed, "resampling", 0).permutation(count)
    return tuple(np.sort(part) for part in np.split(order[: sum(parts)], np.cumsum(parts)[:-1]))


def train_head(
    head: nn.Module,
    features: torch.Tensor,
    labels: torch.Tensor,
    *,
    seed: int,
    epochs: int = 30,
    batch: int = 64,
    step_size: float = 1e-3,
    weight_decay: float = 0.01,
) -> nn.Module:
    """Phase 1 on frozen features (N, D) with clean labels: AdamW, step size linear to zero, minibatches of stream(seed, "batches").

    `head` is trained in place and returned frozen.
    """
    checks.whole_number("epochs", epochs, at_least=1)
    checks.positive_number("step_size", step_size)
    head.requires_grad_(True)
    optimiser = torch.optim.AdamW(head.parameters(), lr=step_size, weight_decay=weight_decay)
    total = epochs * -(-len(features) // batch)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: 1 - step / total)
    draws = stream(seed, "batches", 0)
    for _ in range(epochs):
        for rows in torch.from_numpy(draws.permutation(len(features))).split(batch):
            optimiser.zero_grad()
            functional.cross_entropy(head(features[rows]), labels[rows]).backward()
            optimiser.step()
            schedule.step()
    return head.requires_grad_(False).eval()


def parts_of(data: RealData, plan: Plan, seed: int) -> tuple[np.ndarray, np.ndarray, tuple[str, np.ndarray]]:
    """Rows of phase 1 and pool in the split `official`, and (split, rows) of the test set, all drawn with this seed."""
    count = len(data.split(plan.official))
    if not plan.test_split:
        if plan.test is None:
            raise ValueError(
                f"test must be a number of samples when they are taken from the split {plan.official!r}; got None"
            )
        phase1, pool, test = split_indices(count, (plan.phase1, plan.pool, plan.test), seed=seed)
        return phase1, pool, (plan.official, test)
    phase1, pool = split_indices(count, (plan.phase1, plan.pool), seed=seed)
    held = len(data.split(plan.test_split))
    test = (
        np.arange(held) if plan.test is None else np.sort(stream(seed, "resampling", 2).permutation(held)[: plan.test])
    )
    return phase1, pool, (plan.test_split, test)


def accuracy(logits: torch.Tensor, labels: torch.Tensor) -> float:
    """Share of samples whose largest logit is their label."""
    return (logits.argmax(-1) == labels).double().mean().item()


@torch.no_grad()
def _small_vit_setup(data: RealData, plan: Plan, seed: int) -> Setup:
    images = torch.from_numpy(data.pixels(plan.official)[:, 0])
    labels = torch.from_numpy(data.split(plan.official).y)
    *rows, (split, held) = parts_of(data, plan, seed)
    if split != plan.official:
        raise ValueError(f"test_split must be empty for a small ViT; got {plan.test_split!r}: divide one split")
    phase1, pool, test = (torch.from_numpy(part) for part in (*rows, held))
    shape = ViTShape(classes=data.classes, **plan.shape)
    with torch.enable_grad():
        model = train_vit(
            images[phase1], labels[phase1], shape, seed=seed, epochs=plan.epochs, step_size=plan.head_step_size
        )
    features = model.features(images[pool]), model.features(images[test])
    return Setup(
        model.freeze(images[pool]),
        labels[pool],
        model.freeze(images[test]),
        labels[test],
        data.classes,
        accuracy(model.head(features[1]), labels[test]),
        features,
        {"what": "small pre-norm vision transformer, trained in phase 1", **plan.shape},
    )


def prepare(
    name: str,
    seed: int,
    *,
    plan: Plan | None = None,
    source: str = "auto",
    encoder: str | Path | None = None,
    encoder_name: str = "",
    cache: str | Path | None = None,
    progress: bool = False,
) -> Setup:
    """Load a data set, divide it, train phase 1, and cache the last layer's input for pool and test.

    name: a key of `PLANS`. encoder: folder or hub name of a pretrained ViT or BERT-like model, needed for texts and for images
    whose plan has no small ViT, used for any set it is given for. encoder_name: what a stored table calls it. cache: folder
    for encoded texts. Raises what `load` raises, ValueError when the parts do not fit or an encoder is needed and missing.
    """
    plan = plan or PLANS[checks.one_of("name", name, tuple(PLANS))]
    if encoder is None and not plan.shape:
        from attnbook.token_selection.real_data.hub import BACKBONES

        raise ValueError(
            f"encoder must be given for {name}: the folder of a pretrained model, or its name on the hub (the paper's is "
            f"{BACKBONES[plan.kind]!r})"
        )
    data = load(plan.data or name, source)
    if encoder is None:
        return _small_vit_setup(data, plan, seed)
    from attnbook.token_selection.real_data.pretrained import pretrained_setup

    return pretrained_setup(data, plan, seed, encoder, encoder_name=encoder_name, cache=cache, progress=progress)
