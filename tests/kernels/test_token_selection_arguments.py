"""Every wrong argument of the token-selection loop is named before any work, and the state is left alone."""

from collections.abc import Callable

import pytest
import torch

from tests.kernels.token_selection_starts import advance, copies, state

NAMES = ("values", "weighted", "prompt_norm_squared", "kernel", "head_scores", "labels")


def _with(name: str, change: Callable[[torch.Tensor], object]) -> list:
    """A state of 2 runs, n = 3, T = 2, two passive rows and coordinates, with one tensor changed."""
    made = state(2, 3, 2)
    made[NAMES.index(name)] = change(made[NAMES.index(name)])
    return made


def _put(value: float, *place: int) -> Callable[[torch.Tensor], torch.Tensor]:
    def change(x: torch.Tensor) -> torch.Tensor:
        x[place] = value
        return x

    return change


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("values", lambda x: x.tolist(), "values must be a torch tensor"),
        ("values", lambda x: x[:, :-1].clone(), "weighted must have shape \\(2, 20, 6\\); got \\(2, 21, 6\\)"),
        ("values", lambda x: x.float(), "values must have dtype torch.float64"),
        ("values", lambda x: x.mT.contiguous().mT, "values must be contiguous"),
        ("values", lambda x: x.requires_grad_(), "values must not ask for a gradient"),
        ("values", lambda x: x.long(), "values must be a floating-point tensor"),
        ("values", _put(torch.nan, 1, 3), "values must be finite; run 1 has"),
        ("weighted", lambda x: x.mT.contiguous(), "weighted must have shape .* swap the axes"),
        ("weighted", lambda x: x[:1].expand(2, -1, -1), "weighted must be contiguous"),
        ("weighted", _put(-torch.inf, 0, 9, 1), "weighted must be finite; run 0 has"),
        ("weighted", _put(5.0, 0, 1, 2), "weighted must be symmetric in its first 6 rows"),
        ("prompt_norm_squared", lambda x: x[:1].clone(), "prompt_norm_squared must have shape"),
        ("prompt_norm_squared", lambda x: torch.zeros(4).double()[::2], "prompt_norm_squared must be contiguous"),
        ("prompt_norm_squared", _put(torch.nan, 1), "prompt_norm_squared must be finite; runs \\[1\\]"),
        ("kernel", lambda x: x[:, :5].clone(), "at least N = n T = 6 rows"),
        ("kernel", lambda x: x[..., :5].clone(), "kernel must have shape"),
        ("kernel", lambda x: x.to("meta"), "kernel must have dtype torch.float64 on cpu; got .* on meta"),
        ("kernel", _put(torch.inf, 1, 0, 0), "kernel must be finite; run 1"),
        ("kernel", _put(9.0, 1, 5, 0), "kernel must be symmetric"),
        ("head_scores", lambda x: x[0], "head_scores must have shape"),
        ("head_scores", lambda x: x[:0], "with R >= 1"),
        ("head_scores", lambda x: x[:, :, :0], "with T >= 1"),
        ("head_scores", _put(torch.nan, 0, 0, 0), "head_scores must be finite"),
        ("labels", lambda x: x[..., None], "labels must have shape"),
        ("labels", lambda x: 0.5 * x, "labels must be \\+1 or -1"),
        ("labels", _put(torch.nan, 0, 0), "labels must be finite"),
    ],
)
@pytest.mark.parametrize("implementation", ["auto", "reference"])
def test_a_wrong_tensor_is_named(name: str, change: Callable, message: str, implementation: str) -> None:
    wrong = _with(name, change)
    before = [x.clone() if isinstance(x, torch.Tensor) else x for x in wrong]
    with pytest.raises(ValueError, match=message):
        advance(*wrong, 0.1, 5, implementation=implementation)
    for x, y in zip(wrong, before, strict=True):
        if isinstance(x, torch.Tensor) and x.device.type == "cpu":
            assert torch.equal(torch.nan_to_num(x), torch.nan_to_num(y))


def test_a_number_of_probes_that_is_none_is_named() -> None:
    values, weighted, *rest = state(2, 3, 2)
    with pytest.raises(ValueError, match="or 2 N \\+ 1 more with coordinates, 21; got 20"):
        advance(values[:, :-1].clone(), weighted[:, :-1].clone(), *rest, 0.1, 5)


def test_shared_memory_is_named() -> None:
    made = state(2, 3, 2, coordinates=False)
    made[3] = made[1]
    with pytest.raises(ValueError, match="weighted and kernel share memory"):
        advance(*made, 0.1, 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"step_size": 0.0}, "step_size must be a finite number > 0"),
        ({"step_size": float("nan")}, "step_size must be a finite number > 0"),
        ({"step_size": "fast"}, "step_size must be a finite number > 0"),
        ({"step_size": [0.1, 0.1]}, "one per step, \\(5,\\); got shape \\(2,\\)"),
        ({"step_size": torch.full((5, 2), 0.1)}, "got shape \\(5, 2\\)"),
        ({"step_size": [0.1, 0.1, -0.1, 0.1, 0.1]}, "finite numbers > 0 only"),
        ({"steps": -1}, "steps must be a whole number >= 0"),
        ({"steps": 2.5}, "steps must be a whole number"),
        ({"steps": 2**31}, "steps must be at most 2147483647"),
        ({"trained": "w"}, "trained must be one of 'both', 'p', 'W'"),
        ({"record": [6]}, "record must hold steps in 0 ... 5"),
        ({"record": [-1]}, "record must be a whole number"),
        ({"record": [1.5]}, "record must be a whole number"),
        ({"threads": 0}, "threads must be a whole number >= 1"),
        ({"implementation": "fast"}, "implementation must be one of"),
    ],
)
def test_a_wrong_setting_is_named(change: dict, message: str) -> None:
    made = state(2, 3, 2)
    before = copies(made)
    with pytest.raises(ValueError, match=message):
        advance(*made, **({"step_size": 0.1, "steps": 5} | change))
    assert all(torch.equal(x, y) for x, y in zip(made, before, strict=True))
