r"""Attention over time: three situations of the paper, the straight line hidden in every saturating curve, and the leak of the public code.

*Growth.* The *gap* of a clean sample is $x = z_1 - \log\frac{1}{T-1}\sum_{t>1}e^{z_t}$, so that $s_1 = e^x/(e^x+T-1)$. A force
proportional to $s(1-s)$ gives

$$ \dot x = \lambda\,s(1-s) \quad\Longleftrightarrow\quad \frac{d}{d\tau}\,g(x) = \lambda, \qquad
   g(x) = 2x + 2\sinh\bigl(x-\log(T-1)\bigr), $$

so $g(x(\tau)) - g(x(0)) = \lambda\tau$ exactly. The force carries the factor $W^\top W\approx\sigma_w^2d+|p|^2$, which grows as $p$
does; the *clock* $\int(\sigma_w^2d+|p|^2)\,d\tau$ takes that out. The paper is reported (second-hand) to use the same function with
$\log T$ in place of $\log(T-1)$.

*Leak.* The authors' code makes the training set and the test set from two numpy generators with the *same* seed, noise first. Test sample
i < n therefore carries exactly the noise of training sample i, under a clean label and the signals of its own class. A head that
memorised training noise is tested on it. `leaked_test` is the only place of the package that shares draws between training and test.

Source: situations from arXiv 2409.17625 (poster) and its code (public repository, configuration of the synthetic experiment); the rest
derived in the theory chapter of Part II.
"""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import torch

from attnbook.draws import mean
from attnlib.token_selection.errors import population_along
from attnlib.token_selection.gram import draw_gram, gram_of
from attnlib.token_selection.law import CODE_START, Sample, Start
from attnlib.token_selection.training import Recursion, train

SITUATIONS = {"large noise": (4500, 5.0), "large signal": (1000, 100.0)}  # d, |mu|; the balanced one is the page's own
LOGGED = (50, 99, 199, 499, 999)  # steps at which the authors' run is quoted
# Their default run at these steps: attention of clean samples on token 0, of flipped ones on tokens 0 and 1.
PUBLISHED_ATTENTION = (
    (0.269, 0.633, 0.921, 0.984, 0.995),
    (0.130, 0.158, 0.104, 0.021, 0.005),
    (0.137, 0.153, 0.221, 0.534, 0.844),
)
END_COUNT = 20_000  # fresh points at the end
_ROWS = 26  # moments at which fresh data are drawn
_NEWTON_STEPS = 12  # quadratic from a start that is never more than a factor 2 off: 12 reach rounding from anywhere
_CHUNK = 50  # test samples held at once

# --- the growth function -------------------------------------------------------------------------------------------------------


def growth(x, tokens):
    r"""$g(x) = 2x + 2\sinh(x-\log(T-1))$, elementwise, for gaps of at most about 700 in size.

    >>> growth(0.0, tokens=8).round(12)  # 1/(T-1) - (T-1)
    np.float64(-6.857142857143)
    >>> bool(np.isclose(growth(np.log(7), tokens=8), 2 * np.log(7)))  # attention one half
    True
    """
    x = np.asarray(x, dtype=np.float64)
    return 2 * x + 2 * np.sinh(x - math.log(tokens - 1))


def inverse_growth(y, tokens):
    r"""The gap x with $g(x) = y$, elementwise: where $\dot x=\lambda s(1-s)$ is after a time $(y-g(x_0))/\lambda$.

    With $w = x-\log(T-1)$ the equation is $w+\sinh w=(y-2\log(T-1))/2=:C$. The left side is odd and, for $w>0$, convex, and its root
    lies below both $C/2$ and $\operatorname{arsinh}C$; Newton's method from the smaller of the two falls monotonically to the root.

    >>> inverse_growth(growth([-3.0, 0.0, 0.25, 40.0, 690.0], tokens=8), tokens=8).round(9).tolist()
    [-3.0, 0.0, 0.25, 40.0, 690.0]
    """
    shift = math.log(tokens - 1)
    target = np.asarray(y, dtype=np.float64) / 2 - shift
    size = np.abs(target)
    w = np.minimum(size / 2, np.arcsinh(size))
    for _ in range(_NEWTON_STEPS):
        w = w - (w - size + np.sinh(w)) / (1 + np.cosh(w))
    return shift + np.sign(target) * w


def integrated(tokens, until=400.0, steps=40_000):
    """Fourth-order Runge-Kutta of dx/dt = s (1 - s) from 0: times and gaps, every hundredth step."""

    def rate(x):
        s = 1 / (1 + (tokens - 1) * math.exp(-x))
        return s * (1 - s)

    h, x, kept = until / steps, 0.0, []
    for step in range(steps):
        a = rate(x)
        b = rate(x + h / 2 * a)
        c = rate(x + h / 2 * b)
        x += h / 6 * (a + 2 * b + 2 * c + rate(x + h * c))
        if step % 100 == 99:
            kept.append(((step + 1) * h, x))
    times, gaps = torch.tensor(kept, dtype=torch.float64).T
    return times, gaps


class GrowthLines(SimpleNamespace):
    """Of every sample, all (S, R, n): gap, growth (its growth function), growth_log_tokens (with log T in place of log(T - 1)), steps
    (time, the sum of step sizes) and clock. clean (R, n) says where they mean something; tokens, T."""

    def over_clean(self, values, statistic):
        """(R,): `statistic` of the values (R, n) of the clean samples of each training set."""
        return torch.stack([statistic(row[own]) for row, own in zip(values, self.clean, strict=True)])

    def straightness(self, values, against):
        """R^2 of values against time, sample by sample: (R, n), nan for flipped samples."""
        return torch.where(self.clean, r_squared(against, values), torch.nan)

    def predicted_end(self, against):
        """Gap at the end, if the growth function went on as in the first quarter of the recorded moments: (R, n)."""
        quarter = len(self.gap) // 4
        ratio = against[-1] / against[quarter]
        target = self.growth[0] + ratio * (self.growth[quarter] - self.growth[0])
        return torch.where(self.clean, torch.as_tensor(inverse_growth(target, self.tokens)), torch.nan)

    def proportional_end(self):
        """The same, if the gap itself grew in proportion to time."""
        quarter = len(self.gap) // 4
        return self.gap[quarter] * self.steps[-1] / self.steps[quarter]


def growth_lines(trajectory, weight_scale):
    """Measure them on a trajectory that started with p_0 = 0 and this `weight_scale`."""
    T, scores = trajectory.law.tokens, trajectory.scores
    gap = scores[..., 0] - torch.logsumexp(scores[..., 1:], -1) + math.log(T - 1)
    speed = weight_scale + trajectory.prompt_norm_squared
    rise = (speed[1:] + speed[:-1]) / 2 * trajectory.time.diff(dim=0)
    clock = torch.cat([torch.zeros_like(rise[:1]), rise.cumsum(0)])
    return GrowthLines(
        clean=~trajectory.labels.noisy,
        gap=gap,
        growth=torch.as_tensor(growth(gap, T)),
        growth_log_tokens=torch.as_tensor(growth(gap, T + 1)),
        steps=trajectory.time.unsqueeze(-1).expand_as(gap),
        clock=clock.unsqueeze(-1).expand_as(gap),
        tokens=T,
    )


def r_squared(x, y):
    """Squared correlation along the first axis: fraction of the variance of y that a straight line in x explains."""
    x, y = x - x.mean(0), y - y.mean(0)
    return (x * y).sum(0) ** 2 / ((x * x).sum(0) * (y * y).sum(0))


# --- the leak ------------------------------------------------------------------------------------------------------------------


def _noise(law, seed, count):
    """The first `count` samples' noise of the generator with this seed, in chunks (m, T, d), in the order of roles of `TokenLaw`.

    The code stores its confusing token behind the same-class one; here it comes before.
    """
    rng, weak = np.random.default_rng(seed), law.same_class_tokens
    order = [0, 1 + weak, *range(1, 1 + weak), *range(2 + weak, law.tokens)]
    for first in range(0, count, _CHUNK):
        chunk = rng.standard_normal((min(_CHUNK, count - first), law.tokens, law.d))
        yield law.noise_std * torch.as_tensor(chunk)[:, order]


def leaked_sample(law, seed) -> Sample:
    """The authors' training set of a seed, in float64 (theirs is rounded to float32): one run, balanced labels.

    Raises ValueError for an odd n, which their code does not know.
    """
    if law.n % 2:
        raise ValueError(f"n must be even, as in the authors' code; got {law.n}: take {law.n + 1}")
    labels = law.draw_labels(seed)
    tokens = torch.cat(list(_noise(law, seed, law.n))).unsqueeze(0)
    tokens[..., :2] += law.means(labels.true)
    return Sample(law, seed, 0, tokens, labels)


def leaked_test(law, seed, step_size, steps, *, test_size=1000, start=CODE_START, record=()):
    """Train on `leaked_sample`, test as the authors do and as one should.

    Args:
        law: balanced, n even; d^2 numbers are held for W_0.
        seed: of both sets, as theirs.
        test_size: samples of the leaked test set, an even number: the first half has class +1. As many fresh points.
        start: law of W_0 and p_0, from the stream of the seed (theirs is not seeded).
        record: steps of the trajectory to keep; the last is always kept.

    Returns flipped (training samples with a flipped label), wrong (misclassified samples of the leaked test set), margins there,
    Y* f (test_size,), and reported_accuracy, which is what the authors' evaluation reports; wrong_fresh (misclassified among as many
    fresh points) and fresh_accuracy; fresh_error over the whole law, from the scores; trajectory, of the training.
    """
    sample = leaked_sample(law, seed)
    state = Recursion(gram_of(sample, start))
    kept, rows = sorted({*(step for step in record if step <= steps), steps}), []
    for step in range(steps + 1):
        if step in kept:
            rows.append(state.snapshot())
        if step < steps:
            state.advance(step_size)
    trajectory = state.trajectory(kept, rows)
    v = _direction(sample, start, state)
    true = torch.ones(test_size, dtype=torch.float64)
    true[test_size // 2 :] = -1
    outputs = []
    for first, noise in zip(range(0, test_size, _CHUNK), _noise(law, seed, test_size), strict=True):
        noise[..., :2] += law.means(true[first : first + len(noise)])
        outputs.append(_outputs(noise, v, sample.head))
    margins = torch.cat(outputs) * true
    wrong = _where(margins <= 0)
    wrong_fresh = _wrong_fresh(law, seed, v, sample.head, test_size)
    return SimpleNamespace(
        flipped=_where(sample.labels.noisy[0]),
        wrong=wrong,
        margins=margins,
        reported_accuracy=1 - len(wrong) / test_size,
        wrong_fresh=wrong_fresh,
        fresh_accuracy=1 - wrong_fresh / test_size,
        fresh_error=population_along(trajectory, rows=[-1]).error.item(),
        trajectory=trajectory,
    )


def _where(flags):
    return tuple(torch.nonzero(flags).flatten().tolist())


def _direction(sample, start, state):
    """v = X^T a + M_0 X^T b + q v_0 as a vector, (d,)."""
    a, b, q = (x[0] for x in state.coordinates)
    rows = sample.tokens[0].flatten(0, 1)
    weight, prompt = start.draw(sample.law.d, sample.seed, sample.first_run)
    return rows.mT @ a + weight.mT @ (weight @ (rows.mT @ b) + q * prompt)


def _outputs(tokens, v, head):
    return (torch.softmax(tokens @ v, -1) * (tokens @ head)).sum(-1)


def _wrong_fresh(law, seed, v, head, count):
    wrong = 0
    for run, first in enumerate(range(0, count, _CHUNK)):
        tokens, labels = law.draw_fresh(min(_CHUNK, count - first), seed, run=run)
        wrong += int((_outputs(tokens, v, head) * labels <= 0).sum())
    return wrong


# --- what the page measures ----------------------------------------------------------------------------------------------------


def recorded_steps(steps):
    """Steps at which a situation is recorded: some 125 evenly spaced ones, and those at which the authors' run is quoted."""
    return sorted({*range(0, steps + 1, max(1, steps // 125)), *(step for step in LOGGED if step <= steps)})


def situation(law, step_size, steps, runs, seed, *, count=2000):
    """R trainings of one law, and what fresh data see of them: `along` the trajectory at its recorded `rows` (`count` points), (rows, R),
    and at the `end` (`END_COUNT`), (R,)."""
    start = Start()
    trajectory = train(draw_gram(law, seed, runs, start=start), step_size, steps, record=recorded_steps(steps))
    last = len(trajectory.steps) - 1
    rows = tuple(sorted({round(last * (j / (_ROWS - 1)) ** 1.5) for j in range(_ROWS)}))
    along = population_along(trajectory, count=count, rows=list(rows))
    end = population_along(trajectory, count=END_COUNT, rows=[last])
    end = replace(end, **{name: value[0] for name, value in vars(end).items()})
    return SimpleNamespace(law=law, start=start, trajectory=trajectory, rows=rows, along=along, end=end)


def dynamics_study(law, step_size, steps, *, runs=8, seed=0, leak_seeds=(42, 0, 1, 2, 3)):
    """The situations (`law` is that of "balanced"; the others differ in d and |mu|), growth lines of the balanced one, and leaked tests, of
    seeds of their own (42 is the authors').

    predicted_gap, proportional_gap (R, n): at the end. times, risen: of dx/dt = s (1 - s), and by how much the growth function rises,
    with T - 1 and with T in it.
    """
    laws = {"balanced": law} | {name: replace(law, d=d, signal_norm=norm) for name, (d, norm) in SITUATIONS.items()}
    s = SimpleNamespace(law=law, step_size=step_size, steps=steps)
    s.situations = {name: situation(each, step_size, steps, runs, seed) for name, each in laws.items()}
    s.balanced = s.situations["balanced"]
    s.lines = growth_lines(s.balanced.trajectory, s.balanced.start.weight_scale)
    s.predicted_gap, s.proportional_gap = s.lines.predicted_end(s.lines.clock), s.lines.proportional_end()
    s.leaks = [leaked_test(law, each, step_size, steps, record=LOGGED) for each in leak_seeds]
    s.times, gaps = integrated(law.tokens)
    counts = {"T - 1": law.tokens, "T": law.tokens + 1}
    s.risen = {name: torch.as_tensor(growth(gaps, T)) - float(growth(0.0, T)) for name, T in counts.items()}
    return s


def dynamics_results(path, end):
    """What the page records: the last record of a course, and what it does on fresh data then."""
    clean, noisy = (path.attention_of(kind)[-1] for kind in ("clean", "noisy"))
    return {
        **mean(path.train_accuracy()[-1]).named("train_accuracy"),
        **mean(path.train_accuracy("clean")[-1]).named("train_accuracy_clean"),
        **mean(path.train_accuracy("noisy")[-1]).named("train_accuracy_noisy"),
        **mean(end.accuracy).named("test_accuracy"),
        **mean(end.loss).named("test_loss"),
        **mean(clean[:, 0]).named("attention_clean"),
        **mean(noisy[:, 0]).named("attention_noisy"),
        **mean(noisy[:, 1]).named("attention_noisy_confusing"),
    }
