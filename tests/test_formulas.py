"""Formulas drawn at build time: what TeX becomes, what is refused, and what pages are told of it."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bookkit.formulas.drawing import FormulaError, element, mathml, pieces, style, unbroken, with_formulas
from bookkit.formulas.pages import whole
from tests.house import ROOT
from tests.test_story_page import build

ASSETS = ROOT / "book" / "assets" / "formulas"


def parts(tex: str, display: bool = False) -> list[tuple[str, str]]:
    """Tag and text of each leaf of a drawn formula, in order."""
    root = ElementTree.fromstring(mathml(tex, display))
    return [(node.tag, node.text or "") for node in root.iter() if len(node) == 0]


def operators(tex: str, display: bool = False) -> dict[str, dict[str, str]]:
    return {node.text or "": node.attrib for node in ElementTree.fromstring(mathml(tex, display)).iter("mo")}


@pytest.mark.parametrize(
    ("tex", "said"),
    [
        (r"\rho\le\tfrac12", "ρ≤12"),
        (r"\lVert x\rVert^2", "‖x‖2"),
        (r"\mathbb{E}\mathcal{L}", "𝔼ℒ"),
        (r"10{,}000", "10,000"),
        (r"a'_i", "ai′"),
        (r"\begin{cases}1&x>0\\0&\text{otherwise}\end{cases}", "{1x>00otherwise"),
    ],
)
def test_a_formula_says_what_its_tex_says(tex: str, said: str) -> None:
    spoken = "".join(text for _, text in parts(tex)).replace("\u2061", "").replace("\ufe00", "")
    assert spoken.replace("\u00a0", "").replace(" ", "") == said


def test_a_comma_between_digits_parts_two_numbers() -> None:
    assert ("mo", ",") in parts("[0,1]")


def test_operators_have_no_room_in_scripts_and_small_fractions_only() -> None:
    tight = {"lspace": "0", "rspace": "0"}
    assert (
        operators("f_{t+1}")["+"]
        == operators("e^{a+b}")["+"]
        == operators(r"\tfrac{a+b}{2}", display=True)["+"]
        == tight
    )
    assert (
        operators("a+b")["+"] == operators(r"\frac{a+b}{2}", display=True)["+"] == operators(r"\sqrt{a+b}")["+"] == {}
    )
    assert operators(r"\frac{a+b}{2}")["+"] == tight
    assert operators(r"\begin{aligned}x&=\frac{a+b}{2}\end{aligned}", display=True)["+"] == {}


def test_a_function_stands_apart_from_what_is_before_and_from_a_bar() -> None:
    assert parts(r"X^\top\operatorname{softmax}(s)")[2:4] == [("mspace", ""), ("mi", "softmax")]
    assert ("mspace", "") in parts(r"\max_i|x|")
    assert ("mspace", "") not in parts(r"f(x)+g^{\log}")


def test_brackets_that_grow_are_marked_and_a_bar_is_the_fonts_own() -> None:
    assert operators(r"\bigl(a\bigr)")["("]["class"] == "grows-round"
    assert operators(r"\left[\frac ab\right]")["["]["class"] == "grows-square"
    assert "class" not in operators("(a)")["("]
    assert ("mo", "\u00af") in parts(r"\bar x")
    assert "undefined" not in mathml(r"\overline{ab}")


@pytest.mark.parametrize(
    ("tex", "told"),
    [
        ("", "must hold TeX; it is empty"),
        ("  \n", "must hold TeX; it is empty"),
        (r"\frac{1}", r"the formula '\\frac\{1\}' cannot be drawn: .*end of input"),
        (r"\nosuchsign x", r"cannot be drawn: Unsupported function name: .nosuchsign"),
        (r"x^", "cannot be drawn: a sign lacks what belongs to it"),
        (r"\left( x", "cannot be drawn"),
        ("a }", "cannot be drawn"),
    ],
)
def test_what_cannot_be_drawn_is_told(tex: str, told: str) -> None:
    with pytest.raises(FormulaError, match=told):
        mathml(tex)


def test_an_element_keeps_its_tex_and_a_block_may_scroll() -> None:
    assert element("a<b").startswith('<span class="math notranslate nohighlight" data-tex="a&lt;b"><math>')
    block = element("x\n=1", display=True)
    assert block.startswith('<div class="math notranslate nohighlight" data-tex="x =1"><span class="formula"><math')
    assert block.endswith("</math></span></div>")


def test_formulas_beside_each_other_are_pieces() -> None:
    assert pieces(r"a = \{b\},\quad c_{x\quad y}") == [r"a = \{b\},", r" c_{x\quad y}"]
    table = r"\left(x\quad y\right) \begin{cases} 1 & x \quad y \end{cases}"
    assert pieces(table + r"\qquad\text{for}\quadratic") == [table, r"\text{for}\quadratic"]
    assert pieces(r"\quad") == [r"\quad"]
    block = element(r"a,\qquad b", display=True)
    assert re.findall("<math", block) == ["<math", "<math"]
    assert r'data-tex="a,\qquad b"' in block


def test_formulas_between_tags_are_drawn() -> None:
    assert with_formulas("<td title='$a$'>$10^{-6}$ and $a&lt;b$</td>") == (
        f"<td title='$a$'>{element('10^{-6}')} and {element('a<b')}</td>"
    )
    assert with_formulas("<p>$$x=1$$</p>") == f"<p>{element('x=1', display=True)}</p>"
    for text in (
        "<td>5 $ or 6 $</td>",
        "<td><code>$x$</code> $5</td>",
        "<pre>$a$\n$b$</pre>",
        "<td>US$1 and US$2</td>",
        element("x") + " costs $5",
    ):
        assert with_formulas(text) == text


PAGE = r"""# A page

$$
x = \rho
$$ (eq-x)

By {eq}`eq-x` it is $a<b$.

```{raw} html
<table><tr><td>$10^{-6}$</td></tr></table>
```
"""


def page(tmp_path: Path, text: str) -> tuple[str, str]:
    head = "---\nmyst:\n  enable_extensions: [dollarmath]\n---\n\n"
    folder, warnings = build(tmp_path, {"a": head + text}, extensions=("bookkit.formulas.pages",))
    return (folder / "a.html").read_text(encoding="utf-8"), warnings


def test_a_sign_beside_a_formula_stays_in_its_line(tmp_path: Path) -> None:
    made, _ = page(tmp_path, "# A page\n\nBoth ($a$, $b$) of $c$-th $d$ parts. So *x*$e$.\n")
    paragraph = re.sub(r"<span class=.math.*?</span>", "F", re.search("<p>(Both.*?)</p>", made)[1])
    assert paragraph.replace('<span class="unbroken">', "[").replace("</span>", "]") == (
        "Both [(F,] [F)] of [F-]th F parts. So <em>x</em>[F.]"
    )
    assert with_formulas("<td>$a$, $b$ c</td>") == f"<td>{unbroken(element('a'), after=',')} {element('b')} c</td>"
    assert ".unbroken { white-space: nowrap" in style(ASSETS)


def test_blank_lines_part_equations() -> None:
    assert whole("x") == "x"
    assert whole(r"x\\y") == r"\begin{split}x\\y\end{split}"
    assert whole("x\n\ny") == r"\begin{aligned}x\\y\end{aligned}"


def test_a_page_with_wrong_formulas_names_each(tmp_path: Path) -> None:
    table = "```{raw} html\n<table><tr><td>$\\nosuch$</td></tr></table>\n```\n"
    _, warnings = page(tmp_path, f"# A page\n\nSo\n$\\frac{{1}}$ is.\n\n$$\n\\nosign\n$$\n\n{table}")
    assert re.search(r"a\.md:\d+: WARNING: the formula '\\frac\{1\}' cannot be drawn", warnings), warnings
    assert re.search(r"a\.md:\d+: WARNING: the formula '\\nosign' cannot be drawn", warnings), warnings
    assert re.search(r"WARNING: in the HTML of an output, the formula '\\nosuch'", warnings), warnings


def test_a_page_has_its_formulas_drawn_numbered_and_linked(tmp_path: Path) -> None:
    html, warnings = page(tmp_path, PAGE)
    assert warnings == ""
    assert re.search(
        r'<div class="math notranslate nohighlight" data-tex="x = \\rho" id="equation-eq-x">\s*<span class="eqno">\(1\)'
        r'<a class="headerlink" href="#equation-eq-x".*?</a></span><span class="formula"><math',
        html,
    )
    assert mathml(r"x = \rho", True) in html
    assert f'data-tex="a&lt;b">{mathml("a<b")}</span>' in html
    assert f"<td>{element('10^{-6}')}</td>" in html
    assert 'href="#equation-eq-x"' in html
    assert "mathjax.js" not in html
    assert "MathJax" not in html


def test_the_style_sheet_stands_alone() -> None:
    css = style(ASSETS)
    assert "data:font/woff2;base64,d09GMk" in css  # wOF2
    assert "BookMath.woff2" not in css
    # Every class that a formula of the book can have and that matters is in it.
    for tex in (r"x'", r"\bar x", r"\overline{ab}", r"\begin{aligned}a&=b\end{aligned}", r"\bigl(x\bigr)"):
        for classes in re.findall(r'class="([^"]*)"', mathml(tex)):
            for name in set(classes.split()) - {"tml-display"}:
                assert f".{name}" in css, (tex, name)
