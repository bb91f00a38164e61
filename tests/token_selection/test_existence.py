"""II.5: the constructed direction by vectors, gradient descent on p, and worlds in which claims or controls are true."""

import math
from types import SimpleNamespace

import pytest
import torch

from attnbook.token_selection.existence.claims import CLAIMS
from attnbook.token_selection.existence.study import constructed, existence_study, memorised_share, train_prompt
from attnlib.token_selection.gram import gram_of
from attnlib.token_selection.law import Start, TokenLaw
from bookkit.claims import Verdict

LAW = TokenLaw(6, 60, 5, 5.0, weak_signal=0.3, noise_std=1.3, label_noise=1 / 3)


def direction(sample, r: int, c: float) -> torch.Tensor:
    """p of run r as a vector, from the law's means and the tokens themselves."""
    mean = torch.zeros_like(sample.tokens[r])
    mean[..., :2] = sample.law.means(sample.labels.true[r])
    noise = sample.tokens[r] - mean
    p = torch.zeros(sample.law.d, dtype=torch.float64)
    p[:2] = sample.law.signal_norm
    for i, flipped in enumerate(sample.labels.noisy[r].tolist()):
        p += c * noise[i, 1 if flipped else 0]
    return p


@pytest.fixture(scope="module")
def both():
    sample = LAW.draw(3, 4)
    strengths = (0.05, 0.4, 1.7)
    return sample, strengths, constructed(gram_of(sample, Start()), strengths, count=4000)


def test_training_accuracies_by_vectors(both):
    sample, strengths, ladder = both
    for r in range(4):
        y, noisy = sample.labels.observed[r], sample.labels.noisy[r]
        for k, c in enumerate(strengths):
            z, values = sample.tokens[r] @ direction(sample, r, c), sample.tokens[r] @ sample.head
            soft = ((torch.softmax(z, -1) * values).sum(-1) * y > 0).double()
            best = z.argmax(-1)
            hard = (values[torch.arange(6), best] * y > 0).double()
            assert ladder.train_softmax[r, k] == soft.mean()
            assert ladder.train_argmax[r, k] == hard.mean()
            assert ladder.clean_argmax[r, k] == pytest.approx(hard[~noisy].mean().item())
            assert ladder.noisy_argmax[r, k] == pytest.approx(hard[noisy].mean().item())
            chosen = sample.tokens[r, torch.arange(6), best, :2]
            torch.testing.assert_close(ladder.projections[r, k], chosen, rtol=0, atol=1e-10)
    assert 0 < ladder.noisy_argmax.mean() < 1  # something to compare


def test_norm_and_fresh_accuracy_by_vectors(both):
    sample, strengths, ladder = both
    count = 20_000
    points, true = LAW.draw_fresh(count, 8)
    values = points @ sample.head
    for r, k in ((0, 0), (1, 1), (2, 2), (3, 1)):
        p = direction(sample, r, strengths[k])
        assert ladder.norm_squared[r, k].item() == pytest.approx((p @ p).item(), rel=1e-10)
        z = points @ p
        hard = (values.gather(1, z.argmax(1, keepdim=True))[:, 0] * true > 0).double().mean().item()
        soft = ((torch.softmax(z, -1) * values).sum(-1) * true > 0).double().mean().item()
        allowed = 5 * math.sqrt(0.25 / count + 0.25 / 4000)
        assert abs(ladder.fresh_argmax[r, k].item() - hard) < allowed
        assert abs(ladder.fresh_softmax[r, k].item() - soft) < allowed


def test_memorised_share_has_its_half_at_the_lower_line():
    law = TokenLaw(100, 10_000, 8, 20.0, weak_signal=0.2)
    value = 0.5 * math.erfc(-0.2 * 20 / 2)  # Phi(rho |mu| / sqrt 2)
    assert memorised_share(law, 0.032) == pytest.approx(0.5 * value, rel=1e-12)
    assert memorised_share(law, 0.064, lower=2.0) == pytest.approx(0.5 * value, rel=1e-12)
    ahead = (0.04 * 10_000 - 320) / math.sqrt(2 * (0.04**2 * 1e6 + 800))
    assert memorised_share(law, 0.04) == pytest.approx(0.5 * math.erfc(-ahead / math.sqrt(2)) * value, rel=1e-12)


def test_identity_start_is_training_with_the_identity():
    """p-only descent by vectors with W = I: p <- p + alpha sum c x."""
    sample = LAW.draw(1)
    run = train_prompt(gram_of(sample, Start()), 0.2, 30, moments=4, count=2000)
    X, y, p = sample.tokens[0], sample.labels.observed[0], torch.zeros(60, dtype=torch.float64)
    noisy, sums = sample.labels.noisy[0], torch.zeros(6, dtype=torch.float64)
    coefficients = torch.zeros(6, 5, dtype=torch.float64)
    for step in range(31):
        z = (X @ p).requires_grad_()
        s = torch.softmax(z, -1)
        f = (s * (X @ sample.head)).sum(-1)
        if step == 30:
            break
        c = -torch.autograd.grad(torch.log(1 + torch.exp(-y * f)).mean(), z)[0]
        sums += (s[:, 0] * (1 - s[:, 0])).detach()
        coefficients += 0.2 * c
        p = p + 0.2 * torch.einsum("nt,ntd->d", c, X)
    assert run.train_accuracy[-1, 0].item() == (f * y > 0).double().mean().item()
    strength = coefficients[noisy, 1].mean() / (p[:2].mean() / 5.0)
    assert run.strength[-1, 0].item() == pytest.approx(strength.item(), rel=1e-9)
    other = direction(sample, 0, strength.item())
    cosine = p @ other / (p.norm() * other.norm())
    assert run.alignment[-1, 0].item() == pytest.approx(cosine.item(), rel=1e-9)
    expected = torch.stack([sums[~noisy].mean(), sums[noisy].mean()])
    torch.testing.assert_close(run.still_to_move[:, 0], expected, rtol=1e-10, atol=0)
    assert run.steps == (0, 10, 20, 30)
    assert run.strength[0].isnan().all()


@pytest.fixture(scope="module")
def small():
    law = TokenLaw(40, 60, 5, 5.0, label_noise=0.2)
    return existence_study(law, (0.1, 1.0), step_size=0.1, steps=20, runs=4, count=400)


def test_a_closed_window_is_outside_the_regime(small):
    verdicts = {result.claim.id: result for result in CLAIMS.check(small)}
    assert verdicts["TS54"].verdict == verdicts["TS55"].verdict == Verdict.OUTSIDE
    assert verdicts["TS54"].violated.startswith("needs upper >= 4 lower; here the window is [")
    assert verdicts["TS53"].violated == "needs the author's sizes; here others"


def columns(name, train, fresh):
    """A study in which the construction has these accuracies at three strengths, in every of four training sets."""
    accuracies = {
        f"{kind}_argmax": torch.tensor([row] * 4).double() for kind, row in (("train", train), ("fresh", fresh))
    }
    return SimpleNamespace(law=TokenLaw(100, 10_000, 8, 20.0), **{name: SimpleNamespace(**accuracies)})


def ended(strength, train, fresh, beside=(0.8, 0.6)):
    """Where gradient descent ends: strength in units of the window's lower end; and accuracies of the construction outside the window."""
    end = torch.ones(40, dtype=torch.float64)
    accuracies = (SimpleNamespace(train=a * end, fresh=b * end) for a, b in ((train, fresh), beside))
    ends, outside = accuracies
    ends.strength = 0.03 * strength * end
    return SimpleNamespace(window=(0.03, 0.2), ends=ends, beside=outside)


PANELS = (0.8, 1.0, 1.0), (1.0, 1.0, 0.62)

# A world, and whether the claim and each of its controls hold in it.
WORLDS = [
    ("TS53", columns("authors", *PANELS), [True, False, False]),
    ("TS53", columns("authors", *(row[1:] + row[:1] for row in PANELS)), [False, True, False]),
    ("TS53", columns("authors", *(row[2:] + row[:2] for row in PANELS)), [False, False, True]),
    ("TS54", columns("middle", (1.0, 0.9, 0.9), (1.0, 0.9, 0.9)), [True, False, False]),
    ("TS54", columns("middle", (0.9, 1.0, 0.9), (0.9, 1.0, 0.9)), [False, True, False]),
    ("TS54", columns("middle", (1.0, 1.0, 1.0), (0.9, 0.9, 1.0)), [False, False, True]),
    ("TS55", ended(1.4, 1.0, 1.0), [True, False, False]),
    ("TS55", ended(5.0, 1.0, 1.0), [False, True, False]),
    ("TS55", ended(1.4, 0.9, 0.9, beside=(1.0, 1.0)), [False, False, True]),
]


@pytest.mark.parametrize(("id", "world", "holds"), WORLDS)
def test_in_each_world_the_claim_or_the_control_that_is_true_of_it_holds(id, world, holds):
    assert [CLAIMS[id].seen(world, wrong).holds for wrong in (1.0, *CLAIMS[id].wrongs)] == holds
