"""What sweeps collect from pages: a number that draws have made stands with its interval, or here with the reason why it has none."""

from functools import cache
from pathlib import Path

import nbformat
import pytest

from bookkit.pages.catalogue import find_pages
from bookkit.results import read_results

ROOT = Path(__file__).parents[1]
FORMULA = "computed without chance"
SHOWN = "of the cells, grid points or training sets that the page shows, and no estimate of anything else"
JUDGED = "a ratio or a slope whose error a claim of the page judges"
BARE = {
    "in_context/01_data_and_model": {"noise_variance": FORMULA},
    "in_context/02_training": {"loss_final": SHOWN},
    "in_context/03_circuits": {"off_diagonal_largest": SHOWN, "omega_live": SHOWN},
    "in_context/05_two_numbers_per_head": {"eta_pair": FORMULA},
    "in_context/07_deeper_and_wider": {
        **dict.fromkeys(("offset_best", "risk_preconditioned", "risk_separate"), FORMULA),
        "bayes_factor": JUDGED,
    },
    "open_questions/02_optimisers": {"x_star_block": FORMULA},
    "open_questions/03_attention_maps": {"x_star_softmax": FORMULA, "x_star_sparsemax": FORMULA},
    "open_questions/04_noise_laws": {
        **dict.fromkeys(("effective_over_d_spike", "largest_gap_light_tails"), SHOWN),
        "radial_t3_formula_over_counted": JUDGED,
    },
    "open_questions/05_more_classes_and_layers": {
        **dict.fromkeys(("fates_by_flow", "fates_by_margin"), SHOWN),
        **dict.fromkeys(("x_star_3_classes", "x_star_10_classes"), FORMULA),
    },
    "one_token/01_one_token": {"strength_ratio_100_tokens": FORMULA},
    "reruns/01_one_run_many_runs": dict.fromkeys(
        (
            *(
                "benign_share_at_twice_the_best",
                "best_signal_norm",
                "best_step_at_twice_the_best",
                "sweep_standard_error",
            ),
            *("log10_clean_error_median_at_twice_the_best", "log10_clean_error_median_there"),
            *("single_log10_clean_error_mean", "sweep_log10_clean_error_mean", "sweep_log10_clean_error_median"),
        ),
        SHOWN,
    ),
    "single_head/01_signal_and_noise": dict.fromkeys(("averaging_error_formula", "n_snr_squared", "snr"), FORMULA),
    # The mean of logarithms that heavy tails rule, and the extremes that show it; the median beside them has its interval.
    "single_head/02_two_steps": dict.fromkeys(
        ("log10_clean_error_max", "log10_clean_error_mean", "log10_clean_error_min"), SHOWN
    ),
    "single_head/04_max_margin": {
        **dict.fromkeys(("threshold_measured_1", "threshold_measured_2"), SHOWN),
        **dict.fromkeys(("threshold_predicted_1", "threshold_predicted_2"), FORMULA),
    },
    "single_head/05_phase_diagram": {
        **dict.fromkeys(("benign_share_noise_snr", "benign_share_snr_n", "benign_share_snr_step"), SHOWN),
        "interpolating_share_dimension": SHOWN,
        "threshold_formula": FORMULA,
    },
    "single_head/06_beyond_two_steps": {"x_star": FORMULA},
    "single_head/07_assumptions_under_stress": {
        **dict.fromkeys(("exponent_slope_in_d", "isotropic_exponent_ratio"), JUDGED),
        **dict.fromkeys(
            (
                *("largest_class_probability", "largest_cosine", "largest_label_noise", "largest_label_noise_large_d"),
                "smallest_dimension_ratio",
            ),
            SHOWN,
        ),
    },
    "single_head/08_finite_dimension": {
        **dict.fromkeys(
            ("certified_dimension_over_nu", "certified_room", "proved_log10_error", "triangle_over_leave_one_out"),
            FORMULA,
        ),
        **dict.fromkeys(("bound_over_cross_term", "exponent_over_proved", "proved_below_over_exponent"), JUDGED),
    },
    "token_selection/01_setting": {
        **dict.fromkeys(("loss_floor", "uniform_accuracy"), FORMULA),
        **dict.fromkeys(("largest_z", "largest_z_wrong_dimension"), SHOWN),
    },
    "token_selection/03_time_laws": {
        **dict.fromkeys(("delay_constant", "delay_last_strength"), FORMULA),
        "delay_decades": SHOWN,
    },
    "token_selection/04_heat_map": {
        **dict.fromkeys(("benign_share", "harmful_share", "not_overfitting_share"), SHOWN),
        "border_exponent_mean_field": FORMULA,
    },
    "token_selection/05_existence": {"window_low": FORMULA, "window_high": FORMULA},
}


@cache
def results() -> dict[str, dict]:
    return {page.name: read_results(nbformat.read(page.stored, as_version=4)) for page in find_pages(ROOT)}


@pytest.mark.parametrize("page", sorted(results()))
def test_a_number_of_draws_stands_with_its_interval(page: str) -> None:
    found = results()[page]
    numbers = {name: value for name, value in found.items() if isinstance(value, float)}
    ends = {
        f"{name}_{end}"
        for name in found
        for end in ("low", "high")
        if f"{name}_low" in found and f"{name}_high" in found
    }
    bare = {name for name in numbers if name not in ends and f"{name}_low" not in found}
    assert bare == set(BARE.get(page, {})), "give it NAME_low and NAME_high (attnbook.draws), or a reason here"
    for name in found:
        if f"{name}_low" in found and f"{name}_high" in found and found[name] is not None:
            low, high = found[f"{name}_low"], found[f"{name}_high"]
            assert low is None or low <= found[name]
            assert high is None or found[name] <= high


def test_the_list_names_pages_that_exist() -> None:
    assert set(BARE) <= set(results())
