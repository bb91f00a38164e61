"""Every file in notebooks/params fits the page it is named after: PAGE.WHAT.yml."""

from pathlib import Path

import pytest
import yaml

from attnlib.publishing.pages import find_root, resolve_page
from attnlib.publishing.parameters import check_parameters

FILES = sorted((Path(__file__).parent.parent / "notebooks" / "params").glob("*.yml"))


def test_there_are_parameter_files():
    assert FILES


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_values_are_declared_by_the_page_and_in_range(path):
    page = resolve_page(path.name.split(".")[0], find_root(path.parent))
    values = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert check_parameters(page, values).items() >= values.items()


def test_the_billion_keeps_what_it_says():
    values = yaml.safe_load(next(path for path in FILES if "billion" in path.name).read_text(encoding="utf-8"))
    assert 200 * values["signal_norm"] ** 2 / values["d"] == pytest.approx(4.5, rel=1e-12)
    assert values["step_size"] * values["d"] / 200 == pytest.approx(5, rel=1e-12)
