r"""Exact risks of the predictors that attention heads are compared with, for covariates $N(m,\Sigma)$.

A predictor that is linear in the labels, $\hat y=\sum_ic_iy_i$, has the risk $s_\beta^2\,\mathbb E[|X^\top c-x_q|^2+s_2|c|^2]$. For
$c_i=x_q^\top\Gamma x_i/L$ and for its centred version $c_i=x_q^\top\Gamma(x_i-\bar x)/L$ the expectation is a polynomial in Gaussian
moments of order four: with $M=\Sigma+mm^\top$, $f=1$ or $f=(L-1)/L$,

$$ \mathrm{risk}/s_\beta^2=\operatorname{tr}M-2f\operatorname{tr}(M\Gamma A)+f\operatorname{tr}(M\Gamma Q\Gamma^\top),\quad Q=P_0+P_1/L, $$

| | $A$ | $P_0$ | $P_1$ |
|---|---|---|---|
| one step | $M$ | $M^2$ | $M^2+(\operatorname{tr}M+s_2)M-2\lvert m\rvert^2mm^\top$ |
| centred | $\Sigma$ | $\Sigma^2$ | $(\operatorname{tr}\Sigma+s_2)\Sigma$ |

RISK is $\mathbb E(\hat y-\langle x_q,\beta\rangle)^2$, in the law's own units, without the noise of the target. Every function takes a
`RegressionLaw`; `length` replaces its length and may be an array, `step` too: they broadcast, and the answer is a float64 scalar
or array. Source of all formulas: derived in the theory chapter of Part III, unless said.
"""

import numpy as np

from attnlib.arrays import Floats
from attnlib.in_context.law import RegressionLaw

# No learning, one step, one centred step


def zero_risk(law: RegressionLaw) -> float:
    r"""$s_\beta^2\operatorname{tr}M$, the risk of answering 0; $d$ in the notebook's units, 1 in the repository's, if isotropic."""
    return law.beta_std**2 * float(np.trace(_second_moment(law)))


def gd_risk(law: RegressionLaw, step, *, length=None) -> Floats:
    r"""One step of gradient descent from 0, $\hat y=\tfrac{\eta}{L}\sum_iy_i\langle x_i,x_q\rangle$, $\eta$ = `step` (any sign).

    Isotropic: $s_\beta^2d\,[1-2\eta+\eta^2(1+(d+1+s_2)/L)]$.
    """
    return _scalar_step_risk(law, step, length, centred=False)


def gd_optimal_step(law: RegressionLaw, *, length=None) -> Floats:
    r"""The best `step` of `gd_risk`; isotropic: $1/(1+(d+1+s_2)/L)$."""
    return _optimal_step(law, length, centred=False)


def gd_optimal_risk(law: RegressionLaw, *, length=None) -> Floats:
    r"""`gd_risk` at its best step; isotropic: $s_\beta^2d(d+1+s_2)/(L+d+1+s_2)$."""
    return gd_risk(law, gd_optimal_step(law, length=length), length=length)


def debiased_gd_risk(law: RegressionLaw, step, *, offset=0.0, length=None) -> Floats:
    r"""Centred step $\hat y=\tfrac{\eta}{L}\sum_iy_i\langle x_i-\bar x,x_q\rangle+a\bar y$, with $a$ = `offset`.

    Isotropic, $a=0$: $s_\beta^2d\,[1-2\eta\tfrac{L-1}{L}+\eta^2\tfrac{(L-1)(L+d+s_2)}{L^2}]$. The offset adds
    $s_\beta^2\{a^2[|m|^2+(\operatorname{tr}\Sigma+s_2)/L]-2a\,m^\top(I-\tfrac{L-1}{L}\eta\Sigma)m\}$. The pair $(\eta,a)$ is what heads
    of small $\omega_h$ compute, with $\eta=\sum\omega_h\mu_h$ and $a=\sum\mu_h$.
    """
    eta, a, L = _numbers(step), _numbers(offset), _lengths(law, length)
    sigma, m = law.covariance_matrix.numpy(), law.mean_vector.numpy()
    spread = _offset_spread(law, L)
    pull = m @ m - (L - 1) / L * eta * (m @ sigma @ m)
    extra = law.beta_std**2 * (a**2 * spread - 2 * a * pull)
    return _scalar_step_risk(law, step, length, centred=True) + extra


def debiased_gd_optimal_step(law: RegressionLaw, *, length=None) -> Floats:
    r"""The best `step` of `debiased_gd_risk` without offset; isotropic, exactly: $L/(L+d+s_2)$. (At L = 1 every step is as good.)"""
    return _optimal_step(law, length, centred=True)


def debiased_gd_optimal_risk(law: RegressionLaw, *, length=None) -> Floats:
    r"""`debiased_gd_risk` at its best step, no offset; isotropic: $s_\beta^2d(d+1+s_2)/(L+d+s_2)$."""
    return debiased_gd_risk(law, debiased_gd_optimal_step(law, length=length), length=length)


# A matrix in the place of the step


def preconditioned_gd_risk(
    law: RegressionLaw, preconditioner, *, centred: bool = False, offset=0.0, length=None
) -> Floats:
    r"""$\hat y=\tfrac1L\,x_q^\top\Gamma\sum_iy_ix_i$, or with $x_i-\bar x$ for $x_i$ if `centred`; any $\Gamma$, (..., d, d).

    The axes in front of $\Gamma$'s last two broadcast against `length`. Value: the formula on top of this module. A centred step may
    also add $a\bar y$, $a$ = `offset`: see `debiased_gd_risk`, with $\Gamma$ in the place of $\eta$.
    """
    gamma, a = _numbers(preconditioner), _numbers(offset)
    moment, (A, p0, p1), L = _second_moment(law), _moments(law, centred), _lengths(law, length)
    first = np.einsum("ij,...jk,ki->...", moment, gamma, A)
    fixed, falling = (np.einsum("ij,...jk,kl,...il->...", moment, gamma, part, gamma) for part in (p0, p1))
    f = (L - 1) / L if centred else 1.0
    m = law.mean_vector.numpy()
    along = np.einsum("i,...ij,jk,k->...", m, gamma, law.covariance_matrix.numpy(), m)
    extra = a**2 * _offset_spread(law, L) - 2 * a * (m @ m - f * along)
    return law.beta_std**2 * (np.trace(moment) + f * (fixed + falling / L - 2 * first) + extra)


def best_preconditioner(law: RegressionLaw, *, centred: bool = False, length=None) -> Floats:
    r"""$\Gamma=AQ^{-1}$, (..., d, d), the minimiser of `preconditioned_gd_risk`.

    Zero mean: $[(1+\tfrac1L)\Sigma+\tfrac{\operatorname{tr}\Sigma+s_2}{L}I]^{-1}$. Centred, any mean:
    $[\Sigma+\tfrac{\operatorname{tr}\Sigma+s_2}{L}I]^{-1}$. Both commute with $\Sigma$.
    """
    A, p0, p1 = _moments(law, centred)
    Q = p0 + p1 / _lengths(law, length)[..., None, None]
    return np.swapaxes(np.linalg.solve(Q, np.broadcast_to(A, Q.shape)), -1, -2)  # (Q^-1 A)^T = A Q^-1: both symmetric


def best_centred_heads(law: RegressionLaw, *, length=None) -> tuple[Floats, Floats, Floats]:
    r"""Best matrix (..., d, d), best offset $a$, and their risk: all that heads of small scores can do with labels, optimised.

    With $G=[\Sigma+\tfrac{\operatorname{tr}\Sigma+s_2}{L}I]^{-1}$, $k=m^\top M^{-1}m$, $g=m^\top G\Sigma m$, $f=(L-1)/L$:

    $$ a=\frac{|m|^2-fg}{|m|^2+(\operatorname{tr}\Sigma+s_2)/L-fgk},\qquad \Gamma=(I-a\,M^{-1}mm^\top)\,G. $$
    """
    L, m, sigma = _lengths(law, length), law.mean_vector.numpy(), law.covariance_matrix.numpy()
    plain, aside = best_preconditioner(law, centred=True, length=length), np.linalg.solve(_second_moment(law), m)
    f, g = (L - 1) / L, np.einsum("i,...ij,jk,k->...", m, plain, sigma, m)
    a = (m @ m - f * g) / (_offset_spread(law, L) - f * g * (m @ aside))
    gamma = plain - a[..., None, None] * np.outer(aside, m) @ plain
    return gamma, a, preconditioned_gd_risk(law, gamma, centred=True, offset=a, length=length)


def linear_attention_risk(law: RegressionLaw, trained_length: int, *, normalised: bool, length=None) -> Floats:
    r"""Linear attention of the pattern $x_q^\top\Gamma\sum_iy_ix_i$, optimal at `trained_length` $L_0$, used at `length`.

    Raw sum: the sum is L terms of a fixed size, so its step is $\Gamma(L_0)L/L_0$; `normalised` (1/L): $\Gamma(L_0)$ at every length.
    Isotropic: `gd_risk` with the step $\eta^*(L_0)L/L_0$ or $\eta^*(L_0)$.
    """
    L = _lengths(law, length)
    gamma = best_preconditioner(law, length=trained_length)
    scale = np.ones_like(L) if normalised else L / trained_length
    return preconditioned_gd_risk(law, scale[..., None, None] * gamma, length=L)


def softmax_floor(law: RegressionLaw, effective_step, *, offset=0.0) -> Floats:
    r"""Risk of two-number heads in the limit $L\to\infty$ at fixed $(\omega_h,\mu_h)$: depends on $\eta=\sum\omega_h\mu_h$, $a=\sum\mu_h$.

    Softmax tilts the covariates' law to the mean $m+\omega\Sigma x_q$, so
    $s_\beta^2\,\mathbb E|am+\eta\Sigma x_q-x_q|^2$; isotropic: $s_\beta^2d(1-\eta)^2$.
    """
    eta, a = _numbers(effective_step), _numbers(offset)
    sigma, m, moment = law.covariance_matrix.numpy(), law.mean_vector.numpy(), _second_moment(law)
    linear, square = np.trace(sigma @ moment), np.trace(sigma @ sigma @ moment)
    tilt = np.trace(moment) - 2 * eta * linear + eta**2 * square
    return law.beta_std**2 * (tilt + a**2 * (m @ m) - 2 * a * (m @ m - eta * (m @ sigma @ m)))


def opposite_pair_curvature(law: RegressionLaw, step, *, matrix=None) -> Floats:
    r"""Coefficient of $\omega^2$ in the exact risk of the heads $(\omega N,m)$, $(-\omega N,-m)$ with fixed $2\omega m=\eta$ = `step`.

    For $x\sim N(m,\Sigma)$, any $N$ = `matrix` (d, d; None: the identity), with $T=N^\top\Sigma N$, $S$ the symmetric part of $\Sigma N$,
    $P=N^\top\Sigma^2N$ and $[A,B]=\mathbb E[x^\top Ax\cdot x^\top Bx]$:

    $$ 2s_\beta^2\eta\tfrac{L-1}{L^2}\bigl\{[T,S]-\tfrac\eta L\bigl((L+2)[T,P]+(\operatorname{tr}\Sigma+s_2)[T,T]\bigr)\bigr\}. $$

    Isotropic, $N=I$: $2s_\beta^2\eta\,d(d+2)\tfrac{L-1}{L^2}[1-\tfrac{\eta}{L}(L+d+2+s_2)]$. The order 0 is `preconditioned_gd_risk` of the
    centred step $\eta N^\top$, the next one $\omega^4$. At the best centred step or matrix it is negative: some $\omega>0$ is better.
    """
    eta, L = _numbers(step), law.length
    N = _numbers(np.eye(law.d) if matrix is None else matrix)
    sigma, m, M = law.covariance_matrix.numpy(), law.mean_vector.numpy(), _second_moment(law)
    T, P, S = N.T @ sigma @ N, N.T @ sigma @ sigma @ N, (sigma @ N + N.T @ sigma) / 2

    def product(a: Floats, b: Floats) -> float:
        """E[x'ax x'bx] for x ~ N(m, Sigma) and symmetric a, b."""
        pairs = np.trace(a @ M) * np.trace(b @ M) + 2 * np.trace(a @ M @ b @ M)
        return float(pairs - 2 * (m @ a @ m) * (m @ b @ m))

    noise = (L + 2) * product(T, P) + (np.trace(sigma) + law.noise_variance) * product(T, T)
    return 2 * law.beta_std**2 * eta * (L - 1) / L**2 * (product(T, S) - eta / L * noise)


# The best possible predictor: ridge with penalty s2


def bayes_risk_leading_order(law: RegressionLaw, *, length=None) -> Floats:
    r"""$s_\beta^2s_2\,d/(L-d-1)$: leading order of the Bayes risk for small noise; zero mean, any covariance; inf for $L\le d+1$.

    Exactly the risk of least squares, hence an upper bound of the Bayes risk at every noise.
    """
    L = _lengths(law, length)
    excess = law.beta_std**2 * law.noise_variance * law.d / np.where(law.d + 1 < L, L - law.d - 1, 1.0)
    return np.where(law.d + 1 < L, excess, np.inf)[()]


def bayes_risk_lower_bound(law: RegressionLaw, *, length=None) -> Floats:
    r"""$s_\beta^2s_2\operatorname{tr}[M(LM+s_2I)^{-1}]$: no predictor has a smaller risk; isotropic: $s_\beta^2s_2d/(L+s_2)$."""
    spectrum = np.linalg.eigvalsh(_second_moment(law))
    L, s2 = _lengths(law, length), law.noise_variance
    return law.beta_std**2 * s2 * (spectrum / (L[..., None] * spectrum + s2)).sum(-1)


def bayes_risk_proportional(law: RegressionLaw) -> Floats:
    r"""Limit $d,L\to\infty$ of the Bayes risk at fixed $\xi=d/L$ and $\sigma$ = `noise_std`; isotropic laws only.

    $$ \tfrac12 s_\beta^2d\,\Bigl[\sqrt{A^2+4\sigma^2}-A\Bigr],\qquad A=\tfrac{1-\xi}{\xi}+\sigma^2. $$

    Source: authors' code (which adds $\sigma^2$, the noise of its target); re-derived, and with an error bound: `bayes_risk_bounds`.
    """
    return _ridge_level(law, law.length)


def bayes_risk_bounds(law: RegressionLaw, *, length=None) -> tuple[Floats, Floats]:
    r"""Two bounds of the Bayes risk that hold for every d, L >= 1 and noise: `bayes_risk_proportional` at L + 1 and at L - 1.

    In units of $s_\beta^2$ they are $B(L\pm1)$, $B(L)=\tfrac12[\sqrt{(L-d+s_2)^2+4ds_2}-(L-d+s_2)]$, and differ by less than 2.
    Isotropic laws only.
    """
    L = _lengths(law, length)
    return _ridge_level(law, L + 1), _ridge_level(law, L - 1)


def bayes_factor_proportional(ratio, variance) -> Floats:
    r"""Risk of the best centred step over the Bayes risk, $d,L\to\infty$ at $\xi=d/L$ = `ratio` and $\sigma^2$ = `variance`, both > 0.

    $$ \varrho=\frac{(1+\sigma^2)\,[u+\sqrt{u^2+4\xi^2\sigma^2}]}{2\sigma^2\,[1+\xi(1+\sigma^2)]},\qquad u=1-\xi+\xi\sigma^2. $$
    """
    xi, noise = _numbers(ratio), _numbers(variance)
    u = 1 - xi + xi * noise
    root = np.sqrt(u**2 + 4 * xi**2 * noise)
    # u + root without cancellation
    both = np.where(u > 0, u + root, 4 * xi**2 * noise / np.where(u > 0, 1.0, root - u))
    return (1 + noise) * both / (2 * noise * (1 + xi * (1 + noise)))


def gd_risk_proportional(law: RegressionLaw) -> float:
    r"""Limit $d,L\to\infty$ of `gd_optimal_risk` and `debiased_gd_optimal_risk`: $s_\beta^2d[1-1/(1+\xi(1+\sigma^2))]$.

    Isotropic laws only. Source: authors' code (which adds $\sigma^2$); derived.
    """
    load = law.d / law.length * (1 + law.noise_std**2)
    return law.beta_std**2 * law.d * load / (1 + load)


# Shared pieces


def _ridge_level(law, L):
    """s_beta^2 B(L), L >= 0: the formula of `bayes_risk_proportional` and of `bayes_risk_bounds`."""
    s2 = law.noise_variance
    a = L - law.d + s2
    root = np.sqrt(a**2 + 4 * law.d * s2)
    # root - a cancels for a > 0, where the noise is small: multiply by root + a.
    small = 4 * law.d * s2 / np.where(a > 0, root + a, 1.0)
    return law.beta_std**2 * np.where(a > 0, small, root - a)[()] / 2


def _second_moment(law):
    m = law.mean_vector.numpy()
    return law.covariance_matrix.numpy() + np.outer(m, m)


def _moments(law, centred):
    """A, P_0, P_1 of the table on top."""
    sigma, m, s2 = law.covariance_matrix.numpy(), law.mean_vector.numpy(), law.noise_variance
    if centred:
        return sigma, sigma @ sigma, (np.trace(sigma) + s2) * sigma
    M = sigma + np.outer(m, m)
    return M, M @ M, M @ M + (np.trace(M) + s2) * M - 2 * (m @ m) * np.outer(m, m)


def _step_coefficients(law, L, centred):
    """tr(M A) and tr(M Q): the linear and the square coefficient of a scalar step, over f."""
    moment, (A, p0, p1) = _second_moment(law), _moments(law, centred)
    return float(np.trace(moment @ A)), np.trace(moment @ p0) + np.trace(moment @ p1) / L


def _offset_spread(law, L):
    """E |mean of the covariates|^2 + s2 / L: the square coefficient of an offset."""
    m = law.mean_vector.numpy()
    return m @ m + (np.trace(law.covariance_matrix.numpy()) + law.noise_variance) / L


def _scalar_step_risk(law, step, length, *, centred):
    eta, L = _numbers(step), _lengths(law, length)
    first, second = _step_coefficients(law, L, centred)
    f = (L - 1) / L if centred else 1.0
    return law.beta_std**2 * (np.trace(_second_moment(law)) + f * (eta**2 * second - 2 * eta * first))


def _optimal_step(law, length, *, centred):
    first, second = _step_coefficients(law, _lengths(law, length), centred)
    return first / second


def _numbers(value):
    return np.asarray(value, dtype=np.float64)


def _lengths(law, length):
    return _numbers(law.length if length is None else length)
