"""ViT and BERT backbones through `transformers` (extra `real`): phase 1 trains a head, phase 2 one layer's query and key.

The modules of the library carry other names in other versions: ViT's projections are `attention.q_proj` today and were
`attention.attention.query` before. Freezing by the prefix of a name then trains nothing, and says nothing. Here the modules
are looked up by what they are, and what is left to train is counted: weight and bias of two projections, four tensors.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from attnbook.token_selection.real_data.frozen import FrozenLastLayer, QueryKey
from attnlib import checks

__all__ = [
    "BACKBONES",
    "Finish",
    "LastLayer",
    "begin_phase_one",
    "begin_phase_two",
    "frozen_last_layer",
    "last_layer",
    "last_layer_input",
    "load_classifier",
    "load_image_processor",
    "load_tokenizer",
    "local_copy",
    "progress_bar",
    "remove_pooler",
]

# The backbones in the authors' code, dropout set to 0.
BACKBONES = {"image": "google/vit-base-patch16-224-in21k", "text": "bert-base-uncased"}

_INSTALL = "python -m pip install 'attnlib[real]'"


def progress_bar(items: Iterable, label: str, show: bool) -> Iterable:
    """`items`, with a tqdm bar when `show` and tqdm is installed."""
    if not show:
        return items
    try:
        from tqdm.auto import tqdm
    except ModuleNotFoundError:
        return items
    return tqdm(items, desc=label)


def _transformers() -> Any:
    try:
        import transformers
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"ViT and BERT backbones need {error.name}, which is not installed: {_INSTALL}", name=error.name
        ) from error
    return transformers


def _from_pretrained(loader: Any, source: str | Path, what: str, **options: Any) -> Any:
    try:
        return loader.from_pretrained(str(source), **options)
    except (OSError, ValueError) as error:
        raise OSError(
            f"{what} {str(source)!r} could not be loaded: not a local folder with these files, and not fetched from the hub "
            f"({str(error).splitlines()[0]}). Connect once so that it is cached, or pass source=FOLDER with a copy"
        ) from error


def load_classifier(kind: str, classes: int, *, source: str | Path | None = None) -> nn.Module:
    """A pretrained backbone with a fresh classification head, dropout 0, eager attention, in evaluation mode.

    kind: "image" (ViT) or "text" (BERT). source: hub name or local folder; None takes `BACKBONES[kind]`.
    Raises ModuleNotFoundError without the extra `real`, OSError (what was tried, what to do) when nothing can be loaded.
    """
    checks.one_of("kind", kind, tuple(BACKBONES))
    checks.whole_number("classes", classes, at_least=2)
    library = _transformers()
    loader = library.AutoModelForImageClassification if kind == "image" else library.AutoModelForSequenceClassification
    level, bar = library.logging.get_verbosity(), library.logging.is_progress_bar_enabled()
    library.logging.set_verbosity_error()  # "newly initialised: classifier" is what is wanted here
    library.logging.disable_progress_bar()
    try:
        model = _from_pretrained(
            loader,
            source or BACKBONES[kind],
            "backbone",
            num_labels=classes,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            attn_implementation="eager",  # the faster kernels return no attention weights
        )
    finally:
        library.logging.set_verbosity(level)
        if bar:
            library.logging.enable_progress_bar()
    last_layer(model)  # an unknown layout is an error now, not after hours
    return model.float().eval()


def local_copy(source: str | Path) -> Path:
    """The folder of a model: `source` itself when it is one, else the hub's files, fetched once and kept in its cache.

    Raises ModuleNotFoundError without the extra `real`, OSError when `source` is no folder and cannot be fetched.
    """
    if Path(source).is_dir():
        return Path(source)
    _transformers()
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(str(source), allow_patterns=["*.json", "*.txt", "*.safetensors"]))
    except (OSError, ValueError) as error:
        raise OSError(
            f"model {str(source)!r} is no local folder and could not be fetched from the hub "
            f"({str(error).splitlines()[0]}): connect once so that it is cached, or give a folder with a copy"
        ) from error


def load_tokenizer(source: str | Path | None = None) -> Any:
    """The tokenizer of a text backbone. Raises as `load_classifier` does."""
    return _from_pretrained(_transformers().AutoTokenizer, source or BACKBONES["text"], "tokenizer")


def load_image_processor(source: str | Path | None = None) -> Any:
    """ViT's image processor, the one on Pillow (no torchvision needed). Raises as `load_classifier` does."""
    library = _transformers()
    # transformers 5 names it ...Pil; in 4 it is the plain one. The automatic class would refuse the hub's older files.
    loader = getattr(library, "ViTImageProcessorPil", None) or library.ViTImageProcessor
    return _from_pretrained(loader, source or BACKBONES["image"], "image processor")


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
    """The last layer of a ViT (either naming) or BERT. Raises ValueError for a layout that is neither."""
    base = _base(model)
    layers = getattr(base, "layers", None)
    if layers is None:
        layers = getattr(getattr(base, "encoder", None), "layer", None)
    attention = getattr(layers[-1], "attention", None) if layers is not None else None
    for inner, names in (
        (attention, ("q_proj", "k_proj", "v_proj")),  # ViT, transformers 5
        (getattr(attention, "attention", None), ("query", "key", "value")),  # ViT, transformers 4
        (getattr(attention, "self", None), ("query", "key", "value")),  # BERT
    ):
        parts = [getattr(inner, name, None) for name in names]
        if all(isinstance(part, nn.Linear) for part in parts):
            norm = getattr(layers[-1], "layernorm_before", None)
            return LastLayer(layers[-1], *parts, heads=model.config.num_attention_heads, pre_norm=norm)
    raise ValueError(
        f"model must be a ViT or a BERT with known projections; got {type(model).__name__}, whose last layer has none of "
        "attention.q_proj, attention.attention.query, attention.self.query: this version of transformers names them otherwise"
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
        attention = layer.attention
        self.project = getattr(attention, "o_proj", None) or attention.output.dense
        if self.post_norm:
            self.norm, self.block, self.final = attention.output.LayerNorm, layer, nn.Identity()
        else:
            self.norm, self.final = layer.layernorm_after, base.layernorm
            self.block = getattr(layer, "mlp", None) or nn.Sequential(layer.intermediate, layer.output.dense)
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
    checks.tensor("hidden", hidden, ("N", "L", model.config.hidden_size))
    parts = last_layer(model)
    tokens = hidden if parts.pre_norm is None else torch.cat([parts.pre_norm(chunk) for chunk in hidden.split(batch)])
    values = torch.cat([parts.value(chunk) for chunk in tokens.split(batch)])
    finish = Finish(model).eval().requires_grad_(False)
    return FrozenLastLayer(tokens, values, hidden[:, 0].clone(), mask, parts.heads, finish)


def begin_phase_one(model: nn.Module) -> list[nn.Parameter]:
    """Freeze everything but the head (ViT: classifier; BERT: pooler and classifier) and return what is trained."""
    model.requires_grad_(False)
    heads = [model.classifier]
    if getattr(_base(model), "pooler", None) is not None:
        heads.append(_base(model).pooler)
    for head in heads:
        head.requires_grad_(True)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if len(trained) != 2 * len(heads):
        raise RuntimeError(f"phase 1 must train {2 * len(heads)} tensors, the head; found {len(trained)}")
    return trained


def begin_phase_two(model: nn.Module, *, seed: int, run: int = 0, scale: float | None = None) -> list[nn.Parameter]:
    """Re-initialise query and key of the last layer, freeze all else, and return the four tensors that are trained.

    Weights: normal with standard deviation `scale` (None: the model's own `initializer_range`, 0.02 as published), drawn from
    stream(seed, "start", run) exactly as `QueryKey.start` draws them; biases zero.
    Raises RuntimeError unless exactly four tensors are left to train.
    """
    scale = checks.positive_number("scale", model.config.initializer_range if scale is None else scale)
    parts = last_layer(model)
    width, inner = parts.query.in_features, parts.query.out_features
    start = QueryKey.start(width, inner, scale=scale, seed=seed, run=run)
    with torch.no_grad():
        parts.query.weight.copy_(start.query[0].T)
        parts.key.weight.copy_(start.key[0].T)
        parts.query.bias.zero_()
        parts.key.bias.zero_()
    model.requires_grad_(False)
    parts.query.requires_grad_(True)
    parts.key.requires_grad_(True)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if len(trained) != 4:
        raise RuntimeError(f"phase 2 must train 4 tensors, query and key of the last layer; found {len(trained)}")
    return trained
