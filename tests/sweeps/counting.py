"""A page that writes down when it is executed, and a book around it with a package of its own that computes the same without a kernel."""

import os
import sys
from collections import Counter
from pathlib import Path

import yaml

from tests.tiny_book import page_text, write

NAME = "part/01_counting"
PAGE = page_text(
    ":tags: [parameters]\n\n"
    "n: int = 0  # number to square [>= 0]\n"
    "broken: int = -1  # number at which it fails [>= -1]\n"
    "seed: int = 0  # tells runs apart [>= 0]",
    "import os\n\nfrom bookkit.results import record\n\n"
    "with open(os.environ['BOOKKIT_PAGE_LOG'], 'a') as log:\n    log.write(f'{n} {os.getppid()}\\n')\n"
    "if n == broken:\n    raise ValueError(f'{n} is broken')\n"
    "record(square=n**2, digits=[0, 1, 2])",
).replace("---\n\n# A page", "bookkit:\n  batched: counted.squares:squares\n---\n\n# A page")
SQUARES = """
def squares(points):
    if any(point["n"] == point["broken"] for point in points):
        raise ValueError("one is broken")
    return [{"square": point["n"] ** 2, "digits": [0, 1, 2]} for point in points]
"""


class CountingBook:
    """A book with one page, the environment that runs it, and the record of its executions."""

    def __init__(self, root: Path, squares: str = SQUARES, page: str = PAGE) -> None:
        self.root, self.log, self.out = root, root / "executions.log", root / "out"
        write(root / "counted" / "__init__.py", "")
        write(root / "counted" / "squares.py", squares)
        write(root / "pyproject.toml", '[tool.bookkit]\npackages = ["counted"]\nversions = ["nbformat"]\n')
        write(root / "notebooks" / f"{NAME}.md", page)
        write(root / "_toc.yml", f"format: jb-book\nroot: book/preface\nchapters:\n- file: notebooks/{NAME}\n")
        self.environment = {
            **os.environ,
            "PYTHONPATH": str(root),
            "BOOKKIT_PAGE_LOG": str(self.log),
            "PYTHONWARNINGS": "",
        }

    def command(self, points: int, *options: str, broken: int = -1) -> list[str]:
        """The sweep of n from 0 to `points` - 1, as typed in the folder of the book."""
        content = {"product": {"n": list(range(points))}, "fixed": {"broken": broken}}
        write(self.root / "grid.yml", yaml.safe_dump(content))
        return [sys.executable, "-m", "bookkit", "sweep", "counting", "grid.yml", "-o", "out", *options]

    def lines(self) -> list[tuple[int, int]]:
        """Of every execution: n, and the process that ran the kernel."""
        text = self.log.read_text() if self.log.exists() else ""
        return [tuple(map(int, line.split())) for line in text.splitlines()]

    def executions(self) -> Counter[int]:
        """How often the page was executed for each n."""
        return Counter(n for n, _ in self.lines())
