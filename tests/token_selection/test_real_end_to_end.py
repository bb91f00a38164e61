"""The last stage of Lite0 trained together with attention: on a tiny network, from counts by hand, and the stored tables read again."""

import json
from copy import deepcopy
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from attnbook.token_selection.real_data import end_to_end
from attnbook.token_selection.real_data.end_to_end import LEVELS, NAMES, STORED, Joint, both_ways, fresh, halves, train
from attnbook.token_selection.real_data.experiment import nested_flips, train_selection
from attnbook.token_selection.real_data.lite0 import NETS, Lite, Net
from attnbook.token_selection.real_data.loaders import RealData, Split
from attnbook.token_selection.real_data.tables import hits_record, read_table
from attnbook.token_selection.real_data.vit import SmallViT, ViTShape

TINY = Net("tiny", 64, ((8, 1),) * 7, NETS["lite0"].weights)
SHAPE = ViTShape(image=2, patch=1, width=16, heads=4, layers=1, hidden=16, classes=3, features=1280)


@pytest.fixture(scope="module")
def tiny():
    """A network with random weights and statistics, its halves, a reader and ten pictures."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(5)
        network = Lite(TINY)
        for norm in (module for module in network.modules() if isinstance(module, nn.BatchNorm2d)):
            norm.running_mean.normal_(0, 0.3)
            norm.running_var.uniform_(0.5, 2)
            norm.weight.uniform_(0.8, 1.6)
            norm.bias.normal_(0, 0.3)
        pictures = torch.randn(30, 3, 64, 64)
    network.eval().requires_grad_(False)
    stem, stage = halves(TINY, network)
    return network, stem, stage, SmallViT(SHAPE, seed=7), pictures


def test_the_halves_are_the_network(tiny):
    network, stem, stage, _, pictures = tiny
    below = stem(pictures)
    assert below.shape == (30, 8, 4, 4)
    tokens = stage(below).flatten(2).mT
    torch.testing.assert_close(tokens, network.tokens(pictures), rtol=1e-4, atol=1e-5)
    assert 0.1 < (tokens > 0).double().mean() < 0.9  # the maps are not dead
    assert not any(isinstance(module, nn.BatchNorm2d) for part in (stem, stage) for module in part.modules())


def test_the_frozen_way_is_the_ordinary_one(tiny, monkeypatch):
    _, stem, stage, reader, pictures = tiny
    monkeypatch.setattr(end_to_end, "MOST", 12)
    monkeypatch.setattr(end_to_end, "BATCH", 10)
    monkeypatch.setattr(end_to_end, "STEP_SIZE", 5e-3)
    labels, seed = torch.arange(30) % 3, 3
    maps = stage(stem(pictures))
    network = Joint(nn.Identity(), fresh(reader, seed))
    assert train(network, maps, labels, seed=seed) == 12
    layer = fresh(reader, seed).freeze(maps.flatten(2).mT)
    trained, _ = train_selection(
        layer,
        labels[None],
        layer.start(seed=seed, run=1),
        steps=36,
        step_size=5e-3,
        batch=10,
        final_fraction=1.0,
        seed=seed,
    )
    torch.testing.assert_close(layer.logits(trained)[0], network(maps), rtol=1e-3, atol=1e-4)
    own = network.reader.stack[-1]
    torch.testing.assert_close(own.query.weight.T, trained.query[0], rtol=1e-2, atol=1e-4)


def test_the_gradient_of_the_stage_is_a_difference_quotient(tiny):
    _, stem, stage, reader, pictures = tiny
    stage, maps = deepcopy(stage).double(), stem(pictures).double()
    exact = fresh(reader, 0).double()
    exact._tokens = lambda tokens: tokens  # else rounded to float32
    network, labels = Joint(stage, exact).requires_grad_(True), torch.arange(30) % 3
    loss = lambda: functional.cross_entropy(network(maps), labels)  # noqa: E731
    loss().backward()
    draws = torch.Generator().manual_seed(1)
    for weights in (stage[0]._depthwise_conv.weight, stage[-2].bias, network.reader.stack[-1].key.weight):
        along = torch.randn(weights.shape, generator=draws, dtype=torch.float64)
        expected, found = float((weights.grad * along).sum()), []
        with torch.no_grad():
            for size in (1e-7, -1e-7):
                weights += size * along
                found.append(float(loss()))
                weights -= size * along
        assert (found[0] - found[1]) / 2e-7 == pytest.approx(expected, rel=1e-3, abs=1e-9)


def test_what_is_trained(tiny, monkeypatch):
    _, stem, stage, reader, pictures = tiny
    monkeypatch.setattr(end_to_end, "MOST", 1)
    seen = []
    monkeypatch.setattr(
        end_to_end, "train", lambda network, *args, **more: seen.append(network) or train(network, *args, **more)
    )
    maps, before = stem(pictures), fresh(reader, 2)
    answers, given, epochs = both_ways(stage, reader, maps, torch.arange(30) % 3, maps[:7], seed=2)
    assert (answers.shape, given.shape, epochs.tolist()) == ((2, 2, 7), (2, 2, 30), [[1, 1], [1, 1]])
    selection = {f"stack.0.{name}" for name in ("query.weight", "query.bias", "key.weight")}
    for k, network in enumerate(seen):
        there = dict(before.named_parameters())
        assert {
            name for name, weight in network.reader.named_parameters() if not torch.equal(weight, there[name])
        } == selection
        moved = [
            not torch.equal(new, old) for new, old in zip(network.stage.parameters(), stage.parameters(), strict=k > 1)
        ]
        assert all(moved)
        assert len(moved) == (len(list(stage.parameters())) if k > 1 else 0)


def test_a_run_ends_so_many_epochs_after_the_fit(tiny):
    _, stem, stage, _, pictures = tiny
    maps, silent = stage(stem(pictures)), nn.Linear(4 * 1280, 3)
    network = nn.Sequential(nn.Flatten(), silent)
    with torch.no_grad():
        silent.weight.zero_()
        silent.bias.copy_(torch.tensor([9.0, 0.0, 0.0]))
    assert train(network, maps, torch.zeros(30, dtype=torch.long), seed=0) == 1 + end_to_end.TAIL


def _table(folder, frozen, joint, fit=(1.0, 1.0), pictures=400):
    """Right answers (without and with flipped labels) of two ways, as a table of five seeds that test the same pictures."""
    draws, cells = np.random.default_rng(0), []
    for seed in range(5):
        hits = np.zeros((4, pictures), dtype=bool)
        for row, right in zip(hits, (*frozen, *joint), strict=True):
            row[draws.permutation(pictures)[: right + seed]] = True
        cells.append({"seed": seed, "n": 200, "fit": list(fit)} | hits_record(hits, list(range(pictures))))
    folder.mkdir(exist_ok=True)
    for name in NAMES:
        end_to_end.table_of(name, folder).write_text(json.dumps({"cells": cells}))
    return end_to_end.read_end_to_end("mnist", folder)


def test_the_difference_from_counts_by_hand(tmp_path):
    found = _table(tmp_path, (380, 360), (376, 320))

    def lost(clean, noisy):
        right = [(Fraction(clean + seed, 400), Fraction(noisy + seed, 400)) for seed in range(5)]
        return sum((a - b) / (Fraction(1, 5) * (10 * a - 1) / 9) for a, b in right) / 5

    assert [one.fraction().mean() for one in found.trials] == pytest.approx(
        [float(lost(380, 360)), float(lost(376, 320))]
    )
    assert found.difference.value == pytest.approx(float(lost(376, 320) - lost(380, 360)))
    assert found.outcome == "rises"
    assert _table(tmp_path, (376, 320), (380, 360)).outcome == "falls"
    assert _table(tmp_path, (380, 360), (380, 361)).outcome == "not decided"
    assert _table(tmp_path, (380, 360), (376, 320), fit=(1.0, 0.8)).outcome == "not decided"
    assert _table(tmp_path, (200, 180), (196, 140)).outcome == "not decided"  # too near to a guess
    _table(tmp_path, (380, 360), (376, 320))
    both = r"from $0.26\pm0.08$ to $0.75\pm0.10$ (difference $0.48\pm0.13$: rises)"
    assert end_to_end.as_sentence(tmp_path) == f"$F$ goes on CIFAR-10 {both} and on MNIST {both}."


def test_a_seed_that_is_stored_is_not_run_again(tiny, monkeypatch, tmp_path, capsys):
    _, stem, stage, reader, pictures = tiny
    images, labels = np.zeros((1510, 3, 8, 8), np.uint8), np.arange(1510) % 3
    data = RealData(
        "cifar10",
        "image",
        {"train": Split(images, labels), "test": Split(images[:9], labels[:9])},
        ("a", "b", "c"),
        255,
        "",
    )
    plan = end_to_end.replace(end_to_end.plan_of("cifar10"), phase1=10)
    monkeypatch.setattr(end_to_end, "plan_of", lambda name: plan)
    monkeypatch.setattr(end_to_end, "MOST", 1)
    asked = []
    maps = stem(pictures)[torch.arange(200) % 30]
    monkeypatch.setattr(
        end_to_end, "seed_parts", lambda plan, data, seed, cache: asked.append(seed) or (reader, stage, maps, maps[:9])
    )
    for seeds in ((0,), (0, 1)):
        end_to_end.remake("cifar10", data, tmp_path / "t.json", seeds=seeds)
    assert asked == [0, 1]
    assert "cifar10, seed 1" in capsys.readouterr().out
    cells = json.loads((tmp_path / "t.json").read_text())["cells"]
    assert [cell["seed"] for cell in cells] == [0, 1]
    _, flipped = nested_flips(torch.arange(200) % 3, 3, LEVELS, seed=0, run=1)
    assert all(
        round(share * int(flipped[1].sum())) <= right[1]
        for share, right in zip(cells[0]["fit"], cells[0]["given"], strict=True)
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_stored_table_gives_its_fractions_again(name):
    """From the file's digits alone: no function of the module reads them here."""
    document = json.loads(end_to_end.table_of(name).read_text(encoding="utf-8"))
    cells, lost = document["cells"], []
    assert [cell["seed"] for cell in cells] == list(range(5))
    for cell in cells:
        pictures = int(cell["tested"], 16).bit_count()
        right = [int(row, 16).bit_count() / pictures for row in cell["hits"]]
        lost += [(clean - noisy) / (0.2 * (10 * clean - 1) / 9) for clean, noisy in (right[:2], right[2:])]
    found = end_to_end.read_end_to_end(name)
    assert [one.fraction().mean() for one in found.trials] == pytest.approx([np.mean(lost[::2]), np.mean(lost[1::2])])
    moved = np.subtract(lost[1::2], lost[::2])
    assert found.difference.value == pytest.approx(moved.mean())
    assert found.difference.high - found.difference.value >= 1.96 * moved.std(ddof=1) / 5**0.5  # pictures count too


def test_the_samples_are_those_of_the_trial():
    cells = json.loads(end_to_end.table_of("cifar10").read_text(encoding="utf-8"))["cells"]
    table = read_table("cifar10_lite0")
    drawn = {
        one["seed"]: one["rows_sha256"]
        for one in json.loads((STORED.parent / "cifar10_lite0.json").read_text())["cells"]
    }
    assert {cell["seed"]: cell["rows_sha256"] for cell in cells} == {seed: drawn[seed] for seed in table.seeds(200)}


def test_the_page_says_what_the_tables_say():
    page = Path(__file__).parents[2] / "notebooks" / "token_selection" / "09_a_fair_trial.md"
    assert end_to_end.as_sentence() in page.read_text(encoding="utf-8")
