r"""All stored tables side by side: seven data sets, two kinds of backbone for pictures, what label noise costs and why it differs.

The unit of harm on this page. A network that is right with probability a_0 and then replaces its answer, with probability eta, by
another class drawn at random is right with probability a_0 - eta u, because some of its wrong answers become right:

    u = a_0 - (1 - a_0) / (K - 1) = (K a_0 - 1) / (K - 1)          K classes; derived here

u is the accuracy above chance, 1 for a perfect classifier and 0 for a guess. The *fraction of copying* of a seed at size n is

    F = sum_eta (a_0 - a_eta) / sum_eta eta u,      eta > 0 of the table

(sums before the quotient: with two classes and few test samples the quotients of single noise levels are mostly noise).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from attnbook.draws import Estimate
from attnbook.token_selection.real_data.effective import Effective, read_effective
from attnbook.token_selection.real_data.loaders import DATA_SETS
from attnbook.token_selection.real_data.plans import PLANS
from attnbook.token_selection.real_data.tables import PUBLISHED, ResultTable, read_table, stored_tables
from bookkit.rules import student

__all__ = ["BACKBONES", "SETS", "Network", "SetsStudy", "copying_loss", "published_fraction", "sets_study"]

SETS = {
    "digits": "digits",
    "mnist": "MNIST",
    "cifar10": "CIFAR-10",
    "pneumonia_mnist": "PneumoniaMNIST",
    "breast_mnist": "BreastMNIST",
    "ag_news": "AG-news",
    "trec": "TREC",
}
BACKBONES = {
    "": "small ViT",
    "_random_features": "random features",
}  # by the end of a table's name; texts have MiniLM only


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
class Network:
    """A data set on a backbone: its table and, seed by seed, what its frozen network is."""

    data: str
    backbone: str
    table: ResultTable
    frozen: tuple[Effective, ...]

    @property
    def classes(self) -> int:
        return len(DATA_SETS[self.data].class_names)

    @property
    def label(self) -> str:
        return f"{SETS[self.data]}, {self.backbone}"

    def lost(self, n: int) -> np.ndarray:
        """F by seed, (R,). See the module's text."""
        return _lost(self.table, n, self.classes)

    def fit(self, n: int) -> np.ndarray:
        """Fraction of all wrong labels of a seed that is memorised, over eta > 0: (R,)."""
        eta = np.array(self.table.noise_levels)[1:]
        return self.table.values("fit_noisy", n)[:, 1:, -1] @ eta / eta.sum()

    def statistic(self, what: str) -> np.ndarray:
        """One number of the frozen network by seed: a field of `Effective`, or "snr"."""
        return np.array([getattr(one, what) for one in self.frozen])


def _lost(table: ResultTable, n: int, classes: int) -> np.ndarray:
    eta = np.array(table.noise_levels)[1:]
    baseline = table.values("test_accuracy", n)[:, 0, -1]
    return table.drop(n)[:, 1:].sum(1) / (eta.sum() * copying_loss(baseline, classes))


@dataclass(frozen=True)
class SetsStudy:
    """What the page shows. networks: by (data set, backbone); equal: tables with heads scaled to one confidence, by the same key."""

    networks: Mapping[tuple[str, str], Network]
    equal: Mapping[tuple[str, str], ResultTable]
    n: int  # the size at which the networks are compared: every set has it

    def lost_at_equal_confidence(self, key: tuple[str, str]) -> np.ndarray:
        """F by seed with the scaled head, (R,)."""
        return _lost(self.equal[key], self.n, self.networks[key].classes)

    @cached_property
    def pictures(self) -> tuple[str, ...]:
        """Data sets that have both backbones."""
        return tuple(d for d in SETS if all((d, b) in self.networks for b in BACKBONES.values()))


def sets_study(n: int = 200) -> SetsStudy:
    """Read the stored tables. n: the size at which networks are compared.

    Raises ValueError when a network has no seeds at n; FileNotFoundError when the package came without its tables.
    """
    stored, effective = set(stored_tables()), read_effective()
    networks, equal = {}, {}
    for data in SETS:
        for end, backbone in BACKBONES.items():
            name, text = data + end, DATA_SETS[data].kind == "text"
            if name not in stored:
                continue
            table = read_table(name)
            if n not in table.sizes:
                raise ValueError(f"n must be a size that every set has; {name} has {table.sizes}, got {n}")
            key = data, "MiniLM" if text else backbone
            networks[key] = Network(*key, table, tuple(effective[name].values()))
            if f"{name}_equal_confidence" in stored:
                equal[key] = read_table(f"{name}_equal_confidence")
    missing = [name for name in PLANS if name in DATA_SETS and not any(key[0] == name for key in networks)]
    if missing:
        raise FileNotFoundError(f"no stored table of {', '.join(missing)}: make them with attnbook...real_data.remake")
    return SetsStudy(networks, equal, n)
