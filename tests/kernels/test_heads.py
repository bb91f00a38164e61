"""The training loop of attention heads: the reference against dense vectors, the fast forms against the reference."""

import numpy as np
import pytest
import torch

from attnlib.kernels import dispatch, heads
from attnlib.kernels.heads import Call, advance
from attnlib.single_head import maps
from tests.kernels.heads_cases import FIELDS, MAPS, RULES, assert_follows, assert_near, assert_same_bits, training

BOTH = ("reference", "compiled")


@pytest.fixture(params=[400, 0], ids=["whole matrix", "half of it"])
def near(request, monkeypatch):
    """Both products with the matrix, at any size."""
    from attnlib.kernels.heads import compiled

    monkeypatch.setattr(compiled, "_NEAR", request.param)


pytestmark = pytest.mark.usefixtures("unwritten_memory")


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("batch", [None, 4])
def test_reference_is_training_of_dense_vectors(rule, shared, batch):
    """Tokens in R^d, the loss as written, gradients by autograd, steps by torch.optim.SGD."""
    case, steps, chosen = training(6, 3, shared=shared, signals=3, runs=1, seed=5), 5, RULES[rule]
    _, _, seen = case.run("reference", steps, attention_map=maps.softmax(0.7), batch=batch, **chosen)
    basis, y, values = case.basis[0], case.labels[0], 1 if shared else 3
    pairs = torch.stack([basis[case.classes[0]], basis[3 : 3 + case.n]], dim=1)  # (n, 2, d)
    vectors = case.start[0] @ basis
    v, p = vectors[:values].clone().requires_grad_(), vectors[values:].clone().requires_grad_()
    groups = [{"params": [v], "lr": 0.0}, {"params": [p], "lr": 0.0}]
    optimiser = torch.optim.SGD(
        groups, lr=0.0, momentum=chosen.get("momentum", 0.0), nesterov=chosen.get("look_ahead", False)
    )
    for step in range(steps + 1):
        weights = torch.softmax(pairs @ p.T / 0.7, dim=1)  # (n, 2, H)
        output = 0.8 * (weights * (pairs @ v.T)).sum((1, 2))
        assert_near(seen.output[step, 0], output.detach())
        assert_near(seen.attention[step, 0], weights[:, 0].T.detach())
        assert_near(seen.coefficients[step, 0] @ basis, torch.cat([v, p]).detach())
        if step == steps:
            break
        mine = slice(None) if batch is None else case.batches(steps, batch)[0, step]
        optimiser.zero_grad()
        torch.log1p(torch.exp(-y * output))[mine].mean().backward()
        lengths = v.grad.norm(), p.grad.norm()
        if rule == "joint":
            lengths = (torch.hypot(*lengths),) * 2
        if "prepare" in chosen:
            v.grad /= lengths[0]
            p.grad /= lengths[1]
        for group, size in zip(optimiser.param_groups, (0.5, 0.4), strict=True):
            group["lr"] = size / (1 + 0.1 * step)
        optimiser.step()
    assert (seen.output[-1] - seen.output[0]).abs().max() > 0.1


@pytest.mark.parametrize("chosen", MAPS, ids=str)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("heads", "shared", "signals", "n"), [(1, False, 2, 5), (2, True, 3, 9), (4, False, 1, 14)])
@pytest.mark.parametrize("batch", [None, 3])
def test_compiled_form_follows_the_reference_step_by_step(chosen, rule, heads, shared, signals, n, batch):
    case = training(n, heads, shared=shared, signals=signals, runs=2, seed=n)
    run = {
        "steps": 12, "attention_map": chosen, "batch": batch, "value_step": [0.3, 0.2],
        "attention_step": torch.tensor([0.15, 0.0]), **RULES[rule],
    }  # fmt: skip
    want, got = (case.run(form, **run) for form in BOTH)
    assert_follows(got, want)
    assert got[2].steps == tuple(range(13))
    assert torch.equal(got[0][..., signals + n :], case.start[..., signals + n :])
    assert torch.equal(got[0][1, -heads:], case.start[1, -heads:])  # p of the frozen run
    assert not torch.equal(got[2].output[12], got[2].output[0])


@pytest.mark.parametrize("chosen", [maps.relu(0.5), maps.relu(1.0), maps.HARDMAX], ids=lambda m: f"{m} {m.setting}")
def test_maps_at_a_kink(chosen):
    """p starts at zero, where every logit is zero: the derivative there is the one chosen, a tie is shared."""
    case = training(6, 2)
    start = case.start.clone()
    start[:, 2:] = 0
    want, got = (case.run(form, 1, start=start, attention_map=chosen) for form in BOTH)
    assert_near(got[0], want[0])
    assert (got[2].attention[0] == (0.5 if chosen is maps.HARDMAX else 0)).all()
    assert (want[0][:, 2:].abs().amax() > 1e-3) == (chosen is not maps.HARDMAX)


@pytest.mark.parametrize("batch", [None, 7])
def test_long_trainings_agree(batch):
    """A thousand steps: scores are made anew in every step, so that no rounding gathers in them."""
    case = training(23, 2, runs=2, start_vectors=4)
    for rule in ({}, {"momentum": 0.9}):
        run = {"steps": 1000, "batch": batch, "value_step": 0.05, "attention_step": 0.05, "record": [1000], **rule}
        run["factors"] = torch.ones(1000)
        want, got = (case.run(form, **run) for form in BOTH)
        assert_follows(got, want, 1e-11)


@pytest.mark.usefixtures("near")
@pytest.mark.parametrize(
    ("n", "signals", "start_vectors"), [(1, 1, 0), (1, 2, 3), (6, 2, 0), (61, 3, 1), (130, 2, 0), (405, 2, 1)]
)
@pytest.mark.parametrize(("heads", "prepare"), [(2, "joint"), (3, "blocks")])
def test_sizes(n, signals, start_vectors, heads, prepare):
    case = training(n, heads, signals=signals, start_vectors=start_vectors, runs=1)
    want, got = (case.run(form, 4, prepare=prepare) for form in BOTH)
    assert_follows(got, want)


@pytest.mark.usefixtures("near")
@pytest.mark.parametrize("chosen", [maps.softmax(0.7), maps.ENTMAX15, maps.SIGMOID], ids=str)
@pytest.mark.parametrize("batch", [None, 4])
@pytest.mark.parametrize(("n", "heads", "signals"), [(5, 1, 2), (37, 1, 2), (130, 2, 3)])
def test_float32_follows_the_reference_in_float64(chosen, batch, n, heads, signals):
    case = training(n, heads, signals=signals, seed=n)
    run = {"steps": 6, "attention_map": chosen, "batch": batch, "momentum": 0.5}
    want, got = case.run("reference", **run), case.run("compiled", dtype=torch.float32, **run)
    assert {getattr(got[2], name).dtype for name in FIELDS} == {torch.float32}
    assert_follows(got, want, 1e-5)


@pytest.mark.parametrize("form", BOTH)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("batch", [None, 3, 11])
def test_half_way_and_on_is_the_whole_way(form, rule, batch, monkeypatch):
    """Stopped at any step; a sparse record is a part of the full one; calls cut short change nothing."""
    case, factors = training(11, 2, shared=True), torch.linspace(1.0, 0.3, 5)
    batches = None if batch is None else case.batches(5, batch)
    run = {**RULES[rule], "factors": factors, "batches": batches}
    whole = case.run(form, 5, **run)
    for stop in range(6):
        before, after = ({**run, "factors": factors[part]} for part in (slice(stop), slice(stop, None)))
        if batches is not None:
            before["batches"], after["batches"] = batches[:, :stop].contiguous(), batches[:, stop:].contiguous()
        state, velocity, first = case.run(form, stop, record=range(stop), **before)
        end = case.run(form, 5 - stop, start=state, velocity=velocity, **after)
        assert torch.equal(end[0], whole[0])
        assert torch.equal(end[1], whole[1])
        for name in FIELDS:
            assert torch.equal(torch.cat([getattr(first, name), getattr(end[2], name)]), getattr(whole[2], name))
    end, velocity, some = case.run(form, 5, record=(1, 4), **run)
    assert some.steps == (1, 4)
    assert torch.equal(end, whole[0])
    assert torch.equal(velocity, whole[1])
    assert torch.equal(some.attention, whole[2].attention[[1, 4]])
    if form == "compiled":
        from attnlib.kernels.heads import compiled

        monkeypatch.setattr(compiled, "_WORK", 1)
        assert_same_bits(case.run(form, 5, **run), whole)


@pytest.mark.parametrize("batch", [None, 4])
def test_threads_and_other_runs_change_nothing(batch):
    """Long enough for threads to work at the same time."""
    case = training(21, 3, runs=5)
    run = {"steps": 4000, "record": [0, 7, 4000], "prepare": "joint", "momentum": 0.5, "batch": batch}
    run["factors"] = torch.full((4000,), 0.1)
    whole = case.run("compiled", threads=1, **run)
    for threads in (2, 3, 8, None):
        assert_same_bits(case.run("compiled", threads=threads, **run), whole)
    alone = case.run("compiled", runs=slice(3, 4), **run)
    assert torch.equal(alone[0], whole[0][3:4])
    assert torch.equal(alone[2].attention, whole[2].attention[:, 3:4])


def pulled(value, logit, form, prepare=""):
    """One head, one sample of label 1 with two orthonormal tokens a run: the gradient (R, 2, 2), v and p, and the attention."""
    state = torch.stack([torch.stack([value, value]), torch.stack([logit, -logit])]).permute(2, 0, 1).contiguous()
    velocity, one = torch.zeros_like(state), torch.ones_like(value)[:, None]
    call = Call(
        torch.eye(2).to(state).repeat(len(state), 1, 1), state, one, one.long() * 0, state.new_ones(len(state), 2),
        torch.ones(1, dtype=torch.float64), heads=1, signals=1, attention_map=maps.SOFTMAX,
        prepare=prepare, momentum=0.5, velocity=velocity, record=[0],
    )  # fmt: skip
    seen = advance(call, implementation=form)
    assert state.isfinite().all()
    return velocity, seen.attention[0, :, 0, 0]  # the velocity of a first step is the gradient


@pytest.mark.parametrize("form", [*BOTH, "triton"])
def test_ends_of_the_numbers(form, triton_device):
    """Outputs and logits from far below to far above zero, on an orthonormal basis: each pull near its own value, then none."""
    where = {"dtype": torch.float64, "device": triton_device if form == "triton" else "cpu"}
    t = torch.tensor([-3e4, -800.0, -707.0, -40.0, 0.0, 40.0, 300.0, 707.0, 709.0, 3e4], **where)
    gradient, attention = pulled(torch.zeros_like(t), t / 2, form)
    torch.testing.assert_close(attention, torch.sigmoid(t), rtol=1e-12, atol=1e-307)
    torch.testing.assert_close(-2 * gradient[:, 0, 0], torch.sigmoid(t), rtol=1e-12, atol=1e-307)  # pull 1/2
    length = pulled(t, torch.zeros_like(t), form, "joint")[0].square().sum((1, 2)).sqrt()
    torch.testing.assert_close(length[:8], torch.ones_like(t[:8]), rtol=1e-9, atol=0)
    assert (length[8:] == 0).all()


@pytest.mark.usefixtures("near")
@pytest.mark.parametrize("batch", [None, 3])
def test_a_run_that_diverges_is_not_finite_and_leaves_the_others_alone(batch):
    """Runs share their working memory: what a diverged one leaves there must not be read by the next."""
    for chosen in MAPS:
        case = training(7, 2, runs=3)
        run = {"attention_map": chosen, "batch": batch, "record": [3], "threads": 1}
        calm = case.run("compiled", 3, **run)
        start = case.start.clone()
        start[1] = 1.7e308
        with np.errstate(all="ignore"):
            wild = case.run("compiled", 3, start=start, **run)
        assert not wild[2].output[:, 1].isfinite().any()
        for r in (0, 2):
            assert torch.equal(wild[0][r], calm[0][r])
            assert torch.equal(wild[2].output[:, r], calm[2].output[:, r])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("form", BOTH)
def test_probabilities_are_exact_relative_to_their_value(form, dtype):
    """Logit gaps and margins over the whole range of the exponential: weights and pulls right in their own digits, not beside 1."""
    reach = 80.0 if dtype == torch.float32 else 700.0
    t = torch.linspace(-reach, reach, 41, dtype=torch.float64).to(dtype)
    near = {"rtol": 2e-5 if dtype == torch.float32 else 1e-12, "atol": 0}
    zero, wide = torch.zeros_like(t), t.double()
    gradient, attention = (x.double() for x in pulled(zero, t / 2, form))
    torch.testing.assert_close(attention, torch.sigmoid(wide), **near)
    torch.testing.assert_close(-2 * gradient[:, 0, 0], torch.sigmoid(wide), **near)  # the pull at output zero is 1/2
    torch.testing.assert_close(-2 * gradient[:, 0, 1], torch.sigmoid(-wide), **near)
    gradient = pulled(t, zero, form)[0].double()
    torch.testing.assert_close(-2 * gradient[:, 0, 0], torch.sigmoid(-wide), **near)  # weight 1/2


@pytest.mark.parametrize("form", BOTH)
def test_a_saddle_is_not_left(form):
    """The gradient is zero, and so is its normalised form."""
    case = training(4, 2)
    run = {"start": torch.zeros_like(case.start), "attention_map": maps.LINEAR, "prepare": "joint"}
    state, velocity, _ = case.run(form, 1, **run)
    assert (state == 0).all()
    assert (velocity == 0).all()


def test_what_the_fast_forms_cannot_do_goes_to_the_reference():
    case, narrow = training(4), maps.windows(maps.SOFTMAX, 1)
    other = maps.AttentionMap("cubic", lambda z: z**3, lambda z, w, up: 3 * z**2 * up, lambda T: 0.0, normalised=False)
    for form in ("compiled", "triton"):
        for chosen, words in ((narrow, "no windows, and the map has windows of 1"), (other, "no map 'cubic'")):
            with pytest.raises(ValueError, match=f"'{form}' cannot be used: it has {words}"):
                case.run(form, attention_map=chosen)
    assert "at most 46340 vectors, and there are 46341" in heads._obstacles(maps.SOFTMAX, 46_341, 1)["triton"]
    assert heads._obstacles(maps.SOFTMAX, 46_340, 1) == {}
    assert "32 bits" in heads._obstacles(maps.SOFTMAX, 4, 2**31)["triton"]
    with pytest.raises(ValueError, match="it computes in float32 or float64, not bfloat16"):
        case.run("compiled", dtype=torch.bfloat16)
    half = case.run("auto", dtype=torch.bfloat16)
    assert half[2].output.dtype == torch.bfloat16
    assert_near(half[2].output.double(), case.run("compiled")[2].output, 0.1)
    assert any(line.startswith("training of attention heads: reference, bfloat16") for line in dispatch.ran())
