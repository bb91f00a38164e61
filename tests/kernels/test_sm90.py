"""What reads machine code sees what is there: loops, loops in loops, spilled registers, wide loads, errors."""

import importlib.util
import os
from pathlib import Path

import pytest

from tests.kernels import sm90

TOYS = "tests.kernels.sm90_toys"
SUM = {"x": "*fp32", "out": "*fp32", "steps": "i32"}


def many_sums(maxnreg: int | None = None) -> sm90.Program:
    return sm90.compiled(TOYS, "many_sums", SUM, {"SIZE": 128, "COUNT": 40}, num_warps=4, maxnreg=maxnreg)


def test_a_loop_is_found_with_its_instructions():
    program = sm90.compiled(TOYS, "repeated_sum", SUM, {"SIZE": 128}, num_warps=4)
    assert 8 <= program.registers <= 64
    assert (program.stack, program.shared, program.local_loads, program.local_stores) == (0, 0, 0, 0)
    # ptxas unrolls by four: a loop of four rows a turn, and one for the rest.
    assert [(loop.opcodes["LDG"], loop.opcodes["FADD"], loop.innermost) for loop in program.loops] == [
        (4, 4, True),
        (1, 1, True),
    ]
    assert program.longest_inner == program.loops[0]
    assert program.loops[0].instructions == program.loops[0].opcodes.total()
    assert ".target sm_90" in program.ptx
    assert program.opcodes["STG"] == 1
    assert program.seconds > 0


def test_a_loop_in_a_loop_is_counted_twice_and_called_innermost_once():
    program = sm90.compiled(TOYS, "nested", {**SUM, "outer": "i32"}, {"SIZE": 128}, num_warps=4)
    outer = program.loops[0]
    assert not outer.innermost
    assert outer.opcodes["STG"] >= 1
    assert outer.instructions > program.longest_inner.instructions
    assert outer.opcodes["MUFU"] >= sum(loop.opcodes["MUFU"] for loop in program.inner)
    assert program.longest_inner.opcodes["MUFU"] == 4
    assert program.longest_inner.opcodes["STG"] == 0


def test_spilled_registers_are_seen_and_enough_registers_spill_nothing():
    free, forced = many_sums(), many_sums(maxnreg=32)
    assert free.registers > 40
    assert free.stack == free.local_loads == free.local_stores == 0
    assert free.longest_inner.local_loads == free.longest_inner.local_stores == 0
    assert forced.registers <= 32
    assert forced.stack >= 4 * (40 - 32)
    assert forced.local_loads > 8
    assert forced.local_stores > 8
    assert forced.longest_inner.local_loads > 8
    assert forced.longest_inner.local_stores > 8


def test_pointers_are_taken_to_be_aligned_so_that_loads_are_wide():
    program = sm90.compiled(TOYS, "repeated_sum", SUM, {"SIZE": 512}, num_warps=4)
    assert "ld.global.v4" in program.ptx


def test_the_same_question_is_compiled_once():
    assert many_sums() is many_sums()


def test_the_compiler_never_interprets(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert sm90.compiled(TOYS, "repeated_sum", SUM, {"SIZE": 64}, num_warps=1).registers > 0
    assert os.environ["TRITON_INTERPRET"] == "1"


def test_values_that_are_not_numbers_reach_the_kernel():
    program = sm90.compiled(
        TOYS, "typed", {"x": "*fp64", "out": "*fp64"}, {"KIND": "tl.float64", "TWICE": True}, num_warps=1
    )
    assert program.opcodes["DADD"] + program.opcodes["DMUL"] >= 1
    single = sm90.compiled(
        TOYS, "typed", {"x": "*fp32", "out": "*fp32"}, {"KIND": "tl.float32", "TWICE": None}, num_warps=1
    )
    assert single.opcodes["DADD"] + single.opcodes["DMUL"] == 0


@pytest.mark.parametrize(
    ("kernel", "signature", "constexprs", "words"),
    [
        ("no_such_kernel", SUM, {"SIZE": 64}, "no_such_kernel"),
        ("repeated_sum", {"x": "*fp32"}, {"SIZE": 64}, "repeated_sum takes x, out, steps, SIZE; told about SIZE, x"),
        ("repeated_sum", SUM, {"SIZE": 100}, "power of 2"),
    ],
)
def test_what_cannot_be_compiled_is_an_error_with_the_compilers_words(kernel, signature, constexprs, words):
    sm90.compiled(TOYS, "repeated_sum", SUM, {"SIZE": 128}, num_warps=4)  # skips where nothing can be compiled
    with pytest.raises(RuntimeError, match=words):
        sm90.compiled(TOYS, kernel, signature, constexprs, num_warps=1)


def test_a_compiler_that_does_not_end_is_stopped():
    sm90.compiled(TOYS, "repeated_sum", SUM, {"SIZE": 128}, num_warps=4)
    with pytest.raises(RuntimeError, match=r"within 0.01 s"):
        sm90.compiled(TOYS, "repeated_sum", SUM, {"SIZE": 256}, num_warps=4, timeout=0.01)


def test_an_absent_triton_or_assembler_is_a_skip_that_says_so(monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as patch:
        patch.setattr(importlib.util, "find_spec", lambda name: None)
        with pytest.raises(pytest.skip.Exception, match="Triton is not installed"):
            sm90.compiled(TOYS, "repeated_sum", SUM, {"SIZE": 128}, num_warps=4)
    if importlib.util.find_spec("triton") is not None:
        monkeypatch.setattr(sm90, "_tools", lambda: None)
        with pytest.raises(pytest.skip.Exception, match="comes without ptxas and cuobjdump"):
            sm90.compiled(TOYS, "repeated_sum", SUM, {"SIZE": 128}, num_warps=4)


SASS = """
\t\tFunction : first
        /*0000*/                   LDC R1, c[0x0][0x28] ;   /* 0x00000a00ff017b82 */
                                                            /* 0x000fe20000000800 */
        /*0010*/                   LDL.LU R2, [R1+0x8] ;    /* 0x0 */
        /*0020*/              @!P0 BRA 0x50 ;               /* 0x0 */
        /*0030*/                   FFMA R2, R2, R2, R2 ;    /* 0x0 */
        /*0040*/             @P1   BRA 0x10 ;               /* 0x0 */
        /*0050*/                   STL [R1], R2 ;           /* 0x0 */
        /*0060*/             @!UP0 BRA.U 0x10 ;             /* 0x0 */
        /*0070*/                   EXIT ;                   /* 0x0 */
        /*0080*/                   BRA 0x80;                /* 0x0 */
\t\tFunction : second
        /*0000*/                   LDL R4, [R1] ;           /* 0x0 */
        /*0010*/                   EXIT ;                   /* 0x0 */
"""
RESOURCES = (
    "Function first:\n  REG:40 STACK:16 SHARED:64 LOCAL:0\n Function second:\n  REG:12 STACK:8 SHARED:0 LOCAL:0\n"
)


def test_reading_by_hand():
    program = sm90.read(SASS, RESOURCES, "", 0, 1.0)
    assert (program.registers, program.stack, program.shared) == (40, 16, 64)
    assert (program.local_loads, program.local_stores) == (2, 1)
    # Two branches to 0x10 are one loop up to the later one; the branch to itself at the end is none.
    (loop,) = program.loops
    assert (loop.instructions, loop.local_loads, loop.local_stores, loop.innermost) == (6, 1, 1, True)
    assert loop.opcodes["BRA"] == 3
    with pytest.raises(RuntimeError, match="no instructions"):
        sm90.read("nothing", RESOURCES, "", 0, 1.0)
    with pytest.raises(RuntimeError, match="no resource usage"):
        sm90.read(SASS, "nothing", "", 0, 1.0)


def test_the_tools_are_found_without_importing_triton():
    found = sm90._tools()
    if found is None:
        pytest.skip("no Triton with ptxas and cuobjdump here, so there is nothing to find")
    assert isinstance(found, Path)
    assert (found / "ptxas").is_file()
