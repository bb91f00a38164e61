"""Triton kernels compiled for sm_90 without a GPU, and what came out: registers, spills, loops, instructions.

The compiler needs no GPU, only to be asked for its target by name; `ptxas` and `cuobjdump` are in Triton's wheel. In these
tests Triton is in its interpreter mode, which is fixed at its import, so the compiler works in a process of its own, one for
all questions of a test process.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import importlib.util
import json
import os
import re
import select
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

__all__ = ["Loop", "Program", "compiled", "read"]

ROOT = Path(__file__).resolve().parents[2]
_TOOLS = ("ptxas", "cuobjdump")

_FUNCTION = re.compile(r"^\s*Function : (\S+)", re.M)
_INSTRUCTION = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(?:@!?(\w+)\s+)?([A-Z][\w.]*)([^;]*);")
_RESOURCE = re.compile(r"REG:(\d+) STACK:(\d+) SHARED:(\d+)")


@dataclass(frozen=True)
class Loop:
    """The instructions between a loop's first one and its last branch back to it, those of loops inside it too.

    Args:
        instructions: how many.
        local_loads, local_stores: accesses to local memory (LDL, STL): registers that were spilled.
        opcodes: count by name without modifiers ("FFMA", "LDG", "BAR", ...).
        innermost: whether no other loop lies inside.
    """

    instructions: int
    local_loads: int
    local_stores: int
    opcodes: Counter[str]
    innermost: bool


@dataclass(frozen=True)
class Program:
    """A compiled kernel.

    Args:
        registers: per thread.
        stack: bytes of local memory per thread (spilled registers, and arrays with a computed index).
        shared: bytes of shared memory per program; 0 where the launch decides (Triton passes it then: `launch_shared`).
        launch_shared: bytes of shared memory that a launch asks for.
        local_loads, local_stores: accesses to local memory in the whole code.
        loops: in the order of their first instructions, an outer loop before those inside it.
        opcodes: of the whole code.
        ptx: the virtual assembly, to look for words such as "ld.global.nc".
        seconds: time of the compilation; near zero when Triton's cache had it.
    """

    registers: int
    stack: int
    shared: int
    launch_shared: int
    local_loads: int
    local_stores: int
    loops: tuple[Loop, ...]
    opcodes: Counter[str]
    ptx: str
    seconds: float

    @property
    def inner(self) -> tuple[Loop, ...]:
        """The loops with no loop inside."""
        return tuple(loop for loop in self.loops if loop.innermost)

    @property
    def longest_inner(self) -> Loop:
        """The innermost loop of most instructions: where the time goes. Raises ValueError if nothing loops."""
        return max(self.inner, key=lambda loop: loop.instructions)


def _tools() -> Path | None:
    """Where Triton keeps its assembler, or None; Triton is not imported for that."""
    found = importlib.util.find_spec("triton")
    folders = [
        Path(place) / "backends" / "nvidia" / "bin" for place in (found.submodule_search_locations if found else [])
    ]
    return next((f for f in folders if all((f / tool).is_file() for tool in _TOOLS)), None)


def compiled(
    module: str,
    kernel: str,
    signature: Mapping[str, str],
    constexprs: Mapping[str, object],
    *,
    num_warps: int,
    maxnreg: int | None = None,
    enable_fp_fusion: bool = True,
    timeout: float = 300.0,
) -> Program:
    """Compile `module.kernel` for sm_90 and read the machine code. Skips the test where Triton or its assembler is missing.

    Args:
        module: as in `import`; it may import torch and triton.
        kernel: name of the function under @triton.jit.
        signature: type of every argument that is not a constexpr: "*fp32", "*i64", "i32", "fp32", ... Pointers are taken
            to be multiples of 16 bytes, as torch's are; an argument that is always 1 belongs into `constexprs`.
        constexprs: value of every other one: whole numbers, floats, strings, booleans, None, or tuples of these;
            "tl.float32" and its like mean that type of triton.language.
        num_warps, maxnreg, enable_fp_fusion: as in a launch.
        timeout: seconds.

    The same question is compiled once per test process. Raises RuntimeError with the compiler's words if it fails.
    """
    if importlib.util.find_spec("triton") is None:
        pytest.skip("Triton is not installed, so nothing can be compiled for sm_90: pip install 'attnlib[gpu]'")
    if _tools() is None:
        pytest.skip(f"this build of Triton comes without {' and '.join(_TOOLS)}, so nothing can be compiled for sm_90")
    options = {"num_warps": num_warps, "enable_fp_fusion": enable_fp_fusion}
    if maxnreg is not None:
        options["maxnreg"] = maxnreg
    question = {
        "module": module,
        "kernel": kernel,
        "signature": dict(signature),
        "constexprs": [[name, repr(value)] for name, value in constexprs.items()],
        "options": options,
    }
    return _compiled(json.dumps(question), timeout)


@functools.cache
def _compiled(question: str, timeout: float) -> Program:
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        compiler = _compiler()
        print(json.dumps([question, str(answer)]), file=compiler.stdin, flush=True)
        if not select.select([compiler.stdout], [], [], timeout)[0]:
            _end(compiler)
            raise RuntimeError(f"no machine code for sm_90 within {timeout:g} s: {question}")
        if compiler.stdout.readline() != "done\n":
            _end(compiler)
            raise RuntimeError(f"the compiler for sm_90 ended at {question}")
        found = json.loads(answer.read_text(encoding="utf-8"))
    if "error" in found:
        raise RuntimeError(f"cannot be compiled for sm_90: {question}\n{found['error'][-6000:]}")
    return read(**found)


@functools.cache
def _compiler() -> subprocess.Popen:
    """The compiler's process, which answers one question after the other: its imports take longer than most of them."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    made = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "tests.kernels.sm90"],
        env=environment, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    atexit.register(_end, made)
    return made


def _end(compiler: subprocess.Popen) -> None:
    """Kill it; the next question is for a new one."""
    _compiler.cache_clear()
    with compiler:
        compiler.kill()


def read(sass: str, resources: str, ptx: str, launch_shared: int, seconds: float) -> Program:
    """The program in the words of `cuobjdump -sass` and `cuobjdump -res-usage`."""
    used = [tuple(map(int, match)) for match in _RESOURCE.findall(resources)]
    if not used:
        raise RuntimeError(f"no resource usage in what cuobjdump says: {resources[-500:]}")
    pieces = _FUNCTION.split(sass)[1:]
    codes = [_instructions(text) for text in pieces[1::2]]
    if not any(codes):
        raise RuntimeError(f"no instructions in what cuobjdump says: {sass[-500:]}")
    opcodes = Counter(name for code in codes for _, name, _ in code)
    registers, stack, shared = (max(column) for column in zip(*used, strict=True))
    return Program(
        registers=registers,
        stack=stack,
        shared=shared,
        launch_shared=launch_shared,
        local_loads=opcodes["LDL"],
        local_stores=opcodes["STL"],
        loops=tuple(loop for code in codes for loop in _loops(code)),
        opcodes=opcodes,
        ptx=ptx,
        seconds=seconds,
    )


def _instructions(text: str) -> list[tuple[int, str, str]]:
    """(address, name without modifiers, operands) of every instruction of one function."""
    return [(int(at, 16), name.split(".")[0], rest) for at, _, name, rest in _INSTRUCTION.findall(text)]


def _loops(code: list[tuple[int, str, str]]) -> list[Loop]:
    """Branches back make loops; all branches to one place belong to one loop. The last instruction of a program, a branch
    to itself that is never reached, is none."""
    ends: dict[int, int] = {}
    for at, name, rest in code:
        target = re.search(r"0x([0-9a-f]+)\s*$", rest) if name == "BRA" else None
        if target and int(target[1], 16) < at:
            start = int(target[1], 16)
            ends[start] = max(ends.get(start, 0), at)
    loops = []
    for start, end in sorted(ends.items(), key=lambda span: (span[0], -span[1])):
        inside = Counter(name for at, name, _ in code if start <= at <= end)
        innermost = not any(start <= other and last <= end for other, last in ends.items() if other != start)
        loops.append(Loop(inside.total(), inside["LDL"], inside["STL"], inside, innermost))
    return loops


def _value(text: str, language: object) -> object:
    import ast

    value = ast.literal_eval(text)
    return getattr(language, value.removeprefix("tl.")) if isinstance(value, str) and value.startswith("tl.") else value


def _answer(question: Mapping, target: Path) -> None:
    """In the compiler's own process: compile, take the code apart, write it down."""
    import triton
    import triton.language as tl
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    function = getattr(importlib.import_module(question["module"]), question["kernel"])
    constexprs = {name: _value(text, tl) for name, text in question["constexprs"]}
    missing = set(question["signature"]) | set(constexprs)
    if missing != set(function.arg_names):
        raise ValueError(
            f"{question['kernel']} takes {', '.join(function.arg_names)}; told about {', '.join(sorted(missing))}"
        )
    signature = {
        name: "constexpr" if name in constexprs else question["signature"][name] for name in function.arg_names
    }
    pointers = [(i,) for i, kind in enumerate(signature.values()) if kind.startswith("*")]
    source = ASTSource(
        fn=function,
        signature=signature,
        constexprs=constexprs,
        attrs={at: [["tt.divisibility", 16]] for at in pointers},
    )
    start = time.perf_counter()
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=question["options"])
    seconds = time.perf_counter() - start
    cubin = target.with_suffix(".cubin")
    cubin.write_bytes(made.asm["cubin"])

    def dump(what: str) -> str:
        return subprocess.run([_tools() / "cuobjdump", what, cubin], capture_output=True, text=True, check=True).stdout

    found = {
        "sass": dump("-sass"),
        "resources": dump("-res-usage"),
        "ptx": made.asm["ptx"],
        "launch_shared": made.metadata.shared,
        "seconds": seconds,
    }
    target.write_text(json.dumps(found), encoding="utf-8")


def _serve() -> None:
    """Answer questions until there are no more: what the compiler prints goes to stderr, stdout says when each is done."""
    told, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        question, target = json.loads(line)
        try:
            _answer(json.loads(question), Path(target))
        except Exception:
            Path(target).write_text(json.dumps({"error": traceback.format_exc()}), encoding="utf-8")
        print("done", file=told, flush=True)


if __name__ == "__main__":
    _serve()
