r"""What heads are compared with: predictors that are weighted sums of the labels.

$$ \hat y = \sum_i c_i\,y_i, \qquad c_i = c_i(x_1,\dots,x_L,x_q) $$

| function | $c_i$ |
|---|---|
| `kernel_weights` | $\sum_h\mu_h\,\mathrm{softmax}_i(\omega_h\langle x_i,x_q\rangle)$ |
| `gradient_step` | $\tfrac{\eta}{L}\langle x_i,x_q\rangle$ |
| `debiased_step` | $\tfrac{\eta}{L}\langle x_i-\bar x,x_q\rangle$ |
| `preconditioned_weights` | $\tfrac1L\,x_q^\top\Gamma x_i$, or with $x_i-\bar x$ |
| `ridge_weights` | $x_q^\top(X^\top X+\lambda I)^{-1}x_i$ |

The second is one step of gradient descent, of size $\eta$ and from 0, on $\tfrac1{2L}\sum_i(y_i-\langle x_i,w\rangle)^2$. What is called
`..._weights` has a counterpart that returns predictions. Weights do not depend on the labels, so that the mean over $\beta$ and the
label noise can be taken by hand (`attnlib.in_context.errors.conditional_risk`). Everything is float64, and leading axes of prompts, of
heads and of steps broadcast. Best steps are in `closed_form` (`gd_optimal_step`, `debiased_gd_optimal_step`, `best_preconditioner`).
Source: kernel, one step and centred step, ridge from the authors' code; the other formulas and all risks are derived in the theory
chapter of Part III.
"""

import torch

from attnlib import checks
from attnlib.attention import attention_weights
from attnlib.device import one_thread
from attnlib.in_context.law import Prompts, RegressionLaw

# Weights of the labels


@checks.checked
def kernel_weights(prompts: Prompts, omega: object, mu: object) -> torch.Tensor:
    r"""$c_i=\sum_h\mu_h\,\mathrm{softmax}_i(\omega_h\langle x_i,x_q\rangle)$, (..., B, L).

    omega, mu: (..., H), finite and of one shape. Raises ValueError otherwise.
    """
    omega, mu = checks.numbers("omega", omega), checks.numbers("mu", mu)
    if omega.ndim < 1 or omega.shape != mu.shape:
        raise ValueError(
            f"omega and mu must have one shape (..., heads); got {tuple(omega.shape)} and {tuple(mu.shape)}"
        )
    similarity = _similarity(prompts.x, prompts.query).unsqueeze(-3)  # (..., 1, B, L)
    weights = attention_weights(omega[..., None, None] * similarity)
    return torch.einsum("...h,...hbl->...bl", mu, weights)


@checks.checked
def preconditioned_weights(prompts: Prompts, preconditioner: object, *, centred: bool = False) -> torch.Tensor:
    r"""$c_i=\tfrac1L\,x_q^\top\Gamma x_i$, (..., B, L); with $x_i-\bar x$ if `centred`.

    preconditioner: $\Gamma$, (..., d, d), any matrix. $\Gamma=\eta I$ gives the weights of `gradient_step` and `debiased_step`.
    Raises ValueError for another shape.
    """
    gamma, d = checks.numbers("preconditioner", preconditioner), prompts.x.shape[-1]
    if gamma.shape[-2:] != (d, d):
        raise ValueError(f"preconditioner must have shape (..., {d}, {d}); got {tuple(gamma.shape)}")
    similarity = _similarity(prompts.x, torch.einsum("...bi,...ij->...bj", prompts.query, gamma))
    if centred:
        similarity = similarity - similarity.mean(-1, keepdim=True)
    return similarity / prompts.length


@checks.checked
def ridge_weights(prompts: Prompts, penalty: object) -> torch.Tensor:
    r"""$c_i=x_q^\top(X^\top X+\lambda I)^{-1}x_i$, (..., B, L); $\lambda$ = `penalty` >= 0, one number.

    At $\lambda=0$ the pseudo-inverse: least squares, and the interpolation of least norm where $L<d$. No division by a small eigenvalue of
    $X^\top X$ in directions that the prompt does not show.
    """
    penalty = checks.not_negative("penalty", penalty)
    squares, directions = _spectrum(prompts.x)
    divisor = squares + penalty
    inverse = torch.where(divisor > _tiny(squares), 1 / divisor, torch.zeros_like(divisor))
    seen = torch.einsum("...bi,...bik->...bk", prompts.query, directions) * inverse
    return _similarity(prompts.x, torch.einsum("...bk,...bik->...bi", seen, directions))


# Predictions


@checks.checked
@one_thread
def kernel_estimator(prompts: Prompts, omega: object, mu: object) -> torch.Tensor:
    r"""Predictions of heads with two numbers each: a sum of Nadaraya-Watson estimators.

    $$ \hat y = \sum_h\mu_h\sum_iy_i\,\mathrm{softmax}_i(\omega_h\langle x_i,x_q\rangle) $$

    Args:
        prompts: (..., B).
        omega: $\omega$, (..., H), finite.
        mu: $\mu$, of the same shape.

    Returns:
        predictions, (..., B), float64.

    Raises:
        ValueError: omega and mu are not finite numbers of one shape.

    Source:
        the authors' code for arXiv 2503.12734.

    Example:
        >>> prompts = RegressionLaw(d=5, length=40).draw(8, seed=0)
        >>> kernel_estimator(prompts, omega=[0.1, -0.1], mu=[5.0, -5.0]).shape
        torch.Size([8])
    """
    return _sum(kernel_weights(prompts, omega, mu), prompts)


@checks.checked
@one_thread
def gradient_step(prompts: Prompts, step: object) -> torch.Tensor:
    r"""Predictions of one step of gradient descent from zero on the prompt's own examples.

    $$ \hat y = \tfrac{\eta}{L}\sum_iy_i\langle x_i,x_q\rangle $$

    Args:
        prompts: (..., B).
        step: $\eta$, (...), any sign; 1 in the authors' notebook.

    Returns:
        predictions, (..., B), float64.

    Raises:
        ValueError: step holds something that is not a finite number.

    Source:
        the authors' code for arXiv 2503.12734.

    Example:
        >>> prompts = RegressionLaw(d=5, length=40).draw(8, seed=0)
        >>> gradient_step(prompts, 1.0).shape
        torch.Size([8])
    """
    return _sum(
        checks.numbers("step", step)[..., None, None] * _similarity(prompts.x, prompts.query) / prompts.length, prompts
    )


@checks.checked
def debiased_step(prompts: Prompts, step: object) -> torch.Tensor:
    r"""$\tfrac{\eta}{L}\sum_iy_i\langle x_i-\bar x,x_q\rangle$, (..., B): the limit of opposite heads whose $\omega_h$ go to 0.

    One step on centred covariates *and* centred labels, with an intercept that stays at zero.
    """
    similarity = _similarity(prompts.x, prompts.query)
    centred = similarity - similarity.mean(-1, keepdim=True)
    return _sum(checks.numbers("step", step)[..., None, None] * centred / prompts.length, prompts)


@checks.checked
def preconditioned_step(prompts: Prompts, preconditioner: object, *, centred: bool = False) -> torch.Tensor:
    r"""$\tfrac1L\,x_q^\top\Gamma\sum_iy_ix_i$, (..., B); with $x_i-\bar x$ if `centred`."""
    return _sum(preconditioned_weights(prompts, preconditioner, centred=centred), prompts)


@checks.checked
@one_thread
def ridge(prompts: Prompts, penalty: object) -> torch.Tensor:
    r"""Predictions of ridge regression on the prompt's own examples; the Bayes rule for the right penalty.

    $$ \hat y = x_q^\top(X^\top X+\lambda I)^{-1}X^\top y $$

    At $\lambda=0$ the pseudo-inverse: least squares, and the interpolation of least norm where $L<d$. At $\lambda$ = `law.noise_variance`
    no prediction has a smaller risk.

    Args:
        prompts: (..., B).
        penalty: $\lambda$ >= 0, one number.

    Returns:
        predictions, (..., B), float64.

    Raises:
        ValueError: penalty is not a finite number >= 0.

    Source:
        standard; as the Bayes rule derived in `book/in_context_theory`.

    Example:
        >>> law = RegressionLaw(d=5, length=40, noise_std=0.0)
        >>> bool(((ridge(law.draw(8, seed=0), 0.0) - law.draw(8, seed=0).target).abs() < 1e-9).all())  # no noise: exact
        True
    """
    return _sum(ridge_weights(prompts, penalty), prompts)


@checks.checked
def bayes_prediction(prompts: Prompts, law: RegressionLaw) -> torch.Tensor:
    r"""$\mathbb E[\langle x_q,\beta\rangle\mid\text{prompt}]$, (..., B): ridge with penalty $s_2$ (`law.noise_variance`).

    Exact for every covariance and mean of the covariates, because $\beta$ is isotropic whatever they are.
    """
    law.check(prompts)
    return ridge(prompts, law.noise_variance)


# Risk given the covariates


@checks.checked
def bayes_risk(x: torch.Tensor, law: RegressionLaw) -> torch.Tensor:
    r"""The smallest possible risk given the examples' covariates x (..., L, d), averaged over the query too: (...).

    $$ s_\beta^2\operatorname{tr}\big[s_2(X^\top X+s_2I)^{-1}(\Sigma+mm^\top)\big] $$

    Directions that the prompt does not show ($L<d$) count in full. At $s_2=0$ they are all that counts.
    """
    checks.tensor("x", x, (*x.shape[:-2], "L", law.d), finite=True)
    squares, directions = _spectrum(x)
    s2, mean = law.noise_variance, law.mean_vector
    moment = law.covariance_matrix + torch.outer(mean, mean)
    in_moment = torch.einsum("...ik,ij,...jk->...k", directions, moment, directions)
    unseen = moment.trace() - in_moment.sum(-1) if squares.shape[-1] < law.d else 0.0
    blind = torch.where(squares > _tiny(squares), s2 / (squares + s2), torch.ones_like(squares))
    return law.beta_std**2 * ((blind * in_moment).sum(-1) + unseen)


# Shared pieces


def _similarity(x: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
    """<x_i, direction>: (..., B, L, d) and (..., B, d) -> (..., B, L)."""
    return torch.einsum("...bli,...bi->...bl", x, direction)


def _sum(weights: torch.Tensor, prompts: Prompts) -> torch.Tensor:
    return (weights * prompts.y).sum(-1)


def _spectrum(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Squared singular values (..., k) and right singular vectors (..., d, k) of x (..., L, d), k = min(L, d).

    Long prompts through X'X, which is well conditioned there and d x d; short ones through X itself, whose condition is not squared.
    """
    length, d = x.shape[-2:]
    if length > 4 * d:
        squares, directions = torch.linalg.eigh(x.mT @ x)
        return torch.where(squares > squares.amax(-1, keepdim=True) * 1e-14, squares, 0.0), directions
    _, values, rows = torch.linalg.svd(x, full_matrices=False)
    return values.square(), rows.mT


def _tiny(squares: torch.Tensor) -> torch.Tensor:
    """What counts as a direction not shown: eigenvalues below rounding of the largest, (..., 1)."""
    return squares.amax(-1, keepdim=True) * 1e-26
