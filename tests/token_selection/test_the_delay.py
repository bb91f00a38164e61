"""II.8: the delay, late gaps, limits and rates a second way, and judges that tell their worlds apart."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.optimize import nnls

from attnbook.token_selection import theory
from attnbook.token_selection.mean_field import mean_field
from attnbook.token_selection.setting.study import gradient_descent
from attnbook.token_selection.the_delay.claims import CLAIMS
from attnbook.token_selection.the_delay.limits import (
    critical_discrimination,
    discrimination_at,
    exponent_at,
    gap_differences,
    last_strength,
    late_gaps,
    laws_at,
    mean_field_distance,
    svm_weights,
)
from attnbook.token_selection.the_delay.study import (
    SHARP,
    STRENGTHS,
    along_time,
    attention_on_relevant,
    course,
    delay_study,
    delay_times,
    selection_times,
)
from attnbook.token_selection.theory import laws_of_strength, n_d_snr_fourth
from attnbook.token_selection.time_laws.study import fit_times
from attnlib.token_selection.errors import population_along
from attnlib.token_selection.gram import draw_gram
from attnlib.token_selection.law import Start, TokenLaw
from attnlib.token_selection.model import forces
from attnlib.token_selection.training import train
from bookkit.claims import Verdict
from bookkit.sharpness import NoNumber

DELAY_LAW = TokenLaw(n=10, d=4000, tokens=5, signal_norm=20.0)


def test_strength_and_its_laws():
    laws = laws_of_strength(DELAY_LAW, [0.5, 3])
    assert [law.d for law in laws] == [2000, 12000]
    noisy = laws_of_strength(TokenLaw(10, 50, 5, 20.0, noise_std=2.0), [2.0])
    assert noisy[0].d == 2000
    assert delay_times(noisy, runs=1, seed=0).strength == pytest.approx([2.0])


def test_attention_on_relevant_is_that_of_dense_fresh_data():
    law = TokenLaw(n=10, d=60, tokens=4, signal_norm=6.0, weak_signal=0.3, noise_std=0.8)
    sample = law.draw(3)
    path = gradient_descent(sample, Start(), 0.05, 60, record=[60])
    weight, prompt = Start().draw(law.d, 3)
    # v is not kept by a Trajectory; a model with the same three numbers serves as well
    v = torch.zeros(law.d, dtype=torch.float64)
    v[:2] = path.direction_on_signals[-1, 0]
    v[2] = (path.direction_norm_squared[-1, 0] - v[:2].square().sum()).sqrt()
    assert v[:2].abs().max() > 0.05
    # no coordinate beyond the third meets v: the points are drawn without them
    tokens, _ = replace(law, d=3).draw_fresh(200_000, 9)
    on_first = torch.softmax(tokens @ v[:3], -1)[:, 0]
    error = on_first.std().item() / math.sqrt(len(on_first))
    exact = attention_on_relevant(law, path.direction_on_signals[-1, 0], path.direction_norm_squared[-1, 0])
    assert abs(on_first.mean().item() - exact) < 4 * error
    assert error < 1e-3
    assert weight.shape == (60, 60)
    assert prompt.abs().max() == 0


def test_selection_time_of_the_flow_is_that_of_plain_descent():
    law = laws_of_strength(DELAY_LAW, [0.5])[0]
    flow = delay_times([law], runs=2, seed=2).select[0]
    step = flow.max() / 900
    path = train(draw_gram(law, 2, 2), step, 1200, record=range(0, 1200, 3))
    np.testing.assert_allclose(selection_times(path), flow, rtol=0.05)
    finer = delay_times([law], runs=2, seed=2, largest_move=0.025).select[0]
    np.testing.assert_allclose(finer, flow, rtol=0.03)  # the flow is resolved
    # found on the path: the fresh attention is 1/2 there
    for run in range(2):
        after = int(np.searchsorted(path.time[:, run].numpy(), flow[run]))
        rows = [0, after - 1, after]
        fresh = population_along(path, count=2000, rows=rows)
        there = along_time(path.time[rows, run : run + 1], fresh.attention[:, run : run + 1, 0], flow[run : run + 1])
        assert there[0, 0] == pytest.approx(0.5, abs=0.04)


def test_nobody_waits_for_a_label_that_no_attention_fits():
    # Three tokens: in some training sets all values of a flipped sample have the sign of its true label.
    law = laws_of_strength(replace(DELAY_LAW, tokens=3, signal_norm=12.0), [1.0])[0]
    gram = draw_gram(law, 0, 8)
    # All attention on one token, each in turn: f is then its value, and every f is a mixture of these.
    each = torch.stack([gram.head_scores[..., token] * gram.labels.observed > 0 for token in range(law.tokens)])
    hopeless = (~each.any(0)).any(1).numpy()
    assert 0 < hopeless.sum() < 8
    times = fit_times([law], runs=8, seed=0, steps=5000)[0]
    np.testing.assert_array_equal(np.isinf(times), hopeless)
    found = delay_times([law], runs=8, seed=0, steps=3000)
    np.testing.assert_array_equal(found.fit[0], np.where(hopeless, np.nan, times))
    assert np.isfinite(found.select).all()
    assert found.steps[0] < 300  # not 3000: training does not go on for the labels that stay


def test_course_reads_off_the_flow():
    times = np.geomspace(0.02, 50.0, 9)
    seen = course(DELAY_LAW, times, runs=2, seed=1, count=2000)
    assert seen.attention.shape == (2, 9)
    assert np.isfinite(seen.loss).all()
    step = 0.01
    path = train(draw_gram(DELAY_LAW, 1, 2), step, 300, record=range(0, 301, 2))
    fresh = population_along(path, count=2000)
    read = along_time(path.time, fresh.loss, times[times < 3])
    np.testing.assert_allclose(seen.loss[:, times < 3], read, atol=2e-3)
    assert seen.loss[0, 0] - seen.loss[0, -1] > 0.02


def test_along_time_is_linear_in_log_time():
    time = torch.tensor([0.0, 1.0, 100.0], dtype=torch.float64).unsqueeze(1)
    values = torch.tensor([7.0, 2.0, 4.0], dtype=torch.float64).unsqueeze(1)
    np.testing.assert_allclose(along_time(time, values, np.array([0.5, 1.0, 10.0, 100.0]))[0], [4.5, 2, 3, 4])
    assert np.isnan(along_time(time, values, np.array([101.0]))).all()


LATE_LAW = TokenLaw(n=4, d=40_000, tokens=5, signal_norm=100.0, label_noise=0.5)


def test_weights_are_the_dual_variables_of_the_hard_margin_problem():
    gram = draw_gram(LATE_LAW, 3, 1)
    kernel, chosen = gram.weighted[0, :20, :20], torch.tensor([0, 1, 0, 1])
    rows, beta = svm_weights(kernel, chosen)
    assert rows.shape == (16, 20)
    # min |A'b - p|^2 over b >= 0 with A p = 1, A A' = B: the projection of the least norm point, by active sets
    root = torch.linalg.cholesky(rows @ kernel @ rows.mT).numpy()  # rows of A
    point = np.linalg.solve(root, np.ones(16))
    solved, rest = nnls(root.T, point)
    assert rest == pytest.approx(0, abs=1e-9)
    np.testing.assert_allclose(beta.numpy(), solved, rtol=1e-6)
    assert (beta > 0).all()


def test_the_flow_is_that_of_plain_descent_on_p():
    end = 1.0
    found = late_gaps(LATE_LAW, end, runs=2, seed=3, largest_move=0.02)
    gram = draw_gram(LATE_LAW, 3, 2)
    kernel = gram.weighted[:, :20, :20]
    scores = torch.zeros(2, 4, 5, dtype=torch.float64)
    step = math.exp(end) / 30_000
    for _ in range(30_000):
        c = forces(scores, gram.head_scores, gram.labels.observed)
        scores = scores + step * (kernel @ c.flatten(1).unsqueeze(-1)).view_as(scores)
    chosen = scores.argmax(-1)
    gaps = [
        scores[r, i, chosen[r, i]] - scores[r, i, t]
        for r in range(2)
        for i in range(4)
        for t in range(5)
        if t != chosen[r, i]
    ]
    np.testing.assert_allclose(found.gaps.flatten(), gaps, atol=0.01)


def test_gaps_settle_where_the_theorem_says():
    early, late = (late_gaps(LATE_LAW, end, runs=2, seed=3) for end in (15.0, 60.0))
    assert late.kkt.all()
    off = [(one.gaps - one.predicted).abs().max().item() for one in (early, late)]
    assert off[1] < 2e-3 < off[0]
    assert off[1] < off[0] / 10


LIMITS_LAW = TokenLaw(n=20, d=2000, tokens=8, signal_norm=20.0)


def test_laws_at_hold_both_numbers():
    for law, strength in zip(laws_at(replace(LIMITS_LAW, noise_std=2.0), (0.5, 3.0), 100.0), (0.5, 3.0), strict=True):
        assert 1 / theory.n_snr_squared(law) == pytest.approx(strength, rel=1e-3)
        assert theory.n_d_snr_fourth(law) == pytest.approx(100.0, rel=1e-3)


def test_at_the_critical_discrimination_half_of_sampled_choices_are_right():
    D, share = critical_discrimination(LIMITS_LAW), LIMITS_LAW.signal_share().sum(-1).numpy()
    chosen = (D * share + np.random.default_rng(3).standard_normal((200_000, 8))).argmax(-1)
    assert (chosen == 0).mean() == pytest.approx(0.5, abs=4.5 * 0.5 / math.sqrt(200_000))


def test_discrimination_is_the_limit_of_the_late_one():
    law = laws_at(LIMITS_LAW, (2000.0,), 300.0)[0]
    assert discrimination_at(law, 300.0) == pytest.approx(theory.late_discrimination(law), rel=2e-3)


@pytest.mark.parametrize("q", [60.0, 1000.0])
def test_exponent_is_the_slope_of_the_closed_form_far_out(q):
    first, last = (theory.selection_time(law, 1.0)[0] for law in laws_at(LIMITS_LAW, (60.0, 90.0), q))
    assert exponent_at(LIMITS_LAW, q) == pytest.approx((last - first) / 30, rel=1e-2)
    assert exponent_at(LIMITS_LAW, 1e9) == pytest.approx(theory.delay_exponent(LIMITS_LAW), rel=1e-4)


def test_no_exponent_below_the_critical_strength():
    q = (critical_discrimination(LIMITS_LAW) / discrimination_at(LIMITS_LAW, 1.0)) ** 2
    assert exponent_at(LIMITS_LAW, 0.95 * q) == math.inf
    assert q == pytest.approx(14.94, abs=0.01)


def test_the_last_strength_is_where_the_closed_form_loses_its_solution():
    last = last_strength(replace(LIMITS_LAW, signal_norm=10.0))
    d = [round(20 * 100 * last * factor) for factor in (0.5, 1.02)]
    finite, never = (theory.selection_time(replace(LIMITS_LAW, signal_norm=10.0, d=one), 1.0)[0] for one in d)
    assert finite < math.inf == never
    assert math.isnan(last_strength(replace(LIMITS_LAW, signal_norm=2.0)))


@pytest.mark.parametrize(
    "changes", [{}, {"label_noise": 0.0}, {"tokens": 5, "same_class_tokens": 2, "weak_signal": 0.3}]
)
def test_gap_differences_are_what_unequal_gaps_add(changes):
    law = replace(LIMITS_LAW, d=16_000, **changes)
    first, per_gap, _ = theory._late_shares(law)
    assert gap_differences(law) == pytest.approx(
        -theory._late_scores(law, 0.0, theory._late_leads(law))[0] / per_gap, rel=1e-9
    )
    assert first > 1


RATE_LAW = TokenLaw(n=10, d=2000, tokens=5, signal_norm=10.0)


def test_distance_is_that_of_plain_descent():
    gram, theta, steps = draw_gram(RATE_LAW, 4, 2), 5.0, 2000
    kernel = gram.kernel[:, :50, :50]
    unit = RATE_LAW.n / (
        RATE_LAW.d * RATE_LAW.head_norm * RATE_LAW.signal_norm
    )  # one step of size 1 is 1 / unit of theta
    scores = torch.zeros(2, 10, 5, dtype=torch.float64)
    for _ in range(steps):
        c = forces(scores, gram.head_scores, gram.labels.observed)
        scores = scores + theta * unit / steps * (kernel @ c.flatten(1).unsqueeze(-1)).view_as(scores)
    limit = mean_field(replace(RATE_LAW, d=10**9, signal_norm=10 * math.sqrt(10**9 / 2000)), 1e-3, weight_scale=1.0, finite_size=False,
                       horizon=1e3 * theta * RATE_LAW.n / (10**9 * RATE_LAW.head_norm * RATE_LAW.signal_norm))  # fmt: skip
    expected = [
        max(
            (scores[r, i] - torch.as_tensor(limit.scores[-1][int(gram.labels.noisy[r, i])])).abs().max().item()
            for i in range(10)
        )
        for r in range(2)
    ]
    assert mean_field_distance(RATE_LAW, theta, runs=2, seed=4).tolist() == pytest.approx(expected, rel=0.02)


def distance_bound(law: TokenLaw, theta: float) -> float:
    r"""With probability 0.95 or more the distance is at most this; names as in the box `ts-rate`:

    $$ \frac{e^{\Lambda\theta}-1}\Lambda\bigl[(1+r)(2+\frac{h\tilde\Gamma}8)\epsilon_\gamma+\frac{n\tilde\Gamma}2\epsilon_K\bigr] $$
    """
    n, d, h, N = law.n, law.d, law.head_norm * law.signal_norm, law.n * law.tokens
    r, x = n * law.snr**2, math.log(4 * N**2 / 0.05)
    values = law.noise_std / law.signal_norm * math.sqrt(2 * x)
    products = 2 * math.sqrt(x / d) + 2 * x / d + 2 * math.sqrt(2 * r / n * x / d)
    reach = (1 + law.weak_signal) / math.sqrt(2) + 2 * values
    rate = (1 + r) * reach * (1.5 + h * reach / 16)
    source = (1 + r) * (2 + h * reach / 8) * values + n * reach / 2 * products
    return math.expm1(rate * theta) / rate * source


def test_the_bound_holds_where_it_says_something():
    small = 0.02
    distance = mean_field_distance(RATE_LAW, small, runs=20, seed=1)
    bound = distance_bound(RATE_LAW, small)
    assert distance.max() < bound < 200 * distance.max()


@pytest.fixture(scope="module")
def study():
    return delay_study(TokenLaw(10, 1000, 5, 20.0), runs=5, seed=0)


@pytest.mark.weekly
def test_the_study_is_what_it_says(study):
    np.testing.assert_allclose(study.delays.strength, STRENGTHS, rtol=1e-3)
    for one, q in (*((sharp, 160.0**2) for sharp in study.sharp), (study.blurred, 100.0)):
        np.testing.assert_allclose(one.strength, SHARP, rtol=1e-3)
        np.testing.assert_allclose([n_d_snr_fourth(law) for law in one.laws], q, rtol=1e-3)
    assert {(d.laws[0].tokens, d.laws[0].label_noise) for d in study.sharp} == {(5, 0.0), (5, 0.2), (5, 0.3), (4, 0.2)}


NOISE = np.exp(0.02 * np.array([0.0, 1.0, -1.0, 0.5, -0.5]))


def other(thing, **changes):
    return SimpleNamespace(**vars(thing) | changes)


def sharp_with(study, log_time):
    """The study with the log times at fixed n d SNR^4 replaced: log_time(those of the closed form)."""
    times = (np.exp(log_time(closed))[:, None] * NOISE for closed in study.closed)
    return other(study, sharp=[other(one, select=t) for one, t in zip(study.sharp, times, strict=True)])


def apart(study, power):
    d = np.array([law.d for law in study.apart_laws])
    return other(study, apart=torch.as_tensor(0.05 * (d / d[0]) ** power * NOISE[:, None]))


def growing(study, start=1.0, late=0.5, attention=0.2):
    """The error in units of that of uniform attention: at the first moment and later."""
    error = np.full_like(study.growing.error, late)
    error[:, 0] = start
    attention = np.full_like(study.growing.attention, attention)
    return other(study, growing=other(study.growing, error=error * study.uniform_error, attention=attention))


def unharmed(study):
    error = np.full_like(study.harmed.error, 1 - theory.uniform_attention_accuracy(study.harmed.law))
    return other(study, harmed=other(study.harmed, error=error))


WORLDS = [
    ("TS38c", lambda study: sharp_with(study, lambda closed: closed + 0.4), Verdict.HOLDS),
    ("TS38c", lambda study: sharp_with(study, lambda closed: 1.04 * closed), Verdict.FAILS),
    ("TS38d", lambda study: sharp_with(study, lambda closed: closed), Verdict.HOLDS),
    ("TS38d", lambda study: sharp_with(study, lambda closed: closed + 0.4), Verdict.FAILS),
    ("TS38g", lambda study: other(study, late=other(study.late, kkt=~study.late.kkt)), Verdict.OUTSIDE),
    ("TS38h", lambda study: other(study, never=other(study.never, attention=study.never.attention + 0.3)), Verdict.FAILS),
    ("TS38i", lambda study: apart(study, -0.5), Verdict.HOLDS),
    ("TS38i", lambda study: apart(study, -0.75), Verdict.FAILS),
    ("TS39", growing, Verdict.HOLDS),
    ("TS39", lambda study: growing(study, start=3.0), Verdict.FAILS),
    ("TS39", lambda study: growing(study, late=3.0), Verdict.FAILS),
    ("TS39", lambda study: growing(study, attention=0.4), Verdict.FAILS),
    ("TS39b", unharmed, Verdict.FAILS),
]  # fmt: skip


@pytest.mark.weekly
@pytest.mark.parametrize(("id", "world", "verdict"), WORLDS)
def test_a_judge_tells_its_worlds_apart(study, id, world, verdict):
    assert CLAIMS[id].check(world(study)).verdict is verdict


@pytest.mark.weekly
@pytest.mark.parametrize(
    ("id", "world"),
    [
        ("TS38d", lambda study: CLAIMS["TS38d"].wrong(sharp_with(study, lambda closed: closed))),
        ("TS38f", lambda study: other(study, blurred=other(study.blurred, select=study.sharp[0].select))),
        ("TS38g", CLAIMS["TS38g"].wrong),
        ("TS38i", lambda study: apart(study, -0.25)),
    ],
)
def test_a_control_holds_in_its_own_world_and_its_claim_does_not(study, id, world):
    check = CLAIMS[id].check(world(study))
    assert (check.evidence.holds, check.control.holds) == (False, True)


@pytest.mark.weekly
@pytest.mark.parametrize(
    ("id", "row", "column"),
    [("TS39", "growing", "noisy_fitted"), ("TS39", "growing", "attention"), ("TS38h", "never", "attention"),
     ("TS39b", "harmed", "error")],
)  # fmt: skip
def test_a_course_that_ends_early_refuses(study, row, id, column):
    seen = getattr(study, row)
    values = getattr(seen, column).copy()
    values[2, 1:] = math.nan
    lost = CLAIMS[id].seen(other(study, **{row: other(seen, **{column: values})}))
    assert any(isinstance(part, NoNumber) for part in lost.parts)
