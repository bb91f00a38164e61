"""Lighthouse over the kinds of page, in the machine's own Chromium, offline: what it measures, for tests and for `make bench`.

The book is served on this machine as static hosts serve it, texts compressed. Two kinds of measurement:

- `craft`: accessibility and best practices (scores of 0 to 100) and the layout shift of the first view. The same on
  every machine: tests judge it.
- `performance`: how fast a page is on a mid-range phone, four times slower than this machine, on slow 4G, both
  simulated. Depends on the machine and on what else it does: `make bench` judges it.
"""

import json
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tests.browser.browsing import chromium

REPOSITORY = Path(__file__).parents[2]
PAGES = {
    "front page": "book/preface.html",
    "notebook": "notebooks/single_head/02_two_steps.html",
    "ledger": "book/ledger.html",
    "explorer": "book/explorers/two_steps.html",
}
MISSING = "Lighthouse is not installed: `npm ci` in the repository (Node 20 or later), then again"


@cache
def machine_can() -> bool:
    """Whether Lighthouse can run here: Node, and what `npm ci` installs."""
    return bool(shutil.which("node")) and (REPOSITORY / "node_modules" / "lighthouse" / "package.json").is_file()


def measured(urls: Sequence[str], kind: str) -> list[dict]:
    """One run per address, one after the other: scores, metrics, and the failed checks in words.

    `kind`: "craft" or "performance". Raises RuntimeError with Lighthouse's words where it fails.
    """
    command = ["node", str(REPOSITORY / "tests" / "browser" / "lighthouse.mjs"), str(chromium()), kind, *urls]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"Lighthouse failed on {list(urls)}: {done.stderr[-2000:]}")
    return [json.loads(line) for line in done.stdout.splitlines()]
