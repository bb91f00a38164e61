"""Seeds that nobody has chosen: read off a hash of the release's number, so that nobody can have looked before the release.

seed k = the first 31 bits of SHA-256 of the text "NAME VERSION: seed k", or "NAME VERSION, SERIES: seed k"

NAME and VERSION are those of the book's pyproject.toml. A series is any word: a week's number gives fresh seeds each week.
"""

import hashlib
import tomllib
from pathlib import Path

from bookkit.pages.catalogue import UserError


def release(root: Path) -> str:
    """ "attnlib 0.2.0": name and version of the book in `root`. Raises `UserError` where its pyproject.toml says neither."""
    path = root / "pyproject.toml"
    project = tomllib.loads(path.read_text(encoding="utf-8")).get("project", {}) if path.is_file() else {}
    if not {"name", "version"} <= set(project):
        raise UserError(
            f"{path.name}: replication needs name and version in its table [project]: seeds are made of them"
        )
    return f"{project['name']} {project['version']}"


def rule(release: str, series: str = "") -> str:
    """The text that is hashed, with k for the number of the seed."""
    return f"{release}{', ' if series else ''}{series}: seed k"


def seeds(release: str, count: int, *, first: int = 0, series: str = "") -> list[int]:
    """Seeds `first`, ..., `first` + `count` - 1 of a release: whole numbers from 0 to 2^31 - 1.

    Raises `UserError` for a count below one or a negative `first`.
    """
    if count < 1 or first < 0:
        raise UserError(f"seeds must be 1 or more, first 0 or more; got {count} from {first}")
    before = rule(release, series).removesuffix("k")
    digests = (hashlib.sha256(f"{before}{k}".encode()).digest() for k in range(first, first + count))
    return [int.from_bytes(digest[:4], "big") >> 1 for digest in digests]
