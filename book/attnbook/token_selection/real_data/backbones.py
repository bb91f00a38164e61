"""ViT and BERT backbones through `transformers` (extra `real`): loaded, cut before the last layer, and made a frozen layer.

The modules of the library carry other names in other versions. Here they are looked up by what they are, and a layout that is
not known is an error.

Everything below the last layer is frozen, so a text has to pass through an encoder only once (`EncodedTexts`). What is kept is the input
of the last layer, not a result: every seed, sample size and noise level starts from it.
"""

import functools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from attnbook.token_selection.real_data.fixed_tokens import TextTokens, cache_folder, file_sha256
from attnbook.token_selection.real_data.frozen import FrozenLastLayer, QueryKey
from attnlib.extras import extra

# The backbones in the authors' code, dropout set to 0.
BACKBONES = {"image": "google/vit-base-patch16-224-in21k", "text": "bert-base-uncased"}
_WEIGHTS = ("model.safetensors", "pytorch_model.bin")


def _loaded(what: str, load: Callable, source: str | Path, **options: Any) -> Any:
    try:
        return load(str(source), **options)
    except (OSError, ValueError) as error:
        raise OSError(
            f"{what} {str(source)!r} could not be loaded: not a local folder with these files, and not fetched from the hub "
            f"({str(error).splitlines()[0]}). Connect once so that it is cached, or give a folder with a copy"
        ) from error


def local_copy(source: str | Path) -> Path:
    """The folder of a model: `source` itself when it is one, else the hub's files, which `huggingface_hub` fetches and keeps.

    Raises ModuleNotFoundError without the extra `real`, OSError when `source` is no folder and cannot be fetched.
    """
    if Path(source).is_dir():
        return Path(source)
    with extra("real"):
        from huggingface_hub import snapshot_download

    return Path(_loaded("model", snapshot_download, source, allow_patterns=["*.json", "*.txt", "*.safetensors"]))


def load_classifier(kind: str, classes: int, source: str | Path) -> nn.Module:
    """A pretrained backbone with a fresh classification head, dropout 0, eager attention, in evaluation mode.

    kind: "image" (ViT) or "text" (BERT). source: local folder or hub name.
    Raises ModuleNotFoundError without the extra `real`, OSError (what was tried, what to do) when nothing can be loaded.
    """
    with extra("real"):
        from transformers import AutoModelForImageClassification, AutoModelForSequenceClassification, logging

    loader = AutoModelForImageClassification if kind == "image" else AutoModelForSequenceClassification
    level, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()  # "newly initialised: classifier" is what is wanted here
    logging.disable_progress_bar()
    try:
        model = _loaded(
            "backbone",
            loader.from_pretrained,
            source,
            num_labels=classes,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            attn_implementation="eager",  # the faster kernels return no attention weights
        )
    finally:
        logging.set_verbosity(level)
        if bar:
            logging.enable_progress_bar()
    last_layer(model)  # an unknown layout is an error now, not after hours
    return model.float().eval()


def load_tokenizer(source: str | Path) -> Any:
    """The tokenizer of a text backbone. Raises as `load_classifier` does."""
    with extra("real"):
        from transformers import AutoTokenizer

    return _loaded("tokenizer", AutoTokenizer.from_pretrained, source)


def load_image_processor(source: str | Path) -> Any:
    """ViT's image processor, the one on Pillow (no torchvision needed). Raises as `load_classifier` does."""
    with extra("real"):
        from transformers import ViTImageProcessorPil  # the automatic class would refuse the hub's older files

    return _loaded("image processor", ViTImageProcessorPil.from_pretrained, source)


@dataclass(frozen=True)
class LastLayer:
    """The parts of a backbone's last layer, whatever the library calls them."""

    layer: nn.Module
    query: nn.Linear
    key: nn.Linear
    value: nn.Linear
    heads: int
    pre_norm: nn.Module | None  # ViT: the norm before attention; BERT (post-norm): None

    def query_key(self) -> QueryKey:
        """The layer's own weights as `QueryKey`; the key's bias drops out of the softmax."""
        return QueryKey(
            self.query.weight.detach().T.contiguous(),
            self.query.bias.detach().clone(),
            self.key.weight.detach().T.contiguous(),
        )


def _base(model: nn.Module) -> nn.Module:
    return getattr(model, getattr(model, "base_model_prefix", ""), model)


def last_layer(model: nn.Module) -> LastLayer:
    """The last layer of a ViT or BERT. Raises ValueError for a layout that is neither."""
    base = _base(model)
    layers = getattr(base, "layers", None) or getattr(getattr(base, "encoder", None), "layer", None) or [None]
    attention = getattr(layers[-1], "attention", None)
    for inner, names in (
        (attention, ("q_proj", "k_proj", "v_proj")),  # ViT
        (getattr(attention, "self", None), ("query", "key", "value")),  # BERT
    ):
        parts = [getattr(inner, name, None) for name in names]
        if all(isinstance(part, nn.Linear) for part in parts):
            norm = getattr(layers[-1], "layernorm_before", None)
            return LastLayer(layers[-1], *parts, heads=model.config.num_attention_heads, pre_norm=norm)
    raise ValueError(
        f"model must be a ViT or a BERT with known projections; got {type(model).__name__}, whose last layer has none of "
        "attention.q_proj, attention.self.query: this version of transformers names them otherwise"
    )


def remove_pooler(model: nn.Module) -> None:
    """Leave BERT's pooler out, so that the head reads the last layer itself. The library's own forward pass then no longer runs."""
    if getattr(_base(model), "pooler", None) is not None:
        _base(model).pooler = None


class _Stop(Exception):
    """Ends a forward pass once the input of the last layer is known."""


@torch.no_grad()
def last_layer_input(model: nn.Module, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    """Hidden states (N, L, D) that enter the last layer, without running that layer. inputs: the model's keyword arguments."""
    kept: list[torch.Tensor] = []

    def keep(_: nn.Module, arguments: tuple, keywords: dict) -> None:
        kept.append((arguments[0] if arguments else keywords["hidden_states"]).detach())
        raise _Stop

    handle = last_layer(model).layer.register_forward_pre_hook(keep, with_kwargs=True)
    try:
        model(**inputs)
    except _Stop:
        pass
    finally:
        handle.remove()
    return kept[0]


class Finish(nn.Module):
    """From the attended values of position 0 to its logits: what follows the attention in the last layer, norm, pooler, head.

    `features(attended, residual)` stops before pooler and head: (..., N, D). All weights are the model's own, frozen for phase 2.
    """

    def __init__(self, model: nn.Module):
        super().__init__()
        parts, base = last_layer(model), _base(model)
        layer = parts.layer
        self.post_norm = parts.pre_norm is None
        if self.post_norm:
            output = layer.attention.output
            self.project, self.norm, self.block, self.final = output.dense, output.LayerNorm, layer, nn.Identity()
        else:
            self.project, self.norm = layer.attention.o_proj, layer.layernorm_after
            self.block, self.final = layer.mlp, base.layernorm
        pooler = getattr(base, "pooler", None)
        self.pooler = nn.Sequential(pooler.dense, pooler.activation) if pooler is not None else nn.Identity()
        self.head = model.classifier

    def features(self, attended: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        state = self.project(attended) + residual
        if self.post_norm:
            return self.block.feed_forward_chunk(self.norm(state))
        return self.final(state + self.block(self.norm(state)))

    def forward(self, attended: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        return self.head(self.pooler(self.features(attended, residual)))


@torch.no_grad()
def frozen_last_layer(
    model: nn.Module, hidden: torch.Tensor, mask: torch.Tensor | None = None, *, batch: int = 512
) -> FrozenLastLayer:
    """The samples `hidden` (N, L, D) = `last_layer_input(...)` as the trainer of phase 2 takes them; mask (N, L) bool or None.

    Values (N, L, D) are computed here, `batch` samples at a time. `finish` shares the model's weights and is frozen.
    """
    parts = last_layer(model)
    tokens = hidden if parts.pre_norm is None else torch.cat([parts.pre_norm(chunk) for chunk in hidden.split(batch)])
    values = torch.cat([parts.value(chunk) for chunk in tokens.split(batch)])
    finish = Finish(model).eval().requires_grad_(False)
    return FrozenLastLayer(tokens, values, hidden[:, 0].clone(), mask, parts.heads, finish)


# --- Texts ----------------------------------------------------------------------------------------------------------------


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


class EncodedTexts(TextTokens):
    """Input of the last layer of a frozen BERT-like encoder, (max_length, D) a text, float32.

    encoder: folder of the model and its tokenizer; what is kept is found by the hash of its weights. special_tokens: True puts [CLS] at
    position 0; False (the authors' code) leaves the first word piece there. folder: None takes `cache_folder()`.
    Raises FileNotFoundError when `encoder` holds no model, ValueError for more positions than it has and for a text without word pieces.
    """

    dtype = np.float32

    def __init__(
        self, encoder: Path, max_length: int, special_tokens: bool = True, folder: str | Path | None = None
    ) -> None:
        self.encoder, self.special_tokens = encoder, special_tokens
        name = f"{file_sha256(_weights_file(encoder))[:8]}-{max_length}{'-special' * special_tokens}"
        config = json.loads((encoder / "config.json").read_text(encoding="utf-8"))
        if max_length > (limit := config["max_position_embeddings"]):
            raise ValueError(f"max_length must be at most the encoder's {limit} positions; got {max_length}")
        super().__init__(Path(folder or cache_folder()) / f"encoded-{name}", (max_length, config["hidden_size"]))

    @functools.cached_property
    def network(self) -> tuple[Any, nn.Module]:
        """Tokenizer and network."""
        return load_tokenizer(self.encoder), load_classifier("text", 2, self.encoder)

    def pieces(self, samples: Sequence[str]) -> list[list[int]]:
        options = {"truncation": True, "max_length": self.shape[0], "add_special_tokens": self.special_tokens}
        found = self.network[0](list(samples), **options)["input_ids"]
        if empty := [text for text, row in zip(samples, found, strict=True) if not row]:
            raise ValueError(f"texts must give at least one word piece; got none for {empty[0]!r}")
        return found

    def vectors(self, ids: torch.Tensor) -> torch.Tensor:
        return last_layer_input(self.network[1], {"input_ids": ids})
