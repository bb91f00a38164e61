"""What page II.9 reads from the stored tables: the rows of the trial, the small networks, and one network varied.

Units, rule and interval are those of `trial`. What decides the cost of flipped labels, the backbone's accuracy or the head's confidence?
`causes` varies one network, EfficientNet-Lite0 with one late layer (`plans`), each with the other held. *Confidence*
(`setups.head_confidence`) is set by one factor on the frozen head's logits, which changes no prediction. The tokens are whole; or 10 to 320
of their 1280 channels, drawn by seed, which lowers the accuracy; or all of them with noise of 1.5 standard deviations of each channel,
fresh in each picture, which leaves it nearly as it was.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from attnbook.draws import Estimate, mean
from attnbook.token_selection.real_data.effective import Effective, read_effective
from attnbook.token_selection.real_data.loaders import DATA_SETS
from attnbook.token_selection.real_data.plans import PLANS
from attnbook.token_selection.real_data.setups import prepare
from attnbook.token_selection.real_data.tables import ResultTable, read_table, run_cell, stored_tables
from attnbook.token_selection.real_data.trial import (
    FITTED,
    SEEDS,
    Judged,
    classes_of,
    copying_loss,
    fraction_of_copying,
    judge,
    trial_of,
    two_way,
)
from attnlib.device import one_thread
from bookkit.rules import student

SETS = {
    "digits": "digits",
    "mnist": "MNIST",
    "cifar10": "CIFAR-10",
    "pneumonia_mnist": "PneumoniaMNIST",
    "breast_mnist": "BreastMNIST",
    "ag_news": "AG-news",
    "trec": "TREC",
}
BACKBONES = {"": "small ViT", "_random_features": "random features"}  # by the end of a table's name; texts have MiniLM
N = 200  # the size at which networks are compared: every set has it


# Test accuracy in percent (mean, s.d. over 3 seeds) of the authors' runs with ViT-B and BERT-base, as read from the deleted notebook
# of their repository: None key is head-only, then (eta, n).
def _published(
    head_only: float, clean: list[tuple[float, float]], noisy: list[tuple[float, float]]
) -> dict[Any, tuple[float, float | None]]:
    """By key, from the rows of eta = 0 and of eta = 0.2; a row has n = 20, 200 and, on large sets, 1000."""
    rows = {
        (eta, n): cell
        for eta, row in ((0.0, clean), (0.2, noisy))
        for n, cell in zip((20, 200, 1000), row, strict=False)
    }
    return {None: (head_only, None), **rows}


PUBLISHED = {
    "mnist": _published(95.03, [(90.8, 1.5), (91.8, 0.1), (93.9, 0.1)], [(84.0, 7.2), (87.3, 1.2), (88.4, 0.1)]),
    "cifar10": _published(96.19, [(96.0, 0.1), (95.9, 0.1), (96.3, 0.1)], [(95.5, 0.4), (94.3, 0.3), (93.2, 0.1)]),
    "pneumonia_mnist": _published(
        83.33, [(80.4, 3.1), (79.0, 2.0), (81.5, 0.9)], [(79.2, 7.0), (81.2, 2.2), (82.5, 0.7)]
    ),
    "breast_mnist": _published(77.14, [(74.4, 1.4), (78.4, 1.1)], [(74.8, 2.0), (76.3, 2.3)]),
    "ag_news": _published(83.05, [(84.0, 0.3), (85.9, 0.5), (85.5, 0.3)], [(82.5, 0.7), (77.8, 0.6), (69.6, 1.1)]),
    "trec": _published(82.87, [(81.4, 0.3), (78.7, 0.5), (82.8, 0.4)], [(79.2, 2.4), (73.3, 0.8), (69.1, 1.7)]),
}


def published_fraction(name: str, n: int, eta: float = 0.2) -> Estimate | None:
    """F of the authors' runs at one noise level and its 95 % interval; None where none is known.

    Means and standard deviations of three seeds, taken as independent; Student's t with two degrees of freedom, which is cautious
    for a difference of two means (Welch's number lies between 2 and 4).
    """
    row, classes = PUBLISHED.get(name, {}), len(DATA_SETS[name].class_names)
    if (0.0, n) not in row or (eta, n) not in row:
        return None
    (clean, spread), (noisy, noisy_spread) = row[0.0, n], row[eta, n]
    unit = 100 * eta * copying_loss(clean / 100, classes)
    error = float(np.hypot(spread, noisy_spread)) / 3**0.5 / unit
    lost, reach = (clean - noisy) / unit, student(3, 0.05) * error
    return Estimate(lost, lost - reach, lost + reach)


# --- The trial ------------------------------------------------------------------------------------------------------------


OURS, AUTHORS = "ours", "authors'"


@dataclass(frozen=True)
class Tried:
    """One row of the trial: a data set on a backbone, trained in one of two ways (`OURS`, `AUTHORS`) on n samples."""

    data: str
    backbone: str
    way: str
    n: int
    table: ResultTable
    judged: Judged

    def percent(self, what: str) -> float:
        """Mean over seeds of an accuracy of the table without noise, at the last step where it has steps, in per cent."""
        values = self.table.values(what, self.n)
        return 100 * float((values[:, 0, -1] if values.ndim == 3 else values).mean())

    def accuracies(self) -> str:
        """Means over seeds at the noise levels of the table, in per cent."""
        return " / ".join(f"{100 * one:.1f}" for one in trial_of(self.table, self.n).accuracy.mean(0))

    def up_to(self, eta: float) -> Estimate:
        """F of the noise levels up to eta, with the interval of the rule."""
        trial = trial_of(self.table, self.n).up_to(eta)
        return two_way(trial.fraction(), trial.fraction_without())

    def linear_head(self) -> np.ndarray:
        """F by seed of a new linear head on the frozen features, trained on the same labels: (R,)."""
        accuracy = self.table.values("linear_head", self.n)
        return fraction_of_copying(accuracy, self.table.noise_levels, classes_of(self.table))

    def flipped_labels(self) -> tuple[int, int, int]:
        """Of all seeds and noise levels: those that are memorised, those whose sample gets its true label with the attention that it has in
        the clean twin, and how many there are. All else is frozen, so that it then says what the twin says; one of which the twin may err
        counts as not given back.
        """
        flipped = np.rint(np.array(self.table.noise_levels[1:]) * self.n)
        memorised = np.rint(self.table.values("fit_noisy", self.n)[:, 1:, -1] * flipped)
        errs = np.rint((1 - self.table.values("fit_clean", self.n)[:, 0, -1]) * self.n)
        back = np.maximum(flipped - errs[:, None], 0)
        return int(memorised.sum()), int(back.sum()), int(flipped.sum() * len(errs))

    @property
    def seconds(self) -> float:
        """Processor time of phase 2, all seeds."""
        return sum(cell.seconds for cell in self.table.cells if cell.n == self.n)


RANGE_NAMES = tuple(name for name, plan in PLANS.items() if plan.first_seed)
LITE2_NAMES = tuple(name for name, plan in PLANS.items() if plan.fixed == "lite2")
_FIXED = {"lite0": "EfficientNet-Lite0", "lite2": "EfficientNet-Lite2", "mpnet": "MPNet"}  # by `Plan.fixed`


def backbone_of(name: str) -> str:
    """What a table's networks read: the name that the page gives to it."""
    plan = PLANS[name]
    trained = "small ViT" if DATA_SETS[plan.data or name].kind == "image" else "MiniLM"
    return _FIXED.get(plan.fixed, trained)


def trial_study() -> tuple[Tried, ...]:
    """Every stored table and every n at which the registered rule can be asked, set by set."""
    return _tried([name for name in stored_tables() if name not in (*RANGE_NAMES, *LITE2_NAMES)])


def range_study() -> tuple[Tried, ...]:
    """The rows of the authors' range (`trial`) that have a table, as `trial_study` gives its rows."""
    return _tried([name for name in stored_tables() if name in RANGE_NAMES])


def second_backbone() -> tuple[Tried, ...]:
    """The rows of the registered rule on EfficientNet-Lite2 that have a table, as `trial_study` gives its rows."""
    return _tried([name for name in stored_tables() if name in LITE2_NAMES])


def _tried(names: Sequence[str]) -> tuple[Tried, ...]:
    found = []
    for name in names:
        table = read_table(name)
        plan, way = PLANS[name], AUTHORS if name.endswith("_authors") else OURS
        for n in table.sizes:
            cells = [cell for cell in table.cells if cell.n == n]
            if len(cells) >= SEEDS and not plan.confidence and all(cell.hits is not None for cell in cells):
                judged = judge(trial_of(table, n))
                found.append(Tried(plan.data or name, backbone_of(name), way, n, table, judged))
    order = {data: k for k, data in enumerate(SETS)}
    return tuple(sorted(found, key=lambda one: (order[one.data], one.backbone, one.way != OURS, one.n)))


def strong(study: Sequence[Tried]) -> tuple[Tried, ...]:
    """The rows on pretrained backbones of the trial whose flipped labels are fitted."""
    rows = [one for one in study if one.backbone in _FIXED.values()]
    return tuple(one for one in rows if one.judged.fit.low >= FITTED and math.isfinite(one.judged.fraction.value))


@one_thread
def trained_here(name: str, n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Test accuracies (E,) of one cell of a table, trained here and as stored."""
    table, plan = read_table(name), PLANS[name]
    study = run_cell(prepare(name, seed, plan=plan), plan, n, seed)
    return study.test_accuracy[:, -1].numpy(), table.values("test_accuracy", n)[table.seeds(n).index(seed), :, -1]


# --- Networks of the stored tables ----------------------------------------------------------------------------------------


def fraction_of(table: ResultTable, n: int) -> np.ndarray:
    """F by seed of any stored table, (R,). See the module's text."""
    return _lost_path(table, n)[:, -1]


def fit_of(table: ResultTable, n: int) -> np.ndarray:
    """Fraction of all flipped labels of a seed that is memorised, over eta > 0, of any stored table: (R,)."""
    return _fit_path(table, n)[:, -1]


def _fit_path(table: ResultTable, n: int) -> np.ndarray:
    """Fraction of all flipped labels that is memorised, at every recorded step: (R, S)."""
    eta = np.array(table.noise_levels)[1:]
    return eta @ table.values("fit_noisy", n)[:, 1:] / eta.sum()


def _lost_path(table: ResultTable, n: int) -> np.ndarray:
    """F at every recorded step, against the baseline of the last: (R, S)."""
    accuracy = table.values("test_accuracy", n).copy()
    accuracy[:, 0] = accuracy[:, 0, -1:]
    return fraction_of_copying(accuracy, table.noise_levels, classes_of(table))


def _first(aim: float, rising: np.ndarray, values: np.ndarray) -> float:
    """The value where `rising` first reaches `aim`, both (S,), linear between two steps."""
    k = int(np.argmax(rising >= aim))
    return float(values[k]) if k == 0 else float(np.interp(aim, rising[k - 1 : k + 1], values[k - 1 : k + 1]))


def fractions_at_equal_fit(first: ResultTable, then: ResultTable) -> tuple[np.ndarray, np.ndarray]:
    """F of two tables at n = N, (R,) each: when each first fits what the worse of the two fits at the end.

    Along the recorded steps, linear between them; the baseline is that of the last step.
    """
    paths = [(_fit_path(table, N), _lost_path(table, N)) for table in (first, then)]
    aims = np.minimum(*(fit[:, -1] for fit, _ in paths))
    one, other = ([_first(*row) for row in zip(aims, *path, strict=True)] for path in paths)
    return np.array(one), np.array(other)


@dataclass(frozen=True)
class Measured:
    """One stored table in the terms of the module's text."""

    table: ResultTable

    def lost(self, n: int = N) -> np.ndarray:
        """F by seed, (R,)."""
        return fraction_of(self.table, n)

    def fit(self, n: int = N) -> np.ndarray:
        """Fraction of all flipped labels of a seed that is memorised, over eta > 0: (R,)."""
        return fit_of(self.table, n)

    def above_chance(self) -> Estimate:
        """u of the frozen network before query and key are replaced, mean over seeds: 1 perfect, 0 a guess."""
        return mean(copying_loss(self.table.values("head_only", N), classes_of(self.table)))


@dataclass(frozen=True)
class Network(Measured):
    """A data set on a backbone: its table, that with the head scaled to confidence 1, and, by seed, what its frozen network is."""

    data: str
    backbone: str
    scaled: ResultTable
    frozen: tuple[Effective, ...]

    def lost_when_scaled(self) -> np.ndarray:
        """F at n = N with the head scaled to confidence 1: (R,)."""
        return fraction_of(self.scaled, N)

    def lost_at_equal_fit(self) -> tuple[np.ndarray, np.ndarray]:
        """F at n = N with the head scaled, and as trained, (R,) each: see `fractions_at_equal_fit`."""
        return fractions_at_equal_fit(self.scaled, self.table)

    def statistic(self, what: str) -> np.ndarray:
        """One number of the frozen network by seed: a field of `Effective`, or "snr"."""
        return np.array([getattr(one, what) for one in self.frozen])


@dataclass(frozen=True)
class SetsStudy:
    """What the page shows: the networks by (data set, backbone)."""

    networks: Mapping[tuple[str, str], Network]

    @property
    def pictures(self) -> tuple[str, ...]:
        """Data sets that have both backbones."""
        return tuple(data for data, backbone in self.networks if backbone == BACKBONES[""])

    def difference(self, *sets: str) -> np.ndarray:
        """F on random features minus F on the small ViT, mean over these sets, by the seeds that all of them have: (R,)."""
        return _mean_difference(
            (self.networks[data, "random features"].lost(), self.networks[data, "small ViT"].lost()) for data in sets
        )

    def change(self) -> np.ndarray:
        """F with scaled heads minus F as phase 1 left them, mean over all networks, by the seeds that all of them have: (R,)."""
        return _mean_difference((network.lost_when_scaled(), network.lost()) for network in self.networks.values())

    def change_at_equal_fit(self) -> np.ndarray:
        """The same where both first fit equally many flipped labels: see `Network.lost_at_equal_fit`."""
        return _mean_difference(network.lost_at_equal_fit() for network in self.networks.values())


def _mean_difference(pairs: Iterable[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """Mean over pairs of first minus second, seed by seed. Seeds count from 0 in every table."""
    found = list(pairs)
    seeds = min(len(values) for pair in found for values in pair)
    return np.mean([first[:seeds] - second[:seeds] for first, second in found], 0)


def sets_study() -> SetsStudy:
    """The stored tables of the small networks."""
    effective, networks = read_effective(), {}
    for data in SETS:
        texts = DATA_SETS[data].kind == "text"
        for end, backbone in {"": "MiniLM"}.items() if texts else BACKBONES.items():
            name = data + end
            tables = read_table(name), read_table(f"{name}_equal_confidence")
            frozen = tuple(effective[name].values())
            networks[data, backbone] = Network(tables[0], data, backbone, tables[1], frozen)
    return SetsStudy(networks)


# --- One network, varied --------------------------------------------------------------------------------------------------


WHOLE, FEWER, MIXED = "whole", "20 channels", "with noise"
FOUND_ON = "cifar10"  # the claims were formed there and are judged on the other sets


@dataclass(frozen=True)
class Varied(Measured):
    """A network at n = N: its data set, what became of its tokens, and the confidence of the frozen head."""

    data: str
    tokens: str
    confidence: float

    def room(self) -> np.ndarray:
        """u without flipped labels, by seed, (R,)."""
        return copying_loss(self.table.values("test_accuracy", N)[:, 0, -1], classes_of(self.table))


@dataclass(frozen=True)
class Causes:
    """The varied networks by (data set, tokens, confidence)."""

    networks: Mapping[tuple[str, str, float], Varied]

    def change(self, first: tuple[str, float], then: tuple[str, float], sets: Iterable[str] | None = None) -> Estimate:
        """F of (tokens, confidence) `then` minus F of `first`, mean over sets, with the interval of `trial.two_way`.

        sets: None takes all that have both, but for the one on which the claims were found. Raises KeyError for a set that has not both.
        """
        sets = self._judging(first, then) if sets is None else sets
        by_set, moved = [], []  # change of F by seed; the same without one of the set's pictures, minus it
        for data in sets:
            before, later = (trial_of(self.networks[data, *one].table, N) for one in (first, then))
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


def causes() -> Causes:
    """The stored tables of varied networks."""
    found = {}
    for name in stored_tables():
        plan = PLANS[name]
        if plan.fixed == "lite0" and plan.confidence:
            kept = plan.shape["features"]
            tokens = MIXED if plan.mixed else WHOLE if kept == 1280 else f"{kept} channels"
            key = plan.data, tokens, plan.confidence
            found[key] = Varied(read_table(name), *key)
    return Causes(found)
