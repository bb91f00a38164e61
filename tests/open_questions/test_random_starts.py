"""IV.6: fresh errors against integrals, sampling and autograd; heads as products of matrices; courses; claims and controls."""

import dataclasses
import math
from types import SimpleNamespace
from types import SimpleNamespace as Study

import numpy as np
import pytest
import torch
from torch.autograd.functional import hessian, jacobian

from attnbook.open_questions.random_starts import study
from attnbook.open_questions.random_starts.claims import CLAIMS
from attnbook.open_questions.random_starts.error import _Problem, log10_head_error
from attnbook.open_questions.random_starts.heads import (
    Factors,
    HeadsCourse,
    ManyDirectionsLaw,
    difference_growth,
    gaussian_factors,
    random_heads,
    random_start,
    train_factors,
)
from attnbook.single_head.long_run import orthogonal_sample
from attnlib.single_head.errors import log10_clean_error
from attnlib.single_head.law import SignalNoiseLaw
from attnlib.single_head.model import loss
from attnlib.single_head.training import gradient_descent, gram_descent, train_heads
from tests.worlds import tighter, worlds


@pytest.fixture(scope="module")
def trained():
    """One head at the paper's size, two steps and a hundred: errors from 1e-60 to 1e-160, and a weak one."""
    sample = SignalNoiseLaw(200, 40_000, 30.0, 0.05).draw(0, 3)
    return sample, gram_descent(sample, 0.025, 100, record=[1, 2])


@pytest.mark.parametrize("row", [0, 1, 2])
def test_one_head_is_the_exact_integral(trained, row):
    sample, path = trained
    exact = log10_clean_error(path.v[row], path.p[row], sample)
    assert exact.max() < -60
    found = log10_head_error(path.v[row, :, None], path.p[row, :, None], sample, count=4000)
    assert (found.standard_error < 0.005).all()
    assert ((found.value - exact).abs() < 4.5 * found.standard_error).all()


@pytest.mark.parametrize("heads", [2, 5])
def test_equal_heads_are_one_head(trained, heads):
    sample, path = trained
    exact = log10_clean_error(path.v[1], path.p[1], sample)
    p = path.p[1][:, None].expand(-1, heads, -1)
    own = log10_head_error(path.v[1][:, None].expand_as(p) / heads, p, sample, count=2000)
    shared = log10_head_error(path.v[1][:, None], p, sample, count=2000)
    for found in (own, shared):
        assert ((found.value - exact).abs() < 4.5 * found.standard_error).all()
    wrong = log10_head_error(path.v[1][:, None].expand_as(p), 1.02 * p, sample, count=2000)
    assert ((wrong.value - exact).abs() > 10 * wrong.standard_error).all()


def _quadrature(v, p, sample, run, half=9.0, points=1201):
    """Two heads, brute force: log of the mean over classes of E Phi(-m/s) on a grid around the largest point of the integrand.

    Written from the definition, with z = (p_1 . xi, p_2 . xi) itself as the variable and its 2 x 2 covariance.
    """
    units = sample.signals[run] / sample.law.signal_norm
    v, p = v[run], p[run]
    pn, vn = (x - (x @ units.mT) @ units for x in (p, v))
    covariance = (pn @ pn.mT).numpy()
    slope = (vn @ pn.mT).numpy() @ np.linalg.inv(covariance)  # E[v.xi | z] = slope z
    rest = (vn @ vn.mT).numpy() - slope @ covariance @ slope.T
    root = np.linalg.cholesky(covariance)
    logs = []
    for k, label in enumerate((1.0, -1.0)):
        logit, value = (x @ sample.signals[run, k] for x in (p, v))

        def h(a, b, logit=logit, value=value, label=label):
            z = root @ np.stack([a.ravel(), b.ravel()])
            w = 1 / (1 + np.exp(z - logit.numpy()[:, None]))
            mean = label * ((w * value.numpy()[:, None]).sum(0) + ((1 - w) * (slope @ z)).sum(0))
            std = np.sqrt(np.einsum("hn,hk,kn->n", 1 - w, rest, 1 - w))
            tail = torch.special.log_ndtr(torch.as_tensor(-mean / np.maximum(std, 1e-300))).numpy()
            return (tail - (a.ravel() ** 2 + b.ravel() ** 2) / 2).reshape(a.shape)

        middle, width = np.zeros(2), 60.0
        for _ in range(40):  # zoom in on the largest point
            axis = np.linspace(-width, width, 41)
            values = h(*np.meshgrid(middle[0] + axis, middle[1] + axis, indexing="ij"))
            i, j = np.unravel_index(values.argmax(), values.shape)
            middle, width = middle + np.array([axis[i], axis[j]]), max(width / 1.5, half)
        axis = np.linspace(-half, half, points)
        values = h(*np.meshgrid(middle[0] + axis, middle[1] + axis, indexing="ij"))
        top = values.max()
        logs.append(top + np.log(np.exp(values - top).sum()) + 2 * np.log(axis[1] - axis[0]) - np.log(2 * np.pi))
    return (np.logaddexp(*logs) - math.log(2)) / math.log(10)


@pytest.mark.parametrize(("rho", "size", "step"), [(30.0, 0.3, 2), (30.0, 1.0, 60), (12.0, 0.3, 60)])
def test_two_unequal_heads_against_a_quadrature(rho, size, step):
    law = SignalNoiseLaw(60, 12_000, rho, 0.05)
    sample = law.draw(5, 2, start_vectors=4)
    path = train_heads(
        sample, 0.0125, step, heads=2, attention_step_size=0.05, start=random_start(sample, 2, size), record=[]
    )
    found = log10_head_error(path.v[-1], path.p[-1], sample, count=6000)
    for run in range(2):
        exact = _quadrature(path.v[-1], path.p[-1], sample, run)
        assert abs(found.value[run] - exact) < 4.5 * found.standard_error[run]
        assert found.standard_error[run] < 0.01


def _problem(heads=3, q=3, batch=4, seed=0):
    rng = np.random.default_rng(seed)
    draw = lambda *shape: torch.as_tensor(rng.standard_normal((batch, *shape)))  # noqa: E731
    return _Problem(draw(heads), draw(heads).abs(), draw(heads, q), draw(heads, q), draw(heads, heads))


def test_derivatives_of_the_integrand_against_autograd():
    problem = _problem()
    t = torch.as_tensor(np.random.default_rng(1).standard_normal((4, 2, 3)))
    a, first, second = problem.margin(t)
    gradient, curvature = problem.curvature(t)
    for b in range(4):
        one = problem.take(torch.tensor([b]))
        for i in range(2):
            margin = lambda s, one=one: one.margin(s[None, None])[0].squeeze()  # noqa: E731
            height = lambda s, one=one: one.log_integrand(s[None, None]).squeeze()  # noqa: E731
            at = t[b, i]
            torch.testing.assert_close(jacobian(margin, at), first[b, i], rtol=1e-8, atol=1e-9)
            torch.testing.assert_close(hessian(margin, at), second[b, i], rtol=1e-8, atol=1e-8)
            torch.testing.assert_close(jacobian(height, at), gradient[b, i], rtol=1e-8, atol=1e-9)
            torch.testing.assert_close(-hessian(height, at), curvature[b, i], rtol=1e-6, atol=1e-7)
            direct = torch.special.log_ndtr(-a[b, i]) - at.square().sum() / 2
            torch.testing.assert_close(height(at), direct)


R, N, T, D, H, K = 2, 9, 3, 31, 4, 5


@pytest.fixture(scope="module")
def sample():
    return SignalNoiseLaw(N, D, 4.0, 0.2, tokens=T).draw(5, R, coordinates="dense", start_vectors=2 * H * K)


def full_model(sample, matrices, query):
    """f = sum_h w_h' W_V' X' softmax(X W_K W_Q' q), with every matrix explicit: W_K, W_Q, W_V (R, H, d, k), w (R, H, k)."""
    w_key, w_query, w_value, output = matrices
    p = torch.einsum("rhdk,rhek,e->rhd", w_key, w_query, query)
    v = torch.einsum("rhdk,rhk->rhd", w_value, output)
    logits = torch.einsum("rntd,rhd->rhnt", sample.tokens, p)
    values = torch.einsum("rntd,rhd->rhnt", sample.tokens, v)
    return (logits.softmax(-1) * values).sum((1, 3))


def matrices_of(seed=0, scale=0.2):
    generator = torch.Generator().manual_seed(seed)
    shapes = [(R, H, D, K)] * 3 + [(R, H, K)]
    return [scale * torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]


def factors_of(matrices, query):
    w_key, w_query, w_value, output = matrices
    return Factors(w_key.mT, torch.einsum("rhdk,d->rhk", w_query, query), w_value.mT, output)


def unit_query():
    query = torch.zeros(D, dtype=torch.float64)
    query[3], query[7] = 0.6, -0.8
    return query


@pytest.mark.parametrize(("train_query", "train_output"), [(True, True), (True, False), (False, True), (False, False)])
def test_training_is_sgd_on_the_full_matrices(sample, train_query, train_output):
    query, matrices = unit_query(), [m.requires_grad_() for m in matrices_of(2)]
    start = factors_of([m.detach().clone() for m in matrices], query)
    trained = [matrices[0], matrices[2]] + [matrices[1]] * train_query + [matrices[3]] * train_output
    path = train_factors(sample, start, 0.3, 5, train_query=train_query, train_output=train_output)
    optimiser = torch.optim.SGD(trained, lr=0.3)
    for _ in range(5):
        optimiser.zero_grad()
        loss(full_model(sample, matrices, query), sample.labels).sum().backward()
        optimiser.step()
    end = factors_of([m.detach() for m in matrices], query)
    for field in dataclasses.fields(Factors):
        torch.testing.assert_close(getattr(path.end, field.name), getattr(end, field.name), rtol=1e-9, atol=1e-12)
    with torch.no_grad():
        output = full_model(sample, matrices, query)
    torch.testing.assert_close(path.margins[-1], sample.labels * output, rtol=1e-9, atol=1e-12)


def test_fixed_query_and_output_are_one_head_with_rescaled_steps():
    """|q|^2 = 5 and |w|^2 = 2.5 by autograd through full matrices from zero, and the package's trainer of one head."""
    law = SignalNoiseLaw(20, 3000, 12.0, 0.1)
    sample = law.draw(1, 3)
    query, output = (torch.tensor([[a, b]], dtype=torch.float64) for a, b in ((1.0, 2.0), (0.5, -1.5)))
    shape = (sample.runs, *query.shape)
    zero = sample.tokens.new_zeros((*shape, sample.tokens.shape[-1]))
    start = Factors(zero, query.expand(shape), zero, output.expand(shape))
    path = train_factors(sample, start, 0.02, 6, train_query=False, train_output=False)
    one = gram_descent(sample, 0.02 * 2.5, 6, attention_step_size=0.02 * 5.0)
    torch.testing.assert_close(path.p[:, :, 0], one.p, rtol=1e-10, atol=1e-13)
    torch.testing.assert_close(path.v[:, :, 0], one.v, rtol=1e-10, atol=1e-13)
    torch.testing.assert_close(path.attention_on_signal[:, :, 0], one.attention_on_signal, rtol=1e-10, atol=1e-13)
    wrong = gram_descent(sample, 0.02 * 5.0, 6, attention_step_size=0.02 * 2.5)
    assert (path.p[-1, :, 0] - wrong.p[-1]).norm() > 0.1 * wrong.p[-1].norm()
    # W_K itself: p q'/|q|^2, of rank one.
    keys = path.end.keys[:, 0]
    torch.testing.assert_close(keys, torch.einsum("rm,k->rkm", one.p[-1], query[0]) / 5, rtol=1e-9, atol=1e-13)


def test_gaussian_factors_have_the_size_asked_for_and_own_streams():
    law = SignalNoiseLaw(10, 400, 4.0)
    sample = law.draw(2, 60, coordinates="dense", start_vectors=2 * 3 * 4)
    made = gaussian_factors(sample, 3, 4, 0.5)
    for part, size in ((made.keys, 0.5), (made.values, 0.5)):
        assert part.square().sum((-1, -2)).mean().sqrt() == pytest.approx(size, rel=0.01)
    for part, size in ((made.query, 0.5), (made.output, 0.5)):
        assert part.square().sum(-1).mean().sqrt() == pytest.approx(size, rel=0.12)
    later = gaussian_factors(law.draw(2, 3, first_run=7, coordinates="dense", start_vectors=24), 3, 4, 0.5)
    for field in dataclasses.fields(Factors):
        torch.testing.assert_close(getattr(later, field.name), getattr(made, field.name)[7:10])


def test_attention_means_are_over_clean_and_flipped_samples(sample):
    path = train_factors(sample, gaussian_factors(sample, H, K, 1.0), 0.3, 3, record=[1])
    assert path.steps == (1, 3)
    weight, noisy = path.attention_on_signal[path.at(3)], sample.noisy
    for r in range(R):
        torch.testing.assert_close(path.attention_clean[1, r], weight[r][:, ~noisy[r]].mean(-1))
        torch.testing.assert_close(path.attention_noisy[1, r], weight[r][:, noisy[r]].mean(-1), equal_nan=True)


# --- courses and directions ------------------------------------------------------------------------------------------------


def test_random_starts_have_their_norms_and_tiny_ones_are_one_head():
    law = SignalNoiseLaw(30, 4000, 20.0, 0.1)
    sample = law.draw(3, 6, start_vectors=8)
    v, p = random_start(sample, 4, 0.5)
    assert p.norm(dim=-1).mean().item() == pytest.approx(0.5, rel=0.02)
    assert v.norm(dim=-1).mean().item() == pytest.approx(0.125, rel=0.02)
    tiny = random_heads([law], 4, 1e-7, 2.0, 30, draws=3, seed=3, record=[2], error_steps=[30])
    sample = law.draw(3, 3, start_vectors=8)  # the same draws: start vectors come with columns of their own
    one = gradient_descent(sample, 2.0 * 30 / 4000, 30)
    np.testing.assert_allclose(tiny.attention_clean[-1, :, 2], one.attention_clean[-1], rtol=1e-5)
    exact = log10_clean_error(one.v[-1], one.p[-1], sample)
    assert (np.abs(tiny.log10_error[0] - exact.numpy()) < 5 * tiny.error_of_error[0] + 1e-4).all()
    assert tiny.at(2) == 1


def test_what_the_training_tokens_do_not_span_stays():
    sample = SignalNoiseLaw(12, 400, 8.0, 0.1).draw(1, 3, start_vectors=6)
    start = random_start(sample, 3, 1.0)
    path = train_heads(sample, 0.3, 50, heads=3, start=start, record=[], method="vectors")
    seen = 2 + sample.law.n  # the coordinates of signals and noise tokens; the start vectors have the others
    for end, begin in zip((path.v[-1], path.p[-1]), start, strict=True):
        torch.testing.assert_close(end[..., seen:], begin[..., seen:], rtol=1e-12, atol=1e-15)
        assert not torch.equal(end[..., :seen], begin[..., :seen])


def test_numbers_of_a_course_are_those_of_its_runs():
    laws = [SignalNoiseLaw(24, 3000, rho, 0.2) for rho in (10.0, 15.0)]
    course = random_heads(laws, 3, 0.6, 1.5, 20, draws=2, seed=4)
    sample = laws[1].draw(4, 1, first_run=3, start_vectors=6)
    beta = 1.5 * 24 / 3000
    start = random_start(sample, 3, 0.6)
    path = train_heads(
        sample, beta / 3, 20, heads=3, attention_step_size=3 * beta, start=start, method="vectors", record=[0]
    )
    held = [(sample.signal_class[0] == k) & ~sample.noisy[0] for k in (0, 1)]
    logit = torch.logit(path.attention_on_signal[:, 0])  # (S, H, n)
    clean = ~sample.noisy[0]
    apart = (logit - logit.mean(1, keepdim=True))[:, :, clean].square().mean((1, 2)).sqrt()
    np.testing.assert_allclose(course.difference[:, 3], apart, rtol=1e-7)
    np.testing.assert_allclose(course.growth[-1, 3], (apart[-1] / apart[0]).item(), rtol=1e-7)
    for k in (0, 1):
        np.testing.assert_allclose(course.logit[:, 3, k], logit[:, :, held[k]].mean(-1), rtol=1e-7, atol=1e-10)
        np.testing.assert_allclose(
            course.attention[:, 3, k], path.attention_on_signal[:, 0, :, held[k]].mean(-1), rtol=1e-7
        )
        assert course.clean[3, k] == held[k].sum()
        assert course.x[3, k] == pytest.approx(225 * held[k].sum().item() / 3000)
        assert course.flipped[3, k] == pytest.approx(
            1 - held[k].sum().item() / (sample.signal_class[0] == k).sum().item()
        )
    seen = path.attention_on_signal[:, 0, :, clean]
    np.testing.assert_allclose(course.spread_clean[:, 3], np.ptp(seen.mean(-1).numpy(), axis=1), rtol=1e-7)
    assert course.train_accuracy[-1, 3] == path.train_accuracy[-1, 0]


def test_growth_of_differences_is_the_derivative_of_two_heads_on_orthogonal_data():
    """Six small differences, one per mode, trained as two heads on exactly orthogonal noise: rms as the formula weighs them."""
    law = SignalNoiseLaw(24, 3000, 15.0, 0.3)
    sample = orthogonal_sample(law, 3, 1)
    member = (sample.signal_class[0] == 1) & sample.noisy[0]
    clean = (sample.signal_class[0] == 1) & ~sample.noisy[0]
    assert member.sum() > 0
    noise, mu, y = sample.tokens[0, :, 1], sample.signals[0, 1], sample.labels[0]
    H, eps, d, count, flips = 2, 1e-6, law.d, clean.sum().item(), member.sum().item()
    in_p = [mu / law.signal_norm**2, noise[clean].sum(0) / d, noise[member].sum(0) / d]
    in_v = [
        -mu / law.signal_norm**2,
        (y[clean, None] * noise[clean]).sum(0) / d,
        (y[member, None] * noise[member]).sum(0) / d,
    ]
    variance = np.array([law.signal_norm**2 / d, 1 / count, 1 / flips])
    multiple, steps = 2.0, 15
    beta, total = multiple * law.n / d, 0.0
    for mode in range(6):
        v, p = torch.zeros(2, 1, H, sample.tokens.shape[-1], dtype=torch.float64)
        target, direction = (p, in_p[mode]) if mode < 3 else (v, in_v[mode - 3] / H)
        target[0, 0], target[0, 1] = eps * direction, -eps * direction
        path = train_heads(
            sample, beta / H, steps, heads=H, attention_step_size=H * beta, start=(v, p), method="vectors"
        )
        logit = torch.logit(path.attention_on_signal[-1, 0][:, clean]).mean(-1)
        slope = (logit[0] - logit[1]).item() / (2 * eps)
        total += (variance[mode] if mode < 3 else H**2 / 16 * variance[mode - 3]) * slope**2
    x, share = law.signal_norm**2 * count / d, flips / (count + flips)
    found = difference_growth([x], [share], [count], H, multiple, steps, [0, steps])
    assert found[0, 0] == 1
    assert found[1, 0] == pytest.approx(math.sqrt(total / (variance[0] + variance[1])), rel=1e-5)


def test_samples_with_several_directions():
    law = ManyDirectionsLaw(400, 5000, 6.0, 0.1, shares=(0.5, 0.3, 0.2))
    sample = law.draw(1, 2)
    assert sample.signals.shape == (2, 6, 406)
    torch.testing.assert_close(sample.signals @ sample.signals.mT, 36 * torch.eye(6).double().expand(2, 6, 6))
    torch.testing.assert_close(
        sample.tokens[:, :, 0], torch.stack([s[c] for s, c in zip(sample.signals, sample.signal_class, strict=True)])
    )
    assert (sample.tokens[:, :, 1, :6] == 0).all()
    assert ((sample.signal_class < 3) == (sample.true_labels > 0)).all()
    counts = torch.bincount(sample.signal_class.flatten(), minlength=6) / 800
    np.testing.assert_allclose(counts, law.direction_probabilities, atol=4 * math.sqrt(0.25 / 800))
    assert sample.noisy.double().mean().item() == pytest.approx(0.1, abs=0.045)
    assert sample.tokens[:, :, 1].square().sum(-1).mean().item() == pytest.approx(4994, rel=0.01)
    assert torch.equal(law.draw(1, 1, first_run=1).tokens[0], sample.tokens[1])


# --- claims and their controls, each in its own world ----------------------------------------------------------------------

DRAWS = 60


def around(value):
    """(DRAWS,): draws whose mean is the value."""
    return value * (1 + 1e-3 * np.linspace(-1, 1, DRAWS))


def test_near_the_threshold_a_claim_is_outside_its_regime():
    near = Study(law=SignalNoiseLaw(80, 16_000, 21.0, 0.05))
    assert CLAIMS["Q10"].violation(near).startswith("needs x > 1.5 x* = 1.63; here 1.05")


def course(**known):
    return HeadsCourse(**dict.fromkeys(field.name for field in dataclasses.fields(HeadsCourse)) | known)


def alike(small, large):
    """Differences of attention between two heads, at step 1000 and at the end, from starts of norm 0.1 and 1."""

    def heads(*spreads):
        apart = np.array([around(spread) for spread in spreads])
        return course(steps=(1000, 5000), attention_clean=np.stack([0.5 + apart, np.full_like(apart, 0.5)], -1))

    return Study(starts={0.1: heads(*small), 1.0: heads(*large)})


def growth(grown):
    """Classes below, at and above their boundary, for which 2, 50 and 2 is predicted."""
    random = np.exp(0.2 * np.random.default_rng(3).standard_normal((DRAWS, 3)))
    seen = Study(class_difference=np.stack([np.ones((DRAWS, 3)), random * grown]))
    return Study(growth=seen, predicted_growth=np.tile([2.0, 50.0, 2.0], (DRAWS, 1)))


def divided(near, far):
    flags = np.tile([True, False], (DRAWS, 1))
    return Study(divided=Study(apart=np.tile([near, far], (DRAWS, 1)), near=flags, far=~flags))


def directions(cosine, grown):
    spread = np.random.default_rng(1).standard_normal(DRAWS) * 0.1
    return Study(cosine=cosine + spread - spread.mean(), squares=[np.ones(DRAWS), grown**2 * (1 + spread)])


def products(rate):
    """log |p| = rate x the sum of gradient norms - 1."""
    drive = torch.tensor([0.0, 2.0, 4.0], dtype=torch.float64).view(3, 1, 1).expand(3, DRAWS, 1)
    path = Study(attention_size=torch.full_like(drive, 2.0), drive=drive, p=(rate * drive - 1).exp().unsqueeze(-1))
    return Study(factors=Study(runs={0: path}))


def rank_one(second):
    values = torch.tensor([1.0, second], dtype=torch.float64).expand(2, DRAWS, 1, 2)
    path = Study(singular_values=values, second_bound=torch.ones(DRAWS, 1, dtype=torch.float64))
    return Study(factors=Study(norms=(30.0, 7.0), runs={(30.0, 0.01): path}))


def factors(small, large, kept):
    """Margins after steps 0, 1 and 500 and attention, from factors of norm 0.01 and 0.3; exponents over the linear model's."""
    runs = {}
    for size, (first, last, clean) in ((0.01, small), (0.3, large)):
        margins = torch.tensor([-1.0, first, last]).view(3, 1, 1).expand(3, DRAWS, 4)
        run = Study(margins=margins, attention_clean=torch.full((3, DRAWS, 1), clean))
        runs |= {(norm, size): run for norm in (30.0, 7.0)}
    shares = {name: np.full(DRAWS, share) for name, share in zip(("small", "large", "plain"), kept, strict=True)}
    return Study(factors=Study(runs=runs, norms=(30.0, 7.0), kept=shares))


def division(flags):
    return Study(factors=Study(divided=dict.fromkeys(("factors", "vectors"), np.tile(flags, (DRAWS, 1)))))


HALF, WHOLE = (-1.0, 1.0, 0.5), (-1.0, 1.0, 0.9)  # of `factors`


@pytest.mark.parametrize(
    ("id", "own", "others"),
    [
        ("Q10", alike((0.01, 0.002), (0.1, 0.05)), [alike((0.1, 0.05), (0.01, 0.002)), None]),
        ("Q45", growth((2, 50, 2)), [growth((1, 1, 1))]),
        ("Q46", divided(True, False), []),
        ("Q47", directions(0.0, 20.9), [directions(-0.5, 20.9), directions(0.0, 83.6)]),
        ("Q93", products(2.0), [products(1.0), products(4.0)]),
        ("Q94", factors(HALF, WHOLE, (0.97, 0.3, 0.2)),
         [factors(WHOLE, HALF, (0.3, 0.97, 0.2)), factors((1.0, -1.0, 0.5), WHOLE, (0.97, 0.3, 0.2)), None]),
        ("Q94b", rank_one(0.9), [rank_one(0.09)]),
        ("Q49b", division([False, False]), []),
    ],
)  # fmt: skip
def test_claims_and_controls_each_hold_in_their_own_world(id, own, others):
    assert (tighter if id == "Q94b" else worlds)(CLAIMS[id], own, *others) == []


def test_a_class_is_above_its_own_threshold_where_flow_says_so():
    """x* by the flipped fraction of each class: 1 without flips, 1.208 at a tenth; and growth is binned by x / x*."""
    course = SimpleNamespace(clean=np.array([[20.0, 18.0]]), flipped=np.array([[0.0, 0.1]]))
    np.testing.assert_allclose(study.thresholds(course), [[1.0, 1.208]], rtol=3e-3)
    course.x, course.attention = np.array([[1.05, 3.0]]), np.array([[[[0.1, 0.9], [0.2, 0.3]]]])
    divided = study._divided_heads(course)
    assert divided.apart.tolist() == [[True, False]]
    assert divided.near.tolist() == [[True, False]]
    assert divided.far.tolist() == [[False, True]]
