"""The kernels of `make nbval`: a start that fails is tried again, three times at most."""

import importlib.util
from pathlib import Path

import nbval.kernel
import pytest

CONFTEST = Path(__file__).resolve().parents[1] / "notebooks" / "conftest.py"


@pytest.mark.parametrize(("failures", "starts"), [(0, 1), (2, 3), (3, 3)])
def test_a_kernel_that_does_not_start_is_tried_again(monkeypatch, failures: int, starts: int) -> None:
    calls = []

    def start(*arguments, **options):
        calls.append((arguments, options))
        if len(calls) <= failures:
            raise RuntimeError("Kernel died before replying to kernel_info")
        return "manager", "client"

    monkeypatch.setattr(nbval.kernel, "start_new_kernel", start)
    spec = importlib.util.spec_from_file_location("nbval_conftest", CONFTEST)
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    if failures == 3:
        with pytest.raises(RuntimeError, match="Kernel died"):
            nbval.kernel.start_new_kernel(60, cwd="here")
    else:
        assert nbval.kernel.start_new_kernel(60, cwd="here") == ("manager", "client")
    assert [(arguments, options.pop("env")["MPLBACKEND"], options) for arguments, options in calls] == [
        ((60,), "module://matplotlib_inline.backend_inline", {"cwd": "here"})
    ] * starts
