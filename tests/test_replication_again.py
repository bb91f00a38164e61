"""The table of fresh seeds against what made it. Whoever edits it and seals it again meets three tests: letters follow from numbers,
controls that were not told apart are listed here too, and a page is judged again at one of its seeds."""

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bookkit.code import code_of
from bookkit.ledger.records import read_ledger
from bookkit.pages.catalogue import resolve_page
from bookkit.pages.times import page_times
from bookkit.replication import counts
from bookkit.replication.counts import Counts
from bookkit.replication.runs import runs
from bookkit.replication.seeds import release, seeds
from bookkit.sharpness import of_record, verdict_of
from tests.house import ROOT

CLAIMS = counts.read(ROOT).claims

# Claims whose negative control was not told apart at every seed: no number of the table says it, so it is said twice.
MISSED = {
    "L14": "11110001111101111110",
    "Q10": "11111011011101111011",
    "Q53b": "11111111011111111111",
    "Q61": "11111111111111111011",
    "Q78": "11111111111110111111",
    "R3": "11111111110111111111",
    "S11": "11111111011011111111",
    "S2": "11110111111101111000",
    "S2b": "01110111111110111101",
    "TS38f": "11111111010111111111",
}


def otherwise(claims: dict[str, Counts]) -> list[str]:
    """A sentence for each claim whose letters are not those that its numbers, or the list above, give."""
    told = []
    for claim, each in claims.items():
        if each.told != MISSED.get(claim, "1" * each.seeds):
            told.append(
                f"{claim}: its control was told apart at {each.told}, listed {MISSED.get(claim, 'as told everywhere')}"
            )
        if each.joined:  # sums over the seeds say nothing of one
            continue
        for k, letter in enumerate(each.verdicts):
            parts = [part for part in (counts._at(column, k) for column in each.columns) if part]
            if letter != (counts.LETTERS[verdict_of(of_record({"parts": parts}))] if parts else "o"):
                told.append(f"{claim}: seed {each.first + k} has the letter {letter!r}, and its numbers say otherwise")
    return told


def test_letters_follow_from_the_numbers_beside_them() -> None:
    assert otherwise(CLAIMS) == []


@pytest.mark.parametrize("claim", ["Q10", "TS29", "I25"])
def test_a_letter_that_was_changed_is_found(claim: str) -> None:
    """In the table itself, where a seal made anew says nothing."""
    each, other = CLAIMS[claim], {"0": "1", "1": "0", "h": "f", "u": "f", "f": "h"}
    for name, row in (("told", each.told), ("verdicts", each.verdicts)):
        for k in range(each.seeds):
            changed = replace(each, **{name: row[:k] + other[row[k]] + row[k + 1 :]})
            (told,) = otherwise({claim: changed})
            assert told.startswith(f"{claim}: {'its control' if name == 'told' else f'seed {each.first + k}'}")


def fixed_otherwise(claims: dict[str, Counts], records: dict[str, dict[str, Any]]) -> list[str]:
    """A sentence for each thing that is one at every seed (rule, draws, level, limits) and another on the page itself."""
    told = []
    for claim, each in claims.items():
        columns = [] if each.joined else zip(each.columns, records[claim].get("parts", []), strict=False)
        for place, (column, own) in enumerate(columns, 1):
            for name in {*column, *own} - {"value"}:  # a measurement, which may come out alike at the seeds
                kept, shown = column.get(name), own.get(name)
                close = isinstance(kept, float) and isinstance(shown, float) and math.isclose(kept, shown, rel_tol=1e-6)
                if name in column and name in own and not isinstance(kept, list) and kept != shown and not close:
                    told.append(f"{claim}: part {place} has the {name} {kept} at every seed, and {shown} on its page")
    return told


def test_what_is_one_at_every_seed_is_that_of_the_page() -> None:
    records = {record["id"]: record for record in read_ledger(ROOT)}
    assert fixed_otherwise(CLAIMS, records) == []
    f13 = CLAIMS["F13"]  # as a forger would: more draws make an interval look narrower
    changed = replace(f13, columns=({**f13.columns[0], "draws": 80}, *f13.columns[1:]))
    assert fixed_otherwise({"F13": changed}, records) == [
        "F13: part 1 has the draws 80 at every seed, and 40 on its page"
    ]


# --- judged again -------------------------------------------------------------------------------------------------------------


def drawn(choices: Sequence[Any], *salt: str) -> Any:
    """One of them, by the table and all code that pages import: nobody chooses, and each change draws anew."""
    text = "\n".join((*salt, code_of(ROOT).hash())).encode() + (ROOT / counts.FILE).read_bytes()
    return choices[int.from_bytes(hashlib.sha256(text).digest()[:8], "big") % len(choices)]


def pages(seconds: float) -> list[str]:
    """Pages with claims that take less, on one core; a page that was never timed is none of them."""
    quick = {name for name, time in page_times(ROOT).items() if time.seconds < seconds}
    return sorted(quick & {each.page for each in CLAIMS.values()})


def judged_again(name: str, number: int, folder: Path) -> dict[str, tuple[Counts, dict[str, Any]]]:
    """The claims of a page at the seed of that number alone, and the numbers of each."""
    page = resolve_page(name, ROOT)
    [run] = runs(page, seeds(release(ROOT), 1, first=number), folder, code_of(ROOT), 1)
    assert not isinstance(run, str), run
    run = [{**record, "page": name} for record in run]
    found = counts.count(run, [run], {record["id"]: "" for record in run}, number)
    return {record["id"]: (found[record["id"]], record["numbers"]) for record in run}


def differences(stored: Counts, fresh: Counts, numbers: dict[str, Any]) -> Iterator[str]:
    """A sentence for each thing that the table says of the seed `fresh.first`, and that is not so."""
    k = fresh.first - stored.first
    pairs: list[tuple[str, Any, Any]] = [
        ("page", stored.page, fresh.page),
        ("expected", stored.expected, fresh.expected),
        ("verdict", stored.verdicts[k], fresh.verdicts),
        ("control", stored.told[k], fresh.told),
    ]
    if not stored.joined:
        for place, column in enumerate(stored.columns):
            kept = {name: value[k] if isinstance(value, list) else value for name, value in column.items()}
            found = fresh.columns[place] if fresh.columns else dict.fromkeys(kept)
            pairs += [(f"part {place + 1}, {name}", kept.get(name), found.get(name)) for name in {**kept, **found}]
    yield from (f"{what} is {old!r}, and judged again {new!r}" for what, old, new in pairs if not same(old, new))
    if stored.low is not None and stored.high is not None:
        names = stored.number.split(" to ")
        low, high = numbers[names[0]], numbers[names[-1]]
        allowed = 1e-3 * max(abs(stored.low), abs(stored.high)) + 1e-9
        if not stored.low - allowed <= low <= high <= stored.high + allowed:
            yield f"{stored.number} is {stored.low} to {stored.high}, and judged again {low} to {high}"


def same(old: Any, new: Any) -> bool:
    """Equal; of other processors' floats, three digits."""
    if isinstance(old, float) and isinstance(new, float):
        return math.isclose(old, new, rel_tol=1e-3, abs_tol=1e-9)
    return bool(old == new)


def check_again(name: str, folder: Path) -> None:
    here = {claim: each for claim, each in CLAIMS.items() if each.page == name}
    number = drawn(sorted({k for each in here.values() for k in range(each.first, each.first + each.seeds)}), name)
    fresh = judged_again(name, number, folder)
    looked = {claim: each for claim, each in here.items() if each.first <= number < each.first + each.seeds}
    told = [f"{claim}: {said}" for claim, each in looked.items() for said in differences(each, *fresh[claim])]
    assert looked
    assert told == [], f"{name} at seed {number}"


def test_a_page_judged_again_at_one_seed_says_what_the_table_says(tmp_path: Path) -> None:
    check_again(drawn(pages(11)), tmp_path)


@pytest.mark.weekly
@pytest.mark.parametrize("name", pages(31))
def test_pages_judged_again_at_one_seed_each_say_what_the_table_says(name: str, tmp_path: Path) -> None:
    check_again(name, tmp_path)
