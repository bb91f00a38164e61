"""Stored tables that claims speak of as a whole, and the record of who proved all of their rows.

A page has seconds: it proves one row of a table again. `attnlib certify --full` proves every row, in minutes, and then writes a line of
`RECORD`: the hash of exactly this table, that of the programs that proved it, its number of rows, bits, seconds of a processor and day.
A claim that rests on a table is proved only where the record holds both hashes; otherwise it is *spot-checked*, which is no verdict.
Another table, or a longer one, has another hash. So have programs in which more than prose was changed: the module that proves the rows
and all modules of `PROGRAMS` that it reads, found by their imports.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import process_time
from typing import Any

from attnbook.stored import seal, sealed
from attnlib.kernels import _reads
from bookkit.files import one_line_each, written_aside

PROGRAMS = ("attnlib", "attnbook.certified")
RECORD = Path(__file__).parent / "tables" / "full_run.json"
KEPT = "_build/certified/full_run.json"  # from the book's root: parts that an unfinished run has proved


@dataclass(frozen=True)
class Table:
    """What a claim reads of a stored table.

    content: as JSON holds it; parts: what is proved one after the other; refuted(part): "" where all rows of the part are as the claim
    and the table say, else what is not; module: where that stands.
    """

    name: str
    content: Any
    rows: int
    bits: int
    parts: Sequence[Any]
    refuted: Callable[[Any], str]
    module: str

    @property
    def hash(self) -> str:
        """SHA-256 of the name and the content."""
        return hashlib.sha256(json.dumps([self.name, self.content]).encode()).hexdigest()

    @property
    def programs(self) -> str:
        """SHA-256 of the code that proves it."""
        return _reads.programs(self.module, PROGRAMS)

    @property
    def missing(self) -> str:
        """ "" where a full run of exactly this table by these programs is on record, else why it is not."""
        line = _read(RECORD).get(self.name, {})
        if line.get("table") != self.hash:
            return "no full run of exactly this table is on record"
        return "" if line.get("programs") == self.programs else "the full run on record was one of other programs"


def run_all(tables: Iterable[Table], root: Path, say: Callable[[str], None]) -> bool:
    """Prove every part of each table and write the record; False at the first part that is not proved: that table has no record then.

    A run that is stopped goes on where it was: `KEPT` below `root` holds the seconds of each part that these very programs proved.
    Raises OSError where the record or that file cannot be written, before anything is proved.
    """
    if not all(_run(table, root / KEPT, say) for table in tables):
        return False
    (root / KEPT).unlink(missing_ok=True)
    return True


def _run(table: Table, kept: Path, say: Callable[[str], None]) -> bool:
    kept.parent.mkdir(parents=True, exist_ok=True)
    _write(RECORD, _read(RECORD))
    key = f"{table.hash} {table.programs}"
    seconds = dict(_read(kept).get(key, {}))
    if not table.parts:
        say(f"{table.name}: the table has no rows")
        return False
    for number, part in enumerate(table.parts, 1):
        if str(number) in seconds:
            continue
        start = process_time()
        if found := table.refuted(part):
            say(f"{table.name}: part {number} of {len(table.parts)} is not proved: {found}")
            _write(RECORD, {name: line for name, line in _read(RECORD).items() if name != table.name})
            return False
        seconds[str(number)] = round(process_time() - start, 1)
        _write(kept, {**_read(kept), key: seconds})
        say(f"{table.name}: part {number} of {len(table.parts)} is proved, {seconds[str(number)]} s")
    line = {
        "table": table.hash, "programs": table.programs, "rows": table.rows, "bits": table.bits,
        "seconds": round(sum(seconds.values())), "day": str(datetime.now(UTC).date()),
    }  # fmt: skip
    _write(RECORD, dict(sorted({**_read(RECORD), table.name: line}.items())))
    return True


def _read(path: Path) -> dict[str, Any]:
    """What is stored; nothing where there is no such file, or none of ours. Raises ValueError for a record that was edited."""
    path = sealed(path)
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError, TypeError):
        return {}


def _write(path: Path, content: dict[str, Any]) -> None:
    with written_aside(path) as temporary:
        temporary.write_text(one_line_each(content), encoding="utf-8", newline="\n")
    seal(path)
