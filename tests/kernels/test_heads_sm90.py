"""The heads' GPU program compiled for sm_90 without a GPU: registers, spills, loads that may be stale."""

import pytest

from tests.kernels import sm90

FLOATS = (
    "gram", "coefficients", "velocity", "labels", "rates", "factors", "numbers", "scratch", "kept", "outputs", "attentions",
)  # fmt: skip
NUMBERS = (
    "runs", "n", "q", "sixteens", "heads", "values", "signals", "batch", "count", "steps", "first", "last", "closing",
    "place_at_first",
)  # fmt: skip
PLAIN = {"KIND": 0, "PREPARE": 0, "MOMENTUM": 0, "SIGNALS": 2}  # gradient descent of softmax heads
MOST = {"KIND": 2, "PREPARE": 2, "MOMENTUM": 2, "SIGNALS": 4}  # entmax, both blocks normalised, Nesterov


@pytest.fixture(scope="module", params=[("fp32", PLAIN), ("fp64", PLAIN), ("fp32", MOST), ("fp64", MOST)], ids=str)
def program(request):
    """(dtype, machine code), with the constants of a launch."""
    pytest.importorskip("triton", reason="Triton is not installed: pip install 'attnlib[gpu]'")
    from attnlib.kernels.heads import gpu

    dtype, shape = request.param
    signature = {name: f"*{dtype}" for name in FLOATS}
    signature |= dict.fromkeys(("classes", "batches", "marks"), "*i64") | dict.fromkeys(NUMBERS, "i32")
    constants = {**shape, "ROWS": gpu.ROWS, "COLUMNS": gpu.COLUMNS}
    return dtype, sm90.compiled(gpu.__name__, "descend", signature, constants, num_warps=gpu.WARPS)


def test_registers(program):
    """Eight warps: 255 registers a thread are all there are; of float32 a second program must find room beside the first."""
    dtype, code = program
    assert code.registers <= (128 if dtype == "fp32" else 255)


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
