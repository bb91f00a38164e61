"""The compiled loop against the readable one in float64, step by step, and what it promises beyond it."""

import math

import numpy as np
import pytest
import torch

from attnlib.kernels import prompt_stream
from attnlib.kernels.in_context import compiled, reference
from tests.kernels.starts import advance, call_of, setting, start
from tests.rounding import rounding


@pytest.fixture(params=["written out", "any d"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both compiled loops at d = 5."""
    if request.param == "any d":
        monkeypatch.setattr(compiled, "WRITTEN_OUT", 4)


BOTH_FORMS = pytest.mark.usefixtures("form")


def both(chosen: dict, *, scale: float = 1.0):
    """(state and losses of the reference in float64, the same of the compiled loop) from one start."""
    size = (len(chosen["streams"]), chosen["heads"], chosen["d"])
    double, single = start(*size), start(*size, dtype=torch.float32)
    squares = 2 * (chosen["d"] + 1) ** 2
    for state in (double, single):
        state[0][..., :squares] *= scale
    return (double, advance(*double, **chosen, implementation="reference")), (
        single,
        advance(*single, **chosen, implementation="compiled"),
    )


@pytest.mark.parametrize(
    "size",
    [
        {"heads": 1, "d": 5, "length": 7, "batch": 16, "streams": [4, 9]},
        {"heads": 2, "d": 5, "length": 9, "batch": 37, "streams": [8, 8, 3]},
        {"heads": 4, "d": 5, "length": 5, "batch": 128, "streams": [2]},
        {"heads": 1, "d": 2, "length": 2, "batch": 37, "streams": [5, 5]},
        {"heads": 2, "d": 2, "length": 13, "batch": 128, "streams": [1, 0]},
        {"heads": 4, "d": 2, "length": 3, "batch": 16, "streams": [2**32 - 1]},
        # Beyond what is written out: n below, at and above whole vectors, a tile of rows cut short, one block or several.
        {"heads": 1, "d": 5, "length": 4, "batch": 37, "streams": [4, 4], "written_out": 4},
        {"heads": 3, "d": 13, "length": 9, "batch": 37, "streams": [8, 8, 3]},
        {"heads": 1, "d": 15, "length": 2, "batch": 16, "streams": [4, 9]},
        {"heads": 1, "d": 33, "length": 7, "batch": 128, "streams": [2]},
        {"heads": 3, "d": 47, "length": 5, "batch": 21, "streams": [1, 0]},
    ],
    ids=lambda size: " ".join(f"{size[name]}" for name in ("heads", "d", "length", "batch")),
)
@pytest.mark.parametrize("optimiser", ["SGD", "Adam", "AdamW"])
def test_fifty_steps_are_those_of_the_reference(size: dict, optimiser: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for rounding: a score is three sums over features one after another, a gradient takes two more, both sum over tokens,
    and heads and prompts are summed; what is compared is below one.
    """
    size = dict(size)
    monkeypatch.setattr(compiled, "WRITTEN_OUT", size.pop("written_out", compiled.WRITTEN_OUT))
    chosen = setting(**size, optimiser=optimiser, weight_decay=0.1, first_step=3)
    chosen["learning_rate"] = [2e-3 / (1 + run) for run in range(len(size["streams"]))]
    (exact, expected), (found, seen) = both(chosen)
    room = rounding(5 * (size["d"] + 1) + 2 * size["length"] + size["heads"] + size["batch"])
    for one, other in zip(exact, found, strict=True):
        np.testing.assert_allclose(other, one, rtol=0, atol=room)
    np.testing.assert_allclose(seen, expected, rtol=room, atol=room)
    begin = start(len(size["streams"]), size["heads"], size["d"])[0]
    assert abs(exact[0] - begin).max() > 1e-3  # far more than what the comparison forgives


def test_the_reference_is_the_same_whatever_number_of_steps_has_its_prompts_made_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Adam counts its steps from the first one of all, not from the first of a piece."""
    chosen = setting(heads=2, d=2, length=3, batch=8, streams=[4, 9], optimiser="Adam", first_step=3)
    states = []
    for at_once in (reference._NORMALS_AT_ONCE, 7 * 2 * 8 * prompt_stream.normals_per_prompt(2, 3)):
        monkeypatch.setattr(reference, "_NORMALS_AT_ONCE", at_once)
        state = start(2, 2, 2)
        states.append((*state, torch.as_tensor(advance(*state, **chosen, implementation="reference"))))
    for one, other in zip(*states, strict=True):
        torch.testing.assert_close(torch.as_tensor(one), torch.as_tensor(other), rtol=1e-12, atol=1e-14)


@BOTH_FORMS
def test_one_token_is_attended_to_whatever_its_score() -> None:
    """W_Q and W_K have no gradient then, only its rounding, which Adam makes into steps: they are not compared."""
    chosen = setting(length=1, batch=37, streams=[5, 8])
    (exact, expected), (found, seen) = both(chosen)
    np.testing.assert_allclose(found[0][..., 2 * 36 :], exact[0][..., 2 * 36 :], rtol=0, atol=1e-5)
    np.testing.assert_allclose(seen, expected, rtol=1e-5, atol=1e-5)


@BOTH_FORMS
def test_other_betas_and_eps_are_used() -> None:
    chosen = setting(betas=(0.7, 0.95), eps=1e-3, learning_rate=1e-2)
    (exact, _), (found, _) = both(chosen)
    for one, other in zip(exact, found, strict=True):
        np.testing.assert_allclose(other, one, rtol=0, atol=2e-5)


@BOTH_FORMS
@pytest.mark.parametrize("scale", [2.0, 4.0, 8.0, 16.0, 40.0])
def test_large_scores_neither_overflow_nor_lose_the_softmax(scale: float) -> None:
    """Adam's first moment after one step is a tenth of the gradient. Scores reach thousands; exp2 ends at 128."""
    chosen = setting(heads=3, length=40, batch=37, streams=[4, 4, 9], steps=1, learning_rate=1e-9)
    (exact, expected), (found, seen) = both(chosen, scale=scale)
    np.testing.assert_allclose(seen, expected, rtol=1e-4)
    for part in (1, 2):
        np.testing.assert_allclose(found[part], exact[part], rtol=0, atol=2e-4 * float(abs(exact[part]).max()))
    context, query, _ = reference.prompts(call_of(**chosen), 0, 1, np.array([4, 9]))
    scores = np.einsum("blk,hkj,bj->hbl", context[0, 0], expected_circuits(scale)[..., :5], query[0, 0])
    assert (abs(scores).max() > 90) == (scale >= 8), "some of the scales must be beyond what exp2 can do unaided"


def expected_circuits(scale: float) -> torch.Tensor:
    """M of the first run's heads."""
    weights = start(3, 3, 5)[0][0]
    query, key = (weights[:, i : i + 36].reshape(3, 6, 6) * scale for i in (0, 36))
    return key.swapaxes(1, 2) @ query / math.sqrt(6)


@BOTH_FORMS
@pytest.mark.parametrize("streams", [[6], [6, 6], [6, 7, 6]])
def test_two_calls_end_where_one_does(streams: list[int]) -> None:
    size = (len(streams), 2, 5)
    once, twice = start(*size, dtype=torch.float32), start(*size, dtype=torch.float32)
    base = setting(streams=streams, batch=37, weight_decay=0.01)
    whole = advance(*once, **(base | {"steps": 31}), implementation="compiled")
    first = advance(*twice, **(base | {"steps": 12}), implementation="compiled")
    second = advance(*twice, **(base | {"first_step": 12, "steps": 19}), implementation="compiled")
    for one, other in zip(once, twice, strict=True):
        assert torch.equal(one, other)
    assert torch.equal(whole, torch.cat((first, second), dim=1))


@BOTH_FORMS
def test_neither_threads_nor_company_change_a_run() -> None:
    streams, rates = [6, 7, 6, 6, 8], [1e-3, 2e-3, 3e-3, 4e-3, 5e-3]
    base = setting(batch=37)
    together, threaded = (start(5, 2, 5, dtype=torch.float32) for _ in range(2))
    seen = advance(*together, **(base | {"streams": streams, "learning_rate": rates}), implementation="compiled")
    again = advance(
        *threaded, **(base | {"streams": streams, "learning_rate": rates}), implementation="compiled", threads=4
    )
    assert torch.equal(seen, again)
    for one, other in zip(together, threaded, strict=True):
        assert torch.equal(one, other)
    for run, (stream, rate) in enumerate(zip(streams, rates, strict=True)):
        alone = [array[run : run + 1].clone() for array in start(5, 2, 5, dtype=torch.float32)]
        single = advance(*alone, **(base | {"streams": [stream], "learning_rate": rate}), implementation="compiled")
        assert torch.equal(alone[0][0], together[0][run])
        assert torch.equal(single[0], seen[run])


def test_normals_are_those_of_the_definition() -> None:
    for d, length in ((5, 9), (2, 4)):
        found = compiled.normals(3 + 2**40, [0, 7], 5, 20, 37, d=d, length=length)
        exact = prompt_stream.normals(3 + 2**40, [0, 7], 5, 20, 37, prompt_stream.normals_per_prompt(d, length))
        assert found.shape == exact.shape
        radius = np.hypot(exact[..., 0::2], exact[..., 1::2]).repeat(2, axis=-1)
        # A logarithm, a root, a cosine and their product; where the radius is small, the logarithm has lost digits.
        room = rounding(4, radius.max())
        np.testing.assert_allclose(found[radius > 0.1], exact[radius > 0.1], rtol=0, atol=room)
        np.testing.assert_allclose(found, exact, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "low", "high", "exact", "largest"),
    [
        ("_EXP2", -0.5, 0.5, lambda f: 2**f, 2e-7),
        ("_LOG", 0.5**0.5 - 1, 2**0.5 - 1, lambda g: -np.log1p(g) / g, 2e-7),
        ("_COS", 0.0, 1.0, lambda t: np.cos(np.pi / 4 * np.sqrt(t)), 1e-7),
        ("_SIN", 0.0, 1.0, lambda t: np.sin(np.pi / 4 * np.sqrt(t)) / np.sqrt(t), 1e-7),
    ],
)
def test_a_polynomial_is_as_exact_as_float32(name: str, low: float, high: float, exact, largest: float) -> None:
    from attnlib.kernels import _simd_functions  # needs numba

    points = np.linspace(low, high, 10_000)[1:]
    values = np.polynomial.Polynomial(getattr(_simd_functions, name))(points)
    assert (
        abs(values / exact(points) - 1).max() < largest
    )  # what a polynomial of its degree leaves, computed in float64


@BOTH_FORMS
def test_a_training_that_diverges_shows_in_its_losses() -> None:
    state = start(2, 2, 5, dtype=torch.float32)
    seen = advance(*state, **setting(optimiser="SGD", learning_rate=[1e-3, 1e6]), implementation="compiled")
    assert torch.isfinite(seen[0]).all()
    first = int(torch.isfinite(seen[1]).int().argmin())
    assert 0 < first < 10
    assert not torch.isfinite(seen[1, first:]).any()


@BOTH_FORMS
@pytest.mark.parametrize("place", [5, 40, 80, 110], ids=["W_Q, empty column", "W_K", "W_V", "W_O"])
def test_one_broken_weight_shows_at_once(place: int) -> None:
    for broken in (np.nan, np.inf):
        state = start(2, 2, 5, dtype=torch.float32)
        call = call_of(**setting(steps=2))
        state[0][1, 1, place] = broken
        seen = compiled.advance(call, *state, 1)
        assert torch.isfinite(seen[0]).all()
        assert not torch.isfinite(seen[1]).any()
