r"""Everything that the claims of the page *Random starts* look at, trained once.

At the page's own law: heads from random starts of several sizes. At fixed sizes: growth of differences and division across the
threshold, several directions, and heads of width 4 whose vectors are products of matrices (n = 100, d = 20000, eta = 0.05).
"""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import torch

from attnbook.open_questions.random_starts.heads import (
    ManyDirectionsLaw,
    across_directions,
    difference_growth,
    direct_heads,
    gaussian_factors,
    random_heads,
    train_factors,
)
from attnbook.single_head.flow import own_thresholds
from attnbook.single_head.long_run import law_at, log_steps
from attnlib.single_head.errors import log10_clean_error
from attnlib.single_head.law import SignalNoiseLaw
from attnlib.single_head.training import gram_descent

GROWTH_BINS = (0.35, 0.5, 0.7, 0.85, 0.95, 1.05, 1.15, 1.35, 1.7, 2.3, 3.5)  # of x / x*
SIZES = (1.0, 0.3, 0.1, 0.01)  # norms of the factors at the start


# --- random starts ---------------------------------------------------------------------------------------------------------


def thresholds(course):
    """x* of every class of a course, from its own share of flips: (R, K)."""
    return own_thresholds(course.clean, course.clean * course.flipped / (1 - course.flipped))


def growth_in_bins(study):
    """Middle of each bin of x / x*, rms growth measured and predicted, and the number of classes."""
    ratio = (study.growth.x / thresholds(study.growth)).ravel()
    apart = study.growth.class_difference.reshape(len(study.growth.steps), -1)
    predicted, rows = study.predicted_growth.ravel(), []
    for low, high in pairwise(GROWTH_BINS):
        own = (ratio >= low) & (ratio < high)
        if own.sum() >= 5:
            grown = np.sqrt((apart[-1, own] ** 2).sum() / (apart[0, own] ** 2).sum())
            rows.append((np.sqrt(low * high), grown, np.sqrt((predicted[own] ** 2).mean()), own.sum()))
    return tuple(np.array(rows).T)


def _divided_heads(course):
    """Flags (draws, 2): two heads' attention differs by more than 1/2 at the end; x / x* is within 8 %; it is beyond 35 %."""
    distance = np.abs(np.log(course.x / thresholds(course)))
    apart = np.ptp(course.attention[-1], axis=-1) > 0.5
    return SimpleNamespace(apart=apart, near=distance < np.log(1.08), far=distance > np.log(1.35))


def _two_directions(x, shares):
    """n = 200, d = 40000, eta = 0.05; x = rho^2 |C_k| / d on average over the four directions."""
    norm = float(np.sqrt(x * 40_000 / (200 * 0.95 / 4)))
    return ManyDirectionsLaw(200, 40_000, norm, 0.05, shares=shares)


# --- products of matrices --------------------------------------------------------------------------------------------------


def _spread(path):
    """Largest minus smallest mean attention over the heads, the larger of clean and flipped samples, at the last step."""
    both = torch.stack([path.attention_clean[-1], path.attention_noisy[-1].nan_to_num(0.5)])
    return (both.amax(-1) - both.amin(-1)).amax(0).numpy()


def _divided(sample, path):
    """Classes in which one head gives the signal to the clean and another one to the flipped samples: flags (draws, 2)."""
    weight, found = path.attention_on_signal[-1], []
    for k in (0, 1):
        means = []
        for mask in ((sample.signal_class == k) & ~sample.noisy, (sample.signal_class == k) & sample.noisy):
            means.append((weight * mask[:, None]).sum(-1) / mask.sum(-1)[:, None])
        clean, flipped = (mean > 0.5 for mean in means)
        found.append((clean & ~flipped).any(1) & (~clean & flipped).any(1))
    return torch.stack(found, 1).numpy()


def factor_study(*, draws=10, seed=0):
    """Products of matrices from small Gaussian factors, above and below the threshold, beside heads of plain vectors; at the last step.

    By signal norm and size: trajectories and errors (draws,). By signal norm: `one_head`, error, attention clean and flipped of plain p
    and v; `frozen`, the error with attention frozen at one half; and with "factors" or "vectors" the spread over 4 heads (draws,).
    `kept`: below the threshold, the exponent of the error over that of frozen attention. `divided`: classes whose heads divide the labour.
    """
    n, d, width, heads, norms, steps = 100, 20_000, 4, 4, (30.0, 10.0), 500
    record = [0, 1, 3, 10, 30, 100, 300, steps]
    plain = {"train_query": False, "train_output": False}
    found = SimpleNamespace(norms=norms, runs={}, log10_error={}, one_head={}, frozen={}, spread={})
    for norm in norms:
        law = SignalNoiseLaw(n, d, norm, 0.05)
        sample = law.draw(seed, draws, start_vectors=2 * width)
        for size in SIZES:
            path = train_factors(sample, gaussian_factors(sample, 1, width, size), 20 * n / d, steps, record=record)
            found.runs[norm, size] = path
            found.log10_error[norm, size] = log10_clean_error(path.v[-1, :, 0], path.p[-1, :, 0], sample).numpy()
        direct = gram_descent(sample, 5 * n / d, steps, record=[steps])
        attention = (x[-1].nanmean().item() for x in (direct.attention_clean, direct.attention_noisy))
        found.one_head[norm] = (log10_clean_error(direct.v[-1], direct.p[-1], sample).numpy(), *attention)
        still = gram_descent(sample, 5 * n / d, steps, attention_step_size=0.0, record=[steps])
        found.frozen[norm] = log10_clean_error(still.v[-1], still.p[-1], sample).numpy()
        many = law.draw(seed, draws, start_vectors=2 * width * heads)
        start = gaussian_factors(many, heads, width, 0.1)
        found.spread[norm, "factors"] = _spread(train_factors(many, start, 20 * n / d, 300, record=[300]))
        path = train_factors(
            many, direct_heads(start.p, start.v), 5 * n / d / heads, 300, attention_step_size=5 * n / d * heads, record=[300], **plain
        )  # fmt: skip
        found.spread[norm, "vectors"] = _spread(path)
    low = norms[1]
    ends = {
        "small": found.log10_error[low, 0.01],
        "large": found.log10_error[low, 0.3],
        "plain": found.one_head[low][0],
    }
    found.kept = {name: error / found.frozen[low] for name, error in ends.items()}
    strong = SignalNoiseLaw(40, 8000, 120.0, 0.2).draw(seed, draws, start_vectors=2 * width * 2)
    start = gaussian_factors(strong, 2, width, 0.1)
    vectors = train_factors(strong, direct_heads(start.p, start.v), 0.0005, steps, record=[steps], **plain)
    found.divided = {
        "factors": _divided(strong, train_factors(strong, start, 0.002, steps, record=[steps])),
        "vectors": _divided(strong, vectors),
    }
    return found


# --- everything ------------------------------------------------------------------------------------------------------------


def random_starts_study(law, heads=4, *, sizes=(0.01, 0.1, 0.3, 1.0, 3.0), steps=10_000, draws=20, seed=1):
    """Train and collect; law, heads, sizes, steps, draws: of the random starts."""
    n, d, eta = 100, 20_000, 0.05
    record = sorted({1, 2, 3, 5, 10, 20, 50, 100, 300, 1000, 3000, steps} & set(range(steps + 1)))
    own = {"draws": draws, "seed": seed, "record": record, "error_steps": sorted({2, 1000, steps})}
    across = [law_at(x, n, d, eta) for x in np.geomspace(0.42, 3.6, 16)]
    growth = random_heads(across, 4, 0.02, 1.0, 1000, draws=24, seed=seed, record=[100, 300])
    classes = (growth.x.ravel(), growth.flipped.ravel(), growth.clean.ravel())
    near = [law_at(x, n, d, eta) for x in (0.4, 0.55, 0.7, 0.95, 1.0, 1.05, 1.1, 1.15, 1.2, 1.6, 2.2, 3.0)]
    division = random_heads(near, 4, 0.3, 1.0, 3000, draws=6, seed=seed, record=log_steps(3000, 4))
    halves, unequal = _two_directions(1.15, (0.5, 0.5)), _two_directions(5.0, (0.7, 0.3))
    directions = random_heads([halves], 4, 0.3, 1.0, 1000, draws=40, seed=seed, record=[100])
    early = [*range(0, 200, 10), *range(200, 1000, 40)]
    return SimpleNamespace(
        law=law,
        starts={size: random_heads([law], heads, size, 5.0, steps, **own) for size in sizes},
        growth=growth,  # small starts, x across the threshold
        predicted_growth=difference_growth(*classes, 4, 1.0, 1000, [1000])[0].reshape(growth.x.shape),
        division=division,  # starts of norm 0.3, x across the threshold
        divided=_divided_heads(division),
        # Two directions per class, near the threshold: who leads, and the squared differences between heads at the start and the end.
        directions=directions,
        cosine=across_directions(directions, 1000),
        squares=[(directions.class_difference[row] ** 2).sum(-1) for row in (0, -1)],
        # Two directions of different frequency per class, both above the threshold.
        sequence=random_heads([unequal], 4, 0.1, 0.1, 1000, draws=20, seed=seed, record=early),
        factors=factor_study(draws=10, seed=seed),  # products of matrices
    )
