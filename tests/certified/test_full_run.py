"""A claim that rests on a stored table is proved only where a full run of exactly this table is on record."""

import json
import shutil
from pathlib import Path

import pytest

pytest.importorskip("flint")

from attnbook.certified import boundary_range, certify, full_run, hard_heads
from attnbook.certified.boundary import BRACKETS, KEPT, OTHER_RATES, BoundaryStudy
from attnbook.certified.claims_boundary import BOUNDARY_CLAIMS
from attnbook.certified.claims_error import ERROR_CLAIMS
from attnbook.certified.claims_ranges import RANGE_CLAIMS
from attnbook.certified.error_study import LADDER, MEETING, ErrorStudy
from attnbook.certified.full_run import Table, run_all
from attnlib.kernels import _reads
from bookkit.claims import Check, Verdict
from tests.house import ROOT

CELLS, HEADS = boundary_range.stored(), hard_heads.stored()


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A record of its own, empty at first."""
    monkeypatch.setattr(full_run, "RECORD", tmp_path / "record.json")
    return tmp_path / "record.json"


def test_the_record_is_of_the_tables_as_they_are_stored() -> None:
    lines = full_run._read(full_run.RECORD)
    found = {table.name: table for made in certify.tables().values() for table in (make() for make in made)}
    assert set(lines) == set(found)
    assert {name: line["rows"] for name, line in lines.items()} == {name: table.rows for name, table in found.items()}
    assert [table.name for table in found.values() if table.missing] == []
    assert sum(line["rows"] for name, line in lines.items() if "heads" in name) == 10_000
    assert all(line["bits"] >= 96 for line in lines.values())
    assert all(line["seconds"] > 1 for line in lines.values())


def _kept(cells: list[str], kept: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> Check:
    monkeypatch.setattr(boundary_range, "stored", lambda: {**CELLS, "0.2 signal": cells})
    return RANGE_CLAIMS["V59"].check(BoundaryStudy(BRACKETS, OTHER_RATES, {"0.2": kept}, 2))


@pytest.mark.parametrize(
    ("cells", "kept"),
    [
        (["1.6212", "40"], ("1.6212", "4.0000")),  # another table, which a reviewer put in: it was "proved" at one x
        ([*CELLS["0.2 signal"], "2.5"], KEPT["0.2"]),  # a longer one
        ([*CELLS["0.2 signal"][:3], *CELLS["0.2 signal"][4:]], KEPT["0.2"]),  # two cells made one
    ],
)
def test_another_table_is_spot_checked(cells, kept, monkeypatch) -> None:
    check = _kept(cells, kept, monkeypatch)
    assert check.verdict is Verdict.OUTSIDE
    assert check.violated.startswith("spot-checked: no full run of exactly this table is on record (0.2 signal)")
    assert certify.report(check, 0.0).startswith("V59  spot-checked: ")
    assert "negative control (the flow ends on the noise there): spot-checked" in certify.report(check, 0.0)


def test_the_stored_table_is_proved_within_its_ends_and_no_further(monkeypatch, record) -> None:
    check = _kept(CELLS["0.2 signal"], ("1.6300", "1.9700"), monkeypatch)
    assert check.violated.startswith("undecided at 128 bits")  # the cells end at 1.96
    check = _kept(CELLS["0.2 signal"], ("1.6300", "1.9600"), monkeypatch)
    assert check.violated.startswith("spot-checked")  # the record is empty
    monkeypatch.undo()
    check = _kept(CELLS["0.2 signal"], ("1.6300", "1.9600"), monkeypatch)
    assert (check.verdict, check.has_power, check.evidence.parts[0].kind) == (Verdict.HOLDS, True, "exact")


def test_a_row_of_heads_that_is_edited_is_spot_checked_and_no_full_run_proves_it(monkeypatch, record, tmp_path) -> None:
    """A reviewer's row, farther from the truth than float numbers can be: it was sealed as proved, as nobody read it."""
    assert whole_of("ratio", monkeypatch, HEADS).missing == "no full run of exactly this table is on record"
    ratio = HEADS["ratio"]
    small = {"largest": 1e-20, "quantiles": {"0.5": 1e-22, "0.9": 1e-21, "0.99": 1e-21}}
    edited = {**HEADS, "ratio": {**ratio, **small, "points": [[x, 1e-22] for x, _ in ratio["points"]]}}
    said: list[str] = []
    assert not run_all([whole_of("ratio", monkeypatch, edited)], tmp_path, said.append)
    assert said == [
        "ratio heads: part 1 of 1 is not proved: largest of the row is not what is found here; "
        "python -m attnbook.certified.hard_heads makes it anew"
    ]
    assert full_run._read(record) == {}
    assert run_all([whole_of("ratio", monkeypatch, HEADS)], tmp_path, said.append)
    assert not whole_of("ratio", monkeypatch, HEADS).missing
    check = ERROR_CLAIMS["V3"].check(ErrorStudy())
    assert check.violated.startswith(
        "spot-checked: no full run of exactly this table is on record (steep heads, wide heads, deep"
    )
    assert "; run attnlib certify --full; only a few rows" in check.violated


def whole_of(family: str, monkeypatch, table: dict[str, dict]) -> Table:
    """A family of another table, in a run that makes the first hundred of its heads in place of all of them."""
    few, made = 100, hard_heads.row
    monkeypatch.setattr(hard_heads, "COUNT", few)
    fresh = made(family, few)
    monkeypatch.setattr(hard_heads, "row", lambda *_: fresh)
    # What a hundred heads give in place of two thousand, where nothing was edited.
    content = {name: fresh[name] if value == HEADS[family][name] else value for name, value in table[family].items()}
    monkeypatch.setattr(hard_heads, "stored", lambda: {**HEADS, family: content})
    return hard_heads.whole_family(family)


@pytest.mark.parametrize("name", ["largest", "quantiles", "points", "beyond", "ulps", "where", "log10_error", "heads"])
def test_every_entry_of_a_row_is_compared(name: str) -> None:
    row = HEADS["tie"]
    assert hard_heads.differing(row, json.loads(json.dumps(row))) == ""
    other = json.loads(json.dumps(row))
    if isinstance(other[name], dict):
        other[name]["0.9"] *= 1.00001
    elif isinstance(other[name], list):
        place = other[name][-1] if isinstance(other[name][-1], list) else other[name]
        place[-1] *= 1.00001
    else:
        other[name] += max(1, other[name]) * 1e-5
    assert hard_heads.differing(row, other) == name
    del other[name]
    assert hard_heads.differing(row, other) == name


def test_the_record_is_void_for_other_programs_and_not_for_other_prose(tmp_path, monkeypatch) -> None:
    """Each module that a proof reads, in a copy: a comment or a docstring changes nothing, a line of code does."""
    for package in ("attnlib", "book/attnbook"):
        unread = shutil.ignore_patterns("__pycache__", "tables")
        shutil.copytree(ROOT / package, tmp_path / Path(package).name, ignore=unread)
    monkeypatch.setattr(_reads, "_home", lambda top: tmp_path / top)
    for table in (hard_heads.whole_family("wide"), boundary_range.side("0.2", "signal")):
        hashed = lambda table=table: _reads.programs.__wrapped__(table.module, full_run.PROGRAMS)  # noqa: E731
        assert hashed() == table.programs
        read = _reads.reads(f"import {table.module}", own=full_run.PROGRAMS)
        for path in read.values():
            text = path.read_text(encoding="utf-8")
            path.write_text(text.replace('"""', '"""Said otherwise. ', 1) + "\n# and a remark\n", encoding="utf-8")
            assert hashed() == table.programs, path
            path.write_text(text + "\nCHANGED = 1  # a remark\n", encoding="utf-8")
            assert hashed() != table.programs, path
            path.write_text(text, encoding="utf-8")
        names = {name.removeprefix("attnbook.certified.") for name in read}
        assert {"certificate", "full_run", "attnlib.randomness", table.module.rpartition(".")[2]} <= names
        assert "claims_error" not in names
    loops = {"attnlib.kernels.gaussian_tail._loops", "attnlib.kernels.gaussian_tail.compiled", "attnlib.quadrature"}
    assert loops <= set(_reads.reads("import attnbook.certified.hard_heads", own=full_run.PROGRAMS))


def test_a_claim_proved_by_other_programs_is_spot_checked(monkeypatch) -> None:
    monkeypatch.setattr(_reads, "programs", lambda *_: "others")
    check = _kept(CELLS["0.2 signal"], ("1.6300", "1.9600"), monkeypatch)
    assert check.verdict is Verdict.OUTSIDE
    assert check.violated.startswith(
        "spot-checked: the full run on record was one of other programs (0.2 signal); run attnlib certify --full; only a few"
    )


def test_a_run_that_was_stopped_goes_on_and_one_that_fails_leaves_no_record(tmp_path, record) -> None:
    tried, said = [], []

    def refuted(part: int) -> str:
        tried.append(part)
        if tried.count(3) == 1 and part == 3:
            raise KeyboardInterrupt
        return "" if part < 5 else f"number {part}"

    def table(last: int) -> Table:
        return Table("numbers", [last], last, 64, range(1, last + 1), refuted, "attnlib.limits")

    with pytest.raises(KeyboardInterrupt):
        run_all([table(4)], tmp_path, said.append)
    assert table(4).missing
    assert run_all([table(4)], tmp_path, said.append)
    assert tried == [1, 2, 3, 3, 4]
    assert not table(4).missing
    assert table(3).missing
    assert not (tmp_path / full_run.KEPT).exists()
    assert not run_all([table(5)], tmp_path, said.append)
    assert said[-1] == "numbers: part 5 of 5 is not proved: number 5"
    assert full_run._read(record) == {}
    assert not run_all([Table("nothing", [], 0, 64, (), refuted, "attnlib.limits")], tmp_path, said.append)


@pytest.mark.parametrize(("id", "name", "proved"), [("V57", "0.05 noise", True), ("V59", "0.2 signal", False)])
def test_cells_are_proved_by_the_command(id, name, proved, capsys, monkeypatch, record) -> None:
    """Just above x = 1 the flow ends on the noise, and not on the signal."""
    names = [table().name for table in certify.tables()[id]]
    assert name in names
    monkeypatch.setattr(boundary_range, "stored", lambda: {each: ["1.0050", "1.0000"] for each in names})
    certify.main(["--full", id])
    said = capsys.readouterr().out
    assert f"{name}: part 1 of 1 is {'' if proved else 'not '}proved" in said
    assert (full_run._read(record).get(name, {}).get("rows") == 1) is proved


def test_bad_calls_are_refused_in_a_line(capsys, monkeypatch, tmp_path) -> None:
    assert certify.main(["--full", "V1"]) == 2
    assert "V1 rests on no stored table: leave out --full; claims with a table are V3, V57, " in capsys.readouterr().err
    monkeypatch.setattr(full_run, "RECORD", tmp_path / "none" / "record.json")
    assert certify.main(["--full", "V57"]) == 2
    assert capsys.readouterr().err.startswith("attnlib certify: error: the record of the full run cannot be written: ")


def test_sentences_name_the_numbers_that_are_proved() -> None:
    for id, numbers in (
        ("V1", [text for _, text in LADDER]), ("V6", [MEETING[1]]), ("V52", OTHER_RATES["4"]), ("V53", OTHER_RATES["0.25"]),
        ("V57", [low for low, _ in BRACKETS.values()]), ("V59", [text.rstrip("0") for text in KEPT["0.2"]]),
        ("V50", [text for ends in BRACKETS.values() for text in ends]),
    ):  # fmt: skip
        statement = {**ERROR_CLAIMS, **BOUNDARY_CLAIMS, **RANGE_CLAIMS}[id].statement
        assert all(number in statement for number in numbers), id
