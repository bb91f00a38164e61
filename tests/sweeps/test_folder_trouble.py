"""A sweep's folder in trouble: refusals before anything is made, a full disk, another sweep at the same time, a kill."""

import errno
import fcntl
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import xarray as xr

from bookkit.sweeps.folder import Status, SweepFolder, _take, open_sweep
from tests.sweeps.sample_rows import begin, done, failed, fill, grid, job, points_of, refused, tree

THREE = grid({"n": [1, 2, 3]})
POINTS = points_of(THREE)


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Writes beyond `size` bytes fail half-way, as on a full disk; really so, by the system."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


# --- refusals before anything is made -------------------------------------------------------------------------------


def another(**changed) -> object:
    return lambda out: (begin(out, THREE), replace(job(), **changed))[1]


def a_file(out: Path) -> None:
    out.write_text("mine")


def a_folder_of_mine(out: Path) -> None:
    out.mkdir()
    (out / "thesis.tex").write_text("mine")


def rows_without_a_sweep(out: Path) -> None:
    begin(out, THREE)
    (out / "rows" / "0.json").write_text("{}")
    (out / "sweep.json").unlink()


def a_half_sweep(out: Path) -> None:
    begin(out, THREE)
    (out / "sweep.json").write_text('{"format": 1, ')


REFUSALS = {
    "a file": (a_file, ["is a file", "-o {out}-2"]),
    "a folder of something else": (a_folder_of_mine, ["thesis.tex", "no sweep", "-o {out}-2"]),
    "rows without sweep.json": (rows_without_a_sweep, ["rows", "no sweep", "-o {out}-2"]),
    "sweep.json cut off": (a_half_sweep, ["sweep.json cannot be read", "-o {out}-2"]),
    "another page": (another(page="wing/02_x", page_hash="c" * 64), ["page wing/01_tiny, not wing/02_x", "-o {out}-2"]),
    "another page version": (
        another(page_hash="c" * 64),
        ["another version of the page (aaaaaaaa, now cccccccc):", "-o {out}-2"],
    ),
    "another package version": (
        another(package_hash="c" * 64),
        ["another version of the code (bbbbbbbb, now cccccccc):", "-o {out}-2"],
    ),
    "both": (
        another(page_hash="c" * 64, package_hash="d" * 64),
        ["the page (aaaaaaaa, now cccccccc) and of the code (bbbbbbbb, now dddddddd):", "-o {out}-2"],
    ),
}


@pytest.mark.parametrize("what", REFUSALS)
def test_refused_before_anything_is_made(tmp_path, what):
    out = tmp_path / "out"
    make, words = REFUSALS[what]
    new = make(out) or job()
    before = tree(tmp_path)
    message = refused(SweepFolder.check, out, new)
    for word in words:
        assert word.format(out=out) in message
    assert refused(begin, out, THREE, new) == message
    assert tree(tmp_path) == before


def test_a_sweep_that_appears_between_check_and_lock_is_not_mixed_with(tmp_path, monkeypatch):
    out = tmp_path / "out"
    fill(out, THREE, lambda p: {"x": 1})
    before = tree(out)
    monkeypatch.setattr(SweepFolder, "check", lambda *_: None)
    assert "another version of the page" in refused(begin, out, THREE, job(page_hash="c" * 64))
    assert tree(out) == before


def test_the_offered_name_is_free(tmp_path, monkeypatch):
    for name in ("out", "out-2", "out-3"):
        a_file(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    assert "as in -o out-4" in refused(SweepFolder.check, Path("out"), job())
    Path("here").mkdir()
    monkeypatch.chdir("here")
    a_file(Path("x"))
    assert f"as in -o {tmp_path / 'here-2'}" in refused(SweepFolder.check, Path(), job())


def test_a_missing_parent_is_refused(tmp_path):
    message = refused(SweepFolder.check, tmp_path / "no" / "out", job())
    assert message == f"output {tmp_path / 'no' / 'out'} must lie in a folder that exists: make {tmp_path / 'no'} first"
    assert tree(tmp_path) == {}


def test_check_makes_nothing(tmp_path):
    SweepFolder.check(tmp_path / "out", job())
    assert tree(tmp_path) == {}
    begin(tmp_path / "out", THREE)
    before = tree(tmp_path)
    SweepFolder.check(tmp_path / "out", job())
    assert tree(tmp_path) == before


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("by", ["access", "probe"])
def test_a_read_only_disk_is_refused(tmp_path, monkeypatch, there, by):
    out = tmp_path / "out"
    if there:
        fill(out, THREE, lambda p: {"x": 1})
    before = tree(tmp_path)
    if by == "access":
        monkeypatch.setattr(os, "access", lambda *_: False)
    else:

        def read_only(**_):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))

        monkeypatch.setattr(tempfile, "TemporaryFile", read_only)
    message = refused(begin, out, THREE)
    assert {"access": "Permission denied", "probe": "Read-only file system"}[by] in message
    assert f"rows safe in it: {3 if there else 0}; make it writable or give another folder, as in -o {out}-2" in message
    assert tree(tmp_path) == before


@pytest.mark.skipif(
    not Path("/sys/kernel").is_dir(), reason="needs a folder that even the administrator cannot write to"
)
def test_a_folder_nobody_can_write_to_is_refused():
    assert "cannot be written" in refused(SweepFolder.check, Path("/sys/kernel/sweep"), job())


# --- a full disk ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("there", [False, True])
def test_disk_full_at_the_start_leaves_nothing(tmp_path, there):
    out = tmp_path / "out"
    if there:
        out.mkdir()
    before = tree(tmp_path)
    with largest_file(100):
        message = refused(begin, out, THREE)
    assert "disk full" in message
    assert "rows safe in it: 0; free space and give the same command again" in message
    assert tree(tmp_path) == before
    begin(out, THREE)


def test_disk_full_when_joining_keeps_the_sweep(tmp_path):
    out = tmp_path / "out"
    fill(out, THREE, lambda p: {"x": 1}, publish=True)
    before = tree(out)
    with largest_file(100):
        assert "rows safe in it: 3" in refused(begin, out, grid({"n": list(range(50))}))
    assert tree(out) == before


@pytest.mark.parametrize("part", ["row", "notebook"])
def test_disk_full_at_a_row_loses_that_row_only(tmp_path, part):
    with SweepFolder.begin(tmp_path / "out", job(), THREE, POINTS) as folder:
        folder.write(done(POINTS[0], {"x": 1}), 1)
        before = tree(tmp_path)
        long = {"traceback": "x" * 10_000} if part == "row" else {"notebook": "x" * 10_000}
        with largest_file(5000):
            message = refused(folder.write, failed(POINTS[1], **long), 1)
        assert "disk full (File too large); rows safe in it: 1; free space" in message
        assert tree(tmp_path) == before
        folder.write(failed(POINTS[1], **long), 1)
        assert list(folder.rows()) == [POINTS[0].id, POINTS[1].id]


@pytest.mark.skipif(
    not Path("/dev/full").exists(), reason="needs the device that answers every write with: no space left"
)
def test_no_space_left_on_the_device(tmp_path):
    with SweepFolder.begin(tmp_path / "out", job(), THREE, POINTS) as folder:
        before = tree(tmp_path)
        aside = tmp_path / "out" / "rows" / f"{POINTS[1].id}.json.{os.getpid()}.part"
        aside.symlink_to("/dev/full")
        message = refused(folder.write, done(POINTS[1], {"x": 1}), 1)
        assert "disk full (No space left on device); rows safe in it: 0; free space" in message
        assert tree(tmp_path) == before


@pytest.mark.parametrize("full", ["results.parquet", "results.nc"])
def test_disk_full_while_publishing_keeps_the_last_whole_files(tmp_path, monkeypatch, full):
    out = tmp_path / "out"
    fill(out, THREE, lambda p: {"x": 1} if p["n"] == 1 else None, publish=True)
    with SweepFolder.begin(out, job(), THREE, POINTS) as folder:
        folder.write(done(POINTS[1], {"x": 2}), 1)
        before = tree(out)
        real = os.replace

        def replaced(source, target):
            if Path(target).name == full:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            real(source, target)

        monkeypatch.setattr(os, "replace", replaced)
        assert "disk full (No space left on device); rows safe in it: 2" in refused(folder.publish)
        changed = {name for name, content in tree(out).items() if before.get(name, b"") != content}
        assert changed == ({"results.parquet"} if full == "results.nc" else set())
        monkeypatch.undo()
        with largest_file(2000):
            assert "disk full (File too large)" in refused(folder.publish)
        folder.publish()
    assert list(pd.read_parquet(out / "results.parquet")["x"]) == [1, 2]


def test_a_folder_that_is_removed_while_the_sweep_runs(tmp_path):
    with SweepFolder.begin(tmp_path / "out", job(), THREE, POINTS) as folder:
        shutil.rmtree(tmp_path / "out")
        assert "No such file or directory; rows safe in it: 0" in refused(folder.write, done(POINTS[0], {"x": 1}), 1)
    assert tree(tmp_path) == {}


def test_errors_of_others_pass_through(tmp_path):
    with pytest.raises(ConnectionResetError), SweepFolder.begin(tmp_path / "out", job(), THREE, POINTS):
        raise ConnectionResetError(errno.ENOSPC, "not of the folder")
    assert (tmp_path / "out" / "sweep.json").exists()


# --- the lock, with real processes ----------------------------------------------------------------------------------

WRITER = """
import subprocess, sys, time
from pathlib import Path
from bookkit.sweeps.folder import SweepFolder
from tests.sweeps.sample_rows import done, grid, job, points_of

of = grid({"n": list(range(2000))})
points = points_of(of)
with SweepFolder.begin(Path(sys.argv[1]), job(), of, points) as folder:
    child = subprocess.Popen(["sleep", "60"])  # as a worker would be: it must not keep the lock
    print(child.pid, flush=True)
    for turn in range(1000):
        for point in points[:5]:
            folder.write(done(point, {"x": point.parameters["n"]}, notebook="n" * 20_000), 1)
        folder.publish()
        if turn == 1:
            print("begun", flush=True)
"""


def test_a_second_sweep_is_refused_and_a_kill_leaves_whole_files_and_no_lock(tmp_path):
    out = tmp_path / "out"
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(out)], stdout=subprocess.PIPE, text=True, env=environment, cwd=tmp_path
    ) as process:
        child = int(process.stdout.readline())
        try:
            assert process.stdout.readline() == "begun\n"
            message = refused(begin, out, THREE)
            assert (
                message
                == f"output {out} is in use by another sweep: wait for it to end, or give another, as in -o {out}-2"
            )
            assert refused(SweepFolder.check, out, job()) == message
            sweep = open_sweep(out)
            assert sweep.running
            assert sweep.status == Status(total=2000, done=5, failed=0, missing=1995)
        finally:
            process.kill()
            process.wait()
        try:
            os.kill(child, 0)  # still there
            assert not open_sweep(out).running
            of = grid({"n": [0]})
            with SweepFolder.begin(out, job(), of, points_of(of)) as folder:
                assert [row["results"] for row in folder.rows().values()] == [{"x": n} for n in range(5)]
                assert not [name for name in tree(out) if name.endswith(".part")]
            assert pd.read_parquet(out / "results.parquet")["x"].tolist() == list(range(5))
            with xr.open_dataset(out / "results.nc") as array:
                assert array["x"].count() == 5
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_reader_does_not_stop_a_sweep_from_starting(tmp_path):
    """`running` takes the lock for an instant; a sweep that starts right then waits for it."""
    begin(tmp_path / "out", THREE)
    lock = (tmp_path / "out" / ".lock").open()
    fcntl.flock(lock, fcntl.LOCK_SH)
    assert "in use" in refused(begin, tmp_path / "out", THREE)  # held for good
    threading.Timer(0.1, lock.close).start()
    with (tmp_path / "out" / ".lock").open("a") as own:
        _take(own, tmp_path / "out")
    assert lock.closed


def test_a_disk_without_locks_is_refused(tmp_path, monkeypatch):
    def none(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", none)
    assert "cannot be locked (No locks available): give a folder on another disk" in refused(
        begin, tmp_path / "out", THREE
    )
