"""Texts with <<words>> in them, and the words that belong to a part."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from bookkit.settings import Part

__all__ = ["filled", "of_part"]

_WORD = re.compile(r"<<(\w+)>>")


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
