"""The single head's GPU program compiled for sm_90 without a GPU: registers, spills, loads that may be stale."""

import pytest

from tests.kernels import sm90

FLOATS = ("gram", "coefficients", "labels", "rates", "scores", "kept", "outputs", "attentions")
NUMBERS = ("runs", "n", "m", "sixteens", "count", "first", "last", "closing", "place_at_first")


@pytest.fixture(scope="module", params=["fp32", "fp64"])
def program(request):
    """(dtype, machine code), with the constants of a launch."""
    pytest.importorskip("triton", reason="Triton is not installed: pip install 'attnlib[gpu]'")
    from attnlib.kernels.single_head import gpu

    signature = {name: f"*{request.param}" for name in FLOATS}
    signature |= {"classes": "*i64", "marks": "*i64"} | dict.fromkeys(NUMBERS, "i32")
    constants = {"ROWS": gpu.ROWS, "COLUMNS": gpu.COLUMNS}
    return request.param, sm90.compiled(gpu.__name__, "descend", signature, constants, num_warps=gpu.WARPS)


def test_registers(program):
    """Eight warps: 255 registers a thread would be the most; a second program of float32 must find room beside the first."""
    dtype, code = program
    assert code.registers <= (128 if dtype == "fp32" else 200)


def test_nothing_is_spilled(program):
    _, code = program
    assert code.local_loads == code.local_stores == code.stack == 0


def test_no_load_may_be_stale(program):
    """Coefficients and scores change during the launch: loads that assume constant memory would be wrong."""
    _, code = program
    assert "ld.global.nc" not in code.ptx


def test_the_product_is_fused_and_reads_neighbours_at_once(program):
    """Sixteen rows of 256 columns in two columns of coefficients: 32 fused operations a thread, and wide loads."""
    dtype, code = program
    operation = "FFMA" if dtype == "fp32" else "DFMA"
    product = max(code.inner, key=lambda loop: loop.opcodes[operation] / loop.instructions)
    assert product.opcodes[operation] == 32
    assert product.opcodes["LDG"] <= (12 if dtype == "fp32" else 24)
    assert product.instructions <= (120 if dtype == "fp32" else 190)
    assert product.opcodes["BAR"] == 0
    assert ("ld.global.v4" if dtype == "fp32" else "ld.global.v2") in code.ptx
