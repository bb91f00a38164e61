"""The token-selection program for GPUs: interpreted (or on a GPU, compiled) against the float64 reference, and compiled for sm_90."""

from collections.abc import Iterator

import pytest
import torch

from attnlib.kernels import batches, dispatch
from tests.kernels import sm90
from tests.kernels.token_selection_starts import advance, agree, copies, state

pytestmark = pytest.mark.skipif(not dispatch.has_triton(), reason="Triton is not installed: pip install 'attnlib[gpu]'")
TOLERANCE = {torch.float32: 5e-6, torch.float64: 3e-14}
# n, T, passive rows: powers of two and not, below and above a block of 8 tokens.
SIZES = [(1, 2, 0), (4, 2, 1), (5, 3, 2), (3, 5, 2)]


@pytest.fixture(autouse=True)
def _scratch_is_nan() -> Iterator[None]:
    """Memory that nobody has written holds NaN."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    assert torch.empty(3).isnan().all()
    yield
    torch.use_deterministic_algorithms(before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("trained", ["both", "p", "W"])
@pytest.mark.parametrize("coordinates", [False, True])
def test_the_program_is_the_reference(
    dtype: torch.dtype, trained: str, coordinates: bool, triton_device: torch.device
) -> None:
    for n, tokens, passive in SIZES:
        given = state(2, n, tokens, passive=passive, coordinates=coordinates, dtype=dtype, seed=n)
        mine, wanted = copies(given, device=triton_device), copies(given, dtype=torch.float64)
        sizes = [0.3, 0.1, 0.5]
        seen = advance(*mine, sizes, 3, trained=trained, record=range(4), implementation="triton")
        truth = advance(*wanted, sizes, 3, trained=trained, record=range(4), implementation="reference")
        agree(
            [*mine[:3], seen.values, seen.prompt_norm_squared],
            [*wanted[:3], truth.values, truth.prompt_norm_squared],
            TOLERANCE[dtype],
        )
        assert torch.equal(mine[1].cpu(), given[1]) == (trained != "both")
        assert all(torch.equal(x.cpu(), y) for x, y in zip(mine[3:], given[3:], strict=True))
        assert torch.equal(seen.values[-1], mine[0])


@pytest.mark.parametrize("trained", ["both", "p", "W"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_cuts_launches_and_batches_change_nothing(
    dtype: torch.dtype, trained: str, triton_device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    from attnlib.kernels.token_selection import gpu

    given = state(3, 3, 3, passive=1, dtype=dtype, device=triton_device)
    sizes, options = [0.3, 0.1, 0.5, 0.2], {"trained": trained, "implementation": "triton"}
    whole, parts, launches, one_by_one = (copies(given) for _ in range(4))
    seen = advance(*whole, sizes, 4, record=range(5), **options)
    advance(*parts, sizes[:1], 1, **options)
    middle = advance(*parts, sizes[1:3], 2, record=[0, 2], **options)
    advance(*parts, sizes[3:], 1, **options)
    assert torch.equal(middle.values, seen.values[[1, 3]])
    monkeypatch.setattr(gpu, "_PIECE_BYTES", 1.0)
    again = advance(*launches, sizes, 4, record=[1, 3, 4], **options)
    assert torch.equal(again.values, seen.values[[1, 3, 4]])
    assert torch.equal(again.prompt_norm_squared, seen.prompt_norm_squared[[1, 3, 4]])
    monkeypatch.setattr(batches, "free_bytes", lambda device: 1)
    single = advance(*one_by_one, sizes, 4, record=range(5), **options)
    assert torch.equal(single.values, seen.values)
    for other in (parts, launches, one_by_one):
        assert all(torch.equal(x, y) for x, y in zip(other, whole, strict=True))


def test_nothing_to_do(triton_device: torch.device) -> None:
    mine = state(2, 3, 2, device=triton_device)
    before = copies(mine)
    seen = advance(*mine, 0.1, 0, record=[0], implementation="triton")
    assert torch.equal(seen.values[0], before[0])
    assert all(torch.equal(x, y) for x, y in zip(mine, before, strict=True))


def test_scores_of_any_size(triton_device: torch.device) -> None:
    """Passive unit rows read off the forces: finite at the largest scores, and right where one weight is 1 to all digits."""
    kernel, gamma = torch.cat([torch.zeros(3, 3), torch.eye(3)]), [[3.0, -2.0, 0.5]]
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float64, 1e-13)):
        huge = torch.finfo(dtype).max / 4
        for scores in ([huge, -huge, 0.0], [-huge, -huge, -huge], [40.0, 0.0, -20.0]):
            values = torch.tensor([[*scores, 0.0, 0.0, 0.0]], dtype=torch.float64)
            rest = torch.zeros(1, 6, 3), torch.ones(1), kernel.unsqueeze(0), torch.tensor([gamma]), torch.ones(1, 1)
            mine = copies([values, *rest], device=triton_device, dtype=dtype)
            wanted = copies(mine, device="cpu", dtype=torch.float64)
            advance(*mine, 1.0, 1, trained="W", implementation="triton")
            advance(*wanted, 1.0, 1, trained="W", implementation="reference")
            found = mine[0][0, 3:].cpu().double()
            assert torch.isfinite(found).all()
            torch.testing.assert_close(found, wanted[0][0, 3:], rtol=tolerance, atol=1e-300)


def _compiled(dtype: str, rows: int, probes: int, **parts: bool) -> sm90.Program:
    """The program for n = 20, T = 8."""
    numbers = (
        "values",
        "S",
        "K",
        "prompt_norm_squared",
        "head_scores",
        "shares",
        "sizes",
        "seen",
        "seen_norm",
        "scratch",
    )
    counts = ("first", "steps", "mark", "runs", "n", "tokens", "rows", "probes", "chunks_S", "chunks_K")
    wide = 1 << (probes - 1).bit_length()
    return sm90.compiled(
        "attnlib.kernels.token_selection.gpu",
        "train_run",
        dict.fromkeys(numbers, f"*{dtype}") | {"marks": "*i32"} | dict.fromkeys(counts, "i32"),
        {
            "WEIGHT": True, "PROMPT": True, "BN": 32, "BT": 8, "BK": 1 << (rows - 1).bit_length(), "BS": wide,
            "TOKENS": max(1, min(8, 4096 // wide)),
        } | parts,
        num_warps=8,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("dtype", "probes", "registers"), [("fp32", 162, 128), ("fp64", 162, 192), ("fp32", 483, 192), ("fp64", 483, 255)]
)
def test_machine_code_for_sm90(dtype: str, probes: int, registers: int) -> None:
    """Nothing spilled, wide loads of the matrices, and none through the cache for data that never change."""
    program = _compiled(dtype, 162, probes)
    assert program.registers <= registers
    assert program.stack == 0
    assert all(loop.local_loads == loop.local_stores == 0 for loop in program.loops)
    assert "ld.global.nc" not in program.ptx
    assert ("ld.global.v4.b32" if dtype == "fp32" else "ld.global.v2.b64") in program.ptx
    inner = max(program.inner, key=lambda loop: loop.instructions)
    assert inner.opcodes["BAR"] == 0
    assert inner.instructions <= {"fp32": 115, "fp64": 180}[dtype] * (2 if probes > 256 else 1)


@pytest.mark.parametrize("trained", ["p", "W"])
def test_machine_code_with_one_part_trained(trained: str) -> None:
    program = _compiled("fp64", 162, 483, WEIGHT=trained == "W", PROMPT=trained == "p")
    assert program.registers <= 128
    assert all(loop.local_loads == loop.local_stores == 0 for loop in program.loops)
    assert all(loop.opcodes["STG"] == 0 for loop in program.inner)
