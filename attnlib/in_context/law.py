r"""The data law of in-context regression: every prompt has its own regression vector, L labelled examples and one query.

Tokens are $z_i = (x_i, y_i)$, the query token is $z_q = (x_q, 0)$. Two conventions are in use, and figures cannot be compared
without knowing which (the authors' notebook and the newest code of the same authors): see `RegressionLaw`. Dividing all labels of
the first by $\sqrt d$ gives the second, but for the noise of the target: risks differ by the factor $d$, and in both the noise is
$s_2 = d\sigma^2$ in units of the variance of $\beta$'s entries.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from reprlib import repr as shortened

import numpy as np
import torch

from attnlib import checks, limits
from attnlib.arrays import Floats
from attnlib.device import home
from attnlib.kernels.prompt_stream import normals_per_prompt, split
from attnlib.randomness import ROLES, stream

CONVENTIONS = ("notebook", "repository")


@checks.checked
@dataclass(frozen=True)
class Prompts:
    """B prompts, float64; all fields may carry the same leading axes (runs, steps).

    Source:
        the setting of arXiv 2503.12734; made by `RegressionLaw.draw`.

    Example:
        >>> prompts = RegressionLaw(d=5, length=40).draw(8, seed=0)
        >>> prompts.x.shape, prompts.target.shape
        (torch.Size([8, 40, 5]), torch.Size([8]))
    """

    x: torch.Tensor  # (..., B, L, d) covariates of the examples
    y: torch.Tensor  # (..., B, L) their labels
    query: torch.Tensor  # (..., B, d) covariate asked for
    target: torch.Tensor  # (..., B) its label, with the target's noise if the convention has any
    beta: torch.Tensor  # (..., B, d) regression vectors

    def __post_init__(self) -> None:
        checks.fitting(vars(self), x="... B L d", y="... B L", query="... B d", target="... B", beta="... B d")

    @property
    def context(self) -> torch.Tensor:
        """(..., B, L, d+1): the tokens (x_i, y_i)."""
        return torch.cat([self.x, self.y.unsqueeze(-1)], dim=-1)

    @property
    def query_token(self) -> torch.Tensor:
        """(..., B, 1, d+1): the token (x_q, 0)."""
        return torch.nn.functional.pad(self.query, (0, 1)).unsqueeze(-2)

    @property
    def targets(self) -> torch.Tensor:
        """(..., B, 1, 1): the targets in the shape of the authors' code."""
        return self.target[..., None, None]

    @property
    def clean_target(self) -> torch.Tensor:
        """(..., B): <x_q, beta>, the target without its noise."""
        return (self.query * self.beta).sum(-1)

    @property
    def length(self) -> int:
        """L, the number of examples in a prompt."""
        return self.x.shape[-2]

    @checks.checked
    def map(self, change: Callable[[torch.Tensor], torch.Tensor]) -> Prompts:
        """`change` applied to every field: a dtype, a device, a slice of the leading axis."""
        return Prompts(*(change(getattr(self, field.name)) for field in dataclasses.fields(self)))

    def part(self, first: int, last: int) -> Prompts:
        """Prompts number `first` ... `last - 1` along the axis B."""
        axis = self.y.ndim - 2
        return self.map(lambda values: values.narrow(axis, first, min(last, self.y.shape[axis]) - first))


@checks.checked
@dataclass(frozen=True)
class RegressionLaw:
    r"""The data law: every prompt has its own regression vector, L labelled examples and one query.

    $$ \beta \sim N(0, s_\beta^2 I_d), \qquad x_i, x_q \sim N(m, \Sigma), $$
    $$ y_i = \langle x_i, \beta\rangle + \varepsilon_i, \qquad y_q = \langle x_q, \beta\rangle + \varepsilon_q $$

    | convention | $s_\beta$ | sd of $\varepsilon_i$ | sd of $\varepsilon_q$ |
    |---|---|---|---|
    | `"notebook"` | $1$ | $\sqrt d\,\sigma$ | $0$ |
    | `"repository"` | $1/\sqrt d$ | $\sigma$ | $\sigma$ |

    with $\sigma$ = `noise_std`. Figures of the two cannot be compared: risks differ by the factor $d$. Arguments outside their range raise
    ValueError.

    Source:
        the authors' notebook and their newest code for arXiv 2503.12734; covariance and mean are extensions.

    Example:
        >>> law = RegressionLaw(d=4, length=32, noise_std=0.1)
        >>> print(law.draw(8, seed=0).y.shape, f"{law.noise_variance:.2f}")
        torch.Size([8, 32]) 0.04
    """

    d: int = 5  # dimension of a covariate
    length: int = 40  # labelled examples in a prompt, L
    noise_std: float = 0.01  # sigma
    convention: str = "notebook"  # or "repository": a row of the table
    covariance: tuple[tuple[float, ...], ...] | None = None  # Sigma, (d, d); None: the identity
    mean: tuple[float, ...] | None = None  # m, (d,); None: zero

    def __post_init__(self) -> None:
        checks.whole_number("d", self.d, at_least=1)
        checks.whole_number("length", self.length, at_least=1, hint="a prompt needs an example to learn from")
        checks.not_negative("noise_std", self.noise_std, at_most=1e140)  # d times its square is a number
        checks.one_of("convention", self.convention, CONVENTIONS)
        if self.covariance is not None:
            limits.require_memory(lambda d: 24 * d * d, d=self.d)
            object.__setattr__(self, "covariance", _covariance(self.covariance, self.d))
        if self.mean is not None:
            mean = _array("mean", self.mean, (self.d,))
            object.__setattr__(self, "mean", tuple(mean.tolist()))

    @property
    def beta_std(self) -> float:
        """s_beta, the standard deviation of an entry of beta."""
        return 1.0 if self.convention == "notebook" else 1 / math.sqrt(self.d)

    @property
    def label_noise_std(self) -> float:
        """Standard deviation of the noise of a label in the context."""
        return self.noise_std * (math.sqrt(self.d) if self.convention == "notebook" else 1.0)

    @property
    def target_noise_std(self) -> float:
        """Standard deviation of the noise of the target: loss = risk + its square."""
        return 0.0 if self.convention == "notebook" else self.noise_std

    @property
    def noise_variance(self) -> float:
        """s2 = d sigma^2: variance of the label noise in units of the variance of an entry of beta, in both conventions."""
        return self.d * self.noise_std**2

    @property
    def isotropic(self) -> bool:
        """Covariates are N(0, I): what the exact reduction and the compiled trainer need."""
        return self.covariance is None and self.mean is None

    @property
    def covariance_matrix(self) -> torch.Tensor:
        """(d, d): Sigma."""
        if self.covariance is None:
            return torch.eye(self.d, dtype=torch.float64, device="cpu")
        return torch.tensor(self.covariance, dtype=torch.float64, device="cpu")

    @property
    def mean_vector(self) -> torch.Tensor:
        """(d,): m."""
        return torch.tensor(self.mean if self.mean is not None else (0.0,) * self.d, dtype=torch.float64, device="cpu")

    @property
    def normals_per_prompt(self) -> int:
        """How many standard normals one prompt is made of."""
        return normals_per_prompt(self.d, self.length)

    @cached_property
    def _root(self) -> torch.Tensor:
        root: torch.Tensor = torch.linalg.cholesky(self.covariance_matrix)
        return root

    def check(self, prompts: Prompts) -> None:
        """Raises ValueError for prompts of another d."""
        if prompts.query.shape[-1] != self.d:
            raise ValueError(f"law must be for d = {prompts.query.shape[-1]}, the prompts'; got a law for d = {self.d}")

    def with_length(self, length: int) -> RegressionLaw:
        """The same law with prompts of another length."""
        return dataclasses.replace(self, length=length)

    def __str__(self) -> str:
        kind = "N(0, I)" if self.isotropic else "N(m, Sigma)"
        return (
            f"d = {self.d}, prompts of {self.length} examples, covariates {kind}\n"
            f"noise {self.noise_std:g} in the {self.convention}'s convention (s2 = {self.noise_variance:.3g})"
        )

    def from_normals(self, normals: torch.Tensor | Floats) -> Prompts:
        """Prompts made of standard normals (..., B, normals_per_prompt), in the order of the training stream.

        beta (d), x_q (d), noise of the target, one unused; then per example x_i (d), noise of the label, padded to an even number.
        Raises ValueError for another last axis.
        """
        if isinstance(normals, np.ndarray):
            normals = np.array(
                normals, dtype=np.float64
            )  # backwards, read-only, of another byte order: torch takes none of these
        normals = torch.as_tensor(normals, dtype=torch.float64, device=home(normals))
        if normals.ndim < 2 or normals.shape[-1] != self.normals_per_prompt:
            wanted = f"(..., B, {self.normals_per_prompt})"
            raise ValueError(
                f"normals must have shape {wanted} for d = {self.d}, length = {self.length}; got {tuple(normals.shape)}"
            )
        return self.made_of(normals)

    def made_of(self, normals: torch.Tensor) -> Prompts:
        """`from_normals` for float64 normals of the right shape."""
        beta, query, target_noise, x, label_noise = split(normals, self.d)
        beta = self.beta_std * beta
        if not self.isotropic:
            query, x = (self.mean_vector + values @ self._root.T for values in (query, x))
        y = torch.einsum("...ld,...d->...l", x, beta) + self.label_noise_std * label_noise
        target = (query * beta).sum(-1) + self.target_noise_std * target_noise
        return Prompts(x.contiguous(), y, query.contiguous(), target, beta.contiguous())

    @checks.checked
    def draw(self, count: int, seed: int, *, run: int = 0, role: str = "test") -> Prompts:
        """`count` held-out prompts of the stream (seed, role, run). Training prompts come from another generator."""
        checks.whole_number("count", count, at_least=1)
        checks.whole_number("seed", seed, at_least=0)
        checks.whole_number("run", run, at_least=0)
        checks.one_of("role", role, ROLES)
        one = 16 * self.normals_per_prompt
        limits.require_memory(lambda count: one * count, count=count)
        return self.drawn(count, seed, run, role)

    def drawn(self, count: int, seed: int, run: int, role: str) -> Prompts:
        """`draw` for arguments that have been checked."""
        return self.made_of(torch.from_numpy(stream(seed, role, run).standard_normal((count, self.normals_per_prompt))))


def toeplitz_covariance(d: int, rho: float) -> tuple[tuple[float, ...], ...]:
    """Sigma_ij = rho^|i-j| as nested tuples, |rho| < 1: the anisotropic covariates of the authors' code (rho = 0.5 there)."""
    checks.whole_number("d", d, at_least=1)
    if not abs(checks.finite_number("rho", rho)) < 1:
        raise ValueError(f"rho must be in (-1, 1); got {rho!r}: beyond that the matrix is no covariance")
    limits.require_memory(lambda d: 32 * d * d, d=d)
    return tuple(tuple(rho ** abs(i - j) for j in range(d)) for i in range(d))


def _array(name: str, values: object, shape: tuple[int, ...]) -> Floats:
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        array = np.empty(0)
    if array.shape != shape or not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite numbers of shape {shape}; got {shortened(values)}")
    return array


def _covariance(values: object, d: int) -> tuple[tuple[float, ...], ...]:
    matrix = torch.from_numpy(_array("covariance", values, (d, d)).copy())
    # In any unit. And the factor that draws covariates exists: what the earlier ones leave of each is more than rounding.
    uneven, (factor, failed) = (matrix - matrix.T).abs().max(), torch.linalg.cholesky_ex(matrix)
    left = factor.diagonal().square() > d * torch.finfo(matrix.dtype).eps * matrix.diagonal()
    if uneven > 1e-12 * matrix.abs().max() or failed or not left.all():
        least = torch.linalg.eigvalsh(matrix)[0]
        raise ValueError(
            f"covariance must be symmetric and positive definite; got one that is {uneven:.2g} off its transpose, "
            f"with least eigenvalue {least:.2g}"
        )
    return tuple(tuple(row) for row in matrix.tolist())
