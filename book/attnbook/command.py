"""The command `attnlib`: that of `bookkit`, under the name of the package that readers import."""

from bookkit.__main__ import main as of_any_book


def main() -> int:
    """Run one command and return its exit code."""
    return of_any_book("attnlib")
