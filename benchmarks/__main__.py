"""`make bench`: time every case on one core, measure peak memory in a process of its own, print a table, keep dated JSON."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
from torch.utils.benchmark import Timer

from attnlib.device import report
from benchmarks.cases import CASES, Case


def _memory(name: str) -> float:
    """Peak resident memory of one call above what the imports need, in MB, measured in a fresh process."""
    out = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--memory-of", name], capture_output=True, text=True, check=True
    )
    return float(out.stdout)


def _print_memory(case: Case) -> None:
    from benchmarks.cases import _paper_like, dense_reference, summarise

    def peak() -> float:
        # VmHWM belongs to this process alone; ru_maxrss would keep the size of the process that started it.
        status = Path("/proc/self/status")
        if status.exists():
            return next(
                float(line.split()[1]) / 1024 for line in status.read_text().splitlines() if line.startswith("VmHWM")
            )
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform != "darwin" else 1024**2)

    law, step = _paper_like(40_000)
    # Warm the libraries' own pools with a tiny call, so that what is counted belongs to the case.
    summarise(type(law)(5, 50, 1.0), 0.1, draws=1)
    before = peak()
    if case.name.startswith("draw-d"):
        law, step = _paper_like(int(float(case.name.removeprefix("draw-d"))))
        summarise(law, step, draws=1)
    elif case.name == "dense-d4e4":
        dense_reference.study(np.random.default_rng(0), law.n, law.d, law.signal_norm, law.label_noise, step)
    else:
        case.prepare()()  # the gates before it are far smaller than what they guard
    print(peak() - before)


def _machine() -> str:
    """The processor's name, as far as the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0, help="time spent on each case (default 2)")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results", help="folder for the JSON")
    parser.add_argument("--memory-of", choices=[case.name for case in CASES], help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.memory_of:
        _print_memory(next(case for case in CASES if case.name == options.memory_of))
        return 0
    rows = []
    for case in CASES:
        call = case.prepare()
        call()  # warm up
        times = Timer("call()", globals={"call": call}, num_threads=1).blocked_autorange(min_run_time=options.seconds)
        row = {
            "case": case.name, "what": case.what, "median_s": times.median, "iqr_s": times.iqr, "repeats": len(times.times),
            "limit_s": case.limit, "peak_memory_mb": round(_memory(case.name), 1),
        }  # fmt: skip
        rows.append(row)
        within = (
            ""
            if case.limit is None
            else ("  within" if times.median <= case.limit else "  OVER") + f" {case.limit:g} s"
        )
        print(
            f"{case.name:<12}{times.median * 1e3:10.2f} ms  +- {times.iqr * 1e3:.2f}  {row['peak_memory_mb']:7.1f} MB{within}",
            flush=True,
        )
    median = {row["case"]: row["median_s"] for row in rows}
    ratios = {
        "dense / reduced, one draw at d = 40 000": median["dense-d4e4"] / median["draw-d4e4"],
        "dense / reduced, per draw in a batch of 1000": median["dense-d4e4"] / (median["draws-1000"] / 1000),
        "dense / diagram, per cell and draw (3 cells, extrapolated)": (median["phase-dense-3"] / 3)
        / (median["phase-40x40x10"] / 16_000),
        "dense / Gram space, per step (10 dense steps, extrapolated)": (median["dense-steps"] / 10)
        / (median["long-64x3000"] / 64 / 3000),
        "d = 1e9 / d = 1e3": median["draw-d1e9"] / median["draw-d1e3"],
    }
    for name, value in ratios.items():
        print(f"{name}: {value:.2f}")
    today = datetime.date.today().isoformat()
    result = {
        "date": today, "machine": _machine(), "device": report(), "threads": 1,
        "versions": {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__},
        "cases": rows, "ratios": ratios,
    }  # fmt: skip
    options.output.mkdir(parents=True, exist_ok=True)
    target = options.output / f"single_head-cpu-{today}.json"
    partial = target.with_suffix(".partial")
    partial.write_text(json.dumps(result, indent=1) + "\n")
    os.replace(partial, target)
    print(f"kept in {target.relative_to(Path.cwd()) if target.is_relative_to(Path.cwd()) else target.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
