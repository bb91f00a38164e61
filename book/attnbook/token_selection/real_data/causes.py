"""What decides the cost of flipped labels: the backbone's accuracy or the head's confidence? One network, each varied with the other held.

The network is EfficientNet-Lite0 with one late layer (`plans`). *Confidence* (`setups.head_confidence`) is set by one factor on the frozen
head's logits, which changes no prediction. The tokens are whole; or 10 to 320 of their 1280 channels, drawn by seed, which lowers the
accuracy; or all of them with noise of 1.5 standard deviations of each channel, fresh in each picture, which leaves it nearly as it was.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from attnbook.draws import Estimate, mean
from attnbook.token_selection.real_data.plans import PLANS
from attnbook.token_selection.real_data.sets_study import (
    Measured,
    N,
    classes_of,
    copying_loss,
    fractions_at_equal_fit,
)
from attnbook.token_selection.real_data.tables import read_table, stored_tables
from attnbook.token_selection.real_data.trial import trial_of, two_way

WHOLE, FEWER, MIXED = "whole", "20 channels", "with noise"
FOUND_ON = "cifar10"  # the claims were formed there and are judged on the other sets


@dataclass(frozen=True)
class Varied(Measured):
    """A network at n = N: its data set, what became of its tokens, and the confidence of the frozen head."""

    data: str
    tokens: str
    confidence: float

    def _accuracy(self) -> np.ndarray:
        """After training, (R, E)."""
        return self.table.values("test_accuracy", N)[:, :, -1]

    def room(self) -> np.ndarray:
        """u without flipped labels, by seed, (R,)."""
        return copying_loss(self._accuracy()[:, 0], classes_of(self.table))

    def clean(self) -> Estimate:
        """u without flipped labels, mean over seeds."""
        return mean(self.room())

    def cost(self) -> Estimate:
        """Accuracy lost, summed over noise levels and divided by their sum, mean over seeds: F times u."""
        accuracy = self._accuracy()
        return mean((accuracy[:, :1] - accuracy[:, 1:]).sum(1) / sum(self.table.noise_levels))

    def fraction(self) -> Estimate:
        """F, mean over seeds."""
        return mean(self.lost())


@dataclass(frozen=True)
class Causes:
    """The varied networks by (data set, tokens, confidence)."""

    networks: Mapping[tuple[str, str, float], Varied]

    def change(self, first: tuple[str, float], then: tuple[str, float], sets: Iterable[str] | None = None) -> Estimate:
        """F of (tokens, confidence) `then` minus F of `first`, mean over sets, with the interval of `trial.two_way`.

        sets: None takes all that have both, but for the one on which the claims were found. Raises KeyError for a set that has not both,
        and ValueError where the two were not tested on the same pictures by the same seeds.
        """
        sets = self._judging(first, then) if sets is None else sets
        by_set, moved = [], []  # change of F by seed; the same without one of the set's pictures, minus it
        for data in sets:
            tables = [self.networks[data, *one].table for one in (first, then)]
            before, later = (trial_of(table, N) for table in tables)
            if tables[0].seeds(N) != tables[1].seeds(N) or not np.array_equal(before.rows, later.rows):
                raise ValueError(f"networks must be tested on the same pictures, seed by seed; those of {data} are not")
            by_set.append(later.fraction() - before.fraction())
            moved.append(later.fraction_without() - before.fraction_without() - by_set[-1][:, None])
        change = np.mean(by_set, 0)
        return two_way(change, change[:, None] + np.concatenate(moved, 1) / len(by_set))

    def change_at_equal_fit(self, first: tuple[str, float], then: tuple[str, float]) -> tuple[Estimate, Estimate]:
        """As `change`, of F and of the cost (F times u), where both have first fitted equally many flipped labels; intervals over seeds."""
        changes = []
        for data in self._judging(first, then):
            before, later = (self.networks[data, *one] for one in (first, then))
            F = np.array(fractions_at_equal_fit(before.table, later.table))
            u = np.array([one.room() for one in (before, later)])
            changes.append([F[1] - F[0], F[1] * u[1] - F[0] * u[0]])
        fraction, cost = np.mean(changes, 0)
        return mean(fraction), mean(cost)

    def _judging(self, first: tuple[str, float], then: tuple[str, float]) -> list[str]:
        having = ({data for data, *of in self.networks if tuple(of) == one} for one in (first, then))
        return sorted(set.intersection(*having) - {FOUND_ON})


def causes(folder: str | Path | None = None) -> Causes:
    """The stored tables of varied networks, of `folder` (None: of the package)."""
    found = {}
    for name in stored_tables(folder):
        plan = PLANS[name]
        if plan.fixed == "lite0" and plan.confidence:
            kept = plan.shape["features"]
            tokens = MIXED if plan.mixed else WHOLE if kept == 1280 else f"{kept} channels"
            key = plan.data, tokens, plan.confidence
            found[key] = Varied(read_table(name, folder), *key)
    return Causes(found)
