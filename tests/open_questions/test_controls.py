"""Negative controls of Part IV could have held: each in a world of its own, where the claim fails."""

from collections.abc import Callable
from types import SimpleNamespace as Study

import numpy as np
import pytest
import torch

from attnbook.open_questions.attention_maps import claims_thresholds as thresholds
from attnbook.open_questions.attention_maps.claims import CLAIMS as MAPS
from attnbook.open_questions.attention_maps.claims import MOVING
from attnbook.open_questions.attention_maps.margin import SELECTIONS
from attnbook.open_questions.attention_maps.thresholds import MARGIN_NORMS
from attnbook.open_questions.judging import mean_share, none_judged, one_way, per_draw
from attnbook.open_questions.many_heads import claims as heads
from attnbook.open_questions.many_heads.study import WINDOW_ROWS
from attnbook.open_questions.margin_and_descent import claims as margin
from attnbook.open_questions.margin_and_descent.enumerations import HIGH_NORMS, LOW_NORMS
from attnbook.open_questions.more_classes import claims as classes
from attnbook.open_questions.noise_laws.claims import CLAIMS as NOISE
from attnbook.open_questions.noise_laws.claims import CORRELATED
from attnbook.open_questions.noise_laws.claims_long import CLAIMS as LONG
from attnbook.open_questions.out_of_the_trap import claims as trap
from attnbook.open_questions.random_starts import claims as starts
from attnbook.open_questions.second_layer.claims import CLAIMS as LAYERS
from attnbook.open_questions.second_layer.layer_error import noise_phase_error
from attnbook.open_questions.second_layer.layers import ARCHITECTURES
from attnbook.open_questions.second_layer.study import layers_law
from attnbook.open_questions.second_solver import WEIGHTS, on_both_sides
from attnlib.single_head.maps import SIGMOID
from bookkit.rules import within
from tests.worlds import worlds

CLASSES, HEADS = classes.CLAIMS, heads.CLAIMS
DRAWS = 60
YES, NO = np.ones((DRAWS, 2), bool), np.zeros((DRAWS, 2), bool)
FEW, SOME, MOST = (
    np.random.default_rng(0).permuted(np.arange(2 * DRAWS) < count).reshape(DRAWS, 2) for count in (14, 26, 110)
)


def _around(value: float, spread: float = 1e-3) -> torch.Tensor:
    """(DRAWS,): draws whose mean is the value."""
    return value * (1 + spread * torch.linspace(-1, 1, DRAWS, dtype=torch.float64))


# --- IV.1, IV.3 ------------------------------------------------------------------------------------------------------------


def window(fits: tuple) -> Study:
    """Which numbers of heads fit every label at beta = n/d."""
    rows = np.array([[np.full(DRAWS, row in fits)] for row in WINDOW_ROWS])
    return Study(window=Study(interpolates=rows, multiples=(1.0,)))


def local(ratios: tuple[float, ...]) -> Study:
    return Study(local=Study(widths=(1, 2, 4, 8), signal_in_p2=np.outer(ratios, _around(1.0))))


def low_snr(sigmoid: float, softmax: float, six: tuple[float, float]) -> Study:
    """log10 error at the end; of the six after two steps and at the end. Every label is fitted if softmax ends with the larger one."""
    ends = {m.name: six for m in MOVING} | {"sigmoid": (-3, sigmoid), "softmax": (six[0], softmax)}

    def at_norm(name: str, _: float) -> Study:
        error = np.array([np.zeros(DRAWS), *(_around(end).numpy() for end in ends[name])])
        return Study(log10_error=error, train_accuracy=[np.full(DRAWS, 1.0 if softmax > sigmoid else 0.99)])

    return Study(low=1.0, at_norm=at_norm)


# --- IV.4 ------------------------------------------------------------------------------------------------------------------


def rows(**gaps: float) -> Study:
    row = {
        name: [Study(gap=gap, standard_error=1e-4, sampled_mean=0.2, points=1000, sampled=torch.zeros(10))]
        for name, gap in gaps.items()
    }
    return Study(rows={name.replace("_", " "): found for name, found in row.items()})


def counted(formula: float) -> Study:
    """The counted error over the formula's; with white noise the formula says .3 in place of .2."""
    row = Study(
        formula=_around(0.2), white=_around(0.3), sampled_mean=0.2 * formula, standard_error=1e-3, points=1000,
        sampled=torch.zeros(10),
    )  # fmt: skip
    return Study(rows={name: [row] for name in (*CORRELATED, "not orthogonal")})


def gaps(ratio: float) -> Study:
    row = Study(
        truth=0.2 - 0.01 * _around(ratio), formula=torch.full((DRAWS,), 0.2), expansion=torch.full((DRAWS,), -0.01),
        standard_error=1e-4, points=1000,
    )  # fmt: skip
    return Study(rates={"sparse 10 %": [row] * 3, "sparse 1 %": [row]})


def traces(log10_error: float, pull: float) -> Study:
    row = Study(
        log10_error=_around(log10_error), predicted=_around(-3.0, 0), swapped=_around(-2.0, 0), traces=(1.0, 1.6),
        pull=_around(pull), name="AR(1) .5",
    )  # fmt: skip
    return Study(small=[row], large=[row])


def spike(width: float, power: int) -> Study:
    zeta = width * torch.special.ndtri((torch.arange(200, dtype=torch.float64) + 0.5) / 200)
    errors = {1: -3 + zeta.abs(), 2: -2 + zeta.abs()}
    return Study(spike=Study(zeta=zeta, log10_error=errors[power], from_zeta=errors[2], one_power=errors[1]))


# --- IV.5 ------------------------------------------------------------------------------------------------------------------


def preference(*shares: float) -> Study:
    return Study(two_steps={5: Study(preference=np.array([_around(share).numpy() for share in shares]))})


def late_ends(boundary: float) -> Study:
    x = np.tile(np.geomspace(0.5, 3, 8), (DRAWS, 1))
    return Study(late={K: Study(fates=Study(x=x, on_signal=x > boundary)) for K in (2, 3, 5, 10)})


def unequal(end: tuple[float, float], early: tuple[float, float]) -> Study:
    errors = {1000: end, 2: early}
    return Study(imbalance={step: np.stack([_around(e).numpy() for e in pair], 1) for step, pair in errors.items()})


# --- IV.6 ------------------------------------------------------------------------------------------------------------------


def alike(small: tuple[float, float], large: tuple[float, float]) -> Study:
    pairs = zip((0.1, 1.0), (small, large), strict=True)
    return Study(
        starts={
            size: Study(spread_clean=np.array([_around(v).numpy() for v in pair]), at=lambda _: 0, steps=(1000, 5000))
            for size, pair in pairs
        }
    )


def growth(grown: tuple[float, float, float], seed: int = 3) -> Study:
    """Classes below, at and above their boundary (1 without flips), for which 2, 50 and 2 is predicted."""
    random = np.exp(0.2 * np.random.default_rng(seed).standard_normal((DRAWS, 3)))
    course = Study(
        x=np.tile([0.5, 1.0, 2.0], (DRAWS, 1)), class_difference=np.stack([np.ones((DRAWS, 3)), random * grown]),
        clean=np.full((DRAWS, 3), 40.0), flipped=np.zeros((DRAWS, 3)),
    )  # fmt: skip
    return Study(growth=course, predicted_growth=np.tile([2.0, 50.0, 2.0], (DRAWS, 1)))


def products(rate: float) -> Study:
    """log |p| = rate x the sum of gradient norms - 1."""
    drive = torch.tensor([0.0, 2.0, 4.0], dtype=torch.float64).view(3, 1, 1).expand(3, DRAWS, 1)
    path = Study(attention_size=torch.full_like(drive, 2.0), drive=drive, p=(rate * drive - 1).exp().unsqueeze(-1))
    return Study(factors=Study(runs={0: path}))


def factors(small: tuple, large: tuple, plain: float) -> Study:
    """For factors of norm 0.01 and 0.3: accuracy at step 1 and at the end, attention, exponent over the linear model's; and of plain."""
    runs, errors = {}, {}
    for size, (first, last, clean, kept) in ((0.01, small), (0.3, large)):
        accuracy = torch.tensor([[first], [last]]).expand(2, DRAWS)
        run = Study(steps=(1, 500), train_accuracy=accuracy, attention_clean=torch.full((2, DRAWS, 1), clean))
        runs |= {(norm, size): run for norm in (30.0, 7.0)}
        errors[7.0, size] = np.full(DRAWS, -10 * kept)
    found = Study(
        runs=runs, norms=(30.0, 7.0), log10_error=errors, frozen={7.0: -10.0}, one_head={7.0: [np.full(DRAWS, -10 * plain)]}
    )  # fmt: skip
    return Study(factors=found)


# --- IV.7 ------------------------------------------------------------------------------------------------------------------


def patterns(factor: float, as_said: float) -> Study:
    found = {H: np.tile([0.0, as_said, factor / H, 0.0], (DRAWS, 4, 1)) for H in (2, 3)}
    return Study(margin=Study(classes=found))


def saddles(excess: float, soft: float) -> Study:
    return Study(margin=Study(low={2: np.full((DRAWS, 6, 4), excess)}, soft=np.full((DRAWS, 4), soft)))


def divisions(threshold: float, cost: float, divided: float) -> Study:
    def seen(norms: tuple[float, ...], H: int) -> np.ndarray:
        splits = margin._predicted_division(norms, H, threshold)
        return np.tile(np.stack([splits, splits, np.full(len(norms), cost), np.ones(len(norms))], 1), (DRAWS, 1, 1))

    low, high = ({H: seen(norms, H) for H in (2, 3)} for norms in (LOW_NORMS, HIGH_NORMS))
    return Study(margin=Study(low=low, high=high, high_classes=np.tile([divided, 2.0, cost], (DRAWS, 1))))


def joint(cost: float, smaller: float) -> Study:
    return Study(margin=Study(joint=np.tile([cost, smaller], (DRAWS, 1))))


def ties(gaussian: float, orthogonal: float) -> Study:
    return Study(margin=Study(ties=np.tile([-gaussian, -orthogonal], (DRAWS, 1))))


def schedules(constant: np.ndarray, small_first: np.ndarray, full_first: np.ndarray) -> Study:
    names = ("constant", "n/5d for 500 steps, then full", "full for 5 steps, then n/5d")
    found = zip(names, (constant, small_first, full_first), strict=True)
    return Study(schedules={name: (torch.as_tensor(flags).double(), None) for name, flags in found})


# --- IV.9 ------------------------------------------------------------------------------------------------------------------


def costs(own: float, noise: float) -> Study:
    svm = np.full((DRAWS, len(MARGIN_NORMS), len(SELECTIONS)), own)
    svm[..., SELECTIONS.index("noise")] = noise
    return Study(svm=torch.as_tensor(svm), cost=torch.full((DRAWS, len(MARGIN_NORMS), len(SELECTIONS)), 0.004).double())


def linear(rule: str) -> Study:
    net, x = (np.tile(part, (DRAWS, 1)) for part in ([0.5, 0.5, 1.5, 1.5, 3.0], [0.7, 1.2, 0.8, 1.4, 2.0]))
    return Study(linear_fates=Study(net=net, x=x, on_signal={"net": net > 1, "x": x > 1, "twice": net > 2}[rule]))


# --- IV.10, IV.11 ----------------------------------------------------------------------------------------------------------


def radial(low: bool, high: bool) -> Study:
    """Whether the classes at x_h = 0.8 and at 1.6 end on their signal; the arithmetic rule names noise at both."""
    target = np.repeat([0.8, 1.6], DRAWS)
    harmonic = np.stack([target] * 2, 1)
    ends = np.where(harmonic > 1, high, low)
    return Study(
        radial={3.0: Study(harmonic=harmonic, arithmetic=harmonic / 2, on_signal=ends, at=lambda t: target == t)}
    )


def lengths(kind: str) -> Study:
    target, n = np.repeat([0.6, 2.0], DRAWS), 10
    harmonic = np.stack([target] * 2, 1)
    predicted = np.random.default_rng(0).random((len(target), n)) < 0.5
    majority = np.repeat((harmonic > 1).mean(1, keepdims=True) > 0.5, n, 1)
    samples = {"lengths": predicted, "class": majority, "other": ~predicted}[kind]
    fates = Study(target=target, harmonic=harmonic, predicted=predicted, samples=samples, at=lambda t: target == t)
    return Study(radial={3.0: fates})


def traced(D: float) -> Study:
    fates = Study(effective=1.0, trace=1.5, cost=1 / _around(D).numpy())
    return Study(correlated={"white": fates, "spike d": fates})


def meeting(first: tuple[float, float], low: tuple[float, float]) -> Study:
    """log10 error with projected noise and without: after one step and at the end."""

    def course(start: float, end: float) -> Study:
        return Study(log10_error=np.stack([_around(v).numpy() for v in (start, end)]), at=lambda _: 0)

    avoids, meets = ([course(first[i], low[i])] for i in (0, 1))
    return Study(avoiding=avoids, meeting=meets)


def layers(residual: float, other: float, alone: float, trained: float) -> Study:
    named = {"residual": residual, "signal sees noise": other, "one layer": alone}
    frozen = {
        (name, 1.0): Study(log10_error=np.log10(_around(e).numpy())[None], at=lambda _: 0) for name, e in named.items()
    }
    found = {("residual", r, 1.0): Study(error=_around(trained).numpy()[None], steps=[300]) for r in (1e-4, 1e-3)}
    return Study(frozen=frozen, trained=found)


def limit(known: bool) -> Study:
    flips = np.tile([0.05, 0.15], DRAWS // 2)
    limits = {}
    for q in (1.0, 2.0):
        law = layers_law(q)
        law = (ARCHITECTURES["residual"], law.n, law.d, law.signal_norm)
        limits["residual", q] = np.array([noise_phase_error(*law, eta) if known else 0.5 for eta in flips])
    return Study(limits=limits, flips=flips)


# --- IV.2, IV.5, IV.9, IV.11: without label noise, in two steps, with two step sizes ----------------------------------------


def no_flips(boundary: float) -> Study:
    """Moves of weights whose side changes at this x; under names of several pages."""
    x = torch.as_tensor(np.repeat([0.5, 0.9, 1.1, 1.15, 1.5, 1.8], 5))
    moves = torch.outer(torch.sign(x - boundary), torch.tensor([0.0, 0.01, 0.02]).double())
    found = x, moves, torch.ones_like(x)
    return Study(one_way=found, moves={"softmax": found, "sparsemax": found})


def slopes(right: float, without: float) -> Study:
    row = Study(deviation=right, without_slopes=without)
    return Study(two_steps={K: row for K in (2, 3, 5, 10)}, draws=4)


def trained_layer(fast: tuple[float, float], slow: tuple[float, float]) -> Study:
    """Error, and how much the first layer looks at noise, of both steps."""

    def run(error: float, looks: float) -> Study:
        rises = np.tile(np.linspace(0.9, 1.1, 40) * error, (2, 1))
        return Study(steps=[0, 300], noise_to_signal=np.full((2, 40), looks), error=rises)

    frozen = Study(log10_error=np.full((2, 40), -2.0), at=[0, 300].index)
    trained = {("residual", 1e-3, 1.0): run(*fast), ("residual", 1e-4, 1.0): run(*slow)}
    return Study(trained=trained, frozen={("residual", 1.0): frozen})


# --- two groups exchanged -------------------------------------------------------------------------------------------------


def two_steps_fit(fast: float, slow: float) -> Study:
    return Study(frozen=Study(interpolates=np.array([[np.full(DRAWS, slow), np.full(DRAWS, fast)]])))


half, whole = (0.0, 1.0, 0.5, 0.97), (0.0, 1.0, 0.9, 0.3)  # of `factors`
light, sparse = ({"Rademacher": a, "uniform": a, "sparse_1_%": b} for a, b in ((0.0, 0.02), (0.02, 0.0)))
undone, kept = (0.08, 0.03), (0.02, 0.5)  # of `trained_layer`


@pytest.mark.parametrize(
    ("claim", "own", "others"),
    [
        (HEADS["Q4"], window((8,)), [window((2,)), window((1,))]),
        (MAPS["Q24"], local((0, 4 / 7, 6 / 7, 1)), [local((0, 1, 1, 1)), local((1, 6 / 7, 4 / 7, 1))]),
        (NOISE["Q72"], counted(1.0), [counted(1.5), counted(1.2)]),
        (NOISE["Q73"], gaps(1.0), [gaps(1.3)]),
        (NOISE["Q75"], traces(-3.0, 1.0), [traces(-2.0, 1.6), traces(-3.9, 1.3)]),
        (NOISE["Q74"], spike(1.0, 2), [spike(1.0, 1), spike(2**0.5, 2)]),
        (CLASSES["Q36"], preference(0.07, 0.92, 1.0), [preference(0.92, 0.07, 1.0), preference(1.0, 0.92, 0.07)]),
        (CLASSES["Q86"], late_ends(1.0), [late_ends(2.0)]),
        (CLASSES["Q38"], unequal((-87, -1.25), (-50, -20)), [unequal((-50, -20), (-87, -1.25)), unequal((-1.25, -87), (-1, -1))]),
        (starts.CLAIMS["Q10"], alike((0.01, 0.002), (0.1, 0.05)),
         [alike((0.1, 0.05), (0.01, 0.002)), alike((0.002, 0.01), (0.1, 0.05))]),
        (starts.CLAIMS["Q45"], growth((2, 50, 2)), [growth((1, 1, 1))]),
        (starts.CLAIMS["Q93"], products(2.0), [products(1.0), products(4.0)]),
        (starts.CLAIMS["Q94"], factors(half, whole, 0.2),
         [factors(whole, half, 0.2), factors((1.0, 0.0, 0.5, 0.2), whole, 0.97)]),
        (margin.CLAIMS["Q6"], patterns(1.0, 1.0), [patterns(1.01, 1.0), patterns(1.0, 0.0)]),
        (margin.CLAIMS["Q48"], saddles(0.0, 1.0), [saddles(1.0, 1.002)]),
        (margin.CLAIMS["Q49"], divisions(1.0, 1.0, 2.0), [divisions(0.5, 1.0, 2.0), divisions(1.0, 1.2, 0.0)]),
        (margin.CLAIMS["Q50b"], joint(1.0, 1.0), [joint(0.97, 0.0)]),
        (margin.CLAIMS["Q91"], ties(1e-4, 0.0), [ties(0.0, 1e-4)]),
        (MAPS["Q22"], low_snr(-2.24, -0.48, (-3, -0.71)), [low_snr(-0.48, -2.24, (-0.71, -3))]),
        (margin.CLAIMS["Q15"], schedules(FEW, YES, NO), [schedules(FEW, NO, YES), schedules(YES, FEW, NO)]),
        (thresholds.CLAIMS["Q23"], costs(0.004, 0.005), [costs(0.0044, 0.005), costs(0.004, 0.0039)]),
        (thresholds.CLAIMS["Q66"], costs(0.004, 0.005), [costs(0.0044, 0.005), costs(0.004, 0.0039)]),
        (thresholds.CLAIMS["Q68"], linear("net"), [linear("x"), linear("twice")]),
        (LONG["Q34"], radial(low=False, high=True), [radial(low=False, high=False), radial(low=True, high=True)]),
        (LONG["Q76"], lengths("lengths"), [lengths("class"), lengths("other")]),
        (LONG["Q77"], traced(1.0), [traced(1.5), traced(2.0)]),
        (LONG["Q78"], meeting((-3, -1), (-0.5, -0.5)), [meeting((-3, -3), (-0.5, -1))]),
        (LAYERS["Q39"], layers(0.002, 0.25, 0.222, 0.005),
         [layers(0.25, 0.002, 0.222, 0.005), layers(0.222, 0.25, 0.002, 0.222)]),
        (LAYERS["Q89c"], limit(known=True), [limit(known=False)]),
        (NOISE["Q31"], rows(**light), [rows(**sparse)]),
        *((claim, no_flips(1.0), [no_flips(claim.wrong)])
          for claim in (LAYERS["Q89"], thresholds.CLAIMS["Q61"])),
        (CLASSES["Q35"], slopes(1e-15, 0.2), [slopes(0.2, 1e-15)]),
        (LAYERS["Q39b"], trained_layer(undone, kept), [trained_layer(kept, undone), trained_layer((0.005, 0.03), kept)]),
    ],
    ids=lambda each: getattr(each, "id", None),
)  # fmt: skip
def test_each_control_in_its_own_world(claim, own, others):
    assert worlds(claim, own, *others) == []


def test_heads_that_lead_in_both_directions(monkeypatch):
    monkeypatch.setattr(starts, "across_directions", lambda course, _: course.cosine)

    def study(cosine: float, grown: float) -> Study:
        spread = np.random.default_rng(1).standard_normal(DRAWS) * 0.1
        ends = np.sqrt([np.ones((DRAWS, 1)), grown**2 * (1 + spread[:, None])])
        return Study(directions=Study(steps=(0, 1000), cosine=cosine + spread - spread.mean(), class_difference=ends))

    assert worlds(starts.CLAIMS["Q47"], study(0.0, 20.9), study(-0.5, 20.9), study(0.0, 83.6)) == []


def test_a_flow_with_another_constant_and_with_the_other_sign(monkeypatch):
    def study(factor: float, sign: float) -> None:
        def flow(x, eta, attention_map, *, times, step):
            P = times.view(-1, 1).expand(-1, len(x)).clamp(max=20)
            square = 2 * (P + torch.expm1(P)) if attention_map is SIGMOID else P + P**2
            V = sign * (factor * square).sqrt()
            return Study(states=torch.stack([V, V, V, P], -1))

        monkeypatch.setattr(thresholds, "map_flow", flow)

    claim = thresholds.CLAIMS["Q67"]
    for world, holds in (((1.0, 1.0), 1.0), ((1.01, 1.0), 1.01), ((1.0, -1.0), -1.0)):
        study(*world)
        assert [claim.seen(None, constant).holds for constant in (1.0, *claim.wrong)] == [
            constant == holds for constant in (1.0, *claim.wrong)
        ]


@pytest.mark.parametrize(
    ("claim", "study", "one", "other"),
    [
        (HEADS["Q5"], two_steps_fit, 1.0, 0.0),
    ],
    ids=lambda each: getattr(each, "id", None),
)
def test_the_two_groups_exchanged(claim, study: Callable[..., Study], one: object, other: object) -> None:
    assert worlds(claim, study(one, other), study(other, one)) == []
    # One group alone cannot make the claim hold: both halves are needed.
    assert not claim.seen(study(one, one)).holds
    assert not claim.seen(study(other, other)).holds


def test_draws_of_which_nothing_is_judged_are_silent_and_others_are_not():
    flags, judged = np.ones((8, 4), bool), np.ones((8, 4), bool)
    judged[0] = False
    assert none_judged([judged]).tolist() == [True] + [False] * 7
    assert none_judged([judged, np.ones((8, 1), bool)]).sum() == 0
    assert mean_share([flags], 0.5, what="classes", judged=[judged]).draws == 7
    shares = per_draw([flags], [judged])
    assert within(shares, low=1.0, silent=none_judged([judged])).holds
    shares[3] = np.nan
    assert within(shares, low=1.0, silent=none_judged([judged])).mute


def test_a_boundary_elsewhere():
    x = np.repeat([0.5, 0.9, 1.1, 1.5], 5)
    moves = np.outer(np.sign(x - 1.2), [0.0, 0.01, 0.02])
    assert not one_way(x, moves, 1.0).holds
    assert one_way(x, moves, 1.2).holds
    # No sharper than the nearest x on either side.
    assert [part.grid for part in one_way(x, moves, 1.2).parts] == [pytest.approx(1.5 / 1.2 - 1)]
    assert not one_way(x, np.zeros_like(moves), 1.0).holds  # weights that never move follow no boundary
    values = np.array([1.2, 3.0])
    assert not on_both_sides(values, 1.0, lambda x: x > 1.02 * values).holds
    assert on_both_sides(values, 1.02, lambda x: x > 1.02 * values).holds


@pytest.mark.parametrize(
    ("module", "id", "solver"),
    [
        (margin, "Q12", "ends_on_signal"),
        (margin, "Q14", "ends_on_signal"),
        (heads, "Q43", "ends_on_signal"),
        (trap, "Q53", "ends_on_signal"),
        (thresholds, "Q64", "ends_on_signal"),
        (classes, "Q84", "class_ends_on_signal"),
    ],
)
def test_boundaries_that_a_solver_finds_elsewhere(monkeypatch, module, id, solver):
    """The solver of the control's world puts each boundary where the control says."""
    claim = module.CLAIMS[id]
    asked = []
    monkeypatch.setattr(
        module, solver, lambda x, *rest, **options: asked.append(np.array(x)) or np.zeros(x.shape, bool)
    )
    claim.seen(None)
    middle = np.concatenate(
        [x.mean(0).ravel() for x in asked]
    )  # the claimed values, in the order in which they are asked for

    def found(factor):
        left = list(middle) * 2

        def ends(x, *rest, **options):
            own = np.array([left.pop(0) for _ in range(x[0].size)]).reshape(x[0].shape)
            return x > factor * own

        return ends

    other = 1 / claim.wrong if id == "Q14" else claim.wrong  # Q14 divides x_1 by its ratio
    for factor, holds in ((1.0, True), (other, False)):
        monkeypatch.setattr(module, solver, found(factor))
        assert claim.seen(None).holds is holds
        monkeypatch.setattr(module, solver, found(factor))
        assert claim.seen(None, claim.wrong).holds is not holds


def test_a_trap_that_leaks(monkeypatch):
    claim, study = thresholds.CLAIMS["Q64b"], Study(sample=Study(seed=0))
    assert "linearised softmax" in WEIGHTS

    def leaks(names, rise):
        return lambda name, seed: (np.full(50, float(name in names)), np.full(50, rise))

    others = [name for name in WEIGHTS if name != "linearised softmax"]
    for names, rise, holds in ((["linearised softmax"], -0.1, 1.0), (others, -0.1, 0.0), ([], 0.1, -1.0)):
        monkeypatch.setattr(thresholds, "trap_exits", leaks(names, rise))
        for constant in (1.0, *claim.wrong):
            assert claim.seen(study, constant).holds is (constant == holds)
