"""The fastest implementation that can do the work runs; who asks for another gets it, or hears why not."""

import logging

import pytest
import torch

from attnlib.kernels import dispatch
from attnlib.kernels.dispatch import IMPLEMENTATIONS, VARIABLE, Loop, choose, ran

CPU, GPU = torch.device("cpu"), torch.device("cuda")  # a device object needs no GPU
LOOP = Loop("a loop")
NARROW = Loop("a narrow loop", compiled=(torch.float32,), triton=(torch.float32,))
ALL = ("numba", "llvmlite", "triton")


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
    ("device", "dtype", "installed", "interpret", "expected"),
    [
        (CPU, torch.float32, ALL, False, "compiled"),
        (CPU, torch.float64, ALL, True, "compiled"),  # the interpreter is for tests: it never comes by itself
        (CPU, torch.float64, ("triton",), True, "reference"),
        (CPU, torch.float32, ("numba", "triton"), False, "reference"),  # numba without llvmlite is no numba
        (CPU, torch.float16, ALL, False, "reference"),
        (GPU, torch.float32, ALL, False, "triton"),
        (GPU, torch.float64, ("triton",), False, "triton"),
        (GPU, torch.float64, ("numba", "llvmlite"), False, "reference"),  # a GPU without Triton: torch on the GPU
        (GPU, torch.bfloat16, ALL, False, "reference"),
    ],
)
def test_the_fastest_that_can_do_the_work_is_chosen(machine, device, dtype, installed, interpret, expected):
    machine(installed, interpret=interpret)
    assert choose(LOOP, device, dtype) == expected


def test_a_dtype_that_a_loop_does_not_compute_in_goes_to_the_reference(machine):
    assert [choose(NARROW, d, torch.float32) for d in (CPU, GPU)] == ["compiled", "triton"]
    assert [choose(NARROW, d, torch.float64) for d in (CPU, GPU)] == ["reference", "reference"]


def test_a_size_that_does_not_fit_goes_on_to_the_next(machine):
    assert choose(LOOP, GPU, torch.float32, cannot={"triton": "too large"}) == "reference"
    assert choose(LOOP, CPU, torch.float32, cannot={"triton": "too large"}) == "compiled"
    assert choose(LOOP, CPU, torch.float32, cannot={"compiled": "too large"}) == "reference"
    assert choose(LOOP, CPU, torch.float32, cannot={"compiled": ""}) == "compiled"  # no reason is no obstacle
    assert choose(LOOP, CPU, torch.float16, cannot={"compiled": ""}) == "reference"  # and hides none


@pytest.mark.parametrize(
    ("preferred", "device", "interpret", "expected"),
    [
        ("reference", CPU, False, "reference"),
        ("reference", GPU, False, "reference"),
        ("compiled", CPU, False, "compiled"),
        ("compiled", GPU, False, "triton"),  # where it cannot do the work the choice is made as ever
        ("triton", CPU, False, "compiled"),
        ("triton", CPU, True, "triton"),
        ("triton", GPU, False, "triton"),
    ],
)
def test_a_preference_holds_wherever_it_can(machine, preferred, device, interpret, expected):
    machine(interpret=interpret, variable=preferred)
    assert choose(LOOP, device, torch.float32) == expected


def test_a_preference_does_not_move_past_an_obstacle(machine):
    machine(variable="compiled")
    assert choose(LOOP, CPU, torch.float64, cannot={"compiled": "too large"}) == "reference"
    machine(("numba",), variable="triton")
    assert choose(LOOP, GPU, torch.float32) == "reference"


def test_an_order_is_stronger_than_a_preference(machine):
    machine(interpret=True, variable="reference")
    assert choose(LOOP, CPU, torch.float32) == "reference"
    assert choose(LOOP, CPU, torch.float32, implementation="compiled") == "compiled"


def test_an_empty_variable_is_none(machine):
    machine(variable="")
    assert choose(LOOP, CPU, torch.float32) == "compiled"


def test_wrong_names_are_listed_with_the_right_ones(machine):
    right = "'reference', 'compiled', 'triton'; got 'numba'"
    with pytest.raises(ValueError, match=f"implementation must be one of 'auto', {right}"):
        choose(LOOP, CPU, torch.float32, implementation="numba")
    machine(variable="numba")
    with pytest.raises(ValueError, match=f"{VARIABLE} must be one of {right}"):
        choose(LOOP, CPU, torch.float32)


@pytest.mark.parametrize(
    ("implementation", "device", "dtype", "installed", "words"),
    [
        ("compiled", GPU, torch.float32, ALL, "it runs on the CPU, and the tensors are on cuda"),
        ("compiled", CPU, torch.float32, (), 'numba is not installed: pip install "attnlib[kernels]"'),
        ("compiled", CPU, torch.float16, ALL, "it computes in float32 or float64, not float16"),
        ("triton", CPU, torch.float32, ALL, "it runs on a CUDA device, and the tensors are on cpu"),
        ("triton", GPU, torch.float32, ("numba",), 'Triton is not installed: pip install "attnlib[gpu]"'),
        ("triton", GPU, torch.bfloat16, ALL, "it computes in float32 or float64, not bfloat16"),
    ],
)
def test_an_order_that_cannot_be_followed_says_why(machine, implementation, device, dtype, installed, words):
    machine(installed)
    with pytest.raises(ValueError, match="a loop: implementation") as caught:
        choose(LOOP, device, dtype, implementation=implementation)
    assert str(caught.value) == f"a loop: implementation {implementation!r} cannot be used: {words}"
    assert ran() == ()


def test_an_order_beyond_a_size_says_why(machine):
    with pytest.raises(ValueError, match="'triton' cannot be used: at most 8 heads fit"):
        choose(LOOP, GPU, torch.float32, implementation="triton", cannot={"triton": "at most 8 heads fit"})


def test_the_reference_can_always_be_ordered(machine):
    machine(())
    for device in (CPU, GPU):
        for dtype in (torch.float16, torch.float32, torch.float64):
            assert choose(LOOP, device, dtype, implementation="reference") == "reference"


def test_every_order_that_can_be_followed_is(machine):
    machine(interpret=True)
    assert [choose(LOOP, CPU, torch.float64, implementation=name) for name in IMPLEMENTATIONS] == list(IMPLEMENTATIONS)


def test_what_ran_is_said_once_with_the_reasons_and_kept(machine, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, logger="attnlib.kernels")
    machine(("numba", "llvmlite"))
    for _ in range(3):
        choose(LOOP, GPU, torch.float64)
    (line,) = caplog.messages
    assert line.startswith("a loop: reference, float64 on cuda (")
    assert "not compiled: it runs on the CPU, and the tensors are on cuda" in line
    assert 'not triton: Triton is not installed: pip install "attnlib[gpu]"' in line
    choose(LOOP, CPU, torch.float64)
    choose(LOOP, CPU, torch.float32)
    choose(NARROW, CPU, torch.float32)
    choose(LOOP, CPU, torch.float64, implementation="reference")
    choose(LOOP, CPU, torch.float32)
    assert len(caplog.messages) == 5
    assert ran() == (
        "a loop: reference, float64 on cuda",
        "a loop: compiled, float64 on cpu",
        "a loop: compiled, float32 on cpu",
        "a narrow loop: compiled, float32 on cpu",
        "a loop: reference, float64 on cpu",
    )


def test_without_obstacles_the_line_has_no_reasons(machine, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, logger="attnlib.kernels")
    machine(interpret=True)
    choose(LOOP, CPU, torch.float32)
    assert caplog.messages == ["a loop: compiled, float32 on cpu"]


def test_the_logger_is_silent_unless_asked(machine, capfd: pytest.CaptureFixture):
    choose(LOOP, CPU, torch.float32)
    assert capfd.readouterr() == ("", "")


def test_what_is_installed_is_looked_up_without_importing_it(monkeypatch: pytest.MonkeyPatch):
    installed = dispatch._installed.__wrapped__
    assert installed("numpy", "torch")
    assert not installed("numpy", "no_module_has_this_name")
    asked = []
    monkeypatch.setattr(dispatch, "_installed", lambda *modules: bool(asked.append(modules)))
    assert not dispatch.has_numba()
    assert not dispatch.has_triton()
    assert asked == [("numba", "llvmlite"), ("triton",)]


def test_a_loop_that_is_slow_for_want_of_numba_says_so_at_once(machine, monkeypatch, caplog):
    caplog.set_level(logging.WARNING, logger="attnlib.kernels")
    machine(())
    choose(LOOP, CPU, torch.float32, implementation="reference")  # as ordered
    monkeypatch.setenv(VARIABLE, "reference")
    choose(LOOP, CPU, torch.float64)  # as preferred
    monkeypatch.delenv(VARIABLE)
    choose(LOOP, CPU, torch.float16)  # no compiled form has this dtype
    choose(LOOP, GPU, torch.float64)
    assert caplog.messages == []
    for _ in range(2):
        choose(NARROW, CPU, torch.float32)
    (line,) = caplog.messages
    assert 'pip install "attnlib[kernels]"' in line


def test_a_loop_without_a_gpu_program_runs_its_readable_form_there(machine):
    machine(ALL)
    assert choose(Loop("short", triton=()), GPU, torch.float64) == "reference"
    with pytest.raises(ValueError, match="short: implementation 'triton' cannot be used: this loop has no GPU program"):
        choose(Loop("short", triton=()), GPU, torch.float64, implementation="triton")
