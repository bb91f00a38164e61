r"""The joint problem of H heads: min $\sum_h |v_h|^2 + |p_h|^2$ subject to $y_i f(X_i) \ge \gamma$.

Only the logits $z_{hi} = p_h\cdot(u_i - \xi_i)$ matter, and the shortest $p_h$ with given logits has $|p_h|^2 = z_h^\top M^{-1} z_h$, M the
Gram matrix of $u_i - \xi_i$. With the exact SVM of the soft selections $\sigma(z_h)$ inside,

$$ J_H(\gamma) = \min_z\; \gamma^2 |v(\sigma(z))|^2 + \sum_h z_h^\top M^{-1} z_h . $$

Equal heads give $J_H(\gamma) \le H J_1(\gamma/H)$ (derived); that nothing is much better is a conjecture. Needs scipy.
"""

import numpy as np

from attnbook.open_questions.margin_and_descent.gram import SelectionGram, multipliers
from attnbook.open_questions.margin_and_descent.margin import norm_gradient
from attnbook.single_head.svm import NotConverged, NotSeparable, hard_margin
from attnlib import checks
from attnlib.randomness import stream

_WALL = 1e12  # value where attention is so hard on a bad selection that no v exists in float64


def _difference_gram(gram: SelectionGram, labels: np.ndarray) -> np.ndarray:
    """M_ij = (u_i - xi_i).(u_j - xi_j), (n, n): the signs of the labels undone."""
    labels = np.asarray(labels, dtype=float)
    if labels.shape != (gram.n,) or not (np.abs(labels) == 1).all():
        raise ValueError(f"labels must be {gram.n} numbers +1 or -1; got {labels}")
    return (gram.signal + gram.noise) * np.outer(labels, labels)


def attention_norm(gram: SelectionGram, labels: np.ndarray, selection: np.ndarray) -> float:
    """|p| of the query's SVM: the shortest p whose logits favour the selected tokens of `selection` (n,) by 1."""
    sign = 2 * np.asarray(selection, dtype=float) - 1
    values, vectors = np.linalg.eigh(_difference_gram(gram, labels))
    return hard_margin(vectors * np.sqrt(values.clip(0)), sign).norm


def joint_value(
    gram: SelectionGram, inverse: np.ndarray, margin: float, logits: np.ndarray
) -> tuple[float, np.ndarray]:
    r"""The objective at logits (H, n) and its gradient (H, n); `inverse` is $M^{-1}$."""
    s = 1 / (1 + np.exp(-np.clip(logits, -40, 40)))[None]
    try:
        alpha = multipliers(gram.of(s))
    except (NotConverged, NotSeparable):
        alpha = np.full((1, gram.n), np.inf)
    if not np.isfinite(alpha).all():
        return _WALL, np.zeros_like(logits)
    # With respect to the logits z_h: ds/dz = s (1 - s) for the first term, and d(z'M^-1 z)/dz = 2 M^-1 z for the second.
    slope = margin**2 * norm_gradient(gram, s, alpha)[0] * (s * (1 - s))[0] + 2 * logits @ inverse
    return float(margin**2 * alpha.sum() + (logits @ inverse * logits).sum()), slope


def joint_cost(
    gram: SelectionGram, labels: np.ndarray, heads: int, margin: float, selection: np.ndarray, *, seed: int = 0
) -> tuple[float, np.ndarray]:
    """J_H(margin) as found by L-BFGS from several starts, and the norms |p_h| (H,).

    Starts: no attention; one head or all heads towards `selection`; random logits. Raises ValueError for a bad argument.
    """
    from scipy.optimize import minimize

    checks.whole_number("heads", heads, at_least=1)
    checks.positive_number("margin", margin)
    inverse = np.linalg.inv(_difference_gram(gram, labels))
    sign = 2 * np.asarray(selection, dtype=float) - 1
    starts = [np.zeros((heads, gram.n))]
    starts += [np.outer(np.arange(heads) < k, sign) for k in sorted({1, heads})]
    starts.append(stream(seed, "search").standard_normal((heads, gram.n)))
    shape = (heads, gram.n)

    def objective(z: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = joint_value(gram, inverse, margin, z.reshape(shape))
        return value, slope.ravel()

    done = [
        minimize(objective, z.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": 300, "ftol": 1e-12})
        for z in starts
    ]
    best = min(done, key=lambda end: end.fun)
    logits = best.x.reshape(shape)
    return float(best.fun), np.sqrt((logits @ inverse * logits).sum(1))
