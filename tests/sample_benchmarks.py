"""A made-up result of `make bench`, for tests of what shows it: no figure in here was measured."""

from __future__ import annotations

import json
from pathlib import Path

ROOFS = {"float32": 240e9, "float64": 120e9, "L2": 190e9, "L3": 30e9, "memory": 17e9}


def _case(name: str, seconds: float = 0.5, threads: int = 1, *, work: dict) -> dict:
    return {
        "case": name, "what": f"the made-up case {name}", "median_s": seconds, "iqr_s": 0.02 * seconds, "repeats": 5,
        "threads": threads, "work": work,
    }  # fmt: skip


def _work(kernel: str, rate: float, unit: str, operations: float, bytes_: float, level: str, dtype: str) -> dict:
    return {
        "units": 0.5 * rate, "unit": unit, "operations": operations, "bytes": bytes_, "level": level, "dtype": dtype,
        "kernel": kernel,
    }  # fmt: skip


def sample() -> dict:
    """The content of one file."""
    cases = []
    for threads, suffix in ((1, ""), (2, "-2threads")):
        for name in ("float32", "float64"):
            work = _work("", threads * ROOFS[name], "operation", 1.0, 0.0, "", name)
            cases.append(_case(f"peak-{name}{suffix}", threads=threads, work=work))
        for name in ("L2", "L3", "memory"):
            work = _work("", threads * ROOFS[name], "byte", 0.0, 1.0, name, "float32")
            cases.append(_case(f"read-{name}{suffix}", threads=threads, work=work))
    for kernel, n, crossed, each, rates in (
        ("single_head", 200, 160e3, 160e3, (600e3, 310e3, 31e3, 28e3)),
        ("token_selection", 160, 307e3, 1.3e5, (330e3, 170e3, 22e3, 14e3)),
    ):
        for i, (dtype, factor) in enumerate((("float32", 1), ("float64", 2))):
            work = _work(kernel, rates[i], "run-step", each, factor * crossed, "L2", dtype)
            cases.append(_case(f"{kernel}-{dtype}", work=work))
            naive = _work(kernel, rates[2 + i], "run-step", each, factor * crossed, "memory", dtype)
            cases.append(_case(f"naive-{kernel}-{dtype}", work=naive))
        work = _work(kernel, 1.9 * rates[0], "run-step", each, crossed, "L2", "float32")
        cases.append(_case(f"{kernel}-float32-2threads", threads=2, work=work))
        assert n
    for heads, rate, naive in ((1, 90e3, 860), (2, 73e3, 570), (4, 53e3, 360), (8, 35e3, 220)):
        operations = 900e3 + 450e3 * heads
        cases.append(
            _case(f"in-context-h{heads}", work=_work("in_context", rate, "model-step", operations, 0, "", "float32"))
        )
        cases.append(
            _case(f"naive-h{heads}", work=_work("in_context", naive, "model-step", operations, 0, "", "float32"))
        )
    cases.append(_case("gaussian-tail", work=_work("gaussian_tail", 11e3, "error", 8192 * 80, 0, "", "float64")))
    cases.append(_case("naive-gaussian-tail", work=_work("gaussian_tail", 900, "error", 8192 * 80, 0, "", "float64")))
    return {
        "date": "2026-02-03", "machine": "A made-up processor", "device": "cpu", "threads": 1,
        "versions": {"python": "3.11.0", "torch": "2.13.0"}, "cases": cases,
        "ratios": {"naive / compiled, one step, H = 2": 128.07},
    }  # fmt: skip


def write_sample(folder: Path, name: str = "kernels-cpu-2026-02-03.json", content: dict | None = None) -> Path:
    """Write a file as `make bench` names it, and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(json.dumps(sample() if content is None else content), encoding="utf-8")
    return path
