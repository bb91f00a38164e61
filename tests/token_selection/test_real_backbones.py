"""ViT and BERT through `transformers`, on tiny stand-ins saved to a folder, without network.

The stand-ins have random weights: they prove the plumbing (columns, re-initialisation, freezing, shapes), not any accuracy.
"""

import os
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read when the libraries are imported: no test may fetch anything

import huggingface_hub
import numpy as np
import pytest
import torch
import transformers
from torch import nn
from torch.nn import functional

from attnbook.token_selection.real_data import backbones
from attnbook.token_selection.real_data.frozen import QueryKey
from attnbook.token_selection.real_data.selection import train_selection

CLASSES, LAYERS, WIDTH = 3, 2, 32
SIZES = {"hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": 4, "intermediate_size": 48}


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Tiny stand-ins in folders, as save_pretrained writes them; initializer_range 0.3 so that attention is not uniform."""
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


@KINDS
def test_the_keys_bias_drops_out_of_the_softmax(kind, folders):
    model, inputs, _ = double(kind, folders)
    before = model(**inputs).logits
    backbones.last_layer(model).key.bias.data += 5.0
    torch.testing.assert_close(model(**inputs).logits, before, rtol=0, atol=CLOSE[kind])
    backbones.last_layer(model).query.bias.data += 5.0
    assert (model(**inputs).logits - before).abs().max() > 1e-3


def phase_two(model, seed, scale):
    """The library's own phase 2: new query and key in the last layer, all else frozen; the four tensors that are trained."""
    parts = backbones.last_layer(model)
    start = QueryKey.start(WIDTH, WIDTH, scale=scale, seed=seed)
    model.requires_grad_(False)
    with torch.no_grad():
        for layer, weight in ((parts.query, start.query), (parts.key, start.key)):
            layer.weight.copy_(weight[0].T)
            layer.bias.zero_()
            layer.requires_grad_(True)
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


@KINDS
def test_the_fast_trainer_trains_as_the_library_does(kind, folders):
    """Four Adam steps from the same start: the cached layer against backpropagation through the whole backbone."""
    model, inputs, mask = double(kind, folders)
    frozen = backbones.frozen_last_layer(model, backbones.last_layer_input(model, inputs), mask)
    trained = phase_two(model, seed=1, scale=0.3)
    assert len(trained) == 4
    labels = torch.tensor([2, 0, 1, 1, 0])
    weights = QueryKey(*(tensor.double() for tensor in frozen.start(scale=0.3, seed=1).tensors()))
    torch.testing.assert_close(frozen.logits(weights)[0], model(**inputs).logits, rtol=0, atol=CLOSE[kind])
    sizes = [0.005, 0.01, 0.0055, 0.001]  # two warm-up steps, then linear to a tenth
    optimiser = torch.optim.Adam(trained, lr=1.0)
    for size in sizes:
        optimiser.param_groups[0]["lr"] = size
        optimiser.zero_grad()
        functional.cross_entropy(model(**inputs).logits, labels).backward()
        optimiser.step()
    fast, _ = train_selection(frozen, labels[None], weights, steps=4, step_size=0.01, warmup=2, final_fraction=0.1)
    # Adam divides by the gradient's size, so where that is tiny the float32 softmax of the ViT is felt: hence the mean.
    close = {"image": 1e-5, "text": 1e-9}[kind]
    assert (fast.query[0] - backbones.last_layer(model).query.weight.T).abs().mean() < close
    assert (fast.query[0] - weights.query[0]).abs().mean() > 1e-3
    torch.testing.assert_close(frozen.logits(fast)[0], model(**inputs).logits, rtol=0, atol=10 * close)
    assert (frozen.logits(fast) - frozen.logits(weights)).abs().max() > 1e-3


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
    with pytest.raises(ModuleNotFoundError, match=rf"{package} is not installed: pip install 'attnlib\[real\]'"):
        load("nobody/no-such-model")


def test_images_go_through_a_saved_processor(folders, tmp_path):
    processor = transformers.ViTImageProcessorPil(size={"height": 8, "width": 8}, do_normalize=False)
    processor.save_pretrained(tmp_path)
    white = np.full((28, 28, 3), 255, np.uint8)
    pixels = backbones.load_image_processor(tmp_path)([white, white // 5], return_tensors="pt")["pixel_values"]
    assert pixels.shape == (2, 3, 8, 8)
    torch.testing.assert_close(pixels[:, 1, 3, 4], torch.tensor([1.0, 0.2]), rtol=0, atol=1e-6)
