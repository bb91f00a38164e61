r"""Data of the token selection player: attention of every token over twenty-nine decades of training time.

For every pair of a signal-to-noise ratio (`SIZES`) and a label noise (`LABEL_NOISES`), five training sets follow the gradient flow
(`horizon.train_flow`; time is the sum of the step sizes) and are read off at common times, as the page on the time laws does it.
Curves are packed by `packing`; the browser unpacks the ones it shows.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch

from attnbook.explorers.packing import RESOLUTION, pack
from attnbook.token_selection.heat_map.study import PHASES, phases
from attnbook.token_selection.horizon import train_flow
from attnbook.token_selection.the_delay.study import along_time, read_beside, selection_times
from attnbook.token_selection.theory import uniform_attention_accuracy
from attnlib.token_selection.gram import draw_gram
from attnlib.token_selection.law import TokenLaw
from attnlib.token_selection.model import outputs
from attnlib.token_selection.training import Recursion, Trajectory

SIZES = ((5.0, 4500), (20.0, 48000), (20.0, 32000), (20.0, 16000), (20.0, 8000), (20.0, 2000), (100.0, 1000))  # |mu|, d
LABEL_NOISES = (0.1, 0.2, 0.4)
KINDS = ("clean", "noisy", "fresh")  # samples
ROLES = ("relevant", "confusing", "weak", "noise")  # tokens; the noise tokens together
CURVES = (
    *(f"{kind} {role}" for kind in KINDS for role in ROLES), "clean fitted", "noisy fitted", "fresh accuracy", "fresh loss",
)  # fmt: skip
_N, _TOKENS, _RUNS, _SEED, _COUNT = 20, 8, 5, 0, 4000
_EVERY, _STEPS = 4, 20_000  # as `the_delay.study.course`; the flow ends long before
_SHOWN = 4  # clean samples of the first training set that are kept one by one, and at most so many flipped ones


def times() -> np.ndarray:
    """Common times of all curves: eight a decade while samples are memorised, two when only exponentially late things happen."""
    return 10.0 ** np.concatenate([np.arange(-24, 16) / 8, np.arange(8, 32) / 4, np.arange(16, 53) / 2])


def law_of(signal_norm: float, d: int, label_noise: float) -> TokenLaw:
    """The authors' law in every other number."""
    return TokenLaw(_N, d, _TOKENS, signal_norm, label_noise=label_noise)


@dataclass(frozen=True)
class Story:
    """What R training sets of one law show at G times. Curves in the order of `CURVES`."""

    law: TokenLaw
    curves: np.ndarray  # (R, C, G)
    phases: np.ndarray  # (R, G), index into `heat_map.PHASES`
    samples: np.ndarray  # (m, T, G), attention of single samples of the first training set: `shown_samples`
    fitted_at: np.ndarray  # (R,), first time at which every observed label is fitted; nan: never
    selected_at: np.ndarray  # (R,), mean fresh attention on the relevant token is 1/2; nan: never


def shown_samples(law: TokenLaw) -> list[int]:
    """The first clean samples of the first training set, then its first flipped ones."""
    noisy = law.draw_labels(_SEED).noisy[0]
    return [i for flags in (~noisy, noisy) for i in torch.nonzero(flags).flatten().tolist()[:_SHOWN]]


def story(law: TokenLaw, at: np.ndarray) -> Story:
    """Follow the flow of five training sets up to the last of the times `at` (positive, rising) and read everything off there."""
    gram = draw_gram(law, _SEED, _RUNS)
    fitted_at = torch.full((_RUNS,), math.nan, dtype=torch.float64)

    def over(state: Recursion) -> torch.Tensor:
        nonlocal fitted_at
        fitted = (outputs(state.scores, gram.head_scores) * gram.labels.observed > 0).all(-1)
        fitted_at = torch.where(fitted_at.isnan() & fitted, state.time, fitted_at)
        return state.time >= at[-1]

    path = train_flow(gram, steps=_STEPS, record_every=_EVERY, done=over).trajectory
    read = [_read(path, run, at) for run in range(_RUNS)]
    T, shown = law.tokens, shown_samples(law)
    each = path.attention[:, 0, shown].flatten(1)  # (S, m T)
    samples = along_time(path.time[:, :1].expand(-1, each.shape[1]), each, at).reshape(len(shown), T, len(at))
    curves, phases = (np.stack(column) for column in zip(*read, strict=True))
    return Story(law, curves, phases, samples, fitted_at.numpy(), selection_times(path))


def _read(path: Trajectory, run: int, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Curves (C, G) and phases (G,) of one run."""
    rows, fresh = read_beside(path, run, at, _COUNT)
    columns = [
        *(_by_role(weights) for weights in (*(path.attention_of(k)[rows, run] for k in KINDS[:2]), fresh.attention)),
        torch.stack([path.train_accuracy(kind)[rows, run] for kind in KINDS[:2]], 1),
        torch.stack([fresh.accuracy, fresh.loss, fresh.error_se], 1),
    ]
    values = torch.cat(columns, 1)  # (rows, C + 1)
    found = along_time(path.time[rows, run : run + 1].expand(-1, values.shape[1]), values, at)
    seen = dict(zip(CURVES, found, strict=False))
    # The rule of the heat map, at every time instead of after a number of steps.
    judged = phases(
        seen["noisy fitted"],
        seen["fresh relevant"],
        1 - seen["fresh accuracy"],
        found[-1],
        1 - uniform_attention_accuracy(path.law),
    )
    return found[:-1], judged


def _by_role(weights: torch.Tensor) -> torch.Tensor:
    """(..., T) -> (..., 4): attention on the relevant, the confusing, the weak token, and on all noise tokens together."""
    return torch.cat([weights[..., :3], weights[..., 3:].sum(-1, keepdim=True)], -1)


def data() -> dict:
    """All pairs, as the page reads them; some four seconds a pair."""
    at = times()
    pairs = [_entry(story(law_of(norm, d, eta), at)) for norm, d in SIZES for eta in LABEL_NOISES]
    return {
        "times": [round(float(x), 3) for x in np.log10(at)],
        "resolution": RESOLUTION,
        "kinds": KINDS,
        "roles": ROLES,
        "curves": CURVES,
        "phases": PHASES,
        "label_noises": LABEL_NOISES,
        "runs": _RUNS,
        "seed": _SEED,
        "fresh_points": _COUNT,
        "pairs": pairs,
    }


def _entry(one: Story) -> dict:
    """Packed: means, then standard errors, of all curves, then the single samples token by token."""
    law, shown = one.law, shown_samples(one.law)
    mean, error = one.curves.mean(0), one.curves.std(0, ddof=1) / math.sqrt(_RUNS)
    flat = one.samples.reshape(-1, one.samples.shape[-1])
    return {
        "n": law.n, "d": law.d, "tokens": law.tokens, "signal_norm": law.signal_norm, "label_noise": law.label_noise,
        "weak_signal": law.weak_signal, "noise_std": law.noise_std, "head_scale": law.head_scale,
        "same_class_tokens": law.same_class_tokens, "samples": shown, "clean_shown": _SHOWN,
        "phase_changes": [_changes(row) for row in one.phases],
        "fitted_at": _logs(one.fitted_at), "selected_at": _logs(one.selected_at),
        "packed": pack(np.concatenate([mean, error, flat])),
    }  # fmt: skip


def _changes(phases: np.ndarray) -> list[list[int]]:
    """[[number of the time, phase], ...]: where a run enters a phase."""
    new = np.flatnonzero(np.diff(phases, prepend=-1))
    return [[int(k), int(phases[k])] for k in new]


def _logs(values: np.ndarray) -> list[float | None]:
    """log10, to a millionth; None: never."""
    return [None if math.isnan(x) else round(math.log10(x), 6) for x in values.tolist()]
