"""Sweeps: what a point costs beyond its kernel and its page, two hundred points on two cores, ten thousand rows, batched points.

The page of the first cases works for one second of processor time. Alone means: a kernel started, its cells run one by one, the
kernel ended, with nothing around it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from jupyter_client.manager import start_new_kernel

from benchmarks.registry import Case, Wing
from bookkit.pages.catalogue import find_root, resolve_page
from bookkit.pages.execution import read_source
from bookkit.pages.parameters import page_parameters
from bookkit.sweeps import identity, open_sweep, sweep
from bookkit.sweeps.batched import batched_function
from bookkit.sweeps.folder import SweepFolder
from bookkit.sweeps.grid import make_grid
from bookkit.sweeps.identity import Job, Outcome, Point
from bookkit.sweeps.point import run_point

__all__ = ["WING"]

POINTS, WORKERS, ROWS, BATCH = 200, 2, 10_000, 64
PAGES = {"two steps": "single_head/02_two_steps", "dynamics": "token_selection/02_dynamics"}
ONE_SECOND = """---
jupytext:
  text_representation:
    extension: .md
    format_name: myst
kernelspec:
  display_name: Python 3
  language: python
  name: python3
---

# One second of work

```{code-cell} ipython3
:tags: [parameters]

seed: int = 0  # tells points apart [>= 0]
```

```{code-cell} ipython3
import time

from bookkit.results import record

end = time.process_time() + 1
while time.process_time() < end:
    pass
```

```{code-cell} ipython3
record(seed_again=seed)
```
"""


def _job(source: str, page: str) -> Job:
    return Job(page, source, identity.page_hash(source), identity.package_hash())


def _point(job: Job, parameters: Mapping) -> Point:
    return Point(identity.point_id(job.page_hash, job.package_hash, parameters), dict(parameters))


def _alone() -> Callable[[], object]:
    cells = [cell.source for cell in read_source(ONE_SECOND).cells if cell.cell_type == "code"]

    def call() -> None:
        manager, client = start_new_kernel(kernel_name="python3")
        for source in cells:
            reply = client.execute_interactive(source, output_hook=lambda message: None)
            assert reply["content"]["status"] == "ok"
        client.stop_channels()
        manager.shutdown_kernel(now=True)

    return call


def _one_point() -> Callable[[], object]:
    job = _job(ONE_SECOND, "bench/01_second")
    call = partial(run_point, job, _point(job, {"seed": 3}), "local")
    assert call().results == {"seed_again": 3}
    return call


def _book(folder: Path) -> Path:
    page = folder / "notebooks" / "bench" / "01_second.md"
    page.parent.mkdir(parents=True)
    page.write_text(ONE_SECOND, encoding="utf-8")
    (folder / "_toc.yml").write_text("format: jb-book\nroot: notebooks/bench/01_second\n", encoding="utf-8")
    return folder


def _many_points() -> Callable[[], object]:
    def call() -> None:
        with tempfile.TemporaryDirectory() as name:
            root = _book(Path(name))
            found = sweep("second", {"seeds": POINTS}, root / "out", workers=WORKERS, root=root)
            assert sorted(found.table["seed_again"]) == list(range(POINTS))

    return call


def _folder_of_rows(folder: Path) -> None:
    """A finished sweep of `ROWS` points: 100 values x 100 seeds."""
    root = find_root()
    page = resolve_page(PAGES["two steps"], root)
    grid = make_grid({"product": {"signal_norm": {"linear": [1, 100], "count": 100}}, "seeds": ROWS // 100}, page)
    job = _job(page.source.read_text(encoding="utf-8"), page.name)
    points = [_point(job, parameters) for parameters in grid.parameters]
    with SweepFolder.begin(folder, job, grid, points) as kept:
        for k, point in enumerate(points):
            results = {"train_accuracy": 1.0, "log10_clean_error_mean": -k / 100, "interpolating_fraction": 1.0}
            outcome = Outcome(
                point, "done", "local", 2.0, "2026-01-01T00:00:00+00:00", identity.versions(), results, memory=3 * 10**8
            )
            kept.write(outcome, 1)


def _open_rows() -> Callable[[], object]:
    keep = tempfile.TemporaryDirectory()
    folder = Path(keep.name) / "out"
    _folder_of_rows(folder)

    def call() -> object:
        table = open_sweep(folder).table
        assert len(table) == ROWS
        return keep  # lives as long as the call

    return call


def _setting(page: str, seed: int) -> dict:
    found = {parameter.name: parameter.default for parameter in page_parameters(resolve_page(page, find_root()))}
    return {**found, "seed": seed}


def _page_point(page: str) -> Callable[[], object]:
    source = resolve_page(page, find_root()).source.read_text(encoding="utf-8")
    job = _job(source, page)
    return partial(run_point, job, _point(job, _setting(page, 0)), "local")


def _page_batched(page: str) -> Callable[[], object]:
    source = resolve_page(page, find_root()).source.read_text(encoding="utf-8")
    job = _job(source, page)
    function = batched_function(source)
    first = run_point(job, _point(job, _setting(page, 0)), "local")
    (again,) = function([_setting(page, 0)])
    for name, value in first.results.items():  # the gate: what the page records
        assert value == again[name] or abs(value - again[name]) <= 1e-12 * abs(value), name
    return partial(function, [_setting(page, seed) for seed in range(BATCH)])


CASES = (
    Case("page-alone", "kernel started, a page of one second, kernel ended", _alone),
    Case("point", "the same page as a point of a sweep, in a warm worker", _one_point),
    Case(
        "points-200",
        "200 such points on two local workers: start, rows, table and array included",
        _many_points,
        repeats=1,
        memory=lambda: None,
    ),
    Case("open-10000", "a folder of 10 000 rows read into a table", _open_rows, limit=2.0),
    *(
        case
        for word, page in PAGES.items()
        for case in (
            Case(f"{word} kernel", f"{page} at its defaults, a kernel for one point", partial(_page_point, page)),
            Case(f"{word} batched", f"{BATCH} seeds of {page}, batched", partial(_page_batched, page)),
        )
    ),
)


def _ratios(median: Mapping[str, float]) -> dict[str, float]:
    found = {
        "a point / kernel and page alone": median["point"] / median["page-alone"],
        "200 points / ideal on two cores": median["points-200"] / (POINTS / WORKERS * median["page-alone"]),
        "seconds to open 10000 rows": median["open-10000"],
    }
    for word in PAGES:
        found[f"{word}: kernel per point / batched"] = median[f"{word} kernel"] / (median[f"{word} batched"] / BATCH)
    return found


WING = Wing("sweeps", CASES, _ratios)
