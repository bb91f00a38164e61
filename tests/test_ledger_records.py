"""The rules of the ledger without a book: what is a problem, what is counted, what a record says in words."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
import torch
from nbformat.v4 import new_code_cell, new_notebook, new_output

from bookkit import claims, rules
from bookkit.cli import main
from bookkit.ledger.page_claims import linked
from bookkit.ledger.records import (
    SAID,
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
    shown,
    source_line,
    whole,
)
from bookkit.ledger.words import control_words, number_lines, signs, verdict_words
from bookkit.pages.catalogue import UserError
from bookkit.pages.tolerances import Tolerance, Tolerances, path_beside
from bookkit.replication.registration import registered
from bookkit.results import CLAIMS_TYPE
from bookkit.settings import settings
from tests.house import ROOT
from tests.test_sphinx_extension import NEAR, record, store
from tests.tiny_book import write

OUTSIDE = "outside its regime"
FAILS = {"verdict": "fails", "expected": "fails"}
BROKEN = {"verdict": OUTSIDE, "expected": OUTSIDE}


def on_page(*records: dict, page: str = "notebooks/single_head/01_a") -> list[dict]:
    return [{"page": page, "page_title": "A page", **one} for one in records]


CONTROL_HOLDS = {"negative_control": {"wrong": "one step", "verdict": "holds", "told": [True]}}


def control(*told: bool, **more: bool) -> dict:
    return {"negative_control": {"wrong": "one step", "verdict": "fails", "told": list(told), **more}}


FEW = rules.within(torch.ones(5), low=0.5).parts[0].as_record()
WIDE = rules.within(torch.ones(5), high=9.0, share=1).parts[0].as_record()
STEP = rules.on_grid(rules.exactly(torch.ones(5), 1.0), 0.2).parts[0].as_record()
LOST = rules.within(torch.tensor([1.0, 1.0] + 3 * [float("nan")]), low=0.5).parts[0].as_record()


@pytest.mark.parametrize(
    ("records", "said"),
    [
        # Where the claim itself is known to fail, its negative control may hold.
        ([record(), record("C2", **FAILS, **CONTROL_HOLDS)], []),
        ([record(verdict="holds", expected="fails")], ["verdict is 'holds', expected 'fails'"]),
        ([record(verdict=OUTSIDE, violated="d = 3 < 9")], [f"verdict is '{OUTSIDE}', expected 'holds'", "d = 3 < 9"]),
        ([record(**CONTROL_HOLDS)], ["negative control (one step) holds too"]),
        ([record("C1"), record("c1")], ["claim-c1 is recorded 2 times"]),
        ([record(parts=[])], ["does not say what its rule could have refused"]),
        ([record(parts=[FEW])], ["it holds only at least 54.9 % of draws; claimed 95 %"]),
        ([record(parts=[FEW], coarse="five draws take an hour")], []),
        ([record("C2", parts=[FEW], **FAILS)], []),
        ([record(**control())], ["judged by other rules than the claim"]),
        ([record(parts=[NEAR, WIDE], **control(True, False))], ["no negative control refuses part 2 of 2"]),
        ([record(parts=[NEAR, WIDE], **control(True, False), coarse={"2": "it is proved"})], []),
        (
            [record(parts=[NEAR, WIDE], **control(True, False), coarse={"1": "it is proved"})],
            ["no negative control refuses part 2 of 2"],
        ),
        # Each coarse part has its own reason.
        (
            [record(parts=[NEAR, FEW], **control(True, True), coarse="five draws")],
            ["one reason for 2 parts: name the part of each"],
        ),
        (
            [record(parts=[NEAR, FEW], **control(True, True), coarse={"1": "an hour"})],
            ["part 2 of 2 holds only at least 54.9 %"],
        ),
        ([record(parts=[NEAR, FEW], **control(True, True), coarse={"2": "an hour"})], []),
        (
            [record(parts=[NEAR, FEW], **control(True, True), coarse={"2": "an hour", "3": "two"})],
            ["names no part: it has 2"],
        ),
        ([record(parts=[STEP])], ["it holds only to 20 %, the grid's step"]),
        # Values that are no number, in the claim and in its control.
        ([record("C2", parts=[LOST], **FAILS)], ["3 of 5 values are no number"]),
        ([record(**control(False, no_number=True))], ["is refused only because it makes values that are no number"]),
        ([record(parts=[NEAR, WIDE], **control(False, True))], []),
        ([record(**control(True, impossible=True))], ["no data could make its negative control (one step) hold"]),
    ],
)
def test_what_is_a_problem(records: list[dict], said: list[str]) -> None:
    found = problems(on_page(*records))
    assert len(found) == bool(said)
    assert all(words in found[0] for words in said)


def test_an_id_that_was_struck_is_never_used_again() -> None:
    """The list of what is no claim any more: what it leads to is a claim, and none of its ids is one."""
    told = (ROOT / "book/restated.md").read_text(encoding="utf-8").partition("## What is no claim any more")[2]
    rows = re.findall(r"^\| ([A-Z]+\d+\w*) \|.*\| (.*?) \| .*\|$", told, re.M)
    alive = {record["id"] for record in read_ledger(ROOT)}
    struck = {claim for claim, _ in rows}
    assert len(rows) == len(struck) > 100
    assert struck & (alive | set(registered(ROOT))) == set()
    assert {claim for _, now in rows for claim in re.findall(r"`(\w+)`", now)} <= alive


def test_names_are_those_of_the_claims_and_of_the_bibliography() -> None:
    assert set(SOURCES) == {str(source) for source in claims.Source}
    assert set(VERDICTS) == {str(verdict) for verdict in claims.Verdict}
    # The papers as the ledger cites them, part by part, by the bibliography's names.
    each = re.split(r"\n(?=@)", (ROOT / "book/references.bib").read_text(encoding="utf-8"))
    entries = dict(found for one in each for found in re.findall(r"@\w+\{(\w+),.*?arXiv:([\d.]+)", one, re.DOTALL))
    parts = settings(ROOT).parts
    ledger, chart = ((ROOT / "book" / name).read_text(encoding="utf-8") for name in ("ledger.md", "map.md"))
    cited = re.findall(r"The paper is \{cite:t\}`(\w+)`, \[arXiv ([\d.]+)\]", ledger)
    assert [entries[key] for key, _ in cited] == [paper for _, paper in cited]
    assert [paper for _, paper in cited] == [part.paper for part in parts.values() if part.paper]
    assert re.findall(r"^:part: (\w+)$", ledger, re.M) == list(parts)
    drawn = re.findall(r"^## Part (\w+): .*\n\n```\{book-map\} (\w+)$", chart, re.M)
    assert drawn == [(part.number, name) for name, part in parts.items()]
    assert all((ROOT / "notebooks" / part).is_dir() for part in parts)


# --- counts and order -------------------------------------------------------------------------------------------------


def test_the_sentence_counts_every_claim_once() -> None:
    many = [*[record()] * 14, *[record(**FAILS)] * 2, *[record(**BROKEN)] * 2]
    assert counts_sentence(many) == "18 claims: 14 hold, 2 fail as expected, 2 are outside their regime"
    assert counts_sentence([*many, record(verdict="fails")]).endswith("regime, 1 against expectation")
    assert counts_sentence([record()], "claim checked here") == "1 claim checked here: 1 holds"
    assert counts_sentence([]) == "0 claims"


OPEN = {"part": "open_questions"}
MANY = [
    *on_page(record("C1"), record("C2", source="derived"), record("C3", source="paper, second-hand")),
    *on_page(record("C4", **FAILS), page="notebooks/single_head/02_b"),
    *on_page(
        record("Q1", source="derived", **OPEN),
        record("Q2", source="authors' code", **BROKEN, **OPEN),
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
    found = [each["part"] for each in in_reading_order([record(part=part) for part in parts])]
    assert found == ["single_head", "in_context", "in_context", "open_questions", "zebra"]


# --- words ------------------------------------------------------------------------------------------------------------


def test_anchors_signs_and_verdicts_in_words() -> None:
    assert [anchor(name) for name in ("C8", "C12b", "B 3.1")] == ["claim-c8", "claim-c12b", "claim-b-3-1"]
    assert signs("x >= -2 and [-3..-1] +- 0.1, 10^-300 n^2") == "x ≥ −2 and [−3..−1] ± 0.1, 10⁻³⁰⁰ n²"
    for text in ("1e-10, d-1, two-step, (n)-1", "$x^2 >= -1$ +- 1"):  # formulas are not touched
        assert signs(text) == text
    assert verdict_words(record()) == "holds"
    assert verdict_words(record(**FAILS)) == "fails as expected"
    assert verdict_words(record(**BROKEN)) == OUTSIDE
    assert verdict_words(record(verdict="holds", expected="fails")) == "holds, against expectation"
    assert control_words(record()) == "one step: fails, told apart"
    assert control_words(record(**FAILS)) == "one step: fails, not told apart here"


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
    lines = number_lines(shaky, {"measured": 2, "standard_error": 1, "slope": 15})
    assert lines == ["measured −0.91 ± 0.01, slope 1.23457, gain 2.5"]


def test_a_record_says_how_many_of_its_digits_stand(tmp_path: Path) -> None:
    path = tmp_path / "01_page.ipynb"
    data = {"id": "C8", "numbers": {"slope": 0.5, "count": 3, "new": 1.0}}
    cell = new_code_cell("", outputs=[new_output("display_data", data={CLAIMS_TYPE: [data]})])
    nbformat.write(new_notebook(cells=[cell]), path)
    known = Tolerances(numbers={"C8:slope": Tolerance(4e-4, "rounding"), "C8:count": Tolerance(0.0, "exact")})
    path_beside(path).write_text(known.as_json())
    assert [each["standing"] for each in read_page_checks(path)] == [{"slope": 3}]


def test_only_verdict_tables_and_known_claims_are_linked() -> None:
    row = "<div><b>{}</b><details><summary><span>title</span></summary><dl><dt>Rule</dt><dd>r</dd></dl></details></div>"
    table = f"<div class='verdict-table'>{row.format('C8')}{row.format('C9')}</div>"
    with_link = table.replace("<b>C8</b>", "<b><a href='../ledger.html#claim-c8'>C8</a></b>")
    known = {"C8": "C8"}
    assert linked(table, known, "../ledger.html") == with_link
    boxes = {"C8": "<a href='t.html#b'>A box</a>", "C9": "x"}
    with_box = with_link.replace("</dl>", "<dt>Box</dt><dd><a href='t.html#b'>A box</a></dd></dl>", 1)
    assert linked(table, known, "../ledger.html", boxes) == with_box
    other = table.replace("verdict-table", "result-table")
    assert (linked(table, known, ""), linked(other, known, "../ledger.html")) == (table, other)
    renamed = with_link.replace(">C8<", ">III-C8<")
    assert linked(table, {"C8": "III-C8"}, "../ledger.html") == renamed


def test_numbers_that_nothing_names_leave_the_line_of_a_claim() -> None:
    row = "<b>C8</b><details><summary><span class='verdict-measured'>{}</span></summary><dl><dd>{}</dd></dl></details>"

    def left(measured: str) -> str:
        made = linked(f"<div class='verdict-table'>{row.format(measured, measured)}</div>", {"C8": "C8"}, "l.html")
        assert f"<dd>{measured}</dd>" in made  # the whole of it stays
        return re.findall("<span class='verdict-measured'>(.*?)</span>", made)[0]

    with_hint = linked("<div class='verdict-table'><p>Each line opens.</p></div>", {}, "l.html")
    assert re.findall("<span>(.*?)</span>", with_hint) == ["claim", "measured", "verdict"]
    assert [left(text) for text in ("[0.09107, 0.1763]; [0.5731, 0.7212]", "1.04 ± 0.02; 0.9 ± 1e-05; …")] == ["", ""]
    for told in ("40 of 40 draws, median 10⁻⁷⁶", "0.5 ± 0.1"):
        assert left(told) == told


def test_an_id_that_looks_like_a_page_carries_the_number_of_its_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    names = {record["id"]: shown(record["id"], record["part"]) for record in read_ledger(ROOT)}
    assert {names[each] for each in names if each != names[each]} == {
        *(f"III-{each}" for each in names if re.fullmatch(r"I\d+\w*", each)),
        *(f"VIII-{each}" for each in names if re.fullmatch(r"V\d+\w*", each)),
    }
    assert (names["I17"], names["V1"], names["C8"]) == ("III-I17", "VIII-V1", "C8")
    assert len(set(names.values())) == len(names)
    assert not [each for each in names if "-" in each]  # ledger.js takes off what stands before the hyphen


# --- the way back -----------------------------------------------------------------------------------------------------


def test_every_stored_function_is_found_in_the_source() -> None:
    records = read_ledger(ROOT)
    assert len(records) > 300
    for one in records:
        path, line = source_line(one["function"]) or pytest.fail(f"{one['function']} is not found")
        text = (ROOT / path).read_text(encoding="utf-8").splitlines()[line - 1]
        assert any(f"def {name}(" in text for name in one["function"].split(".")), one["function"]
        assert f"rerun {one['page'].removeprefix('notebooks/')} -o" in commands(one)[0]


def test_functions_inside_functions_and_none(tmp_path: Path) -> None:
    write(tmp_path / "pyproject.toml", '[tool.bookkit]\npackages = ["code/mine"]\n')
    text = "x = 1\n\ndef outer():\n    if x:\n        def inner(): ...\n\nclass Judge:\n    def __call__(self): ...\n"
    path = "code/mine/part/claims.py"
    write(tmp_path / path, text)
    lines = {"outer": 3, "outer.<locals>.inner": 5, "outer.named_later": 3, "Judge.__call__": 8}
    for name, line in lines.items():
        assert source_line(f"mine.part.claims.{name}", tmp_path) == (path, line)
    assert source_line("mine.part.claims.missing", tmp_path) is source_line("other.claims.outer", tmp_path) is None


def test_a_published_record_keeps_all_and_finds_its_way_back() -> None:
    [one] = on_page(record("B 3.1", **OPEN))
    made = as_published(one)
    assert {key: made[key] for key in record()} == record("B 3.1", **OPEN)
    assert made["permalink"] == "book/ledger.html#claim-b-3-1"
    assert made["command"].endswith("attnlib claims out.ipynb 'B 3.1'")
    assert made["paper"] is None


# --- on a terminal ----------------------------------------------------------------------------------------------------


@pytest.fixture
def notebook(tmp_path: Path) -> str:
    store(tmp_path, "single_head/01_a", [record(), record("C12b", **BROKEN, violated="d = 3 < 9", draws=1)])
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
    assert re.fullmatch(rf"bookkit: error: .*{re.escape(complaint)}\n", capsys.readouterr().err)


def test_claims_of_a_foreign_notebook_are_refused_or_harmless(notebook: str, capsys) -> None:
    content = Path(notebook).read_text(encoding="utf-8")
    Path(notebook).write_text(content.replace("Two steps suffice", "Two \\u001b[2Jsteps\\u0007"), encoding="utf-8")
    assert main(["claims", notebook, "C1"]) == 0
    assert capsys.readouterr().out.startswith(
        "C1  holds  Two \N{REPLACEMENT CHARACTER}[2Jsteps\N{REPLACEMENT CHARACTER}\n"
    )
    Path(notebook).write_text(content.replace('"measured"', '"seen"'), encoding="utf-8")
    assert main(["claims", notebook]) == 2
    assert "of another version, without measured: execute the page again" in capsys.readouterr().err


@pytest.mark.parametrize("name", [*SAID, "draws", "negative_control"])
def test_a_record_of_another_kind_is_named(name: str) -> None:
    assert whole([record()], "out.ipynb") == [record()]
    for other in (None, 0.5, []):
        with pytest.raises(
            UserError, match=r"^out\.ipynb holds (claims of another version, without .*|no checked claims)"
        ):
            whole([record(), record() | {name: other}], "out.ipynb")
    with pytest.raises(UserError, match="its control's verdict"):
        whole([record() | {"negative_control": {"wrong": "a sign"}}], "out.ipynb")


def test_letters_that_a_pipe_does_not_know_end_no_command() -> None:
    """What Windows does with a pipe: cp1252 has no letter for the products of tokens."""
    command = [sys.executable, "-m", "attnlib", "claims", "single_head/10_bound_by_bound"]
    environment = {**os.environ, "PYTHONIOENCODING": "cp1252", "PYTHONUTF8": "0"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"max |\\u03be" in done.stdout


# --- the chapter names every rule that a stored check names, and no rule that none uses ------------------------------

# The last column of the table under "Tolerance rules"; a bar inside a cell is written \|.
_SECTION = (ROOT / "book" / "ledger.md").read_text(encoding="utf-8").split("## Tolerance rules")[1].split("\n## ")[0]
_CELLS = [re.split(r"(?<!\\)\|", line)[-2] for line in _SECTION.splitlines() if line.startswith("| ")]
NAMES = {name.replace(r"\|", "|") for cell in _CELLS for name in re.findall(r"`([^`]+)`", cell)}
RULES = {record["rule"] for record in read_ledger(ROOT)}


def parts(rule: str) -> list[str]:
    """A rule's parts without what stands in brackets: "mean over draws, 4 s.e. and share; exact binomial test" has two."""
    while (shorter := re.sub(r"\s*\([^()]*\)", "", rule)) != rule:
        rule = shorter
    rule = rule.replace("draws and fresh points", "draws & fresh points")  # one rule
    return [part.replace("&", "and") for part in rule.split(" and ")]


def named(part: str) -> set[str]:
    """The names that a part begins with, after its number where it has one."""
    return {name for name in NAMES if re.sub(r"^[\d.]+(e[-+]?\d+)? ", "", part).startswith(name)}


def unnamed(rules: set[str]) -> list[str]:
    return [part for rule in rules for part in parts(rule) if not named(part)]


def test_the_list_names_the_rules_of_all_stored_checks_and_no_other() -> None:
    assert unnamed(RULES) == []
    assert NAMES - {name for rule in RULES for part in parts(rule) for name in named(part)} <= {"not judged"}


def test_a_rule_that_the_list_lacks_is_found_and_allowances_may_hold_any_words() -> None:
    assert unnamed({"within a factor 1.25 of mean field"}) == ["within a factor 1.25 of mean field"]
    assert unnamed({"mean over draws, 4.33 s.e. (Student's t) and about right"}) == ["about right"]
    allowance = "0.02 (4.8 s.e. of the fresh points, and third order (in d))"
    assert unnamed({f"mean difference within 6.59 s.e. (Student's t) + {allowance}"}) == []
