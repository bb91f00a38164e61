"""What the page of finite data in context measures: its softmax heads a second way, its study, its claims and their controls."""

import math
from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

from attnbook.finite_data import TaskLaw, exact_error, extrapolate, fit_attention, limit_error
from attnbook.finite_data.claims import CLAIMS
from attnbook.finite_data.figures import draw_descent, draw_transition
from attnbook.finite_data.softmax import HEADS, softmax_rows, train_heads
from attnbook.finite_data.study import Ladder, Measurer, make_study
from attnlib.in_context import Circuits, Prompts, predict
from attnlib.randomness import stream
from tests.worlds import worlds


def test_a_rung_is_a_mean_over_draws_of_fits_at_one_size() -> None:
    law = TaskLaw(6, 6, 3, 0.1)
    ladder = Measurer(1.0, 0.1, draws=3, seed=4).ladder(0.5, law, (4, 6, 8), (2, 3, 1))
    data = law.draw(21, 4, runs=9, first_run=20_000)
    expected = exact_error(fit_attention(data), law).reshape(3, 3).mean(1)
    torch.testing.assert_close(ladder.fresh[:, 1], expected)
    assert ladder.limit("seen").shape == (3,)


def test_a_limit_is_that_of_the_numbers_of_tasks_that_were_drawn() -> None:
    """At kappa = 0.3, 5, 10 and 19 tasks are drawn in 16, 32 and 64 dimensions, for which the formula differs."""
    here = Measurer(1.0, 0.1, draws=12, seed=1)
    laws = tuple(here.law(0.3, d) for d in (16, 32, 64))
    assert [law.tasks for law in laws] == [5, 10, 19]
    ladder = Ladder(math.inf, laws[0], laws, *here.unlimited(laws, 50, 4))
    for tasks in ("fresh", "seen"):
        values, plain = ladder.limit(tasks), extrapolate(ladder.sizes, getattr(ladder, tasks))
        error, formula = values.std() / 12**0.5, limit_error(math.inf, 1.0, 5 / 16, 0.1, tasks)
        assert abs(values.mean() - formula) < 3 * error
        assert abs(plain.mean() - formula) > 3 * error


# --- softmax heads --------------------------------------------------------------------------------------------------


def test_an_opposite_pair_with_small_scores_is_linear_attention() -> None:
    """Up to third order in the scores, with centred features: the proposition of the chapter."""
    law = TaskLaw(d=4, length=9, tasks=2, noise=0.2)
    drawn = law.draw_prompts(50, 1, runs=1)
    random = np.random.default_rng(3)
    key, scale = torch.as_tensor(random.standard_normal((5, 4))), 1e-4
    pad = torch.nn.functional.pad(scale * key, (0, 1))
    value = torch.tensor([0, 0, 0, 0, 0.7], dtype=torch.float64)
    circuits = Circuits(torch.stack([pad, -pad]), torch.stack([value, -value]))
    x, y, query = 2 * drawn.x[0], drawn.y[0], 2 * drawn.query[0]
    found = predict(circuits, Prompts(x, y, query, drawn.target[0], drawn.task[0] / 2))
    tokens = torch.cat([x, y[..., None]], dim=-1)
    covariance = torch.einsum("nl,nli->ni", y - y.mean(1, keepdim=True), tokens) / 9
    expected = 2 * 0.7 * scale * ((covariance @ key) * query).sum(-1)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-12)


def test_a_step_of_training_is_adams_on_the_loss_of_part_threes_predictions() -> None:
    """The first step of Adam moves each entry by the rate, against the sign of the gradient of the loss, computed here by `predict`."""
    law = TaskLaw(d=3, length=6, tasks=2, noise=0.1)
    known = law.draw_tasks(2, runs=2)
    after = train_heads(known, [2, 1], law, steps=1, seed=5)
    for run in range(2):
        start = torch.as_tensor(0.02 * stream(5, "start", run).standard_normal((HEADS, 4, 4)))
        sign = torch.tensor([1.0, -1.0], dtype=torch.float64)[:, None, None]
        key = start[..., :3] + 0.1 * sign * torch.nn.functional.pad(torch.eye(3, dtype=torch.float64), (0, 0, 0, 1))
        value = start[..., 3] + 0.5 * sign[:, 0] * torch.tensor([0, 0, 0, 1.0], dtype=torch.float64)
        key.requires_grad_()
        value.requires_grad_()
        random = stream(5, "batches", run)
        picks = random.integers(0, 2 - run, (1, 64))[0]
        normal = torch.as_tensor(random.standard_normal((1, 64, 7, 4))[0])
        task = known[run][torch.as_tensor(picks)] / math.sqrt(3)
        x = normal[..., :3]
        y = torch.einsum("bli,bi->bl", x, task) + math.sqrt(0.1) * normal[..., 3]
        circuits = Circuits(torch.nn.functional.pad(key, (0, 1)), value)
        given = Prompts(x[:, :6], y[:, :6], x[:, 6], y[:, 6], task)
        (predict(circuits, given) - y[:, 6]).square().mean().backward()
        assert key.grad is not None
        assert value.grad is not None
        for found, begin in ((after.key_query[run][..., :3], key), (after.output_value[run], value)):
            by_adam = begin.detach() - 0.03 * begin.grad / (begin.grad.abs() + 1e-8)
            torch.testing.assert_close(found, by_adam, rtol=0, atol=1e-12)


def test_rows_of_softmax_heads() -> None:
    rows = softmax_rows((1, 4), d=3, length=6, noise=0.1, draws=2, steps=5, prompts=500, seed=1)
    assert [row.tasks for row in rows] == [1, 4]
    for row in rows:
        assert row.seen.shape == row.linear_fresh.shape == row.pattern.shape == (2,)
        assert (row.linear_seen < row.linear_fresh).all()
    omega = torch.tensor([[0.5, -0.5]], dtype=torch.float64)
    eye = torch.diag(torch.tensor([1.0, 1, 1, 0], dtype=torch.float64))
    spike = torch.zeros(4, 4, dtype=torch.float64)
    spike[3, 1] = 0.5 * math.sqrt(3)  # as much norm as the pattern
    circuits = Circuits(omega[..., None, None] * eye + spike, torch.ones(1, 2, 4, dtype=torch.float64))
    one = type(rows[0])(1, circuits, *(rows[0].seen for _ in range(4)))
    assert one.pattern.item() == pytest.approx(0.5)
    assert one.imbalance.item() == pytest.approx(1.0)
    assert one.log_ratio.abs().max() == 0


# --- controls ---------------------------------------------------------------------------------------------------------


def near(*middles: float) -> torch.Tensor:
    """(20, ...): draws that differ by a per mille."""
    middle = torch.tensor(middles, dtype=torch.float64)
    return middle * (1 + 1e-3 * torch.as_tensor(np.random.default_rng(2).standard_normal((20, len(middles)))))


LAW = TaskLaw(16, 16, 8, 0.1)


def swapped(*pair: float, own: bool) -> tuple[torch.Tensor, ...]:
    return tuple(near(*(pair if own else pair[::-1])).T)


def _ladder(tau: float, own: bool | None) -> SimpleNamespace:
    """Errors of a ladder in the limit; `own` None: every prompt has a task of its own."""
    kappa = math.inf if own is None else LAW.kappa
    pair = {tasks: limit_error(tau, LAW.alpha, kappa, LAW.noise, tasks) for tasks in ("fresh", "seen")}
    told = pair if own is not False else dict(zip(pair, reversed(pair.values()), strict=True))
    return SimpleNamespace(tau=tau, kappa=LAW.kappa, limit=lambda tasks: near(told[tasks])[:, 0])


def fitted(own: bool | None) -> SimpleNamespace:
    return SimpleNamespace(law=LAW, ladders=(_ladder(0.5, own), _ladder(2.0, own)))


def transition(own: bool) -> SimpleNamespace:
    """Excesses at two lengths, (20, 2, 3)."""
    exponents, level = ((0.0, 0.5, 1.0), 0.52) if own else ((0.5, 1.0, 0.0), 0.47)
    rows = [[level * 4 ** (power * far) for power in exponents] for far in (1, 0)]
    return SimpleNamespace(long=torch.stack([near(*row) for row in rows], 1))


def peak(own: bool) -> SimpleNamespace:
    plain, ridge = swapped(200.0, 2.34, own=own)
    return SimpleNamespace(law=LAW, curve=torch.stack([plain, plain, ridge])[..., None].expand(3, 20, 10))


def memory(own: bool) -> SimpleNamespace:
    posterior, linear = swapped(1.65, 0.935, own=own)
    return SimpleNamespace(law=LAW, predictors=[posterior], shares=[linear], at_kappa=lambda values: values)


def one_task(own: bool, noise: float = 0.1) -> SimpleNamespace:
    step = 1 / (1 + 1 / 16 + 1 + noise)
    pattern, full = swapped(1.1 - step, 2.18, own=own)
    return SimpleNamespace(one_task=SimpleNamespace(law=LAW, step=near(step)[:, 0], pattern=pattern, full=full))


def heads(own: bool) -> SimpleNamespace:
    imbalance, *_ = swapped(0.01, 0.99, own=own)
    pattern = dict(zip((2, 20), swapped(0.1, 0.95, own=own), strict=True))
    rows = {k: SimpleNamespace(imbalance=imbalance, pattern=pattern[k]) for k in (2, 20)}
    return SimpleNamespace(heads=rows)


@pytest.mark.parametrize(
    ("name", "own", "others"),
    [
        ("E2", fitted(True), (fitted(None), fitted(False))),
        ("E9", one_task(True), (one_task(True, noise=0.0), one_task(False))),
        *((name, world(True), (world(False),)) for name, world in (
            ("E5", transition), ("E6", peak), ("E8", memory), ("E11", heads)
        )),
    ],
)  # fmt: skip
def test_claim_and_controls_each_hold_in_their_own_world(name: str, own: object, others: tuple[object, ...]) -> None:
    assert worlds(CLAIMS[name], own, *others) == []


@pytest.mark.weekly
def test_the_figures_show_the_limits_as_lines() -> None:
    study = make_study(1.0, 0.5, 0.1, draws=10, steps=20, penalty=0.05, softmax_draws=2, seed=3)
    draw_descent(study)
    curves = [line.get_xydata() for line in plt.gca().lines if len(line.get_xydata()) == 160]
    for curve, tasks in zip(curves, ("fresh", "seen"), strict=True):
        limit = limit_error(2.0, 1.0, 0.5, 0.1, tasks)
        assert np.interp(2.0, curve[:, 0], curve[:, 1]) == pytest.approx(limit, rel=1e-3)
    draw_transition(study)
    drawn = {tuple(np.round(line.get_ydata(), 9)) for line in plt.gca().lines}
    assert tuple(np.round(study.shares[0].mean(0).numpy(), 9)) in drawn
    plt.close("all")
    assert list(CLAIMS) == [f"E{number}" for number in (1, 2, *range(4, 12))]
