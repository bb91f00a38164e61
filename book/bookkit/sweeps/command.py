"""The command `sweep`: options read and checked, then `run.sweep` with a bar, a summary at the end."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bookkit.pages.catalogue import UserError, find_root, resolve_page
from bookkit.pages.rerun import RunError, typed_assignments
from bookkit.parser import Parser, program
from bookkit.sweeps import open_sweep, plan, sweep
from bookkit.sweeps.folder import Sweep

EXAMPLES = """\
examples:
  {0} sweep two_steps grid.yml -o out                       on every core of this machine
  {0} sweep two_steps grid.yml -o out --dry-run             how many points, how many are there already
  {0} sweep two_steps grid.yml -o out --batched             in one process, where the page declares it
  {0} sweep two_steps grid.yml -o out --cluster tcp://127.0.0.1:8786
  {0} sweep --status out                                    also while it runs

Stop it whenever you like; the same command goes on with what is missing.
"""
SHOWN = 5  # failures, and points of a plan, that are written out


def parser() -> Parser:
    """Options of the command."""
    top = Parser(
        prog=f"{program()} sweep",
        description="Execute a page at every point of a grid, and collect one table.",
        epilog=EXAMPLES.format(program()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("page", metavar="PAGE", nargs="?", help="as in rerun")
    top.add_argument("grid", metavar="GRID", nargs="?", type=Path, help="YAML: product, zip, seeds, fixed")
    top.add_argument("-o", dest="output", metavar="FOLDER", type=Path, help="where rows and tables go; made if missing")
    of_point = {"dest": "assignments", "nargs": 2, "action": "append", "default": [], "metavar": ("NAME", "VALUE")}
    top.add_argument("-p", help="fixed everywhere", **of_point)
    top.add_jobs("points run", None, "--workers")
    top.add_argument("--cluster", metavar="WHERE", help="address of a Dask scheduler, or its .json file")
    top.add_argument("--batched", action="store_true", help="by the page's batched function, in this process")
    kinds = ("none", "failed", "all")
    top.add_argument(
        "--notebooks", choices=kinds, default="failed", help="executed notebooks to keep (default: failed)"
    )
    top.add_argument("--time-limit", metavar="SECONDS", type=int, help="for each cell of a page")
    top.add_argument("--retry-failed", action="store_true", help="run points again that failed in an earlier call")
    top.add_argument("--dry-run", action="store_true", help="say what would run; write nothing")
    top.add_argument("--status", metavar="FOLDER", type=Path, help="what there is in a folder; runs nothing")
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code: 0, or 1 where a point failed or workers were lost."""
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
    asked = {name: getattr(options, name) for name in ("page", "grid", "output", "batched", "retry_failed")}
    asked |= {"fixed": typed_assignments(resolve_page(options.page, root), options.assignments), "root": root}
    if options.dry_run:
        ready = plan(**asked)
        print(_counts(ready.asked))
        print(f"to run: {len(ready.todo)}")
        print(*(f"  {_setting(ready.asked, each)}" for each in list(ready.todo.values())[:SHOWN]), sep="\n")
        print("nothing was run or written")
        return 0
    how = {name: getattr(options, name) for name in ("cluster", "jobs", "notebooks", "time_limit")}
    try:
        found = sweep(**asked, **how, progress=True)
    except RunError as error:
        print(f"{program()}: error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt as end:
        end.args = ("interrupted; rows are safe, the same command runs the other points",)
        raise
    print(summary(found))
    print(f"\ntable: {options.output / 'results.parquet'}   array: {options.output / 'results.nc'}")
    return 1 if found.status.failed or found.status.missing else 0


def summary(sweep: Sweep) -> str:
    """What there is in a sweep's folder: counts, times, the spread of every named result, failures."""
    lines, table = [_counts(sweep)], sweep.table
    if sweep.damaged:
        lines.append(f"damaged rows, which count as missing: {', '.join(sweep.damaged)}")
    if sweep.status.done:
        seconds = table["run_seconds"]
        lines.append(f"per point: median {seconds.median():.3g} s, longest {seconds.max():.3g} s")
        own = [name for name in table if name not in sweep.grid.base and not name.startswith("run_")]
        numbers = table[own].select_dtypes("number")
        if len(numbers.columns):
            spread = numbers.astype(float).agg(["mean", "min", "max", "count"]).T
            lines += ["", spread.to_string(float_format="{:.5g}".format)]
    failed = [row for row in sweep.rows.values() if row["status"] == "failed"]
    if failed:
        lines += ["", "failed:"]
        lines += [f"  {_setting(sweep, row['parameters'])}: {row['error']}" for row in failed[:SHOWN]]
        lines += [f"  and {len(failed) - SHOWN} more: column run_error of the table"] if len(failed) > SHOWN else []
    return "\n".join(lines)


def _counts(sweep: Sweep) -> str:
    shape = " x ".join(f"{len(axis)} {axis.name}" for axis in sweep.grid.axes)
    status = sweep.status
    return f"{sweep.page}: {status.total} points ({shape}), {status.done} done, {status.failed} failed, {status.missing} missing"


def _setting(sweep: Sweep, parameters: Mapping[str, Any]) -> str:
    """The parameters that tell a point from the others: ``signal_norm=30.0, seed=4``."""
    return ", ".join(f"{name}={parameters[name]!r}" for name in sweep.grid.varying)
