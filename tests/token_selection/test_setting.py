"""II.1: the readable recursion against autograd and the program, wrong constants, regimes, a law with more helpful tokens."""

import math
from types import SimpleNamespace

import pytest
import torch

from attnbook.token_selection.setting.claims import CLAIMS
from attnbook.token_selection.setting.study import (
    compare_sampling,
    force_at_gap,
    long_run,
    naive_forces,
    setting_study,
    three_lines,
    uniform_accuracy_measured,
    z_scores,
)
from attnlib.token_selection.gram import draw_gram, gram_of
from attnlib.token_selection.law import Start, TokenLaw
from attnlib.token_selection.model import forces
from attnlib.token_selection.training import train
from bookkit.claims import Verdict

LAW = TokenLaw(4, 31, 5, 5.0, label_noise=0.5)
START = Start(prompt_scale=0.7)


def autograd_scores(
    law: TokenLaw, start: Start, seed: int, alpha: float, steps: int, trained: str = "both"
) -> torch.Tensor:
    """Scores by automatic differentiation of the loss, written out here once more."""
    sample = law.draw(seed)
    X, y = sample.tokens[0], sample.labels.observed[0]
    W, p = (x.clone().requires_grad_() for x in start.draw(law.d, seed))
    path = []
    for step in range(steps + 1):
        z = X @ W.T @ p
        path.append(z.detach())
        if step == steps:
            break
        f = (torch.softmax(z, -1) * (X @ sample.head)).sum(-1)
        torch.log(1 + torch.exp(-y * f)).mean().backward()
        with torch.no_grad():
            W -= alpha * W.grad * (trained != "p")
            p -= alpha * p.grad * (trained != "W")
        W.grad = p.grad = None
    return torch.stack(path)


def test_three_lines_are_gradient_descent_by_automatic_differentiation():
    expected = autograd_scores(LAW, START, 3, 0.3, 60)
    gram = gram_of(LAW.draw(3), START)
    assert expected.sub(expected[0]).abs().max() > 1  # something moved
    torch.testing.assert_close(three_lines(gram, 0.3, 60)[:, 0], expected, rtol=0, atol=1e-11)
    assert (three_lines(gram, 0.3, 60, second_order=0.0)[:, 0] - expected).abs().max() > 1e-3


@pytest.mark.parametrize("trained", ["p", "W"])
def test_if_one_parameter_is_fixed_one_line_is_gradient_descent(trained):
    """Only p moves: z <- z + alpha H_0 c. Only W: z <- z + alpha |p_0|^2 K c. The other rule gives other scores."""
    gram = gram_of(LAW.draw(2), START)
    N, shape = LAW.n * LAW.tokens, (1, LAW.n, LAW.tokens)

    def one_line(matrix):
        z = gram.scores[:, :N, None]
        path = [z.view(shape)]
        for _ in range(40):
            c = forces(path[-1], gram.head_scores, gram.labels.observed).view(1, N, 1)
            z = z + 0.3 * (matrix @ c)
            path.append(z.view(shape))
        return torch.cat(path)

    rules = {"p": gram.weighted[:, :N], "W": gram.prompt_norm_squared[:, None, None] * gram.kernel[:, :N]}
    expected = autograd_scores(LAW, START, 2, 0.3, 40, trained)
    torch.testing.assert_close(one_line(rules.pop(trained)), expected, rtol=0, atol=1e-11)
    (other,) = rules.values()
    assert (one_line(other) - expected).abs().max() > 0.01


def test_the_force_at_a_gap_by_hand():
    gaps = torch.tensor([0.0, 2.0, 50.0, 600.0], dtype=torch.float64)
    computed, exact = force_at_gap(gaps, 5)
    s = math.exp(2) / (math.exp(2) + 4)
    assert exact[1].item() == pytest.approx(s * (1 - s) / (1 + math.exp(s)), rel=1e-14)
    assert exact[2].item() == pytest.approx(4 * math.exp(-50) / (1 + math.e), rel=1e-14)
    torch.testing.assert_close(computed, exact, rtol=1e-13, atol=0)


def test_the_plain_difference_agrees_while_it_has_digits_and_is_zero_afterwards():
    gaps = torch.tensor([1.0, 5.0, 40.0, 100.0], dtype=torch.float64)
    naive, exact = force_at_gap(gaps, 8, naive_forces)
    torch.testing.assert_close(naive[:2], exact[:2], rtol=1e-12, atol=0)
    assert (naive[2:] == 0).all()
    assert (exact[2:] > 0).all()


def test_a_long_run_is_gradient_descent_with_its_own_step_sizes():
    """Its steps, found again with the program and a tiny probing step, give the same time and the same signal score."""
    gram = draw_gram(LAW, 1, 1)
    run = long_run(gram, forces, steps=20, largest_move=0.2, every=20)
    sizes, tiny = [], 1e-9
    for step in range(20):
        here, there = train(gram, [*sizes, tiny], step + 1, record=[step, step + 1]).scores
        sizes.append(0.2 * tiny / (there - here).abs().max().item())
    final = train(gram, sizes, 20, record=[20])
    assert run.log10_time[0, 0].item() == pytest.approx(math.log10(sum(sizes)), abs=1e-5)
    signal = 5.0 * final.direction_on_signals[-1, 0].mean().item()
    assert run.signal_score[0, 0].item() == pytest.approx(signal, rel=1e-4)


def test_sampling_is_told_from_a_wrong_dimension():
    study = compare_sampling(TokenLaw(4, 40, 5, 6.0, label_noise=0.5), START, 0.2, 20, 250, 11)
    assert max(map(abs, z_scores(study.dense, study.drawn).values())) < 4
    assert max(map(abs, z_scores(study.dense, study.drawn_wrong).values())) > 8
    assert {len(values) for values in study.dense.values()} == {250}


def other(thing, **changes):
    return SimpleNamespace(**vars(thing) | changes)


@pytest.fixture(scope="module")
def study():
    return setting_study(TokenLaw(20, 2000, 8, 20.0), 5e-3, dense_d=50, steps=60, runs=1, draws=200, seed=4)


def test_the_floor_leaves_its_regime_at_a_small_signal(study):
    result = CLAIMS["TS16"].check(other(study, law=TokenLaw(4, 100, 5, 2.0, label_noise=0.5)))
    assert result.verdict == Verdict.OUTSIDE
    assert result.violated == "needs head_scale 1 and signal_norm >= 5 noise_std; here 1 and 2"
    assert CLAIMS["TS16"].check(study).violated == ""


def test_where_the_control_is_true_it_holds_and_the_claim_fails(study):
    for id in ("TS11", "TS14", "TS18"):
        check = CLAIMS[id].check(CLAIMS[id].wrong(study))
        assert (check.evidence.holds, check.control.holds) == (False, True), id


def test_equal_means_are_not_one_law(study):
    """Three times the spread, and all statistics moving together: the means are the same, and each is refused."""
    sampling = study.sampling

    def judged(change):
        world = other(study, sampling=other(sampling, drawn={k: change(v) for k, v in sampling.drawn.items()}))
        return CLAIMS["TS14"].seen(world).holds

    assert judged(lambda values: values)
    assert not judged(lambda values: values.mean() + 3 * (values - values.mean()))
    assert not judged(lambda values: values.sort().values)


def test_uniform_attention_with_more_helpful_tokens(study):
    law = TokenLaw(4, 100, 6, 5.0, weak_signal=0.5, label_noise=0.5, same_class_tokens=3)
    measured = uniform_accuracy_measured(law, study.signal_norms.tolist(), 20_000, 5, 0)
    result = CLAIMS["TS15"].check(other(study, law=law, uniform_accuracy=measured))
    assert result.verdict == Verdict.HOLDS
    assert result.has_power
