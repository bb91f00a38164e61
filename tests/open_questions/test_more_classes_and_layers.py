"""IV.5: law, gradients, closed forms, trainers, the flow with its trap, and the clean error, each number a second way."""

import dataclasses
from types import SimpleNamespace as Study

import numpy as np
import pytest
import torch

from attnbook.open_questions.judging import one_way
from attnbook.open_questions.more_classes_and_layers.claims import CLAIMS
from attnbook.open_questions.more_classes_and_layers.class_error import class_error, class_error_bounds
from attnbook.open_questions.more_classes_and_layers.class_flow import (
    class_ends_on_signal,
    class_flow_rates,
    class_threshold,
    class_thresholds,
    own_class_thresholds,
)
from attnbook.open_questions.more_classes_and_layers.classes import (
    ClassesLaw,
    ClassFates,
    class_descent,
    class_gradients,
    class_gram_descent,
    class_outputs,
    class_two_steps,
)
from attnbook.open_questions.second_solver import ends_on_signal
from attnbook.single_head.long_run import collected_moves, stacked
from attnbook.single_head.svm import hard_margin
from attnlib.randomness import stream
from attnlib.single_head.errors import log10_clean_error
from attnlib.single_head.law import SignalNoiseLaw
from attnlib.single_head.training import gram_descent
from tests.worlds import worlds

F64 = torch.float64


def close(a, b, tolerance=1e-12):
    a, b = torch.as_tensor(a), torch.as_tensor(b)
    torch.testing.assert_close(a, b, rtol=0, atol=tolerance * max(1.0, float(b.abs().max())), check_dtype=False)


def random_head(sample, scale=0.3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    runs, _, m = sample.noise.shape
    v = scale * torch.randn(runs, sample.law.classes, m, generator=generator, dtype=F64)
    p = scale * torch.randn(runs, m, generator=generator, dtype=F64)
    return v, p


# --- the law ---------------------------------------------------------------------------------------------------------------


def test_two_classes_draw_the_numbers_of_the_two_class_law():
    new, old = (law(15, 300, 6.0, 0.2).draw(4, 3, first_run=2) for law in (ClassesLaw, SignalNoiseLaw))
    close(new.signals, old.signals)
    close(new.noise, old.noise_tokens()[:, :, 0])
    assert (new.classes == old.signal_class).all()
    assert ((1 - 2 * new.labels) == old.labels).all()


def test_signals_are_orthogonal_noise_avoids_them_and_dimensions_count():
    sample = ClassesLaw(40, 30, 5.0, 0.3, 4).draw(1, 2)
    assert sample.noise.shape == (2, 40, 30)  # n exceeds d - K: all of R^d
    close(sample.signals @ sample.signals.mT, 25 * torch.eye(4, dtype=F64).expand(2, 4, 4))
    assert float((sample.noise @ sample.signals.mT).abs().max()) == 0
    assert float(sample.noise.square().sum(-1).mean()) == pytest.approx(26, rel=0.05)


def test_flips_are_uniform_over_the_other_classes_and_classes_over_all():
    sample = ClassesLaw(6000, 6, 1.0, 0.3, 4).draw(0, 2)
    clean, wrong = sample.counts()
    assert float(clean.sum() / 12000) == pytest.approx(0.7, abs=0.015)
    assert (wrong.diagonal(dim1=1, dim2=2) == 0).all()
    off = wrong[:, ~torch.eye(4, dtype=torch.bool)]
    assert float((off - 150).abs().max()) < 5 * 150**0.5  # 6000 * 0.3 / (4 * 3)
    assert (clean + wrong.sum(-1) == sample.members.sum(-1)).all()
    close(sample.members.sum((1, 2)), torch.full((2,), 6000.0, dtype=F64))


# --- gradients and closed forms ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "d", "K"), [(7, 90, 2), (12, 60, 4), (20, 15, 5)])
def test_gradients_are_those_of_cross_entropy(n, d, K):
    sample = ClassesLaw(n, d, 3.0, 0.3, K).draw(3, 2)
    v, p = (part.requires_grad_() for part in random_head(sample))
    # The model a second way: tokens, softmax over two logits, torch's own loss.
    tokens = torch.stack([sample.signal_tokens, sample.noise], 2)
    weights = torch.softmax(torch.einsum("rntm,rm->rnt", tokens, p), -1)
    output = torch.einsum("rnt,rntm,rcm->rnc", weights, tokens, v)
    loss = torch.nn.functional.cross_entropy(output.flatten(0, 1), sample.labels.flatten()) * 2
    wanted = torch.autograd.grad(loss, (v, p))
    found = class_gradients(sample, v.detach(), p.detach())
    for a, b in zip(found[:2], wanted, strict=True):
        close(a, b, 1e-10)
    close(found[2], output.detach(), 1e-12)


@pytest.mark.parametrize(("n", "d", "K"), [(12, 200, 2), (15, 150, 4), (30, 20, 7)])
def test_two_steps_in_closed_form_are_those_of_the_trainer(n, d, K):
    sample = ClassesLaw(n, d, 5.0, 0.3, K).draw(2, 3)
    path = class_descent(sample, 0.3, 2)
    closed = class_two_steps(sample, 0.3)
    torch.testing.assert_close(path.p[1], torch.zeros_like(path.p[1]), rtol=0, atol=1e-16)  # p_1 = 0
    for a, b in ((closed.v1, path.v[1]), (closed.v2, path.v[2]), (closed.p2, path.p[2])):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12 * float(b.abs().max()))
    gap = torch.einsum("rnm,rcm->rnc", sample.signal_tokens - sample.noise, path.v[1])
    f = class_outputs(sample, path.v[1], path.p[1])[0]
    residual = torch.nn.functional.one_hot(sample.labels, K) - torch.softmax(f, -1)
    close(closed.preference, (gap * residual).sum(-1), 1e-11)


@pytest.mark.parametrize(("n", "d", "K"), [(14, 300, 2), (18, 100, 5), (30, 12, 3)])
def test_gram_space_is_the_readable_trainer(n, d, K):
    laws = [ClassesLaw(n, d, norm, 0.25, K) for norm in (3.0, 6.0)]
    sample = stacked([law.draw(8, 2) for law in laws])
    slow = class_descent(sample, 0.2, 40, record=[0, 7])
    fast = class_gram_descent(sample, 0.2, 40, record=[0, 7])
    assert fast.steps == slow.steps == (0, 7, 40)
    for name in ("v", "p", "margins", "attention"):
        close(getattr(fast, name), getattr(slow, name), 1e-10)
    close(fast.train_accuracy, slow.train_accuracy)


def test_two_classes_are_the_two_class_head_with_steps_of_v_twice_as_long():
    old, new = SignalNoiseLaw(30, 3000, 12.0, 0.1).draw(2, 3), ClassesLaw(30, 3000, 12.0, 0.1, 2).draw(2, 3)
    for multiple in (2.0, 1.0):
        one = gram_descent(old, multiple * 0.04, 60, attention_step_size=0.04)
        two = class_gram_descent(new, 0.04, 60)
        apart = [(two.v[:, :, 0] - two.v[:, :, 1] - one.v).abs().max(), (two.p - one.p).abs().max()]
        assert (float(max(apart)) < 1e-10) == (multiple == 2.0)


# --- the flow, its boundary and its trap ----------------------------------------------------------------------------------------


def balanced_sample(K, clean, wrong, d, norm):
    """Orthogonal noise; in each class `clean` samples with the true label and `wrong` with each other label."""
    labels, classes = [], []
    for k in range(K):
        for c in range(K):
            count = clean if c == k else wrong
            labels += [c] * count
            classes += [k] * count
    n = len(labels)
    sample = ClassesLaw(n, d, norm, 0.0, K).draw(0)
    noise = torch.zeros(1, n, K + n, dtype=F64)
    noise[0, :, K:] = d**0.5 * torch.eye(n, dtype=F64)
    return dataclasses.replace(sample, noise=noise, classes=torch.tensor([classes]), labels=torch.tensor([labels]))


def test_without_flips_each_weight_moves_to_the_side_of_its_own_x():
    """No flips, orthogonal noise tokens of squared norm d, K = 4."""
    trainings = []
    for i, x in enumerate((0.4, 0.8, 1.25, 3.0)):
        law = ClassesLaw.at(x, 24, 5000, 0.0, 4)
        sample = law.draw(i, 2)
        noise = torch.zeros_like(sample.noise)
        noise[:, :, 4:] = law.d**0.5 * torch.eye(law.n, dtype=noise.dtype)
        sample = dataclasses.replace(sample, noise=noise)
        own = (law.signal_norm**2 * sample.counts()[0] / law.d).gather(1, sample.classes)
        trainings += [
            (own, step, class_gram_descent(sample, step * law.n / law.d, 40).attention) for step in (0.25, 5.0, 50.0)
        ]
    x, moves, steps = collected_moves(trainings)
    assert one_way(x, moves, 1.0, steps).holds
    assert not one_way(x, moves, 1.3, steps).holds


@pytest.mark.parametrize(("K", "clean", "wrong", "rate"), [(2, 8, 2, 1.0), (3, 6, 1, 0.5), (5, 9, 1, 2.0)])
def test_the_flow_as_a_map_is_gradient_descent_on_orthogonal_noise(K, clean, wrong, rate):
    d, norm = 5000, 40.0
    sample = balanced_sample(K, clean, wrong, d, norm)
    n, step = sample.law.n, 3.0  # beta d / n
    beta = step * n / d
    v, p = torch.zeros(1, K, K + n, dtype=F64), torch.zeros(1, K + n, dtype=F64)
    x, nu = norm**2 * clean / d, wrong * (K - 1) / clean
    state = np.zeros(8)
    sigmoid = lambda z: 1 / (1 + np.exp(-z))  # noqa: E731
    for _ in range(61):
        attention = class_outputs(sample, v, p)[1][0]
        noisy = sample.noisy[0]
        close(attention[~noisy], torch.full_like(attention[~noisy], sigmoid(state[5] - state[6])), 1e-10)
        close(attention[noisy], torch.full_like(attention[noisy], sigmoid(state[5] - state[7])), 1e-10)
        own = v[0] @ sample.signals[0].T  # v_c . mu_k
        assert float(own[1, 1] - own[0, 1]) == pytest.approx(state[0], abs=1e-10)
        i = int(torch.nonzero(noisy)[0])
        levels = v[0] @ sample.noise[0, i]
        assert float(levels[sample.labels[0, i]]) == pytest.approx(state[2], abs=1e-10)
        assert float(levels[sample.classes[0, i]]) == pytest.approx(state[3], abs=1e-10)
        state = state + step * class_flow_rates(state, x, nu, K, rate)
        slope_v, slope_p, _ = class_gradients(sample, v, p)
        v, p = v - beta * slope_v, p - rate * beta * slope_p


def test_own_thresholds_interpolate_the_boundary():
    clean, noisy = np.array([[7, 10, 0]]), np.array([[3, 0, 4]])
    found = own_class_thresholds(clean, noisy, 4)
    assert found[0, 0] == pytest.approx(class_threshold(0.3, 4), rel=2e-3)
    assert found[0, 1] == 1.0
    assert np.isnan(found[0, 2])
    between = own_class_thresholds(np.array([77]), np.array([23]), 4)
    assert between[0] == pytest.approx(class_threshold(0.23, 4), rel=3e-3)


def test_maximum_margin_of_k_classes_selects_by_x_with_the_common_factor():
    """One class against the others: cost (K-1)/K per unit, by an SVM over the stacked value vectors."""
    K, norm = 4, 3.0
    rows = []
    for c in range(1, K):
        row = np.zeros((K, 1))
        row[0], row[c] = norm, -norm
        rows.append(row.ravel())
    assert hard_margin(np.array(rows), np.ones(K - 1)).norm_squared == pytest.approx((K - 1) / K / norm**2, rel=1e-6)


# --- the clean error ---------------------------------------------------------------------------------------------------------


def trained(K, n, d, x, steps, seed=1, runs=3, unit=5.0):
    sample = ClassesLaw.at(x, n, d, 0.1, K).draw(seed, runs)
    path = class_gram_descent(sample, unit * n / d, steps, record=[])
    return sample, path.v[-1], path.p[-1]


def misread(v, p, sample, count):
    """Share of `count` fresh points of every run that the head misreads, and its standard error."""
    shares = []
    for r in range(sample.runs):
        rng = stream(sample.seed, "test", sample.first_run + r)
        classes = torch.as_tensor(rng.integers(0, sample.law.classes, count))
        noise = torch.as_tensor(rng.standard_normal((count, sample.noise.shape[-1])))
        units = sample.signals[r] / sample.signals[r].norm(dim=-1, keepdim=True)
        noise = noise - (noise @ units.mT) @ units
        signal = sample.signals[r][classes]
        s = torch.sigmoid((signal - noise) @ p[r]).unsqueeze(-1)
        read = ((s * signal + (1 - s) * noise) @ v[r].mT).argmax(-1)
        shares.append((read != classes).double().mean().item())
    value = torch.tensor(shares, dtype=F64)
    return value, torch.sqrt(value * (1 - value) / count)


@pytest.mark.parametrize(
    ("K", "n", "d", "x", "steps"), [(3, 60, 6000, 0.5, 3), (4, 40, 600, 1.2, 30), (10, 100, 2000, 0.6, 20)]
)
def test_error_inside_the_bounds_agrees_with_plain_sampling(K, n, d, x, steps):
    sample, v, p = trained(K, n, d, x, steps)
    found, (plain, chance) = class_error(v, p, sample, 3000), misread(v, p, sample, 30000)
    error = 10**found.log10_error
    spread = torch.sqrt(chance**2 + (error * found.relative_error) ** 2)
    assert float(((error - plain) / spread).abs().max()) < 4
    assert (found.log10_low <= found.log10_error + 1e-12).all()
    assert (found.log10_error <= found.log10_high + 1e-12).all()
    assert float((10 ** (found.log10_high - found.log10_low)).max()) <= K - 1 + 1e-9
    # A wrong rule is told apart: the union bound itself where classes overlap.
    if K == 10:
        assert float(((10**found.log10_high - plain) / spread).abs().min()) > 4


def test_the_points_drawn_do_not_depend_on_the_signs_of_eigenvectors(monkeypatch):
    """Each processor's library chooses them; an error that is counted on the points would differ in its second digit."""
    sample, v, p = trained(4, 40, 600, 1.2, 30)
    plain, decompose = class_error(v, p, sample, 100), torch.linalg.eigh

    def other_signs(matrix):
        values, vectors = decompose(matrix)
        signs = torch.ones(len(values), dtype=F64)
        signs[::2] = -1
        return values, vectors * signs

    monkeypatch.setattr(torch.linalg, "eigh", other_signs)
    close(class_error(v, p, sample, 100).log10_error, plain.log10_error, 1e-9)


def test_for_two_classes_the_error_is_the_exact_integral():
    old, new = (law(30, 3000, 15.0, 0.1).draw(2, 3) for law in (SignalNoiseLaw, ClassesLaw))
    path = class_gram_descent(new, 0.05, 5, record=[])
    v, p = path.v[-1], path.p[-1]
    wanted = log10_clean_error(v[:, 0] - v[:, 1], p, old)
    found = class_error(v, p, new)
    close(found.log10_error, wanted, 1e-9)
    assert float(found.relative_error.max()) == 0
    pairs, low, high = class_error_bounds(v, p, new)
    close(low, high, 1e-12)
    assert (pairs.diagonal(dim1=1, dim2=2) == -torch.inf).all()


def test_two_of_the_k_classes_are_the_two_class_flow_at_half_the_attention_rate():
    x = np.array([1.63, 1.68])
    np.testing.assert_array_equal(class_ends_on_signal(x, 0.2, 2), ends_on_signal(x, 0.2, rate=0.5))


def test_boundaries_of_k_classes():
    found = class_thresholds(np.array([0.2, 0.2, 0.4, 0.4]), np.array([3, 10, 3, 2]))
    np.testing.assert_allclose(found, [1.360, 1.164, 2.932, 28.94], rtol=3e-3)


# --- claims and their controls, each in its own world ----------------------------------------------------------------------

DRAWS = 60


def around(value):
    """(DRAWS,): draws whose mean is the value."""
    return value * (1 + 1e-3 * np.linspace(-1, 1, DRAWS))


def closed_form(right, without):
    return Study(two_steps=dict.fromkeys((2, 3, 5, 10), Study(deviation=right, without_slopes=without)), draws=4)


def preference(*shares):
    return Study(two_steps={5: Study(preference=[around(share) for share in shares])})


def late_ends(boundary):
    x = np.tile(np.geomspace(0.5, 3, 8), (DRAWS, 1))
    return Study(late={K: Study(fates=Study(x=x, on_signal=x > boundary)) for K in (2, 3, 5, 10)})


def fates(boundary):
    x = np.tile(np.geomspace(0.8, 2.4, 8), (DRAWS, 1))
    found = ClassFates(x, None, np.full_like(x, 1.6), attention=(x > boundary).astype(float), train_accuracy=None)
    return Study(fates={(3, 0.2): found})


def benign(many, few):
    return Study(benign={800: around(many), 200: around(few)})


def unequal(end, early):
    errors = {1000: end, 2: early}
    return Study(imbalance={step: np.stack([around(e) for e in pair], 1) for step, pair in errors.items()})


@pytest.mark.parametrize(
    ("id", "own", "others"),
    [
        ("Q35", closed_form(1e-15, 0.2), [closed_form(0.2, 1e-15)]),
        ("Q36", preference(0.07, 0.92, 1.0), []),
        ("Q85", fates(1.6), [fates(1.0)]),
        ("Q86", late_ends(1.0), [late_ends(2.0)]),
        ("Q88", benign(0.45, 0.2), [benign(0.2, 0.45)]),
        ("Q38", unequal((-87, -1.25), (-50, -20)), [unequal((-50, -20), (-87, -1.25)), None]),
    ],
)
def test_claims_and_controls_each_hold_in_their_own_world(id, own, others):
    assert worlds(CLAIMS[id], own, *others) == []
