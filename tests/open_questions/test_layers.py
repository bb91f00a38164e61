"""Two layers: gradients, equivariance, what W = 0 means, thresholds of mixed tokens, and errors."""

import itertools
import math

import numpy as np
import pytest
import torch

from attnbook.open_questions.second_layer.layer_error import (
    log10_error_of_mixed_tokens,
    noise_phase_error,
    sampled_error_of_layers,
)
from attnbook.open_questions.second_layer.layers import (
    ARCHITECTURES,
    Architecture,
    layer_gradients,
    layer_outputs,
    signal_first,
    train_layers,
)
from attnbook.open_questions.second_layer.layers_frozen import train_frozen
from attnbook.open_questions.second_layer.study import FrozenRun, layers_law, layers_study
from attnbook.single_head.coordinates import reduce, rotate
from attnlib.single_head.law import SignalNoiseLaw
from attnlib.single_head.training import gaussian_start, gradient_descent
from tests.bad_input import refusing

F64 = torch.float64
SMALL = SignalNoiseLaw(7, 60, 4.0, 0.2)


def close(a, b, tolerance=1e-12):
    a, b = torch.as_tensor(a), torch.as_tensor(b)
    torch.testing.assert_close(a, b, rtol=0, atol=tolerance * max(1.0, float(b.abs().max())), check_dtype=False)


def state_of(sample, seed=0):
    generator = torch.Generator().manual_seed(seed)
    runs, m = sample.runs, sample.tokens.shape[-1]
    shapes = ((runs, m), (runs, m), (runs, m, m))
    return [
        s * torch.randn(*shape, generator=generator, dtype=F64)
        for s, shape in zip((0.3, 0.2, 0.05), shapes, strict=True)
    ]


def one_by_one(x, v, p, W, a):
    """f of one sample (2, m), with plain loops over tokens."""
    rows = []
    for t in range(2):
        scores = [float("-inf") if not a.allowed[t][s] else x[t] @ W @ x[s] for s in range(2)]
        attention = torch.softmax(torch.stack([torch.as_tensor(s, dtype=F64) for s in scores]), 0)
        rows.append(a.residual * x[t] + a.scale * sum(attention[s] * x[s] for s in range(2)))
    weight = torch.softmax(torch.stack([row @ p for row in rows]), 0)
    return sum(weight[t] * (rows[t] @ v) for t in range(2))


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_gradients_by_autograd_and_by_central_differences(name):
    architecture = ARCHITECTURES[name]
    sample = SMALL.draw(3, 2)
    tokens, labels = signal_first(sample), sample.labels
    v, p, W = state_of(sample)
    wanted = [part.clone().requires_grad_() for part in (v, p, W)]
    output = torch.stack(
        [torch.stack([one_by_one(x, *(w[r] for w in wanted), architecture) for x in tokens[r]]) for r in range(2)]
    )
    close(layer_outputs(tokens, v, p, W, architecture)[0], output.detach(), 1e-12)
    loss = torch.nn.functional.softplus(-labels * output).mean(-1)
    exact = torch.autograd.grad(loss.sum(), wanted, allow_unused=True)
    found = layer_gradients(tokens, labels, v, p, W, architecture)
    for a, b in zip(found, exact, strict=True):
        close(a, torch.zeros_like(a) if b is None else b, 1e-10)

    def value(v, p, W):
        return torch.nn.functional.softplus(-labels * layer_outputs(tokens, v, p, W, architecture)[0]).mean(-1)[0]

    h = 1e-5
    for i, entry in ((0, (0, 3)), (1, (0, 2)), (2, (0, 1, 4)), (2, (0, 5, 0))):
        state = [v, p, W]
        step = torch.zeros_like(state[i])
        step[entry] = h
        up, down = (value(*[s + sign * step if j == i else s for j, s in enumerate(state)]) for sign in (1, -1))
        assert float((up - down) / (2 * h)) == pytest.approx(float(found[i][entry]), abs=1e-8)


@pytest.mark.parametrize("name", ["residual", "no residual", "signal sees noise"])
def test_reduced_coordinates_are_exact_also_with_w_trained(name):
    dense = SignalNoiseLaw(6, 40, 5.0, 0.2).draw(2, coordinates="dense", start_vectors=2)
    small = reduce(dense)
    assert small.tokens.shape[-1] == 10 < dense.tokens.shape[-1]
    a, b = (
        train_layers(s, ARCHITECTURES[name], 0.5, 15, mixing_step_size=0.01, start=gaussian_start(s, 0.1))
        for s in (dense, small)
    )
    close(a.margins, b.margins, 1e-9)
    close(a.attention, b.attention, 1e-9)
    turn, _ = torch.linalg.qr(torch.randn(10, 10, generator=torch.Generator().manual_seed(1), dtype=F64))
    turned = train_layers(rotate(small, turn), ARCHITECTURES[name], 0.5, 15, mixing_step_size=0.01,
                          start=tuple(s @ turn.T for s in gaussian_start(small, 0.1)))  # fmt: skip
    close(turned.W[-1, 0], turn @ b.W[-1, 0] @ turn.T, 1e-9)


def test_without_the_residual_p_stays_as_long_as_w_does():
    """Both tokens of Y are the mean, from zero and from a random start; with W trained p moves."""
    sample = layers_law(2.0).draw(0, 2, start_vectors=2)
    beta, start = 5 * sample.law.n / sample.law.d, gaussian_start(sample, 0.01)
    for options, origin, moves in (
        ({}, torch.zeros(()), False), ({"start": start}, start[1], False), ({"mixing_step_size": 1e-3 * beta}, torch.zeros(()), True)
    ):  # fmt: skip
        path = train_layers(sample, ARCHITECTURES["no residual"], beta, 30, **options)
        assert bool((path.p - origin).any()) is moves


def test_one_layer_is_the_single_head_and_positions_do_not_matter():
    sample = SignalNoiseLaw(9, 80, 6.0, 0.2).draw(0, 2, coordinates="dense")
    assert sample.signal_position.unique().numel() == 2
    path, head = train_layers(sample, ARCHITECTURES["one layer"], 0.4, 12), gradient_descent(sample, 0.4, 12)
    for name in ("v", "p", "margins"):
        close(getattr(path, name), getattr(head, name), 1e-12)
    close(path.weight, head.attention_on_signal, 1e-12)
    first = signal_first(sample)[:, :, 0]
    close((first @ sample.signals.mT).amax(-1), torch.full((2, 9), 36.0, dtype=F64), 1e-12)


def test_start_of_every_architecture_and_its_threshold():
    assert ARCHITECTURES["residual"].start == ((1.5, 0.5), (0.5, 1.5))
    assert ARCHITECTURES["noise sees signal"].start == ((2.0, 0.0), (0.5, 1.5))
    assert ARCHITECTURES["signal sees noise"].start == ((1.5, 0.5), (0.0, 2.0))
    assert ARCHITECTURES["others only"].start == ((1.0, 1.0), (1.0, 1.0))
    assert [ARCHITECTURES[k].threshold for k in ("one layer", "residual", "strong mix")] == [1, 1, 1]
    assert ARCHITECTURES["noise sees signal"].threshold == pytest.approx(0.6)
    assert ARCHITECTURES["signal sees noise"].threshold == pytest.approx(5 / 3)
    assert math.isnan(ARCHITECTURES["no residual"].threshold)
    sample = SMALL.draw(1)
    tokens = signal_first(sample)
    for architecture in ARCHITECTURES.values():
        v, p, W = state_of(sample)
        mixed = torch.tensor(architecture.start, dtype=F64) @ tokens
        weight = torch.softmax(mixed @ p[0], -1)
        found, on_u, _ = layer_outputs(tokens, v, p, 0 * W, architecture)
        close(found, (weight * (mixed @ v[0])).sum(-1))
        close(on_u, weight[..., 0])


@pytest.mark.parametrize("steps", [0, 35])
def test_frozen_runs_in_gram_space_are_the_readable_ones(steps):
    laws = [SignalNoiseLaw(8, 90, norm, 0.2) for norm in (4.0, 9.0)]
    architectures = [ARCHITECTURES[name] for name in ("signal sees noise", "weak mix", "no residual")]
    samples = [law.draw(5, runs) for law, runs in zip(laws, (2, 3), strict=True)]
    fast = train_frozen(architectures, samples, 0.3, steps, record=[0])
    for i, (architecture, sample) in enumerate(itertools.product(architectures, samples)):
        slow = train_layers(sample, architecture, 0.3, steps, record=[0])
        for name in ("v", "p", "margins", "weight"):
            close(getattr(fast, name)[i], getattr(slow, name), 1e-10)
    tiny = train_layers(sample, architecture, 0.3, steps, record=[0], mixing_step_size=1e-14)
    close(tiny.margins, slow.margins, 1e-8)


# --- errors ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["residual", "noise sees signal", "signal sees noise", "no residual"])
def test_exact_error_of_mixed_tokens_agrees_with_sampling(name):
    sample = SignalNoiseLaw(20, 150, 2.5, 0.1).draw(1, 3)
    path = train_layers(sample, ARCHITECTURES[name], 0.3, 40, record=[])
    plain = sampled_error_of_layers(path, sample, 30_000)
    exact = 10 ** log10_error_of_mixed_tokens(path.v[-1], path.p[-1], sample, ARCHITECTURES[name])
    assert plain.value.shape == (1, 3)
    assert float(((exact - plain.value[0]) / plain.standard_error[0]).abs().max()) < 4
    assert (plain.value > 1e-3).all()
    # The formula of one layer is not that of mixed tokens.
    if name == "residual":
        other = 10 ** log10_error_of_mixed_tokens(path.v[-1], path.p[-1], sample, ARCHITECTURES["one layer"])
        assert float(((other - plain.value[0]) / plain.standard_error[0]).abs().min()) > 4


RESIDUAL = ARCHITECTURES["residual"]
THREE, FOUR = (SignalNoiseLaw(5, 50, 3.0, tokens=tokens).draw(0) for tokens in (3, 4))
WRONG = torch.zeros(1, 17, dtype=F64)
test_bad_input = refusing(
    (Architecture, ("x",), {"allowed": [((True, True), (False, False)), ((True,), (True,))], "scale": math.nan}),
    (train_layers, (SMALL.draw(0), RESIDUAL, 0.1, 3), {"step_size": 0.0, "mixing_step_size": -1.0, "record": [[4]]}),
    (
        train_frozen,
        {"architectures": [RESIDUAL], "samples": [SMALL.draw(0)], "step_size": 0.1, "steps": 3, "record": [1]},
        {"architectures": [[]], "samples": [[]], "record": [[9]]},
    ),
    (lambda: train_layers(THREE, RESIDUAL, 0.1, 3), "tokens must be 2"),
    (lambda: log10_error_of_mixed_tokens(WRONG, WRONG, FOUR, RESIDUAL), "tokens must be 2"),
    (
        lambda: layer_outputs(torch.zeros(1, 3, 2, 4), *[torch.zeros(1, 4)] * 2, torch.zeros(1, 4, 5), RESIDUAL),
        "W must have shape",
    ),
    (lambda: noise_phase_error(RESIDUAL, 10, 100, 3.0, 0.7), "label_noise must be"),
    (lambda: layers_law(0.0), "nsnr2 must be"),
    (lambda: FrozenRun((1, 30), *[np.zeros((2, 4))] * 3).at(31), "step must be a recorded one"),
    (layers_study, (), {"draws": 1, "steps": 100}),
)
