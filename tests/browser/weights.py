"""What a first visit of a page downloads, counted from the built files: `python -m tests.browser.weights`.

The page itself, its style sheets with what they name, its scripts, data and all its pictures, also those that are
fetched later; MathJax and its fonts apart. Bytes as they lie on the disk, and as a static host sends them: texts
compressed with gzip. Both are bounds from above: a second page finds most of it in the reader's cache.
"""

import gzip
import re
import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

from tests.browser.browsing import HTML, TEXTS, page_names

LIMIT = 1_000_000  # bytes
REQUESTS = 30  # files
BLOCKING = 1  # files that hold up the first picture: one style sheet


class _Addresses(HTMLParser):
    """Everything that an element of a page makes a browser fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.blocking: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if tag == "link" and "stylesheet" in values.get("rel", "").split() and values.get("media") != "print":
            self.blocking.append(values.get("href", ""))
        if (
            tag == "script"
            and values.get("src")
            and not {"defer", "async"} & set(values)
            and values.get("type") != "module"
        ):
            self.blocking.append(values["src"])
        if tag == "link" and {"stylesheet", "icon", "preload"} & set(values.get("rel", "").split()):
            self.found.append(values.get("href", ""))
        if tag in ("script", "img", "source", "iframe", "embed", "video", "audio", "input"):
            self.found.append(values.get("src", ""))
        self.found += [part.split()[0] for part in values.get("srcset", "").split(",") if part.strip()]
        self.found += re.findall(r"url\([\"']?([^\"')]+)", values.get("style", ""))
        self.found += [values.get("poster", ""), values.get("data", "") if tag == "object" else ""]


@cache
def _sizes(path: Path) -> tuple[int, int]:
    data = path.read_bytes()
    return len(data), len(gzip.compress(data, 6, mtime=0)) if path.suffix in TEXTS else len(data)


def fetched(html: Path, name: str) -> set[Path]:
    """Files of the book that a first visit of page `name` fetches. Raises FileNotFoundError for one that is missing."""
    page = html / name
    files, waiting = set(), {page}
    while waiting:
        path = waiting.pop()
        if not path.is_file():
            raise FileNotFoundError(f"{name} asks for {path.relative_to(html)}, which is not there")
        files.add(path)
        if path == page:
            parser = _Addresses()
            parser.feed(path.read_text(encoding="utf-8"))
            addresses = parser.found
        elif path.suffix == ".css":
            addresses = re.findall(r"url\([\"']?([^\"')]+)", path.read_text(encoding="utf-8"))
        else:
            addresses = []
        for address in addresses:
            address = re.split(r"[?#]", address)[0]
            if address and not re.match(r"[a-z][a-z+.-]*:|//", address, re.IGNORECASE):
                waiting.add((path.parent / address).resolve())
        waiting -= files
    return {path for path in files if "mathjax" not in path.relative_to(html).parts}


def blocking(html: Path, name: str) -> list[str]:
    """What page `name` waits for before it is drawn: style sheets, and scripts without `defer`, `async` or `type="module"`."""
    parser = _Addresses()
    parser.feed((html / name).read_text(encoding="utf-8"))
    return parser.blocking


def weight(html: Path, name: str) -> tuple[int, int]:
    """Bytes on the disk and bytes sent, for the first visit of page `name`."""
    sizes = [_sizes(path) for path in fetched(html.resolve(), name)]
    return sum(size for size, _ in sizes), sum(size for _, size in sizes)


def main() -> int:
    """Print both weights of every page, in kB; the exit status tells whether one is too heavy."""
    weights = {name: weight(HTML, name) for name in [*page_names(), "search.html", "genindex.html"]}
    for name, (plain, sent) in sorted(weights.items(), key=lambda item: -item[1][0]):
        print(f"{plain / 1000:8.0f} kB on disk {sent / 1000:6.0f} kB sent  {name}")
    return int(any(plain > LIMIT for plain, _ in weights.values()))


if __name__ == "__main__":
    sys.exit(main())
