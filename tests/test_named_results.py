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
# By reason, of each page: the numbers that stand alone.
BARE = {
    FORMULA: """
        in_context/01_data_and_model: noise_variance
        in_context/05_two_numbers_per_head: eta_pair
        in_context/07_deeper_and_wider: risk_separate offset_best risk_preconditioned
        open_questions/05_more_classes_and_layers: x_star_3_classes x_star_10_classes
        open_questions/08_out_of_the_trap: x_star_block
        open_questions/09_thresholds: x_star_softmax x_star_sparsemax
        one_token/01_one_token: strength_ratio_100_tokens
        single_head/01_signal_and_noise: averaging_error_formula n_snr_squared snr
        single_head/04_max_margin: threshold_predicted_1 threshold_predicted_2
        single_head/13_where_attention_begins: threshold_formula
        single_head/05_phase_diagram: proved_share
        single_head/14_the_trap: x_star
        single_head/08_finite_dimension: certified_dimension_over_nu certified_room proved_log10_error
            triangle_over_leave_one_out
        token_selection/01_setting: loss_floor uniform_accuracy
        token_selection/08_the_delay: delay_constant delay_last_strength
        token_selection/04_heat_map: border_exponent_mean_field
        token_selection/05_existence: window_low window_high
    """,
    SHOWN: """
        in_context/02_training: loss_final
        in_context/03_circuits: off_diagonal_largest omega_live
        open_questions/04_noise_laws: largest_gap_light_tails
        open_questions/05_more_classes_and_layers: fates_by_flow fates_by_margin
        open_questions/10_noise_in_the_long_run: effective_over_d_spike
        single_head/02_two_steps: log10_clean_error_max log10_clean_error_mean log10_clean_error_min
        single_head/04_max_margin: threshold_measured_1 threshold_measured_2
        single_head/05_phase_diagram: benign_share_noise_snr benign_share_snr_n benign_share_snr_step interval_width interval_width_25
            proved_share_where_draws_agree interpolating_share_dimension
        single_head/07_assumptions_under_stress: largest_class_probability largest_cosine largest_label_noise
            largest_label_noise_large_d smallest_dimension_ratio
        token_selection/01_setting: largest_z largest_z_wrong_dimension
        token_selection/08_the_delay: delay_decades
        token_selection/04_heat_map: benign_share harmful_share not_overfitting_share
    """,
    JUDGED: """
        in_context/07_deeper_and_wider: bayes_factor
        open_questions/04_noise_laws: radial_t3_formula_over_counted
        single_head/07_assumptions_under_stress: exponent_slope_in_d isotropic_exponent_ratio
        single_head/08_finite_dimension: bound_over_cross_term
        single_head/15_error_from_both_sides: exponent_over_proved proved_below_over_exponent
    """,
}


def listed(page: str) -> set[str]:
    """Names of a page that stand without an interval, for whatever reason."""
    found, here = set(), ""
    for word in " ".join(BARE.values()).split():
        if word.endswith(":"):
            here = word.removesuffix(":")
            assert here in results()
        elif here == page:
            found.add(word)
    return found


@cache
def results() -> dict[str, dict]:
    return {page.name: read_results(nbformat.read(page.stored, as_version=4)) for page in find_pages(ROOT)}


@pytest.mark.parametrize("page", sorted(results()))
def test_a_number_of_draws_stands_with_its_interval(page: str) -> None:
    found = results()[page]
    numbers = {name: value for name, value in found.items() if isinstance(value, float)}
    whole = [name for name in found if f"{name}_low" in found and f"{name}_high" in found]
    ends = {f"{name}_{end}" for name in whole for end in ("low", "high")}
    bare = {name for name in numbers if name not in ends and f"{name}_low" not in found}
    assert bare == listed(page), "give it NAME_low and NAME_high (attnbook.draws), or a reason here"
    for name in whole:
        low, value, high = (found[each] for each in (f"{name}_low", name, f"{name}_high"))
        assert value is None or ((low is None or low <= value) and (high is None or value <= high))
