"""`make bench`: time every case, measure peak memory in a process of its own, print a table, keep dated JSON.

On the CPU torch uses one core; a case that uses more says so. With `--device cuda` the hot loops run on the GPU.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import subprocess
import sys
import timeit
from pathlib import Path

import torch
from torch.utils.benchmark import Measurement, TaskSpec, Timer

from attnlib.device import report, resolve
from benchmarks import certificates, kernels, single_head, token_selection
from benchmarks.registry import Case, Part
from bookkit.parser import answered

NAMES = ("single_head", "token_selection", "kernels", "certificates")


def _parts(device: str) -> dict[str, Part]:
    on_gpu = {"kernels": kernels.part(device)}
    if device == "cuda":
        return on_gpu
    return {part.name: part for part in (single_head.PART, token_selection.PART, certificates.PART)} | on_gpu


def _memory(part: Part, case: Case) -> float:
    """Peak resident memory of one call above what the imports need, in MB, measured in a fresh process; on the CPU."""
    command = [sys.executable, "-m", "benchmarks", "--part", part.name, "--memory-of", case.name]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def _print_memory(part: Part, case: Case) -> None:
    def peak() -> float:
        # VmHWM belongs to this process alone; ru_maxrss would keep the size of the process that started it.
        status = Path("/proc/self/status")
        if status.exists():
            return next(
                float(line.split()[1]) / 1024
                for line in status.read_text(encoding="utf-8").splitlines()
                if line.startswith("VmHWM")
            )
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform != "darwin" else 1024**2)

    part.warm()  # so that what is counted belongs to the case
    before = peak()
    case.prepare()()  # without the gate, which may need more than what it guards
    print(peak() - before)


def _machine() -> str:
    """The processor's name, as far as the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _versions() -> dict[str, str]:
    names = ("numpy", "torch", "numba", "llvmlite", "triton")
    return {name: importlib.metadata.version(name) for name in names if importlib.util.find_spec(name) is not None}


def row_of(case: Case, median: float, spread: float, repeats: int) -> dict:
    """A case's row of the JSON: times in seconds."""
    return {
        "case": case.name, "what": case.what, "median_s": median, "iqr_s": spread, "repeats": repeats,
        "limit_s": case.limit, "threads": case.threads, "work": case.work and dataclasses.asdict(case.work),
    }  # fmt: skip


def _measure(part: Part, seconds: float, device: str) -> dict:
    rows = []
    for case in part.cases:
        case.gate()
        call = case.prepare()
        if case.repeats is None:
            call()  # warm up
            times = Timer("call()", globals={"call": call}, num_threads=1).blocked_autorange(min_run_time=seconds)
        else:
            once = timeit.repeat(call, number=1, repeat=case.repeats)  # torch's Timer warms up whatever it is told
            times = Measurement(1, once, TaskSpec("call()", ""))
        row = row_of(case, times.median, times.iqr, len(times.times))
        row["peak_memory_mb"] = round(_memory(part, case), 1) if device == "cpu" else None
        rows.append(row)
        verdict = ""
        if case.limit is not None:
            verdict = ("  within" if times.median <= case.limit else "  OVER") + f" {case.limit:g} s"
        if case.work is not None:
            verdict += f"  {case.work.units / times.median:.4g} {case.work.unit}s/s"
        memory = "" if row["peak_memory_mb"] is None else f"  {row['peak_memory_mb']:7.1f} MB"
        print(f"{case.name:<28}{times.median * 1e3:10.2f} ms  +- {times.iqr * 1e3:.2f}{memory}{verdict}", flush=True)
    ratios = part.ratios({row["case"]: row["median_s"] for row in rows})
    for name, value in ratios.items():
        print(f"{name}: {value:.2f}")
    return {
        "date": datetime.date.today().isoformat(), "machine": _machine(), "device": report(device), "threads": 1,
        "versions": {"python": platform.python_version(), **_versions()},
        "cases": rows, "ratios": ratios,
    }  # fmt: skip


def _slug(device: str) -> str:
    """A device's name as part of a file's: "nvidia-h200"."""
    return re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-")


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0, help="time spent on each case (default 2)")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results", help="folder for the JSON")
    parser.add_argument("--part", choices=NAMES, help="only this part (default: all)")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where (default cpu)")
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not importlib.util.find_spec("resource"):
        parser.error("memory is measured by Python's module resource, which Windows lacks: use WSL")
    try:
        resolve(options.device)
    except ValueError as error:
        parser.error(str(error))
    torch.set_num_threads(1)
    parts = _parts(options.device)
    if options.part is not None and options.part not in parts:
        parser.error(f"--part {options.part} has no cases for --device {options.device}")
    if options.memory_of:
        part = parts[options.part]
        _print_memory(part, next(case for case in part.cases if case.name == options.memory_of))
        return 0
    options.output.mkdir(parents=True, exist_ok=True)
    for part in parts.values() if options.part is None else (parts[options.part],):
        print(f"{part.name}:")
        result = _measure(part, options.seconds, options.device)
        target = options.output / f"{part.name}-{_slug(result['device'])}-{result['date']}.json"
        partial = target.with_suffix(".partial")
        partial.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8", newline="\n")
        os.replace(partial, target)
        print(f"kept in {target.relative_to(Path.cwd()) if target.is_relative_to(Path.cwd()) else target.name}")
    return 0


if __name__ == "__main__":
    sys.exit(answered("benchmarks", main))
