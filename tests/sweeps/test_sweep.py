"""Whole sweeps: killed and gone on with, interrupted, on a Dask cluster, on a full disk; and requests that are refused before any work."""

import errno
import json
import os
import signal
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from subprocess import PIPE, STDOUT, Popen

import dask
import pandas as pd
import psutil
import pytest
from distributed import LocalCluster
from filelock import FileLock

from bookkit.cli import main
from bookkit.pages.catalogue import UserError
from bookkit.pages.rerun import RunError
from bookkit.sweeps import run, sweep
from tests.refusals import refused, snapshot
from tests.sweeps.counting import PAGE, dying

OUT = ["sweep", "counting", "grid.yml", "-o", "out"]
QUIET = {"threads_per_worker": 1, "dashboard_address": None, "silence_logs": 50}


def started(book, rows: int) -> Popen:
    """A sweep in a process group of its own, with so many rows."""
    process = Popen(book.command(4, "--jobs", "2"), start_new_session=True, stdout=PIPE, stderr=STDOUT, text=True)
    while len(list(book.out.glob("point-*.json"))) < rows and process.poll() is None:
        time.sleep(0.02)
    return process


def is_there(pid: int) -> bool:
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


def statuses() -> list[str]:
    return sweep("counting", Path("grid.yml"), "out", status=True)["run_status"].tolist()


def test_a_sweep_killed_twice_goes_on_to_the_right_table_and_a_dask_cluster_gives_the_same(book, capsys) -> None:
    for kills in (1, 2):
        with started(book, kills) as process:
            process.kill()
        assert process.returncode == -signal.SIGKILL
        while any(is_there(worker) for _, worker in book.lines()):
            time.sleep(0.02)  # workers see that the command is gone
    kept = {name: content for name, content in snapshot(book.out).items() if name.endswith(".json")}
    (book.out / "point-0.json.99.part").write_text("{")
    assert main([*OUT, "--jobs", "1"]) == 0
    assert "4 points, 4 done, 0 failed, 0 missing\n" in capsys.readouterr().out
    assert snapshot(book.out).items() >= kept.items()
    assert sorted(path.suffix for path in book.out.iterdir()) == ["", *[".json"] * 4, ".parquet"]
    table, executions = pd.read_parquet("out/results.parquet"), Counter(n for n, _ in book.lines())
    assert table["square"].tolist() == [n**2 for n in sorted(executions)] == [0, 1, 4, 9]
    assert executions.total() <= 4 + 2 * 2, "more ran again than what the kills interrupted"
    with LocalCluster(n_workers=1, processes=False, **QUIET) as cluster:
        there = sweep("counting", {"product": {"n": [0, 1]}}, "there", dask=cluster.scheduler_address)
    assert there.drop(columns="run_seconds").equals(table[:2].drop(columns="run_seconds"))


def test_ctrl_c_ends_workers_in_silence_and_leaves_whole_rows(book) -> None:
    process = started(book, 1)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to workers, too
    assert process.communicate()[0] == "bookkit: error: interrupted; rows are safe, the same command goes on\n"
    assert process.returncode == 130
    rows = [json.loads(path.read_text()) for path in book.out.glob("point-*")]
    assert [row["results"]["square"] for row in rows] == [row["parameters"]["n"] ** 2 for row in rows]
    assert pd.read_parquet("out/results.parquet")["run_status"].tolist().count("done") == len(rows) < 4


def test_a_failing_point_is_a_row_and_half_a_row_is_none(book, capsys) -> None:
    book.command(3, broken=1)
    assert main([*OUT, "--jobs", "2"]) == 1
    said = "  n=1: part/01_counting, code cell 2 (`import os`): AssertionError: \ufffd[2J1 is broken\n"
    assert said in capsys.readouterr().out
    assert pd.read_parquet("out/results.parquet")["run_error"][1] in said
    path = next(path for path in book.out.glob("point-*.json") if '"n": 2' in path.read_text())
    for content in (path.read_text()[:-9], "[1]", path.read_text().replace('"n": 2', '"n": 0')):
        path.write_text(content)
        assert statuses() == ["done", "failed", "missing"]
    before = snapshot(book.root)
    assert (main([*OUT, "--status"]), snapshot(book.root)) == (0, before)
    assert "3 points, 1 done, 1 failed, 1 missing\n" in capsys.readouterr().out
    Path("counted/__init__.py").write_text("EDITED = 1")  # other code: other rows
    assert statuses() == ["missing"] * 3


def test_a_worker_that_dies_ends_the_sweep_with_its_rows_safe(book, monkeypatch) -> None:
    """joblib's own backend for Dask would wait for it forever, and on one core run the pages in this process."""
    monkeypatch.setattr(run, "run_point", dying)
    book.command(4)
    sweep("counting", {"product": {"n": [0, 1, 2]}, "fixed": {"broken": -1}}, "out", jobs=2)
    with dask.config.set({"distributed.scheduler.allowed-failures": 0}), LocalCluster(n_workers=1, **QUIET) as cluster:
        for place in ({"jobs": 1}, {"dask": cluster.scheduler_address}):
            with pytest.raises(RunError, match=r"workers were lost \(.*\); all rows so far are safe"):
                sweep("counting", Path("grid.yml"), "out", **place)
            assert statuses() == ["done", "done", "done", "missing"]


def test_a_full_disk_leaves_the_other_rows(book, monkeypatch, capsys) -> None:
    """Where a page has no room its point is a row with the error; where a row has none, the command ends with exit code 1."""

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(run, "run_in_folder", full)
    work = ({"n": 1}, "part/01_counting", PAGE, ("counted",))
    row = run.run_point(*work, run.code_of(book.root).hash(), None)
    assert (row["results"], row["error"]) == ({}, "OSError: [Errno 28] No space left on device")
    with pytest.raises(UserError, match="a worker has another counted, or it was edited since"):
        run.run_point(*work, "of another", None)
    aside, written = run.written_aside, []
    monkeypatch.setattr(run, "run_point", dying)
    monkeypatch.setattr(run, "written_aside", lambda path: full() if written else written.append(1) or aside(path))
    book.command(3)
    assert main([*OUT, "--jobs", "1"]) == 1
    assert "out cannot be written (No space left on device): make room" in capsys.readouterr().err
    assert Counter(statuses()) == {"done": 1, "missing": 2}


def test_a_table_holds_whatever_pages_record() -> None:
    results = {"a": 1, "b": [1], "n": 2**70}, {"a": "x"}, {}
    table = run._table([dying({"n": n}) | {"results": each} for n, each in enumerate(results)]).to_pydict()
    assert (table["a"], table["b"]) == (["1", '"x"', None], [[1], None, None])
    assert (table["n"], table["result_n"]) == ([0, 1, 2], [str(2**70), None, None])


REQUESTS = {
    "counting": "the following arguments are required: -o",
    "cuonting grid.yml -o out": "no page 'cuonting'; did you mean 'counting'?",
    "counting grid.yml -o grid.yml/out": "grid.yml is a file: give another",
    "counting grid.yml -o notebooks": "notebooks holds part and no sweep: give a new folder",
    "counting grid.yml -o busy": "is in use by another sweep",
    "counting grid.yml -o out --jobs 2 --dask tcp://h:1": "jobs must be a whole number from 1, and is left out with dask",
    "counting grid.yml -o out --status --jobs 2 --dask h": "jobs must be a whole number from 1, and is left out with dask",
    "counting grid.yml -o /": "output / holds",
    "counting grid.yml -o out --dask tcp://127.0.0.1:9": "no scheduler answers at tcp://127.0.0.1:9",
}


@pytest.mark.parametrize("words", REQUESTS)
def test_a_bad_request_is_one_line_and_starts_nothing(book, capsys, monkeypatch, words: str) -> None:
    monkeypatch.setattr(run, "CONNECT", 0.1)
    book.command(2)
    (book.root / "busy").mkdir()
    with FileLock(book.root / "busy" / ".lock"):
        refused(["sweep", *words.split()], [REQUESTS[words]], book.root, [], capsys)
