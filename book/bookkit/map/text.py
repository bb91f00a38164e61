"""What falls with a claim or a box, on a terminal: ``python -m bookkit claims --uses C3``."""

from pathlib import Path

from bookkit.ledger.records import page_name, read_ledger, whole
from bookkit.ledger.words import verdict_words
from bookkit.map.graph import Map, read_map


def falls(name: str, root: Path) -> str:
    """One line for `name`, one for each box and claim that rests on it. Raises `UserError` for an unknown name."""
    whole(read_ledger(root), root / "notebooks")
    known = read_map(root)
    names = {each.lower(): each for each in (*known.boxes, *known.claims)}
    name = names.get(name.lower(), name)
    found = known.falls_with(name)
    head = f"{_line(known, name)}\n"
    if not found:
        return f"{head}nothing rests on it"
    boxes = sum(each in known.boxes for each in found)
    total = f"{_counted(boxes, 'box', 'boxes')} and {_counted(len(found) - boxes, 'claim', 'claims')}"
    verb = "rests" if len(found) == 1 else "rest"
    return "\n".join([head, *(f"    {_line(known, each)}" for each in found), "", f"{total} {verb} on it"])


def _counted(number: int, one: str, several: str) -> str:
    return f"{number} {one if number == 1 else several}"


def _line(known: Map, name: str) -> str:
    if name in known.boxes:
        box = known.boxes[name]
        return f"{name}  {box.kind} in {box.document}: {box.title}"
    record = known.claims[name]
    return f"{name}  {verdict_words(record)}, {page_name(record)}: {record['title']}"
