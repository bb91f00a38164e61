"""Texts as the last layer of a frozen encoder sees them, computed once and kept in a file.

Everything below the last layer is frozen in this experiment, so a text has to pass through the encoder only once. What is
kept is the input of the last layer, not a result: every seed, sample size and noise level starts from the same file.
Any folder that `transformers` can load as a BERT-like model will do; the library depends on no particular one.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from attnbook.token_selection.real_data import backbones
from attnlib import checks
from attnlib.extras import extra

_WEIGHTS = ("model.safetensors", "pytorch_model.bin")


def cache_folder() -> Path:
    """Where encoded texts are kept: $ATTNLIB_CACHE, else $XDG_CACHE_HOME/attnlib, else ~/.cache/attnlib."""
    if named := os.environ.get("ATTNLIB_CACHE"):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "attnlib"


def file_sha256(path: Path) -> str:
    """SHA-256 of a file, as 64 hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _weights_file(folder: Path) -> Path:
    for name in _WEIGHTS:
        if (folder / name).is_file():
            return folder / name
    raise FileNotFoundError(
        f"encoder must be a folder with {' or '.join(_WEIGHTS)}, config.json and a tokenizer; got {folder}: give the folder "
        "that save_pretrained wrote, or one downloaded from a model hub"
    )


def describe_encoder(folder: str | Path) -> dict[str, Any]:
    """What a stored table says of an encoder, without its path: architecture, layers, width, heads, sha256 of the weights.

    Raises FileNotFoundError when the folder holds no model.
    """
    folder = Path(folder)
    weights = _weights_file(folder)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return {
        "architecture": config.get("model_type", "unknown"),
        "layers": config.get("num_hidden_layers"),
        "width": config.get("hidden_size"),
        "heads": config.get("num_attention_heads"),
        "weights_sha256": file_sha256(weights),
    }


def _encode(
    weights: str, texts: list[str], max_length: int, special_tokens: bool, encoder: Path, batch: int, progress: bool
):
    """hidden and mask, computed; see `encode_texts`. `weights`: sha256 of the encoder's, by which the kept result is found."""
    tokenizer, model = backbones.load_tokenizer(encoder), backbones.load_classifier("text", 2, encoder)
    limit = model.config.max_position_embeddings
    if max_length > limit:
        raise ValueError(f"max_length must be at most the encoder's {limit} positions; got {max_length}")
    pieces = tokenizer(texts, truncation=True, max_length=max_length, add_special_tokens=special_tokens)["input_ids"]
    lengths = np.array([len(row) for row in pieces])
    if not lengths.all():
        first = texts[int(np.argmin(lengths))]
        raise ValueError(f"texts must give at least one word piece; got none for {first!r}: use special_tokens=True")
    mask = np.arange(max_length) < lengths[:, None]
    hidden = np.zeros((len(texts), max_length, model.config.hidden_size), np.float32)
    order = np.argsort(lengths, kind="stable")  # texts of one length together: little padding is computed
    for start in backbones.progress_bar(range(0, len(order), batch), "encoding", progress):
        rows = order[start : start + batch]
        longest = int(lengths[rows].max())
        ids = np.full((len(rows), longest), tokenizer.pad_token_id or 0)
        for i, row in enumerate(rows):
            ids[i, : lengths[row]] = pieces[row]
        inputs = {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(mask[rows, :longest]).long()}
        hidden[rows, :longest] = backbones.last_layer_input(model, inputs).numpy() * mask[rows, :longest, None]
    return hidden, mask


def encode_texts(
    encoder: str | Path,
    texts: Sequence[str],
    *,
    max_length: int,
    special_tokens: bool = True,
    batch: int = 64,
    cache: str | Path | None = None,
    progress: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Input of the last layer of a frozen BERT-like encoder, for every text; read from the cache of joblib when it is there.

    Args:
        encoder: folder of the model and its tokenizer.
        texts: N strings, not empty.
        max_length: L, positions per text; longer texts are cut, shorter ones padded (mask False, hidden 0).
        special_tokens: True puts [CLS] at position 0; False (the authors' code) leaves the first word piece there.
        cache: folder of the cache; None takes `cache_folder()`. The key holds the weights' hash and every text.

    Returns hidden (N, L, D) float32, the input of the last layer (a read-only map of the kept file: slice the rows you need),
    and mask (N, L) bool, True where a position holds a word piece. Raises ValueError for bad sizes or an empty text,
    FileNotFoundError when the folder holds no model, ModuleNotFoundError when the extra `real` is missing.
    """
    checks.whole_number("max_length", max_length, at_least=2)
    checks.whole_number("batch", batch, at_least=1)
    texts = list(texts)
    if not texts or not all(isinstance(text, str) and text.strip() for text in texts):
        raise ValueError("texts must be strings that are not empty; got none or an empty one: drop it before encoding")
    encoder = Path(encoder)
    weights = file_sha256(_weights_file(encoder))
    with extra("real"):
        import joblib

    memory = joblib.Memory(cache_folder() if cache is None else cache, mmap_mode="r", verbose=0)
    kept = memory.cache(_encode, ignore=["encoder", "batch", "progress"])
    return tuple(kept(weights, texts, max_length, special_tokens, encoder, batch, progress))
