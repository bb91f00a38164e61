"""Other processors on this one: the switches of numpy, torch, MKL, OpenBLAS and numba that choose their code by processor.

    python -m bookkit.pages.processors                                 which machines can be emulated here
    python -m bookkit.pages.processors -- make unit nbval              a command under each of them (`make processors`)
    python -m bookkit.pages.processors --only nehalem threads -- ...   under these

An emulated machine takes, in these libraries and as far as their switches reach, the branch that the real one would take: other
vector widths, other orders of sums, with or without fused multiply-adds. The system's own mathematics stays. What it computes
differs from this processor's own results in the last bits.
The switches name code for x86-64, and one can only step down from what this processor has.

Which switch acts was measured (torch 2.13, numpy 2.4, an AMD processor), by hashing the results of products, exponentials, sums and
eigenvalues: MKL_ENABLE_INSTRUCTIONS acts on Intel's processors alone, MKL_CBWR on all; numpy 2.4 knows X86_V3 and X86_V4
and passes over AVX2 and FMA3, the names of older releases, in silence: so the names are asked from numpy.
"""

import argparse
import os
import platform
import subprocess
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from bookkit.parser import Parser, answered, say

_OLD = ("SSE", "SSE2", "SSE3", "SSSE3", "SSE41", "SSE42", "POPCNT", "X86_V2")
_AVX2 = (*_OLD, "AVX", "F16C", "FMA3", "AVX2", "X86_V3")
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class CannotEmulate(Exception):
    """This processor cannot stand in for that machine. `str()` is the reason."""


@dataclass(frozen=True)
class Machine:
    """A machine that this one can stand in for.

    `needs`: flags that the processor must have (LLVM's names); `switches`: environment variables; `numpy`: the instruction sets that
    numpy may use, None for all.
    """

    what: str
    needs: tuple[str, ...] = ()
    switches: Mapping[str, str] = field(default_factory=dict)
    numpy: tuple[str, ...] | None = None


# NUMBA_CPU_FEATURES: left alone, numba would take those of the processor it runs on.
MACHINES = {
    "native": Machine("this processor as it is"),
    "nehalem": Machine(
        "x86-64 without AVX and without fused multiply-adds, as Intel's of 2008",
        ("sse4.2",),
        {
            "ATEN_CPU_CAPABILITY": "default",
            "MKL_CBWR": "COMPATIBLE",
            "OPENBLAS_CORETYPE": "Nehalem",
            "ONEDNN_MAX_CPU_ISA": "SSE41",
            "NUMBA_CPU_NAME": "nehalem",
            "NUMBA_CPU_FEATURES": "",
        },
        _OLD,
    ),
    "zen": Machine(
        "x86-64 with AVX2 and MKL's code for AMD, as AMD's of 2017",
        ("avx2", "fma"),
        {
            "ATEN_CPU_CAPABILITY": "avx2",
            "MKL_ENABLE_INSTRUCTIONS": "AVX2",
            "OPENBLAS_CORETYPE": "Zen",
            "ONEDNN_MAX_CPU_ISA": "AVX2",
            "NUMBA_CPU_NAME": "znver1",
            "NUMBA_CPU_FEATURES": "+avx,+avx2,+fma,+f16c,+bmi,+bmi2",
        },
        _AVX2,
    ),
    "threads": Machine(
        "this processor, sums shared by two threads",
        (),
        {**dict.fromkeys(_THREADS, "2"), "THREADS": "2", "BOOKKIT_THREADS": "2"},
    ),
}

# Stored outputs are made by this machine wherever it can be emulated: a processor with AVX computes differently, so whoever
# compares a page with its stored outputs on one compares two machines.
STORING = "nehalem"


def environment(name: str) -> dict[str, str]:
    """The environment variables under which a new process computes as the machine `name` would.

    Raises `CannotEmulate` with the reason where this processor cannot, KeyError for an unknown name.
    """
    machine = MACHINES[name]
    if reason := obstacle(name):
        raise CannotEmulate(reason)
    switches = dict(machine.switches)
    if machine.numpy is not None and (cut := _numpy_beyond(machine.numpy)):
        switches["NPY_DISABLE_CPU_FEATURES"] = " ".join(cut)
    return switches


def obstacle(name: str) -> str:
    """Why this processor cannot stand in for the machine `name`, or nothing."""
    machine = MACHINES[name]
    if not machine.needs:
        return ""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return f"{name} is an x86-64 machine and this processor is {platform.machine()}: run it on one"
    import llvmlite.binding

    has = llvmlite.binding.get_host_cpu_features()
    missing = [flag for flag in machine.needs if not has.get(flag)]
    return f"{name} needs a processor with {', '.join(missing)}, which this one lacks" if missing else ""


def _numpy_beyond(allowed: Sequence[str]) -> list[str]:
    """numpy's instruction sets, by the names of this release, that this processor has and `allowed` does not hold."""
    import numpy

    found = numpy.show_config(mode="dicts")["SIMD Extensions"].get("found", [])
    hidden = os.environ.get("NPY_DISABLE_CPU_FEATURES", "").split()  # where this process is itself emulated
    return [name for name in [*found, *hidden] if name not in allowed]


def storing() -> tuple[str, dict[str, str]]:
    """The machine that stores outputs here, and its variables: `STORING`, or this processor where that cannot be emulated."""
    return (own_name(), {}) if obstacle(STORING) else (STORING, environment(STORING))


def own_name() -> str:
    """What outputs say that this processor stored as it is: "native aarch64"."""
    return f"native {platform.machine()}"


def another(stored_on: Collection[str]) -> dict[str, str]:
    """Variables that make this machine another one than those that stored outputs; none where it is another one already."""
    return environment("threads") if own_name() in stored_on else {}


# --- a command under each machine ------------------------------------------------------------------------------------


def run_under(names: Sequence[str], command: Sequence[str]) -> int:
    """Run `command` under each machine, print a line for each, and return how many failed. What cannot be emulated is counted."""
    failed, skipped, lines = 0, 0, []
    for name in names:
        if reason := obstacle(name):
            skipped += 1
            lines.append(f"{name:<10}skipped: {reason}")
            continue
        say(f"\n=== {name}: {MACHINES[name].what}")
        start = time.monotonic()
        status = subprocess.run(command, env={**os.environ, **environment(name)}, check=False).returncode
        failed += status != 0
        lines.append(
            f"{name:<10}{'passed' if status == 0 else f'FAILED ({status})'} in {time.monotonic() - start:.0f} s"
        )
    say("", *lines, f"{len(names) - failed - skipped} passed, {failed} failed, {skipped} skipped")
    return failed


def main(argv: Sequence[str] | None = None) -> int:
    """Entry of `python -m bookkit.pages.processors`: 0 when the command passed under all machines that can be emulated."""
    parser = Parser(prog="python -m bookkit.pages.processors", description="Run a command as other processors would.")
    others = [name for name in MACHINES if name != "native"]
    parser.add_argument(
        "--only", nargs="+", choices=list(MACHINES), default=others, help="these machines (default: all others)"
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="what to run under each")
    options = parser.parse_args(argv)
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if command:
        return min(1, run_under(options.only, command))
    for name, machine in MACHINES.items():
        say(f"{name:<10}{machine.what}" + (f" (not here: {reason})" if (reason := obstacle(name)) else ""))
    return 0


if __name__ == "__main__":
    sys.exit(answered("processors", main))
