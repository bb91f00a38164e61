"""The boxes of the chapters: definitions, lemmas, theorems, as their Markdown has them.

    :::{prf:theorem} The trap · derived
    :label: thm-long-trap

    % not checked: a definition of this book

    Statement ...
    :::

    :::{prf:proof}
    By {prf:ref}`thm-long-map` ...
    :::

What follows the dot is the box's tag: where the statement comes from. A proof belongs to the box before it; the boxes that it cites
are those that the box *uses*: by {prf:ref}, by {eq} for an equation that stands in a box, or by name where a title begins with one, as in
"C5, attention does not move". The comment says why no claim checks the box.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

_FENCE = re.compile(
    r"^(?P<fence>:{3,})\{prf:(?P<kind>\w+)\} *(?P<title>[^\n]*)\n(?P<body>.*?)^(?P=fence) *$", re.M | re.S
)
_LABEL = re.compile(r"^:label: *(\S+)", re.M)
_REASON = re.compile(r"^% not checked: *(.+?) *$", re.M)
_CITED = re.compile(r"\{(?:prf:ref|eq)\}`(?:[^`<]*<)?([^`>]+)>?`|\b([A-Z]\d+[a-z]?)\b(?!\))")
_EQUATION = re.compile(r"^\$\$ \(([\w-]+)\)", re.M)
_NAME = re.compile(r"([A-Z]\d+[a-z]?),")


@dataclass(frozen=True)
class Box:
    """One box. `uses`: labels that its proof cites; `unchecked`: why no claim checks it, or empty."""

    label: str
    kind: str
    title: str
    tag: str
    document: str  # as in book/single_head_theory
    proved: bool
    uses: tuple[str, ...]
    unchecked: str

    @property
    def source(self) -> str:
        """The tag's source, without what follows a comma or stands in brackets: derived, paper, authors' code."""
        return re.split(r"[,;(]", self.tag)[0].strip()

    @property
    def ours(self) -> bool:
        """The tag says that this book proves it, on paper or with a certified computation."""
        return self.source in ("derived", "certified")


def read_boxes(root: Path) -> list[Box]:
    """The labelled boxes of every chapter of book/, chapter by chapter, in their order."""
    boxes: dict[str, Box] = {}
    homes: dict[
        str, str
    ] = {}  # what a box may be cited by, its label, its short name or an equation in it -> its label
    cited: dict[str, list[tuple[str, str]]] = {}  # label of a box -> labels and short names in its proofs
    for path in sorted((root / "book").glob("*.md")):
        document, own = path.relative_to(root).with_suffix("").as_posix(), ""
        for match in _FENCE.finditer(path.read_text(encoding="utf-8")):
            body = match["body"]
            if match["kind"] == "proof":
                if own:
                    cited.setdefault(own, []).extend(_CITED.findall(body))
            elif label := _LABEL.search(body):
                own = label[1]
                title, _, mark = (part.strip() for part in match["title"].rpartition("·"))
                title, mark = (title, mark) if title else (mark, "")
                reason = _REASON.search(body)
                boxes[own] = Box(own, match["kind"], title, mark, document, False, (), reason[1] if reason else "")
                short = _NAME.match(title)
                homes |= dict.fromkeys([own, *_EQUATION.findall(body), *((short[1],) if short else ())], own)
    return [
        replace(box, proved=own in cited, uses=_resolved(own, cited.get(own, ()), homes)) for own, box in boxes.items()
    ]


def _resolved(own: str, cites: Iterable[tuple[str, str]], homes: Mapping[str, str]) -> tuple[str, ...]:
    # An equation outside all boxes, and a short name that no box has, are no boxes; a label that nobody has is a mistake, and stays.
    cited = [
        homes.get(label, "" if label.startswith("eq-") else label) if label else homes.get(name, "")
        for label, name in cites
    ]
    return tuple(each for each in dict.fromkeys(cited) if each and each != own)
