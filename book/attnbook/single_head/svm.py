r"""A support vector machine without offset, exact: min |w|^2 subject to labels_i w.rows_i >= 1.

Solved through its dual, $\max_{\alpha\ge0} 1^\top\alpha - \tfrac12\alpha^\top Q\alpha$ with $Q_{ij} = y_iy_j\, r_i\cdot r_j$ (a
Gram matrix). The linear system of the active constraints is solved: of all of them first, then, where that is not the optimum, of
those that an interior-point solver (clarabel) finds. All optimality (KKT) conditions are checked on the result. Needs scipy and
clarabel (extra `margin`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from attnlib import checks
from attnlib.arrays import Floats
from attnlib.extras import extra

_ACTIVE = 1e-6  # multipliers above this share of the largest count as active before the polish
_EXACT = 1e-12  # KKT residual of a solution that needs no interior-point method
_ZERO_SQUARED = 1e-9  # a convex combination this short, squared and relative to the rows' mean square, counts as zero


class NotSeparable(ValueError):
    """No v has y_i v.r_i > 0 for all i: proven by a convex combination of the vectors y_i r_i that vanishes."""


class NotConverged(RuntimeError):
    """The solver stopped without an answer that passes the optimality conditions."""


@dataclass(frozen=True)
class MaxMargin:
    """Solution of min |w|^2 s.t. labels_i w.rows_i >= 1."""

    weights: Floats  # (m,)
    multipliers: Floats  # (N,), alpha >= 0; sum alpha = |w|^2
    residual: float  # largest violation of the KKT conditions, relative

    @property
    def norm_squared(self) -> float:
        """|w|^2."""
        return float(self.weights @ self.weights)

    @property
    def norm(self) -> float:
        """|w|."""
        return math.sqrt(self.norm_squared)

    @property
    def margin(self) -> float:
        """The largest margin of a unit vector, 1/|w|."""
        return 1 / self.norm


@checks.checked
def hard_margin(rows: Floats, labels: Floats, *, tolerance: float = 1e-8, max_iterations: int = 200) -> MaxMargin:
    r"""The maximum-margin vector of labelled rows, without offset.

    $$ \min_w |w|^2 \quad\text{subject to}\quad y_i\, w\cdot r_i \ge 1 \text{ for all } i $$

    Exact to `tolerance` in every optimality (KKT) condition, relative. Needs scipy and clarabel (extra `margin`).

    Args:
        rows: r, (N, m), finite.
        labels: y, (N,), +1 or -1.
        tolerance: largest accepted residual > 0; about 1e-13 is reached for the data of this book.
        max_iterations: of the interior-point method, >= 1.

    Returns:
        w with its multipliers and the largest residual, float64.

    Raises:
        ValueError: arguments of the wrong shape or outside their range, or rows so small or so large that no double holds a multiplier.
        NotSeparable: no vector satisfies the constraints; the proof is checked.
        NotConverged: the answer does not pass the optimality conditions.

    Source:
        standard (support vector machine); its use on selected tokens is derived in `book/single_head_margin_theory`.

    Example:
        >>> hard_margin(np.array([[2.0, 0.0], [0.0, 1.0]]), np.array([1.0, -1.0])).weights.round(6)
        array([ 0.5, -1. ])
    """
    checks.positive_number("tolerance", tolerance)
    checks.whole_number("max_iterations", max_iterations, at_least=1)
    try:
        rows, labels = np.asarray(rows, dtype=float), np.asarray(labels, dtype=float)
    except (TypeError, ValueError) as error:
        raise ValueError(f"rows and labels must be arrays of numbers; got others: {error}") from error
    if rows.ndim != 2 or labels.shape != rows.shape[:1] or not len(labels):
        raise ValueError(f"rows must be (N, m) and labels (N,), N >= 1; got {rows.shape} and {labels.shape}")
    if not (np.abs(labels) == 1).all() or not np.isfinite(rows).all():
        raise ValueError("labels must be +1 or -1 and rows finite; got other values")
    signed = labels[:, None] * rows + 0.0  # makes -0.0 a plain zero: equal rows have equal bytes
    # Samples that select the same signal pose the same constraint: kept once, their multiplier is shared out at the end.
    first: dict[bytes, int] = {}
    place = np.array([first.setdefault(row.tobytes(), len(first)) for row in signed])
    copies = np.bincount(place)
    points = signed[np.unique(place, return_index=True)[1]]
    if not points.any():
        raise NotSeparable("not separable: every selected vector is zero")
    # By a power of two first: whatever the unit of the rows, their squares neither vanish nor overflow, and no digit changes.
    unit = math.ldexp(1.0, math.frexp(np.abs(points).max())[1] - 1)
    points = points / unit
    scale = float((points**2).sum(1).mean())
    points = points / math.sqrt(scale)
    gram = points @ points.T
    # In high dimension nearly every sample is a support vector: start from all of them. What satisfies the KKT conditions is
    # the optimum, however it was found; the interior-point method is needed for the rest.
    alpha = _polished(gram, np.ones(len(gram)))
    residual = _kkt_residual(gram, alpha)
    if not residual <= _EXACT:
        alpha = _polished(gram, _interior_point(points, gram, max_iterations))
        residual = _kkt_residual(gram, alpha)
    if not residual <= tolerance:
        # the solver may call its last iterate on the way to infinity a solution
        _refuse_contradiction(points, gram, max_iterations)
        raise NotConverged(
            f"the solver's answer must satisfy the KKT conditions to {tolerance:g}; got {residual:.2g}: "
            "are two constraints nearly contradictory?"
        )
    with np.errstate(over="ignore"):
        weights = (alpha @ points) / math.sqrt(scale) / unit
        multipliers = (alpha / copies)[place] / scale / unit / unit
    if not (np.isfinite(weights).all() and np.finfo(float).tiny / _ACTIVE < multipliers.max() < math.inf):
        raise ValueError(
            f"rows must be of a size between 1e-150 and 1e150; the multipliers of rows of size {unit:.2g} are beyond double precision"
        )
    return MaxMargin(weights, multipliers, residual)


def _solve(quadratic: Floats, linear: Floats, max_iterations: int, *, on_simplex: bool = False) -> Any:
    """min x'Gx/2 + linear'x over x >= 0, and sum x = 1 with `on_simplex`, by clarabel: its solution object."""
    with extra("margin"):
        import clarabel
        from scipy import sparse

    size = len(linear)
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.max_iter = max_iterations
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-10
    # A certificate of infeasibility must be sharp: nearly contradictory samples do have a (large) solution.
    settings.tol_infeas_abs = settings.tol_infeas_rel = 1e-12
    settings.max_threads = 1
    rows, bounds, cones = -np.eye(size), np.zeros(size), [clarabel.NonnegativeConeT(size)]
    if on_simplex:
        rows, bounds = np.vstack([np.ones(size), rows]), np.append(1.0, bounds)
        cones = [clarabel.ZeroConeT(1), *cones]
    upper, constraints = sparse.csc_matrix(np.triu(quadratic)), sparse.csc_matrix(rows)
    return clarabel.DefaultSolver(upper, linear, constraints, bounds, cones, settings).solve()


def _interior_point(points: Floats, gram: Floats, max_iterations: int) -> Floats:
    """Multipliers of the dual. Raises NotSeparable or NotConverged."""
    solution = _solve(gram, -np.ones(len(gram)), max_iterations)
    if str(solution.status) in ("Solved", "AlmostSolved"):
        multipliers: Floats = np.maximum(np.array(solution.x), 0.0)
        return multipliers
    if str(solution.status) != "MaxIterations":
        _refuse_contradiction(points, gram, max_iterations)
    raise NotConverged(
        f"the solver must converge; got status {solution.status} after {solution.iterations} iterations: "
        "are two constraints nearly contradictory?"
    )


def _refuse_contradiction(points: Floats, gram: Floats, max_iterations: int) -> None:
    """NotSeparable where a convex combination of the y_i r_i is zero: exactly then the dual runs off to infinity.

    None is where least squares find a vector that separates: they see what is left of nearly contradictory points, and squares do not.
    """
    if (points @ np.linalg.lstsq(points, np.ones(len(points)), rcond=None)[0] > 0.5).all():
        return
    certificate = _solve(gram, np.zeros(len(gram)), max_iterations, on_simplex=True)
    weights = np.maximum(np.array(certificate.x), 0.0)
    weights /= weights.sum()
    if weights @ gram @ weights < _ZERO_SQUARED:
        raise NotSeparable(
            "not separable: some selected vectors contradict each other (for one class, did clean and flipped samples both "
            "select the signal?)"
        )


def _polished(gram: Floats, alpha: Floats) -> Floats:
    """Solve the active constraints' linear system exactly; drop what turns negative, add what is violated. Best round wins."""
    best, best_residual = alpha, _kkt_residual(gram, alpha)
    active = alpha > _ACTIVE * alpha.max()
    for _ in range(20):
        index = np.flatnonzero(active)
        trial = np.zeros_like(alpha)
        try:
            trial[index] = np.linalg.solve(gram[np.ix_(index, index)], np.ones(len(index)))
        except np.linalg.LinAlgError:
            break  # dependent constraints: the interior-point answer stands, and is judged by its residual
        residual = _kkt_residual(gram, trial)
        if residual < best_residual:
            best, best_residual = trial, residual
        wrong = (trial < 0) | (~active & (gram @ trial < 1))
        if not wrong.any():
            break
        active = active ^ wrong
        if not active.any():
            break
    return best


def _kkt_residual(gram: Floats, alpha: Floats) -> float:
    """Largest of: negative multiplier, margin below 1, multiplier of a slack constraint; multipliers relative to the largest."""
    margins, largest = gram @ alpha, np.abs(alpha).max()
    if not largest > 0:
        return math.inf
    return float(
        max((-alpha / largest).max(), (1 - margins).max(), (np.abs(alpha) * np.abs(margins - 1)).max() / largest, 0.0)
    )
