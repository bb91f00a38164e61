"""The proof that a student edition holds no solutions: what was left out is looked for in all that was made."""

import html
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

TELLING = 6  # words in a row; fewer occur by chance
_SEARCHED = (".html", ".js", ".json", ".ipynb", ".md", ".txt")  # what of a built edition is text
_SUMMARY = re.compile(r"<summary\b[^>]*>.*?</summary\s*>", re.I | re.S)


@dataclass
class Removed:
    """What the student edition leaves out: blocks of Markdown by file, named relative to the book's folder."""

    blocks: dict[str, list[str]] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """Solutions and other parts left out: numbered points are counted one by one."""
        every = (block for blocks in self.blocks.values() for block in blocks)
        return sum(max(1, len(re.findall(r"^\d+\. ", block, re.M))) for block in every)


def words(text: str) -> str:
    """The words of a text, lower case, one space between them: the same for Markdown, HTML and JSON of one sentence."""
    plain = html.unescape(re.sub(r"<[^>]*>", " ", text))
    return " ".join(re.findall(r"[a-z]{2,}", plain.lower()))


def find_leaks(folder: Path, removed: Removed, allowed: Path) -> list[str]:
    """Sentences of what was left out that stand in a text file below `folder`, as "file: sentence".

    A sentence that also stands in the sources below `allowed`, in another file than it was removed from, is no leak: a
    theory chapter may say the same.
    """
    sources = {
        path.relative_to(allowed).as_posix(): readable(path)
        for path in sorted(allowed.rglob("*"))
        if path.suffix in (".md", ".ipynb")
    }
    said = {(name, run) for name, blocks in removed.blocks.items() for block in blocks for run in _prose(block)}
    telling = {run for name, run in said if not any(run in text for other, text in sources.items() if other != name)}
    built = [path for path in sorted(folder.rglob("*")) if path.suffix in _SEARCHED and path.is_file()]
    texts = ((path.relative_to(folder).as_posix(), readable(path)) for path in built)
    return [f"{name}: {run}" for name, text in texts for run in sorted(telling) if run in text]


def readable(path: Path) -> str:
    """The words of a file."""
    text = path.read_text(encoding="utf-8", errors="replace")
    if path.suffix in (".ipynb", ".json"):
        return words("\n".join(strings(json.loads(text))))
    if path.suffix == ".js":
        text = text.replace("<", " <> ")  # "<" is a comparison there, and no tag that swallows what follows
    return words(text.replace("\\n", " "))


def strings(value: object) -> Iterable[str]:
    """All strings in a JSON value; a list of strings, as the lines of a cell, is one."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list) and all(isinstance(part, str) for part in value):
        yield "".join(value)
    elif isinstance(value, list | dict):
        for part in value.values() if isinstance(value, dict) else value:
            yield from strings(part)


def _prose(block: str) -> list[str]:
    """Runs of words of a block between formulas, code, links and markup, the summary apart."""
    text = _SUMMARY.sub(" ", block)
    runs = re.split(r"\$[^$]*\$|`[^`]*`|\{[\w:-]+\}|\[|\]\([^)]*\)|<[^>]*>|[*_|#\d]+", text)
    return [run for part in runs if len((run := words(part)).split()) >= TELLING]
