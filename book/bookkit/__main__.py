"""``python -m bookkit``: see `bookkit.cli`."""

import sys


def main(name: str = "bookkit") -> int:
    """Run one command and return its exit code. Ctrl-C while its modules are imported shows no traceback either."""
    sys.excepthook = lambda kind, *rest: None if kind is KeyboardInterrupt else sys.__excepthook__(kind, *rest)
    from bookkit.cli import main as run

    return run(name=name)


if __name__ == "__main__":
    sys.exit(main())
