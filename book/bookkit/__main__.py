"""``python -m bookkit``: see `bookkit.cli`."""

import sys
from types import TracebackType


def main(name: str = "bookkit") -> int:
    """Run one command and return its exit code. Ctrl-C ends it in silence also while its modules are imported."""
    sys.excepthook = _told
    from bookkit.cli import main as run

    return run(name=name)


def _told(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if kind is not KeyboardInterrupt:
        sys.__excepthook__(kind, error, trace)


if __name__ == "__main__":
    sys.exit(main())
