"""All x of an interval at once: polynomials against single paths, cells against each other, the stored table, one cell again."""

from decimal import Decimal
from itertools import pairwise

import pytest

from attnbook.certified import boundary_range
from attnbook.certified.boundary import BRACKETS, KEPT
from attnbook.certified.boundary_flow import WEIGHTS, Model, at, flow_tube
from attnbook.certified.boundary_range import cells, covered, range_ends, stored
from attnbook.certified.certificate import precision

flint = pytest.importorskip("flint")
arb = flint.arb


@pytest.mark.weekly
def test_the_polynomials_hold_the_path_of_each_x() -> None:
    """After 24 steps the whole family and single paths, computed without polynomials, agree to within their radii."""
    with precision(96):
        start = [[arb(0)] * (boundary_range.DEGREE + 1) for _ in range(5)]
        family = boundary_range.Family(arb("1.5"), arb("0.02"), start)
        for _ in range(24):
            family, error = boundary_range._advanced(family, arb("0.25"), 2.0**-5)
            assert error < 1e-11
        assert 0 < family.radius < 1e-9
        left, right = family.halves()
        for place in ("-1", "-0.35", "0.8"):
            xi = arb(place)
            x = arb("1.5") + arb("0.02") * xi
            tube, _ = flow_tube(Model(x, arb("0.25"), arb(1)), lambda _: None, bits=96, longest=0.75)
            half = right if place == "0.8" else left
            for found, radius, shift in (
                (family, family.radius, xi),
                (half, half.radius, 2 * xi - (1 if half is right else -1)),
            ):
                for row, value, weight in zip(found.coefficients, tube.state, WEIGHTS, strict=True):
                    assert abs(at(row, shift) - value) < 1e-18 + radius * weight
                    assert abs(at(row, shift) - value) < 1e-10


@pytest.mark.weekly
def test_cells_grow_and_leave_no_gap() -> None:
    found = cells("1.63", "1.96")
    assert found[:4] == ["1.63", "1.64", "1.65", "1.67"]
    assert found[-1] == "1.96"
    assert all(Decimal(low) < Decimal(high) for low, high in pairwise(found))
    down = cells("1.6211", "1.0000", 3)
    assert down[:3] == ["1.6211", "1.6210", "1.6207"]
    assert all(Decimal(low) > Decimal(high) for low, high in pairwise(down))
    assert covered(found, "1.63", "1.96")
    assert not covered(found, "1.62", "1.9")
    assert not covered([], "1", "2")


@pytest.mark.weekly
def test_the_table_covers_what_the_claims_say() -> None:
    table = stored()
    for label_noise, (low, _) in BRACKETS.items():
        assert covered(table[f"{label_noise} noise"], "1", low)
    for label_noise, (low, high) in KEPT.items():
        assert covered(table[f"{label_noise} signal"], low, high)


@pytest.mark.weekly
def test_cells_of_the_table_are_proved_again() -> None:
    """The last cell of each lost side, and a piece of the first kept cell."""
    table = stored()
    for label_noise in BRACKETS:
        far, near = sorted(table[f"{label_noise} noise"][-2:], key=Decimal)
        assert range_ends(label_noise, far, near, "noise").proved is True
    assert range_ends("0.2", "1.8", "1.801", "signal").proved is True
