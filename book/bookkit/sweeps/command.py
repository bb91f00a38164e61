"""The command `sweep`: options read and checked, then `runner.sweep`, a bar while it runs, a summary at the end."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from bookkit.pages.catalogue import UserError, find_root, resolve_page
from bookkit.pages.rerun import RunError, typed_assignments
from bookkit.parser import Parser, program
from bookkit.sweeps import open_sweep, plan, sweep
from bookkit.sweeps.bar import Bar
from bookkit.sweeps.report import plan_text, summary

EXAMPLES = """\
examples:
  {0} sweep two_steps grid.yml -o out                       on every core of this machine
  {0} sweep two_steps grid.yml -o out --dry-run             how many points, how many are there already
  {0} sweep two_steps grid.yml -o out --batched             in one process, where the page declares it
  {0} sweep two_steps grid.yml -o out --cluster tcp://127.0.0.1:8786
  {0} sweep --status out                                    also while it runs

Stop it whenever you like; the same command goes on with what is missing.
"""


def parser() -> argparse.ArgumentParser:
    """Options of the command."""
    top = Parser(
        prog=f"{program()} sweep",
        description="Execute a page at every point of a grid, and collect one table.",
        epilog=EXAMPLES.format(program()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("page", metavar="PAGE", nargs="?", help="as in rerun")
    top.add_argument("grid", metavar="GRID", nargs="?", type=Path, help="YAML: product, zip, points, seeds, fixed")
    top.add_argument("-o", dest="output", metavar="FOLDER", type=Path, help="where rows and tables go; made if missing")
    top.add_argument(
        "-p",
        dest="assignments",
        nargs=2,
        action="append",
        default=[],
        metavar=("NAME", "VALUE"),
        help="fixed everywhere",
    )
    top.add_argument("--workers", metavar="N", type=int, help="processes (default: one per core), or SLURM jobs")
    top.add_argument("--cluster", metavar="WHERE", help="address of a Dask scheduler, its .json file, or slurm")
    top.add_argument("--batched", action="store_true", help="by the page's batched function, in this process")
    top.add_argument(
        "--notebooks",
        choices=("none", "failed", "all"),
        default="failed",
        help="executed notebooks to keep (default: failed)",
    )
    top.add_argument("--time-limit", metavar="TIME", type=_time, help="for a point: 90s, 10m, 2h")
    top.add_argument("--memory-limit", metavar="SIZE", type=_bytes, help="for a point: 500MB, 4GB")
    top.add_argument("--retry-failed", action="store_true", help="run points again that failed in an earlier call")
    top.add_argument("--dry-run", action="store_true", help="say what would run; write nothing")
    top.add_argument("--status", metavar="FOLDER", type=Path, help="what there is in a folder; runs nothing")
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code: 0, or 1 where a point failed or the cluster was lost."""
    options = parser().parse_intermixed_args(arguments)
    if options.status is not None:
        if options.page is not None:
            raise UserError(f"--status reads a folder and runs nothing: give it alone; got page {options.page!r} too")
        print(summary(open_sweep(options.status)))
        return 0
    for name, given in (("PAGE", options.page), ("GRID", options.grid), ("-o FOLDER", options.output)):
        if given is None:
            parser().error(f"{name} is missing: {program()} sweep PAGE GRID -o FOLDER")
    root = find_root()
    fixed = typed_assignments(resolve_page(options.page, root), options.assignments)
    request = {"page": options.page, "grid": options.grid, "output": options.output, "fixed": fixed, "root": root}
    if options.dry_run:
        print(plan_text(plan(**request, retry_failed=options.retry_failed)))
        return 0
    bar = Bar()
    try:
        with bar:  # closed before anything else is said
            found = sweep(
                **request,
                cluster=options.cluster,
                workers=options.workers,
                batched=options.batched,
                notebooks=options.notebooks,
                time_limit=options.time_limit,
                memory_limit=options.memory_limit,
                retry_failed=options.retry_failed,
                progress=bar,
            )
    except RunError as error:
        print(f"{program()}: error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"{program()}: error: interrupted; {bar.left}", file=sys.stderr)
        return 130
    print(summary(found))
    print(f"\ntable: {options.output / 'results.parquet'}   array: {options.output / 'results.nc'}")
    return 1 if found.status.failed or found.status.missing else 0


def _quantity(what: str, example: str, read: Callable[[str], float]) -> Callable[[str], float]:
    """An argparse type that leaves the reading of units to `read`, and says what was expected."""

    def convert(text: str) -> float:
        try:
            value = read(text)
        except (ValueError, KeyError, TypeError):
            value = 0
        if not value > 0 or value == float("inf"):
            raise argparse.ArgumentTypeError(f"expected {what} such as {example}; got {text!r}")
        return value

    return convert


def _read_time(text: str) -> float:
    from dask.utils import parse_timedelta

    return float(parse_timedelta(text))


def _read_bytes(text: str) -> int:
    from dask.utils import parse_bytes

    return int(parse_bytes(text))


_time = _quantity("a time", "90s, 10m or 2h", _read_time)
_bytes = _quantity("a size", "500MB or 4GB", _read_bytes)
