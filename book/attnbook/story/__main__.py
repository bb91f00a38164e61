"""Write the numbers of the story: `python -m attnbook.story`, into book/assets/story/run.json. Then draw: `node book/scripts/build.mjs`."""

import json
import sys
from pathlib import Path

from attnbook.stored import seal
from attnbook.story.run import data
from bookkit.pages.catalogue import write_atomically
from bookkit.parser import answered

PATH = Path(__file__).parents[2] / "assets" / "story" / "run.json"


def main(path: Path = PATH) -> int:
    """Write the file; returns the exit status."""
    text = json.dumps(data(), allow_nan=False, separators=(",", ":"), sort_keys=True) + "\n"
    write_atomically(path, text)
    seal(path)
    print(f"{path.name}  {len(text)} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(answered("story", main))
