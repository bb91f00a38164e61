"""The code that a book's numbers come from: packages that its pages import, and whose text is part of every kept result's name.

A book names them in its pyproject.toml (`settings`): `packages = ["attnlib", "book/attnbook"]`, folders from its root.
Of `bookkit` only what makes a verdict counts (`JUDGING`). The rest runs, compares and prints pages: an edit there reruns nothing.
"""

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from bookkit.pages.catalogue import UserError
from bookkit.settings import settings

_OWN = Path(__file__).resolve().parents[1]  # from here `bookkit` is imported
JUDGING = ("claims", "rules", "sharpness", "widths", "worlds")  # modules of `bookkit`


@dataclass(frozen=True)
class Code:
    """Folders of packages, in the order in which a book names them."""

    folders: tuple[Path, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """What is imported: the folders' last names."""
        return tuple(folder.name for folder in self.folders)

    @property
    def homes(self) -> tuple[Path, ...]:
        """Folders in which the packages lie, and that of `bookkit`."""
        return tuple(dict.fromkeys([*(folder.parent for folder in self.folders), _OWN]))

    @property
    def search_path(self) -> str:
        """The whole PYTHONPATH of a page: with it a kernel imports these very packages, and this `bookkit`.

        What a shell has there stays outside: it may hold another numpy or a `sitecustomize`, and no kept result's name would tell.
        Raises `UserError` for a folder that PYTHONPATH cannot name: other packages would be imported than were hashed.
        """
        if bad := [str(home) for home in self.homes if os.pathsep in str(home)]:
            raise UserError(
                f"packages must lie in a folder without {os.pathsep!r} in its path; got {bad[0]}: rename it"
            )
        return os.pathsep.join(map(str, self.homes))

    def hash(self) -> str:
        """SHA-256 over names and bytes of all files: no time of a file counts, which a disk may keep to two seconds."""
        hashes = "".join(f"{folder.name}\0{tree_hash(folder)}" for folder in self.folders)
        hashes += "".join(
            hashlib.sha256((_OWN / "bookkit" / f"{name}.py").read_bytes()).hexdigest() for name in JUDGING
        )
        return hashlib.sha256(hashes.encode()).hexdigest()


NO_CODE = Code(())  # pages that import only what is installed


def code_of(root: Path) -> Code:
    """The packages that the book in `root` names: those that lie there, else those that this Python imports.

    Raises `UserError` for one that is in neither place.
    """
    named = settings(root).packages
    try:
        return Code(tuple(root / name if (root / name).is_dir() else _imported(Path(name).name) for name in named))
    except ModuleNotFoundError as error:
        raise UserError(
            f"packages of [tool.bookkit] must be folders of the book or installed; got {error.name}, which is neither"
        ) from None


def imported(names: Sequence[str]) -> Code:
    """The packages of these names that this Python imports. Raises ModuleNotFoundError for one that it does not."""
    return Code(tuple(_imported(name) for name in names))


def _imported(name: str) -> Path:
    found = find_spec(name)
    if found is None or found.origin is None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    return Path(found.origin).parent


def tree_hash(folder: Path) -> str:
    """SHA-256 over names and bytes of all files under `folder`, without byte code and hidden files."""
    digest = hashlib.sha256()
    for path in _files(folder):
        # Lengths keep "ab" + "c" apart from "a" + "bc".
        content = path.read_bytes()
        digest.update(f"{path.relative_to(folder).as_posix()}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def _files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*"), key=lambda path: path.parts):  # Windows would not look at the case
        hidden = any(part == "__pycache__" or part.startswith(".") for part in path.relative_to(folder).parts)
        if path.is_file() and not hidden:
            yield path
