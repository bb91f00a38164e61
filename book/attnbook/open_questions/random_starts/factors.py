"""Heads whose attention and values are products of matrices, from small Gaussian factors: everything that the claims look at.

Heads of width 4 (n = 100, d = 20000, eta = 0.05), above and below the threshold, beside heads of plain vectors. Sizes are fixed.
"""

from dataclasses import dataclass

import numpy as np
import torch

from attnbook.open_questions.random_starts.query_key_value import (
    FactorTrajectory,
    direct_heads,
    gaussian_factors,
    train_factors,
)
from attnlib import checks
from attnlib.single_head.law import Sample, SignalNoiseLaw
from attnlib.single_head.population import log10_clean_error
from attnlib.single_head.training import gram_descent

SIZES = (1.0, 0.3, 0.1, 0.01)  # norms of the factors at the start


@dataclass(frozen=True)
class FactorStudy:
    """What `factor_study` measured; errors and attention are arrays (draws,) at the last step."""

    norms: tuple[float, float]  # signal norms above and below the threshold
    runs: dict[tuple[float, float], FactorTrajectory]  # (signal norm, size) -> trajectory
    log10_error: dict[tuple[float, float], np.ndarray]  # (signal norm, size)
    # signal norm -> error, attention clean and flipped, plain p and v
    one_head: dict[float, tuple[np.ndarray, float, float]]
    frozen: dict[float, np.ndarray]  # signal norm -> error with attention frozen at one half
    # (signal norm, "factors" or "vectors") -> spread over 4 heads, (draws,)
    spread: dict[tuple[float, str], np.ndarray]
    divided: dict[str, np.ndarray]  # "factors", "vectors" -> classes whose heads divide the labour, flags (draws, 2)


def _spread(path: FactorTrajectory) -> np.ndarray:
    """Largest minus smallest mean attention over the heads, the larger of clean and flipped samples, at the last step."""
    both = torch.stack([path.attention_clean[-1], path.attention_noisy[-1].nan_to_num(0.5)])
    return (both.amax(-1) - both.amin(-1)).amax(0).numpy()


def _divided(sample: Sample, path: FactorTrajectory) -> np.ndarray:
    """Classes in which one head gives the signal to the clean and another one to the flipped samples: flags (draws, 2)."""
    weight, found = path.attention_on_signal[-1], []
    for k in (0, 1):
        means = []
        for mask in ((sample.signal_class == k) & ~sample.noisy, (sample.signal_class == k) & sample.noisy):
            means.append((weight * mask[:, None]).sum(-1) / mask.sum(-1)[:, None])
        clean, flipped = (mean > 0.5 for mean in means)
        found.append((clean & ~flipped).any(1) & (~clean & flipped).any(1))
    return torch.stack(found, 1).numpy()


def factor_study(*, draws: int = 10, seed: int = 0) -> FactorStudy:
    """The factor part. Raises ValueError for a bad argument before any work."""
    checks.whole_number("draws", draws, at_least=2)
    checks.whole_number("seed", seed, at_least=0)
    n, d, width, heads, norms, steps = 100, 20_000, 4, 4, (30.0, 10.0), 500
    record = [0, 1, 3, 10, 30, 100, 300, steps]
    plain = {"train_query": False, "train_output": False}
    runs, errors, one_head, frozen, spread = {}, {}, {}, {}, {}
    for norm in norms:
        law = SignalNoiseLaw(n, d, norm, 0.05)
        sample = law.draw(seed, draws, start_vectors=2 * width)
        for size in SIZES:
            path = train_factors(sample, gaussian_factors(sample, 1, width, size), 20 * n / d, steps, record=record)
            runs[norm, size] = path
            errors[norm, size] = log10_clean_error(path.v[-1, :, 0], path.p[-1, :, 0], sample).numpy()
        direct = gram_descent(sample, 5 * n / d, steps, record=[steps])
        attention = (x[-1].nanmean().item() for x in (direct.attention_clean, direct.attention_noisy))
        one_head[norm] = (log10_clean_error(direct.v[-1], direct.p[-1], sample).numpy(), *attention)
        still = gram_descent(sample, 5 * n / d, steps, attention_step_size=0.0, record=[steps])
        frozen[norm] = log10_clean_error(still.v[-1], still.p[-1], sample).numpy()
        many = law.draw(seed, draws, start_vectors=2 * width * heads)
        start = gaussian_factors(many, heads, width, 0.1)
        spread[norm, "factors"] = _spread(train_factors(many, start, 20 * n / d, 300, record=[300]))
        path = train_factors(
            many, direct_heads(start.p, start.v), 5 * n / d / heads, 300, attention_step_size=5 * n / d * heads, record=[300], **plain
        )  # fmt: skip
        spread[norm, "vectors"] = _spread(path)
    strong = SignalNoiseLaw(40, 8000, 120.0, 0.2).draw(seed, draws, start_vectors=2 * width * 2)
    start = gaussian_factors(strong, 2, width, 0.1)
    divided = {
        "factors": _divided(strong, train_factors(strong, start, 0.002, steps, record=[steps])),
        "vectors": _divided(
            strong, train_factors(strong, direct_heads(start.p, start.v), 0.0005, steps, record=[steps], **plain)
        ),
    }
    return FactorStudy(norms, runs, errors, one_head, frozen, spread, divided)
