r"""What the page on the setting measures: gradient descent on $W$ and $p$ beside the three-line recursion, drawn inner products beside
measured ones, and the head that classifies before anything is learned.

*Dense*, the readable reference: with $G = \sum_{it} c_{it}\,x_{it}$, all from the old values,

$$ W \leftarrow W + \alpha\,p\,G^\top, \qquad p \leftarrow p + \alpha\,W G . $$

*Recursion*, as it is written on paper: with $k = Kc$ and $\beta = c^\top z$, all from the old values,

$$ z \leftarrow z + \alpha Hc + \alpha(\pi+\alpha\beta)Kc, \qquad H \leftarrow H + \alpha(zk^\top + kz^\top) + \alpha^2\pi kk^\top,
   \qquad \pi \leftarrow \pi + 2\alpha\beta + \alpha^2c^\top Hc. $$

A dense step costs $O(d^2 + nTd)$, the cost of the other does not depend on $d$; `attnlib.token_selection.train` is the one to use. Also
here: the force computed the obvious way, which loses its digits when attention saturates. Source: arXiv 2409.17625 (poster) for the
training, the rest derived in the theory chapter of Part II.
"""

from dataclasses import replace
from types import SimpleNamespace

import torch

from attnlib.token_selection.gram import draw_gram, gram_of
from attnlib.token_selection.law import Labels, Start, TokenLaw
from attnlib.token_selection.model import forces, gradients
from attnlib.token_selection.training import Trajectory, checked_steps, join_runs, train

LONG_D = 64_000  # dimension of the runs over many decades of time
_WRONG = 1.1  # factor on the dimension of the negative control
_POINTS = 20_000  # fresh points of a run
_DRAWS_APART = 1_000_000  # run numbers of the drawn Grams start here: other streams than those of the dense draws

# --- training as vectors -------------------------------------------------------------------------------------------------------


def gradient_descent(sample, start, step_size, steps, *, record=None, trained="both") -> Trajectory:
    """Train every run of `sample` for `steps` full-batch steps.

    Args:
        sample: dense training sets.
        start: law of W_0 and p_0, drawn with the sample's seed and run numbers.
        step_size: alpha > 0, or one per step.
        record: steps to keep, default all; the last is always kept.
        trained: "both", or "p" (W stays).
    """
    sizes, recorded = checked_steps(step_size, steps, record)
    return join_runs([_one(sample, start, sizes, recorded, trained, r) for r in range(sample.runs)])


def _one(sample, start, sizes, recorded, trained, r):
    tokens, labels = sample.tokens[r], sample.labels.observed[r]
    weight, prompt = (x.to(tokens.device) for x in start.draw(sample.law.d, sample.seed, sample.first_run + r))
    time, rows = 0.0, []
    for step in range(len(sizes) + 1):
        on_weight, on_prompt, scores = gradients(tokens, labels, sample.head, weight, prompt)
        if step in recorded:
            v = weight.mT @ prompt
            rows.append((tokens.new_tensor(time), scores, v[:2], v @ v, prompt @ prompt))
        if step == len(sizes):
            break
        alpha = sizes[step]
        if trained != "p":
            weight = weight + alpha * on_weight
        prompt = prompt + alpha * on_prompt
        time += alpha
    kept = [torch.stack(column).unsqueeze(1) for column in zip(*rows, strict=True)]
    one = Labels(sample.labels.true[r : r + 1], sample.labels.observed[r : r + 1])
    head_scores = (tokens @ sample.head).unsqueeze(0)
    return Trajectory(sample.law, sample.seed, sample.first_run + r, one, head_scores, recorded, *kept)


# --- the recursion on paper ----------------------------------------------------------------------------------------------------


def three_lines(gram, step_size, steps, *, second_order=1.0):
    """Scores of the training tokens after 0 ... steps full-batch steps, (steps + 1, R, n, T), of R training sets with their starts.

    second_order: factor of the terms in alpha squared. 1 is gradient descent; 0 drops them, which is Euler's scheme for the gradient flow
    of (z, H, pi) and no longer gradient descent.
    """
    state = _Lines(gram)
    path = [state.tokens]
    for _ in range(steps):
        c = forces(state.tokens, gram.head_scores, gram.labels.observed).view(gram.runs, -1, 1)
        state.step(c, step_size, second_order * step_size)
        path.append(state.tokens)
    return torch.stack(path)


class _Lines:
    """z (with the two signals as passive rows), H and pi, and the three lines."""

    def __init__(self, gram):
        self._shape, self._N = (gram.runs, gram.law.n, gram.law.tokens), gram.kernel.shape[2]
        self._K, self._H = gram.kernel, gram.weighted
        self.z, self.pi = gram.scores.unsqueeze(-1), gram.prompt_norm_squared[:, None, None]

    @property
    def tokens(self):
        return self.z[:, : self._N].reshape(self._shape)

    def speed(self, c):
        """Largest rate of a token's score, (R, 1, 1)."""
        return (self._H @ c + self.pi * (self._K @ c))[:, : self._N].abs().amax(1, keepdim=True)

    def step(self, c, alpha, extra):
        """`extra` is alpha, where the terms in alpha squared are kept whole."""
        z, pi, N = self.z, self.pi, self._N
        h, k = self._H @ c, self._K @ c
        beta = (c * z[:, :N]).sum(1, keepdim=True)
        self.z = z + alpha * h + alpha * (pi + extra * beta) * k
        self._H = self._H + alpha * (z @ k[:, :N].mT + k @ z[:, :N].mT) + alpha * extra * pi * (k @ k[:, :N].mT)
        self.pi = pi + 2 * alpha * beta + alpha * extra * (c * h[:, :N]).sum(1, keepdim=True)


def naive_forces(scores, head_scores, labels):
    """What `model.forces` computes, by the textbook difference gamma - f: it has no digits left once s is 1 to rounding."""
    s = torch.softmax(scores, -1)
    f = (s * head_scores).sum(-1, keepdim=True)
    y = labels.unsqueeze(-1)
    return torch.sigmoid(-y * f) * (y / scores.shape[-2]) * s * (head_scores - f)


def long_run(gram, force, *, steps, largest_move=0.1, every=10):
    """Train with steps as long as the scores allow, over many decades of time, with a given force of (scores, head_scores, labels).

    For comparison: `train_flow` is the one to use. Every `every`-th step: log10_time and signal_score (moments, R), v . mu, mean of the two
    classes, which is what fresh data see.
    """
    state, time, rows = _Lines(gram), gram.kernel.new_zeros(gram.runs, 1, 1), []
    for step in range(steps + 1):
        c = force(state.tokens, gram.head_scores, gram.labels.observed).view(gram.runs, -1, 1)
        if step and step % every == 0:
            signal = gram.law.signal_norm * state.z[:, -2:, 0].mean(1)
            rows.append((time[:, 0, 0].log10(), signal))
        alpha = largest_move / state.speed(c)
        state.step(c, alpha, alpha)
        time = time + alpha
    log10_time, signal_score = (torch.stack(column) for column in zip(*rows, strict=True))
    return SimpleNamespace(log10_time=log10_time, signal_score=signal_score)


def force_at_gap(gaps, tokens, force=forces):
    r"""The force on the selected token of one sample whose T - 1 competitors lie a gap x below it, (points,): computed, and exact.

    Values are 1 on the selected token and 0 on the others, the label is 1: $c = \sigma(-s)\,s\,(1-s)$ with
    $1-s = (T-1)e^{-x}/(1+(T-1)e^{-x})$, which keeps all its digits.
    """
    scores = gaps.new_zeros(gaps.shape[0], 1, tokens)
    scores[:, 0, 0] = gaps
    values = torch.zeros_like(scores)
    values[..., 0] = 1
    computed = force(scores, values, gaps.new_ones(gaps.shape[0], 1))[:, 0, 0]
    rest = (tokens - 1) * torch.exp(-gaps)
    s = 1 / (1 + rest)
    return computed, torch.sigmoid(-s) * s * rest / (1 + rest)


# --- what the page measures ----------------------------------------------------------------------------------------------------


def compare_recursion(law, start, step_size, steps, runs, seed, name):
    """The same training sets and starts, trained as vectors and without them; every step is recorded."""
    sample = law.draw(seed, runs)
    gram = gram_of(sample, start)
    return SimpleNamespace(
        name=name,
        dense=gradient_descent(sample, start, step_size, steps),
        reduced=train(gram, step_size, steps),
        three_lines=three_lines(gram, step_size, steps),
        without_second_order=three_lines(gram, step_size, steps, second_order=0.0),
    )


def gram_statistics(gram, step_size, steps):
    """Named statistics of every run, (R,) each: entries and products of the inner products, and where a training ends."""
    N, T = gram.kernel.shape[2], gram.law.tokens
    last = train(gram, step_size, steps, record=[steps])
    K, H, J, z = gram.kernel, gram.weighted, gram.weighted_twice, gram.scores
    return {
        "mean |x|^2": K[:, :N].diagonal(dim1=1, dim2=2).mean(1),
        "|x_1|^2": K[:, 0, 0],
        "(x_1.x_2)^2": K[:, 0, 1] ** 2,
        "x_1 of two samples": K[:, 0, T],
        "(noise.noise)^2": K[:, T - 1, N - 1] ** 2,
        "x_1.mu/|mu|": K[:, N, 0],
        "mean |Wx|^2": H[:, :N].diagonal(dim1=1, dim2=2).mean(1),
        "|W x_1|^2": H[:, 0, 0],
        "(W x.W x')^2": H[:, T - 1, N - 1] ** 2,
        "(W mu.W x)^2": H[:, N, N - 1] ** 2,
        "|W'W x_1|^2": J[:, 0, 0],
        "|W'W x_T|^2": J[:, T - 1, T - 1],
        "score^2": z[:, 0] ** 2,
        "score.score'": z[:, 0] * z[:, 1],
        "|p|^2": gram.prompt_norm_squared,
        "|v|^2": gram.direction_norm_squared,
        "(x.W'W v)^2": gram.scores_weighted[:, 0] ** 2,
        "loss at the end": last.loss[-1],
        "clean s_1 at the end": last.attention_of("clean")[-1, :, 0],
        "|v|^2 at the end": last.direction_norm_squared[-1],
        "v.mu at the end": last.direction_on_signals[-1, :, 0],
    }


def moments(dense, drawn):
    """(draws, 2 S + 2) of dense and of drawn values: S statistics in units of the dense draws, the squares of their deviations from
    their own mean, and those of the sum and of the alternating sum of all."""
    units = {name: values.std() for name, values in dense.items()}
    signs = torch.ones(len(units), 2, dtype=torch.float64)
    signs[1::2, 1] = -1
    found = []
    for draws in (dense, drawn):
        values = torch.stack([draws[name] / unit for name, unit in units.items()], 1)
        away = values - values.mean(0)
        found.append(torch.cat([values, away**2, (away @ signs) ** 2], 1))
    return found


def z_scores(dense, drawn):
    """Difference of the two means over its standard error, by statistic."""
    pairs = {name: (values, drawn[name]) for name, values in dense.items()}
    return {
        name: ((a.mean() - b.mean()) / (a.var() / a.shape[0] + b.var() / b.shape[0]).sqrt()).item()
        for name, (a, b) in pairs.items()
    }


def compare_sampling(law, start, step_size, steps, draws, seed):
    """Statistics (draws,) by name: of dense training sets, of as many drawn Grams, and of Grams drawn in a dimension 1.1 d."""
    bigger = replace(law, d=round(_WRONG * law.d))
    grams = {
        "dense": gram_of(law.draw(seed, draws), start),
        "drawn": draw_gram(law, seed, draws, start=start, first_run=_DRAWS_APART),
        "drawn_wrong": draw_gram(bigger, seed, draws, start=start, first_run=2 * _DRAWS_APART),
    }
    return SimpleNamespace(**{name: gram_statistics(gram, step_size, steps) for name, gram in grams.items()})


def uniform_accuracy_measured(law, signal_norms, count, runs, seed):
    """Accuracy of the head under uniform attention on dense fresh points, for every signal norm: (runs, len(signal_norms)).

    Only two coordinates of a token reach the head, so the points are drawn in d = 3. `count` points per run, the same noise for
    every norm.
    """
    rows = []
    for run in range(runs):
        row = []
        for norm in signal_norms:
            flat = replace(law, d=3, signal_norm=norm)
            points, labels = flat.draw_fresh(count, seed, run=run)
            row.append(((points @ flat.head()).mean(1) * labels > 0).double().mean())
        rows.append(torch.stack(row))
    return torch.stack(rows)


def setting_study(law, step_size, *, dense_d=200, steps=500, runs=3, draws=300, seed=0):
    """What the page measures. Comparisons with dense training use the page's law in dimension `dense_d`, with step_size law.d / dense_d,
    so that scores move as far; `draws` (200 or more) are behind the comparison in distribution.

    uniform_accuracy (runs, norms), each of `uniform_count` points; selected_loss (runs,): of fresh points when all attention is on the
    relevant token; force: "stable", "naive" -> computed and exact force (points,) at the `gaps`; long_runs: by the same names.
    """
    alpha, dense_law = step_size * law.d / dense_d, replace(law, d=dense_d)
    zero, gaussian = Start(), Start(prompt_scale=1.0)
    s = SimpleNamespace(law=law, uniform_count=_POINTS)
    s.zero_prompt = compare_recursion(dense_law, zero, alpha, steps, runs, seed, "prompt zero")
    s.gaussian_prompt = compare_recursion(dense_law, gaussian, alpha, steps, runs, seed, "prompt Gaussian")
    small = TokenLaw(4, 60, 5, 6.0, law.weak_signal, law.noise_std, 0.5)
    s.sampling = compare_sampling(small, gaussian, 0.2, 60, draws, seed)
    s.signal_norms = torch.tensor([1.0, 2, 4, 6, 8, 12, 20], dtype=torch.float64)
    s.uniform_accuracy = uniform_accuracy_measured(law, s.signal_norms.tolist(), _POINTS, 5, seed)
    selected, flat = [], replace(law, d=3)
    for run in range(5):
        points, labels = flat.draw_fresh(_POINTS, seed, run=run)
        selected.append(torch.nn.functional.softplus(-labels * (points[:, 0] @ flat.head())).mean())
    s.selected_loss = torch.stack(selected)
    both = {"stable": forces, "naive": naive_forces}
    s.gaps = torch.linspace(0, 600, 1201, dtype=torch.float64)
    s.force = {name: force_at_gap(s.gaps, law.tokens, force) for name, force in both.items()}
    far = draw_gram(replace(law, d=LONG_D), seed, 5)
    s.long_runs = {name: long_run(far, force, steps=700) for name, force in both.items()}
    return s
