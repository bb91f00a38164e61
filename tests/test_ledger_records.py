"""The rules of the ledger without a book: what is a problem, what is counted, what a record says in words."""

import json
import re
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

from bookkit import claims
from bookkit.cli import main
from bookkit.ledger.page_claims import linked
from bookkit.ledger.records import (
    CLAIMS_TYPE,
    SOURCES,
    VERDICTS,
    anchor,
    as_published,
    commands,
    counted,
    counts_sentence,
    in_reading_order,
    problems,
    read_ledger,
    read_page_checks,
    source_line,
)
from bookkit.ledger.words import control_words, number_lines, signs, verdict_words
from bookkit.pages.tolerances import Tolerance, Tolerances, path_beside
from bookkit.settings import settings
from bookkit.sphinx.each_part import written_out
from tests.test_sphinx_extension import record, store
from tests.tiny_book import write

ROOT = Path(__file__).parents[1]
OUTSIDE = "outside its regime"


def on_page(*records: dict, page: str = "notebooks/single_head/01_a") -> list[dict]:
    return [{"page": page, "page_title": "A page", **one} for one in records]


# --- problems -------------------------------------------------------------------------------------------------------


def test_expected_verdicts_are_no_problem() -> None:
    control_holds = {
        "wrong": "w",
        "verdict": "holds",
    }  # where the claim itself is known to fail, its negative control may hold
    assert (
        problems(on_page(record(), record("C2", verdict="fails", expected="fails", negative_control=control_holds)))
        == []
    )


@pytest.mark.parametrize("verdict", ["holds", "fails", OUTSIDE])
def test_any_other_verdict_is_a_problem(verdict: str) -> None:
    expected = "fails" if verdict == "holds" else "holds"
    [found] = problems(on_page(record(verdict=verdict, expected=expected, violated="d = 3 < 9")))
    assert f"verdict is {verdict!r}, expected {expected!r}" in found
    assert "d = 3 < 9" in found


def test_a_check_that_cannot_fail_is_a_problem() -> None:
    [found] = problems(on_page(record(negative_control={"wrong": "one step", "verdict": "holds"})))
    assert "negative control (one step) holds too" in found


def test_an_id_used_twice_is_a_problem() -> None:
    [found] = problems(on_page(record("C1"), record("c1")))
    assert "claim-c1 is recorded 2 times" in found


def test_anchors_are_the_promised_ones() -> None:
    assert [anchor(name) for name in ("C8", "C12b", "B 3.1")] == ["claim-c8", "claim-c12b", "claim-b-3-1"]


def test_names_are_those_of_the_claims_and_of_the_bibliography() -> None:
    assert CLAIMS_TYPE == claims.CLAIMS_TYPE
    assert set(SOURCES) == {str(source) for source in claims.Source}
    assert set(VERDICTS) == {str(verdict) for verdict in claims.Verdict}
    # The papers as the ledger cites them, part by part, by the bibliography's names.
    each = re.split(r"\n(?=@)", (ROOT / "book/references.bib").read_text(encoding="utf-8"))
    entries = dict(found for one in each for found in re.findall(r"@\w+\{(\w+),.*?arXiv:([\d.]+)", one, re.DOTALL))
    parts = settings(ROOT).parts
    ledger = written_out((ROOT / "book" / "ledger.md").read_text(encoding="utf-8"), ROOT, ROOT)
    cited = re.findall(r"The paper is \{cite:t\}`(\w+)`, \[arXiv ([\d.]+)\]", ledger)
    assert [entries[key] for key, _ in cited] == [paper for _, paper in cited]
    assert [paper for _, paper in cited] == [part.paper for part in parts.values() if part.paper]
    assert re.findall(r"^:part: (\w+)$", ledger, re.M) == list(parts)
    chart = written_out((ROOT / "book" / "map.md").read_text(encoding="utf-8"), ROOT, ROOT)
    assert re.findall(r"^## Part (\w+): .*\n\n```\{book-map\} (\w+)$", chart, re.M) == [
        (part.number, name) for name, part in parts.items()
    ]
    assert all((ROOT / "notebooks" / part).is_dir() for part in parts)


# --- counts ---------------------------------------------------------------------------------------------------------


def test_the_sentence_counts_every_claim_once() -> None:
    many = [record() for _ in range(14)]
    many += [record(verdict="fails", expected="fails") for _ in range(2)]
    many += [record(verdict=OUTSIDE, expected=OUTSIDE) for _ in range(2)]
    assert counts_sentence(many) == "18 claims: 14 hold, 2 fail as expected, 2 are outside their regime"
    assert counts_sentence([*many, record(verdict="fails")]).endswith("regime, 1 against expectation")
    assert counts_sentence([record()], "claim checked here") == "1 claim checked here: 1 holds"
    assert counts_sentence([]) == "0 claims"


MANY = [
    *on_page(record("C1"), record("C2", source="derived"), record("C3", source="paper, second-hand")),
    *on_page(record("C4", verdict="fails", expected="fails"), page="notebooks/single_head/02_b"),
    *on_page(
        record("Q1", part="open_questions", source="derived"),
        record("Q2", part="open_questions", source="authors' code", verdict=OUTSIDE, expected=OUTSIDE),
        page="notebooks/open_questions/01_c",
    ),
]


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        ("all", "6 claims: 4 hold, 1 fails as expected, 1 is outside its regime"),
        ("all claims", "6"),
        ("all holds", "4"),
        ("fails all", "1"),
        ("outside all", "1"),
        ("all pages", "3"),
        ("2410.07746 pages", "2"),
        ("2410.07746 claims", "4"),
        ("single_head/01_a holds", "3"),
        ("notebooks/single_head/01_a", "3 claims: 3 hold"),
        ("paper, second-hand all claims", "1"),
        ("open_questions authors' code outside", "1"),
        ("open_questions authors' code holds", "0"),
        ("derived", "2 claims: 2 hold"),
        ("open_questions derived", "1 claim: 1 holds"),
    ],
)
def test_counts_in_prose(asked: str, answer: str) -> None:
    assert counted(asked, MANY) == answer


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("all blue", "unknown word 'blue'; there are all, single_head, open_questions, 2410.07746, single_head/01_a"),
        ("all holds fails", "unknown word 'fails'"),  # two numbers at once
        ("in_context", "no check of part 'in_context'; parts: open_questions, single_head"),
        ("2503.12734", "unknown word '2503.12734'"),
    ],
)
def test_counts_of_what_there_is_not(asked: str, told: str) -> None:
    with pytest.raises(LookupError) as caught:
        counted(asked, MANY)
    assert caught.value.args[0].startswith(told)


def test_parts_come_in_reading_order_and_strangers_last() -> None:
    parts = ["zebra", "in_context", "open_questions", "single_head", "in_context"]
    assert [r["part"] for r in in_reading_order([record(part=part) for part in parts])] == [
        "single_head", "in_context", "in_context", "open_questions", "zebra",
    ]  # fmt: skip


# --- words ----------------------------------------------------------------------------------------------------------


def test_signs_are_those_that_people_read() -> None:
    assert signs("x >= -2 and [-3..-1] +- 0.1, 10^-300 n^2") == "x ≥ −2 and [−3..−1] ± 0.1, 10⁻³⁰⁰ n²"
    assert signs("1e-10, d-1, two-step, (n)-1") == "1e-10, d-1, two-step, (n)-1"
    assert signs("$x^2 >= -1$ +- 1") == "$x^2 >= -1$ +- 1"  # formulas are not touched


def test_verdicts_and_twins_in_words() -> None:
    assert verdict_words(record()) == "holds"
    assert verdict_words(record(verdict="fails", expected="fails")) == "fails as expected"
    assert verdict_words(record(verdict=OUTSIDE, expected=OUTSIDE)) == OUTSIDE
    assert verdict_words(record(verdict="holds", expected="fails")) == "holds, against expectation"
    assert control_words(record()) == "one step: fails, told apart"
    same = record(verdict="fails", expected="fails", negative_control={"wrong": "w", "verdict": "fails"})
    assert control_words(same) == "w: fails, not told apart here"


def test_numbers_are_joined_with_their_errors_part_by_part() -> None:
    numbers = {
        "measured_2": 1.000969595, "standard_error_2": 0.00123481, "predicted_2": 1.0, "mean_difference_2": -0.5,
        "standard_error_of_difference_2": 0.25, "max_1": 3.0, "min_1": -1.5e-7, "failures_1": 0, "share_10": None,
    }  # fmt: skip
    assert number_lines(numbers) == [
        "part 1: min −1.5e−07, max 3, failures 0",
        "part 2: predicted 1, measured 1.00097 ± 0.00123, mean difference −0.5 ± 0.25",
        "part 10: fraction n/a",
    ]
    assert number_lines({"accuracy": 0.123456789, "standard_error": 1.0}) == ["accuracy 0.123457, standard error 1"]
    assert number_lines({}) == []
    shaky = {"measured": -0.91433350, "standard_error": 0.0123456, "slope": 1.23456789, "gain": 2.5}
    assert number_lines(shaky, {"measured": 2, "standard_error": 1, "slope": 15}) == [
        "measured −0.91 ± 0.01, slope 1.23457, gain 2.5"
    ]


def test_a_record_says_how_many_of_its_digits_stand(tmp_path) -> None:
    data = {"id": "C8", "numbers": {"slope": 0.5, "count": 3, "new": 1.0}}
    cell = new_code_cell("", outputs=[new_output("display_data", data={CLAIMS_TYPE: [data]})])
    nbformat.write(new_notebook(cells=[cell]), tmp_path / "01_page.ipynb")
    known = Tolerances(numbers={"C8:slope": Tolerance(4e-4, "rounding"), "C8:count": Tolerance(0.0, "exact")})
    path_beside(tmp_path / "01_page.ipynb").write_text(known.as_json())
    (found,) = read_page_checks(tmp_path / "01_page.ipynb")
    assert found["standing"] == {"slope": 3}


def test_every_stored_function_is_found_in_the_source() -> None:
    records = read_ledger(ROOT)
    assert len(records) > 300
    for one in records:
        path, line = source_line(one["function"]) or pytest.fail(f"{one['function']} is not found")
        text = (ROOT / path).read_text(encoding="utf-8").splitlines()[line - 1]
        assert any(f"def {name}(" in text for name in one["function"].split(".")), one["function"]
        assert f"rerun {one['page'].removeprefix('notebooks/')} -o" in commands(one)[0]
        assert (ROOT / f"{one['page']}.ipynb").is_file()


def test_functions_inside_functions_and_none(tmp_path: Path) -> None:
    write(tmp_path / "pyproject.toml", '[tool.bookkit]\npackages = ["code/mine"]\n')
    folder = tmp_path / "code" / "mine" / "part"
    folder.mkdir(parents=True)
    text = (
        "x = 1\n\n\ndef outer():\n    if x:\n        def inner(): ...\n\n\nclass Judge:\n    def __call__(self): ...\n"
    )
    (folder / "claims.py").write_text(text)
    found = {
        name: source_line(f"mine.part.claims.{name}", tmp_path)
        for name in ("outer", "outer.<locals>.inner", "outer.named_later", "Judge.__call__", "missing")
    }
    path = "code/mine/part/claims.py"
    assert list(found.values()) == [(path, 4), (path, 6), (path, 4), (path, 10), None]
    assert source_line("elsewhere.claims.outer", tmp_path) is None


def test_a_published_record_keeps_all_and_finds_its_way_back() -> None:
    [one] = on_page(record("B 3.1", part="open_questions"))
    made = as_published(one)
    assert {key: made[key] for key in record()} == record("B 3.1", part="open_questions")
    assert made["permalink"] == "book/ledger.html#claim-b-3-1"
    assert made["command"].endswith("attnlib claims out.ipynb 'B 3.1'")
    assert made["paper"] is None


def test_only_verdict_tables_and_known_claims_are_linked() -> None:
    row = "<div><b>{}</b><details><summary><span>title</span></summary><dl><dt>Rule</dt><dd>r</dd></dl></details></div>"
    table = f"<div class='verdict-table'>{row.format('C8')}{row.format('C9')}</div>"
    link = "<b><a href='../ledger.html#claim-c8'>C8</a></b>"
    assert linked(table, {"C8"}, "../ledger.html") == table.replace("<b>C8</b>", link)
    box = "<dt>Box</dt><dd><a href='t.html#b'>A box</a></dd></dl>"
    with_box = linked(table, {"C8"}, "../ledger.html", {"C8": "<a href='t.html#b'>A box</a>", "C9": "x"})
    assert with_box == table.replace("<b>C8</b>", link).replace("</dl>", box, 1)
    assert linked(table, {"C8"}, "") == table
    other = table.replace("verdict-table", "result-table")
    assert linked(other, {"C8"}, "../ledger.html") == other


# --- on a terminal --------------------------------------------------------------------------------------------------


@pytest.fixture
def notebook(tmp_path: Path) -> str:
    outside = record("C12b", verdict=OUTSIDE, expected=OUTSIDE, violated="d = 3 < 9", draws=1)
    store(tmp_path, "single_head/01_a", [record(), outside])
    store(tmp_path, "single_head/02_none", [])
    return str(tmp_path / "notebooks" / "single_head" / "01_a.ipynb")


def test_claims_of_a_notebook_are_printed(notebook: str, capsys: pytest.CaptureFixture) -> None:
    assert main(["claims", notebook, "c12B"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "C12b  outside its regime  Two steps suffice",
        "    statement   After *two* steps $y_i f_i > 0$ for all $i$",
        "    regime      d >= 100",
        "    broken here d = 3 < 9",
        "    predicted   1",
        "    measured    0.99 +- 0.02",
        "    rule        statistics: 4 s.e., over 1 draw",
        "    control     one step: fails",
        "    function    attnbook.single_head.two_steps.claims.interpolates",
    ]
    assert main(["claims", notebook]) == 0
    out = capsys.readouterr().out
    assert out.startswith("C1  holds  Two steps suffice\n")
    assert out.endswith("\n\n2 claims: 1 holds, 1 is outside its regime\n")


def test_claims_of_a_notebook_as_json(notebook: str, capsys: pytest.CaptureFixture) -> None:
    assert main(["claims", notebook, "C1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [record()]


@pytest.mark.parametrize(
    ("name", "ids", "complaint"),
    [
        ("01_a", ["C12"], "checks no claim 'C12'; did you mean C12b? it checks C1, C12b"),
        ("01_a", ["zebra"], "checks no claim 'zebra'; it checks C1, C12b"),
        ("02_none", [], "holds no checked claims: execute a page that checks some first"),
        ("missing", [], "cannot be read: No such file or directory"),
    ],
)
def test_claims_that_are_not_there_are_one_line(notebook: str, name, ids, complaint: str, capsys) -> None:
    assert main(["claims", notebook.replace("01_a", name), *ids]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("bookkit: error: ")
    assert err.endswith(complaint + "\n")
    assert err.count("\n") == 1
