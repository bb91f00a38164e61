"""The batched dynamics page gives what the page's own cells give, number by number, whatever the company."""

import pytest

from attnbook.token_selection import batched as module
from attnbook.token_selection.batched import dynamics
from tests.sweeps.page_cells import as_stored, complete, recorded_by_page

PAGE = "token_selection/02_dynamics"
SMALL = {"n": 6, "d": 300, "tokens": 5, "label_noise": 0.5, "step_size": 0.02, "steps": 30, "runs": 2}
# First three: one training, laws of different size and noise. Then the same data under other step sizes, and other sizes.
POINTS = [
    complete(PAGE, **SMALL | changes)
    for changes in (
        {},
        {"d": 40, "signal_norm": 3.0, "noise_std": 0.5},
        {"seed": 4, "weak_signal": 0.5, "runs": 3},
        {"step_size": 0.05},
        {"steps": 60},
        {"n": 8, "tokens": 4, "label_noise": 0.3, "seed": 1},
    )
]


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def batched() -> list[dict]:
    return as_stored(dynamics(POINTS))


@pytest.mark.parametrize("place", [0, 1, 2, 5])
def test_numbers_are_those_of_the_pages_own_cells(batched, place, monkeypatch) -> None:
    # The situations and the leak that the page does not record take half a minute of a test run.
    monkeypatch.setattr("attnbook.token_selection.dynamics.study.SITUATIONS", {})
    monkeypatch.setattr("attnbook.token_selection.dynamics.study.leaked_test", lambda *_, **__: None)
    assert batched[place] == recorded_by_page(PAGE, POINTS[place])


def test_neither_order_nor_company_nor_memory_changes_a_number(batched, monkeypatch) -> None:
    assert as_stored(dynamics([*POINTS[::-1], POINTS[0]])) == [*batched[::-1], batched[0]]
    assert as_stored([dynamics([point])[0] for point in POINTS]) == batched
    monkeypatch.setattr(module, "_CHUNK_BYTES", 1)
    assert [len(batch) for batch in module._batches(POINTS)] == [1] * len(POINTS)
    assert as_stored(dynamics(POINTS)) == batched


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda wrong: recorded_by_page(PAGE, wrong | {"steps": 8, "d": 3}), r"an even n, .* got n = 7"),
        (lambda wrong: dynamics([POINTS[0], wrong]), r"n must be even.*; got n = 7"),
        (lambda wrong: dynamics([wrong | {"n": 6, "label_noise": 0.1}]), "label_noise must flip at least one label"),
    ],
)
def test_values_that_the_page_or_the_law_refuses(call, message) -> None:
    with pytest.raises(ValueError, match=message):
        call(POINTS[0] | {"n": 7})
