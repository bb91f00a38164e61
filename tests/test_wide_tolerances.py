"""A tolerance cannot be widened in silence: the widest are listed here a second time, and once a week a page is measured again."""

import datetime
from collections.abc import Mapping
from dataclasses import replace

import nbformat
import pytest

from bookkit.pages import times
from bookkit.pages.catalogue import find_pages, resolve_page
from bookkit.pages.stability import measure, run_pages, stored_numbers
from bookkit.pages.tolerances import FLOOR, UNMEASURED, Tolerances, read
from tests.house import ROOT

# Every number of the book whose tolerance is wider than 1e-6 of it, and how wide at most. Measured: `attnlib stability PAGE --write`.
WIDE = {
    "in_context/05_two_numbers_per_head I52:standard_error_1": 1.1e-5,
    "in_context/05_two_numbers_per_head I52:standard_error_of_difference_1": 1.1e-5,
    "in_context/05_two_numbers_per_head I59:max": 4.0e-6,
    "in_context/05_two_numbers_per_head I59:min": 2.2e-4,
    "in_context/08_what_holds_the_pattern I92:mean_difference": 5.7e-6,
    "in_context/08_what_holds_the_pattern I92:standard_error": 2.7e-6,
    "in_context/08_what_holds_the_pattern I92:standard_error_of_difference": 8.2e-6,
    "one_token/01_one_token K8:mean_difference_2": 1.1e-6,
    "open_questions/02_optimisers Q51b:mean_difference_3": 2.6e-6,
    "open_questions/02_optimisers Q51b:standard_error_1": 1.3e-6,
    "open_questions/02_optimisers Q51b:standard_error_2": 4.6e-6,
    "open_questions/02_optimisers Q51b:standard_error_3": 1.4e-6,
    "open_questions/02_optimisers Q51b:standard_error_4": 1.5e-6,
    "open_questions/02_optimisers Q51b:standard_error_of_difference_1": 1.3e-6,
    "open_questions/02_optimisers Q51b:standard_error_of_difference_2": 4.6e-6,
    "open_questions/02_optimisers Q51b:standard_error_of_difference_3": 1.4e-6,
    "open_questions/02_optimisers Q51b:standard_error_of_difference_4": 1.5e-6,
    "single_head/04_max_margin M28:max_1": 2.3e-3,
    "single_head/04_max_margin M29:max": 1.9e-5,
    "single_head/04_max_margin M29:min": 2.3e-5,
    "single_head/04_max_margin T2:max_2": 2.1e-3,
}


def wide(page: str, numbers: Mapping[str, float | int], known: Tolerances) -> dict[str, float]:
    """The relative tolerance of each stored number that has a wide one."""
    return {
        f"{page} {name}": tolerance.allowed / abs(numbers[name]) if numbers[name] else float("inf")
        for name, tolerance in known.numbers.items()
        if tolerance.allowed > max(FLOOR, UNMEASURED * abs(numbers[name]))
    }


def unlisted(found: Mapping[str, float]) -> list[str]:
    return [
        f"{name}: {width:.2g}, listed {WIDE.get(name)}" for name, width in found.items() if width > WIDE.get(name, 0)
    ]


def too_loose(stored: Tolerances, fresh: Tolerances) -> list[str]:
    """A sentence for each tolerance that is more than ten times what a measurement of today gives."""
    return [
        f"{name} has the tolerance {known.allowed:.1e}, and measured again it is {again:.1e}"
        for name, known in stored.numbers.items()
        if known.allowed > 10 * (again := max(FLOOR, fresh.numbers[name].allowed))
    ]


def test_every_wide_tolerance_of_the_book_is_listed() -> None:
    """They are few: a further one needs a line above, which a reader of the change sees."""
    found: dict[str, float] = {}
    for page in find_pages(ROOT):
        found |= wide(page.name, stored_numbers(nbformat.read(page.stored, as_version=4)), read(page.stored))
    assert unlisted(found) == []
    assert sorted(set(WIDE) - set(found)) == [], "these are narrow now: take them from the list"


def test_a_tolerance_widened_with_its_amplification_is_found() -> None:
    """Which explains itself (`tolerances.unexplained`), once the file is sealed again."""
    page = resolve_page("single_head/02_two_steps", ROOT)
    stored, known = stored_numbers(nbformat.read(page.stored, as_version=4)), read(page.stored)
    for name, tolerance in known.numbers.items():
        if tolerance.allowed > FLOOR:
            more = replace(tolerance, allowed=1e5 * tolerance.allowed, reason="rounding", amplification=1e12)
            forged = Tolerances(numbers={**known.numbers, name: more})
            (told,) = unlisted(wide(page.name, stored, forged))
            assert told.startswith(f"{page.name} {name}: ")
            (told,) = too_loose(forged, known)
            assert told.startswith(f"{name} has the tolerance {more.allowed:.1e}, and measured again it is ")


@pytest.mark.weekly
def test_the_tolerances_of_one_page_are_measured_again() -> None:
    """Of the pages that take half a minute at most, this week's: in a year, all. Again by hand: `attnlib stability PAGE`."""
    quick = {name for name, time in times.page_times(ROOT).items() if time.seconds < 30}
    pages = [page for page in find_pages(ROOT) if page.name in quick]
    page = pages[datetime.date.today().toordinal() // 7 % len(pages)]
    runs = run_pages(ROOT, [page], ["zen", "shake-1", "shake-2", "hard-1"], 1)[page.name]
    found = measure(nbformat.read(page.stored, as_version=4), runs)
    assert len(runs) >= 3
    assert too_loose(read(page.stored), found.tolerances("")) == [], page.name
