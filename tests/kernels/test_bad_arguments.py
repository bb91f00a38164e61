"""Every wrong argument of a training loop is named before any work, by both loops in the same words."""

import pytest
import torch

from tests.kernels.starts import advance, setting, start

WRONG = [
    ({"d": 0}, "d must be"),
    ({"heads": 0}, "heads must be"),
    ({"heads": 3}, "weights must have shape"),
    ({"length": 0}, "length must be"),
    ({"batch": 0}, "batch must be"),
    ({"seed": -1}, "seed"),
    ({"streams": [1]}, "weights must have shape"),
    ({"first_step": -1}, "first_step"),
    ({"steps": -1}, "steps"),
    ({"beta_std": -1.0}, "beta_std must be >= 0"),
    ({"noise_std": float("nan")}, "noise_std must be a finite"),
    ({"target_noise_std": -0.1}, "target_noise_std must be >= 0"),
    ({"optimiser": "adam"}, "'SGD', 'Adam', 'AdamW'"),
    ({"learning_rate": -1e-3}, "learning_rate"),
    ({"learning_rate": 0.0}, "learning_rate must be a finite number > 0"),
    ({"eps": 0.0}, "eps must be a finite number > 0"),
    ({"learning_rate": [1e-3, 1e-3, 1e-3]}, "learning_rate"),
    ({"learning_rate": float("inf")}, "learning_rate"),
    ({"learning_rate": "fast"}, "learning_rate"),
    ({"betas": (0.9, 1.0)}, "betas"),
    ({"betas": (0.9,)}, "betas"),
    ({"eps": -1e-8}, "eps"),
    ({"weight_decay": -0.1}, "weight_decay"),
    ({"record": [51]}, "record must hold steps in"),
    ({"record": [1.5]}, "record must be"),
    ({"first_step": 10, "record": [9]}, "record must hold steps in"),
]


@pytest.mark.parametrize("implementation", ["compiled", "reference"])
@pytest.mark.parametrize(("change", "message"), WRONG)
def test_a_wrong_argument_is_named(implementation: str, change: dict, message: str) -> None:
    state = start(2, 2, 5, dtype=torch.float32)
    before = state[0].clone()
    with pytest.raises(ValueError, match=message):
        advance(*state, **setting(**change), implementation=implementation)
    assert torch.equal(state[0], before)


def _arrays(change: str) -> list:
    state = start(2, 2, 5, dtype=torch.float32)
    if change == "list":
        state[0] = state[0].tolist()
    elif change == "integers":
        state[1] = state[1].int()
    elif change == "mixed":
        state[2] = state[2].double()
    elif change == "strided":
        state[0] = torch.zeros((2, 2, 2 * 114), dtype=torch.float32)[..., ::2]
    elif change == "nan":
        state[1][1, 0, 3] = float("nan")
    elif change == "same":
        state[2] = state[1]
    return state


@pytest.mark.parametrize("implementation", ["compiled", "reference"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("list", "weights must be"),
        ("integers", "first_moment must be"),
        ("mixed", "second_moment must"),
        ("strided", "contiguous"),
        ("nan", "first_moment must be finite"),
        ("same", "share memory"),
    ],
)
def test_a_wrong_array_is_named(implementation: str, change: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        advance(*_arrays(change), **setting(), implementation=implementation)


def test_the_compiled_loop_wants_float32_and_whole_threads() -> None:
    with pytest.raises(ValueError, match="'compiled' cannot be used: it computes in float32, not float64"):
        advance(*start(2, 2, 5), **setting(), implementation="compiled")
    with pytest.raises(ValueError, match="threads must be"):
        advance(*start(2, 2, 5, dtype=torch.float32), **setting(), threads=0)
