"""The single head's training loop: the reference against automatic differentiation, the fast forms against the reference."""

import math

import numpy as np
import pytest
import torch

from attnlib.kernels import _build, batches
from attnlib.kernels.single_head import advance, arguments, implementation_for, warm_up
from tests.kernels.single_head_cases import training

FAST = ("compiled", "triton")
SIZES = [(1, 0), (2, 1), (5, 3), (37, 0), (37, 2), (63, 2), (130, 0)]  # n, start vectors
# Of one training of six steps; scores are about one. Compiled for a GPU, float32 powers are approximate.
TOLERANCE = {torch.float32: 3e-6, torch.float64: 2e-14}


@pytest.fixture(autouse=True)
def unwritten_memory(monkeypatch):
    """Memory that nothing was written to holds NaNs: one that is read shows."""
    real = torch.Tensor.new_empty

    def full_of_nan(self, *size, **options):
        blank = real(self, *size, **options)
        return blank.fill_(math.nan) if blank.is_floating_point() else blank

    monkeypatch.setattr(torch.Tensor, "new_empty", full_of_nan)


@pytest.fixture(params=FAST)
def fast(request, triton_device):
    """(implementation, device) of a fast form."""
    return request.param, triton_device if request.param == "triton" else torch.device("cpu")


def assert_same_bits(one, other):
    assert torch.equal(one[0], other[0])
    for name in ("steps", "coefficients", "output", "attention"):
        assert torch.equal(getattr(one[1], name), getattr(other[1], name)), name


@pytest.mark.parametrize("start_vectors", [0, 2])
def test_reference_is_gradient_descent_on_dense_vectors(start_vectors):
    """Tokens in R^d, the loss as written, gradients by torch.autograd."""
    case, beta, slow = training(9, start_vectors, runs=1), 0.9, 0.7
    end, seen = case.run("reference", steps=4, record=range(5))
    basis, y = case.basis[0], case.labels[0]
    pairs = torch.stack([basis[case.classes[0]], basis[2 : 2 + case.n]], dim=1)  # (n, 2, d)
    v, p = (case.start[0].T @ basis).unbind()
    for step in range(5):
        v, p = v.detach().requires_grad_(), p.detach().requires_grad_()
        weights = torch.softmax(pairs @ p, dim=1)
        output = (weights.unsqueeze(-1) * pairs).sum(1) @ v
        loss = torch.log1p(torch.exp(-y * output)).mean()
        torch.testing.assert_close(seen.output[0, step], output.detach(), rtol=1e-13, atol=1e-14)
        torch.testing.assert_close(seen.attention[0, step], weights[:, 0].detach(), rtol=1e-13, atol=0)
        vectors = torch.stack([v, p]).detach()
        torch.testing.assert_close(seen.coefficients[0, step].T @ basis, vectors, rtol=1e-12, atol=1e-14)
        grad_v, grad_p = torch.autograd.grad(loss, (v, p))
        v, p = v - beta * grad_v, p - slow * grad_p
    assert torch.equal(end, seen.coefficients[:, 4])
    assert (end[0, case.n + 2 :] == case.start[0, case.n + 2 :]).all()
    assert (end[0, : case.n + 2].abs() > 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("n", "start_vectors"), SIZES)
def test_fast_forms_follow_the_reference_step_by_step(fast, n, start_vectors, dtype):
    implementation, device = fast
    case = training(n, start_vectors, runs=3, seed=n)
    chosen = {
        "steps": 6,
        "record": range(7),
        "value_step": [0.9, 0.0, 1.1],
        "attention_step": torch.tensor([0.7, 1.3, 0.0]),
    }
    want, seen = case.run("reference", **chosen)
    got, ours = case.run(implementation, dtype, device=device, **chosen)
    assert ours.steps.tolist() == list(range(7))
    near = {"rtol": 0, "atol": TOLERANCE[dtype]}
    torch.testing.assert_close(got.double(), want, **near)
    for name in ("coefficients", "output", "attention"):
        values = getattr(ours, name)
        assert values.dtype == dtype
        torch.testing.assert_close(values.double(), getattr(seen, name), **near, msg=lambda m, k=name: f"{k}: {m}")


def test_sizes_of_several_vectors_and_blocks(fast):
    """More than one block of columns on the GPU, several tiles on the CPU."""
    implementation, device = fast
    case = training(301, 1, runs=1)
    want, seen = case.run("reference", steps=2, record=[2])
    got, ours = case.run(implementation, device=device, steps=2, record=[2])
    torch.testing.assert_close(got, want, rtol=0, atol=1e-14)
    torch.testing.assert_close(ours.output, seen.output, rtol=0, atol=1e-13)


@pytest.mark.parametrize("implementation", ["reference", *FAST])
def test_half_way_and_on_is_the_whole_way(implementation, triton_device, monkeypatch):
    """Stopped at any step; a sparse record is a part of the full one; launches cut short change nothing."""
    device = triton_device if implementation == "triton" else "cpu"
    case = training(11, 2)
    whole = case.run(implementation, device=device, steps=5, record=range(6))
    for stop in range(6):
        state, before = case.run(implementation, device=device, steps=stop, record=range(stop))
        end, after = case.run(implementation, device=device, start=state, steps=5 - stop, record=range(6 - stop))
        assert torch.equal(end, whole[0])
        for name in ("coefficients", "output", "attention"):
            assert torch.equal(torch.cat([getattr(before, name), getattr(after, name)], dim=1), getattr(whole[1], name))
    end, some = case.run(implementation, device=device, steps=5, record=[4, 1, 4])
    assert some.steps.tolist() == [1, 4]
    assert torch.equal(end, whole[0])
    assert torch.equal(some.output, whole[1].output[:, [1, 4]])
    if implementation == "compiled":
        from attnlib.kernels.single_head import compiled

        monkeypatch.setattr(compiled, "_WORK", 2 * 15 * 15)
    if implementation == "triton":
        from attnlib.kernels.single_head import gpu

        monkeypatch.setattr(gpu, "_SECONDS", 0.0)
    assert_same_bits(case.run(implementation, device=device, steps=5, record=range(6)), whole)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_threads_and_other_runs_change_nothing(dtype):
    case = training(21, 1, runs=5)
    whole = case.run("compiled", dtype, steps=40, record=[0, 7, 40], threads=1)
    for threads in (2, 3, 8, None):
        assert_same_bits(case.run("compiled", dtype, steps=40, record=[0, 7, 40], threads=threads), whole)
    alone = case.run("compiled", dtype, steps=40, record=[0, 7, 40], runs=slice(3, 4))
    assert torch.equal(alone[0], whole[0][3:4])
    assert torch.equal(alone[1].attention, whole[1].attention[3:4])


def test_gpu_batches_change_nothing(triton_device, monkeypatch):
    case = training(6, 0, runs=5)
    whole = case.run("triton", device=triton_device, steps=2, record=[0, 2])
    monkeypatch.setattr(batches, "free_bytes", lambda device: 2 * (16 * 8 + 16) * 8)
    assert_same_bits(case.run("triton", device=triton_device, steps=2, record=[0, 2]), whole)


def test_unwritten_memory_of_the_compiled_form_is_not_read(monkeypatch):
    case = training(18, 2)
    whole = case.run("compiled", steps=3, record=[0, 3])
    from attnlib.kernels.single_head import compiled

    loops = compiled._loops()
    real = loops.buffer

    def full_of_nan(n, dtype):
        data, width = real(n, dtype)
        data.fill(math.nan)
        return data, width

    monkeypatch.setattr(loops, "buffer", full_of_nan)
    assert_same_bits(case.run("compiled", steps=3, record=[0, 3]), whole)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("implementation", ["reference", *FAST])
def test_probabilities_are_exact_relative_to_their_value(implementation, dtype, triton_device):
    """Scores from far below to far above zero: a, 1 - a and the pull of the loss, each near its own value; nothing overflows.

    The basis is orthonormal, so scores are coefficients: run r has p = t_r on the noise token, v = 1 on both, or
    p = 0 and v = t_r on both.
    """
    device = triton_device if implementation == "triton" else "cpu"
    reach = 80.0 if dtype == torch.float32 else 700.0
    t = torch.cat([torch.linspace(-reach, reach, 41, dtype=torch.float64), torch.tensor([1e-3, -1e-9, -3e4, 3e4])])
    one = torch.ones(len(t), 1, dtype=dtype, device=device)
    t = t.to(dtype)
    gram = torch.eye(3, dtype=dtype, device=device).expand(len(t), 3, 3).contiguous()
    classes = torch.zeros(len(t), 1, dtype=torch.int64, device=device)

    def after_one_step(value, score):
        state = torch.zeros(len(t), 3, 2, dtype=dtype, device=device)
        state[:, 0, 0], state[:, 2, 0], state[:, 2, 1] = value[0].to(device), value[1].to(device), score.to(device)
        before = state.clone()
        seen = advance(
            gram, state, one, classes, steps=1, value_step=1.0, attention_step=1.0, record=[0], implementation=implementation
        )  # fmt: skip
        assert state.isfinite().all()
        return (state - before).cpu().double(), seen.attention[:, 0, 0].cpu().double()

    def near(got, want):
        """Relative, where the value is a normal number and stays one beside what it is added to."""
        seen = want > (1e-34 if dtype == torch.float32 else 1e-300)
        torch.testing.assert_close(got[seen], want[seen], rtol=3e-5 if dtype == torch.float32 else 1e-12, atol=0)
        assert (got[~seen] <= (1e-33 if dtype == torch.float32 else 1e-299)).all()

    zero = torch.zeros_like(t)
    moved, attention = after_one_step((zero, zero), t)
    wide = t.double()
    near(attention, torch.sigmoid(-wide))
    near(2 * moved[:, 0, 0], torch.sigmoid(-wide))  # the pull at output zero is 1/2
    near(2 * moved[:, 2, 0], torch.sigmoid(wide))
    moved, _ = after_one_step((t, zero), zero)  # output t/2
    near(2 * moved[:, 2, 0], torch.sigmoid(-wide / 2))


def test_a_run_that_diverges_is_not_finite_and_leaves_the_others_alone(fast):
    """Scores that overflow make no probabilities: nothing clamps a NaN to a plausible number."""
    implementation, device = fast
    case = training(7, 0, runs=3)
    calm = case.run(implementation, device=device, steps=3, record=[0, 3])
    start = case.start.clone()
    start[1, :, 1] = 1.7e308  # scores of p are infinite, gaps infinity less infinity
    with np.errstate(all="ignore"):
        wild = case.run(implementation, device=device, start=start, steps=3, record=[0, 3])
    assert wild[1].attention[1, 0].isnan().any()  # not all: it depends on the order of the sums
    assert wild[1].attention[1, 1].isnan().all()
    assert wild[1].output[1, 1].isnan().all()
    for r in (0, 2):
        assert torch.equal(wild[0][r], calm[0][r])
        assert torch.equal(wild[1].output[r], calm[1].output[r])


def test_nothing_to_do(fast):
    implementation, device = fast
    case = training(4)
    end, seen = case.run(implementation, device=device, steps=0)
    assert torch.equal(end, case.start)
    assert seen.steps.shape == (0,)
    assert seen.coefficients.shape == (2, 0, 6, 2)
    assert seen.output.shape == seen.attention.shape == (2, 0, 4)
    end, seen = case.run(implementation, device=device, steps=0, record=[0])
    assert torch.equal(end, case.start)
    assert (seen.attention == 0.5).all()


def test_any_floating_dtype_in_the_reference():
    case = training(4)
    half, _ = case.run("auto", torch.bfloat16, steps=3)
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.double(), case.run("reference", steps=3)[0], rtol=0, atol=0.02)
    with pytest.raises(ValueError, match=r"compiled.*float32 or float64, not bfloat16"):
        case.run("compiled", torch.bfloat16, steps=3)


def test_more_vectors_than_the_gpu_program_counts():
    cpu = torch.device("cpu")
    with pytest.raises(ValueError, match=r"triton.*at most 46340 vectors, and there are 46341"):
        implementation_for(46_341, cpu, torch.float32, implementation="triton")
    assert implementation_for(46_341, cpu, torch.float32) == "compiled"


def test_warm_up_compiles(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTNLIB_CACHE", str(tmp_path))
    _build.module.cache_clear()
    try:
        warm_up(torch.float32)
        assert [path.name for path in (tmp_path / "kernels").glob("attnlib_single_head*.py")]
    finally:
        _build.module.cache_clear()


def bad(**changes):
    """Good arguments of one small run with some changed."""
    good = {
        "gram": torch.eye(6)[None], "coefficients": torch.zeros(1, 6, 2), "labels": torch.ones(1, 3),
        "classes": torch.zeros(1, 3, dtype=torch.int64), "steps": 2, "value_step": 0.1, "attention_step": 0.1,
    }  # fmt: skip
    return good | changes


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"gram": torch.eye(6)}, "gram must have shape"),
        ({"gram": torch.zeros(1, 6, 5)}, r"square matrices \(R, m, m\); got \(1, 6, 5\)"),
        ({"gram": torch.zeros(0, 6, 6)}, "at least one run"),
        ({"gram": torch.eye(6).double()[None]}, "labels must have dtype torch.float64"),
        ({"gram": torch.eye(6)[None] / 0}, "gram must be finite"),
        ({"gram": torch.eye(6)[None].index_fill(1, torch.tensor([2]), math.nan)}, "gram must be finite"),
        ({"gram": torch.ones(6, 6).triu()[None]}, "gram must be symmetric"),
        ({"gram": torch.eye(12)[None, ::2, ::2]}, "gram must be contiguous"),
        ({"coefficients": torch.zeros(1, 2, 6).mT}, "coefficients must be contiguous"),
        ({"coefficients": torch.zeros(1, 5, 2)}, r"coefficients must have shape \(1, 6, 2\)"),
        ({"coefficients": torch.zeros(1, 6, 2).double()}, "coefficients must have dtype torch.float32"),
        ({"coefficients": torch.full((1, 6, 2), math.inf)}, "coefficients must be finite"),
        ({"coefficients": torch.zeros(1, 6, 2, requires_grad=True)}, "must not ask for a gradient"),
        ({"labels": torch.ones(1, 3, dtype=torch.int64)}, "labels must be a floating-point tensor"),
        ({"labels": torch.zeros(1, 3)}, r"labels must be \+1 or -1"),
        ({"labels": torch.full((1, 3), math.nan)}, r"labels must be \+1 or -1"),
        ({"labels": torch.ones(1, 5)}, r"labels must hold 1 \.\.\. 4 samples.*got 5"),
        ({"labels": torch.ones(1, 0)}, r"labels must hold 1 \.\.\. 4 samples.*got 0"),
        ({"labels": torch.ones(2, 3)}, "labels must have shape"),
        ({"labels": torch.ones(1, 6)[:, ::2]}, "labels must be contiguous"),
        ({"classes": torch.zeros(1, 3)}, "classes must be an int64 tensor"),
        ({"classes": torch.full((1, 3), 2)}, "classes must be 0 or 1"),
        ({"classes": torch.zeros(1, 4, dtype=torch.int64)}, r"classes must have shape \(1, 3\)"),
        ({"classes": [0, 1, 0]}, "classes must be an int64 tensor on cpu; got list"),
        ({"steps": -1}, "steps must be a whole number"),
        ({"steps": 2**31}, "steps must be at most 2147483647"),
        ({"record": [3]}, r"record must hold steps in 0 \.\.\. 2; got 3"),
        ({"record": [0.5]}, "record must be a whole number"),
        ({"value_step": -0.1}, "value_step must be >= 0"),
        ({"value_step": math.nan}, "value_step must be a finite number"),
        ({"value_step": "fast"}, "value_step must be a finite number"),
        ({"attention_step": [0.1, 0.2]}, "attention_step must be one number or 1, one per run; got 2"),
        ({"attention_step": torch.tensor([math.inf])}, "attention_step must be a finite number"),
        ({"threads": 0}, "threads must be a whole number >= 1"),
        ({"implementation": "fastest"}, "implementation must be one of"),
        ({"labels": torch.ones(1, 3, device="meta")}, "labels must have dtype torch.float32 on cpu"),
        ({"classes": torch.zeros(1, 3, dtype=torch.int64, device="meta")}, "classes must be an int64 tensor on cpu"),
    ],
)
def test_bad_arguments(changes, words):
    arguments_ = bad(**changes)
    state = arguments_["coefficients"].detach().clone()
    with pytest.raises(ValueError, match=words):
        advance(**arguments_)
    assert torch.equal(arguments_["coefficients"].detach(), state)


def test_good_arguments_are_good():
    end = advance(**bad(record=[2], threads=2))
    assert end.steps.tolist() == [2]
    assert arguments.MOST_STEPS == 2**31 - 1
