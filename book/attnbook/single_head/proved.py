r"""What two steps of gradient descent do, as a theorem: one outcome for a setting, with probability at least $1-\delta$.

Rests on one equality in law. Given the labels put $w = n^{-1/2}\sum_j y_j\xi_j$ and $r^2 = |w|^2/d$. Then
$y_i\xi_i = \alpha_i w/|w| + \zeta_i$ with $\alpha_i = |w|/\sqrt n + z_i$, where $|w|^2\sim\chi^2_{d-2}$, $z\sim N(0, I - 11^\top/n)$, the
rows $\zeta_i\perp w$ are Gaussian, and $(|w|, z, \zeta)$ are independent. The scores after one step,
$1 + \varepsilon_i = r^2 + r\sqrt{n/d}\,z_i$, and with them all weights of the second step, are functions of $(r, z)$ alone. So given
$(r, z)$ each cross term is Gaussian: nothing has to be left out, and no sum is bounded by its absolute values.

Label counts are bounded by boxes, whose probabilities are sums of binomial ones; a box that decides nothing is cut (`proved_loops`).
"""

import functools
import importlib
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from attnlib import checks
from attnlib.kernels import _build, has_numba
from attnlib.single_head.law import SignalNoiseLaw

OUTCOMES = (
    "benign",  # every label is fitted, and the clean error is below `error`
    "harmful",  # every label is fitted, and the clean error is above it
    "does not fit a flipped label",
    "does not fit a clean label",
)
UNDECIDED = "not decided"
_NOWHERE, _LOG10 = (math.nan, math.nan), math.log(10)

_NOISE = 0.2  # share of delta for the noise; label counts may use the rest
_POINTS = 24  # label counts tried first
_LARGEST = 100_000  # samples
_LEAST = 2e-9  # delta: what rounding may take off the probability is half of this


class ProvedOutcome(NamedTuple):
    """What is proved of two steps from zero, for one law, step size and delta."""

    outcome: str  # one of `OUTCOMES`, or "not decided"
    probability: float  # at least this, for the outcome named; for the likeliest one where none is decided
    log10_error: tuple[
        float, float
    ]  # ends of log10 of the clean error, which go with the outcome; nan where no outcome speaks of it
    failed: str  # "", or what the likely label counts prove, and the inequality that failed in the likeliest that prove nothing


def _loops() -> Any:
    if has_numba():
        return _build.loops(__file__, "proved_loops.py")
    return importlib.import_module("attnbook.single_head.proved_loops")


@functools.lru_cache(maxsize=64)
def _count_law(n: int, eta: float, missing: float) -> tuple[Any, ...]:
    log_factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1.0, n + 1)))])
    return tuple(_loops().count_law(n, eta, missing, log_factorial))


@checks.checked
def proved_outcome(
    law: SignalNoiseLaw,
    step_size: float,
    delta: float = 0.01,
    *,
    error: float = 0.1,
    boxes: int = 500,
    counts: Sequence[int] | None = None,
) -> ProvedOutcome:
    r"""The outcome of two steps from zero that is proved, with probability at least $1-\delta$ over the training set.

    Args:
        law: two tokens, the paper's signals, noise of variance 1.
        step_size: beta > 0.
        delta: in (0, 1).
        error: from 1e-300 to 1/2, separates "benign" from "harmful": mean clean error of the two classes.
        boxes: of label counts that are looked at, at most; more prove more. Where numba is installed 500 take one or two milliseconds in
            most settings and some twenty at most.
        counts: clean and flipped samples of class 1, then of class 2: all that is said is then of training sets with these labels. Without
            them the labels are random, and the error's ends hold for nearly all of them.

    Returns:
        `outcome`, one of `OUTCOMES` or "not decided"; `probability`, at least $1-\delta$ where it is decided; `log10_error`, two numbers
        between which log10 of the mean clean error of the two classes lies, in training sets with this outcome: with an `error` above the
        second the same is proved, as far as `boxes` reach; `failed`, for an undecided setting the inequality that failed, and by how
        much. Numbers are bounded in interval arithmetic; the machine's log and erfc are trusted to 10^-12, its exp to 8 units in the
        last place.

    Raises:
        ValueError: another law, or an argument out of range.

    Source:
        derived in `book/single_head_proved_theory`.

    Example:
        >>> proved_outcome(SignalNoiseLaw(200, 40_000, 30.0, 0.05), 0.025, counts=(95, 5, 95, 5)).outcome
        'benign'
    """
    if type(law) is not SignalNoiseLaw or law.tokens != 2 or law.normalised_noise:  # a subclass is another law
        raise ValueError(f"law must be a SignalNoiseLaw of two tokens and noise of variance 1; got {law!r}")
    checks.positive_number("step_size", step_size)
    checks.probability("delta", delta, open_ends=True)
    if checks.probability("error", error, high=0.5, open_ends=True) < 1e-300:
        raise ValueError(f"error must be 1e-300 or more, for smaller bounds are not told apart; got {error:g}")
    if checks.whole_number("boxes", boxes, at_least=1) > 100_000:  # their table takes 50 MB
        raise ValueError(f"boxes must be a whole number <= 100,000; got {boxes}")
    if counts is not None:
        own = checks.numbers("counts", counts)
        if own.shape != (4,) or own.min() < 0 or own.sum() != law.n or (own != own.round()).any():
            raise ValueError(f"counts must be four whole numbers >= 0 with the sum {law.n}; got {own.tolist()}")
    n, d, eta = law.n, law.d, float(law.label_noise)
    if not (2 <= n <= _LARGEST and 5 <= d <= 2**53 and delta >= _LEAST):  # larger d are not exact as doubles
        why = f"n must be from 2 to {_LARGEST:,}, d from 5 to 2^53 and delta at least {_LEAST:g}; got {n}, {d} and {delta:g}"
        return ProvedOutcome(UNDECIDED, 0.0, _NOWHERE, why)
    # With random labels delta is shared: so much for the noise, the rest for label counts outside the boxes that are proved.
    failure = delta if counts is not None else _NOISE * delta
    numbers = tuple(map(float, (n, d, law.signal_norm, step_size, failure, math.log(error))))
    needed = (1 - delta) / (1 - failure) * (1 + 1e-9)
    with np.errstate(all="ignore"):
        if counts is not None:
            judged = _loops().given(numbers, own.long().numpy())
            outcome, ends = judged[0], (judged[4] / _LOG10, judged[5] / _LOG10)
            if outcome == len(OUTCOMES):
                return ProvedOutcome(UNDECIDED, 0.0, ends, _why(np.array([0, 0, 0, 0, 1]), judged, error))
            return ProvedOutcome(OUTCOMES[outcome], 1 - delta, ends, "")
        aim, mass, kept, found, _, judged = _loops().decide(
            numbers, eta, *_count_law(n, eta, delta / 2000), _POINTS, needed, boxes
        )
    probability = mass * (1 - failure) * (1 - 1e-9)
    if mass < needed:
        return ProvedOutcome(UNDECIDED, probability, _NOWHERE, _why(found, judged, error))
    if aim >= 2:
        return ProvedOutcome(OUTCOMES[aim], probability, _NOWHERE, "")
    # The error's ends: of the boxes with the smallest errors (the largest, where it is harmful), as many as have the probability needed.
    kept = kept[np.argsort(kept[:, 1] if aim == 0 else -kept[:, 0])]
    kept = kept[: np.flatnonzero(np.cumsum(kept[:, 2]) * (1 - 1e-9) >= needed)[0] + 1] / _LOG10
    return ProvedOutcome(OUTCOMES[aim], probability, (float(kept[:, 0].min()), float(kept[:, 1].max())), "")


def _why(found: np.ndarray, judged: tuple[Any, ...], error: float) -> str:
    """What the likely label counts prove, and which inequality fails where they prove nothing."""
    outcome, fit, flipped, _, least, most = judged
    kinds = (*OUTCOMES, UNDECIDED)
    tally = ", ".join(f"{name} for {k}" for k, name in zip(found.tolist(), kinds, strict=True) if k)
    told = f"{tally} of {found.sum()} likely label counts"
    if outcome < len(OUTCOMES):
        return told
    open_sides = [
        f"the clean error lies between {math.exp(least):.3g} and {math.exp(most):.3g}, on both sides of {error:g}"
    ]
    if not fit > 0:
        margin = f"a number with the sign of the margin is above {fit:.3g} for all samples and below {flipped:.3g} for a flipped one"
        open_sides.insert(0, margin)
    return f"{told}; where it is open, {' and '.join(open_sides)}"
