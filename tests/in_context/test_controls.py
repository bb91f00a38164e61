"""Negative controls of Part III could have held: each judge, given data of its control's world, accepts the control."""

from types import SimpleNamespace as Study

import numpy as np
import pytest
import torch

from attnbook.in_context.approximate import approximate_risk, one_head_optimum
from attnbook.in_context.circuits.claims_pattern import CLAIMS as PATTERN
from attnbook.in_context.closed_form import (
    debiased_gd_optimal_step,
    debiased_gd_risk,
    gd_optimal_step,
    gd_risk,
    linear_attention_risk,
    opposite_pair_curvature,
)
from attnbook.in_context.deeper_and_wider.claims import CLAIMS as WIDER
from attnbook.in_context.deeper_and_wider.claims_data import CLAIMS as COVARIATES
from attnbook.in_context.how_many_heads.claims import CLAIMS as HEADS
from attnbook.in_context.off_pattern import KINDS, OffPatternHessian
from attnbook.in_context.two_numbers_per_head import claims as two_numbers
from attnbook.in_context.what_the_heads_compute import claims as estimators
from attnbook.in_context.what_the_heads_compute.claims import CLAIMS as ESTIMATORS
from attnlib.in_context.circuits import two_number_circuits
from attnlib.in_context.law import RegressionLaw
from bookkit.rules import NothingToMeasure
from tests.worlds import tighter, worlds


def normals(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(30)


def beside(**found):
    return Study(beside=Study(**found))


def kept_pattern(own: bool):
    names = ("symmetric prompts", "permuted prompts")
    return beside(kept={name: torch.full((4, 9), 1e-13 if (name == names[0]) == own else 0.02) for name in names})


def small_starts(own: bool):
    exponents = np.random.default_rng(5).uniform(0.2, 0.5, 30)
    slopes = 1 - (1 - exponents) ** (1 if own else 2) + 1e-3 * normals(6)
    return beside(small=[Study(slope=s, exponent=e, reached=True) for s, e in zip(slopes, exponents, strict=True)])


def second_derivative(own: bool):
    return beside(added=(1.0 if own else 1.15) + 0.01 * torch.as_tensor(normals(6)))


def hessian(least: float) -> OffPatternHessian:
    """Forms of two heads whose least eigenvalue is near `least`, over 30 batches."""
    rng, forms = np.random.default_rng(7), {}
    for kind in KINDS:
        size = 4 if kind == KINDS[2] else 2
        noise = 0.01 * rng.standard_normal((30, size, size))
        forms[kind] = torch.as_tensor(np.diag([least, *[1.0] * (size - 1)]) + (noise + noise.swapaxes(1, 2)) / 2)
    return OffPatternHessian(forms)


def forms(own: bool):
    sign = 1 if own else -1
    return beside(pair=hessian(0.4 * sign), equal=hessian(-0.4 * sign))


class Ends:
    """As the stored circuits: block (runs, heads, d, d), omega (runs, heads)."""

    d = 2

    def __init__(self, blocks):
        self.covariate_block, self.omega = blocks, torch.zeros(blocks.shape[:2], dtype=blocks.dtype)

    def __getitem__(self, chosen):
        return Ends(self.covariate_block[chosen])


def saddle(own: bool):
    """Trapped runs end beside the pattern with opposite turns of both heads; in the control's world the others do."""
    trapped, turn = torch.tensor([True] * 3 + [False] * 5), torch.tensor([[0.0, 1.0], [-1.0, 0.0]])
    parts = {True: torch.stack([turn, -turn]), False: torch.stack([turn.abs()] * 2)}
    blocks = torch.stack([parts[turned] + 0.01 * turn for turned in (trapped == own).tolist()]).double()
    study = forms(own)
    study.stored, study.trapped = {2: Study(final=Ends(blocks))}, lambda heads: trapped
    return study


def flatness(own: bool):
    bound = 2 * (np.e - 1) / (40 + np.e - 1)
    twice, once = (torch.full((20,), factor * bound) for factor in ((0.5, 3) if own else (3, 0.5)))
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


def lengths(own: bool | None):
    """False: heads with three quarters of the risk; None: the raw sum is the better one on long prompts."""
    law, at = RegressionLaw(5, 40), np.array([10, 400])
    linear = np.array([float(linear_attention_risk(law, 40, normalised=True, length=n)) for n in at])
    risk = torch.as_tensor((0.75 if own is False else 0.95) * linear)[:, None] * near(1.0)
    sums = torch.ones(2, 2, 100, dtype=torch.float64)
    sums[0 if own is not None else 1, -1] = 500.0
    model = Study(risk=risk, error=torch.full_like(risk, 1e-3))
    return Study(heads=Study(law=law, lengths=at, model=model), kept=slice(None), linear_risk=sums, prompts=4000)


def reduced(own: bool):
    right = torch.stack([near(1.0), near(2.0)], 1)
    dense = (right if own else 2 * right) + 1e-3 * torch.as_tensor(normals(9))[:, None]
    return Study(reduction=Study(reduced=right, wrong=1.25 * right, dense=dense))


def gain(own: bool | None):
    law, times = RegressionLaw(5, 40), {True: 1.0, False: 6 / 7, None: 2.0}[own]
    curvature = float(opposite_pair_curvature(law, debiased_gd_optimal_step(law))) * times
    return Study(law=law, narrow=near(curvature), gain=near(0.000183 * times))


def single(own: bool):
    law, one = RegressionLaw(5, 40), Study(omega=0.52, mu=1.534)
    ends = one if own else one_head_optimum(law)
    kept = {name: near(getattr(ends, name))[:, None, None].expand(30, 80, 1) for name in ("omega", "mu")}
    return Study(law=law, one=one, one_head=Study(**kept))


def level(own: bool):
    law, pair = RegressionLaw(5, 40), Study(omega=0.05, mu=8.0)
    pair.effective_step = float((debiased_gd_optimal_step if own else gd_optimal_step)(law))
    share = (1.0 if own else 1.2) * (5 + law.noise_variance) / (6 + law.noise_variance)
    risk = approximate_risk(law, [0.05, -0.05], [8.0, -8.0]) / share
    return Study(law=law, pair=pair, pair_risk=risk * near(1.0))


def trapped(own: bool):
    """49 of 300 with two heads, or 54; none of 100 with three and with four, or one."""
    counts = {2: (49 if own else 54, 300), 3: (1 - own, 100), 4: (1 - own, 100)}
    runs = {heads: Study(trapped=np.arange(total) < hits) for heads, (hits, total) in counts.items()}
    return Study(table=Study(by_heads=runs))


def signs(own: bool | None):
    """The first 142 of 300 runs have equal signs when it is decided (False: at the start); 49 (None: 54) are trapped."""
    same = {True: np.arange(300) < 142, False: np.arange(300) >= 158}
    mu = np.ones((300, 2, 2))
    for step, equal in enumerate((same[False], same[True])):
        mu[~equal, step, 1] = -1
    runs = Study(mu=mu, at=lambda step: int(step > 0))
    hits = np.arange(300) < (54 if own is None else 49)
    runs.trapped = hits[::-1].copy() if own is False else hits
    return Study(table=Study(by_heads={2: runs}))


def stays(own: bool):
    long = Study(run=[1], imbalance=np.full((4, 2), float(own)), loss=np.full(4, 0.988 if own else 1.0))
    return Study(table=Study(long=long), one_head_loss=1.0)


def third(own: bool | None):
    """False: nothing gained; None: twice as much, by the least sharp of three heads."""
    gained, others = {True: (0.0052, 0.14), False: (0.0, 0.14), None: (0.0104, 3.0)}[own]
    three = (2.0, others, -others), (0.05, 3.0, -3.0)
    return Study(free=Study(three=three, gain_of_third=gained + 1e-6 * torch.as_tensor(normals(1))))


def finite(own: bool):
    predicted, isotropic = (0.06, -0.5), (-0.03, 0.2)
    short, best = map(near, predicted if own else isotropic)
    return Study(scale=Study(predicted=predicted, isotropic=isotropic, short=short, best=best))


@pytest.mark.parametrize(
    ("claim", "study"),
    [
        (PATTERN["I91"], kept_pattern),
        (PATTERN["I92"], small_starts),
        (PATTERN["I93"], second_derivative),
        (PATTERN["I95"], saddle),
        (WIDER["I98"], flatness),
        (ESTIMATORS["I47"], lengths),
        (ESTIMATORS["I48"], ratios),
        (two_numbers.CLAIMS["I51"], reduced),
        (two_numbers.CLAIMS["I52"], gain),
        (two_numbers.CLAIMS["I55"], single),
        (two_numbers.CLAIMS["I56"], level),
        (two_numbers.CLAIMS["I58"], price_of_jitter),
        (HEADS["I63"], trapped),
        (HEADS["I64"], signs),
        (HEADS["I65"], stays),
        (HEADS["I69"], third),
        (COVARIATES["I97"], finite),
    ],
    ids=lambda each: getattr(each, "id", None),
)
def test_claim_and_controls_each_hold_in_their_own_world(claim, study):
    others = (study(False), study(None)) if isinstance(claim.wrong, tuple) else (study(False),)
    compare = tighter if claim.id == "I47" else worlds  # its first control says more than the claim
    assert compare(claim, study(True), *others) == []


def test_without_two_runs_that_cancel_there_is_nothing_to_measure():
    end = Study(risk=torch.ones(5), kept=torch.zeros(5, dtype=torch.bool))
    with pytest.raises(NothingToMeasure, match="two runs or more whose heads cancel"):
        HEADS["I62"].seen(Study(ends={2: end, 4: end, 8: end}))


def late_starts(slope: float, reached: bool):
    study = small_starts(True)
    study.beside.small.append(Study(slope=slope, exponent=0.3, reached=reached))
    return study


def single_heads(cosine: float, active: bool):
    mu = torch.tensor([[2.0, 2.0 if active else 0.1]]).expand(5, 1, 2)
    cosines = torch.tensor([[0.995, cosine]], dtype=torch.float64).expand(5, 2)
    circuits = Study(circuits=lambda: Study(mu=mu))
    return Study(anisotropic=Study(trained=circuits, gamma=None, head_cosines=lambda gamma: cosines))


def overtaken(crossing: float, behind: bool):
    """Seven runs that a step with eta = 1 overtakes at 80 examples, and one more, behind or still ahead at 500."""
    law, step = RegressionLaw(5, 40), 0.89
    pair = two_number_circuits(torch.tensor([[0.14, -0.14]] * 8), torch.tensor([[step, -step]] * 8) / 0.28, 5)
    circuits = Study(effective_step=pair.effective_step, mu=pair.mu)
    last = torch.tensor([1.0] * 7 + [1.0 if behind else 0.0], dtype=torch.float64)[None]
    heads = Study(law=law, circuits=circuits, lengths=np.array([5, 500]), model=Study(risk=last), crossings=None)
    every = np.arange(5, 501)
    known = estimators.crossing(every, debiased_gd_risk(law, step, length=every) / gd_risk(law, 1.0, length=every))
    heads.crossings = lambda: np.append(known * (1 + 1e-4 * normals(3)[:7]), crossing)
    return Study(heads=heads, kept=np.arange(8))


@pytest.mark.parametrize(
    ("claim", "made"), [(PATTERN["I92"], late_starts), (COVARIATES["I77"], single_heads), (ESTIMATORS["I44"], overtaken)],
    ids=lambda each: getattr(each, "id", None),
)  # fmt: skip
def test_what_is_no_number_refuses_unless_the_claim_does_not_speak_of_it(claim, made, monkeypatch):
    monkeypatch.setattr(estimators, "off_pattern_parts", lambda circuits, law: torch.zeros(8, 3, dtype=torch.float64))
    silent = claim.seen(made(float("nan"), False))
    assert silent.holds
    assert silent.measured.count("no number") == 0
    assert not claim.seen(made(float("nan"), True)).holds
