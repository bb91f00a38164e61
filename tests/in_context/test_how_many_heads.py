"""III.6: risks in two parts, heads put together, stored ends, free heads; the same-sign trap and its table, made piece by piece."""

import hashlib
import math

import numpy as np
import pytest
import torch
from scipy.stats import norm

from attnbook.in_context import trap_study
from attnbook.in_context.ends import sharp_risk
from attnbook.in_context.how_many_heads.study import Ends, compare_free_heads, merged_pair
from attnbook.in_context.reduced import reduced_risk
from attnbook.in_context.trap_study import (
    PLAN,
    STORED,
    TrapRuns,
    imbalance,
    ranking,
    read_table,
    share,
    stored_table,
    trap_runs,
    trap_table,
)
from attnlib.in_context.circuits import Circuits, circuits_of, predict
from attnlib.in_context.experiment import Experiment
from attnlib.in_context.law import RegressionLaw
from attnlib.in_context.model import initial_weights
from attnlib.in_context.training import train

LAW = RegressionLaw(d=3, length=11, noise_std=0.4)


def random_circuits(runs: int = 2, heads: int = 3) -> Circuits:
    return circuits_of(initial_weights(3, heads, seed=8, runs=runs))


def test_merging_by_hand() -> None:
    omega, mu = merged_pair(torch.tensor([0.2, 0.4, -0.3]), torch.tensor([1.0, 3.0, -2.0]))
    torch.testing.assert_close(omega, torch.tensor([0.35, -0.3]))
    torch.testing.assert_close(mu, torch.tensor([4.0, -2.0]))
    omega, mu = merged_pair(torch.tensor([[0.2, 0.4]]), torch.tensor([[1.0, 3.0]]))
    torch.testing.assert_close(omega, torch.tensor([[0.35, 0.0]]))
    torch.testing.assert_close(mu, torch.tensor([[4.0, 0.0]]))


def test_the_risk_in_two_parts_is_the_risk() -> None:
    """Against plain squared errors on other prompts, for circuits that look at labels and write covariates."""
    circuits = random_circuits()
    circuits = Circuits(2 * circuits.key_query, 3 * circuits.output_value)
    risk, error = sharp_risk(circuits, LAW, prompts=20_000, seed=1)
    prompts = LAW.draw(40_000, 2)
    squares = (predict(circuits, prompts) - prompts.clean_target).square()
    spread = (squares.var(-1) / 40_000 + error.square()).sqrt()
    assert ((risk - squares.mean(-1)).abs() < 4 * spread).all()
    # a wrong formula would show: the two-number part alone is another number
    plain, _ = reduced_risk(circuits.omega, circuits.mu, LAW)
    assert ((plain - squares.mean(-1)).abs() > 8 * spread).any()


def ends(mu: list, omega: list) -> Ends:
    mu, omega = torch.tensor(mu).double(), torch.tensor(omega).double()
    risk = torch.linspace(1, 2, len(mu), dtype=torch.float64)
    return Ends(omega, mu, risk, torch.full_like(risk, 0.1), risk, risk, risk, torch.tensor([True, True, False]))


def test_reading_of_ends() -> None:
    found = ends([[1.0, -1.0], [0.04, -2.0], [1.0, 1.0]], [[0.1, -0.1], [1.5, -0.1], [0.6, 0.1]])
    assert found.active.tolist() == [2, 1, 2]
    assert found.sharp.tolist() == [False, True, True]
    faint = ends([[1.0, 0.03], [1.0, 0.015], [0.01, 1.0]], [[0.1, 1.3], [0.1, 1.3], [9.0, 0.25]])
    assert faint.sharper_than(0.25).tolist() == [True, False, False]
    mean, error = found.mean_risk
    assert mean == pytest.approx(1.25)
    assert error == pytest.approx((0.125 / 2 + 0.01) ** 0.5)


def test_free_heads_are_ordered_and_the_third_is_judged_on_other_draws() -> None:
    law = RegressionLaw(d=2, length=9)
    found = compare_free_heads(law, prompts=1200, seed=1)
    assert [len(part[0]) for part in (found.one, found.pair, found.three)] == [1, 2, 3]
    assert found.pair[0][0] == -found.pair[0][1]
    assert all(w == round(w, 2) for w in found.three[0])
    assert found.risk_one.mean() > found.risk_pair.mean() > found.risk_three.mean() > 0
    risk, _ = reduced_risk(torch.tensor(found.three[0]).double(), torch.tensor(found.three[1]).double(), law, seed=7)
    assert found.risk_three.mean().item() == pytest.approx(risk.item(), rel=0.02)
    gain = (found.risk_pair.mean() - found.risk_three.mean()) / found.risk_pair.mean()
    torch.testing.assert_close(found.gain_of_third.mean(), gain)
    sizes = [abs(w) for w in found.three[0]]
    assert [abs(found.flattest[0]), abs(found.sharpest[0])] == [min(sizes), max(sizes)]
    assert found.sharpest in list(zip(*found.three, strict=True))


SMALL = {"d": 3, "length": 7, "batch": 8, "records": 6, "seed": 4, "learning_rate": 0.01}
TINY = {
    "2": Experiment(heads=2, steps=30, runs=8, **SMALL),
    "3": Experiment(heads=3, steps=20, runs=7, **SMALL),
    "long": Experiment(heads=2, steps=40, runs=3, **SMALL),
}


def test_imbalance_by_hand() -> None:
    mu = np.array([[1.0, 3.0], [1.0, -3.0], [-2.0, -2.0], [2.0, -2.0], [0.0, 0.0]])
    np.testing.assert_allclose(imbalance(mu), [1, 0.5, 1, 0, math.nan])
    np.testing.assert_allclose(imbalance([[[3.0, -1.0, -1.0]]]), [[0.2]])


@pytest.mark.parametrize(("count", "total"), [(0, 60), (49, 300), (5, 5), (1, 2)])
def test_the_interval_is_wilsons(count: int, total: int) -> None:
    found, z = share(count, total), norm.ppf(0.975)
    assert found.value == count / total
    for end in {found.low, found.high} - {0.0, 1.0}:
        assert (found.value - end) ** 2 == pytest.approx(z**2 * end * (1 - end) / total, rel=1e-9)
    assert 0 <= found.low <= found.value <= found.high <= 1


def test_ranking_is_the_area_under_the_curve() -> None:
    rng = np.random.default_rng(0)
    score, event = rng.integers(0, 12, 60).astype(float), rng.random(60) < 0.3
    pairs = [(a > b) + 0.5 * (a == b) for a in score[event] for b in score[~event]]
    assert ranking(score, event) == pytest.approx(np.mean(pairs))
    assert ranking(np.array([1.0, 2, 3]), np.array([False, False, True])) == 1.0
    assert math.isnan(ranking(score, np.zeros(60, dtype=bool)))


def test_runs_are_those_of_the_trainer() -> None:
    e = TINY["3"].replace(first_run=5, runs=2)
    found, history = trap_runs(e, implementation="reference"), train(e, implementation="reference")
    np.testing.assert_array_equal(found.mu, history.mu.numpy())
    np.testing.assert_array_equal(found.omega, history.omega.numpy())
    np.testing.assert_array_equal(found.loss, history.loss[:, -1].numpy())
    assert found.run.tolist() == [5, 6]
    assert found.at(3) == int(np.flatnonzero(found.steps <= 3)[-1])


def runs_with(mu: list) -> TrapRuns:
    """Runs whose only content is mu (R, K, H)."""
    values = np.array(mu, dtype=float)
    R, K, H = values.shape
    return TrapRuns(np.arange(K), np.arange(R), values, values, np.zeros((R, H)), np.zeros(R))


def test_trapped_is_one_sign_at_the_end() -> None:
    runs = runs_with(
        [[[1, 1], [1, 1]], [[1, -2], [3, 0.01]], [[1, 2], [1, -1]], [[1, -1], [2, -2]], [[1, 0.2], [1, -0.3]]]
    )
    assert runs.trapped.tolist() == [True, True, False, False, False]
    assert (runs.share.count, runs.share.total) == (2, 5)


class Stop(Exception):
    pass


def test_a_table_stopped_anywhere_ends_the_same(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(trap_study, "_PIECE", 3)
    monkeypatch.setattr(trap_study, "_LIMIT", 0.3)  # so that some tiny runs count as trapped
    whole = trap_table(tmp_path / "whole.npz", plan=TINY)
    real = trap_study.trap_runs
    path = tmp_path / "pieces.npz"
    for pieces in (0, 2, 3):
        calls = []

        def breaks(e, calls=calls, pieces=pieces, **options):
            if len(calls) == pieces:
                raise Stop
            calls.append(e)
            return real(e, **options)

        monkeypatch.setattr(trap_study, "trap_runs", breaks)
        with pytest.raises(Stop):
            trap_table(path, plan=TINY)
        if path.exists():
            with pytest.raises(ValueError, match=r"must be a finished table; pieces.npz has \d of \d runs of part"):
                read_table(path, TINY)
    monkeypatch.setattr(trap_study, "trap_runs", real)
    resumed = trap_table(path, plan=TINY)
    for one in (resumed, read_table(path, TINY)):
        for mine, theirs in (
            (one.by_heads[2], whole.by_heads[2]),
            (one.by_heads[3], whole.by_heads[3]),
            (one.long, whole.long),
        ):
            for field in ("run", "omega", "mu", "off_diagonal", "loss"):
                np.testing.assert_array_equal(getattr(mine, field), getattr(theirs, field))
    assert whole.by_heads[2].run.tolist() == list(range(8))
    caught = whole.by_heads[2].run[whole.by_heads[2].trapped][:3]
    assert 0 < len(caught)
    assert whole.long.run.tolist() == caught.tolist()
    assert whole.long.steps[-1] == 40
    assert sorted(p.name for p in tmp_path.iterdir()) == ["pieces.npz", "whole.npz"]


def test_files_that_cannot_be_used(tmp_path) -> None:
    path = tmp_path / "table.npz"
    other = {name: e.replace(seed=5) for name, e in TINY.items()}
    trap_table(path, plan=TINY)
    with pytest.raises(ValueError, match=r"must be a table of this plan; got table\.npz"):
        trap_table(path, plan=other)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ValueError, match="not a readable table of the trap"):
        trap_table(path, plan=TINY)
    with pytest.raises(ValueError, match=r"there is no none.npz: python -m attnbook.in_context.trap_study"):
        read_table(tmp_path / "none.npz")
    with pytest.raises(ValueError, match="in a folder that does not exist"):
        trap_table(tmp_path / "nowhere" / "table.npz", plan=TINY)


def test_the_stored_table_is_whole_and_small() -> None:
    table = stored_table()
    assert {heads: len(runs.run) for heads, runs in table.by_heads.items()} == {2: 300, 3: 100, 4: 100}
    assert STORED.stat().st_size < 400_000
    for runs in (*table.by_heads.values(), table.long):
        assert np.isfinite(runs.mu).all()
        assert np.isfinite(runs.loss).all()
        assert len(set(runs.run.tolist())) == len(runs.run)
    two = table.by_heads[2]
    assert table.long.run.tolist() == two.run[two.trapped][: len(table.long.run)].tolist()
    # what two heads of one sign cost: just under one head, twice the others
    assert 1.40 < two.loss[two.trapped].min()
    assert np.median(two.loss[~two.trapped]) < 0.69


def test_the_command_shows_a_finished_table_and_does_not_touch_it(capsys) -> None:
    before = STORED.read_bytes()
    trap_study.main()
    shown = capsys.readouterr().out
    assert shown.splitlines()[0] == f"2 heads: trapped {stored_table().by_heads[2].share}"
    assert "trained on to 500001 steps: 10, of which 0 left the trap" in shown
    assert STORED.read_bytes() == before


def runs_of(part: str) -> TrapRuns:
    return stored_table().long if part == "long" else stored_table().by_heads[PLAN[part].heads]


def trained_again(part: str, place: int) -> None:
    """All that is stored of one run, from its start to its end. Runs that turn late carry rounding further: by 2e-4, of 300."""
    stored = runs_of(part)
    again = trap_runs(PLAN[part].replace(runs=1, first_run=int(stored.run[place])))
    for name in ("run", "omega", "mu", "off_diagonal", "loss"):
        kept, found = getattr(stored, name)[place], getattr(again, name)[0]
        allowed = 1e-4 if name == "loss" else 2e-2 if part == "long" else 5e-3
        np.testing.assert_allclose(
            kept, found, rtol=0, atol=allowed, err_msg=f"{name} of run {stored.run[place]}, part {part!r}"
        )


@pytest.mark.parametrize("part", PLAN)
def test_a_stored_run_is_what_training_gives(part: str) -> None:
    """The table's own hash draws which: whoever edits one run does not choose which is trained again."""
    drawn = hashlib.sha256(part.encode() + STORED.read_bytes()).digest()
    trained_again(part, int.from_bytes(drawn[:8], "big") % len(runs_of(part).run))


@pytest.mark.weekly
@pytest.mark.parametrize(("part", "first"), [(part, k) for part, e in PLAN.items() for k in range(0, e.runs, 50)])
def test_every_stored_run_is_what_training_gives(part: str, first: int) -> None:
    """Eight minutes: what chance passes over in the test above is found here."""
    for place in range(first, min(first + 50, PLAN[part].runs)):
        trained_again(part, place)
