"""Setups on a pretrained ViT or BERT-like model: encode once, train the head on frozen features, cache the last layer's input.

Of the phase-1 samples only the features of position 0 are kept; of pool and test the whole input of the last layer.
"""

import functools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import nn

from attnbook.token_selection.real_data import backbones
from attnbook.token_selection.real_data.frozen import FrozenLastLayer, QueryKey
from attnbook.token_selection.real_data.loaders import RealData
from attnbook.token_selection.real_data.plans import Plan
from attnbook.token_selection.real_data.setups import Rows, Setup, accuracy, parts_of, train_head
from attnbook.token_selection.real_data.text_encoder import describe_encoder, encode_texts
from attnlib.randomness import stream

# Rows of a split -> (hidden (N, L, D), mask (N, L) or None) at the entrance of the last layer.
Encode = Callable[[str, np.ndarray], tuple[torch.Tensor, torch.Tensor | None]]


def processed(processor: object, images: np.ndarray) -> torch.Tensor:
    """Images uint8 (N, C, H, W), one channel or three, as a ViT's processor returns them: (N, 3, H', W') float32."""
    colour = np.repeat(images, 3, axis=1) if images.shape[1] == 1 else images
    return processor(list(colour.transpose(0, 2, 3, 1)), return_tensors="pt")["pixel_values"]


def _text_encoding(data: RealData, plan: Plan, folder: Path, cache: str | Path | None, progress: bool) -> Encode:
    @functools.cache
    def encoded(split: str) -> tuple[np.ndarray, np.ndarray]:
        return encode_texts(
            folder,
            data.split(split).x,
            max_length=plan.max_length,
            special_tokens=plan.special_tokens,
            cache=cache,
            progress=progress,
        )

    def encode(split: str, rows: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        hidden, mask = encoded(split)
        return torch.from_numpy(np.array(hidden[rows])), torch.from_numpy(mask[rows])

    return encode


def _image_encoding(data: RealData, model: nn.Module, folder: Path, batch: int = 16) -> Encode:
    processor = backbones.load_image_processor(folder)

    def encode(split: str, rows: np.ndarray) -> tuple[torch.Tensor, None]:
        images = data.split(split).x
        chunks = np.array_split(rows, -(-len(rows) // batch))
        hidden = [
            backbones.last_layer_input(model, {"pixel_values": processed(processor, images[chunk])}) for chunk in chunks
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
) -> Setup:
    """`Setup` of one seed on a pretrained model (folder or hub name); arguments as in `preparing.prepare`."""
    folder = backbones.local_copy(encoder)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(stream(seed, "start", 2).integers(2**31)))  # the fresh classifier's weights
        model = backbones.load_classifier(data.kind, data.classes, folder)
    if not plan.pooler:
        backbones.remove_pooler(model)
    if data.kind == "text":
        encode = _text_encoding(data, plan, folder, cache, progress)
    else:
        encode = _image_encoding(data, model, folder)
    own = backbones.last_layer(model).query_key()

    def layer(split: str, rows: np.ndarray) -> tuple[FrozenLastLayer, torch.Tensor, torch.Tensor]:
        frozen = backbones.frozen_last_layer(model, *encode(split, rows))
        features = frozen.finish.features(frozen.attended(frozen.attention(own)), frozen.residual)
        return frozen, features, torch.from_numpy(data.split(split).y[rows])

    phase1, pool, test = parts_of(data, plan, seed)
    chunks = backbones.progress_bar(np.array_split(phase1, -(-len(phase1) // 512)), "phase 1", progress)
    known = torch.cat([layer(plan.official, rows)[1] for rows in chunks])
    finish = backbones.Finish(model)
    head = nn.Sequential(finish.pooler, finish.head)
    labels = torch.from_numpy(data.split(plan.official).y[phase1])
    with torch.enable_grad():
        train_head(head, known, labels, seed=seed, epochs=plan.epochs, step_size=plan.head_step_size)
    pool_layer, pool_features, pool_labels = layer(plan.official, pool)
    test_layer, test_features, test_labels = layer(*test)
    if data.kind == "text":
        position = "[CLS]" if plan.special_tokens else "the first word piece"
        trained = "pooler and head" if plan.pooler else "linear head"
        what = f"frozen {encoder_name or 'text encoder'}; {trained} on position 0 ({position}) trained in phase 1"
    else:
        what = f"frozen {encoder_name or 'vision transformer'}; head on position 0 trained in phase 1"
    return Setup(
        pool_layer,
        pool_labels,
        test_layer,
        test_labels,
        data.classes,
        accuracy(head(test_features), test_labels),
        (pool_features, test_features),
        {"what": what, **describe_encoder(folder)},
        QueryKey(*(part.unsqueeze(0) for part in own.tensors())),
        Rows.of(data, plan, seed),
    )
