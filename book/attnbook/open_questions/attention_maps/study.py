r"""One head with the attention map as the argument: two steps, windows of step sizes, long courses, local attention.

From zero $p_1 = 0$, so two steps see a map only through $w(0)$ and its Jacobian at 0. Normalised maps have $w(0) = 1/T$ and
$J(0) = c\,(I - \frac1T11^\top)$: they share $v_1$ and $v_2$, and $p_2$ is c times one vector. Unnormalised maps with $\phi(0) = 1/2$ share
$v_1, v_2$ as well (T = 2), and

$$ p_2 = \frac{\beta\phi'(0)}{n}\sum_i g_iy_i\bigl[(v_1\cdot u_i)\,u_i + (v_1\cdot\xi_i)\,\xi_i\bigr], $$

without the competition $v_1\cdot(u_i - \xi_i)$. Source: derived; everything later is measured with the general trainer.
"""

from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import torch

from attnbook.open_questions.map_flow import map_descent, mean_field_error
from attnbook.open_questions.maps import MAPS, log10_map_error, map_courses, map_error_conditioned
from attnbook.single_head.long_run import log_steps, stacked
from attnlib.single_head.law import SignalNoiseLaw
from attnlib.single_head.maps import SOFTMAX, windows
from attnlib.single_head.training import train_heads


def two_steps(sample, step_size, attention_map):
    """(v_1, v_2, p_2), each (R, m), of one head from zero. p_1 = 0 for every map."""
    path = train_heads(sample, step_size, 2, attention_map=attention_map).single()
    return path.v[1], path.v[2], path.p[2]


def unnormalised_p2(sample, step_size, derivative):
    """The closed form above for a map with phi(0) = 1/2, phi'(0) = `derivative`: p_2, (R, m). Two tokens."""
    labels, n = sample.labels.unsqueeze(-1), sample.labels.shape[1]
    v1 = step_size / (4 * n) * (labels.unsqueeze(-1) * sample.tokens).sum((1, 2))
    values = (sample.tokens @ v1[:, None, :, None]).squeeze(-1)  # (R, n, 2)
    slopes = torch.sigmoid(-labels.squeeze(-1) * values.sum(-1) / 2)
    pulls = (slopes * sample.labels).unsqueeze(-1) * values
    return step_size * derivative / n * (pulls.unsqueeze(-1) * sample.tokens).sum((1, 2))


@dataclass(frozen=True)
class StepWindow:
    """Two steps over a range of step sizes, for one map."""

    units: np.ndarray  # (U,), step size in units of n / d
    interpolates: np.ndarray  # (U, draws) bool
    log10_error: np.ndarray  # (U, draws)

    def __str__(self):
        """The steps with which every draw interpolates and the mean clean error is below 1 %."""
        found = self.units[self.interpolates.all(1) & ((10**self.log10_error).mean(1) < 0.01)]
        return f"{found[0]:g} - {found[-1]:g}" if len(found) else "none"


def step_windows(law, units, maps=MAPS, *, draws=10, seed=0):
    """Two steps from zero with step sizes units x n / d, the same draws for each map and size: name of the map -> `StepWindow`."""
    sample, units, found = law.draw(seed, draws), np.asarray(units, dtype=float), {}
    batch = stacked([sample] * len(units))
    sizes = torch.as_tensor(units * law.n / law.d).repeat_interleave(draws).to(sample.tokens)
    for attention_map in maps:
        path = train_heads(batch, sizes, 2, attention_map=attention_map, record=[]).single()
        errors = log10_map_error(path.v[-1], path.p[-1], batch, attention_map)
        parts = (part.view(len(units), draws).numpy() for part in (path.interpolates[-1], errors))
        found[attention_map.name] = StepWindow(units, *parts)
    return found


def local_attention(
    widths=(1, 2, 4, 8), *, n=60, d=12_000, high=30.0, low=16.0, steps=100, draws=5, seed=0, count=4000
):
    """Softmax in windows of W tokens, T = 8, step size 5 n / d, above (two steps) and below the threshold (`steps` steps).

    Arrays (widths, draws): `signal_in_p2`, coefficient of mu_k in p_2, mean over k, above; log10 errors after the last step and after
    step 2, and the train accuracy after the last step, below. `predicted` (widths,): the coefficient to leading order, up to a factor.
    Errors are averages over `count` draws of the fresh logits: good to a few percent above 1e-6 and not to be trusted below.
    """
    rows, size = [], 5 * n / d
    above, below = (SignalNoiseLaw(n, d, norm, 0.05, tokens=8).draw(seed, draws) for norm in (high, low))
    for width in widths:
        attention_map = windows(SOFTMAX, width)
        path = train_heads(above, size, 2, attention_map=attention_map, record=[]).single()
        along = torch.einsum("rkm,rm->rk", above.signals, path.p[-1]) / high**2
        late = train_heads(below, size, steps, attention_map=attention_map, record=[2]).single()
        errors = (map_error_conditioned(late.v[at], late.p[at], below, attention_map, count) for at in (-1, 0))
        rows.append((along.mean(1), *(error.value.log10() for error in errors), late.train_accuracy[-1]))
    names = ("signal_in_p2", "late_error", "early_error", "train_accuracy")
    found = {name: torch.stack(part).numpy() for name, part in zip(names, zip(*rows, strict=True), strict=True)}
    return SimpleNamespace(widths=tuple(widths), predicted=1 - 1 / np.array(widths), **found)


def _mean_field(laws, attention_map, step_size, record, sample):
    """(S, norms, draws): log10 error of the mean-field head with each draw's own counts."""
    # an empty class is a faint one
    clean, noisy = (part.clamp_min(1e-9).repeat(len(laws), 1) for part in sample.counts())
    norms = torch.tensor([law.signal_norm for law in laws], dtype=torch.float64).repeat_interleave(sample.runs)
    n, d = sample.law.n, sample.law.d
    x, share = norms.unsqueeze(1) ** 2 * clean / d, noisy / (clean + noisy)
    states = map_descent(x.flatten(), share.flatten(), attention_map, step_size * d / n, record=record)
    return mean_field_error(states, attention_map, clean, noisy, d).view(-1, len(laws), sample.runs).numpy()


def maps_study(law, norms, step_size, *, steps=2000, draws=10, seed=0):
    """Train and collect: two steps, and courses at every signal norm, the last one in place of the law's; by the maps' names.

    x: expected rho^2 |C_k| / d, by norm. low: the norm that the low-SNR claims look at, the largest with x < 0.3, or the smallest of all.
    """
    laws = [replace(law, signal_norm=norm) for norm in norms]
    law, record = laws[-1], sorted({1, 2, 10, 100, 1000, *log_steps(steps, 2)})
    sample, x = law.draw(seed, draws), {norm: norm**2 * law.n * (1 - law.label_noise) / 2 / law.d for norm in norms}
    courses = {m.name: map_courses(laws, m, step_size, steps, record=record, draws=draws, seed=seed) for m in MAPS}
    return SimpleNamespace(
        law=law,
        norms=norms,
        x=x,
        low=max((norm for norm in norms if x[norm] < 0.3), default=min(norms)),
        step_size=step_size,
        sample=sample,
        two={m.name: two_steps(sample, step_size, m) for m in MAPS},  # v_1, v_2, p_2
        courses={name: dict(zip(norms, found, strict=True)) for name, found in courses.items()},
        predicted={m.name: _mean_field(laws, m, step_size, record, sample) for m in MAPS},  # (steps, norms, draws)
        local=local_attention(seed=seed),
    )
