"""The compiled token-selection loop against the reference, and both in the trainer, which tests of the part hold to dense descent."""

import itertools

import mpmath
import pytest
import torch

from attnlib.kernels import dispatch
from attnlib.token_selection.gram import draw_gram
from attnlib.token_selection.law import Start, TokenLaw
from attnlib.token_selection.training import Recursion, train
from tests.kernels.token_selection_starts import advance, agree, copies, state

TOLERANCE = {torch.float32: 3e-6, torch.float64: 3e-14}
# n, T, passive rows: below, at and above a vector of 8 or 16 samples; N on both sides of blocks of 4 and of vectors.
SIZES = [(1, 1, 0), (3, 2, 1), (5, 3, 2), (16, 2, 0), (17, 5, 3), (20, 8, 2)]
COMPILED = pytest.mark.skipif(not dispatch.has_numba(), reason="numba is not installed: see attnlib.extras")


@COMPILED
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_compiled_is_the_reference_step_by_step(dtype: torch.dtype) -> None:
    for n, tokens, passive in SIZES:
        given = state(3, n, tokens, passive=passive, dtype=dtype, seed=n)
        mine, wanted = copies(given), copies(given, dtype=torch.float64)
        sizes = [0.3, 0.1, 0.5, 0.2, 0.4, 0.3]
        seen = advance(*mine, step_sizes=sizes, record=range(7), implementation="compiled")
        truth = advance(*wanted, step_sizes=sizes, record=range(7), implementation="reference")
        agree(
            [*mine[:3], seen.values, seen.prompt_norm_squared],
            [*wanted[:3], truth.values, truth.prompt_norm_squared],
            TOLERANCE[dtype],
        )
        assert seen.steps == truth.steps == tuple(range(7))
        assert torch.equal(mine[1], given[1]) == (tokens == 1)  # one token: no force
        assert all(torch.equal(x, y) for x, y in zip(mine[3:], given[3:], strict=True))
        agree(copies(mine[:1]), [seen.values[-1].double()], 0)


@pytest.mark.parametrize("implementation", ["reference", pytest.param("compiled", marks=COMPILED)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_training_can_be_cut_anywhere(implementation: str, dtype: torch.dtype) -> None:
    given, sizes = state(3, 5, 3, dtype=dtype), [0.3, 0.1, 0.5, 0.2, 0.4]
    whole = copies(given)
    options = {"implementation": implementation}
    seen = advance(*whole, step_sizes=sizes, record=range(6), **options)
    for first, second in itertools.combinations(range(6), 2):
        parts = copies(given)
        advance(*parts, step_sizes=sizes[:first], **options)
        middle = advance(*parts, step_sizes=sizes[first:second], record=[0, second - first], **options)
        advance(*parts, step_sizes=sizes[second:], **options)
        assert torch.equal(middle.values, seen.values[[first, second]])
        assert torch.equal(middle.prompt_norm_squared, seen.prompt_norm_squared[[first, second]])
        assert all(torch.equal(x, y) for x, y in zip(parts, whole, strict=True))


@COMPILED
@pytest.mark.parametrize("threads", [2, 3, 16])
def test_neither_threads_nor_other_runs_change_a_number(threads: int) -> None:
    given = state(5, 5, 3)
    one, many, alone = copies(given), copies(given), [x[3:4].clone() for x in given]
    first = advance(*one, step_sizes=[0.3] * 7, record=[2, 7], threads=1)
    second = advance(*many, step_sizes=[0.3] * 7, record=[2, 7], threads=threads)
    third = advance(*alone, step_sizes=[0.3] * 7, record=[2, 7])
    assert torch.equal(first.values, second.values)
    assert torch.equal(first.values[:, 3:4], third.values)
    assert all(torch.equal(x, y) for x, y in zip(one, many, strict=True))
    assert all(torch.equal(x[3:4], y) for x, y in zip(one, alone, strict=True))


def _forces_of(scores: list[float], gamma: list[float], dtype: torch.dtype, implementation: str) -> torch.Tensor:
    """c of one sample, to relative rounding: the coordinate a of v grows by alpha (pi + alpha c'z) c = c for a small alpha = 1/pi."""
    T = len(scores)
    values = torch.tensor([scores + [0.0] * (2 * T + 1)], dtype=dtype)
    weighted, kernel = (torch.zeros(1, rows, T, dtype=dtype) for rows in (3 * T + 1, T))
    gammas, one = torch.tensor([[gamma]], dtype=dtype), torch.ones(1, 1, dtype=dtype)
    small = 2.0**-60 if dtype == torch.float32 else 2.0**-500
    advance(values, weighted, one[0] / small, kernel, gammas, one, step_sizes=[small], implementation=implementation)
    return values[0, T : 2 * T].double()


@pytest.mark.parametrize("implementation", ["reference", pytest.param("compiled", marks=COMPILED)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_scores_of_any_size_and_the_vanishing_update(implementation: str, dtype: torch.dtype) -> None:
    huge = torch.finfo(dtype).max / 4
    gamma = [3.0, -2.0, 0.5]
    for scores in ([huge, -huge, 0.0], [1e4, 1e4, -1e4], [-1e4, -1e4 - 40, -2e4], [-huge, -huge, -huge]):
        c = _forces_of(scores, gamma, dtype, implementation)
        assert torch.isfinite(c).all()
        assert c.sum().item() == pytest.approx(0, abs=1e-6 * c.abs().max().item() + 1e-300)
    # One weight is 1 to all digits: the forces are still right to relative rounding.
    c = _forces_of([40.0, 0.0, -20.0], gamma, dtype, implementation)
    second, third, slope = mpmath.exp(-40), mpmath.exp(-60), 1 / (1 + mpmath.exp(3))
    wanted = torch.tensor(
        [float(slope * x) for x in (5 * second + 2.5 * third, -5 * second, -2.5 * third)], dtype=torch.float64
    )
    torch.testing.assert_close(c, wanted, rtol=100 * torch.finfo(dtype).eps, atol=0)


@COMPILED
def test_exponentials_over_the_whole_range() -> None:
    """Two tokens: c is a product of exponentials, compared where they are normal numbers."""
    for dtype, deepest in ((torch.float32, 80.0), (torch.float64, 690.0)):
        for depth in torch.linspace(0, deepest, 40, dtype=dtype).tolist():
            found = _forces_of([0.0, -depth], [1.0, 0.0], dtype, "compiled")
            small = mpmath.exp(-depth)
            large = 1 / (1 + small)  # the weight of the first token, and the margin
            wanted = float(large * large * small / (1 + mpmath.exp(large)))
            assert found.tolist() == pytest.approx([wanted, -wanted], rel=10 * torch.finfo(dtype).eps, abs=0)
    assert _forces_of([0.0, -2000.0], [1.0, 0.0], torch.float64, "compiled").abs().max() == 0


@pytest.mark.parametrize("implementation", ["reference", pytest.param("compiled", marks=COMPILED)])
def test_a_run_that_diverges_hurts_nobody_else(implementation: str) -> None:
    given = state(3, 4, 3)
    given[2][1] = 1e306
    mine, alone = copies(given), [x[[0, 2]].clone() for x in given]
    advance(*mine, step_sizes=[1e5] * 30, implementation=implementation)
    advance(*alone, step_sizes=[1e5] * 30, implementation=implementation)
    assert not torch.isfinite(mine[1][1]).all()
    assert torch.equal(mine[0][[0, 2]], alone[0])


def test_the_fastest_implementation_is_taken() -> None:
    mine = state(1, 3, 2, dtype=torch.float32)
    advance(*mine, step_sizes=[0.1])
    fast = "compiled" if dispatch.has_numba() else "reference"
    assert f"token selection: {fast}, float32 on cpu" in dispatch.ran()
    advance(*copies(mine, dtype=torch.bfloat16), step_sizes=[0.1])
    assert "token selection: reference, bfloat16 on cpu" in dispatch.ran()
    with pytest.raises(ValueError, match="computes in float32 or float64, not bfloat16"):
        advance(*copies(mine, dtype=torch.bfloat16), step_sizes=[0.1], implementation="compiled")


def test_training_of_the_part_in_every_implementation(monkeypatch: pytest.MonkeyPatch) -> None:
    """More recorded moments than one call of the loop keeps; also against the recursion step by step."""
    law = TokenLaw(n=4, d=40, tokens=3, signal_norm=3.0, label_noise=0.5)
    gram, sizes = draw_gram(law, 1, 3, start=Start(0.3, 0.8)), [0.02 + 0.001 * (i % 7) for i in range(300)]
    paths = []
    for implementation in ("reference", *(["compiled"] if dispatch.has_numba() else [])):
        monkeypatch.setenv(dispatch.VARIABLE, implementation)
        paths.append(train(gram, sizes, 300))
    by_hand = Recursion(gram)
    for size in sizes:
        by_hand.advance(size)
    names = ("time", "scores", "direction_on_signals", "direction_norm_squared", "prompt_norm_squared")
    for path in paths:
        assert path.steps == tuple(range(301))
        for name, last in zip(names, by_hand.snapshot(), strict=True):
            torch.testing.assert_close(getattr(path, name)[-1], last, rtol=1e-11, atol=1e-12)
            torch.testing.assert_close(getattr(path, name), getattr(paths[0], name), rtol=1e-11, atol=1e-12)
