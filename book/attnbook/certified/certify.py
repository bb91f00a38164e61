"""The command `attnlib certify`: prove certified claims again.

attnlib certify V1 V4      these claims
attnlib certify --all      all of them
attnlib certify --list     their numbers and titles
attnlib certify --full     those that rest on a stored table, and every row of it (minutes); the run goes on record
"""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

from attnbook.certified.certificate import NeedsFlint, precision
from attnbook.certified.full_run import Table, run_all
from attnbook.certified.judging import SPOT_CHECKED
from bookkit.claims import Check, Claim, ClaimSet, Verdict
from bookkit.pages.catalogue import UserError, find_root
from bookkit.parser import Parser, answered


@dataclass(frozen=True)
class Subject:
    """A set of certified claims and the function that makes what their judges take, at the sizes of the page."""

    module: str
    claims: str
    study: str

    def load(self) -> tuple[ClaimSet, Callable[[], Any]]:
        """The claims and the maker of their study."""
        home = import_module(f"attnbook.certified.{self.module}")
        maker = import_module(f"attnbook.certified.{self.study.partition(':')[0]}")
        return getattr(home, self.claims), getattr(maker, self.study.partition(":")[2])


SUBJECTS = (
    Subject("claims_error", "ERROR_CLAIMS", "error_study:ErrorStudy"),
    Subject("claims_margin", "MARGIN_CLAIMS", "margin:make_margin_study"),
    Subject("claims_risk", "RISK_CLAIMS", "claims_risk:RiskStudy"),
    Subject("claims_constants", "CONSTANT_CLAIMS", "claims_constants:ConstantsStudy"),
    Subject("claims_boundary", "BOUNDARY_CLAIMS", "boundary:make_boundary"),
    Subject("claims_ranges", "RANGE_CLAIMS", "boundary:make_boundary"),
)


@cache
def certified() -> dict[str, tuple[Claim, Callable[[], Any]]]:
    """Every certified claim by its number, with the maker of its study, which makes it once."""
    found: dict[str, tuple[Claim, Callable[[], Any]]] = {}
    for subject in SUBJECTS:
        claims, make = subject.load()
        made = cache(make)
        found |= {id: (claim, made) for id, claim in claims.items()}
    return found


@cache
def tables() -> dict[str, Sequence[Callable[[], Table]]]:
    """By claim, the stored tables that it rests on; most rest on none."""
    homes = (import_module(f"attnbook.certified.{subject.module}") for subject in SUBJECTS)
    return {id: made for home in homes for id, made in getattr(home, "TABLES", {}).items()}


def prove_tables(ids: Sequence[str]) -> bool:
    """Every row of the tables on which these claims rest; False at the first that is not proved. Raises `UserError`."""
    known, root = tables(), find_root()
    if alone := [id for id in ids if id not in known]:
        raise UserError(
            f"{alone[0]} rests on no stored table: leave out --full; claims with a table are {', '.join(known)}"
        )
    try:
        return run_all((made() for id in ids for made in known[id]), root, lambda line: print(line, flush=True))
    except OSError as error:
        raise UserError(f"the record of the full run cannot be written: {error}") from None
    except ValueError as error:
        raise UserError(str(error)) from None


def prove(id: str) -> tuple[Check, float]:
    """The claim's verdict and that of its negative control, and the seconds it took. Raises `UserError` for another claim."""
    known = certified()
    if id not in known:
        raise UserError(f"{id} is no certified claim; certified are {', '.join(known)}")
    claim, make = known[id]
    start = time.perf_counter()
    return claim.check(make()), time.perf_counter() - start


def report(check: Check, seconds: float) -> str:
    """What a reader of the terminal sees of one claim."""
    claim, found = check.claim, check.evidence
    open_word = SPOT_CHECKED if check.violated.startswith(SPOT_CHECKED) else "undecided"
    word = open_word if check.violated else "proved" if check.verdict is Verdict.HOLDS else "refuted"
    control = open_word if check.violated else "proved too" if any(each.holds for each in check.controls) else "refuted"
    lines = [f"{claim.id}  {word}: {claim.title}", f"    {claim.statement}"]
    lines += [f"    {check.violated}"] if check.violated else []
    lines += [f"    enclosure: {found.measured}"] if found.numbers.get("low") is not None else []
    bits = found.numbers.get("bits")
    lines.append(f"    {f'{bits:.0f} bits, ' if bits else ''}{seconds:.1f} s")
    lines.append(f"    negative control ({claim.wrong_text}): {control}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prove the claims that are named; 0 where all are proved and their negative controls are not, 1 otherwise, 2 for a wrong call."""
    parser = Parser(prog="attnlib certify", description="Prove certified claims again.")
    parser.add_argument("ids", nargs="*", metavar="ID", help="claims, as in V1")
    parser.add_argument("--all", action="store_true", help="every certified claim")
    parser.add_argument("--list", action="store_true", help="say which there are")
    parser.add_argument(
        "--full",
        action="store_true",
        help="first prove every row of their stored tables (minutes; stop it and go on when you like)",
    )
    options = parser.parse_args(arguments)
    try:
        if options.list:
            print("\n".join(f"{id:<5} {claim.title}" for id, (claim, _) in certified().items()))
            return 0
        ids = list(certified()) if options.all else options.ids or (list(tables()) if options.full else [])
        if not ids:
            raise UserError("name a claim, as in V1, or --all, --full or --list")
        unknown = [id for id in ids if id not in certified()]
        if unknown:
            prove(unknown[0])
        with precision(64):  # says at once what is missing
            pass
        good = not options.full or prove_tables([id for id in ids if id in tables()] if options.all else ids)
        for id in ids:
            check, seconds = prove(id)
            print(report(check, seconds), flush=True)
            good &= check.verdict is Verdict.HOLDS and check.has_power
        return 0 if good else 1
    except (UserError, NeedsFlint, ArithmeticError) as error:  # the last: a search that ended without an enclosure
        print(f"attnlib certify: error: {error}", file=sys.stderr)
        return 1 if isinstance(error, ArithmeticError) else 2


if __name__ == "__main__":
    raise SystemExit(answered("certify", main))
