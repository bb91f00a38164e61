"""Seven data sets side by side, and what decides the cost: the unit of harm a second way, loops over the stored files, claims, pictures."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import pytest
from scipy.stats import spearmanr

from attnbook import draws
from attnbook.draws import Estimate
from attnbook.token_selection.real_data import sets_study as module
from attnbook.token_selection.real_data.causes import FEWER, MIXED, WHOLE, Causes, causes
from attnbook.token_selection.real_data.causes_claims import CLAIMS as CAUSES
from attnbook.token_selection.real_data.effective import read_effective
from attnbook.token_selection.real_data.loaders import DATA_SETS
from attnbook.token_selection.real_data.plans import PLANS
from attnbook.token_selection.real_data.sets_claims import CLAIMS
from attnbook.token_selection.real_data.sets_figures import draw_causes
from attnbook.token_selection.real_data.sets_study import (
    SETS,
    copying_loss,
    fraction_of,
    published_fraction,
    sets_study,
)
from attnbook.token_selection.real_data.tables import TABLES, read_table
from attnbook.token_selection.real_data.trial import two_way
from bookkit.claims import Verdict

CHAPTER = Path(__file__).parents[2] / "book" / "token_selection_theory.md"


@pytest.fixture(scope="module")
def study():
    return sets_study()


@pytest.mark.parametrize(("classes", "accuracy"), [(2, 0.8), (4, 0.85), (10, 0.3)])
def test_a_network_that_copies_the_noise_loses_the_unit(classes, accuracy):
    eta, rng = 0.3, np.random.default_rng(0)
    truth = rng.integers(classes, size=400_000)
    wrong = (truth + rng.integers(1, classes, truth.size)) % classes
    answer = np.where(rng.random(truth.size) < accuracy, truth, wrong)
    copied = np.where(rng.random(truth.size) < eta, (answer + rng.integers(1, classes, truth.size)) % classes, answer)
    lost = (answer == truth).mean() - (copied == truth).mean()
    assert lost == pytest.approx(eta * copying_loss(accuracy, classes), abs=4 * (0.5 / truth.size) ** 0.5)
    assert copying_loss(1 / classes, classes) == pytest.approx(0)


def test_every_set_and_backbone_is_there(study):
    pictures = [name for name in SETS if DATA_SETS[name].kind == "image"]
    assert set(study.networks) == {(d, b) for d in pictures for b in ("small ViT", "random features")} | {
        ("ag_news", "MiniLM"), ("trec", "MiniLM")
    }  # fmt: skip
    assert all(network.scaled.settings["phase1"]["confidence"] == 1 for network in study.networks.values())
    assert study.pictures == tuple(pictures)
    for network in study.networks.values():
        for table in (network.table, network.scaled):  # seeds are paired by their place
            assert all(table.seeds(n) == tuple(range(len(table.seeds(n)))) for n in table.sizes), network.label
            assert all(len(table.seeds(n)) >= 5 for n in table.sizes), network.label
        assert len(network.frozen) >= 5
        assert network.table.noise_levels == (0.0, 0.1, 0.2, 0.4)
        assert {20, 200} <= set(network.table.sizes)
    for data in ("mnist", "cifar10"):
        assert all(1000 in study.networks[data, b].table.sizes for b in ("small ViT", "random features"))


@pytest.mark.parametrize("name", ["cifar10_random_features", "trec", "breast_mnist"])
def test_fraction_and_fit_are_those_of_the_file(study, name):
    data = PLANS[name].data or name
    network = next(n for n in study.networks.values() if n.table.name == name)
    cells = [cell for cell in json.loads((TABLES / f"{name}.json").read_text())["cells"] if cell["n"] == 200]
    classes = len(DATA_SETS[data].class_names)
    for cell, fraction, fit in zip(cells, network.lost(200), network.fit(200), strict=True):
        final = [path[-1] for path in cell["test_accuracy"]]
        above_chance = final[0] - (1 - final[0]) / (classes - 1)
        lost = sum(final[0] - accuracy for accuracy in final[1:])
        assert fraction == pytest.approx(lost / (0.7 * above_chance))
        memorised = [
            round(eta * 200) * path[-1] for eta, path in zip((0.1, 0.2, 0.4), cell["fit_noisy"][1:], strict=True)
        ]
        assert fit == pytest.approx(sum(memorised) / 140)


def test_published_fractions_by_hand():
    assert published_fraction("digits", 200) is None
    assert published_fraction("breast_mnist", 1000) is None
    found = published_fraction("ag_news", 200)  # 85.9 +- 0.5 and 77.8 +- 0.6, four classes, three seeds
    unit = 0.2 * (85.9 - 14.1 / 3)
    assert found.value == pytest.approx(8.1 / unit)
    assert found.high - found.value == pytest.approx(4.302653 * ((0.25 + 0.36) / 3) ** 0.5 / unit, rel=1e-6)
    assert found.value - found.low == pytest.approx(found.high - found.value)


def test_statistics_are_the_stored_ones(study):
    stored = read_effective()["cifar10"]
    network = study.networks["cifar10", "small ViT"]
    assert network.statistic("dimension").tolist() == [stored[seed].dimension for seed in sorted(stored)]
    assert network.statistic("snr")[0] == pytest.approx((stored[0].signal / stored[0].noise) ** 0.5)


def test_ids_are_those_of_page_seven():
    assert list(CLAIMS) == [f"TS{number}" for number in (71, 77, 78, 79, 81, 82)]
    assert CLAIMS.part == "token_selection"


def with_accuracy(study, key, final):
    """The study with the last accuracies of one network replaced by `final`, by noise level; seeds differ by 0.001."""
    network = study.networks[key]
    cells = []
    for cell in network.table.cells:
        accuracy = np.repeat(np.array(final)[:, None], len(cell.recorded), 1) + 0.001 * cell.seed
        cells.append(replace(cell, values={**cell.values, "test_accuracy": accuracy}))
    made = replace(network, table=replace(network.table, cells=tuple(cells)))
    return replace(study, networks={**study.networks, key: made})


def test_a_benign_set_would_pass_and_an_undecided_one_is_not_judged(study):
    key = "ag_news", "MiniLM"
    benign = with_accuracy(study, key, (0.85, 0.85, 0.85, 0.84))
    assert CLAIMS["TS71"].check(benign).verdict == Verdict.HOLDS
    assert CLAIMS["TS71"].check(study).verdict == Verdict.FAILS
    undecided = with_accuracy(study, key, (0.85, 0.85, 0.85, 0.84))
    cells = tuple(
        replace(
            cell,
            values={
                **cell.values,
                "test_accuracy": cell.values["test_accuracy"] - 0.4 * (cell.seed % 2) * np.eye(4)[3][:, None],
            },
        )
        for cell in undecided.networks[key].table.cells
    )
    network = undecided.networks[key]
    undecided = replace(
        undecided, networks={**undecided.networks, key: replace(network, table=replace(network.table, cells=cells))}
    )
    assert CLAIMS["TS71"].check(undecided).verdict == Verdict.OUTSIDE


def test_the_other_claims_fall_with_their_numbers(study):
    cheap = with_accuracy(study, ("digits", "small ViT"), (0.95, 0.94, 0.94, 0.93))
    assert not CLAIMS["TS77"].seen(cheap).holds
    flat = study
    for data in study.pictures:
        flat = with_accuracy(flat, (data, "random features"), (0.9, 0.9, 0.9, 0.9))
    assert not CLAIMS["TS78"].seen(flat).holds
    assert not CLAIMS["TS79"].seen(flat).holds


def test_one_backbone_is_enough_to_be_benign(study):
    one = with_accuracy(study, ("pneumonia_mnist", "small ViT"), (0.85, 0.85, 0.85, 0.84))
    assert CLAIMS["TS71"].check(one).verdict == Verdict.HOLDS
    other = with_accuracy(study, ("digits", "small ViT"), (0.85, 0.85, 0.85, 0.84))
    assert CLAIMS["TS71"].check(other).verdict == Verdict.FAILS  # digits is none of the six


@pytest.mark.parametrize(
    ("factor", "holds"), [(1.0, [True, False, False]), (2.0, [False, True, False]), (0.5, [False, False, True])]
)
def test_published_losses_are_told_from_half_and_from_twice_as_much(study, monkeypatch, factor, holds):
    def published(data, n):
        one = published_fraction(data, n)
        return one and Estimate(*(factor * number for number in (one.value, one.low, one.high)))

    monkeypatch.setattr("attnbook.token_selection.real_data.sets_claims.published_fraction", published)
    check = CLAIMS["TS82"].check(study)
    assert [check.evidence.holds, *(control.holds for control in check.controls)] == holds


def test_losses_at_equal_fit_by_hand(study):
    network = study.networks["digits", "small ViT"]  # ten classes

    def table(like, fits, accuracies):
        fit, accuracy = np.tile(fits, (4, 1)), np.tile(accuracies, (4, 1))
        accuracy[0] = 0.91  # u = 0.9
        cells = tuple(
            replace(cell, values={**cell.values, "fit_noisy": fit, "test_accuracy": accuracy}) for cell in like.cells
        )
        return replace(like, cells=cells)

    made = replace(
        network,
        table=table(network.table, [0.0, 0.3, 0.5, 1.0], [0.5, 0.91, 0.71, 0.31]),
        scaled=table(network.scaled, [0.0, 0.1, 0.2, 0.4], [0.5, 0.9, 0.9, 0.88]),
    )
    scaled, trained = made.lost_at_equal_fit()  # at fit 0.4: the middle of 0.91 and 0.71; and the end
    assert trained == pytest.approx([3 * 0.1 / (0.7 * 0.9)] * 5)
    assert scaled == pytest.approx([3 * 0.03 / (0.7 * 0.9)] * 5)
    assert replace(study, networks={"one": made}).change_at_equal_fit() == pytest.approx([3 * -0.07 / 0.63] * 5)


def test_differences_are_paired_by_seed(study):
    vit, random = (study.networks["breast_mnist", b] for b in ("small ViT", "random features"))
    assert len(study.difference("breast_mnist")) == 20
    np.testing.assert_allclose(study.difference("breast_mnist"), random.lost() - vit.lost())
    both = study.difference("breast_mnist", "digits")
    assert len(both) == 5
    digits = study.networks["digits", "random features"].lost() - study.networks["digits", "small ViT"].lost()
    np.testing.assert_allclose(both, (digits + (random.lost() - vit.lost())[:5]) / 2)
    change = [network.lost_when_scaled()[3] - network.lost()[3] for network in study.networks.values()]
    assert study.change()[3] == pytest.approx(sum(change) / 12)


def test_a_variant_has_the_same_fraction():
    variant = read_table("ag_news_gentle_head")
    final = variant.values("test_accuracy", 20)[1, :, -1]
    unit = final[0] - (1 - final[0]) / 3
    assert fraction_of(variant, 20)[1] == pytest.approx((3 * final[0] - final[1:].sum()) / (0.7 * unit))


def said(values, digits=2):
    found = draws.mean(values)
    return rf"${found.value:.{digits}f}\pm{found.high - found.value:.{digits}f}$"


def test_numbers_of_the_text_are_those_of_the_tables(study):
    """What the chapter says of the small networks, from the study."""
    text = CHAPTER.read_text(encoding="utf-8").split("**Small networks.**")[1]
    networks = list(study.networks.values())
    four = study.difference("digits", "mnist", "cifar10", "pneumonia_mnist")
    means = {key: network.lost().mean() for key, network in study.networks.items()}
    cheapest, dearest = min(means, key=means.get), max(means, key=means.get)
    assert (cheapest, dearest) == (("pneumonia_mnist", "small ViT"), ("cifar10", "random features"))
    numbers = [said(study.networks[key].lost()) for key in (cheapest, dearest)]
    numbers += [said(four), said(-study.change()), said(-study.change_at_equal_fit())]
    for data in ("mnist", "cifar10"):
        large = study.networks[data, "random features"]
        numbers += [said(large.fit(1000)), said(large.lost(1000))]
    for data in ("digits", "mnist"):
        vit = study.networks[data, "small ViT"]
        numbers.append(f"{said(vit.lost())} to {said(vit.lost_when_scaled())}")
    assert [one for one in numbers if one not in text] == []
    heads = [
        fraction_of(read_table(f"{data}_{kind}_head"), 200).mean()
        for data in ("ag_news", "trec")
        for kind in ("linear", "gentle")
    ]
    texts = [study.networks[data, "MiniLM"].lost().mean() for data in ("ag_news", "trec")]
    assert f"{min(heads):.2f} to {max(heads):.2f} instead of {min(texts):.2f} to {max(texts):.2f}" in text
    lost = [network.lost().mean() for network in networks]
    ranks = [
        spearmanr([network.statistic(what).mean() for network in networks], lost).statistic
        for what in ("confidence", "overlap", "snr", "dimension")
    ]
    told = "${:.2f}$ (confidence), {:.2f} (class overlap), ${:.2f}$ (SNR) and {:.2f} ($d$)".format(*ranks)
    assert told in text
    norms = [(n.statistic("snr") * n.statistic("dimension") ** 0.5).mean() for n in networks]
    dimensions = [n.statistic("dimension").mean() for n in networks]
    assert 2 < min(norms) < max(norms) < 4
    assert (round(min(dimensions)), round(max(dimensions))) == (4, 70)


@pytest.mark.parametrize("name", ["digits", "trec_equal_confidence", "cifar10_random_features"])
def test_a_missing_table_is_named_with_the_command_that_makes_it(monkeypatch, name):
    rest = tuple(stored for stored in module.stored_tables() if stored != name)
    monkeypatch.setattr(module, "stored_tables", lambda: rest)
    with pytest.raises(FileNotFoundError, match=f"no stored table of {name}: .*attnlib real {name}$"):
        sets_study()


ETAS = np.array([0.0, 0.1, 0.2, 0.4])


def network(hits, tested=None, seeds=range(5)):
    """What `causes` finds: a network of one set, by its hits (R, 4, M) and the numbers of its test pictures (R, M)."""
    R, _, M = hits.shape
    tested = np.tile(np.arange(M), (R, 1)) if tested is None else tested
    cells = [SimpleNamespace(n=200, hits=hits[r], tested=tested[r]) for r in range(R)]
    fit = np.ones((R, 4, 1))
    name = "mnist_lite0_confidence_1"
    return SimpleNamespace(
        table=SimpleNamespace(
            name=name, cells=cells, noise_levels=tuple(ETAS), values=lambda what, n: fit, seeds=lambda n: seeds
        )
    )


def world(**lost):
    """A study whose F by seed is `lost` of "set__tokens__confidence": nobody errs without noise, the first pictures are lost with it."""
    found = {}
    for name, values in lost.items():
        data, tokens, confidence = name.split("__")
        wrong = np.array(values)[:, None, None] * ETAS[:, None] * 1000
        key = data, {"whole": WHOLE, "mixed": MIXED, "fewer": FEWER}[tokens], float(confidence)
        found[key] = network(np.arange(1000) >= wrong.round())
    return Causes(found)


def test_a_change_is_that_of_the_sets_that_have_both_but_for_the_one_on_which_it_was_found():
    base, more, other = [0.1, 0.2, 0.9, 0.3, 0.0], [0.4, 0.6, 0.9, 0.3, 0.5], [0.2, 0.0, 0.9, 0.3, 0.1]
    study = world(
        mnist__whole__1=base, mnist__whole__10=more, trec__whole__1=other, trec__whole__10=base,
        cifar10__whole__1=[0.0] * 5, cifar10__whole__10=[0.9] * 5, digits__whole__1=base,
    )  # fmt: skip
    means = np.mean(more) - np.mean(base), np.mean(base) - np.mean(other)
    assert study.change((WHOLE, 1.0), (WHOLE, 10.0)).value == pytest.approx(np.mean(means))
    assert study.change((WHOLE, 1.0), (WHOLE, 10.0), ("trec",)).value == pytest.approx(means[1])
    with pytest.raises(KeyError):
        study.change((WHOLE, 1.0), (FEWER, 1.0), ("mnist",))


def test_the_interval_of_a_change_counts_the_pictures_of_each_set():
    """Each picture of each set is left out by hand."""
    rng, sizes = np.random.default_rng(3), {"mnist": 31, "trec": 47}
    hits = {
        (data, c): rng.random((5, 4, M)) < 0.9 - 0.1 * c * ETAS[:, None] for data, M in sizes.items() for c in (1, 10)
    }
    rows = {data: np.stack([rng.permutation(60)[:M] for _ in range(5)]) for data, M in sizes.items()}
    study = Causes({(data, WHOLE, float(c)): network(h, rows[data]) for (data, c), h in hits.items()})

    def by_seed(left_out=("", -1)):
        changes = []
        for data in sizes:
            for r in range(5):
                keep = rows[data][r] != left_out[1] if data == left_out[0] else np.full(sizes[data], True)
                a = {c: hits[data, c][r][:, keep].mean(1) for c in (1, 10)}
                F = {c: (3 * a[c][0] - a[c][1:].sum()) / (0.7 * (10 * a[c][0] - 1) / 9) for c in a}
                changes.append(F[10] - F[1])
        return np.reshape(changes, (2, 5)).mean(0)

    without = np.stack([by_seed((data, k)) for data in sizes for k in range(60)], 1)
    expected, found = two_way(by_seed(), without), study.change((WHOLE, 1.0), (WHOLE, 10.0))
    assert (found.value, found.low, found.high) == pytest.approx((expected.value, expected.low, expected.high))
    assert found.high - found.value > 1.02 * draws.mean(by_seed()).high - 1.02 * found.value
    other = {**study.networks, ("trec", WHOLE, 10.0): network(hits["trec", 10], rows["trec"][::-1])}
    for wrong in (other["trec", WHOLE, 10.0], network(hits["trec", 10], rows["trec"], range(1, 6))):
        with pytest.raises(ValueError, match="same pictures, seed by seed; those of trec"):
            Causes(study.networks | {("trec", WHOLE, 10.0): wrong}).change((WHOLE, 1.0), (WHOLE, 10.0))


def test_noise_is_told_from_its_control_and_from_no_change():
    def judged(change):
        spread, names = np.linspace(-0.05, 0.05, 5), ("mnist", "pneumonia_mnist", "breast_mnist")
        raised = {f"{data}__mixed__1": 0.5 + change + spread for data in names}
        own = {f"{data}__whole__1": np.full(5, 0.5) for data in (*names, "cifar10")}
        return CAUSES["TS84"].check(world(**own, **raised, cifar10__mixed__1=0.5 - change + spread))

    assert judged(0.3).evidence.holds
    assert judged(0.3).has_power
    assert not judged(0.12).evidence.holds  # the interval begins below 0.1
    assert not judged(-0.3).evidence.holds


@pytest.mark.parametrize("id", ["TS83", "TS85"])
@pytest.mark.parametrize("end", ["value", "low", "high"])
def test_a_number_that_is_said_may_not_move(id, end, monkeypatch):
    change = Causes.change

    def moved(*given):
        found = change(*given)
        return replace(found, **{end: getattr(found, end) + 0.002})

    monkeypatch.setattr(Causes, "change", moved)
    assert CAUSES[id].check(causes()).verdict == Verdict.FAILS


def test_tables_are_found_by_what_became_of_their_tokens(tmp_path):
    document = json.loads((TABLES / "cifar10_equal_confidence.json").read_text(encoding="utf-8"))
    names = (
        "cifar10_lite0_confidence_3",
        "cifar10_lite0_20_channels_confidence_1",
        "cifar10_lite0_320_channels_confidence_1",
        "cifar10_lite0_noise_confidence_10",
    )
    for name in names:
        (tmp_path / f"{name}.json").write_text(json.dumps(document | {"name": name}))
    study = causes(tmp_path)
    others = {("cifar10", FEWER, 1), ("cifar10", "320 channels", 1), ("cifar10", MIXED, 10)}
    assert set(study.networks) == {("cifar10", WHOLE, 3), *others}
    one = study.networks["cifar10", WHOLE, 3]
    cells = [cell for cell in document["cells"] if cell["n"] == 200]
    lost = [
        sum(cell["test_accuracy"][0][-1] - row[-1] for row in cell["test_accuracy"][1:])
        / (0.7 * (10 * cell["test_accuracy"][0][-1] - 1) / 9)
        for cell in cells
    ]
    assert one.lost().tolist() == pytest.approx(lost)
    assert one.fraction().value == pytest.approx(np.mean(lost))
    ends = np.array([[row[-1] for row in cell["test_accuracy"]] for cell in cells]).mean(0)
    assert one.cost().value == pytest.approx((3 * ends[0] - ends[1] - ends[2] - ends[3]) / 0.7)
    assert one.clean().value == pytest.approx(ends[0] - (1 - ends[0]) / 9)
    assert one.above_chance().value == pytest.approx(np.mean([(10 * cell["head_only"] - 1) / 9 for cell in cells]))


def test_changes_at_equal_fit_from_the_files():
    """Where the paths of fit first pass the smaller of the two last fits; steps between records by a straight line."""
    changes = []
    for data, classes in (("mnist", 10), ("pneumonia_mnist", 2), ("breast_mnist", 2)):
        own = []
        for name in ("20_channels_confidence_1", "confidence_1"):
            cells = json.loads((TABLES / f"{data}_lite0_{name}.json").read_text("utf-8"))["cells"]
            weights = ETAS[1:] / 0.7
            fit = np.array([weights @ np.array(cell["fit_noisy"])[1:] for cell in cells])
            accuracy = np.array([cell["test_accuracy"] for cell in cells])
            own.append((fit, (3 * accuracy[:, 0, -1:] - accuracy[:, 1:].sum(1)) / 0.7, accuracy[:, 0, -1]))
        for r in range(5):
            aim = min(fit[r, -1] for fit, *_ in own)
            lost = []
            for fit, cost, _ in own:
                k = next(i for i, each in enumerate(fit[r]) if each >= aim)
                part = (aim - fit[r, k - 1]) / (fit[r, k] - fit[r, k - 1])
                lost.append(cost[r, k - 1] + part * (cost[r, k] - cost[r, k - 1]))
            u = [(classes * clean[r] - 1) / (classes - 1) for *_, clean in own]
            changes.append([lost[0] / u[0] - lost[1] / u[1], lost[0] - lost[1]])
    found = causes().change_at_equal_fit((WHOLE, 1.0), (FEWER, 1.0))
    for each, by_hand in zip(found, np.reshape(changes, (3, 5, 2)).mean(0).T, strict=True):
        expected = draws.mean(by_hand)
        assert (each.value, each.low) == pytest.approx((expected.value, expected.low))


def test_the_figure_shows_every_network_once_a_side():
    old, varied = sets_study(), causes()
    figure, (left, right) = plt.subplots(1, 2)
    draw_causes(left, right, old, varied)
    held = [one for (_, _, confidence), one in varied.networks.items() if confidence == 1]
    assert len(left.containers) == len(old.networks) + len(held)
    assert len(right.containers) == 2 * len(old.networks) + len(varied.networks)
    shown = [float(c.lines[0].get_ydata()[0]) for c in left.containers[len(old.networks) :]]
    assert shown == pytest.approx([one.lost().mean() for one in held])
    assert len(right.lines) == 3 * len(right.containers) + len({key[:2] for key in varied.networks}) + 2
    plt.close(figure)


def test_the_stored_networks_fit_their_wrong_labels_and_judge_the_claims():
    varied = causes()
    assert {key[0] for key in varied.networks} == {"cifar10", "mnist", "pneumonia_mnist", "breast_mnist"}
    half_fitted = {("mnist", FEWER, 1.0): 0.5, ("cifar10", "10 channels", 1.0): 0.88}  # the page says so
    for key, one in varied.networks.items():
        assert one.fit().mean() > 0.9 if key not in half_fitted else abs(one.fit().mean() - half_fitted[key]) < 0.02, (
            key
        )
    for claim in CAUSES.values():
        assert claim.check(varied).as_expected, claim.id
        assert claim.check(varied).has_power, claim.id
