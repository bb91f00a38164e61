"""What a sweep says to people: the summary at its end or of its folder, and the plan of a dry run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from bookkit.sweeps.folder import Sweep
    from bookkit.sweeps.runner import Plan

__all__ = ["pace", "plan_text", "setting", "summary"]

_SHOWN = 5  # failures, and points of a plan, that are written out
_LAST = 21  # rows that tell the pace: earlier ones may be of another night


def summary(sweep: Sweep) -> str:
    """What there is in a sweep's folder: counts, times, the spread of every named result, failures, files."""
    status, table = sweep.status, sweep.table
    counts = [f"{status.total} points", f"{status.done} done", f"{status.failed} failed", f"{status.missing} missing"]
    running = f"; running{pace(table['run_finished'], status.missing)}" if sweep.running else ""
    lines = [f"{sweep.page}: {', '.join(counts)}{running}"]
    done = table[table["run_status"] == "done"] if len(table) else table
    if len(done):
        given = {name for point in sweep.points for name in point.parameters}
        lines.append(_effort(done))
        lines += ["", *_spread(done, [name for name in done if not (name in given or name.startswith("run_"))])]
    failed = table[table["run_status"] == "failed"] if len(table) else table
    if len(failed):
        lines += ["", "failed:"]
        for row in failed.head(_SHOWN).to_dict("records"):
            lines.append(f"  {setting(row, sweep.grid.varying)}: {row['run_error']} (tries: {row['run_attempts']})")
        if len(failed) > _SHOWN:
            lines.append(f"  and {len(failed) - _SHOWN} more: column run_error of the table")
    return "\n".join(lines)


def pace(finished: pd.Series, missing: int) -> str:
    """Points a minute and the time for the missing ones, by the times at which the last rows were finished; or nothing."""
    import pandas as pd
    from tqdm import tqdm

    last = pd.to_datetime(finished).sort_values().tail(_LAST)
    if len(last) < 2 or last.iloc[0] == last.iloc[-1]:
        return ""
    each = (last.iloc[-1] - last.iloc[0]).total_seconds() / (len(last) - 1)
    return f", {60 / each:.3g} points a minute, about {tqdm.format_interval(round(missing * each))} left"


def setting(parameters: Mapping[str, Any], varying: Sequence[str]) -> str:
    """The parameters that tell a point from the others: ``signal_norm=30.0, seed=4``."""
    return ", ".join(f"{name}={parameters[name]!r}" for name in varying)


def plan_text(plan: Plan) -> str:
    """What `sweep` would do: how many points, how many are there already, and the first that would run."""
    shape = " x ".join(f"{len(axis)} {axis.name}" for axis in plan.grid.axes)
    lines = [
        f"{plan.page}: {len(plan.points)} points ({shape})",
        f"done already: {len(plan.done)}, failed before: {len(plan.failed)}, to run: {len(plan.todo)}",
    ]
    lines += [f"  {setting(point.parameters, plan.grid.varying)}" for point in plan.todo[:_SHOWN]]
    if len(plan.todo) > _SHOWN:
        lines.append(f"  and {len(plan.todo) - _SHOWN} more")
    return "\n".join([*lines, "nothing was run or written"])


def _effort(done: pd.DataFrame) -> str:
    seconds = done["run_seconds"]
    text = f"per point: median {seconds.median():.3g} s, longest {seconds.max():.3g} s"
    memory = done["run_memory"].dropna()  # not measured of batched points
    return f"{text}; memory at most {memory.max() / 1e6:.0f} MB" if len(memory) else text


def _spread(done: pd.DataFrame, names: Sequence[str]) -> list[str]:
    """A line per numeric result: mean, smallest, largest over the points."""
    rows = [("named result", "mean", "smallest", "largest", "points")]
    for name in names:
        values = done[name].dropna()
        if len(values) and values.map(lambda value: isinstance(value, int | float)).all():
            values = values.astype(float)
            rows.append((name, f"{values.mean():.5g}", f"{values.min():.5g}", f"{values.max():.5g}", str(len(values))))
    if len(rows) == 1:
        return []
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    return ["  ".join([row[0].ljust(widths[0]), *(row[k].rjust(widths[k]) for k in range(1, 5))]) for row in rows]
