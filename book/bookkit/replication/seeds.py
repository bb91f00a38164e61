"""Seeds that nobody has chosen: read off a hash of the release's number, so that nobody can have looked before the release.

seed k = the first 31 bits of SHA-256 of the text "NAME VERSION: seed k", or "NAME VERSION, SERIES: seed k"

NAME and VERSION are those of the book's pyproject.toml. A series is any word: a week's number gives fresh seeds each week.
"""

import hashlib
import tomllib
from pathlib import Path

from bookkit.pages.catalogue import UserError

MOST = 10_000  # each is a run of every page


def release(root: Path) -> str:
    """ "attnlib 0.2.0": name and version of the book in `root`. Raises `UserError` where its pyproject.toml says neither."""
    path = root / "pyproject.toml"
    try:
        project = tomllib.loads(path.read_text(encoding="utf-8"))["project"]
        return f"{project['name']} {project['version']}"
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(
            f"{path.name}: replication needs name and version in its table [project]: seeds are made of them"
        ) from None


def rule(release: str, series: str = "") -> str:
    """The text that is hashed, with k for the number of the seed."""
    return f"{release}{', ' if series else ''}{series}: seed k"


def seeds(release: str, count: int, *, first: int = 0, series: str = "") -> list[int]:
    """Seeds `first`, ..., `first` + `count` - 1 of a release: whole numbers from 0 to 2^31 - 1.

    Raises `UserError` for a count that is not in 1 ... 10 000, or a negative `first`.
    """
    if not 1 <= count <= MOST or first < 0:
        raise UserError(f"seeds must be 1 to {MOST}, first 0 or more; got {count} from {first}")
    before = rule(release, series).removesuffix("k")
    digests = (hashlib.sha256(f"{before}{k}".encode()).digest() for k in range(first, first + count))
    return [int.from_bytes(digest[:4], "big") >> 1 for digest in digests]
