r"""Is selection benign on a real data set? A rule that was fixed before its tables.

The poster lists real data sets whose flipped labels were used for fine-tuning, and does not say with what result. Its theorem of Part II
calls it benign if flipped labels are fitted and the test error is small. The rule reads one table (a data set, a backbone, a way of
training, a number of samples n) and asks for both halves: the flipped labels are fitted, and test accuracy is as without them:

    fit     the fraction of the flipped labels that the trained network gives, over all eta > 0
    F       (sum_eta a_0 - a_eta) / (sum_eta eta u), the fraction of copying (`sets_study`): 0 no accuracy is lost, 1 the noise is copied

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
and borders, of four rows that are new (`trial_study.range_study`):

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
from attnbook.token_selection.real_data.sets_study import classes_of, copying_loss, fraction_of_copying
from attnbook.token_selection.real_data.tables import ResultTable
from bookkit.widths import student

FIXED = "26 November 2026"  # no table of a stronger backbone existed
FITTED = 0.9  # fraction of flipped labels from which they count as fitted
UNHARMED, COPIED = 0.25, 0.75  # fractions of copying: benign below the first, harmful above the second
CLEAR = 0.5  # accuracy above chance without flipped labels, below which nothing is decided
SEEDS = 5  # at least
RANGE_FIXED, RANGE_SEEDS = "29 November 2026", range(5, 25)  # of the authors' range; no table of it existed
OUTCOMES = ("benign", "tempered", "harmful", "not decided")


@dataclass(frozen=True)
class Trial:
    """What one table gives to the rule: R seeds, E noise levels (the first is 0), M test pictures a seed.

    hits: (R, E, M) bool, True where the trained network gives the true label. rows: (R, M) whole numbers, which picture of the test file it
    is, no number twice in a seed. fit: (R, E - 1) fraction of the flipped labels that the network gives, for each level above 0.

    Raises ValueError for fewer than `SEEDS` seeds, levels that do not rise from 0, and arrays that do not fit.
    """

    hits: np.ndarray
    rows: np.ndarray
    fit: np.ndarray
    noise_levels: Sequence[float]
    classes: int

    def __post_init__(self) -> None:
        levels = np.asarray(self.noise_levels, dtype=float)
        if len(levels) < 2 or levels[0] != 0 or (np.diff(levels) <= 0).any():
            raise ValueError(f"noise_levels must rise from 0; got {levels.tolist()}")
        if self.hits.ndim != 3 or self.hits.dtype != bool or self.hits.shape[1] != len(levels):
            got = f"{self.hits.dtype} {self.hits.shape}"
            raise ValueError(f"hits must be bool of shape (seeds, {len(levels)} noise levels, pictures); got {got}")
        seeds, E, pictures = self.hits.shape
        if seeds < SEEDS:
            raise ValueError(f"hits must have {SEEDS} seeds or more; got {seeds}: run the command with further --seeds")
        for name, array, shape in (("rows", self.rows, (seeds, pictures)), ("fit", self.fit, (seeds, E - 1))):
            if array.shape != shape:
                raise ValueError(f"{name} must have shape {shape}, as hits has {self.hits.shape}; got {array.shape}")
        if any(len(np.unique(own)) < pictures for own in self.rows):
            raise ValueError("rows must name each picture of a seed once; got a number twice")
        if not ((self.fit >= 0) & (self.fit <= 1)).all():
            raise ValueError("fit must lie in [0, 1]; got another number or nan")

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
    """The outcome (one of `OUTCOMES`), what it rests on, and where it is not decided the reason.

    fraction: F. losses: a_0 - a_eta for each eta > 0, with intervals of the same kind. `as_without`: the second half to the letter, none of
    these intervals lies above 0; it is printed beside the outcome and decides nothing, because few seeds and pictures make it true.
    """

    outcome: str
    because: str
    fraction: Estimate
    fit: Estimate
    clean: float
    losses: tuple[Estimate, ...]

    @property
    def as_without(self) -> bool:
        return all(loss.low <= 0 for loss in self.losses)


def trial_of(table: ResultTable, n: int) -> Trial:
    """What a stored table gives to the rule at one n. Raises ValueError for a table that says nothing of single test samples."""
    cells = [cell for cell in table.cells if cell.n == n]
    if not cells or any(cell.hits is None for cell in cells):
        raise ValueError(
            f"table must hold which test samples are right at n = {n}; {table.name} does not: make it again"
        )
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
    levels, accuracy, without = trial.noise_levels, trial.accuracy, without_each_picture(trial)
    weights = np.array(levels[1:]) / sum(levels)
    fit, clean = draws.mean(trial.fit @ weights), float(accuracy[:, 0].mean())
    losses = tuple(
        two_way(accuracy[:, 0] - accuracy[:, e], without[:, 0] - without[:, e]) for e in range(1, len(levels))
    )
    room = copying_loss(accuracy[:, 0], trial.classes)
    if room.mean() < CLEAR or (room <= 1 / accuracy.shape[0] / trial.hits.shape[2]).any():
        because = f"without wrong labels the network is right on {clean:.2f} of the test pictures, too near to a guess"
        return Judged("not decided", because, Estimate(np.nan, -np.inf, np.inf), fit, clean, losses)
    found = two_way(trial.fraction(), trial.fraction_without())
    parts = {"benign": (-np.inf, UNHARMED), "tempered": (UNHARMED, COPIED), "harmful": (COPIED, np.inf)}
    inside = [name for name, (low, high) in parts.items() if low < found.low and found.high < high]
    if fit.low < FITTED:
        because = f"{FITTED:g} of the wrong labels must be memorised; {fit:.2f} are: train longer, or more seeds"
    elif not inside:
        because = f"the fraction of copying is {found:.2f}, on both sides of a border: more seeds or test pictures"
    else:
        return Judged(inside[0], "", found, fit, clean, losses)
    return Judged("not decided", because, found, fit, clean, losses)
