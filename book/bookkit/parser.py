"""argparse with errors of one line, under the name by which a reader called the program."""

import argparse
import difflib
import re
from typing import NoReturn

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
        self.exit(2, f"{program()}: error: {message} (see {self.prog} --help)\n")
