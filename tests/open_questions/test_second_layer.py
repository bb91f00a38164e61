"""IV.11: gradients, equivariance, what W = 0 means, thresholds of mixed tokens, and errors."""

import itertools
import math
from types import SimpleNamespace as Study

import numpy as np
import pytest
import torch

from attnbook.open_questions.second_layer.claims import CLAIMS, KEPT, LOST
from attnbook.open_questions.second_layer.layers import (
    ARCHITECTURES,
    layer_gradients,
    layer_outputs,
    log10_error_of_mixed_tokens,
    noise_phase_error,
    sampled_error_of_layers,
    signal_first,
    train_frozen,
    train_layers,
)
from attnbook.open_questions.second_layer.study import layers_law
from attnbook.single_head.coordinates import reduce, rotate
from attnlib.single_head.law import SignalNoiseLaw
from attnlib.single_head.training import gaussian_start, gradient_descent
from tests.worlds import worlds

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


def test_the_error_of_the_noise_phase_is_that_of_the_vector_of_least_norm_among_those_of_margin_one():
    """z minimises the norm, and a fresh output is z + e v . xi: v of the proof, one coordinate for each group of samples."""
    n, d, rho, eta = 60, 12_000, 14.0, 0.1
    for name in ("residual", "strong mix"):
        (_, _), (c, e) = ARCHITECTURES[name].start
        z = np.linspace(0, 1, 100_001)
        clean, flipped = (1 - z) / e, (1 + z) / e  # y_i v . xi_i
        norm = 2 * (z / (c * rho)) ** 2 + n / d * ((1 - eta) * clean**2 + eta * flipped**2)
        best = norm.argmin()
        spread = e * np.sqrt(n / d * ((1 - eta) * clean**2 + eta * flipped**2))[best]
        wanted = 0.5 * math.erfc(z[best] / spread / math.sqrt(2))
        assert noise_phase_error(ARCHITECTURES[name], n, d, rho, eta) == pytest.approx(wanted, rel=2e-3)


# --- claims and their controls, each in its own world ----------------------------------------------------------------------

DRAWS = 60


def around(value):
    """(DRAWS,): draws whose mean is the value."""
    return value * (1 + 1e-3 * np.linspace(-1, 1, DRAWS))


def ends(residual, pure, alone, slow, fast, looks=(0.5, 0.03)):
    """Errors at step 300; and how much the first layer looks at the signal when W is trained slowly and fast."""
    errors = {"residual": residual, "signal sees noise": pure, "one layer": alone, "slow W": slow, "fast W": fast}
    found = {name: Study(error=around(error)) for name, error in errors.items()}
    for name, look in zip(("slow W", "fast W"), looks, strict=True):
        found[name].noise_to_signal = np.full(DRAWS, look)
    return Study(at_300=found)


def moves(boundary):
    x = torch.as_tensor(np.repeat([0.5, 0.9, 1.1, 1.25, 1.5, 1.8], 5))
    return Study(
        one_way=(x, torch.outer(torch.sign(x - boundary), torch.tensor([0.0, 0.01, 0.02]).double()), torch.ones_like(x))
    )


def last(kept, one_way, lost):
    """Errors at the last step: where the noise token carries the signal; with the mask of the third of these; where it does not."""
    errors = dict.fromkeys(KEPT, kept) | {KEPT[-1]: one_way} | dict.fromkeys(LOST, lost)
    return Study(
        frozen={(name, 1.0): Study(log10_error=np.log10(around(error))[None]) for name, error in errors.items()}
    )


def limit(known):
    said = {q: np.tile([0.2, 0.3], DRAWS // 2) for q in (1.0, 2.0)}
    return Study(
        noise_phase=said, limits={("residual", q): error if known else 0 * error + 0.5 for q, error in said.items()}
    )


@pytest.mark.parametrize(
    ("id", "own", "others"),
    [
        ("Q39", ends(0.002, 0.25, 0.222, 0.005, 0.005), [ends(0.25, 0.002, 0.222, 0.005, 0.005), None]),
        ("Q39b", ends(0.01, 0, 0, 0.03, 0.08), [ends(0.01, 0, 0, 0.08, 0.03, (0.03, 0.5)), None]),
        ("Q89", moves(1.0), [moves(1.3)]),
        ("Q89b", last(0.001, 0.001, 0.315), []),
        ("Q89c", limit(known=True), [limit(known=False)]),
    ],
)  # fmt: skip
def test_claims_and_controls_each_hold_in_their_own_world(id, own, others):
    assert worlds(CLAIMS[id], own, *others) == []
