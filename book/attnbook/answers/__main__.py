"""The table of hashes that `bookkit.exercises.check` reads, and the answers for the teacher's eyes.

python -m attnbook.answers               make the table again: the same bytes where no answer has changed
python -m attnbook.answers --check       write nothing; fail where the stored table differs
python -m attnbook.answers --show NAME   print answers, of a page (02-two-steps), of an exercise (02-two-steps/2), or of all
"""

import argparse
import difflib
import sys
from collections.abc import Sequence

from attnbook.answers import Exercise, exercises
from attnbook.exercises import TABLE
from bookkit.exercises import table
from bookkit.exercises.checking import precision
from bookkit.pages.catalogue import write_atomically
from bookkit.parser import answered

STORED = TABLE


def main(argv: Sequence[str] | None = None) -> int:
    """Entry of `python -m attnbook.answers`; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m attnbook.answers", description="Answers of the exercises, and their hashes."
    )
    parser.add_argument("--check", action="store_true", help="write nothing; fail where the stored table differs")
    parser.add_argument(
        "--show", nargs="?", const="", metavar="NAME", help="print answers: of a page, of an exercise, or of all"
    )
    options = parser.parse_args(argv)
    known = exercises()
    if options.show is not None:
        return show(known, options.show)
    fresh = table.as_text({name: one.entry() for name, one in known.items()})
    if STORED.is_file() and STORED.read_text(encoding="utf-8") == fresh:
        print(f"The table of {len(known)} exercises is up to date.")
        return 0
    if options.check:
        print(f"error: {STORED.name} differs from the answers: run python -m attnbook.answers", file=sys.stderr)
        return 1
    write_atomically(STORED, fresh)
    print(f"written: {STORED.name}, {len(known)} exercises")
    return 0


def show(known: dict[str, Exercise], wanted: str) -> int:
    """Print the answers of the exercises whose names begin with `wanted`; 2 where there are none."""
    chosen = {name: one for name, one in known.items() if name == wanted or name.startswith(wanted.rstrip("/") + "/")}
    if not wanted:
        chosen = known
    if not chosen:
        pages = dict.fromkeys(name.partition("/")[0] for name in known)
        close = difflib.get_close_matches(wanted, [*pages, *known], n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"pages: {', '.join(pages)}"
        print(
            f"error: NAME must be a page or an exercise with a number as its answer; got {wanted!r}: {hint}",
            file=sys.stderr,
        )
        return 2
    for name, one in chosen.items():
        print(f"{name}: {one.answer():.6g}  ({precision(one.digits)})  {one.asks}")
    return 0


if __name__ == "__main__":
    sys.exit(answered("answers", main))
