r"""All stored tables side by side: seven data sets, two kinds of backbone for pictures, what label noise costs and why it differs.

The unit of harm on this page. A network that is right with probability a_0 and then replaces its answer, with probability eta, by
another class drawn at random is right with probability a_0 - eta u, because some of its wrong answers become right:

    u = a_0 - (1 - a_0) / (K - 1) = (K a_0 - 1) / (K - 1)          K classes; derived here

u is the accuracy above chance, 1 for a perfect classifier and 0 for a guess. The *fraction of copying* of a seed at size n is

    F = sum_eta (a_0 - a_eta) / sum_eta eta u,      eta > 0 of the table

(sums before the quotient: with two classes and few test samples the quotients of single noise levels are mostly noise).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from attnbook.draws import Estimate, mean
from attnbook.token_selection.real_data.effective import Effective, read_effective
from attnbook.token_selection.real_data.loaders import DATA_SETS
from attnbook.token_selection.real_data.plans import PLANS
from attnbook.token_selection.real_data.tables import PUBLISHED, ResultTable, read_table, stored_tables
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


def copying_loss(accuracy: np.ndarray | float, classes: int) -> np.ndarray | float:
    """u: accuracy lost per unit of eta by a network that copies the noise. See the module's text."""
    return accuracy - (1 - accuracy) / (classes - 1)


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

    @property
    def label(self) -> str:
        return f"{SETS[self.data]}, {self.backbone}"

    def lost_when_scaled(self) -> np.ndarray:
        """F at n = N with the head scaled to confidence 1: (R,)."""
        return fraction_of(self.scaled, N)

    def fit_when_scaled(self) -> np.ndarray:
        """As `fit` at n = N, with the head scaled to confidence 1: (R,)."""
        return fit_of(self.scaled, N)

    def lost_at_equal_fit(self) -> tuple[np.ndarray, np.ndarray]:
        """F at n = N with the head scaled, and as trained, (R,) each: see `fractions_at_equal_fit`."""
        return fractions_at_equal_fit(self.scaled, self.table)

    def statistic(self, what: str) -> np.ndarray:
        """One number of the frozen network by seed: a field of `Effective`, or "snr"."""
        return np.array([getattr(one, what) for one in self.frozen])


def classes_of(table: ResultTable) -> int:
    """Number of classes of a table's data set."""
    if table.name not in PLANS:  # pictures of one's own
        return len(table.settings["class_names"])
    return len(DATA_SETS[PLANS[table.name].data or table.name].class_names)


def fraction_of_copying(accuracy: np.ndarray, noise_levels: Sequence[float], classes: int) -> np.ndarray:
    """F by seed, (R, ...), of accuracies (R, E, ...), the first without noise."""
    return (accuracy[:, :1] - accuracy[:, 1:]).sum(1) / (sum(noise_levels) * copying_loss(accuracy[:, 0], classes))


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
    """Read the stored tables. Raises FileNotFoundError, with the names, when the package came without one of them."""
    stored, effective, networks = set(stored_tables()), read_effective(), {}
    kinds = {data: ("",) if DATA_SETS[data].kind == "text" else tuple(BACKBONES) for data in SETS}
    names = {(data, end): data + end for data, ends in kinds.items() for end in ends}
    needed = [name + end for name in names.values() for end in ("", "_equal_confidence")]
    if missing := [name for name in needed if name not in stored]:
        raise FileNotFoundError(
            f"no stored table of {', '.join(missing)}: make the first with attnlib real {missing[0]}"
        )
    for (data, end), name in names.items():
        key = data, BACKBONES[end] if len(kinds[data]) > 1 else "MiniLM"
        tables = read_table(name), read_table(f"{name}_equal_confidence")
        networks[key] = Network(tables[0], *key, tables[1], tuple(effective[name].values()))
    return SetsStudy(networks)
