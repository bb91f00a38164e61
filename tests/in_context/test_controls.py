"""Negative controls of Part III could have held: each judge, given data of its control's world, accepts the control."""

from types import SimpleNamespace as Study

import numpy as np
import pytest
import torch

from attnbook.in_context.approximate import one_head_optimum
from attnbook.in_context.closed_form import (
    debiased_gd_optimal_step,
    gd_optimal_step,
    linear_attention_risk,
    opposite_pair_curvature,
)
from attnbook.in_context.deeper_and_wider.claims import CLAIMS as WIDER
from attnbook.in_context.how_many_heads.claims import CLAIMS as HEADS
from attnbook.in_context.two_numbers_per_head import claims as two_numbers
from attnbook.in_context.what_holds_the_pattern.claims import CLAIMS as PATTERN
from attnbook.in_context.what_holds_the_pattern.study import KINDS
from attnbook.in_context.what_the_heads_compute.claims import CLAIMS as ESTIMATORS
from attnlib.in_context.law import RegressionLaw
from bookkit.rules import NothingToMeasure
from tests.worlds import tighter, worlds


def normals(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(30)


def kept_pattern():
    return Study(
        kept={
            name: torch.full((4, 9), size) for name, size in (("symmetric prompts", 1e-13), ("permuted prompts", 0.02))
        }
    )


def small_starts(own: bool):
    growth = torch.as_tensor(np.random.default_rng(5).uniform(0.5, 0.8, 30))
    slope = 1 - (growth if own else growth**2) + 1e-3 * torch.as_tensor(normals(6))
    return Study(small=Study(slope=slope, growth=growth, reached=torch.ones(30, dtype=torch.bool)))


def second_derivative(own: bool):
    return Study(added=(1.0 if own else 1.15) + 0.01 * torch.as_tensor(normals(6)))


def hessian(least: float) -> dict:
    """Forms of two heads whose least eigenvalue is near `least`, over 30 batches."""
    rng, forms = np.random.default_rng(7), {}
    for kind in KINDS:
        size = 4 if kind == KINDS[2] else 2
        noise = 0.01 * rng.standard_normal((30, size, size))
        forms[kind] = torch.as_tensor(np.diag([least, *[1.0] * (size - 1)]) + (noise + noise.swapaxes(1, 2)) / 2)
    return forms


class Ends:
    """As the stored circuits: block (runs, heads, d, d), omega (runs, heads)."""

    d = 2

    def __init__(self, blocks):
        self.covariate_block, self.omega = blocks, torch.zeros(blocks.shape[:2], dtype=blocks.dtype)

    def __getitem__(self, chosen):
        return Ends(self.covariate_block[chosen])


def saddle():
    """Trapped runs end beside the pattern with opposite turns of both heads, the others do not."""
    trapped, turn = torch.tensor([True] * 3 + [False] * 5), torch.tensor([[0.0, 1.0], [-1.0, 0.0]])
    parts = {True: torch.stack([turn, -turn]), False: torch.stack([turn.abs()] * 2)}
    blocks = torch.stack([parts[turned] + 0.01 * turn for turned in trapped.tolist()]).double()
    return Study(pair=hessian(0.4), equal=hessian(-0.4), trapped=trapped, stored={2: Study(final=Ends(blocks))})


def flatness():
    bound = 2 * (np.e - 1) / (40 + np.e - 1)
    twice, once = (torch.full((20,), factor * bound) for factor in (0.5, 3))
    return Study(causal=Study(unevenness={"twice": twice, "once": once}), setting=Study(length=40))


def price_of_jitter(own: bool):
    law = RegressionLaw(5, 40)
    price = two_numbers.jitter_price(law) * (1.0 if own else 1.5)
    return Study(law=law, jitter=torch.as_tensor(price * (1 + 0.01 * normals(1))))


def near(middle: float) -> torch.Tensor:
    return middle * (1 + 1e-4 * torch.as_tensor(normals(4)))


def ratios(own: bool):
    """Heads over Bayes at 4 trained runs."""
    law = RegressionLaw(5, 40)
    ratio = 6 * 34 / (law.noise_variance * 45) * (1.0 if own else 1.5)
    risks = {"model": Study(risk=near(ratio)[None]), "bayes": Study(risk=torch.ones(1, 1, dtype=torch.float64))}
    return Study(heads=Study(law=law, **risks), trained_at=0, kept=slice(None))


def lengths(own: bool):
    """False: heads with three quarters of the risk."""
    law, at = RegressionLaw(5, 40), np.array([10, 400])
    linear = np.array([float(linear_attention_risk(law, 40, normalised=True, length=n)) for n in at])
    risk = torch.as_tensor((0.95 if own else 0.75) * linear)[:, None] * near(1.0)
    sums = {"raw sum": torch.full((2, 100), 500.0).double(), "1/L": torch.ones(2, 100, dtype=torch.float64)}
    model = Study(risk=risk, error=torch.full_like(risk, 1e-3))
    return Study(heads=Study(law=law, lengths=at, model=model), kept=slice(None), linear_risk=sums, prompts=4000)


def reduced():
    """Dense prompts agree with the reduction, not with a part twice as large."""
    right = torch.stack([near(1.0), near(2.0)], 1)
    dense = right + 1e-3 * torch.as_tensor(normals(9))[:, None]
    return Study(reduction=Study(reduced=right, wrong=2 * right, dense=dense))


def gain(own: bool | None):
    law, times = RegressionLaw(5, 40), {True: 1.0, False: 6 / 7, None: 2.0}[own]
    curvature = float(opposite_pair_curvature(law, debiased_gd_optimal_step(law))) * times
    return Study(law=law, narrow=near(curvature), gain=near(0.000183 * times))


def single():
    law, one = RegressionLaw(5, 40), Study(omega=0.52, mu=1.534)
    kept = {name: near(getattr(one, name))[:, None, None].expand(30, 80, 1) for name in ("omega", "mu")}
    return Study(one=one, approximate_one=one_head_optimum(law), one_head=Study(**kept))


def level(own: bool):
    """The best step is that of the centred one; in the control's world it is the plain step's, and the level is another."""
    law = RegressionLaw(5, 40)
    steps = [float(step(law)) for step in (debiased_gd_optimal_step, gd_optimal_step)]
    share = (5 + law.noise_variance) / (6 + law.noise_variance)
    found = Study(step=steps[0], plain_step=steps[1], share=share, risk=0.5)
    pair = Study(effective_step=steps[0] if own else steps[1])
    return Study(level=found, pair=pair, pair_risk=0.5 / (share * (1.0 if own else 1.2)) * near(1.0))


def trapped():
    """49 of 300 with two heads, none of 100 with three and with four."""
    counts = {2: (49, 300), 3: (0, 100), 4: (0, 100)}
    return Study(trapped={heads: np.arange(total) < hits for heads, (hits, total) in counts.items()})


def signs(own: bool | None):
    """False: it is decided at the start; None: 44 of the 142 runs with equal signs are trapped, and the control adds five."""
    hits = {"same": np.arange(142) < (44 if own is None else 49), "opposite": np.zeros(158, dtype=bool)}
    others = {"same": np.arange(158) < 40, "opposite": np.arange(142) < 9}
    return Study(fates={"decided": others, "start": hits} if own is False else {"decided": hits, "start": others})


def stays(own: bool):
    loss = torch.full((4,), 0.988 if own else 0.988**2, dtype=torch.float64)
    return Study(long=Study(imbalance=torch.full((4,), float(own)), loss_ratio=loss))


def third(own: bool | None):
    """False: more is gained by all that is claimed; None: half of it, by a flat head, where the second control doubles and exchanges."""
    gain = {True: 0.0052, False: 0.0104, None: 0.0026}[own]
    sharp, flat = ((0.14, 3.0), (2.0, 0.05)) if own is None else ((2.0, 0.05), (0.14, 3.0))
    return Study(free=Study(sharpest=sharp, flattest=flat, gain_of_third=gain + 1e-6 * torch.as_tensor(normals(1))))


def finite():
    """Finite scale: kappa of 0.3 G and of G, and the formula's for N(0, I), the other way round."""
    predicted, isotropic = (0.06, -0.5), (-0.5, 0.06)
    short, best = map(near, predicted)
    return Study(scale=Study(predicted=predicted, isotropic=isotropic, short=short, best=best))


@pytest.mark.parametrize(
    ("claim", "study"),
    [
        (PATTERN["I92"], small_starts),
        (PATTERN["I93"], second_derivative),
        (ESTIMATORS["I48"], ratios),
        (two_numbers.CLAIMS["I52"], gain),
        (two_numbers.CLAIMS["I56"], level),
        (two_numbers.CLAIMS["I58"], price_of_jitter),
        (HEADS["I64"], signs),
        (HEADS["I65"], stays),
        (HEADS["I69"], third),
    ],
    ids=lambda each: getattr(each, "id", None),
)
def test_claim_and_controls_each_hold_in_their_own_world(claim, study):
    others = (study(False), study(None)) if isinstance(claim.wrong, tuple) else (study(False),)
    assert worlds(claim, study(True), *others) == []


@pytest.mark.parametrize(
    ("claim", "study"),
    [
        (PATTERN["I91"], kept_pattern),
        (PATTERN["I95"], saddle),
        (two_numbers.CLAIMS["I51"], reduced),
        (two_numbers.CLAIMS["I55"], single),
        (HEADS["I63"], trapped),
        (WIDER["I97"], finite),
        (WIDER["I98"], flatness),
    ],
    ids=lambda each: getattr(each, "id", None),
)
def test_a_control_that_exchanges_holds_where_the_measurements_are_exchanged(claim, study):
    """An exchange is its own inverse: the world of the claim, exchanged, is one in which the control holds."""
    own = study()
    assert worlds(claim, own, *(change(own) for change in claim.wrongs)) == []


def test_the_first_control_of_other_lengths_says_more_than_the_claim():
    own = lengths(True)
    assert tighter(ESTIMATORS["I47"], own, lengths(False), ESTIMATORS["I47"].wrongs[1](own)) == []


def test_without_two_runs_that_cancel_there_is_nothing_to_measure():
    end = Study(risk=torch.ones(5), kept=torch.zeros(5, dtype=torch.bool))
    with pytest.raises(NothingToMeasure, match="two runs or more whose heads cancel"):
        HEADS["I62"].seen(Study(ends={2: end, 4: end, 8: end}))


def late_starts(slope: float, reached: bool):
    small = small_starts(True).small
    found = {"slope": slope, "growth": 0.7, "reached": reached}
    return Study(
        small=Study(**{name: torch.cat([getattr(small, name), torch.tensor([x])]) for name, x in found.items()})
    )


def single_heads(cosine: float, active: bool):
    mu = torch.tensor([2.0, 2.0 if active else 0.1]).expand(5, 2)
    return Study(anisotropic=Study(mu=mu, cosines=torch.tensor([0.995, cosine], dtype=torch.float64).expand(5, 2)))


def overtaken(crossing: float, behind: bool):
    """Seven runs that a step with eta = 1 overtakes at 80 examples, and one more, behind or still ahead at 500."""
    crossings = np.append(80.0 * (1 + 1e-4 * normals(3)[:7]), crossing)
    predicted = Study(crossings=torch.full((8,), 80.0, dtype=torch.float64))
    ahead = torch.tensor([False] * 7 + [not behind])
    return Study(heads=Study(crossings=crossings), kept=np.arange(8), predicted=predicted, ahead=ahead)


@pytest.mark.parametrize(
    ("claim", "made"), [(PATTERN["I92"], late_starts), (WIDER["I77"], single_heads), (ESTIMATORS["I44"], overtaken)],
    ids=lambda each: getattr(each, "id", None),
)  # fmt: skip
def test_what_is_no_number_refuses_unless_the_claim_does_not_speak_of_it(claim, made):
    silent = claim.seen(made(float("nan"), False))
    assert silent.holds
    assert silent.measured.count("no number") == 0
    assert not claim.seen(made(float("nan"), True)).holds
