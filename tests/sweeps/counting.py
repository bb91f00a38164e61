"""A page that writes down when it is executed, and a book around it with a package of its own."""

import os
import sys
from collections import Counter
from pathlib import Path

import yaml

from bookkit.code import Code
from tests.tiny_book import page_text, write

NAME = "wing/01_counting"
PAGE = page_text(
    ":tags: [parameters]\n\n"
    "n: int = 0  # number to square [>= 0]\n"
    "pause: float = 0.0  # seconds it takes [>= 0]\n"
    "broken: int = -1  # number at which it fails [>= -1]\n"
    "meet: int = 0  # go on when pages have begun under so many workers [>= 0]",
    "import os\nimport time\n\n\n"
    "def note(word):\n"
    "    with open(os.environ['SWEEP_LOG'], 'a') as log:\n"
    "        log.write(f'{word} {n} {os.getppid()}\\n')\n\n\n"
    "note('begin')\ntime.sleep(pause)\n"
    "while meet and len({line.split()[2] for line in open(os.environ['SWEEP_LOG'])}) < meet:\n    time.sleep(0.05)",
    "from bookkit.results import record\n\n"
    "if n == broken:\n    raise ValueError(f'{n} is broken')\n"
    "record(square=n**2, digits=list(range(3)))\nnote('end')",
)


# The package of the book: the same numbers without a kernel.
CODE = """
def squares(points):
    if any(point["n"] == point["broken"] for point in points):
        raise ValueError("one is broken")
    return [{"square": point["n"] ** 2, "digits": [0, 1, 2]} for point in points]
"""


class CountingBook:
    """A book with one page, the environment that runs it, and the record of its executions."""

    def __init__(self, root: Path, batched: bool = False) -> None:
        header = "---\n\n# A page"
        declares = f"bookkit:\n  batched: counted.squares:squares\n{header}" if batched else header
        self.package = write(root / "counted" / "__init__.py", "").parent
        write(self.package / "squares.py", CODE)
        write(root / "pyproject.toml", '[tool.bookkit]\npackages = ["counted"]\nversions = ["nbformat"]\n')
        write(root / "notebooks" / f"{NAME}.md", PAGE.replace(header, declares))
        write(root / "_toc.yml", f"format: jb-book\nroot: book/preface\nchapters:\n- file: notebooks/{NAME}\n")
        self.code = Code((self.package,))
        self.root, self.log = root, root / "executions.log"
        self.environment = {
            **os.environ,
            "PYTHONPATH": str(root),
            "SWEEP_LOG": str(self.log),
            "PYTHONWARNINGS": "",  # what a user sees
        }

    def grid(self, points: int, pause: float = 0.0, broken: int = -1, meet: int = 0) -> Path:
        """A grid file: n from 0 to `points` - 1."""
        content = {"product": {"n": list(range(points))}, "fixed": {"pause": pause, "broken": broken, "meet": meet}}
        return write(self.root / "grid.yml", yaml.safe_dump(content))

    def command(self, *options: str, output: str = "out") -> list[str]:
        """The sweep of `grid.yml` into `output`, as typed in the folder of the book."""
        return [sys.executable, "-m", "bookkit", "sweep", "counting", "grid.yml", "-o", output, *options]

    def executions(self, word: str = "end") -> Counter[int]:
        """How often the page was executed (`end`: to its last line; `begin`: at all) for each n."""
        return Counter(int(n) for kind, n, _ in self._lines() if kind == word)

    def parents(self) -> set[int]:
        """Process ids of the workers that executed it."""
        return {int(parent) for kind, _, parent in self._lines() if kind == "end"}

    def _lines(self) -> list[list[str]]:
        return [line.split() for line in self.log.read_text().splitlines()] if self.log.exists() else []
