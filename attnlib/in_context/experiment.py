"""Every setting of one training study, frozen and checked before any work. Defaults are the authors' two-head run."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlib import checks, limits
from attnlib.in_context.law import RegressionLaw
from attnlib.in_context.model import STARTS, require_even_heads
from attnlib.kernels.in_context import OPTIMISERS

_MOST_NOISE = 1e15  # its square times d is a float32, and so are losses


@checks.checked
@dataclass(frozen=True)
class Experiment:
    """The settings of R runs of one training, frozen and checked. Defaults are the authors' two-head run.

    Run r starts from the stream (seed, "start", first_run + r) and draws its prompts from stream number first_run + r of the
    counter-based training generator, so batches can be cut anywhere. Arguments outside their range raise ValueError.

    Source:
        the authors' notebook for arXiv 2503.12734.

    Example:
        >>> experiment = Experiment(heads=1, d=3, steps=100, records=4, runs=2)
        >>> experiment.length, experiment.recorded_steps
        (24, (0, 1, 10, 100))
    """

    heads: int = 2  # H
    layers: int = 1  # more than one: a causal stack (`stack`, `deeper_and_wider`)
    outputs: int = 1  # entries of a label: tasks (`multi_task`)
    weight_tying: bool = False  # one layer, used again and again
    d: int = 5  # covariates
    length: int | None = None  # L; None: 8 d
    noise_std: float = 0.01  # sigma of `RegressionLaw`
    convention: str = "notebook"  # or "repository", see `RegressionLaw`
    start: str = "random"  # one of those of `initial_weights`
    optimiser: str = "Adam"  # or "SGD", "AdamW"
    learning_rate: float | tuple[float, ...] = 1e-3  # one for all runs, or one each
    batch: int = 128  # prompts in a step
    betas: tuple[float, float] = (0.9, 0.999)  # Adam's decay rates
    eps: float = 1e-8  # of Adam
    weight_decay: float | None = None  # None: 0 for SGD and Adam, 0.01 for AdamW (torch's own defaults)
    steps: int = 500_001  # updates
    records: int = 100  # number of recorded steps, about evenly spaced in log(step)
    runs: int = 5  # R
    first_run: int = 0  # number of the first
    shared_data: bool = False  # all runs see the prompts of `first_run`
    seed: int = 0  # of the random streams

    def __post_init__(self) -> None:
        for name in ("heads", "layers", "outputs", "runs"):
            checks.whole_number(name, getattr(self, name), at_least=1)
        # The generator of prompts has a key of 64 bits, the seed, and a counter of three times 32: prompt, step and run.
        counter = "the stream's counter ends there"
        checks.whole_number("batch", self.batch, at_least=1, at_most=2**31, hint=counter)
        checks.whole_number("steps", self.steps, at_least=0, at_most=2**31 - 1, hint=counter)
        checks.whole_number("first_run", self.first_run, at_least=0, at_most=2**32 - self.runs, hint=counter)
        checks.whole_number("seed", self.seed, at_least=0, at_most=2**64 - 1, hint="it is the key of the stream")
        checks.whole_number("records", self.records, at_least=2, hint="the start and the end are always recorded")
        checks.one_of("optimiser", self.optimiser, OPTIMISERS)
        checks.one_of("start", self.start, STARTS)
        if self.start == "oppo_small_id":
            require_even_heads(self.heads)
        self._check_optimiser()
        object.__setattr__(self, "length", self.law.length)  # the law checks d, length, noise and convention
        if self.noise_std > _MOST_NOISE:
            raise ValueError(
                f"noise_std must be at most {_MOST_NOISE:g} in a training, which is in float32; got {self.noise_std!r}"
            )

    def require_room(self) -> None:
        """Raises ValueError unless the state and the records fit in memory."""

        def held(d: int, heads: int, runs: int, records: int) -> int:
            # Weights and two moments, 3 n^2 numbers each, and the records: each with a copy, made in a piece of work.
            return 4 * runs * heads * ((d + 1) ** 2 * (18 + 2 * records) + 2 * records * d)

        limits.require_memory(held, d=self.d, heads=self.heads, runs=self.runs, records=min(self.records, self.steps))

    def _check_optimiser(self) -> None:
        given: Any = self.learning_rate
        several = isinstance(given, list | tuple) or getattr(given, "ndim", 0) > 0
        rates = tuple(checks.positive_number("learning_rate", rate) for rate in (given if several else [given]))
        if several and len(rates) != self.runs:
            raise ValueError(
                f"learning_rate must be one number or one for each of the {self.runs} runs; got {len(rates)}"
            )
        object.__setattr__(self, "learning_rate", rates if several else rates[0])
        object.__setattr__(self, "betas", checks.decay_rates(self.betas))
        checks.positive_number("eps", self.eps)
        if self.weight_decay is None:
            object.__setattr__(self, "weight_decay", 0.01 if self.optimiser == "AdamW" else 0.0)
        checks.not_negative("weight_decay", self.weight_decay)

    @cached_property
    def law(self) -> RegressionLaw:
        """The data law of the prompts."""
        length = 8 * checks.whole_number("d", self.d, at_least=1) if self.length is None else self.length
        return RegressionLaw(self.d, length, self.noise_std, self.convention)

    @property
    def width(self) -> int:
        """n = d + 1: width of a token and of every head."""
        return self.d + 1

    @property
    def streams(self) -> NDArray[np.uint32]:
        """(R,) uint32: the number of the training stream of each run."""
        numbers = np.arange(self.first_run, self.first_run + self.runs, dtype=np.uint32)
        return np.full_like(numbers, self.first_run) if self.shared_data else numbers

    @property
    def recorded_steps(self) -> tuple[int, ...]:
        """0, then about `records` steps evenly spaced in their logarithm, then `steps`. Step s is the state after s updates."""
        if self.steps == 0:
            return (0,)
        spaced = np.geomspace(1, self.steps, self.records - 1) if self.records > 2 else ()
        return tuple(sorted({0, *(round(step) for step in spaced), self.steps}))

    def replace(self, **changes: Any) -> Experiment:
        """The same experiment with other settings."""
        return dataclasses.replace(self, **changes)

    def as_record(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        values = dataclasses.asdict(self)
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    @staticmethod
    def from_record(values: Mapping[str, Any]) -> Experiment:
        """The inverse of `as_record`. Raises ValueError for settings that are unknown."""
        known = {field.name for field in dataclasses.fields(Experiment)}
        if unknown := sorted(set(values) - known):
            raise ValueError(
                f"an experiment must have the settings {', '.join(sorted(known))}; got also {', '.join(unknown)}"
            )
        settings: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
        return Experiment(**settings)

    def __str__(self) -> str:
        rate = self.learning_rate if isinstance(self.learning_rate, float) else "own for each run"
        tied = ", one layer tied" if self.weight_tying and self.layers > 1 else ""
        layers = f"{self.layers} layers{tied}, " if self.layers > 1 else ""
        return (
            f"{layers}{self.heads} head{'s' * (self.heads > 1)}, d = {self.d}, L = {self.length}, noise {self.noise_std:g}, "
            f"start {self.start}\n{self.optimiser}, learning rate {rate}, batches of {self.batch}, {self.steps} steps, "
            f"{self.runs} run{'s' * (self.runs > 1)} from seed {self.seed}"
        )
