r"""Part III, approximate loss $\tilde L(\omega,\mu)=1+\sigma^2-2\mu^\top\omega+\mu^\top A\mu$: its critical points with one sign, by balls.

`krawczyk` proves that a box holds one critical point and no more; `positive_definite` that the loss is strictly convex on it. For two
heads of one sign the loss does not change when $\mu_1+\mu_2$ is divided in another way, so that no critical point is alone: the box is
in $(\omega_1,\omega_2,\mu_1+\mu_2)$, and the fraction $q=\mu_1/(\mu_1+\mu_2)$ is a ball. The boxes of all q together are a neighbourhood
of the whole line of trapped states.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from attnbook.certified.certificate import ball

if TYPE_CHECKING:
    from flint import arb


_EDGE = 1e-12  # so that the floats at the ends hold the decimals between them


@dataclass(frozen=True)
class Approximate:
    """The loss of heads with two numbers each, at d, L and a decimal sigma; repository units."""

    d: int = 5
    length: int = 40
    noise: str = "0.01"

    @property
    def c(self) -> arb:
        return (1 + ball(self.noise) ** 2) / self.length

    def loss(self, omega: Sequence[arb], mu: Sequence[arb]) -> arb:
        moment = sum((w * m for w, m in zip(omega, mu, strict=True)), ball(0))
        overlap = sum(
            (
                m * n * (self.d * w * v).exp()
                for w, m in zip(omega, mu, strict=True)
                for v, n in zip(omega, mu, strict=True)
            ),
            ball(0),
        )
        return 1 + ball(self.noise) ** 2 - 2 * moment + moment**2 + self.c * overlap

    def derivatives(self, omega: Sequence[arb], mu: Sequence[arb]) -> tuple[list[arb], list[list[arb]]]:
        r"""Gradient and second derivatives of half the loss in $(\omega_1,\dots,\omega_H,\mu_1,\dots,\mu_H)$."""
        d, H = self.d, range(len(omega))
        E = [[self.c * (d * omega[i] * omega[j]).exp() for j in H] for i in H]
        moment = sum((omega[i] * mu[i] for i in H), ball(0)) - 1
        first = [sum((E[i][k] * mu[k] * omega[k] for k in H), ball(0)) for i in H]
        second = [sum((E[i][k] * mu[k] * omega[k] ** 2 for k in H), ball(0)) for i in H]
        zeroth = [sum((E[i][k] * mu[k] for k in H), ball(0)) for i in H]
        gradient = [mu[i] * (moment + d * first[i]) for i in H] + [omega[i] * moment + zeroth[i] for i in H]
        n = len(omega)
        hessian = [[ball(0)] * (2 * n) for _ in range(2 * n)]
        for i in H:
            for j in H:
                same = int(i == j)
                hessian[i][j] = (
                    mu[i] * mu[j] * (1 + d * E[i][j] * (1 + d * omega[i] * omega[j])) + same * d**2 * mu[i] * second[i]
                )
                mixed = omega[i] * mu[j] * (1 + d * E[i][j]) + same * (moment + d * first[i])
                hessian[n + i][j] = hessian[j][n + i] = mixed
                hessian[n + i][n + j] = omega[i] * omega[j] + E[i][j]
        return gradient, hessian

    def slice(self, share: arb):  # type: ignore[no-untyped-def]
        r"""The same two as a function of $(\omega_1,\omega_2,s)$ at $\mu=(qs,(1-q)s)$."""
        rows = [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, share, 1 - share]]

        def derivatives(point: Sequence[arb]) -> tuple[list[arb], list[list[arb]]]:
            gradient, hessian = self.derivatives(point[:2], [share * point[2], (1 - share) * point[2]])
            inner = [[sum((row[k] * hessian[k][j] for k in range(4)), ball(0)) for j in range(4)] for row in rows]
            return (
                [sum((row[k] * gradient[k] for k in range(4)), ball(0)) for row in rows],
                [[sum((inner[i][k] * row[k] for k in range(4)), ball(0)) for row in rows] for i in range(3)],
            )

        return derivatives

    def trap(self) -> list[arb]:
        r"""$(w,w,\mathcal M)$, $w=1/\sqrt d$, $\mathcal M=\sqrt d/(1+dce)$."""
        w = 1 / ball(self.d).sqrt()
        return [w, w, self.d * w / (1 + self.d * self.c * ball(1).exp())]

    def trapped(self, radius: str, low: str, high: str, pieces: int = 200) -> bool | None:
        """Is the loss strictly convex in the box of `radius` about the trap, on the slice of every q between the two decimals?

        Then the trap, a critical point on every slice, is the only one there, and the minimum. False: at some q in between the second
        derivative at the trap itself is proved not to be positive definite.
        """
        from flint import arb

        trap, room = self.trap(), ball(radius) * arb(0, 1)
        box, edges = [x + room for x in trap], np.linspace(float(low) - _EDGE, float(high) + _EDGE, pieces + 1)
        for first, last in itertools.pairwise(edges):
            share = ball(float(first)).union(ball(float(last)))
            if positive_definite(self.slice(share)(box)[1]) is not True:
                return False if positive_definite(self.slice(ball(float(first)))(trap)[1]) is False else None
        return True

    def eigenvalues(self) -> list[arb]:
        """Three eigenvalues of the Hessian at the trap with two equal heads, ascending; the fourth is 0."""
        d, q = self.d, self.d * self.c * ball(1).exp()
        corner, other = 4 * (1 + q) / d, d * (1 + 3 * q) / (1 + q) ** 2
        root = ((corner - other) ** 2 + 16).sqrt()
        values = [d * q / (1 + q) ** 2, (corner + other - root) / 2, (corner + other + root) / 2]
        return sorted(values, key=lambda value: float(value.mid()))


def positive_definite(matrix: Sequence[Sequence[arb]]) -> bool | None:
    """By the signs of the pivots: all positive, one negative after positive ones, or not decided. Symmetric matrices only."""
    rest = [list(row) for row in matrix]
    while rest:
        pivot = rest[0][0]
        if not pivot > 0:
            return False if pivot < 0 else None
        rest = [[x - row[0] * y / pivot for x, y in zip(row[1:], rest[0][1:], strict=True)] for row in rest[1:]]
    return True


def krawczyk(derivatives, middle: Sequence[float], radius: float) -> list[arb] | None:  # type: ignore[no-untyped-def]
    r"""A smaller box with the one zero of a gradient in the box $X$ of `radius` about `middle`; None if it is not proved.

    $K=m-YF(m)+(I-YF'(X))(X-m)$ with any matrix Y: if K lies inside X, then X holds one zero of F and no more, and it lies in K.
    """
    from flint import arb

    size = range(len(middle))
    box, point = [arb(x, radius) for x in middle], [arb(x) for x in middle]
    value, matrix = derivatives(point)
    inverse = np.linalg.inv(np.array([[float(matrix[i][j].mid()) for j in size] for i in size]))
    wide = derivatives(box)[1]
    image = []
    for i in size:
        moved = point[i] - sum((float(inverse[i, k]) * value[k] for k in size), arb(0))
        for j in size:
            change = int(i == j) - sum((float(inverse[i, k]) * wide[k][j] for k in size), arb(0))
            moved += change * (box[j] - point[j])
        image.append(moved)
    inside = all(box[i].lower() < image[i] < box[i].upper() for i in size)
    return image if inside else None
