"""The explorer "finite_data": its formula against attnlib."""

import numpy as np
import pytest

from attnlib.finite_data import GapLaw, mean_attention
from tests.explorers.node import evaluate


def test_the_formula_is_attnlibs() -> None:
    gaps = np.linspace(0.1, 10, 100).tolist()  # the ends of the slider among them
    found = evaluate("finite_data", [("mean_attention", {"largest_gap": gap}) for gap in gaps])
    assert found == pytest.approx([mean_attention(GapLaw(gap)) for gap in gaps], rel=1e-12)
