r"""The first time scale: how long until clean training samples attend to their relevant token, and the state of the model then.

$\tau_{1/2}$ is the first step at which the mean attention of the clean training samples on $x_1$ reaches $\tfrac12$, interpolated
linearly between steps. The theorem (arXiv 2409.17625, poster, part 1) gives its order in units of

$$ \frac{1}{\alpha\,|\nu|\,|\mu|^3\,d\,\max\{\sigma_w^2,\sigma_p^2\}}. $$
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from attnbook.token_selection.theory import not_overfitting_clock
from attnlib import checks
from attnlib.randomness import stream
from attnlib.token_selection.gram import Gram, draw_gram
from attnlib.token_selection.law import Start, TokenLaw
from attnlib.token_selection.model import outputs
from attnlib.token_selection.population import population
from attnlib.token_selection.training import Recursion


@dataclass(frozen=True)
class Setting:
    """One experiment: a law, a start and a constant step size alpha > 0."""

    law: TokenLaw
    start: Start
    step_size: float

    def __post_init__(self) -> None:
        checks.positive_number("step_size", self.step_size)


def clock_unit(setting: Setting) -> float:
    """The theorem's unit of time, in steps: `not_overfitting_clock` of the setting."""
    scales = {"weight_scale": setting.start.weight_scale, "prompt_scale": setting.start.prompt_scale}
    return not_overfitting_clock(setting.law, setting.step_size, **scales)


@dataclass(frozen=True)
class HalfTimes:
    """K settings, R runs each; nan where a run did not get there. Fractions and error are those of the first step past it."""

    settings: tuple[Setting, ...]
    tau: np.ndarray  # (K, R), steps
    clean_fitted: np.ndarray  # (K, R), fraction of clean training samples with Y f > 0
    noisy_fitted: np.ndarray  # (K, R)
    error: np.ndarray  # (K, R), on fresh data
    fresh_attention: np.ndarray  # (K, R), mean on x_1
    attention_clean: np.ndarray  # (S, K, R), mean attention on x_1 at step 0, 1, ... until the setting's runs got there
    attention_noisy: np.ndarray  # (S, K, R)

    @property
    def in_units(self) -> np.ndarray:
        """(K, R): tau over the theorem's unit."""
        return self.tau / np.array([[clock_unit(s)] for s in self.settings])


def star(centre: Setting, **values: Sequence[float]) -> dict[str, list[Setting]]:
    """Settings that leave `centre` along one axis at a time, by axis: `step_size`, a field of the law, or one of the start.

    Raises ValueError for an axis that is none of these, or with fewer than two values.
    """
    axes: dict[str, list[Setting]] = {}
    for name, points in values.items():
        if len(points) < 2:
            raise ValueError(f"{name} must have two values or more, for an exponent; got {list(points)!r}")
        if name == "step_size":
            axes[name] = [replace(centre, step_size=x) for x in points]
        elif hasattr(centre.law, name):
            axes[name] = [replace(centre, law=replace(centre.law, **{name: x})) for x in points]
        elif hasattr(centre.start, name):
            axes[name] = [replace(centre, start=replace(centre.start, **{name: x})) for x in points]
        else:
            raise ValueError(f"values must name step_size, a field of TokenLaw or one of Start; got {name!r}")
    return axes


def half_times(settings: Sequence[Setting], *, runs: int, seed: int, limit: int, count: int = 2000) -> HalfTimes:
    """Train every setting until the mean clean attention on x_1 is 1/2 in all its runs, at most `limit` steps.

    Args:
        runs: training sets 0 ... runs - 1 of `seed` per setting. Settings share the streams, so differences between them are paired.
        count: fresh points for the error at that step, even.

    Raises ValueError for a bad argument before any work.
    """
    settings = tuple(settings)
    if not settings:
        raise ValueError("settings must hold one Setting or more; got none")
    runs = checks.whole_number("runs", runs, at_least=1)
    checks.whole_number("limit", limit, at_least=1)
    checks.whole_number("count", count, at_least=4)
    parts = []
    for s in settings:
        parts.append(_until_half(draw_gram(s.law, seed, runs, start=s.start), s.step_size, limit, count))
    longest = max(len(part[-1]) for part in parts)
    outcomes = [np.stack([part[i] for part in parts]) for i in range(5)]
    padded = [np.pad(p[-1], ((0, longest - len(p[-1])), (0, 0), (0, 0)), constant_values=np.nan) for p in parts]
    history = np.stack(padded, axis=2)  # (S, 2, K, R)
    return HalfTimes(settings, *outcomes, history[:, 0], history[:, 1])


def _until_half(gram: Gram, step_size: float, limit: int, count: int) -> tuple[np.ndarray, ...]:
    """tau, clean fitted, noisy fitted, fresh error and attention (each (R,)), and attention of both kinds on x_1 (S, 2, R)."""
    state, runs, labels = Recursion(gram), gram.runs, gram.labels
    tau, clean, noisy, error, attention = (np.full(runs, np.nan) for _ in range(5))
    history = []
    for step in range(limit + 1):
        on_first = torch.softmax(state.scores, -1)[..., 0]
        history.append(torch.stack([labels.mean_over(kind, on_first) for kind in ("clean", "noisy")]).numpy())
        new = np.flatnonzero((history[-1][0] >= 0.5) & np.isnan(tau))
        if len(new):
            fitted = (outputs(state.scores, gram.head_scores) * labels.observed > 0).double()
            shares = [labels.mean_over(kind, fitted) for kind in ("clean", "noisy")]
            norms = state.direction_norm_squared
            for r in new:
                before, now = history[max(step - 1, 0)][0][r], history[-1][0][r]
                tau[r] = step if now == before else step - (now - 0.5) / (now - before)
                clean[r], noisy[r] = (share[r].item() for share in shares)
                rng = stream(gram.seed, "test", gram.first_run + int(r))
                fresh = population(gram.law, state.direction_on_signals[r], norms[r], count=count, rng=rng)
                error[r], attention[r] = fresh.error.item(), fresh.attention[0].item()
        if np.isfinite(tau).all() or step == limit:
            break
        state.advance(step_size)
    return tau, clean, noisy, error, attention, np.stack(history)


def exponents(values: Sequence[float], tau: np.ndarray) -> np.ndarray:
    """(R,): slope of log tau on log value in every run, by least squares.

    Args:
        values: (K,) positive, two different ones at least.
        tau: (K, R), positive; a run with a nan gets a nan.

    Raises ValueError for shapes that do not fit.
    """
    x, y = np.log(np.asarray(values, dtype=np.float64)), np.log(np.asarray(tau, dtype=np.float64))
    if y.ndim != 2 or y.shape[0] != len(x) or np.ptp(x) == 0:
        raise ValueError(
            f"tau must be (values, runs) for two different values or more; got {y.shape} and {len(x)} values"
        )
    centred = x - x.mean()
    return centred @ y / (centred @ centred)
