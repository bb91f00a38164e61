"""One token matters: law, sampled heads, training, and refused input."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.optimize import brentq

from attnbook.one_token import (
    OneTokenLaw,
    bayes_risk,
    descent,
    erf_weights,
    linear_risk,
    own_score_risk,
    risk_sampled,
    sigmoid_weights,
    softmax_weights,
)
from attnbook.one_token.claims import CLAIMS
from attnbook.one_token.descent import KINDS, train
from attnbook.one_token.figures import lead
from attnbook.one_token.study import LADDER, strength_ratio
from tests.bad_input import refusing
from tests.worlds import tighter, worlds

# --- law and sampled heads -------------------------------------------------------------------------------------------------


def test_the_law_draws_what_it_says() -> None:
    law = OneTokenLaw(tokens=3, strength=9.0, label_noise=0.2)
    sample = law.draw(5, runs=4, samples=5000)
    assert sample.scores.shape == sample.values.shape == (4, 5000, 3)
    assert sample.scores.dtype == torch.float64
    # The target is one of the values, and its token's score is larger by three on average.
    match = sample.values == sample.target[..., None]
    assert (match.sum(-1) == 1).all()
    assert sample.scores[match].mean().item() == pytest.approx(3.0, abs=4 / 20000**0.5)
    assert sample.scores[~match].mean().item() == pytest.approx(0.0, abs=4 / 40000**0.5)
    assert sample.scores[~match].var().item() == pytest.approx(1.0, abs=4 * (2 / 40000) ** 0.5)
    where = match.double().mean((0, 1))
    assert (where - 1 / 3).abs().max() < 4 * (2 / 9 / 20000) ** 0.5
    flipped = sample.labels == -sample.target
    assert (flipped | (sample.labels == sample.target)).all()
    assert flipped.double().mean().item() == pytest.approx(0.2, abs=4 * (0.16 / 20000) ** 0.5)
    assert not torch.equal(sample.scores[0], sample.scores[1])


def test_a_sampled_risk_by_hand() -> None:
    law = OneTokenLaw(5, 3.0)
    sample = law.draw(2, runs=2, samples=6)
    found = risk_sampled(lambda scores: erf_weights(scores, law, scale=0.4), sample)
    for run in range(2):
        errors = []
        for i in range(6):
            answer = sum(
                math.erf(0.4 * chi) * tau
                for chi, tau in zip(sample.scores[run, i].tolist(), sample.values[run, i].tolist(), strict=True)
            )
            errors.append((answer - sample.labels[run, i].item()) ** 2)
        assert found[run].item() == pytest.approx(np.mean(errors), rel=1e-12)


def test_weights_by_hand() -> None:
    law, scores = OneTokenLaw(3, 4.0), torch.tensor([1.0, 0.5, -0.2], dtype=torch.float64)
    powers = np.exp(2 * scores.numpy())
    np.testing.assert_allclose(softmax_weights(scores, law).numpy(), powers / powers.sum(), rtol=1e-13)
    np.testing.assert_allclose(
        softmax_weights(scores, law, slope=0.5).numpy(), np.sqrt(powers) / np.sqrt(powers).sum(), rtol=1e-13
    )
    odds = powers * math.exp(-2) / 2
    np.testing.assert_allclose(sigmoid_weights(scores, law).numpy(), odds / (1 + odds), rtol=1e-13)


# --- training --------------------------------------------------------------------------------------------------------------


def test_written_gradients_are_autograds() -> None:
    rng = torch.Generator().manual_seed(0)
    draws, samples, tokens, d, heads = 2, 5, 3, 4, 6
    normal = lambda *shape: torch.randn(*shape, generator=rng, dtype=torch.float64)  # noqa: E731
    x, labels = normal(draws, samples, tokens, d), normal(draws, heads, samples)
    k, v, bias = (normal(*shape).requires_grad_() for shape in ((draws, heads, d), (draws, heads, d), (draws, heads)))
    root = torch.linspace(0.5, 3, heads, dtype=torch.float64)
    loss = torch.zeros((), dtype=torch.float64)
    for h in range(heads):
        marked = x.clone()
        marked[:, :, 0, 0] += root[h]
        scores, values = (torch.einsum("rnld,rd->rnl", marked, p[:, h]) for p in (k, v))
        shifted = scores + bias[:, None, None, h]
        weights = (scores.softmax(-1), shifted.sigmoid(), shifted)[h // 2]
        loss = loss + ((weights * values).sum(-1) - labels[:, h]).square().mean(1).sum()
    loss.backward()
    written = descent._gradients(x.permute(0, 3, 2, 1), labels, k.detach(), v.detach(), bias.detach(), root)
    torch.testing.assert_close(written[0], k.grad)
    torch.testing.assert_close(written[1], v.grad)
    torch.testing.assert_close(written[2][:, 2:], bias.grad[:, 2:])
    assert (written[2][:, :2] == 0).all()  # softmax has no bias


def test_the_clean_risk_of_known_vectors_is_exact() -> None:
    """With k = sqrt(nu) k* and v = v*, the risk after the best rescaling is 1 - corr^2 = the Bayes risk for softmax."""
    tokens, draws, nu = 5, 30, 6.0
    root = torch.full((3,), math.sqrt(nu), dtype=torch.float64)
    k, v = torch.zeros(draws, 3, 4, dtype=torch.float64), torch.zeros(draws, 3, 4, dtype=torch.float64)
    k[..., 0], v[..., 1] = math.sqrt(nu), 1.0
    bias = torch.tensor([0.0, -nu / 2 - math.log(tokens - 1), 0.0], dtype=torch.float64).repeat(draws, 1)
    fresh = torch.as_tensor(np.random.default_rng(1).standard_normal((draws, 2000, tokens, 4)))
    samples_last = fresh.permute(0, 3, 2, 1)
    found = descent._clean_risk(k, v, bias, root, samples_last)
    law = OneTokenLaw(tokens, nu)
    assert abs(found[:, 0].mean() - bayes_risk(law)) < 4.5 * found[:, 0].std() / draws**0.5
    # A part of k and v across the two directions: the fourth number of a token is used for what of v is not along k.
    k[..., 2], v[..., 2], v[..., 3] = 0.5, 0.3, 0.4
    scores = fresh[..., 0] * math.sqrt(nu) + fresh[..., 2] * 0.5
    scores[:, :, 0] += nu
    values = fresh[..., 1] + 0.3 * fresh[..., 2] + 0.4 * fresh[..., 3]
    output, target = (scores.softmax(-1) * values).sum(-1), fresh[:, :, 0, 1]
    by_hand = 1 - (output * target).sum(1) ** 2 / (output.square().sum(1) * target.square().sum(1))
    torch.testing.assert_close(descent._clean_risk(k, v, bias, root, samples_last)[:, 0], by_hand)


def test_training_is_the_same_alone_and_together() -> None:
    size = {"samples": 12, "coordinates": 3, "tokens": 3, "record": (2, 6)}
    together = train(4, strengths=(2.0, 9.0), noise=(0.0, 0.3), draws=3, **size)
    alone = train(4, strengths=(9.0,), noise=(0.3,), draws=2, **size)
    assert together.risks.shape == (3, 2, len(KINDS), 2, 2)
    torch.testing.assert_close(together.risks[:2, 1:, :, 1:], alone.risks)
    assert (together.best() <= together.at(2)).all()
    assert ((together.risks >= 0) & (together.risks <= 1)).all()


# --- claims ----------------------------------------------------------------------------------------------------------------


def test_ids_are_those_of_the_ledger() -> None:
    assert list(CLAIMS) == [f"K{number}" for number in (*range(1, 10), 11, 12)]


def near(middle: float, seed: int = 3) -> torch.Tensor:
    return middle + 1e-4 * torch.as_tensor(np.random.default_rng(seed).standard_normal(20))


def known(risk) -> SimpleNamespace:
    """Heads with the risks (softmax, at half its slope, linear, centred linear) of each law."""
    names = ("softmax", "softmax at half the slope", "linear", "centred linear")
    laws = [OneTokenLaw(tokens, 8.0) for tokens in LADDER]
    return SimpleNamespace(
        law=laws[0], heads={law.tokens: dict(zip(names, map(near, risk(law), range(4)), strict=True)) for law in laws}
    )


def paper(law: OneTokenLaw) -> tuple[float, ...]:
    return bayes_risk(law), 1.2 * bayes_risk(law), linear_risk(law), linear_risk(law, centred=True)


def ahead(
    sigmoids: tuple[float, ...], linears: tuple[float, ...], few: float, clean: tuple[float, float]
) -> SimpleNamespace:
    """Risks over those of softmax on many samples, of linear weights on few, and the leads of softmax without flips."""

    def heads(*others: tuple[float, ...]) -> SimpleNamespace:
        columns = torch.stack(
            [near(value) for value in (0.5, 0.5, 0.5, *(0.5 * x for other in others for x in other))], 1
        )
        risks = columns.reshape(20, 1, 3, 3) + 1e-5 * torch.as_tensor(
            np.random.default_rng(1).standard_normal((20, 1, 3, 3))
        )
        return SimpleNamespace(best=lambda: risks)

    leads = [(1 + 2 * lead,) * 3 for lead in clean]
    fewest, without = (found.best()[:, 0, :, -1] for found in (heads((1.0,) * 3, (few,) * 3), heads(*leads)))
    return SimpleNamespace(trained={640: heads(sigmoids, linears)}, few=fewest, without_flips=without)


def test_claims_and_controls_each_hold_in_their_own_world() -> None:
    assert worlds(CLAIMS["K1"], known(paper), *(wrong(known(paper)) for wrong in CLAIMS["K1"].wrongs)) == []
    swap = CLAIMS["K6"].wrongs[0](known(paper))
    assert tighter(CLAIMS["K6"], known(paper), swap, known(lambda law: [1.1 * risk for risk in paper(law)])) == []
    assert not CLAIMS["K6"].seen(swap).holds
    sigmoids, linears = (1.06, 1.16, 1.19), (1.06, 1.11, 1.0)
    own = ahead(sigmoids, linears, 0.95, (0.146, 0.077))
    larger = ahead(*(tuple(1.6 * x for x in each) for each in (sigmoids, linears)), 0.95, (0.146, 0.077))
    assert worlds(CLAIMS["K11"], own, larger) == []
    assert worlds(CLAIMS["K12"], own, CLAIMS["K12"].wrong(own)) == []


def test_only_linear_weights_may_overflow() -> None:
    """They diverge at large steps, and then count as having learned nothing; a softmax head without a number refuses the claim."""
    found = train(
        0, samples=20, coordinates=3, tokens=3, strengths=(4.0,), noise=(0.0,), draws=2, record=(1, 60), rate=3e3
    )
    assert found.at(60)[:, 0, KINDS.index("linear")].tolist() == [[1.0], [1.0]]
    study = ahead((1.06, 1.16, 1.19), (1.06, 1.11, 1.0), 0.95, (0.146, 0.077))
    study.trained[640].best()[0, 0, KINDS.index("softmax"), 0] = math.nan
    assert not CLAIMS["K11"].seen(study).holds
    assert CLAIMS["K11"].seen(study).mute


def test_who_leads_is_judged_pair_by_pair() -> None:
    """Softmax ahead of all others by 0.1 +- 0.01 in each of 12 draws; then by as much with a noise ten times as large."""
    noise = torch.as_tensor(np.random.default_rng(0).normal(0.0, 1.0, 12))
    risks = torch.full((12, 1, len(KINDS), 1), 0.9, dtype=torch.float64)

    def study(spread: float) -> SimpleNamespace:
        here = risks.clone()
        here[:, 0, KINDS.index("softmax"), 0] = 0.8 + spread * noise
        here[:, 0, -1, 0] = 0.95
        return SimpleNamespace(trained={7: SimpleNamespace(best=lambda: here)})

    kind, score = lead(study(0.01), 7, 0)
    mean, spread = (-(0.01 * noise - 0.1)).mean().item(), 0.01 * noise.std().item()
    assert kind == "softmax"
    assert score == pytest.approx(mean / spread * 12**0.5)
    assert lead(study(1.0), 7, 0)[0] == "none"


def test_flips_rescale_the_best_head_and_its_risk() -> None:
    """With labels flipped, 1 - 2 eta times the best head is the best one, against which multiples 5 % off are worse."""
    law = OneTokenLaw(8, 4.0, 0.3)
    sample = law.draw(3, runs=20, samples=5000)
    for weights, risk in ((softmax_weights, bayes_risk), (sigmoid_weights, own_score_risk)):
        own, less, more = (
            risk_sampled(lambda scores, c=c, weights=weights: c * 0.4 * weights(scores, law), sample)
            for c in (1.0, 0.95, 1.05)
        )
        gap = own - (1 - 0.4**2 * (1 - risk(law)))
        assert gap.mean().abs() < 4.5 * gap.std() / math.sqrt(20)
        assert own.mean() < less.mean()
        assert own.mean() < more.mean()


def test_own_scores_need_more_strength_for_a_risk_of_a_tenth() -> None:
    def strength(formula) -> float:
        return brentq(lambda nu: formula(OneTokenLaw(4, nu)) - 0.1, 1.0, 200.0)

    assert strength_ratio(4) == pytest.approx(strength(own_score_risk) / strength(bayes_risk), rel=1e-6)


# --- refused input ---------------------------------------------------------------------------------------------------------


LAW = OneTokenLaw(2, 1.0)


test_refusals = refusing(
    (OneTokenLaw, (2, 1.0), {"tokens": 1, "label_noise": 0.6}),
    (lambda: bayes_risk(OneTokenLaw(2, 3000.0)), "strength must be at most 2000 here; got 3000"),
    (
        lambda: risk_sampled(lambda scores: scores[..., 0], LAW.draw(0, runs=1, samples=3)),
        r"weights must return the shape of the scores, \(1, 3, 2\); got \(1, 3\)",
    ),
)
