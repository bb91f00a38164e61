"""Every wrong argument of the heads' training loop is named before any work."""

import math

import pytest
import torch

from attnlib.kernels.heads import Call
from attnlib.kernels.heads import advance as advance_call
from attnlib.single_head import maps

EYE = torch.eye(6, dtype=torch.float64)[None]


def advance(threads=None, implementation="auto", **arguments):
    return advance_call(Call(**arguments), threads=threads, implementation=implementation)


def call(**changes) -> dict:
    """Good arguments of one small run of two heads with some changed."""
    good = {
        "gram": EYE, "coefficients": torch.zeros(1, 4, 6, dtype=torch.float64), "labels": torch.ones(1, 3, dtype=torch.float64),
        "classes": torch.zeros(1, 3, dtype=torch.int64), "heads": 2, "signals": 2, "attention_map": maps.SOFTMAX,
        "value_step": 0.1, "attention_step": 0.1, "factors": torch.ones(2), "record": [2],
    }  # fmt: skip
    return good | changes


WRONG = [
    ({"gram": EYE[0]}, "gram must have shape"),
    ({"gram": torch.zeros(1, 6, 5)}, r"gram must have shape \(R, q, q\); got \(1, 6, 5\)"),
    ({"gram": torch.zeros(0, 6, 6)}, r"gram must have shape \(R, q, q\) with R >= 1; got \(0, 6, 6\)"),
    ({"gram": EYE.float()}, "labels must have dtype torch.float32"),
    ({"gram": EYE / 0}, "gram must be finite"),
    ({"gram": torch.ones(6, 6, dtype=torch.float64).triu()[None]}, "gram must be symmetric"),
    ({"gram": torch.eye(12, dtype=torch.float64)[None, ::2, ::2]}, "gram must be contiguous"),
    ({"heads": 0}, "heads must be a whole number >= 1"),
    ({"heads": 1}, r"coefficients must hold 1 \+ 1 vectors a run, or 1 \+ 1 when .* got 4"),
    ({"heads": 4}, r"coefficients must hold 4 \+ 4 vectors a run, or 1 \+ 4 .* got 4"),
    ({"signals": 0}, "signals must be a whole number >= 1"),
    ({"signals": 4}, r"labels must hold 1 \.\.\. 2 samples of a run.*4 signals.*got 3"),
    (
        {"attention_map": "softmax"},
        "attention_map must be a map of attnlib.single_head.maps.*'softmax' without kind, setting",
    ),
    ({"coefficients": torch.zeros(1, 4, 5, dtype=torch.float64)}, r"coefficients must have shape \(1, vectors, 6\)"),
    ({"coefficients": torch.zeros(1, 6, 4, dtype=torch.float64).mT}, "coefficients must be contiguous"),
    ({"coefficients": torch.full((1, 4, 6), math.inf, dtype=torch.float64)}, "coefficients must be finite"),
    (
        {"coefficients": torch.zeros(1, 4, 6, dtype=torch.float64, requires_grad=True)},
        "coefficients must not ask for a gradient",
    ),
    ({"velocity": torch.zeros(1, 2, 6, dtype=torch.float64)}, r"velocity must have shape \(1, 4, 6\)"),
    ({"velocity": torch.full((1, 4, 6), math.nan, dtype=torch.float64)}, "velocity must be finite"),
    ({"labels": torch.zeros(1, 3, dtype=torch.float64)}, r"labels must be \+1 or -1"),
    ({"labels": torch.ones(1, 0, dtype=torch.float64)}, r"labels must have shape \(R, n\) with n >= 1; got \(1, 0\)"),
    ({"classes": torch.zeros(1, 3)}, "classes must be an int64 tensor"),
    ({"classes": torch.full((1, 3), 2)}, r"classes must be in 0 \.\.\. 1"),
    ({"value_step": -0.1}, "value_step must be >= 0"),
    ({"value_step": math.nan}, "value_step must be a finite number"),
    ({"attention_step": [0.1, 0.2]}, "attention_step must be one number or 1, one per run; got 2"),
    ({"factors": [1.0]}, "factors must be a torch tensor"),
    ({"factors": torch.ones(2, 2)}, r"factors must have shape \(steps\)"),
    ({"factors": torch.tensor([1.0, math.inf])}, "factors must be finite"),
    ({"output_scale": math.inf}, "output_scale must be a finite number"),
    ({"prepare": "sign"}, "prepare must be one of '', 'joint', 'blocks'; got 'sign'"),
    ({"momentum": 1.1}, r"momentum must be in \[0, 1\]"),
    ({"batches": torch.zeros(1, 3, 1, dtype=torch.int64)}, r"batches must have shape \(1, 2, B\)"),
    ({"batches": torch.zeros(1, 2, 1)}, "batches must be an int64 tensor"),
    ({"batches": torch.zeros(1, 2, 0, dtype=torch.int64)}, r"batches must have shape .* with B >= 1"),
    ({"batches": torch.full((1, 2, 1), 3)}, r"batches must be in 0 \.\.\. 2"),
    ({"batches": torch.full((1, 2, 1), -1)}, r"batches must be in 0 \.\.\. 2"),
    ({"batches": torch.ones(1, 2, 4, dtype=torch.int64).cumsum(-1) - 1}, r"batches must be in 0 \.\.\. 2"),
    ({"batches": torch.zeros(1, 2, 2, dtype=torch.int64)}, "every sample at most once in a step"),
    (
        {"batches": torch.zeros(1, 2, 1, dtype=torch.int64, device="meta")},
        "batches must have .* on cpu; got .* on meta",
    ),
    ({"batches": [[0], [1]]}, r"batches must be a torch tensor of shape \(1, 2, B\); got list"),
    ({"record": [3]}, r"record must hold steps in 0 \.\.\. 2; got 3"),
    ({"record": [0.5]}, "record must be a whole number"),
    ({"threads": 0}, "threads must be a whole number >= 1"),
    ({"implementation": "fastest"}, "implementation must be one of"),
]


@pytest.mark.parametrize(("changes", "words"), WRONG)
@pytest.mark.parametrize("implementation", ["reference", "compiled"])
def test_a_wrong_argument_is_named(changes, words, implementation):
    arguments = call(implementation=implementation) | changes
    state = arguments["coefficients"].detach().clone()
    with pytest.raises(ValueError, match=words):
        advance(**arguments)
    torch.testing.assert_close(arguments["coefficients"].detach(), state, rtol=0, atol=0)


@pytest.mark.parametrize("implementation", ["reference", "compiled"])
def test_what_changes_in_place_shares_no_memory(implementation):
    both = torch.zeros(1, 4, 6, dtype=torch.float64)
    with pytest.raises(ValueError, match=r"coefficients and velocity share memory.*pass velocity\.clone\(\)"):
        advance(**call(implementation=implementation, coefficients=both, velocity=both))


@pytest.mark.parametrize("implementation", ["reference", "compiled"])
def test_good_arguments_are_good(implementation):
    arguments = call(implementation=implementation, threads=2, batches=torch.tensor([[[2, 0], [1, 0]]]))
    assert advance(**arguments).steps == (2,)
    assert arguments["coefficients"].abs().sum() > 0
    shared = call(implementation=implementation, heads=3)
    assert advance(**shared).attention.shape == (1, 1, 3, 3)
