"""Devices: the CPU always, a GPU when there is one, a clear error when not."""

import os
import subprocess
import sys

import pytest
import torch

from attnlib.device import report, resolve, what_ran
from attnlib.kernels.dispatch import VARIABLE, Loop, choose
from tests.device_work import TOLERANCE, WORK, on_cpu


def test_cpu_and_auto():
    assert resolve("cpu") == torch.device("cpu")
    assert resolve("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    assert report("cpu") == "cpu"


def test_what_ran_names_loop_implementation_dtype_and_device():
    choose(Loop("a loop of this test"), torch.device("cpu"), torch.float16)
    assert what_ran()[-1] == "a loop of this test: reference, float16 on cpu"


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


@pytest.mark.parametrize(("asked", "threads"), [(None, 1), ("2", 2)])
def test_pages_compute_on_one_thread_unless_more_are_asked_for(asked: str | None, threads: int) -> None:
    """Wherever a page is opened, whatever number of threads is found there."""
    environment = {**os.environ, "OMP_NUM_THREADS": "3"} | ({"BOOKKIT_THREADS": asked} if asked else {})
    code = "import torch\nimport attnbook\nprint(torch.get_num_threads())"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert int(done.stdout) == threads
