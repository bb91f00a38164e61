r"""K classes: K orthogonal signals, one value vector per class, one attention vector, cross-entropy.

$$ f_c(X) = v_c^\top X^\top \mathrm{softmax}(Xp), \qquad L = -\frac1n \sum_i \log \pi_{i y_i}, \quad
   \pi_i = \mathrm{softmax}(f_1(X_i), \dots, f_K(X_i)). $$

A sample of class k holds the token $\mu_k$ ($|\mu_k| = \rho$) and one noise token orthogonal to all signals. With probability $\eta$ its
label is one of the K - 1 others, each as likely. Everything runs in the K + min(n, d - K) coordinates of signals and training noise:
exact, because gradient descent commutes with rotations. Two tokens. Source: derived here; no paper is followed.

For K = 2 the difference $w = v_1 - v_2$ is the value vector of the two-class head, and a step $(\beta_v, \beta_p)$ here is a step
$(2\beta_v, \beta_p)$ there, for ever: $\partial L/\partial v_1 = -\partial L/\partial v_2 = \partial L/\partial w$.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace

import numpy as np
import torch

from attnlib import checks, limits
from attnlib.gaussian import bartlett_rows
from attnlib.randomness import stream


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
    def runs(self) -> int:
        return self.noise.shape[0]

    @property
    def noisy(self) -> torch.Tensor:
        """(R, n) bool: whose label was flipped."""
        return self.labels != self.classes

    @property
    def signal_tokens(self) -> torch.Tensor:
        """(R, n, m): the signal token of every sample."""
        return self.signals.gather(1, self.classes.unsqueeze(-1).expand(-1, -1, self.signals.shape[-1]))

    @property
    def members(self) -> torch.Tensor:
        """(R, K, n) of 0 and 1: sample i holds mu_k."""
        return one_hot(self.classes, self.law.classes).mT

    def counts(self) -> tuple[torch.Tensor, torch.Tensor]:
        """|C_k| (R, K), and how many samples of class k were flipped to the label c, (R, K, K) with a zero diagonal."""
        pairs = self.members @ one_hot(self.labels, self.law.classes)
        clean = pairs.diagonal(dim1=1, dim2=2)
        return clean, pairs - torch.diag_embed(clean)

    def block(self, runs: slice) -> ClassSample:
        """Some runs alone, as a sample."""
        own = {f.name: getattr(self, f.name) for f in fields(self)}
        cut = {name: x[runs] for name, x in own.items() if isinstance(x, torch.Tensor)}
        return replace(self, **cut, first_run=self.first_run + runs.start)


def one_hot(index: torch.Tensor, classes: int) -> torch.Tensor:
    """(..., K) float64 with a one at the index."""
    return torch.nn.functional.one_hot(index, classes).to(torch.float64)


@dataclass(frozen=True)
class ClassesLaw:
    """The law above. Raises ValueError for arguments outside their range. With K = 2 it draws the numbers of `SignalNoiseLaw`."""

    n: int  # training samples
    d: int  # ambient dimension
    signal_norm: float  # rho
    label_noise: float = 0.0  # eta in [0, (K-1)/K]
    classes: int = 2  # K

    def __post_init__(self) -> None:
        checks.whole_number("n", self.n, at_least=1)
        K = checks.whole_number("classes", self.classes, at_least=2, hint="one class needs no classifier")
        hint = "K orthogonal signals and one direction of noise need d > K"
        checks.whole_number("d", self.d, at_least=K + 1, hint=hint)
        checks.positive_number("signal_norm", self.signal_norm)
        hint = f"at (K-1)/K = {1 - 1 / K:.3g} labels say nothing"
        checks.probability("label_noise", self.label_noise, high=1 - 1 / K, hint=hint)

    @property
    def nsnr2(self) -> float:
        """n SNR^2 = n rho^2 / d."""
        return self.n * self.signal_norm**2 / self.d

    @property
    def x(self) -> float:
        """Expected rho^2 |C_k| / d: maximum margin selects the signal iff it exceeds 1."""
        return self.nsnr2 * (1 - self.label_noise) / self.classes

    @property
    def kappa(self) -> float:
        """Expected signal gap over memorisation gap after one step: n SNR^2 (1 - eta K/(K-1)) / K."""
        K = self.classes
        return self.nsnr2 * (1 - self.label_noise * K / (K - 1)) / K

    @classmethod
    def at(cls, x: float, n: int, d: int, label_noise: float, classes: int) -> ClassesLaw:
        """The law whose expected x = rho^2 |C_k| / d is the one given."""
        K = checks.whole_number("classes", classes, at_least=2)
        eta = checks.probability("label_noise", label_noise, high=1 - 1 / K)
        norm = math.sqrt(checks.positive_number("x", x) * d * K / (n * (1 - eta)))
        return cls(n, d, norm, eta, K)

    def draw(self, seed: int, runs: int = 1, *, first_run: int = 0) -> ClassSample:
        """Training sets number `first_run` ... `first_run + runs - 1` of an experiment, float64. Raises ValueError."""
        checks.whole_number("runs", runs, at_least=1)
        checks.whole_number("first_run", first_run, at_least=0)
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


def _sizes(sample: ClassSample, v: torch.Tensor, p: torch.Tensor) -> None:
    runs, _, m = sample.noise.shape
    checks.tensor("v", v, (runs, sample.law.classes, m), like=sample.noise)
    checks.tensor("p", p, (runs, m), like=sample.noise)


def class_outputs(
    sample: ClassSample, v: torch.Tensor, p: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """The head on the training set: f (R, n, K), weight on the signal (R, n), v_c . u_i and v_c . xi_i (R, n, K).

    v: (R, K, m), p: (R, m). Raises ValueError on bad shapes.
    """
    _sizes(sample, v, p)
    signal = sample.signal_tokens
    weight = torch.sigmoid(torch.einsum("rnm,rm->rn", signal - sample.noise, p))
    at_signal, at_noise = signal @ v.mT, sample.noise @ v.mT
    s = weight.unsqueeze(-1)
    return s * at_signal + (1 - s) * at_noise, weight, at_signal, at_noise


def class_gradients(
    sample: ClassSample, v: torch.Tensor, p: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
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


@dataclass(frozen=True)
class ClassTwoSteps:
    """Parameters after one and two steps (p_1 = 0) and what they are made of."""

    v1: torch.Tensor  # (R, K, m)
    v2: torch.Tensor  # (R, K, m)
    p2: torch.Tensor  # (R, m)
    preference: torch.Tensor  # (R, n), gamma_i: positive where a sample prefers its signal


def class_two_steps(sample: ClassSample, step_size: float) -> ClassTwoSteps:
    r"""Two steps from zero in closed form. Raises ValueError for a bad step size.

    $v_c^1 = \frac{\beta}{2n}\sum_i (1[y_i=c] - \frac1K)(u_i+\xi_i)$, $p_1 = 0$,
    $v_c^2 = v_c^1 + \frac{\beta}{2n}\sum_i e_{ic}(u_i+\xi_i)$, $p_2 = \frac{\beta}{4n}\sum_i\gamma_i(u_i-\xi_i)$ with $e$ the
    residuals of $\frac12 v_c^1\cdot(u_i+\xi_i)$ and $\gamma_i = \sum_c e_{ic}\,v_c^1\cdot(u_i-\xi_i)$.
    """
    beta = checks.positive_number("step_size", step_size)
    n, K, hot = sample.law.n, sample.law.classes, one_hot(sample.labels, sample.law.classes)
    signal = sample.signal_tokens
    total, difference = signal + sample.noise, signal - sample.noise
    v1 = beta / (2 * n) * (hot - 1 / K).mT @ total
    residuals = hot - torch.softmax(total @ v1.mT / 2, -1)
    preference = (residuals * (difference @ v1.mT)).sum(-1)
    v2 = v1 + beta / (2 * n) * residuals.mT @ total
    p2 = beta / (4 * n) * torch.einsum("rn,rnm->rm", preference, difference)
    return ClassTwoSteps(v1, v2, p2, preference)
