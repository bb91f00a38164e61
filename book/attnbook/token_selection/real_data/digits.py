"""The laptop experiment: scikit-learn's 8 x 8 digits, a small vision transformer trained on the page, several seeds.

Nothing is downloaded. Every seed has its own split, backbone, samples, flips and start; runs are repeatable on one machine
because they use one thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace

import torch

from attnbook.token_selection.real_data.experiment import NoiseStudy
from attnbook.token_selection.real_data.plans import PLANS
from attnbook.token_selection.real_data.reach import free_heads, reachable_by_one_token, wrong_labels
from attnbook.token_selection.real_data.setups import Setup, prepare, scale_head
from attnbook.token_selection.real_data.vit import ViTShape
from attnlib import checks

__all__ = ["DigitsStudy", "digits_study", "hold_heads", "one_thread"]

_REACH_SAMPLES = 300


@dataclass(frozen=True)
class DigitsStudy:
    """All runs. `runs[n]` and `held[k]` are lists over seeds; `held[k]`: only k heads of the last layer are trained."""

    shape: ViTShape
    seeds: tuple[int, ...]
    sizes: tuple[int, ...]
    noise_levels: tuple[float, ...]
    steps: int
    step_size: float
    epochs: int
    head_scale: float  # factor on the frozen head's logits
    held_size: int  # n of the runs in `held`
    held_level: float  # their noise level, beside the clean-label baseline
    runs: dict[int, list[NoiseStudy]]
    held: dict[int, list[NoiseStudy]]
    one_token: torch.Tensor  # (seeds,) reach when all heads must attend to one and the same token

    def values(self, what: str, n: int) -> torch.Tensor:
        """A quantity of `NoiseStudy`, seeds first, at one n: (seeds, ...)."""
        return _stack(self.runs[n], what)

    def held_values(self, what: str, free: int) -> torch.Tensor:
        """The same with only `free` trained heads; for all heads, from the full runs at the same n and level."""
        if free in self.held:
            return _stack(self.held[free], what)
        values = _stack(self.runs[self.held_size], what)
        if values.ndim == 1:
            return values
        return values[:, [0, self.noise_levels.index(self.held_level)]]

    @property
    def free(self) -> tuple[int, ...]:
        """Numbers of trained heads, rising; the last one is all of them."""
        return (*sorted(self.held), self.shape.heads)


def _stack(runs: list[NoiseStudy], what: str) -> torch.Tensor:
    values = [getattr(run, what) for run in runs]
    return torch.stack([torch.as_tensor(value, dtype=torch.float64) for value in values])


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch on one thread inside: sums are then added in one order, and a run can be repeated bit by bit."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@torch.no_grad()
def hold_heads(setup: Setup, free: int) -> Setup:
    """The same setup with all but the first `free` heads held at the attention that phase 1 gave them."""
    own = setup.own
    pool, test = (free_heads(part, part.attention(own)[0], free) for part in (setup.pool, setup.test))
    return replace(setup, pool=pool, test=test)


def digits_study(
    shape: ViTShape | None = None,
    *,
    seeds: int = 5,
    seed: int = 0,
    sizes: Sequence[int] = (20, 100, 200),
    noise_levels: Sequence[float] = (0.0, 0.1, 0.2, 0.4),
    steps: int = 300,
    step_size: float = 5e-3,
    epochs: int = 20,
    head_scale: float = 1.0,
    free: Sequence[int] = (2, 4, 8),
    held_size: int = 100,
    held_level: float = 0.2,
    parts: tuple[int, int, int] = (1000, 297, 500),
) -> DigitsStudy:
    """Train a backbone per seed, then query and key of its last layer at every n and eta, then with fewer free heads.

    Args:
        shape: the backbone; None takes `ViTShape()`: 2 layers, 16 heads, width 64, patches of 2 x 2 pixels.
        seeds: number of seeds, `seed`, `seed` + 1, ...
        sizes: values of n. noise_levels: eta, rising from 0. steps, step_size: full-batch Adam, see `noise_study`.
        epochs: of phase 1. head_scale: see `scale_head`.
        free: numbers of trained heads for the runs at n = `held_size`, eta = `held_level`; those not below the backbone's
            number of heads are left out.
        parts: sizes of phase 1, phase-2 pool and test, disjoint.

    Uses one thread of torch. Raises ValueError for sizes that do not fit, before any training.
    """
    shape = shape or ViTShape()
    checks.whole_number("seeds", seeds, at_least=1)
    checks.whole_number("seed", seed, at_least=0)
    checks.positive_number("head_scale", head_scale)
    for n in (*sizes, held_size):
        checks.whole_number("n", n, at_least=1)
        if n > parts[1]:
            raise ValueError(f"n must be at most the phase-2 pool of {parts[1]} samples; got {n}: take n from the pool")
    if held_size not in sizes or held_level not in noise_levels:
        raise ValueError(
            f"held_size and held_level must be among the sizes {tuple(sizes)} and noise levels {tuple(noise_levels)}; "
            f"got {held_size} and {held_level}"
        )
    plan = replace(
        PLANS["digits"], phase1=parts[0], pool=parts[1], test=parts[2], epochs=epochs, shape=_plan_shape(shape)
    )
    free = sorted({k for k in free if k < shape.heads})
    runs: dict[int, list[NoiseStudy]] = {n: [] for n in sizes}
    held: dict[int, list[NoiseStudy]] = {k: [] for k in free}
    one_token = []
    every = tuple(range(seed, seed + seeds))
    with one_thread():
        for s in every:
            setup = prepare("digits", s, plan=plan)
            fewer = {k: hold_heads(setup, k) for k in free}
            setup = scale_head(setup, head_scale)
            common = {"seed": s, "steps": steps, "step_size": step_size}
            first = setup.study(sizes[0], noise_levels, reach_samples=_REACH_SAMPLES, **common)
            runs[sizes[0]].append(first)
            looked_at = slice(0, _REACH_SAMPLES)
            targets = wrong_labels(setup.test_labels[looked_at], setup.classes, seed=s, run=2)
            one_token.append(reachable_by_one_token(setup.test.subset(looked_at), targets).double().mean())
            for n in sizes[1:]:
                later = setup.study(n, noise_levels, reach_samples=0, **common)
                runs[n].append(replace(later, reach=first.reach))  # the same network and test samples
            for k in free:
                part = replace(scale_head(fewer[k], head_scale), features=None)
                held[k].append(part.study(held_size, (0.0, held_level), reach_samples=_REACH_SAMPLES, **common))
    return DigitsStudy(
        shape=shape,
        seeds=every,
        sizes=tuple(sizes),
        noise_levels=tuple(noise_levels),
        steps=steps,
        step_size=step_size,
        epochs=epochs,
        head_scale=head_scale,
        held_size=held_size,
        held_level=held_level,
        runs=runs,
        held=held,
        one_token=torch.stack(one_token),
    )


def _plan_shape(shape: ViTShape) -> dict[str, int]:
    return {name: value for name, value in asdict(shape).items() if name != "classes"}
