r"""Heads drawn to be hard, and the compiled float64 path held against their enclosures.

    python -m attnbook.certified.hard_heads     12 000 heads, six minutes on one core; writes tables/hard_heads.json

| family | what is hard |
|---|---|
| `steep` | $\tau$ is $10^{-9}$ to $10^{-3}$ of c: the integrand is cut off by a wall that narrow |
| `tie` | the least of the numerator $e^{a-\omega t}V + ct$ is nearly zero: two walls meet, and between them is all of the error |
| `wide` | every number over five decades or more |
| `ratio` | V and $\tau$ over hundreds of decades, logits that make up for them |
| `deep` | logits up to 20, errors down to $10^{-10^{16}}$ and less |
| `wrong` | V < 0: the error is above 1/2 |

The *distance* of a result y from the exact logarithm is $|y-\log\mathrm{err}|/\max(1,|\log\mathrm{err}|)$: the relative error of the
logarithm where it exceeds 1, and that of the error elsewhere.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from attnbook.certified.certificate import ball
from attnbook.certified.clean_error import BITS, Head, enclose
from attnbook.certified.full_run import Table
from attnbook.stored import seal, sealed
from attnlib import checks
from attnlib.kernels.gaussian_tail import log_error
from attnlib.randomness import stream
from bookkit.parser import answered

FAMILIES = ("steep", "tie", "wide", "ratio", "deep", "wrong")
SEED, COUNT = 1, 2000  # of the stored table, for each family
TABLE = Path(__file__).parent / "tables" / "hard_heads.json"
SHOWN = 100  # points of each family that the table keeps for a figure
WHERE_MADE = 3e-12  # the largest distance where the table was made, but for ties
DIGITS = 1e-6  # of a row that is made again on a processor of the same kind
FAR = 1e-12  # beyond this distance the head that has the float result exactly is looked for
_MOVES = tuple(2**k for k in range(13))  # units in the last place


def draw(family: str, count: int, seed: int = SEED) -> list[Head]:
    """Heads of one family. Raises ValueError for an unknown family or a count below 1."""
    checks.one_of("family", family, FAMILIES)
    checks.whole_number("count", count, at_least=1)
    g = stream(seed, "search", FAMILIES.index(family))

    def decades(low: float, high: float) -> Any:
        return 10 ** g.uniform(low, high, count)

    sign, logit = g.choice([-1.0, 1.0], count), g.normal(size=count) * decades(-1, 1.3)
    value, omega, along, tau = decades(-3, 3), decades(-2, 2.5), sign * decades(-3, 2), decades(-4, 2)
    if family == "steep":
        tau = np.abs(along) * decades(-8.9, -3)
    elif family == "tie":
        # With u = a + log(V omega/c) the numerator is least at t = u/omega, where it is c (1 + u)/omega.
        along, omega = np.abs(along), decades(-1, 2)
        logit = -1 + omega * sign * decades(-14, -1) - np.log(value * omega / along)
        tau = along * decades(-8.9, -1)
    elif family == "ratio":
        value, tau = decades(-250, 250), decades(-150, 150)
        logit = logit - (np.log(value) - np.log(tau))
        along = sign * tau * decades(-3, 3)
    elif family == "deep":
        value, logit, omega, tau = np.ones(count), g.uniform(0, 20, count), decades(-4, 1), decades(-2, 0)
    elif family == "wrong":
        value, omega, tau = -value, decades(-2, 2), decades(-6, 1)
    return [Head(*map(float, numbers)) for numbers in zip(logit, value, omega, along, tau, strict=True)]


def float_path(heads: Sequence[Head]) -> list[float]:
    """log err of each by the form that pages use."""
    columns = torch.tensor([list(vars(head).values()) for head in heads], dtype=torch.float64).T
    return [float(y) for y in log_error(*columns)]


@dataclass(frozen=True)
class Compared:
    """One head: the float result y, an upper bound on its distance, one from below, and the exact log10 to the precision of a float."""

    head: Head
    found: float
    distance: float
    at_least: float
    log10_error: float


def compare(heads: Sequence[Head], found: Sequence[float] | None = None) -> list[Compared]:
    """Each head's enclosure and its float result (`found`, or that of the path itself)."""
    return [_compared(head, y) for head, y in zip(heads, found or float_path(heads), strict=True)]


def _compared(head: Head, y: float) -> Compared:
    exact = enclose(head).log_error
    if not math.isfinite(y):
        return Compared(head, y, math.inf, math.inf, float(exact / _log10()))
    off = abs(exact - ball(y)) / abs(exact).max(1)
    return Compared(head, y, _up(off), float(off.abs_lower()) * (1 - 1e-15), float(exact / _log10()))


def _log10() -> Any:
    return ball(1).const_log10()


def _up(value: Any) -> float:
    return math.nextafter(float(value.abs_upper()), math.inf)


def backward_ulps(compared: Compared) -> int | None:
    """The least power of two k such that y is exact for a head whose c differs by at most k units of 2^-52; None above 4096.

    Proved by the two ends: log err at c (1 - k 2^-52) and at c (1 + k 2^-52) lie on two sides of y, and log err is continuous in c.
    """
    y = ball(compared.found)
    for k in _MOVES:
        ends = [
            enclose(Head(**{**vars(compared.head), "along": compared.head.along * (1 + side * k * 2.0**-52)})).log_error
            for side in (-1, 1)
        ]
        if (ends[0] < y < ends[1]) or (ends[1] < y < ends[0]):
            return k
    return None


def row(family: str, count: int, seed: int = SEED) -> dict[str, Any]:
    """What the table says of a family."""
    made = compare(draw(family, count, seed))
    distances = np.array([each.distance for each in made])
    worst = made[int(distances.argmax())]
    far = [each for each in made if each.distance > FAR]
    moves = [backward_ulps(each) for each in far]
    return {
        "heads": count,
        "log10_error": [min(each.log10_error for each in made), max(each.log10_error for each in made)],
        "quantiles": {str(q): float(np.quantile(distances, q)) for q in (0.5, 0.9, 0.99)},
        "largest": worst.distance,
        "where": list(vars(worst.head).values()),
        "beyond": len(far),
        "ulps": max((k for k in moves if k), default=0),
        "unexplained": sum(k is None for k in moves),
        "points": [[each.log10_error, each.distance] for each in made[:SHOWN]],
    }


def stored() -> dict[str, dict[str, Any]]:
    """The table, by family."""
    return {str(name): dict(found) for name, found in json.loads(sealed(TABLE).read_text(encoding="utf-8")).items()}


def whole_family(family: str) -> Table:
    """A family of the table: all heads are drawn again and enclosed, are within `WHERE_MADE` of the float path, and give the row again.

    A processor that has other last bits, of powers or of sums, gives another row: there the table is to be made anew.
    """
    content = stored()[family]

    def refuted(_: str) -> str:
        made = row(family, COUNT)
        if made["largest"] > WHERE_MADE:
            return f"a head at the distance {made['largest']:.1e}"
        if other := differing(content, made):
            return (
                f"{other} of the row is not what is found here; python -m attnbook.certified.hard_heads makes it anew"
            )
        return ""

    return Table(f"{family} heads", content, COUNT, BITS[0], [family], refuted, __name__)


def differing(content: dict[str, Any], made: dict[str, Any]) -> str:
    """The first entry in which two rows of the table differ by more than `DIGITS`, or "" where they agree."""

    def numbers(entry: Any) -> Any:
        return np.array([*entry.keys(), *entry.values()] if isinstance(entry, dict) else entry, dtype=np.float64)

    for name in sorted(content.keys() | made.keys()):
        old, new = (numbers(each.get(name, [])) for each in (content, made))
        if old.shape != new.shape or not np.allclose(old, new, rtol=DIGITS, atol=0):
            return name
    return ""


def main(count: int = COUNT) -> None:
    """Make the table."""
    table = {}
    for family in FAMILIES:
        table[family] = row(family, count)
        print(family, {name: value for name, value in table[family].items() if name != "points"}, flush=True)
    TABLE.parent.mkdir(exist_ok=True)
    TABLE.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8", newline="\n")
    seal(TABLE)


if __name__ == "__main__":
    raise SystemExit(answered("hard_heads", main))
