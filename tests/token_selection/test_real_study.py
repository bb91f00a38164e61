"""What II.9 reads and shows, again from the single numbers and bits of the stored files by plain loops."""

import json

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from scipy import stats

from attnbook import draws
from attnbook.token_selection.real_data.attention_maps import stored_maps, true_labels_back
from attnbook.token_selection.real_data.frozen import FrozenLastLayer
from attnbook.token_selection.real_data.loaders import DATA_SETS
from attnbook.token_selection.real_data.plans import PLANS
from attnbook.token_selection.real_data.shown import (
    Course,
    changed,
    course_table,
    courses,
    draw_causes,
    draw_maps,
    draw_order,
    draw_sets,
    runs_table,
    trial_table,
)
from attnbook.token_selection.real_data.study import (
    AUTHORS,
    FEWER,
    MIXED,
    OURS,
    SETS,
    WHOLE,
    causes,
    published_fraction,
    range_study,
    second_backbone,
    sets_study,
    strong,
    trial_study,
)
from attnbook.token_selection.real_data.tables import TABLES

CLASSES = {"pneumonia_mnist": 2, "breast_mnist": 2, "ag_news": 4, "trec": 6}  # the others have ten


def cells_of(name, n=200):
    return [cell for cell in json.loads((TABLES / f"{name}.json").read_text("utf-8"))["cells"] if cell["n"] == n]


# --- Small networks, and one varied ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sets():
    return sets_study()


def test_every_set_and_backbone_is_there(sets):
    pictures = [name for name in SETS if DATA_SETS[name].kind == "image"]
    texts = {("ag_news", "MiniLM"), ("trec", "MiniLM")}
    assert set(sets.networks) == {(d, b) for d in pictures for b in ("small ViT", "random features")} | texts
    assert sets.pictures == tuple(pictures)
    for network in sets.networks.values():
        assert network.scaled.settings["phase1"]["confidence"] == 1
        for table in (network.table, network.scaled):  # seeds are paired by their place
            assert all(table.seeds(n) == tuple(range(max(5, len(table.seeds(n))))) for n in table.sizes)


@pytest.mark.parametrize("name", ["cifar10_random_features", "trec", "breast_mnist"])
def test_fraction_and_fit_are_those_of_the_file(sets, name):
    data = PLANS[name].data or name
    network = next(n for n in sets.networks.values() if n.table.name == name)
    cells, classes = cells_of(name), CLASSES.get(data, 10)
    for cell, fraction, fit in zip(cells, network.lost(200), network.fit(200), strict=True):
        final = [path[-1] for path in cell["test_accuracy"]]
        above_chance = final[0] - (1 - final[0]) / (classes - 1)
        lost = sum(final[0] - accuracy for accuracy in final[1:])
        assert fraction == pytest.approx(lost / (0.7 * above_chance))
        memorised = [m * path[-1] for m, path in zip((20, 40, 80), cell["fit_noisy"][1:], strict=True)]
        assert fit == pytest.approx(sum(memorised) / 140)


def test_published_fractions_by_hand():
    assert published_fraction("digits", 200) is None
    assert published_fraction("breast_mnist", 1000) is None
    found = published_fraction("ag_news", 200)  # 85.9 +- 0.5 and 77.8 +- 0.6, four classes, three seeds
    unit = 0.2 * (85.9 - 14.1 / 3)
    assert found.value == pytest.approx(8.1 / unit)
    assert found.high - found.value == pytest.approx(4.302653 * ((0.25 + 0.36) / 3) ** 0.5 / unit, rel=1e-6)
    assert found.value - found.low == pytest.approx(found.high - found.value)


def test_differences_are_paired_by_seed(sets):
    vit, random = (sets.networks["breast_mnist", b] for b in ("small ViT", "random features"))
    assert len(sets.difference("breast_mnist")) == 20
    np.testing.assert_allclose(sets.difference("breast_mnist"), random.lost() - vit.lost())
    both = sets.difference("breast_mnist", "digits")
    assert len(both) == 5
    digits = sets.networks["digits", "random features"].lost() - sets.networks["digits", "small ViT"].lost()
    np.testing.assert_allclose(both, (digits + (random.lost() - vit.lost())[:5]) / 2)
    change = [network.lost_when_scaled()[3] - network.lost()[3] for network in sets.networks.values()]
    assert sets.change()[3] == pytest.approx(sum(change) / 12)


def test_tables_are_found_by_what_became_of_their_tokens():
    networks, lost = causes().networks, []
    names = {(WHOLE, 3): "", (FEWER, 1): "_20_channels", ("320 channels", 1): "_320_channels", (MIXED, 10): "_noise"}
    for (tokens, confidence), end in names.items():
        one = networks["cifar10", tokens, confidence]
        assert one.table.name == f"cifar10_lite0{end}_confidence_{confidence}"
    for cell in cells_of(one.table.name):
        a = [path[-1] for path in cell["test_accuracy"]]
        lost.append((3 * a[0] - sum(a[1:])) / (0.7 * (10 * a[0] - 1) / 9))
    assert one.lost().tolist() == pytest.approx(lost)
    above = [(10 * cell["head_only"] - 1) / 9 for cell in cells_of(one.table.name)]
    assert one.above_chance().value == pytest.approx(np.mean(above))


def test_changes_at_equal_fit_from_the_files():
    """Where the paths of fit first pass the smaller of the two last fits; steps between records by a straight line."""
    changes = []
    for data, classes in (("mnist", 10), ("pneumonia_mnist", 2), ("breast_mnist", 2)):
        own = []
        for name in ("20_channels_confidence_1", "confidence_1"):
            cells = cells_of(f"{data}_lite0_{name}")
            weights = np.array([0.1, 0.2, 0.4]) / 0.7
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


# --- Rows of the trial ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def study():
    return trial_study()


def test_fractions_fits_and_accuracies_come_from_the_files(study):
    """F, fit and the clean accuracy of each row again, from the single numbers of the JSON files."""
    for row in (*study, *range_study(), *second_backbone()):
        eta = row.table.noise_levels[1:]
        cells, classes, fractions = cells_of(row.table.name, row.n), CLASSES.get(row.data, 10), []
        for cell in cells:
            clean, *noisy = (path[-1] for path in cell["test_accuracy"])
            fractions.append((3 * clean - sum(noisy)) / (sum(eta) * (clean - (1 - clean) / (classes - 1))))
        fit = [sum(e * path[-1] for e, path in zip(eta, c["fit_noisy"][1:], strict=True)) / sum(eta) for c in cells]
        if np.isfinite(row.judged.fraction.value):
            assert row.judged.fraction.value == pytest.approx(np.mean(fractions), abs=1e-4)
        assert row.judged.fit.value == pytest.approx(np.mean(fit), abs=1e-4)
        assert row.percent("test_accuracy") == pytest.approx(100 * row.judged.clean, abs=1e-3)
        assert row.percent("head_only") == pytest.approx(100 * np.mean([c["head_only"] for c in cells]))
        assert row.seconds == pytest.approx(sum(c["seconds"] for c in cells))
        assert (row.way == AUTHORS) == (PLANS[row.table.name].batch[row.n] == 16)


def by_hand(name, kept, classes):
    """Accuracies in per cent, F and half its interval at the noise levels of the indices `kept`, from the bits of single test samples."""
    eta, right, places = [0.0, 0.1, 0.2, 0.4], [], []
    for cell in cells_of(name):
        bits = [bin(int("1" + digits, 16))[3:] for digits in (cell["tested"], *cell["hits"])]
        places.append([k for k, bit in enumerate(bits[0]) if bit == "1"])
        right.append([[int(bit) for bit in row[: len(places[-1])]] for row in bits[1:]])

    def fraction(a):
        return sum(a[0] - a[e] for e in kept) / (sum(eta[e] for e in kept) * (classes * a[0] - 1) / (classes - 1))

    R = len(right)
    accuracy = [[sum(row) / len(row) for row in seed] for seed in right]
    F = [fraction(a) for a in accuracy]
    moved = {}  # picture -> by seed, how far F of the seed moves without it
    for r, (seed, own) in enumerate(zip(right, places, strict=True)):
        for m, place in enumerate(own):
            left = [(sum(row) - row[m]) / (len(row) - 1) for row in (seed[e] for e in (0, *kept))]
            moved.setdefault(place, []).append((fraction(dict(zip((0, *kept), left, strict=True))) - F[r]) / R)
    seeds = np.var(F, ddof=1) / R
    pictures, both = sum(sum(own) ** 2 for own in moved.values()), sum(x * x for own in moved.values() for x in own)
    variance = max(seeds + pictures - both, seeds, pictures)
    half = stats.t.ppf(0.975, (R - 1) * (variance / seeds) ** 2) * variance**0.5
    return 100 * np.mean(accuracy, 0), f"{np.mean(F):.2f} ± {half:.2f}"


@pytest.mark.parametrize(
    ("name", "data", "way", "classes"),
    [("cifar10_lite0", "CIFAR-10", OURS, 10), ("pneumonia_mnist_lite0_authors", "PneumoniaMNIST", AUTHORS, 2)],
)
def test_a_line_of_the_table_is_what_the_stored_bits_say(study, name, data, way, classes):
    lines, heads = trial_table([one for one in strong(study) if one.n == 200])
    (line,) = [dict(zip(heads, one, strict=True)) for one in lines if one[:2] == (data, way)]
    accuracy, F = by_hand(name, (1, 2, 3), classes)
    assert [line[f"η = {eta}"] for eta in ("0", "0.1", "0.2", "0.4")] == [f"{one:.1f}" for one in accuracy]
    assert line["F"] == F
    assert line["F, η ≤ 0.2"] == by_hand(name, (1, 2), classes)[1]
    fit, heads_lost = [], []
    for cell in cells_of(name):
        fit.append(sum(w * path[-1] for w, path in zip((1, 2, 4), cell["fit_noisy"][1:], strict=True)) / 7)
        a = cell["linear_head"]
        heads_lost.append((3 * a[0] - sum(a[1:])) / (0.7 * (classes * a[0] - 1) / (classes - 1)))
    half = stats.t.ppf(0.975, len(heads_lost) - 1) * np.std(heads_lost, ddof=1) / len(heads_lost) ** 0.5
    assert line["F, linear head"] == f"{np.mean(heads_lost):.2f} ± {half:.2f}"
    assert line["fit"] == f"{np.mean(fit):.2f}"
    assert line["outcome"] == "tempered"


def test_the_table_has_a_line_for_each_set_and_way(study):
    shown = [one for one in strong(study) if one.n == 200]
    lines, _ = trial_table(shown)
    assert len({line[:2] for line in lines}) == len(lines)
    assert len([line for line in lines if "," not in line[0]]) == 12  # the usual networks
    assert trial_table([one for one in study if one.n == 1000][:1])[0][0][0] == "MNIST, n = 1000"


def test_flipped_labels_are_counted(study):
    lines, heads = runs_table(strong(study))
    assert len(lines) >= 18
    for line in (dict(zip(heads, one, strict=True)) for one in lines):
        n, cells = int(line["n"]), cells_of(line["table"], int(line["n"]))
        flipped = [round(eta * n) for eta in (0.1, 0.2, 0.4)]
        memorised = sum(round(path[-1] * m) for c in cells for path, m in zip(c["fit_noisy"][1:], flipped, strict=True))
        total = len(cells) * sum(flipped)
        assert line["memorised"] == f"{memorised} of {total}"
        assert all(
            cell["fit_clean"][0][-1] == 1 for cell in cells
        )  # the twin, whose labels are all true, fits them all
        assert line["true label back"] == f"{total} of {total}"


def test_a_sample_of_which_the_twin_errs_is_not_counted_as_given_back(study):
    row = next(one for one in study if one.table.name == "ag_news_mpnet" and one.n == 1000)
    errs = [1000 * (1 - cell["fit_clean"][0][-1]) for cell in cells_of("ag_news_mpnet", 1000)]
    assert sum(errs) == pytest.approx(1)
    assert row.flipped_labels()[1:] == (3500 - 3, 3500)  # it may be flipped at each of three levels


def test_only_flipped_samples_are_given_other_attention():
    """Two tokens that say class 0 and class 1: the twin looks at the true one, the other network at the label's."""
    token = torch.eye(2).repeat(4, 1, 1)
    layer = FrozenLastLayer(token, token, token[:, 0], None, 1, lambda attended, _: attended)
    true, wrong = torch.tensor([0, 1, 0, 1]), torch.tensor([True, True, False, True])
    look = torch.eye(2)[:, None]
    attention = torch.stack([look[true], look[torch.where(wrong, 1 - true, true)]])
    assert true_labels_back(layer, attention, true, wrong).tolist() == [True] * 3
    assert true_labels_back(layer, attention, true, wrong, by=1).tolist() == [
        False,
        True,
        False,
    ]  # 0 of 1, 1 of 1, 1 of 0
    attention[0, 1] = attention[1, 1]  # the twin errs, too
    assert true_labels_back(layer, attention, true, wrong).tolist() == [True, False, True]


# --- The order of events --------------------------------------------------------------------------------------------------


def course(accuracy, fit, twin=None, row=None):
    accuracy = np.asarray(accuracy, dtype=float)
    return Course(row, 0.2, tuple(range(len(fit))), accuracy, accuracy if twin is None else twin, np.array(fit))


def test_stages_of_a_course_are_where_fit_and_accuracy_say():
    one = course([[0.5, 0.7, 0.6, 0.4, 0.5], [0.5, 0.9, 0.6, 0.4, 0.6]], [0.0, 0.05, 0.5, 0.9, 1.0])
    assert (one.before(), one.memorised()) == (1, 3)
    assert one.after().value == pytest.approx(15)
    half = stats.t.ppf(0.975, 1) * 5 * 2**0.5 / 2**0.5
    assert one.after().high - one.after().value == pytest.approx(half)
    late = course([[0.5, 0.7]], [0.3, 0.95])
    assert (late.before(), late.memorised()) == (None, None)  # nothing comes after


def test_what_is_left_of_many_comparisons():
    """Holm's steps by hand: of four, p = 0.002 and 0.016 are left (below 0.05/4 and 0.05/3), 0.03 is not (above 0.05/2)."""
    spread = np.array([-1, 0, 0, 0, 1]) / 100

    def rise(p, sign=1):
        t = stats.t.ppf(1 - p / 2, 4)
        end = 0.5 + sign * t * np.std(spread, ddof=1) / 5**0.5 + spread
        return course(np.stack([np.full(5, 0.5), end], 1), [1.0, 1.0])

    all_ = [rise(0.03), rise(0.016, -1), rise(0.4), rise(0.002)]
    assert changed(all_) == ([all_[0], all_[3]], [all_[1]])
    assert changed(all_, left=True) == ([all_[3]], [all_[1]])
    never = course([[0.5, 0.7]] * 5, [0.1, 0.2])  # counts as no comparison
    assert changed([rise(0.04), never], left=True)[0]
    assert changed([rise(0.04), rise(0.5)], left=True) == ([], [])


def test_the_picture_of_the_order_shows_each_stage(study):
    own = [one for one in courses(study) if one.row.way == AUTHORS]
    figure, axes = plt.subplots()
    draw_order(axes, own)
    marks = {m: [float(p.get_xdata()[0]) for p in axes.lines if p.get_marker() == m] for m in "osD|"}
    table = [dict(zip(course_table(own)[1], line, strict=True)) for line in course_table(own)[0]]
    heads = ("best with fit < 0.1", "fit ≥ 0.9", "end", "clean twin, end")
    for mark, head in zip("osD|", heads, strict=True):
        assert [f"{x:.1f}" for x in marks[mark]] == [line[head].split()[0] for line in table if line[head]]
    said = [text.get_text().replace("\N{MINUS SIGN}", "-").lstrip("+") for text in axes.texts]
    assert said[: len(table)] == [line["change after, η = 0.2"].lstrip("+") for line in table]
    plt.close(figure)


def test_the_pictures_show_each_set_and_each_cell(study):
    figure, (axes, tiles) = plt.subplots(1, 2)
    draw_sets(axes, study)
    marks = [line for line in axes.lines if len(line.get_xdata()) == 1]
    by_mark = {m: sorted(float(p.get_xdata()[0]) for p in marks if p.get_marker() == m) for m in "oD^s"}
    assert {m: len(found) for m, found in by_mark.items()} == dict.fromkeys("oD^s", 6)
    ours = [one for one in strong(study) if one.n == 200 and one.way == OURS]
    assert by_mark["o"] == pytest.approx(sorted(one.judged.fraction.value for one in ours))
    assert by_mark["^"] == pytest.approx(sorted(one.linear_head().mean() for one in ours))
    maps = stored_maps()["cifar10"]
    draw_maps(tiles, maps, [str(k) for k in range(10)])
    assert len(tiles.images) == len(tiles.collections) == 9
    sizes = tiles.collections[1].get_sizes().reshape(7, 7)  # the first flipped sample
    assert np.corrcoef(sizes.ravel(), maps.attention[0, 1].ravel())[0, 1] == pytest.approx(1)
    plt.close(figure)
