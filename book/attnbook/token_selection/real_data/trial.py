r"""Is selection benign on a real data set? A rule that was fixed before its tables.

The unit of harm. A network that is right with probability a_0 and then replaces its answer, with probability eta, by another class
drawn at random is right with probability a_0 - eta u, because some of its wrong answers become right:

    u = a_0 - (1 - a_0) / (K - 1) = (K a_0 - 1) / (K - 1)          K classes; derived here

u is the accuracy above chance, 1 for a perfect classifier and 0 for a guess. The *fraction of copying* of a seed at size n is

    F = sum_eta (a_0 - a_eta) / sum_eta eta u,      eta > 0 of the table

(sums before the quotient: with two classes and few test samples the quotients of single noise levels are mostly noise).

The poster lists real data sets whose flipped labels were used for fine-tuning, and does not say with what result. Its theorem of Part II
calls it benign if flipped labels are fitted and the test error is small. The rule reads one table (a data set, a backbone, a way of
training, a number of samples n) and asks for both halves: the flipped labels are fitted, and test accuracy is as without them:

    fit     the fraction of the flipped labels that the trained network gives, over all eta > 0
    F       the fraction of copying: 0 no accuracy is lost, 1 the noise is copied

    benign       fit >= 0.9 and F < 1/4            tempered     fit >= 0.9 and 1/4 < F < 3/4
    harmful      fit >= 0.9 and F > 3/4            not decided  else: an interval holds a border, or the flipped labels are not fitted

each for the whole 95 % interval of the number. With a clean-label baseline u < 1/2, less than half-way from chance to no error, nothing is
decided: such a network is no fair stand-in for a pretrained one. On the small backbones a network is called harmful from F = 1 on; one that
copies lies on that border and would never be decided, so it is 3/4 here.

The interval of F counts seeds and test pictures, which all seeds share. Leave out each seed, each picture, and each picture of one seed
alone (three jackknives); the variance is

    V = V_seeds + V_pictures - V_both, at least each of the first two,

because what belongs to one picture in one seed is in both of the first (two-way clustering: Cameron, Gelbach and Miller, 2011).
Around their own mean the seeds do not show what they share, so that the sum is too small, on average, by (V_pictures - V_both) / (R - 1):
at most a fifth of the whole for five seeds, less where a floor is used. The interval is Student's with (R - 1) (V / V_seeds)^2 degrees of
freedom: only V_seeds rests on few numbers.

**The authors' range.** Written on 29 November 2026, before any table of it. In the rule above the level eta = 0.4 has 4/7 of the weight,
and the authors' code goes up to 0.2. Does the outcome hold in their range? The rule is asked once more, with the same fit, F, u, interval
and borders, of four rows that are new (`study.range_study`):

    levels 0, 0.05, 0.1, 0.2; n = 200; CIFAR-10 on Lite0 and AG-news on MPNet; our way of training and the authors'; seeds 5 to 24

No stored table holds one of these seeds. Each row gets one of the four words. "benign" says that the poster's theorem describes this row
in the authors' range, "tempered" or "harmful" that it does not even there, "not decided" that 20 seeds and these test pictures cannot
tell. All four rows have one word, or it differs by row and each is told. No row is left out, no level is weighed anew, and no seed is
added after a look. Seeds run in their order. Where the clock stops them, the finished ones are judged, their number is told, and the word
is provisional until seed 24 is there.
Known beforehand, from levels 0.1 and 0.2 of seeds 0 to 4: F = .25 and .37 on CIFAR-10, .31 and .31 on AG-news, all not decided.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from attnbook import draws
from attnbook.draws import Estimate
from attnbook.token_selection.real_data.loaders import DATA_SETS
from attnbook.token_selection.real_data.plans import PLANS
from attnbook.token_selection.real_data.tables import ResultTable
from bookkit.widths import student

FIXED = "26 November 2026"  # no table of a stronger backbone existed
FITTED = 0.9  # fraction of flipped labels from which they count as fitted
UNHARMED, COPIED = 0.25, 0.75  # fractions of copying: benign below the first, harmful above the second
CLEAR = 0.5  # accuracy above chance without flipped labels, below which nothing is decided
SEEDS = 5  # at least
RANGE_FIXED, RANGE_SEEDS = "29 November 2026", range(5, 25)  # of the authors' range; no table of it existed


def copying_loss(accuracy: np.ndarray | float, classes: int) -> np.ndarray | float:
    """u: accuracy lost per unit of eta by a network that copies the noise. See the module's text."""
    return accuracy - (1 - accuracy) / (classes - 1)


def classes_of(table: ResultTable) -> int:
    """Number of classes of a table's data set."""
    if table.name not in PLANS:  # pictures of one's own
        return len(table.settings["class_names"])
    return len(DATA_SETS[PLANS[table.name].data or table.name].class_names)


def fraction_of_copying(accuracy: np.ndarray, noise_levels: Sequence[float], classes: int) -> np.ndarray:
    """F by seed, (R, ...), of accuracies (R, E, ...), the first without noise."""
    return (accuracy[:, :1] - accuracy[:, 1:]).sum(1) / (sum(noise_levels) * copying_loss(accuracy[:, 0], classes))


@dataclass(frozen=True)
class Trial:
    """What one table gives to the rule: R seeds, E noise levels (the first is 0), M test pictures a seed.

    hits: (R, E, M) bool, True where the trained network gives the true label. rows: (R, M) whole numbers, which picture of the test file it
    is, no number twice in a seed. fit: (R, E - 1) fraction of the flipped labels that the network gives, for each level above 0.
    """

    hits: np.ndarray
    rows: np.ndarray
    fit: np.ndarray
    noise_levels: Sequence[float]
    classes: int

    @property
    def accuracy(self) -> np.ndarray:
        """(R, E)."""
        return self.hits.mean(-1)

    def fraction(self) -> np.ndarray:
        """F by seed, (R,)."""
        return fraction_of_copying(self.accuracy, self.noise_levels, self.classes)

    def up_to(self, eta: float) -> Trial:
        """The same with noise levels up to eta."""
        kept = [level <= eta for level in self.noise_levels]
        levels = [level for level in self.noise_levels if level <= eta]
        return Trial(self.hits[:, kept], self.rows, self.fit[:, kept[1:]], levels, self.classes)

    def fraction_without(self) -> np.ndarray:
        """F by seed without one of the U pictures that some seed tests, (R, U)."""
        return fraction_of_copying(without_each_picture(self), self.noise_levels, self.classes)


@dataclass(frozen=True)
class Judged:
    """The outcome, what it rests on, and where it is not decided the reason."""

    outcome: str
    because: str
    fraction: Estimate  # F
    fit: Estimate
    clean: float


def trial_of(table: ResultTable, n: int) -> Trial:
    """What a stored table gives to the rule at one n."""
    cells = [cell for cell in table.cells if cell.n == n]
    return Trial(
        np.stack([cell.hits for cell in cells]),
        np.stack([cell.tested for cell in cells]),
        table.values("fit_noisy", n)[:, 1:, -1],
        table.noise_levels,
        classes_of(table),
    )


def without_each_picture(trial: Trial) -> np.ndarray:
    """Accuracies (R, E, U) without one of the U pictures that some seed tests; unchanged in a seed that does not test it."""
    R, E, M = trial.hits.shape
    pictures, place = np.unique(trial.rows, return_inverse=True)
    place = place.reshape(R, M)  # numpy 2.0 returned it flat
    hit, tested = np.zeros((R, E, len(pictures)), dtype=int), np.zeros((R, 1, len(pictures)), dtype=int)
    for r in range(R):
        hit[r][:, place[r]], tested[r][:, place[r]] = trial.hits[r], 1
    return (trial.hits.sum(-1, keepdims=True) - hit) / (M - tested)


def two_way(by_seed: np.ndarray, without: np.ndarray) -> Estimate:
    """Mean over seeds of `by_seed` (R,) with the interval of the module's text; `without` (R, U): the same without each picture."""
    R = len(by_seed)
    moved = (without - by_seed[:, None]) / R  # of the mean, by one picture in one seed
    seeds, pictures, both = by_seed.var(ddof=1) / R, np.square(moved.sum(0)).sum(), np.square(moved).sum()
    variance = max(seeds + pictures - both, seeds, pictures)
    freedom = (R - 1) * (variance / seeds) ** 2 if seeds else np.inf
    middle, reach = float(by_seed.mean()), student(1 + freedom, 0.05) * float(variance) ** 0.5
    return Estimate(middle, middle - reach, middle + reach)


def judge(trial: Trial) -> Judged:
    """The outcome of one table by the rule of the module's text."""
    levels, accuracy = trial.noise_levels, trial.accuracy
    weights = np.array(levels[1:]) / sum(levels)
    fit, clean = draws.mean(trial.fit @ weights), float(accuracy[:, 0].mean())
    room = copying_loss(accuracy[:, 0], trial.classes)
    if room.mean() < CLEAR or (room <= 1 / accuracy.shape[0] / trial.hits.shape[2]).any():
        because = f"without wrong labels the network is right on {clean:.2f} of the test pictures, too near to a guess"
        return Judged("not decided", because, Estimate(np.nan, -np.inf, np.inf), fit, clean)
    found = two_way(trial.fraction(), trial.fraction_without())
    parts = {"benign": (-np.inf, UNHARMED), "tempered": (UNHARMED, COPIED), "harmful": (COPIED, np.inf)}
    inside = [name for name, (low, high) in parts.items() if low < found.low and found.high < high]
    if fit.low < FITTED:
        because = f"{FITTED:g} of the wrong labels must be memorised; {fit:.2f} are: train longer, or more seeds"
    elif not inside:
        because = f"the fraction of copying is {found:.2f}, on both sides of a border: more seeds or test pictures"
    else:
        return Judged(inside[0], "", found, fit, clean)
    return Judged("not decided", because, found, fit, clean)
