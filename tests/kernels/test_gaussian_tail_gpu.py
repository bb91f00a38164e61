"""The population error's GPU program: interpreted (or run) against 30 digits and the reference, and compiled for sm_90."""

import math

import pytest
import torch

from attnlib.kernels import dispatch
from tests.kernels import sm90
from tests.kernels.gaussian_tail_cases import EXACT, HEADS, SPECIAL, sweep, tensors

needs_triton = pytest.mark.skipif(
    not dispatch.has_triton(), reason="Triton is not installed: pip install 'attnlib[gpu]'"
)


def _log_error(heads, device, form="triton"):
    from attnlib.kernels.gaussian_tail import log_error

    return log_error(*(x.to(device) for x in heads), implementation=form).cpu()


@needs_triton
def test_thirty_digits_special_cases_and_the_reference(triton_device):
    """One launch: the interpreter takes as long for one head as for many."""
    mixed = sweep(30, seed=7)
    reference = _log_error(mixed, "cpu", "reference")
    everything = [
        torch.cat(parts) for parts in zip(tensors(HEADS), tensors([h for h, _, _ in SPECIAL]), mixed, strict=True)
    ]
    found = _log_error(everything, triton_device)
    by_hand, special, many = found.split([len(HEADS), len(SPECIAL), 30])
    exact = torch.tensor(EXACT, dtype=torch.float64)
    assert ((by_hand - exact).abs() / exact.abs().clamp_min(1)).max() < 1e-11
    assert ((many - reference).abs() / reference.abs().clamp_min(1)).max() < 1e-11
    assert reference.min() < -1e5
    assert reference.max() > -0.3
    for (_, expected, why), value in zip(SPECIAL, special.tolist(), strict=True):
        if math.isfinite(expected):
            assert value == pytest.approx(expected, rel=1e-11), why
        else:
            assert value == expected or (math.isnan(value) and math.isnan(expected)), why


@needs_triton
def test_pieces_of_any_length_and_dirty_memory_change_nothing(triton_device, monkeypatch):
    from attnlib.kernels.gaussian_tail import gpu

    heads = tensors(HEADS[:4])
    whole = _log_error(heads, triton_device)
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *shape, **kwargs: empty(*shape, **kwargs).fill_(math.nan))
    monkeypatch.setattr(torch, "empty_like", lambda x: torch.full(x.shape, math.nan, dtype=x.dtype, device=x.device))
    monkeypatch.setattr(gpu, "_LARGEST", 3)
    assert torch.equal(_log_error([x.view(2, 2).T for x in heads], triton_device), whole.view(2, 2).T)
    assert _log_error([x[:0] for x in heads], triton_device).shape == (0,)


@pytest.fixture(scope="module")
def program():
    pointers = ("level_at", "omega_at", "slope_at", "table_at", "peak_at", "mass_at")
    return sm90.compiled(
        "attnlib.kernels.gaussian_tail.gpu",
        "_errors",
        dict.fromkeys(pointers, "*fp64") | {"count": "i32"},
        {"LANES": 32},
        num_warps=1,
    )


@needs_triton
def test_the_launch_is_the_one_compiled_here():
    from attnlib.kernels.gaussian_tail import gpu

    assert gpu._LANES == 32


def test_registers_and_spills(program):
    """One warp a program: an SM's 65,536 registers hold 21 of them with 96 each."""
    assert program.registers <= 96
    assert program.local_loads == program.local_stores == program.stack == 0


def test_lanes_exchange_nothing(program):
    assert program.shared == program.launch_shared == program.opcodes["BAR"] == 0
    assert program.opcodes["SHFL"] + program.opcodes["ATOM"] + program.opcodes["RED"] == 0


def test_the_loop_over_nodes(program):
    """On both sides of the mode: three exponentials, one tail and three sums a node."""
    nodes = [loop for loop in program.inner if loop.opcodes["LDG"]]
    assert len(nodes) == 1
    double = sum(nodes[0].opcodes[name] for name in ("DFMA", "DMUL", "DADD", "DSETP"))
    assert 200 <= double <= 250
    assert nodes[0].instructions <= 660


def test_constants_keep_their_digits(program):
    """A coefficient that went through float32 would have its last 29 bits zero."""
    import struct

    from attnlib.kernels.gaussian_tail import series

    for number in (*series.ERFCX, series.TOLERANCE, math.sqrt(0.5)):
        assert "0d" + struct.pack(">d", number).hex().upper() in program.ptx
