r"""K classes: K orthogonal signals, one value vector per class, one attention vector, cross-entropy.

$$ f_c(X) = v_c^\top X^\top \mathrm{softmax}(Xp), \qquad L = -\frac1n \sum_i \log \pi_{i y_i}, \quad
   \pi_i = \mathrm{softmax}(f_1(X_i), \dots, f_K(X_i)). $$

A sample of class k holds the token $\mu_k$ ($|\mu_k| = \rho$) and one noise token orthogonal to all signals. With probability $\eta$ its
label is one of the K - 1 others, each as likely. Everything runs in the K + min(n, d - K) coordinates of signals and training noise:
exact, because gradient descent commutes with rotations. Two tokens. Source: derived here; no paper is followed.

For K = 2 the difference $w = v_1 - v_2$ is the value vector of the two-class head, and a step $(\beta_v, \beta_p)$ here is a step
$(2\beta_v, \beta_p)$ there, for ever: $\partial L/\partial v_1 = -\partial L/\partial v_2 = \partial L/\partial w$.

**Training.** The iterates lie in the span of signals and noise tokens, $v_c = \sum_k \lambda_{kc}\mu_k + \sum_i \theta_{ic}\xi_i$ and the
same for $p$. Signals are orthogonal to noise and to each other, so a step is one product of the $n \times n$ Gram matrix of the noise with
K + 1 columns, whatever the dimension.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from types import SimpleNamespace

import numpy as np
import torch

from attnbook.open_questions.more_classes_and_layers.class_flow import own_class_thresholds
from attnbook.single_head.long_run import stacked
from attnlib import limits
from attnlib.gaussian import bartlett_rows
from attnlib.randomness import stream

_BYTES_AT_ONCE = 4 << 20  # of Gram matrices, which then stay in the cache of a core


@dataclass(frozen=True)
class ClassSample:
    """R training sets; a leading run axis everywhere. Classes and labels are whole numbers 0 ... K-1."""

    law: ClassesLaw
    seed: int
    first_run: int
    signals: torch.Tensor  # (R, K, m), mu_1 ... mu_K
    noise: torch.Tensor  # (R, n, m), the noise token of every sample
    classes: torch.Tensor  # (R, n), whose signal the sample holds
    labels: torch.Tensor  # (R, n), observed

    @property
    def runs(self):
        return self.noise.shape[0]

    @property
    def noisy(self):
        """(R, n) bool: whose label was flipped."""
        return self.labels != self.classes

    @property
    def signal_tokens(self):
        """(R, n, m): the signal token of every sample."""
        return self.signals.gather(1, self.classes.unsqueeze(-1).expand(-1, -1, self.signals.shape[-1]))

    @property
    def members(self):
        """(R, K, n) of 0 and 1: sample i holds mu_k."""
        return one_hot(self.classes, self.law.classes).mT

    def counts(self):
        """|C_k| (R, K), and how many samples of class k were flipped to the label c, (R, K, K) with a zero diagonal."""
        pairs = self.members @ one_hot(self.labels, self.law.classes)
        clean = pairs.diagonal(dim1=1, dim2=2)
        return clean, pairs - torch.diag_embed(clean)

    def block(self, runs):
        """Some runs alone, as a sample."""
        own = {f.name: getattr(self, f.name) for f in fields(self)}
        cut = {name: x[runs] for name, x in own.items() if isinstance(x, torch.Tensor)}
        return replace(self, **cut, first_run=self.first_run + runs.start)


def one_hot(index, classes):
    """(..., K) float64 with a one at the index."""
    return torch.nn.functional.one_hot(index, classes).to(torch.float64)


@dataclass(frozen=True)
class ClassesLaw:
    """The law above. With K = 2 it draws the numbers of `SignalNoiseLaw`."""

    n: int  # training samples
    d: int  # ambient dimension
    signal_norm: float  # rho
    label_noise: float = 0.0  # eta in [0, (K-1)/K]
    classes: int = 2  # K

    @property
    def nsnr2(self):
        """n SNR^2 = n rho^2 / d."""
        return self.n * self.signal_norm**2 / self.d

    @property
    def x(self):
        """Expected rho^2 |C_k| / d: maximum margin selects the signal iff it exceeds 1."""
        return self.nsnr2 * (1 - self.label_noise) / self.classes

    @property
    def kappa(self):
        """Expected signal gap over memorisation gap after one step: n SNR^2 (1 - eta K/(K-1)) / K."""
        K = self.classes
        return self.nsnr2 * (1 - self.label_noise * K / (K - 1)) / K

    @classmethod
    def at(cls, x, n, d, label_noise, classes):
        """The law whose expected x = rho^2 |C_k| / d is the one given."""
        return cls(n, d, math.sqrt(x * d * classes / (n * (1 - label_noise))), label_noise, classes)

    def draw(self, seed, runs=1, *, first_run=0):
        """Training sets number `first_run` ... `first_run + runs - 1` of an experiment, float64."""
        n, K = self.n, self.classes
        limits.require_memory(lambda n, runs, d: 8 * runs * n * (K + min(n, d - K)), n=n, runs=runs, d=self.d)
        columns = K + min(n, self.d - K)
        signals = np.zeros((runs, K, columns))
        signals[:, range(K), range(K)] = self.signal_norm
        noise = np.zeros((runs, n, columns))
        classes, labels = np.zeros((2, runs, n), dtype=np.int64)
        for r in range(runs):
            classes[r] = stream(seed, "labels", first_run + r).integers(0, K, n)
            rng = stream(seed, "flips", first_run + r)
            flips = rng.random(n) < self.label_noise
            labels[r] = (classes[r] + flips * rng.integers(1, K, n)) % K
            noise[r, :, K:] = bartlett_rows(stream(seed, "noise", first_run + r), n, self.d - K)
        return ClassSample(self, seed, first_run, *map(torch.as_tensor, (signals, noise, classes, labels)))


# --- the model -------------------------------------------------------------------------------------------------------------


def class_outputs(sample, v, p):
    """The head on the training set: f (R, n, K), weight on the signal (R, n), v_c . u_i and v_c . xi_i (R, n, K).

    v: (R, K, m), p: (R, m).
    """
    signal = sample.signal_tokens
    weight = torch.sigmoid(torch.einsum("rnm,rm->rn", signal - sample.noise, p))
    at_signal, at_noise = signal @ v.mT, sample.noise @ v.mT
    s = weight.unsqueeze(-1)
    return s * at_signal + (1 - s) * at_noise, weight, at_signal, at_noise


def class_gradients(sample, v, p):
    r"""Exact gradients of the mean cross-entropy in v (R, K, m) and p (R, m), and the outputs f (R, n, K).

    With $e_{ic} = 1[y_i = c] - \pi_{ic}$: $\nabla_{v_c} L = -\frac1n \sum_i e_{ic}(s_iu_i + (1-s_i)\xi_i)$ and
    $\nabla_p L = -\frac1n \sum_i s_i(1-s_i)\,\Gamma_i\,(u_i - \xi_i)$, $\Gamma_i = \sum_c e_{ic}\, v_c\cdot(u_i - \xi_i)$.
    """
    output, weight, at_signal, at_noise = class_outputs(sample, v, p)
    residual = one_hot(sample.labels, sample.law.classes) - torch.softmax(output, -1)
    preference = (residual * (at_signal - at_noise)).sum(-1)
    signal, s = sample.signal_tokens, weight.unsqueeze(-1)
    mixed = s * signal + (1 - s) * sample.noise
    pull = weight * (1 - weight) * preference
    n = sample.law.n
    return -(residual.mT @ mixed) / n, -torch.einsum("rn,rnm->rm", pull, signal - sample.noise) / n, output


# --- two steps from zero, written out --------------------------------------------------------------------------------------


def class_two_steps(sample, step_size):
    r"""Two steps from zero in closed form: v1, v2 (R, K, m), p2 (R, m), and gamma_i (R, n), positive where a sample prefers its signal.

    $v_c^1 = \frac{\beta}{2n}\sum_i (1[y_i=c] - \frac1K)(u_i+\xi_i)$, $p_1 = 0$,
    $v_c^2 = v_c^1 + \frac{\beta}{2n}\sum_i e_{ic}(u_i+\xi_i)$, $p_2 = \frac{\beta}{4n}\sum_i\gamma_i(u_i-\xi_i)$ with $e$ the
    residuals of $\frac12 v_c^1\cdot(u_i+\xi_i)$ and $\gamma_i = \sum_c e_{ic}\,v_c^1\cdot(u_i-\xi_i)$.
    """
    beta = step_size
    n, K, hot = sample.law.n, sample.law.classes, one_hot(sample.labels, sample.law.classes)
    signal = sample.signal_tokens
    total, difference = signal + sample.noise, signal - sample.noise
    v1 = beta / (2 * n) * (hot - 1 / K).mT @ total
    residuals = hot - torch.softmax(total @ v1.mT / 2, -1)
    preference = (residuals * (difference @ v1.mT)).sum(-1)
    v2 = v1 + beta / (2 * n) * residuals.mT @ total
    p2 = beta / (4 * n) * torch.einsum("rn,rnm->rm", preference, difference)
    return SimpleNamespace(v1=v1, v2=v2, p2=p2, preference=preference)


# --- training --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ClassTrajectory:
    """Training at the recorded steps S (axis 0)."""

    steps: tuple[int, ...]
    v: torch.Tensor  # (S, R, K, m)
    p: torch.Tensor  # (S, R, m)
    margins: torch.Tensor  # (S, R, n), f of the observed label minus the largest other f
    attention: torch.Tensor  # (S, R, n), weight on the signal
    members: torch.Tensor  # (R, K, n), clean samples of every class, 0 or 1

    @property
    def train_accuracy(self):
        """(S, R): share of samples whose observed label has the largest output."""
        return (self.margins > 0).to(torch.float64).mean(-1)

    @property
    def attention_of_classes(self):
        """(S, R, K): mean weight on the signal over the clean samples of a class (nan without any)."""
        return torch.einsum("srn,rkn->srk", self.attention, self.members) / self.members.sum(-1)


def class_margins(output, labels):
    """(R, n): f of the label minus the largest of the other outputs (R, n, K)."""
    hot = one_hot(labels, output.shape[-1])
    return (output * hot).sum(-1) - output.masked_fill(hot > 0, -torch.inf).amax(-1)


def _recorded(record, steps):
    return tuple(range(steps + 1)) if record is None else tuple(sorted({*record, steps}))


def _clean_members(sample):
    return sample.members * (~sample.noisy).unsqueeze(1)


def class_descent(sample, step_size, steps, *, record=None):
    """The readable trainer: simultaneous steps on v (R, K, m) and p (R, m) from zero.

    record: steps to keep beside the last one, all when left out.
    """
    recorded = _recorded(record, steps)
    runs, _, m = sample.noise.shape
    v, p = sample.noise.new_zeros(runs, sample.law.classes, m), sample.noise.new_zeros(runs, m)
    rows = []
    for step in range(steps + 1):
        if step in recorded:
            output, weight, _, _ = class_outputs(sample, v, p)
            rows.append((v, p, class_margins(output, sample.labels), weight))
        grad_v, grad_p, _ = class_gradients(sample, v, p)
        v, p = v - step_size * grad_v, p - step_size * grad_p
    return ClassTrajectory(recorded, *map(torch.stack, zip(*rows, strict=True)), _clean_members(sample))


def class_gram_descent(sample, step_size, steps, *, record=None, schedule=None):
    """As `class_descent`, many times faster for many steps. schedule: step -> factor on both step sizes."""
    recorded = _recorded(record, steps)
    factor = schedule or (lambda step: 1.0)
    width = max(1, _BYTES_AT_ONCE // (8 * sample.law.n**2))
    parts = [
        _advance(sample, slice(first, first + width), step_size, steps, recorded, factor)
        for first in range(0, sample.runs, width)
    ]
    joined = (torch.cat(part, dim=1) for part in zip(*parts, strict=True))
    return ClassTrajectory(recorded, *joined, _clean_members(sample))


def _advance(sample, runs, beta, steps, recorded, factor):
    noise, labels = sample.noise[runs], sample.labels[runs]
    n, K = sample.law.n, sample.law.classes
    gram, members, hot = noise @ noise.mT, sample.members[runs], one_hot(labels, K).mT.contiguous()
    holders, rho2 = members.mT.contiguous(), (sample.signals[runs] ** 2).sum(-1).unsqueeze(1)  # (R, n, K), (R, 1, K)
    # Rows 0 ... K-1 belong to the value vectors, the last one to p: classes before samples, so that sums over classes are fast.
    on_signals = gram.new_zeros(len(gram), K + 1, K)
    on_noise = gram.new_zeros(len(gram), K + 1, n)
    rate = gram.new_tensor(beta) / n
    rows = []
    for step in range(steps + 1):
        at_signal, at_noise = (on_signals * rho2) @ members, on_noise @ gram
        gap = at_signal - at_noise
        weight = torch.sigmoid(gap[:, K:])
        output = torch.addcmul(at_noise, weight, gap)[:, :K]
        if step in recorded:
            vectors = on_signals @ sample.signals[runs] + on_noise @ noise
            margins = class_margins(output.mT, labels)
            rows.append((vectors[:, :K], vectors[:, K], margins, weight[:, 0].clone()))
        if step == steps:
            break
        residual = hot - torch.softmax(output, 1)
        pull = weight * (1 - weight) * (residual * gap[:, :K]).sum(1, keepdim=True)
        scale = rate * factor(step)
        on_signals += scale * (torch.cat([residual * weight, pull], 1) @ holders)
        on_noise += scale * torch.cat([residual * (1 - weight), -pull], 1)
    return tuple(map(torch.stack, zip(*rows, strict=True)))


# --- fates -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ClassFates:
    """Where the classes of R long runs ended. Arrays (R, K) unless noted."""

    x: np.ndarray  # rho^2 |C_k| / d with the class's own count
    flipped: np.ndarray  # its own share of flips
    threshold: np.ndarray  # x*_K of that share
    attention: np.ndarray  # mean weight of its clean samples on the signal, at the end; nan without any
    train_accuracy: np.ndarray  # (R,)

    @property
    def on_signal(self):
        return self.attention > 0.5

    def right(self, power=1.0):
        """Over all classes with clean samples: the fate is x > x*^power; power 1: the flow's rule, 0: the maximum-margin rule."""
        judged = self.x > 0
        return ((self.x > self.threshold**power) == self.on_signal)[judged]


def class_fates(laws, step_size, steps, *, draws=10, seed=0, schedule=None):
    """Train `draws` sets of every law (one n, d and K) and see which token each class ends on.

    Law i takes the runs i * draws, ... of the seed. A class without clean samples has no fate (nan).
    """
    sample = stacked([law.draw(seed, draws, first_run=i * draws) for i, law in enumerate(laws)])
    path = class_gram_descent(sample, step_size, steps, record=[], schedule=schedule)
    clean, wrong = (count.numpy() for count in sample.counts())
    noisy = wrong.sum(-1)
    norms = np.repeat([law.signal_norm for law in laws], draws)[:, None]
    fates = ClassFates(
        x=norms**2 * clean / laws[0].d,
        flipped=np.where(clean + noisy > 0, noisy / np.maximum(clean + noisy, 1), np.nan),
        threshold=own_class_thresholds(clean, noisy, laws[0].classes),
        attention=path.attention_of_classes[-1].numpy(),
        train_accuracy=path.train_accuracy[-1].numpy(),
    )
    return fates, path, sample
