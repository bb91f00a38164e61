"""The cache of encoded texts, with a tiny random BERT and its own vocabulary."""

import numpy as np
import pytest
import torch
import transformers

from attnbook.token_selection.real_data import backbones
from attnbook.token_selection.real_data import text_encoder as te
from attnbook.token_selection.real_data.text_encoder import describe_encoder, encode_texts
from tests.token_selection.tiny_models import save_tiny_bert

TEXTS = ["Who is it ?", "how far", "What city is it where who is what ?", "where"]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return save_tiny_bert(tmp_path_factory.mktemp("encoder"))


def by_the_library(encoder, text, **options):
    """Input of the last layer for one text, from the library's own list of hidden states."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(encoder)
    model = transformers.AutoModel.from_pretrained(encoder, attn_implementation="eager").eval()
    with torch.no_grad():
        states = model(**tokenizer(text, return_tensors="pt", **options), output_hidden_states=True).hidden_states
    return states[-2][0].numpy()


def results(cache):
    """What joblib keeps."""
    return list(cache.rglob("output.pkl"))


@pytest.mark.parametrize("special_tokens", [True, False])
def test_encoded_texts_are_the_librarys_hidden_states(encoder, tmp_path, special_tokens):
    hidden, mask = encode_texts(encoder, TEXTS, max_length=6, special_tokens=special_tokens, batch=3, cache=tmp_path)
    assert hidden.shape == (4, 6, 32)
    assert hidden.dtype == np.float32
    extra = 2 if special_tokens else 0
    assert mask.sum(1).tolist() == [min(6, words + extra) for words in (4, 2, 8, 1)]
    options = {"add_special_tokens": special_tokens, "truncation": True, "max_length": 6}
    for row, text in enumerate(TEXTS):
        expected = by_the_library(encoder, text, **options)
        np.testing.assert_allclose(hidden[row, mask[row]], expected, rtol=0, atol=2e-6)
        assert not hidden[row, ~mask[row]].any()
    # Power: the neighbouring layers are something else.
    assert np.abs(hidden[0, 0] - by_the_library(encoder, TEXTS[1], **options)[0]).max() > 1e-3


def test_the_cache_is_read_without_the_model(encoder, tmp_path, monkeypatch):
    first, _ = encode_texts(encoder, TEXTS, max_length=6, cache=tmp_path)
    monkeypatch.setattr(backbones, "load_classifier", lambda *a, **k: pytest.fail("the model was loaded again"))
    again, _ = encode_texts(encoder, TEXTS, max_length=6, cache=tmp_path)
    np.testing.assert_array_equal(first, again)
    for changed in (
        {"max_length": 5},
        {"special_tokens": False},
        {"texts": TEXTS[::-1]},
        {"texts": [*TEXTS[:3], "man"]},
    ):
        options = {"texts": TEXTS, "max_length": 6, **changed}
        with pytest.raises(pytest.fail.Exception, match="loaded again"):
            encode_texts(encoder, cache=tmp_path, **options)


def test_other_weights_are_another_cache(encoder, tmp_path):
    model = transformers.AutoModel.from_pretrained(encoder)
    model.encoder.layer[0].output.dense.bias.data[:5] += 1.0
    for source in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / "other").mkdir(exist_ok=True)
        (tmp_path / "other" / source).write_bytes((encoder / source).read_bytes())
    model.save_pretrained(tmp_path / "other")
    a, _ = encode_texts(encoder, TEXTS, max_length=6, cache=tmp_path / "cache")
    b, _ = encode_texts(tmp_path / "other", TEXTS, max_length=6, cache=tmp_path / "cache")
    assert np.abs(a - b).max() > 1e-3
    assert len(results(tmp_path / "cache")) == 2
    assert describe_encoder(encoder)["weights_sha256"] != describe_encoder(tmp_path / "other")["weights_sha256"]


def test_a_damaged_or_half_written_cache_is_made_again(encoder, tmp_path, monkeypatch):
    whole = np.array(encode_texts(encoder, TEXTS, max_length=6, cache=tmp_path)[0])
    [kept] = results(tmp_path)
    raw = kept.read_bytes()
    for damaged in (raw[:-100], b""):
        kept.write_bytes(damaged)
        np.testing.assert_array_equal(encode_texts(encoder, TEXTS, max_length=6, cache=tmp_path)[0], whole)

    def interrupted(model, inputs):
        raise KeyboardInterrupt

    monkeypatch.setattr(backbones, "last_layer_input", interrupted)
    with pytest.raises(KeyboardInterrupt):
        encode_texts(encoder, TEXTS, max_length=7, cache=tmp_path)
    assert results(tmp_path) == [kept]
    monkeypatch.undo()
    assert encode_texts(encoder, TEXTS, max_length=7, cache=tmp_path)[0].shape == (4, 7, 32)


@pytest.mark.parametrize(
    ("texts", "options", "message"),
    [
        ([], {}, "texts must be strings that are not empty"),
        (["a", " "], {}, "texts must be strings that are not empty"),
        (["a", 3], {}, "texts must be strings"),
        (["a"], {"max_length": 13}, "max_length must be at most the encoder's 12 positions; got 13"),
        (["a"], {"max_length": 1}, "max_length must be a whole number >= 2"),
        (["a", "\u200b"], {"special_tokens": False}, "texts must give at least one word piece"),
    ],
)
def test_bad_texts_are_refused(encoder, tmp_path, texts, options, message):
    with pytest.raises(ValueError, match=message):
        encode_texts(encoder, texts, cache=tmp_path, **{"max_length": 6, **options})
    assert results(tmp_path) == []


def test_a_folder_without_a_model_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"encoder must be a folder with model\.safetensors"):
        encode_texts(tmp_path, TEXTS, max_length=6, cache=tmp_path)


def test_the_description_holds_no_path(encoder):
    found = describe_encoder(encoder)
    assert {key: found[key] for key in ("architecture", "layers", "width", "heads")} == {
        "architecture": "bert",
        "layers": 3,
        "width": 32,
        "heads": 4,
    }
    assert str(encoder) not in str(found)
    assert len(found["weights_sha256"]) == 64


def test_where_the_cache_is(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("ATTNLIB_CACHE", raising=False)
    assert te.cache_folder() == tmp_path / "attnlib"
    monkeypatch.setenv("ATTNLIB_CACHE", str(tmp_path / "mine"))
    assert te.cache_folder() == tmp_path / "mine"
