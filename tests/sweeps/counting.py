"""A page that writes down when it is executed, a book around it, and a copy of the package that nobody edits meanwhile."""

import os
import shutil
import sys
from collections import Counter
from pathlib import Path

import yaml

from tests.tiny_book import REPOSITORY, page_text, write

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


# The same numbers without a kernel, for the copy of the package that the tests make.
BATCHED = """
def squares(points):
    if any(point["n"] == point["broken"] for point in points):
        raise ValueError("one is broken")
    return [{"square": point["n"] ** 2, "digits": [0, 1, 2]} for point in points]
"""


class CountingBook:
    """A book with one page, the environment that runs it, and the record of its executions."""

    def __init__(self, root: Path, package: Path, batched: bool = False) -> None:
        header = "---\n\n# A page"
        declares = f"attnlib:\n  batched: attnlib.counting:squares\n{header}" if batched else header
        write(root / "notebooks" / f"{NAME}.md", PAGE.replace(header, declares))
        write(root / "_toc.yml", f"format: jb-book\nroot: book/preface\nchapters:\n- file: notebooks/{NAME}\n")
        self.root, self.log = root, root / "executions.log"
        self.environment = {
            **os.environ,
            "PYTHONPATH": str(package.parent),
            "SWEEP_LOG": str(self.log),
            "PYTHONWARNINGS": "",  # what a user sees
        }

    def grid(self, points: int, pause: float = 0.0, broken: int = -1, meet: int = 0) -> Path:
        """A grid file: n from 0 to `points` - 1."""
        content = {"product": {"n": list(range(points))}, "fixed": {"pause": pause, "broken": broken, "meet": meet}}
        return write(self.root / "grid.yml", yaml.safe_dump(content))

    def command(self, *options: str, output: str = "out") -> list[str]:
        """The sweep of `grid.yml` into `output`, as typed in the folder of the book."""
        return [sys.executable, "-m", "attnlib", "sweep", "counting", "grid.yml", "-o", output, *options]

    def executions(self, word: str = "end") -> Counter[int]:
        """How often the page was executed (`end`: to its last line; `begin`: at all) for each n."""
        return Counter(int(n) for kind, n, _ in self._lines() if kind == word)

    def parents(self) -> set[int]:
        """Process ids of the workers that executed it."""
        return {int(parent) for kind, _, parent in self._lines() if kind == "end"}

    def _lines(self) -> list[list[str]]:
        return [line.split() for line in self.log.read_text().splitlines()] if self.log.exists() else []


def copy_package(folder: Path) -> Path:
    """A copy of the package in `folder`: an edit of the original changes the hash of a sweep that runs."""
    leave = shutil.ignore_patterns("__pycache__", ".*")
    package = Path(shutil.copytree(REPOSITORY / "attnlib", folder / "attnlib", ignore=leave))
    write(package / "counting.py", BATCHED)
    return package
