"""The fastest implementation that can do the work runs; who asks for another gets it, or hears why not."""

import logging

import pytest
import torch

from attnlib.kernels import dispatch
from attnlib.kernels.dispatch import IMPLEMENTATIONS, VARIABLE, Loop, choose, ran

CPU, GPU = torch.device("cpu"), torch.device("cuda")  # a device object needs no GPU
F16, F32, F64 = torch.float16, torch.float32, torch.float64
LOOP = Loop("a loop")
NARROW = Loop("a narrow loop", compiled=(F32,), triton=(F32,))
ALL = ("numba", "llvmlite", "triton")
COMPILED = ("numba", "llvmlite")
INSTALL = "pip install 'attnlib[{}] @ git+https://github.com/attention-checked/attention-checked'"


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch):
    """A fresh process in which the named modules are installed, and Triton compiles or interprets."""

    def make(installed: tuple[str, ...] = ALL, *, interpret: bool = False, variable: str | None = None) -> None:
        monkeypatch.setattr(dispatch, "_ran", {})
        monkeypatch.setattr(dispatch, "_installed", lambda *modules: set(modules) <= set(installed))
        monkeypatch.setenv("TRITON_INTERPRET", "1" if interpret else "0")
        monkeypatch.delenv(VARIABLE, raising=False)
        if variable is not None:
            monkeypatch.setenv(VARIABLE, variable)

    make()
    return make


@pytest.mark.parametrize(
    ("given", "asked", "expected"),
    [
        # What is installed, and whether Triton interprets.
        ({}, (LOOP, CPU, F32), "compiled"),
        ({"interpret": True}, (LOOP, CPU, F64), "compiled"),  # the interpreter is for tests: it never comes by itself
        ({"installed": ("triton",), "interpret": True}, (LOOP, CPU, F64), "reference"),
        ({"installed": ("numba", "triton")}, (LOOP, CPU, F32), "reference"),  # numba without llvmlite is no numba
        ({"installed": ("triton",)}, (LOOP, GPU, F64), "triton"),
        ({"installed": COMPILED}, (LOOP, GPU, F64), "reference"),  # a GPU without Triton: torch on the GPU
        # The dtype, and loops that compute in fewer.
        ({}, (LOOP, GPU, F32), "triton"),
        ({}, (LOOP, CPU, F16), "reference"),
        ({}, (LOOP, GPU, torch.bfloat16), "reference"),
        ({}, (NARROW, CPU, F32), "compiled"),
        ({}, (NARROW, GPU, F32), "triton"),
        ({}, (NARROW, CPU, F64), "reference"),
        ({}, (NARROW, GPU, F64), "reference"),
        ({}, (Loop("short", triton=()), GPU, F64), "reference"),
        # Sizes that do not fit; no reason is no obstacle, and hides none.
        ({}, (LOOP, GPU, F32, "triton"), "reference"),
        ({}, (LOOP, CPU, F32, "triton"), "compiled"),
        ({}, (LOOP, CPU, F32, "compiled"), "reference"),
        # A preference holds wherever it can do the work, and moves past no obstacle.
        ({"variable": "reference"}, (LOOP, CPU, F32), "reference"),
        ({"variable": "reference"}, (LOOP, GPU, F32), "reference"),
        ({"variable": "compiled"}, (LOOP, GPU, F32), "triton"),
        ({"variable": "triton"}, (LOOP, CPU, F32), "compiled"),
        ({"variable": "triton", "interpret": True}, (LOOP, CPU, F32), "triton"),
        ({"variable": ""}, (LOOP, CPU, F32), "compiled"),
        ({"variable": "compiled"}, (LOOP, CPU, F64, "compiled"), "reference"),
        ({"installed": ("numba",), "variable": "triton"}, (LOOP, GPU, F32), "reference"),
    ],
)
def test_the_fastest_that_can_do_the_work_is_chosen(machine, given, asked, expected):
    machine(**given)
    loop, device, dtype, *large = asked
    assert choose(loop, device, dtype, cannot=dict.fromkeys(large, "too large") | {"reference": ""}) == expected


def test_an_order_is_stronger_than_a_preference(machine):
    machine(interpret=True, variable="reference")
    assert [choose(LOOP, CPU, F64, implementation=name) for name in IMPLEMENTATIONS] == list(IMPLEMENTATIONS)
    machine(())
    for device in (CPU, GPU):
        assert choose(LOOP, device, F16, implementation="reference") == "reference"


def test_wrong_names_are_listed_with_the_right_ones(machine):
    right = "'reference', 'compiled', 'triton'; got 'numba'"
    with pytest.raises(ValueError, match=f"implementation must be one of 'auto', {right}"):
        choose(LOOP, CPU, F32, implementation="numba")
    machine(variable="numba")
    with pytest.raises(ValueError, match=f"{VARIABLE} must be one of {right}"):
        choose(LOOP, CPU, F32)


@pytest.mark.parametrize(
    ("implementation", "device", "dtype", "installed", "words"),
    [
        ("compiled", GPU, F32, ALL, "it runs on the CPU, and the tensors are on cuda"),
        ("compiled", CPU, F32, (), f"numba is not installed: {INSTALL.format('kernels')}"),
        ("compiled", CPU, F16, ALL, "it computes in float32 or float64, not float16"),
        ("triton", CPU, F32, ALL, "it runs on a CUDA device, and the tensors are on cpu"),
        ("triton", GPU, F32, ("numba",), f"Triton is not installed: {INSTALL.format('gpu')}"),
        ("triton", GPU, torch.bfloat16, ALL, "it computes in float32 or float64, not bfloat16"),
        ("triton", GPU, F64, ALL, "at most 8 heads fit"),
    ],
)
def test_an_order_that_cannot_be_followed_says_why(machine, implementation, device, dtype, installed, words):
    machine(installed)
    cannot = {implementation: words} if "heads" in words else None
    with pytest.raises(ValueError, match="a loop: implementation") as caught:
        choose(LOOP, device, dtype, implementation=implementation, cannot=cannot)
    assert str(caught.value) == f"a loop: implementation {implementation!r} cannot be used: {words}"
    assert ran() == ()
    with pytest.raises(ValueError, match="short: implementation 'triton' cannot be used: this loop has no GPU program"):
        choose(Loop("short", triton=()), GPU, F64, implementation="triton")


def test_what_ran_is_said_once_with_the_reasons_and_kept(machine, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, logger="attnlib.kernels")
    machine(COMPILED)
    for _ in range(3):
        choose(LOOP, GPU, F64)
    (line,) = caplog.messages
    assert line.startswith("a loop: reference, float64 on cuda (")
    assert "not compiled: it runs on the CPU, and the tensors are on cuda" in line
    assert "not triton: Triton is not installed: pip install 'attnlib[gpu] @ git+" in line
    choose(LOOP, CPU, F64)
    choose(NARROW, CPU, F32)
    choose(LOOP, CPU, F64)
    lines = ("a loop: reference, float64 on cuda", "a loop: compiled, float64 on cpu",
             "a narrow loop: compiled, float32 on cpu")  # fmt: skip
    assert (len(caplog.messages), ran()) == (3, lines)
    machine(interpret=True)
    choose(LOOP, CPU, F32)
    assert caplog.messages[-1] == "a loop: compiled, float32 on cpu"  # without obstacles no reasons


def test_what_is_installed_is_looked_up_without_importing_it(monkeypatch: pytest.MonkeyPatch):
    installed = dispatch._installed.__wrapped__
    assert installed("numpy", "torch")
    assert not installed("numpy", "no_module_has_this_name")
    asked = []
    monkeypatch.setattr(dispatch, "_installed", lambda *modules: bool(asked.append(modules)))
    assert not dispatch.has_numba()
    assert not dispatch.has_triton()
    assert asked == [COMPILED, ("triton",)]


def test_a_loop_that_is_slow_for_want_of_numba_says_so_at_once(machine, capfd, caplog):
    caplog.set_level(logging.WARNING, logger="attnlib.kernels")
    machine((), variable="reference")
    choose(LOOP, CPU, F64)  # as preferred
    machine(())
    choose(LOOP, CPU, F32, implementation="reference")  # as ordered
    choose(LOOP, CPU, F16)  # no compiled form has this dtype
    choose(LOOP, GPU, F64)
    assert caplog.messages == []
    assert capfd.readouterr() == ("", "")
    for _ in range(2):
        choose(NARROW, CPU, F32)
    (line,) = caplog.messages
    assert "pip install 'attnlib[kernels] @ git+" in line
