"""ViT and BERT through `transformers`, on tiny stand-ins saved to a folder, without network.

The stand-ins have random weights: they prove the plumbing (columns, re-initialisation, freezing, shapes), not any accuracy.
"""

import os
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read when the libraries are imported: no test may fetch anything

import huggingface_hub
import pytest
import torch
from torch import nn

from attnbook.token_selection.real_data import backbones
from attnbook.token_selection.real_data.frozen import QueryKey

CLASSES, LAYERS, WIDTH = 3, 2, 32
SIZES = {"hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": 4, "intermediate_size": 48}


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Tiny stand-ins in folders, as save_pretrained writes them; initializer_range 0.3 so that attention is not uniform."""
    import transformers  # not above: each worker would wait for it

    found = {}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        vit = transformers.ViTConfig(**SIZES, image_size=8, patch_size=4, num_channels=1, initializer_range=0.3)
        bert = transformers.BertConfig(**SIZES, vocab_size=40, max_position_embeddings=12, initializer_range=0.3)
        for kind, model in (("image", transformers.ViTModel(vit)), ("text", transformers.BertModel(bert))):
            for parameter in model.parameters():  # the library starts biases at zero, which would hide a lost bias
                if parameter.ndim == 1:
                    nn.init.normal_(parameter, mean=0.0 if parameter.std() == 0 and parameter[0] == 0 else 1.0, std=0.3)
            found[kind] = tmp_path_factory.mktemp(kind)
            model.save_pretrained(found[kind])
    return found


def inputs_of(kind, count=5):
    generator = torch.Generator().manual_seed(1)
    if kind == "image":
        return {"pixel_values": torch.rand(count, 1, 8, 8, generator=generator)}
    mask = torch.arange(7) < torch.tensor([7, 3, 5, 1, 7])[:count, None]
    return {"input_ids": torch.randint(1, 40, (count, 7), generator=generator) * mask, "attention_mask": mask.long()}


def double(kind, folders):
    with torch.random.fork_rng():
        torch.manual_seed(2)  # the fresh head
        model = backbones.load_classifier(kind, CLASSES, folders[kind]).double()
    inputs = {name: x.double() if x.is_floating_point() else x for name, x in inputs_of(kind).items()}
    return model, inputs, inputs["attention_mask"].bool() if kind == "text" else None


KINDS = pytest.mark.parametrize("kind", ["image", "text"])
# Logits agree to rounding. The library's ViT takes its softmax in float32 even in a float64 model, its BERT does not.
CLOSE = {"image": 2e-6, "text": 1e-11}


@KINDS
def test_a_loaded_backbone_is_eager_without_dropout_and_has_a_fresh_head(kind, folders, capfd):
    model = backbones.load_classifier(kind, CLASSES, folders[kind])
    attentions = model(**inputs_of(kind), output_attentions=True).attentions
    assert len(attentions) == LAYERS  # sdpa returns an empty tuple, and every attention statistic would be missing
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
