"""The command line: ``python -m bookkit COMMAND``, or under the book's own name.

Each command imports what it needs, so that ``--help`` is quick.

Exit codes: 0 done; 1 a page failed while it ran, or the book was not built; 2 the request cannot be carried out as it
stands (one line on stderr says what to change); 130 interrupted.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from importlib.metadata import EntryPoint, entry_points, version
from pathlib import Path

from bookkit import DISTRIBUTION
from bookkit.pages.catalogue import UserError, find_pages, find_root, resolve_page
from bookkit.parser import Parser, call_it, program

# What a command needs beyond the small core, by the name of the extra in pyproject.toml.
EXTRAS = {
    "book": "book",
    "html": "book",
    "notebooks": "rerun",
    "rerun": "rerun",
    "results": "rerun",
    "claims": "rerun",
    "pages": "rerun",
    "stability": "book",
    "sweep": "sweep",
    "replicate": "sweep",
    "register": "book",
}
# Modules of Python that Windows lacks.
POSIX = {"fcntl", "resource"}


# Commands whose options are their own modules' business.
PASSED_ON = {
    "book": "execute the pages and build the HTML",
    "html": "build the HTML from stored outputs",
    "notebooks": "execute the pages and renew their stored outputs",
    "register": "fix the claims' judges and thresholds before they are judged at fresh seeds",
    "replicate": "judge every claim at fresh seeds, drawn by a public rule",
    "stability": "how many digits of a page's numbers stand on other machines",
    "sweep": "execute a page at every point of a grid, and collect one table",
}


def parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    top = Parser(prog=program(), description="Build the book, rerun its pages, read their results.")
    top.add_argument("--version", action=_Version, nargs=0, help="print the version and stop")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=Parser)

    rerun = commands.add_parser("rerun", help="execute a page with other parameters")
    rerun.add_argument("page", metavar="PAGE", help="single_head/02_two_steps, 02_two_steps, two_steps, or a path")
    rerun.add_argument(
        "-p", dest="assignments", nargs=2, action="append", default=[], metavar=("NAME", "VALUE"), help="one parameter"
    )
    rerun.add_argument("-f", dest="file", type=Path, metavar="YAML", help="a mapping of parameters; -p overrides it")
    rerun.add_argument(
        "-o",
        dest="output",
        type=Path,
        required=True,
        metavar="FILE",
        help="what to write: a notebook (.ipynb) or a page for the browser (.html)",
    )

    results = commands.add_parser("results", help="print the named results of an executed notebook as JSON")
    results.add_argument(
        "notebook", metavar="IPYNB", help="an executed notebook, or the name of a page: its stored outputs"
    )

    claims = commands.add_parser("claims", help="print what became of the claims that an executed notebook checks")
    claims.add_argument(
        "notebook", metavar="IPYNB", nargs="?", help="an executed notebook, or the name of a page: its stored outputs"
    )
    claims.add_argument(
        "--uses", metavar="NAME", help="instead: all that falls if this claim or box does, the nearest first"
    )
    claims.add_argument("ids", nargs="*", metavar="ID", help="these claims only, as in C8")
    claims.add_argument("--json", action="store_true", help="the whole records, as JSON")

    pages = commands.add_parser("pages", help="list the pages and their parameters")
    pages.add_argument("page", nargs="?", metavar="PAGE", help="one page only")

    for name, what in PASSED_ON.items():
        commands.add_parser(name, help=what, add_help=False)
    for name, entry in added().items():
        commands.add_parser(name, help=f"of this book: {entry.value}", add_help=False)
    return top


class _Version(argparse.Action):
    def __call__(self, *_: object) -> None:
        print(program(), version(DISTRIBUTION))
        raise SystemExit(0)


def added() -> dict[str, EntryPoint]:
    """Commands that installed books add: entry points of the group `bookkit.commands`, functions of the arguments after the name."""
    return {entry.name: entry for entry in entry_points(group="bookkit.commands")}


def main(arguments: Sequence[str] | None = None, name: str = "bookkit") -> int:
    """Run one command and return its exit code. `name`: what the program is called in its messages."""
    call_it(name)
    options, rest = parser().parse_known_args(arguments)
    if rest and options.command in COMMANDS and options.command not in PASSED_ON:
        parser().error(f"unknown argument: {' '.join(rest)}")
    try:
        done = (
            COMMANDS[options.command](options, rest)
            if options.command in COMMANDS
            else added()[options.command].load()(rest)
        )
        sys.stdout.flush()
        return done
    except BrokenPipeError:  # whoever reads this, as `head`, has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except UserError as error:
        return _complain(str(error), 2)
    except ModuleNotFoundError as error:
        if error.name in POSIX:
            here = "rerun, results, claims and pages work here, and so does `jupyter-book build .`"
            return _complain(f"{options.command} needs Linux, macOS, or WSL on Windows; {here}", 2)
        if options.command not in EXTRAS or (error.name or "").split(".")[0] == __package__:
            raise
        install = f"python -m pip install '{DISTRIBUTION}[{EXTRAS[options.command]}]'"
        return _complain(f"{options.command} needs {error.name}, which is not installed: {install}", 2)
    except KeyboardInterrupt:
        from bookkit.pages.rerun import INTERRUPTED

        return _complain(INTERRUPTED, 130)


def _complain(message: str, code: int) -> int:
    print(f"{program()}: error: {message}", file=sys.stderr)
    return code


def _rerun(options: argparse.Namespace, rest: list[str]) -> int:
    from bookkit.pages.rerun import RunError, rerun

    try:
        rerun(options.page, options.assignments, options.file, options.output, find_root())
    except RunError as error:
        return _complain(str(error), 1)
    print(f"wrote {options.output}", file=sys.stderr)
    return 0


def _notebook(text: str) -> Path:
    """What was typed, where it is a file or looks like one; otherwise the stored notebook of the page of that name."""
    path = Path(text)
    return path if path.suffix == ".ipynb" or path.is_file() else resolve_page(text, find_root()).stored


def _results(options: argparse.Namespace, rest: list[str]) -> int:
    from bookkit.pages.rerun import named_results

    print(json.dumps(named_results(_notebook(options.notebook)), ensure_ascii=False, indent=2))
    return 0


def _claims(options: argparse.Namespace, rest: list[str]) -> int:
    from bookkit.ledger.text import as_text, stored_claims

    if options.uses:
        from bookkit.map.text import falls

        print(falls(options.uses, find_root()))
        return 0
    if options.notebook is None:
        raise UserError("claims needs an executed notebook or the name of a page, or --uses with a claim or a box")
    records = stored_claims(_notebook(options.notebook), options.ids)
    print(json.dumps(records, ensure_ascii=False, indent=2) if options.json else as_text(records))
    return 0


def _pages(options: argparse.Namespace, rest: list[str]) -> int:
    from bookkit.pages.parameters import page_parameters

    root = find_root()
    for page in [resolve_page(options.page, root)] if options.page is not None else find_pages(root):
        print(page.name)
        for parameter in page_parameters(page):
            value = f"{parameter.name}: {parameter.type.__name__} = {parameter.default!r}"
            print(f"    {value:<32}  {parameter.help}: {parameter.expectation}")
    return 0


def _book(options: argparse.Namespace, rest: list[str]) -> int:
    from bookkit.book import main as build

    stored = ["--stored"] if options.command == "html" else []
    return build([*stored, *rest], prog=f"{program()} {options.command}") or 0


def _notebooks(options: argparse.Namespace, rest: list[str]) -> int:
    from bookkit.pages.notebooks import main as renew

    return renew(rest)


def _stability(options: argparse.Namespace, rest: list[str]) -> int:
    from bookkit.pages.stability import main as stability

    return stability(rest)


def _sweep(options: argparse.Namespace, rest: list[str]) -> int:
    from bookkit.sweeps.command import main as sweep

    return sweep(rest)


def _replicate(options: argparse.Namespace, rest: list[str]) -> int:
    from bookkit.replication.command import main as replicate

    return replicate(rest)


def _register(options: argparse.Namespace, rest: list[str]) -> int:
    from bookkit.replication.command import register

    return register(rest)


COMMANDS = {
    "rerun": _rerun,
    "results": _results,
    "claims": _claims,
    "pages": _pages,
    "book": _book,
    "html": _book,
    "notebooks": _notebooks,
    "stability": _stability,
    "sweep": _sweep,
    "replicate": _replicate,
    "register": _register,
}
