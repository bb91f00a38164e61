"""The trial of strong backbones: rows from the stored files by plain loops, the claims in worlds where they hold, the picture."""

import json
from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import pytest
from scipy import stats

from attnbook.draws import Estimate
from attnbook.token_selection.real_data.plans import PLANS
from attnbook.token_selection.real_data.sets_study import SETS
from attnbook.token_selection.real_data.tables import TABLES
from attnbook.token_selection.real_data.trial_claims import CLAIMS
from attnbook.token_selection.real_data.trial_figures import draw_trial
from attnbook.token_selection.real_data.trial_study import AUTHORS, OURS, strong, trained_here, trial_study
from bookkit.claims import Verdict
from tests.house import ROOT


@pytest.fixture(scope="module")
def study():
    return trial_study()


def test_fractions_fits_and_accuracies_come_from_the_files(study):
    """F, fit and the clean accuracy of each row again, from the single numbers of the JSON files."""
    for row in study:
        cells = [
            c for c in json.loads((TABLES / f"{row.table.name}.json").read_text("utf-8"))["cells"] if c["n"] == row.n
        ]
        classes, fractions = {"digits": 10, "mnist": 10, "cifar10": 10, "trec": 6, "ag_news": 4}.get(row.data, 2), []
        for cell in cells:
            clean, *noisy = (path[-1] for path in cell["test_accuracy"])
            fractions.append((3 * clean - sum(noisy)) / (0.7 * (clean - (1 - clean) / (classes - 1))))
        fit = [(c["fit_noisy"][1][-1] + 2 * c["fit_noisy"][2][-1] + 4 * c["fit_noisy"][3][-1]) / 7 for c in cells]
        if np.isfinite(row.judged.fraction.value):
            assert row.judged.fraction.value == pytest.approx(np.mean(fractions), abs=1e-4), row.label
        assert row.judged.fit.value == pytest.approx(np.mean(fit), abs=1e-4)
        assert row.percent("test_accuracy") == pytest.approx(100 * row.judged.clean, abs=1e-3)
        assert row.percent("head_only") == pytest.approx(100 * np.mean([c["head_only"] for c in cells]))
        assert row.seconds == pytest.approx(sum(c["seconds"] for c in cells))
        assert (row.way == AUTHORS) == (PLANS[row.table.name].batch[row.n] == 16)


@pytest.mark.parametrize("name", ["cifar10_lite0", "mnist_lite0", "ag_news_mpnet", "trec_mpnet"])
def test_what_the_page_says_at_the_noise_of_the_published_runs(name):
    """F at eta = 0.2 alone; its interval from seeds, pictures left out and what both have in common, by hand."""
    cells = [c for c in json.loads((TABLES / f"{name}.json").read_text("utf-8"))["cells"] if c["n"] == 200]
    classes = {"trec": 6, "ag_news": 4}.get(name.removesuffix("_mpnet"), 10)
    fractions, moved = [], np.zeros((5, 10_000))
    for r, cell in enumerate(cells):
        tested, clean, _, noisy, _ = (
            np.unpackbits(np.frombuffer(bytes.fromhex(x), np.uint8)) for x in (cell["tested"], *cell["hits"])
        )
        rows = np.flatnonzero(tested)
        hits = np.stack([clean, noisy])[:, : len(rows)].astype(int)

        def fraction(a):
            return (a[0] - a[1]) / (0.2 * (a[0] - (1 - a[0]) / (classes - 1)))

        fractions.append(fraction(hits.mean(1)))
        left_out = (hits.sum(1, keepdims=True) - hits) / (len(rows) - 1)
        moved[r, rows] = (fraction(left_out) - fractions[-1]) / 5
    seeds, pictures, both = np.var(fractions, ddof=1) / 5, (moved.sum(0) ** 2).sum(), (moved**2).sum()
    variance = max(seeds + pictures - both, seeds, pictures)
    half = stats.t.ppf(0.975, 4 * (variance / seeds) ** 2) * variance**0.5
    said = rf"${np.mean(fractions):.2f}\pm{half:.2f}$ on "
    page = (ROOT / "notebooks" / "token_selection" / "09_a_fair_trial.md").read_text("utf-8")
    assert said in page.split("*Beside the published runs*")[1].split("theirs")[0], said


def test_what_the_page_says_of_both_ways_and_of_all_rows(study):
    """Its table, that the two ways' intervals overlap on each set, and that no row is benign or as without wrong labels."""
    page = (ROOT / "notebooks" / "token_selection" / "09_a_fair_trial.md").read_text("utf-8")
    lows = {}
    for data in ("mnist", "cifar10", "pneumonia_mnist", "breast_mnist", "ag_news", "trec"):
        rows = [one for one in study if one.data == data and one.n == 200 and one.backbone != "small ViT"]
        ours, authors = (next(one.judged for one in rows if one.way == way) for way in (OURS, AUTHORS))
        found = [one.fraction for one in (ours, authors)]
        said = " | ".join(rf"${one.value:.2f}\pm{one.high - one.value:.2f}$" for one in found)
        assert f"| {said} | {ours.outcome}" in page, said
        if data == "pneumonia_mnist":
            assert (ours.outcome, authors.outcome) == ("not decided", "tempered")
            assert f"authors' interval ends at {found[1].high:.2f} and ours at {found[0].high:.2f}" in page
        else:
            assert ours.outcome == authors.outcome
        assert max(one.low for one in found) < min(one.high for one in found)
        lows[data] = [f"{one.low:.3f}" for one in found]
    assert "lower ends of {} and {}".format(*lows["ag_news"]) in page
    more = page.split("*With more samples*")[1].split("\n")[0]
    for one in (one for one in study if one.n == 1000):
        found, fit = one.judged.fraction, one.judged.fit
        if one.judged.outcome == "tempered":
            assert rf"${found.value:.2f}\pm{found.high - found.value:.2f}$" in more, one.label
        else:  # only the texts, our way, and because their wrong labels are not fitted
            assert (one.way, one.backbone, fit.high < 0.9) == (OURS, "MPNet", True)
            assert f"{fit.value:.2f} ({SETS[one.data]})" in more
    assert not any(one.judged.outcome == "benign" or one.judged.as_without for one in study)


def with_fraction(row, value, half, fit=1.0):
    found = Estimate(value, value - half, value + half)
    return replace(row, judged=replace(row.judged, fraction=found, fit=Estimate(fit, fit, fit)))


@pytest.mark.parametrize(
    ("rows", "verdict"),
    [
        ([(0.15, 0.05)], Verdict.HOLDS),
        ([(0.10, 0.20), (0.15, 0.05)], Verdict.HOLDS),  # the second is benign, although the first is less
        ([(0.35, 0.05), (0.9, 0.05)], Verdict.FAILS),
        ([(0.30, 0.02), (0.40, 0.20)], Verdict.OUTSIDE),  # the second lies on both sides of a quarter
        ([(0.15, 0.05, 0.8)], Verdict.OUTSIDE),  # harmless, and nothing memorised
        ([(0.15, 0.05, 0.8), (0.35, 0.05)], Verdict.FAILS),
    ],
)
def test_a_claim_holds_in_one_benign_row_and_fails_if_all_lie_above(study, rows, verdict):
    row, small = (
        next(one for one in study if one.data == "cifar10" and one.way == OURS),
        next(one for one in study if one.backbone == "small ViT"),
    )
    world = [with_fraction(row, *each) for each in rows] + [with_fraction(replace(small, data="cifar10"), 0.1, 0.01)]
    assert strong(world, "cifar10") == tuple(one for one in world[:-1] if one.judged.fit.low > 0.9)
    assert CLAIMS["TS92"].check(world).verdict == verdict
    assert CLAIMS["TS91"].check(world).verdict == Verdict.OUTSIDE  # no row of MNIST


def test_a_cell_that_is_not_stored_is_named():
    with pytest.raises(KeyError, match=r"digits_authors has no finished run of seed 77 at n = 20: finished are \(0, 1"):
        trained_here("digits_authors", 20, 77)


def test_the_picture_has_a_line_for_each_row_and_says_what_is_not_fitted(study):
    row = next(one for one in study if one.data == "cifar10")
    world = (with_fraction(row, 0.3, 0.1), with_fraction(row, 5.0, 9.0, fit=0.5))
    figure, axes = plt.subplots()
    draw_trial(axes, world, limits=(-0.5, 2.0))
    bars = [line for line in axes.lines if line.get_marker() in ("None", "") and len(line.get_xdata()) == 2]
    points = [line for line in axes.lines if len(line.get_xdata()) == 1]
    assert [*bars[0].get_xdata()] == pytest.approx([0.2, 0.4])
    assert [*bars[1].get_xdata()] == [-0.5, 2.0]  # cut
    assert [p.get_markerfacecolor() == "white" for p in points[:2]] == [False, True]
    assert len(points) == len(axes.get_yticks()) == 2 + len({row.n} & {20, 200, 1000})
    plt.close(figure)
