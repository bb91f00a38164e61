"""Entry of the command `new-part`: the furniture of a part, as a true and tiny example to be overwritten."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from bookkit.ledger.records import read_ledger
from bookkit.pages.catalogue import UserError, find_pages, find_root
from bookkit.parser import Parser, program
from bookkit.parts.rooms import texts_of
from bookkit.parts.writing import write_all
from bookkit.repository import current_url
from bookkit.settings import settings

__all__ = ["main", "roman", "words_of"]

LONGEST = 24  # letters of a name: lines of the templates stay within the width of the code
ALPHABET = (
    "UVWPGEKOXYZBJHANDFLMQRSTCI"  # letters of claims; the first that are free are the ones least used in formulas
)
OWN_MEANING = {"A", "H"}  # names of graphics cards, A100 and H100, would read as claims


def main(argv: Sequence[str] | None = None) -> int:
    """Write the furniture; say what comes next. Raises `UserError`, before anything is written, for what cannot be done."""
    parser = Parser(prog=f"{program()} new-part", description="Write the furniture of a new part of the book.")
    parser.add_argument("name", metavar="NAME", help="of its folders: small letters, digits and _, as in one_token")
    parser.add_argument("--title", help="what readers see (default: the name in words)")
    parser.add_argument("--letter", help="of its claims, as in C8 (default: one that is free)")
    parser.add_argument("--no-explorer", action="store_true", help="without a stub of an explorer, which needs Node")
    options = parser.parse_args(argv)
    root = here()
    words = words_of(root, options.name, options.title, options.letter, explorer=not options.no_explorer)
    texts = texts_of(root, words, explorer=not options.no_explorer)
    there = {path for path in texts if path.exists()}
    write_all(texts)
    for path in texts:
        print(f"{'changed' if path in there else 'written'}: {path.relative_to(root)}")
    print(next_steps(words, explorer=not options.no_explorer))
    return 0


def here() -> Path:
    """The book around this folder, and no other: `find_root` falls back on the clone that the program comes from."""
    root = find_root()
    if not Path.cwd().resolve().is_relative_to(root):
        raise UserError(
            f"no book (_toc.yml and notebooks/) at or above {Path.cwd()}: run this inside a clone of the book"
        )
    return root


def words_of(root: Path, name: str, title: str | None, letter: str | None, *, explorer: bool = True) -> dict[str, str]:
    """The words of the templates. Raises `UserError` for a name, title or letter that will not do."""
    parts = settings(root).parts
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name) or keyword.iskeyword(name) or len(name) > LONGEST:
        expected = f"small letters, digits and single _, at most {LONGEST}, and no word of Python"
        raise UserError(f"NAME must be {expected}, as in one_token; got {name!r}")
    for folder in ("attnlib", "book/attnbook", "notebooks", "tests", "book/scripts"):
        if name in parts or (root / folder / name).exists() or (root / folder / f"{name}.py").exists():
            raise UserError(f"NAME must be new; {folder} has {name!r} already")
    if not parts:
        raise UserError("pyproject.toml must name the parts so far in [tool.bookkit.parts]; got none")
    title = name.replace("_", " ").capitalize() if title is None else title.strip()
    if not re.fullmatch(r"[A-Z][A-Za-z0-9 ,'-]*", title) or len(title) > 2 * LONGEST:
        raise UserError(f"--title must begin with a capital and hold letters, digits, spaces, commas; got {title!r}")
    if title in {part.title for part in parts.values()}:
        raise UserError(f"--title must be new; got {title!r} again")
    letter = _letter(letter, name, {record["id"] for record in read_ledger(root)} | ids_in_code(root))
    low = title[0].lower() + title[1:]
    shown, shown_title = (name, f"Explorer: {low}") if explorer else _first_explorer(root)
    return {
        "name": name, "label": name.replace("_", "-"), "title": title, "low": low, "number": roman(len(parts) + 1),
        "letter": letter, "letter_low": letter.lower(), "last": _last_part(root, parts), "explorer": shown,
        "explorer_title": shown_title, "url": current_url(root), "address": settings(root).address,
        "program": settings(root).program,
    }  # fmt: skip


def _letter(given: str | None, name: str, ids: Iterable[str]) -> str:
    used = {re.sub(r"\d.*", "", id) for id in ids} | OWN_MEANING
    if given is None:
        free = [letter for letter in (*name.upper(), *ALPHABET) if letter in ALPHABET and letter not in used]
        if not free:
            raise UserError("no letter is free for its claims")
        return free[0]
    if not re.fullmatch("[A-Z]", given) or given in used:
        raise UserError(
            f"--letter must be a capital that no claim has, so none of {', '.join(sorted(used))}; got {given!r}"
        )
    return given


def ids_in_code(root: Path) -> set[str]:
    """Ids of the claims that the book's packages declare: those of a part whose page has not been run are in no ledger yet."""
    modules = [path for package in settings(root).packages for path in (root / package).rglob("claims*.py")]
    return {id for path in modules for id in re.findall(r'\.claim\(\s*"(\w+)"', path.read_text(encoding="utf-8"))}


def _last_part(root: Path, parts: Iterable[str]) -> str:
    """The part behind which the new one stands."""
    with_pages = {page.source.parent.name for page in find_pages(root)}
    found = [part for part in parts if part in with_pages]
    if not found:
        raise UserError("a part with a page must be there, behind which the new one stands; got none")
    return found[-1]


def _first_explorer(root: Path) -> tuple[str, str]:
    """Name and title of an explorer that is there, for the link of the page."""
    text = (root / "_toc.yml").read_text(encoding="utf-8")
    names = [name for name in re.findall(r"- file: book/explorers/(\w+)", text) if name != "index"]
    if not names:
        raise UserError("--no-explorer needs another explorer to which the page can lead; the book has none")
    page = (root / "book" / "explorers" / f"{names[0]}.md").read_text(encoding="utf-8")
    return names[0], page.partition("\n")[0].removeprefix("# ").strip()


def roman(number: int) -> str:
    """I, II, III, IV, ... Raises ValueError outside 1 ... 39.

    >>> [roman(number) for number in (1, 4, 5, 9, 14)]
    ['I', 'IV', 'V', 'IX', 'XIV']
    """
    if not 1 <= number < 40:
        raise ValueError(f"number must lie in 1 ... 39; got {number}")
    ones = ("", "I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX")
    return "X" * (number // 10) + ones[number % 10]


def next_steps(words: dict[str, str], *, explorer: bool) -> str:
    """What makes the suite green, and where the guide is."""
    page = f"{words['name']}/01_{words['name']}"
    bundle = [f"npm ci && node book/scripts/build.mjs {words['name']}"] if explorer else []
    steps = [
        *bundle,
        "python -m attnbook.answers",
        f"{words['program']} notebooks {page}",
        f"{words['program']} stability {page} --write",
        f'{words["program"]} register --because "claims of Part {words["number"]}"',
        "make check",
    ]
    return "Next, in this order:\n" + "\n".join(f"    {step}" for step in steps) + "\nThen fill it in: book/adding.md"
