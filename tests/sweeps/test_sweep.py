"""Whole sweeps: killed and gone on with, on a Dask cluster, with workers that die; and requests that are refused before anything starts."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path

import joblib
import pandas as pd
import papermill
import pytest
from distributed import Client, LocalCluster

from bookkit.cli import main
from bookkit.pages.catalogue import UserError
from bookkit.pages.rerun import RunError
from bookkit.sweeps import open_sweep, plan, run, sweep
from bookkit.sweeps.points import Job
from tests.refusals import refused, snapshot
from tests.sweeps.counting import PAGE

POINTS = 4
NO_DASHBOARD = {"dashboard_address": None, "scheduler_kwargs": {"dashboard_address": ":0"}}
NUMBERS = ["n", "broken", "seed", "square", "digits", "run_id", "run_status", "run_page_hash", "run_package_hash"]


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def equal(one: pd.DataFrame, other: pd.DataFrame) -> bool:
    return one[NUMBERS].equals(other[NUMBERS])


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for workers in /proc")
def test_a_sweep_killed_twice_goes_on_to_the_right_table_and_a_dask_cluster_gives_the_same(book) -> None:
    for kills in (1, 2):
        with subprocess.Popen(
            book.command(POINTS, "--jobs", "2"), cwd=book.root, env=book.environment, stderr=subprocess.PIPE
        ) as process:
            while len(list((book.out / "rows").glob("*.json"))) < kills and process.poll() is None:
                time.sleep(0.02)
            process.send_signal(signal.SIGKILL)
        assert process.returncode == -signal.SIGKILL
        while any(is_there(worker) for _, worker in book.lines()):
            time.sleep(0.02)  # workers see that the command is gone
    kept = snapshot(book.out / "rows")
    done = subprocess.run(book.command(POINTS, "--workers", "2"), env=book.environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"{POINTS} points ({POINTS} n), {POINTS} done, 0 failed, 0 missing" in done.stdout
    assert snapshot(book.out / "rows").items() >= {k: v for k, v in kept.items() if k.endswith(".json")}.items()
    found = open_sweep("out")
    assert found.table["n"].tolist() == list(range(POINTS)) == sorted(book.executions())
    assert found.table["square"].tolist() == [n**2 for n in range(POINTS)]
    assert pd.read_parquet("out/results.parquet")["square"].tolist() == found.table["square"].tolist()
    assert book.executions().total() <= POINTS + 2 * 2, "more ran again than what the kills interrupted"

    batched = sweep("counting", {"product": {"n": list(range(POINTS))}}, "batched", batched=True).table
    assert equal(found.table, batched)
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=False, **NO_DASHBOARD) as cluster,
        Client(cluster),
        joblib.parallel_config(backend="dask"),
    ):
        there = sweep("counting", {"product": {"n": [0, 1]}}, "there").table
    assert equal(found.table[:2], there)
    assert [set(table["run_engine"]) for table in (found.table, batched, there)] == [{"local"}, {"batched"}, {"dask"}]


# --- workers, with a function in the place of the kernel --------------------------------------------------------------------


def stand_in(job: Job, id_: str, parameters: dict, engine: str) -> tuple[dict, None]:
    """A page that squares; at n = 3 the worker process dies."""
    if parameters["n"] == 3:
        os._exit(1)
    return job.row(id_, parameters, engine, 0.0, results={"square": parameters["n"] ** 2, "digits": []}), None


def test_a_worker_ends_with_its_command_and_takes_the_folder_of_its_point_along(tmp_path) -> None:
    """The child holds the pipe of stdout that `run` reads to its end: it returns when the child is gone."""
    code = (
        "import os, sys, time\nfrom bookkit.sweeps import points\nparent = os.getpid()\nif os.fork() == 0:\n"
        "    points._folders.add(sys.argv[1])\n    points.end_with(parent)\n    time.sleep(1800)"
    )
    (tmp_path / "point" / "work").mkdir(parents=True)
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "point")], capture_output=True, check=True)
    assert list(tmp_path.iterdir()) == []


def test_a_finished_sweep_of_a_page_without_batched_function_needs_no_worker(make, monkeypatch) -> None:
    make(page=PAGE.replace("bookkit:\n  batched: counted.squares:squares\n", ""))
    monkeypatch.setattr(run, "run_point", stand_in)
    first = sweep("counting", {"product": {"n": [1, 2]}}, "out", jobs=2)
    monkeypatch.setattr(run, "_workers", None)
    assert equal(sweep("counting", {"product": {"n": [1, 2]}}, "out").table, first.table)


def test_a_local_worker_that_dies_ends_the_sweep_with_all_rows_safe(book, monkeypatch) -> None:
    monkeypatch.setattr(run, "run_point", stand_in)
    with pytest.raises(RunError, match=r"a worker process died \(out of memory\?\); all rows so far are safe"):
        sweep("counting", {"product": {"n": [0, 1, 3, 2]}}, "out", jobs=1)
    assert open_sweep("out").table["square"].tolist() == [0, 1]
    assert (book.out / "results.parquet").exists()
    monkeypatch.undo()
    assert len(plan("counting", {"product": {"n": [0, 1, 3, 2]}}, book.out, root=book.root).todo) == 2


def test_a_point_that_kills_dask_workers_is_recorded_as_failed(book, monkeypatch) -> None:
    """joblib's own backend would wait for it forever."""
    import dask

    monkeypatch.setattr(run, "run_point", stand_in)
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        LocalCluster(n_workers=1, threads_per_worker=1, silence_logs=50, **NO_DASHBOARD) as cluster,
    ):
        found = sweep("counting", {"product": {"n": [3]}}, "out", cluster=cluster.scheduler_address)
        assert "worker processes died under this point" in found.table["run_error"].item()
        found = sweep("counting", {"product": {"n": [3, 0]}}, "out", cluster=cluster.scheduler_address)
    assert found.table["run_status"].tolist() == ["failed", "done"]


class Lost(Executor):
    """That of a client whose scheduler is gone: whatever it was given is cancelled."""

    def submit(self, *_) -> Future:
        given = Future()
        given.cancel()
        given.set_running_or_notify_cancel()
        return given


def test_a_scheduler_that_is_lost_ends_the_sweep() -> None:
    with pytest.raises(RunError, match="connection to the scheduler was lost; all rows so far are safe"):
        next(run._kernels(Job("p", "", "", ()), {"7": {}}, Lost(), 1, "dask"))


def test_workers_hold_no_more_points_than_asked(monkeypatch) -> None:
    """A hundred thousand at once, each with its page, would fill the memory of a scheduler."""
    given = []

    class Counted(ThreadPoolExecutor):
        def submit(self, *call) -> Future:
            given.append(call)
            return super().submit(*call)

    monkeypatch.setattr(run, "run_point", lambda *_: time.sleep(0.02))
    with Counted(1) as executor:
        for number, _ in enumerate(run._kernels(Job("p", "", "", ()), {str(n): {} for n in range(6)}, executor, 2, "")):
            assert len(given) <= number + 2
    assert len(given) == 6


class Strangers:
    """A client whose workers have other packages than the sweep, or who has none."""

    def __init__(self, answer: Exception | None) -> None:
        self.answer = answer

    def wait_for_workers(self, number: int, timeout: float) -> None:
        if self.answer is None:
            raise TimeoutError

    def run(self, function, on_error: str) -> dict:
        return {"tcp://1": None, "tcp://2": self.answer}


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (ModuleNotFoundError("No module named 'bookkit'"), "worker tcp://2 cannot run points .*No module named"),
        (UserError("the counted here is not that"), "the counted here is not that.: install the very packages"),
        (None, "the cluster has had no worker for 60 s"),
    ],
)
def test_workers_that_cannot_serve_are_refused(answer, says) -> None:
    with pytest.raises(UserError, match=says):
        run._require_workers(Strangers(answer), Job("p", "", "", ()))


def test_ctrl_c_leaves_rows_and_tables(book, monkeypatch, capsys) -> None:
    write, written = run.write_row, []

    def interrupted(*arguments):
        if len(written) == 2:
            raise KeyboardInterrupt
        written.append(write(*arguments))

    monkeypatch.setattr(run, "write_row", interrupted)
    book.command(POINTS)
    assert main(["sweep", "counting", "grid.yml", "-o", "out", "--batched"]) == 130
    assert "interrupted; rows are safe, the same command runs the other points" in capsys.readouterr().err
    assert (
        pd.read_parquet("out/results.parquet")["square"].tolist()
        == [0, 1]
        == open_sweep("out").table["square"].tolist()
    )


# --- the command ----------------------------------------------------------------------------------------------------------


def test_dry_run_summary_and_status(book, capsys) -> None:
    book.command(3, broken=1)
    asked = ["sweep", "counting", "grid.yml", "-o", "out"]
    before = snapshot(book.root)
    assert main([*asked, "--dry-run"]) == 0
    assert "3 points (3 n), 0 done, 0 failed, 3 missing\nto run: 3\n  n=0\n" in capsys.readouterr().out
    assert snapshot(book.root) == before
    assert main([*asked, "--batched"]) == 1  # a point failed
    out, err = capsys.readouterr()
    assert "3/3" in err
    assert "failed=1" in err
    assert main(["sweep", "--status", "out"]) == 0
    status = capsys.readouterr().out
    assert status == out[: out.index("\ntable: out")]
    lines = status.splitlines()
    assert lines[0] == "part/01_counting: 3 points (3 n), 2 done, 1 failed, 0 missing"
    assert next(line for line in lines if line.startswith("square")).split() == ["square", "2", "0", "4", "2"]
    assert lines[-1] == "  n=1: ValueError: one is broken"
    assert "run_" not in status
    assert main([*asked, "--dry-run", "--retry-failed"]) == 0
    assert "to run: 1\n  n=1\n" in capsys.readouterr().out


OUT = ["counting", "grid.yml", "-o", "out"]
REQUESTS = [
    ([], "PAGE is missing"),
    (["counting"], "GRID is missing"),
    (["counting", "grid.yml"], "-o FOLDER is missing"),
    (["cuonting", "grid.yml", "-o", "out"], "no page 'cuonting'; did you mean 'counting'?"),
    (["counting", "grod.yml", "-o", "out"], "grod.yml cannot be read"),
    ([*OUT, "-p", "seed", "big"], "seed must be an integer >= 0"),
    ([*OUT, "-p", "n", "4"], "parameter n is fixed on the command line or in the call, and varied by product"),
    (["counting", "grid.yml", "-o", "far/away/out"], "make far/away first"),
    (["counting", "grid.yml", "-o", "grid.yml"], "output grid.yml is a file: give a folder, as in -o"),
    (["counting", "grid.yml", "-o", "notebooks"], "notebooks holds part and is no sweep"),
    ([*OUT, "--fast"], "--fast"),
    ([*OUT, "--workers", "1.5"], "argument --workers: must be a whole number from 1 to 1024; got '1.5'"),
    ([*OUT, "--time-limit", "0"], "time_limit must be a whole number from 1 to 10000000; got 0"),
    ([*OUT, "--notebooks", "some"], "argument --notebooks: invalid choice: 'some'"),
    ([*OUT, "--batched", "--jobs", "2"], "batched runs in this process, all points at once: leave out jobs"),
    ([*OUT, "--batched", "--cluster", "tcp://h:1", "--time-limit", "9"], "leave out cluster and time_limit"),
    ([*OUT, "--batched", "--notebooks", "all"], "batched executes no notebooks"),
    ([*OUT, "--workers", "2", "--cluster", "tcp://h:1"], "jobs=2 is for local processes"),
    ([*OUT, "--cluster", "away.json"], "scheduler file away.json cannot be read: No such file"),
    ([*OUT, "--cluster", "list.json"], "scheduler file list.json is not one"),
    (
        [*OUT, "--cluster", "number.json"],
        "cluster must be an address (tcp://127.0.0.1:8786) or a scheduler file (.json)",
    ),
    ([*OUT, "--cluster", "tcp://127.0.0.1:9"], "cluster tcp://127.0.0.1:9 does not answer"),
    (["silent", "grid.yml", "-o", "out"], "part/02_silent records no named results"),
    (["--status", "out"], "sweep folder out does not exist"),
    (["counting", "--status", "out"], "--status reads a folder and runs nothing: give it alone"),
]


@pytest.fixture
def started(monkeypatch) -> list:
    """What asked for a kernel: none can start."""
    calls: list = []
    monkeypatch.setattr(papermill, "execute_notebook", lambda *a, **k: calls.append(a))
    return calls


@pytest.mark.parametrize(("options", "told"), REQUESTS, ids=[" ".join(options) for options, _ in REQUESTS])
def test_a_bad_request_is_one_line_and_starts_nothing(book, started, capsys, monkeypatch, options, told) -> None:
    monkeypatch.setattr(run, "CONNECT", 0.1)
    book.command(2)
    (book.root / "notebooks" / "part" / "02_silent.md").write_text(PAGE.replace("record(square", "print(square"))
    (book.root / "list.json").write_text("[1]")
    (book.root / "number.json").write_text('{"address": 3}')
    refused(["sweep", *options], [told], book.root, started, capsys)


def test_what_only_a_call_can_ask_is_refused(make) -> None:
    make(page=PAGE.replace("bookkit:\n  batched: counted.squares:squares\n", ""))
    with pytest.raises(UserError, match="part/01_counting declares no batched function"):
        sweep("counting", {"seeds": 1}, "out", batched=True)
    with pytest.raises(UserError, match="notebooks must be none, failed or all; got 'some'"):
        sweep("counting", {"seeds": 1}, "out", notebooks="some")
    with joblib.parallel_config(backend="threading"), pytest.raises(UserError, match="must be loky or dask"):
        sweep("counting", {"seeds": 1}, "out")
    assert not Path("out").exists()


def test_reading_a_sweep_imports_no_cluster() -> None:
    code = "import sys, bookkit.sweeps.folder; print(sorted({'distributed', 'papermill', 'pandas'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
