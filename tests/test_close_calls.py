"""Comparisons of floats: what passes only just is listed, and none is written by hand, where nobody sees how close it is."""

import ast
import subprocess
import sys
from pathlib import Path

import numpy as np

from tests.house import ROOT
from tests.rounding import rounding

PLANTED = """
import numpy as np, pytest, torch

def test_by_numpy():
    np.testing.assert_allclose([1.0, 2.0], [1.0, 2 + 1e-9], rtol=0, atol=2e-9)

def test_by_torch():
    torch.testing.assert_close(torch.tensor([1.0]), torch.tensor([1 + 8e-6]))

def test_by_pytest():
    assert {"a": [3.0 + 8e-10]} == {"a": pytest.approx([3.0], rel=0, abs=1e-9)}

def test_with_room_by_chance_or_not_at_all():
    np.testing.assert_allclose(np.float64(2 + 1e-9), 2, rtol=0, atol=5e-9)
    assert 0.51 == pytest.approx(0.5, abs=0.011)
    assert 1 + 2e-9 != pytest.approx(1, rel=1e-9)
"""


def test_close_comparisons_are_listed_and_make_the_run_fail(tmp_path):
    (tmp_path / "test_planted.py").write_text(PLANTED)
    kept = {"PYTHONPATH": str(ROOT), "PATH": "", "PYTHONDONTWRITEBYTECODE": "1"}

    def run(*options: str) -> subprocess.CompletedProcess:
        command = [sys.executable, "-m", "pytest", "-p", "tests.close_calls", *options, "test_planted.py"]
        return subprocess.run(command, cwd=tmp_path, env=kept, capture_output=True, text=True, check=False)

    done = run("-n", "1")  # a worker tells what it saw
    listed = [line for line in done.stdout.splitlines() if "of its tolerance" in line]
    assert [line.split(": ")[1] for line in listed] == [
        "test_planted.py:11 test_by_pytest",
        "test_planted.py:8 test_by_torch",
        "test_planted.py:5 test_by_numpy",
    ]
    assert listed[2].startswith(" 50% of its tolerance, 2.0e-09")
    assert "4 passed" in done.stdout
    assert done.returncode == 1
    alone = run("-k", "room")
    assert "0 comparisons use more" in alone.stdout
    assert alone.returncode == 0


def test_rounding_leaves_two_orders_of_a_sum_a_quarter_of_the_room_apart_at_most():
    terms = np.random.default_rng(0).uniform(-1, 1, (2000, 300)).astype(np.float32)
    one, other = terms.cumsum(1), terms[:, ::-1].cumsum(1)
    apart = np.abs(one[:, -1] - other[:, -1]).max() / rounding(300, max(np.abs(one).max(), np.abs(other).max()))
    assert 0.01 < apart < 0.25  # partial sums are smaller than the largest, most of them


def _small(node: ast.AST) -> bool:
    """A number that only rounding can mean, or a multiple of one. Below 1e-17 it is about balls with more digits."""
    if isinstance(node, ast.BinOp):
        sides = _small(node.left), _small(node.right)
        return any(sides) if isinstance(node.op, ast.Mult) else all(sides) if isinstance(node.op, ast.Add) else sides[0]
    return isinstance(node, ast.Constant) and isinstance(node.value, float) and 1e-17 <= node.value <= 1e-4


def by_hand(source: str) -> list[int]:
    """Lines that compare floats in a form of their own: |a - b| below a small number, `isclose`, an asserted `allclose`."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Lt | ast.LtE) and _small(node.comparators[0]):
            absolute = {getattr(x, "attr", getattr(x, "id", "")) for x in ast.walk(node.left)} & {"abs", "fabs"}
            found += [node.lineno] * bool(absolute)
        tested = node.test if isinstance(node, ast.Assert) else None
        found += [x.lineno for x in ast.walk(tested or ast.Pass()) if getattr(x, "attr", "") == "isclose"]
        if isinstance(tested, ast.Call) and getattr(tested.func, "attr", "") == "allclose":
            found.append(node.lineno)
    return found


def test_floats_are_compared_in_a_form_whose_slack_is_listed():
    for wrong in (
        "abs(a - b) < 1e-9",
        "(a - b).abs().max() <= 1e-12 * c",
        "torch.allclose(a, b)",
        "math.isclose(a, b)",
    ):
        assert by_hand(f"assert {wrong}") == [1], wrong
    for right in ("abs(a - b) < 4 * error + 1e-12", "abs(a - b) > 1e-6", "not np.allclose(a, b)", "abs(ball) < 1e-25"):
        assert by_hand(f"assert {right}") == [], right
    files = sorted(Path(ROOT / "tests").rglob("*.py"))
    assert {str(path.relative_to(ROOT)): lines for path in files if (lines := by_hand(path.read_text()))} == {}
