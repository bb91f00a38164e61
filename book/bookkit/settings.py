"""What a book says of itself, beside its pages: the table `[tool.bookkit]` of its pyproject.toml.

[tool.bookkit]
packages = ["attnlib", "book/attnbook"]      # folders of what the pages import: see `code`
command = "attnlib"                          # readers type `python -m attnlib rerun ...`; without it, bookkit
versions = ["attnlib", "numpy", "torch"]     # distributions that decide about numbers; shown and stored
faces = ["attnlib.single_head"]              # modules whose __all__ is what readers import

exercises = "book/attnbook/exercises/table.json"   # hashes of the accepted answers
check = "attnbook.exercises"                 # where student notebooks import `check` from
room = "attnbook.room:require_room"          # asked with all parameters of a page before its kernel starts: ValueError if it cannot be run
address = "https://owner.github.io/name"     # where the HTML is published: pages link to chapters there, see `sphinx.public_links`

path = "The short book"                      # caption in _toc.yml of the group that is read from its first page to its last: see `toc`

[tool.bookkit.parts]                         # folders of notebooks/ in reading order, with the paper that a part checks
single_head = { number = "I", title = "A single head", paper = "2410.07746" }

[tool.bookkit.kept]                          # pages that show results of long runs; the commands that make those again
"single_head/02_two_steps" = ["attnlib train"]

[tool.bookkit.redirects]                     # pages that joined others, and where they are read now: see `sphinx.redirects`
"notebooks/single_head/06_old" = "notebooks/single_head/14_new"
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

from bookkit.pages.catalogue import UserError, find_root, one_line

FILE = "pyproject.toml"


@dataclass(frozen=True)
class Part:
    """A part of the book: its number and title, the paper whose claims it checks (arXiv number, or none)."""

    number: str
    title: str
    paper: str = ""


@dataclass(frozen=True)
class Settings:
    """The table, checked. A book that says nothing has no packages of its own and no parts."""

    packages: tuple[str, ...] = ()
    command: str = "bookkit"
    versions: tuple[str, ...] = ()
    faces: tuple[str, ...] = ()
    exercises: str = ""
    check: str = ""
    room: str = ""
    address: str = ""
    path: str = ""
    parts: Mapping[str, Part] = field(default_factory=dict)
    kept: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    redirects: Mapping[str, str] = field(default_factory=dict)

    @property
    def program(self) -> str:
        """What a reader types before the name of a command."""
        return f"python -m {self.command}"


def settings(root: Path | None = None) -> Settings:
    """The settings of the book in `root` (default: the book around this folder; none where there is no book).

    Raises `UserError` that names the entry which is not as `settings` describes it.
    """
    if root is None:
        try:
            root = find_root()
        except UserError:
            return Settings()
    path = root / FILE
    return _read(path, path.stat().st_mtime_ns) if path.is_file() else Settings()


@lru_cache(maxsize=8)
def _read(path: Path, stamp: int) -> Settings:
    try:
        table = dict(tomllib.loads(path.read_text(encoding="utf-8")).get("tool", {}).get("bookkit", {}))
    except (ValueError, TypeError, AttributeError) as error:
        raise UserError(f"{path.name} cannot be read: {one_line(error)}") from None
    known = [entry.name for entry in fields(Settings)]
    if unknown := sorted(set(table) - set(known)):
        raise UserError(f"{path.name}: [tool.bookkit] knows {', '.join(known)}; got {unknown[0]}")
    parts, kept, redirects = (_typed(table, name, dict, "a table") for name in ("parts", "kept", "redirects"))
    return Settings(
        **{name: _names(table, name) for name in ("packages", "versions", "faces")},
        **{name: _text(table, name) for name in ("exercises", "check", "room", "path")},
        command=_text(table, "command") or "bookkit",
        address=check_address(address) if (address := _text(table, "address")) else "",
        parts={name: _part(name, entry) for name, entry in parts.items()},
        kept={name: _names(kept, name) for name in kept},
        redirects={name: _text(redirects, name) for name in redirects},
    )


def _typed(table: Mapping[str, Any], key: str, kind: type, words: str) -> Any:
    found = table.get(key, kind())
    if not isinstance(found, kind) or (kind is list and not all(isinstance(name, str) and name for name in found)):
        raise _wrong(key, words, found)
    return found


def _names(table: Mapping[str, Any], key: str) -> tuple[str, ...]:
    return tuple(_typed(table, key, list, "a list of names"))


def _text(table: Mapping[str, Any], key: str) -> str:
    return _typed(table, key, str, "a text")


def check_address(address: str) -> str:
    """`address` without a final slash. Raises `UserError` unless it is ``https://host`` with or without a path."""
    plain = address.strip().removesuffix("/")
    if not re.fullmatch(r"https://[\w.-]+(/[\w.~-]+)*", plain):
        raise UserError(f"the address of the published book must be https://host/path; got {address!r}")
    return plain


def _part(name: str, entry: object) -> Part:
    if not isinstance(entry, dict) or not {"number", "title"} <= set(entry) <= {"number", "title", "paper"}:
        raise _wrong(f"parts.{name}", "a table of number, title and, where it has one, paper", entry)
    return Part(**{key: _text(entry, key) for key in ("number", "title", "paper")})


def _wrong(key: str, expected: str, got: object) -> UserError:
    return UserError(f"pyproject.toml: {key} of [tool.bookkit] must be {expected}; got {one_line(repr(got))}")
