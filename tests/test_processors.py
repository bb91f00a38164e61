"""Other processors emulated: switches that act, machines that cannot be had, a command under several of them."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from attnlib.randomness import stream
from bookkit.pages import processors
from bookkit.pages.catalogue import UserError
from bookkit.pages.processors import MACHINES, CannotEmulate, environment, main, obstacle, run_under
from bookkit.pages.stability import DEFAULT, perturbation

ROOT = Path(__file__).parents[1]

# What each library says of the code that it takes: no release says it for all, and equal results prove nothing, since the code
# for two processors may round alike.
PROBE = """
import json, numpy, threadpoolctl, torch
from numba import njit

@njit(fastmath=True)
def total(values):
    found = 0.0
    for value in values:
        found += value * value * 1.3
    return found

total(numpy.ones(9))
with torch.backends.mkl.verbose(torch.backends.mkl.VERBOSE_ON):
    torch.ones(99, 99) @ torch.ones(99, 99)
print(json.dumps({
    "numpy": "X86_V3" in numpy.show_config(mode="dicts")["SIMD Extensions"].get("found", []),
    "torch": torch.backends.cpu.get_cpu_capability(),
    "openblas": sorted({pool["architecture"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"}),
    "numba": any("ymm" in code for code in total.inspect_asm().values()),
}))
"""


def says(machine: str) -> dict[str, object]:
    emulated = {name for known in MACHINES.values() for name in known.switches} | {"NPY_DISABLE_CPU_FEATURES"}
    plain = {name: value for name, value in os.environ.items() if name not in emulated}  # these tests may be emulated
    switches = {**plain, "OMP_NUM_THREADS": "1", **environment(machine)}
    done = subprocess.run([sys.executable, "-c", PROBE], env=switches, capture_output=True, text=True, check=True)
    mode = set(re.findall(r"CNR:(\w+)", done.stdout))
    return {**json.loads(done.stdout.splitlines()[-1]), "mkl": mode}


def test_every_library_takes_the_code_of_the_machine_that_stores() -> None:
    """Should a release rename a switch, this says so: numpy 2.4 did, and passed over the old name in silence."""
    if reason := obstacle(processors.STORING):
        pytest.skip(reason)
    if obstacle("zen"):
        pytest.skip(f"this processor is as old as the one that is emulated: {obstacle('zen')}")
    own, old = says("native"), says(processors.STORING)
    assert old == {"numpy": False, "torch": "DEFAULT", "openblas": ["Nehalem"], "numba": False, "mkl": {"COMPATIBLE"}}
    assert own["numpy"]
    assert own["numba"]
    assert [name for name in own if own[name] == old[name]] == []


def test_a_machine_that_cannot_be_had_is_told_with_its_reason(monkeypatch) -> None:
    monkeypatch.setattr(processors.platform, "machine", lambda: "aarch64")
    assert obstacle("native") == obstacle("threads") == ""
    with pytest.raises(CannotEmulate, match="nehalem is an x86-64 machine and this processor is aarch64"):
        environment("nehalem")
    monkeypatch.setattr(processors.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr("llvmlite.binding.get_host_cpu_features", lambda: {"sse4.2": True, "avx2": True})
    assert obstacle("nehalem") == ""
    assert obstacle("zen") == "zen needs a processor with fma, which this one lacks"


def test_numpy_is_asked_for_the_names_of_its_release(monkeypatch) -> None:
    monkeypatch.delenv("NPY_DISABLE_CPU_FEATURES", raising=False)
    simd = {"baseline": ["SSE", "SSE2"], "found": ["SSE42", "AVX2", "FMA3", "AVX512F", "AVX512_SKX"]}
    monkeypatch.setattr("numpy.show_config", lambda mode: {"SIMD Extensions": simd})
    monkeypatch.setattr(processors, "obstacle", lambda name: "")
    assert environment("nehalem")["NPY_DISABLE_CPU_FEATURES"] == "AVX2 FMA3 AVX512F AVX512_SKX"
    assert environment("zen")["NPY_DISABLE_CPU_FEATURES"] == "AVX512F AVX512_SKX"
    assert (environment("native"), environment("threads")["OMP_NUM_THREADS"]) == ({}, "2")


def test_a_command_runs_under_each_machine_and_what_cannot_is_counted(monkeypatch, capfd) -> None:
    monkeypatch.setattr(processors, "obstacle", lambda name: "no such thing" if name == "zen" else "")
    monkeypatch.delenv("THREADS", raising=False)
    code = "import os, sys; t = os.environ.get('THREADS', 'one'); print('saw', t); sys.exit(t == '2')"
    assert run_under(["native", "threads", "zen"], [sys.executable, "-c", code]) == 1
    told = capfd.readouterr().out
    assert "saw one" in told
    assert "saw 2" in told
    assert "zen       skipped: no such thing" in told
    assert "1 passed, 1 failed, 1 skipped" in told
    assert main(["--only", "native", "--", sys.executable, "-c", "pass"]) == 0
    assert main(["--only", "threads", "native", "--", sys.executable, "-c", code]) == 1


# --- perturbations


def test_shaken_functions_are_off_by_a_little_and_equal_calls_by_as_much() -> None:
    code = """
import math
import numpy as np, torch
x = np.linspace(0.1, 3, 99)
plain = np.exp(x)
import tests.shaken
found = {"numpy": np.exp(x), "torch": torch.from_numpy(x).exp().numpy(), "math": np.array([math.exp(each) for each in x])}
for name, values in found.items():
    print(name, 0.8 < abs(values / plain - 1).max() * 2**46 < 1.1)
print("equal", (np.exp(x) == found["numpy"]).all() and np.exp(x[3]) == found["numpy"][3], math.log(1.0) == 0, np.exp(np.inf) == np.inf)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == "numpy True torch True math True equal True True True".split()


def test_every_default_machine_of_the_measurement_is_known(monkeypatch) -> None:
    monkeypatch.setattr(processors, "obstacle", lambda name: "")
    assert {name: perturbation(name) for name in DEFAULT}["shake-2"] == {"ATTNLIB_SHAKE": "2"}
    assert perturbation("hard-1") == {"ATTNLIB_SHAKE": "1@40"}
    assert perturbation("readable") == {"ATTNLIB_KERNELS": "reference"}
    with pytest.raises(UserError, match="no machine 'pentium'; machines: native, nehalem"):
        perturbation("pentium")


def test_a_shaken_stream_is_off_by_a_last_bit_at_most_and_whole_numbers_stay(monkeypatch) -> None:
    plain = {"normal": stream(3, "noise").standard_normal((4, 500)), "whole": stream(3, "noise").integers(10, size=99)}
    monkeypatch.setenv("ATTNLIB_SHAKE", "1")
    first = stream(3, "noise").standard_normal((4, 500))
    assert first == pytest.approx(
        plain["normal"], rel=8 * 2.0**-52, abs=0
    )  # one unit, and the rounding of the product: a quarter of it
    assert 0.6 < (first != plain["normal"]).mean() < 0.73  # two of three
    assert (stream(3, "noise").integers(10, size=99) == plain["whole"]).all()
    assert (stream(3, "noise").standard_normal((4, 500)) == first).all()
    monkeypatch.setenv("ATTNLIB_SHAKE", "2")
    assert (stream(3, "noise").standard_normal((4, 500)) != first).any()
    monkeypatch.setenv("ATTNLIB_SHAKE", "1@40")
    hard = stream(3, "noise").standard_normal((4, 500)) / plain["normal"] - 1
    assert abs(hard).max() == pytest.approx(2.0**-40, rel=0, abs=1e-15)


@pytest.mark.parametrize("text", ["x", "-1", "1.5", "1@", "1@0", "1@53", "@40"])
def test_a_perturbation_of_another_form_is_refused(monkeypatch, text: str) -> None:
    monkeypatch.setenv("ATTNLIB_SHAKE", text)
    with pytest.raises(ValueError, match="ATTNLIB_SHAKE must be a whole number, or NUMBER@BITS"):
        stream(0, "noise")
