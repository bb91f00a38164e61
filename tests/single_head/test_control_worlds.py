"""Negative controls of judges of Part I: each could have held, in a world that the test makes."""

from types import SimpleNamespace as Study

import numpy as np
import pytest
import torch

from attnbook.single_head.max_margin.claims import CLAIMS as MARGIN
from attnbook.single_head.phase_diagram import claims as phase
from attnbook.single_head.two_steps.claims import CLAIMS as TWO
from attnbook.single_head.two_steps.claims import NOTEBOOK_STEP_CLAIM
from tests.worlds import tighter, worlds

DRAWS = 80
PHASE = phase.CLAIMS


def test_one_step_that_fits_in_place_of_two():
    fits, misses = torch.ones(DRAWS, 5), -torch.ones(DRAWS, 5)
    error = torch.full((DRAWS, 2), -50.0)
    own = Study(margins1=misses, margins2=fits, log10_error2=error)
    other = Study(margins1=fits, margins2=misses, log10_error2=error)
    assert worlds(TWO["T1"], own, other) == []


def test_margins_above_the_predicted_ones():
    field = Study(margin2_clean=torch.full((DRAWS, 2), 2.0), margin2_noisy=torch.full((DRAWS, 2), 2.0))

    def study(margin):
        predicted = torch.full((DRAWS, 5), 2.0)
        return Study(mean_field=field, margins2=torch.full((DRAWS, 5), margin), per_sample=lambda *_: predicted)

    assert tighter(TWO["C16"], study(1.7), study(2.3)) == []


def test_a_claim_that_is_expected_to_fail():
    def study(fitted):
        margins = torch.ones(DRAWS, 20)
        margins[:, : round(20 * (1 - fitted))] = -1
        return Study(margins2=margins)

    assert not NOTEBOOK_STEP_CLAIM.judge(study(0.95), 1.0).holds
    assert NOTEBOOK_STEP_CLAIM.judge(study(0.95), NOTEBOOK_STEP_CLAIM.wrong).holds
    assert NOTEBOOK_STEP_CLAIM.judge(study(1.0), 1.0).holds


def test_costs_and_averages_that_are_larger():
    rng = np.random.default_rng(3)
    formula = torch.ones(DRAWS, 9)
    bounds = torch.stack([torch.full((DRAWS, 9), 0.97), torch.full((DRAWS, 9), 1.03)], -1)

    def costs(factor):
        found = factor * (formula + 0.005 * torch.as_tensor(rng.standard_normal((DRAWS, 9))))
        return {"costs": found, "cost_formula": formula, "cost_bounds": bounds}

    assert worlds(MARGIN["M3"], costs(1.0), costs(1.3)) == []
    m = torch.arange(1, 4, dtype=torch.float64)

    def averages(factor):
        found = factor * m * torch.ones(DRAWS, 3, dtype=torch.float64)
        return {"averaged": found, "averaged_bounds": torch.tensor([[0.96, 1.04]]).expand(DRAWS, 2)}

    assert worlds(MARGIN["M21"], averages(1.0), averages(1.4)) == []


@pytest.mark.parametrize(("id", "factor"), [("S7", 1.3), ("S8", 0.9), ("S9", 1.1)])
def test_borders_elsewhere(monkeypatch: pytest.MonkeyPatch, id: str, factor: float):
    scale = np.exp(0.05 * np.random.default_rng(5).standard_normal(40))
    study = Study(n=200, d=40_000, steps=None, high=None)
    for place, holds in ((1.0, True), (factor, False)):
        found = (place * scale, scale, scale)
        monkeypatch.setattr(phase, "borders", lambda *_, found=found: found)
        assert PHASE[id].judge(study, 1.0).holds is holds
        assert PHASE[id].judge(study, PHASE[id].wrong).holds is not holds


def test_another_power_of_the_dimension(monkeypatch: pytest.MonkeyPatch):
    x = 2.0 ** np.array([-6, -4, -3, -2, -1, 0, 2, 4])
    rng = np.random.default_rng(6)
    field = np.repeat(-100 * x[:, None] ** 0.98, DRAWS, axis=1)
    monkeypatch.setattr(phase, "field_log10_error", lambda *_: field)
    d = np.tile(np.rint(x * 200**2), (3, 1))

    def study(power):
        own = -100 * x[:, None] ** power * np.exp(1e-3 * rng.standard_normal((8, DRAWS)))
        return Study(n=200, dimensions=Study(plan=Study(x=x, d=d), log10_error=np.stack([own] * 3)))

    assert worlds(PHASE["S12"], study(0.98), study(0.98 * 0.9)) == []


def test_attention_margins_of_the_whole_and_of_half_the_norm():
    class Margins(dict):
        radius = 3.0

    size = torch.tensor([3.0, 5.0, 8.0], dtype=torch.float64)
    own = Margins(above_ratio=torch.tanh(size / 2).expand(DRAWS, 3) + 1e-9)
    other = Margins(above_ratio=torch.tanh(size).expand(DRAWS, 3) + 0.0)
    assert tighter(MARGIN["M13"], own, other) == []
