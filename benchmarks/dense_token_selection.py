"""Token selection with dense W and p in plain numpy: readable, well ordered, and what speed is measured against.

Well ordered means: $X(W^\\top p)$, never $(XW^\\top)p$, and the rank-one update of W in place. A step reads or writes W three times.
"""

from __future__ import annotations

import numpy as np
from scipy.special import expit, softmax

__all__ = ["descend"]


def descend(tokens, labels, head, weight, prompt, step_size: float, steps: int):
    """Gradient descent on W (d, d) and p (d,), both changed in place; tokens (n, T, d). Returns the last scores (n, T)."""
    n, T, d = tokens.shape
    rows, readings = tokens.reshape(n * T, d), tokens @ head
    for _ in range(steps):
        s = softmax((rows @ (weight.T @ prompt)).reshape(n, T), axis=1)
        f = (s * readings).sum(1, keepdims=True)
        y = labels[:, None]
        pull = (expit(-y * f) * y / n * s * (readings - f)).ravel() @ rows
        step = weight @ pull
        weight += np.outer(step_size * prompt, pull)
        prompt += step_size * step
    return (rows @ (weight.T @ prompt)).reshape(n, T)
