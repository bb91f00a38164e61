r"""The approximate population loss of heads with two numbers each, and its gradient flow.

Head h has one scale $\omega_h$ of its key-query circuit and one entry $\mu_h$ of its output-value circuit. With $c=(1+\sigma^2)/L$,

$$ \tilde L(\omega,\mu) = 1+\sigma^2-2\mu^\top\omega+\mu^\top A\mu,\qquad A=\omega\omega^\top+c\,\exp(d\,\omega\omega^\top) $$

(exp entry by entry). UNITS: always those of the repository's convention, with the noise of the target: risk plus $\sigma^2$, whatever
the law's convention; `approximate_risk` converts. Only d, length and noise_std of the law are used; covariates must be N(0, I).
With the moments $m_k=\sum_h\mu_h\omega_h^k$ it reads $1+\sigma^2-2m_1+m_1^2+c\sum_{k\ge0}\tfrac{d^k}{k!}m_k^2$.

TIME: the flow descends $\tilde L/2$, as in the authors' code. Gradient descent on $\tilde L$ with a small learning rate is at time
2 * learning_rate * steps.

`omega` and `mu` are (..., H): tensors, arrays or lists, taken as float64. Sources: the formula of the
loss, its minimiser in mu and its flow: authors' code; how it comes about, its error and all consequences: derived in the theory
chapter of Part III.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch

from attnlib.in_context.law import RegressionLaw

# The loss


def approximate_loss(law: RegressionLaw, omega, mu) -> torch.Tensor:
    """The approximate loss, (...): repository units, noise of the target included."""
    c, (omega, mu) = _noise_share(law), _heads(omega, mu)
    moment = (mu * omega).sum(-1)
    return 1 + law.noise_std**2 - 2 * moment + moment**2 + c * (mu * _overlap(law, omega, mu)).sum(-1)


def approximate_risk(law: RegressionLaw, omega, mu) -> torch.Tensor:
    """The approximate loss as a risk in the law's own units, to be laid beside `closed_form`: (loss - sigma^2) d beta_std^2."""
    return (approximate_loss(law, omega, mu) - law.noise_std**2) * law.d * law.beta_std**2


def approximate_gradient(law: RegressionLaw, omega, mu) -> tuple[torch.Tensor, torch.Tensor]:
    r"""Gradients of the approximate loss in omega and in mu, each (..., H).

    $$ \tfrac12\partial_\mu\tilde L=A\mu-\omega,\qquad
       \tfrac12\partial_\omega\tilde L=(\mu^\top\omega-1)\mu+cd\,[\exp(d\omega\omega^\top)\circ\mu\mu^\top]\,\omega. $$
    """
    c, (omega, mu) = _noise_share(law), _heads(omega, mu)
    excess = (mu * omega).sum(-1, keepdim=True) - 1
    in_omega = excess * mu + c * law.d * mu * _overlap(law, omega, mu * omega)
    return 2 * in_omega, 2 * (excess * omega + c * _overlap(law, omega, mu))


def best_mu(law: RegressionLaw, omega) -> torch.Tensor:
    r"""$\mu^*(\omega)=A^{-1}\omega$, (..., H), the minimiser in mu at fixed omega; where heads coincide, the one of smallest norm."""
    c, (omega, _) = _noise_share(law), _heads(omega, omega)
    product = omega.unsqueeze(-1) * omega.unsqueeze(-2)
    matrix = product + c * torch.exp(law.d * product)
    inverse = torch.linalg.pinv(matrix, hermitian=True, rtol=1e-14)
    return (inverse @ omega.unsqueeze(-1)).squeeze(-1)


def best_loss(law: RegressionLaw, omega) -> torch.Tensor:
    r"""$1+\sigma^2-\omega^\top A^{-1}\omega$, (...): the approximate loss at `best_mu`."""
    omega, mu = _heads(omega, best_mu(law, omega))
    return 1 + law.noise_std**2 - (omega * mu).sum(-1)


# One head, and a pair of opposite heads


@dataclass(frozen=True)
class OneHead:
    """Minimum of the approximate loss with one head; (-omega, -mu) is the other."""

    omega: float  # 1 / sqrt(d)
    mu: float  # sqrt(d) / (1 + d c e)
    loss: float  # 1 + sigma^2 - 1 / (1 + d c e)


def one_head_optimum(law: RegressionLaw) -> OneHead:
    r"""$\omega=1/\sqrt d$, $\mu=\sqrt d/(1+dce)$, e Euler's number: the minimum also over any number of heads with all $\mu_h\ge0$."""
    step = 1 / (1 + law.d * _noise_share(law) * math.e)
    return OneHead(1 / math.sqrt(law.d), math.sqrt(law.d) * step, 1 + law.noise_std**2 - step)


def pair_best_mu(law: RegressionLaw, a) -> torch.Tensor:
    r"""$m^*=a/\{2[a^2+c\sinh(da^2)]\}$, the best m of a pair with scale $a\ne0$."""
    c, a = _noise_share(law), _tensor(a)
    return a / (2 * (a**2 + c * torch.sinh(law.d * a**2)))


def pair_best_loss(law: RegressionLaw, a) -> torch.Tensor:
    r"""$1+\sigma^2-2am^*$, increasing in $|a|$: near 0 it is $1+\sigma^2-1/(1+dc)$ plus $c\tilde\eta^2d^3a^4/6$."""
    a = _tensor(a)
    return 1 + law.noise_std**2 - 2 * a * pair_best_mu(law, a)


def pair_limit_step(law: RegressionLaw) -> float:
    r"""$\tilde\eta=1/(1+dc)=L/(L+d+s_2)$: limit of the pair's effective step $2am^*$ for $a\to0$; exactly debiased GD's best step."""
    return 1 / (1 + law.d * _noise_share(law))


def creep_of_the_pair(law: RegressionLaw, time) -> torch.Tensor:
    r"""$a(t)\approx(4cd^3t)^{-1/6}$: how slowly the flow carries a pair down the valley; leading order for large t."""
    return (4 * _noise_share(law) * law.d**3 * _tensor(time)) ** (-1 / 6)


# The start


def growth_rates(law: RegressionLaw, heads: int) -> tuple[float, float]:
    r"""Rates of the linearised flow at 0: of modes with $\sum_h\mu_h=\sum_h\omega_h=0$ and of the mode of equal heads.

    1 and $(\sqrt{H^2c^2+4}-Hc)/2<1$. The first mode needs two heads.
    """
    damping = heads * _noise_share(law)
    return 1.0, (math.sqrt(damping**2 + 4) - damping) / 2


def linear_start(law: RegressionLaw, omega, mu, time: float) -> tuple[torch.Tensor, torch.Tensor]:
    r"""Solution at `time` of $\dot\mu=\omega-c(\sum_h\mu_h)\mathbf 1$, $\dot\omega=\mu$ from (omega, mu): two tensors (..., H).

    Zero-sum part: $\mu\pm\omega$ times $e^{\pm t}$. Mean part $(u,w)$: $\lambda_\pm$ the roots of $\lambda^2+Hc\lambda-1=0$, $w=\sum
    \alpha_\pm e^{\lambda_\pm t}$, $u=\dot w$.
    """
    omega, mu = _heads(omega, mu)
    w, u = omega.mean(-1, keepdim=True), mu.mean(-1, keepdim=True)
    _, rise = growth_rates(law, omega.shape[-1])
    fall = -1 / rise  # the product of the roots is -1
    up, down = (u - fall * w) / (rise - fall), (rise * w - u) / (rise - fall)
    mean_omega = up * math.exp(rise * time) + down * math.exp(fall * time)
    mean_mu = rise * up * math.exp(rise * time) + fall * down * math.exp(fall * time)
    plus, minus = (mu - u) + (omega - w), (mu - u) - (omega - w)
    plus, minus = plus * math.exp(time), minus * math.exp(-time)
    return mean_omega + (plus - minus) / 2, mean_mu + (plus + minus) / 2


# The state in which all heads have one sign


def same_sign_eigenvalues(law: RegressionLaw) -> torch.Tensor:
    r"""Ascending eigenvalues (4,) of the Hessian at the same-sign point with two equal heads.

    0 (the split of mu), $cd^2e/(1+q)^2$ with $q=dce$ (the two scales apart), and those of
    $\begin{pmatrix}4(1+q)/d&2\\2&d(1+2q)/(1+q)^2+dq/(1+q)^2\end{pmatrix}$, whose determinant is $8q/(1+q)$.
    """
    d, q = law.d, law.d * _noise_share(law) * math.e
    apart = d * q / (1 + q) ** 2
    together = torch.tensor(
        [[4 * (1 + q) / d, 2.0], [2.0, d * (1 + 2 * q) / (1 + q) ** 2 + apart]], dtype=torch.float64
    )
    return torch.cat([torch.tensor([0.0, apart], dtype=torch.float64), torch.linalg.eigvalsh(together)]).sort().values


# Gradient flow


@dataclass(frozen=True)
class Flow:
    """Gradient flow of S starts at T moments."""

    times: torch.Tensor  # (T,)
    omega: torch.Tensor  # (T, S, H)
    mu: torch.Tensor  # (T, S, H)
    loss: torch.Tensor  # (T, S), approximate loss, repository units


def gradient_flow(law: RegressionLaw, omega, mu, times, *, tolerance=1e-9) -> Flow:
    """The flow on half the approximate loss from S starts, omega and mu (S, H), at increasing `times` >= 0 (the start is time 0).

    LSODA of scipy, stiff or not, on all starts at once; `tolerance` is its relative one. Raises RuntimeError if it gives up.
    """
    from scipy.integrate import solve_ivp

    omega, mu = _heads(omega, mu)
    moments = _tensor(times)
    starts, heads = omega.shape

    def velocity(_, state):
        both = torch.from_numpy(state).reshape(starts, 2, heads)
        in_omega, in_mu = approximate_gradient(law, both[:, 0], both[:, 1])
        return -0.5 * torch.stack([in_omega, in_mu], 1).reshape(-1).numpy()

    state, last = torch.stack([omega, mu], 1).reshape(-1).numpy(), float(moments[-1])
    if last == 0:
        path = state[:, None]
    else:  # a start only feels itself: the Jacobian is banded
        band = 2 * heads - 1
        answer = solve_ivp(
            velocity, (0.0, last), state, method="LSODA", t_eval=moments.numpy(), rtol=tolerance, atol=tolerance * 1e-3,
            lband=band, uband=band,
        )  # fmt: skip
        if not answer.success:
            raise RuntimeError(f"the flow could not be followed to time {last:g}: {answer.message}")
        path = answer.y
        if moments[0] == 0:
            path[:, 0] = state  # not its interpolation
    both = torch.from_numpy(np.ascontiguousarray(path.T)).reshape(len(moments), starts, 2, heads)
    return Flow(moments, both[:, :, 0], both[:, :, 1], approximate_loss(law, both[:, :, 0], both[:, :, 1]))


@dataclass(frozen=True)
class PhaseField:
    """Velocity of the flow and approximate loss on a grid: all (len(omega), len(mu))."""

    omega: torch.Tensor
    mu: torch.Tensor
    omega_velocity: torch.Tensor
    mu_velocity: torch.Tensor
    loss: torch.Tensor


def phase_field(law: RegressionLaw, omega, mu, *, kind="one head") -> PhaseField:
    """Phase portrait in the plane of (omega, mu), both 1-D: of "one head", or of the first head of an opposite "pair".

    The antisymmetric pair (omega, -omega, mu, -mu) stays one under the flow, so its plane holds all of its motion.
    """
    omega, mu = _tensor(omega), _tensor(mu)
    signs = {"one head": (1.0,), "pair": (1.0, -1.0)}[kind]
    first, second = torch.meshgrid(omega, mu, indexing="ij")
    heads = torch.tensor(signs, dtype=torch.float64)
    both = first[..., None] * heads, second[..., None] * heads
    in_omega, in_mu = approximate_gradient(law, *both)
    return PhaseField(first, second, -0.5 * in_omega[..., 0], -0.5 * in_mu[..., 0], approximate_loss(law, *both))


# Shared pieces


def _noise_share(law):
    """c = (1 + sigma^2) / L."""
    return (1 + law.noise_std**2) / law.length


def _overlap(law, omega, vector):
    """exp(d omega omega^T) times a vector, (..., H)."""
    return (torch.exp(law.d * omega.unsqueeze(-1) * omega.unsqueeze(-2)) * vector.unsqueeze(-2)).sum(-1)


def _tensor(value):
    return torch.as_tensor(value, dtype=torch.float64)


def _heads(omega, mu):
    return torch.broadcast_tensors(_tensor(omega), _tensor(mu))
