"""Formulas drawn when the book is built: TeX becomes MathML, which browsers, printers and screen readers read themselves.

Temml (temml.min.js beside this file, 0.13.5, MIT, https://temml.org) translates; it runs in QuickJS, inside this process, a millisecond
a formula. No Node is asked for, and pages load no script. The same TeX is translated once.

    element(r"\\rho n")                  <span class="math ..." data-tex="\\rho n"><math>...</math></span>
    element(r"x^2", display=True)       <div class="math ...">...</div>
    with_formulas("at <b>$n$</b>")      HTML in which `$n$` is drawn

Typography that Temml or Chromium leaves out is put in here: see `_mend`.
"""

import base64
import html
import json
import re
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

TEMML = Path(__file__).with_name("temml.min.js")
CLASSES = "math notranslate nohighlight"
BEFORE, AFTER = r"[(\[“‘]*", r"[-.,;:!?)\]’”%…]*"  # signs that stay in the line of the formula beside them: `unbroken`
# Markup with its text between formulas; a formula holds no tag, and inside a sentence it begins and ends beside a letter, as in Markdown.
MATHS = re.compile(
    r"(?P<keep><(?P<tag>pre|code|script|style|math)\b.*?</(?P=tag)>|<[^>]*>)"
    r"|\$\$(?P<display>[^$<>]+?)\$\$|\$(?=\S)(?P<inline>[^$<>]+?)(?<=\S)\$(?!\d)"
    rf"(?P<after>{AFTER})",
    re.S,
)
DRAW = """function draw(tex, display) {
  try { return [temml.renderToString(tex, {displayMode: display, throwOnError: true}), ""]; }
  catch (error) { return ["", String(error.message || error)]; }
}
function drawn(text) { return JSON.stringify(draw(...JSON.parse(text))); }"""
SCRIPTED = ("msub", "msup", "msubsup", "munder", "mover", "munderover")  # children after the first are scripts
APPLIED = "\u2061"  # between a function's name and what it is applied to
THIN = "0.1667em"
SHAPES = {"()": "round", "[]": "square", "{}": "curly", "⟨⟩": "angle"}
GROWING = {bracket: shape for pair, shape in SHAPES.items() for bracket in pair}


class FormulaError(ValueError):
    """TeX that cannot be drawn. The message says which, and what is wrong with it."""


@cache
def _engine() -> Any:
    import quickjs

    context = quickjs.Context()
    context.eval(TEMML.read_text(encoding="utf-8"))
    context.eval(DRAW)
    return context.get("drawn")


@cache
def mathml(tex: str, display: bool = False) -> str:
    """The `<math>` element of a formula. Raises FormulaError with the formula and the fault in it."""
    if not tex.strip():
        raise FormulaError("a formula must hold TeX; it is empty: remove its signs, or write what belongs between them")
    # A comma between digits parts two numbers here; thousands are written 10{,}000.
    spaced = re.sub(r"(?<=\d),(?=\d)", ", ", tex)
    text, fault = json.loads(_engine()(json.dumps([spaced, display])))
    if fault:
        said = " ".join(fault.replace("\u0332", "").split())
        if "property" in said:  # of something that is null: the script's words for it, not the author's
            said = "a sign lacks what belongs to it, as in x^ or \\frac1"
        raise FormulaError(f"the formula '{' '.join(tex.split())}' cannot be drawn: {said}")
    root = ElementTree.fromstring(text.replace("&nbsp;", "\u00a0"))
    _mend(root, display, script=False)
    return ElementTree.tostring(root, encoding="unicode", short_empty_elements=False)


def displayed(tex: str) -> str:
    """A formula on lines of its own. What `\\quad` and `\\qquad` part may stand on several: a browser breaks no formula by itself."""
    return f'<span class="formula">{"".join(mathml(part, True) for part in pieces(tex))}</span>'


def pieces(tex: str) -> list[str]:
    """The TeX between spaces that stand in no bracket, fraction or table."""
    found, depth, start = [], 0, 0
    for sign in re.finditer(r"\\(begin|end|left|right|qquad|quad)(?![A-Za-z])|\\.|[{}]", tex, re.S):
        depth += {"begin": 1, "left": 1, "end": -1, "right": -1}.get(sign[1], {"{": 1, "}": -1}.get(sign[0], 0))
        if depth == 0 and sign[1] in ("quad", "qquad"):
            found.append(tex[start : sign.start()])
            start = sign.end()
    return [part for part in (*found, tex[start:]) if part.strip()] or [tex]


def element(tex: str, display: bool = False) -> str:
    """A formula as an element of a page, with its TeX beside it."""
    kind, said = "div" if display else "span", html.escape(" ".join(tex.split()))
    drawn = displayed(tex) if display else mathml(tex)
    return f'<{kind} class="{CLASSES}" data-tex="{said}">{drawn}</{kind}>'


def unbroken(formula: str, before: str = "", after: str = "") -> str:
    """The element of an inline formula with the signs beside it: browsers begin a new line before or after any formula, even at a stop."""
    return f'<span class="unbroken">{before}{formula}{after}</span>' if before or after else formula


def with_formulas(text: str) -> str:
    """HTML in which each `$x$` and `$$x$$` between tags is drawn. Raises FormulaError."""

    def put(match: re.Match) -> str:
        if match["inline"]:
            return unbroken(element(html.unescape(match["inline"])), after=match["after"])
        return match["keep"] or element(html.unescape(match["display"]), display=True)

    return MATHS.sub(put, text) if "$" in text else text


def style(folder: Path) -> str:
    """The style sheet of formulas with its font inside, for a document that stands alone. `folder`: of both, book/assets/formulas."""
    font = base64.b64encode((folder / "BookMath.woff2").read_bytes()).decode()
    css = (folder / "formulas.css").read_text(encoding="utf-8")
    return css.replace('url("BookMath.woff2")', f'url("data:font/woff2;base64,{font}")')


# --- typography -----------------------------------------------------------------------------------------------------


def _mend(node: ElementTree.Element, display: bool, *, script: bool) -> None:
    """What TeX does and MathML does not by itself.

    * in scripts, operators stand without spaces: n_{t+1};
    * a function's name has a thin space to what stands before it (a power, a fraction) and to a bar after it;
    * a bar over a letter is the font's own;
    * a bracket that grows says which it is: Chromium leaves room for the widest size of it, and the style sheet takes it back.
    """
    if node.tag == "mo":
        if script:
            node.set("lspace", "0")
            node.set("rspace", "0")
        if node.text == "\u203e":
            node.text = "\u00af"
        elif node.text in GROWING and ("minsize" in node.attrib or node.get("stretchy") == "true"):
            node.set("class", f"grows-{GROWING[node.text]}")
    if "undefined" in node.get("style", ""):  # a slip of Temml
        node.set("style", ";".join(part for part in node.get("style", "").split(";") if part.startswith("padding")))
    if node.tag == "mtable" or "displaystyle" in node.attrib:
        display = node.get("displaystyle") == "true"
    if node.tag == "mstyle":
        script = node.get("scriptlevel", "1" if script else "0") != "0"
    if node.tag in ("mrow", "mstyle", "mtd", "math", "mpadded"):
        _space_functions(node, script)
    for place, child in enumerate(node):
        if node.tag in SCRIPTED and place > 0:
            _mend(child, False, script=True)
        elif node.tag == "mfrac":
            _mend(child, False, script=script or not display)
        else:
            _mend(child, display, script=script)


def _space_functions(row: ElementTree.Element, script: bool) -> None:
    if script:
        return
    for place in reversed(range(len(row))):
        child = row[place]
        if child.tag != "mo" or child.text != APPLIED or place == 0:
            continue
        if place + 1 < len(row) and row[place + 1].text in ("|", "‖"):
            row.insert(place + 1, ElementTree.Element("mspace", width=THIN))
        if place > 1 and row[place - 2].tag in ("msup", "msub", "msubsup", "mfrac", "msqrt", "mover"):
            row.insert(place - 1, ElementTree.Element("mspace", width=THIN))
