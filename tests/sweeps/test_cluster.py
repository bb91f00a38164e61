"""Sweeps on real clusters: a scheduler and two workers started as documented, SLURM with a stand-in for sbatch, and what cannot serve."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from distributed import Client

from bookkit.pages.catalogue import UserError
from bookkit.sweeps import cluster as clusters
from bookkit.sweeps import open_sweep
from bookkit.sweeps import slurm as slurms
from bookkit.sweeps.cluster import check_request, connected
from tests.sweeps.counting import CountingBook
from tests.sweeps.processes import PATIENCE, Scheduler, ending, free_port, is_running, sweep, wait_for
from tests.tiny_book import write

POINTS = 5
BROKEN = 3
RECORD = ["run_seconds", "run_memory", "run_engine", "run_finished"]  # what differs between two equal runs


@pytest.fixture
def book(tmp_path: Path) -> CountingBook:
    """A book whose page runs on clusters of the test."""
    made = CountingBook(tmp_path / "book", batched=True)
    made.grid(POINTS, broken=BROKEN)
    return made


# --- the same sweep here and there


def test_a_sweep_here_on_two_workers_of_a_scheduler_and_batched_gives_equal_tables(book) -> None:
    here = sweep(book, "--workers", "2", output="here")
    assert here.returncode == 1, here.stderr  # a point is broken
    batched = sweep(book, "--batched", output="batched")
    assert batched.returncode == 1, batched.stderr
    file = book.root / "scheduler.json"
    scheduler = Scheduler(book, "--scheduler-file", str(file))
    workers = scheduler.worker("--nworkers", "2", "--nthreads", "1")
    with ending(workers, scheduler.process):
        local = book.parents()
        with Client(scheduler.address, set_as_default=False, timeout=PATIENCE) as client:
            client.wait_for_workers(2, timeout=PATIENCE)  # otherwise the first to come may run every point
        there = sweep(book, "--cluster", scheduler.address, output="there")
        assert there.returncode == 1, there.stderr
        assert len(book.parents() - local) == 2, "both workers must have run points"
        wait_for(file.exists, "scheduler file")
        book.grid(POINTS + 1, broken=BROKEN)
        by_file = sweep(book, "--cluster", "scheduler.json", "--notebooks", "all", output="there")
        assert by_file.returncode == 1, by_file.stderr
        assert workers.poll() is None
        assert scheduler.process.poll() is None, "a cluster that is not ours goes on"
    tables = [open_sweep(book.root / name).table.set_index("n") for name in ("here", "there")]
    assert tables[0].drop(columns=RECORD).equals(tables[1].loc[: POINTS - 1].drop(columns=RECORD))
    assert tables[0]["square"].dropna().tolist() == [n**2 for n in range(POINTS) if n != BROKEN]
    assert tables[1]["run_status"].tolist() == ["failed" if n == BROKEN else "done" for n in range(POINTS + 1)]
    assert [set(table["run_engine"]) for table in tables] == [{"local"}, {"dask"}]
    done = tables[0][tables[0]["run_status"] == "done"]
    table = open_sweep(book.root / "batched").table.set_index("n")
    assert table["run_status"].tolist() == tables[0]["run_status"].tolist()
    # Attempts differ: a point that fails takes its batch with it, whose points are then tried alone.
    differ = [*RECORD, "run_attempts"]
    assert table[table["run_status"] == "done"].drop(columns=differ).equals(done.drop(columns=differ))
    # Every point once in each sweep with kernels, the broken one never to its end; the last only where it was asked for.
    assert book.executions() == {n: 2 for n in range(POINTS) if n != BROKEN} | {POINTS: 1}
    assert book.executions("begin")[BROKEN] == 4
    # Notebooks: of the failed point as always, of the last because it was asked for.
    assert len(list((book.root / "there" / "notebooks").iterdir())) == 2


# --- workers that cannot serve, or come late, or hold several threads


def test_workers_are_looked_at_before_anything_is_made(book, tmp_path) -> None:
    missing = "raise ModuleNotFoundError(\"No module named 'bookkit'\", name='bookkit')\n"
    stranger = write(tmp_path / "stranger" / "bookkit" / "__init__.py", missing).parent
    other = write(tmp_path / "other" / "counted" / "__init__.py", "VALUE = 1\n").parent
    scheduler = Scheduler(book)
    with ending(scheduler.process):
        for folder, says in ((stranger, "has no bookkit"), (other, "has another counted than this command")):
            worker = scheduler.worker("--nthreads", "1", "--no-nanny", PYTHONPATH=str(folder.parent))
            with ending(worker):
                ended = sweep(book, "--cluster", scheduler.address)
            assert ended.returncode == 2, ended.stderr
            line = re.compile(rf"^bookkit: error: worker tcp://127.0.0.1:\d+ {says}: install .*\n$", re.MULTILINE)
            assert line.search(ended.stderr), ended.stderr
            assert "Traceback" not in ended.stderr
            assert not (book.root / "out").exists()
        process = subprocess.Popen(
            book.command("--cluster", scheduler.address),
            cwd=book.root,
            env=book.environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        with ending(process), process.stderr:
            said = ""
            while "no worker yet" not in said and (line := process.stderr.readline()):
                said += line  # also of its bar
            worker = scheduler.worker("--nthreads", "2", "--no-nanny")
            with ending(worker):
                said += process.stderr.read()
                process.wait(timeout=PATIENCE)
    assert process.returncode == 1, said
    assert f"cluster {scheduler.address} has no worker yet: waiting up to 60 s" in said
    assert "1 of 1 workers have several threads, but a worker process runs one point at a time" in said
    assert open_sweep(book.root / "out").status.done == POINTS - 1


def test_a_cluster_without_workers_is_refused_in_the_end(book, monkeypatch) -> None:
    monkeypatch.setattr(clusters, "FIRST_WORKER", 1.5)
    scheduler = Scheduler(book)
    said: list[str] = []
    with ending(scheduler.process), pytest.raises(UserError, match="has had no worker for 2 s: start workers"):
        with connected(scheduler.address, None, POINTS, said.append, book.code.names):
            raise AssertionError("there is no worker")
    assert said == [f"cluster {scheduler.address} has no worker yet: waiting up to 2 s"]


# --- clusters that are not there


def test_an_unreachable_cluster_is_one_line_and_nothing_is_made(book, monkeypatch) -> None:
    monkeypatch.setattr(clusters, "CONNECT", 1.0)
    address = f"tcp://127.0.0.1:{free_port()}"
    with pytest.raises(UserError, match=f"cluster {address} does not answer .*: is its scheduler running") as caught:
        with connected(address, None, POINTS, print, book.code.names):
            raise AssertionError("there is no scheduler")
    assert "\n" not in str(caught.value)


FILES = [
    ("missing", None, "scheduler file {} cannot be read: No such file or directory"),
    ("empty", "", "scheduler file {} is not one"),
    ("no address", "{}", "scheduler file {} is not one"),
    ("a list", "[1]", "scheduler file {} is not one"),
    ("no text", '{"address": 3}', "scheduler file {} is not one: its address must be a text; got 3"),
]


@pytest.mark.parametrize(("content", "says"), [case[1:] for case in FILES], ids=[case[0] for case in FILES])
def test_a_bad_scheduler_file_is_refused(tmp_path, content, says) -> None:
    path = tmp_path / "scheduler.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UserError, match=re.escape(says.format(path))):
        check_request(path, None)


def test_kinds_of_clusters(tmp_path) -> None:
    file = write(tmp_path / "s.json", '{"address": "tcp://127.0.0.1:1"}')
    asked = [None, "tcp://127.0.0.1:8786", "tls://node-3.cluster:8786", "node_3:8786", file]
    assert [check_request(each, None) for each in asked] == ["local", "address", "address", "address", "file"]


def test_a_script_without_a_main_guard_is_told_so(book) -> None:
    script = write(
        book.root / "script.py",
        "from bookkit.sweeps import sweep\nsweep('counting', {'product': {'n': [1, 2]}}, 'out', workers=1)\n",
    )
    ended = subprocess.run(
        [sys.executable, str(script)], cwd=book.root, env=book.environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert 'call sweep in a script under `if __name__ == "__main__":`' in ended.stderr.splitlines()[-1]
    assert not (book.root / "out").exists()


# --- SLURM

SBATCH = f"""#!{sys.executable}
import os, subprocess, sys
with open(os.environ["SWEEP_LOG"] + ".sbatch", "a") as log:
    log.write(open(sys.argv[1]).read())
script = open(sys.argv[1]).read()
started = subprocess.Popen(["/bin/sh", "-c", script], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
print("Submitted batch job", started.pid)
"""
SCANCEL = f"""#!{sys.executable}
import os, signal, sys
os.killpg(int(sys.argv[-1]), signal.SIGKILL)
open(os.environ["SWEEP_LOG"] + ".scancel", "a").write(sys.argv[-1] + "\\n")
"""
JOBQUEUE = "jobqueue:\n  slurm:\n    cores: 2\n    memory: 2GB\n    walltime: '00:10:00'\n    interface: lo\n    queue: short\n"


@pytest.fixture
def slurm(book, tmp_path, monkeypatch) -> CountingBook:
    """A machine with `sbatch` and `scancel`, which run jobs here, and the user's jobqueue.yaml."""
    for name, text in (("sbatch", SBATCH), ("scancel", SCANCEL)):
        write(tmp_path / "bin" / name, text).chmod(0o755)
    write(tmp_path / "config" / "jobqueue.yaml", JOBQUEUE)
    book.environment |= {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "DASK_CONFIG": str(tmp_path / "config")}
    return book


def test_slurm_runs_the_sweep_in_jobs_and_cancels_them(slurm) -> None:
    slurm.grid(POINTS, broken=BROKEN, meet=2)
    ended = sweep(slurm, "--cluster", "slurm", "--workers", "1")
    assert ended.returncode == 1, ended.stderr
    assert open_sweep(slurm.root / "out").status.done == POINTS - 1
    assert "Traceback" not in ended.stderr
    assert "results.parquet" in ended.stdout
    script = Path(f"{slurm.log}.sbatch").read_text()
    assert "#SBATCH -p short" in script
    assert "#SBATCH --cpus-per-task=2" in script
    assert "--nthreads 1" in script
    assert "--nworkers 2" in script
    assert len(slurm.parents()) == 2, "both workers of the job must have run points"
    (job,) = Path(f"{slurm.log}.scancel").read_text().split()
    wait_for(lambda: not any(is_running(pid) for pid in slurm.parents() | {int(job)}), "end of the jobs")


def test_slurm_without_a_description_of_a_job_is_refused(slurm, tmp_path) -> None:
    write(tmp_path / "config" / "jobqueue.yaml", "jobqueue:\n  slurm:\n    cores: 2\n")
    ended = sweep(slurm, "--cluster", "slurm")
    assert ended.returncode == 2
    assert ended.stderr.startswith("bookkit: error: cluster slurm needs `cores` and `memory` of a job under jobqueue")
    assert ended.stderr.count("\n") == 1
    assert not (slurm.root / "out").exists()


def test_a_job_that_slurm_refuses_is_one_line(slurm, tmp_path) -> None:
    write(tmp_path / "bin" / "sbatch", "#!/bin/sh\necho 'sbatch: error: invalid partition: short' >&2\nexit 1\n")
    ended = sweep(slurm, "--cluster", "slurm", "--workers", "2")
    assert ended.returncode == 2
    says = "sbatch refused the job (sbatch: error: invalid partition: short): correct jobqueue.yaml"
    assert ended.stderr == f"bookkit: error: cluster slurm: {says}\n"
    assert not (slurm.root / "out").exists()


def test_slurm_without_its_commands_or_its_library_is_refused(monkeypatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UserError, match="cluster slurm needs sbatch, which is not on this machine"):
        check_request("slurm", 2)
    monkeypatch.setattr(slurms, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"needs dask-jobqueue: python -m pip install dask-jobqueue"):
        check_request("slurm", None)


def test_dask_jobqueue_does_not_take_the_signals() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    for name in [name for name in sys.modules if name.startswith("dask_jobqueue")]:
        del sys.modules[name]
    assert [found.__name__ for found in slurms._slurm_classes()] == ["SLURMCluster", "SLURMJob"]
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
