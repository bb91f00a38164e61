"""The tables of II.9: two lines again from the stored bits by plain loops, the order of events by hand, and what the page says of both."""

import json
import re
from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from scipy import stats

from attnbook.token_selection.real_data.attention_maps import true_labels_back
from attnbook.token_selection.real_data.frozen import FrozenLastLayer
from attnbook.token_selection.real_data.tables import TABLES
from attnbook.token_selection.real_data.trial_figures import draw_order
from attnbook.token_selection.real_data.trial_study import (
    AUTHORS,
    OURS,
    range_study,
    second_backbone,
    strong,
    trial_study,
)
from attnbook.token_selection.real_data.trial_tables import (
    Course,
    as_markdown,
    changed,
    course_table,
    courses,
    runs_table,
    trial_table,
)
from tests.house import ROOT

PAGE = ROOT / "notebooks" / "token_selection" / "09_a_fair_trial.md"


@pytest.fixture(scope="module")
def study():
    return trial_study()


def cells_of(name, n=200):
    return [cell for cell in json.loads((TABLES / f"{name}.json").read_text("utf-8"))["cells"] if cell["n"] == n]


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


def test_the_table_has_a_line_for_each_set_and_way_and_takes_no_two_kinds_of_noise(study):
    shown = [one for one in strong(study) if one.n == 200]
    lines, _ = trial_table(shown)
    assert len({line[:2] for line in lines}) == len(lines)
    assert len([line for line in lines if "," not in line[0]]) == 12  # the usual networks
    assert trial_table([one for one in study if one.n == 1000][:1])[0][0][0] == "MNIST, n = 1000"
    other = replace(shown[0], table=replace(shown[0].table, noise_levels=(0.0, 0.05, 0.1, 0.2)))
    with pytest.raises(ValueError, match=r"rows must have the same noise levels; got \[\(0.0, 0.05"):
        trial_table([shown[1], other])
    assert "F, η ≤ 0.2" not in trial_table([other])[1]


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


# --- the order of events


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
    late = replace(late, row=type("Row", (), {"label": "a network"}))
    with pytest.raises(ValueError, match=r"a course must be fitted before its last step; a network, eta = 0.2 is not"):
        late.after()


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


def test_what_the_page_says_of_the_order_of_events(study):
    found = courses(study)
    page = PAGE.read_text("utf-8")
    said = page.split("**On pretrained networks**")[1].split("\n\n")[0]
    own = {way: [one for one in found if one.row.way == way] for way in (OURS, AUTHORS)}
    assert len(own[AUTHORS]) == sum(one.memorised() is not None for one in own[AUTHORS]) == 30
    ups, downs = changed(own[AUTHORS])
    assert f"Of {len(own[AUTHORS])} changes after memorising in the authors' way {len(ups)} are rises" in said.replace(
        "three", "3"
    )
    assert f"{len(downs)} are falls" in said
    assert {one.row.data for one in ups} == {"mnist"}
    assert changed(own[AUTHORS], left=True) == ([], [])
    (left,), fallen = changed(found, left=True)
    assert fallen == []
    assert (left.row.data, left.row.way, left.row.n, left.eta) == ("mnist", OURS, 200, 0.2)
    # by hand, from the files: the rise that the page names, and how far below the clean twin the first stage ends
    changes = []
    for cell in cells_of("mnist_lite0_authors", 1000):
        changes.append(100 * (cell["test_accuracy"][2][-1] - cell["test_accuracy"][2][cell["recorded"].index(10_000)]))
    half = stats.t.ppf(0.975, 4) * np.std(changes, ddof=1) / 5**0.5
    assert rf"${np.mean(changes):.1f}\pm{half:.1f}$ points" in said
    lines, heads = course_table(own[AUTHORS])
    assert len(lines) == 10
    table = [dict(zip(heads, line, strict=True)) for line in lines]
    best = {(one["data"], one["n"]): one["best with fit < 0.1"] for one in table}
    assert [key for key, value in best.items() if not value] == [("BreastMNIST", "200")]
    assert best["MNIST", "1000"] == "96.3 (1000)"
    assert best["TREC", "1000"] == "94.3 (3000)"
    behind = [
        float(one["clean twin, end"]) - float(one["best with fit < 0.1"].split()[0])
        for one in table
        if one["best with fit < 0.1"]
    ]
    assert max(behind) < int(re.search(r"within (\d) points of its clean twin's", said)[1])


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


@pytest.mark.parametrize("rows", [range_study, second_backbone])
def test_rows_that_the_page_holds_as_text_are_those_of_the_stored_tables(rows):
    found, page = rows(), PAGE.read_text("utf-8")
    if found:
        assert as_markdown(found) in page, (
            "put the result of trial_tables.as_markdown into II.9, and read the text around it again"
        )


def test_lines_of_text_say_what_the_cells_say(study):
    rows = [one for one in strong(study) if one.n == 200][:2]
    cells, heads = trial_table(rows)
    text = as_markdown(rows).replace("$", "").replace("\\pm", " ± ").splitlines()
    assert [[cell.strip() for cell in line.strip("|").split("|")] for line in (text[0], *text[2:])] == [
        heads,
        *map(list, cells),
    ]
