"""Registration and replication without a book's pages: seeds by a public rule, fingerprints, counts, the committed table."""

import copy
import hashlib
import json
import math
import re
from dataclasses import replace
from datetime import date
from pathlib import Path

import jupytext
import nbformat
import numpy as np
import pytest
import torch

from bookkit.code import code_of
from bookkit.ledger.records import page_name, problems, read_ledger, read_page_checks
from bookkit.ledger.replicated import Standing, level_problem, restated, sentence, stale_words, standings, together
from bookkit.pages.catalogue import UserError, find_pages, resolve_page
from bookkit.pages.notebooks import main as renewed
from bookkit.pages.parameters import page_parameters
from bookkit.pages.tolerances import NONE, Tolerance, Tolerances
from bookkit.pages.tolerances import read as read_tolerances
from bookkit.parser import program
from bookkit.replication import command, counts, registration
from bookkit.replication.registration import fingerprint, register, registered, unregistered
from bookkit.replication.runs import runs
from bookkit.replication.seeds import release, rule, seeds
from bookkit.results import CLAIMS_TYPE
from bookkit.rules import LEDGER, LEVEL, within
from bookkit.sharpness import of_record
from tests import page_checks
from tests.tiny_book import page_text, write

ROOT = Path(__file__).parents[1]

JUDGES = '''
import torch
from bookkit.claims import ClaimSet
from bookkit.rules import within

CLAIMS = ClaimSet("dice")
HIGH = {"of a die": 6.5}["of a die"]
OTHER = 1

def _largest(many):
    return many.amax(1)

@CLAIMS.claim("D1", wrong=0.5)
def largest(many, constant):
    """a title
    a statement
    wrong: half"""
    # A comment.
    return within(_largest(many), high=constant * HIGH, quantity="largest throw")
'''
PAGE = (
    ":tags: [parameters]\n\ncount: int = 400  # throws [>= 2]\nseed: int = 0  # of the throws [>= 0]",
    "from dice.claims import CLAIMS",
)
RECORD = {
    "id": "D1", "title": "a title", "statement": "a statement", "rule": "a rule", "predicted": "p", "measured": "m", "draws": 12,
    "expected": "holds", "verdict": "holds", "false_alarm": 1e-4, "negative_control": {"wrong": "half", "verdict": "fails"},
    "function": "dice.claims.largest", "page": "notebooks/dice/01_mean", "part": "dice",
    "numbers": {"measured": 3.5, "standard_error": 0.1},
}  # fmt: skip


def small_book(root: Path, old: str = "", new: str = "") -> Path:
    """A book of one page with one claim, in which `new` stands for `old`."""
    project = '[project]\nname = "dice"\nversion = "1.2"\n[tool.bookkit]\npackages = ["code/dice"]\n'
    files = {
        "code/dice/claims.py": JUDGES,
        "notebooks/dice/01_mean.md": page_text(*PAGE),
        "_toc.yml": "format: jb-book\n",
    }
    assert not old or any(old in text for text in files.values())
    for name, text in {**files, "pyproject.toml": project, "book/preface.md": ""}.items():
        write(root / name, text.replace(old, new) if old else text)
    return root


@pytest.fixture
def book(tmp_path: Path) -> Path:
    return small_book(tmp_path)


# --- seeds ------------------------------------------------------------------------------------------------------------------


def test_seeds_are_read_off_the_releases_number(book: Path) -> None:
    assert release(book) == "dice 1.2"
    by_hand = [int(hashlib.sha256(f"dice 1.2: seed {k}".encode()).hexdigest()[:8], 16) // 2 for k in range(4)]
    assert seeds("dice 1.2", 4) == by_hand
    assert seeds("dice 1.2", 2, first=2) == by_hand[2:]
    assert not set(seeds("dice 1.3", 4)) & set(by_hand)
    week = seeds("dice 1.2", 1, series="2026-W47")
    assert week == [int(hashlib.sha256(b"dice 1.2, 2026-W47: seed 0").hexdigest()[:8], 16) // 2]
    assert rule("dice 1.2", "2026-W47") == "dice 1.2, 2026-W47: seed k"
    with pytest.raises(UserError, match="seeds must be 1 to 10000"):
        seeds("dice 1.2", 0)
    write(book / "pyproject.toml", "[project]\nname = 'dice'\n")
    with pytest.raises(UserError, match="name and version"):
        release(book)


# --- registration -----------------------------------------------------------------------------------------------------------

DECIDES = [
    ("6.5", "6.4"),
    ("amax(1)", "amin(1)"),
    ("wrong=0.5", "wrong=0.6"),
    ("wrong=0.5", 'wrong=0.5, expected="fails"'),
    ("high=constant * HIGH", "low=constant * HIGH"),
    ('["of a die"]', '["of a coin"]'),  # words that are a key
    ("400", "300"),  # of the page's sizes
]
WORDS = [
    ("a title", "a better title"),
    ("a statement", "a better statement"),
    ("half", "one half"),
    ("wrong=0.5", 'source="measured", wrong=0.5, box="a-box", uses="D0"'),
    ("largest throw", "the largest throw"),
    ("A comment", "Another comment"),
    ("OTHER = 1", "OTHER = 2"),
    ("within(_largest(many), high", "within(\n        _largest(many),\n        high"),
    ("seed: int = 0", "seed: int = 1"),
]


def test_a_fingerprint_changes_with_what_decides_and_with_nothing_else(tmp_path: Path) -> None:
    before = fingerprint(RECORD, small_book(tmp_path / "before"))
    for old, new in DECIDES + WORDS:
        after = fingerprint(RECORD, small_book(tmp_path / f"{old}{new}"[:40].replace("/", " "), old, new))
        assert (after != before) == ((old, new) in DECIDES), (old, new)


def test_a_sentence_with_other_numbers_is_another_claim_and_one_with_other_words_is_not(book: Path) -> None:
    said = [
        {**RECORD, "statement": text} for text in ("the mean lies between 2.3 and 2.4", "it is between 2.3 and 2.4")
    ]
    same, other = fingerprint(said[0], book), {**RECORD, "statement": "the mean lies between 2.1 and 2.2"}
    assert fingerprint(said[1], book) == same != fingerprint(other, book)


def test_claims_are_registered_once_and_again_with_a_reason(book: Path) -> None:
    day, later = date(2026, 11, 22), date(2026, 11, 30)
    assert unregistered([RECORD], book) == [RECORD]
    with pytest.raises(UserError, match="because"):
        register([RECORD], book, " ", day)
    assert register([RECORD], book, "first", day) == ["D1"]
    assert register([RECORD], book, "first", day) == []
    small_book(book, "6.5", "6.25")
    assert unregistered([RECORD], book) == [RECORD]
    other = {**RECORD, "id": "D10"}
    assert register([RECORD], book, "a sharper bound", day) == ["D1"]
    assert register([RECORD, other], book, "a sharper bound", day) == [
        "D10"
    ]  # one reason of one day is one registration
    found = registered(book)["D1"]
    assert (found.day, found.times, found.because) == ("2026-11-22", 2, "a sharper bound")
    assert register([RECORD], book, "again", later) == []
    lines = (book / registration.FILE).read_text(encoding="utf-8").splitlines()
    assert lines[2:5] == [' "because": {', '  "2026-11-22": ["first", 0],', '  "2026-11-22-2": ["a sharper bound", 0]']
    assert lines[7:-3] == [
        f'  "D1": ["{fingerprint(RECORD, book)}", "2026-11-22", "2026-11-22-2"],',
        f'  "D10": ["{fingerprint(other, book)}", "2026-11-22-2"]',
    ]


@pytest.mark.parametrize(
    ("content", "told"),
    [("{}", "because"), ("[]", ""), ("no JSON", ""),
     ('{"format": 1, "because": {}, "claims": {}}', "another format"),
     ('{"format": 3, "because": {}, "claims": {"D1": ["abc", "2026-11-22"]}}', "without its reason"),
     ('{"format": 3, "because": {"2026-11-22": "why"}, "claims": {"D1": ["abc", "2026-11-22"]}}', ""),
     ('{"format": 3, "because": {"2026-11-22": ["why", 9], "2026-11-23": ["later", 8]}, "claims": {}}', "lies before"),
     ('{"format": 3, "because": {"2026-11-22": ["why", "0"]}, "claims": {"D1": ["abc", "2026-11-22"]}}', "does not say why")],
)  # fmt: skip
def test_a_file_that_is_no_registration_is_refused(book: Path, content: str, told: str) -> None:
    """For its own reason: what could be sealed is."""
    if content.startswith("{") and content != "{}":
        read = json.loads(content)
        content = json.dumps({**read, "seal": counts.sealed(read)})
    write(book / registration.FILE, content)
    with pytest.raises(UserError, match=f"is no registration: .*{told}.*: take it back from git"):
        registered(book)


def test_a_first_unseen_seed_that_somebody_lowers_is_refused(book: Path) -> None:
    register([RECORD], book, "first", date(2026, 11, 22), unseen=42)
    path = book / registration.FILE
    text = path.read_text(encoding="utf-8")
    assert text.count('["first", 42]') == 1
    assert registered(book)["D1"].unseen == 42
    path.write_text(text.replace('["first", 42]', '["first", 40]'), encoding="utf-8")
    with pytest.raises(UserError, match=r"edited by hand: take it back from git, for `.*register` alone writes it"):
        registered(book)


# --- runs -------------------------------------------------------------------------------------------------------------------


def test_a_page_is_judged_at_seeds_in_one_process(book: Path, tmp_path: Path) -> None:
    """The cells themselves, with another seed each; a seed whose run fails is told, and the others are kept."""
    cells = [
        PAGE[0],
        "import numpy as np\nimport torch\nfrom dice.claims import CLAIMS\nfrom bookkit.claims import verdict_table",
        "draws = torch.from_numpy(np.random.default_rng(seed).integers(1, 7, (count, 3)))",
        "assert seed != 6, 'six fails'\nverdict_table(CLAIMS.check(draws))",
    ]
    write(book / "notebooks/dice/01_mean.md", page_text(*cells))
    [page] = find_pages(book)
    one, two, six = runs(page, [4, 5, 6], tmp_path / "kept", code_of(book), 2)
    assert six.endswith("error: seed 6 failed, AssertionError: six fails")
    for seed, [record] in ((4, one), (5, two)):
        largest = np.random.default_rng(seed).integers(1, 7, (400, 3)).max(1)
        assert (record["id"], record["numbers"]["min"], record["draws"]) == ("D1", largest.min(), 400)
    (tmp_path / "kept/5.json").write_text("[]")  # what is there is not run again
    assert [*runs(page, [5, 4], tmp_path / "kept", code_of(book), 1)] == [[], one]


def test_a_page_says_the_same_without_kernel_and_figures(tmp_path: Path) -> None:
    """At the stored seed: the records that the page stores."""
    page = resolve_page("single_head/02_two_steps", ROOT)
    seed = next(each.default for each in page_parameters(page) if each.name == "seed")
    [run] = runs(page, [seed], tmp_path, code_of(ROOT), 1)
    known = read_tolerances(page.stored)
    for fresh, stored in zip(run, read_page_checks(page.stored), strict=True):
        assert (fresh["id"], fresh["verdict"]) == (stored["id"], stored["verdict"])
        assert [*fresh["numbers"]] == [*stored["numbers"]]
        names = [name for name, value in stored["numbers"].items() if isinstance(value, float)]
        assert all(known.same(f"{fresh['id']}:{n}", stored["numbers"][n], fresh["numbers"][n]) for n in names)


def test_a_renewal_says_what_moved_and_which_verdict_is_unexpected(
    book: Path, capsys: pytest.CaptureFixture, monkeypatch
) -> None:
    """A study or a figure that was changed, and a page that was run again: the command says what the page says now.

    Nothing else would say it of a figure that is wrong: a stored page is compared with what its own code draws. Exit code 1 for a verdict.
    """
    monkeypatch.chdir(book)
    write(book / "requirements.txt", "")
    judge = "import torch\nfrom bookkit.claims import verdict_table\nfrom dice.claims import CLAIMS\n"
    draw = "import matplotlib.pyplot as plt\nfrom bookkit.figures import measured, use_style\nuse_style()\n"
    bars = "  code cell 2, output 1, image/png: panel 1, line 2, points 1 2: stored 0.3, now 0.4"
    for factor, bar, moved, unexpected in (
        (1.0, 2, "", ""),
        (1.0, 1, bars, ""),
        (1.15, 1, "now 'fails'", "\nD1: fails, "),
    ):
        shown = f"verdict_table(CLAIMS.check({factor} * torch.full((count, 3), 6.0)))"
        figure = "made, axes = plt.subplots()\nplt.close(made)\naxes.set(ylim=(0, 10))\n"
        figure += f"measured(axes, [1, 2], [5, 5], error=[{bar}, {bar}])\nmade"
        write(book / "notebooks/dice/01_mean.md", page_text(PAGE[0], draw + figure, judge + shown))
        assert renewed(["--no-cache", "--jobs", "1"]) == bool(unexpected)
        told = capsys.readouterr()
        assert "renewed: notebooks/dice/01_mean.ipynb\n" in told.out
        assert moved in told.out
        assert bool(moved) == ("stored" in told.out)
        assert (f"{unexpected}expected holds; measured [6.9, 6.9]" in told.err) == bool(unexpected)


# --- counts -----------------------------------------------------------------------------------------------------------------


def _run(verdict: str = "holds", control: str = "fails", measured: float | None = 3.5, **more: object) -> list[dict]:
    told = {"verdict": verdict, "negative_control": {"wrong": "w", "verdict": control}}
    return [{**RECORD, **told, "numbers": {"predicted": 3.5, "measured": measured}, **more}]


def _counted(runs: list[list[dict]], marks: dict[str, str] | None = None, **more) -> dict[str, counts.Counts]:
    """With the first run as the stored page."""
    return counts.count(runs[0], runs, marks or {record["id"]: "" for record in runs[0]}, **more)


def test_counts_of_a_claim_at_five_seeds() -> None:
    outside = "outside its regime"
    runs = [_run(), _run(measured=3.25), _run("fails", "fails"), _run(outside), _run(control="holds", measured=3.75)]
    found = _counted(runs, {"D1": "abc"}, first=7)["D1"]
    assert (found.seeds, found.as_expected, found.outside, found.control_told) == (5, 3, 1, 3)
    assert (found.verdicts, found.told, found.first) == ("hhfoh", "11010", 7)
    assert (found.number, found.low, found.high, found.fingerprint) == ("measured", 3.25, 3.75, "abc")
    assert _counted([_run(), _run(false_alarm=0.5)])["D1"].false_alarm == 0.5  # the larger of the two
    with pytest.raises(ValueError, match="same claims"):
        counts.count(_run(), [_run(), _run(id="D2")], {"D1": "abc", "D2": "abc"})
    found = _counted([_run(outside, expected=outside)])["D1"]
    assert (found.as_expected, found.outside) == (1, 0)
    assert _counted([_run("not contradicted"), _run("fails")])["D1"].as_expected == 1


def _share(inside: int, **more: object) -> list[dict]:
    found = within(torch.tensor([1.0] * inside + [0.0] * (5 - inside)), low=0.5)
    return _run(parts=[part.as_record() for part in found.parts], false_alarm=LEVEL, **more)


def test_draws_of_all_seeds_are_judged_together() -> None:
    """Five draws decide nothing, a hundred do; the table keeps what they say."""
    few, many = [_counted([_share(3, measured=k) for k in range(n)])["D1"] for n in (1, 20)]
    assert (few.verdict, many.verdict) == ("not contradicted", "fails")  # 40 of 100 outside, where 5 % are claimed
    assert (few.as_expected, few.unexpected) == (1, 0)
    most = _counted([_share(5 - (k == 3), measured=k) for k in range(20)], {"D1": "abc"})["D1"]
    assert (most.verdict, most.parts[0].outside, most.parts[0].draws) == ("holds", 1, 100)
    assert most.columns[0]["outside"] == [0, 0, 0, 1, *[0] * 16]
    assert most.columns[0]["draws"] == 5
    # A seed outside the regime measured nothing, and says nothing.
    less = _counted([_share(5, measured=k) for k in range(3)] + [_run("outside its regime", parts=[])])["D1"]
    assert (less.seeds, less.parts[0].draws, less.verdict) == (4, 15, "holds")
    # What is no number at one seed refuses all; other rules at one seed are no claim.
    nan = within(torch.tensor([1.0, math.nan]), low=0.5).parts
    lost = _counted([_share(5, measured=k) for k in range(3)] + [_run(parts=[part.as_record() for part in nan])])["D1"]
    assert (lost.verdict, lost.parts[0].missing) == ("fails", 1)
    with pytest.raises(ValueError, match="same rules at every seed"):
        _counted([_share(5), _run(parts=_share(5)[0]["parts"] * 2)])
    # Sums over seeds, as older tables have them, are taken as they are.
    sums = tuple(part.as_record() for part in most.parts)
    assert replace(most, columns=sums, joined=True).parts == most.parts


SHARP = {"told": [True], "verdict": "fails", "wrong": "half"}


def test_a_page_speaks_for_itself_and_all_seeds_beside_it() -> None:
    """A page that fails is a problem whatever other seeds say, and so is a page that holds where they fail."""
    good = _counted([_share(5, measured=k) for k in range(20)])["D1"]
    bad = _counted([_share(3, measured=k) for k in range(20)])["D1"]
    page = {
        **RECORD,
        "parts": _share(5)[0]["parts"],
        "verdict": "holds",
        "negative_control": SHARP,
        "coarse": {"1": "few"},
    }
    shown = together(page, Standing(None, good))
    assert {name: value for name, value in shown.items() if name != "pooled"} == page  # nothing is replaced
    assert (shown["pooled"]["verdict"], shown["pooled"]["seeds"]) == ("holds", 20)
    assert (of_record(page)[0].draws, of_record(shown)[0].draws) == (5, 100)  # its sharpness is that of all seeds
    assert together(page, None) == together(page, Standing(None, _counted([_run()])["D1"])) == page

    def told(verdict: str, among: counts.Counts | None) -> list[str]:
        return [p for p in problems([together({**page, "verdict": verdict}, Standing(None, among))]) if "expected" in p]

    assert told("holds", good) == told("holds", None) == []
    assert "verdict is 'fails', expected 'holds'" in told("fails", good)[0]
    assert "the draws of all 20 seeds together say 'fails', expected 'holds'" in told("holds", bad)[0]
    assert told("not contradicted", good) == []  # the page's few draws decide nothing, those of all seeds do
    assert "verdict is 'not contradicted'" in told("not contradicted", None)[0]


def test_the_page_of_today_is_compared_with_the_page_that_was_replicated(tmp_path: Path) -> None:
    numbers = {"measured": 3.5, "count": 7}
    known = _counted([_run(numbers=numbers), _run(numbers=numbers)], tables={"a.npz": "ab"})["D1"]
    loose = Tolerances(numbers={"D1:measured": Tolerance(1e-3, "rounding")})

    def stale(tables: dict[str, str] | None = None, allowed: Tolerances = NONE, **now) -> str:
        return known.stale({**RECORD, "numbers": {**numbers, **now}}, tables or {"a.npz": "ab"}, allowed)

    assert stale() == stale(measured=3.5 * (1 + 1e-7)) == stale(measured=3.5009, allowed=loose) == ""
    assert (
        stale(measured=3.5009) == stale(measured=3.5009, allowed=NONE) == "the page's measured is 3.5009, and was 3.5"
    )
    assert "the page's measured" in stale(measured=3.502, allowed=loose)
    assert "the page's count is 8, and was 7" in stale(count=8)
    assert stale(more=1.0) == "the page's number more is new"
    assert stale({"a.npz": "cd"}) == "the page reads other tables now"
    assert "other tables" in stale({"a.npz": "ab", "b.npz": "ef"})
    assert "measured is nan" in stale(measured=math.nan)
    assert "count is None" in stale(count=None)


def test_what_chance_has_no_part_in_is_counted_once() -> None:
    same = [_run(false_alarm=0.0), _run(false_alarm=0.0)]
    moved = [_run(measured=k, false_alarm=0.0) for k in (1, 2)]
    # All draws inside at each seed: whether they were others is seen on the rest of the page.
    inside = [_share(5, numbers={"failures": 0})[0] | {"id": "D2"} for _ in range(2)]
    for rest, fresh in ((same, False), (moved, True)):
        found = _counted([[*one, two] for one, two in zip(rest, inside, strict=True)])
        assert (found["D1"].fresh, found["D2"].fresh) == (fresh, fresh)
        assert found["D2"].parts[0].draws == (10 if fresh else 5)
        assert counts.tally(found.values()).judged == (4 if fresh else 2)


def test_ranges_span_both_ends_and_may_be_unknown() -> None:
    ends = [_run(numbers={"min": low, "max": high}) for low, high in ((0.5, 2.0), (0.25, 1.0))]
    found = _counted(ends)["D1"]
    assert (found.number, found.low, found.high) == ("min to max", 0.25, 2.0)
    assert _counted([_run(measured=None)])["D1"].low is None
    assert _counted([_run(numbers={})])["D1"].number == ""


def test_chance_explains_as_many_surprises_as_the_rules_allow() -> None:
    def total(unexpected: int) -> counts.Tally:
        each = counts.Counts("p", "", 0, "holds", "h" * 20, "1" * 20, LEVEL, "", None, None)
        worse = replace(each, verdicts="h" * (20 - unexpected) + "f" * unexpected, told="0" + "1" * 19)
        return counts.tally([each] * 299 + [worse])

    assert (total(0).judged, total(0).expected) == (6000, pytest.approx(0.6))
    # Poisson with mean .6: two or more with probability 1 - e^-.6 (1 + .6) = .122, three or more with .023.
    assert total(2).probability == pytest.approx(1 - math.exp(-0.6) * 1.6)
    assert [total(k).at_level for k in (0, 1, 2, 3)] == [True, True, True, False]
    assert total(1).controls_missed == 1
    assert "2 of 6000 verdicts unexpected" in str(total(2))


def test_the_table_comes_back_as_it_was_written(book: Path) -> None:
    assert counts.read(book) is None
    claims = _counted([_run(parts=_share(4)[0]["parts"]), _run(parts=_share(5)[0]["parts"])], {"D1": "abc"}, first=40)
    found = counts.Replication("dice 1.2: seed k", "2026-11-23", "python -m dice replicate", claims)
    path = counts.written(book, found)
    assert counts.read(book) == found
    assert found.looked == 42
    assert sum('"D1"' in line for line in path.read_text(encoding="utf-8").splitlines()) == 1


EDITS = {
    "a verdict": lambda table: table["claims"]["D1"].update(verdicts="hhh"),
    "a number of a seed": lambda table: table["claims"]["D1"]["columns"][0].update(outside=[0, 0, 0]),
    "a number of the page": lambda table: table["claims"]["D1"]["numbers"].update(measured=3.25),
    "the first seed": lambda table: table["claims"]["D1"].update(first=0),
    "a claim that goes": lambda table: table["claims"].clear(),
    "the seal": lambda table: table.update(seal="0" * 64),
    "another format": lambda table: table.update(format=1),
    "nothing left": lambda table: table.clear(),
}


@pytest.mark.parametrize("edit", EDITS)
def test_a_table_that_was_edited_is_refused(book: Path, edit: str) -> None:
    runs = [_share(4, verdict="fails"), _share(5), _share(3)]
    path = counts.written(book, counts.Replication("", "", "", _counted(runs, first=40)))
    table = json.loads(path.read_text(encoding="utf-8"))
    EDITS[edit](changed := copy.deepcopy(table))
    assert changed != table
    write(path, json.dumps(changed))
    with pytest.raises(UserError, match=r"no table of a replication: .*replicate --seeds 20 --write"):
        counts.read(book)
    for text in ("[]", "null", path.read_text(encoding="utf-8")[:99]):
        write(path, text)
        with pytest.raises(UserError, match="no table of a replication"):
            counts.read(book)


def test_only_seeds_at_which_nobody_had_looked_count(book: Path) -> None:
    """A judge that was changed after results had been seen is judged at later seeds; what was seen at the old ones does not count."""
    register([RECORD], book, "first", date(2026, 11, 22), 5)
    at = {"D1": fingerprint(RECORD, book)}
    for first, held in ((0, ""), (4, ""), (5, "2/2"), (40, "2/2")):
        counts.written(book, counts.Replication("", "", "", _counted([_run(), _run()], at, first=first)))
        assert standings(book)["D1"].held == held, first
    small_book(book, "6.5", "6.25")
    with pytest.raises(UserError, match=r"unseen must be 42 or more, .*; got 41"):
        register([RECORD], book, "a sharper bound", date(2026, 11, 24), 41)
    register([RECORD], book, "a sharper bound", date(2026, 11, 24))
    assert registered(book)["D1"].unseen == 42  # the table holds k = 40, 41


def test_a_stale_claim_shows_no_count_and_is_told(book: Path) -> None:
    register([RECORD], book, "first", date(2026, 11, 22))
    page = {"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    shown = {**RECORD, "negative_control": SHARP}
    output = {"output_type": "display_data", "metadata": {}, "data": {CLAIMS_TYPE: [shown]}}
    cell = {"cell_type": "code", "id": "a", "metadata": {}, "source": "", "execution_count": 1, "outputs": [output]}
    write(book / "notebooks/dice/01_mean.ipynb", json.dumps(page | {"cells": [cell]}))
    claims = counts.count([RECORD], [_run(), _run()], {"D1": fingerprint(RECORD, book)})
    counts.written(book, counts.Replication("", "", "", claims))
    known = standings(book)
    assert (known["D1"].held, known["D1"].stale, stale_words(known)) == ("2/2", "", "")
    moved = {**shown, "numbers": {**RECORD["numbers"], "measured": 3.75}}
    output["data"][CLAIMS_TYPE] = [moved]
    write(book / "notebooks/dice/01_mean.ipynb", json.dumps(page | {"cells": [cell]}) + "\n")
    known = standings(book)
    assert (known["D1"].held, known["D1"].stale) == ("", "the page's measured is 3.75, and was 3.5")
    assert known["D1"].replicated_words.startswith("stale, so nothing is counted: the page's measured is 3.75")
    assert known["D1"].as_published()["stale"] == known["D1"].stale
    assert known["D1"].as_published()["replication"] is None
    assert together(moved, known["D1"]) == moved
    assert stale_words(known).startswith("1 claims were judged at fresh seeds before they or their pages changed")


def test_a_claim_whose_evidence_shows_no_number_is_stale_by_what_its_rules_made() -> None:
    part = {"rule": "mean", "centre": 1.05, "draws": 40, "holds": True, "high": math.inf}
    record = {**RECORD, "numbers": {}, "parts": [part]}
    known = replace(_counted([_run(), _run()], {"D1": "a"})["D1"], numbers=counts.own_numbers(record), tables="")
    assert known.numbers == {"part 1, centre": 1.05}
    assert (
        known.stale(record, {}, NONE) == known.stale({**record, "parts": [{**part, "centre": 1.0509}]}, {}, NONE) == ""
    )
    moved = {**record, "parts": [{**part, "centre": 1.0}]}
    assert known.stale(moved, {}, NONE) == "the page's part 1, centre is 1.0, and was 1.05"
    assert known.stale({**record, "parts": []}, {}, NONE) == "the page's number part 1, centre is gone"


def test_counts_of_a_claim_that_changed_since_are_not_shown(book: Path) -> None:
    register([RECORD], book, "first", date(2026, 11, 22))
    claims = _counted([_run(), _run("fails")], {"D1": fingerprint(RECORD, book)})
    counts.written(book, counts.Replication("", "2026-11-23", "", claims))
    standing = standings(book)["D1"]
    assert standing.held == "1/2"
    assert standing.replicated_words.startswith(
        "verdict as expected at 1 of 2 fresh seeds, negative control told apart at 1"
    )
    assert standing.registered_words == "2026-11-22"
    assert sentence([RECORD], {"D1": standing}) == (
        "at 2 fresh seeds, 1 of 2 verdicts on 1 claims came out as expected; chance alone would change at most 0.0002 of them, on average"
    )
    small_book(book, "6.5", "6.25")
    register([RECORD], book, "a sharper bound", date(2026, 11, 24))
    standing = standings(book)["D1"]
    assert standing.held == ""
    assert standing.replicated_words == "stale, so nothing is counted: the claim was registered anew since"
    assert standing.registered_words == "again on 2026-11-24, because a sharper bound"
    assert Standing(None, None).as_published() == {"registered": None, "replication": None}


# --- this book ----------------------------------------------------------------------------------------------------------------


def test_the_rules_of_all_claims_together_keep_the_level() -> None:
    records = read_ledger(ROOT)
    assert level_problem(records) == ""
    assert 0 < sum(record["false_alarm"] for record in records) <= LEDGER
    assert "more than the ledger's level" in level_problem([*records, {"false_alarm": LEDGER}])


def test_every_claim_of_the_code_is_on_a_stored_page() -> None:
    """`make check` runs it first: a claim that no page has judged is half a claim."""
    code = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "book" / "attnbook").rglob("*.py"))
    written = set(re.findall(r"\.claim\(\s*\"(\w+)\"", code))
    assert len(written) > 300
    assert sorted(written - {record["id"] for record in read_ledger(ROOT)}) == [], "python -m attnlib notebooks PAGE"


def test_every_claim_is_registered_as_it_stands() -> None:
    changed = unregistered(read_ledger(ROOT), ROOT)
    pages = {page_name(record) for record in changed}
    older = [
        page.name
        for page in find_pages(ROOT)
        if page.name in pages and page_checks.pair(jupytext.read(page.source), nbformat.read(page.stored, 4))
    ]
    run = f"run the page first: `attnlib notebooks {' '.join(older)}`" if older else ""
    assert [record["id"] for record in changed] == [], run or "python -m attnlib register --because '...'"


@pytest.mark.parametrize("content", ["", "[]", '{"claims": []}', '{"claims": {"C8": {"before": 3, "because": "x"}}}',
                                     '{"claims": {"C8": {"before": "x"}}}', '<<<<<<< HEAD\n{"claims": {}}'])  # fmt: skip
def test_a_history_that_is_damaged_is_refused_in_a_sentence(tmp_path: Path, content: str) -> None:
    write(tmp_path / "book" / "restated.json", content)
    with pytest.raises(UserError, match=r"^book/restated\.json must hold what each .*: take it back from git \("):
        restated(tmp_path)


def past(because: dict, claims: dict, said: list) -> str:
    """Of the first 31 registrations which claims were in each, and of 217 claims that they are told as restated."""
    fixed = list(because)[:31]
    rows = {claim: [each for each in row[1:] if each in fixed] for claim, row in claims.items()}
    kept = [fixed, {claim: row for claim, row in sorted(rows.items()) if row}, sorted(said[:217])]
    return hashlib.sha256(json.dumps(kept).encode()).hexdigest()[:16]


def test_history_is_continued_and_never_rewritten() -> None:
    """How often a claim was registered, and what it said before, is what a reader judges it by: where one is struck, its rows go."""
    (because, claims), said = registration._read(ROOT), list(restated(ROOT))
    told = past(because, claims, said)
    assert told == "87e2c92aced99e78"
    shorter = {
        claim: row[:1] + row[2:] for claim, row in claims.items() if claim == "Q39b"
    }  # sealed anew, both pass their readers
    assert past(because, {**claims, **shorter}, said) != told != past(because, claims, said[1:])


def test_seeds_that_were_looked_at_and_other_series_do_not_join_the_table() -> None:
    before, page = counts.read(ROOT), "single_head/02_two_steps"
    least = max(
        each.unseen for c, each in registered(ROOT).items() if c in before.claims and before.claims[c].page == page
    )
    with pytest.raises(UserError, match=rf"--first must be {least} or more, .*; got {least - 1}"):
        command._unseen([page], least - 1, ROOT)
    assert [command._unseen([page], first, ROOT) for first in (None, least, least + 7)] == [least, least, least + 7]
    given = command.parser().parse_args(["two_steps", "--write"])
    with pytest.raises(UserError, match=r"seeds of .*; got 'a, b: seed k': give that series"):
        command._require_same_rule("a, b: seed k", given, ROOT)
    command._require_same_rule("a, b: seed k", command.parser().parse_args(["--write"]), ROOT)  # all pages: all anew
    command._require_same_rule(before.rule, given, ROOT)


def test_the_table_tells_a_command_for_any_machine() -> None:
    given = "two_steps --write --first 20 -o /somewhere/runs --jobs 7 --series 2026-W47".split()
    assert command._said(command.parser().parse_args(given)) == (
        f"{program()} replicate --seeds 20 --first 20 --series 2026-W47 --write two_steps"
    )
