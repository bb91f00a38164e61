"""The enclosures of the exact clean error: against 30-digit quadrature, closed forms and a second integrator; what they refute."""

import dataclasses
import math

import mpmath
import pytest
from matplotlib.figure import Figure

from attnbook.certified import clean_error
from attnbook.certified.certificate import ball, bounds, decided, precision, sign
from attnbook.certified.clean_error import Head, TooWide, enclose
from attnbook.certified.error_figure import draw_distances, family_rows
from attnbook.certified.error_study import LADDER, next_digit, printed
from attnbook.certified.hard_heads import FAMILIES, Compared, backward_ulps, compare, draw, stored
from attnbook.certified.second_integral import by_arb_integral
from attnbook.certified.trained_heads import log10_clean_error_ball
from attnlib.single_head import SignalNoiseLaw, log10_clean_error, two_steps
from tests.bad_input import refusing
from tests.kernels.gaussian_tail_cases import EXACT, HEADS, MEETING_WALLS


def end(value, side: int) -> mpmath.mpf:
    return mpmath.mpf(bounds(value, 30)[side])


@pytest.mark.parametrize(("head", "exact"), [*zip(HEADS, EXACT, strict=True), *MEETING_WALLS])
def test_thirty_digits_lie_in_the_ball(head, exact) -> None:
    """The quadrature of the kernel's tests shares no line with the enclosure; its results are kept as floats."""
    found = enclose(Head(*head)).log_error
    assert float(end(found, 0)) == pytest.approx(exact, rel=1e-15)
    assert float(found.rad()) < 1e-17 * max(1, abs(exact))


@pytest.mark.parametrize("x", [-3.0, 0.3, 5.0, 11.9, 12.1, 60.0, 1e5])
def test_without_attention_the_integral_has_a_closed_form(x: float) -> None:
    """omega = 0: the numerator is Gaussian, and the error is Phi(-V/sqrt(c^2 + tau^2)), here with 3-4-5."""
    head = Head(0.0, 5 * x, 0.0, -3.0, 4.0)
    found = enclose(head).log_error
    with mpmath.workdps(60):
        real = mpmath.mpf(5 * x) / 5
        exact = mpmath.log(mpmath.erfc(real / mpmath.sqrt(2)) / 2) if x < 1e4 else _far(real)
        assert end(found, 0) <= exact <= end(found, 1)
        assert end(found, 1) - end(found, 0) < 1e-17 * max(1, abs(exact))


def _far(x: mpmath.mpf) -> mpmath.mpf:
    return -x * x / 2 - mpmath.log(x * mpmath.sqrt(2 * mpmath.pi)) + mpmath.log1p(-1 / x**2 + 3 / x**4 - 15 / x**6)


@pytest.mark.parametrize(("end_of_panels", "side"), [(4.0, 1), (30.0, 1), (-6.0, -1)])
def test_a_tail_is_no_larger_than_its_bound_and_a_bound_of_half_would_be_too_small(end_of_panels, side) -> None:
    with precision(128):
        n = clean_error.numbers(Head(0.0, 1.0, 0.0, -3.0, 4.0))  # x(t) = 1/4 - 3t/4
        found = clean_error.tail(ball(end_of_panels), side, n)
        assert not clean_error.tail(ball(end_of_panels), -side, n).is_finite()
    with mpmath.workdps(30):
        weight = lambda t: mpmath.exp(-t * t / 2) * mpmath.erfc((0.25 - 0.75 * side * t) / mpmath.sqrt(2)) / 2  # noqa: E731
        far = abs(end_of_panels)
        exact = mpmath.quad(weight, [far, far + 0.3, far + 2, far + 6])
        assert end(found, 0) <= exact <= end(found, 1) < 1.1 * exact


def test_what_lies_beyond_the_panels_is_in_the_ball(monkeypatch) -> None:
    """Tails that begin four nats below the peak hold a hundredth of the error, and the panels alone exclude it."""
    monkeypatch.setattr(clean_error, "_DROP", 4.0)
    for head, exact in zip(HEADS[:4], EXACT, strict=False):
        found = enclose(Head(*head), accuracy=math.inf).log_error
        assert found.contains(exact)
        assert 1e-4 < found.rad() < 0.1


def test_walls_that_all_but_meet_are_enclosed_or_the_search_for_panels_ends(monkeypatch) -> None:
    """There log err is -(m/tau)^2/2 but for a slowly varying part, m = c (1 - log c) the least value of e^-t + ct."""
    head, tried, remainder = Head(0.0, 1.0, 1.0, math.e, 1e-30), [], clean_error._remainder
    with mpmath.workdps(60):
        c, tau = mpmath.mpf(math.e), mpmath.mpf(1e-30)
        expected = -((c * (1 - mpmath.log(c)) / tau) ** 2) / 2
    assert float(enclose(head, bits=(256,)).log_error) == pytest.approx(float(expected), rel=1e-6)
    monkeypatch.setattr(clean_error, "_remainder", lambda *given: tried.append(1) or remainder(*given))
    monkeypatch.setattr(clean_error, "_TRIED", 400)
    with pytest.raises(TooWide, match="undecided at 128 bits: Head"):
        enclose(head, bits=(128,))
    assert len(tried) == 400


def test_the_ends_of_the_formula() -> None:
    assert enclose(Head(1.0, 0.0, 2.0, 1.0, 0.5)).log_error.overlaps(-ball(2).log())
    # err(V, c) + err(-V, -c) = 1
    one, other = (enclose(Head(2.0, s * 1.0, 1.0, s * 0.5, 1.0)).log_error.exp() for s in (1, -1))
    assert (one + other).overlaps(ball(1))
    assert abs(one - other) > 0.5


@pytest.mark.parametrize("family", ["steep", "wide", "ratio"])
def test_the_library_s_integrator_overlaps_and_refutes_a_wrong_constant(family: str) -> None:
    heads = [c.head for c in compare(draw(family, 8, seed=5)) if c.head.value > 0 and c.log10_error > -1e4][:2]
    for head in heads:
        found, other = enclose(head).log_error, by_arb_integral(head).log_error
        assert found.overlaps(other)
        moved = dataclasses.replace(head, value=head.value * (1 + 1e-5))
        assert not enclose(moved).log_error.overlaps(found)


def test_a_trained_head() -> None:
    """n, d and the runs differ; the float path agrees, and parameters that are moved by 1e-12 do not."""
    law = SignalNoiseLaw(n=20, d=700, signal_norm=9.0, label_noise=0.1)
    sample = law.draw(3, 3)
    steps = two_steps(sample, 0.05)
    found = log10_clean_error(steps.v2, steps.p2, sample)
    for run in (0, 2):
        exact = log10_clean_error_ball(steps.v2, steps.p2, sample, run)
        assert float(exact) == pytest.approx(found[run].item(), rel=1e-13)
        moved = log10_clean_error_ball(steps.v2, steps.p2 * (1 + 1e-12), sample, run)
        assert not moved.overlaps(exact)
    with pytest.raises(ValueError, match="p must have a part"):
        log10_clean_error_ball(steps.v2, 0 * steps.p2, sample, 0)
    turned = dataclasses.replace(sample, signals=sample.signals.flip(1))
    with pytest.raises(ValueError, match="noise must avoid the first coordinates"):
        log10_clean_error_ball(steps.v2, steps.p2, turned, 0)


# --- the hard heads -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_rows_of_the_table_are_made_again(family: str) -> None:
    """The first heads of a family as they are drawn again, its farthest head, and the table's own counts."""
    row = stored()[family]
    head = Head(*row["where"])
    (again,) = compare([head])
    assert again.distance < max(1e-11, 1000 * row["largest"])  # the farthest: its last bits are worth most
    assert row["heads"] == 2000
    assert row["unexplained"] == 0 if family == "tie" else row["largest"] < 3e-12
    drawn = draw(family, 2000)
    # Heads pass through powers and logarithms, whose last bits differ between processors.
    assert min(max(_apart(head, other)) for other in drawn) < 1e-9
    fresh = compare(drawn[:6])
    # What is lost where two walls meet: a last bit of c moves the error by 1e-8 of itself.
    near = 1e-4 if family == "tie" else 1e-9
    assert [c.log10_error for c in fresh] == pytest.approx([p[0] for p in row["points"][:6]], rel=near, abs=1e-300)


def _apart(head: Head, other: Head) -> list[float]:
    return [
        abs(mine - theirs) / max(abs(mine), 1e-300)
        for mine, theirs in zip(vars(head).values(), vars(other).values(), strict=True)
    ]


def test_a_neighbour_that_is_exact() -> None:
    """A result that was made for a head whose c is 40 units away is traced to 64 units, and a wrong one to none."""
    head = next(c for c in draw("tie", 40, seed=2) if c.tau > 1e-3 * c.along)
    moved = dataclasses.replace(head, along=head.along * (1 + 40 * 2.0**-52))
    y = float(enclose(moved).log_error)
    apart = abs(float(enclose(head).log_error) / y - 1)
    if apart > 1e-15:  # else a float cannot tell
        assert backward_ulps(Compared(head, y, apart, apart, 0.0)) in (32, 64)
    assert backward_ulps(Compared(head, 0.5 * y, 1.0, 1.0, 0.0)) is None


# --- claims, decimals, bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", range(len(LADDER)))
def test_each_last_digit_is_refuted_when_it_is_moved(place: int) -> None:
    head, text = LADDER[place]
    with precision(256):
        value = [enclose(head).log_error / ball(10).log()]
        assert printed(value, [text])
        for off in (1, -1):
            assert printed(value, [text], 1 + off * (next_digit(text) - 1)) is False


def test_decimals_are_rounded_outwards_and_a_wide_ball_decides_nothing() -> None:
    with precision(64):
        third, wide = ball(1) / 3, ball(1).union(ball(3))
        assert (bounds(third, 3), bounds(-third, 3)) == (("0.333", "0.334"), ("-0.334", "-0.333"))
        assert printed([wide], ["2.0"]) is sign(wide - 2) is None
        assert (sign(wide), sign(-wide), sign(wide * 0)) == (1, -1, 0)
    assert decided(lambda bits: None if bits < 200 else True) == (True, 256)
    assert decided(lambda bits: None, bits=(64, 128)) == (None, 128)


def head(**numbers) -> Head:
    return Head(**({"logit": 0.0, "value": 1.0, "omega": 1.0, "along": 0.5, "tau": 1.0} | numbers))


test_refusals = refusing(
    (head, (), {"tau": 0.0, "omega": -1.0, "logit": math.inf, "along": math.nan, "value": "1"}),
    (draw, ("wide", 3), {"family": "thin", "count": 0}),
    (lambda: precision(1).__enter__(), "bits must be a whole number >= 2"),
    (lambda: bounds(ball(1) / 0), "value must be a finite ball"),
    (lambda: by_arb_integral(Head(0.0, -1.0, 1.0, 0.5, 1.0)), "V must be > 0"),
)


def test_an_accuracy_that_no_ball_has_is_undecided() -> None:
    with pytest.raises(TooWide, match="undecided at 64 bits"):
        enclose(Head(*HEADS[12]), accuracy=1e-30, bits=(64,))


def test_each_kept_point_is_drawn_once_ties_apart_and_rows_are_families() -> None:
    axes, table = Figure().subplots(), stored()
    draw_distances(axes)
    counts = {name: sum(point[0] < 0 for point in row["points"]) for name, row in table.items()}
    others, ties, line = (len(drawn.get_xdata()) for drawn in axes.lines)
    assert (others, ties, line) == (sum(counts.values()) - counts["tie"], counts["tie"], 2)
    assert [(row[0], row[1]) for row in family_rows()] == [(name, 2000) for name in table]
