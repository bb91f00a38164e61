"""A passage once for each part of the book, in reading order, so that no chapter keeps a list of parts.

    ::::{each-part}
    ## Part <<number>>: <<title>>

    ```{book-map} <<folder>>
    ```
    ::::

The words are those of `of_part`. The passage is written out before the chapter is read, so it may hold headings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.util import logging

from bookkit.settings import Part, settings

logger = logging.getLogger(__name__)

_PASSAGE = re.compile(r"^(?P<fence>:{4,})\{each-part\} *\n(?P<text>.*?)^(?P=fence) *$", re.M | re.S)
_WORD = re.compile(r"<<(\w+)>>")


def written_out(text: str, book: Path, root: Path | None = None) -> str:
    """`text` with each passage repeated for each part.

    Args:
        book: folder with book/references.bib.
        root: as in `settings`, which name the parts.

    Raises LookupError for an unknown word.
    """

    def repeated(found: re.Match[str]) -> str:
        parts = settings(root).parts.items()
        words = (of_part(folder, part, book / "book" / "references.bib") for folder, part in parts)
        return "\n".join(filled(found["text"], each) for each in words).rstrip()

    return _PASSAGE.sub(repeated, text)


def filled(text: str, words: Mapping[str, str]) -> str:
    """`text` with each <<word>> replaced. Raises LookupError for one that is not among `words`."""
    if unknown := sorted(set(_WORD.findall(text)) - set(words)):
        raise LookupError(f"no word <<{unknown[0]}>>; there are {', '.join(sorted(words))}")
    return _WORD.sub(lambda found: words[found[1]], text)


def of_part(folder: str, part: Part, bibliography: Path) -> dict[str, str]:
    """folder, number, title (as after a colon), and a sentence on the paper, cited as the bibliography calls it."""
    title = part.title[0].lower() + part.title[1:]
    return {"folder": folder, "number": part.number, "title": title, "paper": _paper(part, bibliography)}


def _paper(part: Part, bibliography: Path) -> str:
    if not part.paper:
        return "This part checks no paper."
    entries = re.split(r"\n(?=@)", bibliography.read_text(encoding="utf-8")) if bibliography.is_file() else []
    others = "".join(f" Statements of {_cited(number, entries)} are checked beside it." for number in part.also)
    return f"The paper is {_cited(part.paper, entries)}.{others}"


def _cited(number: str, entries: list[str]) -> str:
    address = f"https://arxiv.org/abs/{number}"
    keys = [found[1] for entry in entries if address in entry and (found := re.match(r"\s*@\w+\{(\w+),", entry))]
    cited = f"{{cite:t}}`{keys[0]}`, " if keys else ""
    return f"{cited}[arXiv {number}]({address})"


def _read(app: Sphinx, docname: str, source: list[str]) -> None:
    try:
        source[0] = written_out(source[0], Path(app.srcdir))
    except LookupError as error:
        logger.warning("each-part: %s", error.args[0], location=docname)


def setup(app: Sphinx) -> dict:
    """Register with Sphinx."""
    app.connect("source-read", _read)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
