"""What a rule judged, in so few numbers that it can be judged again with the draws of further seeds; and how sharp the verdict is.

A rule that accepts says little unless it could have refused something near. Each part of a verdict says what it could have refused
with probability POWER at the spread that was measured:

| resolution | what `value` is | of |
|---|---|---|
| `factor` | the least relative change of the claimed number that the rule refuses: .03 says "holds, to 3 %" | means, medians, shares |
| `shift` | the same in the number's own unit, where the claimed number is zero | signs, differences |
| `room` | how much tighter a bound had to be to be refused: .12 where the nearest value uses 89 % of it | bounds |
| `draws` | the share of draws, at least, at CONFIDENCE; `claimed` says which share was claimed | shares of draws |
| `digits` | relative deviation that is refused | equations without chance |
| `enclosure` | relative width of the interval that is proved | certificates |
| `exact` | 0: one that differs is refused | bits, counts, proofs |
| `grid` | the step, relative, of the grid between whose points a threshold was found: nothing finer is seen | thresholds |

Student's t with a true shift of the mean follows the noncentral law, so power and width are exact for Gaussian draws whose spread is
the measured one. Derived in the ledger's chapter, "How sharp a verdict is".
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import fmean, median, stdev
from typing import Any, ClassVar, Self

from bookkit.widths import LEVEL, POWER, binomial_tail, least_share, seen_shift, student

End = float | None  # of an interval; None where it has none there
ACCEPTED = ("holds", "not contradicted")  # verdicts of what no rule refused
COARSE, SHORT = 0.1, 0.05  # a factor, points of a share
# Seeds whose means differ by less than this part of their standard error judge the same draws. With twenty seeds of other draws chance
# brings this about in four of ten thousand parts; the error of one seed is then too large, not too small.
SHARED = 0.5


@dataclass(frozen=True)
class Resolution:
    """One thing that a rule could have seen; see the module. `claimed`: of `draws`, the share that is claimed."""

    kind: str
    value: float
    claimed: float = 0.0

    @property
    def coarseness(self) -> float | None:
        """For comparing: 0 is exact, .03 is 3 % or 3 points of a share; None where there is no scale to compare with."""
        if self.kind == "draws":
            return max(0.0, self.claimed - self.value)
        return None if self.kind == "shift" else self.value

    @property
    def words(self) -> str:
        """ "to 3 %", after "holds, "."""
        if self.kind == "draws":
            return f"at least {100 * self.value:.3g} % of draws; claimed {100 * self.claimed:.4g} %"
        if self.kind == "exact" or (self.kind in ("shift", "room") and self.value < 1e-9):
            return "exactly"
        if self.kind == "shift":
            return f"to ± {self.value:.2g}"
        if self.kind == "digits":
            return f"to {self.value:.0e}"
        if self.kind == "enclosure" and self.value < 1e-3:
            return f"enclosed to {self.value:.0e}"
        size = f"{100 * self.value:.2g} %" if self.value < 1 else f"a factor of {1 + self.value:.2g}"
        size += ", the grid's step" if self.kind == "grid" else ""
        return {"room": "with room of ", "enclosure": "enclosed to "}.get(self.kind, "to ") + size


def weakest(found: Iterable[Resolution]) -> tuple[Resolution, ...]:
    """Of each kind the coarsest: a claim in several parts is as sharp as the part that saw least."""
    kept: dict[str, Resolution] = {}
    for each in found:
        known = kept.get(each.kind)
        if known is None or _size(each) > _size(known):
            kept[each.kind] = each
    return tuple(kept.values())


def _size(resolution: Resolution) -> float:
    return resolution.value if resolution.coarseness is None else resolution.coarseness


def relative(shift: float, claimed: float) -> Resolution:
    """A shift of a claimed number: as a factor, or in its unit where the number is zero."""
    return Resolution("factor", shift / abs(claimed)) if claimed else Resolution("shift", shift)


def between(bound: float, refused: float) -> Resolution:
    """A claimed bound, and the nearest bound that would have been refused: the factor between them, or their distance."""
    if bound * refused > 0:
        ratio = refused / bound
        return Resolution("room", max(ratio, 1 / ratio) - 1)
    return Resolution("shift", abs(refused - bound))


# --- parts of a verdict ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """What one rule judged. `holds`, `seen`; `decided` is False where so few draws accept that they say nothing."""

    rule: ClassVar[str]

    holds: bool
    grid: float = field(
        default=0.0, kw_only=True
    )  # step of the grid on which its threshold was found; 0 where there is none

    @property
    def resolution(self) -> tuple[Resolution, ...]:
        """What the rule could have refused."""
        raise NotImplementedError

    @property
    def seen(self) -> tuple[Resolution, ...]:
        """What this part could have refused: of a number found on a grid, nothing finer than its step."""
        if not self.grid:
            return self.resolution
        coarser = [each for each in self.resolution if each.kind == "draws" or each.value > self.grid]
        return *coarser, Resolution("grid", self.grid)

    @property
    def decided(self) -> bool:
        """Whether the draws exclude half of what is claimed."""
        return True

    @property
    def blind(self) -> bool:
        """Whether the rule would accept what is off by more than a factor of 2: then a negative control must speak for it."""
        return any(seen.kind in ("factor", "room") and seen.value > 1 for seen in self.seen)

    @classmethod
    def pooled(cls, parts: Sequence[Self]) -> Self:
        """The part of all seeds together, at each of which the draws are others."""
        raise NotImplementedError

    def as_record(self) -> dict[str, Any]:
        """What pages store."""
        plain = {name: value.item() if hasattr(value, "item") else value for name, value in asdict(self).items()}
        return {"rule": self.rule, **{name: value for name, value in plain.items() if name != "grid" or value}}


@dataclass(frozen=True)
class Fixed(Part):
    """No chance: an equation, a bound whatever the draw, a stored table, a certificate. `kind`, `value`: of its resolution."""

    rule = "fixed"
    kind: str = "exact"
    value: float = 0.0

    @property
    def resolution(self) -> tuple[Resolution, ...]:
        return (Resolution(self.kind, self.value),)

    @classmethod
    def pooled(cls, parts: Sequence[Self]) -> Self:
        """One that fails refuses all; a tighter bound would be refused by the draw that is nearest to it."""
        return replace(min(parts, key=lambda part: part.value), holds=all(part.holds for part in parts))


@dataclass(frozen=True)
class Share(Part):
    """With probability `claimed` or more a draw lies inside: `outside` of `draws` do not. `room`, `kind`: to the bound itself."""

    rule = "share"
    draws: int
    outside: int
    claimed: float
    level: float
    kind: str
    room: float

    @classmethod
    def of(cls, draws: int, outside: int, claimed: float, level: float, room: Resolution) -> Self:
        """Rejected when so many outside, or more, have probability <= `level` under Binomial(draws, 1 - claimed)."""
        holds = outside == 0 or binomial_tail(draws, 1 - claimed, outside) > level
        return cls(holds, draws, outside, claimed, level, room.kind, room.value)

    @property
    def least(self) -> float:
        """The share of draws that the draws do not exclude."""
        return least_share(self.draws - self.outside, self.draws)

    @property
    def decided(self) -> bool:
        return self.least >= self.claimed / 2

    @property
    def resolution(self) -> tuple[Resolution, ...]:
        return Resolution("draws", self.least, self.claimed), Resolution(self.kind, self.room)

    @classmethod
    def pooled(cls, parts: Sequence[Self]) -> Self:
        """All draws together; the room is the median of the seeds'."""
        draws, outside = (sum(getattr(part, name) for part in parts) for name in ("draws", "outside"))
        room = Resolution(parts[0].kind, median(part.room for part in parts))
        return cls.of(draws, outside, parts[0].claimed, parts[0].level, room)


@dataclass(frozen=True)
class Mean(Part):
    """An expectation lies in [low, high], widened by `slack`, which is known and has no chance. `scale`: what a shift is compared with;
    `own`: its standard error, where each draw has a prediction of its own.
    """

    rule = "mean"
    centre: float
    error: float
    draws: float  # one more than the degrees of freedom
    low: End
    high: End
    slack: float
    scale: float
    level: float
    own: float = 0.0

    @classmethod
    def of(
        cls, centre: float, error: float, draws: float, low: End, high: End, *, slack: float = 0.0,
        scale: float | None = None, own: float = 0.0, level: float = LEVEL,
    ) -> Self:  # fmt: skip
        """Rejected when the mean is further outside than Student's t standard errors; t has two sides where both ends are given."""
        ends = [end for end in (low, high) if end is not None]
        part = cls(True, centre, error, draws, low, high, slack, fmean(ends) if scale is None else scale, level, own)
        width = slack + part.multiple * error
        return replace(part, holds=(low is None or centre >= low - width) and (high is None or centre <= high + width))

    @property
    def multiple(self) -> float:
        """Student's t."""
        return student(self.draws, self.level, sides=1 if None in (self.low, self.high) else 2)

    @property
    def empty(self) -> bool:
        """Whether no mean could lie between the ends: what a negative control must not ask."""
        return self.low is not None and self.high is not None and self.low > self.high

    @property
    def resolution(self) -> tuple[Resolution, ...]:
        """Of a band or a number, the mean that far from its middle; of one end, where it would be refused."""
        seen = seen_shift(self.draws, self.multiple)
        shift = self.slack + seen * self.error
        # A wrong factor on predictions that differ spreads the differences as well: x = slack + seen sqrt(error^2 + (x own / scale)^2).
        grown = seen * self.own / abs(self.scale) if self.scale else 0.0
        if grown >= 1:
            return (Resolution("shift", shift),)
        rest = 1 - grown**2
        shift = (self.slack + math.sqrt(self.slack**2 - rest * (self.slack**2 - (seen * self.error) ** 2))) / rest
        if self.low is not None and self.high is not None:
            return (relative((self.high - self.low) / 2 + shift, self.scale),)
        return (
            between(self.low, self.centre + shift)
            if self.low is not None
            else between(self.high or 0.0, self.centre - shift),
        )

    @classmethod
    def pooled(cls, parts: Sequence[Self]) -> Self:
        """The mean of the seeds' means, and its standard error from their spread: Student's t counts seeds, not draws.

        Draws of one seed may have something in common (a start, a set of prompts), and what each seed states of its own error would then be
        too small; how far the seeds' means lie apart is true of either. Seeds whose means differ by less than `SHARED` of their own
        standard error judge the same draws, or nearly: their error stays.
        """
        first = parts[0]
        origins = [fmean(end for end in (part.low, part.high) if end is not None) for part in parts]
        apart = [part.centre - origin for part, origin in zip(parts, origins, strict=True)]
        spread, alone = stdev(apart), fmean(part.error for part in parts)
        own = fmean(part.own for part in parts)
        if spread < SHARED * alone:
            error, draws = alone, first.draws
        else:
            error, draws, own = spread / math.sqrt(len(parts)), float(len(parts)), own / math.sqrt(len(parts))
        low, high = (
            None if None in ends else fmean(ends) for ends in ([p.low for p in parts], [p.high for p in parts])
        )
        return cls.of(
            fmean(origins) + fmean(apart), error, draws, low, high, slack=fmean(part.slack for part in parts),
            scale=fmean(part.scale for part in parts), level=first.level,
            own=own,
        )  # fmt: skip


@dataclass(frozen=True)
class Trials(Part):
    """A probability lies in [low, high]: `hits` of `trials` independent ones."""

    rule = "trials"
    hits: int
    trials: int
    low: End
    high: End
    level: float

    @classmethod
    def of(cls, hits: int, trials: int, low: End, high: End, level: float) -> Self:
        """Rejected when so few have probability <= `level` under Binomial(trials, low), or so many under `high`; half, of both."""
        part = cls(True, hits, trials, low, high, level)
        few = low is not None and binomial_tail(trials, 1 - low, trials - hits) <= part.each
        many = high is not None and binomial_tail(trials, high, hits) <= part.each
        return replace(part, holds=not (few or many))

    @property
    def each(self) -> float:
        """The level of one end."""
        return self.level / (1 if None in (self.low, self.high) else 2)

    @property
    def resolution(self) -> tuple[Resolution, ...]:
        """Of a band, the probability outside it that is refused; of one end, how far it could be moved towards what was counted."""
        from scipy.special import bdtri
        from scipy.stats import binom

        low, high, trials = self.low, self.high, self.trials
        if low is not None and high is not None:
            few = int(binom.ppf(self.each, trials, low)) - 1  # the most that is refused, and the fewest of too many
            many = int(binom.isf(self.each, trials, high)) + 1
            below = 0.0 if few < 0 else float(bdtri(few, trials, POWER))
            above = 1.0 if many > trials else float(bdtri(many - 1, trials, 1 - POWER))
            middle = (low + high) / 2
            return (relative(max(middle - below, above - middle), middle),)
        share = self.hits / trials if low is not None else 1 - self.hits / trials
        most = int(binom.ppf(POWER, trials, share))
        end = float(bdtri(most, trials, self.each)) if most < trials else 1.0
        return (between(low, end) if low is not None else between(high or 0.0, 1 - end),)

    @classmethod
    def pooled(cls, parts: Sequence[Self]) -> Self:
        """All trials together."""
        first = parts[0]
        hits, trials = (sum(getattr(part, name) for part in parts) for name in ("hits", "trials"))
        return cls.of(hits, trials, first.low, first.high, first.level)


@dataclass(frozen=True)
class Median(Part):
    """A median lies in [low, high]: `below` of `draws` draws lie below `low`, `above` above `high`. `kind`, `value`: what is seen."""

    rule = "median"
    draws: int
    below: int
    above: int
    level: float
    kind: str
    value: float

    @classmethod
    def of(cls, draws: int, below: int, above: int, level: float, seen: Resolution) -> Self:
        """Rejected when so many below, or so many above, have probability <= `level`/2 under Binomial(draws, 1/2)."""
        holds = all(2 * binomial_tail(draws, 0.5, count) > level for count in (below, above))
        return cls(holds, draws, below, above, level, seen.kind, seen.value)

    @property
    def resolution(self) -> tuple[Resolution, ...]:
        return (Resolution(self.kind, self.value),)

    @classmethod
    def pooled(cls, parts: Sequence[Self]) -> Self:
        """The counts together; what is seen is the median of what the seeds saw, which is coarser than what all together see."""
        draws, below, above = (sum(getattr(part, name) for part in parts) for name in ("draws", "below", "above"))
        seen = Resolution(parts[0].kind, median(part.value for part in parts))
        return cls.of(draws, below, above, parts[0].level, seen)


@dataclass(frozen=True)
class NoNumber(Part):
    """`missing` of `values` values are no number (nan) where the claim has something to say: refused, whatever the rest is."""

    rule = "no number"
    missing: int
    values: int

    @property
    def words(self) -> str:
        """ "3 of 40 values are no number"."""
        return f"{self.missing} of {self.values} values {'is' if self.missing == 1 else 'are'} no number"

    @property
    def resolution(self) -> tuple[Resolution, ...]:
        return ()

    @classmethod
    def pooled(cls, parts: Sequence[Self]) -> Self:
        """All values together."""
        return cls(False, sum(part.missing for part in parts), sum(part.values for part in parts))


KINDS: dict[str, type[Part]] = {kind.rule: kind for kind in (Fixed, Share, Mean, Trials, Median, NoNumber)}


def of_record(record: Mapping[str, Any]) -> tuple[Part, ...]:
    """The parts that a stored record holds, of all seeds together where it has them; empty for one that says nothing of them."""
    return tuple(
        KINDS[part["rule"]](**{name: value for name, value in part.items() if name != "rule"})
        for part in record.get("pooled", record).get("parts", [])
    )


def verdict_of(parts: Iterable[Part]) -> str:
    """What follows from the parts of a verdict, where the claim is inside its regime."""
    parts = list(parts)
    if not all(part.holds for part in parts):
        return "fails"
    return "holds" if all(part.decided for part in parts) else "not contradicted"


def resolutions(parts: Iterable[Part]) -> tuple[Resolution, ...]:
    """Of a whole claim."""
    return weakest(seen for part in parts for seen in part.seen)


def coarseness(parts: Iterable[Part]) -> float | None:
    """One number for sorting: the coarsest that has a scale; None where none has."""
    return max((size for seen in resolutions(parts) if (size := seen.coarseness) is not None), default=None)


def too_coarse(parts: Iterable[Part]) -> str:
    """What a claim must give a reason for (`coarse: ...` in its docstring): words, or "" where it sees enough.

    A number, a band or a threshold that could be off by more than COARSE; a share of draws of which the draws allow that it is SHORT
    lower.
    """
    for seen in resolutions(parts):
        most = {"factor": COARSE, "grid": COARSE, "draws": SHORT}.get(seen.kind, math.inf)
        if (seen.coarseness or 0) > most:
            return seen.words
    return ""


def pooled(runs: Sequence[Sequence[Part]]) -> tuple[Part, ...]:
    """The parts of a claim from its parts at several seeds, whose draws are others; seeds at which nothing was measured are left out.
    What is no number at one seed refuses all.

    Raises ValueError where the rules differ from seed to seed.
    """
    runs = [parts for parts in runs if parts]
    if len(runs) < 2:
        return tuple(runs[0]) if runs else ()
    columns = list(zip(*runs, strict=False))
    kinds = [{type(part) for part in column} - {NoNumber} for column in columns]
    if any(len(parts) != len(columns) for parts in runs) or any(len(each) > 1 for each in kinds):
        raise ValueError("a claim must be judged by the same rules at every seed; it is not")
    lost = [[part for part in column if isinstance(part, NoNumber)] for column in columns]
    heard = [missing or column for missing, column in zip(lost, columns, strict=True)]
    return tuple(replace(type(column[0]).pooled(column), grid=column[0].grid) for column in heard)
