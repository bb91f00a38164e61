"""`attnlib real`: a folder of pictures becomes a data set and a table; what cannot be done is refused in one line, before any work."""

import dataclasses
import json
import pickle
import re
import struct
import tarfile
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
import torch
from PIL import Image

from attnbook.token_selection.real_data import door, setups
from attnbook.token_selection.real_data.formats import FormatError
from attnbook.token_selection.real_data.loaders import DATA_SETS, FEWEST, DataSetNotFound, load, load_pictures
from attnbook.token_selection.real_data.plans import PLANS, own_pictures
from attnbook.token_selection.real_data.tables import remake
from tests.house import ROOT
from tests.pretend_card import pretended
from tests.token_selection.tiny_models import save_questions, save_tiny_bert, save_tiny_vit

pytestmark = pytest.mark.usefixtures("one_thread")
CATS, DOGS, SIDE = 60, 68, 224


@pytest.fixture
def folder(tmp_path):
    """Cats are red above, dogs below; of several sizes, one grey, one with a palette; hidden and other files beside them."""
    rng = np.random.default_rng(0)
    for name, count, rows in (("cats", CATS, slice(0, 4)), ("dogs", DOGS, slice(4, 8))):
        (tmp_path / "mine" / name).mkdir(parents=True)
        for k in range(count):
            pixels = rng.integers(0, 90, (8, 8, 3), dtype=np.uint8)
            pixels[rows, :, 0] += 150
            Image.fromarray(pixels).resize((8 + k % 3, 8)).save(tmp_path / "mine" / name / f"{k:02}.png")
        (tmp_path / "mine" / name / "notes.txt").write_text("no picture")
    Image.new("L", (5, 7), 40).save(tmp_path / "mine" / "cats" / "00.png")
    Image.new("P", (5, 7)).save(tmp_path / "mine" / "cats" / "01.png")
    (tmp_path / "mine" / ".hidden").mkdir()
    return tmp_path / "mine"


@pytest.fixture
def tiny(monkeypatch):
    """CIFAR-10's plan on a stand-in for Lite0, the colours of 49 cells; small and short."""

    class Tokens:
        what, sha256 = "cells", "ab"
        transform = staticmethod(
            lambda x, rows, progress: torch.from_numpy(x[rows][..., 16::32, 16::32] / 255).flatten(2).mT.half()
        )
        missing = staticmethod(len)
        compute = staticmethod(lambda x: None)

    monkeypatch.setattr(setups, "LiteTokens", lambda net, folder: Tokens)
    shape = {"image": 7, "patch": 1, "features": 3, "width": 16, "heads": 4, "layers": 1, "hidden": 8}
    steps = {"steps": {20: 60, 200: 60}, "batch": {20: None, 200: None}, "head_step_size": 5e-3, "step_size": 1e-2}
    monkeypatch.setitem(
        PLANS, "cifar10_lite0", dataclasses.replace(PLANS["cifar10_lite0"], shape=shape, seeds=5, **steps)
    )


def test_a_folder_of_pictures_becomes_a_table(folder, tiny, tmp_path, capsys):
    out = tmp_path / "t.json"
    asked = [str(folder), "--n", "20", "--noise", "0", "0.2", "-o", str(out)]
    assert door.main(asked) == 0
    printed = capsys.readouterr().out
    said = "own_lite0, 2 classes: phase 1 64 samples, pool 32, test 32; n = 20; 5 of 5 runs are left"
    assert re.search(rf"{said}\nabout \d+\.\d minutes: features", printed)
    assert re.search(r"F -?\d\.\d\d \[-?\d\.\d\d, -?\d\.\d\d\], (benign|tempered|harmful|not decided)", printed)
    document = json.loads(out.read_text())
    settings = document["settings"]
    assert (settings["data"], settings["class_names"]) == ("own pictures", ["cats", "dogs"])
    assert settings["rows"] == {"all": 128}
    assert settings["phase1"]["epochs"] == 500  # of one step
    assert [cell["seed"] for cell in document["cells"]] == [0, 1, 2, 3, 4]
    assert np.mean([cell["head_only"] for cell in document["cells"]]) > 0.9
    assert str(tmp_path) not in out.read_text()
    assert door.main(asked) == 0
    assert "0 of 5 runs are left\nn = 20, 5 seeds" in capsys.readouterr().out
    Image.new("RGB", (8, 8)).save(folder / "dogs" / "00.png")  # another picture is another setting
    assert door.main([*asked, "--seeds", "7"]) == 2
    assert "measured with other settings (sha256)" in capsys.readouterr().err


def test_the_chapter_is_typed_as_it_stands(tiny, tmp_path, monkeypatch, capsys):
    said = (ROOT / "book" / "running.md").read_text(encoding="utf-8").split("(own-pictures)=")[1].split("###")[0]
    monkeypatch.chdir(tmp_path)
    exec(re.search(r"```python\n(.*?)```", said, re.S)[1], {})
    commands = [line.split(" #")[0].split()[3:] for line in said.splitlines() if " -m attnlib real " in line]
    assert [command[0] for command in commands] == ["real", "real"]
    for command in commands:
        assert door.main([*command[1:], "--n", "20"]) == 0
    printed = capsys.readouterr().out
    said = "own_lite0, 10 classes: phase 1 899 samples, pool 449, test 449; n = 20; 2 of 2 runs are left"
    assert printed.count(said) == 2
    assert (tmp_path / "my_digits.json").is_file()
    grey = load_pictures(tmp_path / "my_digits", 8).split("all").x
    digits = load("digits").split("all")
    by_name = sorted(range(len(digits)), key=lambda k: (digits.y[k], f"{k}.png"))
    np.testing.assert_array_equal(grey[:, 0], 15 * digits.x[by_name, 0])


def test_pictures_are_in_colour_of_one_size_and_in_order(folder):
    data = load_pictures(folder, SIDE)
    split = data.split("all")
    assert split.x.shape == (CATS + DOGS, 3, SIDE, SIDE)
    assert (data.class_names, np.bincount(split.y).tolist()) == (("cats", "dogs"), [CATS, DOGS])
    assert (split.x[0] == 40).all()
    with Image.open(folder / "dogs" / "05.png") as picture:
        np.testing.assert_array_equal(split.x[CATS + 5], np.asarray(picture.resize((SIDE, SIDE))).transpose(2, 0, 1))


@pytest.mark.parametrize(
    ("pictures", "parts"),
    [(200, (100, 50, 50)), (1799, (901, 449, 449)), (9000, (5250, 1500, 2250)), (20_000, (6000, 1500, 2500))],
)
def test_the_rule_of_the_parts(pictures, parts):
    plan = own_pictures(PLANS["cifar10_lite0"], pictures, (50,))
    assert (plan.phase1, plan.pool, plan.test) == parts
    assert plan.epochs * (plan.phase1 // 64) >= 500
    assert (plan.steps[50], plan.steps[200], plan.batch[50]) == (1500, 1500, None)
    authors = own_pictures(PLANS["cifar10_lite0_authors"], pictures, (50,))
    assert (authors.steps[50], authors.batch[50], authors.sizes) == (2000 * 4, 16, (50,))


def _one_class(folder):
    (folder / "dogs").rename(folder.parent / "dogs")


def _few(folder):
    (folder / "two\x1b").mkdir()  # a folder of somebody else's
    for name in ("a.png", "b.png"):
        Image.new("RGB", (4, 4)).save(folder / "two\x1b" / name)


def _broken(folder):
    (folder / "cats" / "03.png").write_bytes((folder / "cats" / "04.png").read_bytes()[:60])
    Image.new("I;16", (4, 4)).save(folder / "dogs" / "deep.png")


OF_PICTURES = [  # what is done to the folder, further options, and the line
    (_one_class, "", r"mine: holds 1 classes: make a subfolder of pictures for each class"),
    (_few, "", rf"too few pictures: two\ufffd 2: each class needs {FEWEST}"),
    (
        _broken,
        "",
        r"cannot be read: \S+cats/03.png \(.*\), \S+dogs/deep.png \(.*more than 8 bits.*\): save again .*, or remove",
    ),
    (None, "--n 50", r"n must be at most the pool, a quarter of the pictures, 32 of 128; got 50: .*200 pictures"),
    (None, "--n 3", r"noise_levels must each flip more of the n = 3 labels"),
    (None, "--noise 0.1 0.2", r"noise_levels must rise from 0"),
    (None, "--seeds -1", r"seed must be a whole number >= 0"),
    (None, "--backbone resnet", r"--backbone must be one of lite0.*pretrained ViT or BERT; got 'resnet'"),
    (None, "--backbone mpnet", r"--backbone must be one of lite0"),
    (None, "--device cuda", r"device 'cuda' was asked for, but torch sees no GPU: use device='cpu'"),
    (None, "--device gpu", r"device must be 'cpu', 'cuda'"),
    (None, "-o nowhere/t.json", r"-o must name a .json file in a folder that exists; got nowhere"),
    (None, "-o t.txt", r"-o must name a .json file"),
]


@pytest.mark.parametrize(("harm", "more", "message"), OF_PICTURES)
def test_what_cannot_be_done_is_said_in_one_line(harm, more, message, folder, tiny, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(door, "remake", lambda *_, **__: pytest.fail("it began"))
    if harm:
        harm(folder)
    assert door.main([str(folder), "--n", "20", "-o", str(tmp_path / "t.json"), *more.split()]) == 2
    error = capsys.readouterr().err.splitlines()
    assert re.match(rf"attnlib real: error: .*{message}", error[-1])
    assert not any("error" in line for line in error[:-1])
    assert not list(tmp_path.glob("*.json"))


OF_SETS = [
    ("nothing", "'nothing' is neither a folder nor one of digits, mnist"),
    ("trec", "--backbone must name a pretrained model for trec.*'bert-base-uncased'.*, or trec --backbone mpnet"),
    ("digits --backbone lite0", "--backbone must be one of random_features for digits"),
    (
        "mnist --backbone random_features --authors",
        "--authors must go with a pretrained backbone for mnist; got random_",
    ),
    ("digits --n 30", "n must be one of 20, 100, 200 for digits; got 30"),
    ("digits --seeds 1 2 1", "seeds must be told once each; got 1 2 1"),
    ("digits --n 20 20", "n must be told once each; got 20 20"),
    ("digits --threads 0", "--threads must be a whole number >= 1; got 0"),
]


@pytest.mark.parametrize(("asked", "message"), OF_SETS)
def test_what_is_no_plan_is_said_in_one_line(asked, message, tmp_path, capsys):
    assert door.main([*asked.split(), "-o", str(tmp_path / "t.json")]) == 2
    assert re.match(f"attnlib real: error: .*{message}", capsys.readouterr().err)


# --- A pretrained ViT, trained as the authors do; and another device --------------------------------------------------------


@pytest.fixture
def vit(tmp_path, monkeypatch):
    """A tiny random ViT in a folder, and CIFAR-10's archive with a few pictures."""
    (tmp_path / "vit").mkdir()
    (tmp_path / "cifar10").mkdir()
    archive(tmp_path / "cifar10", count=12)
    monkeypatch.setenv("ATTNLIB_DATA", str(tmp_path))
    save_questions(tmp_path)
    small = {"phase1": 30, "pool": 20, "epochs": 2, "sizes": (20,), "steps": {20: 40}, "seeds": 1}
    for name, more in (("cifar10", {"test": 10}), ("trec", {"max_length": 9})):
        name = f"{name}_pretrained_authors"
        monkeypatch.setitem(PLANS, name, dataclasses.replace(PLANS[name], **small, **more))
    (tmp_path / "bert").mkdir()
    save_tiny_bert(tmp_path / "bert")
    return save_tiny_vit(tmp_path / "vit")


@pytest.mark.parametrize(
    ("name", "model", "head"),
    [("cifar10", "vit", "head on position 0 trained"), ("trec", "bert", "position 0 (the first word piece)")],
)
def test_whoever_has_the_model_runs_the_authors_way_by_one_command(name, model, head, vit, tmp_path, capsys):
    asked = f"{name} --backbone {vit.parent / model} --authors --cache {tmp_path} -o {tmp_path}/t.json"
    assert door.main(asked.split()) == 0
    printed = capsys.readouterr().out
    assert re.search(
        r"about \d+\.\d minutes: features \d+\.\d, phase 1 0\.0, phase 2 \d+\.\d\nn = 20, 1 seeds", printed
    )
    document = json.loads((tmp_path / "t.json").read_text())
    assert document["name"] == f"{name}_pretrained_authors"
    settings, phase2 = document["settings"], document["settings"]["phase2"]
    assert settings["backbone"]["what"].startswith(f"frozen {model}; ")
    assert head in settings["backbone"]["what"]
    assert phase2["optimiser"].startswith("AdamW without weight decay, no warm-up, linear to zero")
    assert (phase2["step_size"], phase2["batch"]["20"]) == (5e-5, 16)


def test_the_authors_way_is_planned_for_each_of_their_sets():
    assert door.plan_of("ag_news", "bert-base-uncased", True) == ("ag_news_pretrained_authors", "bert-base-uncased")
    for name in ("mnist", "cifar10", "pneumonia_mnist", "breast_mnist", "ag_news", "trec"):
        plan = PLANS[f"{name}_pretrained_authors"]
        assert (plan.step_size, set(plan.batch.values()), plan.special_tokens) == (5e-5, {16}, plan.kind == "image")


def _moved(module, device):
    """`Module.to` for pretended tensors, which torch's own refuses: they are of another type."""
    for part in module.modules():
        for own in (part._parameters, part._buffers):
            own.update(
                (k, p.detach().to(device).requires_grad_(p.requires_grad)) for k, p in own.items() if p is not None
            )
    return module


def test_the_card_finds_what_the_cpu_finds(vit, tmp_path, monkeypatch):
    digits = dataclasses.replace(
        PLANS["digits"], phase1=64, pool=20, test=30, epochs=1, sizes=(10,), steps={10: 5}, batch={10: 4}, seeds=1
    )
    for name, plan, options in (("digits", digits, {}), ("cifar10_pretrained_authors", None, {"encoder": vit})):
        there = remake(name, plan=plan, out=tmp_path / f"{name}_cpu.json", **options)
        with pretended(), monkeypatch.context() as patch:
            patch.setattr(torch.nn.Module, "to", _moved)
            made, asked = plan or PLANS[name], {"encoder": options.get("encoder"), "cache": None, "device": "cuda"}
            assert min(door.estimate(made, load(made.data or name), [(0, made.sizes[0])], **asked).values()) >= 0
            card = remake(name, plan=plan, out=tmp_path / f"{name}_card.json", device="cuda", **options)
        assert card.settings["device"] == "cuda, float32"
        for one, other in zip(card.cells, there.cells, strict=True):
            for what, values in one.values.items():
                np.testing.assert_allclose(values, other.values[what], rtol=0, atol=2e-5, err_msg=what)


# --- CIFAR-10 as it is published ----------------------------------------------------------------------------------------------


class _Python2(pickle._Pickler):
    """Writes texts as Python 2 did, in which the batches were made."""

    dispatch: ClassVar = dict(pickle._Pickler.dispatch)

    def old(self, text):
        raw = text if isinstance(text, bytes) else text.encode("latin-1")
        self.write(pickle.BINSTRING + struct.pack("<i", len(raw)) + raw)

    dispatch[str] = dispatch[bytes] = old


def archive(folder, count=2, **changes):
    """cifar-10-python.tar.gz in a folder, and the folder of its batches; the pictures by batch, the labels."""
    place, rng, found = folder / "cifar-10-batches-py", np.random.default_rng(0), []
    place.mkdir()
    for k, name in enumerate([*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"]):
        pixels, labels = (
            rng.integers(0, 256, (count, 3072), dtype=np.uint8),
            [(k * count + i) % 10 for i in range(count)],
        )
        with (place / name).open("wb") as file:
            _Python2(file, protocol=2).dump({"data": pixels, "labels": labels, "batch_label": name} | changes)
        found.append((pixels.reshape(-1, 3, 32, 32), labels))
    with tarfile.open(folder / "cifar-10-python.tar.gz", "w:gz") as packed:
        packed.add(place, place.name)
    return found


@pytest.mark.parametrize("kept", ["cifar-10-batches-py", "cifar-10-python.tar.gz"])
def test_cifar10_is_read_as_it_is_published(kept, tmp_path):
    (tmp_path / "cifar10").mkdir()
    batches = archive(tmp_path / "cifar10")
    place = tmp_path / "cifar10" / kept
    if place.is_file():
        (tmp_path / "cifar10" / "cifar-10-batches-py").rename(tmp_path / "elsewhere")
    data = load("cifar10", tmp_path)
    for split, wanted in (("train", batches[:5]), ("test", batches[5:])):
        np.testing.assert_array_equal(data.split(split).x, np.concatenate([x for x, _ in wanted]))
        assert data.split(split).y.tolist() == [label for _, labels in wanted for label in labels]
        batches_of = {"train": {f"data_batch_{k}" for k in range(1, 6)}, "test": {"test_batch"}}
        assert set(data.split(split).files) == ({kept} if place.is_file() else batches_of[split])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data": SimpleNamespace()}, "it holds types.SimpleNamespace"),  # no code of a file is run
        ({"data": np.zeros((2, 9), np.uint8)}, "cannot reshape"),
        ({"labels": [0, 10]}, r"label 10 in row 2 is outside 0\.\.9"),
    ],
)
def test_damaged_batches_are_refused(change, message, tmp_path):
    (tmp_path / "cifar10").mkdir()
    archive(tmp_path / "cifar10", **change)
    with pytest.raises(FormatError, match=message):
        load("cifar10", tmp_path)


def test_a_library_of_another_torch_is_told_apart_from_no_network(monkeypatch):
    def broken(name):
        raise RuntimeError("operator torchvision::nms does not exist")

    monkeypatch.delenv("ATTNLIB_DATA", raising=False)
    monkeypatch.setattr("importlib.import_module", broken)
    with pytest.raises(
        DataSetNotFound, match=r"torchvision does not start \(operator .*\): python -m pip install --upgrade torch"
    ) as caught:
        load("mnist")
    assert "connect" not in str(caught.value)
    assert DATA_SETS["mnist"].files in str(caught.value)
