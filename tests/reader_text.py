"""What a reader sees, line by line: chapters, pages with captions and labels, and the words in code that end up on a page.

Formulas, code, targets of links and roles, labels and options are blanked, so that a search finds words of the text only. Lines keep
their numbers, as far as a file has them: a caption, and a string of code, stand at the line where their cell or string begins.
"""

import ast
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import jupytext
import yaml

ROOT = Path(__file__).parents[1]
NOT_PROSE = {"math", "code-cell", "code-block", "code", "literalinclude", "mermaid", "bibliography"}
SHOWN_OPTIONS = ("caption", "alt")
DRAWN = {
    "text",
    "annotate",
    "legend",
    "suptitle",
    "title",
    "xlabel",
    "ylabel",
    "set_title",
    "set_xlabel",
    "set_ylabel",
    "set",
}
LABELS = {"label", "title", "xlabel", "ylabel", "labels"}
Line = tuple[int, str]

FENCE = re.compile(r"^\s*(?P<mark>`{3,}|~{3,}|:{3,})(?:\{(?P<name>[\w:-]+)\})?(?P<rest>[^`]*)$")
OPTION = re.compile(r"^\s*:(?P<key>[\w-]+):(?P<value>.*)$")
INLINE = (
    re.compile(r"\$\$.*?\$\$(?: \([\w-]+\))?", re.S),
    re.compile(r"(?<![\\$])\$(?!\s)[^$]+?(?<!\s)\$"),
    re.compile(r"(?:\{[\w:-]+\})?(?P<ticks>`+)[^`].*?(?<!`)(?P=ticks)(?!`)", re.S),
    re.compile(r"(?<=\])\([^()\s]*\)"),
    re.compile(r"<[^<>]+>"),
    re.compile(r"^\([\w-]+\)=$", re.M),
    re.compile(r"https?://\S+"),
)


def blanked(text: str, pattern: re.Pattern) -> str:
    """`text` with spaces in the place of what `pattern` finds; line ends stay."""
    return pattern.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)


def without_code(markdown: str) -> str:
    """Markdown without blocks of code; of a directive its title and its text stay, and captions among its options."""
    kept, code, opened, at_options = [], "", [], False
    for line in markdown.split("\n"):
        fence = FENCE.match(line)
        bare = bool(fence) and not fence["name"] and not fence["rest"].strip()
        shown = ""
        if code:
            code = "" if bare and fence["mark"] == code else code
        elif fence and bare and fence["mark"] in opened:
            del opened[opened.index(fence["mark"]) :]
        elif fence and (not fence["name"] or fence["name"] in NOT_PROSE):
            code = fence["mark"]
        elif fence:
            opened.append(fence["mark"])
            shown = fence["rest"] if fence["mark"].startswith(":") else ""
            at_options = True
            kept.append(shown)
            continue
        elif at_options and (option := OPTION.match(line)):
            kept.append(option["value"] if option["key"] in SHOWN_OPTIONS else "")
            continue
        else:
            shown = line
        at_options = False
        kept.append(shown)
    return "\n".join(kept)


DRAWING = re.compile(r"<(?:path|rect|circle|line)\b[^>]*>")  # what a drawing says in coordinates; its words stay


def prose(markdown: str, *, roles: bool = False) -> str:
    """The words of a Markdown text, with as many lines; with `roles`, roles and links stay."""
    text = blanked(without_code(markdown), DRAWING)
    for pattern in INLINE[:2] if roles else INLINE:
        text = blanked(text, pattern)
    return INLINE[2].sub(lambda span: span[0] if span[0].startswith("{") else re.sub(r"[^\n]", " ", span[0]), text)


def strings(code: str, *, docstrings: bool = False, judged: bool = False) -> Iterator[Line]:
    """String constants that can be words: those with a space, and labels of figures.

    judged: of a module of claims, the docstrings of judges, which say the claims, and nothing else inside functions.
    """
    try:
        tree = ast.parse(re.sub(r"(?m)^(\s*)[%!].*$", r"\1pass", code))
    except SyntaxError as error:  # a page that no kernel could run
        raise ValueError(f"not Python: {code[:60]!r}") from error
    told = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    drawn = {
        id(leaf)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        for value in [
            *(word.value for word in node.keywords if word.arg in LABELS),
            *(node.args if isinstance(node.func, ast.Attribute) and node.func.attr in DRAWN else ()),
        ]
        for leaf in ast.walk(value)
    }
    if judged:
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        told |= {id(leaf) for node in functions for line in node.body for leaf in ast.walk(line)}
        told -= {id(leaf) for node in functions if node.decorator_list for leaf in ast.walk(node.body[0])}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) in told and not docstrings:
                continue
            if " " in node.value.strip() or id(node) in drawn:
                yield node.lineno, prose(node.value)


def captions(metadata: object) -> Iterator[str]:
    """Captions and alternative texts of a cell."""
    for key, value in metadata.items() if isinstance(metadata, dict) else ():
        if isinstance(value, dict):
            yield from captions(value)
        elif isinstance(value, str) and key in ("caption", "alt"):
            yield value


@cache
def page_cells(path: Path) -> tuple[tuple[str, str, tuple[str, ...]], ...]:
    """Kind, source and captions of the cells of a page's source."""
    cells = jupytext.read(path, fmt="md:myst").cells
    return tuple((cell.cell_type, cell.source, tuple(captions(cell.metadata.get("mystnb", {})))) for cell in cells)


def page_lines(path: Path, *, roles: bool = False) -> Iterator[Line]:
    """Text and captions of a page; then the strings of its code. The number is that of the cell."""
    for number, (kind, source, told) in enumerate(page_cells(path), 1):
        if kind == "markdown":
            yield from ((number, line) for line in prose(source, roles=roles).split("\n"))
        for caption in told:
            yield number, prose(caption, roles=roles)
        if kind == "code" and not roles:
            yield from ((number, text) for _, text in strings(source))


def javascript(code: str) -> Iterator[Line]:
    """String literals with a space in a script; comments, and what a template computes, are left out."""
    code = blanked(code, re.compile(r"/\*.*?\*/", re.S))
    code = blanked(code, re.compile(r"(?m)(?<![:\"'`\w])//.*$"))
    for found in re.finditer(r"\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'|`(?:[^`\\]|\\.)*`", code):
        if " " in found[0]:
            text = blanked(found[0][1:-1], re.compile(r"\$\{[^{}]*\}"))
            yield code[: found.start()].count("\n") + 1, blanked(text, INLINE[4])


def chapters() -> list[Path]:
    """All Markdown that a reader meets outside the pages."""
    book = ROOT / "book"
    found = [path for folder in (book, book / "explorers", book / "reference") for path in sorted(folder.glob("*.md"))]
    return [*(path for path in found if path.stem != "bibliography"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]


def pages() -> list[Path]:
    return sorted((ROOT / "notebooks").glob("*/*.md"))


def told_to_readers(path: Path) -> Iterator[Line]:
    """All words of a file that a reader can see."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        yield from (
            page_lines(path) if path.is_relative_to(ROOT / "notebooks") else enumerate(prose(text).split("\n"), 1)
        )
    elif path.suffix == ".json":  # what claims said before
        said = json.loads(text)["claims"].items()
        yield from ((number, prose(" | ".join(each.values()))) for number, (_, each) in enumerate(said, 1))
    elif path.suffix == ".py":
        of_claims = path.stem.startswith("claims") or path.stem.endswith("claims")
        yield from strings(text, docstrings=path.is_relative_to(ROOT / "attnlib"), judged=of_claims)
    else:
        yield from javascript(text)


def reading_order() -> list[Path]:
    """Chapters and pages in the order of the table of contents."""
    contents = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    names = [contents["root"], *(chapter["file"] for part in contents["parts"] for chapter in part["chapters"])]
    return [ROOT / f"{name}.md" for name in names]
