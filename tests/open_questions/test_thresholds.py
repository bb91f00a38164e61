"""IV.9: where classes end, boundaries of maps, unnormalised maximum margins; claims and controls."""

import itertools
from types import SimpleNamespace as Study

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from attnbook.open_questions.second_solver import WEIGHTS
from attnbook.open_questions.thresholds.claims import CLAIMS
from attnbook.open_questions.thresholds.study import (
    MARGIN_NORMS,
    SELECTIONS,
    SHARES,
    boundary_curve,
    map_fates,
    selected,
    thresholds_of_shares,
    trap_exits,
    unnormalised_cost,
    unnormalised_svm,
)
from attnbook.single_head.flow import own_thresholds
from attnbook.single_head.long_run import class_fates, law_at, orthogonal_sample, small_then_long
from attnbook.single_head.margin import tokens_of
from attnbook.single_head.svm import NotSeparable, hard_margin
from attnlib.single_head.law import SignalNoiseLaw
from attnlib.single_head.maps import SOFTMAX
from tests.worlds import worlds


def test_softmax_fates_are_the_known_study_run_by_run():
    laws = [law_at(x, 40, 10**5, 0.2) for x in (0.8, 1.5, 2.5)]
    schedule = small_then_long(40, 10**5)
    known = class_fates(laws, schedule, draws=1, seed=4)
    found = map_fates(laws, SOFTMAX, schedule, draws=1, seed=4)
    np.testing.assert_allclose(found.x, known.x)
    np.testing.assert_allclose(found.flipped, known.flipped)
    np.testing.assert_array_equal(found.on_signal, known.on_signal)
    np.testing.assert_allclose(found.net, found.x * (1 - 2 * found.flipped) / (1 - found.flipped))
    assert found.on_signal.any()
    assert not found.on_signal.all()
    assert (found.train_accuracy == 1).all()


def test_thresholds_of_softmax_are_the_known_ones():
    clean, noisy = np.array([[40, 45], [30, 36]]), np.array([[4, 5], [10, 9]])
    curve = boundary_curve(SOFTMAX)
    found = thresholds_of_shares(curve, noisy / (clean + noisy))
    np.testing.assert_allclose(found, own_thresholds(clean, noisy), rtol=0.01)
    assert curve[0] == 1
    assert np.isinf(thresholds_of_shares(curve, np.array([0.48])))
    assert len(curve) == len(SHARES) == 10


def orthogonal(n=16, d=600, norm=9.0, eta=0.2, seed=3):
    return tokens_of(orthogonal_sample(SignalNoiseLaw(n, d, norm, eta), seed), 0)


@pytest.mark.parametrize("norm", [1.5, 7.0, 40.0])
@pytest.mark.parametrize("kind", SELECTIONS)
def test_costs_are_exact_for_orthogonal_noise(kind, norm):
    tokens = orthogonal(norm=norm)
    clean, flipped = tokens.counts()
    assert (flipped > 0).all()
    assert (clean > flipped).all()
    assert unnormalised_svm(tokens, kind) == pytest.approx(unnormalised_cost(tokens, kind), rel=1e-9)


def every_selection(tokens):
    """(selection, |v|^2) of all selections in {0, 1}^2 of every sample that the exact SVM separates, (0, 0) left out."""
    for pattern in itertools.product(((1, 1), (0, 1), (1, 0)), repeat=tokens.n):
        signal, noise = np.array(pattern, dtype=float).T[..., None]
        try:
            yield pattern, hard_margin(signal * tokens.signal + noise * tokens.noise, tokens.labels).norm_squared
        except NotSeparable:  # a clean and a flipped sample of one class, both on the signal alone
            continue


def test_free_weights_are_the_best_of_all_selections():
    """3^6 exact SVMs on real noise, far below and above the normalised threshold: clean samples take both, flipped their noise."""
    drawn = SignalNoiseLaw(6, 1200, 1.0, 0.2).draw(2, 1)
    tokens = tokens_of(drawn, 0)
    assert 0 < (~tokens.clean).sum() < 3
    for norm in (4.0, 40.0):
        at = tokens.with_signal_norm(norm)
        cost, weights = min(((cost, weights) for weights, cost in every_selection(at)), key=lambda found: found[0])
        assert (np.array(weights) == np.stack([tokens.clean, np.ones(6)], 1)).all()
        assert cost == pytest.approx(unnormalised_svm(at, "free"), rel=1e-9)
        assert cost < unnormalised_svm(at, "shared") < unnormalised_svm(at, "noise")


def test_selected_vectors():
    tokens = orthogonal()
    both = selected(tokens, "shared")
    np.testing.assert_allclose(both, tokens.signal + tokens.noise)
    np.testing.assert_allclose(selected(tokens, "free")[tokens.clean], both[tokens.clean])
    np.testing.assert_allclose(selected(tokens, "free")[~tokens.clean], tokens.noise[~tokens.clean])
    np.testing.assert_allclose(selected(tokens, "noise"), tokens.noise)


@pytest.mark.parametrize("norm", [4.0, 8.0, 10.5, 13.0, 30.0])
def test_unbounded_weights_are_a_linear_programme(norm):
    """min sum |m| / |x|^2 subject to margins >= 1, one class at a time: the signal is used iff rho^2 (|C| - |N|) > d."""
    tokens = orthogonal(norm=norm)
    for k in (0, 1):
        clean, flipped = (int(part[k]) for part in tokens.counts())
        # Without the signal every sample pays 1/d; with it all of the clean margin pays 1/rho^2, every flipped sample 2/d.
        with_signal, without = 1 / norm**2 + 2 * flipped / 600, (clean + flipped) / 600
        count = clean + flipped
        price = np.concatenate([[1 / norm**2], np.full(count, 1 / 600)])
        sign = np.concatenate([np.ones(clean), -np.ones(flipped)])
        margins = np.column_stack([sign, np.eye(count)])
        # Variables: positive and negative parts of the signal's and of every noise token's product.
        found = linprog(np.concatenate([price, price]), A_ub=-np.hstack([margins, -margins]), b_ub=-np.ones(count))
        uses_signal = found.x[0] - found.x[1 + count] > 1e-9
        assert found.fun == pytest.approx(min(with_signal, without), rel=1e-7)
        assert uses_signal == (norm**2 * (clean - flipped) > 600)


def test_linearised_softmax_leaves_the_trap_and_sparsemax_does_not():
    (left, rise), (stays, falls) = (trap_exits(name, 5, 4000) for name in ("linearised softmax", "sparsemax"))
    assert left.mean() > 0.02
    assert not stays.any()
    assert rise.max() <= 0
    assert falls.max() <= 0
    assert len(left) > 1000
    assert len(stays) > 1000


# --- claims and their controls, each in its own world ----------------------------------------------------------------------

DRAWS = 60


def boundary_moves(boundary):
    """Moves of weights whose side changes at this x."""
    x = torch.as_tensor(np.repeat([0.5, 0.9, 1.1, 1.15, 1.5, 1.8], 5))
    moves = torch.outer(torch.sign(x - boundary), torch.tensor([0.0, 0.01, 0.02]).double())
    return Study(moves={"sparsemax": (x, moves, torch.ones_like(x))})


def costs(own, noise, kind):
    def all_draws(value):
        return torch.full((DRAWS, len(MARGIN_NORMS)), value).double()

    return Study(svm={kind: all_draws(own), "noise": all_draws(noise)}, cost={kind: all_draws(0.004)})


def exits(leaving, rise):
    """Of 50 steps: the maps named leave the trap, and the clean logit rises by so much with every map."""
    return Study(exits={name: (np.full(50, float(name in leaving)), np.full(50, rise)) for name in WEIGHTS})


def flows(factor, sign):
    P = torch.linspace(0.1, 20, 8, dtype=torch.float64).unsqueeze(1).expand(8, 12)
    squares = {"sigmoid": 2 * (P + torch.expm1(P)), "half plus": P + P**2}
    return Study(flows={name: Study(V=sign * (factor * square).sqrt(), P=P) for name, square in squares.items()})


def between(followed):
    x = np.tile(np.geomspace(1.8, 3.2, 8), (DRAWS, 1))
    boundaries = {"own": 2.0, "softmax": 2.8}
    found = Study(
        x=x, on_signal=x > boundaries[followed], boundary=np.full_like(x, 2.0), softmax=np.full_like(x, 2.8),
        between=(x > 2.02) & (x < 2.77),
    )  # fmt: skip
    return Study(fates={"sparsemax": found})


def linear(rule):
    net, x = (np.tile(part, (DRAWS, 1)) for part in ([0.5, 0.5, 1.5, 1.5, 3.0], [0.7, 1.2, 0.8, 1.4, 2.0]))
    on_signal = {"net": net > 1, "x": x > 1, "twice": net > 2}[rule]
    far = np.ones_like(net, dtype=bool)
    return Study(linear_fates=Study(net=net, x=x, on_signal=on_signal, far=far, disputed=(net > 1) != (x > 1)))


OTHERS = [name for name in WEIGHTS if name != "linearised softmax"]


@pytest.mark.parametrize(
    ("id", "own", "others"),
    [
        ("Q61", boundary_moves(1.0), [boundary_moves(1.2)]),
        ("Q64b", exits(["linearised softmax"], -0.1), [exits(OTHERS, -0.1), exits([], 0.1)]),
        ("Q65", between("own"), [between("softmax")]),
        *((id, costs(0.004, 0.005, kind), [costs(0.0044, 0.005, kind), None])
          for id, kind in (("Q23", "free"), ("Q66", "shared"))),
        ("Q67", flows(1.0, 1.0), [flows(1 / 1.01, 1.0), None]),
        ("Q68", linear("net"), [linear("x"), linear("twice")]),
    ],
)  # fmt: skip
def test_claims_and_controls_each_hold_in_their_own_world(id, own, others):
    assert worlds(CLAIMS[id], own, *others) == []
