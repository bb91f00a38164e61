"""The table of contents: groups of `_toc.yml` with their files, and the path that leads through the first of them.

`path` in `[tool.bookkit]` is the caption of the group that is read from its first page to its last. How long that takes is counted from
the sources: prose and code that no fold hides.
"""

import html
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import nbformat
import yaml
from nbformat import NotebookNode

WORDS_A_MINUTE, LINES_A_MINUTE = 200, 10  # of prose; of open code


def groups(root: Path) -> list[tuple[str, list[str]]]:
    """Caption and files of each group, sections after the page that holds them. A plain list of chapters is one group without a caption."""
    contents = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8")) or {}
    parts = contents.get("parts") or [contents]
    return [(part.get("caption", ""), list(_files(part.get("chapters", [])))) for part in parts]


def _files(entries: list[Mapping]) -> Iterator[str]:
    for entry in entries:
        if "file" in entry:
            yield re.sub(r"\.(md|ipynb)$", "", entry["file"])
        yield from _files(entry.get("sections", []))


@dataclass(frozen=True)
class Way:
    """The path: its pages in order, and the minutes that reading each takes."""

    caption: str
    minutes: Mapping[str, float]

    @property
    def pages(self) -> list[str]:
        return list(self.minutes)

    @property
    def hours(self) -> str:
        """``half an hour``, ``three hours``, ``three and a half hours``: to the nearest half."""
        halves = round(sum(self.minutes.values()) / 30)
        if halves < 2:
            return "half an hour"
        number = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")[halves // 2 - 1]
        return f"{number}{' and a half' if halves % 2 else ''} hour{'s' if halves > 2 else ''}"

    def __str__(self) -> str:
        total = sum(self.minutes.values())
        return f"{self.caption}: {len(self.minutes)} pages, {total:.0f} minutes of reading, about {self.hours}"


def way(root: Path, caption: str) -> Way:
    """The pages of the group `caption`; none where the book has no such group."""
    pages = dict(groups(root)).get(caption, []) if caption else []
    return Way(caption, {name: minutes(root / name) for name in pages})


def minutes(page: Path) -> float:
    """Minutes of reading a page or chapter, given without suffix."""
    notebook = page.with_suffix(".ipynb")
    if notebook.is_file():
        read = nbformat.read(notebook, as_version=4)
        return visible_words(read) / WORDS_A_MINUTE + open_lines(read) / LINES_A_MINUTE
    text = page.with_suffix(".md").read_text(encoding="utf-8")
    return _count(_plain(re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.S))) / WORDS_A_MINUTE


def visible_words(notebook: NotebookNode) -> int:
    """Words of prose, captions and printed tables outside folded blocks."""
    texts = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            texts.append(cell.source)
            continue
        texts.append(str(cell.metadata.get("mystnb", {}).get("figure", {}).get("caption", "")))
        if "hide-cell" not in cell.metadata.get("tags", []):
            texts += [o.get("text", "") or o.get("data", {}).get("text/html", "") for o in cell.outputs]
    return sum(_count(_plain(text)) for text in texts)


def open_lines(notebook: NotebookNode) -> int:
    """Lines of code that no fold hides."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    shown = [cell for cell in cells if not {"hide-input", "hide-cell"} & set(cell.metadata.get("tags", []))]
    return sum(bool(line.strip()) for cell in shown for line in cell.source.splitlines())


def _count(text: str) -> int:
    return len(re.findall(r"\S*\w\S*", text))


def _plain(text: str) -> str:
    text = re.sub(r"(?s)<details>.*?</details>|```.*?```", " ", text)
    text = re.sub(r"(?s)\$\$.*?\$\$|\$[^$]*\$", " formula ", text)
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)", " ", text)  # a picture's words are not seen beside it
    return html.unescape(re.sub(r"(?s)\]\([^)]*\)|<[^>]+>", " ", text))
