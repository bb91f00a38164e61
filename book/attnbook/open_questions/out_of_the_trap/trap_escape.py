r"""Which rules leave the trap between x = 1 and x*, and why mini-batches do: measured on real draws in reduced coordinates.

*Fates* of classes after training by a rule. *A first pass* in mini-batches with large steps, and what is done after it: batches on,
full-batch descent, either with p set back to zero. In the first pass a sample is met before its own noise is memorised, so attention
can only go to the signal, at any x; the later training inherits it.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from attnbook.open_questions.outcomes import Outcome, finished, outcome_of, rule_fates
from attnbook.single_head.long_run import class_attention, law_at, stacked
from attnlib import checks
from attnlib.single_head.rules import BLOCK_NORMALISED, GRADIENT_DESCENT, NORMALISED, heavy_ball, nesterov, stochastic
from attnlib.single_head.training import train_heads

# Rules with steps so small that they follow their flow, and one large step; (rule, size, steps), tau = 250 and more.
CANDIDATES = {
    "gradient descent": (GRADIENT_DESCENT, 0.25, 1000),
    "heavy ball 0.9": (heavy_ball(0.9), 0.025, 1000),
    "heavy ball 0.99": (heavy_ball(0.99), 0.0025, 1000),
    "Nesterov 0.9": (nesterov(0.9), 0.025, 1000),
    "normalised": (NORMALISED, 0.25, 600),
    "block-normalised": (BLOCK_NORMALISED, 0.25, 600),
    "full batch, 25 n/d": (GRADIENT_DESCENT, 25.0, 100),
    "batches of 20, n/4d": (stochastic(20), 0.25, 1000),
    "batches of 20, 5 n/d": (stochastic(20), 5.0, 500),
}


def candidate_fates(*, x: float = 1.3, draws: int = 10, seed: int = 0) -> dict[str, Outcome]:
    """`CANDIDATES` at eta = 0.2, n = 100, d = 200000, all on the same draws."""
    law = law_at(x, 100, 200_000, 0.2)
    return {name: rule_fates([law], *candidate, draws=draws, seed=seed) for name, candidate in CANDIDATES.items()}


def escape_map(
    xs: Sequence[float], thetas: Sequence[float], label_noise: float, *, n: int = 100, d: int = 200_000, batch: int = 5,
    epochs: int = 40, draws: int = 3, seed: int = 0,
) -> np.ndarray:  # fmt: skip
    """Share of classes on the signal (len(xs), len(thetas)) after `epochs` epochs of mini-batches with beta d / B = theta.

    One batch of runs: every (x, theta) has the same number of draws. Raises ValueError for a bad argument.
    """
    checks.whole_number("draws", draws, at_least=1)
    samples = [
        law_at(x, n, d, label_noise).draw(seed, draws, first_run=(i * len(thetas) + j) * draws)
        for i, x in enumerate(xs)
        for j in range(len(thetas))
    ]
    sizes = torch.tensor([checks.positive_number("thetas", theta) for theta in thetas], dtype=torch.float64) * batch / d
    sizes = sizes.repeat_interleave(draws).repeat(len(xs))
    path = train_heads(stacked(samples), sizes, epochs * (n // batch), rule=stochastic(batch), record=[])
    found = class_attention(stacked(samples), path.attention_on_signal[-1, :, 0])
    return (found > 0.5).double().view(len(xs), len(thetas), -1).mean(-1).numpy()


def batch_sweep(
    law, thetas: Sequence[float], batches: Sequence[int], *, epochs: int = 100, draws: int = 10, seed: int = 0
) -> dict[int, list[Outcome]]:
    """Training with batches of B for the same number of epochs, each of the same length theta = beta d / B; by B, in order of theta.

    B = n is gradient descent with beta d / n = theta. The same draws everywhere. Raises ValueError for a bad argument.
    """
    sample = law.draw(seed, checks.whole_number("draws", draws, at_least=1))
    samples = [sample] * len(thetas)
    found = {}
    for batch in batches:
        sizes = torch.tensor(thetas, dtype=torch.float64).repeat_interleave(draws) * batch / law.d
        rule = GRADIENT_DESCENT if batch == law.n else stochastic(batch)
        path = train_heads(stacked(samples), sizes, epochs * (law.n // batch), rule=rule, record=[])
        rows = [slice(i * draws, (i + 1) * draws) for i in range(len(thetas))]
        found[batch] = [
            outcome_of(
                [sample], path.v[-1, r, 0], path.p[-1, r, 0], path.margins[-1, r], path.attention_on_signal[-1, r, 0]
            )
            for r in rows
        ]
    return found


def after_first_pass(
    law, batch: int, size: float, *, size_after: float = 5.0, epochs: int = 100, descent_steps: int = 1000,
    draws: int = 10, seed: int = 0,
) -> dict[str, Outcome]:  # fmt: skip
    """One epoch in batches with beta = size n/d, and four ways on: batches or gradient descent (size_after n/d), p kept or p = 0.

    Returns the outcomes by name, "first pass" itself and gradient descent from zero among them. Raises ValueError for a bad argument.
    """
    sample = law.draw(seed, checks.whole_number("draws", draws, at_least=1))
    n, d = law.n, law.d
    rule, per_epoch = stochastic(batch), n // checks.whole_number("batch", batch, at_least=1)
    first = train_heads(sample, size * n / d, per_epoch, rule=rule, record=[])
    kept = (first.v[-1], first.p[-1])
    lost = (first.v[-1], torch.zeros_like(first.p[-1]))
    again = replace(sample, seed=seed + 1)  # other batches than those of the first pass

    def batches(start):
        return train_heads(again, size * n / d, (epochs - 1) * per_epoch, rule=rule, start=start, record=[])

    def descent(start):
        return train_heads(sample, size_after * n / d, descent_steps, start=start, record=[])

    paths = {
        "first pass": first,
        "batches on": batches(kept),
        "then gradient descent": descent(kept),
        "p set to 0, batches on": batches(lost),
        "p set to 0, then gradient descent": descent(lost),
        "gradient descent from zero": descent(None),
        "one full step": train_heads(sample, size * n / d, 1, record=[]),
        "full batch, the same epoch": train_heads(sample, size * per_epoch * n / d, epochs, record=[]),
    }
    return {name: finished([sample], path) for name, path in paths.items()}
