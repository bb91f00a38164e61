"""Above the list of claims: a picture of all of them, and the form that questions them.

```{ledger-overview}            one square per claim, page by page, each a link to its claim
```

```{ledger-filter}              the form; it is of use only where book/assets/ledger.js runs, and hidden elsewhere
```
"""

import html
from collections import Counter
from collections.abc import Iterable, Sequence

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from bookkit.ledger.page import records_for
from bookkit.ledger.records import SOURCES, VERDICTS, anchor, counts_sentence, page_name, part_of, shown
from bookkit.ledger.sizes import GROUPS, group_of
from bookkit.ledger.words import verdict_words
from bookkit.sphinx.html_elements import element, tag


class Overview(SphinxDirective):
    """One square per claim, a row per page, the parts in reading order."""

    def run(self) -> list[nodes.Node]:
        """Return a `<nav>`; marks of verdicts come from the style sheet, words are there for those who listen."""
        records = records_for(self.env, None, self.get_location())
        rows = []
        for part_name in dict.fromkeys(record["part"] for record in records):
            here = [record for record in records if record["part"] == part_name]
            rows.append(element("p", _part_title(part_name), class_="ledger-part"))
            pages = dict.fromkeys(record["page"] for record in here)
            rows.append(element("ul", *(self._row([r for r in here if r["page"] == page]) for page in pages)))
        label = f"All claims, one square each. {counts_sentence(records)}"
        return [element("nav", *rows, class_="ledger-overview", aria_label=label)]

    def _row(self, records: list[dict]) -> tag:
        address = self.env.app.builder.get_relative_uri(self.env.docname, records[0]["page"])
        squares = element("span", class_="ledger-squares")
        for record in records:
            short = VERDICTS[record["verdict"]][0]
            name = shown(record["id"], record["part"])
            words = name if short == "holds" else f"{name} {verdict_words(record)}"
            marks = {} if short == "holds" else {"class_": short}
            squares += element("a", words, href=f"#{anchor(record['id'])}", **marks)
        return element("li", element("a", records[0]["page_title"], href=address), squares)


class Filter(SphinxDirective):
    """The form above the list: part and paper, verdict, sharpness, source, page, words."""

    def run(self) -> list[nodes.Node]:
        """Return the form as HTML; ledger.js counts, filters and keeps the address."""
        records = records_for(self.env, None, self.get_location())
        part_names = dict.fromkeys(record["part"] for record in records)
        words = {VERDICTS[record["verdict"]][0]: verdict_words(record) for record in records}
        words |= {
            _paper(name): _paper_label([n for n in part_names if _paper(n) == _paper(name)]) for name in part_names
        }
        chips = {  # in the order in which they stand, and of each record the one that it belongs to
            "paper": (map(_paper, part_names), [_paper(record["part"]) for record in records]),
            "verdict": ([short for short, _, _ in VERDICTS.values()], [VERDICTS[r["verdict"]][0] for r in records]),
            "sharpness": (GROUPS, [group_of(record) for record in records]),
            "source": (SOURCES, [record["source"] for record in records]),
        }
        pages = (_page_options(name, [record for record in records if record["part"] == name]) for name in part_names)
        form = f"""<form class="ledger-filter screen-only" autocomplete="off" role="search" aria-label="Filter the claims">\
{"".join(_chips(name, values, Counter(found), words) for name, (values, found) in chips.items())}\
<div class="ledger-row"><label>Page <select name="page"><option value="">all pages</option>\
{"".join(pages)}</select></label>\
<label>Words <input type="search" name="q" autocomplete="off" spellcheck="false" \
placeholder="margin, T1, \\rho, 0.05, …"></label>\
<label>Order <select name="order"><option value="">as in the book</option>\
<option value="weakest">least sharp first</option></select></label><button type="reset">Reset</button></div>\
<p class="ledger-count" role="status" aria-live="polite">All {counts_sentence(records)}.</p></form>"""
        return [nodes.raw("", form, format="html")]


def _part_title(part_name: str) -> str:
    part = part_of(part_name)
    return f"Part {part.number}: {part.title}" if part.number else part.title


def _paper(part_name: str) -> str:
    return part_of(part_name).paper or "none"


def _paper_label(part_names: Sequence[str]) -> str:
    """The parts that check one paper, or none."""
    parts = [part_of(name) for name in part_names]
    numbers = ", ".join(part.number for part in parts if part.number)
    return f"{numbers} · {parts[0].paper or 'no paper'}".removeprefix(" · ")


def _chips(name: str, values: Iterable[str], counts: Counter[str], words: dict[str, str]) -> str:
    chips = "".join(
        f'<label class="chip"><input type="checkbox" name="{name}" value="{html.escape(value)}">'
        f"<span>{html.escape(words.get(value, value))} <small>{counts[value]}</small></span></label>"
        for value in dict.fromkeys(values)
        if counts[value]
    )
    return f"<fieldset><legend>{name.capitalize()}</legend>{chips}</fieldset>"


def _page_options(part_name: str, records: list[dict]) -> str:
    title = _part_title(part_name)
    titles = {page_name(record): record["page_title"] for record in records}
    options = "".join(f'<option value="{html.escape(p)}">{html.escape(t)}</option>' for p, t in titles.items())
    whole = f'<option value="{html.escape(part_name)}">All of {html.escape(title.partition(":")[0])}</option>'
    return f'<optgroup label="{html.escape(title)}">{whole}{options}</optgroup>'


def register(app: Sphinx) -> None:
    """Both directives."""
    app.add_directive("ledger-overview", Overview)
    app.add_directive("ledger-filter", Filter)
