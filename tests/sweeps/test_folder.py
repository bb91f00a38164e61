"""The folder of a sweep: whole files or none, one sweep at a time, one page and package, and every refusal before anything is made."""

import errno
import fcntl
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from attnlib.publishing.pages import UserError
from attnlib.sweeps.folder import Status, SweepFolder, _take, open_sweep
from attnlib.sweeps.identity import point_id
from tests.sweeps.sample_rows import done, failed, fill, grid, job, points_of, tree

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


def refused(call, *arguments) -> str:
    """The message of the refusal, which is one line."""
    with pytest.raises(UserError) as caught:
        call(*arguments)
    message = str(caught.value)
    assert "\n" not in message
    return message


def begin(path: Path, of=THREE, of_job=None) -> None:
    with SweepFolder.begin(path, of_job or job(), of, points_of(of, of_job)):
        pass


# --- what is written ------------------------------------------------------------------------------------------------


def test_layout(tmp_path):
    out = tmp_path / "out"
    with SweepFolder.begin(out, job(), THREE, POINTS) as folder:
        folder.write(done(POINTS[0], {"accuracy": 0.5}, notebook="{}"), 1)
        folder.write(failed(POINTS[1], "ValueError: n"), 2)
        folder.publish()
    rows = [f"rows/{point.id}.json" for point in POINTS[:2]]
    files = [
        ".lock",
        "notebooks",
        f"notebooks/{POINTS[0].id}.ipynb",
        "results.nc",
        "results.parquet",
        "rows",
        *rows,
        "sweep.json",
    ]
    assert sorted(tree(out)) == sorted(files)
    row = json.loads((out / rows[0]).read_text())
    assert (row["id"], row["status"], row["attempts"], row["results"]) == (POINTS[0].id, "done", 1, {"accuracy": 0.5})
    assert row["parameters"] == POINTS[0].parameters
    row = json.loads((out / rows[1]).read_text())
    assert (row["status"], row["attempts"], row["results"], row["error"]) == ("failed", 2, None, "ValueError: n")
    content = json.loads((out / "sweep.json").read_text())
    assert content["page"] == "wing/01_tiny"
    assert content["page_hash"] == "a" * 64
    assert content["package_hash"] == "b" * 64
    assert [point["id"] for point in content["points"]] == [point.id for point in POINTS]
    assert content["help"]["label_noise"] == "probability that a label is flipped, eta"


def test_a_page_that_cannot_be_read_has_no_help(tmp_path):
    begin(tmp_path / "out", of_job=replace(job(), source="no page"))
    assert open_sweep(tmp_path / "out").help == {}


def test_two_grids_one_folder(tmp_path):
    out = tmp_path / "out"
    small, large = grid({"n": [1, 2]}), grid({"n": [0, 2, 1, 5]})
    fill(out, small, lambda p: {"x": p["n"]})
    with SweepFolder.begin(out, job(), large, points_of(large)) as folder:
        assert [row["results"]["x"] for row in folder.rows().values()] == [1, 2]
        folder.write(done(points_of(large)[3], {"x": 5}), 1)
    sweep = open_sweep(out)
    assert [point.parameters["n"] for point in sweep.points] == [1, 2, 0, 5]  # the order of asking, no point twice
    assert sweep.grid == large
    assert [row["results"]["x"] for row in sweep.rows.values()] == [1, 2, 5]
    assert sweep.status == Status(total=4, done=3, failed=0, missing=1)


def test_a_smaller_grid_forgets_nothing(tmp_path):
    out = tmp_path / "out"
    fill(out, THREE, lambda p: "no" if p["n"] == 2 else {"x": 1})
    begin(out, grid({"n": [3]}))
    assert open_sweep(out).status == Status(total=3, done=2, failed=1, missing=0)


def test_a_row_is_replaced_with_its_notebook(tmp_path):
    notebook = tmp_path / "out" / "notebooks" / f"{POINTS[0].id}.ipynb"
    with SweepFolder.begin(tmp_path / "out", job(), THREE, POINTS) as folder:
        folder.write(failed(POINTS[0], notebook="half"), 2)
        assert notebook.read_text() == "half"
        folder.write(done(POINTS[0], {"x": 1}), 1)  # retried, and only notebooks of failed points are kept
        assert not notebook.exists()
        assert [row["status"] for row in folder.rows().values()] == ["done"]


def test_any_text_can_be_written(tmp_path):
    with SweepFolder.begin(tmp_path / "out", job(), THREE, POINTS) as folder:
        folder.write(failed(POINTS[0], "é \udc80 \x00\n漢字", notebook="\udc80"), 1)
        assert folder.rows()[POINTS[0].id]["error"] == "é ? \x00\n漢字"
        folder.publish()


def test_results_are_made_plain_or_refused(tmp_path):
    import numpy as np

    with SweepFolder.begin(tmp_path / "out", job(), THREE, POINTS) as folder:
        folder.write(done(POINTS[0], {"x": np.float64("inf"), "y": np.arange(2)}), 1)
        assert folder.rows()[POINTS[0].id]["results"] == {"x": None, "y": [0, 1]}
        with pytest.raises(ValueError, match="result x must be a number"):
            folder.write(done(POINTS[1], {"x": {}}), 1)
        stranger = points_of(grid({"n": [77]}))[0]
        with pytest.raises(ValueError, match=stranger.id):
            folder.write(done(stranger, {"x": 1}), 1)
        assert list(folder.rows()) == [POINTS[0].id]


def test_nothing_is_published_where_nothing_finished(tmp_path):
    with SweepFolder.begin(tmp_path / "out", job(), THREE, POINTS) as folder:
        folder.publish()
    assert sorted(tree(tmp_path / "out")) == [".lock", "notebooks", "rows", "sweep.json"]
    assert open_sweep(tmp_path / "out").table.empty


# --- what is read ---------------------------------------------------------------------------------------------------

BROKEN = {
    "empty": lambda text: b"",
    "cut off": lambda text: text[: len(text) // 2],
    "without its last byte": lambda text: text[:-1],
    "zeros, as after a power cut": lambda text: bytes(len(text)),
    "not UTF-8": lambda text: text.replace(b"local", b"loc\xff"),
    "a list": lambda text: b"[" + text + b"]",
    "a number": lambda text: b"3",
    "of another point": lambda text: text.replace(POINTS[0].id.encode(), POINTS[1].id.encode()),
    "with other parameters": lambda text: text.replace(b'"n": 1,', b'"n": 7,'),
    "of no status": lambda text: text.replace(b'"done"', b'"running"'),
    "done without results": lambda text: text.replace(b'{"x": 1}', b"null"),
    "failed without error": lambda text: text.replace(b'"done"', b'"failed"'),
    "without versions": lambda text: text.replace(b'"versions"', b'"words"'),
    "with odd seconds": lambda text: text.replace(b'"seconds": 1.5', b'"seconds": "long"'),
    "nested too deep": lambda text: b"[" * 100_000,
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_row_that_is_not_whole_is_missing_and_runs_again(tmp_path, how):
    out = tmp_path / "out"
    fill(out, THREE, lambda p: {"x": p["n"]} if p["n"] < 3 else None)
    path = out / "rows" / f"{POINTS[0].id}.json"
    broken = BROKEN[how](path.read_bytes())
    assert broken != path.read_bytes()
    path.write_bytes(broken)
    sweep = open_sweep(out)
    assert sweep.status == Status(total=3, done=1, failed=0, missing=2)
    assert list(sweep.table["x"]) == [2]
    assert sweep.array["x"].isnull().values.tolist() == [True, False, True]
    with SweepFolder.begin(out, job(), THREE, POINTS) as folder:
        assert list(folder.rows()) == [POINTS[1].id]
        folder.write(done(POINTS[0], {"x": 1}), 1)
        assert list(folder.rows()) == [POINTS[0].id, POINTS[1].id]


def test_files_that_are_no_rows_are_not_read(tmp_path):
    out = tmp_path / "out"
    fill(out, THREE, lambda p: {"x": p["n"]})
    text = (out / "rows" / f"{POINTS[0].id}.json").read_bytes()
    (out / "rows" / "0123456789abcdef.json").write_bytes(text)
    (out / "rows" / f"{POINTS[0].id}.json.1.part").write_bytes(text[:9])
    (out / "rows" / f"{POINTS[1].id}.json").unlink()
    (out / "rows" / f"{POINTS[1].id}.json").mkdir()
    assert list(open_sweep(out).rows) == [POINTS[0].id, POINTS[2].id]


def test_leftovers_of_killed_writes_go_at_the_next_begin(tmp_path):
    out = tmp_path / "out"
    fill(out, THREE, lambda p: {"x": p["n"]}, publish=True)
    before = tree(out)
    for name in (
        f"rows/{POINTS[0].id}.json.77.part",
        "notebooks/a.ipynb.77.part",
        "results.nc.77.part",
        "sweep.json.77.part",
    ):
        (out / name).write_text("half")
    begin(out)
    assert tree(out) == before


@pytest.mark.parametrize("left", [[], [".lock"], [".lock", "rows/", "notebooks/", "sweep.json.77.part"]])
def test_a_folder_left_by_a_kill_at_the_start_is_new(tmp_path, left):
    out = tmp_path / "out"
    out.mkdir()
    for name in left:
        (out / name).mkdir() if name.endswith("/") else (out / name).touch()
    begin(out)
    assert sorted(tree(out)) == [".lock", "notebooks", "rows", "sweep.json"]


def test_open_refuses_what_is_no_sweep(tmp_path):
    assert "does not exist" in refused(open_sweep, tmp_path / "nowhere")
    assert "holds no sweep" in refused(open_sweep, tmp_path)
    begin(tmp_path / "out")
    path = tmp_path / "out" / "sweep.json"
    whole = json.loads(path.read_text())
    broken = [
        ("", "Expecting value"),
        (path.read_text()[:-5], "Expecting"),
        ("[]", "no mapping"),
        (json.dumps({**whole, "format": 2}), "format 2, this attnlib reads 1"),
        (json.dumps({**whole, "page_hash": 3}), "no page_hash"),
        (json.dumps({**whole, "points": [1]}), "cannot be read"),
        (json.dumps({**whole, "grid": {}}), "not a grid"),
    ]
    for text, word in broken:
        path.write_text(text)
        message = refused(open_sweep, tmp_path / "out")
        assert word in message
        assert "sweep.json cannot be read" in message
        assert "out-2" in message


# --- refusals before anything is made -------------------------------------------------------------------------------


def another(**changed) -> object:
    return lambda out: (begin(out), replace(job(), **changed))[1]


def a_file(out: Path) -> None:
    out.write_text("mine")


def a_folder_of_mine(out: Path) -> None:
    out.mkdir()
    (out / "thesis.tex").write_text("mine")


def rows_without_a_sweep(out: Path) -> None:
    begin(out)
    (out / "rows" / "0.json").write_text("{}")
    (out / "sweep.json").unlink()


def a_half_sweep(out: Path) -> None:
    begin(out)
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
        ["another version of the package attnlib (bbbbbbbb, now cccccccc):", "-o {out}-2"],
    ),
    "both": (
        another(page_hash="c" * 64, package_hash="d" * 64),
        ["the page (aaaaaaaa, now cccccccc) and of the package attnlib (bbbbbbbb, now dddddddd):", "-o {out}-2"],
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
    begin(tmp_path / "out")
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
    message = refused(begin, out)
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
        message = refused(begin, out)
    assert "disk full" in message
    assert "rows safe in it: 0; free space and give the same command again" in message
    assert tree(tmp_path) == before
    begin(out)


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
    import pandas as pd

    assert list(pd.read_parquet(out / "results.parquet")["x"]) == [1, 2]


def test_a_folder_that_is_removed_while_the_sweep_runs(tmp_path):
    import shutil

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
from attnlib.sweeps.folder import SweepFolder
from tests.sweeps.sample_rows import done, grid, job, points_of

of = grid({"n": list(range(2000))})
points = points_of(of)
with SweepFolder.begin(Path(sys.argv[1]), job(), of, points) as folder:
    child = subprocess.Popen(["sleep", "60"])  # as a worker would be: it must not keep the lock
    print(child.pid, flush=True)
    for turn in range(1000):
        for point in points[:5]:
            folder.write(done(point, {"x": point.parameters["n"]}, notebook="n" * 20_000), 1)
        if turn == 3:
            print("begun", flush=True)
"""


def test_a_second_sweep_is_refused_and_a_kill_leaves_whole_rows_and_no_lock(tmp_path):
    out = tmp_path / "out"
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(out)], stdout=subprocess.PIPE, text=True, env=environment, cwd=tmp_path
    ) as process:
        child = int(process.stdout.readline())
        try:
            assert process.stdout.readline() == "begun\n"
            message = refused(begin, out)
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
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_reader_does_not_stop_a_sweep_from_starting(tmp_path):
    """`running` takes the lock for an instant; a sweep that starts right then waits for it."""
    begin(tmp_path / "out")
    lock = (tmp_path / "out" / ".lock").open()
    fcntl.flock(lock, fcntl.LOCK_SH)
    assert "in use" in refused(begin, tmp_path / "out")  # held for good
    threading.Timer(0.1, lock.close).start()
    with (tmp_path / "out" / ".lock").open("a") as own:
        _take(own, tmp_path / "out")
    assert lock.closed


def test_a_disk_without_locks_is_refused(tmp_path, monkeypatch):
    def none(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", none)
    assert "cannot be locked (No locks available): give a folder on another disk" in refused(begin, tmp_path / "out")


# --- speed ----------------------------------------------------------------------------------------------------------


def test_ten_thousand_rows(tmp_path):
    """The bound of two seconds on a whole process is measured in the benchmarks; here on what the folder's own code spends."""
    import xarray as xr  # its import, and pandas', is not the folder's

    xr.Dataset({"x": 1})
    of = grid(
        {"n": list(range(100))}, {"step_size": [k / 7 for k in range(10)]}, {"label_noise": [k / 30 for k in range(10)]}
    )
    out = tmp_path / "out"
    points = points_of(of)
    with SweepFolder.begin(out, job(), of, points):
        pass
    row = json.loads(
        json.dumps({"status": "done", "attempts": 1, "seconds": 1.0, "engine": "local", "finished": "", "versions": {}})
    )
    for number, point in enumerate(points):
        whole = {
            **row,
            "id": point.id,
            "parameters": point.parameters,
            "results": {f"r{k}": number / (k + 1) for k in range(8)},
        }
        (out / "rows" / f"{point.id}.json").write_text(json.dumps(whole))
    start = time.process_time()
    sweep = open_sweep(out)
    assert sweep.table.shape == (10_000, 5 + 8 + 17)
    assert sweep.array.sizes == {"n": 100, "step_size": 10, "label_noise": 10}
    assert time.process_time() - start < 2
    assert float(sweep.array["r1"].sel(n=57, step_size=3 / 7, label_noise=0.1)) == 5733 / 2
    assert point_id("a" * 64, "b" * 64, points[5733].parameters) == sweep.table["run_id"][5733]
