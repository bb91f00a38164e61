"""How long each page takes: measured by one command, kept in a small dated file, read when the book is rendered.

python -m bookkit.pages.times        run every page, one at a time; write benchmarks/results/pages-cpu-DATE.json
"""

import datetime
import json
import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from bookkit.pages.catalogue import UserError, find_pages, find_root, one_line, write_atomically
from bookkit.parser import Parser, answered, complain, say

RESULTS = Path("benchmarks") / "results"
VERSIONS = ("numpy", "torch", "numba")


@dataclass(frozen=True)
class PageTime:
    """Seconds of a whole page on one core, and where they were measured."""

    seconds: float
    machine: str
    date: str

    @property
    def sentence(self) -> str:
        """As in "2 min 5 s on one core (AMD EPYC, 2026-11-22)"."""
        return f"{in_words(self.seconds)} on one core ({self.machine}, {self.date})"


def in_words(seconds: float) -> str:
    """A time with two digits or whole seconds: "3.4 s", "12 s", "2 min 5 s"."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    return f"{whole} s" if whole < 100 else f"{whole // 60} min {whole % 60} s"


def page_times(source: Path) -> dict[str, PageTime]:
    """Page name -> its time by the newest measured file.

    Raises ValueError, naming the file, for one that cannot be read.
    """
    found: dict[str, PageTime] = {}
    for path in sorted((source / RESULTS).glob("pages-*.json")):  # later files win: a newer date
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            where = str(record["machine"]), str(record["date"])
            found |= {name: PageTime(float(seconds), *where) for name, seconds in record["pages"].items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f"{path.name} must hold the seconds of pages; it cannot be read ({one_line(error)}): make it again by "
                "python -m bookkit.pages.times"
            ) from None
    return found


def measure(root: Path) -> Path:
    """Run every page of the book in `root`, one at a time, on one core; write the dated file and return its path.

    Raises `execution.PagesFailed`, and writes nothing, when a page fails.
    """
    from bookkit.pages.execution import execute_pages

    pages = {page.source: page.name for page in find_pages(root)}
    results = execute_pages(list(pages), jobs=1, cache_dir=None, root=root)
    record = {
        "date": datetime.date.today().isoformat(),
        "machine": processor(),
        "device": "cpu",
        "threads": 1,
        "versions": {"python": platform.python_version(), **{name: version(name) for name in VERSIONS}},
        "command": "python -m bookkit.pages.times",
        "pages": {pages[path]: round(result.seconds, 1) for path, result in results.items()},
    }
    folder = root / RESULTS
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"pages-cpu-{record['date']}.json"
    write_atomically(path, json.dumps(record, indent=1) + "\n")
    for old in sorted(folder.glob("pages-cpu-*.json")):
        if old != path:
            old.unlink()  # only the newest is ever shown
    return path


def processor() -> str:
    """The processor's name, as far as the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def main(argv: Sequence[str] | None = None) -> int:
    """Entry of `python -m bookkit.pages.times`; returns the exit status."""
    from bookkit.pages.execution import PagesFailed

    parser = Parser(prog="python -m bookkit.pages.times", description=measure.__doc__)
    parser.add_argument("--root", type=Path, help="folder of the book (default: the one around the current folder)")
    options = parser.parse_args(argv)
    try:
        path = measure(options.root.resolve() if options.root else find_root())
    except (UserError, PagesFailed) as error:
        return complain(error, 1)
    say(f"Written: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(answered("times", main))
