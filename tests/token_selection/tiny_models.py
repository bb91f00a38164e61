"""Tiny random stand-ins of BERT and ViT, saved to a folder as `save_pretrained` writes them. They prove plumbing, not numbers."""

import json
import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read when the libraries are imported: no test may fetch anything

import torch
import transformers

WORDS = ["who", "what", "where", "how", "far", "is", "it", "many", "city", "man", "word", "?"]


def save_tiny_bert(folder):
    """A 3-layer BERT of width 32 with at most 12 positions, and a tokenizer that knows `WORDS`."""
    vocabulary = {word: i for i, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS])}
    transformers.BertTokenizer(vocab=vocabulary).save_pretrained(folder)
    config = transformers.BertConfig(
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=48,
        vocab_size=len(vocabulary),
        max_position_embeddings=12,
        initializer_range=0.3,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        transformers.BertModel(config).save_pretrained(folder)
    return folder


def save_tiny_vit(folder):
    """A 2-layer ViT of width 32 for colour images of 8 x 8 pixels, with a processor file as the hub's older ones are."""
    config = transformers.ViTConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        image_size=8,
        patch_size=4,
        initializer_range=0.3,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        transformers.ViTModel(config).save_pretrained(folder)
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
    return folder
