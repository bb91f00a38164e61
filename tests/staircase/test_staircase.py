"""A staircase of plateaus: formulas a second way, training against other solvers, claims and negative controls, refused input."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from scipy.integrate import quad, solve_ivp

from attnbook.staircase import (
    Heads,
    Path,
    SpectrumLaw,
    escape_time,
    flow,
    loss_sampled,
    plateau_levels,
    population_loss,
    predicted_drops,
    small_heads,
    train_separate,
    train_softmax,
)
from attnbook.staircase.claims import CLAIMS
from attnbook.staircase.figures import draw_directions, draw_losses, draw_softmax, draw_times
from attnbook.staircase.flow import train_merged
from attnbook.staircase.loss import best_losses
from attnbook.staircase.softmax import _contexts, _gradient
from attnbook.staircase.study import (
    alignment,
    authors_spectrum,
    crossing_times,
    largest_part,
    make_study,
    pair_time,
    plateau_heights,
    single_time,
    time_ratio,
    without_plateau,
)
from tests.bad_input import refusing
from tests.worlds import worlds

LAW = SpectrumLaw((0.7, 0.4, 0.3), length=7, noise=0.2)
QUIET = SpectrumLaw((0.7, 0.4, 0.3), length=7)


def matrix(seed: int, *shape: int) -> torch.Tensor:
    return torch.as_tensor(np.random.default_rng(seed).standard_normal(shape))


def heads_of(runs: int, heads: int, dimension: int, size: float, seed: int = 0) -> Heads:
    return Heads(
        size * matrix(seed, runs, heads),
        size * matrix(seed + 1, runs, heads, dimension),
        size * matrix(seed + 2, runs, heads, dimension),
    )


# --- the loss --------------------------------------------------------------------------------------------------------------


def test_the_loss_agrees_with_prompts() -> None:
    """Not symmetric, with noise, and three sizes that differ: each term of the formula counts."""
    A = 0.8 * torch.eye(3, dtype=torch.float64) + 0.4 * matrix(3, 3, 3)
    sampled = loss_sampled(LAW, A, 4, runs=40, prompts=20_000)
    error = sampled.std().item() / math.sqrt(40)
    exact = population_loss(LAW, A).item()
    assert error < 0.01 * exact
    assert sampled.mean().item() == pytest.approx(exact, abs=4 * error)


def test_levels_are_best_losses_and_those_of_the_authors() -> None:
    torch.testing.assert_close(best_losses(LAW, 1, starts=2), plateau_levels(LAW)[1:-1].expand(2, 2), rtol=1e-9, atol=0)
    best = torch.diag(torch.as_tensor(LAW.eigenvalues() / LAW.second_moment()))
    assert population_loss(LAW, best).item() == pytest.approx(plateau_levels(LAW)[-1].item(), rel=1e-14)
    # By hand: 2/3 and 1/3 with ten examples.
    hand = [1.0, 1 - (2 / 3) / 1.25, 1 - (2 / 3) / 1.25 - (1 / 3) / 1.4]
    assert plateau_levels(SpectrumLaw((2 / 3, 1 / 3), 10)).tolist() == pytest.approx(hand, rel=1e-15)
    assert authors_spectrum(4) == pytest.approx((0.4, 0.3, 0.2, 0.1))


# --- flows -----------------------------------------------------------------------------------------------------------------


def pull(A: np.ndarray) -> np.ndarray:
    """-1/2 of the gradient of the loss, by automatic differentiation."""
    at = torch.as_tensor(A).clone().requires_grad_()
    population_loss(LAW, at).backward()
    return -0.5 * at.grad.numpy()


def test_separate_training_is_gradient_flow() -> None:
    start = heads_of(2, 2, 3, 0.5)
    path = train_separate(LAW, start, 6.0, every=1.5, step=0.05)

    def velocity(_: float, state: np.ndarray) -> np.ndarray:
        v, k, q = state[:2], state[2:8].reshape(2, 3), state[8:].reshape(2, 3)
        G = pull(np.einsum("h,hi,hj->ij", v, k, q))
        return np.concatenate(
            [np.einsum("hi,ij,hj->h", k, G, q), (v[:, None] * (q @ G.T)).ravel(), (v[:, None] * (k @ G)).ravel()]
        )

    for run in range(2):
        state = np.concatenate([part[run].ravel() for part in start.arrays()])
        end = solve_ivp(velocity, (0, 6), state, rtol=1e-10, atol=1e-12).y[:, -1]
        got = np.concatenate([part[run].ravel() for part in path.heads.arrays()])
        np.testing.assert_allclose(got, end, atol=1e-6)
    torch.testing.assert_close(path.loss[:, -1], population_loss(LAW, path.heads.matrix()))
    squares = [
        (heads.value**2, heads.key.square().sum(-1), heads.query.square().sum(-1)) for heads in (path.heads, start)
    ]
    for i in (0, 1):  # what training conserves
        torch.testing.assert_close(*(square[i] - square[i + 1] for square in squares), rtol=0.0, atol=1e-6)
    assert path.times.tolist() == [0, 1.5, 3, 4.5, 6]


def test_merged_training_is_gradient_flow() -> None:
    path = train_merged(LAW, 3, 8.0, heads=2, size=0.2, runs=2, every=4.0, step=0.05)

    def velocity(_: float, state: np.ndarray) -> np.ndarray:
        v, U = state[:2], state[2:].reshape(2, 3, 3)
        G = pull(np.einsum("h,hij->ij", v, U))
        return np.concatenate([(U * G).sum((1, 2)), (v[:, None, None] * G).ravel()])

    from attnlib.randomness import stream

    drawn = 0.2 * stream(3, "start", 1).standard_normal((2, 10))
    end = solve_ivp(velocity, (0, 8), np.concatenate([drawn[:, 0], drawn[:, 1:].ravel()]), rtol=1e-10, atol=1e-12).y[
        :, -1
    ]
    np.testing.assert_allclose(
        path.matrix[1, -1].numpy(), np.einsum("h,hij->ij", end[:2], end[2:].reshape(2, 3, 3)), atol=1e-6
    )


@pytest.mark.parametrize(("i", "j"), [(0, 1), (1, 0), (2, 0), (1, 2)])
def test_a_head_on_a_smaller_eigenvector_turns(i: int, j: int) -> None:
    c, values = LAW.second_moment(), LAW.eigenvalues()
    u = (values[j] / c[j]) ** (1 / 3)

    def velocity(entries: np.ndarray) -> np.ndarray:
        k, q = np.zeros(3), np.zeros(3)
        k[j] = q[j] = u
        k[i], q[i] = entries
        G = pull(u * np.outer(k, q))
        return np.array([(u * G @ q)[i], (u * G.T @ k)[i]])

    step = 1e-5
    slope = np.array([(velocity(e) - velocity(-e)) / (2 * step) for e in step * np.eye(2)])
    assert (np.linalg.eigvals(slope).real.max() > 0) == (values[i] > values[j])


# --- escape ----------------------------------------------------------------------------------------------------------------


def test_escape_times_by_another_solver() -> None:
    """Sixteen random heads, of both signs, some of which turn; integrated until 1/v is small, and the rest by its leading term."""
    g, start = np.array([0.5, 0.2, 0.0]), heads_of(4, 4, 3, 0.3, seed=5)
    times = escape_time(start, g)
    turned = 0
    for run in range(4):
        for h in range(4):
            v, k, q = (part[run, h] for part in start.arrays())

            def velocity(_: float, state: np.ndarray) -> np.ndarray:
                v, k, q = state[0], state[1:4], state[4:]
                return np.concatenate([[k @ (g * q)], v * g * q, v * g * k])

            def far(_: float, state: np.ndarray) -> float:
                return abs(state[0]) - 1e5

            far.terminal = True
            found = solve_ivp(velocity, (0, 1e4), np.concatenate([[v], k, q]), rtol=1e-10, atol=1e-13, events=far)
            turned += found.y[0, 0] * found.y[0, -1] < 0
            assert times[run, h].item() == pytest.approx(found.t[-1] + 1 / (g[0] * 1e5), rel=1e-5)
    assert turned > 0
    torch.testing.assert_close(escape_time(start.scaled(0.01), g), 100 * times)


def test_heads_without_a_value_escape_on_one_side_or_not_at_all() -> None:
    """From v = 0 the first pull decides the sign of the value, and no pull leaves a head where it is."""

    def head(v: float, k: float, q: float) -> Heads:
        return Heads(*(torch.tensor(part, dtype=torch.float64) for part in ([[v]], [[[k]]], [[[q]]])))

    for k, q in ((0.2, 0.05), (0.2, -0.05)):
        sign = 1 if k * q > 0 else -1  # F = (k^2 + q^2)/2 (cosh 2 g tau - 1) + k q sinh 2 g tau
        by_quadrature = quad(
            lambda x: 2 * x / math.sqrt((k**2 + q**2) / 2 * (math.cosh(x**2) - 1) + sign * k * q * math.sinh(x**2)),  # noqa: B023
            0, 9, epsrel=1e-10,
        )[0]  # fmt: skip
        assert escape_time(head(0.0, k, q), [0.5]).item() == pytest.approx(by_quadrature, rel=1e-5)
    for rest in (
        head(0.0, 0.2, 0.0),
        head(0.3, 0.2, -0.2),
        head(-0.3, 0.2, 0.2),
    ):  # the last two have nothing that grows
        assert escape_time(rest, [0.5]).item() == math.inf


def test_a_head_takes_its_direction_by_the_sign_of_its_value() -> None:
    """Equal eigenvalues, one head: r where the value ends above zero, s where it ends below, whatever its sign at the start."""
    start = small_heads(8, heads=1, dimension=3, size=0.02, runs=12)
    law = SpectrumLaw((1 / 3, 1 / 3, 1 / 3), length=20)
    path = train_separate(law, start, 12_000, every=12_000, step=1.0)
    assert path.heads is not None
    value, key = path.heads.value[:, 0], path.heads.key[:, 0]
    assert len({(a.item() > 0, b.item() > 0) for a, b in zip(start.value[:, 0], value, strict=True)}) == 4
    sums, differences = start.key[:, 0] + start.query[:, 0], start.key[:, 0] - start.query[:, 0]
    for positive, k, r, s in zip(value > 0, key, sums, differences, strict=True):
        taken, other = (r, s) if positive else (s, r)
        assert abs(torch.cosine_similarity(k, taken, dim=0)) > 0.999
        assert abs(torch.cosine_similarity(k, other, dim=0)) < 0.99


def test_a_balanced_head() -> None:
    """Its escape time, and that half of the step of the loss is done earlier by a number that quadrature gives too."""
    a, c, u = 0.7 / LAW.second_moment()[0], 0.49, 0.001
    one = torch.zeros(1, 1, 3, dtype=torch.float64)
    one[..., 0] = u
    start = Heads(one[..., 0], one, one)
    assert escape_time(start, LAW.eigenvalues() ** 2).item() == pytest.approx(1 / (c * u), rel=1e-9)
    half = (a * (1 - math.sqrt(0.5))) ** (1 / 3)
    by_quadrature = quad(lambda w: 1 / (c * w**2 * (1 - w**3 / a)), u, half, epsabs=1e-9)[0]
    assert predicted_drops(LAW, start, 1).item() == pytest.approx(by_quadrature, rel=1e-6)


@pytest.mark.parametrize("spectrum", [(0.6, 0.4), (0.5, 0.5), (0.4, 0.4, 0.2)])
def test_drops_are_predicted(spectrum: tuple[float, ...]) -> None:
    law, D = SpectrumLaw(spectrum, 20), len(spectrum)
    start = small_heads(1, heads=4, dimension=D, size=0.004, runs=7)
    predicted = predicted_drops(law, start, 2)
    path = train_separate(law, start, 1.1 * predicted.max().item(), every=2.0, step=1.0)
    ratio = crossing_times(path, plateau_levels(law))[:, :2] / predicted
    assert abs(ratio[:, 0] - 1).max() < 0.01
    assert abs(ratio[:, 1].nanmedian() - 1) < 0.02


# --- softmax ---------------------------------------------------------------------------------------------------------------


def test_softmax_gradients_by_automatic_differentiation() -> None:
    x, x_q = _contexts(LAW, 1, 2, 9)
    spread = torch.as_tensor(x_q) @ torch.as_tensor(x_q).transpose(1, 2) / 9
    torch.testing.assert_close(spread, torch.diag(torch.as_tensor(LAW.eigenvalues())).expand(2, 3, 3))
    start = heads_of(2, 4, 3, 0.7)
    v, k, q = (part.clone().requires_grad_() for part in (start.value, start.key, start.query))
    loss = torch.zeros(2, dtype=torch.float64)
    for side in (1, -1):
        scores = (
            torch.einsum("rhd,rndp->rhnp", k, torch.as_tensor(x))
            * side
            * torch.einsum("rhd,rdp->rhp", q, torch.as_tensor(x_q))[:, :, None]
        )
        a = (v[:, :, None, None] * torch.softmax(scores, 2)).sum(1)
        error = side * torch.as_tensor(x_q) - torch.einsum("rnp,rndp->rdp", a, torch.as_tensor(x))
        loss = loss + 0.5 * (error**2).sum(1).mean(-1)
    loss.sum().backward()
    found = _gradient(x, x_q, *start.arrays())
    for got, wanted in zip(found, (loss, -v.grad / 2, -k.grad / 2, -q.grad / 2), strict=True):
        np.testing.assert_allclose(got, wanted.detach().numpy(), atol=1e-13)


def test_compiled_steps_are_the_readable_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    start = heads_of(4, 5, 3, 0.1)
    fast = train_separate(LAW, start, 200.0, every=50.0)
    monkeypatch.setattr(flow, "has_numba", lambda: False)
    readable = train_separate(LAW, start, 200.0, every=50.0)
    torch.testing.assert_close(fast.matrix, readable.matrix, rtol=1e-11, atol=1e-13)
    for got, wanted in zip(fast.heads.arrays(), readable.heads.arrays(), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-11, atol=1e-13)


def test_what_softmax_training_keeps() -> None:
    start = heads_of(2, 3, 3, 0.1)
    path, values = train_softmax(QUIET, start, 0, 4.0, prompts=30, step=0.01, every=100)

    def difference(heads: Heads) -> torch.Tensor:
        return (heads.key**2 - heads.query**2).sum(-1)

    torch.testing.assert_close(difference(path.heads), difference(start), atol=1e-5, rtol=0)
    assert values.shape == (2, 5, 3)
    assert torch.equal(values[:, 0], start.value)


def test_waiting_times_of_small_softmax_heads_by_their_equations() -> None:
    law, size = SpectrumLaw((0.5, 0.3), 10), 0.004
    g = 0.9 * 0.25

    def one(_: float, s: np.ndarray) -> list[float]:
        return [g * s[1] ** 2 - 0.08 * s[0], g * s[0] * s[1]]

    def two(_: float, s: np.ndarray) -> list[float]:
        return [g * s[1] ** 2, g * s[0] * s[1]]

    def far(_: float, s: np.ndarray) -> float:
        return s[1] - 1e3

    far.terminal = True
    for velocity, formula, within in ((one, single_time, 0.02), (two, pair_time, 1e-4)):
        end = solve_ivp(velocity, (0, 1e6), [0.0, size], rtol=1e-9, atol=1e-14, events=far).t[-1]
        assert formula(law, size) == pytest.approx(end, rel=within)


# --- what is read off a curve ----------------------------------------------------------------------------------------------


def test_crossings_and_heights_of_a_drawn_curve() -> None:
    times = torch.arange(9, dtype=torch.float64)
    loss = torch.tensor(
        [[4, 3.9, 3.8, 2.1, 2.05, 2.0, 0.4, 0.1, 0.1], [4, 4, 4, 3.5, 2, 2, 2, 2, 2]], dtype=torch.float64
    )
    path = Path(times, loss, torch.eye(2, dtype=torch.float64).expand(2, 9, 2, 2))
    crossings = crossing_times(path, torch.tensor([4.0, 2.0, 0.0]))
    assert crossings[0].tolist() == pytest.approx([2 + 0.8 / 1.7, 5 + 1 / 1.6])
    assert crossings[1, 0].item() == pytest.approx(3 + 0.5 / 1.5)
    assert crossings[1, 1].isnan()
    assert plateau_heights(path, crossings).ravel().tolist() == [2.05, 2.0]
    assert without_plateau(path, crossings).tolist() == [[False], [False]]
    early = crossings.clone()
    early[1] = torch.nan  # the first drop had not come
    assert without_plateau(path, early).tolist() == [[False], [True]]
    assert plateau_heights(path, early)[1].isnan().all()
    path.loss[1, 3] = torch.nan  # and here because the loss is no number
    assert without_plateau(path, early).tolist() == [[False], [False]]
    path.loss[1, 3] = 3.5
    assert alignment(path, crossings[:, 0]).tolist() == [[0.5, 0.5]] * 2


def test_the_largest_part() -> None:
    value = torch.tensor([[1.0, -2.0]], dtype=torch.float64)
    key = torch.tensor([[[3.0, 1.0], [1.0, 0.0]]], dtype=torch.float64)
    assert largest_part(Heads(value, key, key), 2).tolist() == [[9 / 11, 1.0]]


# --- claims ----------------------------------------------------------------------------------------------------------------


def near(middle: float, runs: int = 20) -> torch.Tensor:
    return middle * (1 + 1e-3 * torch.as_tensor(np.random.default_rng(2).standard_normal(runs)))


def one_each() -> SimpleNamespace:
    """Heads of one direction each after training, and heads of equal parts before."""
    eye = torch.eye(3, dtype=torch.float64).expand(20, 3, 3)
    after, start = (Heads(near(1.0)[:, None].expand(20, 3), key, key) for key in (eye, torch.ones_like(eye)))
    return SimpleNamespace(main=SimpleNamespace(law=QUIET, start=start, path=SimpleNamespace(heads=after)))


def test_a_drop_that_did_not_come_is_late_and_a_training_without_numbers_is_refused() -> None:
    crossings = torch.stack([near(1.0, 40), near(1.0, 40)], 1)

    def judged(late, broken=0):
        loss = torch.linspace(1.0, 0.5, 9, dtype=torch.float64).repeat(40, 1)
        loss[:broken] = torch.nan
        times = crossings.clone()
        times[:late, 1] = torch.nan
        ratio = time_ratio(SimpleNamespace(loss=loss), times, torch.ones(40, 2))
        return CLAIMS["P5"].seen(SimpleNamespace(main=SimpleNamespace(ratio=ratio)))

    assert judged(0).holds
    assert judged(8).holds  # the median of 40 is the same
    assert not judged(36).holds
    refused = judged(1, broken=1)
    assert not refused.holds
    assert refused.mute


def test_one_head_for_all_directions_is_refused() -> None:
    """Each largest term is the whole of its sum, as with one head for each direction."""
    study = one_each()
    key = torch.zeros(20, 3, 3, dtype=torch.float64)
    key[:, 0] = 1.0
    study.main.path.heads = Heads(torch.ones(20, 3, dtype=torch.float64), key, key)
    assert largest_part(study.main.path.heads, 2).tolist() == [[1.0, 1.0]] * 20
    assert not CLAIMS["P8"].seen(study).holds


def plateaus(higher: float) -> SimpleNamespace:
    """Softmax heads whose steps are that much higher than the levels say."""
    levels = torch.tensor([1.0, 0.6, 0.4, 0.3], dtype=torch.float64)
    heights = torch.stack([near(1.02 * (1 - higher * (1 - level))) for level in (0.6, 0.4)], 1)
    found = SimpleNamespace(levels=levels, heights=heights, no_plateau=torch.zeros_like(heights, dtype=torch.bool))
    return SimpleNamespace(softmax=found, softmax_equal=found)


def waits(power: float) -> SimpleNamespace:
    """Times of one and of two heads at two sizes of the start, by their formulas or by half of them with half the powers."""
    law, found = SpectrumLaw((0.5, 0.3), 10), []
    # One head is compared with the square of the time of two.
    for late, steeper in ((1.1 * power**3 * single_time(law, 0.025), 2), (power * pair_time(law, 0.025), 1)):
        found.append(torch.stack([near(late) / 2 ** (power * steeper), near(late)], 1))
    return SimpleNamespace(short=law, single=found[0], pair=found[1])


@pytest.mark.parametrize(
    ("name", "own", "other"),
    [
        ("P8", one_each(), CLAIMS["P8"].wrong(one_each())),
        ("P10", plateaus(1.0), plateaus(1.5)),
        ("P12", waits(1.0), waits(0.5)),
    ],
)
def test_claim_and_control_each_hold_in_their_own_world(name: str, own: object, other: object) -> None:
    assert worlds(CLAIMS[name], own, other) == []


# --- refused input ---------------------------------------------------------------------------------------------------------


test_bad_input_is_refused = refusing(
    (lambda: SpectrumLaw((), 5), "spectrum must be a sequence of one eigenvalue or more"),
    (lambda: SpectrumLaw(0.5, 5), "spectrum must be a sequence"),
    (lambda: SpectrumLaw((0.3, 0.5), 5), "spectrum must not increase; got .*sort it"),
    (lambda: SpectrumLaw((0.3, -0.1), 5), "each eigenvalue of spectrum must be a finite number > 0; got -0.1"),
    (lambda: population_loss(LAW, torch.eye(2)), r"matrix must be a torch tensor of shape \(\.\.\., 3, 3\); got \(2, 2\)"),
    (lambda: Heads(matrix(0, 2, 3), matrix(0, 2, 4, 3), matrix(0, 2, 4, 3)), "key must have shape"),
    (lambda: train_separate(LAW, heads_of(1, 2, 2, 0.1), 1.0, every=0.5), "start.key must have shape"),
    (lambda: train_separate(LAW, heads_of(1, 2, 3, 0.1), 1.0, every=0.3, step=0.2), "every must be a multiple of step"),
    (lambda: escape_time(heads_of(1, 2, 3, 0.1), [0.1, -0.2, 0.0]), "rates must be 3 finite numbers >= 0"),
    (lambda: escape_time(heads_of(1, 2, 3, 0.1), [0.0, 0.0, 0.0]), "one of them above 0"),
    (lambda: predicted_drops(LAW, heads_of(1, 2, 3, 0.1), 3), r"drops must be at most min\(D, H\) = 2; got 3"),
    (lambda: train_softmax(LAW, heads_of(1, 2, 3, 0.1), 0, 1.0, prompts=5), "law must have noise 0"),
    (lambda: train_softmax(QUIET, heads_of(1, 2, 3, 0.1), 0, 1.0, prompts=2), "prompts must be a whole number >= 3"),
    (lambda: train_softmax(QUIET, heads_of(1, 2, 2, 0.1), 0, 1.0, prompts=5), "start.key must have shape"),
    (lambda: make_study(4, 31, 3, 0.1, draws=2, softmax_draws=2, prompts=20, seed=0), "heads must be a whole number >= 4"),
)  # fmt: skip


def test_a_step_that_is_too_large_is_refused() -> None:
    with pytest.raises(ValueError, match="step must be smaller"), np.errstate(all="ignore"):
        train_softmax(QUIET, heads_of(1, 2, 3, 3.0), 0, 1e6, prompts=5, step=1e4)


def test_the_figures_show_levels_losses_and_times_of_the_study() -> None:
    study = make_study(3, 31, 4, 0.02, draws=2, softmax_draws=2, prompts=20, seed=11)
    figure, times, directions, softmax = (Figure() for _ in range(4))
    draw_losses(figure, study)
    for axes, path in zip(figure.axes, (study.main.path, study.merged_path), strict=True):
        flat = [line.get_ydata()[0] for line in axes.lines if len(line.get_ydata()) == 2]
        np.testing.assert_allclose(flat, study.main.levels)
        np.testing.assert_allclose(axes.lines[len(flat)].get_ydata(), path.loss[0, 1:])
    draw_times(times.subplots(), study.main)
    np.testing.assert_allclose(times.axes[0].lines[1].get_ydata(), study.main.crossings[:, 0])
    draw_directions(directions.subplots(), study.main)
    final = [line.get_ydata()[-1] for line in directions.axes[0].lines if len(line.get_ydata()) > 2]
    np.testing.assert_allclose(final[0], 1, atol=0.05)  # the first direction is learned at the end
    draw_softmax(softmax, (study.softmax, study.softmax_equal))
    np.testing.assert_allclose(softmax.axes[0].lines[0].get_ydata()[0], study.softmax.levels[0])
    assert list(CLAIMS) == [f"P{number}" for number in (1, 2, 3, 5, 6, *range(8, 13))]
