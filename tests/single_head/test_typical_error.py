"""Where few draws are benign the mean of logarithms goes by the seed; median and share of benign draws do not."""

import numpy as np
import pytest

from attnbook.single_head.typical_error import benign_share, typical_error


# Next to a border of the phase diagram: one draw in fourteen has an error of about 10^-5000, the others one of 1/4 to 1/2.
def test_counted_by_hand() -> None:
    errors = [-0.3, -1.4, -1.3, -0.5, -7.0, -2.0]  # log10 of 0.05 is -1.301
    named = typical_error(errors, 0.05, prefix="late_")
    assert list(named) == [
        "late_log10_clean_error_median", "late_log10_clean_error_median_low", "late_log10_clean_error_median_high",
        "late_benign_share", "late_benign_share_low", "late_benign_share_high",
    ]  # fmt: skip
    assert list(named.values())[:4] == [pytest.approx(-1.35), -7.0, -0.3, 0.5]
    # Three of six: p^3 (20 (1-p)^3 + 15 p (1-p)^2 + 6 p^2 (1-p) + p^3) is 0.025 at the lower end, and the upper one is its mirror.
    p = named["late_benign_share_low"]
    assert p**3 * (20 * (1 - p) ** 3 + 15 * p * (1 - p) ** 2 + 6 * p**2 * (1 - p) + p**3) == pytest.approx(0.025)
    assert named["late_benign_share_high"] == pytest.approx(1 - p)


def test_without_label_noise_or_with_an_unknown_error_no_share_is_defined() -> None:
    assert np.isnan([*benign_share([-300.0, -400.0], 0.0).named("x").values()]).all()
    assert np.isnan(benign_share([-300.0, np.nan], 0.1).value)
    assert benign_share([-300.0, -400.0], 0.1).value == 1.0
