"""The manners of every command: options by argparse, errors of one line under the name by which a reader called the program."""

import argparse
import difflib
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

from bookkit.pages.catalogue import UserError, one_line

MOST_JOBS = 1024
# What moves a reader's terminal, or turns the order of its letters: files of somebody else's may hold it.
_HARMFUL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")

_name = "bookkit"


def call_it(name: str) -> None:
    """From now on messages name the program so: a book has a command of its own."""
    global _name
    _name = name


def program() -> str:
    """The name of the program in usage lines and messages."""
    return _name


class Parser(argparse.ArgumentParser):
    """argparse whose errors are one line, like all others of this program."""

    def error(self, message: str) -> NoReturn:
        """Exit with code 2 after one line on stderr; of a misspelt choice, with the nearest one instead of all."""
        if found := re.search(r"(invalid choice: '?([^' ]+)'?) \(choose from (.*)\)", message):
            close = difflib.get_close_matches(found[2], re.findall(r"[\w-]+", found[3]), n=1)
            if close:
                message = message.replace(found[0], f"{found[1]}, did you mean {close[0]!r}?")
        self.exit(complain(f"{message} (see {self.prog} --help)", 2))

    def add_jobs(self, what: str, default: int | None = None, *former: str) -> None:
        """The option --jobs: how many of `what` at a time. `former`: names that it had, which are still read."""
        help_text = f"{what} at a time (default: {default or 'one per core'})"
        self.add_argument("--jobs", type=_jobs, default=default, metavar="N", help=help_text)
        for name in former:
            self.add_argument(name, dest="jobs", type=_jobs, help=argparse.SUPPRESS)


def _jobs(text: str) -> int:
    if not re.fullmatch("[0-9]{1,9}", text) or not 1 <= int(text) <= MOST_JOBS:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 to {MOST_JOBS}; got {text!r}")
    return int(text)


def harmless(text: str, escaped: bool = False) -> str:
    """`text` without what moves a terminal; `escaped`: as JSON writes it, so that JSON stays what it is."""
    return _HARMFUL.sub(lambda sign: f"\\u{ord(sign[0]):04x}" if escaped else "\N{REPLACEMENT CHARACTER}", text)


def say(*lines: object, error: bool = False, escaped: bool = False) -> None:
    """Print lines, on stderr if it is an `error`: all that the kit prints goes this way, for all may hold a page's own words."""
    print(
        *(harmless(str(line), escaped) for line in lines),
        sep="\n",
        file=sys.stderr if error else sys.stdout,
        flush=True,
    )


def complain(message: object, code: int) -> int:
    """Print an error on stderr and return the exit code."""
    say(f"{program()}: error: {message}", error=True)
    return code


class Ended(KeyboardInterrupt):
    """A signal came that asks a program to end: every command ends as on Ctrl-C. `code`: its exit code."""

    code = 130


@contextmanager
def orderly_end() -> Iterator[None]:
    """Inside, SIGTERM and SIGHUP raise `Ended`; one that is ignored, as under nohup, stays ignored."""

    def end(number: int, frame: object) -> None:
        ended = Ended()
        ended.code = 128 + number
        raise ended

    found = [getattr(signal, name, None) for name in ("SIGTERM", "SIGHUP")]
    ours = [number for number in found if number is not None and signal.getsignal(number) is signal.SIG_DFL]
    if threading.current_thread() is not threading.main_thread():  # only the main thread gets signals
        ours = []
    for number in ours:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


def answered(command: str, work: Callable[[], int | None]) -> int:
    """Exit code of `work`, a whole command: 0 done; 1 it failed; 2 it cannot be done as it was asked for; 130, 143 or 129 ended by
    Ctrl-C, SIGTERM or SIGHUP, with the same care.

    Whatever is raised is told in one sentence. An error that nobody foresaw keeps its traceback where BOOKKIT_TRACEBACK is set.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started us
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8", newline=""))
        if reconfigure := getattr(getattr(sys, name), "reconfigure", None):
            reconfigure(errors="backslashreplace")  # a pipe on Windows, or an old locale, has no letter for rho
    try:
        try:
            with orderly_end():
                code = work() or 0
        except SystemExit as end:  # --help, or an option that is none
            code = int(end.code or 0) if not isinstance(end.code, str) else complain(end.code, 1)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # whoever reads this, as `head`, has enough
        return _closed(0)
    except UserError as error:
        return complain(str(error), 2)
    except KeyboardInterrupt as end:
        return complain(str(end) or "interrupted", getattr(end, "code", Ended.code))
    except MemoryError:
        return complain(f"{command} needs more memory than it can have: take smaller sizes, or fewer --jobs", 1)
    except OSError as error:  # a full disk, a folder that is read-only
        if isinstance(error, FileNotFoundError) and error.filename is None:  # from os.getcwd alone
            error.filename = "the current folder was deleted, change into another"
        return _closed(complain(f"{error.filename or command}: {error.strerror or one_line(error)}", 1))
    except Warning as error:  # PYTHONWARNINGS=error in the shell, or python -W error
        return complain(
            f"a warning ends {command}, as Python was asked to do: {one_line(error)}: unset PYTHONWARNINGS", 1
        )
    except Exception as error:
        if os.environ.get("BOOKKIT_TRACEBACK"):
            raise
        what = f"{type(error).__name__}: {one_line(error)}"
        where = "BOOKKIT_TRACEBACK=1 before the command shows where: please report it"
        return complain(f"{command} met an error that nobody foresaw, {what}; {where}", 1)


def _closed(code: int) -> int:
    """`code`; what is still to be printed, and cannot be, is given up."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code
