"""Forces against autograd, dense gradient descent against autograd, the recursion against dense gradient descent."""

import pytest
import torch

from attnbook.token_selection import horizon
from attnbook.token_selection.horizon import train_flow
from attnbook.token_selection.setting.study import gradient_descent
from attnlib.token_selection.gram import Gram, draw_gram, gram_of
from attnlib.token_selection.law import CODE_START, Start, TokenLaw
from attnlib.token_selection.model import forces, gradients, loss, outputs
from attnlib.token_selection.training import Recursion, Trajectory, train
from tests.bad_input import refusing

LAW = TokenLaw(n=10, d=121, tokens=5, signal_norm=6.0, weak_signal=0.2)
READOUTS = ("scores", "direction_on_signals", "direction_norm_squared", "prompt_norm_squared", "time")


def autograd(tokens, labels, head, weight, prompt):
    """Minus the gradients, by the model as the paper writes it."""
    weight, prompt = weight.clone().requires_grad_(), prompt.clone().requires_grad_()
    attention = torch.softmax((tokens @ weight.T) @ prompt, -1)
    f = torch.einsum("d,ntd,nt->n", head, tokens, attention)
    torch.log1p(torch.exp(-labels * f)).mean().backward()
    return -weight.grad, -prompt.grad


def test_forces_are_autograd_and_sum_to_zero():
    rng = torch.Generator().manual_seed(0)
    scores, gamma = (torch.randn(3, 4, 7, generator=rng, dtype=torch.float64) for _ in range(2))
    labels = torch.tensor([1.0, -1.0, -1.0, 1.0], dtype=torch.float64)
    z = scores.clone().requires_grad_()
    loss(outputs(z, gamma), labels).sum().backward()
    ours = forces(scores, gamma, labels)
    torch.testing.assert_close(ours, -z.grad, rtol=1e-12, atol=1e-16)
    torch.testing.assert_close(ours.sum(-1), torch.zeros(3, 4, dtype=torch.float64), rtol=0, atol=1e-15)


def test_forces_survive_saturation():
    """At a gap of 200 the weight is 1 - 1e-87: gamma - f by subtraction is 0 or rounding noise, the force is not."""
    scores = torch.tensor([[200.0, 0.0, -1.0]], dtype=torch.float64)
    gamma, labels = torch.tensor([[0.5, -0.25, 0.1]], dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    naive = torch.softmax(scores, -1)[0, 0] * (gamma[0, 0] - outputs(scores, gamma)[0])
    slope = torch.sigmoid(-gamma[0, 0])
    expected = slope * (
        0.75 * torch.exp(torch.tensor(-200.0).double()) + 0.4 * torch.exp(torch.tensor(-201.0).double())
    )
    assert naive == 0
    torch.testing.assert_close(forces(scores, gamma, labels)[0, 0], expected, rtol=1e-12, atol=0)


def stepped(gram: Gram, kept: tuple[int, ...]) -> Trajectory:
    """500 steps of size 0.2 on p alone, one by one."""
    state, rows = Recursion(gram, trained="p"), []
    for step in range(501):
        if step in kept:
            rows.append(state.snapshot())
        state.advance(0.2)
    return state.trajectory(kept, rows)


@pytest.mark.parametrize("trained", ["both", "p"])
@pytest.mark.parametrize("start", [Start(), Start(0.2, 1.5), CODE_START])
def test_recursion_is_dense_descent(start, trained):
    """500 steps, scores up to ten: everything that is recorded agrees to 1e-10."""
    sample = LAW.draw(3, runs=2)
    dense = gradient_descent(sample, start, 0.2, 500, record=[0, 1, 7, 250], trained=trained)
    gram = gram_of(sample, start)
    ours = stepped(gram, dense.steps) if trained == "p" else train(gram, 0.2, 500, record=[0, 1, 7, 250])
    assert dense.scores.abs().max() > 5
    assert dense.steps == ours.steps == (0, 1, 7, 250, 500)
    for name in READOUTS:
        torch.testing.assert_close(getattr(ours, name), getattr(dense, name), rtol=1e-10, atol=1e-10)


def test_dense_descent_takes_autograd_steps_with_variable_step_sizes():
    sample, start, sizes = LAW.draw(1), Start(0.5, 0.8), [0.3, 0.01, 0.2]
    path = gradient_descent(sample, start, sizes, 3)
    weight, prompt = start.draw(121, 1)
    for size in sizes:
        on_weight, on_prompt = autograd(sample.tokens[0], sample.labels.observed[0], sample.head, weight, prompt)
        weight, prompt = weight + size * on_weight, prompt + size * on_prompt
    v = weight.T @ prompt
    torch.testing.assert_close(path.direction_on_signals[-1, 0], v[:2], rtol=1e-11, atol=1e-13)
    assert path.direction_norm_squared[-1, 0].item() == pytest.approx((v @ v).item(), rel=1e-11)
    assert path.prompt_norm_squared[-1, 0].item() == pytest.approx((prompt @ prompt).item(), rel=1e-11)
    assert path.time[-1, 0].item() == pytest.approx(0.51)
    ours = train(gram_of(sample, start), sizes, 3)
    torch.testing.assert_close(ours.scores, path.scores, rtol=1e-11, atol=1e-12)


def test_weighted_is_the_gram_of_the_current_weights():
    """H of the recursion against X W^T W X^T of the dense weights, and v rebuilt from its coordinates (a, b, q)."""
    law, start, steps = TokenLaw(6, 80, 4, 5.0, label_noise=1 / 3), Start(0.4, 0.9), 60
    sample = law.draw(2)
    gram = gram_of(sample, start)
    state = Recursion(gram)
    tokens, labels = sample.tokens[0], sample.labels.observed[0]
    weight, prompt = first_weight, first_prompt = start.draw(80, 2)
    for _ in range(steps):
        state.advance(0.15)
        on_weight, on_prompt, _ = gradients(tokens, labels, sample.head, weight, prompt)
        weight, prompt = weight + 0.15 * on_weight, prompt + 0.15 * on_prompt
    rows = torch.cat([tokens.flatten(0, 1), torch.eye(2, 80, dtype=torch.float64)])
    X = rows[:24]
    torch.testing.assert_close(state.weighted[0], rows @ weight.T @ weight @ X.T, rtol=1e-10, atol=1e-10)
    a, b, q = (x[0] for x in state.coordinates)
    M, v0 = first_weight.T @ first_weight, first_weight.T @ first_prompt
    torch.testing.assert_close(X.T @ a + M @ X.T @ b + q * v0, weight.T @ prompt, rtol=1e-10, atol=1e-12)


def test_batched_equals_single():
    """40 runs cross the chunk boundary twice; every run equals itself alone."""
    law = TokenLaw(8, 5000, 4, 9.0, label_noise=0.25)
    together = train(draw_gram(law, 7, 40, start=Start(0.3, 0.2)), 0.02, 60, record=[5, 30])
    for r in (0, 15, 16, 39):
        alone = train(draw_gram(law, 7, 1, start=Start(0.3, 0.2), first_run=r), 0.02, 60, record=[5, 30])
        for name in READOUTS:
            torch.testing.assert_close(
                getattr(together, name)[:, r : r + 1], getattr(alone, name), rtol=1e-10, atol=1e-12
            )
        assert alone.first_run == r


def test_flow_steps_are_gradient_descent():
    """`train_flow` is `train` with the step sizes it chose; no score moves by much more than it promised."""
    law = TokenLaw(8, 900, 5, 9.0, label_noise=0.25)
    gram = draw_gram(law, 1)
    path = train_flow(gram, steps=80, largest_move=0.1).trajectory
    sizes = path.time.diff(dim=0)[:, 0].tolist()
    again = train(gram, sizes, 80)
    torch.testing.assert_close(again.scores, path.scores, rtol=1e-9, atol=1e-9)
    moves = path.scores.diff(dim=0).abs().amax((1, 2, 3))
    assert moves.max() < 0.12
    assert moves[10:].median() == pytest.approx(0.1, rel=0.1)


# From a small start each of the three bounds decides at some steps, from the usual one the first alone.
@pytest.mark.parametrize(("weight_scale", "long"), [(1 / 3, 1e20), (1e-4, 1e16)])
def test_long_flows_are_those_of_the_readable_step(monkeypatch, weight_scale, long):
    """Many decades: forces of samples that have selected their token keep all digits."""
    gram = draw_gram(TokenLaw(6, 3000, 4, 8.0, label_noise=0.34), 1, 2, start=Start(weight_scale))
    fast = train_flow(gram, steps=1200, record_every=50).trajectory
    monkeypatch.setattr(horizon, "has_numba", lambda: False)
    readable = train_flow(gram, steps=1200, record_every=50).trajectory
    assert fast.time[-1].min() > long
    torch.testing.assert_close(fast.time, readable.time, rtol=1e-9, atol=0)
    torch.testing.assert_close(fast.scores, readable.scores, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(fast.direction_norm_squared, readable.direction_norm_squared, rtol=1e-9, atol=0)


def test_flow_stops_where_it_is_told():
    gram = draw_gram(TokenLaw(8, 900, 5, 9.0, label_noise=0.25), 1, 3)
    level = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)
    path = train_flow(gram, steps=400, done=lambda state: state.scores.abs().amax((1, 2)) > level)
    assert (path.done > 0).all()
    largest = path.trajectory.scores.abs().amax((2, 3))
    for r in range(3):
        assert largest[path.done[r], r] > level[r]
        assert (largest[: path.done[r], r] <= level[r]).all()
    assert path.trajectory.steps[-1] == path.done.max()
    never = train_flow(gram, steps=3, done=lambda state: state.scores.abs().amax((1, 2)) > 1e9)
    assert never.done.tolist() == [-1, -1, -1]


def test_trajectory_readouts():
    """Accuracy, attention and loss by hand, on two runs of three samples, one of them noisy."""
    sample = TokenLaw(10, 121, 5, 6.0).draw(3, runs=2)
    path = gradient_descent(sample, Start(), 0.2, 30, record=[10])
    for s in range(2):
        for r in range(2):
            z, y = path.scores[s, r], sample.labels.observed[r]
            weight = torch.exp(z) / torch.exp(z).sum(1, keepdim=True)
            f = (weight * (sample.tokens[r] @ sample.head)).sum(1)
            fitted = [float(y[i] * f[i] > 0) for i in range(10)]
            noisy = [i for i in range(10) if sample.labels.noisy[r, i]]
            clean = [i for i in range(10) if i not in noisy]
            assert len(noisy) == 2
            assert path.train_accuracy()[s, r].item() == pytest.approx(sum(fitted) / 10)
            assert path.train_accuracy("noisy")[s, r].item() == pytest.approx(sum(fitted[i] for i in noisy) / 2)
            assert path.train_accuracy("clean")[s, r].item() == pytest.approx(sum(fitted[i] for i in clean) / 8)
            torch.testing.assert_close(path.attention_of("noisy")[s, r], weight[noisy].mean(0))
            torch.testing.assert_close(path.attention_of("clean")[s, r], weight[clean].mean(0))
            assert path.loss[s, r].item() == pytest.approx(torch.log1p(torch.exp(-y * f)).mean().item())
    assert path.at(10) == 0
    with pytest.raises(ValueError, match=r"record=\[..., 11\]"):
        path.at(11)


GRAM = gram_of(LAW.draw(0), Start())
test_refusals = refusing(
    (train, (GRAM, 0.1, 5), {"step_size": [0, [0.1]], "steps": -1, "record": [[6]]}),
    (lambda: Recursion(GRAM, trained="p").run((0.1,), (1,)), 'trained must be "both" here; got .p.'),
    (train, (GRAM, 0.1, 5), {"gram": torch.zeros(3)}),
    (lambda: gradients(LAW.draw(0).tokens[0], GRAM.labels.observed[0], LAW.head(), *shapes(-1)), "prompt must have shape"),
)  # fmt: skip


def shapes(end):
    weight, prompt = Start(0.7, 1.3).draw(121, 0)
    return weight, prompt[:end]
