"""How coarse each claim of the ledger is, in groups: the chips of its form, the rows of its table. Needs no Sphinx."""

from collections.abc import Iterable, Mapping
from typing import Any

from bookkit.sharpness import ACCEPTED, of_record, resolutions

# The chips of the ledger's form, and the rows of the table: a name, and up to which coarseness it goes.
ROWS = {
    "exact": 1e-9,
    "to 0.1 %": 1e-3,
    "to 1 %": 0.01,
    "to 2 %": 0.02,
    "to 5 %": 0.05,
    "to 10 %": 0.1,
    "over 10 %": float("inf"),
}
NO_SCALE = "no scale"
GROUPS = (*ROWS, NO_SCALE)
# The columns: kinds of resolution by what they are said of.
KINDS = {
    "number": ("factor", "grid"),
    "fraction of draws": ("draws",),
    "bound": ("room",),
    "without chance": ("digits", "enclosure", "exact"),
}
ASKED = {"median": None, "numbers": "number", "bounds": "bound", "fractions": "fraction of draws"}


def group_of(record: Mapping[str, Any]) -> str:
    """The name of the row in which a claim is counted: that of the coarsest thing that it says.

    How much room a bound leaves counts where the claim says nothing else.
    """
    sizes = _sizes(record)
    return row_of(max(sizes.values(), default=None) if set(sizes) == {"bound"} else _coarsest(sizes))


def _sizes(record: Mapping[str, Any]) -> dict[str, float]:
    """By kind, how coarse a claim is; without what has no scale."""
    seen = [
        (kind, r.coarseness) for r in resolutions(of_record(record)) for kind, names in KINDS.items() if r.kind in names
    ]
    return {kind: max(size for k, size in seen if k == kind and size is not None) for kind, _ in seen}


def size_of(record: Mapping[str, Any]) -> float | None:
    """How coarse a claim is about numbers and shares of draws; None where it says bounds alone, or nothing that has a scale."""
    return _coarsest(_sizes(record))


def _coarsest(sizes: Mapping[str, float]) -> float | None:
    return max((size for kind, size in sizes.items() if kind != "bound"), default=None)


def row_of(size: float | None) -> str:
    """The name of the row."""
    return NO_SCALE if size is None else next(name for name, most in ROWS.items() if size <= most)


def sizes(records: Iterable[Mapping[str, Any]], kind: str | None = None) -> list[float]:
    """How coarse each accepted claim is, of all that it says or of one kind (a key of `KINDS`); claims without a scale are left out."""
    found = [_sizes(record) for record in records if record["verdict"] in ACCEPTED]
    return [
        max(each.values()) if kind is None else each[kind] for each in found if each and (kind is None or kind in each)
    ]


def weakest(records: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Accepted claims that say a number or a share of draws, the coarsest first."""
    known = [(size_of(record), record) for record in records if record["verdict"] in ACCEPTED]
    return [record for size, record in sorted(((s, r) for s, r in known if s is not None), key=lambda each: -each[0])]
