"""A passage once for each part of the book, in reading order, so that no chapter keeps a list of parts.

    ::::{each-part}
    ## Part <<number>>: <<title>>

    ```{book-map} <<folder>>
    ```
    ::::

The words are those of `bookkit.parts.words.of_part`. The passage is written out before the chapter is read, so it may hold headings.
"""

from __future__ import annotations

import re
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.util import logging

from bookkit.parts.words import filled, of_part
from bookkit.settings import settings

logger = logging.getLogger(__name__)

_PASSAGE = re.compile(r"^(?P<fence>:{4,})\{each-part\} *\n(?P<text>.*?)^(?P=fence) *$", re.M | re.S)


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


def _read(app: Sphinx, docname: str, source: list[str]) -> None:
    try:
        source[0] = written_out(source[0], Path(app.srcdir))
    except LookupError as error:
        logger.warning("each-part: %s", error.args[0], location=docname)


def setup(app: Sphinx) -> dict:
    """Register with Sphinx."""
    app.connect("source-read", _read)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
