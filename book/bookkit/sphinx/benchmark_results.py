"""What `make bench` measured, read from its dated JSON: rates, their ratio to the naive form, their share of the limit.

The limit of a case is the lower of two: the processor's peak of multiply-adds over the operations of one unit, and the
bandwidth of the memory that its bytes cross over the bytes of one unit. Both roofs are probes of the same run, with the
same number of threads (cases without a kernel, see benchmarks/machine.py). A GPU has no such probes: there the limit is the lowest
of the case's computed ceilings (benchmarks/ceilings.py).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["KERNELS", "NOT_MEASURED", "Limit", "Results", "Row", "newest", "thousands"]

KERNELS = {
    "single_head": "Single head",
    "token_selection": "Token selection",
    "in_context": "In-context training",
    "gaussian_tail": "Population error",
    "attention_heads": "Attention heads",
}
NOT_MEASURED = "not measured yet"
_FILE = re.compile(r"\w+-(?P<device>[a-z0-9-]+)-\d{4}-\d{2}-\d{2}\.json")  # kernels-nvidia-h200-2026-01-31.json


@dataclass(frozen=True)
class Row:
    """A case with its rate.

    Args:
        case: its name.
        what: one sentence.
        rate: units per second, from the median.
        spread: interquartile range over the median of the times.
        unit: what is counted.
        operations, bytes, level: of one unit, and the memory whose border the bytes cross.
        dtype, threads: as in the registry.
        kernel: key of `KERNELS`; empty for a probe of the machine.
        ceilings: computed units per second that it cannot pass, by what sets them.
    """

    case: str
    what: str
    rate: float
    spread: float
    unit: str
    operations: float
    bytes: float
    level: str
    dtype: str
    kernel: str
    threads: int
    ceilings: Mapping[str, float] = field(default_factory=dict)

    @property
    def words(self) -> set[str]:
        """Words of the case's name."""
        return set(re.split(r"[-_ ]", self.case))

    @property
    def naive(self) -> bool:
        """Whether this is tensor code that others are measured against."""
        return bool(self.words & {"naive", "torch", "numpy"})

    @property
    def readable(self) -> bool:
        """Whether it is no fast form: naive, or the readable reference."""
        return self.naive or "reference" in self.words

    @property
    def intensity(self) -> float:
        """Operations per byte; infinite where no byte crosses a border."""
        return self.operations / self.bytes if self.bytes else math.inf


@dataclass(frozen=True)
class Limit:
    """The rate that a case cannot pass, and what sets it: "multiply-adds", reads from a memory, or a computed ceiling."""

    rate: float
    by: str


@dataclass(frozen=True)
class Results:
    """One file: its rows, the named ratios, and where and when they were measured."""

    rows: tuple[Row, ...]
    ratios: dict[str, float]
    machine: str
    device: str
    date: str
    versions: dict[str, str]

    def roof(self, of: str, threads: int = 1) -> float | None:
        """Operations per second in the dtype `of`, or bytes per second from the memory `of`; None if not measured."""
        for row in self.rows:
            named = row.dtype if row.unit == "operation" else row.level if row.unit == "byte" else None
            if named == of and row.threads == threads:
                return row.rate
        return None

    def limit(self, row: Row) -> Limit | None:
        """The lowest of the roofs over this row that were measured, or of its computed ceilings; None if there is none."""
        if row.ceilings:
            return min(
                (Limit(rate, f"{by} (computed)") for by, rate in row.ceilings.items()), key=lambda limit: limit.rate
            )
        found = []
        peak, bandwidth = self.roof(row.dtype, row.threads), self.roof(row.level, row.threads)
        if row.operations and peak:
            found.append(Limit(peak / row.operations, "multiply-adds"))
        if row.bytes and bandwidth:
            found.append(Limit(bandwidth / row.bytes, f"reads from {row.level}"))
        if row.bytes and not bandwidth:  # the roof that may be the lower one is not known
            return None
        return min(found, key=lambda limit: limit.rate, default=None)

    def baseline(self, row: Row) -> Row | None:
        """The naive form of the same work: same kernel and unit; of several, by dtype, torch before numpy, nearest name."""
        naive = [other for other in self.rows if other.naive and (other.kernel, other.unit) == (row.kernel, row.unit)]

        def nearness(other: Row) -> tuple:
            return other.dtype == row.dtype, "numpy" not in other.words, -len(other.words ^ row.words)

        return max(naive, key=nearness, default=None)

    def of_kernel(self, kernel: str) -> tuple[Row, ...]:
        """Rows of one loop, in the order of the file."""
        return tuple(row for row in self.rows if row.kernel == kernel)


def newest(folder: Path, group: str) -> dict[str, Results]:
    """The newest file of `group` for every device ("cpu", "nvidia-h200", ...), by the date in its name."""
    last: dict[str, Path] = {}
    for path in sorted(folder.glob(f"{group}-*.json")):  # in the order of their dates
        match = _FILE.fullmatch(path.name)
        if match:
            last[match["device"]] = path
    return {device: _read(path) for device, path in sorted(last.items())}


def _read(path: Path) -> Results:
    """Raises ValueError, naming file and field, if the file is not what `make bench` writes."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        rows = tuple(_row(case) for case in found["cases"] if case.get("work"))
        return Results(
            rows, dict(found["ratios"]), found["machine"], found["device"], found["date"], dict(found["versions"])
        )
    except (KeyError, TypeError, AttributeError, ValueError, ZeroDivisionError) as error:
        raise ValueError(f"{path.name}: not a result of `make bench`: {type(error).__name__} {error}") from error


def _row(case: dict) -> Row:
    work, median = case["work"], float(case["median_s"])
    kernel = re.sub(r"[ -]", "_", work["kernel"])
    if kernel and kernel not in KERNELS:
        raise ValueError(f"{case['case']}: kernel must be one of {', '.join(KERNELS)}; got {work['kernel']!r}")
    return Row(
        case=case["case"],
        what=case["what"],
        rate=float(work["units"]) / median,
        spread=float(case["iqr_s"]) / median,
        threads=int(case.get("threads", 1)),
        kernel=kernel,
        ceilings={by: float(rate) for by, rate in (case.get("ceilings") or {}).items()},
        **{name: work[name] for name in ("unit", "operations", "bytes", "level", "dtype")},
    )


def thousands(value: float) -> str:
    """Three digits and a letter: 628 900 -> "629 k", 1.21e6 -> "1.21 M"; below a thousand as it is."""
    for power, letter in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= 0.9995 * power:
            return f"{float(f'{value / power:.3g}'):g}{letter}"
    return f"{value:.3g}"
