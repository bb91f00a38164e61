"""Steps of a long check: processes of their own, each with a budget of seconds, one after the other; what is known is kept after each."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bookkit.files import written_aside

__all__ = ["ROOT", "TOTAL", "Failed", "Step", "last_words", "run_steps"]

ROOT = Path(__file__).resolve().parents[1]
TOTAL = 600.0  # seconds of all steps


class Failed(Exception):
    """What a step found is not what must be, in one sentence."""


@dataclass(frozen=True)
class Step:
    """One process.

    Args:
        name, title: a word, and what is proved or measured.
        command: its arguments; "{folder}" is a folder to write in.
        budget: seconds after which it is stopped.
        judge: from that folder and the text it printed, what it found; raises `Failed`.
        after: steps without whose "ok" this one is not begun.
        environment: variables to set; None: to remove.
        left_out: why it cannot be run here, or nothing.
    """

    name: str
    title: str
    command: Sequence[str]
    budget: float
    judge: Callable[[Path, str], dict] = lambda folder, text: {}
    after: Sequence[str] = ()
    environment: Mapping[str, str | None] = field(default_factory=dict)
    left_out: Callable[[], str] = lambda: ""


def run_steps(steps: Sequence[Step], folder: Path, *, total: float = TOTAL) -> list[dict]:
    """Run the steps, one after the other; what is known is in `folder`/steps.json after each of them, whole or not at all.

    Returns:
        for every step its name, title, status, seconds, budget, and `found` or `reason`. Status: "ok", "failed", "stopped" (over its
        budget, or over `total` of all), "left out" (cannot be run here), "not begun" (a step that it needs is not ok).
    """
    if sum(step.budget for step in steps) > total:
        raise ValueError(f"the steps' budgets must sum to {total:g} s at most; got {sum(s.budget for s in steps):g} s")
    folder.mkdir(parents=True, exist_ok=True)
    kept, done = folder / "steps.json", {}
    if kept.exists():
        done = {row["step"]: row for row in json.loads(kept.read_text()) if row["status"] == "ok"}
    began, rows = time.monotonic(), []
    for step in steps:
        if step.name in done:
            row = done[step.name]
            print(f"{step.title}: ok, as found earlier today", flush=True)
        else:
            print(f"{step.title} (at most {step.budget:g} s) ...", flush=True)
            row = _one(step, {row["step"]: row["status"] for row in rows}, folder, began + total - time.monotonic())
            print(f"  {row['status']} after {row['seconds']:g} s{_told(row)}", flush=True)
        rows.append(row)
        with written_aside(kept) as aside:
            aside.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return rows


def _told(row: Mapping) -> str:
    if "reason" in row:
        return f": {row['reason']}"
    return ": " + ", ".join(f"{name} {value}" for name, value in row["found"].items()) if row["found"] else ""


def _one(step: Step, status: Mapping[str, str], folder: Path, left: float) -> dict:
    row = {"step": step.name, "title": step.title, "budget_s": step.budget, "seconds": 0.0}
    if needed := [name for name in step.after if status.get(name) != "ok"]:
        return row | {"status": "not begun", "reason": f"it needs the step {needed[0]!r}, which is not ok"}
    if reason := step.left_out():
        return row | {"status": "left out", "reason": reason}
    seconds = min(step.budget, left)
    if seconds <= 0:
        return row | {"status": "stopped", "reason": f"no time was left of {TOTAL:g} s"}
    start = time.monotonic()
    code, text = _process(step, folder, seconds)
    row["seconds"] = round(time.monotonic() - start, 1)
    if code is None:
        return row | {"status": "stopped", "reason": f"not done within {seconds:.0f} s"}
    try:
        if code != 0:
            raise Failed(f"exit status {code}; its last words:\n{last_words(text)}")
        return row | {"status": "ok", "found": step.judge(folder, text)}
    except Failed as failed:
        return row | {"status": "failed", "reason": str(failed)}


def _process(step: Step, folder: Path, seconds: float) -> tuple[int | None, str]:
    """(exit status, all it printed); None for one that was stopped. Whatever it started ends with it."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "book")])}
    for name, value in step.environment.items():
        if value is None:
            environment.pop(name, None)
        else:
            environment[name] = value
    command = [word.replace("{folder}", str(folder)) for word in step.command]
    log = folder / f"{step.name}.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
        try:
            code: int | None = process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    return code, log.read_text(encoding="utf-8", errors="replace")


def last_words(text: str, lines: int = 15) -> str:
    """The end of what a step printed; folders of this machine are not repeated."""
    for place, name in ((str(ROOT), "."), (sys.prefix, "PYTHON"), (str(Path.home()), "~")):
        text = text.replace(place, name)
    return "\n".join(text.rstrip().splitlines()[-lines:])
