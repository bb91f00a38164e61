"""gpu_check.sh with a Python that only pretends: every part ends in its time, and what it had found by then is there."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.house import ROOT
from tests.tiny_book import write

STUB = """#!/bin/sh
echo "$*" >>"$CALLS"
case "$*" in
  "-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
  *"import sys, torch"*) exit "$NO_CARD" ;;
  *purelib*) dirname "$0" ;;
  *"-packages"*) echo /its/site-packages ;;
  "-m pip "*) exit "$NO_INDEX" ;;
  "-m pytest "*) echo "test_one PASSED"; exec sleep "$SLOW" ;;
  "-m benchmarks "*) echo "case-1   1.00 ms"; exec sleep "$SLOW" ;;
esac
"""
PARTS = ["card", "install", "tests", "measures"]
CASES = [  # variables, how the four parts end
    ({}, ["done"] * 4),
    ({"NO_CARD": "1"}, ["done"] * 4),
    ({"SLOW": "60", "LIMIT": "10"}, ["done", "done", "cut short", "cut short"]),
    ({"NO_INDEX": "3"}, ["done", "failed with exit code 3", "done", "done"]),
    ({"LIMIT": "0"}, ["not begun: no time is left"] * 4),
]


@pytest.mark.parametrize(("variables", "ends"), CASES)
def test_each_part_has_its_time_and_leaves_what_it_found(tmp_path: Path, variables: dict, ends: list[str]) -> None:
    for name in ("python", "nvidia-smi"):
        write(tmp_path / "bin" / name, STUB).chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "PYTHON": str(tmp_path / "bin/python")}
    environment |= {
        "CALLS": str(tmp_path / "calls"),
        "NO_CARD": "0",
        "NO_INDEX": "0",
        "SLOW": "0",
        "LIMIT": "60",
    } | variables
    out = tmp_path / "out"
    command = ["bash", str(ROOT / "gpu_check.sh"), str(out)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == (ends != ["done"] * 4), done.stderr
    lines = (out / "summary.txt").read_text().splitlines()
    assert [re.sub(", [0-9]+ s$", "", line) for line in lines] == [
        f"{part}: {end}" for part, end in zip(PARTS, ends, strict=True)
    ]
    found = [(out / f"{part}.log").read_text() for part in PARTS[2:] if (out / f"{part}.log").exists()]
    assert found == ([] if variables.get("LIMIT") == "0" else ["test_one PASSED\n", "case-1   1.00 ms\n"])
    parent = out / "env/bin/parent.pth"  # a torch that sees the card is used, and none fetched
    assert parent.exists() == (variables.get("NO_CARD") is None and variables.get("LIMIT") != "0")


def test_it_asks_for_what_exists() -> None:
    """Options of the benchmarks change, and a script that seldom runs does not see it."""
    script = (ROOT / "gpu_check.sh").read_text(encoding="utf-8")
    [options] = re.findall("-m benchmarks (.*)", script)
    told = (ROOT / "benchmarks" / "__main__.py").read_text(encoding="utf-8")
    assert [word for word in re.findall("--[a-z]+", options) if f'"{word}"' not in told] == []
    assert all((ROOT / path).exists() for path in re.findall(r"\btests/\S+", script))
    subprocess.run(["bash", "-n", str(ROOT / "gpu_check.sh")], check=True)
