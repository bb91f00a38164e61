"""A fair trial: known worlds get their word and its interval covers; rows from the stored files by plain loops, claims, the picture."""

import hashlib
import json
import re
from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import pytest
from scipy import stats

from attnbook.draws import Estimate, mean
from attnbook.token_selection.real_data import trial
from attnbook.token_selection.real_data.attention_maps import stored_maps
from attnbook.token_selection.real_data.plans import PLANS
from attnbook.token_selection.real_data.sets_study import SETS, published_fraction
from attnbook.token_selection.real_data.setups import split_indices
from attnbook.token_selection.real_data.tables import TABLES, stored_tables
from attnbook.token_selection.real_data.trial import Trial, judge, two_way
from attnbook.token_selection.real_data.trial_claims import CLAIMS
from attnbook.token_selection.real_data.trial_figures import draw_maps, draw_sets
from attnbook.token_selection.real_data.trial_study import (
    AUTHORS,
    LITE2_NAMES,
    OURS,
    RANGE_NAMES,
    range_study,
    second_backbone,
    strong,
    trained_here,
    trial_study,
)
from bookkit.claims import Verdict
from tests.bad_input import refusing_changes
from tests.house import ROOT

LEVELS = (0.0, 0.1, 0.2, 0.4)


def world(copied, *, seed=0, seeds=5, pictures=600, classes=10, right=0.9, fit=0.97, shared=True, hard=0.0):
    """A network that replaces its answer, with probability eta `copied`, by another class: its fraction of copying is `copied`.

    hard: how far copying belongs to some pictures in every seed (0: to none; 1: to one half of them alone).
    """
    rng = np.random.default_rng(seed)
    rows = np.stack([rng.permutation(pictures if shared else 4 * pictures)[:pictures] for _ in range(seeds)])
    easy, soft = rng.beta(9, 1, 4 * pictures) * right / 0.9, 1 + hard * rng.choice([-1, 1], 4 * pictures)
    hits = np.empty((seeds, len(LEVELS), pictures), dtype=bool)
    for r, own in enumerate(rows):
        for e, eta in enumerate(LEVELS):
            answer = rng.random(pictures) < easy[own]
            replaced = rng.random(pictures) < eta * copied * soft[own]
            hits[r, e] = np.where(replaced, ~answer & (rng.random(pictures) < 1 / (classes - 1)), answer)
    fitted = np.clip(rng.normal(fit, 0.01, (seeds, len(LEVELS) - 1)), 0, 1)
    return Trial(hits, rows, fitted, LEVELS, classes)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize(
    ("copied", "outcome"), [(0.0, "benign"), (0.5, "tempered"), (1.0, "harmful"), (0.25, "not decided")]
)
def test_known_worlds_get_their_word(copied, outcome, shared):
    for seed in range(5):
        found = judge(world(copied, seed=seed, pictures=1500, shared=shared))
        assert found.outcome == outcome
        assert found.outcome in trial.OUTCOMES
        assert bool(found.because) == (outcome == "not decided")
        assert abs(found.fraction.value - copied) < 0.1
        assert copied == 0 or not found.as_without  # 15 % lost at eta = 0.4 is seen


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"fit": 0.8}, "0.9 of the wrong labels must be memorised; 0.80 "),
        ({"right": 0.5}, "the network is right on 0.4. of the test pictures"),
        ({"right": 0.02}, "the network is right on 0.0. of the test pictures"),
        ({"pictures": 40}, "on both sides of a border"),
    ],
)
def test_a_harmless_network_is_not_called_benign_where_the_trial_was_not_fair(settings, reason):
    found = judge(world(0.0, **settings))
    assert found.outcome == "not decided"
    assert re.search(reason, found.because)


def test_the_interval_covers_where_that_over_seeds_does_not():
    found, over_seeds = np.zeros(400, dtype=bool), np.zeros(400, dtype=bool)
    for seed in range(len(found)):
        one = world(0.6, seed=seed, pictures=100, classes=3, hard=1.0)
        by_seed = trial.fraction_of_copying(one.accuracy, LEVELS, 3)
        for covered, interval in ((found, judge(one).fraction), (over_seeds, mean(by_seed))):
            covered[seed] = interval.low < 0.6 < interval.high
    assert 0.92 < found.mean() < 0.995  # 0.95 with a standard deviation of 0.011
    assert over_seeds.mean() < found.mean() - 0.02


def test_leaving_out_by_hand():
    one = world(0.5, seeds=5, pictures=12, shared=False, right=0.95)
    pictures = np.unique(one.rows)

    def by_seed(left=None):
        found = []
        for hits, rows in zip(one.hits, one.rows, strict=True):
            a = [row[rows != left].mean() for row in hits]
            u = a[0] - (1 - a[0]) / 9
            found.append(sum(a[0] - b for b in a[1:]) / (0.7 * u))
        return np.array(found)

    whole, without = by_seed(), np.stack([by_seed(left) for left in pictures], 1)
    np.testing.assert_allclose(trial.fraction_of_copying(one.accuracy, LEVELS, 10), whole, rtol=0, atol=1e-12)
    got = trial.fraction_of_copying(trial.without_each_picture(one), LEVELS, 10)
    np.testing.assert_allclose(got, without, rtol=0, atol=1e-12)
    seeds = 4 / 5 * sum((np.delete(whole, r).mean() - whole.mean()) ** 2 for r in range(5))
    pictures_ = sum((w.mean() - whole.mean()) ** 2 for w in without.T)
    both = sum(((w - f) / 5) ** 2 for row, f in zip(without, whole, strict=True) for w in row)
    variance = max(seeds + pictures_ - both, seeds, pictures_)
    interval = two_way(whole, without)
    assert interval.value == pytest.approx(whole.mean())
    assert interval.high - interval.value >= 1.95 * variance**0.5
    assert interval.high - interval.value <= 2.7765 * variance**0.5  # Student's for 4 degrees, the fewest


def test_pictures_that_no_two_seeds_share_leave_the_interval_over_seeds():
    by_seed = np.array([0.1, 0.3, 0.4, 0.6, 0.9])
    moved = np.zeros((5, 50))
    for r in range(5):
        moved[r, 10 * r : 10 * r + 10] = np.linspace(-0.05, 0.05, 10)
    got, want = two_way(by_seed, by_seed[:, None] + moved), mean(by_seed)
    assert (got.value, got.low, got.high) == pytest.approx((want.value, want.low, want.high), abs=1e-9)


test_bad_tables = refusing_changes(
    Trial,
    {
        "noise_levels": LEVELS,
        "classes": 10,
        "hits": np.zeros((5, 4, 9), bool),
        "rows": np.tile(np.arange(9), (5, 1)),
        "fit": np.ones((5, 3)),
    },
    ({"noise_levels": (0.1, 0.2)}, "noise_levels must rise from 0"),
    ({"hits": np.zeros((5, 3, 9), bool)}, r"hits must be bool of shape \(seeds, 4 noise levels, pictures\)"),
    ({"hits": np.zeros((5, 4, 9))}, "hits must be bool"),
    ({"hits": np.zeros((4, 4, 9), bool)}, "hits must have 5 seeds or more; got 4: run"),
    ({"rows": np.zeros((5, 9), int)}, "rows must name each picture of a seed once"),
    ({"rows": np.zeros((5, 8), int)}, r"rows must have shape \(5, 9\)"),
    ({"fit": np.full((5, 3), np.nan)}, r"fit must lie in \[0, 1\]"),
)


def test_the_page_says_what_was_fixed():
    page = (ROOT / "notebooks" / "token_selection" / "09_a_fair_trial.md").read_text(encoding="utf-8")
    said = re.search(r"## A rule fixed before its tables.*?\n## ", page, re.S)[0]
    assert trial.FIXED in said
    numbers = {trial.FITTED, trial.UNHARMED, trial.COPIED, trial.CLEAR, 0.1, 0.2, 0.4}
    assert {float(number) for number in re.findall(r"0\.\d+", said)} == numbers


@pytest.mark.parametrize("name", [name for name in (*RANGE_NAMES, *LITE2_NAMES) if name in stored_tables()])
def test_rows_of_a_new_table_are_drawn_again(name):
    """A cheap part of it, without the files: which rows of phase 1, pool and test set its seeds drew, from the counts alone."""
    document, plan = json.loads((TABLES / f"{name}.json").read_text("utf-8")), PLANS[name]
    counts = document["settings"]["rows"]
    for cell in document["cells"]:
        drawn = [*split_indices(counts[plan.official], (plan.phase1, plan.pool, plan.test or 0), seed=cell["seed"])]
        held = counts[plan.test_split or plan.official]
        if plan.test is None:
            drawn[2] = np.arange(held)
        packed = b"".join(np.asarray(part, "<i8").tobytes() for part in drawn)
        assert cell["rows_sha256"] == hashlib.sha256(packed).hexdigest()
        tested = np.unpackbits(np.frombuffer(bytes.fromhex(cell["tested"]), np.uint8))
        assert np.flatnonzero(tested).tolist() == drawn[2].tolist()
        right = [
            np.unpackbits(np.frombuffer(bytes.fromhex(own), np.uint8)).sum() / len(drawn[2]) for own in cell["hits"]
        ]
        assert right == pytest.approx([path[-1] for path in cell["test_accuracy"]], abs=2.1e-5)  # five digits


def test_the_authors_range_is_what_its_rule_says():
    """Four plans: their levels, seeds that no other table holds, and nothing else new."""
    assert set(RANGE_NAMES) == {
        f"{name}_range{way}" for name in ("cifar10_lite0", "ag_news_mpnet") for way in ("", "_authors")
    }
    for name in RANGE_NAMES:
        plan, other = PLANS[name], PLANS[name.replace("_range", "")]
        assert plan.noise == (0, 0.05, 0.1, 0.2)
        assert plan.sizes == (200,)
        seeds = range(plan.first_seed, plan.first_seed + plan.seeds)
        assert seeds == trial.RANGE_SEEDS
        assert other.seeds <= seeds[0]
        assert replace(plan, noise=other.noise, sizes=other.sizes, first_seed=0, seeds=5) == other
    assert not {row.table.name for row in trial_study()} & set(RANGE_NAMES)


@pytest.fixture(scope="module")
def study():
    return trial_study()


def test_fractions_fits_and_accuracies_come_from_the_files(study):
    """F, fit and the clean accuracy of each row again, from the single numbers of the JSON files."""
    for row in (*study, *range_study(), *second_backbone()):
        eta = row.table.noise_levels[1:]
        cells = [
            c for c in json.loads((TABLES / f"{row.table.name}.json").read_text("utf-8"))["cells"] if c["n"] == row.n
        ]
        classes, fractions = {"digits": 10, "mnist": 10, "cifar10": 10, "trec": 6, "ag_news": 4}.get(row.data, 2), []
        for cell in cells:
            clean, *noisy = (path[-1] for path in cell["test_accuracy"])
            fractions.append((3 * clean - sum(noisy)) / (sum(eta) * (clean - (1 - clean) / (classes - 1))))
        fit = [sum(e * path[-1] for e, path in zip(eta, c["fit_noisy"][1:], strict=True)) / sum(eta) for c in cells]
        if np.isfinite(row.judged.fraction.value):
            assert row.judged.fraction.value == pytest.approx(np.mean(fractions), abs=1e-4), row.label
        assert row.judged.fit.value == pytest.approx(np.mean(fit), abs=1e-4)
        assert row.percent("test_accuracy") == pytest.approx(100 * row.judged.clean, abs=1e-3)
        assert row.percent("head_only") == pytest.approx(100 * np.mean([c["head_only"] for c in cells]))
        assert row.seconds == pytest.approx(sum(c["seconds"] for c in cells))
        assert (row.way == AUTHORS) == (PLANS[row.table.name].batch[row.n] == 16)
        told = row.told()
        assert told["seeds"] == len(cells)
        right = [100 * np.mean([c["test_accuracy"][e][-1] for c in cells]) for e in range(4)]
        assert list(told["accuracy"].values()) == pytest.approx(right, abs=2.5e-3)
        if row.judged.outcome == "tempered":
            assert 0.25 < told["F"][1] < told["F"][0] < told["F"][2] < 0.75
            assert np.mean(fit) > 0.9


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
    chapter = (ROOT / "book" / "token_selection_theory.md").read_text("utf-8")
    assert said in chapter.split("the level of the published runs")[1].split("; the published runs")[0] + " ", said


SIX = ("mnist", "cifar10", "pneumonia_mnist", "breast_mnist", "ag_news", "trec")


def text_of(page):
    return (ROOT / page).read_text("utf-8")


def test_what_the_page_says_of_both_ways_and_of_all_rows(study):
    """That the two ways' intervals overlap on each set, which is decided, and that no row is benign or as without flipped labels."""
    page = text_of("notebooks/token_selection/09_a_fair_trial.md")
    lows, decided = {}, {}
    for data in SIX:
        rows = [one for one in study if one.data == data and one.n == 200 and one.backbone != "small ViT"]
        ours, authors = (next(one for one in rows if one.way == way) for way in (OURS, AUTHORS))
        found = [one.judged.fraction for one in (ours, authors)]
        decided[data] = ours.judged.outcome, authors.judged.outcome
        assert max(one.low for one in found) < min(one.high for one in found)
        lows[data] = [f"{one.low:.3f}" for one in found]
        if data == "pneumonia_mnist":
            assert f"authors' way ends at {found[1].high:.2f} and that of our way at {found[0].high:.2f}" in page
        for one in (ours, authors):  # what the authors would sign: a new linear head loses more, seed by seed
            assert mean(one.linear_head() - trial.trial_of(one.table, 200).fraction()).low > 0
        assert found[0].high < 1
    open_ = {"pneumonia_mnist": ("not decided", "tempered"), "breast_mnist": ("not decided", "not decided")}
    assert decided == dict.fromkeys(SIX, ("tempered", "tempered")) | open_
    assert "lower ends are {} and {}".format(*lows["ag_news"]) in page
    answer = page.split("**Answer.**")[1].split("\n")[0]
    told = [one for one in study if one.n == 200 and one.way == OURS and one.data in SIX and one in strong(study)]
    assert f"lose {min(one.judged.fraction.value for one in told):.2f} (CIFAR-10) to" in answer
    assert f"to {max(one.judged.fraction.value for one in told):.2f} (PneumoniaMNIST)" in answer
    heads = [one.linear_head().mean() for one in told]
    assert f"new linear head loses more on the same features and labels, {min(heads):.2f} to {max(heads):.2f}" in answer
    chapter = text_of("book/token_selection_theory.md").split("With $n=1000$ our way is too short")[1].split("\n")[0]
    for one in (one for one in study if one.n == 1000):
        found, fit = one.judged.fraction, one.judged.fit
        if one.judged.outcome == "tempered":
            assert 0.25 < one.up_to(0.2).low < one.up_to(0.2).high < 0.75
        else:  # only the texts, our way, and because their flipped labels are not fitted
            assert (one.way, one.backbone, fit.high < 0.9) == (OURS, "MPNet", True)
            assert f"{fit.value:.2f} ({SETS[one.data]})" in chapter
    assert not any(one.judged.outcome == "benign" or one.judged.as_without for one in study)
    told = page.split("By the authors' own numbers")[1].split("\n")[0]
    below = {
        (data, n): one for data in SIX for n in (200, 1000) if (one := published_fraction(data, n)) and one.high < 0.25
    }
    assert set(below) == {("cifar10", 200), ("cifar10", 1000), ("pneumonia_mnist", 1000)}
    assert all(rf"${one.value:.2f}\pm{one.high - one.value:.2f}$" in told for one in below.values())


def test_only_two_sets_are_decided_in_the_authors_range(study):
    """F up to eta = 0.2, by hand for one row; which rows are tempered then."""
    tempered = {
        (one.data, one.way)
        for one in strong(study)
        if one.n == 200 and 0.25 < one.up_to(0.2).low and one.up_to(0.2).high < 0.75
    }
    assert tempered == {("mnist", OURS), ("trec", OURS), ("trec", AUTHORS)}
    row = next(one for one in strong(study) if one.data == "cifar10" and one.n == 200 and one.way == OURS)
    cells = [c for c in json.loads((TABLES / "cifar10_lite0.json").read_text("utf-8"))["cells"] if c["n"] == 200]
    by_seed = []
    for cell in cells:
        a = [path[-1] for path in cell["test_accuracy"]]
        by_seed.append((2 * a[0] - a[1] - a[2]) / (0.3 * (10 * a[0] - 1) / 9))
    assert row.up_to(0.2).value == pytest.approx(np.mean(by_seed), abs=1e-4)
    assert row.accuracies() == "83.9 / 81.9 / 79.9 / 71.8"
    accuracy = cells[2]["linear_head"]
    unit = accuracy[0] - (1 - accuracy[0]) / 9
    assert row.linear_head()[2] == pytest.approx((3 * accuracy[0] - sum(accuracy[1:])) / (0.7 * unit))


def test_what_the_page_says_of_attention(study):
    """With its twin's attention each flipped sample gets its true label back; how far attention moves; the stored maps."""
    page = text_of("notebooks/token_selection/09_a_fair_trial.md")
    for row in strong(study):
        if row.n == 200 and row.way == OURS:
            assert (row.table.values("fit_clean", 200)[:, 0, -1] == 1).all(), row.label
    for data in ("cifar10", "mnist"):
        row = next(one for one in strong(study) if (one.data, one.n, one.way) == (data, 200, OURS))
        flipped, other, test = (f"{one:.2f}" for one in row.table.values("twin_distance", 200)[:, 2].mean(0))
        assert re.search(
            rf"{flipped}(?: for flipped samples)?, {other}(?: for the other training samples)? and {test}", page
        )
    back = page.split("gets its true label back")[1].split("\n")[0]
    for data, name in (("cifar10", "CIFAR-10"), ("mnist", "MNIST")):
        maps = stored_maps()[data]
        assert maps.attention.shape == (3, 3, 7, 7)
        whole = maps.attention.sum((-1, -2))
        assert ((whole > 0.8) & (whole < 1)).all()  # the rest: class token
        assert (maps.answers == np.stack([maps.true, maps.given, maps.true], 1)).all()
        assert (maps.given != maps.true).all()
        assert len(set(maps.true.tolist())) == 3
        assert len(maps.memorised) == 40
        assert maps.memorised.all()
        assert maps.restored.all()
        assert f"{maps.with_another.sum()} of 40 on {name}" in back


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
    assert strong(world) == tuple(one for one in world[:-1] if one.judged.fit.low > 0.9)
    assert CLAIMS["TS91"].check(world).verdict == verdict


def test_a_cell_that_is_not_stored_is_named():
    with pytest.raises(KeyError, match=r"digits_authors has no finished run of seed 77 at n = 20: finished are \(0, 1"):
        trained_here("digits_authors", 20, 77)


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
