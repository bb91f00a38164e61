"""Where few draws are benign the mean of logarithms goes by the seed; median and share of benign draws do not."""

import numpy as np
import pytest
import torch

from attnbook.single_head.batched import two_steps
from attnbook.single_head.typical_error import benign_share, typical_error
from attnlib.single_head.law import SignalNoiseLaw
from attnlib.single_head.summary import summarise
from tests.sweeps.page_cells import complete

# Next to a border of the phase diagram: one draw in fourteen has an error of about 10^-5000, the others one of 1/4 to 1/2.
RARE = {"n": 50, "d": 250_000, "signal_norm": 150.0, "step_size": 0.005}
ETA = 0.05


@pytest.fixture(scope="module")
def many() -> torch.Tensor:
    """log10 errors of 1000 draws: what ten of them are to tell."""
    law = SignalNoiseLaw(RARE["n"], RARE["d"], RARE["signal_norm"], ETA)
    return summarise(law, RARE["step_size"], draws=1000, seed=1000).log10_clean_error


@pytest.fixture(scope="module")
def ten() -> dict[str, np.ndarray]:
    """The page's named results of ten draws each at forty seeds."""
    points = [complete("single_head/02_two_steps", **RARE, draws=10, seed=seed) for seed in range(40)]
    found = two_steps(points)
    return {name: np.array([float(each[name]) for each in found]) for name in found[0]}


def test_the_mean_goes_by_the_seed_and_the_median_stays(ten) -> None:
    mean, middle = ten["log10_clean_error_mean"], ten["log10_clean_error_median"]
    assert mean.max() > -1
    assert mean.min() < -1000
    assert np.ptp(middle) < 0.35
    assert (np.abs(middle - np.log10(0.375)) < 0.2).all()  # errors of 1/4 (one class lost) to 1/2 (both)


def test_intervals_cover_what_many_draws_say(ten, many) -> None:
    true_share, true_median = (many < np.log10(ETA)).double().mean().item(), many.quantile(0.5).item()
    assert 0.055 < true_share < 0.095
    for name, truth in (("benign_share", true_share), ("log10_clean_error_median", true_median)):
        covered = (ten[f"{name}_low"] <= truth) & (truth <= ten[f"{name}_high"])
        assert covered.mean() >= 0.9  # of forty; 95 % are promised
    # What two standard errors of the mean would do: a seed without a benign draw is sure of a mean near zero.
    without = ten["benign_share"] == 0
    assert 10 < without.sum() < 30
    assert (ten["log10_clean_error_mean"][without] > -1).all()
    assert many.mean() < -200
    assert (ten["benign_share_high"][without] > 0.3).all()


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


@pytest.mark.parametrize(
    ("errors", "eta", "message"),
    [([], 0.1, "log10_error must be"), ([[-1.0]], 0.1, "log10_error must be"), ([-1.0], 1.5, "label_noise must be")],
)
def test_bad_arguments_are_named(errors, eta, message) -> None:
    with pytest.raises(ValueError, match=message):
        benign_share(errors, eta)
