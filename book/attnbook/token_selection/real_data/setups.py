"""From a data set to the two caches of the noise study: who is used for what, which backbone, how its head is trained.

Every seed draws its own disjoint parts: phase 1 (clean labels), the pool from which phase 2 takes its n samples, and the test
set. MNIST and AG-news are split from one official file, whatever is there; TREC, CIFAR-10 and the medical sets keep their official
test sets.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from attnbook.token_selection.real_data import backbones
from attnbook.token_selection.real_data.experiment import NoiseStudy, noise_study
from attnbook.token_selection.real_data.fixed_tokens import KeptTokens, MPNetTokens, progress_bar
from attnbook.token_selection.real_data.frozen import FrozenLastLayer, QueryKey
from attnbook.token_selection.real_data.lite0 import NETS, LiteTokens
from attnbook.token_selection.real_data.loaders import RealData, load
from attnbook.token_selection.real_data.plans import PLANS, Plan
from attnbook.token_selection.real_data.vit import RandomFeatures, ViTShape, train_vit
from attnlib.randomness import stream


@dataclass(frozen=True)
class Rows:
    """Which samples a seed uses: counts of the splits, sha256 of the files they were read from, and of the row numbers drawn."""

    counts: dict[str, int]
    files: dict[str, str]
    drawn: str  # sha256 of the row numbers, int64: phase 1, pool, test
    test: tuple[int, ...]  # the test set's row numbers in its split, rising

    @property
    def tested(self) -> int:
        """Samples of the test set."""
        return len(self.test)

    @classmethod
    def of(cls, data: RealData, plan: Plan, seed: int) -> Rows:
        """Of one seed of a plan; see `parts_of`."""
        phase1, pool, (_, test) = parts_of(data, plan, seed)
        drawn = hashlib.sha256(b"".join(part.astype("<i8").tobytes() for part in (phase1, pool, test))).hexdigest()
        files = {name: digest for split in data.splits.values() for name, digest in split.files.items()}
        return cls({name: len(split) for name, split in data.splits.items()}, files, drawn, tuple(test.tolist()))


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
    own: QueryKey  # the query and key that phase 1 left in the last layer, one run
    rows: Rows

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
    if plan.balanced:
        return _balanced_parts(data, plan, seed)
    count = len(data.split(plan.official))
    if not plan.test_split:
        phase1, pool, test = split_indices(count, (plan.phase1, plan.pool, plan.test), seed=seed)
        return phase1, pool, (plan.official, test)
    phase1, pool = split_indices(count, (plan.phase1, plan.pool), seed=seed)
    held = len(data.split(plan.test_split))
    test = (
        np.arange(held) if plan.test is None else np.sort(stream(seed, "resampling", 2).permutation(held)[: plan.test])
    )
    return phase1, pool, (plan.test_split, test)


def _by_class(labels: np.ndarray, classes: int, draws: np.random.Generator) -> list[np.ndarray]:
    """Rows of each class, in random order."""
    return [draws.permutation(np.flatnonzero(labels == c)) for c in range(classes)]


def _balanced_parts(data: RealData, plan: Plan, seed: int) -> tuple[np.ndarray, np.ndarray, tuple[str, np.ndarray]]:
    """As `parts_of`, with equally many samples of each class in every part; phase 1 repeats rows where a class has too few."""
    rows = _by_class(data.split(plan.official).y, data.classes, stream(seed, "resampling", 0))
    share, each = plan.pool // data.classes, plan.phase1 // data.classes
    if share >= min(map(len, rows)):
        raise ValueError(f"pool must leave rows of each class for phase 1; got {plan.pool} of {[*map(len, rows)]} rows")
    pool = np.sort(np.concatenate([own[:share] for own in rows]))
    phase1 = np.sort(np.concatenate([np.resize(own[share:], each) for own in rows]))
    held = _by_class(data.split(plan.test_split).y, data.classes, stream(seed, "resampling", 2))
    most = min(map(len, held)) if plan.test is None else plan.test // data.classes
    return phase1, pool, (plan.test_split, np.sort(np.concatenate([own[:most] for own in held])))


def accuracy(logits: torch.Tensor, labels: torch.Tensor) -> float:
    """Share of samples whose largest logit is their label."""
    return (logits.argmax(-1) == labels).double().mean().item()


@torch.no_grad()
def head_confidence(setup: Setup) -> float:
    """Median over the pool of the largest logit minus the second largest, under the query and key of phase 1: no label enters.

    To change the answer of the median sample, attention must move the difference of two logits by this much.
    """
    first, second = setup.pool.logits(setup.own).reshape(len(setup.pool), -1).topk(2).values.unbind(-1)
    return (first - second).double().median().item()


def scale_head(setup: Setup, factor: float) -> Setup:
    """The same setup with the frozen head's logits multiplied by `factor` > 0: no prediction changes, its confidence does."""
    pool, test = (
        replace(part, finish=lambda attended, residual, finish=part.finish: factor * finish(attended, residual))
        for part in (setup.pool, setup.test)
    )
    return replace(setup, pool=pool, test=test)


def prepare(
    name: str,
    seed: int,
    *,
    plan: Plan | None = None,
    data: RealData | str | Path | None = None,
    encoder: str | Path | None = None,
    **options: Any,
) -> Setup:
    """Load a data set, divide it, train phase 1, cache the last layer's input for pool and test, and scale the head by the plan.

    name: a key of `PLANS`. encoder: folder or hub name of a pretrained ViT or BERT-like model, needed for texts and for images
    whose plan has no small ViT, used for any set it is given for. data: what was loaded, or a folder of published files, see `load`.
    options: `encoder_name`, what a stored table calls the encoder; `cache`, folder of encoded texts and pictures; `progress`, bars or none;
    `device`, where phase 1 is trained and the caches lie, float32.

    Raises what `load` raises, ValueError when the parts do not fit.
    """
    plan = plan or PLANS[name]
    found = data if isinstance(data, RealData) else load(plan.data or name, data)
    if encoder:
        made = pretrained_setup(found, plan, seed, encoder, **options)
    else:
        options.pop("encoder_name", None)
        made = small_vit_setup(found, plan, seed, **options)
    return scale_head(made, plan.confidence / head_confidence(made)) if plan.confidence else made


# --- The small vision transformer -----------------------------------------------------------------------------------------


def weakened(
    tokens: torch.Tensor, rows: np.ndarray, channels: int, mixed: float, *, seed: int, run: int = 0
) -> torch.Tensor:
    """Tokens (N, L, D) of the pictures `rows` of a split, made weaker: (N, L, channels), as they come where nothing is asked.

    channels: so many of the D are kept, the same in every picture, drawn from stream(seed, "resampling", 3). mixed: to each number noise is
    added, normal, `mixed` times as wide as the channel's own standard deviation here, the same for a picture that comes twice. run: another
    for each part, whose noise must be its own.
    """
    if channels < tokens.shape[2]:
        kept = np.sort(stream(seed, "resampling", 3).permutation(tokens.shape[2])[:channels])
        tokens = tokens[..., kept]
    if not mixed:
        return tokens
    pictures, place = np.unique(rows, return_inverse=True)
    drawn = stream(seed, "noise", run).standard_normal((len(pictures), *tokens.shape[1:]), dtype=np.float32)
    return tokens + (mixed * tokens.float().std((0, 1)) * torch.from_numpy(drawn)[place]).half()


def fixed_backbone(plan: Plan, cache: str | Path | None = None) -> KeptTokens:
    """The pretrained backbone that a plan names in `fixed`. Raises as `Packaged.paths` does."""
    return LiteTokens(plan.fixed, cache) if plan.fixed in NETS else MPNetTokens(plan.max_length, cache)


# Rows of a split, and which part they are (1 the pool, 2 the test set) -> last layer, input of the head, labels.
Layer = Callable[[str, np.ndarray, int], tuple[FrozenLastLayer, torch.Tensor, torch.Tensor]]


def _setup(
    data: RealData, plan: Plan, seed: int, layer: Layer, head: nn.Module, own: QueryKey, backbone: dict[str, Any]
) -> Setup:
    _, rows, test_rows = parts_of(data, plan, seed)
    pool, pool_features, pool_labels = layer(plan.official, rows, 1)
    test, test_features, test_labels = layer(*test_rows, 2)
    right, features = accuracy(head(test_features), test_labels), (pool_features, test_features)
    drawn = Rows.of(data, plan, seed)
    return Setup(pool, pool_labels, test, test_labels, data.classes, right, features, backbone, own, drawn)


@torch.no_grad()
def small_vit_setup(
    data: RealData,
    plan: Plan,
    seed: int,
    *,
    cache: str | Path | None = None,
    progress: bool = False,
    device: str | torch.device = "cpu",
) -> Setup:
    """`Setup` of one seed on the plan's own small ViT; arguments as in `prepare`."""
    shape = ViTShape(classes=data.classes, **plan.shape)
    phase1, _, (held_split, _) = parts_of(data, plan, seed)
    what, sha256 = "small pre-norm vision transformer, trained in phase 1", {}
    if plan.fixed:
        backbone = fixed_backbone(plan, cache)
        what = f"{backbone.what}; one pre-norm transformer layer and head, trained in phase 1"
        sha256 = {f"{plan.fixed}_sha256": backbone.sha256}
    else:
        pixels = {split: data.pixels(split) for split in (plan.official, held_split)}
    if plan.random_features:
        random = RandomFeatures(shape.image, shape.patch, seed=seed, **plan.random_features)
        random.fit(pixels[plan.official][np.unique(phase1)])
        what = "random Fourier features of windows, fixed, and one pre-norm transformer layer, trained in phase 1"

    def part(split: str, rows: np.ndarray, run: int) -> tuple[torch.Tensor, torch.Tensor]:
        labels = torch.from_numpy(data.split(split).y[rows]).to(device)
        if plan.fixed:
            tokens = backbone.transform(data.split(split).x, rows, progress=progress)
            return weakened(tokens, rows, shape.features, plan.mixed, seed=seed, run=run).to(device), labels
        chosen = pixels[split][rows]
        if plan.random_features:
            return random.transform(chosen).to(device), labels
        return torch.from_numpy(chosen[:, 0] if shape.channels == 1 else chosen).to(device), labels

    with torch.enable_grad():
        known, labels = part(plan.official, phase1, 0)
        model = train_vit(known, labels, shape, seed=seed, epochs=plan.epochs, step_size=plan.head_step_size)

    def layer(split: str, rows: np.ndarray, run: int) -> tuple[FrozenLastLayer, torch.Tensor, torch.Tensor]:
        images, labels = part(split, rows, run)
        return model.freeze(images), model.features(images), labels

    said = {
        "what": what,
        **plan.shape,
        **plan.random_features,
        **sha256,
        **({"mixed": plan.mixed} if plan.mixed else {}),
    }
    return _setup(data, plan, seed, layer, model.head, model.own_selection(), said)


# --- Pretrained models: of the phase-1 samples only the features of position 0 are kept -----------------------------------


# Rows of a split -> (hidden (N, L, D), mask (N, L) or None) at the entrance of the last layer.
Encode = Callable[[str, np.ndarray], tuple[torch.Tensor, torch.Tensor | None]]


def processed(processor: object, images: np.ndarray) -> torch.Tensor:
    """Images uint8 (N, C, H, W), one channel or three, as a ViT's processor returns them: (N, 3, H', W') float32."""
    colour = np.repeat(images, 3, axis=1) if images.shape[1] == 1 else images
    return processor(list(colour.transpose(0, 2, 3, 1)), return_tensors="pt")["pixel_values"]


def _text_encoding(data: RealData, plan: Plan, folder: Path, cache: str | Path | None, progress: bool) -> Encode:
    kept = backbones.EncodedTexts(folder, plan.max_length, plan.special_tokens, cache)

    def encode(split: str, rows: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = kept.transform(data.split(split).x, rows, progress=progress)
        return hidden, (hidden != 0).any(-1)

    return encode


def _image_encoding(data: RealData, model: nn.Module, folder: Path, batch: int = 16) -> Encode:
    processor, device = backbones.load_image_processor(folder), next(model.parameters()).device

    def encode(split: str, rows: np.ndarray) -> tuple[torch.Tensor, None]:
        images = data.split(split).x
        chunks = np.array_split(rows, -(-len(rows) // batch))
        hidden = [
            backbones.last_layer_input(model, {"pixel_values": processed(processor, images[chunk]).to(device)})
            for chunk in chunks
        ]
        return torch.cat(hidden), None

    return encode


@torch.no_grad()
def pretrained_setup(
    data: RealData,
    plan: Plan,
    seed: int,
    encoder: str | Path,
    *,
    encoder_name: str = "",
    cache: str | Path | None = None,
    progress: bool = False,
    device: str | torch.device = "cpu",
) -> Setup:
    """`Setup` of one seed on a pretrained model (folder or hub name); arguments as in `prepare`."""
    folder = backbones.local_copy(encoder)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(stream(seed, "start", 2).integers(2**31)))  # the fresh classifier's weights
        model = backbones.load_classifier(data.kind, data.classes, folder).to(device)
    if not plan.pooler:
        backbones.remove_pooler(model)
    if data.kind == "text":
        encode = _text_encoding(data, plan, folder, cache, progress)
    else:
        encode = _image_encoding(data, model, folder)
    own = backbones.last_layer(model).query_key()

    def layer(split: str, rows: np.ndarray, run: int = 0) -> tuple[FrozenLastLayer, torch.Tensor, torch.Tensor]:
        hidden, mask = encode(split, rows)
        frozen = backbones.frozen_last_layer(model, hidden.to(device), None if mask is None else mask.to(device))
        features = frozen.finish.features(frozen.attended(frozen.attention(own)), frozen.residual)
        return frozen, features, torch.from_numpy(data.split(split).y[rows]).to(device)

    phase1, *_ = parts_of(data, plan, seed)
    chunks = progress_bar(np.array_split(phase1, -(-len(phase1) // 512)), "phase 1", progress)
    known = torch.cat([layer(plan.official, rows)[1] for rows in chunks])
    finish = backbones.Finish(model)
    head = nn.Sequential(finish.pooler, finish.head)
    labels = torch.from_numpy(data.split(plan.official).y[phase1]).to(device)
    with torch.enable_grad():
        train_head(head, known, labels, seed=seed, epochs=plan.epochs, step_size=plan.head_step_size)
    if data.kind == "text":
        position = "[CLS]" if plan.special_tokens else "the first word piece"
        trained = "pooler and head" if plan.pooler else "linear head"
        what = f"frozen {encoder_name or 'text encoder'}; {trained} on position 0 ({position}) trained in phase 1"
    else:
        what = f"frozen {encoder_name or 'vision transformer'}; head on position 0 trained in phase 1"
    one_run = QueryKey(*(part.unsqueeze(0) for part in own.tensors()))
    return _setup(data, plan, seed, layer, head, one_run, {"what": what, **backbones.describe_encoder(folder)})
