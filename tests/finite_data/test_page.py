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
from attnbook.finite_data.softmax import HEADS, imbalance_of, pattern_of, softmax_rows, train_heads
from attnbook.finite_data.study import TASK_COUNTS, TASK_SHARES, Measurer, ladder_of, make_study
from attnlib.in_context import Circuits, Prompts, predict
from attnlib.randomness import stream
from tests.worlds import worlds


def test_a_rung_is_a_mean_over_draws_of_fits_at_one_size() -> None:
    law = TaskLaw(6, 6, 3, 0.1)
    ladder = Measurer(1.0, 0.1, draws=3, seed=4).ladder(0.5, law, (4, 6, 8), (2, 3, 1))
    data = law.draw(21, 4, runs=9, first_run=20_000)
    expected = exact_error(fit_attention(data), law).reshape(3, 3).mean(1)
    torch.testing.assert_close(ladder.fresh[:, 1], expected)
    assert ladder.limit["seen"].shape == (3,)


def test_a_limit_is_that_of_the_numbers_of_tasks_that_were_drawn() -> None:
    """At kappa = 0.3, 5, 10 and 19 tasks are drawn in 16, 32 and 64 dimensions, for which the formula differs."""
    here = Measurer(1.0, 0.1, draws=12, seed=1)
    laws = tuple(here.law(0.3, d) for d in (16, 32, 64))
    assert [law.tasks for law in laws] == [5, 10, 19]
    ladder = ladder_of(math.inf, laws[0], laws, *here.unlimited(laws, 50, 4))
    for tasks in ("fresh", "seen"):
        values, plain = ladder.limit[tasks], extrapolate(ladder.sizes, getattr(ladder, tasks))
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
    assert list(rows) == [1, 4]
    for row in rows.values():
        assert row.seen.shape == row.linear_fresh.shape == row.pattern.shape == (2,)
        assert (row.linear_seen < row.linear_fresh).all()
    omega = torch.tensor([[0.5, -0.5]], dtype=torch.float64)
    eye = torch.diag(torch.tensor([1.0, 1, 1, 0], dtype=torch.float64))
    spike = torch.zeros(4, 4, dtype=torch.float64)
    spike[3, 1] = 0.5 * math.sqrt(3)  # as much norm as the pattern
    circuits = Circuits(omega[..., None, None] * eye + spike, torch.ones(1, 2, 4, dtype=torch.float64))
    assert pattern_of(circuits).item() == pytest.approx(0.5)
    assert imbalance_of(circuits).item() == pytest.approx(1.0)


# --- controls ---------------------------------------------------------------------------------------------------------


def near(*middles: float) -> torch.Tensor:
    """(20, ...): draws that differ by a per mille."""
    middle = torch.tensor(middles, dtype=torch.float64)
    return middle * (1 + 1e-3 * torch.as_tensor(np.random.default_rng(2).standard_normal((20, len(middles)))))


LAW = TaskLaw(16, 16, 8, 0.1)


def _ladder(tau: float, kappa: float) -> SimpleNamespace:
    """Errors of a ladder in the limit."""
    limit = {tasks: near(limit_error(tau, LAW.alpha, kappa, LAW.noise, tasks))[:, 0] for tasks in ("fresh", "seen")}
    return SimpleNamespace(tau=tau, kappa=LAW.kappa, limit=limit)


def fitted(kappa: float) -> SimpleNamespace:
    return SimpleNamespace(law=LAW, ladders=[_ladder(0.5, kappa), _ladder(2.0, kappa)])


def transition() -> SimpleNamespace:
    """Excesses at two lengths, (20, 2, 3)."""
    rows = [[0.52 * 4 ** (power * far) for power in (0.0, 0.5, 1.0)] for far in (1, 0)]
    return SimpleNamespace(long=torch.stack([near(*row) for row in rows], 1))


def peak() -> SimpleNamespace:
    plain, ridge = near(200.0).expand(20, 10), near(2.34).expand(20, 10)
    return SimpleNamespace(law=LAW, curve={"fresh": plain, "penalty": ridge})


def memory() -> SimpleNamespace:
    posterior, linear = (near(error).expand(1, 20, len(TASK_SHARES)) for error in (1.65, 0.935))
    return SimpleNamespace(law=LAW, predictors=posterior, shares=linear)


def one_task(noise: float = 0.1) -> SimpleNamespace:
    step = 1 / (1 + 1 / 16 + 1 + noise)
    step, pattern, full = (near(x)[:, 0] for x in (step, 1.1 - step, 2.18))
    return SimpleNamespace(one_task=SimpleNamespace(law=LAW, step=step, pattern=pattern, full=full))


def heads() -> SimpleNamespace:
    rows = {k: SimpleNamespace(imbalance=near(0.01)[:, 0]) for k in TASK_COUNTS}
    rows[2].pattern, rows[20].pattern = near(0.1)[:, 0], near(0.95)[:, 0]
    return SimpleNamespace(heads=rows)


@pytest.mark.parametrize(
    ("name", "own", "others"),
    [
        ("E2", fitted(LAW.kappa), (fitted(math.inf), CLAIMS["E2"].wrongs[1](fitted(LAW.kappa)))),
        ("E5", transition(), (SimpleNamespace(long=transition().long.roll(-1, -1)),)),
        ("E9", one_task(), (one_task(noise=0.0), CLAIMS["E9"].wrongs[1](one_task()))),
        *((name, world(), (CLAIMS[name].wrong(world()),)) for name, world in (("E6", peak), ("E8", memory), ("E11", heads))),
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
