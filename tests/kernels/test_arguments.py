"""Every wrong argument of a training loop is named before any work, and the state is left alone."""

import math
from collections.abc import Callable

import pytest
import torch

from attnlib.kernels.heads import Call, advance
from attnlib.single_head import maps
from tests.kernels import starts, token_selection_starts

EYE, D = torch.eye(6, dtype=torch.float64)[None], torch.float64


def _put(value: float, *place: int) -> Callable[[torch.Tensor], torch.Tensor]:
    def change(x: torch.Tensor) -> torch.Tensor:
        x[place] = value
        return x

    return change


def _refused(work: Callable[[], object], words: str, state: torch.Tensor) -> None:
    before = state.detach().clone()
    with pytest.raises(ValueError, match=words):
        work()
    torch.testing.assert_close(state.detach(), before, rtol=0, atol=0, equal_nan=True)


# --- attention heads: one run of two heads, three samples --------------------------------------------------------------

HEADS = [
    ({"gram": EYE[0]}, "gram must have shape"),
    ({"gram": torch.zeros(1, 6, 5)}, r"gram must have shape \(R, q, q\); got \(1, 6, 5\)"),
    ({"gram": torch.zeros(0, 6, 6)}, r"gram must have shape \(R, q, q\) with R >= 1; got \(0, 6, 6\)"),
    ({"gram": EYE.float()}, "labels must have dtype torch.float32"),
    ({"gram": EYE / 0}, "gram must be finite"),
    ({"gram": torch.ones(6, 6, dtype=D).triu()[None]}, "gram must be symmetric"),
    ({"gram": torch.eye(12, dtype=D)[None, ::2, ::2]}, "gram must be contiguous"),
    ({"heads": 0}, "heads must be a whole number >= 1"),
    ({"heads": 1}, r"coefficients must hold 1 \+ 1 vectors a run, or 1 \+ 1 when .* got 4"),
    ({"heads": 4}, r"coefficients must hold 4 \+ 4 vectors a run, or 1 \+ 4 .* got 4"),
    ({"signals": 0}, "signals must be a whole number >= 1"),
    ({"signals": 4}, r"labels must hold 1 \.\.\. 2 samples of a run.*4 signals.*got 3"),
    ({"attention_map": "softmax"}, "must be a map of attnlib.single_head.maps.*'softmax' without kind, setting"),
    ({"coefficients": torch.zeros(1, 4, 5, dtype=D)}, r"coefficients must have shape \(1, vectors, 6\)"),
    ({"coefficients": torch.zeros(1, 6, 4, dtype=D).mT}, "coefficients must be contiguous"),
    ({"coefficients": torch.full((1, 4, 6), math.inf, dtype=D)}, "coefficients must be finite"),
    ({"coefficients": torch.zeros(1, 4, 6, dtype=D, requires_grad=True)}, "coefficients must not ask for a gradient"),
    ({"velocity": torch.zeros(1, 2, 6, dtype=D)}, r"velocity must have shape \(1, 4, 6\)"),
    ({"velocity": torch.full((1, 4, 6), math.nan, dtype=D)}, "velocity must be finite"),
    ({"labels": torch.zeros(1, 3, dtype=D)}, r"labels must be \+1 or -1"),
    ({"labels": torch.ones(1, 0, dtype=D)}, r"labels must have shape \(R, n\) with n >= 1; got \(1, 0\)"),
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


def heads(threads=None, implementation="auto", **changes):
    good = {
        "gram": EYE, "coefficients": torch.zeros(1, 4, 6, dtype=D), "labels": torch.ones(1, 3, dtype=D),
        "classes": torch.zeros(1, 3, dtype=torch.int64), "heads": 2, "signals": 2, "attention_map": maps.SOFTMAX,
        "value_step": 0.1, "attention_step": 0.1, "factors": torch.ones(2), "record": [2],
    }  # fmt: skip
    return advance(Call(**good | changes), threads=threads, implementation=implementation)


@pytest.mark.parametrize(("changes", "words"), HEADS)
def test_heads(changes, words):
    state = changes.get("coefficients", torch.zeros(1, 4, 6, dtype=D))
    _refused(lambda: heads(**({"coefficients": state} | changes)), words, state)


def test_heads_whose_state_shares_memory_and_good_ones():
    both = torch.zeros(1, 4, 6, dtype=D)
    with pytest.raises(ValueError, match=r"coefficients and velocity share memory.*pass velocity\.clone\(\)"):
        heads(coefficients=both, velocity=both)
    assert heads(coefficients=both, threads=2, batches=torch.tensor([[[2, 0], [1, 0]]])).steps == (2,)
    assert both.abs().sum() > 0
    assert heads(heads=3).attention.shape == (1, 1, 3, 3)  # a shared v


# --- token selection: two runs of n = 3, T = 2 and two passive rows ----------------------------------------------------

NAMES = ("values", "weighted", "prompt_norm_squared", "kernel", "head_scores", "labels")
TENSORS = [
    ("values", lambda x: x.tolist(), "values must be a torch tensor"),
    ("values", lambda x: x[:, :-1].clone(), r"weighted must have shape \(2, 20, 6\); got \(2, 21, 6\)"),
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
    ("prompt_norm_squared", _put(torch.nan, 1), r"prompt_norm_squared must be finite; runs \[1\]"),
    ("kernel", lambda x: x[:, :5].clone(), "at least N = n T = 6 rows"),
    ("kernel", lambda x: x[:, :7].clone(), "values must have 20 numbers a run: 7, one per row .*; got 21"),
    ("kernel", lambda x: x[..., :5].clone(), "kernel must have shape"),
    ("kernel", lambda x: x.to("meta"), "kernel must have dtype torch.float64 on cpu; got .* on meta"),
    ("kernel", _put(torch.inf, 1, 0, 0), "kernel must be finite; run 1"),
    ("kernel", _put(9.0, 1, 5, 0), "kernel must be symmetric"),
    ("head_scores", lambda x: x[0], "head_scores must have shape"),
    ("head_scores", lambda x: x[:0], "with R >= 1"),
    ("head_scores", lambda x: x[:, :, :0], "with T >= 1"),
    ("head_scores", _put(torch.nan, 0, 0, 0), "head_scores must be finite"),
    ("labels", lambda x: x[..., None], "labels must have shape"),
    ("labels", lambda x: 0.5 * x, r"labels must be \+1 or -1"),
    ("labels", _put(torch.nan, 0, 0), "labels must be finite"),
]
SETTINGS = [
    ({"step_sizes": torch.full((5, 2), 0.1)}, r"must have shape \(steps\); got \(5, 2\)"),
    ({"step_sizes": [0.1, 0.1, -0.1, 0.1, 0.1]}, "finite numbers > 0 only"),
    ({"step_sizes": [0.1, 0.1, math.nan, 0.1, 0.1]}, "finite numbers > 0 only"),
    ({"record": [6]}, "record must hold steps in 0 ... 5"),
    ({"record": [-1]}, "record must be a whole number"),
    ({"threads": 0}, "threads must be a whole number >= 1"),
    ({"implementation": "fast"}, "implementation must be one of"),
]


@pytest.mark.parametrize(("name", "change", "words"), TENSORS)
def test_tensors_of_token_selection(name, change, words):
    made = token_selection_starts.state(2, 3, 2)
    made[NAMES.index(name)] = change(made[NAMES.index(name)])
    _refused(lambda: token_selection_starts.advance(*made, step_sizes=[0.1]), words, made[2])


@pytest.mark.parametrize(("changes", "words"), SETTINGS)
def test_settings_of_token_selection(changes, words):
    made = token_selection_starts.state(2, 3, 2)
    _refused(lambda: token_selection_starts.advance(*made, **{"step_sizes": [0.1] * 5} | changes), words, made[0])


# --- in-context regression: two runs of two heads, d = 5 ----------------------------------------------------------------

STUDY = [
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
    ({"noise_std": math.nan}, "noise_std must be a finite"),
    ({"target_noise_std": -0.1}, "target_noise_std must be >= 0"),
    ({"optimiser": "adam"}, "'SGD', 'Adam', 'AdamW'"),
    ({"learning_rate": 0.0}, "learning_rate must be a finite number > 0"),
    ({"learning_rate": [1e-3, 1e-3, 1e-3]}, "learning_rate"),
    ({"learning_rate": "fast"}, "learning_rate"),
    ({"betas": (0.9, 1.0)}, "betas"),
    ({"betas": (0.9,)}, "betas"),
    ({"eps": 0.0}, "eps must be a finite number > 0"),
    ({"weight_decay": -0.1}, "weight_decay"),
    ({"threads": 0}, "threads must be"),
]
STATE = [
    (0, lambda x: x.tolist(), "weights must be"),
    (1, lambda x: x.int(), "first_moment must be"),
    (2, lambda x: x.double(), "second_moment must"),
    (0, lambda x: torch.zeros(2, 2, 228)[..., ::2], "contiguous"),
    (1, _put(math.nan, 1, 0, 3), "first_moment must be finite"),
]


@pytest.mark.parametrize(("changes", "words"), STUDY)
def test_settings_of_in_context_training(changes, words):
    state = starts.start(2, 2, 5, dtype=torch.float32)
    _refused(lambda: starts.advance(*state, **starts.setting(**changes)), words, state[0])


@pytest.mark.parametrize(("place", "change", "words"), STATE)
def test_the_state_of_in_context_training(place, change, words):
    state = starts.start(2, 2, 5, dtype=torch.float32)
    state[place] = change(state[place])
    _refused(lambda: starts.advance(*state, **starts.setting()), words, torch.zeros(1))


def test_what_is_changed_in_place_shares_no_memory():
    state = starts.start(2, 2, 5, dtype=torch.float32)
    with pytest.raises(ValueError, match="share memory"):
        starts.advance(state[0], state[1], state[1], **starts.setting())
    with pytest.raises(ValueError, match="'compiled' cannot be used: it computes in float32, not float64"):
        starts.advance(*starts.start(2, 2, 5), **starts.setting(), implementation="compiled")
    made = token_selection_starts.state(1, 3, 2)
    made[3] = made[1][:, :8]
    with pytest.raises(ValueError, match="weighted and kernel share memory"):
        token_selection_starts.advance(*made, step_sizes=[0.1])
