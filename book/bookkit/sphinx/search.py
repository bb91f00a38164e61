"""What the search page knows of the pages: what each is about, and its text.

`_static/search_subjects.js`: for each page its most telling words and pairs of words, with a weight: those that stand on it often and
on other pages seldom. Sphinx's own score knows only whether a word is there. `_static/search_texts.js`: the texts, for excerpts; a
page on a disk may not read another, and one file is less to fetch than forty pages. Both are used by book/assets/search.js.

A page may say for what it wants to be found first, in `keywords` under `html_meta` in its header: "install, colab".

A paper's number on arXiv is one word, here and in the script: Sphinx splits it at its point, and does not look for numbers.
"""

import html as escaping
import json
import math
import re
from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.search import SearchEnglish, languages

from bookkit.pages.catalogue import write_atomically

SUBJECTS = "_static/search_subjects.js"
TEXTS = "_static/search_texts.js"
KEPT = 120  # words and pairs of a page
STRONGEST = 30  # the weight of the most telling one; Sphinx gives 15 to a word in a title
DESCRIBED = 12  # added for a word of the page's own description
NAMED = 600  # of what a page wants to be found for; a title that begins with the words asked has 300, in search.js
DESCRIPTION, KEYWORDS = (
    re.compile(rf'<meta (?:name="{name}" content="([^"]*)"|content="([^"]*)" name="{name}")')
    for name in ("description", "keywords")
)
ARXIV = re.compile(r"\b(\d{4})\.(\d{5})\b")
ARTICLE = re.compile(r'<article class="bd-article"[^>]*>(.*?)</article>', re.DOTALL)
LEFT_OUT = re.compile(
    r"<(script|style|svg|details class=\"(?:provenance|page-claims)\").*?</(script|style|svg|details)>"
    r"|<[^>]*>",
    re.DOTALL,
)


class Words(SearchEnglish):
    """English, in which the number of a paper on arXiv is one word."""

    def split(self, input: str) -> list[str]:
        return super().split(ARXIV.sub(r"arxiv\1x\2", input))


def described(page: str) -> set[str]:
    """The words of the page's description."""
    return set(_terms(_content(DESCRIPTION, page)))


def named(page: str) -> list[str]:
    """What the page wants to be found for, as the script asks: words in small letters with a space between."""
    return [" ".join(re.findall(r"\w+", each.lower())) for each in _content(KEYWORDS, page).split(",") if each.strip()]


def _content(tag: re.Pattern, page: str) -> str:
    found = tag.search(page)
    return escaping.unescape(found[1] or found[2] or "") if found else ""


def text_of(page: str) -> str:
    """The words of a page's article, without code of scripts and links to headings."""
    found = ARTICLE.search(page)
    text = re.sub(r'<a class="headerlink".*?</a>', "", found[1], flags=re.DOTALL) if found else ""
    text = re.sub(r"<math\b.*?</math>", lambda formula: re.sub(r"<[^>]*>", "", formula[0]), text, flags=re.DOTALL)
    return " ".join(escaping.unescape(LEFT_OUT.sub(" ", text)).split())


def subjects(
    texts: Mapping[str, str], summaries: Mapping[str, set[str]], names: Mapping[str, list[str]]
) -> dict[str, dict[str, int]]:
    """Page -> word or pair -> weight, 1 to `STRONGEST`, and `DESCRIBED` more in the page's own summary; `NAMED` for its `names`."""
    counted = {name: _terms(text) for name, text in texts.items()}
    pages = Counter(term for counts in counted.values() for term in counts)
    found = {}
    for name, counts in counted.items():
        total = math.sqrt(sum(counts.values()) or 1)
        weights = {
            term: count / total * math.log(len(texts) / pages[term]) for term, count in counts.items() if count > 1
        }
        best = sorted(weights.items(), key=lambda item: (-item[1], item[0]))[:KEPT]
        top = best[0][1] if best and best[0][1] > 0 else 1.0
        found[name] = {term: round(STRONGEST * weight / top) for term, weight in best if STRONGEST * weight / top >= 1}
        for term in summaries.get(name, ()):
            found[name][term] = found[name].get(term, 0) + DESCRIBED
        found[name] |= dict.fromkeys(names.get(name, ()), NAMED)
    return found


def _terms(text: str) -> Counter:
    words = re.findall(r"[^\W\d_]{2,}", text.lower())
    return Counter([*words, *(f"{one} {other}" for one, other in pairwise(words))])


def write(html: Path) -> None:
    """Write both files from the built pages in the folder `html`."""
    texts, summaries, names = {}, {}, {}
    for path in sorted(html.rglob("*.html")):
        name = path.relative_to(html)
        page = path.read_text(encoding="utf-8")
        if not name.parts[0].startswith("_") and (text := text_of(page)):
            document = name.with_suffix("").as_posix()
            texts[document], summaries[document], names[document] = text, described(page), named(page)
    about = subjects(texts, summaries, names)
    for file, variable, data in ((SUBJECTS, "bookSubjects", about), (TEXTS, "bookTexts", texts)):
        write_atomically(html / file, f"window.{variable} = {json.dumps(data, ensure_ascii=False, sort_keys=True)};\n")


def _write(app: Sphinx, exception: Exception | None) -> None:
    if exception is None and app.builder.name == "html":
        write(Path(app.outdir))


def _load(app: Sphinx, pagename: str, templatename: str, context: dict, doctree: object) -> None:
    if pagename == "search":
        for file in (SUBJECTS, "search.js"):
            app.add_js_file(file.removeprefix("_static/"), loading_method="defer")


def setup(app: Sphinx) -> dict:
    """Register with Sphinx."""
    languages["en"] = Words
    app.connect("html-page-context", _load)
    app.connect("build-finished", _write, priority=800)  # before `light`
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
