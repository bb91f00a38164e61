"""`make bench`: time every hot loop against its naive form, print a table, keep dated JSON, write the tables of docs/kernels.md.

On the CPU torch uses one core; a case that uses more says so. With `--device cuda` the loops run on the GPU.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import importlib.metadata
import importlib.util
import json
import platform
import re
import sys

import torch
from torch.utils.benchmark import Timer

from attnlib.device import report, resolve
from benchmarks import kernel_gaussian_tail, kernel_heads, kernel_in_context, kernel_token_selection, machine
from benchmarks import report as tables
from benchmarks.registry import Case
from bookkit.pages.catalogue import write_atomically
from bookkit.pages.times import processor
from bookkit.parser import answered

MODULES = (machine, kernel_heads, kernel_token_selection, kernel_in_context, kernel_gaussian_tail)


def cases(device: str) -> tuple[Case, ...]:
    """All cases for "cpu" or "cuda"."""
    return tuple(case for module in MODULES for case in module.cases(device))


def ratios(median: dict[str, float]) -> dict[str, float]:
    """What is read off the medians of cases, by name."""
    return {name: value for module in MODULES for name, value in module.ratios(median).items()}


def _versions() -> dict[str, str]:
    names = ("numpy", "torch", "numba", "llvmlite", "triton")
    return {name: importlib.metadata.version(name) for name in names if importlib.util.find_spec(name) is not None}


def measure(measured: tuple[Case, ...], seconds: float, device: str) -> dict:
    """What the JSON holds: a row for each case, with times in seconds."""
    rows = []
    for case in measured:
        case.gate()
        call = case.prepare()
        call()  # warm up
        times = Timer("call()", globals={"call": call}, num_threads=1).blocked_autorange(min_run_time=seconds)
        rows.append(
            {
                "case": case.name, "what": case.what, "median_s": times.median, "iqr_s": times.iqr,
                "repeats": len(times.times), "threads": case.threads, "work": dataclasses.asdict(case.work),
            }
        )  # fmt: skip
        speed = f"{case.work.units / times.median:.4g} {case.work.unit}s/s"
        print(f"{case.name:<28}{times.median * 1e3:10.2f} ms  +- {times.iqr * 1e3:.2f}  {speed}", flush=True)
    found = ratios({row["case"]: row["median_s"] for row in rows})
    for name, value in found.items():
        print(f"{name}: {value:.2f}")
    return {
        "date": datetime.date.today().isoformat(), "machine": processor(), "device": report(device), "threads": 1,
        "versions": {"python": platform.python_version(), **_versions()},
        "cases": rows, "ratios": found,
    }  # fmt: skip


def slug(device: str) -> str:
    """A device's name as part of a file's: "nvidia-h200"."""
    return re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-")


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0, help="time spent on each case (default 2)")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where (default cpu)")
    options = parser.parse_args()
    try:
        resolve(options.device)
    except ValueError as error:
        parser.error(str(error))
    torch.set_num_threads(1)
    result = measure(cases(options.device), options.seconds, options.device)
    target = tables.RESULTS / f"kernels-{slug(result['device'])}-{result['date']}.json"
    write_atomically(target, json.dumps(result, indent=1) + "\n")
    tables.main()
    print(f"kept in {target}")
    return 0


if __name__ == "__main__":
    sys.exit(answered("benchmarks", main))
