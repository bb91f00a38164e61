"""Every wrong argument of a training loop is named before any work, and the state is left alone.

Each declared tensor of each loop (`calls.Declared`) is spoilt in every way that its declaration excludes.
"""

import math
from collections.abc import Iterator

import pytest
import torch

from attnlib.kernels import heads, in_context, token_selection
from attnlib.kernels.calls import Declared
from attnlib.single_head import maps
from tests.kernels import starts, token_selection_starts

D, I64 = torch.float64, torch.int64


def spoilt(x: torch.Tensor, wants: Declared) -> Iterator[tuple[str, object]]:
    """The tensor with a fault, by the name of the fault."""
    yield "no tensor", x.tolist()
    yield "dtype", x.float() if x.dtype == D else x.double()
    yield "device", x.to("meta")
    yield "axes", x[..., None]
    yield "no run", x[:0]
    if wants.use != "copied":
        yield "strides", torch.stack([x, x], -1)[..., 0]
    if wants.use == "changed":
        yield "gradient", x.clone().requires_grad_()
    for fault, value in {"content": math.nan if x.is_floating_point() else 99, "sign": 0.5}.items():
        bad = x.clone()
        bad.view(-1)[-1] = value
        if fault == "content" or wants.holds == "signs":
            yield fault, bad
    if wants.holds == "square":
        bad = x.clone()
        bad[0, 1, 2] += 5
        yield "not symmetric", bad


def of_heads() -> dict[str, torch.Tensor]:
    """One run of two heads, three samples, two steps on batches of two."""
    return {
        "gram": torch.eye(6, dtype=D)[None], "labels": torch.ones(1, 3, dtype=D), "coefficients": torch.zeros(1, 4, 6, dtype=D),
        "velocity": torch.zeros(1, 4, 6, dtype=D), "classes": torch.zeros(1, 3, dtype=I64), "batches": torch.tensor([[[2, 0], [1, 0]]]),
    }  # fmt: skip


def run_heads(threads=None, implementation="auto", **changes):
    good = {
        "heads": 2, "signals": 2, "attention_map": maps.SOFTMAX, "value_step": 0.1, "attention_step": 0.1, "factors": torch.ones(2),
        "record": [2],
    }  # fmt: skip
    return heads.advance(heads.Call(**of_heads() | good | changes), threads=threads, implementation=implementation)


SELECTION = ("values", "weighted", "prompt_norm_squared", "kernel", "head_scores", "labels")


def of_token_selection() -> dict[str, torch.Tensor]:
    """Two runs of n = 3, T = 2 and two passive rows."""
    return dict(zip(SELECTION, token_selection_starts.state(2, 3, 2), strict=True))


def run_token_selection(**changes):
    tensors = [changes.pop(name) for name in SELECTION]
    return token_selection_starts.advance(*tensors, **{"step_sizes": [0.1] * 5} | changes)


def of_in_context() -> dict[str, torch.Tensor]:
    """Two runs of two heads, d = 5."""
    return dict(zip(in_context._STATE, starts.start(2, 2, 5, dtype=torch.float32), strict=True))


def run_in_context(**changes):
    return starts.advance(*[changes.pop(name) for name in in_context._STATE], **starts.setting(**changes))


LOOPS = {
    "heads": (heads._TENSORS, of_heads, run_heads),
    "token selection": (token_selection._TENSORS, of_token_selection, run_token_selection),
    "in context": (in_context._STATE, of_in_context, run_in_context),
}


def refused(loop: str, changes: dict, words: str) -> None:
    _, make, run = LOOPS[loop]
    good, before = make(), make()
    with pytest.raises(ValueError, match=words):
        run(**good | changes)
    assert all(torch.equal(good[name], before[name]) for name in good)


@pytest.mark.parametrize(
    ("loop", "name", "fault"),
    [(loop, name, fault) for loop, (table, make, _) in LOOPS.items() for name in table for fault, _ in spoilt(make()[name], table[name])],
)  # fmt: skip
def test_a_tensor_that_is_not_as_declared(loop, name, fault):
    table, make, _ = LOOPS[loop]
    named = "|".join(table) if name == next(iter(table)) else name  # the others must be like the first
    refused(loop, {name: dict(spoilt(make()[name], table[name]))[fault]}, rf"^({named}) must")


SETTINGS = {
    "heads": {
        "heads": [0], "signals": [0], "value_step": [-0.1, math.nan], "attention_step": [[0.1, 0.2]], "output_scale": [math.inf],
        "factors": [[1.0], torch.ones(2, 2), torch.tensor([1.0, math.inf])], "prepare": ["sign"], "momentum": [1.1], "record": [[3], [0.5]],
        "attention_map": ["softmax"], "gram": [torch.zeros(1, 6, 5)], "threads": [0], "implementation": ["fastest"],
        "batches": [torch.zeros(1, 3, 1, dtype=I64), torch.zeros(1, 2, 0, dtype=I64), torch.full((1, 2, 1), -1), [[0], [1]]],
    },
    "token selection": {
        "step_sizes": [torch.full((5, 2), 0.1), [0.1, -0.1], [0.1, math.nan]], "record": [[6], [-1]], "threads": [0],
        "implementation": ["fast"],
    },
    "in context": {
        "d": [0], "heads": [0], "length": [0], "batch": [0], "seed": [-1], "first_step": [-1], "steps": [-1], "beta_std": [-1.0],
        "noise_std": [math.nan], "target_noise_std": [-0.1], "optimiser": ["adam"], "learning_rate": [0.0, [1e-3] * 3, "fast"],
        "betas": [(0.9, 1.0), (0.9,)], "eps": [0.0], "weight_decay": [-0.1], "threads": [0],
    },
}  # fmt: skip
STATE = of_token_selection()
TOGETHER = [
    ("heads", {"heads": 1}, r"coefficients must hold 1 \+ 1 vectors a run, or 1 \+ 1 when .* got 4"),
    ("heads", {"heads": 4}, r"coefficients must hold 4 \+ 4 vectors a run, or 1 \+ 4 .* got 4"),
    ("heads", {"signals": 4}, r"labels must hold 1 \.\.\. 2 samples of a run.*4 signals.*got 3"),
    ("heads", {"batches": torch.zeros(1, 2, 2, dtype=I64)}, "every sample at most once in a step"),
    ("heads", dict.fromkeys(("coefficients", "velocity"), torch.zeros(1, 4, 6, dtype=D)), r"share memory.*velocity\.clone\(\)"),
    ("token selection", {"values": STATE["values"][:, :-1].clone()}, r"weighted must have shape \(2, 20, 6\)"),
    ("token selection", {"kernel": STATE["kernel"][:, :5].clone()}, "at least N = n T = 6 rows"),
    ("token selection", {"kernel": STATE["kernel"][:, :7].clone()}, "values must have 20 numbers a run: 7, one per row"),
    ("token selection", {"head_scores": STATE["head_scores"][:, :, :0]}, "with T >= 1"),
    ("token selection", {"weighted": STATE["weighted"], "values": STATE["weighted"].view(-1)[-42:].view(2, 21)},
     "values and weighted share memory"),
    ("in context", {"heads": 3}, "weights must have shape"),
    ("in context", {"streams": [1]}, "weights must have shape"),
    ("in context", {"implementation": "compiled", **{name: x.double() for name, x in of_in_context().items()}},
     "'compiled' cannot be used: it computes in float32, not float64"),
]  # fmt: skip


@pytest.mark.parametrize(("loop", "name"), [(loop, name) for loop in SETTINGS for name in SETTINGS[loop]])
def test_a_setting_that_no_loop_takes(loop, name):
    for value in SETTINGS[loop][name]:
        refused(loop, {name: value}, rf"\b{name} must")


@pytest.mark.parametrize(("loop", "changes", "words"), TOGETHER)
def test_what_does_not_go_together(loop, changes, words):
    refused(loop, changes, words)


def test_good_ones():
    state = of_heads()["coefficients"]
    assert run_heads(coefficients=state, threads=2).steps == (2,)
    assert state.abs().sum() > 0
    assert run_heads(heads=3).attention.shape == (1, 1, 3, 3)  # a shared v
