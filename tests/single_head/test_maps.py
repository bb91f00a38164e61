"""Attention maps: weights found a second way, Jacobians by central differences, what each map promises."""

import math

import pytest
import torch

from attnlib.single_head import maps
from attnlib.single_head.maps import AttentionMap
from tests.bad_input import refusing

SMOOTH = [maps.SOFTMAX, maps.softmax(0.5), maps.LINEARISED, maps.SIGMOID, maps.HALF_PLUS, maps.LINEAR]
KINKED = [maps.SPARSEMAX, maps.ENTMAX15, maps.relu(0.25)]
NORMALISED = [maps.SOFTMAX, maps.softmax(3.0), maps.SPARSEMAX, maps.ENTMAX15, maps.HARDMAX, maps.LINEARISED]
ALL = [*SMOOTH, *KINKED, maps.HARDMAX]


def logits(*shape: int, seed: int = 0, size: float = 1.0) -> torch.Tensor:
    return size * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def by_bisection(z: list[float], alpha: float) -> list[float]:
    """Entmax weights from the definition: w = [(alpha - 1) z - theta]_+^(1/(alpha - 1)), theta such that they sum to one."""

    def weights(theta: float) -> list[float]:
        return [max((alpha - 1) * x - theta, 0.0) ** (1 / (alpha - 1)) for x in z]

    low, high = (alpha - 1) * max(z) - 1.0, (alpha - 1) * max(z)
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(weights(middle)) > 1 else (low, middle)
    return weights((low + high) / 2)


@pytest.mark.parametrize(("chosen", "alpha"), [(maps.SPARSEMAX, 2.0), (maps.ENTMAX15, 1.5)])
@pytest.mark.parametrize("tokens", [2, 3, 7])
def test_sparse_maps_solve_their_equation(chosen: AttentionMap, alpha: float, tokens: int) -> None:
    zeros = 0
    for row in logits(40, tokens, seed=tokens, size=1.5):
        expected = by_bisection(row.tolist(), alpha)
        zeros += sum(value == 0 for value in expected)
        assert chosen.weights(row).tolist() == pytest.approx(expected, abs=1e-12)
    assert zeros > 5


@pytest.mark.parametrize("size", [1e-30, 1.0, 1e37])
@pytest.mark.parametrize(
    "chosen", [each for each in NORMALISED if each is not maps.LINEARISED], ids=str
)  # whose weights have no bound
def test_weights_sum_to_one_at_any_size(chosen: AttentionMap, size: float) -> None:
    weights = chosen.weights(size * logits(3, 1000).float())
    torch.testing.assert_close(weights.sum(-1), torch.ones(3), rtol=0, atol=1e-4)


def test_two_token_forms() -> None:
    z = torch.tensor([[0.4, -0.1], [0.9, -0.8]], dtype=torch.float64)
    assert maps.softmax(2.0).weights(z)[0, 0].item() == pytest.approx(1 / (1 + math.exp(-0.25)), rel=1e-15)
    assert maps.softmax(1e-300).weights(1e10 * z).tolist() == [[1, 0], [1, 0]]  # z over the temperature is infinite
    assert maps.SPARSEMAX.weights(z)[:, 0].tolist() == pytest.approx([0.75, 1.0], rel=1e-15)
    assert maps.LINEARISED.weights(z)[:, 0].tolist() == pytest.approx([0.625, 0.925], rel=1e-15)
    assert maps.HARDMAX.weights(z).tolist() == [[1, 0], [1, 0]]
    assert maps.HARDMAX.weights(torch.zeros(3)).tolist() == pytest.approx([1 / 3] * 3)
    assert maps.HALF_PLUS.weights(z)[0].tolist() == pytest.approx([0.9, 0.4])
    assert maps.relu().weights(z)[0].tolist() == pytest.approx([0.4, 0.0])


@pytest.mark.parametrize("chosen", ALL, ids=str)
@pytest.mark.parametrize("tokens", [2, 3, 6])
def test_pullbacks_are_transposed_jacobians(chosen: AttentionMap, tokens: int) -> None:
    for inner in (chosen, maps.windows(chosen, 3) if tokens == 6 else chosen):
        z, upstream = logits(5, 4, tokens, seed=1), logits(5, 4, tokens, seed=2)
        found = inner.pullback(z, inner.weights(z), upstream)
        step, columns = 1e-6, []
        for t in range(tokens):
            nudge = step * torch.eye(tokens, dtype=torch.float64)[t]
            change = (inner.weights(z + nudge) - inner.weights(z - nudge)) / (2 * step)
            columns.append((change * upstream).sum(-1))
        torch.testing.assert_close(found, torch.stack(columns, -1), rtol=0, atol=1e-7)


@pytest.mark.parametrize("chosen", [*SMOOTH, maps.SPARSEMAX, maps.ENTMAX15], ids=str)
@pytest.mark.parametrize("tokens", [2, 4])
def test_slope_at_zero(chosen: AttentionMap, tokens: int) -> None:
    for inner in (chosen, maps.windows(chosen, 2)):
        step, eye = 1e-6, torch.eye(tokens, dtype=torch.float64)
        jacobian = torch.stack([(inner.weights(step * e) - inner.weights(-step * e)) / (2 * step) for e in eye], -1)
        window = inner.window or tokens
        blocks = torch.block_diag(*[torch.ones(window, window, dtype=torch.float64) / window] * (tokens // window))
        expected = inner.slope(tokens) * (eye - (blocks if inner.normalised else 0))
        torch.testing.assert_close(jacobian, expected, rtol=0, atol=1e-8)


@pytest.mark.parametrize("chosen", NORMALISED, ids=str)
def test_normalised_maps_sum_to_one_and_ignore_shifts(chosen: AttentionMap) -> None:
    z = logits(6, 4, seed=3)
    for inner in (chosen, maps.windows(chosen, 2)):
        assert inner.normalised
        torch.testing.assert_close(inner.weights(z).sum(-1), torch.ones(6, dtype=torch.float64), rtol=0, atol=1e-14)
        torch.testing.assert_close(inner.weights(z + 5.25), inner.weights(z), rtol=0, atol=1e-14)
    assert not any(chosen.normalised for chosen in (maps.SIGMOID, maps.HALF_PLUS, maps.LINEAR, maps.relu()))


def test_windows_are_the_map_inside_each_window() -> None:
    z = logits(3, 6, seed=4)
    for width in (1, 2, 3, 6):
        local = maps.windows(maps.softmax(0.7), width)
        for row in z:
            parts = [torch.softmax(part / 0.7, -1) * width / 6 for part in row.split(width)]
            torch.testing.assert_close(local.weights(row), torch.cat(parts), rtol=1e-14, atol=0)
    assert (maps.windows(maps.SOFTMAX, 1).weights(z) == 1 / 6).all()


def test_derivative_of_relu_at_zero_is_the_one_chosen() -> None:
    zero, one = torch.zeros(1, 2), torch.ones(1, 2)
    for value in (0.0, 0.5, 1.0):
        assert maps.relu(value).pullback(zero, zero, one).tolist() == [[value, value]]
        assert maps.relu(value).differentiable_at_zero
    assert not maps.relu().differentiable_at_zero


def test_names_tell_settings_apart() -> None:
    names = [chosen.name for chosen in (*ALL, maps.windows(maps.SOFTMAX, 2), maps.windows(maps.softmax(0.5), 4))]
    assert len(set(names)) == len(names)
    assert "softmax at temperature 0.5 in windows of 4" in names


test_bad_arguments_are_refused = refusing(
    (lambda: maps.softmax(1e-310), "temperature must be at least 1e-308; got 1e-310"),
    (lambda: maps.windows(maps.windows(maps.SOFTMAX, 2), 2), "inner must be a map without windows"),
    (lambda: maps.windows(maps.SOFTMAX, 3).weights(torch.zeros(2, 8)), "width 3 must divide .* T = 8"),
)
