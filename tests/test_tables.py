"""Result tables: what a cell looks like, one line for each row in both forms, and what the comparison of outputs makes of them."""

import math
from unittest.mock import patch

import numpy as np
import pytest
import torch
from bs4 import BeautifulSoup

from bookkit.pages.stored_outputs import compare_outputs
from bookkit.pages.tolerances import Tolerances
from bookkit.tables import show_table, written


def shown(*arguments: object) -> dict[str, str]:
    """What a page's output holds."""
    with patch("IPython.display.display") as display:
        show_table(*arguments)
    return display.call_args.args[0]


@pytest.mark.parametrize(("value", "spec", "text"), [
    (0.66741, ".3f", "0.667"), (torch.tensor(-2.0), ".1f", "−2.0"), (np.float64(7), "g", "7"), (3, "", "3"),
    ((0.5, 0.01), ".2f", "0.50 ± 0.01"), ((0.5, math.nan), ".2f", "0.50"), ((-3.7, -4.7, -2.8), ".1f", "−3.7 [−4.7, −2.8]"),
    (math.nan, ".2f", "–"), (math.inf, ".2f", "∞"), (-0.0001, ".2f", "0.00"), (0.312, ".0%", "31%"),
    (None, ".2f", ""), (True, "", "yes"), ("x <= 3", ".2f", "x ≤ 3"), ("$x <= 3$", "", "$x <= 3$"),
])  # fmt: skip
def test_cells(value: object, spec: str, text: str) -> None:
    assert written(value, spec) == text


def test_both_forms_have_a_line_for_each_row() -> None:
    data = shown(
        [("plain", 0.6674, 12), ("best < all", (1.5, 0.25), None)], {"step": "", "risk": ".2f", "n": ""}, "Of $H$"
    )
    assert data["text/plain"].splitlines() == [
        "Of $H$",
        "step               risk   n",
        "plain              0.67  12",
        "best < all  1.50 ± 0.25",
    ]
    table = BeautifulSoup(data["text/html"], "html.parser")
    assert table.caption.text == "Of $H$"
    assert [cell.text for cell in table.select("thead th")] == ["step", "risk", "n"]
    rows = [[cell.text for cell in row.find_all(["th", "td"])] for row in table.select("tbody tr")]
    assert rows == [["plain", "0.67", "12"], ["best < all", "1.50 ± 0.25", ""]]
    assert [cell.get("style") for cell in table.select("tbody tr")[0].find_all(["th", "td"])] == [
        None,
        *["text-align: right"] * 2,
    ]
    assert [row.th["scope"] for row in table.select("tbody tr")] == ["row", "row"]
    assert len(data["text/html"].splitlines()) == len(data["text/plain"].splitlines())


@pytest.mark.parametrize(("value", "moving", "same"), [
    (0.23604, False, True), (0.23699, False, False), (0.23699, True, True), (0.24, True, False),
])  # fmt: skip
def test_a_number_of_a_table_is_compared_in_both_forms(value: float, moving: bool, same: bool) -> None:
    """0.236 is stored; 0.237 is one unit of its last digit away, and allowed only where the page is known to move."""
    stored, fresh = (
        [{"output_type": "display_data", "data": shown([(0.01, x)], {"rate": "g", "size": ".3f"})}]
        for x in (0.236, value)
    )
    kinds = ("text/plain", "text/html") if moving else ()
    known = Tolerances(moving=frozenset(f"cell 13 output 1 {kind} 1#1" for kind in kinds))
    differences = compare_outputs(stored, fresh, known, 13)
    assert len(differences) == (0 if same else 2), differences
