"""The explorers' formulas, evaluated by Node: what a browser computes, compared with `attnlib`."""

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
MISSING = "no Node with its packages on this machine: install Node 20 or later, run `npm ci`, then again"


def need_node() -> str:
    """Path of Node. Where Node or the packages are missing, the test fails in CI and is skipped elsewhere."""
    node = shutil.which("node")
    if node and (ROOT / "node_modules" / "d3-array").is_dir():
        return node
    if os.environ.get("CI"):
        pytest.fail(MISSING)  # a machine that proves the book must prove its scripts
    pytest.skip(MISSING)


def evaluate(name: str, calls: Sequence[tuple[str, dict[str, Any]]], root: Path = ROOT) -> list[Any]:
    """Results of `functions[function](arguments)` of book/scripts/NAME/model.js, in order; all calls in one process.

    Arrays and numpy numbers are sent as JSON; "nan", "inf" and "-inf" come back as floats.
    """
    asked = [{"function": function, "arguments": arguments} for function, arguments in calls]
    done = subprocess.run(
        [need_node(), str(root / "book" / "scripts" / "evaluate.mjs"), name],
        input=json.dumps(_sent(asked), allow_nan=False),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"book/scripts/evaluate.mjs {name} failed: {done.stderr.strip()}")
    return _received(json.loads(done.stdout))


def _sent(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, dict):
        return {key: _sent(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_sent(one) for one in value]
    if isinstance(value, float) and not np.isfinite(value):
        return "nan" if np.isnan(value) else "inf" if value > 0 else "-inf"
    return value


def _received(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _received(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_received(one) for one in value]
    return float(value) if value in ("nan", "inf", "-inf") else value
