r"""Limits $d\to\infty$ at fixed $\alpha=l/d$, $\kappa=k/d$, $\tau=n/d^2$, and extrapolation to them; $q=(1+\rho)/\alpha$."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch

from attnlib import checks


def stieltjes(q: float, kappa: float) -> float:
    r"""$M_\kappa(q)$, the mean of $1/(\text{eigenvalue}+q)$ for the second moments of many random tasks; q > 0, kappa > 0 or infinite.

    $$ M_\kappa(q)=\lim\frac1d\mathrm{tr}\Big(\frac1kW^\top W+qI\Big)^{-1}=\frac2{q+1-\frac1\kappa+\sqrt{(q+1-\frac1\kappa)^2+4q/\kappa}} $$

    Where $q+1<1/\kappa$ the denominator is a difference; it is then computed as a quotient, which loses no digits. Source: authors' code.
    """
    share = 1 / kappa
    b = q + 1 - share
    root = math.sqrt(b * b + 4 * q * share)
    return 2 / (b + root) if b >= 0 else (root - b) / (2 * q * share)


def many_prompts_error(alpha: float, kappa: float, noise: float, tasks: str = "fresh") -> float:
    r"""The limit $\tau\to\infty$: the error of the linear attention that is best for k tasks, on "fresh" or "seen" tasks. Derived.

    $$ e_\infty^{\text{fresh}}=\rho+q-2q^2m+(1+q)\,q^2|m'|,\qquad e_\infty^{\text{seen}}=\rho+q-q^2m, \qquad m=M_\kappa(q) $$
    """
    q, share = (1 + noise) / alpha, 1 / kappa
    m = stieltjes(q, kappa)
    if tasks == "seen":
        return noise + q - q * q * m
    slope = m * m / (1 - share * (m / (1 + share * m)) ** 2)
    return noise + q - 2 * q * q * m + (1 + q) * q * q * slope


def prompt_cost(alpha: float, kappa: float, noise: float, tasks: str = "fresh") -> float:
    r"""What finitely many prompts cost, the residue of the pole at $\tau=1$; on "fresh" or "seen" tasks. From the authors' formula.

    $$ C^{\text{fresh}}=(1+q)\,m\,(\rho+q-q^2m),\qquad C^{\text{seen}}=\rho+q-q^2m $$
    """
    seen = many_prompts_error(alpha, kappa, noise, "seen")
    if tasks == "seen":
        return seen
    q = (1 + noise) / alpha
    return (1 + q) * stieltjes(q, kappa) * seen


@checks.checked
def limit_error(tau: float, alpha: float, kappa: float, noise: float, tasks: str = "fresh") -> float:
    r"""The limit of the error of minimum-norm least squares, on fresh tasks or on the tasks of pretraining. Infinite at $\tau=1$.

    For $\tau<1$, with $\mu=q\,M_{\kappa/\tau}(q)$,

    $$ e^{\text{fresh}}=\frac{\tau(1+q)}{1-\tau}\Big[1-\tau(1-\mu)^2-\mu\frac{q-\rho}q\Big]-2\tau(1-\mu)+1+\rho ; $$

    for $\tau>1$ it is $e_\infty+C/(\tau-1)$ with $C$ and $e_\infty$ of the chapter.

    Args:
        tau: n/d^2 > 0; infinite for unlimited prompts.
        alpha: l/d > 0.
        kappa: k/d > 0, may be infinite.
        noise: rho >= 0.
        tasks: "fresh" or "seen".

    Returns:
        the error; infinity at tau = 1, where prompts and parameters are equally many.

    Raises:
        ValueError: an argument out of its range.

    Source:
        the authors' code for arXiv 2405.11751, both branches of both errors.

    Example:
        >>> round(limit_error(0.5, 1.0, 2.0, 0.1), 4), limit_error(1.0, 1.0, 2.0, 0.1)
        (1.4875, inf)
    """
    for name, value in (("tau", tau), ("kappa", kappa)):
        if not (isinstance(value, float) and value == math.inf):
            checks.positive_number(name, value)
    checks.positive_number("alpha", alpha)
    if checks.finite_number("noise", noise) < 0:
        raise ValueError(f"noise must be >= 0; got {noise!r}: it is a variance")
    checks.one_of("tasks", tasks, ("fresh", "seen"))
    if tau == math.inf:
        return many_prompts_error(alpha, kappa, noise, tasks)
    q, share = (1 + noise) / alpha, 1 / kappa
    if tau == 1:
        return math.inf
    if tau > 1:
        return many_prompts_error(alpha, kappa, noise, tasks) + prompt_cost(alpha, kappa, noise, tasks) / (tau - 1)
    mu = q * stieltjes(q, kappa / tau)
    left = 1 - tau
    if tasks == "fresh":
        bracket = 1 - tau * (1 - mu) ** 2 - mu * (q - noise) / q
        return tau * (1 + q) / left * bracket - 2 * tau * (1 - mu) + 1 + noise
    ridge = left * q / (tau * mu)
    c = 1 / (1 - share / (share + ridge / left) ** 2)
    rest = noise + q - 2 * q * left * (q / ridge + 1)
    return tau * ((q + ridge) ** 2 / ridge + rest / (left - c * left**2))


def pattern_error(alpha: float, noise: float, length: float = math.inf) -> float:
    r"""$1+\rho-1/(1+\frac1l+q)$, the error on fresh tasks of the best $\Gamma=(\eta I,0)$, which no $\Gamma$ undercuts."""
    return 1 + noise - 1 / (1 + 1 / length + (1 + noise) / alpha)


def ridge_error(alpha: float, noise: float) -> float:
    r"""$\rho+\frac\rho\alpha M_\alpha(\frac\rho\alpha)$, the limit of the error of ridge regression on the prompt alone; noise rho > 0."""
    ratio = noise / alpha
    return noise + ratio * stieltjes(ratio, alpha)


@checks.checked
def extrapolate(sizes: Sequence[float], values: torch.Tensor) -> torch.Tensor:
    r"""The value at $d=\infty$ of measurements at several d: least squares in 1, $1/d$ and $1/d^2$, row by row.

    $$ e(d)\approx e+\frac{c_1}d+\frac{c_2}{d^2} $$

    The sizes have the weights $d^2$, as the standard deviation of an error falls like $1/d$. Rows are independent draws, so the spread of
    the result over rows is its error.

    Args:
        sizes: S different sizes d > 0, three or more.
        values: (R, S).

    Returns:
        the extrapolated values, (R,).

    Raises:
        ValueError: fewer than three different sizes, or values of another shape.

    Source:
        this book.

    Example:
        >>> d = torch.tensor([8.0, 16.0, 32.0], dtype=torch.float64)
        >>> print(round(extrapolate(d.tolist(), (2 + 3 / d - 1 / d**2)[None]).item(), 10))
        2.0
    """
    if not isinstance(sizes, Iterable) or getattr(sizes, "ndim", 1) == 0:
        raise ValueError(f"sizes must be three different d or more to extrapolate; got {sizes!r}")
    for size in sizes:
        checks.positive_number("sizes", size)
    if len(set(sizes)) < 3:
        raise ValueError(f"sizes must be three different d or more to extrapolate; got {list(sizes)!r}")
    checks.tensor("values", values, ("R", len(sizes)))
    d = torch.as_tensor(sizes, dtype=values.dtype)
    powers = torch.stack([torch.ones_like(d), 1 / d, 1 / d**2], dim=1)
    weights: torch.Tensor = torch.linalg.pinv(d[:, None] * powers)[0].mul(d)
    return values @ weights
