"""What a page needs at least, by the sizes that it is given: asked before its kernel starts.

A size has one meaning on all pages that have it, so a cost belongs to names of parameters and counts wherever a page has all of them.
The costs are low, as all estimates of `attnlib.limits`: what is refused here cannot be done, and what passes may still be refused by
a call on the page, which knows more.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from typing import Any

from attnlib import limits

__all__ = ["require_room"]

_BYTES: tuple[Callable[..., float], ...] = (
    lambda n: 8 * n,
    lambda n, d: 16 * n * min(n, d),  # the tokens of one training set, without columns of zeros
    lambda n, d, points: 8 * n * d,  # noise of laws of which nothing can be reduced
    lambda n, tokens: 24 * (n * tokens) ** 2,  # inner products of all tokens
    lambda cells, tokens: 24 * (10 * tokens) ** 2,  # the same of ten samples at least
    lambda dense_d: 16 * dense_d**2,  # a trained matrix and its step
    lambda search_samples: 16 * search_samples**2,
    lambda few_samples: 16 * few_samples**2,
    lambda heads, length, d: 144 * heads * (d + 1) ** 2,  # what a training keeps of its weights
    lambda length, d: 8 * length * d,  # one prompt
    lambda length, dimension: 8 * length * dimension,
    lambda heads, dimension: 32 * heads * dimension,
    lambda draws, samples, tokens: 32 * draws * samples * tokens,
    lambda coordinates: 1280 * coordinates,  # 40 samples of four tokens
    lambda cells: 8 * cells**2,
    lambda seeds, pictures: 32 * seeds * pictures,
    # What is repeated leaves one number each time.
    lambda draws: 8 * draws,
    lambda search_draws: 8 * search_draws,
    lambda few_draws: 8 * few_draws,
    lambda runs: 8 * runs,
    lambda seeds: 8 * seeds,
    lambda heads: 8 * heads,
    lambda trained: 8 * trained,
    lambda prompts: 8 * prompts,
    lambda fresh: 8 * fresh,
    lambda softmax_pairs: 8 * softmax_pairs,
    lambda softmax_starts: 8 * softmax_starts,
)
_OPERATIONS: tuple[Callable[..., float], ...] = (
    lambda steps: 1000 * steps,  # a tenth of a microsecond
    lambda n, d, draws: draws * n * min(n, d),
    lambda n, d, draws, steps: draws * steps * n * min(n, d),
    lambda d, draws, points: draws * points * d,
    lambda d, draws, test_points: draws * test_points * d,
    lambda n, tokens, runs, steps: 2 * runs * steps * (n * tokens) ** 2,
    lambda n, tokens, runs, steps, cells: 2 * cells**2 * runs * steps * (n * tokens) ** 2,
    lambda steps, batch, length, d: 2 * steps * batch * length * d,
    lambda steps, softmax_pairs: 10**5 * steps * softmax_pairs,
    lambda repetitions, seeds, pictures: 4 * repetitions * seeds * pictures,
    lambda layers, epochs: 10**8 * layers * epochs,  # a thousand images at each pass
    lambda layers, epochs, seeds: 10**8 * layers * epochs * seeds,
)


_YEAR = (
    365 * 24 * 3600 * 1e10
)  # multiplications and additions of one core in a year, as measured for the compiled loops


def _require_time(operations_of: Callable[..., float], **sizes: int) -> None:
    """Raise ValueError if so many multiplications and additions take more than a year here."""
    budget = _YEAR * (os.cpu_count() or 1)
    needed = min(operations_of(**sizes), 1e300)
    if needed > budget:
        told = f"about {needed / budget:.3g} years on this machine, and one is the most"
        raise ValueError(limits.sentence(operations_of, budget, sizes, told))


def require_room(parameters: Mapping[str, Any]) -> None:
    """Raise ValueError, with the number that would fit, if a page of these parameters needs more memory or time than there is."""
    for costs, require in ((_BYTES, limits.require_memory), (_OPERATIONS, _require_time)):
        for cost in costs:
            names = inspect.signature(cost).parameters
            if names.keys() <= parameters.keys():
                require(cost, **{name: parameters[name] for name in names})
