"""The map of a book: its boxes and its claims, which claim checks which box, and who rests on whom.

    x uses y    a claim names y in `uses`, or the proof of box x cites box y
    x checks y  claim x names box y in `box`

If a claim falls, so do the boxes that it checks, whatever uses it, and so on.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from bookkit.ledger.records import in_reading_order
from bookkit.ledger.replicated import ledger
from bookkit.map.boxes import Box, read_boxes
from bookkit.map.links import Links, links_of
from bookkit.pages.catalogue import UserError, find_root

# Of these sources a claim checks a statement of the theory; the others were seen in computation and may stand alone.
STATED = ("paper", "paper, second-hand", "certified", "derived")
# Of these this book has a proof, the second with a computation in it whose rounding is controlled.
PROVED = ("derived", "certified")


@dataclass(frozen=True)
class Map:
    """Boxes by label and claims (their records) by id, both in reading order, and the links of each claim."""

    boxes: dict[str, Box]
    claims: dict[str, dict[str, Any]]
    links: dict[str, Links]

    def checked_by(self, label: str) -> list[dict[str, Any]]:
        """Records of the claims that check a box."""
        return [self.claims[claim] for claim, links in self.links.items() if label in links.box]

    def boxes_of(self, claim: str) -> list[Box]:
        """The boxes that a claim checks; those that exist."""
        return [self.boxes[label] for label in self.links[claim].box if label in self.boxes]

    def uses(self, name: str) -> tuple[str, ...]:
        """What a box or a claim uses, directly; names that exist."""
        found = self.boxes[name].uses if name in self.boxes else self.links[name].uses
        return tuple(each for each in found if each in self.boxes or each in self.claims)

    def falls_with(self, name: str) -> list[str]:
        """Labels and ids of all that falls if `name` does, the nearest first. Raises `UserError` for an unknown name."""
        if name not in self.boxes and name not in self.claims:
            raise UserError(f"the book has no claim and no box called {name!r}")
        users: dict[str, list[str]] = {}
        for each in (*self.boxes, *self.claims):
            for used in self.uses(each):
                users.setdefault(used, []).append(each)
        found: dict[str, None] = {name: None}
        todo = [name]
        while todo:
            each = todo.pop(0)
            boxes = [box.label for box in self.boxes_of(each)] if each in self.links else []
            new = [other for other in (*boxes, *users.get(each, [])) if other not in found]
            found |= dict.fromkeys(new)
            todo += new
        return list(found)[1:]

    def problems(self) -> list[str]:
        """What a map must not hold, in words."""
        return [*self._unknown(), *self._circle(), *self._alone(), *self._unproved()]

    def _unknown(self) -> Iterable[str]:
        for claim, links in self.links.items():
            for label in links.box:
                if label not in self.boxes:
                    yield f"claim {claim} checks the box {label!r}, which no chapter has"
            for used in links.uses:
                if used not in self.boxes and used not in self.claims:
                    yield f"claim {claim} uses {used!r}, which is neither a claim nor a box"
        for box in self.boxes.values():
            for used in box.uses:
                if used not in self.boxes:
                    yield f"the proof of {box.label} ({box.document}) cites {used!r}, which no chapter has"

    def _circle(self) -> Iterable[str]:
        try:
            TopologicalSorter({each: self.uses(each) for each in (*self.boxes, *self.claims)}).prepare()
        except CycleError as error:
            yield "these use each other in a circle: " + ", ".join(error.args[1])

    def _alone(self) -> Iterable[str]:
        if not self.boxes:  # a book without theory
            return
        checked = {label for links in self.links.values() for label in links.box}
        for box in self.boxes.values():
            if box.label not in checked and box.kind != "definition" and not box.unchecked:
                yield f"no claim checks the box {box.label} ({box.document}): box= of a claim may name it, or '% not checked: why' in it"
            if box.label in checked and box.unchecked:
                yield f"the box {box.label} ({box.document}) says that no claim checks it, and one does"
        for claim, record in self.claims.items():
            if record["source"] in STATED and not self.links[claim].box:
                yield f"claim {claim} ({record['page']}) is {record['source']} and names no box"

    def _unproved(self) -> Iterable[str]:
        # A remark may go without a proof as long as no derived or certified claim leans on it.
        proved = [claim for claim, record in self.claims.items() if record["source"] in PROVED]
        leaned_on = {label for claim in proved for label in self.links[claim].box}
        for box in self.boxes.values():
            free = box.kind == "definition" or (box.kind == "remark" and box.label not in leaned_on)
            if box.ours and not box.proved and not free:
                yield f"the box {box.label} ({box.document}) is tagged {box.tag!r} and no proof follows it"
        for claim, record in ((claim, self.claims[claim]) for claim in proved):
            known = self.boxes_of(claim)
            if known and not any(box.ours for box in known):
                yield f"claim {claim} ({record['page']}) is {record['source']}, and the boxes that it checks are not"


def read_map(source: Path) -> Map:
    """The map of a book: its chapters and stored notebooks under `source` (a build's copy, say), its judges where the book is."""
    records = {record["id"]: record for record in in_reading_order(ledger(source))}
    boxes = {box.label: box for box in read_boxes(source)}
    root = find_root()
    return Map(boxes, records, {claim: links_of(record, root) for claim, record in records.items()})


@lru_cache(maxsize=1)  # one process of Sphinx renders one book
def rendered_map(source: Path) -> Map:
    """`read_map` of the book that is being rendered."""
    return read_map(source)
