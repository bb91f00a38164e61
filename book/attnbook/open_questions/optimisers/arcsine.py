r"""Sign descent with signals in random directions, in reduced coordinates after all.

In a random basis the coordinates of all training vectors, $z_j \in R^{n+2}$, $j = 1 \dots d$, are independent Gaussian vectors for large
d, with the Gram matrix over d as covariance. A gradient has entries $c_t\cdot z_j$. For jointly Gaussian (a, b) of unit variance

$$ E[a\,\mathrm{sign}\,b] = \sqrt{2/\pi}\; E[ab], \qquad E[\mathrm{sign}\,a\,\mathrm{sign}\,b] = \tfrac2\pi\arcsin E[ab], $$

so (i) the scores of all *training* vectors move exactly as under block-normalised descent with steps of length
$\beta\,E|w|_1 \approx \beta\sqrt{2d/\pi}$, and (ii) the inner products of v and p in $R^d$ are sums of the arcsine kernel over pairs
of past gradients. Fresh noise sees them without the signals' plane, which holds $\sum_k(v\cdot\mu_k)(p\cdot\mu_k)/\rho^2$ of
$v\cdot p$: sign descent is block-normalised descent with a more noisy test score. Derived; leading order in
n/d. Stein's lemma extends (i) to any rule that acts entry by entry: its scores move along a linear
combination of past gradients.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from attnbook.open_questions.optimisers.signs import mean_one_norm
from attnlib import checks
from attnlib.single_head.law import Sample
from attnlib.single_head.population import FreshScores, log10_error_of_scores
from attnlib.single_head.rules import BLOCK_NORMALISED
from attnlib.single_head.training import Trajectory, train_heads


@dataclass(frozen=True)
class SignCourse:
    """Prediction of sign descent: the block-normalised trajectory, and the clean error (S, R) at `steps`."""

    steps: tuple[int, ...]
    log10_error: torch.Tensor
    products: torch.Tensor  # (S, R, 2, 2), inner products of v and p in R^d
    noise_products: torch.Tensor  # (S, R, 2, 2), those that fresh noise sees: of Pi v and Pi p
    path: Trajectory  # every step


def arcsine_kernel(directions: torch.Tensor) -> torch.Tensor:
    """(2/pi) arcsin of the cosines between directions (R, K, m): (R, K, K); a direction of length zero has the kernel 0."""
    length = directions.norm(dim=-1, keepdim=True)
    unit = directions / torch.where(length > 0, length, 1.0)
    return 2 / math.pi * torch.asin((unit @ unit.mT).clamp(-1, 1))


def predicted_sign_descent(
    sample: Sample, step_size: float, steps: int, *, record: Iterable[int] | None = None
) -> SignCourse:
    """Sign descent of one head from zero on `sample` (reduced coordinates), as it runs in a random basis of R^d.

    Raises ValueError for a bad argument.
    """
    step_size = checks.positive_number("step_size", step_size)
    steps = checks.whole_number("steps", steps, at_least=1)
    record = tuple(range(1, steps + 1)) if record is None else tuple(sorted({*record, steps}))
    law = sample.law
    path = train_heads(sample, step_size * mean_one_norm(law.d), steps, rule=BLOCK_NORMALISED).single()
    moves = torch.stack([path.v.diff(dim=0), path.p.diff(dim=0)], dim=2).movedim(0, 1)  # (R, steps, 2, m)
    kernel = (
        law.d * step_size**2 * arcsine_kernel(moves.flatten(1, 2)).unflatten(2, (steps, 2)).unflatten(1, (steps, 2))
    )
    # (R, 2, 2, steps): inner products of v and p after each step
    held = kernel.cumsum(1).cumsum(3).diagonal(dim1=1, dim2=3)
    products = torch.stack([held[..., t - 1] for t in record])
    noise = torch.stack([off_the_signals(sample, path.v[t], path.p[t], products[i]) for i, t in enumerate(record)])
    errors = [_error(sample, path.v[t], path.p[t], noise[i]) for i, t in enumerate(record)]
    return SignCourse(record, torch.stack(errors), products, noise, path)


def off_the_signals(sample: Sample, v: torch.Tensor, p: torch.Tensor, products: torch.Tensor) -> torch.Tensor:
    """Inner products (R, 2, 2) of Pi v and Pi p from those of v and p: minus sum_k (v . mu_k)(p . mu_k) / rho^2, orthogonal signals."""
    scores = torch.stack([torch.einsum("rkm,rm->rk", sample.signals, x) for x in (v, p)], dim=1)  # (R, 2, k)
    return products - scores @ scores.mT / sample.law.signal_norm**2


def _error(sample: Sample, v: torch.Tensor, p: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """log10 clean error (R,) for scores of v, p on the signals and given inner products (R, 2, 2) of Pi v and Pi p."""
    value, logit = (torch.einsum("rkm,rm->rk", sample.signals, x) for x in (v, p))
    omega = noise[:, 1, 1].clamp_min(1e-300).sqrt()
    along = noise[:, 0, 1] / omega
    tau = (noise[:, 0, 0] - along**2).clamp_min(1e-300).sqrt()
    sign = torch.tensor([1.0, -1.0], dtype=v.dtype, device=v.device)
    both = torch.ones_like(sign)
    scores = FreshScores(logit, sign * value, omega[:, None] * both, sign * along[:, None], tau[:, None] * both)
    return log10_error_of_scores(scores)
