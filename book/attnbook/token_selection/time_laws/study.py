r"""The first time scale, and the time to fit every label.

$\tau_{1/2}$ is the first step at which the mean attention of the clean training samples on $x_1$ reaches $\tfrac12$, interpolated
linearly between steps. The theorem (arXiv 2409.17625, poster, part 1) gives its order in units of

$$ \frac{1}{\alpha\,|\nu|\,|\mu|^3\,d\,\max\{\sigma_w^2,\sigma_p^2\}}. $$

$t_{\rm fit}$ is the time of gradient flow (the sum of the step sizes) at which every observed label is fitted.
"""

import math
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import torch

from attnbook.token_selection.horizon import fittable, train_flow
from attnbook.token_selection.theory import exponents, first_half_time, laws_of_strength, not_overfitting_clock
from attnlib.randomness import stream
from attnlib.token_selection.errors import population
from attnlib.token_selection.gram import draw_gram
from attnlib.token_selection.law import Start, TokenLaw
from attnlib.token_selection.model import outputs
from attnlib.token_selection.training import Recursion

BESIDE = ("prompt_scale", "head_scale")  # axes along which the unit of time is not the theorem's alone
_FACTORS = (0.5, 1.0, 2.0, 4.0)
_FIT_RUNS = 12  # training sets behind the time to fit every label: it hangs on the last label, and varies


@dataclass(frozen=True)
class Setting:
    """One experiment: a law, a start and a constant step size alpha > 0."""

    law: TokenLaw
    start: Start
    step_size: float


def clock_unit(setting):
    """The theorem's unit of time, in steps: `not_overfitting_clock` of the setting."""
    scales = {"weight_scale": setting.start.weight_scale, "prompt_scale": setting.start.prompt_scale}
    return not_overfitting_clock(setting.law, setting.step_size, **scales)


def predicted_half(setting):
    """Steps until clean attention on x_1 is 1/2 by the orthogonal-noise prediction, from p_0 = 0."""
    return first_half_time(setting.law, setting.step_size, weight_scale=setting.start.weight_scale)


# --- half times ----------------------------------------------------------------------------------------------------------------


def half_times(settings, *, runs, seed, limit, count=2000):
    """Train K settings until the mean clean attention on x_1 is 1/2 in all R runs, at most `limit` steps; settings share the streams.

    tau (K, R) in steps and in_units, those of the theorem; clean_fitted, noisy_fitted (shares), error, fresh_attention (mean on x_1),
    (K, R), are those of the first step past it, on `count` fresh points; nan where a run did not get there. attention_clean and
    attention_noisy (S, K, R) on x_1 at step 0, 1, ... until the setting's runs got there.
    """
    parts = [_until_half(draw_gram(s.law, seed, runs, start=s.start), s.step_size, limit, count) for s in settings]
    longest = max(len(history) for _, history in parts)
    padded = [np.pad(h, ((0, longest - len(h)), (0, 0), (0, 0)), constant_values=np.nan) for _, h in parts]
    found = SimpleNamespace(
        settings=settings, **{name: np.stack([state[name] for state, _ in parts]) for name in parts[0][0]}
    )
    found.in_units = found.tau / np.array([[clock_unit(s)] for s in settings])
    found.attention_clean, found.attention_noisy = np.moveaxis(np.stack(padded, axis=2), 1, 0)
    return found


def _until_half(gram, step_size, limit, count):
    """The state of each run at its first step past one half, each (R,), and attention of both kinds on x_1, (S, 2, R)."""
    state, labels, history = Recursion(gram), gram.labels, []
    names = ("tau", "clean_fitted", "noisy_fitted", "error", "fresh_attention")
    found = {name: np.full(gram.runs, np.nan) for name in names}
    for step in range(limit + 1):
        on_first = torch.softmax(state.scores, -1)[..., 0]
        history.append(torch.stack([labels.mean_over(kind, on_first) for kind in ("clean", "noisy")]).numpy())
        new = np.flatnonzero((history[-1][0] >= 0.5) & np.isnan(found["tau"]))
        if len(new):
            fitted = (outputs(state.scores, gram.head_scores) * labels.observed > 0).double()
            clean, noisy = (labels.mean_over(kind, fitted) for kind in ("clean", "noisy"))
            norms = state.direction_norm_squared
            for r in new:
                before, now = history[max(step - 1, 0)][0][r], history[-1][0][r]
                crossing = step if now == before else step - (now - 0.5) / (now - before)
                rng = stream(gram.seed, "test", gram.first_run + int(r))
                fresh = population(gram.law, state.direction_on_signals[r], norms[r], count=count, rng=rng)
                at = crossing, clean[r].item(), noisy[r].item(), fresh.error.item(), fresh.attention[0].item()
                for name, value in zip(names, at, strict=True):
                    found[name][r] = value
        if np.isfinite(found["tau"]).all() or step == limit:
            break
        state.advance(step_size)
    return found, np.stack(history)


def star(centre, **values):
    """Settings that leave `centre` along one axis at a time, by axis: `step_size`, a field of the law, or one of the start."""
    axes = {}
    for name, points in values.items():
        if name == "step_size":
            axes[name] = [replace(centre, step_size=x) for x in points]
        elif hasattr(centre.law, name):
            axes[name] = [replace(centre, law=replace(centre.law, **{name: x})) for x in points]
        else:
            axes[name] = [replace(centre, start=replace(centre.start, **{name: x})) for x in points]
    return axes


def _clock(centre, runs, seed):
    """Half times along each axis, with its `values` (K,) and the `exponents` (R,) of tau in them.

    Limits are ten times what the centre needs, scaled along with the theorem's unit.
    """
    around = np.array(_FACTORS)
    scales = centre.start.weight_scale * around
    values = {
        "step_size": list(centre.step_size * around),
        "signal_norm": list(centre.law.signal_norm * around),
        "weight_scale": list(scales),
        "d": [int(centre.law.d * f) for f in (0.5, 1, 2, 4, 8)],
        "head_scale": [centre.law.head_scale * f for f in (0.25, 0.5, 1, 2)],
    }
    axes = star(centre, **values)
    axes["d at fixed variance"] = [
        replace(s, start=replace(s.start, weight_scale=float(scale)))
        for s, scale in zip(axes["d"], scales, strict=False)
    ]
    values["d at fixed variance"] = values["d"][: len(scales)]
    # A Gaussian p_0 starts scores of size SNR sqrt(sigma_w^2 d sigma_p^2 d) sqrt(d): small scales keep them small.
    strong = replace(centre.law, d=4 * centre.law.d, signal_norm=2 * centre.law.signal_norm)
    values["prompt_scale"] = [0.02 * f for f in (0.25, 1.0, 4.0, 16.0)]
    small = Setting(strong, Start(weight_scale=0.02), centre.step_size * 6)
    axes |= star(small, prompt_scale=values["prompt_scale"])
    clock = {}
    for name, settings in axes.items():
        limit = math.ceil(1500 * max(clock_unit(s) for s in settings))
        clock[name] = found = half_times(settings, runs=runs, seed=seed, limit=limit)
        found.values = np.array(values[name])
        found.exponents = torch.as_tensor(exponents(found.values, found.tau))
    return clock


# --- time to fit every label ---------------------------------------------------------------------------------------------------


def fit_times(laws, *, runs, seed, steps=2000):
    """(K, R): time of the flow at which every observed label is fitted for the first time; inf for a training set with a label that no
    attention fits, nan after `steps` steps without."""
    times = []
    for law in laws:
        gram = draw_gram(law, seed, runs)
        hopeless = ~fittable(gram)

        def done(state, gram=gram, hopeless=hopeless):
            return hopeless | (outputs(state.scores, gram.head_scores) * gram.labels.observed > 0).all(-1)

        path = train_flow(gram, steps=steps, done=done)
        at = path.trajectory.time.gather(0, path.done.clamp(min=0).unsqueeze(0))[0]
        times.append(at.masked_fill(path.done < 0, math.nan).masked_fill(hopeless, math.inf).numpy())
    return np.stack(times)


def clock_study(centre, fit_norm, *, runs=5, seed=0):
    """What the page measures.

    clock: half times by axis; "prompt_scale" starts at p_0 != 0, the others at p_0 = 0. steps and products (K, R): tau of all settings
    with p_0 = 0 and |nu||mu| = 1, in steps and in the theorem's unit; predicted_steps, predicted_products (K,). at_half: the state
    there, and uniform attention. in_sum, in_maximum (4, R): tau in units of the sum and of the maximum of both variances, along
    prompt_scale. fit_times (3, 12 or more): see `fit_times`, at signal norm `fit_norm` where 1 / (n SNR^2) is 1, 4 and 16.
    """
    s = SimpleNamespace(centre=centre, clock=_clock(centre, runs, seed))
    found = [axis for name, axis in s.clock.items() if name not in BESIDE]
    settings = [setting for f in found for setting in f.settings]
    units = np.array([clock_unit(setting) for setting in settings])
    s.steps, s.predicted_steps = np.concatenate([f.tau for f in found]), np.array(list(map(predicted_half, settings)))
    s.products, s.predicted_products = s.steps / units[:, None], s.predicted_steps / units
    names = ("clean_fitted", "noisy_fitted", "error", "fresh_attention")
    s.at_half = SimpleNamespace(**{name: np.concatenate([getattr(f, name) for f in found]) for name in names})
    s.at_half.uniform_attention = np.full_like(s.steps, 1 / centre.law.tokens)
    prompt = s.clock["prompt_scale"]
    scales = np.array([(each.start.weight_scale, each.start.prompt_scale) for each in prompt.settings])
    s.in_sum, s.in_maximum = (prompt.tau * scale[:, None] for scale in (scales.sum(1), scales.max(1)))
    weak = replace(centre.law, signal_norm=fit_norm)
    s.fit_dimensions = np.array([laws_of_strength(weak, [1.0])[0].d * k for k in (1, 4, 16)])
    fit_laws = [replace(weak, d=int(d)) for d in s.fit_dimensions]
    s.fit_times = fit_times(fit_laws, runs=max(runs, _FIT_RUNS), seed=seed)
    return s
