"""ViT and BERT through `transformers`, on tiny stand-ins, without network: layouts, freezing, shapes, encoded texts that are kept."""

import sys

import huggingface_hub
import numpy as np
import pytest
import torch
import transformers
from torch import nn

from attnbook.token_selection.real_data import backbones
from attnbook.token_selection.real_data.backbones import EncodedTexts, describe_encoder
from attnbook.token_selection.real_data.fixed_tokens import cache_folder
from attnbook.token_selection.real_data.frozen import QueryKey
from tests.token_selection.tiny_models import rounding_of_layers, save_tiny_bert, save_tiny_vit

CLASSES, LAYERS = 3, {"image": 2, "text": 3}


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return {
        "image": save_tiny_vit(tmp_path_factory.mktemp("image")),
        "text": save_tiny_bert(tmp_path_factory.mktemp("text")),
    }


def inputs_of(kind, count=5):
    generator = torch.Generator().manual_seed(1)
    if kind == "image":
        return {"pixel_values": torch.rand(count, 3, 8, 8, generator=generator)}
    mask = torch.arange(7) < torch.tensor([7, 3, 5, 1, 7])[:count, None]
    return {"input_ids": torch.randint(1, 17, (count, 7), generator=generator) * mask, "attention_mask": mask.long()}


def double(kind, folders):
    with torch.random.fork_rng():
        torch.manual_seed(2)  # the fresh head
        model = backbones.load_classifier(kind, CLASSES, folders[kind]).double()
    inputs = {name: x.double() if x.is_floating_point() else x for name, x in inputs_of(kind).items()}
    return model, inputs, inputs["attention_mask"].bool() if kind == "text" else None


KINDS = pytest.mark.parametrize("kind", ["image", "text"])
# Logits agree to rounding. The library's ViT takes its softmax in float32 even in a float64 model, its BERT does not.
CLOSE = {"image": rounding_of_layers(2), "text": rounding_of_layers(3, torch.float64)}


@KINDS
def test_a_loaded_backbone_is_eager_without_dropout_and_has_a_fresh_head(kind, folders, capfd):
    model = backbones.load_classifier(kind, CLASSES, folders[kind])
    attentions = model(**inputs_of(kind), output_attentions=True).attentions
    assert (
        len(attentions) == LAYERS[kind]
    )  # sdpa returns an empty tuple, and every attention statistic would be missing
    torch.testing.assert_close(attentions[-1].sum(-1), torch.ones(attentions[-1].shape[:-1]))
    assert model.classifier.out_features == CLASSES
    assert {module.p for module in model.modules() if isinstance(module, nn.Dropout)} <= {0.0}
    assert not model.training
    assert capfd.readouterr().err == ""


@KINDS
def test_the_frozen_layer_gives_the_librarys_logits(kind, folders):
    model, inputs, mask = double(kind, folders)
    frozen = backbones.frozen_last_layer(model, backbones.last_layer_input(model, inputs), mask, batch=2)
    own = backbones.last_layer(model).query_key()
    output = model(**inputs, output_attentions=True)
    logits = frozen.logits(own)
    torch.testing.assert_close(logits, output.logits, rtol=0, atol=CLOSE[kind])
    torch.testing.assert_close(frozen.attention(own), output.attentions[-1][:, :, 0].double(), rtol=0, atol=CLOSE[kind])
    # Power: a lost query bias, exchanged query and key, or a lost mask would be seen.
    zero = torch.zeros_like(own.query_bias)
    others = [QueryKey(own.query, zero, own.key), QueryKey(own.key, own.query_bias, own.query)]
    variants = [frozen.logits(weights) for weights in others]
    if mask is not None:
        variants.append(backbones.frozen_last_layer(model, backbones.last_layer_input(model, inputs)).logits(own))
    for other in variants:
        assert (other - output.logits).abs().max() > 1e-4
    assert not any(parameter.requires_grad for parameter in frozen.finish.parameters())


def test_an_unknown_layout_is_an_error_and_not_a_silent_nothing(folders):
    model = backbones.load_classifier("image", CLASSES, folders["image"])
    attention = model.vit.layers[-1].attention
    attention.query_projection = attention.q_proj
    del attention.q_proj
    with pytest.raises(ValueError, match="this version of transformers names them otherwise"):
        backbones.last_layer(model)


@pytest.mark.parametrize(
    ("load", "what"),
    [
        (lambda source: backbones.load_classifier("image", CLASSES, source), "backbone"),
        (lambda source: backbones.load_classifier("text", CLASSES, source), "backbone"),
        (backbones.load_tokenizer, "tokenizer"),
        (backbones.load_image_processor, "image processor"),
        (backbones.local_copy, "model"),
    ],
)
def test_what_cannot_be_fetched_or_is_not_installed_says_what_to_do(load, what, tmp_path, monkeypatch):
    for source in ("nobody/no-such-model", "no such folder", tmp_path)[: 2 if what == "model" else 3]:
        with pytest.raises(
            OSError, match=f"{what} '{source}' could not be loaded: not a local folder.*or give a folder"
        ):
            load(source)
    package = "huggingface_hub" if what == "model" else "transformers"
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ModuleNotFoundError, match=rf"{package} is not installed: pip install 'attnlib\[real\] @ git"):
        load("nobody/no-such-model")


TEXTS = ["Who is it ?", "how far", "What city is it where who is what ?", "where"]


@pytest.fixture(scope="module")
def encoder(folders):
    return folders["text"]


def by_the_library(encoder, text, **options):
    """Input of the last layer for one text, from the library's own list of hidden states."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(encoder)
    model = transformers.AutoModel.from_pretrained(encoder, attn_implementation="eager").eval()
    with torch.no_grad():
        states = model(**tokenizer(text, return_tensors="pt", **options), output_hidden_states=True).hidden_states
    return states[-2][0].numpy()


@pytest.mark.parametrize("special_tokens", [True, False])
def test_encoded_texts_are_the_librarys_hidden_states(encoder, tmp_path, special_tokens):
    hidden = EncodedTexts(encoder, 6, special_tokens, tmp_path).transform(TEXTS, np.arange(4)).numpy()
    assert (hidden.shape, hidden.dtype) == ((4, 6, 32), np.float32)
    mask = (hidden != 0).any(-1)
    extra = 2 if special_tokens else 0
    assert mask.sum(1).tolist() == [min(6, words + extra) for words in (4, 2, 8, 1)]
    options = {"add_special_tokens": special_tokens, "truncation": True, "max_length": 6}
    for row, text in enumerate(TEXTS):
        expected = by_the_library(encoder, text, **options)
        np.testing.assert_allclose(hidden[row, mask[row]], expected, rtol=0, atol=rounding_of_layers(2))
    # Power: the neighbouring layers are something else.
    assert np.abs(hidden[0, 0] - by_the_library(encoder, TEXTS[1], **options)[0]).max() > 1e-3


def test_what_is_kept_is_read_without_the_model_and_only_for_the_same_weights_and_texts(encoder, tmp_path, monkeypatch):
    model = transformers.AutoModel.from_pretrained(encoder)
    model.encoder.layer[0].output.dense.bias.data[:5] += 1.0
    model.save_pretrained(tmp_path / "other")

    def encoded(folder=encoder, length=6, special_tokens=True, texts=TEXTS):
        return EncodedTexts(folder, length, special_tokens, tmp_path / "kept").transform(texts, np.arange(4))

    first = encoded()
    monkeypatch.setattr(backbones, "load_tokenizer", lambda _: pytest.fail("the model was loaded again"))
    assert torch.equal(encoded(), first)
    others = {"length": 5}, {"special_tokens": False}, {"texts": [*TEXTS[:3], "man"]}, {"folder": tmp_path / "other"}
    for changed in others:
        with pytest.raises(pytest.fail.Exception, match="loaded again"):
            encoded(**changed)


def test_what_cannot_be_encoded_is_refused(encoder, tmp_path):
    with pytest.raises(ValueError, match="max_length must be at most the encoder's 12 positions; got 13"):
        EncodedTexts(encoder, 13)
    with pytest.raises(ValueError, match="texts must give at least one word piece; got none for"):
        EncodedTexts(encoder, 6, False, tmp_path).transform(["who", "\u200b"], np.arange(2))
    with pytest.raises(FileNotFoundError, match=r"encoder must be a folder with model\.safetensors"):
        EncodedTexts(tmp_path, 6)


def test_the_description_holds_no_path(encoder):
    found = describe_encoder(encoder)
    assert str(encoder) not in str(found)
    assert len(found.pop("weights_sha256")) == 64
    assert found == {"architecture": "bert", "layers": 3, "width": 32, "heads": 4}


def test_where_the_cache_is(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("ATTNLIB_CACHE", raising=False)
    assert cache_folder() == tmp_path / "attnlib"
    monkeypatch.setenv("ATTNLIB_CACHE", str(tmp_path / "mine"))
    assert cache_folder() == tmp_path / "mine"
