"""The figure of the hard heads: what the table keeps, ties apart from the other families."""

import numpy as np
from matplotlib.figure import Figure

from attnbook.certified.error_figure import draw_distances, family_rows
from attnbook.certified.hard_heads import FAR, stored


def test_each_kept_point_is_drawn_once_and_ties_apart() -> None:
    axes = Figure().subplots()
    draw_distances(axes)
    others, ties, line = axes.lines
    table = stored()
    assert len(ties.get_xdata()) == sum(point[0] < 0 for point in table["tie"]["points"])
    assert len(others.get_xdata()) == sum(
        point[0] < 0 for name in table if name != "tie" for point in table[name]["points"]
    )
    assert (np.asarray(ties.get_xdata()) > 0).all()
    assert min(others.get_ydata()) >= 1e-17
    assert set(line.get_ydata()) == {FAR}


def test_rows_are_families_and_the_largest_distances_are_those_of_the_table() -> None:
    rows, table = family_rows(), stored()
    assert [row[0] for row in rows] == list(table)
    assert sum(row[1] for row in rows) == 12_000
    for row in rows:
        np.testing.assert_allclose(float(row[5]), table[row[0]]["largest"], rtol=0.6)
