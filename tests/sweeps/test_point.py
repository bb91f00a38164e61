"""One attempt at one point: what comes back from pages that run, fail, die, say nothing, or meet another package."""

import asyncio
import gc
import json
import os
import re
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

from bookkit import results
from bookkit.code import Code
from bookkit.sweeps import point as module
from bookkit.sweeps.identity import Job, OtherVersion, Outcome, Point, page_hash, versions
from bookkit.sweeps.point import records_results, run_point
from tests.tiny_book import make_package, page_text

PARAMETERS = ":tags: [parameters]\n\nn: int = 3  # size [>= 1]"
RECORD = "from bookkit.results import record\nrecord(twice=2 * n, powers=[n, n**2], name='a')"


class Sweep:
    """A package of the test's own, which nobody edits meanwhile, and pages that run with it."""

    def __init__(self, root: Path) -> None:
        self.root, self.package = root, make_package(root, value=1)
        self.code = Code((self.package,))

    def job(self, *cells: str, **settings: object) -> Job:
        source = page_text(*cells)
        return Job("wing/01_tiny", source, page_hash(source), self.code.hash(), self.code.names, **settings)

    def run(self, *cells: str, n: int = 5, **settings: object) -> Outcome:
        return run_point(self.job(PARAMETERS, *cells, **settings), Point("p", {"n": n}), "dask", self.code)


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    return Sweep(tmp_path)


@contextmanager
def running_loop() -> Iterator[None]:
    """An event loop that runs in another thread of this process, as in a worker of Dask."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def test_in_threads_of_a_worker_one_page_at_a_time_and_nothing_is_left(sweep: Sweep) -> None:
    log = sweep.root / "log"
    noting = f"import os\nlog = open({str(log)!r}, 'a', buffering=1)\nprint('begin', n, file=log)"
    cells = [noting, RECORD, "import time\ntime.sleep(0.3)\nprint('end', n, file=log)"]
    process = psutil.Process()
    children = set(process.children())  # those of other tests
    with running_loop(), ThreadPoolExecutor(3) as threads:
        sweep.run(RECORD)  # imports, and what is opened once for all points
        gc.collect()
        before, begun = (dict(os.environ), os.getcwd()), datetime.now(UTC)
        opened, alive = process.num_fds(), len(threading.enumerate())
        outcomes = list(threads.map(lambda n: sweep.run(*cells, n=n), (1, 2, 3)))
        gc.collect()  # whatever was left open would warn now, and warnings are errors here
        assert process.num_fds() <= opened
        assert len(threading.enumerate()) <= alive + 3  # those of the executor
    assert (dict(os.environ), os.getcwd()) == before
    assert set(process.children()) <= children
    # Each page ended before the next began.
    lines = [line.split() for line in log.read_text().splitlines()]
    assert [word for word, _ in lines] == ["begin", "end"] * 3
    assert all(lines[i][1] == lines[i + 1][1] for i in (0, 2, 4))
    for n, outcome in zip((1, 2, 3), outcomes, strict=True):
        assert (outcome.point, outcome.status, outcome.backend) == (Point("p", {"n": n}), "done", "dask")
        assert outcome.results == {"twice": 2 * n, "powers": [n, n * n], "name": "a"}
        assert (outcome.error, outcome.traceback, outcome.notebook) == (None, None, None)
        assert outcome.versions == versions(())
        assert outcome.seconds > 0.3
        assert 2**24 < outcome.memory < 2**30  # a Python with IPython needs 40 to 80 MiB
        assert begun - timedelta(seconds=1) < datetime.fromisoformat(outcome.finished) <= datetime.now(UTC)
        assert outcome.finished.endswith("+00:00")
        assert "." not in outcome.finished


def test_a_kept_notebook_has_the_same_bytes_every_time_and_shows_its_parameters(sweep: Sweep) -> None:
    first, second = (sweep.run("print(n)", RECORD, n=7, notebooks="all") for _ in range(2))
    assert first.notebook == second.notebook
    cells = json.loads(first.notebook)["cells"]
    injected = [cell for cell in cells if "injected-parameters" in cell["metadata"].get("tags", [])]
    assert [re.sub(r"^#.*\n", "", "".join(cell["source"])) for cell in injected] == ["n = 7\n"]
    assert [o["text"] for c in cells for o in c.get("outputs", []) if o["output_type"] == "stream"] == [["7\n"]]


def test_a_failing_page_is_an_outcome_with_error_traceback_and_the_part_that_ran(sweep: Sweep) -> None:
    failing = "def half(x):\n    raise ValueError(f'no half of {x}')\n\nhalf(n)"
    outcome = sweep.run("print('before')", failing, "print('after')", RECORD)
    assert (outcome.status, outcome.results) == ("failed", None)
    # Papermill's own cell with the parameters is not counted: it is the third cell of the page.
    assert outcome.error == "code cell 3 failed with ValueError: no half of 5 [at line 4: half(n)]"
    assert "\x1b" not in outcome.traceback
    assert "Traceback (most recent call last)" in outcome.traceback
    assert "in half(x)" in outcome.traceback
    assert outcome.traceback.endswith("ValueError: no half of 5")
    kept = json.loads(outcome.notebook)
    outputs = [o for c in kept["cells"] for o in c.get("outputs", [])]
    assert [o["output_type"] for o in outputs] == ["stream", "error"]
    assert outputs[0]["text"] == ["before\n"]
    assert any("n = 5\n" in "".join(c["source"]) for c in kept["cells"])


FAILURES = {
    "kernel dies": (
        "import os\nos.write(2, b'first words\\nout of luck')\nos._exit(3)",
        "the kernel failed in code cell 2: DeadKernelError: Kernel died out of luck",
        "first words\nout of luck",
    ),
    "ends early": (
        "raise SystemExit",
        "a cell ended the page with SystemExit: pages run to their last cell",
        "SystemExit",
    ),
    "says nothing": ("print(n)", module.NO_RESULTS, None),
    "garbled": (
        "display({'application/vnd.attnlib.results+json': 7}, raw=True)",
        "the page's named results cannot be read: TypeError: 'int' object is not iterable",
        "TypeError",
    ),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_other_failures_are_outcomes_too(sweep: Sweep, failure: str) -> None:
    cell, error, trace = FAILURES[failure]
    outcome = sweep.run(cell, notebooks="none")
    assert (outcome.status, outcome.error, outcome.results) == ("failed", error, None)
    assert outcome.traceback is None if trace is None else trace in outcome.traceback
    assert outcome.notebook is None  # as asked
    assert outcome.memory > 0


def test_a_worker_that_cannot_run_pages_says_so_in_the_outcome(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    def full_disk(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "run_in_folder", full_disk)
    outcome = sweep.run(RECORD)
    assert (outcome.status, outcome.error) == ("failed", "OSError: [Errno 28] No space left on device")
    assert "full_disk" in outcome.traceback
    assert outcome.memory is None


def test_a_worker_without_temporary_folder_says_so_in_the_outcome(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(sweep.root / "none"))
    outcome = sweep.run(RECORD)
    assert (outcome.status, outcome.memory, outcome.notebook) == ("failed", None, None)
    assert outcome.error.startswith("FileNotFoundError: [Errno 2] No such file or directory")


def test_a_page_that_ends_over_its_limit_has_failed(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    output = new_output("display_data", data={results.RESULTS_TYPE: {"a": 1}})

    def late(*arguments: object) -> object:
        time.sleep(0.5)
        return new_notebook(cells=[new_code_cell("", outputs=[output])])

    monkeypatch.setattr(module, "run_in_folder", late)
    assert sweep.run(time_limit=60).results == {"a": 1}
    outcome = sweep.run(time_limit=0.1)
    assert (outcome.status, outcome.results) == ("failed", None)
    assert outcome.error == "time limit of 0.1 s exceeded in the last code cell"
    assert '"a": 1' in outcome.notebook


def test_a_long_error_is_cut_and_stays_one_line(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(*arguments: object) -> None:
        raise ValueError("line\n" * 10_000)

    monkeypatch.setattr(module, "run_in_folder", endless)
    error = sweep.run(RECORD).error
    assert error.startswith("ValueError: line line line")
    assert len(error) == 1000
    assert "\n" not in error


def test_another_package_is_refused_before_the_page_runs(sweep: Sweep) -> None:
    job = sweep.job(PARAMETERS, f"open({str(sweep.root / 'ran')!r}, 'w')", RECORD)
    (sweep.package / "__init__.py").write_text("VALUE = 2\n")
    with pytest.raises(OtherVersion, match="install the same version everywhere") as caught:
        run_point(job, Point("p", {"n": 5}), "dask", sweep.code)
    assert job.package_hash[:12] in str(caught.value)
    assert sweep.code.hash()[:12] in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (sweep.root / "ran").exists()


def test_a_package_edited_while_the_page_runs_spoils_the_result(sweep: Sweep) -> None:
    edit = f"from pathlib import Path\nPath({str(sweep.package / 'new.py')!r}).write_text('')"
    with pytest.raises(OtherVersion):
        sweep.run(RECORD, edit)


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        (RECORD, True),
        ("import bookkit.results as r\nif True:\n    r.record(a=1)", True),
        ("%matplotlib inline\n!ls\nx = !ls\nrecord(a=1)", True),
        ("%%time\nrecord(a=1)", True),
        ("# record(a=1)\nprint('record(a=1)')", False),
        ("from bookkit.results import record", False),
        ("recorder(a=1)", False),
        ("record(a=1", False),  # not Python: the kernel will say so
    ],
)
def test_whether_a_page_records_results_is_read_from_its_source(cell: str, expected: bool) -> None:
    assert records_results(page_text("x = 1", cell, "y = = 2")) is expected


def test_every_page_of_the_book_records_results() -> None:
    pages = sorted((Path(__file__).parents[2] / "notebooks").rglob("[0-9]*.md"))
    assert len(pages) >= 20
    assert [page.stem for page in pages if not records_results(page.read_text(encoding="utf-8"))] == []
