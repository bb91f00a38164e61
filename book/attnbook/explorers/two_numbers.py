r"""Data of the explorer "two numbers per head": moments of the exact risk as polynomials in omega, and the ends of stored trainings.

The exact risk of two-number heads is a quadratic form in mu (`in_context.reduced`) whose moments depend on the scales alone:

$$ \mathrm{risk}=d-2\mu^\top b+\mu^\top\bigl[G+(d-1+s_2)P\bigr]\mu,\quad
   G_{hk}=\mathbb E[\langle p^h,g\rangle\langle p^k,g\rangle],\quad P_{hk}=\mathbb E\langle p^h,p^k\rangle . $$

b is odd in omega, G and P do not change when both scales change their signs. Interpolated at Chebyshev nodes,
$b(\omega)=\sum_jb_jT_j(\omega/W)$ and $G(\omega,\omega')=\sum_{jk}G_{jk}T_j(\omega/W)T_k(\omega'/W)$ with $j+k$ even, so with
$v_j=\sum_h\mu_hT_j(\omega_h/W)$ the risk of any number of heads at any noise is $d-2b\cdot v+v^\top[G+(d-1+s_2)P]v$. G and P are told
apart by two calls of `reduced_moments` on the same draws, without noise and with $s_2=1$: the overlap is affine in $s_2$, exactly.

Standard errors: the deviations of the batches of prompts are a (batches x coefficients) matrix; its few main components, chosen on
typical heads, are stored as further quadratic forms, whose squares sum to the variance; there the odd coefficients are multiplied by
their degrees, because small scales see $T_j(x)\approx\pm jx$ for odd j and rounding would be magnified otherwise.
"""

import math

import numpy as np

from attnbook.explorers.bayes_table import BAYES_NODES, NOISE_RANGE, bayes_table
from attnbook.in_context import full_runs
from attnbook.in_context.reduced import BATCHES, PROMPTS, reduced_moments
from attnlib.in_context.law import RegressionLaw

LAWS = ((5, 40), (5, 10), (5, 160), (20, 40))  # (d, L); the first is the authors'
NODES = 96
UNIT, ERROR_UNIT = 1e-12, 1e-8  # coefficients are stored as whole multiples of these
COMPONENTS = 6


def data() -> dict:
    """All that the page needs beside closed forms. Minutes: every table is made of `PROMPTS` prompts."""
    return {
        "prompts": PROMPTS,
        "batches": BATCHES,
        "noise": list(NOISE_RANGE),
        "laws": [moment_table(d, length) | {"bayes": bayes_table(d, length, nodes=BAYES_NODES)} for d, length in LAWS],
        "ends": {str(heads): ends(heads) for heads in (1, 2)},
    }


def half_width(d: int) -> float:
    """W: |omega| of the tables goes up to 1.6 in units of sqrt(5/d)."""
    return 1.6 * math.sqrt(5 / d)


def moment_table(d: int, length: int, *, prompts: int = PROMPTS, nodes: int = NODES) -> dict:
    """Chebyshev coefficients of b (odd ones), G and P (lower triangles, j + k even) in units of `UNIT`, and of their errors."""
    reach = half_width(d)
    scales = reach * np.cos(np.pi * (np.arange(nodes) + 0.5) / nodes)
    quiet, noisy = (
        reduced_moments(scales, RegressionLaw(d, length, math.sqrt(s2 / d)), prompts=prompts) for s2 in (0.0, 1.0)
    )
    p = (noisy.overlap - quiet.overlap).numpy()
    return _encoded(d, length, quiet.gain.numpy(), quiet.overlap.numpy() - (d - 1) * p, p)


def _encoded(d: int, length: int, b: np.ndarray, g: np.ndarray, p: np.ndarray) -> dict:
    """Values at the nodes, (batches, nodes) and (batches, nodes, nodes), as rounded coefficients."""
    nodes, reach = b.shape[1], half_width(d)
    transform = 2 / nodes * np.cos(np.outer(np.arange(nodes), np.pi * (np.arange(nodes) + 0.5) / nodes))
    transform[0] /= 2
    b, g, p = b @ transform.T, transform @ g @ transform.T, transform @ p @ transform.T
    return {
        "d": d,
        "length": length,
        "reach": reach,
        "nodes": nodes,
        "unit": UNIT,
        "gain": _odd(b.mean(0), UNIT),
        "along": _rows(g.mean(0), UNIT),
        "across": _rows(p.mean(0), UNIT),
        "errors": {"unit": ERROR_UNIT, "parts": _error_parts(d, reach, b, g, p)},
    }


def ends(heads: int) -> dict:
    """Where the stored full-size trainings of 1 or 2 heads stop: omega and mu, (runs, heads), six digits."""
    history = full_runs.load(heads)
    names = {"omega": history.omega[:, -1], "mu": history.mu[:, -1]}
    return {name: [[float(f"{x:.6g}") for x in run] for run in part.tolist()] for name, part in names.items()}


def _error_parts(d: int, reach: float, b: np.ndarray, g: np.ndarray, p: np.ndarray) -> list[dict]:
    """The main components of the batches' deviations, over sqrt(batches (batches - 1)): squares of their risks sum to the variance.

    Principal axes of the risks' deviations at 400 heads (one head, opposite pairs, two heads; near the best mu and elsewhere), each
    over its own standard error, so that faint and loud places count alike.
    """
    batches = len(b)
    scale = math.sqrt(batches * (batches - 1))
    b, g, p = ((part - part.mean(0)) / scale for part in (b, g, p))
    states, noise = _typical_heads(d, reach, b.shape[1])
    risk = -2 * states @ b.T + sum(
        np.einsum("sj,bjk,sk->sb", states, part, states) * share
        for part, share in ((g, 1), (p, (d - 1 + noise)[:, None]))
    )
    axes = np.linalg.svd((risk / np.linalg.norm(risk, axis=1, keepdims=True)).T, full_matrices=False)[0]
    degree = np.arange(b.shape[1])
    weight = np.where(degree % 2, degree, 1)
    b, g, p = b * weight, g * np.outer(weight, weight), p * np.outer(weight, weight)
    parts = []
    for axis in axes.T[:COMPONENTS]:
        axis = axis * np.sign(axis[np.abs(axis).argmax()])
        parts.append(
            {
                "gain": _odd(axis @ b, ERROR_UNIT),
                "along": _rows(np.tensordot(axis, g, 1), ERROR_UNIT),
                "across": _rows(np.tensordot(axis, p, 1), ERROR_UNIT),
            }
        )
    return parts


def _typical_heads(d: int, reach: float, nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """v (400, nodes) of heads and their noise s2 (400,)."""
    rng = np.random.default_rng(0)
    step, states, noise = 1 / (1 + 6 / 40), [], []
    for number in range(400):
        if number % 4 == 0:
            omega = rng.uniform(-reach, reach, 1)
        elif number % 4 == 1:
            omega = reach * 10 ** rng.uniform(-1.7, 0) * np.array([1, -1])
        else:
            omega = rng.uniform(-reach, reach, 2) * rng.choice([0.2, 0.5, 1.0])
        if number % 4 == 3:
            mu = rng.uniform(-3, 3, 2) * math.sqrt(d / 5)
        else:
            mu = step * rng.uniform(0.5, 1.3) * omega / (omega @ omega)
        chebyshev = np.cos(np.arange(nodes)[:, None] * np.arccos(omega / reach))
        states.append(chebyshev @ mu)
        noise.append(d * 10 ** rng.uniform(-4, 0.5))
    return np.array(states), np.array(noise)


def _odd(coefficients: np.ndarray, unit: float) -> list[int]:
    return [round(float(x) / unit) for x in coefficients[1::2]]


def _rows(matrix: np.ndarray, unit: float) -> list[list[int]]:
    """Row j: entries k = j mod 2, + 2, ... up to j, without the zeros at its end."""
    rows = []
    for j in range(len(matrix)):
        row = [round(float(x) / unit) for x in matrix[j, j % 2 : j + 1 : 2]]
        while row and row[-1] == 0:
            row.pop()
        rows.append(row)
    return rows
