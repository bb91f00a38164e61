"""Registration and replication without a book's pages: seeds by a public rule, fingerprints, counts, the committed table."""

import hashlib
import math
import re
from datetime import date
from pathlib import Path

import pytest
import torch

from bookkit.ledger.records import read_ledger
from bookkit.ledger.replicated import Standing, level_problem, sentence, standings, together
from bookkit.pages.catalogue import UserError
from bookkit.parser import program
from bookkit.replication import command, counts, registration
from bookkit.replication.registration import fingerprint, register, registered, unregistered
from bookkit.replication.seeds import release, rule, seeds
from bookkit.rules import LEDGER, LEVEL, within
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
    assert lines[2:5] == [' "because": {', '  "2026-11-22": "first",', '  "2026-11-22-2": "a sharper bound"']
    assert lines[7:-2] == [
        f'  "D1": ["{fingerprint(RECORD, book)}", "2026-11-22", "2026-11-22-2"],',
        f'  "D10": ["{fingerprint(other, book)}", "2026-11-22-2"]',
    ]


@pytest.mark.parametrize(
    "content",
    ["{}", "[]", "no JSON", '{"format": 1, "because": {}, "claims": {}}',
     '{"format": 2, "because": {}, "claims": {"D1": ["abc", "2026-11-22"]}}'],
)  # fmt: skip
def test_a_file_that_is_no_registration_is_refused(book: Path, content: str) -> None:
    write(book / registration.FILE, content)
    with pytest.raises(UserError, match="is no registration"):
        registered(book)


# --- counts -----------------------------------------------------------------------------------------------------------------


def _run(verdict: str = "holds", control: str = "fails", measured: float | None = 3.5, **more: object) -> list[dict]:
    told = {"verdict": verdict, "negative_control": {"wrong": "w", "verdict": control}}
    return [{**RECORD, **told, "numbers": {"predicted": 3.5, "measured": measured}, **more}]


def test_counts_of_a_claim_at_five_seeds() -> None:
    outside = "outside its regime"
    runs = [_run(), _run(measured=3.25), _run("fails", "fails"), _run(outside), _run(control="holds", measured=3.75)]
    found = counts.count(runs, {"D1": "abc"})["D1"]
    assert (found.seeds, found.as_expected, found.outside, found.control_told) == (5, 3, 1, 3)
    assert (found.number, found.low, found.high, found.fingerprint) == ("measured", 3.25, 3.75, "abc")
    assert counts.count([_run(), _run(false_alarm=0.5)], {"D1": ""})["D1"].false_alarm == 0.5  # the larger of the two
    with pytest.raises(ValueError, match="same claims"):
        counts.count([_run(), _run(id="D2")], {"D1": "abc", "D2": "abc"})
    found = counts.count([_run(outside, expected=outside)], {"D1": ""})["D1"]
    assert (found.as_expected, found.outside) == (1, 0)
    assert counts.count([_run("not contradicted"), _run("fails")], {"D1": ""})["D1"].as_expected == 1


def _share(inside: int, **more: object) -> list[dict]:
    found = within(torch.tensor([1.0] * inside + [0.0] * (5 - inside)), low=0.5)
    return _run(parts=[part.as_record() for part in found.parts], false_alarm=LEVEL, **more)


def test_draws_of_all_seeds_are_judged_together() -> None:
    """Five draws decide nothing, a hundred do; the table keeps what they say."""
    few, many = [counts.count([_share(3, measured=k) for k in range(n)], {"D1": ""})["D1"] for n in (1, 20)]
    assert (few.verdict, many.verdict) == ("not contradicted", "fails")  # 40 of 100 outside, where 5 % are claimed
    assert (few.as_expected, few.unexpected) == (1, 0)
    most = counts.count([_share(5 - (k == 3), measured=k) for k in range(20)], {"D1": "abc"})["D1"]
    assert (most.verdict, most.parts[0]["outside"], most.parts[0]["draws"]) == ("holds", 1, 100)
    page = {**RECORD, "parts": _share(5)[0]["parts"], "verdict": "holds"}
    shown = together(page, Standing(None, most))
    assert (shown["on_page"], shown["parts"][0]["draws"], page["parts"][0]["draws"]) == ("holds", 100, 5)
    assert together({**page, "verdict": "outside its regime"}, Standing(None, most))["parts"] == page["parts"]
    assert together(page, None) == together(page, Standing(None, counts.count([_run()], {"D1": ""})["D1"])) == page


def test_what_chance_has_no_part_in_is_counted_once() -> None:
    same = [_run(false_alarm=0.0), _run(false_alarm=0.0)]
    moved = [_run(measured=k, false_alarm=0.0) for k in (1, 2)]
    # All draws inside at each seed: whether they were others is seen on the rest of the page.
    inside = [_share(5, numbers={"failures": 0})[0] | {"id": "D2"} for _ in range(2)]
    for rest, fresh in ((same, False), (moved, True)):
        found = counts.count([[*one, two] for one, two in zip(rest, inside, strict=True)], {"D1": "", "D2": ""})
        assert (found["D1"].fresh, found["D2"].fresh) == (fresh, fresh)
        assert found["D2"].parts[0]["draws"] == (10 if fresh else 5)
        assert counts.tally(found.values()).judged == (4 if fresh else 2)


def test_ranges_span_both_ends_and_may_be_unknown() -> None:
    ends = [_run(numbers={"min": low, "max": high}) for low, high in ((0.5, 2.0), (0.25, 1.0))]
    found = counts.count(ends, {"D1": ""})["D1"]
    assert (found.number, found.low, found.high) == ("min to max", 0.25, 2.0)
    assert counts.count([_run(measured=None)], {"D1": ""})["D1"].low is None
    assert counts.count([_run(numbers={})], {"D1": ""})["D1"].number == ""


def test_chance_explains_as_many_surprises_as_the_rules_allow() -> None:
    def total(unexpected: int) -> counts.Tally:
        each = counts.Counts("p", "", 20, 20, 0, 20, LEVEL, "", None, None)
        worse = counts.Counts("p", "", 20, 20 - unexpected, 0, 19, LEVEL, "", None, None)
        return counts.tally([each] * 299 + [worse])

    assert (total(0).judged, total(0).expected) == (6000, pytest.approx(0.6))
    # Poisson with mean .6: two or more with probability 1 - e^-.6 (1 + .6) = .122, three or more with .023.
    assert total(2).probability == pytest.approx(1 - math.exp(-0.6) * 1.6)
    assert [total(k).at_level for k in (0, 1, 2, 3)] == [True, True, True, False]
    assert total(1).controls_missed == 1
    assert "2 of 6000 verdicts unexpected" in str(total(2))


def test_the_table_comes_back_as_it_was_written(book: Path) -> None:
    assert counts.read(book) is None
    claims = counts.count([_run(), _run()], {"D1": "abc"})
    found = counts.Replication("dice 1.2: seed k", 0, "2026-11-23", "python -m dice replicate", claims)
    path = counts.written(book, found)
    assert counts.read(book) == found
    assert sum('"D1"' in line for line in path.read_text(encoding="utf-8").splitlines()) == 1
    path.write_text("[]")
    with pytest.raises(UserError, match="no table of a replication"):
        counts.read(book)


def test_counts_of_a_claim_that_changed_since_are_not_shown(book: Path) -> None:
    register([RECORD], book, "first", date(2026, 11, 22))
    claims = counts.count([_run(), _run("fails")], {"D1": fingerprint(RECORD, book)})
    counts.written(book, counts.Replication("", 0, "2026-11-23", "", claims))
    standing = standings(book)["D1"]
    assert standing.held == "1/2"
    assert standing.replicated_words.startswith(
        "verdict as expected at 1 of 2 fresh seeds, negative control told apart at 1"
    )
    assert standing.registered_words == "2026-11-22"
    assert sentence([RECORD], {"D1": standing}) == (
        "at 2 fresh seeds 2 verdicts on 1 claims, 1 of them unexpected (by chance at most 0.0002 on average)"
    )
    small_book(book, "6.5", "6.25")
    register([RECORD], book, "a sharper bound", date(2026, 11, 24))
    standing = standings(book)["D1"]
    assert (standing.held, standing.replicated_words) == ("", "")
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
    assert len(written) > 400
    assert sorted(written - {record["id"] for record in read_ledger(ROOT)}) == [], "python -m attnlib notebooks PAGE"


def test_every_claim_is_registered_as_it_stands() -> None:
    changed = [record["id"] for record in unregistered(read_ledger(ROOT), ROOT)]
    assert changed == [], "python -m attnlib register --because '...'"


def test_claims_at_other_seeds_do_not_take_the_place_of_a_table() -> None:
    before = counts.read(ROOT)
    given = command.parser().parse_args(["two_steps", "--write", "--first", str(before.first + 1)])
    with pytest.raises(
        UserError, match=rf"from k = {before.first} on; got .* from {before.first + 1}: give --first {before.first} "
    ):
        command._require_same_seeds(before.rule, given, ROOT)
    command._require_same_seeds(before.rule, command.parser().parse_args(["--write"]), ROOT)  # all pages: all anew
    given.first = before.first
    command._require_same_seeds(before.rule, given, ROOT)


def test_the_table_tells_a_command_for_any_machine() -> None:
    given = "two_steps --write --first 20 -o /somewhere/runs --jobs 7 --cluster tcp://a:1 --series 2026-W47".split()
    assert command._said(command.parser().parse_args(given)) == (
        f"{program()} replicate --seeds 20 --first 20 --series 2026-W47 --write two_steps"
    )
