r"""What the page *The story in pictures* draws: one run of two steps, its long continuation, and one run each of Parts II and III.

The head of panels 1 to 6 is one training set of `SignalNoiseLaw(n=200, d=40_000, signal_norm=30, label_noise=0.05)`, seed 0, run 0. Two
of its samples are followed, both of class 1: the clean and the flipped one whose margin after the first step is the median of its kind.
Lengths, scores and margins are those of the run; nothing is averaged unless its name says so.
"""

import math
from typing import Any

import torch

from attnbook.halving import halved
from attnbook.single_head.flow import signal_threshold
from attnbook.token_selection.fresh_selection import fresh_attention
from attnbook.token_selection.theory import n_snr_squared, selection_path
from attnlib.attention import attention_weights
from attnlib.in_context.law import RegressionLaw
from attnlib.single_head import Sample, SignalNoiseLaw, gradient_descent, gram_descent, log10_clean_error
from attnlib.single_head.errors import scores_of_fresh_data
from attnlib.token_selection.law import TokenLaw

LAW = SignalNoiseLaw(n=200, d=40_000, signal_norm=30.0, label_noise=0.05)
STEP_SIZE, SEED = 0.025, 0
STEPS = 6  # the reader may go on so far
LONG = (0, 1, 2, 3, 5, 10, 30, 100, 300, 1000)
SHARES = (0.05, 0.1, 0.2, 0.3)  # flipped labels of the long race, beside the class's own
STRENGTHS = (0.5, 1, 2, 3, 4, 5, 6, 7)  # 1 / (n SNR^2) of the clock
CLOCK_STEP = 1e-3  # alpha of the clock
OMEGA = 0.146  # of trained pairs: page *Two numbers per head*, named result omega_end
CLASS = 0  # index of the class of both samples


def followed(sample: Sample) -> tuple[int, int]:
    """Indices of the clean and of the flipped sample that the page follows."""
    margins = gradient_descent(sample, STEP_SIZE, 1).margins[-1, 0]
    found = []
    for kind in (~sample.noisy[0], sample.noisy[0]):
        own = torch.nonzero(kind & (sample.signal_class[0] == CLASS))[:, 0]
        found.append(int(own[margins[own].argsort()[len(own) // 2]]))
    return found[0], found[1]


def _digits(values: torch.Tensor | float, count: int = 6) -> Any:
    if isinstance(values, torch.Tensor):
        values = values.tolist()
    return [_digits(one, count) for one in values] if isinstance(values, list) else float(f"{values:.{count}g}")


def head(sample: Sample) -> dict[str, Any]:
    """The training set as it is drawn, and margins and attention of both samples after 0, 1, ..., STEPS steps.

    A margin has two parts, `by_signal` = s y v.u and `by_noise` = (1 - s) y v.xi with attention s; `unit_pull` is the part that one
    clean sample of the class adds to the first after one step, beta rho^2 / 8n.
    """
    path = gradient_descent(sample, STEP_SIZE, STEPS)
    both = list(followed(sample))
    noise = sample.noise_tokens()[0, :, 0]
    lengths = noise.norm(dim=-1)
    cosine = (noise @ noise.T) / lengths.outer(lengths)
    pairs = cosine[*torch.triu_indices(sample.law.n, sample.law.n, 1)]
    y, s = sample.labels[0, both], path.attention_on_signal[:, 0, both]
    by_signal = s * y * torch.einsum("srm,m->sr", path.v, sample.signals[0, CLASS])
    by_noise = (1 - s) * y * torch.einsum("srm,nm->sn", path.v, noise[both])
    logits = torch.einsum("srm,nm->sn", path.p, sample.signals[0, CLASS] - noise[both])
    clean, noisy = sample.counts()
    errors = torch.stack([log10_clean_error(v, p, sample)[0] for v, p in zip(path.v, path.p, strict=True)])
    angles = torch.rad2deg(torch.acos(pairs))
    return {
        "n": sample.law.n, "d": sample.law.d, "wrong": int(sample.noisy.sum()), "signal_length": sample.law.signal_norm,
        "label_noise": sample.law.label_noise,
        "step_size": STEP_SIZE, "seed": sample.seed,
        "lengths": _digits(lengths, 4), "of_first_class": "".join(str(int(c == CLASS)) for c in sample.signal_class[0]),
        "flipped": torch.nonzero(sample.noisy[0])[:, 0].tolist(),
        "clean_counts": [int(c) for c in clean[0]], "flipped_counts": [int(c) for c in noisy[0]],
        "followed": both, "angle_between": _digits(torch.rad2deg(torch.acos(cosine[both[0], both[1]])), 4),
        "angles": [_digits(angles.min(), 4), _digits(angles.max(), 4)],
        "unit_pull": STEP_SIZE * sample.law.signal_norm**2 / (8 * sample.law.n),
        "own_pull": _digits(STEP_SIZE * lengths[both] ** 2 / (8 * sample.law.n)),
        "margins": _digits(path.margins[:, 0, both]), "attention": _digits(s), "logits": _digits(logits),
        "by_signal": _digits(by_signal), "by_noise": _digits(by_noise),
        "mean_attention": _digits(torch.stack([path.attention_clean[:, 0], path.attention_noisy[:, 0]], 1)),
        "fitted": [int(one) for one in (path.margins[:, 0] > 0).sum(-1)],
        "log10_error": _digits(errors), "price": _digits(errors[2] - errors[1], 3),
    }  # fmt: skip


def front(sample: Sample) -> dict[str, Any]:
    """What the front page draws: the margin of every sample after one and two steps, and its attention after two."""
    path = gradient_descent(sample, STEP_SIZE, 2)
    return {"margins": _digits(path.margins[1:, 0], 5), "attention": _digits(path.attention_on_signal[2, 0], 5)}


def fresh(sample: Sample) -> list[dict[str, float]]:
    """Fresh data of the class after one and two steps: what the signal says, and by how much fresh noise scatters it.

    `attention` is the weight on the signal of a fresh sample whose noise has score zero, sigma(p.mu). `distance` is how many standard
    deviations a Gaussian lies from zero that errs as often as the head does on this class: Phi(-distance) = error.
    """
    path = gradient_descent(sample, STEP_SIZE, 2)
    found = []
    for v, p in zip(path.v[1:], path.p[1:], strict=True):
        scores = scores_of_fresh_data(v, p, sample)
        exponent = float(log10_clean_error(v, p, sample, per_class=True)[0, CLASS])
        found.append({
            "attention": _digits(torch.sigmoid(scores.logit[0, CLASS])), "signal": _digits(scores.value[0, CLASS]),
            "noise": _digits(torch.hypot(scores.tau, scores.along)[0, CLASS]), "log10_error": _digits(exponent),
            "distance": _digits(_gaussian_distance(exponent)),
        })  # fmt: skip
    return found


def _gaussian_distance(log10_tail: float) -> float:
    """z with log10 Phi(-z) = log10_tail, by bisection."""

    def below(z: float) -> bool:
        return torch.special.log_ndtr(torch.tensor(-z, dtype=torch.float64)).item() / math.log(10) > log10_tail

    return sum(halved(below, 0.0, 100.0, 60)) / 2


def long_run(sample: Sample) -> dict[str, Any]:
    """The same run for a thousand steps: v.mu, and the mean over the clean samples of the class of y v.xi and of attention."""
    path = gram_descent(sample, STEP_SIZE, LONG[-1], record=LONG)
    own = (sample.signal_class[0] == CLASS) & ~sample.noisy[0]
    own_noise = sample.labels[0, own] * torch.einsum("srm,nm->sn", path.v, sample.noise_tokens()[0, own, 0])
    clean, noisy = (float(counts[0, CLASS]) for counts in sample.counts())
    return {
        "steps": list(LONG), "signal": _digits(torch.einsum("srm,m->s", path.v, sample.signals[0, CLASS]), 5),
        "noise": _digits(own_noise.mean(1), 5), "attention": _digits(path.attention_on_signal[:, 0, own].mean(1), 5),
        "x": sample.law.signal_norm**2 * clean / sample.law.d, "label_noise": noisy / (clean + noisy),
    }  # fmt: skip


def thresholds(own: float) -> list[list[float]]:
    """[share of flipped labels, x*] for the class's own share and those that the reader may choose."""
    return [[_digits(eta, 5), _digits(signal_threshold(eta), 4)] for eta in (own, *SHARES)]


def clock() -> dict[str, Any]:
    """Token selection in mean field: when every label is fitted and when fresh attention reaches one half, and where attention lies.

    The law is that of the page *How long does it take?*: n = 20, T = 8, |mu| = 20; d sets n SNR^2.
    """
    faces = []
    for strength in STRENGTHS:
        law = TokenLaw(n=20, d=round(strength * 20 * 400), tokens=8, signal_norm=20.0, label_noise=0.2)
        path = selection_path(law, CLOCK_STEP)
        fitted = path.crossing(path.margins.min(1), 0.0)
        k = int((path.margins.min(1) >= 0).argmax())
        score, variance = float(path.signal_score[k]), float(path.score_variance[k])
        faces.append({
            "n_snr2": _digits(n_snr_squared(law)), "log10_fitted": _digits(math.log10(fitted)),
            "log10_selected": _digits(math.log10(path.time[-1])),
            "clean": _digits(path.attention[k, 0].tolist(), 4), "flipped": _digits(path.attention[k, 1].tolist(), 4),
            "fresh": _digits(fresh_attention(law, score, score, variance).tolist(), 4),
        })  # fmt: skip
    return {"step_size": CLOCK_STEP, "tokens": 8, "faces": faces}


def prompt() -> dict[str, Any]:
    """One prompt of forty pairs in five dimensions: how alike each example is to the question, <x_i, x_q>, in rising order."""
    law = RegressionLaw(d=5, length=40)
    prompts = law.draw(1, seed=SEED)
    alike, order = torch.einsum("ld,d->l", prompts.x[0], prompts.query[0]).sort()
    plus, minus = (attention_weights(sign * OMEGA * alike) for sign in (1.0, -1.0))
    return {
        "omega": OMEGA, "alike": _digits(alike, 5), "labels": _digits(prompts.y[0, order], 4),
        "plus": _digits(plus), "minus": _digits(minus),
    }  # fmt: skip


def data() -> dict[str, Any]:
    """Everything, some ten seconds."""
    sample = LAW.draw(seed=SEED)
    long = long_run(sample)
    return {
        "head": head(sample), "fresh": fresh(sample), "long": long, "thresholds": thresholds(long["label_noise"]),
        "clock": clock(), "prompt": prompt(),
    }  # fmt: skip
