"""Devices: the CPU always, a GPU when there is one, a clear error when not."""

import inspect
import os
import subprocess
import sys
from typing import Any

import pytest
import torch

from attnlib import in_context, single_head, token_selection
from attnlib.device import one_thread, report, resolve
from attnlib.kernels.dispatch import VARIABLE
from tests.device_work import TOLERANCE, WORK, on_cpu


def test_cpu_and_auto():
    assert resolve("cpu") == torch.device("cpu")
    assert resolve("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    assert report("cpu") == "cpu"


@pytest.mark.parametrize("bad", ["tpu", "meta", 3.5, ""])
def test_unknown_devices_are_refused(bad):
    with pytest.raises(ValueError, match="device"):
        resolve(bad)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is here, so asking for one is no error")
def test_absent_gpu_is_a_clear_error():
    with pytest.raises(ValueError, match="torch sees no GPU: use device='cpu' or 'auto'"):
        resolve("cuda")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU; the CPU is the reference everywhere else")
@pytest.mark.parametrize("kernels", ["", "reference"])
@pytest.mark.parametrize("name", WORK)
def test_a_gpu_gives_the_numbers_of_the_cpu(name: str, kernels: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """GPU programs where there are some, and readable loops on the device."""
    monkeypatch.setenv(VARIABLE, kernels) if kernels else monkeypatch.delenv(VARIABLE, raising=False)
    wanted, found = on_cpu(WORK[name]("cpu")), on_cpu(WORK[name]("cuda"))
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=TOLERANCE[name], atol=TOLERANCE[name], equal_nan=True)


PAGE = "ipykernel, numpy, attnbook, scipy.linalg, torch"  # BLAS twice, before and after


@pytest.mark.parametrize(
    ("imports", "asked", "threads"), [("torch, attnbook", "2", 2), ("torch, attnbook", "", 1), (PAGE, "", 1)]
)
def test_pages_compute_on_one_thread_unless_more_are_asked_for(imports: str, asked: str, threads: int) -> None:
    """Wherever a page is opened, whatever number of threads is found there, and whatever it imports first."""
    found = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "3")
    environment = {**os.environ, **found} | ({"BOOKKIT_THREADS": asked} if asked else {})
    code = f"""
import {imports}
from threadpoolctl import threadpool_info
blas = [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]
print(torch.get_num_threads(), *(blas if "ipykernel" in "{imports}" else []))"""
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(threads)] * (3 if imports == PAGE else 1)


def test_a_function_runs_on_one_thread_and_leaves_the_number_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    number = [3]
    monkeypatch.setattr(torch, "get_num_threads", lambda: number[-1])
    monkeypatch.setattr(torch, "set_num_threads", number.append)
    assert (one_thread(lambda x: (x, number[-1]))(x=5), number[-1]) == ((5, 1), 3)
    with pytest.raises(ZeroDivisionError):
        one_thread(lambda: 1 / 0)()
    assert number[-1] == 3


def test_what_computes_long_runs_on_one_thread() -> None:
    """Those that do not are over in one operation or a few, or spend their time on random numbers."""

    def layers(made: Any) -> list[str]:
        """The function's own code and that of its decorators, outermost first."""
        return [made.__code__.co_name, *(layers(made.__wrapped__) if hasattr(made, "__wrapped__") else [])]

    faces = [vars(part)[name] for part in (single_head, token_selection, in_context) for name in part.__all__]
    shared = {made.__name__ for made in faces if inspect.isfunction(made) and "alone" not in layers(made)}
    few = {"circuits_of", "forces", "forward", "gradients", "gram_of", "initial_weights", "outputs"}
    assert shared == {"draw_gram", *few}
