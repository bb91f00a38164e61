"""The data law: roles of the tokens, labels, streams, and errors for what cannot be."""

import math

import pytest
import torch

from attnlib.token_selection.law import CODE_START, Start, TokenLaw
from tests.bad_input import refusing

LAW = TokenLaw(n=10, d=40, tokens=6, signal_norm=7.0, weak_signal=0.3, noise_std=0.5, same_class_tokens=2)


def test_every_role_has_its_mean():
    """Means over many runs against the table of the paper, class by class, within five standard errors per entry."""
    sample = LAW.draw(1, runs=400)
    mean = sample.tokens.mean(0)  # balanced labels: the same in every run
    se = 0.5 / math.sqrt(400)
    for i, label in enumerate(sample.labels.true[0].tolist()):
        own, other = (0, 1) if label > 0 else (1, 0)
        expected = torch.zeros(6, 40, dtype=torch.float64)
        expected[0, own] = 7.0
        expected[1, other] = 0.3 * 7.0
        expected[2:4, own] = 0.3 * 7.0
        assert (mean[i] - expected).abs().max() < 5 * se
    noise = sample.tokens - sample.tokens.mean(0)
    assert noise.std().item() == pytest.approx(0.5, rel=0.01)


def test_balanced_labels():
    labels = LAW.draw_labels(0, 3)
    assert labels.true.shape == (3, 10)
    for label in (1.0, -1.0):
        of_class = labels.true[0] == label
        assert of_class.sum() == 5
        assert (labels.noisy[0] & of_class).sum() == 1  # 0.2 * 10 / 2


@pytest.mark.parametrize(("n", "eta", "flips"), [(20, 0.2, 2), (20, 0.3, 3), (10, 0.6, 3), (30, 0.1, 1), (20, 0.15, 1)])
def test_flips_per_class_round_down(n, eta, flips):
    labels = TokenLaw(n, 40, 4, 5.0, label_noise=eta).draw_labels(0)
    assert labels.noisy.sum() == 2 * flips
    assert (labels.noisy & (labels.true > 0)).sum() == flips


def test_bernoulli_labels_are_independent_coins():
    law = TokenLaw(50, 40, 4, 5.0, label_noise=0.3, balanced=False)
    labels = law.draw_labels(0, 200)
    count = 50 * 200
    assert abs(labels.noisy.double().mean() - 0.3) < 4 * math.sqrt(0.21 / count)
    assert sorted(labels.true.unique().tolist()) == sorted(labels.observed.unique().tolist()) == [-1, 1]
    assert abs(labels.true.mean()) < 4 / math.sqrt(count)
    assert labels.noisy.sum(1).unique().numel() > 5


def test_runs_do_not_depend_on_the_batch():
    together, alone = LAW.draw(2, runs=4), LAW.draw(2, runs=1, first_run=3)
    assert torch.equal(together.tokens[3], alone.tokens[0])
    law = TokenLaw(9, 40, 4, 5.0, balanced=False)
    assert torch.equal(law.draw_labels(2, 4).observed[3], law.draw_labels(2, 1, first_run=3).observed[0])


def test_fresh_points_share_no_noise_with_training():
    """The authors' code draws both from one generator with one seed: its first n test points carry the training noise."""
    sample = LAW.draw(5)
    fresh, true = LAW.draw_fresh(30, 5)
    noise = sample.tokens[0] - torch.nn.functional.pad(LAW.means(sample.labels.true[0]), (0, 38))
    test_noise = fresh - torch.nn.functional.pad(LAW.means(true), (0, 38))
    overlap = torch.einsum("ntd,msd->ntms", noise, test_noise) / (0.25 * 40)
    assert overlap.abs().max() < 0.9  # a shared vector would give about 1
    assert overlap.std().item() == pytest.approx(1 / math.sqrt(40), rel=0.1)
    assert true.sum() == 0


def test_the_head_reads_a_class_as_plus_or_minus_one_over_root_two():
    head = LAW.head()
    signals = torch.zeros(2, 40, dtype=torch.float64)
    signals[0, 0] = signals[1, 1] = 7.0
    torch.testing.assert_close(signals @ head, torch.tensor([1.0, -1.0]).double() / math.sqrt(2))
    assert head.norm().item() == pytest.approx(1 / 7)
    doubled = TokenLaw(10, 40, 6, 7.0, head_scale=2.0)
    torch.testing.assert_close(doubled.head(), 2 * head)


@pytest.mark.parametrize("start", [Start(0.5, 2.0), CODE_START])
def test_start_has_its_variances(start):
    weight, prompt = start.draw(300, 4)
    assert weight.shape == (300, 300)
    assert weight.var().item() * 300 == pytest.approx(start.weight_scale, rel=0.02)
    assert (prompt @ prompt).item() == pytest.approx(start.prompt_scale, rel=0.35)
    if start.distribution == "uniform":
        assert weight.abs().max() <= 1 / math.sqrt(300)
        assert (prompt == 0).all()
    else:
        assert weight.abs().max() > 3 * math.sqrt(0.5 / 300)


def other(**changes):
    return TokenLaw(**{"n": 10, "d": 40, "tokens": 6, "signal_norm": 7.0, "same_class_tokens": 2} | changes)


test_refusals = refusing(
    (other, (), {"tokens": 3, "n": 1, "d": 2, "weak_signal": 1.2, "label_noise": 1.1}),
    (lambda: other(label_noise=0.1), r"flips 1 of n = 10: take label_noise >= 0\.2"),
    (lambda: Start(weight_scale=0), "nothing moves"),
    (lambda: LAW.draw_labels(0).mean_over("all", torch.zeros(1, 10)), "kind must be one of 'clean', 'noisy'"),
)
