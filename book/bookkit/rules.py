r"""The rules by which a measurement is judged. Every rule that meets chance says how often it would reject a claim that is true.

One level for the whole ledger: if all its claims are true, at most one seed in twenty shows an unexpected verdict anywhere.

    LEDGER = 0.05    P(some true claim is rejected at a fresh seed) <= LEDGER
    LEVEL  = 0.0001  P(one rule rejects what is true); the ledger may use LEDGER / LEVEL = 500 rules, and a test counts them

The width of a rule follows from its level and from the number of draws:

| what is claimed | rule | its width |
|---|---|---|
| a mean over draws is m, or lies in [low, high] | `agrees`, `mean_within` | Student's t with draws - 1 degrees of freedom |
| two means of separate draws differ by an amount in [low, high] | `difference_within` | Welch's t |
| a function of means lies in [low, high] | `statistic_within` | jackknife, Student's t |
| means of which only the standard errors are at hand lie in [low, high] | `estimate_within` | Student's t, the level over their number |
| a draw lies inside its bounds with probability s or more | `within(share=s)` | the binomial law, exactly |
| a probability lies in [low, high] | `share_within` | the binomial law, exactly |
| a median over draws lies in [low, high] | `median_within` | order statistics: the binomial law with 1/2, exactly |
| an equality or a proved bound, whatever the draw | `exactly`, `within(share=1)` | rounding only; no chance |
| bounds on the rows of a stored table | `stored_within` | none; the rows are the same at every seed |

A rule never asks that a measurement be *inside*: it asks whether what was measured would be improbable, at LEVEL, if the claim were true.
So a claim can be true and its rule without power, where draws are few or the claim is weak: its negative control tells, which is
judged by the same rule on the same draws. Student's t is exact for Gaussian draws; replication counts what it does for ours.
Derived in the ledger's chapter, "How often a verdict would come out the same".

`silent`: a mask, (draws,) or of the shape of `measured`: where the claim has nothing to say by its own definition (a draw without
flipped samples). Those values alone are left out. A nan anywhere else is a number that arithmetic did not make: it refuses the claim.
"""

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count

import torch

from bookkit.sharpness import (
    End,
    Fixed,
    Mean,
    Median,
    NoNumber,
    Part,
    Resolution,
    Share,
    Trials,
    between,
    relative,
    weakest,
)
from bookkit.widths import LEDGER as LEDGER
from bookkit.widths import LEVEL as LEVEL
from bookkit.widths import POWER, binomial_tail, fewest_draws, median_interval
from bookkit.widths import student as student

SHARE = 0.95  # of draws that a bound on random draws speaks for, unless a claim says another


Bound = torch.Tensor | float | None


class NothingToMeasure(Exception):
    """A judge's word that these draws cannot speak for or against the claim; the verdict is then *outside its regime*."""


@dataclass(frozen=True)
class Evidence:
    """What a rule found: prediction and measurement in words, the rule, the number of draws, and the numbers.

    `false_alarm`: the probability, at most, with which the rule rejects a claim that is true; 0 where chance has no part in it.
    `parts`: what each rule judged, and what it could have refused (`bookkit.sharpness`).
    """

    holds: bool
    predicted: str
    measured: str
    rule: str
    draws: int
    numbers: dict[str, float] = field(default_factory=dict)
    false_alarm: float = 0.0
    parts: tuple[Part, ...] = ()

    @property
    def mute(self) -> bool:
        """Whether it is refused only because values are no number: no world was told apart."""
        lost = [isinstance(part, NoNumber) for part in self.parts]
        return any(lost) and all(no or part.holds for no, part in zip(lost, self.parts, strict=True))


def _heard(
    silent: torch.Tensor | None, measured: torch.Tensor, *others: Bound, parts: int = 1
) -> torch.Tensor | Evidence:
    """Where a claim has something to say, (draws, ...); the refusal, where one of the values there is no number.

    others: predictions and bounds, which broadcast against `measured`. The refusal's `numbers` give nan for every name.
    """
    speaks = torch.ones_like(measured, dtype=torch.bool)
    if silent is not None:
        speaks = ~silent.reshape(*silent.shape, *[1] * (measured.ndim - silent.ndim)).expand_as(measured)
    lost = torch.zeros_like(speaks)
    for values in (measured, *others):
        if values is not None:
            lost |= speaks & torch.as_tensor(values).isnan()
    if not lost.any():
        return speaks
    part = NoNumber(False, int(lost.sum()), int(speaks.sum()))
    numbers = defaultdict(lambda: math.nan, failures=part.missing)
    return Evidence(
        False, "numbers", part.words, "every value is a number", len(measured), numbers, parts=(part,) * parts
    )


def on_grid(evidence: Evidence, step: float) -> Evidence:
    """The same verdict on a threshold that was found between points of a grid: it is no sharper than the grid's relative step."""
    return replace(evidence, parts=tuple(replace(part, grid=step) for part in evidence.parts))


# --- rules without chance --------------------------------------------------------------------------------------------------


def exactly(
    measured: torch.Tensor, predicted: torch.Tensor | float, *, tolerance: float = 1e-10, draws: int | None = None
) -> Evidence:
    """Algebra: max |measured - predicted| <= tolerance x (largest |predicted|, or 1 where the prediction is zero)."""
    predicted = torch.as_tensor(predicted, dtype=measured.dtype).expand_as(measured)
    heard = _heard(None, measured, predicted)
    if isinstance(heard, Evidence):
        return heard
    scale = predicted.abs().max().item() or 1.0
    deviation = (measured - predicted).abs().max().item() / scale
    # Rounding noise differs between machines: below the tolerance it is not printed.
    shown = f"equal to {tolerance:.0e}" if deviation <= tolerance else f"off by {deviation:.2g} relative"
    rule = f"algebra: relative deviation <= {tolerance:.0e}"
    part = Fixed(deviation <= tolerance, "digits", tolerance)
    return Evidence(part.holds, "equality", shown, rule, draws or measured.shape[0], parts=(part,))


# --- shares of draws -------------------------------------------------------------------------------------------------------


def within(
    measured: torch.Tensor,
    low: Bound = None,
    high: Bound = None,
    *,
    quantity: str = "",
    share: float = SHARE,
    strict: bool = False,
    level: float = LEVEL,
    silent: torch.Tensor | None = None,
) -> Evidence:
    """Bounds: with probability `share` or more, every value of a draw lies in [low, high] ((low, high) with `strict`).

    measured: (draws, ...), silent: see the module; bounds broadcast against it. Rejects when as many draws outside as
    seen, or more, have probability <= `level` under Binomial(draws, 1 - share): of 40 draws and share .95, when 10 are outside.
    `share=1` is for what is proved for every draw in the regime, and for values without chance: one outside rejects.

    Raises NothingToMeasure where no value is there, or so few draws that nothing could be rejected (`fewest_draws`).
    """
    heard = _heard(silent, measured, low, high)
    if isinstance(heard, Evidence):
        return heard
    measured = measured if silent is None else measured.where(heard, math.nan)
    values = measured.flatten(1) if measured.ndim > 1 else measured.unsqueeze(1)
    silent = values.isnan()
    if silent.all():
        raise NothingToMeasure("needs at least one sample to look at; these draws have none")
    speaks = ~silent.all(1)
    draws = int(speaks.sum())
    if draws < fewest_draws(share, level):
        fewest = fewest_draws(share, level)
        raise NothingToMeasure(f"needs {fewest} draws or more to refute a fraction of {share:.0%}; here {draws}")
    inside, text = torch.ones_like(values, dtype=torch.bool), []
    numbers = {"min": values[~silent].min().item(), "max": values[~silent].max().item()}
    for name, bound, sign in (("low", low, 1), ("high", high, -1)):
        if bound is None:
            continue
        bound = torch.as_tensor(bound, dtype=values.dtype).expand_as(measured).reshape(values.shape)
        room = sign * (values - bound)
        inside &= (room > 0 if strict else room >= 0) | silent
        known = bound[~bound.isnan()]
        first, last = known.min().item(), known.max().item()
        numbers[name] = first if sign > 0 else last
        shown = f"{first:.4g}" if first == last else f"{first:.4g}..{last:.4g} (own bound per draw)"
        text.append(f"{'>' if sign > 0 else '<'}{'' if strict else '='} {shown}")
    failures = int((~inside.all(1) & speaks).sum())
    numbers["failures"] = failures
    room = _room(measured, {"low": low, "high": high}, speaks, share, level)
    shown = f"[{numbers['min']:.4g}, {numbers['max']:.4g}]; inside in {draws - failures} of {draws} draws"
    predicted = (f"{quantity} " if quantity else "") + " and ".join(text)
    if share >= 1:
        part: Part = Fixed(failures == 0, room.kind, room.value)
        return Evidence(part.holds, predicted, shown, "bound, whatever the draw", draws, numbers, parts=(part,))
    part = Share.of(draws, failures, share, level, room)
    rule = f"bound with probability >= {share:g} per draw; exact binomial test"
    return Evidence(part.holds, predicted, shown, rule, draws, numbers, level, (part,))


def _room(
    measured: torch.Tensor, bounds: dict[str, Bound], speaks: torch.Tensor, share: float, level: float
) -> Resolution:
    """The nearest factor on each bound that would have been refused with probability POWER: the weaker of both bounds.

    So many draws must lie outside a tighter bound that `within` refuses it: one, if share is 1; else the share of draws for which a
    count that is refused has probability POWER. A draw's nearest value speaks for it.
    """
    from scipy.special import bdtri

    draws = int(speaks.sum())
    if share >= 1:
        outside = 1
    else:
        least = next(k for k in range(1, draws + 1) if binomial_tail(draws, 1 - share, k) <= level)
        outside = math.ceil(draws * float(bdtri(least - 1, draws, 1 - POWER)))
    found = []
    for name, bound in bounds.items():
        if bound is None:
            continue
        sign = 1 if name == "high" else -1
        limit = torch.as_tensor(bound, dtype=measured.dtype).expand_as(measured).reshape(len(measured), -1)
        values = measured.reshape(len(measured), -1)
        # Of each draw the value that a bound tightened by a factor meets first, and its bound.
        near = torch.where(limit * values > 0, sign * (values / limit) * limit.sign(), sign * (values - limit))
        place = near.nan_to_num(-math.inf).argmax(1, keepdim=True)
        each = [x.gather(1, place)[speaks, 0] for x in (near, values, limit)]
        order = each[0].argsort(descending=True)[outside - 1]
        found.append(between(each[2][order].item(), each[1][order].item()))
    return next((seen for seen in weakest(found) if seen.kind == "room"), found[0])


def stored_within(
    values: torch.Tensor,
    low: Bound = None,
    high: Bound = None,
    *,
    quantity: str = "",
    what: str = "stored run",
    silent: torch.Tensor | None = None,
) -> Evidence:
    """Bounds on numbers of a stored table, (rows, ...): one row outside rejects.

    The rows were drawn once and are the same at every seed, and the claim speaks of them: no chance. Where held-out draws of the
    page's seed enter, their error must be many times smaller than the room that the bounds leave.
    """
    found = within(values, low, high, quantity=quantity, share=1, silent=silent)
    return replace(found, rule=f"bound, every {what}; the table is fixed, no chance")


def share_within(
    hits: int, trials: int, low: End = None, high: End = None, *, quantity: str = "fraction", level: float = LEVEL
) -> Evidence:
    """A probability, counted in independent trials, lies in [low, high].

    Rejects when so few hits have probability <= level' under Binomial(trials, low), or so many under Binomial(trials, high); level' is
    `level`, halved where both ends are given. Trials must be independent: samples of one draw are not; give their share per draw to
    `mean_within`. Raises NothingToMeasure without trials, or where not even 0 (or all) hits could be rejected.
    """
    _require_bounds(low, high)
    each = level / (2 if low is not None and high is not None else 1)
    if trials < 1:
        raise NothingToMeasure("needs at least one trial; there is none")
    bounds = _bounds(quantity, low, high)
    if (low is None or (1 - low) ** trials > each) and (high is None or high**trials > each):
        raise NothingToMeasure(f"needs more trials to refute {bounds}; here {trials}")
    numbers, rule = {"share": hits / trials, "trials": trials}, "share; exact binomial test"
    part = Trials.of(hits, trials, low, high, level)
    return Evidence(part.holds, bounds, f"{hits} of {trials}", rule, trials, numbers, level, (part,))


def median_within(
    measured: torch.Tensor,
    low: End = None,
    high: End = None,
    *,
    quantity: str = "median",
    level: float = LEVEL,
    silent: torch.Tensor | None = None,
) -> Evidence:
    """The median over draws of the law lies in [low, high].

    measured: (draws,). Rejects when the interval between the k-th smallest and the k-th largest draw (`median_interval`), which holds
    the median but for `level`, lies wholly outside. Raises NothingToMeasure where there is no such k.
    """
    _require_bounds(low, high)
    heard = _heard(silent, measured)
    if isinstance(heard, Evidence):
        return heard
    values = measured[heard].sort().values
    draws = values.shape[0]
    k = median_interval(draws, level)
    if k == 0:
        fewest = next(n for n in count(2) if median_interval(n, level))
        raise NothingToMeasure(f"needs {fewest} draws or more; here {draws}")
    first, last = values[k - 1].item(), values[draws - k].item()
    middle = values.median().item() if draws % 2 else (values[draws // 2 - 1] + values[draws // 2]).item() / 2
    shown = f"median {middle:.4g} in [{first:.4g}, {last:.4g}]"
    numbers = {"median": middle, "interval_low": first, "interval_high": last}
    rule = "median over draws; order statistics"
    below, above = (
        int((values < low).sum()) if low is not None else 0,
        int((values > high).sum()) if high is not None else 0,
    )
    part = Median.of(draws, below, above, level, _seen_median(values, k, low, high))
    return Evidence(part.holds, _bounds(quantity, low, high), shown, rule, draws, numbers, level, (part,))


def _seen_median(values: torch.Tensor, k: int, low: End, high: End) -> Resolution:
    """The interval's ends lie, with probability POWER, within the quantiles of the draws that the binomial law gives."""
    from scipy.special import bdtri

    draws = len(values)
    # The k-th smallest is above this quantile of the law with probability POWER.
    edge = float(bdtri(k - 1, draws, POWER))
    down, up = (values.quantile(q).item() for q in (1 - edge, edge))
    if low is not None and high is not None:
        middle, centre = (low + high) / 2, values.median().item()
        return relative((high - low) / 2 + max(down - centre, centre - up), middle)
    return between(low, down) if low is not None else between(high or 0.0, up)


# --- means -----------------------------------------------------------------------------------------------------------------


def agrees(
    measured: torch.Tensor,
    predicted: torch.Tensor | float,
    *,
    allowance: float = 0.0,
    allowance_text: str = "",
    level: float = LEVEL,
    silent: torch.Tensor | None = None,
) -> Evidence:
    """The mean over draws is the predicted one: |mean of (measured - predicted)| <= t x its standard error + a stated allowance.

    t is Student's for that many draws (`student`). measured: (draws,). Differences are paired: predicted may differ from draw to draw.
    `allowance` is the known error of the formula (finite size, rounding of a printed number), in the unit of `measured`, with its
    reason. Raises NothingToMeasure with fewer than two draws.
    """
    predicted = torch.as_tensor(predicted, dtype=measured.dtype).expand_as(measured)
    heard = _heard(silent, measured, predicted)
    if isinstance(heard, Evidence):
        return heard
    measured, predicted = measured[heard], predicted[heard]
    difference = measured - predicted
    mean, error, draws = _mean(difference)
    known = f" + {allowance:.2g} ({allowance_text})" if allowance else ""
    spread = measured.std().item() / math.sqrt(draws)
    numbers = {
        "predicted": predicted.mean().item(),
        "measured": measured.mean().item(),
        "standard_error": spread,
        "mean_difference": mean,
        "standard_error_of_difference": error,
    }
    own = predicted.std().item() / math.sqrt(draws)
    part = Mean.of(mean, error, draws, 0.0, 0.0, slack=allowance, scale=numbers["predicted"], own=own, level=level)
    rule = f"mean difference within {part.multiple:.3g} s.e. (Student's t){known}"
    shown = f"{numbers['measured']:.4g} +- {spread:.1g}; difference {mean:.1g} +- {error:.1g}"
    return Evidence(part.holds, f"{numbers['predicted']:.4g}", shown, rule, draws, numbers, level, (part,))


def mean_within(
    measured: torch.Tensor,
    low: End = None,
    high: End = None,
    *,
    quantity: str = "mean",
    level: float = LEVEL,
    silent: torch.Tensor | None = None,
) -> Evidence:
    """The expectation over draws lies in [low, high]: rejects when the mean is further outside than Student's t standard errors.

    measured: (draws,). Where only one end is given, t is one-sided. Raises NothingToMeasure with fewer than two draws.
    """
    _require_bounds(low, high)
    heard = _heard(silent, measured)
    if isinstance(heard, Evidence):
        return heard
    mean, error, draws = _mean(measured[heard])
    return _interval_rule(mean, error, draws, draws, low, high, quantity, "mean over draws", level)


def difference_within(
    first: torch.Tensor,
    second: torch.Tensor,
    low: End = None,
    high: End = None,
    *,
    quantity: str = "difference",
    level: float = LEVEL,
) -> Evidence:
    """E[first] - E[second] lies in [low, high], for separate draws: Welch's t with Satterthwaite's degrees of freedom.

    For draws that belong together give `mean_within` their differences. first: (draws,); second: (other draws,); of either only
    draws that have something to say. Raises NothingToMeasure where either has fewer than two.
    """
    _require_bounds(low, high)
    heard = _heard(None, torch.cat([first, second]))
    if isinstance(heard, Evidence):
        return heard
    (m1, e1, n1), (m2, e2, n2) = (_mean(values) for values in (first, second))
    square = e1**2 + e2**2
    freedom = square**2 / (e1**4 / (n1 - 1) + e2**4 / (n2 - 1)) if square else n1 + n2 - 2
    effective, draws = freedom + 1, min(n1, n2)
    return _interval_rule(
        m1 - m2, math.sqrt(square), effective, draws, low, high, quantity, "difference of means", level
    )


def statistic_within(
    statistic: Callable[..., float],
    *samples: torch.Tensor,
    low: End = None,
    high: End = None,
    quantity: str = "statistic",
    level: float = LEVEL,
    silent: torch.Tensor | None = None,
) -> Evidence:
    """A smooth function of means over draws (a ratio, a slope, a correlation) lies in [low, high]: jackknife with Student's t.

    samples: (draws, ...) each, the same draws in each; `statistic` is called with all that speak (silent: (draws,)), and with each of
    them left out once. Its standard error is that of the pseudo-values n s - (n - 1) s_without_i. Not for medians and extremes. Raises
    NothingToMeasure with fewer than two draws.
    """
    _require_bounds(low, high)
    heard = _heard(silent, torch.cat([sample.reshape(len(sample), -1) for sample in samples], 1))
    if isinstance(heard, Evidence):
        return heard
    samples = tuple(sample[heard[:, 0]] for sample in samples)
    draws = _two_or_more(samples[0])
    whole = float(statistic(*samples))
    keep = ~torch.eye(draws, dtype=torch.bool)
    without = [float(statistic(*(sample[row] for sample in samples))) for row in keep]
    pseudo = draws * whole - (draws - 1) * torch.tensor(without, dtype=torch.float64)
    heard = _heard(None, pseudo)  # the statistic itself may be no number
    if isinstance(heard, Evidence):
        return heard
    return _interval_rule(whole, _mean(pseudo)[1], draws, draws, low, high, quantity, "jackknife over draws", level)


def estimate_within(
    value: torch.Tensor,
    error: torch.Tensor,
    draws: int,
    low: End = None,
    high: End = None,
    *,
    quantity: str,
    what: str = "mean over draws",
    level: float = LEVEL,
) -> Evidence:
    """Bounds on expectations (C,) of which the means over `draws` draws and their standard errors (C,) are known, the draws not.

    Rejects when one mean is further outside than Student's t standard errors; t is that of `level` over C. One-sided bounds are
    judged with the t of two sides.
    """
    heard = _heard(None, value, error, parts=len(value))
    if isinstance(heard, Evidence):
        return heard
    multiple = student(draws, level / len(value))
    slack = multiple * error[None]
    widened = (None if low is None else low - slack, None if high is None else high + slack)
    found = within(value[None], *widened, share=1)
    ends = {name: end for name, end in (("low", low), ("high", high)) if end is not None}
    bounds = " and ".join(f"{'>=' if name == 'low' else '<='} {end:.4g}" for name, end in ends.items())
    shown = ", ".join(f"{v:.4g} +- {e:.1g}" for v, e in zip(value.tolist(), error.tolist(), strict=True))
    rule = f"{what}, {multiple:.3g} s.e. (Student's t)"
    # The t of two sides at `level` / C is that of one side at half of it.
    each = level / len(value) / (1 if low is not None and high is not None else 2)
    parts = [Mean.of(v, e, draws, low, high, level=each) for v, e in zip(value.tolist(), error.tolist(), strict=True)]
    return Evidence(found.holds, f"{quantity} {bounds}", shown, rule, draws, found.numbers | ends, level, tuple(parts))


# --- together --------------------------------------------------------------------------------------------------------------


def both(*parts: Evidence) -> Evidence:
    """All parts must hold; their words are joined, their false alarms added. For claims that speak of clean and of flipped samples.
    It saw what its weakest part saw.
    """
    return Evidence(
        all(part.holds for part in parts),
        "; ".join(dict.fromkeys(part.predicted for part in parts)),
        "; ".join(dict.fromkeys(part.measured for part in parts)),
        " and ".join(dict.fromkeys(part.rule for part in parts)),
        min(part.draws for part in parts),
        {f"{name}_{i}": value for i, part in enumerate(parts, 1) for name, value in part.numbers.items()},
        sum(part.false_alarm for part in parts),
        tuple(judged for part in parts for judged in part.parts),
    )


def _mean(values: torch.Tensor) -> tuple[float, float, int]:
    """Mean, standard error, number."""
    draws = _two_or_more(values)
    return values.mean().item(), values.std().item() / math.sqrt(draws), draws


def _two_or_more(values: torch.Tensor) -> int:
    draws = values.shape[0]
    if draws < 2:
        raise NothingToMeasure(f"needs two draws or more for a standard error; here {draws} with something to measure")
    return draws


def _interval_rule(
    centre: float,
    error: float,
    effective: float,
    draws: int,
    low: End,
    high: End,
    quantity: str,
    what: str,
    level: float,
) -> Evidence:
    part = Mean.of(centre, error, effective, low, high, level=level)
    numbers = {"measured": centre, "standard_error": error}
    rule = f"{what}, {part.multiple:.3g} s.e. (Student's t)"
    return Evidence(
        part.holds, _bounds(quantity, low, high), f"{centre:.4g} +- {error:.1g}", rule, draws, numbers, level, (part,)
    )


def _require_bounds(low: End, high: End) -> None:
    if low is None and high is None:
        raise ValueError("low, high: a rule needs one of them at least; got neither")


def _bounds(quantity: str, low: End, high: End) -> str:
    if low is not None and high is not None:
        return f"{quantity} in [{low:.4g}, {high:.4g}]"
    return f"{quantity} >= {low:.4g}" if low is not None else f"{quantity} <= {high:.4g}"
