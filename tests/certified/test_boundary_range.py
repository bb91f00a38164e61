"""All x of an interval at once: polynomials against single paths, and the stored table."""

import pytest

from attnbook.certified import boundary_range
from attnbook.certified.boundary import BRACKETS, KEPT
from attnbook.certified.boundary_flow import WEIGHTS, Model, at, flow_tube
from attnbook.certified.boundary_range import covered, stored
from attnbook.certified.certificate import precision

flint = pytest.importorskip("flint")
arb = flint.arb


@pytest.mark.parametrize(("delta", "steps", "length"), [("0.2", 8, 2.0**-5), ("0.000001", 6, 2.0**-3)])
def test_the_polynomials_hold_the_path_of_each_x(delta: str, steps: int, length: float) -> None:
    """The family, its halves and single paths agree to within their radii; what is cut off in x, or in time, is seen at the ends."""
    with precision(96):
        start = [[arb(0)] * (boundary_range.DEGREE + 1) for _ in range(5)]
        family = boundary_range.Family(arb("1.5"), arb(delta), start)
        for _ in range(steps):
            family, error = boundary_range._advanced(family, arb("0.25"), length)
        assert error < family.radius < 1e-10
        left, right = family.halves()
        farthest = 0.0
        for place, half, shift in (("-1", left, arb(-1)), ("-0.35", left, arb("0.3")), ("1", right, arb(1))):
            xi = arb(place)
            x = arb("1.5") + arb(delta) * xi
            tube, _ = flow_tube(Model(x, arb("0.25"), arb(1)), lambda _: None, bits=96, longest=steps * length)
            for found, at_place in ((family, xi), (half, shift)):
                for row, value, weight in zip(found.coefficients, tube.state, WEIGHTS, strict=True):
                    off = abs(at(row, at_place) - value)
                    assert off < found.radius * weight
                    farthest = max(farthest, float(off))
        assert farthest > 1e-20


def test_cells_that_do_not_reach_an_end_cover_nothing() -> None:
    assert covered(["1.63", "1.64", "1.96"], "1.63", "1.96")
    assert not covered(["1.63", "1.96"], "1.62", "1.9")
    assert not covered([], "1", "2")


def test_the_table_covers_what_the_claims_say() -> None:
    table = stored()
    for label_noise, (low, _) in BRACKETS.items():
        assert covered(table[f"{label_noise} noise"], "1", low)
    for label_noise, (low, high) in KEPT.items():
        assert covered(table[f"{label_noise} signal"], low, high)


def test_a_range_that_is_not_proved_ends_after_so_many_halvings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boundary_range, "HALVED", 2)
    assert boundary_range.range_ends("0.2", "1.6212", "40", "signal").verdict == "undecided"
