"""Constants of Parts I and II a second way: scipy on the definitions, attnlib's float formulas, and the float bounds on two steps."""

import math
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flint")

from scipy.integrate import quad, solve_ivp
from scipy.optimize import brentq
from scipy.stats import norm

from attnbook.certified.certificate import ball, precision
from attnbook.certified.claims_constants import FIRST_MOVES, ConstantsStudy
from attnbook.certified.constants import Selection, first_move
from attnbook.certified.constants_two_steps import TwoSteps
from attnbook.certified.printed import moved, rounds_to
from attnbook.single_head.deviations import deviation_bounds
from attnbook.single_head.label_counts import possible_counts
from attnbook.token_selection import theory
from attnbook.token_selection.the_delay.limits import critical_discrimination
from attnlib.single_head.law import SignalNoiseLaw
from attnlib.token_selection.law import TokenLaw


@pytest.fixture(scope="module")
def study() -> ConstantsStudy:
    return ConstantsStudy()


def law(**changes: float) -> TokenLaw:
    settings = {"n": 20, "d": 2000, "tokens": 6, "signal_norm": 20.0, "weak_signal": 0.15, "label_noise": 0.1}
    return TokenLaw(**{**settings, **changes})


OTHER = {"tokens": 6, "flipped": "0.1", "weak": "0.15"}


@pytest.mark.parametrize(
    ("name", "formula"),
    [
        ("signal_score", lambda x: brentq(lambda s: math.exp(s) - 3 - 2 * math.exp(0.15 * s), 0, 5, xtol=1e-13)),
        ("first_half", theory.first_half_constant),
        ("memory_exponent", theory.memorisation_exponent),
        ("delay_exponent", theory.delay_exponent),
        ("drag", theory.noisy_drag_threshold),
        ("critical", critical_discrimination),
    ],
)
def test_at_another_law_the_ball_holds_the_float_formula(name: str, formula) -> None:
    with precision(64):
        assert float(getattr(Selection(**OTHER), name)) == pytest.approx(formula(law()), rel=2e-9)


def test_the_first_half_as_a_time_of_the_flow() -> None:
    """dS/dtau' = half the denominator of the integrand: followed until softmax gives x_1 one half."""
    eta, rho, share = 0.2, 0.1, np.array([1, 0.1, 0.1, 0, 0, 0, 0, 0])
    value = np.array([1, -rho, rho, 0, 0, 0, 0, 0]) / math.sqrt(2)

    def weights(s: float) -> np.ndarray:
        w = np.exp(share * s)
        return w / w.sum()

    def speed(_: float, s: np.ndarray) -> list[float]:
        w = weights(s[0])
        mean = w @ value
        kinds = (1 - eta) / (1 + math.exp(mean)) - eta / (1 + math.exp(-mean))
        return [kinds * (share * w) @ (value - mean) / 2]

    def half(_: float, s: np.ndarray) -> float:
        return weights(s[0])[0] - 0.5

    half.terminal = True  # type: ignore[attr-defined]
    run = solve_ivp(speed, (0, 500), [0.0], events=half, rtol=1e-11, atol=1e-12, method="LSODA")
    assert run.t_events[0][0] == pytest.approx(128.0303, abs=2e-4)


def test_hard_selection_and_the_critical_strength() -> None:
    def first(D: float) -> float:
        return quad(lambda x: norm.pdf(x) * norm.cdf(x + 0.9 * D) ** 2 * norm.cdf(x + D) ** 5, -9, 9, epsabs=1e-13)[0]

    with precision(64):
        found = Selection()
        assert float(found.hard_selection(ball(2))) == pytest.approx(first(2.0), abs=1e-11)
        assert float(found.critical_strength) == pytest.approx(
            4 * 7 / 8 * brentq(lambda D: first(D) - 0.5, 0.5, 3) ** 2 / 0.67**2, rel=1e-8
        )


def test_no_drag_without_a_lead() -> None:
    with precision(64), pytest.raises(ArithmeticError, match="not proved positive"):
        _ = Selection(flipped="0.49").drag


def test_the_table_of_first_moves_is_that_of_the_chapter() -> None:
    chapter = (Path(__file__).parents[2] / "book/single_head_long_run_theory.md").read_text(encoding="utf-8")
    rows = {
        line.split("|")[1].strip(): [cell.strip() for cell in line.split("|")[2:-1]]
        for line in chapter.splitlines()
        if line.startswith("| $")
    }
    table = dict(zip(rows[r"$\eta$"], rows["$x_1$"], strict=True))
    assert {eta: float(x) for eta, x in table.items()} == {eta: float(x) for eta, x in FIRST_MOVES.items()}
    for eta in FIRST_MOVES:
        nu = float(eta) / (1 - float(eta))
        assert float(first_move(eta)) == pytest.approx(max(np.roots([(1 - nu) ** 2, -2 * nu, -1]).real), rel=1e-9)


def test_two_steps_are_those_of_the_float_bounds() -> None:
    """At sizes of its own: n = 120, d = 30 000, another step, other flips."""
    n, d, eta, delta = 120, 30_000, 0.04, 0.02
    float_law = SignalNoiseLaw(n, d, math.sqrt(5.1 * d / n), eta)
    bounds = deviation_bounds(float_law, 1.3 * 4 * n / d, *possible_counts(float_law, delta / 2), delta=delta)
    with precision(64):
        found = TwoSteps(n=n, d=d, level="5.1", pull="1.3", flipped="0.04", delta="0.02")
        assert found.sets == len(bounds.clean)
        rooms = bounds.flipped_room.min(), (bounds.value - bounds.value_room).min(), bounds.noise_low.min()
        assert float(found.room) == pytest.approx(min(x.item() for x in rooms), rel=1e-9)
        assert float(found.log10_error) == pytest.approx(bounds.log10_error.max().item(), rel=1e-8)


PRINTED = [
    ("signal_score", "2.0075", {}), ("delay_exponent", "5.99", {}), ("first_half", "128.03", {}), ("floor", "0.4008", {}),
    ("memory_exponent", "0.06408", {"flipped": "0.1"}), ("memory_exponent", "0.018", {}), ("drag", "4.55", {}), ("critical", "1.38", {}),
    ("critical_strength", "14.9", {}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "said", "changes"), PRINTED)
def test_each_last_digit_by_itself(name: str, said: str, changes: dict[str, str]) -> None:
    for steps, proved in ((-1, False), (0, True), (1, False)):
        assert rounds_to(name, lambda: getattr(Selection(**changes), name), moved(said, steps)).proved is proved


@pytest.mark.parametrize(("flipped", "said"), FIRST_MOVES.items())
def test_each_first_move_by_itself(flipped: str, said: str) -> None:
    for steps in (-1, 1):
        assert rounds_to("x_1", lambda: first_move(flipped), moved(said, steps)).proved is False
