"""Claims I71-I89 and I96-I98: worlds in which a negative control holds, silence elsewhere."""

from dataclasses import replace

import pytest
import torch

from attnbook.in_context.deeper_and_wider.claims import CLAIMS
from attnbook.in_context.deeper_and_wider.claims_data import CLAIMS as DATA
from attnbook.in_context.deeper_and_wider.data_findings import _map_finding, data_study
from attnbook.in_context.deeper_and_wider.findings import _task_finding, wider_study
from attnbook.in_context.deeper_and_wider.study import WiderSetting, obtain, specs
from bookkit.claims import Verdict


@pytest.fixture(scope="module")
def wide():
    """Stored trainings, measured on prompts of another seed."""
    names = [f"{heads} heads, two tasks" for heads in (2, 3, 4)]
    tasks = tuple(_task_finding(obtain(specs()[name]), 3000, 7) for name in names)
    return replace(wider_study(WiderSetting(), prompts=3000), tasks=tasks)


@pytest.fixture(scope="module")
def study():
    """Likewise, on other covariates."""
    found = {name: _map_finding(obtain(specs()[name]), 3000, 7) for name in ("anisotropic", "mean")}
    return replace(data_study(WiderSetting(), prompts=3000), **found)


def test_a_median_over_starts_is_not_moved_by_one_of_them(study):
    moved = study.anisotropic.risk.clone()
    moved[0] *= 3
    one = replace(study, anisotropic=replace(study.anisotropic, risk=moved))
    assert DATA["I76"].check(one).verdict == Verdict.HOLDS
    three = moved.clone()
    three[:3] = moved[0]
    assert DATA["I76"].check(replace(one, anisotropic=replace(one.anisotropic, risk=three))).verdict == Verdict.FAILS


def test_outside_the_regime(wide, study):
    def verdict(id, **changes):
        claims, found = (DATA, study) if id in set(DATA) else (CLAIMS, wide)
        return claims[id].check(replace(found, setting=replace(found.setting, **changes)))

    for id in ("I73", "I74", "I75", "I76", "I77", "I78", "I79", "I82", "I83", "I84", "I85"):
        assert verdict(id, steps=500).violated == "needs 8000 steps or more to speak of an end; here 500"
    assert verdict("I75", rho=0.0).violated == "needs a covariance that is not the identity; here rho = 0"
    assert verdict("I79", mean=0.0).violated == "needs covariates with a mean; here m = 0"
    assert verdict("I78", mean=1.0).violated == "needs the mean 0.6; here 1"
    assert verdict("I97", mean=0.0, rho=0.0).violated == "needs a covariance or a mean; here neither"
    assert verdict("I72", length=10).violated == "needs d = 5 and L = 40; here others"
    assert verdict("I88", noise_std=0.5).violated == "needs L > d + 1 and s2 <= 0.01"
    assert verdict("I88", noise_std=0.0).verdict == Verdict.OUTSIDE


def test_formula_of_the_factor_by_hand(study):
    """(d + 1)(L - d - 1) / ((L + d) s2) at d = 5, L = 40, s2 = 5e-4."""
    assert study.seed_noise.factor.item() == pytest.approx(6 * 34 / (45 * 5e-4), rel=0.02)
    assert torch.isfinite(study.seed_noise.factor_se).all()


def test_ridge_is_where_the_theorem_says(study):
    """Moved by the width of the interval, either way, the same draws refute the claim."""
    found = study.small_loads
    for sign in (1, -1):
        moved = replace(found, bayes=found.bayes + sign * (found.high - found.low))
        assert DATA["I89"].check(replace(study, small_loads=moved)).verdict == Verdict.FAILS
