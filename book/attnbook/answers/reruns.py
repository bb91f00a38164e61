"""Answers of the page on many runs: read from the sweeps that the package holds."""

from attnbook.answers import exercise
from attnbook.reruns.stored_sweeps import stored_array


@exercise(
    "01-one-run-many-runs/1",
    "The standard deviation over seeds of `log10_clean_error_mean`, at the single run's signal norm and step size.",
    2,
)
def luck_of_the_seed() -> float:
    values = stored_array("one_run_many_runs")["log10_clean_error_mean"]
    return float(values.sel(signal_norm=30.0).squeeze().std("seed", ddof=1))


@exercise("01-one-run-many-runs/3", "The step size of this grid at signal norm 50.", 3)
def step_that_goes_with_fifty() -> float:
    return 0.025 * 30.0**2 / 50.0**2
