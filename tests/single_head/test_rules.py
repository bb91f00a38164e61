"""Update rules: those of entries against their formulas, rotations, and the batches of a mini-batch rule."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from attnbook.single_head.coordinates import rotate
from attnlib.single_head import rules
from attnlib.single_head.law import Sample, SignalNoiseLaw
from attnlib.single_head.rules import Rule
from attnlib.single_head.training import train_heads
from tests.bad_input import refusing

LAW = SignalNoiseLaw(n=6, d=15, signal_norm=3.0, label_noise=0.3)
STEP, ATTENTION_STEP, STEPS = 0.3, 0.2, 5
INVARIANT = [
    rules.GRADIENT_DESCENT, rules.heavy_ball(0.8), rules.nesterov(0.6), rules.NORMALISED, rules.BLOCK_NORMALISED,
    rules.stochastic(2),
]  # fmt: skip
COORDINATEWISE = [rules.SIGN_DESCENT, rules.adam((0.7, 0.95), 1e-6)]


def sample_and_start(runs: int = 2, heads: int = 1) -> tuple[Sample, tuple[torch.Tensor, torch.Tensor]]:
    sample = LAW.draw(1, runs, coordinates="dense")
    generator = torch.Generator().manual_seed(2)
    shape = (runs, heads, LAW.d)
    v, p = (0.3 * torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(2))
    return sample, (v, p)


def slopes(sample: Sample, run: int, x: torch.Tensor) -> torch.Tensor:
    """Gradient of the mean loss by autograd; x (2, d) is one run's v and p."""
    x = x.clone().requires_grad_()
    tokens, labels = sample.tokens[run], sample.labels[run]
    output = (torch.softmax(tokens @ x[1], -1) * (tokens @ x[0])).sum(-1)
    (torch.log1p(torch.exp(-labels * output)).mean()).backward()
    return x.grad


def by_hand(rule: Rule, sample: Sample, run: int, x: torch.Tensor) -> torch.Tensor:
    """v and p after STEPS steps, the rule's formula written out with moments started at zero."""
    size = torch.tensor([[STEP], [ATTENTION_STEP]], dtype=torch.float64)
    first, second = torch.zeros_like(x), torch.zeros_like(x)
    for step in range(1, STEPS + 1):
        g = slopes(sample, run, x)
        if rule is rules.SIGN_DESCENT:
            x = x - size * torch.sgn(g)
        else:
            b1, b2, eps = rule.moments
            first, second = b1 * first + (1 - b1) * g, b2 * second + (1 - b2) * g**2
            x = x - size * (first / (1 - b1**step)) / ((second / (1 - b2**step)).sqrt() + eps)
    return x


@pytest.mark.parametrize("rule", COORDINATEWISE, ids=str)
def test_rules_that_look_at_entries_follow_their_formulas(rule: Rule) -> None:
    sample, start = sample_and_start()
    path = train_heads(sample, STEP, STEPS, attention_step_size=ATTENTION_STEP, rule=rule, start=start, record=[])
    for run in range(2):
        expected = by_hand(rule, sample, run, torch.stack([start[0][run, 0], start[1][run, 0]]))
        found = torch.stack([path.v[-1, run, 0], path.p[-1, run, 0]])
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("rule", [*INVARIANT, *COORDINATEWISE], ids=str)
def test_which_rules_commute_with_rotations(rule: Rule) -> None:
    sample, start = sample_and_start(heads=2)
    rng = np.random.default_rng(0)
    turn = torch.as_tensor(np.linalg.qr(rng.standard_normal((LAW.d, LAW.d)))[0])
    turned = rotate(sample, turn)
    assert turned.coordinates == "dense"
    paths = [
        train_heads(s, STEP, STEPS, heads=2, rule=rule, start=x, record=[], method="vectors")
        for s, x in ((sample, start), (turned, tuple(y @ turn.mT for y in start)))
    ]
    assert rule.rotation_invariant == (rule in INVARIANT)
    if rule.rotation_invariant:
        torch.testing.assert_close(paths[0].margins, paths[1].margins, rtol=0, atol=1e-12)
    else:
        assert (paths[0].margins - paths[1].margins).abs().max() > 0.05


def test_rules_that_look_at_entries_are_refused_in_reduced_coordinates() -> None:
    for rule in COORDINATEWISE:
        for sample in (LAW.draw(0), replace(LAW.draw(0, coordinates="dense"), coordinates="reduced")):
            with pytest.raises(ValueError, match=f"rule {rule.name!r} .* does not commute with rotations"):
                train_heads(sample, STEP, 1, rule=rule)
        assert train_heads(LAW.draw(0, coordinates="dense"), STEP, 1, rule=rule).steps == (0, 1)


def test_an_epoch_sees_every_sample_once_and_runs_can_be_cut() -> None:
    rule = rules.stochastic(4)
    orders = rules.batch_orders(rule, 12, 7, seed=3, runs=range(2, 5))
    assert orders.shape == (3, 7, 4)
    for run in orders:
        assert sorted(run[:3].ravel()) == sorted(run[3:6].ravel()) == list(range(12))
    assert not np.array_equal(orders[0, :3], orders[0, 3:6])
    assert not np.array_equal(orders[0], orders[1])
    alone = rules.batch_orders(rule, 12, 30, seed=3, runs=[3])
    assert np.array_equal(alone[0, :7], orders[1])
    assert rules.batch_orders(rules.GRADIENT_DESCENT, 12, 7, seed=3, runs=[0]) is None


def test_one_full_batch_is_gradient_descent() -> None:
    sample, start = sample_and_start()
    pair = [
        train_heads(sample, STEP, 4, rule=rule, start=start) for rule in (rules.stochastic(6), rules.GRADIENT_DESCENT)
    ]
    torch.testing.assert_close(pair[0].v, pair[1].v, rtol=0, atol=1e-14)


def test_a_gradient_of_zero_moves_nothing() -> None:
    sample, _ = sample_and_start()
    for method in ("vectors", "gram"):
        path = train_heads(sample, STEP, 1, rule=rules.BLOCK_NORMALISED, method=method)
        assert (path.p == 0).all()
        assert path.v[1].norm(dim=-1).flatten().tolist() == pytest.approx([STEP, STEP], rel=1e-12)


test_bad_arguments_are_refused = refusing(
    (lambda: rules.nesterov(1.0), "momentum must be in"),
    (rules.adam, (), {"betas": [(0.9, 1.0), (-0.1, 0.9)]}),
    (lambda: train_heads(LAW.draw(0), STEP, 1, rule=rules.stochastic(4)), "batches of 4 must divide .* n = 6"),
    (
        lambda: train_heads(
            LAW.draw(0, 2, coordinates="dense"), torch.tensor([0.1, 0.2], dtype=torch.float64), 1, rule=rules.adam()
        ),
        "step_size must be one number with rule 'Adam'",
    ),
)
