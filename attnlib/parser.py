"""argparse with errors of one line."""

import argparse
from typing import NoReturn

__all__ = ["Parser"]


class Parser(argparse.ArgumentParser):
    """argparse whose errors are one line, like all others of this program."""

    def error(self, message: str) -> NoReturn:
        """Exit with code 2 after one line on stderr."""
        self.exit(2, f"attnlib: error: {message} (see {self.prog} --help)\n")
