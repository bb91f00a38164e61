"""`python -m attnlib sweep`: bad requests are one line and start nothing; a good one ends in a table; stops can be gone on from."""

import json
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pandas as pd
import papermill
import pytest
import xarray as xr
import yaml

from bookkit.cli import main
from bookkit.code import code_of
from bookkit.pages.catalogue import UserError, resolve_page
from bookkit.sweeps import command, open_sweep
from bookkit.sweeps.folder import SweepFolder
from bookkit.sweeps.grid import make_grid
from bookkit.sweeps.identity import Job, Point, page_hash, point_id
from tests.refusals import refused, snapshot
from tests.sweeps.sample_rows import done, failed
from tests.tiny_book import page_text
from tests.tiny_page import PAGE, make_book

ROOT = Path(__file__).resolve().parents[2]
GRID = "product:\n  label_noise: [0.1, 0.4]\n  n: [3, 5]\n"


@pytest.fixture
def book(tmp_path: Path, monkeypatch) -> Path:
    """A book of one page with a good grid, and we stand in it."""
    make_book(tmp_path)
    (tmp_path / "grid.yml").write_text(GRID)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def started(monkeypatch) -> list:
    """What asked for a kernel or for workers: both are replaced, so that none can start."""
    import distributed

    calls: list = []

    def refuse(*arguments, **options):
        calls.append((arguments, options))
        raise KeyboardInterrupt

    monkeypatch.setattr(papermill, "execute_notebook", refuse)
    monkeypatch.setattr(distributed, "LocalCluster", refuse)
    return calls


REQUESTS = [
    ("nothing", [], ["PAGE is missing"]),
    ("no grid", ["tiny"], ["GRID is missing"]),
    ("no output", ["tiny", "grid.yml"], ["-o FOLDER is missing"]),
    ("no such page", ["tinny", "grid.yml", "-o", "out"], ["no page 'tinny'; did you mean 'tiny'?"]),
    ("no such grid", ["tiny", "grod.yml", "-o", "out"], ["grod.yml", "cannot be read"]),
    (
        "unknown parameter",
        ["tiny", "grid.yml", "-o", "out", "-p", "modus", "dense"],
        ["unknown parameter 'modus'; did you mean 'mode'?"],
    ),
    ("wrong type", ["tiny", "grid.yml", "-o", "out", "-p", "step_size", "big"], ["step_size must be a number > 0"]),
    ("fixed and varied", ["tiny", "grid.yml", "-o", "out", "-p", "n", "4"], ["n"]),
    ("no folder around it", ["tiny", "grid.yml", "-o", "far/away/out"], ["far/away"]),
    ("a file in its place", ["tiny", "grid.yml", "-o", "grid.yml"], ["grid.yml"]),
    ("a folder of something else", ["tiny", "grid.yml", "-o", "notebooks"], ["notebooks"]),
    ("unknown option", ["tiny", "grid.yml", "-o", "out", "--fast"], ["--fast"]),
    ("no workers", ["tiny", "grid.yml", "-o", "out", "--workers", "0"], ["workers", "0"]),
    ("half a worker", ["tiny", "grid.yml", "-o", "out", "--workers", "1.5"], ["--workers", "1.5"]),
    ("no time", ["tiny", "grid.yml", "-o", "out", "--time-limit", "0"], ["90s, 10m or 2h", "'0'"]),
    ("no unit of time", ["tiny", "grid.yml", "-o", "out", "--time-limit", "10 lightyears"], ["90s, 10m or 2h"]),
    ("no size", ["tiny", "grid.yml", "-o", "out", "--memory-limit", "much"], ["500MB or 4GB"]),
    ("no kind of notebooks", ["tiny", "grid.yml", "-o", "out", "--notebooks", "some"], ["none", "failed", "all"]),
    ("not batched", ["tiny", "grid.yml", "-o", "out", "--batched"], ["wing/01_tiny", "batched"]),
    ("no scheduler file", ["tiny", "grid.yml", "-o", "out", "--cluster", "away.json"], ["away.json"]),
    ("no address", ["tiny", "grid.yml", "-o", "out", "--cluster", "somewhere"], ["somewhere"]),
    ("nobody there", ["tiny", "grid.yml", "-o", "out", "--cluster", "tcp://127.0.0.1:9"], ["tcp://127.0.0.1:9"]),
    ("status of nothing", ["--status", "out"], ["out"]),
    ("status of another folder", ["--status", "notebooks"], ["notebooks"]),
    ("status and a page", ["tiny", "--status", "out"], ["--status", "alone"]),
]


@pytest.mark.parametrize(("command", "parts"), [case[1:] for case in REQUESTS], ids=[case[0] for case in REQUESTS])
def test_a_bad_request_is_one_line_and_starts_nothing(book, started, capsys, command, parts) -> None:
    refused(["sweep", *command], parts, book, started, capsys)


def test_a_dry_run_too_refuses_and_writes_nothing(book, started, capsys) -> None:
    (book / "grid.yml").write_text("product: {n: [0]}\n")
    refused(
        ["sweep", "tiny", "grid.yml", "-o", "out", "--dry-run"],
        ["parameter n must be an integer >= 1; got 0"],
        book,
        started,
        capsys,
    )


def test_a_page_without_named_results_is_refused(book, started, capsys) -> None:
    silent = PAGE.replace("record(flipped=n * label_noise, samples=n)\n", "").replace("import record", "import read")
    (book / "notebooks" / "wing" / "02_silent.md").write_text(silent)
    refused(
        ["sweep", "silent", "grid.yml", "-o", "out"], ["wing/02_silent records no named results"], book, started, capsys
    )


def test_the_watch_sees_a_good_request(book, started, capsys) -> None:
    """Without this, "starts nothing" above could pass because the watch is broken."""
    assert main(["sweep", "tiny", "grid.yml", "-o", "out"]) == 130
    assert len(started) == 1
    assert "interrupted" in capsys.readouterr().err


def test_a_dry_run_counts_and_writes_nothing(book, started, capsys) -> None:
    before = snapshot(book)
    assert main(["sweep", "tiny", "-o", "out", "--dry-run", "grid.yml"]) == 0  # in any order
    out = capsys.readouterr().out
    assert "wing/01_tiny: 4 points (2 label_noise x 2 n)" in out
    assert "done already: 0, failed before: 0, to run: 4" in out
    assert "label_noise=0.1, n=3" in out
    assert started == []
    assert snapshot(book) == before


def test_every_option_reaches_the_sweep(book, monkeypatch, capsys) -> None:
    asked: dict = {}

    def told(**options):
        asked.update(options)
        raise UserError("enough")

    monkeypatch.setattr(command, "sweep", told)
    line = "tiny grid.yml -o out -p mode dense -p step_size 1e-1 --workers 3 --cluster slurm --batched --notebooks all"
    assert main(["sweep", *line.split(), "--time-limit", "2m", "--memory-limit", "1.5GB", "--retry-failed"]) == 2
    assert asked.pop("progress").left == "nothing was run"
    assert asked.pop("root") == book
    assert asked == {
        "page": "tiny", "grid": Path("grid.yml"), "output": Path("out"), "fixed": {"mode": "dense", "step_size": 0.1},
        "workers": 3, "cluster": "slurm", "batched": True, "notebooks": "all", "time_limit": 120.0,
        "memory_limit": 1_500_000_000, "retry_failed": True,
    }  # fmt: skip
    assert capsys.readouterr().err == "bookkit: error: enough\n"


def test_a_dry_run_knows_what_is_there(book, started, capsys) -> None:
    """Three of four points have rows, one of them a failure."""
    page = resolve_page("tiny", book)
    code = code_of(page.source.parents[2])
    job = Job(page.name, PAGE, page_hash(PAGE), code.hash(), code.names)
    grid = make_grid(yaml.safe_load(GRID), page)
    points = [Point(point_id(job.page_hash, job.package_hash, given), given) for given in grid.parameters]
    with SweepFolder.begin(book / "out", job, grid, points) as folder:
        for point in points[:2]:
            folder.write(done(point, {"samples": 1}), 1)
        folder.write(failed(points[2]), 2)
    assert main(["sweep", "tiny", "grid.yml", "-o", "out", "--dry-run"]) == 0
    assert "done already: 2, failed before: 1, to run: 1\n  label_noise=0.4, n=5\n" in capsys.readouterr().out
    assert main(["sweep", "tiny", "grid.yml", "-o", "out", "--dry-run", "--retry-failed"]) == 0
    assert "done already: 2, failed before: 0, to run: 2\n" in capsys.readouterr().out


def run(arguments: list[str], folder: Path) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "attnlib", "sweep", *arguments],
        cwd=folder, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


FRAIL = page_text("", title="Frail").replace(
    "```{code-cell} ipython3\n\n```",
    "```{code-cell} ipython3\n:tags: [parameters]\n\nn: int = 1  # samples [>= 1]\nseed: int = 0  # seed [>= 0]\n```\n\n"
    "```{code-cell} ipython3\nfrom bookkit.results import record\n\nassert n != 2, 'two is too few'\n"
    "record(half=n / 2, both=n + seed)\n```",
)


def test_from_a_grid_to_a_table_with_one_point_that_fails(book) -> None:
    """As a user: a sweep with a failing point, its status, its table and array, and the same command again."""
    (book / "notebooks" / "wing" / "02_frail.md").write_text(FRAIL)
    (book / "frail.yml").write_text("product: {n: [1, 2, 7]}\nseeds: {first: 3, count: 2}\n")
    done = run(["frail", "frail.yml", "-o", "out", "--workers", "2"], book)
    assert done.returncode == 1, done.stderr
    assert "wing/02_frail: 6 points, 4 done, 2 failed, 0 missing" in done.stdout
    assert "n=2, seed=3: code cell 2 failed with AssertionError: two is too few" in done.stdout
    assert "(tries: 2)" in done.stdout
    assert "6/6" in done.stderr
    assert "Traceback" not in done.stderr

    found = open_sweep(book / "out")
    table = found.table
    assert table["n"].tolist() == [1, 1, 2, 2, 7, 7]
    assert table["both"].dropna().tolist() == [4, 5, 10, 11]  # n + seed
    assert table["half"].dropna().tolist() == [0.5, 0.5, 3.5, 3.5]
    assert table["run_traceback"].str.contains("AssertionError").sum() == 2
    assert pd.read_parquet(book / "out" / "results.parquet")["both"].dropna().tolist() == [4, 5, 10, 11]
    with xr.open_dataset(book / "out" / "results.nc", engine="h5netcdf") as array:
        assert array["half"].sel(n=7, seed=4).item() == 3.5
        assert array["half"].sel(n=2).isnull().all()
        assert dict(array.sizes) == {"n": 3, "seed": 2}
    kept = sorted((book / "out" / "notebooks").glob("*.ipynb"))
    assert len(kept) == 2  # those of the failed points
    errors = [
        o for c in nbformat.read(kept[0], as_version=4).cells for o in c.get("outputs", []) if o.output_type == "error"
    ]
    assert errors[0].ename == "AssertionError"

    status = run(["--status", "out"], book)
    assert status.returncode == 0
    assert status.stdout.splitlines()[0] == "wing/02_frail: 6 points, 4 done, 2 failed, 0 missing"

    rows = {path.name: path.stat().st_mtime_ns for path in (book / "out" / "rows").iterdir()}
    again = run(["frail", "frail.yml", "-o", "out"], book)
    assert again.returncode == 1  # two failures are still there
    assert {path.name: path.stat().st_mtime_ns for path in (book / "out" / "rows").iterdir()} == rows  # nothing ran
    assert json.loads(next((book / "out" / "rows").iterdir()).read_text())["id"] in {name[:-5] for name in rows}


def test_help_names_every_option(capsys) -> None:
    with pytest.raises(SystemExit) as left:
        main(["sweep", "--help"])
    assert left.value.code == 0
    out = capsys.readouterr().out
    for option in ("-o", "-p", "--workers", "--cluster", "--batched", "--notebooks", "--time-limit", "--memory-limit"):
        assert option in out
    for option in ("--retry-failed", "--dry-run", "--status"):
        assert option in out
