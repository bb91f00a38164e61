r"""Distance of training p alone from the orthogonal-noise prediction at fixed $\theta$, and the bound on it that holds in every dimension.

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


def distance_bound(law: TokenLaw, theta: float) -> float:
    r"""With probability 0.95 or more the distance is at most this; names as in `ts-rate`:

    $$ \frac{e^{\Lambda\theta}-1}\Lambda\bigl[(1+r)(2+\frac{h\tilde\Gamma}8)\epsilon_\gamma+\frac{n\tilde\Gamma}2\epsilon_K\bigr] $$
    """
    n, d, h, N = law.n, law.d, law.head_norm * law.signal_norm, law.n * law.tokens
    r, x = n * law.snr**2, math.log(4 * N**2 / 0.05)
    values = law.noise_std / law.signal_norm * math.sqrt(2 * x)
    products = 2 * math.sqrt(x / d) + 2 * x / d + 2 * math.sqrt(2 * r / n * x / d)
    reach = (1 + law.weak_signal) / math.sqrt(2) + 2 * values
    rate = (1 + r) * reach * (1.5 + h * reach / 16)
    source = (1 + r) * (2 + h * reach / 8) * values + n * reach / 2 * products
    return math.expm1(rate * theta) / rate * source
