"""One point: what becomes of a page in a kernel of its own, and of many points in a batched function."""

import json
from pathlib import Path

import pytest
from threadpoolctl import threadpool_limits

from bookkit.code import code_of
from bookkit.pages.catalogue import UserError
from bookkit.sweeps import points
from bookkit.sweeps.points import Job, batched_function, records_results, run_batched, run_point
from tests.sweeps.counting import NAME, PAGE
from tests.tiny_book import page_text

PARAMETERS = ":tags: [parameters]\n\nn: int = 0  # samples [>= 0]"
RECORD = "from bookkit.results import record\nrecord(half=n / 2, path=[n, None])"


@pytest.fixture
def job(make):
    """Makes the job of a page with the cells given, or of the counting page."""

    def made(*cells: str, squares: str | None = None, **more) -> Job:
        book = make(squares) if squares else make()
        source = page_text(PARAMETERS, *cells) if cells else PAGE
        return Job(NAME, source, code_of(book.root).hash(), ("counted",), ("nbformat", "nothing"), **more)

    return made


def test_a_point_runs_in_an_empty_folder_with_the_books_package(job) -> None:
    page = job("import os\nimport counted.squares\nassert os.listdir() == []", RECORD, notebooks="all")
    row, notebook = run_point(page, "7" * 16, {"n": 5})
    assert (row["id"], row["status"], row["results"]) == ("7" * 16, "done", {"half": 2.5, "path": [5, None]})
    assert row["versions"].keys() == {"python", "nbformat", "nothing"}
    assert row["versions"]["nothing"] == "not installed"
    assert row["seconds"] > 0
    assert "n = 5\n" in "".join("".join(cell["source"]) for cell in json.loads(notebook)["cells"])


FAILURES = {
    "raises": ("raise ValueError('no half')", "code cell 2 failed with ValueError: no half [at line 1", "ValueError"),
    "kernel dies": (
        # The process's own stderr: what goes to 2, ipykernel carries there in a thread, which dies with it.
        "import os, sys\nos.write(getattr(sys.stderr, '_original_stdstream_copy', 2), b'first words\\nout of luck')\nos._exit(3)",
        "the kernel failed in code cell 2: DeadKernelError: Kernel died out of luck",
        "first words\nout of luck",
    ),
    "hangs": ("while True: pass", "the kernel failed in code cell 2: CellTimeoutError", ""),
    "ends early": (
        "raise SystemExit",
        "code cell 2 ended the page with SystemExit: pages run to their last cell",
        "Exit",
    ),
    "records nothing": ("print(n)", points.NO_RESULTS, None),
    "records nonsense": (
        "display({'application/vnd.attnlib.results+json': {'x': {}}}, raw=True)",
        "ValueError: result x must be a number, a string or a list of them; got NotebookNode",
        "ValueError",
    ),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_a_failing_page_is_a_row_too(job, failure: str) -> None:
    cell, error, trace = FAILURES[failure]
    row, notebook = run_point(job(cell, time_limit=2 if failure == "hangs" else None), "7" * 16, {"n": 5})
    assert (row["status"], row["results"]) == ("failed", None)
    assert row["error"].startswith(error)
    assert row["traceback"] is None if trace is None else trace in row["traceback"]
    assert notebook is not None  # of failed points, as is the default


def test_a_worker_that_cannot_run_pages_says_so_in_one_line(job, monkeypatch) -> None:
    def full_disk(*arguments, **options):
        raise OSError(28, "No space left on device\n" * 1000)

    monkeypatch.setattr(points, "run_in_folder", full_disk)
    row, notebook = run_point(job(notebooks="none"), "7" * 16, {"n": 5})
    assert row["error"].startswith("OSError: [Errno 28] No space left on device No space")
    assert (len(row["error"]), notebook) == (1000, None)
    assert "full_disk" in row["traceback"]


@pytest.mark.parametrize("when", ["before", "while"])
def test_an_edited_package_spoils_the_result(job, monkeypatch, when) -> None:
    page = job()
    edit = lambda *a, **k: Path("counted/__init__.py").write_text("VALUE = 2\n")  # noqa: E731
    if when == "before":
        edit()
    monkeypatch.setattr(points, "run_in_folder", edit)
    with pytest.raises(UserError, match=f"the counted here is not that of the sweep .*{page.package_hash[:12]}"):
        run_point(page, "7" * 16, {"n": 5})


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        (RECORD, True),
        ("import bookkit.results as r\nif True:\n    r.record(a=1)", True),
        ("%%time\nrecord(a=1)", True),
        ("# record(a=1)", False),
        ("from bookkit.results import record", False),
        ("recorder(a=1)", False),
    ],
)
def test_whether_a_page_records_results_is_read_from_its_source(cell: str, expected: bool) -> None:
    assert records_results(page_text("x = 1", cell, "y = = 2")) is expected


# --- batched ------------------------------------------------------------------------------------------------------------


def rows(page: Job, numbers: list[int], **more) -> list[dict]:
    wanted = {str(n): {"n": n, "broken": -1, "seed": 0} | more for n in numbers}
    return [row for row, notebook in run_batched(page, wanted) if notebook is None]


def test_batches_grow_and_rows_come_in_order(job) -> None:
    told = "S = []\n\ndef squares(points):\n    S.append(len(points))\n    return [{'x': p['n'], 'size': S[-1]} for p in points]"
    made = rows(job(squares=told), list(range(100)))
    assert [row["results"]["x"] for row in made] == list(range(100)) == [row["parameters"]["n"] for row in made]
    assert [row["results"]["size"] for row in made] == [8] * 8 + [16] * 16 + [32] * 32 + [44] * 44
    assert {row["engine"] for row in made} == {"batched"}


def test_points_of_a_failing_batch_are_tried_alone(job) -> None:
    made = rows(job(), [1, 2, 3], broken=2)
    assert [row["status"] for row in made] == ["done", "failed", "done"]
    assert (made[1]["error"], "counted" in made[1]["traceback"]) == ("ValueError: one is broken", True)


def test_a_function_may_not_change_what_a_row_says(job) -> None:
    text = "def squares(points):\n    for p in points: p['n'] = 0\n    return [{'x': 1} for p in points]"
    assert rows(job(squares=text), [5])[0]["parameters"]["n"] == 5


def test_everything_runs_on_one_thread(job) -> None:
    text = "from threadpoolctl import threadpool_info\n\ndef squares(points):\n"
    text += "    return [{'x': max([p['num_threads'] for p in threadpool_info()], default=1)} for _ in points]"
    with threadpool_limits(2):  # a test run may have one thread to begin with
        assert rows(job(squares=text), [1])[0]["results"] == {"x": 1}


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ("[]", "for each of 2 points; got a list of 0"),
        ("None", "got NoneType"),
        ("[{}, {}]", "one dict of named results"),
        ("[1, 2]", "one dict of named results"),
        ("[{'x': {}}] * 2", "result x must be a number, a string or a list of them; got dict"),
    ],
)
def test_an_answer_that_is_no_list_of_results_is_refused(job, answer, says) -> None:
    with pytest.raises(UserError, match=says):
        rows(job(squares=f"def squares(points):\n    return {answer}"), [1, 2])


DECLARED = {
    "no module": ("counted.away:squares", "No module named 'counted.away'"),
    "no function": ("counted.squares:cubes", "has no attribute 'cubes'"),
    "no colon": ("counted.squares", "must say `bookkit: {batched: module:function}`, of a module inside counted"),
    "another package": ("os.path:join", "of a module inside counted; got 'os.path:join'"),
    "a list": ("[1]", "got \\[1\\]"),
}


@pytest.mark.parametrize("what", DECLARED)
def test_a_declaration_that_names_nothing_is_refused(make, what) -> None:
    make()
    declared, says = DECLARED[what]
    with pytest.raises(UserError, match=says):
        batched_function(PAGE.replace("counted.squares:squares", declared), ("counted",))


def test_a_page_without_a_declaration_has_none() -> None:
    assert batched_function(page_text("x = 1"), ("counted",)) is None
