"""Do the addresses of others that the prose names still answer? Once a week: `python -m tests.links`.

A server in trouble, in a hurry or for people only (401, 403, 429, 5xx) breaks no link. Ours are looked at when the book is rendered.
"""

import re
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from tests.house import REPOSITORY, ROOT

OURS = REPOSITORY.rpartition("/")[2]
ADDRESS = re.compile(r"""https?://[^][ \n)>"'`}<|,\\]+[^][ \n)>"'`}<|,\\.:;]""")


def addresses(root: Path) -> dict[str, str]:
    """Every address of others in the prose below `root`, and the first file that names it."""
    files = [
        *root.glob("*.md"),
        *(path for name in ("book", "docs", "notebooks") for path in sorted((root / name).rglob("*.[mb]*"))),
    ]
    found: dict[str, str] = {}
    for path in (path for path in files if path.suffix in (".md", ".bib")):
        for address in ADDRESS.findall(path.read_text(encoding="utf-8")):
            if OURS not in address:
                found.setdefault(address.partition("#")[0], path.relative_to(root).as_posix())
    return found


def fault(address: str, tries: int = 3, pause: float = 20.0) -> str:
    """Why an address leads nowhere, or nothing."""
    for left in reversed(range(tries)):
        try:
            asked = urllib.request.Request(address, headers={"User-Agent": f"Mozilla/5.0 (link check of {REPOSITORY})"})
            with urllib.request.urlopen(asked, timeout=30):
                return ""
        except urllib.error.HTTPError as error:
            error.close()
            return "" if error.code in (401, 403, 429) or error.code >= 500 else f"{error.code} {error.reason}"
        except OSError as error:  # no such host, no answer in time: perhaps later
            why = str(getattr(error, "reason", error))
            time.sleep(pause if left else 0)
    return why


def main() -> int:
    """Ask one after the other; 1 where one leads nowhere."""
    found = addresses(ROOT)
    broken = []
    for address, file in found.items():
        if why := fault(address):
            broken.append(f"{file}: {address}: {why}")
        time.sleep(1)
    print(*broken, f"{len(found)} addresses, {len(broken)} lead nowhere", sep="\n")
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
