r"""The first version of the paper: a direction p that memorises flipped labels and generalises all the same.

That version trains p alone and first shows that a good p exists. The author's numerical example of one, with all noise tokens that
should be selected added up,

$$ p = \mu_+ + \mu_- + c\,\Big(\sum_{i\text{ clean}}\varepsilon^{(i)}_1 + \sum_{j\text{ flipped}}\varepsilon^{(j)}_2\Big), $$

has scores $Xp$ ($W=I$) that are linear in c, so a whole ladder of c costs one matrix product and no d-vector: training scores come from
the inner products K, and a fresh token sees only $p\cdot\mu_\pm$ and $|p|$. Source: author's notebook (first version) for the
construction, second-hand for the theorem behind it (its constants were not read); the window is derived.
"""

import math
from dataclasses import replace
from types import SimpleNamespace

import torch

from attnbook.token_selection.theory import existence_window
from attnlib.randomness import stream
from attnlib.token_selection.errors import population, population_along
from attnlib.token_selection.gram import Gram, draw_gram
from attnlib.token_selection.law import Start
from attnlib.token_selection.model import outputs
from attnlib.token_selection.training import Recursion

AUTHORS_STRENGTHS = (0.001, 0.06, 1.0)
_BATCHES = 4  # of training sets, for these: at c = 1 the fresh accuracy of a set varies by a few per cent
_HARD = 1e6  # scores times this: softmax becomes the largest score


def identity_start(gram: Gram) -> Gram:
    """The same training sets with W = I and p_0 = 0, as the first version of the authors' code has it: H_0 = J_0 = K, z_0 = 0."""
    N = gram.kernel.shape[2]
    zero = torch.zeros_like
    return replace(
        gram, start=Start(weight_scale=1.0), weighted=gram.kernel, weighted_twice=gram.kernel[:, :N], scores=zero(gram.scores),
        prompt_norm_squared=zero(gram.prompt_norm_squared), scores_weighted=zero(gram.scores_weighted),
        direction_norm_squared=zero(gram.direction_norm_squared),
    )  # fmt: skip


def _selected(gram):
    """(R, n): index among the N tokens of the one to be selected: token 0 of clean samples, token 1 of flipped ones."""
    first = torch.arange(gram.law.n) * gram.law.tokens
    return first + gram.labels.noisy.long()


def constructed(gram, strengths, *, count=20_000):
    """The constructed p for every c in `strengths` (C,), on R training sets and on `count` fresh points each.

    Accuracies (R, C) of the softmax model and of the one that takes the largest score: train_softmax, train_argmax, clean_argmax,
    noisy_argmax, fresh_softmax, fresh_argmax. projections (R, C, n, 2): the token with the largest score, along the unit signals;
    norm_squared (R, C), |p|^2; noisy (R, n).
    """
    c = torch.tensor(strengths, dtype=torch.float64)
    law, N = gram.law, gram.kernel.shape[2]
    base, slope, on_signals, norm = _linear_in_c(gram)
    scores = base[:, None] + c[:, None] * slope[:, None]  # (R, C, N)
    scores = scores.unflatten(-1, (law.n, law.tokens))
    observed, values = gram.labels.observed[:, None], gram.head_scores[:, None].expand_as(scores)
    soft = (outputs(scores, values) * observed > 0).double()
    best = scores.argmax(-1, keepdim=True)
    hard = (values.gather(-1, best)[..., 0] * observed > 0).double()
    along = gram.kernel[:, N:].mT.unflatten(1, (law.n, law.tokens))[:, None]  # (R, 1, n, T, 2)
    chosen = along.expand(-1, len(c), -1, -1, -1).gather(3, best.unsqueeze(-1).expand(-1, -1, -1, -1, 2)).squeeze(3)

    def fresh(r, scale):
        rng = stream(gram.seed, "test", gram.first_run + r)
        return population(law, scale * on_signals(c)[r], scale**2 * norm(c)[r], count=count, rng=rng).accuracy

    return SimpleNamespace(
        strengths=c,
        train_softmax=soft.mean(-1),
        train_argmax=hard.mean(-1),
        **{
            f"{kind}_argmax": gram.labels.mean_over(kind, hard.movedim(1, 0)).movedim(0, 1)
            for kind in ("clean", "noisy")
        },
        fresh_softmax=torch.stack([fresh(r, 1.0) for r in range(gram.runs)]),
        fresh_argmax=torch.stack([fresh(r, _HARD) for r in range(gram.runs)]),
        projections=chosen,
        norm_squared=norm(c),
        noisy=gram.labels.noisy,
    )


def _linear_in_c(gram):
    """Scores of the training tokens as base + c slope, (R, N) both, and p on the unit signals and |p|^2 as functions of c.

    The noise of a token is the token less its mean, so eps_j . y = K_jy - m_j . (y on the signals) for any row y.
    """
    law, N, R = gram.law, gram.kernel.shape[2], gram.runs
    chosen = _selected(gram)  # (R, n)
    # (R, N + 2, n): K of all rows with chosen tokens
    rows = gram.kernel.gather(2, chosen[:, None].expand(-1, N + 2, -1))
    means = law.means(gram.labels.true).flatten(1, 2)  # (R, N, 2)
    mean = means.gather(1, chosen[..., None].expand(-1, -1, 2))  # (R, n, 2)
    plane = torch.cat([gram.kernel[:, N:].mT, torch.eye(2, dtype=means.dtype).expand(R, 2, 2)], 1)  # (R, N + 2, 2)
    noise = rows - plane @ mean.mT  # (R, N + 2, n): every row times every chosen noise
    total = noise.sum(-1)  # (R, N + 2)
    of_chosen = total.gather(1, chosen) - (mean * total[:, None, N:]).sum(-1)  # eps_j . sum of all chosen noises
    square, cross = of_chosen.sum(-1), law.signal_norm * total[:, N:].sum(-1)

    def on_signals(c):
        return law.signal_norm + c[:, None] * total[:, None, N:]

    def norm_squared(c):
        return 2 * law.signal_norm**2 + 2 * c * cross[:, None] + c**2 * square[:, None]

    return law.signal_norm * plane[:, :N].sum(-1), total[:, :N], on_signals, norm_squared


def memorised_share(law, strength, *, lower=1.0):
    r"""Share of flipped training samples that the constructed p fits, by the largest score:

    $$ \Phi\Big(\tfrac{c\sigma_\varepsilon^2d-(1-\rho)|\mu|^2}{\sigma_\varepsilon\sqrt{2(c^2n\sigma_\varepsilon^2d+2|\mu|^2)}}\Big)
       \,\Phi\Big(\tfrac{\rho|\mu|}{\sqrt2\sigma_\varepsilon}\Big): $$

    the confusing token beats the relevant one, and its own value has the right sign. One half of the first factor is the lower
    line of `existence_window`. `lower` multiplies $(1-\rho)|\mu|^2$. Source: derived, leading order in d.
    """
    own = law.noise_std**2 * law.d
    ahead = strength * own - lower * (1 - law.weak_signal) * law.signal_norm**2
    spread = law.noise_std * math.sqrt(2 * (strength**2 * law.n * own + 2 * law.signal_norm**2))
    value = law.weak_signal * law.signal_norm / (math.sqrt(2) * law.noise_std)
    both = torch.special.ndtr(torch.tensor([ahead / spread, value], dtype=torch.float64))
    return both.prod().item()


def train_prompt(gram, step_size, steps, *, moments=21, count=4000):
    r"""Train p alone on the given training sets with W = I and p_0 = 0; their own start is not used.

    $v = p = \sum b_{it}x_{it}$. Its *strength* is $c = \bar b / a$: $\bar b$ the mean coefficient of the
    confusing tokens of flipped samples, the ones that need memory, and $a$ the mean of $v\cdot\mu_\pm/|\mu|^2$.

    At `moments` recorded steps of R runs, (S, R): strength, alignment (cosine of v with the constructed p of that c), train_accuracy,
    clean_accuracy, noisy_accuracy, fresh_softmax, fresh_argmax (`count` fresh points). still_to_move (2, R): sum over all steps of
    s_1 (1 - s_1), mean over clean, over flipped samples.
    """
    gram = identity_start(gram)
    state, kept = Recursion(gram, trained="p"), {round(steps * j / (moments - 1)) for j in range(moments)}
    rows, strength, alignment = [], [], []
    sums = torch.zeros(2, gram.runs, dtype=torch.float64)
    for step in range(steps + 1):
        if step in kept:
            rows.append(state.snapshot())
            one, other = _against_constructed(gram, state)
            strength.append(one)
            alignment.append(other)
        if step < steps:
            s = torch.softmax(state.scores, -1)[..., 0]
            moving = s * (1 - s)
            sums += torch.stack([gram.labels.mean_over(kind, moving) for kind in ("clean", "noisy")])
            state.advance(step_size)
    trajectory = state.trajectory(sorted(kept), rows)
    hard = replace(
        trajectory,
        direction_on_signals=_HARD * trajectory.direction_on_signals,
        direction_norm_squared=_HARD**2 * trajectory.direction_norm_squared,
    )
    return SimpleNamespace(
        steps=trajectory.steps,
        strength=torch.stack(strength),
        alignment=torch.stack(alignment),
        train_accuracy=trajectory.train_accuracy(),
        clean_accuracy=trajectory.train_accuracy("clean"),
        noisy_accuracy=trajectory.train_accuracy("noisy"),
        fresh_softmax=population_along(trajectory, count=count).accuracy,
        fresh_argmax=population_along(hard, count=count).accuracy,
        still_to_move=sums,
    )


def _against_constructed(gram, state):
    """Strength of v, and cosine with the constructed p of that strength; nan at v = 0."""
    law, chosen = gram.law, _selected(gram)
    b = state.coordinates[1]
    flipped = gram.labels.noisy
    memory = (b.gather(1, chosen) * flipped).sum(1) / flipped.sum(1)
    c = memory / (state.direction_on_signals.mean(1) / law.signal_norm)
    base, slope, _, norm_squared = _linear_in_c(gram)
    overlap = (b * (base + c[:, None] * slope)).sum(1)  # v . p = sum of b_it times the score of x_it under p
    norms = norm_squared(c).diagonal()  # run r with its own strength
    return c, overlap / (norms * state.direction_norm_squared).sqrt()


def _authors(gram, count):
    """The author's strengths on the given training sets and on three times as many more, the given ones first."""
    parts = [vars(constructed(gram, AUTHORS_STRENGTHS, count=count))]
    for batch in range(1, _BATCHES):
        more = draw_gram(gram.law, gram.seed, gram.runs, first_run=gram.first_run + batch * gram.runs)
        parts.append(vars(constructed(more, AUTHORS_STRENGTHS, count=count)))
    return SimpleNamespace(**{name: torch.cat([p[name] for p in parts]) for name in parts[0] if name != "strengths"})


def existence_study(law, strengths, *, step_size, steps, runs=5, seed=0, count=20_000):
    """On the same training sets: the ladder of all `strengths`, the author's three on four times as many sets, the middle (the geometric
    middle of the window, ten times that, a tenth), and gradient descent on p.

    ends: where descent ends, (R,); beside: the accuracies of the construction outside the window, of labels below it, of fresh data above.
    """
    gram, window = draw_gram(law, seed, runs), existence_window(law)
    middle = math.sqrt(math.prod(window))
    s = SimpleNamespace(
        law=law, window=window, ladder=constructed(gram, strengths, count=count), authors=_authors(gram, count)
    )
    s.middle = constructed(gram, (middle, 10 * middle, middle / 10), count=count)
    s.descent = train_prompt(gram, step_size, steps)
    s.ends = SimpleNamespace(
        strength=s.descent.strength[-1], train=s.descent.train_accuracy[-1], fresh=s.descent.fresh_softmax[-1]
    )
    s.beside = SimpleNamespace(train=s.middle.train_softmax[:, 2], fresh=s.middle.fresh_softmax[:, 1])
    return s
