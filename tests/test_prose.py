"""What docs/style.md asks of the text: one word for one thing, no letter or term before its meaning, and sentences that can be read.

Read are chapters, pages with their captions, and what claims say in the ledger. Formulas, code, targets of links and roles, labels and
options are blanked, so that a search finds words of the text only.
"""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import jupytext
import pytest
import yaml

from bookkit.ledger.records import read_ledger
from tests.house import ROOT

# --- what a reader sees -----------------------------------------------------------------------------------------------

CODE = {"", "math", "code-cell", "code-block", "code", "literalinclude", "mermaid", "bibliography"}
FENCE = re.compile(r"^(?P<ticks>`{3,}|~{3,})(?:\{(?P<name>[\w:-]+)\})?[^\n]*\n(?P<inner>.*?)^(?P=ticks)$", re.M | re.S)
BLANKED = re.compile(
    r"^:{3,}(?:\{[\w:-]+\})?"  # a box; its title stays
    r"|^:(?!caption|alt)[\w-]+:[^\n]*$"  # their options
    r"|\$\$[\s\S]*?\$\$(?: \([\w-]+\))?"
    r"|(?<![\\$])\$(?!\s)[^$]+?(?<!\s)\$"
    r"|(?:\{[\w:-]+\})?(?P<ticks>`+)[^`][\s\S]*?(?<!`)(?P=ticks)(?!`)"
    r"|(?<=\])\([^()\s]*\)"
    r"|<[^<>]+>"
    r"|^\([\w-]+\)=$"
    r"|https?://\S+",
    re.M,
)
PAGES = sorted((ROOT / "notebooks").glob("*/*.md"))
CHAPTERS = [
    *(path for path in sorted((ROOT / "book").glob("*.md")) if path.stem != "bibliography"),
    *(path for path in sorted((ROOT / "docs").glob("*.md")) if path.stem != "style"),
    *(path for folder in ("explorers", "papers", "reference") for path in sorted((ROOT / "book").glob(f"{folder}/*.md"))),
    ROOT / "README.md", ROOT / "CONTRIBUTING.md",
]  # fmt: skip


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def prose(markdown: str) -> str:
    """The words of a Markdown text."""
    markdown = FENCE.sub(lambda found: "" if (found["name"] or "") in CODE else found["inner"], markdown)
    return BLANKED.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), markdown)


@cache
def texts(path: Path) -> list[str]:
    """A chapter; of a page each text cell, and caption and alternative text of each picture."""
    if path not in PAGES:
        return [path.read_text(encoding="utf-8")]
    found = []
    for cell in jupytext.read(path, fmt="md:myst").cells:
        shown = cell.metadata.get("mystnb", {})
        told = [shown.get("figure", {}).get("caption", ""), shown.get("image", {}).get("alt", "")]
        found += [text for text in ([cell.source] if cell.cell_type == "markdown" else told) if text]
    return found


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
    "share (noun)": rf"\b(?:{_BEFORE})\s+shares?\b(?!\s+(?:the|a|an|one|their|its|with)\b)|\bshares?\s+(?:of|that)\b",
    "spoiled": r"\bspoil(?:s|ed|t|ing)?\b",
    "length (of a vector)": rf"\b(?:squared|unit)[ -]lengths?\b|\blengths? of {_VECTOR}",
    "axis-wise, by axes": r"\baxis-?wise\b|\bby axes\b",
    "mean field": r"\bmean[ -]fields?\b",
    "attention map (a function)": r"\battention maps?\b",
    "max-margin": r"\bmax-margin\b",
    "mistake on fresh data": r"\bmistakes? (?:on|for|at) (?:a |one )?fresh\b",
    "score (for v·x)": r"\bhead[- ]scores?\b",  # and VALUE_CALLED_SCORE, where v is in a formula
    "fixed head, value head": r"\bfixed (?:value )?heads?\b|\bvalue heads?\b",
    "prompt (for p)": r"\bprompts?\b",
    "right, wrong, noisy (label, sample)": r"\b(?:right|wrong|noisy|false|incorrect)(?:ly)?[ -](?:label(?:s|l?ed)?|samples?)\b",
}
ONLY_IN = {"prompt (for p)": "token_selection"}  # other parts have prompts
MAY_EXPLAIN = ("book/story.md", "book/preface.md", "README.md")  # these say once that a flipped label is a wrong one
VALUE_CALLED_SCORE = re.compile(
    r"\bscores?\b[^.|$]{0,40}\$[^$]*\bv(?:_\w|\^[^$]*?)?\s*\\cdot|\$[^$|]*\bv(?:_\w)?\s*\\cdot[^$|]*\$[^.|$]{0,12}\bscores?\b"
)
EXPLAINED = r"unflipped|not flipped|without (?:flipped|wrong)|true label|no (?:flipped|wrong) label"  # a clean error
NUMBER = re.compile(r"\b(TS|[A-Z])(\d+)[a-z]?\b")  # looks like that of a claim


def old_words(text: str, where: str = "") -> list[str]:
    text = re.sub(r"[ \t]+", " ", text)
    meant = (old for word, old in OLD.items() if ONLY_IN.get(word, "") in where)
    found = (match for old in meant for match in re.finditer(old, text, re.I))
    return [text[max(0, match.start() - 20) : match.end() + 12].strip() for match in found]


def without_meaning(text: str) -> list[str]:
    """The paragraph that first speaks of a clean error, unless it says what that is."""
    paragraphs = re.split(r"\n\s*\n|\n(?=[*|-] )", text)
    first = next((each for each in paragraphs if re.search(r"\bclean\s+errors?\b", each, re.I)), "")
    return [first] if first and not re.search(EXPLAINED, first, re.I) else []


def test_the_table_of_words_and_the_search_name_the_same_words() -> None:
    section = (ROOT / "docs" / "style.md").read_text(encoding="utf-8").split("\n## Words\n")[1].split("\n## ")[0]
    rows = [re.split(r" *\| *", line)[1:-1] for line in section.splitlines() if line.startswith("| ")]
    assert [row[0] for row in rows[1:]] == list(OLD)
    assert all(row[1] for row in rows)


@pytest.mark.parametrize("path", [*CHAPTERS, *PAGES], ids=name)
def test_the_words_of_a_text(path: Path) -> None:
    """No old word, no clean error before its meaning; on pages no number of a claim in running text, no letter before its meaning."""
    text = "\n\n".join(map(prose, texts(path)))
    assert without_meaning(text) == []
    if path in PAGES:
        assert list(unexplained(texts(path))) == []
        assert numbers_in_running_text(text) == []
    assert old_words(text, name(path))[name(path) in MAY_EXPLAIN :] == []
    if re.search("single_head|open_questions|story", name(path)):
        assert [found[0] for text in texts(path) for found in VALUE_CALLED_SCORE.finditer(text)] == []


def numbers_in_running_text(text: str) -> list[str]:
    """Ids of claims outside tables and the list that leads to the ledger."""
    known = {record["id"] for record in read_ledger(ROOT)}
    running = (line for line in text.splitlines() if not line.startswith(("|", "- **Claims**")))
    return [found[0] for line in running for found in NUMBER.finditer(line) if found[0] in known]


def test_no_old_word_is_left_in_what_claims_say() -> None:
    said = {
        each["id"]: (each["part"], f"{each['title']} {each['statement']} {each['regime']}")
        for each in read_ledger(ROOT)
    }
    found = {number: words for number, (part, text) in said.items() if (words := old_words(prose(text), part))}
    assert found == {}


FINDS = (
    "the power twin fails; common to all wings; the fate of a class; the share of clean samples; a mean share above .9; shares that go;"
    "the head is spoiled; noise of squared length $d$; the length of a gradient; taken by axes; in mean field; another attention map;"
    "the max-margin threshold; a mistake on fresh data; a head score; the fixed head answers;"
    "a prompt is trained; wrongly labelled; noisy samples;"
    " ```{note}\nthe fate of it\n```;:::{prf:lemma} A fate\n:label: fate\n:::"
)


def test_the_searches_find_old_words() -> None:
    for text in FINDS.split(";"):
        assert len(old_words(prose(text.strip()), "token_selection")) == 1, text
    assert old_words("A prompt is read.", "in_context") == []
    for text in (r"the score $y_i v_1\cdot\xi_i$", r"its $v \cdot u$ is a score", r"the scores are $v^\top_1\cdot x$"):
        assert VALUE_CALLED_SCORE.search(text), text
    assert not VALUE_CALLED_SCORE.search(r"the score $p\cdot x$ and the value $v\cdot x$")
    assert numbers_in_running_text("As C8 says (V9999).\n- **Claims**: C8\n| C8 |") == ["C8"]
    assert without_meaning("An error.\n\nThe clean\nerror falls.") == ["The clean\nerror falls."]
    assert without_meaning("The clean error, on unflipped labels.\n\nThe clean error falls.") == []


# --- sentences that can be read ---------------------------------------------------------------------------------------

LONG = 40  # words of a sentence, a formula or a piece of code counted as one
LONG_SENTENCES = 8  # that many are left outside of the short book; the number may only fall
ONE_WORD = re.compile(
    r"\$\$[\s\S]*?\$\$(?: \([\w-]+\))?|(?<![\\$])\$(?!\s)[^$]+?(?<!\s)\$|(?<!\})`[^`\n]+`|\{[\w:-]+\}`[^`<]*`"
)


def sentences(markdown: str) -> Iterator[str]:
    """The sentences of a Markdown text; formulas, code and roles are words, titles, items and cells end a sentence."""
    markdown = FENCE.sub(
        lambda found: "\n\n" if (found["name"] or "") in CODE else f"\n\n{found['inner']}\n\n", markdown
    )
    markdown = re.sub(r"\{[\w:-]+\}`([^`<]+?)\s*<[^`>]*>`", r"\1", markdown)
    words = re.sub(r"^:{3,}.*$|^:[\w-]+:|^% .*$", "\n\n", ONE_WORD.sub("F", markdown), flags=re.M)
    words = re.sub(r"(?<=\])\([^()\s]*\)|<[^<>]+>|^> ?", "", words, flags=re.M)
    words = re.sub(r"^\s*(?:\d+\.|[*-])\s", "\n\n", words, flags=re.M)
    for paragraph in re.split(r"\n\s*\n|\n(?=#)|\|", words):
        yield from re.split(r"(?<=[.!?])[\")'*_\]]*\s+(?=[A-Z*_\"(\[])", " ".join(paragraph.split()))


def long_sentences(path: Path) -> list[str]:
    return [each for text in texts(path) for each in sentences(text) if len(each.split()) > LONG]


def test_no_sentence_of_the_short_book_is_long_and_elsewhere_few_are() -> None:
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    short = {ROOT / f"{each['file']}.md" for each in toc["parts"][0]["chapters"]}
    assert short <= {*CHAPTERS, *PAGES}
    assert {name(path): found for path in short if (found := long_sentences(path))} == {}
    assert sum(len(long_sentences(path)) for path in {*CHAPTERS, *PAGES} - short) <= LONG_SENTENCES


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_an_answer_has_three_sentences(path: Path) -> None:
    answer = next(part for text in texts(path) for part in re.split(r"\n\s*\n", text) if part.startswith("**Answer.**"))
    assert 1 <= len(list(sentences(answer.removeprefix("**Answer.**")))) <= 3, answer


def test_what_a_sentence_is() -> None:
    text = "# A title\n\nOne $a. B$ is `c. D`. Two {prf:ref}`is. It <lem>` [here](there).\n\n1. Three\n2. four.\n\n```python\nx. Y\n```"
    assert list(sentences(text)) == ["# A title", "One F is F.", "Two is.", "It [here].", "Three", "four.", ""]


# --- no letter before its meaning -------------------------------------------------------------------------------------
# Where a formula of a page first has a letter, that paragraph or the next says what it is: the letter stands alone in a formula ("the step
# size $\beta$"), on the left of a relation, as an index that the formula runs through, as the argument of a function that is being defined,
# or in a list of such. Words that explain it cannot be checked; that they can stand there is. Subscripts and exponents are not looked into.

# Signs whose meaning is the same in all of mathematics; the notation lists them under "Common to all parts".
CONVENTIONS = {r"\mathbb{R}", r"\mathbb{E}", r"\mathbb{P}", "E", "N", "I", "O", "o", "e"}
GREEK = (
    "alpha|beta|gamma|delta|epsilon|varepsilon|zeta|eta|theta|kappa|lambda|mu|nu|xi|pi|rho|varrho|sigma|tau|phi|varphi|chi|psi|omega|"
    "Gamma|Delta|Theta|Lambda|Xi|Pi|Sigma|Phi|Psi|Omega|ell"
)
LEFT_OUT = re.compile(
    r"\\(?:text|mathrm|operatorname|label|begin|end)\*?\s*\{[^{}]*\}|[_^]\s*(?:\{(?:[^{}]|\{[^{}]*\})*\}|\\[A-Za-z]+|.)"
)
LETTER = re.compile(
    r"\\(?P<accent>hat|bar|tilde|widehat|widetilde|mathcal|mathbb|mathbf|overline)\s*(?:\{(?P<in_braces>[^{}]*)\}|(?P<bare>\\?[A-Za-z]+))"
    rf"|(?P<greek>\\(?:{GREEK}))(?![A-Za-z])"
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
    for match in LETTER.finditer(LEFT_OUT.sub(" ", formula)):
        if match["accent"]:
            found.append(f"\\{match['accent']}{{{(match['in_braces'] or match['bare']).replace(' ', '')}}}")
        elif letter := match["greek"] or match["latin"]:
            found.append(letter)
    return found


def explained(formula: str) -> set[str]:
    """The letters that a formula gives a meaning to, or that a sentence around it can."""
    found = {letter for run in RUNNING.finditer(formula) for letter in letters(run["braces"] or run["bare"])}
    for piece in PIECES.split(formula):
        left, *right = RELATION.split(piece, maxsplit=1)
        alone = set(letters(left))
        if len(alone) == 1:
            found |= alone
        elif function := FUNCTION.match(LEFT_OUT.sub(" ", left)):
            found |= {letters(left)[0], *letters(function[1])}
        elif right and alone:
            found.add(letters(left)[0])
    return found


def unexplained(page: list[str]) -> Iterator[str]:
    """Letters that come before their meaning. A displayed formula is part of the paragraph that it stands in."""
    paragraphs: list[str] = []
    for part in (part for text in page for part in re.split(r"\n\s*\n(?!\s*(?:>\s*)?\$\$)", text)):
        if paragraphs and paragraphs[-1].rstrip().endswith("$$"):
            paragraphs[-1] += "\n" + part
        else:
            paragraphs.append(part)
    formulas = [[match["shown"] or match["inline"] for match in FORMULA.finditer(part)] for part in paragraphs]
    known = set(CONVENTIONS)
    for number, own in enumerate(formulas):
        known |= {letter for near in formulas[number : number + 2] for formula in near for letter in explained(formula)}
        for formula in own:
            for letter in letters(formula):
                if letter not in known:
                    known.add(letter)
                    yield f"{letter} in {formula[:60]!r}"


def test_what_a_formula_explains_and_what_lacks_a_meaning() -> None:
    for formula, known in {
        r"\beta": {r"\beta"}, r"L(v, p) = \frac1n\sum_i\ell_i": {"L", "v", "p", "i"}, r"x_i,\,x_q\sim N(0,\sigma^2 d)": {"x"},
        r"\sum_{i=1}^n \rho z_i": {"i"}, r"\sigma(z)=1/(1+e^{-z})": {r"\sigma", "z"}, r"2\beta d": set(), r"k=1,\dots,K": {"k", "K"},
    }.items():  # fmt: skip
        assert explained(formula) == known
    text = ["Let $n$ be their number.", r"Then it is $\kappa n / 2$.", "More.", r"Here $\kappa$ is a ratio."]
    assert list(unexplained(text)) == [r"\kappa in '\\kappa n / 2'"]
    assert list(unexplained([*text[:2], text[3]])) == []
