"""What a sweep does with its points: which it runs, how often, in what order, and what it says; kernels replaced by functions."""

import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from distributed import CancelledError, Client, KilledWorker, LocalCluster

from bookkit.pages.catalogue import UserError
from bookkit.pages.rerun import RunError
from bookkit.sweeps import dispatch, open_sweep, plan, runner, sweep
from bookkit.sweeps.folder import SweepFolder
from bookkit.sweeps.identity import Job, OtherVersion, Outcome, Point
from tests.sweeps.counting import NAME, PAGE, CountingBook
from tests.tiny_book import page_text, write

GRID = {"product": {"n": [0, 1, 2, 3, 4]}}


@pytest.fixture(scope="module")
def client():
    """A real scheduler with two workers, all in this process: functions need no pickling, starts take no time."""
    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=False,
            dashboard_address=None,
            scheduler_kwargs={"dashboard_address": ":0"},
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture
def book(tmp_path: Path, client, monkeypatch) -> CountingBook:
    """A book; sweeps run on `client`, and the package does not change whoever edits it."""

    @contextmanager
    def connected(*arguments):
        yield client

    monkeypatch.setattr(runner, "connected", connected)
    return CountingBook(tmp_path / "book")


class Page:
    """Stands for the kernel: squares n, or does what `behaviour[n]` says; writes down what it was called with."""

    def __init__(self, **behaviour: object) -> None:
        self.calls: list[int] = []
        self.behaviour = {int(name[1:]): what for name, what in behaviour.items()}
        self.lock = threading.Lock()

    def __reduce__(self):
        return _same, (id(self),)

    def __call__(self, job: Job, point: Point, backend: str) -> Outcome:
        n = point.parameters["n"]
        with self.lock:
            self.calls.append(n)
        what = self.behaviour.get(n, "square")
        if isinstance(what, BaseException):
            raise what
        if what == "fail" or (what == "fail once" and self.calls.count(n) == 1):
            return Outcome(
                point, "failed", backend, 0.1, "2026-01-01T00:00:00+00:00", {}, error="broken", traceback="t"
            )
        return Outcome(point, "done", backend, 0.1, "2026-01-01T00:00:00+00:00", {}, results={"square": n**2})


_pages: dict[int, Page] = {}


def _same(identity: int) -> Page:
    return _pages[identity]


@pytest.fixture
def page(monkeypatch):
    """A function that puts a `Page` with a behaviour in the place of `run_point`."""

    def put(**behaviour: object) -> Page:
        made = Page(**behaviour)
        _pages[id(made)] = made
        monkeypatch.setattr(dispatch, "run_point", made)
        return made

    yield put
    _pages.clear()


def run(book: CountingBook, grid=GRID, **options):
    return sweep("counting", grid, book.root / "out", root=book.root, **options)


# --- what runs, how often


def test_every_point_runs_once_and_becomes_a_row(book, page) -> None:
    kernel = page()
    found = run(book)
    assert sorted(kernel.calls) == [0, 1, 2, 3, 4]
    assert found.table["n"].tolist() == [0, 1, 2, 3, 4]
    assert found.table["square"].tolist() == [0, 1, 4, 9, 16]
    assert found.table["run_engine"].tolist() == ["local"] * 5
    assert (book.root / "out" / "results.parquet").exists()
    assert (book.root / "out" / "results.nc").exists()


def test_a_second_call_runs_nothing_and_a_larger_grid_only_what_is_new(book, page, monkeypatch) -> None:
    page()
    run(book)

    @contextmanager
    def never(*arguments):
        raise AssertionError("no cluster is needed where nothing is to do")
        yield

    kernel = page()
    with monkeypatch.context() as patch:
        patch.setattr(runner, "connected", never)
        assert run(book).status.done == 5
    assert kernel.calls == []
    found = run(book, {"product": {"n": [4, 5, 6]}})
    assert sorted(kernel.calls) == [5, 6]
    assert (found.status.total, found.status.done) == (7, 7)
    assert found.array["square"].sel(n=6) == 36


def test_a_failing_point_is_tried_twice_after_the_others_and_stops_nobody(book, page) -> None:
    kernel = page(n0="fail", n1="fail once")
    found = run(book)
    assert sorted(kernel.calls) == [0, 0, 1, 1, 2, 3, 4]
    again = [len(kernel.calls) - 1 - kernel.calls[::-1].index(n) for n in (0, 1)]
    assert min(again) >= 4  # of five first calls, one may still be under way on the other worker
    table = found.table.set_index("n")
    assert table["run_status"].tolist() == ["failed", "done", "done", "done", "done"]
    assert table["run_attempts"].tolist() == [2, 2, 1, 1, 1]
    assert table.loc[0, "run_error"] == "broken"
    assert table.loc[0, "run_traceback"] == "t"


def test_failed_points_stay_failed_until_asked_for(book, page) -> None:
    page(n2="fail")
    run(book)
    kernel = page()
    assert run(book).status.failed == 1
    assert kernel.calls == []
    found = run(book, retry_failed=True)
    assert kernel.calls == [2]
    assert (found.status.failed, found.status.done) == (0, 5)


def test_a_point_that_kills_its_workers_is_recorded_as_failed(book, page) -> None:
    page(n3=KilledWorker("task", SimpleNamespace(address="tcp://127.0.0.1:1"), 3))
    row = run(book).table.set_index("n").loc[3]
    assert (row["run_status"], row["run_attempts"]) == ("failed", 2)
    assert row["run_error"] == "the worker process died 4 times while it ran this point (out of memory?)"
    assert "KilledWorker" in row["run_traceback"]


def test_an_error_outside_the_page_is_recorded_too(book, page) -> None:
    page(n3=TimeoutError("a strange one"))
    row = run(book).table.set_index("n").loc[3]
    assert (row["run_status"], row["run_error"]) == ("failed", "TimeoutError: a strange one")


def test_on_a_cluster_rows_say_so(book, page) -> None:
    page()
    assert set(run(book, cluster="tcp://127.0.0.1:8786").table["run_engine"]) == {"dask"}


# --- stops


@pytest.mark.parametrize(
    ("stop", "kind", "says"),
    [
        (OtherVersion("another counted"), OtherVersion, "another counted"),
        (ModuleNotFoundError("No module named 'counted'", name="counted"), UserError, "joined late has no counted"),
        (ModuleNotFoundError("No module named 'psutil'", name="psutil"), UserError, "joined late lacks psutil"),
    ],
)
def test_a_worker_that_cannot_serve_stops_the_sweep_with_rows_and_tables_safe(book, page, stop, kind, says) -> None:
    page(n4=stop)
    with pytest.raises(kind, match=says):
        run(book)
    safe = open_sweep(book.root / "out")
    assert 3 <= safe.status.done == len(safe.rows) <= 4
    assert (book.root / "out" / "results.parquet").exists()
    kernel = page()
    assert run(book).status.done == 5
    assert len(kernel.calls) == 5 - safe.status.done


@pytest.mark.parametrize(("number", "kind"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
def test_a_signal_leaves_rows_and_tables(book, page, number, kind) -> None:
    page()

    def stop(state: dispatch.Progress) -> None:
        if state.done == 2:
            os.kill(os.getpid(), number)

    handler = signal.getsignal(signal.SIGTERM)
    with pytest.raises(kind) as caught:
        run(book, progress=stop)
    if kind is SystemExit:
        assert caught.value.code == 128 + number
    assert signal.getsignal(signal.SIGTERM) == handler
    found = open_sweep(book.root / "out")
    assert found.status.done >= 2
    assert (book.root / "out" / "results.parquet").exists()
    assert not found.running


def test_signals_that_others_handle_are_left_to_them(book, page) -> None:
    page()
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        found = run(book, progress=lambda state: os.kill(os.getpid(), signal.SIGHUP))
        assert found.status.done == 5
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_row_that_cannot_be_written_stops_the_sweep(book, page, monkeypatch) -> None:
    page()
    write_row = SweepFolder.write
    written: list[str] = []

    def full(folder: SweepFolder, outcome: Outcome, attempts: int) -> None:
        if len(written) == 2:
            raise UserError("disk full")
        written.append(outcome.point.id)
        write_row(folder, outcome, attempts)

    with monkeypatch.context() as patch:
        patch.setattr(SweepFolder, "write", full)
        with pytest.raises(UserError, match="disk full"):
            run(book)
    assert sorted(open_sweep(book.root / "out").rows) == sorted(written)
    kernel = page()
    assert run(book).status.done == 5
    assert len(kernel.calls) == 3


class Answers:
    """A future that answers `result` with one thing after another."""

    def __init__(self, status: str, *answers: object) -> None:
        self.status, self.answers = status, list(answers)

    def add_done_callback(self, call) -> None:
        call(self)

    def result(self, timeout: float) -> object:
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer


def drive_one(monkeypatch, future: Answers, status: str = "running") -> list[tuple[Outcome, int]]:
    """What `drive` keeps of a single point whose future is `future`."""
    kept: list[tuple[Outcome, int]] = []
    client = SimpleNamespace(status=status, submit=lambda *a, **k: future, cancel=lambda futures: None)
    monkeypatch.setattr(dispatch, "worker_threads", lambda client: {"a": 1})
    course = dispatch.Course(1, 0, lambda state: None)
    dispatch.drive(client, None, [POINT], "dask", course, lambda *row: kept.append(row))
    return kept


POINT = Point("a" * 16, {"n": 3})
NINE = Outcome(POINT, "done", "dask", 0.1, "2026-01-01T00:00:00+00:00", {}, results={"square": 9})


def test_an_outcome_that_is_lost_with_its_worker_is_waited_for(monkeypatch) -> None:
    future = Answers("finished", OSError("the worker is gone"), TimeoutError(), NINE)
    assert drive_one(monkeypatch, future) == [(NINE, 1)]
    assert future.answers == []


@pytest.mark.parametrize(("error", "status"), [(CancelledError(), "running"), (OSError("closed"), "connecting")])
def test_a_lost_scheduler_ends_the_sweep(monkeypatch, error, status) -> None:
    with pytest.raises(RunError, match="the connection to the scheduler was lost; all rows so far are safe"):
        drive_one(monkeypatch, Answers("cancelled", error), status)


def test_without_workers_for_long_a_sweep_gives_up(monkeypatch) -> None:
    clock = iter([0.0, 0.0, 1.0, 500.0, 700.0])
    there = iter([{"a": 1, "b": 1}, {"b": 1}, {}, {}])
    said: list[dispatch.Progress] = []
    monkeypatch.setattr(dispatch, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    monkeypatch.setattr(dispatch, "worker_threads", lambda client: next(there))
    course = dispatch.Course.__new__(dispatch.Course)
    course.say = said.append
    watch = dispatch.Watch(None, course)
    course.say = lambda message=None: said.append(message)
    assert [watch.look(), watch.look(), watch.look()] == [2, 1, 0]
    assert said == [
        None,
        "lost 1 worker (1 left): what ran there runs again",
        "lost 1 worker (none left, waiting up to 600 s for others): what ran there runs again",
    ]
    with pytest.raises(RunError, match="no worker for 600 s; all rows so far are safe"):
        watch.look()


# --- progress and plan


def test_progress_accounts_for_every_point_at_any_time(book, page) -> None:
    page(n0="fail", n1="fail once")
    run(book, {"product": {"n": [2, 3]}})
    states: list[dispatch.Progress] = []
    run(book, progress=states.append)
    assert all(s.total == s.skipped + s.done + s.failed + s.left == 5 for s in states)
    assert all(0 <= s.running <= s.workers for s in states)
    assert (states[0].skipped, states[0].left) == (2, 3)
    assert (states[-1].done, states[-1].failed, states[-1].left) == (2, 1, 0)
    assert max(s.retrying for s in states) >= 1
    finished = [s.done + s.failed for s in states]
    assert finished == sorted(finished)
    assert [s.seconds for s in states] == sorted(s.seconds for s in states)


def test_a_plan_parts_the_points_and_makes_nothing(book, page) -> None:
    made = plan("counting", GRID, book.root / "out", root=book.root)
    assert [p.parameters["n"] for p in made.todo] == [0, 1, 2, 3, 4]
    assert not (book.root / "out").exists()
    page(n1="fail")
    run(book, {"product": {"n": [1, 3]}})
    before = {p: p.stat().st_mtime_ns for p in (book.root / "out").rglob("*")}
    made = plan("counting", GRID, book.root / "out", root=book.root)
    assert [[p.parameters["n"] for p in part] for part in (made.todo, made.done, made.failed)] == [[0, 2, 4], [3], [1]]
    assert made.page == NAME
    assert made.job.distributions == ("nbformat", "papermill")
    again = plan("counting", GRID, book.root / "out", root=book.root, retry_failed=True)
    assert [[p.parameters["n"] for p in part] for part in (again.todo, again.failed)] == [[0, 1, 2, 4], []]
    assert {p: p.stat().st_mtime_ns for p in (book.root / "out").rglob("*")} == before


# --- bad requests


REQUESTS = [
    ("notebooks", {"notebooks": "some"}, "notebooks must be none, failed or all; got 'some'"),
    ("no time", {"time_limit": 0}, "time_limit must be a positive number of seconds; got 0"),
    ("true as time", {"time_limit": True}, "time_limit must be a positive number of seconds; got True"),
    ("negative memory", {"memory_limit": -5}, "memory_limit must be a positive number of bytes; got -5"),
    ("no workers", {"workers": 0}, "workers must be a whole number >= 1; got 0"),
    ("half a worker", {"workers": 1.5}, "workers must be a whole number >= 1; got 1.5"),
    ("cluster", {"cluster": "nonsense"}, r"cluster must be an address .*; got 'nonsense'"),
    ("cluster's workers", {"cluster": "tcp://h:1", "workers": 2}, "workers=2 is for local processes and SLURM"),
    ("batched with workers", {"batched": True, "workers": 2}, "batched runs in this process.*leave out workers"),
    ("batched on a cluster", {"batched": True, "cluster": "tcp://h:1"}, "leave out cluster"),
    ("batched with limits", {"batched": True, "time_limit": 1, "memory_limit": 9}, "time_limit and memory_limit"),
    ("batched notebooks", {"batched": True, "notebooks": "all"}, "batched executes no notebooks"),
    ("not batched", {"batched": True}, "page wing/01_counting declares no batched function"),
    ("no such page", {"page": "cuonting"}, "no page 'cuonting'; did you mean 'counting'"),
    ("no such parameter", {"grid": {"product": {"m": [1, 2]}}}, "m"),
    ("no such folder", {"output": "away/out"}, "make .*away first"),
]


@pytest.mark.parametrize(("request_", "says"), [case[1:] for case in REQUESTS], ids=[case[0] for case in REQUESTS])
def test_a_bad_request_is_one_line_and_nothing_is_made(book, page, request_, says) -> None:
    kernel = page()
    arguments = {"page": "counting", "grid": GRID, "output": "out", **request_}
    arguments["output"] = book.root / arguments["output"]
    before = sorted(book.root.rglob("*"))
    with pytest.raises(UserError, match=says) as caught:
        sweep(**arguments, root=book.root)
    assert "\n" not in str(caught.value)
    assert kernel.calls == []
    assert sorted(book.root.rglob("*")) == before


def test_a_page_without_named_results_is_refused(book, page) -> None:
    write(
        book.root / "notebooks" / f"{NAME}.md", page_text(":tags: [parameters]\n\nn: int = 0  # n [>= 0]", "print(n)")
    )
    with pytest.raises(UserError, match="records no named results"):
        run(book)
    assert not (book.root / "out").exists()


# --- batched


def test_batched_points_need_no_cluster_and_meet_the_others_in_one_folder(book, page, monkeypatch) -> None:
    kernel = page()
    run(book, {"product": {"n": [0, 1]}})

    def squares(points):
        return [{"square": point["n"] ** 2} for point in points]

    def fake(job, points, write):
        for point, results in zip(points, squares([point.parameters for point in points]), strict=True):
            write(Outcome(point, "done", "batched", 0.0, "2026-01-01T00:00:00+00:00", {}, results=results), 1)

    monkeypatch.setattr(runner, "batched_function", lambda source, packages: squares)
    monkeypatch.setattr(runner, "run_batched", fake)
    monkeypatch.setattr(runner, "connected", None)
    found = run(book, batched=True)
    assert len(kernel.calls) == 2
    assert found.table["square"].tolist() == [0, 1, 4, 9, 16]
    assert found.table["run_engine"].tolist() == ["local"] * 2 + ["batched"] * 3


# --- imports


def test_importing_the_sweeps_brings_no_dask() -> None:
    code = (
        "import sys, bookkit.sweeps as s\n"
        "heavy = {'dask', 'distributed', 'pandas', 'xarray', 'papermill', 'torch', 'jupytext'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        "from bookkit.sweeps import open_sweep, plan, sweep\n"
        "heavy -= {'jupytext'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        "assert sweep.__module__ == plan.__module__ == 'bookkit.sweeps.runner'\n"
        "assert not hasattr(s, 'nothing')\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


def test_a_page_of_the_test_has_what_a_sweep_needs() -> None:
    from bookkit.sweeps.point import records_results

    assert records_results(PAGE)
