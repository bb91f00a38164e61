"""How many digits of a page's numbers stand: the page is run again as other machines would, and all that it stores compared.

    python -m bookkit stability 02_two_steps            measure, report, compare with the tolerances kept beside the page
    python -m bookkit stability --write                 all pages; keep what was measured (after `make notebooks`)
    python -m bookkit stability 02_two_steps --prune    run nothing; forget the numbers that the page stores no more

The machines: other instruction sets (`processors`), two threads, the readable loops in place of the compiled ones (`readable`: ten times
as long, so only when named), and inputs shaken in the last bit (`shake-1`, `shake-2`, ...: `attnlib.randomness`). `hard-1` shakes
by 2^-40: a number that is printed near an edge of rounding shows itself there long before a processor turns it over.

Runs are kept by content like those of `make book`, so an interrupted measurement goes on where it was.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from bookkit.pages import processors
from bookkit.pages.catalogue import (
    Page,
    UserError,
    find_pages,
    find_root,
    require_writable,
    resolve_page,
    write_atomically,
)
from bookkit.pages.execution import PagesFailed, execute_pages
from bookkit.pages.notebooks import compared, moved, stored_on
from bookkit.pages.one_page import code_cells
from bookkit.pages.pictures import KINDS, picture_difference
from bookkit.pages.stored_outputs import (
    NUMBER,
    as_number,
    is_decimal,
    is_number,
    json_leaves,
    texts_of,
    unit,
    units_apart,
)
from bookkit.pages.tolerances import FLOOR, NONE, Tolerances, derive, path_beside, pruned, read, standing, too_wide
from bookkit.parser import Parser, complain, program, say

HARD_BITS = 40
DEFAULT = ("native", "zen", "threads", "shake-1", "shake-2", "shake-3", "hard-1")


@dataclass
class Measurement:
    """What became of one page's stored numbers on other machines.

    `values`: by address; `changes`: by machine, then by address; `printed`: most units of the last digit by which a printed number
    moved; `broken`: what differs in words, counts or shape, a sentence each, with the machine.
    """

    values: dict[str, float | int] = field(default_factory=dict)
    changes: dict[str, dict[str, float]] = field(default_factory=dict)
    printed: dict[str, float] = field(default_factory=dict)
    moving: set[str] = field(default_factory=set)
    broken: list[str] = field(default_factory=list)

    def tolerances(self, stored_on: str) -> Tolerances:
        """The tolerances that these changes ask for."""
        numbers = {
            name: derive(value, self._of(name, True), self._of(name, False)) for name, value in self.values.items()
        }
        return Tolerances(stored_on, tuple(self.changes), numbers, frozenset(self.moving))

    def _of(self, name: str, counts: bool) -> list[float]:
        """The changes of one number: by machines and shakes of the last bit, or by hard shakes."""
        found = [changes for machine, changes in self.changes.items() if _counts(machine) == counts]
        return [changes[name] for changes in found if name in changes]

    def faults(self) -> list[str]:
        """What must be mended in the page: words or counts that change, and digits printed that do not stand."""
        loose = [
            f"{name}: the printed number moves by {units:g} units of its last digit: print fewer digits"
            for name, units in self.printed.items()
            if units > 1
        ]
        return [*self.broken, *loose, *self._too_many_digits()]

    def _too_many_digits(self) -> Iterator[str]:
        """Named results whose table, which shows five digits, shows digits that move."""
        for name, value in self.values.items():
            if isinstance(value, float) and ":" not in name:
                moved = max(self._of(name, True), default=0.0)
                shown = f"{value:.5g}"
                if moved > 1.001 * unit(shown):  # one unit, and its rounding
                    digits = max(1, math.floor(math.log10(abs(value) / moved)))
                    yield f"{name} = {value:.8g} moves by {moved:.1g}, and its table shows {shown}: round it to {digits} digits"


def perturbation(machine: str) -> dict[str, str]:
    """The environment variables of a machine's name: one of `processors.MACHINES`, ``readable``, ``shake-K`` or ``hard-K``.

    Raises `UserError` for another name, `processors.CannotEmulate` where this processor cannot.
    """
    kind, _, number = machine.partition("-")
    if kind in ("shake", "hard") and number.isdigit():
        return {"ATTNLIB_SHAKE": number if kind == "shake" else f"{number}@{HARD_BITS}"}
    if machine == "readable":
        return {"ATTNLIB_KERNELS": "reference"}
    if machine in processors.MACHINES:
        return processors.environment(machine)
    known = ", ".join([*processors.MACHINES, "readable", "shake-K", "hard-K"])
    raise UserError(f"no machine {machine!r}; machines: {known}")


def measure(stored: NotebookNode, runs: Mapping[str, NotebookNode]) -> Measurement:
    """Compare a stored notebook with the same page as other machines ran it.

    A hard shake tells only which printed numbers may move and which numbers jump, and no words: it is larger than what a processor does.
    """
    found = Measurement(stored_numbers(stored))
    for machine, notebook in runs.items():
        found.changes[machine] = {}
        for number, old, new in compared(stored, notebook):
            _compare_cell(found, machine, number, old.outputs, new.outputs, not _counts(machine))
    return found


def stored_numbers(stored: NotebookNode) -> dict[str, float | int]:
    """Every number inside the JSON of a notebook's outputs, by address."""
    leaves = (leaf for cell in code_cells(stored) for leaf in json_leaves(cell.outputs))
    return {name: value for name, value in leaves if is_number(value)}


def _compare_cell(found: Measurement, machine: str, number: int, old: list, new: list, hard: bool) -> None:
    leaves, fresh = dict(json_leaves(old)), dict(json_leaves(new))
    for name, value in leaves.items():
        other = fresh.get(name)
        if isinstance(value, float) and isinstance(other, float):
            found.changes[machine][name] = abs(other - value)
        elif isinstance(value, str) and isinstance(other, str):
            _compare_text(found, f"{machine}: code cell {number}, {name}", f"{name} 0", value, other, hard)
        elif value != other and not hard:
            found.broken.append(f"{machine}: code cell {number}, {name}: stored {value!r}, there {other!r}")
    if set(leaves) != set(fresh) and not hard:
        found.broken.append(f"{machine}: code cell {number}: other names: {sorted(set(leaves) ^ set(fresh))[:3]}")
    for left, right in zip(old, new, strict=False):
        for kind in KINDS:
            shown = [output.get("data", {}).get(kind, "") for output in (left, right)]
            if not hard and (what := picture_difference(*shown)):
                found.broken.append(f"{machine}: code cell {number}, {kind}: {what}")
    for (where, text), (_, other) in zip(texts_of(old, number), texts_of(new, number), strict=False):
        lines = text.splitlines(), other.splitlines()
        if len(lines[0]) != len(lines[1]) and not hard:
            found.broken.append(f"{machine}: {where}: {len(lines[0])} lines stored, there {len(lines[1])}")
        for line, (left, right) in enumerate(zip(*lines, strict=False)):
            _compare_text(found, f"{machine}: {where}, line {line + 1}", f"{where} {line}", left, right, hard)


def _compare_text(found: Measurement, told: str, where: str, stored: str, fresh: str, hard: bool) -> None:
    old, new = NUMBER.split(stored), NUMBER.split(fresh)
    counts = any(a != b and not (is_decimal(a) and is_decimal(b)) for a, b in zip(old[1::2], new[1::2], strict=False))
    if old[::2] != new[::2] or counts:
        if not hard:
            found.broken.append(f"{told}: stored {stored[:200]!r}, there {fresh[:200]!r}")
        return
    for place, (left, right) in enumerate(zip(old[1::2], new[1::2], strict=True)):
        if left != right and max(abs(as_number(left)), abs(as_number(right))) >= FLOOR:
            name = f"{where}#{place}"
            found.moving.add(name)
            if not hard:
                found.printed[name] = max(found.printed.get(name, 0.0), units_apart(left, right))


def _counts(machine: str) -> bool:
    """Whether a machine's changes are of the size of rounding; a hard shake's are not."""
    return not machine.startswith("hard")


# --- the command -----------------------------------------------------------------------------------------------------


def report(found: Measurement, tolerances: Tolerances, every: bool) -> list[str]:
    """One line for each number that stands to fewer than six digits (`every`: for each), fewest first."""
    rows = []
    for name, value in found.values.items():
        known = tolerances.numbers[name]
        if (digits := standing(value, known.allowed)) < 6 or every:
            line = f"  {digits:>2} digits  {known.reason:<9}{name:<44}{value:.8g} +- {known.allowed:.1g}"
            rows.append((digits, line))
    return [line for _, line in sorted(rows)]


def main(argv: Sequence[str] | None = None) -> int:
    """Entry of the command `stability`: 1 where a page fails, or its numbers do not stand as it shows them."""
    parser = Parser(prog=f"{program()} stability", description="How many digits of a page's numbers stand.")
    parser.add_argument("pages", nargs="*", metavar="PAGE", help="these pages (default: all)")
    parser.add_argument(
        "--machines", nargs="+", default=list(DEFAULT), metavar="NAME", help=f"default: {' '.join(DEFAULT)}"
    )
    parser.add_jobs("pages run", 2)
    parser.add_argument("--write", action="store_true", help="keep the tolerances beside the pages")
    parser.add_argument("--prune", action="store_true", help="run nothing; forget numbers that are stored no more")
    parser.add_argument(
        "--every", action="store_true", help="report every number, not only those with fewer than six digits"
    )
    options = parser.parse_args(argv)
    root = find_root()
    pages = [resolve_page(name, root) for name in options.pages] or find_pages(root)
    if options.write or options.prune:
        require_writable({page.stored.parent for page in pages})
    if missing := [page.name for page in pages if not page.stored.is_file()]:
        raise UserError(f"every page needs its stored notebook; missing: {', '.join(missing)}: run `make notebooks`")
    if options.prune:
        for page in pages:
            prune(page)
        return 0
    try:
        runs = run_pages(root, pages, options.machines, options.jobs)
    except PagesFailed as error:
        return complain(error, 1)
    faults = [fault for page in pages for fault in judge(page, runs[page.name], options.write, options.every)]
    say(f"{len(pages)} pages, {len(faults)} faults")
    return int(bool(faults))


def run_pages(
    root: Path, pages: Iterable[Page], machines: Sequence[str], jobs: int
) -> dict[str, dict[str, NotebookNode]]:
    """By page, then by machine: the executed notebooks. A machine that cannot be emulated here is passed over, and said."""
    environments, pages = {}, list(pages)
    for machine in machines:
        try:
            environments[machine] = perturbation(machine)
        except processors.CannotEmulate as reason:
            say(f"passed over: {reason}", error=True)
    runs: dict[str, dict[str, NotebookNode]] = {page.name: {} for page in pages}
    for machine, environment in environments.items():
        say(machine, error=True)
        results = execute_pages(
            [page.source for page in pages], jobs, root / "_build" / "cache", root, environment=environment
        )
        for page in pages:
            runs[page.name][machine] = nbformat.reads(results[page.source].notebook, as_version=4)
    return runs


def judge(page: Page, runs: Mapping[str, NotebookNode], write: bool, every: bool) -> list[str]:
    """Print what was measured of one page, keep it if asked, and return its faults, each a line."""
    stored = nbformat.read(page.stored, as_version=4)
    found = measure(stored, runs)
    kept = NONE if write else read(page.stored)
    fresh = found.tolerances(stored_on(page.stored))
    faults = [*found.faults(), *too_wide(found.values, fresh)]
    if kept is not NONE:
        faults += [
            f"{machine}: {difference}"
            for machine, notebook in runs.items()
            if _counts(machine)
            for difference in moved(stored, kept, notebook)
        ]
    say(page.name, *report(found, fresh, every), *(f"  FAULT {fault}" for fault in faults))
    if write:
        write_atomically(path_beside(page.stored), fresh.as_json())
    return [f"{page.name}: {fault}" for fault in faults]


def prune(page: Page) -> None:
    """Forget what was measured of numbers that a page stores no more, and say what is left to measure."""
    numbers, kept = stored_numbers(nbformat.read(page.stored, as_version=4)), read(page.stored, edited=True)
    left = pruned(numbers, kept)
    narrower = sum(known != kept.numbers[name] for name, known in left.numbers.items())
    say(
        f"{page.name}: {len(kept.numbers) - len(left.numbers)} forgotten, {narrower} made narrower, {len(left.numbers)} kept"
    )
    if new := sorted(set(numbers) - set(left.numbers)):
        say(f"  not measured: {', '.join(new)}: `{program()} stability {page.name} --write`")
    if kept is not NONE:
        write_atomically(path_beside(page.stored), left.as_json())
