"""The trial of page II.9: each stored table that says which test samples are right, judged by the rule of `trial`."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from attnbook.draws import Estimate
from attnbook.token_selection.real_data.loaders import DATA_SETS
from attnbook.token_selection.real_data.plans import PLANS
from attnbook.token_selection.real_data.remake import run_cell
from attnbook.token_selection.real_data.sets_study import SETS, classes_of, fraction_of_copying
from attnbook.token_selection.real_data.setups import prepare
from attnbook.token_selection.real_data.tables import ResultTable, read_table, stored_tables
from attnbook.token_selection.real_data.trial import FITTED, SEEDS, Judged, judge, trial_of, two_way
from attnlib.device import one_thread

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

    @property
    def label(self) -> str:
        return f"{SETS[self.data]}, {self.backbone}, {self.way}, n = {self.n}"

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

    def told(self) -> dict[str, Any]:
        """What was tried, the word, F with its interval, fit, per cent right at each eta, and F of a new linear head: plain values."""
        found, right = self.judged.fraction, trial_of(self.table, self.n).accuracy.mean(0)
        return {
            "set": self.data, "backbone": self.backbone, "way": self.way, "n": self.n, "seeds": len(self.table.seeds(self.n)),
            "outcome": self.judged.outcome, "because": self.judged.because, "F": (found.value, found.low, found.high),
            "fit": self.judged.fit.value, "accuracy": dict(zip(self.table.noise_levels, (100 * right).tolist(), strict=True)),
            "linear_head": float(self.linear_head().mean()),
        }  # fmt: skip

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


def trial_study(folder: str | Path | None = None) -> tuple[Tried, ...]:
    """Every table of `folder` (None: of the package) and every n at which the registered rule can be asked, set by set."""
    return _tried(folder, [name for name in stored_tables(folder) if name not in (*RANGE_NAMES, *LITE2_NAMES)])


def range_study(folder: str | Path | None = None) -> tuple[Tried, ...]:
    """The rows of the authors' range (`trial`) that have a table, as `trial_study` gives its rows."""
    return _tried(folder, [name for name in stored_tables(folder) if name in RANGE_NAMES])


def second_backbone(folder: str | Path | None = None) -> tuple[Tried, ...]:
    """The rows of the registered rule on EfficientNet-Lite2 that have a table, as `trial_study` gives its rows."""
    return _tried(folder, [name for name in stored_tables(folder) if name in LITE2_NAMES])


def _tried(folder: str | Path | None, names: Sequence[str]) -> tuple[Tried, ...]:
    found = []
    for name in names:
        table = read_table(name, folder)
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
    """Test accuracies (E,) of one cell of a table, trained here and as stored. Raises KeyError for a cell that is not stored."""
    table, plan = read_table(name), PLANS[name]
    if seed not in table.seeds(n):
        raise KeyError(f"{name} has no finished run of seed {seed} at n = {n}: finished are {table.seeds(n)}")
    study = run_cell(prepare(name, seed, plan=plan), plan, n, seed)
    return study.test_accuracy[:, -1].numpy(), table.values("test_accuracy", n)[table.seeds(n).index(seed), :, -1]
