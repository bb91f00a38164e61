"""Negative controls could have held: of each claim below, data of its own law, then data of the law of each of its controls.

In its own world a claim holds and its controls fail; in a control's world the control holds and the claim fails. A control that says
more than its claim (half a bound) leaves the claim true as well: `TIGHTER`. Of a claim that is false on the page the own world is one in
which it would be true; a control that says less than such a claim holds there too: `WEAKER`. The modules that judge the other claims of a
part (`test_controls.py` and the like) have worlds of the same kind. None has V3, V5, V7, V8, V12, V13, V19, V22, V57 and V59: what they
prove of fixed numbers is true in one world only, and their controls are refuted by a proof (`tests/certified`).
"""

import math
from dataclasses import replace
from itertools import zip_longest
from types import SimpleNamespace as Study

import numpy as np
import pytest
import torch

from attnbook.finite_data.claims import CLAIMS as FINITE_DATA
from attnbook.finite_data.limits import limit_error, pattern_error
from attnbook.finite_data.study import CURVE, LARGE
from attnbook.in_context.circuits.claims import CLAIMS as CIRCUITS
from attnbook.in_context.circuits.claims import PUBLISHED, _positive_sum
from attnbook.in_context.closed_form import debiased_gd_optimal_risk, debiased_gd_risk, gd_risk
from attnbook.in_context.deeper_and_wider.claims import CLAIMS as WIDER
from attnbook.in_context.how_many_heads import claims as more_heads
from attnbook.in_context.how_many_heads.claims import CLAIMS as MORE_HEADS
from attnbook.in_context.training import claims as training
from attnbook.in_context.training.claims import _PACE
from attnbook.in_context.training.claims import CLAIMS as TRAINING
from attnbook.in_context.two_numbers_per_head.claims import CLAIMS as TWO_NUMBERS
from attnbook.in_context.what_the_heads_compute.claims import CLAIMS as ESTIMATORS
from attnbook.one_token import claims as one_token
from attnbook.one_token.study import profile
from attnbook.single_head.a_public_script.claims import CLAIMS as SCRIPT
from attnbook.single_head.assumptions_under_stress.claims import CLAIMS as STRESS
from attnbook.single_head.bound_by_bound.claims import CLAIMS as BOUNDS
from attnbook.single_head.hard_attention.claims import CLAIMS as HARD
from attnbook.single_head.max_margin.claims import CLAIMS as MARGIN
from attnbook.single_head.phase_diagram.claims import CLAIMS as PHASE
from attnbook.single_head.phase_theory import preference_spread
from attnbook.single_head.rotations_are_free.claims import CLAIMS as ROTATIONS
from attnbook.single_head.signal_and_noise.claims import CLAIMS as DATA
from attnbook.single_head.study import TwoStepStudy
from attnbook.single_head.two_steps.claims import CLAIMS as TWO_STEPS
from attnbook.single_head.where_attention_begins.claims import CLAIMS as WHERE
from attnbook.staircase import SpectrumLaw, plateau_levels, population_loss
from attnbook.staircase.claims import CLAIMS as STAIRCASE
from attnbook.staircase.study import MERGED_SIZES, SOFTMAX_HEADS, SUM_STEP
from attnbook.token_selection.dynamics import claims as dynamics
from attnbook.token_selection.existence.claims import CLAIMS as EXISTENCE
from attnbook.token_selection.heat_map import claims as heat
from attnbook.token_selection.mean_field import FLIPPED
from attnbook.token_selection.real_data.claims import CLAIMS as REAL
from attnbook.token_selection.the_delay.claims import CLAIMS as DELAY
from attnbook.token_selection.the_delay.study import SHARP
from attnbook.token_selection.time_laws import claims as clock
from attnlib.in_context.law import RegressionLaw
from attnlib.single_head.law import SignalNoiseLaw

DRAWS = 80
LAW = SignalNoiseLaw(100, 40_000, 30.0, 0.05)
TIGHTER = {"C15", "E10", "I62", "K5", "S6", "TS45", "TS57", "TS66", "TS79"}
WEAKER = {"I67", "TS71"}
CASES = []


def case(claim, *worlds):
    """`made(world, patch)` is the study of a world; `patch(module, name, value)` replaces what the judge calls.

    A control without a world of its own has the claim's, changed as the control changes it: an exchange is its own inverse.
    """

    def add(made):
        CASES.append(pytest.param(claim, made, worlds, id=claim.id))
        return made

    return add


@pytest.mark.parametrize(("claim", "made", "worlds"), CASES)
def test_a_claim_and_its_controls_each_hold_in_their_own_world(claim, made, worlds, monkeypatch):
    every = (1.0, *claim.wrongs)
    for own, world in zip_longest(every, worlds):
        study = made(worlds[0] if world is None else world, monkeypatch.setattr)
        study = own(study) if world is None else study
        holds = {wrong: claim.seen(study, wrong).holds for wrong in every}
        assert holds[own], (own, world)
        if own == 1.0 and claim.id not in WEAKER:
            assert sum(holds.values()) == 1, (world, holds)
        if own != 1.0 and claim.id not in TIGHTER:
            assert not holds[1.0], world


def full(value, *shape):
    return torch.full((DRAWS, *shape), value, dtype=torch.float64)


def near(middle, runs=DRAWS, spread=1e-3):
    """(runs,): numbers whose mean is `middle`."""
    return middle * (1 + spread * torch.linspace(-1, 1, runs, dtype=torch.float64))


def columns(*middles):
    return torch.stack([near(middle) for middle in middles], 1)


# --- the single head ----------------------------------------------------------------------------------------------------------


@case(STRESS["A2"], 1.0, 0.5)
def _(factor, patch):
    limits = near(-380.0, spread=0.1), near(-770.0, spread=0.1)
    errors = near(-380.0, spread=0.1), factor * limits[1]
    return Study(stress=Study(law=SignalNoiseLaw(200, 40000, 30.0, 0.05)), scaled_error=errors, scaled_limit=limits)


@case(STRESS["A10"], 1.0, 1.2)
def _(pull, patch):
    level = 1 - 2 / 2000
    rows = [
        Study(
            tokens=T, flipped_margin=near(pull * (T - 1) * level) - 3, flipped_signal_pull=full(3.0), flipped=full(4.0)
        )
        for T in (2, 4, 32)
    ]
    return Study(stress=Study(law=LAW, tokens=rows))


@case(STRESS["A12"], "own")
def _(world, patch):
    return Study(stress=Study(law=LAW), isotropic_ratio=near(1.0), isotropic_ratio_projected=near(0.8))


@case(BOUNDS["C15"], -20.0, -30.0)
def _(error, patch):
    return Study(v2_signal=full(1.0, 2), log10_error2=full(error, 2), log10_bound2=full(-10.0, 2))


@case(TWO_STEPS["C16b"], 1.0, 1.15)
def _(factor, patch):
    return Study(law=LAW, log10_error2=full(-3.0, 2), sampled_noisy_error2=near(factor * (0.05 + 0.9 * 1e-3)))


@case(DATA["D4"], 1.0, 0.8)
def _(factor, patch):
    counted = near(torch.special.ndtr(torch.tensor(-2.0 * factor)).item())
    law = replace(LAW, signal_norm=2 * math.sqrt(LAW.n))
    return Study(
        law=law, step_size=1.0, clean_minus_noisy=full(2.0, 2), noise_norm_v1=full(1.0), one_step_sampled=counted
    )


@case(MARGIN["M1"], 1.0, 1.001)
def _(factor, patch):
    return Study(ss=full(2 * factor), ss_formula=full(2.0), supported=full(1.0), residual=full(factor - 1))


@case(HARD["M11"], 1.0, 1.1)
def _(factor, patch):
    found = {
        "signal": full(factor, 2),
        "query": full(factor),
        "signal_formula": full(1.0, 2),
        "query_formula": full(1.0),
    }
    return Study(law=LAW, above=Study(**found))


@case(MARGIN["M14"], "own")
def _(world, patch):
    ratio = torch.tensor([0.95, 0.98], dtype=torch.float64).expand(DRAWS, 2)
    above = Study(cosine=full(0.99, 2), rival_cosine=full(0.1, 2), same=full(1.0, 2), ratio=ratio)
    return Study(above=above, sizes=(2.0, 4.0))


@case(MARGIN["M26"], "own")
def _(world, patch):
    return Study(threshold_measured=full(1.0), threshold_exact=full(1.0), threshold_predicted=full(1.1))


@case(MARGIN["M16"], 1.0, 1.15)
def _(factor, patch):
    growth = torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64).expand(DRAWS, 3)
    return Study(joint=torch.stack([growth, factor * growth, growth], -1))


@case(HARD["M17"], 1.0, 1.01)
def _(factor, patch):
    return Study(above=Study(far_error=full(-100 * factor), limit_error=full(-100.0), limit_bound=full(-100 / factor)))


@case(HARD["M18"], "own")
def _(world, patch):
    return Study(above=Study(errors=columns(-9.0, -3.0, -1.0)))


@case(HARD["M22"], 1.0, 1.08)
def _(factor, patch):
    return Study(many=Study(threshold=full(factor, 2), residual=full(factor - 1)), small_law=Study(d=1200))


def script(**missed):
    """Of each way, the share of labels that two steps do not fit; half of the samples are flipped."""
    place, ways = torch.arange(100), {}
    for way, share in missed.items():
        ways[way] = torch.where(place // 2 < 50 * near(share)[:, None], -1.0, 1.0)
    return TwoStepStudy(noisy=(place % 2 == 0).expand(DRAWS, 100), margins=ways)


@case(SCRIPT["N3"], "own")
def _(world, patch):
    return script(printed=0.53, right=0.0)


@case(SCRIPT["N6"], "own")
def _(world, patch):
    return script(right=0.0, printed=0.53)


@case(ROTATIONS["R6"], "own")
def _(world, patch):
    same, other = full(1.0, 3), full(2.0, 3)
    return Study(sign_descent=(same, same), descent=(same, other))


SIZES = np.array([50.0, 100.0, 200.0, 400.0])


def transition(place=1.0, width=1.0, power=-0.5):
    """Place and width of the transition in four rows, as logarithms (sizes, draws, 2)."""
    d = SIZES**2
    widths = 2 * width * np.array([preference_spread(n, size, 0.05) for n, size in zip(SIZES, d, strict=True)])
    if power != -0.5:
        widths = SIZES**power
    rows = np.stack([np.full(4, math.log(place * 2 / 0.9)), np.log(widths)], -1)
    noise = 0.01 * np.random.default_rng(5).standard_normal((4, DRAWS, 2))
    fit = Study(verdict="inside", location=1.0, low=1.0, high=1.0, width=1.0, width_error=1.0)
    plan = Study(y=SIZES, n=SIZES[:, None], d=d[:, None])
    return Study(label_noise=0.05, fits=(fit,) * 4, threshold=Study(plan=plan), pseudo_values=rows[:, None] + noise)


@case(WHERE["S1"], 1.0, 1.15)
def _(place, patch):
    return transition(place=place)


@case(WHERE["S2"], 1.0, 1.4)
def _(width, patch):
    return transition(width=width)


@case(WHERE["S2b"], -0.5, -0.75)
def _(power, patch):
    return transition(power=power)


@case(PHASE["S5"], 1.0, 1.25)
def _(factor, patch):
    x = np.array([0.3, 0.5, 0.7, 1.2, 2.0, 2.5])
    exact = torch.special.log_ndtr(torch.as_tensor(-factor * x**2 * 0.45)) / math.log(10)
    return Study(label_noise=0.05, low=Study(plan=Study(x=x), log10_error=np.stack([columns(*exact.tolist()).T] * 2)))


@case(PHASE["S6"], -2.3, -2.3 * 1.4)
def _(error, patch):
    low = Study(interpolates=np.ones((2, 1, DRAWS), bool), log10_error=np.full((2, 1, DRAWS), error))
    return Study(low=low, low_predicted=np.full((1, DRAWS), -2.3))


@case(PHASE["S9b"], "own")
def _(world, patch):
    return Study(high=Study(log10_error=np.repeat(-np.arange(1.0, 5.0)[None, :, None], DRAWS, 2)))


# --- token selection ------------------------------------------------------------------------------------------------------------


@case(dynamics.CLAIMS["TS30"], 1.0, 0.7)
def _(height, patch):
    patch(dynamics, "mean_field", lambda *_, **__: Study(attention=np.full((2, FLIPPED + 1, 1), 0.2)))
    weight = torch.stack([near(0.1), near(height * 0.2), near(0.005)])[..., None]
    run = Study(law=LAW, start=Study(weight_scale=1.0), trajectory=Study(attention_of=lambda kind: weight))
    return Study(balanced=run, step_size=0.1, steps=1000)


@case(clock.CLAIMS["TS34"], 0, 1)
def _(world, patch):
    axes = {"d at fixed variance": (-1, -0.5), "d": (0, 0.5)}
    return Study(clock={name: Study(exponents=near(1.0) - 1 + powers[world]) for name, powers in axes.items()})


@case(clock.CLAIMS["TS32"], 1.0, 1.5)
def _(power, patch):
    patch(clock, "first_half_constant", lambda law: 1.0)
    values = np.array([0.25, 0.5, 1.0, 2.0])
    tau = values[:, None] ** -power * near(1.0).numpy()
    powers = {"step_size": -power, "signal_norm": -2 * power, "weight_scale": -power}
    axes = {name: Study(exponents=near(each)) for name, each in powers.items()}
    return Study(clock=axes | {"head_scale": Study(values=values, settings=[Study(law=None)] * 4, tau=tau)})


@case(clock.CLAIMS["TS35"], (1.0, 50.0))
def _(units, patch):
    """Two settings whose units are 1 and 50 steps, of one product."""
    units, one = np.array(units), np.ones(2)
    steps, products = (np.outer(each, near(1.0).numpy()) for each in (units, one))
    return Study(steps=steps, products=products, predicted_steps=units, predicted_products=one)


@case(clock.CLAIMS["TS35b"], [(1.0, ratio) for ratio in (0.25, 1.0, 4.0, 16.0)])
def _(scales, patch):
    in_sum, in_maximum = (np.outer([f(x) / sum(x) for x in scales], near(1.0).numpy()) for f in (sum, max))
    return Study(in_sum=in_sum, in_maximum=in_maximum)


@case(clock.CLAIMS["TS36"], {"clean_fitted": 1.0, "noisy_fitted": 0.0, "error": 1e-7, "uniform_attention": 0.2})
def _(state, patch):
    known = {name: np.full((3, DRAWS), value) for name, value in state.items()}
    return Study(at_half=Study(**known, fresh_attention=np.outer(np.full(3, 0.5), near(1.0))))


@case(DELAY["TS38"], (1.0, 1.4))
def _(powers, patch):
    strength = np.array(SHARP)
    sharp, delays = (
        Study(strength=strength, select=np.exp(strength[:, None] ** p + 0 * near(1.0).numpy())) for p in powers
    )
    return Study(sharp=[sharp], delays=delays)


@case(heat.CLAIMS["TS45"], (0.0, 0.6), (0.0, 0.0))
def _(fitted, patch):
    """Strong cells, and all of them."""
    values = np.array(fitted)[None, :, None] * np.ones(DRAWS)
    return Study(
        found=Study(
            plan=Study(over_cells=lambda _: np.array([[1000.0, 1.0]])), noisy_fitted=values, attention_noisy=1 - values
        )
    )


@case(heat.CLAIMS["TS48"], 2.0, 3.0)
def _(exponent, patch):
    patch(heat, "_slopes", lambda study: (near(exponent), torch.zeros(DRAWS, dtype=torch.bool)))


@case(EXISTENCE["TS57"], 1.2, 1.8)
def _(ratio, patch):
    return Study(descent=Study(still_to_move=(near(ratio), full(1.0))))


@case(REAL["TS66"], 0.9, 0.5)
def _(fit, patch):
    return Study(free=(2, 8), held_values=lambda what, k: full(0.9) if what == "reach" else full(fit, 2, 1))


@case(REAL["TS71"], 0.1, 0.9)
def _(lost, patch):
    return Study(networks={("mnist", "ViT"): Study(fit=lambda: near(0.9, 5), lost=lambda: near(lost, 5))})


@case(REAL["TS79"], ((0.1, 0.2), (0.9, 0.9)), ((0.9, 0.9), (0.1, 0.2)), ((0.1, 0.4), (0.9, 0.9)))
def _(found, patch):
    """(fit, lost) at n = 1000 and at n = 200."""
    at = dict(zip((1000, 200), found, strict=True))
    network = Study(fit=lambda n: near(at[n][0], 5), lost=lambda n: near(at[n][1], 5))
    return Study(networks={(data, "random features"): network for data in ("mnist", "cifar10")})


# --- in context -----------------------------------------------------------------------------------------------------------------


def signs(share, runs=20, heads=100):
    """(runs, heads): +1 in that share of the heads of each run."""
    return np.where(np.arange(heads) < round(share * heads), 1.0, -1.0) * np.ones((runs, 1))


@case(TRAINING["I21"], (0.5, 0.97, 1.0))
def _(shares, patch):
    """Shares of heads whose signs agree at the start, after 150 steps, at the end."""
    start, early, end = (full(share)[:20] for share in shares)
    return Study(signs=Study(start=start, early=early, end=end))


@case(TRAINING["I25"], (1.0, 1.0), (0.25, 1.0), (1.0, 1 / 1.2))
def _(world, patch):
    slower, larger = world
    known = {1000: 0.2} | dict(_PACE) | {500_000: 0.14}
    size = larger * torch.stack([near(value, 10) for value in known.values()], 1)
    return Study(pace=Study(reached=slower * near(5000.0, 10), steps=slower * np.array(list(known)), size=size))


@case(TRAINING["I27"], (1.0, 1.0), (1.25, 1.0), (1.0, 4.0))
def _(world, patch):
    """Losses that are smaller by a factor, and noise that is; the printed losses are made to fit them."""
    larger, wider = world
    distances = torch.cat([torch.linspace(-2.1, 2.1, 39), torch.tensor([3.6])]).double().reshape(2, 2, 10)
    noise = {1: 0.276, 2: 0.130}
    patch(training, "_prints", lambda heads: heads + noise[heads] * distances[heads - 1])
    losses = tuple(full(heads / larger)[:10] for heads in noise)
    return Study(losses=losses, noise=tuple(torch.tensor(each / wider).double() for each in noise.values()))


@case(CIRCUITS["I22"], 1.0, 1 / 1.1, 1 / 0.9)
def _(factor, patch):
    """Printed numbers that are this many times ours."""
    theirs = PUBLISHED[2]
    omega, total = (torch.tensor(theirs.omega).abs().mean().item(), _positive_sum(torch.tensor(theirs.mu)).item())
    sums = near(total / factor, 10)[:, None]
    numbers = Study(strong=None, mean_over=lambda *_: near(omega / factor, 10), mu=torch.cat([sums, -sums], 1))
    return Study(heads=(2,), ends={2: numbers}, free={2: torch.ones(10, dtype=torch.bool)})


@case(ESTIMATORS["I42"], 0.01, None, 0.0)
def _(found, patch):
    """What the heads have more than the centred step: the 0.01 that is predicted, or nothing."""
    law, step = RegressionLaw(5, 40), np.full(7, 0.89)
    centred, plain = (torch.as_tensor(f(law, step)) for f in (debiased_gd_risk, gd_risk))
    predicted = Study(centred=centred, plain=plain, added=full(0.01, 1)[:7, 0])
    model = Study(risk=(centred + found)[None])
    return Study(heads=Study(model=model), trained_at=0, kept=slice(None), predicted=predicted)


@case(TWO_NUMBERS["I53"], 1.0, 1.5)
def _(factor, patch):
    return Study(cost=near(0.0016 * factor))


@case(TWO_NUMBERS["I57"], 1.0, 1.05)
def _(factor, patch):
    sizes = {0.01: 0.234, 0.003: 0.177, 0.001: 0.140}
    return Study(stored_sizes={rate: (None, full(size * factor, 3)) for rate, size in sizes.items()})


@case(MORE_HEADS["I61"], 1.0, 1.1)
def _(factor, patch):
    patch(more_heads, "_against", lambda study, heads: near(2 * factor))
    law = RegressionLaw()
    return Study(stored_law=law, free=Study(risk_one=full(2 * float(debiased_gd_optimal_risk(law)))))


@case(MORE_HEADS["I62"], (1.01, 0.99), (1.0005, 1.0))
def _(ratios, patch):
    patch(more_heads, "_against", lambda study, heads: full(ratios[heads == 8]))
    return None


@case(MORE_HEADS["I67"], 2.0, 8.0)
def _(active, patch):
    return Study(ends={heads: Study(active=full(active)) for heads in (4, 8)})


@case(MORE_HEADS["I68"], (1e-5, 1e-2))
def _(changes, patch):
    merged, off = (full(1 + change) for change in changes)
    every = torch.ones(DRAWS, dtype=torch.bool)
    return Study(
        ends=dict.fromkeys(
            (4, 8),
            Study(merged_risk=merged, merged_off=off, plain_risk=full(1.0), kept=every, sharper_than=lambda _: ~every),
        )
    )


@case(WIDER["I82"], (1.0, 0.98), (1.25, 0.98), (1.0, 1.02))
def _(world, patch):
    three, four = world
    risks = {3: near(three, 5), 4: near(three * four, 5, spread=1e-4)}
    return Study(tasks={heads: Study(risk=risk) for heads, risk in risks.items()}, task_separate=1.0)


@case(WIDER["I85"], 1.0, 1.3)
def _(factor, patch):
    return Study(tasks={H: Study(trained=Study(loss=near(factor * 0.42, 5)[:, None])) for H in (3, 4)})


@case(WIDER["I78"], True, False)
def _(own, patch):
    """Risks of the trained heads, and closed forms in which the best heads, or the centred step, stand so to the plain matrix."""
    number, matrix, centred = (1.0, 0.45, 0.9) if own else (0.5, 1.0, 0.46)
    said = torch.tensor([1.025, 0.992], dtype=torch.float64)
    heads, step = (said, 2 * said) if own else (2 * said, said)
    found = Study(risk=near(0.47, 5), scalar_step=number, preconditioned=matrix, centred=centred)
    return Study(mean=found, over_matrix=Study(heads=heads, centred=step))


# --- finite data, staircase, one token ------------------------------------------------------------------------------------------


@case(FINITE_DATA["E4"], 1.0, 1.25)
def _(more, patch):
    law = Study(alpha=1.0, noise=0.1)
    limit = {tasks: near(limit_error(math.inf, 1.0, 0.5 * more, 0.1, tasks)) for tasks in ("fresh", "seen")}
    return Study(law=law, unlimited=Study(kappa=0.5, tau=math.inf, limit=limit))


@case(FINITE_DATA["E10"], 1.05, 1.2)
def _(factor, patch):
    law = Study(alpha=1.0, noise=0.1, length=16)
    fitted = full(factor * pattern_error(1.0, 0.1, 16), len(CURVE))
    return Study(
        law=law,
        curve=dict.fromkeys(("fresh", "penalty"), fitted),
        shares=[full(factor * pattern_error(1.0, 0.1, LARGE), 3)],
    )


SPECTRUM = SpectrumLaw((0.4, 0.3, 0.2, 0.1), 31)
LEVELS = plateau_levels(SPECTRUM)


def steps(higher, middle=1.0):
    """Heights of plateaus whose steps are that much higher than the levels say."""
    return columns(*(middle * (LEVELS[0] - higher * (LEVELS[0] - LEVELS[1:-1]))).tolist())


@case(STAIRCASE["P1"], 1.0, 1.2)
def _(factor, patch):
    matrix = torch.eye(4, dtype=torch.float64)
    return Study(
        sampled=near(factor * population_loss(SPECTRUM, matrix).item()), matrix=matrix, main=Study(law=SPECTRUM)
    )


@case(STAIRCASE["P2"], 1.0, 1.01)
def _(higher, patch):
    return Study(main=Study(law=SPECTRUM), best=(LEVELS[0] - higher * (LEVELS[0] - LEVELS[1:-1])).expand(5, -1))


@case(STAIRCASE["P3"], 1.0, 1.03)
def _(higher, patch):
    heights = steps(higher)
    return Study(main=Study(levels=LEVELS, heights=heights, no_plateau=torch.zeros_like(heights, dtype=torch.bool)))


@case(STAIRCASE["P5"], 1.0, 1.3)
def _(longer, patch):
    return Study(main=Study(ratio=columns(longer, longer, longer)))


@case(STAIRCASE["P6"], 1.0, 1.1)
def _(factor, patch):
    rate = factor * math.log(MERGED_SIZES[1] / MERGED_SIZES[2]) / float(np.sqrt((SPECTRUM.eigenvalues() ** 4).sum()))
    merged = torch.stack([full(0.0, 4), full(1.0, 4), 1 + columns(*[rate] * 4)], 1)
    return Study(
        main=Study(law=SPECTRUM), first=torch.stack([full(0.5), full(1.0), near(2.0**factor)], 1), merged=merged
    )


@case(STAIRCASE["P9"], 1.0, 1.15)
def _(larger, patch):
    heights, ratio = steps(larger), columns(*[larger] * 4)
    none = torch.zeros_like(heights, dtype=torch.bool)
    return Study(equal=Study(levels=LEVELS, heights=heights, no_plateau=none, ratio=ratio))


@case(STAIRCASE["P11"], SOFTMAX_HEADS, 1)
def _(heads, patch):
    left = (1 - SUM_STEP * heads * SPECTRUM.trace / SPECTRUM.length) ** (10 / SUM_STEP)
    return Study(softmax=Study(law=SPECTRUM), sums_time=10.0, sums=torch.stack([full(1.0), near(left)], 1))


@case(one_token.CLAIMS["K5"], 1.0, 2.0)
def _(multiple, patch):
    """Risks that follow the limit's profile around 2 c log L."""

    def risk(law):
        logarithm = math.log(law.tokens)
        return profile(torch.tensor((law.strength / 2 - multiple * logarithm) / math.sqrt(2 * logarithm))).item()

    for name in ("bayes_risk", "own_score_risk"):
        patch(one_token, name, risk)
