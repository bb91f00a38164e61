r"""Long training under other noise laws: which token wins, and whose length it has to beat.

**Heavy radial tails** (label noise 0). Maximum margin pays $1/\rho^2$ to serve class k by its signal and
$\sum_{i\in C_k} 1/|\xi_i|^2$ to serve it by its noise tokens (orthogonal noise); a mixture pays the signal in full and some
noise on top. So the signal is selected iff $x_h = \rho^2\sum_{C_k} 1/|\xi_i|^2 > 1$: a harmonic mean of the squared lengths.
Source: derived.

**Norms alone.** `norms_only` replaces the noise tokens by orthogonal ones of the same lengths; training that copy is a prediction for every
single sample, from $|\xi_i|$ and nothing else.

**Correlated noise.** For noise tokens with Gram matrix G all of which are support vectors the noise costs
$y^\top G^{-1} y \approx n/D$, $D = \sum_j\lambda_j/(1 + n\lambda_j/D)$ (`noise_laws.effective_trace`), not $n/\mathrm{tr}\,\Sigma$: an
eigenvalue far above $D/n$ lends only $D/n$. Source: derived (deterministic equivalent), for Gaussian noise.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from attnbook.open_questions.noise_laws.covariance import Covariance
from attnbook.open_questions.noise_laws.laws import NoiseLaw, effective_trace
from attnbook.open_questions.noise_laws.parts import RadialT
from attnbook.single_head.coordinates import reduce
from attnbook.single_head.long_run import law_at, small_then_long, stacked, train
from attnbook.single_head.svm import hard_margin
from attnlib import checks
from attnlib.single_head.law import Sample


def norms_only(sample: Sample) -> Sample:
    """The same labels, signals and noise lengths, noise tokens orthogonal. Needs reduced coordinates, T = 2 and d >= n + 2."""
    n, m = sample.labels.shape[1], sample.tokens.shape[-1]
    if sample.law.tokens != 2 or m < n + 2:
        raise ValueError(f"sample must have two tokens and n + 2 = {n + 2} columns or more; got {m}: use a larger d")
    lengths = sample.noise_tokens()[:, :, 0].norm(dim=-1)
    noise = torch.zeros_like(sample.tokens[:, :, 0])
    noise[:, torch.arange(n), 2 + torch.arange(n)] = lengths
    signal = torch.take_along_dim(sample.signals, sample.signal_class.unsqueeze(-1), dim=1)
    position = torch.zeros_like(sample.signal_position)
    return replace(sample, tokens=torch.stack([signal, noise], 2), signal_position=position)


def _class_means(values: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
    """(R, n) -> (R, 2)."""
    held = torch.stack([classes == k for k in (0, 1)], 1).to(values.dtype)
    return (values.unsqueeze(1) * held).sum(-1) / held.sum(-1)


# --- heavy radial tails ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RadialFates:
    """Long training without label noise at several signal norms. K = norms x draws runs; arrays (K, 2) unless noted."""

    target: np.ndarray  # (K,), the expected x_h
    harmonic: np.ndarray  # rho^2 sum over the class of 1/|xi_i|^2
    arithmetic: np.ndarray  # rho^2 |C_k| / d
    attention: np.ndarray  # class means
    samples: np.ndarray  # (K, n) bool: the sample ends on its signal
    predicted: np.ndarray  # (K, n) bool: the same of the copy with orthogonal noise
    relative_length: np.ndarray  # (K, n), |xi_i|^2 / rho^2 |C_k|: above 1 the first step favours the sample's own noise
    train_accuracy: np.ndarray  # (K,)
    svm: np.ndarray | None = None  # the exact SVM over class-level selections puts the class on its signal

    @property
    def on_signal(self) -> np.ndarray:
        return self.attention > 0.5

    def share(self, target: float) -> tuple[float, float]:
        """Share of samples on the signal at one expected x_h, measured and predicted from the lengths alone."""
        return float(self.samples[self.at(target)].mean()), float(self.predicted[self.at(target)].mean())

    def at(self, target: float) -> np.ndarray:
        """Runs of one expected x_h."""
        return np.isclose(self.target, target)


@checks.checked
def radial_fates(
    freedom: float, targets: Sequence[float], *, n: int = 200, d: int = 40_000, draws: int = 10, seed: int = 0,
    svm: bool = False,
) -> RadialFates:  # fmt: skip
    """Multivariate t noise of the given freedom; signal norms such that the expected x_h are `targets`.

    svm: also solve the maximum-margin problem of every draw exactly. Raises ValueError for a bad argument.
    """
    checks.whole_number("draws", draws, at_least=1)
    scale = RadialT(freedom)
    samples, laws = [], []
    for i, target in enumerate(targets):
        norm = law_at(target / scale.harmonic, n, d, 0.0).signal_norm
        law = NoiseLaw(n, d, norm, 0.0, scale=scale)
        samples.append(law.draw(seed, draws, first_run=i * draws))
        laws += [law] * draws
    sample = stacked(samples)
    squares = (sample.noise_tokens()[:, :, 0] ** 2).sum(-1)
    held = torch.stack([sample.signal_class == k for k in (0, 1)], 1).double()
    rho2 = torch.tensor([law.signal_norm**2 for law in laws], dtype=torch.float64).unsqueeze(1)
    schedule = small_then_long(n, d)
    path, copy = train(sample, schedule), train(norms_only(sample), schedule)
    weights = path.attention_on_signal[-1]
    return RadialFates(
        target=np.repeat(np.asarray(targets, dtype=float), draws),
        harmonic=(rho2 * (held / squares.unsqueeze(1)).sum(-1)).numpy(),
        arithmetic=(rho2 * held.sum(-1) / d).numpy(),
        attention=_class_means(weights, sample.signal_class).numpy(),
        samples=(weights > 0.5).numpy(),
        predicted=(copy.attention_on_signal[-1] > 0.5).numpy(),
        relative_length=(squares / (rho2 * held.sum(-1)).gather(1, sample.signal_class)).numpy(),
        train_accuracy=path.train_accuracy[-1].numpy(),
        svm=np.array([_selected(noise_costs(sample.run(r)), laws[r].signal_norm) for r in range(len(laws))])
        if svm
        else None,
    )


def noise_costs(one: Sample) -> np.ndarray:
    """|v|^2 of the exact SVM on noise tokens alone: of all samples, of class 1, of class 2. One run, label noise 0."""
    noise, y = one.noise_tokens()[0, :, 0].numpy(), one.labels[0].numpy()
    first = one.signal_class[0].numpy() == 0
    return np.array([hard_margin(noise[held], y[held]).norm_squared for held in (first | ~first, first, ~first)])


def _selected(costs: np.ndarray, signal_norm: float) -> list[bool]:
    """Which classes the cheapest of the patterns XX, XS, SX, SS puts on their signal (noise orthogonal to signals)."""
    both, first, second = costs
    signal = 1 / signal_norm**2
    pattern = int(np.argmin([both, first + signal, second + signal, 2 * signal]))
    return [pattern in (2, 3), pattern in (1, 3)]


# --- correlated noise ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CorrelatedFates:
    """One covariance, several signal norms, label noise 0. K = norms x draws runs; arrays (K, 2) unless noted."""

    trace: float  # tr Sigma / d
    effective: float  # D / d at all n noise tokens
    x: np.ndarray  # rho^2 |C_k| / d
    on_signal: np.ndarray  # gradient descent
    svm: np.ndarray  # the exact SVM over class-level selections
    cost: np.ndarray  # (draws,), exact |w|^2 with every sample on its noise, times d/n
    train_accuracy: np.ndarray  # (K,)


def correlated_fates(
    covariance: Covariance, xs: Sequence[float], *, n: int = 100, d: int = 20_000, draws: int = 5, seed: int = 0
) -> CorrelatedFates:
    """Gaussian noise of a covariance; signal norms rho^2 n/2d = `xs` on the same draws. Raises ValueError for a bad argument."""
    checks.whole_number("draws", draws, at_least=1)
    law = NoiseLaw(n, d, 1.0, 0.0, covariance=covariance)
    drawn = [reduce(law.draw(seed, 1, first_run=r, coordinates="dense")) for r in range(draws)]
    costs = [noise_costs(one) for one in drawn]
    samples, svm, own = [], [], []
    for x in xs:
        norm = math.sqrt(checks.positive_number("xs", x) * 2 * d / n)
        for one, cost in zip(drawn, costs, strict=True):
            tokens = one.tokens.clone()
            tokens[0, torch.arange(n), one.signal_position[0]] *= norm
            samples.append(replace(one, tokens=tokens, signals=norm * one.signals))
            svm.append(_selected(cost, norm))
            own.append(norm**2 * one.counts()[0][0].numpy() / d)
    sample = stacked(samples)
    path = train(sample, small_then_long(n, round(covariance.traces(d)[0])))
    attention = _class_means(path.attention_on_signal[-1], sample.signal_class).numpy()
    return CorrelatedFates(
        covariance.traces(d)[0] / d, effective_trace(covariance, d, n) / d, np.array(own), attention > 0.5, np.array(svm),
        np.array(costs)[:, 0] * d / n, path.train_accuracy[-1].numpy(),
    )  # fmt: skip
