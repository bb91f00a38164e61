"""Write the numbers of the story: `python -m attnbook.story`, into book/assets/story. Then draw: `node book/scripts/build.mjs`."""

import json
import sys
from pathlib import Path

from attnbook.stored import seal
from attnbook.story.run import LAW, SEED, data, front
from bookkit.pages.catalogue import write_atomically
from bookkit.parser import answered

FOLDER = Path(__file__).parents[2] / "assets" / "story"


def main(folder: Path = FOLDER) -> int:
    """Write run.json, of the story, and front.json, of the front page; returns the exit status."""
    for name, numbers in {"run.json": data(), "front.json": front(LAW.draw(seed=SEED))}.items():
        text = json.dumps(numbers, allow_nan=False, separators=(",", ":"), sort_keys=True) + "\n"
        write_atomically(folder / name, text)
        seal(folder / name)
        print(f"{name}  {len(text)} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(answered("story", main))
