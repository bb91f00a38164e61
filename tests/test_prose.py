"""What book/style.md asks of the text: one word for one thing, and no letter, term or number of a claim before its meaning.

Read are chapters, pages with their captions, and what claims say in the ledger. Formulas, code, targets of links and roles, labels and
options are blanked, so that a search finds words of the text only.
"""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import jupytext
import pytest

from bookkit.ledger.records import read_ledger
from tests.house import ROOT

# --- what a reader sees -----------------------------------------------------------------------------------------------

CODE = {"", "math", "code-cell", "code-block", "code", "literalinclude", "mermaid", "bibliography"}
FENCE = re.compile(r"^(?P<ticks>`{3,}|~{3,})(?:\{(?P<name>[\w:-]+)\})?[^\n]*\n(?P<inner>.*?)^(?P=ticks)$", re.M | re.S)
BLANKED = [
    re.compile(r"^:{3,}(?:\{[\w:-]+\})?", re.M),  # a box; its title stays
    re.compile(r"^:(?!caption|alt)[\w-]+:.*$", re.M),  # their options
    re.compile(r"\$\$.*?\$\$(?: \([\w-]+\))?", re.S),
    re.compile(r"(?<![\\$])\$(?!\s)[^$]+?(?<!\s)\$"),
    re.compile(r"(?:\{[\w:-]+\})?(?P<ticks>`+)[^`].*?(?<!`)(?P=ticks)(?!`)", re.S),
    re.compile(r"(?<=\])\([^()\s]*\)"),
    re.compile(r"<[^<>]+>"),
    re.compile(r"^\([\w-]+\)=$", re.M),
    re.compile(r"https?://\S+"),
]


def prose(markdown: str) -> str:
    """The words of a Markdown text."""
    markdown = FENCE.sub(lambda found: "" if (found["name"] or "") in CODE else found["inner"], markdown)
    for pattern in BLANKED:
        markdown = pattern.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), markdown)
    return markdown


@cache
def cells(page: Path) -> list[tuple[str, str, list[str]]]:
    """Kind, source, and caption and alternative text of each cell."""
    found = []
    for cell in jupytext.read(page, fmt="md:myst").cells:
        shown = cell.metadata.get("mystnb", {})
        told = [shown.get("figure", {}).get("caption", ""), shown.get("image", {}).get("alt", "")]
        found.append((cell.cell_type, cell.source, [text for text in told if text]))
    return found


PAGES = sorted((ROOT / "notebooks").glob("*/*.md"))
CHAPTERS = [
    *(path for path in sorted((ROOT / "book").glob("*.md")) if path.stem not in ("bibliography", "style")),
    *sorted((ROOT / "book").glob("explorers/*.md")), *sorted((ROOT / "book").glob("reference/*.md")),
    ROOT / "README.md", ROOT / "CONTRIBUTING.md",
]  # fmt: skip
every_text = pytest.mark.parametrize("path", [*CHAPTERS, *PAGES], ids=lambda path: path.relative_to(ROOT).as_posix())
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.stem}")


def text_of(path: Path) -> str:
    if path not in PAGES:
        return prose(path.read_text(encoding="utf-8"))
    return "\n\n".join(
        prose(text) for kind, source, told in cells(path) for text in ([source] if kind == "markdown" else told)
    )


# --- one word for one thing -------------------------------------------------------------------------------------------

# A noun "share" follows an article or an adjective, or is followed by what it is a share of; "samples share a signal" is the verb.
_BEFORE = (
    "a|an|the|its|their|his|this|that|these|those|same|mean|equal|largest|smallest|small|large|noise|least|given|what|which|each|by|in|as|of|"
    "floating|no"
)
_VECTOR = (
    r"(?:(?:a|an|the|its|each|this|that|both|two|noise|signal|value|attention|unit|trained|every|all|one)\s+)*"
    r"(?:token|vector|gradient|signal|noise|query|arrow of)s?\b"
)
OLD = {
    "power twin": r"\bpower[ -]twins?\b|\b(?:its|the|whether the|a|their) twins?\b|\btwins? (?:must|that holds|fails?)\b",
    "wing": r"(?<!--)\bwings?\b",
    "fate": r"\bfates?\b",
    "share (noun)": rf"\b(?:{_BEFORE})\s+shares?\b(?!\s+(?:the|a|an|one|their|its|with)\b)"
    r"|\bshares?\s+(?:of|that)\b",
    "spoiled": r"\bspoil(?:s|ed|t|ing)?\b",
    "length (of a vector)": rf"\b(?:squared|unit)[ -]lengths?\b|\blengths? of {_VECTOR}",
    "axis-wise, by axes": r"\baxis-?wise\b|\bby axes\b",
    "mean field": r"\bmean[ -]fields?\b",
    "attention map (a function)": r"\battention maps?\b",
    "max-margin": r"\bmax-margin\b",
    "mistake on fresh data": r"\bmistakes? (?:on|for|at) (?:a |one )?fresh\b",
}
FIRST = {"clean error": r"unflipped|not flipped|without (?:flipped|wrong)|true label|no (?:flipped|wrong) label"}


def old_words(text: str) -> list[str]:
    text = re.sub(r"[ \t]+", " ", text)
    return [
        text[max(0, f.start() - 20) : f.end() + 12].strip()
        for old in OLD.values()
        for f in re.finditer(old, text, re.I)
    ]


def test_the_table_of_words_and_the_search_name_the_same_words() -> None:
    section = (ROOT / "book" / "style.md").read_text(encoding="utf-8").split("\n## Words\n")[1].split("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line.startswith("| ")
    ]
    assert [row[0] for row in rows[1:]] == list(OLD)
    assert all(row[1] for row in rows)


@every_text
def test_no_old_word_is_left(path: Path) -> None:
    assert old_words(text_of(path)) == []


def test_no_old_word_is_left_in_what_claims_say() -> None:
    said = {
        record["id"]: " ".join(record[part] for part in ("title", "statement", "regime"))
        for record in read_ledger(ROOT)
    }
    assert {name: found for name, text in said.items() if (found := old_words(prose(text)))} == {}


@every_text
def test_a_term_is_explained_where_it_is_first_used(path: Path) -> None:
    for term, said in FIRST.items():
        word = term.replace(" ", r"\s+")
        first = next(
            (
                part
                for part in re.split(r"\n\s*\n|\n(?=[*|-] )", text_of(path))
                if re.search(rf"\b{word}s?\b", part, re.I)
            ),
            "",
        )
        assert not first or re.search(said, first, re.I), f"say what a {term} is: {first[:200]!r}"


@pytest.mark.parametrize(
    "text",
    "the power twin fails; common to all wings; the fate of a class; the share of clean samples; a mean share above .9; shares that go;"
    "the head is spoiled; noise of squared length $d$; the length of a gradient; taken by axes; in mean field; another attention map;"
    "the max-margin threshold; a mistake on fresh data; ```{note}\nthe fate of it\n```;"
    ":::{prf:lemma} A fate\n:label: fate\n:::".split(";"),
)  # fmt: skip
def test_the_search_finds_old_words(text: str) -> None:
    assert len(old_words(prose(text.strip()))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "What samples share is short. Samples share the signal, the signal that they share, two heads share $v$",
        "the length of the prompt, an interval of length two, a mistake in a proof, runs may share their prompts",
        "`mean_field`, [a](mean-field.md), {eq}`eq-mean-field`, $\\text{mean field}$, `benchmarks --part kernels`",
        "```python\nthe share of clean samples\n```", ":::{prf:lemma} Six variables\n:label: mean-field\n:::", "(mean-field)=",
    ],
)  # fmt: skip
def test_the_search_leaves_other_senses_and_code_alone(text: str) -> None:
    assert old_words(prose(text)) == []


# --- numbers of claims ------------------------------------------------------------------------------------------------

NUMBER = re.compile(r"\b(?:TS|[A-Z])\d+[a-z]?\b")


@every_page
def test_numbers_of_claims_are_those_of_claims_that_exist(page: Path) -> None:
    """A number that looks like a claim's, of a letter that claims have, is a claim's."""
    ids = {record["id"] for record in read_ledger(ROOT)}
    letters = {re.match("[A-Z]+", each)[0] for each in ids}
    found = {each for each in NUMBER.findall(text_of(page)) if re.match("[A-Z]+", each)[0] in letters}
    assert {
        each for each in found if each not in ids and each.rstrip("abc") not in {id.rstrip("abc") for id in ids}
    } == set()


# --- no letter before its meaning -------------------------------------------------------------------------------------
# Where a formula of a page first has a letter, that paragraph or the next says what it is: the letter stands alone in a formula ("the step
# size $\beta$"), on the left of a relation, as an index that the formula runs through, as the argument of a function that is being defined,
# or in a list of such. Words that explain it cannot be checked; that they can stand there is. Subscripts and exponents are not looked into.

# Signs whose meaning is the same in all of mathematics; the notation lists them under "Common to all parts".
CONVENTIONS = {r"\mathbb{R}", r"\mathbb{E}", r"\mathbb{P}", "E", "N", "I", "O", "o", "e"}
GREEK = (
    "alpha beta gamma delta epsilon varepsilon zeta eta theta kappa lambda mu nu xi pi rho varrho sigma tau phi varphi chi psi omega "
    "Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega ell"
).split()
WORDS = re.compile(r"\\(?:text|mathrm|operatorname|label|begin|end)\*?\s*\{[^{}]*\}")
SCRIPTS = re.compile(r"[_^]\s*(?:\{(?:[^{}]|\{[^{}]*\})*\}|\\[A-Za-z]+|.)")
LETTER = re.compile(
    r"\\(?P<accent>hat|bar|tilde|widehat|widetilde|mathcal|mathbb|mathbf|overline)\s*(?:\{(?P<in_braces>[^{}]*)\}|(?P<bare>\\?[A-Za-z]+))"
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
    found = []
    for match in LETTER.finditer(SCRIPTS.sub(" ", WORDS.sub(" ", formula))):
        if match["accent"]:
            found.append(f"\\{match['accent']}{{{(match['in_braces'] or match['bare']).replace(' ', '')}}}")
        elif match["greek"] or match["latin"]:
            found.append("\\" + match["greek"] if match["greek"] else match["latin"])
    return found


def explained(formula: str) -> set[str]:
    """The letters that a formula gives a meaning to, or that a sentence around it can."""
    found = {letter for run in RUNNING.finditer(formula) for letter in letters(run["braces"] or run["bare"])}
    for piece in PIECES.split(formula):
        left, *right = RELATION.split(piece, maxsplit=1)
        alone = set(letters(left))
        if len(alone) == 1:
            found |= alone
        elif function := FUNCTION.match(SCRIPTS.sub(" ", left)):
            found |= {letters(left)[0], *letters(function[1])}
        elif right and letters(left):
            found.add(letters(left)[0])
    return found


def paragraphs(page: Path) -> list[str]:
    """The text of a page, captions and solutions too; a displayed formula is part of the paragraph that it stands in."""
    joined: list[str] = []
    for kind, source, told in cells(page):
        for part in [*(re.split(r"\n\s*\n(?!\s*(?:>\s*)?\$\$)", source) if kind == "markdown" else ()), *told]:
            if joined and joined[-1].rstrip().endswith("$$"):
                joined[-1] += "\n" + part
            else:
                joined.append(part)
    return joined


def unexplained(text: list[str]) -> Iterator[str]:
    known = set(CONVENTIONS)
    formulas = [[match["shown"] or match["inline"] for match in FORMULA.finditer(part)] for part in text]
    for number, own in enumerate(formulas):
        known |= {letter for near in formulas[number : number + 2] for formula in near for letter in explained(formula)}
        for formula in own:
            for letter in letters(formula):
                if letter not in known:
                    known.add(letter)
                    yield f"{letter} in {formula[:60]!r}"


@every_page
def test_each_letter_is_explained_where_it_first_stands(page: Path) -> None:
    assert list(unexplained(paragraphs(page))) == []


@pytest.mark.parametrize(
    ("formula", "known"),
    [
        (r"\beta", {r"\beta"}), (r"L(v, p) = \frac1n\sum_i\ell_i", {"L", "v", "p", "i"}), (r"x_i,\,x_q\sim N(0,\sigma^2 d)", {"x"}),
        (r"\sum_{i=1}^n \rho z_i", {"i"}), (r"\sigma(z)=1/(1+e^{-z})", {r"\sigma", "z"}), (r"2\beta d", set()),
        (r"k=1,\dots,K", {"k", "K"}),
    ],
)  # fmt: skip
def test_what_a_formula_explains(formula: str, known: set[str]) -> None:
    assert explained(formula) == known


def test_a_letter_without_a_meaning_is_found() -> None:
    text = ["Let $n$ be their number.", r"Then it is $\kappa n / 2$.", "More.", r"Here $\kappa$ is a ratio."]
    assert list(unexplained(text)) == [r"\kappa in '\\kappa n / 2'"]
    assert list(unexplained([*text[:2], text[3]])) == []
