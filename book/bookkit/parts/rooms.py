"""Every file that a part has, and every list that must know it: the one declaration of both.

`FILES` are the templates and where they go, `LISTS` the files that are there and what is added to each. What is in neither is derived
from `[tool.bookkit.parts]` and `_toc.yml`: the ledger's sections, the map's, hover cards, the tests of pages and of faces, reruns, sweeps.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path

from bookkit.pages.catalogue import UserError
from bookkit.parts.words import filled

__all__ = ["EXPLORER", "FILES", "LISTS", "texts_of"]

TEMPLATES = Path(__file__).parent / "templates"

# place -> template; both hold <<words>>. Without a template the file is empty.
FILES = {
    "attnlib/<<name>>/__init__.py": "lib_init",
    "attnlib/<<name>>/law.py": "lib_law",
    "attnlib/<<name>>/model.py": "lib_model",
    "book/attnbook/<<name>>/__init__.py": "own_init",
    "book/attnbook/<<name>>/study.py": "own_study",
    "book/attnbook/<<name>>/claims.py": "own_claims",
    "book/attnbook/answers/<<name>>.py": "answers",
    "book/<<name>>_theory.md": "theory",
    "book/reference/<<name>>.md": "reference",
    "notebooks/<<name>>/01_<<name>>.md": "page",
    "notebooks/params/01_<<name>>.largest_gap.grid.yml": "grid",
    "tests/<<name>>/__init__.py": "",
    "tests/<<name>>/test_<<name>>.py": "test",
}
EXPLORER = {
    "book/explorers/<<name>>.md": "explorer_page",
    "book/scripts/<<name>>/model.js": "explorer_model",
    "book/scripts/<<name>>/view.js": "explorer_view",
    "tests/explorers/test_<<name>>.py": "explorer_test",
    "tests/browser/test_explore_<<name>>.py": "explorer_browser",
}

Words = Mapping[str, str]


def texts_of(root: Path, words: Words, *, explorer: bool) -> dict[Path, str]:
    """All texts that the part with these `words` needs: new files, and lists that are there with one more entry.

    Raises `UserError` where a file is there already, or a list is not as it should be.
    """
    places = FILES | (EXPLORER if explorer else {})
    texts = {root / filled(place, words): _template(name, words) if name else "" for place, name in places.items()}
    for path in texts:
        if path.exists():
            raise UserError(f"{path.relative_to(root)} is there already: choose another name, or move it away")
    for name, add in (LISTS | (EXPLORER_LISTS if explorer else {})).items():
        if not (root / name).is_file():
            raise UserError(f"{name} is missing: run this in a whole clone of the book")
        before = (root / name).read_text(encoding="utf-8")
        texts[root / name] = add(texts.get(root / name, before), words)
    tomllib.loads(texts[root / "pyproject.toml"])  # what is added must be TOML
    return texts


def _template(name: str, words: Words) -> str:
    return filled((TEMPLATES / f"{name}.template").read_text(encoding="utf-8"), words)


# --- what is added to the lists ---------------------------------------------------------------------------------------


def _put(text: str, where: str, name: str, what: str, pattern: str, add: str) -> str:
    """`text` with `add` behind the group `here` of the only match of `pattern`."""
    found = list(re.finditer(pattern, text, re.M | re.S))
    if len(found) != 1:
        raise UserError(f"{where} is not as expected, {what} was not found: add {name} there by hand, or mend it")
    return f"{text[: found[0].end('here')]}{add}{text[found[0].end('here') :]}"


def _settings(text: str, words: Words) -> str:
    name = words["name"]

    def put(text: str, what: str, pattern: str, add: str) -> str:
        return _put(text, "pyproject.toml", name, what, pattern, add)

    entry = f'{name} = {{ number = "{words["number"]}", title = "{words["title"]}" }}\n'
    text = put(text, "[tool.bookkit.parts]", r"^\[tool\.bookkit\.parts\]\n(?P<here>(?:\w+ = \{.*?\}\n)+)", entry)
    text = put(text, "the list faces", r"^faces = \[(?P<here>[^\]]*?)\]", f', "attnlib.{name}"')
    beside = r'^modules = \[(?P<here>"attnlib\.[^\]\n]*)\]'
    text = put(text, "the rule that parts of the library do not import each other", beside, f', "attnlib.{name}"')
    above = r'^layers = \["(?P<here>attnlib\.[^"]*)"'
    text = put(text, "the rule that kernels lie below", above, f" : attnlib.{name}")
    standing = r'^layers = \[\n *"attnbook[^"]*",\n *"(?P<here>attnbook[^"]*)",\n'
    return put(text, "the rule on parts", standing, f" : attnbook.{name}")


def _contents(text: str, words: Words) -> str:
    name, last = words["name"], words["last"]

    def put(text: str, file: str, add: str) -> str:
        line = r"      - file: [^\n]*\n"
        block = rf"^  - caption: [^\n]*\n    chapters:\n(?:{line})*?      - file: {file}\n(?P<here>(?:{line})*)"
        return _put(text, "_toc.yml", name, f"the part with {file}", block, add)

    part = [f'  - caption: "Part {words["number"]}: {words["low"]}"', "    chapters:"]
    part += [f"      - file: {file}" for file in (f"notebooks/{name}/01_{name}", f"book/{name}_theory")]
    text = put(text, f"notebooks/{last}/01_\\w+", "\n".join(part) + "\n")
    return put(text, "book/reference/tasks", f"      - file: book/reference/{name}\n")


def _contents_of_explorers(text: str, words: Words) -> str:
    block = r"^      - file: book/explorers/index\n(?P<here>(?:      - file: book/explorers/\w+\n)*)"
    entry = f"      - file: book/explorers/{words['name']}\n"
    return _put(text, "_toc.yml", words["name"], "the list of explorers", block, entry)


def _notation(text: str, words: Words) -> str:
    before = r"(?P<here>\n)## The same letter, different meaning$"
    return _put(text, "book/notation.md", words["name"], "the last table", before, _template("notation", words))


def _explorers(text: str, words: Words) -> str:
    page, question = (
        f"[{words['explorer_title']}]({words['name']}.md)",
        "How much attention does the better of two tokens get?",
    )
    row = f"| {page} | {question} | {words['number']} |\n"
    rows = r"^\| explorer \| question \| part \|\n\|[-|]+\n(?P<here>(?:\|[^\n]*\n)+)"
    return _put(text, "book/explorers/index.md", words["name"], "the table", rows, row)


LISTS: dict[str, Callable[[str, Words], str]] = {
    "pyproject.toml": _settings,
    "_toc.yml": _contents,
    "book/notation.md": _notation,
}
EXPLORER_LISTS: dict[str, Callable[[str, Words], str]] = {
    "_toc.yml": lambda text, words: _contents_of_explorers(_contents(text, words), words),
    "book/explorers/index.md": _explorers,
}
