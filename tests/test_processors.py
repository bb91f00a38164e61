"""Other processors emulated: switches that act, machines that cannot be had, a command under several of them."""

import os
import subprocess
import sys

import pytest

from attnlib.randomness import stream
from bookkit.pages import processors
from bookkit.pages.catalogue import UserError
from bookkit.pages.processors import MACHINES, CannotEmulate, environment, main, obstacle, run_under
from bookkit.pages.stability import DEFAULT, perturbation

PROBE = """
import hashlib, numpy, torch
from numba import njit

@njit(fastmath=True)
def total(values):
    found = 0.0
    for value in values:
        found += value * value * 1.3
    return found

a = numpy.random.default_rng(0).standard_normal((151, 237))
t = torch.from_numpy(a)
results = {"numpy": numpy.exp(a), "openblas": a @ a.T, "mkl": (t @ t.T).numpy(), "torch": torch.nn.functional.softplus(t).numpy(),
           "numba": numpy.array(total(a.ravel()))}
for name, value in results.items():
    print(name, hashlib.sha256(numpy.ascontiguousarray(value).tobytes()).hexdigest())
"""


def results(machine: str) -> dict[str, str]:
    emulated = {name for known in MACHINES.values() for name in known.switches} | {"NPY_DISABLE_CPU_FEATURES"}
    plain = {name: value for name, value in os.environ.items() if name not in emulated}  # these tests may be emulated
    switches = {**plain, "OMP_NUM_THREADS": "1", **environment(machine)}
    done = subprocess.run([sys.executable, "-c", PROBE], env=switches, capture_output=True, text=True, check=True)
    return dict(line.split() for line in done.stdout.splitlines())


def test_every_library_computes_differently_on_the_machine_that_stores() -> None:
    """Should a release rename a switch, this says so: numpy 2.4 did, and passed over the old name in silence."""
    if reason := obstacle(processors.STORING):
        pytest.skip(reason)
    if obstacle("haswell"):
        pytest.skip(f"this processor is as old as the one that is emulated: {obstacle('haswell')}")
    own, old = results("native"), results(processors.STORING)
    assert [name for name in own if own[name] == old[name]] == []


def test_a_machine_that_cannot_be_had_is_told_with_its_reason(monkeypatch) -> None:
    monkeypatch.setattr(processors.platform, "machine", lambda: "aarch64")
    assert obstacle("native") == obstacle("threads") == ""
    with pytest.raises(CannotEmulate, match="nehalem is an x86-64 machine and this processor is aarch64"):
        environment("nehalem")
    monkeypatch.setattr(processors.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr("llvmlite.binding.get_host_cpu_features", lambda: {"sse4.2": True, "avx2": True})
    assert obstacle("nehalem") == ""
    assert obstacle("haswell") == "haswell needs a processor with fma, which this one lacks"


def test_numpy_is_asked_for_the_names_of_its_release(monkeypatch) -> None:
    monkeypatch.delenv("NPY_DISABLE_CPU_FEATURES", raising=False)
    found = {
        "SIMD Extensions": {"baseline": ["SSE", "SSE2"], "found": ["SSE42", "AVX2", "FMA3", "AVX512F", "AVX512_SKX"]}
    }
    monkeypatch.setattr("numpy.show_config", lambda mode: found)
    monkeypatch.setattr(processors, "obstacle", lambda name: "")
    assert environment("nehalem")["NPY_DISABLE_CPU_FEATURES"] == "AVX2 FMA3 AVX512F AVX512_SKX"
    assert environment("zen")["NPY_DISABLE_CPU_FEATURES"] == "AVX512F AVX512_SKX"
    assert "NPY_DISABLE_CPU_FEATURES" not in environment("skylake")
    assert environment("native") == {}
    assert environment("threads")["OMP_NUM_THREADS"] == "2"


def test_a_command_runs_under_each_machine_and_what_cannot_is_counted(monkeypatch, capfd) -> None:
    monkeypatch.setattr(processors, "obstacle", lambda name: "no such thing" if name == "skylake" else "")
    monkeypatch.delenv("THREADS", raising=False)
    code = "import os, sys; t = os.environ.get('THREADS', 'one'); print('saw', t); sys.exit(t == '2')"
    assert run_under(["native", "threads", "skylake"], [sys.executable, "-c", code]) == 1
    told = capfd.readouterr().out
    assert "saw one" in told
    assert "saw 2" in told
    assert "skylake   skipped: no such thing" in told
    assert "1 passed, 1 failed, 1 skipped" in told
    assert main(["--only", "native", "--", sys.executable, "-c", "pass"]) == 0
    assert main(["--only", "threads", "native", "--", sys.executable, "-c", code]) == 1


def test_the_list_names_every_machine(capsys) -> None:
    assert main([]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(MACHINES)


# --- perturbations


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
    assert abs(first / plain["normal"] - 1).max() <= 2 * 2.0**-52  # one unit, and the rounding of the product
    assert 0.6 < (first != plain["normal"]).mean() < 0.73  # two of three
    assert (stream(3, "noise").integers(10, size=99) == plain["whole"]).all()
    assert (stream(3, "noise").standard_normal((4, 500)) == first).all()
    monkeypatch.setenv("ATTNLIB_SHAKE", "2")
    assert (stream(3, "noise").standard_normal((4, 500)) != first).any()
    monkeypatch.setenv("ATTNLIB_SHAKE", "1@40")
    hard = stream(3, "noise").standard_normal((4, 500)) / plain["normal"] - 1
    assert abs(abs(hard).max() - 2.0**-40) < 1e-15


@pytest.mark.parametrize("text", ["x", "-1", "1.5", "1@", "1@0", "1@53", "@40"])
def test_a_perturbation_of_another_form_is_refused(monkeypatch, text: str) -> None:
    monkeypatch.setenv("ATTNLIB_SHAKE", text)
    with pytest.raises(ValueError, match="ATTNLIB_SHAKE must be a whole number, or NUMBER@BITS"):
        stream(0, "noise")
