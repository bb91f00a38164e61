"""The data law of token selection: T tokens of which one decides, one confuses, some help a little, the rest are noise.

The signals lie on the first two axes. See `TokenLaw`; `Start` is the law of the parameters where training starts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from attnlib import checks, limits
from attnlib.device import resolve
from attnlib.randomness import stream


@dataclass(frozen=True)
class Labels:
    """True and observed labels of R training sets, both (R, n), +1 or -1, float64."""

    true: torch.Tensor
    observed: torch.Tensor

    @property
    def noisy(self) -> torch.Tensor:
        """(R, n) bool: whose label was flipped."""
        return self.true != self.observed

    def mean_over(self, kind: str, values: torch.Tensor) -> torch.Tensor:
        """Mean of (..., R, n) over the "clean" or "noisy" samples of each run: (..., R), nan where there are none."""
        mask = self.noisy if checks.one_of("kind", kind, ("clean", "noisy")) == "noisy" else ~self.noisy
        return (values * mask).sum(-1) / mask.sum(-1)


@dataclass(frozen=True)
class Sample:
    """R training sets as dense vectors, for small dimensions; `draw_gram` needs no vectors.

    Source:
        this book; made by `TokenLaw.draw`.

    Example:
        >>> sample = TokenLaw(n=10, d=50, tokens=4, signal_norm=5.0).draw(seed=0, runs=2)
        >>> sample.tokens.shape, sample.labels.noisy.sum(1).tolist()
        (torch.Size([2, 10, 4, 50]), [2, 2])
    """

    law: TokenLaw  # what it was drawn from
    seed: int  # of the random streams
    first_run: int  # number of the first of the R runs
    tokens: torch.Tensor  # (R, n, T, d), float64
    labels: Labels  # true and observed, (R, n)

    def __post_init__(self) -> None:
        checks.fitting(vars(self) | vars(self.labels), tokens="R n T d", true="R n", observed="R n")
        for name, found in vars(self.labels).items():
            checks.signs(name, found, tuple(found.shape), like=self.tokens)

    @property
    def runs(self) -> int:
        """R, the number of training sets."""
        return self.tokens.shape[0]

    @property
    def head(self) -> torch.Tensor:
        """(d,): the fixed value vector nu."""
        return self.law.head(self.tokens.device)


@checks.checked
@dataclass(frozen=True)
class TokenLaw:
    r"""The data law: the first token holds the signal of the true class, the second a weak one of the other, some a weak one of the true.

    $$ Y^* = \pm1 \text{ with probability } \tfrac12, \qquad Y = -Y^* \text{ with probability } \eta, $$
    $$ x_t = m_t(Y^*) + \varepsilon_t, \quad \varepsilon_t \sim N(0, \sigma_\varepsilon^2 I_d), $$

    | index | mean $m_t(Y^*)$ | role |
    |---|---|---|
    | 0 | $\mu_{Y^*}$ | relevant |
    | 1 | $\rho\,\mu_{-Y^*}$ | confusing: weakly relevant for the other class |
    | 2 ... | $\rho\,\mu_{Y^*}$ | weakly relevant (`same_class_tokens` of them) |
    | rest | $0$ | irrelevant |

    $\mu_+ \perp \mu_-$, both of norm $|\mu|$. The head is $\nu = |\nu|\,(\mu_+-\mu_-)/|\mu_+-\mu_-|$ and is never trained. Arguments
    outside their range raise ValueError.

    Source:
        arXiv 2409.17625 (poster); the numbers of weak tokens, the axes and the balanced labels are the authors' code.

    Example:
        >>> law = TokenLaw(n=20, d=2000, tokens=8, signal_norm=20.0)
        >>> print(f"SNR = {law.snr:.2f}, flips in each class: {law.flips_per_class}")
        SNR = 0.45, flips in each class: 2
    """

    n: int  # training samples
    d: int  # dimension of a token
    tokens: int  # T
    signal_norm: float  # |mu|
    weak_signal: float = 0.1  # rho, share of the signal in a weak token
    noise_std: float = 1.0  # sigma_eps
    label_noise: float = 0.2  # eta
    balanced: bool = True  # equal classes, as many flips in each; False: every label and flip drawn independently
    same_class_tokens: int = 1  # weak tokens of the true class
    head_scale: float = 1.0  # |nu| |mu|

    def __post_init__(self) -> None:
        least = 2 if self.balanced else 1
        checks.whole_number("n", self.n, at_least=least, hint="balanced labels need both classes")
        plane = "two orthogonal signals and one direction of noise need d >= 3"
        checks.whole_number("d", self.d, at_least=3, hint=plane)
        roles = 2 + checks.whole_number("same_class_tokens", self.same_class_tokens, at_least=0)
        told = f"one relevant, one confusing and same_class_tokens = {self.same_class_tokens} need {roles}"
        checks.whole_number("tokens", self.tokens, at_least=roles, hint=told)
        checks.length("signal_norm", self.signal_norm)
        checks.probability("weak_signal", self.weak_signal)
        checks.length("noise_std", self.noise_std)
        checks.probability("label_noise", self.label_noise)
        checks.length("head_scale", self.head_scale)
        checks.length("head_scale / signal_norm", self.head_norm)
        if self.balanced and self.label_noise > 0 and self.flips_per_class == 0:
            raise ValueError(
                f"label_noise must flip at least one label of each class; got {self.label_noise!r}, which flips "
                f"{self.label_noise * self.n:g} of n = {self.n}: take label_noise >= {2 / self.n:g}, 0, or balanced=False"
            )

    @property
    def flips_per_class(self) -> int:
        """Flipped labels in each class of a balanced training set: eta n / 2, rounded down."""
        return math.floor(self.label_noise * self.n / 2 + 1e-9)

    @property
    def snr(self) -> float:
        """Signal-to-noise ratio |mu| / (sigma_eps sqrt(d))."""
        return self.signal_norm / (self.noise_std * math.sqrt(self.d))

    @property
    def head_norm(self) -> float:
        """|nu|."""
        return self.head_scale / self.signal_norm

    def __str__(self) -> str:
        load = self.n * self.snr * self.snr  # a product is infinite where a power would raise OverflowError
        return (
            f"{self.n} samples of {self.tokens} tokens in d = {self.d}, labels flipped with probability {self.label_noise:g}\n"
            f"signal norm {self.signal_norm:g}: SNR = {self.snr:.3g}, n SNR^2 = {load:.3g}, "
            f"n d SNR^4 = {load * self.d * self.snr * self.snr:.3g}"
        )

    def signal_share(self) -> torch.Tensor:
        """(T, 2): how much of its own class's signal and of the other class's signal each token carries."""
        share = torch.zeros(self.tokens, 2, dtype=torch.float64, device="cpu")
        share[0, 0], share[1, 1] = 1.0, self.weak_signal
        share[2 : 2 + self.same_class_tokens, 0] = self.weak_signal
        return share

    def means(self, true_labels: torch.Tensor) -> torch.Tensor:
        """Coordinates of the token means along mu_+ / |mu| and mu_- / |mu|: (..., n) -> (..., n, T, 2)."""
        share = self.signal_norm * self.signal_share().to(true_labels.device)
        return torch.where((true_labels > 0)[..., None, None], share, share.flip(1))

    def head_coordinates(self) -> torch.Tensor:
        """(2,): nu along mu_+ / |mu| and mu_- / |mu|; it has no other component."""
        return torch.tensor([1.0, -1.0], dtype=torch.float64, device="cpu") * (self.head_norm / math.sqrt(2))

    def head(self, device: str | torch.device = "cpu") -> torch.Tensor:
        """(d,): nu."""
        nu = torch.zeros(self.d, dtype=torch.float64, device=device)
        nu[:2] = self.head_coordinates()
        return nu

    def draw_labels(self, seed: int, runs: int = 1, *, first_run: int = 0) -> Labels:
        """Labels of training sets number `first_run` ... `first_run + runs - 1`.

        Balanced: the first ceil(n/2) samples have class +1, and the first `flips_per_class` samples of each class are flipped
        (samples are exchangeable, so their order does not matter).
        """
        checks.origin(seed, runs, first_run)
        limits.require_memory(lambda n, runs: 16 * n * runs, n=self.n, runs=runs)
        return self.labels_of(seed, runs, first_run)

    def labels_of(self, seed: int, runs: int, first_run: int) -> Labels:
        """`draw_labels` for arguments that have been checked."""
        if self.balanced:
            positive = (self.n + 1) // 2
            true = torch.ones(self.n, dtype=torch.float64, device="cpu")
            true[positive:] = -1
            flips = torch.zeros(self.n, dtype=torch.bool, device="cpu")
            flips[: self.flips_per_class] = flips[positive : positive + self.flips_per_class] = True
            true, flips = true.expand(runs, -1).clone(), flips.expand(runs, -1)
        else:
            each = range(first_run, first_run + runs)
            classes = np.stack([stream(seed, "labels", run).integers(0, 2, self.n) for run in each])
            true = torch.from_numpy(1.0 - 2.0 * classes)
            uniforms = np.stack([stream(seed, "flips", run).random(self.n) for run in each])
            flips = torch.from_numpy(uniforms < self.label_noise)
        return Labels(true, torch.where(flips, -true, true))

    def draw(self, seed: int, runs: int = 1, *, first_run: int = 0, device: str | torch.device = "cpu") -> Sample:
        """Training sets as dense vectors, number `first_run` ... `first_run + runs - 1`: R n T d float64 numbers.

        Run r uses the streams (seed, role, r), so batches can be cut anywhere. Raises ValueError for a bad argument.
        """
        checks.origin(seed, runs, first_run)
        device = resolve(device)
        limits.require_memory(
            lambda n, runs, tokens, d: 16 * n * runs * tokens * d, n=self.n, runs=runs, tokens=self.tokens, d=self.d
        )
        labels = self.labels_of(seed, runs, first_run)
        shape, each = (self.n, self.tokens, self.d), range(first_run, first_run + runs)
        noise = np.stack([stream(seed, "noise", run).standard_normal(shape) for run in each])
        tokens = torch.from_numpy(self.noise_std * noise)
        tokens[..., :2] += self.means(labels.true)
        labels = Labels(labels.true.to(device), labels.observed.to(device))
        return Sample(self, seed, first_run, tokens.to(device), labels)

    def draw_fresh(self, count: int, seed: int, *, run: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
        """`count` fresh points with clean labels as dense vectors: tokens (count, T, d) and true labels (count,).

        The two classes alternate. The stream is the role "test", never shared with training: no test point can carry the noise
        of a training point.
        """
        checks.whole_number("count", count, at_least=1)
        checks.whole_number("seed", seed, at_least=0)
        checks.whole_number("run", run, at_least=0)
        limits.require_memory(lambda count: 16 * count * self.tokens * self.d, count=count)
        true = 1.0 - 2.0 * (torch.arange(count, device="cpu") % 2).double()
        noise = stream(seed, "test", run).standard_normal((count, self.tokens, self.d))
        tokens = torch.from_numpy(self.noise_std * noise)
        tokens[..., :2] += self.means(true)
        return tokens, true


@checks.checked
@dataclass(frozen=True)
class Start:
    r"""The law of $W_0$ and $p_0$: independent entries, of variances $\sigma_w^2$ and $\sigma_p^2$ given times d.

    So $W_0^\top W_0\approx$ `weight_scale` $\cdot I$ on any fixed vector and $|p_0|^2\approx$ `prompt_scale`. Arguments outside their range
    raise ValueError, and so do two zeros: from there nothing could ever move.

    Source:
        Gaussian entries as in the theorem of arXiv 2409.17625.

    Example:
        >>> weight, prompt = Start(weight_scale=0.5).draw(100, seed=0)
        >>> weight.shape, bool(prompt.any())
        (torch.Size([100, 100]), False)
    """

    weight_scale: float = 1 / 3  # sigma_w^2 d
    prompt_scale: float = 0.0  # sigma_p^2 d
    distribution: str = "gaussian"  # of the entries of W_0; those of p_0 are Gaussian always

    def __post_init__(self) -> None:
        for name in ("weight_scale", "prompt_scale"):
            checks.not_negative(name, getattr(self, name))
        if self.weight_scale == 0 == self.prompt_scale:
            raise ValueError(
                "weight_scale and prompt_scale must not both be 0: W = 0, p = 0 is a critical point, nothing moves"
            )
        checks.one_of("distribution", self.distribution, ("gaussian", "uniform"))

    def draw(self, d: int, seed: int, run: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
        """W_0 (d, d) and p_0 (d,), float64, from the stream (seed, "start", run)."""
        checks.whole_number("d", d, at_least=1)
        checks.whole_number("seed", seed, at_least=0)
        checks.whole_number("run", run, at_least=0)
        limits.require_memory(lambda d: 16 * d * d, d=d)
        return self.drawn(d, seed, run)

    def drawn(self, d: int, seed: int, run: int) -> tuple[torch.Tensor, torch.Tensor]:
        """`draw` for arguments that have been checked."""
        rng = stream(seed, "start", run)
        if self.distribution == "uniform":
            half = math.sqrt(3 * self.weight_scale / d)
            weight = rng.uniform(-half, half, (d, d))
        else:
            weight = math.sqrt(self.weight_scale / d) * rng.standard_normal((d, d))
        prompt = math.sqrt(self.prompt_scale / d) * rng.standard_normal(d)
        return torch.from_numpy(weight), torch.from_numpy(prompt)


CODE_START = Start(distribution="uniform")
r"""Where the authors' code starts: $p_0 = 0$, and the entries of $W_0$ uniform in $\pm1/\sqrt d$.

Source:
    the code of arXiv 2409.17625.

Example:
    >>> CODE_START.weight_scale, CODE_START.prompt_scale
    (0.3333333333333333, 0.0)
"""
