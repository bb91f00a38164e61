"""The batched two-step page gives what the page's own cells give, number by number, whatever the company."""

import pytest

from attnbook.single_head.batched import two_steps
from attnlib.single_head.law import SignalNoiseLaw
from attnlib.single_head.summary import draws_in_chunks
from tests.bad_input import refusing_changes
from tests.sweeps.page_cells import as_stored, complete, recorded_by_page

PAGE = "single_head/02_two_steps"
# Reduced and full rank (d < n), no flips at all, one step, many steps, shared draws (first four), and a divergent step size.
POINTS = [
    complete(PAGE, **changes)
    for changes in (
        {"n": 20, "d": 500, "signal_norm": 10.0, "draws": 4},
        {"n": 20, "d": 500, "signal_norm": 7.0, "draws": 4, "step_size": 0.2},
        {"n": 20, "d": 500, "signal_norm": 10.0, "draws": 4, "label_noise": 0.4, "steps": 5},
        {"n": 20, "d": 500, "signal_norm": 7.0, "draws": 4, "label_noise": 0.0, "steps": 1},
        {"n": 20, "d": 500, "signal_norm": 10.0, "draws": 4, "seed": 3},
        {"n": 37, "d": 11, "signal_norm": 2.5, "draws": 3, "step_size": 30.0, "seed": 1},
        {"n": 5, "d": 10**9, "signal_norm": 4000.0, "draws": 2, "step_size": 1e-6, "seed": 2},
    )
]


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def batched() -> list[dict]:
    return as_stored(two_steps(POINTS))


@pytest.mark.parametrize("place", range(len(POINTS)))
def test_numbers_are_those_of_the_pages_own_cells(batched, place) -> None:
    assert batched[place] == recorded_by_page(PAGE, POINTS[place], "summary = summarise(")


def test_draws_of_several_chunks_are_joined(monkeypatch) -> None:
    point = POINTS[0] | {"draws": 7}
    # 3520 bytes hold one draw of n = 20 in 22 coordinates: 3 draws at a time.
    monkeypatch.setattr("attnlib.single_head.summary._CHUNK_BYTES", 3 * 20 * 2 * 22 * 8)
    assert [sample.runs for sample in draws_in_chunks(SignalNoiseLaw(20, 500, 10.0), 0, 7)] == [3, 3, 1]
    chunked = as_stored(two_steps([point, point | {"signal_norm": 8.0}]))
    assert chunked[0] == recorded_by_page(PAGE, point, "summary = summarise(")
    assert chunked[1] == recorded_by_page(PAGE, point | {"signal_norm": 8.0}, "summary = summarise(")


test_a_value_that_the_law_or_the_training_refuses_is_an_error = refusing_changes(
    lambda **point: two_steps([POINTS[0], point]),
    POINTS[0],
    *(({name: value}, f"{name} must be") for name, value in {"signal_norm": -1.0, "step_size": 0.0, "d": 2}.items()),
)
