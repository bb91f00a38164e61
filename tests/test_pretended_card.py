"""With a card present pages compute what they compute without one, and functions that are asked for the card can work there.

Without a card this is proved as far as it goes: no page and no module asks for the card; on a pretended card (`tests/pretend_card.py`)
every function that takes a device gives the CPU's numbers. Not proved: the rounding of a real card, its memory, races.
"""

import ast
from collections.abc import Callable
from pathlib import Path

import nbformat
import numpy as np
import pytest
import torch

from attnlib.device import report, resolve
from attnlib.kernels.dispatch import VARIABLE, has_triton, ran
from tests.device_work import TOLERANCE, WORK, on_cpu
from tests.pretend_card import NAME, pretended

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def card():
    with pretended():
        yield


# --- the pretended card -----------------------------------------------------------------------------------------------


def test_a_copy_on_the_other_device_is_a_copy(card) -> None:
    x = torch.zeros(3, device="cuda")
    there, back = x.cpu(), x.cpu().to("cuda")
    x[1] = 2
    x += 1
    assert (x.tolist(), there.tolist(), back.tolist()) == ([1, 3, 1], [0, 0, 0], [0, 0, 0])
    assert [y.device.type for y in (x, x.mean(), torch.zeros_like(x), there, back)] == ["cuda"] * 3 + ["cpu", "cuda"]
    assert (resolve("auto"), report("cuda")) == (torch.device("cuda"), NAME)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x: x + torch.ones(3),
        lambda x: torch.ones(3) * x.sum(),
        lambda x: x.add_(torch.ones(3)),
        lambda x: torch.cat([x, torch.ones(1)]),
        lambda x: torch.stack([x[0], torch.tensor(1.0)]),
        lambda x: torch.ones(3)[x.long()],
        lambda x: torch.equal(x, x.cpu()),
        lambda x: torch.einsum("i,i->", x, torch.ones(3)),
        lambda x: x.__setitem__(torch.tensor([0, 1]), torch.ones(2)),
    ],
)
def test_both_devices_in_one_operation_are_refused(card, wrong: Callable) -> None:
    with pytest.raises(RuntimeError, match=r"same device"):
        wrong(torch.zeros(3, device="cuda"))


def test_numpy_does_not_read_from_the_card(card) -> None:
    with pytest.raises(TypeError, match=r"Tensor.cpu\(\) first"):
        np.asarray(torch.ones(3, device="cuda"))


# --- functions that take a device -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WORK)
def test_readable_loops_give_the_numbers_of_the_cpu(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No tensor was left on the CPU, and none was drawn on the card: random streams are numpy's."""
    monkeypatch.setenv(VARIABLE, "reference")
    wanted = WORK[name]("cpu")
    with pretended():
        found = WORK[name]("cuda")
        told = ran()
        found = on_cpu(found)
    for one, other in zip(found, on_cpu(wanted), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12, equal_nan=True)
    assert name in ("_descent", "_two_steps") or any("reference, float" in line and "on cuda" in line for line in told)


@pytest.mark.skipif(not has_triton(), reason="Triton is not installed: see attnlib.extras")
@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is here, and its programs are compiled, not interpreted")
@pytest.mark.parametrize("name", [name for name in WORK if name not in ("_descent", "_two_steps")])
def test_gpu_programs_are_chosen_and_give_the_numbers_of_the_cpu(name: str) -> None:
    wanted = on_cpu(WORK[name]("cpu"))
    with pretended():
        found = on_cpu(WORK[name]("cuda"))
        assert any(("reference" if name == "_selection" else "triton") in line and "cuda" in line for line in ran())
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=TOLERANCE[name], atol=TOLERANCE[name], equal_nan=True)


# --- pages ------------------------------------------------------------------------------------------------------------


def _code() -> dict[str, ast.Module]:
    """Python of attnlib and attnbook, and of the cells of all pages without IPython's own lines."""
    files = [*(ROOT / "attnlib").rglob("*.py"), *(ROOT / "book" / "attnbook").rglob("*.py")]
    found = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in files}
    for path in (ROOT / "notebooks").rglob("[!.]*.ipynb"):
        cells = [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
        lines = [line for cell in cells for line in cell.splitlines()]
        found[path.name] = "\n".join(_of_python(line) for line in lines)
    return {name: ast.parse(text) for name, text in found.items()}


def _of_python(line: str) -> str:
    """A line of a cell; what only IPython understands ("%pip ...") does nothing, at its place."""
    start = len(line) - len(line.lstrip())
    return line[:start] + "pass" if line[start : start + 1] in ("%", "!") else line


def devices_asked_for(tree: ast.Module) -> list[str]:
    """Every device that code names where none is "cpu": as an argument, a default, an attribute of torch."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            found += [
                f"device={k.value.value}"
                for k in node.keywords
                if k.arg == "device" and isinstance(k.value, ast.Constant)
            ]
            called = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            found += [called] if called in ("cuda", "set_default_device", "set_default_tensor_type") else []
        elif isinstance(node, ast.FunctionDef):
            names = [*node.args.posonlyargs, *node.args.args]
            pairs = [*zip(names[len(names) - len(node.args.defaults) :], node.args.defaults, strict=True)]
            pairs += [*zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)]
            found += [f"device={d.value}" for a, d in pairs if a.arg == "device" and isinstance(d, ast.Constant)]
    return [text for text in found if text != "device=cpu"]


def test_nobody_goes_to_the_card_unasked() -> None:
    code = _code()
    assert sum(name.endswith(".ipynb") for name in code) > 25
    assert {name: found for name, tree in code.items() if (found := devices_asked_for(tree))} == {}
    planted = "def f(x, *, device='auto'):\n    return x.cuda() + g(device='cuda') + h(device='cpu')"
    assert devices_asked_for(ast.parse(planted)) == ["device=auto", "cuda", "device=cuda"]
