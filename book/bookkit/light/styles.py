"""One small style sheet out of many: merged, and without the rules that can apply to no page.

A rule goes when each of its selectors names a class or an id that occurs in no page and in no script. What a pseudo-class
holds in brackets, as in `:not(.a)` or `:is(.a, .b)`, is not looked at: too much is kept rather than too little.
"""

import hashlib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath

import tinycss2
from tinycss2.ast import Node

ICON = re.compile(r'(?:"([\w-]+)"|([A-Za-z_$][\w$]*)):\[(\d+),(\d+),\[([^\]]*)\],"[0-9a-f]+","([^"]*)"\]')
MARKS = "\x02\x03"  # around a custom property, while merging
MARKED = re.compile(f"{MARKS[0]}(--[^:]+):[^{MARKS[1]}]*{MARKS[1]}")
ABSOLUTE = re.compile(r"(?:[a-z][a-z+.-]*:|/|#)", re.IGNORECASE)  # addresses that stay what they are
ICON_STYLES = {"fas": ("fa-solid", "fas"), "far": ("fa-regular", "far"), "fab": ("fa-brands", "fab")}
ICON_BASE = """
/*! Icons: Font Awesome Free, https://fontawesome.com, CC BY 4.0 (https://fontawesome.com/license/free) */
:where({all}) {{ display: inline-block; width: 1em; height: 1em; line-height: 1; vertical-align: -.125em }}
:is({all}) {{ box-sizing: content-box; background: currentcolor; mask: var(--icon) center / contain no-repeat content-box;
 -webkit-mask: var(--icon) center / contain no-repeat content-box }}
:is({all})::before {{ content: none }}
/* What the theme says of its drawn icons (svg). */
.theme-switch-button .fa-lg {{ font-size: 1em }}
.bd-header-article .btn :is({all}) {{ width: 1.3rem }}
#pst-search-dialog[open] form.bd-search .fa-solid {{ font-size: var(--pst-font-size-icon) }}
@media (forced-colors: active) {{ :is({all}) {{ forced-color-adjust: none; background: CanvasText }} }}
"""

# The theme takes the mark of the focus off the buttons of its header.
MENDED = (
    "\n.bd-header-article .btn:focus-visible { outline: 3px solid var(--pst-color-accent); outline-offset: -3px }\n"
)


def words_of(texts: Iterable[str]) -> frozenset[str]:
    """All words of the texts that could be a class or an id. Pages and scripts alike: names in scripts are plain words."""
    return frozenset(word for text in texts for word in re.findall(r"[\w-]+", text))


def merged(sheets: Sequence[Path], target: PurePosixPath, root: Path, words: frozenset[str]) -> str:
    """The style sheets (files below `root`) in one text for `target` (a path below `root`), purged of unused rules.

    Addresses in `url(...)` are rewritten to where `target` lies; a sheet that another one imports comes in its place.
    Raises ValueError for an import under a condition, or from another host.
    """
    parts = [_text(rule, words) for sheet in sheets for rule in _rules(sheet, target, root)]
    return without_unused_values("\n".join(filter(None, parts)), words)


def _rules(sheet: Path, target: PurePosixPath, root: Path) -> list[Node]:
    rules = tinycss2.parse_stylesheet(sheet.read_text(encoding="utf-8"), skip_whitespace=True)
    found: list[Node] = []
    for rule in rules:
        if rule.type == "at-rule" and rule.lower_at_keyword == "import":
            what = [token for token in rule.prelude if token.type not in ("whitespace", "comment")]
            address = what[0].arguments[0] if what and what[0].type == "function" else what[0] if what else None
            if len(what) != 1 or address.type not in ("string", "url") or ABSOLUTE.match(address.value):
                raise ValueError(f"{sheet.name} has an import that cannot be merged: @import {_squeezed(rule.prelude)}")
            found += _rules((sheet.parent / address.value).resolve(), target, root)
        else:
            _move_addresses([rule], sheet.relative_to(root).parent.as_posix(), target.parent.as_posix())
            found.append(rule)
    return found


def _text(rule: Node, words: frozenset[str]) -> str:
    """A rule without what cannot apply; empty where nothing is left."""
    if rule.type == "comment":
        return f"/*{rule.value}*/" if rule.value.startswith("!") else ""  # licences
    if rule.type == "qualified-rule":
        used = [_squeezed(selector) for selector in _split(rule.prelude) if _can_apply(selector, words)]
        body = _body(rule.content)
        return f"{','.join(used)}{{{body}}}" if used and body else ""
    if rule.type == "at-rule":
        name, prelude = rule.lower_at_keyword, _squeezed(rule.prelude)
        if name == "charset":
            return ""  # the merged sheet is UTF-8
        if name == "font-face" and "Awesome" in tinycss2.serialize(rule.content):
            return ""  # icons are masks here
        if rule.content is None:
            return f"@{rule.at_keyword} {prelude};"
        if name in ("media", "supports", "layer", "container"):
            inside = tinycss2.parse_rule_list(rule.content, skip_whitespace=True)
            body = "".join(_text(inner, words) for inner in inside)
            return f"@{rule.at_keyword} {prelude}{{{body}}}" if body else ""
        return f"@{rule.at_keyword} {prelude}{{{_squeezed(rule.content)}}}"
    return ""  # a browser skips what is no rule


def _split(prelude: Sequence[Node]) -> list[list[Node]]:
    """The selectors of a rule, parted at the commas outside brackets."""
    selectors: list[list[Node]] = [[]]
    for token in prelude:
        if token.type == "literal" and token.value == ",":
            selectors.append([])
        else:
            selectors[-1].append(token)
    return selectors


def _can_apply(selector: Sequence[Node], words: frozenset[str]) -> bool:
    after_dot = False
    for token in selector:
        if token.type == "hash" and token.value not in words:
            return False
        if after_dot and token.type == "ident" and token.value not in words:
            return False
        after_dot = token.type == "literal" and token.value == "."
    return True


def _squeezed(tokens: Sequence[Node]) -> str:
    """Tokens as text, without comments and with single spaces."""
    kept = [token for token in tokens if token.type != "comment"]
    text = tinycss2.serialize(kept)
    if '"' in text or "'" in text:
        return text.strip()  # spaces in a string are its own
    return re.sub(r"\s+", " ", re.sub(r"\s*([;{}])\s*|(:)\s+|\s*(,)\s+", r"\1\2\3", text)).strip().rstrip(";")


def _move_addresses(nodes: Iterable[Node], source: str, target: str) -> None:
    """Rewrite relative addresses of a sheet in folder `source` for one in `target`, in place."""
    for node in nodes:
        if node.type == "url" and not ABSOLUTE.match(node.value):
            node.value = relpath(normpath(f"{source}/{node.value}"), target)
            node.representation = f'url("{node.value}")'
        if node.type == "function" and node.lower_name == "url":
            for inner in (argument for argument in node.arguments if argument.type == "string"):
                if not ABSOLUTE.match(inner.value):
                    inner.value = relpath(normpath(f"{source}/{inner.value}"), target)
                    inner.representation = f'"{inner.value}"'
        for name in ("prelude", "content", "arguments"):
            _move_addresses(getattr(node, name, None) or [], source, target)


def _body(content: Sequence[Node]) -> str:
    """Declarations as text; custom properties between marks, so that `without_unused_values` finds their ends."""
    items = tinycss2.parse_blocks_contents(content, skip_comments=True, skip_whitespace=True)
    if any(item.type != "declaration" for item in items):
        return _squeezed(content)
    texts = []
    for item in items:
        text = f"{item.name}:{_squeezed(item.value)}{'!important' if item.important else ''};"
        texts.append(f"{MARKS[0]}{text}{MARKS[1]}" if item.name.startswith("--") else text)
    return "".join(texts)


def without_unused_values(css: str, words: frozenset[str]) -> str:
    """Drop custom properties (`--name: ...`, between marks) that no rule reads and no page or script names; drop marks.

    Repeated until nothing goes: a property may be read by another one only.
    """
    while True:
        read = words | set(re.findall(r"var\(\s*(--[\w-]+)", css))
        unread = {name for name in MARKED.findall(css) if name not in read}
        shorter = MARKED.sub(lambda match, unread=unread: "" if match[1] in unread else match[0], css)
        if shorter == css:
            return re.sub(f"[{MARKS}]", "", css)
        css = shorter


# --- icons ----------------------------------------------------------------------------------------------------------


def icon_styles(script: str, words: frozenset[str]) -> str:
    """Rules that draw the icons named in `words` (`fa-sun`), with the paths that the theme's fontawesome.js holds.

    Raises ValueError where the script holds no icons: it has another form than the one known.
    """
    ends = {name: script.find(f'"{name}",p),') for name in ICON_STYLES}
    blocks = sorted((end, name) for name, end in ends.items() if end >= 0)
    rules: list[str] = []
    known = 0
    for match in ICON.finditer(script):
        style = next((name for end, name in blocks if match.start() < end), None)
        known += style is not None
        plain, other, width, height, aliases, path = match.groups()
        names = [plain or other, *re.findall(r'"([\w-]+)"', aliases)]
        used = [f"fa-{name}" for name in names if f"fa-{name}" in words]
        if style is None or not used or not words.intersection(ICON_STYLES[style]):
            continue
        svg = f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}'><path d='{path}'/></svg>"
        address = svg.replace("<", "%3C").replace(">", "%3E").replace("#", "%23")
        selectors = [f".{kind}.{name}" for kind in ICON_STYLES[style] for name in used if kind in words]
        rules.append(f'{",".join(selectors)}{{--icon:url("data:image/svg+xml,{address}")}}')
    if not known:
        raise ValueError(
            "fontawesome.js holds no icons in the form known: compare ICON in light_styles.py with the theme"
        )
    kinds = sorted(f".{kind}" for style in ICON_STYLES.values() for kind in style if kind in words)
    if not kinds:
        return ""
    return "\n".join(["", ICON_BASE.format(all=",".join(kinds)).strip(), *rules])


def stamped(css: str) -> str:
    """Name of the merged sheet: it changes with the content, so that no reader keeps an old one."""
    return f"book-{hashlib.sha256(css.encode()).hexdigest()[:12]}.css"
