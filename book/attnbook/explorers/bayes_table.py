r"""Risk of the best possible predictor as a function of the noise, ready for a browser.

Isotropic covariates, units of the notebook convention. Given the covariates X (L, d) the Bayes risk is
$s_2\operatorname{tr}(X^\top X+s_2I)^{-1}$ (`in_context.estimators.bayes_risk`), a function of the squared singular values of X. The columns
of X are d normal vectors in L dimensions: by Bartlett's decomposition (`attnlib.gaussian`) X has the singular values of a d x min(d, L)
triangle, whose cost does not depend on L. Its mean is sampled; what is stored is log(mean / limit) at Chebyshev nodes in log sigma, with
the limit `closed_form.bayes_risk_proportional`, which takes out nearly all of the variation.
"""

import math

import numpy as np

from attnbook.in_context.closed_form import bayes_risk_proportional
from attnlib.in_context.law import RegressionLaw
from attnlib.randomness import stream

NOISE_RANGE = (0.001, 3.0)  # sigma
BAYES_NODES = 32
DRAWS = 4000
RATIO_UNIT = 1e-8
_ERROR_NODES = 10


def noise_nodes(count: int) -> np.ndarray:
    """`count` Chebyshev nodes in log sigma over `NOISE_RANGE`, falling."""
    low, high = np.log(NOISE_RANGE)
    return np.exp((low + high) / 2 + (high - low) / 2 * np.cos(np.pi * (np.arange(count) + 0.5) / count))


def sampled_spectrum(d: int, length: int, *, draws: int = DRAWS, seed: int = 0) -> np.ndarray:
    """Squared singular values of `draws` prompts' covariates X (length, d), zeros for directions not shown: (draws, d)."""
    rank = min(d, length)
    rng = stream(seed, "test", 10_000 * d + length)
    triangle = np.tril(rng.standard_normal((draws, d, rank)))
    place = np.arange(rank)
    triangle[:, place, place] = np.sqrt(rng.chisquare(length - place, (draws, rank)))
    squares = np.zeros((draws, d))
    squares[:, :rank] = np.linalg.eigvalsh(np.swapaxes(triangle, 1, 2) @ triangle).clip(0)
    return squares


def sampled_bayes_risk(squares: np.ndarray, noise_variance: object) -> tuple[np.ndarray, np.ndarray]:
    """Mean of sum s2 / (squares + s2) and its standard error, for s2 (...): (...), (...)."""
    s2 = np.asarray(noise_variance, dtype=np.float64)[..., None, None]
    risks = (s2 / (squares + s2)).sum(-1)
    return risks.mean(-1), risks.std(-1, ddof=1) / math.sqrt(risks.shape[-1])


def bayes_table(d: int, length: int, *, nodes: int = BAYES_NODES, draws: int = DRAWS) -> dict:
    """`ratio`: Chebyshev coefficients of log(mean / limit) over `RATIO_UNIT`; `error`: relative standard errors at a few nodes,
    largest noise first."""
    squares = sampled_spectrum(d, length, draws=draws)

    def curve(count: int) -> tuple[np.ndarray, np.ndarray]:
        sigma = noise_nodes(count)
        mean, error = sampled_bayes_risk(squares, d * sigma**2)
        limit = np.array([bayes_risk_proportional(RegressionLaw(d, length, s)) for s in sigma])
        return np.log(mean / limit), error / mean

    ratio, _ = curve(nodes)
    angle = np.pi * (np.arange(nodes) + 0.5) / nodes
    coefficients = 2 / nodes * np.cos(np.outer(np.arange(nodes), angle)) @ ratio
    coefficients[0] /= 2
    whole = [round(float(c) / RATIO_UNIT) for c in coefficients]
    while whole and whole[-1] == 0:
        whole.pop()
    return {"ratio": whole, "error": [float(f"{e:.2g}") for e in curve(_ERROR_NODES)[1]]}
