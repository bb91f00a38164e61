"""From a data set to the caches of the noise study: who is used for what, on the small ViT and on pretrained stand-ins."""

import dataclasses
import hashlib
import struct
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from torch import nn

from attnbook.token_selection.real_data import backbones, lite0, setups
from attnbook.token_selection.real_data.loaders import DATA_SETS, DataSetNotFound, RealData, Split, load
from attnbook.token_selection.real_data.plans import PLANS
from attnbook.token_selection.real_data.setups import Rows, parts_of, prepare, split_indices, train_head
from attnbook.token_selection.real_data.vit import RandomFeatures, ViTShape, train_vit
from tests.token_selection.tiny_models import rounding_of_layers, save_questions, save_tiny_bert, save_tiny_vit


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return save_tiny_bert(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="module")
def vit(tmp_path_factory):
    return save_tiny_vit(tmp_path_factory.mktemp("vit"))


def test_parts_are_disjoint_and_drawn_from_the_whole_file():
    parts = split_indices(100, (30, 20, 40), seed=1)
    assert [len(part) for part in parts] == [30, 20, 40]
    together = np.concatenate(parts)
    assert len(set(together.tolist())) == 90
    assert together.max() > 89
    other = split_indices(100, (30, 20, 40), seed=2)
    assert set(parts[0].tolist()) != set(other[0].tolist())
    with pytest.raises(ValueError, match="parts must add up to at most 100"):
        split_indices(100, (30, 20, 51), seed=1)


def test_a_head_is_trained_on_its_features_and_frozen():
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(90) % 3
    features = torch.eye(5)[labels] * 3 + torch.randn(90, 5, generator=generator) * 0.3
    head = nn.Linear(5, 3)
    nn.init.zeros_(head.weight)
    trained = train_head(head, features, labels, seed=0, epochs=20, batch=16, step_size=0.05)
    assert (trained(features).argmax(-1) == labels).all()
    assert not any(parameter.requires_grad for parameter in trained.parameters())


@pytest.fixture
def questions(tmp_path, monkeypatch):
    save_questions(tmp_path)
    monkeypatch.setenv("ATTNLIB_DATA", str(tmp_path))
    return tmp_path


def test_a_text_setup_keeps_the_official_test_set_and_equals_the_library(encoder, questions):
    plan = dataclasses.replace(PLANS["trec"], phase1=36, pool=20, max_length=9, epochs=150, head_step_size=3e-3)
    setup = prepare("trec", 0, plan=plan, encoder=encoder, encoder_name="tiny stand-in", cache=questions / "cache")
    assert (len(setup.pool), len(setup.test), setup.classes) == (20, 12, 6)
    assert setup.test_labels.tolist() == [3, 4, 5] * 4
    assert setup.head_only > 0.9  # the class can be read off one word
    assert setup.backbone["what"].startswith("frozen tiny stand-in")
    assert not setup.pool.mask.all()
    # The head of the caches is the trained one, on the library's features of the test questions.
    tokenizer = backbones.load_tokenizer(encoder)
    model = transformers.AutoModel.from_pretrained(encoder, attn_implementation="eager").eval()
    texts = load("trec").split("test").x
    batch = tokenizer(list(texts), return_tensors="pt", padding=True)
    with torch.no_grad():
        features = model(**batch).last_hidden_state[:, 0]
        finish = setup.test.finish
        accuracy = (finish.head(finish.pooler(features)).argmax(-1) == setup.test_labels).double().mean()
    torch.testing.assert_close(setup.features[1], features, rtol=0, atol=rounding_of_layers(3))
    assert accuracy.item() == setup.head_only
    again = prepare("trec", 0, plan=plan, encoder=encoder, cache=questions / "cache")
    assert torch.equal(again.pool.tokens, setup.pool.tokens)
    torch.testing.assert_close(again.test.finish.head.weight, finish.head.weight, rtol=0, atol=0)
    other = prepare("trec", 1, plan=plan, encoder=encoder, cache=questions / "cache")
    assert not torch.equal(other.test.finish.head.weight, finish.head.weight)


def test_without_the_pooler_the_head_is_linear_in_the_features(encoder, questions):
    short = {"phase1": 36, "pool": 20, "max_length": 9, "epochs": 150, "head_step_size": 3e-3}
    plan = dataclasses.replace(PLANS["trec_linear_head"], **short)
    setup = prepare("trec_linear_head", 0, plan=plan, encoder=encoder, cache=questions / "cache")
    finish, own = setup.test.finish, setup.test.start()
    features = finish.features(setup.test.attended(setup.test.attention(own)), setup.test.residual)
    torch.testing.assert_close(setup.test.logits(own), finish.head(features), rtol=0, atol=1e-5)
    assert setup.head_only > 0.5  # chance is a third
    assert "; linear head on position 0 ([CLS])" in setup.backbone["what"]


def test_pool_and_test_of_images_are_disjoint_and_labelled_rightly():
    plan = dataclasses.replace(PLANS["digits"], phase1=100, pool=40, test=60, epochs=1)
    setup = prepare("digits", 0, plan=plan)
    digits = load("digits")
    _, pool, test = split_indices(1797, (100, 40, 60), seed=0)
    assert not set(pool.tolist()) & set(test.tolist())
    np.testing.assert_array_equal(setup.test_labels.numpy(), digits.split("all").y[test])
    np.testing.assert_array_equal(setup.pool_labels.numpy(), digits.split("all").y[pool])
    logits = setup.test.finish.head(setup.features[1])
    assert (logits.argmax(-1) == setup.test_labels).double().mean().item() == setup.head_only


def test_every_set_of_the_paper_has_a_plan():
    assert {plan.data or name for name, plan in PLANS.items()} == set(DATA_SETS)
    for name, plan in PLANS.items():
        assert plan.kind == DATA_SETS[plan.data or name].kind
        assert set(plan.sizes) <= set(plan.steps) == set(plan.batch) or set(plan.sizes) < set(plan.steps)
        assert max(plan.sizes) <= plan.pool
        assert bool(plan.max_length) == (plan.kind == "text")


def test_plans_of_one_set_use_the_same_samples():
    for name, plan in PLANS.items():
        base = PLANS[plan.data or name]
        if "_pretrained" in name:
            continue
        for field in ("official", "phase1", "pool", "test", "test_split", "balanced", "kind"):
            assert getattr(plan, field) == getattr(base, field), (name, field)
        assert (plan.confidence > 0) == ("confidence" in name)
        assert bool(plan.random_features) == ("_random_features" in name)
        assert plan.fixed in ("mpnet", *lite0.NETS, "")
        assert plan.fixed in name
        if plan.fixed in lite0.NETS:
            assert ViTShape(classes=2, **plan.shape).patches == lite0.NETS[plan.fixed].tokens
        assert bool(plan.schedule) == name.endswith("_authors")
        if plan.schedule:  # 2000 epochs of batches of 16, the last one smaller
            wanted = {20: 4000, 200: 26_000, 1000: 126_000}
            assert all(plan.steps[n] == wanted[n] for n in plan.sizes)


def two_splits(train=50, test=30):
    rng = np.random.default_rng(0)
    split = {
        name: Split(rng.integers(0, 256, (count, 1, 28, 28), dtype=np.uint8), rng.integers(0, 2, count))
        for name, count in (("train", train), ("test", test))
    }
    return RealData("breast_mnist", "image", split, ("malignant", "normal or benign"), 255, "made here")


def test_a_test_split_of_its_own_is_kept_apart():
    plan = dataclasses.replace(PLANS["breast_mnist_pretrained"], phase1=20, pool=25, test=12)
    phase1, pool, (split, rows) = parts_of(two_splits(), plan, seed=0)
    assert (len(phase1), len(pool), len(set(phase1.tolist()) | set(pool.tolist()))) == (20, 25, 45)
    assert split == "test"
    assert len(set(rows.tolist())) == 12
    assert rows.max() < 30
    everything = parts_of(two_splits(), dataclasses.replace(plan, test=None), seed=0)[2]
    assert everything[1].tolist() == list(range(30))
    with pytest.raises(ValueError, match="parts must add up to at most 50"):
        parts_of(two_splits(), dataclasses.replace(plan, pool=31), seed=0)


# --- Balanced parts -------------------------------------------------------------------------------------------------------

COUNTS = {"train": (11, 40), "val": (3, 9), "test": (5, 12)}  # of each class


def uneven(width=28, channels=1, counts=COUNTS):
    """Pictures of two classes of very different size; class 1 is brighter at the top."""
    rng, splits = np.random.default_rng(1), {}
    for name, sizes in counts.items():
        y = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
        x = rng.integers(0, 156, (len(y), channels, width, width), dtype=np.uint8)
        x[y == 1, :, : width // 2] += 90
        splits[name] = Split(x, y, {f"{name}.npz": hashlib.sha256(x.tobytes()).hexdigest()})
    return RealData("breast_mnist", "image", splits, ("malignant", "normal or benign"), 255, "made here")


BALANCED = dataclasses.replace(PLANS["breast_mnist"], phase1=30, pool=12, test=None, sizes=(10,))


def test_balanced_parts_are_balanced_and_only_phase_1_repeats():
    data = uneven()
    train, joined = data.split("train").y, data.split("val+test").y
    for seed in range(4):
        phase1, pool, (split, test) = parts_of(data, BALANCED, seed)
        assert split == "val+test"
        for rows, y, each in ((phase1, train, 15), (pool, train, 6), (test, joined, 8)):
            assert np.bincount(y[rows]).tolist() == [each, each]
            assert (np.diff(rows) >= 0).all()
        assert not set(phase1.tolist()) & set(pool.tolist())
        assert len(set(pool.tolist())) == 12
        assert len(set(test.tolist())) == 16
        # The five rows of class 0 that the pool leaves are each used three times, the larger class is not repeated.
        own, times = np.unique(phase1[train[phase1] == 0], return_counts=True)
        assert times.tolist() == [3] * 5
        assert set(own.tolist()) | set(pool[train[pool] == 0].tolist()) == set(np.flatnonzero(train == 0).tolist())
        assert len(set(phase1[train[phase1] == 1].tolist())) == 15
        # All of the smallest class of the joined test set, 3 + 5; of the other class some from either split.
        assert test[joined[test] == 0].tolist() == np.flatnonzero(joined == 0).tolist()
        assert test.max() >= 12
    uneven_times = parts_of(data, dataclasses.replace(BALANCED, phase1=26), 0)[0]
    times = np.unique(uneven_times[train[uneven_times] == 0], return_counts=True)[1]
    assert sorted(times.tolist()) == [2, 2, 3, 3, 3]


def test_a_pool_that_leaves_no_rows_of_a_class_is_refused():
    with pytest.raises(ValueError, match=r"pool must leave rows of each class for phase 1; got 22 of \[11, 40\] rows"):
        parts_of(uneven(), dataclasses.replace(BALANCED, pool=22), 0)


def test_a_test_split_that_was_not_found_is_named():
    data = uneven()
    for plan in (BALANCED, dataclasses.replace(BALANCED, balanced=False, phase1=10)):
        with pytest.raises(DataSetNotFound, match="has no split 'dev': found train, val, test"):
            parts_of(data, dataclasses.replace(plan, test_split="test+dev"), 0)


@pytest.mark.parametrize("balanced", [True, False])
def test_the_digest_is_that_of_the_rows_and_changes_with_the_seed(balanced):
    data, plan = uneven(), dataclasses.replace(BALANCED, balanced=balanced)
    rows = [Rows.of(data, plan, seed) for seed in range(3)]
    phase1, pool, (_, test) = parts_of(data, plan, 1)
    packed = b"".join(struct.pack("<q", row) for part in (phase1, pool, test) for row in part)
    assert rows[1].drawn == hashlib.sha256(packed).hexdigest()
    assert len({one.drawn for one in rows}) == 3
    assert rows[1].tested == (16 if balanced else 29)
    assert rows[1].counts == {"train": 51, "val": 12, "test": 17}
    assert rows[1].files == {
        f"{name}.npz": hashlib.sha256(split.x.tobytes()).hexdigest() for name, split in data.splits.items()
    }
    assert Rows.of(data, plan, 1) == rows[1]


# --- The small ViT's setups, on pixels and on random features -------------------------------------------------------------


def is_the_network(setup, data, plan, inputs):
    """Of seed 1: phase 1 again, on inputs(split, rows), gives the logits, features and labels of pool and test."""
    phase1, pool, (held, test) = parts_of(data, plan, 1)
    labels, shape = torch.from_numpy(data.split("train").y[phase1]), ViTShape(classes=2, **plan.shape)
    known = inputs("train", phase1).float()
    model = train_vit(known, labels, shape, seed=1, epochs=plan.epochs, step_size=plan.head_step_size)
    parts = ((setup.pool, setup.pool_labels, "train", pool), (setup.test, setup.test_labels, held, test))
    for (layer, y, split, rows), features in zip(parts, setup.features, strict=True):
        with torch.no_grad():
            logits = model(inputs(split, rows))
        torch.testing.assert_close(layer.logits(setup.own)[0], logits, rtol=0, atol=2e-5)
        torch.testing.assert_close(layer.finish.head(features), logits, rtol=0, atol=2e-5)
        np.testing.assert_array_equal(y, data.split(split).y[rows])
    assert setup.head_only == (logits.argmax(-1) == y).double().mean().item()
    assert setup.rows == Rows.of(data, plan, 1)


SMALL = {"width": 12, "heads": 3, "hidden": 10}


@pytest.mark.parametrize("channels", [1, 3])
def test_a_setup_on_random_features_is_the_network_itself(channels):
    data = uneven(channels=channels)
    name = "breast_mnist_random_features"
    fixed = {**PLANS[name].random_features, "features": 9}
    shape = {**PLANS[name].shape, **SMALL, "features": 9, "channels": channels}
    plan = dataclasses.replace(BALANCED, epochs=2, shape=shape, random_features=fixed)
    setup = prepare(name, 1, plan=plan, data=data)
    # The whitening sees every row of phase 1 once, and no other picture.
    features = RandomFeatures(28, 7, features=9, window=6, stride=2, gamma=0.5, seed=1)
    features.fit(data.pixels("train")[sorted(set(parts_of(data, plan, 1)[0].tolist()))])
    is_the_network(setup, data, plan, lambda split, rows: features.transform(data.pixels(split)[rows]))
    assert setup.pool.tokens.shape == (12, 17, 12)
    assert (setup.backbone["features"], setup.backbone["window"]) == (9, 6)
    assert "random Fourier features" in setup.backbone["what"]


def test_a_setup_on_lite0_is_the_network_itself(monkeypatch, tmp_path):
    data, folders = uneven(channels=3), []

    def tokens(images, rows, progress=False):  # the pixels of a corner
        return torch.from_numpy(images[rows][:, :, :7, :7] / 255).flatten(2).transpose(1, 2).half()

    backbone = SimpleNamespace(transform=tokens, what="", sha256="ab")
    monkeypatch.setattr(setups, "LiteTokens", lambda *named: folders.append(named) or backbone)
    shape = {**PLANS["breast_mnist_lite0"].shape, **SMALL, "features": 3}
    plan = dataclasses.replace(BALANCED, fixed="lite0", epochs=2, shape=shape)
    setup = prepare("breast_mnist_lite0", 1, plan=plan, data=data, cache=tmp_path, encoder_name="", progress=False)
    is_the_network(setup, data, plan, lambda split, rows: tokens(data.split(split).x, rows))
    # Only the last attention reads the class token: its query is the same for all samples.
    assert torch.equal(setup.test.tokens[0, 0], setup.test.tokens[5, 0])
    assert setup.backbone["lite0_sha256"] == "ab"
    assert folders == [("lite0", tmp_path)]


def test_a_setup_in_colour_takes_the_test_set_from_its_own_split():
    data = uneven(width=8, channels=3)
    shape = {"image": 8, "patch": 4, "layers": 2, "channels": 3, **SMALL}
    plan = dataclasses.replace(BALANCED, shape=shape, epochs=2)
    setup = prepare("breast_mnist", 1, plan=plan, data=data)
    is_the_network(setup, data, plan, lambda split, rows: torch.from_numpy(data.pixels(split)[rows]))
    assert setup.backbone["what"].startswith("small pre-norm vision transformer")


def test_weakened_tokens_keep_some_channels_and_get_noise_of_their_own_width():
    rows, scales = np.array([5, 9, 5, 2]), torch.tensor([1.0, 4.0, 0.5, 2.0])
    tokens = (scales * torch.randn(4, 900, 4, generator=torch.Generator().manual_seed(0))).half()
    kept = setups.weakened(tokens, rows, 2, 0.0, seed=3)
    columns = [next(c for c in range(4) if torch.equal(tokens[..., c], kept[..., k])) for k in range(2)]
    assert columns[0] < columns[1]
    assert torch.equal(setups.weakened(tokens, rows, 4, 0.0, seed=3), tokens)
    added, other = (setups.weakened(tokens, rows, 4, 0.5, seed=3, run=run).float() - tokens for run in (0, 1))
    torch.testing.assert_close(added.std((0, 1)), 0.5 * scales, rtol=0.08, atol=0)
    torch.testing.assert_close(added[0], added[2], rtol=0, atol=0.01)  # one picture twice, rounded to float16
    # Between pictures, and between parts, no noise is shared: correlations of 3600 numbers.
    for one, two in ((added[0], added[1]), (added[0], other[0])):
        assert abs(torch.corrcoef(torch.stack([one.flatten(), two.flatten()]))[0, 1]) < 0.1


# --- Pretrained vision transformers ---------------------------------------------------------------------------------------


def test_an_image_setup_on_a_pretrained_vit_equals_the_library(vit):
    data = two_splits()
    plan = dataclasses.replace(PLANS["breast_mnist_pretrained"], phase1=20, pool=25, test=12, epochs=3)
    setup = setups.pretrained_setup(data, plan, 0, vit)
    assert (len(setup.pool), len(setup.test), setup.classes) == (25, 12, 2)
    assert setup.backbone["what"] == "frozen vision transformer; head on position 0 trained in phase 1"
    _, _, (split, rows) = parts_of(data, plan, 0)
    np.testing.assert_array_equal(setup.test_labels.numpy(), data.split(split).y[rows])
    # By the library alone: grey as three equal channels, 8 x 8 by Pillow's resizing, (x / 255 - 1/2) / (1/2).
    images = [Image.fromarray(data.split(split).x[row, 0]).convert("RGB") for row in rows]
    small = np.stack([np.asarray(image.resize((8, 8), Image.Resampling.BILINEAR)) for image in images])
    pixels = torch.from_numpy(small).permute(0, 3, 1, 2).float() / 127.5 - 1
    model = transformers.AutoModel.from_pretrained(vit, attn_implementation="eager").eval()
    with torch.no_grad():
        features = model(pixel_values=pixels).last_hidden_state[:, 0]
    torch.testing.assert_close(setup.features[1], features, rtol=0, atol=1e-5)
    assert (setup.test.finish.head(features).argmax(-1) == setup.test_labels).double().mean().item() == setup.head_only
    expected = setup.test.finish.head(setup.features[1])
    torch.testing.assert_close(setup.test.logits(setup.own).reshape(12, 2), expected, rtol=0, atol=1e-5)
    assert setup.rows == Rows.of(data, plan, 0)


def test_the_fresh_classifier_is_drawn_from_the_seed(vit):
    plan = dataclasses.replace(
        PLANS["breast_mnist_pretrained"], phase1=20, pool=20, test=2, epochs=1, head_step_size=1e-12
    )
    state = torch.random.get_rng_state()
    heads = [setups.pretrained_setup(two_splits(), plan, seed, vit).test.finish.head.weight for seed in (0, 0, 1)]
    assert torch.equal(heads[0], heads[1])
    assert (heads[0] - heads[2]).abs().max() > 1e-2
    assert torch.equal(torch.random.get_rng_state(), state)  # torch's own generator is left alone
