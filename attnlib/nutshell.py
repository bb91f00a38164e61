"""One softmax head that fits flipped labels in two steps, in numpy and scipy alone. `python attnlib/nutshell.py` prints its numbers.

`attnlib.single_head` computes the same; a test holds the two together at 1e-12, and book/single_head_theory.md has the proofs. Letters:
n samples in dimension d, signals of norm rho, labels flipped with probability eta, step size beta. A sample has two tokens, signal first.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import expit, log_ndtr, logsumexp

Array = NDArray[np.float64]


def draw(n: int, d: int, rho: float, eta: float, seed: int, run: int) -> tuple[Array, Array, Array]:
    """Training set number `run`: tokens X (n, 2, n + 2), true labels and observed labels (n,). Needs d >= n + 2.

    Training sees only inner products of tokens. So the noise is drawn in n coordinates in which it is triangular (Bartlett's
    decomposition): exactly the law of Gaussian vectors in the d - 2 dimensions orthogonal to both signals.
    """
    bits = [np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(role, run))) for role in range(3)]
    classes, flips, noise = map(np.random.Generator, bits)
    k = classes.integers(0, 2, n)  # 0 holds mu_1 = (rho, 0, 0, ...), 1 holds mu_2 = (0, rho, 0, ...)
    truth = np.where(k == 0, 1.0, -1.0)
    X = np.zeros((n, 2, n + 2))
    X[np.arange(n), 0, k] = rho
    X[:, 1, 2:] = np.tril(noise.standard_normal((n, n)), -1) + np.diag(np.sqrt(noise.chisquare(d - 2 - np.arange(n))))
    return X, truth, np.where(flips.random(n) < eta, -truth, truth)


def head(X: Array, v: Array, p: Array) -> tuple[Array, Array, Array]:
    """Attention s (n, 2), the values v.x of the tokens (n, 2), and the outputs, sums of s v.x (n,)."""
    scores = X @ p
    s = np.exp(scores - scores.max(1, keepdims=True))
    s /= s.sum(1, keepdims=True)
    values = X @ v
    return s, values, (s * values).sum(1)


def train(X: Array, y: Array, beta: float, steps: int) -> tuple[Array, Array]:
    """Gradient descent on the mean of log(1 + exp(-y f)) from v = p = 0; both vectors move at once."""
    v = p = np.zeros(X.shape[2])
    for _ in range(steps):
        s, values, f = head(X, v, p)
        pull = y * expit(-y * f) / len(y)  # minus the slope of the loss in f
        toward_v = np.einsum("i,it,itm->m", pull, s, X)
        toward_p = np.einsum("i,it,itm->m", pull, s * (values - f[:, None]), X)
        v, p = v + beta * toward_v, p + beta * toward_p
    return v, p


def two_steps(X: Array, y: Array, beta: float) -> tuple[Array, Array]:
    """The same v and p after two steps, in closed form."""
    u, xi, unit = X[:, 0], X[:, 1], beta / (4 * len(y))
    v1 = unit * y @ (u + xi)  # and p = 0
    g = expit(-y * ((u + xi) @ v1) / 2)
    return unit * (y * (1 + 2 * g)) @ (u + xi), unit * (g * y * ((u - xi) @ v1)) @ (u - xi)


def log10_error(v: Array, p: Array, rho: float) -> float:
    """log10 of the exact clean error: the probability that the head gets the true label of a fresh sample wrong."""
    omega = float(np.linalg.norm(p[2:]))  # the score p.xi of fresh noise is -omega z, with z standard normal
    along = -float(v[2:] @ p[2:]) / omega if omega else 0.0  # its value v.xi is along z + tau z', z' another one
    tau = float(v[2:] @ v[2:] - along**2) ** 0.5
    logs = [log_error(rho * p[k], sign * rho * v[k], omega, sign * along, tau) for k, sign in ((0, 1), (1, -1))]
    return float((logsumexp(logs) - np.log(2)) / np.log(10))


def log_error(score: float, value: float, omega: float, along: float, tau: float) -> float:
    """Natural logarithm of E Phi(-(exp(score + omega z) value + along z) / tau), with the score and the value of the signal."""
    side = 1 if value > 0 else -1  # if the signal's value is negative, to be right is the small probability

    def height(z: Array) -> Array:  # logarithm of the integrand: concave, and curved at least as much as -z^2/2
        ratio = np.exp(np.minimum(score + omega * z, 600))  # attention on the signal over attention on the noise
        return np.asarray(log_ndtr(-side * (ratio * value + along * z) / tau) - z * z / 2 - np.log(2 * np.pi) / 2)

    z = minimize_scalar(lambda z: -height(z), bracket=(-1, 1), tol=1e-12).x + np.linspace(-9.5, 9.5, 2001)
    log_integral = logsumexp(height(z)) + np.log(z[1] - z[0])  # further out the integrand is below e^-45 of its top
    return float(log_integral if side > 0 else np.log1p(-np.exp(log_integral)))


if __name__ == "__main__":
    for n, d, rho, eta, beta in ((200, 40_000, 30.0, 0.05, 0.025), (60, 40_000, 3000**0.5, 0.05, 0.0075)):
        print(f"n = {n}, d = {d}, rho = {rho:.2f}, eta = {eta}, beta = {beta}; 40 training sets")
        sets = [draw(n, d, rho, eta, seed=0, run=run) for run in range(40)]
        for steps in (1, 2):
            heads = [train(X, y, beta, steps) for X, _, y in sets]
            fit = sum((y * head(X, v, p)[2] > 0).all() for (X, _, y), (v, p) in zip(sets, heads, strict=True))
            error = np.median([log10_error(v, p, rho) for v, p in heads])
            print(f"  after step {steps}: {fit} of 40 fit every label, median clean error 10^{error:.2f}")
