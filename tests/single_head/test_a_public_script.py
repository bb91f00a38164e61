"""Page I.9: the second step of the script in reduced coordinates is that of dense numpy code, and its faults are faults."""

import numpy as np
import pytest
import torch

from attnbook.single_head.a_public_script.claims import CLAIMS
from attnbook.single_head.a_public_script.study import WAYS, script_study, second_step
from attnlib.single_head.law import SignalNoiseLaw

LAW = SignalNoiseLaw(n=12, d=50, signal_norm=4.0, label_noise=0.3)
STEP = 0.4


def by_loops(X: np.ndarray, y: np.ndarray, way: str) -> tuple[np.ndarray, np.ndarray]:
    """Two steps from zero, sample by sample and token by token, with the Jacobian of softmax written out."""
    n, _T, d = X.shape
    v, p = np.zeros(d), np.zeros(d)
    for _ in range(2):
        in_v, in_p = np.zeros(d), np.zeros(d)
        for x, label in zip(X, y, strict=True):
            s = np.exp(x @ p) / np.exp(x @ p).sum()
            slope = label / (1 + np.exp(label * (s @ x @ v)))
            jacobian = np.diag(s) - np.outer(s, s)
            if way in ("diagonal", "printed"):
                jacobian = np.diag(s * (1 - s))
            in_v -= slope * (s @ x) / n
            change = x.T @ jacobian @ (x @ v)
            if way == "printed":
                change = -np.full(d, v @ (x.T @ np.diag(jacobian)))
            in_p -= (-slope if way == "sign" else slope) * change / n
        v, p = v - STEP * in_v, p - STEP * in_p
    return v, p


@pytest.mark.parametrize("way", WAYS)
def test_the_second_step_is_that_of_loops(way: str) -> None:
    sample = LAW.draw(3, 2, coordinates="dense")
    v2, ways = second_step(sample, STEP, torch.ones(2, LAW.d, dtype=torch.float64))
    for r in range(2):
        v, p = by_loops(sample.tokens[r].numpy(), sample.labels[r].numpy(), way)
        np.testing.assert_allclose(v2[r].numpy(), v, rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(ways[way][r].numpy(), p, rtol=1e-11, atol=1e-14)


def test_the_all_ones_vector_acts_as_one_of_its_norm_in_a_random_direction() -> None:
    """Dense draws with the vector itself against reduced draws with a random one: the same mean and spread of attention."""
    dense = LAW.draw(0, 400, coordinates="dense")
    _, ways = second_step(dense, STEP, torch.ones(400, LAW.d, dtype=torch.float64))
    weights = torch.softmax(torch.einsum("rntm,rm->rnt", dense.tokens, ways["printed"]), -1)
    there = dense.at_signal(weights)
    here = script_study(LAW, STEP, draws=400, seed=1).attention["printed"]
    for number in (lambda s: s.mean(1), lambda s: s.std(1)):
        a, b = number(there), number(here)
        assert abs(a.mean() - b.mean()) < 4 * float((a.var() / 400 + b.var() / 400).sqrt())
    assert here.std() > 0.02


@pytest.mark.parametrize("name", ["N2", "N5"])
def test_a_judge_refuses_the_script_of_another_fault(name: str) -> None:
    """Each claim holds on its own way, and fails where another one has taken its place."""
    study = script_study(SignalNoiseLaw(60, 12_000, 30.0, 0.1), 0.025, draws=40, seed=5)
    assert str(CLAIMS[name].check(study).verdict) == "holds"
    own, taken = {"N2": ("printed", "diagonal"), "N5": ("diagonal", "right")}[name]
    for values in (study.attention, study.margins):
        values[own] = values[taken]
    assert str(CLAIMS[name].check(study).verdict) == "fails"
