"""The command line: ``python -m bookkit COMMAND``, or under the book's own name.

Each command imports what it needs, so that ``--help`` is quick.

Exit codes: 0 done; 1 a page failed while it ran, or the book was not built; 2 the request cannot be carried out as it
stands (one line on stderr says what to change); 130, 143 or 129 ended by Ctrl-C, SIGTERM or SIGHUP, with the same care.
"""

import difflib
import json
import os
import sys
from collections.abc import Sequence
from importlib.metadata import EntryPoint, entry_points, version
from pathlib import Path
from typing import Any

from bookkit import DISTRIBUTION

try:
    import click
    from click.shell_completion import shell_complete
except ModuleNotFoundError:
    print(
        "error: commands need click, which is not installed: python -m pip install '.[rerun]' in the repository",
        file=sys.stderr,
    )
    sys.exit(2)

from bookkit.pages.catalogue import UserError, find_pages, find_root, resolve_page
from bookkit.parser import answered, call_it, complain, program, say

# What a command needs beyond the small core, by the name of the extra in pyproject.toml.
EXTRAS = {
    "book": "book", "html": "book", "notebooks": "rerun", "rerun": "rerun", "results": "rerun", "claims": "rerun",
    "pages": "rerun", "stability": "book", "sweep": "sweep", "replicate": "sweep", "register": "book",
}  # fmt: skip

# Commands whose options are their own modules' business: what they do, and the function of the arguments after the name.
PASSED_ON = {
    "book": ("execute the pages and build the HTML", "bookkit.book:main"),
    "html": ("build the HTML from stored outputs", "bookkit.book:stored"),
    "notebooks": ("execute the pages and renew their stored outputs", "bookkit.pages.notebooks:main"),
    "register": (
        "fix the claims' judges and thresholds before they are judged at fresh seeds",
        "bookkit.replication.command:register",
    ),
    "replicate": ("judge every claim at fresh seeds, drawn by a public rule", "bookkit.replication.command:main"),
    "stability": ("how many digits of a page's numbers stand on other machines", "bookkit.pages.stability:main"),
    "sweep": ("execute a page at every point of a grid, and collect one table", "bookkit.sweeps.run:main"),
}
GROUP = "bookkit.commands"  # of the entry points by which installed books add commands
NOTEBOOK = "an executed notebook, or the name of a page: its stored outputs"


class Commands(click.Group):
    """Our commands, those that are passed on, and those of the installed books."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order in which a reader meets them."""
        return [*self.commands, *PASSED_ON, *added()]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """By its name; None for what is no command."""
        if name in PASSED_ON:
            what, address = PASSED_ON[name]
            return _passed_on(EntryPoint(name, address, GROUP), what)
        if entry := added().get(name):
            return _passed_on(entry, f"of this book: {entry.value}")
        return self.commands.get(name)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple:
        """The command that was typed. Raises UsageError that names the nearest one."""
        known = self.list_commands(ctx)
        if args and args[0] not in known and not args[0].startswith("-"):
            close = difflib.get_close_matches(args[0], known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"choose from {', '.join(known)}"
            raise click.UsageError(f"no command {args[0]!r}: {hint}", ctx)
        return super().resolve_command(ctx, args)


def _passed_on(entry: EntryPoint, what: str) -> click.Command:
    @click.command(entry.name, help=what, context_settings={"ignore_unknown_options": True, "help_option_names": []})
    @click.argument("rest", nargs=-1, type=click.UNPROCESSED)
    def command(rest: tuple[str, ...]) -> int:
        return entry.load()(list(rest)) or 0

    return command


def added() -> dict[str, EntryPoint]:
    """Commands that installed books add: functions of the arguments after the name."""
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def _version(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked:
        click.echo(f"{program()} {version(DISTRIBUTION)}")
        ctx.exit()


@click.group(cls=Commands, help="Build the book, rerun its pages, read their results.", no_args_is_help=False)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Print it and stop."
)
def commands() -> None:
    """All commands and their options."""


def main(arguments: Sequence[str] | None = None, name: str = "bookkit") -> int:
    """Run one command and return its exit code. `name`: what the program is called in its messages."""
    call_it(name)
    given = list(sys.argv[1:] if arguments is None else arguments)
    command = next((word for word in given if not word.startswith("-")), name)
    return answered(command, lambda: _run(given, name, command))


def _run(given: list[str], name: str, command: str) -> int:
    variable = f"_{name}_COMPLETE".upper()
    if asked := os.environ.get(variable):  # by a shell, while somebody types
        return shell_complete(commands, {}, name, variable, asked)
    try:
        with commands.make_context(name, given) as context:
            return commands.invoke(context) or 0
    except click.exceptions.Exit as end:  # --help, --version
        return end.exit_code
    except click.UsageError as error:
        where = error.ctx.command_path if error.ctx else name
        raise UserError(f"{error.format_message()} (see {where} --help)") from None
    except click.Abort:
        raise KeyboardInterrupt from None
    except ModuleNotFoundError as error:
        if command not in EXTRAS or (error.name or "").split(".")[0] == __package__:
            raise
        install = f"python -m pip install '.[{EXTRAS[command]}]' in the repository"
        raise UserError(f"{command} needs {error.name}, which is not installed: {install}") from None


@commands.command(
    help="Execute a page with other parameters. PAGE: single_head/02_two_steps, 02_two_steps, two_steps, or a path."
)
@click.argument("page")
@click.option("-p", "assignments", nargs=2, multiple=True, metavar="NAME VALUE", help="One parameter.")
@click.option("-f", "file", type=Path, metavar="YAML", help="A mapping of parameters; -p overrides it.")
@click.option(
    "-o",
    "output",
    type=Path,
    required=True,
    metavar="FILE",
    help="A notebook (.ipynb), or a page for the browser (.html).",
)
@click.option("--force", is_flag=True, help="Replace FILE where it is there already.")
def rerun(page: str, assignments: Sequence[tuple[str, str]], file: Path | None, output: Path, force: bool) -> int:
    from bookkit.pages.rerun import RunError, rerun

    try:
        rerun(page, assignments, file, output, find_root(), force)
    except RunError as error:
        return complain(str(error), 1)
    say(f"wrote {output}", error=True)
    return 0


def _notebook(text: str) -> Path:
    """What was typed, where it is a file or looks like one; otherwise the stored notebook of the page of that name."""
    path = Path(text)
    return path if path.suffix == ".ipynb" or path.is_file() else resolve_page(text, find_root()).stored


def _print_json(content: Any) -> None:
    say(json.dumps(content, ensure_ascii=False, indent=2), escaped=True)


@commands.command(help=f"Print the named results of a page as JSON. NOTEBOOK: {NOTEBOOK}.")
@click.argument("notebook")
def results(notebook: str) -> None:
    from bookkit.pages.rerun import named_results

    _print_json(named_results(_notebook(notebook)))


@commands.command(
    help=f"Print what became of the claims that a page checks. NOTEBOOK: {NOTEBOOK}; ID: these only, as in C8."
)
@click.argument("notebook", required=False)
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option("--uses", metavar="NAME", help="Instead: all that falls if this claim or box does, the nearest first.")
@click.option("--json", "whole", is_flag=True, help="The whole records, as JSON.")
def claims(notebook: str | None, ids: tuple[str, ...], uses: str | None, whole: bool) -> None:
    from bookkit.ledger.text import as_text, stored_claims

    if uses:
        from bookkit.map.text import falls

        say(falls(uses, find_root()))
        return
    if notebook is None:
        raise UserError("claims needs an executed notebook or the name of a page, or --uses with a claim or a box")
    records = stored_claims(_notebook(notebook), list(ids))
    if whole:
        _print_json(records)
    else:
        say(as_text(records))


@commands.command(help="List the pages and their parameters, or those of one page.")
@click.argument("page", required=False)
def pages(page: str | None) -> None:
    from bookkit.pages.parameters import page_parameters

    root = find_root()
    for each in [resolve_page(page, root)] if page is not None else find_pages(root):
        say(each.name)
        for parameter in page_parameters(each):
            value = f"{parameter.name}: {parameter.type.__name__} = {parameter.default!r}"
            say(f"    {value:<32}  {parameter.help}: {parameter.expectation}")
