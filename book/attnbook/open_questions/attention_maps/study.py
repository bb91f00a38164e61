"""What the claims on two steps and long training look at: every attention map, and windows."""

from dataclasses import dataclass, replace

import numpy as np
import torch

from attnbook.open_questions.attention_maps.courses import MAPS, LocalAttention, local_attention, map_courses, two_steps
from attnbook.open_questions.attention_maps.flow import map_descent
from attnbook.single_head.long_run import Course, log_steps
from attnlib import checks
from attnlib.single_head.law import Sample, SignalNoiseLaw
from attnlib.single_head.maps import AttentionMap


@dataclass(frozen=True)
class MapsStudy:
    """Everything the claims look at. Dictionaries are keyed by the maps' names."""

    law: SignalNoiseLaw  # at the largest signal norm
    norms: tuple[float, ...]
    step_size: float
    sample: Sample  # of `law`
    two: dict[str, tuple[torch.Tensor, ...]]  # v_1, v_2, p_2
    courses: dict[str, list[Course]]  # one per norm
    predicted: dict[str, np.ndarray]  # mean-field log10 error, (recorded steps, norms, draws)
    local: LocalAttention

    def at_norm(self, name: str, norm: float) -> Course:
        """The course of a map at one of the norms."""
        return self.courses[name][self.norms.index(norm)]

    @property
    def low(self) -> float:
        """The norm the low-SNR claims look at: the largest with x < 0.3, or the smallest of all."""
        return max((norm for norm in self.norms if self.x(norm) < 0.3), default=min(self.norms))

    def x(self, norm: float) -> float:
        """Expected x = rho^2 |C_k| / d."""
        return norm**2 * self.law.n * (1 - self.law.label_noise) / 2 / self.law.d


def _mean_field(
    laws: list[SignalNoiseLaw], attention_map: AttentionMap, step_size: float, record: list[int], sample: Sample
) -> np.ndarray:
    """(S, norms, draws): log10 error of the mean-field head with each draw's own counts."""
    # an empty class is a faint one
    clean, noisy = (part.clamp_min(1e-9).repeat(len(laws), 1) for part in sample.counts())
    norms = torch.tensor([law.signal_norm for law in laws], dtype=torch.float64).repeat_interleave(sample.runs)
    n, d = sample.law.n, sample.law.d
    x, share = norms.unsqueeze(1) ** 2 * clean / d, noisy / (clean + noisy)
    path = map_descent(x.flatten(), share.flatten(), attention_map, step_size * d / n, record=record)
    return path.log10_error(clean, noisy, d).view(-1, len(laws), sample.runs).numpy()


def maps_study(
    law: SignalNoiseLaw,
    norms: tuple[float, ...],
    step_size: float,
    *,
    steps: int = 2000,
    draws: int = 10,
    seed: int = 0,
) -> MapsStudy:
    """Train and collect. Courses at every signal norm; the last norm is that of `law`; steps >= 1000, draws >= 2.

    Raises ValueError for a bad argument before any work.
    """
    checks.positive_number("step_size", step_size)
    checks.whole_number("steps", steps, at_least=1000, hint="the claims look at step 1000")
    checks.whole_number("draws", draws, at_least=2)
    checks.whole_number("seed", seed, at_least=0)
    norms = tuple(checks.positive_number("norms", norm) for norm in norms)
    if len(norms) < 2 or list(norms) != sorted(set(norms)):
        raise ValueError(f"norms must be two or more increasing signal norms; got {norms}")
    laws = [replace(law, signal_norm=norm) for norm in norms]
    record = sorted({1, 2, 10, 100, 1000, *log_steps(steps, 2)})
    common = {"draws": draws, "seed": seed}
    sample = laws[-1].draw(seed, draws)
    return MapsStudy(
        law=laws[-1], norms=norms, step_size=step_size, sample=sample,
        two={m.name: two_steps(sample, step_size, m) for m in MAPS},
        courses={m.name: map_courses(laws, m, step_size, steps, record=record, **common) for m in MAPS},
        predicted={m.name: _mean_field(laws, m, step_size, record, sample) for m in MAPS},
        local=local_attention(seed=seed),
    )  # fmt: skip
