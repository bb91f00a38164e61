"""Every file in notebooks/params fits the page it is named after: PAGE.WHAT.yml for one run, PAGE.WHAT.grid.yml for a sweep."""

import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from bookkit.pages.catalogue import Page, find_root, resolve_page
from bookkit.pages.parameters import check_parameters
from bookkit.pages.rerun import read_parameter_file
from bookkit.settings import settings
from bookkit.sweeps.grid import Grid, read_grid

FOLDER = Path(__file__).parent.parent / "notebooks" / "params"
GRIDS = sorted(FOLDER.glob("*.grid.yml"))
FILES = sorted(set(FOLDER.glob("*.yml")) - set(GRIDS))


def page_of(path: Path) -> Page:
    return resolve_page(path.name.split(".")[0], find_root(path.parent))


def grid(name: str) -> Grid:
    """A grid of the folder by its name without `.grid.yml`."""
    path = FOLDER / f"{name}.grid.yml"
    return read_grid(path, page_of(path))


def comment(path: Path) -> str:
    """The lines above the first value, as one text."""
    lines = path.read_text(encoding="utf-8").splitlines()
    first = next(i for i, line in enumerate(lines) if not line.startswith("#"))
    return " ".join(line.lstrip("# ") for line in lines[:first])


def column(found: Grid, name: str) -> np.ndarray:
    return np.array([point[name] for point in found.parameters])


def test_there_are_files_of_both_kinds_for_every_part():
    parts = Counter(page_of(path).name.partition("/")[0] for path in GRIDS)
    assert FILES
    assert set(parts) == set(settings(FOLDER.parents[1]).parts)


@pytest.mark.parametrize("path", [*FILES, *GRIDS], ids=lambda path: path.stem)
def test_a_file_says_first_what_it_is_of(path):
    assert len(comment(path)) > 20


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_values_are_declared_by_the_page_and_in_range(path):
    values = read_parameter_file(path)
    assert check_parameters(page_of(path), values).items() >= values.items()


def test_the_billion_keeps_what_it_says():
    values = read_parameter_file(FOLDER / "02_two_steps.billion.yml")
    assert 200 * values["signal_norm"] ** 2 / values["d"] == pytest.approx(4.5, rel=1e-12)
    assert values["step_size"] * values["d"] / 200 == pytest.approx(5, rel=1e-12)


# --- grids


@pytest.mark.parametrize("path", GRIDS, ids=lambda path: path.stem)
def test_a_grid_fits_its_page_and_has_the_points_it_says(path):
    found = read_grid(path, page_of(path))
    assert re.findall(r"(\d+) points", comment(path)) == [str(len(found.parameters))]


def test_the_dimension_grid_keeps_the_two_numbers_of_the_papers_experiment():
    found = grid("02_two_steps.dimension")
    n, d = column(found, "n"), column(found, "d")
    np.testing.assert_allclose(n * column(found, "signal_norm") ** 2 / d, 4.5, rtol=1e-9)
    np.testing.assert_allclose(column(found, "step_size") * d / n, 5, rtol=1e-9)
    ratios = {float(ratio) for ratio in d / n**2}
    assert ratios == {1 / 16, 1 / 8, 1 / 4, 1 / 2, 1, 4, 16}
    assert set(Counter(zip(n.tolist(), (d / n**2).tolist(), strict=True)).values()) == {
        5
    }  # each (n, ratio) at each seed
    # The paper's experiment is one of the cells.
    page = {"n": 200, "d": 40000, "signal_norm": 30.0, "step_size": 0.025, "label_noise": 0.05}
    assert [point["seed"] for point in found.parameters if point.items() >= page.items()] == [0, 1, 2, 3, 4]


def test_the_label_noise_grid_has_the_papers_experiment_among_its_points():
    page = {"n": 200, "d": 40000, "signal_norm": 30.0, "step_size": 0.025, "label_noise": 0.05, "steps": 2}
    assert sum(point.items() >= page.items() for point in grid("02_two_steps.label_noise").parameters) == 5


def test_the_heat_map_grid_has_the_cells_of_the_parameter_file_of_that_page():
    """Two files say the same map: this grid, and 04_heat_map.paper.yml, which gives ends and a number of cells."""
    found = grid("02_dynamics.heat_map")
    d, signal_norm = column(found, "d"), column(found, "signal_norm")
    paper = read_parameter_file(FOLDER / "04_heat_map.paper.yml")
    assert found.shape == (paper["cells"], paper["cells"])
    assert sorted(set(signal_norm.tolist())) == [5 + 2.5 * i for i in range(39)]
    assert sorted(set(d.tolist())) == [250 + 125 * i for i in range(39)]
    assert paper["smallest_signal_norm"] == signal_norm.min()
    assert (paper["smallest_d"], paper["largest_d"]) == (d.min(), d.max())


def test_the_authors_settings_are_in_the_grids_of_parts_two_and_three():
    balanced = {"n": 20, "d": 2000, "tokens": 8, "signal_norm": 20.0, "weak_signal": 0.1, "noise_std": 1.0}
    balanced |= {"label_noise": 0.2, "step_size": 0.005, "steps": 1000}
    for name in ("02_dynamics.label_noise", "02_dynamics.tokens"):
        assert sum(point.items() >= balanced.items() for point in grid(name).parameters) == 5
    flipped = column(grid("02_dynamics.label_noise"), "label_noise") * 20
    np.testing.assert_allclose(flipped, np.round(flipped), atol=1e-12)
    notebook = {"d": 5, "length": 40, "noise_std": 0.01, "batch": 128, "learning_rate": 0.001, "optimiser": "Adam"}
    heads = [point for point in grid("02_training.heads").parameters if point.items() >= notebook.items()]
    assert [(point["heads"], point["steps"]) for point in heads] == [(H, 500001) for H in (1, 2, 4, 8)]
    assert 0.316227766**2 == pytest.approx(0.1, rel=1e-8)
    assert 0.316227766 in column(grid("02_training.noise"), "noise_std")
    assert set(column(grid("02_training.context"), "length").tolist()) == {10, 20, 40, 80, 160}
