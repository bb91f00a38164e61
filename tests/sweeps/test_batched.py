"""Batched sweeps: declarations are read and refused, rows come chunk by chunk, failing points do not stop the others."""

import sys
import time
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import jupytext
import nbformat
import pytest
import torch

from bookkit.pages.catalogue import UserError, find_pages
from bookkit.pages.execution import read_source
from bookkit.sweeps import batched, identity
from bookkit.sweeps.batched import batched_function, run_batched
from bookkit.sweeps.identity import Job, OtherVersion, Outcome, Point, versions
from tests.sweeps.page_cells import ROOT
from tests.tiny_book import page_text

DECLARED = {
    "single_head/02_two_steps": "two_steps",
    "token_selection/02_dynamics": "dynamics",
    "in_context/02_training": "training",
}


def source(declaration: str) -> str:
    return page_text("record(x=1)").replace("jupytext:\n", f"{declaration}\njupytext:\n", 1)


PACKAGES = ("attnlib", "attnbook")
TINY = source("bookkit: {batched: 'attnlib.tiny_batched:work'}")


@pytest.fixture
def declare(monkeypatch) -> Callable:
    """Put a function where the tiny page's header says it is."""

    def put(function: object) -> None:
        module = ModuleType("attnlib.tiny_batched")
        module.work = function
        monkeypatch.setitem(sys.modules, "attnlib.tiny_batched", module)

    return put


class Found(str):
    """Stands for the packages that are imported here."""

    def hash(self) -> str:
        return str(self)


@pytest.fixture
def job(monkeypatch) -> Job:
    monkeypatch.setattr(identity, "imported", lambda packages: Found("as it was"))
    return Job("wing/01_tiny", TINY, "page", "as it was", PACKAGES, distributions=("numpy",))


def points(count: int) -> list[Point]:
    return [Point(f"id{number}", {"x": number, "seed": 0}) for number in range(count)]


class Rows(list):
    """What was written: outcomes in order, and in how many attempts each."""

    def __call__(self, outcome: Outcome, attempts: int) -> None:
        self.append((outcome, attempts))


def double(given: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"twice": 2 * p["x"]} for p in given]


# --- declarations


def test_every_page_that_declares_a_function_has_it_and_three_do() -> None:
    found = {
        page.name: batched_function(page.source.read_text(encoding="utf-8"), PACKAGES) for page in find_pages(ROOT)
    }
    assert {name: f.__name__ for name, f in found.items() if f is not None} == DECLARED
    assert all(f.__module__ == f"attnbook.{name.split('/')[0]}.batched" for name, f in found.items() if f is not None)


@pytest.mark.parametrize("name", DECLARED)
def test_a_declaration_changes_nothing_that_is_published_and_is_stored(name) -> None:
    text = (ROOT / "notebooks" / f"{name}.md").read_text(encoding="utf-8")
    notebook = jupytext.reads(text, fmt="md:myst")
    declaration = notebook.metadata["bookkit"]
    bare = text.replace(f"bookkit:\n  batched: {declaration['batched']}\n", "", 1)
    assert "bookkit:" not in bare.split("---")[1]
    assert read_source(text).cells == read_source(bare).cells
    stored = nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4)
    assert set(stored.metadata) == {"bookkit", "jupytext", "kernelspec", "language_info", "stored_on"}
    # That it stays when the page is saved in Jupyter: `test_standard_tools`.
    assert stored.metadata["bookkit"] == declaration


@pytest.mark.parametrize("declaration", ["other: {batched: 'attnlib.tiny_batched:work'}", "bookkit: {level: 3}"])
def test_a_page_without_a_declaration_has_no_function(declaration, job) -> None:
    assert batched_function(source(declaration), PACKAGES) is None
    rows = Rows()
    with pytest.raises(
        UserError, match=r"^page wing/01_tiny declares no batched function: sweep it without --batched$"
    ):
        run_batched(Job("wing/01_tiny", source(declaration), "page", "as it was", PACKAGES), points(2), rows)
    assert rows == []


@pytest.mark.parametrize(
    ("declaration", "message"),
    [
        ("bookkit: attnbook.single_head.batched:two_steps", r"must say `bookkit: \{batched: module:function\}`; got"),
        ("bookkit: {batched: attnbook.single_head.batched}", "must be module:function inside attnlib or attnbook"),
        (
            "bookkit: {batched: 'attnbook.single_head.batched:two steps'}",
            "must be module:function .* got '.*two steps'",
        ),
        ("bookkit: {batched: 'os:getcwd'}", "must be module:function inside attnlib or attnbook, .* got 'os:getcwd'"),
        ("bookkit: {batched: 'attnlib_other.module:work'}", "inside attnlib or attnbook"),
        ("bookkit: {batched: 'attnlib:work'}", "inside attnlib or attnbook"),
        ("bookkit: {batched: 'attnlib..results:plain'}", "inside attnlib or attnbook"),
        ("bookkit: {batched: }", "^the page's header cannot be read: KeyError: 'batched'$"),
        ("bookkit: {batched: 3}", "inside attnlib or attnbook, .* got 3$"),
        ("bookkit: {batched: [}", "^the page's header cannot be read: "),
        ("bookkit: {batched: [a, b]}", "got \\['a', 'b'\\]"),
        ("bookkit: {batched: 'attnlib.no_such.module:work'}", "there is no module attnlib.no_such$"),
        ("bookkit: {batched: 'attnlib.single_head.nowhere:work'}", "there is no module attnlib.single_head.nowhere$"),
        ("bookkit: {batched: 'attnlib.checks:nothing'}", "attnlib.checks has no function 'nothing'$"),
        ("bookkit: {batched: 'attnlib.checks:__all__'}", "attnlib.checks has no function '__all__'$"),
    ],
)
def test_a_bad_declaration_is_one_clear_line(declaration, message) -> None:
    with pytest.raises(UserError, match=message) as caught:
        batched_function(source(declaration), PACKAGES)
    assert "\n" not in str(caught.value)


def test_a_module_that_needs_what_is_not_installed_says_so_itself(declare, monkeypatch, tmp_path) -> None:
    folder = tmp_path / "attnlib_part"
    folder.mkdir()
    (folder / "needy.py").write_text("import not_installed_anywhere\n")
    import attnlib

    monkeypatch.setattr(attnlib, "__path__", [*attnlib.__path__, str(folder)])
    with pytest.raises(ModuleNotFoundError, match="not_installed_anywhere"):
        batched_function(source("bookkit: {batched: 'attnlib.needy:work'}"), PACKAGES)


# --- rows


def test_rows_come_in_order_with_results_as_record_would_leave_them(declare, job) -> None:
    def work(given):
        time.sleep(0.05)
        rows = [{"twice": torch.tensor(2 * p["x"]), "none": float("nan"), "each": torch.arange(2.0)} for p in given]
        for p in given:
            p["x"] = -1  # its own copy
        return rows

    declare(work)
    rows = Rows()
    start = time.perf_counter()
    run_batched(job, points(5), rows)
    wall = time.perf_counter() - start
    assert [outcome.point for outcome, _ in rows] == points(5)
    assert [outcome.results for outcome, _ in rows] == [
        {"twice": 2 * x, "none": None, "each": [0.0, 1.0]} for x in range(5)
    ]
    for outcome, attempts in rows:
        assert (outcome.status, outcome.backend, attempts) == ("done", "batched", 1)
        assert (outcome.error, outcome.traceback, outcome.notebook, outcome.memory) == (None, None, None, None)
        assert outcome.versions == versions(("numpy",))
        assert time.strptime(outcome.finished, "%Y-%m-%dT%H:%M:%S+00:00").tm_year >= 2024
    # A point's seconds are its share of the chunk's.
    assert len({outcome.seconds for outcome, _ in rows}) == 1
    assert 0.05 <= sum(outcome.seconds for outcome, _ in rows) <= wall


def test_quick_chunks_grow_and_slow_ones_shrink(declare, job, monkeypatch) -> None:
    sizes, now, each = [], [0.0], [1e-3]  # a clock of the test's own: seconds for a point
    monkeypatch.setattr(batched, "time", SimpleNamespace(perf_counter=lambda: now[0]))

    def work(given):
        sizes.append(len(given))
        now[0] += each[0] * len(given)
        return double(given)

    declare(work)
    run_batched(job, points(200), Rows())
    assert sizes == [8, 32, 128, 32]
    sizes.clear()
    each[0] = 1.5
    run_batched(job, points(14), Rows())
    assert sizes == [8, 2, 2, 2]  # chunks of four seconds at most


def test_an_interruption_loses_one_chunk_at_most(declare, job) -> None:
    def work(given):
        if given[0]["x"] >= 8:
            raise KeyboardInterrupt
        return double(given)

    declare(work)
    rows = Rows()
    with pytest.raises(KeyboardInterrupt):
        run_batched(job, points(40), rows)
    assert [outcome.results["twice"] for outcome, _ in rows] == [2 * x for x in range(8)]


def test_a_failing_point_is_recorded_after_two_attempts_and_stops_no_other(declare, job) -> None:
    seen = []

    def work(given):
        seen.append([p["x"] for p in given])
        if any(p["x"] == 3 for p in given):
            raise ZeroDivisionError("no\nsuch number")
        return double(given)

    declare(work)
    rows = Rows()
    run_batched(job, points(10), rows)
    assert seen == [list(range(8)), *([x] for x in range(8)), [8, 9]]
    assert [outcome.status for outcome, _ in rows] == ["done"] * 3 + ["failed"] + ["done"] * 6
    assert [attempts for _, attempts in rows] == [2] * 8 + [1] * 2
    assert [outcome.results["twice"] for outcome, _ in rows if outcome.results] == [0, 2, 4, 8, 10, 12, 14, 16, 18]
    failed = rows[3][0]
    assert failed.results is None
    assert failed.error == "ZeroDivisionError: no such number"
    assert failed.traceback.startswith("Traceback")
    assert "raise ZeroDivisionError" in failed.traceback


def test_a_single_failing_point_is_tried_twice_too(declare, job) -> None:
    calls = []

    def work(given):
        calls.append(len(given))
        raise MemoryError

    declare(work)
    rows = Rows()
    run_batched(job, points(1), rows)
    assert calls == [1, 1]
    assert [(outcome.error, attempts) for outcome, attempts in rows] == [("MemoryError", 2)]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda given: double(given)[:-1], "one dict of named results for each of 3 points; got a list of 2$"),
        (lambda given: double(given) * 2, "for each of 3 points; got a list of 6$"),
        (lambda given: [1.0 for _ in given], "got a list of 3, not all of them such dicts$"),
        (lambda given: [{} for _ in given], "got a list of 3, not all of them such dicts$"),
        (lambda given: None, "got NoneType$"),
        (lambda given: {"twice": [1, 2, 3]}, "got dict$"),
        (lambda given: [{"twice": object()} for _ in given], "result twice must be a number.*got object$"),
    ],
)
def test_an_answer_that_is_no_list_of_results_is_one_clear_line(declare, job, answer, message) -> None:
    declare(answer)
    rows = Rows()
    with pytest.raises(UserError, match=message) as caught:
        run_batched(job, points(3), rows)
    assert str(caught.value).startswith("the batched function of page wing/01_tiny")
    assert "\n" not in str(caught.value)
    assert rows == []


def test_what_writing_raises_is_no_fault_of_a_point(declare, job) -> None:
    declare(double)
    calls = []

    def full(outcome: Outcome, attempts: int) -> None:
        calls.append(outcome.point.id)
        raise UserError("disk full")

    with pytest.raises(UserError, match=r"^disk full$"):
        run_batched(job, points(3), full)
    assert calls == ["id0"]


def test_another_package_is_refused_before_and_an_edit_during_the_chunk_after(declare, job, monkeypatch) -> None:
    def edit(given):
        monkeypatch.setattr(identity, "imported", lambda packages: Found("edited"))
        return double(given)

    declare(edit)
    rows = Rows()
    with pytest.raises(OtherVersion, match="do not edit it while a sweep runs"):
        run_batched(job, points(3), rows)
    assert rows == []
    declare(lambda given: pytest.fail("nothing may be computed with another package"))
    with pytest.raises(OtherVersion):
        run_batched(job, points(3), rows)
    assert rows == []


def test_the_function_runs_on_one_thread_and_no_other_does_later(declare, job) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        declare(lambda given: [{"threads": torch.get_num_threads()} for _ in given])
        rows = Rows()
        run_batched(job, points(1), rows)
        assert rows[0][0].results == {"threads": 1}
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
