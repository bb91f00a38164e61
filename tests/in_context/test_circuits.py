"""III.3 and III.8: statistics of heads by hand, trapped runs, pictures that draw M itself, a changed circuit that is noticed."""

import math
from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

from attnbook.in_context.circuits.claims import CLAIMS
from attnbook.in_context.circuits.figure import (
    draw_evolution,
    draw_heads,
    draw_key_query,
    records_near,
    symmetric_limit,
)
from attnbook.in_context.circuits.pattern import antisymmetric_share, gain_of_turning, without_turning
from attnbook.in_context.circuits.study import circuit_study, head_statistics, off_diagonal_memory
from attnlib.in_context.circuits import Circuits, circuits_of, predict, two_number_circuits
from attnlib.in_context.experiment import Experiment
from attnlib.in_context.law import RegressionLaw
from attnlib.in_context.model import initial_weights
from attnlib.in_context.training import train
from bookkit.claims import Verdict


def pairs(omega, mu) -> Circuits:
    return two_number_circuits(torch.tensor(omega).double(), torch.tensor(mu).double(), 3)


def test_statistics_by_hand():
    M = torch.zeros(2, 3, 3, dtype=torch.float64)
    M[0] = torch.tensor([[2.0, 0.3, 9.0], [-0.4, 1.0, -8.0], [0.05, -0.06, 7.0]], dtype=torch.float64)
    V = torch.tensor([[0.1, -0.2, -4.0], [0.3, 0.0, 0.0]], dtype=torch.float64)
    found = head_statistics(Circuits(M, V))
    assert found.omega.tolist() == [1.5, 0.0]
    assert found.diagonal_std.tolist() == [0.5, 0.0]
    assert found.off_diagonal.tolist() == [0.4, 0.0]
    assert found.label_row.tolist() == [0.06, 0.0]
    assert found.query_column.tolist() == [9.0, 0.0]
    assert found.mu.tolist() == [-4.0, 0.0]
    assert found.output_rest.tolist() == [0.2, 0.3]
    assert found.diagonal_share[0].item() == pytest.approx(5 / (5 + 0.09 + 0.16))
    assert found.last_share[0].item() == pytest.approx(16 / 16.05)
    assert found.active.tolist() == [True, False]
    assert found.largest("output_rest", found.strong).item() == 0.2
    assert found.mean_over("mu", torch.tensor([True, True])).item() == 2.0
    nobody = torch.tensor([False, False])
    assert math.isnan(found.largest("omega", nobody))
    assert math.isnan(found.mean_over("omega", nobody))


def test_trapped_is_about_heads_that_carry_weight():
    assert pairs([0.5, 0.6], [1.0, 0.5]).trapped.item()
    assert pairs([-0.5, -0.6], [-1.0, -0.5]).trapped.item()
    assert not pairs([0.14, -0.14], [3.0, -3.0]).trapped.item()
    assert pairs([0.5, 0.6, -0.3], [1.0, 0.5, -0.49]).trapped.item()  # imbalance 1.01 / 1.99
    assert not pairs([0.5, 0.6, -0.3], [1.0, 0.5, -0.51]).trapped.item()  # 0.99 / 2.01
    assert pairs([0.5, 0.6, -0.3], [1.0, 0.5, -0.51]).cancels.item()
    one = pairs([0.5], [1.5])
    assert not one.trapped.item()
    assert not one.cancels.item()
    both = pairs([[0.5, 0.6], [0.1, -0.1]], [[1.0, 0.5], [3.0, -3.0]])
    assert both.trapped.tolist() == [True, False]


def test_rotations_and_stretches():
    """B = omega I + symmetric + antisymmetric part: squared norms 2 (0.3^2) and 2 (0.4^2)."""
    M = torch.zeros(3, 4, 4, dtype=torch.float64)
    M[:, :3, :3] = 0.7 * torch.eye(3, dtype=torch.float64)
    M[0, 0, 1], M[0, 1, 0] = 0.3 + 0.4, 0.3 - 0.4
    M[1, 0, 2], M[1, 2, 0] = 0.4, -0.4
    M[2, 1, 2], M[2, 2, 1] = 0.3, 0.3
    M[..., 3] = 5.0  # the untrained column has no say
    share = antisymmetric_share(Circuits(M, torch.zeros(3, 4)))
    torch.testing.assert_close(share, torch.tensor([0.16 / 0.25, 1.0, 0.0], dtype=torch.float64))
    straight = without_turning(Circuits(M, torch.zeros(3, 4))).key_query
    assert straight[0, 0, 1] == straight[0, 1, 0] == pytest.approx(0.3)
    assert straight[1, 0, 2] == straight[1, 2, 0] == 0
    torch.testing.assert_close(straight[..., 3], M[..., 3], rtol=0, atol=0)
    torch.testing.assert_close(straight.diagonal(dim1=1, dim2=2), M.diagonal(dim1=1, dim2=2), rtol=0, atol=1e-15)


def test_the_gain_of_turning_is_a_difference_of_risks():
    """Against plain Monte Carlo of both models on many prompts."""
    law = RegressionLaw(3, 8, 0.2)
    key_query = two_number_circuits(torch.tensor([0.5, 0.5]).double(), torch.tensor([1.0, 0.5]).double(), 3).key_query
    key_query[:, 0, 1] += torch.tensor([0.4, -0.8])
    key_query[:, 1, 0] -= torch.tensor([0.4, -0.8])
    values = torch.zeros(2, 4, dtype=torch.float64)
    values[:, 3] = torch.tensor([1.0, 0.5])
    turned = Circuits(key_query, values)
    mean, error = gain_of_turning(turned, law, prompts=3000, seed=1)
    prompts = law.draw(200_000, 7)
    errors = [
        (predict(circuits, prompts) - prompts.clean_target).square() for circuits in (without_turning(turned), turned)
    ]
    plain = errors[0] - errors[1]
    width = math.hypot(plain.std().item() / math.sqrt(200_000), error.item())
    assert abs(mean.item() - plain.mean().item()) < 4 * width
    assert mean.item() < -4 * error.item()  # too much turning for so few examples
    few, _ = gain_of_turning(turned, law, prompts=2, seed=1)
    assert few.isfinite()


def test_memory_of_the_entries_off_the_diagonal():
    history = train(SHORT)
    key_query, output_value = history.circuits.key_query.clone(), history.circuits.output_value.clone()
    output_value[:, -1, :, -1] = torch.tensor([3.0, -3.0], dtype=torch.float64)
    key_query[:, -1] = pairs([0.2, -0.2], [1.0, 1.0]).key_query
    noise = torch.randn(3, 2, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    noise = noise * (1 - torch.eye(4, dtype=torch.float64))  # omega keeps its sign
    for sign in (1, -1):
        key_query[:, -2] = key_query[:, -1] + sign * noise
        both = key_query.clone()
        both[:, -1] += noise
        other = replace(history, circuits=Circuits(both, output_value))
        assert off_diagonal_memory(other) == pytest.approx(sign, abs=1e-12)
    silent = replace(history, circuits=Circuits(key_query, 0 * output_value))
    assert math.isnan(off_diagonal_memory(silent))


SHORT = Experiment(heads=2, d=3, length=9, batch=16, learning_rate=0.01, steps=60, records=8, runs=3, seed=5)


def test_the_study_on_small_trainings():
    stored = {heads: train(SHORT.replace(heads=heads, seed=0)) for heads in (1, 2)}
    study = circuit_study(SHORT, stored=stored)
    assert study.heads == (1, 2)
    assert study.statistics(2).omega.shape == (3, 2)
    torch.testing.assert_close(study.start_statistics(2).omega, stored[2].omega[:, 0])
    again = train(SHORT)
    torch.testing.assert_close(study.live.final.mu, again.final.mu, rtol=0, atol=0)
    torch.testing.assert_close(study.stored_near_live().mu, stored[2].final.mu, rtol=0, atol=0)
    index = 4
    short = circuit_study(SHORT.replace(steps=int(stored[2].steps[index])), stored=stored)
    torch.testing.assert_close(short.stored_near_live().mu, stored[2].mu[:, index], rtol=0, atol=0)
    assert not study.trapped(1).any()
    if not study.trapped(2).all():
        assert not study.trapped(2)[study.pair]


def test_heads_without_a_stored_training():
    stored = {1: train(SHORT.replace(heads=1, steps=1))}
    with pytest.raises(ValueError, match="heads must be one of 1, which have a stored training; got 2"):
        circuit_study(SHORT, stored=stored)


@pytest.fixture
def figure():
    figure = plt.figure()
    yield figure
    plt.close(figure)


def title(axes) -> str:
    return axes.get_title() or axes.get_title(loc="left")  # where it stands is a matter of style


def images(axes) -> np.ndarray:
    (image,) = axes.get_images()
    return np.asarray(image.get_array())


@pytest.mark.parametrize("d", [1, 3, 7])
def test_the_map_is_the_matrix_and_the_lines_are_behind_the_last_covariate(figure, d):
    matrix = torch.arange((d + 1) ** 2, dtype=torch.float64).reshape(d + 1, d + 1) - 5
    axes = figure.subplots()
    image = draw_key_query(axes, matrix, 30.0)
    np.testing.assert_array_equal(images(axes), matrix)  # row = key: no transposition
    assert image.get_extent()[3] < image.get_extent()[2]  # the first key on top
    across, down = axes.lines
    assert list(across.get_ydata()) == [d - 0.5, d - 0.5]
    assert list(down.get_xdata()) == [d - 0.5, d - 0.5]
    assert image.get_clim() == (-30.0, 30.0)
    assert axes.get_xticklabels()[-1].get_text() == "$y$"
    assert axes.get_xticklabels()[0].get_text() == "1"


@pytest.mark.parametrize(("heads", "columns"), [(1, 2), (3, 2), (8, 4)])
def test_all_heads_on_one_scale(figure, heads, columns):
    circuits = circuits_of(initial_weights(4, heads, seed=2))[0]
    maps = draw_heads(figure, circuits, columns=columns)
    assert len(maps) == heads
    assert len(figure.axes) == 2 * heads + 2  # maps, columns, two colour bars
    largest = circuits.key_query.abs().max().item()
    for head, axes in enumerate(maps):
        np.testing.assert_array_equal(images(axes), circuits.key_query[head])
        assert axes.get_images()[0].get_clim() == (-largest, largest)
        assert f"{circuits.omega[head]:.2f}" in title(axes)
    columns_drawn = [images(axes)[:, 0] for axes in figure.axes if axes.get_images() and images(axes).shape[1] == 1]
    np.testing.assert_array_equal(np.stack(columns_drawn), circuits.output_value)
    figure.canvas.draw()


def test_steps_are_recorded_steps(figure):
    steps = [0, 1, 9, 110, 1000]
    assert records_near(steps, [0, 1, 10, 100, 100]) == [0, 1, 2, 3]
    assert records_near(steps, [10**9]) == [4]
    circuits = Circuits(torch.randn(3, 2, 4, 4), torch.randn(3, 2, 4))
    grid = draw_evolution(figure, circuits, [0, 9, 110])
    assert [title(axes) for axes in grid[0]] == ["start", "9", "110"]
    for head in range(2):
        for column in range(3):
            image = grid[head][column].get_images()[0]
            np.testing.assert_array_equal(np.asarray(image.get_array()), circuits.key_query[column, head])
            assert image.get_clim()[1] == pytest.approx(circuits.key_query.abs().max().item())
    assert len(figure.axes) == 7  # six maps and one shared colour bar
    figure.canvas.draw()


def test_bad_pictures(figure):
    circuits = Circuits(torch.zeros(3, 2, 4, 4), torch.zeros(3, 2, 4))
    with pytest.raises(ValueError, match="index them first"):
        draw_heads(figure, circuits)
    with pytest.raises(ValueError, match="titles must be one for each of the 2 heads; got 1"):
        draw_heads(figure, circuits[0], titles=["one"])
    with pytest.raises(ValueError, match="one step for each of K records"):
        draw_evolution(figure, circuits, [0, 1])
    with pytest.raises(ValueError, match="finite numbers to be drawn"):
        symmetric_limit([0.0, float("nan")])


AUTHORS = Experiment(steps=16_792, records=10, runs=8, seed=6)  # the end is a recorded step of the stored trainings


@pytest.fixture(scope="module")
def study():
    return circuit_study(AUTHORS.replace(steps=5, runs=2))  # the live training is another test's


def changed(study, heads, change):
    """The study with other circuits in the last record of one stored training."""
    history = study.stored[heads]
    key_query, output_value = history.circuits.key_query.clone(), history.circuits.output_value.clone()
    change(key_query[:, -1], output_value[:, -1])
    other = replace(history, circuits=Circuits(key_query, output_value))
    return replace(study, stored={**study.stored, heads: other})


@pytest.mark.parametrize(
    ("id", "change"),
    [
        ("I31", lambda M, V: M[0, :, 0, 1].add_(0.03)),  # one entry off the diagonal of one run
        ("I31", lambda M, V: M[0, 0, 2, 2].sub_(0.06)),  # one entry of the diagonal
        ("I31", lambda M, V: V[0, :, 2].add_(0.2)),
        ("I31", lambda M, V: V[0, :, -1].add_(0.5)),
        ("I31", lambda M, V: M[0, :, 5, 0].add_(0.05)),  # the label row
        ("I34", lambda M, V: V[0].neg_()),
        ("I35", lambda M, V: M[:, 0].mul_(1.5)),  # one head of every run sharper
        ("I37", lambda M, V: M[..., 5].zero_()),
        ("I22", lambda M, V: M.mul_(1.1)),
    ],
)
def test_a_changed_circuit_is_noticed(study, id, change):
    result = CLAIMS[id].check(changed(study, 2, change))
    assert result.verdict == Verdict.FAILS
