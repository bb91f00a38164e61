"""A page that writes down when it is executed, and a book around it, for every test of sweeps."""

import os
import sys
from pathlib import Path

from tests.tiny_book import page_text, write

PAGE = page_text(
    ":tags: [parameters]\n\n"
    "n: int = 0  # number to square [>= 0]\n"
    "broken: int = -1  # number at which it fails [>= -1]\n"
    "share: float = 0.5  # of nothing [0, 1]\n"
    "seed: int = 0  # tells runs apart [>= 0]",
    "import os\n\nfrom bookkit.results import record\n\n"
    "with open(os.environ['BOOKKIT_PAGE_LOG'], 'a') as log:\n    log.write(f'{n} {os.getppid()}\\n')\n"
    "assert n != broken, f'\\x1b[2J{n} is broken'\nrecord(square=n**2, digits=[0, 1, 2], n=-n)",
)


def dying(parameters: dict, *_) -> dict:
    """In the place of `run_point`, and quick to import: at n = 3 the worker process dies."""
    if parameters["n"] == 3:
        os._exit(1)
    return {"parameters": parameters, "results": {"square": 0}, "status": "done", "seconds": 0.0, "error": None}


class CountingBook:
    """A book with one page, the variables of the environment in which it runs, and the record of its executions."""

    def __init__(self, root: Path) -> None:
        self.root, self.log, self.out = root, root / "executions.log", root / "out"
        self.environment = {"PYTHONPATH": str(root), "BOOKKIT_PAGE_LOG": str(self.log), "PYTHONWARNINGS": ""}
        write(root / "counted/__init__.py", "")
        write(root / "pyproject.toml", '[tool.bookkit]\npackages = ["counted"]\n')
        write(root / "notebooks/part/01_counting.md", PAGE)
        write(root / "_toc.yml", "format: jb-book\nroot: book/preface\nchapters:\n- file: notebooks/part/01_counting\n")

    def command(self, points: int, *options: str, broken: int = -1) -> list[str]:
        """The sweep of n from 0 to `points` - 1, as typed in the folder of the book."""
        write(self.root / "grid.yml", f"product: {{n: {list(range(points))}}}\nfixed: {{broken: {broken}}}")
        return [sys.executable, "-m", "bookkit", "sweep", "counting", "grid.yml", "-o", "out", *options]

    def lines(self) -> list[tuple[int, int]]:
        """Of every execution: n, and the process that ran the kernel."""
        return [tuple(map(int, line.split())) for line in self.log.read_text().splitlines()]
