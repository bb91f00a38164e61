"""No letter before its meaning: where a formula of a page first has a letter, that paragraph or the next says what it is.

A letter counts as explained where it stands alone in a formula ("the step size $\\beta$"), on the left of a relation
("$m=n+2$", "$x_i\\sim N(0,I_d)$"), as an index that the formula itself runs through ("\\sum_i"), as the argument of a function that is
being defined ("$\\sigma(z)=...$"), or in a list of such. Words that explain it cannot be checked; that they can stand there is.
A displayed formula belongs to the sentence around it. Subscripts and exponents are not looked into.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.reader_text import page_cells, pages

# Signs whose meaning is the same in all of mathematics; the notation lists them under "Common to all parts".
CONVENTIONS = {r"\mathbb{R}", r"\mathbb{E}", r"\mathbb{P}", "E", "N", "I", "O", "o", "e"}

GREEK = (
    "alpha beta gamma delta epsilon varepsilon zeta eta theta kappa lambda mu nu xi pi rho varrho sigma tau phi varphi chi psi omega "
    "Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega ell"
).split()
ACCENTS = r"hat|bar|tilde|widehat|widetilde|mathcal|mathbb|mathbf|overline"
WORDS = re.compile(r"\\(?:text|mathrm|operatorname|label|begin|end)\*?\s*\{[^{}]*\}")
SCRIPTS = re.compile(r"[_^]\s*(?:\{(?:[^{}]|\{[^{}]*\})*\}|\\[A-Za-z]+|.)")
LETTER = re.compile(
    rf"\\(?P<accent>{ACCENTS})\s*(?:\{{(?P<in_braces>[^{{}}]*)\}}|(?P<bare>\\?[A-Za-z]+))"
    rf"|\\(?P<greek>{'|'.join(sorted(GREEK, key=len, reverse=True))})(?![A-Za-z])"
    r"|\\[A-Za-z]+"
    r"|(?<![A-Za-z\\])(?P<latin>[A-Za-z])(?![A-Za-z])"
)
RELATION = re.compile(
    r"(?<![<>\\])(?:[=<>]|\\(?:sim|perp|in|approx|equiv|propto|le|ge|to|leftarrow|mapsto|simeq)(?![A-Za-z]))"
)
RUNNING = re.compile(
    r"\\(?:sum|prod|max|min|sup|inf|bigcup)(?:\\(?:no)?limits)?_(?:\{\s*(?P<braces>[^{}]*)\}|(?P<bare>[A-Za-z]))"
)
FUNCTION = re.compile(r"^\s*(?:\\[A-Za-z]+|[A-Za-z])\s*\(([^()]*)\)\s*$")
FORMULA = re.compile(r"\$\$(?P<shown>.*?)\$\$|(?<!\\)\$(?P<inline>[^$]+)\$", re.DOTALL)
PIECES = re.compile(r"(?:[,;&]|\\\\|\\q?quad)(?![^()]*\))")  # not between the arguments of a function


def letters(formula: str) -> list[str]:
    """The letters of a formula, in order; an accent belongs to its letter."""
    formula = SCRIPTS.sub(" ", WORDS.sub(" ", formula))
    found = []
    for match in LETTER.finditer(formula):
        if match["accent"]:
            inner = (match["in_braces"] or match["bare"]).replace(" ", "")
            found.append(f"\\{match['accent']}{{{inner}}}")
        elif match["greek"]:
            found.append("\\" + match["greek"])
        elif match["latin"]:
            found.append(match["latin"])
    return found


def explained(formula: str) -> set[str]:
    """The letters that a formula gives a meaning to, or that a sentence around it can."""
    found = {letter for run in RUNNING.finditer(formula) for letter in letters(run["braces"] or run["bare"])}
    for piece in PIECES.split(formula):
        left, *right = RELATION.split(piece, maxsplit=1)
        alone = set(letters(left))
        function = FUNCTION.match(SCRIPTS.sub(" ", left))
        if len(alone) == 1:
            found |= alone
        elif function:
            found |= {letters(left)[0], *letters(function[1])}
        elif right and letters(left):
            found.add(letters(left)[0])
    return found


def formulas(text: str) -> list[str]:
    return [match["shown"] or match["inline"] for match in FORMULA.finditer(text)]


def paragraphs(page: Path) -> list[str]:
    """The text of a page, captions and solutions too; a displayed formula is part of the paragraph that it stands in."""
    parts = []
    for kind, source, told in page_cells(page):
        if kind == "markdown":
            parts += re.split(r"\n\s*\n(?!\s*(?:>\s*)?\$\$)", source)
        parts += told
    joined: list[str] = []
    for part in parts:
        if joined and joined[-1].rstrip().endswith("$$"):
            joined[-1] += "\n" + part
        else:
            joined.append(part)
    return joined


def unexplained(text: list[str]) -> Iterator[str]:
    known = set(CONVENTIONS)
    for number, paragraph in enumerate(text):
        near = formulas("\n".join(text[number : number + 2]))
        known |= {letter for formula in near for letter in explained(formula)}
        for formula in formulas(paragraph):
            for letter in letters(formula):
                if letter not in known:
                    known.add(letter)
                    yield f"{letter} in {formula[:60]!r}"


@pytest.mark.parametrize("page", pages(), ids=lambda page: f"{page.parent.name}/{page.stem}")
def test_each_letter_is_explained_where_it_first_stands(page):
    assert list(unexplained(paragraphs(page))) == []


def test_letters_of_formulas():
    assert letters(r"\hat y=\frac1n\sum_i s_{ij}\,\bar{x}^\top\mathrm{softmax}(X\xi)") == [
        r"\hat{y}",
        "n",
        "s",
        r"\bar{x}",
        "X",
        r"\xi",
    ]


@pytest.mark.parametrize(
    ("formula", "known"),
    [
        (r"\beta", {r"\beta"}),
        (r"L(v, p) = \frac1n\sum_i\ell_i", {"L", "v", "p", "i"}),
        (r"x_i,\,x_q\sim N(0,\sigma^2 d)", {"x"}),
        (r"\sum_{i=1}^n \rho z_i", {"i"}),
        (r"\sigma(z)=1/(1+e^{-z})", {r"\sigma", "z"}),
        (r"W(A)", {"W", "A"}),
        (r"2\beta d", set()),
        (r"k=1,\dots,K", {"k", "K"}),
    ],
)
def test_what_a_formula_explains(formula, known):
    assert explained(formula) == known


def test_a_letter_without_a_meaning_is_found():
    text = ["Let $n$ be their number.", r"Then it is $\kappa n / 2$.", "More.", r"Here $\kappa$ is a ratio."]
    assert list(unexplained(text)) == [r"\kappa in '\\kappa n / 2'"]
    assert list(unexplained([*text[:2], text[3]])) == []
