"""The kernels of `make nbval`: a start that fails is tried again, three times at most; a death is told at once."""

import importlib.util
from pathlib import Path
from queue import Empty

import nbval.kernel
import pytest

CONFTEST = Path(__file__).resolve().parents[1] / "notebooks" / "conftest.py"


def load_conftest() -> None:
    spec = importlib.util.spec_from_file_location("nbval_conftest", CONFTEST)
    spec.loader.exec_module(importlib.util.module_from_spec(spec))


@pytest.fixture(autouse=True)
def as_before(monkeypatch) -> None:
    """What the file replaces is put back."""
    for owner, name in ((nbval.kernel, "start_new_kernel"), (nbval.kernel.RunningKernel, "await_reply")):
        monkeypatch.setattr(owner, name, getattr(owner, name))


@pytest.mark.parametrize(("failures", "starts"), [(0, 1), (2, 3), (3, 3)])
def test_a_kernel_that_does_not_start_is_tried_again(monkeypatch, failures: int, starts: int) -> None:
    calls = []

    def start(*arguments, **options):
        calls.append((arguments, options))
        if len(calls) <= failures:
            raise RuntimeError("Kernel died before replying to kernel_info")
        return "manager", "client"

    monkeypatch.setattr(nbval.kernel, "start_new_kernel", start)
    load_conftest()
    if failures == 3:
        with pytest.raises(RuntimeError, match="Kernel died"):
            nbval.kernel.start_new_kernel(60, cwd="here")
    else:
        assert nbval.kernel.start_new_kernel(60, cwd="here") == ("manager", "client")
    assert [(arguments, options.pop("env")["MPLBACKEND"], options) for arguments, options in calls] == [
        ((60,), "module://matplotlib_inline.backend_inline", {"cwd": "here"})
    ] * starts


@pytest.mark.parametrize(("alive", "limit", "told"), [(False, 1e9, RuntimeError), (True, 0, Empty)])
def test_no_answer_is_awaited_from_a_dead_kernel(alive: bool, limit: float, told: type) -> None:
    class Kernel(nbval.kernel.RunningKernel):
        def __init__(self) -> None: ...
        def __del__(self) -> None: ...

        def get_message(self, stream, timeout=None):
            assert (stream, timeout) == ("shell", 1)
            raise Empty

        def is_alive(self) -> bool:
            return alive

    load_conftest()
    with pytest.raises(told):
        Kernel().await_reply("id", timeout=limit)
