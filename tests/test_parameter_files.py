"""Every file in notebooks/params fits the page it is named after: PAGE.WHAT.yml for one run, PAGE.WHAT.grid.yml for a sweep."""

import re
from collections import Counter
from pathlib import Path

import pytest

from bookkit.pages.catalogue import Page, find_root, resolve_page
from bookkit.pages.parameters import check_parameters
from bookkit.pages.rerun import read_parameter_file
from bookkit.settings import settings
from bookkit.sweeps.grid import read_grid

FOLDER = Path(__file__).parent.parent / "notebooks" / "params"
GRIDS = sorted(FOLDER.glob("*.grid.yml"))
FILES = sorted(set(FOLDER.glob("*.yml")) - set(GRIDS))


def page_of(path: Path) -> Page:
    return resolve_page(path.name.split(".")[0], find_root(path.parent))


def comment(path: Path) -> str:
    """The lines above the first value, as one text."""
    lines = path.read_text(encoding="utf-8").splitlines()
    first = next(i for i, line in enumerate(lines) if not line.startswith("#"))
    return " ".join(line.lstrip("# ") for line in lines[:first])


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


@pytest.mark.parametrize("path", GRIDS, ids=lambda path: path.stem)
def test_a_grid_fits_its_page_and_has_the_points_it_says(path):
    found = read_grid(path, page_of(path))
    assert re.findall(r"(\d+) points", comment(path)) == [str(len(found))]


PAPER_I = {"n": 200, "d": 40000, "signal_norm": 30.0, "step_size": 0.025, "label_noise": 0.05}
PAPER_II = {"n": 20, "d": 2000, "tokens": 8, "signal_norm": 20.0, "weak_signal": 0.1, "noise_std": 1.0}
PAPER_II |= {"label_noise": 0.2, "step_size": 0.005, "steps": 1000}
PAPER_III = {"d": 5, "length": 40, "noise_std": 0.01, "batch": 128, "learning_rate": 0.001, "optimiser": "Adam"}


@pytest.mark.parametrize(
    ("name", "experiment", "times"),
    [
        ("02_two_steps.dimension", PAPER_I, 5),
        ("02_two_steps.label_noise", PAPER_I | {"steps": 2}, 5),
        ("02_dynamics.label_noise", PAPER_II, 5),
        ("02_dynamics.tokens", PAPER_II, 5),
        ("02_training.heads", PAPER_III | {"steps": 500001}, 4),
    ],
)
def test_a_papers_experiment_is_among_the_points_of_a_grid(name: str, experiment: dict, times: int):
    path = FOLDER / f"{name}.grid.yml"
    assert sum(point.items() >= experiment.items() for point in read_grid(path, page_of(path))) == times
