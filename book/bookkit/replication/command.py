"""The commands `replicate`, which judges claims at seeds that nobody has chosen, and `register`, which fixes them before that."""

import argparse
import os
import shlex
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from bookkit.code import code_of
from bookkit.ledger.records import checks_of, read_ledger, tables_of, whole
from bookkit.pages.catalogue import Page, UserError, find_pages, find_root, resolve_page
from bookkit.pages.parameters import page_parameters
from bookkit.pages.rerun import read_notebook
from bookkit.parser import Parser, complain, program, say
from bookkit.replication import counts, registration
from bookkit.replication.runs import runs
from bookkit.replication.seeds import release, rule, seeds

BUILT = "_build/replication"
EXAMPLES = """\
examples:
  {0} replicate two_steps --seeds 3                 the claims of one page, at the first three seeds of this release
  {0} replicate --seeds 20 --write                  all pages, from the first unseen seed on, for book/replication.json
  {0} replicate --seeds 5 --first 300               five further seeds
  {0} replicate --seeds 3 --series 2026-W47         seeds of another series, a week's say

Stop it whenever you like; the same command goes on with what is missing.
"""


def parser() -> Parser:
    """Options of `replicate`."""
    top = Parser(
        prog=f"{program()} replicate",
        description="Judge every claim at seeds that are read off a hash of the release's number.",
        epilog=EXAMPLES.format(program()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("pages", metavar="PAGE", nargs="*", help="as in rerun (default: all pages)")
    top.add_argument("--seeds", metavar="N", type=int, default=20, help="how many (default: 20)")
    top.add_argument(
        "--first",
        metavar="K",
        type=int,
        help="number of the first one (default: with --write the first unseen one, else 0)",
    )
    top.add_argument("--series", metavar="WORD", default="", help="another series of seeds")
    top.add_jobs("processes", None, "--workers")
    top.add_argument("-o", dest="output", metavar="FOLDER", type=Path, help=f"where runs are kept (default: {BUILT})")
    top.add_argument("--write", action="store_true", help=f"write the table {counts.FILE}")
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `replicate`; its exit code: 0, or 1 where a page did not run or chance does not explain the unexpected verdicts."""
    options = parser().parse_args(arguments)
    root = find_root()
    name = release(root)
    pages = [resolve_page(page, root) for page in options.pages] or find_pages(root)
    if options.output and options.output.exists() and not options.output.is_dir():
        raise UserError(f"-o must be a folder; {options.output} is a file: give another name")
    if options.write:
        options.first = _unseen([page.name for page in pages], options.first, root)
    options.first = options.first or 0
    chosen = seeds(name, options.seeds, first=options.first, series=options.series)
    if options.write:
        _require_same_rule(rule(name, options.series), options, root)
    found: dict[str, counts.Counts] = {}
    failed = 0
    for page in pages:
        here, missing = _page(page, chosen, options, root)
        found |= here
        failed += missing
    for claim, each in found.items():
        if each.as_expected < each.seeds or each.control_told < each.seeds:
            say(
                f"{claim} ({each.page}): {each.as_expected} of {each.seeds} as expected, {each.outside} outside; control told "
                f"apart in {each.control_told}; {each.number} {each.low} to {each.high}"
            )
    total = counts.tally(found.values())
    say(f"{len(found)} claims at {len(chosen)} seeds ({rule(name, options.series)}): {total}")
    if failed:
        return complain(f"{failed} runs failed; the same command tries them again", 1)
    if options.write:
        _write(root, found, rule(name, options.series), options)
    return 0 if total.at_level else 1


def _page(
    page: Page, chosen: Sequence[int], options: argparse.Namespace, root: Path
) -> tuple[dict[str, counts.Counts], int]:
    """The counts of one page, and at how many seeds it failed; what was run before is kept.

    A page without claims or without a seed has no counts.
    """
    records = [{**record, "page": page.name} for record in whole(checks_of(read_notebook(page.stored)), page.stored)]
    if not records or not any(parameter.name == "seed" for parameter in page_parameters(page)):
        return {}, 0
    # Runs of other code lie elsewhere: the same claim may have had another judge then.
    folder = (options.output or root / BUILT) / code_of(root).hash()[:12] / page.name.replace("/", "-")
    start = time.monotonic()
    found = [*runs(page, chosen, folder, code_of(root), options.jobs or os.cpu_count() or 1)]
    whole_runs = [[{**record, "page": page.name} for record in run] for run in found if not isinstance(run, str)]
    took = f"{page.name}: {len(whole_runs)} of {len(chosen)} seeds, {time.monotonic() - start:.0f} s"
    say(took, *sorted({f"  {run}" for run in found if isinstance(run, str)}), error=True)
    marks = {r["id"]: registration.fingerprint({**r, "page": f"notebooks/{page.name}"}, root) for r in records}
    return counts.count(records, whole_runs, marks, options.first, tables_of(page.stored)), len(chosen) - len(
        whole_runs
    )


def _unseen(names: Sequence[str], first: int | None, root: Path) -> int:
    """The first seed for the table: what is judged is fixed before, and at seeds at which nobody had looked.

    Raises `UserError` that names a claim which is not registered, or had been looked at where `first` asks to begin.
    """
    everywhere = whole(read_ledger(root), root / "notebooks")
    records = [record for record in everywhere if record["page"].removeprefix("notebooks/") in names]
    if new := registration.unregistered(records, root):
        listed = ", ".join(record["id"] for record in new[:5]) + (", ..." if len(new) > 5 else "")
        raise UserError(
            f"{len(new)} claims are not registered as they stand ({listed}): {program()} register --because '...', then again"
        )
    fixed = registration.registered(root)
    least, claim = max((fixed[record["id"]].unseen, record["id"]) for record in records) if records else (0, "")
    if first is not None and first < least:
        raise UserError(
            f"--first must be {least} or more, for seeds before had been looked at when {claim} was registered; got {first}"
        )
    return least if first is None else first


def _require_same_rule(text: str, options: argparse.Namespace, root: Path) -> None:
    """Some pages' claims join those of the others. Raises `UserError` where the table's seeds follow another rule."""
    before = counts.read(root)
    if options.pages and before and before.rule != text:
        raise UserError(
            f"{counts.FILE} holds claims judged at the seeds of {before.rule!r}; got {text!r}: give that series, or name no page to "
            "write all anew"
        )


def _said(options: argparse.Namespace) -> str:
    """The command that makes the same table anywhere: without what says how and where it was run."""
    words = ["--seeds", str(options.seeds)]
    words += ["--first", str(options.first)] if options.first else []
    words += ["--series", options.series] if options.series else []
    return f"{program()} replicate {shlex.join([*words, '--write', *options.pages])}"


def _write(root: Path, found: dict[str, counts.Counts], text: str, options: argparse.Namespace) -> None:
    """The table, with the claims of other pages as they were there."""
    before = counts.read(root)
    command = _said(options)
    day = datetime.now(UTC).date().isoformat()
    if before and options.pages:
        found = {**before.claims, **found}
        command, day = before.command, f"{before.date[:10]} to {day}" if before.date[:10] != day else day
    order = {record["id"]: number for number, record in enumerate(read_ledger(root))}
    found = dict(sorted(((c, e) for c, e in found.items() if c in order), key=lambda item: order[item[0]]))
    say(counts.written(root, counts.Replication(text, day, command, found)))


def register(arguments: Sequence[str] | None = None) -> int:
    """Run `register`: fix the claims that are new or changed, with the reason, or say with --check which they are."""
    top = Parser(
        prog=f"{program()} register", description="Fix the claims' judges, thresholds and sizes, with the date."
    )
    top.add_argument(
        "--because", metavar="WHY", default="", help="why claims are new, or changed since they were fixed"
    )
    top.add_argument("--check", action="store_true", help="write nothing; list what is not registered, exit code 1")
    top.add_argument(
        "--unseen",
        metavar="K",
        type=int,
        help="the first seed that nobody has looked at (default: after those of the table)",
    )
    options = top.parse_args(arguments)
    root = find_root()
    records = whole(read_ledger(root), root / "notebooks")
    if options.check:
        new = registration.unregistered(records, root)
        say("\n".join(f"{record['id']} ({record['page']})" for record in new) or "all claims are registered")
        return 1 if new else 0
    new = registration.register(records, root, options.because, datetime.now(UTC).date(), options.unseen)
    say(
        f"{registration.FILE}: {len(new)} claims" if new else "all claims are registered as they stand; nothing written"
    )
    return 0
