"""argparse with errors of one line, under the name by which a reader called the program."""

import argparse
from typing import NoReturn

__all__ = ["Parser", "call_it", "program"]

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
        """Exit with code 2 after one line on stderr."""
        self.exit(2, f"{program()}: error: {message} (see {self.prog} --help)\n")
