"""The folder of a sweep: what is kept, what counts as missing, what is refused. No kernel starts: rows are made batched."""

import errno
import json
import os
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import xarray as xr
from filelock import FileLock

from bookkit.pages.catalogue import UserError
from bookkit.sweeps import folder as folders
from bookkit.sweeps import open_sweep, plan, sweep
from bookkit.sweeps.folder import Status
from tests.refusals import refused_call, snapshot
from tests.sweeps.counting import PAGE, SQUARES


def run(n: list[int], **options):
    return sweep("counting", {"product": {"n": n}}, "out", batched=True, **options)


def test_rows_table_and_array(book) -> None:
    found = run([0, 3, 2], fixed={"broken": 3})
    assert sorted(p.name for p in book.out.iterdir()) == [
        ".lock", "notebooks", "results.nc", "results.parquet", "rows", "sweep.json",
    ]  # fmt: skip
    assert {path.stem for path in (book.out / "rows").iterdir()} == set(found.points) == set(found.rows)
    assert found.status == open_sweep("out").status == Status(total=3, done=2, failed=1, missing=0)
    for table in (found.table, pd.read_parquet(book.out / "results.parquet")):
        assert table["n"].tolist() == [0, 3, 2]
        assert table["square"].isna().tolist() == [False, True, False]
        assert table["square"].dropna().tolist() == [0, 4]
        assert table["run_error"].tolist()[1] == "ValueError: one is broken"
    with xr.open_dataset(book.out / "results.nc", engine="h5netcdf") as array:
        xr.testing.assert_identical(array.load(), found.array)


def test_only_what_is_missing_runs_and_a_folder_holds_several_grids(book, monkeypatch) -> None:
    run([1, 2])
    before = snapshot(book.out / "rows")
    assert run([1, 2]).status.done == 2
    assert plan("counting", {"product": {"n": [1, 5, 2]}}, "out").todo.keys() - set(run([1, 2]).points)
    found = run([5, 2])
    assert found.table["n"].tolist() == [5, 2]
    assert {name: content for name, content in snapshot(book.out / "rows").items() if name in before} == before
    assert run([1, 2, 5]).status == Status(3, 3, 0, 0)
    assert len(snapshot(book.out / "rows")) == 3


def test_failed_points_stay_failed_until_asked_for(book) -> None:
    run([1, 2], fixed={"broken": 2})
    rows = snapshot(book.out / "rows")
    assert run([1, 2], fixed={"broken": 2}).status.failed == 1
    assert snapshot(book.out / "rows") == rows
    stale = book.out / "notebooks" / f"{list(open_sweep('out').points)[1]}.ipynb"
    stale.write_text("of the attempt before")
    run([1, 2], fixed={"broken": 2}, retry_failed=True)
    assert not stale.exists()
    assert sum(snapshot(book.out / "rows")[name] != content for name, content in rows.items()) <= 1


BROKEN = [
    lambda text: text[:-9],
    lambda text: bytes(len(text)),  # zeros, as after a power cut
    lambda text: b"[" + text + b"]",
    lambda text: json.dumps({"id": json.loads(text)["id"], "status": "done"}).encode(),  # without checksum
    lambda text: b"[" * 100_000,
]


def test_a_damaged_row_is_missing_and_runs_again_with_a_sentence(book, capsys) -> None:
    run([1, 2])
    path = book.out / "rows" / f"{next(iter(open_sweep('out').points))}.json"
    whole = path.read_bytes()
    for change in BROKEN:
        path.write_bytes(change(whole))
        assert open_sweep("out").damaged == [path.stem]
    found = open_sweep("out")
    assert found.status == Status(2, 1, 0, 1)
    assert found.table["n"].tolist() == [2]
    assert found.array["square"].isnull().values.tolist() == [True, False]
    capsys.readouterr()
    assert run([1, 2]).table["square"].tolist() == [1, 4]
    assert capsys.readouterr().err == f"1 rows in out are damaged ({path.name}): run again\n"


def test_no_flipped_bit_of_a_row_makes_another_result(book) -> None:
    run([1])
    path = next((book.out / "rows").glob("*.json"))
    whole, content = path.read_bytes(), folders._read(path)
    damaged = 0
    for place, byte in enumerate(whole):
        path.write_bytes(whole[:place] + bytes([byte ^ 1 << place % 8]) + whole[place + 1 :])
        found = folders._read(path)
        assert found is None or found == content, place
        damaged += found is None
    assert damaged > 0.9 * len(whole)  # a space for another, or e for E in a number, is no damage


def test_a_row_under_the_name_of_another_point_is_not_used(book) -> None:
    first, second = (book.out / "rows" / f"{id_}.json" for id_ in run([1, 2]).points)
    second.write_bytes(first.read_bytes())
    assert open_sweep("out").damaged == [second.stem]
    assert run([1, 2]).table["square"].tolist() == [1, 4]


def test_what_killed_writes_leave_behind_goes(book) -> None:
    run([1])
    before = snapshot(book.out)
    for name in ("rows/0.json.77.part", "notebooks/a.ipynb.77.part", "results.nc.77.part"):
        (book.out / name).write_text("half")
    run([1])
    assert snapshot(book.out).keys() == before.keys()
    (book.root / "new").mkdir()
    (book.root / "new" / ".lock").touch()
    (book.root / "new" / "sweep.json.77.part").touch()
    assert sweep("counting", {"seeds": 1}, "new", batched=True).status.done == 1


# --- refusals -------------------------------------------------------------------------------------------------------------


def changed(book, name: str, to: object) -> None:
    """sweep.json with another value, its checksum as it should be."""
    content = json.loads((book.out / "sweep.json").read_text())
    del content["checksum"]
    folders._write(book.out / "sweep.json", content | {name: to})


REFUSED = [
    (lambda book: changed(book, "format", 1), "sweep.json cannot be read (format 1, this version reads 2)", "-o out-2"),
    (lambda book: changed(book, "page", "part/02_x"), "holds a sweep of page part/02_x, not part/01_counting"),
    (lambda book: (book.out / "sweep.json").write_text("{"), "sweep.json cannot be read (it is damaged)", "-o out-2"),
    (lambda book: (book.out / "sweep.json").unlink(), "out holds ", " and is no sweep: give a new folder", "-o out-2"),
]


@pytest.mark.parametrize("case", REFUSED, ids=range(len(REFUSED)))
def test_a_folder_that_cannot_take_the_sweep_is_refused_and_left_alone(book, case) -> None:
    spoil, *parts = case
    run([1])
    spoil(book)
    before = snapshot(book.root)
    refused_call(lambda: run([1]), *parts)
    assert snapshot(book.root) == before


def test_a_folder_that_is_in_use_is_refused(book) -> None:
    run([1])
    with FileLock(book.out / ".lock"):
        refused_call(lambda: run([1]), "in use by another sweep: wait for it to end", "-o ")


def test_a_sweep_that_appears_after_the_check_is_not_mixed_with(book, monkeypatch) -> None:
    asked = plan("counting", {"product": {"n": [1]}}, "out").asked
    run([1])
    changed(book, "page_hash", "c" * 64)
    before = snapshot(book.out)
    with pytest.raises(UserError, match="another version of the page"), folders.locked(asked):
        raise AssertionError("two versions in one folder")
    assert snapshot(book.out) == before


def test_a_point_is_its_page_its_code_and_its_parameters(book) -> None:
    asked = plan("counting", {"product": {"n": [1, 2]}}, "out").asked
    others = [asked, replace(asked, page_hash="c"), replace(asked, package_hash="c")]
    assert len({id_ for each in others for id_ in each.points}) == 6


def test_an_edited_package_or_page_is_another_version(book) -> None:
    run([1])
    (book.root / "counted" / "squares.py").write_text(SQUARES.replace("** 2", "** 3"))
    refused_call(lambda: run([1]), "another version of the code")
    (book.root / "notebooks" / "part" / "01_counting.md").write_text(PAGE.replace("# A page", "# Another"))
    refused_call(lambda: run([1]), "another version of the page (", "and of the code (")


def test_the_offered_name_is_free_and_a_missing_parent_is_refused(book) -> None:
    for name in ("out", "out-2", "out-3"):
        (book.root / name).write_text("mine")
    refused_call(lambda: run([1]), "as in -o out-4")
    away = book.root / "no" / "out"
    refused_call(
        lambda: sweep("counting", {"seeds": 1}, away), f"must lie in a folder that exists: make {away.parent} first"
    )


@pytest.mark.parametrize("name", ["sweep.json", "rows", "results.parquet", "results.nc"])
def test_a_full_disk_is_one_line_and_keeps_what_is_there(book, monkeypatch, name) -> None:
    run([1, 2])
    before = snapshot(book.out)
    rename = os.replace

    def full(source, target):
        if name in (Path(target).name, Path(target).parent.name):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        rename(source, target)

    monkeypatch.setattr(os, "replace", full)
    refused_call(
        lambda: run([1, 2, 3]),
        "cannot be written (No space left on device); rows safe in it: ",
        "the same command again",
    )
    after = snapshot(book.out)
    assert {key: after[key] for key in before if "rows" in key} == {key: before[key] for key in before if "rows" in key}
    assert not [key for key in after if key.endswith(".part")]
    monkeypatch.undo()


def test_open_refuses_what_is_no_sweep(book) -> None:
    refused_call(lambda: open_sweep("nowhere"), "sweep folder nowhere does not exist: give the folder named by -o")
    refused_call(lambda: open_sweep("notebooks"), "folder notebooks holds no sweep (sweep.json is missing)")
