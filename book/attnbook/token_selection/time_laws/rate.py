r"""Distance of training p alone from the orthogonal-noise prediction at fixed $\theta$.

$W^\top W=mI$, $p_0=0$, $\frac{dz}{d\theta}=\frac nh\frac K{\sigma_\varepsilon^2d}c$.
Source: derived in the theory chapter of Part II (`ts-rate`).
"""

import math

import torch

from attnbook.token_selection.mean_field import mean_field
from attnbook.token_selection.time_laws.late import follow
from attnlib import checks
from attnlib.token_selection.gram import draw_gram
from attnlib.token_selection.law import TokenLaw


def mean_field_distance(law: TokenLaw, theta: float, *, runs: int, seed: int) -> torch.Tensor:
    """(R,): largest |z - z_infinity| over all scores of a training set at time `theta` > 0, balanced labels.

    Raises ValueError for a bad argument before any work.
    """
    checks.positive_number("theta", theta)
    if not law.balanced:
        raise ValueError("law must have balanced labels: the orthogonal-noise prediction is for them")
    gram = draw_gram(law, seed, checks.whole_number("runs", runs, at_least=1))
    own, h, N = law.noise_std**2 * law.d, law.head_norm * law.signal_norm, law.n * law.tokens
    scores, _ = follow(gram, law.n / h / own * gram.kernel[:, :N, :N], math.log(theta), 0.02)
    unit = law.n / (own * h)  # steps of size 1 with sigma_w^2 d = 1 that make theta = 1
    limit = mean_field(law, 1.0, weight_scale=1.0, horizon=theta * unit, finite_size=False, largest_move=0.02)
    kinds = torch.as_tensor(limit.scores[-1])[gram.labels.noisy.long()]  # (R, n, T)
    return (scores - kinds).abs().amax((1, 2))
