"""The model as written and its circuits: a loop over everything, merged = as written, and what the predictions do not depend on."""

import math
from dataclasses import replace

import pytest
import torch

from attnlib.in_context.circuits import Circuits, circuits_of, predict, two_number_circuits
from attnlib.in_context.law import RegressionLaw
from attnlib.in_context.model import STARTS, HeadWeights, attend, initial_weights

LAW = RegressionLaw(3, 7, 0.2)


def by_hand(heads: HeadWeights, run: int, prompt_x, prompt_y, query) -> float:
    """One prediction with loops over heads and examples."""
    n = len(query) + 1
    total = 0.0
    for h in range(heads.heads):
        W_Q, W_K, W_V, W_O = heads.query[run, h], heads.key[run, h], heads.value[run, h], heads.output[run, h]
        z_q = torch.cat([query, torch.zeros(1, dtype=torch.float64)])
        tokens = [torch.cat([x, y[None]]) for x, y in zip(prompt_x, prompt_y, strict=True)]
        scores = [((W_K @ z) @ (W_Q @ z_q)).item() / math.sqrt(n) for z in tokens]
        normaliser = sum(math.exp(s) for s in scores)
        total += sum(math.exp(s) / normaliser * (W_O @ (W_V @ z)).item() for s, z in zip(scores, tokens, strict=True))
    return total


def test_the_model_is_its_definition() -> None:
    heads, prompts = initial_weights(3, 2, seed=4, runs=3), LAW.draw(5, 0)
    predictions = attend(heads, prompts)
    assert predictions.shape == (3, 5)
    for run in range(3):
        for b in range(5):
            assert predictions[run, b].item() == pytest.approx(
                by_hand(heads, run, prompts.x[b], prompts.y[b], prompts.query[b]), abs=1e-12
            )


@pytest.mark.parametrize("start", STARTS)
def test_merged_equals_as_written(start: str) -> None:
    heads = initial_weights(3, 4, start, seed=1, runs=2)
    prompts = LAW.draw(6, 0)
    torch.testing.assert_close(predict(circuits_of(heads), prompts), attend(heads, prompts), rtol=0, atol=1e-13)
    own = LAW.from_normals(torch.randn(2, 6, LAW.normals_per_prompt, generator=torch.Generator().manual_seed(0)))
    torch.testing.assert_close(predict(circuits_of(heads), own), attend(heads, own), rtol=0, atol=1e-13)


def test_the_query_column_has_no_effect_and_no_gradient() -> None:
    heads, prompts = initial_weights(3, 2, seed=2), LAW.draw(50, 0)
    query = heads.query.clone().requires_grad_()
    changed = HeadWeights(query, heads.key, heads.value, heads.output)
    (attend(changed, prompts)[0] - prompts.target).square().mean().backward()
    assert query.grad[..., -1].abs().max() == 0
    assert query.grad[..., :-1].abs().min() > 0
    circuits = circuits_of(heads)
    other = circuits.key_query.clone()
    other[..., -1] += 5.0
    torch.testing.assert_close(
        predict(Circuits(other, circuits.output_value), prompts), predict(circuits, prompts), rtol=0, atol=0
    )


def test_the_order_of_the_examples_does_not_matter() -> None:
    heads, prompts = initial_weights(3, 2, seed=3, runs=2), LAW.draw(5, 0)
    usual, order = attend(heads, prompts), [4, 2, 6, 0, 1, 3, 5]
    other = replace(prompts, x=prompts.x[:, order], y=prompts.y[:, order])
    torch.testing.assert_close(attend(heads, other), usual, rtol=0, atol=1e-13)
    labels_only = replace(prompts, y=prompts.y[:, order])
    assert (attend(heads, labels_only) - usual).abs().min() > 1e-4


def test_flat_layout() -> None:
    """Head by head: W_Q row by row, W_K, W_V, W_O."""
    heads = initial_weights(2, 3, seed=5, runs=2)
    flat = heads.flat()
    assert flat.shape == (2, 3, 30)
    torch.testing.assert_close(flat[1, 2, 9 + 3 * 1 + 2], heads.key[1, 2, 1, 2])
    torch.testing.assert_close(flat[0, 1, 27:], heads.output[0, 1])
    back = HeadWeights.from_flat(flat)
    for name in ("query", "key", "value", "output"):
        torch.testing.assert_close(getattr(back, name), getattr(heads, name), rtol=0, atol=0)
    with pytest.raises(ValueError, match=r"\(R, H, 3 n\^2 \+ n\)"):
        HeadWeights.from_flat(torch.zeros(2, 3, 31))


def test_starts() -> None:
    random = initial_weights(5, 4, seed=0, runs=50)
    bound = 1 / math.sqrt(6)
    for matrix in (random.query, random.key, random.value, 2 * random.output):
        assert bound * 0.99 < matrix.abs().max() <= bound
        assert matrix.square().mean().item() == pytest.approx(bound**2 / 3, rel=0.05)
    assert (random.query - random.key).abs().min() > 0
    eye = torch.eye(6, dtype=torch.float64)
    small = initial_weights(5, 4, "small_id", runs=2)
    for matrix in (small.query, small.key, small.value):
        torch.testing.assert_close(matrix, (1e-6 * eye).expand(2, 4, 6, 6))
    qk = initial_weights(5, 4, "small_id_qk", runs=2)
    torch.testing.assert_close(qk.query, (1e-4 * eye).expand(2, 4, 6, 6))
    torch.testing.assert_close(qk.value, initial_weights(5, 4, runs=2).value)


def test_opposite_starts_are_opposite_in_the_circuit() -> None:
    """In the authors' causal layer queries and keys flip together, and the product has one sign for all heads."""
    omega = circuits_of(initial_weights(3, 4, "oppo_small_id", runs=2)).omega
    expected = 1e-12 / 2 * torch.tensor([1.0, 1.0, -1.0, -1.0], dtype=torch.float64)
    torch.testing.assert_close(omega, expected.expand(2, 4), rtol=1e-12, atol=0)


def test_runs_do_not_depend_on_the_batch() -> None:
    together, alone = initial_weights(3, 2, runs=4, seed=9), initial_weights(3, 2, runs=1, first_run=2, seed=9)
    torch.testing.assert_close(together.value[2:3], alone.value, rtol=0, atol=0)


def test_the_numbers_of_a_circuit() -> None:
    M = torch.tensor([[1.0, 0.2, 9.0], [-0.3, 3.0, 8.0], [0.5, -0.6, 7.0]], dtype=torch.float64)
    circuits = Circuits(torch.stack([M, -M]), torch.tensor([[0.1, 0.2, 4.0], [0.0, 0.0, 1.0]], dtype=torch.float64))
    assert circuits.omega.tolist() == [2.0, -2.0]
    assert circuits.mu.tolist() == [4.0, 1.0]
    assert circuits.effective_step.item() == 6.0
    assert circuits.diagonal_std.tolist() == [1.0, 1.0]
    assert circuits.off_diagonal.tolist() == [0.3, 0.3]
    assert circuits.label_row[0].tolist() == [0.5, -0.6]
    assert circuits.query_column[0].tolist() == [9.0, 8.0, 7.0]
    assert circuits.output_rest[0].tolist() == [0.1, 0.2]
    assert circuits[1:].mu.item() == 1.0


def test_two_number_circuits_are_the_kernel_estimator() -> None:
    omega, mu = torch.tensor([[0.4, -0.2], [0.1, 0.3]]).double(), torch.tensor([[2.0, 1.0], [-1.0, 0.5]]).double()
    prompts = LAW.draw(6, 0)
    predictions = predict(two_number_circuits(omega, mu, 3), prompts)
    for run in range(2):
        total = torch.zeros(6, dtype=torch.float64)
        for h in range(2):
            s = (omega[run, h] * torch.einsum("bld,bd->bl", prompts.x, prompts.query)).exp()
            total += mu[run, h] * (s * prompts.y).sum(1) / s.sum(1)
        torch.testing.assert_close(predictions[run], total)


def test_heads_of_two_kinds_are_an_even_number() -> None:
    with pytest.raises(ValueError, match="heads must be even for start='oppo_small_id'; got 3"):
        initial_weights(2, 3, "oppo_small_id")
