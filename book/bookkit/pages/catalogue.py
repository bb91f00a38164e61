"""Pages of the book: where they are and what they are called.

A page is a pair of files: ``notebooks/<part>/<name>.md``, the source that people edit (a MyST notebook with a jupytext
header), and ``notebooks/<part>/<name>.ipynb``, the same cells with their stored outputs.
"""

from __future__ import annotations

import difflib
import os
import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bookkit.files import written_aside

if TYPE_CHECKING:
    from nbformat import NotebookNode


class UserError(ValueError):
    """What was asked for cannot be done. The message is one line that says what to change."""


@dataclass(frozen=True)
class Page:
    """One page: ``name`` as in ``single_head/02_two_steps``, ``source`` the .md, ``stored`` the .ipynb beside it."""

    name: str
    source: Path
    stored: Path


def find_root(start: Path | None = None) -> Path:
    """Folder of the book: the nearest one at or above `start` (default: here) with `_toc.yml` and `notebooks/`.

    Falls back on the clone this package is installed from. Raises `UserError` when neither is a book.
    """
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents, Path(__file__).resolve().parents[3]):
        if (folder / "_toc.yml").is_file() and (folder / "notebooks").is_dir():
            return folder
    raise UserError(f"no book (_toc.yml and notebooks/) at or above {here}: run this inside a clone of the book")


def is_page_source(path: Path) -> bool:
    """Whether a .md begins with a jupytext header, as a MyST notebook does and plain prose does not.

    Raises `UserError` for a page that begins with a byte order mark: other tools would not see that it is one.
    """
    with path.open(encoding="utf-8", errors="replace") as lines:
        first = next(lines, "")
        if first.strip().removeprefix("\ufeff") != "---":
            return False
        for line in lines:
            if line.strip() == "---":
                return False
            if line.strip() == "jupytext:":
                if first.startswith("\ufeff"):
                    raise UserError(f"page {path.name} begins with a byte order mark: save it as UTF-8 without one")
                return True
    return False


def find_pages(root: Path) -> list[Page]:
    """All pages under `root`/notebooks in reading order (their names are numbered)."""
    folder = root / "notebooks"
    pages = []
    for path in sorted(folder.rglob("*.md")):
        inside = path.relative_to(folder)
        if not any(part.startswith(".") for part in inside.parts) and is_page_source(path):
            pages.append(Page(inside.with_suffix("").as_posix(), path, path.with_suffix(".ipynb")))
    return pages


def resolve_page(given: str, root: Path) -> Page:
    """The one page that `given` names.

    ``single_head/02_two_steps``, ``02_two_steps``, ``two_steps``, ``single_head/two_steps``, or a path to either file.

    Raises `UserError` that lists the pages when there is none, or the candidates when there are several.
    """
    pages = find_pages(root)
    known = ", ".join(page.name for page in pages) or "(none yet)"
    if not given.strip():
        raise UserError(f"no page named; pages: {known}")
    for base in (Path.cwd(), root):
        target = (base / given).resolve()
        for page in pages:
            if target in (page.source.resolve(), page.stored.resolve()):
                return page
    wanted = given.strip().strip("/").removeprefix("notebooks/").removesuffix(".md").removesuffix(".ipynb")
    found = [page for page in pages if wanted in _short_names(page.name)]
    if len(found) == 1:
        return found[0]
    if found:
        raise UserError(f"{given!r} names several pages, write more of it: {', '.join(page.name for page in found)}")
    close = difflib.get_close_matches(wanted, [short for page in pages for short in _short_names(page.name)], n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    raise UserError(f"no page {given!r}; {hint}pages: {known}")


def _short_names(name: str) -> list[str]:
    """``single_head/02_two_steps`` -> itself, ``02_two_steps``, ``two_steps`` and ``single_head/two_steps``."""
    part, _, last = name.rpartition("/")
    bare = re.sub(r"^\d+_", "", last)
    return [name, last, bare, f"{part}/{bare}"]


def read_page(page: Page) -> NotebookNode:
    """The page's source as a notebook without outputs."""
    import jupytext

    try:
        return jupytext.read(page.source)
    except Exception as error:  # jupytext and its parsers raise many kinds
        raise UserError(f"page {page.name} cannot be read: {one_line(error)}") from error


def one_line(error: BaseException | str, width: int = 200) -> str:
    """An error's message on one line, for messages that must stay one line."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= width else text[: width - 3] + "..."


def require_writable(folders: Iterable[Path]) -> None:
    """Raise `UserError` for a folder in which nothing can be written: before the work whose result goes there."""
    for folder in folders:
        if not os.access(folder, os.W_OK | os.X_OK):
            raise UserError(f"folder {folder} is not writable: mend its permissions, or work in a copy of the book")


def write_atomically(path: Path, text: str) -> None:
    """Write `text` to `path` so that a reader sees the old file or the new one, never a half; permissions are kept."""
    with written_aside(path) as aside:
        aside.write_text(text, encoding="utf-8", newline="\n")
        if path.exists():
            shutil.copymode(path, aside)
