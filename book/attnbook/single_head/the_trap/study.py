r"""What page `14_the_trap` trains and collects: outcomes of classes, trajectories of the full and of the frozen head, margins.

The flow's boundaries are looked at on the head itself, on orthogonal noise with exact fractions of flipped samples. There nothing is shared
with the solver of the six equations: the head is trained on n samples, and its own attention is read.
"""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import torch

from attnbook.single_head.flow import first_order_threshold, flow_path, flow_step, signal_threshold
from attnbook.single_head.long_run import (
    class_fates,
    collected_moves,
    course_of_training,
    law_at,
    log_steps,
    margin_course,
    orthogonal_sample,
    small_then_long,
    stacked,
    started_at_random,
    train,
    without_flips,
)
from attnbook.single_head.the_trap.finite_trap import class_scores, trap_record
from attnlib.randomness import stream
from attnlib.single_head.law import SignalNoiseLaw
from attnlib.single_head.training import gram_descent

FATE_WINDOW = tuple(np.geomspace(0.85, 2.3, 12).tolist())  # x of the fate studies at eta = 0.2; x*(0.2) = 1.62
_SIZE, _D = 20, 4000  # samples per class, dimension
SHARES = (0.05, 0.1, 0.2, 0.3)  # of flips, whole numbers of 20
_BETWEEN = (0.1, 0.2, 0.3, 0.4)
# h and steps: tau = 2000 in all
_SCHEDULE = ((0.01, 400), (0.02, 300), (0.05, 200), (0.2, 200), (1.0, 300), (4.0, 400))
_N, _X, _STEP, _STEPS, _DRAWS = 40, 1.25, 0.25, 1000, 12  # the runs on Gaussian noise: tau = 250
_CANDIDATES = sorted({round(t) for t in np.geomspace(1, 120, 16)})  # steps at which the theorem may begin to speak
DIMENSIONS = (10**3, 10**5, 10**8)
_TIMES = np.geomspace(1e-2, 1e8, 81)
_EXCURSION = 1.2784645427610738  # m_0, the root of m sigma(m) = 1


# --- long training ---------------------------------------------------------------------------------------------------------


def long_study(law, low_norm, step_size, *, steps=3000, draws=5, seed=0):
    """`law` above the threshold, `low_norm` the signal norm of the law below it: `high`, `low`, and what is compared with them."""
    s, same = SimpleNamespace(law=law, low_law=replace(law, signal_norm=low_norm)), {"draws": draws, "seed": seed}
    record = sorted({1, 2, 3, 10, 100, 1000, *log_steps(steps)})

    def courses(shrink=1, steps=steps, record=record, **how):
        """Above and below the threshold, the same draws, trained as one batch."""
        return course_of_training((s.law, s.low_law), step_size / shrink, steps, record=record, **same, **how)

    s.high, s.low = courses()
    s.frozen_high, s.frozen_low = courses(attention_step_size=0.0)
    s.small_high, s.small_low = courses(50, 3000, [1, 20, 50, 3000])
    s.small_accuracy = {step: s.small_high.train_accuracy[s.small_high.at(step)] for step in (20, 50)}
    exponents = s.high.log10_error / s.frozen_high.log10_error
    s.attention_pays = {step: exponents[s.high.at(step)] for step in (2, 1000)}

    # (draws,), log10 clean error after one step below the threshold, from the label counts of the draw, for orthogonal noise
    clean, noisy = s.low_law.draw(seed, draws).counts()
    ratio = low_norm**2 / math.sqrt(law.n * law.d) * (clean - noisy)
    s.averaging_low = torch.special.ndtr(-ratio).mean(1).log10().numpy()

    # by the norm of the Gaussian start
    sizes = (0.0, 0.01, 0.1, 0.3, 1.0)
    starts = started_at_random(law, sizes, step_size, 300, record=[2, 300], **same)
    s.starts = dict(zip(sizes, starts, strict=True))

    def fates(settings, d, draws=5, **how):
        laws = [law_at(x, 100, d, eta) for x, eta in settings]
        return class_fates(laws, small_then_long(100, d), draws=draws, seed=seed, **how)

    s.fates = {d: fates([(x, 0.2) for x in FATE_WINDOW], d) for d in (40_000, 10**6)}
    s.no_noise = fates([(x, 0.0) for x in np.geomspace(0.6, 1.6, 10)], 10**6)
    found = fates([(1.3, 0.2)], 200_000, draws=10, svm=True)
    s.same_draws = SimpleNamespace(**vars(found), on_signal=found.on_signal)

    # normalised margin (S, draws), where SS and where XX is best
    margins = [SignalNoiseLaw(40, 8000, norm, 0.1) for norm in (40.0, 12.0)]
    s.ratios = [margin_course(own, 0.02, 10_000, **same)[1] for own in margins]
    return s


# --- the boundaries, on orthogonal noise -----------------------------------------------------------------------------------


def balanced_sample(x, share):
    r"""One run of two equal classes of 20 samples on orthogonal noise, the same fraction of each flipped, $\rho^2|C_k|/d = x$ exactly."""
    flips = round(share * _SIZE)
    law = SignalNoiseLaw(2 * _SIZE, _D, math.sqrt(x * _D / (_SIZE - flips)), share)
    sample, place = orthogonal_sample(law), torch.arange(2 * _SIZE)
    classes = place // _SIZE
    truth = 1.0 - 2.0 * classes.to(sample.labels.dtype)
    tokens = sample.tokens.clone()
    tokens[0, :, 0] = sample.signals[0][classes]
    labels = torch.where(place % _SIZE < flips, -truth, truth)
    return replace(sample, tokens=tokens, signal_class=classes[None], true_labels=truth[None], labels=labels[None])


def _stack(xs, shares):
    return stacked([balanced_sample(x, share) for x, share in zip(xs, shares, strict=True)])


def ends_on_signal(xs, shares):
    """(K,) bool: whether mean attention of the clean samples is above one half after tau = 2000."""
    sample = _stack(xs, shares)
    unit = sample.law.n / sample.law.d
    path = train(sample, [(step * unit, steps) for step, steps in _SCHEDULE])
    return (path.attention_clean[-1] > 0.5).numpy()


def first_move(xs, shares):
    """(K,): how far clean attention is from one half after two steps with h = 1/1000, the first that move it."""
    sample = _stack(xs, shares)
    path = gram_descent(sample, 1e-3 * sample.law.n / sample.law.d, 2, record=[2])
    return (path.attention_clean[-1] - 0.5).numpy()


def _zero_moves(seed):
    """x (K,) and moves of the clean logit (K, steps), orthogonal noise, eta = 0."""
    return collected_moves(
        (own, step, gram_descent(sample, step * 20 / 4000, 40).attention_on_signal)
        for sample, own in without_flips((0.3, 0.7, 0.9, 1.12, 1.5, 4.0), seed)
        for step in (0.25, 5.0, 50.0)
    )[:2]


def _flow_runs(seed):
    """x (K,), nu (K,), states (K, steps + 1, 6) of the flow as a map."""
    rng, count, steps = stream(seed, "start"), 60, 300
    x, eta = np.exp(rng.uniform(-1.5, 1.5, count)), rng.uniform(0, 0.45, count)
    step, rate = np.exp(rng.uniform(-2, 2.5, count)), np.exp(rng.uniform(-1.4, 1.4, count))
    nu, states = eta / (1 - eta), np.zeros((count, steps + 1, 6))
    for k in range(count):
        for t in range(steps):
            states[k, t + 1] = flow_step(states[k, t].tolist(), step[k], x[k], nu[k], rate[k])
    return torch.as_tensor(x), torch.as_tensor(nu), torch.as_tensor(states)


def value_bound(times, x, label_noise, r=1.0):
    """A lower bound of V in the flow from zero with x <= 1 and at most two fifths of the labels flipped, (S,): theorem thm-rise."""
    from scipy.special import erf

    nu, t = label_noise / (1 - label_noise), np.minimum(_EXCURSION, np.log1p(times / 4))
    rate = math.sqrt(r * (x + (1 + x * nu) * (1 + x))) / 2
    J = math.sqrt(math.pi) / 2 * erf(rate * t) / rate
    return np.log((1 + x * J) / (1 + nu * x * J))


def _values(seed):
    """V of forty flows from zero, and its bound: (K, S) each. The first flow is at the corner of the theorem."""
    rng, count, low = stream(seed, "start"), 40, (0.05, 0.02, -1.0)
    settings = np.vstack([(1.0, 0.4, 0.0), rng.uniform(low, (1.0, 0.4, 1.5), (count - 1, 3))])
    own = [(x, eta, 10**rate) for x, eta, rate in settings.tolist()]
    paths = [flow_path(x, eta, _TIMES, attention_rate=r) for x, eta, r in own]
    return SimpleNamespace(
        found=np.stack([path.states[:, 0] for path in paths]),
        bound=np.stack([value_bound(_TIMES, *each) for each in own]),
    )


def _lines(shares):
    """x* and x_1 at these fractions of flips."""
    return [
        ("x*", np.array([signal_threshold(share) for share in shares])),
        ("x1", np.array([first_order_threshold(share) for share in shares])),
    ]


def _records(x, d, seed):
    """Per draw, the records of its classes, eta = 0.2."""
    sample = law_at(x, _N, d, 0.2).draw(seed, _DRAWS)
    return [
        [trap_record(scores, _CANDIDATES) for scores in class_scores(sample.run(run), _STEP, _STEPS)]
        for run in range(_DRAWS)
    ]


def trap_study(seed=0):
    """What the claims on the flow, its boundaries and its trap look at; the part at the boundaries does not depend on the seed."""
    s = SimpleNamespace()
    # By line, x* or x1: does the class end on the signal 1 % below it and 1 % above, (2, 4) bool, at SHARES? And the first move, 0.2 %
    # below and above.
    s.fates = {name: np.stack([ends_on_signal(f * x, SHARES) for f in (0.99, 1.01)]) for name, x in _lines(SHARES)}
    s.moves = {name: np.stack([first_move(f * x, SHARES) for f in (0.998, 1.002)]) for name, x in _lines(SHARES)}
    # First move and end on signal, (4,) each: between x* and x_1, or mirrored at x*.
    (_, star), (_, first) = _lines(_BETWEEN)
    places = {"between": np.sqrt(star * first), "mirrored": star * np.sqrt(star / first)}
    s.between = {name: (first_move(x, _BETWEEN), ends_on_signal(x, _BETWEEN)) for name, x in places.items()}

    # Gaussian noise, x near 1.25: by d, per draw; those of which the theorem speaks; and classes with x near 4.
    s.trapped = {d: _records(_X, d, seed) for d in DIMENSIONS}
    s.in_trap = [record for d in DIMENSIONS[1:] for draw in s.trapped[d] for record in draw if record.entry > 0]
    s.free = [record for draw in _records(4.0, 10**8, seed) for record in draw]
    s.zero_moves, s.flow_runs, s.values = _zero_moves(seed), _flow_runs(seed), _values(seed)

    def fates(x, n, eta, *schedule):
        steps = [(step * n / 40_000, count) for step, count in schedule]
        return class_fates([law_at(x, n, 40_000, eta)], steps, draws=10, seed=seed)

    # steps of 5n/d from the start, or after 500 steps of n/5d; steps of 2n/(x d), or of n/5d
    s.plain, s.warm = fates(4.0, 200, 0.2, (5.0, 500)), fates(4.0, 200, 0.2, (0.2, 500), (5.0, 300))
    s.strong_small, s.strong_large = fates(400.0, 100, 0.05, (2 / 400, 1500)), fates(400.0, 100, 0.05, (0.2, 500))
    return s
