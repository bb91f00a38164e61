"""III.7: stored trainings, the command that makes them, exact references and what is measured beside them."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from attnbook.in_context.closed_form import best_preconditioner, preconditioned_gd_risk
from attnbook.in_context.deeper_and_wider import training as module
from attnbook.in_context.deeper_and_wider.claims import CLAIMS
from attnbook.in_context.deeper_and_wider.multi_task import MultiTaskLaw
from attnbook.in_context.deeper_and_wider.stack import stack_of_circuits
from attnbook.in_context.deeper_and_wider.study import (
    authors_attention,
    bayes_factor,
    centred_linear_answer,
    map_finding,
    plain_risk,
    risk_beside_linear,
    task_finding,
    wider_study,
)
from attnbook.in_context.deeper_and_wider.training import (
    TABLE,
    Spec,
    WiderSetting,
    main,
    obtain,
    replay,
    specs,
    train_deep,
)
from attnbook.in_context.estimators import bayes_risk
from attnlib.in_context.experiment import Experiment
from attnlib.in_context.law import RegressionLaw, toeplitz_covariance
from bookkit.claims import Verdict
from bookkit.worlds import changed, times

SHIFTED = RegressionLaw(3, 12, 0.3, covariance=toeplitz_covariance(3, 0.4), mean=(1.0, 0.0, -0.5))
TINY = Experiment(d=3, length=6, heads=2, batch=4, steps=12, records=4, runs=2, learning_rate=0.01)


def tiny_specs():
    law = MultiTaskLaw(3, ((0, 1), (1, 2)), length=6)
    both = [
        Spec("one", TINY, RegressionLaw(3, 6), cooldown=0.5),
        Spec("deep", TINY.replace(layers=2, weight_tying=True), RegressionLaw(3, 6), "inclusive"),
        Spec("tasks", TINY.replace(outputs=2, heads=3), law),
    ]
    return {spec.name: spec for spec in both}


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "specs", tiny_specs)
    assert main(["-o", str(tmp_path / "wider.npz")]) == 0
    return tmp_path / "wider.npz"


# Storing


def test_stored_and_fresh_are_the_same_training(table, capsys):
    for spec in tiny_specs().values():
        capsys.readouterr()
        stored = obtain(spec, table=table)
        assert capsys.readouterr().err == ""
        fresh = obtain(spec, table=table.with_name("none.npz"))
        said = capsys.readouterr().err
        assert said.startswith(
            f"none.npz holds no training {spec.name!r} at all, as the file is missing: it is trained now, 12 "
        )
        assert f"`python -m attnbook.in_context.deeper_and_wider.training {spec.name}` stores" in said
        assert stored.stored
        assert not fresh.stored
        assert torch.equal(stored.key_query, fresh.key_query)
        assert torch.equal(stored.loss[:, 1:], fresh.loss[:, 1:])


def test_a_changed_setting_is_not_taken_from_the_table(table, capsys):
    spec = tiny_specs()["one"]
    assert not obtain(replace(spec, cooldown=0.25), table=table).stored
    assert "wider.npz holds no training 'one' of these settings: it is trained now" in capsys.readouterr().err
    assert not obtain(replace(spec, experiment=TINY.replace(noise_std=0.02)), table=table).stored
    assert not obtain(replace(spec, law=SHIFTED.with_length(6)), table=table).stored


def test_the_command_goes_on_where_it_was_stopped(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(module, "specs", tiny_specs)
    calls = []

    def stop_at_the_second(*arguments, **options):
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return train_deep(*arguments, **options)

    monkeypatch.setattr(module, "train_deep", stop_at_the_second)
    path = tmp_path / "wider.npz"
    with pytest.raises(KeyboardInterrupt):
        main(["-o", str(path)])
    assert main(["-o", str(path)]) == 0
    assert "one: stored already" in capsys.readouterr().out
    assert len(calls) == 4
    assert sorted(file.name for file in tmp_path.iterdir()) == ["wider.npz"]


def test_bad_use_of_the_command(tmp_path, capsys):
    for arguments, words in (
        (["seven layers"], "NAME must be one of one layer, two layers"),
        (["-o", str(tmp_path / "no" / "x.npz")], "save must be a file in a folder that exists"),
    ):
        with pytest.raises(SystemExit) as stopped:
            main(arguments)
        assert stopped.value.code == 2
        assert words in capsys.readouterr().err


def test_a_damaged_table(tmp_path):
    path = tmp_path / "wider.npz"
    path.write_bytes(b"PK\x03\x04 no")
    with pytest.raises(ValueError, match=r"got wider\.npz, not a readable table of trainings"):
        obtain(tiny_specs()["one"], table=path)
    path.write_bytes(b"")
    with pytest.raises(ValueError, match="delete it or choose another name"):
        obtain(tiny_specs()["one"], table=path)


def test_every_training_of_the_page_is_stored_at_full_size():
    """The table belongs to the page's defaults: all keys are those of `specs()`."""
    for spec in specs().values():
        trained = obtain(spec)
        assert trained.stored
        assert trained.steps[-1] == spec.experiment.steps == 12_000
        assert trained.loss.shape[0] == 5
        assert trained.loss[:, 1:].isfinite().all()
    assert TABLE.stat().st_size < 3_000_000


@pytest.mark.parametrize("name", ["anisotropic", "3 heads, two tasks", "two layers"])
def test_the_first_steps_of_a_stored_training_can_be_trained_again(name):
    gap, step = replay(obtain(specs()[name]), 100)
    assert 60 <= step <= 100
    assert gap < 1e-4


@pytest.mark.weekly
@pytest.mark.parametrize("name", ["one layer", "mean", "2 heads, two tasks"])
def test_a_stored_training_is_trained_again_to_its_end(name):
    gap, step = replay(obtain(specs()[name]), 12_000)
    assert step == 12_000
    assert gap < 2e-2


def test_the_first_settings_are_named_by_their_layers():
    assert list(specs())[:2] == ["one layer", "two layers"]


# What a stored training gives


def test_maps_by_loops():
    trained = obtain(tiny_specs()["tasks"], table=TABLE.with_name("none.npz"))
    maps = trained.maps()
    assert maps.shape == (2, len(trained.steps), 2, 3, 3)
    for k in range(2):
        by_hand = sum(
            trained.output_value[1, -1, 0, h, k, 3 + k] * trained.key_query[1, -1, 0, h, :3, :3].T for h in range(3)
        )
        torch.testing.assert_close(maps[1, -1, k], by_hand)
    one = obtain(tiny_specs()["one"], table=TABLE.with_name("none.npz"))
    circuits = one.circuits()
    torch.testing.assert_close(
        one.maps()[:, :, 0], torch.einsum("rkh,rkhij->rkji", circuits.mu, circuits.covariate_block)
    )


# Risks


def test_the_centred_answer_by_loops():
    prompts, gamma = SHIFTED.draw(3, 2), np.random.default_rng(1).standard_normal((3, 3))
    x, y, q = prompts.x[2].numpy(), prompts.y[2].numpy(), prompts.query[2].numpy()
    by_hand = sum(q @ gamma @ (x[i] - x.mean(0)) * y[i] for i in range(12)) / 12 + 0.3 * y.mean()
    assert centred_linear_answer(gamma, prompts, 0.3)[2].item() == pytest.approx(by_hand, rel=1e-12)


def _faint_pair(gamma, scale):
    d = len(gamma)
    M = torch.zeros(1, 2, d + 1, d + 1, dtype=torch.float64)
    M[0, :, :d, :d] = scale * torch.as_tensor(np.stack([gamma.T, -gamma.T]))  # key index first
    V = torch.zeros(1, 2, 1, d + 1, dtype=torch.float64)
    V[0, :, 0, d] = torch.tensor([1, -1]) / (2 * scale)
    return stack_of_circuits(M, V)


def test_risk_beside_a_linear_predictor():
    gamma = best_preconditioner(SHIFTED, centred=True) + 0.1 * np.random.default_rng(3).standard_normal((3, 3))
    exact = float(preconditioned_gd_risk(SHIFTED, gamma, centred=True))
    risk, error = risk_beside_linear(_faint_pair(gamma, 1e-4), SHIFTED, gamma, prompts=400)
    assert risk.item() == pytest.approx(exact, rel=1e-4)
    assert error.item() < 1e-4 * exact
    # Beside another predictor the value is the same within its larger error.
    far, far_error = risk_beside_linear(_faint_pair(gamma, 0.2), SHIFTED, 0.5 * gamma, offset=0.2, prompts=5000)
    near, near_error = risk_beside_linear(_faint_pair(gamma, 0.2), SHIFTED, gamma, prompts=5000)
    plain, plain_error = plain_risk(_faint_pair(gamma, 0.2), SHIFTED, prompts=5000)
    assert near_error < 0.5 * plain_error
    for value, spread in ((far, far_error), (plain, plain_error)):
        assert abs(value - near) < 4 * (spread + near_error)


# Findings


def test_the_authors_weights_by_hand():
    scores = torch.tensor([[0.0, 1.0, 2.0], [3.0, 0.0, 1.0], [1.0, 2.0, 0.0]], dtype=torch.float64)
    found = authors_attention(scores)
    torch.testing.assert_close(found[0], torch.full((3,), 1 / 3, dtype=torch.float64))  # everything, the future too
    assert found[1].tolist() == pytest.approx([1, 0, 0])
    first = np.exp([1, 2, 0]) / np.exp([1, 2, 0]).sum()
    second = np.exp(first[:2]) / np.exp(first[:2]).sum()
    assert found[2, :2].tolist() == pytest.approx(second)
    assert found[2, 2] == 0


def test_bayes_factor_by_other_means():
    law = RegressionLaw(3, 15, 0.0, "repository")
    found = bayes_factor(law, np.array([0.01, 2.0]), omega=1e-3, prompts=3000)
    for k, value in enumerate((0.01, 2.0)):
        noisy = replace(law, noise_std=value**0.5)
        by_hand = (4 + 3 * value) / (18 + 3 * value)
        assert found.pair[k].item() == pytest.approx(by_hand, rel=1e-3)
        ideal = bayes_risk(noisy.draw(20_000, 5).x, noisy).mean()
        assert abs(found.bayes[k] - ideal) < 4 * found.bayes_se[k]
    assert found.factor[0] > 10
    assert 1 < found.factor[1] < 1.3


@pytest.fixture(scope="module")
def study():
    """Stored trainings, measured on prompts of another seed."""
    found, all_ = wider_study(WiderSetting(), prompts=3000), specs()
    found.tasks = {H: task_finding(obtain(all_[f"{H} heads, two tasks"]), 3000, 7) for H in (2, 3, 4)}
    found.anisotropic, found.mean = (map_finding(obtain(all_[name]), 3000, 7) for name in ("anisotropic", "mean"))
    return found


def test_a_median_over_starts_is_not_moved_by_one_of_them(study):
    factors = torch.tensor([3.0, 1.0, 1.0, 1.0, 1.0])
    assert CLAIMS["I75"].check(changed(lambda risk: factors * risk, "anisotropic.risk")(study)).verdict == Verdict.HOLDS
    factors[:3] = 3.0
    assert CLAIMS["I75"].check(changed(lambda risk: factors * risk, "anisotropic.risk")(study)).verdict == Verdict.FAILS


def test_outside_the_regime(study):
    def verdict(id, **changes):
        return CLAIMS[id].check(changed(lambda setting: replace(setting, **changes), "setting")(study))

    for id in ("I73", "I75", "I77", "I78", "I79", "I82", "I83", "I85"):
        assert verdict(id, steps=500).violated == "needs 8000 steps or more to speak of an end; here 500"
    assert verdict("I75", rho=0.0).violated == "needs a covariance that is not the identity; here rho = 0"
    assert verdict("I79", mean=0.0).violated == "needs covariates with a mean; here m = 0"
    assert verdict("I78", mean=1.0).violated == "needs the mean 0.6; here 1"
    assert verdict("I97", mean=0.0, rho=0.0).violated == "needs a covariance or a mean; here neither"
    assert verdict("I88", noise_std=0.5).violated == "needs L > d + 1 and s2 <= 0.01"
    assert verdict("I88", noise_std=0.0).verdict == Verdict.OUTSIDE


def test_formula_of_the_factor_by_hand(study):
    """(d + 1)(L - d - 1) / ((L + d) s2) at d = 5, L = 40, s2 = 5e-4."""
    assert study.page_noise.factor.item() == pytest.approx(6 * 34 / (45 * 5e-4), rel=0.02)
    assert torch.isfinite(study.page_noise.factor_se).all()


def test_ridge_is_where_the_theorem_says(study):
    """Moved by the width of the interval, either way, the same draws refute the claim."""
    low, high = study.small_loads.bounds
    for sign in (1, -1):
        moved = changed(lambda bayes, sign=sign: bayes + sign * (high - low), "small_loads.bayes")(study)
        assert CLAIMS["I89"].check(moved).verdict == Verdict.FAILS


def test_a_claim_notices_a_training_that_is_another(study):
    for id, name in (("I73", "depth.one layer.risk"), ("I83", "tasks.2.risk"), ("I79", "mean.found_offset")):
        assert CLAIMS[id].check(study).verdict == Verdict.HOLDS
        assert CLAIMS[id].check(times(1.5, name)(study)).verdict == Verdict.FAILS
