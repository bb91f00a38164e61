r"""Long training under other noise laws: which token wins, and whose length it has to beat.

**Heavy radial tails** (label noise 0). Maximum margin pays $1/\rho^2$ to serve class k by its signal and
$\sum_{i\in C_k} 1/|\xi_i|^2$ to serve it by its noise tokens (orthogonal noise); a mixture pays the signal in full and some
noise on top. So the signal is selected iff $x_h = \rho^2\sum_{C_k} 1/|\xi_i|^2 > 1$: a harmonic mean of the squared lengths.
Source: derived.

**Norms alone.** `norms_only` replaces the noise tokens by orthogonal ones of the same lengths; training that copy is a prediction for every
single sample, from $|\xi_i|$ and nothing else.

**Correlated noise.** For noise tokens with Gram matrix G all of which are support vectors the noise costs
$y^\top G^{-1} y \approx n/D$, $D = \sum_j\lambda_j/(1 + n\lambda_j/D)$ (`effective_trace`), not $n/\mathrm{tr}\,\Sigma$: an
eigenvalue far above $D/n$ lends only $D/n$. Source: derived (deterministic equivalent), for Gaussian noise.
"""

import math
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import torch

from attnbook.halving import halved
from attnbook.open_questions.noise import AutoRegressive, Covariance, NoiseLaw, RadialT, Spiked, two_level
from attnbook.single_head.coordinates import reduce
from attnbook.single_head.long_run import course_of_training, law_at, small_then_long, stacked, train
from attnbook.single_head.svm import hard_margin

TARGETS = (0.6, 0.8, 0.9, 1.0, 1.1, 1.25, 1.6, 2.0)  # expected x_h of the runs with heavy radial tails
XS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.15, 1.3, 1.6, 2.2)  # rho^2 n / 2d of the runs with correlated noise


def effective_trace(covariance, d, n):
    r"""The number $D$ with $D = \sum_j \lambda_j/(1 + n\lambda_j/D)$: the squared length that n noise tokens of this covariance lend to
    memorising, $y^\top G^{-1}y \approx n/D$ (deterministic equivalent of the inverse Gram matrix).

    $D = d - n$ for $\Sigma = I$; eigenvalues far above $D/n$ add only $D/n$ each. d > n.

    >>> round(effective_trace(Covariance(), 1000, 100), 6)
    900.0
    """
    values = covariance.eigenvalues(d)
    # f(D) = sum lambda / (D + n lambda) falls from d/n > 1 at D = 0 to 0: one root of f = 1, by bisection.
    return sum(halved(lambda D: (values / (D + n * values)).sum() > 1, 0.0, float(values.sum()), 200)) / 2


def norms_only(sample):
    """The same labels, signals and noise lengths, noise tokens orthogonal. Needs reduced coordinates, T = 2 and d >= n + 2."""
    n = sample.labels.shape[1]
    noise = torch.zeros_like(sample.tokens[:, :, 0])
    noise[:, torch.arange(n), 2 + torch.arange(n)] = sample.noise_tokens()[:, :, 0].norm(dim=-1)
    signal = torch.take_along_dim(sample.signals, sample.signal_class.unsqueeze(-1), dim=1)
    position = torch.zeros_like(sample.signal_position)
    return replace(sample, tokens=torch.stack([signal, noise], 2), signal_position=position)


def _class_means(values, classes):
    """(R, n) -> (R, 2)."""
    held = torch.stack([classes == k for k in (0, 1)], 1).to(values.dtype)
    return (values.unsqueeze(1) * held).sum(-1) / held.sum(-1)


def noise_costs(one):
    """|v|^2 of the exact SVM on noise tokens alone: of all samples, of class 1, of class 2. One run, label noise 0."""
    noise, y = one.noise_tokens()[0, :, 0].numpy(), one.labels[0].numpy()
    first = one.signal_class[0].numpy() == 0
    return np.array([hard_margin(noise[held], y[held]).norm_squared for held in (first | ~first, first, ~first)])


def _selected(costs, signal_norm):
    """Which classes the cheapest of the patterns XX, XS, SX, SS puts on their signal (noise orthogonal to signals)."""
    both, first, second = costs
    signal = 1 / signal_norm**2
    pattern = int(np.argmin([both, first + signal, second + signal, 2 * signal]))
    return [pattern in (2, 3), pattern in (1, 3)]


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
    svm: np.ndarray | None  # the exact SVM over class-level selections puts the class on its signal

    @property
    def on_signal(self):
        return self.attention > 0.5

    def share(self, target):
        """Share of samples on the signal at one expected x_h, measured and predicted from the lengths alone."""
        return float(self.samples[self.at(target)].mean()), float(self.predicted[self.at(target)].mean())

    def at(self, target):
        """Runs of one expected x_h."""
        return np.isclose(self.target, target)


def radial_fates(freedom, targets, *, n=200, d=40_000, draws=10, seed=0, svm=False):
    """Multivariate t noise of the given freedom; signal norms such that the expected x_h are `targets`.

    svm: also solve the maximum-margin problem of every draw exactly.
    """
    scale, samples, laws = RadialT(freedom), [], []
    for i, target in enumerate(targets):
        norm = law_at(target / scale.harmonic, n, d, 0.0).signal_norm
        law = NoiseLaw(n, d, norm, 0.0, scale=scale)
        samples.append(law.draw(seed, draws, first_run=i * draws))
        laws += [law] * draws
    sample, schedule = stacked(samples), small_then_long(n, d)
    squares = (sample.noise_tokens()[:, :, 0] ** 2).sum(-1)
    held = torch.stack([sample.signal_class == k for k in (0, 1)], 1).double()
    rho2 = torch.tensor([law.signal_norm**2 for law in laws], dtype=torch.float64).unsqueeze(1)
    path, copy = train(sample, schedule), train(norms_only(sample), schedule)
    weights = path.attention_on_signal[-1]
    costs = [noise_costs(sample.run(r)) for r in range(len(laws))] if svm else []
    return RadialFates(
        target=np.repeat(np.asarray(targets, dtype=float), draws),
        harmonic=(rho2 * (held / squares.unsqueeze(1)).sum(-1)).numpy(),
        arithmetic=(rho2 * held.sum(-1) / d).numpy(),
        attention=_class_means(weights, sample.signal_class).numpy(),
        samples=(weights > 0.5).numpy(),
        predicted=(copy.attention_on_signal[-1] > 0.5).numpy(),
        relative_length=(squares / (rho2 * held.sum(-1)).gather(1, sample.signal_class)).numpy(),
        train_accuracy=path.train_accuracy[-1].numpy(),
        svm=np.array([_selected(c, law.signal_norm) for c, law in zip(costs, laws, strict=True)]) if svm else None,
    )


def correlated_fates(covariance, xs, *, n=100, d=20_000, draws=5, seed=0):
    """Gaussian noise of a covariance, label noise 0; signal norms rho^2 n/2d = `xs` on the same draws.

    K = norms x draws runs: x = rho^2 |C_k| / d, and whether gradient descent and the exact SVM over class-level selections end `on_signal`
    and `svm`, (K, 2). `trace` tr Sigma / d, `effective` D / d at all n noise tokens, `cost` (draws,) the exact |w|^2 with every sample on
    its noise, times d/n.
    """
    law = NoiseLaw(n, d, 1.0, 0.0, covariance=covariance)
    drawn = [reduce(law.draw(seed, 1, first_run=r, coordinates="dense")) for r in range(draws)]
    costs = [noise_costs(one) for one in drawn]
    samples, svm, own = [], [], []
    for x in xs:
        norm = math.sqrt(x * 2 * d / n)
        for one, cost in zip(drawn, costs, strict=True):
            tokens = one.tokens.clone()
            tokens[0, torch.arange(n), one.signal_position[0]] *= norm
            samples.append(replace(one, tokens=tokens, signals=norm * one.signals))
            svm.append(_selected(cost, norm))
            own.append(norm**2 * one.counts()[0][0].numpy() / d)
    sample, trace = stacked(samples), covariance.traces(d)[0]
    path = train(sample, small_then_long(n, round(trace)))
    return SimpleNamespace(
        trace=trace / d,
        effective=effective_trace(covariance, d, n) / d,
        x=np.array(own),
        on_signal=_class_means(path.attention_on_signal[-1], sample.signal_class).numpy() > 0.5,
        svm=np.array(svm),
        cost=np.array(costs)[:, 0] * d / n,
    )


def long_noise_study(*, draws=10, seed=0):
    """Train and collect; half as many draws of correlated noise."""
    d = 20_000
    covariances = {
        "white": Covariance(),
        "AR(1) .9": AutoRegressive(0.9),
        "spike d": Spiked(float(d)),
        "half tr Σ": two_level(d, 0.5, 1.0),
    }
    few = {"draws": draws, "seed": seed}
    laws = {
        avoids: [NoiseLaw(100, d, norm, 0.05, noise_avoids_signals=avoids) for norm in (10.0, 30.0)]
        for avoids in (True, False)
    }
    return SimpleNamespace(
        # By freedom: n = 200, d = 40000, eta = 0.
        radial={nu: radial_fates(float(nu), TARGETS, svm=nu == 3, **few) for nu in (3, 5, 10)},
        # n = 100, d = 20000, eta = 0.
        correlated={
            name: correlated_fates(covariance, XS, d=d, draws=draws // 2, seed=seed)
            for name, covariance in covariances.items()
        },
        # n = 100, d = 20000, eta = 0.05, rho = 10 and 30: noise projected off the signals, and the same draws where it is not.
        avoiding=course_of_training(laws[True], 0.025, 3000, **few),
        meeting=course_of_training(laws[False], 0.025, 3000, **few),
    )
