"""Tiny random stand-ins of BERT and ViT, saved to a folder as `save_pretrained` writes them. They prove plumbing, not numbers."""

import json
import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read when the libraries are imported: no test may fetch anything

import torch
import transformers
from torch import nn

from tests.rounding import rounding

WORDS = ["who", "what", "where", "how", "far", "is", "it", "many", "city", "man", "word", "?"]
SIZES = {
    "hidden_size": 32,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "initializer_range": 0.3,
}  # attention is not uniform
# Additions on the way through a layer: a key's 32 and its score's 8, at most 12 tokens, the output's 32, the two wide maps' 32 and
# 48, and 32 in each of two norms. Behind a norm numbers are about 1, and hardly one is above 2.
ADDITIONS, LARGEST = 32 + 8 + 12 + 32 + 32 + 48 + 2 * 32, 2.0


def rounding_of_layers(layers: int, dtype: torch.dtype = torch.float32) -> float:
    """How far apart rounding may leave two computations of what these layers give."""
    return rounding(layers * ADDITIONS, LARGEST, dtype)


def _save(folder, make):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = make()
        for parameter in model.parameters():  # the library starts biases at zero, which would hide a lost bias
            if parameter.ndim == 1:
                nn.init.normal_(parameter, mean=parameter[0].item(), std=0.3)
        model.save_pretrained(folder)
    return folder


def save_tiny_bert(folder):
    """A 3-layer BERT of width 32 with at most 12 positions, and a tokenizer that knows `WORDS`."""
    vocabulary = {word: i for i, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS])}
    transformers.BertTokenizer(vocab=vocabulary).save_pretrained(folder)
    config = transformers.BertConfig(
        **SIZES, num_hidden_layers=3, vocab_size=len(vocabulary), max_position_embeddings=12
    )
    return _save(folder, lambda: transformers.BertModel(config))


def save_tiny_vit(folder):
    """A 2-layer ViT of width 32 for colour images of 8 x 8 pixels, with a processor file as the hub's older ones are."""
    config = transformers.ViTConfig(**SIZES, num_hidden_layers=2, image_size=8, patch_size=4)
    processor = {
        "do_normalize": True,
        "do_resize": True,
        "image_mean": [0.5, 0.5, 0.5],
        "image_processor_type": "ViTFeatureExtractor",
        "image_std": [0.5, 0.5, 0.5],
        "resample": 2,
        "size": 8,
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return _save(folder, lambda: transformers.ViTModel(config))


def save_questions(folder):
    """TREC's two files with a word that gives the class away: 60 training questions and 12 test questions."""
    kinds = [("HUM:ind", "who is it ?"), ("LOC:city", "where is it ?"), ("NUM:dist", "how far is it ?")]
    (folder / "trec").mkdir()
    for name, count in (("train_5500.label", 60), ("TREC_10.label", 12)):
        lines = [f"{label} {text} {WORDS[i % 5]}" for i in range(count) for label, text in [kinds[i % 3]]]
        (folder / "trec" / name).write_text("\n".join(lines), encoding="latin-1")
    return folder
