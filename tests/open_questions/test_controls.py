"""Negative controls of Part IV could have held: each in a world of its own, where the claim fails."""

from types import SimpleNamespace as Study

import numpy as np
import pytest
import torch

from attnbook.open_questions.many_heads import claims as heads
from attnbook.open_questions.margin_and_descent import claims as margin
from attnbook.open_questions.more_classes import claims as classes
from attnbook.open_questions.out_of_the_trap import claims as trap
from attnbook.open_questions.random_starts import claims as starts
from attnbook.open_questions.second_layer.claims import CLAIMS as LAYERS
from attnbook.open_questions.second_layer.layer_error import noise_phase_error
from attnbook.open_questions.second_layer.layers import ARCHITECTURES
from attnbook.open_questions.second_layer.study import layers_law
from attnbook.open_questions.thresholds import claims as thresholds
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


# --- IV.4 ------------------------------------------------------------------------------------------------------------------


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


# --- IV.9 ------------------------------------------------------------------------------------------------------------------


# --- IV.10, IV.11 ----------------------------------------------------------------------------------------------------------


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


half, whole = (0.0, 1.0, 0.5, 0.97), (0.0, 1.0, 0.9, 0.3)  # of `factors`
undone, kept = (0.08, 0.03), (0.02, 0.5)  # of `trained_layer`


@pytest.mark.parametrize(
    ("claim", "own", "others"),
    [
        (CLASSES["Q36"], preference(0.07, 0.92, 1.0), [preference(0.92, 0.07, 1.0), preference(1.0, 0.92, 0.07)]),
        (CLASSES["Q86"], late_ends(1.0), [late_ends(2.0)]),
        (CLASSES["Q38"], unequal((-87, -1.25), (-50, -20)), [unequal((-50, -20), (-87, -1.25)), unequal((-1.25, -87), (-1, -1))]),
        (starts.CLAIMS["Q10"], alike((0.01, 0.002), (0.1, 0.05)),
         [alike((0.1, 0.05), (0.01, 0.002)), alike((0.002, 0.01), (0.1, 0.05))]),
        (starts.CLAIMS["Q45"], growth((2, 50, 2)), [growth((1, 1, 1))]),
        (starts.CLAIMS["Q93"], products(2.0), [products(1.0), products(4.0)]),
        (starts.CLAIMS["Q94"], factors(half, whole, 0.2),
         [factors(whole, half, 0.2), factors((1.0, 0.0, 0.5, 0.2), whole, 0.97)]),
        (LAYERS["Q39"], layers(0.002, 0.25, 0.222, 0.005),
         [layers(0.25, 0.002, 0.222, 0.005), layers(0.222, 0.25, 0.002, 0.222)]),
        (LAYERS["Q89c"], limit(known=True), [limit(known=False)]),
        *((claim, no_flips(1.0), [no_flips(claim.wrong)])
          for claim in (LAYERS["Q89"],)),
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
