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

from attnlib import in_context, single_head, token_selection
from attnlib.device import report, resolve
from attnlib.kernels.dispatch import VARIABLE, has_triton, ran
from attnlib.single_head.maps import SPARSEMAX
from attnlib.single_head.rules import nesterov
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

_LAW = single_head.SignalNoiseLaw(n=12, d=400, signal_norm=8.0, label_noise=0.2)
_TOKENS = token_selection.TokenLaw(n=6, d=120, tokens=4, signal_norm=8.0, label_noise=0.34)
_STUDY = in_context.Experiment(heads=2, d=3, length=5, batch=8, optimiser="Adam", learning_rate=1e-2, steps=4, runs=2)


def _descent(device: str):
    sample = _LAW.draw(seed=0, runs=3, device=device)
    path = single_head.gradient_descent(sample, 0.05, 3)
    v, p = path.v[-1], path.p[-1]
    sampled = single_head.clean_error_sampled(v, p, sample, count=200, seed=1)
    return [path.loss, path.attention_clean, v, single_head.log10_clean_error(v, p, sample), sampled.value]


def _gram(device: str):
    path = single_head.gram_descent(_LAW.draw(seed=0, runs=3, device=device), 0.05, 5, record=[1, 5])
    return [path.loss, path.train_accuracy, path.attention_noisy]


def _heads(device: str):
    sample = _LAW.draw(seed=0, runs=2, device=device)
    options = {"heads": 2, "attention_map": SPARSEMAX, "rule": nesterov(0.9), "record": [1, 4]}
    path = single_head.train_heads(sample, 0.05, 4, **options)
    return [path.loss, path.train_accuracy, path.attention_clean]


def _two_steps(device: str):
    made = single_head.summarise(_LAW, 0.05, draws=3, device=device)
    return [made.log10_clean_error, made.train_accuracy, made.attention_clean]


def _selection(device: str):
    sample = _TOKENS.draw(seed=0, runs=2, device=device)
    path = token_selection.train(token_selection.gram_of(sample, token_selection.CODE_START), 5e-2, 6, record=[0, 3, 6])
    return [path.loss, path.attention, token_selection.population_along(path, rows=[-1], count=200).attention]


def _training(device: str):
    made = in_context.train(_STUDY, device=device)
    return [made.loss, made.omega, made.final.key_query, *in_context.risk_of(made.final, _STUDY.law, prompts=200)]


WORK = {work.__name__: work for work in (_descent, _gram, _heads, _two_steps, _selection, _training)}


def on_cpu(found: list) -> list[torch.Tensor]:
    return [torch.as_tensor(x.cpu() if isinstance(x, torch.Tensor) else x) for x in found]


@pytest.mark.parametrize("name", WORK)
def test_readable_loops_give_the_bits_of_the_cpu(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No tensor was left on the CPU, and none was drawn on the card: random streams are numpy's."""
    monkeypatch.setenv(VARIABLE, "reference")
    wanted = WORK[name]("cpu")
    with pretended():
        found = WORK[name]("cuda")
        told = ran()
        found = on_cpu(found)
    for one, other in zip(found, on_cpu(wanted), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)
    assert name in ("_descent", "_two_steps") or any("reference, float" in line and "on cuda" in line for line in told)


@pytest.mark.skipif(not has_triton(), reason="Triton is not installed: see attnlib.extras")
@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is here, and its programs are compiled, not interpreted")
@pytest.mark.parametrize("name", [name for name in WORK if name not in ("_descent", "_two_steps")])
def test_gpu_programs_are_chosen_and_give_the_numbers_of_the_cpu(name: str) -> None:
    """The tolerance of float64, and in in-context training that of float32."""
    wanted = on_cpu(WORK[name]("cpu"))
    with pretended():
        found = on_cpu(WORK[name]("cuda"))
        assert any(("reference" if name == "_selection" else "triton") in line and "cuda" in line for line in ran())
    close = 2e-4 if name == "_training" else 1e-10
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=close, atol=close, equal_nan=True)


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
