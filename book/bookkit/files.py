"""Result files that are whole or not there."""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


@contextlib.contextmanager
def written_aside(path: Path) -> Iterator[Path]:
    """Inside, write to the path that is given; then it takes the place of `path`, or is gone if anything was raised."""
    # Shortened, for a name may be as long as the system allows: 255 bytes, of which a letter takes up to four.
    temporary = path.with_name(f"{path.name[:60]}.{os.getpid()}.part")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def one_line_each(content: Mapping[str, Any]) -> str:
    """JSON in which every entry of an inner table has a line of its own, so that histories and merges are of entries."""

    def said(value: Any, depth: int) -> str:
        if depth == 2 or not isinstance(value, Mapping):
            return json.dumps(value, ensure_ascii=False)
        rows = (f"{' ' * (depth + 1)}{json.dumps(key)}: {said(each, depth + 1)}" for key, each in value.items())
        return "{\n" + ",\n".join(rows) + f"\n{' ' * depth}}}"

    return said(content, 0) + "\n"
