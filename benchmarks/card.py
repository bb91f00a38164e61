"""`python -m benchmarks --device cuda --all`: everything that a machine with a card can prove and measure, within ten minutes.

Steps are processes of their own, each with a budget of seconds; one that runs over is stopped. After every step what is known is kept
in `_build/card/`, so that an interrupted run of the same commit goes on where it was. When no step has failed, the timings and what the
steps found are written to benchmarks/results, where the chapter on kernels draws them; otherwise nothing is drawn.

With `--dry-run`, without a card: all that can be done up to the first launch, with figures that are made up, drawn and thrown away.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

from benchmarks.steps import ROOT, Failed, Step, last_words, run_steps
from bookkit.files import written_aside

__all__ = ["PAGES", "TESTS", "card_steps", "dry_steps", "run_all"]

TESTS = (
    "tests/kernels/test_gaussian_tail_gpu.py",
    "tests/kernels/test_heads.py::test_ends_of_the_numbers",
    "tests/kernels/test_heads_gpu.py",
    "tests/kernels/test_in_context_gpu.py",
    "tests/kernels/test_token_selection_gpu.py",
    "tests/test_device.py",
)
# One page for every loop, and the quickest of Part I. Pages run on the CPU with a card present too: this is what is shown.
PAGES = (
    "notebooks/single_head/01_signal_and_noise.ipynb",
    "notebooks/single_head/02_two_steps.ipynb",
    "notebooks/single_head/06_beyond_two_steps.ipynb",
    "notebooks/token_selection/02_dynamics.ipynb",
    "notebooks/in_context/05_two_numbers_per_head.ipynb",
)
_FINE = ("ok", "left out")
_NEEDS_NO_CARD = "a GPU is here"  # reason of a skipped test that only a machine without a card can run


# --- what the steps must have found -----------------------------------------------------------------------------------


def _environment(folder: Path, _: str) -> dict:
    return json.loads((folder / "environment.json").read_text())


def judge_tests(folder: Path, _: str) -> dict:
    """Tests must have run their GPU programs compiled, in every file, and none be skipped that a card could run."""
    counts, compiled, interpreted, skipped = {"passed": 0}, {}, 0, []
    for test in ElementTree.parse(folder / "tests.xml").iter("testcase"):
        name = f"{test.get('classname')}.{test.get('name')}"
        reason = test.find("skipped")
        if reason is not None:
            if _NEEDS_NO_CARD not in reason.get("message", ""):
                skipped.append(name)
            continue
        counts["passed"] += 1
        mode = {p.get("value") for p in test.iter("property") if p.get("name") == "triton"}
        interpreted += "interpreted" in mode
        if "compiled" in mode:
            where = test.get("classname", "")
            compiled[where] = compiled.get(where, 0) + 1
    if skipped:
        raise Failed(f"{len(skipped)} tests were skipped, such as {skipped[0]}: on a card all of them must run")
    if interpreted:
        raise Failed(f"{interpreted} tests ran in Triton's interpreter: on a card programs must be compiled")
    files = {path.removesuffix(".py").replace("/", ".") for path in TESTS if path.endswith("_gpu.py")}
    if missing := sorted(files - set(compiled)):
        raise Failed(f"no test of {missing[0]} ran a compiled program")
    return counts | {"with compiled programs": sum(compiled.values())}


def judge_sanitizer(_: Path, text: str) -> dict:
    """compute-sanitizer must say that it found nothing."""
    summary = re.findall(r"(?:RACECHECK|ERROR) SUMMARY: (\d+) \w+", text)
    if not summary:
        raise Failed("compute-sanitizer printed no summary")
    if any(int(count) for count in summary):
        raise Failed(f"compute-sanitizer found something:\n{last_words(text)}")
    return {"launches": text.count("launched: "), "found by the sanitizer": 0}


def _timings(folder: Path, _: str) -> dict:
    made = sorted((folder / "timings").glob("kernels-*.json"))
    if len(made) != 1:
        raise Failed(f"the benchmarks must have written one file of timings; found {len(made)}")
    rows = json.loads(made[0].read_text())["cases"]
    return {"cases": len(rows), "of them with a ceiling": sum(bool(row["reached"]) for row in rows)}


def judge_pages(_: Path, text: str) -> dict:
    """Some cells must have been run and compared, and none skipped."""
    found = re.search(r"(\d+) passed(?:, (\d+) skipped)?", text)
    if found is None or found[2]:
        raise Failed(f"cells were skipped, or none were run:\n{last_words(text, 3)}")
    return {"pages": len(PAGES), "cells": int(found[1])}


# --- which steps ------------------------------------------------------------------------------------------------------

_REPORT = ("-o", "junit_family=xunit1", "--junitxml")  # the older family holds properties of tests
_PYTEST = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
_COMPILED: dict[str, str | None] = {"TRITON_INTERPRET": None, "ATTNLIB_KERNELS": None}
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
_NBVAL = (*_PYTEST, "--nbval", "--nbval-current-env")


def _workers(most: int) -> str:
    return str(max(1, min(most, os.cpu_count() or 1)))


def _sanitizer(tool: str, what: str, budget: float) -> Step:
    return Step(
        tool, f"compute-sanitizer, {what}",
        ("compute-sanitizer", "--tool", tool, "--error-exitcode", "9", sys.executable, "-m", "benchmarks.card_launches"),
        budget, judge_sanitizer, ("environment",),
        # torch hands out parts of large blocks otherwise, and a step beyond the end of one would not show.
        {**_COMPILED, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"},
        lambda: "" if shutil.which("compute-sanitizer") else "compute-sanitizer is not installed (it comes with the CUDA toolkit)",
    )  # fmt: skip


def card_steps() -> tuple[Step, ...]:
    """On a machine with a card."""
    return (
        Step("environment", "card, driver and versions; every GPU program compiled and launched once",
             (sys.executable, "-m", "benchmarks.card", "environment", "{folder}"), 60, _environment, (), _COMPILED),
        Step("tests", "tests of the GPU programs, compiled",
             (*_PYTEST, *TESTS, "-n", _workers(8), *_REPORT, "{folder}/tests.xml"), 190, judge_tests, ("environment",),
             {**_COMPILED, **_ONE_THREAD}),
        _sanitizer("racecheck", "races in shared memory", 45),
        _sanitizer("memcheck", "accesses outside of what was allocated", 45),
        Step("timings", "timings of the loops against their ceilings",
             (sys.executable, "-m", "benchmarks", "--device", "cuda", "--seconds", "0.5", "--output", "{folder}/timings"),
             200, _timings, ("tests",), _COMPILED),
        Step("pages", "pages with the card present, compared with their stored outputs",
             (*_NBVAL, *PAGES, "-n", _workers(4), "--dist", "loadscope"), 60, judge_pages, (), _ONE_THREAD),
    )  # fmt: skip


def dry_steps() -> tuple[Step, ...]:
    """The same without a card, up to the first launch."""
    return (
        Step("launches", "every GPU program compiled for sm_90, every timed case led to its first launch",
             (sys.executable, "-m", "benchmarks.card_launches", "--compile"), 300, _launches, (), _COMPILED),
        Step("tests", "tests of the GPU programs, collected", (*_PYTEST, *TESTS, "--collect-only"), 90, _collected(TESTS)),
        Step("pages", "pages, collected", (*_NBVAL, *PAGES, "--collect-only"), 90, _collected(PAGES)),
        Step("figures", "made-up timings, drawn as the chapter draws measured ones",
             (sys.executable, "-m", "benchmarks.card", "draw", "{folder}"), 60, _drawn),
    )  # fmt: skip


def _launches(_: Path, text: str) -> dict:
    return {
        "programs compiled": text.count("compiled for sm_90"),
        "cases led to a launch": text.count("comes to the launch of"),
    }


def _collected(paths: Sequence[str]) -> Callable[[Path, str], dict]:
    """Something must have been collected from each of these files."""

    def judge(_: Path, text: str) -> dict:
        if absent := [path for path in paths if path not in text]:
            raise Failed(f"nothing was collected from {absent[0]}")
        return {"collected": sum(text.count(path) for path in paths)}

    return judge


def _drawn(_: Path, text: str) -> dict:
    if "52%" not in text or "A made-up card" not in text:
        raise Failed(f"the chapter's table does not show the made-up figures:\n{last_words(text)}")
    return {"rows": text.count("52%")}


# --- steps that are functions of this module --------------------------------------------------------------------------


def write_environment(folder: Path) -> None:
    """What the figures depend on, when every program has been launched. Raises what torch and Triton raise where one of them cannot be."""
    import torch
    import triton

    from benchmarks.card_launches import LAUNCHES

    made = torch.cuda.get_device_properties(0)
    for launch in LAUNCHES.values():
        launch()
        torch.cuda.synchronize()
    found = {
        "device": made.name, "compute capability": f"{made.major}.{made.minor}", "multiprocessors": made.multi_processor_count,
        "memory GB": round(made.total_memory / 1e9, 1), "python": platform.python_version(), "torch": torch.__version__,
        "cuda of torch": torch.version.cuda, "triton": triton.__version__,
        "attnlib": importlib.metadata.version("attnlib"),
    }  # fmt: skip
    if shutil.which("nvidia-smi"):
        query = ["nvidia-smi", "--id=0", "--query-gpu=driver_version,clocks.max.sm", "--format=csv,noheader,nounits"]
        told = subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip().split(", ")
        found |= dict(zip(("driver", "highest clock MHz"), told, strict=False))
    (folder / "environment.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def draw_made_up(folder: Path) -> None:
    """Figures that are made up, 52 % of every ceiling, written as measured ones are and drawn with the chapter's code; printed."""
    from attnbook.extensions.benchmarks import newest, table
    from benchmarks import kernels
    from benchmarks.__main__ import row_of
    from benchmarks.ceilings import ceilings

    wing, rows = kernels.wing("cuda"), []
    for case in wing.cases:
        limit = min(ceilings(case).values(), default=None)
        median = 1.0 if limit is None else case.work.units / (0.52 * limit)
        rows.append(row_of(case, median, 0.01 * median, 5, bounded=True))
    result = {
        "date": "2000-01-01", "machine": "none", "device": "A made-up card", "threads": 1, "versions": {},
        "cases": rows, "ratios": wing.ratios({row["case"]: row["median_s"] for row in rows}), "steps": [],
    }  # fmt: skip
    _write_result(result, folder / "made-up" / "kernels-a-made-up-card-2000-01-01.json")
    print(table(newest(folder / "made-up", "kernels")["a-made-up-card"]))


# --- the command ------------------------------------------------------------------------------------------------------


def _write_result(result: Mapping, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with written_aside(target) as aside:
        aside.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def _folder() -> Path:
    """Of this day's run of this commit; of a run of its own where files were changed, or where there is no git."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()

    commit = git("rev-parse", "--short=12", "HEAD")
    clean = commit and not git("status", "--porcelain")
    last = commit if clean else f"changed-{os.getpid()}"
    return ROOT / "_build" / "card" / f"{datetime.date.today().isoformat()}-{last}"


def run_all(output: Path, *, dry: bool, steps: Sequence[Step] | None = None, folder: Path | None = None) -> int:
    """All steps; 0 when none has failed, been stopped or not begun, else 1. Then a real run's figures are in `output`."""
    if dry:
        with tempfile.TemporaryDirectory() as scratch:
            rows = run_steps(dry_steps() if steps is None else steps, Path(scratch))
        print("dry run: no card was used, and nothing was measured")
    else:
        folder = folder or _folder()
        try:
            rows = run_steps(card_steps() if steps is None else steps, folder)
        except KeyboardInterrupt:
            print(f"interrupted: what was found is kept in _build/card/{folder.name}, and the same command goes on from there",
                  file=sys.stderr)  # fmt: skip
            return 130
    bad = [row for row in rows if row["status"] not in _FINE]
    for row in bad:
        print(f"{row['status']}: {row['title']}: {row['reason']}", file=sys.stderr)
    if dry or bad:
        if folder is not None:
            print(f"nothing was written to {output.name}; what was found: _build/card/{folder.name}", file=sys.stderr)
        return int(bool(bad))
    (timings,) = sorted((folder / "timings").glob("kernels-*.json"))
    target = output / timings.name
    _write_result(json.loads(timings.read_text()) | {"steps": rows}, target)
    print(f"kept in {target.name}, with what each step found")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="benchmarks.card", description="Steps of `python -m benchmarks --device cuda --all`."
    )
    parser.add_argument("step", choices=("environment", "draw"))
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    {"environment": write_environment, "draw": draw_made_up}[options.step](options.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
